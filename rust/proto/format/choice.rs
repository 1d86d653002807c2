// SPDX-License-Identifier: GPL-2.0

//! The algorithm that chooses the payload format.

use super::{
    super::{
        continuation::Split,
        message::{
            self,
            Direction, //
        }, //
    },
    CallFormat,
    CallPlan,
    CallShape,
    Continuation,
    ReplyFormat,
    Version,
    UNLIMITED, //
};
use crate::proto::prelude::*;

/// The smallest inline part of an RPC message in octets: transaction ID and direction.
const MIN_RPC_LEN: u32 = 8;

/// The chunks to offer for the Reply, as counts.
struct Offer {
    /// The format.
    format: ReplyFormat,
    /// The number of segments of the Write chunk.
    write: Option<usize>,
    /// The number of segments of the Reply chunk.
    reply: Option<usize>,
    /// The largest number of messages in which the Reply may come.
    parts: u32,
}

/// Chooses the formats of a Call and its Reply. A Call that fits no chunk which the peer takes may
/// have more messages than others.
///
/// # Errors
///
/// [`Fault::NoSpace`] if no format is possible: a header alone would exceed its inline threshold,
/// or the peer refuses everything that is left.
pub(crate) fn choose(shape: &CallShape) -> Result<CallPlan> {
    let (offer, (call, header_len, inline_len, parts)) =
        choose_both(shape).or_else(|fault| choose_patiently(shape, fault))?;

    Ok(CallPlan {
        call,
        reply: offer.format,
        header_len,
        inline_len,
        parts,
        reply_parts: offer.parts,
    })
}

/// Chooses the formats of a Call and its Reply if no other choice is left.
///
/// # Errors
///
/// `fault` if this brings nothing more.
#[cold]
fn choose_patiently(shape: &CallShape, fault: Fault) -> Result<(Offer, Way)> {
    let most = shape.patient_parts;
    if most <= shape.call_parts.rest {
        return Err(fault);
    }
    let call_parts = Continuation {
        data: most,
        rest: most,
    };
    choose_both(&CallShape {
        call_parts,
        ..*shape
    })
}

/// Returns the largest number of segments in the Call's header.
///
/// A Call without a Reply has none in Version Two (4.7), since nothing would tell when the
/// Responder is done with its chunks. Such a Call is sent in parts if it is too long for one
/// message.
const fn header_segments(shape: &CallShape) -> usize {
    match (shape.version, shape.answered) {
        (Version::Two, false) => 0,
        (Version::One | Version::Earlier, _) | (Version::Two, true) => shape.header_segments,
    }
}

/// The way in which a Call travels: its format, the size of its header, the size of the part behind
/// the header, and the number of messages.
type Way = (CallFormat, usize, usize, u32);

/// Chooses the offer for the Reply and the format of the Call. Offers less if the offered segments
/// leave too few for the Call.
fn choose_both(shape: &CallShape) -> Result<(Offer, Way)> {
    let most = header_segments(shape);
    if most >= UNLIMITED {
        let offer = choose_reply(shape, most)?;
        let way = choose_call(shape, &offer, most)?;
        return Ok((offer, way));
    }
    // The shares that the Reply may get: all segments; those left by a Call with a chunk for its
    // data, with another one for the rest, or with one chunk for everything; none.
    let call = &shape.call;
    let wanted = [
        0,
        call.payload_segments,
        call.payload_segments.saturating_add(call.rest_segments),
        call.whole_segments,
    ];
    let shares = wanted.map(|wanted| most.checked_sub(wanted));
    for share in shares.into_iter().flatten().chain([0]) {
        let offer = choose_reply(shape, share);
        let both = offer.and_then(|offer| {
            let way = choose_call(shape, &offer, most)?;
            Ok((offer, way))
        });
        if both.is_ok() {
            return both;
        }
    }
    Err(Fault::NoSpace)
}

