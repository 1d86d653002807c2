// SPDX-License-Identifier: GPL-2.0

//! What an administrator may change at any time: the sysctls under `/proc/sys/sunrpc`, and of the server under `svc_rdma`
//! there; and the module parameters under `/sys/module/rpcrdma/parameters`.

use crate::proto::auth::Mode;
use crate::sys;
use kernel::{
    error::to_result,
    prelude::*, //
};

/// Keeps the sysctls visible.
pub(crate) struct Tunables(());

impl Tunables {
    /// Makes them visible.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn register() -> Result<Self> {
        // SAFETY: `Drop` takes them back before the module goes.
        to_result(unsafe { sys::rpcrdma_sysctl_register() })?;
        let this = Self(());
        // SAFETY: As above. If it fails, nothing of it is left.
        to_result(unsafe { sys::rpcrdma_sysctl_svc_register() })?;
        Ok(this)
    }
}

impl Drop for Tunables {
    fn drop(&mut self) {
        // SAFETY: If this was registered the module is being unloaded: there is no connection any more.
        unsafe { sys::rpcrdma_sysctl_svc_unregister() };
        // SAFETY: `register` registered these.
        unsafe { sys::rpcrdma_sysctl_unregister() };
    }
}

/// Reads a variable that an administrator may change at any time.
///
/// # Safety
///
/// `value` is valid.
unsafe fn read(value: *const u32) -> u32 {
    // SAFETY: The caller guarantees it; sysctl and module parameters are stored as aligned words.
    unsafe { value.read_volatile() }
}

/// Slots of a new transport: 4 to 16384.
pub(crate) fn slot_table_entries() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_sysctl_slot_table_entries) }
}

/// Octets of the largest inline message that a new connection receives: 1024 to 65536.
pub(crate) fn max_inline_read() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_sysctl_max_inline_read) }
}

/// Octets of the largest inline message that a new connection sends: 1024 to 65536.
pub(crate) fn max_inline_write() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_sysctl_max_inline_write) }
}

/// The highest version that a new connection of the client offers: 1 or 2.
pub(crate) fn client_version() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_parameter_client_version) }
}

/// How often that version was set, modulo 2^32.
pub(super) fn client_version_settings() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_parameter_client_version_set) }
}

/// The highest version that a new connection of the server accepts: 1 or 2.
pub(crate) fn server_version() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_parameter_server_version) }
}

/// What one of the parameters about host authentication says.
///
/// # Safety
///
/// `value` is valid.
unsafe fn host_auth(value: *const u32) -> Mode {
    // SAFETY: The caller guarantees it.
    match unsafe { read(value) } {
        sys::rpcrdma_host_auth_RPCRDMA_HOST_AUTH_OFF => Mode::Off,
        sys::rpcrdma_host_auth_RPCRDMA_HOST_AUTH_OFFER => Mode::Offer,
        _ => Mode::Require,
    }
}

/// Whether servers are to authenticate themselves, on new connections of the client.
pub(crate) fn client_host_auth() -> Mode {
    // SAFETY: The variable is static.
    unsafe { host_auth(&raw const sys::rpcrdma_parameter_client_host_auth) }
}

/// Whether clients are to authenticate themselves, on new connections of the server.
pub(crate) fn server_host_auth() -> Mode {
    // SAFETY: The variable is static.
    unsafe { host_auth(&raw const sys::rpcrdma_parameter_server_host_auth) }
}

/// Octets that make host authentication material longer.
pub(crate) fn host_auth_padding() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_parameter_host_auth_padding) }
}

/// Calls that a peer of a new connection of the server may have unanswered: 4 to 16384.
pub(crate) fn max_requests() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_sysctl_svc_max_requests) }
}

/// Octets of the largest inline message of a new connection of the server, either way: 1024 to 65536.
pub(crate) fn max_request_size() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_sysctl_svc_max_req_size) }
}

/// Octets of memory that RDMA Reads and Writes of all connections of the server may have together: from a MiB on.
pub(crate) fn transfer_memory() -> u64 {
    // SAFETY: The variable is static.
    u64::from(unsafe { read(&raw const sys::rpcrdma_sysctl_svc_transfer_memory) }) << 20
}

/// Send buffers that all connections of the server may have together, beyond the first ones of each.
pub(crate) fn send_buffers() -> u64 {
    // SAFETY: The variable is static.
    u64::from(unsafe { read(&raw const sys::rpcrdma_sysctl_svc_send_buffers) })
}

/// RDMA Reads that a new connection of the server may have under way at once: 1 to 255.
pub(crate) fn max_outbound_reads() -> u32 {
    // SAFETY: The variable is static.
    unsafe { read(&raw const sys::rpcrdma_sysctl_svc_max_outbound_reads) }
}
