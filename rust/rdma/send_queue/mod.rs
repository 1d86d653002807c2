// SPDX-License-Identifier: GPL-2.0

//! The Send Queue of a QP: what is posted to it, how it comes back, and how much room is left.
//!
//! # Who owns what, and what ends it
//!
//! - A [`SendQueue`] belongs to whoever posts, who protects it with a lock. While it is open it
//!   keeps the QP from being destroyed.
//! - A Send buffer that is posted is in the queue; it comes back when it is [retired], which is
//!   when a later work request has completed, since only some are signaled.
//! - Writes belong to the Send behind them, and Reads to a place of the queue, until the last of
//!   them has completed. What has not when the queue was closed and drained is ended by
//!   [`ClosedQueue::reclaim`], and what keeps its memory stays until the QP is destroyed: siw loses
//!   Reads that were under way behind one that the end of the connection cut off in the middle.
//! - Completion entries, and the memory of Send buffers, are kept by the QP, see
//!   [`posting`](crate::rdma::posting).
//!
//! [retired]: SendQueue::retire

mod memory;
mod parts;
mod reads;
mod ring;

pub(crate) use memory::{
    SendMemory,
    Sent, //
};
use parts::{
    Part,
    Rest, //
};
use reads::ReadSlot;
pub(crate) use reads::ReadsDone;

use crate::{
    kext::errno::ENOTCONN,
    rdma::{
        cm::{
            Drained,
            QueuePairUser, //
        },
        completion::Completion,
        posting::Posting,
        region::{
            Region,
            RegionOwner,
            Registration, //
        },
        rw::ReadWrites, //
    },
    sys, //
};
use core::ptr;
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};
use memory::{
    SendRequest,
    SendSlot, //
};
use ring::Ring;

/// A work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PostError {
    /// The Send Queue is closed.
    Closed,
    /// The Send Queue is full. There will be room after a completion.
    Full,
    /// The device refused. The connection must end: part of the chain may have been taken.
    Refused,
}

/// To be told of completions of a Send Queue. All run in the context of completion handlers.
pub(crate) trait SendQueueOwner: RegionOwner {
    /// Dropped after each Read or Write.
    type Held: Send + 'static;

    /// What keeps the memory that Reads fill.
    type Reading: Send + 'static;

    /// What keeps the memory that Writes are made from.
    type Writing: Send + 'static;

    /// A Send has completed that was signaled, or has failed. Its Writes are ended.
    fn sent(this: ArcBorrow<'_, Self>, sent: Sent, completion: Completion<'_>);

    /// A part of a chain has completed.
    fn part_done(this: ArcBorrow<'_, Self>, completion: Completion<'_>);

    /// Reads have completed.
    fn read(this: ArcBorrow<'_, Self>, done: ReadsDone<Self>, completion: Completion<'_>);
}

/// The Reads of the owner of a Send Queue.
pub(crate) type ReadsOf<O> =
    KBox<ReadWrites<<O as SendQueueOwner>::Held, <O as SendQueueOwner>::Reading>>;

/// The Writes of the owner of a Send Queue.
pub(crate) type WritesOf<O> =
    ReadWrites<<O as SendQueueOwner>::Held, <O as SendQueueOwner>::Writing>;

/// How a message is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    /// The length of the message.
    pub(crate) len: usize,
    /// The R_key of the peer's that the Send invalidates.
    pub(crate) invalidate: Option<u32>,
    /// Set if it is signaled in any case.
    pub(crate) signal: bool,
}

/// A Send that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedSend {
    /// Its place, see [`SendQueue::has_retired`].
    pub(crate) place: u64,
    /// Set if it is signaled.
    pub(crate) signaled: bool,
}

