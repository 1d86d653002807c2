// SPDX-License-Identifier: GPL-2.0

//! Messages of Version One with one chunk of one segment: nearly all that have any chunk.

use super::{
    super::v1::procedure,
    Call,
    Version, //
};
use crate::proto::prelude::*;

/// The kinds of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// A Read chunk, of an item at this position of the Call.
    Read {
        /// The position in octets, not zero.
        position: u32,
    },
    /// A Write chunk.
    Write,
    /// The Reply chunk.
    Reply,
}

/// The only chunk of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnlyChunk {
    /// Its kind.
    pub(crate) kind: ChunkKind,
    /// Its only segment.
    pub(crate) segment: Segment,
}

impl OnlyChunk {
    /// Returns the chunk of a Call that offers one for its Reply, of one segment, and has no other.
    #[inline]
    pub(crate) fn offered(call: &Call<'_>) -> Option<Self> {
        if !call.reads_nothing() {
            return None;
        }
        let (kind, chunk) = match (call.write.single(), call.reply) {
            (Some(chunk), None) => (ChunkKind::Write, chunk),
            (None, Some(chunk)) if call.write.is_empty() => (ChunkKind::Reply, chunk),
            _ => return None,
        };
        let segment = chunk.iter().next()?;
        (chunk.len() == 1).then_some(Self { kind, segment })
    }
}

/// The header of a message with one chunk of one segment. If that is a Reply chunk in a Reply, the
/// RPC message is in it; else it follows the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OnlyChunkHeader {
    /// The version of the header.
    pub(crate) version: Version,
    /// Set if the message is a Reply.
    pub(crate) is_reply: bool,
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The number of credits requested, or granted.
    pub(crate) credits: u32,
    /// The chunk.
    pub(crate) chunk: OnlyChunk,
}

