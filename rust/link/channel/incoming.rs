// SPDX-License-Identifier: GPL-2.0

//! The way in, for both ends and both versions: the one place where received messages are taken
//! in, and where is said which of them need not be.
//!
//! [`crate::proto::connection::incoming`] says what a message is. What is left to do here is what
//! needs memory or sleeps: to put RPC messages together that come in parts, and host
//! authentication. The owner of the connection gets a [`Delivery`], of which every part borrows
//! from the message.

use super::{
    trace_optional,
    Channel, //
};
use crate::kext::prelude::*;
use crate::{
    endpoint::{
        EndpointEvents,
        Received, //
    },
    link::assembly::Whole,
    observe::trace,
    proto::{
        connection::{
            incoming::{
                Answer,
                Incoming,
                IncomingPart, //
            },
            Reception, //
        },
        message::{
            holds_call,
            DecodeError,
            Version, //
        },
        v1, //
    }, //
};

/// The meaning of a received message for the owner of the connection.
pub(crate) enum Delivery<'a> {
    /// Nothing.
    Nothing,
    /// A part of a Reply with this transaction ID, but not the last one. If it has invalidated a
    /// handle, that must be [noted](Channel::note_part) until the Reply is there.
    Part(u32),
    /// Nothing but a sign of life: the peer has told properties.
    Properties,
    /// The same by an OPTIONAL message, which may grant credits as a Reply does.
    Optional(Option<u32>),
    /// A Call, which the Responder decodes, and the RPC message if it has come in parts.
    Call(Version, Option<Whole>),
    /// A Reply or an error about a Call of ours, and the RPC message if it has come in parts.
    Answer(Answer<'a>, Option<Whole>),
    /// A message of Version One that can't be decoded.
    Bad(DecodeError),
}

impl<'a> Delivery<'a> {
    /// Makes the delivery of a message that needs nothing else.
    fn whole(incoming: Incoming<'a>) -> Self {
        match incoming {
            Incoming::Nothing | Incoming::Abandoned | Incoming::First(_) | Incoming::Middle(_) => {
                Self::Nothing
            }
            Incoming::Properties { .. } => Self::Properties,
            Incoming::Optional { credits, .. } => Self::Optional(credits),
            Incoming::Call { version, .. } => Self::Call(version, None),
            Incoming::Answer(answer) => Self::Answer(answer, None),
            Incoming::Bad(error) => Self::Bad(error),
        }
    }

    /// Makes the delivery of a part that is not the last one.
    fn of_part(part: &IncomingPart<'_>) -> Self {
        part.reply_xid.map_or(Self::Nothing, Self::Part)
    }
}

/// Returns whether the header of a message has the number of Version One.
#[inline]
fn is_one(bytes: &[u8]) -> bool {
    bytes.get(4..8) == Some(&v1::VERSION.to_be_bytes())
}

impl Channel {
    /// Counts a message that has arrived, unless it is known that credits count Calls. Returns how
    /// many there are with it that are still in use.
    pub(crate) fn count<H: EndpointEvents>(&self, message: &mut Received<H>) -> u32 {
        match self.version() {
            Some(version) if !version.rules().counts_messages => 0,
            _ => message.count(),
        }
    }

    /// Returns whether a message may answer a Call of ours, where there are any if `calls`. What
    /// holds a Call of Version One need not be decoded to know that it does not.
    #[inline]
    pub(crate) fn may_answer(&self, bytes: &[u8], calls: bool) -> bool {
        calls && !(self.version() == Some(Version::One) && holds_call(bytes))
    }

    /// Returns whether a message can be nothing but a Call that takes a credit of its own, as
    /// nearly all are that a server receives in Version One. `may_answer` says whether it may be
    /// an answer. Such a message need not be [delivered](Self::deliver).
    #[inline]
    pub(crate) fn is_sure_call(&self, bytes: &[u8], may_answer: bool) -> bool {
        !may_answer && self.bypasses_session(bytes)
    }

    /// Returns whether the session need not examine a message: Version One is spoken, and so is the
    /// message, or no other version may be spoken. A peer of Version One that has begun so does not
    /// change to another version; messages of these are answered by the session.
    #[inline]
    fn bypasses_session(&self, bytes: &[u8]) -> bool {
        !self.may_speak_two || self.version() == Some(Version::One) && is_one(bytes)
    }

    /// Returns the number of messages that the session had to examine in full, see
    /// [`Self::deliver_any`].
    pub(crate) fn examined(&self) -> u64 {
        self.examined.get()
    }

