// SPDX-License-Identifier: GPL-2.0

//! How many Receives a shared queue has, and what follows from that.
//!
//! A Receive that a device loses, with a QP that ends in the middle of a message, never completes,
//! and no event reports it. But devices use the Receives of a queue in the order of posting. So the
//! Receives that are there for the next messages are those that were posted after the latest one
//! that has completed; others that have not completed are lost, or a message for them is arriving.
//! Spare Receives take the places of both. A device with another order only has a few more posted.

use crate::rdma::receive_buffer::RECEIVE_BATCH;
use kernel::prelude::*;

/// The fewest Receives of a queue.
pub(super) const LEAST_DEPTH: u32 = 4 * RECEIVE_BATCH;

/// The numbers of Receives of a shared queue.
pub(super) struct Level {
    /// How many there should be for the next messages.
    depth: u32,
    /// The number of buffers.
    made: u32,
    /// By the place of a buffer: as which of all Receives it was posted last. With room for all.
    numbers: KVVec<u64>,
    /// The number of Receives that were ever posted.
    posted: u64,
    /// The number of them that have completed.
    completed: u64,
    /// The latest one that has completed.
    latest: u64,
    /// The number of QPs that have gone since then: with each a Receive may be lost, and nothing
    /// has completed that would have overtaken it.
    gone: u32,
}

impl Level {
    /// No Receives yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(depth: u32) -> Result<Self> {
        let places = usize::try_from(Self::most(depth))?;
        Ok(Self {
            depth,
            made: 0,
            numbers: KVVec::from_elem(0, places, GFP_KERNEL)?,
            posted: 0,
            completed: 0,
            latest: 0,
            gone: 0,
        })
    }

    /// Returns the largest depth of which [`Self::most_posted`] is `places` at most.
    pub(super) const fn depth_in(places: u32) -> u32 {
        places - places.div_ceil(9)
    }

    /// Returns the most Receives of a queue that are posted at a time, with those that are lost.
    pub(super) const fn most_posted(depth: u32) -> u32 {
        depth + depth / 8
    }

    /// Returns the most buffers of a queue: as many again may hold messages, and some are spare.
    pub(super) const fn most(depth: u32) -> u32 {
        2 * depth + 2 * (depth / 8)
    }

    /// Returns how many Receives should be there for the next messages.
    pub(super) const fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the number of buffers.
    pub(super) const fn made(&self) -> u32 {
        self.made
    }

    /// Returns the number of Receives that were posted after the latest that has completed.
    fn after_latest(&self) -> u32 {
        u32::try_from(self.posted.saturating_sub(self.latest)).unwrap_or(u32::MAX)
    }

    /// Returns the number of Receives that are there for the next messages.
    pub(super) fn available(&self) -> u32 {
        self.after_latest().saturating_sub(self.gone)
    }

    /// Returns the number of Receives that others have overtaken, or that may be lost with a QP that
    /// has gone: a message for them is arriving, or they are lost.
    pub(super) fn overtaken(&self) -> u32 {
        let before = u32::try_from(self.latest.saturating_sub(self.completed)).unwrap_or(u32::MAX);
        before.saturating_add(self.gone.min(self.after_latest()))
    }

    /// Returns how many further Receives may be posted.
    fn room(&self) -> u32 {
        let there = self.available().saturating_add(self.overtaken());
        Self::most_posted(self.depth).saturating_sub(there)
    }

    /// Returns how many Receives there would be for the next messages with as many of `idle` buffers
    /// as may be posted: no fewer than a batch.
    fn within_reach(&self, idle: u32) -> u32 {
        let room = Some(self.room()).filter(|room| *room >= RECEIVE_BATCH);
        self.available().saturating_add(idle.min(room.unwrap_or(0)))
    }

    /// Returns whether so many Receives are lost that those that may be posted are too few.
    pub(super) fn is_spent(&self) -> bool {
        let most = Self::most_posted(self.depth).saturating_sub(self.overtaken());
        most <= RECEIVE_BATCH.max(self.depth / 8)
    }

    /// Returns whether so many Receives may be lost that no further connection should use it.
    pub(super) fn is_worn(&self) -> bool {
        self.overtaken() > self.depth / 8
    }

    /// Returns how many of `idle` buffers to post now.
    pub(super) fn to_post(&self, idle: u32) -> u32 {
        let missing = self.depth.saturating_sub(self.available());
        let wanted = missing.min(self.room());
        if wanted < RECEIVE_BATCH {
            0
        } else {
            wanted.min(idle).min(RECEIVE_BATCH)
        }
    }

    /// Returns whether there are fewer buffers than there should be beside `idle` ones, and may be
    /// more.
    pub(super) fn wants_more(&self, idle: u32) -> bool {
        let wanted = self.depth.saturating_add(self.depth / 8);
        self.available().saturating_add(idle) < wanted && self.made < Self::most(self.depth)
    }

    /// Returns whether half of the spare buffers are gone.
    pub(super) fn is_low(&self, idle: u32) -> bool {
        let there = self.available().saturating_add(idle);
        there < self.depth.saturating_add(self.depth / 16) || self.is_at_floor(idle)
    }

    /// Returns whether only the Receives are left below which the queue must not fall, or fewer.
    pub(super) fn is_at_floor(&self, idle: u32) -> bool {
        self.within_reach(idle) <= self.depth / 8
    }

    /// A QP is gone.
    pub(super) fn left(&mut self) {
        self.gone = self.gone.saturating_add(1);
    }

    /// Counts a buffer that the caller is about to make, if there are too few.
    pub(super) fn claim(&mut self, idle: u32) -> bool {
        let claimed = self.wants_more(idle);
        self.made += u32::from(claimed);
        claimed
    }

    /// A buffer was freed, or could not be made.
    pub(super) fn unclaim(&mut self) {
        self.made = self.made.saturating_sub(1);
    }

    /// Returns whether to keep a buffer that has come back, beside `idle` ones.
    pub(super) fn keeps(&self, idle: u32) -> bool {
        let most = self.depth.saturating_add(self.depth / 4);
        self.available().saturating_add(idle) < most
    }

    /// A Receive with the buffer at `place` is posted next.
    pub(super) fn post(&mut self, place: u32) {
        self.posted += 1;
        if let Some(number) = self.numbers.get_mut(place as usize) {
            *number = self.posted;
        }
    }

    /// The Receive with the buffer at `place` has completed.
    pub(super) fn complete(&mut self, place: u32) {
        let number = self.numbers.get(place as usize).copied().unwrap_or(0);
        self.completed += 1;
        if number > self.latest {
            self.latest = number;
            // What was lost before is overtaken now.
            self.gone = 0;
        }
    }
}

