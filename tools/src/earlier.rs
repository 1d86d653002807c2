// SPDX-License-Identifier: GPL-2.0

//! Two connections back to back which may speak the earlier protocol with version number two.
//!
//! As in [`crate::pair`], a byte of the schedule says what happens next: an end calls, answers,
//! wants something else of the connection, asks the other end for a change, or gets a message. At
//! each step the bounds are checked that the protocol leaves to its implementations: how many
//! OPTIONAL messages are on their way, how long messages are, whether a Reply has a way to travel,
//! and whether there is a Receive at the server for each Call, however many credits it has taken
//! back. In the end both ends know the same of each other, and every RPC has ended.

use std::collections::{
    HashMap,
    VecDeque, //
};

use crate::headers::{
    call_header_len,
    reply_header_len, //
};
use crate::proto::{
    chunk::{
        Limits,
        Segment, //
    },
    cm_private::CmPrivate,
    connection::{
        incoming::Incoming,
        receives::Receives,
        Connection,
        InOne,
        Reception, //
    },
    format::Usable,
    message::{
        self,
        decode_call,
        Outgoing,
        Version, //
    },
    props::{
        Properties,
        ReverseLevel, //
    },
    session::{
        Action,
        Config,
        Control,
        Outbound,
        Role, //
    },
    v2::Direction,
    v2_2016::{
        option::Content,
        props::{
            Told,
            Wishes, //
        }, //
    }, //
};

/// The credits that a client asks for, and that a server grants at first.
const CREDITS: [u32; 2] = [16, 4];

/// The longest message that a client sends, in octets.
const MOST_SENT: u32 = 12 << 10;

/// The longest RPC message in octets.
const MAX_LEN: u32 = 6000;

/// What an end may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Version One.
    One,
    /// The later protocol with number two as well.
    Two,
    /// The earlier one as well: a client does not offer the later one then, a server accepts both.
    Earlier,
}

/// One end.
struct End {
    /// Its role.
    role: Role,
    /// Its state.
    connection: Connection,
    /// What is on its way to it.
    wire: VecDeque<Vec<u8>>,
    /// The size of its Receives; while larger ones take their places, of the shorter ones.
    posted: u32,
    /// The size of the larger ones, and how many shorter ones there are still.
    growth: (u32, u32),
    /// The size of its Receives that it has told last.
    told_size: u32,
    /// Messages of the session the Sends of which have not completed.
    in_transit: u32,
    /// Calls of its own that have a credit and are not sent: how long they and their Replies are.
    waiting: VecDeque<(u32, u32)>,
    /// Receives for Calls of the peer, with those that hold one.
    receives: u32,
    /// Calls of its own without a Reply: how long that is, and whether there is a chunk for it.
    calls: HashMap<u32, (u32, bool)>,
    /// Calls of the peer that it has to answer: how long the Reply is, and whether it has a chunk.
    todo: VecDeque<(u32, u32, bool)>,
    /// The transaction ID of its next Call. Both ends, and OPTIONAL messages, use the same ones.
    next_xid: u32,
    /// Whether it has ever been called: a server has nothing to call back for before.
    was_called: bool,
    /// Whether it has ever called.
    has_called: bool,
    /// Whether the connection is over.
    closed: bool,
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// RPCs that had a Reply.
    pub replied: u32,
    /// Changes that were told.
    pub changes: u32,
    /// Requests, answered or not.
    pub requests: u32,
    /// RPC messages in a chunk.
    pub chunks: u32,
    /// Receives that the server has got back for credits that it had withdrawn.
    pub settled: u32,
    /// Larger sizes of the client's Receives.
    pub grown: u32,
}

/// Two ends.
pub struct Pair {
    /// The client and the server.
    ends: [End; 2],
    /// What has happened.
    seen: Seen,
}

/// Returns a segment of a chunk.
const fn segment(length: u32) -> Segment {
    Segment {
        handle: 7,
        length,
        offset: 0x1000,
    }
}

