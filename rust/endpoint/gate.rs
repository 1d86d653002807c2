// SPDX-License-Identifier: GPL-2.0

//! The gate of an endpoint's Send Queue, and what is posted through it.

use crate::{
    endpoint::{
        parts::Rest,
        reply::Cargo,
        send_queue::SendQueue,
        EndpointEvents,
        PostError,
        Sizes, //
    },
    kext::handover::Handover,
    rdma::{
        cm::QueuePairUser,
        completion::Posting,
        dma::DmaBuffer,
        work_request::{
            set_send_cqe,
            PlainRequest, //
        }, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

/// A Send buffer, and what is posted with it.
pub(super) struct SendSlot<H: EndpointEvents> {
    /// Where in the Send Queue it was posted last.
    pub(super) sequence: Atomic<u64>,
    /// The name of that Send in trace events: its place, or what its chain was called when it was
    /// begun.
    pub(super) name: Atomic<u64>,
    /// The cargo, released when the Send has completed. A completion that comes behind the marker
    /// of a drain may take it at the same time as the end of the endpoint.
    pub(super) cargo: Handover<Cargo<H>>,
    /// Where the message is.
    pub(super) buffer: DmaBuffer,
}

impl<H: EndpointEvents> SendSlot<H> {
    /// A slot for `buffer`, which has never been posted.
    pub(super) const fn new(buffer: DmaBuffer) -> Self {
        Self {
            sequence: Atomic::new(0),
            name: Atomic::new(0),
            cargo: Handover::new(),
            buffer,
        }
    }
}

/// The gate of the Send Queue: no pointer, no posting.
pub(super) struct SendGate {
    /// The QP, while the gate is open.
    pub(super) qp: Option<QueuePairUser>,
    /// The key for local memory.
    pub(super) lkey: u32,
    /// The posted work requests.
    pub(super) queue: SendQueue,
    /// Indices of the buffers that are neither posted nor lent out. With room for all of them.
    pub(super) free: KVVec<u32>,
    /// The number of them that are for [`Purpose::Control`] only.
    pub(super) kept: u32,
    /// The number of slots with a buffer: the first ones.
    pub(super) made: u32,
    /// The number of these that count among all that were made after their connections.
    pub(super) counted: u32,
    /// The number of transfers.
    pub(super) transfers: usize,
    /// The number of Calls that were taken in and are not answered.
    pub(super) unanswered: u32,
    /// Set if a Call was not taken in since then.
    pub(super) held_up: bool,
    /// The number of pages of them that count, see [`Charge`](super::Charge).
    pub(super) pages: usize,
    /// The number of memory regions for transfers, those that are being made counted.
    pub(super) transfer_regions: u32,
    /// Set while the end of the endpoint waits until there is none.
    pub(super) awaited: bool,
    /// The slots for Reads that are not in use. With room for all of them.
    pub(super) free_pulls: KVVec<u32>,
    /// The rest of a chain that is being posted in parts.
    pub(super) rest: Option<Rest>,
}

/// The purpose of a Send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// An RPC message, or a part of it.
    Rpc,
    /// A message of the connection's own, which RPC messages may have to wait for: that must not
    /// wait for their buffers.
    Control,
}

impl SendGate {
    /// Makes a gate that is closed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(sizes: &Sizes) -> Result<Self> {
        let mut free_pulls = KVVec::with_capacity(usize::try_from(sizes.pulls)?, GFP_KERNEL)?;
        for index in 0..sizes.pulls {
            free_pulls.push(index, GFP_KERNEL)?;
        }
        Ok(Self {
            qp: None,
            lkey: 0,
            queue: SendQueue::new(sizes.send_queue)?,
            free: KVVec::with_capacity(usize::try_from(sizes.sends)?, GFP_KERNEL)?,
            kept: sizes.kept_sends,
            made: 0,
            counted: 0,
            transfers: 0,
            unanswered: 0,
            held_up: false,
            pages: 0,
            transfer_regions: 0,
            awaited: false,
            free_pulls,
            rest: None,
        })
    }

    /// Returns the number of buffers that are free for a purpose.
    pub(super) fn free_for(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Rpc => self.free.len().saturating_sub(self.kept as usize),
            Purpose::Control => self.free.len(),
        }
    }

    /// Takes a free buffer out, if there is one for the purpose.
    pub(super) fn take_free(&mut self, purpose: Purpose) -> Option<u32> {
        match self.free_for(purpose) {
            0 => None,
            _ => self.free.pop(),
        }
    }

    /// Returns whether a chain of `requests` may be posted as a whole, with `fences` to follow some
    /// day.
    pub(super) fn has_room(&self, requests: u32, fences: u32) -> bool {
        self.rest.is_none() && self.queue.has_room(requests, fences)
    }

    /// Returns whether a chain of `requests` may be posted as a whole, or begun if it is too long
    /// for that.
    pub(super) fn may_begin(&self, requests: u32) -> bool {
        let in_parts = || !self.queue.fits(requests) && self.queue.part(requests) > 0;
        self.has_room(requests, 0) || (self.rest.is_none() && in_parts())
    }

    /// Posts a chain, for which there is room, the last of which is the Send of `slot` with the
    /// index `index`. Returns its place in the Send Queue.
    ///
    /// # Errors
    ///
    /// `Refused`: the device may have taken a part.
    ///
    /// # Safety
    ///
    /// The chain is valid for the call. What completes later than that, or is used by the device,
    /// stays until it has, or the QP is gone.
    pub(super) unsafe fn post<H: EndpointEvents>(
        &mut self,
        slot: &Posting<SendSlot<H>>,
        index: u32,
        chain: &SendChain,
    ) -> Result<u64, PostError> {
        let qp = self.qp.as_ref().ok_or(PostError::Closed)?.as_ptr();
        let requests = chain.requests;
        let place = match chain.begun {
            Some(_) => self.queue.posted_last(requests, Some(index)),
            None => self.queue.posted(requests, chain.signaled, Some(index)),
        };
        let sequence = place.ok_or(PostError::Refused)?;
        // Before the post, so that no completion can come first.
        slot.sequence.store(sequence, Relaxed);
        slot.name.store(chain.begun.unwrap_or(sequence), Relaxed);
        let first = chain.first.cast_const();
        // SAFETY: The caller guarantees it; the slot's entry is part of the endpoint, which
        // outlives the QP.
        let status = unsafe { sys::ib_post_send(qp, first, ptr::null_mut()) };
        if status != 0 {
            self.queue.unpost();
            return Err(PostError::Refused);
        }
        Ok(sequence)
    }
}

