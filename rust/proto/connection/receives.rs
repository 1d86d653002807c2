// SPDX-License-Identifier: GPL-2.0

//! The Receives that serve the peer's messages, and what the peer was promised of them.
//!
//! [`Allowance`] counts credits. Each of them stands for a Receive, and there are others beside:
//! one that is promised to nobody (see [`window`]), and one for each Reply to a Call of ours.
//! Credits are added when the peer has used all that it has. All connections of a server are
//! granted the same part of what they may have at most, which follows from the memory that all
//! Receives take ([`Receives::set_memory`]); one that does not use its credits is granted fewer
//! ([`Receives::minute_over`]).
//!
//! Growth takes two steps, since to make Receives ready may sleep and may fail:
//! [`Receives::begin_renewal`] says how many to make ready, [`Receives::end_growth`] is told what
//! came of it. So nothing is promised that is not posted. Withdrawal takes two steps as well:
//! credits that were withdrawn are not renewed any more, and their Receives are kept until
//! [`Receives::settle`] finds that the peer has used what it was promised. In the earlier protocol
//! with number two [`Receives::review`] withdraws them, and they are kept until the peer is known
//! to have heard of it. In Version One each Reply gives one of them back, see
//! [`Allowance::settle_replied`].

use super::super::{
    credits::{
        free_share,
        Allowance, //
    },
    window, //
};

/// The credits of a new connection, and the least that a shortage leaves.
pub(crate) const FIRST_CREDITS: u32 = 4;

/// The least number of messages that are on their way from a client to a server that is short of
/// memory for messages in parts: too few for any. It can go on, since a Call with chunks takes one
/// message.
const LEAST_OFFER: u32 = 1;

/// The Receives beside all others for OPTIONAL messages, which take no credit: for one that is not
/// answered and for a request, each of which may come at any time, and for the answers to ours of
/// both kinds. One that is promised to nobody is there in any case.
pub(crate) const FOR_OPTIONAL: u32 = 3;

/// Calls in a minute for each credit, after which a peer with Receives of its own counts as one
/// that uses all of its credits, even if few of its Calls were at the server at the same time: most
/// Calls of a distant peer, or of one whose Calls are answered at once, are always in transit.
const TURNS: u32 = 64;

/// How it is known that a peer does not count on credits any more that a message withdraws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withdrawal {
    /// Messages withdraw none.
    Never,
    /// By what it sends: it uses what it was promised before, see [`Receives::settle`].
    ByUse,
    /// By what it is sent: each Reply is for a Call that it had unanswered before, see
    /// [`Allowance::settle_replied`].
    ByReply,
}

/// The Receives of one end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receives {
    /// The credits that the peer was granted.
    allowance: Allowance,
    /// Receives beside those for credits.
    beside: u32,
    /// Receives for OPTIONAL messages, beside all others.
    optional: u32,
    /// The bound of the credits, see [`Self::set_memory`].
    bound: Option<u32>,
    /// The inputs of `bound`: memory in use and its limit, in KiB, and the most credits.
    memory: (u64, u64, u32),
    /// The bound of the credits of a peer that does not use them, see [`Self::minute_over`].
    idle_bound: u32,
    /// The number of Calls in this minute.
    calls: u32,
    /// The largest number of them that were unanswered at a time.
    peak: u32,
}

/// The work before a message is sent that tells the peer its credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Renewal {
    /// The credit value.
    pub(crate) granted: u32,
    /// Set if it has just been made another one, for which there are Receives.
    pub(crate) is_new: bool,
    /// The number of Receives to make ready for more credits. If there are any,
    /// [`Receives::end_growth`] has to follow, whatever comes of it.
    pub(crate) wanted: u32,
    /// Set if there are Receives that [`Receives::settle`] may give back.
    pub(crate) settles: bool,
}

impl Renewal {
    /// Returns whether there is anything to do but to send the credit value. If not, the renewal
    /// has changed nothing.
    pub(crate) const fn has_work(&self) -> bool {
        self.is_new || self.wanted > 0 || self.settles
    }
}

/// The messages of Version Two that the peer may have on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowOffer {
    /// The size that the window is renewed to; [`None`] if no Receive is left, see
    /// [`window::offer`].
    pub(crate) messages: Option<u32>,
    /// Set if it is less than the Receives would allow.
    pub(crate) is_throttled: bool,
}

