// SPDX-License-Identifier: GPL-2.0

//! The QP of a connection.
//!
//! # Who owns what, and what ends it
//!
//! The QP belongs to the [`CmId`](super::CmId) of its connection. A [`QueuePairUser`] keeps it from
//! being destroyed: its end waits until there is none. The QP keeps its PD, the CQ places of its
//! work requests, what is posted to it, the Shared Receive Queue, and the object that its events go
//! to; it gives them up when it is destroyed and its completions were handled.

use crate::kext::prelude::*;
use crate::{
    kext::completion::Completion,
    rdma::{
        completion::CompletionQueue,
        device::Device,
        posting::{
            Completes,
            EndOfQueue,
            Keep,
            Keeper,
            Posting, //
        },
        protection_domain::ProtectionDomain,
        receive_buffer::{
            post_receives,
            Own,
            ReceiveBuffer,
            Receives, //
        },
        shared_receive_queue::{
            MemberOf,
            SharedReceiveQueue,
            SharedReceives, //
        },
        work_request::PlainRequest, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};

/// Receives the events of a QP.
pub(crate) trait QueuePairEvents: Send + Sync + 'static {
    /// Reports an event of the device (`enum ib_event_type`).
    ///
    /// Runs in any context, also with interrupts off. The device reports nothing any more when the
    /// QP was destroyed.
    fn queue_pair_event(this: &Arc<Self>, event: u32);
}

/// The queue to which the Receives of a QP are posted.
pub(crate) enum ReceiveSource<R: SharedReceives> {
    /// To a queue of its own for this many of them, in the PD.
    Own(Arc<ProtectionDomain>, u32),
    /// To a queue that it shares, in the PD of that.
    Shared(Arc<SharedReceiveQueue<R>>),
}

/// The properties of a new QP.
pub(crate) struct QueuePairParameters<R: SharedReceives> {
    /// The number of Sends that may be posted at once.
    pub(crate) send_depth: u32,
    /// The number of scatter/gather elements of a Send, RDMA Read or Write.
    pub(crate) send_sges: u32,
    /// The Receives, each of one element.
    pub(crate) receives: ReceiveSource<R>,
    /// The largest number of [postings](Posting) that are made for it.
    pub(crate) postings: u32,
    /// The number of the connection among others of its kind. The completion vectors are used in
    /// turn by it: if the connections of a client and of a server on one device had one turn, each
    /// kind could have the same vector always.
    pub(crate) number: u32,
}

/// The one reference to the QP that counts, for all its users.
struct Used {
    /// The C object.
    qp: NonNull<sys::ib_qp>,
    /// The device, and its port.
    device: Device,
    /// See `device`.
    port: u32,
    /// The key for all local memory of its PD.
    lkey: u32,
    /// What is posted to it.
    keeper: Arc<Keeper>,
    /// Completed when there is no user any more.
    unused: Arc<Completion>,
}

// SAFETY: A QP belongs to no thread.
unsafe impl Send for Used {}

// SAFETY: The verbs on a QP may be called from any context at the same time.
unsafe impl Sync for Used {}

impl Drop for Used {
    fn drop(&mut self) {
        self.unused.complete();
    }
}

/// A use of a QP, which is not destroyed before it is dropped.
///
/// # Invariants
///
/// The QP exists.
#[derive(Clone)]
pub(crate) struct QueuePairUser(Arc<Used>);

impl QueuePairUser {
    /// Returns the C object.
    pub(in crate::rdma) fn as_ptr(&self) -> *mut sys::ib_qp {
        self.0.qp.as_ptr()
    }

    /// Returns the port of the device that the connection uses.
    pub(in crate::rdma) fn port(&self) -> u32 {
        self.0.port
    }

    /// Returns the device.
    pub(in crate::rdma) fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns whether the QP is in `pd`.
    pub(in crate::rdma) fn is_in(&self, pd: &ProtectionDomain) -> bool {
        // SAFETY: By the type invariant the QP exists. Its PD does not change.
        ptr::eq(unsafe { (*self.as_ptr()).pd }, pd.as_ptr())
    }

    /// Returns the key for all local memory of the PD.
    pub(in crate::rdma) fn lkey(&self) -> u32 {
        self.0.lkey
    }

    /// Returns the keeper of what is posted to the QP.
    pub(in crate::rdma) fn keeper(&self) -> &Arc<Keeper> {
        &self.0.keeper
    }

    /// Makes a posting for the QP, of which `owner` is told. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the postings of the QP belong to another owner, `ENOSPC` if there are as many as
    /// there may be, `ENOMEM`.
    pub(in crate::rdma) fn keep<T: Completes>(
        &self,
        owner: &Arc<T::Owner>,
        what: T,
    ) -> Result<Posting<T>> {
        // SAFETY: By the type invariant the QP exists; `QueuePair` ends the keeper.
        unsafe { self.0.keeper.keep(owner, what) }
    }

