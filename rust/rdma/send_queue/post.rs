// SPDX-License-Identifier: GPL-2.0

//! Sends, with registrations or Writes before them, and fences.

use super::{
    chain::ToCome,
    memory::{
        SendMemory,
        SendRequest, //
    },
    owner::SendQueueOwner,
    types::{
        PostError,
        SendOptions,
        WritesOf, //
    },
    OpenQueue,
    PostedSend,
    SendQueue, //
};
use crate::{
    rdma::region::Region,
    sys, //
};
use core::{
    iter,
    ptr, //
};
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
        let buffers = self.buffers;
        let open = self.open_mut()?;
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
        let signaled = send.signal || open.ring.must_signal(requests, buffers);
        if signaled {
            request.signal();
        }
        // Before the post, so that no completion can come first.
        let place = open.ring.next();
        memory.slot().posted(place);
        open.note(requests, signaled, Some(memory), false)?;
        // SAFETY: The chain has just been linked, and is valid for the call. The memory of the Send
        // and all completion entries are kept by the QP, and the regions are of its PD.
        unsafe { open.post(first) }?;
        open.ring.reserve(fences);
        Ok(PostedSend { place, signaled })
    }

    /// Posts `writes`, and then a Send, as one chain, for which there is room. Returns its place.
    ///
    /// # Errors
    ///
    /// `Closed` or `Refused`. Writes that are not taken out of `writes` can be dropped; others are
    /// ended when the queue is drained.
    pub(crate) fn post_reply(
        &mut self,
        memory: SendMemory<O>,
        send: SendOptions,
        writes: &mut Option<WritesOf<O>>,
    ) -> Result<u64, PostError> {
        let Some(linked) = writes else {
            let posted = self.post_send(memory, send, iter::empty())?;
            return Ok(posted.place);
        };
        let open = self.open_mut()?;
        let mut request = SendRequest::new(&open.qp, &memory, send)?;
        request.signal();
        let total = linked.load().requests.saturating_add(1);
        let first = linked.link(&open.qp, ptr::null_mut(), request.link());
        let first = first.ok_or(PostError::Refused)?;
        let place = open.ring.next();
        memory.slot().posted(place);
        open.carry(&memory, writes, ToCome::none())?;
        open.note(total, true, Some(memory), false)?;
        // SAFETY: As in `post_send`. The slot of the Send, which the QP keeps, has the Writes until
        // that has completed, or no completion comes any more.
        unsafe { open.post(first) }?;
        Ok(place)
    }

    /// Posts of Writes what there is room for: they are too many to be posted with their Send. They
    /// are taken out of `writes` the first time, and belong to `memory` from then on. Returns how
    /// many work requests of them are left.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_reply`].
    pub(crate) fn post_writes(
        &mut self,
        memory: &SendMemory<O>,
        writes: &mut Option<WritesOf<O>>,
    ) -> Result<u32, PostError> {
        let open = self.open_mut()?;
        if !memory.slot().is_for(open.qp.keeper()) {
            return Err(PostError::Refused);
        }
        if let Some(linked) = writes {
            let left = linked.load().requests;
            let first = linked.link(&open.qp, open.part.cqe(), ptr::null_mut());
            let first = first.ok_or(PostError::Refused)?;
            // SAFETY: The Writes were just linked, and stay in the slot with this.
            let to_come = unsafe { ToCome::new(first, left) };
            open.carry(memory, writes, to_come)?;
        }
        let posted = memory.slot().with_carried(|carried| {
            let count = open.ring.part(carried.to_come.left());
            if count > 0 {
                let first = carried.to_come.cut(count, open.part.cqe());
                let first = first.ok_or(PostError::Refused)?;
                open.note(count, true, None, true)?;
                // SAFETY: As in `post_reply`; the entry of parts is kept by the QP.
                unsafe { open.post(first) }?;
            }
            Ok(carried.to_come.left())
        });
        posted.unwrap_or(Ok(0))
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
        let open = self.open_mut()?;
        let place = open.ring.next();
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
        open.note(fences, true, None, false)?;
        open.ring.unreserve(fences);
        // SAFETY: The chain has just been linked, and is valid for the call. The completion entries
        // are kept by the QP.
        unsafe { open.post(first) }
    }
}

impl<O: SendQueueOwner> OpenQueue<O> {
    /// Has the slot of `memory` keep `writes`.
    ///
    /// # Errors
    ///
    /// `Refused` if it has some. Then they stay where they are.
    fn carry(
        &self,
        memory: &SendMemory<O>,
        writes: &mut Option<WritesOf<O>>,
        to_come: ToCome,
    ) -> Result<(), PostError> {
        let Some(linked) = writes.take() else {
            return Ok(());
        };
        memory.slot().carry(linked, to_come).map_err(|refused| {
            *writes = Some(refused);
            PostError::Refused
        })
    }

    /// Enters a chain, for which there is room, into the ring, or a `part` of one.
    ///
    /// # Errors
    ///
    /// `Refused` if there is none.
    #[inline(always)]
    fn note(
        &mut self,
        requests: u32,
        signaled: bool,
        memory: Option<SendMemory<O>>,
        part: bool,
    ) -> Result<(), PostError> {
        let noted = self.ring.posted(requests, signaled, memory, part);
        noted.map(drop).ok_or(PostError::Refused)
    }

    /// Posts a chain that was entered into the ring last.
    ///
    /// # Errors
    ///
    /// `Refused`.
    ///
    /// # Safety
    ///
    /// The chain is valid for the call, and for this QP. What completes later than that, or is used
    /// by the device, stays until it has, or the QP is gone.
    pub(super) unsafe fn post(&mut self, first: *const sys::ib_send_wr) -> Result<(), PostError> {
        let mut refused_at: *const sys::ib_send_wr = ptr::null();
        // SAFETY: The user keeps the QP; the caller guarantees the rest.
        let status = unsafe { sys::ib_post_send(self.qp.as_ptr(), first, &raw mut refused_at) };
        if status != 0 {
            self.refused = true;
            return Err(PostError::Refused);
        }
        Ok(())
    }
}
