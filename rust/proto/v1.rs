// SPDX-License-Identifier: GPL-2.0

//! The Version One transport header (RFC 8166, section 4).
//!
//! Every message starts with four words that have the same meaning in all versions, the
//! [`Prefix`]. In Version One the chunk lists follow, and behind them the RPC message, unless a
//! chunk holds it; or an error follows.

mod decode;
mod encode;
mod header;
mod refusal;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

// A library: which of these are in use depends on the roles built around it.
#[allow(unused_imports)]
pub(crate) use self::{
    decode::{
        decode,
        decode_with, //
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
    refusal::DecodeError,
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
    },
};

/// The version number.
pub(crate) const VERSION: u32 = 1;

/// The size of the fields that all versions have in common.
pub(crate) const PREFIX_LEN: usize = 16;

/// The size of the smallest header that carries chunk lists: all three marked "not present".
pub(crate) const MIN_HEADER_LEN: usize = 28;

/// The inline threshold that every peer supports in both directions (RFC 8166, 3.3.3).
pub(crate) const MIN_INLINE: u32 = 1024;

/// The procedure numbers (RFC 8166, 4.2.4).
mod procedure {
    /// The chunk lists and an RPC message follow.
    pub(super) const MSG: u32 = 0;
    /// The chunk lists follow; one of the chunks holds the RPC message.
    pub(super) const NOMSG: u32 = 1;
    /// Obsolete.
    pub(super) const MSGP: u32 = 2;
    /// Obsolete.
    pub(super) const DONE: u32 = 3;
    /// An error code follows.
    pub(super) const ERROR: u32 = 4;
}

/// The error codes (RFC 8166, 4.5).
mod error_code {
    /// The version is not supported; the range of supported ones follows.
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
    /// The credits that are asked for or granted.
    pub(crate) credits: u32,
    /// The procedure or header type, which says what follows.
    pub(crate) procedure: u32,
}

impl Prefix {
    /// Reads a prefix.
    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            xid: reader.u32()?,
            version: reader.u32()?,
            credits: reader.u32()?,
            procedure: reader.u32()?,
        })
    }

    /// Writes the prefix.
    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result {
        writer.u32(self.xid)?;
        writer.u32(self.version)?;
        writer.u32(self.credits)?;
        writer.u32(self.procedure)
    }
}

/// Whether an RPC message is a Call or a Reply: its `msg_type` field (RFC 5531).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From a Requester to a Responder.
    Call,
    /// From a Responder to a Requester.
    Reply,
}

/// What an RDMA_ERROR message says (RFC 8166, 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RdmaError {
    /// The version in the Call's header is not supported.
    Version {
        /// The lowest version that is.
        low: u32,
        /// The highest version that is.
        high: u32,
    },
    /// The Call's header cannot be parsed, or no Reply to it is possible.
    Chunk,
}

/// Returns the size of an RDMA_MSG or RDMA_NOMSG header whose chunks have so many segments.
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
