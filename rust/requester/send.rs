// SPDX-License-Identifier: GPL-2.0

//! Sending a Call: the choice of its form, and the post.

use crate::endpoint::PostError;
use crate::kext::prelude::*;
use crate::link::sizing::MAX_SEGMENTS;
use crate::link::{
    continuation,
    patient_parts,
    Link,
    Unposted, //
};
use crate::observe::trace;
use crate::proto::connection::Terms;
use crate::proto::error::Fault;
use crate::proto::format::{
    self,
    Asked,
    CallFormat,
    CallPlan,
    CallShape,
    Message,
    MessageSizes,
    ReplyFormat,
    SegmentLimits,
    ShortMessage,
    Usable,
    OPEN_REPLY, //
};
use crate::proto::message::{
    PlainHeader,
    Version, //
};
use crate::proto::v2::Direction as RpcDirection;
use crate::requester::call::Stage;
use crate::requester::marshal::{
    count_pullup,
    Marshal,
    Marshaled, //
};
use crate::requester::wait::{
    wait_for_credits,
    wait_for_send_room, //
};
use crate::requester::Host;
use crate::sunrpc::{
    SendError,
    SendRqst,
    XdrBuf, //
};

/// Sends one Call. The caller holds the transport's send lock. Returns whether it was posted; if
/// not, it never will be.
///
/// # Errors
///
/// As SUNRPC expects them of `send_request`; see [`SendError`]. Unless it is `NotConnected`,
/// nothing was sent. None of them ends an RPC: whoever sends may do so for others. A Call that can
/// never be sent ends its own RPC, see [`settle`].
pub(crate) fn call<T: Host>(this: &Arc<T>, rqst: &SendRqst<'_, T>) -> Result<bool, SendError> {
    let xprt = this.xprt();
    if !xprt.is_connected() {
        return Err(SendError::NotConnected);
    }
    let Some(link) = this.requester().link() else {
        // SUNRPC may not know yet that the connection is gone, and would try again at once, and
        // again.
        T::disconnect(this);
        return Err(SendError::NotConnected);
    };
    // Every Call costs a credit, RFC 8166 section 3.3.1.
    if !rqst.get_congestion() {
        return Err(SendError::BadSlot);
    }
    // The same Call twice on one connection would spend two credits and have one Reply: it is sent
    // again on a new connection only.
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
            return settle(rqst, error).map(|()| false);
        }
    }
    // In Version One a Call without a Reply leaves its credit spent for good. A new connection is
    // the only way to get it back. It was sent, so this is no error: SUNRPC would send it for ever.
    if !rqst.reply_expected() && !link.channel().rules().counts_messages {
        xprt.force_disconnect();
    }
    Ok(true)
}

/// Returns what SUNRPC is told of a Call that was not sent.
///
/// SUNRPC lets a task send what other tasks have queued before it, and gives an error of
/// `send_request` to the task that sends. So a Call that can never be sent is taken for sent, and
/// its own task gets the error as soon as it comes to wait for the Reply. Whoever waits for no
/// Reply learns of no error.
///
/// # Errors
///
/// `error`, if a later attempt may succeed.
fn settle<T: Host>(rqst: &SendRqst<'_, T>, error: SendError) -> Result<(), SendError> {
    match error {
        SendError::MsgSize | SendError::Io => {
            rqst.fail(error);
            Ok(())
        }
        error => Err(error),
    }
}

/// The sizes of a Call, and of its Reply at most.
#[derive(Clone, Copy)]
struct Sizes {
    /// Those of the Call.
    call: MessageSizes,
    /// Those of the Reply.
    reply: MessageSizes,
    /// Set if the Reply is open, so that it may be longer than the memory for it.
    open: bool,
}

impl Sizes {
    /// The sizes of a Call, and of its Reply if that is as long as the memory for it at most.
    fn closed<T: Host>(rqst: &SendRqst<'_, T>) -> Result<Self, SendError> {
        Ok(Self {
            call: sizes_of(rqst.snd_buf())?,
            reply: sizes_of(rqst.rcv_buf())?,
            open: false,
        })
    }

