// SPDX-License-Identifier: GPL-2.0

//! Chains of Reads or Writes: posted so far, and to come.

use super::{
    owner::SendQueueOwner,
    ring::Ring,
    types::ReadsOf,
    SendMemory, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        fifo::Fifo,
        handover::Handover, //
    },
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

/// The work requests of a chain that are not posted yet.
///
/// # Invariants
///
/// `next` is the first of `left` linked work requests, which nobody else knows.
pub(super) struct ToCome {
    /// The first one.
    next: *mut sys::ib_send_wr,
    /// Their number.
    left: u32,
}

// SAFETY: Work requests belong to no thread, and these are known here alone.
unsafe impl Send for ToCome {}

impl ToCome {
    /// A chain of which nothing was posted.
    ///
    /// # Safety
    ///
    /// `next` is the first of `left` linked work requests, which nobody else knows. They stay in
    /// their place as long as the value is used.
    pub(super) unsafe fn new(next: *mut sys::ib_send_wr, left: u32) -> Self {
        // INVARIANT: The caller guarantees it.
        Self { next, left }
    }

    /// Nothing is to come.
    pub(super) const fn none() -> Self {
        // INVARIANT: There is none.
        Self {
            next: ptr::null_mut(),
            left: 0,
        }
    }

    /// Returns the number of work requests.
    pub(super) fn left(&self) -> u32 {
        self.left
    }

    /// Cuts `count` work requests off, at least one and not more than are left, of which the last
    /// one is signaled to `cqe`. Returns the first.
    pub(super) fn cut(
        &mut self,
        count: u32,
        cqe: *mut sys::ib_cqe,
    ) -> Option<*const sys::ib_send_wr> {
        let first = self.next;
        self.left = self.left.checked_sub(count)?;
        let mut last = first;
        for _ in 1..count {
            // SAFETY: By the type invariant there were `count` at least.
            last = unsafe { (*last).next };
        }
        // SAFETY: As above; nobody else knows it.
        let last = unsafe { last.as_mut() }?;
        set_send_cqe(last, cqe);
        last.send_flags |= sys::ib_send_flags_IB_SEND_SIGNALED as c_int;
        // INVARIANT: Those behind `last` are left.
        self.next = core::mem::replace(&mut last.next, ptr::null_mut());
        Some(first)
    }
}

/// Reads that are not posted yet, or not all of them.
pub(crate) struct WaitingReads<O: SendQueueOwner> {
    /// The Reads.
    pub(super) reads: ReadsOf<O>,
    /// Those that are to come.
    pub(super) to_come: ToCome,
}

/// The Reads of a queue that has ended, posted or waiting, and Send buffers that are posted.
pub(super) type Leftovers<O> = (Ring<SendMemory<O>, ReadsOf<O>>, Fifo<WaitingReads<O>>);

/// The completion entry of all parts of Writes.
pub(super) struct Part<O>(PhantomData<fn(O)>);

impl<O> Part<O> {
    /// Makes the one of a queue.
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

/// The completion entry of all parts of Reads. When the queue has ended it keeps what may not have
/// completed.
pub(super) struct ReadPart<O: SendQueueOwner> {
    /// What may not have completed. A device that did not report the end of Reads may still write
    /// to their memory, until the QP is destroyed.
    pub(super) leftovers: Handover<Leftovers<O>>,
}

impl<O: SendQueueOwner> ReadPart<O> {
    /// Makes the one of a queue.
    pub(super) const fn new() -> Self {
        Self {
            leftovers: Handover::new(),
        }
    }
}

impl<O: SendQueueOwner> Completes for ReadPart<O> {
    type Owner = O;

    fn completed(_: Posting<Self>, owner: ArcBorrow<'_, O>, completion: Completion<'_>) {
        O::read(owner, completion);
    }

    fn ended(&self) {
        drop(self.leftovers.take());
    }
}
