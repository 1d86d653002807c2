// SPDX-License-Identifier: GPL-2.0

//! The gate of an endpoint's Send Queue: the queue itself, the Replies that wait for it, and which
//! messages may use its buffers.

use crate::{
    endpoint::{
        reply::Reply,
        sizes::Sizes,
        Endpoint,
        EndpointEvents, //
    },
    kext::fifo::Fifo,
    policy::budget::Pages,
    rdma::send_queue::{
        ClosedQueue,
        SendMemory,
        SendQueue, //
    }, //
};
use kernel::prelude::*;

/// The gate of the Send Queue: without a QP nothing is posted.
pub(super) struct SendGate<H: EndpointEvents> {
    /// The queue.
    pub(super) queue: SendQueue<Endpoint<H>>,
    /// The Replies that wait, the oldest first. See [`super::reply`].
    pub(super) replies: Fifo<Reply<H>>,
    /// The buffers that are neither posted nor lent out.
    pub(super) free: FreeBuffers<SendMemory<Endpoint<H>>>,
    /// The number of buffers that count among all that were made after their connections.
    pub(super) counted: u32,
    /// The number of transfers that are mapped.
    pub(super) transfers: usize,
    /// The number of Calls that were taken in and are not answered, but for those without chunks
    /// that were taken in before older ones.
    pub(super) unanswered: u32,
    /// Set if a Call was not taken in since then.
    pub(super) held_up: bool,
    /// The pages of transfers, see [`super::quota`].
    pub(super) pages: Pages,
    /// How many of them the peer has let go, modulo 2^32.
    pub(super) returned: u32,
    /// The number of memory regions for transfers, those that are being made counted.
    pub(super) transfer_regions: u32,
    /// Set while the end of the endpoint waits until there is none.
    pub(super) awaited: bool,
}

impl<H: EndpointEvents> SendGate<H> {
    /// Makes a gate that is closed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(sizes: &Sizes) -> Result<Self> {
        Ok(Self {
            queue: SendQueue::new(),
            replies: Fifo::new(),
            free: FreeBuffers::new(sizes.sends, sizes.kept_sends)?,
            counted: 0,
            transfers: 0,
            unanswered: 0,
            held_up: false,
            pages: Pages::new(),
            returned: 0,
            transfer_regions: 0,
            awaited: false,
        })
    }

    /// Closes the queue: nothing is posted any more, and nothing waits. The Replies that waited are
    /// returned, to be dropped without the lock; [`None`] for the queue if it was not open.
    pub(super) fn close(&mut self) -> (Option<ClosedQueue<Endpoint<H>>>, Fifo<Reply<H>>) {
        let replies = core::mem::replace(&mut self.replies, Fifo::new());
        (self.queue.close(), replies)
    }
}

/// The purpose of a Send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// An RPC message, or a part of it.
    Rpc,
    /// A message of the connection's own, which RPC messages may have to wait for: that must not
    /// wait for their buffers.
    Control,
}

/// Buffers `B` that are free.
pub(super) struct FreeBuffers<B> {
    /// The buffers. With room for all of them.
    list: KVVec<B>,
    /// The fewest that there were for [`Purpose::Rpc`] since [`Self::spare`] was called.
    least: usize,
    /// The number of them that are for [`Purpose::Control`] only.
    kept: u32,
}

impl<B> FreeBuffers<B> {
    /// No buffers yet, with room for `most`, of which `kept` are for [`Purpose::Control`] only.
    fn new(most: u32, kept: u32) -> Result<Self> {
        Ok(Self {
            list: KVVec::with_capacity(usize::try_from(most)?, GFP_KERNEL)?,
            least: 0,
            kept,
        })
    }

    /// Puts a buffer in.
    pub(super) fn put(&mut self, buffer: B) {
        // Never more than the capacity: each buffer is out once.
        drop(self.list.push_within_capacity(buffer));
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of buffers that are free for a purpose.
    pub(super) fn count(&self, purpose: Purpose) -> usize {
        match purpose {
            Purpose::Rpc => self.list.len().saturating_sub(self.kept as usize),
            Purpose::Control => self.list.len(),
        }
    }

    /// Returns whether there are `count` for [`Purpose::Rpc`].
    #[inline]
    pub(super) fn has_for_rpc(&self, count: u32) -> bool {
        count == 0 || self.count(Purpose::Rpc) >= count as usize
    }

    /// Takes a buffer out, if there is one for the purpose.
    pub(super) fn take(&mut self, purpose: Purpose) -> Option<B> {
        let buffer = match self.count(purpose) {
            0 => None,
            _ => self.list.pop(),
        };
        self.least = self.least.min(self.count(Purpose::Rpc));
        buffer
    }

    /// Returns how many for [`Purpose::Rpc`] nobody has needed since the last call, and whether
    /// others were needed.
    pub(super) fn spare(&mut self) -> (usize, bool) {
        let now = self.count(Purpose::Rpc);
        let spare = core::mem::replace(&mut self.least, now).min(now);
        (spare, spare < now)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_send_gate)]
mod tests {
    use super::*;

    /// The purposes for which buffers are found, one after the other, if there are `count`, of
    /// which `kept` are for messages of the connection's own.
    fn found<const TAKEN: usize>(
        count: u32,
        kept: u32,
        purposes: [Purpose; TAKEN],
    ) -> Result<[bool; TAKEN]> {
        let mut free = FreeBuffers::new(count, kept)?;
        (0..count).for_each(|buffer| free.put(buffer));
        Ok(purposes.map(|purpose| free.take(purpose).is_some()))
    }

    /// Calls that come before anything else has been sent take what they can get, and their Replies
    /// wait for the properties of this end, which so need a buffer that is left.
    #[test]
    fn calls_leave_a_buffer_for_what_their_replies_wait_for() -> Result {
        use Purpose::{Control, Rpc};
        assert_eq!(
            found(3, 1, [Rpc, Rpc, Rpc, Control, Control])?,
            [true, true, false, true, false]
        );
        Ok(())
    }

    #[test]
    fn what_nobody_needed_is_spare() -> Result {
        let mut free = FreeBuffers::new(5, 1)?;
        (0..5).for_each(|buffer| free.put(buffer));
        // From the beginning there were none.
        assert_eq!(free.spare(), (0, true));
        assert_eq!(free.spare(), (4, false));
        let (one, two) = (free.take(Purpose::Rpc), free.take(Purpose::Rpc));
        [one, two]
            .into_iter()
            .flatten()
            .for_each(|buffer| free.put(buffer));
        assert_eq!(free.spare(), (2, true));
        assert_eq!(free.spare(), (4, false));
        Ok(())
    }

    #[test]
    fn where_none_is_kept_all_are_for_calls() -> Result {
        use Purpose::{Control, Rpc};
        assert_eq!(found(2, 0, [Rpc, Rpc, Control])?, [true, true, false]);
        Ok(())
    }
}
