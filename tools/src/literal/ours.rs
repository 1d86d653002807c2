// SPDX-License-Identifier: GPL-2.0

//! The module's end: `proto::connection` and `proto::format`, with an owner that does what `link/`,
//! `requester/`, `responder/` and `client/connect.rs` do with them.

use std::collections::{
    HashMap,
    VecDeque, //
};

use super::run::{
    payload,
    End,
    Rpc,
    Tables, //
};
use crate::headers::{
    CallExternal,
    CallInline,
    ReplyExternal,
    ReplyInline, //
};
use crate::oracle::rpc::reply_chunk_len;
use crate::pair::IN_ONE;
use crate::proto::{
    chunk::{
        Limits,
        Segment, //
    },
    connection::{
        incoming::{
            Answer,
            Incoming, //
        },
        receives::Receives,
        watchdog::{
            Pending,
            CHECK_INTERVAL, //
        },
        Connection,
        Reception,
        Terms, //
    },
    continuation::Split,
    error::Fault,
    format::{
        choose,
        Asked,
        CallPlan,
        CallShape,
        Continuation,
        Message,
        MessageSizes,
        ReplyFormat,
        Usable, //
    },
    message::{
        decode_call,
        Version, //
    },
    props::Properties,
    session::{
        Action,
        Config,
        Outbound,
        Reason,
        Role,
        Timer, //
    },
    v2::{
        Direction,
        Middle,
        RdmaError, //
    }, //
};

/// The size of our messages in octets (`link/channel.rs`).
const MESSAGE_SIZE: u32 = 12 << 10;
/// The longest RPC message in parts (`link/assembly.rs`).
const MAX_WHOLE: u32 = 36 << 10;
/// The most parts (`link/middles.rs`).
const MAX_PARTS: u32 = 8;
/// Seconds that a client waits for the answer to its first message (`client/connect.rs`).
const ANSWER_TIMEOUT: u32 = 5;
/// Replies that may end the connection before their RPC ends (`requester/call.rs`).
const MAX_SPOILT: u32 = 3;

/// A Reply that waits for credits.
#[derive(Clone, Debug)]
struct Waiting {
    xid: u32,
    len: u32,
    /// The length of the Reply chunk.
    room: u32,
}

/// One end of a connection.
pub(super) struct Ours {
    role: Role,
    pub(super) connection: Connection,
    /// Seconds since it began.
    age: u32,
    /// Set if the first Call has no other form than parts, and waits for their credits.
    is_patient: bool,
    /// Calls that have to be sent.
    calls: VecDeque<u32>,
    /// What they have asked for.
    asked: HashMap<u32, Asked>,
    /// Replies that have to be sent.
    replies: VecDeque<Waiting>,
    /// What has come of an RPC message.
    assembly: Vec<u8>,
    /// Why it has ended.
    pub(super) closed: Option<Reason>,
}

/// Returns what an encoder writes.
fn encoded(encode: impl FnOnce(&mut [u8]) -> Result<usize, Fault>) -> Vec<u8> {
    let mut buf = vec![0; 1024];
    let len = encode(&mut buf).expect("it fits");
    buf.truncate(len);
    buf
}

/// Returns in how many messages of a size an RPC message may come at most.
fn most_parts(size: u32) -> u32 {
    MAX_WHOLE.div_ceil(size.max(1)).clamp(1, MAX_PARTS)
}

/// Cuts memory into segments.
fn segments(len: u32, size: u32) -> Vec<Segment> {
    let size = (size & !4095).max(4096);
    (0..len.div_ceil(size))
        .map(|index| Segment {
            handle: 9,
            length: (len - index * size).min(size),
            offset: u64::from(index * size),
        })
        .collect()
}

impl Ours {
    pub(super) fn new(role: Role) -> Self {
        let config = Config {
            role,
            low: 1,
            high: 2,
            earlier: None,
            own: Properties {
                send_size: MESSAGE_SIZE,
                receive_size: MESSAGE_SIZE,
                segment_size: 1 << 20,
                segment_count: 256,
                reverse: 0,
            },
            authenticate: false,
            receives: 0,
            credits_in_one: 32,
            limits: Limits::DEFAULT,
            read_chunks: 16,
            write_chunks: 16,
            max_assembly: MAX_WHOLE,
        };
        Self {
            role,
            connection: Connection::new(&config, Receives::fixed(33), IN_ONE),
            age: 0,
            is_patient: false,
            calls: VecDeque::new(),
            asked: HashMap::new(),
            replies: VecDeque::new(),
            assembly: vec![],
            closed: None,
        }
    }

    /// Begins an RPC, or sends it again.
    pub(super) fn call(&mut self, xid: u32) {
        self.calls.push_back(xid);
    }

