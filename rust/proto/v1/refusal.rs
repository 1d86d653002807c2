// SPDX-License-Identifier: GPL-2.0

//! Messages that are not accepted, and the Responder's answer to them (RFC 8166, 4.5).

use super::{
    super::error::Fault,
    Direction,
    ErrorHeader,
    Prefix,
    RdmaError,
    VERSION, //
};

/// The reason why a message was not accepted, and the part of it that can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// The reason.
    pub(crate) fault: Fault,
    /// The first four words, unless the message is too short for them to be trusted.
    pub(crate) prefix: Option<Prefix>,
    /// The direction (Call or Reply), if it is known.
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
    /// Returns the error message with which a Responder answers, or `None` if the received message
    /// must be discarded silently.
    ///
    /// Runts, RDMA_DONE and everything that comes from a Responder are not answered (RFC 8166,
    /// 4.2.4, 4.5 and 4.6). If the direction is unknown, the caller decides whether this was a
    /// Call.
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

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_refusal)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                error::Result,
                testing::Bytes, //
            },
            decode,
            testing::{
                with_rpc,
                CALL,
                XID, //
            },
            MIN_HEADER_LEN, //
        },
        *, //
    };

    /// Decodes a message made of words and returns its direction.
    fn direction_of(words: &[u32]) -> Result<Direction> {
        let bytes = Bytes::from_words(words)?;
        decode(bytes.get())
            .map(|header| header.rpc_direction())
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
                let bytes = Bytes::from_encoder(|buf| answer.encode(buf))?;
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
