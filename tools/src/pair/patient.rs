// SPDX-License-Identifier: GPL-2.0

//! What the module's glue does with a session that lets nothing out: it waits.
//!
//! A Reply that has its form keeps it and waits as long as it takes (`responder/post.rs`), in a
//! list that no other Reply overtakes (`endpoint/reply.rs`). No error takes its place, and no
//! chunk. So it must not have more parts than will be let out one day ([`Connection::max_parts`]).
//! Calls are put together anew each time (`requester/marshal.rs`).
//!
//! A Call keeps its Receive until its Reply is ready on a server, and until it is posted on a
//! client. While a Reply of a server's waits no further Call is taken in, so that these keep
//! theirs: the window that such an end offers gets smaller, down to nothing.
//!
//! Servers may grow. Then they begin with few Receives, and have their [`Receives`] add others and
//! take them back, as their memory allows.

use super::*;
use crate::proto::window::LEAST_SHARED;

/// How a Reply travels.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// In so many messages.
    Parts(Split),
    /// In the Reply chunk.
    Chunk,
    /// Not at all: this error takes its place.
    Error(RdmaError),
}

/// What limits the ends of a pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// In how many messages an RPC message may travel (`link/middles.rs`).
    parts: u32,
    /// How many Calls a server makes at a time (`server/callback.rs`).
    slots: u32,
    /// How many Receives a client has beside those for the server's Calls, and the one beyond.
    beside: u32,
    /// Whether the server adds Receives and takes them back.
    grows: bool,
}

/// What an end has that waits.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience {
    /// What limits it, if it waits.
    pub(super) bounds: Option<Bounds>,
    /// How many Receives there are for the peer's messages.
    asked: u32,
    /// How many of them hold a message.
    pub(super) held: u32,
    /// How many credits there is memory for, if that is short.
    left: Option<u32>,
    /// For how many messages there is memory, if that for messages in parts is short.
    throttle: Option<u32>,
    /// Replies that have their form, the oldest first.
    ready: VecDeque<(Todo, Form)>,
    /// Whether the latest message in parts that it had has to wait.
    stuck: bool,
}

impl Bounds {
    /// What the schedule says. With `short` the client has fewer Receives than it needs, see
    /// `link/sizing.rs`.
    pub(super) fn new(schedule: &mut Schedule<'_>, short: bool) -> Self {
        let parts = 2 + schedule.any() % 7;
        let slots = schedule.any();
        let more = schedule.any() % 8;
        Self {
            parts,
            slots: 1 + slots % 4,
            grows: slots >= 128,
            beside: match short {
                // As many as there are parts, but not half of a window of them.
                true => parts,
                // A window of less than that may be used up by GRANTs.
                false => (2 * (parts - 1)).max(LEAST_SHARED) + more,
            },
        }
    }

    /// Returns how many Receives an end has.
    pub(super) fn capacity(&self, role: Role, wanted: u32) -> u32 {
        match role {
            Role::Client => 1 + self.slots + self.beside,
            Role::Server => 1 + wanted,
        }
    }
}

/// Returns the Receives of an end on a new connection.
pub(super) fn receives(config: &Config, bounds: Option<&Bounds>) -> Receives {
    if config.role == Role::Server && bounds.is_some_and(|bounds| bounds.grows) {
        return Receives::new(FIRST_CREDITS, FIRST_CREDITS + config.receives);
    }
    Receives::fixed(config.receives + 1)
}

impl End {
    /// Begins to wait.
    pub(super) fn become_patient(&mut self, bounds: Bounds) {
        self.patience = Patience {
            bounds: Some(bounds),
            asked: self.connection.receives().posted(),
            ..Patience::default()
        };
    }

    /// Returns whether it is a server that adds Receives and takes them back.
    pub(super) fn is_growing(&self) -> bool {
        let bounds = self.patience.bounds;
        self.role == Role::Server && bounds.is_some_and(|bounds| bounds.grows)
    }

    /// Has Receives or memory become short, or end to be.
    pub(super) fn change_supply(&mut self, schedule: &mut Schedule<'_>) {
        let what = schedule.any();
        self.patience.left = (what & 1 != 0).then_some(what / 8 % 16);
        self.patience.throttle = (what & 6 == 6).then_some(what / 8 % 16);
    }

    /// Ends all shortages.
    pub(super) fn end_shortage(&mut self) {
        self.patience.left = None;
        self.patience.throttle = None;
    }

    /// A message has arrived, and has its Receive.
    pub(super) fn hold(&mut self) {
        self.patience.held += 1;
        self.update_offer();
    }

    /// A message was dealt with. If it is the last one of a Call, which is `kept`, it keeps its
    /// Receive.
    pub(super) fn release(&mut self, kept: bool) {
        self.patience.held -= u32::from(!kept);
        self.update_offer();
    }

    /// Tells the session how many Receives there are for the peer's messages.
    pub(super) fn update_offer(&mut self) {
        if self.patience.bounds.is_some() {
            let Patience { held, throttle, .. } = self.patience;
            self.connection.update_offer(held, throttle);
        }
    }

