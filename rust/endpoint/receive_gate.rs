// SPDX-License-Identifier: GPL-2.0

//! The gate of an endpoint's Receive Queue.

use crate::kext::prelude::*;
use crate::{
    endpoint::growth::Growth,
    rdma::{
        cm::QueuePairUser,
        receive_buffer::{
            Own,
            ReceiveBuffer,
            Receives, //
        }, //
    }, //
};
use core::iter;

/// The gate of the Receive Queue.
pub(super) struct ReceiveGate<O: Receives> {
    /// The QP, while the gate is open.
    pub(super) qp: Option<QueuePairUser>,
    /// The buffers that are neither posted nor lent out. With room for all of them.
    pub(super) idle: KVVec<ReceiveBuffer<Own<O>>>,
    /// Their size, and larger ones that wait for their places.
    pub(super) growth: Growth<ReceiveBuffer<Own<O>>>,
}

impl<O: Receives> ReceiveGate<O> {
    /// Takes a buffer back, or a larger one in its place. Returns the buffer if it is not needed
    /// any more.
    pub(super) fn put(
        &mut self,
        mut buffer: ReceiveBuffer<Own<O>>,
    ) -> Option<ReceiveBuffer<Own<O>>> {
        let former = self.growth.replace(&mut buffer);
        // Never more than the capacity: each buffer is out once.
        let _ = self.idle.push_within_capacity(buffer);
        former
    }

    /// Has larger buffers take the places of those that are idle, which nobody else would ever take
    /// back. The former ones are appended to `former`, as far as there is room.
    pub(super) fn replace_idle(&mut self, former: &mut KVVec<ReceiveBuffer<Own<O>>>) {
        for idle in self.idle.iter_mut() {
            if let Some(shorter) = self.growth.replace(idle) {
                let _ = former.push_within_capacity(shorter);
            }
        }
    }

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
