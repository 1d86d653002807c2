// SPDX-License-Identifier: GPL-2.0

//! The meaning of a received message for the owner of a connection, in either version.

use super::super::{
    continuation::Placed,
    message::{
        decode,
        DecodeError,
        Direction,
        Header,
        RdmaError,
        Reply,
        Short,
        Version, //
    },
    session::{
        Event,
        Extent, //
    },
};
use crate::proto::prelude::*;
use core::ffi::CStr;

/// A part of an RPC message that comes in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IncomingPart<'a> {
    /// Where it belongs, and how long the whole is.
    pub(crate) placed: Placed,
    /// The part.
    pub(crate) bytes: &'a [u8],
    /// The transaction ID, if it is one of a Reply.
    pub(crate) reply_xid: Option<u32>,
}

/// An answer that ends an RPC of ours, if there is one with its transaction ID: a Reply, or an
/// error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// In Version One, the credits that it grants.
    pub(crate) credits: Option<u32>,
    /// The header of the Reply; [`None`] if this is an error, or makes no sense.
    pub(crate) reply: Option<Reply<'a>>,
    /// The last part of a Reply that has come in parts.
    pub(crate) last: Option<IncomingPart<'a>>,
    /// In Version Two, the error. It ends the RPC or has it sent again.
    pub(crate) error: Option<RdmaError>,
    /// Set if the connection ends for it. Then the RPC is sent again, and might be answered like
    /// this again.
    pub(crate) ends_connection: bool,
    /// Set if it must not have invalidated a handle: this end has said so, and the peer is known to
    /// have heard of it.
    pub(crate) refuses_invalidation: bool,
}

impl Answer<'_> {
    /// An answer without a Reply: an error, or what makes no sense.
    pub(crate) const fn failed(xid: u32, error: Option<RdmaError>) -> Self {
        Self {
            xid,
            credits: None,
            reply: None,
            last: None,
            error,
            ends_connection: false,
            refuses_invalidation: false,
        }
    }

    /// A Reply with one chunk of one segment at most, all in one message.
    #[inline]
    pub(crate) fn short(short: &Short, refuses_invalidation: bool) -> Self {
        Self {
            credits: Some(short.credits).filter(|_| short.version != Version::Two),
            reply: Some(Reply::of_short(short)),
            refuses_invalidation,
            ..Self::failed(short.xid, None)
        }
    }
}

