// SPDX-License-Identifier: GPL-2.0

//! The receiving half of an endpoint.

use crate::{
    endpoint::{
        receive_chain::ReceiveChain,
        receive_pool::Need,
        Endpoint,
        EndpointEvents, //
    },
    kext::{
        delayed_work::DelayedWork,
        errno::ENOTCONN,
        memalloc::NoFs, //
    },
    observe::trace,
    rdma::{
        cm::QueuePairUser,
        completion::{
            Completes,
            Completion, //
        },
        dma::DmaBuffer, //
    },
    sys, //
};
use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Relaxed,
            Release, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

/// The number of Receives that are posted at a time.
pub(crate) const RECEIVE_BATCH: u32 = 16;

/// A Receive buffer.
pub(super) struct ReceiveSlot {
    /// Its place among the slots.
    pub(super) index: u32,
    /// Where the message goes.
    pub(super) buffer: DmaBuffer,
}

/// A Receive buffer of an endpoint's own.
pub(super) struct OwnReceive<H> {
    /// The buffer.
    slot: ReceiveSlot,
    /// Whose endpoint it is.
    endpoint: PhantomData<fn(H)>,
}

impl<H> OwnReceive<H> {
    /// The buffer of an endpoint with that index.
    pub(super) const fn new(index: u32, buffer: DmaBuffer) -> Self {
        Self {
            slot: ReceiveSlot { index, buffer },
            endpoint: PhantomData,
        }
    }

    /// Returns the buffer.
    pub(super) const fn slot(&self) -> &ReceiveSlot {
        &self.slot
    }
}

impl<H> AsRef<ReceiveSlot> for OwnReceive<H> {
    fn as_ref(&self) -> &ReceiveSlot {
        &self.slot
    }
}

impl<H: EndpointEvents> Completes for OwnReceive<H> {
    type Owner = Endpoint<H>;

    fn completed(&self, this: ArcBorrow<'_, Endpoint<H>>, completion: Completion<'_>) {
        // SAFETY: The slot is one of the endpoint's own.
        unsafe { Endpoint::arrived(this.into(), &self.slot, completion) };
    }
}

/// The gate of the Receive Queue.
pub(super) struct ReceiveGate {
    /// The QP, while the gate is open.
    pub(super) qp: Option<QueuePairUser>,
    /// The key for local memory.
    pub(super) lkey: u32,
    /// Indices of the buffers that are neither posted nor lent out. With room for all of them.
    pub(super) idle: KVVec<u32>,
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Posts up to a batch of idle Receive buffers.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, or what the device reports. Then the connection must end: the
    /// buffers are not idle any more.
    pub(super) fn post_receives(&self, gate: &mut ReceiveGate) -> Result {
        let qp = gate.qp.as_ref().ok_or(ENOTCONN)?.as_ptr();
        let mut chain = ReceiveChain::new();
        for _ in 0..RECEIVE_BATCH {
            let Some(index) = gate.idle.pop() else { break };
            let Some(slot) = self.receives.get(usize::try_from(index)?) else {
                continue;
            };
            // SAFETY: The buffer is mapped while the gate is open, and was idle; the slot is part
            // of the endpoint, which outlives the QP.
            unsafe { chain.add(slot, gate.lkey) };
        }
        let first = chain.first();
        if first.is_null() {
            return Ok(());
        }
        // SAFETY: The gate's QP is live; the chain and its SGEs are valid for the call; the buffers
        // and their completion entries are part of the endpoint, which outlives the QP.
        to_result(unsafe { sys::ib_post_recv(qp, first, ptr::null_mut()) })
    }

    /// Takes a buffer back that the device or a [`Received`] is done with.
    fn recycle(&self, index: u32) {
        if let Some(pool) = &self.shared {
            pool.recycle(index);
            return;
        }
        let mut gate = self.receive.lock();
        // Never more than the capacity: each index is out once.
        let _ = gate.idle.push_within_capacity(index);
        if gate.qp.is_none() || gate.idle.len() < RECEIVE_BATCH as usize {
            return;
        }
        let failed = self.post_receives(&mut gate).is_err();
        drop(gate);
        if failed {
            self.context.lost();
        }
    }

    /// Takes a buffer back whose QP is in error.
    fn keep_back(&self, index: u32) {
        match &self.shared {
            Some(pool) => pool.recycle(index),
            // To post it again would only have it flushed again.
            None => {
                let _ = self.receive.lock().idle.push_within_capacity(index);
            }
        }
    }

    /// A Receive has completed.
    ///
    /// # Safety
    ///
    /// The slot is one of the endpoint's own, or of its pool, which has just completed. It stays in
    /// memory while it is neither posted nor recycled.
    pub(super) unsafe fn arrived(this: Arc<Self>, slot: &ReceiveSlot, completion: Completion<'_>) {
        let (buffer, index) = (&slot.buffer, slot.index);
        // What is no message has left in the buffer what was there before, maybe what another peer
        // has sent.
        if !completion.ok() || !completion.is_message() {
            trace::receive(this.number(), 0, completion.status());
            // Every connection ends with flushed Receives.
            if !completion.ok() && !completion.flushed() {
                this.trace_error(completion, trace::Work::Receive);
            }
            this.keep_back(index);
            if completion.ok() {
                // The QP is in order, and no credits stop an RDMA Write with immediate data: its
                // peer would go on taking Receives that others share.
                this.cut_off();
            }
            this.context.lost();
            return;
        }
        if this.is_cut_off() {
            this.keep_back(index);
            return;
        }
        let len = completion.byte_len() as usize;
        trace::receive(this.number(), len, completion.status());
        // SAFETY: The device is done with the buffer, which stays mapped until no Receive can
        // complete any more.
        unsafe { buffer.sync_for_cpu(len) };
        // INVARIANT: The caller guarantees it.
        let message = Received {
            slot: NonNull::from(slot),
            len,
            invalidated: completion.invalidated_rkey(),
            counted: false,
            endpoint: this.clone(),
        };
        H::received(this.context.handler(), message);
    }

