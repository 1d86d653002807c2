// SPDX-License-Identifier: GPL-2.0

//! An RPC message in memory: head, pages and tail.
//!
//! C header: [`include/linux/sunrpc/xdr.h`](srctree/include/linux/sunrpc/xdr.h)

use crate::kext::prelude::*;
use crate::{
    kext::num,
    sys, //
};
use core::ptr;
use kernel::types::Opaque;

/// A `struct xdr_buf`: the three parts of an RPC message, in the order in which they are sent.
///
/// # Invariants
///
/// Head and tail are memory with a `struct page` (from `kmalloc` or a page of its own), valid for
/// reads of `iov_len` bytes each. If `page_len` is not zero, `pages` has an entry for every page
/// that the bytes from `page_base` on lie in; entries may be null until
/// `SendRqst::fill_sparse_pages` was called. All of this stays as it is while a reference lives,
/// except that `Pinned::deliver` may shorten the head.
#[repr(transparent)]
pub(crate) struct XdrBuf(Opaque<sys::xdr_buf>);

impl XdrBuf {
    /// Wraps a C object.
    ///
    /// # Safety
    ///
    /// The invariants of the type hold for `*buf`, for as long as the result lives.
    pub(super) unsafe fn from_raw<'a>(buf: *const sys::xdr_buf) -> &'a Self {
        // SAFETY: The caller guarantees that `buf` is valid; the type is transparent.
        unsafe { &*buf.cast() }
    }

    /// Returns the C object.
    pub(super) fn as_raw(&self) -> *mut sys::xdr_buf {
        self.0.get()
    }

    /// Returns start and length of the head.
    pub(super) fn head(&self) -> (*mut u8, usize) {
        // SAFETY: The object is valid. The fields are read, and no reference to them is made.
        unsafe {
            let head = &raw const (*self.as_raw()).head[0];
            ((*head).iov_base.cast(), (*head).iov_len)
        }
    }

    /// Returns start and length of the tail.
    pub(super) fn tail(&self) -> (*mut u8, usize) {
        // SAFETY: The object is valid. The fields are read, and no reference to them is made.
        unsafe {
            let tail = &raw const (*self.as_raw()).tail[0];
            ((*tail).iov_base.cast(), (*tail).iov_len)
        }
    }

    /// Returns the number of octets in the head.
    pub(crate) fn head_len(&self) -> usize {
        self.head().1
    }

    /// Returns the number of octets in the pages.
    pub(crate) fn page_len(&self) -> usize {
        // SAFETY: The object is valid.
        num::u32_as_usize(unsafe { (*self.as_raw()).page_len })
    }

    /// Returns the offset of the octets in the pages, from the start of the first page. It may be
    /// more than a page.
    pub(crate) fn page_base(&self) -> usize {
        // SAFETY: The object is valid.
        num::u32_as_usize(unsafe { (*self.as_raw()).page_base })
    }

    /// Returns the number of octets in the tail.
    pub(crate) fn tail_len(&self) -> usize {
        self.tail().1
    }

    /// Returns the length of the encoded message, as SUNRPC counts it.
    pub(crate) fn len(&self) -> usize {
        // SAFETY: The object is valid.
        num::u32_as_usize(unsafe { (*self.as_raw()).len })
    }

    /// Returns the size of the storage, in octets.
    #[cfg(rpcrdma_kunit)]
    pub(super) fn buflen(&self) -> usize {
        // SAFETY: The object is valid.
        num::u32_as_usize(unsafe { (*self.as_raw()).buflen })
    }

    /// Returns the `XDRBUF_*` flags.
    fn flags(&self) -> u32 {
        // SAFETY: The object is valid.
        unsafe { (*self.as_raw()).flags }
    }

    /// Returns whether the pages receive the payload of a read.
    pub(crate) fn is_read(&self) -> bool {
        self.flags() & sys::XDRBUF_READ != 0
    }

    /// Returns whether the pages hold the payload of a write.
    pub(crate) fn is_write(&self) -> bool {
        self.flags() & sys::XDRBUF_WRITE != 0
    }

    /// Returns whether pages may be missing.
    pub(super) fn is_sparse(&self) -> bool {
        self.flags() & sys::XDRBUF_SPARSE_PAGES != 0
    }

    /// Returns the first entry of the page list that has octets of the message, the offset of the
    /// octets in that page, and the number of entries.
    pub(super) fn page_list(&self) -> (*mut *mut sys::page, usize, usize) {
        let base = self.page_base();
        let offset = base % PAGE_SIZE;
        let count = match self.page_len() {
            0 => 0,
            len => (offset + len).div_ceil(PAGE_SIZE),
        };
        // SAFETY: The object is valid. By the invariant the list has an entry at this index, unless
        // there are no pages, and then the pointer is not used.
        let first = unsafe { (*self.as_raw()).pages }.wrapping_add(base / PAGE_SIZE);
        (first, offset, count)
    }

