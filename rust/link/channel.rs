// SPDX-License-Identifier: GPL-2.0

//! The session of a connection that may speak Version Two, and the order of its messages.
//!
//! [`crate::proto::session`] decides what may be sent and when, what a received message is, and what answers it. It
//! does no I/O. A [`Channel`] puts it between the paths of a message: what arrives is shown to it first, what is
//! to be sent is admitted by it last.
//!
//! # Who owns what, and what ends it
//!
//! There is one channel for each connection that may speak Version Two, made with the connection and never used for
//! another one. On a client the [`Link`](super::Link) has it. On a server the connection has it, and the link for
//! Calls to the client, which uses the same connection, has a second reference. A connection that speaks nothing but
//! Version One has none, and its messages take the path that they always took.
//!
//! The session is under the channel's spinlock, and so is the posting of everything that it counts: what it hands out
//! has to be posted in that order. So the endpoint's locks are taken inside this lock, and the lock of a Call
//! around it. A Send buffer that could not be posted is given back inside it; hence whoever is told of that
//! (`EndpointEvents::resources_back`) must not ask the channel anything.
//!
//! # Credits, and the two ways to count them
//!
//! Version One counts Calls without Reply: the congestion window of SUNRPC obeys the grant of the peer, and the
//! Responder gives credits of its own away. Version Two counts messages, of all kinds and for both directions
//! together. SUNRPC's window is opened as wide as the connection was made for, and who finds no credit is told to
//! wait as if the Send Queue were full: a Requester by `wait_for_buffer_space`, a server's Reply in its backlog.
//!
//! How much the peer may send follows from the Receives: so many were posted for it ([`Channel::set_capacity`]), and
//! so many of those hold messages that are still in use (`Endpoint::held`). What is left but one is on offer. The
//! one is what [`crate::proto::window`] wants to have beyond the promises; it is told if that is held, too. While there are
//! to be fewer Receives than there were, those that are kept for former promises count for that and for nothing else.
//!
//! A server's threads may be slow, and Calls in parts wait for them in memory ([`super::assembly`]). When much of that is
//! taken a client is offered [`NARROW`] credits, as Calls are answered and their credits renewed: it can go on, since a Call
//! takes one message if it has chunks. What was promised before may still come; with 64 credits for each of 128 clients that
//! is no more than what is left. Who has memory to give back does not know who waits for it, so a connection that is narrow
//! is looked at every [`PATIENCE`]; and whenever something arrives or is sent. The other direction is never narrowed, for a
//! Reply that was to come in parts has no other form; there a client knows what it has asked for.
//!
//! # Host authentication
//!
//! Where it is on ([`super::auth`]), the connection is not *settled* before the verdict about the peer is known: nobody
//! sends, RPC messages of the peer are of no use ([`Channel::is_settled`]), and a client waits. The CONNPROP messages of
//! our own are then sent by [`Channel::act`] as credits and Send buffers allow. A peer that is refused is told so, if it
//! is a client, and the connection ends.
//!
//! # Time
//!
//! There is no timer here. While the peer is in the middle of a sequence ([`Channel::is_in_sequence`]), when somebody
//! has been told to wait for a credit, and from the beginning where the peer has to authenticate itself
//! ([`Channel::awaits_proof`]), whoever has the channel calls [`Channel::look`] every [`PATIENCE`]. A sequence that
//! has not gone on in between ends the connection; so do credits that have not come after [`STARVED_LOOKS`] of them, and
//! a proof that has not after [`PROOF_LOOKS`].
//!
//! A client that need not prove who it is may be silent for as long as it likes, as in Version One: what it costs is what
//! any connection without a Call costs, and SUNRPC ends such ones when they are old, or too many.