    /// Has `count` Receives more kept posted for the peer. Sleeps, but not in a handler of a
    /// completion. Where the endpoint has Receives of its own they are all posted already.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOSPC` if the connections that share Receives may not have so
    /// many, `ENOMEM`, or what the device reports.
    pub(crate) fn ask_for_receives(&self, count: u32, need: Need) -> Result {
        let Some(pool) = &self.shared else {
            return Ok(());
        };
        // Excludes the end of the device, for which writeback may wait.
        let scope = NoFs::enter();
        let objects = self.objects.lock();
        if objects.is_none() {
            return Err(ENOTCONN);
        }
        let asked = pool.ask(count, need);
        if asked.is_ok() {
            self.asked.fetch_add(count, Relaxed);
        }
        drop(objects);
        drop(scope);
        asked
    }

    /// Has one Receive more kept posted, in place of one that the peer has taken without having
    /// been promised it. Any context: the buffer is made later, by the work item. Without memory
    /// for it there is one Receive less for all, until somebody asks for more.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the connections that share Receives may not have so many.
    pub(crate) fn replace_receive(self: &Arc<Self>) -> Result {
        let Some(pool) = &self.shared else {
            return Ok(());
        };
        pool.ask_later(1, Need::More)?;
        self.asked.fetch_add(1, Relaxed);
        self.short.store(true, Relaxed);
        DelayedWork::schedule(self, 0);
        Ok(())
    }

    /// Makes what [`Self::replace_receive`] has asked for. Sleeps.
    pub(super) fn fill_pool(&self) {
        let Some(pool) = &self.shared else { return };
        // Excludes the end of the device.
        let objects = self.objects.lock();
        if objects.is_none() {
            return;
        }
        // The end of the endpoint waits for this, and writeback may wait for that.
        let scope = NoFs::enter();
        let _ = pool.fill();
        drop(scope);
        drop(objects);
    }

    /// Returns the number of Receives that it has to make do with, if there were too few for all
    /// who share them a short while ago. Any context.
    pub(crate) fn receive_share(&self) -> Option<u32> {
        self.shared.as_ref()?.share()
    }

    /// Its place among the QPs of the pool whose Receives it shares.
    pub(crate) fn place(&self) -> u32 {
        self.place.load(Relaxed)
    }

    /// Says at which place in the pool its QP is. It has just been made, and nobody else knows of
    /// it.
    pub(crate) fn set_place(&self, place: u32) {
        self.place.store(place, Relaxed);
    }

    /// Returns the number of counted messages, see [`Received::count`], that are still in their
    /// buffers.
    pub(crate) fn held(&self) -> u32 {
        self.calls.load(Acquire)
    }

    /// Takes back what [`Self::ask_for_receives`] was asked for, of which the peer was not told, or
    /// which it has used.
    pub(crate) fn return_receives(&self, count: u32) {
        if let Some(pool) = &self.shared {
            self.asked.fetch_sub(count, Relaxed);
            pool.release(count);
        }
    }

    /// Returns whether the Receives are shared with other connections.
    pub(crate) fn shares_receives(&self) -> bool {
        self.shared.is_some()
    }
}

/// A message that has arrived, in its Receive buffer. Dropped, the buffer is posted again.
///
/// # Invariants
///
/// `slot` is one of the endpoint's own or of its pool, which the endpoint keeps; it is lent to this
/// object.
pub(crate) struct Received<H: EndpointEvents> {
    /// Which buffer it is in: one of the endpoint's own, or of its pool.
    slot: NonNull<ReceiveSlot>,
    /// The length in octets.
    len: usize,
    /// The rkey that the peer invalidated with it.
    invalidated: Option<u32>,
    /// Set if it is one of the endpoint's `calls`.
    counted: bool,
    /// Where it arrived.
    endpoint: Arc<Endpoint<H>>,
}

// SAFETY: A slot belongs to no thread, and this object has it to itself.
unsafe impl<H: EndpointEvents> Send for Received<H> {}
// SAFETY: Shared references read the message only.
unsafe impl<H: EndpointEvents> Sync for Received<H> {}

impl<H: EndpointEvents> Received<H> {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: The device gave the buffer back, and it is posted again, or freed, only when
        // `self` is dropped.
        unsafe { self.slot.as_ref().buffer.bytes(self.len) }
    }

    /// Counts the message as a Call, until it is dropped. Returns how many there are with it.
    pub(crate) fn count(&mut self) -> u32 {
        if self.counted {
            return self.endpoint.calls.load(Relaxed);
        }
        self.counted = true;
        self.endpoint.calls.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// The rkey that came with the message as invalidated.
    pub(crate) fn invalidated(&self) -> Option<u32> {
        self.invalidated
    }

    /// Where it arrived.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }
}

impl<H: EndpointEvents> Drop for Received<H> {
    fn drop(&mut self) {
        // SAFETY: The slot is lent to us.
        let index = unsafe { self.slot.as_ref().index };
        self.endpoint.recycle(index);
        // Last: who reads the count concludes from it how many Receives are posted.
        if self.counted {
            self.endpoint.calls.fetch_sub(1, Release);
        }
    }
}
