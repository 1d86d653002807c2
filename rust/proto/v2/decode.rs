// SPDX-License-Identifier: GPL-2.0

//! Decoding and checking of received Version Two messages.
//!
//! The checks here depend on one message alone. [`super::super::session`] checks whether the
//! message may come at this point, and whether the parts of an RPC message fit together.

use super::{
    super::{
        chunk::{
            Chunk,
            ReadList,
            WriteList, //
        },
        props::Advertised, //
    },
    htype,
    Direction,
    MessagePurpose,
    Prefix,
    RdmaError,
    VERSION, //
};
use crate::proto::prelude::*;

/// The chunks of a Call, and the handle that may be invalidated remotely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer<'a> {
    /// The `rdma_inv_handle` field as received; see [`Self::invalidate`].
    pub(crate) inv_handle: u32,
    /// The Call chunk, which holds the RPC message. It is empty in an RDMA2_CALL_INLINE.
    pub(crate) call: ReadList<'a>,
    /// The Read list.
    pub(crate) read: ReadList<'a>,
    /// The Write list.
    pub(crate) write: WriteList<'a>,
    /// The Reply chunk, if it is marked "present".
    pub(crate) reply: Option<Chunk<'a>>,
}

impl<'a> Offer<'a> {
    /// The value for a Call without chunks.
    const NONE: Self = Self {
        inv_handle: 0,
        call: ReadList::NONE,
        read: ReadList::NONE,
        write: WriteList::NONE,
        reply: None,
    };

    /// Reads the chunk lists that all Calls have.
    fn get(
        reader: &mut Reader<'a>,
        inv_handle: u32,
        call: ReadList<'a>,
        limits: &Limits,
    ) -> Result<Self> {
        let read = ReadList::get(reader, limits)?;
        let mut last = 0;
        for entry in read.iter() {
            // Position zero is reserved for a Call chunk (4.5.1.2, 6.3.7).
            if entry.position == 0 {
                return Err(Fault::UnexpectedPositionZero);
            }
            if entry.position < last {
                return Err(Fault::UnorderedPosition(entry.position));
            }
            last = entry.position;
        }
        Ok(Self {
            inv_handle,
            call,
            read,
            write: WriteList::get(reader, limits)?,
            reply: if reader.bool()? {
                Some(Chunk::get(reader, limits)?)
            } else {
                None
            },
        })
    }

    /// Returns whether there is no chunk at all.
    pub(crate) const fn is_empty(&self) -> bool {
        self.call.is_empty()
            && self.read.is_empty()
            && self.write.is_empty()
            && self.reply.is_none()
    }

    /// Returns all segments, those of the Call chunk first.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        let lists = self.call.iter().chain(self.read.iter());
        let chunks = self.write.iter().chain(self.reply);
        lists
            .map(|entry| entry.segment)
            .chain(chunks.flat_map(|chunk| chunk.iter()))
    }

    /// Returns the number of Read chunks, without the Call chunk. The segments of a chunk are
    /// adjacent and have the same position (4.5.1).
    pub(crate) fn read_chunks(&self) -> usize {
        let mut last = 0;
        self.read
            .iter()
            .filter(|entry| core::mem::replace(&mut last, entry.position) != entry.position)
            .count()
    }

    /// Returns the handle that a Responder may invalidate remotely (6.5).
    ///
    /// The handle must be in this header. Any other may belong to another RPC.
    pub(crate) fn invalidate(&self) -> Option<u32> {
        Some(self.inv_handle)
            .filter(|handle| *handle != 0 && self.segments().any(|s| s.handle == *handle))
    }
}

/// A received message that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The number of messages that its receiver may send, counted from the start of the connection.
    pub(crate) credits: u32,
    /// The rest of the message.
    pub(crate) body: Body<'a>,
    /// The size of the header, which is the offset of the payload.
    header_len: usize,
}