impl Receives {
    /// The Receives of a connection on which `initial` credits are granted at first, and up to
    /// `limit` later. One more Receive than that is posted, see [`Self::set_beside`].
    pub(crate) fn new(initial: u32, limit: u32) -> Self {
        Self {
            allowance: Allowance::new(initial, limit),
            beside: 1,
            optional: 0,
            bound: None,
            memory: (0, 0, 0),
            idle_bound: u32::MAX,
            calls: 0,
            peak: 0,
        }
    }

    /// The Receives of an end that has posted `posted` of them for good.
    pub(crate) fn fixed(posted: u32) -> Self {
        let credits = posted.saturating_sub(1);
        Self::new(credits, credits)
    }

    /// Returns what the peer was granted, to be shown.
    pub(crate) const fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Returns how many Receives there must be for the peer's messages.
    pub(crate) const fn capacity(&self) -> u32 {
        self.allowance.granted().saturating_add(self.beside())
    }

    /// Returns how many Receives there are beside those for credits.
    const fn beside(&self) -> u32 {
        self.beside.saturating_add(self.optional)
    }

    /// Returns how many Receives there are: those for credits that were withdrawn are kept for a
    /// while.
    pub(crate) const fn posted(&self) -> u32 {
        self.capacity().saturating_add(self.allowance.withdrawn())
    }

    /// Sets how many Receives there are beside those for credits. They are posted before.
    pub(crate) fn set_beside(&mut self, beside: u32) {
        self.beside = beside;
    }

    /// Returns the same with Receives for OPTIONAL messages.
    pub(crate) fn with_optional(self) -> Self {
        Self {
            optional: FOR_OPTIONAL,
            ..self
        }
    }

    /// Counts a Call with which `unanswered` ones are with us.
    fn note_call(&mut self, unanswered: u32) {
        self.calls = self.calls.saturating_add(1);
        self.peak = self.peak.max(unanswered);
        let granted = self.allowance.granted();
        let has_turned = self.bound.is_some() && self.calls >= granted.saturating_mul(TURNS);
        if has_turned {
            self.allowance.use_up();
        }
        if has_turned || unanswered >= granted {
            self.idle_bound = u32::MAX;
        }
    }

    /// To be called once a minute, or later: a peer that is idle is granted fewer credits, twice as
    /// many as it had Calls unanswered at a time. As soon as it uses all of them it may have more.
    ///
    /// It is idle if it has used less than half of its credits at a time, and had fewer Calls in
    /// the minute than it has credits. The Calls that are with us at a time do not say enough: of
    /// a peer that is far away most are always on their way.
    pub(crate) fn minute_over(&mut self) {
        let granted = self.allowance.granted();
        let (calls, peak) = (
            core::mem::take(&mut self.calls),
            core::mem::take(&mut self.peak),
        );
        let used = peak.saturating_mul(2);
        self.idle_bound = if calls < granted && used < granted {
            used
        } else {
            u32::MAX
        };
    }

    /// Bounds the credits. The Receives of all connections use `used` KiB, and should use `limit`
    /// at most, see [`free_share`].
    #[inline]
    pub(crate) fn set_memory(&mut self, used: u64, limit: u64) {
        // Nearly always nothing has changed, and nothing is computed.
        let memory = (used, limit, self.allowance.limit());
        if self.memory == memory {
            return;
        }
        self.memory = memory;
        self.bound = Some(free_share(self.allowance.limit(), used, limit));
    }

    /// Notes a Reply of Version One that was sent with the credit value.
    pub(crate) fn replied(&mut self) {
        self.allowance.replied();
    }

    /// Returns how many Receives the Replies make needless that were sent since credits were
    /// withdrawn, and forgets them: the caller gives them back.
    pub(crate) fn settle_replied(&mut self) -> u32 {
        self.allowance.settle_replied()
    }

    /// Notes that the peer uses this many of the Receives that it was promised, or of its credits.
    pub(crate) fn used(&mut self, receives: u32) {
        let receives = receives.min(self.allowance.granted());
        self.note_call(receives);
        self.allowance.arrived(receives);
    }

    /// Returns how many credits there may be.
    fn most(&self) -> u32 {
        let bound = self.bound.unwrap_or(u32::MAX);
        bound.min(self.idle_bound).max(FIRST_CREDITS)
    }

