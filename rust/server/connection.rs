// SPDX-License-Identifier: GPL-2.0

//! The transport that has a connection.

use crate::kext::errno::{ENOTCONN, EPROTO};
use crate::link::assembly::Whole;
use crate::link::channel::Channel;
use crate::link::middles::MAX_PARTS;
use crate::module_parameters;
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::credits::Allowance;
use crate::proto::message::Version;
use crate::proto::v1::{self, Direction};
use crate::requester::reply::Source;
use crate::responder::call::{self, Call, Pulling, Refusal, Taken};
use crate::responder::reply::{self, Ready};
use crate::responder::CREDITS;
use crate::server::backlog::{Backlog, Outgoing};
use crate::server::callback::{self, Callback};
use crate::server::inbox::{Inbox, Work};
use crate::server::two;
use crate::sunrpc::svc::{CallRqst, Pages, ReplyRqst, Server, ServerTransport, SvcXprt};
use crate::verbs::cm::{CmId, ConnectionEvents, ConnectionRequests, Incoming};
use crate::verbs::endpoint::{
    Endpoint, EndpointEvents, EndpointOwner, Received, SendBuffer, Sizes, RECEIVE_BATCH,
};
use crate::verbs::receive_pool::ReceivePools;
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

/// What a peer is granted at first.
const FIRST_CREDITS: u32 = 4;

/// Send buffers to begin with, and how many are added at a time.
const SEND_STEP: u32 = 4;
/// Send buffers: one for each Call that is taken in, as many again whose completion has not come, and one for each
/// Call of ours.
const SENDS: u32 = 2 * CREDITS + callback::SLOTS;

/// How long a thread waits for the end of a Read, in milliseconds. The device should have given up before.
const PATIENCE: Msecs = 20_000;

/// The number of the next connection.
static NEXT_NUMBER: Atomic<u32> = Atomic::new(1);

