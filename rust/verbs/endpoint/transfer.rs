// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes of an endpoint, by which a Responder pulls a Call and pushes its Reply.
//!
//! C header: [`include/rdma/rw.h`](srctree/include/rdma/rw.h)
//!
//! # Who owns what, and what ends it
//!
//! A [`Transfer`] is one chain of work requests for one segment of the peer's, with the memory mapped for it. Its
//! owner is, one after the other: who prepares it; when it is posted, the [`Pull`] (Reads) or the Send buffer of
//! the Reply (Writes), to which the completion belongs; last the completion handler, which drops it. Dropped, it
//! unmaps the memory, exactly once. What was posted is kept by a slot of the endpoint. So what never completes,
//! because the device refused a part of its chain or lost a completion, is found when the queues are drained. A chain
//! that is longer than the Send Queue is posted in parts, see [`super::parts`].
//!
//! The core needs the QP for that. So an endpoint counts its transfers under the lock of the Send gate, begins
//! none when the gate is closed, and the shutdown waits for the last one before it destroys the QP.

use crate::kext::errno::ENOTCONN;
use crate::kext::page_fragment::PageFragment;
use crate::observe::trace;
use crate::proto::chunk::Segment;
use crate::sys;
use crate::verbs::completion::Completion;
use crate::verbs::dma::Direction;
use crate::verbs::endpoint::parts::{Last, ReplySend, Rest, CHAIN_MAX};
use crate::verbs::endpoint::send::SendGate;
use crate::verbs::endpoint::{Endpoint, EndpointEvents, PostError, SendBuffer};
use crate::verbs::work_request::{set_send_cqe, PlainRequest};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};

/// Memory regions for transfers that are made at a time.
const REGION_STEP: u32 = 4;
/// Pages of each at most: the core takes it that there are so many if the device can do it.
const REGION_PAGES: u32 = 256;

/// The C side of a transfer. On the heap, since work requests point into it.
struct Context {
    /// The core's state.
    ctx: sys::rdma_rw_ctx,
    /// The memory.
    bvecs: KVec<sys::bio_vec>,
    /// The QP.
    qp: NonNull<sys::ib_qp>,
    /// The port it is bound to.
    port: u32,
    /// Which way the data goes.
    direction: Direction,
}

/// One RDMA Read or Write.
///
/// # Invariants
///
/// `context` is there and its `ctx` initialised; the endpoint counts the transfer, so its QP exists.
pub(crate) struct Transfer<H: EndpointEvents> {
    /// The C side.
    context: KBox<Context>,
    /// How many work requests it takes.
    requests: u32,
    /// How many octets it moves.
    octets: u32,
    /// Whose it is.
    endpoint: Arc<Endpoint<H>>,
}

// SAFETY: The core's state and the QP may be used by any thread, one at a time.
unsafe impl<H: EndpointEvents> Send for Transfer<H> {}

impl<H: EndpointEvents> Transfer<H> {
    /// Puts its work requests in front of `chain`; the last of all is signaled to `cqe` if there is no chain.
    fn link(&mut self, cqe: *mut sys::ib_cqe, chain: *mut sys::ib_send_wr) -> *mut sys::ib_send_wr {
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

impl<H: EndpointEvents> Drop for Transfer<H> {
    fn drop(&mut self) {
        let context = &mut *self.context;
        // SAFETY: The state was initialised with the same arguments and is destroyed only here; by the type
        // invariant the QP exists. The device is done with it: see the module's documentation.
        unsafe {
            sys::rdma_rw_end(
                &raw mut context.ctx,
                context.qp.as_ptr(),
                context.port,
                context.bvecs.as_ptr(),
                context.bvecs.len() as u32,
                context.direction.as_raw(),
            )
        };
        let pages = context.bvecs.len();
        self.endpoint.transfer_ended(pages);
    }
}

/// How much some transfers are together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// How many there are.
    pub(crate) transfers: u32,
    /// How many octets they move.
    pub(crate) octets: u32,
    /// How many work requests they take.
    pub(crate) requests: u32,
}

impl Load {
    /// Sums up.
    fn of<H: EndpointEvents>(transfers: &[Transfer<H>]) -> Self {
        transfers
            .iter()
            .fold(Self::default(), |sum, transfer| Self {
                transfers: sum.transfers.saturating_add(1),
                octets: sum.octets.saturating_add(transfer.octets),
                requests: sum.requests.saturating_add(transfer.requests),
            })
    }
}

/// What a Reply holds until its Send has completed. The fields are dropped in this order.
pub(crate) struct Cargo<H: EndpointEvents> {
    /// The Writes that are posted with it.
    pub(crate) transfers: KVec<Transfer<H>>,
    /// What keeps their memory.
    pub(crate) _keeper: H::Push,
}

impl<H: EndpointEvents> Cargo<H> {
    /// How much is written.
    pub(crate) fn load(&self) -> Load {
        Load::of(&self.transfers)
    }
}

/// RDMA Reads that complete together.
pub(crate) struct Pull<H: EndpointEvents> {
    /// The Reads.
    transfers: KVec<Transfer<H>>,
    /// What they are for.
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

