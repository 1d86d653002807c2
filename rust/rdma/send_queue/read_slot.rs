// SPDX-License-Identifier: GPL-2.0

//! A place for RDMA Reads that are posted.

use super::{
    owner::SendQueueOwner,
    types::ReadsOf, //
};
use crate::kext::prelude::*;
use crate::{
    kext::handover::Handover,
    rdma::{
        completion::Completion,
        posting::{
            Completes,
            Posting, //
        }, //
    }, //
};

/// A place for Reads that are posted. It stays in memory as long as the QP: a device may complete
/// late, or never.
pub(super) struct ReadSlot<O: SendQueueOwner> {
    /// Its place among the slots.
    pub(super) index: u32,
    /// Where in the Send Queue the last Read was posted.
    place: Atomic<u64>,
    /// The posted Reads. Taken out by the handler of their completion; or, if none has come, by the
    /// end of the queue, after which a late one finds nothing to be ended.
    pub(super) reads: Handover<ReadsOf<O>>,
}

impl<O: SendQueueOwner> ReadSlot<O> {
    /// A place without Reads.
    pub(super) const fn new(index: u32) -> Self {
        Self {
            index,
            place: Atomic::new(0),
            reads: Handover::new(),
        }
    }

    /// The last of them is about to be posted.
    pub(super) fn posted(&self, place: u64) {
        self.place.store(place, Relaxed);
    }

    /// Ends Reads of which no completion has come, in a queue that was drained. What keeps their
    /// memory stays until the QP is destroyed, since a device may still write to it.
    pub(super) fn reclaim(&self) {
        if let Some(mut reads) = self.reads.take() {
            reads.unmap();
            // It has none now.
            let _ = self.reads.put(reads);
        }
    }
}

impl<O: SendQueueOwner> Completes for ReadSlot<O> {
    type Owner = O;

    fn completed(this: Posting<Self>, owner: ArcBorrow<'_, O>, completion: Completion<'_>) {
        // If there are none the device completes what was not posted, or is late: they were given
        // up at the end of the queue.
        if let Some(reads) = this.reads.take() {
            let done = ReadsDone {
                place: this.place.load(Relaxed),
                reads,
                slot: this,
            };
            O::read(owner, done, completion);
        }
    }

    fn ended(&self) {
        drop(self.reads.take());
    }
}

/// Reads that have completed, and are to be given back to the queue.
pub(crate) struct ReadsDone<O: SendQueueOwner> {
    /// Where the last of them was posted.
    pub(super) place: u64,
    /// The Reads.
    pub(super) reads: ReadsOf<O>,
    /// Their place.
    pub(super) slot: Posting<ReadSlot<O>>,
}
