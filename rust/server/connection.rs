// SPDX-License-Identifier: GPL-2.0

//! The transport that has a connection.

mod inspect;

use crate::kext::debugfs::Directory;
use crate::kext::errno::ENOTCONN;
use crate::observe::trace::{self, Number};
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::v1::{self, Direction};
use crate::responder::call::{self, Call, Pulling, Refusal, Taken};
use crate::responder::reply;
use crate::responder::stats::Stats;
use crate::server::callback::{self, Callback};
use crate::sunrpc::svc::counters::{count, Counter};
use crate::sunrpc::svc::{CallRqst, Pages, ReplyRqst, Server, ServerTransport, SvcXprt};
use crate::sunrpc::{tunables, AddressText};
use crate::verbs::cm::{CmId, ConnectionEvents, ConnectionRequests, Incoming};
use crate::verbs::endpoint::{
    Cargo, Endpoint, EndpointEvents, EndpointOwner, PostError, Pull, Received, SendBuffer, Sizes,
    RECEIVE_BATCH,
};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_condvar, new_mutex, new_spinlock, Arc, CondVar, Mutex, SpinLock};

/// Receives that are not for Calls: one for each Reply to a Call of ours, and a batch that is not posted.
const OTHER_RECEIVES: u32 = callback::SLOTS + RECEIVE_BATCH;