/// Returns the octets of an RPC message.
fn payload(xid: u32, direction: u32, reply_len: u32, len: u32) -> Vec<u8> {
    let words = [xid, direction, reply_len].into_iter();
    let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    bytes.resize(len.max(12) as usize, 0);
    bytes
}

impl End {
    /// An end of a new connection.
    fn new(role: Role, speaks: Speaks, posted: u32) -> Self {
        let wishes = Wishes {
            invalidation: true,
            takes_calls: role == Role::Server,
        };
        let config = Config {
            role,
            low: 1,
            high: if speaks == Speaks::One { 1 } else { 2 },
            earlier: (speaks == Speaks::Earlier)
                .then(|| wishes.values(posted, ReverseLevel::General)),
            own: Properties {
                // No Reply to a callback is longer than what a client sends.
                send_size: posted.max(MOST_SENT),
                receive_size: posted,
                segment_size: 1 << 20,
                segment_count: 16,
                reverse: 3,
            },
            authenticate: false,
            receives: 16,
            credits_in_one: 8,
            limits: Limits::DEFAULT,
            read_chunks: 4,
            write_chunks: 4,
            max_assembly: MAX_LEN,
        };
        let in_one = InOne {
            own: CmPrivate::DEFAULT,
            peer: CmPrivate::DEFAULT,
            calls: CREDITS[0],
        };
        let receives = match (role, speaks) {
            (Role::Server, Speaks::Earlier) => Receives::new(CREDITS[1], CREDITS[0]),
            _ => Receives::fixed(17),
        };
        Self {
            role,
            connection: Connection::new(&config, receives, in_one),
            wire: VecDeque::new(),
            posted,
            growth: (0, 0),
            told_size: 0,
            in_transit: 0,
            waiting: VecDeque::new(),
            receives: receives.allowance().granted(),
            calls: HashMap::new(),
            todo: VecDeque::new(),
            next_xid: 0,
            was_called: false,
            has_called: false,
            closed: false,
        }
    }

    /// Returns what is spoken, if that is known.
    fn version(&self) -> Option<Version> {
        self.connection.version()
    }

    /// Returns how many Calls of its own may be under way, and are: those that have a credit.
    fn window(&self) -> (u32, u32) {
        let most = match self.version() {
            Some(version) if version.rules().counts_messages => 8,
            _ => self.connection.grant().limit(),
        };
        (most, (self.calls.len() + self.waiting.len()) as u32)
    }

    /// Notes what the peer grants.
    fn granted(&mut self, credits: Option<u32>) {
        if let Some(credits) = credits {
            self.connection.granted(credits);
        }
    }

    /// As the owner of a client does when an OPTIONAL message has come, and now and then.
    fn weigh_credits(&mut self) {
        let (most, now) = self.window();
        self.connection
            .session
            .exchange
            .hold_answers(self.role == Role::Client && now > most);
    }

    /// Returns how many of these messages are Calls.
    fn calls_among(&self) -> u32 {
        let is_call = |m: &&Vec<u8>| match self.version() {
            Some(Version::Earlier) => m[15] < 2 && m[19] == 0,
            _ => false,
        };
        self.wire.iter().filter(is_call).count() as u32
    }

    /// Checks that each Call of the peer has found a Receive, or will.
    fn check_receives(&self) {
        let held = self.todo.len() as u32;
        assert!(
            held + self.calls_among() <= self.receives,
            "a Call finds no Receive"
        );
    }

    /// Renews the peer's credits for a Reply, and gives back what is not needed for them. Returns
    /// the credit value, which may be another one when the Reply is sent.
    fn renew(&mut self, seen: &mut Seen) -> u32 {
        let renewal = self.connection.begin_renewal();
        if renewal.wanted > 0 {
            self.receives += renewal.wanted;
            self.connection
                .receives_mut()
                .end_growth(renewal.wanted, true);
        }
        self.settle(seen);
        self.connection.receives().allowance().granted()
    }

    /// Gives back what is not needed for credits that were withdrawn.
    fn settle(&mut self, seen: &mut Seen) {
        let settled = self.connection.settle(self.todo.len() as u32);
        self.receives -= settled;
        seen.settled += settled;
    }

