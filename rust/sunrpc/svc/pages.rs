// SPDX-License-Identifier: GPL-2.0

//! Pages for RDMA Reads to fill and RDMA Writes to send. They are taken out of a `svc_rqst`, or
//! allocated.

use crate::kext::prelude::*;
use crate::{
    kext::page_fragment::PageFragment,
    sys, //
};
use core::{
    ops::Deref,
    ptr, //
};
use kernel::{
    alloc::flags::GFP_NOWAIT,
    task::might_sleep, //
};

/// Pages, with one reference to each. The references are given back when this is dropped.
pub(crate) struct Pages(KVVec<NonNull<sys::page>>);

// SAFETY: References to pages belong to no thread, and neither do the pages.
unsafe impl Send for Pages {}

impl Pages {
    /// Makes an empty list, with room for `count` pages.
    pub(super) fn with_capacity(count: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(count, GFP_KERNEL)?))
    }

    /// Returns the list, which has [`len`](Self::len) entries.
    pub(in crate::sunrpc) fn list(&self) -> *mut *mut sys::page {
        // A `NonNull` is represented as the pointer that it is.
        self.0.as_ptr().cast_mut().cast()
    }

    /// Adds a page if there is room.
    ///
    /// # Safety
    ///
    /// The caller has a reference to the page, and gives it up unless this fails.
    pub(super) unsafe fn push(&mut self, page: NonNull<sys::page>) -> Result {
        self.0.push_within_capacity(page).map_err(|_| ENOMEM)
    }

    /// Puts the pages, with their references, into the places at `entries`, and takes what was
    /// there instead.
    ///
    /// # Safety
    ///
    /// There are at least as many places as pages, and nobody else uses them. Each is null or a
    /// page, with a reference that belongs to the place.
    pub(super) unsafe fn exchange(&mut self, entries: *mut *mut sys::page) {
        // From the end, so that what moves to the place of one that is removed was exchanged
        // already.
        for at in (0..self.0.len()).rev() {
            let Some(page) = self.0.get_mut(at) else {
                return;
            };
            // SAFETY: The place exists, since the list is not longer than there are places. The
            // references are exchanged with the pages.
            let former = unsafe { ptr::replace(entries.add(at), page.as_ptr()) };
            if let Some(former) = NonNull::new(former) {
                *page = former;
            } else {
                self.remove(at);
            }
        }
    }

    /// Forgets the page at `at`, whose reference belongs to somebody else. The last page takes its
    /// place.
    fn remove(&mut self, at: usize) {
        if let Some(last) = self.0.pop() {
            if let Some(page) = self.0.get_mut(at) {
                *page = last;
            }
        }
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the octets from `at` on that lie in one page, at most `len` of them.
    pub(crate) fn fragment(&self, at: usize, len: usize) -> Option<PageFragment> {
        let page = *self.0.get(at / PAGE_SIZE)?;
        let offset = at % PAGE_SIZE;
        let len = len.min(PAGE_SIZE - offset);
        if len == 0 {
            return None;
        }
        // SAFETY: The list has a reference to the page. The range is not empty and lies within it.
        Some(unsafe {
            PageFragment::new(page, u32::try_from(offset).ok()?, u32::try_from(len).ok()?)
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // They may be many.
        might_sleep();
        let Ok(count) = i32::try_from(self.0.len()) else {
            // No Call has as many pages as that.
            return;
        };
        // SAFETY: A `NonNull` is represented as the pointer that it is. The list has these
        // references, and gives them back once: it is dropped.
        unsafe { sys::release_pages(self.0.as_mut_ptr().cast(), count) };
    }
}

/// Pages whose octets are nobody's: they were allocated, or taken out of a `svc_rqst` that had not
/// received a Call yet. So they can be written to, which those of a Reply cannot: after a splice
/// from a file these are pages of the page cache.
///
/// # Invariants
///
/// Nobody but the list uses the pages, and devices that it is mapped for.
pub(crate) struct FreshPages(Pages);

impl FreshPages {
    /// Makes an empty list, without room for pages.
    pub(in crate::sunrpc) const fn none() -> Self {
        // INVARIANT: There are no pages.
        Self(Pages(KVVec::new()))
    }

    /// Makes an empty list, with room for `count` pages.
    pub(super) fn with_capacity(count: usize) -> Result<Self> {
        // INVARIANT: There are no pages.
        Ok(Self(Pages::with_capacity(count)?))
    }

    /// Adds a page if there is room.
    ///
    /// # Safety
    ///
    /// As for [`Pages::push`], and nobody else uses the page.
    pub(super) unsafe fn push(&mut self, page: NonNull<sys::page>) -> Result {
        // INVARIANT: The caller guarantees it.
        // SAFETY: As above.
        unsafe { self.0.push(page) }
    }

    /// Returns the pages, which others may use from now on.
    pub(crate) fn into_pages(self) -> Pages {
        self.0
    }

    /// Allocates zeroed pages, for code that has no `svc_rqst` to take them from. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn allocate(count: usize) -> Result<Self> {
        let mut pages = Self::with_capacity(count)?;
        for _ in 0..count {
            // SAFETY: No preconditions; the caller may sleep.
            let page = unsafe { sys::alloc_page(sys::GFP_KERNEL | sys::__GFP_ZERO) };
            let page = NonNull::new(page).ok_or(ENOMEM)?;
            // SAFETY: `alloc_page` has returned a reference, which the list takes, to a page that
            // nobody else knows. If there were no room for it, the page would be lost, but there is
            // room for `count`.
            unsafe { pages.push(page) }?;
        }
        Ok(pages)
    }

    /// Does the same without sleeping.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if there would be memory after a while.
    pub(in crate::sunrpc) fn allocate_nowait(count: usize) -> Result<Self> {
        // INVARIANT: There are no pages.
        let mut pages = Self(Pages(KVVec::with_capacity(count, GFP_NOWAIT)?));
        for _ in 0..count {
            let flags = sys::GFP_NOWAIT | sys::__GFP_NOWARN | sys::__GFP_ZERO;
            // SAFETY: No preconditions; this does not sleep.
            let page = NonNull::new(unsafe { sys::alloc_page(flags) }).ok_or(ENOMEM)?;
            // SAFETY: As in `allocate`.
            unsafe { pages.push(page) }?;
        }
        Ok(pages)
    }

    /// Returns the first word, which is in XDR's byte order in memory. While a device writes to the
    /// pages it may be any.
    pub(crate) fn first_word(&self) -> Option<u32> {
        let mut word = [0; 4];
        self.read(&mut word)?;
        Some(u32::from_be_bytes(word))
    }

    /// Returns the start of the first page. It stays where it is while the pages are kept.
    pub(in crate::sunrpc) fn start(&self) -> Option<NonNull<u8>> {
        let page = *self.0 .0.first()?;
        // SAFETY: The list has a reference to the page, which is always mapped (64 bits).
        NonNull::new(unsafe { sys::page_address(page.as_ptr()) }.cast())
    }

    /// Copies the first octets to `to`, until it is full. Returns [`None`] if the pages are too
    /// few. What a device writes to them meanwhile may be there or not.
    pub(crate) fn read(&self, to: &mut [u8]) -> Option<()> {
        let mut at = 0_usize;
        while at < to.len() {
            let place = to.get_mut(at..)?;
            let fragment = self.fragment(at, place.len())?;
            let len = fragment.len() as usize;
            let place = place.get_mut(..len)?;
            // SAFETY: The list has a reference to the page. The range lies within it, and the
            // target is as long.
            unsafe {
                sys::memcpy_from_page(
                    place.as_mut_ptr().cast(),
                    fragment.page(),
                    fragment.offset() as usize,
                    len,
                )
            };
            at = at.checked_add(len)?;
        }
        Some(())
    }

    /// Copies `bytes` into the pages, from octet `at` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the pages are too few.
    pub(crate) fn write(&mut self, mut at: usize, mut bytes: &[u8]) -> Result {
        while !bytes.is_empty() {
            let fragment = self.fragment(at, bytes.len()).ok_or(EINVAL)?;
            let len = fragment.len() as usize;
            let (now, later) = bytes.split_at_checked(len).ok_or(EINVAL)?;
            // SAFETY: By the type invariant only this list uses the page. The range lies within the
            // page, and `now` is as long.
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

impl Deref for FreshPages {
    type Target = Pages;

    fn deref(&self) -> &Pages {
        &self.0
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_pages)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() -> Result {
        let mut pages = FreshPages::allocate(2)?;
        let mut bytes = KVec::from_elem(0, PAGE_SIZE + 100, GFP_KERNEL)?;
        pages.read(&mut bytes).ok_or(EINVAL)?;
        assert!(bytes.iter().all(|&byte| byte == 0));
        for (byte, value) in bytes.iter_mut().zip((1..=251_u8).cycle()) {
            *byte = value;
        }
        pages.write(0, &bytes)?;
        let mut back = KVec::from_elem(0, bytes.len(), GFP_KERNEL)?;
        pages.read(&mut back).ok_or(EINVAL)?;
        assert_eq!(back.as_slice(), bytes.as_slice());
        Ok(())
    }

    #[test]
    fn places_get_the_pages_and_give_their_own() -> Result {
        const COUNT: usize = 4;
        for empty in 0..1_u32 << COUNT {
            let mut former = FreshPages::allocate(COUNT)?;
            let mut entries = [ptr::null_mut(); COUNT];
            for (at, entry) in entries.iter_mut().enumerate() {
                if empty & 1 << at == 0 {
                    *entry = former.0 .0.pop().ok_or(EINVAL)?.as_ptr();
                }
            }
            let had = entries;
            let mut pages = FreshPages::allocate(COUNT)?.into_pages();
            let new: [Option<NonNull<sys::page>>; COUNT] =
                core::array::from_fn(|at| pages.0.get(at).copied());
            // SAFETY: There are as many places as pages, each of which is null or has a page with a
            // reference.
            unsafe { pages.exchange(entries.as_mut_ptr()) };
            assert_eq!(entries.map(NonNull::new), new);
            assert_eq!(pages.len(), COUNT - empty.count_ones() as usize);
            for page in had.into_iter().filter_map(NonNull::new) {
                assert_eq!(pages.0.iter().filter(|&&other| other == page).count(), 1);
            }
            for page in entries.into_iter().filter_map(NonNull::new) {
                // SAFETY: The reference was the place's, which is gone.
                unsafe { sys::release_pages([page.as_ptr()].as_mut_ptr(), 1) };
            }
        }
        Ok(())
    }

    #[test]
    fn no_more_is_read_than_there_is() -> Result {
        let mut pages = FreshPages::allocate(1)?;
        let mut bytes = KVec::from_elem(0, PAGE_SIZE + 1, GFP_KERNEL)?;
        assert!(pages.read(&mut bytes).is_none());
        assert!(pages.write(1, &bytes).is_err());
        assert!(pages.start().is_some());
        assert!(FreshPages::allocate(0)?.start().is_none());
        Ok(())
    }
}
