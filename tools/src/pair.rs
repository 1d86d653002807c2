// SPDX-License-Identifier: GPL-2.0

//! Two sessions back to back: the whole protocol without hardware.
//!
//! Each end makes Calls, answers those of the other end, and does what its session says. A byte of
//! the schedule says what happens next, so that fuzzers and property tests find the orders in which
//! something goes wrong. What must never happen is checked at each step; in the end both get enough
//! Receives, everything is delivered, and then every RPC must have ended.
//!
//! There are two kinds of ends. Those of [`run`] give up what does not fit the window: they send an error
//! instead of a Reply. Those of [`run_patiently`] wait for ever, as the module does ([`patient`]).

use std::collections::{
    HashMap,
    VecDeque, //
};

use crate::proto::{
    chunk::{
        Limits,
        Segment, //
    },
    continuation::{
        Part,
        Split, //
    },
    props::{
        Properties,
        Reverse, //
    },
    session::{
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
    v2::{
        Body,
        CallExternal,
        CallInline,
        Direction,
        Header,
        Middle,
        RdmaError,
        ReplyExternal,
        ReplyInline, //
    }, //
};

mod patient;

use self::patient::{
    Bounds,
    Patience, //
};

/// The handle and address of all chunks. Nothing is moved by RDMA here.
const SEGMENT: Segment = Segment {
    handle: 7,
    length: 1 << 16,
    offset: 0x1000,
};

/// The longest RPC message in octets.
const MAX_LEN: u32 = 2400;

/// How an RPC has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It has not.
    Pending,
    /// With its Reply.
    Replied,
    /// With an error.
    Failed,
}

/// An RPC message that an end has to send.
#[derive(Clone, Copy, Debug)]
struct Todo {
    /// Whether it is a Call or a Reply.
    direction: Direction,
    /// Its transaction ID.
    xid: u32,
    /// Its length in octets.
    len: u32,
    /// Of a Call, the length of its Reply. Of a Reply, zero.
    reply_len: u32,
    /// Of a Reply, whether the Call had a Reply chunk.
    chunk: bool,
}

/// One end.
struct End {
    /// Its role.
    role: Role,
    /// Its session on the present connection.
    session: Session,
    /// What is on its way to it.
    wire: VecDeque<Vec<u8>>,
    /// Whether RPC messages may be sent.
    connected: bool,
    /// Messages of the session the Sends of which have not completed.
    in_transit: u32,
    /// What it has to send.
    todo: VecDeque<Todo>,
    /// Its RPCs.
    rpcs: HashMap<u32, (Todo, Outcome)>,
    /// The transaction ID of its next RPC. Both ends use the same ones.
    next_xid: u32,
    /// The RPC message that is coming in parts.
    assembly: Vec<u8>,
    /// The credit value that it has told last.
    told: Option<u32>,
    /// What it has if it waits.
    patience: Patience,
}

/// What has happened, to see that a schedule reaches what it is meant to reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// RPCs that ended with their Reply.
    pub replied: u32,
    /// RPCs that ended with an error.
    pub failed: u32,
    /// RPC messages that were sent in parts.
    pub continued: u32,
    /// RPC messages that were sent in a chunk.
    pub external: u32,
    /// Messages that had to wait for credits.
    pub waits: u32,
    /// Messages that were too long for the window.
    pub too_long: u32,
    /// Messages that the client does not support.
    pub unsupported: u32,
    /// GRANTs.
    pub grants: u32,
    /// Errors.
    pub errors: u32,
    /// Connections that were lost while RPCs were pending.
    pub lost: u32,
    /// Messages that were sent while the same transaction ID was in use in the other direction.
    pub same_xid: u32,
    /// Times that both ends had a message in parts and no credits for it.
    pub both_wait: u32,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Self) {
        self.replied += other.replied;
        self.failed += other.failed;
        self.continued += other.continued;
        self.external += other.external;
        self.waits += other.waits;
        self.too_long += other.too_long;
        self.unsupported += other.unsupported;
        self.grants += other.grants;
        self.errors += other.errors;
        self.lost += other.lost;
        self.same_xid += other.same_xid;
        self.both_wait += other.both_wait;
    }
}

