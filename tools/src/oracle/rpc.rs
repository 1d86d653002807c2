// SPDX-License-Identifier: GPL-2.0

//! What Requester and Responder see of a message, and how a Responder puts a Call together.

use crate::proto::{
    chunk::{
        Limits,
        ReadSegment, //
    },
    message::{
        decode,
        decode_call,
        plan::{
            walk,
            Layout,
            Plan,
            Source, //
        },
        Body,
        ChunkKind,
        Direction,
        Header,
        OnlyChunk,
        Reply,
        ReplyChunks,
        Short,
        Version, //
    }, //
};

/// The longest Call that is put together octet by octet.
const MOST: u64 = 1 << 14;

/// Where an octet of a Call comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Octet {
    /// From this place of the inline part.
    Inline(usize),
    /// From the peer's memory.
    Memory(u32, u64),
    /// It is XDR padding.
    Padding,
}

/// A message of either version, as Requester and Responder see it.
pub fn rpc_message(bytes: &[u8]) {
    for version in [Version::One, Version::Two, Version::Earlier] {
        let call = decode_call(version, bytes);
        let reply = decode_reply(version, bytes);
        assert!(call.is_none() || reply.is_none());
        let (is_call, is_reply) = directions(version, bytes);
        assert_eq!((call.is_some(), reply.is_some()), (is_call, is_reply));
        if let Some(call) = call {
            check_call(bytes, &call);
        }
        if let Some(reply) = reply {
            assert!(reply.header_len <= bytes.len());
            assert!(!reply.special || reply_chunk_len(&reply).is_some());
        }
    }
    for version in [Version::One, Version::Earlier] {
        if let Some(short) = Short::decode(version, bytes) {
            check_short(version, bytes, &short);
        }
    }
}

/// Returns the length of the Reply chunk in a Reply.
pub(crate) fn reply_chunk_len(reply: &Reply<'_>) -> Option<u32> {
    match &reply.chunks {
        ReplyChunks::Short(only) => only
            .filter(|only| only.kind == ChunkKind::Reply)
            .map(|only| only.segment.length),
        ReplyChunks::Any { reply, .. } => reply.map(|chunk| chunk.total()),
    }
}

/// What is decoded in a few steps is what is decoded in many.
fn check_short(version: Version, bytes: &[u8], short: &Short) {
    let header = decode(version, bytes, &Limits::DEFAULT).expect("it is sound");
    assert_eq!(header, short.header(bytes));
    let is_reply = header.direction() == Some(Direction::Reply);
    assert_eq!(
        (header.xid, header.credits, header.header_len, is_reply),
        (short.xid, short.credits, short.header_len, short.is_reply)
    );
    let mut all: Vec<OnlyChunk> = Vec::new();
    let mut add = |kind, segment| all.push(OnlyChunk { kind, segment });
    for ReadSegment { position, segment } in header.read_list().iter() {
        add(ChunkKind::Read { position }, segment);
    }
    for segment in header.write_list().iter().flat_map(|chunk| chunk.iter()) {
        add(ChunkKind::Write, segment);
    }
    for segment in header
        .reply_chunk()
        .into_iter()
        .flat_map(|chunk| chunk.iter())
    {
        add(ChunkKind::Reply, segment);
    }
    assert!(all.into_iter().eq(short.chunk));
    let in_chunk = short.is_reply
        && short
            .chunk
            .is_some_and(|only| only.kind == ChunkKind::Reply);
    assert_eq!(header.is_external(), in_chunk);
}

/// Decodes a Reply, as the connection's dispatcher does.
fn decode_reply(version: Version, bytes: &[u8]) -> Option<Reply<'_>> {
    Reply::of_header(&decode(version, bytes, &Limits::DEFAULT).ok()?)
}

/// Returns whether a message is a sound Call, and whether it is a sound Reply.
fn directions(version: Version, bytes: &[u8]) -> (bool, bool) {
    match decode(version, bytes, &Limits::DEFAULT) {
        Ok(header) if header.is_call() => (true, false),
        Ok(header) => {
            let is_rpc = matches!(header.body, Body::Inline(_) | Body::External(_));
            (false, is_rpc)
        }
        Err(_) => (false, false),
    }
}

