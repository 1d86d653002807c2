// SPDX-License-Identifier: GPL-2.0

//! Memory barriers, as all supported kernels have them.

use kernel::sync::barrier;

/// A full memory barrier between CPUs.
#[inline]
pub(crate) fn smp_mb() {
    // Linux 7.2 has no other one.
    #[cfg(rpcrdma_linux_7_2)]
    barrier::smp_mb();
    #[cfg(not(rpcrdma_linux_7_2))]
    barrier::smp_mb(barrier::Full);
}