/// Receives: beside those one for each credit, and one for each Call that a thread has.
const fn receives(credits: u32) -> u32 {
    2 * credits + OTHER_RECEIVES
}

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
    /// By what number trace events and debugfs name the connection.
    number: Number,
    /// What is granted.
    credits: Atomic<u32>,
    /// RDMA Reads that may be under way at once.
    read_depth: Atomic<u32>,
    /// The peer's address, and ours.
    addresses: (AddressText, AddressText),
    /// What was counted.
    stats: Arc<Stats>,
    /// What debugfs shows. It refers back to us, so `free` takes it away.
    #[pin]
    directory: Mutex<Option<Directory<Connection>>>,
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
    /// As for [`Self::try_accept`].
    pub(super) fn accept<L: ConnectionRequests>(
        server: Server<'_>,
        incoming: Incoming<L>,
    ) -> Result<Arc<Self>> {
        // The number has 31 bits for trace events.
        let number = Number::Server(NEXT_NUMBER.fetch_add(1, Relaxed) & (u32::MAX >> 1));
        let addresses = (incoming.remote().text(), incoming.local().text());
        let accepted = Self::try_accept(server, incoming, number, addresses);
        inspect::accepted(number, &addresses.0, &accepted);
        accepted
    }

    /// Accepts a connection. What an administrator may set is taken now, for all its life.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, `ENOMEM`, or what the device or the CM reports; the peer is rejected.
    fn try_accept<L: ConnectionRequests>(
        server: Server<'_>,
        incoming: Incoming<L>,
        number: Number,
        addresses: (AddressText, AddressText),
    ) -> Result<Arc<Self>> {
        let max_credits = tunables::max_requests();
        let inline = tunables::max_request_size();
        let own = CmPrivate {
            send_size: inline,
            receive_size: inline,
            remote_invalidation: true,
        };
        let peer = CmPrivate::decode(incoming.private_data());
        let read_depth = incoming.read_depth();
        if read_depth == 0 {
            // It would never answer our Reads.
            return Err(EINVAL);
        }
        let inbox = Inbox {
            arrived: KVVec::with_capacity(receives(max_credits) as usize, GFP_KERNEL)?,
            pulled: KVVec::with_capacity(receives(max_credits) as usize, GFP_KERNEL)?,
        };
        let stats = Arc::new(Stats::new(number), GFP_KERNEL)?;
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
                number,
                credits: Atomic::new(0),
                read_depth: Atomic::new(0),
                addresses,
                stats,
                directory <- new_mutex!(None, "rpcrdma::Connection::directory"),
                has_callback: Atomic::new(false),
                callback <- new_mutex!(None, "rpcrdma::Connection::callback"),
            }? Error),
            GFP_KERNEL,
        )?;
        this.xprt.set_local(incoming.local())?;
        this.xprt.set_remote(incoming.remote())?;
        let cm = CmId::adopt(incoming, this.clone())?;
        let limits = cm.device_limits().ok_or(ENODEV)?;
        // The Receive Queue has one more work request, the marker of a drain.
        let room = limits.queue_depth.saturating_sub(OTHER_RECEIVES + 1);
        let credits = max_credits.min(room / 2).max(1);
        let send_queue = (8 * credits).min(limits.queue_depth / 2);
        let sizes = Sizes {
            receives: receives(credits),
            receive_size: inline as usize,
            sends: 2 * credits + callback::SLOTS,
            send_size: inline as usize,
            send_queue,
            region_depth: 1,
            regions: 0,
            transfer_sges: limits.send_sges.min(16),
            transfers: credits.min(limits.queue_depth / 8),
        };
        let owner = EndpointOwner::new(cm, sizes)?;
        this.credits.store(credits, Relaxed);
        let ours = u8::try_from(tunables::max_outbound_reads()).unwrap_or(u8::MAX);
        let read_depth = read_depth.min(limits.outbound_reads).min(ours);
        this.read_depth.store(read_depth.into(), Relaxed);
        owner.accept(&own.encode(), read_depth)?;
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

    /// Waits until `attempt` has a result that is not [`None`]. It is tried again whenever there is room in the
    /// Send Queue, or something else has come back. `xid` says for what.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before.
    fn wait_for_room<R>(&self, xid: u32, mut attempt: impl FnMut() -> Option<R>) -> Result<R> {
        let mut waited = false;
        loop {
            let seen = *self.returns.lock();
            if let Some(result) = attempt() {
                return Ok(result);
            }
            if !core::mem::replace(&mut waited, true) {
                self.stats.send_queue_full(xid);
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

    /// A Send buffer.
    fn buffer(&self, endpoint: &Arc<Endpoint<Self>>, xid: u32) -> Result<SendBuffer<Self>> {
        self.wait_for_room(xid, || endpoint.send_buffer())
    }

    /// Posts Reads.
    fn post_pull(&self, pull: KBox<Pull<Self>>, endpoint: &Endpoint<Self>) -> Result {
        let (xid, load) = (pull.keeper().xid(), pull.load());
        let mut pull = Some(pull);
        self.wait_for_room(xid, || match endpoint.post_pull(pull.take()?) {
            Ok(()) => Some(Ok(())),
            Err((PostError::Full, back)) => {
                pull = back;
                None
            }
            Err(_) => Some(Err(ENOTCONN)),
        })??;
        self.stats.reads_posted(xid, load);
        Ok(())
    }

    /// Answers a message that was refused.
    fn refuse(&self, message: Option<Received<Self>>, refusal: &Refusal) -> Result {
        let bytes = message.as_ref().map_or(&[][..], |message| message.bytes());
        let (xid, (answer, why)) = (call::xid_of(bytes), refusal.traced());
        self.stats.refused(xid, answer, why, bytes.len());
        if let Refusal::Lost(error) = refusal {
            return Err(*error);
        }
        let message = message.ok_or(ENOTCONN)?;
        let endpoint = message.endpoint().clone();
        let mut buffer = self.buffer(&endpoint, xid)?;
        let credits = self.credits.load(Relaxed);
        let Some(len) = call::answer(message.bytes(), refusal, credits, &mut buffer) else {
            return Ok(());
        };
        drop(message);
        self.post(xid, &endpoint, buffer, len, None, None).map(drop)
    }

    /// Posts a Reply. Returns its place in the Send Queue.
    fn post(
        &self,
        xid: u32,
        endpoint: &Endpoint<Self>,
        buffer: SendBuffer<Self>,
        len: usize,
        cargo: Option<Cargo<Self>>,
        invalidate: Option<u32>,
    ) -> Result<u64> {
        let mut parts = Some((buffer, cargo));
        self.wait_for_room(xid, || {
            let (buffer, cargo) = parts.take()?;
            match endpoint.post_reply(buffer, len, cargo, invalidate) {
                Ok(sequence) => Some(Ok(sequence)),
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
        let endpoint = rqst.context().received().endpoint().clone();
        let xid = rqst.context().xid();
        let terms = reply::Terms {
            inline_max: self.agreed.send_inline as usize,
            may_invalidate: self.agreed.remote_invalidation,
            credits: self.credits.load(Relaxed),
        };
        let buffer = self.buffer(&endpoint, xid)?;
        let ready = reply::prepare(&mut rqst, buffer, &terms, |attempt| {
            self.patiently(&endpoint, attempt)
        })?;
        let (len, invalidate) = (ready.len, ready.invalidate);
        let load = ready.cargo.as_ref().map(Cargo::load).unwrap_or_default();
        let sequence = self.post(xid, &endpoint, ready.message, len, ready.cargo, invalidate)?;
        self.stats.replied(xid, len, load, invalidate, sequence);
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
    }

    fn number(&self) -> Number {
        self.number
    }
}

impl EndpointEvents for Connection {
    type Pull = Pulling<Connection>;
    type Push = Pages;

    fn received(this: &Arc<Self>, message: Received<Self>) {
        count(Counter::Receives, 1);
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
        this.stats.reads_done(pull.xid(), done);
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
            match call::take(message, rqst, &this.stats, patiently) {
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
        let xid = rqst.context().xid();
        let result = this.send(rqst);
        if let Err(error) = result {
            this.stats.reply_failed(xid, error);
            this.xprt.close();
        }
        result
    }

    fn detach(this: &Arc<Self>) {
        trace::disconnect(this.number, trace::End::Closed);
        if let Some(owner) = &*this.owner.lock() {
            owner.disconnect();
        }
        this.wake();
    }

    fn free(this: &Arc<Self>) {
        // Waits for readers, which take locks of ours.
        let directory = this.directory.lock().take();
        drop(directory);
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
