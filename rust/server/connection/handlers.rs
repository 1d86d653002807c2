// SPDX-License-Identifier: GPL-2.0

//! What a connection is told: by the CM, by its endpoint, by SUNRPC.

use super::Connection;
use crate::kext::delayed_work::DelayedWork;
use crate::observe::trace::{self, Answer, Number, Why};
use crate::proto::v1::{self, Direction};
use crate::requester::reply::Source;
use crate::responder::call::{self, Call, Pulling, Refusal};
use crate::server::callback::Callback;
use crate::server::inbox::Work;
use crate::server::two;
use crate::sunrpc::svc::counters::{count, Counter};
use crate::sunrpc::svc::{CallRqst, Pages, ReplyRqst, ServerTransport, SvcXprt};
use crate::verbs::cm::ConnectionEvents;
use crate::verbs::endpoint::{EndpointEvents, Received};
use kernel::prelude::*;
use kernel::sync::atomic::{Full, Relaxed};
use kernel::sync::barrier::{self, smp_mb};
use kernel::sync::Arc;

/// Whether a message answers a Call of ours.
fn is_reply(message: &[u8]) -> bool {
    let direction = match v1::decode(message) {
        Ok(header) => Some(header.rpc_direction()),
        Err(error) => error.direction,
    };
    direction == Some(Direction::Reply)
}

impl Connection {
    /// A message of Version One has arrived.
    pub(in crate::server) fn received_one(this: &Arc<Self>, mut message: Received<Self>) {
        if this.has_callback.load(Relaxed) && is_reply(message.bytes()) {
            if this.due.lock().answered().is_err() {
                this.cut_off(&message);
                return;
            }
            this.with_callback(|callback| {
                Callback::received(callback, message, Source::One);
            });
            return;
        }
        let unanswered = message.count();
        let overrun = this.allowance.lock().arrived(unanswered).is_err();
        if overrun && this.put_up(message.endpoint()).is_err() {
            this.cut_off(&message);
            return;
        }
        this.inbox.put_message(&this.xprt, message, None);
    }

    /// Ends the connection for a message that should not have been sent: RFC 8166 section 3.3.1 allows it. What the peer
    /// took too much of may be others'.
    fn cut_off(&self, message: &Received<Self>) {
        let bytes = message.bytes();
        self.stats.refused(
            call::xid_of(bytes),
            Answer::Close,
            Why::NoCredit,
            bytes.len(),
        );
        self.close();
    }
}

impl ConnectionEvents for Connection {
    fn lost(&self) {
        self.xprt.close();
        self.wake();
    }

    fn established(&self) {
        // See `has_room` for the barrier: a Call may just have come.
        self.established.xchg(true, Full);
        self.xprt.enqueue();
        if self.channel.is_none() {
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
    type Pull = Pulling<Connection>;
    type Push = Pages;

    fn received(this: &Arc<Self>, message: Received<Self>) {
        count(Counter::Receives, 1);
        match &this.channel {
            Some(channel) => two::received(this, channel, message),
            None => Self::received_one(this, message),
        }
    }

    fn pulled(this: &Arc<Self>, pull: Pulling<Connection>, done: bool) {
        this.stats.reads_done(pull.xid(), done);
        if done {
            this.inbox.put_call(&this.xprt, pull);
        }
    }

    fn fenced(this: &Arc<Self>, tag: u32, done: bool) {
        this.with_callback(|callback| Callback::fenced(callback, tag, done));
        // The Reply that was kept for it has given its Receive back.
        this.act();
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
        let starved = || self.starved.load(Relaxed) && !self.inbox.has_pulled();
        // What was put off has all that it needs, and the others may wait for its Send buffer. When SUNRPC finds nothing any
        // more it takes the flag away, and calls `recvfrom` once, whether there is room or not.
        let spare = || self.xprt.has_deferred() || !self.backlog.is_busy() && !starved();
        // Before the connection is up nothing can be sent.
        let may = || self.established.load(Relaxed) && spare();
        if may() {
            return true;
        }
        // SUNRPC may just have ended its work on the transport, or a message has just come. Either whoever makes room sees
        // that, or we see here what he did: he has a barrier too.
        smp_mb(barrier::Full);
        may()
    }

    fn recvfrom(this: &Arc<Self>, mut rqst: CallRqst<'_, Self>) -> usize {
        let work = this
            .inbox
            .next(&this.xprt, |endpoint| this.reserve(endpoint));
        let result = match work {
            None => Ok(0),
            Some(Work::Pulled(call)) if call.is_sound() => {
                rqst.let_next_in();
                call.deliver(rqst)
            }
            Some(Work::Pulled(call)) => {
                rqst.let_next_in();
                let (message, buffer) = call.give_up();
                this.refuse(message, buffer, &Refusal::Chunks(Why::OtherCall))
                    .map(|()| 0)
            }
            Some(Work::Arrived(arrived, buffer)) => this.take_in(arrived, buffer, rqst),
        };
        Self::watch_what_waits(this);
        result.unwrap_or_else(|_| {
            this.xprt.close();
            0
        })
    }

    fn sendto(this: &Arc<Self>, rqst: ReplyRqst<'_, Self>) -> Result {
        let xid = rqst.context().xid();
        let result = this.send(rqst);
        Self::watch_what_waits(this);
        if let Err(error) = result {
            this.stats.reply_failed(xid, error);
            this.xprt.close();
        }
        result
    }

    fn given_up(this: &Arc<Self>) {
        // In Version One nobody waits for what has come back: `resources_back` tells of the Send buffer, and the client
        // counts its Call as not answered for ever.
        if this.channel.is_some() {
            this.retry();
        }
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
        // No message comes any more that would have it looked at again.
        DelayedWork::<Self>::cancel_sync(this);
        this.end_callback();
        this.inbox.empty();
    }
}
