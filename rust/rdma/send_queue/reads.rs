// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads: how they are posted, and end.

use super::{
    owner::SendQueueOwner,
    read_slot::ReadsDone,
    requests,
    rest::{
        Last,
        Rest, //
    },
    types::{
        PostError,
        ReadsOf, //
    },
    SendQueue, //
};
use crate::kext::prelude::*;
use core::ptr;

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
        let Some(slot) = slot else {
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
        // From here on the device may work on what it took, so the slot keeps it until the end of
        // the queue.
        if self.ring.has_room(total, 0) {
            let place = self.ring.posted(total, true, None);
            slot.posted(place.ok_or((PostError::Refused, None))?);
            // SAFETY: The chain has just been linked, and is signaled to the slot, which keeps the
            // Reads until their completion has come or none will.
            return unsafe { self.post(first.as_ptr()) }.map_err(|error| (error, None));
        }
        // SAFETY: The Reads have just been linked, and there are `total` work requests in them; the
        // slot keeps them until their completion has come or none will.
        self.rest = Some(unsafe { Rest::new(first, total, Last::Read(slot.clone())) });
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
