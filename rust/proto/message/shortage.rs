// SPDX-License-Identifier: GPL-2.0

//! The error in place of a Reply for which a Call of Version Two has offered too little
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 7.3.3 to 7.3.5).

use super::{
    super::chunk::SEGMENT_LEN,
    header_len,
    Direction,
    RdmaError,
    Version, //
};

/// A Write chunk that a Call has offered, and the result for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfferedChunk {
    /// The number of its segments.
    pub(crate) segments: usize,
    /// The octets that it has room for.
    pub(crate) room: u32,
    /// The octets of the result; [`None`] if there is none for it.
    pub(crate) result: Option<u32>,
}

/// Returns the error for a Reply that has `rest` octets beside the results in chunks, where a
/// message may have `threshold` octets.
///
/// A result that is too long for its chunk comes first. A Reply chunk of the right size helps only
/// if its header fits a message: the Write chunks are returned with all their segments (4.5.2.1).
/// Else the Call has to have fewer segments.
pub(crate) fn shortage(
    chunks: impl Iterator<Item = OfferedChunk> + Clone,
    rest: u32,
    threshold: usize,
) -> RdmaError {
    for (chunk, index) in chunks.clone().zip(1..) {
        if let Some(needed) = chunk.result.filter(|len| *len > chunk.room) {
            return RdmaError::WriteResource { index, needed };
        }
    }
    let fits = |len: &usize| *len <= threshold;
    let external = |segments: usize, chunks: usize| {
        let empty = header_len((Version::Two, Direction::Reply, true), 0, None, Some(1)).ok()?;
        let more = chunks
            .checked_mul(8)?
            .checked_add(segments.checked_mul(SEGMENT_LEN)?)?;
        empty.checked_add(more)
    };
    let (mut count, mut segments, mut longest) = (0_usize, 0_usize, 0_usize);
    for chunk in chunks {
        count = count.saturating_add(1);
        segments = segments.saturating_add(chunk.segments);
        longest = longest.max(chunk.segments);
    }
    if external(segments, count).as_ref().is_some_and(fits) {
        return RdmaError::ReplyResource { needed: rest };
    }
    // The most that each chunk may have, the Reply chunk with its one segment included.
    let room = external(0, count).and_then(|len| threshold.checked_sub(len));
    let max = room.map_or(0, |room| {
        room.checked_div(SEGMENT_LEN)
            .and_then(|all| all.checked_div(count))
            .unwrap_or(0)
    });
    match u32::try_from(max) {
        Ok(segments @ 1..) if max < longest => RdmaError::Segments { max: segments },
        _ => RdmaError::System,
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_shortage)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// Returns chunks with these numbers of segments, of which the first has a result.
    fn chunks<const N: usize>(
        segments: [usize; N],
        result: u32,
        room: u32,
    ) -> core::iter::Enumerate<core::array::IntoIter<OfferedChunk, N>> {
        segments
            .map(|segments| OfferedChunk {
                segments,
                room,
                result: Some(result),
            })
            .into_iter()
            .enumerate()
    }

    /// Returns the error for such chunks, where only the first one is used.
    fn error<const N: usize>(segments: [usize; N], result: u32, threshold: usize) -> RdmaError {
        let chunks = chunks(segments, result, 1000).map(|(index, chunk)| OfferedChunk {
            result: chunk.result.filter(|_| index == 0),
            ..chunk
        });
        shortage(chunks, 300, threshold)
    }

    /// Sections 7.3.4 and 7.3.5: which chunk is too short, and what would be enough.
    #[test]
    fn the_error_says_what_would_be_enough() {
        let needed = 1001;
        assert_eq!(
            error([1, 1], needed, 4096),
            RdmaError::WriteResource { index: 1, needed }
        );
        assert_eq!(
            error([1, 1], 1000, 4096),
            RdmaError::ReplyResource { needed: 300 }
        );
        assert_eq!(error([], 0, 4096), RdmaError::ReplyResource { needed: 300 });
    }

    /// Section 7.3.3: a Reply chunk makes the header of the Reply longer still. If even that with
    /// one segment would not fit, the Call has to have fewer segments; then the same Reply chunk
    /// helps.
    #[test]
    fn a_header_that_is_too_long_needs_fewer_segments() {
        // Beside the segments, there are 52 octets.
        for (threshold, most) in [(96, 2), (256, 12), (4096, 252)] {
            let fits = error([most], 1000, threshold);
            assert_eq!(fits, RdmaError::ReplyResource { needed: 300 });
            let max = u32::try_from(most).unwrap_or(0);
            let less = error([most.saturating_add(1)], 1000, threshold);
            assert_eq!(less, RdmaError::Segments { max });
        }
        assert_eq!(error([3, 3], 0, 128), RdmaError::Segments { max: 2 });
    }

    /// An error that would not help is not sent.
    #[test]
    fn where_nothing_helps_the_error_says_so() {
        assert_eq!(error([1, 1, 1, 1], 0, 96), RdmaError::System);
        assert_eq!(error([1], 0, 48), RdmaError::System);
    }
}
