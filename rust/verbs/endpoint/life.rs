// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of an endpoint.

use crate::kext::delayed_work::{DelayedWork, DelayedWorkItem, HasDelayedWork};
use crate::kext::errno::ENOTCONN;
use crate::observe::trace;
use crate::sys;
use crate::verbs::cm::{Accepted, CmId};
use crate::verbs::completion::CompletionQueue;
use crate::verbs::endpoint::quota::SENDS;
use crate::verbs::endpoint::{Endpoint, EndpointEvents, Sizes};
use crate::verbs::receive_pool::{Membership, ReceivePools};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::Arc;
use kernel::time::Msecs;

/// What must be torn down in order.
pub(super) struct Objects<H: EndpointEvents> {
    /// The pool of Receives that the endpoint shares, which uses the device too.
    pub(super) membership: Option<Membership<H>>,
    /// Holds the device, so it goes last.
    pub(super) cm: CmId<H>,
    /// The protection domain of everything below, unless it is the pool's.
    pub(super) pd: Option<NonNull<sys::ib_pd>>,
    /// Its places in the CQs of Sends and of its own Receives, which go after the QP.
    pub(super) queues: Option<(CompletionQueue, Option<CompletionQueue>)>,
    /// The QP of `cm`, if it has one.
    pub(super) qp: Option<NonNull<sys::ib_qp>>,
}

// SAFETY: The verbs objects may be used from any context; exclusion is by the mutex around this.
unsafe impl<H: EndpointEvents> Send for Objects<H> {}

impl<H: EndpointEvents> Endpoint<H> {
    /// Makes the verbs objects, maps the buffers and posts the Receives.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports. [`Self::quiesce`] and [`Self::tear_down`] undo what was done.
    fn set_up(self: &Arc<Self>) -> Result {
        let mut objects = self.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;

        self.part.belongs_to(self);
        for slot in &self.pulls {
            slot.entry.belongs_to(self);
        }
        for slot in &self.receives {
            slot.entry.belongs_to(self);
            // SAFETY: The device stays until `tear_down`, which unmaps first. Nobody else knows the endpoint.
            unsafe { slot.buffer.map(self.device) }?;
        }
        self.make_send_buffers(self.sizes.first_sends, None)?;

        // As many as there may be work requests: one that fails completes, whether signaled or not. One more in each is for
        // the marker of the drain.
        let send_depth = self.sizes.send_queue.checked_add(1).ok_or(EINVAL)?;
        // SAFETY: The CM id holds the device, and goes after the queues. `quiesce` destroys the QP first.
        let send_queue = unsafe { CompletionQueue::shared(self.device, send_depth) }?;
        let (qp, lkey) = match &self.shared {
            Some(pool) => {
                let send_cq = send_queue.as_ptr();
                objects.queues = Some((send_queue, None));
                let parts = pool.parts()?;
                let mut attributes = self.attributes(objects, send_cq, parts.receive_cq);
                attributes.srq = parts.srq;
                let qp = pool.enter(self, || create_qp(objects, parts.pd, &mut attributes))?;
                // SAFETY: The PD is live: the endpoint is a member.
                (qp, unsafe { (*parts.pd.as_ptr()).local_dma_lkey })
            }
            None => {
                // SAFETY: The CM id holds the device.
                let pd = from_err_ptr(unsafe { sys::ib_alloc_pd(self.device.as_ptr(), 0) })?;
                let pd = NonNull::new(pd).ok_or(ENOMEM)?;
                objects.pd = Some(pd);
                let depth = self.sizes.receives.checked_add(1).ok_or(EINVAL)?;
                // SAFETY: As above.
                let receive_queue = unsafe { CompletionQueue::shared(self.device, depth) }?;
                let mut attributes =
                    self.attributes(objects, send_queue.as_ptr(), receive_queue.as_ptr());
                attributes.cap.max_recv_wr = depth;
                objects.queues = Some((send_queue, Some(receive_queue)));
                let qp = create_qp(objects, pd, &mut attributes)?;
                // SAFETY: The PD is live.
                (qp, unsafe { (*pd.as_ptr()).local_dma_lkey })
            }
        };

        {
            let mut gate = self.send.lock();
            gate.lkey = lkey;
            gate.qp = Some(qp);
        }
        let mut gate = self.receive.lock();
        gate.lkey = lkey;
        gate.qp = Some(qp);
        while !gate.idle.is_empty() {
            self.post_receives(&mut gate)?;
        }
        Ok(())
    }

