// SPDX-License-Identifier: GPL-2.0

//! The choice of payload format.

use crate::headers::{
    call_header_len,
    reply_header_len, //
};
use crate::proto::{
    chunk::{
        Limits,
        ReadSegment,
        Segment, //
    },
    continuation::Split,
    error::Result,
    format::{
        self,
        CallFormat,
        CallPlan,
        CallShape,
        Continuation,
        Message,
        MessageSizes,
        ReplyFormat,
        Usable,
        UNLIMITED, //
    },
    message::{
        decode_call,
        plan::{
            walk,
            Source, //
        },
        Direction,
        Outgoing,
        Version, //
    },
    xdr::Reader, //
};

/// The choice of payload format, for a shape that the bytes describe.
pub fn format(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    if let Ok(shape) = read_shape(&mut reader) {
        if let Ok(plan) = format::choose(&shape) {
            plan_fits(&shape, &plan);
        }
    }
}

/// Reads a shape.
fn read_shape(reader: &mut Reader<'_>) -> Result<CallShape> {
    let [call_inline, reply_inline, flags, refused] = *reader.array()?;
    let version = match flags & 0x84 {
        0 => Version::One,
        0x80 => Version::Earlier,
        _ => Version::Two,
    };
    // Only Version Two has messages in parts.
    let continuation = |bits: u8| match version {
        Version::One | Version::Earlier => Continuation::NONE,
        Version::Two => Continuation {
            data: 1 + u32::from(bits & 1),
            rest: 1 + u32::from(bits & 3),
        },
    };
    Ok(CallShape {
        version,
        call_parts: continuation(flags >> 3),
        patient_parts: match version {
            Version::One | Version::Earlier => 0,
            Version::Two => u32::from(reply_inline >> 5),
        },
        reply_parts: continuation(flags >> 5),
        call: read_message(reader)?,
        reply: read_message(reader)?,
        call_inline: 1024 * (1 + u32::from(call_inline) % 8),
        reply_inline: 1024 * (1 + u32::from(reply_inline) % 8),
        usable: Usable {
            read: refused & 1 == 0,
            write: refused & 2 == 0,
            long_reply: refused & 4 == 0,
            segments: match refused >> 3 {
                0 => UNLIMITED,
                most => usize::from(most),
            },
        },
        header_segments: match flags & 2 {
            0 => UNLIMITED,
            _ => usize::from(refused & 31),
        },
        answered: flags & 0x80 == 0,
        ddp_allowed: flags & 3 != 0,
    })
}

/// Reads one message of a shape.
fn read_message(reader: &mut Reader<'_>) -> Result<Message> {
    let sizes = MessageSizes {
        head: read_size(reader)?,
        pages: read_size(reader)?,
        tail: read_size(reader)?,
    };
    let [flags, payload, rest, whole] = *reader.array()?;
    let around = sizes.head | sizes.tail;
    // Counts may be too large, but not too small: an octet takes a segment. A chunk without any
    // would not be in the header.
    let segments = |octets: u32, count: u8| usize::from(count.max(u8::from(octets != 0)));
    Ok(Message {
        sizes,
        ddp_eligible: flags & 1 == 0,
        payload_segments: segments(sizes.pages, payload),
        rest_segments: segments(around, rest),
        whole_segments: segments(sizes.pages | around, whole),
    })
}

/// Reads a size: most are within some thousands, where the thresholds are.
fn read_size(reader: &mut Reader<'_>) -> Result<u32> {
    let [kind, high, low] = *reader.array()?;
    Ok(match kind {
        0..=0x7f => u32::from_be_bytes([0, 0, high & 0x03, low]),
        0x80..=0xef => u32::from_be_bytes([0, 0, high & 0x3f, low]),
        0xf0..=0xff => u32::from_be_bytes([high, low, kind, low]),
    })
}