    /// Copies the whole message to `dst`, as it is sent. Returns its length, or [`None`] if it does
    /// not fit.
    pub(crate) fn copy_message(&self, dst: &mut [u8]) -> Option<usize> {
        let (head, tail) = (self.head(), self.tail());
        let (head_dst, rest) = dst.split_at_mut_checked(head.1)?;
        let (pages_dst, rest) = rest.split_at_mut_checked(self.page_len())?;
        let tail_dst = rest.get_mut(..tail.1)?;
        // SAFETY: Both are parts of the message, and the slices are as long.
        unsafe { copy_from(head.0, head_dst) };
        self.copy_pages(pages_dst)?;
        // SAFETY: As above.
        unsafe { copy_from(tail.0, tail_dst) };
        Some(head_dst.len() + pages_dst.len() + tail_dst.len())
    }

    /// Returns start and length of the part of the tail that follows the padding of the pages.
    ///
    /// RFC 8166 section 3.4.5.2: the round-up octets of a chunk's payload are not part of the
    /// message that it is removed from. The XDR encoders put them at the start of the tail.
    pub(super) fn tail_behind_padding(&self) -> (*mut u8, usize) {
        let (start, len) = self.tail();
        let padding = (self.page_len().wrapping_neg() % XDR_UNIT).min(len);
        (start.wrapping_add(padding), len - padding)
    }

    /// Copies the part that is sent inline when the pages travel as a Read chunk: the head, and the
    /// tail without the padding of the pages. Returns its length, or [`None`] if it does not fit.
    pub(crate) fn copy_without_pages(&self, dst: &mut [u8]) -> Option<usize> {
        let (head, tail) = (self.head(), self.tail_behind_padding());
        let (head_dst, rest) = dst.split_at_mut_checked(head.1)?;
        let tail_dst = rest.get_mut(..tail.1)?;
        // SAFETY: Both are parts of the message, and the slices are as long.
        unsafe {
            copy_from(head.0, head_dst);
            copy_from(tail.0, tail_dst);
        }
        Some(head_dst.len() + tail_dst.len())
    }

    /// Copies octets of the pages until `dst` is full. Returns [`None`] if a page is missing.
    fn copy_pages(&self, dst: &mut [u8]) -> Option<()> {
        let (list, first_offset, count) = self.page_list();
        let mut offset = first_offset;
        let mut rest = dst;
        for index in 0..count {
            let len = (PAGE_SIZE - offset).min(rest.len());
            let (now, later) = rest.split_at_mut_checked(len)?;
            // SAFETY: `index` is below the number of entries.
            let page = NonNull::new(unsafe { list.add(index).read() })?;
            // SAFETY: The page is valid by the invariant, `offset + len` is within it, and `now` is
            // as long.
            unsafe { sys::memcpy_from_page(now.as_mut_ptr().cast(), page.as_ptr(), offset, len) };
            offset = 0;
            rest = later;
        }
        Some(())
    }

    /// Writes `len` octets from `src` into the message, `at` octets from its start, across head,
    /// pages and tail. Octets that do not fit are left out. Returns the number of octets written.
    ///
    /// # Safety
    ///
    /// - Head, pages and tail are valid for writes, and are not used otherwise meanwhile.
    /// - `src` is valid for reads of `len` octets. It may lie in the tail, but then the octets must
    ///   not move towards the end of the message by more than they do within the tail.
    pub(super) unsafe fn write_at(&self, at: usize, src: *const u8, len: usize) -> usize {
        let (head, tail, page_len) = (self.head(), self.tail(), self.page_len());
        let mut skip = at;
        let mut done = 0;

        let room = head.1.saturating_sub(skip).min(len);
        if room > 0 {
            // SAFETY: `skip + room` is within the head; `src` is valid for `len` octets.
            unsafe { ptr::copy(src, head.0.add(skip), room) };
            done += room;
        }
        skip = skip.saturating_sub(head.1);

        let (list, first_offset, _) = self.page_list();
        while done < len && skip < page_len {
            let from_start = first_offset + skip;
            let (index, offset) = (from_start / PAGE_SIZE, from_start % PAGE_SIZE);
            let room = (PAGE_SIZE - offset).min(page_len - skip).min(len - done);
            // SAFETY: `skip` is below `page_len`, so there is an entry at `index`.
            let page = unsafe { list.add(index).read() };
            if page.is_null() {
                return done;
            }
            // SAFETY: The page is valid, `offset + room` is within it, `src` has `len` octets.
            unsafe { sys::memcpy_to_page(page, offset, src.add(done).cast(), room) };
            done += room;
            skip += room;
        }
        skip = skip.saturating_sub(page_len);

        let room = tail.1.saturating_sub(skip).min(len - done);
        if room > 0 {
            // SAFETY: `skip + room` is within the tail; `src` is valid for `len` octets. They may
            // overlap.
            unsafe { ptr::copy(src.add(done), tail.0.add(skip), room) };
            done += room;
        }
        done
    }

    /// Moves `len` octets from the start of the tail to `at` octets from the start of the message.
    /// Octets that do not fit are left out. Returns the number of octets moved.
    ///
    /// # Safety
    ///
    /// As for [`write_at`](Self::write_at).
    pub(super) unsafe fn move_tail(&self, at: usize, len: usize) -> usize {
        let (start, tail_len) = self.tail();
        // SAFETY: The octets are part of the tail. If the target begins before the tail, they only
        // move towards the start. If it begins in the tail, one copy, which may overlap, moves them
        // all.
        unsafe { self.write_at(at, start, len.min(tail_len)) }
    }
}

