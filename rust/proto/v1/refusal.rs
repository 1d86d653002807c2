// SPDX-License-Identifier: GPL-2.0

//! Tests of the answers to messages of Version One that are not accepted (RFC 8166, 4.5).

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_refusal)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::super::{
        super::{
            message::Version,
            testing::Bytes, //
        },
        testing::{
            decode,
            with_rpc,
            CALL,
            XID, //
        },
        Direction,
        ErrorHeader,
        MIN_HEADER_LEN, //
    };
    use crate::proto::prelude::*;

    /// Decodes a message made of words and returns its direction.
    fn direction_of(words: &[u32]) -> Result<Option<Direction>> {
        let bytes = Bytes::from_words(words)?;
        decode(bytes.get())
            .map(|header| header.direction())
            .map_err(|error| error.fault)
    }

    /// Decodes a message made of words and returns the Responder's answer to it.
    fn answer_to(words: &[u32]) -> Option<ErrorHeader> {
        let bytes = Bytes::from_words(words).ok()?;
        decode(bytes.get()).err()?.answer(7)
    }

    /// RFC 8166, section 4.5: a message below 28 octets is not examined at all.
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
        // The same with a version that would otherwise get an answer.
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
                let bytes = Bytes::from_encoder(|buf| answer.encode(Version::One, buf))?;
                assert!(bytes.is_words(&[XID, version, 7, 4, 1, 1, 1]));
            }
        }
        Ok(())
    }

    /// RFC 8166, section 4.2.4: Responders do not answer an RDMA_ERROR, good or bad.
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
            // RDMA_NOMSG without a chunk that could hold the RPC message.
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
            let bytes = Bytes::from_encoder(|buf| answer.encode(Version::One, buf))?;
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
