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

/// Nothing is under way, as far as the last check knows.
const IDLE: u32 = 0;
/// Something was begun, and nobody checks.
const BEGUN: u32 = 1;
/// There will be a check.
const WATCHED: u32 = 2;

/// What the checks of a connection have found.
///
/// # Why whatever is begun is checked
///
/// Pages count, under the lock of the Send Queue, before [`Self::begin`]. A check forgets first
/// that there is one, and looks for pages then, under the same lock. So it sees them, or who begins
/// does not see the check.
pub(super) struct Withheld {
    /// One of the states.
    state: Atomic<u32>,
    /// How many times pages had been returned at the last check. For checks only, of which there is
    /// one at a time.
    returned: Atomic<u32>,
    /// How many checks have found no more than that. For checks only.
    silent: Atomic<u32>,
}

impl Withheld {
    /// Nothing is under way.
    pub(super) const fn new() -> Self {
        Self {
            state: Atomic::new(IDLE),
            returned: Atomic::new(0),
            silent: Atomic::new(0),
        }
    }

    /// RDMA Reads or Writes are under way.
    pub(super) fn begin(&self) {
        if self.state.load(Relaxed) == IDLE {
            self.state.store(BEGUN, Relaxed);
        }
    }

    /// Returns whether somebody has to see to it that there is a check. The caller does.
    pub(super) fn wants_check(&self) -> bool {
        let wants = self.state.load(Relaxed) == BEGUN;
        if wants {
            self.state.store(WATCHED, Relaxed);
        }
        wants
    }

    /// Checks what `kept` says. Returns whether there is to be a further check, and whether pages
    /// are withheld.
    pub(super) fn check(&self, kept: impl FnOnce() -> Kept) -> (bool, bool) {
        self.state.store(IDLE, Relaxed);
        let Kept { pages, returned } = kept();
        let silent = match pages > 0 && self.returned.load(Relaxed) == returned {
            true => self.silent.load(Relaxed).saturating_add(1),
            false => 0,
        };
        self.returned.store(returned, Relaxed);
        self.silent.store(silent, Relaxed);
        if pages > 0 {
            self.state.store(WATCHED, Relaxed);
        }
        (pages > 0, silent >= CHECKS)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_withheld)]
mod tests {
    use super::*;

    /// Has a check find this. Returns what it says.
    fn check(withheld: &Withheld, pages: usize, returned: u32) -> (bool, bool) {
        withheld.check(|| Kept { pages, returned })
    }

    #[test]
    fn who_returns_nothing_withholds() {
        let withheld = Withheld::new();
        for _ in 0..CHECKS {
            assert_eq!(check(&withheld, 5, 7), (true, false));
        }
        assert_eq!(check(&withheld, 5, 7), (true, true));
        // As long as it goes on, since pages may be short later.
        assert_eq!(check(&withheld, 9, 7), (true, true));
        assert_eq!(check(&withheld, 9, 8), (true, false));
    }

    #[test]
    fn who_has_nothing_withholds_nothing() {
        let withheld = Withheld::new();
        for _ in 0..2 * CHECKS {
            assert_eq!(check(&withheld, 0, 7), (false, false));
        }
        // What was begun long after the last check is no older than this one.
        assert_eq!(check(&withheld, 1, 7).1, false);
    }

    #[test]
    fn what_is_begun_is_checked_once() {
        let withheld = Withheld::new();
        assert!(!withheld.wants_check());
        withheld.begin();
        assert!(withheld.wants_check() && !withheld.wants_check());
        withheld.begin();
        assert!(!withheld.wants_check());
        // There will be another one.
        assert_eq!(check(&withheld, 1, 0), (true, false));
        withheld.begin();
        assert!(!withheld.wants_check());
        assert_eq!(check(&withheld, 0, 1), (false, false));
        withheld.begin();
        assert!(withheld.wants_check());
    }
}
