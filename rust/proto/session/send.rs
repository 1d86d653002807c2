// SPDX-License-Identifier: GPL-2.0

//! The messages that may be sent, and those that have to be.

use super::{
    super::{
        message::Version,
        props::{
            Advertised,
            Properties,
            ReverseLevel, //
        },
        v2::{
            ConnProp,
            Direction,
            ErrorHeader,
            GrantHeader,
            MAX_FIRST,
            VERSION, //
        },
        v2_2016::option,
        window::Kind, //
    },
    Action,
    Control,
    Outbound,
    Refusal,
    Role,
    Session,
    Stage,
    Telling, //
};

impl Session {
    /// Returns the credit value for the headers of all parts of an RPC message, if it may be sent.
    /// They must be posted now, one after the other, and then [committed](Self::commit_send).
    /// Nothing has changed until then.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    #[inline]
    pub(crate) fn prepare_send(
        &mut self,
        message: &Outbound,
    ) -> core::result::Result<u32, Refusal> {
        if self.stage != Stage::Speaking(Version::Two) || self.closing.is_some() {
            return Err(Refusal::NotConnected);
        }
        if !self.supports(message) {
            return Err(Refusal::Unsupported);
        }
        if !self.has_credits(message) {
            self.wait();
            return Err(if message.parts > self.max_parts() {
                Refusal::TooLong
            } else {
                Refusal::Wait
            });
        }
        Ok(self.incoming.next_limit())
    }

    /// Counts an RPC message of this many parts that was posted. Nothing else has been asked of the
    /// session since [`Self::prepare_send`] has admitted it.
    pub(crate) fn commit_send(&mut self, parts: u32) {
        self.count(parts, Kind::Other);
        self.incoming.tell();
    }

    /// Counts messages that were let out before.
    fn count(&mut self, parts: u32, kind: Kind) {
        let _ = self.outgoing.consume(parts, kind);
    }

    /// Returns whether [`Self::prepare_send`] would admit a message. If there are no credits for
    /// it, the caller is told when there may be, as if it had tried.
    pub(crate) fn admits(&mut self, message: &Outbound) -> bool {
        let is_two = self.stage == Stage::Speaking(Version::Two) && self.closing.is_none();
        if !is_two || !self.supports(message) {
            return false;
        }
        let admits = self.has_credits(message);
        if !admits {
            self.wait();
        }
        admits
    }

    /// Returns whether there are credits for a message. Our properties and errors that wait come
    /// first, and nothing comes between our own CONNPROP messages (6.3.3).
    #[inline]
    fn has_credits(&self, message: &Outbound) -> bool {
        let needed = message.parts.max(1).saturating_add(self.waiting_errors());
        !self.own_come_first() && needed <= self.outgoing.available()
    }

    /// Returns the number of errors that wait to be sent. Mostly there is none.
    #[inline]
    fn waiting_errors(&self) -> u32 {
        if self.errors.first().copied().flatten().is_none() {
            return 0;
        }
        let errors = self.errors.iter().flatten().count();
        u32::try_from(errors).unwrap_or(u32::MAX)
    }

    /// Returns whether nothing but CONNPROP messages may be sent now.
    fn own_come_first(&self) -> bool {
        match self.own {
            Telling::Nothing => !self.config.authenticate,
            Telling::Begun => true,
            Telling::Done => false,
        }
    }

    /// Takes note that somebody was told to wait, for more than there is now.
    fn wait(&mut self) {
        self.waiting = true;
        self.news = false;
    }

    /// Returns whether the peer supports a message: in the reverse direction it depends (5.2.5).
    fn supports(&self, message: &Outbound) -> bool {
        let is_reverse = match self.config.role {
            Role::Client => message.direction == Direction::Reply,
            Role::Server => message.direction == Direction::Call,
        };
        if !is_reverse {
            return true;
        }
        match self.reverse() {
            ReverseLevel::None => false,
            ReverseLevel::Simple => message.parts <= 1 && !message.chunks,
            ReverseLevel::Continued => !message.chunks,
            ReverseLevel::General => true,
        }
    }

