// SPDX-License-Identifier: GPL-2.0

//! The client face: what SUNRPC sees as an `rpc_xprt` of class "rdma".
//!
//! # Who owns what, and what ends it
//!
//! - A [`Client`] is owned by its `rpc_xprt`. Its Requester, its reverse-direction slots and its
//!   workers live as long.
//! - A connection is made by the connecting worker, while SUNRPC's send lock is held for it
//!   (`xprt_lock_connect`), and ended by [`Client::disconnect`], whose callers hold that lock too
//!   or are the last to know the transport. So there is one connection at the most, and nobody is
//!   sending on it when it ends.
//! - The server's Calls are answered by the Responder, see [`backchannel`].
//! - Endpoint, CM id and slots refer to the [`Client`] while a connection lives. `disconnect` drops
//!   all of these references, and `destroy` begins with it; so the transport's own reference is the
//!   last.

mod backchannel;
mod connect;
mod connecting;
mod errors;
mod inspect;
mod mountstats;
mod reverse_slots;
mod transport;

pub(crate) use transport::Client;

use crate::endpoint::ConnectionEvents;
use crate::endpoint::{
    EndpointEvents,
    Pull,
    Received, //
};
use crate::kext::debugfs::Directory;
use crate::kext::delayed_work::{
    new_delayed_work_ext,
    DelayedWork,
    DelayedWorkItem, //
};
use crate::kext::prelude::*;
use crate::kext::waiting::Waiting;
use crate::link::assembly::Whole;
use crate::link::channel::CHECK_INTERVAL;
use crate::link::sizing::{
    MAX_PAYLOAD,
    REVERSE_CREDITS, //
};
use crate::observe::trace;
use crate::proto::message::Version;
use crate::proto::v1::DecodeError;
use crate::requester::call::Call;
use crate::requester::{
    self,
    Host,
    Requester, //
};
use crate::responder::call::Pulling;
use crate::responder::stats::Stats;
use crate::sunrpc::svc::Pages;
use crate::sunrpc::{
    self,
    AddressText,
    BcReply,
    CallLease,
    ConnectingTransport,
    RpcTask,
    SendError,
    SendRqst,
    Slot,
    Transport,
    XprtHandle, //
};
use connecting::Connecting;
use kernel::seq_file::SeqFile;
use reverse_slots::ReverseSlots;
use transport::{
    ABANDON_WORK,
    CHECK_WORK,
    CONNECT_WORK,
    IDLE_WORK,
    PAUSE_WORK,
    REGION_WORK, //
};

/// Octets of a slot's buffers to begin with: twice the smallest inline threshold, so that most RPCs
/// fit.
const SLOT_BUFFER: usize = 2048;

impl DelayedWorkItem<CONNECT_WORK> for Client {
    fn run(this: Arc<Self>) {
        connect::work(&this);
    }
}

impl DelayedWorkItem<REGION_WORK> for Client {
    fn run(this: Arc<Self>) {
        connect::add_regions(&this);
    }
}

impl DelayedWorkItem<CHECK_WORK> for Client {
    fn run(this: Arc<Self>) {
        Self::check(&this);
    }
}

impl DelayedWorkItem<IDLE_WORK> for Client {
    fn run(this: Arc<Self>) {
        Self::check(&this);
    }
}

impl DelayedWorkItem<ABANDON_WORK> for Client {
    fn run(this: Arc<Self>) {
        connect::look_whether_abandoned(&this);
    }
}

impl DelayedWorkItem<PAUSE_WORK> for Client {
    fn run(this: Arc<Self>) {
        connect::look_whether_paused(&this);
    }
}

impl Host for Client {
    type Wire = Self;

    fn requester(&self) -> &Requester<Self> {
        &self.requester
    }

    fn wire(&self) -> &Self {
        self
    }

    fn want_regions(this: &Arc<Self>) {
        DelayedWork::<Self, REGION_WORK>::schedule(this, 0);
    }

    fn reverse_call(
        this: &Arc<Self>,
        message: Received<Self>,
        version: Version,
        whole: Option<Whole>,
    ) {
        backchannel::received(this, message, version, whole);
    }

    fn reverse_error(this: &Arc<Self>, message: &Received<Self>, error: &DecodeError) {
        backchannel::refuse(this, message, error);
    }

    fn watch(this: &Arc<Self>) {
        DelayedWork::<Self, CHECK_WORK>::schedule(this, CHECK_INTERVAL);
    }

    fn disconnect(this: &Arc<Self>) {
        Self::close_link(this, trace::End::Failed);
    }
}

impl ConnectionEvents for Client {
    fn lost(&self) {
        self.connecting.interrupt();
        self.xprt.force_disconnect();
    }

    fn number(&self) -> trace::Number {
        trace::Number::Client(self.xprt.number())
    }
}

impl EndpointEvents for Client {
    type Lease = CallLease;
    // Of Calls in the reverse direction.
    type Pull = Pulling<Client>;
    type Push = Pages;

    fn received(this: &Arc<Self>, message: Received<Self>) {
        requester::reply::received(this, message);
    }

    fn pulled(this: &Arc<Self>, pull: KBox<Pull<Client>>) {
        backchannel::pulled(this, Pull::<Self>::end(pull));
        // What was read may have been refused, and its Receive is back.
        this.act();
    }

    fn fenced(this: &Arc<Self>, tag: u32, done: bool) {
        requester::reply::fenced(this, tag, done);
        // The Reply that was kept for it has given its Receive back.
        this.act();
    }

