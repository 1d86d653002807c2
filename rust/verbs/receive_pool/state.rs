// SPDX-License-Identifier: GPL-2.0

//! What is posted to a Shared Receive Queue, and what could be.

use crate::sys;
use crate::verbs::endpoint::{ReceiveSlot, RECEIVE_BATCH};
use crate::verbs::receive_chain::ReceiveChain;
use core::ptr::{self, NonNull};
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;

/// What the lock of a pool protects.
pub(super) struct State {
    /// The queue, until the pool is closed.
    pub(super) srq: Option<NonNull<sys::ib_srq>>,
    /// The key for local memory.
    pub(super) lkey: u32,
    /// All buffers, by index. With room for `limit`.
    pub(super) slots: KVVec<Option<KBox<ReceiveSlot>>>,
    /// The places in `slots` without a buffer. With room for `limit`.
    pub(super) vacant: KVVec<u32>,
    /// The buffers that are neither posted nor lent. With room for `limit`.
    pub(super) idle: KVVec<u32>,
    /// How many buffers there are.
    pub(super) made: u32,
    /// How many Receives were asked for.
    pub(super) wanted: u32,
    /// How many connections there are.
    pub(super) ends: u32,
    /// How many Receives were posted, ever.
    pub(super) posted: u64,
    /// How many of them have completed.
    pub(super) completed: u64,
    /// How many were posted until the last one that has completed.
    pub(super) latest: u64,
    /// How many times Receives were posted.
    refills: u64,
}

/// For what Receives are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Without them a connection is of no use.
    Vital,
    /// The peer would get on faster with them. A quarter of all is not for this, so that those who have many leave some to
    /// those who come.
    More,
}

/// How full a Shared Receive Queue is at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolLevel {
    /// Connections that share it.
    pub(crate) connections: u32,
    /// Receives that they have asked for.
    pub(crate) asked: u32,
    /// Buffers that there are.
    pub(crate) buffers: u32,
    /// Buffers that there may be.
    pub(crate) limit: u32,
    /// Receives that are posted and may be used, or are in use by a message that is arriving.
    pub(crate) posted: u32,
    /// Receives that the device has lost.
    pub(crate) lost: u32,
    /// How many times Receives were posted, a batch each, while there was a pool.
    pub(crate) refills: u64,
}

// SAFETY: An SRQ may be used from any context; the state is used under its lock.
unsafe impl Send for State {}

