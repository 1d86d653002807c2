// SPDX-License-Identifier: GPL-2.0

//! Views of a received Version One header that passed all checks.

use super::{
    super::chunk::{
        Chunk,
        ReadList,
        WriteList, //
    },
    Direction,
    RdmaError, //
};
use crate::proto::prelude::*;

/// The chunk lists of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLists<'a> {
    /// The Read list.
    pub(crate) read: ReadList<'a>,
    /// The Write list.
    pub(crate) write: WriteList<'a>,
    /// The Reply chunk, if it is marked "present".
    pub(crate) reply: Option<Chunk<'a>>,
}

impl<'a> ChunkLists<'a> {
    /// Reads the chunk lists.
    #[inline]
    pub(in crate::proto) fn get(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self> {
        Ok(Self {
            read: ReadList::get(reader, limits)?,
            write: WriteList::get(reader, limits)?,
            reply: if reader.bool()? {
                Some(Chunk::get(reader, limits)?)
            } else {
                None
            },
        })
    }
}

/// A received message that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits requested (in a Call) or granted (in a Reply).
    pub(crate) credits: u32,
    /// The rest of the header.
    pub(crate) body: Body<'a>,
    /// The length of the header, which is the offset of the RPC message in an RDMA_MSG.
    pub(in crate::proto) header_len: usize,
}

/// The contents of a received message, by procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// RDMA_MSG: the RPC message follows the header.
    Msg {
        /// The direction: Call or Reply.
        direction: Direction,
        /// Its chunk lists.
        chunks: ChunkLists<'a>,
        /// The RPC message, without the data items that were reduced from it.
        payload: &'a [u8],
    },
    /// RDMA_NOMSG: a chunk holds the RPC message.
    Nomsg {
        /// The direction: Call or Reply.
        direction: Direction,
        /// Its chunk lists.
        chunks: ChunkLists<'a>,
    },
    /// RDMA_ERROR: there is no RPC message, and the Call with this transaction ID ends.
    Error(RdmaError),
}

impl<'a> Header<'a> {
    /// Returns whether this belongs to a Call or to a Reply.
    ///
    /// An RDMA_ERROR message answers a Call; only Responders send it (RFC 8166, 4.2.4). An
    /// RDMA_NOMSG message with a Read list is a Call, since the list holds the RPC message. The RPC
    /// message of a Reply is in its Reply chunk.
    pub(crate) const fn rpc_direction(&self) -> Direction {
        match self.body {
            Body::Msg { direction, .. } | Body::Nomsg { direction, .. } => direction,
            Body::Error(_) => Direction::Reply,
        }
    }

    /// Returns the error, if this is an RDMA_ERROR message.
    pub(crate) const fn error(&self) -> Option<RdmaError> {
        match self.body {
            Body::Error(error) => Some(error),
            Body::Msg { .. } | Body::Nomsg { .. } => None,
        }
    }

    /// Returns whether a chunk holds the RPC message.
    pub(crate) const fn is_nomsg(&self) -> bool {
        matches!(self.body, Body::Nomsg { .. })
    }

    /// Returns the length of the header in octets.
    pub(crate) const fn header_len(&self) -> usize {
        self.header_len
    }

    /// Returns the RPC message behind the header, which starts [`Self::header_len`] octets into the
    /// received bytes. It is empty unless this is an RDMA_MSG message.
    pub(crate) const fn payload(&self) -> &'a [u8] {
        match self.body {
            Body::Msg { payload, .. } => payload,
            Body::Nomsg { .. } | Body::Error(_) => &[],
        }
    }

    /// Returns the Read list, which is empty in a Reply.
    pub(crate) fn read_list(&self) -> ReadList<'a> {
        self.chunks().map_or_else(ReadList::default, |c| c.read)
    }

    /// Returns the Write list.
    pub(crate) fn write_list(&self) -> WriteList<'a> {
        self.chunks().map_or_else(WriteList::default, |c| c.write)
    }

    /// Returns the Reply chunk, if there is one.
    pub(crate) fn reply_chunk(&self) -> Option<Chunk<'a>> {
        self.chunks().and_then(|c| c.reply)
    }

    /// Returns the chunk lists, which an RDMA_ERROR message does not have.
    pub(crate) const fn chunks(&self) -> Option<&ChunkLists<'a>> {
        match &self.body {
            Body::Msg { chunks, .. } | Body::Nomsg { chunks, .. } => Some(chunks),
            Body::Error(_) => None,
        }
    }
}
