// SPDX-License-Identifier: GPL-2.0

//! Messages of a version that counts Calls, with one chunk of one segment: nearly all that have any
//! chunk.

use super::{
    super::{
        v1::{
            procedure,
            Direction, //
        },
        v2_2016, //
    },
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

impl ChunkKind {
    /// Returns whether it is that of a Read chunk.
    pub(crate) const fn is_read(self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

impl OnlyChunk {
    /// Compares the chunk, which came back in a Reply, with the one that was `offered`, see
    /// [`Chunk::check_returned`](super::super::chunk::Chunk::check_returned). Returns the number of
    /// octets that were written; [`None`] if it differs in more than it may.
    #[inline]
    pub(super) fn returned(
        &self,
        mut offered: impl ExactSizeIterator<Item = Segment>,
    ) -> Option<u32> {
        let is_one = offered.len() == 1;
        let offered = offered.next().filter(|_| is_one)?;
        let length = self.segment.length;
        self.segment.may_return(&offered).then_some(length)
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
    /// can't be: in a version that counts messages, or if something is wrong with it.
    #[inline]
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Option<usize> {
        let Segment {
            handle,
            length,
            offset,
        } = self.chunk.segment;
        offset.checked_add(u64::from(length))?;
        if self.version.rules().counts_messages || self.credits == 0 {
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
        if self.version == Version::Earlier {
            let direction = if self.is_reply {
                Direction::Reply
            } else {
                Direction::Call
            };
            writer.u32(v2_2016::header::word(direction)).ok()?;
        }
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
            short::Short,
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

    /// The versions that have such headers.
    const VERSIONS: [Version; 2] = [Version::One, Version::Earlier];

    /// The header with a chunk of this kind.
    const fn header(version: Version, kind: ChunkKind, is_reply: bool) -> OnlyChunkHeader {
        OnlyChunkHeader {
            version,
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
    fn any_call(version: Version, kind: ChunkKind) -> Result<Bytes> {
        let read = match kind {
            ChunkKind::Read { position } => &[ReadSegment {
                position,
                segment: SEGMENT,
            }][..],
            _ => &[],
        };
        let only = |is: bool| if is { &[SEGMENT][..] } else { &[] };
        let call = CallHeader {
            version,
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
        let short = |version, kind, is_reply| {
            Bytes::from_encoder(|buf| {
                let len = header(version, kind, is_reply).encode(buf);
                len.ok_or(Fault::NoSpace)
            })
        };
        for (version, kind) in VERSIONS.iter().flat_map(|v| KINDS.map(|kind| (*v, kind))) {
            let call = short(version, kind, false)?;
            assert_eq!(call.get(), any_call(version, kind)?.get());
            if kind.is_read() {
                continue;
            }
            let (write, reply) = match kind {
                ChunkKind::Reply => (&[][..], Some(&[SEGMENT][..])),
                _ => (&[&[SEGMENT][..]][..], None),
            };
            let any = ReplyHeader {
                version,
                xid: 7,
                credits: 9,
                write,
                reply,
            };
            let any = Bytes::from_encoder(|buf| any.encode(buf))?;
            assert_eq!(short(version, kind, true)?.get(), any.get());
        }
        Ok(())
    }

    #[test]
    fn what_has_another_form_is_not_written() {
        let mut buf = [0; 64];
        let header = |kind, is_reply| header(Version::One, kind, is_reply);
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

    /// A header that is written is read again in the short way.
    #[test]
    fn a_header_with_one_chunk_comes_back() -> Result {
        let cases = [
            (KINDS[0], false),
            (KINDS[1], false),
            (KINDS[1], true),
            (KINDS[2], false),
            (KINDS[2], true),
        ];
        let all = VERSIONS.iter().flat_map(|v| cases.map(|case| (*v, case)));
        for (version, (kind, is_reply)) in all {
            let header = |kind, is_reply| header(version, kind, is_reply);
            let bytes = Bytes::from_writer(|writer| {
                let header = Bytes::from_encoder(|buf| {
                    let len = header(kind, is_reply).encode(buf);
                    len.ok_or(Fault::NoSpace)
                })?;
                writer.bytes(header.get())?;
                if kind != ChunkKind::Reply || !is_reply {
                    writer.words([7, is_reply.into()])?;
                }
                Ok(())
            })?;
            let short = Short::decode(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!((short.xid, short.credits, short.is_reply), (7, 9, is_reply));
            assert_eq!(short.chunk, Some(header(kind, is_reply).chunk));
        }
        Ok(())
    }
}