/// Chooses the offer for the Reply, using at most `share` segments.
///
/// The Responder copies the offer into the Reply's header (RFC 8166, 3.4.6 and 4.3.3), so its size
/// counts there too.
fn choose_reply(shape: &CallShape, share: usize) -> Result<Offer> {
    let sizes = shape.reply.sizes;
    let usable = &shape.usable;
    let has_data = shape.ddp_allowed && shape.reply.ddp_eligible && sizes.pages != 0;
    let rest = sizes.head.checked_add(sizes.tail).ok_or(Fault::NoSpace)?;
    let allowed = if usable.long_reply {
        shape.reply_parts
    } else {
        Continuation::NONE
    };
    // Returns the number of messages in which the Reply comes, unless that is above `most`.
    let parts = |write: Option<usize>, inline: u32, most: u32| -> Result<Option<u32>> {
        let header = message::header_len((shape.version, Direction::Reply, false), 0, write, None)?;
        Ok(parts(header, inline, shape.reply_inline, most))
    };
    let inline = |parts| Offer {
        format: ReplyFormat::Inline,
        write: None,
        reply: None,
        parts,
    };

    let most = allowed.parts(has_data);
    if let Some(parts) = parts(None, sizes.total()?, most)? {
        return Ok(inline(parts));
    }
    let share_of_chunk = usable.segments.min(share);
    let fits = |segments: &usize| *segments <= share_of_chunk;
    let write = Some(shape.reply.payload_segments)
        .filter(fits)
        .filter(|_| has_data && usable.write);
    if write.is_some() {
        if let Some(parts) = parts(write, rest, allowed.parts(false))? {
            return Ok(Offer {
                format: ReplyFormat::WriteChunk,
                write,
                reply: None,
                parts,
            });
        }
    }
    let (format, write, reply) = match write {
        Some(write_segments)
            if fits(&shape.reply.rest_segments)
                && write_segments.saturating_add(shape.reply.rest_segments) <= share =>
        {
            let reply = Some(shape.reply.rest_segments);
            (ReplyFormat::WriteAndReplyChunk, write, reply)
        }
        _ if fits(&shape.reply.whole_segments) => {
            let reply = Some(shape.reply.whole_segments);
            (ReplyFormat::ReplyChunk, None, reply)
        }
        _ => {
            let parts = parts(None, sizes.total()?, allowed.parts(false))?;
            return parts.map(inline).ok_or(Fault::NoSpace);
        }
    };
    // Even a Reply whose RPC message is in the Reply chunk needs room for its header.
    let header = message::header_len((shape.version, Direction::Reply, true), 0, write, reply)?;
    if !self::fits(header, 0, shape.reply_inline)? {
        return Err(Fault::NoSpace);
    }
    Ok(Offer {
        format,
        write,
        reply,
        parts: 1,
    })
}

/// Chooses the format of the Call, with at most `header_segments` segments in its header. Returns
/// it with the sizes of the header and of the part behind it.
fn choose_call(shape: &CallShape, offer: &Offer, header_segments: usize) -> Result<Way> {
    let sizes = shape.call.sizes;
    let usable = &shape.usable;
    let may_reduce = shape.ddp_allowed && shape.call.ddp_eligible && sizes.pages != 0;
    let offered = offer
        .write
        .unwrap_or(0)
        .saturating_add(offer.reply.unwrap_or(0));
    let left = header_segments.saturating_sub(offered);
    // `chunks` has the segment counts of a Call chunk (or Position Zero Read chunk) and of another
    // Read chunk.
    let plan =
        |format: CallFormat, chunks: [usize; 2], inline: u32, most: u32| -> Result<Option<_>> {
            let [call, read] = chunks;
            let segments = call.saturating_add(read);
            if call.max(read) > usable.segments || segments > left {
                return Ok(None);
            }
            let form = (shape.version, Direction::Call, format.is_special());
            let header = message::header_len(form, segments, offer.write, offer.reply)?;
            let follows = usize::try_from(inline).map_err(|_| Fault::NoSpace)?;
            Ok(parts(header, inline, shape.call_inline, most)
                .map(|parts| (format, header, follows, parts)))
        };

    let most = shape.call_parts.parts(may_reduce);
    if let Some(plan) = plan(CallFormat::Inline, [0, 0], sizes.total()?, most)? {
        return Ok(plan);
    }

    // A position is a multiple of four (RFC 8166, 3.4.5). The first two words of the RPC message
    // stay behind the header.
    let is_aligned = sizes.head >= MIN_RPC_LEN && round_up(sizes.head)? == sizes.head;
    if may_reduce && usable.read && is_aligned {
        let (position, pad) = (sizes.head, sizes.pad());
        let format = CallFormat::ReadChunk { position, pad };
        let rest = sizes
            .head
            .checked_add(sizes.tail.saturating_sub(pad))
            .ok_or(Fault::NoSpace)?;
        let segments = shape.call.payload_segments;
        let most = shape.call_parts.parts(false);
        if let Some(plan) = plan(format, [0, segments], rest, most)? {
            return Ok(plan);
        }
        // Version One allows this too (RFC 8166, 3.5.3). But no known Requester sends it, so no
        // Responder has ever been tested with it.
        if shape.version == Version::Two && left > 0 {
            let format = CallFormat::CallAndReadChunk { position, pad };
            if let Some(plan) = plan(format, [shape.call.rest_segments, segments], 0, 1)? {
                return Ok(plan);
            }
        }
    }

    if left > 0 {
        if let Some(plan) = plan(CallFormat::Special, [shape.call.whole_segments, 0], 0, 1)? {
            return Ok(plan);
        }
    }
    let most = shape.call_parts.parts(false);
    plan(CallFormat::Inline, [0, 0], sizes.total()?, most)?.ok_or(Fault::NoSpace)
}

