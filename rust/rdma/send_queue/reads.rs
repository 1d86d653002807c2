// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads that are posted.

use super::{
    parts::{
        Last,
        Rest, //
    },
    requests,
    PostError,
    ReadsOf,
    SendQueue,
    SendQueueOwner, //
};
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
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        ArcBorrow, //
    }, //
};

/// A place for Reads that are posted. It stays in memory as long as the QP: a device may complete
/// late, or never.
pub(super) struct ReadSlot<O: SendQueueOwner> {
    /// Its place among the slots.
    index: u32,
    /// Where in the Send Queue the last Read was posted.
    place: Atomic<u64>,
    /// The posted Reads. Taken out by the handler of their completion; or, if none has come, by the
    /// end of the queue, after which a late one finds nothing to be ended.
    reads: Handover<ReadsOf<O>>,
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

/// Reads that have completed, and are to be given to [`SendQueue::reads_done`].
pub(crate) struct ReadsDone<O: SendQueueOwner> {
    /// Where the last of them was posted.
    place: u64,
    /// The Reads.
    reads: ReadsOf<O>,
    /// Their place.
    slot: Posting<ReadSlot<O>>,
}

impl<O: SendQueueOwner> SendQueue<O> {
    /// Posts Reads, or begins to.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, or too many Reads are under way, these come back;
    /// else they are ended at the latest when the queue was drained.
    pub(crate) fn post_reads(
        &mut self,
        mut reads: ReadsOf<O>,
    ) -> Result<(), (PostError, Option<ReadsOf<O>>)> {
        let total = requests(Some(&*reads));
        let may = self.may_begin(total);
        let Some(open) = self.open.as_mut() else {
            return Err((PostError::Closed, Some(reads)));
        };
        let index = if may { open.free_reads.pop() } else { None };
        let slot = index.and_then(|index| open.reads.get(index as usize));
        let Some(slot) = slot.cloned() else {
            return Err((PostError::Full, Some(reads)));
        };
        let linked = reads.link(&open.qp, slot.cqe(), ptr::null_mut());
        let first = linked.and_then(NonNull::new);
        // The completion may come before the post returns. Moving the box does not move the chain,
        // which is in the contexts of the operations.
        if let Err(reads) = slot.reads.put(reads) {
            // It has none, since it was free.
            return Err((PostError::Refused, Some(reads)));
        }
        let Some(first) = first else {
            return Err((PostError::Refused, None));
        };
        // SAFETY: The Reads have just been linked, and there are so many work requests in them; the
        // slot keeps them until their completion has come or none will.
        self.rest = Some(unsafe { Rest::new(first, total, Last::Read(slot)) });
        // The device may work on what it took, so the slot keeps it until the end of the queue.
        self.go_on().map_err(|error| (error, None))
    }

    /// Takes note of Reads that have completed. Returns them, and where they were posted, for
    /// [`Self::retire`].
    pub(crate) fn reads_done(&mut self, done: ReadsDone<O>) -> (ReadsOf<O>, u64) {
        if let Some(open) = self.open.as_mut() {
            // There is room for all.
            let _ = open.free_reads.push_within_capacity(done.slot.index);
        }
        (done.reads, done.place)
    }
}
