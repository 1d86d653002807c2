// SPDX-License-Identifier: GPL-2.0

//! Received messages with one chunk of one segment at most, which nearly all are: some words are
//! compared instead of a walk through the [layout](super::layout). Tests compare both.

use super::{
    super::{
        chunk::{
            Span,
            READ_ENTRY_LEN,
            SEGMENT_LEN, //
        },
        v1::{
            self,
            procedure, //
        },
        v2, //
    },
    decode::check_rpc,
    Body,
    Direction,
    Header,
    Lists,
    Prefix,
    Version,
    PREFIX_LEN, //
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

/// A message that has no chunk, or one of one segment, and with which nothing is wrong. In Version
/// Two it may be the last part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    /// The version.
    pub(crate) version: Version,
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// Set if the message is a Reply.
    pub(crate) is_reply: bool,
    /// The size of the header.
    pub(crate) header_len: usize,
    /// The chunk. If that is a Reply chunk in a Reply, the RPC message is in it; else it follows
    /// the header.
    pub(crate) chunk: Option<OnlyChunk>,
    /// The `rdma_inv_handle` field of Version Two.
    pub(super) inv_handle: u32,
}

impl Short {
    /// Decodes a message in a few steps, in Version Two one without chunks. Returns nothing for
    /// everything else, sound or not: there is [`decode`](super::decode()) for that.
    #[inline]
    pub(crate) fn decode(version: Version, bytes: &[u8]) -> Option<Self> {
        match version {
            Version::One => Self::counted::<false>(version, bytes),
            Version::Earlier => Self::counted::<true>(version, bytes),
            Version::Two => Self::of_two::<false>(bytes),
        }
    }

    /// Decodes a Call as [`Self::decode`] does.
    #[inline]
    pub(crate) fn decode_call(version: Version, bytes: &[u8]) -> Option<Self> {
        Self::decode(version, bytes).filter(|short| !short.is_reply)
    }

    /// A Call that was decoded before: these are its version, transaction ID, size of the header,
    /// and chunk.
    #[inline]
    pub(crate) const fn of_call(
        (version, xid, header_len): (Version, u32, usize),
        chunk: Option<OnlyChunk>,
    ) -> Self {
        Self {
            version,
            xid,
            // Nobody asks again.
            credits: 0,
            is_reply: false,
            header_len,
            chunk,
            inv_handle: 0,
        }
    }

    /// Decodes a message of Version Two, also one with a chunk, if there may be any.
    #[inline]
    pub(super) fn of_any_part(bytes: &[u8], limits: &Limits) -> Option<Self> {
        let short = Self::of_two::<true>(bytes)?;
        let may_be = limits.read_segments.min(limits.write_chunks) > 0 && limits.chunk_segments > 0;
        (short.chunk.is_none() || may_be).then_some(short)
    }

