// SPDX-License-Identifier: GPL-2.0

//! The Read list (RFC 8166, 3.4.5 and 4.3.1).

use super::{
    ReadSegment,
    Span,
    READ_ENTRY_LEN, //
};
use crate::proto::prelude::*;

/// A checked Read list.
///
/// # Invariants
///
/// `entries` is a whole number of entries, each of which [`ReadSegment::get`] accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadList<'a> {
    /// The entries as received, without the word that ends the list.
    entries: &'a [u8],
    /// The sum of all segment lengths.
    total: u32,
}

impl<'a> ReadList<'a> {
    /// Reads and checks a Read list.
    pub(crate) fn get(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self> {
        let mut behind = *reader;
        let start = behind.rest();
        let mut len = 0_usize;
        let mut count = 0_usize;
        let mut total = 0_u32;

        while behind.bool()? {
            if count >= limits.read_segments {
                return Err(Fault::TooManySegments);
            }
            let entry = ReadSegment::get(&mut behind)?;
            // The sum is over all chunks, since they belong to the same RPC message.
            total = entry.segment.add_to(total)?;
            count = count.saturating_add(1);
            len = len.saturating_add(READ_ENTRY_LEN);
        }
        *reader = behind;

        // INVARIANT: `len` octets are `count` entries that were read above.
        Ok(Self {
            entries: start.get(..len).ok_or(Fault::Truncated)?,
            total,
        })
    }

    /// Reads and checks a Read list, and returns it with its place in the message of `reader`.
    #[inline(always)]
    pub(crate) fn find(reader: &mut Reader<'a>, limits: &Limits) -> Result<(Span, Self)> {
        if reader.skip_absent() {
            return Ok(Default::default());
        }
        let at = reader.position();
        let list = Self::get(reader, limits)?;
        Ok((Span::new(at, list.entries.len(), list.total), list))
    }

    /// Returns the list that was found in `message` before.
    #[inline]
    pub(crate) fn at(span: &Span, message: &'a [u8]) -> Self {
        // INVARIANT: These octets were checked before.
        Self {
            entries: span.list(message),
            total: span.figure,
        }
    }

    /// Returns whether the list is marked "not present".
    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the sum of all segment lengths.
    pub(crate) const fn total(&self) -> u32 {
        self.total
    }

    /// Returns the length of the Position Zero Read chunk, which holds the RPC message itself, or
    /// `None` if there is no such chunk.
    pub(crate) fn position_zero_len(&self) -> Option<u32> {
        position_zero_len(self.iter())
    }

    /// Returns the segments in list order.
    pub(crate) const fn iter(&self) -> ReadSegments<'a> {
        ReadSegments { rest: self.entries }
    }
}

/// Returns the length of the Position Zero Read chunk among `segments`, if there is one.
fn position_zero_len(segments: impl IntoIterator<Item = ReadSegment>) -> Option<u32> {
    segments
        .into_iter()
        .filter(|entry| entry.position == 0)
        .map(|entry| entry.segment.length)
        .reduce(u32::saturating_add)
}

/// Iterator over the segments of a [`ReadList`].
///
/// # Invariants
///
/// `rest` is a whole number of checked entries.
#[derive(Clone, Debug)]
pub(crate) struct ReadSegments<'a> {
    /// The remaining entries.
    rest: &'a [u8],
}

impl Iterator for ReadSegments<'_> {
    type Item = ReadSegment;

    #[inline]
    fn next(&mut self) -> Option<ReadSegment> {
        let (entry, rest) = self.rest.split_first_chunk::<READ_ENTRY_LEN>()?;
        self.rest = rest;
        let mut reader = Reader::new(entry);
        reader.u32().ok()?;
        let position = reader.u32().ok()?;
        let segment = Segment::read(&mut reader).ok()?;
        Some(ReadSegment { position, segment })
    }
}

