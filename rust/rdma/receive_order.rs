// SPDX-License-Identifier: GPL-2.0

//! The order of the Receives of a Shared Receive Queue, and which of them are lost.
//!
//! A device may lose a Receive: one for a message of which the QP got only a part before it failed.
//! Receives are used in the order of posting: IBTA does not say so, but a queue in which devices
//! append what is posted, and take what is at its head, has no other order. So what was posted
//! before one that has completed, and has not completed itself, is either in use by a QP, one for
//! each at most, or lost.
//!
//! Which of them are lost is known later. A QP uses Receives in the order in which it took them; so
//! one that has used a Receive holds none that was posted before, and neither does one that was
//! made after a later one had completed. What was posted before all that the QPs may hold, and has
//! not completed, is held by none of them, and those that are gone have no completions left: it is
//! lost for certain, and can be posted again. On iWARP a QP may take Receives for several messages
//! at a time, in another order; there only the end of a QP counts.

use kernel::prelude::*;

/// Marks a vacant place among the QPs.
const VACANT: u64 = u64::MAX;

/// The Receives of a Shared Receive Queue. While one is posted, a `B` stands for its buffer.
pub(super) struct ReceiveOrder<B> {
    /// By the place of the buffer: which of all Receives it was posted as, if it is posted. With
    /// room for all.
    posted: KVVec<Option<(u64, B)>>,
    /// The number of QPs.
    members: u32,
    /// For each QP, by its place: it holds none of the Receives that were posted until this one.
    /// [`VACANT`] where there is no QP. With room for as many as there are Receives.
    past: KVVec<u64>,
    /// The largest number of QPs.
    most: usize,
    /// Set if a QP uses Receives in the order in which it took them.
    in_order: bool,
    /// The last Receive that [`Self::recover`] has looked at.
    recovered_to: u64,
    /// The number of Receives that were ever posted.
    last: u64,
    /// The number of them that have completed, or were recovered.
    completed: u64,
    /// The number of them until the last one that has completed.
    latest: u64,
}

impl<B> ReceiveOrder<B> {
    /// No Receives, with places for `buffers`, of which `depth` may be posted, and for as many QPs
    /// as may be posted. `in_order` is whether a QP of the device uses Receives in the order in
    /// which it took them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(depth: u32, buffers: u32, in_order: bool) -> Result<Self> {
        let members = usize::try_from(depth)?;
        let mut posted = KVVec::with_capacity(usize::try_from(buffers)?, GFP_KERNEL)?;
        for _ in 0..buffers {
            posted.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            posted,
            members: 0,
            past: KVVec::with_capacity(members, GFP_KERNEL)?,
            most: members,
            in_order,
            recovered_to: 0,
            last: 0,
            completed: 0,
            latest: 0,
        })
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
        } else if place < self.most {
            // There is room for all.
            let _ = self.past.push_within_capacity(past);
        } else {
            return Err(ENOSPC);
        }
        self.members += 1;
        Ok(u32::try_from(place)?)
    }

    /// A QP is gone, and all of its completions were taken note of.
    pub(super) fn leave(&mut self, place: u32) {
        let past = self.past.get_mut(place as usize);
        if let Some(past) = past.filter(|past| **past != VACANT) {
            *past = VACANT;
            self.members -= 1;
        }
    }

    /// A Receive with the buffer at `place` is posted next.
    pub(super) fn post(&mut self, place: u32, buffer: B) {
        if let Some(posted) = self.posted.get_mut(place as usize) {
            self.last += 1;
            *posted = Some((self.last, buffer));
        }
    }

    /// Takes note of the completion of the Receive with the buffer at `place`, by the QP `member`
    /// if that is still there. Returns what stood for the buffer. If there is nothing the device is
    /// mistaken.
    pub(super) fn completed(&mut self, place: u32, member: Option<u32>) -> Option<B> {
        let (number, buffer) = self.posted.get_mut(place as usize)?.take()?;
        self.completed += 1;
        self.latest = self.latest.max(number);
        let past = member.and_then(|member| self.past.get_mut(member as usize));
        if let Some(past) = past.filter(|past| self.in_order && **past != VACANT) {
            *past = (*past).max(number);
        }
        Some(buffer)
    }

    /// Gives to `lost` what no QP can hold any more and no QP will use: see the module's
    /// documentation. Returns how many there were.
    pub(super) fn recover(&mut self, mut lost: impl FnMut(B)) -> u32 {
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
        // There are no more that were overtaken.
        let overtaken = self.latest.saturating_sub(self.completed);
        let mut recovered = 0;
        for posted in self.posted.iter_mut() {
            if u64::from(recovered) >= overtaken {
                break;
            }
            if let Some((_, buffer)) = posted.take_if(|(number, _)| *number <= to) {
                lost(buffer);
                recovered += 1;
            }
        }
        self.completed += u64::from(recovered);
        recovered
    }

    /// Returns the place of the QP that may hold the oldest Receive, if there is a QP. What was
    /// lost after that Receive is not recovered before this QP has used another one, or is gone.
    pub(super) fn oldest(&self) -> Option<u32> {
        let places = self.past.iter().enumerate();
        let (place, past) = places.min_by_key(|(_, past)| **past)?;
        (*past != VACANT)
            .then(|| u32::try_from(place).ok())
            .flatten()
    }

    /// Returns the number of lost Receives, see the module's documentation.
    pub(super) fn lost(&self) -> u32 {
        let overdue = self.latest.saturating_sub(self.completed);
        let lost = overdue.saturating_sub(u64::from(self.members));
        u32::try_from(lost).unwrap_or(u32::MAX)
    }

    /// Returns the number of Receives that are posted and not lost.
    pub(super) fn posted(&self) -> u32 {
        let posted = self
            .last
            .saturating_sub(self.completed)
            .saturating_sub(self.lost().into());
        u32::try_from(posted).unwrap_or(u32::MAX)
    }

    /// Returns the number of QPs.
    pub(super) fn members(&self) -> u32 {
        self.members
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_receive_order)]
mod tests {
    use super::*;

