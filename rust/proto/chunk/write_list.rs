// SPDX-License-Identifier: GPL-2.0

//! The Write list (RFC 8166, 3.4.6 and 4.3.2).

use super::{
    put_chunk,
    Chunk,
    Span,
    SEGMENT_LEN, //
};
use crate::proto::prelude::*;

/// A checked Write list.
///
/// # Invariants
///
/// `entries` is a whole number of entries: each an "is present" word and a chunk that
/// [`Chunk::get`] accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteList<'a> {
    /// The entries as received, without the word that ends the list.
    entries: &'a [u8],
    /// The number of chunks.
    count: usize,
}

impl<'a> WriteList<'a> {
    /// Reads and checks a Write list.
    pub(crate) fn get(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self> {
        let mut behind = *reader;
        let mut count = 0_usize;
        let start = behind.rest();
        let mut left = start.len();

        while behind.bool()? {
            if count >= limits.write_chunks {
                return Err(Fault::TooManyChunks);
            }
            Chunk::get(&mut behind, limits)?;
            count = count.saturating_add(1);
            left = behind.rest().len();
        }
        *reader = behind;

        // INVARIANT: The octets up to those that were left are `count` entries that were read
        // above.
        let len = start.len().saturating_sub(left);
        Ok(Self {
            entries: start.get(..len).ok_or(Fault::Truncated)?,
            count,
        })
    }

    /// Reads and checks a Write list, and returns its place in the message that `reader` is at.
    #[inline(always)]
    pub(crate) fn find(reader: &mut Reader<'a>, limits: &Limits) -> Result<Span> {
        if reader.skip_absent() {
            return Ok(Span::default());
        }
        let at = reader.position();
        let list = Self::get(reader, limits)?;
        let count = u32::try_from(list.count).map_err(|_| Fault::TooManyChunks)?;
        Ok(Span::new(at, list.entries.len(), count))
    }

    /// Returns the list that was found in `message` before.
    #[inline]
    pub(crate) fn at(span: &Span, message: &'a [u8]) -> Self {
        // INVARIANT: These octets were checked before.
        Self {
            entries: span.list(message),
            count: usize::try_from(span.figure).unwrap_or(usize::MAX),
        }
    }

    /// Returns the number of chunks.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// Returns a number of segments that those of all chunks together do not exceed.
    pub(crate) const fn most_segments(&self) -> usize {
        self.entries.len() / SEGMENT_LEN
    }

    /// Returns whether the list is marked "not present".
    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the only chunk of the list, or `None` if there are none or several.
    #[inline]
    pub(crate) fn single(&self) -> Option<Chunk<'a>> {
        let mut chunks = self.iter();
        let first = chunks.next()?;
        match chunks.next() {
            None => Some(first),
            Some(_) => None,
        }
    }

    /// Returns the chunks in list order.
    pub(crate) const fn iter(&self) -> Chunks<'a> {
        Chunks {
            rest: Reader::new(self.entries),
        }
    }
}

/// Iterator over the chunks of a [`WriteList`].
///
/// # Invariants
///
/// `rest` is a whole number of checked entries.
#[derive(Clone, Debug)]
pub(crate) struct Chunks<'a> {
    /// The remaining entries.
    rest: Reader<'a>,
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Chunk<'a>;

    #[inline]
    fn next(&mut self) -> Option<Chunk<'a>> {
        // At the end of the entries no word is left to read. Before it, by the type invariant, a
        // whole entry follows.
        self.rest.u32().ok()?;
        Chunk::get_checked(&mut self.rest)
    }
}

