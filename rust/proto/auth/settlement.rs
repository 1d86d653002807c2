// SPDX-License-Identifier: GPL-2.0

//! The effect of host authentication on a connection (draft-ietf-nfsv4-rpcrdma-version-two-07,
//! 5.2.6): what is left to say, in which CONNPROP messages, and whether RPC messages of the peer
//! are of use.
//!
//! An [`Authentication`](super::Authentication) decides what is said, and about the peer. It needs
//! memory for that, and may take its time. A [`Settlement`] keeps the results for the code that
//! sends: the module has one in each connection, under a lock (`link/channel.rs`), and so have the
//! ends that the tests under `tools/` connect.

use super::{
    super::{
        message::Version,
        props::Advertised,
        session::{
            Reason,
            Role,
            Session, //
        },
        v2::ConnProp, //
    },
    is_refusal,
    saying::{
        AuthFragment,
        Saying, //
    },
    AuthFailure,
    AuthVerdict,
    Say,
    Step, //
};
use core::ops::Deref;

/// Material to send, or its rest.
#[derive(Clone, Debug)]
struct Speech<B> {
    /// The material; [`None`] if there is none to any message.
    bytes: Option<B>,
    /// The progress of sending it.
    saying: Saying,
}

impl<B: Deref<Target = [u8]>> Speech<B> {
    /// Returns the octets of a fragment. There are none behind the end.
    fn material(&self, piece: &AuthFragment) -> Option<&[u8]> {
        let bytes = self.bytes.as_deref().unwrap_or_default();
        bytes
            .get(piece.start..piece.end)
            .filter(|part| !part.is_empty())
    }

    /// Sends the next message of what has to be said. Returns what `post` has returned, and whether
    /// there is another message to send.
    fn say<T>(
        &mut self,
        session: &mut Session,
        room: usize,
        post: impl FnOnce(&ConnProp<'_>) -> Option<T>,
    ) -> Option<(T, bool)> {
        let own = *session.own();
        let limit = usize::try_from(session.max_properties()).ok()?;
        let piece = self.saying.next(room.min(limit))?;
        let told = Advertised {
            host_auth: self.material(&piece),
            ..if piece.properties {
                Advertised::all(&own)
            } else {
                Advertised::NOTHING
            }
        };
        let message = session.prepare_properties(told, piece.last)?;
        let posted = post(&message)?;
        session.commit_properties(piece.last);
        Some((posted, self.saying.sent(&piece)))
    }
}

/// The use of the host authentication material in a message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nothing.
    Nothing,
    /// Pass it to the exchange, and [follow](Settlement::follow) what comes of it.
    Ask,
    /// The peer refuses this end, which has no exchange.
    Refused,
}

/// The standing of a connection as far as host authentication is concerned. `B` is the memory of
/// what this end says. It ends with its connection.
#[derive(Clone, Debug)]
pub(crate) struct Settlement<B> {
    /// The role of this end.
    role: Role,
    /// Set if this end authenticates itself and its peer.
    authenticates: bool,
    /// Set if Version One is no choice, because there is no host authentication in it.
    only_two: bool,
    /// The rest of our material.
    speech: Option<Speech<B>>,
    /// The verdict on the peer, when it is known.
    verdict: Option<AuthVerdict>,
}

impl<B: Deref<Target = [u8]>> Settlement<B> {
    /// Begins for a new connection.
    pub(crate) fn new(role: Role, authenticates: bool, only_two: bool) -> Self {
        Self {
            role,
            authenticates,
            only_two,
            speech: None,
            verdict: None,
        }
    }

    /// Returns the verdict on the peer, when it is known.
    pub(crate) fn verdict(&self) -> Option<AuthVerdict> {
        self.verdict
    }

