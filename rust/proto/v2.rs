// SPDX-License-Identifier: GPL-2.0

//! The Version Two transport header (draft-ietf-nfsv4-rpcrdma-version-two-07, section 6).
//!
//! Every message starts with the same four words as in Version One. The last of them is the header
//! type. It determines the rest of the header, and it alone tells whether a message belongs to a
//! Call or to a Reply.

mod decode;
mod encode;
mod errors;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

// This is a library. Which of these names are in use depends on the roles built on top of it.
#[allow(unused_imports)]
pub(crate) use self::{
    decode::{
        check_rpc,
        decode,
        Body,
        DecodeError,
        Header,
        Offer,
        Plain, //
    },
    encode::{
        CallExternal,
        CallInline,
        ConnProp,
        ErrorHeader,
        GrantHeader,
        Middle,
        ReplyExternal,
        ReplyInline,
        MIDDLE_LEN, //
    },
    errors::RdmaError, //
};

#[allow(unused_imports)]
pub(crate) use super::v1::{
    Direction,
    Prefix,
    PREFIX_LEN, //
};

/// The version number.
pub(crate) const VERSION: u32 = 2;

/// The largest first message of a client: the size that every Version One server can receive (4.3).
pub(crate) const MAX_FIRST: u32 = super::v1::MIN_INLINE;

/// The transaction ID of messages that belong to no RPC. The draft requires it in a GRANT (6.3.2)
/// and is silent about CONNPROP messages.
pub(crate) const NO_XID: u32 = 0;

/// The header types (6.1).
pub(crate) mod htype {
    /// An error in a message received before.
    pub(crate) const ERROR: u32 = 4;
    /// Credits only.
    pub(crate) const GRANT: u32 = 5;
    /// Transport properties, with more to follow.
    pub(crate) const CONNPROP_MIDDLE: u32 = 6;
    /// The last transport properties.
    pub(crate) const CONNPROP_FINAL: u32 = 7;
    /// A Call whose RPC message is in a Call chunk.
    pub(crate) const CALL_EXTERNAL: u32 = 8;
    /// A part of a Call, except the last one.
    pub(crate) const CALL_MIDDLE: u32 = 9;
    /// A Call, or the last part of one.
    pub(crate) const CALL_INLINE: u32 = 10;
    /// A Reply whose RPC message is in the Reply chunk.
    pub(crate) const REPLY_EXTERNAL: u32 = 11;
    /// A part of a Reply, except the last one.
    pub(crate) const REPLY_MIDDLE: u32 = 12;
    /// A Reply, or the last part of one.
    pub(crate) const REPLY_INLINE: u32 = 13;
}

/// The subject of a header type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessagePurpose {
    /// The connection: GRANT and CONNPROP messages.
    Control,
    /// A Call.
    Call,
    /// A Reply, or an error instead of one.
    Reply,
}

impl MessagePurpose {
    /// Returns the subject of a header type, or `None` if the type is unknown.
    pub(crate) const fn of(htype: u32) -> Option<Self> {
        match htype {
            htype::GRANT | htype::CONNPROP_MIDDLE | htype::CONNPROP_FINAL => Some(Self::Control),
            htype::CALL_EXTERNAL | htype::CALL_MIDDLE | htype::CALL_INLINE => Some(Self::Call),
            htype::ERROR | htype::REPLY_EXTERNAL | htype::REPLY_MIDDLE | htype::REPLY_INLINE => {
                Some(Self::Reply)
            }
            _ => None,
        }
    }
}
