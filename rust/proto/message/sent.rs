// SPDX-License-Identifier: GPL-2.0

//! Headers of messages to send, by their [layouts](super::layout).

use super::{
    super::{
        chunk::{
            put_read_list,
            put_reply_chunk,
            put_write_list,
            ReadSegment,
            READ_ENTRY_LEN,
            SEGMENT_LEN, //
        },
        v1, //
    },
    decode::check_order,
    layout::{
        list,
        Layout,
        Word, //
    },
    ChunkKind,
    Direction,
    OnlyChunk,
    Prefix,
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
    /// Returns the size of such a header in octets. It is that of the table, which a test says.
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
        let htype = Layout::of_rpc(self.version, self.direction, false).htype;
        // The last number is that of the words which follow the prefix. All of them are zero, but
        // for the first one in a Reply of the earlier protocol.
        match (self.version, self.direction) {
            (Version::One, _) => self.put::<3>(htype, 0, buf),
            (Version::Two, Direction::Reply) => self.put::<1>(htype, 0, buf),
            (Version::Two, Direction::Call) => self.put::<4>(htype, 0, buf),
            (Version::Earlier, direction) => self.put::<4>(htype, direction.word(), buf),
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
    /// written as [those with any chunks](Outgoing) are, or cannot be: in a version that counts
    /// messages, or if something is wrong with it.
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
            ChunkKind::Reply if self.is_reply => v1::procedure::NOMSG,
            _ => v1::procedure::MSG,
        };
        let prefix = [self.xid, self.version.number(), self.credits, procedure];
        writer.words(prefix).ok()?;
        if self.version == Version::Earlier {
            writer.u32(self.is_reply.into()).ok()?;
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

/// The header of a Call or Reply, or of the last part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'a> {
    /// The version of the header, which in a Reply is that of the Call.
    pub(crate) version: Version,
    /// The direction: Call or Reply.
    pub(crate) direction: Direction,
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The credits requested or granted in Version One; see [`super::set_credits`] for Version Two.
    pub(crate) credits: u32,
    /// Set if the RPC message is in a chunk. Otherwise it follows the header.
    pub(crate) external: bool,
    /// The handle that the Responder may invalidate remotely: one of those below, or zero. Version
    /// One has no field for it.
    pub(crate) invalidate: u32,
    /// The chunk that holds an external Call. In Version One it is the Position Zero Read chunk.
    pub(crate) call: &'a [Segment],
    /// The other segments of the Read list, which a Call has. Those of one chunk are adjacent.
    pub(crate) read: &'a [ReadSegment],
    /// The Write chunks. In a Reply they are those of the Call, with the length of each segment set
    /// to what was written.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Reply chunk, in a Reply as the Write chunks. Version Two has it in a Reply only if the
    /// RPC message is in it.
    pub(crate) reply: Option<&'a [Segment]>,
}

impl Outgoing<'_> {
    /// The header of a Call or Reply without chunks.
    pub(crate) const fn new(
        version: Version,
        direction: Direction,
        xid: u32,
        credits: u32,
    ) -> Self {
        Self {
            version,
            direction,
            xid,
            credits,
            external: false,
            invalidate: 0,
            call: &[],
            read: &[],
            write: &[],
            reply: None,
        }
    }

    /// Writes the header to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::NoPayload`] if the RPC message is in a
    /// chunk that holds nothing, [`Fault::ZeroCredits`] if there is no grant in a Reply of a
    /// version that counts Calls, [`Fault::UnexpectedPositionZero`], [`Fault::UnorderedPosition`]
    /// and [`Fault::UnknownHandle`] for contents that a Requester must not send, and the fault of
    /// an invalid segment.
    #[inline]
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        if self.is_plain() {
            return PlainHeader {
                version: self.version,
                direction: self.direction,
                xid: self.xid,
                credits: self.credits,
            }
            .encode(buf);
        }
        self.encode_any(buf)
    }

    /// Returns whether there is nothing but what a [`PlainHeader`] has.
    #[inline]
    const fn is_plain(&self) -> bool {
        !self.external
            && self.call.is_empty()
            && self.read.is_empty()
            && self.write.is_empty()
            && self.reply.is_none()
            && self.invalidate == 0
            // A grant of zero is refused (RFC 8166, 4.2.3).
            && (self.credits != 0 || matches!(self.direction, Direction::Call))
    }

    /// Writes any header, see [`Self::encode`].
    #[inline(never)]
    fn encode_any(&self, buf: &mut [u8]) -> Result<usize> {
        let is_two = self.version == Version::Two;
        let layout = Layout::of_rpc(self.version, self.direction, self.external);
        let holder = match self.direction {
            Direction::Call => self.call,
            Direction::Reply => self.reply.unwrap_or_default(),
        };
        if self.external && holder.iter().all(|segment| segment.length == 0) {
            return Err(Fault::NoPayload);
        }
        if !self.external && !self.call.is_empty() {
            return Err(Fault::UnexpectedPositionZero);
        }
        if self.credits == 0 && self.direction == Direction::Reply && !is_two {
            return Err(Fault::ZeroCredits);
        }
        let mut writer = Writer::new(buf);
        Prefix {
            xid: self.xid,
            version: self.version.number(),
            credits: self.credits,
            procedure: layout.htype,
        }
        .put(&mut writer)?;
        match layout.word {
            Word::Direction => writer.u32(self.direction.word())?,
            Word::Invalidate => writer.u32(self.known_handle()?)?,
            Word::Absent | Word::Remaining => {}
        }
        let mut call = self.call;
        if layout.has(list::CALL) {
            put_read_list(&mut writer, core::mem::take(&mut call), &[])?;
        }
        if layout.has(list::READ) {
            // Positions need no order before Version Two.
            if is_two {
                check_order(self.read.iter().copied())?;
            } else if self.read.iter().any(|entry| entry.position == 0) {
                return Err(Fault::UnexpectedPositionZero);
            }
            put_read_list(&mut writer, call, self.read)?;
        }
        if layout.has(list::WRITE) {
            put_write_list(&mut writer, self.write)?;
        }
        if layout.has(list::REPLY) {
            put_reply_chunk(&mut writer, self.reply)?;
        }
        Ok(writer.len())
    }

    /// Returns the handle to invalidate. It must be zero or belong to one of the chunks (Version
    /// Two, 6.5).
    fn known_handle(&self) -> Result<u32> {
        let named = self.invalidate;
        let written = self.write.iter().copied().flatten();
        let mut handles = self
            .call
            .iter()
            .chain(self.read.iter().map(|entry| &entry.segment))
            .chain(written)
            .chain(self.reply.unwrap_or_default())
            .map(|segment| segment.handle);
        if named != 0 && !handles.any(|handle| handle == named) {
            return Err(Fault::UnknownHandle(named));
        }
        Ok(named)
    }
}

