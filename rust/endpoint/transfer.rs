// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes of an endpoint, by which a Responder pulls a Call and pushes its Reply:
//! the memory of each, and its work requests. How they are posted is in [`super::reply`].
//!
//! # Who owns what, and what ends it
//!
//! A [`Transfer`] is one chain of work requests for one segment of the peer's, with the memory
//! mapped for it. Its owner is, one after the other: who prepares it; when it is posted, the Send
//! Queue, as a part of a [`Pull`](super::Pull) (Reads), or the Send buffer of a Reply (Writes);
//! then the completion handler, which drops Writes, and unmaps Reads; last, for Reads, who takes
//! the Call. The memory is unmapped exactly once, when the transfer is dropped at the latest.
//!
//! The core needs the QP for that. So an endpoint counts the transfers that are mapped under the
//! lock of the Send gate, begins none when the gate is closed, and the shutdown waits for the last
//! one before it destroys the QP.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        Endpoint,
        EndpointEvents, //
    },
    kext::page_fragment::PageFragment,
    proto::chunk::Segment,
    rdma::{
        cm::QueuePairUser,
        dma::Direction,
        rw::{
            octets,
            Operations,
            ReadWrite,
            RemoteAddress,
            Unmapped, //
        }, //
    }, //
};

pub(crate) use crate::rdma::rw::Load;

/// Memory regions for transfers that are made at a time.
const REGION_STEP: u32 = 4;

/// One RDMA Read or Write. The endpoint counts it until its memory is unmapped.
pub(crate) type Transfer<H> = ReadWrite<Counted<H>>;

/// The transfers of a Call or a Reply.
pub(crate) type Transfers<H> = Operations<Counted<H>>;

/// The count of a transfer, until its memory is unmapped, and that of its pages, until the transfer
/// is dropped.
pub(crate) struct Counted<H: EndpointEvents> {
    /// Whose it is.
    endpoint: Arc<Endpoint<H>>,
    /// The number of pages.
    pages: usize,
    /// Set if the transfer counts.
    is_mapped: bool,
    /// Set if it is the peer who lets the transfer end.
    is_with_peer: bool,
}

impl<H: EndpointEvents> Counted<H> {
    /// The transfer does not count any more, nor do `pages` of its pages.
    fn end(&mut self, pages: usize) {
        let was_mapped = core::mem::take(&mut self.is_mapped);
        // The peer has done its part. For how long a thread keeps what was read is not its doing.
        let was_with_peer = core::mem::take(&mut self.is_with_peer);
        let mut gate = self.endpoint.send.lock();
        gate.transfers = gate.transfers.saturating_sub(was_mapped.into());
        gate.end_pages(pages);
        if was_with_peer {
            let pages = u32::try_from(self.pages).unwrap_or(u32::MAX);
            gate.returned = gate.returned.wrapping_add(pages);
            self.endpoint
                .with_peer
                .fetch_sub(self.pages as u64, Relaxed);
        }
        let last = gate.awaited && gate.transfers == 0;
        drop(gate);
        if last {
            self.endpoint.home.notify_all();
        }
    }
}

impl<H: EndpointEvents> Unmapped for Counted<H> {
    /// Only the pages count now. Whoever has unmapped it has `send_room` called, or drops it soon.
    fn unmapped(&mut self) {
        self.end(0);
    }
}

impl<H: EndpointEvents> Drop for Counted<H> {
    fn drop(&mut self) {
        self.end(self.pages);
        self.endpoint.context.handler().resources_back();
    }
}