    /// Checks that a connection which says that it is quiet wants nothing, whatever Receives come
    /// back. Returns whether it says so.
    pub(super) fn check_quiet(&self) -> bool {
        let is_quiet = self.connection.is_quiet();
        if is_quiet {
            let held = self.patience.held;
            for held in [held, held / 2, 0] {
                let mut connection = self.connection.clone();
                if self.patience.bounds.is_some() {
                    connection.update_offer(held, self.patience.throttle);
                }
                assert_eq!(connection.poll(), None, "it was said to be quiet");
            }
        }
        is_quiet
    }

    /// Checks that there is a Receive for each message on its way.
    pub(super) fn check_receives(&self) {
        let Patience {
            bounds,
            asked,
            held,
            ..
        } = self.patience;
        if bounds.is_some() {
            assert!(self.wire.len() as u32 + held <= asked, "too few Receives");
            assert_eq!(self.connection.receives().posted(), asked);
        }
    }

    /// Renews the peer's credits as before each Reply of a server, and makes Receives ready for
    /// more, or gives some back (`link/channel/receives.rs`).
    fn renew_credits(&mut self) -> Seen {
        let mut seen = Seen::default();
        let limit = self.connection.receives().allowance().limit();
        let left = self.patience.left.unwrap_or(limit).min(limit);
        let (used, limit) = (u64::from(limit - left), u64::from(limit));
        self.connection.receives_mut().set_memory(used, limit);
        let renewal = self.connection.begin_renewal();
        seen.withdrawn += u32::from(renewal.is_new);
        if renewal.settles {
            self.update_offer();
            let settled = self.connection.settle(self.patience.held);
            self.patience.asked -= settled;
            seen.settled += settled;
        }
        if renewal.wanted > 0 {
            let made = self.patience.left.is_none();
            if made {
                self.patience.asked += renewal.wanted;
                seen.grown += 1;
            }
            let receives = self.connection.receives_mut();
            receives.end_growth(renewal.wanted, made);
        }
        seen
    }

    /// Returns whether it has nothing ready.
    pub(super) fn is_idle(&self) -> bool {
        self.patience.ready.is_empty()
    }

    /// Returns in how many parts a message may be sent, if not now then later.
    fn max_parts(&self, direction: Direction, bounds: &Bounds) -> u32 {
        let is_reverse = (self.role == Role::Server) == (direction == Direction::Call);
        match self.connection.session.reverse() {
            ReverseLevel::None | ReverseLevel::Simple if is_reverse => 1,
            _ => self.connection.max_parts().min(bounds.parts),
        }
    }

    /// Returns whether a Call offers a Reply chunk: if its Reply may take too many messages.
    fn offers_chunk(&self, todo: &Todo, bounds: &Bounds) -> bool {
        let size = self.connection.session.terms().receive_size;
        self.may_use_chunks(Direction::Call)
            && Split::new(todo.reply_len, REPLY_HEADER, size)
                .map_or(true, |split| split.len() > bounds.parts)
    }

    /// Chooses the form of a Reply.
    fn form(&self, todo: &Todo, bounds: &Bounds) -> Form {
        let size = self.connection.session.terms().send_size;
        let split = Split::new(todo.len, REPLY_HEADER, size);
        let parts = split.as_ref().map_or(u32::MAX, Split::len);
        match split {
            Ok(split) if parts == 1 => Form::Parts(split),
            _ if todo.chunk => Form::Chunk,
            Ok(split) if parts <= self.max_parts(Direction::Reply, bounds) => Form::Parts(split),
            _ => Form::Error(RdmaError::ReplyResource { needed: todo.len }),
        }
    }

    /// Returns the first Reply that has no form yet.
    fn first_reply(&self) -> Option<usize> {
        let mut todo = self.todo.iter();
        todo.position(|todo| todo.direction == Direction::Reply)
    }

    /// A message can't be sent now.
    fn note_refusal(&mut self, parts: u32) {
        self.patience.stuck |= parts > 1;
    }
}

/// The size of a Reply's header without chunks (6.3.10).
const REPLY_HEADER: usize = 20;

impl Pair {
    /// Makes another Reply ready, if an end has one. `eager` lets it although others wait: these
    /// were taken in before.
    pub(super) fn prepare(&mut self, at: usize, eager: bool) -> bool {
        let end = &mut self.ends[at];
        let Some(bounds) = end.patience.bounds else {
            return false;
        };
        if end.connection.session.dialect() != Some(Version::Two) {
            return false;
        }
        // What a client can't send at once it puts together again.
        let waits = !end.patience.ready.is_empty();
        if waits && (end.role == Role::Client || !eager) {
            return false;
        }
        let Some(index) = end.first_reply() else {
            return false;
        };
        let todo = end.todo.remove(index).expect("it is there");
        if end.is_growing() {
            self.seen += end.renew_credits();
        }
        let form = end.form(&todo, &bounds);
        if end.role == Role::Server {
            end.patience.held -= 1;
            end.update_offer();
        }
        end.patience.ready.push_back((todo, form));
        true
    }

