// SPDX-License-Identifier: GPL-2.0

//! RPCs that take one message each way and nothing else: what nearly all of them need.

use super::{
    super::{
        message::PlainHeader,
        v2::Direction, //
    },
    MessageSizes,
    Version, //
};

/// The inline thresholds of a connection (RFC 8166, 3.3.2; Version Two, 5.2.1 and 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InlineThresholds {
    /// The version that is spoken, on which the sizes of the headers depend.
    pub(crate) version: Version,
    /// The threshold for a Call, in octets.
    pub(crate) call: u32,
    /// The threshold for its Reply, in octets.
    pub(crate) reply: u32,
}

impl InlineThresholds {
    /// Returns whether a Call and the largest possible Reply are within the thresholds, both
    /// without chunks. Then [`super::choose`] would choose this form, whatever else holds: inline
    /// is preferred, and no peer can refuse it.
    #[inline]
    pub(crate) fn hold(&self, call: &MessageSizes, reply: &MessageSizes) -> bool {
        let is_within = |sizes: &MessageSizes, direction, threshold| {
            let header = PlainHeader::len(self.version, direction);
            let len = sizes.total().ok().and_then(|len| len.checked_add(header));
            len.is_some_and(|len| len <= threshold)
        };
        is_within(call, Direction::Call, self.call)
            && is_within(reply, Direction::Reply, self.reply)
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_thresholds)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::error::Result,
            choose,
            CallFormat,
            CallShape,
            Continuation,
            Message,
            ReplyFormat,
            Usable,
            UNLIMITED, //
        },
        *, //
    };

    /// An RPC that is within the thresholds is one that would be sent inline, in one message each
    /// way; and the reverse.
    #[test]
    fn what_is_within_the_thresholds_is_sent_inline() -> Result {
        let message = |pages, tail| Message {
            sizes: MessageSizes {
                head: 100,
                pages,
                tail,
            },
            ddp_eligible: true,
            payload_segments: 1,
            rest_segments: 1,
            whole_segments: 1,
        };
        for version in [Version::One, Version::Two] {
            for (pages, tail) in [
                (0, 0),
                (860, 0),
                (868, 4),
                (872, 0),
                (876, 0),
                (880, 0),
                (904, 0),
            ] {
                for is_call in [true, false] {
                    let (long, short) = (message(pages, tail), message(0, 0));
                    let (call, reply) = if is_call {
                        (long, short)
                    } else {
                        (short, long)
                    };
                    let thresholds = InlineThresholds {
                        version,
                        call: 1000,
                        reply: 1000,
                    };
                    let plan = choose(&CallShape {
                        version,
                        call,
                        reply,
                        call_inline: thresholds.call,
                        reply_inline: thresholds.reply,
                        call_parts: Continuation::NONE,
                        patient_parts: 0,
                        reply_parts: Continuation::NONE,
                        usable: Usable::ALL,
                        header_segments: UNLIMITED,
                        answered: true,
                        ddp_allowed: true,
                    })?;
                    let is_inline = plan.call == CallFormat::Inline
                        && plan.reply == ReplyFormat::Inline
                        && (plan.parts, plan.reply_parts) == (1, 1);
                    assert_eq!(thresholds.hold(&call.sizes, &reply.sizes), is_inline);
                }
            }
        }
        Ok(())
    }
}