impl State {
    /// No buffers, with places for `limit`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(limit: u32) -> Result<Self> {
        let places = usize::try_from(limit)?;
        let mut slots = KVVec::with_capacity(places, GFP_KERNEL)?;
        let mut vacant = KVVec::with_capacity(places, GFP_KERNEL)?;
        for index in (0..limit).rev() {
            slots.push(None, GFP_KERNEL)?;
            vacant.push(index, GFP_KERNEL)?;
        }
        Ok(Self {
            srq: None,
            lkey: 0,
            slots,
            vacant,
            idle: KVVec::with_capacity(places, GFP_KERNEL)?,
            made: 0,
            wanted: 0,
            ends: 0,
            posted: 0,
            completed: 0,
            latest: 0,
            refills: 0,
        })
    }

    /// Takes note of the completion of the Receive that was posted as the `posted_as`th.
    pub(super) fn completed(&mut self, posted_as: u64) {
        self.completed += 1;
        self.latest = self.latest.max(posted_as);
    }

    /// How many Receives are lost: see the module's documentation.
    fn lost(&self) -> u32 {
        let overdue = self.latest.saturating_sub(self.completed);
        let lost = overdue.saturating_sub(u64::from(self.ends));
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    /// How full the queue is.
    pub(super) fn level(&self) -> PoolLevel {
        let lost = self.lost();
        let posted = self
            .posted
            .saturating_sub(self.completed)
            .saturating_sub(lost.into());
        PoolLevel {
            connections: self.ends,
            asked: self.wanted,
            buffers: self.made,
            limit: self.limit(),
            posted: u32::try_from(posted).unwrap_or(u32::MAX),
            lost,
            refills: self.refills,
        }
    }

    /// How many buffers there should be.
    pub(super) fn target(&self) -> u32 {
        self.wanted
            .saturating_add(RECEIVE_BATCH)
            .saturating_add(self.lost())
    }

    /// How many buffers there may be.
    fn limit(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// How many Receives are for what is vital only.
    fn reserve(&self) -> u32 {
        self.limit().saturating_sub(RECEIVE_BATCH) / 4
    }

    /// How many Receives each connection may ask for if all have the same.
    pub(super) fn share(&self) -> u32 {
        let others = self.reserve() + RECEIVE_BATCH;
        let all = self.limit().saturating_sub(others);
        all.saturating_sub(self.lost()) / self.ends.max(1)
    }

    /// Asks for `count` Receives more, if there may be so many buffers.
    ///
    /// # Errors
    ///
    /// `ENOSPC`. Then nothing has changed, so who asks for less meanwhile gets it.
    pub(super) fn ask(&mut self, count: u32, need: Need) -> Result {
        let limit = match need {
            Need::Vital => self.limit(),
            Need::More => self.limit() - self.reserve(),
        };
        let before = self.wanted;
        self.wanted = before.checked_add(count).ok_or(ENOSPC)?;
        if self.target() > limit {
            self.wanted = before;
            return Err(ENOSPC);
        }
        Ok(())
    }

    /// Posts a batch of idle buffers, or what there is of them.
    ///
    /// # Errors
    ///
    /// What the device reports. Then the buffers are not idle any more.
    pub(super) fn post(&mut self) -> Result {
        let srq = self.srq.ok_or(ENODEV)?;
        let mut chain = ReceiveChain::new();
        for _ in 0..RECEIVE_BATCH {
            let Some(index) = self.idle.pop() else { break };
            let Some(Some(slot)) = self.slots.get(index as usize) else {
                continue;
            };
            self.posted += 1;
            slot.posted_as.store(self.posted, Relaxed);
            // SAFETY: The buffer is mapped while the queue exists, and was idle; the slot stays in the table until it is
            // recycled.
            unsafe { chain.add(slot, self.lkey) };
        }
        let first = chain.first();
        if first.is_null() {
            return Ok(());
        }
        // SAFETY: The queue is live while it is in the state, whose lock is held; the chain and its SGEs are valid for
        // the call; the buffers and their completion entries stay in the table until they have completed.
        to_result(unsafe { sys::ib_post_srq_recv(srq.as_ptr(), first, ptr::null_mut()) })?;
        self.refills += 1;
        Ok(())
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_receive_pool_state)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_more_than_was_asked_for() -> Result {
        let mut state = State::new(100)?;
        assert_eq!(state.target(), RECEIVE_BATCH);
        state.wanted = 20;
        assert_eq!(state.target(), 20 + RECEIVE_BATCH);
        assert_eq!((state.slots.len(), state.vacant.len()), (100, 100));
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_not_asked_for() -> Result {
        let mut state = State::new(RECEIVE_BATCH + 10)?;
        state.ask(4, Need::Vital)?;
        assert_eq!(state.ask(7, Need::Vital), Err(ENOSPC));
        assert_eq!(state.ask(u32::MAX, Need::Vital), Err(ENOSPC));
        assert_eq!(state.wanted, 4);
        state.ask(6, Need::Vital)?;
        assert_eq!(state.ask(1, Need::Vital), Err(ENOSPC));
        assert_eq!(state.wanted, 10);
        Ok(())
    }

    #[test]
    fn a_quarter_is_for_what_is_vital() -> Result {
        let mut state = State::new(RECEIVE_BATCH + 40)?;
        state.ends = 3;
        assert_eq!(state.share(), 10);
        state.ask(30, Need::More)?;
        assert_eq!(state.ask(1, Need::More), Err(ENOSPC));
        state.ask(10, Need::Vital)?;
        assert_eq!(state.ask(1, Need::Vital), Err(ENOSPC));
        // Who comes does not make it less for the others to ask for again.
        state.wanted -= 11;
        state.ask(1, Need::More)?;
        assert_eq!(state.ask(1, Need::More), Err(ENOSPC));
        Ok(())
    }

    #[test]
    fn nobody_has_a_share_of_what_is_lost() -> Result {
        let mut state = State::new(RECEIVE_BATCH + 40)?;
        state.ends = 2;
        state.posted = 10;
        state.completed(5);
        assert_eq!((state.lost(), state.share()), (2, 14));
        state.ends = 0;
        assert_eq!(state.share(), 26);
        Ok(())
    }

    #[test]
    fn what_is_overtaken_is_lost_but_for_one_per_queue_pair() -> Result {
        let mut state = State::new(100)?;
        state.ends = 2;
        state.posted = 10;
        // In order: nothing is missing.
        state.completed(1);
        state.completed(2);
        assert_eq!(state.lost(), 0);
        // The third to the fifth were overtaken; two of them may be in use.
        state.completed(6);
        assert_eq!(state.lost(), 1);
        // One of them completes after all.
        state.completed(4);
        assert_eq!(state.lost(), 0);
        // A Queue Pair that is gone uses none.
        state.ends = 1;
        assert_eq!(state.lost(), 1);
        assert_eq!(state.target(), RECEIVE_BATCH + 1);
        state.ends = 0;
        assert_eq!(state.lost(), 2);
        // Four of ten have completed.
        let level = state.level();
        assert_eq!((level.posted, level.lost, level.limit), (4, 2, 100));
        Ok(())
    }

    #[test]
    fn nothing_is_posted_without_a_queue() -> Result {
        let mut state = State::new(4)?;
        assert_eq!(state.post(), Err(ENODEV));
        assert_eq!(state.posted, 0);
        assert_eq!(state.level().refills, 0);
        Ok(())
    }
}
