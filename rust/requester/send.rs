// SPDX-License-Identifier: GPL-2.0

//! Sending a Call.

use crate::link::middles::{Middles, Unmade};
use crate::link::sizing::MAX_SEGMENTS;
use crate::link::{Link, Unposted};
use crate::observe::trace;
use crate::proto::chunk::ReadSegment;
use crate::proto::continuation::Split;
use crate::proto::format::{
    self, Asked, CallFormat, CallShape, Cut, Message, Plan, ReplyFormat, Sizes, Usable,
};
use crate::proto::message::{self, Version};
use crate::proto::v2::Direction as RpcDirection;
use crate::requester::call::{CallState, Few, Regions, Segments};
use crate::requester::Host;
use crate::sunrpc::{Fragments, Parts, SendError, SendRqst, XdrBuf};
use crate::verbs::dma::Direction;
use crate::verbs::endpoint::{EndpointEvents, PostError, RegionHandle, SendBuffer};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Sends one Call. The caller holds the transport's send lock.
///
/// # Errors
///
/// As SUNRPC expects them of `send_request`; see [`SendError`]. Unless it is `NotConnected`, nothing was sent.
pub(crate) fn call<T: Host>(this: &Arc<T>, rqst: &SendRqst<'_, T>) -> Result<(), SendError> {
    let xprt = this.xprt();
    if !xprt.is_connected() {
        return Err(SendError::NotConnected);
    }
    let Some(link) = this.requester().link() else {
        return Err(SendError::NotConnected);
    };
    // Every Call costs a credit, RFC 8166 section 3.3.1.
    if !rqst.get_congestion() {
        return Err(SendError::BadSlot);
    }
    // The same Call twice on one connection would spend two credits and have one Reply: it is sent again on a
    // new connection only.
    if rqst.sent_on_this_connection() {
        T::disconnect(this);
        return Err(SendError::NotConnected);
    }

    let result = marshal_and_post(this, &link, rqst);
    match result {
        Ok(()) => {}
        Err(SendError::NotConnected) => {
            T::disconnect(this);
            return Err(SendError::NotConnected);
        }
        Err(error) => {
            this.requester().stats.failed_marshal.count();
            return hand_to_owner(this, rqst, error);
        }
    }
    // In Version One a Call without a Reply leaves its credit spent for good. A new connection is the only way to get
    // it back. It was sent, so this is no error: SUNRPC would send it for ever.
    if !rqst.reply_expected() && link.version() == Version::One {
        xprt.force_disconnect();
    }
    Ok(())
}

/// What SUNRPC is to be told of a Call that can't be sent.
///
/// # Errors
///
/// `error`, but not one that ends the RPC where another task sends its Call: that task would get it, and end.
fn hand_to_owner<T: Host>(
    this: &Arc<T>,
    rqst: &SendRqst<'_, T>,
    error: SendError,
) -> Result<(), SendError> {
    if !matches!(error, SendError::MsgSize | SendError::Io) || rqst.is_sent_by_its_task() {
        return Err(error);
    }
    let pinned = this.xprt().lookup_and_pin(this, rqst.xid()).ok_or(error)?;
    // Taken for sent; its task finds the error.
    pinned.fail(match error {
        SendError::MsgSize => EMSGSIZE,
        _ => EIO,
    });
    Ok(())
}

/// The sizes of a buffer's parts.
fn sizes_of(buf: &XdrBuf) -> Result<Sizes, SendError> {
    let size = |len: usize| u32::try_from(len).map_err(|_| SendError::Io);
    Ok(Sizes {
        head: size(buf.head_len())?,
        pages: size(buf.page_len())?,
        tail: size(buf.tail_len())?,
    })
}

/// The sizes of a message, and into how many segments it can be cut.
fn message_of(buf: &XdrBuf, eligible: bool, cut: &Cut) -> Result<Message, SendError> {
    let payload_segments = cut.segments(buf.page_base() % PAGE_SIZE, buf.page_len());
    // Wherever these begin.
    let [head, tail] = [buf.head_len(), buf.tail_len()].map(|len| cut.segments(PAGE_SIZE - 1, len));
    let rest_segments = head + tail;
    Ok(Message {
        sizes: sizes_of(buf)?,
        ddp_eligible: eligible,
        payload_segments,
        rest_segments,
        whole_segments: payload_segments + rest_segments,
    })
}

