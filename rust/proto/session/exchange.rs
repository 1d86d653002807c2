// SPDX-License-Identifier: GPL-2.0

//! The exchange of OPTIONAL messages in the earlier protocol
//! (draft-dnoveck-nfsv4-rpcrdma-xcharext-03): each end tells its properties and changes of them,
//! and answers requests for changes.
//!
//! A property of an end is what that end has said last, in order of arrival: nobody else changes
//! it. So nothing has to be settled when both ends speak at once.
//!
//! These messages take no credit. So that they always find a Receive, an end has at most one
//! message on its way that is not answered, and one request. A request proves when it is answered
//! that the peer has received all before it, since the messages of a connection are handled in
//! their order: before another message that is not answered, a request is sent, a *barrier*. It
//! asks for what this end wants of the peer, which mostly is nothing.

use super::{
    super::{
        v1::Direction,
        v2_2016::{
            option::{
                Content,
                Operation,
                Optional,
                OptionalMessage,
                ReceivedResponse,
                Response, //
            },
            props::{
                Ability,
                Each,
                Property,
                Set,
                Told,
                Values,
                DEFAULT, //
            }, //
        }, //
    },
    role::Role, //
};
use core::ffi::CStr;

/// The most answers that wait to be sent. A peer that makes more of them is disconnected.
pub(super) const MAX_ANSWERS: usize = 4;

/// A message has come since this was asked for.
const LATELY: u8 = 1;

/// A message has come since we have told our properties.
const SINCE_TOLD: u8 = 2;

/// A request of ours that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Question {
    /// Its transaction ID.
    xid: u32,
    /// The values that it asks for.
    asked: Told,
    /// Set if a message that is not answered was on its way before it.
    proves: bool,
    /// Set if the peer was told before it that Replies must not invalidate any more, and not
    /// otherwise since.
    revokes: bool,
    /// Set if the peer was told before it of its credits, which were not made fewer since.
    lowers: bool,
}

/// What has become of a property that the peer was asked to change (X 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// The value that was asked for.
    pub(crate) asked: u32,
    /// The value that the peer has set; [`None`] if it has rejected the request.
    pub(crate) set: Option<u32>,
}

impl Answered {
    /// Returns what the answer says, for display.
    pub(crate) const fn outcome(&self) -> &'static CStr {
        match self.set {
            None => c"rejected",
            Some(value) if value == self.asked => c"done",
            Some(_) => c"other",
        }
    }
}

/// There are more answers to be sent than may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// The state of the exchange at one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    /// Which end this is.
    role: Role,
    /// The values that this end can have.
    most: Values,
    /// The values of this end, as the peer knows them when all that is due was sent.
    own: Values,
    /// Those that the peer knows when all that was posted has arrived; what differs must still be
    /// told.
    told: Values,
    /// Set if we have told our properties.
    has_told: bool,
    /// The values of the peer.
    peer: Values,
    /// What the peer has told of itself first, once it has: only that may change (X 4.1).
    peer_told: Option<Each<bool>>,
    /// What it does not expect to change.
    peer_constant: Each<bool>,
    /// Set if no Call of ours is unanswered.
    is_idle: bool,
    /// What has come since a certain time: [`LATELY`] and [`SINCE_TOLD`].
    heard: u8,
    /// Set while the first message of the connection is handled.
    is_opening: bool,
    /// Set if our last message that is not answered is one with our properties, for which a client
    /// had to wait (B 5): whatever it sends next proves that it has received them.
    is_waited_for: bool,
    /// Set if the peer knows nothing of this.
    is_unknown: bool,
    /// The transaction ID of our next message.
    next_xid: u32,
    /// The transaction ID of the client's first message, which that of its answer has as well.
    first_xid: u32,
    /// The values that this end wants the peer to have.
    requested: Told,
    /// The answers about them. No property is asked for again until the peer or this end changes
    /// its mind.
    answered: Each<Option<Answered>>,
    /// Those of them that nobody has been shown.
    news: Each<bool>,
    /// Set if the peer is to be asked for an answer, whatever it is about.
    is_probing: bool,
    /// The request that is not answered.
    question: Option<Question>,
    /// Set if a message is on its way that is not answered.
    is_unproved: bool,
    /// Set if Replies must not invalidate any more, and the peer is not known to have been told.
    is_revoking: bool,
    /// Set if the peer must be told of its credits.
    tells_credits: bool,
    /// Set if they were made fewer, and the peer is not known to have been told.
    is_lowering: bool,
    /// Set while this end waits for messages that use its shorter Receives up.
    is_growing: bool,
    /// The requests of nothing that may still be sent for that.
    growth_requests: u32,
    /// Set if answers to requests wait, see [`Self::hold_answers`].
    is_held: bool,
    /// Answers to be sent with their transaction IDs, the oldest first.
    answers: [Option<(u32, Content)>; MAX_ANSWERS],
}

/// What the two ends have said of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// The values of this end.
    pub(crate) own: Values,
    /// The values of the peer, if it has told any.
    pub(crate) peer: Option<Values>,
    /// Those of them that the peer does not expect to change.
    pub(crate) peer_constant: Each<bool>,
    /// Set if there is a request that the peer has not answered.
    pub(crate) is_asked: bool,
    /// The values that this end wants the peer to have.
    pub(crate) requested: Told,
    /// What the peer has answered to that.
    pub(crate) answered: Each<Option<Answered>>,
}

