// SPDX-License-Identifier: GPL-2.0

//! Chains that are too long for the Send Queue, posted in parts as there comes room.
//!
//! # Who owns what, and what ends it
//!
//! A chain that is begun belongs to the slot of its last work request, like one that is posted as a
//! whole: Reads to their place, Writes to the Send buffer. What has not been posted of it is the
//! [`Rest`]. There is one at most, and while there is one nothing else is posted but fences, which
//! take the room that was kept for them and nothing of the chain's; so two chains never wait for
//! each other. Each part is signaled, and its completion posts the next one. A fence may come
//! between two parts: work requests are done in the order of posting, whatever chain they are of.
//!
//! The rest points into the operations that the slot keeps. These go with the completion of the
//! last work request, which is posted last of all, or after the queue was closed and drained.

use super::{
    memory::SendMemory,
    reads::ReadSlot,
    requests,
    PostError,
    SendOptions,
    SendQueue,
    SendQueueOwner,
    SendRequest,
    WritesOf, //
};
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
use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};

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
    last: Last<O>,
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

    /// Cuts `count` work requests off, at least one and not more than are left. Returns the first
    /// and the last of them.
    fn cut(&mut self, count: u32) -> Option<(NonNull<sys::ib_send_wr>, NonNull<sys::ib_send_wr>)> {
        let first = self.next;
        let mut last = first;
        for _ in 1..count {
            // SAFETY: By the type invariant so many are linked.
            last = NonNull::new(unsafe { (*last.as_ptr()).next })?;
        }
        // SAFETY: As above; nobody else knows those that were not posted.
        let next = unsafe { core::mem::replace(&mut (*last.as_ptr()).next, ptr::null_mut()) };
        self.left = self.left.saturating_sub(count);
        // INVARIANT: Those behind `last` are left. If there are none, `next` is not used again.
        self.next = NonNull::new(next).unwrap_or(NonNull::dangling());
        Some((first, last))
    }
}

impl<O: SendQueueOwner> SendQueue<O> {
    /// Begins `writes` and a Send behind them, which have to be posted in parts. Returns what trace
    /// events call the Send.
    pub(super) fn begin_writes(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        mut writes: WritesOf<O>,
    ) -> Result<u64, PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let left = requests(Some(&writes));
        let linked = writes.link(&open.qp, open.part.cqe(), ptr::null_mut());
        let first = linked.and_then(NonNull::new).ok_or(PostError::Refused)?;
        memory.slot().carry(writes)?;
        let name = self.ring.begin();
        let last = Last::Send(memory, send, name);
        // SAFETY: The Writes have just been linked, and there are so many work requests in them;
        // the slot keeps them until the Send has completed, or no completion comes any more.
        self.rest = Some(unsafe { Rest::new(first, left, last) });
        self.go_on().map(|()| name)
    }

    /// Posts of a chain that is begun what there is room for.
    ///
    /// # Errors
    ///
    /// `Refused`: then the connection must end. A queue that is closed has nothing to go on with.
    pub(super) fn go_on(&mut self) -> Result<(), PostError> {
        while let Some(mut rest) = self.rest.take() {
            if rest.left == 0 {
                match rest.last {
                    Last::Read(_) => {}
                    Last::Send(memory, send, name) if self.ring.has_room(1, 0) => {
                        self.post_last(memory, send, name)?;
                    }
                    last => {
                        self.rest = Some(Rest { last, ..rest });
                        break;
                    }
                }
                break;
            }
            let count = self.ring.part(rest.left);
            if count == 0 {
                self.rest = Some(rest);
                break;
            }
            let open = self.open.as_ref().ok_or(PostError::Closed)?;
            let ends = count == rest.left;
            let (first, last) = rest.cut(count).ok_or(PostError::Refused)?;
            let place = match &rest.last {
                // It is signaled to the slot already.
                Last::Read(slot) if ends => {
                    let place = self.ring.posted_last(count, None);
                    place.inspect(|place| slot.posted(*place))
                }
                _ => {
                    // SAFETY: By the invariant of `Rest`; it was not posted yet.
                    let request = unsafe { &mut *last.as_ptr() };
                    set_send_cqe(request, open.part.cqe());
                    request.send_flags |= sys::ib_send_flags_IB_SEND_SIGNALED as c_int;
                    self.ring.posted_part(count)
                }
            };
            place.ok_or(PostError::Refused)?;
            // SAFETY: The chain is kept by its slot until its last work request has completed, or
            // none will any more; the entry for parts is kept by the QP.
            unsafe { self.post(first.as_ptr()) }?;
            self.rest = Some(rest);
        }
        Ok(())
    }

    /// Posts the Send that ends a chain, for which there is room.
    fn post_last(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        name: u64,
    ) -> Result<(), PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let mut request = SendRequest::new(&open.qp, &memory, send)?;
        request.signal();
        memory.slot().posted(self.ring.next(), name);
        self.ring
            .posted_last(1, Some(memory))
            .ok_or(PostError::Refused)?;
        // SAFETY: The Send is valid for the call, and the QP keeps what it refers to.
        unsafe { self.post(request.link()) }
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
