// SPDX-License-Identifier: GPL-2.0

//! The sending half of an endpoint: messages, registrations and fences.

use crate::kext::errno::ENOTCONN;
use crate::observe::trace;
use crate::sys;
use crate::verbs::completion::Completion;
use crate::verbs::dma::{Direction, DmaBuffer};
use crate::verbs::endpoint::parts::Rest;
use crate::verbs::endpoint::regions::RegionHandle;
use crate::verbs::endpoint::transfer::Cargo;
use crate::verbs::endpoint::{Endpoint, EndpointEvents};
use crate::verbs::region::{Region, RegionState};
use crate::verbs::send_queue::SendQueue;
use crate::verbs::work_request::{set_send_cqe, PlainRequest};
use core::cell::Cell;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, ArcBorrow};

/// A work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PostError {
    /// The endpoint is being shut down.
    Closed,
    /// The Send Queue is full. [`EndpointEvents::send_room`] will be called.
    Full,
    /// The device refused. The connection must end: part of the chain may have been taken.
    Refused,
}

impl From<PostError> for trace::Post {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Closed => Self::Closed,
            PostError::Full => Self::Full,
            PostError::Refused => Self::Refused,
        }
    }
}

/// A Send buffer with its completion entry.
#[repr(C)]
pub(super) struct SendSlot<H: EndpointEvents> {
    /// First, so that its address is that of the slot.
    pub(super) cqe: sys::ib_cqe,
    /// Where in the Send Queue it was posted last.
    pub(super) sequence: Atomic<u64>,
    /// What is released when the Send has completed. Written by who posts it, under the gate's lock, and taken by
    /// its completion, or when there are none any more.
    pub(super) cargo: Cell<Option<Cargo<H>>>,
    /// Where the message is.
    pub(super) buffer: DmaBuffer,
}

/// The gate of the Send Queue: no pointer, no posting.
pub(super) struct SendGate {
    /// The QP, while the gate is open.
    pub(super) qp: Option<NonNull<sys::ib_qp>>,
    /// The key for local memory.
    pub(super) lkey: u32,
    /// What is posted.
    pub(super) queue: SendQueue,
    /// Indices of the buffers that are neither posted nor lent out. With room for all of them.
    pub(super) free: KVVec<u32>,
    /// How many of the slots have a buffer: the first ones.
    pub(super) made: u32,
    /// The port of the device.
    pub(super) port: u32,
    /// How many transfers exist.
    pub(super) transfers: usize,
    /// How many pages they have together.
    pub(super) transfer_pages: usize,
    /// How many memory regions for transfers were made.
    pub(super) transfer_regions: u32,
    /// Whether the end of the endpoint waits until there is none.
    pub(super) awaited: bool,
    /// The slots for Reads that are not in use. With room for all of them.
    pub(super) free_pulls: KVVec<u32>,
    /// What is left of a chain that is being posted in parts.
    pub(super) rest: Option<Rest>,
}

// SAFETY: A QP may be used from any context; the gate is used under its lock.
unsafe impl Send for SendGate {}

impl SendGate {
    /// Whether a chain of `requests` may be posted as a whole, with `fences` to follow some day.
    fn has_room(&self, requests: u32, fences: u32) -> bool {
        self.rest.is_none() && self.queue.has_room(requests, fences)
    }