    /// How much is read.
    pub(crate) fn load(&self) -> Load {
        Load::of(&self.transfers)
    }

    /// What the Reads are for.
    pub(crate) fn keeper(&self) -> &H::Pull {
        &self.keeper
    }
}

/// The completion entry of Reads that are posted, and the Reads. It stays in memory as long as the endpoint: a device
/// may complete late, or never.
#[repr(C)]
pub(super) struct PullSlot<H: EndpointEvents> {
    /// First, so that its address is that of the slot.
    pub(super) cqe: sys::ib_cqe,
    /// Its place among the slots.
    pub(super) index: u32,
    /// Where in the Send Queue the last Read was posted. Under the gate's lock.
    pub(super) sequence: Cell<u64>,
    /// What is posted. Written and taken under the gate's lock.
    pub(super) pull: Cell<Option<KBox<Pull<H>>>>,
}

/// Why a Reply was not posted; with all of it, if the queue was full.
pub(crate) type Unposted<H> = (PostError, Option<(SendBuffer<H>, Option<Cargo<H>>)>);

/// Why Reads were not posted; with the Reads, if the queue was full.
pub(crate) type Unpulled<H> = (PostError, Option<KBox<Pull<H>>>);

impl<H: EndpointEvents> Endpoint<H> {
    /// Prepares a Read into `memory` from `segment`, or a Write from `memory` to it. The fragments follow one
    /// another without a gap but for page boundaries, and are as long as the segment together. The caller keeps
    /// their pages until the transfer is dropped. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOMEM`, `EAGAIN` if the endpoint's memory regions for this are all in use.
    pub(crate) fn transfer(
        self: &Arc<Self>,
        direction: Direction,
        memory: &[PageFragment],
        segment: &Segment,
    ) -> Result<Transfer<H>> {
        let mut bvecs = KVec::with_capacity(memory.len(), GFP_KERNEL)?;
        for fragment in memory {
            let bvec = sys::bio_vec {
                bv_page: fragment.page(),
                bv_len: fragment.len(),
                bv_offset: fragment.offset(),
            };
            bvecs.push_within_capacity(bvec).map_err(|_| ENOMEM)?;
        }
        let mut gate = self.send.lock();
        let qp = gate.qp.ok_or(ENOTCONN)?;
        let pages = bvecs.len();
        gate.transfers += 1;
        gate.transfer_pages += pages;
        let port = gate.port;
        drop(gate);
        match self.begin(direction, bvecs, segment, qp, port) {
            Ok((context, requests)) => Ok(Transfer {
                context,
                requests,
                octets: segment.length,
                endpoint: self.clone(),
            }),
            Err(error) => {
                self.transfer_ended(pages);
                Err(error)
            }
        }
    }

    /// Initialises the core's state. The caller has counted the transfer.
    fn begin(
        &self,
        direction: Direction,
        bvecs: KVec<sys::bio_vec>,
        segment: &Segment,
        qp: NonNull<sys::ib_qp>,
        port: u32,
    ) -> Result<(KBox<Context>, u32)> {
        let mut context = KBox::new(
            Context {
                // SAFETY: Integers, pointers, and unions of those.
                ctx: unsafe { MaybeUninit::zeroed().assume_init() },
                bvecs,
                qp,
                port,
                direction,
            },
            GFP_KERNEL,
        )?;
        let count = u32::try_from(context.bvecs.len())?;
        loop {
            let iter = sys::bvec_iter {
                bi_size: segment.length,
                ..pin_init::zeroed()
            };
            // SAFETY: The transfer is counted, so the QP exists; the vectors live as long as the state, and their
            // pages are valid. A state that could not be initialised may be initialised again.
            let requests = unsafe {
                sys::rdma_rw_begin(
                    &raw mut context.ctx,
                    qp.as_ptr(),
                    port,
                    context.bvecs.as_ptr(),
                    count,
                    iter,
                    segment.offset,
                    segment.handle,
                    direction.as_raw(),
                )
            };
            match to_result(requests.min(0)) {
                Err(EAGAIN) if self.add_transfer_regions(qp)? => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok((context, u32::try_from(requests)?)),
            }
        }
    }

