// SPDX-License-Identifier: GPL-2.0

//! Sending a Reply.

use crate::kext::errno::ENOTCONN;
use crate::kext::page_fragment::PageFragment;
use crate::observe::trace::{Answer, Why};
use crate::proto::chunk::{Chunk, Segment};
use crate::proto::v1::{self, ErrorHeader, Header, RdmaError};
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
    /// The transaction ID of its Call.
    pub(crate) xid: u32,
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
    /// The largest message that may be sent inline, header included.
    pub(crate) inline_max: usize,
    /// Whether the peer lets its keys be invalidated.
    pub(crate) may_invalidate: bool,
    /// What to grant.
    pub(crate) credits: u32,
}

/// A message, and the Writes that go before it.
pub(crate) struct Filled<H: EndpointEvents> {
    /// How long the message is.
    len: usize,
    /// The Writes.
    transfers: KVec<Transfer<H>>,
    /// What the peer need not invalidate itself.
    invalidate: Option<u32>,
}

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
    let mut waits = false;
    let filled = patiently(&mut || {
        let filled = fill(rqst, &mut message, terms);
        if matches!(filled, Err(EAGAIN)) && !core::mem::replace(&mut waits, true) {
            let call = rqst.context();
            call.stats().out_of_regions(call.xid());
        }
        filled
    });
    match filled {
        Ok(Filled {
            len,
            transfers,
            invalidate,
        }) => {
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
                xid: rqst.context().xid(),
                message,
                len,
                cargo,
                invalidate,
            })
        }
        // There is no way to send this Reply: RFC 8166 section 4.5.3.
        Err(unfit @ (EMSGSIZE | EAGAIN)) => {
            let call = rqst.context();
            let xid = call.xid();
            let why = if unfit == EAGAIN {
                Why::TooManySegments
            } else {
                Why::ReplyTooLong
            };
            call.stats()
                .refused(xid, Answer::ErrChunk, why, rqst.reply().len());
            let error = ErrorHeader {
                xid,
                version: v1::VERSION,
                credits: terms.credits,
                error: RdmaError::Chunk,
            };
            let len = error.encode(&mut message).map_err(|_| ENOTCONN)?;
            Ok(Ready {
                xid,
                message,
                len,
                cargo: None,
                invalidate: None,
            })
        }
        Err(error) => Err(error),
    }
}

/// The Call's handle, if all its segments have the same one: only then all of them are clean when it is
/// invalidated.
fn sole_handle(header: &Header<'_>) -> Option<u32> {
    let read = header.read_list().iter().map(|entry| entry.segment.handle);
    let write = header.write_list().iter().flat_map(|chunk| chunk.iter());
    let reply = header
        .reply_chunk()
        .into_iter()
        .flat_map(|chunk| chunk.iter());
    let written = Iterator::chain(write, reply).map(|segment| segment.handle);
    let mut handles = Iterator::chain(read, written);
    let first = handles.next()?;
    handles.all(|handle| handle == first).then_some(first)
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
    for chunk in header.write_list().iter() {
        let mut writer = Writer::new(endpoint, chunk)?;
        if let Some(&(offset, len)) = results.next() {
            let end = offset.checked_add(len).ok_or(EMSGSIZE)?;
            writer.write(reply, offset as usize, end as usize, &mut transfers)?;
        }
        chunks.push(writer.segments, GFP_KERNEL)?;
    }

    // The rest into the Reply chunk, or inline.
    let mut replied = None;
    if let Some(chunk) = header.reply_chunk() {
        let mut writer = Writer::new(endpoint, chunk)?;
        for_rest(call.results(), reply.len(), |from, to| {
            writer.write(reply, from, to, &mut transfers)
        })?;
        replied = Some(writer.segments);
    }
    let mut lists: KVec<&[Segment]> = KVec::with_capacity(chunks.len(), GFP_KERNEL)?;
    for chunk in chunks.iter() {
        lists.push(chunk.as_slice(), GFP_KERNEL)?;
    }
    let out = v1::ReplyHeader {
        xid: header.xid,
        credits: terms.credits,
        write: &lists,
        reply: replied.as_deref(),
        nomsg: replied.is_some(),
    };
    let mut len = out.encode(message).map_err(|_| EMSGSIZE)?;
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
    Ok(Filled {
        len,
        transfers,
        invalidate: terms.may_invalidate.then(|| sole_handle(&header)).flatten(),
    })
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