    /// Takes a message in that has arrived and was counted: with it `held` ones are still in use.
    /// `expects_answers` says whether one of Version One may answer a Call of ours. [`Self::act`]
    /// must be called when the message has been dealt with.
    ///
    /// Messages of one connection come one after the other. Sleeps.
    pub(crate) fn deliver<'a>(
        &self,
        bytes: &'a [u8],
        held: u32,
        expects_answers: bool,
    ) -> Delivery<'a> {
        if self.bypasses_session(bytes) {
            let incoming = Incoming::of_counted(Version::One, bytes, expects_answers);
            return Delivery::whole(incoming);
        }
        match self.deliver_plain(bytes, held, expects_answers) {
            Some(delivery) => delivery,
            None => self.deliver_any(bytes, held, expects_answers),
        }
    }

    /// Takes a message in if it is one of those that nearly all are, see
    /// [`Connection::received_plain`](crate::proto::connection::Connection::received_plain).
    #[inline]
    fn deliver_plain<'a>(
        &self,
        bytes: &'a [u8],
        held: u32,
        expects_answers: bool,
    ) -> Option<Delivery<'a>> {
        if !self.settled.load(Acquire) {
            return None;
        }
        if self.rules().has_optional {
            return self.deliver_short(bytes, expects_answers);
        }
        let mut state = self.state.lock();
        let plain = state.connection.received_plain(bytes, Some(held))?;
        if !state.connection.is_content() {
            self.is_quiet.store(false, Relaxed);
        } else if !self.is_quiet.load(Relaxed) {
            self.note_quiet(&state);
        }
        drop(state);
        Some(Delivery::whole(Incoming::of_short(&plain, false)))
    }

    /// Does the same in the earlier protocol, see
    /// [`Connection::received_short`](crate::proto::connection::Connection::received_short).
    #[inline]
    fn deliver_short<'a>(&self, bytes: &'a [u8], expects_answers: bool) -> Option<Delivery<'a>> {
        let mut state = self.state.lock();
        let short = state.connection.received_short(bytes, expects_answers)?;
        let refuses_invalidation = state.connection.refuses_invalidation();
        drop(state);
        Some(Delivery::whole(Incoming::of_short(
            &short,
            refuses_invalidation,
        )))
    }

    /// Takes any message in, see [`Self::deliver`].
    #[inline(never)]
    fn deliver_any<'a>(&self, bytes: &'a [u8], held: u32, expects_answers: bool) -> Delivery<'a> {
        self.examined.count();
        let reception = Reception {
            used: self.settled.load(Acquire).then_some(held),
            expects_answers,
        };
        let incoming = self.receive(bytes, &reception);
        if incoming.needs_acceptance() && !self.is_settled() {
            return Delivery::Nothing;
        }
        match incoming {
            Incoming::First(part) => {
                self.begin_assembly(&part);
                Delivery::of_part(&part)
            }
            Incoming::Middle(part) => {
                self.add_part(&part);
                Delivery::of_part(&part)
            }
            Incoming::Call {
                version: Version::Two,
                last,
            } => self.collect(last).map_or(Delivery::Nothing, |whole| {
                Delivery::Call(Version::Two, whole)
            }),
            Incoming::Answer(answer) if answer.reply.is_some() && answer.credits.is_none() => self
                .collect(answer.last)
                .map_or(Delivery::Nothing, |whole| Delivery::Answer(answer, whole)),
            Incoming::Answer(answer) if answer.ends_connection => {
                self.abandon();
                Delivery::Answer(answer, None)
            }
            Incoming::Abandoned => {
                self.abandon();
                Delivery::Nothing
            }
            Incoming::Properties { host_auth, last } => {
                self.told(host_auth, last);
                Delivery::Properties
            }
            other => Delivery::whole(other),
        }
    }

    /// Shows a message to the connection.
    fn receive<'a>(&self, bytes: &'a [u8], reception: &Reception) -> Incoming<'a> {
        let mut state = self.state.lock();
        let incoming = state.connection.received(bytes, reception);
        if let Incoming::Properties { .. } | Incoming::Optional { .. } = incoming {
            self.publish_thresholds(&state.connection);
        }
        self.publish(&state.connection);
        self.note_quiet(&state);
        if let Incoming::Optional { xid, name, .. } = &incoming {
            let peer = state.connection.session.exchange.peer();
            trace_optional(self.number, *xid, name, peer, false);
            for (property, answer) in state.connection.session.exchange.take_answers() {
                let value = answer.set.unwrap_or(answer.asked);
                let (name, outcome) = (property.name(), answer.outcome());
                trace::answered(self.number, name, answer.asked, outcome, value);
            }
        }
        drop(state);
        if let Incoming::Answer(Answer {
            xid,
            error: Some(error),
            ..
        }) = &incoming
        {
            trace::error(self.number, *xid, *error, false);
        }
        incoming
    }

    /// Takes note of a handle that a part of a Reply has invalidated, if it has. The text does not
    /// say which part does it (section 6.5 of the draft). Returns whether that was the first one of
    /// the message; if not, nobody knows what the peer has done.
    pub(crate) fn note_part(&self, invalidated: Option<u32>) -> bool {
        invalidated.is_none_or(|handle| self.assembly.note_invalidated(handle))
    }

    /// Gives up what has come of an RPC message, if there is any. If a part of it has invalidated a
    /// handle, nobody will learn whose that was: the connection ends.
    fn abandon(&self) {
        let whole = self.assembly.take();
        if whole.is_some_and(|whole| whole.invalidated().is_some()) {
            self.change().connection.session.close();
        }
    }

    /// Makes room for an RPC message, and puts its first part there.
    fn begin_assembly(&self, part: &IncomingPart<'_>) {
        self.abandon();
        if self.assembly.begin(part.placed.total).is_ok() {
            self.add_part(part);
        } else {
            // An error would end its RPC, with which nothing is wrong. On another connection it is
            // sent again.
            self.change().connection.session.close();
        }
    }

    /// Adds a part. Returns whether it was added. If not, which the session rules out, the
    /// connection ends.
    fn add_part(&self, part: &IncomingPart<'_>) -> bool {
        let added = self.assembly.add(part.placed.offset, part.bytes);
        if !added {
            self.change().connection.session.close();
        }
        added
    }

    /// Returns the RPC message that is complete with its last part, or [`None`] in it if it is all
    /// in one message. Nothing is returned if it can't be put together.
    fn collect(&self, last: Option<IncomingPart<'_>>) -> Option<Option<Whole>> {
        let Some(part) = last else {
            // What had begun to come, if there was any, has been given up.
            self.abandon();
            return Some(None);
        };
        self.add_part(&part).then(|| self.assembly.take())
    }
}
