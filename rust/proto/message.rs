// SPDX-License-Identifier: GPL-2.0

//! The headers of all versions, in the form that Requester and Responder use.
//!
//! Chunks have the same form and the same use in Version One and in Version Two. The versions
//! differ in the layout and size of a header, and only a Version Two Call says which of its handles
//! may be invalidated. The earlier protocol with number two has the headers of Version One, with a
//! word more. All of that is handled here, so that no other code has to distinguish the
//! versions.

mod only_chunk;
pub(crate) mod plan;
mod received;
mod sent;
mod short;
mod shortage;
mod uncut;

pub(crate) use self::{
    only_chunk::{
        ChunkKind,
        OnlyChunk,
        OnlyChunkHeader, //
    },
    received::{
        Call,
        CallPlaces,
        Reply,
        Returned,
        ShortCall, //
    },
    sent::{
        call_header_len,
        reply_header_len,
        CallHeader,
        PlainHeader,
        ReplyHeader, //
    },
    short::Short,
    shortage::{
        shortage,
        OfferedChunk, //
    }, //
};

// Tests in user space look at the chunks.
#[allow(unused_imports)]
pub(crate) use self::received::ReplyChunks;

use super::{
    v1,
    v2_2016,
    xdr::UNIT, //
};

/// A version of the protocol. The numbers are its [code](Version::code), not those in headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Version {
    /// Version One (RFC 8166).
    One = 1,
    /// Version Two (draft-ietf-nfsv4-rpcrdma-version-two-07).
    Two,
    /// The earlier protocol with version number two (draft-cel-nfsv4-rpcrdma-version-two-01).
    Earlier,
}

/// The offset of the credit value in a message of any version: the third word.
const CREDITS_AT: usize = 2 * UNIT;

/// Decodes a message of a version that counts Calls.
///
/// # Errors
///
/// As for [`v1::decode`].
#[inline]
pub(crate) fn decode_counted(
    version: Version,
    bytes: &[u8],
) -> core::result::Result<v1::Header<'_>, v1::DecodeError> {
    match version {
        Version::Earlier => v2_2016::header::decode(bytes),
        Version::One | Version::Two => v1::decode(bytes),
    }
}

/// Sets the credit value of a message that is otherwise complete. A message too short to hold one
/// is left unchanged.
///
/// In Version Two the value is known only when the message is posted.
pub(crate) fn set_credits(message: &mut [u8], credits: u32) {
    let place = message
        .get_mut(CREDITS_AT..)
        .and_then(|rest| rest.first_chunk_mut());
    if let Some(place) = place {
        *place = credits.to_be_bytes();
    }
}
