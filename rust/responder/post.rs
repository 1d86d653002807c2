// SPDX-License-Identifier: GPL-2.0

//! Posting a Reply: in Version Two as many messages as it takes, if there are credits for them.

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    PostError, //
};
use crate::kext::prelude::*;
use crate::link::channel::{
    Channel,
    Sending, //
};
use crate::link::middles::Unmade;
use crate::proto::message;
use crate::proto::session::{
    Outbound,
    Refusal, //
};
use crate::proto::v2::Direction;
use crate::responder::reply::Ready;

/// Posts a Reply, or an error. Returns its place, see [`Endpoint::post_reply`]. What is left of it
/// then has nothing to do with the endpoint.
///
/// # Errors
///
/// See [`PostError`]. After `Full` (the queue was, or there is no credit) it is as it was before.
/// Else it can't be posted any more.
pub(crate) fn reply<H: EndpointEvents>(
    ready: &mut Ready<H>,
    endpoint: &Arc<Endpoint<H>>,
    channel: &Channel,
) -> Result<u64, PostError> {
    if ready.long.is_some() {
        return in_parts(ready, endpoint, channel);
    }
    let sending = begin(ready, endpoint, channel, 1)?;
    if let Some(credits) = sending.credits() {
        message::set_credits(&mut ready.message, credits);
        // The peer may have said meanwhile that it does not want that, and have been answered.
        ready.invalidate = ready.invalidate.filter(|_| sending.may_invalidate());
    }
    // What was not posted stays in `ready`, so nothing of it is dropped before the lock.
    let posted = endpoint.post_reply(
        &mut [],
        &mut ready.message,
        ready.len,
        &mut ready.cargo,
        ready.invalidate,
    );
    if posted.is_ok() {
        sending.commit();
    }
    posted
}

/// Begins to send a Reply, in `parts` messages.
///
/// # Errors
///
/// `Full` if there is no credit for it now, else `Closed`.
#[inline]
fn begin<'a, H: EndpointEvents>(
    ready: &Ready<H>,
    endpoint: &Endpoint<H>,
    channel: &'a Channel,
    parts: u32,
) -> Result<Sending<'a>, PostError> {
    let message = Outbound {
        direction: Direction::Reply,
        parts,
        chunks: ready.cargo.is_some(),
    };
    channel
        .begin(endpoint, message)
        .map_err(|refusal| match refusal {
            Refusal::Wait | Refusal::TooLong => PostError::Full,
            _ => PostError::Closed,
        })
}

/// As [`reply`], for one in several messages.
#[inline(never)]
fn in_parts<H: EndpointEvents>(
    ready: &mut Ready<H>,
    endpoint: &Arc<Endpoint<H>>,
    channel: &Channel,
) -> Result<u64, PostError> {
    let xid = ready.xid;
    let long = ready.long.as_mut().ok_or(PostError::Closed)?;
    let mut middles = long
        .take_parts(endpoint, xid)
        .map_err(|unmade| match unmade {
            // There will be, when what is posted has been sent.
            Unmade::NoBuffers => PostError::Full,
            Unmade::Impossible => PostError::Closed,
        })?;
    let parts = middles.len().saturating_add(1);
    let posted = begin(ready, endpoint, channel, parts).and_then(|sending| {
        if let Some(credits) = sending.credits() {
            message::set_credits(&mut ready.message, credits);
            middles.set_credits(credits);
        }
        let posted = endpoint.post_reply(
            middles.as_mut_slice(),
            &mut ready.message,
            ready.len,
            &mut ready.cargo,
            ready.invalidate,
        );
        if posted.is_ok() {
            sending.commit();
        }
        posted
    });
    // The lock is gone.
    if let (Err(PostError::Full), Some(long)) = (&posted, &mut ready.long) {
        long.put_parts_back(middles);
    }
    posted
}