    /// The buffer of a place, in these tests.
    type Order = ReceiveOrder<u32>;

    /// Enters more QPs.
    fn entered<const COUNT: usize>(order: &mut Order) -> Result<[u32; COUNT]> {
        let mut places = [0; COUNT];
        for place in &mut places {
            *place = order.enter()?;
        }
        Ok(places)
    }

    /// The oldest Receive that was posted after the `after`th, and its buffer.
    fn next(order: &Order, after: u64) -> Option<(u64, u32)> {
        let posted = order.posted.iter().copied().flatten();
        posted.filter(|(number, _)| *number > after).min()
    }

    /// The first `count` buffers were posted, in the order of their places.
    fn posted(order: &mut Order, count: u32) {
        for place in 0..count {
            repost(order, place);
        }
    }

    /// The buffer was posted.
    fn repost(order: &mut Order, place: u32) {
        order.post(place, place);
    }

    /// Recovers what is lost. Returns how many, and the last of them.
    fn recover(order: &mut Order) -> (u32, Option<u32>) {
        let mut last = None;
        let count = order.recover(|place| last = Some(place));
        (count, last)
    }

    #[test]
    fn what_is_overtaken_is_lost_but_for_one_per_queue_pair() -> Result {
        let mut order = Order::new(100, 100, true)?;
        let [first, second] = entered(&mut order)?;
        posted(&mut order, 10);
        // In order: nothing is missing.
        assert_eq!(order.completed(0, Some(first)), Some(0));
        assert_eq!(order.completed(1, Some(second)), Some(1));
        assert_eq!(order.lost(), 0);
        // The third to the fifth were overtaken; two of them may be in use.
        assert_eq!(order.completed(5, Some(first)), Some(5));
        assert_eq!(order.lost(), 1);
        // One of them completes after all.
        assert_eq!(order.completed(3, Some(second)), Some(3));
        assert_eq!(order.lost(), 0);
        // A QP that is gone uses none.
        order.leave(first);
        assert_eq!(order.lost(), 1);
        order.leave(second);
        assert_eq!(order.lost(), 2);
        // Four of ten have completed.
        assert_eq!((order.posted(), order.lost()), (4, 2));
        Ok(())
    }

    #[test]
    fn what_nobody_can_hold_is_recovered() -> Result {
        let mut order = Order::new(100, 100, true)?;
        let [cut, idle, busy] = entered(&mut order)?;
        posted(&mut order, 10);
        // The first Receive is that of a message that is cut: its QP goes without completing it.
        assert_eq!(order.completed(1, Some(busy)), Some(1));
        order.leave(cut);
        // The one that has received nothing may hold it.
        assert_eq!(recover(&mut order), (0, None));
        // This one may not hold any that was posted before; the others still may.
        let [late] = entered(&mut order)?;
        assert_eq!(recover(&mut order), (0, None));
        assert_eq!(order.completed(2, Some(idle)), Some(2));
        assert_eq!(recover(&mut order), (1, Some(0)));
        assert_eq!((order.lost(), order.posted()), (0, 7));
        // Once.
        assert_eq!(recover(&mut order), (0, None));
        // What was not overtaken is there for somebody.
        for place in [idle, busy, late] {
            order.leave(place);
        }
        assert_eq!(recover(&mut order), (0, None));
        assert_eq!(order.posted(), 7);
        Ok(())
    }