/// Two ends and their connection.
struct Pair {
    /// The client and the server.
    ends: [End; 2],
    /// What the ends were made with.
    configs: [Config; 2],
    /// How many messages count as sent when a connection begins.
    start: u32,
    /// Whether messages in parts are given up if they have to wait.
    impatient: bool,
    /// What has happened.
    seen: Seen,
}

/// What the schedule says.
struct Schedule<'a> {
    /// The rest of it.
    bytes: &'a [u8],
}

impl Schedule<'_> {
    /// Returns the next byte, or nothing at the end.
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// Returns the next byte, or zero at the end.
    fn any(&mut self) -> u32 {
        self.next().unwrap_or(0).into()
    }
}

/// Returns the octets of an RPC message.
fn payload(direction: Direction, xid: u32, len: u32, reply_len: u32) -> Vec<u8> {
    let direction = match direction {
        Direction::Call => 0_u32,
        Direction::Reply => 1,
    };
    let words = (0..len / 4).map(|index| match index {
        0 => xid,
        1 => direction,
        2 => reply_len,
        index => xid.wrapping_mul(0x9e37_79b9).wrapping_add(index),
    });
    let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    bytes.resize(len as usize, 0xee);
    bytes
}

impl End {
    /// Returns its properties on a new connection.
    fn reset(&mut self, config: &Config, start: u32) {
        self.session = Session::after(config, start);
        self.wire.clear();
        self.connected = false;
        self.in_transit = 0;
        self.told = None;
        self.assembly.clear();
        if let Some(bounds) = self.patience.bounds {
            self.become_patient(bounds, config.receives + 1);
        }
        // Calls are sent again; Replies belong to the old connection.
        self.todo.clear();
        let mut again: Vec<Todo> = self
            .rpcs
            .values()
            .filter(|(_, outcome)| *outcome == Outcome::Pending)
            .map(|(todo, _)| *todo)
            .collect();
        again.sort_by_key(|todo| todo.xid);
        self.todo.extend(again);
    }

    /// Handles an event.
    fn handle(&mut self, event: &Event<'_>, refuse: bool) {
        match event {
            Event::Nothing | Event::Properties { .. } => {}
            Event::Message { header, extent } => self.handle_message(header, *extent, refuse),
            Event::Abandoned { .. } => panic!("nobody gives up a sequence"),
            Event::Spoilt { .. } => panic!("every Reply is one"),
            Event::Failed { xid, .. } => self.end(*xid, Outcome::Failed),
            Event::Fallback { .. } | Event::Foreign(_) => panic!("both speak Version Two"),
        }
    }

    /// Takes note that an RPC of this end has ended.
    fn end(&mut self, xid: u32, outcome: Outcome) {
        let rpc = self.rpcs.get_mut(&xid).expect("an RPC of ours");
        assert_eq!(rpc.1, Outcome::Pending, "an RPC ends once");
        rpc.1 = outcome;
    }

    /// Handles an RPC message or a part of it.
    fn handle_message(&mut self, header: &Header<'_>, extent: Extent, refuse: bool) {
        let whole = match extent {
            Extent::First(placed) => {
                assert!(self.assembly.is_empty() && placed.offset == 0);
                self.assembly.extend(header.payload());
                if refuse
                    && matches!(
                        header.body,
                        Body::Middle {
                            direction: Direction::Call,
                            ..
                        }
                    )
                {
                    self.session.refuse_assembly(RdmaError::System);
                    self.assembly.clear();
                }
                return;
            }
            Extent::Part(placed) | Extent::Last(placed) => {
                assert_eq!(placed.offset as usize, self.assembly.len());
                self.assembly.extend(header.payload());
                if matches!(extent, Extent::Part(_)) {
                    assert!(self.assembly.len() < placed.total as usize);
                    return;
                }
                assert_eq!(self.assembly.len(), placed.total as usize);
                std::mem::take(&mut self.assembly)
            }
            Extent::Whole => header.payload().to_vec(),
        };
        match header.body {
            Body::CallInline { offer, .. } => {
                let word = |at: usize| u32::from_be_bytes(whole[at..at + 4].try_into().unwrap());
                let (len, reply_len) = (whole.len() as u32, word(8));
                assert_eq!(whole, payload(Direction::Call, header.xid, len, reply_len));
                self.answer(header.xid, reply_len, offer.reply.is_some());
            }
            // What an RDMA Read would bring is the length of the Reply, in the chunk's length.
            Body::CallExternal(offer) => {
                let reply_len = offer.call.total() - MAX_LEN;
                self.answer(header.xid, reply_len, offer.reply.is_some());
            }
            Body::ReplyInline { .. } => {
                let len = whole.len() as u32;
                assert_eq!(whole, payload(Direction::Reply, header.xid, len, 0));
                self.replied(header.xid, len);
            }
            Body::ReplyExternal { reply, .. } => self.replied(header.xid, reply.total()),
            _ => unreachable!("not an RPC message"),
        }
    }

