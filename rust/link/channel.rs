// SPDX-License-Identifier: GPL-2.0

//! The session of a connection that may speak Version Two, and the order of its messages.
//!
//! [`crate::proto::session`] decides what may be sent and when, what a received message is, and
//! what answers it. It does no I/O. A [`Channel`] puts it between the paths of a message: what
//! arrives is shown to it first, what will be sent is admitted by it last.
//!
//! # Who owns what, and what ends it
//!
//! A channel is made with a connection and never used for another one. Each connection of a server
//! has one, on either end; the [`Link`](super::Link) is it together with its endpoint. Where only
//! Version One may be spoken the session is shown nothing and asked nothing, and what is agreed on
//! is known from the beginning.
//!
//! The session is under the channel's spinlock, and so is the posting of everything that it counts:
//! what it hands out has to be posted in that order. So the endpoint's locks are taken inside this
//! lock, and the lock of a Call around it. A Send buffer that could not be posted is given back
//! inside it; hence the code that is told of that (`EndpointEvents::resources_back`) must not ask
//! the channel anything.
//!
//! # Credits, and the two ways to count them
//!
//! Version One counts Calls without Reply: the congestion window of SUNRPC obeys the grant of the
//! peer, and the Responder gives credits of its own away. Both are under the lock of the channel,
//! which a client takes for no Call, a server for each, since it counts their Replies, and either
//! of them when a Reply says something new. Version Two counts messages, of all kinds and for both
//! directions together. SUNRPC's window is opened as wide as the connection was made for. A sender
//! that finds no credit waits as if the Send Queue were full: a Requester by `kext::waiting`, a
//! server's Reply in the list of its endpoint.
//!
//! How much the peer may send follows from the Receives that were posted for it, and from those
//! that hold messages which are still in use (`Endpoint::held`), see
//! [`crate::proto::connection::receives`]. [`Channel::grant`] adds Receives and withdraws them.
//!
//! A server's threads may be slow, and Calls in parts wait for them in memory
//! ([`super::assembly`]). When much of that is taken clients are throttled: each is offered credits
//! for what it may still keep of its own share, or one if that is used up, as Calls are answered
//! and their credits renewed. So those that have filled the memory get no more of it, and others
//! send their Calls in parts as before. What was promised before may still come; with 64 credits
//! for each of 128 clients that is no more than what is left. Freeing memory
//! does not identify waiters, so a throttled connection is checked every [`CHECK_INTERVAL`], and
//! whenever something arrives or is sent. The other direction is never throttled, for a Reply that
//! is expected in parts has no other form; there a client knows what it has asked for.
//!
//! # Host authentication
//!
//! Where it is on ([`super::auth`]), the connection is not *settled* before the verdict about the
//! peer is known: nobody sends, RPC messages of the peer are of no use, and a client waits. The
//! CONNPROP messages of our own are then sent by [`Channel::act`] as credits and Send buffers
//! allow. A peer that is refused is told so, if it is a client, and the connection ends.
//!
//! # Time
//!
//! There is no timer here. While the peer is in the middle of a sequence or throttled
//! ([`Channel::needs_check`]), when a message waits for a credit, and from the beginning where
//! the peer has to authenticate itself ([`Channel::awaits_proof`]), the owner of the channel calls
//! [`Channel::check`] every [`CHECK_INTERVAL`]. What is compared then, and how often, is in
//! [`crate::proto::connection::watchdog`].
//!
//! A client that need not prove who it is may be silent for as long as it likes, as in Version One:
//! what it costs is what any connection without a Call costs, and SUNRPC ends such ones when they
//! are old, or too many.

pub(crate) mod incoming;
mod inspect;
pub(crate) mod receives;

