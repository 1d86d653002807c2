// SPDX-License-Identifier: GPL-2.0

//! A message of each header type and of each error, in words.

use super::document;
use crate::headers::{
    CallExternal,
    CallInline,
    ReplyExternal,
    ReplyInline, //
};
use crate::proto::{
    chunk::{
        Limits,
        ReadSegment,
        Segment, //
    },
    error::Result,
    message::{
        decode,
        Body,
        Version, //
    },
    props::Advertised,
    v2::{
        ConnProp,
        Direction,
        ErrorHeader,
        GrantHeader,
        Middle,
        RdmaError,
        VERSION, //
    }, //
};

/// The document that shows the messages.
const DOCUMENT: &str = "interop-notes.rst";

/// The names of the first four words.
pub(super) const PREFIX: [&str; 4] = ["rdma_xid", "rdma_vers", "rdma_credit", "rdma_htype"];

/// The transaction ID of the examples.
const XID: u32 = 0x1234_5678;

/// The credit value of the examples.
const CREDITS: u32 = 40;

/// A segment of the examples.
const fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0x0000_7f00_0001_0000,
    }
}

/// The names of the words of a segment.
const SEGMENT: [&str; 4] = [
    "rdma_handle",
    "rdma_length",
    "rdma_offset, high word",
    "rdma_offset, low word",
];

/// The names of the words of a NULL Call of NFSv4.
pub(super) const NULL_CALL: [&str; 10] = [
    "RPC: xid",
    "RPC: CALL",
    "RPC: RPC version",
    "RPC: program",
    "RPC: version",
    "RPC: procedure NULL",
    "RPC: credential, AUTH_NONE",
    "RPC: length of it",
    "RPC: verifier, AUTH_NONE",
    "RPC: length of it",
];

/// The names of the words of its Reply.
pub(super) const NULL_REPLY: [&str; 6] = [
    "RPC: xid",
    "RPC: REPLY",
    "RPC: MSG_ACCEPTED",
    "RPC: verifier, AUTH_NONE",
    "RPC: length of it",
    "RPC: SUCCESS",
];

/// The names of the words of the lists of a Call without chunks.
pub(super) const NO_CHUNKS: [&str; 3] = ["no Read segment", "no Write chunk", "no Reply chunk"];

/// Returns the names of the words of the properties but host authentication.
pub(super) fn property_names() -> Vec<&'static str> {
    let which = [
        "RDMA2_PROPID_SBSIZ",
        "RDMA2_PROPID_RBSIZ",
        "RDMA2_PROPID_RSSIZ",
        "RDMA2_PROPID_RCSIZ",
        "RDMA2_PROPID_BRS",
    ];
    let mut names = vec!["count of properties"];
    for which in which {
        names.extend([which, "length of rdma_data", "the value"]);
    }
    names
}

/// Returns the NULL Call.
pub(super) fn null_call(xid: u32) -> [u32; 10] {
    [xid, 0, 2, 100_003, 4, 0, 0, 0, 0, 0]
}

/// Returns its Reply.
pub(super) fn null_reply(xid: u32) -> [u32; 6] {
    [xid, 1, 0, 0, 0, 0]
}

