// SPDX-License-Identifier: GPL-2.0

//! Sending a Reply.

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    FirstParts,
    Reply,
    Transfers, //
};
use crate::kext::page_fragment::PageFragment;
use crate::kext::prelude::*;
use crate::link::channel::receives::ReplyTerms;
use crate::link::parts;
use crate::observe::trace::{
    Answer,
    RefusalReason, //
};
use crate::proto::chunk::{
    Chunk,
    Limits,
    Segment, //
};
use crate::proto::continuation::Split;
use crate::proto::message::{
    self,
    ChunkKind,
    Direction,
    ErrorHeader,
    OnlyChunk,
    PlainHeader,
    RdmaError, //
};
use crate::rdma::dma;
use crate::responder::call::{
    pages_of,
    Call, //
};
use crate::sunrpc::svc::{
    Pages,
    ReplyRqst,
    ServerTransport, //
};
use crate::sunrpc::XdrBuf;

/// A Reply to send, and the Call that it answers.
pub(crate) trait ReplySource<H: EndpointEvents> {
    /// The Call.
    fn call(&self) -> &Call<H>;

    /// The Reply.
    fn reply(&self) -> &XdrBuf;

    /// Takes out the pages that the Reply is in, for which RDMA Writes are prepared. Called once,
    /// after the last look at the Reply.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the connection must be ended.
    fn take_pages(&mut self) -> Result<Pages>;
}

impl<H, T> ReplySource<H> for ReplyRqst<'_, T>
where
    H: EndpointEvents,
    T: ServerTransport<Context = Call<H>>,
{
    fn call(&self) -> &Call<H> {
        self.context()
    }

    fn reply(&self) -> &XdrBuf {
        ReplyRqst::reply(self)
    }

    fn take_pages(&mut self) -> Result<Pages> {
        ReplyRqst::take_pages(self)
    }
}

/// Makes the Reply of a Call, in `ready`, which has nothing yet but the buffer. Sleeps.
///
/// If too few memory regions are free for its RDMA Writes, `await_regions` waits for some and says
/// whether to look again. If it says no, they are too few even when nobody else has any.
///
/// # Errors
///
/// `ENOTCONN`, `ENOMEM`: the connection must be ended, and the Call will be sent again. And what
/// `await_regions` returns.
#[inline]
pub(crate) fn prepare<H, R>(
    rqst: &mut R,
    ready: &mut Reply<H>,
    terms: &ReplyTerms,
    await_regions: impl FnMut() -> Result<bool>,
) -> Result
where
    H: EndpointEvents<Push = Pages>,
    R: ReplySource<H>,
{
    match fill_plain(rqst, &mut ready.message, terms) {
        Some(len) => {
            let invalidate = rqst.call().invalidate();
            ready.invalidate = invalidate.filter(|_| terms.may_invalidate);
            ready.len = len;
            Ok(())
        }
        None => prepare_any(rqst, ready, terms, await_regions),
    }
}

/// Makes the most common Reply: one message without chunks, to a Call that has offered none for it.
/// Returns its length; [`None`] if the Reply is another one.
#[inline]
fn fill_plain<H, R>(rqst: &R, message: &mut [u8], terms: &ReplyTerms) -> Option<usize>
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    let call = rqst.call();
    if call.offers_chunks() {
        return None;
    }
    let (version, xid) = (terms.version, call.xid());
    let header = message::Outgoing::new(version, Direction::Reply, xid, terms.credits);
    let at = header.encode(message).ok()?;
    let reply = rqst.reply();
    let place = message.get_mut(at..terms.inline_max.min(message.len()))?;
    let copied = reply.copy_message(place)?;
    // As SUNRPC counts it.
    (copied == reply.len()).then(|| at + copied)
}

