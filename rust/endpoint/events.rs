// SPDX-License-Identifier: GPL-2.0

//! The events of a connection and of its endpoint, for the owner of the connection.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        Pull,
        Received, //
    },
    observe::trace,
    rdma::cm::CmEvents, //
};

/// Receives the events of an established connection.
pub(crate) trait ConnectionEvents: Send + Sync + 'static {
    /// Reports that the peer has disconnected, that the address has changed, or that the device
    /// goes away.
    ///
    /// Runs in the CM's handler: it must not wait for the connection's teardown.
    fn lost(&self);

    /// Reports that the endpoint must end without waiting for a thread of the service: others need
    /// what it has, and all threads may wait for that. Called after [`Self::lost`], from a work item.
    fn evicted(_this: &Arc<Self>)
    where
        Self: Sized,
    {
    }

    /// Reports that the device goes away, which waits until nothing of the connection is on it.
    ///
    /// Called after [`Self::lost`], in the CM's handler: it must not wait for the connection's
    /// teardown.
    fn device_gone(_this: &Arc<Self>)
    where
        Self: Sized,
    {
    }

    /// Reports that the connection is up. For the passive side, which does not wait for it.
    ///
    /// Runs in the CM's handler.
    fn established(&self) {}

    /// Returns the number by which trace events name the connection.
    fn number(&self) -> trace::Number;
}

impl<H: ConnectionEvents> CmEvents for H {
    fn event(&self, event: u32, status: c_int) {
        trace::cm_event(self.number(), event, status);
    }

    fn connection_lost(&self) {
        trace::lost(self.number());
        self.lost();
    }

    fn device_removed(this: &Arc<Self>) {
        H::device_gone(this);
    }

    fn connection_established(&self) {
        self.established();
    }
}

/// Receives the events of an endpoint. All run in process context, in the RDMA core's completion
/// workqueue; those of one kind never at the same time for one endpoint.
pub(crate) trait EndpointEvents: ConnectionEvents + Sized {
    /// Keeps the memory that regions let the device use.
    type Lease: Send + 'static;

    /// The purpose of RDMA Reads; it keeps the memory that they fill.
    type Pull: Send + 'static;

    /// The keeper of the memory that RDMA Writes are made from.
    type Push: Send + 'static;

    /// Reads have completed, and their memory is not mapped any more. Those that fail are dropped
    /// when the connection, which is lost, has ended.
    fn pulled(_this: &Arc<Self>, _pull: KBox<Pull<Self>>) {}

    /// A message has arrived.
    fn received(this: &Arc<Self>, message: Received<Self>);

    /// The peer has used up a Receive with what is no message, or with one that is longer than it,
    /// and is cut off for that. Called once for an endpoint.
    fn offended(&self) {}

    /// The fence posted with `tag` has completed. `done` is false if the connection was lost
    /// before: then nothing is known about its regions.
    fn fenced(this: &Arc<Self>, tag: u32, done: bool);

    /// A signaled Send, a fence or some RDMA Reads have completed: there is room in the Send Queue
    /// again, and the memory regions of the Reads are back.
    fn send_room(&self);

    /// A Send buffer came back without having been posted, or a transfer has ended. May be called
    /// with spinlocks held.
    fn resources_back(&self) {}

    /// Replies wait for the Send Queue from now on, or none does any more. Called under its lock.
    fn replies_wait(&self, _wait: bool) {}
}