    /// What the QP shall be like, but for its Receives.
    fn attributes(
        self: &Arc<Self>,
        objects: &Objects<H>,
        send_cq: *mut sys::ib_cq,
        recv_cq: *mut sys::ib_cq,
    ) -> sys::ib_qp_init_attr {
        sys::ib_qp_init_attr {
            send_cq,
            recv_cq,
            cap: sys::ib_qp_cap {
                // One more, for the marker of the drain.
                max_send_wr: self.sizes.send_queue.saturating_add(1),
                max_send_sge: self.sizes.transfer_sges,
                // None of the regions that transfers may need: see `add_transfer_regions`.
                max_rdma_ctxs: 0,
                max_recv_sge: 1,
                ..pin_init::zeroed()
            },
            sq_sig_type: sys::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: sys::ib_qp_type_IB_QPT_RC,
            port_num: objects.cm.port().unwrap_or(u32::MAX),
            event_handler: Some(Self::qp_event),
            qp_context: Arc::as_ptr(self).cast_mut().cast(),
            ..pin_init::zeroed()
        }
    }

    /// The device has something to report about the QP. A request of the peer's may have put it into error, of which
    /// nothing completes if nothing is posted to it: no Sends, and the Receives are shared.
    ///
    /// # Safety
    ///
    /// Called by a device for a QP made with [`Self::attributes`], in any context, also with interrupts off.
    unsafe extern "C" fn qp_event(event: *mut sys::ib_event, context: *mut kernel::ffi::c_void) {
        // SAFETY: It is what `attributes` said: an `Arc` that the endpoint's owner has. He destroys the QP before he gives
        // that up, and with the QP the reports end. The reference stays his.
        let this = ManuallyDrop::new(unsafe { Arc::from_raw(context.cast_const().cast::<Self>()) });
        // SAFETY: The event is there for the call.
        let kind = unsafe { (*event).event };
        trace::qp_event(this.context.number(), kind);
        if kind == sys::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED {
            this.last_receive.complete();
        }
        // Who is told takes locks that are not for this context. If the work item is pending already it sees what was noted
        // before it was scheduled again.
        if kind == sys::ib_event_type_IB_EVENT_COMM_EST {
            this.heard.store(true, Relaxed);
            DelayedWork::schedule(&this, 0);
        }
        if matches!(
            kind,
            sys::ib_event_type_IB_EVENT_QP_FATAL
                | sys::ib_event_type_IB_EVENT_QP_REQ_ERR
                | sys::ib_event_type_IB_EVENT_QP_ACCESS_ERR
                // A QP that shares its Receives has gone into error. rxe says no more of a request that it refuses for
                // another reason than its key.
                | sys::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
        ) {
            this.broken.store(true, Relaxed);
            DelayedWork::schedule(&this, 0);
        }
    }

    /// The peer has sent something. A server's end has so far waited for the message of the CM that ends the handshake. If
    /// that was lost, nothing would be said to the peer until it was sent again, which takes seconds.
    fn heard_of_peer(&self) {
        let guard = self.objects.lock();
        let Some(objects) = (*guard).as_ref() else {
            return;
        };
        // SAFETY: The id is live as long as the objects are there. The CM takes its own locks, and looks itself whether there
        // is a handshake to be ended.
        unsafe { sys::rdma_notify(objects.cm.as_ptr(), sys::ib_event_type_IB_EVENT_COMM_EST) };
    }

