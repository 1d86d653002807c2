// SPDX-License-Identifier: GPL-2.0

//! Pages that a client withholds: it does not answer the RDMA Reads into them, or does not take
//! the Writes and the Reply that they are for.
//!
//! What a client sets as the timeout of its requests is that of the server's QP too, and TCP waits
//! for a quarter of an hour. So the device may not give up on such a client for long. Its pages
//! are no harm while there are others; but when they are short, nobody has them back but by ending
//! the connection. A client that lives connects again, and sends its Calls again.

use crate::endpoint::Kept;
use crate::kext::prelude::*;

/// With how many checks in a row that find no page returned the pages are withheld. Checks are
/// [`CHECK_INTERVAL`](crate::link::channel::CHECK_INTERVAL) apart.
const CHECKS: u32 = 3;

/// Within how many checks a client has to return as many pages as it had, so that one who answers
/// a small RDMA Read now and then withholds the others all the same. A client that keeps 8 MiB
/// does so at 70 KB/s.
const SLOW_CHECKS: u32 = 12;

/// What the checks of a connection have found. There is one check at a time.
pub(super) struct Withheld {
    /// How many pages had been returned at the last check, modulo 2^32.
    returned: Atomic<u32>,
    /// How many checks have found no more than that.
    silent: Atomic<u32>,
    /// How many pages are still to be returned of as many as there were `slow` checks ago.
    owed: Atomic<u32>,
    /// How many checks have found some of these owed.
    slow: Atomic<u32>,
}

impl Withheld {
    /// There was no check yet.
    pub(super) const fn new() -> Self {
        Self {
            returned: Atomic::new(0),
            silent: Atomic::new(0),
            owed: Atomic::new(0),
            slow: Atomic::new(0),
        }
    }

    /// A check has found `kept`. Returns whether pages are withheld.
    pub(super) fn check(&self, kept: Kept) -> bool {
        let since = kept.returned.wrapping_sub(self.returned.load(Relaxed));
        let pages = u32::try_from(kept.pages).unwrap_or(u32::MAX);
        let silent = if pages > 0 && since == 0 {
            self.silent.load(Relaxed).saturating_add(1)
        } else {
            0
        };
        let (owed, slow) = match self.owed.load(Relaxed).saturating_sub(since) {
            0 => (pages, 0),
            _ if pages == 0 => (0, 0),
            owed => (owed, self.slow.load(Relaxed).saturating_add(1)),
        };
        self.returned.store(kept.returned, Relaxed);
        self.silent.store(silent, Relaxed);
        self.owed.store(owed, Relaxed);
        self.slow.store(slow, Relaxed);
        silent >= CHECKS || slow >= SLOW_CHECKS
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_withheld)]
mod tests {
    use super::*;

    /// Has a check find this. Returns what it says.
    fn check(withheld: &Withheld, pages: usize, returned: u32) -> bool {
        withheld.check(Kept { pages, returned })
    }

    #[test]
    fn who_returns_nothing_withholds() {
        let withheld = Withheld::new();
        for _ in 0..CHECKS {
            assert!(!check(&withheld, 5, 7));
        }
        assert!(check(&withheld, 5, 7));
        // As long as it goes on, since pages may be short later.
        assert!(check(&withheld, 9, 7));
        assert!(!check(&withheld, 9, 8));
    }

    #[test]
    fn who_has_nothing_withholds_nothing() {
        let withheld = Withheld::new();
        for _ in 0..2 * CHECKS {
            assert!(!check(&withheld, 0, 7));
        }
        // What was begun long after the last check is no older than this one.
        assert!(!check(&withheld, 1, 7));
    }

    #[test]
    fn who_returns_a_little_now_and_then_withholds_the_rest() {
        let withheld = Withheld::new();
        // Each check finds one page more, and another one in its place.
        for n in 1..=SLOW_CHECKS {
            assert!(!check(&withheld, 1000, n));
        }
        assert!(check(&withheld, 1000, SLOW_CHECKS + 1));
        // It is enough to return what there was at first.
        assert!(!check(&withheld, 1000, SLOW_CHECKS + 1000));
    }

    #[test]
    fn who_returns_as_much_as_it_has_withholds_nothing() {
        let withheld = Withheld::new();
        for n in 0..10 * SLOW_CHECKS {
            assert!(!check(&withheld, 1000, n * 90));
        }
        // Nothing is owed after a moment without pages.
        for n in 0..10 * SLOW_CHECKS {
            let pages = usize::from(n % SLOW_CHECKS != 0) * 1000;
            assert!(!check(&withheld, pages, 90_000 + n));
        }
    }
}
