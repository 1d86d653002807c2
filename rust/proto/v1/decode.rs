// SPDX-License-Identifier: GPL-2.0

//! From received bytes to a checked Version One message.

use super::{
    super::{
        chunk::{
            Chunk,
            Limits,
            ReadList,
            WriteList, //
        },
        error::{
            Fault,
            Result, //
        },
        xdr::Reader,
    },
    error_code,
    procedure,
    Direction,
    ErrorHeader,
    Prefix,
    RdmaError,
    MIN_HEADER_LEN,
    VERSION, //
};

/// The chunk lists of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLists<'a> {
    /// The Read list.
    pub(crate) read: ReadList<'a>,
    /// The Write list.
    pub(crate) write: WriteList<'a>,
    /// The Reply chunk, if it is marked "present".
    pub(crate) reply: Option<Chunk<'a>>,
}

impl<'a> ChunkLists<'a> {
    /// Reads the chunk lists.
    fn get(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self> {
        Ok(Self {
            read: ReadList::get(reader, limits)?,
            write: WriteList::get(reader, limits)?,
            reply: match reader.bool()? {
                true => Some(Chunk::get(reader, limits)?),
                false => None,
            },
        })
    }

    /// Returns whether all lists are marked "not present".
    pub(crate) const fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty() && self.reply.is_none()
    }
}

/// A received message that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits that are asked for (in a Call) or granted (in a Reply).
    pub(crate) credits: u32,
    /// The rest of the header.
    pub(crate) body: Body<'a>,
    /// The length of the header, which is the offset of the RPC message in an RDMA_MSG.
    header_len: usize,
}

/// What a received message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// RDMA_MSG: the RPC message follows the header.
    Msg {
        /// Whether it is a Call or a Reply.
        direction: Direction,
        /// Its chunk lists.
        chunks: ChunkLists<'a>,
        /// The RPC message, without what was reduced from it.
        payload: &'a [u8],
    },
    /// RDMA_NOMSG: a chunk holds the RPC message.
    Nomsg {
        /// Whether it is a Call or a Reply.
        direction: Direction,
        /// Its chunk lists.
        chunks: ChunkLists<'a>,
    },
    /// RDMA_ERROR: there is no RPC message, and the Call with this transaction ID ends.
    Error(RdmaError),
}

impl<'a> Header<'a> {
    /// Returns whether this belongs to a Call or to a Reply.
    ///
    /// An RDMA_ERROR message answers a Call; only Responders send it (RFC 8166, 4.2.4). Of an
    /// RDMA_NOMSG message only a Call has a Read list, in which the RPC message is; the RPC message
    /// of a Reply is in its Reply chunk.
    pub(crate) const fn rpc_direction(&self) -> Direction {
        match self.body {
            Body::Msg { direction, .. } | Body::Nomsg { direction, .. } => direction,
            Body::Error(_) => Direction::Reply,
        }
    }

    /// Returns the error, if this is an RDMA_ERROR message.
    pub(crate) const fn error(&self) -> Option<RdmaError> {
        match self.body {
            Body::Error(error) => Some(error),
            Body::Msg { .. } | Body::Nomsg { .. } => None,
        }
    }

    /// Returns whether a chunk holds the RPC message.
    pub(crate) const fn is_nomsg(&self) -> bool {
        matches!(self.body, Body::Nomsg { .. })
    }

