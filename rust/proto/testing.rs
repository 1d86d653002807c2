// SPDX-License-Identifier: GPL-2.0

//! Helpers that several test modules share.

use super::{
    chunk::ReadSegment,
    message::{
        decode,
        Reply,
        Version, //
    }, //
};
use crate::proto::prelude::*;

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
    /// Makes a message of the given words.
    pub(super) fn from_words(words: &[u32]) -> Result<Self> {
        Self::from_writer(|writer| words.iter().try_for_each(|word| writer.u32(*word)))
    }

    /// Makes a message with `write`.
    pub(super) fn from_writer(write: impl FnOnce(&mut Writer<'_>) -> Result) -> Result<Self> {
        let mut buf = [0; CAPACITY];
        let mut writer = Writer::new(&mut buf);
        write(&mut writer)?;
        let len = writer.len();
        Ok(Self { buf, len })
    }

    /// Makes a message with `encode`, which writes to a buffer and returns the size.
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

    /// Reads the message, or its beginning, with `get`.
    pub(super) fn read<'a, T>(
        &'a self,
        get: impl FnOnce(&mut Reader<'a>) -> Result<T>,
    ) -> Result<T> {
        get(&mut Reader::new(self.get()))
    }

    /// Returns whether `get` reports each strict prefix of the message as truncated.
    pub(super) fn is_needed_whole<'a, T>(
        &'a self,
        get: impl Fn(&mut Reader<'a>) -> Result<T>,
    ) -> bool {
        (0..self.len)
            .map(|len| get(&mut Reader::new(self.prefix(len))))
            .all(|outcome| outcome.err() == Some(Fault::Truncated))
    }

    /// Returns whether the message is exactly these words.
    pub(super) fn is_words(&self, words: &[u32]) -> bool {
        Self::from_words(words).is_ok_and(|expected| expected.get() == self.get())
    }
}

/// The two words of the offset of [`segment`].
pub(super) const OFFSET: (u32, u32) = (0x0001_0002, 0x0003_0004);

/// Returns a segment that is different for each `handle`.
pub(super) const fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0x0001_0002_0003_0004,
    }
}

/// Returns a Read segment that is different for each `handle`.
pub(super) const fn read_segment(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment {
        position,
        segment: segment(handle, length),
    }
}

/// Reads words with `get`.
pub(super) fn read_words<T>(
    words: &[u32],
    get: impl FnOnce(&mut Reader<'_>) -> Result<T>,
) -> Result<T> {
    get(&mut Reader::new(Bytes::from_words(words)?.get()))
}

/// Decodes a Reply. Of everything else, of an error, and of what is not sound, nothing is returned.
pub(super) fn decode_reply(version: Version, bytes: &[u8]) -> Option<Reply<'_>> {
    let header = decode(version, bytes, &Limits::DEFAULT).ok()?;
    Reply::of_header(&header)
}