    /// Returns how long our next CONNPROP message may be, in octets. The first message of a client
    /// must be one that a server of Version One can receive (4.3), every other one what any peer of
    /// Version Two can (6.3.3, 6.3.4).
    pub(crate) const fn max_properties(&self) -> u32 {
        match self.dialect() {
            None => MAX_FIRST,
            Some(_) => Properties::DEFAULT.receive_size,
        }
    }

    /// Returns a CONNPROP message to be sent, for owners that authenticate. It must be posted now,
    /// and then [committed](Self::commit). Nothing is returned if it must wait, or if the last one
    /// was sent.
    ///
    /// What `told` says about our properties must not be more than the session was made with.
    pub(crate) fn prepare_properties<'a>(
        &mut self,
        told: Advertised<'a>,
        last: bool,
    ) -> Option<ConnProp<'a>> {
        // A client sends one message, and another one only when the server has answered (4.3).
        let possible = match self.stage {
            Stage::Opening => self.config.role == Role::Client && self.config.earlier.is_none(),
            Stage::Speaking(dialect) => dialect == Version::Two,
            Stage::Offered | Stage::Closed => false,
        };
        if !possible || self.own == Telling::Done || self.closing.is_some() {
            return None;
        }
        if self.outgoing.available() == 0 {
            self.wait();
            return None;
        }
        Some(ConnProp {
            credits: self.incoming.next_limit(),
            told,
            last,
        })
    }

    /// Counts a CONNPROP message that [`Self::prepare_properties`] has returned, and that was
    /// posted.
    pub(crate) fn commit_properties(&mut self, last: bool) {
        self.count(1, Kind::Other);
        self.news |= last;
        self.own = if last { Telling::Done } else { Telling::Begun };
        if self.stage == Stage::Opening {
            self.stage = Stage::Offered;
        }
        self.incoming.tell();
        self.in_transit = self.in_transit.saturating_add(1);
    }

    /// Returns what to do next. A message must be posted now, and then [committed](Self::commit);
    /// if it can't be posted it is returned again the next time.
    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        if self.stage == Stage::Closed {
            return None;
        }
        if self.tell_connected {
            if let Some(dialect) = self.dialect() {
                self.tell_connected = false;
                return Some(Action::Connected(dialect));
            }
        }
        if core::mem::take(&mut self.tell_agreed) {
            return Some(Action::Agreed(self.terms()));
        }
        if let Some(reason) = self.closing.filter(|_| self.is_overdue()) {
            // Nothing comes first: there may be no Send buffer for it, and meanwhile the peer
            // takes Receives.
            self.stage = Stage::Closed;
            return Some(Action::Close(reason));
        }
        let control = self.next_optional();
        let control = control.or_else(|| self.next_properties());
        let control = control.or_else(|| self.next_error());
        if let Some(control) = control.or_else(|| self.next_grant()) {
            return Some(Action::Send(control));
        }
        if let Some(reason) = self.closing {
            if self.in_transit != 0 && reason.is_told() {
                return None;
            }
            self.stage = Stage::Closed;
            return Some(Action::Close(reason));
        }
        self.poll_wake().then_some(Action::Wake)
    }

    /// Returns whether no GRANT will be due before another message arrives, with an offer of up to
    /// `most` messages.
    #[inline]
    pub(crate) fn is_content(&self, most: u32) -> bool {
        self.incoming.is_content(most)
    }

    /// Returns whether [`Self::poll_action`] would return nothing until the session is told of
    /// something else than an offer of up to `most` messages. It may say no without need.
    pub(crate) fn is_quiet(&self, most: u32) -> bool {
        let has_told = match self.stage {
            Stage::Speaking(Version::Two) => {
                self.own == Telling::Done && self.incoming.is_content(most)
            }
            Stage::Speaking(Version::One) => true,
            Stage::Speaking(Version::Earlier) => self.exchange.next().is_none(),
            _ => false,
        };
        let has_news = self.tell_connected || self.tell_agreed || self.waiting;
        let has_errors = self.errors.first().copied().flatten().is_some();
        has_told && !has_news && !has_errors && self.closing.is_none() && self.in_transit == 0
    }

    /// Counts a message that [`Self::poll_action`] has returned, and that was posted. Nothing else
    /// has been asked of the session in between.
    pub(crate) fn commit(&mut self, control: &Control) {
        match control {
            // Only the owner of a session that authenticates tells properties in several messages.
            Control::Properties(ConnProp { last: true, .. }) => {
                self.commit_properties(true);
                return;
            }
            Control::Optional(message) => {
                self.exchange.commit(message);
                if self.stage == Stage::Opening {
                    self.stage = Stage::Offered;
                }
            }
            Control::Error(header) => self.commit_error(header),
            Control::Grant(_) | Control::Properties(_) => {
                self.count(1, Kind::Grant);
                self.incoming.tell();
            }
        }
        self.in_transit = self.in_transit.saturating_add(1);
    }

    /// Returns whether those that were told to wait may try again, which is told once:
    /// [`Action::Wake`], for an owner that can't send at the moment what [`Self::poll_action`]
    /// wants before.
    pub(crate) fn poll_wake(&mut self) -> bool {
        let can_send = !self.own_come_first() && self.outgoing.available() > 0;
        let wake = self.waiting && self.news && can_send;
        if wake {
            self.waiting = false;
            self.news = false;
        }
        wake
    }

    /// Returns the next message of the earlier protocol, if it is spoken or offered. Its errors
    /// tell credits that nobody counts.
    fn next_optional(&self) -> Option<Control> {
        let may = match self.stage {
            Stage::Opening => self.config.role == Role::Client && self.config.earlier.is_some(),
            Stage::Speaking(version) => version == Version::Earlier,
            Stage::Offered | Stage::Closed => false,
        };
        if !may || self.closing.is_some() {
            return None;
        }
        let message = self.exchange.next()?;
        Some(Control::Optional(option::OptionalMessage {
            credits: self.config.credits_in_one,
            ..message
        }))
    }

    /// Returns our only CONNPROP message, if it is time for it.
    fn next_properties(&mut self) -> Option<Control> {
        if self.own != Telling::Nothing || self.config.authenticate {
            return None;
        }
        let told = Advertised::all(&self.config.own);
        self.prepare_properties(told, true).map(Control::Properties)
    }

    /// Returns whether an error about a message of this version depends on credits. Others do not:
    /// the message that such a one answers had one Receive posted for its answer.
    fn takes_credit(&self, version: u32) -> bool {
        self.stage == Stage::Speaking(Version::Two) && version == VERSION
    }

    /// Returns the error that has waited longest, if it may be sent.
    fn next_error(&self) -> Option<Control> {
        let report = self.errors.first().copied().flatten()?;
        let is_two = self.stage == Stage::Speaking(Version::Two);
        if is_two && self.own_come_first() {
            return None;
        }
        if self.takes_credit(report.version) && self.outgoing.available() == 0 {
            return None;
        }
        let credits = if is_two {
            self.incoming.next_limit()
        } else {
            self.config.credits_in_one
        };
        Some(Control::Error(ErrorHeader {
            xid: report.xid,
            version: report.version,
            credits,
            error: report.error,
        }))
    }

    /// Counts the error that has waited longest, which was posted.
    fn commit_error(&mut self, header: &ErrorHeader) {
        if self.takes_credit(header.version) {
            self.count(1, Kind::Other);
        } else {
            self.outgoing.force();
        }
        self.news = true;
        self.errors.rotate_left(1);
        if let Some(last) = self.errors.last_mut() {
            *last = None;
        }
        if self.stage == Stage::Speaking(Version::Two) {
            self.incoming.tell();
        }
    }

    /// Returns whether the peer must be told of credits for their own sake.
    fn owes_grant(&self) -> bool {
        let is_two = self.stage == Stage::Speaking(Version::Two);
        let owes = self.incoming.owes_grant()
            || self.config.role == Role::Server && self.incoming.owes_acknowledgement();
        is_two && self.closing.is_none() && owes
    }

    /// Returns a GRANT, if one is owed.
    fn next_grant(&self) -> Option<Control> {
        if !self.owes_grant() || !self.outgoing.admits_grant() {
            return None;
        }
        let credits = self.incoming.next_limit();
        Some(match self.own {
            // Only a CONNPROP message may follow a CONNPROP_MIDDLE (6.3.3), so one that tells
            // nothing has to carry the credits.
            Telling::Begun => Control::Properties(ConnProp {
                credits,
                told: Advertised::NOTHING,
                last: false,
            }),
            Telling::Nothing | Telling::Done => Control::Grant(GrantHeader { credits }),
        })
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_send)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::{
                    Fault,
                    Result, //
                },
                v2::RdmaError, //
            },
            testing::{
                act,
                config,
                message,
                poll,
                receive,
                send_properties,
                settle,
                speaking,
                speaking_with,
                CREDITS,
                FINAL,
                OWN,
                XID, //
            },
            Config,
            Reason,
            Timer, //
        },
        *, //
    };

    /// A Call in this many parts.
    const fn call(parts: u32) -> Outbound {
        Outbound {
            direction: Direction::Call,
            parts,
            chunks: false,
        }
    }

    /// A Reply in this many parts.
    const fn reply(parts: u32) -> Outbound {
        Outbound {
            direction: Direction::Reply,
            parts,
            chunks: false,
        }
    }

    /// Section 4.2.1: every Send counts, and none goes beyond the limit.
    #[test]
    fn messages_are_counted() -> Result {
        let mut session = speaking(Role::Client)?;
        // The CONNPROP_FINAL was one.
        assert_eq!(session.credits(), CREDITS - 1);
        // What is told in a header: one was received, and there is room for eight.
        assert_eq!(session.start_send(&call(1)), Ok(9));
        assert_eq!(session.start_send(&call(CREDITS - 3)), Ok(9));
        assert_eq!(session.start_send(&call(2)), Err(Refusal::Wait));
        assert_eq!(session.start_send(&call(1)), Ok(9));
        assert_eq!(session.start_send(&call(1)), Err(Refusal::Wait));
        assert_eq!(act(&mut session), None);
        receive(&mut session, &[0, 2, CREDITS + 1, 5])?;
        assert_eq!(act(&mut session), Some(Action::Wake));
        assert_eq!(act(&mut session), None);
        assert_eq!(session.start_send(&call(1)), Ok(10));
        Ok(())
    }

    /// Section 4.2.1: a peer that lets nothing out any more. There may be a reason for that, but
    /// not for ever.
    #[test]
    fn a_peer_without_credits_is_given_up() -> Result {
        let mut session = speaking(Role::Client)?;
        session.handle_timeout(Timer::Credits);
        receive(&mut session, &[0, 2, 0, 5])?;
        session.handle_timeout(Timer::Credits);
        // Nobody waits.
        assert_eq!(act(&mut session), None);
        assert_eq!(session.start_send(&call(1)), Err(Refusal::Wait));
        assert!(session.is_starved());
        receive(&mut session, &[0, 2, CREDITS, 5])?;
        assert!(!session.is_starved());
        session.handle_timeout(Timer::Credits);
        assert_eq!(act(&mut session), Some(Action::Wake));
        receive(&mut session, &[0, 2, 0, 5])?;
        assert!(session.start_send(&call(1)).is_err());
        session.handle_timeout(Timer::Credits);
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Starved)));
        Ok(())
    }

    /// A peer that lets out some messages, but never as many as a Reply has parts. Whether somebody
    /// still waits for that is for the owner to say.
    #[test]
    fn a_peer_with_too_few_credits_is_given_up() -> Result {
        let mut session = speaking(Role::Server)?;
        receive(&mut session, &[0, 2, 4, 5])?;
        settle(&mut session);
        let left = session.credits();
        assert!(left > 0);
        assert!(!session.is_short());
        assert!(session.start_send(&reply(left.saturating_add(1))).is_err());
        assert!(session.is_short() && !session.is_starved());
        // As many as are needed have come.
        receive(&mut session, &[0, 2, 8, 5])?;
        assert!(!session.is_short());
        session.handle_timeout(Timer::Credits);
        assert_eq!(act(&mut session), Some(Action::Wake));
        assert!(session.start_send(&reply(9)).is_err());
        session.handle_timeout(Timer::Credits);
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Starved)));
        Ok(())
    }

    /// A waiter may have what is needed to send what comes first, so it is told all the same, and
    /// once.
    #[test]
    fn who_waits_is_told_though_nothing_can_be_sent() -> Result {
        let mut session = speaking(Role::Server)?;
        receive(&mut session, &[0, 2, 1, 5])?;
        settle(&mut session);
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        assert!(!session.poll_wake());
        receive(&mut session, &[0, 2, 8, 5])?;
        assert!(session.poll_wake());
        assert!(!session.poll_wake());
        assert!(session.start_send(&reply(1)).is_ok());
        Ok(())
    }

    /// Whatever else comes between the news and the question does not make it old.
    #[test]
    fn news_is_kept_until_it_is_told() -> Result {
        let mut session = Session::new(&Config {
            authenticate: true,
            ..config(Role::Server)
        });
        receive(&mut session, &FINAL)?;
        settle(&mut session);
        receive(&mut session, &[0, 2, 0, 5])?;
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        receive(&mut session, &[0, 2, 3, 5])?;
        assert!(send_properties(&mut session, Advertised::NOTHING, true).is_some());
        assert!(session.poll_wake());

        // Nor do credits that come when others have come already.
        let used = session.windows().0.sent();
        receive(&mut session, &[0, 2, used.wrapping_sub(1), 5])?;
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        for more in 1..3_u32 {
            receive(&mut session, &[0, 2, used.wrapping_add(more), 5])?;
        }
        assert!(session.poll_wake());
        Ok(())
    }

    /// A caller that asks whether there are credits, and hears that there are none, is told when
    /// there may be.
    #[test]
    fn who_only_asks_is_told() -> Result {
        let mut session = speaking(Role::Server)?;
        receive(&mut session, &[0, 2, 1, 5])?;
        settle(&mut session);
        assert!(session.start_send(&reply(2)).is_err());
        let used = session.windows().0.sent();
        receive(&mut session, &[0, 2, used.wrapping_add(1), 5])?;
        assert!(session.poll_wake());
        assert!(!session.admits(&reply(2)));
        receive(&mut session, &[0, 2, used.wrapping_add(2), 5])?;
        assert!(session.poll_wake());
        assert!(session.admits(&reply(2)));
        Ok(())
    }

    /// A message that could not be posted leaves no trace: it costs no credit, and what it would
    /// have told the peer is told by the next one.
    #[test]
    fn what_was_not_posted_was_not_sent() -> Result {
        let mut session = speaking(Role::Server)?;
        for _ in 0..4 {
            receive(&mut session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        }
        let credits = session.credits();
        assert!(session.admits(&reply(credits)));
        let Ok(value) = session.prepare_send(&reply(credits)) else {
            return Err(Fault::NoSpace);
        };
        assert_eq!(session.credits(), credits);
        assert!(message(&mut session)?.is_words(&[0, 2, value, 5]));
        Ok(())
    }

    /// A sequence starts only if all of it may be sent: there is no half of one.
    #[test]
    fn a_sequence_is_sent_as_a_whole() -> Result {
        let mut session = speaking(Role::Client)?;
        assert_eq!(session.max_parts(), CREDITS / 2);
        assert_eq!(session.start_send(&call(CREDITS)), Err(Refusal::TooLong));
        assert_eq!(session.credits(), CREDITS - 1);
        assert!(session.start_send(&call(CREDITS - 1)).is_ok());
        // What needs more than half of a window might wait for ever.
        let most = CREDITS / 2;
        assert_eq!(session.start_send(&call(most)), Err(Refusal::Wait));
        let more = CREDITS / 2 + 1;
        assert_eq!(session.start_send(&call(more)), Err(Refusal::TooLong));
        Ok(())
    }

    /// Section 4.3: one message until both the version and the credits are known.
    #[test]
    fn nothing_is_sent_before_the_version_is_known() {
        for role in [Role::Client, Role::Server] {
            let mut session = Session::new(&config(role));
            assert_eq!(session.start_send(&reply(1)), Err(Refusal::NotConnected));
            settle(&mut session);
            assert_eq!(session.start_send(&reply(1)), Err(Refusal::NotConnected));
        }
    }

    /// Sections 4.6.3, 4.6.4 and 5.2.5: what a server may send to a client, and a client in return.
    #[test]
    fn reverse_messages_are_those_of_the_level() -> Result {
        for (level, one, several, chunks) in [
            (0, false, false, false),
            (1, true, false, false),
            (2, true, true, false),
            (3, true, true, true),
            (9, false, false, false),
        ] {
            let mut server = Session::new(&config(Role::Server));
            let mut client = speaking_with(&Config {
                own: Properties {
                    reverse: level,
                    ..OWN
                },
                ..config(Role::Client)
            })?;
            receive(&mut server, &[0, 2, 100, 5])?;
            // Nothing before the client has told.
            assert_eq!(server.start_send(&call(1)), Err(Refusal::Unsupported));
            receive(&mut server, &[0, 2, 100, 7, 1, 5, 4, level])?;
            settle(&mut server);
            for (direction, session) in [
                (Direction::Call, &mut server),
                (Direction::Reply, &mut client),
            ] {
                for (parts, chunks, expected) in [
                    (1, false, one),
                    (2, false, several),
                    (1, true, chunks),
                    (2, true, chunks),
                ] {
                    let message = Outbound {
                        direction,
                        parts,
                        chunks,
                    };
                    assert_eq!(session.admits(&message), expected);
                    let refused = session.start_send(&message) == Err(Refusal::Unsupported);
                    assert_eq!(refused, !expected);
                }
            }
            // The other direction does not depend on it.
            assert!(server.start_send(&reply(2)).is_ok());
            assert!(client.start_send(&call(2)).is_ok());
        }
        Ok(())
    }

    /// Section 4.2.1.1: credits are renewed before more than half of them are used.
    #[test]
    fn grants_are_sent_when_due() -> Result {
        let mut session = speaking(Role::Server)?;
        for _ in 0..3 {
            receive(&mut session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
            assert_eq!(act(&mut session), None);
        }
        receive(&mut session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        // What could not be posted is asked for again.
        let action = session.poll_action();
        assert!(matches!(action, Some(Action::Send(Control::Grant(_)))));
        assert_eq!(session.poll_action(), action);
        assert!(message(&mut session)?.is_words(&[0, 2, 13, 5]));
        assert_eq!(act(&mut session), None);

        for _ in 0..4 {
            receive(&mut session, &[XID, 2, 0, 10, 0, 0, 0, 0, XID, 0])?;
        }
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        assert_eq!(act(&mut session), None);
        // The GRANT of before is the last that this limit admits, and leaves room for one message,
        // which carries the credits as well.
        receive(&mut session, &[0, 2, 2, 5])?;
        assert_eq!(session.start_send(&reply(1)), Ok(18));
        for _ in 0..4 {
            receive(&mut session, &[XID, 2, 2, 10, 0, 0, 0, 0, XID, 0])?;
        }
        assert_eq!(act(&mut session), None);
        // There is no credit for a Reply; the GRANT may exceed the limit.
        receive(&mut session, &[0, 2, 3, 5])?;
        let action = act(&mut session);
        assert!(matches!(action, Some(Action::Send(Control::Grant(_)))));
        Ok(())
    }

    /// Section 6.3.3: nothing but CONNPROP messages behind our own CONNPROP_MIDDLE.
    #[test]
    fn our_own_properties_are_not_interrupted() -> Result {
        let mut session = Session::new(&Config {
            authenticate: true,
            ..config(Role::Client)
        });
        assert_eq!(act(&mut session), None);
        let told = Advertised {
            host_auth: Some(b"who"),
            ..Advertised::NOTHING
        };
        let first = send_properties(&mut session, told, false);
        assert!(first.is_some_and(|message| message.credits == 8 && !message.last));
        // Section 4.3: one message until the server answers.
        assert_eq!(send_properties(&mut session, told, false), None);
        receive(&mut session, &FINAL)?;
        while let Some(action) = poll(&mut session) {
            assert!(!matches!(action, Action::Send(_)));
        }
        assert_eq!(session.start_send(&call(1)), Err(Refusal::Wait));
        receive(&mut session, &[XID, 2, 100, 14])?;
        assert_eq!(act(&mut session), None);
        // Credits that are due are carried by a CONNPROP message that tells nothing.
        for _ in 0..3 {
            receive(&mut session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        }
        assert!(message(&mut session)?.is_words(&[0, 2, 13, 6, 0]));
        assert_eq!(act(&mut session), None);

        let last = send_properties(&mut session, Advertised::all(&OWN), true);
        assert!(last.is_some_and(|message| message.last));
        // Section 6.3.4: nor any CONNPROP message behind the last one.
        assert_eq!(send_properties(&mut session, told, false), None);
        assert_eq!(send_properties(&mut session, told, true), None);
        // Now the error goes out.
        assert!(message(&mut session)?.is_words(&[XID, 2, 13, 4, 4]));
        assert_eq!(act(&mut session), Some(Action::Wake));
        assert!(session.start_send(&call(1)).is_ok());
        Ok(())
    }

    /// Section 4.3: the first message of a client is not larger than 1024 octets, however much
    /// there is to tell. Sections 6.3.3 and 6.3.4: the others are within the default inline
    /// threshold.
    #[test]
    fn properties_are_not_too_long() -> Result {
        for role in [Role::Client, Role::Server] {
            let mut session = Session::new(&Config {
                authenticate: true,
                ..config(role)
            });
            assert_eq!(session.max_properties(), 1024);
            if role == Role::Client {
                assert!(send_properties(&mut session, Advertised::NOTHING, false).is_some());
                assert_eq!(session.max_properties(), 1024);
            }
            // What the peer can receive beyond that it tells for other messages.
            receive(&mut session, &FINAL)?;
            assert_eq!(session.max_properties(), 4096);
            settle(&mut session);
            assert_eq!(session.max_properties(), 4096);
        }
        Ok(())
    }

    /// Section 7.4: errors are not kept back by other messages.
    #[test]
    fn errors_come_first() -> Result {
        let mut session = speaking(Role::Server)?;
        assert_eq!(session.report(1, RdmaError::System), Ok(()));
        let error = RdmaError::ReplyResource { needed: 9 };
        assert_eq!(session.report(2, error), Ok(()));
        receive(&mut session, &[0, 2, 4, 5])?;
        // Three credits, two of them for the errors.
        assert_eq!(session.start_send(&reply(2)), Err(Refusal::Wait));
        assert_eq!(session.start_send(&reply(1)), Ok(10));
        assert!(message(&mut session)?.is_words(&[1, 2, 10, 4, 100]));
        assert!(message(&mut session)?.is_words(&[2, 2, 10, 4, 10, 9]));
        assert_eq!(act(&mut session), None);
        Ok(())
    }

    /// The owner keeps the errors for which there is no room. It is told when there is.
    #[test]
    fn the_owner_keeps_its_errors() -> Result {
        let mut session = speaking(Role::Server)?;
        receive(&mut session, &[0, 2, 2, 5])?;
        settle(&mut session);
        let mut report = |xid| session.report(xid, RdmaError::System);
        assert!((0..8).all(|xid| report(xid).is_ok()));
        assert_eq!(report(8), Err(Refusal::Wait));
        assert!(message(&mut session)?.is_words(&[0, 2, 10, 4, 100]));
        receive(&mut session, &[0, 2, 3, 5])?;
        assert!(message(&mut session)?.is_words(&[1, 2, 11, 4, 100]));
        receive(&mut session, &[0, 2, 4, 5])?;
        assert!(message(&mut session)?.is_words(&[2, 2, 12, 4, 100]));
        assert_eq!(session.report(8, RdmaError::System), Ok(()));
        Ok(())
    }

    /// Our properties come before everything else that we send.
    #[test]
    fn properties_come_first() -> Result {
        let mut session = Session::new(&config(Role::Server));
        receive(&mut session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        receive(&mut session, &[7, 2, 100, 14])?;
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        assert_eq!(message(&mut session)?.prefix(16).last(), Some(&7));
        assert!(message(&mut session)?.is_words(&[7, 2, 10, 4, 4]));
        assert_eq!(act(&mut session), Some(Action::Wake));
        assert!(session.start_send(&reply(1)).is_ok());
        Ok(())
    }

    /// Section 4.3 lets a client begin with Calls. If it lets one message out that is our
    /// properties, whatever waits, and the Replies get what comes next.
    #[test]
    fn the_first_credit_is_for_properties() -> Result {
        let mut session = Session::new(&config(Role::Server));
        for xid in [1, 2] {
            receive(&mut session, &[xid, 2, 1, 10, 0, 0, 0, 0, xid, 0])?;
            assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        }
        assert_eq!(session.report(3, RdmaError::System), Ok(()));
        assert_eq!(message(&mut session)?.prefix(16).last(), Some(&7));
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        assert_eq!(act(&mut session), None);
        receive(&mut session, &[0, 2, 3, 5])?;
        assert!(message(&mut session)?.is_words(&[3, 2, 11, 4, 100]));
        assert_eq!(session.start_send(&reply(1)), Ok(11));
        Ok(())
    }

    /// What is in transit arrives before the connection ends.
    #[test]
    fn errors_are_sent_before_the_end() -> Result {
        let mut session = speaking(Role::Server)?;
        assert_eq!(session.report(1, RdmaError::System), Ok(()));
        session.close();
        let refused = session.report(2, RdmaError::System);
        assert_eq!(refused, Err(Refusal::NotConnected));
        let action = poll(&mut session);
        assert!(matches!(action, Some(Action::Send(Control::Error(_)))));
        assert_eq!(poll(&mut session), None);
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::NotConnected));
        session.handle_sent();
        let close = Action::Close(Reason::Owner);
        assert_eq!(poll(&mut session), Some(close));
        assert_eq!(poll(&mut session), None);
        assert_eq!(session.dialect(), None);
        Ok(())
    }

    /// Returns whether the session says that it has nothing to do, if that is true.
    fn is_quiet(session: &Session) -> bool {
        let is_quiet = session.is_quiet(8);
        assert!(!is_quiet || session.clone().poll_action().is_none());
        is_quiet
    }

    /// An end that says it is quiet is not asked again, so it is not as long as anything is left to
    /// do.
    #[test]
    fn nothing_is_left_to_do_by_a_quiet_end() -> Result {
        for role in [Role::Client, Role::Server] {
            let mut session = Session::new(&config(role));
            assert!(!is_quiet(&session));
            settle(&mut session);
            // Section 4.3: the version is not known yet.
            assert!(!is_quiet(&session));
            receive(&mut session, &FINAL)?;
            while session.clone().poll_action().is_some() {
                assert!(!is_quiet(&session));
                act(&mut session);
            }
            assert!(is_quiet(&session));
        }
        Ok(())
    }

    /// The same for each thing that ends the quiet of a session that has told everything.
    #[test]
    fn what_there_is_to_do_ends_the_quiet() -> Result {
        let mut session = speaking(Role::Server)?;
        assert!(is_quiet(&session));
        // An error of ours, which has to be sent and then is in transit.
        assert_eq!(session.report(1, RdmaError::System), Ok(()));
        assert!(!is_quiet(&session));
        poll(&mut session);
        assert!(!is_quiet(&session));
        session.handle_sent();
        assert!(is_quiet(&session));
        // Section 4.2.1.1: half of the credits are used.
        for _ in 0..4 {
            receive(&mut session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        }
        assert!(!is_quiet(&session));
        settle(&mut session);
        assert!(is_quiet(&session));
        // Somebody waits for credits.
        receive(&mut session, &[0, 2, 1, 5])?;
        assert!(is_quiet(&session));
        assert_eq!(session.start_send(&reply(1)), Err(Refusal::Wait));
        assert!(!is_quiet(&session));
        receive(&mut session, &[0, 2, 100, 5])?;
        assert!(session.poll_wake());
        assert!(is_quiet(&session));
        session.close();
        assert!(!is_quiet(&session));
        settle(&mut session);
        assert!(!is_quiet(&session));
        Ok(())
    }

    /// In Version One a session has nothing to do but to say so.
    #[test]
    fn version_one_is_quiet() {
        let mut session = Session::new(&Config {
            high: 1,
            ..config(Role::Client)
        });
        assert!(!is_quiet(&session));
        settle(&mut session);
        assert!(is_quiet(&session));
        session.close();
        assert!(!is_quiet(&session));
    }

    /// Section 4.2.1: counters go on where 2^31 and 2^32 are passed.
    #[test]
    fn counters_wrap() -> Result {
        for start in [0x7fff_fff8_u32, 0xffff_fff8] {
            let mut session = Session::after(&config(Role::Server), start);
            for count in 0..20_u32 {
                let now = start.wrapping_add(count);
                let credits = now.wrapping_add(3);
                receive(&mut session, &[XID, 2, credits, 10, 0, 0, 0, 0, XID, 0])?;
                if count == 0 {
                    settle(&mut session);
                }
                let told = session.start_send(&reply(1));
                assert_eq!(told, Ok(now.wrapping_add(1 + 8)));
            }
        }
        Ok(())
    }
}