    /// Has a Reply sent.
    fn answer(&mut self, xid: u32, len: u32, chunk: bool) {
        self.todo.push_back(Todo {
            direction: Direction::Reply,
            xid,
            len,
            reply_len: 0,
            chunk,
        });
    }

    /// Takes note of a Reply.
    fn replied(&mut self, xid: u32, len: u32) {
        assert_eq!(self.rpcs[&xid].0.reply_len, len, "somebody else's Reply");
        self.end(xid, Outcome::Replied);
    }

    /// Returns whether messages with chunks may be sent.
    fn may_use_chunks(&self, direction: Direction) -> bool {
        let is_reverse = (self.role == Role::Server) == (direction == Direction::Call);
        !is_reverse || self.session.reverse() == Reverse::General
    }
}

impl Pair {
    /// Two ends as the schedule wants them, which wait as `bounds` say, or give up.
    fn new(schedule: &mut Schedule<'_>, bounds: Option<Bounds>) -> Self {
        let start = [0, 0x7fff_fff0, 0xffff_fff0][schedule.any() as usize % 3];
        let level = schedule.any() % 4;
        let configs = [Role::Client, Role::Server].map(|role| {
            let size = 96 + schedule.any() * 4;
            Config {
                role,
                low: 1,
                high: 2,
                earlier: false,
                own: Properties {
                    send_size: 96 + schedule.any() * 8,
                    receive_size: size,
                    segment_size: 1 << 20,
                    segment_count: 16,
                    reverse: level,
                },
                authenticate: false,
                receives: {
                    let wanted = 1 + schedule.any() % 12;
                    bounds.map_or(wanted, |bounds| bounds.capacity(role, wanted) - 1)
                },
                credits_in_one: 1,
                limits: Limits::DEFAULT,
                read_chunks: 4,
                write_chunks: 4,
                max_assembly: MAX_LEN,
            }
        });
        let mut ends = configs.map(|config| End {
            role: config.role,
            session: Session::after(&config, start),
            wire: VecDeque::new(),
            connected: false,
            in_transit: 0,
            todo: VecDeque::new(),
            rpcs: HashMap::new(),
            next_xid: 0,
            assembly: vec![],
            told: None,
            patience: Patience::default(),
        });
        if let Some(bounds) = bounds {
            for (end, config) in ends.iter_mut().zip(&configs) {
                end.become_patient(bounds, config.receives + 1);
            }
        }
        Self {
            ends,
            configs,
            start,
            impatient: false,
            seen: Seen::default(),
        }
    }

    /// Puts a message on its way.
    fn post(&mut self, from: usize, message: Vec<u8>) {
        let (sender, receiver) = self.two(from);
        let max = sender.session.terms().send_size;
        assert!(message.len() <= max as usize, "longer than agreed");
        let credits = u32::from_be_bytes(message[8..12].try_into().unwrap());
        if let Some(told) = sender.told.replace(credits) {
            assert!(
                credits.wrapping_sub(told) < 0x8000_0000,
                "a limit goes back"
            );
        }
        receiver.wire.push_back(message);
        // There is a Receive for each message on its way.
        let posted = receiver.session.windows().1.must_be_posted();
        assert!(
            receiver.wire.len() <= posted as usize,
            "no Receive is posted"
        );
        receiver.check_receives();
    }

    /// Returns an end and the one opposite.
    fn two(&mut self, this: usize) -> (&mut End, &mut End) {
        let [client, server] = &mut self.ends;
        match this {
            0 => (client, server),
            _ => (server, client),
        }
    }

