// SPDX-License-Identifier: GPL-2.0

//! Pages that were taken out of a `svc_rqst`.

use crate::{
    kext::page_fragment::PageFragment,
    sys, //
};
use core::ptr::NonNull;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// Pages, one reference to each. Dropped, the references are given back.
pub(crate) struct Pages(KVVec<NonNull<sys::page>>);

// SAFETY: Pages belong to no thread, and their contents are not looked at by this type.
unsafe impl Send for Pages {}

impl Pages {
    /// No pages, with room for `count`.
    pub(super) fn with_capacity(count: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(count, GFP_KERNEL)?))
    }

    /// Adds a page if there is room.
    ///
    /// # Safety
    ///
    /// The caller has a reference to the page, and gives it up unless this fails.
    pub(super) unsafe fn push(&mut self, page: NonNull<sys::page>) -> Result {
        self.0.push_within_capacity(page).map_err(|_| ENOMEM)
    }

    /// Takes the last page, with its reference.
    pub(super) fn pop(&mut self) -> Option<NonNull<sys::page>> {
        self.0.pop()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first word, in XDR's byte order. Nobody may be writing to the pages.
    pub(crate) fn first_word(&self) -> Option<u32> {
        let page = *self.0.first()?;
        // SAFETY: We have a reference to the page, which is always mapped (64 bits), and longer than a word.
        let word = unsafe { sys::page_address(page.as_ptr()).cast::<[u8; 4]>().read() };
        Some(u32::from_be_bytes(word))
    }

    /// The octets from `at` on that lie in one page, at most `len`.
    pub(crate) fn fragment(&self, at: usize, len: usize) -> Option<PageFragment> {
        let page = *self.0.get(at / PAGE_SIZE)?;
        let offset = at % PAGE_SIZE;
        let len = len.min(PAGE_SIZE - offset);
        if len == 0 {
            return None;
        }
        // SAFETY: We have a reference to the page; the range is not empty and lies within it.
        Some(unsafe {
            PageFragment::new(page, u32::try_from(offset).ok()?, u32::try_from(len).ok()?)
        })
    }

    /// Copies `bytes` to octet `at` and what follows.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the pages are too few.
    pub(crate) fn write(&mut self, mut at: usize, mut bytes: &[u8]) -> Result {
        while !bytes.is_empty() {
            let fragment = self.fragment(at, bytes.len()).ok_or(EINVAL)?;
            let len = fragment.len() as usize;
            let (now, later) = bytes.split_at_checked(len).ok_or(EINVAL)?;
            // SAFETY: The page is ours alone: it was taken out of a `svc_rqst` that was to receive a Call. The
            // range lies within it.
            unsafe {
                sys::memcpy_to_page(
                    fragment.page(),
                    fragment.offset() as usize,
                    now.as_ptr().cast(),
                    len,
                )
            };
            at = at.checked_add(len).ok_or(EINVAL)?;
            bytes = later;
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        while let Some(page) = self.0.pop() {
            // SAFETY: The reference is ours.
            unsafe { sys::put_page(page.as_ptr()) };
        }
    }
}
