// SPDX-License-Identifier: GPL-2.0

//! Replies of a Responder: the RDMA Writes, and then the Send; and the RDMA Reads by which it pulls
//! a Call.
//!
//! # Who owns what, and what ends it
//!
//! The Writes of a Reply, with what keeps their memory, belong to the Send Queue from when the
//! first of them was posted, until the Send has completed. The Reads of a Call, and their purpose,
//! are a [`Pull`]: from when they are posted, or wait, they belong to the Send Queue, until their
//! completion.
//!
//! # What waits for the Send Queue
//!
//! Work that finds no room waits in one of two lists, both under the lock of the Send Queue:
//! Replies in the gate's, Reads in the queue's. Room goes to Replies first. The oldest Reply keeps
//! it until it is posted, which may take credits; Reads use what it leaves. A completion has Reads
//! posted, and the Writes of a Reply that has too many of them to be posted at once. To let the
//! oldest Reply out is for its owner: it needs the channel's lock, which is taken before this one.
//!
//! Messages of the session's own, and Calls, are in no list: they have room of their own, and a
//! Reply may have to wait for them. Nothing comes between the parts of a Reply, which are posted at
//! once.
//!
//! The end of the endpoint takes the lists away when it closes the queue.

use crate::{
    endpoint::{
        gate::SendGate,
        parts::FirstParts,
        send::SendBuffer,
        transfer::{
            leave_to_peer,
            Counted,
            Load,
            Transfers, //
        },
        Endpoint,
        EndpointEvents,
        PostError, //
    },
    kext::{
        fifo::Fifo,
        memalloc::NoFs,
        prelude::*, //
    },
    proto::{
        message,
        session::Outbound,
        v2::Direction, //
    },
    rdma::{
        cm::Drained,
        rw::ReadWrites,
        send_queue::{
            SendOptions,
            Unread,
            WritesOf, //
        }, //
    }, //
};

/// RDMA Reads that complete together, and their purpose.
pub(crate) type Pull<H> = ReadWrites<Counted<H>, <H as EndpointEvents>::Pull>;

/// Reads that are prepared; `purpose` keeps their memory.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn pull<H: EndpointEvents>(
    mut transfers: Transfers<H>,
    purpose: H::Pull,
) -> Result<KBox<Pull<H>>> {
    leave_to_peer(&mut transfers);
    // Without memory they are dropped in the order that it has.
    let pull = ReadWrites::new(transfers, purpose);
    let place = KBox::new_uninit(GFP_KERNEL)?;
    Ok(place.write(pull))
}

/// A Reply, or an error, to be posted.
pub(crate) struct Reply<H: EndpointEvents> {
    /// The transaction ID of its Call.
    pub(crate) xid: u32,
    /// Header and inline part.
    pub(crate) message: SendBuffer<H>,
    /// The length of the message.
    pub(crate) len: usize,
    /// The R_key that the peer need not invalidate itself.
    pub(crate) invalidate: Option<u32>,
    /// If the Reply goes in parts, of which `message` is the last: the others.
    pub(crate) parts: Option<KBox<FirstParts>>,
    /// The RDMA Writes before it, until the first of them is posted.
    writes: Option<WritesOf<Endpoint<H>>>,
    /// Their size.
    load: Load,
    /// The number of their work requests that are not posted.
    left: u32,
}

impl<H: EndpointEvents> Reply<H> {
    /// A message of `len` octets, which answers the Call `xid` and has nothing else with it.
    #[inline]
    pub(crate) fn new(xid: u32, message: SendBuffer<H>, len: usize) -> Self {
        Self {
            xid,
            message,
            len,
            invalidate: None,
            parts: None,
            writes: None,
            load: Load::default(),
            left: 0,
        }
    }

    /// Gives it Writes, which are posted first; `keeper` keeps their memory.
    pub(crate) fn write(&mut self, mut transfers: Transfers<H>, keeper: H::Push) {
        leave_to_peer(&mut transfers);
        self.load = transfers.load();
        self.left = self.load.requests;
        self.writes = Some(ReadWrites::new(transfers, keeper));
    }

    /// Returns the size of the Writes.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Returns the number of its parts before the last one.
    fn before(&self) -> u32 {
        self.parts.as_ref().map_or(0, |parts| parts.len())
    }

    /// Returns in how many messages it goes.
    pub(crate) fn messages(&self) -> u32 {
        self.before().saturating_add(1)
    }

    /// Returns the number of its work requests that are not posted.
    fn requests(&self) -> u32 {
        self.left.saturating_add(self.messages())
    }