/// As [`prepare`], for any Reply.
///
/// # Errors
///
/// As for [`prepare`].
#[inline(never)]
fn prepare_any<H, R>(
    rqst: &mut R,
    ready: &mut Reply<H>,
    terms: &ReplyTerms,
    mut await_regions: impl FnMut() -> Result<bool>,
) -> Result
where
    H: EndpointEvents<Push = Pages>,
    R: ReplySource<H>,
{
    let mut waits = false;
    let filled = loop {
        let filled = match fill_only_chunk(rqst, ready, terms).transpose() {
            Some(filled) => filled,
            None => fill(rqst, ready, terms),
        };
        if !matches!(filled, Err(EAGAIN)) {
            break filled;
        }
        if !core::mem::replace(&mut waits, true) {
            let call = rqst.call();
            call.stats().out_of_regions(call.xid());
        }
        if !await_regions()? {
            break filled;
        }
    };
    match filled {
        Ok(transfers) => {
            if !transfers.is_empty() {
                let keeper = rqst.take_pages()?;
                ready.write(transfers, keeper);
            }
            Ok(())
        }
        // There is no way to send this Reply.
        Err(unfit @ (EMSGSIZE | EAGAIN)) => {
            let call = rqst.call();
            let xid = call.xid();
            let answered = if terms.version.rules().has_parts {
                Answer::Error
            } else {
                Answer::ErrChunk
            };
            let why = if unfit == EAGAIN {
                RefusalReason::TooManySegments
            } else {
                RefusalReason::ReplyTooLong
            };
            call.stats().refused(xid, answered, why, rqst.reply().len());
            let message = &mut ready.message;
            ready.len = answer::<H, R>(rqst, message, terms, unfit).ok_or(ENOTCONN)?;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Writes the error that takes the place of a Reply. Returns its length.
fn answer<H, R>(rqst: &R, buffer: &mut [u8], terms: &ReplyTerms, error: Error) -> Option<usize>
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    let call = rqst.call();
    let (xid, credits) = (call.xid(), terms.credits);
    let version = terms.version.number();
    let error = ErrorHeader {
        xid,
        version,
        credits,
        error: match error {
            // RFC 8166 section 4.5.3.
            _ if !terms.version.rules().has_parts => RdmaError::BadXdr,
            EMSGSIZE => shortage::<H, R>(rqst, &call.header()?, terms.inline_max)?,
            _ => RdmaError::System,
        },
    };
    error.encode(terms.version, buffer).ok()
}

/// Returns what a Call of Version Two has offered too little, or too much, of for its Reply, see
/// [`message::shortage`].
fn shortage<H, R>(rqst: &R, call: &message::Header<'_>, threshold: usize) -> Option<RdmaError>
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    let results = results(rqst);
    let mut lengths = results.iter().map(|&(_, len)| len);
    let offered = call.write_list().iter();
    let offered = offered.map(move |chunk| message::OfferedChunk {
        segments: chunk.len(),
        room: chunk.total(),
        result: lengths.next(),
    });
    let rest = u32::try_from(rest_len(results, rqst.reply().len()).ok()?).ok()?;
    Some(message::shortage(offered, rest, threshold))
}

/// Does what [`fill`] does for the most common Reply with a chunk: one result, or all of the Reply,
/// goes to the only segment that the Call has offered. [`None`] if the Reply is another one.
///
/// # Errors
///
/// As for [`fill`].
#[inline]
fn fill_only_chunk<H, R>(
    rqst: &R,
    ready: &mut Reply<H>,
    terms: &ReplyTerms,
) -> Result<Option<Transfers<H>>>
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    let (call, reply) = (rqst.call(), rqst.reply());
    let (Some(only), Some(endpoint)) = (call.only_chunk(), call.endpoint()) else {
        return Ok(None);
    };
    let results = results(rqst);
    let (from, len) = match (only.kind, results) {
        (ChunkKind::Write, [(offset, len)]) => (*offset as usize, *len),
        (ChunkKind::Reply, []) => (0, u32::try_from(reply.len())?),
        _ => return Ok(None),
    };
    if len == 0 || len > only.segment.length || spares(only.kind, len, terms) {
        return Ok(None);
    }
    let segment = Segment {
        length: len,
        ..only.segment
    };
    let header = message::OnlyChunkHeader {
        version: terms.version,
        is_reply: true,
        xid: call.xid(),
        credits: terms.credits,
        chunk: OnlyChunk { segment, ..only },
    };
    let message = &mut *ready.message;
    let Some(mut end) = header.encode(message) else {
        return Ok(None);
    };
    if only.kind == ChunkKind::Write {
        end = copy_inline(results, reply, end, message)?;
    }
    let Some(memory) = one_run(reply, from, len)?.filter(|_| end <= terms.inline_max) else {
        return Ok(None);
    };
    let mut transfers = Transfers::new();
    endpoint.transfer(dma::Direction::ToDevice, memory, &segment, &mut transfers)?;
    if !endpoint.fits(&transfers) {
        return Err(EMSGSIZE);
    }
    ready.len = end;
    ready.invalidate = call.invalidate().filter(|_| terms.may_invalidate);
    Ok(Some(transfers))
}

/// Returns whether a Reply of `len` octets goes inline although there is a Reply chunk for it: it
/// fits, and that is asked for.
fn spares(kind: ChunkKind, len: u32, terms: &ReplyTerms) -> bool {
    if kind != ChunkKind::Reply || !terms.version.rules().spares_reply_chunk {
        return false;
    }
    let header = PlainHeader::len(terms.version, Direction::Reply);
    let whole = header.saturating_add(len);
    whole as usize <= terms.inline_max
}

/// Returns the memory of `len` octets of a Reply from octet `from` on; [`None`] if there are gaps
/// in it, or fewer octets.
///
/// # Errors
///
/// `ENOMEM`.
fn one_run(reply: &XdrBuf, from: usize, len: u32) -> Result<Option<KVec<PageFragment>>> {
    let octets = len as usize;
    let mut memory: KVec<PageFragment> = KVec::with_capacity(pages_of(octets), GFP_KERNEL)?;
    let mut left = len;
    for fragment in reply.range(from, from.saturating_add(octets)) {
        if memory.last().is_some_and(|last| !last.leads_to(&fragment)) {
            return Ok(None);
        }
        left = left.saturating_sub(fragment.len());
        memory.push(fragment, GFP_KERNEL)?;
    }
    Ok((left == 0).then_some(memory))
}

/// Returns the results of a Reply that have chunks, as [`Call::results`].
///
/// Without those that the service has taken back: nfsd reports the data of a READ, and then finds
/// that an error for the next operation would not fit. So the COMPOUND ends with
/// NFS4ERR_REP_TOO_BIG in the place of the data. Nothing of a Reply is behind that.
fn results<H, R>(rqst: &R) -> &[(u32, u32)]
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    there_of(rqst.call().results(), rqst.reply().len())
}

