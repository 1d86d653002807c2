// SPDX-License-Identifier: GPL-2.0

//! The transport that has a connection.

pub(super) mod accept;
mod handlers;
pub(super) mod inspect;

use crate::endpoint::{
    pages_in_use,
    receive_memory,
    Endpoint,
    EndpointOwner,
    PostError,
    Received,
    Reply,
    SendBuffer, //
};
use crate::kext::barrier::smp_mb;
use crate::kext::debugfs::Directory;
use crate::kext::delayed_work::{
    impl_has_delayed_work_ext,
    DelayedWork,
    DelayedWorkItem, //
};
use crate::kext::memalloc::NoFs;
use crate::kext::prelude::*;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::kext::time::jiffies;
use crate::kext::waiting::{
    wait_unless,
    Waiting, //
};
use crate::link::channel::receives::ReceiveOwner;
use crate::link::channel::{
    largest_message,
    Channel,
    CHECK_INTERVAL, //
};
use crate::link::parts::MAX_PARTS;
use crate::link::{
    Link,
    GROWTH_INTERVAL, //
};
use crate::observe::latency::Latencies;
use crate::observe::trace::Number;
use crate::policy::{
    budget::Quota,
    stall::StallDetector, //
};
use crate::proto::message::{
    Short,
    Version, //
};
use crate::proto::session::Reason;
use crate::proto::v2_2016::props::Told;
use crate::rdma::cm::Host;
use crate::requester::fences::Fences;
use crate::responder::call::{
    self,
    Arrived,
    Call,
    Refusal,
    Taken, //
};
use crate::responder::post;
use crate::responder::reply;
use crate::responder::stats::Stats;
use crate::server::callback::{
    self,
    Callback,
    CallbackWire, //
};
use crate::server::inbox::{
    Inbox,
    Work, //
};
use crate::server::offenders::Offenders;
use crate::sunrpc::svc::{
    CallRqst,
    ReplyRqst,
    SvcXprt, //
};
use crate::sunrpc::{
    tunables,
    AddressText, //
};
use core::ptr;
use kernel::time::{
    delay::fsleep,
    Delta, //
};

/// Send buffers to begin with, and how many are added at a time.
const SEND_STEP: u32 = 2;

/// Octets of memory that RDMA Reads and Writes of a connection may have: with as many no further
/// Call is taken in.
const TRANSFER_MEMORY: usize = 16 << 20;

/// How long a thread waits before it looks again for the memory regions of a Reply.
const LOOK: Delta = Delta::from_millis(20);

/// How often it looks, which takes 20 seconds at least.
const MAX_LOOKS: u32 = 1000;

/// How often in a row it finds too few while nobody else has any, before it gives up: another one
/// may have had some in between.
const MAX_ALONE: u32 = 5;

/// How often a thread has looked for the memory regions of a Reply.
#[derive(Default)]
struct Looks {
    count: u32,
    /// How many of the last looks found that nobody else had any.
    alone: u32,
}

/// Names the work item that takes a connection off its device.
const LEAVE_WORK: u64 = 1;

