// SPDX-License-Identifier: GPL-2.0

//! The traces of a Responder's work: trace events, and counters.

use crate::endpoint::Load;
use crate::kext::prelude::*;
use crate::observe::counters::counters;
use crate::observe::trace::{
    self,
    Answer,
    Number,
    RefusalReason, //
};
use crate::proto::message::{
    ChunkKind,
    Header,
    Short, //
};
use crate::sunrpc::svc::counters::{
    count,
    ServerCounter, //
};
use kernel::error::Error;

counters! {
    /// The counters of one connection.
    Counts:
    /// Calls that threads have taken in.
    calls,
    /// Replies posted, and each RDMA_ERROR in the place of one.
    replies,
    /// Segments read.
    reads,
    /// Octets of them.
    read_octets,
    /// RDMA Writes posted.
    writes,
    /// Octets of them.
    written_octets,
    /// Handles of the peer that Replies invalidated.
    invalidations,
    /// Messages refused, and Calls whose Reply was RDMA_ERROR.
    refused,
    /// Replies that could not grant more, because there were no Receives for it.
    grants_denied,
    /// Times that something waited for a Send buffer or for room in the Send Queue.
    send_queue_full,
    /// Times that something waited for memory regions.
    out_of_regions,
    /// Times that no further Call was taken in because RDMA Reads and Writes had as many pages as
    /// they may, those of this connection or of all.
    transfers_full,
}

/// The counters of one connection, and whose they are.
pub(crate) struct Stats {
    /// Which connection it is.
    number: Number,
    /// Calls that exist: taken in, and neither answered and forgotten nor given up.
    in_work: Atomic<u32>,
    /// The counters.
    pub(crate) counts: Counts,
}

impl Stats {
    /// Nothing counted yet.
    pub(crate) const fn new(number: Number) -> Self {
        Self {
            number,
            in_work: Atomic::new(0),
            counts: Counts::new(),
        }
    }

    /// Returns the number of Calls at the moment.
    pub(crate) fn in_work(&self) -> u32 {
        self.in_work.load(Relaxed)
    }

    /// A Call was taken in: a message of `len` octets.
    #[inline]
    pub(super) fn call(&self, call: &Header<'_>, len: usize) {
        self.counts.calls.count();
        trace::call(
            self.number,
            call.xid,
            len,
            call.credits,
            call.reads().count(),
            call.write_list().len(),
            call.reply_chunk().map_or(0, |chunk| chunk.len()),
            call.is_external(),
        );
    }

    /// As [`Self::call`], for one with one chunk of one segment at most.
    #[inline]
    pub(super) fn short_call(&self, call: &Short, len: usize) {
        self.counts.calls.count();
        let kind = call.chunk.map(|chunk| chunk.kind);
        let is = |wanted: fn(ChunkKind) -> bool| usize::from(kind.is_some_and(wanted));
        trace::call(
            self.number,
            call.xid,
            len,
            call.credits,
            is(ChunkKind::is_read),
            is(|kind| kind == ChunkKind::Write),
            is(|kind| kind == ChunkKind::Reply),
            false,
        );
    }

    /// A message of `len` octets is refused, or its Reply is RDMA_ERROR.
    pub(crate) fn refused(&self, xid: u32, answer: Answer, why: RefusalReason, len: usize) {
        self.counts.refused.count();
        trace::refuse(self.number, xid, answer, why, len);
    }

    /// Counts messages that the session of Version Two has refused and answered.
    pub(crate) fn refused_at_once(&self, messages: u32) {
        if messages > 0 {
            self.counts.refused.add_value(messages.into());
        }
    }

    /// The Reads of a Call are with the Send Queue.
    pub(crate) fn reads_posted(&self, xid: u32, load: Load) {
        self.counts.reads.add_value(load.transfers.into());
        self.counts.read_octets.add_value(load.octets.into());
        count(ServerCounter::Reads, load.transfers.into());
        trace::read_post(self.number, xid, load.transfers, load.octets, load.requests);
    }

    /// They have completed.
    pub(crate) fn reads_done(&self, xid: u32) {
        trace::read_done(self.number, xid);
    }

    /// A Reply of `len` octets was posted, or an RDMA_ERROR, with the Writes of `load`.
    pub(crate) fn replied(
        &self,
        xid: u32,
        len: usize,
        load: Load,
        invalidate: Option<u32>,
        sequence: u64,
    ) {
        self.counts.replies.count();
        self.counts.writes.add_value(load.transfers.into());
        self.counts.written_octets.add_value(load.octets.into());
        self.counts
            .invalidations
            .add_value(invalidate.is_some().into());
        count(ServerCounter::Writes, load.transfers.into());
        trace::post_reply(
            self.number,
            xid,
            len,
            load.transfers,
            load.octets,
            load.requests,
            invalidate.unwrap_or(0),
            sequence,
        );
    }

    /// A Reply could not be sent.
    pub(crate) fn reply_failed(&self, xid: u32, error: Error) {
        trace::reply_failed(self.number, xid, error.to_errno());
    }

    /// Replies carry another grant from now on.
    pub(crate) fn granted(&self, credits: u32) {
        trace::grant(self.number, credits, self.in_work());
    }

    /// The peer would use more credits, but there are no Receives for them.
    pub(crate) fn grant_denied(&self) {
        self.counts.grants_denied.count();
    }

    /// Something waits for a Send buffer, or for room in the Send Queue.
    pub(crate) fn send_queue_full(&self, xid: u32) {
        self.counts.send_queue_full.count();
        count(ServerCounter::SendQueueFull, 1);
        trace::send_queue_full(self.number, xid);
    }

    /// RDMA Reads and Writes have as many pages as they may.
    pub(crate) fn transfers_full(&self) {
        self.counts.transfers_full.count();
    }

    /// Something waits for memory regions.
    pub(crate) fn out_of_regions(&self, xid: u32) {
        self.counts.out_of_regions.count();
        trace::out_of_regions(self.number, xid);
    }
}

/// Counts one Call as in work while it exists.
pub(super) struct InWork(Arc<Stats>);

impl InWork {
    /// There is one more.
    pub(super) fn new(stats: &Arc<Stats>) -> Self {
        stats.in_work.add(1u32, Relaxed);
        Self(stats.clone())
    }

    /// Where it is counted.
    pub(super) fn stats(&self) -> &Arc<Stats> {
        &self.0
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.in_work.fetch_sub(1u32, Relaxed);
    }
}
