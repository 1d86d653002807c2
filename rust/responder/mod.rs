// SPDX-License-Identifier: GPL-2.0

//! The Responder: Calls in, Replies out. It does not know whether it is on a server or on a client.
//!
//! # Who owns what, and what ends it
//!
//! A Call is one [`Call`] from its Receive to its Reply: at first in a queue of the transport, then
//! with the thread that decodes it. If it has a Read list, its pages are filled by RDMA Reads:
//! meanwhile it belongs to a [`Pulling`], which belongs to the endpoint, and no thread waits. Then
//! it is in the transport's queue again, and the next thread delivers it. From then on it is the
//! context of the RPC, and goes when SUNRPC releases it. The message stays in its Receive buffer
//! all the time, since the Reply needs the chunk lists of the header. What a Reply's RDMA Writes
//! are made from goes with the Send, see [`crate::endpoint`].

pub(crate) mod call;
pub(crate) mod post;
pub(crate) mod reply;
pub(crate) mod stats;