/// The contents of a received message, by header type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// RDMA2_ERROR (6.3.1).
    Error(RdmaError),
    /// RDMA2_GRANT (6.3.2).
    Grant,
    /// RDMA2_CONNPROP_MIDDLE (6.3.3) or RDMA2_CONNPROP_FINAL (6.3.4).
    Properties {
        /// The properties that the message advertises.
        told: Advertised<'a>,
        /// True if this is the final message.
        last: bool,
    },
    /// RDMA2_CALL_EXTERNAL (6.3.5).
    CallExternal(Offer<'a>),
    /// RDMA2_CALL_INLINE (6.3.7).
    CallInline {
        /// The chunks of the Call.
        offer: Offer<'a>,
        /// The RPC message or its last part, without the data items that were reduced from it.
        payload: &'a [u8],
    },
    /// RDMA2_CALL_MIDDLE (6.3.6) or RDMA2_REPLY_MIDDLE (6.3.9).
    Middle {
        /// The direction, which distinguishes the two.
        direction: Direction,
        /// The number of octets of the RPC message still to come.
        remaining: u32,
        /// A part of the RPC message.
        payload: &'a [u8],
    },
    /// RDMA2_REPLY_EXTERNAL (6.3.8).
    ReplyExternal {
        /// The Call's Write chunks, with the lengths that were written.
        write: WriteList<'a>,
        /// The Call's Reply chunk, which holds the RPC message.
        reply: Chunk<'a>,
    },
    /// RDMA2_REPLY_INLINE (6.3.10).
    ReplyInline {
        /// The Call's Write chunks, with the lengths that were written.
        write: WriteList<'a>,
        /// The RPC message or its last part.
        payload: &'a [u8],
    },
}

impl<'a> Header<'a> {
    /// Returns the length of the header in octets.
    pub(crate) const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the subject of the message.
    pub(crate) const fn purpose(&self) -> MessagePurpose {
        match self.body {
            Body::Grant | Body::Properties { .. } => MessagePurpose::Control,
            Body::CallExternal(_)
            | Body::CallInline { .. }
            | Body::Middle {
                direction: Direction::Call,
                ..
            } => MessagePurpose::Call,
            Body::Error(_)
            | Body::ReplyExternal { .. }
            | Body::ReplyInline { .. }
            | Body::Middle {
                direction: Direction::Reply,
                ..
            } => MessagePurpose::Reply,
        }
    }

    /// Returns the part of an RPC message behind the header, which starts [`Self::header_len`]
    /// octets into the received bytes.
    pub(crate) const fn payload(&self) -> &'a [u8] {
        match self.body {
            Body::CallInline { payload, .. }
            | Body::ReplyInline { payload, .. }
            | Body::Middle { payload, .. } => payload,
            _ => &[],
        }
    }
}

/// The reason why a message was not accepted, and the part of it that can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// The reason.
    pub(crate) fault: Fault,
    /// The first four words, unless the message is too short to have them.
    pub(crate) prefix: Option<Prefix>,
}

/// Decodes a received message.
///
/// # Errors
///
/// See [`Fault`]; [`Fault::Runt`] for a message shorter than the prefix. No strict prefix of a
/// valid message is accepted, except that an RPC message may lack its end.
pub(crate) fn decode<'a>(
    bytes: &'a [u8],
    limits: &Limits,
) -> core::result::Result<Header<'a>, DecodeError> {
    match Plain::get(bytes) {
        Some(plain) => Ok(plain.header()),
        None => decode_any(bytes, limits),
    }
}

/// The most common messages: an RDMA2_CALL_INLINE or RDMA2_REPLY_INLINE with all chunk lists marked
/// "not present".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plain<'a> {
    /// The direction, which distinguishes the two.
    pub(crate) direction: Direction,
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The number of messages that its receiver may send.
    pub(crate) credits: u32,
    /// The handle to invalidate, of which a message without chunks has none to name.
    inv_handle: u32,
    /// The size of the header.
    pub(crate) header_len: usize,
    /// The RPC message, or its last part.
    pub(crate) payload: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Decodes a message. Returns `None` for everything else, valid or not.
    #[inline]
    pub(crate) fn get(bytes: &'a [u8]) -> Option<Self> {
        let (prefix, rest) = bytes.split_first_chunk()?;
        let prefix = Prefix::of(prefix);
        if prefix.version != VERSION {
            return None;
        }
        let (direction, inv_handle, payload) = match prefix.procedure {
            htype::CALL_INLINE => {
                let ([a, b, c, d], rest) = rest.split_first_chunk()?;
                // Read list, Write list, Reply chunk.
                let (lists, payload) = rest.split_first_chunk()?;
                if *lists != [0; 3 * UNIT] {
                    return None;
                }
                let inv_handle = u32::from_be_bytes([*a, *b, *c, *d]);
                (Direction::Call, inv_handle, payload)
            }
            htype::REPLY_INLINE => {
                let (list, payload) = rest.split_first_chunk()?;
                if *list != [0; UNIT] {
                    return None;
                }
                (Direction::Reply, 0, payload)
            }
            _ => return None,
        };
        // See `payload`.
        if payload.len() < UNIT {
            return None;
        }
        Some(Self {
            direction,
            xid: prefix.xid,
            credits: prefix.credits,
            inv_handle,
            header_len: bytes.len().saturating_sub(payload.len()),
            payload,
        })
    }

    /// Returns whether the RPC message is a whole one, as far as that can be told, and agrees with
    /// the header (7.2). Two words are the least that an RPC message can be.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.payload.len() >= 2 * UNIT && check_rpc(self.payload, self.xid, self.direction).is_ok()
    }

    /// Returns the header.
    fn header(&self) -> Header<'a> {
        let payload = self.payload;
        let body = match self.direction {
            Direction::Call => Body::CallInline {
                offer: Offer {
                    inv_handle: self.inv_handle,
                    ..Offer::NONE
                },
                payload,
            },
            Direction::Reply => Body::ReplyInline {
                write: WriteList::NONE,
                payload,
            },
        };
        Header {
            xid: self.xid,
            credits: self.credits,
            body,
            header_len: self.header_len,
        }
    }
}

