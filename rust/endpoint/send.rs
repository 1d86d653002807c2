// SPDX-License-Identifier: GPL-2.0

//! The sending half of an endpoint: messages, registrations and fences.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        gate::{
            Purpose,
            SendGate, //
        },
        parts::FirstParts,
        quota::SENDS,
        regions::RegionHandle,
        Endpoint,
        EndpointEvents, //
    },
    kext::delayed_work::DelayedWork,
    observe::trace,
    policy::budget::Quota,
    proto::message,
    rdma::{
        cm::{
            Drained,
            QueuePairUser, //
        },
        send_queue::{
            PostError,
            PostedSend,
            SendMemory,
            SendOptions, //
        }, //
    }, //
};
use core::{
    iter,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

/// How many Send buffers are left of those that nobody has needed for a while. The next Send is
/// signaled then if there are few others, and has those come back that are not.
const SPARE_SENDS: usize = 2;

impl From<PostError> for trace::Post {
    fn from(error: PostError) -> Self {
        match error {
            PostError::Closed => Self::Closed,
            PostError::Full => Self::Full,
            PostError::Refused => Self::Refused,
        }
    }
}

impl<H: EndpointEvents> SendGate<H> {
    /// Posts `parts`, each a Send of its own, for which there are room and buffers.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    #[inline(never)]
    pub(super) fn post_parts(
        &mut self,
        parts: &FirstParts,
        credits: Option<u32>,
    ) -> Result<(), PostError> {
        for part in parts.iter() {
            let mut memory = self.free.take(Purpose::Rpc).ok_or(PostError::Refused)?;
            let place = memory.get_mut(..part.len()).ok_or(PostError::Refused)?;
            place.copy_from_slice(part);
            if let Some(credits) = credits {
                message::set_credits(place, credits);
            }
            let send = SendOptions {
                len: part.len(),
                ..SendOptions::default()
            };
            self.queue.post_send(memory, send, iter::empty())?;
        }
        Ok(())
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Everything up to `place` has been sent.
    pub(super) fn retire(&self, place: u64) {
        let mut gate = self.send.lock();
        let SendGate { queue, free, .. } = &mut *gate;
        queue.retire(place, |buffer| free.put(buffer));
        let gone_on = gate.go_on();
        drop(gate);
        self.use_room(gone_on);
    }

    /// Has others use the room that a completion has made. `gone_on` is what has become of those
    /// that waited.
    pub(super) fn use_room(&self, gone_on: Result<(), PostError>) {
        if gone_on == Err(PostError::Refused) {
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
        // Excludes the end of the device, and other threads that do the same.
        let guard = self.objects.lock();
        let objects = guard.as_ref().ok_or(ENOTCONN)?;
        let qp = objects.cm.queue_pair().ok_or(ENOTCONN)?;
        self.make_send_buffers(&qp, count, Some(limit))
    }

    /// Sees to it that `count` Send buffers are free, as far as the connection may have that many
    /// and they can be made. They are for a message in parts, which could wait for ever for fewer:
    /// so what all connections have together is no limit. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::add_send_buffers`].
    pub(crate) fn ensure_send_buffers(self: &Arc<Self>, count: u32) -> Result<u32> {
        let free = u32::try_from(self.send.lock().free.count(Purpose::Rpc))?;
        match count.saturating_sub(free) {
            0 => Ok(0),
            missing => self.add_send_buffers(missing, u64::MAX),
        }
    }

    /// Removes Send buffers that nobody has needed since it was last called, but for a few, and for
    /// `keep` of those that were made after the connection. Returns whether there will soon be
    /// others to be removed. Sleeps.
    pub(crate) fn remove_send_buffers(&self, keep: u32) -> bool {
        // As for `add_send_buffers`.
        let guard = self.objects.lock();
        let objects = guard.as_ref();
        let Some(qp) = objects.and_then(|objects| objects.cm.queue_pair()) else {
            return false;
        };
        let (spare, mut changes) = self.send.lock().free.spare();
        for _ in 0..spare.saturating_sub(SPARE_SENDS) {
            let mut gate = self.send.lock();
            if gate.counted <= keep {
                break;
            }
            let SendGate { queue, free, .. } = &mut *gate;
            let Some(memory) = free.take(Purpose::Rpc) else {
                break;
            };
            queue.remove_buffer();
            gate.counted -= 1;
            drop(gate);
            SENDS.sub(1);
            memory.release(&qp);
            changes = true;
        }
        changes && self.send.lock().counted > keep
    }

    /// As [`Self::add_send_buffers`]; the caller holds the lock of the verbs objects. Without a
    /// limit they do not count.
    pub(super) fn make_send_buffers(
        self: &Arc<Self>,
        qp: &QueuePairUser,
        count: u32,
        limit: Option<u64>,
    ) -> Result<u32> {
        let mut added = 0;
        while added < count {
            if self.send.lock().queue.buffers() >= self.sizes.sends {
                break;
            }
            if limit.is_some_and(|limit| !SENDS.add_one_below(limit)) {
                break;
            }
            let made = SendMemory::new(qp, self, self.sizes.send_size).and_then(|memory| {
                let mut gate = self.send.lock();
                gate.queue.add_buffer()?;
                gate.counted += u32::from(limit.is_some());
                gate.free.put(memory);
                Ok(())
            });
            made.inspect_err(|_| SENDS.sub(limit.is_some().into()))?;
            added += 1;
        }
        Ok(added)
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
        if !gate.queue.has_room(1, 0) {
            return None;
        }
        let memory = gate.free.take(purpose)?;
        drop(gate);
        Some(SendBuffer {
            memory: Some(memory),
            answers: false,
            endpoint: self.clone(),
        })
    }

    /// Lends out a Send buffer for the answer to a Call that will be taken in, if there is one and
    /// the pages of transfers are not too many; also if the queue is full.
    pub(crate) fn spare_send_buffer(self: &Arc<Self>, quota: &Quota) -> Option<SendBuffer<H>> {
        let memory = self.send.lock().take_in(quota)?;
        Some(SendBuffer {
            memory: Some(memory),
            answers: true,
            endpoint: self.clone(),
        })
    }

    /// As [`Self::spare_send_buffer`], for a Call without chunks: whatever the pages of transfers
    /// are.
    pub(crate) fn plain_send_buffer(self: &Arc<Self>) -> Option<SendBuffer<H>> {
        let memory = self.send.lock().take_in_plain()?;
        Some(SendBuffer {
            memory: Some(memory),
            answers: false,
            endpoint: self.clone(),
        })
    }

    /// Returns whether a Send buffer is free for an RPC message.
    pub(crate) fn has_send_buffer(&self) -> bool {
        self.send.lock().free.count(Purpose::Rpc) > 0
    }

    /// Returns whether a message with `regions` registrations could be posted now, in `parts`
    /// parts.
    pub(crate) fn has_send_room(&self, regions: usize, parts: u32) -> bool {
        let Ok(fences) = u32::try_from(regions) else {
            return false;
        };
        let gate = self.send.lock();
        gate.free.count(Purpose::Rpc) >= parts as usize
            && gate.queue.has_room(fences.saturating_add(parts), fences)
    }

    /// Posts the registrations of `regions` and then the first `len` octets of `message`, as one
    /// chain; before them `parts`, with a credit value if they don't have it yet. Returns whether
    /// the Send is signaled.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. Except for `Refused`, nothing was posted.
    #[inline]
    pub(crate) fn post_message(
        self: &Arc<Self>,
        parts: Option<(&FirstParts, Option<u32>)>,
        message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, PostError> {
        let posted = self.post_chain(parts, message, len, regions, false)?;
        Ok(posted.signaled)
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
        let posted = self.post_chain(None, message, len, &mut [], true)?;
        Ok(posted.place)
    }

    /// Returns whether the Send at a place has completed. [`EndpointEvents::send_room`] is called
    /// when it does.
    pub(crate) fn has_retired(&self, place: u64) -> bool {
        self.send.lock().queue.has_retired(place)
    }

    /// See [`Self::post_message`]. The last Send is signaled with `signal` in any case.
    #[inline]
    fn post_chain(
        self: &Arc<Self>,
        parts: Option<(&FirstParts, Option<u32>)>,
        mut message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
        signal: bool,
    ) -> Result<PostedSend, PostError> {
        let before = parts.map_or(0, |(parts, _)| parts.len());
        let fences = u32::try_from(regions.len()).map_err(|_| PostError::Refused)?;
        let requests = fences.saturating_add(1).saturating_add(before);

        let mut gate = self.send.lock();
        if !gate.queue.is_open() {
            return Err(PostError::Closed);
        }
        if !gate.queue.has_room(requests, fences) || !gate.free.has_for_rpc(before) {
            return Err(PostError::Full);
        }
        let send = SendOptions {
            len,
            invalidate: None,
            // The parts must not wait for whatever is sent next: a sender of more messages in parts
            // may need their buffers.
            signal: signal || before > 0,
        };
        let regions = regions.iter_mut().filter_map(RegionHandle::region);
        let posted = match parts {
            Some((parts, credits)) => gate.post_parts(parts, credits),
            None => Ok(()),
        };
        let posted = posted.and_then(|()| {
            let memory = message.take().ok_or(PostError::Refused)?;
            gate.queue.post_send(memory, send, regions)
        });
        drop(gate);
        posted.map_err(|error| self.end_if_refused(error))
    }

    /// Reports the loss of the connection if the device has refused what was posted. No completion
    /// comes of that, and the sender may have nobody to tell: a GRANT would be missing until
    /// something else is sent. Returns `error`.
    ///
    /// The caller may hold locks. The end of the endpoint, which waits for the work item, is still
    /// to come, or has seen to it that this one is not scheduled any more.
    #[cold]
    pub(super) fn end_if_refused(self: &Arc<Self>, error: PostError) -> PostError {
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
        let mut gate = self.send.lock();
        if !gate.queue.is_open() {
            return Err(PostError::Closed);
        }
        // Before the post, so that no completion can come first.
        trace::region_fence_post(self.number(), tag, regions.len());
        let regions = regions.iter_mut().filter_map(RegionHandle::region);
        gate.queue.post_fence(regions, tag)
    }
}

/// A Send buffer on loan. Dropped without having been posted, it goes back.
pub(crate) struct SendBuffer<H: EndpointEvents> {
    /// The buffer, until it is posted: then it goes back when its Send has completed.
    memory: Option<SendMemory<Endpoint<H>>>,
    /// Set if it is for the answer to a Call that counts as not answered.
    pub(super) answers: bool,
    /// Whose it is.
    endpoint: Arc<Endpoint<H>>,
}

impl<H: EndpointEvents> SendBuffer<H> {
    /// Takes the buffer out to post it.
    pub(super) fn take(&mut self) -> Option<SendMemory<Endpoint<H>>> {
        self.memory.take()
    }

    /// Returns the buffer, until it is posted.
    pub(super) fn memory(&self) -> Option<&SendMemory<Endpoint<H>>> {
        self.memory.as_ref()
    }

    /// Ends its Writes of which no completion has come, in a queue that was drained.
    pub(super) fn reclaim(&self, drained: &Drained<'_>) {
        if let Some(memory) = &self.memory {
            memory.reclaim(drained);
        }
    }
}

impl<H: EndpointEvents> Deref for SendBuffer<H> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or(&[])
    }
}

impl<H: EndpointEvents> DerefMut for SendBuffer<H> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or(&mut [])
    }
}

impl<H: EndpointEvents> Drop for SendBuffer<H> {
    fn drop(&mut self) {
        // One whose Writes were begun stays with these, until the end of the queue.
        if let Some(memory) = self.memory.take().filter(|memory| !memory.is_begun()) {
            let mut gate = self.endpoint.send.lock();
            gate.free.put(memory);
            if self.answers {
                // Told below, as any other buffer that came back.
                let _ = gate.answered();
            }
            drop(gate);
            self.endpoint.context.handler().resources_back();
        }
    }
}
