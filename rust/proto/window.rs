// SPDX-License-Identifier: GPL-2.0

//! Flow control of Version Two: sliding windows of 32 bits
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 4.2.1).
//!
//! Every message counts, whatever it says, and each direction of a connection is counted apart. The
//! credit value in a header is a limit: the number of messages that its receiver may have sent since
//! the connection began. [`Incoming`] gives limits away and [`Outgoing`] obeys them. Counters and
//! limits wrap; only their differences have a meaning.
//!
//! # Neither end ever waits for the other for ever
//!
//! A limit is renewed by every message. If there is nothing to send it is renewed by a GRANT, which
//! takes a credit itself. The following rules see to it that two ends with nothing to do fall silent,
//! and that one with something to do can always send:
//!
//! - The receiver keeps one Receive more than it has promised. So one message beyond the limit does
//!   no harm; whoever sends more ignores its credits. If that message holds its Receive, and all
//!   others are held too, the receiver tells no limit that covers it before one of them is back:
//!   who has sent it sends no other one.
//! - A GRANT may be that message (4.2.1.1). If a GRANT took the last ordinary credit instead, the
//!   next message may be it, since the two together are what the receiver has to be ready for.
//! - A limit that just covers a GRANT beyond the former one is no credit to a client: it sends nothing but another GRANT. The
//!   server may have told it for that alone, with one Receive left. With a Call in that one the client could not renew the
//!   credits of a Reply, while the server takes no other Call in, and so gives no Receive back, before that is sent. If the
//!   limit was on its way before, there is a Receive more: so a server answers a GRANT that leaves no credit. A client need
//!   not do so, and must not, or they would answer each other for ever.
//! - A GRANT is sent only if it raises the limit and leaves at least one credit, and only because
//!   half of the window is used, because the peer has taken the Receive beyond the limit, or because
//!   the receiver has got more Receives.
//! - A server that has no credit to give answers the message beyond the limit all the same, as soon
//!   as it has a Receive for another one: else the client could not renew the credits that a Reply
//!   waits for. Only one of the ends does so, or they would answer each other for ever.
//! - A GRANT that has used up half of a window is answered only if the window is of three messages
//!   or more. So one that is answered has given away more than half a window, of which the answer
//!   takes one, and is not answered again. A server answers one that has used up a smaller window, too.

use super::credits::Admission;

/// The largest number of messages that may be promised at a time: limits have to be less than
/// 2^31 - 1 ahead (4.2.1).
pub(crate) const MAX_OFFER: u32 = 0x7fff_fffe;

/// The limit that holds before the first message of the peer (4.2.1).
pub(crate) const FIRST_LIMIT: u32 = 1;

/// The smallest window of which a GRANT can take one credit and leave more than half.
pub(crate) const LEAST_SHARED: u32 = 3;

/// Returns in how many parts an RPC message may be sent that has to wait, if `window` messages may be on their way.
///
/// The peer renews credits when half of them are used (4.2.1.1). So more than half of them, and not all, may be left for
/// as long as nothing is sent. Of a small window all may go to GRANTs.
pub(crate) const fn most_parts(window: u32) -> u32 {
    match window < LEAST_SHARED {
        true => 1,
        false => (window >> 1).saturating_add(1),
    }
}

/// Returns how many messages may be on their way to an end that has posted so many Receives for them, if `held` of these
/// have messages that are still in use; [`None`] if all of them have.
///
/// One of those that are left is promised to nobody: it is for the message beyond the limit (4.2.1.1).
pub(crate) const fn offer(posted: u32, held: u32) -> Option<u32> {
    posted.saturating_sub(held).checked_sub(1)
}

/// What a message is to flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// It only carries credits: a GRANT.
    Grant,
    /// Anything else.
    Other,
}

/// Returns how far `value` is ahead of `count` on the circle of 2^32 values; negative if behind.
fn ahead(value: u32, count: u32) -> i32 {
    i32::from_ne_bytes(value.wrapping_sub(count).to_ne_bytes())
}

/// What may be sent.
///
/// # Invariants
///
/// Of the messages admitted at most one is beyond the limit that was in force when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outgoing {
    /// The number of messages sent.
    sent: u32,
    /// The number of messages that may be sent: the latest credit value of the peer.
    limit: u32,
    /// The number of messages sent up to and with the latest GRANT, as long as it is not certain
    /// that `limit` takes account of it.
    granted_at: Option<u32>,
    /// Whether a GRANT beyond the limit is never taken for one that took the last credit, as by a client.
    cautious: bool,
}

