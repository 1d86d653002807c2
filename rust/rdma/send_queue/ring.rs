// SPDX-License-Identifier: GPL-2.0

//! Accounting of a Send Queue: what is posted, what comes free with which completion, and how much
//! room is left for what.
//!
//! Only some work requests are signaled. What was posted is kept in order, and the completion of a
//! signaled work request retires everything up to it. Reads are apart: their completions come in
//! order too, but over iWARP later Sends may complete before them.
//!
//! A chain that is posted in parts has an entry for each part, since others may be posted between
//! them. Each part is signaled. All parts of Reads have one completion entry, and all of Writes
//! have one: a completion is that of the oldest part.

use crate::kext::fifo::Fifo;
use kernel::prelude::*;

/// One chain of work requests, or a part of one.
struct Posted<B> {
    /// Its place: larger than that of what was posted before it.
    sequence: u64,
    /// The number of its work requests.
    requests: u32,
    /// The Send buffer that comes free with it.
    buffer: Option<B>,
    /// Set if it is a part of Writes, signaled on its own.
    part: bool,
}

/// Reads that are posted, or a part of them.
struct PostedReads<R> {
    /// As in [`Posted`].
    sequence: u64,
    /// The same.
    requests: u32,
    /// With the last part the Reads come back.
    reads: Option<R>,
}

/// A fixed-size queue of what is posted, with Send buffers `B` and Reads `R`. No allocation after
/// `new`.
pub(super) struct Ring<B, R> {
    /// The chains that are posted, the oldest first; `depth` places, since each has a work request
    /// at least.
    posted: Fifo<Posted<B>>,
    /// The place of what is posted next.
    next_sequence: u64,
    /// The room in work requests.
    depth: u32,
    /// The work requests that are posted.
    used: u32,
    /// Those of them that were posted behind the last signaled one.
    unsignaled: u32,
    /// Room kept for the fences of what is registered, so that a fence never finds the queue full.
    reserved: u32,
    /// Room kept for what waits for nobody: messages of the session's own, and Calls.
    kept: u32,
    /// The Reads that are posted, the oldest first.
    reads: Fifo<PostedReads<R>>,
    /// Their work requests.
    used_reads: u32,
    /// The most of them.
    most_reads: u32,
}

