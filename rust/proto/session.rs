// SPDX-License-Identifier: GPL-2.0

//! One connection's protocol state (draft-ietf-nfsv4-rpcrdma-version-two-07).
//!
//! A [`Session`] does no I/O. The owner of the connection tells it what happens and does what it
//! says:
//!
//! - [`Session::handle_received`] for each Receive that completes, in their order. It returns what
//!   the message is to the owner.
//! - [`Session::prepare_send`] before RPC messages are posted, which returns their credit value,
//!   and [`Session::commit_send`] when they were.
//! - [`Session::poll_action`] after each of these and after anything else that changes the session,
//!   until it returns nothing, and [`Session::commit`] when a message was posted that it wanted.
//! - [`Session::handle_sent`] when the Send of a message that `poll_action` or
//!   `prepare_properties` handed out completes.
//! - [`Session::handle_timeout`] when the owner has waited long enough. There is no clock here.
//!
//! What is handed out must be posted in the order in which it was, since everything counts by that
//! order. The owner serializes all calls. What can't be posted is not committed, and has changed
//! nothing.
//!
//! A session negotiates the version, exchanges the transport properties, counts credits both ways,
//! decides which message may come next, and answers what is wrong according to one table
//! ([`answer`]). It knows nothing of RPCs: which transaction IDs are in use is known to the owner,
//! which matches errors and Replies against its own unanswered Calls only, since both directions of
//! a connection may use the same ID at the same time (3.1.5.4).

pub(crate) mod answer;
pub(crate) mod exchange;
pub(crate) mod memory;
mod negotiate;
mod receive;
mod role;
mod send;
#[cfg(any(test, rpcrdma_kunit))]
pub(super) mod testing;

pub(crate) use self::role::Role;

use self::exchange::Exchange;
use super::{
    chunk::Limits,
    continuation::{
        Assembly,
        Placed, //
    },
    message::{
        Direction,
        ErrorHeader,
        Header,
        RdmaError,
        Version, //
    },
    props::{
        AgreedTerms,
        Properties,
        ReverseLevel, //
    },
    v2::{
        ConnProp,
        GrantHeader, //
    },
    v2_2016::{
        option,
        props::{
            self,
            Values, //
        }, //
    },
    window::{
        self,
        ReceiveWindow,
        SendWindow, //
    }, //
};
use core::ffi::CStr;

/// The most errors that wait for a credit. A peer that makes more of them is disconnected (7.4).
const MAX_ERRORS: usize = 8;

/// The most messages that are put up with although nothing counts them. Of Version Two on a
/// connection that speaks Version One: a client that has made a mistake sends few. Of Version One
/// while the connection ends, where nobody answers them: a client sends what it was granted.
const MAX_STRANGERS: u32 = 32;

/// The configuration of an end, which a session needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Which end this is.
    pub(crate) role: Role,
    /// The lowest version that may be spoken: 1 or 2.
    pub(crate) low: u32,
    /// The highest version that may be spoken: 1 or 2.
    pub(crate) high: u32,
    /// The properties of an end that speaks the earlier protocol: a client offers that and no
    /// other, a server speaks it with a client that does. It has no host authentication.
    pub(crate) earlier: Option<Values>,
    /// The properties of this end, which are told to the peer.
    pub(crate) own: Properties,
    /// Set if the owner sends its own CONNPROP messages, with host authentication material.
    pub(crate) authenticate: bool,
    /// The number of ordinary messages on their way to us. One more Receive than that is posted.
    pub(crate) receives: u32,
    /// The credit value of answers in Version One.
    pub(crate) credits_in_one: u32,
    /// The limits of a message's header.
    pub(crate) limits: Limits,
    /// The most Read chunks of a Call, apart from its Call chunk.
    pub(crate) read_chunks: u32,
    /// The most Write chunks of a Call.
    pub(crate) write_chunks: u32,
    /// The longest RPC message that may come in parts, in octets.
    pub(crate) max_assembly: u32,
}

/// The progress of finding the protocol of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A client has not sent anything; a server has not received anything that it understands.
    Opening,
    /// A client has made its offer and waits for the answer.
    Offered,
    /// It is known.
    Speaking(Version),
    /// The connection is over.
    Closed,
}

/// The progress of one end in telling its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// Nothing has been told.
    Nothing,
    /// The last message in that direction was a CONNPROP_MIDDLE, so another CONNPROP follows.
    Begun,
    /// The CONNPROP_FINAL is through.
    Done,
}

