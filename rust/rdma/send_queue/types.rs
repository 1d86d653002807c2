// SPDX-License-Identifier: GPL-2.0

//! The types of that which is given to a Send Queue, and comes back.

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
    /// The device refused. The connection must end: part of the chain may have been taken.
    Refused,
}

/// A Send that has completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// Its place in the Send Queue.
    pub(crate) place: u64,
    /// What trace events call it: its place, or what its chain was called when it was begun.
    pub(crate) name: u64,
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