/// Decodes a received message of any kind.
///
/// # Errors
///
/// As for [`decode`].
#[inline(never)]
fn decode_any<'a>(
    bytes: &'a [u8],
    limits: &Limits,
) -> core::result::Result<Header<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader).map_err(|_| DecodeError {
        fault: Fault::Runt,
        prefix: None,
    })?;
    let refused = |fault| DecodeError {
        fault,
        prefix: Some(prefix),
    };
    if prefix.version != VERSION {
        return Err(refused(Fault::Version(prefix.version)));
    }
    let body = decode_body(&mut reader, prefix.procedure, limits).map_err(refused)?;
    Ok(Header {
        xid: prefix.xid,
        credits: prefix.credits,
        body,
        header_len: reader.position(),
    })
}

/// Decodes the message behind the prefix, up to the RPC message.
fn decode_body<'a>(reader: &mut Reader<'a>, htype: u32, limits: &Limits) -> Result<Body<'a>> {
    Ok(match htype {
        // Trailing bytes are ignored. The error is clear without them.
        htype::ERROR => return RdmaError::get(reader).map(Body::Error),
        htype::GRANT => whole(reader, Body::Grant)?,
        htype::CONNPROP_MIDDLE | htype::CONNPROP_FINAL => {
            let told = Advertised::get(reader)?;
            let last = htype == htype::CONNPROP_FINAL;
            whole(reader, Body::Properties { told, last })?
        }
        htype::CALL_EXTERNAL => {
            let inv_handle = reader.u32()?;
            let call = call_chunk(reader, limits)?;
            let offer = Offer::get(reader, inv_handle, call, limits)?;
            whole(reader, Body::CallExternal(offer))?
        }
        htype::CALL_INLINE => {
            let inv_handle = reader.u32()?;
            Body::CallInline {
                offer: Offer::get(reader, inv_handle, ReadList::default(), limits)?,
                payload: payload(reader)?,
            }
        }
        htype::CALL_MIDDLE => middle(reader, Direction::Call)?,
        htype::REPLY_EXTERNAL => {
            let write = WriteList::get(reader, limits)?;
            // There must be exactly one (6.3.8).
            if !reader.bool()? {
                return Err(Fault::NoPayload);
            }
            let reply = Chunk::get(reader, limits)?;
            if reply.total() == 0 {
                return Err(Fault::NoPayload);
            }
            whole(reader, Body::ReplyExternal { write, reply })?
        }
        htype::REPLY_INLINE => Body::ReplyInline {
            write: WriteList::get(reader, limits)?,
            payload: payload(reader)?,
        },
        htype::REPLY_MIDDLE => middle(reader, Direction::Reply)?,
        other => return Err(Fault::BadProcedure(other)),
    })
}

/// Checks that nothing follows, and returns `body`.
fn whole<'a>(reader: &Reader<'_>, body: Body<'a>) -> Result<Body<'a>> {
    if reader.is_empty() {
        Ok(body)
    } else {
        Err(Fault::TrailingBytes)
    }
}

