// SPDX-License-Identifier: GPL-2.0

//! What is not taken in, and how it is answered.

use crate::observe::trace::{Answer, Why};
use crate::proto::message::{self, Version};
use crate::proto::v1::{self, DecodeError};
use crate::proto::v2;
use kernel::error::Error;

/// Why a message is not taken in.
pub(crate) enum Refusal {
    /// Its header makes no sense.
    Header(DecodeError),
    /// Its header is fine, but its chunks can't be used.
    Chunks(Why),
    /// It is not a Call; it is not answered.
    Drop,
    /// The connection is to be ended.
    Lost(Error),
}

impl Refusal {
    /// What a trace event says of it, on a connection of that version.
    pub(crate) fn traced(&self, version: Version) -> (Answer, Why) {
        match self {
            Self::Header(error) if version == Version::Two => {
                (Answer::Error, Why::Fault(error.fault))
            }
            Self::Header(error) => {
                // Which credits an answer carries does not matter here.
                let answer = match error.answer(1).map(|answer| answer.error) {
                    Some(v1::RdmaError::Version { .. }) => Answer::ErrVers,
                    Some(v1::RdmaError::Chunk) => Answer::ErrChunk,
                    None => Answer::None,
                };
                (answer, Why::Fault(error.fault))
            }
            Self::Chunks(why) if version == Version::Two => (Answer::Error, *why),
            Self::Chunks(why) => (Answer::ErrChunk, *why),
            Self::Drop => (Answer::None, Why::NotACall),
            Self::Lost(_) => (Answer::Close, Why::NoResources),
        }
    }
}

/// The transaction ID of a message that was refused, whatever its version; zero if it is too short to have one.
pub(crate) fn xid_of(message: &[u8]) -> u32 {
    match v1::decode(message) {
        Ok(header) => header.xid,
        Err(error) => error.prefix.map_or(0, |prefix| prefix.xid),
    }
}

/// The answer to a message that was refused, as octets; [`None`] if there is none. `credits` is for Version One; in
/// Version Two the value is set when the answer is posted.
pub(crate) fn answer(
    version: Version,
    bytes: &[u8],
    refusal: &Refusal,
    credits: u32,
    buffer: &mut [u8],
) -> Option<usize> {
    if version == Version::Two {
        let error = match refusal {
            Refusal::Header(_) | Refusal::Chunks(_) => v2::RdmaError::BadXdr,
            Refusal::Drop | Refusal::Lost(_) => return None,
        };
        let xid = message::Call::decode(version, bytes)?.xid;
        return v2::ErrorHeader {
            xid,
            version: v2::VERSION,
            credits,
            error,
        }
        .encode(buffer)
        .ok();
    }
    let error = match refusal {
        Refusal::Header(error) => error.answer(credits)?,
        Refusal::Chunks(_) => v1::ErrorHeader {
            xid: v1::decode(bytes).ok()?.xid,
            version: v1::VERSION,
            credits,
            error: v1::RdmaError::Chunk,
        },
        Refusal::Drop | Refusal::Lost(_) => return None,
    };
    error.encode(buffer).ok()
}