/// Returns the size of the header of a Call or Reply with the given numbers of segments, in octets.
/// Those of a Call chunk are among the Read segments. `write` and `reply` are `None` if there is no
/// such chunk.
///
/// # Errors
///
/// [`Fault::NoSpace`] if the size overflows.
#[inline]
pub(crate) fn header_len(
    (version, direction, external): (Version, Direction, bool),
    read: usize,
    write: Option<usize>,
    reply: Option<usize>,
) -> Result<usize> {
    let layout = Layout::of_rpc(version, direction, external);
    // A Write chunk has an "is present" word and a count, the Reply chunk a count.
    let items = [
        read.checked_mul(READ_ENTRY_LEN),
        array_len(write, 2 * UNIT),
        array_len(reply, UNIT),
    ];
    items
        .into_iter()
        .try_fold(layout.len(), |sum, item| sum.checked_add(item?))
        .ok_or(Fault::NoSpace)
}

/// Returns the size of a chunk, if there is one, with `more` octets beside its segments.
#[inline]
fn array_len(segments: Option<usize>, more: usize) -> Option<usize> {
    match segments {
        Some(segments) => segments.checked_mul(SEGMENT_LEN)?.checked_add(more),
        None => Some(0),
    }
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
            decode_call,
            set_credits,
            Short, //
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
            let header = Outgoing::new(version, Direction::Reply, 7, 0);
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
                let external = kinds & 24 != 0 && read > 0;
                let both = kinds & 16 != 0 && external;
                let call = match (external, both) {
                    (false, _) => 0,
                    (true, false) => read,
                    (true, true) => 1,
                };
                let reads = [ReadSegment {
                    position: 4,
                    segment: SEGMENT,
                }; 2];
                let lists = [segments.get(..1).unwrap_or_default()];
                let filled = |count: usize| Some(count).filter(|count| *count > 0);
                let header = Outgoing {
                    external,
                    invalidate: if read > 0 { 5 } else { 0 },
                    call: segments.get(..call).unwrap_or_default(),
                    read: reads.get(..read.saturating_sub(call)).unwrap_or_default(),
                    write: lists.get(..write).unwrap_or_default(),
                    reply: segments.get(..reply).filter(|chunk| !chunk.is_empty()),
                    ..Outgoing::new(version, Direction::Call, 7, 1)
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                let form = (version, Direction::Call, external);
                let len = header_len(form, read, filled(write), filled(reply))?;
                assert_eq!(bytes.get().len(), len);

                let header = Outgoing {
                    direction: Direction::Reply,
                    external: reply > 0,
                    invalidate: 0,
                    call: &[],
                    read: &[],
                    ..header
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                let form = (version, Direction::Reply, header.external);
                let len = header_len(form, 0, filled(write), filled(reply))?;
                assert_eq!(bytes.get().len(), len);
            }
            for direction in [Direction::Call, Direction::Reply] {
                let len = header_len((version, direction, false), 0, None, None)?;
                let plain = PlainHeader::len(version, direction);
                assert_eq!(u32::try_from(len), Ok(plain));
                assert!(plain <= PlainHeader::MAX_LEN);
            }
        }
        let form = (Version::Two, Direction::Call, false);
        for len in [
            header_len(form, usize::MAX, None, None),
            header_len(form, usize::MAX / READ_ENTRY_LEN, None, None),
            header_len(form, 0, Some(usize::MAX), None),
            header_len(form, 0, None, Some(usize::MAX / SEGMENT_LEN)),
        ] {
            assert_eq!(len, Err(Fault::NoSpace));
        }
        Ok(())
    }

    /// A header that was encoded is decoded to the same contents.
    #[test]
    fn headers_survive_the_journey() -> Result {
        for version in [Version::One, Version::Two, Version::Earlier] {
            let call = Outgoing {
                external: true,
                invalidate: 5,
                call: &[SEGMENT],
                reply: Some(&[SEGMENT]),
                ..Outgoing::new(version, Direction::Call, 7, 1)
            };
            let bytes = Bytes::from_encoder(|buf| call.encode(buf))?;
            let call = decode_call(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(
                (call.xid, call.is_external(), call.invalidate()),
                (7, true, Some(5))
            );

            let reply = Outgoing {
                external: true,
                write: &[&[SEGMENT]],
                reply: Some(&[SEGMENT]),
                ..Outgoing::new(version, Direction::Reply, 7, 1)
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
            (&list, &[]),
            (&list, &[read(4)]),
        ] {
            for (write, reply) in [
                (&[][..], None),
                (&[&list[..]], None),
                (&[], Some(&list[..])),
            ] {
                let header = Outgoing {
                    external: !call.is_empty(),
                    call,
                    read: reads,
                    write,
                    reply,
                    ..Outgoing::new(version, Direction::Call, 7, 1)
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                assert_eq!(direction(&bytes), Some(0));
            }
        }
        for write in [&[][..], &[&list[..]]] {
            for reply in [None, Some(&list[..])] {
                let header = Outgoing {
                    external: reply.is_some(),
                    write,
                    reply,
                    ..Outgoing::new(version, Direction::Reply, 7, 1)
                };
                let bytes = Bytes::from_encoder(|buf| header.encode(buf))?;
                assert_eq!(direction(&bytes), Some(1));
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
            let two = Outgoing {
                external: true,
                invalidate,
                call: &[SEGMENT],
                read: &[read(40, 6)],
                ..Outgoing::new(Version::Two, Direction::Call, 7, 1)
            };
            let expected = [
                7, 2, 1, 8, invalidate, 1, 0, 5, 8, 0, 0, 0, 1, 40, 6, 8, 0, 0, 0, 0, 0,
            ];
            let bytes = Bytes::from_encoder(|buf| two.encode(buf))?;
            assert!(bytes.is_words(&expected));
            let call = decode_call(Version::Two, bytes.get()).ok_or(Fault::NoPayload)?;
            assert!(call.is_external() && call.payload.is_empty());
            assert!(call.reads().eq([read(0, 5), read(40, 6)]));
            assert_eq!(call.invalidate(), Some(invalidate));

            // Version One has one Read list, with the Position Zero Read chunk in front.
            let one = Outgoing {
                version: Version::One,
                ..two
            };
            let bytes = Bytes::from_encoder(|buf| one.encode(buf))?;
            let call = decode_call(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
            assert!(call.is_external() && call.reads().eq([read(0, 5), read(40, 6)]));
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

    /// A segment of all kinds of octets.
    const ANY: Segment = Segment {
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
            chunk: OnlyChunk { kind, segment: ANY },
        }
    }

    /// The header with this chunk, written as one with any chunks.
    fn any(version: Version, kind: ChunkKind, is_reply: bool) -> Result<Bytes> {
        let (read, write, reply) = match kind {
            ChunkKind::Read { position } => {
                let segment = ANY;
                (&[ReadSegment { position, segment }][..], &[][..], None)
            }
            ChunkKind::Write => (&[][..], &[&[ANY][..]][..], None),
            ChunkKind::Reply => (&[][..], &[][..], Some(&[ANY][..])),
        };
        let direction = if is_reply {
            Direction::Reply
        } else {
            Direction::Call
        };
        let header = Outgoing {
            external: is_reply && kind == ChunkKind::Reply,
            read,
            write,
            reply,
            ..Outgoing::new(version, direction, 7, 9)
        };
        Bytes::from_encoder(|buf| header.encode(buf))
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
            for is_reply in [false, true] {
                if is_reply && kind.is_read() {
                    continue;
                }
                let short = short(version, kind, is_reply)?;
                assert_eq!(short.get(), any(version, kind, is_reply)?.get());
            }
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