use crate::endpoint::{
    Endpoint,
    EndpointEvents, //
};
use crate::kext::completion::Completion;
use crate::kext::prelude::*;
use crate::kext::time::{
    jiffies,
    HZ, //
};
use crate::link::assembly::{
    self,
    Assembly,
    Share,
    MAX_WHOLE, //
};
use crate::link::auth::{
    Auth,
    AuthParameters,
    Next, //
};
use crate::observe::counters::Counter;
use crate::observe::trace::{
    self,
    Number, //
};
use crate::proto::auth::settlement::{
    Heard,
    Settlement, //
};
use crate::proto::auth::{
    AuthFailure,
    AuthVerdict, //
};
use crate::proto::chunk::Limits;
use crate::proto::connection::receives::Receives;
use crate::proto::connection::watchdog::{
    self,
    Pending, //
};
use crate::proto::connection::{
    Agreement,
    Connection,
    InOne,
    Terms, //
};
use crate::proto::credits::Overrun;
use crate::proto::format::{
    Asked,
    InlineThresholds, //
};
use crate::proto::message::Version;
use crate::proto::props::Properties;
use crate::proto::rules::Rules;
use crate::proto::session::{
    Action,
    Config,
    Control,
    Outbound,
    Reason,
    Refusal,
    Role,
    Timer, //
};
use crate::proto::v2::{
    Direction,
    RdmaError, //
};
use crate::proto::v2_2016::props::{
    Told,
    Values,
    Wishes, //
};
use crate::sunrpc::{
    tunables,
    AddressText, //
};
use kernel::sync::lock::spinlock::SpinLockBackend;
use kernel::sync::lock::Guard;

/// The largest messages that an end which may speak Version Two sends and receives, in octets, if
/// the administrator does not want larger ones. A READ or WRITE of 8 KiB is one such message, which
/// is less work for both ends than a chunk. It is no less than what a peer may send before it has
/// been told anything (4.2, 5.2.2 of the draft).
pub(crate) const MESSAGE_SIZE: u32 = 12 << 10;

const _: () = assert!(MESSAGE_SIZE >= Properties::DEFAULT.receive_size);

/// Returns the length of the largest message, either way, on a connection that may speak up to
/// `highest`, if it is `inline` octets in Version One.
pub(crate) fn largest_message(highest: Version, inline: u32) -> u32 {
    if highest.rules().has_properties {
        inline.max(MESSAGE_SIZE)
    } else {
        inline
    }
}

/// Jiffies between two calls of [`Channel::check`].
pub(crate) const CHECK_INTERVAL: usize = watchdog::CHECK_INTERVAL as usize * HZ;

/// The parameters of a connection that its two ends have to know.
pub(crate) struct ChannelParameters {
    /// By what number trace events name the connection.
    pub(crate) number: Number,
    /// Which end this is.
    pub(crate) role: Role,
    /// The properties of this end.
    pub(crate) own: Properties,
    /// The highest version that may be spoken.
    pub(crate) highest: Version,
    /// The properties in the earlier protocol with number two, if that may be spoken: see
    /// [`Config::earlier`].
    pub(crate) earlier: Option<Values>,
    /// The terms of Version One.
    pub(crate) in_one: InOne,
    /// The Receives for the peer's messages.
    pub(crate) receives: Receives,
    /// The credit value of errors in Version One.
    pub(crate) credits_in_one: u32,
    /// The most Read chunks of a Call.
    pub(crate) read_chunks: u32,
    /// The most Write chunks of a Call.
    pub(crate) write_chunks: u32,
    /// The parameters of host authentication.
    pub(crate) auth: AuthParameters,
}

/// The state behind the lock.
struct State {
    /// The connection, which decides.
    connection: Connection,
    /// The number of the session's own messages that were posted and are not known to be sent.
    in_transit: u32,
    /// Where the latest of them is in the Send Queue.
    latest: u64,
    /// The next message of the authentication, and the verdict on the peer.
    settlement: Settlement<KVec<u8>>,
    /// Set if the connection has come so far that [`Channel::wait`] ends.
    decided: bool,
}

impl State {
    /// Has the connection of a peer end that is refused and has been told so.
    fn close_refused(&mut self) {
        self.settlement.close(&mut self.connection.session);
    }

    /// Sends one CONNPROP message of our own, see [`Settlement::speak`]. Returns whether anything
    /// has changed.
    fn speak<H: EndpointEvents>(&mut self, endpoint: &Arc<Endpoint<H>>) -> bool {
        let session = &mut self.connection.session;
        if !self.settlement.has_more(session) {
            return false;
        }
        let buffer = endpoint.control_buffer();
        let room = buffer.as_ref().map_or(0, |buffer| buffer.len());
        let (changed, posted) = self.settlement.speak(session, room, |message| {
            let mut buffer = buffer?;
            let len = message.encode(&mut buffer).ok()?;
            endpoint.post_signaled(buffer, len).ok()
        });
        if let Some(sequence) = posted {
            self.latest = sequence;
            self.in_transit = self.in_transit.saturating_add(1);
        }
        changed
    }
}

