// SPDX-License-Identifier: GPL-2.0

//! The Send Queue of a QP: what is posted to it, how it comes back, and how much room is left.
//!
//! # Who owns what, and what ends it
//!
//! - A [`SendQueue`] belongs to the code that posts, which protects it with a lock. While it is
//!   open it keeps the QP from being destroyed.
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
mod owner;
mod parts;
mod post;
mod read_slot;
mod reads;
mod rest;
mod ring;
mod types;

pub(crate) use self::{
    memory::SendMemory,
    owner::SendQueueOwner,
    read_slot::ReadsDone,
    types::{
        PostError,
        SendOptions,
        Sent, //
    }, //
};

use self::{
    memory::SendSlot,
    read_slot::ReadSlot,
    rest::{
        Part,
        Rest, //
    },
    ring::Ring, //
};
use crate::kext::prelude::*;
use crate::rdma::{
    cm::{
        Drained,
        QueuePairUser, //
    },
    posting::Posting,
    region::Registration,
    rw::ReadWrites, //
};

/// A Send that was posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PostedSend {
    /// Its place, see [`SendQueue::has_retired`].
    pub(crate) place: u64,
    /// Set if it is signaled.
    pub(crate) signaled: bool,
}

/// The part of a queue that posts, while that is open.
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
    /// A list that is of no use any more. It may be memory of `vmalloc`, so it must not be freed
    /// under the lock of the queue.
    _free_reads: KVVec<u32>,
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
        let OpenQueue {
            reads, free_reads, ..
        } = self.open.take()?;
        self.rest = None;
        Some(ClosedQueue {
            reads,
            slots: core::mem::replace(&mut self.slots, KVVec::new()),
            _free_reads: free_reads,
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

    /// Forgets a buffer, which goes with [`SendMemory::release`] then.
    pub(crate) fn remove(&mut self, memory: &SendMemory<O>) {
        let place = memory.slot().place();
        let found = self.slots.iter().position(|slot| slot.place() == place);
        if found.is_some_and(|index| self.slots.remove(index).is_ok()) {
            self.buffers -= 1;
        }
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
}

/// Returns the number of work requests of Reads or Writes.
fn requests<K, M>(operations: Option<&ReadWrites<K, M>>) -> u32 {
    operations.map_or(0, |operations| operations.load().requests)
}
