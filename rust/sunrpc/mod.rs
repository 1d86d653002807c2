// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of SUNRPC, for transports of the client and of the server.
//!
//! This page is about the client's side. The server's side is in [`svc`], except for the transport
//! on which a server sends Calls to a client: that is an `rpc_xprt` too, and works as described
//! here.
//!
//! A transport implements [`Transport`] and never sees a C structure. [`ClassRegistration`] makes
//! its class known to SUNRPC, which then calls `setup` for each new transport. From then on SUNRPC
//! calls the functions in the table of `ops`, each of which calls one function of the trait. In the
//! other direction a transport uses its [`XprtHandle`], and objects that stand for a moment in the
//! life of an RPC: [`SendRqst`], [`BcReply`] and [`Pinned`].
//!
//! # Objects, their owners, and what ends them
//!
//! - The `rpc_xprt`, part of a `struct rpcrdma_xprt` from `xprt_alloc`. SUNRPC owns it and counts
//!   references in `kref`: those of its clients, its tasks, and queued reverse-direction Calls.
//!   `destroy` ends it, in a work item, after the last `xprt_put`. If the handle is gone by then,
//!   `destroy` frees the memory, after an RCU grace period.
//! - The transport, an `Arc<T>`. Its `rpc_xprt` owns a reference (field `state`); works and
//!   callbacks of `T` own others for a time. The last reference ends it, and `T::destroy` must
//!   leave that one to its caller.
//! - The [`XprtHandle`], a field of `T`. It is dropped with `T`; from then on the `rpc_xprt` may be
//!   freed.
//! - The module. Each `rpc_xprt` has a reference to it from `setup` on, and gives it back as the
//!   very last thing that `destroy` does, in C.
//! - A [`Slot`], an `Arc<Slot>`. `T` owns it, and so does SUNRPC while it is lent. The last
//!   reference ends it.
//! - The buffers of a slot, from `kmalloc`. They belong to the task that has the slot, from
//!   `buf_alloc` to `buf_free`. They are freed when they grow and when the slot is dropped.
//! - The pages of a message. The upper layer owns them. The task uses them until its RPC is
//!   completed or `buf_free` returns.
//! - A lease of both ([`CallLease`]). A region has it as long as a device may reach the memory. The
//!   RPC is not completed, and `buf_free` does not return, before the last one is gone.
//! - A pin ([`Pinned`]), a flag of the slot. It belongs to the thread that takes the Reply in,
//!   until [`Pinned::complete`], [`Pinned::fail`], or drop.
//!
//! # Callers and locks
//!
//! Two things order everything. The *send lock* is the bit `XPRT_LOCKED` of the transport's state.
//! It is held by the task that sends or connects, by the worker that closes, or, after
//! [`XprtHandle::lock_connect`], by the transport's own worker. Its holder may sleep. The spinlocks
//! are `transport_lock` (send lock, congestion window, statistics of Sends), `queue_lock` (the
//! queues of Calls to send and of RPCs that wait for Replies) and `reserve_lock` (XIDs); each
//! `rpc_wait_queue` has a lock of its own, which is taken inside these. None of them disables
//! interrupts, so all of this belongs into process context.
//!
//! The functions of [`Transport`], their callers, and what the callers hold:
//!
//! - `alloc_slot`: the task's own thread, at the start of an RPC. Nothing is held.
//! - `free_slot`, `buf_free`: the task's own thread, in `xprt_release`. Nothing is held.
//! - `grown`: the task's own thread, just before its message is encoded (`buf_alloc`). Nothing is
//!   held.
//! - `send_request`, `send_bc_reply`: `xprt_transmit`, for each queued request, in the task that
//!   has the send lock. The send lock is held, and the request is pinned.
//! - `connect`: the task that found the transport unconnected. It holds the send lock, and hands it
//!   to a worker.
//! - `close`: the `task_cleanup` work, after [`XprtHandle::force_disconnect`], idleness or an
//!   administrator's command. The send lock is held. For a [`CallbackTransport`] it is also called
//!   by the thread that ends the server's transport, which does not hold the send lock.
//! - `timer`: the task whose RPC has timed out, after it was woken. Nothing is held.
//! - `inject_disconnect`: `xprt_transmit`, in tests. The send lock is held.
//! - `print_stats`: a reader of mountstats, which holds RCU or a reference to the client. It must
//!   not sleep.
//! - `bc_setup`, `bc_maxpayload`, `bc_num_slots`: NFS, when a session is made. Nothing is held.
//! - `bc_free_rqst`: the service's thread or the Reply's task, in `xprt_release`; without a
//!   service, `xprt_enqueue_bc_request`. Nothing is held.
//! - `bc_destroy`: NFS, when the service ends, and again before `destroy`. Nothing is held.
//! - `destroy`: a work item. `XPRT_LOCKED` is taken for good, and no task is left.
//!
//! The operation `release_request` is called with `transport_lock` held. It is handled entirely in
//! `ops`.
//!
//! # Calls, credits and connections
//!
//! A task takes a credit ([`SendRqst::get_congestion`]) when it first sends, and SUNRPC gives it
//! back when the task releases its request. The window is what the peer granted
//! ([`XprtHandle::set_credits`]). A task that gets no credit waits until another task releases one.
//! A new connection starts with one credit ([`XprtHandle::reset_congestion`]). A Call that is sent
//! again has to take a credit like any other.
//!
//! `connect_cookie` tells connections apart. SUNRPC notes it with each Call sent, and sends a Call
//! again if the cookie has changed or the transport is not connected.
//! [`SendRqst::sent_on_this_connection`] catches Calls that SUNRPC would send again on the same
//! connection.
//!
//! # Replies
//!
//! The receive queue has every RPC from before it is first sent (`call_encode`) until it is
//! completed or its task gives it up. [`XprtHandle::lookup_and_pin`] finds it there, under
//! `queue_lock`. From then on, a task that wants to end or to encode anew waits in
//! `xprt_request_dequeue_xprt`. `xprt_complete_rqst` takes the RPC out of the queue and wakes its
//! task. The pin is taken away under the same lock, and only then can the task release anything.

mod address;
mod backchannel;
mod buffer;
mod call_memory;
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

pub(crate) use self::{
    address::AddressText,
    backchannel::enqueue_bc_call,
    call_memory::{
        CallLease,
        CallMemory, //
    },
    class::ClassRegistration,
    fragments::Parts,
    handle::XprtHandle,
    pinned::Pinned,
    send::{
        BcReply,
        KeptMessage,
        SendError,
        SendRqst, //
    },
    servers::RememberedServer,
    slot::Slot,
    task::RpcTask,
    transport::{
        CallbackTransport,
        ConnectingTransport,
        Transport, //
    },
    tunables::Tunables,
    xdr_buf::XdrBuf, //
};
