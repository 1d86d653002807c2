// SPDX-License-Identifier: GPL-2.0

//! What a transport has to provide.

use super::{
    handle::XprtHandle,
    send::{
        BcReply,
        SendRqst, //
    },
    slot::Slot,
    svc::ServerTransport,
    task::RpcTask, //
};
use crate::kext::errno::{
    EBADSLT,
    ENOBUFS,
    ENOTCONN, //
};
use kernel::{
    prelude::*,
    seq_file::SeqFile,
    sync::Arc, //
};

/// A transport of ours as SUNRPC sees it.
///
/// The state of a transport is an `Arc<Self>`; its `rpc_xprt` has one reference to it. See the
/// documentation of the module above for who calls what, and under which lock. Unless said otherwise a
/// function is called in process context.
pub(crate) trait Transport: Send + Sync + Sized + 'static {
    /// What each slot carries beside its `rpc_rqst`.
    type Call: Send + Sync;

    /// The largest payload of an RPC, in octets.
    const MAX_PAYLOAD: usize;

    /// The handle that it was made with.
    fn xprt(&self) -> &XprtHandle;

    /// A free slot, if there is one. Must not sleep: `free_slot` of one task and `alloc_slot` of another
    /// may run anywhere that SUNRPC ends RPCs.
    fn alloc_slot(this: &Arc<Self>) -> Option<Arc<Slot<Self::Call>>>;

    /// Takes a slot from [`alloc_slot`](Self::alloc_slot) back. Not called when the slot went on to
    /// the next task that waited for one. Must not sleep.
    fn free_slot(this: &Arc<Self>, slot: Arc<Slot<Self::Call>>);

    /// The buffers of a slot had to be made larger by `bytes`. For the statistics.
    fn grown(&self, bytes: usize);

    /// The task of a slot gives its buffers up.
    ///
    /// When this returns, no device may reach them, nor the pages of the RPC. May sleep for that.
    fn buf_free(this: &Arc<Self>, slot: &Arc<Slot<Self::Call>>);

    /// Sends a Call. The caller holds the send lock.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    fn send_request(this: &Arc<Self>, rqst: SendRqst<'_, Self>) -> Result<(), SendError>;

    /// Sends the Reply of a reverse-direction Call. The caller holds the send lock.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    fn send_bc_reply(this: &Arc<Self>, rqst: BcReply<'_, Self::Call>) -> Result<(), SendError>;

    /// Begins to connect. `task` holds the send lock; see [`XprtHandle::lock_connect`].
    fn connect(this: &Arc<Self>, task: &RpcTask);

    /// Ends the connection. The caller holds the send lock.
    fn close(this: &Arc<Self>);

    /// An RPC has waited for its Reply for too long.
    fn timer(this: &Arc<Self>);

    /// Ends the connection as if the peer had done it, for a test. The caller holds the send lock.
    fn inject_disconnect(this: &Arc<Self>);

    /// Prints the transport's line of `/proc/self/mountstats`.
    fn print_stats(&self, m: &SeqFile);

    /// Prepares for reverse-direction Calls, `requests` of them at a time.
    ///
    /// # Errors
    ///
    /// Then there is no service for them.
    fn bc_setup(this: &Arc<Self>, requests: u32) -> Result;

    /// The largest reverse-direction message, in octets.
    fn bc_maxpayload(&self) -> usize;

    /// How many reverse-direction Calls there may be at a time.
    fn bc_num_slots(&self) -> u32;

    /// Takes a slot back that [`enqueue_bc_call`](super::enqueue_bc_call) lent. Must not sleep.
    fn bc_free_rqst(this: &Arc<Self>, slot: Arc<Slot<Self::Call>>);

    /// There will be no service for reverse-direction Calls any more.
    fn bc_destroy(this: &Arc<Self>);

    /// The transport goes away. Nothing else is called from now on.
    ///
    /// When this returns, the reference that `this` stands for is the last one: the connection, the
    /// works and the timers of the transport are gone, and no slot refers to the transport. The handle
    /// goes with it. What stays behind is never freed, nor can the module be unloaded.
    fn destroy(this: &Arc<Self>);
}

/// A transport that makes its own connections.
pub(crate) trait ConnectingTransport: Transport {
    /// Makes a transport. It keeps `xprt` as long as it lives.
    ///
    /// # Errors
    ///
    /// Become those of mount.
    fn setup(xprt: XprtHandle) -> Result<Arc<Self>>;
}

/// A transport for Calls to a client, on a connection which that client has made to a server.
///
/// SUNRPC ends it with [`Transport::close`] when the server's transport is closed; the caller does not hold the
/// send lock then.
pub(crate) trait CallbackTransport: Transport {
    /// The server's transport that has the connection.
    type Connection: ServerTransport;

    /// How many Calls there may be at a time.
    const SLOTS: u32;

    /// Makes a transport. It keeps `xprt` as long as it lives.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the connection has one already.
    fn setup(xprt: XprtHandle, connection: &Arc<Self::Connection>) -> Result<Arc<Self>>;
}

/// Why a message was not sent, and what SUNRPC shall do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// There is no connection: connect, then call again.
    NotConnected,
    /// Call again. [`XprtHandle::wait_for_buffer_space`] was called, so that happens after
    /// [`XprtHandle::write_space`].
    Again,
    /// No credit: call again when a Reply has come.
    BadSlot,
    /// Call again after a while.
    NoBufs,
    /// The message cannot be sent: it is too large. The RPC fails.
    MsgSize,
    /// The message cannot be sent. The RPC fails.
    Io,
}

impl SendError {
    /// The errno that SUNRPC knows it by.
    pub(super) fn to_errno(self) -> c_int {
        match self {
            Self::NotConnected => ENOTCONN,
            Self::Again => EAGAIN,
            Self::BadSlot => EBADSLT,
            Self::NoBufs => ENOBUFS,
            Self::MsgSize => EMSGSIZE,
            Self::Io => EIO,
        }
        .to_errno()
    }
}
