// SPDX-License-Identifier: GPL-2.0

//! Version Two: every valid message comes back as it was sent, none of its prefixes is valid, and
//! any bytes at all are understood or refused.

use proptest::{
    collection::vec,
    prelude::*, //
};

use super::generate::{
    chunk,
    edgy,
    read_list,
    MAX_MESSAGE, //
};
use crate::headers::{
    CallExternal,
    CallInline,
    ReplyExternal,
    ReplyInline, //
};
use crate::{
    oracle,
    proto::{
        chunk::{
            Limits,
            ReadSegment,
            Segment, //
        },
        error::Fault,
        message::{
            self,
            Body,
            DecodeError,
            Header,
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
    },
    workload::{
        self,
        SampleTwo, //
    }, //
};

/// What a Call's header holds.
#[derive(Clone, Debug)]
struct Call {
    /// The transaction ID and the credit value.
    numbers: (u32, u32),
    /// The Call chunk, or empty.
    call: Vec<Segment>,
    /// The Read list.
    read: Vec<ReadSegment>,
    /// The Write list.
    write: Vec<Vec<Segment>>,
    /// The Reply chunk.
    reply: Option<Vec<Segment>>,
    /// Which of the handles may be invalidated.
    invalidate: prop::sample::Index,
}

/// Any Call's header.
fn call() -> impl Strategy<Value = Call> {
    (
        (edgy(), edgy()),
        prop_oneof![Just(vec![]), filled(1..6)],
        read_list(),
        vec(chunk(0..6), 0..6),
        prop::option::of(chunk(0..10)),
        any::<prop::sample::Index>(),
    )
        .prop_map(|(numbers, call, mut read, write, reply, invalidate)| {
            read.sort_by_key(|entry| entry.position);
            Call {
                numbers,
                call,
                read,
                write,
                reply,
                invalidate,
            }
        })
}

/// A chunk that holds something.
fn filled(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Segment>> {
    chunk(count).prop_map(|mut segments| {
        segments[0].length = segments[0].length.max(1);
        segments[0].offset = segments[0].offset.min(u64::MAX - u64::from(u32::MAX));
        segments
    })
}

/// Any error.
fn error() -> impl Strategy<Value = RdmaError> {
    prop_oneof![
        (edgy(), edgy()).prop_map(|(a, b)| RdmaError::Version {
            low: a.min(b),
            high: a.max(b)
        }),
        Just(RdmaError::BadXdr),
        Just(RdmaError::BadProperty),
        Just(RdmaError::HeaderType),
        Just(RdmaError::Continuation),
        edgy().prop_map(|max| RdmaError::ReadChunks { max }),
        edgy().prop_map(|max| RdmaError::WriteChunks { max }),
        edgy().prop_map(|max| RdmaError::Segments { max }),
        (edgy(), edgy()).prop_map(|(index, needed)| RdmaError::WriteResource { index, needed }),
        edgy().prop_map(|needed| RdmaError::ReplyResource { needed }),
        Just(RdmaError::VersionMismatch),
        Just(RdmaError::System),
    ]
}

/// Decodes a message.
fn decode(bytes: &[u8]) -> Result<Header<'_>, DecodeError> {
    message::decode(Version::Two, bytes, &Limits::DEFAULT)
}

/// Writes a header, and checks that nothing less than its room is enough.
fn written(encode: impl Fn(&mut [u8]) -> Result<usize, Fault>) -> Vec<u8> {
    let mut buf = vec![0; MAX_MESSAGE];
    let len = encode(&mut buf).unwrap();
    buf.truncate(len);
    for room in 0..len {
        let mut small = vec![0; room];
        assert_eq!(encode(&mut small), Err(Fault::NoSpace));
    }
    buf
}

/// Checks that a message is accepted, but no strict prefix of its first `needed` octets.
fn is_needed(message: &[u8], needed: usize) {
    oracle::v2_message(message);
    for len in 0..needed {
        assert!(decode(&message[..len]).is_err(), "{len} octets");
    }
}

/// Decodes a message that is valid.
fn header(message: &[u8], numbers: (u32, u32)) -> Header<'_> {
    let header = decode(message).unwrap();
    assert_eq!((header.xid, header.credits), numbers);
    header
}

