// SPDX-License-Identifier: GPL-2.0

//! Accounting of a Send Queue: what is posted, what comes free with which completion, and how much
//! room is left.
//!
//! Completions come in the order of posting, and only some work requests are signaled. So what was
//! posted is kept in order, and the completion of a signaled work request retires everything up to
//! it.
//!
//! Whatever is posted has a number of its own, also each part of a chain that is posted in parts: a
//! fence may come between two of them. So numbers ascend in the order of posting.

use kernel::prelude::*;

/// One chain of work requests, or a part of one.
struct Posted<B> {
    /// Its place: larger than that of what was posted before it.
    sequence: u64,
    /// The number of its work requests.
    requests: u32,
    /// The Send buffer that comes free with it.
    buffer: Option<B>,
    /// Set if it is a part of a longer chain, signaled on its own.
    part: bool,
}

/// A fixed-size queue of what is posted, with buffers `B`. No allocation after `new`.
pub(super) struct Ring<B> {
    /// The chains that are posted; `depth` places, since each has a work request at least.
    ring: KVVec<Posted<B>>,
    /// The place of the oldest.
    head: usize,
    /// Their number.
    len: usize,
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
}

impl<B> Ring<B> {
    /// A queue for `depth` work requests.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(depth: u32) -> Result<Self> {
        let mut ring = KVVec::with_capacity(usize::try_from(depth)?, GFP_KERNEL)?;
        for _ in 0..depth {
            let nothing = Posted {
                sequence: 0,
                requests: 0,
                buffer: None,
                part: false,
            };
            ring.push(nothing, GFP_KERNEL)?;
        }
        Ok(Self {
            ring,
            head: 0,
            len: 0,
            next_sequence: 1,
            depth,
            used: 0,
            unsignaled: 0,
            reserved: 0,
        })
    }

    /// The work requests that are posted, and those that room is kept for.
    pub(super) fn used(&self) -> (u32, u32) {
        (self.used, self.reserved)
    }

    /// Returns whether `requests` more fit, with `fences` to follow some day.
    pub(super) fn has_room(&self, requests: u32, fences: u32) -> bool {
        let wanted = self
            .used
            .saturating_add(self.reserved)
            .saturating_add(requests)
            .saturating_add(fences);
        wanted <= self.depth
    }

    /// Returns whether a chain of `requests` fits sooner or later, if it is given the time. Up to a
    /// quarter of the queue may be taken by what is not signaled, and comes free with a later
    /// completion only: who waits for more than the rest might wait for ever.
    pub(super) fn fits(&self, requests: u32) -> bool {
        requests <= self.depth - self.depth / 4
    }

    /// Returns how many of `left` work requests may be posted now as a part of a chain. Not too
    /// few, since each part has a completion: a quarter of the queue comes free sooner or later.
    pub(super) fn part(&self, left: u32) -> u32 {
        let taken = self.used.saturating_add(self.reserved);
        let room = self.depth.saturating_sub(taken).min(left);
        if room >= (self.depth / 4).min(left) {
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

    /// Notes a chain. Returns its place, to be given to [`Self::retire`]; nothing if the queue is
    /// full, which [`Self::has_room`] would have told.
    #[inline(always)]
    pub(super) fn posted(
        &mut self,
        requests: u32,
        signaled: bool,
        buffer: Option<B>,
    ) -> Option<u64> {
        self.push(requests, signaled, buffer, false)
    }

    /// A number for a chain that is posted in parts, before the places of all its parts. It is a
    /// name for trace events, and not to be given to [`Self::retire`] or [`Self::has_retired`].
    pub(super) fn begin(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// Notes a part of a chain, signaled on its own and not the last. Its completion is for
    /// [`Self::retire_part`].
    pub(super) fn posted_part(&mut self, requests: u32) -> Option<u64> {
        self.push(requests, true, None, true)
    }

    /// Notes what was posted. Returns its place. Inline, since a call would take as long again.
    #[inline(always)]
    fn push(
        &mut self,
        requests: u32,
        signaled: bool,
        buffer: Option<B>,
        part: bool,
    ) -> Option<u64> {
        let capacity = self.ring.len();
        let end = self.head.checked_add(self.len)?;
        let at = end.checked_sub(capacity).unwrap_or(end);
        let posted = self.ring.get_mut(at).filter(|_| self.len < capacity)?;
        let sequence = self.next_sequence;
        posted.sequence = sequence;
        posted.requests = requests;
        posted.buffer = buffer;
        posted.part = part;
        self.next_sequence += 1;
        self.len += 1;
        self.used = self.used.saturating_add(requests);
        self.unsignaled = if signaled {
            0
        } else {
            self.unsignaled.saturating_add(requests)
        };
        Some(sequence)
    }

    /// Notes that the device refused the chain noted last, or the rest of it. It still counts as
    /// posted: a device may have taken a part of it, which completes, and others may post until
    /// the connection, which is at its end, is closed. Its Send buffer is given up.
    pub(super) fn refused(&mut self) {
        if self.len == 0 {
            return;
        }
        // Not `%`: objtool does not know that its panic does not return.
        let Some(at) = (self.head + self.len - 1).checked_rem(self.ring.len()) else {
            return;
        };
        if let Some(posted) = self.ring.get_mut(at) {
            posted.buffer = None;
        }
    }

    /// Keeps room for `fences` fences.
    pub(super) fn reserve(&mut self, fences: u32) {
        self.reserved = self.reserved.saturating_add(fences);
    }

    /// Gives the room of `fences` fences back (they were posted, or the peer made them needless).
    pub(super) fn unreserve(&mut self, fences: u32) {
        self.reserved = self.reserved.saturating_sub(fences);
    }

    /// Returns whether everything up to and including `sequence` was retired.
    pub(super) fn has_retired(&self, sequence: u64) -> bool {
        let oldest = self.ring.get(self.head).filter(|_| self.len > 0);
        oldest.is_none_or(|posted| posted.sequence > sequence)
    }

    /// Retires what was posted up to the part whose completion has come: the oldest one, since they
    /// complete in order, and each was retired by its own completion or a later one. If that was a
    /// later one, and no part is left, nothing is retired. Calls `free` for each Send buffer that
    /// comes free.
    pub(super) fn retire_part(&mut self, mut free: impl FnMut(B)) {
        let mut places = self.head..self.head + self.len;
        let is_part = |at: usize| {
            let at = at.checked_rem(self.ring.len());
            at.and_then(|at| self.ring.get(at))
                .is_some_and(|posted| posted.part)
        };
        if !places.any(is_part) {
            return;
        }
        // What is older is from before the chain was begun, or a fence, and has completed before
        // it.
        while let Some(posted) = self.pop_if(|_| true) {
            if let Some(buffer) = posted.buffer {
                free(buffer);
            }
            if posted.part {
                return;
            }
        }
    }

    /// Retires everything up to and including `sequence`; calls `free` for each Send buffer that
    /// comes free.
    pub(super) fn retire(&mut self, sequence: u64, mut free: impl FnMut(B)) {
        while let Some(posted) = self.pop_if(|oldest| oldest.sequence <= sequence) {
            if let Some(buffer) = posted.buffer {
                free(buffer);
            }
        }
    }

    /// Retires the oldest chain, or part of one, if `may` agrees.
    fn pop_if(&mut self, may: impl FnOnce(&Posted<B>) -> bool) -> Option<Posted<B>> {
        if self.len == 0 {
            return None;
        }
        let posted = self.ring.get_mut(self.head)?;
        if !may(posted) {
            return None;
        }
        let retired = Posted {
            buffer: posted.buffer.take(),
            ..*posted
        };
        let next = self.head + 1;
        self.head = if next < self.ring.len() { next } else { 0 };
        self.len -= 1;
        self.used = self.used.saturating_sub(retired.requests);
        Some(retired)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_send_queue_ring)]
mod tests {
    use super::*;

    #[test]
    fn completion_retires_what_was_posted_before_it() -> Result {
        let mut queue = Ring::<u32>::new(8)?;
        let first = queue.posted(2, false, Some(0)).ok_or(EINVAL)?;
        let second = queue.posted(1, true, Some(1)).ok_or(EINVAL)?;
        queue.posted(1, false, Some(2)).ok_or(EINVAL)?;
        assert!(first < second);
        assert!(!queue.has_retired(first));
        let mut freed = KVec::with_capacity(4, GFP_KERNEL)?;
        queue.retire(second, |b| drop(freed.push_within_capacity(b)));
        assert_eq!(freed.as_slice(), &[0, 1]);
        assert!(queue.has_retired(first) && queue.has_retired(second));
        assert!(!queue.has_retired(second + 1));
        assert!(queue.has_room(7, 0));
        assert!(!queue.has_room(8, 0));
        Ok(())
    }

    #[test]
    fn a_chain_that_is_refused_keeps_its_places() -> Result {
        let mut queue = Ring::<u32>::new(8)?;
        queue.posted(2, true, Some(0)).ok_or(EINVAL)?;
        let refused = queue.posted(5, true, Some(1)).ok_or(EINVAL)?;
        queue.refused();
        // The device may have as many of them as there are places left.
        assert_eq!(queue.used(), (7, 0));
        assert!(queue.has_room(1, 0) && !queue.has_room(2, 0));
        // Its buffer does not come back a second time.
        let mut freed = KVec::with_capacity(4, GFP_KERNEL)?;
        queue.retire(refused, |b| drop(freed.push_within_capacity(b)));
        assert_eq!(freed.as_slice(), &[0]);
        Ok(())
    }

    #[test]
    fn fences_find_their_room() -> Result {
        let mut queue = Ring::<u32>::new(4)?;
        assert!(queue.has_room(2, 1));
        queue.posted(2, true, None).ok_or(EINVAL)?;
        queue.reserve(1);
        assert!(!queue.has_room(2, 0));
        assert!(queue.has_room(1, 0));
        queue.unreserve(1);
        assert!(queue.has_room(2, 0));
        Ok(())
    }

    #[test]
    fn a_full_queue_has_a_signaled_request_in_it() -> Result {
        let mut queue = Ring::<u32>::new(16)?;
        let mut signaled = 0;
        while queue.has_room(1, 0) {
            let signal = queue.must_signal(1, 16);
            signaled += u32::from(signal);
            queue.posted(1, signal, None).ok_or(EINVAL)?;
        }
        assert!(signaled >= 3);
        Ok(())
    }

    #[test]
    fn a_long_chain_is_posted_in_parts() -> Result {
        let mut queue = Ring::<u32>::new(16)?;
        assert!(queue.fits(12));
        assert!(!queue.fits(13));
        queue.posted(10, true, Some(0)).ok_or(EINVAL)?;
        // As much as there is room for.
        assert_eq!(queue.part(40), 6);
        queue.posted_part(6).ok_or(EINVAL)?;
        assert_eq!(queue.part(34), 0);
        // Not for three work requests, unless they are the last.
        let mut full = Ring::<u32>::new(16)?;
        full.posted(13, true, None).ok_or(EINVAL)?;
        assert_eq!(full.part(34), 0);
        assert_eq!(full.part(3), 3);
        Ok(())
    }

    #[test]
    fn parts_complete_in_order() -> Result {
        let mut queue = Ring::<u32>::new(16)?;
        let mut freed = KVec::with_capacity(4, GFP_KERNEL)?;
        let before = queue.posted(2, false, Some(0)).ok_or(EINVAL)?;
        let begun = queue.begin();
        assert!(before < begun);
        let first = queue.posted_part(4).ok_or(EINVAL)?;
        let second = queue.posted_part(4).ok_or(EINVAL)?;
        let place = queue.posted(1, true, Some(1)).ok_or(EINVAL)?;
        assert!(begun < first && first < second && second < place);
        assert_eq!(queue.used().0, 11);
        // The first part, and what was posted before it; not the second, nor what comes last.
        queue.retire_part(|b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.as_slice()), (5, &[0][..]));
        queue.retire_part(|b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.as_slice()), (1, &[0][..]));
        queue.retire(place, |b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.as_slice()), (0, &[0, 1][..]));
        let after = queue.posted(1, true, None).ok_or(EINVAL)?;
        assert!(place < after);
        Ok(())
    }

    #[test]
    fn the_last_part_retires_all() -> Result {
        let mut queue = Ring::<u32>::new(16)?;
        queue.posted_part(4).ok_or(EINVAL)?;
        let place = queue.posted(4, true, None).ok_or(EINVAL)?;
        queue.retire(place, |_| ());
        assert!(queue.has_room(16, 0));
        queue.retire_part(|_| ());
        assert!(queue.has_room(16, 0));
        // What was posted since then is not concerned.
        queue.posted(3, true, Some(0)).ok_or(EINVAL)?;
        queue.retire_part(|_| ());
        assert_eq!(queue.used().0, 3);
        Ok(())
    }

    /// A fence is posted at any time, for room was kept for it.
    #[test]
    fn a_fence_between_parts_retires_only_what_was_before_it() -> Result {
        let mut queue = Ring::<u32>::new(16)?;
        let mut freed = KVec::with_capacity(4, GFP_KERNEL)?;
        queue.posted_part(4).ok_or(EINVAL)?;
        let fence = queue.posted(1, true, None).ok_or(EINVAL)?;
        queue.retire_part(|b| drop(freed.push_within_capacity(b)));
        assert_eq!(queue.used().0, 1);
        queue.posted_part(4).ok_or(EINVAL)?;
        let last = queue.posted(1, true, Some(1)).ok_or(EINVAL)?;
        queue.retire(fence, |b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.len()), (5, 0));
        assert!(queue.has_retired(fence) && !queue.has_retired(last));
        queue.retire_part(|b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.len()), (1, 0));
        queue.retire(last, |b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.as_slice()), (0, &[1][..]));
        Ok(())
    }

    /// The fence is behind a part that has not completed.
    #[test]
    fn a_part_behind_a_fence_is_retired_after_it() -> Result {
        let mut queue = Ring::<u32>::new(16)?;
        let mut freed = KVec::with_capacity(4, GFP_KERNEL)?;
        queue.posted_part(4).ok_or(EINVAL)?;
        queue.posted_part(4).ok_or(EINVAL)?;
        let fence = queue.posted(1, true, None).ok_or(EINVAL)?;
        let last = queue.posted(1, true, Some(1)).ok_or(EINVAL)?;
        queue.retire_part(|b| drop(freed.push_within_capacity(b)));
        assert_eq!(queue.used().0, 6);
        queue.retire_part(|b| drop(freed.push_within_capacity(b)));
        assert_eq!(queue.used().0, 2);
        queue.retire(fence, |b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.len()), (1, 0));
        queue.retire(last, |b| drop(freed.push_within_capacity(b)));
        assert_eq!((queue.used().0, freed.as_slice()), (0, &[1][..]));
        Ok(())
    }
}
