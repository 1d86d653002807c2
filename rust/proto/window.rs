// SPDX-License-Identifier: GPL-2.0

//! Flow control of Version Two: sliding windows of 32 bits
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 4.2.1).
//!
//! Every message counts, whatever its type, and the two directions of a connection are counted
//! separately. The credit value in a header is a limit: the number of messages that its receiver
//! may send, counted from the start of the connection. [`ReceiveWindow`] gives out limits and
//! [`SendWindow`] obeys them. Counters and limits wrap; only their differences have a meaning.
//!
//! # Absence of deadlock
//!
//! Every message renews a limit. If there is nothing to send, a GRANT renews it, and a GRANT takes
//! a credit itself. The following rules ensure that two idle ends fall silent, and that an end that
//! has something to send can always send:
//!
//! - The receiver keeps one Receive more than it has promised, so one message beyond the limit does
//!   no harm. A sender that exceeds this ignores its credits. If that message holds its Receive and
//!   all other Receives are held too, the receiver sends no limit that covers the message until a
//!   Receive is free again. Until then the peer cannot send another message beyond the limit.
//! - A GRANT may be that message (4.2.1.1). If a GRANT took the last ordinary credit instead, the
//!   next message may be the one beyond the limit, since the receiver must be ready for both.
//! - For a client, a limit that just covers its GRANT beyond the previous limit is no credit: the
//!   client sends nothing but another GRANT. The server may have sent the limit for that alone,
//!   with one Receive left. If a Call took that Receive, the client could not renew the credits for
//!   a Reply. The server takes in no other Call, and so frees no Receive, before that Reply is
//!   sent. If the limit was sent before the GRANT arrived, there is one more Receive. Therefore a
//!   server answers a GRANT that leaves no credit. A client need not do so, and must not, or the
//!   two would answer each other forever.
//! - A GRANT is sent only if it raises the limit and leaves at least one credit. In addition, half
//!   of the window must be used, or the peer must have used the Receive beyond the limit, or the
//!   receiver must have got more Receives.
//! - A server without credits to give still answers the message beyond the limit, as soon as it has
//!   a Receive for another one. Otherwise the client could not renew the credits that a Reply waits
//!   for. Only one end does so, or the two would answer each other forever.
//! - A GRANT that uses up half of a window is answered only if the window has three messages or
//!   more. A GRANT that is answered has therefore given away more than half a window, of which the
//!   answer takes one credit, and the answer is not answered in turn. A server also answers a GRANT
//!   that uses up a smaller window.

/// The largest number of messages that may be promised at a time. Limits must be less than 2^31 - 1
/// ahead (4.2.1).
pub(crate) const MAX_OFFER: u32 = 0x7fff_fffe;

/// The limit before the first message of the peer (4.2.1).
pub(crate) const FIRST_LIMIT: u32 = 1;

/// The smallest window of which a GRANT can take one credit and leave more than half.
pub(crate) const LEAST_SHARED: u32 = 3;

/// Returns the largest number of parts of an RPC message that has to wait for credits, in a window
/// of `window` messages.
///
/// The peer renews credits when half of them are used (4.2.1.1). Until something is sent, a sender
/// can therefore count on just over half of them only. In a small window GRANTs may take all.
pub(crate) const fn most_parts(window: u32) -> u32 {
    if window < LEAST_SHARED {
        1
    } else {
        (window >> 1).saturating_add(1)
    }
}

/// Returns the number of messages to offer to the peer, for `posted` Receives of which `held` have
/// messages that are still in use. Returns [`None`] if all of them are in use.
///
/// One of the free Receives is not offered. It is for the message beyond the limit (4.2.1.1).
pub(crate) const fn offer(posted: u32, held: u32) -> Option<u32> {
    posted.saturating_sub(held).checked_sub(1)
}

/// The kind of a message for flow control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// A GRANT, which only carries credits.
    Grant,
    /// Any other message.
    Other,
}

/// The answer to the question if a message may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may, and was counted.
    Granted,
    /// It has to wait until something completes or more is granted.
    MustWait,
}

/// Returns the distance by which `value` is ahead of `count` on the circle of 2^32 values. It is
/// negative if `value` is behind.
fn ahead(value: u32, count: u32) -> i32 {
    i32::from_ne_bytes(value.wrapping_sub(count).to_ne_bytes())
}

