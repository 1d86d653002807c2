// SPDX-License-Identifier: GPL-2.0

//! The choice of payload format: what travels in the message, what in which chunk.
//!
//! A Requester decides for both ways: how its Call goes out, and what memory it offers for the
//! Reply (RFC 8166, 3.5). It has to offer enough for the largest Reply that is possible, and each
//! offered segment makes the Call's header and the Reply's header longer. The choice is a pure
//! function of sizes, made before anything is registered, and counts every octet of both headers.
//!
//! Inline comes first whenever it fits, for it costs one Send and nothing else. Then comes a chunk
//! for the payload alone, which lands where it belongs without a copy. What is left may take several
//! messages in Version Two; if it is a Call, and too long for those, it gets a chunk of its own. A
//! chunk for the whole message comes last.
//!
//! Where the peer has refused a form (Version Two, 7.3) the next one is taken. If no chunk is left,
//! data travels in as many messages as anything else may. The same holds if the peer does not take as
//! many segments as there would be (5.2.4).

mod choice;
mod cut;
mod usable;

pub(crate) use self::choice::choose;
pub(crate) use self::cut::Cut;
pub(crate) use self::usable::{
    Asked,
    Usable, //
};

use super::{
    error::{
        Fault,
        Result, //
    },
    message::Version, //
};

/// The sizes in octets of the three parts of an RPC message, as the RPC layer keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// What comes before the pages.
    pub(crate) head: u32,
    /// What is in the pages: without XDR padding.
    pub(crate) pages: u32,
    /// What comes behind the pages: it starts with their XDR padding.
    pub(crate) tail: u32,
}

impl Sizes {
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

/// One message of an RPC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its size: of a Call the real one, of a Reply the largest that is possible.
    pub(crate) sizes: Sizes,
    /// Whether the pages hold exactly one DDP-eligible data item (RFC 8166, 3.4.2).
    pub(crate) ddp_eligible: bool,
    /// How many segments a chunk of the pages alone takes.
    pub(crate) payload_segments: usize,
    /// How many segments a chunk of the rest takes: of head and tail.
    pub(crate) rest_segments: usize,
    /// How many segments a chunk of everything takes.
    pub(crate) whole_segments: usize,
}

/// In how many messages an RPC message may travel that is not in a chunk (Version Two, 6.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Continuation {
    /// If there is data that could go into a chunk instead, without a copy.
    pub(crate) data: u32,
    /// If there is none.
    pub(crate) rest: u32,
}

impl Continuation {
    /// There is none: one message is all.
    pub(crate) const NONE: Self = Self { data: 1, rest: 1 };

    /// Returns in how many messages an RPC message may travel.
    const fn parts(self, has_data: bool) -> u32 {
        match has_data {
            true => self.data,
            false => self.rest,
        }
    }
}

/// What the choice depends on.
///
/// Segment counts may be too large, but not too small. If in the end fewer are used the message
/// becomes shorter, which does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallShape {
    /// The version of both, whose headers differ in size.
    pub(crate) version: Version,
    /// The Call.
    pub(crate) call: Message,
    /// The Reply. Of a procedure that has none, all sizes are zero.
    pub(crate) reply: Message,
    /// The inline threshold for the Call.
    pub(crate) call_inline: u32,
    /// The inline threshold for the Reply.
    pub(crate) reply_inline: u32,
    /// In how many parts the Call may be sent.
    pub(crate) call_parts: Continuation,
    /// In how many parts the Reply may come.
    pub(crate) reply_parts: Continuation,
    /// What the peer is not known to refuse.
    pub(crate) usable: Usable,
    /// How many segments there may be in the Call's header, of all chunks together.
    pub(crate) header_segments: usize,
    /// Whether the Call will be answered.
    pub(crate) answered: bool,
    /// Whether data may be placed directly at all. It must not be where a security flavor's
    /// checksum or cipher covers the whole message.
    pub(crate) ddp_allowed: bool,
}

/// How a Call travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFormat {
    /// All of it behind the header (RFC 8166, 3.5.1).
    Inline,
    /// The pages as a Read chunk, the rest behind the header (3.5.2), in several messages if need be (Version Two, 6.6.2).
    ReadChunk {
        /// The position of the chunk.
        position: u32,
        /// How much of the tail's start is padding of the pages and does not travel at all.
        pad: u32,
    },
    /// The pages as a Read chunk, the rest as a Call chunk (Version Two, 6.3.5).
    CallAndReadChunk {
        /// The position of the Read chunk.
        position: u32,
        /// How much of the tail's start is padding of the pages and in neither of them.
        pad: u32,
    },
    /// All of it as a Position Zero Read chunk (3.5.3).
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

/// What is offered for the Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    /// Nothing: it fits behind its header.
    Inline,
    /// A Write chunk for the pages; what is left of it fits behind its header.
    WriteChunk,
    /// A Reply chunk for all of it.
    ReplyChunk,
    /// A Write chunk for the pages and a Reply chunk for what is left, which does not fit behind
    /// its header.
    WriteAndReplyChunk,
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// How the Call travels.
    pub(crate) call: CallFormat,
    /// What is offered for the Reply.
    pub(crate) reply: ReplyFormat,
    /// The size of the Call's header.
    pub(crate) header_len: usize,
    /// How much of the Call follows the header.
    pub(crate) inline_len: usize,
    /// In how many messages that is. The header is that of the last one.
    pub(crate) parts: u32,
    /// In how many messages the Reply may come.
    pub(crate) reply_parts: u32,
    /// How many octets the Write chunk has to hold.
    pub(crate) write_len: u32,
    /// How many octets the Reply chunk has to hold.
    pub(crate) reply_len: u32,
}

impl Plan {
    /// Returns the size of what is sent, if it is one message.
    pub(crate) const fn send_len(&self) -> usize {
        self.header_len.saturating_add(self.inline_len)
    }
}
