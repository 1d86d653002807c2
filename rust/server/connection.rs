// SPDX-License-Identifier: GPL-2.0

//! The transport that has a connection.

use crate::kext::errno::ENOTCONN;
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::v1::{self, Direction};
use crate::responder::call::{self, Call, Pulling, Refusal, Taken};
use crate::responder::reply::{self, Ready};
use crate::responder::CREDITS;
use crate::server::backlog::{Backlog, Outgoing};
use crate::server::callback::{self, Callback};
use crate::sunrpc::svc::{CallRqst, Pages, ReplyRqst, Server, ServerTransport, SvcXprt};
use crate::verbs::cm::{CmId, ConnectionEvents, ConnectionRequests, Incoming};
use crate::verbs::endpoint::{
    Endpoint, EndpointEvents, EndpointOwner, Received, SendBuffer, Sizes, RECEIVE_BATCH,
};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed};
use kernel::sync::barrier::{self, smp_mb};
use kernel::sync::{
    new_condvar, new_mutex, new_spinlock, Arc, CondVar, CondVarTimeoutResult, Mutex, SpinLock,
};
use kernel::time::{msecs_to_jiffies, Msecs};

/// Octets of an inline message, header included, either way.
pub(super) const INLINE: u32 = 4096;

/// Receives: one for each credit, one for each Call that a thread has, one for each Reply to a Call of ours, and a
/// batch that is not posted.
const RECEIVES: u32 = 2 * CREDITS + callback::SLOTS + RECEIVE_BATCH;

/// Send buffers: one for each Call that is taken in, as many again whose completion has not come, and one for each
/// Call of ours.
const SENDS: u32 = 2 * CREDITS + callback::SLOTS;

/// How long a thread waits for the end of a Read, in milliseconds. The device should have given up before.
const PATIENCE: Msecs = 20_000;

/// The number of the next connection.
static NEXT_NUMBER: Atomic<u32> = Atomic::new(1);

/// What waits for a thread.
struct Inbox {
    /// Messages that arrived, the oldest first. With room for all Receives.
    arrived: KVVec<Received<Connection>>,
    /// Calls that were read. With room for all Receives, since each has one.
    pulled: KVVec<Pulling<Connection>>,
}

/// A transport that has a connection.
#[pin_data]
pub(crate) struct Connection {
    /// What SUNRPC sees.
    #[pin]
    xprt: SvcXprt,
    /// What arrived.
    #[pin]
    inbox: SpinLock<Inbox>,
    /// The endpoint's owner.
    #[pin]
    owner: Mutex<Option<EndpointOwner<Connection>>>,
    /// Whether the connection is up.
    established: Atomic<bool>,
    /// What waits for room in the Send Queue.
    #[pin]
    backlog: Backlog,
    /// Whether a message waits for a Send buffer for its answer.
    starved: Atomic<bool>,
    /// Counts what came back, memory regions above all; and the end of the connection, after which nothing will.
    #[pin]
    returns: SpinLock<u64>,
    /// Signaled when `returns` has changed.
    #[pin]
    returned: CondVar,
    /// Held by who waits for memory regions.
    #[pin]
    patience: Mutex<()>,
    /// What was agreed on.
    agreed: Agreed,
    /// What the peer's private data said.
    peer: CmPrivate,
    /// By what number trace events name the connection.
    number: u32,
    /// Whether there is a `callback`, as a hint that costs no lock.
    has_callback: Atomic<bool>,
    /// The transport for Calls to the peer. Held while a Reply is taken in.
    #[pin]
    callback: Mutex<Option<Arc<Callback>>>,
}

