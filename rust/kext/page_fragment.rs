// SPDX-License-Identifier: GPL-2.0

//! A piece of a page.

use crate::sys;
use core::mem::offset_of;
use core::ptr::NonNull;

/// Some bytes within one page.
///
/// It says where memory is and keeps nothing alive. Who registers memory with a device must see to
/// it that the memory outlives the registration: for the memory of an RPC the rule is that
/// `Transport::buf_free` (in `sunrpc`) fences whatever is still registered before it returns.
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
    /// How long it is.
    len: u32,
    /// Where in the page the fragment starts.
    offset: u32,
}

// A slice of fragments is a table of vectors for C: `bio_vecs` counts on it.
const _: () = {
    assert!(size_of::<PageFragment>() == size_of::<sys::bio_vec>());
    assert!(align_of::<PageFragment>() == align_of::<sys::bio_vec>());
    assert!(offset_of!(PageFragment, page) == offset_of!(sys::bio_vec, bv_page));
    assert!(offset_of!(PageFragment, len) == offset_of!(sys::bio_vec, bv_len));
    assert!(offset_of!(PageFragment, offset) == offset_of!(sys::bio_vec, bv_offset));
};

// SAFETY: A `PageFragment` is a mere description; what may be done with the memory is the matter
// of those who use it.
unsafe impl Send for PageFragment {}

// SAFETY: As for `Send`.
unsafe impl Sync for PageFragment {}

impl PageFragment {
    /// Describes `len` bytes at `offset` of `page`.
    ///
    /// # Safety
    ///
    /// - `page` is a valid page, and stays so while the fragment is used.
    /// - `len` is not zero, and `offset + len` does not exceed the size of a page.
    pub(crate) unsafe fn new(page: NonNull<sys::page>, offset: u32, len: u32) -> Self {
        // INVARIANT: The caller guarantees it.
        Self { page, len, offset }
    }

    /// The fragment without its first `skip` bytes, at most `len` of them; [`None`] if nothing is left.
    pub(crate) fn part(&self, skip: usize, len: usize) -> Option<Self> {
        let skip = u32::try_from(skip).ok()?;
        let left = self.len.checked_sub(skip)?;
        let len = left.min(u32::try_from(len).unwrap_or(u32::MAX));
        // INVARIANT: Not empty, and within what was within the page.
        (len > 0).then_some(Self {
            page: self.page,
            len,
            offset: self.offset + skip,
        })
    }

    /// The fragments as C functions want them.
    pub(crate) fn bio_vecs(fragments: &[Self]) -> *const sys::bio_vec {
        // Both are laid out alike, see above.
        fragments.as_ptr().cast()
    }

    /// The page, for C functions.
    pub(crate) fn page(&self) -> *mut sys::page {
        self.page.as_ptr()
    }

    /// Where in the page the fragment starts.
    pub(crate) fn offset(&self) -> u32 {
        self.offset
    }

    /// How long it is, never zero.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}
