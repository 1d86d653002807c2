// SPDX-License-Identifier: GPL-2.0

//! Chains that are too long for the Send Queue, posted in parts as there comes room.
//!
//! # Who owns what, and what ends it
//!
//! A chain that is begun belongs to the slot of its last work request, like one that is posted as a
//! whole: Reads to a [`PullSlot`](super::pull::PullSlot), a Reply to the slot of its Send buffer.
//! What has not been posted of it is the [`Rest`] in the gate. There is one at most, and while
//! there is one nothing else is posted but fences, which take the room that was kept for them and
//! nothing of the chain's; so two chains never wait for each other. Each part is signaled, and its
//! completion posts the next one. A fence may come between two parts: work requests are done in the
//! order of posting, whatever chain they are of.
//!
//! The rest points into the transfers that the slot keeps. These go with the completion of the last
//! work request, which is posted last of all, or at the end of the endpoint
//! ([`Endpoint::end_transfers`]), after the gate was closed.

use crate::{
    endpoint::{
        gate::SendGate,
        Endpoint,
        EndpointEvents,
        PostError, //
    },
    observe::trace,
    rdma::{
        completion::{
            Completes,
            Completion, //
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
    sync::{
        atomic::Relaxed,
        ArcBorrow, //
    }, //
};

/// Work requests of the longest chain, a Reply's Send counted. More than a peer has reason to ask
/// for: a page of the largest payload, or a segment of the longest list, takes one, or three where
/// it has to be registered.
pub(super) const CHAIN_MAX: u32 = 1024;

/// The work request that follows the last of the linked ones.
#[derive(Clone, Copy)]
pub(super) enum Last {
    /// Nothing: the last one is a Read of the slot for Reads with this index, and signaled to that.
    Read(u32),
    /// A Send.
    Send(ReplySend),
}

/// The Send of a Reply.
#[derive(Clone, Copy)]
pub(super) struct ReplySend {
    /// The index of its buffer.
    pub(super) index: u32,
    /// The length of the message.
    pub(super) len: usize,
    /// The R_key of the peer's that the Send invalidates.
    pub(super) invalidate: Option<u32>,
    /// Set if it is signaled in any case.
    pub(super) signal: bool,
    /// Its name in trace events, if it is posted in parts: then it is signaled, and its place is
    /// not known yet.
    pub(super) begun: Option<u64>,
}

/// The part of a chain that has not been posted.
///
/// # Invariants
///
/// `next` is the first of `left` linked work requests, which are in transfers that a slot of the
/// endpoint keeps at least as long as the gate is open.
pub(super) struct Rest {
    /// The first one.
    next: NonNull<sys::ib_send_wr>,
    /// The number of linked work requests.
    left: u32,
    /// The work request that comes last.
    last: Last,
}

// SAFETY: Work requests belong to no thread, and those of the rest are known to it alone.
unsafe impl Send for Rest {}

impl Rest {
    /// A chain of which nothing was posted.
    ///
    /// # Safety
    ///
    /// See the type invariant.
    pub(super) unsafe fn new(next: NonNull<sys::ib_send_wr>, left: u32, last: Last) -> Self {
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

impl<H: EndpointEvents> Endpoint<H> {
    /// Posts of a chain that is begun what there is room for.
    ///
    /// # Errors
    ///
    /// `Closed`, or `Refused`: then the connection must end.
    pub(super) fn go_on(&self, gate: &mut SendGate) -> Result<(), PostError> {
        while let Some(rest) = gate.rest.as_mut() {
            let qp = gate.qp.as_ref().ok_or(PostError::Closed)?.as_ptr();
            if rest.left == 0 {
                let Last::Send(send) = rest.last else {
                    gate.rest = None;
                    break;
                };
                if !gate.queue.has_room(1, 0) {
                    break;
                }
                gate.rest = None;
                return self.post_send(gate, &send, None).map(drop);
            }
            let count = gate.queue.part(rest.left);
            if count == 0 {
                break;
            }
            let ends_here = match rest.last {
                Last::Read(index) if count == rest.left => Some(index),
                _ => None,
            };
            let (first, last) = rest.cut(count).ok_or(PostError::Refused)?;
            let place = match ends_here {
                // It is signaled to the slot already.
                Some(index) => {
                    gate.rest = None;
                    let place = gate.queue.posted_last(count, None);
                    let slot = self.pulls.get(index as usize);
                    if let Some((place, slot)) = place.zip(slot) {
                        slot.sequence.store(place, Relaxed);
                    }
                    place
                }
                None => {
                    // SAFETY: By the invariant of `Rest`; it was not posted yet.
                    let request = unsafe { &mut *last.as_ptr() };
                    set_send_cqe(request, self.part.cqe());
                    request.send_flags |= sys::ib_send_flags_IB_SEND_SIGNALED as c_int;
                    gate.queue.posted_part(count)
                }
            };
            place.ok_or(PostError::Refused)?;
            // SAFETY: The gate's QP is live. The chain is kept by its slot until its last work
            // request has completed, or none will any more; the entry for parts is the endpoint's.
            let status = unsafe { sys::ib_post_send(qp, first.as_ptr(), ptr::null_mut()) };
            if status != 0 {
                gate.queue.unpost();
                gate.rest = None;
                return Err(PostError::Refused);
            }
        }
        Ok(())
    }
}

/// The last work request of a part of a chain.
pub(super) struct Part<H>(PhantomData<fn(H)>);

impl<H> Part<H> {
    /// Makes the one that completes for all parts of an endpoint.
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<H: EndpointEvents> Completes for Part<H> {
    type Owner = Endpoint<H>;

    fn completed(&self, this: ArcBorrow<'_, Endpoint<H>>, completion: Completion<'_>) {
        if !completion.ok() {
            this.trace_error(completion, trace::Work::Send);
            this.context.lost();
            return;
        }
        this.retire_part();
    }
}