/// Checks that an RPC message, or the first part of one, agrees with its transport header (7.2).
/// Its first two words are its transaction ID and its direction.
///
/// # Errors
///
/// [`Fault::XidMismatch`] and [`Fault::BadDirection`]; [`Fault::Truncated`] if there is no
/// transaction ID.
#[inline]
pub(crate) fn check_rpc(payload: &[u8], xid: u32, direction: Direction) -> Result {
    let mut reader = Reader::new(payload);
    if reader.u32()? != xid {
        return Err(Fault::XidMismatch);
    }
    match (reader.u32(), direction) {
        // The first part may end after the transaction ID.
        (Err(_), _) | (Ok(0), Direction::Call) | (Ok(1), Direction::Reply) => Ok(()),
        (Ok(other), _) => Err(Fault::BadDirection(other)),
    }
}

/// Reads a Call chunk. Each of its segments is at position zero, and the chunk is not empty
/// (6.6.3).
fn call_chunk<'a>(reader: &mut Reader<'a>, limits: &Limits) -> Result<ReadList<'a>> {
    let call = ReadList::get(reader, limits)?;
    if let Some(entry) = call.iter().find(|entry| entry.position != 0) {
        return Err(Fault::UnexpectedPosition(entry.position));
    }
    match call.total() {
        0 => Err(Fault::NoPayload),
        _ => Ok(call),
    }
}

/// Reads the rest of a MIDDLE message behind the prefix.
fn middle<'a>(reader: &mut Reader<'a>, direction: Direction) -> Result<Body<'a>> {
    Ok(Body::Middle {
        direction,
        remaining: reader.u32()?,
        payload: payload(reader)?,
    })
}

