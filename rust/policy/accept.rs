// SPDX-License-Identifier: GPL-2.0

//! The order in which requests to connect are accepted, and the pace.
//!
//! A host that asks for many connections at once must not delay the clients on other hosts for as
//! long as it takes to accept all of these. So a request from a host that has none waiting goes
//! before all further requests of any host. Every fourth request that is accepted is the oldest of
//! the further ones, so that they are not starved by a host that asks from many addresses.

/// One accepted request in this many is the oldest of those from hosts that had others waiting.
pub(crate) const FURTHER: u32 = 4;

/// With how many newcomers over RDMA among the connections of the service (see
/// [`Newcomers`]) the next request is accepted when they have become fewer, or after [`PATIENCE`]
/// looks. All others wait in the queue, which costs them little: SUNRPC has a limit of 64, and
/// would end those that have not had the time to say anything.
///
/// Newcomers over other transports do not count, however long they stay: SUNRPC ends the oldest
/// first. If there are so many that this is one of ours, that has [`PATIENCE`] looks as well.
pub(crate) const CROWD: u32 = 24;

/// See [`CROWD`].
pub(crate) const PATIENCE: u32 = 5;

/// Where a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Among the first requests of each host.
    First,
    /// Among all others.
    Further,
}

impl Line {
    /// Where a request waits whose host has `same` others waiting, when there are `places` for all
    /// hosts together; [`None`] if its host has no further one: no host has more than half.
    pub(crate) fn of(same: usize, places: usize) -> Option<Self> {
        match same {
            _ if same >= places / 2 => None,
            0 => Some(Self::First),
            _ => Some(Self::Further),
        }
    }
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The number of requests taken so far, modulo 2^32.
    taken: u32,
}

impl Turns {
    /// Returns the line that the next request is taken from. If it is empty, that is the other one.
    pub(crate) fn next(&mut self) -> Line {
        self.taken = self.taken.wrapping_add(1);
        if self.taken % FURTHER == 0 {
            Line::Further
        } else {
            Line::First
        }
    }
}

/// The connections of a service whose peers have not shown a file handle yet. If a connection comes
/// when there are more than `most`, SUNRPC ends the oldest of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Newcomers {
    /// Their number, over all transports of the service.
    pub(crate) all: u32,
    /// The number of those over RDMA.
    pub(crate) own: u32,
    /// Set if the oldest one is over RDMA.
    pub(crate) oldest_is_own: bool,
}

impl Newcomers {
    /// Returns whether another connection might cost one of ours its place before its peer has had
    /// the time to show a file handle, see [`CROWD`]. SUNRPC tolerates `most`.
    pub(crate) fn is_crowd(&self, most: u32) -> bool {
        self.own >= CROWD || self.all >= most && self.oldest_is_own
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_policy_accept)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn no_host_has_more_than_half_of_the_places() {
        assert_eq!(Line::of(0, 8), Some(Line::First));
        assert_eq!(Line::of(3, 8), Some(Line::Further));
        assert_eq!(Line::of(4, 8), None);
    }

    #[test]
    fn every_fourth_turn_is_for_further_requests() {
        let mut turns = Turns::default();
        for round in 0..3 * FURTHER {
            let further = turns.next() == Line::Further;
            assert_eq!(further, round % FURTHER == FURTHER - 1);
        }
    }

    /// Silent connections over TCP hold nobody up, until SUNRPC would end one of ours.
    #[test]
    fn newcomers_over_other_transports_are_no_crowd() {
        let found = |all, own, oldest_is_own| Newcomers {
            all,
            own,
            oldest_is_own,
        };
        assert!(!found(63, 23, true).is_crowd(64));
        assert!(found(24, 24, false).is_crowd(64));
        assert!(!found(64, 1, false).is_crowd(64));
        assert!(found(64, 1, true).is_crowd(64));
    }
}
