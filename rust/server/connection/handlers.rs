// SPDX-License-Identifier: GPL-2.0

//! The events of a connection: from the CM, from its endpoint, from SUNRPC.

use super::{
    Connection,
    LEAVE_WORK, //
};
use crate::endpoint::ConnectionEvents;
use crate::endpoint::{
    EndpointEvents,
    Pull,
    Received, //
};
use crate::kext::barrier::smp_mb;
use crate::kext::delayed_work::{
    DelayedWork,
    DelayedWorkItem, //
};
use crate::kext::prelude::*;
use crate::kext::time::ktime;
use crate::kext::waiting::Waiting;
use crate::link::assembly::Whole;
use crate::link::channel::incoming::Delivery;
use crate::observe::trace::{
    self,
    Answer,
    Number,
    RefusalReason, //
};
use crate::proto::v1::{
    DecodeError,
    Direction, //
};
use crate::requester::reply;
use crate::responder::call::{
    self,
    Call,
    Pulling,
    Refusal, //
};
use crate::server::callback::Callback;
use crate::server::inbox::Work;
use crate::sunrpc::svc::counters::{
    count,
    ServerCounter, //
};
use crate::sunrpc::svc::{
    CallRqst,
    Pages,
    ReplyRqst,
    ServerTransport,
    SvcXprt, //
};
use crate::sunrpc::CallLease;

impl Connection {
    /// Takes a message in. Calls go to a thread, which decodes them; what a Requester of ours waits
    /// for goes to the [`Callback`]. Sleeps.
    fn take_message(this: &Arc<Self>, mut message: Received<Self>) {
        let calls = this.has_callback.load(Relaxed);
        let expects_answers = this.channel.may_answer(message.bytes(), calls);
        if this.channel.is_sure_call(message.bytes(), expects_answers) {
            // Only Replies may take a memory region away, see below.
            return match message.invalidated() {
                None => this.take_counted_call(message),
                Some(_) => this.close(),
            };
        }
        let held = this.channel.count(&mut message);
        let delivery = this.channel.deliver(message.bytes(), held, expects_answers);
        match delivery {
            // A Call that was answered may be one of a callback that is gone.
            Delivery::Answer(..) if !expects_answers => {}
            Delivery::Answer(answer, whole) => {
                if answer.credits.is_some() && !this.is_due(&message) {
                    return;
                }
                let place = this.callback.lock();
                if let Some(callback) = &*place {
                    let ended = Callback::accept(callback, &message, &answer, whole.as_ref());
                    if let Some(ended) = ended {
                        reply::finish(callback, message, ended, whole);
                    }
                }
            }
            Delivery::Bad(error) if error.direction == Some(Direction::Reply) => {
                this.take_unreadable(message, &error);
            }
            Delivery::Part(_) if this.channel.note_part(message.invalidated()) => {}
            // Only Replies may take a memory region away (RFC 8166 section 3.3.2; 6.5 of the
            // draft). Which one that was does not matter.
            _ if message.invalidated().is_some() => this.close(),
            Delivery::Call(version, whole) if version.rules().counts_messages => {
                this.put_in(message, whole);
            }
            Delivery::Call(..) | Delivery::Bad(_) => this.take_counted_call(message),
            Delivery::Optional(credits) => {
                // Perhaps it says that the client has heard of its credits.
                this.channel.settle(message.endpoint());
                if let Some(credits) = credits {
                    this.with_callback(|callback| reply::update_credits(callback, credits));
                }
            }
            Delivery::Part(_) | Delivery::Properties | Delivery::Nothing => {}
        }
    }

    /// Counts a Reply of Version One, which takes no credit. Returns whether there were Calls
    /// enough for it; if not, the connection ends.
    fn is_due(&self, message: &Received<Self>) -> bool {
        let due = self.channel.answered().is_ok();
        if !due {
            self.cut_off_for(message);
        }
        due
    }

