// SPDX-License-Identifier: GPL-2.0

//! Received messages of a version that counts Calls, with one chunk of one segment at most: nearly
//! all are such.

use super::{
    super::v1::{
        procedure,
        Prefix, //
    },
    only_chunk::{
        ChunkKind,
        OnlyChunk, //
    },
    Version, //
};
use crate::proto::prelude::*;

/// A message of Version One, or of the earlier protocol, that has no chunk, or one of one segment,
/// and with which nothing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The number of credits requested, or granted.
    pub(crate) credits: u32,
    /// Set if the message is a Reply.
    pub(crate) is_reply: bool,
    /// The size of the header.
    pub(crate) header_len: usize,
    /// The chunk. If that is a Reply chunk in a Reply, the RPC message is in it; else it follows
    /// the header.
    pub(crate) chunk: Option<OnlyChunk>,
}

impl Short {
    /// Decodes a message in a few steps. Returns nothing for everything else, sound or not: there
    /// is [`decode_counted`](super::decode_counted) for that.
    #[inline]
    pub(crate) fn decode(version: Version, bytes: &[u8]) -> Option<Self> {
        match version {
            Version::One => Self::get::<false>(version.number(), bytes),
            Version::Earlier => Self::get::<true>(version.number(), bytes),
            Version::Two => None,
        }
    }

    /// Decodes a message with this version number. `DIRECTED` says that there is a word for the
    /// direction before the chunk lists.
    #[inline(always)]
    fn get<const DIRECTED: bool>(version: u32, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let prefix = Prefix::get(&mut reader).ok()?;
        if prefix.version != version {
            return None;
        }
        let told = if DIRECTED {
            Some(reader.bool().ok()?)
        } else {
            None
        };
        let chunk = only_chunk(&mut reader)?;
        let kind = chunk.map(|chunk| chunk.kind);
        let is_reply = match prefix.procedure {
            procedure::MSG => {
                let mut rpc = Reader::new(reader.rest());
                let xid = rpc.u32().ok()?;
                let is_reply = rpc.bool().ok()?;
                // A Reply reads nothing, and this one is not in its Reply chunk.
                let may_be = !is_reply || matches!(kind, None | Some(ChunkKind::Write));
                if xid != prefix.xid || !may_be {
                    return None;
                }
                is_reply
            }
            procedure::NOMSG => {
                let is_in =
                    |chunk: OnlyChunk| chunk.kind == ChunkKind::Reply && chunk.segment.length > 0;
                if !chunk.is_some_and(is_in) || !reader.is_empty() {
                    return None;
                }
                true
            }
            _ => return None,
        };
        if told.is_some_and(|told| told != is_reply) {
            return None;
        }
        Some(Self {
            xid: prefix.xid,
            credits: prefix.credits,
            is_reply,
            header_len: reader.position(),
            chunk,
        })
    }
}