/// The protocol state of one connection.
#[pin_data]
pub(crate) struct Channel {
    /// By what number trace events name the connection.
    number: Number,
    /// Which end this is.
    role: Role,
    /// The address of this end.
    local: AddressText,
    /// Set if Version Two may be spoken.
    may_speak_two: bool,
    /// Set if Replies of Version One get their credit value when they are posted, so that one which
    /// grants more never comes behind one that grants fewer: those of a server.
    stamps_replies: bool,
    /// When the minute began in which it is counted what the peer uses, in jiffies.
    minute: Atomic<usize>,
    /// Set if there is host authentication.
    authenticates: bool,
    /// The authentication of the peer.
    #[pin]
    auth: Auth,
    /// Set if the peer may send and be sent RPC messages. Written under the lock, once.
    settled: Atomic<bool>,
    /// The connection and its messages under way.
    #[pin]
    state: SpinLock<State>,
    /// Completed when it is known what is spoken, and when that will never be known.
    #[pin]
    decided: Completion,
    /// The RPC message that is coming in parts.
    assembly: Assembly,
    /// The private data of the CM, told when the connection was made.
    in_one: InOne,
    /// The terms of Version One.
    terms_in_one: Terms,
    /// The code of the version that is spoken; zero while it is not known. Written under the lock.
    version: Atomic<u32>,
    /// The inline thresholds of Version Two, one in each half, or zero while they are not
    /// known. Written under the lock.
    sizes: Atomic<u64>,
    /// Set if [`Channel::check`] has work to do. Written under the lock.
    needs_check: Atomic<bool>,
    /// Set if [`Channel::act`] has nothing to do. Written under the lock: cleared by all code that
    /// may change that, see [`Channel::change`].
    is_quiet: Atomic<bool>,
    /// Messages that the session had to examine in full.
    examined: Counter,
}

/// The work that is left to the owner of the channel.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct OwnerWork {
    /// Let those try again that were told to wait for a credit.
    pub(crate) wake: bool,
    /// End the connection.
    pub(crate) close: Option<Reason>,
    /// The number of errors that were sent.
    pub(crate) errors: u32,
    /// More is agreed on than before.
    pub(crate) agreed: bool,
}