/// Writes a Read list: first the segments of `zero`, which are at position zero.
#[inline]
pub(crate) fn put_read_list(
    writer: &mut Writer<'_>,
    zero: &[Segment],
    others: &[ReadSegment],
) -> Result {
    let mut total = 0_u32;
    for segment in zero {
        total = segment.add_to(total)?;
        writer.words([1, 0])?;
        segment.put(writer)?;
    }
    for entry in others {
        total = entry.segment.add_to(total)?;
        entry.put(writer)?;
    }
    writer.bool(false)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_chunk_read_list)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::testing::{
            read_segment,
            read_words,
            Bytes,
            OFFSET, //
        },
        *, //
    };

    /// Decodes a Read list made of words.
    fn read_list(words: &[u32]) -> Result<usize> {
        read_words(words, |reader| {
            ReadList::get(reader, &Limits::DEFAULT).map(|list| list.iter().count())
        })
    }

    /// The example of RFC 8166, section 4.7.
    #[test]
    fn list_looks_as_in_the_rfc() -> Result {
        let bytes = Bytes::from_writer(|writer| {
            put_read_list(writer, &[], &[read_segment(8, 1, 2), read_segment(8, 3, 4)])
        })?;
        let (high, low) = OFFSET;
        assert!(bytes.is_words(&[1, 8, 1, 2, high, low, 1, 8, 3, 4, high, low, 0]));
        let bytes = Bytes::from_writer(|writer| put_read_list(writer, &[], &[]))?;
        assert!(bytes.is_words(&[0]));
        assert_eq!(read_list(&[0]), Ok(0));
        Ok(())
    }

    #[test]
    fn read_list_comes_back() -> Result {
        let entries = [
            read_segment(0, 1, 100),
            read_segment(0, 2, 0),
            read_segment(128, 3, 27),
        ];
        let bytes = Bytes::from_writer(|writer| put_read_list(writer, &[], &entries))?;

        let mut reader = Reader::new(bytes.get());
        let list = ReadList::get(&mut reader, &Limits::DEFAULT)?;
        assert!(reader.is_empty());
        assert!(!list.is_empty());
        assert_eq!(list.iter().count(), 3);
        assert_eq!(list.total(), 127);
        assert_eq!(list.position_zero_len(), Some(100));
        assert!(list.iter().eq(entries));
        Ok(())
    }

    #[test]
    fn positions_are_multiples_of_four() {
        for position in [1, 2, 3, 5, u32::MAX] {
            let fault = Err(Fault::UnalignedPosition(position));
            assert_eq!(read_list(&[1, position, 1, 4, 0, 0, 0]), fault);
            assert_eq!(
                Bytes::from_writer(|w| put_read_list(w, &[], &[read_segment(position, 1, 4)]))
                    .err(),
                fault.err()
            );
        }
        assert_eq!(read_list(&[1, 0xffff_fffc, 1, 3, 0, 0, 0]), Ok(1));
    }

    /// The whole list belongs to one XDR stream.
    #[test]
    fn lengths_add_up_within_32_bits() {
        let half = 0x8000_0000;
        assert_eq!(
            read_list(&[1, 0, 1, half, 0, 0, 1, 4, 1, half - 1, 0, 0, 0]),
            Ok(2)
        );
        assert_eq!(
            read_list(&[1, 0, 1, half, 0, 0, 1, 4, 1, half, 0, 0, 0]),
            Err(Fault::ChunkTooLong)
        );
        let segments = [read_segment(0, 1, half), read_segment(4, 1, half)];
        assert_eq!(
            Bytes::from_writer(|writer| put_read_list(writer, &[], &segments)).err(),
            Some(Fault::ChunkTooLong)
        );
    }

    #[test]
    fn position_zero_is_counted_alone() {
        let len = |segments: &[ReadSegment]| position_zero_len(segments.iter().copied());
        assert_eq!(len(&[]), None);
        assert_eq!(len(&[read_segment(4, 1, 9)]), None);
        assert_eq!(len(&[read_segment(0, 1, 0)]), Some(0));
        assert_eq!(
            len(&[
                read_segment(0, 1, 5),
                read_segment(4, 1, 9),
                read_segment(0, 1, 6)
            ]),
            Some(11)
        );
    }

    #[test]
    fn segments_are_limited() -> Result {
        let limits = Limits {
            read_segments: 1,
            ..Limits::DEFAULT
        };
        let one = Bytes::from_words(&[1, 0, 9, 9, 0, 0, 0])?;
        assert!(one.read(|reader| ReadList::get(reader, &limits)).is_ok());
        // The limit applies before the segment is read.
        let two = Bytes::from_words(&[1, 0, 9, 9, 0, 0, 1])?;
        assert_eq!(
            two.read(|reader| ReadList::get(reader, &limits)),
            Err(Fault::TooManySegments)
        );
        Ok(())
    }

    #[test]
    fn no_strict_prefix_is_accepted() -> Result {
        let bytes = Bytes::from_writer(|writer| {
            put_read_list(writer, &[], &[read_segment(4, 1, 2), read_segment(4, 3, 4)])
        })?;
        assert!(bytes.is_needed_whole(|reader| ReadList::get(reader, &Limits::DEFAULT)));
        Ok(())
    }

    #[test]
    fn bad_entries_are_refused() {
        assert_eq!(read_list(&[2]), Err(Fault::BadDiscriminator(2)));
        assert_eq!(
            read_list(&[1, 0, 1, 4, 0, 0, 7]),
            Err(Fault::BadDiscriminator(7))
        );
        assert_eq!(
            read_list(&[1, 4, 1, 2, u32::MAX, u32::MAX, 0]),
            Err(Fault::OffsetOverflow)
        );
    }
}