/// Chooses the connection that holds most messages, but for those that are ending: `best` of those
/// that were seen, or `other`, which holds `held`.
pub(super) fn holds_most<T: Clone>(
    best: Option<(u32, T)>,
    held: u32,
    is_ending: bool,
    other: &T,
) -> Option<(u32, T)> {
    let most = best.as_ref().map_or(0, |(most, _)| *most);
    if held > most && !is_ending {
        Some((held, other.clone()))
    } else {
        best
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_shared_level)]
mod tests {
    use super::*;

    /// A depth with an eighth of 8.
    const DEPTH: u32 = 64;

    /// A queue with `depth` Receives posted, at the places of their numbers less one.
    fn filled() -> Result<Level> {
        let mut level = Level::new(DEPTH)?;
        for place in 0..DEPTH {
            assert!(level.claim(0));
            level.post(place);
        }
        Ok(level)
    }

    #[test]
    fn a_depth_fits_its_places() {
        for places in [72, 73, 80, 81, 82, 1000, 65_535] {
            let depth = Level::depth_in(places);
            assert!(Level::most_posted(depth) <= places);
            assert!(Level::most_posted(depth + 2) > places);
        }
    }

    /// Buffers are made for all that should be posted, and spare ones.
    #[test]
    fn some_are_spare() -> Result {
        let mut level = filled()?;
        assert_eq!((level.available(), level.to_post(8)), (DEPTH, 0));
        assert!(level.is_low(3) && !level.is_low(4));
        assert!(level.wants_more(7) && !level.wants_more(8));
        assert!(level.keeps(15) && !level.keeps(16));
        for idle in 0..8 {
            assert!(level.claim(idle));
        }
        assert!(!level.claim(8));
        assert_eq!(level.made(), DEPTH + 8);
        level.unclaim();
        assert_eq!(level.made(), DEPTH + 7);
        Ok(())
    }

