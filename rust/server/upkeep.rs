// SPDX-License-Identifier: GPL-2.0

//! Whether a connection has anything that a check would take back: pages, what the sum of pages has
//! for it in advance, Send buffers, or Receives for credits that were withdrawn.

use crate::kext::barrier::smp_mb;
use crate::kext::prelude::*;

/// Nothing, as far as the last check knows.
const IDLE: u32 = 0;
/// Something, and nobody checks.
const DUE: u32 = 1;
/// There will be a check.
const WATCHED: u32 = 2;

/// Whether a check is due.
///
/// # Why nothing is left unchecked
///
/// Send buffers are added under the lock of the Send Queue, before [`Self::begin`], and so is what
/// the sum of pages has in advance; credits are withdrawn under the lock of the channel. A check
/// forgets first that there is one, and looks for them then, under the same lock. So it sees them,
/// or the thread that begins does not see the check. Pages are left to the peer without a lock, but
/// with a barrier, as the check has one.
pub(super) struct Upkeep(Atomic<u32>);

impl Upkeep {
    /// There is nothing to check.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(IDLE))
    }

    /// There is something.
    pub(super) fn begin(&self) {
        if self.0.load(Relaxed) == IDLE {
            self.0.store(DUE, Relaxed);
        }
    }

    /// Returns whether somebody has to see to it that there is a check. The caller does.
    pub(super) fn wants_check(&self) -> bool {
        let wants = self.0.load(Relaxed) == DUE;
        if wants {
            self.0.store(WATCHED, Relaxed);
        }
        wants
    }

    /// Has `check` look. Returns what it says: whether there is still something, so that the caller
    /// sees to a further check.
    pub(super) fn check(&self, check: impl FnOnce() -> bool) -> bool {
        self.0.store(IDLE, Relaxed);
        smp_mb();
        let again = check();
        if again {
            self.0.store(WATCHED, Relaxed);
        }
        again
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_upkeep)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_is_checked_once() {
        let upkeep = Upkeep::new();
        assert!(!upkeep.wants_check());
        upkeep.begin();
        assert!(upkeep.wants_check() && !upkeep.wants_check());
        upkeep.begin();
        assert!(!upkeep.wants_check());
        // There will be another one.
        assert!(upkeep.check(|| true));
        upkeep.begin();
        assert!(!upkeep.wants_check());
        assert!(!upkeep.check(|| false));
        upkeep.begin();
        assert!(upkeep.wants_check());
    }

    /// Whatever is begun while a check looks is seen by it, or checked once more.
    #[test]
    fn what_is_begun_meanwhile_is_not_lost() {
        let upkeep = Upkeep::new();
        assert!(!upkeep.check(|| {
            upkeep.begin();
            false
        }));
        assert!(upkeep.wants_check());
    }
}