impl<B, R> Ring<B, R> {
    /// A queue for `depth` work requests, of which `kept` are not for Replies and Reads, unless
    /// they are more than a quarter. Reads get half of the rest at most, and no more than `reads`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(depth: u32, kept: u32, reads: u32) -> Result<Self> {
        let kept = kept.min(depth / 4);
        let most_reads = reads.min((depth - kept) / 2).max(1);
        Ok(Self {
            posted: Fifo::with_capacity(usize::try_from(depth)?)?,
            depth,
            kept,
            // Each has a work request at least, too.
            reads: Fifo::with_capacity(usize::try_from(most_reads)?)?,
            most_reads,
            ..Self::none()
        })
    }

    /// A queue without room.
    pub(super) const fn none() -> Self {
        Self {
            posted: Fifo::new(),
            next_sequence: 1,
            depth: 0,
            used: 0,
            unsignaled: 0,
            reserved: 0,
            kept: 0,
            reads: Fifo::new(),
            used_reads: 0,
            most_reads: 0,
        }
    }

    /// The work requests that are posted, and those that room is kept for.
    pub(super) fn used(&self) -> (u32, u32) {
        (self.used, self.reserved)
    }

    /// Returns whether `requests` more fit, with `fences` to follow some day, of what waits for
    /// nobody.
    pub(super) fn has_room(&self, requests: u32, fences: u32) -> bool {
        let wanted = self
            .used
            .saturating_add(self.reserved)
            .saturating_add(requests)
            .saturating_add(fences);
        wanted <= self.depth
    }

    /// Returns the room for Replies and Reads.
    pub(super) fn room(&self) -> u32 {
        let taken = self.used.saturating_add(self.reserved);
        self.depth.saturating_sub(taken.saturating_add(self.kept))
    }

    /// Returns how much room a message of `requests` waits for: all of it, up to half of the queue.
    /// One that is longer is posted in parts. Up to a quarter of the queue may be taken by what is
    /// not signaled, and comes free with a later completion only, and another quarter may be kept:
    /// a message that waited for more than the rest might wait forever.
    pub(super) fn wanted(&self, requests: u32) -> u32 {
        requests.min(self.depth / 2)
    }

    /// Returns how many of `left` work requests of a message may be posted now as a part of it. Not
    /// too few, since each part has a completion: a quarter of the queue comes free sooner or
    /// later.
    pub(super) fn part(&self, left: u32) -> u32 {
        let room = self.room().min(left);
        if room >= (self.depth / 4).min(left) {
            room
        } else {
            0
        }
    }

    /// Returns how many of `left` work requests of Reads may be posted now, with room left for
    /// `wanted` of a message that waits.
    pub(super) fn reads_part(&self, left: u32, wanted: u32) -> u32 {
        let most = self.most_reads.saturating_sub(self.used_reads);
        let room = self.room().saturating_sub(wanted).min(most).min(left);
        if room >= (self.most_reads / 4).max(1).min(left) {
            room
        } else {
            0
        }
    }

    /// Returns whether the next chain must be signaled, so that a queue that is full always has a
    /// completion to come.
    ///
    /// A quarter of the queue, or of the `buffers` Send buffers, is the most that may be posted
    /// behind the last signaled work request: then whoever finds less than three quarters free can
    /// wait.
    pub(super) fn must_signal(&self, requests: u32, buffers: u32) -> bool {
        self.unsignaled.saturating_add(requests) >= (self.depth / 4).min(buffers / 4).max(1)
    }

    /// Returns the place of what is posted next.
    pub(super) fn next(&self) -> u64 {
        self.next_sequence
    }

    /// Notes a chain, with the Send buffer that comes free with it, or a `part` of Writes. Returns
    /// its place, to be given to [`Self::retire`]; nothing if the queue is full, which
    /// [`Self::has_room`] would have told. Inline, since a call would take as long again.
    #[inline(always)]
    pub(super) fn posted(
        &mut self,
        requests: u32,
        signaled: bool,
        buffer: Option<B>,
        part: bool,
    ) -> Option<u64> {
        let sequence = self.next_sequence;
        let posted = Posted {
            sequence,
            requests,
            buffer,
            part,
        };
        self.posted.push(posted).ok()?;
        self.next_sequence += 1;
        self.used = self.used.saturating_add(requests);
        self.unsignaled = if signaled {
            0
        } else {
            self.unsignaled.saturating_add(requests)
        };
        Some(sequence)
    }

    /// Notes a part of Reads, which is signaled; with the last one the Reads.
    ///
    /// # Errors
    ///
    /// The Reads, if there are more than [`Self::reads_part`] allows.
    pub(super) fn posted_reads(
        &mut self,
        requests: u32,
        reads: Option<R>,
    ) -> core::result::Result<(), Option<R>> {
        let posted = PostedReads {
            sequence: self.next_sequence,
            requests,
            reads,
        };
        self.reads.push(posted).map_err(|posted| posted.reads)?;
        self.next_sequence += 1;
        self.used = self.used.saturating_add(requests);
        self.used_reads = self.used_reads.saturating_add(requests);
        self.unsignaled = 0;
        Ok(())
    }

    /// Keeps room for `fences` fences.
    pub(super) fn reserve(&mut self, fences: u32) {
        self.reserved = self.reserved.saturating_add(fences);
    }

    /// Gives the room of `fences` fences back (they were posted, or the peer made them needless).
    pub(super) fn unreserve(&mut self, fences: u32) {
        self.reserved = self.reserved.saturating_sub(fences);
    }

    /// Returns whether everything up to and including `sequence` was retired, but for Reads.
    pub(super) fn has_retired(&self, sequence: u64) -> bool {
        let oldest = self.posted.oldest();
        oldest.is_none_or(|posted| posted.sequence > sequence)
    }

    /// Returns the Send buffers that are posted.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &B> {
        self.posted
            .iter()
            .filter_map(|posted| posted.buffer.as_ref())
    }

    /// Returns the Reads all of which are posted.
    pub(super) fn reads(&mut self) -> impl Iterator<Item = &mut R> {
        self.reads
            .iter_mut()
            .filter_map(|posted| posted.reads.as_mut())
    }

    /// Retires what was posted up to the part of Writes whose completion has come: the oldest one.
    /// If it was retired with something later, and no part is left, nothing is. Calls `free` for
    /// each Send buffer that comes free.
    pub(super) fn retire_part(&mut self, free: impl FnMut(B)) {
        let oldest = self.posted.iter().find(|posted| posted.part);
        let oldest = oldest.map(|posted| posted.sequence);
        if let Some(sequence) = oldest {
            self.retire(sequence, free);
        }
    }

    /// Retires the oldest part of Reads, whose completion has come, and what was posted before it.
    /// Calls `free` for each Send buffer that comes free. Returns the Reads if that was their last
    /// part.
    pub(super) fn retire_reads(&mut self, free: impl FnMut(B)) -> Option<R> {
        let posted = self.reads.pop()?;
        self.used = self.used.saturating_sub(posted.requests);
        self.used_reads = self.used_reads.saturating_sub(posted.requests);
        self.retire(posted.sequence, free);
        posted.reads
    }

    /// Retires everything up to and including `sequence`, but for Reads; calls `free` for each Send
    /// buffer that comes free.
    pub(super) fn retire(&mut self, sequence: u64, mut free: impl FnMut(B)) {
        let is_done = |posted: &Posted<B>| posted.sequence <= sequence;
        while self.posted.oldest().is_some_and(is_done) {
            let Some(posted) = self.posted.pop() else {
                return;
            };
            self.used = self.used.saturating_sub(posted.requests);
            if let Some(buffer) = posted.buffer {
                free(buffer);
            }
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_send_queue_ring)]
mod tests {
    use super::*;

