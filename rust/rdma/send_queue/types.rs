// SPDX-License-Identifier: GPL-2.0

//! The types of what is given to a Send Queue, and comes back.

use super::owner::SendQueueOwner;
use crate::rdma::rw::ReadWrites;
use kernel::prelude::*;

/// A work request could not be posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PostError {
    /// The Send Queue is closed.
    Closed,
    /// The Send Queue is full. There will be room after a completion.
    Full,
    /// The device refused. The connection must end: part of the chain may have been taken. Nothing
    /// is posted to the queue any more.
    Refused,
}

/// The size of a Send Queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueSizes {
    /// Its work requests.
    pub(crate) depth: u32,
    /// Those of them that are kept for messages of the session's own and for Calls, so that Replies
    /// and Reads do not use them.
    pub(crate) kept: u32,
    /// The most for Reads.
    pub(crate) reads: u32,
}

/// The Reads of the owner of a Send Queue.
pub(crate) type ReadsOf<O> =
    KBox<ReadWrites<<O as SendQueueOwner>::Held, <O as SendQueueOwner>::Reading>>;

/// The Writes of the owner of a Send Queue.
pub(crate) type WritesOf<O> =
    ReadWrites<<O as SendQueueOwner>::Held, <O as SendQueueOwner>::Writing>;

/// The options of a Send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    /// The length of the message.
    pub(crate) len: usize,
    /// The R_key of the peer's that the Send invalidates.
    pub(crate) invalidate: Option<u32>,
    /// Set if it is signaled in any case.
    pub(crate) signal: bool,
}
