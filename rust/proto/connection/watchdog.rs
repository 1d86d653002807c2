// SPDX-License-Identifier: GPL-2.0

//! Checks whether the peer makes progress.
//!
//! Some things must not stand still for ever: a sequence of messages that the peer has begun, the
//! credits that a message of ours waits for, the proof of who the peer is, and the end of the
//! connection itself. None of them has a timer. Instead the owner calls [`Watchdog::check`] every
//! [`CHECK_INTERVAL`] seconds while there is something to watch, and each check compares what it
//! finds with the one before. So a limit of `n` checks lasts at most `n + 1` intervals.

use super::super::session::{
    Session,
    Timer, //
};

/// Seconds between two checks. A sequence may stand still for as long, and less than twice as long
/// in fact. Its parts are sent one after the other, so the connection itself fails sooner than
/// this.
pub(crate) const CHECK_INTERVAL: u32 = 10;

/// Checks that may find the same credits, and none of them left or too few. The next one ends the
/// connection, about when SUNRPC gives up waiting for the Reply to a Call. A message that waits for
/// a credit was not sent, so SUNRPC has no timer for it.
pub(crate) const STARVED_CHECKS: u32 = 6;

/// The check that finds a client without the proof it has to give, and has the owner refuse it. The
/// client may have sent nothing at all, or a little now and then. A client of ours gives up after
/// five seconds.
pub(crate) const PROOF_CHECKS: u32 = 3;

/// Checks that may find a request of ours without an answer, and nothing else from the peer either.
/// The next one ends the connection.
pub(crate) const SILENT_CHECKS: u32 = 1;

/// The things that the owner waits for at the time of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// A message that has no other form waits for credits, perhaps for more than one.
    pub(crate) message: bool,
    /// The peer has to prove who it is, and has not.
    pub(crate) proof: bool,
    /// The number of checks in a row that may find nothing from the peer before it is asked whether
    /// it lives, where it can be asked; zero if it is never asked.
    pub(crate) patience: u32,
}

/// The findings of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Findings {
    /// The timer that has run out. The session knows it already.
    pub(crate) expired: Option<Timer>,
    /// The peer has had its time to prove who it is: the owner refuses it.
    pub(crate) unproved: bool,
    /// There is still something to watch: the owner checks again.
    pub(crate) again: bool,
}

/// The findings of the last checks of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watchdog {
    /// The progress of the peer's sequence at the last check, see [`Session::peer_sequence`].
    sequence: Option<u64>,
    /// The number of checks in a row that have found too few credits.
    starved_checks: u32,
    /// The credit limit that they have found.
    starved_limit: u32,
    /// Set if a check has found that the connection is about to end.
    closing: bool,
    /// The number of checks that have found the peer without a proof of who it is.
    proof_checks: u32,
    /// The number of checks in a row that have found nothing from the peer.
    silent_checks: u32,
}

impl Watchdog {
    /// Compares the state of a connection with what the last check has found, and tells the session
    /// if a timer has run out.
    pub(crate) fn check(&mut self, session: &mut Session, pending: Pending) -> Findings {
        let unproved = pending.proof && self.proof_is_late();
        if !session.is_closing() && self.is_silent(session, pending.patience) {
            return expire(session, Timer::Silence);
        }
        let found = self.check_session(session, pending.message);
        Findings {
            unproved,
            again: found.again || pending.proof,
            ..found
        }
    }

    /// Counts a check without a proof. Returns whether there were enough of them.
    fn proof_is_late(&mut self) -> bool {
        self.proof_checks = self.proof_checks.saturating_add(1);
        self.proof_checks >= PROOF_CHECKS
    }

    /// Counts a check with nothing from the peer since the last one, and has it asked when its time
    /// has come: by a request of nothing, which only the software of a peer answers, and not its
    /// device. Returns whether it was asked in vain.
    fn is_silent(&mut self, session: &mut Session, patience: u32) -> bool {
        let exchange = &mut session.exchange;
        if exchange.take_heard() || patience == 0 || !exchange.is_open() {
            self.silent_checks = 0;
            return false;
        }
        self.silent_checks = self.silent_checks.saturating_add(1);
        if self.silent_checks < patience {
            return false;
        }
        if !exchange.is_asked() {
            // From now on it is asked.
            self.silent_checks = patience;
            exchange.probe();
            return false;
        }
        self.silent_checks > patience.saturating_add(SILENT_CHECKS)
    }

