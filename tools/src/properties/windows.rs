// SPDX-License-Identifier: GPL-2.0

//! Every order in which two ends can send, grant and receive, tried out: nobody waits for ever,
//! nobody sends more than it may, and nobody talks without need.

use std::collections::{
    HashSet,
    VecDeque, //
};

use crate::proto::window::{
    Admission,
    Kind,
    ReceiveWindow,
    SendWindow, //
};

/// One end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct End {
    /// What it may send.
    outgoing: SendWindow,
    /// What it may receive.
    incoming: ReceiveWindow,
    /// What it still has to send: messages in so many parts.
    todo: VecDeque<u32>,
    /// How many Receives it will have, one after the other.
    offers: VecDeque<u32>,
    /// How many GRANTs it has sent.
    grants: u32,
    /// How many other messages it has sent.
    others: u32,
}

/// Two ends and what is on its way between them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Pair {
    /// The ends.
    ends: [End; 2],
    /// What was sent by each of them and has not been received: kinds and credit values.
    wires: [VecDeque<(Kind, u32)>; 2],
}

impl End {
    /// An end on a new connection.
    fn new(start: u32, peer_start: u32, offers: &[u32], todo: &[u32]) -> Self {
        Self {
            outgoing: SendWindow::after(start),
            incoming: ReceiveWindow::after(peer_start, offers[0]),
            todo: todo.iter().copied().collect(),
            offers: offers[1..].iter().copied().collect(),
            grants: 0,
            others: 0,
        }
    }
}

impl Pair {
    /// Has an end send messages of a kind, if it may.
    fn send(&self, from: usize, count: u32, kind: Kind) -> Option<Self> {
        let mut next = self.clone();
        let end = &mut next.ends[from];
        if end.outgoing.consume(count, kind) != Admission::Granted {
            return None;
        }
        match kind {
            Kind::Grant => end.grants += 1,
            Kind::Other => end.others += count,
        }
        let credits = end.incoming.tell();
        next.wires[from].extend((0..count).map(|_| (kind, credits)));
        Some(next)
    }

    /// Returns everything that can happen next.
    fn next(&self) -> Vec<Self> {
        let mut all = vec![];
        for (from, to) in [(0, 1), (1, 0)] {
            if let Some((kind, credits)) = self.wires[from].front().copied() {
                let mut next = self.clone();
                next.wires[from].pop_front();
                let before = next.ends[to].outgoing.limit();
                let end = &mut next.ends[to];
                assert!(end.incoming.receive(kind).is_ok(), "an overrun");
                end.outgoing.update(credits);
                assert!(
                    credits.wrapping_sub(before) < 0x8000_0000,
                    "a limit went back"
                );
                all.push(next);
            }
            if let Some(parts) = self.ends[from].todo.front().copied() {
                if let Some(mut next) = self.send(from, parts, Kind::Other) {
                    next.ends[from].todo.pop_front();
                    all.push(next);
                }
            }
            if self.ends[from].incoming.owes_grant() {
                all.extend(self.send(from, 1, Kind::Grant));
            }
            if let Some(offer) = self.ends[from].offers.front().copied() {
                let mut next = self.clone();
                next.ends[from].offers.pop_front();
                next.ends[from].incoming.set_offer(Some(offer));
                all.push(next);
            }
        }
        all
    }

    /// Tries out everything, and returns the number of states seen.
    fn explore(self) -> usize {
        let mut seen = HashSet::new();
        let mut todo = vec![self];
        while let Some(pair) = todo.pop() {
            if seen.contains(&pair) {
                continue;
            }
            let sent: u32 = pair.ends.iter().map(|end| end.others).sum();
            let changes = 2;
            for end in &pair.ends {
                // Two ends with nothing to say fall silent.
                assert!(
                    end.grants <= 2 * (sent + changes),
                    "too many GRANTs: {} and {} for {sent}",
                    pair.ends[0].grants,
                    pair.ends[1].grants
                );
            }
            let next = pair.next();
            if next.is_empty() {
                for end in &pair.ends {
                    assert!(end.todo.is_empty(), "an end waits for ever");
                    // It could send something more.
                    assert!(end.outgoing.available() > 0, "an end could not go on");
                }
            }
            seen.insert(pair);
            todo.extend(next);
        }
        seen.len()
    }
}

/// Explores two ends with so many Receives and so much to send, whose counters begin at `starts`.
/// Each of them is the client, and then the server.
fn explore_from(starts: (u32, u32), offers: [&[u32]; 2], todo: [&[u32]; 2]) -> usize {
    let ends = [
        End::new(starts.0, starts.1, offers[0], todo[0]),
        End::new(starts.1, starts.0, offers[1], todo[1]),
    ];
    let explore = |client: usize| {
        let mut ends = ends.clone();
        ends[client].outgoing = ends[client].outgoing.cautious();
        ends[1 - client].incoming = ends[1 - client].incoming.answering();
        let pair = Pair {
            ends,
            wires: Default::default(),
        };
        pair.explore()
    };
    explore(0) + explore(1)
}

/// The same where 2^31 and 2^32 are passed, one by each end.
fn explore(offers: [&[u32]; 2], todo: [&[u32]; 2]) -> usize {
    explore_from((0x7fff_fffe, 0xffff_fffd), offers, todo)
}

/// Where counters start does not matter.
#[test]
fn starting_points_are_equal() {
    for start in [0, 0x7fff_fffd, 0x7fff_ffff, 0xffff_fffe] {
        let seen = explore_from((start, 0), [&[2], &[3]], [&[1, 1], &[1, 1]]);
        assert_eq!(seen, explore([&[2], &[3]], [&[1, 1], &[1, 1]]));
        assert!(seen > 100);
    }
}

/// One message at a time, and windows of all small sizes.
#[test]
fn nobody_waits_for_ever() {
    for here in 1..=4 {
        for there in 1..=4 {
            explore([&[here], &[there]], [&[1, 1, 1], &[1, 1]]);
        }
        explore([&[here], &[1]], [&[1, 1, 1, 1, 1], &[]]);
    }
}

/// Sequences of several parts, the windows of both being spent meanwhile. More than one more than
/// half of a window may not be needed at once.
#[test]
fn sequences_do_not_deadlock() {
    for here in 3..=4 {
        for there in 3..=4 {
            let (ours, theirs) = (there / 2 + 1, here / 2 + 1);
            explore([&[here], &[there]], [&[1, ours, ours], &[1, theirs]]);
        }
        explore([&[here], &[1]], [&[1, 1], &[1, here / 2 + 1]]);
    }
}

/// Receives that run out and come back, as those of a shared queue do.
#[test]
fn starved_ends_go_on() {
    for offers in [[0, 1], [0, 3], [2, 1], [3, 1]] {
        for there in 1..=2 {
            explore([&offers, &[there]], [&[1, 1], &[1, 1]]);
        }
        explore([&offers, &offers], [&[1], &[1, 1]]);
    }
    explore([&[2, 0, 1], &[2]], [&[1], &[1, 1, 1]]);
    explore([&[2, 0, 1], &[0, 1]], [&[1], &[1, 1]]);
}
