// SPDX-License-Identifier: GPL-2.0

//! Larger Receive buffers that take the places of shorter ones, where connections share them.
//!
//! A Receive that is posted can't be taken back. So a larger buffer is posted in the place of a
//! shorter one when that comes back, which each does that a message arrives in. As long as there is
//! a shorter one no peer may be told of the larger size.

use crate::rdma::receive_buffer::{
    ReceiveBuffer,
    ReceiveKind, //
};
use core::mem;
use kernel::prelude::*;

/// A buffer that knows its size.
pub(super) trait HasSize {
    /// Returns the size in octets.
    fn size(&self) -> usize;
}

impl<K: ReceiveKind> HasSize for ReceiveBuffer<K> {
    fn size(&self) -> usize {
        self.len()
    }
}

/// The size of a set of buffers, and the larger ones that wait for places.
pub(super) struct Growth<B> {
    /// Octets of each buffer, those excepted that are shorter still.
    size: usize,
    /// The number of those that are.
    shorter: u32,
    /// Larger ones that wait for their places.
    stock: KVVec<B>,
}

impl<B: HasSize> Growth<B> {
    /// All buffers have `size` octets.
    pub(super) const fn new(size: usize) -> Self {
        Self {
            size,
            shorter: 0,
            stock: KVVec::new(),
        }
    }

    /// Returns the octets of a buffer that is made now.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Returns whether no buffer is shorter than that.
    pub(super) const fn is_over(&self) -> bool {
        self.shorter == 0
    }

    /// Returns whether nothing is left of a change: none is shorter, and none waits.
    pub(super) fn may_begin(&self) -> bool {
        self.is_over() && self.stock.is_empty()
    }

    /// Returns the number of buffers that are shorter.
    pub(super) const fn shorter(&self) -> u32 {
        self.shorter
    }

    /// Has buffers of `size` octets take the places of all `count` that there are. Those of `stock`
    /// are of this size; for more there is as much room as it has. Only if a change
    /// [may begin](Self::may_begin). Returns the stock of the last change, which is empty; to free
    /// its memory may sleep.
    #[must_use]
    pub(super) fn begin(&mut self, size: usize, count: u32, stock: KVVec<B>) -> KVVec<B> {
        self.size = size;
        self.shorter = count;
        mem::replace(&mut self.stock, stock)
    }

    /// Returns the number of larger buffers to be made for a stock of `most`.
    pub(super) fn missing(&self, most: u32) -> u32 {
        most.min(self.shorter).saturating_sub(self.waiting())
    }

    /// Returns whether nothing waits in vain, and there is more than half of a stock of `most`, or
    /// one for each that is shorter.
    pub(super) fn is_balanced(&self, most: u32) -> bool {
        let suffices = self.waiting() > most / 2 || self.missing(most) == 0;
        suffices && self.waiting() <= self.shorter
    }

    /// Returns the number of larger buffers that wait.
    fn waiting(&self) -> u32 {
        u32::try_from(self.stock.len()).unwrap_or(u32::MAX)
    }

    /// Has a larger buffer wait for its place. Returns it if there is no room.
    pub(super) fn add(&mut self, larger: B) -> Option<B> {
        if larger.size() < self.size || self.stock.len() == self.stock.capacity() {
            return Some(larger);
        }
        // There is room.
        let _ = self.stock.push_within_capacity(larger);
        None
    }

    /// Takes out a larger buffer that has no place to wait for.
    pub(super) fn surplus(&mut self) -> Option<B> {
        if self.waiting() > self.shorter {
            self.stock.pop()
        } else {
            None
        }
    }

    /// Puts a larger buffer where a shorter one is, which nobody else has. Returns that.
    pub(super) fn replace(&mut self, place: &mut B) -> Option<B> {
        if place.size() >= self.size {
            return None;
        }
        let larger = self.stock.pop()?;
        self.shorter = self.shorter.saturating_sub(1);
        Some(mem::replace(place, larger))
    }

    /// A buffer of `size` octets goes, and no other one takes its place.
    pub(super) fn forget(&mut self, size: usize) {
        if size < self.size {
            self.shorter = self.shorter.saturating_sub(1);
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_receive_growth)]
mod tests {
    use super::*;

    /// A buffer of these tests is its size.
    impl HasSize for usize {
        fn size(&self) -> usize {
            *self
        }
    }

    /// Room for `count` larger buffers.
    fn room(count: usize) -> Result<KVVec<usize>> {
        Ok(KVVec::with_capacity(count, GFP_KERNEL)?)
    }

    #[test]
    fn each_shorter_buffer_is_replaced_once() -> Result {
        let mut growth = Growth::new(10);
        assert!(growth.is_over());
        drop(growth.begin(20, 2, room(2)?));
        assert_eq!(growth.missing(8), 2);
        let mut place = 10;
        // None is there yet.
        assert_eq!(growth.replace(&mut place), None);
        assert_eq!((growth.add(20), growth.add(20)), (None, None));
        assert_eq!(growth.missing(8), 0);
        assert_eq!((growth.replace(&mut place), place), (Some(10), 20));
        assert_eq!(growth.replace(&mut place), None);
        assert!(!growth.is_over());
        place = 10;
        assert_eq!(growth.replace(&mut place), Some(10));
        assert!(growth.is_over());
        assert_eq!(growth.size(), 20);
        Ok(())
    }

    /// A buffer that was not needed any more had no larger one made for it in vain.
    #[test]
    fn what_goes_needs_no_larger_buffer() -> Result {
        let mut growth = Growth::new(10);
        drop(growth.begin(20, 2, room(2)?));
        assert_eq!((growth.add(20), growth.add(20)), (None, None));
        assert_eq!(growth.surplus(), None);
        growth.forget(20);
        assert_eq!(growth.shorter(), 2);
        growth.forget(10);
        assert_eq!(growth.surplus(), Some(20));
        assert_eq!(growth.surplus(), None);
        growth.forget(10);
        assert!(growth.is_over() && !growth.may_begin());
        assert_eq!(growth.surplus(), Some(20));
        assert!(growth.may_begin());
        Ok(())
    }

    /// The last few shorter buffers are waited for too.
    #[test]
    fn a_stock_is_made_up_for_while_any_is_shorter() -> Result {
        let mut growth = Growth::new(10);
        drop(growth.begin(20, 12, room(8)?));
        assert!(!growth.is_balanced(8));
        for _ in 0..8 {
            assert_eq!(growth.add(20), None);
        }
        for shorter in (4..12).rev() {
            assert!(growth.is_balanced(8) == (shorter > 7));
            assert_eq!(growth.replace(&mut 10), Some(10));
            assert_eq!(growth.shorter(), shorter);
        }
        assert!(!growth.is_balanced(8));
        for _ in 0..growth.missing(8) {
            assert_eq!(growth.add(20), None);
        }
        assert!(growth.is_balanced(8));
        growth.forget(10);
        assert!(!growth.is_balanced(8));
        Ok(())
    }

    #[test]
    fn the_stock_is_bounded() -> Result {
        let mut growth = Growth::new(10);
        drop(growth.begin(20, 100, room(4)?));
        let room = growth.stock.capacity();
        assert_eq!(growth.missing(4), 4);
        for _ in 0..room {
            assert_eq!(growth.add(20), None);
        }
        assert_eq!(growth.add(20), Some(20));
        assert_eq!(growth.missing(4), 0);
        // One that was begun before a still larger size was wanted.
        assert_eq!(growth.add(10), Some(10));
        Ok(())
    }
}