/// Bytes that look more like a message than random ones do.
fn plausible_message() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![8 => 0..4_u32, 2 => (0..8_u32).prop_map(|w| w * 4), 1 => edgy()];
    let head = (0..3_u32, edgy(), 4..14_u32);
    (head, vec(word, 0..48), 0..4_usize).prop_map(|((xid, credits, htype), words, cut)| {
        let mut bytes: Vec<u8> = [xid, VERSION, credits, htype]
            .into_iter()
            .chain(words)
            .flat_map(u32::to_be_bytes)
            .collect();
        bytes.truncate(bytes.len() - cut);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn calls_come_back(call in call(), rpc in vec(any::<u8>(), 4..64)) {
        let write: Vec<&[Segment]> = call.write.iter().map(Vec::as_slice).collect();
        let handles: Vec<u32> = call
            .call
            .iter()
            .chain(call.read.iter().map(|entry| &entry.segment))
            .chain(call.write.iter().flatten())
            .chain(call.reply.iter().flatten())
            .map(|segment| segment.handle)
            .chain([0])
            .collect();
        let inv_handle = handles[call.invalidate.index(handles.len())];
        let common = CallInline {
            xid: call.numbers.0,
            credits: call.numbers.1,
            inv_handle,
            read: &call.read,
            write: &write,
            reply: call.reply.as_deref(),
        };
        let external = CallExternal { common, call: &call.call };
        let is_inline = call.call.is_empty();
        let mut message = written(|buf| match is_inline {
            true => common.encode(buf),
            false => external.encode(buf),
        });
        let header_len = message.len();
        if is_inline {
            message.extend(&rpc);
        }
        let offer = header(&message, call.numbers);
        let (expected, payload) = match is_inline {
            true => (Body::Inline(Direction::Call), &rpc[..]),
            false => (Body::External(Direction::Call), &[][..]),
        };
        prop_assert_eq!((offer.body, offer.payload), (expected, payload));
        prop_assert_eq!(offer.invalidate(), Some(inv_handle).filter(|handle| *handle != 0));
        prop_assert!(offer.call_list().iter().map(|entry| entry.segment).eq(call.call));
        prop_assert!(offer.read_list().iter().eq(call.read));
        let written = offer.write_list().iter().flat_map(|c| c.iter());
        prop_assert!(written.eq(call.write.into_iter().flatten()));
        let reply: Option<Vec<Segment>> = offer.reply_chunk().map(|c| c.iter().collect());
        prop_assert_eq!(reply, call.reply);
        is_needed(&message, if is_inline { header_len + 4 } else { header_len });
    }

    #[test]
    fn replies_come_back(
        numbers in (edgy(), edgy()),
        write in vec(chunk(0..6), 0..6),
        reply in prop::option::of(filled(1..6)),
        rpc in vec(any::<u8>(), 4..64),
    ) {
        let lists: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
        let (xid, credits) = numbers;
        let mut message = written(|buf| match &reply {
            None => ReplyInline { xid, credits, write: &lists }.encode(buf),
            Some(reply) => ReplyExternal { xid, credits, write: &lists, reply }.encode(buf),
        });
        let header_len = message.len();
        if reply.is_none() {
            message.extend(&rpc);
        }
        let found = header(&message, numbers);
        let list = found.write_list();
        prop_assert!(list.iter().flat_map(|c| c.iter()).eq(write.into_iter().flatten()));
        match &reply {
            None => {
                prop_assert_eq!(found.body, Body::Inline(Direction::Reply));
                prop_assert_eq!(found.payload, &rpc[..]);
            }
            Some(reply) => {
                prop_assert_eq!(found.body, Body::External(Direction::Reply));
                let chunk = found.reply_chunk().unwrap();
                prop_assert!(chunk.iter().eq(reply.iter().copied()));
            }
        }
        is_needed(&message, if reply.is_none() { header_len + 4 } else { header_len });
    }

    #[test]
    fn parts_come_back(
        numbers in (edgy(), edgy()),
        is_call in any::<bool>(),
        left in edgy(),
        rpc in vec(any::<u8>(), 4..64),
    ) {
        let sent = if is_call { Direction::Call } else { Direction::Reply };
        let (xid, credits) = numbers;
        let middle = Middle { direction: sent, xid, credits, remaining: left };
        let mut message = written(|buf| middle.encode(buf));
        message.extend(&rpc);
        let found = header(&message, numbers);
        let expected = Body::Middle { direction: sent, remaining: left };
        prop_assert_eq!((found.body, found.payload), (expected, &rpc[..]));
        is_needed(&message, 24);
    }

    #[test]
    fn errors_come_back(numbers in (edgy(), edgy()), error in error()) {
        let (xid, credits) = numbers;
        let sent = ErrorHeader { xid, version: VERSION, credits, error };
        let message = written(|buf| sent.encode(Version::Two, buf));
        prop_assert_eq!(header(&message, numbers).body, Body::Error(error));
        is_needed(&message, message.len());
    }

    #[test]
    fn control_messages_come_back(
        credits in edgy(),
        words in prop::array::uniform5(prop::option::of(edgy())),
        material in prop::option::of(vec(any::<u8>(), 0..40)),
        last in any::<bool>(),
    ) {
        let message = written(|buf| GrantHeader { credits }.encode(buf));
        prop_assert_eq!(header(&message, (0, credits)).body, Body::Grant);
        is_needed(&message, 16);

        let [send_size, receive_size, segment_size, segment_count, reverse] = words;
        let told = Advertised {
            send_size,
            receive_size,
            segment_size,
            segment_count,
            reverse,
            host_auth: material.as_deref(),
        };
        let message = written(|buf| ConnProp { credits, told, last }.encode(buf));
        prop_assert_eq!(header(&message, (0, credits)).body, Body::Properties { told, last });
        is_needed(&message, message.len());
        oracle::properties(&message[16..]);
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..256)) {
        oracle::v2_message(&bytes);
        oracle::properties(&bytes);
        oracle::continuation(&bytes);
        oracle::session(&bytes);
    }

    #[test]
    fn plausible_bytes(bytes in plausible_message(), damage in vec(any::<(u8, u8)>(), 0..4)) {
        oracle::v2_message(&bytes);
        oracle::properties(&bytes[16.min(bytes.len())..]);
        let mut bytes = bytes;
        for (at, value) in damage {
            if let Some(byte) = bytes.get_mut(usize::from(at)) {
                *byte = value;
            }
            oracle::v2_message(&bytes);
        }
    }
}

/// What is measured is valid, and nothing of it allocates.
#[test]
fn samples_are_valid() {
    let mut buf = [0; 512];
    let mut conversation = workload::Conversation::default();
    for sample in SampleTwo::ALL {
        let message = sample.message();
        oracle::v2_message(&message);
        let counted = allocation_counter::measure(|| {
            sample.encode(&mut buf);
            workload::decode_two(&message);
            conversation.rpc();
        });
        assert_eq!(counted.count_total, 0);
    }
    // All ten header types, in their order.
    let mut types: Vec<u8> = SampleTwo::ALL.iter().map(|s| s.message()[15]).collect();
    types.sort_unstable();
    types.dedup();
    assert_eq!(types, (4..14).collect::<Vec<u8>>());
}
