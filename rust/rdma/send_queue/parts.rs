// SPDX-License-Identifier: GPL-2.0

//! Chains that are too long for the Send Queue, posted in parts as there comes room.
//!
//! # Who owns what, and what ends it
//!
//! A chain that is begun belongs to the slot of its last work request, like one that is posted as a
//! whole: Reads to their place, Writes to the Send buffer. What has not been posted of it is the
//! [`Rest`](super::rest::Rest). There is one at most, and while there is one nothing else is posted
//! but fences, which take the room that was kept for them and nothing of the chain's; so two chains
//! never wait for each other. Each part is signaled, and its completion posts the next one. A fence
//! may come between two parts: work requests are done in the order of posting, whatever chain they
//! are of.
//!
//! The rest points into the operations that the slot keeps. These go with the completion of the
//! last work request, which is posted last of all, or after the queue was closed and drained.

use super::{
    memory::{
        SendMemory,
        SendRequest, //
    },
    owner::SendQueueOwner,
    requests,
    rest::{
        Last,
        Rest, //
    },
    types::{
        PostError,
        SendOptions,
        WritesOf, //
    },
    SendQueue, //
};
use crate::kext::prelude::*;
use core::ptr;

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
        // SAFETY: The Writes have just been linked, and there are `left` work requests in them; the
        // slot keeps them until the Send has completed, or no completion comes any more.
        self.rest = Some(unsafe { Rest::new(first, left, last) });
        self.go_on().map(|()| name)
    }

    /// Posts of a chain that is begun what there is room for.
    ///
    /// # Errors
    ///
    /// `Refused`: then the connection must end. A queue that is closed has nothing to go on with.
    #[inline]
    pub(super) fn go_on(&mut self) -> Result<(), PostError> {
        // Nearly all are posted as a whole.
        if self.rest.is_none() {
            return Ok(());
        }
        self.post_rest()
    }

    /// As [`Self::go_on`], when there is a chain that is begun.
    #[inline(never)]
    fn post_rest(&mut self) -> Result<(), PostError> {
        while let Some(mut rest) = self.rest.take() {
            if rest.left() == 0 {
                match rest.last {
                    Last::Read(_) => {}
                    Last::Send(..) if !self.ring.has_room(1, 0) => self.rest = Some(rest),
                    Last::Send(memory, send, name) => self.post_last(memory, send, name)?,
                }
                break;
            }
            let count = self.ring.part(rest.left());
            if count == 0 {
                self.rest = Some(rest);
                break;
            }
            let open = self.open.as_ref().ok_or(PostError::Closed)?;
            let ends = count == rest.left();
            let mut cut = rest.cut(count).ok_or(PostError::Refused)?;
            let place = match &rest.last {
                // It is signaled to the slot already.
                Last::Read(slot) if ends => {
                    let place = self.ring.posted(count, true, None);
                    place.inspect(|place| slot.posted(*place))
                }
                _ => {
                    cut.signal(open.part.cqe());
                    self.ring.posted_part(count)
                }
            };
            place.ok_or(PostError::Refused)?;
            // SAFETY: The chain is kept by its slot until its last work request has completed, or
            // none will any more; the entry for parts is kept by the QP.
            unsafe { self.post(cut.first.as_ptr()) }?;
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
            .posted(1, true, Some(memory))
            .ok_or(PostError::Refused)?;
        // SAFETY: The Send is valid for the call, and the QP keeps what it refers to.
        unsafe { self.post(request.link()) }
    }
}
