// SPDX-License-Identifier: GPL-2.0

//! Putting a Reply where the XDR decoders look for it.
//!
//! The decoders see a Reply as one stream: the head, then the pages, then the tail. The upper layer
//! sets up these parts beforehand, by what it expects. A stream transport fills them one after the
//! other. Here some of the octets are there already, put into the pages by RDMA Write, and the
//! rest has to be put around them:
//!
//! ```text
//!   inline:   | header ............ | what follows the payload |
//!   stream:   | header (head) | payload, rounded up (pages) | what follows (pages, tail) |
//! ```
//!
//! RFC 8166 section 3.4.6: the inline part does not say where the payload was taken out. It is
//! where the pages begin, because the requester offered the pages for it; so the header is as long
//! as the head, or shorter if nothing follows the payload.

use super::{
    svc::FreshPages,
    xdr_buf::{
        XdrBuf,
        XDR_UNIT, //
    }, //
};
use crate::kext::prelude::*;
use crate::{
    kext::num,
    sys, //
};

/// Where the octets that the peer wrote into the pages end in the stream, and how long they are
/// there.
struct Payload {
    /// Rounded up to an XDR unit, RFC 4506 section 4.10.
    rounded: usize,
}

impl Payload {
    /// Checks that what was written fits the pages.
    ///
    /// The round-up octets may count as written: some peers write them too, to where the requester
    /// has room for them (RFC 8166 section 3.4.6.2).
    fn new(buf: &XdrBuf, written: u32) -> Result<Self> {
        let round_up = |len: usize| len.checked_next_multiple_of(XDR_UNIT).ok_or(EIO);
        let rounded = round_up(num::u32_as_usize(written))?;
        if rounded > round_up(buf.page_len())? {
            return Err(EIO);
        }
        Ok(Self { rounded })
    }
}

/// Shortens the head, so that the pages follow its last octet.
///
/// # Safety
///
/// Nobody else uses the buffers.
unsafe fn shorten_head(bufs: [&XdrBuf; 2], len: usize) {
    for buf in bufs {
        let excess = buf.head_len().saturating_sub(len);
        let buf = buf.as_raw();
        // SAFETY: The buffer is valid, and the caller guarantees exclusive use. The new length is
        // below the old one.
        unsafe {
            (*buf).head[0].iov_len -= excess;
            (*buf).buflen = (*buf)
                .buflen
                .saturating_sub(u32::try_from(excess).unwrap_or(u32::MAX));
        }
    }
}

/// Delivers a Reply whose inline part is `inline`, and of which `written` octets are in the pages.
///
/// `bufs` are `rq_rcv_buf` and `rq_private_buf`, which describe the same memory and must stay
/// equal. Returns the length of the Reply, which includes the octets in the pages.
///
/// What is longer than the upper layer expects is cut off, as a stream transport does; the decoders
/// notice. It is cut off at the end of the last whole XDR unit: the pages and the padding behind
/// them need not end with one.
///
/// An inline part that does not end with a whole XDR unit (RFC 4506 section 3) is taken as if
/// zeroes filled the last one: there are servers that pad the data of a READ wrongly, and SUNRPC
/// drops the connection for such a length. The stock transport rounds up, too.
///
/// # Errors
///
/// `EIO` if more octets were written than the pages hold.
///
/// # Safety
///
/// Head, pages and tail are valid for writes; nobody else uses them or the buffers.
pub(super) unsafe fn inline(bufs: [&XdrBuf; 2], inline: &[u8], written: u32) -> Result<usize> {
    let [buf, _] = bufs;
    let whole = inline.len().checked_next_multiple_of(XDR_UNIT).ok_or(EIO)?;
    let padding = [0; XDR_UNIT];
    let padding = padding.get(..whole - inline.len()).ok_or(EIO)?;
    let put = |at: usize, bytes: &[u8]| {
        if bytes.is_empty() {
            return 0;
        }
        // SAFETY: The caller guarantees it; the slice is as long as it says.
        unsafe { buf.write_at(at, bytes.as_ptr(), bytes.len()) }
    };
    let whole_units = |len: usize| len - len % XDR_UNIT;
    if written == 0 {
        return Ok(whole_units(put(0, inline) + put(inline.len(), padding)));
    }

    let payload = Payload::new(buf, written)?;
    let head_len = buf.head_len().min(whole);
    // SAFETY: The caller guarantees it.
    unsafe { shorten_head(bufs, head_len) };
    let (header, rest) = inline
        .split_at_checked(head_len)
        .unwrap_or((inline, &[][..]));
    let at = head_len + payload.rounded;
    let padding_at = if inline.len() < head_len {
        inline.len()
    } else {
        at + rest.len()
    };
    let put = put(0, header) + put(at, rest) + put(padding_at, padding);
    Ok(whole_units(payload.rounded + put))
}

