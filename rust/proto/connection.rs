// SPDX-License-Identifier: GPL-2.0

//! The knowledge and decisions of a connection, at either end: pure code, which does no I/O.
//!
//! A [`Session`] knows the messages of Version Two. Around it a [`Connection`] tells what a message
//! of either version is to its owner ([`incoming`]), knows how many Receives there are for the
//! peer's messages ([`receives`]), and checks whether the peer makes progress ([`watchdog`]). The
//! module has one under a lock (`link/channel.rs`), and so have the ends of the pairs that the
//! tests under `tools/` run: they drive the same code.
//!
//! Of a connection that may speak nothing but Version One the session is shown nothing.
//!
//! Version One counts the Calls of each direction apart (RFC 8167, 4.1). A [`Grant`] is what the
//! peer lets us send, a [`Due`] how many Replies may come for it; what it may send itself is among
//! the [`Receives`].

pub(crate) mod incoming;
pub(crate) mod receives;
pub(crate) mod watchdog;

use self::{
    incoming::Incoming,
    receives::{
        Receives,
        Renewal,
        Withdrawal, //
    },
    watchdog::{
        Findings,
        Pending,
        Watchdog, //
    }, //
};
use super::{
    cm_private::{
        Agreed,
        CmPrivate, //
    },
    credits::{
        Due,
        Grant,
        Overrun, //
    },
    format::{
        Asked,
        Usable, //
    },
    message::{
        Short,
        Version, //
    },
    props::{
        AgreedTerms,
        Properties,
        ReverseLevel, //
    },
    session::{
        exchange::Said,
        Action,
        Config,
        Control,
        Event,
        Extent,
        Outbound,
        Refusal,
        Role,
        Session, //
    },
    v1,
    v2::{
        Direction,
        RdmaError, //
    },
    v2_2016::{
        option,
        props::{
            Told,
            Wishes, //
        }, //
    },
    window::most_parts, //
};

/// The state of one connection. It ends with the connection; the next one begins with a new state.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// The state of Version Two.
    pub(crate) session: Session,
    /// The Receives for the peer's messages.
    receives: Receives,
    /// The version that is spoken, when that is known. It stays known when the connection ends.
    version: Option<Version>,
    /// The private data of the CM, for Version One.
    in_one: InOne,
    /// The credits that the peer grants us in Version One.
    grant: Grant,
    /// The Replies to Calls of ours that may still come in Version One.
    due: Due,
    /// The chunks and sizes that the peer is not known to refuse.
    usable: Usable,
    /// The watchdog: findings of the last checks.
    watchdog: Watchdog,
    /// The most messages that we could send at a time so far.
    widest: u32,
    /// Set if the peer is offered less than there are Receives for.
    is_throttled: bool,
}

/// The terms of Version One, known when the connection is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InOne {
    /// The private data of this end (RFC 8797).
    pub(crate) own: CmPrivate,
    /// The private data of the peer.
    pub(crate) peer: CmPrivate,
    /// The credits to ask for: the Calls of ours that may be under way at a time.
    pub(crate) calls: u32,
}

impl InOne {
    /// Returns the inline thresholds, and whether Replies may invalidate.
    pub(crate) fn agreed(&self) -> Agreed {
        Agreed::new(&self.own, &self.peer)
    }
}

/// The terms for the messages that are sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The version that is spoken. Nothing is sent before it is known.
    pub(crate) version: Version,
    /// The largest message that we send, header included, in octets.
    pub(crate) send_size: u32,
    /// The same of a Reply. The peer's Call may rely on what the peer has told, even if it was
    /// asked for less since.
    pub(crate) reply_size: u32,
    /// The largest message that the peer sends, header included, in octets.
    pub(crate) receive_size: u32,
    /// The length in octets of the largest segment in a Call of ours.
    pub(crate) segment_size: u32,
    /// The largest number of segments in the header of a Call of ours.
    pub(crate) segment_count: u32,
    /// In how many parts a message may be sent now: one or more.
    pub(crate) parts: u32,
    /// In how many parts a message may be sent, if not now then later, see
    /// [`Connection::max_parts`].
    pub(crate) max_parts: u32,
    /// Set if Calls of ours may have chunks, as far as the peer is concerned.
    pub(crate) has_chunks: bool,
    /// Set if Calls of ours may be in parts.
    pub(crate) has_parts: bool,
    /// Set if the peer lets a handle be invalidated. In Version Two its Call says which.
    pub(crate) may_invalidate: bool,
    /// The chunks and sizes that the peer is not known to refuse.
    pub(crate) usable: Usable,
}

impl Terms {
    /// Returns the terms of Version One. The end that has made the connection uses chunks; Calls in
    /// the other direction have none (RFC 8167, 5.3).
    pub(crate) fn of_one(in_one: &InOne, role: Role) -> Self {
        let agreed = in_one.agreed();
        Self {
            version: Version::One,
            send_size: agreed.send_inline,
            reply_size: agreed.send_inline,
            receive_size: agreed.receive_inline,
            segment_size: u32::MAX,
            segment_count: u32::MAX,
            parts: 1,
            max_parts: 1,
            has_chunks: role == Role::Client,
            has_parts: false,
            may_invalidate: agreed.remote_invalidation,
            usable: Usable::ALL,
        }
    }
}

