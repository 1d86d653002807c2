// SPDX-License-Identifier: GPL-2.0

//! The Version Two transport header (draft-ietf-nfsv4-rpcrdma-version-two-07, section 6).
//!
//! Every message starts with the same four words as in Version One. The last one is the header
//! type, which says what follows, and alone tells whether a message belongs to a Call or to a Reply.

mod decode;
mod encode;
mod errors;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

// A library: which of these are in use depends on the roles built around it.
#[allow(unused_imports)]
pub(crate) use self::{
    decode::{
        check_rpc,
        decode,
        Body,
        DecodeError,
        Header,
        Offer, //
    },
    encode::{
        CallExternal,
        CallInline,
        ConnProp,
        ErrorHeader,
        Grant,
        Middle,
        ReplyExternal,
        ReplyInline,
        MIDDLE_LEN, //
    },
    errors::RdmaError,
};

#[allow(unused_imports)]
pub(crate) use super::v1::{
    Direction,
    Prefix,
    PREFIX_LEN, //
};

/// The version number.
pub(crate) const VERSION: u32 = 2;

/// The largest first message of a client: what every Version One server can receive (4.3).
pub(crate) const MAX_FIRST: u32 = super::v1::MIN_INLINE;

/// The transaction ID of messages that belong to no RPC. The draft wants it in a GRANT (6.3.2) and
/// says nothing about CONNPROP messages.
pub(crate) const NO_XID: u32 = 0;

/// The header types (6.1).
pub(crate) mod htype {
    /// An error in a message received before.
    pub(crate) const ERROR: u32 = 4;
    /// Credits and nothing else.
    pub(crate) const GRANT: u32 = 5;
    /// Transport properties, of which more follow.
    pub(crate) const CONNPROP_MIDDLE: u32 = 6;
    /// Transport properties, the last ones.
    pub(crate) const CONNPROP_FINAL: u32 = 7;
    /// A Call in a Call chunk.
    pub(crate) const CALL_EXTERNAL: u32 = 8;
    /// A part of a Call, not the last one.
    pub(crate) const CALL_MIDDLE: u32 = 9;
    /// A Call, or the last part of one.
    pub(crate) const CALL_INLINE: u32 = 10;
    /// A Reply in the Reply chunk.
    pub(crate) const REPLY_EXTERNAL: u32 = 11;
    /// A part of a Reply, not the last one.
    pub(crate) const REPLY_MIDDLE: u32 = 12;
    /// A Reply, or the last part of one.
    pub(crate) const REPLY_INLINE: u32 = 13;
}

/// What a header type is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The connection: GRANT and CONNPROP messages.
    Control,
    /// A Call.
    Call,
    /// A Reply, or an error instead of one.
    Reply,
}

impl Purpose {
    /// Returns what a header type is about, if it is a known one.
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
