// SPDX-License-Identifier: GPL-2.0

//! The transport that has a connection.

mod accept;
mod handlers;
mod inspect;

pub(super) use self::accept::check_parameters;
use self::accept::FIRST_CREDITS;

use crate::kext::debugfs::Directory;
use crate::kext::delayed_work::{impl_has_delayed_work_ext, DelayedWork};
use crate::kext::errno::{ENOTCONN, EOPNOTSUPP, EPROTO};
use crate::kext::memalloc::NoFs;
use crate::link::assembly::Whole;
use crate::link::channel::Channel;
use crate::link::middles::{most_parts, MAX_PARTS};
use crate::observe::trace::{Number, Why};
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::credits::{Allowance, Due};
use crate::proto::message::Version;
use crate::proto::props::Reverse;
use crate::responder::call::{self, Refusal, Taken};
use crate::responder::reply::{self, Ready};
use crate::responder::stats::Stats;
use crate::server::backlog::{Backlog, Outgoing};
use crate::server::callback::{self, Callback};
use crate::server::inbox::{Arrived, Inbox};
use crate::server::two;
use crate::sunrpc::svc::{CallRqst, ReplyRqst, SvcXprt};
use crate::sunrpc::{tunables, AddressText};
use crate::verbs::endpoint::{Endpoint, EndpointOwner, Quota, Received, SendBuffer};
use crate::verbs::receive_pool::Need;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Full, Relaxed, Release};
use kernel::sync::{Arc, CondVar, CondVarTimeoutResult, Mutex, SpinLock};
use kernel::time::{msecs_to_jiffies, Jiffies, Msecs};

/// Send buffers to begin with, and how many are added at a time.
const SEND_STEP: u32 = 2;

/// Octets of memory that RDMA Reads and Writes of a connection may have: with as many no further Call is taken in.
const TRANSFER_MEMORY: usize = 16 << 20;

/// How long a thread waits for memory regions for one Call, in milliseconds: in all, or a client whose Reads end one by one
/// could have it wait for ever. The device should have given up on one Read before.
const PATIENCE: Msecs = 20_000;

/// See `Connection::returns`.
#[derive(Default)]
struct Returns {
    /// How often something came back.
    count: u64,
    /// How many threads wait for more. Nobody is woken while there is none, which is nearly always.
    waiting: u32,
}

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
    /// Whether a message waits for a Send buffer for its answer, or for the end of transfers.
    starved: Atomic<bool>,
    /// Counts what came back, memory regions above all; and the end of the connection, after which nothing will.
    #[pin]
    returns: SpinLock<Returns>,
    /// Signaled when `returns` has changed while somebody waits for that.
    #[pin]
    returned: CondVar,
    /// Held by who waits for memory regions for a Reply.
    #[pin]
    patience: Mutex<()>,
    /// What was agreed on.
    agreed: Agreed,
    /// Whether the device can have a handle of the peer's invalidated.
    sends_invalidation: bool,
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
    /// How many Replies to Calls of ours may come. In Version Two the session sees to that.
    #[pin]
    due: SpinLock<Due>,
    /// By what number trace events and debugfs name the connection.
    number: Number,
    /// RDMA Reads that may be under way at once.
    read_depth: u8,
    /// The peer's address, and ours.
    addresses: (AddressText, AddressText),
    /// What was counted.
    stats: Arc<Stats>,
    /// What debugfs shows. It refers back to us, so `free` takes it away.
    #[pin]
    directory: Mutex<Option<Directory<Connection>>>,
    /// Whether there is a `callback`, as a hint that costs no lock.
    has_callback: Atomic<bool>,
    /// Whether somebody has taken the place of the `callback`, which is perhaps not there yet.
    callback_taken: Atomic<bool>,
    /// The transport for Calls to the peer. Held while a Reply is taken in.
    #[pin]
    callback: Mutex<Option<Arc<Callback>>>,
    /// Looks whether the client goes on with a sequence of messages that it has begun, and lets us send.
    #[pin]
    look: DelayedWork<Connection>,
}

impl_has_delayed_work_ext! {
    impl HasDelayedWork<0> for Connection { self.look }
}