    /// Checks everything but the proof and silence.
    fn check_session(&mut self, session: &mut Session, waits: bool) -> Findings {
        if session.is_closing() {
            return self.check_end(session);
        }
        let sequence = session.peer_sequence();
        let before = core::mem::replace(&mut self.sequence, sequence);
        if sequence.is_some() && sequence == before {
            return expire(session, Timer::Sequence);
        }
        let starved = session.is_starved() || (waits && session.is_short());
        if !starved {
            self.starved_checks = 0;
            return Findings {
                again: sequence.is_some(),
                ..Findings::default()
            };
        }
        let limit = session.windows().0.limit();
        if self.starved_checks == 0 || self.starved_limit != limit {
            self.starved_checks = 0;
            self.starved_limit = limit;
        }
        self.starved_checks = self.starved_checks.saturating_add(1);
        if self.starved_checks > STARVED_CHECKS {
            return expire(session, Timer::Credits);
        }
        Findings {
            again: true,
            ..Findings::default()
        }
    }

    /// Checks a connection that is about to end. What was sent last, perhaps a refusal, has the
    /// time between two checks to arrive.
    fn check_end(&mut self, session: &mut Session) -> Findings {
        if !core::mem::replace(&mut self.closing, true) {
            return Findings {
                again: true,
                ..Findings::default()
            };
        }
        Findings {
            again: false,
            ..expire(session, Timer::Close)
        }
    }
}

