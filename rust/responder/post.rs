// SPDX-License-Identifier: GPL-2.0

//! Posting Replies, if there are credits for them where messages are counted, and RDMA Reads.
//!
//! A server leaves what finds no room, or no credit, to the lists of the endpoint
//! (`endpoint/reply.rs`); a client has SUNRPC try again.

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    PostError,
    Pull,
    Reply, //
};
use crate::kext::prelude::*;
use crate::link::channel::Channel;
use crate::proto::session::Refusal;
use crate::responder::call::Pulling;
use crate::responder::stats::Stats;

/// Posts a Reply, or an error, unless it has to wait. What is left of it then has nothing to do
/// with the endpoint.
///
/// # Errors
///
/// See [`PostError`]. After `Full` (others wait, or there is no room or no credit) it is as it was
/// before. Else it can't be posted any more.
#[inline]
pub(crate) fn now<H: EndpointEvents>(
    reply: &mut Reply<H>,
    endpoint: &Arc<Endpoint<H>>,
    channel: &Channel,
    stats: &Stats,
) -> Result<(), PostError> {
    let sending = channel
        .begin(endpoint, reply.outbound())
        .map_err(unadmitted)?;
    // What was not posted stays in `reply`, so nothing of it is dropped before the lock.
    reply.may_invalidate(sending.may_invalidate());
    let place = endpoint.post_reply(reply, sending.credits())?;
    sending.commit();
    note(reply, place, stats);
    Ok(())
}

/// Posts the Replies that wait, as long as there are room and credits.
///
/// # Errors
///
/// As for [`now`], but not `Full`.
pub(crate) fn flush<H: EndpointEvents>(
    endpoint: &Arc<Endpoint<H>>,
    channel: &Channel,
    stats: &Stats,
) -> Result<(), PostError> {
    loop {
        let sending = match channel.begin_next(|| endpoint.next_reply(), endpoint) {
            Ok(Some(sending)) => sending,
            Ok(None) => return Ok(()),
            Err(refusal) => match unadmitted(refusal) {
                PostError::Full => return Ok(()),
                error => return Err(error),
            },
        };
        let (reply, posted) = endpoint.post_next_reply(sending.credits(), sending.may_invalidate());
        if posted.is_ok() {
            sending.commit();
        } else {
            drop(sending);
        }
        // The lock is gone.
        match (reply, posted) {
            (Some(reply), Ok(place)) => note(&reply, place, stats),
            // A Call has taken the room.
            (_, Ok(_) | Err(PostError::Full)) => return Ok(()),
            (_, Err(error)) => return Err(error),
        }
    }
}

/// Posts the Reads of a Call, or leaves them to be posted. Sleeps. [`EndpointEvents::pulled`] is
/// called when they are done.
///
/// # Errors
///
/// See [`PostError`]. It is `Full` if too many wait.
pub(crate) fn reads<H: EndpointEvents<Pull = Pulling<H>>>(
    pull: KBox<Pull<H>>,
    endpoint: &Arc<Endpoint<H>>,
    stats: &Stats,
) -> Result<(), PostError> {
    let (xid, load) = (pull.keeper().xid(), pull.load());
    let posted = endpoint.post_pull(pull)?;
    stats.reads_posted(xid, load);
    if !posted {
        stats.send_queue_full(xid);
    }
    Ok(())
}

/// Why a Reply that was not admitted is not posted.
#[cold]
fn unadmitted(refusal: Refusal) -> PostError {
    match refusal {
        Refusal::Wait => PostError::Full,
        // It would wait forever.
        Refusal::TooLong | Refusal::Unsupported | Refusal::NotConnected => PostError::Closed,
    }
}

/// Reports a Reply that was posted.
#[inline]
fn note<H: EndpointEvents>(reply: &Reply<H>, place: u64, stats: &Stats) {
    stats.replied(reply.xid, reply.len, reply.load(), reply.invalidate, place);
}
