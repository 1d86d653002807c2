// SPDX-License-Identifier: GPL-2.0

//! Writing a Call: its chunks are registered, then its header and what goes inline are written to
//! a Send buffer.

use crate::endpoint::{
    EndpointEvents,
    FirstParts,
    PostError,
    RegionHandle,
    SendBuffer, //
};
use crate::kext::prelude::*;
use crate::link::sizing::MAX_SEGMENTS;
use crate::link::{
    parts,
    Link,
    Unposted, //
};
use crate::proto::chunk::ReadSegment;
use crate::proto::connection::Terms;
use crate::proto::continuation::Split;
use crate::proto::format::{
    Asked,
    CallFormat,
    CallPlan,
    ReplyFormat,
    SegmentLimits,
    OPEN_REPLY, //
};
use crate::proto::message::{
    self,
    ChunkKind,
    OnlyChunk, //
};
use crate::proto::v2::Direction as RpcDirection;
use crate::rdma::dma::Direction;
use crate::requester::call::{
    Few,
    Regions,
    Segments, //
};
use crate::requester::stats::Stats;
use crate::requester::wait::{
    wait_for_credits,
    wait_for_regions,
    wait_for_send_room, //
};
use crate::requester::Host;
use crate::sunrpc::{
    CallMemory,
    Parts,
    SendError,
    SendRqst,
    XdrBuf, //
};

/// A Call that is being written.
pub(super) struct Marshal<'a, T: Host> {
    /// The transport.
    pub(super) this: &'a Arc<T>,
    /// The connection that the Call goes to.
    pub(super) link: &'a Link<T::Wire>,
    /// The request.
    pub(super) rqst: &'a SendRqst<'a, T>,
    /// The terms of the connection, by which `cut` and `plan` were chosen.
    pub(super) terms: &'a Terms,
    /// The limits of segments.
    pub(super) cut: &'a SegmentLimits,
    /// The form of the Call.
    pub(super) plan: &'a CallPlan,
    /// Set if the plan is for an open Reply: a Reply chunk is a Reply buffer.
    pub(super) open: bool,
}

/// A message that is ready to be posted.
pub(super) struct Marshaled<T: Host> {
    /// The buffer of the message, or of its last part.
    pub(super) buffer: SendBuffer<T::Wire>,
    /// The length of the header, in octets.
    pub(super) header_len: usize,
    /// The length of the message, or of its last part, in octets.
    pub(super) len: usize,
    /// Its parts before the last one.
    pub(super) parts: Option<FirstParts>,
}

