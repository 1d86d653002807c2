// SPDX-License-Identifier: GPL-2.0

//! The receiving half of an endpoint.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        shared_queue::{
            Member,
            SharedBuffer, //
        },
        Endpoint,
        EndpointEvents, //
    },
    kext::{
        delayed_work::DelayedWork,
        memalloc::NoFs, //
    },
    observe::trace,
    rdma::{
        cm::QueuePairUser,
        completion::Completion,
        receive_buffer::{
            Own,
            ReceiveBuffer,
            Receives, //
        }, //
    }, //
};

pub(crate) use crate::rdma::receive_buffer::RECEIVE_BATCH;

use crate::proto::credits::MESSAGES_PER_CREDIT;

/// A Receive buffer of an endpoint's own.
type OwnBuffer<H> = ReceiveBuffer<Own<Endpoint<H>>>;

/// A Receive buffer.
enum Buffer<H: EndpointEvents> {
    /// One of the endpoint's own.
    Own(OwnBuffer<H>),
    /// One of the queue that it shares.
    Shared(SharedBuffer<Endpoint<H>>),
}

impl<H: EndpointEvents> Receives for Endpoint<H> {
    fn received(this: ArcBorrow<'_, Self>, buffer: OwnBuffer<H>, completion: Completion<'_>) {
        Self::taken_in(this, Buffer::Own(buffer), completion);
    }
}

impl<H: EndpointEvents> Member for Endpoint<H> {
    fn arrived(this: Arc<Self>, buffer: SharedBuffer<Self>, completion: Completion<'_>) {
        this.held.fetch_add(1, Relaxed);
        Self::taken_in(this.as_arc_borrow(), Buffer::Shared(buffer), completion);
    }

    fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    fn is_ending(&self) -> bool {
        self.is_cut_off()
    }