    /// Has an end begin to post larger Receives, or looks whether it has no other ones any more.
    /// Returns whether it has told the peer.
    fn grow(&mut self, size: u32) -> bool {
        if self.version() != Some(Version::Earlier) {
            return false;
        }
        let exchange = &mut self.connection.session.exchange;
        if exchange.may_grow(size) && size > self.posted {
            self.growth = (size, 5);
            exchange.begin_growth(1000);
        }
        let is_grown = exchange.is_growing() && self.growth.1 == 0;
        if is_grown {
            self.posted = self.growth.0;
            exchange.end_growth(self.posted);
        }
        is_grown
    }

    /// Checks the size that it tells: it is smaller than before only if the peer has asked for that
    /// (X 3.1).
    fn note_size(&mut self, content: &Content) {
        match content {
            Content::Connect { own, .. } => self.told_size = own.receive_size,
            Content::Update(told) => {
                if let Some(size) = told.receive_size {
                    assert!(size > self.told_size, "a smaller size, unasked");
                    self.told_size = size;
                }
            }
            Content::Respond(response) => {
                if let Some((_, change)) = response.verdicts.receive_size {
                    self.told_size = change.value();
                }
            }
            _ => {}
        }
    }

    /// Checks how many OPTIONAL messages are on their way to it: one that is not answered and one
    /// request that nobody has asked for, and as many answers as there were of those.
    fn check_optional(&self) {
        let is_optional = |m: &&Vec<u8>| m[7] == 2 && m[15] == 5 && m.len() >= 28;
        let of = |operation: u8| {
            let optional = self.wire.iter().filter(is_optional);
            optional.filter(|m| m[23] == operation).count()
        };
        assert!(of(1) + of(4) <= 1, "too many messages without an answer");
        assert!(of(2) <= 1, "too many requests");
        assert!(of(3) <= 1, "too many answers");
    }
}

impl Pair {
    /// Two ends that speak these, with Receives of these sizes.
    #[must_use]
    pub fn new(client: Speaks, server: Speaks, posted: [u32; 2]) -> Self {
        Self {
            ends: [
                End::new(Role::Client, client, posted[0].max(4096)),
                End::new(Role::Server, server, posted[1].max(4096)),
            ],
            seen: Seen::default(),
        }
    }

    /// Puts a message on its way.
    fn post(&mut self, from: usize, message: Vec<u8>) {
        let to = &mut self.ends[1 - from];
        assert!(message.len() <= to.posted as usize, "longer than a Receive");
        to.wire.push_back(message);
        if to.version() != Some(Version::Two) {
            to.check_optional();
        }
        if to.role == Role::Server && to.version() == Some(Version::Earlier) {
            to.check_receives();
        }
    }

    /// Does what an end wants to do. Returns whether there was anything.
    fn act(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        if end.connection.is_quiet() {
            assert_eq!(
                end.connection.clone().poll(),
                None,
                "it was said to be quiet"
            );
        }
        match end.connection.poll() {
            None => return false,
            Some(Action::Send(control)) => {
                end.connection.session.commit(&control);
                end.in_transit += 1;
                if let Control::Optional(message) = &control {
                    self.seen.changes += u32::from(matches!(message.content, Content::Update(_)));
                    self.seen.requests += u32::from(matches!(message.content, Content::Request(_)));
                    end.note_size(&message.content);
                }
                let mut buf = vec![0; 512];
                let len = control.encode(&mut buf).expect("it fits");
                buf.truncate(len);
                self.post(at, buf);
            }
            Some(Action::Close(_)) => end.closed = true,
            Some(Action::Connected(_) | Action::Agreed(_) | Action::Wake) => {}
        }
        true
    }

    /// Has the Sends of the session complete.
    fn complete(&mut self, at: usize) {
        let end = &mut self.ends[at];
        for _ in 0..core::mem::take(&mut end.in_transit) {
            end.connection.session.handle_sent();
        }
    }