/// Chooses the format of a Call and of what it offers for its Reply.
fn choose<T: Host>(
    link: &Link<T::Wire>,
    rqst: &SendRqst<'_, T>,
    cut: &Cut,
) -> Result<Plan, SendError> {
    let call = message_of(rqst.snd_buf(), rqst.snd_buf().is_write(), cut)?;
    // Without chunks nothing can be offered for a Reply, which has to be inline then.
    let reply = if rqst.reply_expected() && link.chunks_allowed() {
        message_of(rqst.rcv_buf(), rqst.rcv_buf().is_read(), cut)?
    } else {
        Message::default()
    };
    let version = link.version();
    let (call_parts, reply_parts) = link.continuation();
    let usable = link.usable();
    format::choose(&CallShape {
        version,
        call,
        reply,
        call_inline: link.inline_send(),
        reply_inline: link.inline_receive(),
        call_parts,
        reply_parts,
        usable: Usable {
            // So many are registered for one chunk.
            segments: usable.segments.min(MAX_SEGMENTS as usize),
            ..usable
        },
        header_segments: cut.header_segments(),
        answered: rqst.reply_expected(),
        ddp_allowed: rqst.ddp_allowed(),
    })
    .map_err(|_| {
        // The peer has refused all that is possible. Who comes next shall not suffer from that.
        link.forget_refusals();
        SendError::MsgSize
    })
}

/// Registers, writes and posts a Call, or leaves it idle.
///
/// # Errors
///
/// As for [`call`]. `NotConnected` means that the connection must end.
fn marshal_and_post<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    rqst: &SendRqst<'_, T>,
) -> Result<(), SendError> {
    rqst.fill_sparse_pages()?;
    // Once, since the peer may tell something else meanwhile.
    let cut = link.cut();
    let plan = choose(link, rqst, &cut)?;

    let call = &rqst.slot().call;
    let mut regions = call.begin().map_err(|_| SendError::NotConnected)?;
    let mut middles = Middles::none();
    let built = build(this, link, rqst, &plan, &cut, &mut regions, &mut middles);
    let (buffer, header_len, len, asked) = match built {
        Ok(built) => built,
        Err(error) => {
            call.set_idle(regions);
            return Err(error);
        }
    };

    let stats = &this.requester().stats;
    let count = regions.len() as u64;
    rqst.stamp();
    // The Reply may be here before the post returns, so the Call must be `Sent` by then: its lock is held
    // over the post, and the Reply's handler waits for it.
    let mut state = call.state().lock();
    call.set_xid(rqst.xid());
    let parts = plan.parts;
    let posted = link.post(RpcDirection::Call, &mut middles, buffer, len, &mut regions);
    match posted {
        Ok(signaled) => {
            // Before the Reply's handler gets the lock.
            trace::post_call(
                this.traced(),
                rqst.xid(),
                call.index(),
                plan.call,
                plan.reply,
                header_len,
                len,
                regions.len(),
                signaled,
            );
            *state = CallState::Sent { regions, asked };
            drop(state);
            stats.registrations.add_value(count);
            stats.work_requests.add_value(count + u64::from(parts));
            stats.parts.add_value(u64::from(parts - 1));
            rqst.count_sent();
            Ok(())
        }
        Err(Unposted::Post(PostError::Refused)) => {
            // The device may have taken a part of the chain. So the regions stay with the Call until the end
            // of the connection, which follows, takes them back.
            *state = CallState::Sent { regions, asked };
            drop(state);
            trace::post_failed(this.traced(), rqst.xid(), PostError::Refused.into());
            Err(SendError::NotConnected)
        }
        Err(Unposted::Post(error)) => {
            drop(state);
            trace::post_failed(this.traced(), rqst.xid(), error.into());
            let count = regions.len();
            call.set_idle(regions);
            // Their Send buffers count among those that are waited for.
            drop(middles);
            if error == PostError::Full {
                return Err(wait_for_send_room(this, link, rqst.xid(), count, parts));
            }
            Err(SendError::NotConnected)
        }
        Err(error) => {
            drop(state);
            call.set_idle(regions);
            Err(match error {
                Unposted::Credits => {
                    // With chunks there is another form of it, which takes one message.
                    let parts = if link.chunks_allowed() { 1 } else { parts };
                    wait_for_credits(this, link, parts, count != 0)
                }
                // As for what is too large: it can't be sent, now or later.
                _ => SendError::MsgSize,
            })
        }
    }
}

/// A message that is ready to be posted: the buffer of its last part, the lengths of header and message, and what it
/// asks for.
type Built<T> = (SendBuffer<<T as Host>::Wire>, usize, usize, Asked);

