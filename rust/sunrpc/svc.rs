// SPDX-License-Identifier: GPL-2.0

//! SUNRPC, safely: what a server transport needs of it.
//!
//! C headers: [`include/linux/sunrpc/svc_xprt.h`](srctree/include/linux/sunrpc/svc_xprt.h),
//! [`include/linux/sunrpc/svc.h`](srctree/include/linux/sunrpc/svc.h)
//!
//! # Objects, their owners, and what ends them
//!
//! | object | memory | who owns it | what ends it |
//! |---|---|---|---|
//! | `svc_xprt` | [`SvcXprt`], a field of a transport | SUNRPC, by `kref`: the service's list, a thread that works on it, whoever has queued it | `xpo_free`, when the count is zero |
//! | the transport | `Arc<T>` | its `svc_xprt` has one reference, given back at the end of `xpo_free`; its connection's handlers | the last reference |
//! | the module | - | each transport: a reference that SUNRPC takes before `xpo_create` and `xpo_accept` | SUNRPC gives it back, after `xpo_free` has returned |
//! | pages of a Call ([`Pages`]) | pages | the `svc_rqst`, or who has taken them out of it | given to another `svc_rqst`, or dropped |
//! | context of a Call (`C`) | `KBox<C>` | the `svc_rqst` (or SUNRPC's copy of a deferred one) | `xpo_release_ctxt` |
//!
//! A transport that fails before SUNRPC knows it has taken no module reference of its own, but its `svc_xprt`
//! gives one back when it goes: so it takes one first.
//!
//! # Which lock
//!
//! `XPT_BUSY` is a lock: who has it (the thread that has dequeued the transport) may call `recvfrom` and
//! `accept`, until [`SvcXprt::received`]. `sendto` runs without it, in as many threads as there are Calls.
//! [`SvcXprt`] has a spinlock of its own, `alive`: after `xpo_free` has begun, SUNRPC must not be told of the
//! transport any more, and handlers of its connection may still be running then.

pub(crate) mod counters;
mod ops;
mod pages;
mod rqst;
mod xprt;

pub(super) use self::ops::{
    connection,
    is_dead, //
};
pub(crate) use self::{
    ops::{
        CallContext,
        ListenTransport,
        Registration,
        ServerTransport, //
    },
    pages::Pages,
    rqst::{
        CallRqst,
        ReplyRqst, //
    },
    xprt::{
        Server, //
        SvcXprt,
    },
};