/// Checks a Call.
fn check_call(bytes: &[u8], call: &Header<'_>) {
    let (header, payload) = bytes.split_at(call.header_len);
    assert_eq!(call.payload, payload);
    assert_eq!(call.xid.to_be_bytes(), header[..4]);
    assert_eq!(call.reads_nothing(), call.reads().next().is_none());
    assert!(!call.is_external() || call.reads().any(|entry| entry.position == 0));
    // It is never one of another Call.
    if let Some(handle) = call.invalidate() {
        let chunks = call.write_list().iter().chain(call.reply_chunk());
        let mut handles = call
            .reads()
            .map(|entry| entry.segment.handle)
            .chain(chunks.flat_map(|chunk| chunk.iter().map(|segment| segment.handle)));
        assert!(handles.any(|known| known == handle));
    }
    for splits in [false, true] {
        check_plan(call, splits);
    }
}

/// Checks how a Call is put together.
fn check_plan(call: &Header<'_>, splits: bool) {
    let plan = Plan::new(call, splits);
    if call.reads_nothing() {
        assert!(plan.is_some_and(|plan| !plan.reads));
        return;
    }
    // One piece follows the other, and there are not many of them.
    let (mut end, mut count, mut read) = (0, 0, 0_u64);
    let walked = walk(call, |piece| {
        assert_eq!(piece.at, end);
        end = piece.at.checked_add(piece.len)?;
        count += 1;
        match piece.source {
            Source::Inline(from) => assert!(from + piece.len <= call.payload.len()),
            Source::Segment(segment) => {
                assert_eq!(segment.length as usize, piece.len);
                assert!(segment.offset.checked_add(segment.length.into()).is_some());
                read += u64::from(segment.length);
            }
            Source::Padding => assert!(piece.len < 4),
        }
        Some(())
    });
    let segments = call.reads().count();
    assert!(count <= 4 * segments + 1);

    let total: u64 = call
        .reads()
        .map(|entry| u64::from(entry.segment.length))
        .sum();
    if plan.is_some_and(|plan| !plan.reads) {
        assert!(total == 0 && !call.is_external() && walked.is_some());
        assert_eq!(end, call.payload.len());
    } else if let Some(plan) = &plan {
        assert!(walked.is_some());
        assert_eq!(read, total, "everything is read once");
        match plan.layout {
            Layout::Whole => assert_eq!(plan.len, end),
            Layout::Split { position } => {
                assert!(splits && !call.is_external() && position <= call.payload.len());
                assert_eq!(plan.len as u64, total.next_multiple_of(4));
                assert_eq!(plan.len + call.payload.len(), end);
            }
        }
    } else {
        // Nothing to be read, too much of it, or positions that can't be followed.
        let too_much = u32::try_from(total).is_err();
        assert!((total == 0 && call.is_external()) || too_much || walked.is_none());
    }
    if total <= MOST {
        let expected = octets(call);
        assert_eq!(expected.is_some(), walked.is_some());
        if let Some(expected) = expected {
            let mut found = Vec::new();
            let _ = walk(call, |piece| {
                found.extend((0..piece.len).map(|at| match piece.source {
                    Source::Inline(from) => Octet::Inline(from + at),
                    Source::Segment(segment) => {
                        Octet::Memory(segment.handle, segment.offset + at as u64)
                    }
                    Source::Padding => Octet::Padding,
                }));
                Some(())
            });
            assert_eq!(found, expected);
        }
    }
}

/// Puts a Call together octet by octet, in the simplest way.
fn octets(call: &Header<'_>) -> Option<Vec<Octet>> {
    let memory = |position| {
        call.reads()
            .filter(move |entry| entry.position == position)
            .flat_map(|entry| {
                let segment = entry.segment;
                (0..u64::from(segment.length))
                    .map(move |at| Octet::Memory(segment.handle, segment.offset + at))
            })
    };
    let mut base: Vec<Octet> = match call.is_external() {
        true => memory(0).collect(),
        false => (0..call.payload.len()).map(Octet::Inline).collect(),
    };
    let mut positions: Vec<u32> = call.reads().map(|entry| entry.position).collect();
    positions.retain(|position| *position != 0);
    if !positions.is_sorted() {
        return None;
    }
    positions.dedup();
    let mut whole = Vec::new();
    for position in positions {
        let before = (position as usize).checked_sub(whole.len())?;
        if before > base.len() {
            return None;
        }
        whole.extend(base.drain(..before));
        whole.extend(memory(position));
        whole.resize(whole.len().next_multiple_of(4), Octet::Padding);
    }
    whole.extend(base);
    Some(whole)
}
