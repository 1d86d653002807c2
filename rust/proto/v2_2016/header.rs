// SPDX-License-Identifier: GPL-2.0

//! Headers of RPC messages and of errors: those of Version One with a direction (B 4.2).

use super::{
    super::{
        chunk::Limits,
        error::{
            Fault,
            Result, //
        },
        v1::{
            self,
            Body,
            ChunkLists,
            DecodeError,
            Direction,
            Header,
            Prefix,
            MIN_HEADER_LEN, //
        },
        xdr::Reader, //
    },
    direction,
    error_code,
    procedure,
    VERSION, //
};

/// The procedures that have chunk lists (B 4.2).
mod with_lists {
    /// An RPC message follows.
    pub(super) const MSG: u32 = 0;
    /// A chunk holds it.
    pub(super) const NOMSG: u32 = 1;
}

/// Decodes a received RPC message, or an error that ends an RPC.
///
/// # Errors
///
/// See [`Fault`]. The direction of the error is what the header says. A message of another version
/// is not known here.
pub(crate) fn decode(bytes: &[u8]) -> core::result::Result<Header<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader).map_err(|_| Fault::Runt)?;
    // The rule of Version One, which the draft refers to (B 4.2.3).
    if bytes.len() < MIN_HEADER_LEN && prefix.procedure != procedure::ERROR {
        return Err(Fault::Runt.into());
    }
    let (direction, body) = decode_body(&mut reader, &prefix);
    let body = body.map_err(|fault| DecodeError {
        fault,
        prefix: Some(prefix),
        direction,
    })?;
    Ok(Header {
        xid: prefix.xid,
        credits: prefix.credits,
        body,
        header_len: reader.position(),
    })
}

/// Decodes the rest of a header. Returns the direction, if it is known.
fn decode_body<'a>(
    reader: &mut Reader<'a>,
    prefix: &Prefix,
) -> (Option<Direction>, Result<Body<'a>>) {
    if prefix.version != VERSION {
        return (None, Err(Fault::Version(prefix.version)));
    }
    if prefix.procedure == procedure::ERROR {
        // It has no direction, since it always has the same (B 4.2.2).
        return (Some(Direction::Reply), v1::decode_error(reader));
    }
    let is_nomsg = match prefix.procedure {
        with_lists::MSG => false,
        with_lists::NOMSG => true,
        other => return (None, Err(Fault::BadProcedure(other))),
    };
    let direction = match reader.u32() {
        Ok(direction::CALL) => Direction::Call,
        Ok(direction::REPLY) => Direction::Reply,
        Ok(other) => return (None, Err(Fault::BadDirection(other))),
        Err(fault) => return (None, Err(fault)),
    };
    let body = if is_nomsg {
        decode_nomsg(reader, direction)
    } else {
        decode_msg(reader, prefix.xid, direction)
    };
    (Some(direction), body)
}

/// Decodes the chunk lists before an RPC message, which has to be what the header says (B 4.2.2).
fn decode_msg<'a>(reader: &mut Reader<'a>, xid: u32, direction: Direction) -> Result<Body<'a>> {
    let body = v1::decode_msg(reader, xid, &Limits::DEFAULT).map_err(|error| error.fault)?;
    match body {
        Body::Msg {
            direction: found, ..
        } if found != direction => Err(Fault::BadDirection(word(found))),
        body => Ok(body),
    }
}

/// Decodes the chunk lists of a message whose RPC message is in a chunk: that of a Call in its Read
/// list, that of a Reply in its Reply chunk. Nothing may be behind them.
fn decode_nomsg<'a>(reader: &mut Reader<'a>, direction: Direction) -> Result<Body<'a>> {
    let chunks = ChunkLists::get(reader, &Limits::DEFAULT)?;
    if !reader.is_empty() {
        return Err(Fault::TrailingBytes);
    }
    let len = match direction {
        Direction::Call => chunks.read.position_zero_len(),
        Direction::Reply if !chunks.read.is_empty() => return Err(Fault::ReadListInReply),
        Direction::Reply => chunks.reply.map(|chunk| chunk.total()),
    };
    if len.unwrap_or(0) == 0 {
        return Err(Fault::NoPayload);
    }
    Ok(Body::Nomsg { direction, chunks })
}

