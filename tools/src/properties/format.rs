// SPDX-License-Identifier: GPL-2.0

//! The chosen payload format always fits, and is the cheapest that does.

use proptest::prelude::*;

use crate::headers::{
    call_header_len,
    reply_header_len, //
};
use crate::{
    oracle::{
        self,
        plan_fits,
        segments_of, //
    },
    proto::{
        error::Fault,
        format::{
            choose,
            CallFormat,
            CallShape,
            Continuation,
            Message,
            MessageSizes,
            ReplyFormat,
            Usable,
            UNLIMITED, //
        },
        message::{
            Version, //
        }, //
    }, //
};

/// A size: often one near the thresholds.
fn size() -> impl Strategy<Value = u32> {
    prop_oneof![
        1 => 0..16_u32,
        2 => 0..300_u32,
        4 => 0..5000_u32,
        2 => 900..1100_u32,
        2 => 0..(4_u32 << 20),
        1 => any::<u32>(),
    ]
}

/// A message with segment counts as they come from registering regions of a few pages.
fn message() -> impl Strategy<Value = Message> {
    let segments = || prop_oneof![4 => 1..4_usize, 2 => 1..40_usize, 1 => 1..300_usize];
    let sizes = (size(), size(), size());
    (sizes, any::<bool>(), segments(), segments(), segments()).prop_map(
        |((head, pages, tail), ddp_eligible, payload_segments, rest_segments, whole_segments)| {
            Message {
                sizes: MessageSizes { head, pages, tail },
                ddp_eligible,
                payload_segments,
                rest_segments,
                whole_segments,
            }
        },
    )
}

/// Any shape. The head of a Call is made of whole XDR units in most cases.
fn shape() -> impl Strategy<Value = CallShape> {
    let threshold = || prop_oneof![Just(1024_u32), Just(4096), 1024..=65536_u32];
    let aligned = prop::bool::weighted(0.9);
    let version = prop_oneof![Just(Version::One), Just(Version::Two)];
    (
        version,
        message(),
        message(),
        threshold(),
        threshold(),
        any::<bool>(),
        aligned,
    )
        .prop_map(
            |(version, mut call, reply, call_inline, reply_inline, ddp_allowed, aligned)| {
                if aligned {
                    call.sizes.head &= !3;
                }
                CallShape {
                    version,
                    call,
                    reply,
                    call_inline,
                    reply_inline,
                    call_parts: Continuation::NONE,
                    patient_parts: 0,
                    reply_parts: Continuation::NONE,
                    usable: Usable::ALL,
                    header_segments: UNLIMITED,
                    answered: true,
                    ddp_allowed,
                }
            },
        )
}

/// In how many messages something may travel.
fn continuation() -> impl Strategy<Value = Continuation> {
    (1..9_u32, 0..9_u32).prop_map(|(data, more)| Continuation {
        data,
        rest: data + more,
    })
}

/// What a peer has not refused.
fn usable() -> impl Strategy<Value = Usable> {
    let segments = prop_oneof![Just(UNLIMITED), 1..4_usize];
    (any::<(bool, bool, bool)>(), segments).prop_map(|((read, write, long_reply), segments)| {
        Usable {
            read,
            write,
            segments,
            long_reply,
        }
    })
}

/// Any shape of Version Two, with messages in parts, and with a peer that may have refused
/// something.
fn shape_two() -> impl Strategy<Value = CallShape> {
    let chunks = prop::bool::weighted(0.9);
    (shape(), continuation(), continuation(), usable(), chunks).prop_map(
        |(shape, call_parts, reply_parts, usable, chunks)| CallShape {
            version: Version::Two,
            call_parts,
            reply_parts,
            usable,
            header_segments: if chunks { UNLIMITED } else { 0 },
            ..shape
        },
    )
}

/// Returns in how many messages something behind a header travels, apart from what `choose` does.
fn messages(header: usize, follows: u64, threshold: u32) -> Option<u32> {
    let whole = header as u64 + follows <= u64::from(threshold);
    // Each part but the last one has a header of 20 octets (6.3.6, 6.3.9), and whole XDR units.
    let each = u64::from((threshold - 20) & !3);
    let last = u64::from(threshold).checked_sub(header as u64)?;
    if whole {
        return Some(1);
    }
    let before = follows.saturating_sub(last).div_ceil(each).max(1);
    // Something is left for the last one, and there is room for it.
    (last >= 8 && follows >= 4).then(|| u32::try_from(before + 1).unwrap_or(u32::MAX))
}

