// SPDX-License-Identifier: GPL-2.0

//! The choice of payload format: inline data and chunks.
//!
//! A Requester decides for both directions: the format of its Call, and the memory that it offers
//! for the Reply (RFC 8166, 3.5). The offer must be sufficient for the largest possible Reply. Each
//! offered segment makes the Call's header and the Reply's header longer. The choice is a pure
//! function of sizes. It is made before anything is registered, and counts every octet of both
//! headers.
//!
//! Inline is preferred if it fits, since it costs one Send and nothing else. Next comes a chunk for
//! the payload alone, which is placed directly, without a copy. The rest may take several messages
//! in Version Two. The rest of a Call that is too long for those gets a chunk of its own. A chunk
//! for the whole message comes last.
//!
//! If the peer has refused a form (Version Two, 7.3), the next one is taken. If no chunk is left,
//! data may take the same number of messages as other contents. The same holds if the peer
//! does not accept the number of segments (5.2.4).

mod choice;
mod cut;
mod one_chunk;
mod open;
mod thresholds;
mod usable;

pub(crate) use self::{
    choice::choose,
    cut::SegmentLimits,
    one_chunk::{
        choose_one_chunk,
        ShortMessage, //
    },
    open::OPEN_REPLY,
    thresholds::InlineThresholds,
    usable::{
        Asked,
        Usable, //
    }, //
};

use super::message::Version;
use crate::proto::prelude::*;

/// The number of segments of a chunk, or of a header, where nobody has set a limit.
// It is as large as the number in a message.
pub(crate) const UNLIMITED: usize = 0xffff_ffff;

/// The sizes in octets of the three parts of an RPC message, as the RPC layer stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageSizes {
    /// The size of the part before the pages.
    pub(crate) head: u32,
    /// The size of the data in the pages, without XDR padding.
    pub(crate) pages: u32,
    /// The size of the part behind the pages, which starts with their XDR padding.
    pub(crate) tail: u32,
}

impl MessageSizes {
    /// Returns the size of the whole message.
    pub(crate) fn total(&self) -> Result<u32> {
        self.head
            .checked_add(self.pages)
            .and_then(|sum| sum.checked_add(self.tail))
            .ok_or(Fault::NoSpace)
    }

    /// Returns the size of the XDR padding that the tail starts with.
    fn pad(&self) -> u32 {
        (self.pages.wrapping_neg() & 3).min(self.tail)
    }
}

/// One message of an RPC, as input of the choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// The sizes: the real ones of a Call, the largest possible ones of a Reply.
    pub(crate) sizes: MessageSizes,
    /// True if the pages hold exactly one DDP-eligible data item (RFC 8166, 3.4.2).
    pub(crate) ddp_eligible: bool,
    /// The number of segments that a chunk of the pages alone takes.
    pub(crate) payload_segments: usize,
    /// The number of segments that a chunk of the rest (head and tail) takes.
    pub(crate) rest_segments: usize,
    /// The number of segments that a chunk of the whole message takes.
    pub(crate) whole_segments: usize,
}

/// The largest number of messages for an RPC message that is not in a chunk (Version Two, 6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// The limit if there is data that could be in a chunk instead, without a copy.
    pub(crate) data: u32,
    /// The limit if there is no such data.
    pub(crate) rest: u32,
}

impl Continuation {
    /// No continuation: each RPC message is in one message.
    pub(crate) const NONE: Self = Self { data: 1, rest: 1 };

    /// Returns the limit for an RPC message with or without data.
    const fn parts(self, has_data: bool) -> u32 {
        if has_data {
            self.data
        } else {
            self.rest
        }
    }
}

/// The input of the choice.
///
/// Segment counts may be too large, but not too small. If fewer segments are used in the end, the
/// message becomes shorter, which does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallShape {
    /// The protocol version, on which the sizes of the headers depend.
    pub(crate) version: Version,
    /// The Call.
    pub(crate) call: Message,
    /// The Reply. If the procedure has none, all sizes are zero.
    pub(crate) reply: Message,
    /// The inline threshold for the Call, in octets.
    pub(crate) call_inline: u32,
    /// The inline threshold for the Reply, in octets.
    pub(crate) reply_inline: u32,
    /// The largest number of messages for the Call.
    pub(crate) call_parts: Continuation,
    /// The largest number of messages for a Call that has no other form. There may not be credits
    /// for that many yet.
    pub(crate) patient_parts: u32,
    /// The largest number of messages for the Reply.
    pub(crate) reply_parts: Continuation,
    /// The forms that the peer is not known to refuse.
    pub(crate) usable: Usable,
    /// The largest number of segments in the Call's header, in all its chunks together.
    pub(crate) header_segments: usize,
    /// True if the Call will be answered.
    pub(crate) answered: bool,
    /// True if data may be placed directly at all. It must not be if a security flavor's checksum
    /// or cipher covers the whole message.
    pub(crate) ddp_allowed: bool,
}

/// The format of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFormat {
    /// The whole message follows the header (RFC 8166, 3.5.1).
    Inline,
    /// The pages are a Read chunk and the rest follows the header (3.5.2), in several messages if
    /// needed (Version Two, 6.6.2).
    ReadChunk {
        /// The position of the chunk.
        position: u32,
        /// The size of the padding at the start of the tail, which is not sent at all.
        pad: u32,
    },
    /// The pages are a Read chunk and the rest is a Call chunk (Version Two, 6.3.5).
    CallAndReadChunk {
        /// The position of the Read chunk.
        position: u32,
        /// The size of the padding at the start of the tail, which is in neither chunk.
        pad: u32,
    },
    /// The whole message is a Position Zero Read chunk (3.5.3).
    Special,
}

impl CallFormat {
    /// Returns whether the RPC message is in a chunk instead of behind the header.
    pub(crate) const fn is_special(self) -> bool {
        match self {
            Self::Inline | Self::ReadChunk { .. } => false,
            Self::CallAndReadChunk { .. } | Self::Special => true,
        }
    }
}

/// The chunks that a Call offers for its Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    /// None: the Reply follows its header.
    Inline,
    /// A Write chunk for the pages. The rest follows the header.
    WriteChunk,
    /// A Reply chunk for the whole message.
    ReplyChunk,
    /// A Write chunk for the pages and a Reply chunk for the rest, which does not fit behind the
    /// header.
    WriteAndReplyChunk,
}

/// The result of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallPlan {
    /// The format of the Call.
    pub(crate) call: CallFormat,
    /// The chunks offered for the Reply.
    pub(crate) reply: ReplyFormat,
    /// The size of the Call's header in octets.
    pub(crate) header_len: usize,
    /// The number of octets of the Call that follow the header.
    pub(crate) inline_len: usize,
    /// The number of messages for those octets. The header is that of the last message.
    pub(crate) parts: u32,
    /// The largest number of messages in which the Reply may come.
    pub(crate) reply_parts: u32,
}
