// SPDX-License-Identifier: GPL-2.0

//! The hosts whose connections have ended, and may come again.
//!
//! After an outage all clients of a server ask for connections at the same time, and with them
//! clients that had none before. Where there are not Receives for all of them, those must come back
//! that have something mounted, whoever asks first. So what a connection had is kept for its host,
//! for an hour at least ([`KEPT_FOR`]) and two at most. Only that host may claim it.
//!
//! A client that unmounts ends its connection as one that loses it, so something is kept for
//! either; also for one whose old connection ends after it has made a new one. No more than half of
//! all Receives is kept, see [`Need`](crate::endpoint::receive_pool::Need). Nobody knows by which
//! of the devices a host comes, so the same number is kept on each.
//!
//! # Who owns what, and what ends it
//!
//! The module has one table, since the listeners end when the service is stopped. Its mutex is
//! taken where connections begin and end. An entry ends when its host has claimed all of it, when
//! its time is over, or when it is the oldest and there is no room for another host. The memory
//! ends with the module ([`forget`]).

use super::Host;
use crate::kext::prelude::*;
use crate::kext::time::seconds;

/// Hosts that are remembered.
const HOSTS: usize = 2048;

/// The length in seconds of a period, see [`Entry`].
const KEPT_FOR: u64 = 3600;

/// The most Receives that are kept for a host: enough for some mounts of several connections.
const MOST: u32 = 512;

/// A host and what is kept for it. At the end of a period what is old is not kept any more, and
/// what is new is old.
struct Entry {
    /// The host.
    host: Host,
    /// The second at which the period ends.
    until: u64,
    /// The Receives that were kept before the period.
    old: u32,
    /// Those that were kept in the period.
    new: u32,
}

impl Entry {
    /// Returns how many Receives are kept.
    fn receives(&self) -> u32 {
        self.old.saturating_add(self.new)
    }
}

/// The hosts for which something is kept.
struct Absent(KVVec<Entry>);

impl Absent {
    /// Forgets what was kept for too long at second `now`.
    fn refresh(&mut self, now: u64) {
        self.0.retain(|entry| {
            if entry.until <= now {
                let is_long_over = now - entry.until >= KEPT_FOR;
                entry.old = if is_long_over { 0 } else { entry.new };
                entry.new = 0;
                entry.until = entry.until.saturating_add(KEPT_FOR);
            }
            entry.receives() > 0
        });
    }

    /// Returns how many Receives are kept for all hosts, and from which second on none are if
    /// nothing happens.
    fn sum(&self) -> (u32, u64) {
        self.0.iter().fold((0, 0), |(sum, last), entry| {
            let end = entry.until + if entry.new > 0 { KEPT_FOR } else { 0 };
            (entry.receives().saturating_add(sum), last.max(end))
        })
    }

    /// Keeps `receives` more for `host`, if there is memory for the table.
    fn keep(&mut self, host: Host, receives: u32, now: u64) {
        if let Some(own) = self.0.iter_mut().find(|entry| entry.host == host) {
            let room = MOST.saturating_sub(own.receives());
            own.new = own.new.saturating_add(receives.min(room));
            return;
        }
        let entry = Entry {
            host,
            until: now.saturating_add(KEPT_FOR),
            old: 0,
            new: receives.min(MOST),
        };
        if let Err(error) = self.0.push_within_capacity(entry) {
            let oldest = self.0.iter_mut().min_by_key(|other| other.until);
            if let Some(oldest) = oldest {
                *oldest = error.0;
            }
        }
    }

    /// Gives `receives` of those that are kept for `host` to it. Returns whether there were as
    /// many.
    fn claim(&mut self, host: Host, receives: u32) -> bool {
        let own = self.0.iter_mut().find(|entry| entry.host == host);
        let Some(own) = own.filter(|own| own.receives() >= receives) else {
            return false;
        };
        let old = own.old.min(receives);
        own.old -= old;
        own.new -= receives - old;
        true
    }
}

kernel::sync::global_lock! {
    // SAFETY: `prepare` is called before there is a listener, and initializes it once.
    unsafe(uninit) static ABSENT: Mutex<Absent> = Absent(KVVec::new());
}

/// How many Receives are kept for all hosts. Written under the lock.
static KEPT: Atomic<u32> = Atomic::new(0);

/// The second from which on none are, if nothing happens. Written under the lock.
static UNTIL: Atomic<u64> = Atomic::new(0);

/// Initialises the table. Called before a listener can be made.
pub(crate) fn prepare() {
    static DONE: Atomic<u32> = Atomic::new(0);
    if DONE.xchg(1, Full) == 0 {
        // SAFETY: `DONE` was zero, so this is the first and only call.
        unsafe { ABSENT.init() };
    }
}