/// Returns the part of an RPC message behind the header. Its first word is required, since the
/// header's XDR definition includes it.
fn payload<'a>(reader: &Reader<'a>) -> Result<&'a [u8]> {
    match reader.rest() {
        [] => Err(Fault::NoPayload),
        rest if rest.len() < UNIT => Err(Fault::Truncated),
        rest => Ok(rest),
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v2_decode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::testing::Bytes,
            testing::{
                decoded,
                XID, //
            }, //
        },
        *, //
    };

    /// Decodes a message made of words and returns its fault.
    fn fault(words: &[u32]) -> Option<Fault> {
        let bytes = Bytes::from_words(words).ok()?;
        let error = decode(bytes.get(), &Limits::DEFAULT).err()?;
        // Whenever the error can be answered, the transaction ID is known.
        error
            .prefix
            .filter(|prefix| prefix.xid == XID)
            .map(|_| error.fault)
    }

    /// The fast path for the most common messages yields the same result, and takes no others.
    #[test]
    fn both_ways_to_decode_agree() -> Result {
        let (call, reply) = (htype::CALL_INLINE, htype::REPLY_INLINE);
        for (words, short) in [
            (&[XID, 2, 9, call, 0, 0, 0, 0, XID, 0][..], true),
            (&[XID, 2, 9, call, 7, 0, 0, 0, XID], true),
            (&[XID, 2, 9, reply, 0, XID, 1, 4], true),
            (&[XID, 2, 9, call, 0, 0, 0, 0], false),
            (&[XID, 2, 9, call, 0, 0, 1, 0, 0, 0, XID, 0], false),
            (&[XID, 2, 9, call, 0, 0, 0, 2, XID, 0], false),
            (&[XID, 2, 9, reply, 1, 0, 0, XID, 1], false),
            (&[XID, 2, 9, reply, 0], false),
            (&[XID, 1, 9, call, 0, 0, 0, 0, XID, 0], false),
            (&[XID, 2, 9, htype::GRANT], false),
            (&[XID, 2, 9], false),
        ] {
            let bytes = Bytes::from_words(words)?;
            let found = Plain::get(bytes.get()).map(|plain| plain.header());
            assert_eq!(found.is_some(), short);
            if let Some(header) = found {
                assert!(decode_any(bytes.get(), &Limits::DEFAULT) == Ok(header));
            }
        }
        Ok(())
    }

    /// Section 6.4: the prefix has 16 octets.
    #[test]
    fn runts_are_told_apart() -> Result {
        let bytes = Bytes::from_words(&[XID, 2, 1, htype::GRANT])?;
        for len in 0..16 {
            let error = DecodeError {
                fault: Fault::Runt,
                prefix: None,
            };
            assert_eq!(decode(bytes.prefix(len), &Limits::DEFAULT), Err(error));
        }
        assert!(decode(bytes.get(), &Limits::DEFAULT).is_ok());
        Ok(())
    }

    /// Section 6.1: the types 6 to 13, and the two that remain of Version One.
    #[test]
    fn header_types_are_known() {
        for htype in [0, 1, 2, 3, 14, 100, u32::MAX] {
            assert_eq!(fault(&[XID, 2, 1, htype]), Some(Fault::BadProcedure(htype)));
            assert_eq!(MessagePurpose::of(htype), None);
        }
        for version in [0, 1, 3, u32::MAX] {
            assert_eq!(
                fault(&[XID, version, 1, htype::GRANT]),
                Some(Fault::Version(version))
            );
        }
        // All the others fail later, except for a GRANT.
        for htype in 4..14 {
            let expected = (htype != htype::GRANT).then_some(Fault::Truncated);
            assert_eq!(fault(&[XID, 2, 1, htype]), expected);
            assert!(MessagePurpose::of(htype).is_some());
        }
    }

    /// Section 6.3.7.
    #[test]
    fn a_call_without_chunks() -> Result {
        let words = [XID, 2, 32, 10, 0, 0, 0, 0, XID, 0, 7];
        let bytes = Bytes::from_words(&words)?;
        let header = decoded(&bytes)?;
        assert_eq!((header.xid, header.credits), (XID, 32));
        assert_eq!(header.header_len(), 32);
        assert_eq!(header.payload().len(), 12);
        assert_eq!(header.purpose(), MessagePurpose::Call);
        let Body::CallInline { offer, payload } = header.body else {
            return Err(Fault::NoPayload);
        };
        assert!(offer.is_empty());
        assert_eq!(offer, Offer::default());
        assert_eq!(payload, header.payload());
        Ok(())
    }

    /// Section 6.3.7: the Read list contains no Position Zero Read chunk.
    #[test]
    fn read_lists_hold_data_items_only() {
        let position =
            |position| fault(&[XID, 2, 1, 10, 0, 1, position, 9, 8, 0, 0, 0, 0, 0, XID, 0]);
        assert_eq!(position(0), Some(Fault::UnexpectedPositionZero));
        assert_eq!(position(2), Some(Fault::UnalignedPosition(2)));
        assert_eq!(position(4), None);
        assert_eq!(
            fault(&[XID, 2, 1, 8, 0, 1, 0, 9, 8, 0, 0, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0]),
            Some(Fault::UnexpectedPositionZero)
        );
    }

    /// Section 4.5.1.1: positions never decrease, but all segments of a chunk share one position.
    #[test]
    fn read_lists_are_ordered() {
        let positions = |first, second| {
            fault(&[
                XID, 2, 1, 10, 0, 1, first, 9, 8, 0, 0, 1, second, 9, 8, 0, 0, 0, 0, 0, XID, 0,
            ])
        };
        assert_eq!(positions(4, 8), None);
        assert_eq!(positions(4, 4), None);
        assert_eq!(positions(8, 4), Some(Fault::UnorderedPosition(4)));
    }

    /// Section 6.6.3: the segments of a Call chunk are at position zero.
    #[test]
    fn call_chunks_are_at_position_zero() {
        let call =
            |position, length| fault(&[XID, 2, 1, 8, 0, 1, position, 9, length, 0, 0, 0, 0, 0, 0]);
        assert_eq!(call(0, 8), None);
        assert_eq!(call(4, 8), Some(Fault::UnexpectedPosition(4)));
        assert_eq!(call(0, 0), Some(Fault::NoPayload));
        assert_eq!(
            fault(&[XID, 2, 1, 8, 0, 0, 0, 0, 0]),
            Some(Fault::NoPayload)
        );
    }

    /// Section 6.3.8: exactly one Reply chunk.
    #[test]
    fn an_external_reply_has_its_chunk() {
        assert_eq!(fault(&[XID, 2, 1, 11, 0, 0]), Some(Fault::NoPayload));
        assert_eq!(fault(&[XID, 2, 1, 11, 0, 1, 0]), Some(Fault::NoPayload));
        assert_eq!(
            fault(&[XID, 2, 1, 11, 0, 1, 1, 9, 0, 0, 0]),
            Some(Fault::NoPayload)
        );
        assert_eq!(fault(&[XID, 2, 1, 11, 0, 1, 1, 9, 5, 0, 0]), None);
        assert_eq!(
            fault(&[XID, 2, 1, 11, 0, 2, 1, 9, 5, 0, 0]),
            Some(Fault::BadDiscriminator(2))
        );
    }

    /// Section 6.6.3: nothing follows a header without payload.
    #[test]
    fn nothing_follows_a_header_without_payload() {
        for words in [
            &[XID, 2, 1, 5, 0][..],
            &[XID, 2, 1, 6, 0, 0],
            &[XID, 2, 1, 7, 0, 0],
            &[XID, 2, 1, 8, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0, 0, XID],
            &[XID, 2, 1, 11, 0, 1, 1, 9, 5, 0, 0, XID],
        ] {
            assert_eq!(fault(words), Some(Fault::TrailingBytes));
        }
        // An error may have trailing bytes.
        assert_eq!(fault(&[XID, 2, 1, 4, 2, 9, 9, 9]), None);
    }

    /// A header that a payload follows includes its first word.
    #[test]
    fn a_payload_has_a_word() -> Result {
        for (words, len) in [
            (&[XID, 2, 1, 9, 100, 7, 7][..], 20_usize),
            (&[XID, 2, 1, 12, 100, 7, 7], 20),
            (&[XID, 2, 1, 10, 0, 0, 0, 0, 7, 7], 32),
            (&[XID, 2, 1, 13, 0, 7, 7], 20),
        ] {
            let bytes = Bytes::from_words(words)?;
            for (more, expected) in [
                (0, Some(Fault::NoPayload)),
                (1, Some(Fault::Truncated)),
                (3, Some(Fault::Truncated)),
                (4, None),
                (5, None),
            ] {
                let cut = bytes.prefix(len.saturating_add(more));
                let outcome = decode(cut, &Limits::DEFAULT);
                assert_eq!(outcome.err().map(|error| error.fault), expected);
            }
        }
        Ok(())
    }

    /// Section 6.5: only a nonzero handle of this header may be invalidated.
    #[test]
    fn only_handles_of_the_header_are_invalidated() -> Result {
        for (inv_handle, expected) in [
            (0, None),
            (1, Some(1)),
            (2, Some(2)),
            (3, Some(3)),
            (4, Some(4)),
            (5, None),
        ] {
            let bytes = Bytes::from_words(&[
                XID, 2, 1, 8, inv_handle, 1, 0, 1, 8, 0, 0, 0, 1, 4, 2, 8, 0, 0, 0, 1, 1, 3, 8, 0,
                0, 0, 1, 1, 4, 8, 0, 0,
            ])?;
            let Body::CallExternal(offer) = decoded(&bytes)?.body else {
                return Err(Fault::NoPayload);
            };
            assert_eq!(offer.invalidate(), expected);
            assert!(offer.segments().map(|segment| segment.handle).eq(1..=4));
            assert_eq!(offer.read_chunks(), 1);
        }
        Ok(())
    }

    #[test]
    fn read_chunks_are_counted_by_position() -> Result {
        let bytes = Bytes::from_words(&[
            XID, 2, 1, 10, 0, 1, 4, 1, 8, 0, 0, 1, 4, 2, 8, 0, 0, 1, 8, 3, 8, 0, 0, 0, 0, 0, XID, 0,
        ])?;
        let Body::CallInline { offer, .. } = decoded(&bytes)?.body else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(offer.read_chunks(), 2);
        assert_eq!(offer.segments().count(), 3);
        assert!(!offer.is_empty());
        assert_eq!(offer.invalidate(), None);
        Ok(())
    }

    /// The beginning of a header is not a header.
    #[test]
    fn no_strict_prefix_is_accepted() -> Result {
        for words in [
            &[XID, 2, 1, 4, 9, 1, 2][..],
            &[XID, 2, 1, 5],
            &[XID, 2, 1, 7, 2, 1, 4, 9, 99, 4, 0],
            &[
                XID, 2, 1, 8, 9, 1, 0, 9, 8, 0, 0, 0, 0, 1, 0, 0, 1, 1, 4, 8, 0, 0,
            ],
            &[XID, 2, 1, 9, 100, 7],
            &[XID, 2, 1, 10, 0, 1, 4, 9, 9, 0, 0, 0, 1, 0, 0, 1, 0, 7],
            &[XID, 2, 1, 11, 1, 0, 0, 1, 1, 9, 9, 0, 0],
            &[XID, 2, 1, 12, 100, 7],
            &[XID, 2, 1, 13, 1, 0, 0, 7],
        ] {
            let bytes = Bytes::from_words(words)?;
            decoded(&bytes)?;
            for len in 0..bytes.get().len() {
                assert!(decode(bytes.prefix(len), &Limits::DEFAULT).is_err());
            }
        }
        Ok(())
    }
}
