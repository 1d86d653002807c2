// SPDX-License-Identifier: GPL-2.0

//! Chains that are posted as a whole: Sends with registrations or Writes before them, and
//! fences.

use super::{
    memory::{
        SendMemory,
        SendRequest, //
    },
    owner::SendQueueOwner,
    requests,
    types::{
        PostError,
        SendOptions,
        WritesOf, //
    },
    PostedSend,
    SendQueue, //
};
use crate::{
    rdma::region::Region,
    sys, //
};
use core::ptr;
use kernel::prelude::*;

impl<O: SendQueueOwner> SendQueue<O> {
    /// Posts the registrations of `regions` and then a Send, as one chain, for which there is room.
    /// Room is kept for the fences of the regions.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    pub(crate) fn post_send<'a>(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        regions: impl Iterator<Item = &'a mut Region<O>>,
    ) -> Result<PostedSend, PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let mut request = SendRequest::new(&open.qp, &memory, send)?;
        let mut first = request.link();
        let mut fences = 0_u32;
        for region in regions {
            first = region
                .register_wr(&open.qp, &open.registration, first)
                .ok_or(PostError::Refused)?;
            fences = fences.saturating_add(1);
        }
        let requests = fences.saturating_add(1);
        let signaled = send.signal || self.ring.must_signal(requests, self.buffers);
        if signaled {
            request.signal();
        }
        // Before the post, so that no completion can come first.
        let place = self.ring.next();
        memory.slot().posted(place, place);
        self.ring
            .posted(requests, signaled, Some(memory))
            .ok_or(PostError::Refused)?;
        // SAFETY: The chain has just been linked, and is valid for the call. The memory of the Send
        // and all completion entries are kept by the QP, and the regions are of its PD.
        unsafe { self.post(first) }?;
        self.ring.reserve(fences);
        Ok(PostedSend { place, signaled })
    }

    /// Posts a Send and before it `writes`, or begins to, if they do not fit as a whole. Returns
    /// what trace events call the Send.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`. The Writes are ended when the queue is drained.
    pub(crate) fn post_writes(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        writes: Option<WritesOf<O>>,
    ) -> Result<u64, PostError> {
        let total = requests(writes.as_ref()).saturating_add(1);
        if let Some(writes) = writes {
            return if self.ring.has_room(total, 0) {
                self.post_with_writes(memory, send, writes)
            } else {
                self.begin_writes(memory, send, writes)
            };
        }
        let posted = self.post_send(memory, send, core::iter::empty())?;
        Ok(posted.place)
    }

    /// Posts `writes` and behind them a Send, as one chain, for which there is room.
    fn post_with_writes(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        mut writes: WritesOf<O>,
    ) -> Result<u64, PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let total = requests(Some(&writes)).saturating_add(1);
        let mut request = SendRequest::new(&open.qp, &memory, send)?;
        request.signal();
        let first = writes
            .link(&open.qp, ptr::null_mut(), request.link())
            .ok_or(PostError::Refused)?;
        let place = self.ring.next();
        memory.slot().posted(place, place);
        // Whatever happens, they are released by the completion, or at the end of the queue.
        memory.slot().carry(writes)?;
        self.ring
            .posted(total, true, Some(memory))
            .ok_or(PostError::Refused)?;
        // SAFETY: The chain has just been linked, and is valid for the call. The slot keeps the
        // Writes, which do not move, until the Send behind them has completed, or the queue was
        // drained; the QP keeps the rest.
        unsafe { self.post(first) }.map(|()| place)
    }

    /// Posts the invalidation of `regions` as one chain, for which room was kept. When it is done,
    /// [`RegionOwner::invalidated`] is called with `tag`, once.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    pub(crate) fn post_fence<'a>(
        &mut self,
        regions: impl Iterator<Item = &'a mut Region<O>>,
        tag: u32,
    ) -> Result<(), PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let place = self.ring.next();
        let mut fences = 0_u32;
        // Built from the end: the first region's request is the chain's last, and the only one
        // signaled. Work requests are done in order, so with it all are.
        let mut first = ptr::null_mut::<sys::ib_send_wr>();
        for region in regions {
            let tag = first.is_null().then_some(tag);
            first = region
                .fence_wr(&open.qp, first, place, tag)
                .ok_or(PostError::Refused)?;
            fences = fences.saturating_add(1);
        }
        if fences == 0 {
            return Err(PostError::Refused);
        }
        self.ring
            .posted(fences, true, None)
            .ok_or(PostError::Refused)?;
        self.ring.unreserve(fences);
        // SAFETY: The chain has just been linked, and is valid for the call. The completion entries
        // are kept by the QP.
        unsafe { self.post(first) }
    }

    /// Posts a chain that was entered into the ring last.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`.
    ///
    /// # Safety
    ///
    /// The chain is valid for the call, and for this QP. What completes later than that, or is used
    /// by the device, stays until it has, or the QP is gone.
    pub(super) unsafe fn post(&mut self, first: *const sys::ib_send_wr) -> Result<(), PostError> {
        let open = self.open.as_ref().ok_or(PostError::Closed)?;
        let mut refused_at: *const sys::ib_send_wr = ptr::null();
        // SAFETY: The user keeps the QP; the caller guarantees the rest.
        let status = unsafe { sys::ib_post_send(open.qp.as_ptr(), first, &raw mut refused_at) };
        if status != 0 {
            self.ring.refused();
            return Err(PostError::Refused);
        }
        Ok(())
    }
}