/// Why a connection must be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The peer has not said anything in time.
    Silent,
    /// The peer's first message is neither an acceptance nor a refusal that leaves another version.
    NoCommonVersion,
    /// The first message is of no known dialect.
    UnknownDialect,
    /// The peer has sent more than its credits allow.
    Overrun,
    /// The peer goes on in a version that is not spoken (7.1.2).
    OtherVersion,
    /// The peer has sent a Reply or an error that is not one. It cannot be answered, as the peer
    /// could take the answer for one to a Call of its own.
    BadReply,
    /// The peer has reported that it does not understand what we send.
    Refused,
    /// There are errors to be reported and no credits for it (7.4).
    TooManyErrors,
    /// The peer has begun something and does not go on.
    Stalled,
    /// The peer does not let us send what we have to.
    Starved,
    /// The peer was not accepted (5.2.6).
    NotAuthenticated,
    /// The owner wants it.
    Owner,
}

impl Reason {
    /// Returns whether the peer must be told first: by an error, or by the end of an exchange. A
    /// peer that has broken the rules is not waited for. Perhaps it takes no message at all, and
    /// only wants to be let go on.
    const fn is_told(self) -> bool {
        match self {
            Self::NoCommonVersion
            | Self::UnknownDialect
            | Self::Refused
            | Self::NotAuthenticated
            | Self::Owner => true,
            Self::Silent
            | Self::Overrun
            | Self::OtherVersion
            | Self::BadReply
            | Self::TooManyErrors
            | Self::Stalled
            | Self::Starved => false,
        }
    }
}

/// The extent of an RPC message in a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it, or it is in a chunk.
    Whole,
    /// The first part.
    First(Placed),
    /// A part in between.
    Part(Placed),
    /// The last part.
    Last(Placed),
}

/// The meaning of a received message for the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// Nothing. There may be actions.
    Nothing,
    /// A Call or a Reply, or a part of it.
    Message {
        /// The message. Of a Reply the transaction ID may be unknown.
        header: Header<'a>,
        /// The extent of it in this message.
        extent: Extent,
    },
    /// The parts of this RPC message that have come are of no use any more.
    Abandoned {
        /// The direction: Call or Reply.
        direction: Direction,
        /// Its transaction ID.
        xid: u32,
    },
    /// The peer reports an error about a Call of ours, if we have one with that transaction ID. It
    /// ends the RPC.
    Failed {
        /// The transaction ID of the Call.
        xid: u32,
        /// The error.
        error: RdmaError,
    },
    /// A Reply or an error that is not one, for which the connection ends ([`Reason::BadReply`]).
    /// What has come of an RPC message in parts is of no use any more.
    Spoilt {
        /// The transaction ID that it has. Perhaps it is that of a Call of ours, which would be
        /// answered like this again.
        xid: u32,
    },
    /// The peer tells properties, which are taken over.
    Properties {
        /// Host authentication material.
        host_auth: Option<&'a [u8]>,
        /// Set if these are the last ones.
        last: bool,
    },
    /// The server does not speak Version Two. One Call may be sent in Version One.
    Fallback {
        /// The credit value of its message. It is no window, and grants nothing in Version One
        /// either, being no answer to a Call.
        credits: u32,
    },
    /// An OPTIONAL message, which is dealt with.
    Optional {
        /// Its transaction ID.
        xid: u32,
        /// The name of its operation.
        name: &'static CStr,
        /// The credits that it grants, as a Reply does.
        credits: Option<u32>,
    },
    /// A Reply in a message that is not known. If it is one to a Call of ours, the RPC ends.
    Unreadable {
        /// The transaction ID.
        xid: u32,
    },
    /// A message of a version that counts Calls, which is not decoded here.
    Foreign(Version),
}

/// A message that the session wants to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Our properties.
    Properties(ConnProp<'static>),
    /// Credits.
    Grant(GrantHeader),
    /// An error.
    Error(ErrorHeader),
    /// A message of the earlier protocol. Its credit value is for the owner to set.
    Optional(option::OptionalMessage),
}

impl Control {
    /// Writes the message to the front of `buf` and returns its size.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> super::error::Result<usize> {
        match self {
            Self::Properties(message) => message.encode(buf),
            Self::Grant(message) => message.encode(buf),
            // Zero is a limit like others.
            Self::Error(message) => message.encode(Version::Two, buf),
            Self::Optional(message) => message.encode(buf),
        }
    }
}