    /// Buffers and Reads are numbers.
    type Queue = Ring<u32, u32>;

    /// A queue of which no room is kept.
    fn queue(depth: u32) -> Result<Queue> {
        Ring::new(depth, 0, u32::MAX)
    }

    /// Notes what is posted, with a buffer unless that is zero; returns its place.
    fn post(queue: &mut Queue, requests: u32, signaled: bool, buffer: u32) -> Result<u64> {
        let buffer = (buffer > 0).then_some(buffer);
        let posted = queue.posted(requests, signaled, buffer, false);
        posted.ok_or(EINVAL)
    }

    /// Notes a part of Writes.
    fn post_part(queue: &mut Queue, requests: u32) -> Result<u64> {
        queue.posted(requests, true, None, true).ok_or(EINVAL)
    }

    /// Notes a part of Reads.
    fn post_reads(queue: &mut Queue, requests: u32, reads: Option<u32>) -> Result {
        queue.posted_reads(requests, reads).map_err(|_| EINVAL)
    }

    /// Has a part of Writes complete. Returns the buffers that come free, one decimal digit each.
    fn part_done(queue: &mut Queue) -> u32 {
        let mut freed = 0;
        queue.retire_part(|buffer| freed = 10 * freed + buffer);
        freed
    }

    /// Has a part of Reads complete. Returns the buffers as [`part_done`] does, and the Reads.
    fn reads_done(queue: &mut Queue) -> (u32, Option<u32>) {
        let mut freed = 0;
        let reads = queue.retire_reads(|buffer| freed = 10 * freed + buffer);
        (freed, reads)
    }

