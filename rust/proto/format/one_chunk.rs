// SPDX-License-Identifier: GPL-2.0

//! RPCs of a version that counts Calls, which take one chunk, of one segment in most cases: data
//! that is read or written, or a Reply that may be long. Nearly all that take any are such.

use super::{
    super::{
        message::PlainHeader,
        v2::Direction, //
    },
    CallFormat,
    CallPlan,
    MessageSizes,
    ReplyFormat,
    SegmentLimits,
    Version, //
};

/// The encoded size of a segment in octets.
const SEGMENT: u32 = 16;

/// The size of a Read chunk of one segment, with its "is present" word and its position.
const READ_CHUNK: u32 = 8 + SEGMENT;

/// The size of a Write chunk of one segment, with its "is present" word and the number of segments.
const WRITE_CHUNK: u32 = 8 + SEGMENT;

/// The size of a Reply chunk without its segments: their number. Its "is present" word is in a
/// header without chunks too (RFC 8166, 4.3).
const REPLY_CHUNK: u32 = 4;

/// The most segments that are chosen here: of head, pages and tail, one each.
const MOST: usize = 3;

/// One message of an RPC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortMessage {
    /// The sizes, as in [`super::Message`].
    pub(crate) sizes: MessageSizes,
    /// The offset of the pages' octets in their first page.
    pub(crate) offset: usize,
    /// Set if a chunk may have the pages alone: they hold a DDP-eligible data item, and data may be
    /// placed directly at all.
    pub(crate) places: bool,
    /// The inline threshold, in octets.
    pub(crate) inline: u32,
}

impl ShortMessage {
    /// Returns whether the message, or `len` octets of it, fit behind a header.
    #[inline]
    fn fits(&self, header: u32, len: u32) -> bool {
        let end = header.checked_add(len);
        end.is_some_and(|end| end <= self.inline)
    }

    /// Returns whether a chunk may have the pages alone, as one segment.
    #[inline]
    fn places_pages(&self, cut: &SegmentLimits) -> bool {
        self.places && segments(cut, self.offset, self.sizes.pages) == Some(1)
    }
}

/// Returns the number of segments that some octets take, if it is not more than one.
#[inline]
fn segments(cut: &SegmentLimits, offset: usize, len: u32) -> Option<u32> {
    let segments = cut.segments(offset, usize::try_from(len).ok()?);
    u32::try_from(segments).ok().filter(|count| *count <= 1)
}

/// Chooses the format of a Call and its Reply if one chunk is enough: what [`super::choose`] would
/// choose for the same version, which counts Calls, with the same segments, if the peer has refused
/// nothing. Nothing is returned in all other cases.
#[inline]
pub(crate) fn choose_one_chunk(
    version: Version,
    call: &ShortMessage,
    reply: &ShortMessage,
    cut: &SegmentLimits,
) -> Option<CallPlan> {
    if cut.header_segments() < MOST {
        return None;
    }
    let plain = match version {
        // Its size is the same in both directions.
        Version::One | Version::Earlier => PlainHeader::len(version, Direction::Call),
        Version::Two => return None,
    };
    let (format, header) = choose_offer(plain, reply, cut)?;
    let plan = |call, header: u32, follows: u32| {
        Some(CallPlan {
            call,
            reply: format,
            header_len: usize::try_from(header).ok()?,
            inline_len: usize::try_from(follows).ok()?,
            parts: 1,
            reply_parts: 1,
        })
    };
    let total = call.sizes.total().ok()?;
    if call.fits(header, total) {
        return plan(CallFormat::Inline, header, total);
    }
    // RFC 8166, 3.4.5: a position is a multiple of four. Transaction ID and direction stay in front
    // of it.
    let (position, pad) = (call.sizes.head, call.sizes.pad());
    let may = format == ReplyFormat::Inline && position >= 8 && position % 4 == 0;
    if !may || !call.places_pages(cut) {
        return None;
    }
    let header = header.checked_add(READ_CHUNK)?;
    let rest = position.checked_add(call.sizes.tail.checked_sub(pad)?)?;
    if !call.fits(header, rest) {
        return None;
    }
    plan(CallFormat::ReadChunk { position, pad }, header, rest)
}

