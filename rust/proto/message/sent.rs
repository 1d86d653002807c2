// SPDX-License-Identifier: GPL-2.0

//! Headers of messages to send.

use super::{
    super::{
        chunk::{
            self,
            ReadSegment, //
        },
        v1,
        v2::{
            self,
            Direction, //
        },
        v2_2016,
    },
    Version, //
};
use crate::proto::prelude::*;

/// The header of a message with an RPC message behind it, and without chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainHeader {
    /// The version of the header.
    pub(crate) version: Version,
    /// The direction of the RPC message: Call or Reply.
    pub(crate) direction: Direction,
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The credits requested or granted in Version One; see [`super::set_credits`] for Version Two.
    pub(crate) credits: u32,
}

impl PlainHeader {
    /// Returns the size of such a header in octets. In Version One three chunk lists follow the
    /// prefix (RFC 8166, 4.3). In Version Two these and a handle to invalidate (6.3.7), or in a
    /// Reply the Write list alone (6.3.10). The earlier protocol has the direction before the
    /// lists.
    pub(crate) const fn len(version: Version, direction: Direction) -> u32 {
        match (version, direction) {
            (Version::One, _) => 28,
            (Version::Two, Direction::Call) | (Version::Earlier, _) => 32,
            (Version::Two, Direction::Reply) => 20,
        }
    }

    /// The size of the longest such header in octets.
    pub(crate) const MAX_LEN: u32 = 32;

    /// Writes the header to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    #[inline]
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        // The last number is that of the words which follow the prefix. All of them are zero, but
        // for the first one in a Reply of the earlier protocol.
        match (self.version, self.direction) {
            (Version::One, _) => self.put::<3>(v1::procedure::MSG, 0, buf),
            (Version::Two, Direction::Reply) => self.put::<1>(v2::htype::REPLY_INLINE, 0, buf),
            (Version::Two, Direction::Call) => self.put::<4>(v2::htype::CALL_INLINE, 0, buf),
            (Version::Earlier, direction) => {
                self.put::<4>(v1::procedure::MSG, v2_2016::header::word(direction), buf)
            }
        }
    }

    /// Writes the prefix and `N` words that follow it, of which `first` is the first one.
    #[inline(always)]
    fn put<const N: usize>(&self, procedure: u32, first: u32, buf: &mut [u8]) -> Result<usize> {
        let mut writer = Writer::new(buf);
        let version = self.version.number();
        writer.words([self.xid, version, self.credits, procedure])?;
        let mut rest = [0; N];
        if let Some(word) = rest.first_mut() {
            *word = first;
        }
        writer.words(rest)?;
        Ok(writer.len())
    }
}

/// The header of a Call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHeader<'a> {
    /// The version of the header.
    pub(crate) version: Version,
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The credits requested in Version One; see [`super::set_credits`] for Version Two.
    pub(crate) credits: u32,
    /// The chunk that holds the RPC message. It is empty if the message follows the header.
    pub(crate) call: &'a [Segment],
    /// The only Read chunk. It is empty if there is none. In Version One a chunk that holds the RPC
    /// message is a Read chunk too, at position zero.
    pub(crate) read: &'a [ReadSegment],
    /// The only Write chunk. It is empty if there is none.
    pub(crate) write: &'a [Segment],
    /// The Reply chunk. It is empty if there is none.
    pub(crate) reply: &'a [Segment],
    /// The handle that the Responder may invalidate, or zero. Version One has no field for it.
    pub(crate) invalidate: u32,
}

