// SPDX-License-Identifier: GPL-2.0

//! Tests of the rules by which messages of Version Two are decoded.

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v2_decode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::super::{
        super::{
            message::{
                direction_of,
                Body, //
                DecodeError,
            },
            testing::Bytes, //
        },
        htype,
        testing::{
            decode,
            decoded,
            XID, //
        },
        Direction, //
    };
    use crate::proto::prelude::*;

    /// Decodes a message made of words and returns its fault.
    fn fault(words: &[u32]) -> Option<Fault> {
        let bytes = Bytes::from_words(words).ok()?;
        let error = decode(bytes.get()).err()?;
        // Whenever the error can be answered, the transaction ID is known.
        error
            .prefix
            .filter(|prefix| prefix.xid == XID)
            .map(|_| error.fault)
    }

    /// Section 6.4: the prefix has 16 octets.
    #[test]
    fn runts_are_told_apart() -> Result {
        let bytes = Bytes::from_words(&[XID, 2, 1, htype::GRANT])?;
        for len in 0..16 {
            let error = DecodeError::from(Fault::Runt);
            assert_eq!(decode(bytes.prefix(len)), Err(error));
        }
        assert!(decode(bytes.get()).is_ok());
        Ok(())
    }

    /// Section 6.1: the types 6 to 13, and the two that remain of Version One.
    #[test]
    fn header_types_are_known() {
        for htype in [0, 1, 2, 3, 14, 100, u32::MAX] {
            assert_eq!(fault(&[XID, 2, 1, htype]), Some(Fault::BadProcedure(htype)));
            assert_eq!(direction_of(htype), None);
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
        }
    }

    /// Section 6.3.7.
    #[test]
    fn a_call_without_chunks() -> Result {
        let words = [XID, 2, 32, 10, 0, 0, 0, 0, XID, 0, 7];
        let bytes = Bytes::from_words(&words)?;
        let header = decoded(&bytes)?;
        assert_eq!((header.xid, header.credits), (XID, 32));
        assert_eq!(header.header_len, 32);
        assert_eq!(header.payload.len(), 12);
        assert_eq!(header.body, Body::Inline(Direction::Call));
        assert!(!header.has_chunks() && header.invalidate().is_none());
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
                let outcome = decode(cut);
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
            let offer = decoded(&bytes)?;
            assert_eq!(offer.body, Body::External(Direction::Call));
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
        let offer = decoded(&bytes)?;
        assert_eq!(offer.read_chunks(), 2);
        assert_eq!(offer.segments().count(), 3);
        assert!(offer.has_chunks());
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
                assert!(decode(bytes.prefix(len)).is_err());
            }
        }
        Ok(())
    }
}
