// SPDX-License-Identifier: GPL-2.0

//! Taking a Reply in.

use crate::endpoint::{
    EndpointEvents,
    FencedRegion,
    Received,
    RegionHandle, //
};
use crate::kext::prelude::*;
use crate::kext::time::HZ;
use crate::kext::waiting::Waiting;
use crate::link::assembly::Whole;
use crate::link::channel::incoming::Delivery;
use crate::link::channel::Channel;
use crate::link::Link;
use crate::observe::trace;
use crate::proto::connection::incoming::Answer;
use crate::proto::format::Asked;
use crate::proto::message;
use crate::proto::session::Reason;
use crate::proto::v1::{
    DecodeError,
    Direction, //
};
use crate::requester::call::{
    Call,
    Fencing,
    Regions,
    Stage, //
};
use crate::requester::verdict::{
    Place,
    Verdict, //
};
use crate::requester::{
    Host,
    Requester, //
};
use crate::sunrpc::Pinned;

/// The shortest wait before a connection is replaced on which nothing came that is of use,
/// or that had to end for what came instead of a Reply, in jiffies.
const SPOILT_DELAY: usize = HZ;

/// The regions of a Call that the peer has invalidated: by the last part of its Reply, and by one
/// before. They are still mapped.
type Invalidated<T> = [Option<FencedRegion<<T as Host>::Wire>>; 2];

/// An RPC that has got its answer.
pub(crate) struct Ended<T: Host> {
    /// The regions that the peer has invalidated. In front of the pin, which keeps the memory: if
    /// this is dropped as a whole, they are unmapped first.
    invalidated: Invalidated<T>,
    /// The RPC. Its Call is idle, or, with regions to fence, busy.
    rqst: Pinned<T>,
    /// What the Call makes of the answer.
    outcome: Outcome,
}

/// What the Call makes of an answer that ends its RPC.
#[derive(Clone, Copy)]
struct Outcome {
    /// The verdict on the answer.
    verdict: Verdict,
    /// Set if there are regions that the peer has not invalidated.
    needs_fence: bool,
    /// Set if there were regions.
    had_regions: bool,
}

/// Why an answer ends no RPC.
enum Unended {
    /// The Call was answered already, or not sent yet.
    Stray,
    /// The RPC waits for another answer, or is sent again on the next connection.
    Waits,
}

/// Takes a message in, on a connection that is all the Requester's. Sleeps.
pub(crate) fn received<T: Host>(this: &Arc<T>, message: Received<T::Wire>) {
    this.requester().stats.completions.count();
    // Nothing that is expected comes before the connection is published, or after its end.
    let Some(link) = this.requester().link() else {
        return;
    };
    take_in(this, message, link.channel());
    act(&**this, &link);
    if link.channel().needs_check() {
        T::watch(this);
    }
}

/// Takes a message in.
fn take_in<T: Host>(this: &Arc<T>, mut message: Received<T::Wire>, channel: &Channel) {
    let held = channel.count(&mut message);
    let delivery = channel.deliver(message.bytes(), held, true);
    let (ended, whole) = match delivery {
        Delivery::Answer(answer, whole) => (accept(this, &message, &answer, whole.as_ref()), whole),
        // Only Replies may take a memory region away, RFC 8797 section 4.1; section 6.5 of the
        // draft.
        Delivery::Call(version, whole) if message.invalidated().is_none() => {
            T::reverse_call(this, message, version, whole);
            return;
        }
        Delivery::Part(xid) if note_part(&**this, channel, xid, message.invalidated()) => return,
        other => (take_rest(this, &message, &other), None),
    };
    if let Some(ended) = ended {
        finish(this, message, ended, whole);
    }
}

/// Takes a message in that is neither an answer nor a Call that may be taken in.
#[cold]
fn take_rest<T: Host>(
    this: &Arc<T>,
    message: &Received<T::Wire>,
    delivery: &Delivery<'_>,
) -> Option<Ended<T>> {
    match delivery {
        Delivery::Bad(error) => {
            if let Some(answer) = unreadable(this, message, error) {
                return accept(this, message, &answer, None);
            }
        }
        Delivery::Properties | Delivery::Optional(_) => {
            if let Delivery::Optional(credits) = delivery {
                if let Some(credits) = credits {
                    update_credits(this, *credits);
                }
                weigh_credits(&**this);
            }
            // The timeout of a Call begins before the connection is made; with a delay that grows,
            // it might be over each time that the Call could be sent. Some is left: without any, a
            // server that says this much and no more would be connected to over and over. There is
            // none any more on a connection that has had a Reply, which works.
            this.xprt().shorten_reestablish_timeout(SPOILT_DELAY);
        }
        Delivery::Call(..) | Delivery::Answer(..) | Delivery::Part(_) | Delivery::Nothing => {}
    }
    if message.invalidated().is_some() {
        lose_track(&**this);
    }
    None
}

