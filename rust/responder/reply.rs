// SPDX-License-Identifier: GPL-2.0

//! Sending a Reply.

use crate::kext::errno::ENOTCONN;
use crate::kext::page_fragment::PageFragment;
use crate::proto::chunk::{Chunk, Segment};
use crate::proto::message::{self, Version};
use crate::proto::{v1, v2};
use crate::responder::call::Call;
use crate::sunrpc::svc::{Pages, ReplyRqst, ServerTransport};
use crate::sunrpc::{Parts, XdrBuf};
use crate::verbs::dma::Direction;
use crate::verbs::endpoint::{Cargo, Endpoint, EndpointEvents, SendBuffer, Transfer};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

/// A Reply that is ready to be posted.
pub(crate) struct Ready<H: EndpointEvents> {
    /// Header and inline part.
    pub(crate) message: SendBuffer<H>,
    /// How long they are.
    pub(crate) len: usize,
    /// What is written before.
    pub(crate) cargo: Option<Cargo<H>>,
    /// What the peer need not invalidate itself.
    pub(crate) invalidate: Option<u32>,
}

/// What binds every Reply of a connection.
pub(crate) struct Terms {
    /// What is spoken.
    pub(crate) version: Version,
    /// The largest message that may be sent inline, header included.
    pub(crate) inline_max: usize,
    /// Whether the peer lets its keys be invalidated.
    pub(crate) may_invalidate: bool,
    /// What to grant in Version One. In Version Two the value is set when the Reply is posted.
    pub(crate) credits: u32,
}

/// How long a message is, and the Writes that go before it.
pub(crate) type Filled<H> = (usize, KVec<Transfer<H>>);

/// Makes the Reply of a Call in `message`. Sleeps.
///
/// `patiently` repeats what it is given while that returns `EAGAIN`, whenever a transfer has ended.
///
/// # Errors
///
/// `ENOTCONN`, `ENOMEM`: the connection is to be ended, and the Call will be sent again.
pub(crate) fn prepare<H, T>(
    rqst: &mut ReplyRqst<'_, T>,
    mut message: SendBuffer<H>,
    terms: &Terms,
    patiently: impl FnOnce(&mut dyn FnMut() -> Result<Filled<H>>) -> Result<Filled<H>>,
) -> Result<Ready<H>>
where
    H: EndpointEvents<Push = Pages>,
    T: ServerTransport<Context = Call<H>>,
{
    match patiently(&mut || fill(rqst, &mut message, terms)) {
        Ok((len, transfers)) => {
            let invalidate = rqst
                .context()
                .header()
                .filter(|_| terms.may_invalidate)
                .and_then(|call| call.invalidate());
            let cargo = if transfers.is_empty() {
                None
            } else {
                let keeper = rqst.take_pages()?;
                Some(Cargo {
                    transfers,
                    _keeper: keeper,
                })
            };
            Ok(Ready {
                message,
                len,
                cargo,
                invalidate,
            })
        }
        // There is no way to send this Reply.
        Err(error @ (EMSGSIZE | EAGAIN)) => {
            let len = answer(rqst, &mut message, terms, error).ok_or(ENOTCONN)?;
            Ok(Ready {
                message,
                len,
                cargo: None,
                invalidate: None,
            })
        }
        Err(error) => Err(error),
    }
}

/// Writes the error that takes the place of a Reply. Returns its length.
fn answer<H, T>(
    rqst: &ReplyRqst<'_, T>,
    buffer: &mut [u8],
    terms: &Terms,
    error: Error,
) -> Option<usize>
where
    H: EndpointEvents,
    T: ServerTransport<Context = Call<H>>,
{
    let call = rqst.context().header()?;
    let (xid, credits) = (call.xid, terms.credits);
    match terms.version {
        // RFC 8166 section 4.5.3.
        Version::One => v1::ErrorHeader {
            xid,
            version: v1::VERSION,
            credits,
            error: v1::RdmaError::Chunk,
        }
        .encode(buffer),
        Version::Two => v2::ErrorHeader {
            xid,
            version: v2::VERSION,
            credits,
            error: match error {
                EMSGSIZE => shortage(rqst, &call)?,
                _ => v2::RdmaError::System,
            },
        }
        .encode(buffer),
    }
    .ok()
}

