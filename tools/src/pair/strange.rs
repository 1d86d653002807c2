// SPDX-License-Identifier: GPL-2.0

//! First messages of every kind, in the place of that which an end sends.

use super::*;
use crate::proto::{
    props::Advertised,
    v1,
    v2::{
        self,
        NO_XID, //
    },
    window::ReceiveWindow, //
};

/// The transaction ID of RPCs that nobody has.
const XID: u32 = 0xabcd_1234;

/// A message that is not expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strange {
    /// What it is.
    pub(super) kind: u32,
    /// What is wrong with it besides.
    pub(super) damage: u32,
    /// Where.
    pub(super) place: u32,
}

/// Returns whether it is the transaction ID of an RPC that nobody has, perhaps damaged.
pub(super) fn is_strange(xid: u32) -> bool {
    xid >= 1 << 16
}

impl Strange {
    /// How many kinds there are.
    pub(super) const KINDS: u32 = 18;
    /// How many ways to damage one there are. The first is not to.
    pub(super) const DAMAGES: u32 = 6;

    /// Returns the message. It promises what the end that it comes from has promised.
    pub(super) fn message(&self, window: &ReceiveWindow) -> Vec<u8> {
        let credits = window.received().wrapping_add_signed(window.remaining());
        let mut message = self.whole(credits);
        let place = self.place as usize;
        match self.damage % Self::DAMAGES {
            // One octet is another one, but not of the credits.
            1 => {
                let at = place % message.len();
                if !(8..12).contains(&at) {
                    message[at] ^= 1 << (place % 8);
                }
            }
            2 => message.truncate(place % message.len()),
            3 => message[4..8].copy_from_slice(&(self.place % 4).to_be_bytes()),
            4 => {
                for (index, octet) in message.iter_mut().enumerate().skip(v2::PREFIX_LEN) {
                    *octet = (index * place) as u8;
                }
            }
            5 => message.extend(vec![0; place % 64]),
            _ => {}
        }
        message
    }

    /// Returns the message without damage.
    fn whole(&self, credits: u32) -> Vec<u8> {
        let call = Todo {
            direction: Direction::Call,
            xid: XID,
            len: 12,
            reply_len: 12,
            chunk: true,
        };
        let reply = Todo {
            direction: Direction::Reply,
            ..call
        };
        let error = |xid, version, error| ErrorHeader {
            xid,
            version,
            credits,
            error,
        };
        let refusal = |low, high| error(NO_XID, v2::VERSION, RdmaError::Version { low, high });
        let properties = |last| ConnProp {
            credits,
            told: Advertised::NOTHING,
            last,
        };
        let middle = |direction| {
            let header = Middle {
                direction,
                xid: XID,
                credits,
                remaining: 100,
            };
            let mut message = encoded(|buf| header.encode(buf));
            message.extend(payload(direction, XID, 12, 12));
            message
        };
        let inline = |todo: &Todo| {
            let mut message = send::inline_header(todo, credits, false);
            message.extend(payload(todo.direction, XID, todo.len, todo.reply_len));
            message
        };
        match self.kind % Self::KINDS {
            0 => encoded(|buf| GrantHeader { credits }.encode(buf)),
            1 => encoded(|buf| properties(false).encode(buf)),
            2 => encoded(|buf| properties(true).encode(buf)),
            3 => send::external(&call, credits),
            4 => middle(Direction::Call),
            5 => inline(&call),
            6 => send::external(&reply, credits),
            7 => middle(Direction::Reply),
            8 => inline(&reply),
            9 => encoded(|buf| refusal(1, 1).encode(Version::Two, buf)),
            10 => encoded(|buf| refusal(2, 3).encode(Version::Two, buf)),
            11 => encoded(|buf| {
                error(XID, v2::VERSION, RdmaError::VersionMismatch).encode(Version::Two, buf)
            }),
            12 => encoded(|buf| {
                error(NO_XID, v2::VERSION, RdmaError::BadXdr).encode(Version::Two, buf)
            }),
            13 => one::message(&call, credits.max(1)),
            14 => one::message(&reply, credits.max(1)),
            15 => {
                encoded(|buf| error(XID, v1::VERSION, RdmaError::BadXdr).encode(Version::Two, buf))
            }
            // Header types that are not known: those of the earlier protocol, and others.
            16 => words(&[
                XID,
                v2::VERSION,
                credits,
                self.place % 4,
                0,
                0,
                0,
                0,
                XID,
                0,
            ]),
            _ => words(&[XID, v2::VERSION, credits, 14 + self.place, 0, 0, 0]),
        }
    }
}

/// Returns a message made of words.
fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}
