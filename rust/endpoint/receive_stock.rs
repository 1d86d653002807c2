// SPDX-License-Identifier: GPL-2.0

//! The number and the size of an endpoint's Receive buffers.
//!
//! Both change while the connection lives. A Receive that is posted can't be taken back, so a
//! buffer that is not wanted any more, or has another size than is wanted, goes when it comes back,
//! which each does that a message arrives in. A buffer takes the place of another one before that
//! goes: at no time are there fewer than the peer may count on.

use crate::rdma::receive_buffer::RECEIVE_BATCH;
use kernel::prelude::*;

/// The most buffers of the wanted size that wait until others come back.
pub(crate) const REPLACEMENTS: u32 = 8;

/// The number and the size of buffers.
pub(super) struct Stock {
    /// The number of Receives that are posted, or in use, at least.
    target: u32,
    /// The most buffers.
    most: u32,
    /// The number of buffers.
    made: u32,
    /// The number of them that have another size than is wanted.
    unfit: u32,
    /// The size that is wanted, in octets.
    size: usize,
    /// Set if that is less than it was.
    shrinks: bool,
}

impl Stock {
    /// There are no buffers yet, and `most` at most later; `target` of them, of `size` octets, are
    /// wanted.
    pub(super) const fn new(target: u32, most: u32, size: usize) -> Self {
        Self {
            target,
            most,
            made: 0,
            unfit: 0,
            size,
            shrinks: false,
        }
    }

    /// Returns how many buffers are posted together: one less may be idle, beyond the target.
    pub(super) fn batch(&self) -> u32 {
        (self.target / 8).clamp(1, RECEIVE_BATCH)
    }

    /// Returns how many buffers are wanted, if none has to be replaced.
    fn full(&self) -> u32 {
        self.target.saturating_add(self.batch() - 1)
    }

    /// Returns how many buffers may wait for the place of another one. Smaller ones are to save
    /// memory, so only one of them waits.
    fn replacements(&self) -> u32 {
        self.unfit.min(if self.shrinks { 1 } else { REPLACEMENTS })
    }

    /// Returns the number of Receives that are posted, or in use, at least.
    pub(super) const fn target(&self) -> u32 {
        self.target
    }

    /// Returns the number of buffers.
    pub(super) const fn made(&self) -> u32 {
        self.made
    }

    /// Returns the number of buffers that have another size than is wanted.
    pub(super) const fn unfit(&self) -> u32 {
        self.unfit
    }

    /// Returns the size that is wanted, in octets.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// Wants `count` more. Returns false, and changes nothing, if there may not be as many.
    pub(super) fn raise(&mut self, count: u32) -> bool {
        let before = self.target;
        self.target = before.saturating_add(count);
        let may = self.full() <= self.most;
        if !may {
            self.target = before;
        }
        may
    }

    /// Wants `count` fewer.
    pub(super) fn lower(&mut self, count: u32) {
        self.target = self.target.saturating_sub(count);
    }

    /// Wants all buffers to have `size` octets. Returns false, and changes nothing, while some have
    /// another size than was wanted so far.
    pub(super) fn resize(&mut self, size: usize) -> bool {
        let may = self.unfit == 0;
        if may && self.size != size {
            self.shrinks = size < self.size;
            self.size = size;
            self.unfit = self.made;
        }
        may
    }

    /// Returns whether there are too few buffers.
    pub(super) fn wants_more(&self) -> bool {
        let wanted = self.full().saturating_add(self.replacements());
        self.made < wanted.min(self.most)
    }

    /// Counts a buffer that the caller is about to make, if there are too few. Returns the size
    /// that it is to have.
    pub(super) fn claim(&mut self) -> Option<usize> {
        let size = self.wants_more().then_some(self.size);
        self.made += u32::from(size.is_some());
        size
    }

    /// A buffer of `len` octets that was [claimed](Self::claim) could not be made.
    pub(super) fn unclaim(&mut self, len: usize) {
        self.made -= 1;
        // It was counted among those if another size is wanted meanwhile.
        self.unfit = self.unfit.saturating_sub((len != self.size).into());
    }

    /// A buffer of `len` octets has come back. Returns whether to keep it; if not it does not count
    /// any more.
    pub(super) fn keeps(&mut self, len: usize) -> bool {
        let is_unfit = len != self.size;
        let waiting = if is_unfit { 0 } else { self.replacements() };
        let keeps = self.made <= self.full().saturating_add(waiting);
        if !keeps {
            self.made -= 1;
            self.unfit = self.unfit.saturating_sub(is_unfit.into());
        }
        keeps
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_receive_stock)]
mod tests {
    use super::*;

    /// Makes what is wanted. Returns how many that were.
    fn make(stock: &mut Stock) -> u32 {
        let mut count = 0;
        while let Some(size) = stock.claim() {
            assert_eq!(size, stock.size());
            count += 1;
        }
        count
    }

    /// With few Receives none is idle, with many an eighth of them are at most.
    #[test]
    fn few_are_idle() {
        for (target, batch, made) in [
            (5, 1, 5),
            (15, 1, 15),
            (16, 2, 17),
            (73, 9, 81),
            (400, 16, 415),
        ] {
            let mut stock = Stock::new(target, 1000, 4096);
            assert_eq!(make(&mut stock), made);
            assert_eq!(stock.batch(), batch);
            assert!(stock.keeps(4096) && !stock.wants_more());
        }
    }

    /// What is not wanted any more goes one by one as it comes back.
    #[test]
    fn the_target_is_approached_from_above() {
        let mut stock = Stock::new(5, 14, 4096);
        assert_eq!(make(&mut stock), 5);
        assert!(!stock.raise(10) && stock.raise(8));
        assert_eq!(make(&mut stock), 8);
        stock.lower(3);
        for keeps in [false, false, false, true, true] {
            assert_eq!(stock.keeps(4096), keeps);
            assert!(stock.made() >= stock.target());
        }
        assert_eq!(stock.made(), 10);
    }

    /// Each buffer of another size is replaced, and there are never fewer than are wanted.
    #[test]
    fn sizes_change_one_by_one() {
        let mut stock = Stock::new(10, 100, 4096);
        make(&mut stock);
        assert!(stock.resize(8192));
        assert_eq!((stock.unfit(), make(&mut stock)), (10, REPLACEMENTS));
        assert!(!stock.resize(16_384));
        // Those that wait are used up as others come back.
        for _ in 0..REPLACEMENTS {
            assert!(stock.keeps(8192) && !stock.keeps(4096));
        }
        assert_eq!((stock.made(), stock.unfit()), (10, 2));
        assert!(stock.keeps(4096) && stock.wants_more());
        assert_eq!(make(&mut stock), 2);
        assert!(!stock.keeps(4096) && !stock.keeps(4096));
        assert_eq!((stock.made(), stock.unfit(), make(&mut stock)), (10, 0, 0));
        // Of smaller ones only one waits at a time.
        assert!(stock.resize(4096));
        for left in (0..10).rev() {
            assert_eq!(make(&mut stock), 1);
            assert!(!stock.keeps(8192) && stock.keeps(4096));
            assert_eq!((stock.made(), stock.unfit()), (10, left));
        }
        assert!(!stock.wants_more());
    }

    /// Without memory there are as many as before.
    #[test]
    fn what_can_not_be_made_is_not_counted() {
        let mut stock = Stock::new(5, 14, 4096);
        for done in [true, false, true, true, true, true] {
            let size = stock.claim().unwrap_or(0);
            if !done {
                stock.unclaim(size);
            }
        }
        assert_eq!((stock.made(), stock.claim()), (5, None));
    }
}