/// A transport that has a connection.
#[pin_data]
pub(crate) struct Connection {
    /// The transport that SUNRPC sees.
    #[pin]
    xprt: SvcXprt,
    /// The messages that arrived.
    #[pin]
    inbox: Inbox<Connection>,
    /// The endpoint's owner.
    #[pin]
    owner: Mutex<Option<EndpointOwner<Connection>>>,
    /// Set if the connection is up.
    established: Atomic<bool>,
    /// Set if Replies wait for the Send Queue. Written under its lock.
    replies_wait: Atomic<bool>,
    /// Set if the oldest message waits for a Send buffer for its answer, or for the end of
    /// transfers.
    starved: Atomic<bool>,
    /// The channel: the connection's knowledge and decisions.
    channel: Arc<Channel>,
    /// The same with the endpoint. It refers back to us, so `free` takes it away.
    #[pin]
    link: SpinLock<Option<Arc<Link<Connection>>>>,
    /// By what number trace events and debugfs name the connection.
    number: Number,
    /// RDMA Reads that may be under way at once.
    read_depth: u8,
    /// The peer's address, and ours.
    addresses: (AddressText, AddressText),
    /// The counters.
    stats: Arc<Stats>,
    /// The times from when a thread had a Call until its Reply was handed to the device, or left to
    /// be.
    latencies: Latencies,
    /// The fewest credits that it was granted, since that was last reset.
    least_granted: Atomic<u32>,
    /// The files in debugfs. They refer back to us, so `free` takes them away.
    #[pin]
    directory: Mutex<Option<Directory<Connection>>>,
    /// Set if there is a `callback`, as a hint that costs no lock.
    has_callback: Atomic<bool>,
    /// Set if somebody has taken the place of the `callback`, which is perhaps not there yet.
    callback_taken: Atomic<bool>,
    /// The transport for Calls to the peer. Held while a Reply is taken in.
    #[pin]
    callback: Mutex<Option<Arc<Callback<Connection>>>>,
    /// Set if there will be a check, see [`Self::watch`].
    watched: Atomic<bool>,
    /// When the last check was, in jiffies.
    checked: Atomic<usize>,
    /// Whether the client gives back pages of RDMA Reads and Writes. For checks alone.
    #[pin]
    stall: Mutex<StallDetector>,
    /// Where the client is.
    host: Host,
    /// The record of the offences of this host and of others.
    offenders: Arc<Offenders>,
    /// Checks whether the client makes progress.
    #[pin]
    check: DelayedWork<Connection>,
    /// Set if the device goes away.
    device_gone: Atomic<bool>,
    /// Takes the connection off a device that goes away.
    #[pin]
    leave: DelayedWork<Connection, LEAVE_WORK>,
}

impl_has_delayed_work_ext! {
    impl HasDelayedWork<0> for Connection { self.check }
    impl HasDelayedWork<LEAVE_WORK> for Connection { self.leave }
}

impl ReceiveOwner for Connection {
    fn add_room(&self, count: u32) -> Result {
        self.inbox.add_room(count)
    }

    fn granted(&self, credits: u32) {
        self.stats.granted(credits);
        if credits < self.least_granted.load(Relaxed) {
            self.least_granted.store(credits, Relaxed);
        }
    }

    fn grant_denied(&self) {
        self.stats.grant_denied();
    }

    #[inline]
    fn receive_memory(&self) -> (u64, u64) {
        let limit = u64::from(tunables::receive_megabytes()) << 10;
        (receive_memory() >> 10, limit)
    }
}

impl CallbackWire for Connection {
    fn begin_callback(
        &self,
        callback: &Arc<Callback<Self>>,
        attach: impl FnOnce(Arc<Link<Self>>),
    ) -> Result {
        if !self.channel.takes_calls() {
            return Err(EOPNOTSUPP);
        }
        let owner = self.owner.lock();
        let link = owner.as_ref().and_then(|_| self.link());
        drop(owner);
        let link = link.ok_or(ENOTCONN)?;
        // Not by the lock of `callback`: completion handlers wait for that, and what follows waits
        // for locks under which their end is waited for.
        if self.callback_taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        if let Err(error) = self.prepare_callback(link.endpoint()) {
            self.callback_taken.store(false, Release);
            return Err(error);
        }
        self.channel.begin_calls();
        attach(link);
        *self.callback.lock() = Some(callback.clone());
        self.has_callback.store(true, Relaxed);
        self.channel.set_beside(callback::SLOTS + 1);
        Ok(())
    }

    fn callback_published(&self) {
        // The code that ends the endpoint takes it first, and then looks for a callback. So either
        // it has found this one, and has detached it or will, or there is no endpoint here.
        let has_ended = self.owner.lock().is_none();
        if has_ended {
            self.with_callback(|callback| callback.detach());
        }
    }

    fn end_callback(&self, callback: &Callback<Self>) {
        let mut place = self.callback.lock();
        let known = place.as_ref();
        if known.is_some_and(|known| ptr::eq(Arc::as_ptr(known), callback)) {
            self.forget(&mut place);
        }
    }

    fn flush(&self) {
        Self::flush(self);
    }

    fn watch(this: &Arc<Self>) {
        Self::watch(this);
    }

    fn end(&self) {
        self.close();
    }
}