    /// Returns what it asks credits for.
    pub(crate) fn outbound(&self) -> Outbound {
        Outbound {
            direction: Direction::Reply,
            parts: self.messages(),
            chunks: self.load.requests > 0,
        }
    }

    /// It invalidates nothing, unless it may: the peer may have said since it was made that it does
    /// not want that, and have been answered.
    #[inline]
    pub(crate) fn may_invalidate(&mut self, may: bool) {
        self.invalidate = self.invalidate.filter(|_| may);
    }

    /// See [`SendBuffer::reclaim`].
    pub(super) fn reclaim(&self, drained: &Drained<'_>) {
        self.message.reclaim(drained);
    }
}

impl<H: EndpointEvents> SendGate<H> {
    /// Posts of what waits what needs no credit: Writes of the oldest Reply, if these are too many
    /// to be posted with it, and Reads.
    ///
    /// # Errors
    ///
    /// `Refused`: then the connection must end. A queue that is closed has nothing to go on with.
    #[inline]
    pub(super) fn go_on(&mut self) -> Result<(), PostError> {
        let wanted = if self.replies.is_empty() {
            0
        } else {
            self.post_writes()?
        };
        self.queue.go_on(wanted)
    }

    /// As [`Self::go_on`], for Writes. Returns how much room the oldest Reply waits for.
    #[inline(never)]
    fn post_writes(&mut self) -> Result<u32, PostError> {
        let Some(oldest) = self.replies.oldest_mut() else {
            return Ok(0);
        };
        let is_begun = oldest.writes.is_none();
        let is_long = oldest.requests() > self.queue.wanted(oldest.requests());
        if oldest.left > 0 && (is_begun || is_long) {
            let memory = oldest.message.memory().ok_or(PostError::Refused)?;
            oldest.left = self.queue.post_writes(memory, &mut oldest.writes)?;
        }
        Ok(self.queue.wanted(oldest.requests()))
    }

    /// Returns whether a Reply could be posted now, but for credits.
    fn may_post(&self, reply: &Reply<H>) -> bool {
        let is_in_parts = reply.left > 0 && reply.writes.is_none();
        !is_in_parts
            && reply.requests() <= self.queue.room()
            && self.free.has_for_rpc(reply.before())
    }

