// SPDX-License-Identifier: GPL-2.0

//! What the ends make of the messages that arrive.

use super::*;

impl End {
    /// Handles an event.
    pub(super) fn handle(&mut self, event: &Event<'_>, refuse: bool) {
        match event {
            Event::Nothing | Event::Properties { .. } => {}
            Event::Message { header, extent } => {
                // A peer that has not said who it is, but goes on, does not want to.
                self.trouble.settled = true;
                self.handle_message(header, *extent, refuse);
            }
            Event::Abandoned { .. } | Event::Spoilt { .. } => {
                assert!(
                    self.trouble.misled,
                    "nobody gives up a sequence, every Reply is one"
                );
                self.assembly.clear();
            }
            Event::Failed { xid, .. } => self.fail(*xid),
            Event::Fallback { credits } => self.trouble.limit = *credits,
            Event::Foreign(_) => unreachable!("dealt with before"),
        }
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
        if strange::is_strange(header.xid) {
            // Of the Reply to a Call that nobody has made it matters only that it is sent.
            if header.purpose() == Purpose::Call {
                self.answer(header.xid, 12, false);
            }
            return;
        }
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

impl Pair {
    /// Delivers a message to an end, if one is on its way.
    pub(super) fn deliver(&mut self, at: usize, refuse: bool) -> bool {
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
        let before = end.todo.len();
        let mut session = end.session;
        let event = session.handle_received(&message);
        end.session = session;
        self.mishaps.fallbacks += u32::from(matches!(event, Event::Fallback { .. }));
        match event {
            Event::Foreign(_) => end.handle_one(&message),
            event => end.handle(&event, refuse && !waits),
        }
        if waits {
            let is_two = end.session.dialect() == Some(Dialect::Two);
            end.release(is_two && end.todo.len() > before);
        }
        self.check_dialects();
        true
    }
}
