// SPDX-License-Identifier: GPL-2.0

//! The codec of Version Two against messages that were written by hand from the XDR of the draft
//! (`tests/vectors/version-two.txt`).

use std::collections::BTreeMap;

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
    message::{
        decode,
        Body,
        Header,
        Version, //
    },
    props::{
        Advertised,
        Properties, //
    },
    v2::{
        ConnProp,
        Direction,
        ErrorHeader,
        GrantHeader,
        Middle,
        RdmaError, //
    }, //
};

const XID: u32 = 0x1234_5678;
const CREDITS: u32 = 0x20;

/// Returns the vectors of a file by name: the header, and the RPC message behind it.
pub(super) fn parse(text: &str) -> BTreeMap<String, [Vec<u8>; 2]> {
    let mut found: BTreeMap<String, [Vec<u8>; 2]> = BTreeMap::new();
    let (mut name, mut part) = (String::new(), 0);
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        let mut words = line.split_whitespace();
        if !line.is_empty() && !line.starts_with(' ') {
            name = words.next().expect("a name").to_string();
            part = 0;
            let before = found.insert(name.clone(), [vec![], vec![]]);
            assert!(before.is_none(), "{name} comes twice");
        }
        for word in words {
            match word {
                "..." => part = 1,
                word => {
                    let word = u32::from_str_radix(word, 16).expect("eight digits");
                    found.get_mut(&name).unwrap()[part].extend(word.to_be_bytes());
                }
            }
        }
    }
    found
}

/// A segment of the vectors.
pub(super) fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0xb_0000_c000,
    }
}

/// A segment of their Read chunks.
pub(super) fn read(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment {
        position,
        segment: segment(handle, length),
    }
}

/// The chunks of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunks {
    inv_handle: u32,
    call: Vec<Segment>,
    read: Vec<ReadSegment>,
    write: Vec<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Error(RdmaError),
    Grant,
    Properties(bool, Option<Properties>, Option<Vec<u8>>),
    Call(bool, Chunks),
    Middle(Direction, u32),
    Reply(bool, Chunks),
}

impl Said {
    /// Reads it from a header.
    fn of(header: &Header<'_>, example: &Self) -> Self {
        match &header.body {
            Body::Error(error) => Self::Error(*error),
            Body::Grant => Self::Grant,
            Body::Properties { told, last } => {
                // The others are as they were.
                let mut all = Properties::DEFAULT;
                all.apply(told);
                let has_own = matches!(example, Self::Properties(_, Some(_), _));
                let host_auth = told.host_auth.map(<[u8]>::to_vec);
                Self::Properties(*last, has_own.then_some(all), host_auth)
            }
            Body::Middle {
                direction,
                remaining,
            } => Self::Middle(*direction, *remaining),
            Body::Inline(direction) | Body::External(direction) => {
                let chunks = Chunks {
                    inv_handle: header.lists.inv_handle,
                    call: header
                        .call_list()
                        .iter()
                        .map(|entry| entry.segment)
                        .collect(),
                    read: header.read_list().iter().collect(),
                    write: header
                        .write_list()
                        .iter()
                        .map(|c| c.iter().collect())
                        .collect(),
                    reply: header.reply_chunk().map(|chunk| chunk.iter().collect()),
                };
                match direction {
                    Direction::Call => Self::Call(header.is_external(), chunks),
                    Direction::Reply => Self::Reply(header.is_external(), chunks),
                }
            }
        }
    }

    /// Encodes it.
    fn encode(&self, credits: u32) -> Vec<u8> {
        let mut buf = [0; 512];
        let (xid, buf) = (XID, &mut buf[..]);
        let len = match self {
            Self::Error(error) => ErrorHeader {
                xid,
                version: 2,
                credits,
                error: *error,
            }
            .encode(Version::Two, buf),
            Self::Grant => GrantHeader { credits }.encode(buf),
            Self::Properties(last, all, host_auth) => {
                let told = Advertised {
                    host_auth: host_auth.as_deref(),
                    ..all.as_ref().map_or(Advertised::NOTHING, Advertised::all)
                };
                let last = *last;
                ConnProp {
                    credits,
                    told,
                    last,
                }
                .encode(buf)
            }
            Self::Call(is_external, chunks) => {
                let write: Vec<&[Segment]> = chunks.write.iter().map(Vec::as_slice).collect();
                let common = CallInline {
                    xid,
                    credits,
                    inv_handle: chunks.inv_handle,
                    read: &chunks.read,
                    write: &write,
                    reply: chunks.reply.as_deref(),
                };
                let call = &chunks.call;
                match is_external {
                    true => CallExternal { common, call }.encode(buf),
                    false => common.encode(buf),
                }
            }
            Self::Middle(direction, remaining) => Middle {
                direction: *direction,
                xid,
                credits,
                remaining: *remaining,
            }
            .encode(buf),
            Self::Reply(_, chunks) => {
                let write: Vec<&[Segment]> = chunks.write.iter().map(Vec::as_slice).collect();
                let write = &write[..];
                match &chunks.reply {
                    Some(reply) => ReplyExternal {
                        xid,
                        credits,
                        write,
                        reply,
                    }
                    .encode(buf),
                    None => ReplyInline {
                        xid,
                        credits,
                        write,
                    }
                    .encode(buf),
                }
            }
        };
        buf[..len.expect("it is valid")].to_vec()
    }
}

