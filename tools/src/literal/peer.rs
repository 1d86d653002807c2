// SPDX-License-Identifier: GPL-2.0

//! The rules of the peer, from the text. Section numbers are those of
//! draft-ietf-nfsv4-rpcrdma-version-two-07.

use std::collections::{
    HashMap,
    VecDeque, //
};

use super::{
    run::{
        payload,
        End,
        Rpc,
        Tables, //
    },
    wire::{
        self,
        kind,
        Parsed, //
    },
    Counted,
    First,
    Reading,
    Remaining,
    Told, //
};

/// The inline threshold without an exchange of properties (4.2.2).
const THRESHOLD: usize = 4096;

/// RPCs after which properties are late.
const LATE: u32 = 5;

/// Octets of data that a chunk moves for an RPC that has some.
const DATA: u32 = 8192;

/// An RPC message to be sent.
#[derive(Clone, Debug)]
struct Outgoing {
    /// Its transaction ID.
    xid: u32,
    /// What of it goes behind headers.
    bytes: Vec<u8>,
    /// How much has gone.
    at: usize,
    /// Octets of a Read chunk.
    data: u32,
    /// Whether a Call offers a Reply chunk.
    offers: bool,
}

/// One end of a connection, as the text has it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// How it reads the text.
    reading: Reading,
    /// Messages sent, received, the credits advertised, and those received (4.2.1).
    sent: u32,
    received: u32,
    advertised: u32,
    credits: u32,
    /// The credit value that was sent last.
    told: u32,
    /// Set when it has received something, and when it has sent something.
    has_heard: bool,
    has_spoken: bool,
    /// Its CONNPROP_FINAL was sent.
    has_told: bool,
    /// Whether properties were begun.
    has_begun: bool,
    /// The threshold of the other end.
    threshold: usize,
    /// RPC messages to be sent, in this order.
    queue: VecDeque<Outgoing>,
    /// What has come of an RPC message.
    assembly: Vec<u8>,
    /// Reply chunks that are offered to it, by transaction ID.
    offered: HashMap<u32, u32>,
    /// RPCs that it has been asked for, or has seen answered.
    rpcs: u32,
    /// Seconds before it may speak.
    silent: u32,
    /// Whether the last message sent was a GRANT that nothing has followed.
    pub(super) grants: u32,
}

impl Peer {
    /// A new connection: both counts are zero, one credit was received.
    pub(super) fn new(reading: &Reading) -> Self {
        Self {
            reading: *reading,
            sent: 0,
            received: 0,
            advertised: 16,
            credits: 1,
            told: 1,
            has_heard: false,
            has_spoken: false,
            has_told: false,
            has_begun: false,
            threshold: THRESHOLD,
            queue: VecDeque::new(),
            assembly: vec![],
            offered: HashMap::new(),
            rpcs: 0,
            silent: reading.answers_after,
            grants: 0,
        }
    }

    /// A second has passed.
    pub(super) fn tick(&mut self) {
        self.silent = self.silent.saturating_sub(1);
    }

    /// Whether a message counts.
    fn counts(&self, kind: u32) -> bool {
        self.reading.counts_control || kind >= kind::CALL_EXTERNAL
    }

    /// "the sum of the connection's "Sent message count" and "Advertised credits" values".
    fn credit_value(&self) -> u32 {
        let count = match self.reading.counted {
            Counted::Sent => self.sent,
            Counted::Received => self.received,
        };
        count.wrapping_add(self.advertised)
    }

    /// How many messages may be posted now.
    fn may_post(&self) -> u32 {
        let ahead = self.credits.wrapping_sub(self.sent) as i32;
        let ahead = ahead + i32::from(self.reading.greater);
        u32::try_from(ahead).unwrap_or(0)
    }

    /// Makes a message, and counts it.
    fn make(&mut self, xid: u32, kind: u32, body: &[u32], payload: &[u8]) -> Vec<u8> {
        let credit = self.credit_value();
        self.told = credit;
        let mut bytes = wire::message(xid, credit, kind, body);
        bytes.extend(payload);
        self.sent = self.sent.wrapping_add(self.counts(kind).into());
        self.has_spoken = true;
        bytes
    }

    /// Its properties: sizes of messages and of segments, segments of a header, and no Calls to it.
    fn properties(&self) -> Vec<u32> {
        let (size, count) = match self.reading.few_segments {
            true => (4096, 2),
            false => (1 << 20, 16),
        };
        let values = [4096, 4096, size, count];
        let all = (1..).zip(values).flat_map(|(code, value)| [code, 4, value]);
        std::iter::once(4).chain(all).collect()
    }

