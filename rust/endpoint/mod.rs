// SPDX-License-Identifier: GPL-2.0

//! One end of an RDMA connection: its QP, its buffers, its regions.
//!
//! # Operation
//!
//! Sending: the caller takes a [`SendBuffer`], fills it and posts it, together with the
//! registrations that the message speaks of, as one chain. The buffer comes back with the
//! completion of a signaled Send; only some are signaled.
//!
//! Receiving: as many Receives are posted as the peer may make use of; or the endpoint shares a
//! queue of Receives with others, see [`shared_queue`]. A message that arrives is lent out as
//! [`Received`]; when that is dropped, the buffer is posted again, a batch at a time, unless it is
//! not wanted any more.
//!
//! Regions: [`Endpoint::region`] lends one out of the pool. The code that drops a [`RegionHandle`]
//! need not care how far it has come: what is still registered is deregistered, which fences it.
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
//!   that of the queue that the `Endpoint` shares), or posted, or lent out as [`Received`]. One
//!   that is not wanted any more is freed when it comes back (see [`receive_stock`]).
//! - A [`Region`](crate::rdma::region::Region) is in the pool, which a spinlock protects, or held
//!   by exactly one [`RegionHandle`]. `EndpointOwner::shutdown` deregisters it, after every handle
//!   came back.
//!
//! Each queue has a gate: the use of the QP inside the lock of its state. Posting takes the lock
//! and finds it; `shutdown` takes it away, so that nothing is posted behind a drain. `shutdown`
//! waits until no completion handler can run any more before it lets go of anything that one may
//! look at. What outlives `shutdown` (a `Received` still held by somebody) is plain memory.

mod completions;
mod events;
mod gate;
mod inspect;
mod life;
mod objects;
mod parts;
mod quota;
mod receive;
mod receive_gate;
mod receive_stock;
mod region_pool;
mod regions;
mod reply;
mod send;
pub(crate) mod shared_queue;
mod sizes;
mod transfer;

pub(crate) use events::{
    ConnectionEvents,
    EndpointEvents, //
};
pub(crate) use life::EndpointOwner;
pub(crate) use parts::FirstParts;
pub(crate) use quota::{
    pages_in_use,
    receive_memory, //
};
pub(crate) use receive::{
    Received,
    RECEIVE_BATCH, //
};
pub(crate) use receive_stock::REPLACEMENTS;
pub(crate) use regions::{
    FencedRegion,
    RegionHandle, //
};
pub(crate) use reply::{
    pull,
    Pull,
    Reply, //
};
pub(crate) use send::SendBuffer;
pub(crate) use sizes::Sizes;
pub(crate) use transfer::{
    Load,
    Transfers, //
};

pub(crate) use crate::rdma::send_queue::{
    PostError,
    QueueSizes, //
};

use crate::kext::prelude::*;
use crate::{
    endpoint::shared_queue::{
        Membership,
        SharedQueue, //
    },
    kext::{
        completion::Completion as Wait,
        delayed_work::{
            new_delayed_work_ext,
            DelayedWork, //
        }, //
    },
    observe::trace,
    rdma::{
        cm::{
            CmId,
            Context, //
        },
        completion::Completion,
        device::DeviceName, //
    }, //
};
use gate::SendGate;
use kernel::sync::{
    new_condvar,
    CondVar, //
};
use objects::Objects;
use receive_gate::ReceiveGate;
use region_pool::Pool;

/// One end of a connection.
#[pin_data]
pub(crate) struct Endpoint<H: EndpointEvents> {
    /// The Send Queue, what waits for it, and the free Send buffers.
    #[pin]
    send: SpinLock<SendGate<H>>,
    /// The Receive Queue and the idle Receive buffers.
    #[pin]
    receive: SpinLock<ReceiveGate<Self>>,
    /// The regions that are not lent out, and counts of all.
    #[pin]
    pool: SpinLock<Pool<Self>>,
    /// Signaled when the last lent region, or the last transfer, comes home while the end of the
    /// endpoint waits for it.
    #[pin]
    home: CondVar,
    /// The verbs objects, until [`EndpointOwner::shutdown`] takes them.
    #[pin]
    objects: Mutex<Option<Objects<H, Self>>>,
    /// The queue of Receives that it shares, if it does.
    shared: Option<Arc<SharedQueue<Self>>>,
    /// The number of buffers of that which hold its messages.
    held: Atomic<u32>,
    /// The number of messages that were counted as Calls, see [`Received::count`].
    calls: Atomic<u32>,
    /// The sizes it was made with.
    sizes: Sizes,
    /// The name of the device.
    device_name: DeviceName,
    /// Deals with what the device has reported about the QP, and with what completion handlers
    /// leave to it. Code that has something for it may run in any context, notes what to do, and
    /// schedules this, which the shutdown cancels when the QP is gone: with no lock held, since
    /// this takes that of the verbs objects.
    #[pin]
    reported: DelayedWork<Self>,
    /// The number of pages of transfers that only the peer lets end.
    with_peer: Atomic<u64>,
    /// To be told: the QP is broken.
    broken: Atomic<bool>,
    /// Set when the QP was taken to a state in which it may use Receives that are shared.
    receiving: Atomic<bool>,
    /// Completed when the device reports that the QP, which is in error, uses no more of them.
    #[pin]
    last_receive: Wait,
    /// To be told to the CM: the peer has sent something.
    heard: Atomic<bool>,
    /// Set when the peer was cut off, see [`Endpoint::cut_off`].
    cut: Atomic<bool>,
    /// To be told to the peer, that it was.
    hang_up: Atomic<bool>,
    /// To be made: Receives that take the places of those of another size, or are missing.
    short: Atomic<bool>,
    /// The receiver of events, and whether the loss of the connection was told already.
    context: Arc<Context<H>>,
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Allocates everything but the verbs objects.
    fn allocate(
        cm: CmId<H>,
        sizes: Sizes,
        membership: Option<Membership<Self>>,
    ) -> Result<Arc<Self>> {
        let shared = membership
            .as_ref()
            .and_then(|member| member.queue().cloned());
        let pool = Pool::new(sizes.regions)?;
        let send = SendGate::new(&sizes)?;
        let receive = ReceiveGate::new(&sizes, shared.is_some())?;
        let context = cm.context().clone();
        let device_name = cm.device().ok_or(ENODEV)?.name();
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
                held: Atomic::new(0),
                calls: Atomic::new(0),
                sizes,
                device_name,
                reported <- new_delayed_work_ext!("rpcrdma_reported"),
                with_peer: Atomic::new(0),
                broken: Atomic::new(false),
                receiving: Atomic::new(false),
                last_receive <- Wait::new(),
                heard: Atomic::new(false),
                cut: Atomic::new(false),
                hang_up: Atomic::new(false),
                short: Atomic::new(false),
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
