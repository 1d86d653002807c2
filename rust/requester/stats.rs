// SPDX-License-Identifier: GPL-2.0

//! Counters, in the meaning that the mountstats line gives them.

use crate::observe::counters::counters;

counters! {
    /// The counters of a Requester, over all its connections.
    Stats:
    /// Segments of Read chunks.
    read_segments,
    /// Segments of Write chunks.
    write_segments,
    /// Segments of Reply chunks.
    reply_segments,
    /// Octets offered to the peer for RDMA Writes.
    bytes_offered,
    /// Octets that the peer wrote.
    bytes_written,
    /// Octets copied into Send buffers out of pages and tails.
    pullup_bytes,
    /// Octets copied out of Receive buffers.
    copied_bytes,
    /// Octets by which buffers of slots had to grow.
    hardway_bytes,
    /// Calls that could not be sent when SUNRPC wanted them sent, for lack of memory or room above
    /// all.
    failed_marshal,
    /// Replies that made no sense, and RDMA_ERROR.
    bad_replies,
    /// Calls sent again in another form, because of an error that the peer reported.
    sent_again,
    /// Calls sent as RDMA_NOMSG or RDMA2_CALL_EXTERNAL.
    nomsg_calls,
    /// Regions deregistered because they could not be fenced otherwise.
    regions_recycled,
    /// Regions that Calls still held when their connection ended.
    regions_orphaned,
    /// Regions allocated.
    regions_allocated,
    /// Regions registered.
    registrations,
    /// Regions that we had to invalidate ourselves.
    local_invalidations,
    /// Regions that the peer invalidated.
    remote_invalidations,
    /// Times that a message found no free Send buffer, or no room in the Send Queue.
    send_queue_full,
    /// Messages sent before the last part of a Call.
    parts,
    /// Times that a message found no credit in Version Two.
    credit_waits,
    /// Reverse-direction Calls.
    reverse_calls,
    /// Send Queue work requests posted.
    work_requests,
    /// Completions handled with success: of Receives, signaled Sends and fences.
    completions,
}
