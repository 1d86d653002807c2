// SPDX-License-Identifier: GPL-2.0

//! A peer that was written from the text of draft-ietf-nfsv4-rpcrdma-version-two-07 alone, and what
//! becomes of RPCs between it and the module.
//!
//! Where the text leaves something open, contradicts itself or can be misread, a [`Reading`] has a
//! switch. The peer does its own encoding ([`wire`]) and its own bookkeeping ([`peer`]), so that a
//! misreading on one side is not one on both. Opposite to it is the module's `proto::connection`
//! with an owner that does what the module does with it ([`ours`]).
//!
//! Which part of a continued Reply invalidates is not among the switches: that is an event of the
//! verbs, of which `proto` knows nothing.

mod ours;
mod peer;
mod run;
mod wire;

pub use self::run::{
    run,
    Fate,
    Load, //
};

/// What makes the credit value that a peer sends, besides the credits it advertises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The messages that it has received. No rule says so, but the count is of no other use.
    Received,
    /// The messages that it has sent: the words of 4.2.1.
    Sent,
}

/// What `rdma_remaining` counts: "the number of bytes … that remain to be sent" (6.3.6, 6.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remaining {
    /// Those of later messages.
    Later,
    /// Those of this message too.
    Own,
    /// Those of later messages, and of the data that chunks move.
    Unreduced,
}

/// The header type with which a peer opens: "a single valid RPC-over-RDMA message" (4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// CONNPROP_FINAL.
    Properties,
    /// GRANT.
    Grant,
    /// CONNPROP_MIDDLE without properties.
    Middle,
    /// A Call, of a client.
    Call,
}

/// When a peer tells its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// At once.
    First,
    /// After some RPCs.
    Late,
    /// Not at all: the defaults hold (4.2.2).
    Never,
}

/// A reading of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The peer is the client.
    pub is_client: bool,
    /// What the credit value counts.
    pub counted: Counted,
    /// A message is posted unless the count of sent messages is *greater* than the credits (4.2.1);
    /// else only while it is less.
    pub greater: bool,
    /// GRANT, ERROR and CONNPROP are in the counts: "the total number of RDMA Send channel
    /// operations".
    pub counts_control: bool,
    /// Credits are renewed before half of them are used, without a message that carries them
    /// anyway: "a good receiver implementation" (4.2.1.1).
    pub renews: bool,
    /// What `rdma_remaining` counts.
    pub remaining: Remaining,
    /// A GRANT may come between two parts.
    pub grants_between: bool,
    /// A sequence is begun with credits for its first part, and waits for others in the middle.
    pub pauses: bool,
    /// The first message.
    pub first: First,
    /// When the properties are told.
    pub told: Told,
    /// Headers with at most two segments of at most 4096 octets are accepted (5.2.3, 5.2.4).
    pub few_segments: bool,
    /// Seconds before a server sends its first message.
    pub answers_after: u32,
}

impl Reading {
    /// What the module does itself.
    pub const OURS: Self = Self {
        is_client: true,
        counted: Counted::Received,
        greater: false,
        counts_control: true,
        renews: true,
        remaining: Remaining::Later,
        grants_between: false,
        pauses: false,
        first: First::Properties,
        told: Told::First,
        few_segments: false,
        answers_after: 0,
    };

    /// Returns why the text does not allow this reading, if it does not.
    pub fn objection(&self) -> Option<&'static str> {
        if !self.counts_control {
            return Some("4.2.1: the counts are of \"the total number\" of Sends and Receives");
        }
        if self.grants_between {
            return Some("6.3.6, 6.3.9: anything else than a further part \"MUST\" be refused");
        }
        None
    }

    /// Returns why not every RPC ends well with this reading, although the text allows it.
    pub fn unserved(&self) -> Option<&'static str> {
        if self.is_client && self.remaining == Remaining::Unreduced {
            return Some("with its data, a Call counts as longer than may come in parts");
        }
        if self.counted == Counted::Sent && self.is_client && !self.renews {
            return Some("each Reply in parts takes credits that nothing brings back");
        }
        if self.counted == Counted::Sent && !self.is_client && self.few_segments && !self.renews {
            return Some("each Call in parts takes credits that nothing brings back");
        }
        None
    }

    /// Returns all readings, those that the text does not allow included.
    pub fn all() -> Vec<Self> {
        let mut all = vec![];
        let flags = [false, true];
        for bits in 0..1_u32 << 8 {
            let flag = |index: u32| flags[(bits >> index) as usize & 1];
            for remaining in [Remaining::Later, Remaining::Own, Remaining::Unreduced] {
                for first in [First::Properties, First::Grant, First::Middle, First::Call] {
                    for told in [Told::First, Told::Late, Told::Never] {
                        let is_client = flag(0);
                        // A server speaks when it is spoken to; the first of its properties comes
                        // first.
                        let is_possible = match first {
                            First::Properties => told == Told::First,
                            First::Middle => told == Told::First,
                            First::Call => is_client && told != Told::First,
                            First::Grant => told != Told::First,
                        };
                        let answers_after = if !is_client && flag(7) { 20 } else { 0 };
                        if !is_possible || (is_client && flag(7)) {
                            continue;
                        }
                        all.push(Self {
                            is_client,
                            counted: if flag(1) {
                                Counted::Sent
                            } else {
                                Counted::Received
                            },
                            greater: flag(2),
                            counts_control: !flag(3),
                            renews: !flag(4),
                            remaining,
                            grants_between: flag(5),
                            pauses: flag(6),
                            first,
                            told,
                            few_segments: told == Told::First && bits.count_ones() % 2 == 1,
                            answers_after,
                        });
                    }
                }
            }
        }
        all
    }
}