/// Returns names behind those of the prefix.
pub(super) fn named(rest: &[&[&'static str]]) -> Vec<&'static str> {
    [&PREFIX[..]]
        .iter()
        .chain(rest)
        .copied()
        .flatten()
        .copied()
        .collect()
}

/// Returns what an encoder writes.
///
/// # Panics
///
/// If it fails.
pub(super) fn written(encode: impl FnOnce(&mut [u8]) -> Result<usize>) -> Vec<u8> {
    let mut buf = vec![0; 512];
    let len = encode(&mut buf).unwrap();
    buf.truncate(len);
    buf
}

/// Appends words to a message.
pub(super) fn with(mut message: Vec<u8>, words: &[u32]) -> Vec<u8> {
    message.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    message
}

/// Returns a message in words, with the name of each of them.
///
/// # Panics
///
/// If there are not as many names as words.
pub(super) fn shown(title: &str, message: &[u8], names: &[&str]) -> Vec<String> {
    assert_eq!(message.len(), 4 * names.len(), "{title}");
    let mut lines = vec![format!("{title}, {} octets", message.len())];
    for (word, name) in message.chunks_exact(4).zip(names) {
        let word = u32::from_be_bytes(word.try_into().unwrap());
        lines.push(format!("   {word:08x}  {name}"));
    }
    lines.push(String::new());
    lines
}

/// Checks that the decoder accepts a message, and that the document shows it.
fn check(example: &str, messages: &[(&str, Vec<u8>, Vec<&'static str>)]) {
    let mut lines = vec![];
    for (title, message, names) in messages {
        assert!(
            decode(Version::Two, message, &Limits::DEFAULT).is_ok(),
            "{title}"
        );
        lines.extend(shown(title, message, names));
    }
    lines.pop();
    document::check(DOCUMENT, example, &lines);
}

/// The Call without chunks.
const CALL: CallInline<'_> = CallInline {
    xid: XID,
    credits: CREDITS,
    inv_handle: 0,
    read: &[],
    write: &[],
    reply: None,
};

/// A Read chunk of two segments that holds 3001 octets.
const READ: [ReadSegment; 2] = [
    ReadSegment {
        position: 40,
        segment: segment(0x0a01, 2048),
    },
    ReadSegment {
        position: 40,
        segment: segment(0x0a02, 953),
    },
];

/// The names of the words of that Read chunk.
fn read_names() -> Vec<&'static str> {
    let entry = [&["another Read segment", "rdma_position"][..], &SEGMENT].concat();
    [&entry[..], &entry, &["no more Read segments"]].concat()
}

/// The messages that belong to no RPC.
#[test]
fn control_messages_are_as_documented() {
    let credits = CREDITS;
    let material = [0xa1, 0xa2, 0xa3, 0xa4, 0xa5];
    let middle = ConnProp {
        credits,
        told: Advertised {
            host_auth: Some(&material),
            ..Advertised::NOTHING
        },
        last: false,
    };
    let last = ConnProp {
        told: Advertised {
            send_size: Some(4096),
            receive_size: Some(8192),
            segment_size: Some(1 << 20),
            segment_count: Some(16),
            reverse: Some(3),
            host_auth: None,
        },
        last: true,
        ..middle
    };
    let auth = [
        "count of properties",
        "RDMA2_PROPID_HOSTAUTH",
        "length of rdma_data",
        "length of the opaque in it",
        "the material",
        "the material, three octets of padding",
    ];
    check(
        "control messages",
        &[
            (
                "RDMA2_GRANT",
                written(|buf| GrantHeader { credits }.encode(buf)),
                named(&[]),
            ),
            (
                "RDMA2_CONNPROP_MIDDLE",
                written(|buf| middle.encode(buf)),
                named(&[&auth]),
            ),
            (
                "RDMA2_CONNPROP_FINAL",
                written(|buf| last.encode(buf)),
                named(&[&property_names()]),
            ),
        ],
    );
}

/// The three header types of a Call.
#[test]
fn calls_are_as_documented() {
    let read = read_names();
    let sink = [segment(0x0b01, 4096)];
    let chunks = CallInline {
        inv_handle: 0x0a01,
        read: &READ,
        write: &[&sink],
        reply: Some(&[]),
        ..CALL
    };
    let external = CallExternal {
        common: CallInline {
            inv_handle: 0x0c01,
            ..CALL
        },
        call: &[segment(0x0c01, 6000)],
    };
    let middle = Middle {
        direction: Direction::Call,
        xid: XID,
        credits: CREDITS,
        remaining: 28,
    };
    let call = null_call(XID);
    let write = [&["another Write chunk", "count of segments"][..], &SEGMENT].concat();
    let rest = ["no more Write chunks", "a Reply chunk", "count of segments"];
    let one_read = [&["a Read segment", "rdma_position"][..], &SEGMENT].concat();
    check(
        "Calls",
        &[
            (
                "RDMA2_CALL_INLINE, no chunks",
                with(written(|buf| CALL.encode(buf)), &call),
                named(&[&["rdma_inv_handle"], &NO_CHUNKS, &NULL_CALL]),
            ),
            (
                "RDMA2_CALL_INLINE, with all kinds of chunks",
                with(written(|buf| chunks.encode(buf)), &call),
                named(&[&["rdma_inv_handle"], &read, &write, &rest, &NULL_CALL]),
            ),
            (
                "RDMA2_CALL_MIDDLE, the first 12 octets of 40",
                with(written(|buf| middle.encode(buf)), &call[..3]),
                named(&[&["rdma_remaining"], &NULL_CALL[..3]]),
            ),
            (
                "RDMA2_CALL_INLINE, the other 28",
                with(written(|buf| CALL.encode(buf)), &call[3..]),
                named(&[&["rdma_inv_handle"], &NO_CHUNKS, &NULL_CALL[3..]]),
            ),
            (
                "RDMA2_CALL_EXTERNAL",
                written(|buf| external.encode(buf)),
                named(&[
                    &["rdma_inv_handle"],
                    &one_read,
                    &["no more segments of the Call chunk"],
                    &NO_CHUNKS,
                ]),
            ),
        ],
    );
}

/// The three header types of a Reply.
#[test]
fn replies_are_as_documented() {
    let (xid, credits) = (XID, CREDITS);
    let used = [segment(0x0b01, 1001)];
    let unused = [segment(0x0b02, 0)];
    let inline = ReplyInline {
        xid,
        credits,
        write: &[],
    };
    let chunks = ReplyInline {
        write: &[&used, &unused],
        ..inline
    };
    let external = ReplyExternal {
        xid,
        credits,
        write: &[],
        reply: &[segment(0x0d01, 5000)],
    };
    let middle = Middle {
        direction: Direction::Reply,
        xid,
        credits,
        remaining: 12,
    };
    let reply = null_reply(XID);
    let chunk = [&["another Write chunk", "count of segments"][..], &SEGMENT].concat();
    check(
        "Replies",
        &[
            (
                "RDMA2_REPLY_INLINE, no chunks",
                with(written(|buf| inline.encode(buf)), &reply),
                named(&[&["no Write chunk"], &NULL_REPLY]),
            ),
            (
                "RDMA2_REPLY_INLINE, with two Write chunks",
                with(written(|buf| chunks.encode(buf)), &reply),
                named(&[&chunk, &chunk, &["no more Write chunks"], &NULL_REPLY]),
            ),
            (
                "RDMA2_REPLY_MIDDLE, the first 12 octets of 24",
                with(written(|buf| middle.encode(buf)), &reply[..3]),
                named(&[&["rdma_remaining"], &NULL_REPLY[..3]]),
            ),
            (
                "RDMA2_REPLY_INLINE, the other 12",
                with(written(|buf| inline.encode(buf)), &reply[3..]),
                named(&[&["no Write chunk"], &NULL_REPLY[3..]]),
            ),
            (
                "RDMA2_REPLY_EXTERNAL",
                written(|buf| external.encode(buf)),
                named(&[
                    &["no Write chunk", "a Reply chunk", "count of segments"],
                    &SEGMENT,
                ]),
            ),
        ],
    );
}

/// All errors, with the names of their words.
fn errors() -> [(&'static str, RdmaError, &'static [&'static str]); 12] {
    let needed = 5000;
    [
        (
            "RDMA2_ERR_VERS",
            RdmaError::Version { low: 1, high: 2 },
            &["rdma_vers_low", "rdma_vers_high"],
        ),
        ("RDMA2_ERR_BAD_XDR", RdmaError::BadXdr, &[]),
        ("RDMA2_ERR_BAD_PROPVAL", RdmaError::BadProperty, &[]),
        ("RDMA2_ERR_INVAL_HTYPE", RdmaError::HeaderType, &[]),
        ("RDMA2_ERR_INVAL_CONT", RdmaError::Continuation, &[]),
        (
            "RDMA2_ERR_READ_CHUNKS",
            RdmaError::ReadChunks { max: 1 },
            &["rdma_max_chunks"],
        ),
        (
            "RDMA2_ERR_WRITE_CHUNKS",
            RdmaError::WriteChunks { max: 1 },
            &["rdma_max_chunks"],
        ),
        (
            "RDMA2_ERR_SEGMENTS",
            RdmaError::Segments { max: 16 },
            &["rdma_max_segments"],
        ),
        (
            "RDMA2_ERR_WRITE_RESOURCE",
            RdmaError::WriteResource { index: 2, needed },
            &["rdma_chunk_index", "rdma_length_needed"],
        ),
        (
            "RDMA2_ERR_REPLY_RESOURCE",
            RdmaError::ReplyResource { needed },
            &["rdma_length_needed"],
        ),
        ("RDMA2_ERR_VERS_MISMATCH", RdmaError::VersionMismatch, &[]),
        ("RDMA2_ERR_SYSTEM", RdmaError::System, &[]),
    ]
}

/// The arms of RDMA2_ERROR.
#[test]
fn errors_are_as_documented() {
    let messages = errors().map(|(name, error, rest)| {
        let header = ErrorHeader {
            xid: XID,
            version: VERSION,
            credits: CREDITS,
            error,
        };
        let message = written(|buf| header.encode(Version::Two, buf));
        let decoded = decode(Version::Two, &message, &Limits::DEFAULT)
            .unwrap()
            .body;
        assert_eq!(decoded, Body::Error(error));
        (name, message, named(&[&["rdma_err"], rest]))
    });
    check("errors", &messages);
}