    /// Delivers a message to an end, if one is on its way.
    fn deliver(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(bytes) = end.wire.pop_front() else {
            return false;
        };
        end.growth.1 = end.growth.1.saturating_sub(1);
        let reception = Reception {
            used: None,
            expects_answers: end.role == Role::Client || end.has_called,
        };
        let version_before = end.version();
        match end.connection.received(&bytes, &reception) {
            Incoming::Call { version, .. } => {
                let Some(call) = decode_call(version, &bytes) else {
                    panic!("what an end sends can be read: {bytes:?}");
                };
                let has_chunks = call.has_chunks();
                let is_refused =
                    end.role == Role::Client && end.connection.refuses_call(has_chunks);
                let (len, chunk) = match call.is_external() {
                    true => (call.read_total().expect("not too long") - MAX_LEN, true),
                    false => {
                        let word = &bytes[call.header_len + 8..call.header_len + 12];
                        let len = u32::from_be_bytes(word.try_into().expect("a word"));
                        (len, call.reply_chunk().is_some())
                    }
                };
                let xid = call.xid;
                // What it can do may have become less meanwhile: an error ends the RPC.
                let len = if is_refused { 0 } else { len };
                end.was_called = true;
                end.todo.push_back((xid, len, chunk));
                if !version.rules().counts_messages {
                    let unanswered = end.todo.len() as u32;
                    let receives = end.connection.receives_mut();
                    receives.used(unanswered);
                    let allowance = receives.allowance();
                    let most = allowance.granted() + allowance.withdrawn();
                    assert!(unanswered <= most, "a Call that was not granted");
                }
            }
            Incoming::Answer(answer) => {
                end.granted(answer.credits);
                let (xid, version) = (answer.xid, end.version());
                let call = end.calls.remove(&xid);
                assert!(call.is_some(), "a Reply to nothing, in {version:?}");
                self.seen.replied += u32::from(answer.reply.is_some());
            }
            Incoming::Optional { credits, .. } => {
                end.granted(credits);
                end.weigh_credits();
                if end.role == Role::Server {
                    end.settle(&mut self.seen);
                }
            }
            Incoming::Bad(error) => panic!("{error:?}"),
            Incoming::First(_) | Incoming::Middle(_) => panic!("nothing is sent in parts"),
            Incoming::Nothing | Incoming::Abandoned | Incoming::Properties { .. } => {}
        }
        assert!(version_before.is_none() || version_before == end.version());
        true
    }

    /// Posts an RPC message, if it may be sent. Returns whether it was.
    fn send(&mut self, at: usize, direction: Direction, chunks: bool, mut bytes: Vec<u8>) -> bool {
        let end = &mut self.ends[at];
        let outbound = Outbound {
            direction,
            parts: 1,
            chunks,
        };
        let Ok(credits) = end.connection.begin(&outbound) else {
            return false;
        };
        if let Some(credits) = credits {
            message::set_credits(&mut bytes, credits);
        }
        end.connection.commit(&outbound);
        self.seen.chunks += u32::from(chunks);
        self.post(at, bytes);
        true
    }

    /// Has a Call take a credit, if there is one, with a Reply of a length. It is sent later.
    fn call(&mut self, at: usize, len: u32, reply_len: u32) {
        let end = &mut self.ends[at];
        let may_call = end.was_called && end.connection.takes_calls();
        let is_early = end.role == Role::Server && !may_call;
        let (most, now) = end.window();
        if end.version().is_some() && !end.closed && !is_early && now < most {
            end.waiting.push_back((len, reply_len));
        }
    }

