// SPDX-License-Identifier: GPL-2.0

//! SUNRPC, safely: what a client transport needs of it.
//!
//! A transport implements [`Transport`] and never sees a C structure. [`Registration`] makes its class
//! known, SUNRPC has its `setup` called for each new transport, and from then on calls the functions
//! in the table of `ops`, each of which calls one function of the trait. The other way round a transport
//! uses its [`XprtHandle`], and the objects that stand for a moment in the life of an RPC:
//! [`SendRqst`], [`BcReply`] and [`Pinned`].
//!
//! # Objects, their owners, and what ends them
//!
//! | object | memory | who owns it | what ends it |
//! |---|---|---|---|
//! | `rpc_xprt` | `struct rpcrdma_xprt`, from `xprt_alloc` | SUNRPC, by `kref`: its clients, its tasks, queued reverse-direction Calls | `destroy`, from a work item, after the last `xprt_put`; freed there if the handle is gone, after a grace period of RCU |
//! | the transport (`T`) | `Arc<T>` | its `rpc_xprt` (field `state`); works and callbacks of `T` for a time | the last reference, which `T::destroy` must leave to its caller |
//! | [`XprtHandle`] | in `T` | `T` | dropped with `T`; that permits to free the `rpc_xprt` |
//! | the module | - | each `rpc_xprt`, from `setup` on | the very last thing that `destroy` does, in C |
//! | [`Slot`] | `Arc<Slot>` | `T`, and SUNRPC while it is lent | the last reference |
//! | its buffers | `kmalloc`, in the slot | the task that has the slot, from `buf_alloc` to `buf_free`; no device may reach them after `buf_free` | grown or dropped with the slot |
//! | pages of a message | the upper layer | the task, until its RPC is completed or `buf_free` returns | the upper layer |
//! | a pin ([`Pinned`]) | in the slot | who takes the Reply in | [`Pinned::complete`], [`Pinned::fail`], or dropped |
//!
//! # Who calls what, and under which lock
//!
//! Two things order everything. The *send lock* is the bit `XPRT_LOCKED` of the transport's state: held by the
//! task that sends or connects, by the worker that closes, or, after [`XprtHandle::lock_connect`], by the
//! transport's own worker. It is held over sleeps. The spinlocks are `transport_lock` (send lock,
//! congestion window, statistics of Sends), `queue_lock` (the queues of Calls to send and of RPCs that wait for
//! Replies) and `reserve_lock` (XIDs); inside them `rpc_wait_queue`s have locks of their own. None of them
//! disables interrupts, so all of this belongs into process context.
//!
//! | function | called by | held |
//! |---|---|---|
//! | `alloc_slot` | the task's own thread, at the start of an RPC | - |
//! | `free_slot`, `buf_free` | the task's own thread, in `xprt_release` | - |
//! | `grown` | the task's own thread, when its message is about to be encoded (`buf_alloc`) | - |
//! | `send_request`, `send_bc_reply` | `xprt_transmit` in whatever task has the send lock, for each queued request | send lock; the request is pinned |
//! | `connect` | the task that found the transport unconnected | send lock, to be handed to a worker |
//! | `close` | the `task_cleanup` work, after [`XprtHandle::force_disconnect`], idleness or an administrator's command | send lock |
//! | `close` of a [`CallbackTransport`] | also the thread that ends the server's transport | - |
//! | `timer` | the task whose RPC has timed out | - |
//! | `inject_disconnect` | `xprt_transmit`, in tests | send lock |
//! | `print_stats` | a reader of mountstats | RCU or a reference to the client; must not sleep |
//! | `bc_setup`, `bc_maxpayload`, `bc_num_slots` | NFS, when a session is made | - |
//! | `bc_free_rqst` | the service's thread or the Reply's task, in `xprt_release`; `xprt_enqueue_bc_request` if there is no service | - |
//! | `bc_destroy` | NFS when the service ends; once more before `destroy` | - |
//! | `destroy` | a work item; `XPRT_LOCKED` is taken for good, no task is left | - |
//!
//! The operation `release_request` is called with `transport_lock` held, and is wholly inside `ops`.
//!
//! # Calls, credits and connections
//!
//! A task takes a credit ([`SendRqst::get_congestion`]) when it first sends, and SUNRPC gives it back when the task
//! releases its request; the window is what the peer granted ([`XprtHandle::set_credits`]). A task that gets
//! none waits until somebody releases one. A new connection starts with one credit
//! ([`XprtHandle::reset_congestion`]), and what is sent again has to take it like everything else.
//!
//! `connect_cookie` tells connections apart. SUNRPC notes it with each Call sent, and sends a Call again when the
//! cookie has changed or nothing is connected. [`SendRqst::sent_on_this_connection`] catches what SUNRPC would send
//! again on the same connection.
//!
//! # Replies
//!
//! The receive queue has every RPC from before it is first sent (`call_encode`) until it is completed or its
//! task gives it up. [`XprtHandle::lookup_and_pin`] finds it there, under `queue_lock`; from then on the task
//! waits in `xprt_request_dequeue_xprt` should it want to end or to encode anew. `xprt_complete_rqst` takes it
//! out of the queue and wakes its task, the pin is taken away under the same lock, and only then can the task
//! release anything.

mod address;
mod backchannel;
mod buffer;
mod class;
mod deliver;
mod fragments;
mod handle;
mod ops;
mod pinned;
mod send;
mod servers;
mod slot;
pub(crate) mod svc;
mod task;
#[cfg(rpcrdma_kunit)]
mod testing;
mod transport;
pub(crate) mod tunables;
mod xdr_buf;

#[allow(unused_imports)]
pub(crate) use self::{
    address::{
        AddressText,
        Net,
        SockAddr, //
    },
    backchannel::enqueue_bc_call,
    class::Registration,
    fragments::{
        Fragments,
        Parts, //
    },
    handle::{
        XprtHandle,
        XprtStats, //
    },
    pinned::Pinned,
    send::{
        BcReply,
        KeptMessage,
        SendRqst, //
    },
    servers::Server,
    slot::Slot,
    task::RpcTask,
    transport::{
        CallbackTransport,
        ConnectingTransport,
        SendError,
        Transport, //
    },
    tunables::Tunables,
    xdr_buf::XdrBuf, //
};