/// Chooses what is offered for a Reply. Returns it with the size of a header that has it; that of
/// one without chunks is `plain`.
#[inline]
fn choose_offer(
    plain: u32,
    reply: &ShortMessage,
    cut: &SegmentLimits,
) -> Option<(ReplyFormat, u32)> {
    let sizes = &reply.sizes;
    if reply.fits(plain, sizes.total().ok()?) {
        return Some((ReplyFormat::Inline, plain));
    }
    if reply.places && sizes.pages != 0 {
        let header = plain.checked_add(WRITE_CHUNK)?;
        let rest = sizes.head.checked_add(sizes.tail)?;
        let fits = reply.places_pages(cut) && reply.fits(header, rest);
        return fits.then_some((ReplyFormat::WriteChunk, header));
    }
    // Wherever head and tail begin.
    let last = cut.page.saturating_sub(1);
    let count = segments(cut, last, sizes.head)?
        .checked_add(segments(cut, reply.offset, sizes.pages)?)?
        .checked_add(segments(cut, last, sizes.tail)?)?;
    let segments = count.checked_mul(SEGMENT)?;
    let header = segments.checked_add(plain)?.checked_add(REPLY_CHUNK)?;
    reply
        .fits(header, 0)
        .then_some((ReplyFormat::ReplyChunk, header))
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_one_chunk)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            choose,
            CallShape,
            Continuation,
            Message,
            Usable, //
        },
        *, //
    };

    /// The limits of a device whose regions have eight pages.
    const CUT: SegmentLimits = SegmentLimits {
        page: 4096,
        depth: 8,
        longest: usize::MAX,
        most: usize::MAX,
    };

    /// The input of the other choice.
    fn message(short: &ShortMessage, ddp_eligible: bool) -> Message {
        let size = |len| usize::try_from(len).unwrap_or(usize::MAX);
        let MessageSizes { head, pages, tail } = short.sizes;
        let rest = |len| CUT.segments(4095, size(len));
        let payload_segments = CUT.segments(short.offset, size(pages));
        let rest_segments = rest(head).saturating_add(rest(tail));
        Message {
            sizes: short.sizes,
            ddp_eligible,
            payload_segments,
            rest_segments,
            whole_segments: payload_segments.saturating_add(rest_segments),
        }
    }

    /// Compares both ways to choose. Returns whether the short one has chosen, and another format
    /// than without chunks.
    fn compare(
        version: Version,
        call: &ShortMessage,
        reply: &ShortMessage,
        ddp_allowed: bool,
    ) -> bool {
        let chosen = choose(&CallShape {
            version,
            call: message(call, call.places),
            reply: message(reply, reply.places),
            call_inline: call.inline,
            reply_inline: reply.inline,
            call_parts: Continuation::NONE,
            patient_parts: 0,
            reply_parts: Continuation::NONE,
            usable: Usable {
                segments: 16,
                ..Usable::ALL
            },
            header_segments: CUT.header_segments(),
            answered: true,
            ddp_allowed,
        });
        let short = |message: &ShortMessage| ShortMessage {
            places: message.places && ddp_allowed,
            ..*message
        };
        let Some(plan) = choose_one_chunk(version, &short(call), &short(reply), &CUT) else {
            return false;
        };
        assert_eq!(chosen, Ok(plan));
        (plan.call, plan.reply) != (CallFormat::Inline, ReplyFormat::Inline)
    }

    /// Whatever the sizes, the offsets and what may be placed are: the short way chooses what the
    /// long one does, or leaves it to that.
    #[test]
    fn both_ways_to_choose_agree() {
        let lens = [
            0, 3, 4, 100, 936, 940, 944, 948, 952, 968, 992, 993, 996, 997, 4096, 32_768,
        ];
        let heads = [4, 60, 62, 900, 944, 948, 992, 996, 2000];
        let mut chosen = 0_u32;
        for (head, pages) in heads.iter().flat_map(|h| lens.map(|pages| (*h, pages))) {
            for kind in 0..32_u32 {
                let is = |bit: u32| kind & bit != 0;
                let tail = if is(1) { 8 } else { 0 };
                let long = ShortMessage {
                    sizes: MessageSizes { head, pages, tail },
                    offset: if is(2) { 4095 } else { 0 },
                    places: is(4),
                    inline: 1024,
                };
                let short = ShortMessage {
                    sizes: MessageSizes {
                        head: if is(16) { 970 } else { 80 },
                        pages: 0,
                        tail: 0,
                    },
                    ..long
                };
                for (version, ddp_allowed) in [
                    (Version::One, true),
                    (Version::One, false),
                    (Version::Earlier, true),
                    (Version::Earlier, false),
                ] {
                    for (call, reply) in [(&long, &short), (&short, &long), (&long, &long)] {
                        let is_chosen = compare(version, call, reply, ddp_allowed);
                        chosen = chosen.saturating_add(is_chosen.into());
                    }
                }
            }
        }
        assert!(chosen > 2000);
    }

    /// The commonest Calls of NFS with data, which go in a chunk.
    #[test]
    fn a_read_a_write_and_a_long_reply_take_one_chunk() {
        let message = |head, pages, places| ShortMessage {
            sizes: MessageSizes {
                head,
                pages,
                tail: 0,
            },
            offset: 0,
            places,
            inline: 4096,
        };
        let (short, data) = (message(200, 0, false), message(200, 4096, true));
        let long = message(5000, 0, false);
        let plan = |call, reply| {
            let plan = choose_one_chunk(Version::One, call, reply, &CUT);
            plan.map(|plan| (plan.call, plan.reply))
        };
        let read = CallFormat::ReadChunk {
            position: 200,
            pad: 0,
        };
        for (call, reply, expected) in [
            (&short, &data, (CallFormat::Inline, ReplyFormat::WriteChunk)),
            (&data, &short, (read, ReplyFormat::Inline)),
            (&short, &long, (CallFormat::Inline, ReplyFormat::ReplyChunk)),
        ] {
            assert_eq!(plan(call, reply), Some(expected));
        }
        // Two chunks are left to the other choice, and so is what goes in parts.
        assert_eq!(plan(&data, &data), None);
        assert_eq!(choose_one_chunk(Version::Two, &short, &data, &CUT), None);
    }
}