/// A transport that has a connection.
#[pin_data]
pub(crate) struct Connection {
    /// What SUNRPC sees.
    #[pin]
    xprt: SvcXprt,
    /// What arrived.
    #[pin]
    inbox: Inbox,
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
    /// Where Version Two may be spoken: the session of the connection.
    channel: Option<Arc<Channel>>,
    /// With a channel, the endpoint. It refers back to us, so `free` takes it away.
    #[pin]
    endpoint: SpinLock<Option<Arc<Endpoint<Connection>>>>,
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
        let this = Arc::pin_init(
            try_pin_init!(Self {
                xprt <- SvcXprt::new(server),
                inbox <- Inbox::new(RECEIVES)?,
                owner <- new_mutex!(None, "rpcrdma::Connection::owner"),
                established: Atomic::new(false),
                backlog <- Backlog::new(SENDS)?,
                starved: Atomic::new(false),
                returns <- new_spinlock!(0, "rpcrdma::Connection::returns"),
                returned <- new_condvar!("rpcrdma::Connection::returned"),
                patience <- new_mutex!((), "rpcrdma::Connection::patience"),
                agreed: Agreed::new(&own, &peer),
                peer,
                channel: two::channel(FIRST_CREDITS + 1)?,
                endpoint <- new_spinlock!(None, "rpcrdma::Connection::endpoint"),
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
            sends: SENDS,
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
            this.receives_changed();
        }
        // One to spare, for a peer that does not count quite as we do.
        endpoint.ask_for_receives(FIRST_CREDITS + 1)?;
        if this.channel.is_some() {
            this.set_endpoint(Some(endpoint.clone()));
        }
        owner
            .accept(&own.encode(), read_depth.min(limits.outbound_reads))
            .inspect_err(|_| this.set_endpoint(None))?;
        *this.owner.lock() = Some(owner);
        Ok(this)
    }

    /// What was agreed on.
    pub(super) fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// The session of the connection, if it speaks Version Two.
    pub(super) fn two(&self) -> Option<Arc<Channel>> {
        self.channel.clone().filter(|channel| channel.is_two())
    }

    /// What is spoken.
    fn version(&self) -> Version {
        match &self.channel {
            Some(channel) if channel.is_two() => Version::Two,
            _ => Version::One,
        }
    }

    /// Whether the connection is up.
    pub(super) fn is_established(&self) -> bool {
        self.established.load(Relaxed)
    }

    /// There are more Receives for the peer's messages.
    fn receives_changed(&self) {
        let Some(channel) = &self.channel else { return };
        let beside = match self.has_callback.load(Relaxed) {
            true => callback::SLOTS + 1,
            false => 1,
        };
        channel.set_capacity(self.allowance.lock().granted().saturating_add(beside));
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
        self.receives_changed();
        Ok(())
    }

    /// From now on the connection tells nobody of Replies. When this returns it does not refer to the callback.
    pub(super) fn end_callback(&self) {
        self.has_callback.store(false, Relaxed);
        // Dropped under the lock: else `destroy` might not have the last reference.
        *self.callback.lock() = None;
    }

    /// Does something with the callback, if there is one. Sleeps.
    pub(super) fn with_callback(&self, act: impl FnOnce(&Arc<Callback>)) {
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
        let granted = allowance.granted();
        drop(allowance);
        self.receives_changed();
        granted
    }

    /// Puts up with a Call that was not granted, if the Receive that it took can be replaced. Sleeps.
    fn put_up(&self, endpoint: &Endpoint<Self>) -> Result {
        self.allowance.lock().put_up().map_err(|_| EPROTO)?;
        endpoint.ask_for_receives(1)
    }

    /// A Send buffer for the answer to a message. If there is none, [`Self::has_room`] will say so until one has come
    /// back. Sleeps.
    fn reserve(&self, endpoint: &Arc<Endpoint<Self>>) -> Option<SendBuffer<Self>> {
        if let Some(buffer) = endpoint.send_buffer() {
            return Some(buffer);
        }
        // Without memory those that there are have to do: some of them are out, and will come back.
        let _ = endpoint.add_send_buffers(SEND_STEP);
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
        if self.backlog.post(endpoint, self.channel.as_deref(), item)? {
            self.xprt.enqueue();
        }
        Ok(())
    }

    /// There may be room for what waits to be posted.
    pub(super) fn flush(&self) {
        match self.backlog.flush(self.channel.as_deref()) {
            Ok(false) => {}
            Ok(true) => self.xprt.enqueue(),
            Err(_) => self.close(),
        }
    }

    /// Sets what [`Self::act`] uses.
    fn set_endpoint(&self, endpoint: Option<Arc<Endpoint<Self>>>) {
        let former = core::mem::replace(&mut *self.endpoint.lock(), endpoint);
        // Outside the lock, since it may be the last reference.
        drop(former);
    }

    /// Does what the session wants, if there is one.
    fn act(&self) {
        let Some(channel) = &self.channel else { return };
        let endpoint = self.endpoint.lock().clone();
        if let Some(endpoint) = endpoint {
            two::act(self, channel, &endpoint);
        }
    }

    /// Puts a Call of Version Two in, with which `unanswered` are with us. That there are not too many the session has
    /// seen to.
    pub(super) fn take_call(&self, unanswered: u32, message: Received<Self>, whole: Option<Whole>) {
        self.used(unanswered);
        self.inbox.put_message(&self.xprt, message, whole);
    }

    /// The peer has used so many Receives of those that it was promised.
    pub(super) fn used(&self, receives: u32) {
        let mut allowance = self.allowance.lock();
        let receives = receives.min(allowance.granted());
        let _ = allowance.arrived(receives);
    }

    /// A message of Version One has arrived.
    pub(super) fn received_one(this: &Arc<Self>, mut message: Received<Self>) {
        if this.has_callback.load(Relaxed) && is_reply(message.bytes()) {
            this.with_callback(|callback| {
                Callback::received(callback, message, Source::One);
            });
            return;
        }
        let unanswered = message.count();
        let overrun = this.allowance.lock().arrived(unanswered).is_err();
        if overrun && this.put_up(message.endpoint()).is_err() {
            // RFC 8166 section 3.3.1: the connection may be ended. What the peer took too much of may be others'.
            this.close();
            return;
        }
        this.inbox.put_message(&this.xprt, message, None);
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
        let credits = self.grant(&endpoint);
        let version = self.version();
        let answer = call::answer(version, message.bytes(), refusal, credits, &mut buffer);
        drop(message);
        let Some(len) = answer else {
            self.act();
            return Ok(());
        };
        let answer = Ready {
            message: buffer,
            len,
            cargo: None,
            invalidate: None,
            long: None,
        };
        self.post(&endpoint, Outgoing::Reply(answer))
    }

    /// Takes a message in. Returns how long the Call is, if all of it is there.
    fn take_in(
        &self,
        message: Received<Self>,
        whole: Option<Whole>,
        buffer: SendBuffer<Self>,
        rqst: CallRqst<'_, Self>,
    ) -> Result<usize> {
        let endpoint = message.endpoint().clone();
        let mut buffer = Some(buffer);
        let patiently = |attempt: &mut dyn FnMut() -> _| self.patiently(&endpoint, attempt);
        match call::take(self.version(), message, whole, &mut buffer, rqst, patiently) {
            Taken::Ready(call, rqst) => Ok(rqst.deliver(call)),
            Taken::Pull(pull) => self.post(&endpoint, Outgoing::Reads(pull)).map(|()| 0),
            Taken::Refused(message, refusal) => self.refuse(message, buffer, &refusal).map(|()| 0),
        }
    }

    /// Sends a Reply.
    fn send(&self, mut rqst: ReplyRqst<'_, Self>) -> Result {
        if self.xprt.is_closing() {
            return Err(ENOTCONN);
        }
        let endpoint = rqst.context().endpoint().ok_or(ENOTCONN)?.clone();
        let two = self.channel.as_ref().filter(|channel| channel.is_two());
        let terms = reply::Terms {
            version: self.version(),
            inline_max: two.map_or(self.agreed.send_inline, |two| two.send_size()) as usize,
            // In Version Two the Call says which handle, if any.
            may_invalidate: two.is_some() || self.agreed.remote_invalidation,
            parts: two.map_or(1, |two| two.max_parts().min(MAX_PARTS as u32)),
            credits: self.grant(&endpoint),
        };
        let buffer = rqst.context_mut().take_buffer().ok_or(ENOTCONN)?;
        let ready = reply::prepare(&mut rqst, buffer, &terms, |attempt| {
            self.patiently(&endpoint, attempt)
        })?;
        rqst.context_mut().release_message();
        let parts = ready.long.as_ref().map_or(1, |long| long.split.len());
        self.post(&endpoint, Outgoing::Reply(ready))?;
        if parts > 1 && self.backlog.is_busy() {
            // Perhaps for want of Send buffers, and nothing may be under way of which one comes back. While something
            // waits no Call gets any, so these are left to it. Without memory those that there are have to do.
            let _ = endpoint.ensure_send_buffers(parts);
            self.flush();
        }
        Ok(())
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
        // Messages may have arrived before.
        self.act();
    }

    fn number(&self) -> u32 {
        self.number
    }
}

impl EndpointEvents for Connection {
    type Pull = Pulling<Connection>;
    type Push = Pages;