/// Reads chunk lists with one chunk of one segment, or with none. Returns nothing if they have
/// more, or are not sound. The words in front of the segment tell which it is: present and
/// position; no Read list, present and count; no Read list, no Write list, present and count.
#[inline]
fn only_chunk(reader: &mut Reader<'_>) -> Option<Option<OnlyChunk>> {
    // Read list, Write list, Reply chunk (RFC 8166, 4.2).
    if *reader.rest().first_chunk()? == [0; 3 * UNIT] {
        reader.bytes(3 * UNIT).ok()?;
        return Some(None);
    }
    let [a, b, c, d, e, f, g, h] = reader.words().ok()?;
    let (kind, segment, others) = match (a, b) {
        (1, position) if position != 0 && position & 3 == 0 => {
            let rest = reader.u32().ok()?;
            (ChunkKind::Read { position }, [c, d, e, f], g | h | rest)
        }
        (0, 1) if c == 1 => {
            let rest = reader.u32().ok()?;
            (ChunkKind::Write, [d, e, f, g], h | rest)
        }
        (0, 0) if c == 1 && d == 1 => (ChunkKind::Reply, [e, f, g, h], 0),
        _ => return None,
    };
    let segment = Segment::of_words(segment).ok()?;
    (others == 0).then_some(Some(OnlyChunk { kind, segment }))
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_short)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                testing::{
                    decode_reply,
                    Bytes, //
                },
                v1, //
            },
            decode_counted,
            Call,
            Reply,
            ShortCall, //
        },
        *, //
    };

    /// Decodes a message in both ways, which have to agree. Returns whether the short one has
    /// taken it.
    fn compare(version: Version, bytes: &[u8]) -> Result<bool> {
        let Some(short) = Short::decode(version, bytes) else {
            return Ok(false);
        };
        let header = decode_counted(version, bytes).map_err(|error| error.fault)?;
        assert_eq!((header.xid, header.credits), (short.xid, short.credits));
        assert_eq!(header.header_len(), short.header_len);
        let is_reply = header.rpc_direction() == v1::Direction::Reply;
        assert_eq!(is_reply, short.is_reply);
        let call = ShortCall::decode(version, bytes);
        if is_reply {
            assert_eq!(call, None);
            let reply = Reply::of_short(&short);
            let any = decode_reply(version, bytes).ok_or(Fault::NoPayload)?;
            assert_eq!(reply.special, any.special);
            assert_eq!(reply.header_len, any.header_len);
            // The segments that were offered, longer ones, none, too many, and others.
            let offered = short.chunk.map_or(Segment::default(), |only| only.segment);
            let longer = Segment {
                length: u32::MAX,
                ..offered
            };
            for (write, reply_chunk) in [
                (&[offered][..], &[][..]),
                (&[], &[longer]),
                (&[longer], &[offered]),
                (&[], &[]),
                (&[offered, offered], &[offered, offered]),
                (&[Segment::default()], &[Segment::default()]),
            ] {
                let returned = |reply: &Reply<'_>| {
                    reply.returned(write.iter().copied(), reply_chunk.iter().copied())
                };
                assert_eq!(returned(&reply), returned(&any));
            }
        } else {
            let call = call.ok_or(Fault::NoPayload)?;
            let any = Call::decode(version, bytes).ok_or(Fault::NoPayload)?;
            assert_eq!(call.call(bytes), Some(any));
            let handle = call.chunk.map(|only| only.segment.handle);
            assert_eq!(handle, any.invalidate());
            let reads_or_offers = (!any.reads_nothing(), any.offers_chunks());
            let is_read = call.chunk.map(|only| only.kind.is_read());
            assert_eq!(
                (is_read == Some(true), is_read == Some(false)),
                reads_or_offers
            );
            assert_eq!(call.reads_nothing(), any.reads_nothing());
            assert_eq!(call.payload(bytes), any.payload);
        }
        Ok(true)
    }

    #[test]
    fn both_ways_to_decode_agree() -> Result {
        for (words, is_short) in [
            (&[7, 1, 9, 0, 0, 0, 0, 7, 0][..], true),
            (&[7, 1, 9, 0, 0, 0, 0, 7, 1, 5], true),
            // A Read chunk, a Write chunk, a Reply chunk.
            (&[7, 1, 9, 0, 1, 8, 1, 2, 0, 3, 0, 0, 0, 7, 0], true),
            (&[7, 1, 9, 0, 0, 1, 1, 1, 2, 0, 3, 0, 0, 7, 0], true),
            (&[7, 1, 9, 0, 0, 1, 1, 1, 2, 0, 3, 0, 0, 7, 1], true),
            (&[7, 1, 9, 0, 0, 1, 1, 1, 0, 0, 3, 0, 0, 7, 1], true),
            (&[7, 1, 9, 0, 0, 0, 1, 1, 1, 2, 0, 3, 7, 0], true),
            (&[7, 1, 9, 1, 0, 0, 1, 1, 1, 2, 0, 3], true),
            // Sound, but of another form.
            (&[7, 1, 9, 0, 0, 0, 1, 1, 1, 2, 0, 3, 7, 1], false),
            (&[7, 1, 9, 1, 1, 0, 1, 2, 0, 3, 0, 0, 0], false),
            (&[7, 1, 9, 0, 0, 1, 0, 0, 0, 7, 0], false),
            (&[7, 1, 9, 0, 0, 0, 1, 0, 7, 0], false),
            (
                &[7, 1, 9, 0, 0, 1, 1, 1, 2, 0, 3, 0, 1, 1, 1, 2, 0, 3, 7, 0],
                false,
            ),
            (
                &[7, 1, 9, 0, 0, 1, 2, 1, 2, 0, 3, 1, 2, 0, 3, 0, 0, 7, 0],
                false,
            ),
            (
                &[
                    7, 1, 9, 0, 1, 8, 1, 2, 0, 3, 1, 8, 1, 2, 0, 3, 0, 0, 0, 7, 0,
                ],
                false,
            ),
            (&[7, 1, 9, 4, 2], false),
            // Not sound.
            (&[7, 2, 9, 0, 0, 0, 0, 7, 0], false),
            (&[7, 1, 9, 0, 0, 0, 0, 8, 0], false),
            (&[7, 1, 9, 0, 0, 0, 0, 7, 2], false),
            (&[7, 1, 9, 0, 0, 0, 2, 7, 0], false),
            (&[7, 1, 9, 1, 0, 0, 0], false),
            (&[7, 1, 9, 1, 0, 0, 1, 1, 1, 0, 0, 3], false),
            (&[7, 1, 9, 1, 0, 0, 1, 1, 1, 2, 0, 3, 0], false),
            (&[7, 1, 9, 0, 1, 8, 1, 2, 0, 3, 0, 0, 0, 7, 1], false),
            (&[7, 1, 9, 0, 1, 7, 1, 2, 0, 3, 0, 0, 0, 7, 0], false),
            (&[7, 1, 9, 0, 1, 0, 1, 2, 0, 3, 0, 0, 0, 7, 0], false),
            (
                &[7, 1, 9, 0, 0, 1, 1, 1, 2, u32::MAX, u32::MAX, 0, 0, 7, 0],
                false,
            ),
        ] {
            let bytes = Bytes::from_words(words)?;
            check(Version::One, bytes.get(), is_short)?;
            // The same with another number, and the direction as fifth word.
            for told in 0..3 {
                let bytes = directed(words, told)?;
                let is_short = is_short && told == u32::from(is_reply(words));
                check(Version::Earlier, bytes.get(), is_short)?;
                assert_eq!(Short::decode(Version::One, bytes.get()), None);
                assert_eq!(Short::decode(Version::Two, bytes.get()), None);
            }
        }
        Ok(())
    }

    /// Compares both ways, for a message that the short one takes or not.
    fn check(version: Version, bytes: &[u8], is_short: bool) -> Result {
        assert_eq!(compare(version, bytes)?, is_short);
        // The whole header is needed, and two words behind it, if any.
        if is_short {
            let decode = |bytes| Short::decode(version, bytes);
            let header_len = decode(bytes).map_or(0, |short| short.header_len);
            let needed = bytes.len().min(header_len.saturating_add(2 * UNIT));
            for len in 0..needed {
                assert_eq!(decode(bytes.get(..len).unwrap_or(&[])), None);
            }
        }
        Ok(())
    }

    /// Returns whether a sound message of Version One is a Reply: it ends with the direction, or
    /// has nothing behind its Reply chunk.
    fn is_reply(words: &[u32]) -> bool {
        words.get(3) == Some(&procedure::NOMSG) || words.get(7..).is_some_and(ends_as_reply)
    }

    /// Returns whether there is an RPC message at the end of some words, and it is a Reply.
    fn ends_as_reply(words: &[u32]) -> bool {
        matches!(words, [.., 7, 1] | [.., 7, 1, 5])
    }

    /// Returns a message of Version One as one of the earlier protocol, with this direction.
    fn directed(words: &[u32], told: u32) -> Result<Bytes> {
        Bytes::from_writer(|writer| {
            for (at, word) in words.iter().enumerate() {
                match (at, *word) {
                    (1, 1) => writer.u32(Version::Earlier.number())?,
                    (1, other) => writer.u32(other.saturating_add(7))?,
                    (4, word) => {
                        writer.u32(told)?;
                        writer.u32(word)?;
                    }
                    (_, word) => writer.u32(word)?,
                }
            }
            Ok(())
        })
    }
}
