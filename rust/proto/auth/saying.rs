// SPDX-License-Identifier: GPL-2.0

//! What is to be said, in as many CONNPROP messages as it takes (draft-ietf-nfsv4-rpcrdma-version-two-07,
//! 6.3.3).

use super::{
    super::xdr::UNIT,
    Say, //
};

/// The octets of a CONNPROP message that tells nothing.
const EMPTY: usize = 20;

/// What material adds to that: the number of the property, and its length twice.
const MATERIAL: usize = 12;

/// What our properties add to that.
const PROPERTIES: usize = 60;

/// What one message has of what is to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the token.
    pub(crate) start: usize,
    /// Where it ends. If there is nothing in between, the message has no material.
    pub(crate) end: usize,
    /// Whether the message is our CONNPROP_FINAL.
    pub(crate) last: bool,
    /// Whether it tells our properties.
    pub(crate) properties: bool,
}

/// What is left to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Saying {
    /// The octets of the token.
    len: usize,
    /// How many of them have been sent.
    at: usize,
    /// Whether the last message is our CONNPROP_FINAL.
    last: bool,
    /// Whether it tells our properties.
    properties: bool,
    /// Everything has been sent.
    done: bool,
}

impl Saying {
    /// All of it.
    pub(crate) fn new(say: &Say) -> Self {
        Self {
            len: say.token.map_or(0, |token| token.len()),
            at: 0,
            last: say.last,
            properties: say.properties,
            done: false,
        }
    }

    /// A message that tells nothing, and is not the last one: that somebody is here.
    pub(crate) const fn greeting() -> Self {
        Self {
            len: 0,
            at: 0,
            last: false,
            properties: false,
            done: false,
        }
    }

    /// Returns what the next message has, if it is to have `room` octets at most; [`None`] if there
    /// is no next one, or nothing fits.
    pub(crate) fn next(&self, room: usize) -> Option<Piece> {
        if self.done {
            return None;
        }
        let left = self.len.checked_sub(self.at)?;
        let more = match self.properties {
            true => PROPERTIES,
            false => 0,
        };
        // The octets of material that there is room for: whole units, so that nothing is padded.
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
            return Some(Piece {
                start: self.at,
                end: self.len,
                last: self.last,
                properties: self.properties,
            });
        }
        // Not all of it, or not with the properties.
        let len = fits(0)?.min(left);
        (len > 0).then(|| Piece {
            start: self.at,
            end: self.at.saturating_add(len),
            last: false,
            properties: false,
        })
    }

    /// A message was sent that has this. Returns whether there is another one to be sent.
    pub(crate) fn sent(&mut self, piece: &Piece) -> bool {
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
                    Properties,
                    Told, //
                },
                testing::Bytes,
                v2::ConnProp, //
            },
            Token, //
        },
        *, //
    };

    /// Something to be said that is `len` octets long, those in front included.
    fn say(len: u32, last: bool) -> Say {
        Say {
            token: Some(Token::new(&[], len.saturating_sub(8), last)),
            last,
            properties: last,
        }
    }

    /// Section 6.3.3: what does not fit one message is told in several, and the last of them is the
    /// only one that may be the CONNPROP_FINAL.
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
                        let told = Told {
                            host_auth: material.filter(|material| !material.is_empty()),
                            ..match piece.properties {
                                true => Told::all(&Properties::DEFAULT),
                                false => Told::NOTHING,
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
