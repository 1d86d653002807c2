// SPDX-License-Identifier: GPL-2.0

//! The Version One transport header (RFC 8166, section 4).
//!
//! Every message starts with four words that have the same meaning in all versions, the [`Prefix`].
//! In Version One either an error or the chunk lists follow. The RPC message comes behind the chunk
//! lists, unless a chunk holds it.

mod decode;
mod encode;
mod header;
mod refusal;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

// This is a library. Which of these names are in use depends on the roles built on top of it.
#[allow(unused_imports)]
pub(crate) use self::{
    decode::{
        decode,
        decode_error,
        decode_msg,
        decode_with,
        holds_call, //
    },
    encode::{
        CallHeader,
        ErrorHeader,
        ReplyHeader, //
    },
    header::{
        Body,
        ChunkLists,
        Header, //
    },
    refusal::DecodeError, //
};

use super::{
    chunk,
    error::{
        Fault,
        Result, //
    },
    xdr::{
        Reader,
        Writer, //
    }, //
};

/// The version number.
pub(crate) const VERSION: u32 = 1;

/// The size in octets of the fields that all versions have in common.
pub(crate) const PREFIX_LEN: usize = 16;

/// The size in octets of the smallest header with chunk lists: all three are marked "not present".
pub(crate) const MIN_HEADER_LEN: usize = 28;

/// The inline threshold in octets that every peer supports in both directions (RFC 8166, 3.3.3).
pub(crate) const MIN_INLINE: u32 = 1024;

/// The procedure numbers (RFC 8166, 4.2.4).
pub(crate) mod procedure {
    /// The chunk lists and an RPC message follow.
    pub(crate) const MSG: u32 = 0;
    /// The chunk lists follow, and a chunk holds the RPC message.
    pub(crate) const NOMSG: u32 = 1;
    /// The obsolete RDMA_MSGP.
    pub(crate) const MSGP: u32 = 2;
    /// The obsolete RDMA_DONE.
    pub(crate) const DONE: u32 = 3;
    /// An error code follows.
    pub(crate) const ERROR: u32 = 4;
}

/// The error codes (RFC 8166, 4.5).
mod error_code {
    /// The version is not supported. The range of supported versions follows.
    pub(super) const VERS: u32 = 1;
    /// The header cannot be parsed, or no Reply is possible.
    pub(super) const CHUNK: u32 = 2;
}

/// The first four words of a message, which have the same meaning in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The protocol version.
    pub(crate) version: u32,
    /// The credits requested or granted.
    pub(crate) credits: u32,
    /// The procedure or header type, which determines the rest of the message.
    pub(crate) procedure: u32,
}

impl Prefix {
    /// Reads a prefix.
    #[inline]
    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self> {
        reader.array().map(Self::of)
    }

    /// Returns the prefix that these octets are.
    #[inline]
    pub(crate) const fn of(octets: &[u8; PREFIX_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *octets;
        Self {
            xid: u32::from_be_bytes([a, b, c, d]),
            version: u32::from_be_bytes([e, f, g, h]),
            credits: u32::from_be_bytes([i, j, k, l]),
            procedure: u32::from_be_bytes([m, n, o, p]),
        }
    }

    /// Writes the prefix.
    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result {
        writer.words([self.xid, self.version, self.credits, self.procedure])
    }
}

/// The direction of an RPC message: its `msg_type` field (RFC 5531).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From a Requester to a Responder.
    Call,
    /// From a Responder to a Requester.
    Reply,
}

/// The contents of an RDMA_ERROR message (RFC 8166, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RdmaError {
    /// The version in the Call's header is not supported.
    Version {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The Call's header cannot be parsed, or no Reply to it is possible.
    Chunk,
}

/// Returns the size of an RDMA_MSG or RDMA_NOMSG header with the given numbers of segments.
///
/// `write` has an entry for each Write chunk; `reply` is `None` if there is no Reply chunk.
pub(crate) fn header_len(
    read: usize,
    write: impl IntoIterator<Item = usize>,
    reply: Option<usize>,
) -> Result<usize> {
    [
        chunk::read_list_len(read)?,
        chunk::write_list_len(write)?,
        chunk::reply_chunk_len(reply)?,
    ]
    .into_iter()
    .try_fold(PREFIX_LEN, usize::checked_add)
    .ok_or(Fault::NoSpace)
}