    /// Sends a Call that has a credit.
    fn send_call(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let terms = end.connection.terms();
        let Some((len, reply_len)) = end.waiting.pop_front() else {
            return false;
        };
        let version = end.version().expect("it has a credit");
        if end.role == Role::Server && !end.connection.takes_calls() {
            return true;
        }
        assert_eq!(terms.usable, Usable::ALL);
        let (xid, len) = (end.next_xid, len.clamp(12, MAX_LEN));
        let reply_len = reply_len.clamp(12, MAX_LEN);
        let header_len = |special, reply| {
            let read = usize::from(special);
            call_header_len(version, special, read, None, reply).expect("it is short")
        };
        let reply_header = reply_header_len(version, None, None).expect("it is short");
        let chunk = reply_header + reply_len as usize > terms.receive_size as usize;
        let reply = chunk.then_some(1);
        let special = header_len(false, reply) + len as usize > terms.send_size as usize;
        if (chunk || special) && !terms.has_chunks {
            return true;
        }
        let body = [segment(MAX_LEN + reply_len)];
        let offer = [segment(MAX_LEN)];
        let header = Outgoing {
            external: special,
            call: if special { &body } else { &[] },
            reply: (chunk || special).then_some(&offer[..]),
            ..Outgoing::new(version, Direction::Call, xid, 8)
        };
        let mut bytes = vec![0; 512];
        let end_of_header = header.encode(&mut bytes).expect("it fits");
        bytes.truncate(end_of_header);
        if !special {
            bytes.extend(payload(xid, 0, reply_len, len));
        }
        if self.send(at, Direction::Call, chunk || special, bytes) {
            let end = &mut self.ends[at];
            end.next_xid += 1;
            end.has_called = true;
            end.calls.insert(xid, (reply_len, chunk || special));
        }
        true
    }

    /// Answers the oldest Call, if there is one.
    fn answer(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(&(xid, len, chunk)) = end.todo.front() else {
            return false;
        };
        let terms = end.connection.terms();
        let Some(version) = end.version() else {
            return false;
        };
        let inline = reply_header_len(version, None, None).expect("it is short");
        let is_inline = inline + len as usize <= terms.reply_size as usize;
        assert!(is_inline || chunk, "a Reply of {len} octets has no way");
        let placed = [segment(len)];
        let credits = match end.role {
            Role::Client => 8,
            Role::Server => end.renew(&mut self.seen),
        };
        // Version One uses a chunk that is there.
        let uses = chunk && !(is_inline && version.rules().spares_reply_chunk) && len > 0;
        let header = Outgoing {
            external: uses,
            reply: uses.then_some(&placed[..]),
            ..Outgoing::new(version, Direction::Reply, xid, credits)
        };
        let mut bytes = vec![0; 512];
        let end_of_header = header.encode(&mut bytes).expect("it fits");
        bytes.truncate(end_of_header);
        if !uses {
            bytes.extend(payload(xid, 1, 0, len));
        }
        let is_sent = self.send(at, Direction::Reply, uses, bytes);
        if is_sent {
            self.ends[at].todo.pop_front();
        }
        is_sent
    }

    /// Has an end want something else of the connection, or ask the other one for a change.
    fn change(&mut self, at: usize, what: u32) {
        let end = &mut self.ends[at];
        match what % 4 {
            0 | 1 => end.connection.wish(&Wishes {
                invalidation: what & 4 != 0,
                takes_calls: what & 8 != 0,
            }),
            2 => end.connection.session.exchange.request(&Told {
                receive_size: (what & 4 != 0).then_some(what * 64),
                invalidation: (what & 8 != 0).then_some((what >> 4) & 1),
                reverse: (what & 16 != 0).then_some((what >> 5) & 1),
            }),
            _ => end.connection.session.exchange.probe(),
        }
    }

    /// As the owners do every now and then: a server takes credits back if there are too few for
    /// all, or there are to be fewer.
    fn look(&mut self, at: usize, what: u32) {
        let end = &mut self.ends[at];
        end.weigh_credits();
        if end.role == Role::Client {
            self.seen.grown += u32::from(end.grow(4096 + what * 32));
            return;
        }
        let held = end.todo.len() as u32;
        let left = if what & 1 != 0 { (what >> 1) & 15 } else { 64 };
        end.connection
            .receives_mut()
            .set_memory(64 - u64::from(left), 64);
        let limit = if what & 0x20 != 0 { what >> 6 } else { 64 };
        let before = end.connection.receives().allowance().granted();
        let changed = end.connection.review_credits(limit, held);
        let after = end.connection.receives().allowance().granted();
        assert_eq!(changed.is_some(), after != before);
        assert!(end.version() == Some(Version::Earlier) || changed.is_none());
        end.settle(&mut self.seen);
    }