impl Outgoing {
    /// The state of a new connection: one message may be sent.
    pub(crate) const fn new() -> Self {
        Self::after(0)
    }

    /// The state in which `count` messages were sent and one more may be.
    pub(crate) const fn after(count: u32) -> Self {
        Self {
            sent: count,
            limit: count.wrapping_add(FIRST_LIMIT),
            granted_at: None,
            cautious: false,
        }
    }

    /// The same of a client, see [`self`].
    pub(crate) const fn cautious(self) -> Self {
        Self {
            cautious: true,
            ..self
        }
    }

    /// Returns the number of messages sent, modulo 2^32.
    pub(crate) const fn sent(&self) -> u32 {
        self.sent
    }

    /// Returns the latest limit.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns how many messages other than GRANTs may be sent now.
    pub(crate) fn available(&self) -> u32 {
        let ahead = ahead(self.limit, self.sent);
        match u32::try_from(ahead) {
            // The last ordinary credit went to a GRANT, so the one beyond it is left.
            Ok(0) if self.granted_at == Some(self.sent) => 1,
            Ok(ahead) => ahead,
            Err(_) => 0,
        }
    }

    /// Returns whether there is a credit left.
    fn admits_ordinary(&self) -> bool {
        ahead(self.limit, self.sent) > 0
    }

    /// Returns whether a GRANT may be sent now.
    pub(crate) fn admits_grant(&self) -> bool {
        ahead(self.limit, self.sent) >= 0
    }

    /// Counts `count` messages of a kind that are about to be sent, if all of them may be.
    pub(crate) fn consume(&mut self, count: u32, kind: Kind) -> Admission {
        let admitted = match kind {
            Kind::Grant => count <= 1 && self.admits_grant(),
            Kind::Other => count <= self.available(),
        };
        if !admitted {
            return Admission::MustWait;
        }
        let is_beyond = self.cautious && !self.admits_ordinary();
        // INVARIANT: what is admitted ends at the limit or one behind it.
        self.sent = self.sent.wrapping_add(count);
        if kind == Kind::Grant && count == 1 {
            self.granted_at = (!is_beyond).then_some(self.sent);
        }
        Admission::Granted
    }

    /// Counts a message that is sent without regard to the limit: an answer in a version that has
    /// no such limits.
    pub(crate) fn force(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes note of the credit value of the message received last.
    ///
    /// The value of the latest message counts even if it is lower than one before, since the peer
    /// may take back what it did not promise for messages on their way. One that is 2^31 or more
    /// ahead counts as one behind, so that nothing may be sent.
    pub(crate) fn update(&mut self, limit: u32) {
        self.limit = limit;
        if self.granted_at.is_some_and(|at| ahead(limit, at) > 0) {
            self.granted_at = None;
        }
    }
}

/// The peer has sent more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// What may be received.
///
/// # Invariants
///
/// `promised` is at most [`MAX_OFFER`] ahead of `received`, and at most one behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Incoming {
    /// The number of messages received.
    received: u32,
    /// The limit told last, or [`FIRST_LIMIT`].
    promised: u32,
    /// How many messages we are willing to have on their way to us; [`None`] if there is no Receive even for the one beyond
    /// the limit.
    offer: Option<u32>,
    /// Whether a renewal is owed, as soon as it makes a difference.
    owed: bool,
    /// Whether a GRANT is answered that has left the peer without a credit, as by a server.
    answers: bool,
}

impl Incoming {
    /// The state of a new connection, with `offer` Receives for ordinary messages.
    pub(crate) fn new(offer: u32) -> Self {
        Self::after(0, offer)
    }

    /// The state in which `count` messages were received and one more may be.
    pub(crate) fn after(count: u32, offer: u32) -> Self {
        // INVARIANT: one ahead.
        Self {
            received: count,
            promised: count.wrapping_add(FIRST_LIMIT),
            offer: Some(offer.min(MAX_OFFER)),
            owed: false,
            answers: false,
        }
    }

    /// The same of a server, see [`self`].
    pub(crate) const fn answering(self) -> Self {
        Self {
            answers: true,
            ..self
        }
    }

    /// Returns the number of messages received, modulo 2^32.
    pub(crate) const fn received(&self) -> u32 {
        self.received
    }

