// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of an endpoint.

use crate::kext::errno::ENOTCONN;
use crate::sys;
use crate::verbs::cm::{Accepted, CmId, ConnectionEvents};
use crate::verbs::completion::CompletionQueue;
use crate::verbs::endpoint::{Endpoint, EndpointEvents, Sizes};
use core::ptr::NonNull;
use kernel::error::{from_err_ptr, to_result};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::time::Msecs;

/// What must be torn down in order.
pub(super) struct Objects<H: ConnectionEvents> {
    /// Holds the device, so it goes last.
    pub(super) cm: CmId<H>,
    /// The protection domain of everything below.
    pub(super) pd: Option<NonNull<sys::ib_pd>>,
    /// The CQs of Sends and of Receives, which go after the QP.
    pub(super) queues: Option<(CompletionQueue, CompletionQueue)>,
    /// Whether `cm` has a QP.
    pub(super) has_qp: bool,
}

// SAFETY: The verbs objects may be used from any context; exclusion is by the mutex around this.
unsafe impl<H: ConnectionEvents> Send for Objects<H> {}

impl<H: EndpointEvents> Endpoint<H> {
    /// Makes the verbs objects, maps the buffers and posts the Receives.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports. [`Self::quiesce`] and [`Self::tear_down`] undo what was done.
    fn set_up(self: &Arc<Self>) -> Result {
        let mut objects = self.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;

        // SAFETY: The CM id holds the device.
        let pd = from_err_ptr(unsafe { sys::ib_alloc_pd(self.device.as_ptr(), 0) })?;
        objects.pd = NonNull::new(pd);
        // SAFETY: The PD was just allocated.
        let lkey = unsafe { (*pd).local_dma_lkey };

        let receives = self.receives.iter().map(|slot| &slot.buffer);
        let sends = self.sends.iter().map(|slot| &slot.buffer);
        for buffer in Iterator::chain(receives, sends) {
            // SAFETY: The device stays until `tear_down`, which unmaps first. Nobody else knows the endpoint.
            unsafe { buffer.map(self.device) }?;
        }

        let context: *mut c_void = Arc::as_ptr(self).cast_mut().cast();
        // One entry more than work requests in each, for the marker of the drain.
        let send_depth = self.sizes.send_queue.checked_add(1).ok_or(EINVAL)?;
        let receive_depth = self.sizes.receives.checked_add(1).ok_or(EINVAL)?;
        // SAFETY: The CM id holds the device, and goes after the queues. `EndpointOwner` keeps the endpoint, which
        // is the context, until they are gone. `quiesce` destroys the QP first.
        let send_queue = unsafe { CompletionQueue::new(self.device, context, send_depth) }?;
        // SAFETY: As above.
        let receive_queue = unsafe { CompletionQueue::new(self.device, context, receive_depth) }?;

        let mut attributes = sys::ib_qp_init_attr {
            send_cq: send_queue.as_ptr(),
            recv_cq: receive_queue.as_ptr(),
            cap: sys::ib_qp_cap {
                max_send_wr: send_depth,
                max_recv_wr: receive_depth,
                max_send_sge: self.sizes.transfer_sges,
                max_rdma_ctxs: self.sizes.transfers,
                max_recv_sge: 1,
                ..pin_init::zeroed()
            },
            sq_sig_type: sys::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: sys::ib_qp_type_IB_QPT_RC,
            // Read only where transfers are wanted.
            port_num: objects.cm.port().unwrap_or(u32::MAX),
            ..pin_init::zeroed()
        };
        objects.queues = Some((send_queue, receive_queue));
        let id = objects.cm.as_ptr();
        // SAFETY: The id, the PD and the CQs are live.
        to_result(unsafe { sys::rdma_create_qp(id, pd, &raw mut attributes) })?;
        objects.has_qp = true;
        // SAFETY: `rdma_create_qp` has set the id's QP.
        let qp = NonNull::new(unsafe { (*id).qp }).ok_or(EINVAL)?;

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

    /// First half of the end: no more posting, no more completions.
    fn quiesce(&self) {
        self.context.silence();
        let qp = self.send.lock().qp.take();
        self.receive.lock().qp = None;

        let mut guard = self.objects.lock();
        let Some(objects) = (*guard).as_mut() else {
            return;
        };
        objects.cm.disconnect();
        if let Some(qp) = qp {
            // Receives first: a Reply may still want to post a fence (which the gate refuses).
            // SAFETY: The QP is live; nobody posts to it any more.
            unsafe { sys::ib_drain_rq(qp.as_ptr()) };
            // SAFETY: As above.
            unsafe { sys::ib_drain_sq(qp.as_ptr()) };
        }
        self.end_transfers();
        if objects.has_qp {
            objects.has_qp = false;
            // SAFETY: The id is live and has a QP.
            unsafe { sys::rdma_destroy_qp(objects.cm.as_ptr()) };
        }
        // Waits for handlers that still run.
        objects.queues = None;
    }

    /// Second half: gives everything up. Whoever held regions must have dropped them, or be about to.
    fn tear_down(&self) {
        // First of all, so that `add_regions` has ended and will not begin again.
        let objects = self.objects.lock().take();

        let mut pool = self.pool.lock();
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
        for slot in &self.sends {
            // SAFETY: As above. A `SendBuffer` looks at the memory; its mapping is used under an open gate only.
            unsafe { slot.buffer.unmap() };
        }
        if let Some(objects) = objects {
            if let Some(pd) = objects.pd {
                // SAFETY: Everything made in the PD is gone.
                unsafe { sys::ib_dealloc_pd(pd.as_ptr()) };
            }
            // The CM id is destroyed last: it holds the device.
            drop(objects);
        }
    }
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
        // From here on `drop` undoes what is done.
        let owner = Self {
            endpoint: Endpoint::allocate(cm, sizes)?,
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
    pub(crate) fn connect(&self, private_data: &[u8], timeout: Msecs) -> Result<Accepted> {
        let mut objects = self.endpoint.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;
        let limits = objects.cm.device_limits().ok_or(ENODEV)?;
        objects.cm.connect(private_data, &limits, timeout)
    }

    /// Accepts the connection that the CM id asked for. Sends may be posted afterwards.
    ///
    /// # Errors
    ///
    /// See [`CmId::accept`].
    pub(crate) fn accept(&self, private_data: &[u8], read_depth: u8) -> Result {
        let mut objects = self.endpoint.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;
        objects.cm.accept(private_data, read_depth)
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