use crate::kext::completion::Completion;
use crate::kext::time::HZ;
use crate::link::agreement::Agreement;
use crate::link::assembly::{self, Assembly, Share, Whole, MAX_WHOLE};
use crate::link::auth::{self, Auth, Next, Speech};
use crate::observe::trace::{self, Number};
use crate::proto::auth::{is_refusal, Verdict, Why};
use crate::proto::chunk::Limits;
use crate::proto::continuation::Placed;
use crate::proto::message::Version;
use crate::proto::props::{Properties, Reverse, Told};
use crate::proto::session::{
    Action, Checkpoint, Config, Control, Dialect, Event, Extent, Outbound, Reason, Refusal, Role,
    Session, Timer,
};
use crate::proto::v2::{Direction, Header, RdmaError};
use crate::proto::window::{self, most_parts};
use crate::verbs::endpoint::{Endpoint, EndpointEvents};
use kernel::prelude::*;
use kernel::sync::atomic::{Acquire, Atomic, Relaxed, Release};
use kernel::sync::lock::spinlock::SpinLockBackend;
use kernel::sync::lock::Guard;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// The largest messages that an end which may speak Version Two sends and receives, in octets, if the administrator does
/// not want larger ones. A READ or WRITE of 8 KiB is one such message, which is less work for both ends than a chunk. It is
/// no less than what a peer may send before it has been told anything (4.2, 5.2.2 of the draft).
pub(crate) const MESSAGE_SIZE: u32 = 12 << 10;

const _: () = assert!(MESSAGE_SIZE >= Properties::DEFAULT.receive_size);

/// How long a sequence of the peer's may stand still, in jiffies; at most twice as long in fact. Its parts are sent
/// one after the other, so the connection itself is given up sooner than this.
pub(crate) const PATIENCE: usize = 10 * HZ;

/// So many looks find the same credits, and none of them left or too few, before the connection is ended: as long as
/// SUNRPC waits for the Reply to a Call. Who waits for a credit has sent nothing, so SUNRPC has no timer for him.
const STARVED_LOOKS: u32 = 6;

/// So many looks find a client that has not proved who it is, though it has to, before the connection is ended. It may have
/// sent nothing at all, or a little every now and then. A client of ours gives up after five seconds itself.
const PROOF_LOOKS: u32 = 3;

/// How many messages a client may have on their way to a server with little memory left for those in parts: too few for any.
const NARROW: u32 = 1;

/// What the two ends of a connection have to know.
pub(crate) struct Parameters {
    /// By what number trace events name the connection.
    pub(crate) number: Number,
    /// Which end this is.
    pub(crate) role: Role,
    /// What this end can do.
    pub(crate) own: Properties,
    /// How many Receives were posted for the peer's messages.
    pub(crate) capacity: u32,
    /// The credit value of errors in Version One.
    pub(crate) credits_in_one: u32,
    /// How many Read chunks a Call may have.
    pub(crate) read_chunks: u32,
    /// How many Write chunks a Call may have.
    pub(crate) write_chunks: u32,
    /// Whether the peer is to authenticate itself.
    pub(crate) auth: auth::Parameters,
}

/// What the lock protects.
struct State {
    /// The session.
    session: Session,
    /// How many of the session's own messages have been posted and are not known to be sent.
    in_transit: u32,
    /// Where the latest of them is in the Send Queue.
    latest: u64,
    /// How far the peer's sequence had come at the last look.
    seen: Option<u64>,
    /// How many looks have found that what waits may not be sent, and up to which message something might have been.
    starved: (u32, u32),
    /// Whether a look has found that the connection is to end.
    ending: bool,
    /// How many looks have found that the peer has not proved who it is.
    unproved: u32,
    /// Of our authentication, what is to be sent.
    speech: Option<Speech>,
    /// What is thought of the peer, when it is known.
    verdict: Option<Verdict>,
    /// Whether the connection has come so far that [`Channel::wait`] ends.
    decided: bool,
}

/// The session of one connection.
#[pin_data]
pub(crate) struct Channel {
    /// By what number trace events name the connection.
    number: Number,
    /// Which end this is.
    role: Role,
    /// Whether there is host authentication.
    authenticates: bool,
    /// Whether Version One is no choice, because there is no host authentication in it.
    only_two: bool,
    /// The authentication of the peer.
    #[pin]
    auth: Auth,
    /// Whether the peer may send and be sent RPC messages. Written under the lock, once.
    settled: Atomic<bool>,
    /// The session.
    #[pin]
    state: SpinLock<State>,
    /// Completed when it is known what is spoken, and when that will never be known.
    #[pin]
    decided: Completion,
    /// The RPC message that is coming in parts.
    #[pin]
    assembly: Assembly,
    /// What is spoken, as the number of the version; zero while it is not known. Written under the lock.
    version: Atomic<u32>,
    /// How many Receives there are to be for the peer's messages.
    capacity: Atomic<u32>,
    /// How many there are: no fewer.
    kept: Atomic<u32>,
    /// The most messages that we could send at a time so far. Written under the lock.
    widest: Atomic<u32>,
    /// The largest message that we send in Version Two, in octets. Written under the lock.
    send_size: Atomic<u32>,
    /// The largest message that the peer sends.
    receive_size: Atomic<u32>,
    /// The largest number of segments in the header of a Call of ours.
    segment_count: Atomic<u32>,
    /// The length of the largest segment in it.
    segment_size: Atomic<u32>,
    /// Whether the peer is in the middle of a sequence. Written under the lock.
    in_sequence: Atomic<bool>,
    /// Whether the peer is offered less than there are Receives for. Written under the lock.
    narrow: Atomic<bool>,
}