/// The next action of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send a message. It is counted already.
    Send(Control),
    /// The version is known, and RPC messages may be sent.
    Connected(Version),
    /// The peer's properties are known and in force.
    Agreed(AgreedTerms),
    /// There are new credits: those that were told to wait may try again.
    Wake,
    /// End the connection. There will be no other action.
    Close(Reason),
}

/// An RPC message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outbound {
    /// The direction: Call or Reply.
    pub(crate) direction: Direction,
    /// In how many parts, which are posted together.
    pub(crate) parts: u32,
    /// Set if it has chunks.
    pub(crate) chunks: bool,
}

/// Why an RPC message must not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There are no credits for all of it. [`Action::Wake`] will come, unless the peer makes its
    /// window smaller meanwhile. So an owner that has nothing else on its way does not send a
    /// message in parts later, but with chunks now.
    Wait,
    /// There are no credits for all of it, and it has more parts than [`Session::max_parts`]. It
    /// can be sent with chunks, or not at all.
    TooLong,
    /// The peer does not support such messages in the reverse direction (4.6.3, 5.2.5).
    Unsupported,
    /// The connection does not speak Version Two, or not yet.
    NotConnected,
}

/// The event for which the owner has waited in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// The peer's first message.
    FirstMessage,
    /// The next message of a sequence, see [`Session::is_peer_in_sequence`].
    Sequence,
    /// Credits, see [`Session::is_starved`] and [`Session::is_short`].
    Credits,
    /// The answer to a request, see [`Exchange::is_asked`].
    Silence,
    /// The Sends of the last messages, see [`Session::is_closing`].
    Close,
}

/// One connection's protocol state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// The configuration of this end.
    config: Config,
    /// The progress of finding the protocol.
    stage: Stage,
    /// The window of messages that we may send.
    outgoing: SendWindow,
    /// The number of messages that could be sent when credits came last.
    renewed: u32,
    /// The window of messages that the peer may send.
    incoming: ReceiveWindow,
    /// Our progress in telling our properties.
    own: Telling,
    /// The peer's progress in telling its properties.
    peer: Telling,
    /// The number of CONNPROP messages that it took.
    peer_told: u32,
    /// The properties that the peer has told.
    peer_properties: Properties,
    /// The exchange of properties in the earlier protocol.
    pub(crate) exchange: Exchange,
    /// The RPC message that is coming in parts.
    assembly: Option<Assembly>,
    /// The number of messages that have come and that nothing counts, see [`MAX_STRANGERS`].
    strangers: u32,
    /// The direction and transaction ID of an RPC message whose parts are discarded (7.1.4).
    discard: Option<(Direction, u32)>,
    /// Errors to be sent, the oldest first.
    errors: [Option<Report>; MAX_ERRORS],
    /// Messages of the session's own, and CONNPROP messages of the owner's, the Sends of which have
    /// not completed.
    in_transit: u32,
    /// The end of the connection does not wait for them.
    hurried: bool,
    /// [`Action::Connected`] is due.
    tell_connected: bool,
    /// [`Action::Agreed`] is due.
    tell_agreed: bool,
    /// Somebody was told to wait.
    waiting: bool,
    /// More may be sent than when somebody was told to wait.
    news: bool,
    /// Set if the connection must end when what is in transit has been sent.
    closing: Option<Reason>,
}

/// An error to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Report {
    /// The transaction ID of the message that it is about.
    xid: u32,
    /// The version of that message.
    version: u32,
    /// The error.
    error: RdmaError,
}

impl Session {
    /// The state of a connection on which `count` messages were sent each way, but the version is
    /// not known.
    pub(crate) fn after(config: &Config, count: u32) -> Self {
        let only_one = config.role == Role::Client && config.high < super::v2::VERSION;
        Self {
            config: *config,
            stage: if only_one {
                Stage::Speaking(Version::One)
            } else {
                Stage::Opening
            },
            outgoing: match config.role {
                Role::Client => SendWindow::after(count).cautious(),
                Role::Server => SendWindow::after(count),
            },
            renewed: 1,
            incoming: match config.role {
                Role::Client => ReceiveWindow::after(count, config.receives),
                Role::Server => ReceiveWindow::after(count, config.receives).answering(),
            },
            own: Telling::Nothing,
            peer: Telling::Nothing,
            peer_told: 0,
            peer_properties: Properties::DEFAULT,
            exchange: Exchange::new(config.role, config.earlier.unwrap_or(props::DEFAULT)),
            assembly: None,
            discard: None,
            strangers: 0,
            errors: [None; MAX_ERRORS],
            in_transit: 0,
            hurried: false,
            tell_connected: only_one,
            tell_agreed: false,
            waiting: false,
            news: false,
            closing: None,
        }
    }