/// The size of an XDR unit in octets (RFC 4506 section 3).
pub(super) const XDR_UNIT: usize = 4;

/// Copies octets until `dst` is full.
///
/// An empty head or tail may have a null pointer, which this function does not touch.
///
/// # Safety
///
/// `src` is the start of a part of a message that is at least as long as `dst`.
unsafe fn copy_from(src: *const u8, dst: &mut [u8]) {
    if !dst.is_empty() {
        // SAFETY: The caller guarantees that the part is valid. The slice is exclusive, so they do
        // not overlap.
        unsafe { ptr::copy_nonoverlapping(src, dst.as_mut_ptr(), dst.len()) }
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_xdr_buf)]
mod tests {
    use super::*;
    use crate::sunrpc::testing::{
        pattern,
        shape,
        Message,
        SHAPES, //
    };

    #[test]
    fn parts_have_their_sizes() -> Result {
        for s in SHAPES {
            let m = Message::new(*s)?;
            let b = m.buf();
            assert_eq!(b.head_len(), s.head);
            assert_eq!(b.page_base(), s.base);
            assert_eq!(b.page_len(), s.pages);
            assert_eq!(b.tail_len(), s.tail);
            assert_eq!(b.buflen(), s.total());
        }
        Ok(())
    }

    #[test]
    fn message_is_copied_in_order() -> Result {
        for s in SHAPES {
            let m = Message::filled(*s)?;
            let mut dst = KVVec::from_elem(0u8, s.total(), GFP_KERNEL)?;
            assert_eq!(m.buf().copy_message(&mut dst), Some(s.total()));
            let wrong = dst.iter().enumerate().filter(|(at, b)| **b != pattern(*at));
            assert_eq!(wrong.count(), 0);
        }
        Ok(())
    }

    #[test]
    fn message_that_does_not_fit_is_refused() -> Result {
        for s in SHAPES {
            let m = Message::filled(*s)?;
            let mut dst = KVVec::from_elem(0u8, s.total() - 1, GFP_KERNEL)?;
            assert_eq!(m.buf().copy_message(&mut dst), None);
            assert_eq!(m.buf().copy_message(&mut []), None);
        }
        Ok(())
    }

    #[test]
    fn rest_is_copied_without_padding() -> Result {
        for s in SHAPES {
            let m = Message::filled(*s)?;
            let padding = ((4 - s.pages % 4) % 4).min(s.tail);
            let len = s.head + s.tail - padding;
            let mut dst = KVVec::from_elem(0u8, len, GFP_KERNEL)?;
            assert_eq!(m.buf().copy_without_pages(&mut dst), Some(len));
            for (at, b) in dst.iter().enumerate() {
                let from = if at < s.head {
                    at
                } else {
                    at + s.pages + padding
                };
                assert_eq!(*b, pattern(from));
            }
            if len > 0 {
                let short = dst.get_mut(..len - 1).ok_or(EINVAL)?;
                assert_eq!(m.buf().copy_without_pages(short), None);
            }
        }
        Ok(())
    }

    #[test]
    fn missing_page_ends_the_message() -> Result {
        let mut m = Message::filled(shape(8, 0, 3 * PAGE_SIZE, 8))?;
        m.lose_page(1)?;
        let mut dst = KVVec::from_elem(0u8, 3 * PAGE_SIZE + 16, GFP_KERNEL)?;
        assert_eq!(m.buf().copy_message(&mut dst), None);
        // SAFETY: Only this test uses the message, and the source is a vector that is valid for its
        // length.
        let written = unsafe { m.buf().write_at(0, dst.as_ptr(), dst.len()) };
        assert_eq!(written, 8 + PAGE_SIZE);
        Ok(())
    }

    #[test]
    fn writes_stay_within_the_parts() -> Result {
        for s in SHAPES {
            let extra = 50;
            let src: KVVec<u8> = {
                let mut v = KVVec::with_capacity(s.total() + extra, GFP_KERNEL)?;
                for at in 0..s.total() + extra {
                    v.push(pattern(at), GFP_KERNEL)?;
                }
                v
            };
            for at in [
                0,
                1,
                s.head,
                s.head + s.pages / 2,
                s.head + s.pages,
                s.total(),
            ] {
                let m = Message::new(*s)?;
                let from = src.get(at..).ok_or(EINVAL)?;
                // SAFETY: Only this test uses the message, and the source is a vector that is valid
                // for its length.
                let written = unsafe { m.buf().write_at(at, from.as_ptr(), from.len()) };
                assert_eq!(written, s.total() - at);
                assert_eq!(m.damage()?, 0);
                for i in at..s.total() {
                    assert_eq!(m.get(i)?, pattern(i));
                }
                for i in 0..at {
                    assert_eq!(m.get(i)?, crate::sunrpc::testing::UNTOUCHED);
                }
            }
        }
        Ok(())
    }
}