    fn received(this: &Arc<Self>, message: Received<Self>) {
        match &this.channel {
            Some(channel) => two::received(this, channel, message),
            None => Self::received_one(this, message),
        }
    }

    fn pulled(this: &Arc<Self>, pull: Pulling<Connection>, done: bool) {
        if done {
            this.inbox.put_call(&this.xprt, pull);
        }
    }

    fn fenced(this: &Arc<Self>, tag: u32, done: bool) {
        this.with_callback(|callback| Callback::fenced(callback, tag, done));
    }

    fn send_room(&self) {
        self.flush();
        self.act();
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
        let work = this
            .inbox
            .next(&this.xprt, |endpoint| this.reserve(endpoint));
        rqst.let_next_in();
        let result = match work {
            None => Ok(0),
            Some(Work::Pulled(call)) if call.is_sound() => call.deliver(rqst),
            Some(Work::Pulled(call)) => {
                let (message, buffer) = call.give_up();
                this.refuse(message, buffer, &Refusal::Chunks).map(|()| 0)
            }
            Some(Work::Arrived(message, whole, buffer)) => {
                this.take_in(message, whole, buffer, rqst)
            }
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
        this.set_endpoint(None);
        this.backlog.close();
        let owner = this.owner.lock().take();
        if let Some(owner) = owner {
            owner.shutdown(|| {
                this.with_callback(|callback| callback.detach());
                // Before the device may go: messages are in buffers that it knows.
                this.inbox.empty();
            });
        }
        this.end_callback();
        this.inbox.empty();
    }
}

/// The module parameter, which kernels hand out by value or by reference.
fn shared_receives() -> u32 {
    *core::borrow::Borrow::<u32>::borrow(&module_parameters::shared_receives.value())
}