/// Work requests that end with the Send of a message.
pub(super) struct SendChain {
    /// The first of them.
    pub(super) first: *mut sys::ib_send_wr,
    /// Their number.
    pub(super) requests: u32,
    /// Set if the Send is signaled.
    pub(super) signaled: bool,
    /// The name of the chain if it was begun: then these are the rest of it, and signaled.
    pub(super) begun: Option<u64>,
}

/// The Send of a message, and where that is. Linked when it stays in place.
pub(super) struct SendRequest {
    /// The message.
    sge: sys::ib_sge,
    /// The work request.
    request: sys::ib_send_wr,
}

impl SendRequest {
    /// A Send of the first `len` octets in the buffer of `slot`, which are handed to the device.
    ///
    /// # Safety
    ///
    /// The buffer is mapped, and the device registered. The message is complete, and nobody changes
    /// it.
    pub(super) unsafe fn new<H: EndpointEvents>(
        slot: &Posting<SendSlot<H>>,
        len: usize,
        lkey: u32,
        signaled: bool,
    ) -> Self {
        let buffer = &slot.buffer;
        let len = len.min(buffer.len());
        // SAFETY: The caller guarantees it.
        unsafe { buffer.sync_for_device(len) };
        let mut request = sys::ib_send_wr {
            num_sge: 1,
            opcode: sys::ib_wr_opcode_IB_WR_SEND,
            send_flags: if signaled {
                sys::ib_send_flags_IB_SEND_SIGNALED as c_int
            } else {
                0
            },
            ..sys::ib_send_wr::zeroed()
        };
        set_send_cqe(&mut request, slot.cqe());
        Self {
            sge: sys::ib_sge {
                addr: buffer.address(),
                // A buffer is some pages long.
                length: len as u32,
                lkey,
            },
            request,
        }
    }

    /// Has it invalidate `rkey` of the peer's.
    pub(super) fn invalidate(&mut self, rkey: u32) {
        self.request.opcode = sys::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        self.request.ex.invalidate_rkey = ManuallyDrop::new(rkey);
    }

    /// The work request, as the last one of a chain. Valid until `self` is touched again.
    pub(super) fn link(&mut self) -> *mut sys::ib_send_wr {
        self.request.sg_list = &raw mut self.sge;
        &raw mut self.request
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_send_gate)]
mod tests {
    use super::*;

    /// A gate with `free` buffers, of which `kept` are for messages of the connection's own.
    fn gate(free: u32, kept: u32) -> Result<SendGate> {
        let mut indices = KVVec::new();
        for index in 0..free {
            indices.push(index, GFP_KERNEL)?;
        }
        Ok(SendGate {
            qp: None,
            lkey: 0,
            queue: SendQueue::new(8)?,
            free: indices,
            kept,
            made: free,
            counted: 0,
            transfers: 0,
            unanswered: 0,
            held_up: false,
            pages: 0,
            transfer_regions: 0,
            awaited: false,
            free_pulls: KVVec::new(),
            rest: None,
        })
    }

    /// Calls that come before anything else has been sent take what they can get, and their Replies
    /// wait for the properties of this end, which so need a buffer that is left.
    #[test]
    fn calls_leave_a_buffer_for_what_their_replies_wait_for() -> Result {
        let mut gate = gate(3, 1)?;
        assert_eq!(gate.free_for(Purpose::Rpc), 2);
        assert!(gate.take_free(Purpose::Rpc).is_some());
        assert!(gate.take_free(Purpose::Rpc).is_some());
        assert!(gate.take_free(Purpose::Rpc).is_none());
        assert!(gate.take_free(Purpose::Control).is_some());
        assert!(gate.take_free(Purpose::Control).is_none());
        assert_eq!(gate.free_for(Purpose::Rpc), 0);
        Ok(())
    }

    #[test]
    fn where_none_is_kept_all_are_for_calls() -> Result {
        let mut gate = gate(2, 0)?;
        assert!(gate.take_free(Purpose::Rpc).is_some());
        assert!(gate.take_free(Purpose::Rpc).is_some());
        assert!(gate.take_free(Purpose::Control).is_none());
        Ok(())
    }
}
