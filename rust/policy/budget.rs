// SPDX-License-Identifier: GPL-2.0

//! Which connection may have more of a memory that all of them share.
//!
//! A connection may have as many pages as nobody has, and no more than its own limit. So the more
//! connections keep pages the less each of them may keep: with *K* of them an equal share of *K* +
//! 1, one of which is left for the next connection. (Switches share their buffers among ports so.)
//!
//! A connection that has no pages, and whose Calls are all answered, may always take one in. So
//! none waits for what only another connection's peer can give, and none needs to be woken by
//! another connection: one that waits has pages or Calls of its own, and looks again whenever there
//! are fewer.
//!
//! All connections would write the sum for each transfer, and a line of the cache can move from CPU
//! to CPU only so often. So a connection adds and gives back in lots while there is plenty: its
//! part of the sum may be a little more than its pages, until it is looked at the next time.
//! Surpluses begin below an eighth of the limit only, so they come to that and a lot for each
//! thread at most.

/// With how many pages of RDMA Reads and Writes no further Call with chunks is taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Those of the connection.
    pub(crate) own: usize,
    /// Those of all connections together.
    pub(crate) all: u64,
}

impl Quota {
    /// Returns whether a connection with `own` pages may have more when there are `all` together.
    fn allows(&self, own: usize, all: u64) -> bool {
        own < self.own && (own as u64) < self.all.saturating_sub(all)
    }

    /// Returns whether pages are short when there are `all` together: more than half of the limit.
    pub(crate) fn is_short(&self, all: u64) -> bool {
        all > self.all / 2
    }
}

/// Pages that a connection adds to the sum in advance. Its surplus is at most twice this.
const LOT: usize = 64;

/// The pages of a connection's transfers, and its part of the sum.
pub(crate) struct Pages {
    /// Their number.
    now: usize,
    /// The connection's part of the sum: as many at least.
    summed: usize,
    /// Set if there may be a surplus.
    in_lots: bool,
}

impl Pages {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            now: 0,
            summed: 0,
            in_lots: false,
        }
    }

    /// There are `count` more. Returns how much the sum has to grow.
    pub(crate) fn begin(&mut self, count: usize) -> usize {
        self.now = self.now.saturating_add(count);
        if self.now <= self.summed {
            return 0;
        }
        let lot = if self.in_lots { LOT } else { 0 };
        let summed = self.now.saturating_add(lot);
        summed - core::mem::replace(&mut self.summed, summed)
    }

    /// There are `count` fewer. Returns how much the sum has to shrink.
    pub(crate) fn end(&mut self, count: usize) -> usize {
        self.now = self.now.saturating_sub(count);
        let lot = if self.in_lots { LOT } else { 0 };
        if self.summed - self.now <= 2 * lot {
            return 0;
        }
        self.keep(lot)
    }

    /// There is no surplus for now. Returns how much the sum has to shrink.
    pub(crate) fn settle(&mut self) -> usize {
        self.in_lots = false;
        self.keep(0)
    }

    /// Their number.
    pub(crate) const fn now(&self) -> usize {
        self.now
    }

    /// Returns whether the connection may take a further Call in when there are `all` pages
    /// together. `unanswered` says whether it has Calls that may still need some. Without
    /// `may_settle` it adds no surplus from now on: nobody would give it back.
    pub(crate) fn may_take_in(
        &mut self,
        quota: &Quota,
        all: u64,
        unanswered: bool,
        may_settle: bool,
    ) -> bool {
        self.in_lots = may_settle && all + 2 * (LOT as u64) < quota.all / 8;
        // Its own surplus is nobody else's.
        let used = all.saturating_sub((self.summed - self.now) as u64);
        let is_busy = self.now > 0 || unanswered;
        !is_busy || quota.allows(self.now, used)
    }

    /// Leaves a surplus of `lot`, which there is. Returns how much the sum has to shrink.
    fn keep(&mut self, lot: usize) -> usize {
        let summed = self.now + lot;
        core::mem::replace(&mut self.summed, summed) - summed
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_policy_budget)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_bound_for_each_and_for_all() {
        let quota = Quota { own: 10, all: 100 };
        assert!(quota.allows(0, 0));
        assert!(quota.allows(9, 90));
        assert!(quota.allows(0, 99));
        assert!(!quota.allows(10, 10));
        assert!(!quota.allows(0, 100));
        assert!(!quota.allows(0, 200));
    }

    /// However many take what they can get, each has the same, and there is as much for one more.
    #[test]
    fn what_is_left_is_a_share() {
        let quota = Quota {
            own: 1000,
            all: 1200,
        };
        for count in 1..12_usize {
            let mut pages = [0_usize; 12];
            let mut all = 0;
            for _ in 0..quota.all {
                for own in pages.iter_mut().take(count) {
                    if quota.allows(*own, all) {
                        *own += 1;
                        all += 1;
                    }
                }
            }
            let share = 1200 / (count + 1);
            for own in pages.iter().take(count) {
                assert!(own.abs_diff(share) <= 1);
            }
            assert!(quota.allows(share - count, all));
        }
    }

    /// Small transfers, one after the other, leave the sum alone, and what is left is given back.
    #[test]
    fn pages_are_summed_in_lots() {
        let mut pages = Pages::new();
        assert_eq!((pages.begin(3), pages.end(3)), (3, 3));
        pages.in_lots = true;
        assert_eq!(pages.begin(1), 1 + LOT);
        for _ in 0..1000 {
            assert_eq!((pages.begin(16), pages.end(16)), (0, 0));
        }
        assert_eq!((pages.end(1), pages.settle()), (0, 1 + LOT));
        assert_eq!((pages.now, pages.summed), (0, 0));
    }

    /// The sum has what there is, and two lots more at most; without lots what there is.
    #[test]
    fn a_part_of_the_sum_is_near_the_pages() {
        let mut pages = Pages::new();
        let mut sum = 0;
        for (step, count) in (0..3000_usize).zip((0..300).cycle()) {
            pages.in_lots = step % 7 < 5;
            if step % 2 == 0 {
                sum += pages.begin(count);
            } else {
                let was = pages.now;
                sum -= pages.end(count.min(was));
                let most = if pages.in_lots { 2 * LOT } else { 0 };
                assert!(sum - pages.now <= most);
            }
            assert!(sum == pages.summed && sum >= pages.now);
        }
        let rest = pages.now;
        sum -= pages.end(rest);
        assert_eq!(sum, pages.settle());
    }
}