    /// Makes a Receive buffer of `len` octets for the QP. Sleeps.
    ///
    /// # Errors
    ///
    /// As for other postings, or `ENODEV` if the device is going.
    pub(crate) fn receive_buffer<O: Receives>(
        &self,
        owner: &Arc<O>,
        len: usize,
    ) -> Result<ReceiveBuffer<Own<O>>> {
        // SAFETY: As in `keep`.
        unsafe { ReceiveBuffer::new(&self.0.keeper, owner, &self.0.device, len) }
    }

    /// Gives up Receive buffers of the QP before it ends: unmaps and frees them. Any context in
    /// which spinlocks may be taken.
    pub(crate) fn release_receives<O: Receives>(
        &self,
        buffers: impl Iterator<Item = ReceiveBuffer<Own<O>>>,
    ) {
        buffers.for_each(|buffer| buffer.release(&self.0.keeper));
    }

    /// Posts Receives with buffers of the QP: `RECEIVE_BATCH` at most are taken.
    ///
    /// # Errors
    ///
    /// What the device reports. Then the buffers are its own.
    pub(crate) fn post_receives<O: Receives>(
        &self,
        buffers: impl Iterator<Item = ReceiveBuffer<Own<O>>>,
    ) -> Result {
        let Used {
            qp, lkey, keeper, ..
        } = &*self.0;
        // SAFETY: By the type invariant the QP exists, in the PD of the key. The chain is valid for
        // the call. What it names is kept until the QP has ended.
        to_result(unsafe {
            post_receives(keeper, *lkey, buffers, |first| {
                sys::ib_post_recv(qp.as_ptr(), first, ptr::null_mut())
            })
        })
    }
}

/// The proof that the Send Queue of a QP was drained.
pub(crate) struct Drained<'a>(&'a Arc<Keeper>);

impl Drained<'_> {
    /// Returns whether it is about the QP of `posting`.
    pub(in crate::rdma) fn is_of<T: Completes>(&self, posting: &Posting<T>) -> bool {
        posting.is_for(self.0)
    }
}

/// A QP with what it needs. The fields are dropped in this order, when it was destroyed.
///
/// # Invariants
///
/// `id` is live, and has the QP of `user`, whose completions go to `queue` (those of Receives that
/// are shared to that of `srq`), and its events to `events`.
pub(super) struct QueuePair {
    /// The CM id.
    id: *mut sys::rdma_cm_id,
    /// The first user. Always present until `drop`.
    user: Option<QueuePairUser>,
    /// Completed when there is no user any more.
    unused: Arc<Completion>,
    /// The CQ places of what is posted to it.
    _queue: CompletionQueue,
    /// The postings. They end when the handlers have done with them.
    end: EndOfQueue,
    /// The queue of Receives that are shared, and the address of the QP's user there.
    srq: Option<(Arc<dyn MemberOf>, usize)>,
    /// The PD.
    _pd: Arc<ProtectionDomain>,
    /// The object that events go to.
    _events: Arc<dyn Keep>,
}

/// Passes an event on.
///
/// # Safety
///
/// Called by a device for a QP that was made with this handler for `O`.
unsafe extern "C" fn event_callback<O: QueuePairEvents>(
    event: *mut sys::ib_event,
    context: *mut kernel::ffi::c_void,
) {
    // SAFETY: `create_queue_pair` has set the context, to the pointer of an `Arc` that the
    // `QueuePair` keeps until the QP is destroyed, with which its events end. It is borrowed, so
    // the count stays.
    let events = ManuallyDrop::new(unsafe { Arc::from_raw(context.cast_const().cast::<O>()) });
    // SAFETY: The event exists during the call.
    O::queue_pair_event(&events, unsafe { (*event).event });
}

