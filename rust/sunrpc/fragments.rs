// SPDX-License-Identifier: GPL-2.0

//! The memory of an RPC message, page by page, in the form that a device needs.

use super::{
    svc::FreshPages,
    xdr_buf::XdrBuf, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        num,
        page_fragment::PageFragment, //
    },
    sys, //
};
use core::ptr;

/// A selection of the parts of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Head and tail.
    inline: bool,
    /// The pages.
    pages: bool,
}

impl Parts {
    /// The pages only: the payload that a Read or Write chunk carries.
    pub(crate) const PAGES: Self = Self {
        inline: false,
        pages: true,
    };

    /// The whole message.
    pub(crate) const ALL: Self = Self {
        inline: true,
        pages: true,
    };

    /// Head and tail: what is left when the pages travel in a chunk of their own.
    pub(crate) const HEAD_AND_TAIL: Self = Self {
        inline: true,
        pages: false,
    };
}

impl XdrBuf {
    /// Returns the memory of some parts of the message, page by page and in order.
    pub(crate) fn fragments(&self, parts: Parts) -> Fragments<'_> {
        let (pages, page_offset, _) = self.page_list();
        let take = |(start, len)| (start, if parts.inline { len } else { 0 });
        Fragments {
            head: take(self.head()),
            pages,
            page_offset,
            page_left: if parts.pages { self.page_len() } else { 0 },
            tail: take(self.tail()),
            _buf: PhantomData,
        }
    }

    /// Returns the memory of what is left of the message when its pages travel as a Read chunk: the
    /// head, and the tail without the padding of the pages.
    pub(crate) fn fragments_without_pages(&self) -> Fragments<'_> {
        Fragments {
            tail: self.tail_behind_padding(),
            ..self.fragments(Parts::HEAD_AND_TAIL)
        }
    }
}

impl XdrBuf {
    /// Returns the memory of the octets from offset `from` up to, but not including, offset `to`.
    pub(crate) fn range(&self, from: usize, to: usize) -> Range<'_> {
        Range::new(self.fragments(Parts::ALL), from, to)
    }

    /// Copies octets from `offset` on, until `to` is full. Returns [`None`] if the message ends
    /// before that.
    pub(crate) fn copy_range(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        self.copy_from(self.fragments(Parts::ALL), offset, to)
    }

    /// Does the same with what is left of the message when its pages travel as a Read chunk.
    pub(crate) fn copy_range_without_pages(&self, offset: usize, to: &mut [u8]) -> Option<()> {
        self.copy_from(self.fragments_without_pages(), offset, to)
    }

    /// Copies octets of `fragments`, which belong to this message, from `offset` on until `to` is
    /// full.
    fn copy_from(&self, fragments: Fragments<'_>, offset: usize, to: &mut [u8]) -> Option<()> {
        let mut rest = to;
        for fragment in Range::new(fragments, offset, offset.checked_add(rest.len())?) {
            let (now, later) = rest.split_at_mut_checked(num::u32_as_usize(fragment.len()))?;
            // SAFETY: The fragment is one of this message, whose memory is valid by the invariants
            // of the type, and `now` is as long.
            unsafe { copy_fragment(&fragment, now) };
            rest = later;
        }
        rest.is_empty().then_some(())
    }
}

/// Copies a fragment of a message to `to`, which is as long.
///
/// # Safety
///
/// The memory of the fragment is valid, and as long as `to`.
unsafe fn copy_fragment(fragment: &PageFragment, to: &mut [u8]) {
    let (from, offset) = (fragment.page(), num::u32_as_usize(fragment.offset()));
    // SAFETY: The caller guarantees it; a fragment lies within its page.
    unsafe { sys::memcpy_from_page(to.as_mut_ptr().cast(), from, offset, to.len()) };
}

/// The memory of a message, page by page. Made by [`XdrBuf::fragments`], or of [`FreshPages`].
///
/// No fragment is empty. The iteration ends early where a page is missing, which does not happen
/// after `SendRqst::fill_sparse_pages`.
#[derive(Clone)]
pub(crate) struct Fragments<'a> {
    /// The rest of the head.
    head: (*mut u8, usize),
    /// The entry of the next page in the list.
    pages: *mut *mut sys::page,
    /// The offset of the next octets in the next page.
    page_offset: usize,
    /// The number of octets left in the pages.
    page_left: usize,
    /// The rest of the tail.
    tail: (*mut u8, usize),
    /// Marker that keeps the message, or the pages, borrowed, so that they do not go away.
    _buf: PhantomData<&'a XdrBuf>,
}

