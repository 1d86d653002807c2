// SPDX-License-Identifier: GPL-2.0

//! The assembly of a Call from its inline part and its Read chunks: RFC 8166 sections 3.4.5 and
//! 3.5, and 4.5.1 and 6.6.3 of the draft of Version Two.

use super::{
    uncut,
    ChunkKind,
    Header,
    Short, //
};
use crate::proto::prelude::*;

/// Where what is read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Into pages of its own, to be inserted at a position of the inline part.
    Split {
        /// The position.
        position: usize,
    },
    /// The whole Call goes into pages.
    Whole,
}

/// The plan by which a Call is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Set if there is anything to read.
    pub(crate) reads: bool,
    /// The octets that go into pages.
    pub(crate) len: usize,
    /// The octets behind those that go into pages.
    pub(crate) tail: usize,
    /// Where it goes.
    pub(crate) layout: Layout,
}

impl Plan {
    /// Looks at the Read list: RFC 8166 sections 3.4.5 and 3.5. [`None`] if it can't be followed:
    /// positions that go backwards, or beyond the message. `splits` says whether a data item may be
    /// delivered apart. What does not lie where a Call may be cut, see [`uncut`], is not.
    pub(crate) fn new(header: &Header<'_>, splits: bool) -> Option<Self> {
        let mut positions = header.reads().map(|entry| size(entry.position));
        if header.reads_nothing() {
            return Some(Self {
                reads: false,
                len: 0,
                tail: 0,
                layout: Layout::Whole,
            });
        }
        let total = size(header.read_total()?)?;
        if total == 0 {
            // A chunk may be empty, as the item in its place is; a whole Call is not.
            let fits = walk(header, |_| Some(())).is_some();
            return (fits && !header.is_external()).then_some(Self {
                reads: false,
                len: 0,
                tail: 0,
                layout: Layout::Whole,
            });
        }
        let first = positions.next()??;
        let is_one_item =
            splits && !header.is_external() && positions.all(|position| position == Some(first));
        if let Some(plan) = is_one_item
            .then(|| Self::apart(first, total, header.payload))
            .flatten()
        {
            return Some(plan);
        }
        let mut len = 0;
        walk(header, |piece| {
            len = piece.end()?;
            Some(())
        })?;
        Some(Self {
            reads: true,
            len,
            tail: 0,
            layout: Layout::Whole,
        })
    }

    /// Plans a Call with one data item, of `len` octets at `position` of its inline part `payload`,
    /// that is delivered apart. [`None`] if it may not be; then it goes where all others go.
    #[inline]
    fn apart(position: usize, len: usize, payload: &[u8]) -> Option<Self> {
        let cut = uncut::first_cut(payload)?;
        if len == 0 || position < cut {
            return None;
        }
        Some(Self {
            reads: true,
            // XDR padding is not sent, RFC 8166 section 3.4.5.2.
            len: len.checked_next_multiple_of(UNIT)?,
            tail: payload.len().checked_sub(position)?,
            layout: Layout::Split { position },
        })
    }

    /// Does what [`Self::new`] does for a Call in `message` with one Read chunk, which is delivered
    /// apart. [`None`] for all others.
    #[inline]
    pub(crate) fn of_short(call: &Short, message: &[u8]) -> Option<Self> {
        let chunk = call.chunk?;
        match chunk.kind {
            ChunkKind::Read { position } => Self::apart(
                size(position)?,
                size(chunk.segment.length)?,
                call.payload(message),
            ),
            ChunkKind::Write | ChunkKind::Reply => None,
        }
    }
}

/// A piece of a Call that is put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where in the Call it begins.
    pub(crate) at: usize,
    /// The length, in octets.
    pub(crate) len: usize,
    /// Where it comes from.
    pub(crate) source: Source,
}

impl Piece {
    /// Where it ends.
    fn end(&self) -> Option<usize> {
        self.at.checked_add(self.len)
    }
}

/// Where a piece comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the inline part, from this offset on.
    Inline(usize),
    /// From the peer's memory.
    Segment(Segment),
    /// It is zeroes: XDR padding.
    Padding,
}

/// Goes through the pieces of a Call in the order of the message. [`None`] if the Read list can't
/// be followed, or `each` says so.
pub(crate) fn walk(header: &Header<'_>, mut each: impl FnMut(Piece) -> Option<()>) -> Option<()> {
    let mut base = Base::new(header);
    let mut entries = header
        .reads()
        .filter(|entry| entry.position != 0)
        .peekable();
    let mut at = 0_usize;
    while let Some(entry) = entries.next() {
        let position = size(entry.position)?;
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
                len: size(now.length)?,
                source: Source::Segment(now),
            };
            at = piece.end()?;
            each(piece)?;
            segment = entries
                .next_if(|next| next.position == entry.position)
                .map(|next| next.segment);
        }
        let padding = at.checked_next_multiple_of(UNIT)?.checked_sub(at)?;
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

