// SPDX-License-Identifier: GPL-2.0

//! Fences that are not done in time.
//!
//! A fence is done after all that was posted before it. There may be a Send among that for which
//! the peer has no Receive, and a peer that never has one is waited for without end: it may set
//! the count of repetitions to *for ever*. Meanwhile the RPC is not completed, and whoever ends it
//! waits; on a server that may be all threads, one after the other. So a connection with such a
//! fence ends. That puts its QP into error, and the fence is done.

use super::{
    Host,
    Requester, //
};
use crate::kext::prelude::*;
use crate::link::channel::CHECK_INTERVAL;

/// For how long a Call may wait for its fence, in jiffies, before the check that finds it late. A
/// peer that takes messages is faster by orders of magnitude.
const PATIENCE: usize = CHECK_INTERVAL;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fences {
    /// No Call waits for its fence.
    None,
    /// Some do, not for long. [`Host::watch`] has to be called again.
    Waiting,
    /// One does that is late. The connection has to end.
    Late,
}

impl Fences {
    /// Returns what it means that a Call has waited for its fence for `waited` jiffies, if it does.
    /// `again` is set if another check has found it waiting: after a machine has stood still, the
    /// check may come before completions that are there.
    fn of(waited: Option<usize>, again: bool) -> Self {
        match waited {
            None => Self::None,
            Some(PATIENCE..) if again => Self::Late,
            Some(_) => Self::Waiting,
        }
    }
}

impl<T: Host> Requester<T> {
    /// A Call is about to wait for its fence: has the fences checked, unless that is arranged.
    /// Must not sleep.
    #[inline]
    pub(super) fn watch_fences(this: &Arc<T>) {
        let watched = &this.requester().fences_watched;
        if !watched.load(Relaxed) && !watched.xchg(true, Relaxed) {
            T::watch(this);
        }
    }

    /// Looks whether Calls wait for their fences. To be called by each check.
    pub(crate) fn check_fences(&self) -> Fences {
        // A fence that is posted after its Call was looked at arranges the next check itself: the
        // Call's lock makes this visible there.
        self.fences_watched.store(false, Relaxed);
        let calls = self.slots.iter().map(|slot| &slot.call);
        let found = calls.map(|call| {
            let (waited, again) = call.look_at_fence();
            Fences::of(waited, again)
        });
        let found = found.max();
        found.unwrap_or(Fences::None)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_requester_fences)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_late_after_a_while() {
        let found = |waited| [false, true].map(|again| Fences::of(waited, again));
        assert!(found(None) == [Fences::None; 2]);
        assert!(found(Some(0)) == [Fences::Waiting; 2]);
        assert!(found(Some(PATIENCE - 1)) == [Fences::Waiting; 2]);
        assert!(found(Some(PATIENCE)) == [Fences::Waiting, Fences::Late]);
        // What is worst counts.
        assert!(Fences::Late > Fences::Waiting && Fences::Waiting > Fences::None);
    }
}