    /// Does one thing. `detail` gives two further bytes.
    pub fn step(&mut self, what: u8, detail: [u8; 2]) {
        let at = usize::from(what >> 7);
        let [one, two] = detail.map(u32::from);
        match what & 0x0f {
            0..=2 => {
                self.call(at, one * 24, two * 24);
                // Some are sent at once.
                if one & 3 != 0 {
                    while self.send_call(at) {}
                }
            }
            3 if one & 7 == 0 => self.look(at, two),
            3 | 4 => drop(self.answer(at)),
            5..=8 => drop(self.deliver(at)),
            9..=11 => while self.act(at) {},
            12 | 13 => self.complete(at),
            _ => self.change(at, one),
        }
    }

    /// Does everything that is left to do, and checks what has become of it. Returns what is
    /// spoken.
    ///
    /// # Panics
    ///
    /// If something is left undone.
    pub fn settle(&mut self) -> Option<&'static str> {
        for _ in 0..10_000 {
            let mut more = false;
            for at in 0..2 {
                self.complete(at);
                while self.act(at) {
                    more = true;
                }
                more |= self.send_call(at);
                more |= self.deliver(at);
                more |= self.answer(at);
            }
            for end in &mut self.ends {
                let was_held = end.connection.session.is_quiet(u32::MAX);
                end.weigh_credits();
                more |= was_held != end.connection.session.is_quiet(u32::MAX);
                more |= end.grow(0);
            }
            if !more {
                break;
            }
        }
        let [client, server] = &self.ends;
        assert!(!client.closed && !server.closed, "the connection is over");
        // A server to which nothing was sent knows nothing.
        assert!(server
            .version()
            .is_none_or(|version| client.version() == Some(version)));
        for end in [client, server] {
            assert!(end.wire.is_empty() && end.todo.is_empty());
            assert!(end.calls.is_empty(), "{:?} waits for ever", end.role);
        }
        if client.version() == Some(Version::Earlier) {
            let [one, other] = [client, server].map(|end| &end.connection.session.exchange);
            assert_eq!(one.own(), other.peer());
            assert_eq!(other.own(), one.peer());
            let allowance = server.connection.receives().allowance();
            assert_eq!(allowance.withdrawn(), 0, "credits are withdrawn for ever");
            assert_eq!(server.receives, allowance.granted());
            assert!(client.connection.grant().limit() <= allowance.granted());
            let [one, other] = [client, server].map(|end| end.connection.terms());
            // Who receives less than it is sent offers a chunk too many, and no harm is done.
            assert!(one.send_size >= other.receive_size);
            assert!(other.send_size >= one.receive_size);
        }
        client.version()?.rules().document.to_str().ok()
    }

    /// Returns what has happened.
    #[must_use]
    pub const fn seen(&self) -> Seen {
        self.seen
    }
}

/// Runs two ends back to back over any schedule, and checks that nothing goes wrong. Returns what
/// has happened.
///
/// # Panics
///
/// If something does.
pub fn run(bytes: &[u8]) -> Seen {
    let mut bytes = bytes.iter().copied();
    let mut any = || bytes.next();
    let speaks = [Speaks::Earlier, Speaks::Earlier, Speaks::Two, Speaks::One];
    let kind = usize::from(any().unwrap_or(0));
    let sizes = [0; 2].map(|_| 4096 + u32::from(any().unwrap_or(0)) * 16);
    let mut pair = Pair::new(speaks[kind % 4], speaks[kind / 4 % 4], sizes);
    while let Some(what) = any() {
        let detail = [any().unwrap_or(0), any().unwrap_or(0)];
        pair.step(what, detail);
    }
    pair.settle();
    pair.seen()
}
