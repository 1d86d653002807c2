// SPDX-License-Identifier: GPL-2.0

//! Hosts that want connections, and a listener that accepts one at a time.

use crate::policy::accept::{
    Line,
    Newcomers,
    Turns,
    CROWD,
    FURTHER,
    PATIENCE, //
};
use std::collections::VecDeque;

/// The requests that wait, each by its host and the number of those accepted when it came.
#[derive(Default)]
struct Listener {
    first: VecDeque<(u32, u32)>,
    further: VecDeque<(u32, u32)>,
    turns: Turns,
    accepted: u32,
}

impl Listener {
    /// How many requests may wait.
    const PLACES: usize = 4096;

    /// Adds a request. Returns whether there is a place.
    fn add(&mut self, host: u32) -> bool {
        let all = self.first.iter().chain(&self.further);
        let same = all.filter(|(other, _)| *other == host).count();
        let full = self.first.len() + self.further.len() >= Self::PLACES;
        let request = (host, self.accepted);
        match Line::of(same, Self::PLACES) {
            Some(Line::First) if !full => self.first.push_back(request),
            Some(Line::Further) if !full => self.further.push_back(request),
            _ => return false,
        }
        true
    }

    /// Accepts one. Returns its host, and how many were accepted while it waited.
    fn accept(&mut self) -> Option<(u32, u32)> {
        let taken = match self.turns.next() {
            Line::First => self.first.pop_front().or_else(|| self.further.pop_front()),
            Line::Further => self.further.pop_front().or_else(|| self.first.pop_front()),
        };
        let (host, came) = taken?;
        let waited = self.accepted - came;
        self.accepted += 1;
        Some((host, waited))
    }
}

/// Host 0 asks for as many connections as it may have, all the time; a new host comes for each
/// `every` that are accepted. None of these waits for more than a few turns.
#[test]
fn a_host_that_asks_for_thousands_holds_up_nobody() {
    for every in 2..9 {
        let mut listener = Listener::default();
        while listener.add(0) {}
        assert_eq!(listener.further.len() + 1, Listener::PLACES / 2);
        let mut next = 1;
        for turn in 0..4 * Listener::PLACES as u32 {
            if turn % every == 0 {
                assert!(listener.add(next));
                next += 1;
            }
            let (host, waited) = listener.accept().expect("one waits");
            while listener.add(0) {}
            assert!(
                host == 0 || waited <= 2 * FURTHER,
                "{every}: {host} waited for {waited}"
            );
        }
    }
}

/// All clients of a server come back at once, after an outage, with a few connections each: every
/// host has its first one when four thirds of their number were accepted.
#[test]
fn all_hosts_come_back() {
    let (hosts, each) = (500, 4);
    let mut listener = Listener::default();
    for host in 0..hosts {
        for _ in 0..each {
            assert!(listener.add(host));
        }
    }
    let mut have = vec![0; hosts as usize];
    for _ in 0..hosts * FURTHER / (FURTHER - 1) + 1 {
        let (host, _) = listener.accept().expect("one waits");
        have[host as usize] += 1;
    }
    assert!(have.iter().all(|have| *have >= 1));
    while listener.accept().is_some() {}
    assert_eq!(listener.accepted, hosts * each);
}

/// A peer that asks from a new address each time does not starve the further requests of others.
#[test]
fn a_host_with_many_addresses_starves_nobody() {
    let mut listener = Listener::default();
    for _ in 0..16 {
        assert!(listener.add(1));
    }
    let mut own = 0;
    for address in 2..2 + 16 * FURTHER {
        while listener.first.len() < 64 {
            assert!(listener.add(address * 1000 + listener.first.len() as u32));
        }
        own += u32::from(listener.accept().is_some_and(|(host, _)| host == 1));
    }
    assert_eq!(own, 16);
}

/// Returns how many looks of the listener pass while it accepts `count` connections, next to
/// `silent` ones over TCP that stay and never show a file handle. Ours show one after `shows`
/// looks.
fn looks(count: u32, silent: u32, shows: usize) -> usize {
    const MOST: u32 = 64;
    let (mut now, mut newcomers) = (0, VecDeque::new());
    for _ in 0..count {
        newcomers.push_back(now + shows);
        for _ in 0..PATIENCE {
            newcomers.retain(|until| *until > now);
            let own = newcomers.len() as u32;
            let found = Newcomers {
                all: own + silent,
                own,
                // Those that stay are the oldest.
                oldest_is_own: silent == 0 && own > 0,
            };
            if !found.is_crowd(MOST) {
                break;
            }
            now += 1;
        }
    }
    now
}

/// Silent connections over TCP, however many, slow no mount down.
#[test]
fn silent_connections_over_other_transports_do_not_count() {
    for silent in [0, 24, 40, 63, 200] {
        assert_eq!(looks(50, silent, 0), 0);
        assert_eq!(looks(CROWD - 1, silent, 1000), 0);
    }
    // Ours that are silent themselves are accepted too, at a slower pace.
    let (count, rest) = (100, 100 - (CROWD as usize - 1));
    assert_eq!(looks(count, 0, 1_000_000), rest * PATIENCE as usize);
}
