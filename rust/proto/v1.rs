// SPDX-License-Identifier: GPL-2.0

//! The numbers of Version One (RFC 8166, section 4).
//!
//! Every message starts with four words that have the same meaning in all versions, the [`Prefix`].
//! In Version One either an error or the chunk lists follow. The RPC message comes behind the chunk
//! lists, unless a chunk holds it. See [`message`](super::message) for the headers.

#[cfg(any(test, rpcrdma_kunit))]
mod decode;
#[cfg(any(test, rpcrdma_kunit))]
mod encode;
#[cfg(any(test, rpcrdma_kunit))]
mod refusal;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

// This is a library. Which of these names are in use depends on the roles built on top of it.
#[allow(unused_imports)]
pub(crate) use super::message::{
    DecodeError,
    Direction,
    ErrorHeader,
    Prefix,
    RdmaError, //
};

/// The version number.
pub(crate) const VERSION: u32 = 1;

/// The size in octets of the smallest header with chunk lists: all three are marked "not present".
pub(crate) const MIN_HEADER_LEN: usize = 28;

/// The inline threshold in octets that every peer supports in both directions (RFC 8166, 3.3.3).
pub(crate) const MIN_INLINE: u32 = 1024;

/// The procedure numbers (RFC 8166, 4.2.4).
pub(crate) mod procedure {
    /// The chunk lists and an RPC message follow.
    pub(crate) const MSG: u32 = 0;
    /// The chunk lists follow, and a chunk holds the RPC message.
    pub(crate) const NOMSG: u32 = 1;
    /// The obsolete RDMA_MSGP.
    pub(crate) const MSGP: u32 = 2;
    /// The obsolete RDMA_DONE.
    pub(crate) const DONE: u32 = 3;
}