/// Leaves `transfers` to the peer, who lets them end from now on: all of a Call or a Reply are
/// prepared.
pub(super) fn leave_to_peer<H: EndpointEvents>(transfers: &mut Transfers<H>) {
    let mut pages = 0_u64;
    transfers.for_each(|transfer| {
        let counted = transfer.with_mut();
        counted.is_with_peer = true;
        pages = pages.wrapping_add(counted.pages as u64);
    });
    if let Some(first) = transfers.first() {
        let endpoint = &first.with().endpoint;
        // Full, as the barrier of a check is: it sees the pages, or is asked for anew.
        endpoint.with_peer.fetch_add(pages, Full);
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Prepares a Read into `memory` from `segment`, or a Write from `memory` to it, and adds it to
    /// `transfers`. The fragments follow one another without a gap but for page boundaries, and are
    /// as long as the segment together. The caller keeps their pages until the transfer is dropped.
    /// Sleeps.
    ///
    /// It becomes several transfers where the device needs a region for each, which takes no gaps,
    /// and memory without gaps is mapped to addresses with some: over iWARP behind bounce buffers,
    /// or behind an IOMMU whose pages are smaller.
    ///
    /// # Errors
    ///
    /// `EINVAL` if memory and segment differ in length or have none, `ENOTCONN` after shutdown,
    /// `ENOMEM`, `EAGAIN` if the endpoint's memory regions for this are all in use.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        direction: Direction,
        mut memory: KVec<PageFragment>,
        segment: &Segment,
        transfers: &mut Transfers<H>,
    ) -> Result {
        let mut remote = RemoteAddress {
            offset: segment.offset,
            rkey: segment.handle,
        };
        match self.prepare(direction, &mut memory, remote) {
            Ok(transfer) if transfer.octets() != segment.length => return Err(EINVAL),
            Err(EINVAL) if octets(&memory) == Some(segment.length) => {}
            transfer => return transfers.push(transfer?),
        }
        let mut rest = &memory[..];
        let mut count = without_gaps(rest);
        while count > 0 {
            let (run, behind) = rest.split_at_checked(count).ok_or(EINVAL)?;
            let mut part = KVec::with_capacity(count, GFP_KERNEL)?;
            part.extend_from_slice(run, GFP_KERNEL)?;
            match self.prepare(direction, &mut part, remote) {
                Err(EINVAL) => count = without_gaps(run),
                transfer => {
                    let length = octets(run).ok_or(EINVAL)?;
                    remote.offset = remote.offset.checked_add(length.into()).ok_or(EINVAL)?;
                    transfers.push(transfer?)?;
                    (rest, count) = (behind, behind.len());
                }
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(EINVAL)
        }
    }

    /// Prepares one transfer, see [`ReadWrite::new`] for what becomes of `memory`.
    fn prepare(
        self: &Arc<Self>,
        direction: Direction,
        memory: &mut KVec<PageFragment>,
        remote: RemoteAddress,
    ) -> Result<Transfer<H>> {
        let mut gate = self.send.lock();
        let qp = gate.queue.qp().ok_or(ENOTCONN)?.clone();
        gate.transfers += 1;
        gate.begin_pages(memory.len());
        drop(gate);
        let counted = Counted {
            endpoint: self.clone(),
            pages: memory.len(),
            is_mapped: true,
            is_with_peer: false,
        };
        ReadWrite::new(qp, direction, memory, remote, counted, |qp| {
            self.add_transfer_regions(qp)
        })
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

    /// Returns whether anybody has a transfer, of which something may come back.
    pub(crate) fn has_transfers(&self) -> bool {
        self.send.lock().transfers > 0
    }

    /// Returns whether a chain for `transfers` and a Send is not longer than any that is posted.
    pub(crate) fn fits(&self, transfers: &Transfers<H>) -> bool {
        transfers.load().requests < self.sizes.chain
    }

    /// Waits for the last transfer. Those that were posted have ended, and nobody begins one.
    pub(super) fn await_transfers(&self) {
        let mut gate = self.send.lock();
        gate.awaited = true;
        while gate.transfers > 0 {
            // As in `tear_down`: nobody that has one waits for the endpoint.
            self.home.wait(&mut gate);
        }
    }
}

/// Returns how many of the first fragments may fit in a region when all of them don't; zero if one
/// alone does not. Pages are mapped to pages by most, so it is a part of a page at either end that
/// leaves a gap.
fn without_gaps(memory: &[PageFragment]) -> usize {
    let partial = |fragment: Option<&PageFragment>| {
        fragment.is_some_and(|fragment| fragment.len() as usize != PAGE_SIZE)
    };
    match memory.len() {
        0 | 1 => 0,
        _ if partial(memory.first()) => 1,
        count if partial(memory.last()) => count - 1,
        count => count / 2,
    }
}
