// SPDX-License-Identifier: GPL-2.0

//! Taking a Reply in.

use crate::kext::time::HZ;
use crate::link::assembly::Whole;
use crate::link::channel::{Channel, Collected};
use crate::observe::trace;
use crate::proto::format::Asked;
use crate::proto::message::{self, Version};
use crate::proto::session::{Event, Reason};
use crate::proto::v1::{self, Direction, Prefix};
use crate::proto::v2::{Purpose, RdmaError};
use crate::proto::xdr::Reader;
use crate::requester::call::{CallState, Regions, Segments};
use crate::requester::Host;
use crate::sunrpc::Pinned;
use crate::verbs::endpoint::{Endpoint, Received};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

/// How long to wait at least before a connection is replaced on which nothing came that is of use, or that had to end for
/// what came instead of a Reply, in jiffies.
const SPOILT_DELAY: usize = HZ;

/// What a Reply's header says, checked against what was offered. Made before the fence, used after it: the
/// message stays in its Receive buffer in between, where the peer can't reach it.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    /// The RPC message, or what is left of it, is in the message.
    Inline {
        /// Where it begins.
        at: usize,
        /// What the peer wrote into the Write chunk, in octets.
        written: u32,
    },
    /// The whole RPC message is in the Reply chunk (and the Write chunk).
    Placed {
        /// Octets in the Reply chunk.
        len: u32,
        /// Octets in the Write chunk.
        written: u32,
        /// A Write chunk was offered, so the Reply chunk is without the pages.
        split: bool,
    },
    /// The peer reported an error, or its Reply does not fit the Call.
    Failed,
    /// The peer reported an error that another form of the Call may avoid.
    Again,
}

impl Verdict {
    /// For a trace event: what it is, the octets of the RPC message that came inline or in the Reply chunk,
    /// and the octets in the Write chunk.
    fn traced(self, message_len: usize) -> (trace::Verdict, usize, u32) {
        match self {
            Self::Inline { at, written } => {
                let len = message_len.saturating_sub(at);
                (trace::Verdict::Inline, len, written)
            }
            Self::Placed { len, written, .. } => (trace::Verdict::Placed, len as usize, written),
            Self::Failed => (trace::Verdict::Failed, 0, 0),
            Self::Again => (trace::Verdict::Again, 0, 0),
        }
    }
}

/// Where a message stands when the Requester gets it.
pub(crate) enum Source<'a> {
    /// The connection speaks Version One: it may be anything.
    One,
    /// It has not been shown to the connection's session yet: it may be anything.
    New(&'a Channel),
    /// The session has seen it: it is a Reply of Version Two, which may have come in parts.
    Seen(Option<Whole>),
    /// The session has seen it: it is this error of Version Two.
    Failed(RdmaError),
}

/// What is known of a message that ends an RPC.
struct Parsed<'a> {
    /// The transaction ID.
    xid: u32,
    /// The grant of Version One, if it is one.
    credits: Option<u32>,
    /// The Reply. [`None`] if it is an error, or makes no sense.
    reply: Option<message::Reply<'a>>,
    /// The RPC message, if it has come in parts.
    whole: Option<Whole>,
    /// The error, if it is one of Version Two.
    error: Option<RdmaError>,
    /// Whether the connection ends for it. Then the RPC does only if that has happened before.
    spoilt: bool,
}

impl Parsed<'_> {
    /// An error, or what makes no sense.
    fn failed(xid: u32, error: Option<RdmaError>) -> Self {
        Self {
            xid,
            credits: None,
            reply: None,
            whole: None,
            error,
            spoilt: false,
        }
    }
}

/// A message has arrived, on a connection that is all the Requester's.
pub(crate) fn received<T: Host>(this: &Arc<T>, mut message: Received<T::Wire>) {
    let link = this.requester().link_with_channel();
    let Some(channel) = link.as_ref().and_then(|link| link.channel()) else {
        answered(this, message, Source::One);
        return;
    };
    message.count();
    let endpoint = message.endpoint().clone();
    answered(this, message, Source::New(channel));
    act(&**this, channel, &endpoint);
    if channel.is_in_sequence() {
        T::watch(this);
    }
}

