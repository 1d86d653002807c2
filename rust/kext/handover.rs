// SPDX-License-Identifier: GPL-2.0

//! A place for a value that one puts there and another takes out, without a lock.

use crate::kext::prelude::*;
use core::cell::UnsafeCell;

/// There is no value.
const EMPTY: u32 = 0;
/// Somebody puts a value there, or takes it out.
const BUSY: u32 = 1;
/// There is a value.
const FULL: u32 = 2;

/// A place for a value. Of several threads that take at the same time, one gets it.
pub(crate) struct Handover<T> {
    /// One of the values above. The thread that has changed it to [`BUSY`] has `value` to itself.
    state: Atomic<u32>,
    /// The value; [`Some`] if the state is [`FULL`].
    value: UnsafeCell<Option<T>>,
}

// SAFETY: The value is moved to the thread that takes it. No two have it at a time: the one that
// has changed the state to `BUSY` is the only one until it changes it back.
unsafe impl<T: Send> Sync for Handover<T> {}

impl<T> Handover<T> {
    /// Makes an empty place.
    pub(crate) const fn new() -> Self {
        Self {
            state: Atomic::new(EMPTY),
            value: UnsafeCell::new(None),
        }
    }

    /// Puts a value there.
    ///
    /// # Errors
    ///
    /// The value itself, if there is one already.
    pub(crate) fn put(&self, value: T) -> core::result::Result<(), T> {
        if self.state.cmpxchg(EMPTY, BUSY, Acquire).is_err() {
            return Err(value);
        }
        // SAFETY: The state was changed to `BUSY`.
        unsafe { *self.value.get() = Some(value) };
        self.state.store(FULL, Release);
        Ok(())
    }

    /// Returns whether there is a value, if nobody puts one there or takes it out.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.state.load(Relaxed) == FULL
    }

    /// Takes the value out, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        // Mostly there is none, and to look is cheaper.
        if !self.is_full() || self.state.cmpxchg(FULL, BUSY, Acquire).is_err() {
            return None;
        }
        // SAFETY: The state was changed to `BUSY`.
        let value = unsafe { (*self.value.get()).take() };
        self.state.store(EMPTY, Release);
        value
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_handover)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_taken_once() {
        let place = Handover::new();
        for value in [3, 4] {
            assert_eq!(place.take(), None);
            assert_eq!(place.put(value), Ok(()));
            assert_eq!(place.put(9), Err(9));
            assert_eq!(place.take(), Some(value));
        }
        assert_eq!(place.take(), None);
    }
}
