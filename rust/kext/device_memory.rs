// SPDX-License-Identifier: GPL-2.0

//! Memory that regions let a device use, and what keeps it there meanwhile.
//!
//! A region takes its memory from a [`DeviceMemory`], and a lease with it, which it has until the
//! device is done: the region was fenced, or deregistered. The owner of the memory gives it up only
//! when there is no lease.

use crate::kext::page_fragment::PageFragment;
use core::iter::Peekable;

/// Memory for a device, piece by piece.
///
/// # Safety
///
/// What the fragments describe is there, and stays as long as a lease exists that
/// [`lease`](Self::lease) has returned.
pub(crate) unsafe trait DeviceMemory {
    /// The pieces.
    type Fragments: Iterator<Item = PageFragment> + Clone;

    /// Keeps the memory.
    type Lease: Send + 'static;

    /// Returns those pieces that no region has yet.
    ///
    /// # Safety
    ///
    /// The caller takes pieces from the beginning, and does nothing else with it.
    unsafe fn fragments(&mut self) -> &mut Peekable<Self::Fragments>;

    /// Returns a lease of all of the memory.
    fn lease(&self) -> Self::Lease;
}