    /// Completed Receives are replaced at once, a batch at a time, even while their messages are
    /// held.
    #[test]
    fn refills_follow_completions() -> Result {
        let mut level = filled()?;
        for place in 0..RECEIVE_BATCH {
            assert_eq!(level.to_post(100), 0);
            level.complete(place);
        }
        assert_eq!(
            (level.available(), level.overtaken()),
            (DEPTH - RECEIVE_BATCH, 0)
        );
        assert_eq!((level.to_post(100), level.to_post(3)), (RECEIVE_BATCH, 3));
        Ok(())
    }

    /// A message that arrives slowly does not count as lost for long; a lost one is replaced.
    #[test]
    fn what_is_overtaken_is_replaced() -> Result {
        let mut level = filled()?;
        for place in 1..=RECEIVE_BATCH {
            level.complete(place);
        }
        assert_eq!(
            (level.available(), level.overtaken()),
            (DEPTH - 1 - RECEIVE_BATCH, 1)
        );
        assert!(!level.is_worn());
        level.complete(0);
        assert_eq!(
            (level.available(), level.overtaken()),
            (DEPTH - 1 - RECEIVE_BATCH, 0)
        );
        Ok(())
    }

    /// There is no more posted than the device has room for, however many are lost.
    #[test]
    fn a_worn_queue_stays_within_its_places() -> Result {
        let mut level = filled()?;
        // The places of buffers in the order of posting.
        let mut order = KVec::new();
        for place in 0..DEPTH {
            order.push(place, GFP_KERNEL)?;
        }
        let mut idle = KVec::new();
        // Every other one is lost.
        for at in (1..1000).step_by(2) {
            let Some(place) = order.get(at).copied() else {
                break;
            };
            level.complete(place);
            idle.push(place, GFP_KERNEL)?;
            for _ in 0..level.to_post(idle.len() as u32) {
                let place = idle.pop().ok_or(EINVAL)?;
                level.post(place);
                order.push(place, GFP_KERNEL)?;
            }
            assert!(level.available() + level.overtaken() <= Level::most_posted(DEPTH));
        }
        // What is idle is of no use: there is no room for it.
        assert!(level.is_worn() && level.is_spent());
        assert!(level.is_at_floor(idle.len() as u32) && level.is_low(DEPTH));
        Ok(())
    }

    /// QPs go one after the other in the middle of their first messages, and nothing completes.
    #[test]
    fn what_is_lost_in_silence_is_replaced_until_the_queue_is_spent() -> Result {
        let mut level = filled()?;
        let mut place = DEPTH;
        for gone in 1..=DEPTH {
            level.left();
            for _ in 0..level.to_post(DEPTH) {
                level.post(place);
                place += 1;
            }
            assert!(level.available() + level.overtaken() <= Level::most_posted(DEPTH));
            assert_eq!(level.overtaken(), gone);
            assert_eq!(level.is_worn(), gone > DEPTH / 8);
        }
        assert!(level.is_spent() && level.is_low(DEPTH));
        // One that completes after all shows that the others are there.
        level.complete(0);
        assert!(!level.is_spent() && !level.is_worn() && level.overtaken() == 0);
        Ok(())
    }

    #[test]
    fn the_floor_counts_what_is_idle() -> Result {
        let mut level = filled()?;
        for place in 0..DEPTH - 8 {
            level.complete(place);
        }
        assert!(level.is_at_floor(0) && !level.is_at_floor(1));
        // As many again as are posted may hold messages.
        while level.claim(0) {}
        assert_eq!(level.made(), Level::most(DEPTH));
        Ok(())
    }

    #[test]
    fn who_holds_most_ends() {
        let choose = |all: &[(u32, bool)]| {
            let all = all.iter().enumerate();
            all.fold(None, |best, (at, (held, is_ending))| {
                holds_most(best, *held, *is_ending, &at)
            })
        };
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&[(0, false), (3, true)]), None);
        assert_eq!(
            choose(&[(3, false), (9, false), (9, false), (10, true)]),
            Some((9, 1))
        );
    }
}
