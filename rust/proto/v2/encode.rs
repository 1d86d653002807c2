// SPDX-License-Identifier: GPL-2.0

//! Tests of the rules by which messages of Version Two are encoded.

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v2_encode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::super::{
        super::{
            message::{
                Outgoing,
                Version, //
            },
            props::Properties,
            testing::{
                read_segment,
                segment,
                Bytes, //
            }, //
        },
        testing::XID,
        Advertised,
        ConnProp,
        Direction,
        ErrorHeader,
        GrantHeader,
        Middle,
        RdmaError,
        MIDDLE_LEN, //
    };
    use crate::proto::prelude::*;

    /// The first of the two words of the offset of all segments.
    const HIGH: u32 = 0x0001_0002;
    /// The second of them.
    const LOW: u32 = 0x0003_0004;

    /// A Call without chunks.
    const CALL: Outgoing<'_> = Outgoing::new(Version::Two, Direction::Call, XID, 7);

    /// A Reply without chunks.
    const REPLY: Outgoing<'_> = Outgoing::new(Version::Two, Direction::Reply, XID, 7);

    /// Section 8.4: all ten header types, field by field.
    #[test]
    fn messages_look_as_in_the_draft() -> Result {
        let read = [read_segment(8, 1, 2)];
        let chunk = [segment(3, 4)];
        let reply = [segment(5, 6)];
        let full = Outgoing {
            invalidate: 3,
            read: &read,
            write: &[&chunk, &[]],
            reply: Some(&reply),
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| full.encode(buf))?;
        assert!(bytes.is_words(&[
            XID, 2, 7, 10, 3, 1, 8, 1, 2, HIGH, LOW, 0, 1, 1, 3, 4, HIGH, LOW, 1, 0, 0, 1, 1, 5, 6,
            HIGH, LOW
        ]));

        let call = [segment(9, 10), segment(11, 12)];
        let external = Outgoing {
            external: true,
            call: &call,
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| external.encode(buf))?;
        assert!(bytes.is_words(&[
            XID, 2, 7, 8, 0, 1, 0, 9, 10, HIGH, LOW, 1, 0, 11, 12, HIGH, LOW, 0, 0, 0, 0
        ]));

        let middle = |direction| {
            Bytes::from_encoder(|buf| {
                Middle {
                    direction,
                    xid: XID,
                    credits: 7,
                    remaining: 99,
                }
                .encode(buf)
            })
        };
        assert!(middle(Direction::Call)?.is_words(&[XID, 2, 7, 9, 99]));
        assert!(middle(Direction::Reply)?.is_words(&[XID, 2, 7, 12, 99]));
        assert_eq!(middle(Direction::Call)?.get().len(), MIDDLE_LEN);

        let inline = Outgoing {
            write: &[&chunk],
            ..REPLY
        };
        let bytes = Bytes::from_encoder(|buf| inline.encode(buf))?;
        assert!(bytes.is_words(&[XID, 2, 7, 13, 1, 1, 3, 4, HIGH, LOW, 0]));

        let external = Outgoing {
            external: true,
            reply: Some(&reply),
            ..REPLY
        };
        let bytes = Bytes::from_encoder(|buf| external.encode(buf))?;
        assert!(bytes.is_words(&[XID, 2, 7, 11, 0, 1, 1, 5, 6, HIGH, LOW]));
        Ok(())
    }

    /// Section 6.3.2: the transaction ID of a GRANT is zero. So is that of CONNPROP messages.
    #[test]
    fn control_messages_look_as_in_the_draft() -> Result {
        let grant = GrantHeader { credits: 7 };
        assert!(Bytes::from_encoder(|buf| grant.encode(buf))?.is_words(&[0, 2, 7, 5]));
        let told = Advertised::all(&Properties::DEFAULT);
        for (last, htype) in [(false, 6), (true, 7)] {
            let message = ConnProp {
                credits: 7,
                told,
                last,
            };
            let bytes = Bytes::from_encoder(|buf| message.encode(buf))?;
            assert!(bytes.is_words(&[
                0,
                2,
                7,
                htype,
                5,
                1,
                4,
                4096,
                2,
                4,
                4096,
                3,
                4,
                1 << 20,
                4,
                4,
                16,
                5,
                4,
                0
            ]));
        }
        let error = ErrorHeader {
            xid: XID,
            version: 9,
            credits: 7,
            error: RdmaError::Version { low: 1, high: 2 },
        };
        let bytes = Bytes::from_encoder(|buf| error.encode(Version::Two, buf))?;
        assert!(bytes.is_words(&[XID, 9, 7, 4, 1, 1, 2]));
        Ok(())
    }

    /// The encoder refuses contents that a sender MUST NOT send.
    #[test]
    fn encoders_refuse_what_must_not_be_sent() {
        let mut buf = [0; 256];
        let mut call = CALL;
        for (read, fault) in [
            (
                [read_segment(0, 1, 8), read_segment(4, 1, 8)],
                Fault::UnexpectedPositionZero,
            ),
            (
                [read_segment(8, 1, 8), read_segment(4, 1, 8)],
                Fault::UnorderedPosition(4),
            ),
            (
                [read_segment(4, 1, 8), read_segment(6, 1, 8)],
                Fault::UnalignedPosition(6),
            ),
        ] {
            let call = Outgoing {
                read: &read,
                ..CALL
            };
            assert_eq!(call.encode(&mut buf), Err(fault));
            let external = Outgoing {
                external: true,
                call: &[segment(1, 1)],
                ..call
            };
            assert_eq!(external.encode(&mut buf), Err(fault));
        }
        for handle in [1, u32::MAX] {
            call.invalidate = handle;
            assert_eq!(call.encode(&mut buf), Err(Fault::UnknownHandle(handle)));
        }
        for segments in [&[][..], &[segment(1, 0)]] {
            let external = Outgoing {
                external: true,
                call: segments,
                ..CALL
            };
            assert_eq!(external.encode(&mut buf), Err(Fault::NoPayload));
            let external = Outgoing {
                external: true,
                reply: Some(segments),
                ..REPLY
            };
            assert_eq!(external.encode(&mut buf), Err(Fault::NoPayload));
        }
    }
}