/// The agreement of the two ends of a connection, seen from one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreement {
    /// The version that is spoken.
    pub(crate) version: Version,
    /// The sizes in force, in octets. In Version One nothing is agreed about segments: zero.
    pub(crate) terms: AgreedTerms,
    /// The level of reverse-direction operation, a property of Version Two.
    pub(crate) reverse: ReverseLevel,
    /// The properties that the peer has told, in Version Two.
    pub(crate) peer: Option<Properties>,
    /// The properties of both ends, in the earlier protocol.
    pub(crate) earlier: Option<Said>,
    /// The number of messages, in Version One Calls, that this end may send now.
    pub(crate) send_window: u32,
    /// The number that the peer may send now, as far as it knows.
    pub(crate) receive_window: u32,
}

/// The knowledge of the owner when a message arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reception {
    /// The number of Receives that hold messages, with this one, if they count for the credits of
    /// the peer.
    pub(crate) used: Option<u32>,
    /// Set if a message of Version One may answer a Call of ours.
    pub(crate) expects_answers: bool,
}

impl Connection {
    /// The state of a new connection. What `config` says about Receives follows from `receives`.
    pub(crate) fn new(config: &Config, receives: Receives, in_one: InOne) -> Self {
        Self::after(config, receives, in_one, 0)
    }

    /// The state of a connection on which `count` messages were sent each way, but the version is
    /// not known.
    pub(crate) fn after(config: &Config, receives: Receives, in_one: InOne, count: u32) -> Self {
        let offer = receives.offer(0, None);
        let config = Config {
            receives: offer.messages.unwrap_or(0),
            ..*config
        };
        let mut this = Self {
            session: Session::after(&config, count),
            receives,
            // An end that speaks nothing else need not wait for a message to know.
            version: (config.high == v1::VERSION).then_some(Version::One),
            in_one,
            grant: Grant::new(in_one.calls),
            due: Due::new(in_one.calls),
            usable: Usable::ALL,
            watchdog: Watchdog::default(),
            widest: 1,
            is_throttled: false,
        };
        this.note_version();
        this
    }

    /// Notes what is spoken, if that is known.
    fn note_version(&mut self) {
        self.version = self.session.dialect().or(self.version);
    }

    /// Returns what the session wants now, see [`Session::poll_action`].
    pub(crate) fn poll(&mut self) -> Option<Action> {
        let mut action = self.session.poll_action();
        self.note_version();
        if let Some(Action::Send(Control::Optional(message))) = &mut action {
            self.set_credits(message);
        }
        action
    }

    /// Sets the credits of an OPTIONAL message as in a Call or in a Reply
    /// (draft-cel-nfsv4-rpcrdma-version-two-01, 4.2.2).
    #[cold]
    fn set_credits(&self, message: &mut option::OptionalMessage) {
        match (message.direction, self.session.role()) {
            (Direction::Call, _) => message.credits = self.in_one.calls.max(1),
            (Direction::Reply, Role::Server) => {
                message.credits = self.receives.allowance().granted();
            }
            (Direction::Reply, Role::Client) => {}
        }
    }

    /// Returns whether [`Self::poll`] would return nothing before the next call of another method
    /// than [`Self::update_offer`], or [`Self::begin`] and [`Self::commit`] of a message that was
    /// sent: that only takes credits, and renews those of the peer. It may say no without need.
    pub(crate) fn is_quiet(&self) -> bool {
        self.session.is_quiet(self.receives.capacity())
    }

    /// Handles a message without chunks if it is a whole RPC message of Version Two, and nothing
    /// else is going on, as with nearly all messages, see [`Session::handle_plain`]. `used` is as
    /// in [`Reception`]. Else nothing is returned, and nothing has changed.
    #[inline]
    pub(crate) fn received_plain(&mut self, bytes: &[u8], used: Option<u32>) -> Option<Short> {
        let plain = Short::decode(Version::Two, bytes)?;
        if !self.session.handle_plain(&plain, bytes) {
            return None;
        }
        self.widest = self.widest.max(self.session.credits());
        if let Some(used) = used.filter(|_| !plain.is_reply) {
            self.receives.used(used);
        }
        Some(plain)
    }

    /// Handles a message of the earlier protocol with one chunk of one segment at most, if it is a
    /// whole RPC message and nothing else is going on, see [`Session::is_steady_in_earlier`].
    /// Nothing needs to be sent for it. Without `expects_answers` it is a Call, see [`Reception`].
    /// Else nothing is returned, and nothing has changed.
    #[inline]
    pub(crate) fn received_short(&mut self, bytes: &[u8], expects_answers: bool) -> Option<Short> {
        if !self.session.is_steady_in_earlier() {
            return None;
        }
        let short = Short::decode(Version::Earlier, bytes)?;
        if short.is_reply && !expects_answers {
            return None;
        }
        self.session.exchange.note_heard();
        Some(short)
    }

