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