    /// Posts a Reply, with `credits` if its headers don't have them yet. Returns the place of its
    /// Send.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If there is no room it is as it was.
    fn post(&mut self, reply: &mut Reply<H>, credits: Option<u32>) -> Result<u64, PostError> {
        if !self.queue.is_open() {
            return Err(PostError::Closed);
        }
        if !self.may_post(reply) {
            return Err(PostError::Full);
        }
        if let Some(credits) = credits {
            message::set_credits(&mut reply.message, credits);
        }
        if let Some(parts) = &reply.parts {
            self.post_parts(parts, credits)?;
        }
        let send = SendOptions {
            len: reply.len,
            invalidate: reply.invalidate,
            // As in `post_chain`; and the Writes go with its completion.
            signal: reply.parts.is_some() || reply.load.requests > 0,
        };
        let memory = reply.message.take().ok_or(PostError::Refused)?;
        self.queue.post_reply(memory, send, &mut reply.writes)
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Posts a Reply, with `credits` if its headers don't have them yet. Returns the number that
    /// the trace event of the Send's completion has.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. It is `Full` if others wait, too. Then the Reply is as it was. In any
    /// case nothing of it was dropped under a lock.
    #[inline]
    pub(crate) fn post_reply(
        self: &Arc<Self>,
        reply: &mut Reply<H>,
        credits: Option<u32>,
    ) -> Result<u64, PostError> {
        let mut gate = self.send.lock();
        // None overtakes those that wait.
        let posted = if gate.replies.is_empty() {
            gate.post(reply, credits)
        } else {
            Err(PostError::Full)
        };
        let held_up = posted.is_ok() && reply.message.answers && gate.answered();
        drop(gate);
        if held_up {
            self.context.handler().resources_back();
        }
        posted.map_err(|error| self.end_if_refused(error))
    }

    /// Leaves a Reply to be posted behind those that wait, see [`Self::next_reply`]. Sleeps.
    ///
    /// # Errors
    ///
    /// `Closed`: the connection is at its end, or has to be ended for want of memory.
    #[inline(never)]
    pub(crate) fn leave_reply(self: &Arc<Self>, reply: Reply<H>) -> Result<(), PostError> {
        self.make_places().map_err(|_| PostError::Closed)?;
        let before = reply.before();
        let mut gate = self.send.lock();
        let mut refused = Some(reply);
        if gate.queue.is_open() {
            // There is a place for each Send buffer.
            refused = refused.and_then(|reply| gate.replies.push(reply).err());
            self.context.handler().replies_wait(true);
        }
        drop(gate);
        if refused.is_some() {
            return Err(PostError::Closed);
        }
        if before > 0 {
            // It may wait for Send buffers, and nothing be under way of which one comes back. While
            // it waits no Call gets any. Without memory those that there are have to do.
            let _scope = NoFs::enter();
            let _ = self.ensure_send_buffers(before);
        }
        Ok(())
    }

    /// Makes place for what waits, if that was not done yet: on most connections nothing ever does.
    /// Sleeps.
    fn make_places(&self) -> Result {
        if self.send.lock().replies.capacity() > 0 {
            return Ok(());
        }
        let capacity = usize::try_from(self.sizes.sends)?;
        let mut replies = Fifo::with_capacity(capacity)?;
        let mut reads = Fifo::with_capacity(capacity)?;
        let mut gate = self.send.lock();
        if gate.queue.is_open() && gate.replies.capacity() == 0 {
            core::mem::swap(&mut gate.replies, &mut replies);
            gate.queue.make_places(&mut reads);
        }
        drop(gate);
        Ok(())
    }

    /// Returns what the oldest Reply that waits asks credits for, if it could be posted now; posts
    /// Writes of it if it is too long for that. The caller has the channel's lock, under which
    /// alone Replies are posted to this endpoint.
    pub(crate) fn next_reply(self: &Arc<Self>) -> Option<Outbound> {
        let mut gate = self.send.lock();
        let gone_on = gate.go_on();
        let oldest = gate.replies.oldest().filter(|oldest| gate.may_post(oldest));
        let outbound = oldest.map(Reply::outbound);
        drop(gate);
        match gone_on {
            Ok(()) => outbound,
            Err(error) => {
                self.end_if_refused(error);
                None
            }
        }
    }

    /// Posts the oldest Reply that waits, with `credits` if its headers don't have them yet.
    /// Returns it, to be dropped without a lock, and the place of its Send. If there is no room it
    /// waits on.
    pub(crate) fn post_next_reply(
        self: &Arc<Self>,
        credits: Option<u32>,
        may_invalidate: bool,
    ) -> (Option<Reply<H>>, Result<u64, PostError>) {
        let mut gate = self.send.lock();
        let Some(mut reply) = gate.replies.pop() else {
            return (None, Err(PostError::Full));
        };
        reply.may_invalidate(may_invalidate);
        let posted = gate.post(&mut reply, credits);
        if posted == Err(PostError::Full) {
            // It was there before.
            let refused = gate.replies.push_oldest(reply).err();
            return (refused, Err(PostError::Full));
        }
        let held_up = posted.is_ok() && reply.message.answers && gate.answered();
        if gate.replies.is_empty() {
            self.context.handler().replies_wait(false);
        }
        // Reads may have the room that it has not used.
        let gone_on = gate.go_on();
        drop(gate);
        if held_up {
            self.context.handler().resources_back();
        }
        let posted = gone_on.and(posted);
        let posted = posted.map_err(|error| self.end_if_refused(error));
        (Some(reply), posted)
    }

    /// Posts Reads, or leaves them to be posted as there comes room. Sleeps. Returns whether all
    /// are posted. When they are done, [`EndpointEvents::pulled`] is called.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. It is `Full` if as many wait as there are Send buffers, or without memory
    /// for the list of those that wait.
    pub(crate) fn post_pull(self: &Arc<Self>, pull: KBox<Pull<H>>) -> Result<bool, PostError> {
        let posted = match self.try_post_pull(pull) {
            Err((PostError::Full, Some(pull))) if self.make_places().is_ok() => {
                self.try_post_pull(pull)
            }
            posted => posted,
        };
        // Those that come back are dropped here.
        posted.map_err(|(error, _)| self.end_if_refused(error))
    }

    /// As [`Self::post_pull`], if there is place for those that wait.
    fn try_post_pull(&self, pull: KBox<Pull<H>>) -> Result<bool, Unread<Self>> {
        let mut gate = self.send.lock();
        let oldest = gate.replies.oldest();
        let wanted = oldest.map_or(0, |oldest| gate.queue.wanted(oldest.requests()));
        gate.queue.post_reads(pull, wanted)
    }
}
