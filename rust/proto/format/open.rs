// SPDX-License-Identifier: GPL-2.0

//! Replies whose length only the server knows.
//!
//! The upper layer has room for what its user asks for. A longer Reply means to it that the user
//! has to ask again with more room (`ERANGE`). Over a stream transport it learns that from the
//! Reply, whose end is dropped. A Responder has no means to send a part of a Reply, only an error
//! (RFC 8166, 4.5.3; Version Two, 7.3), and need not execute the Call again. So there has to be
//! room for such a Reply from the start.

use super::{
    Message,
    MessageSizes,
    SegmentLimits, //
};

/// The number of octets that an open Reply may have: the largest extended attribute, or an access
/// control list as long (64 KiB), and the rest of the RPC message.
pub(crate) const OPEN_REPLY: u32 = 68 << 10;

impl MessageSizes {
    /// The sizes of an open Reply.
    pub(crate) const OPEN_REPLY: Self = Self {
        head: OPEN_REPLY,
        pages: 0,
        tail: 0,
    };

    /// Returns whether a Reply is open: whether it may be longer than the memory for it, which has
    /// these sizes. `is_read` means that the pages are for the data of a READ, of which a server
    /// sends no more than it was asked for.
    #[inline]
    pub(crate) fn is_open(&self, is_read: bool) -> bool {
        self.pages != 0 && !is_read && self.total().is_ok_and(|total| total <= OPEN_REPLY)
    }
}

impl Message {
    /// An open Reply, for which a chunk has whole pages.
    pub(crate) fn open(cut: &SegmentLimits) -> Self {
        let segments = usize::try_from(OPEN_REPLY).map_or(usize::MAX, |len| cut.segments(0, len));
        Self {
            sizes: MessageSizes::OPEN_REPLY,
            ddp_eligible: false,
            payload_segments: 0,
            rest_segments: segments,
            whole_segments: segments,
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_open)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::error::Result,
            choose,
            choose_one_chunk,
            CallFormat,
            CallPlan,
            CallShape,
            Continuation,
            ReplyFormat,
            ShortMessage,
            Usable,
            Version, //
        },
        *, //
    };

    /// The limits of a device whose regions have 32 pages.
    const CUT: SegmentLimits = SegmentLimits {
        page: 4096,
        depth: 32,
        longest: usize::MAX,
        most: usize::MAX,
    };

    /// Returns what is chosen for a short Call with an open Reply.
    fn plan(version: Version, inline: u32, parts: u32, usable: Usable) -> Result<CallPlan> {
        choose(&CallShape {
            version,
            call: Message {
                sizes: MessageSizes {
                    head: 200,
                    ..MessageSizes::default()
                },
                rest_segments: 1,
                whole_segments: 1,
                ..Message::default()
            },
            reply: Message::open(&CUT),
            call_inline: inline,
            reply_inline: inline,
            call_parts: Continuation::NONE,
            patient_parts: 0,
            reply_parts: Continuation {
                data: 1,
                rest: parts,
            },
            usable,
            header_segments: usize::MAX,
            answered: true,
            ddp_allowed: true,
        })
    }

    /// The data of a READ, a Reply without pages and one with room for more are not open.
    #[test]
    fn a_reply_with_pages_is_open() {
        let is_open = |pages, is_read| {
            let sizes = MessageSizes {
                head: 200,
                pages,
                tail: 4,
            };
            sizes.is_open(is_read)
        };
        assert!(is_open(1, false));
        assert!(is_open(4096, false));
        assert!(is_open(OPEN_REPLY.saturating_sub(204), false));
        assert!(!is_open(OPEN_REPLY.saturating_sub(203), false));
        assert!(!is_open(u32::MAX, false));
        assert!(!is_open(4096, true));
        assert!(!is_open(0, false));
    }

    /// There is a chunk of one segment for an open Reply, unless it may come in messages.
    #[test]
    fn an_open_reply_has_room() -> Result {
        for (version, inline, parts, expected) in [
            (Version::One, 4096, 1, ReplyFormat::ReplyChunk),
            (Version::One, 65_536, 1, ReplyFormat::ReplyChunk),
            (Version::Earlier, 4096, 1, ReplyFormat::ReplyChunk),
            (Version::Two, 4096, 8, ReplyFormat::ReplyChunk),
            (Version::Two, 12_288, 3, ReplyFormat::ReplyChunk),
            (Version::Two, 12_288, 6, ReplyFormat::Inline),
        ] {
            let plan = plan(version, inline, parts, Usable::ALL)?;
            assert_eq!((plan.call, plan.reply), (CallFormat::Inline, expected));
        }
        // A Reply chunk of one segment takes 20 octets more than none.
        assert_eq!(
            plan(Version::One, 4096, 1, Usable::ALL)?.header_len,
            28 + 20
        );
        // The peer has refused to send it in parts.
        let usable = Usable {
            long_reply: false,
            ..Usable::ALL
        };
        let plan = plan(Version::Two, 12_288, 6, usable)?;
        assert_eq!(plan.reply, ReplyFormat::ReplyChunk);
        Ok(())
    }

    /// The short way to choose knows it too.
    #[test]
    fn an_open_reply_takes_one_chunk() -> Result {
        let message = |sizes| ShortMessage {
            sizes,
            offset: 0,
            places: false,
            inline: 4096,
        };
        let call = message(MessageSizes {
            head: 200,
            ..MessageSizes::default()
        });
        let reply = message(MessageSizes::OPEN_REPLY);
        let chosen = choose_one_chunk(Version::One, &call, &reply, &CUT);
        assert_eq!(chosen, Some(plan(Version::One, 4096, 1, Usable::ALL)?));
        Ok(())
    }
}