/// Delivers a Reply that is where it belongs: `len` octets of head, pages and tail, all written by
/// the peer as one Reply chunk.
///
/// # Errors
///
/// `EIO` if it is longer than the memory offered for it.
pub(super) fn placed(buf: &XdrBuf, len: u32) -> Result<usize> {
    let len = num::u32_as_usize(len);
    if len > buf.head_len() + buf.page_len() + buf.tail_len() {
        return Err(EIO);
    }
    Ok(len)
}

/// Delivers a Reply of `len` octets that the peer wrote into the Reply buffer, which is `pages`.
///
/// What is longer than the upper layer expects is cut off, as by [`inline`]. Nothing is added to
/// what does not end with a whole XDR unit, as to any other Reply in a chunk.
///
/// # Errors
///
/// `EIO` if it is longer than the buffer.
///
/// # Safety
///
/// As for [`inline`]; and no device uses the buffer.
pub(super) unsafe fn buffered(bufs: [&XdrBuf; 2], pages: &FreshPages, len: u32) -> Result<usize> {
    let [buf, _] = bufs;
    let len = num::u32_as_usize(len);
    if len > pages.len() * PAGE_SIZE {
        return Err(EIO);
    }
    let mut at = 0;
    while let Some(fragment) = pages.fragment(at, len - at) {
        // SAFETY: The list has a reference to the page, which is always mapped (64 bits).
        let page = unsafe { sys::page_address(fragment.page()) }.cast::<u8>();
        let from = page.wrapping_add(num::u32_as_usize(fragment.offset()));
        // SAFETY: The caller guarantees it; the fragment lies within the page.
        let put = unsafe { buf.write_at(at, from, num::u32_as_usize(fragment.len())) };
        at += put;
        if put < num::u32_as_usize(fragment.len()) {
            return Ok(at - at % XDR_UNIT);
        }
    }
    Ok(at)
}

/// Delivers a Reply whose payload of `written` octets went to the pages by a Write chunk, and the
/// rest, `len` octets, to head and tail by a Reply chunk.
///
/// # Errors
///
/// `EIO` if one of them is longer than the memory offered for it.
///
/// # Safety
///
/// As for [`inline`].
pub(super) unsafe fn split(bufs: [&XdrBuf; 2], len: u32, written: u32) -> Result<usize> {
    let [buf, _] = bufs;
    let len = num::u32_as_usize(len);
    if len > buf.head_len() + buf.tail_len() {
        return Err(EIO);
    }
    let payload = Payload::new(buf, written)?;
    let head_len = buf.head_len().min(len);
    let rest = len - head_len;
    if payload.rounded > 0 {
        // SAFETY: The caller guarantees it.
        unsafe { shorten_head(bufs, head_len) };
    }
    // SAFETY: The caller guarantees it.
    let moved = unsafe { buf.move_tail(head_len + payload.rounded, rest) };
    Ok(head_len + payload.rounded + moved)
}

/// Returns a length as `xprt_complete_rqst` wants to be told it.
pub(super) fn length_for_c(len: usize) -> c_int {
    c_int::try_from(len).unwrap_or(c_int::MAX)
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_deliver)]
mod tests {
    use super::*;
    use crate::sunrpc::testing::{
        pattern,
        shape,
        Message,
        Shape,
        SHAPES,
        UNTOUCHED, //
    };

    /// `len` octets of a Reply, from `at` on.
    fn reply(at: usize, len: usize) -> Result<KVVec<u8>> {
        let mut bytes = KVVec::with_capacity(len, GFP_KERNEL)?;
        for at in at..at + len {
            bytes.push(pattern(at), GFP_KERNEL)?;
        }
        Ok(bytes)
    }

    /// A message with a payload in its pages, as if the peer had written it there.
    fn with_payload(shape: Shape, at: usize, len: usize) -> Result<Message> {
        let mut m = Message::new(shape)?;
        for i in 0..len {
            m.set(shape.head + i, pattern(at + i))?;
        }
        Ok(m)
    }