    /// Returns what is spoken, if that is known.
    pub(crate) const fn dialect(&self) -> Option<Version> {
        match self.stage {
            Stage::Speaking(dialect) => Some(dialect),
            Stage::Opening | Stage::Offered | Stage::Closed => None,
        }
    }

    /// Returns what both ends can do, as far as the peer has told: until its last CONNPROP message
    /// the defaults are in force.
    pub(crate) fn terms(&self) -> AgreedTerms {
        if self.dialect() == Some(Version::Earlier) {
            return self.terms_in_earlier();
        }
        match self.peer {
            Telling::Done => AgreedTerms::new(&self.config.own, &self.peer_properties),
            Telling::Nothing | Telling::Begun => {
                AgreedTerms::new(&self.config.own, &Properties::DEFAULT)
            }
        }
    }

    /// Returns what both ends can do in the earlier protocol, which says nothing of segments.
    ///
    /// It has no property for the longest message that an end sends. A peer that tells how much it
    /// receives knows of properties, and is not expected to send less than that.
    fn terms_in_earlier(&self) -> AgreedTerms {
        let peer = self.exchange.peer().receive_size;
        AgreedTerms {
            send_size: self.config.own.send_size.min(self.exchange.send_size()),
            receive_size: self.exchange.receive_size().min(peer),
            segment_size: 0,
            segment_count: 0,
        }
    }

    /// Returns the size of the longest Reply in the earlier protocol. A Call of the peer may rely
    /// on what the peer has told, even if it was asked for less since.
    pub(crate) fn reply_size(&self) -> u32 {
        let peer = self.exchange.peer().receive_size;
        self.config.own.send_size.min(peer)
    }

    /// Returns what the peer has told, as far as it has; the defaults for the rest.
    pub(crate) const fn peer_properties(&self) -> Properties {
        self.peer_properties
    }

    /// Returns whether we have sent a CONNPROP message.
    pub(crate) fn has_told(&self) -> bool {
        self.own != Telling::Nothing
    }

    /// Returns how much of reverse-direction operation is possible: what the client has told.
    pub(crate) fn reverse(&self) -> ReverseLevel {
        if self.dialect() == Some(Version::Earlier) {
            return props::level(match self.config.role {
                Role::Client => self.exchange.own().reverse,
                Role::Server => self.exchange.peer().reverse,
            });
        }
        let code = match (self.config.role, self.peer) {
            (Role::Client, _) => self.config.own.reverse,
            (Role::Server, Telling::Done) => self.peer_properties.reverse,
            (Role::Server, Telling::Nothing | Telling::Begun) => Properties::DEFAULT.reverse,
        };
        ReverseLevel::from_code(code)
    }

    /// Returns which end this is.
    pub(crate) const fn role(&self) -> Role {
        self.config.role
    }

    /// Returns what this end can do.
    pub(crate) const fn own(&self) -> &Properties {
        &self.config.own
    }

    /// Returns how many messages other than GRANTs may be sent now.
    pub(crate) fn credits(&self) -> u32 {
        self.outgoing.available()
    }

    /// Returns in how many parts an RPC message may be sent that has to wait, see
    /// [`window::most_parts`].
    pub(crate) const fn max_parts(&self) -> u32 {
        window::most_parts(self.renewed)
    }

    /// Returns the two windows, to be shown.
    pub(crate) const fn windows(&self) -> (&SendWindow, &ReceiveWindow) {
        (&self.outgoing, &self.incoming)
    }

    /// Returns whether somebody was told to wait and nothing at all may be sent. If it stays so the
    /// peer has forgotten us, as with a Call that it does not answer: the owner sets a timer.
    pub(crate) fn is_starved(&self) -> bool {
        self.waiting && self.outgoing.available() == 0
    }

    /// Returns whether somebody was told to wait, for more than there was, and nothing has come
    /// since.
    pub(crate) const fn is_short(&self) -> bool {
        self.waiting && !self.news
    }

    /// Returns whether the peer has begun a sequence of messages and has to go on.
    pub(crate) fn is_peer_in_sequence(&self) -> bool {
        self.peer_sequence().is_some()
    }