/// The window for messages that we send.
///
/// # Invariants
///
/// At most one of the admitted messages is beyond the limit that was in force when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SendWindow {
    /// The number of messages sent.
    sent: u32,
    /// The number of messages that may be sent: the latest credit value of the peer.
    limit: u32,
    /// The number of messages sent up to and including the latest GRANT, as long as `limit` may not
    /// yet take it into account.
    granted_at: Option<u32>,
    /// True if a GRANT beyond the limit is not treated as one that took the last credit. A client
    /// sets this.
    cautious: bool,
}

impl SendWindow {
    /// Returns the state after `count` messages, with one more allowed.
    pub(crate) const fn after(count: u32) -> Self {
        Self {
            sent: count,
            limit: count.wrapping_add(FIRST_LIMIT),
            granted_at: None,
            cautious: false,
        }
    }

    /// Changes to the behaviour of a client, see [`self`].
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

    /// Returns the number of messages other than GRANTs that may be sent now.
    pub(crate) fn available(&self) -> u32 {
        let ahead = ahead(self.limit, self.sent);
        match u32::try_from(ahead) {
            // A GRANT took the last ordinary credit, so the message beyond the limit is left.
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

    /// Counts `count` messages of a kind that are about to be sent, if all of them are allowed.
    pub(crate) fn consume(&mut self, count: u32, kind: Kind) -> Admission {
        let admitted = match kind {
            Kind::Grant => count <= 1 && self.admits_grant(),
            Kind::Other => count <= self.available(),
        };
        if !admitted {
            return Admission::MustWait;
        }
        let is_beyond = self.cautious && !self.admits_ordinary();
        // INVARIANT: the admitted messages end at the limit or one beyond it.
        self.sent = self.sent.wrapping_add(count);
        if kind == Kind::Grant && count == 1 {
            self.granted_at = (!is_beyond).then_some(self.sent);
        }
        Admission::Granted
    }

    /// Counts a message that is sent regardless of the limit: an answer in a version without such
    /// limits.
    pub(crate) fn force(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Stores the credit value of the latest message from the peer.
    ///
    /// The value counts even if it is lower than an earlier one, since the peer may take back
    /// credits that it did not promise to messages on their way. A value that is 2^31 or more ahead
    /// counts as behind, so that nothing may be sent.
    pub(crate) fn update(&mut self, limit: u32) {
        self.limit = limit;
        if self.granted_at.is_some_and(|at| ahead(limit, at) > 0) {
            self.granted_at = None;
        }
    }
}

/// The error for a peer that sends more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowOverrun;

/// The window for messages that we receive.
///
/// # Invariants
///
/// `promised` is at most [`MAX_OFFER`] ahead of `received`, and at most one behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReceiveWindow {
    /// The number of messages received.
    received: u32,
    /// The limit sent last, or [`FIRST_LIMIT`].
    promised: u32,
    /// The number of messages that we allow on their way to us, or [`None`] if there is no Receive
    /// even for the one beyond the limit.
    offer: Option<u32>,
    /// True if a renewal is due as soon as it makes a difference.
    owed: bool,
    /// True if a GRANT that leaves the peer without a credit is answered. A server sets this.
    answers: bool,
}

impl ReceiveWindow {
    /// Returns the state after `count` messages, with one more allowed.
    pub(crate) fn after(count: u32, offer: u32) -> Self {
        // INVARIANT: `promised` is one ahead.
        Self {
            received: count,
            promised: count.wrapping_add(FIRST_LIMIT),
            offer: Some(offer.min(MAX_OFFER)),
            owed: false,
            answers: false,
        }
    }

    /// Changes to the behaviour of a server, see [`self`].
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

    /// Returns the number of messages that we allow on their way to us.
    pub(crate) fn offer(&self) -> u32 {
        self.offer.unwrap_or(0)
    }

    /// Returns the number of messages that the peer may still send, as far as it knows. It is -1 if
    /// the peer has sent the one beyond its limit.
    pub(crate) fn remaining(&self) -> i32 {
        ahead(self.promised, self.received)
    }

    /// Returns the number of Receives that must be posted to keep the promise: one more than
    /// promised.
    pub(crate) fn must_be_posted(&self) -> u32 {
        u32::try_from(self.remaining())
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// Changes the number of messages that we allow on their way to us.
    ///
    /// A promise is kept: a smaller offer takes effect as the peer sends. Before this call, one
    /// more Receive than `offer` must be posted. If there is not even that one, as when the message
    /// beyond the limit is in use like all others, the offer is [`None`]. The limit then stays
    /// behind that message, so that the peer sends no GRANT either.
    pub(crate) fn set_offer(&mut self, offer: Option<u32>) {
        let offer = offer.map(|offer| offer.min(MAX_OFFER));
        if offer == self.offer {
            return;
        }
        let raised = offer > self.offer;
        self.offer = offer;
        self.owed |= raised && self.is_half_used();
    }

    /// Counts a received message.
    ///
    /// # Errors
    ///
    /// [`WindowOverrun`] if the peer must not send the message. One message beyond the limit is
    /// accepted.
    pub(crate) fn receive(&mut self, kind: Kind) -> core::result::Result<(), WindowOverrun> {
        if self.remaining() < 0 {
            return Err(WindowOverrun);
        }
        // INVARIANT: `promised` was not behind, so it is at most one behind now.
        self.received = self.received.wrapping_add(1);
        self.owed |= match kind {
            Kind::Grant if self.offer() < LEAST_SHARED => {
                self.remaining() < i32::from(self.answers)
            }
            Kind::Grant | Kind::Other => self.is_half_used(),
        };
        Ok(())
    }

    /// Counts a message of a version with other rules, which holds no Receive, before the first one
    /// of Version Two. As long as no Version Two credits were sent, the peer may send one more
    /// message.
    pub(crate) fn receive_other(&mut self) {
        // INVARIANT: `promised` is one ahead.
        self.received = self.received.wrapping_add(1);
        self.promised = self.received.wrapping_add(FIRST_LIMIT);
    }

    /// Returns the credit value for the next message, and records it as sent.
    ///
    /// It never decreases (modulo 2^32).
    pub(crate) fn tell(&mut self) -> u32 {
        // INVARIANT: it is unchanged, or `offer` ahead, which is at most `MAX_OFFER`.
        self.promised = self.next_limit();
        self.owed = false;
        self.promised
    }

    /// Returns whether a GRANT is due, unless another message is about to be sent.
    pub(crate) fn owes_grant(&self) -> bool {
        let next = self.next_limit();
        self.owed && ahead(next, self.promised) > 0 && ahead(next, self.received) > 0
    }

    /// Returns whether the peer has sent the message beyond its limit and needs a higher limit to
    /// send it again, although there is no credit to give. Until the peer gets this limit it cannot
    /// renew our credits.
    ///
    /// There is a Receive for that message again: at once if it was a GRANT, otherwise as soon as a
    /// Receive is free.
    pub(crate) fn owes_acknowledgement(&self) -> bool {
        self.remaining() < 0 && self.next_limit() != self.promised
    }

    /// Returns the credit value that the next message would carry.
    pub(crate) fn next_limit(&self) -> u32 {
        let willing = self.offer.map(|offer| self.received.wrapping_add(offer));
        willing
            .filter(|willing| ahead(*willing, self.promised) > 0)
            .unwrap_or(self.promised)
    }

    /// Returns whether no GRANT will be due before another message arrives, whatever is offered
    /// until then, up to `most` messages.
    pub(crate) fn is_content(&self, most: u32) -> bool {
        let half = most.min(MAX_OFFER) >> 1;
        !self.owed && u32::try_from(self.remaining()).is_ok_and(|left| left > half)
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

    /// The values at which counters start: zero, and some from which 2^31 or 2^32 is passed.
    const STARTS: [u32; 5] = [0, 0x7fff_fffd, 0x7fff_ffff, 0xffff_fffd, u32::MAX];

    /// Section 4.2.1.1: this holds even without a credit to give, since the Receive is free again.
    #[test]
    fn a_grant_beyond_the_limit_is_acknowledged() {
        for start in STARTS {
            let mut window = ReceiveWindow::after(start, 2);
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

    /// Section 4.2.1.1: if all Receives are held, including the one beyond the limit, there is none
    /// for a GRANT. No limit then allows one, until a Receive is free.
    #[test]
    fn no_grant_is_let_out_for_which_there_is_no_receive() {
        for start in STARTS {
            let (mut window, mut out) = (ReceiveWindow::after(start, 2), SendWindow::after(start));
            out.update(window.tell());
            let send = |window: &mut ReceiveWindow, out: &mut SendWindow, kind| {
                assert_eq!(out.consume(1, kind), Admission::Granted);
                assert_eq!(window.receive(kind), Ok(()));
            };
            // Two Calls hold their Receives. The peer renews our credits with the message beyond
            // the limit, and gets a new limit.
            for kind in [Kind::Other, Kind::Other, Kind::Grant] {
                send(&mut window, &mut out, kind);
            }
            window.set_offer(offer(3, 2));
            out.update(window.tell());
            // The peer may use it for either kind.
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

    /// Section 4.2.1.1: a client does not use the acknowledgement of a GRANT beyond the limit as a
    /// credit. This leaves a Receive for its next GRANT, however often it renews our credits.
    #[test]
    fn an_acknowledgement_is_no_credit() {
        for start in STARTS {
            let mut window = ReceiveWindow::after(start, 2).answering();
            let mut out = SendWindow::after(start).cautious();
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

    /// Section 4.2.1.1: a limit that was on its way when the GRANT beyond the previous limit was
    /// sent looks the same. In that case there is one more Receive, and another limit is sent.
    #[test]
    fn a_grant_that_leaves_no_credit_is_answered() {
        for start in STARTS {
            for small in [1, 2] {
                let mut window = ReceiveWindow::after(start, 0).answering();
                let mut out = SendWindow::after(start).cautious();
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

    /// Section 4.2.1: the start value allows exactly one message.
    #[test]
    fn one_message_until_the_peer_speaks() {
        for start in STARTS {
            let mut out = SendWindow::after(start);
            assert_eq!(out.available(), 1);
            assert_eq!(out.consume(2, Kind::Other), Admission::MustWait);
            assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
            assert_eq!(out.consume(1, Kind::Other), Admission::MustWait);
            assert_eq!(out.sent(), start.wrapping_add(1));
        }
        assert_eq!(SendWindow::after(0).limit(), 1);
    }

    /// Section 4.2.1: the credit value is a number of messages, counted from the start of the
    /// connection.
    #[test]
    fn limits_count_all_messages() {
        for start in STARTS {
            let mut out = SendWindow::after(start);
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

    /// Section 4.2.1: limits are less than 2^31 - 1 ahead. A larger one counts as passed.
    #[test]
    fn limits_far_ahead_are_behind() {
        for start in STARTS {
            let mut out = SendWindow::after(start);
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
        let mut out = SendWindow::after(0);
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

    /// Section 4.2.1.1: the peer can open a zero window, and a GRANT can always be sent.
    #[test]
    fn a_grant_may_be_one_beyond() {
        for start in STARTS {
            let mut out = SendWindow::after(start);
            assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
            assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
            // It cannot be sent again before the peer's value covers it.
            assert_eq!(out.consume(1, Kind::Grant), Admission::MustWait);
            assert_eq!(out.consume(1, Kind::Other), Admission::MustWait);
            out.update(start.wrapping_add(1));
            assert_eq!(out.consume(1, Kind::Grant), Admission::MustWait);
            out.update(start.wrapping_add(2));
            assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
        }
    }

    /// If a GRANT takes the last credit, the next message may be the one beyond the limit.
    #[test]
    fn a_grant_does_not_take_the_last_credit() {
        for start in STARTS {
            let mut out = SendWindow::after(start);
            assert_eq!(out.consume(1, Kind::Grant), Admission::Granted);
            assert_eq!(out.available(), 1);
            assert_eq!(out.consume(1, Kind::Other), Admission::Granted);
            assert_eq!(out.available(), 0);
            assert!(!out.admits_grant());
            // A limit beyond the GRANT ends the special case.
            out.update(start.wrapping_add(2));
            assert_eq!(out.available(), 0);
            assert!(out.admits_grant());
        }
    }

    /// Section 4.2.1.1: there is one Receive more than advertised.
    #[test]
    fn one_message_beyond_is_accepted() {
        for start in STARTS {
            let mut window = ReceiveWindow::after(start, 4);
            assert_eq!(window.must_be_posted(), 2);
            assert_eq!(window.tell(), start.wrapping_add(4));
            assert_eq!(window.must_be_posted(), 5);
            for left in (0..5).rev() {
                assert_eq!(window.receive(Kind::Other), Ok(()));
                assert_eq!(window.must_be_posted(), if left == 0 { 1 } else { left });
            }
            assert_eq!(window.remaining(), -1);
            assert_eq!(window.receive(Kind::Other), Err(WindowOverrun));
            assert_eq!(window.receive(Kind::Grant), Err(WindowOverrun));
            assert_eq!(window.received(), start.wrapping_add(5));
            assert_eq!(window.tell(), start.wrapping_add(9));
            assert_eq!(window.receive(Kind::Other), Ok(()));
        }
    }

    /// Section 4.2.1.1: of the Receives without a message all but one are promised, whatever holds
    /// the others.
    #[test]
    fn a_receive_is_kept_for_a_grant() {
        for start in STARTS {
            for posted in 2..10_u32 {
                let mut window = ReceiveWindow::after(start, posted.saturating_sub(1));
                let mut held = 0_u32;
                window.tell();
                while window.remaining() > 0 {
                    assert_eq!(window.must_be_posted().saturating_add(held), posted);
                    assert_eq!(window.receive(Kind::Other), Ok(()));
                    held = held.saturating_add(1);
                    window.set_offer(offer(posted, held));
                    window.tell();
                }
                // All but one hold messages. The GRANT frees its Receive.
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

    /// Other versions have their own credits, so this limit does not apply to their messages. A
    /// message of Version Two may come next.
    #[test]
    fn messages_of_other_versions_take_no_credit() {
        for start in STARTS {
            let mut window = ReceiveWindow::after(start, 4);
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

    /// Limits never decrease, since a promise is kept.
    #[test]
    fn limits_never_go_back() {
        for start in STARTS {
            let mut window = ReceiveWindow::after(start, 8);
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
        assert_eq!(ReceiveWindow::after(0, u32::MAX).tell(), MAX_OFFER);
    }

    /// Section 4.2.1.1: the window is renewed before more than half of it is used.
    #[test]
    fn half_a_window_is_renewed() {
        for start in STARTS {
            let mut window = ReceiveWindow::after(start, 8);
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

    /// A GRANT is not answered, or two idle peers would never stop. Exceptions are several GRANTs,
    /// and one that leaves the peer without a credit.
    #[test]
    fn a_grant_is_not_answered() {
        for (offer, unanswered) in [(1, 1), (2, 2), (3, 1), (4, 1), (8, 3)] {
            let mut window = ReceiveWindow::after(0, offer);
            window.tell();
            for _ in 0..unanswered {
                assert_eq!(window.receive(Kind::Grant), Ok(()));
                assert!(!window.owes_grant());
            }
            assert_eq!(window.receive(Kind::Grant), Ok(()));
            assert!(window.owes_grant());
        }
    }

    /// Section 4.2.1.1: after a grant of zero the receiver must renew it.
    #[test]
    fn a_starved_window_is_renewed() {
        let mut window = ReceiveWindow::after(0, 0);
        assert_eq!(window.receive(Kind::Other), Ok(()));
        assert!(!window.owes_grant());
        assert_eq!(window.tell(), 1);
        assert!(!window.owes_grant());
        window.set_offer(Some(1));
        assert!(window.owes_grant());
        assert_eq!(window.tell(), 2);
        assert!(!window.owes_grant());
        // More Receives make a difference only if the peer is short of credits.
        window.set_offer(Some(4));
        assert!(window.owes_grant());
        assert_eq!(window.tell(), 5);
        window.set_offer(Some(6));
        assert!(!window.owes_grant());
    }

    /// Section 4.2.1.1: a GRANT that takes the last credit leaves room for the message beyond it,
    /// at either end.
    #[test]
    fn a_careful_end_may_use_the_last_credit_for_a_grant() {
        let mut window = SendWindow::after(0).cautious();
        assert_eq!(window.consume(1, Kind::Grant), Admission::Granted);
        assert_eq!(window.available(), 1);
    }

    /// Section 4.2.1: every message counts, also one that no limit holds back.
    #[test]
    fn a_message_without_a_credit_counts() {
        let mut window = SendWindow::after(7);
        window.update(10);
        window.force();
        assert_eq!((window.sent(), window.available()), (8, 2));
    }

    /// Section 4.2.1.1: a renewal that is due stays so until it is sent, whatever becomes of the
    /// Receives.
    #[test]
    fn a_renewal_stays_due() {
        let mut window = ReceiveWindow::after(0, 0);
        assert_eq!(window.receive(Kind::Other), Ok(()));
        for offer in [1, 2, 3, 2] {
            window.set_offer(Some(offer));
            assert!(window.owes_grant());
        }
    }
}
