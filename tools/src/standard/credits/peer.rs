// SPDX-License-Identifier: GPL-2.0

//! A peer made of the rules of flow control, each of which can be left out.

use crate::proto::window::{
    self,
    Admission,
    Kind,
    ReceiveWindow,
    SendWindow, //
};

/// The rules, in the order in which the document has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The credit value is the count of received messages plus the advertised credits.
    CountOfReceived,
    /// A message is posted only while the sent count is less than the received credits.
    LessThanLimit,
    /// A credit value is never less than an earlier one.
    NeverLess,
    /// The credit value of a message with an error counts.
    ErrorsCount,
    /// There is one Receive more than advertised.
    OneMore,
    /// A GRANT may be sent without a credit, once.
    GrantBeyond,
    /// If a GRANT took the last credit, the next message may be sent without one.
    Exchange,
    /// Credits are renewed when half of them are used.
    Half,
    /// Credits are renewed when there are more Receives.
    MoreReceives,
    /// In a window of less than three, GRANTs alone are no reason for a GRANT.
    SmallWindows,
    /// A server also answers a GRANT that leaves its sender no credit.
    ServerAnswers,
    /// A message in parts is sent only if there are credits for all of them.
    AllParts,
    /// It waits for credits only if it has no more parts than just over half of the window.
    HalfInParts,
    /// For a client, a value that only covers its GRANT beyond the limit is no credit.
    NoCreditForGrant,
    /// While all Receives hold messages, no value is sent that covers the one beyond the limit.
    Withheld,
    /// A server sends the value for it as soon as there is a Receive again.
    Acknowledged,
}

impl Rule {
    /// Returns the number that the rule has in the document.
    pub(super) fn number(self) -> String {
        (self as usize + 1).to_string()
    }
}

/// All rules but perhaps some.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Those that are left out.
    pub(super) without: &'static [Rule],
}

impl Rules {
    /// Returns whether a rule is in force.
    pub(super) fn has(self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }
}

/// What one end sends to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Message {
    /// Credits.
    Grant,
    /// A message that nobody answers, or a part of one.
    Plain,
    /// A message that the receiver discards, since it has an error.
    Bad,
    /// A Call. It holds its Receive until the Reply is ready.
    Call,
    /// A Reply.
    Reply,
}

impl Message {
    /// Returns what the message is for the window.
    fn kind(self) -> Kind {
        if self == Self::Grant {
            Kind::Grant
        } else {
            Kind::Other
        }
    }
}

/// The flow control of one end.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// Which end it is.
    pub(super) is_client: bool,
    /// How many messages it has sent.
    pub(super) sent: u32,
    /// The received credits.
    pub(super) limit: u32,
    /// How many messages it had sent with its latest GRANT, while `limit` may not yet count it.
    granted_at: Option<u32>,
    /// How many messages it has received.
    pub(super) received: u32,
    /// The credit value that it has sent last, or the value that holds at the start.
    pub(super) promised: u32,
    /// The advertised credits, or [`None`] if there is no Receive at all.
    offer: Option<u32>,
    /// Whether it has a reason to send a GRANT.
    owed: bool,
    /// What the module's code says, while no rule is left out.
    code: Option<(SendWindow, ReceiveWindow)>,
}

/// The distance from `count` to `value`.
fn ahead(value: u32, count: u32) -> i64 {
    i64::from(value) - i64::from(count)
}

impl Peer {
    /// Returns an end on a new connection, with so many Receives.
    pub(super) fn new(rules: Rules, is_client: bool, receives: u32) -> Self {
        let offer = receives - 1;
        let outgoing = SendWindow::after(0);
        let incoming = ReceiveWindow::after(0, offer);
        let code = if is_client {
            (outgoing.cautious(), incoming)
        } else {
            (outgoing, incoming.answering())
        };
        Self {
            is_client,
            sent: 0,
            limit: 1,
            granted_at: None,
            received: 0,
            promised: 1,
            offer: Some(offer),
            owed: false,
            code: rules.without.is_empty().then_some(code),
        }
    }

    /// Returns how many messages but GRANTs it may send now.
    pub(super) fn available(&self, rules: Rules) -> u32 {
        let ahead = ahead(self.limit, self.sent);
        if !rules.has(Rule::LessThanLimit) {
            return u32::try_from(ahead + 1).unwrap_or(0);
        }
        let exchanged = rules.has(Rule::Exchange) && self.granted_at == Some(self.sent);
        if ahead == 0 && exchanged {
            1
        } else {
            u32::try_from(ahead).unwrap_or(0)
        }
    }