/// What is posted to a QP, while the queue is open.
pub(crate) struct OpenQueue<O: SendQueueOwner> {
    /// The QP.
    qp: QueuePairUser,
    /// The completion entry of all parts of chains that are posted in parts.
    part: Posting<Part<O>>,
    /// That of all registrations.
    registration: Posting<Registration<O>>,
    /// The places for Reads that are posted.
    reads: KVVec<Posting<ReadSlot<O>>>,
    /// Those that are not in use, by index. With room for all of them.
    free_reads: KVVec<u32>,
}

impl<O: SendQueueOwner> OpenQueue<O> {
    /// Makes what is needed to post to a QP, for at most `reads` sets of Reads at a time. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the QP has as many postings as there may be, `ENOMEM`.
    pub(crate) fn new(qp: QueuePairUser, owner: &Arc<O>, reads: u32) -> Result<Self> {
        let places = usize::try_from(reads)?;
        let part = qp.keep(owner, Part::new())?;
        let registration = qp.keep(owner, Registration::new())?;
        let mut open = Self {
            qp,
            part,
            registration,
            reads: KVVec::with_capacity(places, GFP_KERNEL)?,
            free_reads: KVVec::with_capacity(places, GFP_KERNEL)?,
        };
        for index in 0..reads {
            let slot = open.qp.keep(owner, ReadSlot::new(index))?;
            open.reads.push(slot, GFP_KERNEL)?;
            open.free_reads.push(index, GFP_KERNEL)?;
        }
        Ok(open)
    }
}

/// Returns the number of postings that are made for a queue besides its buffers, if there are
/// `reads` places for Reads.
pub(crate) const fn postings(reads: u32) -> u32 {
    reads.saturating_add(2)
}

/// A Send Queue that was closed: what may still be under way.
pub(crate) struct ClosedQueue<O: SendQueueOwner> {
    /// All places for Reads.
    reads: KVVec<Posting<ReadSlot<O>>>,
    /// All Send buffers.
    slots: KVVec<Posting<SendSlot<O>>>,
}

impl<O: SendQueueOwner> ClosedQueue<O> {
    /// Ends the Reads and Writes of which no completion has come.
    pub(crate) fn reclaim(self, drained: &Drained<'_>) {
        for slot in self.slots.iter().filter(|slot| drained.is_of(slot)) {
            slot.reclaim();
        }
        for slot in self.reads.iter().filter(|slot| drained.is_of(slot)) {
            slot.reclaim();
        }
    }
}

/// The Send Queue of a QP. No allocation after `new`.
pub(crate) struct SendQueue<O: SendQueueOwner> {
    /// The QP, while the queue is open.
    open: Option<OpenQueue<O>>,
    /// The posted work requests.
    ring: Ring<SendMemory<O>>,
    /// All Send buffers. With room for as many as there may be.
    slots: KVVec<Posting<SendSlot<O>>>,
    /// The number of Send buffers.
    buffers: u32,
    /// The rest of a chain that is being posted in parts.
    rest: Option<Rest<O>>,
}