/// A size in octets as the machine has it.
fn size(len: u32) -> Option<usize> {
    usize::try_from(len).ok()
}

/// The part that chunks are inserted into: the inline part, or the Position Zero Read chunk.
struct Base<'a> {
    /// The inline part, not taken yet.
    inline: core::ops::Range<usize>,
    /// The header, whose Read list has the segments at position zero.
    header: Header<'a>,
    /// The octets that were taken of the Position Zero chunk.
    taken: usize,
}

impl<'a> Base<'a> {
    /// Nothing taken yet.
    fn new(header: &Header<'a>) -> Self {
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
        if !self.header.is_external() {
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
            let whole = size(entry.segment.length)?;
            if skip >= whole {
                skip = skip.checked_sub(whole)?;
                continue;
            }
            let now = whole.checked_sub(skip)?.min(left);
            if now == 0 {
                break;
            }
            let segment = Segment {
                handle: entry.segment.handle,
                length: u32::try_from(now).ok()?,
                offset: entry
                    .segment
                    .offset
                    .checked_add(u64::try_from(skip).ok()?)?,
            };
            each(now, Source::Segment(segment))?;
            self.taken = self.taken.checked_add(now)?;
            left = left.checked_sub(now)?;
            skip = 0;
        }
        (all || left == 0).then_some(())
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_plan)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                chunk::ReadSegment,
                error::{
                    Fault,
                    Result, //
                },
                testing::Bytes,
                xdr::Writer, //
            },
            decode_call,
            Direction,
            Outgoing,
            Version, //
        },
        *, //
    };

    /// How many pieces a test has at most.
    const MOST: usize = 12;

    /// Pieces as place, length, and whether they are read.
    type Pieces = ([(usize, usize, bool); MOST], usize);

    /// A Read segment of `length` octets at a position.
    const fn segment(position: u32, length: u32) -> ReadSegment {
        ReadSegment {
            position,
            segment: Segment {
                handle: position | 1,
                length,
                offset: 0x1000,
            },
        }
    }

    /// What is planned for a Call, and its pieces.
    fn planned(call: &Header<'_>, splits: bool) -> (Option<Plan>, Pieces) {
        let mut pieces = ([(0, 0, false); MOST], 0_usize);
        let walked = walk(call, |piece| {
            let is_read = matches!(piece.source, Source::Segment(_));
            let place = pieces.0.get_mut(pieces.1)?;
            *place = (piece.at, piece.len, is_read);
            pieces.1 = pieces.1.checked_add(1)?;
            Some(())
        });
        let plan = Plan::new(call, splits);
        // They agree on what can be followed, if there is anything to read.
        assert!(plan.is_none_or(|plan| !plan.reads || walked.is_some()));
        (plan, pieces)
    }

    /// What is planned for a Call of Version Two with `inline` octets behind the header, and its
    /// pieces.
    fn plan(read: &[ReadSegment], inline: usize, splits: bool) -> Result<(Option<Plan>, Pieces)> {
        plan_of(Version::Two, read, &[], inline, splits)
    }

    /// What is planned for a Call with `inline` octets behind the header, which begin with `rpc`
    /// and end with zeroes, and its pieces.
    fn plan_of(
        version: Version,
        read: &[ReadSegment],
        rpc: &[u32],
        inline: usize,
        splits: bool,
    ) -> Result<(Option<Plan>, Pieces)> {
        let header = Outgoing {
            read,
            ..Outgoing::new(version, Direction::Call, 0, 1)
        };
        let mut len = 0;
        let message = Bytes::from_encoder(|buf| {
            len = header.encode(buf)?;
            let mut writer = Writer::new(buf.get_mut(len..).ok_or(Fault::NoSpace)?);
            rpc.iter().try_for_each(|word| writer.u32(*word))?;
            Ok(len)
        })?;
        let bytes = message.prefix(len.saturating_add(inline));
        let call = decode_call(version, bytes).ok_or(Fault::NoPayload)?;
        Ok(planned(&call, splits))
    }

    /// Returns whether these are the pieces.
    fn are(pieces: &Pieces, expected: &[(usize, usize, bool)]) -> bool {
        pieces.0.get(..pieces.1) == Some(expected)
    }

    #[test]
    fn one_chunk_is_delivered_apart_where_that_is_possible() -> Result {
        let read = [segment(40, 9), segment(40, 4000)];
        let (whole, pieces) = plan(&read, 100, false)?;
        let whole = whole.ok_or(Fault::NoPayload)?;
        assert!(whole.reads && whole.layout == Layout::Whole);
        // 4009 octets, and three of padding.
        assert_eq!(whole.len, 100 + 4012);
        assert!(are(
            &pieces,
            &[
                (0, 40, false),
                (40, 9, true),
                (49, 4000, true),
                (4049, 3, false),
                (4052, 60, false)
            ]
        ));
        let split = plan(&read, 100, true)?.0.ok_or(Fault::NoPayload)?;
        assert!(split.reads && split.layout == Layout::Split { position: 40 });
        assert_eq!(split.len, 4012);
        Ok(())
    }

    #[test]
    fn several_chunks_are_put_together() -> Result {
        let read = [segment(40, 8), segment(60, 16)];
        for splits in [false, true] {
            let (planned, pieces) = plan(&read, 100, splits)?;
            let planned = planned.ok_or(Fault::NoPayload)?;
            assert_eq!(planned.layout, Layout::Whole);
            assert_eq!(planned.len, 124);
            assert!(are(
                &pieces,
                &[
                    (0, 40, false),
                    (40, 8, true),
                    (48, 12, false),
                    (60, 16, true),
                    (76, 48, false)
                ]
            ));
        }
        Ok(())
    }

    #[test]
    fn positions_beyond_the_message_are_refused() -> Result {
        for splits in [false, true] {
            assert!(plan(&[segment(104, 8)], 100, splits)?.0.is_none());
            assert!(plan(&[segment(104, 0)], 100, splits)?.0.is_none());
            let empty = plan(&[segment(40, 0)], 100, splits)?.0;
            assert!(empty.is_some_and(|plan| !plan.reads));
            assert!(plan(&[segment(100, 8)], 100, splits)?.0.is_some());
        }
        assert!(!plan(&[], 100, false)?.0.ok_or(Fault::NoPayload)?.reads);
        Ok(())
    }

    /// The words of an RPC Call up to the credential's flavor: the XID is that of the transport
    /// header.
    const RPC: [u32; 6] = [0, 0, 2, 100_003, 4, 1];

    /// RPC headers, and where the first cut may be made, if anywhere.
    const HEADERS: [(&[u32], Option<usize>); 9] = [
        // AUTH_NONE.
        (&[0, 0, 0, 0], Some(40)),
        // AUTH_SYS: stamp, a name of three octets, two IDs, no groups.
        (&[1, 24, 9, 3, 0x6162_6300, 0, 0, 0, 0, 0], Some(64)),
        // A credential of five octets, and three of padding; a verifier of one.
        (&[9, 5, 0, 0, 0, 1, 0], Some(52)),
        // RPCSEC_GSS: plain arguments, a handle of four octets, a verifier of eight.
        (&[6, 24, 1, 0, 7, 1, 4, 1, 6, 8, 1, 2], Some(72)),
        // Signed arguments, encrypted ones, tokens to begin, to go on, and to end with.
        (&[6, 24, 1, 0, 7, 2, 4, 1, 6, 8, 1, 2], None),
        (&[6, 24, 1, 0, 7, 3, 4, 1, 6, 8, 1, 2], None),
        (&[6, 20, 1, 1, 0, 1, 0, 0, 0], None),
        (&[6, 24, 1, 2, 0, 1, 4, 1, 0, 0], None),
        (&[6, 24, 1, 3, 7, 1, 4, 1, 6, 8, 1, 2], None),
    ];

    /// Credentials and verifiers that are not sound.
    const UNSOUND: [&[u32]; 4] = [
        &[1, 404],
        &[6, 12, 1, 0, 7, 0, 0],
        &[0, 0, 0, 404],
        &[0, u32::MAX],
    ];

    /// Returns how a Call of 200 octets is put together if there is a Read chunk of 4000 at
    /// `position`; [`None`] if it is refused.
    fn layout_at(
        version: Version,
        auth: &[u32],
        inline: usize,
        position: usize,
    ) -> Result<Option<Plan>> {
        let mut rpc = [0; 24];
        let words = RPC.iter().chain(auth);
        for (to, from) in rpc.iter_mut().zip(words) {
            *to = *from;
        }
        let word = u32::try_from(position).map_err(|_| Fault::NoSpace)?;
        let read = [segment(word, 4000)];
        match plan_of(version, &read, &rpc, inline, true) {
            Ok((plan, pieces)) => {
                if plan.is_some_and(|plan| plan.layout == Layout::Whole) {
                    // The first page begins with the header.
                    assert_eq!(pieces.0.first(), Some(&(0, position, false)));
                }
                Ok(plan)
            }
            // It is no Call.
            Err(Fault::NoPayload) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// SUNRPC never sees an RPC header in pieces, nor what RPCSEC_GSS puts behind one.
    #[test]
    fn an_rpc_header_is_never_cut() -> Result {
        for version in [Version::One, Version::Two] {
            // No header has a chunk anywhere else.
            for position in (4..=200_usize).step_by(4) {
                for (auth, cut) in HEADERS {
                    let plan = layout_at(version, auth, 200, position)?;
                    let layout = plan.map(|plan| plan.layout);
                    if cut.is_some_and(|cut| position >= cut) {
                        assert_eq!(layout, Some(Layout::Split { position }));
                        assert_eq!(
                            plan.map(|plan| (plan.len, plan.tail)),
                            Some((4000, 200_usize.saturating_sub(position)))
                        );
                    } else {
                        assert_eq!(layout, Some(Layout::Whole));
                        assert_eq!(plan.map(|plan| (plan.len, plan.tail)), Some((4200, 0)));
                    }
                }
                for auth in UNSOUND {
                    let plan = layout_at(version, auth, 200, position)?;
                    assert!(plan.is_none_or(|plan| plan.layout == Layout::Whole));
                }
            }
        }
        Ok(())
    }

    /// A header of which the end, or all but the beginning, is in the chunk.
    #[test]
    fn a_truncated_rpc_header_is_put_together() -> Result {
        for version in [Version::One, Version::Two] {
            for (auth, cut) in HEADERS {
                for inline in 0..=100_usize {
                    for position in (4..=inline).step_by(4) {
                        let plan = layout_at(version, auth, inline, position)?;
                        let split = cut.is_some_and(|cut| position >= cut);
                        let layout = if split {
                            Layout::Split { position }
                        } else {
                            Layout::Whole
                        };
                        assert!(plan.is_none_or(|plan| plan.layout == layout));
                    }
                }
            }
        }
        Ok(())
    }

    /// RFC 8166, 3.5.3, and 6.6.3 of the draft: a Call chunk of two segments, and a Read chunk that
    /// is inserted into it.
    #[test]
    fn a_call_chunk_and_read_chunks_are_put_together() -> Result {
        // Segments of 24 and 40 octets, and 9 octets at position 32.
        let (body, read) = ([24, 40], [32, 9]);
        let one = [
            7, 1, 1, 1, 1, 0, 5, body[0], 0, 0x100, 1, 0, 6, body[1], 0, 0x200, 1, read[0], 7,
            read[1], 0, 0x300, 0, 0, 0,
        ];
        let two = [
            7, 2, 1, 8, 0, 1, 0, 5, body[0], 0, 0x100, 1, 0, 6, body[1], 0, 0x200, 0, 1, read[0],
            7, read[1], 0, 0x300, 0, 0, 0,
        ];
        let messages = [
            (Version::One, Bytes::from_words(&one)?),
            (Version::Two, Bytes::from_words(&two)?),
        ];
        for (version, message) in &messages {
            let call = decode_call(*version, message.get()).ok_or(Fault::NoPayload)?;
            for splits in [false, true] {
                let (plan, pieces) = planned(&call, splits);
                let plan = plan.ok_or(Fault::NoPayload)?;
                assert!(plan.reads && plan.layout == Layout::Whole);
                assert_eq!(plan.len, 24 + 40 + 12);
                assert!(are(
                    &pieces,
                    &[
                        (0, 24, true),
                        (24, 8, true),
                        (32, 9, true),
                        (41, 3, false),
                        (44, 32, true)
                    ]
                ));
            }
            // The second segment of the Call chunk is read in two pieces.
            let mut offsets = [0; MOST];
            let mut count = 0_usize;
            let walked = walk(&call, |piece| {
                if let Source::Segment(segment) = piece.source {
                    *offsets.get_mut(count)? = segment.offset;
                    count = count.checked_add(1)?;
                }
                Some(())
            });
            assert!(walked.is_some());
            assert_eq!(
                offsets.get(..count),
                Some(&[0x100, 0x200, 0x300, 0x208][..])
            );
        }
        Ok(())
    }
}
