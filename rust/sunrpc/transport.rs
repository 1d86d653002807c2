// SPDX-License-Identifier: GPL-2.0

//! The traits that a transport implements.

use super::{
    address::AddressText,
    handle::XprtHandle,
    send::{
        BcReply,
        SendError,
        SendRqst, //
    },
    slot::Slot,
    svc::ServerTransport,
    task::RpcTask, //
};
use crate::kext::prelude::*;
use kernel::seq_file::SeqFile;

/// A transport that SUNRPC uses as an `rpc_xprt`.
///
/// The state of a transport is an `Arc<Self>`; its `rpc_xprt` has one reference to it. The
/// documentation of [`sunrpc`](super) lists the callers of these functions, and the locks they
/// hold. Unless said otherwise a function is called in process context.
pub(crate) trait Transport: Send + Sync + Sized + 'static {
    /// The data that each slot carries beside its `rpc_rqst`.
    type Call: Send + Sync;

    /// The largest payload of an RPC, in octets.
    const MAX_PAYLOAD: usize;

    /// Returns the handle that the transport was made with.
    fn xprt(&self) -> &XprtHandle;

    /// Returns a free slot, if there is one. Must not sleep: `free_slot` of one task and
    /// `alloc_slot` of another may run anywhere that SUNRPC ends RPCs.
    fn alloc_slot(this: &Arc<Self>) -> Option<Arc<Slot<Self::Call>>>;

    /// Takes a slot from [`alloc_slot`](Self::alloc_slot) back. Not called if SUNRPC hands the slot
    /// to the next task that waits for one. Must not sleep.
    fn free_slot(this: &Arc<Self>, slot: Arc<Slot<Self::Call>>);

    /// Notes, for the statistics, that the buffers of a slot grew by `bytes`.
    fn grown(&self, bytes: usize);

    /// Ends all access of the device to the buffers of a slot, which its task gives up, or has a
    /// Call encoded into anew after a timeout.
    ///
    /// When this returns, no device may reach them, nor the pages of the RPC. It may sleep for
    /// that.
    fn buf_free(this: &Arc<Self>, slot: &Arc<Slot<Self::Call>>);

    /// Sends a Call. The caller holds the send lock.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    fn send_request(this: &Arc<Self>, rqst: SendRqst<'_, Self>) -> Result<(), SendError>;

    /// Starts to connect. `task` holds the send lock; see [`XprtHandle::lock_connect`].
    fn connect(this: &Arc<Self>, task: &RpcTask);

    /// Ends the connection. The caller holds the send lock.
    fn close(this: &Arc<Self>);

    /// Handles the timeout of an RPC that waits for its Reply. Its Call was sent on the present
    /// connection.
    fn timer(_this: &Arc<Self>) {}

    /// Ends the connection as if the peer had done it, for a test. The caller holds the send lock.
    fn inject_disconnect(this: &Arc<Self>);

    /// Returns the address of this end, while there is a connection.
    fn local_address(&self) -> Option<AddressText> {
        None
    }

    /// Prints the transport's line of `/proc/self/mountstats`.
    fn print_stats(&self, _m: &SeqFile) {}

    /// Ends the transport. No other function is called from now on.
    ///
    /// When this returns, the reference that `this` stands for must be the last one: the
    /// connection, the works and the timers of the transport are gone, and no slot refers to the
    /// transport. The handle goes with it. If another reference is left, the memory is never freed,
    /// and the module cannot be unloaded.
    fn destroy(this: &Arc<Self>);

    // The other functions are for Calls in the reverse direction. Without them, there are none.

    /// Sends the Reply of a reverse-direction Call. The caller holds the send lock.
    ///
    /// # Errors
    ///
    /// See [`SendError`].
    fn send_bc_reply(_this: &Arc<Self>, _rqst: BcReply<'_, Self::Call>) -> Result<(), SendError> {
        Err(SendError::Io)
    }

    /// Prepares for reverse-direction Calls, `requests` of them at a time.
    ///
    /// # Errors
    ///
    /// With an error, there is no service for such Calls.
    fn bc_setup(_this: &Arc<Self>, _requests: u32) -> Result {
        Err(EOPNOTSUPP)
    }

    /// Returns the size of the largest reverse-direction message, in octets.
    fn bc_maxpayload(&self) -> usize {
        0
    }

    /// Returns the number of reverse-direction Calls that there may be at a time.
    fn bc_num_slots(&self) -> u32 {
        0
    }

    /// Takes a slot back that [`enqueue_bc_call`](super::enqueue_bc_call) lent. Must not sleep.
    fn bc_free_rqst(_this: &Arc<Self>, _slot: Arc<Slot<Self::Call>>) {}

    /// Notes that there will be no service for reverse-direction Calls any more.
    fn bc_destroy(_this: &Arc<Self>) {}
}

/// A transport that makes its own connections.
pub(crate) trait ConnectingTransport: Transport {
    /// Makes a transport. It keeps `xprt` as long as it lives.
    ///
    /// # Errors
    ///
    /// The error becomes that of the mount.
    fn setup(xprt: XprtHandle) -> Result<Arc<Self>>;
}

/// A transport for Calls to a client, on a connection that the client has made to this server.
///
/// When the server's transport is closed, SUNRPC calls [`Transport::close`] without the send lock.
pub(crate) trait CallbackTransport: Transport {
    /// The server's transport that has the connection.
    type Connection: ServerTransport;

    /// The number of Calls that there may be at a time.
    const SLOTS: u32;

    /// Makes a transport, which keeps `xprt` as long as it lives. Returns with it whether the
    /// connection knows it; else its Calls are sent to nobody.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no memory for the transport itself, and nothing else: after an error
    /// nfsd puts the connection by a pointer that it reads in memory which is freed when the
    /// connection ends meanwhile (nfsd4_process_cb_update()).
    fn setup(xprt: XprtHandle, connection: &Arc<Self::Connection>) -> Result<(Arc<Self>, bool)>;

    /// SUNRPC takes the transport for a connected one from now on. If the connection, which knows
    /// it, has lost its endpoint meanwhile, ends its Calls.
    fn published(this: &Arc<Self>);
}