/// Returns those of `results` that are wholly in a Reply of `len` octets.
fn there_of(results: &[(u32, u32)], len: usize) -> &[(u32, u32)] {
    let is_there = |&(offset, size): &(u32, u32)| {
        let end = (offset as usize).checked_add(size as usize);
        end.is_some_and(|end| end <= len)
    };
    let count = results.iter().take_while(|result| is_there(result)).count();
    results.get(..count).unwrap_or(&[])
}

/// Fills in the message and prepares the Writes, which are returned.
///
/// # Errors
///
/// `EMSGSIZE` if the Reply fits neither inline nor the chunks; else what [`prepare`] returns.
fn fill<H, R>(rqst: &R, ready: &mut Reply<H>, terms: &ReplyTerms) -> Result<Transfers<H>>
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    let call = rqst.call();
    let header = call.header().ok_or(ENOTCONN)?;
    let endpoint = call.endpoint().ok_or(ENOTCONN)?;
    let (results, reply) = (results(rqst), rqst.reply());
    let message = &mut *ready.message;
    let mut transfers = Transfers::new();

    // Results into the Write chunks, RFC 8166 section 4.3.2.
    let write_list = header.write_list();
    let mut returned = segments_of(write_list.most_segments(), write_list.iter())?;
    let mut unused = returned.as_mut_slice();
    let mut chunks = [&[][..]; Limits::DEFAULT.write_chunks];
    let mut lengths = results.iter();
    for (chunk, place) in write_list.iter().zip(&mut chunks) {
        let (segments, rest) = unused.split_at_mut_checked(chunk.len()).ok_or(EMSGSIZE)?;
        unused = rest;
        let mut writer = Writer::new(endpoint, segments);
        if let Some(&(offset, len)) = lengths.next() {
            let end = offset.checked_add(len).ok_or(EMSGSIZE)?;
            writer.write(reply, offset as usize, end as usize, &mut transfers)?;
        }
        *place = writer.finish();
    }
    let lists = chunks.get(..write_list.len()).ok_or(EMSGSIZE)?;
    let mut out = message::Outgoing {
        write: lists,
        ..message::Outgoing::new(terms.version, Direction::Reply, header.xid, terms.credits)
    };
    let mut len = out.encode(message).map_err(|_| EMSGSIZE)?;

    // The rest inline, or into the Reply chunk, or in parts: in Version Two the first of these that
    // is possible (6.6.3, 6.6.4). Version One has no choice.
    let rest = rest_len(results, reply.len())?;
    let inline = len.checked_add(rest).ok_or(EMSGSIZE)? <= terms.inline_max;
    let mut replied: Option<KVec<Segment>> = None;
    let spares = terms.version.rules().spares_reply_chunk;
    let reply_chunk = header
        .reply_chunk()
        .filter(|chunk| !spares || !inline && chunk.total() as usize >= rest);
    if let Some(chunk) = reply_chunk {
        let segments = segments_of(chunk.len(), core::iter::once(chunk))?;
        let mut writer = Writer::new(endpoint, replied.insert(segments));
        for_rest(results, reply.len(), |from, to| {
            writer.write(reply, from, to, &mut transfers)
        })?;
        writer.finish();
        out.external = true;
        out.reply = replied.as_deref();
        len = out.encode(message).map_err(|_| EMSGSIZE)?;
    }
    let mut before = None;
    if replied.is_none() && !inline && terms.version.rules().has_parts {
        let split = split(rest, len, terms)?;
        let last = split.parts().last().ok_or(EMSGSIZE)?;
        let end = len.checked_add(last.len as usize).ok_or(EMSGSIZE)?;
        let to = message.get_mut(len..end).ok_or(EMSGSIZE)?;
        copy_rest(results, reply, last.offset as usize, to)?;
        len = end;
        before = Some(before_last::<H, R>(rqst, header.xid, &split)?);
    } else if replied.is_none() {
        len = copy_inline(results, reply, len, message)?;
    }
    if len > terms.inline_max || !endpoint.fits(&transfers) {
        return Err(EMSGSIZE);
    }
    ready.len = len;
    ready.invalidate = call.invalidate().filter(|_| terms.may_invalidate);
    ready.parts = before;
    Ok(transfers)
}