impl Channel {
    /// The channel of a new connection.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(parameters: &ChannelParameters) -> Result<Arc<Self>> {
        // Asked once: an administrator may take the key away at any time.
        let may_speak_two = parameters.highest.rules().has_properties;
        let on = may_speak_two && parameters.auth.is_on();
        let only_two = parameters.auth.wanted.is_required();
        let low = if only_two { Version::Two } else { Version::One };
        let config = Config {
            role: parameters.role,
            low: low.number(),
            high: parameters.highest.number(),
            // There is no host authentication in it.
            earlier: parameters
                .earlier
                .filter(|_| may_speak_two && low == Version::One),
            own: parameters.own,
            authenticate: on,
            // Follows from what is posted.
            receives: 0,
            credits_in_one: parameters.credits_in_one,
            limits: Limits::DEFAULT,
            read_chunks: parameters.read_chunks,
            write_chunks: parameters.write_chunks,
            max_assembly: MAX_WHOLE,
        };
        let connection = Connection::new(&config, parameters.receives, parameters.in_one);
        let version = connection.version().map_or(0, Version::code);
        let settled = !on;
        let share = Share::new(parameters.role == Role::Client)?;
        let state = State {
            connection,
            in_transit: 0,
            latest: 0,
            settlement: Settlement::new(parameters.role, on, only_two),
            decided: false,
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                number: parameters.number,
                role: parameters.role,
                local: match parameters.role {
                    Role::Client => parameters.auth.client,
                    Role::Server => parameters.auth.server,
                },
                may_speak_two,
                stamps_replies: parameters.role == Role::Server,
                minute: Atomic::new(jiffies()),
                authenticates: on,
                auth <- Auth::new(parameters.role, &parameters.auth, on, share.clone()),
                settled: Atomic::new(settled),
                state <- new_spinlock!(state, "rpcrdma::Channel::state"),
                decided <- Completion::new(),
                assembly: Assembly::new(share),
                in_one: parameters.in_one,
                terms_in_one: Terms::of_one(&parameters.in_one, parameters.role),
                version: Atomic::new(version),
                sizes: Atomic::new(0),
                needs_check: Atomic::new(false),
                is_quiet: Atomic::new(false),
                examined: Counter::new(),
            }),
            GFP_KERNEL,
        )?;
        this.follow(this.auth.open());
        Ok(this)
    }

    /// Returns the address of this end, which tells the device.
    pub(crate) fn local(&self) -> &AddressText {
        &self.local
    }

    /// Takes in what the authentication wants to be done. [`Self::act`] does it.
    fn follow(&self, next: Next) {
        let Next { step, bytes } = next;
        let mut state = self.change();
        let former = state.settlement.follow(&step, bytes);
        self.publish_verdict(&state, step.verdict);
        drop(state);
        drop(former);
    }

    /// Publishes whether the peer may send and be sent RPC messages, if there is a new verdict.
    fn publish_verdict(&self, state: &State, verdict: Option<AuthVerdict>) {
        if let Some(verdict) = verdict {
            self.settled.store(state.settlement.is_settled(), Release);
            trace::host_auth(self.number, verdict);
        }
    }

    /// The peer has told properties, or something of its authentication. Sleeps.
    fn told(&self, host_auth: Option<&[u8]>, last: bool) {
        let heard = self.state.lock().settlement.hear(host_auth);
        match heard {
            Heard::Nothing => {}
            Heard::Ask => self.follow(self.auth.receive(host_auth, last)),
            Heard::Refused => self.follow(Next {
                step: Settlement::<KVec<u8>>::refused(),
                bytes: None,
            }),
        }
    }

    /// Returns whether an RPC message of the peer, which has arrived, is dealt with. If it is too
    /// early, the peer does not want to authenticate itself. Sleeps then.
    fn is_settled(&self) -> bool {
        if self.settled.load(Acquire) {
            return true;
        }
        self.follow(self.auth.skipped());
        self.settled.load(Acquire)
    }

    /// Returns whether the peer, a client, has to prove who it is, and has not yet. If so, the
    /// owner calls [`Self::check`].
    pub(crate) fn awaits_proof(&self) -> bool {
        self.state.lock().settlement.awaits_proof()
    }

    /// Why the peer is refused, if it is: connecting to it again is no use.
    pub(crate) fn refusal(&self) -> Option<AuthFailure> {
        let verdict = self.state.lock().settlement.verdict();
        match verdict {
            Some(AuthVerdict::Refuse(why)) => Some(why),
            _ => None,
        }
    }

    /// Returns whether the connection ends before anything else is sent.
    pub(crate) fn is_overdue(&self) -> bool {
        self.state.lock().connection.session.is_overdue()
    }

    /// Returns the version that is spoken, if it is known.
    #[inline]
    pub(crate) fn version(&self) -> Option<Version> {
        Version::of_code(self.version.load(Acquire))
    }

    /// Returns the rules of what is spoken. Until it is known, nobody sends anything.
    #[inline]
    pub(crate) fn rules(&self) -> Rules {
        self.spoken().rules()
    }

    /// Returns what is spoken. Until it is known, nobody sends anything.
    #[inline]
    pub(crate) fn spoken(&self) -> Version {
        self.version().unwrap_or(Version::One)
    }

    /// Returns what was told when the connection was made, which holds in Version One.
    pub(crate) fn in_one(&self) -> &InOne {
        &self.in_one
    }

    /// Returns what holds for the messages that are sent next.
    pub(crate) fn terms(&self) -> Terms {
        if self.rules().has_properties {
            self.state.lock().connection.terms()
        } else {
            self.terms_in_one
        }
    }

    /// Returns the inline thresholds for the messages that are sent next, if they are known. Asks
    /// without the lock.
    #[inline]
    pub(crate) fn thresholds(&self) -> Option<InlineThresholds> {
        let version = self.version()?;
        let (call, reply) = if version.rules().has_properties {
            match self.sizes.load(Relaxed) {
                0 => return None,
                // CAST: The halves of the word.
                sizes => ((sizes >> 32) as u32, sizes as u32),
            }
        } else {
            (self.terms_in_one.send_size, self.terms_in_one.receive_size)
        };
        Some(InlineThresholds {
            version,
            call,
            reply,
        })
    }

    /// Publishes the inline thresholds of Version Two, which have changed.
    #[cold]
    fn publish_thresholds(&self, connection: &Connection) {
        let terms = connection.terms();
        if terms.version.rules().has_properties {
            let sizes = u64::from(terms.send_size) << 32 | u64::from(terms.receive_size);
            self.sizes.store(sizes, Relaxed);
        }
    }

    /// Returns whether [`Self::check`] must be called every [`CHECK_INTERVAL`].
    pub(crate) fn needs_check(&self) -> bool {
        self.needs_check.load(Relaxed)
    }

    /// Returns whether messages tell what is spoken and agreed on, and not the private data alone.
    pub(crate) fn negotiates(&self) -> bool {
        self.may_speak_two
    }

    /// Checks whether the peer makes progress, see [`crate::proto::connection::watchdog`]. `waits`
    /// says that a message that has no other form waits for credits. Returns whether to check
    /// again, whatever happens. [`Self::act`] does what follows from it. Sleeps.
    pub(crate) fn check(&self, waits: bool) -> bool {
        let pending = Pending {
            message: waits,
            proof: self.awaits_proof(),
            patience: tunables::keep_alive().div_ceil(watchdog::CHECK_INTERVAL),
        };
        let mut state = self.change();
        let found = state.connection.check(pending);
        drop(state);
        if found.unproved {
            // If there is a verdict at this moment it stands: the exchange gives only one.
            self.follow(self.auth.skipped());
        }
        found.again || (self.rules().has_optional && pending.patience > 0)
    }

    /// Publishes what others ask for without the lock.
    fn publish(&self, connection: &Connection) {
        let version = connection.version().map_or(0, Version::code);
        if version != 0 && version != self.version.load(Relaxed) {
            self.publish_thresholds(connection);
            self.version.store(version, Release);
        }
        let needs_check = connection.needs_check();
        if needs_check != self.needs_check.load(Relaxed) {
            self.needs_check.store(needs_check, Relaxed);
        }
    }

    /// Takes the lock to change the state, after which there may be something for [`Self::act`] to
    /// do.
    fn change(&self) -> Guard<'_, State, SpinLockBackend> {
        let state = self.state.lock();
        self.is_quiet.store(false, Relaxed);
        state
    }

    /// Notes whether there is anything for [`Self::act`] to do. Receives that come back are not:
    /// [`Connection::is_quiet`] has taken account of them.
    fn note_quiet(&self, state: &State) {
        let said = state.settlement.is_done() && state.in_transit == 0 && state.decided;
        self.is_quiet
            .store(said && state.connection.is_quiet(), Relaxed);
    }

    /// Tells the connection how many Receives there are for the peer's messages.
    fn update_offer<H: EndpointEvents>(&self, state: &mut State, endpoint: &Endpoint<H>) {
        let throttle = (self.role == Role::Server && assembly::is_crowded()).then(|| {
            let size = state.connection.terms().receive_size.max(1);
            self.assembly.room() / size
        });
        if state.connection.update_offer(endpoint.held(), throttle) {
            self.publish(&state.connection);
        }
    }

    /// Returns whether the peer's messages in parts take more memory than its own share, while
    /// there is little left for those of others.
    pub(crate) fn crowds_others(&self) -> bool {
        assembly::is_crowded() && self.assembly.room() == 0
    }

    /// Does what the session wants: sends its own messages above all. To be called after everything
    /// that may have changed something: when a message was dealt with, when a Send has completed,
    /// when Receives were added.
    #[inline]
    pub(crate) fn act<H: EndpointEvents>(&self, endpoint: &Arc<Endpoint<H>>) -> OwnerWork {
        if self.may_act() {
            self.act_now(endpoint)
        } else {
            OwnerWork::default()
        }
    }

    /// Returns whether [`Self::act`] may have anything to do.
    #[inline]
    pub(crate) fn may_act(&self) -> bool {
        // After a change either this is not quiet, or somebody has seen the change.
        self.may_speak_two && !self.is_quiet.load(Relaxed)
    }

    /// Does what the session wants, when it may want something.
    #[inline(never)]
    fn act_now<H: EndpointEvents>(&self, endpoint: &Arc<Endpoint<H>>) -> OwnerWork {
        let mut outcome = OwnerWork::default();
        let mut state = self.state.lock();
        self.update_offer(&mut state, endpoint);
        if state.in_transit > 0 && endpoint.has_retired(state.latest) {
            for _ in 0..core::mem::take(&mut state.in_transit) {
                state.connection.session.handle_sent();
            }
        }
        loop {
            state.close_refused();
            // First, since it carries credits as well as a GRANT; and a client without
            // authentication takes whatever comes first for an acceptance.
            let spoken = state.speak(endpoint);
            self.poll(endpoint, &mut state, &mut outcome);
            if !spoken {
                break;
            }
        }
        self.publish(&state.connection);
        let decided = self.decided_version().is_some() || outcome.close.is_some();
        let news = decided && !core::mem::replace(&mut state.decided, decided);
        self.note_quiet(&state);
        drop(state);
        if news {
            self.decided.complete();
        }
        outcome
    }

    /// Does what the session wants now.
    fn poll<H: EndpointEvents>(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        state: &mut State,
        outcome: &mut OwnerWork,
    ) {
        while let Some(action) = state.connection.poll() {
            match action {
                Action::Send(control) => match send_control(endpoint, &control) {
                    Some(sequence) => {
                        state.connection.session.commit(&control);
                        let own = state.connection.session.exchange.own();
                        self.note_sent(&control, own, outcome);
                        // A size counts when it was told, see `Exchange::receive_size`.
                        self.publish_thresholds(&state.connection);
                        state.latest = sequence;
                        state.in_transit = state.in_transit.saturating_add(1);
                    }
                    None => {
                        // It is asked for again when a Send has completed: one of these has the
                        // buffer that is kept for what the session sends, or the queue is full. On
                        // an end that keeps none those that wait may have all Send buffers, and
                        // nothing else be under way.
                        outcome.wake |= state.connection.session.poll_wake();
                        break;
                    }
                },
                Action::Connected(dialect) => {
                    outcome.agreed = true;
                    let verdict = state.settlement.connected(dialect);
                    self.publish_verdict(state, verdict);
                }
                Action::Agreed(_) => outcome.agreed = true,
                Action::Wake => outcome.wake = true,
                Action::Close(reason) => {
                    trace::closing(self.number, reason);
                    let verdict = state.settlement.closing(reason);
                    self.publish_verdict(state, verdict);
                    outcome.close = Some(reason);
                }
            }
        }
    }

    /// Takes note of a message of the session's own that was posted.
    fn note_sent(&self, control: &Control, own: &Values, outcome: &mut OwnerWork) {
        match control {
            Control::Error(header) => {
                trace::error(self.number, header.xid, header.error, true);
                outcome.errors = outcome.errors.saturating_add(1);
            }
            Control::Optional(message) => {
                let name = message.content.name();
                trace_optional(self.number, message.xid, name, own, true);
                let is_error = message.content.is_error();
                outcome.errors = outcome.errors.saturating_add(is_error.into());
            }
            Control::Properties(_) | Control::Grant(_) => {}
        }
    }

    /// Waits until it is known what is spoken and what is thought of the peer, `timeout` jiffies at
    /// most. Sleeps. Returns what is spoken, unless the peer is refused or that is not known yet.
    pub(crate) fn wait(&self, timeout: usize) -> Option<Version> {
        if !self.decided.wait_timeout(timeout) {
            let mut state = self.change();
            state.connection.session.handle_timeout(Timer::FirstMessage);
        }
        self.decided_version()
    }

    /// Returns what is spoken, if the peer was accepted for it: in Version One nobody is asked.
    fn decided_version(&self) -> Option<Version> {
        let accepted =
            |version: &Version| !version.rules().has_properties || self.settled.load(Acquire);
        self.version().filter(accepted)
    }

    /// Ends [`Self::wait`]: the connection is lost, or not wanted any more. Any context.
    pub(crate) fn interrupt(&self) {
        self.decided.complete();
    }

    /// Begins to send a message, which is ready to be posted. Nothing else that is counted is sent
    /// before what is returned is dropped. Must not sleep meanwhile. A message that is sent gives
    /// [`Self::act`] nothing to do, see [`Connection::is_quiet`].
    ///
    /// # Errors
    ///
    /// See [`Refusal`]. A caller that has to wait is woken by [`OwnerWork::wake`], which may have
    /// come already; so after it has done what it does to wait, it must ask [`Self::admits`].
    #[inline]
    pub(crate) fn begin<H: EndpointEvents>(
        &self,
        endpoint: &Endpoint<H>,
        message: Outbound,
    ) -> Result<Sending<'_>, Refusal> {
        let version = self.version();
        let is_free = |version: Version| version.rules().is_free(self.role, message.direction);
        let stamps = self.stamps_replies && message.direction == Direction::Reply;
        if !stamps && version.is_some_and(is_free) {
            // It carries its credits already, and nothing is known by it.
            return Ok(Sending {
                state: None,
                message,
                credits: None,
            });
        }
        self.begin_locked(self.state.lock(), endpoint, message)
    }

    /// As [`Self::begin`], for the Reply that `next` finds to be the next one. It is called under
    /// the lock, so that of several who do this each finds another one.
    ///
    /// # Errors
    ///
    /// As for [`Self::begin`].
    pub(crate) fn begin_next<H: EndpointEvents>(
        &self,
        next: impl FnOnce() -> Option<Outbound>,
        endpoint: &Endpoint<H>,
    ) -> Result<Option<Sending<'_>>, Refusal> {
        let state = self.state.lock();
        match next() {
            Some(message) => self.begin_locked(state, endpoint, message).map(Some),
            None => Ok(None),
        }
    }

    /// See [`Self::begin`].
    #[inline]
    fn begin_locked<'a, H: EndpointEvents>(
        &'a self,
        mut state: Guard<'a, State, SpinLockBackend>,
        endpoint: &Endpoint<H>,
        message: Outbound,
    ) -> Result<Sending<'a>, Refusal> {
        if self.rules().counts_messages {
            self.update_offer(&mut state, endpoint);
        }
        match state.connection.begin(&message) {
            Ok(credits) => Ok(Sending {
                state: Some(state),
                message,
                credits,
            }),
            Err(refusal) => {
                // `act` wakes a sender that has to wait.
                self.is_quiet.store(false, Relaxed);
                // The window is smaller than it was at times, and may be as large again.
                let is_possible = message.parts <= state.connection.max_parts();
                Err(match refusal {
                    Refusal::TooLong if is_possible => Refusal::Wait,
                    refusal => refusal,
                })
            }
        }
    }

    /// Returns whether [`Self::begin`] would succeed.
    pub(crate) fn admits(&self, message: &Outbound) -> bool {
        self.change().connection.admits(message)
    }

    /// Counts a Reply of Version One, which takes no credit.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if there were too few Calls for it.
    pub(crate) fn answered(&self) -> Result<(), Overrun> {
        self.state.lock().connection.answered()
    }

    /// Notes what a Reply of Version One grants. Returns how many Calls may be under way.
    pub(crate) fn granted(&self, credits: u32) -> u32 {
        self.state.lock().connection.granted(credits)
    }

    /// Begins anew to call the peer, see [`Connection::begin_calls`].
    pub(crate) fn begin_calls(&self) {
        self.change().connection.begin_calls();
    }

    /// Returns whether the peer takes Calls at all.
    pub(crate) fn takes_calls(&self) -> bool {
        self.state.lock().connection.takes_calls()
    }

    /// Has the peer told what this end wants now, where that can be told. [`Self::act`] sends it.
    pub(crate) fn wish(&self, wishes: &Wishes) {
        self.change().connection.wish(wishes);
    }

    /// Sets the values that this end wants the peer to have, where it can be asked for them.
    /// [`Self::act`] asks.
    pub(crate) fn request(&self, wanted: &Told) {
        if !self.rules().has_optional {
            return;
        }
        let mut state = self.change();
        state.connection.request(wanted);
        // A smaller size is obeyed at once.
        self.publish_thresholds(&state.connection);
    }

    /// Returns whether the peer can be told of Receives of `size` octets, and has not been.
    pub(crate) fn may_grow(&self, size: u32) -> bool {
        let state = self.state.lock();
        self.rules().has_optional && state.connection.session.exchange.may_grow(size)
    }

    /// Larger Receives take the places of those that are used up: has them used up, see
    /// [`Exchange::begin_growth`](crate::proto::session::exchange::Exchange::begin_growth).
    /// [`Self::act`] does it.
    pub(crate) fn begin_growth(&self, requests: u32) {
        let mut state = self.change();
        state.connection.session.exchange.begin_growth(requests);
    }

    /// Returns whether that is being done.
    pub(crate) fn is_growing(&self) -> bool {
        self.state.lock().connection.session.exchange.is_growing()
    }

    /// Returns whether requests are still sent for that.
    pub(crate) fn asks_for_growth(&self) -> bool {
        let state = self.state.lock();
        state.connection.session.exchange.asks_for_growth()
    }

    /// All Receives have this size now in octets. [`Self::act`] tells the peer.
    pub(crate) fn end_growth(&self, size: u32) {
        self.change().connection.session.exchange.end_growth(size);
    }

    /// Has answers to requests wait, or not any more, see
    /// [`Exchange::hold_answers`](crate::proto::session::exchange::Exchange::hold_answers).
    /// [`Self::act`] sends them.
    pub(crate) fn hold_answers(&self, is_held: bool) {
        let mut state = self.change();
        state.connection.session.exchange.hold_answers(is_held);
    }

    /// Returns whether a Call of the peer is answered with an error, see
    /// [`Connection::refuses_call`].
    pub(crate) fn refuses_call(&self, has_chunks: bool) -> bool {
        self.state.lock().connection.refuses_call(has_chunks)
    }

    /// Notes an error about a Call. Returns whether to send the Call in another form.
    pub(crate) fn learn(&self, error: &RdmaError, asked: &Asked) -> bool {
        self.change().connection.learn(error, asked)
    }

    /// Forgets what the peer has refused.
    pub(crate) fn forget_refusals(&self) {
        self.change().connection.forget_refusals();
    }

    /// Reports an error about a Call, if there are errors for that. [`Self::act`] sends it.
    ///
    /// # Errors
    ///
    /// See [`Session::report`].
    pub(crate) fn report(&self, xid: u32, error: RdmaError) -> Result<(), Refusal> {
        if self.rules().has_properties {
            self.change().connection.session.report(xid, error)
        } else {
            Ok(())
        }
    }

    /// Returns what was agreed on.
    pub(crate) fn agreement(&self) -> Agreement {
        self.state.lock().connection.agreement()
    }

    /// Returns what the peer has granted in Version One.
    pub(crate) fn call_limit(&self) -> u32 {
        self.state.lock().connection.grant().limit()
    }
}