    /// Makes a new RPC, if there can be one.
    fn call(&mut self, at: usize, schedule: &mut Schedule<'_>) {
        let len = 12 + (schedule.any() * 9) % (MAX_LEN - 12);
        let reply_len = 12 + (schedule.any() * 9) % (MAX_LEN - 12);
        let level = Reverse::from_code(self.configs[0].own.reverse);
        let end = &self.ends[at];
        if end.role == Role::Server && level == Reverse::None {
            return;
        }
        if !self.has_slot(at) {
            return;
        }
        let end = &mut self.ends[at];
        let xid = end.next_xid;
        end.next_xid += 1;
        let todo = Todo {
            direction: Direction::Call,
            xid,
            len,
            reply_len,
            chunk: false,
        };
        end.rpcs.insert(xid, (todo, Outcome::Pending));
        end.todo.push_back(todo);
    }

    /// Tries to send one of the messages that are waiting. Returns whether it is done with.
    fn send(&mut self, at: usize, index: usize) -> bool {
        if let Some(bounds) = self.ends[at].patience.bounds {
            return self.send_patiently(at, index, &bounds);
        }
        let impatient = self.impatient;
        let end = &mut self.ends[at];
        if end.todo.is_empty() {
            return false;
        }
        let index = index % end.todo.len();
        let todo = end.todo[index];
        let may_use_chunks = end.may_use_chunks(todo.direction);
        let segments = [SEGMENT];
        let call = CallInline {
            xid: todo.xid,
            credits: 0,
            inv_handle: if may_use_chunks { SEGMENT.handle } else { 0 },
            read: &[],
            write: &[],
            reply: may_use_chunks.then_some(&segments[..]),
        };
        let reply = ReplyInline {
            xid: todo.xid,
            credits: 0,
            write: &[],
        };
        let header_len = match todo.direction {
            Direction::Call => call.encoded_len(),
            Direction::Reply => reply.encoded_len(),
        };
        let size = end.session.terms().send_size;
        let split = Split::new(todo.len, header_len.unwrap(), size);
        let mut outbound = Outbound {
            direction: todo.direction,
            parts: split.map_or(u32::MAX, |split| split.len()),
            chunks: todo.direction == Direction::Call && may_use_chunks,
        };
        match end.session.start_send(&outbound) {
            Ok(credits) => {
                end.todo.remove(index);
                let split = split.expect("it has parts");
                self.seen.continued += u32::from(split.len() > 1);
                let other = self.ends[1 - at].rpcs.get(&todo.xid);
                let is_used = other.is_some_and(|(_, outcome)| *outcome == Outcome::Pending);
                let is_call = todo.direction == Direction::Call;
                self.seen.same_xid += u32::from(is_used && is_call);
                self.post_parts(at, &todo, &split, credits, may_use_chunks);
                return true;
            }
            Err(Refusal::NotConnected) => return false,
            Err(Refusal::Wait) if !(impatient && outbound.parts > 1) => {
                self.seen.waits += 1;
                return false;
            }
            Err(Refusal::Wait) => {}
            Err(Refusal::TooLong) => self.seen.too_long += 1,
            Err(Refusal::Unsupported) => self.seen.unsupported += 1,
        }

        // Not in this way. Then in a chunk, if there is one, or with an error.
        let chunk = match todo.direction {
            Direction::Call => may_use_chunks,
            Direction::Reply => todo.chunk && may_use_chunks,
        };
        outbound.parts = 1;
        outbound.chunks = true;
        if !chunk {
            match todo.direction {
                Direction::Call if end.connected && !end.supports_any() => return false,
                Direction::Call => end.end(todo.xid, Outcome::Failed),
                Direction::Reply => {
                    let error = RdmaError::ReplyResource { needed: todo.len };
                    if end.session.report(todo.xid, error).is_err() {
                        return false;
                    }
                }
            }
            end.todo.remove(index);
            return true;
        }
        let Ok(credits) = end.session.start_send(&outbound) else {
            return false;
        };
        end.todo.remove(index);
        let todo = Todo {
            chunk: may_use_chunks,
            ..todo
        };
        self.post_external(at, &todo, credits);
        true
    }

