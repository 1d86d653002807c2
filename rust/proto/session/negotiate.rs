// SPDX-License-Identifier: GPL-2.0

//! Which protocol a connection speaks (draft-ietf-nfsv4-rpcrdma-version-two-07, 4.3).

use super::{
    super::{
        message::{
            decode,
            Body,
            Version, //
        },
        v2::{
            htype,
            Prefix,
            RdmaError,
            NO_XID,
            PREFIX_LEN,
            VERSION, //
        },
        v2_2016::{
            option,
            procedure, //
        }, //
    },
    answer::{
        self,
        Rejection, //
    },
    Event,
    Reason,
    Report,
    Session,
    Stage,
    MAX_STRANGERS, //
};
use crate::proto::prelude::*;

/// The version number of Version One.
const VERSION_ONE: u32 = 1;

impl Session {
    /// Takes note of the protocol that is spoken.
    fn speak(&mut self, dialect: Version) {
        self.stage = Stage::Speaking(dialect);
        self.tell_connected = true;
    }

    /// Handles a message to a server that is the first one it understands, or the first one at all.
    pub(super) fn handle_first_call<'a>(&mut self, prefix: &Prefix, bytes: &'a [u8]) -> Event<'a> {
        let accepted = (self.config.low..=self.config.high).contains(&prefix.version);
        if accepted && prefix.version == VERSION_ONE {
            self.speak(Version::One);
            return Event::Foreign(Version::One);
        }
        if !accepted || prefix.version != VERSION {
            return self.handle_version(prefix, false);
        }
        // The two protocols with this number have only one header type in common that can come
        // first, and its messages differ in their size.
        match prefix.procedure {
            htype::GRANT if bytes.len() == PREFIX_LEN => {}
            htype::CONNPROP_MIDDLE..=htype::REPLY_INLINE => {}
            0 | 1 => return self.handle_first_of_earlier(prefix, bytes),
            htype::GRANT if bytes.len() >= option::MIN_LEN => {
                return self.handle_first_of_earlier(prefix, bytes);
            }
            // Nothing has been sent that could be wrong.
            htype::ERROR => return self.discard_uncounted(),
            _ => return self.refuse_dialect(prefix),
        }
        self.speak(Version::Two);
        self.handle_two(bytes)
    }

    /// Ends the connection for a first message of no protocol that is spoken.
    fn refuse_dialect(&mut self, prefix: &Prefix) -> Event<'static> {
        self.discard_uncounted();
        self.queue(Report {
            xid: prefix.xid,
            version: prefix.version,
            error: RdmaError::HeaderType,
        });
        self.close_for(Reason::UnknownDialect);
        Event::Nothing
    }

    /// Handles the first message to a server if it is one of the earlier protocol. Where that is
    /// not spoken, but Version One is, its sender is told so in its own words, and may go on.
    fn handle_first_of_earlier<'a>(&mut self, prefix: &Prefix, bytes: &'a [u8]) -> Event<'a> {
        if self.config.earlier.is_some() {
            self.speak(Version::Earlier);
            self.exchange.set_opening(true);
            let event = self.handle_earlier(prefix, bytes);
            self.exchange.set_opening(false);
            return event;
        }
        if self.config.low > VERSION_ONE {
            return self.refuse_dialect(prefix);
        }
        self.incoming.receive_other();
        self.queue(Report {
            xid: prefix.xid,
            version: prefix.version,
            error: RdmaError::Version {
                low: VERSION_ONE,
                high: VERSION_ONE,
            },
        });
        Event::Nothing
    }

    /// Handles the answer to a client's offer of the earlier protocol.
    fn handle_answer_of_earlier<'a>(&mut self, prefix: &Prefix, bytes: &'a [u8]) -> Event<'a> {
        match prefix.procedure {
            procedure::OPTIONAL if bytes.len() >= option::MIN_LEN => {}
            // It is about nothing of ours.
            procedure::ERROR if prefix.xid != NO_XID => return Event::Nothing,
            procedure::ERROR if option::is_invalid_option(bytes) => {}
            procedure::ERROR => {
                // A server of the later protocol answers with its codes. An error that can't be
                // read is as good as none.
                let decoded = decode(Version::Two, bytes, &self.config.limits);
                return match decoded.map(|header| header.body) {
                    Ok(Body::Error(error)) => self.handle_refusal(prefix, error),
                    _ => Event::Nothing,
                };
            }
            // Whatever it is an answer to, it is none to an offer of this protocol.
            _ => {
                self.close_for(Reason::NoCommonVersion);
                return Event::Nothing;
            }
        }
        self.speak(Version::Earlier);
        self.handle_earlier(prefix, bytes)
    }

    /// Handles an error that answers a client's offer.
    fn handle_refusal(&mut self, prefix: &Prefix, error: RdmaError) -> Event<'static> {
        match error {
            // Section 4.3.2: the transaction ID is that of the offer.
            RdmaError::Version { low, high } if prefix.xid == NO_XID => {
                let common = (low..=high).contains(&VERSION_ONE);
                if common && self.config.low <= VERSION_ONE {
                    self.speak(Version::One);
                    return Event::Fallback {
                        credits: prefix.credits,
                    };
                }
                self.close_for(Reason::NoCommonVersion);
            }
            RdmaError::Version { .. } => {}
            // Our offer was not understood.
            _ => self.close_for(Reason::NoCommonVersion),
        }
        self.discard_uncounted()
    }

    /// Handles the first message to a client: the answer to its offer.
    pub(super) fn handle_answer<'a>(&mut self, prefix: &Prefix, bytes: &'a [u8]) -> Event<'a> {
        if prefix.version != VERSION {
            self.close_for(Reason::NoCommonVersion);
            return self.discard_uncounted();
        }
        if self.config.earlier.is_some() {
            return self.handle_answer_of_earlier(prefix, bytes);
        }
        let refusal = match decode(Version::Two, bytes, &self.config.limits) {
            Ok(header) => match header.body {
                Body::Error(error) => Ok(error),
                _ => {
                    self.speak(Version::Two);
                    return self.handle_two(bytes);
                }
            },
            Err(error) => Err(error.fault),
        };
        match refusal {
            Ok(error) => return self.handle_refusal(prefix, error),
            // Section 7: an error code that is not known.
            Err(Fault::BadErrorCode(_)) => {}
            // It is not a protocol that we speak.
            Err(Fault::BadProcedure(_)) => self.close_for(Reason::NoCommonVersion),
            // An error that can't be read does not say that Version Two is spoken (4.3.2).
            Err(_) if prefix.procedure == htype::ERROR => self.close_for(Reason::NoCommonVersion),
            // It is, but there is something wrong.
            Err(_) => {
                self.speak(Version::Two);
                return self.handle_two(bytes);
            }
        }
        self.discard_uncounted()
    }

    /// Handles a message of a version that is not spoken.
    pub(super) fn handle_version(&mut self, prefix: &Prefix, established: bool) -> Event<'static> {
        let answer =
            answer::to_version(prefix.version, prefix.procedure, established, &self.config);
        match answer {
            // Its sender counts by the rules of that version, and waits for answers: for those
            // there is not much room.
            Rejection::Error(_) if !established => self.incoming.receive_other(),
            _ => {
                self.discard_uncounted();
            }
        }
        if let Rejection::Error(error) = answer {
            self.queue(Report {
                xid: prefix.xid,
                version: prefix.version,
                error,
            });
        }
        Event::Nothing
    }

    /// Takes note of a message that nothing counts. Returns whether there are too many of them.
    pub(super) fn is_flooded(&mut self) -> bool {
        self.strangers = self.strangers.saturating_add(1);
        self.strangers > MAX_STRANGERS
    }

    /// Handles a message of another version on a connection that speaks the earlier protocol,
    /// which has an error for versions that are not spoken, and none for those that are not spoken
    /// here.
    pub(super) fn handle_version_in_earlier(&mut self, prefix: &Prefix) -> Event<'static> {
        if prefix.procedure == procedure::ERROR {
            return Event::Nothing;
        }
        if self.is_flooded() {
            self.close_for(Reason::OtherVersion);
            return Event::Nothing;
        }
        let low = match prefix.version {
            VERSION_ONE => VERSION,
            _ => self.config.low,
        };
        self.queue(Report {
            xid: prefix.xid,
            version: prefix.version,
            error: RdmaError::Version { low, high: VERSION },
        });
        Event::Nothing
    }

    /// Handles a message on a connection that speaks Version One.
    pub(super) fn handle_one(&mut self, prefix: Option<&Prefix>) -> Event<'static> {
        match prefix {
            Some(prefix) if prefix.version == VERSION => {
                // They cost no credits, but each takes a Receive for a while, and there are not
                // many of those.
                if self.is_flooded() {
                    self.close_for(Reason::OtherVersion);
                    return Event::Nothing;
                }
                let answer =
                    answer::to_version(prefix.version, prefix.procedure, true, &self.config);
                if let Rejection::Error(error) = answer {
                    self.queue(Report {
                        xid: prefix.xid,
                        version: prefix.version,
                        error,
                    });
                }
                Event::Nothing
            }
            // Version One has rules of its own for everything else.
            _ => Event::Foreign(Version::One),
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_negotiate)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::Result,
                props::{
                    Properties,
                    ReverseLevel, //
                },
                testing::Bytes,
                v2::MAX_FIRST, //
            },
            testing::{
                act,
                config,
                message,
                receive,
                received,
                settle,
                speaking,
                EARLIER,
                FINAL,
                OFFER,
                OWN,
                PROPERTIES,
                XID, //
            },
            Action,
            Config,
            Direction,
            Outbound,
            Refusal,
            Role,
            Timer, //
        },
        *, //
    };

    /// A small Call.
    const CALL: Outbound = Outbound {
        direction: Direction::Call,
        parts: 1,
        chunks: false,
    };

    /// A client that has made its offer.
    fn offered(config: &Config) -> Session {
        let mut session = Session::new(config);
        settle(&mut session);
        session
    }

    /// What has become of a session: the last of its actions.
    fn outcome(session: &mut Session) -> Option<Action> {
        let mut last = None;
        while let Some(action) = act(session) {
            last = Some(action);
        }
        last
    }

    /// Section 4.3: version two, not larger than what Version One can receive, and nothing else.
    #[test]
    fn a_client_opens_with_its_properties() -> Result {
        let mut session = Session::new(&config(Role::Client));
        assert_eq!(session.dialect(), None);
        let first = message(&mut session)?;
        assert!(u32::try_from(first.get().len()).is_ok_and(|len| len <= MAX_FIRST));
        assert!(first.prefix(16) == Bytes::from_words(&[0, 2, 8, 7])?.get());
        assert_eq!(settle(&mut session), 0);
        assert_eq!(session.start_send(&CALL), Err(Refusal::NotConnected));
        assert_eq!(session.dialect(), None);
        Ok(())
    }

    /// Section 5.2.5: a client may find out what it can do when the connection is there.
    #[test]
    fn a_client_tells_its_level() -> Result {
        for (level, expected) in [(2, ReverseLevel::Continued), (3, ReverseLevel::General)] {
            let mut client = Session::new(&Config {
                own: Properties {
                    reverse: level,
                    ..OWN
                },
                ..config(Role::Client)
            });
            let mut server = Session::new(&config(Role::Server));
            server.handle_received(message(&mut client)?.get());
            assert_eq!(client.reverse(), expected);
            assert_eq!(server.reverse(), expected);
        }
        Ok(())
    }

    /// Section 4.3.1.
    #[test]
    fn a_server_answers_in_version_two() -> Result {
        let mut session = Session::new(&config(Role::Server));
        assert_eq!(settle(&mut session), 0);
        receive(&mut session, &FINAL)?;
        assert_eq!(act(&mut session), Some(Action::Connected(Version::Two)));
        assert!(matches!(act(&mut session), Some(Action::Agreed(_))));
        let answer = message(&mut session)?;
        assert!(answer.prefix(16) == Bytes::from_words(&[0, 2, 9, 7])?.get());
        assert_eq!(settle(&mut session), 0);
        assert_eq!(session.dialect(), Some(Version::Two));
        Ok(())
    }

    /// Section 4.3.1: any message of Version Two will do. So may a client open with any.
    #[test]
    fn a_first_message_of_every_kind() -> Result {
        for words in [
            &FINAL[..],
            &[0, 2, 9, 5],
            &[0, 2, 9, 6, 0],
            &[XID, 2, 9, 8, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0, 0],
            &[XID, 2, 9, 9, 100, XID, 0],
            &[XID, 2, 9, 10, 0, 0, 0, 0, XID, 0],
            &[XID, 2, 9, 11, 0, 1, 1, 9, 5, 0, 0],
            &[XID, 2, 9, 12, 100, XID, 1],
            &[XID, 2, 9, 13, 0, XID, 1],
            // Even one that cannot be parsed: the version is not in doubt.
            &[XID, 2, 9, 10, 7],
        ] {
            for role in [Role::Client, Role::Server] {
                let mut session = offered(&config(role));
                receive(&mut session, words)?;
                assert_eq!(session.dialect(), Some(Version::Two));
                assert_eq!(act(&mut session), Some(Action::Connected(Version::Two)));
                // A server tells its properties in any case.
                if role == Role::Server {
                    assert_eq!(message(&mut session)?.prefix(16).last(), Some(&7));
                }
            }
        }
        Ok(())
    }

    /// Section 4.3.2: the client goes on in Version One on the same connection.
    #[test]
    fn a_client_falls_back() -> Result {
        let mut session = offered(&config(Role::Client));
        let credits = received(
            &mut session,
            &[0, 2, 128, 4, 1, 1, 1],
            |event| match event {
                Event::Fallback { credits } => Some(*credits),
                _ => None,
            },
        )?;
        assert_eq!(credits, Some(128));
        assert_eq!(session.dialect(), Some(Version::One));
        assert_eq!(act(&mut session), Some(Action::Connected(Version::One)));
        // Nothing of Version Two is sent any more.
        assert_eq!(act(&mut session), None);
        assert_eq!(session.start_send(&CALL), Err(Refusal::NotConnected));
        Ok(())
    }

    /// Section 7.1.1: only to a version that both support.
    #[test]
    fn a_client_without_common_version_gives_up() -> Result {
        let only_two = Config {
            low: 2,
            ..config(Role::Client)
        };
        for (config, words) in [
            (only_two, &[0, 2, 9, 4, 1, 1, 1][..]),
            (config(Role::Client), &[0, 2, 9, 4, 1, 2, 9]),
            (config(Role::Client), &[0, 2, 9, 4, 1, 0, 0]),
            // Errors that leave no version: the offer was not understood.
            (config(Role::Client), &[0, 2, 9, 4, 2]),
            (config(Role::Client), &[0, 2, 9, 4, 4]),
            // Errors that can't be read.
            (config(Role::Client), &[0, 2, 9, 4]),
            (config(Role::Client), &[0, 2, 9, 4, 1]),
            (config(Role::Client), &[0, 2, 9, 4, 1, 2, 1]),
            // Not Version Two, and not a refusal of it.
            (config(Role::Client), &[0, 1, 9, 0, 0, 0, 0, 0, 1]),
            (config(Role::Client), &[0, 3, 9, 0]),
            // The earlier protocol.
            (config(Role::Client), &[0, 2, 9, 0, 1, 0, 0, 0]),
        ] {
            let mut session = offered(&config);
            receive(&mut session, words)?;
            let close = Action::Close(Reason::NoCommonVersion);
            assert_eq!(outcome(&mut session), Some(close));
            assert_eq!(act(&mut session), None);
        }
        Ok(())
    }

    /// Section 4.3.2: the error is about the client's first message.
    #[test]
    fn errors_about_other_messages_are_no_answer() -> Result {
        for words in [
            &[XID, 2, 9, 4, 1, 1, 1][..],
            // Section 7: an unknown code.
            &[0, 2, 9, 4, 77],
            // A runt.
            &[0, 2, 9],
        ] {
            let mut session = offered(&config(Role::Client));
            receive(&mut session, words)?;
            assert_eq!(outcome(&mut session), None);
            session.handle_timeout(Timer::FirstMessage);
            let close = Action::Close(Reason::Silent);
            assert_eq!(outcome(&mut session), Some(close));
        }
        Ok(())
    }

    /// A silent peer, and a lost first message.
    #[test]
    fn silence_ends() {
        for role in [Role::Client, Role::Server] {
            let mut session = offered(&config(role));
            session.handle_timeout(Timer::Sequence);
            assert_eq!(outcome(&mut session), None);
            session.handle_timeout(Timer::FirstMessage);
            let close = Action::Close(Reason::Silent);
            assert_eq!(outcome(&mut session), Some(close));
        }
    }

    /// Once the peer has spoken there is nothing to wait for.
    #[test]
    fn the_first_message_is_waited_for_once() -> Result {
        let mut session = speaking(Role::Client)?;
        session.handle_timeout(Timer::FirstMessage);
        assert_eq!(outcome(&mut session), None);
        Ok(())
    }

    /// Section 4.3.3: the server uses the version of the first message.
    #[test]
    fn a_server_speaks_version_one_with_a_client_that_does() -> Result {
        let mut session = Session::new(&config(Role::Server));
        let words = [XID, 1, 9, 0, 0, 0, 0, XID, 0];
        assert!(received(&mut session, &words, |event| *event
            == Event::Foreign(Version::One))?);
        assert_eq!(act(&mut session), Some(Action::Connected(Version::One)));
        assert_eq!(act(&mut session), None);
        assert!(received(&mut session, &words, |event| *event
            == Event::Foreign(Version::One))?);

        // Section 7.1.2: not another one later.
        receive(&mut session, &[XID, 2, 9, 10, 0, 0, 0, 0, XID, 0])?;
        assert!(message(&mut session)?.is_words(&[XID, 2, 32, 4, 11]));
        receive(&mut session, &[XID, 2, 9, 4, 2])?;
        assert_eq!(act(&mut session), None);
        Ok(())
    }

    /// Section 7.1.2: not for ever, since nothing counts such messages, be they answered or not.
    #[test]
    fn a_flood_of_another_version_ends_the_connection() -> Result {
        for stranger in [
            &[XID, 2, 9, 10, 0, 0, 0, 0, XID, 0][..],
            &[0, 2, 9, 5],
            &[XID, 2, 9, 4, 2],
        ] {
            for role in [Role::Server, Role::Client] {
                let mut session = offered(&config(role));
                match role {
                    Role::Server => receive(&mut session, &[XID, 1, 9, 0, 0, 0, 0, XID, 0])?,
                    Role::Client => receive(&mut session, &[0, 2, 128, 4, 1, 1, 1])?,
                }
                assert_eq!(session.dialect(), Some(Version::One));
                settle(&mut session);
                for _ in 0..32 {
                    receive(&mut session, stranger)?;
                    settle(&mut session);
                    assert_eq!(session.dialect(), Some(Version::One));
                }
                receive(&mut session, stranger)?;
                let close = Action::Close(Reason::OtherVersion);
                assert_eq!(outcome(&mut session), Some(close));
            }
        }
        Ok(())
    }

    /// Section 4.3.2 and 7.1.1: what a server without Version Two answers, and one with nothing
    /// else.
    #[test]
    fn a_server_refuses_versions() -> Result {
        for (low, high, version) in [(1, 1, 2), (2, 2, 1), (1, 2, 3), (1, 2, 0), (1, 1, 7)] {
            let mut session = Session::new(&Config {
                low,
                high,
                ..config(Role::Server)
            });
            for _ in 0..3 {
                receive(&mut session, &[XID, version, 9, 7, 0])?;
                let answer = message(&mut session)?;
                assert!(answer.is_words(&[XID, version, 32, 4, 1, low, high]));
                assert_eq!(session.dialect(), None);
                // No error answers an error.
                receive(&mut session, &[XID, version, 9, 4, 1, 1, 1])?;
                assert_eq!(act(&mut session), None);
            }
            // The client goes on with another version.
            receive(&mut session, &[XID, low, 99, 5])?;
            assert!(session.dialect().is_some());
        }
        Ok(())
    }

    /// Section 7.1.1, and RFC 8166, 4.5.1: a client that knows only a version that is not accepted,
    /// as where the server wants host authentication, is told so for each of its Calls, as many as
    /// it makes: all that its grant lets out at a time.
    #[test]
    fn each_call_of_a_version_that_is_refused_is_answered() -> Result {
        let mut session = Session::new(&Config {
            low: 2,
            ..config(Role::Server)
        });
        for _ in 0..100 {
            for xid in 1..5 {
                receive(&mut session, &[xid, 1, 4, 0, 0, 0, 0, xid, 0])?;
            }
            for xid in 1..5 {
                let answer = message(&mut session)?;
                assert!(answer.is_words(&[xid, 1, 32, 4, 1, 2, 2]));
            }
            assert_eq!(act(&mut session), None);
        }
        // The next one may be of Version Two.
        receive(&mut session, &FINAL)?;
        settle(&mut session);
        assert_eq!(session.dialect(), Some(Version::Two));
        Ok(())
    }

    /// Section 7.4: not more than there may be answers for.
    #[test]
    fn calls_of_a_version_that_is_refused_wait_for_their_answers() -> Result {
        let mut session = Session::new(&Config {
            low: 2,
            ..config(Role::Server)
        });
        for _ in 0..9 {
            assert!(!session.is_closing());
            receive(&mut session, &[XID, 1, 4, 0, 0, 0, 0, XID, 0])?;
        }
        let close = Action::Close(Reason::TooManyErrors);
        assert_eq!(outcome(&mut session), Some(close));
        Ok(())
    }

    /// Two protocols have version number two.
    #[test]
    fn the_first_header_type_tells_the_dialect() -> Result {
        let both = Config {
            earlier: Some(EARLIER),
            ..config(Role::Server)
        };
        for (words, dialect) in [
            (&[XID, 2, 9, 0, 0, 0, 0, 0, XID, 0][..], Version::Earlier),
            (&[XID, 2, 9, 1, 0, 0, 0, 0], Version::Earlier),
            (&[XID, 2, 9, 5, 0, 1, 0], Version::Earlier),
            (&[XID, 2, 9, 5], Version::Two),
            (&FINAL, Version::Two),
        ] {
            let mut session = Session::new(&both);
            receive(&mut session, words)?;
            assert_eq!(session.dialect(), Some(dialect));
            // It does not change.
            receive(&mut session, &[XID, 2, 9, 0, 0, 0, 0, 0, XID, 0])?;
            receive(&mut session, &FINAL)?;
            assert_eq!(session.dialect(), Some(dialect));
        }
        Ok(())
    }

    /// Section 6.1: header types that are not known, as the very first thing.
    #[test]
    fn an_unknown_dialect_is_refused() -> Result {
        for words in [
            &[XID, 2, 9, 2][..],
            &[XID, 2, 9, 3],
            &[XID, 2, 9, 5, 0],
            &[XID, 2, 9, 5, 0, 1],
            &[XID, 2, 9, 14],
            &[XID, 2, 9, u32::MAX],
        ] {
            let mut session = Session::new(&config(Role::Server));
            receive(&mut session, words)?;
            assert!(message(&mut session)?.is_words(&[XID, 2, 32, 4, 4]));
            let close = Action::Close(Reason::UnknownDialect);
            assert_eq!(outcome(&mut session), Some(close));
        }
        // An error is not answered, and says nothing.
        let mut session = Session::new(&config(Role::Server));
        receive(&mut session, &[XID, 2, 9, 4, 2])?;
        assert_eq!(outcome(&mut session), None);
        assert_eq!(session.dialect(), None);
        Ok(())
    }

    /// Where the earlier protocol is not spoken its clients go on in Version One, on the same
    /// connection; unless that is not spoken either.
    #[test]
    fn a_client_of_the_earlier_protocol_is_offered_version_one() -> Result {
        for words in [
            &[XID, 2, 9, 0, 0, 0, 0, 0, XID, 0][..],
            &[XID, 2, 9, 1, 0, 0, 0, 0],
            &[XID, 2, 9, 5, 0, 1, 0],
        ] {
            let mut session = Session::new(&config(Role::Server));
            receive(&mut session, words)?;
            assert!(message(&mut session)?.is_words(&[XID, 2, 32, 4, 1, 1, 1]));
            assert_eq!(outcome(&mut session), None);
            receive(&mut session, &[XID, 1, 9, 0, 0, 0, 0, XID, 0])?;
            assert_eq!(session.dialect(), Some(Version::One));

            let only_two = Config {
                low: 2,
                ..config(Role::Server)
            };
            let mut session = Session::new(&only_two);
            receive(&mut session, words)?;
            assert!(message(&mut session)?.is_words(&[XID, 2, 32, 4, 4]));
            let close = Action::Close(Reason::UnknownDialect);
            assert_eq!(outcome(&mut session), Some(close));
        }
        Ok(())
    }

    /// A client that offers the earlier protocol and nothing else.
    const OF_EARLIER: Config = Config {
        earlier: Some(EARLIER),
        ..config(Role::Client)
    };

    /// Section 5 of the draft of 2016: what the answer to its properties tells a client.
    #[test]
    fn the_answer_tells_a_client_of_the_earlier_protocol_what_is_spoken() -> Result {
        let closed = Some(Action::Close(Reason::NoCommonVersion));
        for (words, version, last) in [
            (&PROPERTIES[..], Some(Version::Earlier), None),
            (&[0, 2, 9, 5, 0, 2, 4, 0], Some(Version::Earlier), None),
            (&[0, 2, 9, 4, 3], Some(Version::Earlier), None),
            (&[0, 2, 9, 4, 1, 1, 1], Some(Version::One), None),
            (&[0, 2, 9, 4, 1, 1, 9], Some(Version::One), None),
            (&[0, 2, 9, 4, 1, 2, 9], None, closed),
            (&[0, 2, 9, 4, 2], None, closed),
            (&[0, 2, 9, 4, 4], None, closed),
            (&FINAL, None, closed),
            (&[0, 2, 9, 5], None, closed),
            (&[0, 2, 9, 0, 1, 0, 0, 0, 0, 1], None, closed),
            (&[0, 1, 9, 0, 0, 0, 0, 0, 1], None, closed),
            // No answer at all.
            (&[0, 2, 9, 4, 77], None, None),
            (&[0, 2, 9, 4], None, None),
            (&[XID, 2, 9, 4, 1, 1, 1], None, None),
            (&[XID, 2, 9, 4, 3], None, None),
        ] {
            let mut session = Session::new(&OF_EARLIER);
            assert!(message(&mut session)?.is_words(&OFFER));
            assert_eq!(settle(&mut session), 0);
            receive(&mut session, words)?;
            assert_eq!(session.dialect(), version);
            match outcome(&mut session) {
                close @ Some(Action::Close(_)) => assert_eq!(close, last),
                _ => assert_eq!(last, None),
            }
        }
        Ok(())
    }

    /// Sections 5.2 and 5.3 of the draft of 2016: the version is chosen for the connection.
    #[test]
    fn other_versions_are_refused_in_the_earlier_protocol() -> Result {
        let mut session = Session::new(&Config {
            earlier: Some(EARLIER),
            ..config(Role::Server)
        });
        receive(&mut session, &[XID, 2, 9, 0, 0, 0, 0, 0, XID, 0])?;
        settle(&mut session);
        for (version, low) in [(1, 2), (3, 1), (0, 1), (u32::MAX, 1)] {
            receive(&mut session, &[XID, version, 9, 0, 0, 0, 0, XID, 0])?;
            let answer = [XID, version, 32, 4, 1, low, 2];
            assert!(message(&mut session)?.is_words(&answer));
        }
        receive(&mut session, &[XID, 1, 9, 4, 2])?;
        assert_eq!(outcome(&mut session), None);
        // Nothing counts them, so there is an end to it.
        for _ in 0..MAX_STRANGERS {
            receive(&mut session, &[XID, 3, 9, 0, 0, 0, 0, XID, 0])?;
            settle(&mut session);
        }
        assert_eq!(session.dialect(), None);
        Ok(())
    }

    /// A setting of the administrator's.
    #[test]
    fn a_client_may_be_made_for_version_one() -> Result {
        let mut session = Session::new(&Config {
            high: 1,
            ..config(Role::Client)
        });
        assert_eq!(act(&mut session), Some(Action::Connected(Version::One)));
        assert_eq!(act(&mut session), None);
        assert!(received(&mut session, &[XID, 1, 9, 0], |event| *event
            == Event::Foreign(Version::One))?);
        Ok(())
    }
}
