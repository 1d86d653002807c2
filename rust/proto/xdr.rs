// SPDX-License-Identifier: GPL-2.0

//! XDR (RFC 4506) over byte slices: a checked reader and a checked writer.
//!
//! Neither of them indexes. A read past the end fails with [`Fault::Truncated`], a write past the
//! end with [`Fault::NoSpace`]. In both cases the position is left as it was before the call.

use crate::proto::prelude::*;

/// The size of an XDR unit in octets.
pub(crate) const UNIT: usize = 4;

/// Returns the number of zero octets that fill an item of `len` octets up to a whole unit.
pub(crate) const fn pad_len(len: usize) -> usize {
    len.wrapping_neg() & 3
}

/// Reads XDR items from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    /// The octets still to be read.
    rest: &'a [u8],
    /// The number of octets at the start.
    total: usize,
}

impl<'a> Reader<'a> {
    /// Starts reading at the first octet of `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            total: bytes.len(),
        }
    }

    /// Returns the number of octets read so far.
    pub(crate) const fn position(&self) -> usize {
        self.total.saturating_sub(self.rest.len())
    }

    /// Returns the octets not read yet, without reading them.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether everything was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads `N` octets.
    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<&'a [u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(array)
    }

    /// Reads `len` octets, which are not padded.
    #[inline]
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(Fault::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a word.
    #[inline]
    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(|bytes| u32::from_be_bytes(*bytes))
    }

    /// Reads several words, or none of them.
    #[inline]
    pub(crate) fn words<const N: usize>(&mut self) -> Result<[u32; N]> {
        let bytes = self.bytes(N.saturating_mul(UNIT))?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(UNIT)) {
            *word = Reader::new(bytes).u32()?;
        }
        Ok(words)
    }

    /// Reads a double word.
    #[inline]
    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(|bytes| u64::from_be_bytes(*bytes))
    }

    /// Reads a word that must be 0 or 1: a boolean, or the "is present" word of optional data.
    #[inline]
    pub(crate) fn bool(&mut self) -> Result<bool> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(Fault::Truncated)?;
        let word = u32::from_be_bytes(*word);
        if word > 1 {
            return Err(Fault::BadDiscriminator(word));
        }
        self.rest = rest;
        Ok(word == 1)
    }

    /// Reads a word if that is zero: it marks a list "not present", as most are. Returns whether it
    /// was.
    #[inline(always)]
    pub(crate) fn skip_absent(&mut self) -> bool {
        let absent = self.rest.strip_prefix(&[0; UNIT]);
        self.rest = absent.unwrap_or(self.rest);
        absent.is_some()
    }

    /// Reads an opaque item of `len` octets and the padding behind it.
    ///
    /// The padding must be present, but its contents are ignored.
    pub(crate) fn opaque_fixed(&mut self, len: usize) -> Result<&'a [u8]> {
        let before = *self;
        let bytes = self.bytes(len)?;
        if let Err(fault) = self.bytes(pad_len(len)) {
            *self = before;
            return Err(fault);
        }
        Ok(bytes)
    }

    /// Reads an opaque item preceded by its length, which must not be above `max`.
    pub(crate) fn opaque(&mut self, max: usize) -> Result<&'a [u8]> {
        let before = *self;
        let item = self.u32().and_then(|len| match usize::try_from(len) {
            Ok(len) if len <= max => self.opaque_fixed(len),
            _ => Err(Fault::ItemTooLong),
        });
        if item.is_err() {
            *self = before;
        }
        item
    }
}

/// Writes XDR items to the front of a byte slice.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    /// The destination. Only the octets that items need are overwritten.
    buf: &'a mut [u8],
    /// The number of octets written.
    len: usize,
}

impl<'a> Writer<'a> {
    /// Starts writing at the first octet of `buf`.
    pub(crate) fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    /// Returns the number of octets written so far.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Writes `bytes` as they are.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result {
        let end = self.len.checked_add(bytes.len()).ok_or(Fault::NoSpace)?;
        self.buf
            .get_mut(self.len..end)
            .ok_or(Fault::NoSpace)?
            .copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Writes several words, or none of them.
    #[inline]
    pub(crate) fn words<const N: usize>(&mut self, words: [u32; N]) -> Result {
        self.bytes(words.map(u32::to_be_bytes).as_flattened())
    }

