// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes of an endpoint, by which a Responder pulls a Call and pushes its Reply:
//! the memory of each, and its work requests. How they are posted is in [`super::pull`] and
//! [`super::reply`].
//!
//! # Who owns what, and what ends it
//!
//! A [`Transfer`] is one chain of work requests for one segment of the peer's, with the memory
//! mapped for it. Its owner is, one after the other: who prepares it; when it is posted, the
//! [`Pull`](super::Pull) (Reads) or the Send buffer of the Reply (Writes), to which the completion
//! belongs; last the completion handler, which drops it. Dropped, it unmaps the memory, exactly
//! once. What was posted is kept by a slot of the endpoint. So what never completes, because the
//! device refused a part of its chain or lost a completion, is found when the queues are drained. A
//! chain that is longer than the Send Queue is posted in parts, see [`super::parts`].
//!
//! The core needs the QP for that. So an endpoint counts its transfers under the lock of the Send
//! gate, begins none when the gate is closed, and the shutdown waits for the last one before it
//! destroys the QP.

use crate::{
    endpoint::{
        parts::CHAIN_MAX,
        pull::Unfinished,
        Endpoint,
        EndpointEvents, //
    },
    kext::{
        errno::ENOTCONN,
        page_fragment::PageFragment, //
    },
    proto::chunk::Segment,
    rdma::{
        cm::QueuePairUser,
        dma::Direction,
        rw::{
            octets,
            ReadWrite,
            RemoteAddress, //
        }, //
    },
    sys, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Memory regions for transfers that are made at a time.
const REGION_STEP: u32 = 4;

/// One RDMA Read or Write. The endpoint counts it until it is dropped.
pub(crate) struct Transfer<H: EndpointEvents> {
    /// The Read or Write. Dropped before it stops to count.
    operation: ReadWrite,
    /// The counting.
    counted: Counted<H>,
}

/// A transfer that counts.
struct Counted<H: EndpointEvents>(Arc<Endpoint<H>>);

impl<H: EndpointEvents> Drop for Counted<H> {
    fn drop(&mut self) {
        self.0.transfer_ended();
    }
}

impl<H: EndpointEvents> Transfer<H> {
    /// Puts its work requests in front of `chain`; the last of all is signaled to `cqe` if there is
    /// no chain.
    pub(super) fn link(
        &mut self,
        cqe: *mut sys::ib_cqe,
        chain: *mut sys::ib_send_wr,
    ) -> *mut sys::ib_send_wr {
        self.operation.link(cqe, chain)
    }

    /// Whose it is.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.counted.0
    }

    /// Returns the number of pages of memory.
    pub(super) fn pages(&self) -> usize {
        self.operation.pages()
    }
}

/// The size of some transfers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Their number.
    pub(crate) transfers: u32,
    /// The number of octets that they move.
    pub(crate) octets: u32,
    /// The number of their work requests.
    pub(crate) requests: u32,
}

impl Load {
    /// Sums up.
    pub(super) fn of<H: EndpointEvents>(transfers: &[Transfer<H>]) -> Self {
        transfers
            .iter()
            .fold(Self::default(), |sum, transfer| Self {
                transfers: sum.transfers.saturating_add(1),
                octets: sum.octets.saturating_add(transfer.operation.octets()),
                requests: sum.requests.saturating_add(transfer.operation.requests()),
            })
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Prepares a Read into `memory` from `segment`, or a Write from `memory` to it. The fragments
    /// follow one another without a gap but for page boundaries, and are as long as the segment
    /// together. The caller keeps their pages until the transfer is dropped. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if memory and segment differ in length or have none, `ENOTCONN` after shutdown,
    /// `ENOMEM`, `EAGAIN` if the endpoint's memory regions for this are all in use.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        direction: Direction,
        memory: KVec<PageFragment>,
        segment: &Segment,
    ) -> Result<Transfer<H>> {
        // The core goes through the vectors until it has the length of the segment, wherever they
        // end.
        if octets(&memory) != Some(segment.length) {
            return Err(EINVAL);
        }
        let mut gate = self.send.lock();
        let qp = gate.qp.clone().ok_or(ENOTCONN)?;
        gate.transfers += 1;
        drop(gate);
        let counted = Counted(self.clone());
        let remote = RemoteAddress {
            offset: segment.offset,
            rkey: segment.handle,
        };
        let operation = ReadWrite::new(qp, direction, memory, remote, |qp| {
            self.add_transfer_regions(qp)
        })?;
        Ok(Transfer { operation, counted })
    }

    /// Makes some of the memory regions that the device needs for transfers, if there may be more.
    /// Returns whether there are more now.
    ///
    /// # Errors
    ///
    /// `ENOMEM`. Then there are fewer than before, and may be more another time.
    fn add_transfer_regions(&self, qp: &QueuePairUser) -> Result<bool> {
        let mut gate = self.send.lock();
        let missing = self.sizes.transfers.saturating_sub(gate.transfer_regions);
        let count = missing.min(REGION_STEP);
        gate.transfer_regions += count;
        drop(gate);
        if count == 0 {
            return Ok(false);
        }
        // If those that are gone went on counting, and there may not be more, there would never be
        // one again. A few more than there should be are no harm: they too go with the QP.
        qp.add_read_write_regions(count).map_err(|left| {
            self.send.lock().transfer_regions = left;
            ENOMEM
        })?;
        Ok(true)
    }

    /// A transfer is no more.
    fn transfer_ended(&self) {
        let mut gate = self.send.lock();
        gate.transfers = gate.transfers.saturating_sub(1);
        let last = gate.awaited && gate.transfers == 0;
        drop(gate);
        if last {
            self.home.notify_all();
        }
        self.context.handler().resources_back();
    }

    /// Returns whether anybody has a transfer, of which something may come back.
    pub(crate) fn has_transfers(&self) -> bool {
        self.send.lock().transfers > 0
    }

    /// Returns whether a chain for `transfers` and a Send is not longer than any that is posted.
    pub(crate) fn fits(&self, transfers: &[Transfer<H>]) -> bool {
        requests(transfers) < CHAIN_MAX
    }

    /// Returns whether `transfers` and a message in so many `parts` behind them find room all at
    /// once, if they are given the time. Such a message is not begun and continued later: parts of
    /// it that were sent could not be taken back.
    pub(crate) fn fits_at_once(&self, transfers: &[Transfer<H>], parts: u32) -> bool {
        let total = requests(transfers).saturating_add(parts);
        self.send.lock().queue.fits(total)
    }

    /// Ends the transfers that were posted and never completed, and waits for the last one. The
    /// Send Queue is drained.
    ///
    /// Returns what keeps the memory of Reads of which no completion has come, see
    /// [`Self::give_up_pulls`].
    pub(super) fn end_transfers(&self) -> Unfinished<H> {
        self.send.lock().rest = None;
        for slot in self.send_slots() {
            drop(slot.cargo.take());
        }
        let unfinished = self.give_up_pulls();
        let mut gate = self.send.lock();
        gate.awaited = true;
        while gate.transfers > 0 {
            // As in `tear_down`: nobody that has one waits for the endpoint.
            self.home.wait(&mut gate);
        }
        drop(gate);
        unfinished
    }
}

/// Returns the number of work requests of transfers.
pub(super) fn requests<H: EndpointEvents>(transfers: &[Transfer<H>]) -> u32 {
    transfers.iter().fold(0, |sum: u32, transfer| {
        sum.saturating_add(transfer.operation.requests())
    })
}