impl Connection {
    /// Refers to no callback any more. `place` is that of the callback, which is dropped under its
    /// lock: else `destroy` might not have the last reference.
    fn forget(&self, place: &mut Option<Arc<Callback<Self>>>) {
        self.has_callback.store(false, Relaxed);
        *place = None;
        self.callback_taken.store(false, Release);
    }

    /// The connection with its endpoint, until it is freed.
    fn link(&self) -> Option<Arc<Link<Self>>> {
        self.link.lock().clone()
    }

    /// Sets what [`Self::link`] returns.
    fn set_link(&self, link: Option<Arc<Link<Self>>>) {
        let former = core::mem::replace(&mut *self.link.lock(), link);
        // Outside the lock, since it may be the last reference.
        drop(former);
    }

    /// Returns whether something waits to be sent, perhaps for a credit that the client has to
    /// renew by a message.
    fn waits(&self) -> bool {
        self.replies_wait.load(Relaxed) && self.channel.rules().counts_messages
    }

    /// Ends the connection, from any context.
    pub(super) fn close(&self) {
        self.xprt.close();
        self.wake();
    }

    /// Ends the connection for what its client does or leaves undone, without waiting for a thread.
    /// Its host is blamed for it, once.
    fn cut_off(&self, endpoint: &Arc<Endpoint<Self>>) {
        if endpoint.cut_off() {
            self.blame();
        }
        self.close();
    }

    /// Its host is blamed for what the client has done.
    fn blame(&self) {
        self.offenders.blame(self.host);
    }

    /// Makes what a callback needs of the connection, see [`CallbackWire::begin_callback`].
    fn prepare_callback(&self, endpoint: &Arc<Endpoint<Self>>) -> Result {
        // Completion handlers may wait for what is held meanwhile, and writeback for them.
        let _scope = NoFs::enter();
        // Replies need them, and not those that the peer was promised for its Calls.
        endpoint.ask_for_receives(callback::SLOTS)?;
        // Where credits are not for one direction or the other, Calls may come instead. A Call that
        // finds no Send buffer waits for one to come back, so there must be some.
        let room = self.inbox.add_room(callback::SLOTS);
        let begun = room.and_then(|()| endpoint.add_send_buffers(callback::SLOTS, u64::MAX));
        if begun.is_err() {
            endpoint.return_receives(callback::SLOTS);
        }
        begun.map(drop)
    }

    /// Does something with the callback, if there is one. Sleeps.
    pub(super) fn with_callback(&self, act: impl FnOnce(&Arc<Callback<Self>>)) {
        if !self.has_callback.load(Relaxed) {
            return;
        }
        let place = self.callback.lock();
        if let Some(callback) = &*place {
            act(callback);
        }
        drop(place);
    }

    /// Returns what to grant in a message that is about to be sent.
    fn grant(&self, endpoint: &Arc<Endpoint<Self>>) -> u32 {
        self.channel.grant(endpoint, self)
    }

    /// With how many pages of RDMA Reads and Writes no further Call with chunks is taken in.
    fn quota() -> Quota {
        Quota {
            own: TRANSFER_MEMORY / PAGE_SIZE,
            all: u64::from(tunables::transfer_megabytes()) * ((1 << 20) / PAGE_SIZE as u64),
        }
    }

    /// A Send buffer for the answer to a message, if there is one and not much is being read or
    /// written already.
    fn lend(endpoint: &Arc<Endpoint<Self>>) -> Option<SendBuffer<Self>> {
        endpoint.spare_send_buffer(&Self::quota())
    }

    /// What a thread has to do next, if anything can be done. Sleeps.
    fn next_work(&self) -> Option<Work<Self>> {
        let next = |is_starved| {
            let is_plain = |arrived: &Arrived<Self>| self.is_plain(arrived);
            self.inbox
                .next(&self.xprt, Self::lend, is_plain, is_starved)
        };
        if let Some(work) = next(self.starved.load(Relaxed)) {
            return Some(work);
        }
        let endpoint = self.inbox.endpoint()?;
        self.make_send_buffers(&endpoint);
        // The code that gives one back, or ends a transfer, takes the lock under which this looks
        // once more. From now on `has_room` says no, until something has come back.
        let work = next(self.starved.xchg(true, Full));
        match work {
            Some(_) => self.wake(),
            None => self.stats.send_queue_full(self.inbox.oldest_xid()),
        }
        work
    }