    /// Returns how many messages we are willing to have on their way.
    pub(crate) fn offer(&self) -> u32 {
        self.offer.unwrap_or(0)
    }

    /// Returns how many more messages the peer may send, as far as it was told; -1 if it has sent
    /// the one beyond its limit.
    pub(crate) fn remaining(&self) -> i32 {
        ahead(self.promised, self.received)
    }

    /// Returns how many Receives have to be posted to keep what was promised: one more than that.
    pub(crate) fn must_be_posted(&self) -> u32 {
        u32::try_from(self.remaining())
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// Changes how many messages we are willing to have on their way.
    ///
    /// What was promised stays promised: a smaller offer takes effect as the peer sends. So many
    /// Receives and one more have to be posted before this is called. If there is not even that one, as when the message
    /// beyond the limit is in use like all others, there is no offer: the limit stays behind that message, so that the
    /// peer sends no GRANT either.
    pub(crate) fn set_offer(&mut self, offer: Option<u32>) {
        let offer = offer.map(|offer| offer.min(MAX_OFFER));
        let raised = offer > self.offer;
        self.offer = offer;
        self.owed |= raised && self.is_half_used();
    }

    /// Counts a received message.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if the peer must not have sent it. One message beyond the limit is accepted.
    pub(crate) fn receive(&mut self, kind: Kind) -> core::result::Result<(), Overrun> {
        if self.remaining() < 0 {
            return Err(Overrun);
        }
        // INVARIANT: it was not behind, so it is not more than one behind now.
        self.received = self.received.wrapping_add(1);
        self.owed |= match kind {
            Kind::Grant if self.offer() < LEAST_SHARED => {
                self.remaining() < i32::from(self.answers)
            }
            Kind::Grant | Kind::Other => self.is_half_used(),
        };
        Ok(())
    }

    /// Counts a message of a version with other rules, which holds no Receive, before the first one of Version Two: as long as
    /// no credits of Version Two were told, another one may be sent.
    pub(crate) fn receive_other(&mut self) {
        // INVARIANT: one ahead.
        self.received = self.received.wrapping_add(1);
        self.promised = self.received.wrapping_add(FIRST_LIMIT);
    }

    /// Returns the credit value for the next message, and takes it for told.
    ///
    /// It never goes back (modulo 2^32).
    pub(crate) fn tell(&mut self) -> u32 {
        // INVARIANT: either it is as it was or `offer` ahead, which is at most `MAX_OFFER`.
        self.promised = self.next_limit();
        self.owed = false;
        self.promised
    }

    /// Returns whether a GRANT should be sent, unless another message is about to be.
    pub(crate) fn owes_grant(&self) -> bool {
        let next = self.next_limit();
        self.owed && ahead(next, self.promised) > 0 && ahead(next, self.received) > 0
    }

    /// Returns whether the peer has sent the message beyond its limit, and can't do so again before the limit is what it has
    /// sent, though there is not one credit to give. As long as that is not told the peer can't renew our credits.
    ///
    /// There is a Receive for it again: at once if the message was a GRANT, and as soon as one is back if it was not.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.remaining() < 0 && self.next_limit() != self.promised
    }

    /// Returns the credit value that the next message would carry.
    fn next_limit(&self) -> u32 {
        let willing = self.offer.map(|offer| self.received.wrapping_add(offer));
        willing
            .filter(|willing| ahead(*willing, self.promised) > 0)
            .unwrap_or(self.promised)
    }

    /// Returns whether at most half of the window is left to the peer.
    fn is_half_used(&self) -> bool {
        let half = self.offer() >> 1;
        u32::try_from(self.remaining()).unwrap_or(0) <= half
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_window)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// Where counters start in tests: at zero, and so that 2^31 or 2^32 is passed.
    const STARTS: [u32; 5] = [0, 0x7fff_fffd, 0x7fff_ffff, 0xffff_fffd, u32::MAX];

    /// Section 4.2.1.1: without a credit to give, too, since its Receive is back.
    #[test]
    fn a_grant_beyond_the_limit_is_acknowledged() {
        for start in STARTS {
            let mut window = Incoming::after(start, 2);
            assert_eq!(window.tell(), start.wrapping_add(2));
            assert!(window.receive(Kind::Other).is_ok() && window.receive(Kind::Other).is_ok());
            window.set_offer(offer(3, 2));
            assert!(!window.owes_acknowledgement());
            assert!(window.receive(Kind::Grant).is_ok());
            assert!(!window.owes_grant());
            assert!(window.owes_acknowledgement());
            assert_eq!(window.tell(), start.wrapping_add(3));
            assert!(!window.owes_acknowledgement());
            assert_eq!(window.remaining(), 0);
        }
    }