    /// The sizes of a Call and of its Reply, which may be open.
    fn of<T: Host>(rqst: &SendRqst<'_, T>) -> Result<Self, SendError> {
        let sizes = Self::closed(rqst)?;
        if !sizes.reply.is_open(rqst.rcv_buf().is_read()) {
            return Ok(sizes);
        }
        Ok(Self {
            reply: MessageSizes::OPEN_REPLY,
            open: true,
            ..sizes
        })
    }
}

/// The sizes of a message, and into how many segments it can be cut.
fn message_of(buf: &XdrBuf, sizes: MessageSizes, eligible: bool, cut: &SegmentLimits) -> Message {
    let payload_segments = cut.segments(buf.page_base() % PAGE_SIZE, buf.page_len());
    // Wherever these begin.
    let rest = |len| cut.segments(PAGE_SIZE - 1, len);
    let rest_segments = rest(buf.head_len()) + rest(buf.tail_len());
    Message {
        sizes,
        ddp_eligible: eligible,
        payload_segments,
        rest_segments,
        whole_segments: payload_segments + rest_segments,
    }
}

/// Returns the sizes of a buffer's parts.
fn sizes_of(buf: &XdrBuf) -> Result<MessageSizes, SendError> {
    let size = |len: usize| u32::try_from(len).map_err(|_| SendError::Io);
    Ok(MessageSizes {
        head: size(buf.head_len())?,
        pages: size(buf.page_len())?,
        tail: size(buf.tail_len())?,
    })
}

/// Chooses the format of a Call that needs one chunk, as most do which need any, where there are no
/// parts. [`None`] if it needs more, or if the peer has refused anything.
#[inline]
fn choose_one_chunk<T: Host>(
    rqst: &SendRqst<'_, T>,
    sizes: &Sizes,
    terms: &Terms,
    cut: &SegmentLimits,
) -> Option<CallPlan> {
    let is_usual = terms.has_chunks && terms.usable == Usable::ALL && rqst.reply_expected();
    if terms.version.rules().has_parts || !is_usual {
        return None;
    }
    let ddp_allowed = rqst.ddp_allowed();
    let short = |buf: &XdrBuf, sizes: MessageSizes, eligible: bool, inline| ShortMessage {
        sizes,
        offset: buf.page_base() % PAGE_SIZE,
        places: eligible && ddp_allowed,
        inline,
    };
    let (call, reply) = (rqst.snd_buf(), rqst.rcv_buf());
    format::choose_one_chunk(
        terms.version,
        &short(call, sizes.call, call.is_write(), terms.send_size),
        &short(reply, sizes.reply, reply.is_read(), terms.receive_size),
        cut,
    )
}

/// Chooses the format of a Call and of what it offers for its Reply. Returns the sizes for which it
/// has room, too: if the peer takes no chunk that is long enough for an open Reply, or if there is
/// no memory for one, the offer is as long as the memory for the Reply.
fn choose<T: Host>(
    link: &Link<T::Wire>,
    rqst: &SendRqst<'_, T>,
    sizes: Sizes,
    terms: &Terms,
    cut: &SegmentLimits,
) -> Result<(CallPlan, Sizes), SendError> {
    let chosen = match choose_for(rqst, &sizes, terms, cut) {
        Ok(plan) if !sizes.open || has_reply_buffer(rqst, &plan) => Ok((plan, sizes)),
        Err(fault) if !sizes.open => Err(fault),
        _ => {
            let closed = Sizes::closed(rqst)?;
            choose_for(rqst, &closed, terms, cut).map(|plan| (plan, closed))
        }
    };
    chosen.map_err(|_| {
        // The peer has refused all that is possible. The next Call must not be affected.
        link.channel().forget_refusals();
        SendError::MsgSize
    })
}

/// Returns whether there is a Reply buffer for an open Reply, if a Call in this format needs one.
fn has_reply_buffer<T: Host>(rqst: &SendRqst<'_, T>, plan: &CallPlan) -> bool {
    plan.reply == ReplyFormat::Inline || rqst.reply_buffer(OPEN_REPLY as usize).is_ok()
}