/// Makes a fragment from an offset and a length within a page.
///
/// # Safety
///
/// `page` is valid while the fragment is used, `len` is not zero, and `offset + len` is at most a
/// page.
unsafe fn fragment(page: NonNull<sys::page>, offset: usize, len: usize) -> PageFragment {
    // CAST: Both are at most `PAGE_SIZE`.
    // SAFETY: The caller guarantees what `PageFragment::new` demands.
    unsafe { PageFragment::new(page, offset as u32, len as u32) }
}

/// Takes the first fragment off a piece of memory.
///
/// # Safety
///
/// The memory is the rest of the head or the tail of a message, which stays while the fragment is
/// used.
unsafe fn take_fragment(memory: &mut (*mut u8, usize)) -> Option<PageFragment> {
    let (start, left) = *memory;
    if left == 0 {
        return None;
    }
    let offset = start.addr() % PAGE_SIZE;
    let len = left.min(PAGE_SIZE - offset);
    *memory = (start.wrapping_add(len), left - len);
    // SAFETY: The caller guarantees that the octets are part of head or tail, which have a `struct
    // page` by the invariants of `XdrBuf`.
    let page = NonNull::new(unsafe { sys::virt_to_page(start.cast()) })?;
    // SAFETY: The page belongs to the message, which stays. `len` is neither zero nor beyond the
    // page.
    Some(unsafe { fragment(page, offset, len) })
}

impl Iterator for Fragments<'_> {
    type Item = PageFragment;

    fn next(&mut self) -> Option<PageFragment> {
        // SAFETY: The message is borrowed.
        if let Some(fragment) = unsafe { take_fragment(&mut self.head) } {
            return Some(fragment);
        }
        if self.page_left > 0 {
            let offset = self.page_offset;
            let len = self.page_left.min(PAGE_SIZE - offset);
            // SAFETY: Octets are left in the pages, so by the invariants of `XdrBuf` the list has
            // an entry for them; and the list of `FreshPages` has one for each page.
            let Some(page) = NonNull::new(unsafe { self.pages.read() }) else {
                // The octets after a hole must not be taken for those that belong into it.
                self.page_left = 0;
                self.tail.1 = 0;
                return None;
            };
            self.pages = self.pages.wrapping_add(1);
            self.page_offset = 0;
            self.page_left -= len;
            // SAFETY: The page belongs to the message, which is borrowed. `len` is neither zero nor
            // beyond the page.
            return Some(unsafe { fragment(page, offset, len) });
        }
        // SAFETY: As above.
        unsafe { take_fragment(&mut self.tail) }
    }
}

impl<'a> Fragments<'a> {
    /// Returns the memory of the first `len` octets of some pages, or of all if there are fewer.
    pub(super) fn of_pages(pages: &'a FreshPages, len: usize) -> Self {
        Self {
            head: (ptr::null_mut(), 0),
            pages: pages.list(),
            page_offset: 0,
            page_left: len.min(pages.len() * PAGE_SIZE),
            tail: (ptr::null_mut(), 0),
            _buf: PhantomData,
        }
    }
}

impl Fragments<'_> {
    /// Leaves the first `count` octets out, or all if there are fewer.
    fn skip_octets(&mut self, count: usize) {
        let in_head = count.min(self.head.1);
        self.head = (self.head.0.wrapping_add(in_head), self.head.1 - in_head);
        let in_pages = (count - in_head).min(self.page_left);
        let at = self.page_offset + in_pages;
        self.pages = self.pages.wrapping_add(at / PAGE_SIZE);
        self.page_offset = at % PAGE_SIZE;
        self.page_left -= in_pages;
        let in_tail = (count - in_head - in_pages).min(self.tail.1);
        self.tail = (self.tail.0.wrapping_add(in_tail), self.tail.1 - in_tail);
    }
}

/// The octets of an RPC message, or of what is left of it, from one offset to another, page by
/// page.
pub(crate) struct Range<'a> {
    /// All fragments of the message from the first octet on.
    fragments: Fragments<'a>,
    /// The number of octets left to yield.
    left: usize,
}

impl<'a> Range<'a> {
    /// Makes the range from octet `from` up to, but not including, octet `to`.
    fn new(mut fragments: Fragments<'a>, from: usize, to: usize) -> Self {
        fragments.skip_octets(from);
        Self {
            fragments,
            left: to.saturating_sub(from),
        }
    }
}

