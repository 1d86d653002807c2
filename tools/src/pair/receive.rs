// SPDX-License-Identifier: GPL-2.0

//! What the ends make of the messages that arrive.

use super::*;
use crate::oracle::rpc::reply_chunk_len;
use crate::proto::{
    connection::{
        incoming::{
            Answer,
            Incoming,
            IncomingPart, //
        },
        Reception, //
    },
    message::decode_call, //
};

impl End {
    /// Handles a message.
    pub(super) fn handle(&mut self, incoming: &Incoming<'_>, message: &[u8]) {
        if !self.host.receive(incoming) {
            return;
        }
        match incoming {
            Incoming::Nothing | Incoming::Properties { .. } | Incoming::Optional { .. } => {}
            Incoming::Abandoned => self.abandon(),
            Incoming::First(part) => {
                assert!(self.assembly.is_empty(), "what had come was given up");
                self.add_part(part);
            }
            Incoming::Middle(part) => self.add_part(part),
            Incoming::Call { version, last } => {
                let whole = self.collect(last.as_ref());
                self.handle_call(*version, message, whole);
            }
            Incoming::Answer(answer) if answer.ends_connection => self.abandon(),
            Incoming::Answer(answer) => {
                let whole = self.collect(answer.last.as_ref());
                self.handle_answer(answer, message, whole);
            }
            Incoming::Bad(error) => assert!(self.trouble.misled, "{error:?}"),
        }
    }

    /// Gives up what has come of an RPC message.
    fn abandon(&mut self) {
        assert!(
            self.trouble.misled,
            "nobody gives up a sequence, every Reply is one"
        );
        self.assembly.clear();
    }

    /// Adds a part to the RPC message that is coming.
    fn add_part(&mut self, part: &IncomingPart<'_>) {
        assert_eq!(part.placed.offset as usize, self.assembly.len());
        self.assembly.extend(part.bytes);
        assert!(self.assembly.len() <= part.placed.total as usize);
    }

    /// Returns the RPC message that is complete with its last part, if it has come in parts.
    fn collect(&mut self, last: Option<&IncomingPart<'_>>) -> Option<Vec<u8>> {
        let last = last?;
        self.add_part(last);
        assert_eq!(self.assembly.len(), last.placed.total as usize);
        Some(std::mem::take(&mut self.assembly))
    }

    /// Takes note that an RPC of this end has ended.
    pub(super) fn end(&mut self, xid: u32, outcome: Outcome) {
        let rpc = self.rpcs.get_mut(&xid).expect("an RPC of ours");
        assert_eq!(rpc.1, Outcome::Pending, "an RPC ends once");
        rpc.1 = outcome;
    }

    /// Takes note of an error about an RPC, if it is one of this end.
    pub(super) fn fail(&mut self, xid: u32) {
        if self.trouble.misled && !self.rpcs.contains_key(&xid) {
            return;
        }
        self.end(xid, Outcome::Failed);
    }

    /// Handles a Call, as its Responder does: from its header. What an RDMA Read would bring is the
    /// length of the Reply, in the length of the chunk.
    fn handle_call(&mut self, version: Version, message: &[u8], whole: Option<Vec<u8>>) {
        let Some(call) = decode_call(version, message) else {
            assert!(self.trouble.misled, "a Call of ours can be decoded");
            return;
        };
        // Version One has no other way for a Reply that is too long.
        let chunk = version == Version::One || call.reply_chunk().is_some();
        if strange::is_strange(call.xid) {
            // Of the Reply to a Call that nobody has made it matters only that it is sent.
            self.answer(call.xid, 12, version == Version::One);
            return;
        }
        if call.is_external() {
            let total = call.read_total().expect("it is not too long");
            self.answer(call.xid, total - MAX_LEN, chunk);
            return;
        }
        let whole = whole.unwrap_or_else(|| call.payload.to_vec());
        let reply_len = u32::from_be_bytes(whole[8..12].try_into().unwrap());
        let len = whole.len() as u32;
        assert_eq!(whole, payload(Direction::Call, call.xid, len, reply_len));
        self.answer(call.xid, reply_len, chunk);
    }

    /// Handles an answer, as its Requester does.
    fn handle_answer(&mut self, answer: &Answer<'_>, message: &[u8], whole: Option<Vec<u8>>) {
        let xid = answer.xid;
        if strange::is_strange(xid) {
            return;
        }
        let Some(reply) = &answer.reply else {
            self.fail(xid);
            return;
        };
        // RFC 8166, section 3.3.1.
        if let Some(credits) = answer.credits {
            self.connection.granted(credits);
        }
        if reply.special {
            let len = reply_chunk_len(reply).expect("it is there");
            self.replied(xid, len);
            return;
        }
        let whole = whole.unwrap_or_else(|| message[reply.header_len..].to_vec());
        let len = whole.len() as u32;
        assert_eq!(whole, payload(Direction::Reply, xid, len, 0));
        self.replied(xid, len);
    }

    /// Has a Reply sent.
    pub(super) fn answer(&mut self, xid: u32, len: u32, chunk: bool) {
        self.todo.push_back(Todo {
            direction: Direction::Reply,
            xid,
            len,
            reply_len: 0,
            chunk,
        });
    }

    /// Takes note of a Reply.
    pub(super) fn replied(&mut self, xid: u32, len: u32) {
        assert_eq!(self.rpcs[&xid].0.reply_len, len, "somebody else's Reply");
        self.end(xid, Outcome::Replied);
    }
}

impl End {
    /// Returns whether it is a client that has offered Version Two and has no answer.
    fn is_offered(&self) -> bool {
        self.role == Role::Client && self.connection.version().is_none()
    }
}

impl Pair {
    /// Delivers a message to an end, if one is on its way.
    pub(super) fn deliver(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        if end.trouble.is_deaf() {
            return false;
        }
        let Some(message) = end.wire.pop_front() else {
            return false;
        };
        end.record.receive(&message);
        let waits = end.patience.bounds.is_some();
        if waits {
            end.hold();
        }
        let calls = end.todo.len();
        let is_offered = end.is_offered();
        let reception = Reception {
            used: waits.then_some(end.patience.held),
            expects_answers: true,
        };
        let incoming = end.connection.received(&message, &reception);
        self.seen.quiet += u32::from(end.check_quiet());
        end.handle(&incoming, &message);
        let is_two = end.connection.version() == Some(Version::Two);
        if is_offered && end.connection.version() == Some(Version::One) {
            self.mishaps.fallbacks += 1;
        }
        if waits {
            end.release(is_two && end.todo.len() > calls);
        }
        self.check_dialects();
        true
    }
}
