// SPDX-License-Identifier: GPL-2.0

//! One end of an RDMA connection: its QP, its buffers, its regions.
//!
//! # Operation
//!
//! Sending: the caller takes a [`SendBuffer`], fills it and posts it, together with the
//! registrations that the message speaks of, as one chain. The buffer comes back with the
//! completion of a signaled Send; only some are signaled.
//!
//! Receiving: an endpoint has Receive buffers of its own, all posted from the start, or shares a
//! pool of them with others, of which it asks for as many as its peer may make use of. A message
//! that arrives is lent out as [`Received`]; when that is dropped, the buffer is posted again, a
//! batch at a time.
//!
//! Regions: [`Endpoint::region`] lends one out of the pool. Whoever drops a [`RegionHandle`] need
//! not care how far it has come: what is still registered is deregistered, which fences it.
//!
//! # Who owns what, and what ends it
//!
//! - The [`CmId`] belongs to the [`Endpoint`], before that to the connecting worker. The CM's own
//!   handler lock protects it. `EndpointOwner::shutdown` destroys it, last of all, because it holds
//!   the device.
//! - The QP belongs to the `CmId`, and keeps its PD, its places in the CQs of the device's pool,
//!   what is posted, and the `Endpoint`. The mutex `objects` protects it; posting goes through the
//!   gates below. `EndpointOwner::shutdown` destroys it, see [`posting`](crate::rdma::posting).
//! - A Send buffer is in the list of free ones, which the spinlock `send` protects, or lent out as
//!   [`SendBuffer`], or posted: then it is the [`SendQueue`](crate::rdma::send_queue::SendQueue)'s.
//! - A Receive buffer is in the list of idle ones, which the spinlock `receive` protects (or in
//!   that of the pool that the `Endpoint` shares with others, see [`receive_pool`]), or posted, or
//!   lent out as [`Received`].
//! - A [`Region`](crate::rdma::region::Region) is in the pool, which a spinlock protects, or held
//!   by exactly one [`RegionHandle`]. `EndpointOwner::shutdown` deregisters it, after every handle
//!   came back.
//!
//! Each queue has a gate: the use of the QP inside the lock of its state. Posting takes the lock
//! and finds it; `shutdown` takes it away, so that nothing is posted behind a drain. `shutdown`
//! waits until no completion handler can run any more before it lets go of anything that one may
//! look at. What outlives `shutdown` (a `Received` still held by somebody) is plain memory.

mod events;
mod gate;
mod level;
mod life;
mod quota;
mod receive;
pub(crate) mod receive_pool;
mod regions;
mod reply;
mod send;
mod transfer;

pub(crate) use events::ConnectionEvents;
pub(crate) use life::EndpointOwner;
pub(crate) use quota::{
    Charge,
    Quota, //
};
pub(crate) use receive::{
    Received,
    RECEIVE_BATCH, //
};
pub(crate) use regions::RegionHandle;
pub(crate) use reply::{
    Cargo,
    Pull, //
};
pub(crate) use send::SendBuffer;
pub(crate) use transfer::{
    Load,
    Transfer, //
};

pub(crate) use crate::rdma::send_queue::PostError;

use crate::{
    endpoint::receive_pool::{
        Membership,
        ReceivePool, //
    },
    kext::{
        delayed_work::{
            new_delayed_work_ext,
            DelayedWork, //
        },
        Completion as Wait, //
    },
    observe::trace,
    rdma::{
        cm::{
            CmId,
            Context, //
        },
        completion::Completion,
        device::DeviceName,
        send_queue::postings, //
    }, //
};
use gate::SendGate;
use kernel::{
    prelude::*,
    sync::{
        atomic::Atomic,
        new_condvar,
        new_mutex,
        new_spinlock,
        Arc,
        CondVar,
        Mutex,
        SpinLock, //
    }, //
};
use life::Objects;
use receive::ReceiveGate;
use regions::Pool;

/// Told what happens on an endpoint. All run in process context, in the RDMA core's completion
/// workqueue; those of one kind never at the same time for one endpoint.
pub(crate) trait EndpointEvents: ConnectionEvents + Sized {
    /// The purpose of RDMA Reads; it keeps the memory that they fill.
    type Pull: Send + 'static;

    /// The keeper of the memory that RDMA Writes are made from.
    type Push: Send + 'static;

    /// Reads have completed. If not `done`, the connection is lost.
    fn pulled(_this: &Arc<Self>, _pull: Self::Pull, _done: bool) {}

    /// A message has arrived.
    fn received(this: &Arc<Self>, message: Received<Self>);

    /// The fence posted with `tag` has completed. `done` is false if the connection was lost
    /// before: then nothing is known about its regions.
    fn fenced(this: &Arc<Self>, tag: u32, done: bool);

    /// A signaled Send or a fence has completed: there is room in the Send Queue again.
    fn send_room(&self);

    /// A Send buffer came back without having been posted, a [`Transfer`] has ended, or a
    /// [`Charge`] was dropped. May be called with spinlocks held.
    fn resources_back(&self) {}
}

