// SPDX-License-Identifier: GPL-2.0

//! Messages for tests, with real memory and pages, and a second, slow way to read them.

use super::xdr_buf::{
    XdrBuf,
    XDR_UNIT, //
};
use crate::kext::prelude::*;
use crate::{
    kext::num,
    sys, //
};
use kernel::page::Page;

/// The octet that memory contains before it is written to.
pub(super) const UNTOUCHED: u8 = 0xee;

/// Number of octets after head and tail that must stay as they are.
const GUARD: usize = 16;

/// The sizes of a message's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Number of octets in the head.
    pub(super) head: usize,
    /// Offset of the octets in the pages.
    pub(super) base: usize,
    /// Number of octets in the pages.
    pub(super) pages: usize,
    /// Number of octets in the tail.
    pub(super) tail: usize,
}

/// Shapes that have led to errors, or could.
pub(super) const SHAPES: &[Shape] = &[
    shape(40, 0, 0, 0),
    shape(40, 0, 0, 20),
    shape(0, 0, 100, 0),
    shape(128, 0, PAGE_SIZE, 0),
    shape(128, 0, PAGE_SIZE, 12),
    shape(128, 0, 1, 3),
    shape(128, 100, PAGE_SIZE - 100, 4),
    shape(128, 100, PAGE_SIZE - 99, 8),
    shape(128, PAGE_SIZE - 1, 2, 2),
    shape(128, PAGE_SIZE + 5, PAGE_SIZE, 4),
    shape(128, 2 * PAGE_SIZE, 3 * PAGE_SIZE - 1, 9),
    shape(PAGE_SIZE + 200, 7, 2 * PAGE_SIZE, PAGE_SIZE),
];

/// Makes a shape. The name is short, for long tables.
pub(super) const fn shape(head: usize, base: usize, pages: usize, tail: usize) -> Shape {
    Shape {
        head,
        base,
        pages,
        tail,
    }
}

impl Shape {
    /// Returns the number of octets of the message.
    pub(super) fn total(&self) -> usize {
        self.head + self.pages + self.tail
    }
}

/// A message with the memory that it describes.
pub(super) struct Message {
    /// The sizes of its parts, as they were in the beginning.
    shape: Shape,
    /// Memory of the head, and a guard.
    head: KVec<u8>,
    /// Memory of the tail, and a guard.
    tail: KVec<u8>,
    /// All pages that the list names.
    pages: KVec<Page>,
    /// The list of pages. Memory of the C structures.
    list: KVec<*mut sys::page>,
    /// `rq_rcv_buf` and `rq_private_buf`.
    raw: KBox<[sys::xdr_buf; 2]>,
}

impl Message {
    /// Makes a message of untouched memory.
    pub(super) fn new(shape: Shape) -> Result<Self> {
        let mut head = KVec::from_elem(UNTOUCHED, shape.head + GUARD, GFP_KERNEL)?;
        let mut tail = KVec::from_elem(UNTOUCHED, shape.tail + GUARD, GFP_KERNEL)?;
        let mut pages = KVec::new();
        let mut list = KVec::new();
        for _ in 0..(shape.base + shape.pages).div_ceil(PAGE_SIZE) {
            let page = Page::alloc_page(GFP_KERNEL)?;
            let fill = [UNTOUCHED; 64];
            for at in (0..PAGE_SIZE).step_by(fill.len()) {
                // SAFETY: Only this message has the page.
                unsafe { page.write_raw(fill.as_ptr(), at, fill.len())? };
            }
            list.push(page.as_ptr(), GFP_KERNEL)?;
            pages.push(page, GFP_KERNEL)?;
        }
        let make = |head: &mut KVec<u8>, tail: &mut KVec<u8>, list: &mut KVec<*mut sys::page>| {
            let kvec = |memory: &mut KVec<u8>| sys::kvec {
                iov_base: memory.as_mut_ptr().cast(),
                iov_len: memory.len() - GUARD,
            };
            sys::xdr_buf {
                head: [kvec(head)],
                tail: [kvec(tail)],
                pages: list.as_mut_ptr(),
                page_base: shape.base as u32,
                page_len: shape.pages as u32,
                buflen: shape.total() as u32,
                len: 0,
                ..pin_init::zeroed()
            }
        };
        let raw = [
            make(&mut head, &mut tail, &mut list),
            make(&mut head, &mut tail, &mut list),
        ];
        Ok(Self {
            shape,
            head,
            tail,
            pages,
            list,
            raw: KBox::new(raw, GFP_KERNEL)?,
        })
    }

    /// Makes a message in which each octet differs from its neighbours and from untouched memory.
    pub(super) fn filled(shape: Shape) -> Result<Self> {
        let mut this = Self::new(shape)?;
        for at in 0..shape.total() {
            this.set(at, pattern(at))?;
        }
        Ok(this)
    }

    /// Returns both descriptions of the message.
    pub(super) fn bufs(&self) -> [&XdrBuf; 2] {
        let [rcv, private] = &*self.raw;
        // SAFETY: Memory and pages are as described, and live as long as `self`.
        unsafe { [XdrBuf::from_raw(rcv), XdrBuf::from_raw(private)] }
    }

    /// Returns the first description of the message.
    pub(super) fn buf(&self) -> &XdrBuf {
        let [rcv, _] = self.bufs();
        rcv
    }

