// SPDX-License-Identifier: GPL-2.0

//! An RPC whose Reply has come.

use super::{
    deliver,
    slot::Slot,
    transport::Transport,
    xdr_buf::XdrBuf, //
};
use crate::kext::prelude::*;
use crate::sys;
use core::{
    cell::Cell,
    mem::ManuallyDrop,
    ptr, //
};

/// An RPC that waits for a Reply. Its request, task and memory cannot go away while this object
/// exists. There is at most one for each RPC.
///
/// [`complete`](Self::complete), [`fail`](Self::fail) or [`again`](Self::again) end it. If it is
/// only dropped, the RPC goes on waiting.
///
/// The memory stays as it is for this reason: the request is in the receive queue, where it was
/// when it was pinned. Before a task encodes its Call anew, and before it gives its request up, it
/// takes the request out of that queue, and there it waits for pins (`xprt_request_dequeue_xprt`).
/// The RPC is completed only through this object, so no decoder reads the Reply before.
///
/// # Invariants
///
/// The slot is lent, `xprt_pin_rqst` was called for it and `pinned` is set; both belong to this
/// object. SUNRPC gives neither the request nor the transport back before the pin is taken away, so
/// `slot` and `owner`, which have no counts of their own, stand for its references until then.
pub(crate) struct Pinned<T: Transport> {
    /// The transport, which keeps the handle and the queue's lock.
    owner: ManuallyDrop<Arc<T>>,
    /// The slot.
    slot: ManuallyDrop<Arc<Slot<T::Call>>>,
    /// Marker that makes the type not `Sync`, so that all shared references are in one thread.
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: A pin belongs to no thread, and both references may be sent to another thread.
unsafe impl<T: Transport> Send for Pinned<T> {}

impl<T: Transport> Pinned<T> {
    /// Wraps a slot that was just pinned.
    ///
    /// # Safety
    ///
    /// The invariants hold, and no other object stands for this pin. `owner` is SUNRPC's reference
    /// to the transport, and `slot` is that to the slot.
    pub(super) unsafe fn new(
        owner: ManuallyDrop<Arc<T>>,
        slot: ManuallyDrop<Arc<Slot<T::Call>>>,
    ) -> Self {
        // INVARIANT: The caller guarantees that they hold.
        Self {
            owner,
            slot,
            _not_sync: PhantomData,
        }
    }

    /// Returns the slot.
    pub(crate) fn slot(&self) -> &Arc<Slot<T::Call>> {
        &self.slot
    }

    /// Returns the time from the Send of the Call to the Reply, in nanoseconds.
    pub(crate) fn round_trip(&self) -> i64 {
        // SAFETY: By the invariant the slot is lent. SUNRPC has written it when the RPC was looked
        // up, before it was pinned, and writes it again only when there is another Reply.
        unsafe { (*self.slot.rqst()).rq_rtt }
    }

    /// Returns the description of the memory for the Reply.
    pub(crate) fn rcv_buf(&self) -> &XdrBuf {
        // SAFETY: By the invariant the slot is lent, and its memory stays as it is.
        unsafe { self.slot.rcv_buf() }
    }

    /// Returns both descriptions of the memory for the Reply.
    fn bufs(&self) -> [&XdrBuf; 2] {
        // SAFETY: By the invariant the slot is lent, and its memory stays as it is.
        [self.rcv_buf(), unsafe { self.slot.private_buf() }]
    }

    /// Delivers a Reply whose inline part is `inline`. The peer wrote `written` more octets to the
    /// pages by a Write chunk (zero if there was none). Returns the length for
    /// [`complete`](Self::complete).
    ///
    /// The caller sees to it that no device can reach the memory any more.
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than the pages hold.
    pub(crate) fn deliver(&self, inline: &[u8], written: u32) -> Result<usize> {
        // SAFETY: By the invariant the memory stays. Nothing else uses it: no decoder before the
        // RPC is completed, and no other thread has this object, which is not `Sync`.
        unsafe { deliver::inline(self.bufs(), inline, written) }
    }

    /// Delivers a Reply of `len` octets that the peer wrote to its place, by a Reply chunk of the
    /// whole memory (`Parts::ALL`). Returns the length for [`complete`](Self::complete).
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than there is memory, or if it is the Reply to another Call.
    pub(crate) fn deliver_placed(&self, len: u32) -> Result<usize> {
        self.check_placed(len)?;
        deliver::placed(self.rcv_buf(), len)
    }

    /// Delivers a Reply that the peer wrote in two parts: `written` octets to the pages by a Write
    /// chunk, and `len` octets to head and tail by a Reply chunk (`Parts::HEAD_AND_TAIL`).
    /// `written` may be zero. Returns the length for [`complete`](Self::complete).
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than there is memory, or if it is the Reply to another Call.
    pub(crate) fn deliver_split(&self, len: u32, written: u32) -> Result<usize> {
        self.check_placed(len)?;
        // SAFETY: By the invariant the memory stays. Nothing else uses it: no decoder before the
        // RPC is completed, and no other thread has this object, which is not `Sync`.
        unsafe { deliver::split(self.bufs(), len, written) }
    }

