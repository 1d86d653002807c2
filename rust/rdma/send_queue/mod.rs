// SPDX-License-Identifier: GPL-2.0

//! The Send Queue of a QP: what is posted to it, how it comes back, and how much room is left; and
//! the RDMA Reads that wait for room.
//!
//! # Who owns what, and what ends it
//!
//! - A [`SendQueue`] belongs to the code that posts, which protects it with a lock. While it is
//!   open it keeps the QP from being destroyed. Nothing is freed or unmapped by it: what comes back
//!   is for the caller, to be dropped without the lock.
//! - A Send buffer that is posted is in the queue; it comes back when it is [retired], which is
//!   when a later work request has completed, since only some are signaled.
//! - Writes belong to the buffer of the Send behind them from when the first was posted, until that
//!   Send has completed.
//! - Reads belong to the queue from when they are posted, or wait: first in the list of those that
//!   wait, then, with their last work request, in the ring. They come back when they have
//!   completed.
//! - What has not completed when the queue was closed and drained is unmapped by
//!   [`ClosedQueue::reclaim`]. The memory stays until the QP is destroyed: siw loses Reads that
//!   were under way behind one that the end of the connection cut off in the middle. So an
//!   [`OpenQueue`] hands over to the entry [`ReadPart`], which the QP keeps, whatever becomes of
//!   it.
//! - Completion entries, and the memory of Send buffers, are kept by the QP, see
//!   [`posting`](crate::rdma::posting).
//!
//! # Chains
//!
//! A chain that is too long for the queue is posted in parts, as there comes room: the Writes of a
//! message, and then its Send; or Reads. Each part is signaled, and its completion has the next one
//! posted. Anything else may be posted between two parts: work requests are done in the order of
//! posting, whatever chain they are of.
//!
//! [retired]: SendQueue::retire

mod chain;
mod memory;
mod owner;
mod post;
mod reads;
mod ring;
mod types;

pub(crate) use self::{
    chain::WaitingReads,
    memory::SendMemory,
    owner::SendQueueOwner,
    reads::Unread,
    types::{
        PostError,
        QueueSizes,
        SendOptions,
        WritesOf, //
    }, //
};

use self::{
    chain::{
        Part,
        ReadPart, //
    },
    ring::Ring,
    types::ReadsOf, //
};
use crate::kext::prelude::*;
use crate::{
    kext::fifo::Fifo,
    rdma::{
        cm::{
            Drained,
            QueuePairUser, //
        },
        posting::Posting,
        region::Registration, //
    }, //
};
use core::mem;

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
    /// The completion entry of all parts of Writes.
    part: Posting<Part<O>>,
    /// That of all parts of Reads.
    read: Posting<ReadPart<O>>,
    /// That of all registrations.
    registration: Posting<Registration<O>>,
    /// The posted work requests.
    ring: Ring<SendMemory<O>, ReadsOf<O>>,
    /// The Reads that are not posted yet, the oldest first.
    waiting: Fifo<WaitingReads<O>>,
    /// Set if the device has refused something. Nothing is posted any more, and no Reads are taken
    /// for done: the oldest ones may be those that were refused.
    refused: bool,
}

impl<O: SendQueueOwner> OpenQueue<O> {
    /// Makes what is needed to post to a QP. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the QP has as many postings as there may be, `ENOMEM`.
    pub(crate) fn new(qp: QueuePairUser, owner: &Arc<O>, sizes: &QueueSizes) -> Result<Self> {
        Ok(Self {
            part: qp.keep(owner, Part::new())?,
            read: qp.keep(owner, ReadPart::new())?,
            registration: qp.keep(owner, Registration::new())?,
            ring: Ring::new(sizes.depth, sizes.kept, sizes.reads)?,
            waiting: Fifo::new(),
            refused: false,
            qp,
        })
    }
}

impl<O: SendQueueOwner> Drop for OpenQueue<O> {
    /// Leaves what may not have completed to the entry that the QP keeps.
    fn drop(&mut self) {
        let ring = mem::replace(&mut self.ring, Ring::none());
        let waiting = mem::replace(&mut self.waiting, Fifo::new());
        // It has none: a queue ends once.
        let _ = self.read.leftovers.put((ring, waiting));
    }
}

/// The number of postings that are made for a queue in addition to its buffers.
pub(crate) const POSTINGS: u32 = 3;

