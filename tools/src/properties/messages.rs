// SPDX-License-Identifier: GPL-2.0

//! Every valid message comes back as it was sent, and none of its prefixes is valid.

use proptest::{
    collection::vec,
    prelude::*, //
};

use super::generate::{
    call,
    chunk,
    edgy,
    rdma_error,
    reply,
    Call,
    Reply,
    MAX_MESSAGE, //
};
use crate::headers::{
    CallHeader,
    ReplyHeader, //
};
use crate::{
    oracle,
    proto::{
        chunk::{
            Limits,
            Segment, //
        },
        error::Fault,
        message::{
            self,
            DecodeError,
            Direction,
            ErrorHeader,
            Header,
            Version, //
        },
        v1::VERSION, //
    }, //
};

/// Decodes a message.
fn decode(bytes: &[u8]) -> Result<Header<'_>, DecodeError> {
    message::decode(Version::One, bytes, &Limits::DEFAULT)
}

/// Returns the header of a Call.
fn call_header(call: &Call) -> CallHeader<'_> {
    CallHeader {
        xid: call.xid,
        credits: call.credits,
        read: &call.read,
        write: &call.write,
        reply: &call.reply,
        nomsg: call.nomsg,
    }
}

/// Returns the message of a Call: its header and, if it belongs there, an RPC message.
fn call_message(call: &Call, rpc: &[u8]) -> (Vec<u8>, usize) {
    let header = call_header(call);
    let inline = (!call.nomsg).then_some((call.xid, 0, rpc));
    message(|buf| header.encode(buf), inline)
}

/// Returns the message of a Reply: its header and, if it belongs there, an RPC message.
fn reply_message(reply: &Reply, rpc: &[u8]) -> (Vec<u8>, usize) {
    let write: Vec<&[Segment]> = reply.write.iter().map(Vec::as_slice).collect();
    let header = ReplyHeader {
        xid: reply.xid,
        credits: reply.credits,
        write: &write,
        reply: reply.reply.as_deref(),
        nomsg: reply.nomsg,
    };
    let inline = (!reply.nomsg).then_some((reply.xid, 1, rpc));
    message(|buf| header.encode(buf), inline)
}

/// Returns a message and the length of its header. An RPC message that is inline has a transaction
/// ID, a direction and a rest.
fn message(
    encode: impl FnOnce(&mut [u8]) -> Result<usize, Fault>,
    inline: Option<(u32, u32, &[u8])>,
) -> (Vec<u8>, usize) {
    let mut buf = vec![0; MAX_MESSAGE];
    let len = encode(&mut buf).unwrap();
    buf.truncate(len);
    if let Some((xid, direction, rest)) = inline {
        buf.extend(xid.to_be_bytes());
        buf.extend(direction.to_be_bytes());
        buf.extend(rest);
    }
    (buf, len)
}

/// Checks that nothing shorter than `needed` octets of a message is accepted.
fn no_prefix_is_accepted(message: &[u8], needed: usize) -> Result<(), TestCaseError> {
    for len in 0..needed {
        prop_assert!(decode(&message[..len]).is_err(), "{len} octets");
    }
    Ok(())
}

/// Checks that a header does not fit into any buffer that is smaller.
fn needs_its_room(
    len: usize,
    encode: impl Fn(&mut [u8]) -> Result<usize, Fault>,
) -> Result<(), TestCaseError> {
    let mut buf = vec![0xee; len];
    for room in 0..len {
        prop_assert_eq!(encode(&mut buf[..room]), Err(Fault::NoSpace));
    }
    prop_assert_eq!(encode(&mut buf), Ok(len));
    Ok(())
}

