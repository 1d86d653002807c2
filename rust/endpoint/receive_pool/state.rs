// SPDX-License-Identifier: GPL-2.0

//! The Receives of a Shared Receive Queue: those that are posted, and those that could be.

use crate::{
    endpoint::{
        receive_chain::ReceiveChain,
        ReceiveSlot,
        RECEIVE_BATCH, //
    },
    rdma::{
        completion::{
            Completes,
            Posting, //
        },
        shared_receive_queue::SharedReceiveQueue, //
    },
    sys, //
};
use core::ptr;
use kernel::{
    error::to_result,
    prelude::*,
    sync::Arc, //
};

/// Marks a vacant place among the ends.
const VACANT: u64 = u64::MAX;

/// The state that the lock of a pool protects.
pub(super) struct State<T: Completes> {
    /// The queue, until the pool is closed.
    pub(super) srq: Option<Arc<SharedReceiveQueue>>,
    /// The key for local memory.
    lkey: u32,
    /// All buffers, by index. With room for `limit`.
    pub(super) slots: KVVec<Option<KBox<Posting<T>>>>,
    /// The places in `slots` without a buffer. With room for `limit`.
    pub(super) vacant: KVVec<u32>,
    /// The buffers that are neither posted nor lent. With room for `limit`.
    pub(super) idle: KVVec<u32>,
    /// Which of all Receives each buffer was posted as, by index; zero for one that is not posted.
    posted_as: KVVec<u64>,
    /// The number of buffers.
    pub(super) made: u32,
    /// The number of Receives that were asked for.
    pub(super) wanted: u32,
    /// The number of connections.
    ends: u32,
    /// For each QP, by its place: it holds none of the Receives that were posted until this one.
    /// [`VACANT`] where there is no QP. With room for `limit`.
    past: KVVec<u64>,
    /// Set if a QP uses Receives in the order in which it took them.
    in_order: bool,
    /// The last Receive that [`Self::recover`] has looked at.
    recovered_to: u64,
    /// The number of Receives that were ever posted.
    posted: u64,
    /// The number of them that have completed, or were recovered.
    completed: u64,
    /// The number of them until the last one that has completed.
    latest: u64,
    /// The number of times that Receives were posted.
    refills: u64,
}

/// For what Receives are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Without them a connection is of no use.
    Vital,
    /// The peer would get on faster with them. A quarter of all is not for this, so that those who
    /// have many leave some to those who come.
    More,
}

/// The use of a Shared Receive Queue at a moment.
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
    /// Receives that the device has lost, and that were not recovered yet.
    pub(crate) lost: u32,
    /// The number of batches of Receives that were posted while there was a pool.
    pub(crate) refills: u64,
}