/// Makes the parts of a Reply before its last one.
///
/// # Errors
///
/// `EMSGSIZE` if there can be no such parts, and `ENOMEM`.
fn before_last<H, R>(rqst: &R, xid: u32, split: &Split) -> Result<KBox<FirstParts>>
where
    H: EndpointEvents,
    R: ReplySource<H>,
{
    let (results, reply) = (results(rqst), rqst.reply());
    let copy = |offset, to: &mut [u8]| copy_rest(results, reply, offset, to).ok();
    let parts = parts::before_last(Direction::Reply, xid, split, copy)?;
    Ok(KBox::new(parts, GFP_KERNEL)?)
}

/// Cuts a message of `total` octets, of which the last part has a header of `header_len`.
///
/// # Errors
///
/// `EMSGSIZE` if it would be too many parts.
fn split(total: usize, header_len: usize, terms: &ReplyTerms) -> Result<Split> {
    let total = u32::try_from(total).map_err(|_| EMSGSIZE)?;
    let threshold = u32::try_from(terms.inline_max).map_err(|_| EMSGSIZE)?;
    Split::new(total, header_len, threshold)
        .ok()
        .filter(|split| split.len() <= terms.most_parts())
        .ok_or(EMSGSIZE)
}

/// Copies what a Reply has beside results in chunks into its message, from octet `at` on. Returns
/// where that ends.
///
/// # Errors
///
/// `EMSGSIZE` if there is no room for it.
fn copy_inline(
    results: &[(u32, u32)],
    reply: &XdrBuf,
    at: usize,
    message: &mut [u8],
) -> Result<usize> {
    let mut at = at;
    for_rest(results, reply.len(), |from, to| {
        let end = at.checked_add(to - from).ok_or(EMSGSIZE)?;
        let place = message.get_mut(at..end).ok_or(EMSGSIZE)?;
        reply.copy_range(from, place).ok_or(EMSGSIZE)?;
        at = end;
        Ok(())
    })?;
    Ok(at)
}