/// What whoever has the channel is to do.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub(crate) struct Outcome {
    /// Let those try again who were told to wait for a credit.
    pub(crate) wake: bool,
    /// End the connection.
    pub(crate) close: Option<Reason>,
    /// So many errors were sent.
    pub(crate) errors: u32,
    /// More is agreed on than before.
    pub(crate) agreed: bool,
}

/// What there is of an RPC message.
pub(crate) enum Collected {
    /// All of it: behind the header, or what was put together of it and the parts before.
    All(Option<Whole>),
    /// A part of it; there is more to come.
    Some,
    /// There is no room for it, and the connection ends.
    Refused,
}

/// What is known about a connection, for whoever shows it.
pub(crate) struct Snapshot {
    /// Messages that we have sent.
    pub(crate) sent: u32,
    /// Up to which message we may send.
    pub(crate) send_limit: u32,
    /// Messages that we have received.
    pub(crate) received: u32,
    /// How many more the peer may send as far as it knows; -1 if it has sent one more.
    pub(crate) receive_left: i32,
}

impl Channel {
    /// The channel of a new connection.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(parameters: &Parameters) -> Result<Arc<Self>> {
        // Asked once: an administrator may take the key away at any time.
        let on = parameters.auth.is_on();
        let low = match parameters.auth.wanted.is_required() {
            true => Version::Two,
            false => Version::One,
        };
        let config = Config {
            role: parameters.role,
            low: low.number(),
            high: Version::Two.number(),
            earlier: false,
            own: parameters.own,
            authenticate: on,
            receives: window::offer(parameters.capacity, 0).unwrap_or(0),
            credits_in_one: parameters.credits_in_one,
            limits: Limits::DEFAULT,
            read_chunks: parameters.read_chunks,
            write_chunks: parameters.write_chunks,
            max_assembly: MAX_WHOLE,
        };
        let session = Session::new(&config);
        let terms = session.terms();
        let settled = !on;
        let share = Share::new(parameters.role == Role::Client)?;
        let state = State {
            session,
            in_transit: 0,
            latest: 0,
            seen: None,
            starved: (0, 0),
            ending: false,
            unproved: 0,
            speech: None,
            verdict: None,
            decided: false,
        };
        let this = Arc::pin_init(
            pin_init!(Self {
                number: parameters.number,
                role: parameters.role,
                authenticates: on,
                only_two: parameters.auth.wanted.is_required(),
                auth <- Auth::new(parameters.role, &parameters.auth, on, share.clone()),
                settled: Atomic::new(settled),
                state <- new_spinlock!(state, "rpcrdma::Channel::state"),
                decided <- Completion::new(),
                assembly <- Assembly::new(share),
                version: Atomic::new(0),
                capacity: Atomic::new(parameters.capacity),
                kept: Atomic::new(parameters.capacity),
                widest: Atomic::new(1),
                send_size: Atomic::new(terms.send_size),
                receive_size: Atomic::new(terms.receive_size),
                segment_count: Atomic::new(terms.segment_count),
                segment_size: Atomic::new(terms.segment_size),
                in_sequence: Atomic::new(false),
                narrow: Atomic::new(false),
            }),
            GFP_KERNEL,
        )?;
        this.follow(this.auth.open());
        Ok(this)
    }

    /// Takes in what the authentication wants to be done. [`Self::act`] does it.
    fn follow(&self, next: Next) {
        let Next { speech, verdict } = next;
        let mut state = self.state.lock();
        // To a peer that is refused nothing else is said.
        let replace = speech.is_some() || matches!(verdict, Some(Verdict::Refuse(_)));
        let former = match replace {
            true => core::mem::replace(&mut state.speech, speech),
            false => None,
        };
        if let Some(verdict) = verdict {
            state.verdict = Some(verdict);
            if !matches!(verdict, Verdict::Refuse(_)) {
                self.settled.store(true, Release);
            }
        }
        drop(state);
        drop(former);
        if let Some(verdict) = verdict {
            trace::host_auth(self.number, verdict);
        }
    }

    /// The peer has told properties, or something of its authentication. Sleeps.
    pub(crate) fn told(&self, host_auth: Option<&[u8]>, last: bool) {
        if self.authenticates {
            if !self.settled.load(Relaxed) {
                self.follow(self.auth.receive(host_auth, last));
            }
        } else if self.role == Role::Client && host_auth.is_some_and(is_refusal) {
            // The server wants something that we do not have.
            self.settled.store(false, Release);
            self.follow(Next {
                speech: None,
                verdict: Some(Verdict::Refuse(Why::ByPeer)),
            });
        }
    }

    /// Whether an RPC message of the peer, that has arrived, is to be dealt with. If it is too early, the peer does not
    /// want to authenticate itself. Sleeps then.
    pub(crate) fn is_settled(&self) -> bool {
        if self.settled.load(Acquire) {
            return true;
        }
        self.follow(self.auth.skipped());
        self.settled.load(Acquire)
    }

    /// Whether the peer, a client, has to prove who it is, and has not yet: [`Self::look`] is to be called.
    pub(crate) fn awaits_proof(&self) -> bool {
        self.role == Role::Server && self.only_two && !self.settled.load(Relaxed)
    }

    /// Another look has found that the peer has not proved who it is. Refuses it if it has had its time. Sleeps.
    fn look_for_proof(&self) {
        let mut state = self.state.lock();
        state.unproved = state.unproved.saturating_add(1);
        let late = state.unproved >= PROOF_LOOKS;
        drop(state);
        if late {
            // If there is a verdict at this moment it stands: the exchange gives only one.
            self.follow(self.auth.skipped());
        }
    }

    /// Why the peer is refused, if it is: connecting to it again is no use.
    pub(crate) fn refusal(&self) -> Option<Why> {
        let state = self.state.lock();
        match state.verdict {
            Some(Verdict::Refuse(why)) => Some(why),
            _ => None,
        }
    }

    /// What has become of the authentication of the peer, for whoever shows it.
    pub(crate) fn authentication(&self) -> &'static str {
        let verdict = self.state.lock().verdict;
        match verdict {
            _ if !self.authenticates => "off",
            None => "pending",
            Some(Verdict::Accept) => "accepted",
            Some(Verdict::Ignore) => "none",
            Some(Verdict::Refuse(_)) => "refused",
        }
    }

    /// What is spoken, if that is known.
    pub(crate) fn version(&self) -> Option<Version> {
        match self.version.load(Acquire) {
            0 => None,
            1 => Some(Version::One),
            _ => Some(Version::Two),
        }
    }

    /// Whether Version Two is spoken.
    pub(crate) fn is_two(&self) -> bool {
        self.version() == Some(Version::Two)
    }

    /// The largest message that we send, header included, in octets.
    pub(crate) fn send_size(&self) -> u32 {
        self.send_size.load(Relaxed)
    }

    /// The largest message that the peer sends, header included, in octets.
    pub(crate) fn receive_size(&self) -> u32 {
        self.receive_size.load(Relaxed)
    }

    /// The largest number of segments in the header of a Call of ours.
    pub(crate) fn segment_count(&self) -> u32 {
        self.segment_count.load(Relaxed)
    }

    /// The length in octets of the largest segment in it.
    pub(crate) fn segment_size(&self) -> u32 {
        self.segment_size.load(Relaxed)
    }

    /// So many Receives are posted for the peer's messages now, and so many that were `withdrawn` are kept until
    /// [`Self::settle`] has found that they are not needed. Calls come one after the other.
    pub(crate) fn set_capacity(&self, receives: u32, withdrawn: u32) {
        self.capacity.store(receives, Relaxed);
        self.kept.store(receives.saturating_add(withdrawn), Relaxed);
    }

    /// Shows the session a message that has arrived. The message was counted before, see
    /// [`crate::verbs::endpoint::Received::count`]. [`Self::act`] is to be called when it has been dealt with.
    ///
    /// Messages of one connection come one after the other.
    pub(crate) fn receive<'a>(&self, bytes: &'a [u8]) -> Event<'a> {
        let mut state = self.state.lock();
        let event = state.session.handle_received(bytes);
        self.note(&state.session);
        let credits = state.session.credits();
        if credits > self.widest.load(Relaxed) {
            self.widest.store(credits, Relaxed);
        }
        // What was begun has to be ended; so has the connection, if it is to end.
        let in_sequence = state.session.peer_sequence().is_some() || state.session.is_closing();
        if in_sequence != self.in_sequence.load(Relaxed) {
            self.in_sequence.store(in_sequence, Relaxed);
        }
        drop(state);
        if let Event::Failed { xid, error } = &event {
            trace::error(self.number, *xid, *error, false);
        }
        event
    }

    /// Whether the peer is in the middle of a sequence of messages, so that [`Self::look`] is to be called.
    pub(crate) fn is_in_sequence(&self) -> bool {
        self.in_sequence.load(Relaxed)
    }

    /// Looks whether the peer's sequence has gone on since the last look, and whether credits have come: some at all, or,
    /// if something `waits` for them for certain, more than were too few; and whether a peer that has to has proved who it
    /// is. Returns whether to look again. [`Self::act`] says what to do, if anything. Sleeps.
    pub(crate) fn look(&self, waits: bool) -> bool {
        let unproved = self.awaits_proof();
        if unproved {
            self.look_for_proof();
        }
        self.look_on(waits) || unproved
    }

    /// As [`Self::look`], but for the proof.
    fn look_on(&self, waits: bool) -> bool {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        if state.session.is_closing() {
            // What was said last, a refusal perhaps, has the time between two looks to arrive.
            if !core::mem::replace(&mut state.ending, true) {
                return true;
            }
            state.session.handle_timeout(Timer::Close);
            return false;
        }
        let now = state.session.peer_sequence();
        let before = core::mem::replace(&mut state.seen, now);
        if now.is_some() && now == before {
            state.session.handle_timeout(Timer::Sequence);
            return state.session.is_closing();
        }
        let starved = state.session.is_starved() || (waits && state.session.is_short());
        if !starved {
            state.starved = (0, 0);
            return now.is_some();
        }
        let limit = state.session.windows().0.limit();
        state.starved = match state.starved {
            (looks, last) if last == limit => (looks.saturating_add(1), limit),
            _ => (1, limit),
        };
        if state.starved.0 > STARVED_LOOKS {
            state.session.handle_timeout(Timer::Credits);
            return state.session.is_closing();
        }
        true
    }

    /// Takes in as much of an RPC message as a received message holds. Sleeps.
    pub(crate) fn collect(&self, header: &Header<'_>, extent: Extent) -> Collected {
        let (placed, last) = match extent {
            Extent::Whole => {
                // What had begun to come, if there was any, has been given up.
                drop(self.assembly.take());
                return Collected::All(None);
            }
            Extent::First(placed) => {
                if self.assembly.begin(placed.total).is_err() {
                    // An error would end its RPC, with which nothing is wrong. On another connection it is sent again.
                    self.state.lock().session.close();
                    return Collected::Refused;
                }
                (placed, false)
            }
            Extent::Part(placed) => (placed, false),
            Extent::Last(placed) => (placed, true),
        };
        let Placed { offset, .. } = placed;
        if !self.assembly.add(offset, header.payload()) {
            // Not possible: the session has seen to it.
            self.state.lock().session.close();
            return Collected::Refused;
        }
        match (last, self.assembly.take_if(last)) {
            (false, _) => Collected::Some,
            (true, whole) => Collected::All(whole),
        }
    }

    /// The parts that have come are of no use.
    pub(crate) fn abandon(&self) {
        drop(self.assembly.take());
    }

    /// In how many parts a message may be sent now: one or more. [`Self::begin`] may find another answer.
    pub(crate) fn parts(&self) -> u32 {
        self.state.lock().session.credits().max(1)
    }

    /// In how many parts a message may be sent, if not now then later: the peer renews credits when half of its window
    /// is used, so more than that might wait for ever. The window is the largest that it ever had.
    pub(crate) fn max_parts(&self) -> u32 {
        most_parts(self.widest.load(Relaxed))
    }

    /// Makes known what is spoken.
    fn note(&self, session: &Session) {
        let version = match session.dialect() {
            Some(Dialect::One) => Version::One,
            Some(Dialect::Two) => Version::Two,
            Some(Dialect::Earlier) | None => return,
        };
        if self.version.load(Relaxed) != version.number() {
            self.version.store(version.number(), Release);
        }
    }

    /// Tells the session how many Receives there are for the peer's messages.
    fn update_offer<H: EndpointEvents>(&self, session: &mut Session, endpoint: &Endpoint<H>) {
        let held = endpoint.held();
        let all = window::offer(self.capacity.load(Relaxed), held).unwrap_or(0);
        let offer = offer(self.role, all);
        if self.narrow.load(Relaxed) != (offer < all) {
            self.narrow.store(offer < all, Relaxed);
        }
        let left = window::offer(self.kept.load(Relaxed), held);
        session.set_receives(left.map(|left| left.min(offer)));
    }

    /// Has Receives given back that were withdrawn: `settle` is told how many have to be kept for what the peer was promised,
    /// and for messages of its that are in use still, and says so by [`Self::set_capacity`]. It is promised no more from now on
    /// than that. Nothing is promised meanwhile, so `settle` must not sleep. Any context.
    pub(crate) fn settle<H: EndpointEvents>(
        &self,
        endpoint: &Endpoint<H>,
        settle: impl FnOnce(u32) -> u32,
    ) -> u32 {
        let mut state = self.state.lock();
        self.update_offer(&mut state.session, endpoint);
        let promised = state.session.windows().1.must_be_posted();
        // A message is counted as held before the session sees it, so none is in neither of them.
        settle(promised.saturating_add(endpoint.held()))
    }

    /// Whether the peer is offered little for want of memory, so that [`Self::act`] is to be called after [`PATIENCE`].
    pub(crate) fn is_narrow(&self) -> bool {
        self.narrow.load(Relaxed)
    }

    /// Does what the session wants: sends its own messages above all. To be called after everything that may have
    /// changed something: when a message was dealt with, when a Send has completed, when Receives were added.
    pub(crate) fn act<H: EndpointEvents>(&self, endpoint: &Arc<Endpoint<H>>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut state = self.state.lock();
        self.update_offer(&mut state.session, endpoint);
        if state.in_transit > 0 && endpoint.has_retired(state.latest) {
            for _ in 0..core::mem::take(&mut state.in_transit) {
                state.session.handle_sent();
            }
        }
        loop {
            if state.speech.is_none() && matches!(state.verdict, Some(Verdict::Refuse(_))) {
                state.session.close_unauthenticated();
            }
            // First, since it carries credits as well as a GRANT; and a client without authentication takes whatever comes
            // first for an acceptance.
            let spoken = self.speak(endpoint, &mut state);
            self.poll(endpoint, &mut state, &mut outcome);
            if !spoken {
                break;
            }
        }
        let known = match state.session.dialect() {
            Some(Dialect::Two) => self.settled.load(Relaxed),
            dialect => dialect.is_some(),
        };
        let decided = known || outcome.close.is_some();
        let news = decided && !core::mem::replace(&mut state.decided, decided);
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
        outcome: &mut Outcome,
    ) {
        while !state.session.is_quiet() {
            let before = state.session;
            let Some(action) = state.session.poll_action(false) else {
                break;
            };
            match action {
                Action::Send(control) => match send_control(endpoint, &control) {
                    Some(sequence) => {
                        if let Control::Error(header) = control {
                            trace::error(self.number, header.xid, header.error, true);
                            outcome.errors = outcome.errors.saturating_add(1);
                        }
                        state.latest = sequence;
                        state.in_transit = state.in_transit.saturating_add(1);
                    }
                    None => {
                        // It is asked for again when a Send has completed: one of these has the buffer that is kept
                        // for what the session sends, or the queue is full. On an end that keeps none those that wait
                        // may have all Send buffers, and nothing else be under way.
                        state.session = before;
                        outcome.wake |= state.session.poll_wake();
                        break;
                    }
                },
                Action::Connected(dialect) => {
                    self.note(&state.session);
                    outcome.agreed = true;
                    if dialect != Dialect::Two && state.verdict.is_none() {
                        // There is no host authentication elsewhere, and it is not required.
                        state.speech = None;
                        state.verdict = Some(Verdict::Ignore);
                        self.settled.store(true, Release);
                        if self.authenticates {
                            trace::host_auth(self.number, Verdict::Ignore);
                        }
                    }
                }
                Action::Agreed(terms) => {
                    self.send_size.store(terms.send_size, Relaxed);
                    self.receive_size.store(terms.receive_size, Relaxed);
                    self.segment_count.store(terms.segment_count, Relaxed);
                    self.segment_size.store(terms.segment_size, Relaxed);
                    outcome.agreed = true;
                }
                Action::Wake => outcome.wake = true,
                Action::Close(reason) => {
                    trace::closing(self.number, reason);
                    if reason == Reason::NoCommonVersion && self.only_two && state.verdict.is_none()
                    {
                        let verdict = Verdict::Refuse(Why::Version);
                        state.verdict = Some(verdict);
                        trace::host_auth(self.number, verdict);
                    }
                    outcome.close = Some(reason);
                }
            }
        }
    }

    /// Sends one CONNPROP message of our own, if there is one to be sent. Returns whether anything has changed. What can't
    /// be sent now is sent when there are credits, or a Send has completed.
    fn speak<H: EndpointEvents>(&self, endpoint: &Arc<Endpoint<H>>, state: &mut State) -> bool {
        if !self.authenticates {
            return false;
        }
        let pending = state.verdict.is_none() && state.session.dialect() == Some(Dialect::Two);
        if state.speech.is_none() && pending && !state.session.has_told() {
            // The client can't go on before it has an answer (section 4.3), and has not said all.
            state.speech = Some(Speech::greeting());
        }
        let Some(speech) = state.speech.as_mut() else {
            return false;
        };
        let posted = say(&mut state.session, speech, endpoint);
        match posted {
            Some((sequence, more)) => {
                state.latest = sequence;
                state.in_transit = state.in_transit.saturating_add(1);
                if !more {
                    state.speech = None;
                }
                true
            }
            // A peer that is refused is told so at once, or not at all.
            None if matches!(state.verdict, Some(Verdict::Refuse(_))) => {
                state.speech = None;
                true
            }
            None => false,
        }
    }

    /// Waits until it is known what is spoken and what is thought of the peer, `timeout` jiffies at most. Sleeps.
    /// Returns what is spoken, unless the peer is refused or that is not known yet.
    pub(crate) fn wait(&self, timeout: usize) -> Option<Version> {
        if !self.decided.wait_timeout(timeout) {
            self.state
                .lock()
                .session
                .handle_timeout(Timer::FirstMessage);
        }
        let version = self.version();
        version.filter(|version| *version != Version::Two || self.settled.load(Acquire))
    }

    /// Ends [`Self::wait`]: the connection is lost, or not wanted any more. Any context.
    pub(crate) fn interrupt(&self) {
        self.decided.complete();
    }

    /// Counts a message of `direction`, with chunks or without, that is ready to be posted in so many parts. Nothing else is
    /// sent on the connection before what is returned is dropped. Must not sleep meanwhile.
    ///
    /// # Errors
    ///
    /// See [`Refusal`]. Who has to wait is told so by [`Outcome::wake`], which may have come already; so whatever
    /// is done to wait, [`Self::admits`] is to be asked afterwards.
    pub(crate) fn begin<H: EndpointEvents>(
        &self,
        endpoint: &Endpoint<H>,
        direction: Direction,
        parts: u32,
        chunks: bool,
    ) -> Result<Sending<'_>, Refusal> {
        let mut state = self.state.lock();
        self.update_offer(&mut state.session, endpoint);
        let message = Outbound {
            direction,
            parts,
            chunks,
        };
        let (credits, before) = state.session.begin_send(&message)?;
        Ok(Sending {
            state,
            before,
            credits,
        })
    }

    /// Whether [`Self::begin`] would succeed.
    pub(crate) fn admits(&self, direction: Direction, parts: u32, chunks: bool) -> bool {
        self.state.lock().session.admits(&Outbound {
            direction,
            parts,
            chunks,
        })
    }

    /// How much of reverse-direction operation is possible.
    pub(crate) fn reverse(&self) -> Reverse {
        self.state.lock().session.reverse()
    }

    /// Sets how much of reverse-direction operation this end, a client, can do, as the code of a level. Before anything is sent.
    pub(crate) fn set_reverse(&self, code: u32) {
        self.state.lock().session.set_reverse(code);
    }

    /// Reports an error about a Call. It is sent by [`Self::act`].
    ///
    /// # Errors
    ///
    /// See [`Session::report`].
    pub(crate) fn report(&self, xid: u32, error: RdmaError) -> Result<(), Refusal> {
        self.state.lock().session.report(xid, error)
    }

    /// What was agreed on, if Version Two is spoken.
    pub(crate) fn agreement(&self) -> Option<Agreement> {
        if !self.is_two() {
            return None;
        }
        let state = self.state.lock();
        let (_, incoming) = state.session.windows();
        Some(Agreement {
            dialect: Dialect::Two,
            terms: state.session.terms(),
            reverse: state.session.reverse(),
            peer: Some(state.session.peer_properties()),
            send_window: state.session.credits(),
            receive_window: u32::try_from(incoming.remaining()).unwrap_or(0),
        })
    }

    /// What is known about the connection.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state.lock();
        let (outgoing, incoming) = state.session.windows();
        Snapshot {
            sent: outgoing.sent(),
            send_limit: outgoing.limit(),
            received: incoming.received(),
            receive_left: incoming.remaining(),
        }
    }
}

