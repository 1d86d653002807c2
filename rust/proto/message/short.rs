// SPDX-License-Identifier: GPL-2.0

//! Received messages of Version One with one chunk of one segment at most: nearly all are such.

use super::{
    super::v1::{
        procedure,
        Prefix,
        VERSION, //
    },
    only_chunk::{
        ChunkKind,
        OnlyChunk, //
    }, //
};
use crate::proto::prelude::*;

/// A message of Version One that has no chunk, or one of one segment, and with which nothing is
/// wrong.
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
    /// is [`decode`](super::super::v1::decode) for that.
    #[inline]
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let prefix = Prefix::get(&mut reader).ok()?;
        if prefix.version != VERSION {
            return None;
        }
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
/// more, or are not sound.
#[inline]
fn only_chunk(reader: &mut Reader<'_>) -> Option<Option<OnlyChunk>> {
    // Read list, Write list, Reply chunk (RFC 8166, 4.2).
    if *reader.rest().first_chunk()? == [0; 3 * UNIT] {
        reader.bytes(3 * UNIT).ok()?;
        return Some(None);
    }
    let (kind, segment, is_last) = if reader.bool().ok()? {
        let position = reader.u32().ok()?;
        if position == 0 || position & 3 != 0 {
            return None;
        }
        let segment = Segment::get(reader).ok()?;
        let is_last = *reader.array().ok()? == [0; 3 * UNIT];
        (ChunkKind::Read { position }, segment, is_last)
    } else if reader.bool().ok()? {
        let segment = only_segment(reader)?;
        let is_last = *reader.array().ok()? == [0; 2 * UNIT];
        (ChunkKind::Write, segment, is_last)
    } else {
        let is_there = reader.bool().ok()?;
        (ChunkKind::Reply, only_segment(reader)?, is_there)
    };
    is_last.then_some(Some(OnlyChunk { kind, segment }))
}

/// Reads a Write chunk or a Reply chunk of one segment.
#[inline]
fn only_segment(reader: &mut Reader<'_>) -> Option<Segment> {
    let count = reader.u32().ok()?;
    let segment = Segment::get(reader).ok()?;
    (count == 1).then_some(segment)
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
            Call,
            Reply,
            ShortCall,
            Version, //
        },
        *, //
    };

    /// Decodes a message in both ways, which have to agree. Returns whether the short one has
    /// taken it.
    fn compare(bytes: &[u8]) -> Result<bool> {
        let Some(short) = Short::decode(bytes) else {
            return Ok(false);
        };
        let header = v1::decode(bytes).map_err(|error| error.fault)?;
        assert_eq!((header.xid, header.credits), (short.xid, short.credits));
        assert_eq!(header.header_len(), short.header_len);
        let is_reply = header.rpc_direction() == v1::Direction::Reply;
        assert_eq!(is_reply, short.is_reply);
        let call = ShortCall::decode(Version::One, bytes);
        if is_reply {
            assert_eq!(call, None);
            let reply = Reply::of_short(&short);
            let any = decode_reply(Version::One, bytes).ok_or(Fault::NoPayload)?;
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
            let any = Call::decode(Version::One, bytes).ok_or(Fault::NoPayload)?;
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
            assert_eq!(compare(bytes.get())?, is_short);
            // The whole header is needed, and two words behind it, if any.
            if is_short {
                let header_len = Short::decode(bytes.get()).map_or(0, |short| short.header_len);
                let needed = bytes.get().len().min(header_len.saturating_add(2 * UNIT));
                for len in 0..needed {
                    assert_eq!(Short::decode(bytes.get().get(..len).unwrap_or(&[])), None);
                }
            }
        }
        Ok(())
    }
}
