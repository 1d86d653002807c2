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
//! because the device refused a part of its chain or lost a completion, is found when the queues are drained.
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
use crate::verbs::endpoint::{Endpoint, EndpointEvents, PostError, SendBuffer};
use crate::verbs::work_request::{set_send_cqe, PlainRequest};
use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};

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
        self.endpoint.transfer_ended();
    }
}

/// What a Reply holds until its Send has completed. The fields are dropped in this order.
pub(crate) struct Cargo<H: EndpointEvents> {
    /// The Writes that are posted with it.
    pub(crate) transfers: KVec<Transfer<H>>,
    /// What keeps their memory.
    pub(crate) _keeper: H::Push,
}

/// RDMA Reads that complete together.
pub(crate) struct Pull<H: EndpointEvents> {
    /// Where in the Send Queue they were posted.
    sequence: u64,
    /// The Reads.
    transfers: KVec<Transfer<H>>,
    /// What they are for.
    keeper: H::Pull,
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
                sequence: 0,
                transfers,
                keeper,
            },
            GFP_KERNEL,
        )?)
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
        gate.transfers += 1;
        let port = gate.port;
        drop(gate);
        match self.begin(direction, bvecs, segment, qp, port) {
            Ok((context, requests)) => Ok(Transfer {
                context,
                requests,
                endpoint: self.clone(),
            }),
            Err(error) => {
                self.transfer_ended();
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
        let iter = sys::bvec_iter {
            bi_size: segment.length,
            ..pin_init::zeroed()
        };
        // SAFETY: The transfer is counted, so the QP exists; the vectors live as long as the state, and their
        // pages are valid.
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
        to_result(requests.min(0))?;
        Ok((context, u32::try_from(requests)?))
    }

    /// A transfer is no more.
    fn transfer_ended(&self) {
        let mut gate = self.send.lock();
        gate.transfers = gate.transfers.saturating_sub(1);
        let last = gate.transfers == 0;
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

    /// Whether the Send Queue will hold a chain for `transfers` and a Send, sooner or later. Up to a quarter of the
    /// queue may be taken by what is not signaled, and comes free with a later completion only: who waits for
    /// more than the rest might wait for ever.
    pub(crate) fn fits(&self, transfers: &[Transfer<H>]) -> bool {
        requests(transfers) < self.sizes.send_queue - self.sizes.send_queue / 4
    }

    /// Posts Reads. When they are done, [`EndpointEvents::pulled`] is called.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, or too many Reads are under way, these come back; else they are dropped
    /// at the latest when the endpoint ends.
    pub(crate) fn post_pull(&self, mut pull: KBox<Pull<H>>) -> Result<(), Unpulled<H>> {
        let requests = requests(&pull.transfers);
        let mut gate = self.send.lock();
        let Some(qp) = gate.qp else {
            drop(gate);
            return Err((PostError::Closed, None));
        };
        let slot = gate
            .free_pulls
            .last()
            .and_then(|index| self.pulls.get(*index as usize));
        let Some(slot) = slot else {
            drop(gate);
            return Err((PostError::Full, Some(pull)));
        };
        if !gate.queue.has_room(requests, 0) {
            drop(gate);
            return Err((PostError::Full, Some(pull)));
        }
        let Some(sequence) = gate.queue.posted(requests, true, None) else {
            drop(gate);
            return Err((PostError::Full, Some(pull)));
        };
        gate.free_pulls.pop();
        pull.sequence = sequence;
        let cqe = ptr::from_ref(&slot.cqe).cast_mut();
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        for transfer in pull.transfers.iter_mut() {
            first = transfer.link(cqe, first);
        }
        // The completion may come before the post returns; it waits for the lock. Moving the box does not move the chain,
        // which is in the contexts of the transfers.
        slot.pull.set(Some(pull));
        // SAFETY: The gate's QP is live; the chain is kept by the slot, until its completion has come or none will.
        let status = unsafe { sys::ib_post_send(qp.as_ptr(), first.cast_const(), ptr::null_mut()) };
        if status == 0 {
            return Ok(());
        }
        gate.queue.unpost();
        drop(gate);
        // The device may work on what it took, so the slot keeps it until the end of the endpoint.
        Err((PostError::Refused, None))
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
            sequence,
            transfers,
            keeper,
        } = KBox::into_inner(pull);
        // Before anybody looks at the memory.
        drop(transfers);
        if completion.ok() {
            this.retire(sequence);
        } else {
            completion.trace_error(this.context.number(), trace::Work::Send);
            this.context.lost();
        }
        H::pulled(this.context.handler(), keeper, completion.ok());
    }

    /// As [`Self::post_reply`]; `parts` are posted before, each with its length.
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
    ) -> Result<(), Unposted<H>> {
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        match self.post_parts(parts, writes.saturating_add(1)) {
            Ok(kept) => self.post_reply(message, len, cargo, invalidate, kept),
            Err(PostError::Full) => Err((PostError::Full, Some((message, cargo)))),
            Err(error) => Err((error, None)),
        }
    }

    /// Posts a Reply: the Writes of its cargo, if there are any, and then the first `len` octets of `message` as a
    /// Send, which invalidates the peer's `invalidate`. The cargo is dropped when the Send has completed. `kept` is room
    /// in the queue that was kept for it.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, everything comes back.
    pub(crate) fn post_reply(
        &self,
        mut message: SendBuffer<H>,
        len: usize,
        mut cargo: Option<Cargo<H>>,
        invalidate: Option<u32>,
        kept: u32,
    ) -> Result<(), Unposted<H>> {
        let Some(slot) = self.sends.get(message.index as usize) else {
            return Err((PostError::Refused, None));
        };
        let Some(buffer) = slot.buffer.as_ref() else {
            return Err((PostError::Refused, None));
        };
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        let total = writes.saturating_add(1);
        let mut gate = self.send.lock();
        gate.queue.unreserve(kept);
        let Some(qp) = gate.qp else {
            drop(gate);
            return Err((PostError::Closed, None));
        };
        if !gate.queue.has_room(total, 0) {
            drop(gate);
            return Err((PostError::Full, Some((message, cargo))));
        }
        // SAFETY: The gate is open, so the buffer is mapped and the device live; the message is complete.
        unsafe { buffer.sync_for_device(len) };
        let mut sge = sys::ib_sge {
            addr: buffer.address(),
            length: len.min(buffer.len()) as u32,
            lkey: gate.lkey,
        };
        // With parts before it as in `post_chain`.
        let signaled = writes > 0 || kept > 0 || gate.queue.must_signal(total, gate.made);
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
        if let Some(rkey) = invalidate {
            send.opcode = sys::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            send.ex.invalidate_rkey = core::mem::ManuallyDrop::new(rkey);
        }
        set_send_cqe(&mut send, ptr::from_ref(&slot.cqe).cast_mut());
        let mut first = &raw mut send;
        if let Some(cargo) = cargo.as_mut() {
            for transfer in cargo.transfers.iter_mut() {
                first = transfer.link(ptr::null_mut(), first);
            }
        }
        let Some(sequence) = gate.queue.posted(total, signaled, Some(message.index)) else {
            drop(gate);
            return Err((PostError::Full, Some((message, cargo))));
        };
        slot.sequence.store(sequence, kernel::sync::atomic::Relaxed);
        // Whatever happens, it is released by the completion, or at the end of the endpoint.
        slot.cargo.set(cargo);
        message.posted = true;
        // SAFETY: The gate's QP is live; the chain is valid for the call; the entry that completes later is part
        // of the endpoint, and what the Writes point to is with it.
        let status = unsafe { sys::ib_post_send(qp.as_ptr(), first.cast_const(), ptr::null_mut()) };
        if status != 0 {
            gate.queue.unpost();
            drop(gate);
            return Err((PostError::Refused, None));
        }
        Ok(())
    }

    /// Ends the transfers that were posted and never completed, and waits for the last one. The Send Queue is drained.
    ///
    /// Returns what keeps the memory of Reads of which no completion has come: it must stay until the QP is gone. siw
    /// loses those that were under way behind one that the end of the connection cut off in the middle.
    pub(super) fn end_transfers(&self) -> KVec<H::Pull> {
        for slot in &self.sends {
            drop(slot.cargo.take());
        }
        let mut keepers = KVec::new();
        for slot in &self.pulls {
            let gate = self.send.lock();
            let pull = slot.pull.take();
            drop(gate);
            let Some(pull) = pull else { continue };
            let Pull {
                transfers, keeper, ..
            } = KBox::into_inner(pull);
            drop(transfers);
            // Without memory for this the pages are given up now, a moment before the QP.
            let _ = keepers.push(keeper, GFP_KERNEL);
        }
        let mut gate = self.send.lock();
        while gate.transfers > 0 {
            // As in `tear_down`: nobody that has one waits for the endpoint.
            self.home.wait(&mut gate);
        }
        drop(gate);
        keepers
    }
}

/// How many work requests transfers take.
fn requests<H: EndpointEvents>(transfers: &[Transfer<H>]) -> u32 {
    transfers.iter().fold(0, |sum: u32, transfer| {
        sum.saturating_add(transfer.requests)
    })
}