impl<T: Completes + AsRef<ReceiveSlot>> State<T> {
    /// No buffers, with places for `limit`, and for as many QPs. `in_order` is whether a QP of the
    /// device uses Receives in the order in which it took them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(limit: u32, in_order: bool) -> Result<Self> {
        let places = usize::try_from(limit)?;
        let mut posted_as = KVVec::with_capacity(places, GFP_KERNEL)?;
        let mut slots = KVVec::with_capacity(places, GFP_KERNEL)?;
        let mut vacant = KVVec::with_capacity(places, GFP_KERNEL)?;
        for index in (0..limit).rev() {
            slots.push(None, GFP_KERNEL)?;
            posted_as.push(0, GFP_KERNEL)?;
            vacant.push(index, GFP_KERNEL)?;
        }
        Ok(Self {
            srq: None,
            lkey: 0,
            slots,
            vacant,
            idle: KVVec::with_capacity(places, GFP_KERNEL)?,
            posted_as,
            made: 0,
            wanted: 0,
            ends: 0,
            past: KVVec::with_capacity(places, GFP_KERNEL)?,
            in_order,
            recovered_to: 0,
            posted: 0,
            completed: 0,
            latest: 0,
            refills: 0,
        })
    }

    /// Receives are posted to `queue` from now on.
    pub(super) fn open(&mut self, queue: Arc<SharedReceiveQueue>) {
        self.lkey = queue.pd().local_dma_lkey();
        self.srq = Some(queue);
    }

    /// No Receives are posted from now on. Returns the queue.
    pub(super) fn close(&mut self) -> Option<Arc<SharedReceiveQueue>> {
        self.srq.take()
    }

    /// A QP is about to be made. Returns its place.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are as many as there may be Receives: there would be none for it.
    pub(super) fn enter(&mut self) -> Result<u32> {
        // What has completed was taken by others, and so was what was posted before it.
        let past = self.latest;
        let vacant = self.past.iter().position(|past| *past == VACANT);
        let place = vacant.unwrap_or(self.past.len());
        if let Some(vacant) = self.past.get_mut(place) {
            *vacant = past;
        } else if place < self.slots.len() {
            // There is room for all.
            let _ = self.past.push_within_capacity(past);
        } else {
            return Err(ENOSPC);
        }
        self.ends += 1;
        Ok(u32::try_from(place)?)
    }

    /// A QP is gone, and all of its completions were taken note of.
    pub(super) fn leave(&mut self, place: u32) {
        let past = self.past.get_mut(place as usize);
        if let Some(past) = past.filter(|past| **past != VACANT) {
            *past = VACANT;
            self.ends -= 1;
        }
    }

    /// Takes note of the completion of the Receive with the buffer `index`, by the QP at `place` if
    /// that is still there. Returns whether the buffer was posted. If it was not, the device is
    /// mistaken.
    #[must_use]
    pub(super) fn completed(&mut self, index: u32, place: Option<u32>) -> bool {
        let posted_as = self.posted_as.get_mut(index as usize);
        let Some(posted_as) = posted_as.filter(|posted_as| **posted_as != 0) else {
            return false;
        };
        let posted_as = core::mem::take(posted_as);
        self.completed += 1;
        self.latest = self.latest.max(posted_as);
        let past = place.and_then(|place| self.past.get_mut(place as usize));
        if let Some(past) = past.filter(|past| self.in_order && **past != VACANT) {
            *past = (*past).max(posted_as);
        }
        true
    }

    /// Makes idle what no QP can hold any more and no QP will use: see the module's documentation.
    /// Returns how many there were.
    pub(super) fn recover(&mut self) -> u32 {
        // Nothing was overtaken.
        if self.latest == self.completed {
            return 0;
        }
        let oldest = self.past.iter().copied().min().unwrap_or(VACANT);
        let to = oldest.min(self.latest);
        if to <= self.recovered_to {
            return 0;
        }
        self.recovered_to = to;
        let mut recovered = 0;
        for (index, posted_as) in (0..).zip(self.posted_as.iter_mut()) {
            if *posted_as != 0 && *posted_as <= to {
                *posted_as = 0;
                // There is room for all.
                let _ = self.idle.push_within_capacity(index);
                recovered += 1;
            }
        }
        self.completed += u64::from(recovered);
        recovered
    }

    /// Returns the number of lost Receives, see the module's documentation.
    pub(super) fn lost(&self) -> u32 {
        let overdue = self.latest.saturating_sub(self.completed);
        let lost = overdue.saturating_sub(u64::from(self.ends));
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    /// Returns the use of the queue.
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

    /// Returns the number of buffers that there should be.
    pub(super) fn target(&self) -> u32 {
        self.wanted
            .saturating_add(RECEIVE_BATCH)
            .saturating_add(self.lost())
    }

    /// Returns whether there are fewer than there should be, and may be.
    pub(super) fn too_few(&self) -> bool {
        self.made < self.target().min(self.limit())
    }

    /// Takes an idle buffer out of the table.
    pub(super) fn remove_idle(&mut self) -> Option<KBox<Posting<T>>> {
        let index = self.idle.pop()?;
        let slot = self.slots.get_mut(index as usize)?.take()?;
        self.made -= 1;
        // There is room for all.
        let _ = self.vacant.push_within_capacity(index);
        Some(slot)
    }

    /// Returns the largest number of buffers.
    fn limit(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of Receives that are for [`Need::Vital`] only.
    fn reserve(&self) -> u32 {
        self.limit().saturating_sub(RECEIVE_BATCH) / 4
    }

    /// Returns the number of Receives that each connection may ask for if all have the same.
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
        let srq = self.srq.as_ref().ok_or(ENODEV)?.as_ptr();
        let mut chain = ReceiveChain::new();
        for _ in 0..RECEIVE_BATCH {
            let Some(index) = self.idle.pop() else { break };
            let at = index as usize;
            let (Some(Some(slot)), Some(posted_as)) =
                (self.slots.get(at), self.posted_as.get_mut(at))
            else {
                continue;
            };
            self.posted += 1;
            *posted_as = self.posted;
            // SAFETY: The buffer is mapped while the queue exists, and was idle; the slot stays in
            // the table until it is recycled.
            unsafe { chain.add(slot, self.lkey) };
        }
        let first = chain.first();
        if first.is_null() {
            return Ok(());
        }
        // SAFETY: The queue is live while it is in the state, whose lock is held; the chain and its
        // SGEs are valid for the call; the buffers and their completion entries stay in the table
        // until they have completed.
        to_result(unsafe { sys::ib_post_srq_recv(srq, first, ptr::null_mut()) })?;
        self.refills += 1;
        Ok(())
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_receive_pool_state)]
mod tests {
    use super::*;
    use crate::rdma::completion::Completion;
    use core::convert::Infallible;
    use kernel::sync::ArcBorrow;