    /// Tries to send the Reply that has been ready longest, or else one of the Calls.
    pub(super) fn send_patiently(&mut self, at: usize, index: usize, bounds: &Bounds) -> bool {
        self.send_reply(at, bounds) || self.send_call(at, index, bounds)
    }

    /// Tries to send the Reply that has been ready longest.
    fn send_reply(&mut self, at: usize, bounds: &Bounds) -> bool {
        let end = &mut self.ends[at];
        let Some(&(todo, form)) = end.patience.ready.front() else {
            return false;
        };
        let form = match end.role {
            Role::Client => end.form(&todo, bounds),
            Role::Server => form,
        };
        let parts = match &form {
            Form::Parts(split) => split.len(),
            Form::Chunk | Form::Error(_) => 1,
        };
        let Some(credits) = self.admit(at, Direction::Reply, parts, matches!(form, Form::Chunk))
        else {
            return false;
        };
        let end = &mut self.ends[at];
        end.patience.ready.pop_front();
        if end.role == Role::Client {
            end.patience.held -= 1;
        }
        match form {
            Form::Parts(split) => {
                self.seen.continued += u32::from(parts > 1);
                self.post_parts(at, &todo, &split, credits, false);
            }
            Form::Chunk => self.post_external(at, &todo, credits),
            Form::Error(error) => {
                self.seen.errors += 1;
                let header = ErrorHeader {
                    xid: todo.xid,
                    version: crate::proto::v2::VERSION,
                    credits,
                    error,
                };
                self.post(at, encoded(|buf| header.encode(Version::Two, buf)));
            }
        }
        true
    }

    /// Tries to send a Call, in the form that is best now.
    fn send_call(&mut self, at: usize, index: usize, bounds: &Bounds) -> bool {
        let end = &mut self.ends[at];
        let todo = end.todo.iter().enumerate();
        let calls: Vec<usize> = todo
            .filter(|(_, todo)| todo.direction == Direction::Call)
            .map(|(index, _)| index)
            .collect();
        if calls.is_empty() || !end.connected || !end.supports_any() {
            return false;
        }
        let index = calls[index % calls.len()];
        let mut todo = end.todo[index];
        todo.chunk = end.offers_chunk(&todo, bounds);
        let header = match todo.chunk {
            true => CALL_HEADER + 4 + 16,
            false => CALL_HEADER,
        };
        let size = end.connection.session.terms().send_size;
        let split = Split::new(todo.len, header, size);
        let parts = split.as_ref().map_or(u32::MAX, Split::len);
        let chunks = end.may_use_chunks(Direction::Call);
        // A chunk does not wait, so a Call that may have one is sent in parts only if it can be
        // now.
        let most = match chunks {
            true => end.connection.session.credits().max(1).min(bounds.parts),
            false => end.max_parts(Direction::Call, bounds),
        };
        let split = match split {
            Ok(split) if parts <= most => Some(split),
            _ if chunks => None,
            _ => {
                end.end(todo.xid, Outcome::Failed);
                end.todo.remove(index);
                return true;
            }
        };
        let parts = split.as_ref().map_or(1, Split::len);
        let chunks = todo.chunk || split.is_none();
        let Some(credits) = self.admit(at, Direction::Call, parts, chunks) else {
            return false;
        };
        self.ends[at].todo.remove(index);
        match split {
            Some(split) => {
                self.seen.continued += u32::from(parts > 1);
                self.post_parts(at, &todo, &split, credits, todo.chunk);
            }
            None => self.post_external(at, &todo, credits),
        }
        true
    }

    /// Asks the session of an end for a message to be sent.
    fn admit(&mut self, at: usize, direction: Direction, parts: u32, chunks: bool) -> Option<u32> {
        let end = &mut self.ends[at];
        end.update_offer();
        let admitted = end.start_send(&Outbound {
            direction,
            parts,
            chunks,
        });
        match admitted {
            Ok(credits) => {
                end.patience.stuck = false;
                return Some(credits);
            }
            Err(Refusal::NotConnected) => {}
            Err(Refusal::Unsupported) => panic!("the level was asked for"),
            Err(Refusal::Wait | Refusal::TooLong) => {
                self.seen.waits += 1;
                end.note_refusal(parts);
                let stuck = self.ends.iter().all(|end| end.patience.stuck);
                self.seen.both_wait += u32::from(stuck);
            }
        }
        None
    }

    /// Returns whether a server may make another Call.
    pub(super) fn has_slot(&self, at: usize) -> bool {
        let end = &self.ends[at];
        let Some(bounds) = end.patience.bounds else {
            return true;
        };
        end.role == Role::Client || end.pending() < bounds.slots as usize
    }
}

/// The size of a Call's header without chunks (6.3.7).
const CALL_HEADER: usize = 32;