    fn end(this: &Arc<Self>) {
        this.cut_off();
        this.context.lost();
        H::evicted(this.context.handler());
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// A Receive has completed.
    fn taken_in(this: ArcBorrow<'_, Self>, buffer: Buffer<H>, completion: Completion<'_>) {
        // Without a message the buffer has its former content, maybe of another peer.
        if !completion.ok() || !completion.is_message() {
            trace::receive(this.number(), 0, completion.status());
            // Every connection ends with flushed Receives.
            if !completion.ok() && !completion.flushed() {
                this.trace_error(completion, trace::Work::Receive);
            }
            let this = Arc::from(this);
            // If the QP is in order no credits stop an RDMA Write with immediate data. Its peer can
            // come again with what is too long as well.
            let offends = completion.ok() || completion.is_refused();
            if offends && this.cut_off() {
                this.context.handler().offended();
            }
            this.context.lost();
            // Not before, or the Receive would seem to be missing on a connection in order.
            this.keep_back(buffer);
            return;
        }
        if this.is_cut_off() {
            Arc::from(this).keep_back(buffer);
            return;
        }
        let len = completion.byte_len();
        trace::receive(this.number(), len as usize, completion.status());
        let message = Received {
            buffer: Some(buffer),
            len,
            invalidated: completion.invalidated_rkey(),
            counted: false,
            endpoint: this.into(),
        };
        H::received(this.context.handler(), message);
    }

    /// Takes a buffer back whose QP is in error, or soon will be.
    fn keep_back(self: &Arc<Self>, buffer: Buffer<H>) {
        match buffer {
            Buffer::Own(buffer) => self.receive.lock().put_back(buffer),
            shared @ Buffer::Shared(_) => self.recycle(shared),
        }
    }

    /// Takes a buffer back that a [`Received`] is done with.
    fn recycle(self: &Arc<Self>, buffer: Buffer<H>) {
        let buffer = match buffer {
            Buffer::Own(buffer) => buffer,
            Buffer::Shared(buffer) => {
                if let Some(queue) = &self.shared {
                    queue.recycle(buffer);
                }
                self.held.fetch_sub(1, Relaxed);
                return;
            }
        };
        let mut gate = self.receive.lock();
        let surplus = gate.put(buffer);
        let qp = surplus.as_ref().and_then(|_| gate.qp.clone());
        let failed = gate.post_batch().is_err();
        let wants_more = gate.qp.is_some() && gate.stock.wants_more();
        drop(gate);
        if let Some(qp) = qp {
            qp.release_receives(surplus.into_iter());
        }
        if failed {
            self.context.lost();
        }
        if wants_more {
            self.fill_later();
        }
    }

    /// Has the work item make the buffers that are missing. Any context.
    fn fill_later(self: &Arc<Self>) {
        if !self.short.xchg(true, Relaxed) {
            DelayedWork::schedule(self, 0);
        }
    }

    /// Has Receives of `size` octets take the places of all, one by one as those come back: only
    /// messages that arrive use them up. They are made as there is memory. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `EBUSY` while the last such change has not
    /// [ended](Self::enlarged), `EINVAL` if the endpoint was not made for that. Then nothing has
    /// changed.
    pub(crate) fn enlarge_receives(self: &Arc<Self>, size: u32) -> Result {
        if !self.sizes.may_enlarge || self.shares_receives() {
            return Err(EINVAL);
        }
        // Writeback may wait for this very connection.
        let _scope = NoFs::enter();
        if self.objects.lock().is_none() {
            return Err(ENOTCONN);
        }
        if self.resize_receives(size) {
            Ok(())
        } else {
            Err(EBUSY)
        }
    }

    /// Has Receives of `size` octets take the places of its own, if it has such, one by one as
    /// those come back. Any context. Returns false, and does nothing, while another such change has
    /// not ended.
    pub(crate) fn resize_receives(self: &Arc<Self>, size: u32) -> bool {
        if self.shares_receives() {
            return false;
        }
        let mut gate = self.receive.lock();
        let resizes = gate.stock.resize(size as usize);
        let wants_more = gate.stock.wants_more();
        drop(gate);
        if wants_more {
            self.fill_later();
        }
        resizes
    }

    /// Returns the number of the endpoint's Receives that larger ones will replace.
    pub(crate) fn shorter_receives(&self) -> u32 {
        self.receive.lock().stock.unfit()
    }

    /// Returns the size in octets of the endpoint's Receives, if all have the one that was asked
    /// for last.
    pub(crate) fn enlarged(&self) -> Option<u32> {
        let gate = self.receive.lock();
        let size = u32::try_from(gate.stock.size()).ok();
        size.filter(|_| gate.stock.unfit() == 0)
    }

    /// Has `count` Receives more kept posted for the peer, unless they are shared. Sleeps, but not
    /// in a handler of a completion.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOSPC` if there may not be that many, `ENOMEM`, or what the
    /// device reports.
    pub(crate) fn ask_for_receives(self: &Arc<Self>, count: u32) -> Result {
        // Excludes the end of the device, for which writeback may wait.
        let _scope = NoFs::enter();
        let objects = self.objects.lock();
        let Some(objects) = &*objects else {
            return Err(ENOTCONN);
        };
        if self.shares_receives() {
            return Ok(());
        }
        let qp = objects.cm.queue_pair().ok_or(ENOTCONN)?;
        if !self.receive.lock().stock.raise(count) {
            return Err(ENOSPC);
        }
        let filled = self.fill(&qp);
        if filled.is_err() {
            self.receive.lock().stock.lower(count);
        }
        filled
    }

    /// Makes the buffers that are missing, and posts them. Sleeps. The lock
    /// of the verbs objects is held, so nobody else does.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after the gate was shut; `ENOMEM`, or what the device reports.
    pub(super) fn fill(self: &Arc<Self>, qp: &QueuePairUser) -> Result {
        loop {
            let Some(size) = self.receive.lock().claim() else {
                break;
            };
            let buffer = qp.receive_buffer(self, size);
            let error = buffer.as_ref().err().copied();
            self.receive.lock().claimed(size, buffer.ok());
            if let Some(error) = error {
                self.receive.lock().post()?;
                return Err(error);
            }
        }
        self.receive.lock().post()
    }

    /// Returns whether there are as many of its own Receives as the peer may count on. If not, one
    /// was lost, and the peer would wait for it for ever. Sleeps.
    pub(crate) fn has_receives(&self) -> bool {
        // While it is held nobody adds any.
        let objects = self.objects.lock();
        let gate = self.receive.lock();
        let is_open = gate.qp.is_some() && !self.shares_receives() && !self.is_cut_off();
        let is_short = is_open && gate.there() < gate.stock.target();
        drop(gate);
        drop(objects);
        !is_short
    }

    /// Makes the buffers that are missing. What there is no memory for is tried again when the next
    /// message has come. Sleeps.
    pub(super) fn fill_now(self: &Arc<Self>) {
        // The end of the endpoint waits for this, and writeback may wait for that.
        let _scope = NoFs::enter();
        // Excludes the end of the device.
        let objects = self.objects.lock();
        let Some(objects) = &*objects else { return };
        if let Some(qp) = objects.cm.queue_pair() {
            // A device that takes no Receives has those missing that the peer counts on.
            if self.fill(&qp).is_err_and(|error| error != ENOMEM) {
                self.context.lost();
            }
        }
    }

    /// Returns the number of counted messages, see [`Received::count`], that are still in their
    /// buffers.
    pub(crate) fn held(&self) -> u32 {
        self.calls.load(Acquire)
    }

    /// Takes back what [`Self::ask_for_receives`] was asked for, of which the peer was not told, or
    /// which it has used.
    pub(crate) fn return_receives(&self, count: u32) {
        if !self.shares_receives() {
            self.receive.lock().stock.lower(count);
        }
    }

    /// Returns the number of Receives that serve this many credits; where they are shared, of
    /// messages that may arrive.
    pub(crate) fn receives_for(&self, credits: u32) -> u32 {
        let each = if self.shares_receives() {
            MESSAGES_PER_CREDIT
        } else {
            self.sizes.receives_per_credit
        };
        credits.saturating_mul(each)
    }

    /// Returns whether the Receives are shared with other connections.
    pub(crate) fn shares_receives(&self) -> bool {
        self.shared.is_some()
    }
}

/// A message that has arrived, in its Receive buffer. Dropped, the buffer is posted again.
pub(crate) struct Received<H: EndpointEvents> {
    /// The buffer. Always present until `drop`.
    buffer: Option<Buffer<H>>,
    /// The length in octets.
    len: u32,
    /// The rkey that the peer invalidated with it.
    invalidated: Option<u32>,
    /// Set if it is one of the endpoint's `calls`.
    counted: bool,
    /// Where it arrived.
    endpoint: Arc<Endpoint<H>>,
}

impl<H: EndpointEvents> Received<H> {
    /// The message.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = self.len as usize;
        match &self.buffer {
            Some(Buffer::Own(buffer)) => buffer.bytes(len),
            Some(Buffer::Shared(buffer)) => buffer.bytes(len),
            None => &[],
        }
    }

    /// Counts the message as a Call, until it is dropped. Returns how many there are with it.
    pub(crate) fn count(&mut self) -> u32 {
        if self.counted {
            return self.endpoint.calls.load(Relaxed);
        }
        self.counted = true;
        self.endpoint.calls.fetch_add(1, Relaxed).saturating_add(1)
    }

    /// The rkey that came with the message as invalidated.
    pub(crate) fn invalidated(&self) -> Option<u32> {
        self.invalidated
    }

    /// Where it arrived.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }
}

impl<H: EndpointEvents> Drop for Received<H> {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.endpoint.recycle(buffer);
        }
        // Last: a reader of the count concludes from it how many Receives are posted.
        if self.counted {
            self.endpoint.calls.fetch_sub(1, Release);
        }
    }
}