    /// Has everything up to a place complete. Returns the buffers as [`part_done`] does.
    fn done(queue: &mut Queue, place: u64) -> u32 {
        let mut freed = 0;
        queue.retire(place, |buffer| freed = 10 * freed + buffer);
        freed
    }

    #[test]
    fn completion_retires_what_was_posted_before_it() -> Result {
        let mut queue = queue(8)?;
        let first = post(&mut queue, 2, false, 1)?;
        let second = post(&mut queue, 1, true, 2)?;
        post(&mut queue, 1, false, 3)?;
        assert!(first < second);
        assert!(!queue.has_retired(first));
        assert_eq!(done(&mut queue, second), 12);
        assert!(queue.has_retired(first) && queue.has_retired(second));
        assert!(!queue.has_retired(second + 1));
        assert!(queue.has_room(7, 0));
        assert!(!queue.has_room(8, 0));
        Ok(())
    }

    #[test]
    fn fences_find_their_room() -> Result {
        let mut queue = queue(4)?;
        assert!(queue.has_room(2, 1));
        post(&mut queue, 2, true, 0)?;
        queue.reserve(1);
        assert!(!queue.has_room(2, 0));
        assert!(queue.has_room(1, 0));
        queue.unreserve(1);
        assert!(queue.has_room(2, 0));
        Ok(())
    }

    #[test]
    fn a_full_queue_has_a_signaled_request_in_it() -> Result {
        let mut queue = queue(16)?;
        let mut signaled = 0;
        while queue.has_room(1, 0) {
            let signal = queue.must_signal(1, 16);
            signaled += u32::from(signal);
            post(&mut queue, 1, signal, 0)?;
        }
        assert!(signaled >= 3);
        assert!(post(&mut queue, 1, true, 1).is_err());
        Ok(())
    }

    /// Replies and Reads may fill a queue: a GRANT that they may wait for still finds room.
    #[test]
    fn what_waits_for_nobody_has_room_of_its_own() -> Result {
        let mut queue = Queue::new(16, 3, u32::MAX)?;
        assert_eq!(queue.room(), 13);
        let filled = queue.room();
        post(&mut queue, filled, true, 1)?;
        assert_eq!(
            (queue.room(), queue.part(40), queue.reads_part(1, 0)),
            (0, 0, 0)
        );
        assert!(queue.has_room(3, 0) && !queue.has_room(4, 0));
        // Fences that are to follow count for all.
        queue.reserve(2);
        assert!(queue.has_room(1, 0) && !queue.has_room(2, 0));
        // Of a small queue a part only is kept.
        assert_eq!(Queue::new(8, 20, u32::MAX)?.room(), 6);
        Ok(())
    }

    #[test]
    fn reads_have_half_of_the_queue_at_most() -> Result {
        let mut queue = Queue::new(20, 4, 40)?;
        assert_eq!((queue.reads_part(40, 0), queue.reads_part(5, 0)), (8, 5));
        post_reads(&mut queue, 5, Some(7))?;
        assert_eq!((queue.reads_part(40, 0), queue.room()), (3, 11));
        assert_eq!(reads_done(&mut queue), (0, Some(7)));
        assert_eq!(queue.reads_part(40, 0), 8);
        // Or as many as the peer answers at a time.
        assert_eq!(Queue::new(20, 4, 3)?.reads_part(40, 0), 3);
        assert_eq!(Queue::new(20, 4, 0)?.reads_part(40, 0), 1);
        Ok(())
    }