/// Returns whether a Call with so many segments in its lists fits, apart from what `choose` does.
fn call_fits(shape: &CallShape, read: usize, offer: (usize, usize), inline: u64) -> bool {
    let (write, reply) = offer;
    let header = call_header_len(
        shape.version,
        false,
        read,
        Some(write).filter(|count| *count != 0),
        Some(reply).filter(|count| *count != 0),
    );
    header.unwrap() as u64 + inline <= u64::from(shape.call_inline)
}

/// Returns the size of a message.
fn total(sizes: &MessageSizes) -> u64 {
    u64::from(sizes.head) + u64::from(sizes.pages) + u64::from(sizes.tail)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn plans_fit(shape in shape()) {
        if let Ok(plan) = choose(&shape) {
            plan_fits(&shape, &plan);
        }
    }

    /// With messages in parts; and what was refused is not chosen, and what is left is tried.
    #[test]
    fn plans_of_version_two_fit(shape in shape_two()) {
        if let Ok(plan) = choose(&shape) {
            plan_fits(&shape, &plan);
        }
    }

    /// In Version Two as well no format is chosen while a better one fits that the peer has not
    /// refused.
    #[test]
    fn plans_of_version_two_are_the_best(shape in shape_two()) {
        let (call, reply, usable) = (&shape.call, &shape.reply, &shape.usable);
        let has_data = |message: &Message| {
            shape.ddp_allowed && message.ddp_eligible && message.sizes.pages != 0
        };
        let usable_chunk = |segments: usize| segments <= usable.segments.min(shape.header_segments);
        let rest = u64::from(reply.sizes.head) + u64::from(reply.sizes.tail);
        let comes = |write, follows, most: u32| {
            let header = reply_header_len(Version::Two, write, None).unwrap();
            messages(header, follows, shape.reply_inline).is_some_and(|parts| parts <= most)
        };
        let (data, other) = match usable.long_reply {
            true => (shape.reply_parts.data, shape.reply_parts.rest),
            false => (1, 1),
        };
        let write = Some(reply.payload_segments);
        let may_write = has_data(reply) && usable.write && usable_chunk(reply.payload_segments);
        let most = if has_data(reply) { data } else { other };
        let expected = if comes(None, total(&reply.sizes), most) {
            Some(ReplyFormat::Inline)
        } else if may_write && comes(write, rest, other) {
            Some(ReplyFormat::WriteChunk)
        } else if may_write && usable_chunk(reply.rest_segments) {
            Some(ReplyFormat::WriteAndReplyChunk)
        } else if usable_chunk(reply.whole_segments) {
            Some(ReplyFormat::ReplyChunk)
        } else {
            // With all of its data in messages, if there is no chunk for them.
            comes(None, total(&reply.sizes), other).then_some(ReplyFormat::Inline)
        };
        let Ok(plan) = choose(&shape) else {
            // Only if one of the headers is too long, or the sizes can't be.
            let small = [call, reply].iter().all(|m| total(&m.sizes) <= u64::from(u32::MAX) - 8);
            let few = [call, reply].iter().all(|m| {
                m.whole_segments <= 8 && m.rest_segments <= 8 && m.payload_segments <= 8
            });
            let possible = expected.is_some() && usable_chunk(call.whole_segments);
            prop_assert!(!(small && few && possible));
            return Ok(());
        };
        prop_assert_eq!(Some(plan.reply), expected);

        let offer = match plan.reply {
            ReplyFormat::Inline => (0, 0),
            ReplyFormat::WriteChunk => (reply.payload_segments, 0),
            ReplyFormat::ReplyChunk => (0, reply.whole_segments),
            ReplyFormat::WriteAndReplyChunk => (reply.payload_segments, reply.rest_segments),
        };
        let some = |count: usize| Some(count).filter(|count| *count != 0);
        let goes = |special, read, follows, most: u32| {
            let (write, reply) = (some(offer.0), some(offer.1));
            let header = call_header_len(Version::Two, special, read, write, reply).unwrap();
            messages(header, follows, shape.call_inline).is_some_and(|parts| parts <= most)
        };
        let pad = (4 - call.sizes.pages % 4) % 4;
        let left = u64::from(call.sizes.head) + u64::from(call.sizes.tail.saturating_sub(pad));
        let is_aligned = call.sizes.head % 4 == 0 && call.sizes.head >= 8;
        let most = match has_data(call) {
            true => shape.call_parts.data,
            false => shape.call_parts.rest,
        };
        let may_read = has_data(call)
            && usable.read
            && is_aligned
            && usable_chunk(call.payload_segments);
        let expected = if goes(false, 0, total(&call.sizes), most) {
            CallFormat::Inline
        } else if may_read && goes(false, call.payload_segments, left, shape.call_parts.rest) {
            CallFormat::ReadChunk { position: call.sizes.head, pad: pad.min(call.sizes.tail) }
        } else if may_read
            && usable_chunk(call.rest_segments)
            && goes(true, call.payload_segments + call.rest_segments, 0, 1)
        {
            CallFormat::CallAndReadChunk {
                position: call.sizes.head,
                pad: pad.min(call.sizes.tail),
            }
        } else if usable_chunk(call.whole_segments) && goes(true, call.whole_segments, 0, 1) {
            CallFormat::Special
        } else {
            CallFormat::Inline
        };
        prop_assert_eq!(plan.call, expected);
    }

    /// A Call is in as many parts as have to wait for credits only if it has no other form.
    #[test]
    fn patience_is_the_last_choice(shape in shape_two(), patient_parts in 0..12_u32) {
        let patient = choose(&CallShape { patient_parts, ..shape });
        let impatient = choose(&CallShape { patient_parts: 0, ..shape });
        if let Ok(plan) = &patient {
            plan_fits(&CallShape { patient_parts, ..shape }, plan);
        }
        if impatient.is_ok() {
            prop_assert_eq!(patient, impatient);
        }
    }

    /// There are no more segments in a header than there may be, and what is left is tried.
    #[test]
    fn plans_with_few_segments_fit(
        mut shape in shape(),
        header_segments in 0..12_usize,
        parts in [1..9_u32, 0..9],
    ) {
        let [data, more] = parts;
        shape.version = Version::Two;
        shape.call_parts = Continuation { data, rest: data + more };
        shape.reply_parts = shape.call_parts;
        let plan = choose(&shape);
        shape.header_segments = header_segments;
        let limited = choose(&shape);
        if let Ok(limited) = &limited {
            plan_fits(&shape, limited);
        }
        // What is within the limit anyway is chosen as if there were none.
        if let Ok(plan) = plan {
            if segments_of(&shape, &plan) <= header_segments {
                prop_assert_eq!(limited, Ok(plan));
            }
        }
    }

    /// A Call without Reply has no chunks in Version Two (4.7).
    #[test]
    fn calls_without_reply_have_no_chunks(mut shape in shape_two()) {
        shape.answered = false;
        shape.reply = Message::default();
        if let Ok(plan) = choose(&shape) {
            plan_fits(&shape, &plan);
            prop_assert_eq!((plan.call, plan.reply), (CallFormat::Inline, ReplyFormat::Inline));
        }
    }

    /// No format is chosen while a cheaper one fits.
    #[test]
    fn plans_are_the_cheapest(shape in shape()) {
        let Ok(plan) = choose(&shape) else { return Ok(()) };
        let (call, reply) = (&shape.call, &shape.reply);
        let reply_inline = u64::from(shape.reply_inline);
        let rest = u64::from(reply.sizes.head) + u64::from(reply.sizes.tail);
        let may_reduce = |message: &Message| {
            shape.ddp_allowed && message.ddp_eligible && message.sizes.pages != 0
        };

        let header = |write| reply_header_len(shape.version, write, None).unwrap() as u64;
        let write_header = header(Some(reply.payload_segments));
        let expected = if header(None) + total(&reply.sizes) <= reply_inline {
            ReplyFormat::Inline
        } else if !may_reduce(reply) {
            ReplyFormat::ReplyChunk
        } else if write_header + rest <= reply_inline {
            ReplyFormat::WriteChunk
        } else {
            ReplyFormat::WriteAndReplyChunk
        };
        prop_assert_eq!(plan.reply, expected);

        let offer = match plan.reply {
            ReplyFormat::Inline => (0, 0),
            ReplyFormat::WriteChunk => (reply.payload_segments, 0),
            ReplyFormat::ReplyChunk => (0, reply.whole_segments),
            ReplyFormat::WriteAndReplyChunk => (reply.payload_segments, reply.rest_segments),
        };
        let inline_fits = call_fits(&shape, 0, offer, total(&call.sizes));
        prop_assert_eq!(plan.call == CallFormat::Inline, inline_fits);
        if !inline_fits {
            let pad = (4 - call.sizes.pages % 4) % 4;
            let rest = u64::from(call.sizes.head) + u64::from(call.sizes.tail.saturating_sub(pad));
            let read_fits = may_reduce(call)
                && call.sizes.head % 4 == 0
                && call.sizes.head >= 8
                && call_fits(&shape, call.payload_segments, offer, rest);
            let is_read = matches!(plan.call, CallFormat::ReadChunk { .. });
            prop_assert_eq!(is_read, read_fits);
        }
    }

    /// With one segment for each chunk everything can be sent that an XDR stream can hold.
    #[test]
    fn there_is_always_a_way(mut shape in shape()) {
        for message in [&mut shape.call, &mut shape.reply] {
            message.payload_segments = 1;
            message.rest_segments = 1;
            message.whole_segments = 1;
        }
        let possible = [&shape.call, &shape.reply]
            .iter()
            .all(|message| total(&message.sizes) <= u64::from(u32::MAX) - 8);
        match choose(&shape) {
            Ok(_) => {}
            Err(fault) => {
                prop_assert!(!possible);
                prop_assert_eq!(fault, Fault::NoSpace);
            }
        }
    }

    /// Larger thresholds never make a plan dearer.
    #[test]
    fn larger_thresholds_help(shape in shape(), more in 0..65536_u32) {
        let Ok(plan) = choose(&shape) else { return Ok(()) };
        let larger = choose(&CallShape {
            call_inline: shape.call_inline + more,
            reply_inline: shape.reply_inline + more,
            ..shape
        });
        let larger = larger.unwrap();
        let rank = |format| match format {
            CallFormat::Inline => 0,
            CallFormat::ReadChunk { .. } => 1,
            CallFormat::CallAndReadChunk { .. } => 2,
            CallFormat::Special => 3,
        };
        prop_assert!(rank(larger.call) <= rank(plan.call));
    }
}