    /// Stands for a Receive buffer; there is none here.
    struct Nothing(Infallible);

    impl AsRef<ReceiveSlot> for Nothing {
        fn as_ref(&self) -> &ReceiveSlot {
            match self.0 {}
        }
    }

    impl Completes for Nothing {
        type Owner = ();

        fn completed(&self, _owner: ArcBorrow<'_, ()>, _completion: Completion<'_>) {
            match self.0 {}
        }
    }

    /// Enters more QPs.
    fn entered<const COUNT: usize>(state: &mut State<Nothing>) -> Result<[u32; COUNT]> {
        let mut places = [0; COUNT];
        for place in &mut places {
            *place = state.enter()?;
        }
        Ok(places)
    }

    /// The buffer was posted.
    fn repost(state: &mut State<Nothing>, index: u32) {
        state.posted += 1;
        if let Some(posted_as) = state.posted_as.get_mut(index as usize) {
            *posted_as = state.posted;
        }
    }

    /// The oldest Receive that was posted after the `after`th, and its buffer.
    fn next(state: &State<Nothing>, after: u64) -> Option<(u64, u32)> {
        let posted = state.posted_as.iter().copied().zip(0..);
        posted.filter(|(posted_as, _)| *posted_as > after).min()
    }

    /// The first `count` buffers were posted, in the order of their indices.
    fn posted(state: &mut State<Nothing>, count: u32) {
        for index in 0..count {
            repost(state, index);
        }
    }

    #[test]
    fn a_batch_more_than_was_asked_for() -> Result {
        let mut state = State::<Nothing>::new(100, true)?;
        assert_eq!(state.target(), RECEIVE_BATCH);
        state.wanted = 20;
        assert_eq!(state.target(), 20 + RECEIVE_BATCH);
        assert_eq!((state.slots.len(), state.vacant.len()), (100, 100));
        Ok(())
    }

    #[test]
    fn what_does_not_fit_is_not_asked_for() -> Result {
        let mut state = State::<Nothing>::new(RECEIVE_BATCH + 10, true)?;
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
        let mut state = State::<Nothing>::new(RECEIVE_BATCH + 40, true)?;
        entered::<3>(&mut state)?;
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
        let mut state = State::<Nothing>::new(RECEIVE_BATCH + 40, true)?;
        let [first, second] = entered(&mut state)?;
        posted(&mut state, 10);
        assert!(state.completed(4, Some(first)));
        assert_eq!((state.lost(), state.share()), (2, 14));
        state.leave(first);
        state.leave(second);
        assert_eq!(state.share(), 26);
        Ok(())
    }

    #[test]
    fn what_is_overtaken_is_lost_but_for_one_per_queue_pair() -> Result {
        let mut state = State::<Nothing>::new(100, true)?;
        let [first, second] = entered(&mut state)?;
        posted(&mut state, 10);
        // In order: nothing is missing.
        assert!(state.completed(0, Some(first)));
        assert!(state.completed(1, Some(second)));
        assert_eq!(state.lost(), 0);
        // The third to the fifth were overtaken; two of them may be in use.
        assert!(state.completed(5, Some(first)));
        assert_eq!(state.lost(), 1);
        // One of them completes after all.
        assert!(state.completed(3, Some(second)));
        assert_eq!(state.lost(), 0);
        // A Queue Pair that is gone uses none.
        state.leave(first);
        assert_eq!(state.lost(), 1);
        assert_eq!(state.target(), RECEIVE_BATCH + 1);
        state.leave(second);
        assert_eq!(state.lost(), 2);
        // Four of ten have completed.
        let level = state.level();
        assert_eq!((level.posted, level.lost, level.limit), (4, 2, 100));
        Ok(())
    }

