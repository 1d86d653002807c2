// SPDX-License-Identifier: GPL-2.0

//! How a Call is put together of its inline part and its Read chunks.

use crate::proto::chunk::Segment;
use crate::proto::message;

/// Where what is read goes.
pub(super) enum Layout {
    /// Into pages of its own, to be inserted at a position of the inline part.
    Split {
        /// The position.
        position: usize,
    },
    /// The whole Call goes into pages.
    Whole,
}

/// How a Call is put together.
pub(super) struct Plan {
    /// Whether anything is to be read.
    pub(super) reads: bool,
    /// How much goes into pages.
    pub(super) len: usize,
    /// Where it goes.
    pub(super) layout: Layout,
}

impl Plan {
    /// Looks at the Read list: RFC 8166 sections 3.4.5 and 3.5. [`None`] if it can't be followed: positions that
    /// go backwards, or beyond the message. `splits` says whether a data item may be delivered apart.
    pub(super) fn new(header: &message::Call<'_>, splits: bool) -> Option<Self> {
        let payload = header.payload.len();
        let mut positions = header.reads().map(|entry| entry.position as usize);
        if header.reads_nothing() {
            return Some(Self {
                reads: false,
                len: 0,
                layout: Layout::Whole,
            });
        }
        let total = header.read_total()? as usize;
        if total == 0 {
            return None;
        }
        let first = positions.next()?;
        if splits && !header.special && positions.all(|position| position == first) {
            if first > payload {
                return None;
            }
            return Some(Self {
                reads: true,
                // XDR padding is not sent, RFC 8166 section 3.4.5.2.
                len: total.checked_next_multiple_of(4)?,
                layout: Layout::Split { position: first },
            });
        }
        let mut len = 0;
        walk(header, |piece| {
            len = piece.end()?;
            Some(())
        })?;
        Some(Self {
            reads: true,
            len,
            layout: Layout::Whole,
        })
    }
}

/// A piece of a Call that is put together.
pub(super) struct Piece {
    /// Where in the Call it begins.
    pub(super) at: usize,
    /// How long it is.
    pub(super) len: usize,
    /// Where it comes from.
    pub(super) source: Source,
}

impl Piece {
    /// Where it ends.
    fn end(&self) -> Option<usize> {
        self.at.checked_add(self.len)
    }
}

/// Where a piece comes from.
pub(super) enum Source {
    /// From the inline part, from this offset on.
    Inline(usize),
    /// From the peer's memory.
    Segment(Segment),
    /// It is zeroes: XDR padding.
    Padding,
}

/// Goes through the pieces of a Call in the order of the message. [`None`] if the Read list can't be followed, or
/// `each` says so.
pub(super) fn walk(
    header: &message::Call<'_>,
    mut each: impl FnMut(Piece) -> Option<()>,
) -> Option<()> {
    let mut base = Base::new(header);
    let mut entries = header
        .reads()
        .filter(|entry| entry.position != 0)
        .peekable();
    let mut at = 0_usize;
    while let Some(entry) = entries.next() {
        let position = entry.position as usize;
        // Segments of one chunk have one position.
        let mut end = at;
        base.take(position.checked_sub(at)?, |len, source| {
            let piece = Piece {
                at: end,
                len,
                source,
            };
            end = piece.end()?;
            each(piece)
        })?;
        at = end;
        let mut segment = Some(entry.segment);
        while let Some(now) = segment.take() {
            let piece = Piece {
                at,
                len: now.length as usize,
                source: Source::Segment(now),
            };
            at = piece.end()?;
            each(piece)?;
            segment = entries
                .next_if(|next| next.position == entry.position)
                .map(|next| next.segment);
        }
        let padding = at.checked_next_multiple_of(4)? - at;
        if padding > 0 {
            let piece = Piece {
                at,
                len: padding,
                source: Source::Padding,
            };
            at = piece.end()?;
            each(piece)?;
        }
    }
    base.take(usize::MAX, |len, source| {
        let piece = Piece { at, len, source };
        at = piece.end()?;
        each(piece)
    })
}

/// What the chunks are inserted into: the inline part, or the Position Zero Read chunk.
struct Base<'a> {
    /// The inline part, not taken yet.
    inline: core::ops::Range<usize>,
    /// The header, whose Read list has the segments at position zero.
    header: message::Call<'a>,
    /// How much of the Position Zero chunk was taken.
    taken: usize,
}

impl<'a> Base<'a> {
    /// Nothing taken yet.
    fn new(header: &message::Call<'a>) -> Self {
        Self {
            inline: 0..header.payload.len(),
            header: *header,
            taken: 0,
        }
    }

