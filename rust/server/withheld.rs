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

/// What the checks of a connection have found. There is one check at a time.
pub(super) struct Withheld {
    /// How many times pages had been returned at the last check.
    returned: Atomic<u32>,
    /// How many checks have found no more than that.
    silent: Atomic<u32>,
}

impl Withheld {
    /// There was no check yet.
    pub(super) const fn new() -> Self {
        Self {
            returned: Atomic::new(0),
            silent: Atomic::new(0),
        }
    }

    /// A check has found `kept`. Returns whether pages are withheld.
    pub(super) fn check(&self, kept: Kept) -> bool {
        let Kept { pages, returned } = kept;
        let silent = if pages > 0 && self.returned.load(Relaxed) == returned {
            self.silent.load(Relaxed).saturating_add(1)
        } else {
            0
        };
        self.returned.store(returned, Relaxed);
        self.silent.store(silent, Relaxed);
        silent >= CHECKS
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
}