/// Copies octets of what a Reply has beside results in chunks, from `offset` on, until `to` is
/// full.
///
/// # Errors
///
/// `EMSGSIZE` if it is not that long.
fn copy_rest(results: &[(u32, u32)], reply: &XdrBuf, offset: usize, to: &mut [u8]) -> Result {
    let (mut at, mut done) = (0_usize, 0_usize);
    for_rest(results, reply.len(), |from, end| {
        let begin = at;
        at = at.checked_add(end - from).ok_or(EMSGSIZE)?;
        // What comes before the first octet that is wanted.
        let skip = offset.saturating_add(done).saturating_sub(begin);
        let Some(len) = (end - from).checked_sub(skip) else {
            return Ok(());
        };
        let left = to.get_mut(done..).ok_or(EMSGSIZE)?;
        let len = len.min(left.len());
        let place = left.get_mut(..len).ok_or(EMSGSIZE)?;
        reply.copy_range(from + skip, place).ok_or(EMSGSIZE)?;
        done += len;
        Ok(())
    })?;
    if done == to.len() {
        Ok(())
    } else {
        Err(EMSGSIZE)
    }
}

/// Returns the length of the parts of a Reply of `len` octets that are not results in chunks.
fn rest_len(results: &[(u32, u32)], len: usize) -> Result<usize> {
    let mut sum = 0;
    for_rest(results, len, |from, to| {
        sum += to - from;
        Ok(())
    })?;
    Ok(sum)
}

/// Calls `each` for the parts of a Reply of `len` octets that are not results in chunks. The XDR
/// padding of a result is no part of either, RFC 8166 section 3.4.5.2.
fn for_rest(
    results: &[(u32, u32)],
    len: usize,
    mut each: impl FnMut(usize, usize) -> Result,
) -> Result {
    let mut at = 0_usize;
    for &(offset, size) in results {
        let (offset, size) = (offset as usize, size as usize);
        if at < offset {
            each(at, offset)?;
        }
        at = offset
            .checked_add(size)
            .and_then(|end| end.checked_next_multiple_of(4))
            .ok_or(EMSGSIZE)?;
    }
    if at < len {
        each(at, len)?;
    }
    Ok(())
}

/// The segments of chunks, of which there are `most` at most.
fn segments_of<'a>(most: usize, chunks: impl Iterator<Item = Chunk<'a>>) -> Result<KVec<Segment>> {
    let mut segments = KVec::with_capacity(most, GFP_KERNEL)?;
    for chunk in chunks {
        for segment in chunk.iter() {
            segments
                .push_within_capacity(segment)
                .map_err(|_| EMSGSIZE)?;
        }
    }
    Ok(segments)
}

/// Fills the segments of a chunk one after the other, RFC 8166 section 3.4.6.
struct Writer<'a, H: EndpointEvents> {
    /// Where to.
    endpoint: &'a Arc<Endpoint<H>>,
    /// The segments. Those that are behind the one that is being filled are still as long as
    /// offered, the others as what was written to them.
    segments: &'a mut [Segment],
    /// The number of segments that are not behind it.
    begun: usize,
    /// The room that is left in the one that is being filled.
    room: u32,
    /// Memory without gaps that was not given to a transfer yet.
    run: KVec<PageFragment>,
    /// Where that goes.
    target: Segment,
}