    /// First half of the end: no more posting, no more completions.
    fn quiesce(self: &Arc<Self>) {
        self.context.silence();
        let qp = self.send.lock().qp.take();
        self.receive.lock().qp = None;

        let mut guard = self.objects.lock();
        let Some(objects) = (*guard).as_mut() else {
            return;
        };
        objects.cm.disconnect();
        if let Some(qp) = qp {
            // Receives first: a Reply may still want to post a fence (which the gate refuses). What is shared with
            // others can't be drained, and need not be: the QP is destroyed, and then its completions are waited for.
            if self.shared.is_none() {
                // SAFETY: The QP is live; nobody posts to it any more.
                unsafe { sys::ib_drain_rq(qp.as_ptr()) };
            }
            // SAFETY: As above.
            unsafe { sys::ib_drain_sq(qp.as_ptr()) };
            // That has put the QP into error, whatever state it was in.
            if let Some(pool) = &self.shared {
                pool.await_last(&self.last_receive);
            }
        }
        let unfinished = self.end_transfers();
        if let Some(qp) = objects.qp.take() {
            let id = objects.cm.as_ptr();
            // SAFETY: The id is live and has a QP.
            let destroy = || unsafe { sys::rdma_destroy_qp(id) };
            match &self.shared {
                Some(pool) => pool.leave(qp, destroy),
                None => destroy(),
            }
        }
        // No device writes to it any more.
        drop(unfinished);
        // Waits for handlers that still run, and for completions that the marker has overtaken.
        objects.queues = None;
        drop(guard);
        // The device reports nothing any more. The work item may be waiting for the lock that was just given up.
        DelayedWork::cancel_sync(self);
    }

    /// Second half: gives everything up. Whoever held regions must have dropped them, or be about to.
    fn tear_down(&self) {
        // First of all, so that `add_regions` has ended and will not begin again.
        let objects = self.objects.lock().take();

        let mut pool = self.pool.lock();
        pool.awaited = true;
        while pool.out > 0 {
            // Not interruptible: this may run on behalf of a task that is being killed. Nothing that holds a
            // handle waits for the endpoint, so the wait is short.
            self.home.wait(&mut pool);
        }
        loop {
            let region = pool.free.pop().or_else(|| pool.dead.pop());
            let Some(region) = region else { break };
            drop(pool);
            // Deregisters, which sleeps.
            drop(region);
            pool = self.pool.lock();
        }
        pool.total = 0;
        drop(pool);

        for slot in &self.receives {
            // SAFETY: The QP is gone: the device is done with the buffer, and nobody posts it or is told of its
            // completion. A `Received` only reads the memory.
            unsafe { slot.buffer.unmap() };
        }
        for slot in self.send_slots() {
            // SAFETY: As above. A `SendBuffer` looks at the memory; its mapping is used under an open gate only.
            unsafe { slot.buffer.unmap() };
        }
        let mut gate = self.send.lock();
        let counted = core::mem::take(&mut gate.counted);
        drop(gate);
        SENDS.sub(counted.into());
        if let Some(mut objects) = objects {
            if let Some(pool) = &self.shared {
                pool.release(self.asked.xchg(0, Relaxed));
            }
            // Perhaps the last one, with which the pool goes.
            drop(objects.membership.take());
            if let Some(pd) = objects.pd {
                // SAFETY: Everything made in the PD is gone.
                unsafe { sys::ib_dealloc_pd(pd.as_ptr()) };
            }
            // The CM id is destroyed last: it holds the device.
            drop(objects);
        }
    }
}

// SAFETY: One is the address of the field, the other `container_of`.
unsafe impl<H: EndpointEvents> HasDelayedWork for Endpoint<H> {
    unsafe fn work_of(object: *const Self) -> *const DelayedWork<Self> {
        // SAFETY: The caller guarantees that `object` is valid.
        unsafe { &raw const (*object).reported }
    }

    unsafe fn object_of(work: *const DelayedWork<Self>) -> *const Self {
        // SAFETY: The caller guarantees that `work` points at this field.
        unsafe { kernel::container_of!(work, Self, reported) }
    }
}

impl<H: EndpointEvents> DelayedWorkItem for Endpoint<H> {
    /// The device has reported something about the QP.
    fn run(this: Arc<Self>) {
        // This first, since the other waits for whoever has the verbs objects.
        if this.broken.xchg(false, Full) {
            this.context.lost();
        }
        if this.heard.xchg(false, Full) {
            this.heard_of_peer();
        }
    }
}

