// SPDX-License-Identifier: GPL-2.0

//! Which error answers what: the rules of section 7 of the draft, and of sections 6.1 and 6.3, in
//! one table.
//!
//! Errors answer Calls and control messages. A Reply or an error is never answered with an error:
//! its transaction ID may be that of a Call of the peer as well, which would then end. Since a bad
//! Reply must not leave its RPC without an end either, the connection ends.

use super::{
    super::{
        error::Fault,
        message::{
            direction_of,
            Body,
            Direction,
            Header,
            RdmaError,
            ERROR, //
        }, //
        props::{
            Properties,
            ReverseLevel, //
        },
    },
    Config,
    Reason, //
};

/// The answer to a message that is not accepted. It is discarded in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Nothing else.
    Silence,
    /// Report an error.
    Error(RdmaError),
    /// End the connection.
    Close(Reason),
}

/// Returns what to do about a Version Two message that cannot be decoded.
pub(crate) fn to_fault(fault: Fault, code: u32, config: &Config) -> Rejection {
    match (fault, direction_of(code)) {
        // Section 7: shorter than the prefix; an error code that is not known.
        (Fault::Runt | Fault::BadErrorCode(_), _) => Rejection::Silence,
        // Sections 6.1 and 7.1.3.
        (Fault::BadProcedure(_), _) => Rejection::Error(RdmaError::HeaderType),
        (_, Some(Direction::Reply)) => Rejection::Close(Reason::BadReply),
        // Sections 5.1 and 7.2.2.
        (Fault::BadProperty(_), _) => Rejection::Error(RdmaError::BadProperty),
        // Section 7.3.3.
        (Fault::TooManySegments, _) => Rejection::Error(RdmaError::Segments {
            max: config.own.segment_count,
        }),
        // Section 7.3.2.
        (Fault::TooManyChunks, _) => Rejection::Error(RdmaError::WriteChunks {
            max: config.write_chunks,
        }),
        // Sections 4.5.1.1, 7.2 and 7.2.1.
        _ => Rejection::Error(RdmaError::BadXdr),
    }
}

/// Returns what to do about a message of another version than the one that is spoken, or than those
/// that may be.
pub(crate) fn to_version(version: u32, code: u32, established: bool, config: &Config) -> Rejection {
    // The code of errors is the same in all versions.
    if code == ERROR {
        return Rejection::Silence;
    }
    let known = (config.low..=config.high).contains(&version);
    if known && established {
        // Section 7.1.2.
        Rejection::Error(RdmaError::VersionMismatch)
    } else {
        // Section 7.1.1.
        Rejection::Error(RdmaError::Version {
            low: config.low,
            high: config.high,
        })
    }
}

/// Returns what to do about a message that must not come at this point of a sequence, or does not
/// continue it as it should (6.3.3, 6.3.4, 6.3.6, 6.3.9, 7.1.4).
pub(crate) fn to_sequence(direction: Option<Direction>) -> Rejection {
    match direction {
        Some(Direction::Call) | None => Rejection::Error(RdmaError::Continuation),
        Some(Direction::Reply) => Rejection::Close(Reason::BadReply),
    }
}

/// Returns what to do about an RPC message that is not what its header says (7.2).
pub(crate) fn to_mismatch(direction: Direction) -> Rejection {
    match direction {
        Direction::Call => Rejection::Error(RdmaError::BadXdr),
        Direction::Reply => Rejection::Close(Reason::BadReply),
    }
}