/// A Write chunk that bytes describe with data, but without segments. A chunk of no segments is not
/// in a header, so what was planned for one beside it would have more room: a Reply in three
/// messages would take two, and a Call chunk would fit.
#[test]
fn bytes_describe_no_chunk_without_segments() {
    // Sizes of head, pages and tail; flags and segment counts.
    type Described = ([u8; 9], [u8; 4]);
    let check = |limits: [u8; 4], messages: [Described; 2]| {
        let mut bytes = limits.to_vec();
        for (sizes, segments) in messages {
            bytes.extend(sizes);
            bytes.extend(segments);
        }
        oracle::format(&bytes);
    };
    // Version Two, with a Reply that may come in three messages of 8192 octets: of a Call that is
    // answered, and of one that is not.
    let call = (
        [0, 0x01, 0x96, 0x80, 0x0d, 0xff, 0, 0x02, 0x01],
        [0, 0, 1, 1],
    );
    let reply = ([0x80, 0x3f, 0xd2, 0, 0x01, 0x32, 0, 0, 0], [0, 0, 1, 1]);
    for flags in [0x4d, 0xcd] {
        check([0x06, 0x07, flags, 0x01], [call, reply]);
    }
    // A Call chunk that just fits into 1024 octets.
    let call = (
        [0, 0x02, 0xbf, 0, 0x02, 0xff, 0x80, 0x04, 0x8e],
        [0, 93, 221, 41],
    );
    let reply = (
        [0, 0, 0x80, 0x80, 0x3f, 0x80, 0x80, 0x1e, 0],
        [0, 0, 128, 130],
    );
    check([0x00, 0x02, 0x55, 0x00], [call, reply]);
}