    #[test]
    fn inline_reply_fills_the_parts_in_order() -> Result {
        for s in SHAPES {
            for len in [0, 24, s.head, s.total() / 2, s.total()] {
                let len = len.min(s.total());
                let m = Message::new(*s)?;
                let src = reply(0, len)?;
                // SAFETY: The message is the test's own.
                let got = unsafe { inline(m.bufs(), &src, 0) }?;
                let whole = len.next_multiple_of(XDR_UNIT);
                assert_eq!(got, whole.min(s.total() - s.total() % XDR_UNIT));
                for at in 0..s.total() {
                    let expected = match at {
                        at if at < len => pattern(at),
                        at if at < whole => 0,
                        _ => UNTOUCHED,
                    };
                    assert_eq!(m.get(at)?, expected);
                }
                assert_eq!(m.damage()?, 0);
                assert!(m.bufs_are_equal());
                assert_eq!(m.buf().head_len(), s.head);
            }
        }
        Ok(())
    }

    #[test]
    fn too_long_inline_reply_is_cut_off() -> Result {
        for s in SHAPES {
            let m = Message::new(*s)?;
            let src = reply(0, s.total() + 100)?;
            // SAFETY: The message is the test's own.
            let got = unsafe { inline(m.bufs(), &src, 0) }?;
            assert_eq!(got, s.total() - s.total() % XDR_UNIT);
            assert_eq!(m.damage()?, 0);
        }
        Ok(())
    }

    #[test]
    fn payload_stays_where_it_was_written() -> Result {
        // Header as long as the head, or shorter: then the head is too.
        for header in [128, 100] {
            for pages in [1, 2, 3, 4, 4093, PAGE_SIZE, 2 * PAGE_SIZE + 1] {
                let s = shape(128, 60, pages, 0);
                let m = with_payload(s, header, pages)?;
                let src = reply(0, header)?;
                // SAFETY: The message is the test's own.
                let got = unsafe { inline(m.bufs(), &src, pages as u32) }?;
                assert_eq!(got, header + pages.next_multiple_of(4));
                assert_eq!(m.buf().head_len(), header);
                assert_eq!(m.buf().buflen(), s.total() - (128 - header));
                assert!(m.bufs_are_equal());
                assert_eq!(m.damage()?, 0);
                assert_eq!(m.decode_errors(got, header, pages, 0), Ok(0));
            }
        }
        Ok(())
    }

    #[test]
    fn short_payload_is_decoded() -> Result {
        for written in [4, 7, 100, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 2] {
            let s = shape(128, 0, 2 * PAGE_SIZE, 0);
            let m = with_payload(s, 88, written)?;
            let src = reply(0, 88)?;
            // SAFETY: The message is the test's own.
            let got = unsafe { inline(m.bufs(), &src, written as u32) }?;
            assert_eq!(got, 88 + written.next_multiple_of(4));
            assert_eq!(m.decode_errors(got, 88, written, 0), Ok(0));
            assert_eq!(m.damage()?, 0);
        }
        Ok(())
    }

    #[test]
    fn what_follows_the_payload_is_decoded() -> Result {
        // The tail has room for the padding and what follows. With a short payload, what follows
        // begins in the pages.
        for pages in [5, 6, 7, 8, PAGE_SIZE - 3, PAGE_SIZE, PAGE_SIZE + 1] {
            for written in [pages, pages / 2 + 1] {
                let s = shape(128, 12, pages, 3 + 32);
                let m = with_payload(s, 128, written)?;
                let rest_at = 128 + written.next_multiple_of(4);
                let mut src = reply(0, 128)?;
                src.extend_from_slice(&reply(rest_at, 32)?, GFP_KERNEL)?;
                // SAFETY: The message is the test's own.
                let got = unsafe { inline(m.bufs(), &src, written as u32) }?;
                assert_eq!(got, rest_at + 32);
                assert_eq!(m.buf().head_len(), 128);
                assert_eq!(m.damage()?, 0);
                assert_eq!(m.decode_errors(got, 128, written, 32), Ok(0));
            }
        }
        Ok(())
    }