impl Connection {
    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, `ENOMEM`, or what the device or the CM reports; the peer is rejected.
    pub(super) fn accept<L: ConnectionRequests>(
        server: Server<'_>,
        incoming: Incoming<L>,
    ) -> Result<Arc<Self>> {
        let own = CmPrivate {
            send_size: INLINE,
            receive_size: INLINE,
            remote_invalidation: true,
        };
        let peer = CmPrivate::decode(incoming.private_data());
        let read_depth = incoming.read_depth();
        if read_depth == 0 {
            // It would never answer our Reads.
            return Err(EINVAL);
        }
        let inbox = Inbox {
            arrived: KVVec::with_capacity(RECEIVES as usize, GFP_KERNEL)?,
            pulled: KVVec::with_capacity(RECEIVES as usize, GFP_KERNEL)?,
        };
        let this = Arc::pin_init(
            try_pin_init!(Self {
                xprt <- SvcXprt::new(server),
                inbox <- new_spinlock!(inbox, "rpcrdma::Connection::inbox"),
                owner <- new_mutex!(None, "rpcrdma::Connection::owner"),
                established: Atomic::new(false),
                backlog <- Backlog::new(SENDS)?,
                starved: Atomic::new(false),
                returns <- new_spinlock!(0, "rpcrdma::Connection::returns"),
                returned <- new_condvar!("rpcrdma::Connection::returned"),
                patience <- new_mutex!((), "rpcrdma::Connection::patience"),
                agreed: Agreed::new(&own, &peer),
                peer,
                number: NEXT_NUMBER.fetch_add(1, Relaxed),
                has_callback: Atomic::new(false),
                callback <- new_mutex!(None, "rpcrdma::Connection::callback"),
            }? Error),
            GFP_KERNEL,
        )?;
        this.xprt.set_local(incoming.local())?;
        this.xprt.set_remote(incoming.remote())?;
        let cm = CmId::adopt(incoming, this.clone())?;
        let limits = cm.device_limits().ok_or(ENODEV)?;
        let send_queue = (8 * CREDITS).min(limits.queue_depth / 2);
        let sizes = Sizes {
            receives: RECEIVES,
            receive_size: INLINE as usize,
            sends: SENDS,
            send_size: INLINE as usize,
            send_queue,
            region_depth: 1,
            regions: 0,
            transfer_sges: limits.send_sges.min(16),
            transfers: CREDITS.min(limits.queue_depth / 8),
        };
        let owner = EndpointOwner::new(cm, sizes)?;
        owner.accept(&own.encode(), read_depth.min(limits.outbound_reads))?;
        *this.owner.lock() = Some(owner);
        Ok(this)
    }

    /// What was agreed on.
    pub(super) fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// What the peer's private data said.
    pub(super) fn peer(&self) -> CmPrivate {
        self.peer
    }

    /// Ends the connection, from any context.
    pub(super) fn close(&self) {
        self.xprt.close();
        self.wake();
    }

    /// From now on the connection tells `callback` of Replies. `attach` is given the endpoint before.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the connection has one already, `ENOTCONN` if it is gone, and what `attach` returns.
    pub(super) fn begin_callback(
        &self,
        callback: &Arc<Callback>,
        attach: impl FnOnce(Arc<Endpoint<Self>>) -> Result,
    ) -> Result {
        let endpoint = match &*self.owner.lock() {
            Some(owner) => owner.endpoint().clone(),
            None => return Err(ENOTCONN),
        };
        let mut place = self.callback.lock();
        if place.is_some() {
            return Err(EBUSY);
        }
        attach(endpoint)?;
        *place = Some(callback.clone());
        self.has_callback.store(true, Relaxed);
        Ok(())
    }

    /// From now on the connection tells nobody of Replies. When this returns it does not refer to the callback.
    pub(super) fn end_callback(&self) {
        self.has_callback.store(false, Relaxed);
        // Dropped under the lock: else `destroy` might not have the last reference.
        *self.callback.lock() = None;
    }

    /// Does something with the callback, if there is one. Sleeps.
    fn with_callback(&self, act: impl FnOnce(&Arc<Callback>)) {
        if !self.has_callback.load(Relaxed) {
            return;
        }
        let place = self.callback.lock();
        if let Some(callback) = &*place {
            act(callback);
        }
        drop(place);
    }

    /// Waits until more has come back than `seen`.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before, or nothing comes for too long.
    fn wait_for_return(&self, seen: u64) -> Result {
        let mut left = msecs_to_jiffies(PATIENCE);
        let mut returns = self.returns.lock();
        while *returns == seen {
            // Who closes the connection says so here afterwards.
            if self.xprt.is_closing() {
                return Err(ENOTCONN);
            }
            match self.returned.wait_interruptible_timeout(&mut returns, left) {
                CondVarTimeoutResult::Woken { jiffies } => left = jiffies,
                _ => return Err(ENOTCONN),
            }
        }
        Ok(())
    }

