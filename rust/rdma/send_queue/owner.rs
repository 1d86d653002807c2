// SPDX-License-Identifier: GPL-2.0

//! The owner of a Send Queue.

use super::{
    read_slot::ReadsDone,
    types::Sent, //
};
use crate::kext::prelude::*;
use crate::rdma::{
    completion::Completion,
    region::RegionOwner,
    rw::Unmapped, //
};

/// To be told of completions of a Send Queue. All run in the context of completion handlers.
pub(crate) trait SendQueueOwner: RegionOwner {
    /// Dropped after each Read or Write, and told if the memory of that was unmapped before.
    type Held: Unmapped + Send + 'static;

    /// Keeps the memory that Reads fill.
    type Reading: Send + 'static;

    /// Keeps the memory that Writes are made from.
    type Writing: Send + 'static;

    /// A Send has completed that was signaled, or has failed. Its Writes are ended.
    fn sent(this: ArcBorrow<'_, Self>, sent: Sent, completion: Completion<'_>);

    /// A part of a chain has completed.
    fn part_done(this: ArcBorrow<'_, Self>, completion: Completion<'_>);

    /// Reads have completed.
    fn read(this: ArcBorrow<'_, Self>, done: ReadsDone<Self>, completion: Completion<'_>);
}
