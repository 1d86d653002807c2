// SPDX-License-Identifier: GPL-2.0

//! The codec of the earlier protocol with version number two against messages that were written by
//! hand from the XDR of the drafts (`tests/vectors/version-2016.txt`).

use std::collections::BTreeMap;

use super::vectors::{
    parse,
    read,
    segment, //
};
use crate::headers::{
    CallHeader,
    ReplyHeader, //
};
use crate::proto::{
    chunk::{
        Limits,
        ReadSegment,
        Segment, //
    },
    message::{
        self,
        DecodeError,
        Direction,
        ErrorHeader,
        Header,
        PlainHeader,
        RdmaError,
        Version, //
    },
    v2_2016::{
        option::{
            self,
            decode,
            Content,
            Operation,
            OptionalMessage,
            Response, //
        },
        props::{
            Change,
            Each,
            Told,
            Values,
            DEFAULT, //
        }, //
    }, //
};

const XID: u32 = 0x1234_5678;
const CREDITS: u32 = 0x20;

/// Decodes the header of an RPC message or of an error.
fn decode_header(bytes: &[u8]) -> Result<Header<'_>, DecodeError> {
    message::decode(Version::Earlier, bytes, &Limits::DEFAULT)
}

/// The vectors by name.
type Vectors = BTreeMap<String, [Vec<u8>; 2]>;

/// Returns all of them.
fn vectors() -> Vectors {
    parse(include_str!("../../../tests/vectors/version-2016.txt"))
}

/// Takes those away the names of which begin so.
fn take(vectors: &mut Vectors, beginnings: &[&str]) -> Vectors {
    let all = core::mem::take(vectors);
    let (taken, rest) = all
        .into_iter()
        .partition(|(name, _)| beginnings.iter().any(|start| name.starts_with(start)));
    *vectors = rest;
    taken
}

/// What the header of an RPC message says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lists {
    read: Vec<ReadSegment>,
    write: Vec<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
}

impl Lists {
    /// Reads it from a header.
    fn of(header: &Header<'_>) -> Self {
        Self {
            read: header.read_list().iter().collect(),
            write: header
                .write_list()
                .iter()
                .map(|chunk| chunk.iter().collect())
                .collect(),
            reply: header.reply_chunk().map(|chunk| chunk.iter().collect()),
        }
    }

    /// Encodes it, if this end ever sends that: its Calls have one Write chunk at most.
    fn encode(&self, direction: Direction, nomsg: bool) -> Option<Vec<u8>> {
        let mut buf = vec![0; 512];
        let write: Vec<&[Segment]> = self.write.iter().map(Vec::as_slice).collect();
        let len = match direction {
            Direction::Call => {
                let write = match write[..] {
                    [] => &[],
                    [one] => one,
                    _ => return None,
                };
                let call = CallHeader {
                    xid: XID,
                    credits: CREDITS,
                    read: &self.read,
                    write,
                    reply: self.reply.as_deref().unwrap_or_default(),
                    nomsg,
                };
                call.encode_in(Version::Earlier, &mut buf)
            }
            Direction::Reply => {
                let reply = ReplyHeader {
                    xid: XID,
                    credits: CREDITS,
                    write: &write,
                    reply: self.reply.as_deref(),
                    nomsg,
                };
                reply.encode_in(Version::Earlier, &mut buf)
            }
        };
        buf.truncate(len.expect("it is valid"));
        Some(buf)
    }
}

