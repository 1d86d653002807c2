// SPDX-License-Identifier: GPL-2.0

//! Replies that have arrived, as their Requester sees them.

use super::{
    super::chunk::{
        Chunk,
        WriteList, //
    },
    Body,
    ChunkKind,
    Direction,
    Header,
    OnlyChunk,
    Short, //
};
use crate::proto::prelude::*;

/// A Reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    /// Set if the RPC message is in the Reply chunk, and not behind the header.
    pub(crate) special: bool,
    /// The chunks that came back.
    pub(crate) chunks: ReplyChunks<'a>,
    /// The size of the header.
    pub(crate) header_len: usize,
}

/// The chunks of a Reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyChunks<'a> {
    /// One of one segment, or none.
    Short(Option<OnlyChunk>),
    /// Any.
    Any {
        /// The Write list.
        write: WriteList<'a>,
        /// The Reply chunk.
        reply: Option<Chunk<'a>>,
    },
}

/// The numbers of octets that a Responder claims to have written to the chunks of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Returned {
    /// Those in the Write chunk.
    pub(crate) written: u32,
    /// Those in the Reply chunk.
    pub(crate) placed: u32,
}

impl<'a> Reply<'a> {
    /// The view of a message that was decoded in a few steps.
    #[inline]
    pub(crate) fn of_short(short: &Short) -> Self {
        let is_in = |chunk: OnlyChunk| chunk.kind == ChunkKind::Reply;
        Self {
            special: short.chunk.is_some_and(is_in),
            chunks: ReplyChunks::Short(short.chunk),
            header_len: short.header_len,
        }
    }

    /// The view of any message; [`None`] if it is no Reply, nor the last part of one.
    #[inline]
    pub(crate) fn of_header(header: &Header<'a>) -> Option<Self> {
        let special = match header.body {
            Body::Inline(Direction::Reply) => false,
            Body::External(Direction::Reply) => true,
            _ => return None,
        };
        Some(Self {
            special,
            chunks: ReplyChunks::Any {
                write: header.write_list(),
                reply: header.reply_chunk(),
            },
            header_len: header.header_len,
        })
    }

    /// Compares the chunks with those that the Call has offered, see [`Chunk::check_returned`].
    /// [`None`] if they differ in more than they may.
    ///
    /// RFC 8166 sections 3.4.6 and 4.3.3: the Responder returns the chunks that were offered, with
    /// the lengths that it used.
    #[inline]
    pub(crate) fn returned(
        &self,
        write: impl ExactSizeIterator<Item = Segment>,
        reply: impl ExactSizeIterator<Item = Segment>,
    ) -> Option<Returned> {
        let (written, placed) = match &self.chunks {
            ReplyChunks::Short(None) => (0, 0),
            ReplyChunks::Short(Some(only)) => match only.kind {
                ChunkKind::Read { .. } => return None,
                ChunkKind::Write => (only.returned(write)?, 0),
                ChunkKind::Reply => (0, only.returned(reply)?),
            },
            ReplyChunks::Any {
                write: returned,
                reply: placed,
            } => {
                let written = match returned.single() {
                    Some(chunk) => chunk.check_returned(write).ok()?,
                    None if returned.is_empty() => 0,
                    None => return None,
                };
                let placed = match placed {
                    Some(chunk) => chunk.check_returned(reply).ok()?,
                    None => 0,
                };
                (written, placed)
            }
        };
        Some(Returned { written, placed })
    }
}
