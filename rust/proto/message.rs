// SPDX-License-Identifier: GPL-2.0

//! The headers of both versions as Requester and Responder see them.
//!
//! Chunks have the same form and the same use in Version One and in Version Two. Which version a
//! connection speaks shows in how a header is laid out, in its size, and in whether a Call says which
//! of its handles may be invalidated. All of that is here, so that nobody else has to tell the
//! versions apart.

pub(crate) mod plan;
mod received;
mod sent;

pub(crate) use self::{
    received::{
        Call,
        Reply, //
    },
    sent::{
        call_header_len,
        reply_header_len,
        CallHeader,
        ReplyHeader, //
    },
};

use super::xdr::UNIT;

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// RFC 8166.
    One,
    /// draft-ietf-nfsv4-rpcrdma-version-two-07.
    Two,
}

impl Version {
    /// Returns its number.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::One => super::v1::VERSION,
            Self::Two => super::v2::VERSION,
        }
    }
}

/// Where the credit value is in a message of any version: the third word.
const CREDITS_AT: usize = 2 * UNIT;

/// Sets the credit value of a message that is otherwise complete. Of what is too short to have one nothing
/// changes.
///
/// In Version Two the value is known when the message is posted, and not before.
pub(crate) fn set_credits(message: &mut [u8], credits: u32) {
    let place = message
        .get_mut(CREDITS_AT..)
        .and_then(|rest| rest.first_chunk_mut());
    if let Some(place) = place {
        *place = credits.to_be_bytes();
    }
}