    /// Whether it is between two parts.
    fn is_in_sequence(&self) -> bool {
        self.queue.front().is_some_and(|message| message.at > 0)
    }

    /// Returns the next message to be sent, if there is one.
    pub(super) fn poll(&mut self, tables: &mut Tables) -> Option<Vec<u8>> {
        let speaks = match self.reading.is_client {
            // One message until the server has spoken (4.3).
            true => !self.has_spoken || self.has_heard,
            false => self.has_heard && self.silent == 0,
        };
        if !speaks {
            return None;
        }
        if !self.is_in_sequence() && self.may_post() > 0 {
            if let Some(message) = self.control() {
                return Some(message);
            }
        }
        if self.has_begun && !self.has_told {
            return None;
        }
        let may_grant = !self.is_in_sequence() || self.reading.grants_between;
        // A credit update may always be received (4.2.1.1).
        let left = self.told.wrapping_sub(self.received) as i32;
        let is_due = self.reading.renews && left <= self.advertised as i32 / 2;
        if may_grant && is_due && self.credit_value() != self.told && self.may_post() > 0 {
            self.grants += 1;
            return Some(self.make(0, kind::GRANT, &[], &[]));
        }
        self.send_part(tables)
    }

    /// The messages with which a connection begins.
    fn control(&mut self) -> Option<Vec<u8>> {
        let all = self.properties();
        if !self.has_spoken {
            match self.reading.first {
                First::Properties => {}
                First::Grant => return Some(self.make(0, kind::GRANT, &[], &[])),
                First::Middle => {
                    self.has_begun = true;
                    return Some(self.make(0, kind::CONNPROP_MIDDLE, &[0], &[]));
                }
                First::Call => return None,
            }
        }
        let is_time = match self.reading.told {
            Told::First => true,
            Told::Late => self.rpcs >= LATE,
            Told::Never => false,
        };
        if self.has_told || !is_time {
            return None;
        }
        self.has_told = true;
        Some(self.make(0, kind::CONNPROP_FINAL, &all, &[]))
    }

    /// Sends an RPC message, or the next part of one.
    fn send_part(&mut self, tables: &mut Tables) -> Option<Vec<u8>> {
        let next = self.queue.front()?.clone();
        let is_call = self.reading.is_client;
        // The first message of a connection may have no more (4.3).
        let threshold = if self.has_heard { self.threshold } else { 1024 };
        let header = match is_call {
            true => {
                let chunks = usize::from(next.data > 0) + usize::from(next.offers);
                wire::CALL_HEADER + wire::READ_ENTRY * chunks
            }
            false => wire::REPLY_HEADER,
        };
        let rest = next.bytes.len() - next.at;
        let room = self.offered.get(&next.xid).copied().unwrap_or(0) as usize;
        if next.at == 0 && header + rest > threshold {
            if !is_call && room >= rest {
                // "the Responder MUST use the Requester-provided Reply chunk" (6.6.3).
                if self.may_post() == 0 {
                    return None;
                }
                self.queue.pop_front();
                self.offered.remove(&next.xid);
                let [handle, _, high, low] = wire::segment(0);
                let len = rest as u32;
                let body = [0, 1, 1, handle, len, high, low];
                tables.replies.insert(next.xid, next.bytes);
                return Some(self.make(next.xid, kind::REPLY_EXTERNAL, &body, &[]));
            }
            let size = THRESHOLD.min(self.threshold) - wire::MIDDLE_HEADER;
            let parts = rest.div_ceil(size) as u32;
            let wanted = match self.reading.pauses {
                true => 1,
                // As many as it will ever have.
                false => parts.min(self.advertised / 2),
            };
            if !self.has_heard || self.may_post() < wanted {
                return None;
            }
        }
        if self.may_post() == 0 {
            return None;
        }
        if header + rest > threshold {
            let size = (threshold - wire::MIDDLE_HEADER) & !3;
            let len = size.min(rest - 4) & !3;
            let after = (rest - len) as u32;
            let remaining = match self.reading.remaining {
                Remaining::Later => after,
                Remaining::Own => rest as u32,
                Remaining::Unreduced => after + next.data,
            };
            let part = next.bytes[next.at..next.at + len].to_vec();
            self.queue.front_mut().unwrap().at += len;
            let kind = match is_call {
                true => kind::CALL_MIDDLE,
                false => kind::REPLY_MIDDLE,
            };
            return Some(self.make(next.xid, kind, &[remaining], &part));
        }
        self.queue.pop_front();
        self.offered.remove(&next.xid);
        let part = &next.bytes[next.at..];
        if !is_call {
            return Some(self.make(next.xid, kind::REPLY_INLINE, &[0], part));
        }
        let mut body = vec![0];
        if next.data > 0 {
            // A Read segment: its position is a multiple of four, not zero.
            body.extend([1, 12]);
            body.extend(wire::segment(next.data));
        }
        body.extend([0, 0]);
        if next.offers {
            body.extend([1, 1]);
            body.extend(wire::segment(1 << 16));
        } else {
            body.push(0);
        }
        Some(self.make(next.xid, kind::CALL_INLINE, &body, part))
    }