    /// The data of a READ are the last item, in pages, with 0 to 3 octets of padding in place of
    /// what is right.
    #[test]
    fn wrongly_padded_data_are_decoded() -> Result {
        for len in [1, 2, 3, 4, 101, PAGE_SIZE - 1, PAGE_SIZE + 3] {
            for padding in 0..4 {
                let s = shape(100, 0, 2 * PAGE_SIZE, 8);
                let m = Message::new(s)?;
                let src = reply(0, 100 + len + padding)?;
                // SAFETY: The message is the test's own.
                let got = unsafe { inline(m.bufs(), &src, 0) }?;
                assert_eq!(got, (100 + len + padding).next_multiple_of(XDR_UNIT));
                assert!(m.bufs_are_equal());
                assert_eq!(m.decode_errors(got, 100, len, 0), Ok(0));
                assert_eq!(m.damage()?, 0);
            }
        }
        Ok(())
    }

    /// As above, but there is room for no more than the data and what makes them whole units. With
    /// pages that do not end with one, the end of the memory does not either.
    #[test]
    fn wrongly_padded_data_are_cut_off_at_a_whole_unit() -> Result {
        for len in [1, 2, 3, 101, 203, PAGE_SIZE - 1, PAGE_SIZE + 3] {
            for padding in 0..8 {
                let m = Message::new(shape(100, 0, len, 4))?;
                let src = reply(0, 100 + len + padding)?;
                // SAFETY: The message is the test's own.
                let got = unsafe { inline(m.bufs(), &src, 0) }?;
                assert_eq!(got, 100 + len.next_multiple_of(XDR_UNIT));
                assert!(m.bufs_are_equal());
                assert_eq!(m.decode_errors(got, 100, len, 0), Ok(0));
                assert_eq!(m.damage()?, 0);
            }
        }
        Ok(())
    }

    /// The data are in a chunk, and the inline part around them does not end with a whole unit.
    #[test]
    fn wrong_padding_behind_a_payload_is_filled_up() -> Result {
        for (head, written) in [(100, 64), (128, 61), (128, 64)] {
            for extra in [1, 2, 3] {
                let m = with_payload(shape(128, 0, 64, 24), head, written)?;
                let src = reply(0, head - 4 + extra)?;
                // SAFETY: The message is the test's own.
                let got = unsafe { inline(m.bufs(), &src, written as u32) }?;
                assert_eq!(got, head + written.next_multiple_of(4));
                assert_eq!(m.buf().head_len(), head);
                for at in head - 4 + extra..head {
                    assert_eq!(m.get(at)?, 0);
                }
                assert_eq!(m.damage()?, 0);
                assert!(m.bufs_are_equal());

                let m = with_payload(shape(head, 0, 64, 24), head, written)?;
                let src = reply(0, head + 4 + extra)?;
                // SAFETY: As above.
                let got = unsafe { inline(m.bufs(), &src, written as u32) }?;
                assert_eq!(got, head + written.next_multiple_of(4) + 8);
                assert_eq!(m.damage()?, 0);
            }
        }
        Ok(())
    }

    #[test]
    fn what_follows_is_cut_off_at_the_end() -> Result {
        let s = shape(16, 0, 64, 8);
        let m = with_payload(s, 16, 64)?;
        let src = reply(0, 16 + 100)?;
        // SAFETY: The message is the test's own.
        let got = unsafe { inline(m.bufs(), &src, 64) }?;
        assert_eq!(got, s.total());
        assert_eq!(m.damage()?, 0);
        // The payload is what it was.
        for i in 0..64 {
            assert_eq!(m.get(16 + i)?, pattern(16 + i));
        }
        Ok(())
    }

    #[test]
    fn more_payload_than_pages_is_refused() -> Result {
        for (pages, written, fits) in [
            (0, 1, false),
            (0, u32::MAX, false),
            (5, 5, true),
            // The round-up octets may have been written too.
            (5, 8, true),
            (5, 9, false),
            (8, 9, false),
            (8, u32::MAX, false),
        ] {
            let m = Message::new(shape(40, 0, pages, 8))?;
            let src = reply(0, 40)?;
            // SAFETY: The message is the test's own.
            let (a, b) = unsafe {
                (
                    inline(m.bufs(), &src, written).is_ok(),
                    split(m.bufs(), 40, written).is_ok(),
                )
            };
            assert_eq!(a, fits);
            assert_eq!(b, fits);
            assert_eq!(m.damage()?, 0);
        }
        Ok(())
    }