/// How many messages the peer of an end may have on their way, if there are Receives for so many.
fn offer(role: Role, receives: u32) -> u32 {
    match role {
        Role::Server if assembly::is_crowded() => receives.min(NARROW),
        Role::Server | Role::Client => receives,
    }
}

/// Posts a message of the session's own. Returns its place in the Send Queue; [`None`] if it could not be posted, for
/// want of room or because the connection is at its end, of which others know.
fn send_control<H: EndpointEvents>(endpoint: &Arc<Endpoint<H>>, control: &Control) -> Option<u64> {
    let mut buffer = endpoint.control_buffer()?;
    let len = control.encode(&mut buffer).ok()?;
    endpoint.post_signaled(buffer, len).ok()
}

/// Posts the next CONNPROP message of what is to be said. Returns its place in the Send Queue, and whether there is another
/// one to be sent.
fn say<H: EndpointEvents>(
    session: &mut Session,
    speech: &mut Speech,
    endpoint: &Arc<Endpoint<H>>,
) -> Option<(u64, bool)> {
    let (own, limit) = (*session.own(), session.max_properties());
    let mut buffer = endpoint.control_buffer()?;
    let piece = speech.saying.next(buffer.len().min(limit as usize))?;
    let material = speech.bytes.get(piece.start..piece.end)?;
    let told = Told {
        host_auth: (!material.is_empty()).then_some(material),
        ..match piece.properties {
            true => Told::all(&own),
            false => Told::NOTHING,
        }
    };
    let before = *session;
    let message = session.send_properties(told, piece.last)?;
    let posted = message
        .encode(&mut buffer)
        .ok()
        .and_then(|len| endpoint.post_signaled(buffer, len).ok());
    match posted {
        Some(sequence) => Some((sequence, speech.saying.sent(&piece))),
        None => {
            *session = before;
            None
        }
    }
}

