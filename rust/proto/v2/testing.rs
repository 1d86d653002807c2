// SPDX-License-Identifier: GPL-2.0

//! Helpers that several test modules of Version Two share.

use super::{
    super::{
        chunk::ReadSegment,
        testing::Bytes, //
    },
    decode,
    Header, //
};
use crate::proto::prelude::*;

/// The transaction ID of the examples.
pub(super) const XID: u32 = 0x1234_5678;

/// Returns a segment that is different for each `handle`.
pub(super) const fn segment(handle: u32, length: u32) -> Segment {
    Segment {
        handle,
        length,
        offset: 0x0001_0002_0003_0004,
    }
}

/// Returns a Read segment that is different for each `handle`.
pub(super) const fn read_segment(position: u32, handle: u32, length: u32) -> ReadSegment {
    ReadSegment {
        position,
        segment: segment(handle, length),
    }
}

/// Decodes a message.
pub(super) fn decoded(bytes: &Bytes) -> Result<Header<'_>> {
    decode(bytes.get(), &Limits::DEFAULT).map_err(|error| error.fault)
}