    /// No message could be taken in: makes Send buffers if that is for want of them.
    fn make_send_buffers(&self, endpoint: &Arc<Endpoint<Self>>) {
        if endpoint.is_full(&Self::quota()) {
            self.stats.transfers_full();
        }
        if !endpoint.has_send_buffer() {
            // Completion handlers may wait for what is held meanwhile, and writeback for them.
            let _scope = NoFs::enter();
            // Without memory, or when there may be no more, those that there are have to do: some
            // of them are out, and will come back.
            let _ = endpoint.add_send_buffers(SEND_STEP, tunables::send_buffers().into());
        }
    }

    /// Returns whether a message is a Call without chunks, which needs no transfers.
    fn is_plain(&self, arrived: &Arrived<Self>) -> bool {
        call::is_plain(self.channel.spoken(), arrived)
    }

    /// Posts a Reply, now or when there is room.
    #[inline]
    fn post(&self, endpoint: &Arc<Endpoint<Self>>, mut reply: Reply<Self>) -> Result {
        match post::now(&mut reply, endpoint, &self.channel, &self.stats) {
            Ok(()) => Ok(()),
            Err(PostError::Full) => self.leave(endpoint, reply),
            Err(_) => Err(ENOTCONN),
        }
    }

    /// Leaves a Reply to be posted when there is room.
    #[inline(never)]
    fn leave(&self, endpoint: &Arc<Endpoint<Self>>, reply: Reply<Self>) -> Result {
        self.stats.send_queue_full(reply.xid);
        endpoint.leave_reply(reply).map_err(|_| ENOTCONN)?;
        // There may have been room before it was there to be found.
        self.flush();
        // It may wait for credits. The client cannot renew them before it knows of a Receive for
        // its GRANT: that of the Call is back.
        self.act();
        Ok(())
    }

    /// There may be room for Replies that wait.
    pub(super) fn flush(&self) {
        if !self.replies_wait.load(Relaxed) {
            return;
        }
        let Some(link) = self.link() else { return };
        if post::flush(link.endpoint(), &self.channel, &self.stats).is_err() {
            self.close();
        }
        if !self.replies_wait.load(Relaxed) {
            self.xprt.enqueue();
        }
    }

    /// Lets all that may wait for a Send buffer or a Receive try again: one has come back without a
    /// completion that would tell of it. Sleeps.
    ///
    /// # Who waits for what comes back
    ///
    /// A message that waits for a Send buffer, or for the credit that goes with a Receive, is sent
    /// when there is [room](crate::endpoint::EndpointEvents::send_room): each posted Send brings it
    /// about some time later. What comes back unposted brings nothing about, and nothing may be
    /// under way that would. These are the ways for it:
    ///
    /// - A Call that SUNRPC drops without a Reply, with its Send buffer and its Receive:
    ///   `ServerTransport::given_up`. With the Receive goes a credit of the client's, which may
    ///   have no other one left, and so would wait for ever for a GRANT.
    /// - A message that is not answered at all: [`Self::refuse`]; one that is put back for want of
    ///   memory regions: [`Self::take_in`].
    /// - A Reply to a Call of ours, whose Receive is kept until its regions are fenced:
    ///   `EndpointEvents::fenced`.
    /// - A Call of ours that finds no credits or regions after it had taken a Send buffer:
    ///   `Callback::send_request`. A Reply in parts may have missed that meanwhile.
    ///
    /// Calls that wait for Send buffers are told by [`Waiting::wake`], however those come back. The
    /// session's own messages have a buffer that nobody else takes.
    fn retry(&self) {
        self.flush();
        self.act();
        self.with_callback(|callback| callback.send_room());
    }

    /// Tries again to post what waits, for which there may have been no memory before. Sleeps.
    fn insist(&self) {
        let Some(link) = self.link() else { return };
        // Writeback may wait for this connection.
        let _scope = NoFs::enter();
        let _ = link.endpoint().ensure_send_buffers(MAX_PARTS as u32);
        self.flush();
    }

    /// Does what the session of the connection wants.
    #[inline]
    fn act(&self) {
        // Mostly there is nothing, and to look is cheaper.
        if !self.established.load(Relaxed) || self.channel.may_act() {
            self.act_now();
        }
    }