/// Writes a Write list.
pub(crate) fn put_write_list(writer: &mut Writer<'_>, chunks: &[&[Segment]]) -> Result {
    for segments in chunks {
        writer.bool(true)?;
        put_chunk(writer, segments)?;
    }
    writer.bool(false)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_chunk_write_list)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::testing::{
            read_words,
            segment,
            Bytes,
            OFFSET, //
        },
        *, //
    };

    /// Decodes a Write list made of words.
    fn write_list(words: &[u32]) -> Result<usize> {
        read_words(words, |reader| {
            WriteList::get(reader, &Limits::DEFAULT).map(|list| list.len())
        })
    }

    /// The example of RFC 8166, section 4.7.
    #[test]
    fn list_looks_as_in_the_rfc() -> Result {
        let bytes = Bytes::from_writer(|writer| {
            put_write_list(
                writer,
                &[&[segment(1, 2), segment(3, 4)], &[], &[segment(5, 6)]],
            )
        })?;
        let (high, low) = OFFSET;
        assert!(bytes
            .is_words(&[1, 2, 1, 2, high, low, 3, 4, high, low, 1, 0, 1, 1, 5, 6, high, low, 0,]));
        let bytes = Bytes::from_writer(|writer| put_write_list(writer, &[]))?;
        assert!(bytes.is_words(&[0]));
        Ok(())
    }

    /// A list of one empty chunk differs from no list.
    #[test]
    fn absent_is_not_empty() -> Result {
        let bytes = Bytes::from_words(&[0])?;
        let list = bytes.read(|reader| WriteList::get(reader, &Limits::DEFAULT))?;
        assert!(list.is_empty());
        assert_eq!(list.len(), 0);
        assert_eq!(list.single(), None);
        assert_eq!(list, WriteList::default());

        let bytes = Bytes::from_words(&[1, 0, 0])?;
        let list = bytes.read(|reader| WriteList::get(reader, &Limits::DEFAULT))?;
        assert!(!list.is_empty());
        assert_eq!(list.len(), 1);
        assert_eq!(list.single(), Some(Chunk::default()));
        Ok(())
    }

    #[test]
    fn write_list_comes_back() -> Result {
        let chunks: [&[Segment]; 3] = [&[segment(1, 10), segment(2, 20)], &[], &[segment(3, 5)]];
        let bytes = Bytes::from_writer(|writer| put_write_list(writer, &chunks))?;

        let mut reader = Reader::new(bytes.get());
        let list = WriteList::get(&mut reader, &Limits::DEFAULT)?;
        assert!(reader.is_empty());
        assert_eq!(list.len(), 3);
        assert!(list.single().is_none());
        assert!(list.iter().map(|chunk| chunk.total()).eq([30, 0, 5]));
        assert!(list
            .iter()
            .map(|chunk| chunk.is_empty())
            .eq([false, true, false]));
        for (chunk, expected) in list.iter().zip(chunks) {
            assert!(chunk.iter().eq(expected.iter().copied()));
        }
        Ok(())
    }

    /// Each chunk is a data item of its own, so the limit of an XDR stream applies to each chunk
    /// only.
    #[test]
    fn a_list_may_exceed_32_bits() -> Result {
        let max = u32::MAX;
        let bytes = Bytes::from_words(&[1, 1, 1, max, 0, 0, 1, 1, 1, max, 0, 0, 0])?;
        let list = bytes.read(|reader| WriteList::get(reader, &Limits::DEFAULT))?;
        assert!(list.iter().map(|chunk| chunk.total()).eq([max, max]));
        assert_eq!(
            write_list(&[1, 2, 1, max, 0, 0, 1, 1, 0, 0, 0]),
            Err(Fault::ChunkTooLong)
        );
        Ok(())
    }

    #[test]
    fn chunks_are_limited() -> Result {
        let limits = Limits {
            write_chunks: 2,
            chunk_segments: 1,
            ..Limits::DEFAULT
        };
        for (words, expected) in [
            (&[1, 0, 1, 0, 0][..], Ok(2)),
            (&[1, 0, 1, 0, 1, 0, 0], Err(Fault::TooManyChunks)),
            (&[1, 2], Err(Fault::TooManySegments)),
        ] {
            let bytes = Bytes::from_words(words)?;
            let list = bytes.read(|reader| WriteList::get(reader, &limits));
            assert_eq!(list.map(|list| list.len()), expected);
        }
        Ok(())
    }

    #[test]
    fn no_strict_prefix_is_accepted() -> Result {
        let bytes = Bytes::from_writer(|writer| {
            put_write_list(writer, &[&[segment(1, 2)], &[], &[segment(3, 4)]])
        })?;
        assert!(bytes.is_needed_whole(|reader| WriteList::get(reader, &Limits::DEFAULT)));
        Ok(())
    }

    #[test]
    fn bad_discriminators_are_refused() {
        assert_eq!(write_list(&[3]), Err(Fault::BadDiscriminator(3)));
        assert_eq!(write_list(&[1, 0, 4]), Err(Fault::BadDiscriminator(4)));
    }
}