/// Returns the error about a Call in the reverse direction that a client does not support (4.6.4,
/// 5.2.5).
pub(crate) fn to_reverse(header: &Header<'_>, level: ReverseLevel) -> Option<RdmaError> {
    // Section 7.1.3: a header type that is not supported.
    let supported = match header.body {
        Body::Middle { .. } => level >= ReverseLevel::Continued,
        _ => level >= ReverseLevel::Simple,
    };
    if !supported {
        return Some(RdmaError::HeaderType);
    }
    if level >= ReverseLevel::General || !header.has_chunks() {
        None
    } else if !header.reads_nothing() {
        // Section 7.3.1: no Read chunks at all.
        Some(RdmaError::ReadChunks { max: 0 })
    } else if level >= ReverseLevel::Continued {
        // Section 7.3.2: no Write chunks at all, but the Reply can be continued.
        Some(RdmaError::WriteChunks { max: 0 })
    } else {
        // Section 7.3.2: not even that.
        Some(RdmaError::ReplyResource { needed: 0 })
    }
}

/// Returns the error about a Call that asks for more than is possible (7.3).
///
/// Until it knows our properties a peer goes by their defaults, so these are accepted always.
pub(crate) fn to_offer(offer: &Header<'_>, config: &Config) -> Option<RdmaError> {
    let default = Properties::DEFAULT;
    let exceeds = |count: usize, max: u32| u32::try_from(count).map_or(true, |count| count > max);
    let max_count = config.own.segment_count.max(default.segment_count);
    let max_size = config.own.segment_size.max(default.segment_size);

    if exceeds(offer.read_chunks(), config.read_chunks) {
        Some(RdmaError::ReadChunks {
            max: config.read_chunks,
        })
    } else if exceeds(offer.write_list().len(), config.write_chunks) {
        Some(RdmaError::WriteChunks {
            max: config.write_chunks,
        })
    } else if exceeds(offer.segments().count(), max_count) {
        Some(RdmaError::Segments {
            max: config.own.segment_count,
        })
    } else if offer.segments().any(|segment| segment.length > max_size) {
        // There is no code for it.
        Some(RdmaError::System)
    } else {
        None
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_answer)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::Result,
                testing::Bytes,
                xdr::Reader, //
            },
            testing::{
                act,
                config,
                message,
                receive,
                received,
                settle,
                speaking,
                speaking_with,
                OWN,
                XID, //
            },
            Action,
            Event,
            Role,
            Session, //
        },
        *, //
    };

    /// Receives a message that is discarded: the owner gets nothing of it.
    fn discarded(session: &mut Session, words: &[u32]) -> Result {
        let is_nothing = |event: &Event<'_>| {
            matches!(
                event,
                Event::Nothing | Event::Abandoned { .. } | Event::Spoilt { .. }
            )
        };
        assert!(received(session, words, is_nothing)?, "it was handed on");
        Ok(())
    }

    /// What a message is answered with: the words behind the prefix of an error.
    fn answer_to(session: &mut Session, words: &[u32]) -> Result<Bytes> {
        settle(session);
        discarded(session, words)?;
        message(session)
    }

    /// Checks that a message is answered with an error, at both ends.
    fn is_answered(words: &[u32], error: &[u32]) -> Result<bool> {
        let mut good = true;
        for role in [Role::Client, Role::Server] {
            let mut session = speaking(role)?;
            let answer = answer_to(&mut session, words)?;
            // Section 7: transaction ID and version of what it is about, and error for a type.
            let mut bytes = Reader::new(answer.get());
            let head = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
            let (xid, version, credits, htype) = head;
            let mut same = Reader::new(Bytes::from_words(words)?.get()).u32()? == xid;
            same &= words.get(1) == Some(&version) && htype == 4 && credits == 10;
            good &= same && Bytes::from_words(error)?.get() == bytes.rest();
            // The connection goes on.
            good &= session.dialect().is_some() && act(&mut session).is_none();
        }
        Ok(good)
    }

    /// Checks that a message ends the connection without being answered.
    fn is_fatal(words: &[u32]) -> Result<bool> {
        let mut good = true;
        for role in [Role::Client, Role::Server] {
            let mut session = speaking(role)?;
            discarded(&mut session, words)?;
            good &= act(&mut session) == Some(Action::Close(Reason::BadReply));
        }
        Ok(good)
    }

    /// Checks that nothing comes of a message.
    fn is_ignored(words: &[u32]) -> Result<bool> {
        let mut good = true;
        for role in [Role::Client, Role::Server] {
            let mut session = speaking(role)?;
            discarded(&mut session, words)?;
            good &= act(&mut session).is_none() && session.dialect().is_some();
        }
        Ok(good)
    }

    /// Checks that a message is handed on, and that nothing is sent for it.
    fn is_taken(words: &[u32]) -> Result<bool> {
        let mut good = true;
        for role in [Role::Client, Role::Server] {
            let mut session = speaking(role)?;
            let is_message = |event: &Event<'_>| matches!(event, Event::Message { .. });
            good &= received(&mut session, words, is_message)? && act(&mut session).is_none();
        }
        Ok(good)
    }

    /// Section 7: shorter than the prefix, which is 16 octets.
    #[test]
    fn runts_are_discarded() -> Result {
        for words in [&[][..], &[XID], &[XID, 2, 9]] {
            assert!(is_ignored(words)?);
        }
        Ok(())
    }

    /// Section 7: an error with a code that is not known.
    #[test]
    fn unknown_errors_are_discarded() -> Result {
        for code in [0, 12, 99, 101, u32::MAX] {
            assert!(is_ignored(&[XID, 2, 100, 4, code])?);
        }
        Ok(())
    }

    /// Sections 6.1 and 7.1.3.
    #[test]
    fn unknown_header_types_are_answered() -> Result {
        for htype in [0, 1, 2, 3, 14, u32::MAX] {
            assert!(is_answered(&[XID, 2, 100, htype, 0, 0], &[4])?);
        }
        Ok(())
    }

    /// Sections 7.1.1 and 7.1.2.
    #[test]
    fn other_versions_are_answered() -> Result {
        assert!(is_answered(&[XID, 1, 100, 0, 0, 0, 0, XID, 0], &[11])?);
        assert!(is_answered(&[XID, 3, 100, 10, 0], &[1, 1, 2])?);
        assert!(is_answered(&[XID, 0, 100, 10, 0], &[1, 1, 2])?);
        for version in [0, 1, 3] {
            assert!(is_ignored(&[XID, version, 100, 4, 1, 1, 1])?);
        }
        Ok(())
    }

    /// Sections 4.5.1.1, 7.2 and 7.2.1.
    #[test]
    fn bad_calls_and_control_messages_are_answered() -> Result {
        for words in [
            &[XID, 2, 100, 5, 0][..],
            &[0, 2, 100, 8],
            &[XID, 2, 100, 8, 0, 0, 0, 0, 0],
            &[XID, 2, 100, 8, 0, 1, 4, 9, 8, 0, 0, 0, 0, 0, 0],
            &[XID, 2, 100, 9],
            &[XID, 2, 100, 9, 100],
            &[XID, 2, 100, 10],
            &[XID, 2, 100, 10, 0, 2, 0, 0, XID, 0],
            &[XID, 2, 100, 10, 0, 0, 0, 0],
            // Position zero, and positions that go back.
            &[XID, 2, 100, 10, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0, XID, 0],
            &[
                XID, 2, 100, 10, 0, 1, 8, 9, 8, 0, 0, 1, 4, 9, 8, 0, 0, 0, 0, 0, XID, 0,
            ],
            // Another transaction ID, or another direction, in the RPC message.
            &[XID, 2, 100, 10, 0, 0, 0, 0, 9, 0],
            &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 1],
            &[XID, 2, 100, 10, 0, 0, 0, 0, XID],
            &[XID, 2, 100, 9, 100, 9, 0],
            &[XID, 2, 100, 9, 100, XID, 1],
        ] {
            assert!(is_answered(words, &[2])?);
        }
        Ok(())
    }

    /// A bad Reply or error is not answered, and its RPC must not wait for ever.
    #[test]
    fn bad_replies_end_the_connection() -> Result {
        for words in [
            &[XID, 2, 100, 4][..],
            &[XID, 2, 100, 4, 1, 2, 1],
            &[XID, 2, 100, 4, 9, 1],
            &[XID, 2, 100, 11, 0, 0],
            &[XID, 2, 100, 11, 0, 1, 1, 9, 0, 0, 0],
            &[XID, 2, 100, 12],
            &[XID, 2, 100, 12, 100, 9, 1],
            &[XID, 2, 100, 13, 2],
            &[XID, 2, 100, 13, 0],
            &[XID, 2, 100, 13, 0, 9, 1],
            &[XID, 2, 100, 13, 0, XID, 0],
            &[XID, 2, 100, 13, 0, XID],
            // A Reply that says to remain what cannot.
            &[XID, 2, 100, 12, 0, XID, 1],
            &[XID, 2, 100, 12, u32::MAX, XID, 1],
        ] {
            assert!(is_fatal(words)?);
        }
        Ok(())
    }

    /// Sections 5.1 and 7.2.2: nothing of the message is applied.
    #[test]
    fn bad_properties_are_answered() -> Result {
        let mut session = Session::new(&config(Role::Server));
        let words = [9, 2, 100, 7, 2, 2, 4, 8192, 1, 3, 0];
        discarded(&mut session, &words)?;
        settle(&mut session);
        let terms = session.terms();
        assert_eq!((terms.send_size, terms.receive_size), (4096, 4096));
        let answer = answer_to(&mut session, &words)?;
        assert!(answer.is_words(&[9, 2, 10, 4, 3]));
        assert_eq!(session.terms(), terms);
        // It was not the final message either.
        receive(&mut session, &[9, 2, 100, 7, 1, 2, 4, 8192])?;
        assert_eq!(session.terms().send_size, 8192);
        Ok(())
    }

    /// Section 6.3.4: a CONNPROP message behind the final one.
    #[test]
    fn properties_come_once() -> Result {
        for htype in [6, 7] {
            assert!(is_answered(&[0, 2, 100, htype, 1, 2, 4, 100], &[5])?);
        }
        let mut session = speaking(Role::Server)?;
        discarded(&mut session, &[0, 2, 100, 7, 1, 2, 4, 100])?;
        assert_eq!(session.terms().send_size, 8192);
        Ok(())
    }

    /// Section 6.3.3: anything but a CONNPROP message behind a CONNPROP_MIDDLE.
    #[test]
    fn property_sequences_are_not_interrupted() -> Result {
        for (words, answer) in [
            (&[0, 2, 100, 5][..], Some(0)),
            (&[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0], Some(XID)),
            (&[XID, 2, 100, 9, 100, XID, 0], Some(XID)),
            (&[XID, 2, 100, 13, 0, XID, 1], None),
            (&[XID, 2, 100, 4, 2], None),
        ] {
            for role in [Role::Client, Role::Server] {
                let mut session = Session::new(&config(role));
                settle(&mut session);
                receive(&mut session, &[0, 2, 100, 6, 0])?;
                settle(&mut session);
                assert!(session.is_peer_in_sequence());
                // Another one may follow.
                receive(&mut session, &[0, 2, 100, 6, 0])?;
                assert_eq!(act(&mut session), None);
                discarded(&mut session, words)?;
                match answer {
                    Some(xid) => {
                        let error = message(&mut session)?;
                        assert!(error.prefix(4) == xid.to_be_bytes());
                        assert_eq!(error.get().last(), Some(&5));
                    }
                    None => assert_eq!(act(&mut session), Some(Action::Close(Reason::BadReply))),
                }
            }
        }
        Ok(())
    }

    /// Sections 6.3.6 and 6.3.9: anything but a further part behind a MIDDLE message.
    #[test]
    fn message_sequences_are_not_interrupted() -> Result {
        let call = [XID, 2, 100, 9, 100, XID, 0];
        let reply = [XID, 2, 100, 12, 100, XID, 1];
        for (first, words, xid) in [
            // GRANT, CONNPROP, a Call of another kind, another Call, another Call's part.
            (call, &[0, 2, 100, 5][..], Some(0)),
            (call, &[0, 2, 100, 7, 0], Some(0)),
            (
                call,
                &[XID, 2, 100, 8, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0, 0],
                Some(XID),
            ),
            (call, &[7, 2, 100, 10, 0, 0, 0, 0, 7, 0], Some(7)),
            (call, &[7, 2, 100, 9, 100, 7, 0], Some(7)),
            (call, &[XID, 2, 100, 13, 0, XID, 1], None),
            (call, &[XID, 2, 100, 12, 98, XID, 1], None),
            (call, &[XID, 2, 100, 4, 2], None),
            (reply, &[0, 2, 100, 5], Some(0)),
            (reply, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0], Some(XID)),
            (reply, &[XID, 2, 100, 9, 98, XID, 0], Some(XID)),
            (reply, &[XID, 2, 100, 11, 0, 1, 1, 9, 5, 0, 0], None),
            (reply, &[7, 2, 100, 13, 0, 7, 1], None),
            (reply, &[XID, 2, 100, 4, 2], None),
        ] {
            for role in [Role::Client, Role::Server] {
                let mut session = speaking(role)?;
                receive(&mut session, &first)?;
                assert!(session.is_peer_in_sequence());
                discarded(&mut session, words)?;
                match xid {
                    Some(xid) => {
                        let error = message(&mut session)?;
                        assert!(error.is_words(&[xid, 2, 11, 4, 5]));
                        // What was interrupted may go on.
                        assert!(session.is_peer_in_sequence());
                    }
                    None => assert_eq!(act(&mut session), Some(Action::Close(Reason::BadReply))),
                }
            }
        }
        Ok(())
    }

    /// Sections 7.3.1 and 7.3.2, and section 5.2.3, for which there is no code.
    #[test]
    fn calls_that_ask_for_too_much_are_answered() -> Result {
        // Three Read chunks of two.
        assert!(is_answered(
            &[
                XID, 2, 100, 10, 0, 1, 4, 9, 8, 0, 0, 1, 8, 9, 8, 0, 0, 1, 12, 9, 8, 0, 0, 0, 0, 0,
                XID, 0
            ],
            &[6, 2]
        )?);
        // Two segments of a chunk are one chunk.
        assert!(is_taken(&[
            XID, 2, 100, 10, 0, 1, 4, 9, 8, 0, 0, 1, 4, 9, 8, 0, 0, 1, 12, 9, 8, 0, 0, 0, 0, 0,
            XID, 0
        ])?);
        // Three Write chunks of two, and more of them than can be decoded at all.
        assert!(is_answered(
            &[XID, 2, 100, 10, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, XID, 0],
            &[7, 2]
        )?);
        let mut many = [0; 5 + 2 * 17];
        for (place, word) in many.iter_mut().zip([XID, 2, 100, 10, 0, 0]) {
            *place = word;
        }
        for place in many.iter_mut().skip(6).step_by(2) {
            *place = 1;
        }
        assert!(is_answered(&many, &[7, 2])?);
        // Too long a segment.
        assert!(is_answered(
            &[XID, 2, 100, 10, 0, 1, 4, 9, 0x10_0001, 0, 0, 0, 0, 0, XID, 0],
            &[100]
        )?);
        Ok(())
    }

    /// Section 7.3.3: more segments than are supported, and more than can be decoded at all.
    #[test]
    fn calls_with_too_many_segments_are_answered() -> Result {
        for (count, answered) in [(20_u32, false), (21, true)] {
            let bytes = Bytes::from_writer(|writer| {
                for word in [XID, 2, 100, 10, 0, 0, 1, count] {
                    writer.u32(word)?;
                }
                for _ in 0..count {
                    for word in [9, 8, 0, 0] {
                        writer.u32(word)?;
                    }
                }
                for word in [0, 0, XID, 0] {
                    writer.u32(word)?;
                }
                Ok(())
            })?;
            let mut session = speaking(Role::Server)?;
            session.handle_received(bytes.get());
            if answered {
                // SEGMENTS, and how many there may be.
                let answer = message(&mut session)?;
                let mut words = Reader::new(answer.get());
                let head = [words.u32()?, words.u32()?, words.u32()?, words.u32()?];
                assert_eq!(head, [XID, 2, 10, 4]);
                assert_eq!([words.u32()?, words.u32()?], [8, 20]);
                assert!(words.rest().is_empty());
            }
            assert_eq!(act(&mut session), None);
        }
        assert!(is_answered(&[XID, 2, 100, 10, 0, 0, 1, 1000], &[8, 20])?);

        // Until it knows ours a peer goes by the default.
        let mut session = speaking_with(&Config {
            own: Properties {
                segment_count: 1,
                ..OWN
            },
            ..config(Role::Server)
        })?;
        receive(
            &mut session,
            &[
                XID, 2, 100, 10, 0, 0, 1, 2, 9, 8, 0, 0, 9, 8, 0, 0, 0, 0, XID, 0,
            ],
        )?;
        assert_eq!(act(&mut session), None);
        Ok(())
    }

    /// Sections 4.6.4 and 5.2.5: what a client answers if it does not support such Calls.
    #[test]
    fn reverse_calls_are_answered_by_level() -> Result {
        let inline = [XID, 2, 100, 10, 0, 0, 0, 0, XID, 0];
        let middle = [XID, 2, 100, 9, 100, XID, 0];
        let external = [XID, 2, 100, 8, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0, 0];
        let read = [XID, 2, 100, 10, 0, 1, 4, 9, 8, 0, 0, 0, 0, 0, XID, 0];
        let write = [XID, 2, 100, 10, 0, 0, 1, 1, 9, 8, 0, 0, 0, 0, XID, 0];
        let reply = [XID, 2, 100, 10, 0, 0, 0, 1, 1, 9, 8, 0, 0, XID, 0];
        for (level, rows) in [
            (0, [Some(&[4][..]); 6]),
            (
                1,
                [
                    None,
                    Some(&[4]),
                    Some(&[6, 0]),
                    Some(&[6, 0]),
                    Some(&[10, 0]),
                    Some(&[10, 0]),
                ],
            ),
            (
                2,
                [
                    None,
                    None,
                    Some(&[6, 0]),
                    Some(&[6, 0]),
                    Some(&[7, 0]),
                    Some(&[7, 0]),
                ],
            ),
            (3, [None; 6]),
            // A level that is not defined is none.
            (4, [Some(&[4]); 6]),
        ] {
            let calls: [&[u32]; 6] = [&inline, &middle, &external, &read, &write, &reply];
            for (call, expected) in calls.into_iter().zip(rows) {
                let mut session = speaking_with(&Config {
                    own: Properties {
                        reverse: level,
                        ..OWN
                    },
                    ..config(Role::Client)
                })?;
                receive(&mut session, call)?;
                match expected {
                    None => assert_eq!(act(&mut session), None),
                    Some(words) => {
                        let answer = message(&mut session)?;
                        let words = Bytes::from_words(words)?;
                        assert!(answer.get().get(16..) == Some(words.get()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Section 7.4: an error that cannot be sent ends the connection.
    #[test]
    fn errors_do_not_pile_up() -> Result {
        let mut session = speaking(Role::Server)?;
        session.set_receives(Some(100));
        settle(&mut session);
        // The peer lets nothing out, and sends one bad Call after the other.
        for _ in 0..8 {
            receive(&mut session, &[XID, 2, 0, 14])?;
            assert_eq!(act(&mut session), None);
        }
        receive(&mut session, &[XID, 2, 0, 14])?;
        assert_eq!(
            act(&mut session),
            Some(Action::Close(Reason::TooManyErrors))
        );
        Ok(())
    }
}
