// SPDX-License-Identifier: GPL-2.0

//! The gate of an endpoint's Receive Queue.

use crate::kext::prelude::*;
use crate::rdma::{
    cm::QueuePairUser,
    receive_buffer::{
        Own,
        ReceiveBuffer,
        Receives, //
    }, //
};
use core::iter;

/// The gate of the Receive Queue.
pub(super) struct ReceiveGate<O: Receives> {
    /// The QP, while the gate is open.
    pub(super) qp: Option<QueuePairUser>,
    /// The buffers that are neither posted nor lent out. With room for all of them.
    pub(super) idle: KVVec<ReceiveBuffer<Own<O>>>,
}

impl<O: Receives> ReceiveGate<O> {
    /// Posts up to a batch of idle Receive buffers.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, or what the device reports. Then the connection must end: the
    /// buffers are not idle any more.
    pub(super) fn post(&mut self) -> Result {
        let qp = self.qp.as_ref().ok_or(ENOTCONN)?;
        let idle = &mut self.idle;
        qp.post_receives(iter::from_fn(|| idle.pop()))
    }
}
