// SPDX-License-Identifier: GPL-2.0

//! The numbers of Version Two (draft-ietf-nfsv4-rpcrdma-version-two-07, section 6), and its
//! messages without chunk lists.
//!
//! Every message starts with the same four words as in Version One. The last of them is the header
//! type. It determines the rest of the header, and it alone tells whether a message belongs to a
//! Call or to a Reply. See [`message`](super::message) for the headers with chunk lists.

#[cfg(any(test, rpcrdma_kunit))]
mod decode;
#[cfg(any(test, rpcrdma_kunit))]
mod encode;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

// This is a library. Which of these names are in use depends on the roles built on top of it.
#[allow(unused_imports)]
pub(crate) use super::message::{
    Direction,
    ErrorHeader,
    Prefix,
    RdmaError,
    PREFIX_LEN, //
};

use super::props::Advertised;
use crate::proto::prelude::*;

/// The version number.
pub(crate) const VERSION: u32 = 2;

/// The largest first message of a client: the size that every Version One server can receive (4.3).
pub(crate) const MAX_FIRST: u32 = super::v1::MIN_INLINE;

/// The transaction ID of messages that belong to no RPC. The draft requires it in a GRANT (6.3.2)
/// and is silent about CONNPROP messages.
pub(crate) const NO_XID: u32 = 0;

/// The size in octets of the header of a MIDDLE message, in front of a part of the RPC message.
pub(crate) const MIDDLE_LEN: usize = PREFIX_LEN + UNIT;

/// The header types (6.1) that are asked for by name; all are in the table of layouts.
pub(crate) mod htype {
    /// An error in a message received before.
    pub(crate) const ERROR: u32 = crate::proto::message::ERROR;
    /// Credits only.
    pub(crate) const GRANT: u32 = 5;
    /// Transport properties, with more to follow.
    pub(crate) const CONNPROP_MIDDLE: u32 = 6;
    /// The last transport properties.
    pub(crate) const CONNPROP_FINAL: u32 = 7;
    /// A part of a Call, except the last one.
    pub(crate) const CALL_MIDDLE: u32 = 9;
    /// A Call, or the last part of one.
    pub(crate) const CALL_INLINE: u32 = 10;
    /// A part of a Reply, except the last one.
    pub(crate) const REPLY_MIDDLE: u32 = 12;
    /// A Reply, or the last part of one.
    pub(crate) const REPLY_INLINE: u32 = 13;
}

/// Starts a message at the front of `buf`.
fn start(buf: &mut [u8], xid: u32, credits: u32, htype: u32) -> Result<Writer<'_>> {
    let mut writer = Writer::new(buf);
    Prefix {
        xid,
        version: VERSION,
        credits,
        procedure: htype,
    }
    .put(&mut writer)?;
    Ok(writer)
}

/// The header of a part of an RPC message that is not the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Middle {
    /// The direction of the RPC message: Call or Reply.
    pub(crate) direction: Direction,
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The number of octets of the RPC message that come in messages after this one.
    pub(crate) remaining: u32,
}

impl Middle {
    /// Writes an RDMA2_CALL_MIDDLE (6.3.6) or RDMA2_REPLY_MIDDLE (6.3.9) header to the front of
    /// `buf` and returns its size, which is [`MIDDLE_LEN`].
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let htype = match self.direction {
            Direction::Call => htype::CALL_MIDDLE,
            Direction::Reply => htype::REPLY_MIDDLE,
        };
        let mut writer = start(buf, self.xid, self.credits, htype)?;
        writer.u32(self.remaining)?;
        Ok(writer.len())
    }
}

/// An RDMA2_GRANT message. It has no transaction ID (6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantHeader {
    /// The credit value.
    pub(crate) credits: u32,
}

impl GrantHeader {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        Ok(start(buf, NO_XID, self.credits, htype::GRANT)?.len())
    }
}

/// An RDMA2_CONNPROP_MIDDLE (6.3.3) or RDMA2_CONNPROP_FINAL (6.3.4) message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnProp<'a> {
    /// The credit value.
    pub(crate) credits: u32,
    /// The properties that the message advertises.
    pub(crate) told: Advertised<'a>,
    /// True if this is the final message.
    pub(crate) last: bool,
}

impl ConnProp<'_> {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let htype = if self.last {
            htype::CONNPROP_FINAL
        } else {
            htype::CONNPROP_MIDDLE
        };
        let mut writer = start(buf, NO_XID, self.credits, htype)?;
        self.told.put(&mut writer)?;
        Ok(writer.len())
    }
}