    /// Decodes a message of a version that counts Calls. `DIRECTED` says that there is a word for
    /// the direction before the chunk lists.
    #[inline(always)]
    fn counted<const DIRECTED: bool>(version: Version, bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let prefix = Prefix::get(&mut reader).ok()?;
        if prefix.version != version.number() {
            return None;
        }
        let told = if DIRECTED {
            Some(reader.bool().ok()?)
        } else {
            None
        };
        let chunk = only_chunk::<true>(&mut reader)?;
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
            version,
            xid: prefix.xid,
            credits: prefix.credits,
            is_reply,
            header_len: reader.position(),
            chunk,
            inv_handle: 0,
        })
    }

    /// Decodes an RDMA2_CALL_INLINE or RDMA2_REPLY_INLINE, which has a chunk only if `CHUNK`.
    #[inline(always)]
    fn of_two<const CHUNK: bool>(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let prefix = Prefix::get(&mut reader).ok()?;
        if prefix.version != v2::VERSION {
            return None;
        }
        let mut inv_handle = 0;
        let is_reply = match prefix.procedure {
            v2::htype::CALL_INLINE => false,
            v2::htype::REPLY_INLINE => true,
            _ => return None,
        };
        let chunk = if is_reply {
            only_write_chunk::<CHUNK>(&mut reader)?
        } else {
            inv_handle = reader.u32().ok()?;
            only_chunk::<CHUNK>(&mut reader)?
        };
        // The first word of the RPC message, or of its last part, belongs to the header.
        (reader.rest().len() >= UNIT).then_some(Self {
            version: Version::Two,
            xid: prefix.xid,
            credits: prefix.credits,
            is_reply,
            header_len: reader.position(),
            chunk,
            inv_handle,
        })
    }

    /// Returns the direction.
    #[inline]
    pub(crate) const fn direction(&self) -> Direction {
        if self.is_reply {
            Direction::Reply
        } else {
            Direction::Call
        }
    }

    /// Returns the RPC message behind the header, without what was reduced from it.
    #[inline]
    pub(crate) fn payload<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        message.get(self.header_len..).unwrap_or(&[])
    }

    /// Returns whether the RPC message behind the header is a whole one, as far as that can be
    /// told, and agrees with the header (Version Two, 7.2). Two words are the least that an RPC
    /// message can be.
    #[inline]
    pub(crate) fn is_whole(&self, message: &[u8]) -> bool {
        let payload = self.payload(message);
        payload.len() >= 2 * UNIT && check_rpc(payload, self.xid, self.direction()).is_ok()
    }

    /// Returns whether there is nothing to read.
    #[inline]
    pub(crate) fn reads_nothing(&self) -> bool {
        !self.chunk.is_some_and(|chunk| chunk.kind.is_read())
    }

    /// Returns the header of the message.
    #[inline]
    pub(crate) fn header<'a>(&self, message: &'a [u8]) -> Header<'a> {
        let is_two = self.version == Version::Two;
        let has_word = self.version == Version::Earlier || is_two && !self.is_reply;
        let first = PREFIX_LEN.saturating_add(if has_word { UNIT } else { 0 });
        // A Reply of Version Two has no Read list in front.
        let second = first.saturating_add(if is_two && self.is_reply { 0 } else { UNIT });
        let third = second.saturating_add(3 * UNIT);
        let mut lists = Lists {
            inv_handle: self.inv_handle,
            ..Lists::default()
        };
        let mut body = Body::Inline(self.direction());
        if let Some(OnlyChunk { kind: of, segment }) = self.chunk {
            let length = segment.length;
            match of {
                ChunkKind::Read { .. } => lists.read = Span::new(first, READ_ENTRY_LEN, length),
                ChunkKind::Write => lists.write = Span::new(second, READ_ENTRY_LEN, 1),
                ChunkKind::Reply => lists.reply = Some(Span::new(third, SEGMENT_LEN, length)),
            }
            if self.is_reply && of == ChunkKind::Reply {
                body = Body::External(Direction::Reply);
            }
        }
        Header {
            version: self.version,
            xid: self.xid,
            credits: self.credits,
            body,
            header_len: self.header_len,
            payload: self.payload(message),
            lists,
            message,
        }
    }
}

/// Returns whether a message is an RDMA_MSG whose RPC message is a Call, sound or not. Then
/// [`decode`](super::decode()) finds a Call, or a fault that is not one of a Reply.
///
/// This takes less than to decode it, but of a Call in a chunk (RDMA_NOMSG) it says no.
pub(crate) fn holds_call(bytes: &[u8]) -> bool {
    rpc_direction(bytes) == Some(0)
}

/// Skips the header of an RDMA_MSG, and returns the direction of the RPC message as it is.
#[inline]
fn rpc_direction(bytes: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader).ok()?;
    if prefix.version != v1::VERSION || prefix.procedure != procedure::MSG {
        return None;
    }
    let skip_chunk = |reader: &mut Reader<'_>| {
        let count = usize::try_from(reader.u32().ok()?).ok()?;
        let segments = reader.bytes(count.checked_mul(SEGMENT_LEN)?);
        segments.is_ok().then_some(())
    };
    while reader.bool().ok()? {
        reader.array::<{ READ_ENTRY_LEN - UNIT }>().ok()?;
    }
    while reader.bool().ok()? {
        skip_chunk(&mut reader)?;
    }
    if reader.bool().ok()? {
        skip_chunk(&mut reader)?;
    }
    let [_, _, _, _, direction @ ..] = *reader.array::<{ 2 * UNIT }>().ok()?;
    Some(u32::from_be_bytes(direction))
}