    /// Section 4.2.1.1: if all Receives are held, with that of the message beyond the limit, there is none for a GRANT. So
    /// nothing that is told lets one out, before one Receive is back.
    #[test]
    fn no_grant_is_let_out_for_which_there_is_no_receive() {
        for start in STARTS {
            let (mut window, mut out) = (Incoming::after(start, 2), Outgoing::after(start));
            out.update(window.tell());
            let send = |window: &mut Incoming, out: &mut Outgoing, kind| {
                assert_eq!(out.consume(1, kind), Admission::Granted);
                assert_eq!(window.receive(kind), Ok(()));
            };
            // Two Calls, which hold their Receives. Renewing our credits the peer takes the one beyond, and is told.
            for kind in [Kind::Other, Kind::Other, Kind::Grant] {
                send(&mut window, &mut out, kind);
            }
            window.set_offer(offer(3, 2));
            out.update(window.tell());
            // It may be used for either.
            assert!(out.admits_grant());
            assert_eq!(out.available(), 1);
            send(&mut window, &mut out, Kind::Other);
            window.set_offer(offer(3, 3));
            assert!(!window.owes_grant() && !window.owes_acknowledgement());
            out.update(window.tell());
            assert!(!out.admits_grant());
            assert_eq!(out.available(), 0);
            assert_eq!(window.remaining(), -1);
            // One of the Calls is answered.
            window.set_offer(offer(3, 2));
            assert!(window.owes_acknowledgement());
            out.update(window.tell());
            assert!(out.admits_grant());
            assert!(!window.owes_acknowledgement());
        }
    }

    /// Section 4.2.1.1: a client does not take the acknowledgement of a GRANT beyond the limit for a credit. So one Receive is
    /// left for its next GRANT, however often it renews our credits.
    #[test]
    fn an_acknowledgement_is_no_credit() {
        for start in STARTS {
            let mut window = Incoming::after(start, 2).answering();
            let mut out = Outgoing::after(start).cautious();
            out.update(window.tell());
            for _ in 0..2 {
                assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
                assert_eq!(window.receive(Kind::Other), Ok(()));
            }
            window.set_offer(offer(3, 2));
            for _ in 0..5 {
                assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
                assert_eq!(window.receive(Kind::Grant), Ok(()));
                assert!(window.owes_acknowledgement());
                out.update(window.tell());
                assert_eq!(out.available(), 0);
            }
            window.set_offer(offer(3, 1));
            assert!(window.owes_grant());
            out.update(window.tell());
            assert_eq!(out.available(), 1);
        }
    }

    /// Section 4.2.1.1: a limit that was on its way when the GRANT beyond the former one was sent looks the same. There is a
    /// Receive more then, and another limit is told.
    #[test]
    fn a_grant_that_leaves_no_credit_is_answered() {
        for start in STARTS {
            for small in [1, 2] {
                let mut window = Incoming::after(start, 0).answering();
                let mut out = Outgoing::after(start).cautious();
                assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
                assert_eq!(window.receive(Kind::Other), Ok(()));
                window.set_offer(Some(1));
                let limit = window.tell();
                assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
                out.update(limit);
                assert_eq!(out.available(), 0);
                window.set_offer(Some(small));
                window.owed = false;
                assert_eq!(window.receive(Kind::Grant), Ok(()));
                assert!(window.owes_grant());
                out.update(window.tell());
                assert_eq!(out.available(), small);
            }
        }
    }

    /// Section 4.2.1: the start value lets exactly one message out.
    #[test]
    fn one_message_until_the_peer_speaks() {
        for start in STARTS {
            let mut out = Outgoing::after(start);
            assert_eq!(out.available(), 1);
            assert_eq!(out.consume(2, Kind::Other), Admission::MustWait);
            assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
            assert_eq!(out.consume(1, Kind::Other), Admission::MustWait);
            assert_eq!(out.sent(), start.wrapping_add(1));
        }
        assert_eq!(Outgoing::new(), Outgoing::after(0));
        assert_eq!(Outgoing::new().limit(), 1);
    }

