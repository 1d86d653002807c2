// SPDX-License-Identifier: GPL-2.0

//! The clocks that the in-tree `kernel` crate has no functions for.
//!
//! C headers: [`include/linux/jiffies.h`](srctree/include/linux/jiffies.h),
//! [`include/linux/ktime.h`](srctree/include/linux/ktime.h)

use crate::{
    kext::num,
    sys, //
};

/// The number of jiffies per second.
pub(crate) const HZ: usize = num::u32_as_usize(sys::RPCRDMA_HZ);

/// Returns the present value of `jiffies`.
pub(crate) fn jiffies() -> usize {
    // SAFETY: No preconditions.
    unsafe { sys::jiffies() }
}

/// Returns the monotonic time in seconds.
pub(crate) fn seconds() -> u64 {
    ktime().unsigned_abs() / 1_000_000_000
}

/// Returns the monotonic time in milliseconds.
pub(crate) fn milliseconds() -> u64 {
    ktime().unsigned_abs() / 1_000_000
}

/// Returns the monotonic time in nanoseconds.
pub(crate) fn ktime() -> i64 {
    // SAFETY: No preconditions.
    unsafe { sys::ktime_get() }
}