/// Does what the session of a connection wants.
pub(crate) fn act<T: Host>(this: &T, channel: &Channel, endpoint: &Arc<Endpoint<T::Wire>>) {
    let outcome = channel.act(endpoint);
    if outcome.wake {
        this.xprt().write_space();
    }
    if let Some(reason) = outcome.close {
        if reason == Reason::BadReply {
            this.requester().stats.bad_replies.count();
            // The next connection may come to the same end.
            this.xprt().set_reestablish_timeout(SPOILT_DELAY);
        }
        this.xprt().force_disconnect();
    }
}

/// A Call of the other direction: its version, and the RPC message if it has come in parts.
type Reverse = (Version, Option<Whole>);

/// Finds out what a message is that has come from `source`. [`None`] if it is no Reply: it has been dealt with, or is a
/// Call, which is put into `reverse`.
fn parse<'a, T: Host>(
    this: &Arc<T>,
    message: &'a Received<T::Wire>,
    source: Source<'_>,
    reverse: &mut Option<Reverse>,
) -> Option<Parsed<'a>> {
    let bytes = message.bytes();
    match source {
        Source::One => parse_one(this, message, reverse),
        Source::Seen(whole) => Some(Parsed {
            xid: Prefix::get(&mut Reader::new(bytes)).ok()?.xid,
            credits: None,
            reply: message::Reply::decode(Version::Two, bytes),
            whole,
            error: None,
            spoilt: false,
        }),
        Source::Failed(error) => {
            let prefix = Prefix::get(&mut Reader::new(bytes)).ok()?;
            Some(Parsed::failed(prefix.xid, Some(error)))
        }
        Source::New(channel) => match channel.receive(bytes) {
            Event::Foreign(_) => parse_one(this, message, reverse),
            Event::Failed { xid, error } => Some(Parsed::failed(xid, Some(error))),
            Event::Message { .. } if !channel.is_settled() => None,
            Event::Message { header, extent } => {
                let whole = match channel.collect(&header, extent) {
                    Collected::All(whole) => whole,
                    Collected::Some | Collected::Refused => return None,
                };
                if header.purpose() != Purpose::Reply {
                    *reverse = Some((Version::Two, whole));
                    return None;
                }
                Some(Parsed {
                    xid: header.xid,
                    credits: None,
                    reply: message::Reply::from_two(&header),
                    whole,
                    error: None,
                    spoilt: false,
                })
            }
            Event::Spoilt { xid } => {
                channel.abandon();
                Some(Parsed {
                    spoilt: true,
                    ..Parsed::failed(xid, None)
                })
            }
            Event::Abandoned { .. } => {
                channel.abandon();
                None
            }
            Event::Properties { host_auth, last } => {
                channel.told(host_auth, last);
                // The timeout of a Call begins before the connection is made; with a delay that grows, it might be over
                // each time that the Call could be sent. Without any, a server that says this much and no more would be
                // connected to over and over.
                this.xprt().set_reestablish_timeout(SPOILT_DELAY);
                None
            }
            Event::Nothing | Event::Fallback { .. } => None,
        },
    }
}

/// As [`parse`], of a message of Version One.
fn parse_one<'a, T: Host>(
    this: &Arc<T>,
    message: &'a Received<T::Wire>,
    reverse: &mut Option<Reverse>,
) -> Option<Parsed<'a>> {
    let stats = &this.requester().stats;
    let header = match v1::decode(message.bytes()) {
        Ok(header) => header,
        Err(error) => {
            let xid = error.prefix.map_or(0, |prefix| prefix.xid);
            trace::decode_error(this.traced(), xid, error.fault, message.bytes().len());
            if error.direction == Some(Direction::Call) {
                T::reverse_error(this, message, &error);
                return None;
            }
            // Too short to say anything: dropped, RFC 8166 section 4.5.
            if error.prefix.is_none() {
                stats.bad_replies.count();
            }
            return error.prefix.map(|prefix| Parsed::failed(prefix.xid, None));
        }
    };
    if header.rpc_direction() == Direction::Call {
        *reverse = Some((Version::One, None));
        return None;
    }
    Some(Parsed {
        xid: header.xid,
        credits: Some(header.credits),
        reply: message::Reply::from_one(&header),
        whole: None,
        error: None,
        spoilt: false,
    })
}

/// A message has taken a memory region away to which it has no right. Nobody knows the state of that region now, so the
/// connection ends.
fn lose_track<T: Host>(this: &T) {
    this.requester().stats.bad_replies.count();
    // The next connection may come to the same end.
    this.xprt().set_reestablish_timeout(SPOILT_DELAY);
    this.xprt().force_disconnect();
}

