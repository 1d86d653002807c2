// SPDX-License-Identifier: GPL-2.0

//! The settings that an administrator may change at any time: the sysctls under `/proc/sys/sunrpc`,
//! those of the server in `svc_rdma` there, and the module parameters under
//! `/sys/module/rpcrdma/parameters`.

use crate::kext::prelude::*;
use crate::{
    proto::auth::Mode,
    sys, //
};

/// The registration of the sysctls. Dropped, it is undone.
pub(crate) struct Tunables(());

impl Tunables {
    /// Registers the sysctls.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: `Drop` unregisters the sysctls before the module goes.
        to_result(unsafe { sys::rpcrdma_sysctl_register() })?;
        let this = Self(());
        // SAFETY: `Drop` unregisters the sysctls before the module goes. If this fails, none of
        // them is left.
        to_result(unsafe { sys::rpcrdma_sysctl_svc_register() })?;
        Ok(this)
    }
}

impl Drop for Tunables {
    fn drop(&mut self) {
        // SAFETY: If these are registered, the module is being unloaded, so there is no connection
        // any more. If they are not, the function does nothing.
        unsafe { sys::rpcrdma_sysctl_svc_unregister() };
        // SAFETY: `register` has registered these.
        unsafe { sys::rpcrdma_sysctl_unregister() };
    }
}

/// Makes a function for each variable, which an administrator may change at any time.
macro_rules! tunables {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident = $variable:ident;)*) => {$(
        $(#[$doc])*
        $vis fn $name() -> u32 {
            // SAFETY: The variable is static. Sysctls and module parameters are written as aligned
            // words, so a volatile read finds a value that was set.
            unsafe { (&raw const sys::$variable).read_volatile() }
        }
    )*};
}

tunables! {
    /// Returns the number of slots of a new transport: 4 to 16384.
    pub(crate) fn slot_table_entries = rpcrdma_sysctl_slot_table_entries;

    /// Returns the size of the largest inline message that a new connection receives: 1024 to 65536
    /// octets.
    pub(crate) fn max_inline_read = rpcrdma_sysctl_max_inline_read;

    /// Returns the size of the largest inline message that a new connection sends: 1024 to 65536
    /// octets.
    pub(crate) fn max_inline_write = rpcrdma_sysctl_max_inline_write;

    /// Returns the highest version that a new connection of the client offers: 1 or 2.
    pub(crate) fn client_version = rpcrdma_parameter_client_version;

    /// Returns the number of connections of a device that have Receive Queues of their own.
    pub(crate) fn own_receive_queues = rpcrdma_parameter_own_receive_queues;

    /// Returns the protocol that a new connection of the client offers as version number two: 7, or
    /// 2016.
    pub(crate) fn client_dialect = rpcrdma_parameter_client_dialect;

    /// Returns whether a new connection of the server that accepts version number two accepts the
    /// protocol of 2016 as well: 0 or 1.
    pub(crate) fn server_2016 = rpcrdma_parameter_server_2016;

    /// Returns whether Replies to the client may invalidate the handles of their Calls, where that
    /// can be told at any time: 0 or 1.
    pub(crate) fn client_remote_invalidation = rpcrdma_parameter_client_remote_invalidation;

    /// Returns the size in octets of the Receives that a server is asked for, where it can be
    /// asked; 0 if it is not.
    pub(crate) fn client_request_receive_size = rpcrdma_parameter_client_request_receive_size;

    /// Returns one more than the value of remote invalidation that a server is asked for; 0 if it
    /// is not.
    pub(crate) fn client_request_remote_invalidation =
        rpcrdma_parameter_client_request_remote_invalidation;

    /// Returns one more than the level of callbacks that a client is asked for; 0 if it is not.
    pub(crate) fn server_request_callbacks = rpcrdma_parameter_server_request_callbacks;

    /// Returns after how many seconds of silence a peer is asked whether it lives, where it can be
    /// asked; 0 if it is never asked.
    pub(crate) fn keep_alive = rpcrdma_parameter_keep_alive;

    /// Returns the number of times that what to offer was set, modulo 2^32.
    pub(super) fn client_version_settings = rpcrdma_parameter_client_version_set;

    /// Returns the highest version that a new connection of the server accepts: 1 or 2.
    pub(crate) fn server_version = rpcrdma_parameter_server_version;

    /// Returns the C value of [`client_host_auth`].
    fn client_host_auth_value = rpcrdma_parameter_client_host_auth;

    /// Returns the C value of [`server_host_auth`].
    fn server_host_auth_value = rpcrdma_parameter_server_host_auth;

    /// Returns the number of octets that make host authentication material longer, for tests.
    pub(crate) fn host_auth_padding = rpcrdma_parameter_host_auth_padding;

    /// Returns the number of unanswered Calls that the peer of a new connection of the server may
    /// have: 4 to 16384.
    pub(crate) fn max_requests = rpcrdma_sysctl_svc_max_requests;

    /// Returns the size of the largest inline message of a new connection of the server, in either
    /// direction: 1024 to 65536 octets.
    pub(crate) fn max_request_size = rpcrdma_sysctl_svc_max_req_size;

    /// Returns the memory that RDMA Reads and Writes of all connections of the server may have
    /// together: one MiB or more.
    pub(crate) fn transfer_megabytes = rpcrdma_sysctl_svc_transfer_memory;

    /// Returns the number of Send buffers that all connections of the server may have together,
    /// beyond the first ones of each.
    pub(crate) fn send_buffers = rpcrdma_sysctl_svc_send_buffers;

    /// Returns the memory that the Receives of all connections of the server should take at most,
    /// where they are not shared: one MiB or more.
    pub(crate) fn receive_megabytes = rpcrdma_sysctl_svc_receive_memory;

    /// Returns the number of RDMA Reads that a new connection of the server may have under way at
    /// once: 1 to 255.
    pub(crate) fn max_outbound_reads = rpcrdma_sysctl_svc_max_outbound_reads;
}

/// Returns the mode of host authentication that a value of C stands for.
fn host_auth(value: u32) -> Mode {
    match value {
        sys::rpcrdma_host_auth_RPCRDMA_HOST_AUTH_OFF => Mode::Off,
        sys::rpcrdma_host_auth_RPCRDMA_HOST_AUTH_OFFER => Mode::Offer,
        _ => Mode::Require,
    }
}

/// Returns the mode of host authentication of servers, on new connections of the client.
pub(crate) fn client_host_auth() -> Mode {
    host_auth(client_host_auth_value())
}

/// Returns the mode of host authentication of clients, on new connections of the server.
pub(crate) fn server_host_auth() -> Mode {
    host_auth(server_host_auth_value())
}

/// Makes a function for each variable whose default is not known before the module is loaded.
macro_rules! defaults {
    ($($(#[$doc:meta])* $vis:vis fn $name:ident = $variable:ident;)*) => {$(
        $(#[$doc])*
        $vis fn $name(value: u32) {
            // SAFETY: The variable is static, and written as an aligned word here as elsewhere.
            unsafe { (&raw mut sys::$variable).write_volatile(value) }
        }
    )*};
}

defaults! {
    /// Sets what [`transfer_megabytes`] returns until an administrator sets something else.
    pub(crate) fn set_transfer_megabytes = rpcrdma_sysctl_svc_transfer_memory;

    /// Sets what [`send_buffers`] returns until an administrator sets something else.
    pub(crate) fn set_send_buffers = rpcrdma_sysctl_svc_send_buffers;

    /// Sets what [`receive_megabytes`] returns until an administrator sets something else.
    pub(crate) fn set_receive_megabytes = rpcrdma_sysctl_svc_receive_memory;
}
