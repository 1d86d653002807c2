// SPDX-License-Identifier: GPL-2.0

//! Counters, in the meaning that the mountstats line gives them.

use kernel::sync::atomic::{Atomic, Relaxed};

/// One counter.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    /// Zero.
    const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Counts one.
    pub(crate) fn count(&self) {
        self.0.add(1u64, Relaxed);
    }

    /// Counts `value`.
    pub(crate) fn add_value(&self, value: u64) {
        if value != 0 {
            self.0.add(value, Relaxed);
        }
    }

    /// The sum.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Makes [`Stats`] of a list of documented names.
macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a Requester counts, over all its connections.
        pub(crate) struct Stats {
            $($(#[$doc])* pub(crate) $name: Counter,)*
        }

        impl Stats {
            /// All zero.
            pub(crate) const fn new() -> Self {
                Self { $($name: Counter::new(),)* }
            }

            /// Calls `f` with the name and the sum of each counter.
            pub(crate) fn for_each(&self, mut f: impl FnMut(&'static str, u64)) {
                $(f(stringify!($name), self.$name.get());)*
            }
        }
    };
}

stats! {
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
    /// Calls that could not be sent when SUNRPC wanted them sent, for lack of memory or room above all.
    failed_marshal,
    /// Replies that made no sense, and RDMA_ERROR.
    bad_replies,
    /// Calls sent as RDMA_NOMSG.
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