    // There is nothing to be done when a Send buffer comes back unposted: nobody waits for one, see
    // the test in `link/sizing.rs`. A Receive comes back in a handler, or with a slot of the
    // reverse direction, and the session is asked each time.

    fn send_room(&self) {
        self.requester.stats.completions.count();
        self.xprt.wake();
        self.act();
    }
}

impl Transport for Client {
    type Call = Call<Client>;
    const MAX_PAYLOAD: usize = MAX_PAYLOAD + kernel::page::PAGE_SIZE;

    fn xprt(&self) -> &XprtHandle {
        &self.xprt
    }

    fn alloc_slot(this: &Arc<Self>) -> Option<Arc<Slot<Self::Call>>> {
        this.requester.take_slot()
    }

    fn free_slot(this: &Arc<Self>, slot: Arc<Slot<Self::Call>>) {
        this.requester.put_slot(slot);
    }

    fn grown(&self, bytes: usize) {
        self.requester.stats.hardway_bytes.add_value(bytes as u64);
    }

    fn buf_free(this: &Arc<Self>, slot: &Arc<Slot<Self::Call>>) {
        slot.call.abandon(this);
        // Somebody may have waited for its regions.
        this.xprt.wake();
    }

    fn send_request(this: &Arc<Self>, rqst: SendRqst<'_, Self>) -> Result<(), SendError> {
        requester::send::call(this, &rqst).map(|_| ())
    }

    fn send_bc_reply(this: &Arc<Self>, rqst: BcReply<'_, Self::Call>) -> Result<(), SendError> {
        backchannel::reply(this, &rqst)
    }

    fn connect(this: &Arc<Self>, task: &RpcTask) {
        connect::schedule(this, task);
    }

    fn close(this: &Arc<Self>) {
        Self::close_link(this, trace::End::Closed);
    }

    fn timer(this: &Arc<Self>) {
        // There is no keep-alive: to connect anew is the way to learn whether the peer is there,
        // and to have what is pending sent again.
        this.xprt.force_disconnect();
    }

    fn inject_disconnect(this: &Arc<Self>) {
        this.xprt.force_disconnect();
    }

    fn local_address(&self) -> Option<AddressText> {
        Some(*self.requester.link()?.channel().local())
    }

    fn print_stats(&self, m: &SeqFile) {
        mountstats::print(self, m);
    }

    fn bc_setup(this: &Arc<Self>, _requests: u32) -> Result {
        this.reverse.fill(this)?;
        this.tell_wishes();
        Ok(())
    }

    fn bc_maxpayload(&self) -> usize {
        backchannel::max_payload(self)
    }

    fn bc_num_slots(&self) -> u32 {
        REVERSE_CREDITS
    }

    fn bc_free_rqst(this: &Arc<Self>, slot: Arc<Slot<Self::Call>>) {
        this.reverse.put(slot);
        // The Call's Receive may have come back with it.
        this.act();
    }

    fn bc_destroy(this: &Arc<Self>) {
        this.reverse.clear();
        this.tell_wishes();
    }

    fn destroy(this: &Arc<Self>) {
        // Waits for readers, which take locks of ours.
        let directory = this.directory.lock().take();
        drop(directory);
        this.connecting.abort();
        DelayedWork::<Self, CONNECT_WORK>::cancel_sync(this);
        DelayedWork::<Self, ABANDON_WORK>::cancel_sync(this);
        DelayedWork::<Self, PAUSE_WORK>::cancel_sync(this);
        this.disconnect_link(trace::End::Destroyed);
        DelayedWork::<Self, REGION_WORK>::cancel_sync(this);
        DelayedWork::<Self, CHECK_WORK>::cancel_sync(this);
        DelayedWork::<Self, IDLE_WORK>::cancel_sync(this);
        this.reverse.clear();
    }
}

impl ConnectingTransport for Client {
    fn setup(xprt: XprtHandle) -> Result<Arc<Self>> {
        let slots = xprt.max_reqs();
        let number = trace::Number::Client(xprt.number());
        let responder = Arc::new(Stats::new(number), GFP_KERNEL)?;
        let this = Arc::pin_init(
            try_pin_init!(Self {
                requester <- Requester::new(slots, SLOT_BUFFER),
                reverse <- ReverseSlots::new(),
                responder,
                owner <- new_mutex!(None, "rpcrdma::Client::owner"),
                connecting <- Connecting::new(),
                connect_work <- new_delayed_work_ext!("rpcrdma_connect"),
                region_work <- new_delayed_work_ext!("rpcrdma_regions"),
                check_work <- new_delayed_work_ext!("rpcrdma_check"),
                idle_work <- new_delayed_work_ext!("rpcrdma_idle", deferrable),
                abandon_work <- new_delayed_work_ext!("rpcrdma_abandon"),
                pause_work <- new_delayed_work_ext!("rpcrdma_pause"),
                directory <- new_mutex!(None, "rpcrdma::Client::directory"),
                xprt,
            }? Error),
            GFP_KERNEL,
        )?;
        // Without memory for it, the transport does without.
        let directory = Directory::new(this.number(), this.clone()).ok();
        *this.directory.lock() = directory;
        Ok(this)
    }
}

/// Registers the client's transport class; dropping it takes it back.
pub(crate) type Registration = sunrpc::ClassRegistration<Client>;