/// A message has arrived that ends no RPC that is known, and has this transaction ID. If it was for one that was killed, that
/// may be the one that the region was of which it has taken away.
fn stray<T: Host>(this: &T, xid: u32, message: &Received<T::Wire>) {
    let rkey = message.invalidated();
    if rkey.is_some_and(|rkey| this.requester().is_of_another(xid, rkey)) {
        lose_track(this);
    }
}

/// A message has arrived that may be the Reply of a Call.
pub(crate) fn answered<T: Host>(this: &Arc<T>, message: Received<T::Wire>, source: Source<'_>) {
    let stats = &this.requester().stats;
    stats.completions.count();
    let xprt = this.xprt();
    let mut reverse = None;
    let parsed = parse(this, &message, source, &mut reverse);
    if let Some((version, whole)) = reverse {
        drop(parsed);
        if message.invalidated().is_some() {
            // Only Replies may do that, RFC 8797 section 4.1; section 6.5 of the draft.
            lose_track(&**this);
            return;
        }
        T::reverse_call(this, message, version, whole);
        return;
    }
    let Some(Parsed {
        xid,
        credits,
        reply,
        whole,
        error,
        spoilt,
    }) = parsed
    else {
        if message.invalidated().is_some() {
            lose_track(&**this);
        }
        return;
    };

    if !spoilt {
        // The connection works: the next one need not be delayed.
        xprt.set_reestablish_timeout(0);
    }
    let Some(rqst) = xprt.lookup_and_pin(this, xid) else {
        // Duplicate, or of a task that was killed.
        stray(&**this, xid, &message);
        return;
    };
    if let Some(credits) = credits {
        update_credits(this, credits);
    }

    // A reference of its own: the pin moves into the Call's state.
    let slot = rqst.slot().clone();
    let call = &slot.call;
    if spoilt && !call.is_hopeless() {
        // It is sent again on the next connection.
        return;
    }
    let mut state = call.state().lock();
    let (mut regions, asked) = match core::mem::replace(&mut *state, CallState::Busy) {
        CallState::Sent { regions, asked } => (regions, asked),
        other => {
            // Answered already, or not sent yet.
            *state = other;
            drop(state);
            stats.bad_replies.count();
            stray(&**this, xid, &message);
            return;
        }
    };
    if error.is_some_and(|error| !asked.is_meant_by(&error, xid)) {
        *state = CallState::Sent { regions, asked };
        drop(state);
        return;
    }
    let mut verdict = match error {
        Some(error) if this.requester().learn(&error, &asked) => Verdict::Again,
        _ => reply
            .and_then(|reply| judge::<T>(&reply, &regions, asked))
            .unwrap_or(Verdict::Failed),
    };
    let inline_end = match (&whole, verdict) {
        (Some(whole), Verdict::Inline { at, .. }) => whole.bytes().len().saturating_add(at),
        _ => message.bytes().len(),
    };
    let (what, len, written) = verdict.traced(inline_end);
    trace::reply(
        this.traced(),
        xid,
        call.index(),
        credits.unwrap_or(0),
        what,
        len,
        written,
    );

    if let Some(rkey) = message.invalidated() {
        let found = regions
            .iter()
            .position(|region| region.segment().handle == rkey);
        match found.and_then(|at| regions.remove(at).ok()) {
            Some(mut region) => {
                trace::remote_invalidation(this.traced(), xid, rkey);
                stats.remote_invalidations.count();
                // Back to the pool at once; it is clean, so this does not sleep.
                region.fenced_by_peer();
                drop(region);
            }
            // It took something away that was not this Call's.
            None => {
                lose_track(&**this);
                if !call.is_hopeless() {
                    // It is sent again on the next connection.
                    *state = CallState::Sent { regions, asked };
                    drop(state);
                    return;
                }
                verdict = Verdict::Failed;
            }
        }
    }

    if regions.is_empty() {
        *state = CallState::Idle(regions);
        drop(state);
        complete(this, rqst, verdict, message.bytes(), whole.as_ref());
        if asked.segments() > 0 {
            // Somebody may have waited for the region that came back.
            xprt.write_space();
        }
        return;
    }

    let count = regions.len() as u64;
    let endpoint = message.endpoint().clone();
    // The fence may be done before the post returns; its handler waits for the lock.
    match endpoint.post_fence(&mut regions, call.index()) {
        Ok(()) => {
            *state = CallState::Fencing {
                regions,
                verdict,
                message,
                whole,
                rqst,
            };
            drop(state);
            stats.local_invalidations.add_value(count);
            stats.work_requests.add_value(count);
        }
        Err(_) => {
            // The connection is ending, and takes the regions with it. The RPC is sent again.
            *state = CallState::Sent { regions, asked };
            drop(state);
            drop(rqst);
        }
    }
}

