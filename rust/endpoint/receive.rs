// SPDX-License-Identifier: GPL-2.0

//! The receiving half of an endpoint.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        receive_pool::{
            Need,
            PoolMember,
            ReceivePool, //
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
        completion::Completion,
        receive_buffer::{
            Own,
            ReceiveBuffer,
            Receives, //
        },
        shared_receive_queue::SharedReceive, //
    }, //
};

pub(crate) use crate::rdma::receive_buffer::RECEIVE_BATCH;

/// A Receive buffer.
enum ReceivedIn<H: EndpointEvents> {
    /// One of the endpoint's own.
    Own(OwnReceive<H>),
    /// One of those that it shares.
    Shared(SharedReceive<ReceivePool<Endpoint<H>>>),
}

/// A Receive buffer of an endpoint's own.
type OwnReceive<H> = ReceiveBuffer<Own<Endpoint<H>>>;

impl<H: EndpointEvents> Receives for Endpoint<H> {
    fn received(this: ArcBorrow<'_, Self>, buffer: OwnReceive<H>, completion: Completion<'_>) {
        Self::taken_in(this, ReceivedIn::Own(buffer), completion);
    }
}

impl<H: EndpointEvents> PoolMember for Endpoint<H> {
    fn arrived(
        this: Arc<Self>,
        buffer: SharedReceive<ReceivePool<Self>>,
        completion: Completion<'_>,
    ) {
        Self::taken_in(this.as_arc_borrow(), ReceivedIn::Shared(buffer), completion);
    }

