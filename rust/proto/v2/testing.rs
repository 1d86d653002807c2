// SPDX-License-Identifier: GPL-2.0

//! Helpers that several test modules of Version Two share.

use super::super::{
    message::{
        self,
        DecodeError,
        Header,
        Version, //
    },
    testing::Bytes, //
};
use crate::proto::prelude::*;

/// The transaction ID of the examples.
pub(super) const XID: u32 = 0x1234_5678;

/// Decodes a message.
pub(super) fn decoded(bytes: &Bytes) -> Result<Header<'_>> {
    decode(bytes.get()).map_err(|error| error.fault)
}

/// Decodes octets.
pub(super) fn decode(bytes: &[u8]) -> core::result::Result<Header<'_>, DecodeError> {
    message::decode(Version::Two, bytes, &Limits::DEFAULT)
}
