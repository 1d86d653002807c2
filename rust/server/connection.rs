// SPDX-License-Identifier: GPL-2.0

//! The transport that has a connection.

use crate::kext::errno::{ENOTCONN, EPROTO};
use crate::module_parameters;
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::credits::Allowance;
use crate::proto::v1::{self, Direction};
use crate::responder::call::{self, Call, Pulling, Refusal, Taken};
use crate::responder::{reply, CREDITS};
use crate::server::callback::{self, Callback};
use crate::sunrpc::svc::{CallRqst, Pages, ReplyRqst, Server, ServerTransport, SvcXprt};
use crate::verbs::cm::{CmId, ConnectionEvents, ConnectionRequests, Incoming};
use crate::verbs::endpoint::{
    Endpoint, EndpointEvents, EndpointOwner, PostError, Pull, Received, SendBuffer, Sizes,
    RECEIVE_BATCH,
};
use crate::verbs::receive_pool::ReceivePools;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_condvar, new_mutex, new_spinlock, Arc, CondVar, Mutex, SpinLock};

/// Octets of an inline message, header included, either way.
pub(super) const INLINE: u32 = 4096;

/// Receives: one for each credit, one for each Call that a thread has, one for each Reply to a Call of ours, and a
/// batch that is not posted.
const RECEIVES: u32 = 2 * CREDITS + callback::SLOTS + RECEIVE_BATCH;

/// What a peer is granted at first.
const FIRST_CREDITS: u32 = 4;

