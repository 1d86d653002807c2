// SPDX-License-Identifier: GPL-2.0

//! Decoding and checking of received Version One messages.

use super::{
    super::chunk::{
        READ_ENTRY_LEN,
        SEGMENT_LEN, //
    },
    error_code,
    procedure,
    Body,
    ChunkLists,
    DecodeError,
    Direction,
    Header,
    Prefix,
    RdmaError,
    MIN_HEADER_LEN,
    VERSION, //
};
use crate::proto::prelude::*;

/// Decodes a received message.
///
/// # Errors
///
/// See [`Fault`]. No strict prefix of a valid message is accepted, except that an RPC message may
/// lack its end, which only the RPC layer can tell.
pub(crate) fn decode(bytes: &[u8]) -> core::result::Result<Header<'_>, DecodeError> {
    decode_with(bytes, &Limits::DEFAULT)
}

/// Decodes a received message within the limits given by the caller.
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

    // Below 28 octets not even the transaction ID can be trusted. The RFC overlooks here that an
    // RDMA_ERROR message with ERR_CHUNK has only 20.
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

/// Returns whether a message is an RDMA_MSG whose RPC message is a Call, sound or not. Then
/// [`decode`] finds a Call, or a fault that is not one of a Reply.
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
    if prefix.version != VERSION || prefix.procedure != procedure::MSG {
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

/// Decodes the header behind the prefix, up to the RPC message.
#[inline]
fn decode_body<'a>(
    reader: &mut Reader<'a>,
    prefix: &Prefix,
    limits: &Limits,
) -> core::result::Result<Body<'a>, DecodeError> {
    // The procedure numbers of errors and of RDMA_MSG and RDMA_NOMSG are fixed for all versions.
    if prefix.procedure == procedure::ERROR {
        let body = match prefix.version {
            VERSION => decode_error(reader),
            other => Err(Fault::Version(other)),
        };
        return body.map_err(|fault| DecodeError {
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

/// Decodes the header of an RDMA_MSG message behind the prefix, up to the RPC message.
#[inline]
pub(crate) fn decode_msg<'a>(
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

/// Decodes the header of an RDMA_NOMSG message behind the prefix.
fn decode_nomsg<'a>(reader: &mut Reader<'a>, limits: &Limits) -> Result<Body<'a>> {
    let chunks = ChunkLists::get(reader, limits)?;
    if !reader.is_empty() {
        return Err(Fault::TrailingBytes);
    }

    // The RPC message of a Call is in its Read list, that of a Reply in its Reply chunk.
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

/// Decodes an RDMA_ERROR message behind the prefix.
///
/// Trailing bytes are ignored. The error is clear without them, and an RPC waits for it.
pub(crate) fn decode_error<'a>(reader: &mut Reader<'a>) -> Result<Body<'a>> {
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
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_decode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::testing::{
                read_segment,
                segment,
                Bytes, //
            },
            testing::{
                with_rpc,
                CALL,
                REPLY,
                XID, //
            },
            CallHeader,
            ErrorHeader,
            ReplyHeader, //
        },
        *, //
    };

    /// A Call and its Reply as a Linux server sends it.
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
        assert!(!header.is_nomsg() && header.reply_chunk().is_none());
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

    /// What says that it is a Call is taken for one without a look at the rest, so it is never
    /// decoded as something else.
    #[test]
    fn what_holds_a_call_is_not_taken_for_a_reply() -> Result {
        for (words, holds) in [
            (&[XID, 1, 32, 0, 0, 0, 0, XID, 0][..], true),
            (&[XID, 1, 32, 0, 0, 0, 0, XID, 1], false),
            (&[XID, 1, 32, 0, 0, 0, 0, XID, 2], false),
            (&[XID, 1, 32, 0, 0, 0, 0, XID], false),
            // With a wrong transaction ID, or segments that are not sound.
            (&[XID, 1, 32, 0, 0, 0, 0, XID + 1, 0], true),
            (&[XID, 1, 32, 0, 1, 7, 1, 2, 0, 3, 0, 0, 0, XID, 0], true),
            (&[XID, 1, 32, 0, 1, 0, 1, 2, 0, 3, 0, 0, 0, XID, 0], true),
            (&[XID, 1, 32, 0, 1, 8, 1, 2, 0, 3, 0, 0, 0, XID, 1], false),
            (&[XID, 1, 32, 0, 0, 1, 1, 5, 9, 0, 9, 0, 1, 0, XID, 0], true),
            (
                &[XID, 1, 32, 0, 0, 1, 2, 5, 9, 0, 9, 0, 1, 0, XID, 0],
                false,
            ),
            (&[XID, 1, 32, 0, 0, 0, 1, u32::MAX, XID, 0], false),
            (&[XID, 1, 32, 0, 2, 0, 0, XID, 0], false),
            // Another version, and an RPC message in a chunk.
            (&[XID, 2, 32, 0, 0, 0, 0, XID, 0], false),
            (&[XID, 1, 32, 1, 1, 0, 1, 2, 0, 3, 0, 0, 0], false),
        ] {
            let bytes = Bytes::from_words(words)?;
            assert_eq!(holds_call(bytes.get()), holds);
            let direction = match decode(bytes.get()) {
                Ok(header) => Some(header.rpc_direction()),
                Err(error) => error.direction,
            };
            assert!(!holds || direction != Some(Direction::Reply));
        }
        Ok(())
    }

    #[test]
    fn call_with_chunks() -> Result {
        let call = CallHeader {
            read: &[read_segment(64, 1, 100), read_segment(64, 2, 27)],
            write: &[segment(7, 10), segment(8, 20)],
            reply: &[segment(9, 300)],
            ..CALL
        };
        let bytes = with_rpc(|buf| call.encode(buf), 0)?;
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(header.header_len().checked_add(8), Some(bytes.get().len()));
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
            read: &[read_segment(0, 3, 5000), read_segment(0, 4, 4)],
            reply: &[segment(10, 300)],
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
        let chunk = [segment(11, 300), segment(12, 8)];
        let reply = ReplyHeader {
            write: &[&[segment(13, 10), segment(14, 0)], &[]],
            reply: Some(&chunk),
            nomsg: true,
            ..REPLY
        };
        let bytes = Bytes::from_encoder(|buf| reply.encode(buf))?;
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
        let segments = [segment(15, 10), segment(16, 20)];
        let call = CallHeader {
            read: &[read_segment(64, 5, 100)],
            write: &segments,
            reply: &segments,
            ..CALL
        };
        let special_call = CallHeader {
            read: &[read_segment(0, 6, 100)],
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
            // Trailing bytes do not matter.
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
}
