// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads that are posted, by which a Responder pulls a Call.
//!
//! # Who owns what, and what ends it
//!
//! Reads that are posted belong to a [`PullSlot`] of the endpoint, with what they are for. The
//! handler of their completion takes both out; or, if none has come, the end of the endpoint
//! ([`Endpoint::give_up_pulls`]), after which a late one finds nothing.

use crate::{
    endpoint::{
        parts::{
            Last,
            Rest, //
        },
        transfer::{
            requests,
            Load,
            Transfer, //
        },
        Endpoint,
        EndpointEvents,
        PostError, //
    },
    kext::handover::Handover,
    observe::trace,
    rdma::completion::{
        Completes,
        Completion, //
    },
    sys, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        ArcBorrow, //
    }, //
};

/// RDMA Reads that complete together.
pub(crate) struct Pull<H: EndpointEvents> {
    /// The Reads.
    transfers: KVec<Transfer<H>>,
    /// Their purpose, which keeps their memory.
    keeper: H::Pull,
    /// The next one of some that never completed.
    next: Option<KBox<Pull<H>>>,
}

/// Reads of which no completion has come, at the end of the endpoint.
pub(super) struct Unfinished<H: EndpointEvents>(Option<KBox<Pull<H>>>);

impl<H: EndpointEvents> Drop for Unfinished<H> {
    fn drop(&mut self) {
        // One after the other, not each inside the one before.
        while let Some(mut pull) = self.0.take() {
            self.0 = pull.next.take();
        }
    }
}

impl<H: EndpointEvents> Pull<H> {
    /// Prepares Reads, at least one. `keeper` keeps their memory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(transfers: KVec<Transfer<H>>, keeper: H::Pull) -> Result<KBox<Self>> {
        Ok(KBox::new(
            Self {
                transfers,
                keeper,
                next: None,
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the size of the Reads.
    pub(crate) fn load(&self) -> Load {
        Load::of(&self.transfers)
    }

    /// Returns the purpose of the Reads.
    pub(crate) fn keeper(&self) -> &H::Pull {
        &self.keeper
    }
}

/// A place for Reads that are posted. It stays in memory as long as the endpoint: a device may
/// complete late, or never.
pub(super) struct PullSlot<H: EndpointEvents> {
    /// Its place among the slots.
    pub(super) index: u32,
    /// Where in the Send Queue the last Read was posted. Under the gate's lock.
    pub(super) sequence: Atomic<u64>,
    /// The posted Reads.
    pull: Handover<KBox<Pull<H>>>,
}

impl<H: EndpointEvents> PullSlot<H> {
    /// A place without Reads.
    pub(super) const fn new(index: u32) -> Self {
        Self {
            index,
            sequence: Atomic::new(0),
            pull: Handover::new(),
        }
    }
}

impl<H: EndpointEvents> Completes for PullSlot<H> {
    type Owner = Endpoint<H>;

    /// The last of the Reads has completed.
    fn completed(&self, this: ArcBorrow<'_, Endpoint<H>>, completion: Completion<'_>) {
        let mut gate = this.send.lock();
        let sequence = self.sequence.load(Relaxed);
        let pull = self.pull.take();
        if pull.is_some() {
            // There is room for all.
            let _ = gate.free_pulls.push_within_capacity(self.index);
        }
        drop(gate);
        let Some(pull) = pull else {
            // Too late: it was given up at the end of the endpoint.
            return;
        };
        let Pull {
            transfers, keeper, ..
        } = KBox::into_inner(pull);
        // Before anybody looks at the memory.
        drop(transfers);
        if completion.ok() {
            this.retire(sequence);
        } else {
            this.trace_error(completion, trace::Work::Read);
            this.context.lost();
        }
        H::pulled(this.context.handler(), keeper, completion.ok());
    }
}

/// Why Reads were not posted; with the Reads, if the queue was full.
pub(crate) type Unpulled<H> = (PostError, Option<KBox<Pull<H>>>);

impl<H: EndpointEvents> Endpoint<H> {
    /// Posts Reads, or begins to. When they are done, [`EndpointEvents::pulled`] is called.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, or too many Reads are under way, these come back;
    /// else they are dropped at the latest when the endpoint ends.
    pub(crate) fn post_pull(&self, mut pull: KBox<Pull<H>>) -> Result<(), Unpulled<H>> {
        let requests = requests(&pull.transfers);
        let mut gate = self.send.lock();
        if gate.qp.is_none() {
            drop(gate);
            return Err((PostError::Closed, None));
        }
        let slot = gate
            .free_pulls
            .last()
            .and_then(|index| self.pulls.get(*index as usize));
        let Some(slot) = slot.filter(|_| gate.may_begin(requests)) else {
            drop(gate);
            return Err((PostError::Full, Some(pull)));
        };
        gate.free_pulls.pop();
        let cqe = slot.cqe();
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        for transfer in pull.transfers.iter_mut() {
            first = transfer.link(cqe, first);
        }
        // The completion may come before the post returns; it waits for the lock. Moving the box
        // does not move the chain, which is in the contexts of the transfers.
        if slot.pull.put(pull).is_err() {
            // It has none, since it was free.
            return Err((PostError::Refused, None));
        }
        let posted = match NonNull::new(first) {
            Some(first) => {
                // SAFETY: The transfers have just been linked, and there are so many work requests
                // in them; the slot keeps them until their completion has come or none will.
                gate.rest = Some(unsafe { Rest::new(first, requests, Last::Read(slot.index)) });
                self.go_on(&mut gate)
            }
            None => Err(PostError::Refused),
        };
        drop(gate);
        // The device may work on what it took, so the slot keeps it until the end of the endpoint.
        posted.map_err(|error| (error, None))
    }

    /// Takes the Reads out of which no completion has come, and ends them. The Send Queue is
    /// drained.
    ///
    /// What keeps their memory is returned: it must stay until the QP is gone. siw loses those that
    /// were under way behind one that the end of the connection cut off in the middle.
    pub(super) fn give_up_pulls(&self) -> Unfinished<H> {
        let mut unfinished = Unfinished(None);
        for slot in &self.pulls {
            let Some(mut pull) = slot.pull.take() else {
                continue;
            };
            pull.transfers = KVec::new();
            pull.next = unfinished.0.take();
            unfinished.0 = Some(pull);
        }
        unfinished
    }
}
