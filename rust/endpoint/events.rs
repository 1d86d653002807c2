// SPDX-License-Identifier: GPL-2.0

//! The events of a connection, from the connection manager to the owner of the connection.

use crate::{
    observe::trace,
    rdma::cm::CmEvents, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Receives the events of an established connection.
pub(crate) trait ConnectionEvents: Send + Sync + 'static {
    /// Reports that the peer has disconnected, that the address has changed, or that the device
    /// goes away.
    ///
    /// Runs in the CM's handler: it must not wait for the connection's teardown.
    fn lost(&self);

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
