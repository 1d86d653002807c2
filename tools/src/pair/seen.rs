// SPDX-License-Identifier: GPL-2.0

//! What has happened in a run.

/// What has happened, to see that a schedule reaches what it is meant to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// RPCs that ended with their Reply.
    pub replied: u32,
    /// RPCs that ended with an error.
    pub failed: u32,
    /// RPC messages that were sent in parts.
    pub continued: u32,
    /// RPC messages that were sent in a chunk.
    pub external: u32,
    /// Messages that had to wait for credits.
    pub waits: u32,
    /// Messages that were too long for the window.
    pub too_long: u32,
    /// Messages that the client does not support.
    pub unsupported: u32,
    /// GRANTs.
    pub grants: u32,
    /// Errors.
    pub errors: u32,
    /// Connections that were lost while RPCs were pending.
    pub lost: u32,
    /// Messages that were sent while the same transaction ID was in use in the other direction.
    pub same_xid: u32,
    /// Times that a server has added Receives.
    pub grown: u32,
    /// Times that a server has withdrawn credits.
    pub withdrawn: u32,
    /// Receives of withdrawn credits that were given back.
    pub settled: u32,
    /// Times that both ends had a message in parts and no credits for it.
    pub both_wait: u32,
    /// Messages after which an end had nothing to say.
    pub quiet: u32,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.replied += other.replied;
        self.failed += other.failed;
        self.continued += other.continued;
        self.external += other.external;
        self.waits += other.waits;
        self.too_long += other.too_long;
        self.unsupported += other.unsupported;
        self.grants += other.grants;
        self.errors += other.errors;
        self.lost += other.lost;
        self.same_xid += other.same_xid;
        self.grown += other.grown;
        self.withdrawn += other.withdrawn;
        self.settled += other.settled;
        self.both_wait += other.both_wait;
        self.quiet += other.quiet;
    }
}

/// What has gone wrong, and what came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mishaps {
    /// Connections the ends of which have no version in common.
    pub mismatches: u32,
    /// Connections on which a client went back to Version One.
    pub fallbacks: u32,
    /// RPC messages of Version One.
    pub in_one: u32,
    /// Ends that fell silent.
    pub silent: u32,
    /// First messages that were others than expected.
    pub strange: u32,
    /// First messages that were lost with the connection.
    pub first_lost: u32,
    /// CONNPROP messages of ends that authenticate.
    pub sayings: u32,
    /// Timers that have ended a connection, or its end: of the first message, of a sequence, of
    /// credits, and of the last messages.
    pub timeouts: [u32; 4],
    /// Clients that a server has refused for want of a proof.
    pub unproved: u32,
    /// Connections that an owner has ended.
    pub ended: u32,
    /// Sessions that have ended the connection, for whatever reason.
    pub closed: u32,
}

impl std::ops::AddAssign for Mishaps {
    fn add_assign(&mut self, other: Self) {
        self.mismatches += other.mismatches;
        self.fallbacks += other.fallbacks;
        self.in_one += other.in_one;
        self.silent += other.silent;
        self.strange += other.strange;
        self.first_lost += other.first_lost;
        self.sayings += other.sayings;
        for (sum, count) in self.timeouts.iter_mut().zip(other.timeouts) {
            *sum += count;
        }
        self.unproved += other.unproved;
        self.ended += other.ended;
        self.closed += other.closed;
    }
}