impl<'a, H: EndpointEvents> Writer<'a, H> {
    /// Nothing written yet to `segments`, which are as they were offered.
    fn new(endpoint: &'a Arc<Endpoint<H>>, segments: &'a mut [Segment]) -> Self {
        Self {
            endpoint,
            segments,
            begun: 0,
            room: 0,
            run: KVec::new(),
            target: Segment::default(),
        }
    }

    /// Returns the segments as they are returned to the peer: with the lengths of what was written.
    fn finish(self) -> &'a [Segment] {
        for segment in self.segments.iter_mut().skip(self.begun) {
            segment.length = 0;
        }
        self.segments
    }

    /// Writes octets `from` to `to` of a message behind what was written before.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the chunk has no room for them; else as for [`Endpoint::transfer`].
    fn write(
        &mut self,
        buf: &XdrBuf,
        from: usize,
        to: usize,
        transfers: &mut Transfers<H>,
    ) -> Result {
        let mut left = to.saturating_sub(from);
        for fragment in buf.range(from, to) {
            let mut at = 0;
            while at < fragment.len() as usize {
                self.make_room(transfers)?;
                let part = fragment.part(at, self.room as usize).ok_or(EMSGSIZE)?;
                // One transfer is for memory without gaps.
                if self.run.last().is_some_and(|last| !last.leads_to(&part)) {
                    self.flush(transfers)?;
                }
                let current = self.begun.checked_sub(1);
                let segment = current.and_then(|current| self.segments.get_mut(current));
                let segment = segment.ok_or(EMSGSIZE)?;
                if self.run.is_empty() {
                    // No more than the segment takes: there may be hundreds of them.
                    let next = left.min(self.room as usize);
                    self.run.reserve(pages_of(next), GFP_KERNEL)?;
                    self.target = Segment {
                        handle: segment.handle,
                        length: 0,
                        offset: segment
                            .offset
                            .checked_add(u64::from(segment.length))
                            .ok_or(EMSGSIZE)?,
                    };
                }
                let len = part.len();
                self.run.push(part, GFP_KERNEL)?;
                segment.length += len;
                self.room -= len;
                self.target.length += len;
                at += len as usize;
                left = left.saturating_sub(len as usize);
            }
        }
        self.flush(transfers)
    }

    /// Goes on to the next segment that is not full, if the one that is being filled is.
    fn make_room(&mut self, transfers: &mut Transfers<H>) -> Result {
        while self.room == 0 {
            self.flush(transfers)?;
            let segment = self.segments.get_mut(self.begun).ok_or(EMSGSIZE)?;
            self.room = core::mem::take(&mut segment.length);
            self.begun += 1;
        }
        Ok(())
    }

    /// Makes a transfer of what was collected.
    fn flush(&mut self, transfers: &mut Transfers<H>) -> Result {
        if !self.run.is_empty() {
            let run = core::mem::take(&mut self.run);
            self.endpoint
                .transfer(dma::Direction::ToDevice, run, &self.target, transfers)?;
        }
        Ok(())
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_responder_reply)]
mod tests {
    use super::*;

    #[test]
    fn results_that_were_taken_back_are_not_there() -> Result {
        let results = [(100, 50), (160, 0), (200, 300)];
        assert_eq!(there_of(&results, 500), &results);
        assert_eq!(there_of(&results, 499).len(), 2);
        assert_eq!(there_of(&results, 199).len(), 2);
        assert_eq!(there_of(&results, 159).len(), 1);
        assert!(there_of(&results, 149).is_empty());
        assert!(there_of(&[(u32::MAX, u32::MAX)], 500).is_empty());
        // What is left of the Reply is all of it.
        assert_eq!(rest_len(there_of(&results, 92), 92)?, 92);
        Ok(())
    }
}