    /// A second has passed.
    pub(super) fn tick(&mut self) {
        self.age += 1;
        if self.role == Role::Client && self.age == ANSWER_TIMEOUT {
            self.connection.session.handle_timeout(Timer::FirstMessage);
        }
        if self.age % CHECK_INTERVAL == 0 {
            let pending = Pending {
                message: !self.replies.is_empty() || self.is_patient,
                proof: false,
                patience: 0,
            };
            let _ = self.connection.check(pending);
        }
    }

    /// Returns the messages to be sent next.
    pub(super) fn poll(&mut self, tables: &mut Tables, end: &mut End) -> Vec<Vec<u8>> {
        self.connection.update_offer(0, None);
        while let Some(action) = self.connection.poll() {
            match action {
                Action::Send(control) => {
                    self.connection.session.commit(&control);
                    self.connection.session.handle_sent();
                    return vec![encoded(|buf| control.encode(buf))];
                }
                Action::Close(reason) => self.closed = Some(reason),
                Action::Connected(_) | Action::Agreed(_) | Action::Wake => {}
            }
        }
        if self.closed.is_some() || self.connection.version() != Some(Version::Two) {
            return vec![];
        }
        match self.role {
            Role::Client => self.send_call(tables, end),
            Role::Server => self.send_reply(tables),
        }
        .unwrap_or_default()
    }

    /// Chooses the form of a Call, as `requester/send.rs` does.
    fn plan(&self, terms: &Terms, rpc: &Rpc) -> Option<CallPlan> {
        let message = |len: u32| {
            let count = segments(len, terms.segment_size).len();
            Message {
                sizes: MessageSizes {
                    head: len,
                    ..MessageSizes::default()
                },
                rest_segments: count,
                whole_segments: count,
                ..Message::default()
            }
        };
        let limit = |size, now| {
            let rest = most_parts(size).min(now);
            Continuation { data: 1, rest }
        };
        let shape = CallShape {
            version: Version::Two,
            call: message(rpc.call),
            reply: message(rpc.reply),
            call_inline: terms.send_size,
            reply_inline: terms.receive_size,
            call_parts: limit(terms.send_size, terms.parts),
            patient_parts: most_parts(terms.send_size).min(terms.max_parts),
            reply_parts: limit(terms.receive_size, u32::MAX),
            usable: Usable { ..terms.usable },
            header_segments: terms.segment_count as usize,
            answered: true,
            ddp_allowed: true,
        };
        choose(&shape).ok()
    }

    fn send_call(&mut self, tables: &mut Tables, end: &mut End) -> Option<Vec<Vec<u8>>> {
        let xid = *self.calls.front()?;
        let rpc = end.rpc(xid)?;
        let terms = self.connection.terms();
        let Some(plan) = self.plan(&terms, &rpc) else {
            self.connection.forget_refusals();
            self.calls.pop_front();
            end.failed(xid, 0);
            return None;
        };
        let outbound = Outbound {
            direction: Direction::Call,
            parts: plan.parts,
            chunks: plan.call.is_special() || plan.reply != ReplyFormat::Inline,
        };
        self.is_patient = plan.parts > terms.parts;
        let credits = self.connection.begin(&outbound).ok()??;
        self.connection.commit(&outbound);
        self.is_patient = false;
        self.calls.pop_front();
        let bytes = payload(xid, false, rpc.call, rpc.reply);
        let reply = match plan.reply {
            ReplyFormat::Inline => vec![],
            _ => segments(rpc.reply, terms.segment_size),
        };
        let call = match plan.call.is_special() {
            true => segments(rpc.call, terms.segment_size),
            false => vec![],
        };
        let asked = Asked {
            call: call.len(),
            reply: reply.len(),
            reply_len: rpc.reply,
            long_reply: plan.reply_parts > 1,
            repeatable: true,
            continued: plan.parts > 1,
            ..Asked::default()
        };
        self.asked.insert(xid, asked);
        let common = CallInline {
            xid,
            credits,
            inv_handle: 0,
            read: &[],
            write: &[],
            reply: (!reply.is_empty()).then_some(&reply),
        };
        if plan.call.is_special() {
            tables.calls.insert(xid, bytes);
            let header = CallExternal {
                common,
                call: &call,
            };
            return Some(vec![encoded(|buf| header.encode(buf))]);
        }
        let header = encoded(|buf| common.encode(buf));
        Some(parts(&bytes, &header, Direction::Call, &terms, credits))
    }