impl CallHeader<'_> {
    /// Writes the header to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, and the fault of an invalid chunk.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        match self.version {
            version if self.is_plain() => PlainHeader {
                version,
                direction: Direction::Call,
                xid: self.xid,
                credits: self.credits,
            }
            .encode(buf),
            Version::One => self.in_one().encode(buf),
            Version::Two => self.encode_two(buf),
            Version::Earlier => v2_2016::header::encode_call(&self.in_one(), buf),
        }
    }

    /// Returns the header in Version One.
    fn in_one(&self) -> v1::CallHeader<'_> {
        v1::CallHeader {
            xid: self.xid,
            credits: self.credits,
            read: self.read,
            write: self.write,
            reply: self.reply,
            nomsg: !self.call.is_empty(),
        }
    }

    /// Returns whether there are no chunks.
    const fn is_plain(&self) -> bool {
        self.call.is_empty()
            && self.read.is_empty()
            && self.write.is_empty()
            && self.reply.is_empty()
            && self.invalidate == 0
    }

    /// Writes the header in Version Two.
    fn encode_two(&self, buf: &mut [u8]) -> Result<usize> {
        let write: &[&[Segment]] = match self.write {
            [] => &[],
            segments => &[segments],
        };
        let common = v2::CallInline {
            xid: self.xid,
            credits: self.credits,
            inv_handle: self.invalidate,
            read: match self.call {
                [] => self.read,
                // The Call chunk is in a list of its own (6.3.5).
                _ => {
                    let zeroes = self.read.partition_point(|entry| entry.position == 0);
                    self.read.get(zeroes..).unwrap_or_default()
                }
            },
            write,
            reply: Some(self.reply).filter(|segments| !segments.is_empty()),
        };
        match self.call {
            [] => common.encode(buf),
            call => v2::CallExternal { common, call }.encode(buf),
        }
    }
}

/// The header of a Reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHeader<'a> {
    /// The version of the header, which is that of the Call.
    pub(crate) version: Version,
    /// The transaction ID of the Call.
    pub(crate) xid: u32,
    /// The credits granted in Version One; see [`super::set_credits`] for Version Two.
    pub(crate) credits: u32,
    /// The Call's Write chunks, with the length of each segment set to what was written.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Call's Reply chunk, with the length of each segment set to what was written. It is
    /// `None` if the RPC message follows the header.
    pub(crate) reply: Option<&'a [Segment]>,
}

impl ReplyHeader<'_> {
    /// Writes the header to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, and the fault of an invalid chunk.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        match (self.version, self.reply) {
            // A grant of zero is refused below (RFC 8166, 4.2.3).
            (version, None) if self.write.is_empty() && self.credits != 0 => PlainHeader {
                version,
                direction: Direction::Reply,
                xid: self.xid,
                credits: self.credits,
            }
            .encode(buf),
            (Version::One, _) => self.in_one().encode(buf),
            (Version::Earlier, _) => v2_2016::header::encode_reply(&self.in_one(), buf),
            (Version::Two, None) => v2::ReplyInline {
                xid: self.xid,
                credits: self.credits,
                write: self.write,
            }
            .encode(buf),
            (Version::Two, Some(reply)) => v2::ReplyExternal {
                xid: self.xid,
                credits: self.credits,
                write: self.write,
                reply,
            }
            .encode(buf),
        }
    }
}

impl<'a> ReplyHeader<'a> {
    /// Returns the header in Version One.
    fn in_one(&self) -> v1::ReplyHeader<'a> {
        v1::ReplyHeader {
            xid: self.xid,
            credits: self.credits,
            write: self.write,
            reply: self.reply,
            nomsg: self.reply.is_some(),
        }
    }
}

/// Returns the size of a Call's header with the given numbers of segments. `special` says that the
/// RPC message is in the Read chunk.
///
/// # Errors
///
/// [`Fault::NoSpace`] if the size overflows.
pub(crate) fn call_header_len(
    version: Version,
    special: bool,
    read: usize,
    write: Option<usize>,
    reply: Option<usize>,
) -> Result<usize> {
    // Version Two has the handle to invalidate, and a Read list beside the Call chunk (6.3.5,
    // 6.3.7); the earlier protocol has the direction.
    let more = match (version, special) {
        (Version::One, _) => 0,
        (Version::Two, false) | (Version::Earlier, _) => UNIT,
        (Version::Two, true) => 2 * UNIT,
    };
    v1::header_len(read, write, reply)?
        .checked_add(more)
        .ok_or(Fault::NoSpace)
}