impl<T: Host> Marshal<'_, T> {
    /// Registers what the plan says, and writes the message. What was registered is in `regions`,
    /// also if this fails, and added to what is `asked` for.
    ///
    /// # Errors
    ///
    /// As for [`crate::requester::send::call`].
    pub(super) fn build(
        &self,
        regions: &mut Regions<T>,
        asked: &mut Asked,
    ) -> Result<Marshaled<T>, SendError> {
        let Some(mut buffer) = self.link.endpoint().send_buffer() else {
            return Err(wait_for_send_room(
                self.this,
                self.link,
                self.rqst.xid(),
                0,
                1,
            ));
        };
        self.register(regions, asked)?;
        let (header_len, offered) = self.write_header(regions, asked, &mut buffer)?;
        let rest = buffer.get_mut(header_len..).ok_or(SendError::MsgSize)?;
        let mut parts = None;
        let len = header_len + self.write_inline(header_len, rest, &mut parts)?;
        if len > self.terms.send_size as usize {
            return Err(SendError::MsgSize);
        }
        self.count(asked, offered);
        Ok(Marshaled {
            buffer,
            header_len,
            len,
            parts,
        })
    }

    /// Returns the position of the Read chunk that is not a body chunk; zero if there is none. The
    /// segments of one chunk have the same place in the RPC message (RFC 8166 section 3.4.5).
    fn position(&self) -> u32 {
        match self.plan.call {
            CallFormat::Inline | CallFormat::Special => 0,
            CallFormat::ReadChunk { position, .. }
            | CallFormat::CallAndReadChunk { position, .. } => position,
        }
    }

    /// Registers all chunks, in the order of [`Asked`].
    fn register(&self, regions: &mut Regions<T>, asked: &mut Asked) -> Result<(), SendError> {
        let rqst = self.rqst;
        asked.long_reply = self.plan.reply_parts > 1;
        asked.continued = self.plan.parts > 1;
        // A body chunk in the words of the draft (4.5.1.2): the RPC message is in there.
        let body = match self.plan.call {
            CallFormat::Inline | CallFormat::ReadChunk { .. } => None,
            CallFormat::CallAndReadChunk { .. } => Some(rqst.call_memory_without_pages()),
            CallFormat::Special => Some(rqst.call_memory(Parts::ALL)),
        };
        if let Some(memory) = body {
            asked.call = self.register_chunk(memory, Direction::ToDevice, regions)?;
        }
        if self.position() > 0 {
            let memory = rqst.call_memory(Parts::PAGES);
            asked.read = self.register_chunk(memory, Direction::ToDevice, regions)?;
        }
        let (write_parts, reply_parts) = match self.plan.reply {
            ReplyFormat::Inline => (None, None),
            ReplyFormat::WriteChunk => (Some(Parts::PAGES), None),
            ReplyFormat::ReplyChunk => (None, Some(Parts::ALL)),
            ReplyFormat::WriteAndReplyChunk => (Some(Parts::PAGES), Some(Parts::HEAD_AND_TAIL)),
        };
        if let Some(parts) = write_parts {
            let memory = rqst.reply_memory(parts);
            asked.write = self.register_chunk(memory, Direction::FromDevice, regions)?;
        }
        if let Some(parts) = reply_parts {
            asked.reply_buffer = self.open;
            let memory = match self.open {
                true => rqst.reply_buffer(OPEN_REPLY as usize)?,
                false => rqst.reply_memory(parts),
            };
            asked.reply = self.register_chunk(memory, Direction::FromDevice, regions)?;
        }
        Ok(())
    }

    /// Registers a run of memory as one chunk. Returns the number of its segments.
    fn register_chunk(
        &self,
        mut memory: CallMemory<'_>,
        direction: Direction,
        regions: &mut Regions<T>,
    ) -> Result<usize, SendError> {
        let xid = self.rqst.xid();
        let longest = u32::try_from(self.cut.longest).unwrap_or(u32::MAX);
        let mut count = 0;
        while !memory.is_taken() {
            if count == MAX_SEGMENTS as usize {
                return Err(SendError::MsgSize);
            }
            let Some(mut region) = self.link.endpoint().region() else {
                return Err(wait_for_regions(self.this, self.link, xid));
            };
            region
                .map(&mut memory, direction, xid, longest)
                .map_err(|error| match error {
                    // SUNRPC tries again after a while.
                    ENOMEM => SendError::NoBufs,
                    _ => SendError::Io,
                })?;
            regions
                .push_within_capacity(region)
                .map_err(|_| SendError::MsgSize)?;
            count += 1;
        }
        Ok(count)
    }

    /// Returns the only chunk, if that is one segment and has a part of the message only.
    #[inline]
    fn only_chunk(&self, regions: &Regions<T>) -> Option<OnlyChunk> {
        let [region] = regions.as_slice() else {
            return None;
        };
        let kind = match (self.plan.call, self.plan.reply) {
            (CallFormat::ReadChunk { position, .. }, ReplyFormat::Inline) => {
                ChunkKind::Read { position }
            }
            (CallFormat::Inline, ReplyFormat::WriteChunk) => ChunkKind::Write,
            (CallFormat::Inline, ReplyFormat::ReplyChunk) => ChunkKind::Reply,
            _ => return None,
        };
        let segment = region.segment();
        Some(OnlyChunk { kind, segment })
    }

    /// Does what [`Self::write_header`] does, if the header of a message with one chunk has a short
    /// form.
    #[inline]
    fn write_short_header(&self, chunk: OnlyChunk, to: &mut [u8]) -> Option<(usize, u64)> {
        let header = message::OnlyChunkHeader {
            version: self.terms.version,
            is_reply: false,
            xid: self.rqst.xid(),
            credits: self.link.credits_wanted(),
            chunk,
        };
        let offered = match chunk.kind {
            ChunkKind::Read { .. } => 0,
            ChunkKind::Write | ChunkKind::Reply => chunk.segment.length,
        };
        header.encode(to).map(|len| (len, offered.into()))
    }

    /// Writes the header, with the chunks that were registered. Returns its length, and how many
    /// octets it offers for the Reply.
    fn write_header(
        &self,
        regions: &Regions<T>,
        asked: &Asked,
        buffer: &mut SendBuffer<T::Wire>,
    ) -> Result<(usize, u64), SendError> {
        let written = self
            .only_chunk(regions)
            .and_then(|chunk| self.write_short_header(chunk, buffer));
        if let Some(written) = written {
            return Ok(written);
        }
        let (body, rest) = regions.split_at_checked(asked.call).ok_or(SendError::Io)?;
        let (read, rest) = rest.split_at_checked(asked.read).ok_or(SendError::Io)?;
        let (write, reply) = rest.split_at_checked(asked.write).ok_or(SendError::Io)?;
        let position = self.position();
        let read_list = Few::map(read, |region| ReadSegment {
            position,
            segment: region.segment(),
        });
        let (body, write, reply) = (Segments::of(body), Segments::of(write), Segments::of(reply));
        let lists = [write.as_slice()];
        let header = message::Outgoing {
            version: self.terms.version,
            direction: RpcDirection::Call,
            xid: self.rqst.xid(),
            credits: self.link.credits_wanted(),
            external: !body.as_slice().is_empty(),
            invalidate: dearest(regions),
            call: body.as_slice(),
            read: read_list.as_slice(),
            write: if asked.write > 0 { &lists } else { &[] },
            reply: Some(reply.as_slice()).filter(|chunk| !chunk.is_empty()),
        };
        let len = header.encode(buffer).map_err(|_| SendError::MsgSize)?;
        Ok((len, write.total() + reply.total()))
    }

    /// Writes what goes behind a header of `header_len` octets: what is not in chunks, or the last
    /// part of it. Returns its length.
    fn write_inline(
        &self,
        header_len: usize,
        to: &mut [u8],
        parts: &mut Option<FirstParts>,
    ) -> Result<usize, SendError> {
        let call_buf = self.rqst.snd_buf();
        match self.plan.call {
            CallFormat::Inline | CallFormat::ReadChunk { .. } if self.plan.parts > 1 => {
                self.write_parts(header_len, to, parts)
            }
            CallFormat::Inline => call_buf.copy_message(to).ok_or(SendError::MsgSize),
            CallFormat::ReadChunk { .. } => {
                call_buf.copy_without_pages(to).ok_or(SendError::MsgSize)
            }
            CallFormat::CallAndReadChunk { .. } | CallFormat::Special => Ok(0),
        }
    }

    /// Makes the parts before the last one, and writes that. Returns its length.
    fn write_parts(
        &self,
        header_len: usize,
        to: &mut [u8],
        parts: &mut Option<FirstParts>,
    ) -> Result<usize, SendError> {
        let (call_buf, xid) = (self.rqst.snd_buf(), self.rqst.xid());
        let total = u32::try_from(self.plan.inline_len).map_err(|_| SendError::MsgSize)?;
        let split =
            Split::new(total, header_len, self.terms.send_size).map_err(|_| SendError::MsgSize)?;
        let copy = |offset, to: &mut [u8]| match self.plan.call {
            CallFormat::Inline => call_buf.copy_range(offset, to),
            _ => call_buf.copy_range_without_pages(offset, to),
        };
        let made = parts::before_last(RpcDirection::Call, xid, &split, copy);
        *parts = Some(made.map_err(|error| match error {
            // SUNRPC tries again after a while.
            ENOMEM => SendError::NoBufs,
            _ => SendError::Io,
        })?);
        let last = split.parts().last().ok_or(SendError::MsgSize)?;
        let (offset, len) = (last.offset as usize, last.len as usize);
        let to = to.get_mut(..len).ok_or(SendError::MsgSize)?;
        copy(offset, to).ok_or(SendError::MsgSize)?;
        Ok(len)
    }

    /// Returns what SUNRPC is told of a message, with so many regions, that was not posted.
    pub(super) fn unposted(&self, error: Unposted, regions: usize) -> SendError {
        let (this, link) = (self.this, self.link);
        match error {
            Unposted::Post(PostError::Full) => {
                wait_for_send_room(this, link, self.rqst.xid(), regions, self.plan.parts)
            }
            Unposted::Post(_) => SendError::NotConnected,
            Unposted::Credits => {
                // If it is in parts since there were credits for these, it has another form with
                // chunks, which takes one message.
                let has_other = self.terms.has_chunks && self.plan.parts <= self.terms.parts;
                let parts = if has_other { 1 } else { self.plan.parts };
                let (patient, index) = (&this.requester().patient, self.rqst.slot().call.index());
                if has_other {
                    patient.end(index);
                } else {
                    patient.set(index);
                }
                wait_for_credits(this, link, parts, regions != 0)
            }
            // As for what is too large: it can't be sent, now or later.
            _ => SendError::MsgSize,
        }
    }

    /// Counts a Call that was written, and the octets that it offers for its Reply.
    fn count(&self, asked: &Asked, offered: u64) {
        let stats = &self.this.requester().stats;
        stats
            .read_segments
            .add_value((asked.call + asked.read) as u64);
        stats.write_segments.add_value(asked.write as u64);
        stats.reply_segments.add_value(asked.reply as u64);
        stats.bytes_offered.add_value(offered);
        match self.plan.call {
            CallFormat::Inline => count_pullup(stats, self.rqst.snd_buf()),
            CallFormat::ReadChunk { .. } => {}
            CallFormat::CallAndReadChunk { .. } | CallFormat::Special => stats.nomsg_calls.count(),
        }
    }
}

/// Counts the octets of a Call that are copied from elsewhere than its head.
pub(super) fn count_pullup(stats: &Stats, call: &XdrBuf) {
    stats
        .pullup_bytes
        .add_value((call.page_len() + call.tail_len()) as u64);
}

/// Returns the handle of the longest of the regions, or zero if there are none. To invalidate that
/// one is the most work, so it is the one that the peer is asked to spare us.
fn dearest<W: EndpointEvents>(regions: &[RegionHandle<W>]) -> u32 {
    regions
        .iter()
        .map(|region| region.segment())
        .max_by_key(|segment| segment.length)
        .map_or(0, |segment| segment.handle)
}