impl<O: SendQueueOwner> SendQueue<O> {
    /// Makes a queue of `depth` work requests, with at most `buffers` Send buffers. It is closed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(depth: u32, buffers: u32) -> Result<Self> {
        Ok(Self {
            open: None,
            ring: Ring::new(depth)?,
            slots: KVVec::with_capacity(usize::try_from(buffers)?, GFP_KERNEL)?,
            buffers: 0,
            rest: None,
        })
    }

    /// Opens it.
    pub(crate) fn open(&mut self, open: OpenQueue<O>) {
        self.open = Some(open);
    }

    /// Closes it: nothing is posted any more. [`None`] if it was not open.
    pub(crate) fn close(&mut self) -> Option<ClosedQueue<O>> {
        let OpenQueue { reads, .. } = self.open.take()?;
        self.rest = None;
        Some(ClosedQueue {
            reads,
            slots: core::mem::replace(&mut self.slots, KVVec::new()),
        })
    }

    /// Takes note of a new buffer.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the queue is closed, `ENOSPC` if there are as many as there may be.
    pub(crate) fn add(&mut self, memory: &SendMemory<O>) -> Result {
        self.open.as_ref().ok_or(ENOTCONN)?;
        self.slots
            .push_within_capacity(memory.slot().clone())
            .map_err(|_| ENOSPC)?;
        self.buffers += 1;
        Ok(())
    }

    /// Returns the number of Send buffers that there are.
    pub(crate) fn buffers(&self) -> u32 {
        self.buffers
    }

    /// Returns the QP, if the queue is open.
    pub(crate) fn qp(&self) -> Option<&QueuePairUser> {
        Some(&self.open.as_ref()?.qp)
    }

    /// Returns whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the work requests that are posted, and those that room is kept for.
    pub(crate) fn used(&self) -> (u32, u32) {
        self.ring.used()
    }

    /// Returns the number of sets of Reads that are under way.
    pub(crate) fn reads(&self) -> usize {
        let open = self.open.as_ref();
        open.map_or(0, |open| {
            open.reads.len().saturating_sub(open.free_reads.len())
        })
    }

    /// Returns whether a chain of `requests` may be posted as a whole, with `fences` to follow some
    /// day.
    pub(crate) fn has_room(&self, requests: u32, fences: u32) -> bool {
        self.rest.is_none() && self.ring.has_room(requests, fences)
    }

    /// Returns whether a chain of `requests` may be posted as a whole, or begun if it is too long
    /// for that.
    pub(crate) fn may_begin(&self, requests: u32) -> bool {
        let in_parts = || !self.ring.fits(requests) && self.ring.part(requests) > 0;
        self.has_room(requests, 0) || (self.rest.is_none() && in_parts())
    }

    /// Returns whether a chain of `requests` fits sooner or later, if it is given the time.
    pub(crate) fn fits(&self, requests: u32) -> bool {
        self.ring.fits(requests)
    }

    /// Returns whether everything up to and including the Send at a place was retired.
    pub(crate) fn has_retired(&self, place: u64) -> bool {
        self.ring.has_retired(place)
    }

    /// Gives the room of `fences` fences back, which the peer made needless.
    pub(crate) fn unreserve(&mut self, fences: u32) {
        self.ring.unreserve(fences);
    }

    /// Retires everything up to and including what was posted at `place`, and calls `free` for each
    /// Send buffer that comes free. Then posts of a chain that is begun what there is room for.
    ///
    /// # Errors
    ///
    /// `Refused`: then the connection must end.
    pub(crate) fn retire(
        &mut self,
        place: u64,
        free: impl FnMut(SendMemory<O>),
    ) -> Result<(), PostError> {
        self.ring.retire(place, free);
        self.go_on()
    }

    /// As [`Self::retire`], when a part of a chain has completed.
    ///
    /// # Errors
    ///
    /// As for [`Self::retire`].
    pub(crate) fn retire_part(&mut self, free: impl FnMut(SendMemory<O>)) -> Result<(), PostError> {
        self.ring.retire_part(free);
        self.go_on()
    }

    /// Posts the registrations of `regions` and then a Send, as one chain, for which there is room.
    /// Room is kept for the fences of the regions.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    pub(crate) fn post_send<'a>(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        regions: impl Iterator<Item = &'a mut Region<O>>,
    ) -> Result<PostedSend, PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let mut request = SendRequest::new(&open.qp, &memory, send)?;
        let mut first = request.link();
        let mut fences = 0_u32;
        for region in regions {
            first = region
                .register_wr(&open.qp, &open.registration, first)
                .ok_or(PostError::Refused)?;
            fences = fences.saturating_add(1);
        }
        let requests = fences.saturating_add(1);
        let signaled = send.signal || self.ring.must_signal(requests, self.buffers);
        if signaled {
            request.signal();
        }
        // Before the post, so that no completion can come first.
        let place = self.ring.next();
        memory.slot().posted(place, place);
        self.ring
            .posted(requests, signaled, Some(memory))
            .ok_or(PostError::Refused)?;
        // SAFETY: The chain has just been linked, and is valid for the call. The memory of the Send
        // and all completion entries are kept by the QP, and the regions are of its PD.
        unsafe { self.post(first) }?;
        self.ring.reserve(fences);
        Ok(PostedSend { place, signaled })
    }

    /// Posts a Send and before it `writes`, or begins to, if they do not fit as a whole. Returns
    /// what trace events call the Send.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`. The Writes are ended when the queue is drained.
    pub(crate) fn post_writes(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        writes: Option<WritesOf<O>>,
    ) -> Result<u64, PostError> {
        let total = requests(writes.as_ref()).saturating_add(1);
        if let Some(writes) = writes {
            return if self.ring.has_room(total, 0) {
                self.post_with_writes(memory, send, writes)
            } else {
                self.begin_writes(memory, send, writes)
            };
        }
        let posted = self.post_send(memory, send, core::iter::empty())?;
        Ok(posted.place)
    }

    /// Posts `writes` and behind them a Send, as one chain, for which there is room.
    fn post_with_writes(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        mut writes: WritesOf<O>,
    ) -> Result<u64, PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let total = requests(Some(&writes)).saturating_add(1);
        let mut request = SendRequest::new(&open.qp, &memory, send)?;
        request.signal();
        let first = writes
            .link(&open.qp, ptr::null_mut(), request.link())
            .ok_or(PostError::Refused)?;
        let place = self.ring.next();
        memory.slot().posted(place, place);
        // Whatever happens, they are released by the completion, or at the end of the queue.
        memory.slot().carry(writes)?;
        self.ring
            .posted(total, true, Some(memory))
            .ok_or(PostError::Refused)?;
        // SAFETY: The chain has just been linked, and is valid for the call. The slot keeps the
        // Writes, which do not move, until the Send behind them has completed, or the queue was
        // drained; the QP keeps the rest.
        unsafe { self.post(first) }.map(|()| place)
    }

    /// Posts the invalidation of `regions` as one chain, for which room was kept. When it is done,
    /// [`RegionOwner::invalidated`] is called with `tag`, once.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    pub(crate) fn post_fence<'a>(
        &mut self,
        regions: impl Iterator<Item = &'a mut Region<O>>,
        tag: u32,
    ) -> Result<(), PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let place = self.ring.next();
        let mut fences = 0_u32;
        // Built from the end: the first region's request is the chain's last, and the only one
        // signaled. Work requests are done in order, so with it all are.
        let mut first = ptr::null_mut::<sys::ib_send_wr>();
        for region in regions {
            let tag = first.is_null().then_some(tag);
            first = region
                .fence_wr(&open.qp, first, place, tag)
                .ok_or(PostError::Refused)?;
            fences = fences.saturating_add(1);
        }
        if fences == 0 {
            return Err(PostError::Refused);
        }
        self.ring
            .posted(fences, true, None)
            .ok_or(PostError::Refused)?;
        self.ring.unreserve(fences);
        // SAFETY: The chain has just been linked, and is valid for the call. The completion entries
        // are kept by the QP.
        unsafe { self.post(first) }
    }

    /// Posts a chain that was entered into the ring last.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    ///
    /// # Safety
    ///
    /// The chain is valid for the call, and for this QP. What completes later than that, or is used
    /// by the device, stays until it has, or the QP is gone.
    unsafe fn post(&mut self, first: *const sys::ib_send_wr) -> Result<(), PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let mut refused_at: *const sys::ib_send_wr = ptr::null();
        // SAFETY: The user keeps the QP; the caller guarantees the rest.
        let status = unsafe { sys::ib_post_send(open.qp.as_ptr(), first, &raw mut refused_at) };
        if status != 0 {
            self.ring.unpost();
            return Err(PostError::Refused);
        }
        Ok(())
    }
}

/// Returns the number of work requests of Reads or Writes.
fn requests<K, M>(operations: Option<&ReadWrites<K, M>>) -> u32 {
    operations.map_or(0, |operations| operations.load().requests)
}
