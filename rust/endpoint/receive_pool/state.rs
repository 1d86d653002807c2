// SPDX-License-Identifier: GPL-2.0

//! The demand for Receives.

use crate::rdma::receive_buffer::RECEIVE_BATCH;
use kernel::prelude::*;

/// What Receives are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Without them a connection is of no use.
    First,
    /// The peer would get on faster with them. A quarter of all is not for this, so that
    /// connections that have many leave some to new ones.
    More,
}

/// The demand for Receives of one queue.
pub(super) struct Demand {
    /// The largest number of buffers.
    pub(super) limit: u32,
    /// The number of buffers.
    pub(super) made: u32,
    /// The number of Receives that were asked for.
    pub(super) wanted: u32,
}

impl Demand {
    /// No demand yet, for a queue with at most `limit` buffers.
    pub(super) const fn new(limit: u32) -> Self {
        Self {
            limit,
            made: 0,
            wanted: 0,
        }
    }

    /// Returns the number of buffers that there should be if `lost` Receives are lost.
    pub(super) fn target(&self, lost: u32) -> u32 {
        self.wanted
            .saturating_add(RECEIVE_BATCH)
            .saturating_add(lost)
    }

    /// Returns whether there are fewer than there should be, and may be.
    pub(super) fn too_few(&self, lost: u32) -> bool {
        self.made < self.target(lost).min(self.limit)
    }

    /// Counts a buffer that the caller is about to make, if there are too few. Before it is made:
    /// else two might take the last place, and one would find none.
    pub(super) fn claim(&mut self, lost: u32) -> bool {
        let claimed = self.too_few(lost);
        self.made += u32::from(claimed);
        claimed
    }

    /// Returns whether so many Receives are lost that they should be recovered at the expense of
    /// the connections that prevent it.
    pub(super) fn is_bleeding(&self, lost: u32) -> bool {
        lost > self.limit / 8
    }

    /// Returns whether there may not be a batch more for a need.
    pub(super) fn is_full(&self, need: Need, lost: u32) -> bool {
        let limit = self.limit - self.reserve(need);
        self.target(lost).saturating_add(RECEIVE_BATCH) > limit
    }

    /// Returns the number of Receives that are not for a need.
    fn reserve(&self, need: Need) -> u32 {
        match need {
            Need::First => 0,
            Need::More => self.limit.saturating_sub(RECEIVE_BATCH) / 4,
        }
    }

    /// Returns the number of Receives that each of `members` may ask for if all have the same.
    pub(super) fn share(&self, members: u32, lost: u32) -> u32 {
        let others = self.reserve(Need::More) + RECEIVE_BATCH;
        let all = self.limit.saturating_sub(others);
        all.saturating_sub(lost) / members.max(1)
    }

    /// Asks for `count` Receives more, if there may be that many buffers.
    ///
    /// # Errors
    ///
    /// `ENOSPC`. Then nothing has changed, so a caller that asks for less gets it.
    pub(super) fn ask(&mut self, count: u32, need: Need, lost: u32) -> Result {
        let limit = self.limit - self.reserve(need);
        let before = self.wanted;
        self.wanted = before.checked_add(count).ok_or(ENOSPC)?;
        if self.target(lost) > limit {
            self.wanted = before;
            return Err(ENOSPC);
        }
        Ok(())
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_receive_pool_state)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_more_than_was_asked_for() {
        let mut demand = Demand::new(100);
        assert_eq!(demand.target(0), RECEIVE_BATCH);
        demand.wanted = 20;
        assert_eq!(demand.target(0), 20 + RECEIVE_BATCH);
        assert_eq!(demand.target(3), 23 + RECEIVE_BATCH);
        demand.made = 22 + RECEIVE_BATCH;
        assert!(demand.too_few(3));
        assert!(!demand.too_few(2));
    }

    #[test]
    fn what_does_not_fit_is_not_asked_for() -> Result {
        let mut demand = Demand::new(RECEIVE_BATCH + 10);
        demand.ask(4, Need::First, 0)?;
        assert_eq!(demand.ask(7, Need::First, 0), Err(ENOSPC));
        assert_eq!(demand.ask(u32::MAX, Need::First, 0), Err(ENOSPC));
        assert_eq!(demand.wanted, 4);
        assert_eq!(demand.ask(6, Need::First, 1), Err(ENOSPC));
        demand.ask(6, Need::First, 0)?;
        assert_eq!(demand.ask(1, Need::First, 0), Err(ENOSPC));
        assert_eq!(demand.wanted, 10);
        Ok(())
    }

    #[test]
    fn it_is_full_without_room_for_a_batch() -> Result {
        let mut demand = Demand::new(3 * RECEIVE_BATCH);
        demand.ask(RECEIVE_BATCH, Need::First, 0)?;
        assert!(!demand.is_full(Need::First, 0));
        assert!(demand.is_full(Need::First, 1));
        demand.ask(1, Need::First, 0)?;
        assert!(demand.is_full(Need::First, 0));
        Ok(())
    }

    /// Two that make buffers at the same time do not both count on the last place.
    #[test]
    fn the_last_place_is_claimed_once() -> Result {
        let mut demand = Demand::new(RECEIVE_BATCH + 2);
        demand.ask(2, Need::First, 0)?;
        demand.made = RECEIVE_BATCH + 1;
        assert!(demand.claim(0));
        assert!(!demand.claim(0));
        assert_eq!(demand.made, demand.limit);
        Ok(())
    }

    #[test]
    fn an_eighth_may_be_lost() {
        let demand = Demand::new(80);
        assert!(!demand.is_bleeding(10));
        assert!(demand.is_bleeding(11));
    }

    #[test]
    fn a_quarter_is_for_what_is_vital() -> Result {
        let mut demand = Demand::new(RECEIVE_BATCH + 40);
        assert_eq!(demand.share(3, 0), 10);
        demand.ask(30, Need::More, 0)?;
        assert_eq!(demand.ask(1, Need::More, 0), Err(ENOSPC));
        demand.ask(10, Need::First, 0)?;
        assert_eq!(demand.ask(1, Need::First, 0), Err(ENOSPC));
        // A connection that comes leaves the others as much to ask for again.
        demand.wanted -= 11;
        demand.ask(1, Need::More, 0)?;
        assert_eq!(demand.ask(1, Need::More, 0), Err(ENOSPC));
        Ok(())
    }

    #[test]
    fn nobody_has_a_share_of_what_is_lost() {
        let demand = Demand::new(RECEIVE_BATCH + 40);
        assert_eq!(demand.share(2, 2), 14);
        assert_eq!(demand.share(0, 4), 26);
        assert_eq!(demand.share(1, 100), 0);
    }
}