    /// Returns whether both descriptions are equal, as SUNRPC demands before it decodes.
    pub(super) fn bufs_are_equal(&self) -> bool {
        let [a, b] = &*self.raw;
        // The last field is followed by padding.
        let len = core::mem::offset_of!(sys::xdr_buf, len) + size_of::<c_uint>();
        let bytes = |buf: &sys::xdr_buf| {
            let start: *const sys::xdr_buf = buf;
            // SAFETY: Up to `len` the structure has no padding, and it lives as long as `self`.
            unsafe { core::slice::from_raw_parts(start.cast::<u8>(), len) }
        };
        bytes(a) == bytes(b)
    }

    /// Makes the page at `index` of the list a missing one.
    pub(super) fn lose_page(&mut self, index: usize) -> Result {
        *self.list.get_mut(index).ok_or(EINVAL)? = core::ptr::null_mut();
        Ok(())
    }

    /// Returns the octet at `at`, counted from the start of the message in its first shape.
    pub(super) fn get(&self, at: usize) -> Result<u8> {
        if let Some(byte) = self
            .head
            .get(..self.shape.head)
            .and_then(|head| head.get(at))
        {
            return Ok(*byte);
        }
        let at = at - self.shape.head;
        if at < self.shape.pages {
            let at = at + self.shape.base;
            let page = self.pages.get(at / PAGE_SIZE).ok_or(EINVAL)?;
            let mut byte = 0;
            // SAFETY: The page is not written to meanwhile: only this message has it.
            unsafe { page.read_raw(&mut byte, at % PAGE_SIZE, 1)? };
            return Ok(byte);
        }
        let at = at - self.shape.pages;
        let tail = self.tail.get(..self.shape.tail).ok_or(EINVAL)?;
        tail.get(at).copied().ok_or(EINVAL)
    }

    /// Sets the octet at `at`.
    pub(super) fn set(&mut self, at: usize, value: u8) -> Result {
        let shape = self.shape;
        if at < shape.head {
            *self.head.get_mut(at).ok_or(EINVAL)? = value;
        } else if at < shape.head + shape.pages {
            let at = at - shape.head + shape.base;
            let page = self.pages.get(at / PAGE_SIZE).ok_or(EINVAL)?;
            // SAFETY: Only this message has the page.
            unsafe { page.write_raw(&value, at % PAGE_SIZE, 1)? };
        } else {
            let at = at - shape.head - shape.pages;
            *self.tail.get_mut(at).ok_or(EINVAL)? = value;
        }
        Ok(())
    }

    /// Decodes a Reply as SUNRPC does: `header` octets, a payload of `payload` octets in the pages,
    /// then `rest` octets. Returns the number of octets that differ from [`pattern`].
    pub(super) fn decode_errors(
        &self,
        len: usize,
        header: usize,
        payload: usize,
        rest: usize,
    ) -> Result<usize> {
        let buf = self.buf().as_raw();
        let mut stream: sys::xdr_stream = pin_init::zeroed();
        let mut wrong = 0;
        let mut check = |p: *const u8, at: usize, len: usize| {
            for i in 0..len {
                // SAFETY: The decoder says that these octets are there.
                if unsafe { p.add(i).read() } != pattern(at + i) {
                    wrong += 1;
                }
            }
        };
        // SAFETY: Only this test has the message, which describes valid memory.
        unsafe {
            (*buf).len = len as u32;
            sys::xdr_init_decode(
                &mut stream,
                buf,
                (*buf).head[0].iov_base.cast(),
                core::ptr::null_mut(),
            );
            let p = sys::xdr_inline_decode(&mut stream, header);
            if p.is_null() {
                return Err(ENOENT);
            }
            check(p.cast(), 0, header);
            if payload > 0 {
                let have = sys::xdr_read_pages(&mut stream, payload as u32);
                if num::u32_as_usize(have) < payload {
                    return Err(ERANGE);
                }
                for i in 0..payload {
                    let at = num::u32_as_usize((*buf).page_base) + i;
                    let page = (*buf).pages.add(at / PAGE_SIZE).read();
                    let mut byte = 0u8;
                    sys::memcpy_from_page((&raw mut byte).cast(), page, at % PAGE_SIZE, 1);
                    check(&byte, header + i, 1);
                }
            }
            if rest > 0 {
                let p = sys::xdr_inline_decode(&mut stream, rest);
                if p.is_null() {
                    return Err(ENXIO);
                }
                check(p.cast(), header + payload.next_multiple_of(XDR_UNIT), rest);
            }
        }
        Ok(wrong)
    }

    /// Returns the number of octets outside of the message that have changed.
    pub(super) fn damage(&self) -> Result<usize> {
        let changed = |bytes: &[u8]| bytes.iter().filter(|&&b| b != UNTOUCHED).count();
        let mut count = changed(self.head.get(self.shape.head..).ok_or(EINVAL)?);
        count += changed(self.tail.get(self.shape.tail..).ok_or(EINVAL)?);
        let range = self.shape.base..self.shape.base + self.shape.pages;
        for (index, page) in self.pages.iter().enumerate() {
            for at in 0..PAGE_SIZE {
                let mut byte = 0;
                // SAFETY: The page is not written to meanwhile: only this message has it.
                unsafe { page.read_raw(&mut byte, at, 1)? };
                if !range.contains(&(index * PAGE_SIZE + at)) && byte != UNTOUCHED {
                    count += 1;
                }
            }
        }
        Ok(count)
    }
}

/// Returns an octet that depends on its place.
pub(super) fn pattern(at: usize) -> u8 {
    let value = (at % 251) as u8;
    if value == UNTOUCHED {
        0xff
    } else {
        value
    }
}
