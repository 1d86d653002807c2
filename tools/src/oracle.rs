// SPDX-License-Identifier: GPL-2.0

//! What must be true whatever bytes come in.
//!
//! Each function takes arbitrary bytes, lets the core work on them and panics if the outcome is not
//! consistent with itself. Fuzz targets and property tests share them.

mod two;

pub use two::{
    continuation,
    properties,
    session,
    v2_message, //
};

use crate::proto::{
    chunk::{
        self,
        Chunk,
        Limits,
        ReadList,
        ReadSegment,
        Segment,
        WriteList, //
    },
    cm_private::{
        Agreed,
        CmPrivate,
        MAX_SIZE,
        MIN_SIZE, //
    },
    credits::{
        Admission,
        Grant, //
    },
    error::{
        Fault,
        Result, //
    },
    format::{
        self,
        CallFormat,
        CallShape,
        Message,
        Plan,
        ReplyFormat,
        Sizes, //
    },
    v1::{
        self,
        Body,
        CallHeader,
        Direction,
        Prefix,
        RdmaError,
        ReplyHeader, //
    },
    xdr::{
        self,
        Reader,
        Writer, //
    },
};

/// Writes to a buffer that is large enough for whatever `len` octets can mean.
fn written(len: usize, write: impl FnOnce(&mut Writer<'_>) -> Result) -> Vec<u8> {
    let mut buf = vec![0; len + 64];
    let mut writer = Writer::new(&mut buf);
    write(&mut writer).expect("what was decoded can be encoded");
    let len = writer.len();
    buf.truncate(len);
    buf
}

/// The Version One header.
pub fn v1_message(bytes: &[u8]) {
    match v1::decode(bytes) {
        Ok(header) => accepted(bytes, &header),
        Err(error) => rejected(bytes, &error),
    }
}

/// Checks a message that was accepted: what was decoded, encoded again, is what was received.
fn accepted(bytes: &[u8], header: &v1::Header<'_>) {
    let (head, rest) = bytes.split_at(header.header_len());
    let words: Vec<u32> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(header.xid, words[0]);
    assert_eq!(words[1], v1::VERSION);
    assert_eq!(header.credits, words[2]);

    // Where the header ends not even its last octet can be missing.
    for len in head.len().saturating_sub(5)..head.len() {
        assert!(v1::decode(&bytes[..len]).is_err());
    }

    let Some(chunks) = header.chunks() else {
        let error = header.error().unwrap();
        assert_eq!(header.rpc_direction(), Direction::Reply);
        assert!(header.payload().is_empty());
        if header.credits != 0 {
            let mut buf = [0; v1::ErrorHeader::MAX_LEN];
            let again = v1::ErrorHeader {
                xid: header.xid,
                version: v1::VERSION,
                credits: header.credits,
                error,
            };
            let len = again.encode(&mut buf).unwrap();
            assert_eq!(&buf[..len], head);
        }
        return;
    };

    let read: Vec<ReadSegment> = chunks.read.iter().collect();
    let write: Vec<Vec<Segment>> = chunks.write.iter().map(|c| c.iter().collect()).collect();
    let reply: Option<Vec<Segment>> = chunks.reply.map(|c| c.iter().collect());
    check_totals(&chunks.read, &chunks.write, chunks.reply.as_ref());

    match header.body {
        Body::Msg {
            direction, payload, ..
        } => {
            assert_eq!(payload, rest);
            assert_eq!(header.payload(), rest);
            assert_eq!(&payload[..4], &bytes[..4]);
            assert_eq!(u32::from(payload[7]), direction_word(direction));
            assert_eq!(chunks.read.position_zero_len(), None);
            // Two words are the least that an RPC message can be.
            assert!(v1::decode(&bytes[..head.len() + 7]).is_err());
        }
        Body::Nomsg { direction, .. } => {
            assert!(rest.is_empty());
            let len = match direction {
                Direction::Call => chunks.read.position_zero_len(),
                Direction::Reply => chunks.reply.map(|chunk| chunk.total()),
            };
            assert!(len.unwrap() > 0);
        }
        Body::Error(_) => unreachable!("errors have no chunk lists"),
    }
    if header.rpc_direction() == Direction::Reply {
        assert!(read.is_empty());
    }

    let write: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
    let again = written(head.len(), |writer| {
        Prefix {
            xid: header.xid,
            version: v1::VERSION,
            credits: header.credits,
            procedure: u32::from(header.is_nomsg()),
        }
        .put(writer)?;
        chunk::put_read_list(writer, &read)?;
        chunk::put_write_list(writer, &write)?;
        chunk::put_reply_chunk(writer, reply.as_deref())
    });
    assert_eq!(again, head);
    assert_eq!(
        v1::header_len(
            read.len(),
            write.iter().map(|c| c.len()),
            reply.as_ref().map(Vec::len)
        ),
        Ok(head.len())
    );

    // The same by the encoder of that direction, as far as it makes such messages.
    let mut buf = vec![0; head.len()];
    match header.rpc_direction() {
        Direction::Call => {
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
                nomsg: header.is_nomsg(),
            };
            assert_eq!(call.encode(&mut buf), Ok(head.len()));
        }
        Direction::Reply => {
            let reply = ReplyHeader {
                xid: header.xid,
                credits: header.credits.max(1),
                write: &write,
                reply: reply.as_deref(),
                nomsg: header.is_nomsg(),
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

/// Checks that counts and totals are those of what the iterators yield.
fn check_totals(read: &ReadList<'_>, write: &WriteList<'_>, reply: Option<&Chunk<'_>>) {
    let sum = |segments: &mut dyn Iterator<Item = Segment>| -> u64 {
        segments.map(|segment| u64::from(segment.length)).sum()
    };
    let limits = Limits::DEFAULT;

    assert_eq!(read.iter().count(), read.len());
    assert_eq!(read.is_empty(), read.iter().next().is_none());
    assert!(read.len() <= limits.read_segments);
    assert!(read.iter().all(|entry| entry.position % 4 == 0));
    assert_eq!(
        sum(&mut read.iter().map(|entry| entry.segment)),
        u64::from(read.total())
    );

    assert_eq!(write.iter().count(), write.len());
    assert_eq!(write.is_empty(), write.iter().next().is_none());
    assert!(write.len() <= limits.write_chunks);
    assert_eq!(sum(&mut write.iter().flat_map(|c| c.iter())), write.total());
    assert_eq!(write.single().is_some(), write.len() == 1);

    for chunk in write.iter().chain(reply.copied()) {
        let segments: Vec<Segment> = chunk.iter().collect();
        assert_eq!(segments.len(), chunk.len());
        assert!(chunk.len() <= limits.chunk_segments);
        assert_eq!(sum(&mut chunk.iter()), u64::from(chunk.total()));
        // A chunk that comes back as it was offered was filled.
        assert_eq!(chunk.check_returned(&segments), Ok(chunk.total()));
        for segment in segments {
            assert!(segment
                .offset
                .checked_add(u64::from(segment.length))
                .is_some());
        }
    }
}

/// Checks a message that was not accepted: whether and how it is answered.
fn rejected(bytes: &[u8], error: &v1::DecodeError) {
    let answer = error.answer(1);
    let Some(prefix) = error.prefix else {
        assert_eq!(error.fault, Fault::Runt);
        assert!(bytes.len() < v1::MIN_HEADER_LEN);
        assert_eq!(answer, None);
        return;
    };
    assert!(bytes.len() >= v1::PREFIX_LEN);
    assert!(bytes.len() >= v1::MIN_HEADER_LEN || prefix.procedure == 4);

    // RDMA_DONE and RDMA_ERROR are never answered.
    let silent = prefix.procedure == 4
        || (prefix.procedure == 3 && prefix.version == v1::VERSION)
        || error.direction == Some(Direction::Reply);
    assert_eq!(answer.is_none(), silent);

    let Some(answer) = answer else { return };
    assert_eq!(answer.xid, prefix.xid);
    assert_eq!(answer.version, prefix.version);
    let mut buf = [0; v1::ErrorHeader::MAX_LEN];
    let len = answer.encode(&mut buf).unwrap();
    match answer.error {
        RdmaError::Version { low, high } => {
            assert_eq!((low, high), (v1::VERSION, v1::VERSION));
            assert_ne!(prefix.version, v1::VERSION);
        }
        RdmaError::Chunk => {
            assert_eq!(prefix.version, v1::VERSION);
            let header = v1::decode(&buf[..len]).unwrap();
            assert_eq!(header.xid, prefix.xid);
            assert_eq!(header.error(), Some(RdmaError::Chunk));
        }
    }
}

/// The chunk lists, one at a time and with small limits.
pub fn chunk_lists(bytes: &[u8]) {
    let limits = Limits {
        read_segments: 3,
        write_chunks: 2,
        chunk_segments: 2,
    };

    let mut reader = Reader::new(bytes);
    if let Ok(list) = ReadList::get(&mut reader, &limits) {
        assert!(list.len() <= limits.read_segments);
        check_totals(&list, &WriteList::default(), None);
        let segments: Vec<ReadSegment> = list.iter().collect();
        let again = written(bytes.len(), |w| chunk::put_read_list(w, &segments));
        assert_eq!(again, bytes[..reader.position()]);
        assert_eq!(chunk::read_list_len(segments.len()), Ok(again.len()));
    }

    let mut reader = Reader::new(bytes);
    if let Ok(list) = WriteList::get(&mut reader, &limits) {
        assert!(list.len() <= limits.write_chunks);
        check_totals(&ReadList::default(), &list, None);
        let chunks: Vec<Vec<Segment>> = list.iter().map(|c| c.iter().collect()).collect();
        let chunks: Vec<&[Segment]> = chunks.iter().map(Vec::as_slice).collect();
        let again = written(bytes.len(), |w| chunk::put_write_list(w, &chunks));
        assert_eq!(again, bytes[..reader.position()]);
        assert_eq!(
            chunk::write_list_len(chunks.iter().map(|c| c.len())),
            Ok(again.len())
        );
    }

    let mut reader = Reader::new(bytes);
    if let Ok(chunk) = Chunk::get(&mut reader, &limits) {
        assert!(chunk.len() <= limits.chunk_segments);
        check_totals(&ReadList::default(), &WriteList::default(), Some(&chunk));
        let segments: Vec<Segment> = chunk.iter().collect();
        let again = written(bytes.len(), |w| chunk::put_chunk(w, &segments));
        assert_eq!(again, bytes[..reader.position()]);
        assert_eq!(chunk::chunk_len(segments.len()), Ok(again.len()));

        // What the rest of the bytes says came back must be accepted only if it was offered.
        if let Ok(returned) = Chunk::get(&mut reader, &limits) {
            if let Ok(len) = returned.check_returned(&segments) {
                assert_eq!(len, returned.total());
                assert!(len <= chunk.total());
                assert!(returned.iter().zip(&segments).all(|(returned, offered)| {
                    returned.length <= offered.length
                        && returned.handle == offered.handle
                        && returned.offset == offered.offset
                }));
                // The octets that came are the first ones of the chunk.
                let mut left = len;
                for (returned, offered) in returned.iter().zip(&segments) {
                    assert_eq!(returned.length, left.min(offered.length));
                    left -= returned.length;
                }
            }
        }
    }
}

/// The private data of connection messages.
pub fn cm_private(bytes: &[u8]) {
    let peer = CmPrivate::decode(bytes);
    for size in [peer.send_size, peer.receive_size] {
        assert!((MIN_SIZE..=MAX_SIZE).contains(&size));
        assert_eq!(size % 1024, 0);
    }
    let encoded = peer.encode();
    assert_eq!(CmPrivate::decode(&encoded), peer);
    assert_eq!(encoded[5] & !1, 0);

    let conforming = bytes
        .windows(8)
        .any(|window| window.starts_with(&[0xf6, 0xab, 0x0e, 0x18, 1]));
    if !conforming {
        assert_eq!(peer, CmPrivate::DEFAULT);
    }

    // Both sides come to the same conclusion.
    let own = CmPrivate::decode(bytes.get(8..).unwrap_or_default());
    let (here, there) = (Agreed::new(&own, &peer), Agreed::new(&peer, &own));
    assert_eq!(here.send_inline, there.receive_inline);
    assert_eq!(here.receive_inline, there.send_inline);
    assert_eq!(here.remote_invalidation, there.remote_invalidation);
    assert!(here.send_inline <= own.send_size && here.send_inline <= peer.receive_size);
}

/// The XDR reader and writer: the first octet of each step chooses what to read.
pub fn xdr(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut buf = vec![0; bytes.len()];
    let mut writer = Writer::new(&mut buf);

    while let Ok([choice]) = reader.array::<1>() {
        writer.bytes(&[*choice]).unwrap();
        let before = reader.position();
        let rest = reader.rest();
        let max = usize::from(*choice);
        let outcome = match choice % 6 {
            0 => reader.u32().and_then(|value| writer.u32(value)),
            1 => reader.u64().and_then(|value| writer.u64(value)),
            2 => reader.bool().and_then(|value| writer.bool(value)),
            3 => reader.bytes(max).and_then(|value| writer.bytes(value)),
            4 => reader.opaque_fixed(max).and_then(|value| {
                assert_eq!(value.len(), max);
                writer.opaque_fixed(value)
            }),
            _ => reader.opaque(max).and_then(|value| {
                assert!(value.len() <= max);
                writer.opaque(value)
            }),
        };
        if outcome.is_err() {
            // Nothing was read, so nothing was written.
            assert_eq!(reader.position(), before);
            assert_eq!(reader.rest(), rest);
        }
        assert_eq!(
            reader.position() + reader.rest().len(),
            bytes.len(),
            "nothing gets lost"
        );
        let skipped = writer.len();
        assert!(skipped <= reader.position());
        if outcome.is_err() {
            break;
        }
        assert_eq!(writer.len(), reader.position());
    }
    for len in 0..8 {
        assert_eq!((len + xdr::pad_len(len)) % xdr::UNIT, 0);
    }
}

/// Version One credits: each octet is something that happens.
pub fn credits(bytes: &[u8]) {
    let (requested, events) = match bytes.split_first() {
        Some((first, events)) => (u32::from(*first), events),
        None => return,
    };
    let mut grant = Grant::new(requested);
    let mut in_flight = 0_u32;
    let mut limit = 1_u32;

    for event in events {
        match event % 3 {
            0 => {
                let admission = grant.consume();
                // Never more than was granted, never fewer.
                assert_eq!(admission == Admission::Granted, in_flight < limit);
                in_flight += u32::from(admission == Admission::Granted);
            }
            1 => {
                grant.complete();
                in_flight = in_flight.saturating_sub(1);
            }
            _ => {
                let granted = u32::from(event / 3) * 7;
                limit = grant.update(granted);
                assert_eq!(limit, granted.clamp(1, requested.max(1)));
            }
        }
        assert_eq!(grant.limit(), limit);
        assert_eq!(grant.in_flight(), in_flight);
        // With nothing on its way a Call may always be sent: no deadlock.
        assert!(grant.admits(0));
    }
}

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
    let [call_inline, reply_inline, flags] = *reader.array()?;
    Ok(CallShape {
        call: read_message(reader)?,
        reply: read_message(reader)?,
        call_inline: 1024 * (1 + u32::from(call_inline) % 8),
        reply_inline: 1024 * (1 + u32::from(reply_inline) % 8),
        ddp_allowed: flags & 3 != 0,
    })
}

/// Reads one message of a shape.
fn read_message(reader: &mut Reader<'_>) -> Result<Message> {
    let sizes = Sizes {
        head: read_size(reader)?,
        pages: read_size(reader)?,
        tail: read_size(reader)?,
    };
    let [flags, payload, rest, whole] = *reader.array()?;
    Ok(Message {
        sizes,
        ddp_eligible: flags & 1 == 0,
        payload_segments: usize::from(payload),
        rest_segments: usize::from(rest),
        whole_segments: usize::from(whole),
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

/// Checks that a plan can be carried out, by carrying it out.
pub(crate) fn plan_fits(shape: &CallShape, plan: &Plan) {
    let call = shape.call.sizes;
    let reply = shape.reply.sizes;
    let read_segments = |position, count| {
        vec![
            ReadSegment {
                position,
                segment: Segment {
                    handle: 1,
                    length: 1,
                    offset: 0,
                },
            };
            count
        ]
    };
    let segments = |count| vec![Segment::default(); count];

    let (read, inline) = match plan.call {
        CallFormat::Inline => (vec![], u64::from(call.total().unwrap())),
        CallFormat::ReadChunk { position, pad } => {
            assert!(shape.ddp_allowed && shape.call.ddp_eligible && call.pages > 0);
            assert!(position >= 8 && position % 4 == 0);
            assert_eq!(position, call.head);
            // What is left begins on a unit again, if the tail holds all of the padding.
            assert!(pad < 4 && pad <= call.tail);
            assert!(call.pages.wrapping_add(pad) % 4 == 0 || pad == call.tail);
            (
                read_segments(position, shape.call.payload_segments),
                u64::from(call.head) + u64::from(call.tail) - u64::from(pad),
            )
        }
        CallFormat::Special => (read_segments(0, shape.call.whole_segments), 0),
    };
    assert_eq!(plan.inline_len as u64, inline);

    let write = segments(match plan.reply {
        ReplyFormat::WriteChunk | ReplyFormat::WriteAndReplyChunk => {
            assert!(shape.ddp_allowed && shape.reply.ddp_eligible && reply.pages > 0);
            assert!(plan.write_len >= reply.pages);
            shape.reply.payload_segments
        }
        ReplyFormat::Inline | ReplyFormat::ReplyChunk => 0,
    });
    let reply_chunk = segments(match plan.reply {
        ReplyFormat::ReplyChunk => {
            assert!(plan.reply_len >= reply.total().unwrap());
            shape.reply.whole_segments
        }
        ReplyFormat::WriteAndReplyChunk => {
            assert!(plan.reply_len >= reply.head + reply.tail);
            shape.reply.rest_segments
        }
        ReplyFormat::Inline | ReplyFormat::WriteChunk => 0,
    });

    // The Call's header is within what was planned, and all of the Call within its threshold.
    let header = CallHeader {
        xid: 1,
        credits: 1,
        read: &read,
        write: &write,
        reply: &reply_chunk,
        nomsg: plan.call == CallFormat::Special,
    };
    if !(header.nomsg && read.is_empty()) {
        let mut buf = vec![0; plan.header_len];
        let len = header.encode(&mut buf).unwrap();
        assert!(len <= plan.header_len);
    }
    assert!(plan.send_len() as u64 <= u64::from(shape.call_inline));

    // So is the largest Reply.
    let chunks: Vec<&[Segment]> = match write.as_slice() {
        [] => vec![],
        segments => vec![segments],
    };
    let reply_header = ReplyHeader {
        xid: 1,
        credits: 1,
        write: &chunks,
        reply: Some(reply_chunk.as_slice()).filter(|chunk| !chunk.is_empty()),
        nomsg: false,
    };
    let inline = match plan.reply {
        ReplyFormat::Inline => u64::from(reply.total().unwrap()),
        ReplyFormat::WriteChunk => u64::from(reply.head) + u64::from(reply.tail),
        ReplyFormat::ReplyChunk | ReplyFormat::WriteAndReplyChunk => 0,
    };
    let header_len = reply_header.encoded_len().unwrap() as u64;
    assert!(header_len + inline <= u64::from(shape.reply_inline));

    // A Reply chunk is offered exactly if a Reply may be too large without one.
    let whole = u64::from(reply.total().unwrap());
    assert_eq!(
        plan.reply == ReplyFormat::Inline,
        28 + whole <= u64::from(shape.reply_inline)
    );
}