impl Iterator for Range<'_> {
    type Item = PageFragment;

    #[inline]
    fn next(&mut self) -> Option<PageFragment> {
        if self.left == 0 {
            return None;
        }
        let fragment = self.fragments.next()?;
        let part = fragment.part(0, self.left)?;
        self.left -= part.len() as usize;
        Some(part)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_sunrpc_fragments)]
mod tests {
    use super::*;
    use crate::sunrpc::testing::{
        pattern,
        shape,
        Message,
        SHAPES, //
    };

    #[test]
    fn fragments_are_the_message() -> Result {
        for s in SHAPES {
            for (parts, ranges) in [
                (Parts::ALL, [0..s.total(), 0..0]),
                (Parts::PAGES, [s.head..s.head + s.pages, 0..0]),
                (
                    Parts::HEAD_AND_TAIL,
                    [0..s.head, s.head + s.pages..s.total()],
                ),
            ] {
                let [first, second] = ranges;
                let mut expected = Iterator::chain(first, second);
                let m = Message::filled(*s)?;
                for f in m.buf().fragments(parts) {
                    let (offset, len) = (f.offset() as usize, f.len() as usize);
                    assert!(len > 0);
                    assert!(offset + len <= PAGE_SIZE);
                    for at in offset..offset + len {
                        let mut byte = 0u8;
                        // SAFETY: The octet is within the page.
                        unsafe { sys::memcpy_from_page((&raw mut byte).cast(), f.page(), at, 1) };
                        assert_eq!(Some(byte), expected.next().map(pattern));
                    }
                }
                assert_eq!(expected.next(), None);
            }
        }
        Ok(())
    }

    /// RFC 8166 section 3.4.5.2: the padding of a chunk's payload is not sent.
    #[test]
    fn what_is_left_without_pages_has_no_padding() -> Result {
        for s in SHAPES {
            let m = Message::filled(*s)?;
            let mut expected = KVec::from_elem(0_u8, s.head + s.tail, GFP_KERNEL)?;
            let len = m.buf().copy_without_pages(&mut expected).ok_or(EINVAL)?;
            expected.truncate(len);
            let mut octets = expected.iter();
            for f in m.buf().fragments_without_pages() {
                for at in f.offset()..f.offset() + f.len() {
                    let mut byte = 0u8;
                    // SAFETY: The octet is within the page.
                    unsafe {
                        sys::memcpy_from_page((&raw mut byte).cast(), f.page(), at as usize, 1)
                    };
                    assert_eq!(Some(&byte), octets.next());
                }
            }
            assert_eq!(octets.next(), None);
            // Copied in two parts, the octets are the same.
            let middle = len / 2;
            let mut parts = KVec::from_elem(0_u8, len, GFP_KERNEL)?;
            let (first, last) = parts.split_at_mut_checked(middle).ok_or(EINVAL)?;
            for (offset, part) in [(0, first), (middle, last)] {
                let copied = m.buf().copy_range_without_pages(offset, part);
                copied.ok_or(EINVAL)?;
            }
            assert!(parts.iter().eq(expected.iter()));
        }
        Ok(())
    }

    #[test]
    fn any_range_can_be_copied() -> Result {
        for s in SHAPES {
            let m = Message::filled(*s)?;
            let total = s.total();
            for (from, to) in [
                (0, total),
                (total / 3, total),
                (total / 2, total - total / 4),
            ] {
                let mut copy = KVec::from_elem(0_u8, to - from, GFP_KERNEL)?;
                m.buf().copy_range(from, &mut copy).ok_or(EINVAL)?;
                assert!(copy.iter().copied().eq((from..to).map(pattern)));
            }
            let mut copy = KVec::from_elem(0_u8, total + 1, GFP_KERNEL)?;
            assert!(m.buf().copy_range(0, &mut copy).is_none());
        }
        Ok(())
    }

    #[test]
    fn pages_are_taken_whole() -> Result {
        let m = Message::filled(shape(0, 100, 2 * PAGE_SIZE, 0))?;
        let mut fragments = m.buf().fragments(Parts::PAGES);
        let mut next = || fragments.next().map(|f| (f.offset(), f.len() as usize));
        assert_eq!(next(), Some((100, PAGE_SIZE - 100)));
        assert_eq!(next(), Some((0, PAGE_SIZE)));
        assert_eq!(next(), Some((0, 100)));
        assert_eq!(next(), None);
        Ok(())
    }

    #[test]
    fn missing_page_ends_the_fragments() -> Result {
        let mut m = Message::filled(shape(8, 0, 3 * PAGE_SIZE, 8))?;
        m.lose_page(1)?;
        assert_eq!(m.buf().fragments(Parts::ALL).count(), 2);
        Ok(())
    }
}