/// Reports an OPTIONAL message with the properties of its sender.
fn trace_optional(number: Number, xid: u32, name: &CStr, values: &Values, sent: bool) {
    trace::optional(
        number,
        xid,
        name,
        values.receive_size,
        values.invalidation,
        values.reverse,
        sent,
    );
}

/// Posts a message of the session's own. Returns its place in the Send Queue; [`None`] if it could
/// not be posted, for want of room or because the connection is at its end, of which others know.
fn send_control<H: EndpointEvents>(endpoint: &Arc<Endpoint<H>>, control: &Control) -> Option<u64> {
    let mut buffer = endpoint.control_buffer()?;
    let len = control.encode(&mut buffer).ok()?;
    endpoint.post_signaled(buffer, len).ok()
}

/// A message that may be sent and is about to be posted. Dropped without [`Self::commit`], it was
/// not.
pub(crate) struct Sending<'a> {
    /// Keeps everything else from being sent that is counted.
    state: Option<Guard<'a, State, SpinLockBackend>>,
    /// The message.
    message: Outbound,
    /// The credit value for it, if it does not have that yet.
    credits: Option<u32>,
}

impl Sending<'_> {
    /// Returns the credit value for the message, if it does not have that yet.
    pub(crate) fn credits(&self) -> Option<u32> {
        self.credits
    }

    /// Returns whether a Reply may invalidate, if it was meant to, where that may change at any
    /// time.
    pub(crate) fn may_invalidate(&self) -> bool {
        let state = self.state.as_ref();
        state.is_none_or(|state| state.connection.may_invalidate())
    }

    /// Counts the message, which was posted.
    pub(crate) fn commit(self) {
        if let Some(mut state) = self.state {
            state.connection.commit(&self.message);
        }
    }
}