    /// Returns how far the peer has come with a sequence of messages, if it has begun one. As long
    /// as the value stays the same the sequence has not gone on: the owner sets a timer.
    pub(crate) fn peer_sequence(&self) -> Option<u64> {
        match &self.assembly {
            Some(assembly) => {
                Some((u64::from(assembly.xid()) << 32) | u64::from(assembly.received()))
            }
            // Whatever else comes is none of its messages.
            None => (self.peer == Telling::Begun).then(|| u64::from(self.peer_told)),
        }
    }

    /// Changes how many ordinary messages may be on their way to us. So many Receives and one more
    /// have to be posted before; [`None`] if there is not even that one, see [`window::offer`].
    /// What was promised to the peer stays promised.
    pub(crate) fn set_receives(&mut self, receives: Option<u32>) {
        self.incoming.set_offer(receives);
    }

    /// Takes note that the Send of a message that [`Self::poll_action`] or
    /// [`Self::prepare_properties`] handed out has completed.
    pub(crate) fn handle_sent(&mut self) {
        self.in_transit = self.in_transit.saturating_sub(1);
    }

    /// Takes note that the owner has waited in vain.
    pub(crate) fn handle_timeout(&mut self, timer: Timer) {
        match timer {
            Timer::FirstMessage if matches!(self.stage, Stage::Opening | Stage::Offered) => {
                self.close_for(Reason::Silent);
            }
            Timer::Sequence if self.is_peer_in_sequence() => self.close_for(Reason::Stalled),
            Timer::Credits if self.is_starved() || self.is_short() => {
                self.close_for(Reason::Starved);
            }
            Timer::Silence if self.exchange.is_asked() => self.close_for(Reason::Silent),
            Timer::Close if self.is_closing() => self.hurried = true,
            Timer::FirstMessage
            | Timer::Sequence
            | Timer::Credits
            | Timer::Silence
            | Timer::Close => {}
        }
    }

    /// Returns whether the connection will end when the peer has got what was sent last. It may
    /// never take that: the owner sets a timer.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some() && self.stage != Stage::Closed
    }

    /// Returns whether the connection must end before anything else is sent: the peer has sent more
    /// than its credits allow, or has had its time.
    pub(crate) fn is_overdue(&self) -> bool {
        self.closing == Some(Reason::Overrun) || (self.closing.is_some() && self.hurried)
    }

    /// Ends the connection.
    pub(crate) fn close(&mut self) {
        self.close_for(Reason::Owner);
    }

    /// Ends the connection because the peer was not accepted (5.2.6).
    pub(crate) fn close_unauthenticated(&mut self) {
        self.close_for(Reason::NotAuthenticated);
    }

    /// Has the connection ended. The first reason counts.
    fn close_for(&mut self, reason: Reason) {
        self.closing = self.closing.or(Some(reason));
    }

    /// Reports an error about a Call to its Requester: what a Responder finds out later than when
    /// the message came (7.3, 7.4.1).
    ///
    /// # Errors
    ///
    /// [`Refusal::Wait`] if many errors wait already, and [`Refusal::NotConnected`].
    pub(crate) fn report(
        &mut self,
        xid: u32,
        error: RdmaError,
    ) -> core::result::Result<(), Refusal> {
        if self.dialect() == Some(Version::Earlier) {
            // One error is for everything.
            let answered = self.exchange.answer(xid, option::Content::BadHeader);
            return answered.map_err(|_| Refusal::Wait);
        }
        if self.dialect() != Some(Version::Two) || self.closing.is_some() {
            return Err(Refusal::NotConnected);
        }
        let Some(place) = self.errors.iter_mut().find(|place| place.is_none()) else {
            self.waiting = true;
            self.news = false;
            return Err(Refusal::Wait);
        };
        *place = Some(Report {
            xid,
            version: super::v2::VERSION,
            error,
        });
        Ok(())
    }

    /// Answers a message of Version Two with an error.
    fn refuse(&mut self, xid: u32, error: RdmaError) {
        self.queue(Report {
            xid,
            version: super::v2::VERSION,
            error,
        });
    }

    /// Has an error sent. If too many wait for a credit the connection ends, so that the peer does
    /// not wait for an answer in vain (7.4).
    fn queue(&mut self, report: Report) {
        match self.errors.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(report),
            None => self.close_for(Reason::TooManyErrors),
        }
    }
}
