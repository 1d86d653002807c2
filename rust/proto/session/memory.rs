// SPDX-License-Identifier: GPL-2.0

//! What a client remembers about a server, and the version that it offers next
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 4.3.2).

/// What became of an attempt to speak Version Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server has spoken Version Two.
    Spoken,
    /// The server has said that it does not.
    Refused,
    /// The connection was lost, or nothing came, before the server's first message.
    Lost,
}

/// What is known about a server.
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
    /// How many attempts in a row have to be lost before a server that has spoken Version Two is
    /// taken for one that does not any more.
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
}