    /// Makes some of the memory regions that the device needs for transfers, if there may be more. Returns whether there
    /// are more now. The caller has counted a transfer.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the connection is to be ended.
    fn add_transfer_regions(&self, qp: NonNull<sys::ib_qp>) -> Result<bool> {
        let mut gate = self.send.lock();
        let missing = self.sizes.transfers.saturating_sub(gate.transfer_regions);
        let count = missing.min(REGION_STEP);
        gate.transfer_regions += count;
        drop(gate);
        if count == 0 {
            return Ok(false);
        }
        // SAFETY: A transfer is counted, so the QP exists, and with it its device.
        let pages = unsafe { (*(*qp.as_ptr()).device).attrs.max_fast_reg_page_list_len };
        // SAFETY: As above. The core's own list of regions, which it empties when the QP is destroyed.
        let made = unsafe {
            sys::ib_mr_pool_init(
                qp.as_ptr(),
                &raw mut (*qp.as_ptr()).rdma_mrs,
                c_int::try_from(count)?,
                sys::ib_mr_type_IB_MR_TYPE_MEM_REG,
                pages.min(REGION_PAGES),
                0,
            )
        };
        to_result(made).map_err(|_| ENOMEM)?;
        Ok(true)
    }

    /// A transfer of so many pages is no more.
    fn transfer_ended(&self, pages: usize) {
        let mut gate = self.send.lock();
        gate.transfers = gate.transfers.saturating_sub(1);
        gate.transfer_pages = gate.transfer_pages.saturating_sub(pages);
        let last = gate.awaited && gate.transfers == 0;
        drop(gate);
        if last {
            self.home.notify_all();
        }
        self.context.handler().resources_back();
    }

    /// Whether anybody has a transfer, of which something may come back.
    pub(crate) fn has_transfers(&self) -> bool {
        self.send.lock().transfers > 0
    }

    /// Whether the transfers that there are have `pages` pages or more.
    pub(crate) fn transfers_pages(&self, pages: usize) -> bool {
        self.send.lock().transfer_pages >= pages
    }

    /// Whether a chain for `transfers` and a Send is not longer than any that is posted.
    pub(crate) fn fits(&self, transfers: &[Transfer<H>]) -> bool {
        requests(transfers) < CHAIN_MAX
    }

    /// Whether `transfers` and a message in so many `parts` behind them find room all at once, if they are given the time.
    /// Such a message is not begun and continued later: parts of it that were sent could not be taken back.
    pub(crate) fn fits_at_once(&self, transfers: &[Transfer<H>], parts: u32) -> bool {
        let total = requests(transfers).saturating_add(parts);
        self.send.lock().queue.fits(total)
    }

    /// Posts Reads, or begins to. When they are done, [`EndpointEvents::pulled`] is called.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, or too many Reads are under way, these come back; else they are dropped
    /// at the latest when the endpoint ends.
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
        let cqe = ptr::from_ref(&slot.cqe).cast_mut();
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        for transfer in pull.transfers.iter_mut() {
            first = transfer.link(cqe, first);
        }
        // The completion may come before the post returns; it waits for the lock. Moving the box does not move the chain,
        // which is in the contexts of the transfers.
        slot.pull.set(Some(pull));
        let posted = match NonNull::new(first) {
            Some(first) => {
                // SAFETY: The transfers have just been linked, and there are so many work requests in them; the slot
                // keeps them until their completion has come or none will.
                let rest = unsafe { Rest::new(first, requests, Last::Read(slot.index)) };
                gate.rest = Some(rest);
                self.go_on(&mut gate)
            }
            None => Err(PostError::Refused),
        };
        drop(gate);
        // The device may work on what it took, so the slot keeps it until the end of the endpoint.
        posted.map_err(|error| (error, None))
    }