    /// Does it.
    #[inline(never)]
    fn act_now(&self) {
        if let Some(link) = self.link() {
            self.act_on(link.endpoint());
        }
    }

    /// Does what the session wants. Before the connection is up nothing can be sent; but a peer
    /// that breaks its credits is cut off nevertheless.
    fn act_on(&self, endpoint: &Arc<Endpoint<Self>>) {
        let channel = &self.channel;
        if !self.established.load(Relaxed) {
            if channel.is_overdue() {
                self.cut_off(endpoint);
            }
            return;
        }
        // For what it wants there is a Send buffer that nobody else gets. If that is not free it
        // comes back with a completion, which has us called again.
        let outcome = channel.act(endpoint);
        if outcome.agreed {
            self.tell_agreement();
        }
        if outcome.wake {
            self.flush();
            self.with_callback(|callback| callback.send_room());
        }
        self.stats.refused_at_once(outcome.errors);
        if let Some(reason) = outcome.close {
            if let Some(why) = channel.refusal() {
                let client = self.addresses.0;
                pr_warn_ratelimited!(
                    "client {client}: host authentication failed: {}; disconnecting\n",
                    why.text()
                );
            }
            // The peer has been told what it had to be told.
            if reason == Reason::Owner {
                // It has done nothing wrong: there was no memory for its message.
                endpoint.cut_off();
                self.close();
            } else {
                self.cut_off(endpoint);
            }
        }
    }

    /// Takes credits back from a client that can be told so at any time. It may be idle, and others
    /// want its Receives; or the limit is lower now than it was when the client came.
    fn review_credits(&self) {
        if let Some(link) = self.link() {
            let limit = tunables::max_requests();
            self.channel.review_credits(link.endpoint(), self, limit);
        }
    }

    /// Asks the client for the callback service that an administrator wants, where it can be asked.
    fn request_callbacks(&self) {
        self.channel.request(&Told {
            reverse: tunables::server_request_callbacks().checked_sub(1),
            ..Told::default()
        });
    }

    /// Has larger Receives posted, and the client told of them, if an administrator wants such by
    /// now. Returns whether to look again soon.
    fn grow_receives(&self) -> bool {
        let size = largest_message(Version::Two, tunables::max_request_size());
        self.link().is_some_and(|link| link.grow_receives(size))
    }

    /// Has the connection checked after [`CHECK_INTERVAL`]. To be called after whatever may leave
    /// something to be looked after: each message and each turn of a thread. A check goes on as
    /// long as it finds anything.
    ///
    /// # Why nothing is left unchecked
    ///
    /// A check clears `watched` first, and then looks, under the locks under which Send buffers are
    /// added, pages are counted and credits are withdrawn. So it finds what was left there before,
    /// or the caller, which has held the same lock, finds `watched` cleared. Pages are left to the
    /// peer without a lock, but with a barrier, as the check has one.
    #[inline]
    fn watch(this: &Arc<Self>) {
        if !this.watched.load(Relaxed) {
            Self::check_after(this, CHECK_INTERVAL);
        }
    }

    /// Has the connection checked after so many jiffies. When it ends nothing is scheduled any
    /// more.
    #[inline(never)]
    fn check_after(this: &Arc<Self>, jiffies: usize) {
        this.watched.store(true, Relaxed);
        DelayedWork::<Self>::schedule(this, jiffies);
    }

    /// Takes back Send buffers that were not needed for a while, Receives for credits that were
    /// withdrawn, and what the sum of pages has for transfers to come. If the client gives no pages
    /// of RDMA Reads and Writes back, and these are short or what waits behind them takes memory
    /// that others lack, ends the connection. Returns whether to look again.
    fn take_back(&self) -> bool {
        let Some(link) = self.link() else {
            return false;
        };
        let endpoint = link.endpoint();
        // Those of callbacks were promised to them.
        let promised = if self.has_callback.load(Relaxed) {
            callback::SLOTS
        } else {
            0
        };
        let more = endpoint.remove_send_buffers(promised);
        endpoint.settle_pages();
        let kept = endpoint.kept();
        let is_short = || Self::quota().is_short(pages_in_use());
        let is_stalled = self.stall.lock().check(kept);
        if is_stalled && (is_short() || self.channel.crowds_others()) {
            self.say_disconnected_for(kept.pages);
            self.cut_off(endpoint);
        }
        more || kept.pages > 0
    }