/// Tells the session that a timer has run out.
fn expire(session: &mut Session, timer: Timer) -> Findings {
    session.handle_timeout(timer);
    Findings {
        expired: Some(timer),
        unproved: false,
        again: session.is_closing(),
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_watchdog)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::{
            error::Result,
            session::{
                testing::{
                    act,
                    config,
                    poll,
                    receive,
                    settle,
                    speaking,
                    CREDITS,
                    EARLIER,
                    PROPERTIES,
                    XID, //
                },
                Action,
                Config,
                Outbound,
                Reason,
                Refusal,
                Role, //
            },
            v2::Direction, //
        },
        *, //
    };

    /// The first two parts of a Call of 24 octets.
    const PARTS: [[u32; 7]; 2] = [
        [XID, 2, CREDITS, 9, 16, XID, 0],
        [XID, 2, CREDITS, 9, 8, 1, 2], //
    ];

    /// A message of ours waits.
    const MESSAGE: Pending = Pending {
        message: true,
        ..NOTHING
    };

    /// Nothing waits.
    const NOTHING: Pending = Pending {
        message: false,
        proof: false,
        patience: 0,
    };

    /// There is something to watch.
    const AGAIN: Findings = Findings {
        expired: None,
        unproved: false,
        again: true,
    };

    /// A Call in this many parts.
    const fn call(parts: u32) -> Outbound {
        Outbound {
            direction: Direction::Call,
            parts,
            chunks: false,
        }
    }

    /// Returns what a check finds when a timer has run out.
    fn expired(timer: Timer) -> Findings {
        Findings {
            expired: Some(timer),
            ..AGAIN
        }
    }

    /// Nothing to watch: no further check.
    #[test]
    fn a_quiet_connection_is_left_alone() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Server)?);
        for pending in [NOTHING, MESSAGE, NOTHING] {
            assert_eq!(watchdog.check(&mut session, pending), Findings::default());
        }
        assert_eq!(act(&mut session), None);
        Ok(())
    }

    /// A sequence that has gone on between two checks has another interval.
    #[test]
    fn a_sequence_has_to_go_on() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Server)?);
        for part in &PARTS {
            receive(&mut session, part)?;
            settle(&mut session);
            assert_eq!(watchdog.check(&mut session, NOTHING), AGAIN);
        }
        let found = watchdog.check(&mut session, NOTHING);
        assert_eq!(found, expired(Timer::Sequence));
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Stalled)));
        Ok(())
    }

    /// Section 4.2.1: a peer without a credit for us is given up, unless its limit changes.
    #[test]
    fn the_same_credits_are_found_so_often() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Client)?);
        receive(&mut session, &[0, 2, 0, 5])?;
        assert_eq!(session.start_send(&call(1)), Err(Refusal::Wait));
        for _ in 0..STARVED_CHECKS {
            assert_eq!(watchdog.check(&mut session, NOTHING), AGAIN);
        }
        // Another limit, which is of no use either.
        receive(&mut session, &[0, 2, 1, 5])?;
        for _ in 0..STARVED_CHECKS {
            assert_eq!(watchdog.check(&mut session, NOTHING), AGAIN);
        }
        let found = watchdog.check(&mut session, NOTHING);
        assert_eq!(found, expired(Timer::Credits));
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Starved)));
        Ok(())
    }

    /// Credits in between, and all is as at the beginning.
    #[test]
    fn credits_begin_anew() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Client)?);
        for _ in 0..2 {
            receive(&mut session, &[0, 2, 0, 5])?;
            assert_eq!(session.start_send(&call(1)), Err(Refusal::Wait));
            for _ in 0..STARVED_CHECKS {
                assert_eq!(watchdog.check(&mut session, NOTHING), AGAIN);
            }
            receive(&mut session, &[0, 2, CREDITS, 5])?;
            assert_eq!(watchdog.check(&mut session, NOTHING), Findings::default());
            settle(&mut session);
        }
        Ok(())
    }

    /// Too few credits are none for a message that has no other form, and enough for others.
    #[test]
    fn too_few_credits_matter_to_what_has_no_other_form() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Client)?);
        assert!(session.start_send(&call(CREDITS)).is_err());
        assert!(session.is_short() && !session.is_starved());
        assert_eq!(watchdog.check(&mut session, NOTHING), Findings::default());
        for _ in 0..STARVED_CHECKS {
            assert_eq!(watchdog.check(&mut session, MESSAGE), AGAIN);
        }
        let found = watchdog.check(&mut session, MESSAGE);
        assert_eq!(found, expired(Timer::Credits));
        Ok(())
    }

    /// The last message of a connection has one interval to arrive.
    #[test]
    fn the_end_is_waited_for_once() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Server)?);
        // An answer, which is not known to have arrived.
        receive(&mut session, &[XID, 2, CREDITS, 77])?;
        assert!(matches!(poll(&mut session), Some(Action::Send(_))));
        session.close();
        assert_eq!(watchdog.check(&mut session, NOTHING), AGAIN);
        assert_eq!(act(&mut session), None);
        let found = watchdog.check(&mut session, NOTHING);
        assert_eq!((found.expired, found.again), (Some(Timer::Close), false));
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Owner)));
        Ok(())
    }

    /// A client that has to prove who it is, whatever else it sends.
    #[test]
    fn a_proof_is_waited_for() -> Result {
        let (mut watchdog, mut session) = (Watchdog::default(), speaking(Role::Server)?);
        let pending = Pending {
            proof: true,
            ..NOTHING
        };
        for _ in 1..PROOF_CHECKS {
            assert_eq!(watchdog.check(&mut session, pending), AGAIN);
        }
        let found = watchdog.check(&mut session, pending);
        assert!(found.unproved && found.again);
        assert_eq!(found.expired, None);
        // The owner has refused it, or it is accepted after all.
        let found = watchdog.check(&mut session, NOTHING);
        assert_eq!(found, Findings::default());
        Ok(())
    }

    /// Section 4.2 of draft-dnoveck-nfsv4-rpcrdma-xcharext-03: a request of nothing shows whether
    /// the software of a peer lives.
    #[test]
    fn a_silent_peer_is_asked_whether_it_lives() -> Result {
        let patient = Pending {
            patience: 2,
            ..NOTHING
        };
        for (answer, first) in [
            // It answers, or says something else.
            (&[1, 2, 9, 5, 1, 3, 12, 0, 0, 0][..], &PROPERTIES[..]),
            (&[XID, 2, 9, 0, 1, 0, 0, 0, XID, 1], &PROPERTIES),
            // It says nothing.
            (&[], &PROPERTIES),
            // It knows no requests, and is not asked.
            (&[], &[0, 2, CREDITS, 4, 3]),
        ] {
            let mut session = Session::new(&Config {
                earlier: Some(EARLIER),
                ..config(Role::Client)
            });
            settle(&mut session);
            receive(&mut session, first)?;
            settle(&mut session);
            let mut watchdog = Watchdog::default();
            session.exchange.note_heard();
            // An owner without patience does not ask.
            for pending in [patient, NOTHING, NOTHING, NOTHING, patient] {
                assert_eq!(watchdog.check(&mut session, pending), Findings::default());
                assert_eq!(settle(&mut session), 0);
            }
            assert_eq!(watchdog.check(&mut session, patient), Findings::default());
            let is_asked = session.exchange.is_asked();
            assert_eq!(is_asked, first.len() > 5);
            assert_eq!(settle(&mut session), u32::from(is_asked));
            assert_eq!(watchdog.check(&mut session, patient), Findings::default());
            if !answer.is_empty() {
                receive(&mut session, answer)?;
                session.exchange.note_heard();
            }
            let lives = !answer.is_empty() || !is_asked;
            let found = watchdog.check(&mut session, patient);
            assert_eq!(found.expired, (!lives).then_some(Timer::Silence));
            let close = (!lives).then_some(Action::Close(Reason::Silent));
            assert_eq!(act(&mut session), close);
        }
        Ok(())
    }
}
