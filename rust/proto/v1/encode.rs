// SPDX-License-Identifier: GPL-2.0

//! Tests of the rules by which messages of Version One are encoded.

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_encode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::super::{
        super::{
            message::{
                Outgoing,
                Version, //
            },
            testing::{
                read_segment,
                segment, //
            }, //
        },
        testing::{
            CALL,
            REPLY,
            XID, //
        },
        ErrorHeader,
        RdmaError, //
    };
    use crate::proto::prelude::*;

    #[test]
    fn encoders_refuse_what_must_not_be_sent() {
        let mut buf = [0; 256];
        let zero = [read_segment(0, 1, 0), read_segment(4, 2, 8)];
        let mut call = Outgoing {
            call: &[segment(1, 0)],
            read: &[read_segment(4, 2, 8)],
            external: true,
            ..CALL
        };
        assert_eq!(call.encode(&mut buf), Err(Fault::NoPayload));
        call.call = &[];
        assert_eq!(call.encode(&mut buf), Err(Fault::NoPayload));
        call.external = false;
        call.read = &zero;
        assert_eq!(call.encode(&mut buf), Err(Fault::UnexpectedPositionZero));

        let empty = [segment(4, 0)];
        let mut reply = Outgoing {
            external: true,
            ..REPLY
        };
        assert_eq!(reply.encode(&mut buf), Err(Fault::NoPayload));
        reply.reply = Some(&empty);
        assert_eq!(reply.encode(&mut buf), Err(Fault::NoPayload));

        // RFC 8166, section 3.3.1: a grant is never zero.
        reply = Outgoing {
            credits: 0,
            ..REPLY
        };
        assert_eq!(reply.encode(&mut buf), Err(Fault::ZeroCredits));
        let error = ErrorHeader {
            xid: XID,
            version: 1,
            credits: 0,
            error: RdmaError::BadXdr,
        };
        assert_eq!(
            error.encode(Version::One, &mut buf),
            Err(Fault::ZeroCredits)
        );
    }

    #[test]
    fn encoders_need_exactly_their_room() -> Result {
        let reply_chunk = [segment(6, 2), segment(7, 3)];
        let call = Outgoing {
            read: &[read_segment(64, 3, 100)],
            write: &[&[segment(5, 1)]],
            reply: Some(&reply_chunk),
            ..CALL
        };
        let len = 16 + (24 + 4) + (4 + 4 + 16 + 4) + (4 + 4 + 32);
        let mut buf = [0; 256];
        for room in 0..len {
            let room = buf.get_mut(..room).ok_or(Fault::NoSpace)?;
            assert_eq!(call.encode(room), Err(Fault::NoSpace));
        }
        let room = buf.get_mut(..len).ok_or(Fault::NoSpace)?;
        assert_eq!(call.encode(room), Ok(len));
        Ok(())
    }
}
