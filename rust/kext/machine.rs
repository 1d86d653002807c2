// SPDX-License-Identifier: GPL-2.0

//! How much memory a machine has.
//!
//! C header: [`include/linux/mm.h`](srctree/include/linux/mm.h)

use crate::kext::prelude::*;
use crate::sys;

/// Returns the memory of the machine, in octets.
pub(crate) fn memory() -> u64 {
    // SAFETY: Only reads a counter.
    let pages = unsafe { sys::totalram_pages() };
    (pages as u64).saturating_mul(PAGE_SIZE as u64)
}