/// Returns how many segments the header of a planned Call has.
pub(crate) fn segments_of(shape: &CallShape, plan: &CallPlan) -> usize {
    let (call, read) = read_by(shape, plan.call);
    let offered = match plan.reply {
        ReplyFormat::Inline => 0,
        ReplyFormat::WriteChunk => shape.reply.payload_segments,
        ReplyFormat::ReplyChunk => shape.reply.whole_segments,
        ReplyFormat::WriteAndReplyChunk => shape.reply.payload_segments + shape.reply.rest_segments,
    };
    call + read + offered
}

/// Returns how many segments there are in the chunk that the RPC message is in, and in the Read
/// chunk.
pub(crate) fn read_by(shape: &CallShape, format: CallFormat) -> (usize, usize) {
    let call = &shape.call;
    match format {
        CallFormat::Inline => (0, 0),
        CallFormat::ReadChunk { .. } => (0, call.payload_segments),
        CallFormat::CallAndReadChunk { .. } => (call.rest_segments, call.payload_segments),
        CallFormat::Special => (call.whole_segments, 0),
    }
}

/// The handles of memory: of the chunk that the RPC message is in, and of the Read chunk.
const REST: u32 = 1;
const DATA: u32 = 2;

/// Returns `len` octets of memory, cut into so many segments.
fn pieces(handle: u32, len: u32, count: usize) -> Vec<Segment> {
    let each = len.checked_div(count as u32).unwrap_or(0);
    let last = count.saturating_sub(1) as u32;
    (0..count as u32)
        .map(|at| Segment {
            handle,
            length: if at == last { len - each * last } else { each },
            offset: u64::from(each * at),
        })
        .collect()
}

/// Checks that the Responder of a planned Call, which are these octets, puts together what was
/// taken apart.
fn is_put_together(shape: &CallShape, plan: &CallPlan, bytes: &[u8]) {
    let sizes = shape.call.sizes;
    let (in_call, in_read) = read_by(shape, plan.call);
    let (data, pad) = match plan.call {
        CallFormat::Inline | CallFormat::Special => (0, 0),
        CallFormat::ReadChunk { pad, .. } | CallFormat::CallAndReadChunk { pad, .. } => {
            (sizes.pages, pad)
        }
    };
    assert_eq!(plan.call.is_special(), in_call > 0);
    assert_eq!(data > 0, in_read > 0);
    // An RPC message has eight octets at least.
    let is_message = plan.call.is_special() || plan.inline_len >= 8;
    if !is_message || segments_of(shape, plan) > Limits::DEFAULT.read_segments {
        return;
    }
    let call = decode_call(shape.version, bytes).unwrap();
    let head = u64::from(sizes.head);
    // The Responder makes the padding itself.
    let padding = u64::from(data.next_multiple_of(4) - data);
    let moved = u64::from(data) + padding;
    let mut end = 0;
    let walked = walk(&call, |piece| {
        let (at, len) = (piece.at as u64, piece.len as u64);
        assert_eq!(at, end);
        end += len;
        let rest = |from: u64| {
            // All in front of the data or all behind them.
            assert!(data == 0 || from >= head || from + len <= head);
            assert_eq!(
                at,
                if data > 0 && from >= head {
                    from + moved
                } else {
                    from
                }
            );
        };
        match piece.source {
            Source::Inline(from) => rest(from as u64),
            Source::Segment(segment) if segment.handle == REST => rest(segment.offset),
            Source::Segment(segment) => assert_eq!(at, head + segment.offset),
            Source::Padding => assert_eq!((at, len), (head + u64::from(data), padding)),
        }
        Some(())
    });
    assert!(walked.is_some());
    let whole = u64::from(sizes.total().unwrap());
    assert_eq!(end, whole + padding - u64::from(pad));
}