/// Returns what the RPC messages say: the direction, whether a chunk holds them, their lists.
fn rpc_messages() -> [(&'static str, Direction, bool, Lists); 9] {
    use Direction::{
        Call,
        Reply, //
    };
    let least = Lists::default;
    let call = Lists {
        read: vec![read(0x50, 0xa1, 0x1000), read(0x50, 0xa2, 3)],
        write: vec![vec![segment(0xa3, 0x400), segment(0xa4, 0x200)]],
        reply: Some(vec![segment(0xa5, 0x600)]),
    };
    let two_chunks = Lists {
        write: vec![vec![segment(0xa1, 0x400)], vec![]],
        ..least()
    };
    let reply = Lists {
        write: vec![
            vec![segment(0xa1, 0x400), segment(0xa2, 0x10)],
            vec![segment(0xa3, 0)],
        ],
        reply: Some(vec![segment(0xa4, 0)]),
        ..least()
    };
    let special_least = Lists {
        read: vec![read(0, 0xa1, 0x2000)],
        ..least()
    };
    let special = Lists {
        read: vec![read(0, 0xa1, 0x2000), read(0x50, 0xa2, 0x800)],
        write: vec![vec![segment(0xa3, 0x400)]],
        reply: Some(vec![segment(0xa4, 0x600)]),
    };
    let long_least = Lists {
        reply: Some(vec![segment(0xa1, 0x1800)]),
        ..least()
    };
    let long = Lists {
        write: vec![vec![segment(0xa1, 0x200)]],
        reply: Some(vec![segment(0xa2, 0x1000), segment(0xa3, 0x10)]),
        ..least()
    };
    [
        ("msg-call-least", Call, false, least()),
        ("msg-call", Call, false, call),
        ("msg-call-two-chunks", Call, false, two_chunks),
        ("msg-reply-least", Reply, false, least()),
        ("msg-reply", Reply, false, reply),
        ("nomsg-call-least", Call, true, special_least),
        ("nomsg-call", Call, true, special),
        ("nomsg-reply-least", Reply, true, long_least),
        ("nomsg-reply", Reply, true, long),
    ]
}

/// Section B 4.2: both procedures of RPC messages are written and read as the draft has them.
#[test]
fn rpc_messages_are_those_of_the_xdr() {
    let mut vectors = take(&mut vectors(), &["msg-", "nomsg-"]);
    for (name, direction, nomsg, lists) in rpc_messages() {
        let [head, rpc] = vectors.remove(name).expect(name);
        let whole = [&head[..], &rpc].concat();
        let read = decode_header(&whole).expect(name);
        assert_eq!((read.xid, read.credits), (XID, CREDITS), "{name}");
        assert_eq!(read.direction(), Some(direction), "{name}");
        assert_eq!((read.is_external(), read.error()), (nomsg, None), "{name}");
        assert_eq!(read.header_len, head.len(), "{name}");
        assert_eq!(read.payload, rpc, "{name}");
        assert_eq!(Lists::of(&read), lists, "{name}");
        match lists.encode(direction, nomsg) {
            Some(written) => assert_eq!(written, head, "{name}"),
            None => assert_eq!(name, "msg-call-two-chunks"),
        }
        if lists == Lists::default() {
            let mut plain = [0; 32];
            let header = PlainHeader {
                version: Version::Earlier,
                direction,
                xid: XID,
                credits: CREDITS,
            };
            assert_eq!(header.encode(&mut plain), Ok(32), "{name}");
            assert_eq!(plain[..], head, "{name}");
        }
    }
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}

/// Section B 4.2: each error is written and read as the draft has it.
#[test]
fn errors_are_those_of_the_xdr() {
    let mut vectors = take(&mut vectors(), &["error-"]);
    let versions = RdmaError::Version { low: 1, high: 2 };
    let option = |content| OptionalMessage {
        xid: XID,
        credits: CREDITS,
        direction: Direction::Reply,
        content,
    };
    for (name, error, content) in [
        ("error-vers", Some(versions), None),
        (
            "error-bad-header",
            Some(RdmaError::BadXdr),
            Some(Content::BadHeader),
        ),
        ("error-inval-option", None, Some(Content::UnknownOperation)),
    ] {
        let [head, rpc] = vectors.remove(name).expect(name);
        assert!(rpc.is_empty(), "{name}");
        let mut buf = [0; 64];
        if let Some(error) = error {
            // About an RPC.
            let written = ErrorHeader {
                xid: XID,
                version: 2,
                credits: CREDITS,
                error,
            };
            let len = written.encode(Version::Earlier, &mut buf).expect(name);
            assert_eq!(buf[..len], head, "{name}");
            let read = decode_header(&head).expect(name);
            assert_eq!((read.xid, read.credits), (XID, CREDITS), "{name}");
            assert_eq!(read.error(), Some(error), "{name}");
        }
        if let Some(content) = content {
            // About an OPTIONAL message.
            let len = option(content).encode(&mut buf).expect(name);
            assert_eq!(buf[..len], head, "{name}");
        }
        let is_about_option = error.is_none();
        assert_eq!(option::is_invalid_option(&head), is_about_option, "{name}");
        assert_eq!(decode_header(&head).is_err(), is_about_option, "{name}");
    }
    // The session's own, in any protocol of this number.
    let mut buf = [0; 64];
    let refusal = ErrorHeader {
        xid: XID,
        version: 2,
        credits: CREDITS,
        error: RdmaError::Version { low: 1, high: 2 },
    };
    let len = refusal.encode(Version::Two, &mut buf).expect("it is valid");
    assert_eq!(buf[..len], self::vectors()["error-vers"][0]);
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}

/// Decodes an OPTIONAL message and checks its prefix and direction.
fn operation<'a>(name: &str, bytes: &'a [u8], direction: Direction) -> Operation<'a> {
    let read = decode(bytes).expect(name);
    assert_eq!((read.xid, read.credits), (XID, CREDITS), "{name}");
    assert_eq!(read.direction, direction, "{name}");
    read.operation
}