    /// Returns up to how many credits they may grow, if there may be `most`. A little more than
    /// there are is not worth its Receives, since it may be less again a moment later.
    fn growth_bound(&self, most: u32) -> u32 {
        let granted = self.allowance.granted();
        let worth = granted.saturating_add(granted >> 3);
        if self.bound.is_some() && most < worth.min(self.allowance.limit()) {
            granted
        } else {
            most
        }
    }

    /// Withdraws credits from a peer that is told so and says when it has heard of it: what is
    /// beyond its bounds, and what is beyond `limit`, which holds for credits to come as well.
    /// Returns whether there are fewer now.
    pub(crate) fn review(&mut self, limit: u32) -> bool {
        let is_less = self.allowance.withdraw(self.most().min(limit));
        self.allowance.set_limit(limit);
        is_less
    }

    /// Grants again what was withdrawn. Returns whether there was anything.
    pub(crate) fn restore(&mut self) -> bool {
        let has_withdrawn = self.allowance.withdrawn() > 0;
        self.allowance.restore();
        has_withdrawn
    }

    /// Returns for how many messages of a peer that knows its credits there have to be Receives
    /// while it has `unanswered` Calls with us. It may have sent these before it knew.
    pub(crate) fn needed(&self, unanswered: u32) -> u32 {
        let calls = self.allowance.granted().max(unanswered);
        calls.saturating_add(self.beside())
    }

    /// Begins to renew the peer's credits.
    pub(crate) fn begin_renewal(&mut self, withdrawal: Withdrawal) -> Renewal {
        let most = self.most();
        let keeps = withdrawal != Withdrawal::Never;
        let is_less = keeps && self.allowance.withdraw(most);
        let most = self.growth_bound(most);
        let is_more = keeps && self.allowance.regain(most);
        Renewal {
            granted: self.allowance.granted(),
            is_new: is_less || is_more,
            wanted: self.allowance.begin_growth(most),
            settles: keeps && self.allowance.withdrawn() > 0,
        }
    }

    /// Ends a growth by `wanted` credits, for which the Receives were made ready or were not.
    /// Returns the credit value.
    pub(crate) fn end_growth(&mut self, wanted: u32, made: bool) -> u32 {
        if made {
            self.allowance.grow(wanted);
        } else {
            self.allowance.give_up();
        }
        self.allowance.granted()
    }

    /// Returns how many Receives of withdrawn credits are not needed any more, and forgets them:
    /// the caller gives them back. `needed` are kept for what the peer was promised and for its
    /// messages that are still in use.
    pub(crate) fn settle(&mut self, needed: u32) -> u32 {
        self.allowance.settle(needed, self.beside())
    }

