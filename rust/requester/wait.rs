// SPDX-License-Identifier: GPL-2.0

//! Waiting for room: SUNRPC is told to try again, and called when there is room.

use crate::kext::prelude::*;
use crate::kext::waiting::wait_unless;
use crate::link::Link;
use crate::observe::trace;
use crate::proto::v2::Direction as RpcDirection;
use crate::requester::Host;
use crate::sunrpc::SendError;

/// The Send Queue is full, or there are too few Send buffers: SUNRPC shall call again when there is
/// room for a message in so many `parts` with `regions` registrations.
pub(crate) fn wait_for_send_room<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    xid: u32,
    regions: usize,
    parts: u32,
) -> SendError {
    trace::send_queue_full(this.traced(), xid);
    this.requester().stats.send_queue_full.count();
    // To ask for less room than is needed would have SUNRPC call again and again.
    let room = || link.endpoint().has_send_room(regions, parts);
    wait_unless(this.xprt(), room);
    SendError::Again
}

/// The peer has promised no Receives for a Call in so many `parts`: SUNRPC shall call again when it
/// has.
pub(super) fn wait_for_credits<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    parts: u32,
    chunks: bool,
) -> SendError {
    this.requester().stats.credit_waits.count();
    T::watch(this);
    let admitted = || link.admits(RpcDirection::Call, parts, chunks);
    wait_unless(this.xprt(), admitted);
    SendError::Again
}

/// The pool is empty: SUNRPC shall call again when there are more regions.
pub(super) fn wait_for_regions<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    xid: u32,
) -> SendError {
    trace::out_of_regions(this.traced(), xid);
    let made = || {
        T::want_regions(this);
        link.endpoint().has_region()
    };
    wait_unless(this.xprt(), made);
    SendError::Again
}