/// Returns what the errors say.
fn errors() -> Vec<(&'static str, RdmaError)> {
    vec![
        ("error-vers", RdmaError::Version { low: 1, high: 2 }),
        ("error-bad-xdr", RdmaError::BadXdr),
        ("error-bad-propval", RdmaError::BadProperty),
        ("error-inval-htype", RdmaError::HeaderType),
        ("error-inval-cont", RdmaError::Continuation),
        ("error-read-chunks", RdmaError::ReadChunks { max: 3 }),
        ("error-write-chunks", RdmaError::WriteChunks { max: 0 }),
        ("error-segments", RdmaError::Segments { max: 16 }),
        (
            "error-write-resource",
            RdmaError::WriteResource {
                index: 1,
                needed: 1 << 20,
            },
        ),
        (
            "error-reply-resource",
            RdmaError::ReplyResource { needed: 0x1234 },
        ),
        ("error-vers-mismatch", RdmaError::VersionMismatch),
        ("error-system", RdmaError::System),
    ]
}

/// Returns what the messages with RPC messages say.
fn messages() -> Vec<(&'static str, Said)> {
    let call = |is_external, chunks| Said::Call(is_external, chunks);
    vec![
        (
            "call-external-least",
            call(
                true,
                Chunks {
                    call: vec![segment(0xa1, 0x2000)],
                    ..Chunks::default()
                },
            ),
        ),
        (
            "call-external",
            call(
                true,
                Chunks {
                    inv_handle: 0xa3,
                    call: vec![segment(0xa1, 0x2000), segment(0xa2, 0x800)],
                    read: vec![read(0x50, 0xa3, 0x4000)],
                    write: vec![vec![segment(0xa4, 0x400)]],
                    reply: Some(vec![segment(0xa5, 0x600)]),
                },
            ),
        ),
        ("call-middle", Said::Middle(Direction::Call, 0xfec)),
        ("reply-middle", Said::Middle(Direction::Reply, 0xfec)),
        ("call-inline-least", call(false, Chunks::default())),
        (
            "call-inline",
            call(
                false,
                Chunks {
                    inv_handle: 0xa1,
                    call: vec![],
                    read: vec![read(0x50, 0xa1, 0x1000), read(0x50, 0xa2, 3)],
                    write: vec![vec![segment(0xa3, 0x400), segment(0xa4, 0x200)], vec![]],
                    reply: Some(vec![segment(0xa5, 0x600)]),
                },
            ),
        ),
        (
            "reply-external-least",
            Said::Reply(
                true,
                Chunks {
                    reply: Some(vec![segment(0xa1, 0x1800)]),
                    ..Chunks::default()
                },
            ),
        ),
        (
            "reply-external",
            Said::Reply(
                true,
                Chunks {
                    write: vec![vec![segment(0xa1, 0x200)]],
                    reply: Some(vec![segment(0xa2, 0x1000), segment(0xa3, 0x10)]),
                    ..Chunks::default()
                },
            ),
        ),
        ("reply-inline-least", Said::Reply(false, Chunks::default())),
        (
            "reply-inline",
            Said::Reply(
                false,
                Chunks {
                    write: vec![vec![segment(0xa1, 0x200)], vec![segment(0xa2, 0)]],
                    ..Chunks::default()
                },
            ),
        ),
    ]
}

/// Sections 8.3 and 8.4: every header type, every error, and whatever may be in them is written and
/// read as the draft has it.
#[test]
fn messages_are_those_of_the_xdr() {
    let mut vectors = parse(include_str!("../../../tests/vectors/version-two.txt"));
    let errors = errors()
        .into_iter()
        .map(|(name, error)| (name, Said::Error(error)));
    let control = [
        ("grant", Said::Grant),
        ("connprop-middle-empty", Said::Properties(false, None, None)),
        ("connprop-final-empty", Said::Properties(true, None, None)),
        (
            "connprop-final",
            Said::Properties(true, Some(Properties::DEFAULT), None),
        ),
        (
            "property-host-auth",
            Said::Properties(false, None, Some(b"abcdef".to_vec())),
        ),
    ];
    for (name, said) in errors.chain(control).chain(messages()) {
        let [head, rpc] = vectors.remove(name).expect(name);
        let (xid, credits) = match said {
            Said::Grant => (0, 0xffff_fff0),
            Said::Properties(..) => (0, CREDITS),
            _ => (XID, CREDITS),
        };
        assert_eq!(said.encode(credits), head, "{name}");
        let whole = [&head[..], &rpc].concat();
        let header = decode(Version::Two, &whole, &Limits::DEFAULT).expect(name);
        assert_eq!((header.xid, header.credits), (xid, credits), "{name}");
        assert_eq!(header.payload, rpc, "{name}");
        assert_eq!(Said::of(&header, &said), said, "{name}");
    }
    // One property each: this end always tells all of its own.
    for (name, change) in [
        ("property-send-size", [12288, 0, 0, 0, 0]),
        ("property-receive-size", [0, 1024, 0, 0, 0]),
        ("property-segment-size", [0, 0, 1 << 20, 0, 0]),
        ("property-segment-count", [0, 0, 0, 256, 0]),
        ("property-reverse", [0, 0, 0, 0, 3]),
    ] {
        let [head, _] = vectors.remove(name).expect(name);
        let header = decode(Version::Two, &head, &Limits::DEFAULT).expect(name);
        let Body::Properties { told, last: false } = header.body else {
            panic!("{name} is something else");
        };
        let mut all = Properties {
            send_size: 0,
            receive_size: 0,
            segment_size: 0,
            segment_count: 0,
            reverse: 0,
        };
        all.apply(&told);
        let values = [
            all.send_size,
            all.receive_size,
            all.segment_size,
            all.segment_count,
            all.reverse,
        ];
        assert_eq!(values, change, "{name}");
    }
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}