impl QueuePair {
    /// Makes the QP of a CM id, whose events go to `events`. It takes one place more in each
    /// direction than work requests may be posted, for the marker of a drain. All completions are
    /// handled in one CQ, so that a run of the handler mostly finds the completion of a Reply with
    /// the next Call; except for those of Receives that are shared.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device cannot have one as large, `ENOMEM`, or what the device reports.
    ///
    /// # Safety
    ///
    /// The id is live until the value was dropped, has no QP, and a resolved route, on a port of
    /// `device`. The value is dropped before a client of the device has given that up.
    pub(super) unsafe fn new<O: QueuePairEvents, R: SharedReceives<Member = O>>(
        id: *mut sys::rdma_cm_id,
        device: Device,
        port: u32,
        parameters: QueuePairParameters<R>,
        events: Arc<O>,
    ) -> Result<Self> {
        let send_places = parameters.send_depth.checked_add(1).ok_or(EINVAL)?;
        let (receive_places, srq, pd) = match parameters.receives {
            ReceiveSource::Own(pd, depth) => (depth.checked_add(1).ok_or(EINVAL)?, None, pd),
            ReceiveSource::Shared(srq) => (0, Some(srq.clone()), srq.pd().clone()),
        };
        let places = send_places.checked_add(receive_places).ok_or(EINVAL)?;
        // SAFETY: The caller guarantees it; the QP is destroyed before the places are given back.
        let queue = unsafe { CompletionQueue::shared(&device, places, parameters.number) }?;
        let unused = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let keeper = Keeper::new(parameters.postings)?;
        let mut attributes = sys::ib_qp_init_attr {
            port_num: port,
            event_handler: Some(event_callback::<O>),
            qp_context: Arc::as_ptr(&events).cast_mut().cast(),
            send_cq: queue.as_ptr(),
            recv_cq: srq.as_ref().map_or(&queue, |srq| srq.queue()).as_ptr(),
            srq: srq.as_ref().map_or(ptr::null_mut(), |srq| srq.as_ptr()),
            cap: sys::ib_qp_cap {
                max_send_wr: send_places,
                max_recv_wr: receive_places,
                max_send_sge: parameters.send_sges,
                max_recv_sge: 1,
                // No memory regions of the core's `rdma_rw`: they are made when they are needed.
                max_rdma_ctxs: 0,
                ..pin_init::zeroed()
            },
            sq_sig_type: sys::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: sys::ib_qp_type_IB_QPT_RC,
            ..pin_init::zeroed()
        };
        // SAFETY: The id exists, as do PD, CQs and SRQ, which the `QueuePair` keeps as long as the
        // QP exists. The core checks that the PD is of the id's device.
        to_result(unsafe { sys::rdma_create_qp(id, pd.as_ptr(), &raw mut attributes) })?;
        // SAFETY: `rdma_create_qp` has set the QP of the id.
        let qp = NonNull::new(unsafe { (*id).qp }).ok_or(EINVAL)?;
        let used = Used {
            qp,
            device,
            port,
            lkey: pd.local_dma_lkey(),
            keeper: keeper.clone(),
            unused: unused.clone(),
        };
        let address = qp.addr().get();
        let entered = srq
            .as_ref()
            .map_or(Ok(()), |srq| srq.enter(address, events.clone()));
        let srq =
            srq.map(|srq| -> (Arc<dyn MemberOf>, usize) { (srq, Arc::as_ptr(&events).addr()) });
        let used = entered.and_then(|()| Ok(Arc::new(used, GFP_KERNEL)?));
        let used = used.inspect_err(|_| {
            // SAFETY: The id exists and has a QP, which nothing else uses yet.
            unsafe { sys::rdma_destroy_qp(id) };
            if let Some((srq, user)) = &srq {
                srq.left(address, *user);
            }
        })?;
        // SAFETY: The fields are dropped after the QP was destroyed, this one after the places in
        // CQs.
        let end = unsafe { EndOfQueue::new(keeper) };
        // INVARIANT: The QP was just made with all of these.
        Ok(Self {
            id,
            user: Some(QueuePairUser(used)),
            unused,
            _queue: queue,
            end,
            srq,
            _pd: pd,
            _events: events,
        })
    }

    /// Returns a use of it.
    pub(super) fn user(&self) -> Option<QueuePairUser> {
        self.user.clone()
    }

    /// Puts it into error, and waits until what was posted to it has completed, or a device has
    /// said that it has. Receives that are shared are not waited for. Sleeps.
    pub(super) fn drain(&self) -> Option<Drained<'_>> {
        let qp = self.user.as_ref()?.as_ptr();
        if self.srq.is_none() {
            // SAFETY: The QP exists. Its CQ has a place for the marker.
            unsafe { sys::ib_drain_rq(qp) };
        }
        // SAFETY: As above.
        unsafe { sys::ib_drain_sq(qp) };
        Some(Drained(self.end.keeper()))
    }

    /// Puts it into error. Sleeps.
    pub(super) fn fail(&self) {
        let Some(user) = &self.user else { return };
        let mut attributes = sys::ib_qp_attr {
            qp_state: sys::ib_qp_state_IB_QPS_ERR,
            ..sys::ib_qp_attr::zeroed()
        };
        let mask = sys::ib_qp_attr_mask_IB_QP_STATE as c_int;
        // SAFETY: The QP exists. If the device refuses, it is in error already or was never
        // connected.
        unsafe { sys::ib_modify_qp(user.as_ptr(), &raw mut attributes, mask) };
    }
}

impl Drop for QueuePair {
    /// Destroys the QP as soon as it has no user. The places in CQs are dropped next, which waits
    /// for handlers.
    fn drop(&mut self) {
        let user = self.user.take();
        let address = user.as_ref().map_or(0, |user| user.as_ptr().addr());
        drop(user);
        self.unused.wait();
        if let Some((srq, _)) = &self.srq {
            srq.flush();
        }
        // SAFETY: By the type invariant the id exists and has the QP, which nothing uses any more.
        unsafe { sys::rdma_destroy_qp(self.id) };
        if let Some((srq, user)) = &self.srq {
            srq.left(address, *user);
        }
    }
}