/// Makes the memory for the table, for the first listener of the module. Sleeps.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn make_room() -> Result {
    let mut absent = ABSENT.lock();
    if absent.0.capacity() == 0 {
        absent.0.reserve(HOSTS, GFP_KERNEL)?;
    }
    Ok(())
}

/// Frees that memory, at the end of the module. Sleeps.
pub(crate) fn forget() {
    *ABSENT.lock() = Absent(KVVec::new());
}

/// Returns how many Receives of a device are kept for hosts to come. Any context.
pub(crate) fn kept() -> u32 {
    match KEPT.load(Relaxed) {
        0 => 0,
        _ if UNTIL.load(Relaxed) <= seconds() => 0,
        kept => kept,
    }
}

/// Keeps `receives` for `host` for a while, since a connection of it that had them has ended.
/// Sleeps.
pub(crate) fn keep(host: Host, receives: u32) {
    with(|absent, now| absent.keep(host, receives, now));
}

/// Gives `receives` to `host`, if there are as many that are kept for it. Returns whether there
/// were. Sleeps.
pub(crate) fn claim(host: Host, receives: u32) -> bool {
    with(|absent, _| absent.claim(host, receives))
}

/// Does something with the table, from which that is gone whose time is over.
fn with<R>(work: impl FnOnce(&mut Absent, u64) -> R) -> R {
    let now = seconds();
    let mut absent = ABSENT.lock();
    absent.refresh(now);
    let result = work(&mut absent, now);
    let (sum, until) = absent.sum();
    UNTIL.store(until, Relaxed);
    KEPT.store(sum, Relaxed);
    result
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_absent)]
mod tests {
    use super::*;

    /// The number is that of the host.
    const fn host(number: u32) -> Host {
        Host::Ipv4(number)
    }

    /// Returns a table for `count` hosts.
    fn table(count: usize) -> Result<Absent> {
        Ok(Absent(KVVec::with_capacity(count, GFP_KERNEL)?))
    }

    #[test]
    fn what_a_host_had_is_for_it_only() -> Result {
        let mut absent = table(4)?;
        absent.keep(host(1), 5, 0);
        absent.keep(host(1), 13, 0);
        assert_eq!(absent.sum().0, 18);
        assert!(!absent.claim(host(2), 1));
        assert!(absent.claim(host(1), 13));
        assert!(!absent.claim(host(1), 6) && absent.claim(host(1), 5));
        assert!(!absent.claim(host(1), 1));
        absent.refresh(0);
        assert!(absent.0.is_empty());
        absent.keep(host(2), 7, 0);
        absent.keep(host(1), 7, 0);
        assert!(absent.claim(host(1), 7) && absent.claim(host(2), 7));
        Ok(())
    }

    #[test]
    fn it_is_kept_for_one_or_two_periods() -> Result {
        let mut absent = table(4)?;
        absent.keep(host(1), 5, 0);
        absent.refresh(KEPT_FOR - 1);
        absent.keep(host(1), 3, KEPT_FOR - 1);
        absent.keep(host(2), 1, KEPT_FOR - 1);
        absent.refresh(KEPT_FOR);
        assert_eq!(absent.sum(), (9, 3 * KEPT_FOR - 1));
        absent.keep(host(1), 2, KEPT_FOR);
        // A host claims first what was kept first.
        assert!(absent.claim(host(1), 4));
        absent.refresh(2 * KEPT_FOR);
        assert_eq!(absent.sum(), (3, 3 * KEPT_FOR));
        // A host that loses a connection now and then does not keep what it had once.
        absent.keep(host(1), 1, 2 * KEPT_FOR);
        absent.refresh(3 * KEPT_FOR);
        assert_eq!(absent.sum(), (1, 4 * KEPT_FOR));
        absent.refresh(5 * KEPT_FOR);
        assert!(absent.0.is_empty());
        Ok(())
    }

    #[test]
    fn it_is_not_kept_beyond_two_periods_if_nobody_looks() -> Result {
        let mut absent = table(4)?;
        absent.keep(host(1), 5, 0);
        absent.refresh(2 * KEPT_FOR);
        assert!(absent.0.is_empty());
        Ok(())
    }

    #[test]
    fn the_host_that_is_away_longest_is_forgotten_first() -> Result {
        let mut absent = table(4)?;
        let count = u32::try_from(absent.0.capacity())?;
        for number in 0..=count {
            absent.keep(host(number), 1, if number == 1 { 0 } else { 1 });
        }
        assert_eq!(absent.sum().0, count);
        assert!(!absent.claim(host(1), 1));
        assert!(absent.claim(host(0), 1) && absent.claim(host(count), 1));
        Ok(())
    }

    #[test]
    fn no_host_has_all() -> Result {
        let mut absent = table(4)?;
        absent.keep(host(1), MOST - 1, 0);
        absent.keep(host(1), 13, 0);
        absent.keep(host(2), u32::MAX, 0);
        assert_eq!(absent.sum().0, 2 * MOST);
        Ok(())
    }
}
