// SPDX-License-Identifier: GPL-2.0

//! Waiting for room: SUNRPC is told to try again, and called when there is room.

use crate::link::Link;
use crate::observe::trace;
use crate::proto::v2::Direction as RpcDirection;
use crate::requester::Host;
use crate::sunrpc::SendError;
use kernel::sync::Arc;

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
    this.xprt().wait_for_buffer_space();
    // A completion may have come before the flag was set, and the next one may be far. To ask for
    // less room than is needed would have SUNRPC call again and again.
    if link.endpoint().has_send_room(regions, parts) {
        this.xprt().write_space();
    }
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
    this.xprt().wait_for_buffer_space();
    // The credits may have come before the flag was set.
    if link.admits(RpcDirection::Call, parts, chunks) {
        this.xprt().write_space();
    }
    SendError::Again
}

/// The pool is empty: SUNRPC shall call again when there are more regions.
pub(super) fn wait_for_regions<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    xid: u32,
) -> SendError {
    trace::out_of_regions(this.traced(), xid);
    this.xprt().wait_for_buffer_space();
    T::want_regions(this);
    if link.endpoint().has_region() {
        this.xprt().write_space();
    }
    SendError::Again
}
