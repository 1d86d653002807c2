// SPDX-License-Identifier: GPL-2.0

//! Write chunks and the Reply chunk (RFC 8166, 3.4.6 and 4.3.3): counted arrays of segments.

use super::{
    Span,
    SEGMENT_LEN, //
};
use crate::proto::prelude::*;

/// A checked Write chunk or Reply chunk: a counted array of segments.
///
/// # Invariants
///
/// `segments` is a whole number of segments, each of which [`Segment::get`] accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    /// The segments as received.
    segments: &'a [u8],
    /// The sum of all segment lengths.
    total: u32,
}

impl<'a> Chunk<'a> {
    /// Reads and checks a chunk.
    #[inline(always)]
    pub(crate) fn get(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self> {
        let mut behind = *reader;
        let count = usize::try_from(behind.u32()?).map_err(|_| Fault::TooManySegments)?;
        if count > limits.chunk_segments {
            return Err(Fault::TooManySegments);
        }

        let segments = behind.bytes(count.saturating_mul(SEGMENT_LEN))?;
        let mut total = 0_u32;
        for segment in (Segments { rest: segments }) {
            segment.check()?;
            total = segment.add_to(total)?;
        }
        *reader = behind;

        // INVARIANT: These octets are segments that were checked above.
        Ok(Self { segments, total })
    }

    /// Reads a chunk that was checked before. Returns nothing if there are no octets left.
    #[inline]
    pub(super) fn get_checked(reader: &mut Reader<'a>) -> Option<Self> {
        let count = usize::try_from(reader.u32().ok()?).ok()?;
        let segments = reader.bytes(count.saturating_mul(SEGMENT_LEN)).ok()?;
        let lengths = Segments { rest: segments }.map(|segment| segment.length);
        // INVARIANT: The caller guarantees that they were checked.
        Some(Self {
            segments,
            total: lengths.fold(0, u32::wrapping_add),
        })
    }

    /// Returns the number of segments. A chunk without segments is "empty": a Requester uses it to
    /// request a result inline (RFC 8166, 4.3.2.3).
    pub(crate) const fn len(&self) -> usize {
        self.segments.len() / SEGMENT_LEN
    }

    /// Reads and checks a chunk, and returns it with its place in the message of `reader`.
    #[inline(always)]
    pub(crate) fn find(reader: &mut Reader<'a>, limits: &Limits) -> Result<(Span, Self)> {
        let at = reader.position().saturating_add(UNIT);
        let chunk = Self::get(reader, limits)?;
        let span = Span::new(at, chunk.segments.len(), chunk.total);
        Ok((span, chunk))
    }

    /// Returns the chunk that was found in `message` before.
    #[inline]
    pub(crate) fn at(span: &Span, message: &'a [u8]) -> Self {
        // INVARIANT: These octets were checked before.
        Self {
            segments: span.list(message),
            total: span.figure,
        }
    }

    /// Returns whether the chunk has no segment at all.
    pub(crate) const fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the sum of all segment lengths. In a Reply it is zero if the chunk was not used.
    pub(crate) const fn total(&self) -> u32 {
        self.total
    }

    /// Returns the segments in array order.
    pub(crate) const fn iter(&self) -> Segments<'a> {
        Segments {
            rest: self.segments,
        }
    }

    /// Checks a chunk that came back in a Reply against the Call's offer. Returns the number of
    /// octets that the Responder claims to have written.
    ///
    /// The Responder copies all segments and changes nothing but their lengths, and it fills them
    /// one after the other (RFC 8166, 3.4.6). So no segment is longer than offered, and only empty
    /// ones follow a shorter one.
    ///
    /// # Errors
    ///
    /// [`Fault::ChunkMismatch`] if the Responder did anything else.
    pub(crate) fn check_returned(
        &self,
        offered: impl ExactSizeIterator<Item = Segment>,
    ) -> Result<u32> {
        if self.len() != offered.len() {
            return Err(Fault::ChunkMismatch);
        }

        let mut partly_filled = false;
        for (returned, offered) in self.iter().zip(offered) {
            if !returned.may_return(&offered) || (partly_filled && returned.length != 0) {
                return Err(Fault::ChunkMismatch);
            }
            partly_filled |= returned.length < offered.length;
        }
        Ok(self.total)
    }
}

/// Iterator over the segments of a [`Chunk`].
///
/// # Invariants
///
/// `rest` is a whole number of segments.
#[derive(Clone, Debug)]
pub(crate) struct Segments<'a> {
    /// The remaining segments.
    rest: &'a [u8],
}

impl Iterator for Segments<'_> {
    type Item = Segment;

    #[inline]
    fn next(&mut self) -> Option<Segment> {
        let (segment, rest) = self.rest.split_first_chunk::<SEGMENT_LEN>()?;
        self.rest = rest;
        Segment::read(&mut Reader::new(segment)).ok()
    }
}

/// Writes a chunk.
#[inline]
pub(crate) fn put_chunk(writer: &mut Writer<'_>, segments: &[Segment]) -> Result {
    let count = u32::try_from(segments.len()).map_err(|_| Fault::TooManySegments)?;
    writer.u32(count)?;
    let mut total = 0_u32;
    for segment in segments {
        total = segment.add_to(total)?;
        segment.put(writer)?;
    }
    Ok(())
}

