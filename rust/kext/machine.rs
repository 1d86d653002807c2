// SPDX-License-Identifier: GPL-2.0

//! How much of a machine there is: memory, CPUs, and the nodes that these belong to.
//!
//! C headers: [`include/linux/mm.h`](srctree/include/linux/mm.h),
//! [`include/linux/cpumask.h`](srctree/include/linux/cpumask.h),
//! [`include/linux/nodemask.h`](srctree/include/linux/nodemask.h)

use crate::kext::prelude::*;
use crate::sys;

/// Returns the memory of the machine, in octets.
pub(crate) fn memory() -> u64 {
    // SAFETY: Only reads a counter.
    let pages = unsafe { sys::totalram_pages() };
    (pages as u64).saturating_mul(PAGE_SIZE as u64)
}

/// Returns the number of CPUs that are online now: at least one.
pub(crate) fn cpus() -> u32 {
    // SAFETY: Only reads a counter.
    unsafe { sys::num_online_cpus() }.max(1)
}

/// Returns the number of NUMA nodes that are online now: at least one.
pub(crate) fn nodes() -> u32 {
    // SAFETY: Only reads a mask.
    let nodes = unsafe { sys::num_online_nodes() };
    u32::try_from(nodes).unwrap_or(1).max(1)
}