    /// Section 4.2.1: the credit value is a number of messages since the connection began.
    #[test]
    fn limits_count_all_messages() {
        for start in STARTS {
            let mut out = Outgoing::after(start);
            out.update(start.wrapping_add(8));
            assert_eq!(out.available(), 8);
            assert_eq!(out.consume(5, Kind::Other), Admission::Granted);
            assert_eq!(out.consume(4, Kind::Other), Admission::MustWait);
            out.update(start.wrapping_add(9));
            assert_eq!(out.available(), 4);
            assert_eq!(out.consume(4, Kind::Other), Admission::Granted);
            assert_eq!(out.available(), 0);
        }
    }

    /// Section 4.2.1: less than 2^31 - 1 ahead. More is taken for a limit that has passed.
    #[test]
    fn limits_far_ahead_are_behind() {
        for start in STARTS {
            let mut out = Outgoing::after(start);
            out.update(start.wrapping_add(MAX_OFFER));
            assert_eq!(out.available(), MAX_OFFER);
            for far in [0x8000_0000, 0x8000_0001, u32::MAX] {
                out.update(start.wrapping_add(far));
                assert_eq!(out.available(), 0);
                assert!(!out.admits_grant());
            }
        }
    }

    #[test]
    fn a_lower_limit_is_obeyed() {
        let mut out = Outgoing::new();
        out.update(8);
        assert_eq!(out.consume(6, Kind::Other), Admission::Granted);
        out.update(7);
        assert_eq!(out.available(), 1);
        out.update(4);
        assert_eq!(out.available(), 0);
        assert!(!out.admits_grant());
        out.update(6);
        assert_eq!(out.available(), 0);
        assert!(out.admits_grant());
    }

    /// Section 4.2.1.1: a zero window can be opened by the peer, and a GRANT always gets out.
    #[test]
    fn a_grant_may_be_one_beyond() {
        for start in STARTS {
            let mut out = Outgoing::after(start);
            assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
            assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
            // Not again before the peer's value covers it.
            assert_eq!(out.consume(1, Kind::Grant), Admission::MustWait);
            assert_eq!(out.consume(1, Kind::Other), Admission::MustWait);
            out.update(start.wrapping_add(1));
            assert_eq!(out.consume(1, Kind::Grant), Admission::MustWait);
            out.update(start.wrapping_add(2));
            assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
        }
    }

    /// A GRANT that takes the last credit leaves the one beyond it to the next message.
    #[test]
    fn a_grant_does_not_take_the_last_credit() {
        for start in STARTS {
            let mut out = Outgoing::after(start);
            assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
            assert_eq!(out.available(), 1);
            assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
            assert_eq!(out.available(), 0);
            assert!(!out.admits_grant());
            // With a limit beyond the GRANT there is nothing special any more.
            out.update(start.wrapping_add(2));
            assert_eq!(out.available(), 0);
            assert!(out.admits_grant());
        }
    }

    /// Section 4.2.1.1: one Receive more than advertised.
    #[test]
    fn one_message_beyond_is_accepted() {
        for start in STARTS {
            let mut window = Incoming::after(start, 4);
            assert_eq!(window.must_be_posted(), 2);
            assert_eq!(window.tell(), start.wrapping_add(4));
            assert_eq!(window.must_be_posted(), 5);
            for left in (0..5).rev() {
                assert_eq!(window.receive(Kind::Other), Ok(()));
                assert_eq!(window.must_be_posted(), if left == 0 { 1 } else { left });
            }
            assert_eq!(window.remaining(), -1);
            assert_eq!(window.receive(Kind::Other), Err(Overrun));
            assert_eq!(window.receive(Kind::Grant), Err(Overrun));
            assert_eq!(window.received(), start.wrapping_add(5));
            assert_eq!(window.tell(), start.wrapping_add(9));
            assert_eq!(window.receive(Kind::Other), Ok(()));
        }
    }