    /// Takes the next `len` octets, or all that are left if it is `usize::MAX`.
    fn take(
        &mut self,
        len: usize,
        mut each: impl FnMut(usize, Source) -> Option<()>,
    ) -> Option<()> {
        let all = len == usize::MAX;
        if !self.header.special {
            let len = if all { self.inline.len() } else { len };
            if len > self.inline.len() {
                return None;
            }
            let from = self.inline.start;
            self.inline.start = from.checked_add(len)?;
            return if len > 0 {
                each(len, Source::Inline(from))
            } else {
                Some(())
            };
        }
        let mut left = len;
        let mut skip = self.taken;
        for entry in self.header.reads().filter(|e| e.position == 0) {
            let whole = entry.segment.length as usize;
            if skip >= whole {
                skip -= whole;
                continue;
            }
            let now = (whole - skip).min(left);
            if now == 0 {
                break;
            }
            let segment = Segment {
                handle: entry.segment.handle,
                length: u32::try_from(now).ok()?,
                offset: entry.segment.offset.checked_add(skip as u64)?,
            };
            each(now, Source::Segment(segment))?;
            self.taken = self.taken.checked_add(now)?;
            left -= now;
            skip = 0;
        }
        (all || left == 0).then_some(())
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_responder_plan)]
mod tests {
    use super::*;
    use crate::proto::chunk::ReadSegment;
    use crate::proto::message::{Call, CallHeader, Version};
    use kernel::prelude::*;

    /// Pieces as place, length, and whether they are read.
    type Pieces = KVec<(usize, usize, bool)>;

    /// A Read segment of so many octets at a position.
    fn segment(position: u32, length: u32) -> ReadSegment {
        ReadSegment {
            position,
            segment: Segment {
                handle: position | 1,
                length,
                offset: 0x1000,
            },
        }
    }

    /// What is planned for a Call of Version Two with `inline` octets behind the header, and its pieces.
    fn plan(read: &[ReadSegment], inline: usize, splits: bool) -> Result<(Option<Plan>, Pieces)> {
        let mut message = KVec::from_elem(0, 4096, GFP_KERNEL)?;
        let header = CallHeader {
            version: Version::Two,
            xid: 0,
            credits: 1,
            read,
            read_segments: &[],
            write: &[],
            reply: &[],
            special: false,
            invalidate: 0,
        };
        let len = header.encode(&mut message).map_err(|_| EINVAL)?;
        let bytes = message.get(..len + inline).ok_or(EINVAL)?;
        let call = Call::decode(Version::Two, bytes).ok_or(EINVAL)?;
        let mut pieces = KVec::with_capacity(16, GFP_KERNEL)?;
        walk(&call, |piece| {
            let is_read = matches!(piece.source, Source::Segment(_));
            pieces
                .push_within_capacity((piece.at, piece.len, is_read))
                .ok()
        });
        Ok((Plan::new(&call, splits), pieces))
    }

    #[test]
    fn one_chunk_is_delivered_apart_where_that_is_possible() -> Result {
        let read = [segment(40, 9), segment(40, 4000)];
        let (whole, pieces) = plan(&read, 100, false)?;
        let whole = whole.ok_or(EINVAL)?;
        assert!(whole.reads && matches!(whole.layout, Layout::Whole));
        // 4009 octets, and three of padding.
        assert_eq!(whole.len, 100 + 4012);
        assert_eq!(
            pieces.as_slice(),
            [
                (0, 40, false),
                (40, 9, true),
                (49, 4000, true),
                (4049, 3, false),
                (4052, 60, false)
            ]
        );
        let split = plan(&read, 100, true)?.0.ok_or(EINVAL)?;
        assert!(split.reads && matches!(split.layout, Layout::Split { position: 40 }));
        assert_eq!(split.len, 4012);
        Ok(())
    }

    #[test]
    fn several_chunks_are_put_together() -> Result {
        let read = [segment(40, 8), segment(60, 16)];
        for splits in [false, true] {
            let (planned, pieces) = plan(&read, 100, splits)?;
            let planned = planned.ok_or(EINVAL)?;
            assert!(matches!(planned.layout, Layout::Whole));
            assert_eq!(planned.len, 124);
            assert_eq!(
                pieces.as_slice(),
                [
                    (0, 40, false),
                    (40, 8, true),
                    (48, 12, false),
                    (60, 16, true),
                    (76, 48, false)
                ]
            );
        }
        Ok(())
    }

    #[test]
    fn positions_beyond_the_message_are_refused() -> Result {
        for splits in [false, true] {
            assert!(plan(&[segment(104, 8)], 100, splits)?.0.is_none());
            assert!(plan(&[segment(40, 0)], 100, splits)?.0.is_none());
            assert!(plan(&[segment(100, 8)], 100, splits)?.0.is_some());
        }
        assert!(!plan(&[], 100, false)?.0.ok_or(EINVAL)?.reads);
        Ok(())
    }
}