/// A message that has been counted and is about to be posted.
pub(crate) struct Sending<'a> {
    /// Keeps everything else from being sent.
    state: Guard<'a, State, SpinLockBackend>,
    /// What it was like before.
    before: Checkpoint,
    /// The credit value of the message.
    credits: u32,
}

impl Sending<'_> {
    /// The credit value of the message.
    pub(crate) fn credits(&self) -> u32 {
        self.credits
    }

    /// The message could not be posted: it was not sent.
    pub(crate) fn undo(mut self) {
        self.state.session.take_back(self.before);
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_link_channel)]
mod tests {
    use super::*;

    /// With half of the memory for messages in parts taken, clients can send no more of them; but they can go on.
    #[test]
    fn clients_have_one_credit_while_memory_is_scarce() -> Result {
        let share = Share::new(false)?;
        let mut kept = KVec::new();
        while !assembly::is_crowded() {
            assert_eq!(offer(Role::Server, 64), 64);
            kept.push(Whole::new(&share, MAX_WHOLE as usize)?, GFP_KERNEL)?;
        }
        assert_eq!(offer(Role::Server, 64), 1);
        assert_eq!(offer(Role::Server, 0), 0);
        assert_eq!(offer(Role::Client, 64), 64);
        drop(kept);
        assert_eq!(offer(Role::Server, 64), 64);
        Ok(())
    }
}