    /// Returns the length of the header in octets.
    pub(crate) const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the RPC message behind the header, which starts [`Self::header_len`] octets into the
    /// received bytes. It is empty unless this is an RDMA_MSG message.
    pub(crate) const fn payload(&self) -> &'a [u8] {
        match self.body {
            Body::Msg { payload, .. } => payload,
            Body::Nomsg { .. } | Body::Error(_) => &[],
        }
    }

    /// Returns the Read list; of a Reply it is empty.
    pub(crate) fn read_list(&self) -> ReadList<'a> {
        self.chunks().map_or_else(ReadList::default, |c| c.read)
    }

    /// Returns the Write list.
    pub(crate) fn write_list(&self) -> WriteList<'a> {
        self.chunks().map_or_else(WriteList::default, |c| c.write)
    }

    /// Returns the Reply chunk, if there is one.
    pub(crate) fn reply_chunk(&self) -> Option<Chunk<'a>> {
        self.chunks().and_then(|c| c.reply)
    }

    /// Returns whether any chunk list is marked "present".
    ///
    /// A Responder without support for chunks, as there are in the reverse direction, answers such
    /// a Call with ERR_CHUNK (RFC 8167, 5.3).
    pub(crate) const fn has_chunks(&self) -> bool {
        match self.chunks() {
            Some(chunks) => !chunks.is_empty(),
            None => false,
        }
    }

    /// Returns the chunk lists, which an RDMA_ERROR message does not have.
    pub(crate) const fn chunks(&self) -> Option<&ChunkLists<'a>> {
        match &self.body {
            Body::Msg { chunks, .. } | Body::Nomsg { chunks, .. } => Some(chunks),
            Body::Error(_) => None,
        }
    }
}

/// Why a message was not accepted, and as much of it as can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// What is wrong with it.
    pub(crate) fault: Fault,
    /// Its first four words, unless it is too short for them to be trusted.
    pub(crate) prefix: Option<Prefix>,
    /// Whether it is a Call or a Reply, if that can be told.
    pub(crate) direction: Option<Direction>,
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            prefix: None,
            direction: None,
        }
    }
}

impl DecodeError {
    /// Returns the error message with which a Responder answers, or nothing if the received
    /// message is to be discarded silently.
    ///
    /// Runts, RDMA_DONE and whatever comes from a Responder are not answered (RFC 8166, 4.2.4, 4.5
    /// and 4.6). If the direction cannot be told, the caller decides whether this was a Call.
    pub(crate) fn answer(&self, credits: u32) -> Option<ErrorHeader> {
        let prefix = self.prefix?;
        if self.direction == Some(Direction::Reply) {
            return None;
        }
        let error = match self.fault {
            Fault::Runt | Fault::ObsoleteDone => return None,
            Fault::Version(_) => RdmaError::Version {
                low: VERSION,
                high: VERSION,
            },
            _ => RdmaError::Chunk,
        };
        Some(ErrorHeader {
            xid: prefix.xid,
            version: prefix.version,
            credits,
            error,
        })
    }
}

/// Decodes a received message.
///
/// # Errors
///
/// See [`Fault`]. No strict prefix of a valid message is accepted, except that an RPC message may
/// lack its end, which only the RPC layer can tell.
pub(crate) fn decode(bytes: &[u8]) -> core::result::Result<Header<'_>, DecodeError> {
    decode_with(bytes, &Limits::DEFAULT)
}

/// Decodes a received message, with limits of the caller's.
///
/// # Errors
///
/// As for [`decode`].
pub(crate) fn decode_with<'a>(
    bytes: &'a [u8],
    limits: &Limits,
) -> core::result::Result<Header<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader).map_err(|_| Fault::Runt)?;

    // Below 28 octets not even the transaction ID is to be trusted. The RFC overlooks there that
    // an RDMA_ERROR message with ERR_CHUNK has only 20.
    if bytes.len() < MIN_HEADER_LEN && prefix.procedure != procedure::ERROR {
        return Err(Fault::Runt.into());
    }

    let body = decode_body(&mut reader, &prefix, limits).map_err(|error| DecodeError {
        prefix: Some(prefix),
        ..error
    })?;
    Ok(Header {
        xid: prefix.xid,
        credits: prefix.credits,
        body,
        header_len: reader.position(),
    })
}