/// Takes a message of Version One in that can't be decoded. Returns what it is if it may answer a
/// Call of ours.
///
/// Where nothing shows its direction it is taken for an answer to the Call with this transaction
/// ID, which fails: to keep silent about it would have the RPC wait until its timeout. A peer that
/// can send such a message can answer the Call with an error as well.
pub(crate) fn unreadable<T: Host>(
    this: &Arc<T>,
    message: &Received<T::Wire>,
    error: &DecodeError,
) -> Option<Answer<'static>> {
    let xid = error.prefix.map_or(0, |prefix| prefix.xid);
    trace::decode_error(this.traced(), xid, error.fault, message.bytes().len());
    if error.direction == Some(Direction::Call) {
        T::reverse_error(this, message, error);
        return None;
    }
    // Too short to say anything: dropped, RFC 8166 section 4.5.
    if error.prefix.is_none() {
        this.requester().stats.bad_replies.count();
    }
    error.prefix.map(|prefix| Answer::failed(prefix.xid, None))
}

/// Does what the session of a connection wants.
pub(crate) fn act<T: Host>(this: &T, link: &Link<T::Wire>) {
    let outcome = link.channel().act(link.endpoint());
    // Before that, the connect worker reports it.
    if outcome.agreed && this.xprt().is_connected() {
        Requester::tell_agreement(this);
    }
    if outcome.wake {
        this.xprt().wake();
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

/// A message has taken a memory region away to which it has no right. Nobody knows the state of
/// that region now, so the connection ends.
fn lose_track<T: Host>(this: &T) {
    this.requester().stats.bad_replies.count();
    // The next connection may come to the same end.
    this.xprt().set_reestablish_timeout(SPOILT_DELAY);
    this.xprt().force_disconnect();
}

/// A part of a Reply has come. Returns whether it has invalidated nothing, or a handle that may be
/// one of this RPC, which is told when the Reply is there.
fn note_part<T: Host>(this: &T, channel: &Channel, xid: u32, invalidated: Option<u32>) -> bool {
    let is_of_another = |rkey| this.requester().is_of_another(xid, rkey);
    !invalidated.is_some_and(is_of_another) && channel.note_part(invalidated)
}

/// Returns the handles that a message has invalidated, and the parts that came before it.
fn handles_taken<W: EndpointEvents>(
    message: &Received<W>,
    whole: Option<&Whole>,
) -> impl Iterator<Item = u32> {
    let before = whole.and_then(Whole::invalidated);
    [message.invalidated(), before].into_iter().flatten()
}

/// A message has arrived that ends no RPC that is known, and has this transaction ID. If it was for
/// one that was killed, that may be the one that the regions were of which were taken away.
fn stray<T: Host>(this: &T, xid: u32, mut taken: impl Iterator<Item = u32>) {
    if taken.any(|rkey| this.requester().is_of_another(xid, rkey)) {
        lose_track(this);
    }
}

/// Takes an answer in: finds its RPC, and checks that what was returned fits what was offered.
/// Nothing is returned if it ends no RPC, or the connection ends for it and the RPC is sent again.
/// Otherwise [`finish`] has to follow. `whole` is the RPC message, if it has come in parts.
pub(crate) fn accept<T: Host>(
    this: &Arc<T>,
    message: &Received<T::Wire>,
    answer: &Answer<'_>,
    whole: Option<&Whole>,
) -> Option<Ended<T>> {
    let xid = answer.xid;
    let (stats, xprt) = (&this.requester().stats, this.xprt());
    if !answer.ends_connection {
        xprt.forget_failures();
    }
    // Whatever became of the Call: its task may have been killed, and nothing else be under way.
    if let Some(credits) = answer.credits {
        update_credits(this, credits);
    }
    let Some(rqst) = xprt.lookup_and_pin(this, xid) else {
        // Duplicate, or of a task that was killed.
        stray(&**this, xid, handles_taken(message, whole));
        return None;
    };

    let call = &rqst.slot().call;
    if answer.ends_connection && !call.is_hopeless() {
        // It is sent again on the next connection.
        return None;
    }
    let mut invalidated = [None, None];
    match weigh(this, call, message, answer, whole, &mut invalidated) {
        Ok(outcome) => {
            this.requester().latencies.count(rqst.round_trip());
            Some(Ended {
                rqst,
                outcome,
                invalidated,
            })
        }
        Err(Unended::Stray) => {
            stats.bad_replies.count();
            stray(&**this, xid, handles_taken(message, whole));
            None
        }
        Err(Unended::Waits) => None,
    }
}

/// Weighs an answer against its Call, under the lock of that. The regions that the peer has
/// invalidated go to `invalidated`, for the caller to unmap.
fn weigh<T: Host>(
    this: &Arc<T>,
    call: &Call<T>,
    message: &Received<T::Wire>,
    answer: &Answer<'_>,
    whole: Option<&Whole>,
    invalidated: &mut Invalidated<T>,
) -> Result<Outcome, Unended> {
    let xid = answer.xid;
    let mut guard = call.state().lock();
    let state = &mut *guard;
    if state.stage != Stage::Sent {
        return Err(Unended::Stray);
    }
    let (regions, asked) = (&mut state.regions, &state.asked);
    if answer
        .error
        .is_some_and(|error| !asked.is_meant_by(&error, xid))
    {
        return Err(Unended::Waits);
    }
    let mut verdict = match answer.error {
        Some(error) if this.requester().learn(&error, asked) => Verdict::Again,
        _ => answer
            .reply
            .as_ref()
            .and_then(|reply| judge::<T>(reply, regions, asked))
            .unwrap_or(Verdict::Failed),
    };
    trace_reply(this, call, answer, verdict, message, whole);

    let had_regions = !regions.is_empty();
    let mut taken = handles_taken(message, whole).zip(invalidated);
    let is_wrong = taken.any(|(rkey, place)| {
        *place = take_invalidated(&**this, xid, rkey, regions);
        place.is_none() || answer.refuses_invalidation
    });
    if is_wrong {
        // It took something away that was not this Call's, or that it was not to take.
        lose_track(&**this);
        if !call.is_hopeless() {
            // It is sent again on the next connection.
            return Err(Unended::Waits);
        }
        verdict = Verdict::Failed;
    }
    let needs_fence = !regions.is_empty();
    // Nobody else works on the Call before `finish`: the RPC is pinned.
    state.stage = if needs_fence {
        Stage::Busy
    } else {
        Stage::Idle
    };
    Ok(Outcome {
        verdict,
        needs_fence,
        had_regions,
    })
}

/// Raises the trace event of an answer with its verdict.
#[inline]
fn trace_reply<T: Host>(
    this: &Arc<T>,
    call: &Call<T>,
    answer: &Answer<'_>,
    verdict: Verdict,
    message: &Received<T::Wire>,
    whole: Option<&Whole>,
) {
    let message_len = match (whole, verdict) {
        (Some(whole), Verdict::Inline { at, .. }) => whole.bytes().len().saturating_add(at),
        _ => message.bytes().len(),
    };
    let (what, len, written) = verdict.traced(message_len);
    let credits = answer.credits.unwrap_or(0);
    trace::reply(
        this.traced(),
        answer.xid,
        call.index(),
        credits,
        what,
        len,
        written,
    );
}

/// Takes the region with an R_key that the peer has invalidated out of those of a Call. [`None`] if
/// it is not there.
fn take_invalidated<T: Host>(
    this: &T,
    xid: u32,
    rkey: u32,
    regions: &mut Regions<T>,
) -> Option<FencedRegion<T::Wire>> {
    let mut handles = regions.iter().map(|region| region.segment().handle);
    let found = handles.position(|handle| handle == rkey)?;
    let region = regions.remove(found).ok()?;
    trace::remote_invalidation(this.traced(), xid, rkey);
    this.requester().stats.remote_invalidations.count();
    Some(region.fenced_by_peer())
}

/// Completes an RPC that has got its answer in `message`, now or when what the peer did not
/// invalidate is fenced.
/// `whole` is the RPC message, if it has come in parts.
pub(crate) fn finish<T: Host>(
    this: &Arc<T>,
    message: Received<T::Wire>,
    ended: Ended<T>,
    whole: Option<Whole>,
) {
    let Ended {
        rqst,
        outcome,
        invalidated,
    } = ended;
    // Before anybody looks at the memory.
    drop(invalidated);
    if outcome.needs_fence {
        fence(this, message, rqst, outcome.verdict, whole);
        return;
    }
    let whole = whole.as_ref();
    complete(this, rqst, outcome.verdict, message.bytes(), whole);
    if outcome.had_regions {
        // Somebody may have waited for the region that came back.
        this.xprt().wake();
    }
}

/// Has the regions fenced that the peer did not invalidate. [`fenced`] completes the RPC.
fn fence<T: Host>(
    this: &Arc<T>,
    message: Received<T::Wire>,
    rqst: Pinned<T>,
    verdict: Verdict,
    whole: Option<Whole>,
) {
    // A reference of its own: the pin moves into the Call's state.
    let slot = Arc::clone(rqst.slot());
    let (call, stats) = (&slot.call, &this.requester().stats);
    let endpoint = message.endpoint().clone();
    let mut state = call.state().lock();
    let count = state.regions.len() as u64;
    // The fence may be done before the post returns; its handler waits for the lock.
    match endpoint.post_fence(&mut state.regions, call.index()) {
        Ok(()) => {
            state.fenced_with(Fencing {
                verdict,
                message,
                whole,
                rqst,
            });
            drop(state);
            Requester::watch_fences(this);
            stats.local_invalidations.add_value(count);
            stats.work_requests.add_value(count);
        }
        Err(_) => {
            // The connection is ending, and takes the regions with it. The RPC is sent again.
            state.stage = Stage::Sent;
            drop(state);
            drop(rqst);
        }
    }
}

/// Notes the credits of a Reply, or what else grants some. Nearly all say what the one before has
/// said.
#[inline]
pub(crate) fn update_credits<T: Host>(this: &Arc<T>, credits: u32) {
    if this.requester().granted.load(Relaxed) != u64::from(credits) {
        change_credits(this, credits);
    }
}

/// Notes credits that are not those of the Reply before.
#[inline(never)]
fn change_credits<T: Host>(this: &Arc<T>, credits: u32) {
    let requester = this.requester();
    let Some(link) = requester.link() else {
        return;
    };
    requester.granted.store(u64::from(credits), Relaxed);
    let limit = link.channel().granted(credits);
    trace::credits(this.traced(), credits, limit);
    this.xprt().set_credits(limit);
}

/// Compares the Calls that have a credit with those that may have one now: an answer which says
/// that we know how many these are waits until all others have ended. They may not have been sent
/// yet, and the peer has Receives for them so long.
#[cold]
pub(crate) fn weigh_credits<T: Host>(this: &T) {
    let Some(link) = this.requester().link() else {
        return;
    };
    let limit = link.channel().call_limit() as usize;
    let is_held = this.xprt().credits_in_use() > limit;
    link.channel().hold_answers(is_held);
}

/// The fence of the Call with index `tag` has completed.
pub(crate) fn fenced<T: Host>(this: &Arc<T>, tag: u32, done: bool) {
    let Some(slot) = this.requester().slot(tag).cloned() else {
        return;
    };
    let call = &slot.call;
    let mut state = call.state().lock();
    if state.stage == Stage::Killed {
        call.wake_killed(done);
        return;
    }
    // If it is not done the connection is lost, and its end takes a Call in `Fencing` back.
    if !done {
        return;
    }
    let Some(fencing) = state.take_fencing() else {
        return;
    };
    let Fencing {
        verdict,
        message,
        whole,
        rqst,
    } = fencing;
    let regions = state.take_regions();
    drop(state);
    call.set_fenced(regions);
    complete(this, rqst, verdict, message.bytes(), whole.as_ref());
    this.xprt().wake();
}

/// Checks a Reply's header against what its Call offered. [`None`] if it does not fit.
fn judge<T: Host>(
    header: &message::Reply<'_>,
    regions: &Regions<T>,
    asked: &Asked,
) -> Option<Verdict> {
    let rest = regions.get(asked.call + asked.read..)?;
    let (write, reply) = rest.split_at_checked(asked.write)?;
    let offered = |regions| <[_]>::iter(regions).map(RegionHandle::segment);
    let message::Returned { written, placed } = header.returned(offered(write), offered(reply))?;
    if header.special {
        (placed > 0).then_some(Verdict::Placed {
            len: placed,
            written,
            place: match asked.reply_buffer {
                true => Place::Buffer,
                false if asked.write > 0 => Place::Split,
                false => Place::Whole,
            },
        })
    } else {
        (placed == 0).then_some(Verdict::Inline {
            at: header.header_len,
            written,
        })
    }
}

/// Hands the RPC back to SUNRPC. Every region of the Call is fenced, and the Call is idle: with
/// this the slot may be used again. `whole` is the RPC message, if it has come in parts.
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
            place,
        } => {
            stats
                .bytes_written
                .add_value(u64::from(len) + u64::from(written));
            match place {
                Place::Whole => rqst.deliver_placed(len),
                Place::Split => rqst.deliver_split(len, written),
                Place::Buffer => {
                    stats.copied_bytes.add_value(u64::from(len));
                    rqst.deliver_buffered(len)
                }
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
        Ok(len) => rqst.complete(this, len),
        Err(_) => {
            stats.bad_replies.count();
            rqst.fail(EIO);
        }
    }
}
