// SPDX-License-Identifier: GPL-2.0

//! What the tests of several files need.

use super::{
    error::Result,
    xdr::Writer, //
};

/// The size of the largest test message.
const CAPACITY: usize = 512;

/// The bytes of a test message.
pub(super) struct Bytes {
    /// The message and unused room behind it.
    buf: [u8; CAPACITY],
    /// The size of the message.
    len: usize,
}

impl Bytes {
    /// A message that consists of the given words.
    pub(super) fn from_words(words: &[u32]) -> Result<Self> {
        Self::from_writer(|writer| words.iter().try_for_each(|word| writer.u32(*word)))
    }

    /// A message that `write` writes.
    pub(super) fn from_writer(write: impl FnOnce(&mut Writer<'_>) -> Result) -> Result<Self> {
        let mut buf = [0; CAPACITY];
        let mut writer = Writer::new(&mut buf);
        write(&mut writer)?;
        let len = writer.len();
        Ok(Self { buf, len })
    }

    /// A message that `encode` writes to a buffer, and the size of which it returns.
    pub(super) fn from_encoder(encode: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<Self> {
        let mut buf = [0; CAPACITY];
        let len = encode(&mut buf)?;
        Ok(Self { buf, len })
    }

    /// Returns the message.
    pub(super) fn get(&self) -> &[u8] {
        self.prefix(self.len)
    }

    /// Returns the first `len` octets of the message and of the zeroes behind it.
    pub(super) fn prefix(&self, len: usize) -> &[u8] {
        self.buf.get(..len).unwrap_or(&self.buf)
    }

    /// Returns whether the message is exactly these words.
    pub(super) fn is_words(&self, words: &[u32]) -> bool {
        Self::from_words(words).is_ok_and(|expected| expected.get() == self.get())
    }
}
