// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the kernel's RDMA verbs and of its connection manager.
//!
//! # Who owns what, and what ends it
//!
//! | object | owner | protected by | ends when |
//! |---|---|---|---|
//! | [`CmId`](cm::CmId) | the [`Endpoint`](endpoint::Endpoint) (before: the connecting worker) | the CM's own handler lock | `EndpointOwner::shutdown`, last of all |
//! | QP, CQs, PD | the `Endpoint` | `objects` mutex; posting goes through the gates below | `EndpointOwner::shutdown` |
//! | Send buffers | the `Endpoint`; lent out as [`SendBuffer`](endpoint::SendBuffer) | `send` spinlock | memory with the last reference to the `Endpoint` |
//! | Receive buffers | the `Endpoint`, or the pool that it shares with others (see [`receive_pool`]); the device while posted, then lent out as [`Received`](endpoint::Received) | `receive` spinlock | as above |
//! | memory regions | a [`Region`](region::Region) is in the pool, or held by exactly one [`RegionHandle`](endpoint::RegionHandle) | the handle; the pool's spinlock | `EndpointOwner::shutdown`, after every handle came back |
//!
//! Each queue has a gate: the pointer to the QP inside the lock of its state. Posting takes the lock and finds
//! the pointer; `shutdown` takes the pointer away, so that nothing is posted behind a drain.
//! Completion handlers run only while the CQs exist, and `shutdown` frees those before it lets go of anything
//! that a handler may look at. What outlives `shutdown` (a `Received` still held by somebody) is plain memory.

pub(crate) mod cm;
mod completion;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod endpoint;
mod receive_chain;
pub(crate) mod receive_pool;
pub(crate) mod region;
mod send_queue;
mod work_request;