    /// Returns whether the peer must not invalidate handles any more: this end has said so, and the
    /// peer is known to have heard of it.
    pub(crate) fn refuses_invalidation(&self) -> bool {
        self.version == Some(Version::Earlier) && !self.session.exchange.accepts_invalidation()
    }

    /// Returns whether nothing has to be sent for what has arrived, see
    /// [`Session::is_content`].
    #[inline]
    pub(crate) fn is_content(&self) -> bool {
        self.session.is_content(self.receives.capacity())
    }

    /// Handles a received message, and returns what it is to the owner.
    pub(crate) fn received<'a>(&mut self, bytes: &'a [u8], reception: &Reception) -> Incoming<'a> {
        if let Some(plain) = self.received_plain(bytes, reception.used) {
            return Incoming::of_short(&plain, false);
        }
        if let Some(short) = self.received_short(bytes, reception.expects_answers) {
            return Incoming::of_short(&short, self.refuses_invalidation());
        }
        // An end that expects no answers has no Calls under way.
        self.session.exchange.set_idle(!reception.expects_answers);
        self.session.exchange.note_heard();
        let event = self.session.handle_received(bytes);
        self.note_version();
        self.widest = self.widest.max(self.session.credits());
        if let Some(used) = reception.used {
            self.note_used(&event, used);
        }
        match event {
            Event::Foreign(version) => {
                let mut incoming = Incoming::of_counted(version, bytes, reception.expects_answers);
                if let Incoming::Answer(answer) = &mut incoming {
                    answer.refuses_invalidation = self.refuses_invalidation();
                }
                incoming
            }
            event => Incoming::of_event(event),
        }
    }

    /// Notes how many Receives of those that it was promised the peer uses, if a message is a Call
    /// or the beginning of an RPC message in parts. All of the parts need Receives at once.
    fn note_used(&mut self, event: &Event<'_>, used: u32) {
        let Event::Message { header, extent } = event else {
            return;
        };
        let more = match extent {
            Extent::First(placed) => {
                let size = self.session.terms().receive_size;
                placed.total.checked_div(size).unwrap_or(placed.total)
            }
            Extent::Part(_) => return,
            Extent::Whole | Extent::Last(_) if !header.is_call() => return,
            Extent::Whole | Extent::Last(_) => 0,
        };
        self.receives.used(used.saturating_add(more));
    }

    /// Returns what is spoken, if that is known.
    pub(crate) const fn version(&self) -> Option<Version> {
        self.version
    }

    /// Returns whether credits count messages of all kinds, as far as it is known what is spoken.
    fn counts_messages(&self) -> bool {
        self.version()
            .is_some_and(|version| version.rules().counts_messages)
    }

    /// Returns what holds for the messages that are sent next.
    pub(crate) fn terms(&self) -> Terms {
        let role = self.session.role();
        let version = self.version().unwrap_or(Version::One);
        if version == Version::One {
            return Terms::of_one(&self.in_one, role);
        }
        let agreed = self.session.terms();
        let level = match role {
            Role::Client => ReverseLevel::General,
            Role::Server => self.session.reverse(),
        };
        if version == Version::Earlier {
            return Terms {
                version,
                send_size: agreed.send_size,
                reply_size: self.session.reply_size(),
                receive_size: agreed.receive_size,
                has_chunks: level >= ReverseLevel::General,
                may_invalidate: self.in_one.own.remote_invalidation
                    && self.session.exchange.peer().invalidation != 0,
                usable: self.usable,
                ..Terms::of_one(&self.in_one, role)
            };
        }
        Terms {
            version,
            send_size: agreed.send_size,
            reply_size: agreed.send_size,
            receive_size: agreed.receive_size,
            segment_size: agreed.segment_size,
            segment_count: agreed.segment_count,
            parts: self.session.credits().max(1),
            max_parts: self.max_parts(),
            has_chunks: level >= ReverseLevel::General,
            has_parts: level >= ReverseLevel::Continued,
            may_invalidate: self.in_one.own.remote_invalidation,
            usable: self.usable,
        }
    }

    /// Returns what the two ends have agreed on, to be shown.
    pub(crate) fn agreement(&self) -> Agreement {
        if self.version() == Some(Version::Two) {
            let (_, incoming) = self.session.windows();
            return Agreement {
                version: Version::Two,
                terms: self.session.terms(),
                reverse: self.session.reverse(),
                peer: Some(self.session.peer_properties()),
                earlier: None,
                send_window: self.session.credits(),
                receive_window: u32::try_from(incoming.remaining()).unwrap_or(0),
            };
        }
        // The end that has made the connection calls, the other one is called.
        let (send_window, receive_window) = match self.session.role() {
            Role::Client => (self.grant.limit(), 0),
            Role::Server => (0, self.receives.allowance().granted()),
        };
        let is_earlier = self.version() == Some(Version::Earlier);
        let agreed = self.in_one.agreed();
        Agreement {
            version: self.version().unwrap_or(Version::One),
            terms: if is_earlier {
                self.session.terms()
            } else {
                AgreedTerms {
                    send_size: agreed.send_inline,
                    receive_size: agreed.receive_inline,
                    segment_size: 0,
                    segment_count: 0,
                }
            },
            reverse: if is_earlier {
                self.session.reverse()
            } else {
                ReverseLevel::None
            },
            peer: None,
            earlier: is_earlier.then(|| self.session.exchange.view()),
            send_window,
            receive_window,
        }
    }

    /// Has the peer told what this end wants now, where that can be told.
    pub(crate) fn wish(&mut self, wishes: &Wishes) {
        let level = ReverseLevel::from_code(self.session.own().reverse);
        // The size of Receives does not change by that.
        self.session.exchange.change(&wishes.values(0, level));
    }

    /// Sets the values that this end wants the peer to have, where it can be asked for them.
    pub(crate) fn request(&mut self, wanted: &Told) {
        self.session.exchange.request(wanted);
    }

    /// Returns whether a Reply that is posted now may invalidate, if it was meant to.
    pub(crate) fn may_invalidate(&self) -> bool {
        !self.has_optional() || self.session.exchange.peer().invalidation != 0
    }

    /// Begins to send an RPC message, which is posted now and then [committed](Self::commit).
    /// Returns the credit value for the headers of all its parts; [`None`] if they have the right
    /// one. Nothing has changed until it is committed.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    #[inline]
    pub(crate) fn begin(
        &mut self,
        message: &Outbound,
    ) -> core::result::Result<Option<u32>, Refusal> {
        let version = self.version.ok_or(Refusal::NotConnected)?;
        if version.rules().counts_messages {
            return self.session.prepare_send(message).map(Some);
        }
        if version.rules().has_optional {
            return self.begin_earlier(message.direction);
        }
        // Others count the Calls that have no Reply. What was granted when a Reply was made may be
        // more than what another one has told since.
        let is_grant = message.direction == Direction::Reply && self.is_server();
        Ok(is_grant.then(|| self.receives.allowance().granted()))
    }

    /// Returns whether this is the end that a client has connected to.
    fn is_server(&self) -> bool {
        self.session.role() == Role::Server
    }

    /// Does the same in the earlier protocol, where what was asked for before may have changed: the
    /// level of the peer, and its credits.
    fn begin_earlier(&self, direction: Direction) -> core::result::Result<Option<u32>, Refusal> {
        match (direction, self.session.role()) {
            (Direction::Call, _) if !self.takes_calls() => Err(Refusal::Unsupported),
            // Behind what has told the peer of fewer, there are no more than these.
            (Direction::Reply, Role::Server) => Ok(Some(self.receives.allowance().granted())),
            _ => Ok(None),
        }
    }

    /// Counts an RPC message that was posted. Nothing else was asked of the connection since
    /// [`Self::begin`].
    #[inline]
    pub(crate) fn commit(&mut self, message: &Outbound) {
        if self.counts_messages() {
            self.session.commit_send(message.parts.max(1));
        } else if message.direction == Direction::Call {
            self.due.called();
        } else if self.version == Some(Version::One) && self.is_server() {
            self.receives.replied();
        }
    }

    /// Returns whether [`Self::begin`] would succeed.
    pub(crate) fn admits(&mut self, message: &Outbound) -> bool {
        !self.counts_messages() || self.session.admits(message)
    }

    /// Counts a Reply of Version One, which takes no credit.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if there were too few Calls for it.
    pub(crate) fn answered(&mut self) -> core::result::Result<(), Overrun> {
        self.due.answered()
    }

    /// Notes what a Reply of Version One grants. Returns how many Calls may be under way.
    pub(crate) fn granted(&mut self, credits: u32) -> u32 {
        self.grant.update(credits)
    }

    /// Returns what we may send in Version One.
    pub(crate) const fn grant(&self) -> &Grant {
        &self.grant
    }

    /// Begins anew to call the peer: nothing is known of what it grants and refuses.
    pub(crate) fn begin_calls(&mut self) {
        self.grant = Grant::new(self.in_one.calls);
        self.usable = Usable::ALL;
    }

    /// Returns whether the peer takes Calls at all (section 5.2.5 of the draft). In Version One it
    /// may answer with errors.
    pub(crate) fn takes_calls(&self) -> bool {
        let has_level = self.version().is_some_and(|v| v.rules().has_properties);
        !has_level
            || self.session.role() == Role::Client
            || self.session.reverse() != ReverseLevel::None
    }

    /// Returns whether a Call of the peer, a server, is answered with an error, since we have not
    /// said that we take such (RFC 8167, 5.3; section 3.3 of
    /// draft-dnoveck-nfsv4-rpcrdma-xcharext-03). In Version Two the session sees to it.
    pub(crate) fn refuses_call(&self, has_chunks: bool) -> bool {
        match self.version() {
            Some(Version::Two) | None => false,
            Some(Version::One) => has_chunks,
            Some(Version::Earlier) => match self.session.reverse() {
                ReverseLevel::None => true,
                ReverseLevel::Simple | ReverseLevel::Continued => has_chunks,
                ReverseLevel::General => false,
            },
        }
    }

    /// Notes an error about a Call, see [`Usable::learn`].
    pub(crate) fn learn(&mut self, error: &RdmaError, asked: &Asked) -> bool {
        self.usable.learn(error, asked)
    }

    /// Forgets what the peer has refused.
    pub(crate) fn forget_refusals(&mut self) {
        self.usable = Usable::ALL;
    }

    /// Returns whether [`Self::check`] must be called every now and then: the peer is in the middle
    /// of a sequence, the connection is about to end, or the peer is throttled.
    pub(crate) fn needs_check(&self) -> bool {
        // What was begun has to be ended; so has the connection, if it is about to end.
        self.is_throttled || self.session.is_peer_in_sequence() || self.session.is_closing()
    }

    /// Returns in how many parts a message may be sent, if not now then later. The peer renews
    /// credits when half of its window is used, so more than that might wait for ever. The window
    /// is the largest that it ever had.
    pub(crate) const fn max_parts(&self) -> u32 {
        most_parts(self.widest)
    }

    /// Returns the Receives for the peer's messages.
    pub(crate) const fn receives(&self) -> &Receives {
        &self.receives
    }

    /// Returns the Receives for the peer's messages, to change them. [`Self::update_offer`] follows
    /// before anything is sent.
    pub(crate) fn receives_mut(&mut self) -> &mut Receives {
        &mut self.receives
    }

    /// Tells the session what may be offered to the peer, see [`Receives::offer`]. Nothing tells
    /// when a throttled peer may be offered more: the owner calls this every now and then. Returns
    /// whether [`Self::needs_check`] may have changed.
    #[inline]
    pub(crate) fn update_offer(&mut self, held: u32, throttle: Option<u32>) -> bool {
        let offer = self.receives.offer(held, throttle);
        let before = core::mem::replace(&mut self.is_throttled, offer.is_throttled);
        self.session.set_receives(offer.messages);
        before != offer.is_throttled
    }

    /// Begins to renew the peer's credits, see [`Receives::begin_renewal`].
    pub(crate) fn begin_renewal(&mut self) -> Renewal {
        let withdrawal = match self.version() {
            Some(Version::One) => Withdrawal::ByReply,
            Some(version) if version.rules().counts_messages => Withdrawal::ByUse,
            _ => Withdrawal::Never,
        };
        self.receives.begin_renewal(withdrawal)
    }

    /// Returns how many Receives of withdrawn credits are not needed any more, see
    /// [`Receives::settle`]. `held` Receives hold messages that are still in use. Nothing may be
    /// promised between the last [`Self::update_offer`] with this value and this.
    pub(crate) fn settle(&mut self, held: u32) -> u32 {
        if self.has_optional() {
            return self.settle_told(held);
        }
        if self.version() == Some(Version::One) {
            return self.receives.settle_replied();
        }
        // A message is counted as held before the session sees it, so none is in neither of them.
        let promised = self.session.windows().1.must_be_posted();
        self.receives.settle(promised.saturating_add(held))
    }

    /// Does the same in the earlier protocol: nothing is given back before the peer has heard of
    /// its credits.
    fn settle_told(&mut self, held: u32) -> u32 {
        if self.session.exchange.is_lowering() {
            return 0;
        }
        self.receives.settle(self.receives.needed(held))
    }

    /// Returns whether the peer can be told of changes at any time, as far as it is known what is
    /// spoken.
    fn has_optional(&self) -> bool {
        self.version().is_some_and(|v| v.rules().has_optional)
    }

    /// Withdraws credits where the peer can be told so at any time, see [`Receives::review`]; if it
    /// turns out that it can't, it has them again. To be called every now and then, since an idle
    /// peer does nothing that others would be reminded by. `held` Calls of the peer are with us.
    /// Returns the credit value if that has changed.
    pub(crate) fn review_credits(&mut self, limit: u32, held: u32) -> Option<u32> {
        let exchange = &mut self.session.exchange;
        if exchange.is_lowering() && held > self.receives.allowance().granted() {
            // Until some of these are answered it may not say that it has heard, and is not silent.
            exchange.note_heard();
        }
        let has_changed = if !self.version.is_some_and(|v| v.rules().has_optional) {
            false
        } else if exchange.is_unknown() {
            exchange.restore_credits();
            self.receives.restore()
        } else if exchange.is_open() && self.receives.review(limit) {
            exchange.lower_credits();
            true
        } else {
            false
        };
        has_changed.then(|| self.receives.allowance().granted())
    }

    /// Checks whether the peer makes progress, see [`Watchdog::check`].
    pub(crate) fn check(&mut self, pending: Pending) -> Findings {
        self.watchdog.check(&mut self.session, pending)
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_connection)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            session::testing::{
                config,
                receive,
                CREDITS,
                EARLIER,
                FINAL,
                IN_ONE,
                OFFER,
                OWN,
                PROPERTIES,
                XID, //
            },
            testing::Bytes, //
        },
        *, //
    };
    use crate::proto::prelude::*;

    /// A message of one part, without chunks.
    const fn one(direction: Direction) -> Outbound {
        Outbound {
            direction,
            parts: 1,
            chunks: false,
        }
    }

    /// Returns an end that may speak versions up to `high`, with room for 8 messages.
    fn end(role: Role, high: u32) -> Connection {
        let config = Config {
            high,
            ..config(role)
        };
        Connection::new(&config, Receives::fixed(9), IN_ONE)
    }

    /// Does everything that there is to do.
    fn settle(end: &mut Connection) {
        while let Some(action) = end.poll() {
            if let Action::Send(control) = action {
                end.session.commit(&control);
                end.session.handle_sent();
            }
        }
    }

    /// Receives a message made of words, and does what there is to do.
    fn hear(end: &mut Connection, words: &[u32], used: Option<u32>) -> Result {
        let bytes = Bytes::from_words(words)?;
        let reception = Reception {
            used,
            expects_answers: true,
        };
        end.received(bytes.get(), &reception);
        settle(end);
        Ok(())
    }

    /// Returns an end that speaks Version Two.
    fn speaking(role: Role) -> Result<Connection> {
        let mut end = end(role, 2);
        settle(&mut end);
        hear(&mut end, &FINAL, None)?;
        Ok(end)
    }

    /// Returns how many Replies may come.
    fn replies(end: &Connection) -> usize {
        let mut end = end.clone();
        (0..1000).take_while(|_| end.answered().is_ok()).count()
    }

    /// RFC 8166, section 3.3: a Reply takes no credit, but there is one for each Call at most,
    /// beside those too many that are put up with.
    #[test]
    fn calls_are_counted_in_version_one() {
        for role in [Role::Client, Role::Server] {
            let mut end = end(role, 1);
            assert_eq!(end.version(), Some(Version::One));
            assert!(end.takes_calls() && end.may_invalidate() && !end.needs_check());
            assert!(end.admits(&one(Direction::Call)));
            for direction in [Direction::Reply, Direction::Call] {
                let is_grant = (role, direction) == (Role::Server, Direction::Reply);
                let credits = is_grant.then(|| end.receives().allowance().granted());
                assert_eq!(end.begin(&one(direction)), Ok(credits));
                end.commit(&one(direction));
            }
            assert_eq!(replies(&end), 33);
            assert_eq!(end.answered(), Ok(()));
            assert_eq!(replies(&end), 32);
        }
    }

    /// RFC 8166, section 3.3.1: the credits that the peer grants count, and a new beginning starts
    /// with those that were asked for.
    #[test]
    fn grants_are_those_of_the_latest_reply() {
        let mut end = end(Role::Client, 1);
        let first = end.grant().limit();
        assert_eq!(end.granted(5), 5);
        assert_eq!(end.grant().limit(), 5);
        assert_eq!(end.agreement().send_window, 5);
        assert_eq!(end.agreement().receive_window, 0);
        end.begin_calls();
        assert_eq!(end.grant().limit(), first);
    }

    /// RFC 8167, section 5.3: no chunks in Calls of a server.
    #[test]
    fn terms_of_version_one() {
        for (role, has_chunks) in [(Role::Client, true), (Role::Server, false)] {
            let end = end(role, 1);
            assert_eq!(end.terms(), Terms::of_one(&IN_ONE, role));
            assert_eq!(end.terms().has_chunks, has_chunks);
            assert!(end.refuses_call(true) && !end.refuses_call(false));
            let agreement = end.agreement();
            assert_eq!(agreement.version, Version::One);
            assert_eq!(agreement.reverse, ReverseLevel::None);
            assert_eq!(agreement.peer, None);
            assert!(agreement.earlier.is_none());
            assert_eq!(agreement.terms.send_size, IN_ONE.agreed().send_inline);
        }
        assert_eq!(end(Role::Server, 1).agreement().receive_window, 8);
    }

    /// Section 4.3: nothing is sent before it is known what is spoken, and nothing refused.
    #[test]
    fn nothing_is_known_at_first() {
        let mut end = end(Role::Client, 2);
        assert_eq!(end.version(), None);
        assert_eq!(end.begin(&one(Direction::Call)), Err(Refusal::NotConnected));
        assert!(!end.is_quiet() && !end.refuses_call(true));
    }

    /// Section 4.2.1: messages of all kinds are counted, and none goes beyond the limit.
    #[test]
    fn messages_are_counted_in_version_two() -> Result {
        let mut end = speaking(Role::Client)?;
        assert_eq!(end.version(), Some(Version::Two));
        assert!(end.is_quiet() && end.is_content());
        assert!(!end.refuses_call(true));
        assert_eq!(end.max_parts(), CREDITS / 2);
        assert_eq!(end.terms().parts, CREDITS - 1);
        let all = Outbound {
            parts: CREDITS - 2,
            ..one(Direction::Call)
        };
        assert_eq!(end.begin(&all), Ok(Some(9)));
        end.commit(&all);
        assert_eq!(end.agreement().send_window, 1);
        assert!(end.admits(&one(Direction::Call)));
        assert_eq!(end.begin(&one(Direction::Call)), Ok(Some(9)));
        end.commit(&one(Direction::Call));
        assert!(!end.admits(&one(Direction::Call)));
        assert_eq!(end.begin(&one(Direction::Call)), Err(Refusal::Wait));
        assert!(!end.is_quiet());
        // The window was larger once.
        assert_eq!(end.max_parts(), CREDITS / 2);
        // Version One counts these, Version Two does not.
        assert_eq!(replies(&end), 32);
        Ok(())
    }

    /// Section 4.2.1.1: as soon as half of the credits are used, a GRANT may be due.
    #[test]
    fn an_end_is_content_while_credits_are_left() -> Result {
        let mut end = speaking(Role::Server)?;
        for count in 0..6 {
            assert_eq!(end.is_content(), count < 4);
            receive(&mut end.session, &[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        }
        Ok(())
    }

    /// Sections 5.2.1 to 5.2.5: what the two ends have told is in force and shown.
    #[test]
    fn terms_of_version_two() -> Result {
        // The first message of the server is one of those that the client has let out.
        for (role, window) in [(Role::Client, 7), (Role::Server, 8)] {
            let end = speaking(role)?;
            let (terms, agreement) = (end.terms(), end.agreement());
            assert_eq!(terms.version, Version::Two);
            assert_eq!((terms.send_size, terms.receive_size), (8192, 8192));
            assert!(terms.has_chunks && terms.has_parts);
            assert_eq!(terms.may_invalidate, IN_ONE.own.remote_invalidation);
            assert_eq!(agreement.version, Version::Two);
            assert_eq!(agreement.terms, end.session.terms());
            assert_eq!(agreement.reverse, ReverseLevel::from_code(OWN.reverse));
            assert_eq!(agreement.peer, Some(end.session.peer_properties()));
            assert_eq!(agreement.send_window, end.session.credits());
            assert_eq!(agreement.receive_window, window);
        }
        Ok(())
    }

    /// Returns an end that speaks the protocol of 2016.
    fn speaking_earlier(role: Role) -> Result<Connection> {
        let config = Config {
            earlier: Some(EARLIER),
            ..config(role)
        };
        let mut end = Connection::new(&config, Receives::fixed(9), IN_ONE);
        settle(&mut end);
        match role {
            Role::Client => hear(&mut end, &PROPERTIES, None)?,
            Role::Server => hear(&mut end, &OFFER, None)?,
        }
        assert_eq!(end.version(), Some(Version::Earlier));
        Ok(end)
    }

    /// Section 4.2.2 of draft-cel-nfsv4-rpcrdma-version-two-01: the credits are those of a server's
    /// Reply.
    #[test]
    fn replies_tell_credits_in_the_earlier_protocol() -> Result {
        let client = speaking_earlier(Role::Client)?;
        let server = speaking_earlier(Role::Server)?;
        for (mut end, credits) in [(client, None), (server, Some(8))] {
            assert_eq!(end.begin(&one(Direction::Call)), Ok(None));
            assert_eq!(end.begin(&one(Direction::Reply)), Ok(credits));
        }
        Ok(())
    }

    /// A client whose Calls have taken more credits than it has now does not say that it has heard
    /// of these, and so its silence counts for nothing.
    #[test]
    fn who_uses_more_credits_than_it_has_is_not_silent() -> Result {
        let mut end = speaking_earlier(Role::Server)?;
        // Nobody else needs its credits.
        assert_eq!(end.review_credits(8, 0), None);
        assert!(!end.session.exchange.is_lowering());
        end.session.exchange.lower_credits();
        for (held, is_heard) in [(8, false), (9, true), (10, true)] {
            end.session.exchange.take_heard();
            end.review_credits(8, held);
            assert_eq!(end.session.exchange.take_heard(), is_heard);
        }
        Ok(())
    }

    /// Section X 3.1: shorter Receives may be asked for, and are there at once unless there are
    /// Calls under way whose Replies need longer ones.
    #[test]
    fn receives_get_shorter_when_no_reply_is_expected() -> Result {
        for (expects_answers, size) in [(true, 8192), (false, 4096)] {
            let mut end = speaking_earlier(Role::Client)?;
            let bytes = Bytes::from_words(&[XID, 2, 9, 5, 0, 2, 16, 1, 1, 4, 4096])?;
            let reception = Reception {
                used: None,
                expects_answers,
            };
            end.received(bytes.get(), &reception);
            assert_eq!(end.session.exchange.own().receive_size, size);
        }
        Ok(())
    }

    /// A whole RPC message goes the short way once the session has nothing else to do.
    #[test]
    fn a_plain_message_is_known_as_such() -> Result {
        let bytes = Bytes::from_words(&[XID, 2, 100, 10, 0, 0, 0, 0, XID, 0])?;
        let plain = speaking(Role::Server)?.received_plain(bytes.get(), None);
        assert_eq!(plain.map(|plain| plain.xid), Some(XID));
        assert!(end(Role::Server, 2)
            .received_plain(bytes.get(), None)
            .is_none());
        Ok(())
    }

    /// A whole RPC message of the earlier protocol goes the short way, but for the first one that a
    /// server gets when it has told its properties: that one proves that they were heard.
    #[test]
    fn a_short_message_is_known_as_such() -> Result {
        for (role, direction) in [(Role::Server, 0), (Role::Client, 1)] {
            let words = [XID, 2, 9, 0, direction, 0, 0, 0, XID, direction];
            let bytes = Bytes::from_words(&words)?;
            let mut end = speaking_earlier(role)?;
            if role == Role::Server {
                assert!(end.received_short(bytes.get(), true).is_none());
                hear(&mut end, &words, None)?;
            }
            end.session.exchange.take_heard();
            let short = end.received_short(bytes.get(), true);
            let short = short.ok_or(Fault::NoPayload)?;
            let is_call = !short.is_reply;
            assert_eq!((is_call, short.xid), (direction == 0, XID));
            // The peer is there, and there is nothing to send for that.
            assert!(end.session.exchange.take_heard() && end.is_quiet());
            // An end without a Call under way expects no Reply.
            let other = end.received_short(bytes.get(), false);
            assert_eq!(other.is_some(), is_call);
            // Left to the long way: an error, and a message when the connection is about to end.
            let error = Bytes::from_words(&[XID, 2, 9, 4, 1, 2])?;
            assert!(end.received_short(error.get(), true).is_none());
            end.session.close();
            assert!(end.received_short(bytes.get(), true).is_none());
        }
        let bytes = Bytes::from_words(&[XID, 2, 9, 0, 0, 0, 0, 0, XID, 0])?;
        for role in [Role::Server, Role::Client] {
            let short = end(role, 2).received_short(bytes.get(), true).is_some();
            assert!(!short && speaking(role)?.received_short(bytes.get(), true).is_none());
        }
        Ok(())
    }

    /// Section 7.3: what the peer has refused is not asked for again before that is forgotten.
    #[test]
    fn errors_teach_what_is_of_use() -> Result {
        let mut end = speaking(Role::Client)?;
        assert_eq!(end.terms().usable, Usable::ALL);
        let asked = Asked {
            read: 2,
            ..Asked::default()
        };
        for (max, is_lesson) in [(2, false), (1, true)] {
            assert_eq!(end.learn(&RdmaError::Segments { max }, &asked), is_lesson);
            assert!(end.terms().usable != Usable::ALL);
        }
        end.forget_refusals();
        assert_eq!(end.terms().usable, Usable::ALL);
        Ok(())
    }

    /// Section 5.2.5: a client that has told nothing takes no Calls.
    #[test]
    fn calls_are_for_those_who_take_them() -> Result {
        let mut server = end(Role::Server, 2);
        settle(&mut server);
        hear(&mut server, &[0, 2, 100, 7, 0], None)?;
        assert_eq!(server.version(), Some(Version::Two));
        assert!(!server.takes_calls());
        let terms = server.terms();
        assert!(!terms.has_chunks && !terms.has_parts);
        assert!(speaking(Role::Server)?.takes_calls());
        assert!(speaking(Role::Client)?.takes_calls());
        Ok(())
    }

    /// Section 4.2.1: a peer that uses all of its credits gets more, one that sends Replies does
    /// not.
    #[test]
    fn calls_use_credits() -> Result {
        for (direction, used) in [(0, 3), (1, 0)] {
            let config = config(Role::Server);
            let mut end = Connection::new(&config, Receives::new(3, 64), IN_ONE);
            hear(&mut end, &FINAL, None)?;
            hear(
                &mut end,
                &[XID, 2, 100, 10, direction, 0, 0, 0, XID, direction],
                Some(3),
            )?;
            assert_eq!(end.begin_renewal().wanted, used);
        }
        Ok(())
    }

    /// Section 4.2.1: a limit that was told is kept, so Receives are given back when it is used up.
    #[test]
    fn a_throttled_peer_is_looked_after() -> Result {
        let mut end = speaking(Role::Server)?;
        assert!(!end.needs_check());
        assert!(end.update_offer(0, Some(0)) && end.needs_check());
        assert!(!end.update_offer(0, Some(0)));
        assert!(end.update_offer(0, None) && !end.needs_check());
        assert_eq!(end.settle(0), 0);
        end.session.close();
        assert!(end.needs_check());
        Ok(())
    }
}
