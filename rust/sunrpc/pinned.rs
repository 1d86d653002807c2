// SPDX-License-Identifier: GPL-2.0

//! An RPC whose Reply has come.

use super::{
    deliver,
    slot::Slot,
    transport::Transport,
    xdr_buf::XdrBuf, //
};
use crate::sys;
use core::{
    cell::Cell,
    marker::PhantomData,
    mem, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// An RPC that waits for a Reply, and cannot go away while this exists: neither request nor task nor
/// memory. There is one at most of each RPC.
///
/// It ends by [`complete`](Self::complete) or [`fail`](Self::fail). Dropped without, the RPC goes on
/// waiting.
///
/// Why the memory stays as it is: the request is in the receive queue, as it was when it was pinned.
/// Before a task encodes its Call anew, and before it gives its request up, it takes the request out of
/// that queue, and there it waits for pins (`xprt_request_dequeue_xprt`). Only who has this object
/// completes the RPC, so no decoder looks at the Reply before.
///
/// # Invariants
///
/// The slot is lent, `xprt_pin_rqst` was called for it and `pinned` is set; both belong to this object.
pub(crate) struct Pinned<T: Transport> {
    /// The transport, and with it the handle and the queue's lock.
    owner: Arc<T>,
    /// The slot.
    slot: Arc<Slot<T::Call>>,
    /// Not `Sync`, so that shared references are those of one thread.
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: Pins belong to no thread, and both references may be sent.
unsafe impl<T: Transport> Send for Pinned<T> {}

impl<T: Transport> Pinned<T> {
    /// Wraps a slot that was just pinned.
    ///
    /// # Safety
    ///
    /// The invariants hold, and no other object stands for this pin.
    pub(super) unsafe fn new(owner: Arc<T>, slot: Arc<Slot<T::Call>>) -> Self {
        // INVARIANT: The caller guarantees it.
        Self {
            owner,
            slot,
            _not_sync: PhantomData,
        }
    }

    /// The slot.
    pub(crate) fn slot(&self) -> &Arc<Slot<T::Call>> {
        &self.slot
    }

    /// Where the Reply goes to.
    pub(crate) fn rcv_buf(&self) -> &XdrBuf {
        // SAFETY: By the invariant the slot is lent, and its memory stays as it is.
        unsafe { self.slot.rcv_buf() }
    }

    /// Both descriptions of where the Reply goes to.
    fn bufs(&self) -> [&XdrBuf; 2] {
        // SAFETY: As in `rcv_buf`.
        [self.rcv_buf(), unsafe { self.slot.private_buf() }]
    }

    /// Delivers a Reply whose inline part is `inline`, and of which the peer wrote `written` octets to
    /// the pages by a Write chunk (zero if there was none). Returns the length for
    /// [`complete`](Self::complete).
    ///
    /// No device may reach the memory any more.
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than the pages hold.
    pub(crate) fn deliver(&self, inline: &[u8], written: u32) -> Result<usize> {
        // SAFETY: By the invariant the memory stays. Nobody else uses it: no decoder before the RPC is
        // completed, and no other thread has this object.
        unsafe { deliver::inline(self.bufs(), inline, written) }
    }

    /// Delivers a Reply that the peer wrote to where it belongs by a Reply chunk of the whole memory
    /// (`Parts::ALL`), `len` octets of it. Returns the length for [`complete`](Self::complete).
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than there is memory, or the Reply to another Call.
    pub(crate) fn deliver_placed(&self, len: u32) -> Result<usize> {
        self.check_placed(len)?;
        deliver::placed(self.rcv_buf(), len)
    }

    /// Delivers a Reply of which the peer wrote `written` octets to the pages by a Write chunk, and
    /// `len` octets to head and tail by a Reply chunk (`Parts::HEAD_AND_TAIL`). `written` may be zero.
    /// Returns the length for [`complete`](Self::complete).
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than there is memory, or the Reply to another Call.
    pub(crate) fn deliver_split(&self, len: u32, written: u32) -> Result<usize> {
        self.check_placed(len)?;
        // SAFETY: As in `deliver`.
        unsafe { deliver::split(self.bufs(), len, written) }
    }

    /// Compares the transaction ID at the beginning of a Reply that the peer wrote, `len` octets, with ours. That in the
    /// header was ours, but SUNRPC does not look at the other one.
    fn check_placed(&self, len: u32) -> Result {
        let mut xid = [0; 4];
        let there = self.rcv_buf().copy_range(0, &mut xid);
        // SAFETY: By the invariant the request is valid; its transaction ID stays while it waits for its Reply.
        let ours = unsafe { (*self.slot.rqst()).rq_xid };
        if len < 4 || there.is_none() || u32::from_ne_bytes(xid) != ours {
            return Err(EIO);
        }
        Ok(())
    }

    /// The Reply is there, `len` octets of it.
    ///
    /// From now on the RPC's memory is the task's, so every region must have been fenced before.
    pub(crate) fn complete(self, len: usize) {
        self.finish(len, None);
    }

    /// The peer has refused the Call, but may accept another form of it: SUNRPC encodes it anew and sends
    /// it again, with the same transaction ID and on the same connection.
    ///
    /// What makes it do so is that the Call looks like one of another connection. If the task is still in
    /// the middle of sending, that is overwritten; then it sends the Call on a new connection, as it does
    /// after [`fail`](Self::fail).
    pub(crate) fn again(self) {
        let other = self.owner.xprt().connect_cookie().wrapping_sub(1);
        // SAFETY: By the invariant the request is valid. SUNRPC reads and writes the word without a lock,
        // and so atomically.
        unsafe { Atomic::from_ptr(&raw mut (*self.slot.rqst()).rq_connect_cookie) }
            .store(other, Relaxed);
        self.finish(0, Some(EAGAIN));
    }

    /// There will be no Reply; the RPC ends with `error`.
    ///
    /// If the task has not gone to sleep yet it may miss the error. Then it finds no Reply either, and
    /// calls again; that Call is refused on the same connection, so a new one is made for it.
    pub(crate) fn fail(self, error: Error) {
        self.finish(0, Some(error));
    }

    /// Completes the RPC and takes the pin away, both under the lock.
    fn finish(self, len: usize, error: Option<Error>) {
        let xprt = self.owner.xprt();
        let rqst = self.slot.rqst();
        let guard = xprt.lock_queue();
        // SAFETY: `queue_lock` is held, and by the invariant request and task are valid until the pin is
        // taken away.
        unsafe {
            let task = (*rqst).rq_task;
            if let Some(error) = error {
                (*task).tk_status = error.to_errno();
            }
            sys::xprt_complete_rqst(task, deliver::length_for_c(len));
        }
        // SAFETY: `queue_lock` is held; the pin is this object's, which is not used after this.
        unsafe { unpin(&self.slot) };
        drop(guard);
        let (owner, slot) = self.into_parts();
        // The references go after the lock.
        drop(slot);
        drop(owner);
    }

    /// The references, without dropping the pin.
    fn into_parts(self) -> (Arc<T>, Arc<Slot<T::Call>>) {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: Each field is moved out once, and `this` is not dropped.
        unsafe { (core::ptr::read(&this.owner), core::ptr::read(&this.slot)) }
    }
}

/// Takes a pin away.
///
/// # Safety
///
/// The caller holds `queue_lock`, and the pin is its own.
unsafe fn unpin<C>(slot: &Slot<C>) {
    slot.pinned().store(false, Relaxed);
    // SAFETY: The caller guarantees it.
    unsafe { sys::xprt_unpin_rqst(slot.rqst()) };
}

impl<T: Transport> Drop for Pinned<T> {
    fn drop(&mut self) {
        let guard = self.owner.xprt().lock_queue();
        // SAFETY: The lock is held; the pin is this object's, by the invariant.
        unsafe { unpin(&self.slot) };
        drop(guard);
    }
}
