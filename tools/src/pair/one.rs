// SPDX-License-Identifier: GPL-2.0

//! What the ends do in Version One, of which a session knows nothing: credits count Calls without a
//! Reply.

use super::*;
use crate::headers::{
    CallHeader,
    ReplyHeader, //
};
use crate::proto::{
    chunk::ReadSegment,
    v1::{
        MIN_HEADER_LEN,
        MIN_INLINE, //
    }, //
};

/// The longest message in octets.
pub(super) const INLINE: usize = MIN_INLINE as usize;

impl End {
    /// Returns how many Calls have been sent on this connection that have no Reply.
    pub(super) fn unanswered(&self) -> usize {
        let calls = self.todo.iter();
        let waiting = calls.filter(|todo| todo.direction == Direction::Call);
        self.pending() - waiting.count()
    }
}

impl Pair {
    /// Tries to send one of the messages that are waiting.
    pub(super) fn send_one(&mut self, at: usize, index: usize) -> bool {
        let credits = self.configs[at].credits_in_one;
        let end = &mut self.ends[at];
        let Some(todo) = (!end.todo.is_empty()).then(|| end.todo[index % end.todo.len()]) else {
            return false;
        };
        let is_call = todo.direction == Direction::Call;
        if is_call && end.unanswered() as u32 >= end.connection.grant().limit() {
            self.seen.waits += 1;
            return false;
        }
        let message_of_one = Outbound {
            direction: todo.direction,
            parts: 1,
            chunks: false,
        };
        // The grant of a server depends on Receives, which these ends do not count.
        let granted = end.connection.begin(&message_of_one);
        assert!(granted.is_ok_and(|granted| granted.is_none() || !is_call));
        end.connection.commit(&message_of_one);
        end.todo.remove(index % end.todo.len());
        self.mishaps.in_one += 1;
        self.post(at, message(&todo, credits));
        true
    }
}

/// Returns an RPC message with its header.
pub(super) fn message(todo: &Todo, credits: u32) -> Vec<u8> {
    let &Todo { xid, len, .. } = todo;
    let is_inline = MIN_HEADER_LEN + 64 + len as usize <= INLINE;
    let chunk = |length| Segment { length, ..SEGMENT };
    let mut message = encoded(|buf| match todo.direction {
        Direction::Call => {
            let read = [ReadSegment {
                position: 0,
                segment: chunk(MAX_LEN + todo.reply_len),
            }];
            CallHeader {
                xid,
                credits,
                read: if is_inline { &[] } else { &read },
                write: &[],
                reply: &[SEGMENT],
                nomsg: !is_inline,
            }
            .encode(buf)
        }
        Direction::Reply => ReplyHeader {
            xid,
            credits,
            write: &[],
            reply: (!is_inline).then_some(&[chunk(len)]),
            nomsg: !is_inline,
        }
        .encode(buf),
    });
    if is_inline {
        message.extend(payload(todo.direction, xid, len, todo.reply_len));
    }
    message
}
