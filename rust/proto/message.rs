// SPDX-License-Identifier: GPL-2.0

//! The headers of both versions, in the form that Requester and Responder use.
//!
//! Chunks have the same form and the same use in Version One and in Version Two. The versions
//! differ in the layout and size of a header, and only a Version Two Call says which of its handles
//! may be invalidated. All of that is handled here, so that no other code has to distinguish the
//! versions.

pub(crate) mod plan;
mod received;
mod sent;
mod shortage;
mod uncut;

pub(crate) use self::{
    received::{
        Call,
        CallPlaces,
        PlainCall,
        Reply, //
    },
    sent::{
        call_header_len,
        reply_header_len,
        CallHeader,
        PlainHeader,
        ReplyHeader, //
    },
    shortage::{
        shortage,
        OfferedChunk, //
    }, //
};

use super::xdr::UNIT;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Version One (RFC 8166).
    One,
    /// Version Two (draft-ietf-nfsv4-rpcrdma-version-two-07).
    Two,
}

/// The offset of the credit value in a message of any version: the third word.
const CREDITS_AT: usize = 2 * UNIT;

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
