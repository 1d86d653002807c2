// SPDX-License-Identifier: GPL-2.0

//! Hosts whose clients break the rules again and again.
//!
//! A client that sends what it has no credits for is cut off at once, and may come again at once.
//! Each time a Queue Pair is made and destroyed, and what it has sent takes Receives that others
//! share. So a host has a few offences free, and some more with time. When it has none left, its
//! clients wait for their connections, and few of them are accepted in a second: see
//! [`Listening`](super::Listening). Nothing worse happens to the other clients at that host.
//! Clients at other hosts are not affected.

use crate::kext::prelude::*;
use crate::kext::time::{
    jiffies,
    HZ, //
};
use crate::rdma::cm::Host;

/// How many offences a host has free.
const FREE: usize = 16;

/// After how many jiffies it has another one.
const FORGIVEN: usize = if HZ > 4 { HZ / 4 } else { 1 };

/// For how many jiffies at most a host has something to be forgiven: longer would be no use.
const MOST: usize = 2 * FREE * FORGIVEN;

/// Hosts that are remembered. Of more than these the one is forgotten that will be forgiven first.
const HOSTS: usize = 64;

/// The hosts that have offended lately. The listener and its connections share it.
#[pin_data]
pub(super) struct Offenders {
    /// The hosts. Taken in process context.
    #[pin]
    hosts: SpinLock<Hosts>,
}

impl Offenders {
    /// There are none.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                hosts <- new_spinlock!(Hosts::NONE, "rpcrdma::Offenders::hosts"),
            }),
            GFP_KERNEL,
        )
    }

    /// A client at `host` has offended.
    pub(super) fn blame(&self, host: Host) {
        self.hosts.lock().blame(host, jiffies());
    }

    /// Returns whether clients at `host` wait for their connections.
    pub(super) fn has(&self, host: Host) -> bool {
        self.hosts.lock().has(host, jiffies())
    }
}

/// A host that has offended.
#[derive(Clone, Copy)]
struct Offender {
    /// The host.
    host: Host,
    /// When all is forgiven, in jiffies.
    forgiven: usize,
}

impl Offender {
    /// Returns for how many jiffies from `now` on it has something to be forgiven.
    fn rest(&self, now: usize) -> usize {
        let rest = self.forgiven.wrapping_sub(now);
        // All was forgiven before now, however long ago.
        if rest > MOST {
            0
        } else {
            rest
        }
    }
}

/// The hosts that have offended lately.
struct Hosts([Option<Offender>; HOSTS]);

impl Hosts {
    /// No hosts.
    const NONE: Self = Self([None; HOSTS]);

    /// A client at `host` offends at `now`.
    fn blame(&mut self, host: Host, now: usize) {
        let is_its = |place: &Option<Offender>| place.is_some_and(|other| other.host == host);
        let (mut best, mut least) = (0, usize::MAX);
        for (at, place) in self.0.iter().enumerate() {
            let rest = place.map_or(0, |other| other.rest(now));
            if is_its(place) {
                best = at;
                break;
            }
            if rest < least {
                (best, least) = (at, rest);
            }
        }
        let Some(place) = self.0.get_mut(best) else {
            return;
        };
        let rest = place
            .filter(|_| is_its(place))
            .map_or(0, |own| own.rest(now));
        let rest = rest.saturating_add(FORGIVEN).min(MOST);
        *place = Some(Offender {
            host,
            forgiven: now.wrapping_add(rest),
        });
    }

    /// Returns whether `host` has no offence free at `now`.
    fn has(&self, host: Host, now: usize) -> bool {
        self.0
            .iter()
            .flatten()
            .find(|other| other.host == host)
            .is_some_and(|other| other.rest(now) >= FREE * FORGIVEN)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_offenders)]
mod tests {
    use super::*;

    const HOST: Host = Host::Ipv4(1);
    const OTHER: Host = Host::Ipv6(1_u128.to_ne_bytes());

    #[test]
    fn some_offences_are_free() {
        // So that the clock passes its end.
        let now = usize::MAX - FORGIVEN / 2;
        let mut hosts = Hosts::NONE;
        for _ in 0..FREE {
            assert!(!hosts.has(HOST, now));
            hosts.blame(HOST, now);
        }
        assert!(hosts.has(HOST, now));
        assert!(!hosts.has(OTHER, now));
    }

    #[test]
    fn offences_are_forgiven() {
        let mut hosts = Hosts::NONE;
        for _ in 0..100 * FREE {
            hosts.blame(HOST, 0);
        }
        assert!(hosts.has(HOST, FREE * FORGIVEN));
        assert!(!hosts.has(HOST, FREE * FORGIVEN + 1));
        hosts.blame(HOST, FREE * FORGIVEN + 1);
        assert!(hosts.has(HOST, FREE * FORGIVEN + 1));
        assert!(!hosts.has(HOST, 2 * FREE * FORGIVEN + FORGIVEN + 1));
        hosts.blame(HOST, 100 * FREE * FORGIVEN);
        assert!(!hosts.has(HOST, 100 * FREE * FORGIVEN));
    }

    #[test]
    fn who_offends_most_is_not_forgotten() {
        let mut hosts = Hosts::NONE;
        for _ in 0..FREE {
            hosts.blame(HOST, 0);
        }
        for number in 0..10 * HOSTS as u128 {
            hosts.blame(Host::Ipv6(u128::to_ne_bytes(number)), 0);
        }
        assert!(hosts.has(HOST, 0));
    }
}