/// Returns a message as it is written.
fn written(direction: Direction, content: Content) -> Vec<u8> {
    let mut buf = vec![0; 512];
    let message = OptionalMessage {
        xid: XID,
        credits: CREDITS,
        direction,
        content,
    };
    let len = message.encode(&mut buf).expect("it is valid");
    buf.truncate(len);
    buf
}

/// Values of all properties.
const fn values(receive_size: u32, invalidation: u32, reverse: u32) -> Values {
    Values {
        receive_size,
        invalidation,
        reverse,
    }
}

/// Section X 4.1: properties at the beginning.
#[test]
fn first_properties_are_those_of_the_xdr() {
    use Direction::{
        Call,
        Reply, //
    };
    let mut vectors = take(&mut vectors(), &["connprop-"]);
    for (name, direction, own, constant) in [
        ("connprop-client", Call, values(0x3000, 1, 2), &[1][..]),
        ("connprop-server", Reply, values(0x1000, 0, 1), &[1, 2]),
        ("connprop-client-varying", Call, values(0x3000, 1, 0), &[]),
        ("connprop-server-varying", Reply, values(0x1000, 1, 1), &[]),
    ] {
        let [head, _] = vectors.remove(name).expect(name);
        let Operation::Connect {
            set,
            constant: told,
        } = operation(name, &head, direction)
        else {
            panic!("{name} is something else");
        };
        assert_eq!(set.told, own.map(|_, value| Some(value)), "{name}");
        for element in 0..100 {
            assert_eq!(told.contains(element), constant.contains(&element));
        }
        let constant = Each {
            receive_size: constant.contains(&0),
            invalidation: constant.contains(&1),
            reverse: constant.contains(&2),
        };
        let content = Content::Connect { own, constant };
        assert_eq!(written(direction, content), head, "{name}");
    }
    // This end always tells all of its own.
    let [head, _] = vectors.remove("connprop-empty").expect("it is there");
    let Operation::Connect { set, constant } = operation("connprop-empty", &head, Call) else {
        panic!("it is something else");
    };
    assert_eq!((set.told, set.count), (Told::default(), 0));
    assert!((0..100).all(|element| !constant.contains(element)));
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}