    /// Tries something until it finds the memory regions that it wants.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if they are too few even when nobody else has any, `ENOTCONN` if the connection ends before; else
    /// what `attempt` returns.
    fn patiently<R>(
        &self,
        endpoint: &Endpoint<Self>,
        attempt: &mut dyn FnMut() -> Result<R>,
    ) -> Result<R> {
        match attempt() {
            Err(EAGAIN) => {}
            other => return other,
        }
        // One at a time, or two might for ever take from each other what both want.
        let turn = self.patience.lock();
        let result = loop {
            match attempt() {
                Err(EAGAIN) => {}
                other => break other,
            }
            // Read now: what the attempt itself has given back is nothing to wait for.
            let seen = *self.returns.lock();
            if endpoint.has_transfers() {
                self.wait_for_return(seen)?;
                continue;
            }
            match attempt() {
                Err(EAGAIN) if endpoint.has_transfers() => {}
                other => break other,
            }
        };
        drop(turn);
        result
    }

    /// Wakes who waits for something to come back. Any context.
    fn wake(&self) {
        let mut returns = self.returns.lock();
        *returns = returns.wrapping_add(1);
        drop(returns);
        self.returned.notify_all();
    }

    /// A Send buffer for the answer to a message. If there is none, [`Self::has_room`] will say so until one has come
    /// back.
    fn reserve(&self, endpoint: &Arc<Endpoint<Self>>) -> Option<SendBuffer<Self>> {
        endpoint.send_buffer().or_else(|| {
            self.starved.store(true, Relaxed);
            // One may have come back before that was set. Whoever gives one back takes the same lock as this attempt,
            // and looks at the flag afterwards.
            let buffer = endpoint.send_buffer();
            if buffer.is_some() {
                self.starved.store(false, Relaxed);
            }
            buffer
        })
    }

    /// A Send buffer may have come back.
    fn feed(&self) {
        if self.starved.load(Relaxed) && self.starved.xchg(false, Full) {
            self.xprt.enqueue();
        }
    }

    /// Posts something, now or when there is room.
    fn post(&self, endpoint: &Arc<Endpoint<Self>>, item: Outgoing) -> Result {
        if self.backlog.post(endpoint, item)? {
            self.xprt.enqueue();
        }
        Ok(())
    }

    /// Answers a message that was refused.
    fn refuse(
        &self,
        message: Option<Received<Self>>,
        buffer: Option<SendBuffer<Self>>,
        refusal: &Refusal,
    ) -> Result {
        if let Refusal::Lost(error) = refusal {
            return Err(*error);
        }
        let (message, mut buffer) = message.zip(buffer).ok_or(ENOTCONN)?;
        let endpoint = message.endpoint().clone();
        let Some(len) = call::answer(message.bytes(), refusal, &mut buffer) else {
            return Ok(());
        };
        drop(message);
        let answer = Ready {
            message: buffer,
            len,
            cargo: None,
            invalidate: None,
        };
        self.post(&endpoint, Outgoing::Reply(answer))
    }

    /// Sends a Reply.
    fn send(&self, mut rqst: ReplyRqst<'_, Self>) -> Result {
        if self.xprt.is_closing() {
            return Err(ENOTCONN);
        }
        let endpoint = rqst.context().received().endpoint().clone();
        let buffer = rqst.context_mut().take_buffer().ok_or(ENOTCONN)?;
        let ready = reply::prepare(
            &mut rqst,
            buffer,
            self.agreed.send_inline as usize,
            self.agreed.remote_invalidation,
            |attempt| self.patiently(&endpoint, attempt),
        )?;
        self.post(&endpoint, Outgoing::Reply(ready))
    }
}

/// Whether a message answers a Call of ours.
fn is_reply(message: &[u8]) -> bool {
    let direction = match v1::decode(message) {
        Ok(header) => Some(header.rpc_direction()),
        Err(error) => error.direction,
    };
    direction == Some(Direction::Reply)
}

impl ConnectionEvents for Connection {
    fn lost(&self) {
        self.xprt.close();
        self.wake();
    }

    fn established(&self) {
        self.established.store(true, Relaxed);
        self.xprt.enqueue();
    }

    fn number(&self) -> u32 {
        self.number
    }
}

impl EndpointEvents for Connection {
    type Pull = Pulling<Connection>;
    type Push = Pages;

