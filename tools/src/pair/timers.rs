// SPDX-License-Identifier: GPL-2.0

//! What an owner does that has waited long enough: it has its connection check for progress, and a
//! client gives up a connection that is of no use after a while (`client/connect.rs`).

use super::*;
use crate::proto::connection::watchdog::{
    Pending,
    PROOF_CHECKS,
    STARVED_CHECKS, //
};

/// What the owner of an end knows about a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Owner {
    /// What it had its session end the connection for.
    pub(super) reasons: Vec<Reason>,
    /// Whether the session was told not to wait for its last messages.
    pub(super) hurried: bool,
}

impl End {
    /// Returns whether the connection can be used.
    fn is_decided(&self) -> bool {
        self.connected && self.may_send()
    }

    /// Returns whether something of a server's waits for credits. Of a client's that goes in
    /// another way.
    fn waits(&self) -> bool {
        self.role == Role::Server && !(self.todo.is_empty() && self.is_idle())
    }

    /// Returns whether the connection would last for ever without a check.
    fn needs_checks(&self) -> bool {
        self.connection.session.is_closing()
            || self.connection.session.is_peer_in_sequence()
            || self.connection.session.is_starved()
            || self.host.settlement.awaits_proof() && !self.host.settlement.is_refused()
    }
}

impl Pair {
    /// The owner of an end does not want the connection any more, or has waited for a Reply long
    /// enough.
    pub(super) fn end_it(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.trouble.is_mute() {
            return;
        }
        if end.may_send() {
            end.trouble.owner.reasons.push(Reason::Owner);
            end.connection.session.close();
        } else {
            end.trouble.owner.reasons.push(Reason::NotAuthenticated);
            end.connection.session.close_unauthenticated();
        }
        self.mishaps.ended += 1;
    }

    /// The owner of a client has waited long enough for the connection to be of use.
    pub(super) fn give_up(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let is_over = end.trouble.is_mute() || end.connection.session.is_closing();
        if end.role == Role::Server || is_over || end.is_decided() {
            return;
        }
        match end.connection.session.dialect() {
            None => {
                end.connection.session.handle_timeout(Timer::FirstMessage);
                self.note_expired(at, Timer::FirstMessage);
            }
            Some(_) => self.end_it(at),
        }
    }

    /// Notes that a timer has run out, which the session has been told.
    fn note_expired(&mut self, at: usize, timer: Timer) {
        let (index, reason) = match timer {
            Timer::FirstMessage => (0, Some(Reason::Silent)),
            Timer::Sequence => (1, Some(Reason::Stalled)),
            Timer::Credits => (2, Some(Reason::Starved)),
            Timer::Close => (3, None),
            Timer::Silence => panic!("nobody is asked"),
        };
        let end = &mut self.ends[at];
        assert!(
            end.connection.session.is_closing(),
            "{timer:?} does nothing"
        );
        end.trouble.owner.reasons.extend(reason);
        end.trouble.owner.hurried |= reason.is_none();
        self.mishaps.timeouts[index] += 1;
    }

    /// The owner of an end checks whether the peer makes progress.
    pub(super) fn check(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.trouble.is_mute() {
            return;
        }
        let pending = Pending {
            message: end.waits(),
            proof: end.host.settlement.awaits_proof(),
            patience: 0,
        };
        let found = end.connection.check(pending);
        if found.unproved {
            end.host.skipped();
            self.mishaps.unproved += 1;
        }
        if let Some(timer) = found.expired {
            self.note_expired(at, timer);
        }
        let end = &self.ends[at];
        assert!(
            found.again || found.expired.is_some() || !end.needs_checks(),
            "nobody would check again"
        );
    }

    /// Everybody has waited for as long as he does. Returns whether that has changed anything.
    pub(super) fn wait_in_vain(&mut self, at: usize) -> bool {
        if self.ends[at].trouble.is_mute() {
            return false;
        }
        self.give_up(at);
        // Enough for whatever may have begun: a sequence, or the end of the connection.
        for _ in 0..STARVED_CHECKS.max(PROOF_CHECKS) + 4 {
            self.check(at);
        }
        let end = &self.ends[at];
        if end.connection.session.is_closing() {
            return true;
        }
        let is_two = end.connection.session.dialect() == Some(Version::Two);
        let is_stuck = match end.role {
            Role::Client => end
                .todo
                .iter()
                .any(|todo| todo.direction == Direction::Call),
            Role::Server => end.waits(),
        };
        assert!(
            !is_stuck || !is_two || !end.supports_any(),
            "a message waits for ever, and nobody knows"
        );
        let is_over = end.pending() == 0 && !self.ends[1 - at].trouble.silent;
        if !is_over {
            self.end_it(at);
        }
        !is_over
    }
}
