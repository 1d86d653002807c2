// SPDX-License-Identifier: GPL-2.0

//! Rate-limited log lines, for events that a peer can cause.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use crate::sys;

/// Returns whether one more line may be printed. The limit is ten lines in five seconds, for the
/// module as a whole.
pub(crate) fn may_print() -> bool {
    // SAFETY: No preconditions; may be called from any context.
    unsafe { sys::printk_ratelimited() }
}

/// Prints a line as `pr_warn!` does, but rate-limited.
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kext::ratelimit::may_print() {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}
pub(crate) use pr_warn_ratelimited;