/// Checks that a plan can be carried out, by carrying it out.
pub(crate) fn plan_fits(shape: &CallShape, plan: &CallPlan) {
    let call = shape.call.sizes;
    let reply = shape.reply.sizes;
    // A Call without Reply has no chunks in Version Two (4.7).
    let header_segments = match shape.answered || shape.version != Version::Two {
        true => shape.header_segments,
        false => 0,
    };
    let segments = |count| vec![Segment::default(); count];

    let whole = call.total().unwrap();
    let (rest, position) = match plan.call {
        CallFormat::Inline | CallFormat::Special => (whole, 0),
        CallFormat::ReadChunk { position, pad }
        | CallFormat::CallAndReadChunk { position, pad } => {
            assert!(shape.ddp_allowed && shape.call.ddp_eligible && call.pages > 0);
            assert!(shape.usable.read);
            assert!(position >= 8 && position % 4 == 0);
            assert_eq!(position, call.head);
            // What is left begins on a unit again, if the tail holds all of the padding.
            assert!(pad < 4 && pad <= call.tail);
            assert!(call.pages.wrapping_add(pad) % 4 == 0 || pad == call.tail);
            (call.head + (call.tail - pad), position)
        }
    };
    if let CallFormat::CallAndReadChunk { .. } = plan.call {
        assert!(shape.version == Version::Two);
    }
    let (in_call, in_read) = read_by(shape, plan.call);
    let call_chunk = pieces(REST, rest, in_call);
    let data = pieces(DATA, call.pages, in_read)
        .into_iter()
        .map(|segment| ReadSegment { position, segment });
    let read: Vec<ReadSegment> = data.collect();
    let inline = if plan.call.is_special() { 0 } else { rest };
    assert_eq!(plan.inline_len as u64, u64::from(inline));

    let write = segments(match plan.reply {
        ReplyFormat::WriteChunk | ReplyFormat::WriteAndReplyChunk => {
            assert!(shape.ddp_allowed && shape.reply.ddp_eligible && reply.pages > 0);
            assert!(shape.usable.write);
            shape.reply.payload_segments
        }
        ReplyFormat::Inline | ReplyFormat::ReplyChunk => 0,
    });
    let reply_chunk = segments(match plan.reply {
        ReplyFormat::ReplyChunk => shape.reply.whole_segments,
        ReplyFormat::WriteAndReplyChunk => shape.reply.rest_segments,
        ReplyFormat::Inline | ReplyFormat::WriteChunk => 0,
    });

    for chunk in [in_call, in_read, write.len(), reply_chunk.len()] {
        assert!(chunk <= shape.usable.segments && chunk <= header_segments);
    }
    assert!(segments_of(shape, plan) <= header_segments);
    // With few segments data may travel in as many messages as anything else.
    let is_limited = header_segments < UNLIMITED;

    // The Call's header is within what was planned, and all of the Call within its threshold.
    let lists = [write.as_slice()];
    let header = Outgoing {
        external: plan.call.is_special(),
        call: &call_chunk,
        read: &read,
        write: match write.as_slice() {
            [] => &[],
            _ => &lists,
        },
        reply: Some(reply_chunk.as_slice()).filter(|chunk| !chunk.is_empty()),
        // The transaction ID is that of the zeroes behind it.
        ..Outgoing::new(shape.version, Direction::Call, 0, 1)
    };
    let mut buf = vec![0; plan.header_len + plan.inline_len];
    let len = header.encode(&mut buf).unwrap();
    assert!(len <= plan.header_len);
    buf.truncate(len + plan.inline_len);
    is_put_together(shape, plan, &buf);
    let may_reduce =
        |message: &Message| shape.ddp_allowed && message.ddp_eligible && message.sizes.pages > 0;
    let allowed = |continuation: &Continuation, has_data| match has_data {
        true => continuation.data,
        false => continuation.rest,
    };
    // Data may travel in as many messages as anything else if the chunk for it is refused.
    let special = shape.call.whole_segments;
    let write_offer = Some(write.len()).filter(|count| *count != 0);
    let reply_offer = Some(reply_chunk.len()).filter(|count| *count != 0);
    let special_fits = call_header_len(shape.version, true, special, write_offer, reply_offer)
        .is_ok_and(|len| len as u64 <= u64::from(shape.call_inline));
    let has_data =
        may_reduce(&shape.call) && special_fits && special <= shape.usable.segments && !is_limited;
    let call_allowed = match plan.call {
        CallFormat::Inline => allowed(&shape.call_parts, has_data),
        // The data are in a chunk.
        CallFormat::ReadChunk { .. } => shape.call_parts.rest,
        CallFormat::CallAndReadChunk { .. } | CallFormat::Special => 1,
    };
    if plan.parts == 1 {
        assert!((plan.header_len + plan.inline_len) as u64 <= u64::from(shape.call_inline));
    } else {
        if plan.parts > call_allowed {
            // There is no other form.
            assert!(plan.parts <= shape.patient_parts);
            let impatient = CallShape {
                patient_parts: 0,
                ..*shape
            };
            assert!(format::choose(&impatient).is_err());
        }
        let len = u32::try_from(plan.inline_len).unwrap();
        let split = Split::new(len, plan.header_len, shape.call_inline).unwrap();
        assert_eq!(split.len(), plan.parts);
    }

    // So is the largest Reply.
    let chunks: Vec<&[Segment]> = match write.as_slice() {
        [] => vec![],
        segments => vec![segments],
    };
    let reply_segments = Some(reply_chunk.len()).filter(|count| *count != 0);
    let inline = match plan.reply {
        ReplyFormat::Inline => u64::from(reply.total().unwrap()),
        ReplyFormat::WriteChunk => u64::from(reply.head) + u64::from(reply.tail),
        ReplyFormat::ReplyChunk | ReplyFormat::WriteAndReplyChunk => 0,
    };
    let write_segments = chunks.first().map(|chunk| chunk.len());
    let header_len = reply_header_len(shape.version, write_segments, reply_segments).unwrap();
    // In how many messages it comes.
    let parts = |header_len: usize, len: u64| {
        if header_len as u64 + len <= u64::from(shape.reply_inline) {
            return Some(1);
        }
        let len = u32::try_from(len).ok()?;
        Some(Split::new(len, header_len, shape.reply_inline).ok()?.len())
    };
    let reply_parts = match shape.usable.long_reply {
        true => shape.reply_parts,
        false => Continuation::NONE,
    };
    let reply_allowed = |has_data| move |parts: &u32| *parts <= allowed(&reply_parts, has_data);
    let write_fits = shape.usable.write && shape.reply.payload_segments <= shape.usable.segments;
    let with_write = reply_header_len(shape.version, Some(shape.reply.payload_segments), None);
    let rest = u64::from(reply.head) + u64::from(reply.tail);
    let rest_fits = shape.reply.rest_segments <= shape.usable.segments
        || with_write.is_ok_and(|len| parts(len, rest).is_some_and(|n| reply_allowed(false)(&n)));
    let is_left = shape.reply.whole_segments <= shape.usable.segments || write_fits && rest_fits;
    let has_data = may_reduce(&shape.reply) && is_left && !is_limited;
    let in_parts = plan.reply == ReplyFormat::Inline && has_data;
    let planned = parts(header_len, inline).filter(reply_allowed(in_parts));
    assert_eq!(planned, Some(plan.reply_parts));
    if reply_chunk.is_empty() {
        let header = Outgoing {
            write: &chunks,
            ..Outgoing::new(shape.version, Direction::Reply, 1, 1)
        };
        let mut buf = vec![0; header_len];
        assert_eq!(header.encode(&mut buf), Ok(header_len));
    }

    // A Reply chunk is offered exactly if a Reply may be too large without one.
    let whole = u64::from(reply.total().unwrap());
    let least = reply_header_len(shape.version, None, None).unwrap();
    let without = parts(least, whole).is_some_and(|parts| reply_allowed(has_data)(&parts));
    let is_inline = plan.reply == ReplyFormat::Inline;
    assert!(is_inline == without || (is_limited && without));
}