/// Decodes what follows the prefix, up to the RPC message.
fn decode_body<'a>(
    reader: &mut Reader<'a>,
    prefix: &Prefix,
    limits: &Limits,
) -> core::result::Result<Body<'a>, DecodeError> {
    // The procedure numbers of errors and of RDMA_MSG and RDMA_NOMSG are fixed for all versions.
    if prefix.procedure == procedure::ERROR {
        return decode_error(reader, prefix).map_err(|fault| DecodeError {
            direction: Some(Direction::Reply),
            ..fault.into()
        });
    }
    if prefix.version != VERSION {
        return Err(Fault::Version(prefix.version).into());
    }
    match prefix.procedure {
        procedure::MSG => decode_msg(reader, prefix.xid, limits),
        procedure::NOMSG => decode_nomsg(reader, limits).map_err(DecodeError::from),
        procedure::MSGP => Err(Fault::ObsoleteMsgp.into()),
        procedure::DONE => Err(Fault::ObsoleteDone.into()),
        other => Err(Fault::BadProcedure(other).into()),
    }
}

/// Decodes what follows the prefix of an RDMA_MSG message, up to the RPC message.
fn decode_msg<'a>(
    reader: &mut Reader<'a>,
    xid: u32,
    limits: &Limits,
) -> core::result::Result<Body<'a>, DecodeError> {
    let chunks = ChunkLists::get(reader, limits)?;
    let payload = reader.rest();

    // The RPC message starts with its transaction ID and its direction.
    let mut rpc = Reader::new(payload);
    if rpc.is_empty() {
        return Err(Fault::NoPayload.into());
    }
    let rpc_xid = rpc.u32()?;
    let direction = match rpc.u32()? {
        0 => Direction::Call,
        1 => Direction::Reply,
        other => return Err(Fault::BadDirection(other).into()),
    };

    let fault = if rpc_xid != xid {
        Fault::XidMismatch
    } else if direction == Direction::Reply && !chunks.read.is_empty() {
        Fault::ReadListInReply
    } else if chunks.read.position_zero_len().is_some() {
        Fault::UnexpectedPositionZero
    } else {
        return Ok(Body::Msg {
            direction,
            chunks,
            payload,
        });
    };
    Err(DecodeError {
        direction: Some(direction),
        ..fault.into()
    })
}

/// Decodes what follows the prefix of an RDMA_NOMSG message.
fn decode_nomsg<'a>(reader: &mut Reader<'a>, limits: &Limits) -> Result<Body<'a>> {
    let chunks = ChunkLists::get(reader, limits)?;
    if !reader.is_empty() {
        return Err(Fault::TrailingBytes);
    }

    // A Call's RPC message is in its Read list, a Reply's is in its Reply chunk.
    let (direction, payload_len) = if chunks.read.is_empty() {
        (Direction::Reply, chunks.reply.map(|chunk| chunk.total()))
    } else {
        (Direction::Call, chunks.read.position_zero_len())
    };
    if payload_len.unwrap_or(0) == 0 {
        return Err(Fault::NoPayload);
    }
    Ok(Body::Nomsg { direction, chunks })
}

/// Decodes what follows the prefix of an RDMA_ERROR message.
///
/// Bytes behind it are ignored: what it says is clear without them, and an RPC waits for it.
fn decode_error<'a>(reader: &mut Reader<'a>, prefix: &Prefix) -> Result<Body<'a>> {
    if prefix.version != VERSION {
        return Err(Fault::Version(prefix.version));
    }
    match reader.u32()? {
        error_code::VERS => {
            let (low, high) = (reader.u32()?, reader.u32()?);
            if low > high {
                return Err(Fault::BadVersionRange);
            }
            Ok(Body::Error(RdmaError::Version { low, high }))
        }
        error_code::CHUNK => Ok(Body::Error(RdmaError::Chunk)),
        other => Err(Fault::BadErrorCode(other)),
    }
}

