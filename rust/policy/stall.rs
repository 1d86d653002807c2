// SPDX-License-Identifier: GPL-2.0

//! Pages that a client withholds: it does not answer the RDMA Reads into them, or does not take
//! the Writes and the Reply that they are for.
//!
//! What a client sets as the timeout of its requests is that of the server's QP too, and TCP waits
//! for a quarter of an hour. So the device may not give up on such a client for long. Its pages
//! are no harm while there are others; but when they are short, nobody has them back but by ending
//! the connection. A client that lives connects again, and sends its Calls again.

/// With how many checks in a row that find no page returned the pages are withheld. Checks are
/// [`CHECK_INTERVAL`](crate::proto::connection::watchdog::CHECK_INTERVAL) seconds apart.
const CHECKS: u32 = 3;

/// Within how many checks a client has to return as many pages as it had, so that one who answers
/// a small RDMA Read now and then withholds the others all the same. A client that keeps 8 MiB
/// does so at 70 KB/s.
const SLOW_CHECKS: u32 = 12;

/// The pages of a connection that the peer keeps at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Their number.
    pub(crate) pages: usize,
    /// How many the peer had let go until then, modulo 2^32.
    pub(crate) returned: u32,
}

/// What the checks of a connection have found.
#[derive(Debug, Default)]
pub(crate) struct StallDetector {
    /// How many pages had been returned at the last check, modulo 2^32.
    returned: u32,
    /// How many checks have found no more than that.
    silent: u32,
    /// How many pages are still to be returned of as many as there were `slow` checks ago.
    owed: u32,
    /// How many checks have found some of these owed.
    slow: u32,
}

impl StallDetector {
    /// A check has found `kept`. Returns whether pages are withheld.
    pub(crate) fn check(&mut self, kept: Kept) -> bool {
        let since = kept.returned.wrapping_sub(self.returned);
        let pages = u32::try_from(kept.pages).unwrap_or(u32::MAX);
        self.returned = kept.returned;
        self.silent = if pages > 0 && since == 0 {
            self.silent.saturating_add(1)
        } else {
            0
        };
        (self.owed, self.slow) = match self.owed.saturating_sub(since) {
            0 => (pages, 0),
            _ if pages == 0 => (0, 0),
            owed => (owed, self.slow.saturating_add(1)),
        };
        self.silent >= CHECKS || self.slow >= SLOW_CHECKS
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_policy_stall)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// Has a check find this. Returns what it says.
    fn check(withheld: &mut StallDetector, pages: usize, returned: u32) -> bool {
        withheld.check(Kept { pages, returned })
    }

    #[test]
    fn who_returns_nothing_withholds() {
        let mut withheld = StallDetector::default();
        for _ in 0..CHECKS {
            assert!(!check(&mut withheld, 5, 7));
        }
        assert!(check(&mut withheld, 5, 7));
        // As long as it goes on, since pages may be short later.
        assert!(check(&mut withheld, 9, 7));
        assert!(!check(&mut withheld, 9, 8));
    }

    #[test]
    fn who_has_nothing_withholds_nothing() {
        let mut withheld = StallDetector::default();
        for _ in 0..2 * CHECKS {
            assert!(!check(&mut withheld, 0, 7));
        }
        // What was begun long after the last check is no older than this one.
        assert!(!check(&mut withheld, 1, 7));
    }

    #[test]
    fn who_returns_a_little_now_and_then_withholds_the_rest() {
        let mut withheld = StallDetector::default();
        // Each check finds one page more, and another one in its place.
        for n in 1..=SLOW_CHECKS {
            assert!(!check(&mut withheld, 1000, n));
        }
        assert!(check(&mut withheld, 1000, SLOW_CHECKS + 1));
        // It is enough to return what there was at first.
        assert!(!check(&mut withheld, 1000, SLOW_CHECKS + 1000));
    }

    #[test]
    fn who_returns_as_much_as_it_has_withholds_nothing() {
        let mut withheld = StallDetector::default();
        for n in 0..10 * SLOW_CHECKS {
            assert!(!check(&mut withheld, 1000, n * 90));
        }
        // Nothing is owed after a moment without pages.
        for n in 0..10 * SLOW_CHECKS {
            let pages = usize::from(n % SLOW_CHECKS != 0) * 1000;
            assert!(!check(&mut withheld, pages, 90_000 + n));
        }
    }
}