    /// Counts `count` messages that are about to be sent and returns their credit value, or
    /// [`None`] if they may not be sent.
    pub(super) fn send(&mut self, rules: Rules, message: Message, count: u32) -> Option<u32> {
        let kind = message.kind();
        let is_allowed = if kind == Kind::Other {
            count <= self.available(rules)
        } else {
            ahead(self.limit, self.sent) >= i64::from(!rules.has(Rule::GrantBeyond))
        };
        if let Some((outgoing, _)) = &mut self.code {
            let admission = outgoing.consume(count, kind);
            assert_eq!(is_allowed, admission == Admission::Granted);
        }
        if !is_allowed {
            return None;
        }
        let is_cautious = self.is_client && rules.has(Rule::NoCreditForGrant);
        let is_beyond = is_cautious && ahead(self.limit, self.sent) <= 0;
        let value = self.tell(rules);
        self.sent += count;
        if kind == Kind::Grant {
            self.granted_at = (!is_beyond).then_some(self.sent);
        }
        Some(value)
    }

    /// Returns the credit value of a message that is about to be sent.
    pub(super) fn tell(&mut self, rules: Rules) -> u32 {
        self.promised = self.next_limit(rules);
        self.owed = false;
        if let Some((_, incoming)) = &mut self.code {
            assert_eq!(self.promised, incoming.tell());
        }
        self.promised
    }

    /// Takes note of received credits.
    pub(super) fn update(&mut self, value: u32) {
        self.limit = value;
        if self.granted_at.is_some_and(|at| value > at) {
            self.granted_at = None;
        }
        if let Some((outgoing, _)) = &mut self.code {
            outgoing.update(value);
        }
    }

    /// Takes a message and its credit value in.
    pub(super) fn receive(&mut self, rules: Rules, message: Message, value: u32) {
        self.received += 1;
        let is_small = self.offer.unwrap_or(0) < window::LEAST_SHARED;
        let is_grant = message == Message::Grant;
        self.owed |= if is_grant && is_small && rules.has(Rule::SmallWindows) {
            let answers = !self.is_client && rules.has(Rule::ServerAnswers);
            self.remaining() < i64::from(answers)
        } else {
            self.is_used(rules)
        };
        if message != Message::Bad || rules.has(Rule::ErrorsCount) {
            self.update(value);
        }
        if let Some((_, incoming)) = &mut self.code {
            assert!(incoming.receive(message.kind()).is_ok(), "an overrun");
        }
    }

    /// Takes note of how many Receives there are, and how many of them hold a message.
    pub(super) fn set_receives(&mut self, rules: Rules, receives: u32, held: u32) {
        let mut offer = window::offer(receives, held);
        if !rules.has(Rule::Withheld) {
            offer = offer.or(Some(0));
        }
        let is_raised = offer > self.offer && rules.has(Rule::MoreReceives);
        self.offer = offer;
        self.owed |= is_raised && self.is_used(rules);
        if let Some((_, incoming)) = &mut self.code {
            incoming.set_offer(offer);
        }
    }

    /// Returns whether it is to send a GRANT, if nothing else is about to be sent.
    pub(super) fn owes(&self, rules: Rules) -> bool {
        let next = self.next_limit(rules);
        let owes = self.owed && next > self.promised && next > self.received;
        let acknowledges = !self.is_client
            && rules.has(Rule::Acknowledged)
            && self.remaining() < 0
            && next != self.promised;
        if let Some((_, incoming)) = &self.code {
            assert_eq!(owes, incoming.owes_grant());
            let code_acknowledges = !self.is_client && incoming.owes_acknowledgement();
            assert_eq!(acknowledges, code_acknowledges);
        }
        owes || acknowledges
    }

    /// Returns the credit value of the next message.
    fn next_limit(&self, rules: Rules) -> u32 {
        let count = if rules.has(Rule::CountOfReceived) {
            self.received
        } else {
            self.sent
        };
        match self.offer.map(|offer| count + offer) {
            Some(willing) if willing > self.promised || !rules.has(Rule::NeverLess) => willing,
            _ => self.promised,
        }
    }

    /// Returns how many messages the other end may still send.
    fn remaining(&self) -> i64 {
        ahead(self.promised, self.received)
    }

    /// Returns whether so much of the window is used that it is to be renewed.
    fn is_used(&self, rules: Rules) -> bool {
        let left = if rules.has(Rule::Half) {
            i64::from(self.offer.unwrap_or(0) >> 1)
        } else {
            0
        };
        self.remaining() <= left
    }
}
