// SPDX-License-Identifier: GPL-2.0

//! Helpers that several test modules of Version One share.

use super::{
    super::{
        message::{
            self,
            Header,
            Outgoing,
            Version, //
        },
        testing::Bytes, //
    },
    DecodeError,
    Direction, //
};
use crate::proto::prelude::*;

/// The transaction ID of the examples.
pub(super) const XID: u32 = 0x1234_5678;

/// A Call without chunks.
pub(super) const CALL: Outgoing<'_> = Outgoing::new(Version::One, Direction::Call, XID, 32);

/// A Reply without chunks.
pub(super) const REPLY: Outgoing<'_> = Outgoing::new(Version::One, Direction::Reply, XID, 32);

/// Decodes a message.
pub(super) fn decode(bytes: &[u8]) -> core::result::Result<Header<'_>, DecodeError> {
    message::decode(Version::One, bytes, &Limits::DEFAULT)
}

/// Encodes a header and appends the first two words of an RPC message.
pub(super) fn with_rpc(
    encode: impl FnOnce(&mut [u8]) -> Result<usize>,
    direction: u32,
) -> Result<Bytes> {
    Bytes::from_encoder(|buf| {
        let header_len = encode(buf)?;
        let mut writer = Writer::new(buf.get_mut(header_len..).ok_or(Fault::NoSpace)?);
        writer.u32(XID)?;
        writer.u32(direction)?;
        header_len.checked_add(writer.len()).ok_or(Fault::NoSpace)
    })
}