/// Reads chunk lists with one chunk of one segment if `CHUNK`, or with none. Returns nothing if
/// they have more, or are not sound. The words in front of the segment tell which it is: present
/// and position; no Read list, present and count; no Read list, no Write list, present and count.
#[inline]
fn only_chunk<const CHUNK: bool>(reader: &mut Reader<'_>) -> Option<Option<OnlyChunk>> {
    // Read list, Write list, Reply chunk (RFC 8166, 4.2).
    if *reader.rest().first_chunk()? == [0; 3 * UNIT] {
        reader.bytes(3 * UNIT).ok()?;
        return Some(None);
    }
    if !CHUNK {
        return None;
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

/// Reads the Write list of a Reply of Version Two, with one chunk of one segment if `CHUNK`, or
/// with none.
#[inline]
fn only_write_chunk<const CHUNK: bool>(reader: &mut Reader<'_>) -> Option<Option<OnlyChunk>> {
    if *reader.rest().first_chunk()? == [0; UNIT] {
        reader.bytes(UNIT).ok()?;
        return Some(None);
    }
    if !CHUNK {
        return None;
    }
    match reader.words().ok()? {
        [1, 1, handle, length, high, low, 0] => Some(Some(OnlyChunk {
            kind: ChunkKind::Write,
            segment: Segment::of_words([handle, length, high, low]).ok()?,
        })),
        _ => None,
    }
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
            super::testing::{
                decode_reply,
                Bytes, //
            },
            decode::decode_any,
            decode_call,
            Reply, //
        },
        *, //
    };

    /// Decodes a message in both ways, which have to agree. Returns whether the short one has
    /// taken it.
    fn compare(version: Version, bytes: &[u8]) -> Result<bool> {
        let Some(short) = Short::decode(version, bytes) else {
            return Ok(false);
        };
        let header = decode_any(version, bytes, &Limits::DEFAULT).map_err(|error| error.fault)?;
        assert_eq!(header, short.header(bytes));
        let call = Short::decode_call(version, bytes);
        if short.is_reply {
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
            let any = decode_call(version, bytes).ok_or(Fault::NoPayload)?;
            assert_eq!(any, header);
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

    /// The same for Version Two, where the last part of an RPC message may follow.
    #[test]
    fn both_ways_to_decode_version_two_agree() -> Result {
        let (call, reply) = (v2::htype::CALL_INLINE, v2::htype::REPLY_INLINE);
        // Whether it is short without a chunk, and with one.
        for (words, plain, short) in [
            (&[7, 2, 9, call, 0, 0, 0, 0, 7, 0][..], true, true),
            (&[7, 2, 9, call, 7, 0, 0, 0, 7], true, true),
            (&[7, 2, 9, reply, 0, 7, 1, 4], true, true),
            (
                &[7, 2, 9, call, 5, 1, 8, 5, 4, 0, 9, 0, 0, 0, 9],
                false,
                true,
            ),
            (
                &[7, 2, 9, call, 0, 0, 1, 1, 5, 4, 0, 9, 0, 0, 7, 0],
                false,
                true,
            ),
            (
                &[7, 2, 9, call, 5, 0, 0, 1, 1, 5, 4, 0, 9, 7, 0],
                false,
                true,
            ),
            (&[7, 2, 9, reply, 1, 1, 5, 4, 0, 9, 0, 7, 1], false, true),
            (&[7, 2, 9, call, 0, 0, 0, 0], false, false),
            (
                &[7, 2, 9, call, 5, 1, 0, 5, 4, 0, 9, 0, 0, 0, 9],
                false,
                false,
            ),
            (
                &[7, 2, 9, call, 5, 1, 6, 5, 4, 0, 9, 0, 0, 0, 9],
                false,
                false,
            ),
            (&[7, 2, 9, call, 0, 0, 0, 1, 0, 7, 0], false, false),
            (&[7, 2, 9, call, 0, 0, 0, 2, 7, 0], false, false),
            (&[7, 2, 9, reply, 1, 0, 0, 7, 1], false, false),
            (
                &[7, 2, 9, reply, 1, 1, 5, 4, 0, 9, 1, 0, 0, 7, 1],
                false,
                false,
            ),
            (
                &[7, 2, 9, reply, 1, 1, 5, 4, u32::MAX, u32::MAX, 0, 7],
                false,
                false,
            ),
            (&[7, 2, 9, reply, 0], false, false),
            (&[7, 1, 9, call, 0, 0, 0, 0, 7, 0], false, false),
            (&[7, 2, 9, v2::htype::GRANT], false, false),
            (&[7, 2, 9], false, false),
        ] {
            let bytes = Bytes::from_words(words)?;
            let bytes = bytes.get();
            assert_eq!(Short::decode(Version::Two, bytes).is_some(), plain);
            let found = Short::of_any_part(bytes, &Limits::DEFAULT);
            assert_eq!(found.is_some(), short);
            let Some(found) = found else { continue };
            let header = decode_any(Version::Two, bytes, &Limits::DEFAULT);
            assert_eq!(header, Ok(found.header(bytes)));
            let no_chunks = Limits {
                chunk_segments: 0,
                ..Limits::DEFAULT
            };
            let refused = Short::of_any_part(bytes, &no_chunks).is_none();
            assert_eq!(refused, !plain);
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
