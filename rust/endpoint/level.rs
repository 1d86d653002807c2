// SPDX-License-Identifier: GPL-2.0

//! The use of an endpoint's queues, for debugfs. Nothing is decided by that.

use crate::endpoint::{
    receive_pool::PoolLevel,
    Endpoint,
    EndpointEvents, //
};
use crate::kext::prelude::*;

/// The use of a Send Queue at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendQueueUse {
    /// Work requests that are posted.
    pub(crate) posted: u32,
    /// Work requests that room is kept for.
    pub(crate) reserved: u32,
    /// Send buffers that there are.
    pub(crate) buffers: u32,
    /// Those of them that are neither posted nor lent out.
    pub(crate) free_buffers: usize,
    /// RDMA Reads and Writes that exist, posted or not.
    pub(crate) transfers: usize,
    /// Calls whose RDMA Reads are posted.
    pub(crate) pulls: usize,
}

/// The Receives that the peer may use at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceiveUse {
    /// Receives that this endpoint has asked for, where they are shared.
    pub(crate) asked: u32,
    /// All that share them.
    pub(crate) pool: PoolLevel,
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Returns the use of the Send Queue.
    pub(crate) fn send_queue_use(&self) -> SendQueueUse {
        let gate = self.send.lock();
        let (posted, reserved) = gate.queue.used();
        SendQueueUse {
            posted,
            reserved,
            buffers: gate.queue.buffers(),
            free_buffers: gate.free.len(),
            transfers: gate.transfers,
            pulls: gate.queue.reads(),
        }
    }

    /// Returns the use of the Shared Receive Queue; [`None`] if the endpoint has Receives of its
    /// own.
    pub(crate) fn receive_use(&self) -> Option<ReceiveUse> {
        let pool = self.shared.as_ref()?.level();
        Some(ReceiveUse {
            asked: self.asked.load(Relaxed),
            pool,
        })
    }
}