impl Connection {
    /// What was agreed on.
    pub(super) fn agreed(&self) -> Agreed {
        self.agreed
    }

    /// The session of the connection, if it speaks Version Two.
    pub(super) fn two(&self) -> Option<Arc<Channel>> {
        self.channel.clone().filter(|channel| channel.is_two())
    }

    /// Where Version Two may be spoken: the session of the connection.
    pub(super) fn channel(&self) -> Option<&Channel> {
        self.channel.as_deref()
    }

    /// The peer's address, and ours.
    pub(super) fn addresses(&self) -> &(AddressText, AddressText) {
        &self.addresses
    }

    /// What was counted.
    pub(super) fn stats(&self) -> &Stats {
        &self.stats
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

    /// Whether something waits to be sent in Version Two, perhaps for a credit.
    pub(super) fn waits(&self) -> bool {
        self.backlog.is_busy() && self.channel().is_some_and(Channel::is_two)
    }

    /// How many Receives there are for the peer's messages beside those of credits.
    fn receives_beside(&self) -> u32 {
        match self.has_callback.load(Relaxed) {
            true => callback::SLOTS + 1,
            false => 1,
        }
    }

    /// There are more Receives for the peer's messages.
    fn receives_changed(&self) {
        let Some(channel) = &self.channel else { return };
        let allowance = self.allowance.lock();
        self.limit_promises(channel, &allowance);
        drop(allowance);
    }

    /// Has the session promise what the `allowance` says. Its lock is held until this is known, or who knows less might be
    /// the last to say so.
    fn limit_promises(&self, channel: &Channel, allowance: &Allowance) {
        let receives = allowance.granted().saturating_add(self.receives_beside());
        channel.set_capacity(receives, allowance.withdrawn());
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
    /// `EBUSY` if the connection has one already, `ENOTCONN` if it is gone, `EOPNOTSUPP` if the client has not told that
    /// it takes Calls (5.2.5 of the draft), and what `attach` returns.
    pub(super) fn begin_callback(
        &self,
        callback: &Arc<Callback>,
        attach: impl FnOnce(Arc<Endpoint<Self>>) -> Result,
    ) -> Result {
        // Who is told so grants no delegations, which could never be recalled.
        if self.two().is_some_and(|two| two.reverse() == Reverse::None) {
            return Err(EOPNOTSUPP);
        }
        let endpoint = match &*self.owner.lock() {
            Some(owner) => owner.endpoint().clone(),
            None => return Err(ENOTCONN),
        };
        // Not by the lock of `callback`: completion handlers wait for that, and what follows waits for locks under which their
        // end is waited for.
        if self.callback_taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        let begun = self.prepare_callback(endpoint, attach);
        if begun.is_err() {
            self.callback_taken.store(false, Release);
            return begun;
        }
        *self.callback.lock() = Some(callback.clone());
        self.has_callback.store(true, Relaxed);
        self.receives_changed();
        Ok(())
    }

    /// Makes what a callback needs of the connection, see [`Self::begin_callback`].
    fn prepare_callback(
        &self,
        endpoint: Arc<Endpoint<Self>>,
        attach: impl FnOnce(Arc<Endpoint<Self>>) -> Result,
    ) -> Result {
        // Completion handlers may wait for what is held meanwhile, and writeback for them.
        let _scope = NoFs::enter();
        // Replies need them, and not those that the peer was promised for its Calls.
        endpoint.ask_for_receives(callback::SLOTS, Need::Vital)?;
        // In Version Two credits are not for one direction or the other: Calls may come instead.
        let room = match &self.channel {
            Some(_) => self.inbox.add_room(callback::SLOTS),
            None => Ok(()),
        };
        // Who finds no Send buffer waits for one to come back, so there must be some.
        let begun = room
            .and_then(|()| endpoint.add_send_buffers(callback::SLOTS, u64::MAX))
            .and_then(|_| attach(endpoint.clone()));
        if begun.is_err() {
            endpoint.return_receives(callback::SLOTS);
        }
        begun
    }

    /// From now on the connection tells nobody of Replies. When this returns it does not refer to the callback.
    pub(super) fn end_callback(&self) {
        self.has_callback.store(false, Relaxed);
        // Dropped under the lock: else `destroy` might not have the last reference.
        *self.callback.lock() = None;
        self.callback_taken.store(false, Release);
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

    /// A Call to the peer is about to be posted.
    pub(super) fn calls(&self) {
        self.due.lock().called();
    }

    /// It was not posted.
    pub(super) fn does_not_call(&self) {
        self.due.lock().not_called();
    }

    /// Waits until more has come back than `seen`, but not for more than what is `left` of the time, in jiffies.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the connection ends before, or the time is over.
    fn wait_for_return(&self, seen: u64, left: &mut Jiffies) -> Result {
        let mut returns = self.returns.lock();
        while returns.count == seen {
            // Who closes the connection says so here afterwards.
            if self.xprt.is_closing() {
                return Err(ENOTCONN);
            }
            // Whoever takes the lock after us sees that somebody waits.
            returns.waiting = returns.waiting.saturating_add(1);
            let outcome = self
                .returned
                .wait_interruptible_timeout(&mut returns, *left);
            returns.waiting = returns.waiting.saturating_sub(1);
            match outcome {
                CondVarTimeoutResult::Woken { jiffies } => *left = jiffies,
                _ => return Err(ENOTCONN),
            }
        }
        Ok(())
    }

    /// Tries something until it finds the memory regions that it wants. Only RDMA Writes of a Reply may wait so, which
    /// no device needs regions for unless its administrator has the core use them.
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
        if self.xprt.is_closing() {
            // Whoever had his turn before may have waited in vain.
            return Err(ENOTCONN);
        }
        let mut left = msecs_to_jiffies(PATIENCE);
        let result = loop {
            match attempt() {
                Err(EAGAIN) => {}
                other => break other,
            }
            // Read now: what the attempt itself has given back is nothing to wait for.
            let seen = self.returns.lock().count;
            if endpoint.has_transfers() {
                if let Err(error) = self.wait_for_return(seen, &mut left) {
                    // Those behind us shall not wait as long again.
                    self.close();
                    return Err(error);
                }
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
        returns.count = returns.count.wrapping_add(1);
        let waiting = returns.waiting > 0;
        drop(returns);
        if waiting {
            self.returned.notify_all();
        }
    }

    /// What to grant in a message that is about to be sent. It grows if the peer has used all of it and there may be
    /// Receives for more.
    fn grant(&self, endpoint: &Endpoint<Self>) -> u32 {
        let most = match endpoint.receive_share() {
            Some(share) => self.make_do(share),
            None => u32::MAX,
        };
        let mut allowance = self.allowance.lock();
        let (granted, wanted) = (allowance.granted(), allowance.begin_growth(most));
        let withdrawn = allowance.withdrawn() > 0;
        drop(allowance);
        if withdrawn {
            self.give_back(endpoint);
        }
        if wanted == 0 {
            return granted;
        }
        if endpoint.ask_for_receives(wanted, Need::More).is_err() {
            self.allowance.lock().give_up();
            self.stats.grant_denied();
            return granted;
        }
        if self.inbox.add_room(wanted).is_err() {
            self.allowance.lock().give_up();
            endpoint.return_receives(wanted);
            return granted;
        }
        // Before anything is promised the Receives are posted, and there is place for the messages.
        let mut allowance = self.allowance.lock();
        allowance.grow(wanted);
        let granted = allowance.granted();
        // Under the lock, so that these events are in order.
        self.stats.granted(granted);
        drop(allowance);
        self.receives_changed();
        granted
    }

    /// Puts up with a Call that was not granted, if the Receive that it took can be replaced. Sleeps, but does not wait
    /// for a filesystem: all connections wait for this thread, and the peer might be this machine.
    fn put_up(&self, endpoint: &Endpoint<Self>) -> Result {
        self.allowance.lock().put_up().map_err(|_| EPROTO)?;
        let _scope = NoFs::enter();
        endpoint.ask_for_receives(1, Need::More)?;
        self.inbox.add_room(1)
    }

    /// There are too few Receives for all who share them: the connection makes do with its `share`. Returns how many credits
    /// it may have, which a connection of Version Two has not more of from now on: its window is not renewed beyond them.
    fn make_do(&self, share: u32) -> u32 {
        let most = share
            .saturating_sub(self.receives_beside())
            .max(FIRST_CREDITS);
        let Some(channel) = self.channel().filter(|channel| channel.is_two()) else {
            return most;
        };
        let mut allowance = self.allowance.lock();
        if allowance.withdraw(most) {
            // Nobody gives Receives back before this is known, see `give_back`.
            self.limit_promises(channel, &allowance);
            self.stats.granted(allowance.granted());
        }
        drop(allowance);
        most
    }

    /// Gives Receives back for credits that were withdrawn, as far as the peer has used what it was promised.
    fn give_back(&self, endpoint: &Endpoint<Self>) {
        let Some(channel) = self.channel() else {
            return;
        };
        // That there is less to promise was known to the channel before anybody could see that credits were withdrawn.
        let settled = channel.settle(endpoint, |needed| {
            let mut allowance = self.allowance.lock();
            let settled = allowance.settle(needed, self.receives_beside());
            self.limit_promises(channel, &allowance);
            settled
        });
        if settled > 0 {
            endpoint.return_receives(settled);
        }
    }

    /// With how many pages of RDMA Reads and Writes no further Call is taken in.
    fn quota() -> Quota {
        Quota {
            own: TRANSFER_MEMORY / PAGE_SIZE,
            all: tunables::transfer_memory() / PAGE_SIZE as u64,
        }
    }

    /// A Send buffer for the answer to a message. If there is none, or much is being read or written already,
    /// [`Self::has_room`] will say so until something has come back. Sleeps.
    fn reserve(&self, endpoint: &Arc<Endpoint<Self>>) -> Option<SendBuffer<Self>> {
        let quota = Self::quota();
        let lend = || endpoint.spare_send_buffer(&quota);
        if let Some(buffer) = lend() {
            return Some(buffer);
        }
        if endpoint.is_full(&quota) {
            self.stats.transfers_full();
        } else {
            // Completion handlers may wait for what is held meanwhile, and writeback for them.
            let _scope = NoFs::enter();
            // Without memory, or when there may be no more, those that there are have to do: some of them are out, and
            // will come back.
            let _ = endpoint.add_send_buffers(SEND_STEP, tunables::send_buffers());
        }
        lend().or_else(|| {
            self.starved.store(true, Relaxed);
            // One may have come back before that was set. Whoever gives one back, or ends a transfer, takes the same
            // lock as this attempt, and looks at the flag afterwards.
            let buffer = lend();
            if buffer.is_some() {
                self.starved.store(false, Relaxed);
            } else {
                self.stats.send_queue_full(self.inbox.oldest_xid());
            }
            buffer
        })
    }

    /// A Send buffer may have come back, or a transfer has ended.
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
        if self.backlog.is_busy() {
            // Perhaps for want of credits, which the client can't renew before it is told that there is a Receive for a
            // GRANT: that of the Call is back.
            self.act();
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

    /// A Send buffer or a Receive has come back without a completion that would tell of it: lets everybody try again who may
    /// wait for one. Sleeps.
    ///
    /// # Who waits for what comes back
    ///
    /// A message that waits for a Send buffer, or for the credit that goes with a Receive, is sent when there is
    /// [room](crate::verbs::endpoint::EndpointEvents::send_room): each posted Send brings it about some time later. What
    /// comes back unposted brings nothing about, and nothing may be under way that would. These are the ways for it:
    ///
    /// - A Call that SUNRPC drops without a Reply, with its Send buffer and its Receive: `ServerTransport::given_up`. With the
    ///   Receive goes a credit of the client's, which may have no other one left, and so would wait for ever for a GRANT.
    /// - A message that is not answered at all: [`Self::refuse`].
    /// - A Reply to a Call of ours, whose Receive is kept until its regions are fenced: `EndpointEvents::fenced`.
    /// - A Call of ours that finds no credits or regions after it had taken Send buffers: `Callback::send_request`. A Reply
    ///   in parts may have missed them meanwhile.
    /// - Parts of a Reply that could not be posted: it is in the backlog then, and what brings that on brings on who has
    ///   missed these buffers.
    ///
    /// Calls that wait for Send buffers are told by [`Self::feed`], however those come back. The session's own messages
    /// have a buffer that nobody else takes.
    pub(super) fn retry(&self) {
        self.flush();
        self.act();
        self.with_callback(|callback| callback.send_room());
    }

    /// Tries again to post what waits, for which there may have been no memory before. Sleeps.
    pub(super) fn insist(&self) {
        let endpoint = self.endpoint.lock().clone();
        let Some(endpoint) = endpoint else { return };
        // Writeback may wait for this connection.
        let _scope = NoFs::enter();
        let _ = endpoint.ensure_send_buffers(MAX_PARTS as u32);
        self.flush();
    }

    /// Sets what [`Self::act`] uses.
    fn set_endpoint(&self, endpoint: Option<Arc<Endpoint<Self>>>) {
        let former = core::mem::replace(&mut *self.endpoint.lock(), endpoint);
        // Outside the lock, since it may be the last reference.
        drop(former);
    }

    /// Does what the session wants, if there is one.
    pub(super) fn act(&self) {
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

    /// Answers a message that was refused.
    fn refuse(
        &self,
        message: Option<Received<Self>>,
        buffer: Option<SendBuffer<Self>>,
        refusal: &Refusal,
    ) -> Result {
        let bytes = message.as_ref().map_or(&[][..], |message| message.bytes());
        let version = self.version();
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
            // Nobody shall wait for what is ours still.
            drop(buffer);
            self.retry();
            return Ok(());
        };
        let answer = Ready {
            xid,
            message: buffer,
            len,
            cargo: None,
            invalidate: None,
            long: None,
        };
        self.post(&endpoint, Outgoing::Reply(answer))
    }

    /// Takes a message in. Returns how long the Call is, if all of it is there.
    ///
    /// No thread waits here for memory regions, which come back when the peer answers RDMA Reads: the message does.
    fn take_in(
        &self,
        arrived: Arrived,
        buffer: SendBuffer<Self>,
        mut rqst: CallRqst<'_, Self>,
    ) -> Result<usize> {
        let endpoint = arrived.message.endpoint().clone();
        let mut buffer = Some(buffer);
        let again = arrived.again;
        if !again {
            rqst.let_next_in();
        }
        // Else nobody is let in before it has its regions: two might for ever take from each other what both want.
        let alone = again && !endpoint.has_transfers();
        match call::take(self.version(), arrived, &mut buffer, rqst, &self.stats) {
            Taken::Ready(call, rqst) => rqst.deliver(call),
            Taken::Pull(pull) => self.post(&endpoint, Outgoing::Reads(pull)).map(|()| 0),
            Taken::Refused(message, refusal) => self.refuse(message, buffer, &refusal).map(|()| 0),
            Taken::Crowded(arrived) if alone && !endpoint.has_transfers() => {
                let refusal = Refusal::Chunks(Why::TooManySegments);
                self.refuse(Some(arrived.message), buffer, &refusal)
                    .map(|()| 0)
            }
            Taken::Crowded(arrived) => {
                // First, since what comes back has others look again.
                drop(buffer);
                self.starved.store(true, Relaxed);
                self.inbox.put_back(&self.xprt, arrived);
                // Whoever ends a transfer takes the same lock, and looks at the flag afterwards.
                if !endpoint.has_transfers() {
                    self.feed();
                }
                Ok(0)
            }
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
            may_invalidate: self.sends_invalidation
                && (two.is_some() || self.agreed.remote_invalidation),
            // What is too long for parts needs a Reply chunk, which the peer is told.
            parts: two.map_or(1, |two| two.max_parts().min(most_parts(two.send_size()))),
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
            let scope = NoFs::enter();
            let _ = endpoint.ensure_send_buffers(parts);
            drop(scope);
            self.flush();
        }
        Ok(())
    }
}