/// Returns the size of a Reply's header with the given numbers of segments. `reply` is `None` if
/// the RPC message follows the header and no Reply chunk was offered.
///
/// # Errors
///
/// [`Fault::NoSpace`] if the size overflows.
pub(crate) fn reply_header_len(
    version: Version,
    write: Option<usize>,
    reply: Option<usize>,
) -> Result<usize> {
    let parts = match (version, reply) {
        (Version::One, _) => return v1::header_len(0, write, reply),
        (Version::Earlier, _) => [v1::header_len(0, write, reply)?, UNIT, 0],
        // A Reply chunk that is absent has no "is present" word (6.3.8, 6.3.10).
        (Version::Two, None) => [v1::PREFIX_LEN, chunk::write_list_len(write)?, 0],
        (Version::Two, reply) => [
            v1::PREFIX_LEN,
            chunk::write_list_len(write)?,
            chunk::reply_chunk_len(reply)?,
        ],
    };
    parts
        .into_iter()
        .try_fold(0, usize::checked_add)
        .ok_or(Fault::NoSpace)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_message_sent)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::testing::{
                decode_reply,
                Bytes, //
            },
            received::Call,
            set_credits, //
        },
        *, //
    };

    const SEGMENT: Segment = Segment {
        handle: 5,
        length: 8,
        offset: 0,
    };

    /// RFC 8166, section 4.2.3: a grant of zero is none. In Version Two it is a limit like others.
    #[test]
    fn a_reply_of_version_one_grants_something() {
        for (version, may_be_zero) in [
            (Version::One, false),
            (Version::Earlier, false),
            (Version::Two, true),
        ] {
            let header = ReplyHeader {
                version,
                xid: 7,
                credits: 0,
                write: &[],
                reply: None,
            };
            let sent = Bytes::from_encoder(|buf| header.encode(buf));
            assert_eq!(sent.is_ok(), may_be_zero);
        }
    }

    /// The calculated sizes are those of the encoded headers, with and without each kind of chunk.
    #[test]
    fn sizes_are_exact() -> Result {
        let segments = [SEGMENT; 2];
        for version in [Version::One, Version::Two, Version::Earlier] {
            for kinds in 0..32_u32 {
                let some = |bit: u32, count: usize| if kinds & bit == 0 { 0 } else { count };
                let (read, write, reply) = (some(1, 2), some(2, 1), some(4, 2));
                // This is a Call chunk, with Read chunks or without.
                let special = kinds & 24 != 0 && read > 0;
                let both = kinds & 16 != 0 && special;
                let position = if special { 0 } else { 4 };
                let mut reads = segments.map(|segment| ReadSegment { position, segment });
                if let Some(last) = reads.last_mut().filter(|_| both) {
                    last.position = 4;
                }
                let call = match (special, both) {
                    (false, _) => 0,
                    (true, false) => read,
                    (true, true) => 1,
                };
                let header = CallHeader {
                    version,
                    xid: 7,
                    credits: 1,
                    call: segments.get(..call).unwrap_or_default(),
                    read: reads.get(..read).unwrap_or_default(),
                    write: segments.get(..write).unwrap_or_default(),
                    reply: segments.get(..reply).unwrap_or_default(),
                    invalidate: if read > 0 { 5 } else { 0 },
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                let filled = |count: usize| Some(count).filter(|count| *count > 0);
                let len = call_header_len(version, special, read, filled(write), filled(reply))?;
                assert_eq!(bytes.get().len(), len);

                let lists = [header.write];
                let header = ReplyHeader {
                    version,
                    xid: 7,
                    credits: 1,
                    write: lists.get(..write).unwrap_or_default(),
                    reply: Some(header.reply).filter(|chunk| !chunk.is_empty()),
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                let len = reply_header_len(version, filled(write), filled(reply))?;
                assert_eq!(bytes.get().len(), len);
            }
        }
        Ok(())
    }

    /// A header that was encoded is decoded to the same contents.
    #[test]
    fn headers_survive_the_journey() -> Result {
        for version in [Version::One, Version::Two, Version::Earlier] {
            let call = CallHeader {
                version,
                xid: 7,
                credits: 1,
                call: &[SEGMENT],
                read: &[ReadSegment {
                    position: 0,
                    segment: SEGMENT,
                }],
                write: &[],
                reply: &[SEGMENT],
                invalidate: 5,
            };
            let bytes = Bytes::from_encoder(|buf| call.encode(buf))?;
            let call = Call::decode(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(
                (call.xid, call.special, call.invalidate()),
                (7, true, Some(5))
            );

            let reply = ReplyHeader {
                version,
                xid: 7,
                credits: 1,
                write: &[&[SEGMENT]],
                reply: Some(&[SEGMENT]),
            };
            let bytes = Bytes::from_encoder(|buf| reply.encode(buf))?;
            let reply = decode_reply(version, bytes.get()).ok_or(Fault::NoPayload)?;
            let offered = || [SEGMENT].into_iter();
            let returned = reply
                .returned(offered(), offered())
                .ok_or(Fault::NoPayload)?;
            assert_eq!(
                (reply.special, returned.written, returned.placed),
                (true, 8, 8)
            );
        }
        Ok(())
    }

    /// Section 4.2.2 of the draft of 2016: whatever chunks there are, the direction in the header
    /// is that of the RPC message.
    #[test]
    fn the_direction_of_the_earlier_protocol_is_that_of_the_rpc_message() -> Result {
        let version = Version::Earlier;
        let read = |position| ReadSegment {
            position,
            segment: SEGMENT,
        };
        let list = [SEGMENT];
        let direction = |bytes: &Bytes| {
            let word = bytes.get().get(16..).and_then(|rest| rest.first_chunk());
            word.map(|word| u32::from_be_bytes(*word))
        };
        for (call, reads) in [
            (&[][..], &[][..]),
            (&[], &[read(4)]),
            (&list, &[read(0)]),
            (&list, &[read(0), read(4)]),
        ] {
            for (write, reply) in [(&[][..], &[][..]), (&list, &[]), (&[], &list)] {
                let header = CallHeader {
                    version,
                    xid: 7,
                    credits: 1,
                    call,
                    read: reads,
                    write,
                    reply,
                    invalidate: 0,
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                assert_eq!(direction(&bytes), Some(v2_2016::direction::CALL));
            }
        }
        for write in [&[][..], &[&list[..]]] {
            for reply in [None, Some(&list[..])] {
                let header = ReplyHeader {
                    version,
                    xid: 7,
                    credits: 1,
                    write,
                    reply,
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                assert_eq!(direction(&bytes), Some(v2_2016::direction::REPLY));
            }
        }
        Ok(())
    }

    /// Version Two, section 6.3.5: the Call chunk and the data items removed from it are in
    /// separate lists. Any handle of either may be invalidated (6.5).
    #[test]
    fn a_call_chunk_and_a_read_chunk_have_lists_of_their_own() -> Result {
        let read = |position, handle| ReadSegment {
            position,
            segment: Segment { handle, ..SEGMENT },
        };
        for invalidate in [5, 6] {
            let two = CallHeader {
                version: Version::Two,
                xid: 7,
                credits: 1,
                call: &[SEGMENT],
                read: &[read(40, 6)],
                write: &[],
                reply: &[],
                invalidate,
            };
            let expected = [
                7, 2, 1, 8, invalidate, 1, 0, 5, 8, 0, 0, 0, 1, 40, 6, 8, 0, 0, 0, 0, 0,
            ];
            let bytes = Bytes::from_encoder(|buf| two.encode(buf))?;
            assert!(bytes.is_words(&expected));
            let call = Call::decode(Version::Two, bytes.get()).ok_or(Fault::NoPayload)?;
            assert!(call.special && call.payload.is_empty());
            assert!(call.reads().eq([read(0, 5), read(40, 6)]));
            assert_eq!(call.invalidate(), Some(invalidate));

            // Version One has one Read list, with the Position Zero Read chunk in front. The result
            // is the same.
            let list = [read(0, 5), read(40, 6)];
            let same = CallHeader { read: &list, ..two };
            let again = Bytes::from_encoder(|buf| same.encode(buf))?;
            assert!(again.is_words(&expected));
            let one = CallHeader {
                version: Version::One,
                ..same
            };
            let bytes = Bytes::from_encoder(|buf| one.encode(buf))?;
            let call = Call::decode(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
            assert!(call.special && call.reads().eq(list));
        }
        Ok(())
    }

    #[test]
    fn credits_are_set_afterwards() {
        let mut message = [0_u8; 12];
        set_credits(&mut message, 0x0102_0304);
        assert_eq!(message, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4]);
        set_credits(message.get_mut(..11).unwrap_or_default(), 9);
        assert_eq!(message.last(), Some(&4));
    }
}