/// Writes a Reply chunk, or marks it "not present".
pub(crate) fn put_reply_chunk(writer: &mut Writer<'_>, segments: Option<&[Segment]>) -> Result {
    match segments {
        None => writer.bool(false),
        Some(segments) => {
            writer.bool(true)?;
            put_chunk(writer, segments)
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_chunk_array)
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

    /// Decodes a chunk made of words.
    fn chunk(words: &[u32]) -> Result<usize> {
        read_words(words, |reader| {
            Chunk::get(reader, &Limits::DEFAULT).map(|chunk| chunk.len())
        })
    }

    /// The example of RFC 8166, section 4.7.
    #[test]
    fn reply_chunk_looks_as_in_the_rfc() -> Result {
        let reply = [segment(1, 2), segment(3, 4)];
        let bytes = Bytes::from_writer(|writer| put_reply_chunk(writer, Some(&reply)))?;
        let (high, low) = OFFSET;
        assert!(bytes.is_words(&[1, 2, 1, 2, high, low, 3, 4, high, low]));

        let bytes = Bytes::from_writer(|writer| put_reply_chunk(writer, Some(&[])))?;
        assert!(bytes.is_words(&[1, 0]));
        let bytes = Bytes::from_writer(|writer| put_reply_chunk(writer, None))?;
        assert!(bytes.is_words(&[0]));
        Ok(())
    }

    #[test]
    fn chunk_comes_back() -> Result {
        let segments = [segment(1, 10), segment(2, 0), segment(3, 7)];
        let bytes = Bytes::from_writer(|writer| put_chunk(writer, &segments))?;
        let mut reader = Reader::new(bytes.get());
        let chunk = Chunk::get(&mut reader, &Limits::DEFAULT)?;
        assert!(reader.is_empty());
        assert_eq!(chunk.len(), 3);
        assert_eq!(chunk.total(), 17);
        assert!(chunk.iter().eq(segments));
        assert!(bytes.is_needed_whole(|reader| Chunk::get(reader, &Limits::DEFAULT)));
        Ok(())
    }

    /// RFC 8166, section 3.4.6: the Responder fills segments in order and changes only lengths.
    #[test]
    fn returned_chunk_must_match_the_offer() -> Result {
        let offered = [segment(1, 10), segment(2, 20), segment(3, 30)];
        let check = |returned: &[Segment]| -> Result<u32> {
            let bytes = Bytes::from_writer(|writer| put_chunk(writer, returned))?;
            let chunk = bytes.read(|reader| Chunk::get(reader, &Limits::DEFAULT))?;
            chunk.check_returned(offered.into_iter())
        };

        for (lengths, expected) in [
            ([10, 20, 30], Ok(60)),
            ([10, 20, 29], Ok(59)),
            ([10, 20, 0], Ok(30)),
            ([10, 1, 0], Ok(11)),
            ([3, 0, 0], Ok(3)),
            ([0, 0, 0], Ok(0)),
            ([10, 20, 31], Err(Fault::ChunkMismatch)),
            ([11, 0, 0], Err(Fault::ChunkMismatch)),
            ([9, 1, 0], Err(Fault::ChunkMismatch)),
            ([10, 0, 1], Err(Fault::ChunkMismatch)),
            ([0, 20, 30], Err(Fault::ChunkMismatch)),
        ] {
            let [a, b, c] = lengths;
            let returned = [segment(1, a), segment(2, b), segment(3, c)];
            assert_eq!(check(&returned), expected);
        }

        // The segments or their number differ from the offer.
        let mismatch = Err(Fault::ChunkMismatch);
        assert_eq!(check(&[]), mismatch);
        assert_eq!(check(&[segment(1, 10), segment(2, 20)]), mismatch);
        assert_eq!(
            check(&[segment(1, 0), segment(3, 0), segment(2, 0)]),
            mismatch
        );
        let moved = Segment {
            offset: 0,
            ..segment(1, 10)
        };
        assert_eq!(check(&[moved, segment(2, 20), segment(3, 30)]), mismatch);
        Ok(())
    }

    #[test]
    fn lengths_add_up_within_32_bits() {
        let half = 0x8000_0000;
        assert_eq!(chunk(&[2, 1, half, 0, 0, 1, half - 1, 0, 0]), Ok(2));
        assert_eq!(
            chunk(&[2, 1, half, 0, 0, 1, half, 0, 0]),
            Err(Fault::ChunkTooLong)
        );
        let segments = [segment(1, half), segment(1, half)];
        assert_eq!(
            Bytes::from_writer(|writer| put_chunk(writer, &segments)).err(),
            Some(Fault::ChunkTooLong)
        );
    }

    #[test]
    fn segments_stay_within_the_offset_space() {
        let max = u32::MAX;
        assert_eq!(chunk(&[1, 1, 1, max, max - 1]), Ok(1));
        assert_eq!(chunk(&[1, 1, 0, max, max]), Ok(1));
        assert_eq!(chunk(&[1, 1, 1, max, max]), Err(Fault::OffsetOverflow));
        let beyond = Segment {
            offset: u64::MAX,
            ..segment(1, 1)
        };
        assert_eq!(
            Bytes::from_writer(|writer| put_chunk(writer, &[beyond])).err(),
            Some(Fault::OffsetOverflow)
        );
    }

    /// A count is refused because of its value, before the segments are read.
    #[test]
    fn segments_are_limited() -> Result {
        let limits = Limits {
            chunk_segments: 1,
            ..Limits::DEFAULT
        };
        for (count, fault) in [
            (1, Fault::Truncated),
            (2, Fault::TooManySegments),
            (u32::MAX, Fault::TooManySegments),
        ] {
            let bytes = Bytes::from_words(&[count])?;
            let chunk = bytes.read(|reader| Chunk::get(reader, &limits));
            assert_eq!(chunk, Err(fault));
        }
        Ok(())
    }
}