/// What a Call of Version Two has offered too little of for its Reply: sections 7.3.4 and 7.3.5.
fn shortage<H, T>(rqst: &ReplyRqst<'_, T>, call: &message::Call<'_>) -> Option<v2::RdmaError>
where
    H: EndpointEvents,
    T: ServerTransport<Context = Call<H>>,
{
    let results = rqst.context().results();
    for ((chunk, &(_, len)), index) in call.write.iter().zip(results).zip(1..) {
        if len > chunk.total() {
            return Some(v2::RdmaError::WriteResource { index, needed: len });
        }
    }
    let needed = u32::try_from(rest_len(results, rqst.reply().len()).ok()?).ok()?;
    Some(v2::RdmaError::ReplyResource { needed })
}

/// Fills in the message and prepares the Writes.
///
/// # Errors
///
/// `EMSGSIZE` if the Reply fits neither inline nor the chunks; else what [`prepare`] returns.
fn fill<H, T>(rqst: &ReplyRqst<'_, T>, message: &mut [u8], terms: &Terms) -> Result<Filled<H>>
where
    H: EndpointEvents,
    T: ServerTransport<Context = Call<H>>,
{
    let call = rqst.context();
    let header = call.header().ok_or(ENOTCONN)?;
    let endpoint = call.endpoint().ok_or(ENOTCONN)?;
    let reply = rqst.reply();
    let mut transfers = KVec::new();

    // Results into the Write chunks, RFC 8166 section 4.3.2.
    let mut chunks: KVec<KVec<Segment>> = KVec::new();
    let mut results = call.results().iter();
    for chunk in header.write.iter() {
        let mut writer = Writer::new(endpoint, chunk)?;
        if let Some(&(offset, len)) = results.next() {
            let end = offset.checked_add(len).ok_or(EMSGSIZE)?;
            writer.write(reply, offset as usize, end as usize, &mut transfers)?;
        }
        chunks.push(writer.segments, GFP_KERNEL)?;
    }

    let mut lists: KVec<&[Segment]> = KVec::with_capacity(chunks.len(), GFP_KERNEL)?;
    for chunk in chunks.iter() {
        lists.push(chunk.as_slice(), GFP_KERNEL)?;
    }
    let mut out = message::ReplyHeader {
        version: terms.version,
        xid: header.xid,
        credits: terms.credits,
        write: &lists,
        reply: None,
    };
    let mut len = out.encode(message).map_err(|_| EMSGSIZE)?;

    // The rest into the Reply chunk, or inline. In Version Two the chunk is for what does not fit inline (6.6.3).
    let mut replied = None;
    let reply_chunk = match terms.version {
        Version::One => header.reply,
        Version::Two => {
            let inline_len = rest_len(call.results(), reply.len())?
                .checked_add(len)
                .ok_or(EMSGSIZE)?;
            header.reply.filter(|_| inline_len > terms.inline_max)
        }
    };
    if let Some(chunk) = reply_chunk {
        let mut writer = Writer::new(endpoint, chunk)?;
        for_rest(call.results(), reply.len(), |from, to| {
            writer.write(reply, from, to, &mut transfers)
        })?;
        replied = Some(writer.segments);
        out.reply = replied.as_deref();
        len = out.encode(message).map_err(|_| EMSGSIZE)?;
    }
    if replied.is_none() {
        for_rest(call.results(), reply.len(), |from, to| {
            for fragment in Range::new(reply, from, to) {
                let size = fragment.len() as usize;
                let place = message
                    .get_mut(len..)
                    .and_then(|rest| rest.get_mut(..size))
                    .ok_or(EMSGSIZE)?;
                reply.copy_fragment(&fragment, place);
                len += size;
            }
            Ok(())
        })?;
    }
    if len > terms.inline_max || !endpoint.fits(&transfers) {
        return Err(EMSGSIZE);
    }
    Ok((len, transfers))
}

/// How long the parts of a Reply of `len` octets are that are not results in chunks.
fn rest_len(results: &[(u32, u32)], len: usize) -> Result<usize> {
    let mut sum = 0;
    for_rest(results, len, |from, to| {
        sum += to - from;
        Ok(())
    })?;
    Ok(sum)
}

/// Calls `each` for the parts of a Reply of `len` octets that are not results in chunks. The XDR padding of a
/// result is no part of either, RFC 8166 section 3.4.5.2.
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

/// The octets of an RPC message from one offset to another, page by page.
struct Range<'a> {
    /// All of it.
    fragments: crate::sunrpc::Fragments<'a>,
    /// How much is still to be skipped.
    skip: usize,
    /// How much is still to come.
    left: usize,
}