/// Registers what the plan says, and writes the message. The parts before its last one go to `middles`.
fn build<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    rqst: &SendRqst<'_, T>,
    plan: &Plan,
    cut: &Cut,
    regions: &mut Regions<T>,
    middles: &mut Middles<T::Wire>,
) -> Result<Built<T>, SendError> {
    let stats = &this.requester().stats;
    let xid = rqst.xid();
    let (call_buf, reply_buf) = (rqst.snd_buf(), rqst.rcv_buf());
    let Some(mut buffer) = link.endpoint().send_buffer() else {
        return Err(wait_for_send_room(this, link, xid, 0, 1));
    };
    let mut asked = Asked {
        write_len: u32::try_from(reply_buf.page_len()).unwrap_or(u32::MAX),
        reply_len: sizes_of(reply_buf)?.total().map_err(|_| SendError::Io)?,
        long_reply: plan.reply_parts > 1,
        // SUNRPC provides pages for what is got from the server, and nothing is changed by getting it but by LAYOUTGET, also
        // with OPEN. These are of NFSv4.1 and later, where the server knows a Call again that has come before.
        repeatable: reply_buf.page_len() > 0,
        continued: plan.parts > 1,
        ..Asked::default()
    };

    // A body chunk in the words of the draft (4.5.1.2): the RPC message is in there.
    let body = match plan.call {
        CallFormat::Inline | CallFormat::ReadChunk { .. } => None,
        CallFormat::CallAndReadChunk { .. } => Some(call_buf.fragments_without_pages()),
        CallFormat::Special => Some(call_buf.fragments(Parts::ALL)),
    };
    if let Some(fragments) = body {
        asked.call = register(
            this,
            link,
            fragments,
            cut,
            Direction::ToDevice,
            xid,
            regions,
        )?;
    }
    // RFC 8166 section 3.4.5: the segments of one chunk have the same place in the RPC message.
    let position = match plan.call {
        CallFormat::Inline | CallFormat::Special => 0,
        CallFormat::ReadChunk { position, .. } | CallFormat::CallAndReadChunk { position, .. } => {
            position
        }
    };
    if position > 0 {
        let fragments = call_buf.fragments(Parts::PAGES);
        asked.read = register(
            this,
            link,
            fragments,
            cut,
            Direction::ToDevice,
            xid,
            regions,
        )?;
    }
    let (write_parts, reply_parts) = match plan.reply {
        ReplyFormat::Inline => (None, None),
        ReplyFormat::WriteChunk => (Some(Parts::PAGES), None),
        ReplyFormat::ReplyChunk => (None, Some(Parts::ALL)),
        ReplyFormat::WriteAndReplyChunk => (Some(Parts::PAGES), Some(Parts::HEAD_AND_TAIL)),
    };
    if let Some(parts) = write_parts {
        let fragments = reply_buf.fragments(parts);
        asked.write = register(
            this,
            link,
            fragments,
            cut,
            Direction::FromDevice,
            xid,
            regions,
        )?;
    }
    if let Some(parts) = reply_parts {
        let fragments = reply_buf.fragments(parts);
        asked.reply = register(
            this,
            link,
            fragments,
            cut,
            Direction::FromDevice,
            xid,
            regions,
        )?;
    }

    let (body, rest) = regions.split_at_checked(asked.call).ok_or(SendError::Io)?;
    let (read, rest) = rest.split_at_checked(asked.read).ok_or(SendError::Io)?;
    let (write, reply) = rest.split_at_checked(asked.write).ok_or(SendError::Io)?;
    // In Version One a body chunk is in the Read list, at position zero.
    let read_list = Few::map(if position > 0 { read } else { body }, |region| {
        ReadSegment {
            position,
            segment: region.segment(),
        }
    });
    let (body, write, reply) = (Segments::of(body), Segments::of(write), Segments::of(reply));

    let header = message::CallHeader {
        version: link.version(),
        xid,
        credits: link.credits_wanted(),
        call: body.as_slice(),
        read: read_list.as_slice(),
        write: write.as_slice(),
        reply: reply.as_slice(),
        invalidate: dearest(regions),
    };
    let header_len = header.encode(&mut buffer).map_err(|_| SendError::MsgSize)?;
    let rest = buffer.get_mut(header_len..).ok_or(SendError::MsgSize)?;
    let inline_len = match plan.call {
        CallFormat::Inline | CallFormat::ReadChunk { .. } if plan.parts > 1 => {
            let total = u32::try_from(plan.inline_len).map_err(|_| SendError::MsgSize)?;
            let split = Split::new(total, header_len, link.inline_send())
                .map_err(|_| SendError::MsgSize)?;
            let copy = |offset, to: &mut [u8]| match plan.call {
                CallFormat::Inline => call_buf.copy_range(offset, to),
                _ => call_buf.copy_range_without_pages(offset, to),
            };
            let made = Middles::new(link.endpoint(), RpcDirection::Call, xid, &split, copy);
            *middles = made.map_err(|unmade| match unmade {
                Unmade::NoBuffers => wait_for_send_room(this, link, xid, 0, plan.parts),
                Unmade::Impossible => SendError::Io,
            })?;
            split.parts().last().and_then(|last| {
                let (offset, len) = (last.offset as usize, last.len as usize);
                copy(offset, rest.get_mut(..len)?)?;
                Some(len)
            })
        }
        CallFormat::Inline => call_buf.copy_message(rest),
        CallFormat::ReadChunk { .. } => call_buf.copy_without_pages(rest),
        CallFormat::CallAndReadChunk { .. } | CallFormat::Special => Some(0),
    }
    .ok_or(SendError::MsgSize)?;
    let len = header_len + inline_len;
    if len > link.inline_send() as usize {
        return Err(SendError::MsgSize);
    }

    stats
        .read_segments
        .add_value((asked.call + asked.read) as u64);
    stats.write_segments.add_value(asked.write as u64);
    stats.reply_segments.add_value(asked.reply as u64);
    stats.bytes_offered.add_value(write.total() + reply.total());
    match plan.call {
        CallFormat::Inline => stats
            .pullup_bytes
            .add_value((call_buf.page_len() + call_buf.tail_len()) as u64),
        CallFormat::ReadChunk { .. } => {}
        CallFormat::CallAndReadChunk { .. } | CallFormat::Special => stats.nomsg_calls.count(),
    }
    Ok((buffer, header_len, len, asked))
}