    /// Returns what may be offered to a peer of Version Two while `held` Receives hold messages
    /// that are still in use. `throttle` says that memory for messages in parts is short, and for
    /// how many messages of this peer there is some nevertheless.
    ///
    /// Receives that are kept for withdrawn credits count for what was promised and for nothing
    /// else.
    pub(crate) fn offer(&self, held: u32, throttle: Option<u32>) -> WindowOffer {
        let all = window::offer(self.capacity(), held);
        if self.allowance.withdrawn() == 0 && throttle.is_none() {
            return WindowOffer {
                messages: all,
                is_throttled: false,
            };
        }
        let all = all.unwrap_or(0);
        let most = throttle.map_or(all, |most| all.min(most.max(LEAST_OFFER)));
        WindowOffer {
            messages: window::offer(self.posted(), held).map(|left| left.min(most)),
            is_throttled: most < all,
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_receives)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// Returns what is offered while `held` Receives are held.
    fn offered(receives: &Receives, held: u32) -> Option<u32> {
        receives.offer(held, None).messages
    }

    /// Memory is short, so that each peer may have `most` of 64 credits.
    fn leave(receives: &mut Receives, most: u64) {
        receives.set_memory(64_u64.saturating_sub(most), 64);
    }

    #[test]
    fn credits_grow_when_all_were_used() {
        let mut receives = Receives::new(FIRST_CREDITS, 64);
        assert_eq!(receives.begin_renewal(Withdrawal::ByUse).wanted, 0);
        receives.used(FIRST_CREDITS);
        let renewal = receives.begin_renewal(Withdrawal::ByUse);
        assert_eq!((renewal.granted, renewal.wanted), (4, 4));
        // Nobody else makes any ready meanwhile, and nothing is promised.
        assert_eq!(receives.begin_renewal(Withdrawal::ByUse).wanted, 0);
        assert_eq!(offered(&receives, 0), Some(4));
        assert_eq!(receives.end_growth(4, true), 8);
        assert_eq!(offered(&receives, 0), Some(8));
        assert_eq!(receives.capacity(), 9);
    }

    /// The credit value alone is no work.
    #[test]
    fn receives_are_made_ready_or_given_back() {
        let idle = Renewal {
            granted: 4,
            is_new: false,
            wanted: 0,
            settles: false,
        };
        assert!(!idle.has_work());
        for renewal in [
            Renewal {
                is_new: true,
                ..idle
            },
            Renewal { wanted: 1, ..idle },
            Renewal {
                settles: true,
                ..idle
            },
        ] {
            assert!(renewal.has_work());
        }
    }

    /// What could not be made ready is wanted again.
    #[test]
    fn growth_may_fail() {
        let mut receives = Receives::new(4, 64);
        for _ in 0..2 {
            receives.used(4);
            let renewal = receives.begin_renewal(Withdrawal::Never);
            assert_eq!(renewal.wanted, 4);
            assert_eq!(receives.end_growth(4, false), 4);
            assert_eq!(receives.posted(), 5);
        }
    }

    /// Section 4.2.1: what was withdrawn is kept until the peer has used it.
    #[test]
    fn a_shortage_in_version_two() {
        let mut receives = Receives::new(16, 64);
        leave(&mut receives, 8);
        let renewal = receives.begin_renewal(Withdrawal::ByUse);
        let expected = Renewal {
            granted: 8,
            is_new: true,
            wanted: 0,
            settles: true,
        };
        assert_eq!(renewal, expected);
        assert_eq!((receives.capacity(), receives.posted()), (9, 17));
        assert_eq!(offered(&receives, 0), Some(8));
        // With more held than there will be, nothing is offered; one Receive is left all the same.
        assert_eq!(offered(&receives, 12), Some(0));
        assert_eq!(offered(&receives, 16), Some(0));
        assert_eq!(offered(&receives, 17), None);
        // All was promised; then less and less.
        for (needed, settled, posted) in [(17, 0, 17), (14, 3, 14), (3, 5, 9), (3, 0, 9)] {
            assert_eq!(receives.settle(needed), settled);
            assert_eq!(receives.posted(), posted);
        }
        assert!(!receives.begin_renewal(Withdrawal::ByUse).settles);
    }

    /// A peer that can be told at any time makes do with what is left, and with what the
    /// administrator wants, as soon as it knows; Calls that it has sent before keep their Receives.
    #[test]
    fn credits_are_taken_back_from_who_is_told() {
        for (most, limit, granted) in [
            (None, 64, 16),
            (Some(8), 64, 8),
            (Some(0), 64, 4),
            (Some(64), 8, 8),
            (Some(8), 6, 6),
            (None, 0, 1),
        ] {
            let mut receives = Receives::new(16, 64).with_optional();
            if let Some(most) = most {
                leave(&mut receives, most);
            }
            assert_eq!(receives.review(limit), granted < 16);
            assert_eq!(receives.allowance().granted(), granted);
            assert_eq!(receives.posted(), 16 + 4);
            assert_eq!(receives.settle(receives.needed(16)), 0);
            let less = 16_u32.saturating_sub(granted);
            assert_eq!(receives.settle(receives.needed(0)), less);
            assert_eq!(receives.posted(), granted.saturating_add(4));
            assert!(!receives.review(limit));
            assert!(!receives.restore());
        }
        let mut receives = Receives::new(16, 64);
        assert!(receives.review(8));
        assert!(receives.restore());
        assert_eq!(receives.capacity(), 17);
    }

    /// Each Reply gives a Receive back while there are too few, and what is left is granted again.
    #[test]
    fn a_shortage_with_receives_of_its_own() {
        let mut receives = Receives::new(16, 64);
        receives.set_memory(920, 1000);
        let expected = Renewal {
            granted: 6,
            is_new: true,
            wanted: 0,
            settles: true,
        };
        assert_eq!(receives.begin_renewal(Withdrawal::ByReply), expected);
        for left in (0..10_u32).rev() {
            receives.replied();
            assert_eq!(receives.settle_replied(), 1);
            assert_eq!(receives.posted(), left.saturating_add(7));
        }
        receives.replied();
        assert_eq!(receives.settle_replied(), 0);
        receives.set_memory(2000, 1000);
        let renewal = receives.begin_renewal(Withdrawal::ByReply);
        assert_eq!(renewal.granted, FIRST_CREDITS);
        // Two of them have not been given back.
        receives.used(4);
        receives.set_memory(0, 1000);
        let renewal = receives.begin_renewal(Withdrawal::ByReply);
        assert_eq!(
            (renewal.granted, renewal.is_new, renewal.wanted),
            (6, true, 0)
        );
        receives.used(6);
        assert_eq!(receives.begin_renewal(Withdrawal::ByReply).wanted, 6);
    }

    /// What others do from one moment to the next does not make Receives come and go.
    #[test]
    fn a_little_more_is_not_asked_for() {
        let mut receives = Receives::new(32, 64);
        receives.used(32);
        for (used, wanted) in [(500, 0), (460, 0), (430, 5)] {
            receives.set_memory(used, 1000);
            let renewal = receives.begin_renewal(Withdrawal::ByUse);
            assert_eq!((renewal.granted, renewal.wanted), (32, wanted));
        }
        let mut receives = Receives::new(62, 64);
        receives.used(62);
        receives.set_memory(0, 1000);
        assert_eq!(receives.begin_renewal(Withdrawal::ByUse).wanted, 2);
    }

    /// A peer that is idle has twice what it uses; one that is far away keeps all.
    #[test]
    fn idle_credits_are_withdrawn() {
        let mut receives = Receives::new(32, 64);
        for (calls, unanswered, granted) in [(31, 16, 32), (32, 1, 32), (31, 3, 6), (1, 1, 4)] {
            for _ in 0..calls {
                receives.used(unanswered);
            }
            receives.minute_over();
            let renewal = receives.begin_renewal(Withdrawal::ByReply);
            assert_eq!(renewal.granted, granted);
        }
        assert_eq!(receives.posted(), 33);
        receives.used(4);
        assert_eq!(receives.begin_renewal(Withdrawal::ByReply).granted, 8);
    }

    /// A distant peer may never have two Calls at the server at the same time.
    #[test]
    fn credits_grow_by_the_number_of_calls() {
        let mut receives = Receives::new(4, 64);
        let mut calls = 0_u32;
        for granted in [4_u32, 8, 16, 32] {
            while calls < granted.saturating_mul(TURNS) {
                receives.set_memory(0, 1000);
                let renewal = receives.begin_renewal(Withdrawal::ByReply);
                assert_eq!((renewal.granted, renewal.wanted), (granted, 0));
                receives.used(1);
                calls = calls.saturating_add(1);
            }
            let renewal = receives.begin_renewal(Withdrawal::ByReply);
            assert_eq!(renewal.wanted, granted);
            receives.end_growth(granted, true);
        }
        // With as many in a minute it keeps them.
        receives.minute_over();
        let renewal = receives.begin_renewal(Withdrawal::ByReply);
        assert_eq!((renewal.granted, renewal.has_work()), (64, false));
    }

    /// However great the shortage is, a connection can go on.
    #[test]
    fn what_is_left_has_a_floor() {
        let mut receives = Receives::new(16, 64);
        receives.set_beside(9);
        leave(&mut receives, 0);
        let renewal = receives.begin_renewal(Withdrawal::ByUse);
        assert_eq!(renewal.granted, FIRST_CREDITS);
        assert_eq!(receives.capacity(), FIRST_CREDITS + 9);
    }

    /// With half of the memory for messages in parts taken, a client can send those that it has
    /// memory of its own for, and else no more of them.
    #[test]
    fn a_throttled_peer_goes_on() {
        let receives = Receives::fixed(65);
        for (held, throttle, messages, is_throttled) in [
            (0, None, Some(64), false),
            (0, Some(12), Some(12), true),
            (0, Some(64), Some(64), false),
            (60, Some(12), Some(4), false),
            (0, Some(0), Some(1), true),
            (63, Some(0), Some(1), false),
            (64, Some(0), Some(0), false),
            (65, Some(0), None, false),
        ] {
            let offer = receives.offer(held, throttle);
            let expected = WindowOffer {
                messages,
                is_throttled,
            };
            assert_eq!(offer, expected);
        }
    }
}
