// SPDX-License-Identifier: GPL-2.0

//! Posting a Reply: in Version Two as many messages as it takes, if there are credits for them.

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    PostError,
    SendBuffer, //
};
use crate::kext::prelude::*;
use crate::link::channel::Channel;
use crate::link::middles::{
    Middles,
    Unmade, //
};
use crate::proto::message;
use crate::proto::session::{
    Outbound,
    Refusal, //
};
use crate::proto::v2::Direction;
use crate::responder::reply::Ready;

/// Posts a Reply, or an error. Returns its place, see [`Endpoint::post_reply`].
///
/// # Errors
///
/// See [`PostError`]. If the queue was full, or there is no credit, it comes back with `Full`.
pub(crate) fn reply<H: EndpointEvents>(
    ready: Ready<H>,
    endpoint: &Arc<Endpoint<H>>,
    channel: &Channel,
) -> Result<u64, (PostError, Option<Ready<H>>)> {
    let mut ready = ready;
    let middles = match &mut ready.long {
        None => Ok(Middles::none()),
        Some(long) => long.take_parts(endpoint, ready.xid),
    };
    let mut middles = match middles {
        Ok(middles) => middles,
        // There will be, when what is posted has been sent.
        Err(Unmade::NoBuffers) => return Err((PostError::Full, Some(ready))),
        Err(Unmade::Impossible) => return Err((PostError::Closed, None)),
    };
    let parts = middles.len().saturating_add(1);
    let message = Outbound {
        direction: Direction::Reply,
        parts,
        chunks: ready.cargo.is_some(),
    };
    let sending = match channel.begin(endpoint, message) {
        Ok(sending) => sending,
        Err(Refusal::Wait | Refusal::TooLong) => {
            put_back(&mut ready, middles);
            return Err((PostError::Full, Some(ready)));
        }
        Err(_) => return Err((PostError::Closed, None)),
    };
    // What is posted in its stead is in the parts. To free it may sleep.
    let long = ready.long.take();
    if let Some(credits) = sending.credits() {
        message::set_credits(&mut ready.message, credits);
        middles.set_credits(credits);
    }
    let posted = post_counted(ready, endpoint, middles.as_mut_slice());
    // Before anything is dropped that came back.
    if posted.is_ok() {
        sending.commit();
    } else {
        drop(sending);
    }
    posted.map_err(|(error, back)| {
        let back = back.map(|ready| {
            let mut ready = Ready { long, ..ready };
            put_back(&mut ready, middles);
            ready
        });
        (error, back)
    })
}

/// Gives parts back that were not posted.
fn put_back<H: EndpointEvents>(ready: &mut Ready<H>, parts: Middles<H>) {
    if let Some(long) = &mut ready.long {
        long.put_parts_back(parts);
    }
}

/// Posts a Reply for which there is a credit, and its `parts` before.
///
/// # Errors
///
/// As for [`reply`].
fn post_counted<H: EndpointEvents>(
    ready: Ready<H>,
    endpoint: &Endpoint<H>,
    parts: &mut [Option<(SendBuffer<H>, usize)>],
) -> Result<u64, (PostError, Option<Ready<H>>)> {
    let Ready {
        xid,
        message,
        len,
        cargo,
        invalidate,
        long,
    } = ready;
    let posted = endpoint.post_reply(parts, message, len, cargo, invalidate);
    posted.map_err(|(error, back)| {
        let back = back.map(|(message, cargo)| Ready {
            xid,
            message,
            len,
            cargo,
            invalidate,
            long,
        });
        (error, back)
    })
}