    #[test]
    fn what_nobody_can_hold_is_recovered() -> Result {
        let mut state = State::<Nothing>::new(100, true)?;
        let [cut, idle, busy] = entered(&mut state)?;
        posted(&mut state, 10);
        // The first Receive is that of a message that is cut: its Queue Pair goes without
        // completing it.
        assert!(state.completed(1, Some(busy)));
        state.leave(cut);
        // The one that has received nothing may hold it.
        assert_eq!(state.recover(), 0);
        // This one may not hold any that was posted before; the others still may.
        let [late] = entered(&mut state)?;
        assert_eq!(state.recover(), 0);
        assert!(state.completed(2, Some(idle)));
        assert_eq!(state.recover(), 1);
        assert_eq!(state.idle.pop(), Some(0));
        assert_eq!((state.lost(), state.level().posted), (0, 7));
        // Once.
        assert_eq!(state.recover(), 0);
        // What was not overtaken is there for somebody.
        for place in [idle, busy, late] {
            state.leave(place);
        }
        assert_eq!(state.recover(), 0);
        assert_eq!(state.level().posted, 7);
        Ok(())
    }

    #[test]
    fn what_one_may_still_hold_is_left_to_it() -> Result {
        let mut state = State::<Nothing>::new(100, true)?;
        let [slow, busy] = entered(&mut state)?;
        posted(&mut state, 20);
        // The slow one's message takes its time; it does not matter how many others come meanwhile.
        for index in 1..20 {
            assert!(state.completed(index, Some(busy)));
        }
        assert_eq!(state.recover(), 0);
        assert!(state.completed(0, Some(slow)));
        assert_eq!((state.recover(), state.lost()), (0, 0));
        assert!(state.idle.is_empty());
        Ok(())
    }

    #[test]
    fn many_cut_messages_use_up_no_receives() -> Result {
        let mut state = State::<Nothing>::new(40, true)?;
        let [busy] = entered(&mut state)?;
        posted(&mut state, 4);
        for _ in 0..1000 {
            let [cut] = entered(&mut state)?;
            // The oldest one is for the message that is cut, the next one for one of the other's.
            let (held, _) = next(&state, 0).ok_or(EINVAL)?;
            let (_, used) = next(&state, held).ok_or(EINVAL)?;
            assert!(state.completed(used, Some(busy)));
            state.leave(cut);
            assert_eq!(state.recover(), 1);
            assert_eq!(state.lost(), 0);
            repost(&mut state, used);
            let recovered = state.idle.pop().ok_or(EINVAL)?;
            repost(&mut state, recovered);
        }
        assert_eq!(state.level().posted, 4);
        Ok(())
    }

    #[test]
    fn without_order_only_the_end_of_a_queue_pair_counts() -> Result {
        let mut state = State::<Nothing>::new(100, false)?;
        let [cut, other] = entered(&mut state)?;
        posted(&mut state, 10);
        assert!(state.completed(1, Some(other)));
        state.leave(cut);
        assert_eq!(state.recover(), 0);
        state.leave(other);
        assert_eq!(state.recover(), 1);
        Ok(())
    }

    #[test]
    fn what_was_not_posted_does_not_complete() -> Result {
        let mut state = State::<Nothing>::new(4, true)?;
        posted(&mut state, 2);
        assert!(!state.completed(3, None));
        assert!(!state.completed(4, None));
        assert!(state.completed(1, None));
        assert!(!state.completed(1, None));
        assert_eq!(state.completed, 1);
        Ok(())
    }

    #[test]
    fn there_are_no_more_queue_pairs_than_receives() -> Result {
        let mut state = State::<Nothing>::new(2, true)?;
        let [first, _] = entered(&mut state)?;
        assert_eq!(state.enter(), Err(ENOSPC));
        state.leave(first);
        state.leave(first);
        assert_eq!(state.ends, 1);
        assert_eq!(state.enter(), Ok(first));
        Ok(())
    }

    #[test]
    fn nothing_is_posted_without_a_queue() -> Result {
        let mut state = State::<Nothing>::new(4, true)?;
        assert_eq!(state.post(), Err(ENODEV));
        assert_eq!(state.posted, 0);
        assert_eq!(state.level().refills, 0);
        Ok(())
    }
}
