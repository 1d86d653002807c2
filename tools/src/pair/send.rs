// SPDX-License-Identifier: GPL-2.0

//! How the ends send RPC messages that they give up if they do not fit the window.

use super::*;

impl End {
    /// Returns whether messages with chunks may be sent.
    pub(super) fn may_use_chunks(&self, direction: Direction) -> bool {
        let is_reverse = (self.role == Role::Server) == (direction == Direction::Call);
        !is_reverse || self.connection.session.reverse() == ReverseLevel::General
    }

    /// Returns whether the peer has told that it supports any Call of this end.
    pub(super) fn supports_any(&self) -> bool {
        self.role == Role::Client || self.connection.session.reverse() != ReverseLevel::None
    }
}

impl Pair {
    /// Tries to send one of the messages that are waiting. Returns whether it is done with.
    pub(super) fn send(&mut self, at: usize, index: usize) -> bool {
        if !self.ends[at].may_send() {
            return false;
        }
        if self.ends[at].connection.session.dialect() == Some(Version::One) {
            return self.send_one(at, index);
        }
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
        let header_len = inline_header(&todo, 0, may_use_chunks).len();
        let size = end.connection.session.terms().send_size;
        let split = Split::new(todo.len, header_len, size);
        let mut outbound = Outbound {
            direction: todo.direction,
            parts: split.map_or(u32::MAX, |split| split.len()),
            chunks: todo.direction == Direction::Call && may_use_chunks,
        };
        match end.start_send(&outbound) {
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
                    if end.connection.session.report(todo.xid, error).is_err() {
                        return false;
                    }
                }
            }
            end.todo.remove(index);
            return true;
        }
        let Ok(credits) = end.start_send(&outbound) else {
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
    pub(super) fn post_external(&mut self, at: usize, todo: &Todo, credits: u32) {
        self.seen.external += 1;
        self.post(at, external(todo, credits));
    }

    /// Posts all parts of an RPC message.
    pub(super) fn post_parts(
        &mut self,
        at: usize,
        todo: &Todo,
        split: &Split,
        credits: u32,
        chunk: bool,
    ) {
        let whole = payload(todo.direction, todo.xid, todo.len, todo.reply_len);
        let parts: Vec<Part> = split.parts().collect();
        for part in parts {
            let mut message = match part.is_last() {
                true => inline_header(todo, credits, chunk),
                false => {
                    let header = Middle {
                        direction: todo.direction,
                        xid: todo.xid,
                        credits,
                        remaining: part.remaining,
                    };
                    encoded(|buf| header.encode(buf))
                }
            };
            let range = part.offset as usize..(part.offset + part.len) as usize;
            message.extend(&whole[range]);
            self.post(at, message);
        }
    }
}

/// Returns the header of a Call. `chunk` offers a Reply chunk.
fn call_header<'a>(
    todo: &Todo,
    credits: u32,
    chunk: bool,
    segments: &'a [Segment],
) -> CallInline<'a> {
    CallInline {
        xid: todo.xid,
        credits,
        inv_handle: if chunk { SEGMENT.handle } else { 0 },
        read: &[],
        write: &[],
        reply: chunk.then_some(segments),
    }
}

/// Returns the header of an RPC message that is not in a chunk. With `chunk` a Call offers a Reply
/// chunk.
pub(super) fn inline_header(todo: &Todo, credits: u32, chunk: bool) -> Vec<u8> {
    match todo.direction {
        Direction::Call => {
            let header = call_header(todo, credits, chunk, &[SEGMENT]);
            encoded(|buf| header.encode(buf))
        }
        Direction::Reply => {
            let header = ReplyInline {
                xid: todo.xid,
                credits,
                write: &[],
            };
            encoded(|buf| header.encode(buf))
        }
    }
}

/// Returns a message whose RPC message is in a chunk.
pub(super) fn external(todo: &Todo, credits: u32) -> Vec<u8> {
    match todo.direction {
        Direction::Call => {
            let header = CallExternal {
                common: CallInline {
                    inv_handle: SEGMENT.handle,
                    ..call_header(todo, credits, todo.chunk, &[SEGMENT])
                },
                call: &[Segment {
                    length: MAX_LEN + todo.reply_len,
                    ..SEGMENT
                }],
            };
            encoded(|buf| header.encode(buf))
        }
        Direction::Reply => {
            let header = ReplyExternal {
                xid: todo.xid,
                credits,
                write: &[],
                reply: &[Segment {
                    length: todo.len,
                    ..SEGMENT
                }],
            };
            encoded(|buf| header.encode(buf))
        }
    }
}