    #[test]
    fn what_one_may_still_hold_is_left_to_it() -> Result {
        let mut order = Order::new(100, 100, true)?;
        let [slow, busy] = entered(&mut order)?;
        posted(&mut order, 20);
        // The slow one's message takes its time; it does not matter how many others come meanwhile.
        for index in 1..20 {
            assert_eq!(order.completed(index, Some(busy)), Some(index));
        }
        assert_eq!(recover(&mut order), (0, None));
        assert_eq!(order.completed(0, Some(slow)), Some(0));
        assert_eq!((recover(&mut order), order.lost()), ((0, None), 0));
        Ok(())
    }

    #[test]
    fn many_cut_messages_use_up_no_receives() -> Result {
        let mut order = Order::new(40, 40, true)?;
        let [busy] = entered(&mut order)?;
        posted(&mut order, 4);
        for _ in 0..1000 {
            let [cut] = entered(&mut order)?;
            // The oldest one is for the message that is cut, the next one for one of the other's.
            let (held, _) = next(&order, 0).ok_or(EINVAL)?;
            let (_, used) = next(&order, held).ok_or(EINVAL)?;
            assert_eq!(order.completed(used, Some(busy)), Some(used));
            order.leave(cut);
            let (count, recovered) = recover(&mut order);
            assert_eq!((count, order.lost()), (1, 0));
            repost(&mut order, used);
            repost(&mut order, recovered.ok_or(EINVAL)?);
        }
        assert_eq!(order.posted(), 4);
        Ok(())
    }

    /// As long as one QP says nothing, nothing that others lose is recovered: that one is known.
    #[test]
    fn a_silent_queue_pair_is_found() -> Result {
        let mut order = Order::new(40, 40, true)?;
        assert_eq!(order.oldest(), None);
        let [busy, silent] = entered(&mut order)?;
        posted(&mut order, 20);
        let mut after = 0;
        for _ in 0..8 {
            let [cut] = entered(&mut order)?;
            let (held, _) = next(&order, after).ok_or(EINVAL)?;
            let (number, used) = next(&order, held).ok_or(EINVAL)?;
            after = number;
            assert_eq!(order.completed(used, Some(busy)), Some(used));
            order.leave(cut);
            assert_eq!(recover(&mut order), (0, None));
        }
        assert!(order.lost() > 0);
        assert_eq!(order.oldest(), Some(silent));
        order.leave(silent);
        assert!(recover(&mut order).0 > 0);
        assert_eq!((order.lost(), order.oldest()), (0, Some(busy)));
        Ok(())
    }

    #[test]
    fn without_order_only_the_end_of_a_queue_pair_counts() -> Result {
        let mut order = Order::new(100, 100, false)?;
        let [cut, other] = entered(&mut order)?;
        posted(&mut order, 10);
        assert_eq!(order.completed(1, Some(other)), Some(1));
        order.leave(cut);
        assert_eq!(recover(&mut order), (0, None));
        order.leave(other);
        assert_eq!(recover(&mut order).0, 1);
        Ok(())
    }

    #[test]
    fn what_was_not_posted_does_not_complete() -> Result {
        let mut order = Order::new(4, 4, true)?;
        posted(&mut order, 2);
        assert_eq!(order.completed(3, None), None);
        assert_eq!(order.completed(4, None), None);
        assert_eq!(order.completed(1, None), Some(1));
        assert_eq!(order.completed(1, None), None);
        assert_eq!(order.completed, 1);
        Ok(())
    }

    #[test]
    fn there_are_no_more_queue_pairs_than_receives() -> Result {
        let mut order = Order::new(2, 2, true)?;
        let [first, _] = entered(&mut order)?;
        assert_eq!(order.enter(), Err(ENOSPC));
        order.leave(first);
        order.leave(first);
        assert_eq!(order.members, 1);
        assert_eq!(order.enter(), Ok(first));
        Ok(())
    }
}
