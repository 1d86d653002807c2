// SPDX-License-Identifier: GPL-2.0

//! The memory of a client for its servers, and the version that it offers next
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 4.3.2).

/// The outcome of an attempt to speak Version Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server has spoken Version Two.
    Spoken,
    /// The server has said that it does not.
    Refused,
    /// The connection was lost, or nothing came, before the server's first message.
    Lost,
}

/// The knowledge about a server.
///
/// Times are in a unit of the owner's choice, and count from a moment of its choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// It has spoken Version Two, and that many attempts in a row were lost since.
    spoken: Option<u32>,
    /// Until when it is taken for one that does not speak Version Two.
    one_until: Option<u64>,
}

impl Memory {
    /// The number of attempts in a row that must be lost before a server that has spoken Version
    /// Two is taken for one that does not any more.
    pub(crate) const MAX_LOST: u32 = 3;

    /// Returns whether to offer Version Two on a connection that is made now.
    pub(crate) fn offers_two(&self, now: u64) -> bool {
        self.one_until.is_none_or(|until| now >= until)
    }

    /// Takes note of what became of an attempt to speak Version Two, to be forgotten at `until` if
    /// it has failed.
    ///
    /// A lost connection proves little, so a server known to speak Version Two is given more than
    /// one.
    pub(crate) fn record(&mut self, outcome: Outcome, until: u64) {
        match (outcome, self.spoken) {
            (Outcome::Spoken, _) => {
                self.spoken = Some(0);
                self.one_until = None;
            }
            (Outcome::Lost, Some(lost)) if lost.saturating_add(1) < Self::MAX_LOST => {
                self.spoken = Some(lost.saturating_add(1));
            }
            (Outcome::Lost | Outcome::Refused, _) => {
                self.spoken = None;
                self.one_until = Some(until);
            }
        }
    }
}

/// One server in a [`Table`].
#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    /// Which one it is.
    server: K,
    /// The knowledge about it.
    memory: Memory,
    /// When it was learnt.
    since: u64,
    /// When an attempt was lost that counted.
    lost: Option<u64>,
}

/// When an attempt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// When it began.
    pub(crate) began: u64,
    /// When it was over.
    pub(crate) over: u64,
    /// Until when a failure must be remembered.
    pub(crate) until: u64,
}

/// The knowledge about the servers that were met last, `N` at most.
///
/// An entry is made when the first attempt with a server is over. It is never removed for its age
/// alone: a refusal in it counts until its own time is over, and that a server has spoken Version
/// Two is of use as long as there is room. The one that was learnt longest ago makes room for a new
/// one.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, const N: usize> {
    /// The entries, in no order.
    entries: [Option<Entry<K>>; N],
}

impl<K: Copy + PartialEq, const N: usize> Table<K, N> {
    /// Nothing is known.
    pub(crate) const fn new() -> Self {
        Self {
            entries: [const { None }; N],
        }
    }

    /// Returns whether to offer Version Two to a server now, see [`Memory::offers_two`].
    pub(crate) fn offers_two(&self, server: &K, now: u64) -> bool {
        let mut entries = self.entries.iter().flatten();
        let known = entries.find(|entry| entry.server == *server);
        known.is_none_or(|entry| entry.memory.offers_two(now))
    }

    /// Takes note of what became of an attempt with a server, see [`Memory::record`]. Several
    /// attempts at once that are lost, as when a server goes down, count as one.
    pub(crate) fn record(&mut self, server: &K, outcome: Outcome, attempt: &Attempt) {
        // The one that it is, or one that is free, or the oldest.
        let rank = |entry: &Option<Entry<K>>| match entry {
            Some(entry) if entry.server == *server => (0, 0),
            None => (1, 0),
            Some(entry) => (2, entry.since),
        };
        let Some(place) = self.entries.iter_mut().min_by_key(|entry| rank(entry)) else {
            return;
        };
        let (mut memory, mut lost) = match place {
            Some(entry) if entry.server == *server => (entry.memory, entry.lost),
            _ => (Memory::default(), None),
        };
        if outcome == Outcome::Lost {
            if lost.is_some_and(|lost| attempt.began <= lost) {
                return;
            }
            lost = Some(attempt.over);
        }
        memory.record(outcome, attempt.until);
        *place = Some(Entry {
            server: *server,
            memory,
            since: attempt.over,
            lost,
        });
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.entries.fill(None);
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_memory)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// Section 4.3.2: a refusal or a lost first message means no Version Two.
    #[test]
    fn failures_are_remembered_for_a_while() {
        for outcome in [Outcome::Refused, Outcome::Lost] {
            let mut memory = Memory::default();
            assert!(memory.offers_two(0));
            memory.record(outcome, 100);
            assert!(!memory.offers_two(0));
            assert!(!memory.offers_two(99));
            assert!(memory.offers_two(100));
        }
    }

