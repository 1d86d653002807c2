// SPDX-License-Identifier: GPL-2.0

//! Headers by the names of their specifications, for tests that are about one version.

use crate::proto::{
    chunk::{
        ReadSegment,
        Segment, //
    },
    error::Result,
    message::{
        header_len,
        Direction,
        Outgoing,
        Version, //
    }, //
};

/// The most segments of a Read list that is decoded, see
/// [`Limits::DEFAULT`](crate::proto::chunk::Limits).
const MOST_SEGMENTS: usize = 272;

/// The header of a Call of Version One.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHeader<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits requested.
    pub(crate) credits: u32,
    /// The Read list. Segments at position zero come first.
    pub(crate) read: &'a [ReadSegment],
    /// The only Write chunk, or empty.
    pub(crate) write: &'a [Segment],
    /// The Reply chunk, or empty.
    pub(crate) reply: &'a [Segment],
    /// Whether the RPC message is in the Read list.
    pub(crate) nomsg: bool,
}

impl CallHeader<'_> {
    /// Writes the header.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        self.encode_in(Version::One, buf)
    }

    /// Writes the header of a version that counts Calls.
    pub(crate) fn encode_in(&self, version: Version, buf: &mut [u8]) -> Result<usize> {
        let zeroes = match self.nomsg {
            true => self.read.partition_point(|entry| entry.position == 0),
            false => 0,
        };
        let (call, read) = self.read.split_at(zeroes);
        // No message that is decoded has more; nothing is allocated.
        let mut segments = [Segment::default(); MOST_SEGMENTS];
        for (to, from) in segments.iter_mut().zip(call) {
            *to = from.segment;
        }
        let list = [self.write];
        Outgoing {
            external: self.nomsg,
            call: &segments[..zeroes],
            read,
            write: match self.write {
                [] => &[],
                _ => &list,
            },
            reply: Some(self.reply).filter(|chunk| !chunk.is_empty()),
            ..Outgoing::new(version, Direction::Call, self.xid, self.credits)
        }
        .encode(buf)
    }
}

/// The header of a Reply of Version One.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHeader<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits granted.
    pub(crate) credits: u32,
    /// The Write list.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Reply chunk.
    pub(crate) reply: Option<&'a [Segment]>,
    /// Whether the RPC message is in the Reply chunk.
    pub(crate) nomsg: bool,
}

impl ReplyHeader<'_> {
    /// Writes the header.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        self.encode_in(Version::One, buf)
    }

    /// Writes the header of a version that counts Calls.
    pub(crate) fn encode_in(&self, version: Version, buf: &mut [u8]) -> Result<usize> {
        Outgoing {
            external: self.nomsg,
            write: self.write,
            reply: self.reply,
            ..Outgoing::new(version, Direction::Reply, self.xid, self.credits)
        }
        .encode(buf)
    }
}

/// An RDMA2_CALL_INLINE header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallInline<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The handle to invalidate.
    pub(crate) inv_handle: u32,
    /// The Read list.
    pub(crate) read: &'a [ReadSegment],
    /// The Write list.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Reply chunk.
    pub(crate) reply: Option<&'a [Segment]>,
}

impl<'a> CallInline<'a> {
    /// Returns it as the module sends it.
    fn outgoing(&self) -> Outgoing<'a> {
        Outgoing {
            invalidate: self.inv_handle,
            read: self.read,
            write: self.write,
            reply: self.reply,
            ..Outgoing::new(Version::Two, Direction::Call, self.xid, self.credits)
        }
    }

    /// Writes the header.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        self.outgoing().encode(buf)
    }
}

/// An RDMA2_CALL_EXTERNAL header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallExternal<'a> {
    /// The fields that it shares with an inline Call.
    pub(crate) common: CallInline<'a>,
    /// The Call chunk.
    pub(crate) call: &'a [Segment],
}

impl CallExternal<'_> {
    /// Writes the header.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        Outgoing {
            external: true,
            call: self.call,
            ..self.common.outgoing()
        }
        .encode(buf)
    }
}

/// An RDMA2_REPLY_INLINE header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyInline<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The Write list.
    pub(crate) write: &'a [&'a [Segment]],
}

impl ReplyInline<'_> {
    /// Writes the header.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        Outgoing {
            write: self.write,
            ..Outgoing::new(Version::Two, Direction::Reply, self.xid, self.credits)
        }
        .encode(buf)
    }
}

/// An RDMA2_REPLY_EXTERNAL header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyExternal<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The Write list.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Reply chunk.
    pub(crate) reply: &'a [Segment],
}

impl ReplyExternal<'_> {
    /// Writes the header.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        Outgoing {
            external: true,
            write: self.write,
            reply: Some(self.reply),
            ..Outgoing::new(Version::Two, Direction::Reply, self.xid, self.credits)
        }
        .encode(buf)
    }
}

/// Returns the size of a Call's header with the given numbers of segments. `special` says that the
/// RPC message is in a chunk, whose segments are among those of `read`.
pub(crate) fn call_header_len(
    version: Version,
    special: bool,
    read: usize,
    write: Option<usize>,
    reply: Option<usize>,
) -> Result<usize> {
    header_len((version, Direction::Call, special), read, write, reply)
}

/// Returns the size of a Reply's header with the given numbers of segments. In Version Two the RPC
/// message is in the Reply chunk if there is one.
pub(crate) fn reply_header_len(
    version: Version,
    write: Option<usize>,
    reply: Option<usize>,
) -> Result<usize> {
    let form = (version, Direction::Reply, reply.is_some());
    header_len(form, 0, write, reply)
}