/// The meaning of a received message for the owner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incoming<'a> {
    /// Nothing. There may be actions.
    Nothing,
    /// Nothing, and the parts of an RPC message that have come are of no use any more.
    Abandoned,
    /// The peer tells properties, which are taken over.
    Properties {
        /// Host authentication material.
        host_auth: Option<&'a [u8]>,
        /// Set if these are the last ones.
        last: bool,
    },
    /// An OPTIONAL message of the earlier protocol, which is dealt with.
    Optional {
        /// Its transaction ID.
        xid: u32,
        /// The name of its operation.
        name: &'static CStr,
        /// The credits that it grants.
        credits: Option<u32>,
    },
    /// The first part of an RPC message. Room is needed for all of it.
    First(IncomingPart<'a>),
    /// A part between the first and the last one.
    Middle(IncomingPart<'a>),
    /// A Call. The Responder decodes it.
    Call {
        /// In which version.
        version: Version,
        /// The last part of a Call that has come in parts.
        last: Option<IncomingPart<'a>>,
    },
    /// A Reply, or an error about a Call of ours.
    Answer(Answer<'a>),
    /// A message of Version One that can't be decoded.
    Bad(DecodeError),
}

impl<'a> Incoming<'a> {
    /// Reads a message of a version that counts Calls. If no answer is expected it is a Call,
    /// whatever else is wrong with it.
    #[inline]
    pub(crate) fn of_counted(version: Version, bytes: &'a [u8], expects_answers: bool) -> Self {
        let call = Self::Call {
            version,
            last: None,
        };
        if !expects_answers {
            return call;
        }
        if let Some(short) = Short::decode(version, bytes) {
            return Self::of_short(&short, false);
        }
        match decode(version, bytes, &Limits::DEFAULT) {
            Err(error) => Self::Bad(error),
            Ok(header) if header.is_call() => call,
            Ok(header) => Self::Answer(Answer {
                credits: Some(header.credits),
                reply: Reply::of_header(&header),
                ..Answer::failed(header.xid, None)
            }),
        }
    }

    /// Returns a message with one chunk of one segment at most that holds all of an RPC message.
    #[inline]
    pub(crate) fn of_short(short: &Short, refuses_invalidation: bool) -> Self {
        if short.is_reply {
            return Self::Answer(Answer::short(short, refuses_invalidation));
        }
        Self::Call {
            version: short.version,
            last: None,
        }
    }

    /// Returns what the session makes of a message that it has decoded.
    pub(super) fn of_event(event: Event<'a>) -> Self {
        match event {
            Event::Foreign(_) | Event::Nothing | Event::Fallback { .. } => Self::Nothing,
            Event::Optional { xid, name, credits } => Self::Optional { xid, name, credits },
            Event::Unreadable { xid } => Self::Answer(Answer::failed(xid, None)),
            Event::Abandoned { .. } => Self::Abandoned,
            Event::Properties { host_auth, last } => Self::Properties { host_auth, last },
            Event::Failed { xid, error } => Self::Answer(Answer::failed(xid, Some(error))),
            Event::Spoilt { xid } => Self::Answer(Answer {
                ends_connection: true,
                ..Answer::failed(xid, None)
            }),
            Event::Message { header, extent } => Self::of_rpc(&header, extent),
        }
    }

    /// Returns a message that holds an RPC message of Version Two, or a part of one.
    fn of_rpc(header: &Header<'a>, extent: Extent) -> Self {
        let is_reply = header.direction() != Some(Direction::Call);
        let part = |placed| IncomingPart {
            placed,
            bytes: header.payload,
            reply_xid: is_reply.then_some(header.xid),
        };
        let last = match extent {
            Extent::First(placed) => return Self::First(part(placed)),
            Extent::Part(placed) => return Self::Middle(part(placed)),
            Extent::Last(placed) => Some(part(placed)),
            Extent::Whole => None,
        };
        if !is_reply {
            return Self::Call {
                version: Version::Two,
                last,
            };
        }
        Self::Answer(Answer {
            reply: Reply::of_header(header),
            last,
            ..Answer::failed(header.xid, None)
        })
    }

    /// Returns whether it is of use only if the peer was accepted: an RPC message of Version Two,
    /// or a part of one. Version One has no host authentication.
    pub(crate) fn needs_acceptance(&self) -> bool {
        match self {
            Self::First(_) | Self::Middle(_) => true,
            Self::Call { version, .. } => *version == Version::Two,
            Self::Answer(answer) => answer.reply.is_some() && answer.credits.is_none(),
            Self::Nothing
            | Self::Abandoned
            | Self::Properties { .. }
            | Self::Optional { .. }
            | Self::Bad(_) => false,
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_incoming)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::Result,
                session::{
                    testing::{
                        config,
                        settle,
                        CREDITS,
                        FINAL,
                        IN_ONE,
                        XID, //
                    },
                    Role, //
                },
                testing::Bytes,
                v1::Direction, //
            },
            receives::Receives,
            Connection,
            Reception, //
        },
        *, //
    };

    /// What a message is, without what it says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Nothing,
        Abandoned,
        Properties,
        First,
        Middle,
        Call(Version, bool),
        Reply(Version, bool),
        Error(u32),
        Spoilt(u32),
        Bad(Option<Direction>),
    }

    /// Returns what a message is.
    fn kind(incoming: &Incoming<'_>) -> Kind {
        match incoming {
            Incoming::Nothing => Kind::Nothing,
            Incoming::Abandoned => Kind::Abandoned,
            Incoming::Properties { .. } | Incoming::Optional { .. } => Kind::Properties,
            Incoming::First(_) => Kind::First,
            Incoming::Middle(_) => Kind::Middle,
            Incoming::Call { version, last } => Kind::Call(*version, last.is_some()),
            Incoming::Answer(answer) if answer.ends_connection => Kind::Spoilt(answer.xid),
            Incoming::Answer(answer) if answer.reply.is_none() => Kind::Error(answer.xid),
            Incoming::Answer(answer) if answer.credits.is_some() => {
                Kind::Reply(Version::One, answer.last.is_some())
            }
            Incoming::Answer(answer) => Kind::Reply(Version::Two, answer.last.is_some()),
            Incoming::Bad(error) => Kind::Bad(error.direction),
        }
    }

    /// Returns what a message made of words is to a connection.
    fn received(connection: &mut Connection, words: &[u32]) -> Result<(Kind, bool)> {
        let bytes = Bytes::from_words(words)?;
        let incoming = connection.received(bytes.get(), &Reception::default());
        let result = (kind(&incoming), incoming.needs_acceptance());
        settle(&mut connection.session);
        Ok(result)
    }

    /// A connection that speaks Version Two.
    fn speaking(role: Role) -> Result<Connection> {
        let mut connection = Connection::new(&config(role), Receives::fixed(9), IN_ONE);
        settle(&mut connection.session);
        assert_eq!(
            received(&mut connection, &FINAL)?,
            (Kind::Properties, false)
        );
        Ok(connection)
    }

    #[test]
    fn messages_of_version_two_are_told_apart() -> Result {
        for role in [Role::Client, Role::Server] {
            let mut connection = speaking(role)?;
            for (words, expected, needs) in [
                (&[0, 2, CREDITS, 5][..], Kind::Nothing, false),
                (&[XID, 2, CREDITS, 9, 16, XID, 0], Kind::First, true),
                (&[XID, 2, CREDITS, 9, 8, 1, 2], Kind::Middle, true),
                (
                    &[XID, 2, CREDITS, 10, 0, 0, 0, 0, 3, 4],
                    Kind::Call(Version::Two, true),
                    true,
                ),
                (
                    &[7, 2, CREDITS, 10, 0, 0, 0, 0, 7, 0],
                    Kind::Call(Version::Two, false),
                    true,
                ),
                (
                    &[7, 2, CREDITS, 13, 0, 7, 1],
                    Kind::Reply(Version::Two, false),
                    true,
                ),
                (&[7, 2, CREDITS, 4, 100], Kind::Error(7), false),
                // A part of a Call that goes on in another way.
                (&[XID, 2, CREDITS, 9, 16, XID, 0], Kind::First, true),
                (&[XID, 2, CREDITS, 9, 99, 1, 2], Kind::Abandoned, false),
                // A Reply that is none: the connection ends.
                (&[7, 2, CREDITS, 13, 0, 7, 0], Kind::Spoilt(7), false),
                (&[7, 2, CREDITS, 13, 0, 7, 1], Kind::Nothing, false),
            ] {
                assert_eq!(received(&mut connection, words)?, (expected, needs));
            }
        }
        Ok(())
    }

    /// Without a Call of ours everything is a Call: its Responder finds out what is wrong with it.
    #[test]
    fn messages_of_version_one_are_told_apart() -> Result {
        let call = Kind::Call(Version::One, false);
        for (words, expected) in [
            (&[7, 1, 9, 0, 0, 0, 0, 7, 0][..], call),
            (
                &[7, 1, 9, 0, 0, 0, 0, 7, 1],
                Kind::Reply(Version::One, false),
            ),
            (&[7, 1, 9, 4, 2], Kind::Error(7)),
            (&[7, 1, 9, 77], Kind::Bad(None)),
            (&[7, 1], Kind::Bad(None)),
        ] {
            let bytes = Bytes::from_words(words)?;
            let incoming = Incoming::of_counted(Version::One, bytes.get(), true);
            assert_eq!(kind(&incoming), expected);
            assert!(!incoming.needs_acceptance());
            assert_eq!(
                kind(&Incoming::of_counted(Version::One, bytes.get(), false)),
                call
            );
        }
        Ok(())
    }

    /// A server that is called in Version One.
    #[test]
    fn messages_of_version_one_are_passed_on() -> Result {
        let mut connection = Connection::new(&config(Role::Server), Receives::fixed(9), IN_ONE);
        let call = [7, 1, 9, 0, 0, 0, 0, 7, 0];
        let expected = (Kind::Call(Version::One, false), false);
        assert_eq!(received(&mut connection, &call)?, expected);
        assert_eq!(connection.version(), Some(Version::One));
        Ok(())
    }

    /// The credits grow when a peer uses all of them, by Calls in parts as well.
    #[test]
    fn calls_use_receives() -> Result {
        for (words, held, wanted) in [
            (&[7, 2, CREDITS, 10, 0, 0, 0, 0, 7, 0][..], 4, 4),
            (&[7, 2, CREDITS, 10, 0, 0, 0, 0, 7, 0], 3, 0),
            (&[7, 2, CREDITS, 13, 0, 7, 1], 4, 0),
            // The first part says how many there will be at least.
            (&[XID, 2, CREDITS, 9, 4000, XID, 0], 4, 4),
            (&[XID, 2, CREDITS, 9, 16, XID, 0], 1, 0),
        ] {
            let mut connection =
                Connection::new(&config(Role::Server), Receives::new(4, 64), IN_ONE);
            settle(&mut connection.session);
            received(&mut connection, &FINAL)?;
            let bytes = Bytes::from_words(words)?;
            let reception = Reception {
                used: Some(held),
                ..Reception::default()
            };
            let _ = connection.received(bytes.get(), &reception);
            assert_eq!(connection.begin_renewal().wanted, wanted);
        }
        Ok(())
    }
}
