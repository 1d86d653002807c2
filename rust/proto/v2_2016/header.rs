// SPDX-License-Identifier: GPL-2.0

//! Tests of the headers of RPC messages and of errors: those of Version One with a direction
//! (B 4.2).

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_2016_header)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::super::{
        super::{
            message::{
                self,
                DecodeError,
                Direction,
                Header,
                Outgoing,
                RdmaError,
                Version, //
            },
            testing::{
                read_segment,
                segment,
                Bytes, //
            }, //
        },
        option::is_invalid_option, //
    };
    use crate::proto::prelude::*;

    const XID: u32 = 0x2016_0001;

    /// A Call without chunks.
    const CALL: Outgoing<'_> = Outgoing::new(Version::Earlier, Direction::Call, XID, 32);

    /// Decodes a message.
    fn decode(bytes: &[u8]) -> core::result::Result<Header<'_>, DecodeError> {
        message::decode(Version::Earlier, bytes, &Limits::DEFAULT)
    }

    /// Returns the fault of a message made of words, and its direction.
    fn refused(words: &[u32]) -> Option<(Fault, Option<Direction>)> {
        let bytes = Bytes::from_words(words).ok()?;
        let error = decode(bytes.get()).err()?;
        Some((error.fault, error.direction))
    }

    /// Section B 4.2: a word more than in Version One.
    #[test]
    fn headers_look_as_in_the_draft() -> Result {
        let reply_chunk = [segment(9, 300)];
        let call = Outgoing {
            read: &[read_segment(64, 1, 100)],
            write: &[&[segment(7, 10)]],
            reply: Some(&reply_chunk),
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| call.encode(buf))?;
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
        let reply = Outgoing {
            direction: Direction::Reply,
            reply: Some(&chunk),
            external: true,
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| reply.encode(buf))?;
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
        for external in [false, true] {
            let read = read_segment(if external { 0 } else { 64 }, 1, 100);
            let body = [segment(1, 100)];
            let (call, rest) = if external {
                (&body[..], &[][..])
            } else {
                (&[][..], core::slice::from_ref(&read))
            };
            let reply_chunk = [segment(9, 300)];
            let call = Outgoing {
                credits: 5,
                external,
                call,
                read: rest,
                write: &[&[segment(7, 10)]],
                reply: Some(&reply_chunk),
                ..CALL
            };
            let mut end = 0;
            let bytes = Bytes::from_encoder(|buf| {
                end = call.encode(buf)?;
                if external {
                    return Ok(end);
                }
                let mut writer = Writer::new(buf.get_mut(end..).ok_or(Fault::NoSpace)?);
                writer.u32(XID)?;
                writer.u32(0)?;
                end.checked_add(writer.len()).ok_or(Fault::NoSpace)
            })?;
            let Ok(header) = decode(bytes.get()) else {
                return Err(Fault::NoPayload);
            };
            assert_eq!((header.xid, header.credits), (XID, 5));
            assert_eq!(header.direction(), Some(Direction::Call));
            assert_eq!((header.is_external(), header.header_len), (external, end));
            assert!(header.read_list().iter().eq([read]));
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
            (&[XID, 2, 9, 4, 2][..], Some(RdmaError::BadXdr)),
            (
                &[XID, 2, 9, 4, 1, 1, 1],
                Some(RdmaError::Version { low: 1, high: 1 }),
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
