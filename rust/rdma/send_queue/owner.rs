// SPDX-License-Identifier: GPL-2.0

//! The owner of a Send Queue, and what it gives to it.

use super::{
    memory::Sent,
    read_slot::ReadsDone, //
};
use crate::rdma::{
    completion::Completion,
    region::RegionOwner,
    rw::ReadWrites, //
};
use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};

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

/// To be told of completions of a Send Queue. All run in the context of completion handlers.
pub(crate) trait SendQueueOwner: RegionOwner {
    /// Dropped after each Read or Write.
    type Held: Send + 'static;

    /// What keeps the memory that Reads fill.
    type Reading: Send + 'static;

    /// What keeps the memory that Writes are made from.
    type Writing: Send + 'static;

    /// A Send has completed that was signaled, or has failed. Its Writes are ended.
    fn sent(this: ArcBorrow<'_, Self>, sent: Sent, completion: Completion<'_>);

    /// A part of a chain has completed.
    fn part_done(this: ArcBorrow<'_, Self>, completion: Completion<'_>);

    /// Reads have completed.
    fn read(this: ArcBorrow<'_, Self>, done: ReadsDone<Self>, completion: Completion<'_>);
}

/// The Reads of the owner of a Send Queue.
pub(crate) type ReadsOf<O> =
    KBox<ReadWrites<<O as SendQueueOwner>::Held, <O as SendQueueOwner>::Reading>>;

/// The Writes of the owner of a Send Queue.
pub(crate) type WritesOf<O> =
    ReadWrites<<O as SendQueueOwner>::Held, <O as SendQueueOwner>::Writing>;

/// How a message is sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendOptions {
    /// The length of the message.
    pub(crate) len: usize,
    /// The R_key of the peer's that the Send invalidates.
    pub(crate) invalidate: Option<u32>,
    /// Set if it is signaled in any case.
    pub(crate) signal: bool,
}