    /// Whether a chain of `requests` may be posted as a whole, or begun if it is too long for that.
    pub(super) fn may_begin(&self, requests: u32) -> bool {
        let in_parts = || !self.queue.fits(requests) && self.queue.part(requests) > 0;
        self.has_room(requests, 0) || (self.rest.is_none() && in_parts())
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// # Safety
    ///
    /// Called by the CQ core for a Send of this endpoint.
    pub(super) unsafe extern "C" fn send_callback(cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: As in `receive_callback`.
        let this = unsafe { ArcBorrow::<Self>::from_raw((*cq).cq_context.cast_const().cast()) };
        // SAFETY: As in `receive_callback`.
        let Some(completion) = (unsafe { Completion::from_raw(wc) }) else {
            return;
        };
        // SAFETY: As in `receive_callback`, for `SendSlot`.
        let slot = unsafe { &*completion.cqe().cast::<SendSlot<H>>() };
        let sequence = slot.sequence.load(Relaxed);
        // Before the buffer comes free, and with it the place of the cargo.
        drop(slot.cargo.take());
        trace::sent(this.context.number(), sequence, completion.status());
        if !completion.ok() {
            completion.trace_error(this.context.number(), trace::Work::Send);
            this.context.lost();
            return;
        }
        this.retire(sequence);
    }

    /// # Safety
    ///
    /// Called by the CQ core for a REG_MR of this endpoint; since it is never signaled, on failure only.
    pub(super) unsafe extern "C" fn register_callback(cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: As in `receive_callback`.
        let this = unsafe { ArcBorrow::<Self>::from_raw((*cq).cq_context.cast_const().cast()) };
        // SAFETY: As in `receive_callback`.
        let Some(completion) = (unsafe { Completion::from_raw(wc) }) else {
            return;
        };
        if !completion.ok() {
            completion.trace_error(this.context.number(), trace::Work::Register);
            this.context.lost();
        }
    }

    /// # Safety
    ///
    /// Called by the CQ core for a LOCAL_INV of this endpoint.
    pub(super) unsafe extern "C" fn fence_callback(cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: As in `receive_callback`.
        let this = unsafe { ArcBorrow::<Self>::from_raw((*cq).cq_context.cast_const().cast()) };
        // SAFETY: As in `receive_callback`.
        let Some(completion) = (unsafe { Completion::from_raw(wc) }) else {
            return;
        };
        // SAFETY: This handler belongs to the fence entries of `Region`s only.
        let region = unsafe { kernel::container_of!(completion.cqe(), Region, fence_cqe) };
        // SAFETY: The entry is that of a region, which stays in memory until its completions have come, or the
        // queues are gone (see `RegionHandle::drop`). These two members were written before it was posted, and
        // are not written again before `fenced` was called for it.
        let (tag, sequence) = unsafe { ((*region).fence_tag, (*region).fence_sequence) };
        if completion.ok() {
            this.retire(sequence);
        } else {
            completion.trace_error(this.context.number(), trace::Work::Invalidate);
            this.context.lost();
        }
        if let Some(tag) = tag {
            trace::region_fenced(this.context.number(), tag, completion.ok());
            H::fenced(this.context.handler(), tag, completion.ok());
        }
    }

    /// Everything up to `sequence` has been sent.
    pub(super) fn retire(&self, sequence: u64) {
        let mut gate = self.send.lock();
        let SendGate { queue, free, .. } = &mut *gate;
        // Never more than the capacity: each buffer is out once.
        queue.retire(sequence, |buffer| {
            let _ = free.push_within_capacity(buffer);
        });
        let refused = self.go_on(&mut gate) == Err(PostError::Refused);
        drop(gate);
        if refused {
            self.context.lost();
        }
        self.context.handler().send_room();
    }

    /// Makes up to `count` Send buffers more. Returns how many; none if there are as many as there may be. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOMEM`, or what mapping reports.
    pub(crate) fn add_send_buffers(&self, count: u32) -> Result<u32> {
        // Excludes the end of the device, and others who do the same.
        let objects = self.objects.lock();
        if objects.is_none() {
            return Err(ENOTCONN);
        }
        let made = self.make_send_buffers(count);
        drop(objects);
        made
    }

    /// Sees to it that `count` Send buffers are free, as far as there may be so many and can be made. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::add_send_buffers`].
    pub(crate) fn ensure_send_buffers(&self, count: u32) -> Result<u32> {
        let free = u32::try_from(self.send.lock().free.len())?;
        match count.saturating_sub(free) {
            0 => Ok(0),
            missing => self.add_send_buffers(missing),
        }
    }

    /// As [`Self::add_send_buffers`]; the caller holds the lock of the verbs objects.
    pub(super) fn make_send_buffers(&self, count: u32) -> Result<u32> {
        let mut added = 0;
        while added < count {
            let index = self.send.lock().made;
            let Some(place) = self.sends.get(index as usize) else {
                break;
            };
            let slot = KBox::new(
                SendSlot {
                    cqe: sys::ib_cqe {
                        done: Some(Self::send_callback),
                    },
                    sequence: Atomic::new(0),
                    cargo: Cell::new(None),
                    buffer: DmaBuffer::new(self.sizes.send_size, Direction::ToDevice)?,
                },
                GFP_KERNEL,
            )?;
            // SAFETY: The device stays until `tear_down`, which takes the verbs objects first and then unmaps. Nobody
            // else knows the buffer.
            unsafe { slot.buffer.map(self.device) }?;
            place.populate(slot);
            let mut gate = self.send.lock();
            gate.made += 1;
            // There is room for all.
            let _ = gate.free.push_within_capacity(index);
            added += 1;
        }
        Ok(added)
    }

    /// The slot of a Send buffer, if there is one.
    pub(super) fn send_slot(&self, index: u32) -> Option<&SendSlot<H>> {
        Some(&**self.sends.get(index as usize)?.as_ref()?)
    }

    /// All slots that have a Send buffer.
    pub(super) fn send_slots(&self) -> impl Iterator<Item = &SendSlot<H>> {
        let made = self.sends.iter().filter_map(|place| place.as_ref());
        made.map(|slot| &**slot)
    }

    /// Lends out a Send buffer, if there is one and the queue has room for a Send.
    pub(crate) fn send_buffer(self: &Arc<Self>) -> Option<SendBuffer<H>> {
        self.lend_if(|gate| gate.has_room(1, 0))
    }

    /// Lends out a Send buffer, if there is one and the transfers have less than `pages` pages; also if the queue is
    /// full.
    pub(crate) fn spare_send_buffer(self: &Arc<Self>, pages: usize) -> Option<SendBuffer<H>> {
        self.lend_if(|gate| gate.transfer_pages < pages)
    }

    /// Lends out a Send buffer, if there is one and `may` agrees.
    fn lend_if(self: &Arc<Self>, may: impl FnOnce(&SendGate) -> bool) -> Option<SendBuffer<H>> {
        let mut gate = self.send.lock();
        gate.qp?;
        if !may(&gate) {
            return None;
        }
        let index = gate.free.pop()?;
        drop(gate);
        Some(SendBuffer {
            index,
            posted: false,
            endpoint: self.clone(),
        })
    }

    /// Whether a message with `regions` registrations could be posted now, in so many `parts`.
    pub(crate) fn has_send_room(&self, regions: usize, parts: u32) -> bool {
        let Ok(fences) = u32::try_from(regions) else {
            return false;
        };
        let gate = self.send.lock();
        gate.free.len() >= parts as usize && gate.has_room(fences.saturating_add(parts), fences)
    }

    /// Posts the registrations of `regions` and then the first `len` octets of `message`, as one chain. Returns
    /// whether the Send is signaled.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. Except for `Refused`, nothing was posted.
    pub(crate) fn post_message(
        &self,
        message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, PostError> {
        let (signaled, _) = self.post_chain(message, len, regions, false, 0)?;
        Ok(signaled)
    }

    /// As [`Self::post_message`]; `parts` are posted before, each with its length. Nothing comes in between but fences
    /// and RDMA Reads. What is posted is taken out of `parts`.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_message`].
    pub(crate) fn post_in_parts(
        &self,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, PostError> {
        let fences = u32::try_from(regions.len()).map_err(|_| PostError::Refused)?;
        let kept = self.post_parts(parts, fences.saturating_mul(2).saturating_add(1))?;
        let (signaled, _) = self.post_chain(message, len, regions, false, kept)?;
        Ok(signaled)
    }

    /// Posts `parts`, each with its length, if there is room for `rest` work requests behind them. That room is kept;
    /// returns how much it is, to be given back when the rest is posted. Until then no other message is posted: all of a
    /// connection are under its channel's lock. Reads are not, so a chain of those may be begun in between.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_message`].
    pub(super) fn post_parts(
        &self,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        rest: u32,
    ) -> Result<u32, PostError> {
        let count = parts.iter().flatten().count();
        let count = u32::try_from(count).map_err(|_| PostError::Refused)?;
        let mut gate = self.send.lock();
        let qp = gate.qp.ok_or(PostError::Closed)?;
        if !gate.has_room(count, rest) {
            return Err(PostError::Full);
        }
        for place in parts.iter_mut() {
            let Some((part, len)) = place.as_mut() else {
                continue;
            };
            let slot = self.send_slot(part.index).ok_or(PostError::Refused)?;
            let buffer = &slot.buffer;
            // SAFETY: As in `post_chain`.
            unsafe { buffer.sync_for_device(*len) };
            let mut sge = sys::ib_sge {
                addr: buffer.address(),
                length: u32::try_from((*len).min(buffer.len())).map_err(|_| PostError::Refused)?,
                lkey: gate.lkey,
            };
            let signaled = gate.queue.must_signal(1, gate.made);
            let mut send = sys::ib_send_wr {
                sg_list: &raw mut sge,
                num_sge: 1,
                opcode: sys::ib_wr_opcode_IB_WR_SEND,
                send_flags: if signaled {
                    sys::ib_send_flags_IB_SEND_SIGNALED as c_int
                } else {
                    0
                },
                ..sys::ib_send_wr::zeroed()
            };
            set_send_cqe(&mut send, ptr::from_ref(&slot.cqe).cast_mut());
            let sequence = gate
                .queue
                .posted(1, signaled, Some(part.index))
                .ok_or(PostError::Refused)?;
            slot.sequence.store(sequence, Relaxed);
            // SAFETY: As in `post_chain`.
            let status =
                unsafe { sys::ib_post_send(qp.as_ptr(), &raw const send, ptr::null_mut()) };
            if status != 0 {
                gate.queue.unpost();
                return Err(PostError::Refused);
            }
            part.posted = true;
        }
        gate.queue.reserve(rest);
        drop(gate);
        // Outside the lock, though what was posted does nothing when it is dropped.
        for place in parts {
            *place = None;
        }
        Ok(rest)
    }

    /// Posts the first `len` octets of `message`, signaled. Returns its place, for [`Self::has_retired`].
    ///
    /// # Errors
    ///
    /// As for [`Self::post_message`].
    pub(crate) fn post_signaled(
        &self,
        message: SendBuffer<H>,
        len: usize,
    ) -> Result<u64, PostError> {
        let (_, sequence) = self.post_chain(message, len, &mut [], true, 0)?;
        Ok(sequence)
    }

    /// Whether the Send at a place has completed. [`EndpointEvents::send_room`] is called when it does.
    pub(crate) fn has_retired(&self, sequence: u64) -> bool {
        self.send.lock().queue.has_retired(sequence)
    }

    /// See [`Self::post_message`]. Returns whether the Send is signaled, and its place. `kept` is room that was kept for
    /// it.
    fn post_chain(
        &self,
        mut message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
        signal: bool,
        kept: u32,
    ) -> Result<(bool, u64), PostError> {
        let slot = self.send_slot(message.index).ok_or(PostError::Refused)?;
        let fences = u32::try_from(regions.len()).map_err(|_| PostError::Refused)?;
        let requests = fences.checked_add(1).ok_or(PostError::Refused)?;

        let mut gate = self.send.lock();
        gate.queue.unreserve(kept);
        let qp = gate.qp.ok_or(PostError::Closed)?;
        // Behind parts of the same message nothing has to wait: its room was kept, also from Reads that were begun meanwhile.
        let room = match kept {
            0 => gate.has_room(requests, fences),
            _ => gate.queue.has_room(requests, fences),
        };
        if !room {
            return Err(PostError::Full);
        }
        let buffer = &slot.buffer;
        // SAFETY: The gate is open, so the buffer is mapped and the device live; the message is complete.
        unsafe { buffer.sync_for_device(len) };
        let mut sge = sys::ib_sge {
            addr: buffer.address(),
            length: u32::try_from(len.min(buffer.len())).map_err(|_| PostError::Refused)?,
            lkey: gate.lkey,
        };
        // The parts before must not wait for whatever is sent next: who has more in parts may need their buffers.
        let signaled = signal || kept > 0 || gate.queue.must_signal(requests, gate.made);
        let mut send = sys::ib_send_wr {
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: sys::ib_wr_opcode_IB_WR_SEND,
            send_flags: if signaled {
                sys::ib_send_flags_IB_SEND_SIGNALED as c_int
            } else {
                0
            },
            ..sys::ib_send_wr::zeroed()
        };
        set_send_cqe(&mut send, ptr::from_ref(&slot.cqe).cast_mut());

        let mut first = &raw mut send;
        for handle in regions.iter_mut() {
            if let Some(region) = handle.region.as_mut() {
                first = region.register_wr(first);
            }
        }
        let sequence = gate
            .queue
            .posted(requests, signaled, Some(message.index))
            .ok_or(PostError::Refused)?;
        slot.sequence.store(sequence, Relaxed);
        // SAFETY: The gate's QP is live; the chain is valid for the call; what completes later (the entries of
        // the slot and of the regions) outlives the QP.
        let status = unsafe { sys::ib_post_send(qp.as_ptr(), first.cast_const(), ptr::null_mut()) };
        let refused = status != 0;
        if refused {
            gate.queue.unpost();
        } else {
            gate.queue.reserve(fences);
            message.posted = true;
        }
        drop(gate);
        for region in regions.iter_mut().filter_map(|h| h.region.as_mut()) {
            region.state = RegionState::Registered;
        }
        if refused {
            return Err(PostError::Refused);
        }
        Ok((signaled, sequence))
    }

    /// Posts the invalidation of `regions` as one chain. When it is done, [`EndpointEvents::fenced`] is called
    /// with `tag`, once.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`: `fenced` will not be called, and the connection is ending. Room was kept, so the
    /// queue is never full.
    pub(crate) fn post_fence(
        &self,
        regions: &mut [RegionHandle<H>],
        tag: u32,
    ) -> Result<(), PostError> {
        let posted = self.try_post_fence(regions, tag);
        if posted == Err(PostError::Refused) {
            self.context.lost();
        }
        posted
    }

    /// As [`Self::post_fence`], but a refusal is not reported yet.
    fn try_post_fence(&self, regions: &mut [RegionHandle<H>], tag: u32) -> Result<(), PostError> {
        let requests = u32::try_from(regions.len()).map_err(|_| PostError::Refused)?;
        let mut gate = self.send.lock();
        let qp = gate.qp.ok_or(PostError::Closed)?;
        let sequence = gate
            .queue
            .posted(requests, true, None)
            .ok_or(PostError::Refused)?;
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        // Built from the end: the first region's request is the chain's last, and the only one signaled.
        // Work requests are done in order, so with it all are.
        for region in regions.iter_mut().filter_map(|h| h.region.as_mut()) {
            let last = first.is_null();
            region.fence_tag = last.then_some(tag);
            region.fence_sequence = sequence;
            first = region.fence_wr(first, last);
        }
        if first.is_null() {
            gate.queue.unpost();
            return Err(PostError::Refused);
        }
        gate.queue.unreserve(requests);
        // Before the post, so that no completion can come first.
        trace::region_fence_post(self.context.number(), tag, regions.len());
        let mut refused_at: *const sys::ib_send_wr = ptr::null();
        // SAFETY: As in `post_message`.
        let status =
            unsafe { sys::ib_post_send(qp.as_ptr(), first.cast_const(), &raw mut refused_at) };
        if status != 0 {
            gate.queue.unpost();
            return Err(PostError::Refused);
        }
        Ok(())
    }
}

/// A Send buffer on loan. Dropped without having been posted, it goes back.
pub(crate) struct SendBuffer<H: EndpointEvents> {
    /// Which buffer it is.
    pub(super) index: u32,
    /// Whether it was posted: then it goes back when its Send has completed.
    pub(super) posted: bool,
    /// Whose it is.
    endpoint: Arc<Endpoint<H>>,
}

impl<H: EndpointEvents> SendBuffer<H> {
    /// The memory.
    fn buffer(&self) -> Option<&DmaBuffer> {
        Some(&self.endpoint.send_slot(self.index)?.buffer)
    }
}

impl<H: EndpointEvents> Deref for SendBuffer<H> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.buffer() {
            // SAFETY: The index was taken from the free list, so the buffer is ours alone until it is posted,
            // which consumes `self`.
            Some(buffer) => unsafe { buffer.bytes(buffer.len()) },
            None => &[],
        }
    }
}

impl<H: EndpointEvents> DerefMut for SendBuffer<H> {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self.buffer() {
            // SAFETY: As in `deref`.
            Some(buffer) => unsafe { buffer.bytes_mut() },
            None => &mut [],
        }
    }
}

impl<H: EndpointEvents> Drop for SendBuffer<H> {
    fn drop(&mut self) {
        if !self.posted {
            // Never more than the capacity: the index came from this list.
            let _ = self
                .endpoint
                .send
                .lock()
                .free
                .push_within_capacity(self.index);
            self.endpoint.context.handler().resources_back();
        }
    }
}