    fn give_way(this: &Arc<Self>) {
        this.cut_off();
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Takes a buffer back that the device or a [`Received`] is done with.
    fn recycle(&self, buffer: ReceivedIn<H>) {
        let buffer = match buffer {
            ReceivedIn::Own(buffer) => buffer,
            ReceivedIn::Shared(buffer) => {
                if let Some(pool) = &self.shared {
                    pool.recycle(buffer);
                }
                return;
            }
        };
        let mut gate = self.receive.lock();
        let former = gate.put(buffer);
        let qp = former.as_ref().and_then(|_| gate.qp.clone());
        let is_due = gate.qp.is_some() && gate.idle.len() >= RECEIVE_BATCH as usize;
        let failed = is_due && gate.post().is_err();
        drop(gate);
        if let Some(qp) = qp {
            qp.release_receives(former.into_iter());
        }
        if failed {
            self.context.lost();
        }
    }

    /// Has Receives of `size` octets take the places of all, one by one as those come back: only
    /// messages that arrive use them up. Of the endpoint's own all of the memory is there
    /// before the first is replaced. Those that it shares are replaced as there is memory. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `EBUSY` while the last such change has not
    /// [ended](Self::enlarged), `EINVAL` if the endpoint was not made for that, `ENOMEM`. Then
    /// nothing has changed.
    pub(crate) fn enlarge_receives(self: &Arc<Self>, size: u32) -> Result {
        if !self.sizes.may_enlarge {
            return Err(EINVAL);
        }
        // Writeback may wait for this very connection.
        let _scope = NoFs::enter();
        let objects = self.objects.lock();
        let objects = (*objects).as_ref().ok_or(ENOTCONN)?;
        if let Some(pool) = &self.shared {
            return pool.enlarge(size as usize);
        }
        let qp = objects.cm.queue_pair().ok_or(ENOTCONN)?;
        if !self.receive.lock().growth.may_begin() {
            return Err(EBUSY);
        }
        let count = self.sizes.receives;
        let mut former = KVVec::with_capacity(RECEIVE_BATCH as usize, GFP_KERNEL)?;
        let mut larger = KVVec::with_capacity(usize::try_from(count)?, GFP_KERNEL)?;
        for _ in 0..count {
            match qp.receive_buffer(self, size as usize) {
                // There is room for all.
                Ok(buffer) => drop(larger.push_within_capacity(buffer)),
                Err(error) => {
                    qp.release_receives(larger.into_iter());
                    return Err(error);
                }
            }
        }
        let mut gate = self.receive.lock();
        let stock = gate.growth.begin(size as usize, count, larger);
        gate.replace_idle(&mut former);
        drop(gate);
        drop(stock);
        qp.release_receives(former.into_iter());
        Ok(())
    }

    /// Returns the number of the endpoint's Receives that larger ones will replace.
    pub(crate) fn shorter_receives(&self) -> u32 {
        match &self.shared {
            Some(pool) => pool.shorter(),
            None => self.receive.lock().growth.shorter(),
        }
    }

    /// Returns the size in octets of the endpoint's Receives, if all have the one that was asked
    /// for last.
    pub(crate) fn enlarged(&self) -> Option<u32> {
        if let Some(pool) = &self.shared {
            return pool.enlarged();
        }
        let gate = self.receive.lock();
        let size = u32::try_from(gate.growth.size()).ok();
        size.filter(|_| gate.growth.is_over())
    }

    /// Takes a buffer back whose QP is in error.
    fn keep_back(&self, buffer: ReceivedIn<H>) {
        match buffer {
            // To post it again would only have it flushed again.
            ReceivedIn::Own(buffer) => {
                let _ = self.receive.lock().idle.push_within_capacity(buffer);
            }
            shared @ ReceivedIn::Shared(_) => self.recycle(shared),
        }
    }

    /// A Receive has completed.
    fn taken_in(this: ArcBorrow<'_, Self>, buffer: ReceivedIn<H>, completion: Completion<'_>) {
        // What is no message has left in the buffer what was there before, maybe what another peer
        // has sent.
        if !completion.ok() || !completion.is_message() {
            trace::receive(this.number(), 0, completion.status());
            // Every connection ends with flushed Receives.
            if !completion.ok() && !completion.flushed() {
                this.trace_error(completion, trace::Work::Receive);
            }
            this.keep_back(buffer);
            // If the QP is in order no credits stop an RDMA Write with immediate data: its peer
            // would go on taking Receives that others share. It can come again with what is too
            // long as well.
            let offends = completion.ok() || completion.is_refused();
            if offends && Arc::from(this).cut_off() {
                this.context.handler().offended();
            }
            this.context.lost();
            return;
        }
        if this.is_cut_off() {
            this.keep_back(buffer);
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

    /// Has `count` Receives more kept posted for the peer. Sleeps, but not in a handler of a
    /// completion. Where the endpoint has Receives of its own they are all posted already.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOSPC` if the connections that share Receives may not have that
    /// many, `ENOMEM`, or what the device reports.
    pub(crate) fn ask_for_receives(&self, count: u32, need: Need) -> Result {
        let Some(pool) = &self.shared else {
            return Ok(());
        };
        // Excludes the end of the device, for which writeback may wait.
        let scope = NoFs::enter();
        let objects = self.objects.lock();
        if objects.is_none() {
            return Err(ENOTCONN);
        }
        let asked = pool.ask(count, need);
        if asked.is_ok() {
            self.asked.fetch_add(count, Relaxed);
        }
        drop(objects);
        drop(scope);
        asked
    }

    /// Has one Receive more kept posted, in place of one that the peer has taken without having
    /// been promised it. Any context: the buffer is made later, by the work item. Without memory
    /// for it there is one Receive less for all, until there is some.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the connections that share Receives may not have another one.
    pub(crate) fn replace_receive(self: &Arc<Self>) -> Result {
        let Some(pool) = &self.shared else {
            return Ok(());
        };
        pool.ask_later(1, Need::More)?;
        self.asked.fetch_add(1, Relaxed);
        self.short.store(true, Relaxed);
        DelayedWork::schedule(self, 0);
        Ok(())
    }

    /// Makes what [`Self::replace_receive`] has asked for. Sleeps.
    pub(super) fn fill_pool(&self) {
        let Some(pool) = &self.shared else { return };
        // Excludes the end of the device.
        let objects = self.objects.lock();
        if objects.is_none() {
            return;
        }
        // The end of the endpoint waits for this, and writeback may wait for that.
        let scope = NoFs::enter();
        pool.fill_at_last();
        drop(scope);
        drop(objects);
    }

    /// Returns the number of Receives that it has to make do with, if there were too few for all
    /// that share them a short while ago. Any context.
    pub(crate) fn receive_share(&self) -> Option<u32> {
        self.shared.as_ref()?.share()
    }

    /// Returns the number of counted messages, see [`Received::count`], that are still in their
    /// buffers.
    pub(crate) fn held(&self) -> u32 {
        self.calls.load(Acquire)
    }

    /// Takes back what [`Self::ask_for_receives`] was asked for, of which the peer was not told, or
    /// which it has used; unless the end of the endpoint, which takes all of it back, was first.
    pub(crate) fn return_receives(&self, count: u32) {
        let Some(pool) = &self.shared else { return };
        let mut asked = self.asked.load(Relaxed);
        loop {
            let returned = count.min(asked);
            match self
                .asked
                .cmpxchg(asked, asked.saturating_sub(returned), Relaxed)
            {
                Ok(_) => return pool.release(returned),
                Err(now) => asked = now,
            }
        }
    }

    /// Returns whether the Receives are shared with other connections.
    pub(crate) fn shares_receives(&self) -> bool {
        self.shared.is_some()
    }
}

/// A message that has arrived, in its Receive buffer. Dropped, the buffer is posted again.
pub(crate) struct Received<H: EndpointEvents> {
    /// The buffer. Always present until `drop`.
    buffer: Option<ReceivedIn<H>>,
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
            Some(ReceivedIn::Own(buffer)) => buffer.bytes(len),
            Some(ReceivedIn::Shared(buffer)) => buffer.bytes(len),
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
