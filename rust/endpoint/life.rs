// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of an endpoint.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        quota::{
            RECEIVES,
            SENDS, //
        },
        shared_queue::{
            SharedQueues,
            Sharing, //
        },
        Endpoint,
        EndpointEvents,
        Sizes, //
    },
    kext::{
        delayed_work::{
            impl_has_delayed_work_ext,
            DelayedWork,
            DelayedWorkItem, //
        },
        memalloc::NoFs, //
    },
    observe::trace,
    rdma::{
        cm::{
            Accepted,
            CmId,
            QueuePairEvents,
            QueuePairParameters,
            ReceiveSource,
            RnrTimer, //
        },
        protection_domain::ProtectionDomain,
        send_queue::OpenQueue, //
    },
    sys, //
};
use kernel::time::Msecs;

impl<H: EndpointEvents> Endpoint<H> {
    /// Makes the verbs objects, maps the buffers and posts the Receives.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports. [`Self::quiesce`] and [`Self::tear_down`] undo what
    /// was done.
    fn set_up(self: &Arc<Self>) -> Result {
        let mut objects = self.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;

        let receives = if let Some(queue) = &self.shared {
            let srq = queue.srq()?;
            objects.pd = Some(srq.pd().clone());
            ReceiveSource::Shared(srq)
        } else {
            let device = objects.cm.device().ok_or(ENODEV)?;
            let pd = ProtectionDomain::new(device)?;
            objects.pd = Some(pd.clone());
            ReceiveSource::Own(pd, self.sizes.receives)
        };
        // As many as there may be work requests: one that fails completes, whether signaled or not.
        let parameters = QueuePairParameters {
            send_depth: self.sizes.send_queue.depth,
            send_sges: self.sizes.transfer_sges,
            receives,
            postings: self.sizes.postings(self.shares_receives()),
            number: match self.number() {
                trace::Number::Client(number) | trace::Number::Server(number) => number,
            },
        };
        objects.cm.create_queue_pair(parameters, self.clone())?;
        let qp = objects.cm.queue_pair().ok_or(EINVAL)?;
        let open = OpenQueue::new(qp.clone(), self, &self.sizes.send_queue)?;
        self.send.lock().queue.open(open);
        self.make_send_buffers(&qp, self.sizes.first_sends, None)?;

        self.receive.lock().qp = Some(qp.clone());
        match &self.shared {
            // The connections of one that has failed may have been ended before.
            Some(queue) if queue.has_failed() => Err(EIO),
            Some(_) => Ok(()),
            None => self.fill(&qp),
        }
    }

    /// The peer has sent something. A server's end has so far waited for the message of the CM that
    /// ends the handshake. If that was lost, nothing would be said to the peer until it was sent
    /// again, which takes seconds.
    fn heard_of_peer(&self) {
        if let Some(objects) = &*self.objects.lock() {
            objects.cm.heard_of_peer();
        }
    }

    /// Cuts off a peer that breaks the rules: from now on none of its messages is delivered, and
    /// the work item puts its QP into error, since a thread that would end the connection may be a
    /// long time coming. Any context. The owner still has to end the endpoint, and may do so at any
    /// time. Returns `false`, and does nothing, if the peer was cut off before.
    ///
    /// The QP itself stays. What is posted to it afterwards is flushed, as when a connection is
    /// lost.
    pub(crate) fn cut_off(self: &Arc<Self>) -> bool {
        if self.cut.xchg(true, Full) {
            return false;
        }
        self.hang_up.store(true, Relaxed);
        DelayedWork::schedule(self, 0);
        true
    }

    /// Returns whether the peer was cut off.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Second half of [`Self::cut_off`], by the work item.
    fn hang_up(&self) {
        // Handlers and writeback may wait for the lock.
        let _scope = NoFs::enter();
        let guard = self.objects.lock();
        if let Some(objects) = &*guard {
            objects.cm.fail_queue_pair();
            objects.cm.disconnect();
        }
    }

    /// First half of the end: no more posting, no more completions.
    fn quiesce(self: &Arc<Self>) {
        self.context.silence();
        let (closed, replies) = self.send.lock().close();
        self.receive.lock().qp = None;

        let mut guard = self.objects.lock();
        let Some(objects) = (*guard).as_mut() else {
            return;
        };
        objects.cm.disconnect();
        // The gates have had the only uses of the QP but for those of transfers.
        if let Some(closed) = closed {
            // Receives first: a Reply may still want to post a fence (which the gate refuses). What
            // is shared with others can't be drained: the device reports when the QP uses no more
            // of it, and then what has completed is waited for.
            let drained = objects.cm.drain_queue_pair();
            // That has put the QP into error, whatever state it was in. If it never was in a state
            // to receive there is nothing to report.
            let receiving = self.receiving.load(Relaxed);
            if let Some(queue) = self.shared.as_ref().filter(|_| receiving) {
                queue.await_last(&self.last_receive);
            }
            if let Some(drained) = drained {
                replies.iter().for_each(|reply| reply.reclaim(&drained));
                closed.reclaim(&drained);
            }
        }
        drop(replies);
        self.await_transfers();
        // Waits for handlers that still run, and for completions that the marker has overtaken.
        objects.cm.destroy_queue_pair();
        drop(guard);
        // The device reports nothing any more. The work item may be waiting for the lock that was
        // just given up.
        DelayedWork::cancel_sync(self);
    }