    /// # Safety
    ///
    /// Called by the CQ core for the last Read of a [`Pull`] of this endpoint.
    pub(super) unsafe extern "C" fn pull_callback(cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: As in `receive_callback`.
        let this = unsafe { ArcBorrow::<Self>::from_raw((*cq).cq_context.cast_const().cast()) };
        // SAFETY: As in `receive_callback`.
        let Some(completion) = (unsafe { Completion::from_raw(wc) }) else {
            return;
        };
        // SAFETY: This handler belongs to the entries of `PullSlot`s of the endpoint only, whose first member they are.
        let slot = unsafe { &*completion.cqe().cast::<PullSlot<H>>() };
        let mut gate = this.send.lock();
        let sequence = slot.sequence.get();
        let pull = slot.pull.take();
        if pull.is_some() {
            // There is room for all.
            let _ = gate.free_pulls.push_within_capacity(slot.index);
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
            completion.trace_error(this.context.number(), trace::Work::Read);
            this.context.lost();
        }
        H::pulled(this.context.handler(), keeper, completion.ok());
    }

    /// As [`Self::post_reply`]; `parts` are posted before, each with its length. All of it is posted at once, see
    /// [`Self::fits_at_once`].
    ///
    /// # Errors
    ///
    /// As for [`Self::post_reply`].
    pub(crate) fn post_reply_in_parts(
        &self,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        message: SendBuffer<H>,
        len: usize,
        cargo: Option<Cargo<H>>,
        invalidate: Option<u32>,
    ) -> Result<u64, Unposted<H>> {
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        match self.post_parts(parts, writes.saturating_add(1)) {
            Ok(kept) => self.post_last(message, len, cargo, invalidate, kept),
            Err(PostError::Full) => Err((PostError::Full, Some((message, cargo)))),
            Err(error) => Err((error, None)),
        }
    }

    /// Posts a Reply, or begins to: the Writes of its cargo, if there are any, and then the first `len` octets of
    /// `message` as a Send, which invalidates the peer's `invalidate`. The cargo is dropped when the Send has completed.
    /// Returns the Send's place in the Send Queue, as the trace event of its completion has it; zero if the chain is
    /// posted in parts, and the Send has no place yet.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, everything comes back.
    pub(crate) fn post_reply(
        &self,
        message: SendBuffer<H>,
        len: usize,
        cargo: Option<Cargo<H>>,
        invalidate: Option<u32>,
    ) -> Result<u64, Unposted<H>> {
        self.post_last(message, len, cargo, invalidate, 0)
    }

    /// As [`Self::post_reply`]; `kept` is room in the queue that was kept for it, behind the parts before it.
    fn post_last(
        &self,
        mut message: SendBuffer<H>,
        len: usize,
        cargo: Option<Cargo<H>>,
        invalidate: Option<u32>,
        kept: u32,
    ) -> Result<u64, Unposted<H>> {
        let send = ReplySend {
            index: message.index,
            len,
            invalidate,
        };
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        let total = writes.saturating_add(1);
        let mut gate = self.send.lock();
        gate.queue.unreserve(kept);
        let Some(qp) = gate.qp else {
            drop(gate);
            return Err((PostError::Closed, None));
        };
        // Behind parts of the same message as in `post_chain`.
        let may = match kept {
            0 => gate.may_begin(total),
            _ => gate.queue.has_room(total, 0),
        };
        if !may {
            drop(gate);
            return Err((PostError::Full, Some((message, cargo))));
        }
        // Whatever happens, its slot is not used again until the completion, or the end of the endpoint.
        message.posted = true;
        let posted = match (gate.queue.has_room(total, 0), cargo) {
            (false, Some(cargo)) => self.begin_reply(&mut gate, send, writes, cargo).map(|()| 0),
            (_, cargo) => self.post_send(&mut gate, qp, &send, cargo, kept > 0),
        };
        drop(gate);
        posted.map_err(|error| (error, None))
    }