    /// Posts an RPC message that is in a chunk.
    fn post_external(&mut self, at: usize, todo: &Todo, credits: u32) {
        let mut buf = vec![0; self.ends[at].session.terms().send_size as usize];
        let segments = [SEGMENT];
        let len = match todo.direction {
            Direction::Call => CallExternal {
                common: CallInline {
                    xid: todo.xid,
                    credits,
                    inv_handle: SEGMENT.handle,
                    read: &[],
                    write: &[],
                    reply: todo.chunk.then_some(&segments[..]),
                },
                call: &[Segment {
                    length: MAX_LEN + todo.reply_len,
                    ..SEGMENT
                }],
            }
            .encode(&mut buf),
            Direction::Reply => ReplyExternal {
                xid: todo.xid,
                credits,
                write: &[],
                reply: &[Segment {
                    length: todo.len,
                    ..SEGMENT
                }],
            }
            .encode(&mut buf),
        };
        buf.truncate(len.expect("it fits"));
        self.seen.external += 1;
        self.post(at, buf);
    }

    /// Posts all parts of an RPC message.
    fn post_parts(&mut self, at: usize, todo: &Todo, split: &Split, credits: u32, chunk: bool) {
        let whole = payload(todo.direction, todo.xid, todo.len, todo.reply_len);
        let segments = [SEGMENT];
        let parts: Vec<Part> = split.parts().collect();
        for part in parts {
            let mut buf = vec![0; 256];
            let len = match (part.is_last(), todo.direction) {
                (false, direction) => Middle {
                    direction,
                    xid: todo.xid,
                    credits,
                    remaining: part.remaining,
                }
                .encode(&mut buf),
                (true, Direction::Call) => CallInline {
                    xid: todo.xid,
                    credits,
                    inv_handle: if chunk { SEGMENT.handle } else { 0 },
                    read: &[],
                    write: &[],
                    reply: chunk.then_some(&segments[..]),
                }
                .encode(&mut buf),
                (true, Direction::Reply) => ReplyInline {
                    xid: todo.xid,
                    credits,
                    write: &[],
                }
                .encode(&mut buf),
            };
            buf.truncate(len.unwrap());
            let range = part.offset as usize..(part.offset + part.len) as usize;
            buf.extend(&whole[range]);
            self.post(at, buf);
        }
    }

    /// Delivers a message to an end, if one is on its way.
    fn deliver(&mut self, at: usize, refuse: bool) -> bool {
        let end = &mut self.ends[at];
        let Some(message) = end.wire.pop_front() else {
            return false;
        };
        let waits = end.patience.bounds.is_some();
        if waits {
            end.hold();
        }
        let before = end.todo.len();
        let mut session = end.session;
        let event = session.handle_received(&message);
        end.session = session;
        end.handle(&event, refuse && !waits);
        if waits {
            end.release(end.todo.len() > before);
        }
        true
    }

    /// Does what the session of an end says next. Returns whether there was anything.
    fn act(&mut self, at: usize, busy: bool) -> bool {
        let end = &mut self.ends[at];
        end.update_offer();
        match end.session.poll_action(busy) {
            None => return false,
            Some(Action::Send(control)) => {
                end.in_transit += 1;
                self.seen.grants += u32::from(matches!(control, Control::Grant(_)));
                self.seen.errors += u32::from(matches!(control, Control::Error(_)));
                let mut buf = vec![0; 256];
                let len = control.encode(&mut buf).unwrap();
                buf.truncate(len);
                self.post(at, buf);
            }
            Some(Action::Connected(_)) => end.connected = true,
            Some(Action::Agreed(_) | Action::Wake) => {}
            Some(Action::Close(reason)) => panic!("two good ends disconnect: {reason:?}"),
        }
        true
    }

    /// Has the Send of a message of the session complete.
    fn complete(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        if end.in_transit == 0 {
            return false;
        }
        end.in_transit -= 1;
        end.session.handle_sent();
        true
    }

    /// Loses the connection, and makes a new one.
    fn reconnect(&mut self) {
        let is_pending = |end: &End| {
            let mut rpcs = end.rpcs.values();
            rpcs.any(|(_, outcome)| *outcome == Outcome::Pending)
        };
        self.seen.lost += u32::from(self.ends.iter().any(is_pending));
        for (end, config) in self.ends.iter_mut().zip(&self.configs) {
            end.reset(config, self.start);
        }
    }

