// SPDX-License-Identifier: GPL-2.0

//! The memory of a Call and of its Reply, for a device.
//!
//! It is the task's, which goes on to use it when the RPC is completed, and gives it up after
//! `buf_free`. So a slot counts the leases of its memory; an RPC is not completed while there are
//! any, and `buf_free` does not return before the last one is gone.

use super::fragments::Fragments;
use crate::kext::device_memory::DeviceMemory;
use crate::kext::prelude::*;
use core::iter::Peekable;
use kernel::time::{
    delay::fsleep,
    Delta, //
};

/// How long [`Leases::wait`] sleeps at a time.
const PAUSE: Delta = Delta::from_millis(1);

/// The number of leases of the memory of a slot.
pub(super) struct Leases(Atomic<u32>);

impl Leases {
    /// There are none.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    /// Returns whether a device may still use the memory.
    pub(super) fn any(&self) -> bool {
        // Pairs with the release in `drop`: what the device has written is visible then.
        self.0.load(Acquire) != 0
    }

    /// Waits until no device may use the memory. Sleeps.
    pub(super) fn wait(&self) {
        while self.any() {
            fsleep(PAUSE);
        }
    }

    /// Adds a lease.
    ///
    /// # Safety
    ///
    /// The object is not freed before [`Self::wait`] has returned.
    unsafe fn add(&self) -> CallLease {
        self.0.fetch_add(1, Relaxed);
        // INVARIANT: It was just counted, and the caller guarantees the rest.
        CallLease(NonNull::from(self))
    }
}

/// Keeps the memory of an RPC for a device.
///
/// # Invariants
///
/// It is counted in the [`Leases`], which are not freed before they have been waited for.
pub(crate) struct CallLease(NonNull<Leases>);

// SAFETY: It belongs to no thread; all it does is to change an atomic.
unsafe impl Send for CallLease {}

// SAFETY: As above.
unsafe impl Sync for CallLease {}

impl Drop for CallLease {
    fn drop(&mut self) {
        // SAFETY: By the invariant the object is there at least until this is not counted any more.
        // It is not used after that.
        unsafe { self.0.as_ref() }.0.fetch_sub(1, Release);
    }
}

/// A part of the memory of an RPC whose Call is being sent.
///
/// # Invariants
///
/// The fragments are of memory that its owner keeps until [`Leases::wait`] has returned for
/// `leases`, and so are `leases` kept.
pub(crate) struct CallMemory<'a> {
    /// The slot's leases.
    leases: &'a Leases,
    /// The pieces that no region has yet.
    fragments: Peekable<Fragments<'a>>,
}

impl<'a> CallMemory<'a> {
    /// Names memory of the RPC that has these leases.
    ///
    /// # Safety
    ///
    /// The invariants hold.
    pub(super) unsafe fn new(leases: &'a Leases, fragments: Fragments<'a>) -> Self {
        // INVARIANT: The caller guarantees that they hold.
        Self {
            leases,
            fragments: fragments.peekable(),
        }
    }

    /// Returns whether regions have all of it.
    pub(crate) fn is_taken(&mut self) -> bool {
        self.fragments.peek().is_none()
    }
}

// SAFETY: By the type invariant the memory stays until `Leases::wait` has returned, which it does
// not while a lease is counted.
unsafe impl<'a> DeviceMemory for CallMemory<'a> {
    type Fragments = Fragments<'a>;
    type Lease = CallLease;

    unsafe fn fragments(&mut self) -> &mut Peekable<Fragments<'a>> {
        &mut self.fragments
    }

    fn lease(&self) -> CallLease {
        // SAFETY: By the type invariant.
        unsafe { self.leases.add() }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_call_memory)]
mod tests {
    use super::*;

    #[test]
    fn leases_count_until_they_are_dropped() {
        let leases = Leases::new();
        assert!(!leases.any());
        // SAFETY: They are dropped before the object.
        let two = unsafe { [leases.add(), leases.add()] };
        let [first, second] = two;
        drop(first);
        assert!(leases.any());
        drop(second);
        assert!(!leases.any());
        leases.wait();
    }
}