proptest! {
    #[test]
    fn calls_come_back(call in call(), rpc in vec(any::<u8>(), 0..64)) {
        let (message, header_len) = call_message(&call, &rpc);
        let header = decode(&message).unwrap();
        prop_assert_eq!(header.xid, call.xid);
        prop_assert_eq!(header.credits, call.credits);
        prop_assert_eq!(header.direction(), Some(Direction::Call));
        prop_assert_eq!(header.is_external(), call.nomsg);
        prop_assert_eq!(header.error(), None);
        prop_assert_eq!(header.header_len, header_len);
        prop_assert_eq!(header.payload, &message[header_len..]);

        prop_assert!(header.read_list().iter().eq(call.read.iter().copied()));
        let write = header.write_list();
        prop_assert_eq!(write.len(), usize::from(!call.write.is_empty()));
        prop_assert!(write.iter().flat_map(|c| c.iter()).eq(call.write.iter().copied()));
        match header.reply_chunk() {
            None => prop_assert!(call.reply.is_empty()),
            Some(chunk) => prop_assert!(chunk.iter().eq(call.reply.iter().copied())),
        }

        oracle::v1_message(&message);
        let needed = if call.nomsg { header_len } else { header_len + 8 };
        no_prefix_is_accepted(&message, needed)?;
        needs_its_room(header_len, |buf| call_header(&call).encode(buf))?;
    }

    #[test]
    fn replies_come_back(reply in reply(), rpc in vec(any::<u8>(), 0..64)) {
        let (message, header_len) = reply_message(&reply, &rpc);
        let header = decode(&message).unwrap();
        prop_assert_eq!(header.xid, reply.xid);
        prop_assert_eq!(header.credits, reply.credits);
        prop_assert_eq!(header.direction(), Some(Direction::Reply));
        prop_assert_eq!(header.is_external(), reply.nomsg);
        prop_assert_eq!(header.header_len, header_len);
        prop_assert_eq!(header.payload, &message[header_len..]);
        prop_assert!(header.read_list().is_empty());

        let write: Vec<Vec<Segment>> =
            header.write_list().iter().map(|c| c.iter().collect()).collect();
        prop_assert_eq!(&write, &reply.write);
        let chunk: Option<Vec<Segment>> = header.reply_chunk().map(|c| c.iter().collect());
        prop_assert_eq!(&chunk, &reply.reply);

        oracle::v1_message(&message);
        let needed = if reply.nomsg { header_len } else { header_len + 8 };
        no_prefix_is_accepted(&message, needed)?;
    }

    #[test]
    fn errors_come_back(xid in edgy(), credits in 1..=u32::MAX, error in rdma_error()) {
        let header = ErrorHeader { xid, version: VERSION, credits, error };
        let mut message = vec![0; MAX_MESSAGE];
        let len = header.encode(Version::One, &mut message).unwrap();
        message.truncate(len);

        let decoded = decode(&message).unwrap();
        prop_assert_eq!(decoded.xid, xid);
        prop_assert_eq!(decoded.credits, credits);
        prop_assert_eq!(decoded.error(), Some(error));
        prop_assert_eq!(decoded.header_len, len);
        oracle::v1_message(&message);
        no_prefix_is_accepted(&message, len)?;
        needs_its_room(len, |buf| header.encode(Version::One, buf))?;
    }

    /// A valid message with a few octets changed is accepted or not, but never misunderstood.
    #[test]
    fn damaged_messages_are_understood_or_refused(
        call in call(),
        reply in reply(),
        damage in vec((any::<prop::sample::Index>(), edgy()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut message in [call_message(&call, &[]).0, reply_message(&reply, &[]).0] {
            for (at, value) in &damage {
                let at = at.index(message.len() / 4) * 4;
                message[at..at + 4].copy_from_slice(&value.to_be_bytes());
                oracle::v1_message(&message);
            }
            oracle::v1_message(&message[..cut.index(message.len())]);
        }
    }

    /// A Responder that fills a chunk is understood, however much it fills.
    #[test]
    fn filled_chunks_are_accepted(offered in chunk(0..20), used in 0.0..=1.0_f64) {
        let total: u64 = offered.iter().map(|segment| u64::from(segment.length)).sum();
        let used = (total as f64 * used) as u64;
        let mut left = used;
        let returned: Vec<Segment> = offered
            .iter()
            .map(|segment| {
                let length = left.min(u64::from(segment.length));
                left -= length;
                Segment { length: length as u32, ..*segment }
            })
            .collect();
        let reply = Reply {
            xid: 1,
            credits: 1,
            write: vec![returned.clone()],
            reply: Some(returned),
            nomsg: false,
        };
        let (message, _) = reply_message(&reply, &[]);
        let header = decode(&message).unwrap();
        let write = header.write_list().single().unwrap();
        prop_assert_eq!(write.check_returned(offered.iter().copied()), Ok(used as u32));
        let chunk = header.reply_chunk().unwrap();
        prop_assert_eq!(chunk.check_returned(offered.iter().copied()), Ok(used as u32));
    }

    /// Any other change of a chunk is noticed.
    #[test]
    fn changed_chunks_are_refused(
        offered in chunk(1..20),
        at in any::<prop::sample::Index>(),
        what in 0..5_usize,
        by in 1..=u32::MAX,
    ) {
        let at = at.index(offered.len());
        let mut returned = offered.clone();
        let limit = u64::MAX - u64::from(u32::MAX);
        match what {
            0 => returned[at].handle ^= by,
            1 => returned[at].offset = (returned[at].offset ^ u64::from(by)) & limit,
            2 => returned[at].length += 1 + by % 1000,
            3 => drop(returned.remove(at)),
            _ => returned.insert(at, Segment::default()),
        }
        prop_assume!(returned != offered);
        let reply = Reply { xid: 1, credits: 1, write: vec![returned], reply: None, nomsg: false };
        prop_assume!(reply.write[0].iter().all(|segment| segment.offset < limit));
        let (message, _) = reply_message(&reply, &[]);
        let header = decode(&message).unwrap();
        let write = header.write_list().single().unwrap();
        prop_assert_eq!(write.check_returned(offered.iter().copied()), Err(Fault::ChunkMismatch));
    }
}
