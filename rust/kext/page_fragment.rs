// SPDX-License-Identifier: GPL-2.0

//! A piece of a page.

use crate::kext::prelude::*;
use crate::sys;
use core::mem::offset_of;

/// Some bytes within one page.
///
/// It describes where memory is, and does not keep it alive. A region takes fragments with a lease
/// of their memory only, see
/// [`DeviceMemory`](super::device_memory::DeviceMemory).
///
/// # Invariants
///
/// - `len` is not zero, and `offset + len` is not more than the size of a page.
/// - `page` points at a page of the kernel's memory map that was valid when the fragment was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PageFragment {
    /// The page.
    page: NonNull<sys::page>,
    /// The number of bytes.
    len: u32,
    /// The offset of the fragment in the page.
    offset: u32,
}

// `bio_vecs` passes a slice of fragments to C as a table of `bio_vec`s.
const _: () = {
    assert!(size_of::<PageFragment>() == size_of::<sys::bio_vec>());
    assert!(align_of::<PageFragment>() == align_of::<sys::bio_vec>());
    assert!(offset_of!(PageFragment, page) == offset_of!(sys::bio_vec, bv_page));
    assert!(offset_of!(PageFragment, len) == offset_of!(sys::bio_vec, bv_len));
    assert!(offset_of!(PageFragment, offset) == offset_of!(sys::bio_vec, bv_offset));
};

// SAFETY: A `PageFragment` only describes memory, and gives no access to it. Code that accesses the
// memory does so by unsafe functions.
unsafe impl Send for PageFragment {}

// SAFETY: A shared reference only reads the description. Code that accesses the memory does so by
// unsafe functions.
unsafe impl Sync for PageFragment {}

impl PageFragment {
    /// Describes `len` bytes at `offset` of `page`.
    ///
    /// # Safety
    ///
    /// - `page` is a valid page, and stays so while the fragment is used.
    /// - `len` is not zero, and `offset + len` does not exceed the size of a page.
    pub(crate) unsafe fn new(page: NonNull<sys::page>, offset: u32, len: u32) -> Self {
        // INVARIANT: The caller guarantees that they hold.
        Self { page, len, offset }
    }

    /// Returns the fragment without its first `skip` bytes, and at most `len` of the rest. Returns
    /// [`None`] if nothing is left.
    pub(crate) fn part(&self, skip: usize, len: usize) -> Option<Self> {
        let skip = u32::try_from(skip).ok()?;
        let left = self.len.checked_sub(skip)?;
        let len = left.min(u32::try_from(len).unwrap_or(u32::MAX));
        // INVARIANT: The part is not empty, and within this fragment, which is within the page.
        (len > 0).then_some(Self {
            page: self.page,
            len,
            offset: self.offset + skip,
        })
    }

    /// Returns whether there is no gap between the fragment and one that follows it, but for the
    /// page boundary.
    pub(crate) fn leads_to(&self, next: &Self) -> bool {
        (self.offset + self.len) as usize == PAGE_SIZE && next.offset == 0
    }

    /// Returns the fragments in the form that C functions take.
    pub(crate) fn bio_vecs(fragments: &[Self]) -> *const sys::bio_vec {
        // The assertions above check that both types have the same layout.
        fragments.as_ptr().cast()
    }

    /// Returns the page, for C functions.
    pub(crate) fn page(&self) -> *mut sys::page {
        self.page.as_ptr()
    }

    /// Returns the offset of the fragment in the page.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// Returns the number of bytes, which is never zero.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}
