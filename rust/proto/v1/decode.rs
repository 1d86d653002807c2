// SPDX-License-Identifier: GPL-2.0

//! Tests of the rules by which messages of Version One are decoded.

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_decode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::super::{
        super::{
            message::{
                holds_call,
                Outgoing,
                Version, //
            },
            testing::{
                read_segment,
                segment,
                Bytes, //
            }, //
        },
        testing::{
            decode,
            with_rpc,
            CALL,
            REPLY,
            XID, //
        },
        Direction,
        ErrorHeader,
        RdmaError,
        MIN_HEADER_LEN, //
    };
    use crate::proto::prelude::*;

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
        assert_eq!(header.direction(), Some(Direction::Call));
        assert_eq!(header.header_len, MIN_HEADER_LEN);
        assert_eq!(header.payload.len(), 8);
        assert!(!header.is_external() && header.reply_chunk().is_none());
        assert!(header.read_list().is_empty() && header.write_list().is_empty());
        assert!(header.reply_chunk().is_none() && header.error().is_none());

        let words = [XID, 1, 0x80, 0, 0, 0, 0, XID, 1, 0, 0, 0, 0, 0, 0];
        let bytes = Bytes::from_words(&words)?;
        assert_eq!(bytes.get().len(), 60);
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(header.credits, 0x80);
        assert_eq!(header.direction(), Some(Direction::Reply));
        assert_eq!(header.payload.len(), 32);
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
                Ok(header) => header.direction(),
                Err(error) => error.direction,
            };
            assert!(!holds || direction != Some(Direction::Reply));
        }
        Ok(())
    }

    #[test]
    fn call_with_chunks() -> Result {
        let chunk = [segment(7, 10), segment(8, 20)];
        let reply_chunk = [segment(9, 300)];
        let call = Outgoing {
            read: &[read_segment(64, 1, 100), read_segment(64, 2, 27)],
            write: &[&chunk],
            reply: Some(&reply_chunk),
            ..CALL
        };
        let bytes = with_rpc(|buf| call.encode(buf), 0)?;
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert_eq!(header.header_len.checked_add(8), Some(bytes.get().len()));
        assert_eq!(header.direction(), Some(Direction::Call));
        assert!(header.read_list().iter().eq(call.read.iter().copied()));
        let write = header.write_list().single().ok_or(Fault::NoPayload)?;
        assert!(write.iter().eq(chunk));
        let reply = header.reply_chunk().ok_or(Fault::NoPayload)?;
        assert!(reply.iter().eq([segment(9, 300)]));
        assert_eq!(reply.total(), 300);
        Ok(())
    }

    /// RFC 8166, section 3.5.3.
    #[test]
    fn special_call() -> Result {
        let reply_chunk = [segment(10, 300)];
        let call = Outgoing {
            call: &[segment(3, 5000), segment(4, 4)],
            reply: Some(&reply_chunk),
            external: true,
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| call.encode(buf))?;
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert!(header.is_external());
        assert_eq!(header.direction(), Some(Direction::Call));
        assert_eq!(header.read_list().position_zero_len(), Some(5004));
        assert_eq!(header.header_len, bytes.get().len());
        assert!(header.payload.is_empty());
        Ok(())
    }

    /// RFC 8166, section 3.5.3.
    #[test]
    fn special_reply() -> Result {
        let chunk = [segment(11, 300), segment(12, 8)];
        let reply = Outgoing {
            write: &[&[segment(13, 10), segment(14, 0)], &[]],
            reply: Some(&chunk),
            external: true,
            ..REPLY
        };
        let bytes = Bytes::from_encoder(|buf| reply.encode(buf))?;
        let Ok(header) = decode(bytes.get()) else {
            return Err(Fault::NoPayload);
        };
        assert!(header.is_external());
        assert_eq!(header.direction(), Some(Direction::Reply));
        assert_eq!(header.write_list().len(), 2);
        assert_eq!(header.reply_chunk().map(|chunk| chunk.total()), Some(308));
        Ok(())
    }

    #[test]
    fn no_strict_prefix_is_accepted() -> Result {
        let segments = [segment(15, 10), segment(16, 20)];
        let call = Outgoing {
            read: &[read_segment(64, 5, 100)],
            write: &[&segments],
            reply: Some(&segments),
            ..CALL
        };
        let special_call = Outgoing {
            call: &[segment(6, 100)],
            read: &[],
            external: true,
            ..call
        };
        let special_reply = Outgoing {
            write: &[&segments, &segments],
            reply: Some(&segments),
            external: true,
            ..REPLY
        };
        let error = ErrorHeader {
            xid: XID,
            version: 1,
            credits: 1,
            error: RdmaError::Version { low: 1, high: 2 },
        };
        let refusal = ErrorHeader {
            error: RdmaError::BadXdr,
            ..error
        };
        for bytes in [
            with_rpc(|buf| CALL.encode(buf), 0)?,
            with_rpc(|buf| call.encode(buf), 0)?,
            with_rpc(|buf| REPLY.encode(buf), 1)?,
            Bytes::from_encoder(|buf| special_call.encode(buf))?,
            Bytes::from_encoder(|buf| special_reply.encode(buf))?,
            Bytes::from_encoder(|buf| error.encode(Version::One, buf))?,
            Bytes::from_encoder(|buf| refusal.encode(Version::One, buf))?,
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
            (&[XID, 1, 0x80, 4, 2], RdmaError::BadXdr),
            // Trailing bytes do not matter.
            (&[XID, 1, 0x80, 4, 2, 0, 0], RdmaError::BadXdr),
        ] {
            let bytes = Bytes::from_words(words)?;
            let Ok(header) = decode(bytes.get()) else {
                return Err(Fault::NoPayload);
            };
            assert_eq!(header.xid, XID);
            assert_eq!(header.credits, 0x80);
            assert_eq!(header.error(), Some(expected));
            assert_eq!(header.direction(), Some(Direction::Reply));
            assert!(header.payload.is_empty() && !header.has_chunks());
            assert!(header.read_list().is_empty() && header.write_list().is_empty());
        }
        Ok(())
    }
}