    /// Begins an RPC, if it is a client. Some offer a Reply chunk, some have data in a Read chunk.
    pub(super) fn call(&mut self, xid: u32, rpc: &Rpc) {
        let first = !self.has_spoken && self.reading.first == First::Call;
        self.queue.push_back(Outgoing {
            xid,
            bytes: payload(xid, false, if first { 64 } else { rpc.call }, rpc.reply),
            at: 0,
            data: if rpc.has_data { DATA } else { 0 },
            offers: rpc.offers,
        });
    }

    /// Takes a message in.
    pub(super) fn receive(&mut self, bytes: &[u8], tables: &mut Tables, end: &mut End) {
        let message = wire::parse(bytes);
        if message.version != 2 {
            tables.in_one = true;
            return;
        }
        self.received = self.received.wrapping_add(self.counts(message.kind).into());
        self.credits = message.credit;
        self.has_heard = true;
        match message.kind {
            kind::CONNPROP_MIDDLE | kind::CONNPROP_FINAL => {
                for (code, value) in message.properties {
                    if code == 2 {
                        self.threshold = (value as usize).min(THRESHOLD);
                    }
                }
            }
            kind::ERROR => self.hear_error(&message, end),
            kind::CALL_MIDDLE | kind::REPLY_MIDDLE => self.assembly.extend(&message.payload),
            kind::CALL_EXTERNAL => {
                let whole = tables
                    .calls
                    .remove(&message.xid)
                    .expect("it was registered");
                assert_eq!(message.call, Some(whole.len() as u32));
                self.serve(&message, &whole);
            }
            kind::CALL_INLINE => {
                let mut whole = std::mem::take(&mut self.assembly);
                whole.extend(&message.payload);
                self.serve(&message, &whole);
            }
            kind::REPLY_EXTERNAL => end.replied(message.xid, message.reply.expect("it is there")),
            kind::REPLY_INLINE => {
                let mut whole = std::mem::take(&mut self.assembly);
                whole.extend(&message.payload);
                let len = whole.len() as u32;
                assert_eq!(whole, payload(message.xid, true, len, 0));
                end.replied(message.xid, len);
            }
            _ => {}
        }
        if message.kind > kind::CONNPROP_FINAL {
            self.rpcs += 1;
        }
    }

    /// Serves a Call of the other end.
    fn serve(&mut self, message: &Parsed, whole: &[u8]) {
        if self.reading.few_segments {
            assert!(message.segments <= 2, "more segments than were told");
            assert!(message.longest <= 4096, "longer segments than were told");
        }
        let reply = u32::from_be_bytes(whole[8..12].try_into().unwrap());
        assert_eq!(
            whole,
            payload(message.xid, false, whole.len() as u32, reply)
        );
        if let Some(len) = message.reply {
            self.offered.insert(message.xid, len);
        }
        self.queue.push_back(Outgoing {
            xid: message.xid,
            bytes: payload(message.xid, true, reply, 0),
            at: 0,
            data: 0,
            offers: false,
        });
    }

    /// An error ends the RPC that it names. With a Reply chunk that is long enough it can be made
    /// again (6.6.4).
    fn hear_error(&mut self, message: &Parsed, end: &mut End) {
        self.queue.retain(|waiting| waiting.xid != message.xid);
        match message.first[0] {
            wire::ERR_REPLY_RESOURCE if message.first[1] <= 1 << 16 => end.again(message.xid),
            // Not about an RPC: a GRANT, or properties.
            _ if message.xid == 0 => {}
            code => end.failed(message.xid, code),
        }
    }
}
