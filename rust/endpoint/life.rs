// SPDX-License-Identifier: GPL-2.0

//! The beginning and the end of an endpoint.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        quota::{
            RECEIVES,
            SENDS, //
        },
        receive_pool::{
            ReceivePool,
            ReceivePools, //
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

        // As many as there may be work requests: one that fails completes, whether signaled or not.
        let parameters = |receives| QueuePairParameters {
            send_depth: self.sizes.send_queue,
            send_sges: self.sizes.transfer_sges,
            receives,
            postings: self.sizes.postings(self.shares_receives()),
            number: match self.number() {
                trace::Number::Client(number) | trace::Number::Server(number) => number,
            },
        };
        if let Some(pool) = &self.shared {
            let srq = pool.queue()?;
            objects.pd = Some(srq.pd().clone());
            let parameters = parameters(ReceiveSource::Shared(srq));
            objects.cm.create_queue_pair(parameters, self.clone())?;
        } else {
            let device = objects.cm.device().ok_or(ENODEV)?;
            let pd = ProtectionDomain::new(device)?;
            objects.pd = Some(pd.clone());
            let own: ReceiveSource<ReceivePool<Self>> = ReceiveSource::Own(pd, self.sizes.receives);
            objects
                .cm
                .create_queue_pair(parameters(own), self.clone())?;
        }
        let qp = objects.cm.queue_pair().ok_or(EINVAL)?;
        let open = OpenQueue::new(qp.clone(), self, self.sizes.pulls)?;
        self.send.lock().queue.open(open);
        self.make_send_buffers(&qp, self.sizes.first_sends, None)?;

        self.receive.lock().qp = Some(qp.clone());
        if self.shares_receives() {
            return Ok(());
        }
        self.fill(&qp)
    }

    /// The peer has sent something. A server's end has so far waited for the message of the CM that
    /// ends the handshake. If that was lost, nothing would be said to the peer until it was sent
    /// again, which takes seconds.
    fn heard_of_peer(&self) {
        if let Some(objects) = &*self.objects.lock() {
            objects.cm.heard_of_peer();
        }
    }

    /// Cuts off a peer that has taken what is not its own: from now on its QP takes no Receive,
    /// and none of its messages is delivered, those that have arrived included. Any context that
    /// may sleep, completion handlers among them. The owner still has to end the endpoint, and may
    /// do so at any time. Returns `false`, and does nothing, if the peer was cut off before.
    ///
    /// # What puts the QP into error
    ///
    /// The caller, if the lock of the verbs objects is free: as long as the QP is in order its
    /// peer takes Receives that others share, as fast as its device can, and a thread that would
    /// end the connection may be a long time coming. A handler must not wait for that lock, see
    /// [`completion`](crate::rdma::completion), since the end of an endpoint waits for handlers
    /// while it has it; so it tries. To have the lock is no harm then: `ib_modify_qp` sleeps, and
    /// waits for no completion handler. The holder of the lock either ends the endpoint, and puts
    /// the QP into error itself, or is soon done; then the work item does it, which may wait. It
    /// also tells the peer, by the CM.
    ///
    /// The QP itself stays. What is posted to it afterwards is flushed, as when a connection is
    /// lost.
    pub(crate) fn cut_off(self: &Arc<Self>) -> bool {
        if self.cut.xchg(true, Full) {
            return false;
        }
        // Writeback may wait for a handler of completions.
        let scope = NoFs::enter();
        let guard = self.objects.try_lock();
        if let Some(objects) = guard.as_ref().and_then(|guard| (**guard).as_ref()) {
            objects.cm.fail_queue_pair();
        }
        drop(guard);
        drop(scope);
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
        let closed = self.send.lock().queue.close();
        self.receive.lock().qp = None;

        let mut guard = self.objects.lock();
        let Some(objects) = (*guard).as_mut() else {
            return;
        };
        objects.cm.disconnect();
        // The gates have had the only uses of the QP but for those of transfers.
        if let Some(closed) = closed {
            // Receives first: a Reply may still want to post a fence (which the gate refuses). What
            // is shared with others can't be drained, and need not be: the QP is destroyed, and
            // then its completions are waited for.
            let drained = objects.cm.drain_queue_pair();
            // That has put the QP into error, whatever state it was in.
            // Of one that never was in a state to receive there need not be anything to tell.
            let receiving = self.receiving.load(Relaxed);
            if let Some(pool) = self.shared.as_ref().filter(|_| receiving) {
                pool.await_last(&self.last_receive);
            }
            if let Some(drained) = drained {
                closed.reclaim(&drained);
            }
        }
        self.await_transfers();
        // Waits for handlers that still run, and for completions that the marker has overtaken.
        objects.cm.destroy_queue_pair();
        if let Some(pool) = &self.shared {
            // For what may have been lost.
            pool.fill_at_last();
        }
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
            if let Some(pool) = &self.shared {
                pool.release(self.asked.xchg(0, Relaxed));
            }
            // Perhaps the last one, with which the pool goes.
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
                // A QP that shares its Receives has gone into error. rxe says no more of a request
                // that it refuses for another reason than its key.
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
    /// Makes an endpoint on a CM id whose route is resolved. Its first Receives are posted.
    ///
    /// With `sharing`, it shares Receives with others of these pools, at most the number given for
    /// each device. There are none for it yet, see [`Endpoint::ask_for_receives`]. Where the device
    /// can't share it has its own.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `ENODEV`, or what the device reports.
    pub(crate) fn new(
        cm: CmId<H>,
        sizes: Sizes,
        sharing: Option<(&Arc<ReceivePools<Endpoint<H>>>, u32)>,
    ) -> Result<Self> {
        let membership = if let Some((pools, limit)) = sharing {
            let device = cm.device().ok_or(ENODEV)?;
            let limits = cm.device_limits().ok_or(ENODEV)?;
            pools.join(&device, &limits, sizes.receive_size, limit)?
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
