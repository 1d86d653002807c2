// SPDX-License-Identifier: GPL-2.0

//! The owner of a Send Queue.

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

    /// The Send at a place has completed that was signaled, or has failed. Its Writes are ended.
    fn sent(this: ArcBorrow<'_, Self>, place: u64, completion: Completion<'_>);

    /// A part of Writes has completed, or has failed.
    fn part_done(this: ArcBorrow<'_, Self>, completion: Completion<'_>);

    /// Reads, or a part of them, have completed or failed.
    fn read(this: ArcBorrow<'_, Self>, completion: Completion<'_>);
}
