// SPDX-License-Identifier: GPL-2.0

//! Whose turn it is to be accepted when many wait.
//!
//! A host that asks for many connections at once would have all others wait for as long as it takes
//! to accept those. So hosts take turns: the next one is the host that has waited longest since its
//! last turn, and among its requests the oldest. Now and then it is the oldest of all.

use crate::kext::prelude::*;
use crate::rdma::cm::Host;

/// Hosts whose last turn is remembered. Of more than these the one that was longest ago is
/// forgotten.
const HOSTS: usize = 64;

/// One turn in this many goes to the request that has waited longest of all, so that none waits for
/// ever beside a host that asks by many addresses.
const OLDEST: u64 = 4;

/// The last turns of hosts.
pub(super) struct Turns {
    /// Hosts, each with the number of its last turn. With room for [`HOSTS`].
    hosts: KVec<(Host, u64)>,
    /// The number of turns so far.
    count: u64,
}

impl Turns {
    /// Nobody had a turn yet. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            hosts: KVec::with_capacity(HOSTS, GFP_KERNEL)?,
            count: 0,
        })
    }

    /// Returns the number of the last turn of `host`; zero if there was none, or it is forgotten.
    fn last(&self, host: Host) -> u64 {
        self.hosts
            .iter()
            .find(|(other, _)| *other == host)
            .map_or(0, |&(_, turn)| turn)
    }

    /// Returns which of the `waiting`, the oldest first, has the next turn.
    pub(super) fn next(&self, waiting: impl Iterator<Item = Host>) -> Option<usize> {
        let mut best = None;
        // Requests of a host come one after the other.
        let mut former = None;
        for (at, host) in waiting.enumerate() {
            let last = match former {
                Some((same, last)) if same == host => last,
                _ => self.last(host),
            };
            former = Some((host, last));
            if last == 0 || self.count % OLDEST == OLDEST - 1 {
                return Some(at);
            }
            if best.is_none_or(|(_, least)| last < least) {
                best = Some((at, last));
            }
        }
        best.map(|(at, _)| at)
    }

    /// Notes that `host` has a turn.
    pub(super) fn take(&mut self, host: Host) {
        self.count = self.count.saturating_add(1);
        let count = self.count;
        let own = self.hosts.iter_mut().find(|(other, _)| *other == host);
        if let Some((_, turn)) = own {
            *turn = count;
        } else if self.hosts.len() < HOSTS {
            // There is room.
            let _ = self.hosts.push_within_capacity((host, count));
        } else if let Some(oldest) = self.hosts.iter_mut().min_by_key(|(_, turn)| *turn) {
            *oldest = (host, count);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_turns)]
mod tests {
    use super::*;

    const fn host(number: u32) -> Host {
        Host::Ipv4(number)
    }

    /// Has one of the waiting take its turn, and returns it.
    fn step(turns: &mut Turns, waiting: &mut KVec<Host>) -> Option<Host> {
        let at = turns.next(waiting.iter().copied())?;
        let next = waiting.remove(at).ok()?;
        turns.take(next);
        Some(next)
    }

    #[test]
    fn who_comes_later_does_not_wait_for_all_of_another() -> Result {
        let mut turns = Turns::new()?;
        let mut waiting = KVec::new();
        for number in [1, 1, 1, 1, 2, 2, 3] {
            waiting.push(host(number), GFP_KERNEL)?;
        }
        for number in [1, 2, 3, 1, 2, 1, 1] {
            assert!(step(&mut turns, &mut waiting) == Some(host(number)));
        }
        assert!(step(&mut turns, &mut waiting).is_none());
        Ok(())
    }

    #[test]
    fn nobody_waits_for_ever_beside_ever_new_hosts() -> Result {
        let mut turns = Turns::new()?;
        turns.take(host(0));
        let mut waiting = KVec::new();
        waiting.push(host(0), GFP_KERNEL)?;
        for number in 1..=OLDEST as u32 {
            waiting.push(host(number), GFP_KERNEL)?;
            if step(&mut turns, &mut waiting) == Some(host(0)) {
                return Ok(());
            }
        }
        Err(ETIMEDOUT)
    }

    #[test]
    fn the_last_turns_are_those_remembered() -> Result {
        let mut turns = Turns::new()?;
        for number in 0..10 * HOSTS as u32 {
            turns.take(host(number));
            turns.take(host(0));
        }
        assert!(turns.next([host(0), host(1)].into_iter()) == Some(1));
        let last = 10 * HOSTS as u32 - 1;
        assert!(turns.next([host(last), host(0), host(last)].into_iter()) == Some(0));
        Ok(())
    }
}