impl<'a> Range<'a> {
    /// From octet `from` to before octet `to`.
    fn new(buf: &'a XdrBuf, from: usize, to: usize) -> Self {
        Self {
            fragments: buf.fragments(Parts::ALL),
            skip: from,
            left: to.saturating_sub(from),
        }
    }
}

impl Iterator for Range<'_> {
    type Item = PageFragment;

    fn next(&mut self) -> Option<PageFragment> {
        while self.left > 0 {
            let fragment = self.fragments.next()?;
            let len = fragment.len() as usize;
            if self.skip >= len {
                self.skip -= len;
                continue;
            }
            let part = fragment.part(self.skip, self.left)?;
            self.skip = 0;
            self.left -= part.len() as usize;
            return Some(part);
        }
        None
    }
}

/// Fills the segments of a chunk one after the other, RFC 8166 section 3.4.6.
struct Writer<'a, H: EndpointEvents> {
    /// Where to.
    endpoint: &'a Arc<Endpoint<H>>,
    /// The segments; how long they are is how much was written.
    segments: KVec<Segment>,
    /// How long they were.
    offered: KVec<u32>,
    /// Which is being filled.
    index: usize,
}

impl<'a, H: EndpointEvents> Writer<'a, H> {
    /// Nothing written yet.
    fn new(endpoint: &'a Arc<Endpoint<H>>, chunk: Chunk<'_>) -> Result<Self> {
        let mut segments = KVec::with_capacity(chunk.len(), GFP_KERNEL)?;
        let mut offered = KVec::with_capacity(chunk.len(), GFP_KERNEL)?;
        for segment in chunk.iter() {
            offered.push(segment.length, GFP_KERNEL)?;
            segments.push(
                Segment {
                    length: 0,
                    ..segment
                },
                GFP_KERNEL,
            )?;
        }
        Ok(Self {
            endpoint,
            segments,
            offered,
            index: 0,
        })
    }

    /// Writes octets `from` to `to` of a message behind what was written before.
    fn write(
        &mut self,
        buf: &XdrBuf,
        from: usize,
        to: usize,
        transfers: &mut KVec<Transfer<H>>,
    ) -> Result {
        let mut run: KVec<PageFragment> = KVec::new();
        let mut target = Segment::default();
        for fragment in Range::new(buf, from, to) {
            let mut at = 0;
            while at < fragment.len() as usize {
                // The next segment with room.
                let room = loop {
                    let offered = *self.offered.get(self.index).ok_or(EMSGSIZE)?;
                    let used = self.segments.get(self.index).ok_or(EMSGSIZE)?.length;
                    if offered > used {
                        break offered - used;
                    }
                    self.flush(&mut run, &mut target, transfers)?;
                    self.index += 1;
                };
                let part = fragment.part(at, room as usize).ok_or(EMSGSIZE)?;
                // One transfer is for memory without gaps.
                let gap = run.last().is_some_and(|last| {
                    (last.offset() + last.len()) as usize != PAGE_SIZE || part.offset() != 0
                });
                if gap {
                    self.flush(&mut run, &mut target, transfers)?;
                }
                let segment = self.segments.get_mut(self.index).ok_or(EMSGSIZE)?;
                if run.is_empty() {
                    target = Segment {
                        handle: segment.handle,
                        length: 0,
                        offset: segment
                            .offset
                            .checked_add(u64::from(segment.length))
                            .ok_or(EMSGSIZE)?,
                    };
                }
                segment.length += part.len();
                target.length += part.len();
                at += part.len() as usize;
                run.push(part, GFP_KERNEL)?;
            }
        }
        self.flush(&mut run, &mut target, transfers)
    }

    /// Makes a transfer of what was collected.
    fn flush(
        &self,
        run: &mut KVec<PageFragment>,
        target: &mut Segment,
        transfers: &mut KVec<Transfer<H>>,
    ) -> Result {
        if !run.is_empty() {
            let transfer = self.endpoint.transfer(Direction::ToDevice, run, target)?;
            transfers.push(transfer, GFP_KERNEL)?;
            run.clear();
        }
        Ok(())
    }
}
