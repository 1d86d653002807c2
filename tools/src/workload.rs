// SPDX-License-Identifier: GPL-2.0

//! Typical messages, for benchmarks.

mod two;

pub use two::{
    decode_two,
    Conversation,
    SampleTwo, //
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
    format::{
        self,
        CallShape,
        Continuation,
        Message,
        MessageSizes,
        Usable,
        UNLIMITED, //
    },
    message::{
        decode as decode_message,
        ErrorHeader,
        RdmaError,
        Version, //
    }, //
};

/// The transaction ID of all samples.
const XID: u32 = 0x1234_5678;

/// One registered region of 1 MiB.
const SEGMENT: Segment = Segment {
    handle: 0x0001_2300,
    length: 1 << 20,
    offset: 0xffff_8880_1234_5000,
};

/// A Read chunk behind 180 octets.
const READ: ReadSegment = ReadSegment {
    position: 180,
    segment: SEGMENT,
};

/// A Position Zero Read chunk.
const READ_ALL: ReadSegment = ReadSegment {
    position: 0,
    segment: SEGMENT,
};

/// A kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// A small Call, such as GETATTR.
    CallInline,
    /// A WRITE of 1 MiB in one region.
    CallRead,
    /// A WRITE of 1 MiB in nine regions, as peers with shallow registrations send it.
    CallReadNine,
    /// A READ of 1 MiB in one region.
    CallWrite,
    /// A Call that is too large, and expects a Reply that is.
    CallSpecial,
    /// A small Reply.
    ReplyInline,
    /// The Reply to a READ of 1 MiB.
    ReplyWrite,
    /// A Reply that is too large.
    ReplySpecial,
    /// An error.
    ErrorVersion,
}

impl Sample {
    /// All kinds of messages.
    pub const ALL: [Self; 9] = [
        Self::CallInline,
        Self::CallRead,
        Self::CallReadNine,
        Self::CallWrite,
        Self::CallSpecial,
        Self::ReplyInline,
        Self::ReplyWrite,
        Self::ReplySpecial,
        Self::ErrorVersion,
    ];

    /// Writes the header of the message to `buf` and returns its size.
    ///
    /// # Panics
    ///
    /// If `buf` is too small: 512 octets are enough.
    #[inline]
    pub fn encode(self, buf: &mut [u8]) -> usize {
        let call = CallHeader {
            xid: XID,
            credits: 128,
            read: &[],
            write: &[],
            reply: &[],
            nomsg: false,
        };
        let reply = ReplyHeader {
            xid: XID,
            credits: 128,
            write: &[],
            reply: None,
            nomsg: false,
        };
        match self {
            Self::CallInline => call.encode(buf),
            Self::CallRead => CallHeader {
                read: &[READ],
                ..call
            }
            .encode(buf),
            Self::CallReadNine => CallHeader {
                read: &[READ; 9],
                ..call
            }
            .encode(buf),
            Self::CallWrite => CallHeader {
                write: &[SEGMENT],
                ..call
            }
            .encode(buf),
            Self::CallSpecial => CallHeader {
                read: &[READ_ALL],
                reply: &[SEGMENT],
                nomsg: true,
                ..call
            }
            .encode(buf),
            Self::ReplyInline => reply.encode(buf),
            Self::ReplyWrite => ReplyHeader {
                write: &[&[SEGMENT]],
                ..reply
            }
            .encode(buf),
            Self::ReplySpecial => ReplyHeader {
                reply: Some(&[SEGMENT]),
                nomsg: true,
                ..reply
            }
            .encode(buf),
            Self::ErrorVersion => ErrorHeader {
                xid: XID,
                version: 2,
                credits: 128,
                error: RdmaError::Version { low: 1, high: 1 },
            }
            .encode(Version::One, buf),
        }
        .expect("samples are valid")
    }

    /// Returns a whole message as it is received: an RPC message of 64 octets follows the header,
    /// if any does.
    pub fn message(self) -> Vec<u8> {
        let mut buf = vec![0; 512];
        let len = self.encode(&mut buf);
        buf.truncate(len);
        let direction = match self {
            Self::CallInline | Self::CallRead | Self::CallReadNine | Self::CallWrite => 0_u32,
            Self::ReplyInline | Self::ReplyWrite => 1,
            Self::CallSpecial | Self::ReplySpecial => return buf,
            Self::ErrorVersion => {
                // As the answer to a Version One Call.
                buf[7] = 1;
                return buf;
            }
        };
        buf.extend(XID.to_be_bytes());
        buf.extend(direction.to_be_bytes());
        buf.extend([0; 56]);
        buf
    }
}

/// Decodes a message and goes through all of its segments, as its receiver does.
///
/// # Panics
///
/// If the message is not valid.
#[inline]
pub fn decode(bytes: &[u8]) -> u64 {
    let header = decode_message(Version::One, bytes, &Limits::DEFAULT).expect("samples are valid");
    let read = header.read_list().iter().map(|entry| entry.segment);
    let write = header.write_list().iter().flat_map(|chunk| chunk.iter());
    let reply = header.reply_chunk();
    let reply = reply.iter().flat_map(|chunk| chunk.iter());
    read.chain(write)
        .chain(reply)
        .map(|segment| u64::from(segment.handle) ^ u64::from(segment.length) ^ segment.offset)
        .fold(header.payload.len() as u64, u64::wrapping_add)
}

/// Chooses the payload format of a READ of so many octets, and returns the size of its Call.
///
/// # Panics
///
/// If there is none.
#[inline]
pub fn choose(payload: u32) -> usize {
    let message = Message {
        sizes: MessageSizes {
            head: 180,
            pages: 0,
            tail: 0,
        },
        ddp_eligible: false,
        payload_segments: 0,
        rest_segments: 1,
        whole_segments: 1,
    };
    let shape = CallShape {
        version: Version::One,
        call: message,
        reply: Message {
            sizes: MessageSizes {
                head: 128,
                pages: payload,
                tail: 4,
            },
            ddp_eligible: true,
            payload_segments: 1,
            ..message
        },
        call_inline: 4096,
        reply_inline: 4096,
        call_parts: Continuation::NONE,
        patient_parts: 0,
        reply_parts: Continuation::NONE,
        usable: Usable::ALL,
        header_segments: UNLIMITED,
        answered: true,
        ddp_allowed: true,
    };
    let plan = format::choose(&shape).expect("it fits");
    plan.header_len + plan.inline_len
}
