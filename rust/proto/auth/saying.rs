// SPDX-License-Identifier: GPL-2.0

//! Splitting a message of the authentication exchange into CONNPROP messages
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 6.3.3).

use super::Say;
use crate::proto::prelude::*;

/// The size in octets of a CONNPROP message without any property.
const EMPTY: usize = 20;

/// The octets that material adds: the number of the property, and its length twice.
const MATERIAL: usize = 12;

/// The octets that our properties add.
const PROPERTIES: usize = 60;

/// The part that one CONNPROP message carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AuthFragment {
    /// The offset of its first octet in the token.
    pub(crate) start: usize,
    /// The offset of its end in the token. If this equals `start`, the message has no material.
    pub(crate) end: usize,
    /// True if the message is our CONNPROP_FINAL.
    pub(crate) last: bool,
    /// True if the message carries our properties.
    pub(crate) properties: bool,
}

/// The part that is still unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saying {
    /// The size of the token in octets.
    len: usize,
    /// The number of octets of the token that have been sent.
    at: usize,
    /// True if the last message is our CONNPROP_FINAL.
    last: bool,
    /// True if the last message carries our properties.
    properties: bool,
    /// True if everything has been sent.
    done: bool,
}

impl Saying {
    /// Starts with all of `say` unsent.
    pub(crate) fn new(say: &Say) -> Self {
        Self {
            len: say.token.map_or(0, |token| token.len()),
            at: 0,
            last: say.last,
            properties: say.properties,
            done: false,
        }
    }

    /// Returns one message without properties that is not the last one. It shows that this end is
    /// present.
    pub(crate) const fn greeting() -> Self {
        Self {
            len: 0,
            at: 0,
            last: false,
            properties: false,
            done: false,
        }
    }

    /// Returns the part that the next message carries if its size is limited to `room` octets.
    /// Returns [`None`] if there is no next message, or nothing fits.
    pub(crate) fn next(&self, room: usize) -> Option<AuthFragment> {
        if self.done {
            return None;
        }
        let left = self.len.checked_sub(self.at)?;
        let more = if self.properties { PROPERTIES } else { 0 };
        // The octets of material that fit. These are whole units, so that nothing is padded.
        let fits = |taken: usize| {
            let room = room.checked_sub(EMPTY)?.checked_sub(taken)?;
            match left {
                0 => Some(0),
                _ => room
                    .checked_sub(MATERIAL)
                    .map(|room| room & !(UNIT.wrapping_sub(1))),
            }
        };
        if fits(more).is_some_and(|room| left <= room) {
            return Some(AuthFragment {
                start: self.at,
                end: self.len,
                last: self.last,
                properties: self.properties,
            });
        }
        // Only a part fits, or the rest does not fit together with the properties.
        let len = fits(0)?.min(left);
        (len > 0).then(|| AuthFragment {
            start: self.at,
            end: self.at.saturating_add(len),
            last: false,
            properties: false,
        })
    }

    /// Records that a message with this part was sent. Returns whether another one is due.
    pub(crate) fn sent(&mut self, piece: &AuthFragment) -> bool {
        self.at = piece.end;
        self.done = piece.last || (!self.last && self.at >= self.len);
        !self.done
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_auth_saying)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::{
                    Fault,
                    Result, //
                },
                props::{
                    Advertised,
                    Properties, //
                },
                testing::Bytes,
                v2::ConnProp, //
            },
            Token, //
        },
        *, //
    };

    /// Returns a message with a token of `len` octets, token header included.
    fn say(len: u32, last: bool) -> Say {
        Say {
            token: Some(Token::new(&[], len.saturating_sub(8), last)),
            last,
            properties: last,
        }
    }

    /// Section 6.3.3: material that does not fit one message is sent in several, and only the last
    /// of them may be the CONNPROP_FINAL.
    #[test]
    fn material_is_sent_in_as_many_messages_as_it_takes() -> Result {
        static ZEROES: [u8; 512] = [0; 512];
        for last in [false, true] {
            for len in 8..400 {
                for room in [96, 100, 131, 256, 511] {
                    let say = say(len, last);
                    let mut saying = Saying::new(&say);
                    let mut at = 0;
                    loop {
                        let piece = saying.next(room).ok_or(Fault::NoSpace)?;
                        assert_eq!(piece.start, at);
                        at = piece.end;
                        let len = piece.end.checked_sub(piece.start);
                        let material = len.and_then(|len| ZEROES.get(..len));
                        let told = Advertised {
                            host_auth: material.filter(|material| !material.is_empty()),
                            ..if piece.properties {
                                Advertised::all(&Properties::DEFAULT)
                            } else {
                                Advertised::NOTHING
                            }
                        };
                        let message = ConnProp {
                            credits: 1,
                            told,
                            last: piece.last,
                        };
                        let bytes = Bytes::from_encoder(|buf| message.encode(buf))?;
                        assert!(bytes.get().len() <= room);
                        if !saying.sent(&piece) {
                            assert_eq!((piece.last, piece.properties), (last, last));
                            break;
                        }
                        assert!(!piece.last && !piece.properties && piece.start < piece.end);
                    }
                    assert!(usize::try_from(len) == Ok(at));
                    assert_eq!(saying.next(room), None);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn nothing_is_sent_where_there_is_no_room() {
        for room in 0..80 {
            assert_eq!(Saying::new(&say(8, false)).next(room).is_some(), room >= 36);
        }
        let mut greeting = Saying::greeting();
        assert_eq!(greeting.next(19), None);
        let piece = greeting.next(20);
        assert!(piece.is_some_and(|piece| !piece.last && !greeting.sent(&piece)));
        assert_eq!(greeting.next(20), None);
    }
}