/// Notes the credits of a Reply. Nearly all say what the one before has said.
fn update_credits<T: Host>(this: &Arc<T>, credits: u32) {
    let requester = this.requester();
    if requester.granted.load(Relaxed) == u64::from(credits) {
        return;
    }
    let Some(link) = requester.link() else {
        return;
    };
    requester.granted.store(u64::from(credits), Relaxed);
    if let Some(limit) = link.update_credits(credits) {
        trace::credits(this.traced(), credits, limit);
        this.xprt().set_credits(limit);
    }
}

/// The fence of the Call with index `tag` has completed.
pub(crate) fn fenced<T: Host>(this: &Arc<T>, tag: u32, done: bool) {
    let Some(slot) = this.requester().slot(tag).cloned() else {
        return;
    };
    let call = &slot.call;
    let mut state = call.state().lock();
    match core::mem::replace(&mut *state, CallState::Busy) {
        CallState::Fencing {
            regions,
            verdict,
            message,
            whole,
            rqst,
        } if done => {
            drop(state);
            call.set_fenced(regions);
            complete(this, rqst, verdict, message.bytes(), whole.as_ref());
            this.xprt().write_space();
        }
        other => {
            // Not done: the connection is lost, and its end takes a Call in `Fencing` back.
            let killed = matches!(other, CallState::Killed(_));
            *state = other;
            if killed {
                call.wake_killed(done);
            }
        }
    }
}

/// Checks a Reply's header against what its Call offered. [`None`] if it does not fit.
///
/// RFC 8166 sections 3.4.6 and 4.3.3: the Responder returns the chunks that were offered, with the lengths that
/// it used.
fn judge<T: Host>(
    header: &message::Reply<'_>,
    regions: &Regions<T>,
    asked: Asked,
) -> Option<Verdict> {
    let rest = regions.get(asked.call + asked.read..)?;
    let (write, reply) = rest.split_at_checked(asked.write)?;

    let written = match header.write.single() {
        Some(chunk) => chunk.check_returned(Segments::of(write).as_slice()).ok()?,
        None if header.write.is_empty() => 0,
        None => return None,
    };
    let placed = match header.reply {
        Some(chunk) => chunk.check_returned(Segments::of(reply).as_slice()).ok()?,
        None => 0,
    };
    if header.special {
        (placed > 0).then_some(Verdict::Placed {
            len: placed,
            written,
            split: asked.write > 0,
        })
    } else {
        (placed == 0).then_some(Verdict::Inline {
            at: header.header_len,
            written,
        })
    }
}

/// Hands the RPC back to SUNRPC. Every region of the Call is fenced, and the Call is idle: with this the slot
/// may be used again. `whole` is the RPC message, if it has come in parts.
fn complete<T: Host>(
    this: &Arc<T>,
    rqst: Pinned<T>,
    verdict: Verdict,
    message: &[u8],
    whole: Option<&Whole>,
) {
    let stats = &this.requester().stats;
    let delivered = match verdict {
        Verdict::Inline { at, written } => {
            let inline = match whole {
                Some(whole) => whole.bytes(),
                None => message.get(at..).unwrap_or(&[]),
            };
            stats.copied_bytes.add_value(inline.len() as u64);
            stats.bytes_written.add_value(u64::from(written));
            rqst.deliver(inline, written)
        }
        Verdict::Placed {
            len,
            written,
            split,
        } => {
            stats
                .bytes_written
                .add_value(u64::from(len) + u64::from(written));
            if split {
                rqst.deliver_split(len, written)
            } else {
                rqst.deliver_placed(len)
            }
        }
        Verdict::Failed => Err(EIO),
        Verdict::Again => {
            stats.sent_again.count();
            rqst.again();
            return;
        }
    };
    match delivered {
        Ok(len) => rqst.complete(len),
        Err(_) => {
            stats.bad_replies.count();
            rqst.fail(EIO);
        }
    }
}