/// Sections X 3, 4.2, 4.4: requests and changes, and each property with each kind of value.
#[test]
fn requests_and_changes_are_those_of_the_xdr() {
    let kinds = ["reqprop", "updprop", "property-"];
    let mut vectors = take(&mut vectors(), &kinds);
    let size = |value| Told {
        receive_size: Some(value),
        ..Told::default()
    };
    let invalidation = |value| Told {
        invalidation: Some(value),
        ..Told::default()
    };
    let reverse = |value| Told {
        reverse: Some(value),
        ..Told::default()
    };
    let asked = Told {
        reverse: Some(1),
        ..size(0x2000)
    };
    let changed = values(0x4000, 1, 0).map(|_, value| Some(value));
    for (name, direction, told) in [
        ("reqprop-empty", Direction::Call, Told::default()),
        ("reqprop", Direction::Call, asked),
        ("updprop-empty", Direction::Reply, Told::default()),
        ("updprop", Direction::Reply, changed),
        ("property-receive-size", Direction::Call, size(0x8000_0001)),
        ("property-invalidation-no", Direction::Call, invalidation(0)),
        (
            "property-invalidation-yes",
            Direction::Call,
            invalidation(1),
        ),
        ("property-reverse-none", Direction::Call, reverse(0)),
        ("property-reverse-inline", Direction::Call, reverse(1)),
        ("property-reverse-general", Direction::Call, reverse(2)),
    ] {
        let [head, _] = vectors.remove(name).expect(name);
        let is_request = name.starts_with("reqprop");
        let ((Operation::Request(set), true) | (Operation::Update(set), false)) =
            (operation(name, &head, direction), is_request)
        else {
            panic!("{name} is something else");
        };
        assert_eq!(set.told, told, "{name}");
        let content = if is_request {
            Content::Request(told)
        } else {
            Content::Update(told)
        };
        assert_eq!(written(direction, content), head, "{name}");
    }
    // What is read only.
    let defaults = DEFAULT.map(|_, value| Some(value));
    for (name, told, count) in [
        ("property-defaults", defaults, 3),
        ("property-unknown", invalidation(1), 2),
    ] {
        let [head, _] = vectors.remove(name).expect(name);
        let Operation::Update(set) = operation(name, &head, Direction::Call) else {
            panic!("{name} is something else");
        };
        assert_eq!((set.told, set.count), (told, count), "{name}");
    }
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}

/// Section X 4.3: answers, and the bits of a subset (X 2.1).
#[test]
fn answers_are_those_of_the_xdr() {
    let mut vectors = take(&mut vectors(), &["resprop"]);
    let verdicts = |receive_size, invalidation| Each {
        receive_size,
        invalidation,
        reverse: None,
    };
    let asked = values(0x2000, 1, 2).map(|_, value| Some(value));
    let done = Some((0, Change::Done(0x2000)));
    let changed = Told {
        receive_size: Some(0x2000),
        invalidation: Some(0),
        reverse: None,
    };
    let late = Some((33, Change::Done(0x2000)));
    for (name, count, verdicts, changes) in [
        ("resprop-empty", 0, verdicts(None, None), Told::default()),
        (
            "resprop",
            3,
            verdicts(done, Some((1, Change::Other(0)))),
            changed,
        ),
        // Of the three that this end can ask for the first and the third are rejected, and nothing
        // is said of the second.
        (
            "resprop-two-words",
            35,
            verdicts(late, None),
            Told::default(),
        ),
    ] {
        let [head, _] = vectors.remove(name).expect(name);
        let Operation::Respond(answer) = operation(name, &head, Direction::Reply) else {
            panic!("{name} is something else");
        };
        assert_eq!(answer.changes(&asked), changes, "{name}");
        let content = Content::Respond(Response { count, verdicts });
        assert_eq!(written(Direction::Reply, content), head, "{name}");
    }
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}

/// Section B 3.1: an operation of another type, and nothing that no other test has.
#[test]
fn other_operations_are_those_of_the_xdr() {
    let mut vectors = vectors();
    let elsewhere = [
        "msg-",
        "nomsg-",
        "error-",
        "connprop-",
        "reqprop",
        "resprop",
        "updprop",
        "property-",
    ];
    assert_eq!(take(&mut vectors, &elsewhere).len(), 32);
    for (name, direction, has_payload) in [
        ("optional-least", Direction::Call, false),
        ("optional-payload", Direction::Reply, true),
    ] {
        let [head, rpc] = vectors.remove(name).expect(name);
        let whole = [&head[..], &rpc].concat();
        let found = operation(name, &whole, direction);
        assert_eq!(found, Operation::Unknown { has_payload }, "{name}");
        let alone = operation(name, &head, direction);
        assert_eq!(alone, Operation::Unknown { has_payload: false }, "{name}");
    }
    assert!(vectors.is_empty(), "nothing is compared with {vectors:?}");
}