impl Exchange {
    /// The state of a new connection, of an end that can do this at `most`.
    pub(super) fn new(role: Role, most: Values) -> Self {
        Self {
            role,
            most,
            own: most,
            told: DEFAULT,
            has_told: false,
            peer: DEFAULT,
            peer_told: None,
            peer_constant: Each::default(),
            is_idle: false,
            heard: 0,
            is_opening: false,
            is_waited_for: false,
            is_unknown: false,
            next_xid: 0,
            first_xid: 0,
            requested: Told::default(),
            answered: Each::default(),
            news: Each::default(),
            is_probing: false,
            question: None,
            is_unproved: false,
            is_revoking: false,
            tells_credits: false,
            is_lowering: false,
            is_growing: false,
            growth_requests: 0,
            is_held: false,
            answers: [None; MAX_ANSWERS],
        }
    }

    /// Returns the values of this end.
    pub(crate) const fn own(&self) -> &Values {
        &self.own
    }

    /// Returns the size in octets of the longest message that the peer sends if it has received all
    /// that was posted, and of which this end still makes use: a larger size counts when it was
    /// told before what relies on it, a smaller one as soon as it is decided.
    pub(crate) fn receive_size(&self) -> u32 {
        self.own.receive_size.min(self.told.receive_size)
    }

    /// Returns whether a Reply may have invalidated a handle: the peer has been told so, or need
    /// not have heard yet that it is over.
    pub(crate) const fn accepts_invalidation(&self) -> bool {
        self.own.invalidation != 0 || self.is_revoking
    }

    /// Returns the values of the peer.
    pub(crate) const fn peer(&self) -> &Values {
        &self.peer
    }

    /// Has the peer told of its credits, which were made fewer, and has it prove that it has heard:
    /// a request that is on its way does not.
    pub(crate) fn lower_credits(&mut self) {
        self.tells_credits = true;
        self.is_lowering = true;
        if let Some(question) = &mut self.question {
            question.lowers = false;
        }
    }

    /// Returns whether the peer may not have heard of its credits, which were made fewer.
    pub(crate) const fn is_lowering(&self) -> bool {
        self.is_lowering
    }

    /// The peer has the credits again that it has heard of.
    pub(crate) fn restore_credits(&mut self) {
        self.tells_credits = false;
        self.is_lowering = false;
    }

