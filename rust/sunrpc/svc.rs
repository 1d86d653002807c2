// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of SUNRPC, for transports of the server.
//!
//! C headers: [`include/linux/sunrpc/svc_xprt.h`](srctree/include/linux/sunrpc/svc_xprt.h),
//! [`include/linux/sunrpc/svc.h`](srctree/include/linux/sunrpc/svc.h)
//!
//! # Objects, their owners, and what ends them
//!
//! - The `svc_xprt`, in a [`SvcXprt`], which is a field of a transport. SUNRPC owns it and counts
//!   references in a `kref`: those of the service's list, of a thread that works on it, and of
//!   other code in SUNRPC for as long as it uses the object. `xpo_free` ends it, when the count is
//!   zero.
//! - The transport, an `Arc<T>`. Its `svc_xprt` has one reference, given back at the end of
//!   `xpo_free`; the handlers of its connection have others. The last reference ends it.
//! - The module. SUNRPC takes a reference for each transport, before `xpo_create` and `xpo_accept`,
//!   and gives it back after `xpo_free` has returned.
//! - The pages of a Call ([`Pages`]). They belong to the `svc_rqst`, or to the code that has taken
//!   them out of it, until they are given to another `svc_rqst` or dropped.
//! - The context of a Call (`C`), a `KBox<C>`. The `svc_rqst` owns it, or SUNRPC's copy of a
//!   deferred one. `xpo_release_ctxt` ends it.
//!
//! A transport that fails before SUNRPC knows it has no module reference of its own, but its
//! `svc_xprt` gives one back when it goes. So such a transport takes one first.
//!
//! # Locks
//!
//! `XPT_BUSY` is a lock. Its holder (the thread that has dequeued the transport) may call
//! `recvfrom` and `accept`, until [`SvcXprt::received`]. `sendto` runs without it, in as many
//! threads as there are Calls. [`SvcXprt`] has a spinlock of its own, `alive`: after `xpo_free` has
//! begun, SUNRPC must not be told of the transport any more, but handlers of its connection may
//! still be running.

mod class;
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
    class::ServerClassRegistration,
    ops::{
        CallContext,
        ListenTransport,
        ServerTransport, //
    },
    pages::{
        FreshPages,
        Pages, //
    },
    rqst::{
        CallRqst,
        ReplyRqst, //
    },
    xprt::{
        Server,
        SvcXprt, //
        MOST_NEWCOMERS,
    }, //
};
