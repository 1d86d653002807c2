// SPDX-License-Identifier: GPL-2.0

//! Log lines that a peer can provoke.
//!
//! C header: [`include/linux/ratelimit.h`](srctree/include/linux/ratelimit.h)

use crate::sys;

/// Whether one more line may be printed: ten in five seconds, for the module as a whole.
pub(crate) fn may_print() -> bool {
    // SAFETY: No preconditions; may be called from any context.
    unsafe { sys::printk_ratelimited() }
}

/// As `pr_warn!`, rate-limited.
macro_rules! pr_warn_ratelimited {
    ($($arg:tt)*) => {
        if $crate::kext::ratelimit::may_print() {
            ::kernel::pr_warn!($($arg)*);
        }
    };
}
pub(crate) use pr_warn_ratelimited;