/// Send buffers to begin with, and how many are added at a time.
const SEND_STEP: u32 = 4;

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
    /// Counts what came back: room in the Send Queue, Send buffers, memory regions; and the end of the connection,
    /// after which nothing will.
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
    /// What the peer was promised.
    #[pin]
    allowance: SpinLock<Allowance>,
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
        pools: &Arc<ReceivePools<Self>>,
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
                returns <- new_spinlock!(0, "rpcrdma::Connection::returns"),
                returned <- new_condvar!("rpcrdma::Connection::returned"),
                patience <- new_mutex!((), "rpcrdma::Connection::patience"),
                agreed: Agreed::new(&own, &peer),
                peer,
                allowance <- new_spinlock!(
                    Allowance::new(FIRST_CREDITS, CREDITS),
                    "rpcrdma::Connection::allowance"
                ),
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
            sends: 2 * CREDITS + callback::SLOTS,
            first_sends: SEND_STEP,
            send_size: INLINE as usize,
            send_queue,
            region_depth: 1,
            regions: 0,
            transfer_sges: limits.send_sges.min(16),
            pulls: CREDITS,
            transfers: CREDITS.min(limits.queue_depth / 8),
        };
        let limit = shared_receives();
        let owner = if limit > 0 {
            EndpointOwner::sharing(cm, sizes, pools, limit)?
        } else {
            EndpointOwner::new(cm, sizes)?
        };
        let endpoint = owner.endpoint();
        if !endpoint.shares_receives() {
            // All that may ever be needed is posted already.
            *this.allowance.lock() = Allowance::new(CREDITS, CREDITS);
        }
        // One to spare, for a peer that does not count quite as we do.
        endpoint.ask_for_receives(FIRST_CREDITS + 1)?;
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
        // Replies need them, and not those that the peer was promised for its Calls.
        endpoint.ask_for_receives(callback::SLOTS)?;
        // Who finds no Send buffer waits for one to come back, so there must be some.
        endpoint.add_send_buffers(callback::SLOTS)?;
        attach(endpoint)?;
        *place = Some(callback.clone());
        self.has_callback.store(true, Relaxed);
        Ok(())
    }

    /// Drops what waits for a thread.
    fn empty_inbox(&self) {
        loop {
            let mut inbox = self.inbox.lock();
            let (pulled, arrived) = (inbox.pulled.pop(), inbox.arrived.pop());
            drop(inbox);
            if pulled.is_none() && arrived.is_none() {
                return;
            }
        }
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

    /// Waits until `attempt` has a result that is not [`None`]. It is tried again whenever there is room in the
    /// Send Queue, or something else has come back.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before.
    fn wait_for_room<R>(&self, mut attempt: impl FnMut() -> Option<R>) -> Result<R> {
        loop {
            let seen = *self.returns.lock();
            if let Some(result) = attempt() {
                return Ok(result);
            }
            self.wait_for_return(seen)?;
        }
    }

    /// Waits until more has come back than `seen`, which was read before something was tried in vain.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before.
    fn wait_for_return(&self, seen: u64) -> Result {
        let mut returns = self.returns.lock();
        while *returns == seen {
            // Who closes the connection says so here afterwards.
            if self.xprt.is_closing() || self.returned.wait_interruptible(&mut returns) {
                return Err(ENOTCONN);
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
            let seen = *self.returns.lock();
            match attempt() {
                Err(EAGAIN) if endpoint.has_transfers() => self.wait_for_return(seen)?,
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

    /// What to grant in a message that is about to be sent. It grows if the peer has used all of it and there may be
    /// Receives for more.
    fn grant(&self, endpoint: &Endpoint<Self>) -> u32 {
        let allowance = self.allowance.lock();
        let (granted, wanted) = (allowance.granted(), allowance.wanted());
        drop(allowance);
        if wanted == 0 || endpoint.ask_for_receives(wanted).is_err() {
            return granted;
        }
        // Before anything is promised the Receives are posted. Another thread may have done the same meanwhile; then
        // there are some more than are promised.
        let mut allowance = self.allowance.lock();
        allowance.grow(wanted);
        allowance.granted()
    }

    /// Puts up with a Call that was not granted, if the Receive that it took can be replaced. Sleeps.
    fn put_up(&self, endpoint: &Endpoint<Self>) -> Result {
        self.allowance.lock().put_up().map_err(|_| EPROTO)?;
        endpoint.ask_for_receives(1)
    }

    /// A Send buffer.
    fn buffer(&self, endpoint: &Arc<Endpoint<Self>>) -> Result<SendBuffer<Self>> {
        if let Some(buffer) = endpoint.send_buffer() {
            return Ok(buffer);
        }
        endpoint.add_send_buffers(SEND_STEP)?;
        self.wait_for_room(|| endpoint.send_buffer())
    }

    /// Posts Reads.
    fn post_pull(&self, pull: KBox<Pull<Self>>, endpoint: &Endpoint<Self>) -> Result {
        let mut pull = Some(pull);
        self.wait_for_room(|| match endpoint.post_pull(pull.take()?) {
            Ok(()) => Some(Ok(())),
            Err((PostError::Full, back)) => {
                pull = back;
                None
            }
            Err(_) => Some(Err(ENOTCONN)),
        })?
    }

    /// Answers a message that was refused.
    fn refuse(&self, message: Option<Received<Self>>, refusal: &Refusal) -> Result {
        if let Refusal::Lost(error) = refusal {
            return Err(*error);
        }
        let message = message.ok_or(ENOTCONN)?;
        let endpoint = message.endpoint().clone();
        let mut buffer = self.buffer(&endpoint)?;
        let Some(len) = call::answer(message.bytes(), refusal, self.grant(&endpoint), &mut buffer)
        else {
            return Ok(());
        };
        drop(message);
        self.post(&endpoint, buffer, len, None, None)
    }

    /// Posts a Reply.
    fn post(
        &self,
        endpoint: &Endpoint<Self>,
        buffer: SendBuffer<Self>,
        len: usize,
        cargo: Option<crate::verbs::endpoint::Cargo<Self>>,
        invalidate: Option<u32>,
    ) -> Result {
        let mut parts = Some((buffer, cargo));
        self.wait_for_room(|| {
            let (buffer, cargo) = parts.take()?;
            match endpoint.post_reply(buffer, len, cargo, invalidate) {
                Ok(()) => Some(Ok(())),
                Err((PostError::Full, back)) => {
                    parts = back;
                    None
                }
                Err(_) => Some(Err(ENOTCONN)),
            }
        })?
    }

    /// Sends a Reply.
    fn send(&self, mut rqst: ReplyRqst<'_, Self>) -> Result {
        if self.xprt.is_closing() {
            return Err(ENOTCONN);
        }
        let endpoint = rqst.context().endpoint().ok_or(ENOTCONN)?.clone();
        let terms = reply::Terms {
            inline_max: self.agreed.send_inline as usize,
            may_invalidate: self.agreed.remote_invalidation,
            credits: self.grant(&endpoint),
        };
        let buffer = self.buffer(&endpoint)?;
        let ready = reply::prepare(&mut rqst, buffer, &terms, |attempt| {
            self.patiently(&endpoint, attempt)
        })?;
        rqst.context_mut().release_message();
        self.post(
            &endpoint,
            ready.message,
            ready.len,
            ready.cargo,
            ready.invalidate,
        )
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

    fn received(this: &Arc<Self>, mut message: Received<Self>) {
        if this.has_callback.load(Relaxed) && is_reply(message.bytes()) {
            this.with_callback(|callback| Callback::received(callback, message));
            return;
        }
        let unanswered = message.count();
        let overrun = this.allowance.lock().arrived(unanswered).is_err();
        if overrun && this.put_up(message.endpoint()).is_err() {
            // RFC 8166 section 3.3.1: the connection may be ended. What the peer took too much of may be others'.
            this.close();
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
        self.wake();
        self.with_callback(|callback| callback.send_room());
    }

    fn resources_back(&self) {
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
        self.established.load(Relaxed)
    }

    fn recvfrom(this: &Arc<Self>, mut rqst: CallRqst<'_, Self>) -> usize {
        let mut inbox = this.inbox.lock();
        let pulled = inbox.pulled.remove(0).ok();
        let arrived = match pulled {
            None => inbox.arrived.remove(0).ok(),
            Some(_) => None,
        };
        if inbox.pulled.is_empty() && inbox.arrived.is_empty() {
            this.xprt.clear_data();
        }
        drop(inbox);
        rqst.let_next_in();

        let result = if let Some(pulling) = pulled {
            pulling.deliver(rqst)
        } else if let Some(message) = arrived {
            let endpoint = message.endpoint().clone();
            let patiently = |attempt: &mut dyn FnMut() -> _| this.patiently(&endpoint, attempt);
            match call::take(message, rqst, patiently) {
                Taken::Ready(call, rqst) => Ok(rqst.deliver(call)),
                Taken::Pull(pull) => this.post_pull(pull, &endpoint).map(|()| 0),
                Taken::Refused(message, refusal) => this.refuse(message, &refusal).map(|()| 0),
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
        let owner = this.owner.lock().take();
        if let Some(owner) = owner {
            owner.shutdown(|| {
                this.with_callback(|callback| callback.detach());
                // Before the device may go: messages are in buffers that it knows.
                this.empty_inbox();
            });
        }
        this.end_callback();
        this.empty_inbox();
    }
}

/// The module parameter, which kernels hand out by value or by reference.
fn shared_receives() -> u32 {
    *core::borrow::Borrow::<u32>::borrow(&module_parameters::shared_receives.value())
}
