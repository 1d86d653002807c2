// SPDX-License-Identifier: GPL-2.0

//! The headers of all versions.
//!
//! Chunks have the same form and the same use in Version One and in Version Two. The versions
//! differ in the layout and size of a header, and only a Version Two Call says which of its handles
//! may be invalidated. The earlier protocol with number two has the headers of Version One, with a
//! word more. All of that is in one [table](layout), so that no other code has to distinguish the
//! versions. The numbers of each version are in [`v1`](super::v1), [`v2`](super::v2) and
//! [`v2_2016`](super::v2_2016).

mod decode;
mod error;
mod header;
mod layout;
pub(crate) mod plan;
mod reply;
mod sent;
mod short;
mod shortage;
mod uncut;

// This is a library. Which of these names are in use depends on the roles built on top of it.
#[allow(unused_imports)]
pub(crate) use self::{
    decode::{
        check_rpc,
        decode,
        decode_call, //
    },
    error::{
        ErrorHeader,
        RdmaError, //
    },
    header::{
        Body,
        DecodeError,
        Header,
        Lists, //
    },
    layout::direction_of,
    reply::{
        Reply,
        ReplyChunks,
        Returned, //
    },
    sent::{
        header_len,
        OnlyChunkHeader,
        Outgoing,
        PlainHeader, //
    },
    short::{
        holds_call,
        ChunkKind,
        OnlyChunk,
        Short, //
    },
    shortage::{
        shortage,
        OfferedChunk, //
    }, //
};

use super::chunk::ReadSegment;
use crate::proto::prelude::*;

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

/// The size in octets of the fields that all versions have in common.
pub(crate) const PREFIX_LEN: usize = 16;

/// The header type of errors, which is the same in all versions.
pub(crate) const ERROR: u32 = 4;

/// The first four words of a message, which have the same meaning in all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The protocol version.
    pub(crate) version: u32,
    /// The credits requested or granted.
    pub(crate) credits: u32,
    /// The procedure or header type, which determines the rest of the message.
    pub(crate) procedure: u32,
}

impl Prefix {
    /// Reads a prefix.
    #[inline]
    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *reader.array::<PREFIX_LEN>()?;
        Ok(Self {
            xid: u32::from_be_bytes([a, b, c, d]),
            version: u32::from_be_bytes([e, f, g, h]),
            credits: u32::from_be_bytes([i, j, k, l]),
            procedure: u32::from_be_bytes([m, n, o, p]),
        })
    }

    /// Writes the prefix.
    #[inline]
    pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result {
        writer.words([self.xid, self.version, self.credits, self.procedure])
    }
}

/// The direction of an RPC message: its `msg_type` field (RFC 5531).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From a Requester to a Responder.
    Call,
    /// From a Responder to a Requester.
    Reply,
}

impl Direction {
    /// Returns the word that it is encoded as.
    pub(crate) const fn word(self) -> u32 {
        match self {
            Self::Call => 0,
            Self::Reply => 1,
        }
    }

    /// Returns the direction that a word means.
    ///
    /// # Errors
    ///
    /// [`Fault::BadDirection`] if it is neither.
    #[inline]
    pub(crate) const fn from_word(word: u32) -> Result<Self> {
        match word {
            0 => Ok(Self::Call),
            1 => Ok(Self::Reply),
            other => Err(Fault::BadDirection(other)),
        }
    }
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