    /// Ends the connection if there are fewer Receives than the client may count on: it would wait
    /// for ever.
    fn check_receives(&self) {
        let is_short = self
            .link()
            .is_some_and(|link| !link.endpoint().has_receives());
        if is_short && !self.xprt.is_closing() {
            let client = self.addresses.0;
            pr_warn_ratelimited!(
                "client {client}: the device lost a Receive; disconnecting (driver defect?)\n"
            );
            self.close();
        }
    }

    /// Ends the connection if the client holds up the fence of a Call to it, and its endpoint at
    /// once: all threads may wait for that, and none be there to do it. Returns whether to look
    /// again.
    fn check_fences(this: &Arc<Self>) -> bool {
        let mut found = Fences::None;
        this.with_callback(|callback| found = callback.requester().check_fences());
        if found == Fences::Late {
            if let Some(link) = this.link() {
                let client = this.addresses.0;
                pr_warn_ratelimited!(
                    "client {client}: not accepting messages, cannot release callback memory; \
                     disconnecting\n"
                );
                this.cut_off(link.endpoint());
                DelayedWork::<Self, LEAVE_WORK>::schedule(this, 0);
            }
        }
        found != Fences::None
    }

    /// Says that the connection ends since the client keeps `pages`.
    #[cold]
    fn say_disconnected_for(&self, pages: usize) {
        let (client, kept) = (self.addresses.0, pages * (PAGE_SIZE >> 10));
        pr_warn_ratelimited!(
            "client {client}: {kept} KiB of RDMA transfers made no progress while transfer_memory \
             ran short; disconnecting\n"
        );
    }

    /// Answers a message that was refused.
    fn refuse(
        &self,
        message: Option<Received<Self>>,
        buffer: Option<SendBuffer<Self>>,
        refusal: &Refusal,
    ) -> Result {
        let bytes = message.as_ref().map_or(&[][..], |message| message.bytes());
        let version = self.channel.spoken();
        let (xid, (answer, why)) = (call::xid_of(bytes), refusal.traced(version));
        self.stats.refused(xid, answer, why, bytes.len());
        if let Refusal::Lost(error) = refusal {
            return Err(*error);
        }
        let (message, mut buffer) = message.zip(buffer).ok_or(ENOTCONN)?;
        let endpoint = message.endpoint().clone();
        let credits = self.grant(&endpoint);
        let answer = call::answer(version, message.bytes(), refusal, credits, &mut buffer);
        drop(message);
        let Some(len) = answer else {
            // Given back first, so that nobody waits for a buffer that we still have.
            drop(buffer);
            self.retry();
            return Ok(());
        };
        self.post(&endpoint, Reply::new(xid, buffer, len))
    }

    /// Takes a message in. Returns how long the Call is, if all of it is there.
    ///
    /// No thread waits here for memory regions, which come back when the peer answers RDMA Reads:
    /// the message does.
    fn take_in(
        &self,
        arrived: Arrived<Self>,
        buffer: SendBuffer<Self>,
        mut rqst: CallRqst<'_, Self>,
    ) -> Result<usize> {
        let again = arrived.again;
        if !again {
            rqst.let_next_in();
        }
        let version = self.channel.spoken();
        let short = call::short(version, &arrived);
        if let Some(short) = short.filter(Short::reads_nothing) {
            return match Call::of_short(short, arrived, Some(buffer), &self.stats) {
                Ok(call) => rqst.deliver(call),
                Err(error) => self.refuse(None, None, &Refusal::Lost(error)).map(|()| 0),
            };
        }
        let endpoint = arrived.message.endpoint().clone();
        let mut buffer = Some(buffer);
        // Else nobody is let in before it has its regions: two might for ever take from each other
        // what both want.
        let alone = again && !endpoint.has_transfers();
        match call::take(version, arrived, short, &mut buffer, rqst, &self.stats) {
            Taken::Ready(call, rqst) => rqst.deliver(call),
            Taken::Pull(pull) => {
                let posted = post::reads(pull, &endpoint, &self.stats);
                posted.map(|()| 0).map_err(|_| ENOTCONN)
            }
            Taken::Refused(message, refusal) => self.refuse(message, buffer, &refusal).map(|()| 0),
            Taken::Crowded(arrived) if alone && !endpoint.has_transfers() => {
                let max = endpoint.sizes().segments;
                let refusal = Refusal::Segments { max };
                self.refuse(Some(arrived.message), buffer, &refusal)
                    .map(|()| 0)
            }
            Taken::Crowded(arrived) => {
                // First, since what comes back has others look again.
                drop(buffer);
                // A Reply in parts may have missed it.
                self.flush();
                wait_unless(self, || {
                    self.inbox.put_back(&self.xprt, arrived);
                    !endpoint.has_transfers()
                });
                Ok(0)
            }
        }
    }