/// Returns the word of a direction.
pub(crate) const fn word(direction: Direction) -> u32 {
    match direction {
        Direction::Call => direction::CALL,
        Direction::Reply => direction::REPLY,
    }
}

/// Returns whether a message, which has this version, is an error about an operation that is not
/// known (B 3.1). All other errors are about RPCs.
pub(crate) fn is_invalid_option(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader);
    prefix.is_ok_and(|prefix| prefix.procedure == procedure::ERROR)
        && reader.u32() == Ok(error_code::INVAL_OPTION)
}

/// Writes the header of a Call to the front of `buf` and returns its size.
///
/// # Errors
///
/// As for [`v1::CallHeader::encode`].
pub(crate) fn encode_call(header: &v1::CallHeader<'_>, buf: &mut [u8]) -> Result<usize> {
    header.encode_with::<true>(buf, VERSION, direction::CALL)
}

/// Writes the header of a Reply to the front of `buf` and returns its size.
///
/// # Errors
///
/// As for [`v1::ReplyHeader::encode`].
pub(crate) fn encode_reply(header: &v1::ReplyHeader<'_>, buf: &mut [u8]) -> Result<usize> {
    header.encode_with::<true>(buf, VERSION, direction::REPLY)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_2016_header)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::testing::{
            read_segment,
            segment,
            Bytes, //
        },
        *, //
    };

    const XID: u32 = 0x2016_0001;

    /// Returns the fault of a message made of words, and its direction.
    fn refused(words: &[u32]) -> Option<(Fault, Option<Direction>)> {
        let bytes = Bytes::from_words(words).ok()?;
        let error = decode(bytes.get()).err()?;
        Some((error.fault, error.direction))
    }

    /// Section B 4.2: a word more than in Version One.
    #[test]
    fn headers_look_as_in_the_draft() -> Result {
        let call = v1::CallHeader {
            xid: XID,
            credits: 32,
            read: &[read_segment(64, 1, 100)],
            write: &[segment(7, 10)],
            reply: &[segment(9, 300)],
            nomsg: false,
        };
        let bytes = Bytes::from_encoder(|buf| encode_call(&call, buf))?;
        let words = [
            XID,
            2,
            32,
            0,
            0,
            1,
            64,
            1,
            100,
            0x0001_0002,
            0x0003_0004,
            0,
            1,
            1,
            7,
            10,
            0x0001_0002,
            0x0003_0004,
            0,
            1,
            1,
            9,
            300,
            0x0001_0002,
            0x0003_0004,
        ];
        assert!(bytes.is_words(&words));
        let chunk = [segment(9, 300)];
        let reply = v1::ReplyHeader {
            xid: XID,
            credits: 32,
            write: &[],
            reply: Some(&chunk),
            nomsg: true,
        };
        let bytes = Bytes::from_encoder(|buf| encode_reply(&reply, buf))?;
        let words = [
            XID,
            2,
            32,
            1,
            1,
            0,
            0,
            1,
            1,
            9,
            300,
            0x0001_0002,
            0x0003_0004,
        ];
        assert!(bytes.is_words(&words));
        Ok(())
    }

    /// What is written is read again, field by field; no strict prefix is taken for it.
    #[test]
    fn what_is_written_is_read() -> Result {
        for nomsg in [false, true] {
            let read = [read_segment(if nomsg { 0 } else { 64 }, 1, 100)];
            let call = v1::CallHeader {
                xid: XID,
                credits: 5,
                read: &read,
                write: &[segment(7, 10)],
                reply: &[segment(9, 300)],
                nomsg,
            };
            let mut end = 0;
            let bytes = Bytes::from_encoder(|buf| {
                end = encode_call(&call, buf)?;
                if nomsg {
                    return Ok(end);
                }
                let mut writer = super::super::super::xdr::Writer::new(
                    buf.get_mut(end..).ok_or(Fault::NoSpace)?,
                );
                writer.u32(XID)?;
                writer.u32(direction::CALL)?;
                end.checked_add(writer.len()).ok_or(Fault::NoSpace)
            })?;
            let Ok(header) = decode(bytes.get()) else {
                return Err(Fault::NoPayload);
            };
            assert_eq!((header.xid, header.credits), (XID, 5));
            assert_eq!(header.rpc_direction(), Direction::Call);
            assert_eq!((header.is_nomsg(), header.header_len()), (nomsg, end));
            assert!(header.read_list().iter().eq(read));
            assert_eq!(header.write_list().len(), 1);
            assert_eq!(header.reply_chunk().map(|chunk| chunk.total()), Some(300));
            for len in 0..bytes.get().len() {
                assert!(decode(bytes.prefix(len)).is_err());
            }
        }
        Ok(())
    }

    /// Section B 4.2.2: the direction is what the header says, whatever else is wrong.
    #[test]
    fn the_header_tells_the_direction() {
        let (call, reply) = (Some(Direction::Call), Some(Direction::Reply));
        for (words, fault, direction) in [
            // The other kind of RPC message inside.
            (
                &[XID, 2, 9, 0, 0, 0, 0, 0, XID, 1][..],
                Fault::BadDirection(1),
                call,
            ),
            (
                &[XID, 2, 9, 0, 1, 0, 0, 0, XID, 0],
                Fault::BadDirection(0),
                reply,
            ),
            // No direction at all, as in the layout of Version One.
            (
                &[XID, 2, 9, 0, 2, 0, 0, 0, XID, 0],
                Fault::BadDirection(2),
                None,
            ),
            (
                &[XID, 2, 9, 1, 2, 0, 0, 0, XID, 0],
                Fault::BadDirection(2),
                None,
            ),
            (
                &[XID, 2, 9, 0, 0, 0, 0, XID, 0],
                Fault::BadDiscriminator(XID),
                call,
            ),
            // Another transaction ID, and none.
            (&[XID, 2, 9, 0, 0, 0, 0, 0, 1, 0], Fault::XidMismatch, call),
            (&[XID, 2, 9, 0, 1, 0, 0, 0], Fault::NoPayload, reply),
            // Nothing in a chunk, or in the wrong one.
            (&[XID, 2, 9, 1, 0, 0, 0, 0], Fault::NoPayload, call),
            (&[XID, 2, 9, 1, 1, 0, 0, 0], Fault::NoPayload, reply),
            (
                &[XID, 2, 9, 1, 0, 0, 0, 1, 1, 9, 8, 0, 0],
                Fault::NoPayload,
                call,
            ),
            (
                &[XID, 2, 9, 1, 1, 1, 0, 9, 8, 0, 0, 0, 0, 0],
                Fault::ReadListInReply,
                reply,
            ),
            (
                &[XID, 2, 9, 1, 0, 1, 0, 9, 8, 0, 0, 0, 0, 0, XID],
                Fault::TrailingBytes,
                call,
            ),
        ] {
            assert_eq!(refused(words), Some((fault, direction)));
        }
    }

    /// Section B 4.2: MSGP, DONE and all that is of later protocols is not in the enumeration.
    #[test]
    fn there_are_no_other_procedures() {
        for procedure in [2, 3, 5, 6, 13, 14, u32::MAX] {
            let words = [XID, 2, 9, procedure, 0, 0, 0, 0, XID, 0];
            let expected = (Fault::BadProcedure(procedure), None);
            assert_eq!(refused(&words), Some(expected));
        }
        assert_eq!(refused(&[XID, 2, 9, 0, 0, 0]), Some((Fault::Runt, None)));
        assert_eq!(refused(&[XID, 2, 9]), Some((Fault::Runt, None)));
    }

    /// Section B 4.2: errors have five words or seven, and one of them is about no RPC.
    #[test]
    fn errors_about_rpcs_and_about_operations_are_told_apart() -> Result {
        for (words, error) in [
            (&[XID, 2, 9, 4, 2][..], Some(v1::RdmaError::Chunk)),
            (
                &[XID, 2, 9, 4, 1, 1, 1],
                Some(v1::RdmaError::Version { low: 1, high: 1 }),
            ),
            (&[XID, 2, 9, 4, 3], None),
            (&[XID, 2, 9, 4, 99], None),
            (&[XID, 2, 9, 4, 1, 2, 1], None),
            (&[XID, 2, 9, 4], None),
        ] {
            let bytes = Bytes::from_words(words)?;
            let found = decode(bytes.get()).ok().and_then(|header| header.error());
            assert_eq!(found, error);
            assert_eq!(is_invalid_option(bytes.get()), words.get(4) == Some(&3));
        }
        Ok(())
    }
}