    /// Begins a Reply that has to be posted in parts.
    fn begin_reply(
        &self,
        gate: &mut SendGate,
        send: ReplySend,
        writes: u32,
        mut cargo: Cargo<H>,
    ) -> Result<(), PostError> {
        let slot = self.send_slot(send.index).ok_or(PostError::Refused)?;
        let cqe = ptr::from_ref(&self.part).cast_mut();
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        for transfer in cargo.transfers.iter_mut() {
            first = transfer.link(cqe, first);
        }
        let first = NonNull::new(first).ok_or(PostError::Refused)?;
        slot.cargo.set(Some(cargo));
        // SAFETY: The transfers have just been linked, and there are so many work requests in them; the slot keeps them
        // until the Send has completed, or no completion comes any more.
        gate.rest = Some(unsafe { Rest::new(first, writes, Last::Send(send)) });
        self.go_on(gate)
    }

    /// Posts the Send of a Reply, for which there is room, and in the same chain before it the Writes of `cargo`, which
    /// is kept until the Send has completed. With `signal` it is signaled in any case. Returns its place.
    ///
    /// # Errors
    ///
    /// `Refused`.
    pub(super) fn post_send(
        &self,
        gate: &mut SendGate,
        qp: NonNull<sys::ib_qp>,
        reply: &ReplySend,
        cargo: Option<Cargo<H>>,
        signal: bool,
    ) -> Result<u64, PostError> {
        let slot = self.send_slot(reply.index).ok_or(PostError::Refused)?;
        let buffer = &slot.buffer;
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        let total = writes.saturating_add(1);
        let len = reply.len.min(buffer.len());
        // SAFETY: The gate is open, so the buffer is mapped and the device live; the message is complete.
        unsafe { buffer.sync_for_device(len) };
        let mut sge = sys::ib_sge {
            addr: buffer.address(),
            length: len as u32,
            lkey: gate.lkey,
        };
        let signaled = signal || writes > 0 || gate.queue.must_signal(total, gate.made);
        let mut send = sys::ib_send_wr {
            sg_list: &raw mut sge,
            num_sge: 1,
            opcode: sys::ib_wr_opcode_IB_WR_SEND,
            send_flags: if signaled {
                sys::ib_send_flags_IB_SEND_SIGNALED as c_int
            } else {
                0
            },
            ..sys::ib_send_wr::zeroed()
        };
        if let Some(rkey) = reply.invalidate {
            send.opcode = sys::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            send.ex.invalidate_rkey = core::mem::ManuallyDrop::new(rkey);
        }
        set_send_cqe(&mut send, ptr::from_ref(&slot.cqe).cast_mut());
        let mut first = &raw mut send;
        if let Some(mut cargo) = cargo {
            for transfer in cargo.transfers.iter_mut() {
                first = transfer.link(ptr::null_mut(), first);
            }
            // Whatever happens, it is released by the completion, or at the end of the endpoint.
            slot.cargo.set(Some(cargo));
        }
        let sequence = gate
            .queue
            .posted(total, signaled, Some(reply.index))
            .ok_or(PostError::Refused)?;
        slot.sequence.store(sequence, kernel::sync::atomic::Relaxed);
        // SAFETY: The gate's QP is live; the chain is valid for the call; the entry that completes later is part
        // of the endpoint, and what the Writes point to is with it.
        let status = unsafe { sys::ib_post_send(qp.as_ptr(), first.cast_const(), ptr::null_mut()) };
        if status != 0 {
            gate.queue.unpost();
            return Err(PostError::Refused);
        }
        Ok(sequence)
    }

    /// Ends the transfers that were posted and never completed, and waits for the last one. The Send Queue is drained.
    ///
    /// Returns what keeps the memory of Reads of which no completion has come: it must stay until the QP is gone. siw
    /// loses those that were under way behind one that the end of the connection cut off in the middle.
    pub(super) fn end_transfers(&self) -> Unfinished<H> {
        self.send.lock().rest = None;
        for slot in self.send_slots() {
            drop(slot.cargo.take());
        }
        let mut unfinished = Unfinished(None);
        for slot in &self.pulls {
            let gate = self.send.lock();
            let pull = slot.pull.take();
            drop(gate);
            let Some(mut pull) = pull else { continue };
            pull.transfers = KVec::new();
            pull.next = unfinished.0.take();
            unfinished.0 = Some(pull);
        }
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

/// How many work requests transfers take.
fn requests<H: EndpointEvents>(transfers: &[Transfer<H>]) -> u32 {
    transfers.iter().fold(0, |sum: u32, transfer| {
        sum.saturating_add(transfer.requests)
    })
}