    /// One lost connection does not downgrade a server that has spoken Version Two.
    #[test]
    fn a_lost_connection_proves_little() {
        let mut memory = Memory::default();
        memory.record(Outcome::Spoken, 100);
        memory.record(Outcome::Lost, 100);
        memory.record(Outcome::Lost, 100);
        assert!(memory.offers_two(0));
        memory.record(Outcome::Lost, 100);
        assert!(!memory.offers_two(0));

        // What it says counts at once.
        memory.record(Outcome::Spoken, 100);
        assert!(memory.offers_two(0));
        memory.record(Outcome::Refused, 100);
        assert!(!memory.offers_two(0));
        // After that it is like any other.
        memory.record(Outcome::Lost, 200);
        assert!(!memory.offers_two(150));
    }

    /// An attempt that begins and ends at a moment, and is remembered for a hundred.
    const fn at(now: u64) -> Attempt {
        Attempt {
            began: now,
            over: now,
            until: now.saturating_add(100),
        }
    }

    /// What one connection has found out about a server holds for the next one, and not for other
    /// servers.
    #[test]
    fn servers_are_remembered_apart() {
        let mut table = Table::<u32, 4>::new();
        assert!(table.offers_two(&1, 0));
        table.record(&1, Outcome::Refused, &at(0));
        table.record(&2, Outcome::Spoken, &at(0));
        for (server, now, expected) in
            [(1, 50, false), (2, 50, true), (3, 50, true), (1, 100, true)]
        {
            assert_eq!(table.offers_two(&server, now), expected);
        }
        // It has spoken Version Two: one lost connection does not change that.
        table.record(&2, Outcome::Lost, &at(60));
        assert!(table.offers_two(&2, 61));
        // The others take no notice of what is learnt anew.
        table.record(&1, Outcome::Spoken, &at(70));
        assert!(table.offers_two(&1, 71) && table.offers_two(&2, 71));
        table.record(&3, Outcome::Lost, &at(80));
        assert!(!table.offers_two(&3, 81));
        table.clear();
        assert!(table.offers_two(&3, 81));
    }

    /// A server that goes down takes all its connections with it, and may be back soon.
    #[test]
    fn losses_at_once_count_as_one() {
        let mut table = Table::<u32, 4>::new();
        table.record(&1, Outcome::Spoken, &at(0));
        let lost = |began, over| Attempt {
            began,
            over,
            until: 1000,
        };
        for _ in 0..16 {
            table.record(&1, Outcome::Lost, &lost(10, 15));
        }
        assert!(table.offers_two(&1, 16));
        table.record(&1, Outcome::Lost, &lost(16, 20));
        table.record(&1, Outcome::Lost, &lost(17, 21));
        assert!(table.offers_two(&1, 22));
        table.record(&1, Outcome::Lost, &lost(22, 23));
        assert!(!table.offers_two(&1, 24));
    }

    /// There is an end to what is kept.
    #[test]
    fn the_oldest_server_makes_room() {
        let mut table = Table::<u32, 4>::new();
        for (server, now) in [(1, 1), (2, 2), (3, 3), (4, 4), (1, 5)] {
            table.record(&server, Outcome::Refused, &at(now));
        }
        table.record(&5, Outcome::Refused, &at(6));
        for (server, known) in [(1, true), (2, false), (3, true), (4, true), (5, true)] {
            assert_eq!(table.offers_two(&server, 7), !known);
        }
        let mut none = Table::<u32, 0>::new();
        none.record(&1, Outcome::Refused, &at(1));
        assert!(none.offers_two(&1, 2));
    }
}