#[cfg_attr(
    CONFIG_KUNIT = "y",
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_decode)
)]
#[cfg_attr(not(CONFIG_KUNIT = "y"), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                chunk::{
                    ReadSegment,
                    Segment, //
                },
                testing::Bytes,
                xdr::Writer, //
            },
            CallHeader,
            ReplyHeader, //
        },
        *, //
    };

    /// The transaction ID of the examples.
    const XID: u32 = 0x1234_5678;

    /// A segment, of `length` octets.
    const fn segment(length: u32) -> Segment {
        Segment {
            handle: 0xaaaa_0000,
            length,
            offset: 0x0001_0000_0000,
        }
    }

    /// A Read segment, of `length` octets.
    const fn read_segment(position: u32, length: u32) -> ReadSegment {
        ReadSegment {
            position,
            segment: segment(length),
        }
    }

    /// A Call without chunks.
    const CALL: CallHeader<'_> = CallHeader {
        xid: XID,
        credits: 32,
        read: &[],
        write: &[],
        reply: &[],
        nomsg: false,
    };

    /// A Reply without chunks.
    const REPLY: ReplyHeader<'_> = ReplyHeader {
        xid: XID,
        credits: 32,
        write: &[],
        reply: None,
        nomsg: false,
    };

    /// Decodes a message made of words and returns its direction.
    fn direction_of(words: &[u32]) -> Result<Direction> {
        let bytes = Bytes::from_words(words)?;
        decode(bytes.get())
            .map(|header| header.rpc_direction())
            .map_err(|error| error.fault)
    }

    /// Decodes a message made of words, and returns what a Responder answers to it.
    fn answer_to(words: &[u32]) -> Option<ErrorHeader> {
        let bytes = Bytes::from_words(words).ok()?;
        decode(bytes.get()).err()?.answer(7)
    }

    /// Encodes a header and appends the first two words of an RPC message.
    fn with_rpc(encode: impl FnOnce(&mut [u8]) -> Result<usize>, direction: u32) -> Result<Bytes> {
        Bytes::from_encoder(|buf| {
            let header_len = encode(buf)?;
            let mut writer = Writer::new(buf.get_mut(header_len..).ok_or(Fault::NoSpace)?);
            writer.u32(XID)?;
            writer.u32(direction)?;
            header_len.checked_add(writer.len()).ok_or(Fault::NoSpace)
        })
    }

    /// A Call and its Reply as a Linux server answered it.
    #[test]
    fn short_messages() -> Result {
        let bytes = with_rpc(|buf| CALL.encode(buf), 0)?;
        assert!(bytes.is_words(&[XID, 1, 32, 0, 0, 0, 0, XID, 0]));
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(header.xid, XID);
        assert_eq!(header.credits, 32);
        assert_eq!(header.rpc_direction(), Direction::Call);
        assert_eq!(header.header_len(), MIN_HEADER_LEN);
        assert_eq!(header.payload().len(), 8);
        assert!(!header.is_nomsg() && !header.has_chunks());
        assert!(header.read_list().is_empty() && header.write_list().is_empty());
        assert!(header.reply_chunk().is_none() && header.error().is_none());

        let words = [XID, 1, 0x80, 0, 0, 0, 0, XID, 1, 0, 0, 0, 0, 0, 0];
        let bytes = Bytes::from_words(&words)?;
        assert_eq!(bytes.get().len(), 60);
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(header.credits, 0x80);
        assert_eq!(header.rpc_direction(), Direction::Reply);
        assert_eq!(header.payload().len(), 32);
        Ok(())
    }

    #[test]
    fn call_with_chunks() -> Result {
        let call = CallHeader {
            read: &[read_segment(64, 100), read_segment(64, 27)],
            write: &[segment(10), segment(20)],
            reply: &[segment(300)],
            ..CALL
        };
        let bytes = with_rpc(|buf| call.encode(buf), 0)?;
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(header.header_len(), call.encoded_len()?);
        assert_eq!(header.rpc_direction(), Direction::Call);
        assert!(header.read_list().iter().eq(call.read.iter().copied()));
        let write = header.write_list().single().ok_or(Fault::NoPayload)?;
        assert!(write.iter().eq(call.write.iter().copied()));
        let reply = header.reply_chunk().ok_or(Fault::NoPayload)?;
        assert!(reply.iter().eq(call.reply.iter().copied()));
        assert_eq!(reply.total(), 300);
        Ok(())
    }

    /// RFC 8166, section 3.5.3.
    #[test]
    fn special_call() -> Result {
        let call = CallHeader {
            read: &[read_segment(0, 5000), read_segment(0, 4)],
            reply: &[segment(300)],
            nomsg: true,
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| call.encode(buf))?;
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert!(header.is_nomsg());
        assert_eq!(header.rpc_direction(), Direction::Call);
        assert_eq!(header.read_list().position_zero_len(), Some(5004));
        assert_eq!(header.header_len(), bytes.get().len());
        assert!(header.payload().is_empty());
        Ok(())
    }

    /// RFC 8166, section 3.5.3.
    #[test]
    fn special_reply() -> Result {
        let chunk = [segment(300), segment(8)];
        let reply = ReplyHeader {
            write: &[&[segment(10), segment(0)], &[]],
            reply: Some(&chunk),
            nomsg: true,
            ..REPLY
        };
        let bytes = Bytes::from_encoder(|buf| reply.encode(buf))?;
        assert_eq!(bytes.get().len(), reply.encoded_len()?);
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert!(header.is_nomsg());
        assert_eq!(header.rpc_direction(), Direction::Reply);
        assert_eq!(header.write_list().len(), 2);
        assert_eq!(header.reply_chunk().map(|chunk| chunk.total()), Some(308));
        Ok(())
    }

    #[test]
    fn no_strict_prefix_is_accepted() -> Result {
        let segments = [segment(10), segment(20)];
        let call = CallHeader {
            read: &[read_segment(64, 100)],
            write: &segments,
            reply: &segments,
            ..CALL
        };
        let special_call = CallHeader {
            read: &[read_segment(0, 100)],
            nomsg: true,
            ..call
        };
        let special_reply = ReplyHeader {
            write: &[&segments, &segments],
            reply: Some(&segments),
            nomsg: true,
            ..REPLY
        };
        let error = ErrorHeader {
            xid: XID,
            version: 1,
            credits: 1,
            error: RdmaError::Version { low: 1, high: 2 },
        };
        let refusal = ErrorHeader {
            error: RdmaError::Chunk,
            ..error
        };
        for bytes in [
            with_rpc(|buf| CALL.encode(buf), 0)?,
            with_rpc(|buf| call.encode(buf), 0)?,
            with_rpc(|buf| REPLY.encode(buf), 1)?,
            Bytes::from_encoder(|buf| special_call.encode(buf))?,
            Bytes::from_encoder(|buf| special_reply.encode(buf))?,
            Bytes::from_encoder(|buf| error.encode(buf))?,
            Bytes::from_encoder(|buf| refusal.encode(buf))?,
        ] {
            assert!(decode(bytes.get()).is_ok());
            for len in 0..bytes.get().len() {
                assert!(decode(bytes.prefix(len)).is_err());
            }
        }
        Ok(())
    }

    /// RFC 8167, section 5.3: chunks are noticed wherever they are.
    #[test]
    fn any_chunk_is_a_chunk() -> Result {
        for (words, has_chunks) in [
            (&[XID, 1, 1, 0, 0, 0, 0, XID, 0][..], false),
            (&[XID, 1, 1, 0, 1, 8, 1, 1, 0, 0, 0, 0, 0, XID, 0], true),
            (&[XID, 1, 1, 0, 0, 1, 0, 0, 0, XID, 0], true),
            (&[XID, 1, 1, 0, 0, 0, 1, 0, XID, 0], true),
            (&[XID, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0], true),
            (&[XID, 1, 1, 4, 2], false),
        ] {
            let bytes = Bytes::from_words(words)?;
            let Ok(header) = decode(bytes.get()) else {
                return Err(Fault::NoPayload);
            };
            assert_eq!(header.has_chunks(), has_chunks);
        }
        Ok(())
    }

    /// RFC 8166, section 4.5: nothing below 28 octets is even looked at.
    #[test]
    fn runts_are_silently_discarded() -> Result {
        let bytes = with_rpc(|buf| CALL.encode(buf), 0)?;
        for len in 0..MIN_HEADER_LEN {
            let Err(error) = decode(bytes.prefix(len)) else {
                return Err(Fault::Runt);
            };
            assert_eq!(error, Fault::Runt.into());
            assert_eq!(error.answer(1), None);
        }
        // The same with a version that would otherwise be answered.
        assert_eq!(answer_to(&[XID, 9, 1, 0, 0, 0]), None);
        assert!(answer_to(&[XID, 9, 1, 0, 0, 0, 0]).is_some());
        Ok(())
    }

    /// RFC 8166, section 4.5.1; the words are those of a Linux server.
    #[test]
    fn version_mismatch() -> Result {
        for version in [0, 2, 9, u32::MAX] {
            for procedure in [0, 1, 2, 3, 7] {
                let words = [XID, version, 32, procedure, 0, 0, 0, XID, 0];
                assert_eq!(direction_of(&words), Err(Fault::Version(version)));
                let answer = answer_to(&words).ok_or(Fault::NoPayload)?;
                let bytes = Bytes::from_encoder(|buf| answer.encode(buf))?;
                assert!(bytes.is_words(&[XID, version, 7, 4, 1, 1, 1]));
                assert_eq!(bytes.get().len(), ErrorHeader::MAX_LEN);
            }
        }
        Ok(())
    }

    #[test]
    fn errors_are_decoded() -> Result {
        for (words, expected) in [
            (
                &[XID, 1, 0x80, 4, 1, 1, 1][..],
                RdmaError::Version { low: 1, high: 1 },
            ),
            (
                &[XID, 1, 0x80, 4, 1, 2, 9],
                RdmaError::Version { low: 2, high: 9 },
            ),
            (&[XID, 1, 0x80, 4, 2], RdmaError::Chunk),
            // What follows is of no interest.
            (&[XID, 1, 0x80, 4, 2, 0, 0], RdmaError::Chunk),
        ] {
            let bytes = Bytes::from_words(words)?;
            let Ok(header) = decode(bytes.get()) else {
                return Err(Fault::NoPayload);
            };
            assert_eq!(header.xid, XID);
            assert_eq!(header.credits, 0x80);
            assert_eq!(header.error(), Some(expected));
            assert_eq!(header.rpc_direction(), Direction::Reply);
            assert!(header.payload().is_empty() && header.chunks().is_none());
            assert!(header.read_list().is_empty() && header.write_list().is_empty());
        }
        Ok(())
    }

    /// RFC 8166, section 4.2.4: Responders do not answer an RDMA_ERROR, be it good or bad.
    #[test]
    fn errors_are_not_answered() {
        for (words, fault) in [
            (&[XID, 1, 1, 4][..], Fault::Truncated),
            (&[XID, 1, 1, 4, 1, 1], Fault::Truncated),
            (&[XID, 1, 1, 4, 0, 0, 0], Fault::BadErrorCode(0)),
            (&[XID, 1, 1, 4, 3, 0, 0], Fault::BadErrorCode(3)),
            (&[XID, 1, 1, 4, 1, 2, 1], Fault::BadVersionRange),
            (&[XID, 2, 1, 4, 1, 1, 1], Fault::Version(2)),
        ] {
            assert_eq!(direction_of(words), Err(fault));
            assert_eq!(answer_to(words), None);
        }
    }

    /// RFC 8166, section 4.5.2.
    #[test]
    fn bad_headers_are_answered_with_err_chunk() -> Result {
        for (words, fault) in [
            (&[XID, 1, 1, 5, 0, 0, 0][..], Fault::BadProcedure(5)),
            (
                &[XID, 1, 1, u32::MAX, 0, 0, 0],
                Fault::BadProcedure(u32::MAX),
            ),
            (&[XID, 1, 1, 2, 0, 0, 0, 0, 0], Fault::ObsoleteMsgp),
            (&[XID, 1, 1, 0, 2, 0, 0, XID, 0], Fault::BadDiscriminator(2)),
            (&[XID, 1, 1, 0, 0, 2, 0, XID, 0], Fault::BadDiscriminator(2)),
            (&[XID, 1, 1, 0, 0, 0, 2, XID, 0], Fault::BadDiscriminator(2)),
            (&[XID, 1, 1, 0, 1, 0, 0, 0, 0], Fault::Truncated),
            (&[XID, 1, 1, 0, 0, 0, 1, 9, 0], Fault::Truncated),
            (&[XID, 1, 1, 0, 0, 0, 1, 999, 0], Fault::TooManySegments),
            (&[XID, 1, 1, 0, 0, 0, 0], Fault::NoPayload),
            (&[XID, 1, 1, 0, 0, 0, 0, XID], Fault::Truncated),
            (&[XID, 1, 1, 0, 0, 0, 0, XID, 2], Fault::BadDirection(2)),
            (&[XID, 1, 1, 0, 0, 0, 0, 9, 0], Fault::XidMismatch),
            (
                &[XID, 1, 1, 0, 1, 0, 9, 9, 0, 0, 0, 0, 0, XID, 0],
                Fault::UnexpectedPositionZero,
            ),
            // RDMA_NOMSG without anything that could hold the RPC message.
            (&[XID, 1, 1, 1, 0, 0, 0], Fault::NoPayload),
            (&[XID, 1, 1, 1, 0, 0, 1, 0], Fault::NoPayload),
            (&[XID, 1, 1, 1, 0, 0, 1, 1, 9, 0, 0, 0], Fault::NoPayload),
            (&[XID, 1, 1, 1, 0, 1, 1, 9, 9, 0, 0, 0, 0], Fault::NoPayload),
            (&[XID, 1, 1, 1, 1, 4, 9, 9, 0, 0, 0, 0, 0], Fault::NoPayload),
            (&[XID, 1, 1, 1, 1, 0, 9, 0, 0, 0, 0, 0, 0], Fault::NoPayload),
            (
                &[XID, 1, 1, 1, 1, 4, 9, 9, 0, 0, 0, 0, 1, 1, 9, 9, 0, 0],
                Fault::NoPayload,
            ),
            // RDMA_NOMSG with an RPC message behind the header.
            (
                &[XID, 1, 1, 1, 1, 0, 9, 9, 0, 0, 0, 0, 0, XID, 0],
                Fault::TrailingBytes,
            ),
        ] {
            assert_eq!(direction_of(words), Err(fault));
            let answer = answer_to(words).ok_or(fault)?;
            let bytes = Bytes::from_encoder(|buf| answer.encode(buf))?;
            assert!(bytes.is_words(&[XID, 1, 7, 4, 2]));
        }
        Ok(())
    }

    /// RFC 8166, section 4.6.2.
    #[test]
    fn rdma_done_is_silently_discarded() {
        for words in [&[XID, 1, 1, 3][..], &[XID, 1, 1, 3, 0, 0, 0]] {
            assert!(direction_of(words).is_err());
            assert_eq!(answer_to(words), None);
        }
        assert_eq!(
            direction_of(&[XID, 1, 1, 3, 0, 0, 0]),
            Err(Fault::ObsoleteDone)
        );
    }

    /// RFC 8166, section 4.5: a bad Reply is silently discarded.
    #[test]
    fn bad_replies_are_not_answered() {
        for (words, fault) in [
            (&[XID, 1, 1, 0, 0, 0, 0, 9, 1][..], Fault::XidMismatch),
            // Section 4.3.1: a Reply has no Read list.
            (
                &[XID, 1, 1, 0, 1, 4, 9, 9, 0, 0, 0, 0, 0, XID, 1],
                Fault::ReadListInReply,
            ),
        ] {
            assert_eq!(direction_of(words), Err(fault));
            assert_eq!(answer_to(words), None);
        }
    }
}