/// Chooses the format of a Call and of what it offers for a Reply of these sizes.
///
/// # Errors
///
/// As for [`format::choose`].
fn choose_for<T: Host>(
    rqst: &SendRqst<'_, T>,
    sizes: &Sizes,
    terms: &Terms,
    cut: &SegmentLimits,
) -> Result<CallPlan, Fault> {
    if let Some(plan) = choose_one_chunk(rqst, sizes, terms, cut) {
        return Ok(plan);
    }
    let call_buf = rqst.snd_buf();
    let call = message_of(call_buf, sizes.call, call_buf.is_write(), cut);
    // Without chunks nothing can be offered for a Reply, which has to be inline then.
    let reply = if rqst.reply_expected() && terms.has_chunks {
        let reply_buf = rqst.rcv_buf();
        match sizes.open {
            true => Message::open(cut),
            false => message_of(reply_buf, sizes.reply, reply_buf.is_read(), cut),
        }
    } else {
        Message::default()
    };
    let (call_parts, reply_parts) = continuation(terms);
    format::choose(&CallShape {
        version: terms.version,
        call,
        reply,
        call_inline: terms.send_size,
        reply_inline: terms.receive_size,
        call_parts,
        patient_parts: patient_parts(terms),
        reply_parts,
        usable: Usable {
            // So many are registered for one chunk.
            segments: terms.usable.segments.min(MAX_SEGMENTS as usize),
            ..terms.usable
        },
        header_segments: cut.header_segments(),
        answered: rqst.reply_expected(),
        ddp_allowed: rqst.ddp_allowed(),
    })
}

/// Writes and posts a Call, or leaves it idle.
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
    let sizes = Sizes::of(rqst)?;
    let asked = Asked {
        repeatable: is_repeatable(rqst.rcv_buf()),
        ..Asked::default()
    };
    match link.channel().thresholds() {
        Some(thresholds) if thresholds.hold(&sizes.call, &sizes.reply) => {
            post_alone(this, link, rqst, thresholds.version, asked)
        }
        _ => register_and_post(this, link, rqst, sizes, asked),
    }
}

/// Returns whether a Call may be executed twice, if there is room for such a Reply.
///
/// SUNRPC provides pages for what is got from the server, and nothing is changed by getting it but
/// by LAYOUTGET, also with OPEN. These are of NFSv4.1 and later, where the server knows a Call
/// again that has come before.
fn is_repeatable(reply: &XdrBuf) -> bool {
    reply.page_len() > 0
}

/// Writes and posts a Call that is one message without chunks, as its Reply will be.
///
/// # Errors
///
/// As for [`marshal_and_post`].
fn post_alone<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    rqst: &SendRqst<'_, T>,
    version: Version,
    asked: Asked,
) -> Result<(), SendError> {
    let xid = rqst.xid();
    let Some(mut buffer) = link.endpoint().send_buffer() else {
        return Err(wait_for_send_room(this, link, xid, 0, 1));
    };
    let header = PlainHeader {
        version,
        direction: RpcDirection::Call,
        xid,
        credits: link.credits_wanted(),
    };
    let octets = &mut *buffer;
    let header_len = header.encode(octets).map_err(|_| SendError::MsgSize)?;
    let rest = octets.get_mut(header_len..).ok_or(SendError::MsgSize)?;
    let copied = rqst.snd_buf().copy_message(rest);
    let len = header_len + copied.ok_or(SendError::MsgSize)?;
    let (call, stats) = (&rqst.slot().call, &this.requester().stats);
    count_pullup(stats, rqst.snd_buf());

    rqst.stamp();
    // The Reply may be here before the post returns, so the Call must be `Sent` by then: its lock
    // is held over the post, and the Reply's handler waits for it.
    let mut state = call.state().lock();
    if state.stage != Stage::Idle {
        return Err(SendError::NotConnected);
    }
    call.set_xid(xid);
    match link.post(RpcDirection::Call, None, buffer, len, &mut []) {
        Ok(signaled) => {
            // Before the Reply's handler gets the lock.
            trace::post_call(
                this.traced(),
                xid,
                call.index(),
                CallFormat::Inline,
                ReplyFormat::Inline,
                header_len,
                len,
                0,
                signaled,
            );
            state.stage = Stage::Sent;
            state.asked = asked;
            drop(state);
            stats.work_requests.count();
            rqst.count_sent();
            Ok(())
        }
        Err(error) => {
            drop(state);
            if let Unposted::Post(error) = error {
                trace::post_failed(this.traced(), xid, error.into());
            }
            Err(unposted(this, link, xid, error))
        }
    }
}