impl OnlyChunkHeader {
    /// Writes the header to the front of `buf` and returns its size. [`None`] if it has to be
    /// written as those with any chunks are ([`super::CallHeader`], [`super::ReplyHeader`]), or
    /// can't be: in another version than One, or if something is wrong with it.
    #[inline]
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Option<usize> {
        let Segment {
            handle,
            length,
            offset,
        } = self.chunk.segment;
        offset.checked_add(u64::from(length))?;
        if self.version != Version::One || self.credits == 0 {
            return None;
        }
        let [a, b, c, d, e, f, g, h] = offset.to_be_bytes();
        let high = u32::from_be_bytes([a, b, c, d]);
        let low = u32::from_be_bytes([e, f, g, h]);
        let mut writer = Writer::new(buf);
        let procedure = match self.chunk.kind {
            ChunkKind::Reply if self.is_reply => procedure::NOMSG,
            _ => procedure::MSG,
        };
        let prefix = [self.xid, self.version.number(), self.credits, procedure];
        writer.words(prefix).ok()?;
        // Read list, Write list, Reply chunk (RFC 8166, 4.2).
        let written = match self.chunk.kind {
            ChunkKind::Read { position } if position == 0 || position & 3 != 0 => return None,
            ChunkKind::Read { position } => {
                writer.words([1, position, handle, length, high, low, 0, 0, 0])
            }
            ChunkKind::Write => writer.words([0, 1, 1, handle, length, high, low, 0, 0]),
            ChunkKind::Reply => writer.words([0, 0, 1, 1, handle, length, high, low]),
        };
        written.ok()?;
        Some(writer.len())
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_only_chunk)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                chunk::ReadSegment,
                testing::Bytes, //
            },
            CallHeader,
            ReplyHeader, //
        },
        *, //
    };

    /// A segment of all kinds of octets.
    const SEGMENT: Segment = Segment {
        handle: 0x0102_0304,
        length: 0x0506_0708,
        offset: 0x090a_0b0c_0d0e_0f10,
    };

    /// All kinds of chunks.
    const KINDS: [ChunkKind; 3] = [
        ChunkKind::Read { position: 64 },
        ChunkKind::Write,
        ChunkKind::Reply,
    ];

    /// The header with a chunk of this kind.
    const fn header(kind: ChunkKind, is_reply: bool) -> OnlyChunkHeader {
        OnlyChunkHeader {
            version: Version::One,
            is_reply,
            xid: 7,
            credits: 9,
            chunk: OnlyChunk {
                kind,
                segment: SEGMENT,
            },
        }
    }

    /// The header of a Call with this chunk, written as one with any chunks.
    fn any_call(kind: ChunkKind) -> Result<Bytes> {
        let read = match kind {
            ChunkKind::Read { position } => &[ReadSegment {
                position,
                segment: SEGMENT,
            }][..],
            _ => &[],
        };
        let only = |is: bool| if is { &[SEGMENT][..] } else { &[] };
        let call = CallHeader {
            version: Version::One,
            xid: 7,
            credits: 9,
            call: &[],
            read,
            write: only(kind == ChunkKind::Write),
            reply: only(kind == ChunkKind::Reply),
            invalidate: 0,
        };
        Bytes::from_encoder(|buf| call.encode(buf))
    }

    #[test]
    fn a_header_with_one_chunk_is_as_one_with_any() -> Result {
        let short = |kind, is_reply| {
            Bytes::from_encoder(|buf| header(kind, is_reply).encode(buf).ok_or(Fault::NoSpace))
        };
        for kind in KINDS {
            assert_eq!(short(kind, false)?.get(), any_call(kind)?.get());
        }
        for kind in [ChunkKind::Write, ChunkKind::Reply] {
            let (write, reply) = match kind {
                ChunkKind::Reply => (&[][..], Some(&[SEGMENT][..])),
                _ => (&[&[SEGMENT][..]][..], None),
            };
            let any = ReplyHeader {
                version: Version::One,
                xid: 7,
                credits: 9,
                write,
                reply,
            };
            let any = Bytes::from_encoder(|buf| any.encode(buf))?;
            assert_eq!(short(kind, true)?.get(), any.get());
        }
        Ok(())
    }

    #[test]
    fn what_has_another_form_is_not_written() {
        let mut buf = [0; 64];
        let mut encode = |header: OnlyChunkHeader, room: usize| {
            header.encode(buf.get_mut(..room).unwrap_or_default())
        };
        for position in [0, 2] {
            let kind = ChunkKind::Read { position };
            assert_eq!(encode(header(kind, false), 64), None);
        }
        for kind in KINDS {
            let sound = header(kind, true);
            assert!(encode(sound, 52).is_some());
            assert_eq!(encode(sound, 44), None);
            let two = OnlyChunkHeader {
                version: Version::Two,
                ..sound
            };
            assert_eq!(encode(two, 64), None);
            let none = OnlyChunkHeader {
                credits: 0,
                ..sound
            };
            assert_eq!(encode(none, 64), None);
            let mut beyond = sound;
            beyond.chunk.segment.offset = u64::MAX;
            assert_eq!(encode(beyond, 64), None);
        }
    }

    #[test]
    fn an_only_chunk_is_found_in_its_call() -> Result {
        for kind in KINDS {
            let bytes = with_message(&any_call(kind)?)?;
            let call = Call::decode(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
            let is_read = matches!(kind, ChunkKind::Read { .. });
            let chunk = header(kind, false).chunk;
            let expected = (!is_read).then_some(chunk);
            assert_eq!(OnlyChunk::offered(&call), expected);
        }
        // Read list, Write list, Reply chunk: two chunks, two segments, an empty one, none.
        for words in [
            &[0, 1, 1, 5, 8, 0, 0, 0, 1, 1, 5, 8, 0, 0][..],
            &[0, 1, 1, 5, 8, 0, 0, 1, 0, 0, 0],
            &[0, 1, 2, 5, 8, 0, 0, 5, 8, 0, 0, 0, 0],
            &[0, 0, 1, 2, 5, 8, 0, 0, 5, 8, 0, 0],
            &[0, 1, 0, 0, 0],
            &[0, 0, 1, 0],
            &[0, 0, 0],
        ] {
            let bytes = Bytes::from_writer(|writer| {
                writer.words([7, 1, 9, procedure::MSG])?;
                words.iter().try_for_each(|word| writer.u32(*word))
            })?;
            let bytes = with_message(&bytes)?;
            let call = Call::decode(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(OnlyChunk::offered(&call), None);
        }
        Ok(())
    }

    /// A header, and the first words of a Call behind it.
    fn with_message(header: &Bytes) -> Result<Bytes> {
        Bytes::from_writer(|writer| {
            writer.bytes(header.get())?;
            writer.words([7, 0])
        })
    }
}