    /// Ends the connection for a message that should not have been sent: RFC 8166 section 3.3.1
    /// allows it.
    fn cut_off_for(&self, message: &Received<Self>) {
        let bytes = message.bytes();
        self.stats.refused(
            call::xid_of(bytes),
            Answer::Close,
            RefusalReason::NoCredit,
            bytes.len(),
        );
        self.cut_off(message.endpoint());
    }

    /// Takes a Reply of Version One in that can't be decoded.
    fn take_unreadable(&self, message: Received<Self>, error: &DecodeError) {
        if !self.is_due(&message) {
            return;
        }
        let place = self.callback.lock();
        let Some(callback) = &*place else { return };
        if let Some(answer) = reply::unreadable(callback, &message, error) {
            if let Some(ended) = Callback::accept(callback, &message, &answer, None) {
                reply::finish(callback, message, ended, None);
            }
        }
    }

    /// Takes a Call in that takes a credit of its own, or what can't be decoded and is no Reply.
    fn take_counted_call(&self, mut message: Received<Self>) {
        let unanswered = message.count();
        if self
            .channel
            .arrived(message.endpoint(), unanswered)
            .is_err()
        {
            return self.cut_off_for(&message);
        }
        self.put_in(message, None);
    }

    /// Leaves a message to a thread of the service.
    fn put_in(&self, message: Received<Self>, whole: Option<Whole>) {
        self.inbox.put_message(&self.xprt, message, whole);
    }

    /// Returns the length of what was received, or ends the connection.
    fn or_close(&self, received: Result<usize>) -> usize {
        received.unwrap_or_else(|_| {
            self.xprt.close();
            0
        })
    }

    /// Has the work item end the endpoint if the device goes away.
    pub(super) fn leave_device(this: &Arc<Self>) {
        if this.device_gone.load(Relaxed) {
            DelayedWork::<Self, LEAVE_WORK>::schedule(this, 0);
        }
    }

    /// Ends the endpoint, and with it all that the connection has on its device, unless that was
    /// done before. Sleeps. Threads of the service may be at work meanwhile. They find the queues
    /// closed, and what they have of the endpoint stays valid memory. None of them waits for the
    /// lock of the verbs objects while it has a transfer or a region, which the end waits for.
    fn end_endpoint(this: &Arc<Self>) {
        let owner = this.owner.lock().take();
        if let Some(owner) = owner {
            owner.shutdown(|| {
                this.with_callback(|callback| callback.detach());
                // Before the device may go: messages are in buffers that it knows.
                this.inbox.empty();
            });
        }
    }
}

impl DelayedWorkItem<LEAVE_WORK> for Connection {
    /// The connection is at its end, or holds up a fence, or the device goes away and waits for
    /// that. A thread of the service may be a long time coming, or be in the middle of a Call that
    /// came over it; and nfsd keeps a reference as long as a callback is under way, whose task may
    /// wait for this.
    fn run(this: Arc<Self>) {
        Self::end_endpoint(&this);
    }
}

impl ConnectionEvents for Connection {
    fn lost(&self) {
        self.close();
    }

    fn evicted(this: &Arc<Self>) {
        DelayedWork::<Self, LEAVE_WORK>::schedule(this, 0);
    }

    fn device_gone(this: &Arc<Self>) {
        this.device_gone.store(true, Relaxed);
        Self::leave_device(this);
    }

    fn established(&self) {
        // See `has_room` for the barrier: a Call may just have come.
        self.established.xchg(true, Full);
        self.xprt.enqueue();
        if !self.channel.negotiates() {
            // There is nothing to be agreed on.
            self.tell_agreement();
        }
        // Messages may have arrived before.
        self.act();
    }

    fn number(&self) -> Number {
        self.number
    }
}

impl EndpointEvents for Connection {
    type Lease = CallLease;
    type Pull = Pulling<Connection>;
    type Push = Pages;

    fn received(this: &Arc<Self>, message: Received<Self>) {
        count(ServerCounter::Receives, 1);
        Self::take_message(this, message);
        this.act();
        Self::watch(this);
    }

    fn pulled(this: &Arc<Self>, pull: KBox<Pull<Connection>>) {
        this.stats.reads_done(pull.keeper().xid());
        this.inbox.put_call(&this.xprt, pull);
    }