    /// Delivers a Reply of `len` octets that the peer wrote to the Reply buffer. Returns the length
    /// for [`complete`](Self::complete).
    ///
    /// # Errors
    ///
    /// `EIO` if more was written than there is memory, or if it is the Reply to another Call.
    pub(crate) fn deliver_buffered(&self, len: u32) -> Result<usize> {
        // SAFETY: By the invariant the slot is lent and the RPC waits for its Reply, so SUNRPC does
        // not give up its memory, nor is its Call sent again.
        let pages = unsafe { self.slot.reply_buffer() };
        // SAFETY: By the invariant the request is valid. Its XID does not change while it waits for
        // its Reply.
        let ours = u32::from_be(unsafe { (*self.slot.rqst()).rq_xid });
        if len < 4 || pages.first_word() != Some(ours) {
            return Err(EIO);
        }
        // SAFETY: By the invariant the memory stays. Nothing else uses it: no decoder before the
        // RPC is completed, and no other thread has this object, which is not `Sync`.
        unsafe { deliver::buffered(self.bufs(), pages, len) }
    }

    /// Compares the XID at the beginning of a Reply of `len` octets that the peer wrote with that
    /// of the Call. The XID in the transport header did match, but SUNRPC does not check the one in
    /// the message.
    fn check_placed(&self, len: u32) -> Result {
        let mut xid = [0; 4];
        let there = self.rcv_buf().copy_range(0, &mut xid);
        // SAFETY: By the invariant the request is valid. Its XID does not change while it waits for
        // its Reply.
        let ours = unsafe { (*self.slot.rqst()).rq_xid };
        if len < 4 || there.is_none() || u32::from_ne_bytes(xid) != ours {
            return Err(EIO);
        }
        Ok(())
    }

    /// Completes the RPC: its Reply of `len` octets is in memory. `owner` is the transport that it
    /// was pinned for.
    ///
    /// From now on the memory of the RPC belongs to the task, so every region must have been fenced
    /// before: while a device may use the memory this warns, and ends the connection instead.
    pub(crate) fn complete(self, owner: &Arc<T>, len: usize) {
        if !Arc::ptr_eq(owner, &self.owner) {
            kernel::warn_on!(true);
            return;
        }
        if self.slot.leases().any() {
            kernel::warn_on!(true);
            // It is sent again on the next connection.
            owner.xprt().force_disconnect();
            return;
        }
        self.finish(owner, len, None);
    }

    /// Has SUNRPC encode the Call anew and send it again, with the same XID and on the same
    /// connection. The peer has refused it, but may accept another form.
    ///
    /// SUNRPC does so because the cookie of the Call is changed to that of another connection. If
    /// the task is still sending, it overwrites the cookie, which is changed again when it finds
    /// the error.
    pub(crate) fn again(self) {
        // SAFETY: By the invariant the request is valid.
        unsafe { self.slot.seem_lost(self.owner.xprt().connect_cookie()) };
        let owner = Arc::clone(&self.owner);
        self.finish(&owner, 0, Some(EAGAIN));
    }

    /// Ends the RPC with `error`; there will be no Reply.
    ///
    /// A task that does not wait for the Reply yet, since it is still sending or another one has
    /// sent its Call, would miss the error. It finds it when it is about to wait, as that of a Call
    /// that was not sent.
    pub(crate) fn fail(self, error: Error) {
        let owner = Arc::clone(&self.owner);
        self.finish(&owner, 0, Some(error));
    }

    /// Completes the RPC and takes the pin away, both under the lock. `owner` is the transport: a
    /// reference of the caller's, since SUNRPC may give up its own as soon as there is no pin.
    fn finish(self, owner: &Arc<T>, len: usize, error: Option<Error>) {
        // The pin is taken away below, and not again.
        let this = ManuallyDrop::new(self);
        let rqst = this.slot.rqst();
        let guard = owner.xprt().lock_queue();
        // SAFETY: `queue_lock` is held, and by the invariant request and task are valid until the
        // pin is taken away. A task begins to wait under this lock, so it waits or looks for an
        // error before it does.
        unsafe {
            let task = (*rqst).rq_task;
            let pending = &raw const (*(*rqst).rq_xprt).pending;
            // Other queues have other locks, so the word may change meanwhile, but not to this one.
            let queue = || ptr::read_volatile(&raw const (*task).tk_waitqueue);
            let waits = || sys::rpc_is_queued(task) && ptr::eq(queue(), pending);
            match error {
                Some(error) if !waits() => this.slot.set_unsent(error.to_errno()),
                _ => {
                    if let Some(error) = error {
                        // The task may write the status at the same time, as its wait is over.
                        // SUNRPC does the same with plain stores.
                        let status = Atomic::from_ptr(&raw mut (*task).tk_status);
                        status.store(error.to_errno(), Relaxed);
                    }
                    sys::xprt_complete_rqst(task, deliver::length_for_c(len));
                }
            }
        }
        // SAFETY: `queue_lock` is held. The pin belongs to this object, which is not used any more,
        // nor dropped.
        unsafe { unpin(&this.slot) };
        drop(guard);
    }
}

/// Takes a pin away.
///
/// # Safety
///
/// The caller holds `queue_lock` and owns the pin, which it does not use after this.
unsafe fn unpin<C>(slot: &Slot<C>) {
    slot.pinned().store(false, Relaxed);
    // SAFETY: The caller holds `queue_lock` and owns the pin, so the request is valid.
    unsafe { sys::xprt_unpin_rqst(slot.rqst()) };
}

impl<T: Transport> Drop for Pinned<T> {
    fn drop(&mut self) {
        // Without a pin SUNRPC may give up its own reference, and the lock is released after that.
        let owner = Arc::clone(&self.owner);
        let guard = owner.xprt().lock_queue();
        // SAFETY: `queue_lock` is held. By the invariant the pin belongs to this object, which goes
        // away.
        unsafe { unpin(&self.slot) };
        drop(guard);
    }
}