    fn received(this: &Arc<Self>, message: Received<Self>) {
        if this.has_callback.load(Relaxed) && is_reply(message.bytes()) {
            this.with_callback(|callback| Callback::received(callback, message));
            return;
        }
        let mut inbox = this.inbox.lock();
        let full = inbox.arrived.push_within_capacity(message).is_err();
        this.xprt.set_data();
        drop(inbox);
        if full {
            // Not possible: there is a place for each Receive.
            this.xprt.close();
        }
        this.xprt.enqueue();
    }

    fn pulled(this: &Arc<Self>, pull: Pulling<Connection>, done: bool) {
        if !done {
            return;
        }
        let mut inbox = this.inbox.lock();
        let full = inbox.pulled.push_within_capacity(pull).is_err();
        this.xprt.set_data();
        drop(inbox);
        if full {
            this.xprt.close();
        }
        this.xprt.enqueue();
    }

    fn fenced(this: &Arc<Self>, tag: u32, done: bool) {
        this.with_callback(|callback| Callback::fenced(callback, tag, done));
    }

    fn send_room(&self) {
        match self.backlog.flush() {
            Ok(false) => {}
            Ok(true) => self.xprt.enqueue(),
            Err(_) => self.close(),
        }
        self.feed();
        self.wake();
        self.with_callback(|callback| callback.send_room());
    }

    fn resources_back(&self) {
        self.feed();
        self.wake();
    }
}

impl ServerTransport for Connection {
    type Context = Call<Connection>;

    fn xprt(&self) -> &SvcXprt {
        &self.xprt
    }

    fn has_room(&self) -> bool {
        // Before that, nothing can be sent.
        if !self.established.load(Relaxed) {
            return false;
        }
        let may = || !self.backlog.is_busy() && !self.starved.load(Relaxed);
        if may() {
            return true;
        }
        // SUNRPC may just have ended its work on the transport. Either whoever makes room sees that, or we see here
        // what he did: he has a barrier too.
        smp_mb(barrier::Full);
        may()
    }

    fn recvfrom(this: &Arc<Self>, mut rqst: CallRqst<'_, Self>) -> usize {
        let mut inbox = this.inbox.lock();
        let pulled = inbox.pulled.remove(0).ok();
        let mut buffer = None;
        let arrived = match (&pulled, inbox.arrived.first()) {
            (None, Some(oldest)) => {
                buffer = this.reserve(oldest.endpoint());
                buffer.as_ref().and_then(|_| inbox.arrived.remove(0).ok())
            }
            _ => None,
        };
        if inbox.pulled.is_empty() && inbox.arrived.is_empty() {
            this.xprt.clear_data();
        }
        drop(inbox);
        rqst.let_next_in();

        let result = if let Some(pulling) = pulled {
            if pulling.is_sound() {
                pulling.deliver(rqst)
            } else {
                let (message, buffer) = pulling.give_up();
                this.refuse(Some(message), buffer, &Refusal::Chunks)
                    .map(|()| 0)
            }
        } else if let Some(message) = arrived {
            let endpoint = message.endpoint().clone();
            let patiently = |attempt: &mut dyn FnMut() -> _| this.patiently(&endpoint, attempt);
            match call::take(message, &mut buffer, rqst, patiently) {
                Taken::Ready(call, rqst) => Ok(rqst.deliver(call)),
                Taken::Pull(pull) => this.post(&endpoint, Outgoing::Reads(pull)).map(|()| 0),
                Taken::Refused(message, refusal) => {
                    this.refuse(message, buffer, &refusal).map(|()| 0)
                }
            }
        } else {
            Ok(0)
        };
        result.unwrap_or_else(|_| {
            this.xprt.close();
            0
        })
    }

    fn sendto(this: &Arc<Self>, rqst: ReplyRqst<'_, Self>) -> Result {
        let result = this.send(rqst);
        if result.is_err() {
            this.xprt.close();
        }
        result
    }

    fn detach(this: &Arc<Self>) {
        if let Some(owner) = &*this.owner.lock() {
            owner.disconnect();
        }
        this.wake();
    }

    fn free(this: &Arc<Self>) {
        this.backlog.close();
        let owner = this.owner.lock().take();
        if let Some(owner) = owner {
            owner.shutdown(|| this.with_callback(|callback| callback.detach()));
        }
        this.end_callback();
        loop {
            let mut inbox = this.inbox.lock();
            let (pulled, arrived) = (inbox.pulled.pop(), inbox.arrived.pop());
            drop(inbox);
            if pulled.is_none() && arrived.is_none() {
                return;
            }
        }
    }
}