/// The size of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Receive buffers, all of them posted but for one batch. Not used where Receives are shared.
    pub(crate) receives: u32,
    /// Octets of each.
    pub(crate) receive_size: usize,
    /// Send buffers at most.
    pub(crate) sends: u32,
    /// Send buffers to begin with.
    pub(crate) first_sends: u32,
    /// Send buffers that are for messages of the connection's own only; fewer than those to begin
    /// with.
    pub(crate) kept_sends: u32,
    /// Octets of each.
    pub(crate) send_size: usize,
    /// Work requests of the Send Queue.
    pub(crate) send_queue: u32,
    /// Pages that one region holds at most.
    pub(crate) region_depth: u32,
    /// Regions at most.
    pub(crate) regions: u32,
    /// Scatter/gather elements of an RDMA Read or Write at most; 1 if there are none.
    pub(crate) transfer_sges: u32,
    /// Calls at most whose RDMA Reads may be under way at once.
    pub(crate) pulls: u32,
    /// Memory regions at most for RDMA Reads and Writes that are under way, where the device needs
    /// such. They are made when they are needed.
    pub(crate) transfers: u32,
    /// Segments at most of one Call whose chunks are read and written.
    pub(crate) segments: u32,
}

impl Sizes {
    /// Returns the number of buffers, regions and others that are made for the QP at most.
    fn postings(&self) -> u32 {
        [self.receives, self.sends, self.regions]
            .into_iter()
            .fold(postings(self.pulls), u32::saturating_add)
    }
}

/// One end of a connection.
#[pin_data]
pub(crate) struct Endpoint<H: EndpointEvents> {
    /// The Send Queue and the free Send buffers.
    #[pin]
    send: SpinLock<SendGate<H>>,
    /// The Receive Queue and the idle Receive buffers.
    #[pin]
    receive: SpinLock<ReceiveGate<H>>,
    /// The regions that are not lent out, and counts of all.
    #[pin]
    pool: SpinLock<Pool<H>>,
    /// Signaled when the last lent region, or the last transfer, comes home while the end of the
    /// endpoint waits for it.
    #[pin]
    home: CondVar,
    /// The verbs objects, until [`EndpointOwner::shutdown`] takes them.
    #[pin]
    objects: Mutex<Option<Objects<H>>>,
    /// Whose Receives it shares.
    shared: Option<Arc<ReceivePool<H>>>,
    /// The number of them that it has asked for.
    asked: Atomic<u32>,
    /// The number of messages that were counted as Calls, see [`Received::count`].
    calls: Atomic<u32>,
    /// The sizes it was made with.
    sizes: Sizes,
    /// The name of the device.
    device_name: DeviceName,
    /// Deals with what the device has reported about the QP, and with what completion handlers
    /// leave to it. Who has something for it may run anywhere, notes what to do, and schedules
    /// this, which the shutdown cancels when the QP is gone: with no lock held, since this takes
    /// that of the verbs objects.
    #[pin]
    reported: DelayedWork<Self>,
    /// To be told: the QP is broken.
    broken: Atomic<bool>,
    /// Set when the QP was taken to a state in which it may use Receives that are shared.
    receiving: Atomic<bool>,
    /// To be told to the CM: the peer has sent something.
    heard: Atomic<bool>,
    /// Set when the peer was cut off, see [`Endpoint::cut_off`].
    cut: Atomic<bool>,
    /// To be told to the peer, that it was.
    hang_up: Atomic<bool>,
    /// To be made: Receives that were asked for by [`Endpoint::replace_receive`].
    short: Atomic<bool>,
    /// Completed when the device tells that the QP, which is in error, uses no more of the Receives
    /// that it shares.
    #[pin]
    last_receive: Wait,
    /// Whom to tell, and whether the loss of the connection was told already.
    context: Arc<Context<H>>,
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Allocates everything but the verbs objects.
    fn allocate(cm: CmId<H>, sizes: Sizes, membership: Option<Membership<H>>) -> Result<Arc<Self>> {
        let shared = membership.as_ref().map(|member| member.pool().clone());
        let own_receives = if shared.is_some() { 0 } else { sizes.receives };
        let idle = KVVec::with_capacity(usize::try_from(own_receives)?, GFP_KERNEL)?;
        let pool = Pool::new(sizes.regions)?;
        let send = SendGate::new(&sizes)?;
        let receive = ReceiveGate { qp: None, idle };
        let context = cm.context().clone();
        let device_name = cm.device_name();
        let objects = Objects {
            membership,
            pd: None,
            cm,
        };
        Arc::pin_init(
            try_pin_init!(Self {
                send <- new_spinlock!(send, "rpcrdma::Endpoint::send"),
                receive <- new_spinlock!(receive, "rpcrdma::Endpoint::receive"),
                pool <- new_spinlock!(pool, "rpcrdma::Endpoint::pool"),
                home <- new_condvar!("rpcrdma::Endpoint::home"),
                objects <- new_mutex!(Some(objects), "rpcrdma::Endpoint::objects"),
                shared,
                asked: Atomic::new(0),
                calls: Atomic::new(0),
                sizes,
                device_name,
                reported <- new_delayed_work_ext!("rpcrdma_reported"),
                broken: Atomic::new(false),
                receiving: Atomic::new(false),
                heard: Atomic::new(false),
                cut: Atomic::new(false),
                hang_up: Atomic::new(false),
                short: Atomic::new(false),
                last_receive <- Wait::new(),
                context,
            }),
            GFP_KERNEL,
        )
    }

    /// The name of the device, also when that is gone.
    pub(crate) fn device_name(&self) -> &CStr {
        self.device_name.as_c_str()
    }

    /// Returns the number by which trace events name the connection.
    fn number(&self) -> trace::Number {
        self.context.handler().number()
    }

    /// Raises the trace event of a completion without success.
    fn trace_error(&self, completion: Completion<'_>, work: trace::Work) {
        let (status, vendor) = (completion.status(), completion.vendor_err());
        trace::completion_error(self.number(), work, status, vendor);
    }

    /// The sizes it was made with.
    pub(crate) fn sizes(&self) -> &Sizes {
        &self.sizes
    }
}