    /// Too few memory regions were free for the RDMA Writes of a Reply. Waits a moment if others
    /// have some, which come back. Returns whether to look again: not if they were too few when
    /// nobody else had any.
    ///
    /// No device needs regions for Writes; an administrator may have the RDMA core use them
    /// (`force_mr` of `ib_core`), to find faults. It is the one wait that takes a thread, so it has
    /// an end, though the device should give up first on a Write that is not acknowledged.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before, or was ended for that.
    fn await_regions(&self, endpoint: &Endpoint<Self>, looks: &mut Looks) -> Result<bool> {
        looks.count += 1;
        if looks.count > MAX_LOOKS {
            self.close();
        }
        if self.xprt.is_closing() {
            return Err(ENOTCONN);
        }
        looks.alone = if endpoint.has_transfers() {
            0
        } else {
            looks.alone + 1
        };
        fsleep(LOOK);
        Ok(looks.alone < MAX_ALONE)
    }

    /// Sends a Reply.
    fn send(&self, mut rqst: ReplyRqst<'_, Self>) -> Result {
        if self.xprt.is_closing() {
            return Err(ENOTCONN);
        }
        let endpoint = rqst.context().endpoint().ok_or(ENOTCONN)?.clone();
        let terms = self.channel.reply_terms(&endpoint, self);
        let buffer = rqst.context_mut().take_buffer().ok_or(ENOTCONN)?;
        let mut reply = Reply::new(rqst.context().xid(), buffer, 0);
        let mut looks = Looks::default();
        let await_regions = || self.await_regions(&endpoint, &mut looks);
        reply::prepare(&mut rqst, &mut reply, &terms, await_regions)?;
        rqst.context_mut().release_message();
        self.post(&endpoint, reply)
    }
}

/// Threads of the service wait for a Send buffer that comes back, or for a transfer that ends. One
/// that has a Call to take in left it in the inbox, and `ServerTransport::has_room` says no.
impl Waiting for Connection {
    fn set(&self) {
        self.starved.store(true, Relaxed);
    }

    #[inline]
    fn wake(&self) {
        if self.starved.load(Relaxed) && self.starved.xchg(false, Full) {
            self.xprt.enqueue();
        }
    }
}

impl DelayedWorkItem for Connection {
    /// Checks whether the client goes on with what it has begun, and whether it lets out what
    /// waits.
    fn run(this: Arc<Self>) {
        this.watched.store(false, Relaxed);
        smp_mb();
        let is_growing = this.grow_receives();
        let now = jiffies();
        // Checks count by their interval, and growth is looked after more often than that.
        if is_growing && now.wrapping_sub(this.checked.load(Relaxed)) < CHECK_INTERVAL {
            this.act();
            return Self::check_after(&this, GROWTH_INTERVAL);
        }
        this.checked.store(now, Relaxed);
        let waits = this.waits();
        this.review_credits();
        this.request_callbacks();
        let again = this.channel.check(waits);
        // Credits are taken back from those that are idle, above all.
        let again = again || this.channel.rules().has_optional;
        let again = this.take_back() || again;
        let again = Self::check_fences(&this) || again;
        this.check_receives();
        this.act();
        if waits {
            // For want of Send buffers, which could not be made then?
            this.insist();
        }
        if is_growing {
            Self::check_after(&this, GROWTH_INTERVAL);
        } else if again || this.waits() || this.channel.needs_check() {
            Self::watch(&this);
        }
    }
}