    fn send_reply(&mut self, tables: &mut Tables) -> Option<Vec<Vec<u8>>> {
        let reply = self.replies.front()?.clone();
        let terms = self.connection.terms();
        let header = |credits| {
            let header = ReplyInline {
                xid: reply.xid,
                credits,
                write: &[],
            };
            encoded(|buf| header.encode(buf))
        };
        let header_len = header(0).len();
        let split = Split::new(reply.len, header_len, terms.send_size);
        let inline = header_len as u32 + reply.len <= terms.send_size;
        let external = !inline && reply.room >= reply.len;
        let most = terms.max_parts.min(most_parts(terms.send_size));
        let parts_count = split.map_or(u32::MAX, |split| split.len());
        if !inline && !external && parts_count > most {
            let error = RdmaError::ReplyResource { needed: reply.len };
            if self.connection.session.report(reply.xid, error).is_ok() {
                self.replies.pop_front();
            }
            return None;
        }
        let outbound = Outbound {
            direction: Direction::Reply,
            parts: if inline || external { 1 } else { parts_count },
            chunks: external,
        };
        let credits = self.connection.begin(&outbound).ok()??;
        self.connection.commit(&outbound);
        self.replies.pop_front();
        if external {
            tables.replies.remove(&reply.xid);
            let chunk = [Segment {
                handle: 9,
                length: reply.len,
                offset: 0,
            }];
            let header = ReplyExternal {
                xid: reply.xid,
                credits,
                write: &[],
                reply: &chunk,
            };
            return Some(vec![encoded(|buf| header.encode(buf))]);
        }
        let bytes = payload(reply.xid, true, reply.len, 0);
        let header = header(credits);
        Some(parts(&bytes, &header, Direction::Reply, &terms, credits))
    }

    /// Takes a message in.
    pub(super) fn receive(&mut self, bytes: &[u8], end: &mut End, tables: &mut Tables) {
        let reception = Reception {
            used: Some(1),
            expects_answers: true,
        };
        let incoming = self.connection.received(bytes, &reception);
        match &incoming {
            Incoming::Optional { .. } => panic!("nobody speaks the earlier protocol"),
            Incoming::Nothing | Incoming::Properties { .. } | Incoming::Bad(_) => {}
            Incoming::Abandoned => self.assembly.clear(),
            Incoming::First(part) => {
                self.assembly.clear();
                self.assembly.extend(part.bytes);
            }
            Incoming::Middle(part) => self.assembly.extend(part.bytes),
            Incoming::Call { version, last } => {
                let Some(call) = decode_call(*version, bytes) else {
                    return;
                };
                let mut whole = std::mem::take(&mut self.assembly);
                match last {
                    Some(part) => whole.extend(part.bytes),
                    None => whole = call.payload.to_vec(),
                }
                let reply = u32::from_be_bytes(whole[8..12].try_into().unwrap());
                assert_eq!(whole, payload(call.xid, false, whole.len() as u32, reply));
                self.replies.push_back(Waiting {
                    xid: call.xid,
                    len: reply,
                    room: call.reply_chunk().map_or(0, |chunk| chunk.total()),
                });
            }
            Incoming::Answer(answer) => self.hear_answer(answer, bytes, end, tables),
        }
    }

    fn hear_answer(
        &mut self,
        answer: &Answer<'_>,
        bytes: &[u8],
        end: &mut End,
        tables: &mut Tables,
    ) {
        let xid = answer.xid;
        if answer.ends_connection {
            self.assembly.clear();
            if end.spoilt(xid) >= MAX_SPOILT {
                end.failed(xid, 1000);
            }
            return;
        }
        let (Some(reply), None) = (&answer.reply, &answer.error) else {
            let (Some(error), Some(asked)) = (answer.error, self.asked.get(&xid).copied()) else {
                return;
            };
            if !asked.is_meant_by(&error, xid) || !end.is_pending(xid) {
                return;
            }
            if self.connection.learn(&error, &asked) {
                self.calls.push_back(xid);
            } else {
                end.failed(xid, 0);
            }
            return;
        };
        if reply.special {
            let whole = tables.replies.remove(&xid).expect("it was written");
            assert_eq!(reply_chunk_len(reply), Some(whole.len() as u32));
            end.replied(xid, whole.len() as u32);
            return;
        }
        let mut whole = std::mem::take(&mut self.assembly);
        match &answer.last {
            Some(part) => whole.extend(part.bytes),
            None => whole = bytes[reply.header_len..].to_vec(),
        }
        let len = whole.len() as u32;
        assert_eq!(whole, payload(xid, true, len, 0));
        end.replied(xid, len);
    }
}

/// Returns the messages of an RPC message, the last of which has `header`.
fn parts(
    bytes: &[u8],
    header: &[u8],
    direction: Direction,
    terms: &Terms,
    credits: u32,
) -> Vec<Vec<u8>> {
    let len = bytes.len() as u32;
    let split = Split::new(len, header.len(), terms.send_size).expect("it has parts");
    let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
    split
        .parts()
        .map(|part| {
            let mut message = match part.is_last() {
                true => header.to_vec(),
                false => {
                    let middle = Middle {
                        direction,
                        xid,
                        credits,
                        remaining: part.remaining,
                    };
                    encoded(|buf| middle.encode(buf))
                }
            };
            message.extend(&bytes[part.offset as usize..(part.offset + part.len) as usize]);
            message
        })
        .collect()
}
