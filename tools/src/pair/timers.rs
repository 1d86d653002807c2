// SPDX-License-Identifier: GPL-2.0

//! What an owner does who has waited long enough: `link/channel.rs` and `client/connect.rs`.

use super::*;

/// So many looks find the same credits before the connection is ended.
const STARVED_LOOKS: u32 = 2;

/// What the owner of an end knows about a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Owner {
    /// What it had its session end the connection for.
    pub(super) reasons: Vec<Reason>,
    /// How far the peer's sequence had come at the last look.
    seen: Option<u64>,
    /// How many looks have found too few credits, and which ones.
    starved: (u32, u32),
    /// Whether a look has found that the connection is to end.
    ending: bool,
    /// Whether the next one has.
    pub(super) hurried: bool,
}

impl End {
    /// Returns whether the connection can be used.
    fn is_decided(&self) -> bool {
        self.connected && self.may_send()
    }

    /// Returns whether something of a server's waits for credits. Of a client's that goes in another way.
    fn waits(&self) -> bool {
        self.role == Role::Server && !(self.todo.is_empty() && self.is_idle())
    }
}

impl Pair {
    /// The owner of an end does not want the connection any more, or has waited for a Reply long enough.
    pub(super) fn end_it(&mut self, at: usize) {
        let end = &mut self.ends[at];
        if end.trouble.is_mute() {
            return;
        }
        if end.may_send() {
            end.trouble.owner.reasons.push(Reason::Owner);
            end.session.close();
        } else {
            end.trouble.owner.reasons.push(Reason::NotAuthenticated);
            end.session.close_unauthenticated();
        }
        self.mishaps.ended += 1;
    }

    /// The owner of a client has waited long enough for the connection to be of use.
    pub(super) fn give_up(&mut self, at: usize) {
        let end = &mut self.ends[at];
        let is_over = end.trouble.is_mute() || end.session.is_closing();
        if end.role == Role::Server || is_over || end.is_decided() {
            return;
        }
        match end.session.dialect() {
            None => self.fire(at, Timer::FirstMessage),
            Some(_) => self.end_it(at),
        }
    }

    /// A timer fires.
    fn fire(&mut self, at: usize, timer: Timer) {
        let end = &mut self.ends[at];
        let (index, reason) = match timer {
            Timer::FirstMessage => (0, Some(Reason::Silent)),
            Timer::Sequence => (1, Some(Reason::Stalled)),
            Timer::Credits => (2, Some(Reason::Starved)),
            Timer::Close => (3, None),
        };
        end.session.handle_timeout(timer);
        assert!(end.session.is_closing(), "{timer:?} does nothing");
        end.trouble.owner.reasons.extend(reason);
        end.trouble.owner.hurried |= reason.is_none();
        self.mishaps.timeouts[index] += 1;
    }

    /// The owner of an end looks whether the peer goes on.
    pub(super) fn look(&mut self, at: usize) {
        let waits = self.ends[at].waits();
        let end = &mut self.ends[at];
        if end.trouble.is_mute() {
            return;
        }
        let (trouble, session) = (&mut end.trouble, &end.session);
        if session.is_closing() {
            if std::mem::replace(&mut trouble.owner.ending, true) {
                self.fire(at, Timer::Close);
            }
            return;
        }
        let now = session.peer_sequence();
        let before = std::mem::replace(&mut trouble.owner.seen, now);
        if now.is_some() && now == before {
            self.fire(at, Timer::Sequence);
            return;
        }
        let limit = session.windows().0.limit();
        let starved = session.is_starved() || waits && session.is_short();
        trouble.owner.starved = match trouble.owner.starved {
            _ if !starved => (0, limit),
            (looks, last) if last == limit => (looks + 1, limit),
            _ => (1, limit),
        };
        if trouble.owner.starved.0 > STARVED_LOOKS {
            self.fire(at, Timer::Credits);
        }
    }

    /// Everybody has waited for as long as he does. Returns whether that has changed anything.
    pub(super) fn wait_in_vain(&mut self, at: usize) -> bool {
        if self.ends[at].trouble.is_mute() {
            return false;
        }
        self.give_up(at);
        for _ in 0..STARVED_LOOKS + 4 {
            self.look(at);
        }
        let end = &self.ends[at];
        if end.session.is_closing() {
            return true;
        }
        let is_two = end.session.dialect() == Some(Dialect::Two);
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