    /// Returns whether the peer is refused.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.verdict, Some(AuthVerdict::Refuse(_)))
    }

    /// Returns whether the peer may send and be sent RPC messages.
    pub(crate) fn is_settled(&self) -> bool {
        match self.verdict {
            Some(AuthVerdict::Refuse(_)) => false,
            Some(AuthVerdict::Accept | AuthVerdict::Ignore) => true,
            None => !self.authenticates,
        }
    }

    /// Returns whether everything is said and decided.
    pub(crate) fn is_done(&self) -> bool {
        self.is_settled() && self.speech.is_none()
    }

    /// Returns whether the peer, a client, has to prove who it is, and has not yet.
    pub(crate) fn awaits_proof(&self) -> bool {
        self.role == Role::Server && self.only_two && !self.is_settled()
    }

    /// Returns what to do with the material of a CONNPROP message of the peer.
    pub(crate) fn hear(&self, material: Option<&[u8]>) -> Heard {
        if self.authenticates {
            if self.is_settled() {
                Heard::Nothing
            } else {
                Heard::Ask
            }
        } else if self.role == Role::Client && material.is_some_and(is_refusal) {
            // The server wants something that we do not have.
            Heard::Refused
        } else {
            Heard::Nothing
        }
    }

    /// Returns the step of an end without an exchange that is [refused](Heard::Refused).
    pub(crate) fn refused() -> Step {
        Step {
            say: None,
            verdict: Some(AuthVerdict::Refuse(AuthFailure::ByPeer)),
        }
    }

    /// Takes over what the exchange has decided. `bytes` is the token of `step`, if it has one; if
    /// there was no memory for that, the owner changes the verdict before. Returns memory that is
    /// of no use any more.
    pub(crate) fn follow(&mut self, step: &Step, bytes: Option<B>) -> Option<B> {
        // To a peer that is refused nothing else is said.
        let is_refused = matches!(step.verdict, Some(AuthVerdict::Refuse(_)));
        let mut former = None;
        if step.say.is_some() || is_refused {
            let speech = step.say.as_ref().map(|say: &Say| Speech {
                bytes,
                saying: Saying::new(say),
            });
            former = core::mem::replace(&mut self.speech, speech);
        }
        self.verdict = step.verdict.or(self.verdict);
        former.and_then(|speech| speech.bytes)
    }

    /// Takes note of what is spoken: there is no host authentication but in Version Two. Returns
    /// the verdict if there is one now, and there was none before.
    pub(crate) fn connected(&mut self, dialect: Version) -> Option<AuthVerdict> {
        if dialect == Version::Two || !self.authenticates || self.verdict.is_some() {
            return None;
        }
        self.speech = None;
        self.verdict = Some(AuthVerdict::Ignore);
        self.verdict
    }

    /// Takes note that the session ends the connection. Returns the verdict if there is one now,
    /// and there was none before.
    pub(crate) fn closing(&mut self, reason: Reason) -> Option<AuthVerdict> {
        if reason != Reason::NoCommonVersion || !self.only_two || self.verdict.is_some() {
            return None;
        }
        self.verdict = Some(AuthVerdict::Refuse(AuthFailure::Version));
        self.verdict
    }

    /// Has the connection of a peer end that is refused and has been told so. To be called before
    /// each [`Self::speak`].
    pub(crate) fn close(&self, session: &mut Session) {
        if self.speech.is_none() && self.is_refused() {
            session.close_unauthenticated();
        }
    }

    /// Returns whether there is a CONNPROP message of our own to be sent.
    pub(crate) fn has_more(&mut self, session: &Session) -> bool {
        let is_pending = self.verdict.is_none() && session.dialect() == Some(Version::Two);
        let is_greeting = self.authenticates && is_pending && !session.has_told();
        if self.speech.is_none() && is_greeting {
            // The client can't go on before it has an answer (section 4.3), and has not said all.
            self.speech = Some(Speech {
                bytes: None,
                saying: Saying::greeting(),
            });
        }
        self.speech.is_some()
    }

    /// Sends the next CONNPROP message of our own, if there is one to be sent: `post` is called
    /// with it, and returns [`None`] if it could not be posted. `room` is the size in octets of the
    /// buffer for it; zero if there is none. Returns whether to call this again, and what `post`
    /// has returned.
    ///
    /// What can't be sent now is sent when there are credits, or a Send has completed.
    pub(crate) fn speak<T>(
        &mut self,
        session: &mut Session,
        room: usize,
        post: impl FnOnce(&ConnProp<'_>) -> Option<T>,
    ) -> (bool, Option<T>) {
        if !self.has_more(session) {
            return (false, None);
        }
        let Some(speech) = &mut self.speech else {
            return (false, None);
        };
        match speech.say(session, room, post) {
            Some((posted, more)) => {
                if !more {
                    self.speech = None;
                }
                (true, Some(posted))
            }
            // A peer that is refused is told so at once, or not at all.
            None if self.is_refused() => {
                self.speech = None;
                (true, None)
            }
            None => (false, None),
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_auth_settlement)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::session::{
                testing::{
                    act,
                    config,
                    receive,
                    speaking,
                    FINAL, //
                },
                Action,
                Config, //
            },
            testing::{
                end as authenticating,
                Sent, //
            },
        },
        *, //
    };
    use crate::proto::prelude::*;

    /// Material that refuses its receiver.
    const REFUSAL: Option<&[u8]> = Some(b"RPRX\0\0\0\0");

    /// Returns an end whose material is static.
    fn end(role: Role, authenticates: bool, only_two: bool) -> Settlement<&'static [u8]> {
        Settlement::new(role, authenticates, only_two)
    }

    /// Section 5.2.6: a peer that has to give a proof is not accepted without one.
    #[test]
    fn who_has_to_prove_himself_is_waited_for() {
        for role in [Role::Client, Role::Server] {
            assert!(end(role, false, false).is_done());
            let mut end = end(role, true, true);
            assert!(!end.is_settled() && !end.is_done());
            assert_eq!(end.verdict(), None);
            assert_eq!(end.awaits_proof(), role == Role::Server);
            assert_eq!(end.hear(None), Heard::Ask);
            let accepted = Step {
                say: None,
                verdict: Some(AuthVerdict::Accept),
            };
            assert_eq!(end.follow(&accepted, None), None);
            assert!(end.is_done() && !end.awaits_proof());
            assert_eq!(end.verdict(), Some(AuthVerdict::Accept));
            assert_eq!(end.hear(REFUSAL), Heard::Nothing);
        }
    }

    /// There is no host authentication in Version One, so it is no choice for an end that requires
    /// it.
    #[test]
    fn version_one_needs_no_proof() {
        let mut offers = end(Role::Server, true, false);
        assert_eq!(offers.connected(Version::Two), None);
        assert!(!offers.is_settled());
        assert_eq!(offers.connected(Version::One), Some(AuthVerdict::Ignore));
        assert!(offers.is_done());
        assert_eq!(offers.closing(Reason::NoCommonVersion), None);

        let mut requires = end(Role::Client, true, true);
        assert_eq!(requires.closing(Reason::Owner), None);
        let refused = AuthVerdict::Refuse(AuthFailure::Version);
        assert_eq!(requires.closing(Reason::NoCommonVersion), Some(refused));
        assert!(requires.is_refused());
        assert_eq!(
            end(Role::Client, false, false).connected(Version::One),
            None
        );
    }

    /// A client that does not authenticate itself can be refused all the same.
    #[test]
    fn a_client_without_authentication_hears_its_refusal() -> Result {
        let mut session = speaking(Role::Client)?;
        let mut client = end(Role::Client, false, false);
        client.close(&mut session);
        assert_eq!(act(&mut session), None);
        for material in [None, Some(&b""[..]), Some(b"RPRX\0\0\0\x04")] {
            assert_eq!(client.hear(material), Heard::Nothing);
        }
        assert_eq!(client.hear(REFUSAL), Heard::Refused);
        let step = Settlement::<&[u8]>::refused();
        assert_eq!(client.follow(&step, None), None);
        assert!(client.is_refused() && !client.is_settled());
        assert_eq!(
            end(Role::Server, false, false).hear(REFUSAL),
            Heard::Nothing
        );
        client.close(&mut session);
        let close = Action::Close(Reason::NotAuthenticated);
        assert_eq!(act(&mut session), Some(close));
        Ok(())
    }

    /// Sections 4.3 and 5.2.6: a greeting is a CONNPROP message, so there is none before Version
    /// Two is spoken, nor of an end that does not authenticate itself, nor a second one.
    #[test]
    fn a_greeting_is_said_once_and_in_version_two() -> Result {
        let mut session = Session::new(&Config {
            authenticate: true,
            ..config(Role::Server)
        });
        let mut server = end(Role::Server, true, true);
        assert!(!server.has_more(&session));
        receive(&mut session, &FINAL)?;
        assert!(!end(Role::Server, false, false).has_more(&session));
        assert!(server.has_more(&session));
        let post = |message: &ConnProp<'_>| message.told.host_auth.is_none().then_some(());
        assert_eq!(server.speak(&mut session, 64, post), (true, Some(())));
        assert!(!server.has_more(&session));
        assert!(!end(Role::Server, true, true).has_more(&speaking(Role::Server)?));
        Ok(())
    }

    /// Section 6.3.3: material that does not fit into one message goes on in the next one.
    #[test]
    fn everything_is_said_in_pieces() -> Result {
        let mut session = Session::new(&Config {
            authenticate: true,
            ..config(Role::Server)
        });
        receive(&mut session, &FINAL)?;
        let say = authenticating(Role::Client, true, Some(1), 1).open().say;
        let sent = Sent::of(say).ok_or(Fault::NoPayload)?;
        let mut server = Settlement::new(Role::Server, true, true);
        server.follow(&Step { say, verdict: None }, Some(sent.get()));
        let (mut left, mut messages) = (sent.get(), 0_u32);
        while server.has_more(&session) && messages < 10 {
            let (_, posted) = server.speak(&mut session, 52, |message| {
                let piece = message.told.host_auth.unwrap_or_default();
                left = left.strip_prefix(piece)?;
                Some(())
            });
            assert_eq!(posted, Some(()));
            messages = messages.saturating_add(1);
        }
        assert!(left.is_empty() && messages > 1);
        Ok(())
    }

    /// What has to be said now takes the place of what had to be said before, also if it is
    /// nothing.
    #[test]
    fn only_the_latest_is_said() {
        let mut end = end(Role::Server, true, true);
        let mut step = Step {
            say: Some(Say {
                token: None,
                last: false,
                properties: false,
            }),
            verdict: None,
        };
        assert_eq!(end.follow(&step, Some(b"one")), None);
        assert_eq!(end.follow(&step, Some(b"two")), Some(&b"one"[..]));
        assert_eq!(end.follow(&Step::default(), None), None);
        step = Step {
            say: None,
            verdict: Some(AuthVerdict::Refuse(AuthFailure::WrongKey)),
        };
        assert_eq!(end.follow(&step, None), Some(&b"two"[..]));
        assert!(end.is_refused() && !end.is_done());
    }
}
