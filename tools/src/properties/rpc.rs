// SPDX-License-Identifier: GPL-2.0

//! What a Requester asks a Responder to read, and how the Responder puts it together.

use proptest::{
    collection::vec,
    prelude::*, //
};

use crate::{
    headers::{
        CallExternal,
        CallHeader,
        CallInline, //
    },
    oracle,
    proto::{
        chunk::{
            ReadSegment,
            Segment, //
        },
        message::Version, //
    }, //
};

/// Segments that are small enough to be put together octet by octet. Some are empty.
fn segments(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Segment>> {
    let length = prop_oneof![4 => 0..80_u32, 1 => 0..1000_u32];
    let segment = (any::<u32>(), length, 0..1_u64 << 40);
    vec(
        segment.prop_map(|(handle, length, offset)| Segment {
            handle,
            length,
            offset,
        }),
        count,
    )
}

/// A Call: the segments of its Call chunk, those of its Read chunks with their positions, and what
/// is inline.
#[derive(Clone, Debug)]
struct Shape {
    /// The version.
    version: Version,
    /// The Call chunk, or empty.
    call: Vec<Segment>,
    /// The Read list. Most of them can be followed.
    read: Vec<ReadSegment>,
    /// Octets behind the header, unless there is a Call chunk.
    inline: usize,
}

/// Any Call.
fn shape() -> impl Strategy<Value = Shape> {
    let version = prop_oneof![
        Just(Version::One),
        Just(Version::Two),
        Just(Version::Earlier), //
    ];
    let call = prop_oneof![Just(vec![]), segments(1..5)];
    let read = vec((1..50_u32, segments(1..4)), 0..4);
    (version, call, read, 2..60_usize, prop::bool::weighted(0.8)).prop_map(
        |(version, call, mut chunks, words, sorted)| {
            if sorted || version == Version::Two {
                chunks.sort_by_key(|(position, _)| *position);
            }
            // A Call chunk of nothing is none.
            let call = match call.iter().any(|segment| segment.length > 0) {
                true => call,
                false => vec![],
            };
            let read = chunks.into_iter().flat_map(|(position, segments)| {
                segments.into_iter().map(move |segment| ReadSegment {
                    position: position * 4,
                    segment,
                })
            });
            Shape {
                version,
                call,
                read: read.collect(),
                inline: 4 * words,
            }
        },
    )
}

impl Shape {
    /// Returns the message.
    fn message(&self) -> Vec<u8> {
        let mut buf = vec![0; 4096];
        let len = match (self.version, self.call.is_empty()) {
            (Version::One | Version::Earlier, is_inline) => {
                let body = self.call.iter().map(|segment| ReadSegment {
                    position: 0,
                    segment: *segment,
                });
                let read: Vec<ReadSegment> = body.chain(self.read.iter().copied()).collect();
                let header = CallHeader {
                    xid: 0,
                    credits: 1,
                    read: &read,
                    write: &[],
                    reply: &[],
                    nomsg: !is_inline,
                };
                header.encode_in(self.version, &mut buf)
            }
            (Version::Two, is_inline) => {
                let common = CallInline {
                    xid: 0,
                    credits: 1,
                    inv_handle: 0,
                    read: &self.read,
                    write: &[],
                    reply: None,
                };
                match is_inline {
                    true => common.encode(&mut buf),
                    false => CallExternal {
                        common,
                        call: &self.call,
                    }
                    .encode(&mut buf),
                }
            }
        };
        let inline = match self.call.is_empty() {
            true => self.inline,
            false => 0,
        };
        buf.truncate(len.unwrap());
        buf.resize(buf.len() + inline, 0);
        buf
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Every octet of a Call comes from where it should, or the Call is refused.
    #[test]
    fn calls_are_put_together(shape in shape()) {
        oracle::rpc_message(&shape.message());
    }

    /// The same for what somebody has changed on its way.
    #[test]
    fn changed_calls_are_put_together_or_refused(
        shape in shape(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in 0..8_usize,
    ) {
        let mut message = shape.message();
        for (at, value) in damage {
            let at = at.index(message.len());
            message[at] = value;
        }
        message.truncate(message.len() - cut);
        oracle::rpc_message(&message);
    }

    #[test]
    fn any_bytes(bytes in vec(any::<u8>(), 0..256)) {
        oracle::rpc_message(&bytes);
    }
}
