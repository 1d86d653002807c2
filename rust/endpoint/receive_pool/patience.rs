// SPDX-License-Identifier: GPL-2.0

//! A decision whether to wait for an event of a device, from experience.

use crate::kext::prelude::*;

/// The number of waits in vain, in a row, after which waiting is given up.
const MOST: u32 = 3;

/// The number of seconds after which it is tried again.
const REST: u64 = 600;

/// The number of waits in vain.
///
/// Nothing depends on it but how long the end of a connection takes, and what the device may lose
/// with it. So no lock is needed where connections end at the same time.
pub(super) struct Patience {
    /// The number of waits in vain, in a row.
    misses: Atomic<u32>,
    /// From which second on it is tried again, after [`MOST`] of them.
    again: Atomic<u64>,
}

impl Patience {
    /// Returns what has not waited yet.
    pub(super) fn new() -> Self {
        Self {
            misses: Atomic::new(0),
            again: Atomic::new(0),
        }
    }

    /// Returns whether to wait, in the second `now`.
    pub(super) fn waits(&self, now: u64) -> bool {
        self.misses.load(Relaxed) < MOST || now >= self.again.load(Relaxed)
    }

    /// Takes note that the device has `told`, or has not, until the second `now`.
    pub(super) fn waited(&self, told: bool, now: u64) {
        if told {
            self.misses.store(0, Relaxed);
        } else {
            self.again.store(now.saturating_add(REST), Relaxed);
            self.misses
                .store(self.misses.load(Relaxed).saturating_add(1), Relaxed);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[::kernel::macros::kunit_tests(rpcrdma_receive_pool_patience)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_up_after_some_misses_in_a_row() {
        let patience = Patience::new();
        for _ in 0..5 {
            for told in [false, false, true] {
                assert!(patience.waits(7));
                patience.waited(told, 7);
            }
        }
        for _ in 0..MOST {
            assert!(patience.waits(7));
            patience.waited(false, 7);
        }
        assert!(!patience.waits(7));
    }

    #[test]
    fn it_is_tried_again_after_a_while() {
        let patience = Patience::new();
        for _ in 0..MOST {
            patience.waited(false, 7);
        }
        assert!(!patience.waits(6 + REST));
        assert!(patience.waits(7 + REST));
        // Once, if that is in vain too.
        patience.waited(false, 7 + REST);
        assert!(!patience.waits(8 + REST));
        assert!(patience.waits(7 + 2 * REST));
        patience.waited(true, 7 + 2 * REST);
        assert!(patience.waits(8 + 2 * REST));
    }
}