    /// Second half: gives everything up. All holders of regions must have dropped them, or be about
    /// to.
    fn tear_down(self: &Arc<Self>) {
        // First of all, so that `add_regions` has ended and will not begin again.
        let objects = self.objects.lock().take();

        let mut pool = self.pool.lock();
        pool.awaited = true;
        while pool.out > 0 {
            // Not interruptible: this may run on behalf of a task that is being killed. Nothing
            // that holds a handle waits for the endpoint, so the wait is short.
            self.home.wait(&mut pool);
        }
        loop {
            let Some(region) = pool.free.pop() else { break };
            drop(pool);
            // Deregisters, which sleeps.
            drop(region);
            pool = self.pool.lock();
        }
        pool.total = 0;
        drop(pool);

        let mut gate = self.send.lock();
        let counted = core::mem::take(&mut gate.counted);
        gate.settle_pages();
        drop(gate);
        SENDS.sub(counted.into());
        let counted = self.receive.lock().take_counted();
        RECEIVES.sub(counted);
        if let Some(mut objects) = objects {
            // Perhaps the last one, with which a shared queue ends.
            drop(objects.membership.take());
            objects.pd = None;
            // The CM id is destroyed last: it holds the device.
            drop(objects);
        }
        // The CM's handler may have cut the peer off meanwhile, and a thread of the service may
        // still do so: it finds the item disabled, which could outlive the module.
        DelayedWork::disable_sync(self);
    }
}

impl<H: EndpointEvents> QueuePairEvents for Endpoint<H> {
    /// The device has something to report about the QP. A request of the peer's may have put it
    /// into error, of which nothing completes if nothing is posted to it: no Sends, and the
    /// Receives are shared.
    fn queue_pair_event(this: &Arc<Self>, kind: u32) {
        trace::qp_event(this.number(), kind);
        if kind == sys::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED {
            this.last_receive.complete();
        }
        // The code that is told takes locks that are not for this context. If the work item is
        // pending already it sees what was noted before it was scheduled again.
        if kind == sys::ib_event_type_IB_EVENT_COMM_EST {
            this.heard.store(true, Relaxed);
            DelayedWork::schedule(this, 0);
        }
        if matches!(
            kind,
            sys::ib_event_type_IB_EVENT_QP_FATAL
                | sys::ib_event_type_IB_EVENT_QP_REQ_ERR
                | sys::ib_event_type_IB_EVENT_QP_ACCESS_ERR
                // A QP that shares its Receives has gone into error. rxe reports no more of a
                // request that it refuses for another reason than its key.
                | sys::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED
        ) {
            this.broken.store(true, Relaxed);
            DelayedWork::schedule(this, 0);
        }
    }
}

impl_has_delayed_work_ext! {
    impl{H: EndpointEvents} HasDelayedWork<0> for Endpoint<H> { self.reported }
}

impl<H: EndpointEvents> DelayedWorkItem for Endpoint<H> {
    /// The device has reported something about the QP, or a handler has left something to do.
    fn run(this: Arc<Self>) {
        // This first, since the others wait for the holder of the verbs objects.
        if this.broken.xchg(false, Full) {
            this.context.lost();
        }
        if this.hang_up.xchg(false, Full) {
            this.hang_up();
        }
        if this.short.xchg(false, Full) {
            this.fill_now();
        }
        if this.heard.xchg(false, Full) {
            this.heard_of_peer();
        }
    }
}

/// The one owner of an [`Endpoint`], which ends it.
pub(crate) struct EndpointOwner<H: EndpointEvents> {
    /// The endpoint.
    endpoint: Arc<Endpoint<H>>,
    /// Set when it has been shut down.
    ended: bool,
}

impl<H: EndpointEvents> EndpointOwner<H> {
    /// Makes an endpoint on a CM id whose route is resolved. Its first Receives are posted. With
    /// `sharing`, it may share Receives with others there.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, or what the device reports.
    pub(crate) fn new(
        cm: CmId<H>,
        sizes: Sizes,
        sharing: Option<(&Arc<SharedQueues<Endpoint<H>>>, Sharing)>,
    ) -> Result<Self> {
        let membership = if let Some((queues, sharing)) = sharing {
            let device = cm.device().ok_or(ENODEV)?;
            let limits = cm.device_limits().ok_or(ENODEV)?;
            Some(queues.join(&device, &limits, sharing, sizes.receive_size)?)
        } else {
            None
        };
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
        objects.cm.connect(private_data, read_depth, timeout)
    }

    /// Accepts the connection that the CM id asked for. Sends may be posted afterwards.
    ///
    /// # Errors
    ///
    /// See [`CmId::accept`].
    pub(crate) fn accept(&self, private_data: &[u8], read_depth: u8, answer_depth: u8) -> Result {
        let mut objects = self.endpoint.objects.lock();
        let objects = (*objects).as_mut().ok_or(ENOTCONN)?;
        let timer = if self.endpoint.shares_receives() {
            RnrTimer::Shared
        } else {
            RnrTimer::Own
        };
        objects
            .cm
            .accept(private_data, read_depth, answer_depth, timer)?;
        self.endpoint.receiving.store(true, Relaxed);
        Ok(())
    }

    /// Begins the end of the connection, without waiting: what is posted is flushed.
    pub(crate) fn disconnect(&self) {
        if let Some(objects) = &*self.endpoint.objects.lock() {
            objects.cm.disconnect();
        }
    }

    /// The endpoint.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }

    /// Ends the endpoint. In between, when nothing completes any more, `reclaim` is called: it must
    /// drop all [`RegionHandle`]s that wait for something to happen on this connection.
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