    #[test]
    fn placed_reply_must_fit() -> Result {
        for s in SHAPES {
            let m = Message::new(*s)?;
            let total = u32::try_from(s.total()).map_err(|_| EINVAL)?;
            assert_eq!(placed(m.buf(), total), Ok(s.total()));
            assert_eq!(placed(m.buf(), total + 1), Err(EIO));
            assert_eq!(placed(m.buf(), u32::MAX), Err(EIO));
        }
        Ok(())
    }

    /// `len` octets of a Reply in a Reply buffer.
    fn reply_buffer(len: usize) -> Result<FreshPages> {
        let mut pages = FreshPages::allocate(len.div_ceil(PAGE_SIZE))?;
        pages.write(0, &reply(0, len)?)?;
        Ok(pages)
    }

    /// What fits is where a stream transport would have put it, and the rest is dropped.
    #[test]
    fn buffered_reply_fills_the_parts_in_order() -> Result {
        for s in SHAPES {
            let total = s.total();
            let longer = [total + 1, total + 100, total + 2 * PAGE_SIZE];
            for len in [[24, total / 2, total], longer].into_iter().flatten() {
                let m = Message::new(*s)?;
                let pages = reply_buffer(len)?;
                // SAFETY: The message is the test's own, as are the pages.
                let got = unsafe { buffered(m.bufs(), &pages, u32::try_from(len)?) }?;
                let expected = match len > total {
                    true => total - total % XDR_UNIT,
                    false => len,
                };
                assert_eq!(got, expected);
                for at in 0..total {
                    let expected = match at < len {
                        true => pattern(at),
                        false => UNTOUCHED,
                    };
                    assert_eq!(m.get(at)?, expected);
                }
                assert_eq!(m.damage()?, 0);
                assert!(m.bufs_are_equal());
            }
        }
        Ok(())
    }

    #[test]
    fn buffered_reply_must_be_in_the_buffer() -> Result {
        let m = Message::new(shape(100, 0, PAGE_SIZE, 0))?;
        let pages = reply_buffer(100)?;
        let room = u32::try_from(pages.len() * PAGE_SIZE)?;
        // SAFETY: The message is the test's own, as are the pages.
        unsafe {
            assert!(buffered(m.bufs(), &pages, room).is_ok());
            assert_eq!(buffered(m.bufs(), &pages, room + 1), Err(EIO));
            assert_eq!(buffered(m.bufs(), &pages, u32::MAX), Err(EIO));
            assert_eq!(buffered(m.bufs(), &FreshPages::none(), 4), Err(EIO));
        }
        Ok(())
    }

    #[test]
    fn split_reply_is_decoded() -> Result {
        // `len` octets came to head and tail, `written` to the pages.
        for pages in [1, 6, 8, PAGE_SIZE + 3] {
            for written in [0, pages, pages / 2 + 1] {
                for len in [64, 128, 128 + 24] {
                    let s = shape(128, 0, pages, 24 + 3);
                    let (header, rest) = (len.min(128), len - len.min(128));
                    let mut m = with_payload(s, header, written)?;
                    for at in 0..header {
                        m.set(at, pattern(at))?;
                    }
                    let rest_at = header + written.next_multiple_of(4);
                    for i in 0..rest {
                        m.set(s.head + s.pages + i, pattern(rest_at + i))?;
                    }
                    // SAFETY: The message is the test's own.
                    let got = unsafe { split(m.bufs(), len as u32, written as u32) }?;
                    assert_eq!(got, rest_at + rest);
                    assert!(m.bufs_are_equal());
                    assert_eq!(m.damage()?, 0);
                    if written > 0 {
                        assert_eq!(m.decode_errors(got, header, written, rest), Ok(0));
                    } else {
                        for at in 0..len {
                            assert_eq!(m.get(at)?, pattern(at));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn split_reply_must_fit() -> Result {
        let m = Message::new(shape(40, 0, 16, 8))?;
        // SAFETY: The message is the test's own.
        unsafe {
            assert_eq!(split(m.bufs(), 49, 16), Err(EIO));
            assert_eq!(split(m.bufs(), 49, 0), Err(EIO));
            assert_eq!(split(m.bufs(), u32::MAX, 0), Err(EIO));
            assert_eq!(split(m.bufs(), 48, 17), Err(EIO));
        }
        assert_eq!(m.damage()?, 0);
        Ok(())
    }

    #[test]
    fn length_saturates() {
        assert_eq!(length_for_c(0), 0);
        assert_eq!(length_for_c(4096), 4096);
        assert_eq!(length_for_c(usize::MAX), c_int::MAX);
    }
}