    /// Has answers to requests wait, or not any more. Such an answer says that we have heard how
    /// many credits we have: so it has to wait while more Calls have taken one.
    pub(crate) fn hold_answers(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    /// Returns whether the peer does not know an operation of ours, and so gets none.
    pub(crate) const fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// Returns what both ends have said, to be shown.
    pub(crate) fn view(&self) -> Said {
        Said {
            own: self.own,
            peer: self.peer_told.map(|_| self.peer),
            peer_constant: self.peer_constant,
            is_asked: self.is_asked(),
            requested: self.requested,
            answered: self.answered,
        }
    }

    /// Sets whether no Call of this end is unanswered.
    pub(crate) fn set_idle(&mut self, is_idle: bool) {
        self.is_idle = is_idle;
    }

    /// Notes that a message of whatever kind has come.
    pub(crate) fn note_heard(&mut self) {
        self.heard = LATELY | SINCE_TOLD;
    }

    /// Returns whether a message has come since this end has told its properties in the first
    /// message of the connection. Then another one proves nothing more: of what is told later, only
    /// an answer proves that it was heard. So [`Self::note_heard`] gives this end nothing to send.
    #[inline]
    pub(crate) const fn has_heard(&self) -> bool {
        self.heard & SINCE_TOLD != 0
    }

    /// Returns whether a message has come since the last call.
    pub(crate) fn take_heard(&mut self) -> bool {
        let was_heard = self.heard & LATELY != 0;
        self.heard &= !LATELY;
        was_heard
    }

    /// Sets whether the message that is handled next is the first one of the connection.
    pub(super) fn set_opening(&mut self, is_opening: bool) {
        self.is_opening = is_opening;
    }

    /// Returns whether a message of ours that is not answered may be on its way.
    const fn is_unproved(&self) -> bool {
        let is_known = self.is_waited_for && self.heard & SINCE_TOLD != 0;
        self.is_unproved && !is_known
    }

    /// Returns whether there is a request that is not answered, or is about to be sent.
    pub(crate) const fn is_asked(&self) -> bool {
        self.question.is_some() || self.is_probing
    }

    /// Returns the size in octets of the longest message that may be sent to the peer: what it has
    /// told, or less if it was asked for less and has not answered (X 3.1).
    pub(crate) fn send_size(&self) -> u32 {
        let asked = self
            .question
            .and_then(|question| question.asked.receive_size);
        let sizes = [asked, self.due_requests().receive_size];
        let sizes = sizes.into_iter().flatten();
        sizes.fold(self.peer.receive_size, u32::min)
    }

    /// Handles a message. Returns whether the peer has told its properties for the first time.
    ///
    /// # Errors
    ///
    /// [`TooMany`] if the peer does not take its answers.
    pub(super) fn receive(&mut self, message: &Optional<'_>) -> Result<bool, TooMany> {
        match &message.operation {
            Operation::Connect { set, constant } if self.peer_told.is_none() => {
                self.peer_told = Some(set.told.map(|_, told| told.is_some()));
                self.peer_constant = set.places.map(|property, place| {
                    set.told.get(property).is_some() && constant.contains(place)
                });
                self.apply(&set.told);
                match self.role {
                    Role::Server => self.answer_first(message.xid)?,
                    Role::Client => self.is_unproved &= message.xid != self.first_xid,
                }
                return Ok(true);
            }
            // One that comes again tells changes.
            Operation::Connect { set, .. } | Operation::Update(set) => {
                // What the peer has answered before was about other values.
                let told = set.told;
                self.answered = self
                    .answered
                    .map(|property, answer| answer.filter(|_| told.get(property).is_none()));
                self.apply(&told);
            }
            Operation::Request(set) => {
                let response = self.decide(set);
                self.answer(message.xid, Content::Respond(response))?;
            }
            Operation::Respond(answer) => self.take_answer(message.xid, answer),
            Operation::Unknown { .. } => self.answer(message.xid, Content::UnknownOperation)?,
        }
        Ok(false)
    }

    /// Handles a message that can't be read, or is of no operation.
    ///
    /// # Errors
    ///
    /// [`TooMany`] if the peer does not take its answers.
    pub(super) fn answer(&mut self, xid: u32, content: Content) -> Result<(), TooMany> {
        let mut places = self.answers.iter_mut();
        let place = places.find(|place| place.is_none()).ok_or(TooMany)?;
        *place = Some((xid, content));
        Ok(())
    }

    /// Answers the properties of a client with those of the server.
    fn answer_first(&mut self, xid: u32) -> Result<(), TooMany> {
        self.first_xid = xid;
        self.is_waited_for = self.is_opening;
        // What the client has is taken, and what it will see in ours is another one.
        self.next_xid = self.next_xid.max(1);
        self.answer(xid, self.first())
    }

    /// Returns the message with our properties. Those of a server that concern its own Calls do not
    /// change unless it is asked for that.
    fn first(&self) -> Content {
        let is_server = self.role == Role::Server;
        Content::Connect {
            own: self.own,
            constant: Each {
                receive_size: false,
                invalidation: is_server,
                reverse: is_server,
            },
        }
    }

    /// The peer does not know an operation with this transaction ID: it gets none of ours any more
    /// if it was ours. Its own ones are answered still.
    pub(super) fn refused(&mut self, xid: u32) {
        let is_first = self.has_told && xid == self.first_xid;
        if is_first || xid < self.next_xid {
            self.is_unknown = true;
            self.is_probing = false;
            self.question = None;
            self.is_unproved = false;
            // Fewer credits stay untold.
            self.tells_credits = false;
        }
    }

    /// An answer to a request of ours can't be read: it counts as a rejection (X 4.3).
    pub(super) fn spoilt(&mut self, xid: u32) {
        self.take_answer(xid, &ReceivedResponse::default());
    }

    /// Takes the answer to our request in.
    fn take_answer(&mut self, xid: u32, answer: &ReceivedResponse<'_>) {
        let Some(question) = self.question.filter(|question| question.xid == xid) else {
            return;
        };
        self.question = None;
        self.is_unproved &= !question.proves;
        self.is_revoking &= !question.revokes;
        self.is_lowering &= !question.lowers;
        let changes = answer.changes(&question.asked);
        self.apply(&changes);
        // This end may want something else by now.
        let requested = self.requested;
        self.answered = self.answered.map(|property, before| {
            let asked = requested.get(property)?;
            match question.asked.get(property) {
                Some(value) if value == asked => Some(Answered {
                    asked,
                    set: changes.get(property),
                }),
                _ => before,
            }
        });
        self.news = question.asked.map(|_, asked| asked.is_some());
    }

    /// Returns the answers that have come since the last call.
    pub(crate) fn take_answers(&mut self) -> impl Iterator<Item = (Property, Answered)> {
        let (news, answered) = (core::mem::take(&mut self.news), self.answered);
        let of = move |property| Some((property, answered.get(property)?));
        let all = Property::ALL.into_iter();
        all.filter(move |property| news.get(*property))
            .filter_map(of)
    }

    /// Takes over what the peer says of itself, as far as it may change.
    fn apply(&mut self, told: &Told) {
        let Some(known) = self.peer_told else { return };
        self.peer = self.peer.map(|property, value| {
            let told = told.get(property).filter(|_| known.get(property));
            told.unwrap_or(value)
        });
    }

    /// Decides about a request, and changes what is changed.
    fn decide(&mut self, set: &Set) -> Response {
        let ability = Ability {
            most: self.most,
            is_server: self.role == Role::Server,
            is_idle: self.is_idle,
        };
        let now = self.own;
        let verdicts = set.told.map(|property, asked| {
            let place = set.places.get(property);
            let verdict = ability.answer(property, asked?, now.get(property))?;
            Response::can_name(place).then_some((place, verdict))
        });
        self.own = now.map(|property, value| {
            let verdict = verdicts.get(property);
            verdict.map_or(value, |(_, verdict)| verdict.value())
        });
        self.note_revoked(now.invalidation);
        Response {
            count: set.count,
            verdicts,
        }
    }

    /// Takes note of it if Replies may not invalidate any more that could `before`: the peer must
    /// prove that it has heard of that. A request that is on its way does not.
    fn note_revoked(&mut self, before: u32) {
        if self.own.invalidation >= before || !self.has_told {
            return;
        }
        self.is_revoking = true;
        if let Some(question) = &mut self.question {
            question.revokes = false;
        }
    }

    /// Has the peer told that this end can have other values now, but for the size of its Receives.
    /// What does not change stays as the peer has asked for it.
    pub(crate) fn change(&mut self, most: &Values) {
        let before = self.own.invalidation;
        for property in [Property::Invalidation, Property::Reverse] {
            if self.most.get(property) != most.get(property) {
                self.most.set(property, most.get(property));
                self.own.set(property, most.get(property));
            }
        }
        self.note_revoked(before);
    }

    /// Returns whether the peer can be told of Receives of `size` octets, and has not been.
    pub(crate) const fn may_grow(&self, size: u32) -> bool {
        self.is_open() && !self.is_growing && size > self.most.receive_size
    }

    /// Has the peer asked for answers, one after the other, of which each takes a Receive, until
    /// the shorter ones are [used up](Self::end_growth), or `requests` requests were sent. Then
    /// this may be called again, after a while: a Receive may be lost, or kept for long.
    pub(crate) fn begin_growth(&mut self, requests: u32) {
        self.is_growing = true;
        self.growth_requests = requests;
    }

    /// Returns whether more requests are sent for that.
    pub(crate) const fn asks_for_growth(&self) -> bool {
        self.is_growing && self.growth_requests > 0
    }

    /// Returns whether shorter Receives are being used up.
    pub(crate) const fn is_growing(&self) -> bool {
        self.is_growing
    }

    /// There are none but Receives of `size` octets any more. Has the peer told.
    pub(crate) fn end_growth(&mut self, size: u32) {
        self.is_growing = false;
        self.most.receive_size = size;
        self.own.receive_size = size;
    }

    /// Has the peer asked for an answer, behind a request that is not answered. The answer proves
    /// that the peer has received all that was sent before.
    pub(crate) fn probe(&mut self) {
        self.is_probing = true;
    }

    /// Sets the values that this end wants the peer to have from now on (X 1.2, 4.2). The peer is
    /// asked for those that it does not have, once for each value, and may reject it.
    pub(crate) fn request(&mut self, wanted: &Told) {
        self.answered = self.answered.map(|property, answer| {
            answer.filter(|answer| wanted.get(property) == Some(answer.asked))
        });
        self.requested = *wanted;
    }

    /// Returns the values that the peer is still to be asked for. It changes only what it has told
    /// first (X 4.1).
    fn due_requests(&self) -> Told {
        let Some(known) = self.peer_told.filter(|_| !self.is_unknown) else {
            return Told::default();
        };
        self.requested.map(|property, wanted| {
            let is_due = known.get(property) && self.answered.get(property).is_none();
            wanted.filter(|value| is_due && self.peer.get(property) != *value)
        })
    }

    /// Returns whether messages of our own may be sent: both ends have told their properties.
    pub(crate) const fn is_open(&self) -> bool {
        self.has_told && self.peer_told.is_some() && !self.is_unknown
    }

    /// Returns the next message. It must be posted now, and then [committed](Self::commit); if it
    /// can't be posted it is returned again.
    pub(super) fn next(&self) -> Option<OptionalMessage> {
        if let Some((xid, content)) = self.answers.first().copied().flatten() {
            // What is told later of our values must not come before it.
            let waits = self.is_held && matches!(content, Content::Respond(_));
            return (!waits).then(|| self.message(xid, content));
        }
        let due = self.own.map(|property, value| {
            let is_due = self.told.get(property) != value;
            is_due.then_some(value)
        });
        let is_due = self.tells_credits || due != Told::default();
        let needs_proof = is_due || self.is_revoking || self.is_lowering || self.asks_for_growth();
        let requests = self.due_requests();
        let is_asking = self.is_probing || needs_proof || requests != Told::default();
        let content = if self.role == Role::Client && !self.has_told {
            self.first()
        } else if !self.is_open() {
            return None;
        } else if is_due && !self.is_unproved() {
            Content::Update(due)
        } else if self.question.is_none() && is_asking {
            Content::Request(requests)
        } else {
            return None;
        };
        Some(self.message(self.next_xid, content))
    }

    /// Returns a message. Its credits are for the owner to set.
    const fn message(&self, xid: u32, content: Content) -> OptionalMessage {
        let direction = match (&content, self.role) {
            (Content::Request(_), _) => Direction::Call,
            (Content::Connect { .. } | Content::Update(_), Role::Client) => Direction::Call,
            _ => Direction::Reply,
        };
        OptionalMessage {
            xid,
            credits: 1,
            direction,
            content,
        }
    }

    /// Counts a message that [`Self::next`] has returned, and that was posted.
    pub(super) fn commit(&mut self, message: &OptionalMessage) {
        match message.content {
            Content::Connect { own, .. } => {
                self.has_told = true;
                self.is_unproved = true;
                self.heard &= !SINCE_TOLD;
                self.told = own;
            }
            Content::Update(told) => {
                self.is_unproved = true;
                self.is_waited_for = false;
                // A request that is on its way was sent before.
                if let Some(question) = &mut self.question {
                    question.proves = false;
                }
                // It has them.
                self.tells_credits = false;
                self.tell(|property| told.get(property));
            }
            Content::Request(asked) => {
                self.question = Some(Question {
                    xid: message.xid,
                    asked,
                    proves: self.is_unproved(),
                    // Answers go before it.
                    revokes: self.is_revoking && self.told.invalidation == self.own.invalidation,
                    lowers: self.is_lowering && !self.tells_credits,
                });
                self.is_probing = false;
                self.growth_requests = self.growth_requests.saturating_sub(1);
            }
            Content::Respond(response) => {
                let verdicts = response.verdicts;
                self.tell(|property| verdicts.get(property).map(|(_, verdict)| verdict.value()));
            }
            Content::UnknownOperation | Content::BadHeader => {}
        }
        match message.content {
            Content::Connect { .. } if self.role == Role::Client => self.count(),
            Content::Update(_) | Content::Request(_) => self.count(),
            _ => {
                self.answers.rotate_left(1);
                if let Some(last) = self.answers.last_mut() {
                    *last = None;
                }
            }
        }
    }

    /// Takes note of the values that a posted message tells.
    fn tell(&mut self, value: impl Fn(Property) -> Option<u32>) {
        self.told = self
            .told
            .map(|property, told| value(property).unwrap_or(told));
    }

    /// Counts a message of our own.
    fn count(&mut self) {
        self.next_xid = self.next_xid.wrapping_add(1);
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_exchange)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::Result,
                message::Version, //
            },
            testing::{
                act,
                config,
                message,
                receive,
                received,
                settle,
                EARLIER,
                OFFER,
                PROPERTIES, //
            },
            Action,
            Config,
            Event,
            Reason,
            Session, //
        },
        *, //
    };

    /// A transaction ID of the peer's.
    const X: u32 = 0x2016_0001;

    /// A session that speaks the protocol, both ends having told their properties.
    fn speaking(role: Role) -> Result<Session> {
        let mut session = Session::new(&Config {
            earlier: Some(EARLIER),
            ..config(role)
        });
        settle(&mut session);
        match role {
            Role::Client => receive(&mut session, &PROPERTIES)?,
            Role::Server => receive(&mut session, &OFFER)?,
        }
        settle(&mut session);
        assert_eq!(session.dialect(), Some(Version::Earlier));
        Ok(session)
    }

    /// Returns whether a message is answered with these words, and the connection goes on.
    fn is_answered(session: &mut Session, words: &[u32], answer: &[u32]) -> Result<bool> {
        receive(session, words)?;
        let is_right = match answer {
            [] => true,
            answer => message(session)?.is_words(answer),
        };
        Ok(is_right && settle(session) == 0 && session.dialect().is_some())
    }

    /// A server answers the properties of a client with its own, once, and begins nothing before.
    #[test]
    fn a_server_answers_properties_with_its_own() -> Result {
        let mut session = Session::new(&Config {
            earlier: Some(EARLIER),
            ..config(Role::Server)
        });
        assert!(is_answered(
            &mut session,
            &[X, 2, 9, 0, 0, 0, 0, 0, X, 0],
            &[]
        )?);
        session.exchange.change(&Values {
            invalidation: 0,
            ..EARLIER
        });
        session.exchange.probe();
        assert_eq!(settle(&mut session), 0);
        let mut answer = PROPERTIES;
        if let Some(word) = answer.get_mut(13) {
            *word = 0;
        }
        receive(&mut session, &OFFER)?;
        assert!(message(&mut session)?.is_words(&answer));
        // The request that has waited.
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 2, 4, 0]));
        assert!(is_answered(&mut session, &OFFER, &[])?);
        Ok(())
    }

    /// Sections 4.2 and 4.3, B 3.1: every request has an answer, at any time.
    #[test]
    fn requests_and_unknown_operations_are_answered() -> Result {
        for (words, answer) in [
            (
                &[X, 2, 9, 5, 0, 2, 4, 0][..],
                &[X, 2, 32, 5, 1, 3, 12, 0, 0, 0][..],
            ),
            (
                &[X, 2, 9, 5, 0, 2, 16, 1, 1, 4, 8192],
                &[X, 2, 32, 5, 1, 3, 16, 1, 1, 0, 0],
            ),
            (
                &[X, 2, 9, 5, 0, 2, 16, 1, 1, 4, 9000],
                &[X, 2, 32, 5, 1, 3, 16, 0, 1, 1, 0],
            ),
            (
                &[X, 2, 9, 5, 0, 2, 16, 1, 63, 4, 1],
                &[X, 2, 32, 5, 1, 3, 16, 0, 1, 1, 0],
            ),
            (&[X, 2, 9, 5, 0, 63, 0], &[X, 2, 32, 4, 3]),
            (&[X, 2, 9, 5, 0, 1, 64, 0], &[X, 2, 32, 4, 2]),
            // Answers to nothing, good or bad, and one that is too short to be a message.
            (&[X, 2, 9, 5, 1, 3, 12, 0, 0, 0], &[]),
            (&[X, 2, 9, 5, 1, 3, 12, 5, 0, 0], &[]),
            (&[X, 2, 9, 5, 0, 1], &[]),
        ] {
            for role in [Role::Client, Role::Server] {
                assert!(is_answered(&mut speaking(role)?, words, answer)?);
            }
        }
        Ok(())
    }

    /// What is put in force by an answer is in force.
    #[test]
    fn an_answer_changes_this_end() -> Result {
        let mut session = speaking(Role::Client)?;
        session.exchange.set_idle(true);
        let less = [X, 2, 9, 5, 0, 2, 28, 2, 1, 4, 5000, 3, 4, 0];
        let done = [X, 2, 32, 5, 1, 3, 16, 1, 3, 0, 0];
        assert!(is_answered(&mut session, &less, &done)?);
        assert_eq!(session.terms().receive_size, 5000);
        assert_eq!(session.exchange.own().reverse, 0);
        // It may be had again.
        let more = [X, 2, 9, 5, 0, 2, 16, 1, 1, 4, 9000];
        let other = [X, 2, 32, 5, 1, 3, 24, 0, 0, 1, 1, 4, 8192];
        assert!(is_answered(&mut session, &more, &other)?);
        assert_eq!(session.terms().receive_size, 8192);
        Ok(())
    }

    /// What the peer has asked for lasts until this end can have something else.
    #[test]
    fn what_was_asked_for_lasts() -> Result {
        let mut session = speaking(Role::Client)?;
        let none = [X, 2, 9, 5, 0, 2, 16, 1, 3, 4, 0];
        assert!(is_answered(
            &mut session,
            &none,
            &[X, 2, 32, 5, 1, 3, 16, 1, 1, 0, 0]
        )?);
        session.exchange.change(&EARLIER);
        assert_eq!(settle(&mut session), 0);
        assert_eq!(session.exchange.own().reverse, 0);
        session.exchange.change(&Values {
            reverse: 1,
            ..EARLIER
        });
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 4, 16, 1, 3, 4, 1]));
        Ok(())
    }

    /// The peer's Replies are as long as what it was told before: longer ones are not counted on
    /// before the answer that allows them is posted, and shorter ones at once.
    #[test]
    fn a_larger_receive_size_counts_once_it_was_told() -> Result {
        let mut session = speaking(Role::Server)?;
        session.exchange.set_idle(true);
        receive(&mut session, &[X, 2, 9, 5, 0, 2, 16, 1, 1, 4, 5000])?;
        assert_eq!(session.terms().receive_size, 5000);
        assert!(message(&mut session)?.is_words(&[X, 2, 32, 5, 1, 3, 16, 1, 1, 0, 0]));
        receive(&mut session, &[X, 2, 9, 5, 0, 2, 16, 1, 1, 4, 8192])?;
        assert_eq!(session.terms().receive_size, 5000);
        assert!(message(&mut session)?.is_words(&[X, 2, 32, 5, 1, 3, 16, 1, 1, 0, 0]));
        assert_eq!(session.terms().receive_size, 8192);
        Ok(())
    }

    /// Sections 4.1 and 4.4: what was told first may change, and nothing else may.
    #[test]
    fn only_what_was_told_first_may_change() -> Result {
        let mut session = Session::new(&Config {
            earlier: Some(EARLIER),
            ..config(Role::Server)
        });
        // Before it, nothing does.
        receive(&mut session, &[X, 2, 9, 5, 0, 4, 16, 1, 1, 4, 5000])?;
        assert_eq!(*session.exchange.peer(), DEFAULT);
        receive(&mut session, &[X, 2, 9, 5, 0, 1, 20, 1, 2, 4, 1, 0])?;
        settle(&mut session);
        receive(
            &mut session,
            &[X, 2, 9, 5, 0, 4, 28, 2, 1, 4, 5000, 2, 4, 0],
        )?;
        assert_eq!(*session.exchange.peer(), DEFAULT);
        let said = session.exchange.view();
        assert_eq!(
            (said.peer, said.peer_constant),
            (Some(DEFAULT), Each::default())
        );
        Ok(())
    }

    /// One message that is not answered at a time: before another one there is a barrier.
    #[test]
    fn a_barrier_stands_between_changes() -> Result {
        let mut session = speaking(Role::Client)?;
        let with = |invalidation, reverse| Values {
            invalidation,
            reverse,
            ..EARLIER
        };
        session.exchange.change(&with(1, 1));
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 4, 16, 1, 3, 4, 1]));
        assert_eq!(settle(&mut session), 0);
        session.exchange.change(&with(1, 2));
        session.exchange.change(&with(1, 0));
        assert!(message(&mut session)?.is_words(&[2, 2, 32, 5, 0, 2, 4, 0]));
        assert_eq!(settle(&mut session), 0);
        // The answer to something else proves nothing.
        assert!(is_answered(
            &mut session,
            &[1, 2, 9, 5, 1, 3, 12, 0, 0, 0],
            &[]
        )?);
        receive(&mut session, &[2, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(message(&mut session)?.is_words(&[3, 2, 32, 5, 0, 4, 16, 1, 3, 4, 0]));
        assert_eq!(settle(&mut session), 0);
        Ok(())
    }

    /// Section 3.1: shorter Receives are used up by answers to requests of nothing, and then the
    /// peer is told.
    #[test]
    fn larger_receives_are_told_when_there_are_no_others() -> Result {
        let mut session = speaking(Role::Client)?;
        assert!(session.exchange.may_grow(16384) && !session.exchange.may_grow(8192));
        session.exchange.begin_growth(2);
        assert!(!session.exchange.may_grow(32768));
        for xid in 1..=2 {
            assert!(message(&mut session)?.is_words(&[xid, 2, 32, 5, 0, 2, 4, 0]));
            assert_eq!(settle(&mut session), 0);
            receive(&mut session, &[xid, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        }
        // No more than that are sent.
        assert!(session.exchange.is_growing() && !session.exchange.asks_for_growth());
        assert_eq!(settle(&mut session), 0);
        session.exchange.end_growth(16384);
        assert_eq!(session.exchange.receive_size(), 8192);
        assert!(message(&mut session)?.is_words(&[3, 2, 32, 5, 0, 4, 16, 1, 1, 4, 16384]));
        assert_eq!(session.exchange.receive_size(), 16384);
        assert_eq!(settle(&mut session), 0);
        assert!(session.exchange.may_grow(32768));
        Ok(())
    }

    /// Section 3.2: invalidations are taken until it is known that the peer has heard of it.
    #[test]
    fn replies_may_invalidate_until_a_barrier() -> Result {
        let mut session = speaking(Role::Client)?;
        assert!(session.exchange.accepts_invalidation());
        session.exchange.change(&Values {
            invalidation: 0,
            ..EARLIER
        });
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 4, 16, 1, 2, 4, 0]));
        assert!(message(&mut session)?.is_words(&[2, 2, 32, 5, 0, 2, 4, 0]));
        assert!(session.exchange.accepts_invalidation());
        receive(&mut session, &[2, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(!session.exchange.accepts_invalidation());
        assert_eq!(settle(&mut session), 0);
        session.exchange.change(&EARLIER);
        assert_eq!(settle(&mut session), 1);
        assert!(session.exchange.accepts_invalidation());
        Ok(())
    }

    /// The same if the change had to wait for a barrier itself, or was taken back meanwhile: what
    /// went before it proves nothing.
    #[test]
    fn an_earlier_barrier_proves_nothing_about_invalidations() -> Result {
        let mut session = speaking(Role::Client)?;
        let with = |invalidation, reverse| Values {
            invalidation,
            reverse,
            ..EARLIER
        };
        session.exchange.change(&with(1, 0));
        assert_eq!(settle(&mut session), 1);
        session.exchange.change(&with(0, 0));
        assert!(message(&mut session)?.is_words(&[2, 2, 32, 5, 0, 2, 4, 0]));
        receive(&mut session, &[2, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(session.exchange.accepts_invalidation());
        assert!(message(&mut session)?.is_words(&[3, 2, 32, 5, 0, 4, 16, 1, 2, 4, 0]));
        assert!(message(&mut session)?.is_words(&[4, 2, 32, 5, 0, 2, 4, 0]));
        // It may again, and then not, while the barrier is on its way: there is nothing to tell.
        session.exchange.change(&with(1, 0));
        session.exchange.change(&with(0, 0));
        receive(&mut session, &[4, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(session.exchange.accepts_invalidation());
        assert!(message(&mut session)?.is_words(&[5, 2, 32, 5, 0, 2, 4, 0]));
        receive(&mut session, &[5, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(!session.exchange.accepts_invalidation());
        Ok(())
    }

    /// A change that the peer has asked for is proved to it as well.
    #[test]
    fn invalidations_that_the_peer_does_not_want_end_with_a_barrier() -> Result {
        let mut session = speaking(Role::Client)?;
        let request = [X, 2, 9, 5, 0, 2, 16, 1, 2, 4, 0];
        receive(&mut session, &request)?;
        assert!(message(&mut session)?.is_words(&[X, 2, 32, 5, 1, 3, 16, 1, 1, 0, 0]));
        assert!(session.exchange.accepts_invalidation());
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 2, 4, 0]));
        receive(&mut session, &[1, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(!session.exchange.accepts_invalidation());
        assert_eq!(settle(&mut session), 0);
        Ok(())
    }

    /// Section B 4.2.2: fewer credits are told by a change of nothing, and the Receives for those
    /// before are kept until the request behind it is answered.
    #[test]
    fn fewer_credits_are_told_and_proved() -> Result {
        let mut session = speaking(Role::Server)?;
        // The client may not have received our properties; what it sends says that it has.
        session.exchange.lower_credits();
        assert!(matches!(
            session.exchange.next().map(|message| message.content),
            Some(Content::Request(_))
        ));
        session.exchange.note_heard();
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 1, 4, 4, 0]));
        // They are made fewer again while the request is on its way, which proves nothing then.
        assert!(message(&mut session)?.is_words(&[2, 2, 32, 5, 0, 2, 4, 0]));
        session.exchange.lower_credits();
        receive(&mut session, &[2, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(session.exchange.is_lowering());
        assert!(message(&mut session)?.is_words(&[3, 2, 32, 5, 1, 4, 4, 0]));
        assert!(message(&mut session)?.is_words(&[4, 2, 32, 5, 0, 2, 4, 0]));
        assert_eq!(settle(&mut session), 0);
        receive(&mut session, &[3, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(session.exchange.is_lowering());
        receive(&mut session, &[4, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(!session.exchange.is_lowering());
        assert_eq!(settle(&mut session), 0);
        Ok(())
    }

    /// Section 5 of draft-cel-nfsv4-rpcrdma-version-two-01: it is what a client sends after the
    /// answer to its properties that proves that it has this, and no message before.
    #[test]
    fn what_came_before_an_answer_proves_nothing() -> Result {
        let mut session = Session::new(&Config {
            earlier: Some(EARLIER),
            ..config(Role::Server)
        });
        settle(&mut session);
        session.exchange.note_heard();
        receive(&mut session, &OFFER)?;
        settle(&mut session);
        assert!(session.exchange.take_heard());
        session.exchange.lower_credits();
        let next = session.exchange.next().map(|message| message.content);
        assert!(matches!(next, Some(Content::Request(_))));
        Ok(())
    }

    /// A peer that does not know such a change has not heard of anything.
    #[test]
    fn fewer_credits_are_not_heard_of_by_who_knows_no_changes() -> Result {
        let mut session = speaking(Role::Server)?;
        session.exchange.note_heard();
        session.exchange.lower_credits();
        assert_eq!(settle(&mut session), 2);
        receive(&mut session, &[1, 2, 9, 4, 3])?;
        receive(&mut session, &[2, 2, 9, 5, 1, 3, 12, 0, 0, 0])?;
        assert!(session.exchange.is_lowering() && session.exchange.is_unknown());
        assert_eq!(settle(&mut session), 0);
        session.exchange.restore_credits();
        assert!(!session.exchange.is_lowering());
        Ok(())
    }

    /// A client with more Calls under way than it was told that it may have says only later that it
    /// was told.
    #[test]
    fn an_answer_waits_for_calls_that_have_credits() -> Result {
        let mut session = speaking(Role::Client)?;
        session.exchange.hold_answers(true);
        receive(&mut session, &[X, 2, 4, 5, 0, 2, 4, 0])?;
        assert_eq!(settle(&mut session), 0);
        // And so does what is told behind it.
        session.exchange.change(&Values {
            reverse: 0,
            ..EARLIER
        });
        assert_eq!(settle(&mut session), 0);
        session.exchange.hold_answers(false);
        assert!(message(&mut session)?.is_words(&[X, 2, 32, 5, 1, 3, 12, 0, 0, 0]));
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 4, 16, 1, 3, 4, 0]));
        Ok(())
    }

    /// Section 4.3: what is asked for is what the answer says it is.
    #[test]
    fn a_request_has_what_the_answer_says() -> Result {
        let asked = Told {
            receive_size: Some(9000),
            reverse: Some(0),
            ..Told::default()
        };
        for (answer, size, reverse) in [
            (&[1, 2, 9, 5, 1, 3, 16, 1, 3, 0, 0][..], 9000, 0),
            (&[1, 2, 9, 5, 1, 3, 28, 1, 2, 0, 1, 1, 4, 8500], 8500, 0),
            (&[1, 2, 9, 5, 1, 3, 16, 0, 1, 3, 0], 8192, 2),
            // It can't be read.
            (&[1, 2, 9, 5, 1, 3, 12, 5, 0, 0], 8192, 2),
        ] {
            let mut session = speaking(Role::Client)?;
            session.exchange.request(&asked);
            let request = [1, 2, 32, 5, 0, 2, 28, 2, 1, 4, 9000, 3, 4, 0];
            assert!(message(&mut session)?.is_words(&request));
            receive(&mut session, answer)?;
            let peer = session.exchange.peer();
            assert_eq!((peer.receive_size, peer.reverse), (size, reverse));
            let answered = session.exchange.view().answered.receive_size;
            assert_eq!(
                answered,
                Some(Answered {
                    asked: 9000,
                    set: (size != 8192).then_some(size),
                })
            );
            // It is over, and is not asked for again.
            assert_eq!(settle(&mut session), 0);
            session.exchange.probe();
            assert_eq!(settle(&mut session), 1);
        }
        Ok(())
    }

    /// Section 4.2: a value is asked for once, until the peer tells another one or something else
    /// is wanted; what the peer has, or has never told, is not asked for.
    #[test]
    fn a_request_is_made_once() -> Result {
        let mut session = speaking(Role::Server)?;
        let wants = |reverse| Told {
            invalidation: Some(EARLIER.invalidation),
            reverse: Some(reverse),
            ..Told::default()
        };
        session.exchange.request(&wants(1));
        assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 2, 16, 1, 3, 4, 1]));
        // It is rejected, and then the client takes no Calls at all any more.
        receive(&mut session, &[1, 2, 9, 5, 1, 3, 16, 0, 1, 1, 0])?;
        session.exchange.request(&wants(1));
        assert_eq!(settle(&mut session), 0);
        receive(&mut session, &[X, 2, 9, 5, 0, 4, 16, 1, 3, 4, 0])?;
        assert!(message(&mut session)?.is_words(&[2, 2, 32, 5, 0, 2, 16, 1, 3, 4, 1]));
        // Something else is wanted before the answer, which counts for nothing then.
        session.exchange.request(&wants(2));
        receive(&mut session, &[2, 2, 9, 5, 1, 3, 16, 0, 1, 1, 0])?;
        assert!(message(&mut session)?.is_words(&[3, 2, 32, 5, 0, 2, 16, 1, 3, 4, 2]));
        receive(&mut session, &[3, 2, 9, 5, 1, 3, 16, 1, 1, 0, 0])?;
        assert_eq!(settle(&mut session), 0);
        assert_eq!(session.exchange.peer().reverse, 2);
        // A client that has told one property is asked for no other one.
        let mut session = Session::new(&Config {
            earlier: Some(EARLIER),
            ..config(Role::Server)
        });
        receive(&mut session, &[X, 2, 9, 5, 0, 1, 20, 1, 2, 4, 1, 0])?;
        settle(&mut session);
        session.exchange.request(&wants(2));
        assert_eq!(settle(&mut session), 0);
        Ok(())
    }

    /// Section 3.1: an end that has asked for shorter Receives sends no longer messages until it is
    /// answered; and one that has asked for longer ones not before it has them.
    #[test]
    fn a_smaller_size_counts_when_it_is_asked_for() -> Result {
        let wants = |size| Told {
            receive_size: Some(size),
            ..Told::default()
        };
        for (answer, size) in [
            // Rejected, done, and something between.
            (&[1, 2, 9, 5, 1, 3, 16, 0, 1, 1, 0][..], 8192),
            (&[1, 2, 9, 5, 1, 3, 16, 1, 1, 0, 0], 5000),
            (&[1, 2, 9, 5, 1, 3, 24, 0, 0, 1, 1, 4, 6000], 6000),
        ] {
            let mut session = speaking(Role::Client)?;
            assert_eq!(session.terms().send_size, 8192);
            session.exchange.request(&wants(5000));
            assert_eq!(session.terms().send_size, 5000);
            assert!(message(&mut session)?.is_words(&[1, 2, 32, 5, 0, 2, 16, 1, 1, 4, 5000]));
            assert_eq!(session.terms().send_size, 5000);
            receive(&mut session, answer)?;
            assert_eq!(session.terms().send_size, size);
        }
        let mut session = speaking(Role::Client)?;
        session.exchange.request(&wants(9000));
        settle(&mut session);
        assert_eq!(session.terms().send_size, 8192);
        Ok(())
    }

    /// Section B 3.1: a peer that does not know one operation gets no other one, and is still
    /// answered.
    #[test]
    fn a_peer_without_operations_gets_none() -> Result {
        for (error, is_known) in [([0, 2, 9, 4, 3], false), ([X, 2, 9, 4, 3], true)] {
            let mut session = speaking(Role::Client)?;
            assert!(is_answered(&mut session, &error, &[])?);
            session.exchange.probe();
            assert_eq!(settle(&mut session), u32::from(is_known));
            let request = [X, 2, 9, 5, 0, 2, 4, 0];
            let answer = [X, 2, 32, 5, 1, 3, 12, 0, 0, 0];
            assert!(is_answered(&mut session, &request, &answer)?);
        }
        Ok(())
    }

    /// An RPC that was answered in a message nobody knows has an end.
    #[test]
    fn an_unknown_reply_ends_its_rpc() -> Result {
        let mut session = speaking(Role::Client)?;
        let words = [X, 2, 9, 5, 1, 63, 0, X, 1, 0];
        let ended = received(&mut session, &words, |event| {
            matches!(event, Event::Unreadable { xid: X })
        })?;
        assert!(ended);
        assert!(message(&mut session)?.is_words(&[X, 2, 32, 4, 3]));
        let words = [X, 2, 77, 5, 1, 4, 4, 0];
        let granted = received(&mut session, &words, |event| {
            matches!(
                event,
                Event::Optional {
                    credits: Some(77),
                    ..
                }
            )
        })?;
        assert!(granted);
        Ok(())
    }

    /// Answers wait for Sends, and there is an end to it.
    #[test]
    fn a_peer_that_takes_no_answers_is_disconnected() -> Result {
        let mut session = speaking(Role::Server)?;
        for _ in 0..MAX_ANSWERS {
            receive(&mut session, &[X, 2, 9, 5, 0, 2, 4, 0])?;
            assert!(!session.is_closing());
        }
        receive(&mut session, &[X, 2, 9, 5, 0, 2, 4, 0])?;
        let close = Action::Close(Reason::TooManyErrors);
        assert_eq!(act(&mut session), Some(close));
        Ok(())
    }
}
