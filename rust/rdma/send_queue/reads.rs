// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads: how they are posted, and wait.

use super::{
    chain::{
        ToCome,
        WaitingReads, //
    },
    owner::SendQueueOwner,
    types::{
        PostError,
        ReadsOf, //
    },
    OpenQueue,
    SendQueue, //
};
use crate::{
    kext::fifo::Fifo,
    sys, //
};
use core::{
    mem,
    ptr, //
};
use kernel::prelude::*;

/// Why Reads were not posted, and the Reads, unless the queue has them.
pub(crate) type Unread<O> = (PostError, Option<ReadsOf<O>>);

impl<O: SendQueueOwner> OpenQueue<O> {
    /// Posts a part of Reads, with which `reads` complete if it is the last. These come back if
    /// nothing was posted.
    ///
    /// # Safety
    ///
    /// `first` is a chain of `count` work requests of Reads of which the last one is signaled to
    /// the entry of Reads. There is room for them. The Reads are in this queue until it has ended,
    /// or all of them have completed.
    unsafe fn post_part(
        &mut self,
        first: *const sys::ib_send_wr,
        count: u32,
        reads: Option<ReadsOf<O>>,
    ) -> Result<(), Unread<O>> {
        let noted = self.ring.posted_reads(count, reads);
        noted.map_err(|reads| (PostError::Refused, reads))?;
        // SAFETY: The caller guarantees it.
        unsafe { self.post(first) }.map_err(|error| (error, None))
    }
}

impl<O: SendQueueOwner> SendQueue<O> {
    /// Posts Reads, or leaves them to be posted as there comes room: with room left for `wanted`
    /// work requests of a message that waits, and behind others. Returns whether all are posted.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. It is `Full` if they have to wait and there is no place for them, see
    /// [`Self::make_places`]. Unless they come back they are kept until the end of the queue.
    pub(crate) fn post_reads(
        &mut self,
        mut reads: ReadsOf<O>,
        wanted: u32,
    ) -> Result<bool, Unread<O>> {
        let Ok(open) = self.open_mut() else {
            return Err((PostError::Closed, Some(reads)));
        };
        let total = reads.load().requests;
        let may = open.waiting.is_empty() && open.ring.reads_part(total, wanted) == total;
        if !may && open.waiting.len() == open.waiting.capacity() {
            return Err((PostError::Full, Some(reads)));
        }
        let first = reads.link(&open.qp, open.read.cqe(), ptr::null_mut());
        let Some(first) = first.filter(|first| !first.is_null()) else {
            return Err((PostError::Refused, Some(reads)));
        };
        // Moving the box does not move the chain, which is in the contexts of the operations.
        if may {
            // SAFETY: The chain was just linked. The ring has the Reads from now on, until they
            // have completed, or with the queue.
            return unsafe { open.post_part(first, total, Some(reads)) }.map(|()| true);
        }
        // SAFETY: The chain was just linked, and is in the Reads, which stay with it.
        let to_come = unsafe { ToCome::new(first, total) };
        if let Err(WaitingReads { reads, .. }) = open.waiting.push(WaitingReads { reads, to_come })
        {
            return Err((PostError::Full, Some(reads)));
        }
        self.go_on(wanted).map_err(|error| (error, None))?;
        Ok(false)
    }

    /// Posts of the Reads that wait what there is room for, if that for `wanted` work requests is
    /// left.
    ///
    /// # Errors
    ///
    /// `Refused`: then the connection must end. A queue that is closed has nothing to go on with.
    #[inline]
    pub(crate) fn go_on(&mut self, wanted: u32) -> Result<(), PostError> {
        // Nearly all are posted at once.
        match self.open_mut() {
            Ok(open) if !open.waiting.is_empty() => open.post_waiting(wanted),
            _ => Ok(()),
        }
    }

    /// Makes place for Reads that wait, if there is none yet: takes that of `places`, which is
    /// empty.
    pub(crate) fn make_places(&mut self, places: &mut Fifo<WaitingReads<O>>) {
        if let Ok(open) = self.open_mut() {
            if open.waiting.capacity() == 0 {
                mem::swap(&mut open.waiting, places);
            }
        }
    }

    /// Returns the number of Calls whose Reads wait, all or some of them.
    pub(crate) fn waiting_reads(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.waiting.len())
    }
}

impl<O: SendQueueOwner> OpenQueue<O> {
    /// As [`SendQueue::go_on`], if any wait.
    #[inline(never)]
    fn post_waiting(&mut self, wanted: u32) -> Result<(), PostError> {
        while let Some(oldest) = self.waiting.oldest_mut() {
            let count = self.ring.reads_part(oldest.to_come.left(), wanted);
            if count == 0 {
                break;
            }
            let first = oldest.to_come.cut(count, self.read.cqe());
            let first = first.ok_or(PostError::Refused)?;
            let last = oldest.to_come.left() == 0;
            let reads = if last { self.waiting.pop() } else { None };
            let reads = reads.map(|WaitingReads { reads, .. }| reads);
            // SAFETY: The part was just cut off. The Reads are first in the list, or in the ring
            // with this part.
            unsafe { self.post_part(first, count, reads) }.map_err(|(error, reads)| {
                // There is room, so none come back. Others of them may be posted.
                mem::forget(reads);
                error
            })?;
        }
        Ok(())
    }
}