    /// Section 4.2.1.1: of the Receives that hold no message all but one are promised, whoever keeps the others.
    #[test]
    fn a_receive_is_kept_for_a_grant() {
        for start in STARTS {
            for posted in 2..10_u32 {
                let mut window = Incoming::after(start, posted.saturating_sub(1));
                let mut held = 0_u32;
                window.tell();
                while window.remaining() > 0 {
                    assert_eq!(window.must_be_posted().saturating_add(held), posted);
                    assert_eq!(window.receive(Kind::Other), Ok(()));
                    held = held.saturating_add(1);
                    window.set_offer(offer(posted, held));
                    window.tell();
                }
                // All but one have messages that are kept. The GRANT gives its Receive back.
                assert_eq!(held, posted.saturating_sub(1));
                assert_eq!(window.receive(Kind::Grant), Ok(()));
                for held in (0..held).rev() {
                    window.set_offer(offer(posted, held));
                    window.tell();
                    assert_eq!(window.must_be_posted().saturating_add(held), posted);
                }
            }
        }
        for (posted, held) in [(1, 0), (4, 3)] {
            assert_eq!(offer(posted, held), Some(0));
        }
        for (posted, held) in [(0, 0), (4, 4), (4, u32::MAX)] {
            assert_eq!(offer(posted, held), None);
        }
    }

    /// Other versions have credits of their own, so there is no limit to their messages; one of Version Two may come next.
    #[test]
    fn messages_of_other_versions_take_no_credit() {
        for start in STARTS {
            let mut window = Incoming::after(start, 4);
            for count in 1..100 {
                window.receive_other();
                assert_eq!(window.received(), start.wrapping_add(count));
                assert_eq!(window.remaining(), 1);
                assert!(!window.owes_grant() && !window.owes_acknowledgement());
            }
            assert_eq!(window.receive(Kind::Other), Ok(()));
            assert_eq!(window.tell(), start.wrapping_add(104));
        }
    }

    /// A promise is kept: limits never go back.
    #[test]
    fn limits_never_go_back() {
        for start in STARTS {
            let mut window = Incoming::after(start, 8);
            assert_eq!(window.tell(), start.wrapping_add(8));
            window.set_offer(Some(2));
            assert_eq!(window.offer(), 2);
            for count in 1..=6 {
                assert_eq!(window.receive(Kind::Other), Ok(()));
                assert_eq!(window.tell(), start.wrapping_add(8));
                assert_eq!(window.received(), start.wrapping_add(count));
            }
            assert_eq!(window.receive(Kind::Other), Ok(()));
            assert_eq!(window.tell(), start.wrapping_add(9));
            window.set_offer(Some(0));
            assert_eq!(window.receive(Kind::Other), Ok(()));
            assert_eq!(window.receive(Kind::Other), Ok(()));
            assert_eq!(window.tell(), start.wrapping_add(9));
            assert_eq!(window.remaining(), 0);
        }
        assert_eq!(Incoming::new(u32::MAX).tell(), MAX_OFFER);
    }

    /// Section 4.2.1.1: the window is renewed before more than half of it is used.
    #[test]
    fn half_a_window_is_renewed() {
        for start in STARTS {
            let mut window = Incoming::after(start, 8);
            window.tell();
            for _ in 0..3 {
                assert_eq!(window.receive(Kind::Other), Ok(()));
                assert!(!window.owes_grant());
            }
            assert_eq!(window.receive(Kind::Other), Ok(()));
            assert!(window.owes_grant());
            assert_eq!(window.tell(), start.wrapping_add(12));
            assert!(!window.owes_grant());
        }
    }

    /// A GRANT is not answered, or two idle peers would never stop. Only several of them are, or
    /// one that leaves the peer without another.
    #[test]
    fn a_grant_is_not_answered() {
        for (offer, unanswered) in [(1, 1), (2, 2), (3, 1), (4, 1), (8, 3)] {
            let mut window = Incoming::new(offer);
            window.tell();
            for _ in 0..unanswered {
                assert_eq!(window.receive(Kind::Grant), Ok(()));
                assert!(!window.owes_grant());
            }
            assert_eq!(window.receive(Kind::Grant), Ok(()));
            assert!(window.owes_grant());
        }
    }

    /// Section 4.2.1.1: after a grant of zero the receiver has to refresh it.
    #[test]
    fn a_starved_window_is_renewed() {
        let mut window = Incoming::new(0);
        assert_eq!(window.receive(Kind::Other), Ok(()));
        assert!(!window.owes_grant());
        assert_eq!(window.tell(), 1);
        assert!(!window.owes_grant());
        window.set_offer(Some(1));
        assert!(window.owes_grant());
        assert_eq!(window.tell(), 2);
        assert!(!window.owes_grant());
        // Having more than before makes a difference only if the peer is short of credits.
        window.set_offer(Some(4));
        assert!(window.owes_grant());
        assert_eq!(window.tell(), 5);
        window.set_offer(Some(6));
        assert!(!window.owes_grant());
    }
}