    fn offended(&self) {
        self.blame();
    }

    fn fenced(this: &Arc<Self>, tag: u32, done: bool) {
        this.with_callback(|callback| Callback::fenced(callback, tag, done));
        // The Reply that was kept for it has given its Receive back.
        this.act();
    }

    fn send_room(&self) {
        self.flush();
        self.act();
        self.wake();
        self.with_callback(|callback| callback.send_room());
    }

    fn resources_back(&self) {
        self.wake();
    }

    fn replies_wait(&self, wait: bool) {
        // See `has_room` for the barrier.
        self.replies_wait.xchg(wait, Full);
    }
}

impl ServerTransport for Connection {
    type Context = Call<Connection>;

    fn xprt(&self) -> &SvcXprt {
        &self.xprt
    }

    fn has_room(&self) -> bool {
        let starved = || self.starved.load(Relaxed) && !self.inbox.has_news();
        // What was put off has all that it needs, and the others may wait for its Send buffer. When
        // SUNRPC finds nothing any more it takes the flag away, and calls `recvfrom` once, whether
        // there is room or not.
        let waits = || self.replies_wait.load(Relaxed) || starved();
        let spare = || !waits() || self.xprt.has_deferred();
        // Before the connection is up nothing can be sent.
        let may = || self.established.load(Relaxed) && spare();
        if may() {
            return true;
        }
        // SUNRPC may just have ended its work on the transport, or a message has just come. Either
        // whoever makes room sees that, or we see here what he did: he has a barrier too.
        smp_mb();
        may()
    }

    fn recvfrom(this: &Arc<Self>, mut rqst: CallRqst<'_, Self>) -> usize {
        let result = match this.next_work() {
            None => Ok(0),
            Some(Work::Pulled(pull)) => {
                rqst.let_next_in();
                let pulling = Pull::<Self>::end(pull);
                if pulling.is_sound() {
                    pulling.deliver(rqst)
                } else {
                    let (message, buffer) = pulling.give_up();
                    this.refuse(message, buffer, &Refusal::Chunks(RefusalReason::OtherCall))
                        .map(|()| 0)
                }
            }
            Some(Work::Arrived(arrived, buffer)) => this.take_in(arrived, buffer, rqst),
        };
        Self::watch(this);
        this.or_close(result)
    }

    fn sendto(this: &Arc<Self>, rqst: ReplyRqst<'_, Self>) -> Result {
        let (xid, began) = (rqst.context().xid(), rqst.began());
        let result = this.send(rqst);
        Self::watch(this);
        match result {
            Ok(()) => this.latencies.count(ktime().wrapping_sub(began)),
            Err(error) => {
                this.stats.reply_failed(xid, error);
                this.xprt.close();
            }
        }
        result
    }

    fn given_up(this: &Arc<Self>) {
        this.retry();
    }

    fn detach(this: &Arc<Self>) {
        trace::disconnect(this.number, trace::End::Closed);
        if let Some(owner) = &*this.owner.lock() {
            owner.disconnect();
        }
        this.wake();
        DelayedWork::<Self, LEAVE_WORK>::schedule(this, 0);
    }

    fn free(this: &Arc<Self>) {
        // Waits for readers, which take locks of ours.
        let directory = this.directory.lock().take();
        drop(directory);
        this.set_link(None);
        // If it runs, it may still have the endpoint. It finds none when it runs again.
        DelayedWork::<Self>::cancel_sync(this);
        // It may just be ending the endpoint.
        DelayedWork::<Self, LEAVE_WORK>::cancel_sync(this);
        Self::end_endpoint(this);
        // No message comes any more that would have it checked again, and nothing from the CM.
        DelayedWork::<Self>::disable_sync(this);
        DelayedWork::<Self, LEAVE_WORK>::disable_sync(this);
        // It may have begun while the endpoint ended.
        this.with_callback(|callback| {
            callback.detach();
            callback.forget_connection();
        });
        this.forget(&mut this.callback.lock());
        this.inbox.empty();
    }
}