/// Returns what SUNRPC is told of a Call of one message without chunks that was not posted.
#[cold]
fn unposted<T: Host>(this: &Arc<T>, link: &Link<T::Wire>, xid: u32, error: Unposted) -> SendError {
    match error {
        Unposted::Post(PostError::Full) => wait_for_send_room(this, link, xid, 0, 1),
        Unposted::Post(_) => SendError::NotConnected,
        Unposted::Credits => wait_for_credits(this, link, 1, false),
        // The peer does not take Calls: now or later.
        Unposted::Unsupported => SendError::MsgSize,
    }
}

/// Chooses the form of a Call, registers, writes and posts it, or leaves it idle.
///
/// # Errors
///
/// As for [`marshal_and_post`].
fn register_and_post<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    rqst: &SendRqst<'_, T>,
    sizes: Sizes,
    mut asked: Asked,
) -> Result<(), SendError> {
    // Once, since the peer may tell something else meanwhile.
    let terms = link.terms();
    let cut = link.cut(&terms);
    let (plan, sizes) = choose(link, rqst, sizes, &terms, &cut)?;
    asked.write_len = sizes.reply.pages;
    asked.reply_len = sizes.reply.total().map_err(|_| SendError::Io)?;

    let call = &rqst.slot().call;
    let mut regions = call.begin().map_err(|_| SendError::NotConnected)?;
    let marshal = Marshal {
        this,
        link,
        rqst,
        terms: &terms,
        cut: &cut,
        plan: &plan,
        open: sizes.open,
    };
    let marshaled = match marshal.build(&mut regions, &mut asked) {
        Ok(marshaled) => marshaled,
        Err(error) => {
            call.set_idle(regions);
            return Err(error);
        }
    };
    let Marshaled {
        buffer,
        header_len,
        len,
        parts: before,
    } = marshaled;
    let stats = &this.requester().stats;
    let count = regions.len() as u64;
    rqst.stamp();
    // The Reply may be here before the post returns, so the Call must be `Sent` by then: its lock
    // is held over the post, and the Reply's handler waits for it.
    let mut state = call.state().lock();
    call.set_xid(rqst.xid());
    let parts = plan.parts;
    let posted = link.post(
        RpcDirection::Call,
        before.as_ref(),
        buffer,
        len,
        &mut regions,
    );
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
            state.sent(regions, asked);
            drop(state);
            stats.registrations.add_value(count);
            stats.work_requests.add_value(count + u64::from(parts));
            stats.parts.add_value(u64::from(parts - 1));
            this.requester().patient.end(call.index());
            rqst.count_sent();
            Ok(())
        }
        Err(Unposted::Post(PostError::Refused)) => {
            // The device may have taken a part of the chain. So the regions stay with the Call
            // until the end of the connection, which follows, takes them back.
            state.sent(regions, asked);
            drop(state);
            trace::post_failed(this.traced(), rqst.xid(), PostError::Refused.into());
            Err(SendError::NotConnected)
        }
        Err(error) => {
            drop(state);
            if let Unposted::Post(error) = error {
                trace::post_failed(this.traced(), rqst.xid(), error.into());
            }
            let count = regions.len();
            call.set_idle(regions);
            Err(marshal.unposted(error, count))
        }
    }
}
