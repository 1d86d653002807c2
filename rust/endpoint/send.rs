// SPDX-License-Identifier: GPL-2.0

//! The sending half of an endpoint: messages, registrations and fences.

use crate::{
    endpoint::{
        gate::{
            Purpose,
            SendChain,
            SendGate,
            SendRequest,
            SendSlot, //
        },
        quota::SENDS,
        regions::RegionHandle,
        Endpoint,
        EndpointEvents,
        Quota, //
    },
    kext::{
        delayed_work::DelayedWork,
        errno::ENOTCONN, //
    },
    observe::trace,
    rdma::{
        completion::{
            Completes,
            Completion,
            Posting, //
        },
        device::Device,
        dma::{
            Direction,
            DmaBuffer, //
        },
        region::RegionState, //
    },
    sys, //
};
use core::{
    ops::{
        Deref,
        DerefMut, //
    },
    ptr, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow,
        SetOnce, //
    }, //
};

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

impl<H: EndpointEvents> Completes for SendSlot<H> {
    type Owner = Endpoint<H>;

    fn completed(&self, this: ArcBorrow<'_, Endpoint<H>>, completion: Completion<'_>) {
        let sequence = self.sequence.load(Relaxed);
        let name = self.name.load(Relaxed);
        // Before the buffer comes free, and with it the place of the cargo.
        drop(self.cargo.take());
        trace::sent(this.number(), name, completion.status());
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Send);
            this.context.lost();
            return;
        }
        this.retire(sequence);
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Everything up to `sequence` has been sent.
    pub(super) fn retire(&self, sequence: u64) {
        self.retire_with(|gate| {
            let SendGate { queue, free, .. } = gate;
            // Never more than the capacity: each buffer is out once.
            queue.retire(sequence, |buffer| drop(free.push_within_capacity(buffer)));
        });
    }

    /// A part of a chain has been sent.
    pub(super) fn retire_part(&self) {
        self.retire_with(|gate| {
            let SendGate { queue, free, .. } = gate;
            // As above.
            queue.retire_part(|buffer| drop(free.push_within_capacity(buffer)));
        });
    }

    /// Makes use of the room that `retire` makes.
    fn retire_with(&self, retire: impl FnOnce(&mut SendGate)) {
        let mut gate = self.send.lock();
        retire(&mut gate);
        let refused = self.go_on(&mut gate) == Err(PostError::Refused);
        drop(gate);
        if refused {
            self.context.lost();
        }
        self.context.handler().send_room();
    }

    /// Makes up to `count` Send buffers more, but not if all connections have `limit` together
    /// beyond their first ones. Returns how many; none if there are as many as there may be.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOMEM`, or what mapping reports.
    pub(crate) fn add_send_buffers(self: &Arc<Self>, count: u32, limit: u64) -> Result<u32> {
        // Excludes the end of the device, and others who do the same.
        let guard = self.objects.lock();
        let objects = guard.as_ref().ok_or(ENOTCONN)?;
        let device = objects.cm.device().ok_or(ENODEV)?;
        self.make_send_buffers(&device, count, Some(limit))
    }

    /// Sees to it that `count` Send buffers are free, as far as the connection may have so many and
    /// they can be made. They are for a message in parts, which could wait for ever for fewer: so
    /// what all connections have together is no limit. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::add_send_buffers`].
    pub(crate) fn ensure_send_buffers(self: &Arc<Self>, count: u32) -> Result<u32> {
        let free = u32::try_from(self.send.lock().free_for(Purpose::Rpc))?;
        match count.saturating_sub(free) {
            0 => Ok(0),
            missing => self.add_send_buffers(missing, u64::MAX),
        }
    }

    /// As [`Self::add_send_buffers`]; the caller holds the lock of the verbs objects. Without a
    /// limit they do not count.
    pub(super) fn make_send_buffers(
        self: &Arc<Self>,
        device: &Device,
        count: u32,
        limit: Option<u64>,
    ) -> Result<u32> {
        let mut added = 0;
        while added < count {
            let index = self.send.lock().made;
            let Some(place) = self.sends.get(index as usize) else {
                break;
            };
            if limit.is_some_and(|limit| !SENDS.add_one_below(limit)) {
                break;
            }
            if let Err(error) = self.make_send_buffer(device, place) {
                SENDS.sub(limit.is_some().into());
                return Err(error);
            }
            let mut gate = self.send.lock();
            gate.made += 1;
            gate.counted += u32::from(limit.is_some());
            // There is room for all.
            let _ = gate.free.push_within_capacity(index);
            added += 1;
        }
        Ok(added)
    }

    /// Makes a Send buffer.
    fn make_send_buffer(
        self: &Arc<Self>,
        device: &Device,
        place: &SetOnce<KBox<Posting<SendSlot<H>>>>,
    ) -> Result {
        let buffer = DmaBuffer::new(self.sizes.send_size, Direction::ToDevice)?;
        let slot = KBox::new(Posting::new(SendSlot::new(buffer)), GFP_KERNEL)?;
        slot.belongs_to(self);
        // SAFETY: Nobody else knows the buffer.
        unsafe { slot.buffer.map(device) }?;
        place.populate(slot);
        Ok(())
    }

    /// The slot of a Send buffer, if there is one.
    pub(super) fn send_slot(&self, index: u32) -> Option<&Posting<SendSlot<H>>> {
        Some(&**self.sends.get(index as usize)?.as_ref()?)
    }

    /// All slots that have a Send buffer.
    pub(super) fn send_slots(&self) -> impl Iterator<Item = &Posting<SendSlot<H>>> {
        let made = self.sends.iter().filter_map(|place| place.as_ref());
        made.map(|slot| &**slot)
    }

    /// Lends out a Send buffer, if there is one and the queue has room for a Send.
    pub(crate) fn send_buffer(self: &Arc<Self>) -> Option<SendBuffer<H>> {
        self.lend(Purpose::Rpc)
    }

    /// As [`Self::send_buffer`], for a message of the connection's own: where `Sizes::kept_sends`
    /// says so there is a buffer that nobody else gets.
    pub(crate) fn control_buffer(self: &Arc<Self>) -> Option<SendBuffer<H>> {
        self.lend(Purpose::Control)
    }

    /// See [`Self::send_buffer`].
    fn lend(self: &Arc<Self>, purpose: Purpose) -> Option<SendBuffer<H>> {
        let mut gate = self.send.lock();
        gate.qp.as_ref()?;
        if !gate.has_room(1, 0) {
            return None;
        }
        let index = gate.take_free(purpose)?;
        drop(gate);
        Some(SendBuffer {
            index,
            posted: false,
            answers: false,
            endpoint: self.clone(),
        })
    }

    /// Lends out a Send buffer for the answer to a Call that is to be taken in, if there is one and
    /// the pages of transfers are not too many; also if the queue is full.
    pub(crate) fn spare_send_buffer(self: &Arc<Self>, quota: &Quota) -> Option<SendBuffer<H>> {
        let index = self.send.lock().take_in(quota)?;
        Some(SendBuffer {
            index,
            posted: false,
            answers: true,
            endpoint: self.clone(),
        })
    }

    /// Returns whether a message with `regions` registrations could be posted now, in so many
    /// `parts`.
    pub(crate) fn has_send_room(&self, regions: usize, parts: u32) -> bool {
        let Ok(fences) = u32::try_from(regions) else {
            return false;
        };
        let gate = self.send.lock();
        gate.free_for(Purpose::Rpc) >= parts as usize
            && gate.has_room(fences.saturating_add(parts), fences)
    }

    /// Posts the registrations of `regions` and then the first `len` octets of `message`, as one
    /// chain. Returns whether the Send is signaled.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. Except for `Refused`, nothing was posted.
    pub(crate) fn post_message(
        self: &Arc<Self>,
        message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, PostError> {
        self.post_in_parts(&mut [], message, len, regions)
    }

    /// As [`Self::post_message`]; `parts` are posted before, each with its length. What is posted
    /// is taken out of `parts`, which may have empty places.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_message`].
    pub(crate) fn post_in_parts(
        self: &Arc<Self>,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, PostError> {
        let (signaled, _) = self.post_chain(parts, message, len, regions, false)?;
        Ok(signaled)
    }

    /// Posts the first `len` octets of `message`, signaled. Returns its place, for
    /// [`Self::has_retired`].
    ///
    /// # Errors
    ///
    /// As for [`Self::post_message`].
    pub(crate) fn post_signaled(
        self: &Arc<Self>,
        message: SendBuffer<H>,
        len: usize,
    ) -> Result<u64, PostError> {
        let (_, sequence) = self.post_chain(&mut [], message, len, &mut [], true)?;
        Ok(sequence)
    }

    /// Returns whether the Send at a place has completed. [`EndpointEvents::send_room`] is called
    /// when it does.
    pub(crate) fn has_retired(&self, sequence: u64) -> bool {
        self.send.lock().queue.has_retired(sequence)
    }

    /// Posts `parts`, for which there is room: each a Send of its own, with its length.
    ///
    /// # Errors
    ///
    /// `Refused`.
    pub(super) fn post_parts(
        &self,
        gate: &mut SendGate,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
    ) -> Result<(), PostError> {
        for (part, len) in parts.iter_mut().flatten() {
            let slot = self.send_slot(part.index).ok_or(PostError::Refused)?;
            let signaled = gate.queue.must_signal(1, gate.made);
            // SAFETY: As in `post_chain`.
            let mut send = unsafe { SendRequest::new(slot, *len, gate.lkey, signaled) };
            let chain = SendChain {
                first: send.link(),
                requests: 1,
                signaled,
                begun: None,
            };
            // SAFETY: As in `post_chain`.
            unsafe { gate.post(slot, part.index, &chain) }?;
            part.posted = true;
        }
        Ok(())
    }

    /// See [`Self::post_in_parts`]. Returns whether the last Send is signaled, as it is with
    /// `signal` in any case, and its place.
    fn post_chain(
        self: &Arc<Self>,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        mut message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
        signal: bool,
    ) -> Result<(bool, u64), PostError> {
        let slot = self.send_slot(message.index).ok_or(PostError::Refused)?;
        let before = there(parts);
        let fences = u32::try_from(regions.len()).map_err(|_| PostError::Refused)?;
        let requests = fences.checked_add(1).ok_or(PostError::Refused)?;

        let mut gate = self.send.lock();
        if gate.qp.is_none() {
            return Err(PostError::Closed);
        }
        if !gate.has_room(requests.saturating_add(before), fences) {
            return Err(PostError::Full);
        }
        self.post_parts(&mut gate, parts)
            .map_err(|error| self.end_if_refused(error))?;
        // The parts must not wait for whatever is sent next: who has more in parts may need their
        // buffers.
        let signaled = signal || before > 0 || gate.queue.must_signal(requests, gate.made);
        // SAFETY: The gate is open, so the buffer is mapped and the device live; the message is
        // complete.
        let mut send = unsafe { SendRequest::new(slot, len, gate.lkey, signaled) };
        let mut first = send.link();
        for handle in regions.iter_mut() {
            if let Some(region) = handle.region.as_mut() {
                first = region.register_wr(first);
            }
        }
        let chain = SendChain {
            first,
            requests,
            signaled,
            begun: None,
        };
        // SAFETY: The gate's QP is live; the chain has just been linked, with the Send last, and is
        // valid for the call. The entries of the regions outlive the QP.
        let posted = unsafe { gate.post(slot, message.index, &chain) }
            .map_err(|error| self.end_if_refused(error));
        if posted.is_ok() {
            gate.queue.reserve(fences);
            message.posted = true;
        }
        drop(gate);
        for region in regions.iter_mut().filter_map(|h| h.region.as_mut()) {
            region.state = RegionState::Registered;
        }
        // Outside the lock, though what was posted does nothing when it is dropped.
        parts.fill_with(|| None);
        posted.map(|sequence| (signaled, sequence))
    }

    /// Reports the loss of the connection if the device has refused what was posted. No completion
    /// comes of that, and the sender may have nobody to tell: a GRANT would be missing until
    /// something else is sent. Returns `error`.
    ///
    /// The caller holds the gate's lock, and may hold others. The gate is open, so the end of the
    /// endpoint, which waits for the work item, is still to come.
    fn end_if_refused(self: &Arc<Self>, error: PostError) -> PostError {
        if error == PostError::Refused {
            self.broken.store(true, Relaxed);
            DelayedWork::schedule(self, 0);
        }
        error
    }

    /// Posts the invalidation of `regions` as one chain. When it is done,
    /// [`EndpointEvents::fenced`] is called with `tag`, once.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`: `fenced` will not be called, and the connection is ending. Room was
    /// kept, so the queue is never full.
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
        let qp = gate.qp.as_ref().ok_or(PostError::Closed)?.as_ptr();
        let sequence = gate
            .queue
            .posted(requests, true, None)
            .ok_or(PostError::Refused)?;
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        // Built from the end: the first region's request is the chain's last, and the only one
        // signaled. Work requests are done in order, so with it all are.
        for region in regions.iter_mut().filter_map(|h| h.region.as_mut()) {
            let tag = first.is_null().then_some(tag);
            first = region.fence_wr(first, sequence, tag);
        }
        if first.is_null() {
            gate.queue.unpost();
            return Err(PostError::Refused);
        }
        gate.queue.unreserve(requests);
        // Before the post, so that no completion can come first.
        trace::region_fence_post(self.number(), tag, regions.len());
        let mut refused_at: *const sys::ib_send_wr = ptr::null();
        // SAFETY: As in `post_message`.
        let status = unsafe { sys::ib_post_send(qp, first.cast_const(), &raw mut refused_at) };
        if status != 0 {
            gate.queue.unpost();
            return Err(PostError::Refused);
        }
        Ok(())
    }
}

/// Returns the number of `parts`. Their places may be more.
pub(super) fn there<T>(parts: &[Option<T>]) -> u32 {
    parts.iter().flatten().fold(0, |count, _| count + 1)
}

/// A Send buffer on loan. Dropped without having been posted, it goes back.
pub(crate) struct SendBuffer<H: EndpointEvents> {
    /// Which buffer it is.
    pub(super) index: u32,
    /// Set when it was posted: then it goes back when its Send has completed.
    pub(super) posted: bool,
    /// Set if it is for the answer to a Call, which counts as not answered.
    pub(super) answers: bool,
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
            // SAFETY: The index was taken from the free list, so the buffer is ours alone until it
            // is posted, which consumes `self`.
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
            let mut gate = self.endpoint.send.lock();
            // Never more than the capacity: the index came from this list.
            let _ = gate.free.push_within_capacity(self.index);
            if self.answers {
                // Told below, as any other buffer that came back.
                let _ = gate.answered();
            }
            drop(gate);
            self.endpoint.context.handler().resources_back();
        }
    }
}
