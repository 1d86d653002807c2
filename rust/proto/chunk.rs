// SPDX-License-Identifier: GPL-2.0

//! Chunks: the parts of a message that are moved by RDMA Read and Write (RFC 8166, 3.4).
//!
//! [`ReadList`], [`WriteList`] and [`Chunk`] are views of received bytes. Their constructors check
//! everything that can be checked without knowing the RPC. From then on counts and totals are plain
//! values and the iterators cannot fail.
//!
//! The functions `put_*` encode.

mod array;
mod read_list;
mod span;
mod write_list;

pub(crate) use self::{
    array::{
        put_chunk,
        put_reply_chunk,
        Chunk, //
    },
    read_list::{
        put_read_list,
        ReadList, //
    },
    span::Span,
    write_list::{
        put_write_list,
        WriteList, //
    }, //
};

use crate::proto::prelude::*;

/// The encoded size of a plain segment: handle, length, and two words of offset.
pub(crate) const SEGMENT_LEN: usize = 16;

/// The encoded size of an entry of the Read list: "is present", position, and the segment.
pub(crate) const READ_ENTRY_LEN: usize = 24;

/// One contiguous memory region of the Requester (RFC 8166, 3.4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The steering tag or R_key under which the region is registered.
    pub(crate) handle: u32,
    /// The length of the region in octets. In a Reply it is the number of octets written.
    pub(crate) length: u32,
    /// The address of the region's first octet.
    pub(crate) offset: u64,
}

impl Segment {
    /// Reads a segment and checks that it lies within the offset space.
    #[inline]
    pub(in crate::proto) fn get(reader: &mut Reader<'_>) -> Result<Self> {
        let segment = Self::read(reader)?;
        segment.check()?;
        Ok(segment)
    }

    /// Makes a segment of the words that it is encoded in.
    ///
    /// # Errors
    ///
    /// [`Fault::OffsetOverflow`] if the region runs past the end of the offset space.
    #[inline]
    pub(in crate::proto) fn of_words([handle, length, high, low]: [u32; 4]) -> Result<Self> {
        let segment = Self {
            handle,
            length,
            offset: (u64::from(high) << 32) | u64::from(low),
        };
        segment.check()?;
        Ok(segment)
    }

    /// Reads a segment without a check.
    #[inline]
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let [a, b, c, d, e, f, g, h] = *reader.array()?;
        Ok(Self {
            handle: u32::from_be_bytes([a, b, c, d]),
            length: u32::from_be_bytes([e, f, g, h]),
            offset: reader.u64()?,
        })
    }

    /// Checks that the region does not run past the end of the offset space.
    #[inline]
    fn check(&self) -> Result {
        match self.offset.checked_add(u64::from(self.length)) {
            Some(_) => Ok(()),
            None => Err(Fault::OffsetOverflow),
        }
    }

    /// Returns whether a Responder may return the segment if it was `offered`: it changes nothing
    /// but the length, which does not become greater (RFC 8166, 3.4.6).
    #[inline]
    pub(in crate::proto) fn may_return(&self, offered: &Self) -> bool {
        self.handle == offered.handle
            && self.offset == offered.offset
            && self.length <= offered.length
    }

    /// Adds the length to `total`, the sum of the segments before it.
    ///
    /// All segments of a chunk belong to one XDR stream, whose positions are 32 bits wide.
    #[inline]
    fn add_to(&self, total: u32) -> Result<u32> {
        total.checked_add(self.length).ok_or(Fault::ChunkTooLong)
    }

    /// Writes the segment.
    #[inline]
    fn put(&self, writer: &mut Writer<'_>) -> Result {
        self.check()?;
        writer.words([self.handle, self.length])?;
        writer.u64(self.offset)
    }
}

/// A segment of a Read chunk, and the position of the chunk (RFC 8166, 3.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadSegment {
    /// The offset in the unreduced RPC message at which the Responder inserts the data. It is zero
    /// if the chunk holds the RPC message itself.
    pub(crate) position: u32,
    /// The memory that holds the data.
    pub(crate) segment: Segment,
}

impl ReadSegment {
    /// Reads a Read segment and checks its position's alignment.
    #[inline]
    fn get(reader: &mut Reader<'_>) -> Result<Self> {
        let position = reader.u32()?;
        check_position(position)?;
        Ok(Self {
            position,
            segment: Segment::get(reader)?,
        })
    }

    /// Writes the Read segment as an entry of the Read list, with its "is present" word.
    #[inline]
    fn put(&self, writer: &mut Writer<'_>) -> Result {
        check_position(self.position)?;
        writer.words([1, self.position])?;
        self.segment.put(writer)
    }
}

/// Checks that a position is a multiple of four.
#[inline]
fn check_position(position: u32) -> Result {
    if position & 3 == 0 {
        Ok(())
    } else {
        Err(Fault::UnalignedPosition(position))
    }
}

/// The limits on the contents of a header.
///
/// A decoder does not allocate, so these limits bound the work and memory of the code that acts on
/// a header. The size of the Receive buffer is a bound too, but grows with tunables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// The largest number of segments in the Read list.
    pub(crate) read_segments: usize,
    /// The largest number of chunks in the Write list.
    pub(crate) write_chunks: usize,
    /// The largest number of segments in one Write chunk or in the Reply chunk.
    pub(crate) chunk_segments: usize,
}

impl Limits {
    /// Limits that no reasonable peer comes near: 1 MiB in pages of 4 KiB is 256 segments, one more
    /// if the buffer is not aligned.
    pub(crate) const DEFAULT: Self = Self {
        read_segments: 272,
        write_chunks: 16,
        chunk_segments: 272,
    };
}