/// The handle of the longest of the regions, or zero if there are none. To invalidate that one is the most work, so it is
/// the one that the peer is asked to spare us.
fn dearest<W: EndpointEvents>(regions: &[RegionHandle<W>]) -> u32 {
    regions
        .iter()
        .map(|region| region.segment())
        .max_by_key(|segment| segment.length)
        .map_or(0, |segment| segment.handle)
}

/// Registers a run of memory as one chunk. Returns the number of its segments.
fn register<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    fragments: Fragments<'_>,
    cut: &Cut,
    direction: Direction,
    xid: u32,
    regions: &mut Regions<T>,
) -> Result<usize, SendError> {
    let longest = u32::try_from(cut.longest).unwrap_or(u32::MAX);
    let mut fragments = fragments.peekable();
    let mut count = 0;
    while fragments.peek().is_some() {
        if count == MAX_SEGMENTS as usize {
            return Err(SendError::MsgSize);
        }
        let Some(mut region) = link.endpoint().region() else {
            return Err(wait_for_regions(this, link, xid));
        };
        region
            .map(&mut fragments, direction, xid, longest)
            .map_err(|_| SendError::Io)?;
        regions
            .push_within_capacity(region)
            .map_err(|_| SendError::MsgSize)?;
        count += 1;
    }
    Ok(count)
}

/// The Send Queue is full, or there are too few Send buffers: SUNRPC shall call again when there is room for a message
/// in so many `parts` with `regions`
/// registrations.
pub(crate) fn wait_for_send_room<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    xid: u32,
    regions: usize,
    parts: u32,
) -> SendError {
    trace::send_queue_full(this.traced(), xid);
    this.requester().stats.send_queue_full.count();
    this.xprt().wait_for_buffer_space();
    // A completion may have come before the flag was set, and the next one may be far. To ask for less room
    // than is needed would have SUNRPC call again and again.
    if link.endpoint().has_send_room(regions, parts) {
        this.xprt().write_space();
    }
    SendError::Again
}

/// The peer has promised no Receives for a Call in so many `parts`: SUNRPC shall call again when it has.
fn wait_for_credits<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    parts: u32,
    chunks: bool,
) -> SendError {
    this.requester().stats.credit_waits.count();
    T::watch(this);
    this.xprt().wait_for_buffer_space();
    // The credits may have come before the flag was set.
    if link.admits(RpcDirection::Call, parts, chunks) {
        this.xprt().write_space();
    }
    SendError::Again
}

/// The pool is empty: SUNRPC shall call again when there are more regions.
fn wait_for_regions<T: Host>(this: &Arc<T>, link: &Link<T::Wire>, xid: u32) -> SendError {
    trace::out_of_regions(this.traced(), xid);
    this.xprt().wait_for_buffer_space();
    T::want_regions(this);
    if link.endpoint().has_region() {
        this.xprt().write_space();
    }
    SendError::Again
}
