// SPDX-License-Identifier: GPL-2.0

//! The Version One header.

use super::chunk_lists::{
    check_totals,
    written, //
};
use crate::headers::{
    CallHeader,
    ReplyHeader, //
};
use crate::proto::{
    chunk::{
        self,
        Limits,
        ReadSegment,
        Segment, //
    },
    error::Fault,
    message::{
        decode,
        header_len,
        Body,
        DecodeError,
        Direction,
        ErrorHeader,
        Header,
        Prefix,
        RdmaError,
        Version,
        PREFIX_LEN, //
    },
    v1, //
};

/// The size in octets of the longest error: a prefix, and three words.
const LONGEST_ERROR: usize = 28;

/// The Version One header.
pub fn v1_message(bytes: &[u8]) {
    match decode_one(bytes) {
        Ok(header) => accepted(bytes, &header),
        Err(error) => rejected(bytes, &error),
    }
}

/// Decodes a message.
fn decode_one(bytes: &[u8]) -> Result<Header<'_>, DecodeError> {
    decode(Version::One, bytes, &Limits::DEFAULT)
}

/// Checks a message that was accepted: what was decoded, encoded again, is what was received.
fn accepted(bytes: &[u8], header: &Header<'_>) {
    let (head, rest) = bytes.split_at(header.header_len);
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(header.xid, words[0]);
    assert_eq!(words[1], v1::VERSION);
    assert_eq!(header.credits, words[2]);

    // Where the header ends not even its last octet can be missing.
    for len in head.len().saturating_sub(5)..head.len() {
        assert!(decode_one(&bytes[..len]).is_err());
    }

    if let Some(error) = header.error() {
        assert_eq!(header.direction(), Some(Direction::Reply));
        assert!(header.payload.is_empty());
        if header.credits != 0 {
            let mut buf = [0; LONGEST_ERROR];
            let again = ErrorHeader {
                xid: header.xid,
                version: v1::VERSION,
                credits: header.credits,
                error,
            };
            let len = again.encode(Version::One, &mut buf).unwrap();
            assert_eq!(&buf[..len], head);
        }
        return;
    }

    let (read_list, write_list) = (header.read_list(), header.write_list());
    let reply_chunk = header.reply_chunk();
    let read: Vec<ReadSegment> = read_list.iter().collect();
    let write: Vec<Vec<Segment>> = write_list.iter().map(|c| c.iter().collect()).collect();
    let reply: Option<Vec<Segment>> = reply_chunk.map(|c| c.iter().collect());
    check_totals(&read_list, &write_list, reply_chunk.as_ref());

    match header.body {
        Body::Inline(direction) => {
            assert_eq!(header.payload, rest);
            assert_eq!(&rest[..4], &bytes[..4]);
            assert_eq!(u32::from(rest[7]), direction_word(direction));
            assert_eq!(read_list.position_zero_len(), None);
            // Two words are the least that an RPC message can be.
            assert!(decode_one(&bytes[..head.len() + 7]).is_err());
        }
        Body::External(direction) => {
            assert!(rest.is_empty());
            let len = match direction {
                Direction::Call => read_list.position_zero_len(),
                Direction::Reply => reply_chunk.map(|chunk| chunk.total()),
            };
            assert!(len.unwrap() > 0);
        }
        _ => unreachable!("Version One has no other messages"),
    }
    if header.direction() == Some(Direction::Reply) {
        assert!(read.is_empty());
    }

    let write: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
    let again = written(head.len(), |writer| {
        Prefix {
            xid: header.xid,
            version: v1::VERSION,
            credits: header.credits,
            procedure: u32::from(header.is_external()),
        }
        .put(writer)?;
        chunk::put_read_list(writer, &[], &read)?;
        chunk::put_write_list(writer, &write)?;
        chunk::put_reply_chunk(writer, reply.as_deref())
    });
    assert_eq!(again, head);
    if let [] | [_] = write[..] {
        let form = (Version::One, Direction::Call, header.is_external());
        let write = write.first().map(|chunk| chunk.len());
        let reply = reply.as_ref().map(Vec::len);
        assert_eq!(header_len(form, read.len(), write, reply), Ok(head.len()));
    }

    // The same by the encoder of that direction, as far as it makes such messages.
    let mut buf = vec![0; head.len()];
    match header.direction() {
        Some(Direction::Call) => {
            // The Call chunk comes first.
            if !read.is_sorted_by_key(|entry| entry.position != 0) {
                return;
            }
            let one_chunk = match write.as_slice() {
                [] => &[],
                [segments] if !segments.is_empty() => *segments,
                _ => return,
            };
            let reply = match reply.as_deref() {
                Some([]) => return,
                reply => reply.unwrap_or_default(),
            };
            let call = CallHeader {
                xid: header.xid,
                credits: header.credits,
                read: &read,
                write: one_chunk,
                reply,
                nomsg: header.is_external(),
            };
            assert_eq!(call.encode(&mut buf), Ok(head.len()));
        }
        _ => {
            let reply = ReplyHeader {
                xid: header.xid,
                credits: header.credits.max(1),
                write: &write,
                reply: reply.as_deref(),
                nomsg: header.is_external(),
            };
            if reply.credits != header.credits {
                return;
            }
            assert_eq!(reply.encode(&mut buf), Ok(head.len()));
        }
    }
    assert_eq!(buf, head);
}

/// The word that tells a direction.
fn direction_word(direction: Direction) -> u32 {
    match direction {
        Direction::Call => 0,
        Direction::Reply => 1,
    }
}

/// Checks a message that was not accepted: whether and how it is answered.
fn rejected(bytes: &[u8], error: &DecodeError) {
    let answer = error.answer(1);
    let Some(prefix) = error.prefix else {
        assert_eq!(error.fault, Fault::Runt);
        assert!(bytes.len() < v1::MIN_HEADER_LEN);
        assert_eq!(answer, None);
        return;
    };
    assert!(bytes.len() >= PREFIX_LEN);
    assert!(bytes.len() >= v1::MIN_HEADER_LEN || prefix.procedure == 4);

    // RDMA_DONE and RDMA_ERROR are never answered.
    let silent = prefix.procedure == 4
        || (prefix.procedure == 3 && prefix.version == v1::VERSION)
        || error.direction == Some(Direction::Reply);
    assert_eq!(answer.is_none(), silent);

    let Some(answer) = answer else { return };
    assert_eq!(answer.xid, prefix.xid);
    assert_eq!(answer.version, prefix.version);
    let mut buf = [0; LONGEST_ERROR];
    let len = answer.encode(Version::One, &mut buf).unwrap();
    match answer.error {
        RdmaError::Version { low, high } => {
            assert_eq!((low, high), (v1::VERSION, v1::VERSION));
            assert_ne!(prefix.version, v1::VERSION);
        }
        _ => {
            assert_eq!(prefix.version, v1::VERSION);
            let header = decode_one(&buf[..len]).unwrap();
            assert_eq!(header.xid, prefix.xid);
            assert_eq!(header.error(), Some(RdmaError::BadXdr));
        }
    }
}
