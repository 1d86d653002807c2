// SPDX-License-Identifier: GPL-2.0

//! The part of a chain that has not been posted, see [`super::parts`].

use super::{
    memory::SendMemory,
    owner::SendQueueOwner,
    read_slot::ReadSlot,
    types::SendOptions, //
};
use crate::kext::prelude::*;
use crate::{
    rdma::{
        completion::Completion,
        posting::{
            Completes,
            Posting, //
        },
        work_request::set_send_cqe, //
    },
    sys, //
};
use core::ptr;

/// The work request that follows the last of the linked ones.
pub(super) enum Last<O: SendQueueOwner> {
    /// Nothing: the last one is a Read of this place, and signaled to that.
    Read(Posting<ReadSlot<O>>),
    /// A Send, by its name in trace events.
    Send(SendMemory<O>, SendOptions, u64),
}

/// The part of a chain that has not been posted.
///
/// # Invariants
///
/// `next` is the first of `left` linked work requests, which are in operations that the slot of
/// `last` keeps until its own work request has completed, or the queue was closed and drained.
pub(super) struct Rest<O: SendQueueOwner> {
    /// The first one.
    next: NonNull<sys::ib_send_wr>,
    /// The number of linked work requests.
    left: u32,
    /// The work request that comes last.
    pub(super) last: Last<O>,
}

// SAFETY: Work requests belong to no thread, and those of the rest are known to it alone.
unsafe impl<O: SendQueueOwner> Send for Rest<O> {}

impl<O: SendQueueOwner> Rest<O> {
    /// A chain of which nothing was posted.
    ///
    /// # Safety
    ///
    /// See the type invariant.
    pub(super) unsafe fn new(next: NonNull<sys::ib_send_wr>, left: u32, last: Last<O>) -> Self {
        // INVARIANT: The caller guarantees it.
        Self { next, left, last }
    }

    /// Returns the number of linked work requests.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Cuts `count` work requests off, at least one and not more than are left. Returns the first
    /// and the last of them.
    pub(super) fn cut(&mut self, count: u32) -> Option<Cut> {
        let first = self.next;
        let mut last = first;
        for _ in 1..count {
            // SAFETY: By the type invariant `left` are linked, and `count` is not more.
            last = NonNull::new(unsafe { (*last.as_ptr()).next })?;
        }
        // SAFETY: As above; nobody else knows those that were not posted.
        let next = unsafe { core::mem::replace(&mut (*last.as_ptr()).next, ptr::null_mut()) };
        self.left = self.left.saturating_sub(count);
        // INVARIANT: Those behind `last` are left. If there are none, `next` is not used again.
        self.next = NonNull::new(next).unwrap_or(NonNull::dangling());
        Some(Cut { first, last })
    }
}

/// Linked work requests that were cut off a chain.
pub(super) struct Cut {
    /// The first one.
    pub(super) first: NonNull<sys::ib_send_wr>,
    /// The last one. It was not posted yet.
    last: NonNull<sys::ib_send_wr>,
}

impl Cut {
    /// Has the last one signaled to `cqe`.
    pub(super) fn signal(&mut self, cqe: *mut sys::ib_cqe) {
        // SAFETY: By the invariant of `Rest`, of which it was cut; nobody else knows it.
        let request = unsafe { &mut *self.last.as_ptr() };
        set_send_cqe(request, cqe);
        request.send_flags |= sys::ib_send_flags_IB_SEND_SIGNALED as c_int;
    }
}

/// The last work request of a part of a chain.
pub(super) struct Part<O>(PhantomData<fn(O)>);

impl<O> Part<O> {
    /// Makes the one that completes for all parts of a queue.
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<O: SendQueueOwner> Completes for Part<O> {
    type Owner = O;

    fn completed(_: Posting<Self>, owner: ArcBorrow<'_, O>, completion: Completion<'_>) {
        O::part_done(owner, completion);
    }
}