    #[test]
    fn room_goes_to_messages_first() -> Result {
        let mut queue = queue(20)?;
        post(&mut queue, 8, true, 1)?;
        assert_eq!((queue.room(), queue.reads_part(10, 0)), (12, 10));
        // A message waits for ten, and Reads get what it leaves.
        assert_eq!(queue.reads_part(10, queue.wanted(10)), 2);
        // A long one waits for no more than half of the queue.
        assert_eq!((queue.wanted(1000), queue.part(1000)), (10, 12));
        post(&mut queue, 2, true, 2)?;
        assert_eq!(
            (queue.room(), queue.reads_part(10, queue.wanted(10))),
            (10, 0)
        );
        Ok(())
    }

    #[test]
    fn parts_are_not_too_small() -> Result {
        let mut queue = queue(16)?;
        post(&mut queue, 10, true, 0)?;
        assert_eq!(queue.part(40), 6);
        post(&mut queue, 3, true, 0)?;
        // Not for three work requests, unless they are the last.
        assert_eq!((queue.part(34), queue.part(3)), (0, 3));
        post(&mut queue, 2, true, 0)?;
        assert_eq!((queue.reads_part(34, 0), queue.reads_part(1, 0)), (0, 1));
        Ok(())
    }

    #[test]
    fn parts_complete_in_order() -> Result {
        let mut queue = queue(16)?;
        post(&mut queue, 2, false, 1)?;
        post_part(&mut queue, 4)?;
        post_part(&mut queue, 4)?;
        let place = post(&mut queue, 1, true, 2)?;
        assert_eq!(queue.used().0, 11);
        // The first part, and what was posted before it; not the second, nor what comes last.
        assert_eq!((part_done(&mut queue), queue.used().0), (1, 5));
        assert_eq!((part_done(&mut queue), queue.used().0), (0, 1));
        assert_eq!((part_done(&mut queue), queue.used().0), (0, 1));
        assert_eq!((done(&mut queue, place), queue.used().0), (2, 0));
        Ok(())
    }

    /// A fence is posted at any time, for room was kept for it; so is a GRANT.
    #[test]
    fn what_is_between_parts_retires_only_what_was_before_it() -> Result {
        let mut queue = queue(16)?;
        post_part(&mut queue, 4)?;
        let fence = post(&mut queue, 1, true, 0)?;
        post_part(&mut queue, 4)?;
        let last = post(&mut queue, 1, true, 1)?;
        assert_eq!((part_done(&mut queue), queue.used().0), (0, 6));
        assert_eq!((done(&mut queue, fence), queue.used().0), (0, 5));
        assert!(queue.has_retired(fence) && !queue.has_retired(last));
        assert_eq!((part_done(&mut queue), queue.used().0), (0, 1));
        assert_eq!((done(&mut queue, last), queue.used().0), (1, 0));
        Ok(())
    }

    #[test]
    fn reads_retire_what_was_before_them() -> Result {
        let mut queue = queue(16)?;
        post(&mut queue, 1, false, 1)?;
        post_reads(&mut queue, 3, None)?;
        post(&mut queue, 1, false, 2)?;
        post_reads(&mut queue, 1, Some(7))?;
        post(&mut queue, 1, false, 3)?;
        assert_eq!((reads_done(&mut queue), queue.used().0), ((1, None), 3));
        assert_eq!((reads_done(&mut queue), queue.used().0), ((2, Some(7)), 1));
        assert_eq!(reads_done(&mut queue), (0, None));
        Ok(())
    }

    /// A peer over iWARP that answers no Reads takes Replies nevertheless, and memory that Reads
    /// fill is never taken for read by the completion of anything else.
    #[test]
    fn others_complete_before_reads() -> Result {
        let mut queue = queue(16)?;
        post(&mut queue, 1, false, 1)?;
        post_reads(&mut queue, 4, Some(7))?;
        let last = post(&mut queue, 1, true, 2)?;
        assert_eq!((done(&mut queue, last), queue.used().0), (12, 4));
        assert!(queue.has_retired(last));
        assert!(queue.reads().eq([&mut 7]));
        assert_eq!((reads_done(&mut queue), queue.used().0), ((0, Some(7)), 0));
        Ok(())
    }
}
