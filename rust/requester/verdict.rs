// SPDX-License-Identifier: GPL-2.0

//! The verdict of a Reply's header on its RPC.

use crate::observe::trace;

/// The verdict of a Reply's header, checked against what was offered. Made before the fence, used
/// after it: the message stays in its Receive buffer in between, where the peer can't reach it.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    /// The RPC message, or what is left of it, is in the message.
    Inline {
        /// Where it begins.
        at: usize,
        /// The octets that the peer wrote into the Write chunk.
        written: u32,
    },
    /// The whole RPC message is in the Reply chunk (and the Write chunk).
    Placed {
        /// Octets in the Reply chunk.
        len: u32,
        /// Octets in the Write chunk.
        written: u32,
        /// Where the octets of the Reply chunk are.
        place: Place,
    },
    /// The peer reported an error, or its Reply does not fit the Call.
    Failed,
    /// The peer reported an error that another form of the Call may avoid.
    Again,
}

/// The memory that a Reply chunk is of.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// All of the memory for the Reply.
    Whole,
    /// Head and tail: the pages are in a Write chunk.
    Split,
    /// The Reply buffer.
    Buffer,
}

impl Verdict {
    /// For a trace event: what it is, the octets of the RPC message that came inline or in the
    /// Reply chunk, and the octets in the Write chunk.
    pub(super) fn traced(self, message_len: usize) -> (trace::Verdict, usize, u32) {
        match self {
            Self::Inline { at, written } => {
                let len = message_len.saturating_sub(at);
                (trace::Verdict::Inline, len, written)
            }
            Self::Placed { len, written, .. } => (trace::Verdict::Placed, len as usize, written),
            Self::Failed => (trace::Verdict::Failed, 0, 0),
            Self::Again => (trace::Verdict::Again, 0, 0),
        }
    }
}