/// Returns the number of messages needed for a header and `follows` octets behind it, or `None` if
/// it cannot be done with `most` of them. The header is that of the last message; those before it
/// have a smaller one (Version Two, 6.6.2).
fn parts(header_len: usize, follows: u32, threshold: u32, most: u32) -> Option<u32> {
    if fits(header_len, follows, threshold).ok()? {
        return Some(1).filter(|parts| *parts <= most);
    }
    if most <= 1 {
        return None;
    }
    Split::new(follows, header_len, threshold)
        .ok()
        .map(|split| split.len())
        .filter(|parts| *parts <= most)
}

/// Returns whether a header and the octets behind it are within an inline threshold.
fn fits(header_len: usize, follows: u32, threshold: u32) -> Result<bool> {
    let header_len = u32::try_from(header_len).map_err(|_| Fault::NoSpace)?;
    Ok(header_len
        .checked_add(follows)
        .is_some_and(|len| len <= threshold))
}

/// Rounds a size up to whole XDR units.
fn round_up(len: u32) -> Result<u32> {
    len.checked_next_multiple_of(4).ok_or(Fault::NoSpace)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_format)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            Message,
            MessageSizes,
            Usable, //
        },
        *, //
    };

    /// Returns a message without data, of `head` octets.
    fn small(head: u32) -> Message {
        with_pages(head, 0, 0, false)
    }

    /// Returns a message for which every chunk takes one segment.
    fn with_pages(head: u32, pages: u32, tail: u32, ddp_eligible: bool) -> Message {
        Message {
            sizes: MessageSizes { head, pages, tail },
            ddp_eligible,
            payload_segments: 1,
            rest_segments: 1,
            whole_segments: 1,
        }
    }

    /// Returns a Call and its Reply, at thresholds of 1024 octets.
    fn shape(call: Message, reply: Message) -> CallShape {
        CallShape {
            version: Version::One,
            call,
            reply,
            call_inline: 1024,
            reply_inline: 1024,
            call_parts: Continuation::NONE,
            patient_parts: 0,
            reply_parts: Continuation::NONE,
            usable: Usable::ALL,
            header_segments: UNLIMITED,
            answered: true,
            ddp_allowed: true,
        }
    }

    /// Version Two, section 4.7: a Call without a Reply has no chunks, regardless of its contents
    /// and length.
    #[test]
    fn a_call_without_reply_has_no_chunks() -> Result {
        let plan = |version, answered, len, ddp_eligible| {
            choose(&CallShape {
                version,
                answered,
                call_parts: Continuation { data: 1, rest: 3 },
                ..shape(with_pages(200, len, 0, ddp_eligible), small(0))
            })
        };
        for (len, ddp_eligible) in [(2800, true), (2804, true), (2804, false)] {
            let call = plan(Version::Two, true, len, ddp_eligible)?.call;
            assert!(call != CallFormat::Inline);
        }
        let alone = plan(Version::Two, false, 2800, true)?;
        assert_eq!((alone.call, alone.parts), (CallFormat::Inline, 3));
        assert_eq!(alone.reply, ReplyFormat::Inline);
        for ddp_eligible in [true, false] {
            let alone = plan(Version::Two, false, 2804, ddp_eligible);
            assert_eq!(alone, Err(Fault::NoSpace));
        }
        // Version One has no such rule.
        let call = plan(Version::One, false, 2804, true)?.call;
        assert!(matches!(call, CallFormat::ReadChunk { .. }));
        Ok(())
    }

    /// Version Two, section 5.2.5: a message that may have no chunks has none, however long it is.
    #[test]
    fn there_may_be_no_chunks() -> Result {
        let shape = |len, chunks| CallShape {
            version: Version::Two,
            call_parts: Continuation { data: 1, rest: 3 },
            header_segments: if chunks { UNLIMITED } else { 0 },
            ..shape(with_pages(200, len, 0, true), small(0))
        };
        // One message holds 992 octets, three hold 3000.
        for (len, parts) in [(792, 1), (796, 2), (2800, 3)] {
            let plan = choose(&shape(len, false))?;
            assert_eq!((plan.call, plan.parts), (CallFormat::Inline, parts));
            assert_eq!(plan.reply, ReplyFormat::Inline);
        }
        assert_eq!(choose(&shape(2804, false)), Err(Fault::NoSpace));
        let plan = choose(&shape(2804, true))?;
        assert!(matches!(plan.call, CallFormat::ReadChunk { .. }));
        // No chunk is offered for a Reply either.
        let long = CallShape {
            reply: small(2000),
            ..shape(100, false)
        };
        assert_eq!(choose(&long), Err(Fault::NoSpace));
        Ok(())
    }

    /// Returns the chosen formats without their counts.
    fn formats(call: Message, reply: Message) -> Result<(CallFormat, ReplyFormat)> {
        choose(&shape(call, reply)).map(|plan| (plan.call, plan.reply))
    }

    /// RFC 8166, section 3.5.1: the header is 28 octets.
    #[test]
    fn inline_up_to_the_last_octet() -> Result {
        let plan = choose(&shape(small(996), small(996)))?;
        assert_eq!(plan.call, CallFormat::Inline);
        assert_eq!(plan.reply, ReplyFormat::Inline);
        assert_eq!(plan.header_len, 28);
        assert_eq!(plan.inline_len, 996);
        assert_eq!(plan.header_len.saturating_add(plan.inline_len), 1024);

        assert_eq!(
            formats(small(997), small(996))?,
            (CallFormat::Special, ReplyFormat::Inline)
        );
        assert_eq!(
            formats(small(900), small(997))?,
            (CallFormat::Inline, ReplyFormat::ReplyChunk)
        );
        Ok(())
    }

    /// Version Two, sections 6.3.7 and 6.3.10: 32 octets for a Call, 20 for a Reply.
    #[test]
    fn headers_of_version_two_have_other_sizes() -> Result {
        let two = |call, reply| {
            choose(&CallShape {
                version: Version::Two,
                ..shape(call, reply)
            })
        };
        let plan = two(small(992), small(1004))?;
        assert_eq!(plan.call, CallFormat::Inline);
        assert_eq!(plan.reply, ReplyFormat::Inline);
        assert_eq!(plan.header_len.saturating_add(plan.inline_len), 1024);
        let plan = two(small(993), small(1004))?;
        assert_eq!(plan.call, CallFormat::Special);
        // Section 6.3.5: an empty Read list beside the Call chunk.
        assert_eq!(plan.header_len, 28 + 24 + 8);
        assert_eq!(two(small(900), small(1005))?.reply, ReplyFormat::ReplyChunk);
        Ok(())
    }

    /// Version Two, section 6.6.2: a few messages are preferred to a chunk, fewer of them if the
    /// chunk would save a copy.
    #[test]
    fn moderate_messages_are_continued() -> Result {
        let shape = |call, reply| CallShape {
            version: Version::Two,
            call_parts: Continuation { data: 2, rest: 3 },
            reply_parts: Continuation { data: 3, rest: 4 },
            ..shape(call, reply)
        };
        // A MIDDLE holds 1004 octets. Behind the header of a Call there are 992, behind that of a
        // Reply 1004.
        for (len, parts) in [(992, 1), (993, 2), (1996, 2), (1997, 3), (3000, 3)] {
            let plan = choose(&shape(small(len), small(4016)))?;
            assert_eq!((plan.call, plan.parts), (CallFormat::Inline, parts));
            assert_eq!(plan.reply, ReplyFormat::Inline);
        }
        let plan = choose(&shape(small(3001), small(4017)))?;
        assert_eq!((plan.call, plan.parts), (CallFormat::Special, 1));
        assert_eq!(plan.reply, ReplyFormat::ReplyChunk);

        let message = |pages| with_pages(128, pages, 0, true);
        let plan = choose(&shape(message(1868), message(2884)))?;
        assert_eq!((plan.call, plan.parts), (CallFormat::Inline, 2));
        assert_eq!(plan.reply, ReplyFormat::Inline);
        let plan = choose(&shape(message(1872), message(2888)))?;
        assert!(matches!(plan.call, CallFormat::ReadChunk { .. }));
        assert_eq!(plan.reply, ReplyFormat::WriteChunk);
        Ok(())
    }

    #[test]
    fn small_data_travels_inline() -> Result {
        let message = with_pages(128, 800, 4, true);
        assert_eq!(
            formats(message, message)?,
            (CallFormat::Inline, ReplyFormat::Inline)
        );
        Ok(())
    }

    /// RFC 8166, sections 3.4.4.4 and 3.4.5: position and padding.
    #[test]
    fn large_argument_becomes_a_read_chunk() -> Result {
        for (pages, pad, tail) in [(4096, 0, 8), (4097, 3, 11), (4098, 2, 10), (4099, 1, 9)] {
            let call = with_pages(128, pages, tail, true);
            let plan = choose(&shape(call, small(100)))?;
            let position = 128;
            assert_eq!(plan.call, CallFormat::ReadChunk { position, pad });
            assert_eq!(plan.header_len, 28 + 24);
            assert_eq!(plan.inline_len, 128 + 8);
        }
        Ok(())
    }

    #[test]
    fn only_what_is_eligible_is_reduced() -> Result {
        let opaque = with_pages(128, 4096, 0, false);
        let eligible = with_pages(128, 4096, 0, true);
        assert_eq!(
            formats(opaque, opaque)?,
            (CallFormat::Special, ReplyFormat::ReplyChunk)
        );

        // If a security flavor covers the message, nothing is eligible.
        let mut shape = shape(eligible, eligible);
        let position = 128;
        assert_eq!(
            choose(&shape)?.call,
            CallFormat::ReadChunk { position, pad: 0 }
        );
        assert_eq!(choose(&shape)?.reply, ReplyFormat::WriteChunk);
        shape.ddp_allowed = false;
        assert_eq!(choose(&shape)?.call, CallFormat::Special);
        assert_eq!(choose(&shape)?.reply, ReplyFormat::ReplyChunk);

        // Without data there is nothing to reduce, even if marked as eligible.
        let empty = with_pages(2000, 0, 0, true);
        assert_eq!(
            formats(empty, empty)?,
            (CallFormat::Special, ReplyFormat::ReplyChunk)
        );

        // A position is a multiple of four.
        let unaligned = with_pages(126, 4096, 0, true);
        assert_eq!(formats(unaligned, small(0))?.0, CallFormat::Special);

        // It is not zero, which would mean that the chunk holds the RPC message.
        for head in [0, 4] {
            let headless = with_pages(head, 4096, 0, true);
            assert_eq!(formats(headless, small(0))?.0, CallFormat::Special);
        }
        Ok(())
    }

    /// RFC 8166, section 3.5.3: the Call is still too large after reduction.
    #[test]
    fn special_when_reduction_is_not_enough() -> Result {
        // 1024 = 28 + 24 + 972.
        assert!(matches!(
            formats(with_pages(900, 4096, 72, true), small(0))?.0,
            CallFormat::ReadChunk { .. }
        ));
        let plan = choose(&shape(with_pages(900, 4096, 73, true), small(0)))?;
        assert_eq!(plan.call, CallFormat::Special);
        assert_eq!(plan.header_len, 28 + 24);
        assert_eq!(plan.inline_len, 0);

        // 1024 = 28 + 24 + 972 again, with the chunk in the Write list.
        let plan = choose(&shape(small(0), with_pages(900, 4096, 72, true)))?;
        assert_eq!(plan.reply, ReplyFormat::WriteChunk);
        let plan = choose(&shape(small(0), with_pages(900, 4096, 73, true)))?;
        assert_eq!(plan.reply, ReplyFormat::WriteAndReplyChunk);
        Ok(())
    }

    /// Version Two, section 6.6.3: the Call is still too large after reduction, but the data has a
    /// chunk of its own.
    #[test]
    fn a_call_chunk_beside_the_data() -> Result {
        let two = |call| CallShape {
            version: Version::Two,
            ..shape(call, small(0))
        };
        let read = CallFormat::ReadChunk {
            position: 900,
            pad: 3,
        };
        let both = CallFormat::CallAndReadChunk {
            position: 900,
            pad: 3,
        };
        // 1024 = 32 + 24 + 968.
        let call = |tail| with_pages(900, 4097, tail, true);
        assert_eq!(choose(&two(call(71)))?.call, read);
        let plan = choose(&two(call(72)))?;
        assert_eq!((plan.call, plan.parts), (both, 1));
        // The header has two Read segments, and the end markers of both lists.
        assert_eq!((plan.header_len, plan.inline_len), (32 + 24 + 24 + 4, 0));
        // Version One uses one chunk for everything.
        assert_eq!(
            choose(&shape(call(76), small(0)))?.call,
            CallFormat::Special
        );

        // Continuation is tried first, with messages of 1004 octets except for the last one.
        for (tail, call_format, parts) in [
            (72, read, 2),
            (1075, read, 2),
            (1076, read, 3),
            (2079, read, 3),
            (2080, both, 1),
        ] {
            let plan = choose(&CallShape {
                call_parts: Continuation { data: 1, rest: 3 },
                ..two(call(tail))
            })?;
            assert_eq!((plan.call, plan.parts), (call_format, parts));
        }

        // Everything that prevents a Read chunk prevents this too.
        for call in [
            with_pages(900, 4097, 72, false),
            with_pages(902, 4097, 72, true),
            with_pages(1024, 0, 72, true),
        ] {
            assert_eq!(choose(&two(call))?.call, CallFormat::Special);
        }
        let sealed = CallShape {
            ddp_allowed: false,
            ..two(call(72))
        };
        assert_eq!(choose(&sealed)?.call, CallFormat::Special);

        // The peer has refused Read chunks, or does not accept the number of segments.
        let mut shape = two(Message {
            payload_segments: 3,
            rest_segments: 2,
            whole_segments: 5,
            ..call(72)
        });
        for (segments, read, header_segments, expected) in [
            (3, true, 5, Ok(both)),
            (5, false, 5, Ok(CallFormat::Special)),
            (2, true, 5, Err(Fault::NoSpace)),
            (5, true, 4, Err(Fault::NoSpace)),
        ] {
            shape.usable.segments = segments;
            shape.usable.read = read;
            shape.header_segments = header_segments;
            assert_eq!(choose(&shape).map(|plan| plan.call), expected);
        }
        // One chunk for everything may take fewer segments than two chunks.
        shape.call.whole_segments = 4;
        shape.header_segments = 4;
        assert_eq!(choose(&shape)?.call, CallFormat::Special);

        // Less is offered for the Reply if the offer would leave too few segments for the Call.
        shape.header_segments = 6;
        shape.reply = with_pages(100, 1 << 20, 4, true);
        shape.reply.payload_segments = 2;
        shape.reply.whole_segments = 1;
        let plan = choose(&shape)?;
        assert_eq!(
            (plan.call, plan.reply),
            (CallFormat::Special, ReplyFormat::WriteChunk)
        );
        shape.call.whole_segments = 9;
        let plan = choose(&shape)?;
        assert_eq!((plan.call, plan.reply), (both, ReplyFormat::ReplyChunk));
        Ok(())
    }

    /// Sections 5.2.3 and 5.2.4: a chunk can't hold a Call when the peer takes few short segments.
    /// It waits for the credits of its parts then, and never if it has another form.
    #[test]
    fn what_fits_no_chunk_waits() -> Result {
        let shape = |patient_parts, whole_segments| CallShape {
            call_parts: Continuation { data: 1, rest: 2 },
            patient_parts,
            header_segments: 2,
            ..shape(
                Message {
                    whole_segments,
                    ..small(3500)
                },
                small(100),
            )
        };
        let two = |patient_parts, whole_segments| CallShape {
            version: Version::Two,
            ..shape(patient_parts, whole_segments)
        };
        assert_eq!(choose(&two(0, 3)), Err(Fault::NoSpace));
        assert_eq!(choose(&two(2, 3)), Err(Fault::NoSpace));
        let plan = choose(&two(4, 3))?;
        assert_eq!((plan.call, plan.parts), (CallFormat::Inline, 4));
        assert_eq!(choose(&two(4, 2))?.call, CallFormat::Special);
        // With fewer credits than it needs it is not begun.
        assert_eq!(choose(&two(3, 3)), Err(Fault::NoSpace));
        Ok(())
    }

    /// RFC 8166, section 4.3.3: the offer counts in the Call's header and in the Reply's.
    #[test]
    fn what_is_offered_takes_room() -> Result {
        // The Reply chunk of 20 octets makes the Call too long.
        assert_eq!(
            formats(small(976), small(4096))?,
            (CallFormat::Inline, ReplyFormat::ReplyChunk)
        );
        assert_eq!(
            formats(small(977), small(4096))?,
            (CallFormat::Special, ReplyFormat::ReplyChunk)
        );

        // Many segments in the Write chunk leave no room for the rest of the Reply.
        let mut reply = with_pages(600, 1 << 20, 4, true);
        reply.payload_segments = 24;
        assert_eq!(formats(small(100), reply)?.1, ReplyFormat::WriteChunk);
        reply.payload_segments = 25;
        assert_eq!(
            formats(small(100), reply)?.1,
            ReplyFormat::WriteAndReplyChunk
        );
        Ok(())
    }

    #[test]
    fn what_cannot_be_sent_is_an_error() -> Result {
        let mut call = small(4096);
        call.whole_segments = 41;
        assert_eq!(choose(&shape(call, small(0)))?.header_len, 1012);
        call.whole_segments = 42;
        assert_eq!(choose(&shape(call, small(0))), Err(Fault::NoSpace));

        let mut reply = small(4096);
        reply.whole_segments = 62;
        let plan = choose(&shape(small(0), reply))?;
        assert_eq!(plan.header_len.saturating_add(plan.inline_len), 1024);
        reply.whole_segments = 63;
        assert_eq!(choose(&shape(small(0), reply)), Err(Fault::NoSpace));

        // The Reply's header must fit as well.
        let mut larger_calls = shape(small(0), reply);
        larger_calls.call_inline = 4096;
        assert_eq!(choose(&larger_calls), Err(Fault::NoSpace));
        larger_calls.reply.whole_segments = 62;
        assert!(choose(&larger_calls).is_ok());

        let huge = with_pages(u32::MAX, 1, 0, true);
        assert_eq!(choose(&shape(huge, small(0))), Err(Fault::NoSpace));
        assert_eq!(choose(&shape(small(0), huge)), Err(Fault::NoSpace));
        call.whole_segments = usize::MAX;
        assert_eq!(choose(&shape(call, small(0))), Err(Fault::NoSpace));
        Ok(())
    }

    /// Version Two, section 7.3: a form that the peer has refused is not offered again.
    #[test]
    fn what_was_refused_is_not_chosen() -> Result {
        let data = with_pages(128, 8192, 0, true);
        let mut shape = CallShape {
            version: Version::Two,
            call_parts: Continuation { data: 1, rest: 9 },
            reply_parts: Continuation { data: 1, rest: 9 },
            ..shape(data, data)
        };
        shape.usable.read = false;
        assert_eq!(choose(&shape)?.call, CallFormat::Special);
        assert_eq!(choose(&shape)?.reply, ReplyFormat::WriteChunk);
        shape.usable.write = false;
        assert_eq!(choose(&shape)?.reply, ReplyFormat::ReplyChunk);
        // Everything takes more than one segment, so it is sent in as many messages as needed.
        shape.call.whole_segments = 2;
        shape.reply.whole_segments = 2;
        shape.usable.segments = 1;
        let plan = choose(&shape)?;
        assert_eq!((plan.call, plan.parts), (CallFormat::Inline, 9));
        assert_eq!((plan.reply, plan.reply_parts), (ReplyFormat::Inline, 9));
        shape.usable.long_reply = false;
        assert_eq!(choose(&shape), Err(Fault::NoSpace));
        // A Reply chunk of one segment is possible again.
        shape.reply.whole_segments = 1;
        assert_eq!(choose(&shape)?.reply, ReplyFormat::ReplyChunk);
        shape.call_parts.rest = 8;
        assert_eq!(choose(&shape), Err(Fault::NoSpace));
        Ok(())
    }

    /// Version Two, section 5.2.4: a header has no more segments in all its chunks together than
    /// the peer accepts.
    #[test]
    fn headers_have_no_more_segments_than_may_be() -> Result {
        let data = |segments: usize| Message {
            payload_segments: segments,
            rest_segments: 2,
            whole_segments: segments.saturating_add(2),
            ..with_pages(900, 8192, 0, true)
        };
        let shape = |call, reply, header_segments| CallShape {
            version: Version::Two,
            call_inline: 4096,
            call_parts: Continuation { data: 1, rest: 4 },
            reply_parts: Continuation { data: 1, rest: 10 },
            header_segments,
            ..shape(call, reply)
        };
        let read = |position| CallFormat::ReadChunk { position, pad: 0 };
        for (segments, most, expected) in [
            (3, 3, read(900)),
            // There is one segment too many both for the data and for everything, so it goes in
            // parts.
            (3, 2, CallFormat::Inline),
            (1, 1, read(900)),
            (1, 0, CallFormat::Inline),
        ] {
            let plan = choose(&shape(data(segments), small(100), most))?;
            assert_eq!(plan.call, expected);
            let in_parts = plan.parts > 1;
            assert_eq!(in_parts, expected == CallFormat::Inline);
        }

        // In order: a Write chunk and a Reply chunk, a Reply chunk for everything, a Write chunk
        // alone, no chunk.
        let mut reply = data(2);
        reply.sizes.head = 900;
        reply.sizes.tail = 900;
        let plan = |reply, most, parts| {
            choose(&CallShape {
                reply_parts: Continuation {
                    data: 1,
                    rest: parts,
                },
                ..shape(small(100), reply, most)
            })
        };
        assert_eq!(plan(reply, 4, 1)?.reply, ReplyFormat::WriteAndReplyChunk);
        assert_eq!(plan(reply, 3, 1), Err(Fault::NoSpace));
        reply.whole_segments = 3;
        assert_eq!(plan(reply, 3, 1)?.reply, ReplyFormat::ReplyChunk);
        assert_eq!(plan(reply, 2, 2)?.reply, ReplyFormat::WriteChunk);
        assert_eq!(plan(reply, 1, 20)?.reply, ReplyFormat::Inline);
        assert_eq!(plan(reply, 1, 9), Err(Fault::NoSpace));

        // The offer leaves no segment for the Call, which is too long for parts. So the Reply comes
        // in parts instead.
        let mut call = data(1);
        call.sizes.pages = 1 << 20;
        let plan = choose(&shape(call, data(1), 2))?;
        assert_eq!(
            (plan.call, plan.reply),
            (read(900), ReplyFormat::WriteChunk)
        );
        let plan = choose(&shape(call, data(1), 1))?;
        assert_eq!((plan.call, plan.reply), (read(900), ReplyFormat::Inline));
        assert_eq!(choose(&shape(call, data(1), 0)), Err(Fault::NoSpace));
        Ok(())
    }

    /// A Reply without data gets a chunk if it cannot come in parts.
    #[test]
    fn long_replies_can_be_avoided() -> Result {
        let mut shape = CallShape {
            version: Version::Two,
            reply_parts: Continuation { data: 1, rest: 4 },
            ..shape(small(100), small(2000))
        };
        let plan = choose(&shape)?;
        assert_eq!((plan.reply, plan.reply_parts), (ReplyFormat::Inline, 2));
        shape.usable.long_reply = false;
        let plan = choose(&shape)?;
        assert_eq!((plan.reply, plan.reply_parts), (ReplyFormat::ReplyChunk, 1));
        Ok(())
    }

    #[test]
    fn thresholds_are_told_apart() -> Result {
        let mut shape = shape(small(2000), small(2000));
        shape.call_inline = 4096;
        assert_eq!(choose(&shape)?.call, CallFormat::Inline);
        assert_eq!(choose(&shape)?.reply, ReplyFormat::ReplyChunk);
        shape.call_inline = 1024;
        shape.reply_inline = 4096;
        assert_eq!(choose(&shape)?.call, CallFormat::Special);
        assert_eq!(choose(&shape)?.reply, ReplyFormat::Inline);
        Ok(())
    }
}