    /// Writes a word.
    #[inline]
    pub(crate) fn u32(&mut self, value: u32) -> Result {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes a double word.
    #[inline]
    pub(crate) fn u64(&mut self, value: u64) -> Result {
        self.bytes(&value.to_be_bytes())
    }

    /// Writes a boolean, or the "is present" word of optional data.
    #[inline]
    pub(crate) fn bool(&mut self, value: bool) -> Result {
        self.u32(u32::from(value))
    }

    /// Writes an opaque item and the padding behind it.
    pub(crate) fn opaque_fixed(&mut self, bytes: &[u8]) -> Result {
        let before = self.len;
        self.bytes(bytes)?;
        for _ in 0..pad_len(bytes.len()) {
            if let Err(fault) = self.bytes(&[0]) {
                self.len = before;
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Writes an opaque item preceded by its length.
    pub(crate) fn opaque(&mut self, bytes: &[u8]) -> Result {
        let before = self.len;
        let len = u32::try_from(bytes.len()).map_err(|_| Fault::NoSpace)?;
        self.u32(len)?;
        self.opaque_fixed(bytes).inspect_err(|_| self.len = before)
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_xdr)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_together_or_not_at_all() {
        let octets = [0, 0, 0, 1, 9, 0, 0, 2, 7, 7];
        let mut reader = Reader::new(&octets);
        assert_eq!(reader.words::<3>(), Err(Fault::Truncated));
        assert_eq!(reader.position(), 0);
        assert_eq!(reader.words(), Ok([1, 0x0900_0002]));
        assert_eq!(reader.words::<1>(), Err(Fault::Truncated));
        assert_eq!(reader.rest(), [7, 7]);
        assert_eq!(reader.words(), Ok([]));
    }

    #[test]
    fn words_are_written_together_or_not_at_all() {
        let mut octets = [9; 10];
        let mut writer = Writer::new(&mut octets);
        assert_eq!(writer.words([1]), Ok(()));
        assert_eq!(writer.words([2, 3]), Err(Fault::NoSpace));
        assert_eq!(writer.len(), 4);
        assert_eq!(octets, [0, 0, 0, 1, 9, 9, 9, 9, 9, 9]);
    }

    #[test]
    fn padding_fills_up_to_a_unit() {
        for (len, pad) in [
            (0, 0),
            (1, 3),
            (2, 2),
            (3, 1),
            (4, 0),
            (5, 3),
            (usize::MAX, 1),
        ] {
            assert_eq!(pad_len(len), pad);
        }
    }

    #[test]
    fn words_are_big_endian() -> Result {
        let mut buf = [0; 12];
        let mut writer = Writer::new(&mut buf);
        writer.u32(0x0102_0304)?;
        writer.u64(0x0506_0708_090a_0b0c)?;
        assert_eq!(writer.len(), 12);
        assert_eq!(buf, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);

        let mut reader = Reader::new(&buf);
        assert_eq!(reader.u32()?, 0x0102_0304);
        assert_eq!(reader.position(), 4);
        assert_eq!(reader.u64()?, 0x0506_0708_090a_0b0c);
        assert_eq!(reader.position(), 12);
        assert!(reader.is_empty());
        Ok(())
    }

    #[test]
    fn reading_past_the_end_moves_nothing() -> Result {
        let buf = [0, 0, 0, 1, 9, 9, 9];
        let mut reader = Reader::new(&buf);
        assert_eq!(reader.u64(), Err(Fault::Truncated));
        assert_eq!(reader.u32()?, 1);
        assert_eq!(reader.u32(), Err(Fault::Truncated));
        assert_eq!(reader.bytes(4), Err(Fault::Truncated));
        assert_eq!(reader.bytes(usize::MAX), Err(Fault::Truncated));
        assert_eq!(reader.position(), 4);
        assert_eq!(reader.rest(), [9, 9, 9]);
        assert_eq!(reader.bytes(3)?, [9, 9, 9]);
        Ok(())
    }

    #[test]
    fn writing_past_the_end_writes_nothing() -> Result {
        let mut buf = [7; 6];
        let mut writer = Writer::new(&mut buf);
        writer.u32(1)?;
        assert_eq!(writer.u32(2), Err(Fault::NoSpace));
        assert_eq!(writer.opaque_fixed(&[5]), Err(Fault::NoSpace));
        assert_eq!(writer.opaque(&[]), Err(Fault::NoSpace));
        assert_eq!(writer.len(), 4);
        writer.bytes(&[3, 4])?;
        assert_eq!(writer.bytes(&[5]), Err(Fault::NoSpace));
        assert_eq!(buf, [0, 0, 0, 1, 3, 4]);
        Ok(())
    }

    #[test]
    fn a_discriminator_is_zero_or_one() -> Result {
        for (word, expected) in [
            (0, Ok(false)),
            (1, Ok(true)),
            (2, Err(Fault::BadDiscriminator(2))),
            (0x0100_0000, Err(Fault::BadDiscriminator(0x0100_0000))),
            (u32::MAX, Err(Fault::BadDiscriminator(u32::MAX))),
        ] {
            let buf = word.to_be_bytes();
            let mut reader = Reader::new(&buf);
            assert_eq!(reader.bool(), expected);
            assert_eq!(reader.position(), if expected.is_ok() { 4 } else { 0 });
        }
        let mut buf = [7; 8];
        let mut writer = Writer::new(&mut buf);
        writer.bool(true)?;
        writer.bool(false)?;
        assert_eq!(buf, [0, 0, 0, 1, 0, 0, 0, 0]);
        Ok(())
    }

    #[test]
    fn opaque_items_are_padded() -> Result {
        let item = [1, 2, 3, 4, 5];
        let mut buf = [7; 16];
        for (len, encoded_len) in [(0, 4), (1, 8), (2, 8), (3, 8), (4, 8), (5, 12)] {
            let bytes = item.get(..len).ok_or(Fault::Truncated)?;
            let mut writer = Writer::new(&mut buf);
            writer.opaque(bytes)?;
            let written = writer.len();
            assert_eq!(written, encoded_len);

            let mut reader = Reader::new(&buf);
            assert_eq!(reader.opaque(len)?, bytes);
            assert_eq!(reader.position(), written);

            // No shorter item is accepted, padding included.
            for shorter in 0..written {
                let mut reader = Reader::new(buf.get(..shorter).ok_or(Fault::Truncated)?);
                assert_eq!(reader.opaque(len), Err(Fault::Truncated));
                assert_eq!(reader.position(), 0);
            }
        }
        Ok(())
    }

    #[test]
    fn opaque_items_have_a_maximum() {
        let buf = [0, 0, 0, 4, 1, 2, 3, 4];
        assert_eq!(Reader::new(&buf).opaque(3), Err(Fault::ItemTooLong));
        assert_eq!(Reader::new(&buf).opaque(4), Ok(&[1, 2, 3, 4][..]));
        let huge = [0xff; 8];
        assert_eq!(Reader::new(&huge).opaque(usize::MAX), Err(Fault::Truncated));
    }
}
