// SPDX-License-Identifier: GPL-2.0

//! Conversions between integers that cannot fail on the architectures that the kernel runs on.

/// Returns the value as a `usize`, which has 32 bits or more in every kernel.
pub(crate) const fn u32_as_usize(value: u32) -> usize {
    const { assert!(u32::BITS <= usize::BITS) };
    value as usize
}
