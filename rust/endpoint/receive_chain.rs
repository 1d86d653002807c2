// SPDX-License-Identifier: GPL-2.0

//! Receives that are posted together.

use crate::{
    endpoint::{
        ReceiveSlot,
        RECEIVE_BATCH, //
    },
    rdma::{
        completion::{
            Completes,
            Posting, //
        },
        work_request::{
            set_receive_cqe,
            PlainRequest, //
        }, //
    },
    sys, //
};
use core::ptr;

/// A chain has no more Receives than that.
const BATCH: usize = RECEIVE_BATCH as usize;

/// A chain of Receives, built up on the stack.
pub(super) struct ReceiveChain {
    /// Where each message goes.
    sges: [sys::ib_sge; BATCH],
    /// The work requests.
    requests: [sys::ib_recv_wr; BATCH],
    /// Their number.
    count: usize,
}

impl ReceiveChain {
    /// No Receives.
    pub(super) fn new() -> Self {
        Self {
            sges: pin_init::zeroed(),
            requests: core::array::from_fn(|_| sys::ib_recv_wr::zeroed()),
            count: 0,
        }
    }

    /// Adds a Receive behind the others, and gives its buffer to the device. It is left out if
    /// there is a batch already.
    ///
    /// # Safety
    ///
    /// The buffer is mapped, and idle: nobody else uses it. The slot stays in memory until the
    /// Receive has completed.
    pub(super) unsafe fn add<T>(&mut self, slot: &Posting<T>, lkey: u32)
    where
        T: Completes + AsRef<ReceiveSlot>,
    {
        let buffer = &(**slot).as_ref().buffer;
        let places = (
            self.sges.get_mut(self.count),
            self.requests.get_mut(self.count),
        );
        let (Some(sge), Some(request)) = places else {
            return;
        };
        sge.addr = buffer.address();
        // A buffer is some pages long.
        sge.length = buffer.len() as u32;
        sge.lkey = lkey;
        request.num_sge = 1;
        set_receive_cqe(request, slot.cqe());
        self.count += 1;
        // SAFETY: The caller guarantees that it is ours to hand over.
        unsafe { buffer.sync_for_device(buffer.len()) };
    }

    /// The first one, from which the others follow; null if there is none. Valid until the chain is
    /// touched again.
    pub(super) fn first(&mut self) -> *mut sys::ib_recv_wr {
        let mut next: *mut sys::ib_recv_wr = ptr::null_mut();
        let chain = self.sges.iter_mut().zip(self.requests.iter_mut());
        for (sge, request) in chain.take(self.count).rev() {
            request.sg_list = sge;
            request.next = next;
            next = request;
        }
        next
    }
}