/// Makes the QP of a CM id.
fn create_qp<H: EndpointEvents>(
    objects: &mut Objects<H>,
    pd: NonNull<sys::ib_pd>,
    attributes: &mut sys::ib_qp_init_attr,
) -> Result<NonNull<sys::ib_qp>> {
    let id = objects.cm.as_ptr();
    // SAFETY: The id, the PD and the CQs are live, and the SRQ if there is one.
    to_result(unsafe { sys::rdma_create_qp(id, pd.as_ptr(), attributes) })?;
    // SAFETY: `rdma_create_qp` has set the id's QP.
    let qp = NonNull::new(unsafe { (*id).qp }).ok_or(EINVAL)?;
    objects.qp = Some(qp);
    Ok(qp)
}

/// The one owner of an [`Endpoint`], who ends it.
pub(crate) struct EndpointOwner<H: EndpointEvents> {
    /// The endpoint.
    endpoint: Arc<Endpoint<H>>,
    /// Whether it has been shut down.
    ended: bool,
}

impl<H: EndpointEvents> EndpointOwner<H> {
    /// Makes an endpoint on a CM id whose route is resolved. All Receives are posted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, or what the device reports.
    pub(crate) fn new(cm: CmId<H>, sizes: Sizes) -> Result<Self> {
        Self::with_membership(cm, sizes, None)
    }

    /// As [`Self::new`], but with Receives shared with others of `pools`, `limit` for each device at most. There are none
    /// for it yet, see [`Endpoint::ask_for_receives`]. Where the device can't share it has its own.
    ///
    /// # Errors
    ///
    /// As for [`Self::new`].
    pub(crate) fn sharing(
        cm: CmId<H>,
        sizes: Sizes,
        pools: &Arc<ReceivePools<H>>,
        limit: u32,
    ) -> Result<Self> {
        let device = cm.device().ok_or(ENODEV)?;
        let limits = cm.device_limits().ok_or(ENODEV)?;
        // SAFETY: The CM id holds the device. `tear_down` drops the membership before the id; if there is an error
        // before, they are parameters of the function below, which are dropped in reverse order.
        let membership = unsafe { pools.join(device, &limits, sizes.receive_size, limit) }?;
        Self::with_membership(cm, sizes, membership)
    }

    /// See [`Self::new`] and [`Self::sharing`].
    fn with_membership(
        cm: CmId<H>,
        sizes: Sizes,
        membership: Option<Membership<H>>,
    ) -> Result<Self> {
        // From here on `drop` undoes what is done.
        let owner = Self {
            endpoint: Endpoint::allocate(cm, sizes, membership)?,
            ended: false,
        };
        owner.endpoint.set_up()?;
        Ok(owner)
    }

    /// Connects, and waits for the peer's answer.
    ///
    /// # Errors
    ///
    /// See [`CmId::connect`].
    pub(crate) fn connect(
        &self,
        private_data: &[u8],
        read_depth: u8,
        timeout: Msecs,
    ) -> Result<Accepted> {
        let mut objects = self.endpoint.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;
        let limits = objects.cm.device_limits().ok_or(ENODEV)?;
        objects
            .cm
            .connect(private_data, &limits, read_depth, timeout)
    }

    /// Accepts the connection that the CM id asked for. Sends may be posted afterwards.
    ///
    /// # Errors
    ///
    /// See [`CmId::accept`].
    pub(crate) fn accept(&self, private_data: &[u8], read_depth: u8, answer_depth: u8) -> Result {
        let mut objects = self.endpoint.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;
        objects.cm.accept(private_data, read_depth, answer_depth)
    }

    /// Begins the end of the connection, without waiting: what is posted is flushed.
    pub(crate) fn disconnect(&self) {
        if let Some(objects) = (*self.endpoint.objects.lock()).as_ref() {
            objects.cm.disconnect();
        }
    }

    /// The endpoint.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }

    /// Ends the endpoint. In between, when nothing completes any more, `reclaim` is called: it must drop all
    /// [`RegionHandle`]s that wait for something to happen on this connection.
    pub(crate) fn shutdown(mut self, reclaim: impl FnOnce()) {
        self.ended = true;
        self.endpoint.quiesce();
        reclaim();
        self.endpoint.tear_down();
    }
}

impl<H: EndpointEvents> Drop for EndpointOwner<H> {
    fn drop(&mut self) {
        if !self.ended {
            self.endpoint.quiesce();
            self.endpoint.tear_down();
        }
    }
}
