// SPDX-License-Identifier: GPL-2.0

//! The receiving half of an endpoint.

use crate::kext::errno::ENOTCONN;
use crate::observe::trace;
use crate::sys;
use crate::verbs::completion::Completion;
use crate::verbs::dma::DmaBuffer;
use crate::verbs::endpoint::{Endpoint, EndpointEvents};
use crate::verbs::work_request::{set_receive_cqe, PlainRequest};
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};

/// How many Receives are posted at a time.
pub(crate) const RECEIVE_BATCH: u32 = 16;

/// A Receive buffer with its completion entry.
#[repr(C)]
pub(super) struct ReceiveSlot {
    /// First, so that its address is that of the slot.
    pub(super) cqe: sys::ib_cqe,
    /// Its place among the slots.
    pub(super) index: u32,
    /// Where the message goes.
    pub(super) buffer: DmaBuffer,
}

/// The gate of the Receive Queue.
pub(super) struct ReceiveGate {
    /// The QP, while the gate is open.
    pub(super) qp: Option<NonNull<sys::ib_qp>>,
    /// The key for local memory.
    pub(super) lkey: u32,
    /// Indices of the buffers that are neither posted nor lent out. With room for all of them.
    pub(super) idle: KVVec<u32>,
}

// SAFETY: As for `SendGate`.
unsafe impl Send for ReceiveGate {}

impl<H: EndpointEvents> Endpoint<H> {
    /// Posts up to a batch of idle Receive buffers.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, or what the device reports. Then the connection must end: the buffers are not
    /// idle any more.
    pub(super) fn post_receives(&self, gate: &mut ReceiveGate) -> Result {
        const BATCH: usize = RECEIVE_BATCH as usize;
        let Some(qp) = gate.qp else {
            return Err(ENOTCONN);
        };
        let mut sges: [sys::ib_sge; BATCH] = pin_init::zeroed();
        let mut requests: [sys::ib_recv_wr; BATCH] =
            core::array::from_fn(|_| sys::ib_recv_wr::zeroed());
        let mut first: *mut sys::ib_recv_wr = ptr::null_mut();
        for (sge, request) in sges.iter_mut().zip(requests.iter_mut()) {
            let Some(index) = gate.idle.pop() else { break };
            let Some(slot) = self.receives.get(usize::try_from(index)?) else {
                continue;
            };
            sge.addr = slot.buffer.address();
            sge.length = u32::try_from(slot.buffer.len())?;
            sge.lkey = gate.lkey;
            request.sg_list = sge;
            request.num_sge = 1;
            set_receive_cqe(request, ptr::from_ref(&slot.cqe).cast_mut());
            request.next = first;
            first = request;
            // SAFETY: The buffer is mapped while the gate is open, and idle: ours to hand over.
            unsafe { slot.buffer.sync_for_device(slot.buffer.len()) };
        }
        if first.is_null() {
            return Ok(());
        }
        // SAFETY: The gate's QP is live; the chain and its SGEs are valid for the call; the buffers and their
        // completion entries are part of the endpoint, which outlives the QP.
        to_result(unsafe { sys::ib_post_recv(qp.as_ptr(), first, ptr::null_mut()) })
    }

    /// Takes a buffer back that the device or a [`Received`] is done with.
    fn recycle(&self, index: u32) {
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

    /// # Safety
    ///
    /// Called by the CQ core for a Receive of this endpoint.
    pub(super) unsafe extern "C" fn receive_callback(cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: `set_up` gave the CQ the pointer of the endpoint's `Arc` as its context, and `EndpointOwner`
        // keeps the endpoint until the CQ is gone.
        let this = unsafe { ArcBorrow::<Self>::from_raw((*cq).cq_context.cast_const().cast()) };
        // SAFETY: The CQ core hands us the completion for the call.
        let Some(completion) = (unsafe { Completion::from_raw(wc) }) else {
            return;
        };
        // SAFETY: This handler belongs to the entries of `ReceiveSlot`s only, whose first member they are; the
        // slots live as long as the endpoint.
        let slot = unsafe { &*completion.cqe().cast::<ReceiveSlot>() };
        if !completion.ok() {
            trace::receive(this.context.number(), 0, completion.status());
            // Every connection ends with flushed Receives.
            if !completion.flushed() {
                completion.trace_error(this.context.number(), trace::Work::Receive);
            }
            // The QP is in error: to post the buffer again would only have it flushed again.
            let _ = this.receive.lock().idle.push_within_capacity(slot.index);
            this.context.lost();
            return;
        }
        let len = completion.byte_len() as usize;
        trace::receive(this.context.number(), len, completion.status());
        // SAFETY: The device is done with the buffer, which stays mapped while the CQ exists.
        unsafe { slot.buffer.sync_for_cpu(len) };
        let message = Received {
            index: slot.index,
            len,
            invalidated: completion.invalidated_rkey(),
            endpoint: this.into(),
        };
        H::received(this.context.handler(), message);
    }
}

/// A message that has arrived, in its Receive buffer. Dropped, the buffer is posted again.
pub(crate) struct Received<H: EndpointEvents> {
    /// Which buffer it is in.
    index: u32,
    /// How long it is.
    len: usize,
    /// The rkey that the peer invalidated with it.
    invalidated: Option<u32>,
    /// Where it arrived.
    endpoint: Arc<Endpoint<H>>,
}

impl<H: EndpointEvents> Received<H> {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.endpoint.receives.get(self.index as usize) {
            // SAFETY: The device gave the buffer back, and it is posted again only when `self` is dropped.
            Some(slot) => unsafe { slot.buffer.bytes(self.len) },
            None => &[],
        }
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
        self.endpoint.recycle(self.index);
    }
}