    /// Does one thing.
    fn step(&mut self, what: u8, schedule: &mut Schedule<'_>) {
        let at = usize::from(what >> 7);
        match what & 0x1f {
            0..=4 => self.call(at, schedule),
            5..=13 => drop(self.deliver(at, what & 0x60 == 0x60)),
            14..=19 => drop(self.send(at, usize::from(what >> 5))),
            20..=26 => while self.act(at, what & 0x40 != 0) {},
            27..=28 => drop(self.complete(at)),
            29 | 30 if self.ends[at].patience.bounds.is_some() => {
                let _ = self.prepare(at, what & 0x20 != 0);
            }
            29 | 30 => {
                let receives = schedule.any() % 16;
                self.ends[at].session.set_receives(receives);
            }
            _ if what == 0xff => self.reconnect(),
            _ => drop(self.act(at, false)),
        }
    }

    /// Gives both ends what they need, and has everything come to its end.
    fn settle(&mut self) {
        for end in &mut self.ends {
            let offer = end.session.windows().1.offer();
            end.session.set_receives(offer.max(1));
            end.update_offer();
        }
        for round in 0.. {
            assert!(round < 100_000, "two ends talk for ever");
            let mut progress = false;
            for at in 0..2 {
                while self.act(at, false) {
                    progress = true;
                }
                progress |= self.deliver(at, false);
                progress |= self.complete(at);
                progress |= self.prepare(at, false);
                for index in 0..self.ends[at].todo.len().max(1) {
                    progress |= self.send(at, index);
                }
            }
            if !progress {
                // Whoever has nothing on its way does not wait for many credits at once.
                if std::mem::replace(&mut self.impatient, true) {
                    return;
                }
            }
        }
    }
}

impl End {
    /// Returns whether the peer has told that it supports any Call of this end.
    fn supports_any(&self) -> bool {
        self.role == Role::Client || self.session.reverse() != Reverse::None
    }
}

/// Runs two sessions back to back and checks that nothing goes wrong, whatever the schedule. Returns
/// what has happened.
///
/// # Panics
///
/// If something does.
pub fn run(bytes: &[u8]) -> Seen {
    run_with(Schedule { bytes }, None)
}

/// As [`run`], with ends that do what the module does: what has to wait for credits waits for ever.
/// `short` gives the client fewer Receives than the module has.
///
/// # Panics
///
/// If something goes wrong, as it may if they are `short`.
pub fn run_patiently(bytes: &[u8], short: bool) -> Seen {
    let mut schedule = Schedule { bytes };
    let bounds = Bounds::new(&mut schedule, short);
    run_with(schedule, Some(bounds))
}

/// Runs the rest of a schedule.
fn run_with(mut schedule: Schedule<'_>, bounds: Option<Bounds>) -> Seen {
    let mut pair = Pair::new(&mut schedule, bounds);
    while let Some(what) = schedule.next() {
        pair.step(what, &mut schedule);
    }
    pair.settle();

    for end in &pair.ends {
        assert!(end.wire.is_empty() && end.assembly.is_empty());
        assert!(
            end.todo.is_empty() && end.is_idle(),
            "a message waits for ever: {:?}, {:?}, {:?}",
            end.role,
            end.session.windows(),
            end.patience
        );
        assert!(!end.session.is_peer_in_sequence());
        for (xid, (_, outcome)) in &end.rpcs {
            match outcome {
                Outcome::Pending => panic!("RPC {xid} does not end"),
                Outcome::Replied => pair.seen.replied += 1,
                Outcome::Failed => pair.seen.failed += 1,
            }
        }
        let (outgoing, incoming) = end.session.windows();
        assert!(outgoing.available() > 0, "an end could not go on");
        assert_eq!(incoming.remaining().min(0), 0);
    }
    let [client, server] = &pair.ends;
    for (from, to) in [(client, server), (server, client)] {
        let sent = from.session.windows().0.sent();
        assert_eq!(sent, to.session.windows().1.received());
    }
    pair.seen
}
