// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes of an endpoint, by which a Responder pulls a Call and pushes its Reply:
//! the memory of each, and its work requests. How they are posted is in [`super::pull`] and
//! [`super::reply`].
//!
//! C header: [`include/rdma/rw.h`](srctree/include/rdma/rw.h)
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
        dma::Direction, //
    },
    sys, //
};
use core::mem::MaybeUninit;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Memory regions for transfers that are made at a time.
const REGION_STEP: u32 = 4;
/// Pages of each at most: the core takes it that there are so many if the device can do it.
const REGION_PAGES: u32 = 256;

/// The C side of a transfer. On the heap, since work requests point into it.
struct Context {
    /// The core's state.
    ctx: sys::rdma_rw_ctx,
    /// The memory.
    memory: KVec<PageFragment>,
    /// The QP.
    qp: QueuePairUser,
    /// The port it is bound to.
    port: u32,
    /// Which way the data goes.
    direction: Direction,
}

/// One RDMA Read or Write.
///
/// # Invariants
///
/// `context` is there and its `ctx` initialised; the endpoint counts the transfer, so its QP
/// exists.
pub(crate) struct Transfer<H: EndpointEvents> {
    /// The C side.
    context: KBox<Context>,
    /// The number of its work requests.
    requests: u32,
    /// The number of octets that it moves.
    octets: u32,
    /// Whose it is.
    endpoint: Arc<Endpoint<H>>,
}

// SAFETY: The core's state and the QP may be used by any thread, one at a time.
unsafe impl<H: EndpointEvents> Send for Transfer<H> {}

impl<H: EndpointEvents> Transfer<H> {
    /// Puts its work requests in front of `chain`; the last of all is signaled to `cqe` if there is
    /// no chain.
    pub(super) fn link(
        &mut self,
        cqe: *mut sys::ib_cqe,
        chain: *mut sys::ib_send_wr,
    ) -> *mut sys::ib_send_wr {
        let context = &mut *self.context;
        // SAFETY: The state is initialised for this QP, which exists by the type invariant.
        unsafe {
            sys::rdma_rw_ctx_wrs(
                &raw mut context.ctx,
                context.qp.as_ptr(),
                context.port,
                cqe,
                chain,
            )
        }
    }
}

impl<H: EndpointEvents> Transfer<H> {
    /// Whose it is.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }

    /// Returns the number of pages of memory.
    pub(super) fn pages(&self) -> usize {
        self.context.memory.len()
    }
}

impl<H: EndpointEvents> Drop for Transfer<H> {
    fn drop(&mut self) {
        let context = &mut *self.context;
        // SAFETY: The state was initialised with the same arguments and is destroyed only here; by
        // the type invariant the QP exists. The device is done with it: see the module's
        // documentation.
        unsafe {
            sys::rdma_rw_end(
                &raw mut context.ctx,
                context.qp.as_ptr(),
                context.port,
                PageFragment::bio_vecs(&context.memory),
                context.memory.len() as u32,
                context.direction.as_raw(),
            )
        };
        self.endpoint.transfer_ended();
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
                octets: sum.octets.saturating_add(transfer.octets),
                requests: sum.requests.saturating_add(transfer.requests),
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
        let octets = memory
            .iter()
            .try_fold(0_u32, |sum, fragment| sum.checked_add(fragment.len()))
            .ok_or(EINVAL)?;
        // The core goes through the vectors until it has the length of the segment, wherever they
        // end.
        if octets != segment.length || octets == 0 {
            return Err(EINVAL);
        }
        let mut gate = self.send.lock();
        let qp = gate.qp.clone().ok_or(ENOTCONN)?;
        gate.transfers += 1;
        let port = gate.port;
        drop(gate);
        match self.begin(direction, memory, segment, qp, port) {
            Ok((context, requests)) => Ok(Transfer {
                context,
                requests,
                octets: segment.length,
                endpoint: self.clone(),
            }),
            Err(error) => {
                self.transfer_ended();
                Err(error)
            }
        }
    }

    /// Initialises the core's state. The caller has counted the transfer, and the vectors are as
    /// long as the segment.
    fn begin(
        &self,
        direction: Direction,
        memory: KVec<PageFragment>,
        segment: &Segment,
        qp: QueuePairUser,
        port: u32,
    ) -> Result<(KBox<Context>, u32)> {
        let mut context = KBox::new(
            Context {
                // SAFETY: Integers, pointers, and unions of those.
                ctx: unsafe { MaybeUninit::zeroed().assume_init() },
                memory,
                qp,
                port,
                direction,
            },
            GFP_KERNEL,
        )?;
        let count = u32::try_from(context.memory.len())?;
        loop {
            let iter = sys::bvec_iter {
                bi_size: segment.length,
                ..pin_init::zeroed()
            };
            // SAFETY: The transfer is counted, so the QP exists; the vectors are as long as the
            // segment together, they live as long as the state, and their pages are valid. A state
            // that could not be initialised may be initialised again.
            let requests = unsafe {
                sys::rdma_rw_begin(
                    &raw mut context.ctx,
                    context.qp.as_ptr(),
                    port,
                    PageFragment::bio_vecs(&context.memory),
                    count,
                    iter,
                    segment.offset,
                    segment.handle,
                    direction.as_raw(),
                )
            };
            match to_result(requests.min(0)) {
                Err(EAGAIN) if self.add_transfer_regions(context.qp.as_ptr())? => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok((context, u32::try_from(requests)?)),
            }
        }
    }

    /// Makes some of the memory regions that the device needs for transfers, if there may be more.
    /// Returns whether there are more now. The caller has counted a transfer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`. Then there are fewer than before, and may be more another time.
    fn add_transfer_regions(&self, qp: *mut sys::ib_qp) -> Result<bool> {
        let mut gate = self.send.lock();
        let missing = self.sizes.transfers.saturating_sub(gate.transfer_regions);
        let count = missing.min(REGION_STEP);
        gate.transfer_regions += count;
        drop(gate);
        if count == 0 {
            return Ok(false);
        }
        // SAFETY: A transfer is counted, so the QP exists, and with it its device.
        let pages = unsafe { (*(*qp).device).attrs.max_fast_reg_page_list_len };
        // SAFETY: As above. The core's own list of regions, which it empties when the QP is
        // destroyed.
        let made = unsafe {
            sys::ib_mr_pool_init(
                qp,
                &raw mut (*qp).rdma_mrs,
                c_int::try_from(count)?,
                sys::ib_mr_type_IB_MR_TYPE_MEM_REG,
                pages.min(REGION_PAGES),
                0,
            )
        };
        if made == 0 {
            return Ok(true);
        }
        // The core has made up its mind that a pool is complete or is not: all that nobody uses are
        // gone, those of earlier calls too. If they went on counting, and there may not be more,
        // there would never be one again. Some may be overlooked that others make or give back just
        // now. Then there are a few more than there should be, and they too go with the QP.
        let mut gate = self.send.lock();
        // SAFETY: As above. The number is an aligned integer, which others change under a lock of
        // the core's; any value that it has had is good enough.
        let left = unsafe { (&raw const (*qp).mrs_used).read_volatile() };
        gate.transfer_regions = u32::try_from(left).unwrap_or(0);
        drop(gate);
        Err(ENOMEM)
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
            drop(slot.unload());
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
        sum.saturating_add(transfer.requests)
    })
}