/// A Send Queue that was closed: what may still be under way.
pub(crate) struct ClosedQueue<O: SendQueueOwner>(OpenQueue<O>);

impl<O: SendQueueOwner> ClosedQueue<O> {
    /// Ends the Reads and Writes of which no completion has come.
    pub(crate) fn reclaim(mut self, drained: &Drained<'_>) {
        let open = &mut self.0;
        if !drained.is_of(&open.part) {
            return;
        }
        let buffers = open.ring.buffers();
        buffers.for_each(|memory| memory.reclaim(drained));
        open.ring.reads().for_each(|reads| reads.unmap());
        let waiting = open.waiting.iter_mut();
        waiting.for_each(|waiting| waiting.reads.unmap());
    }
}

/// The Send Queue of a QP. Nothing is allocated while it is open.
pub(crate) struct SendQueue<O: SendQueueOwner> {
    /// The QP, while the queue is open.
    open: Option<OpenQueue<O>>,
    /// The number of Send buffers.
    buffers: u32,
}

impl<O: SendQueueOwner> SendQueue<O> {
    /// A queue that is closed.
    pub(crate) const fn new() -> Self {
        Self {
            open: None,
            buffers: 0,
        }
    }

    /// Opens it.
    pub(crate) fn open(&mut self, open: OpenQueue<O>) {
        self.open = Some(open);
    }

    /// Closes it: nothing is posted any more. [`None`] if it was not open.
    pub(crate) fn close(&mut self) -> Option<ClosedQueue<O>> {
        self.open.take().map(ClosedQueue)
    }

    /// Takes note of a new buffer.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the queue is closed.
    pub(crate) fn add_buffer(&mut self) -> Result {
        self.open.as_ref().ok_or(ENOTCONN)?;
        self.buffers += 1;
        Ok(())
    }

    /// Forgets a buffer, which goes with [`SendMemory::release`] then.
    pub(crate) fn remove_buffer(&mut self) {
        self.buffers = self.buffers.saturating_sub(1);
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

    /// Returns what posts.
    ///
    /// # Errors
    ///
    /// `Closed`, also if the device has refused something.
    fn open_mut(&mut self) -> Result<&mut OpenQueue<O>, PostError> {
        let open = self.open.as_mut().filter(|open| !open.refused);
        open.ok_or(PostError::Closed)
    }

    /// Returns the work requests that are posted, and those that room is kept for.
    pub(crate) fn used(&self) -> (u32, u32) {
        self.open.as_ref().map_or((0, 0), |open| open.ring.used())
    }

    /// Returns whether a chain of `requests` that waits for no other may be posted as a whole, with
    /// `fences` to follow later.
    pub(crate) fn has_room(&self, requests: u32, fences: u32) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.ring.has_room(requests, fences))
    }

    /// Returns the room for Replies, in work requests.
    pub(crate) fn room(&self) -> u32 {
        self.open.as_ref().map_or(0, |open| open.ring.room())
    }

    /// Returns how much room a Reply of `requests` waits for. If it is longer it is posted in
    /// parts.
    pub(crate) fn wanted(&self, requests: u32) -> u32 {
        let open = self.open.as_ref();
        open.map_or(0, |open| open.ring.wanted(requests))
    }

    /// Returns whether everything up to and including the Send at a place was retired.
    pub(crate) fn has_retired(&self, place: u64) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.ring.has_retired(place))
    }

    /// Gives the room of `fences` fences back, which the peer made needless.
    pub(crate) fn unreserve(&mut self, fences: u32) {
        if let Some(open) = &mut self.open {
            open.ring.unreserve(fences);
        }
    }

    /// Retires everything up to and including what was posted at `place`, and calls `free` for each
    /// Send buffer that comes free.
    pub(crate) fn retire(&mut self, place: u64, free: impl FnMut(SendMemory<O>)) {
        if let Some(open) = &mut self.open {
            open.ring.retire(place, free);
        }
    }

    /// As [`Self::retire`], when a part of Writes has completed.
    pub(crate) fn retire_part(&mut self, free: impl FnMut(SendMemory<O>)) {
        if let Some(open) = &mut self.open {
            open.ring.retire_part(free);
        }
    }

    /// As [`Self::retire`], when a part of Reads has completed. Returns them if it was the last.
    pub(crate) fn retire_reads(&mut self, free: impl FnMut(SendMemory<O>)) -> Option<ReadsOf<O>> {
        self.open_mut().ok()?.ring.retire_reads(free)
    }
}
