// SPDX-License-Identifier: GPL-2.0

//! The refusal of messages that are not taken in, and their answers.

use crate::observe::trace::{
    Answer,
    RefusalReason, //
};
use crate::proto::chunk::Limits;
use crate::proto::message::{
    self,
    DecodeError,
    ErrorHeader,
    Header,
    RdmaError,
    Version, //
};
use kernel::error::Error;

/// Why a message is not taken in.
pub(crate) enum Refusal {
    /// Its header makes no sense.
    Header(DecodeError),
    /// Its header is fine, but its chunks can't be used.
    Chunks(RefusalReason),
    /// Its chunks need more memory regions, or more of the Send Queue, than there are.
    Segments {
        /// The most segments.
        max: u32,
    },
    /// It is not a Call; it is not answered.
    Drop,
    /// The connection must be ended.
    Lost(Error),
}

impl Refusal {
    /// Returns the words of a trace event for it, on a connection of that version.
    pub(crate) fn traced(&self, version: Version) -> (Answer, RefusalReason) {
        match self {
            Self::Header(error) if version.rules().has_parts => {
                (Answer::Error, RefusalReason::Fault(error.fault))
            }
            Self::Header(error) => {
                // Which credits an answer carries does not matter here.
                let answer = match error.answer(1).map(|answer| answer.error) {
                    Some(RdmaError::Version { .. }) => Answer::ErrVers,
                    Some(_) => Answer::ErrChunk,
                    None => Answer::None,
                };
                (answer, RefusalReason::Fault(error.fault))
            }
            Self::Chunks(why) if version.rules().has_parts => (Answer::Error, *why),
            Self::Chunks(why) => (Answer::ErrChunk, *why),
            Self::Segments { .. } => {
                let answer = if version.rules().has_parts {
                    Answer::Error
                } else {
                    Answer::ErrChunk
                };
                (answer, RefusalReason::TooManySegments)
            }
            Self::Drop => (Answer::None, RefusalReason::NotACall),
            Self::Lost(_) => (Answer::Close, RefusalReason::NoResources),
        }
    }
}

/// The transaction ID of a message that was refused, whatever its version; zero if it is too short
/// to have one.
pub(crate) fn xid_of(message: &[u8]) -> u32 {
    match message::decode(Version::One, message, &Limits::DEFAULT) {
        Ok(header) => header.xid,
        Err(error) => error.prefix.map_or(0, |prefix| prefix.xid),
    }
}

/// Returns what is said in Version Two about a Call that was refused; [`None`] if nothing is.
pub(crate) fn error(refusal: &Refusal, call: &Header<'_>) -> Option<RdmaError> {
    match *refusal {
        Refusal::Header(_) | Refusal::Chunks(_) => Some(RdmaError::BadXdr),
        // Section 7.3.3: with fewer segments it would have been possible.
        Refusal::Segments { max } if call.segments().count() > max as usize => {
            Some(RdmaError::Segments { max })
        }
        // There is no code for segments that are few and long; another time there may be enough
        // of what they need.
        Refusal::Segments { .. } => Some(RdmaError::System),
        Refusal::Drop | Refusal::Lost(_) => None,
    }
}

/// The answer to a message that was refused, as octets; [`None`] if there is none. `credits` is for
/// Version One; in Version Two the value is set when the answer is posted.
pub(crate) fn answer(
    version: Version,
    bytes: &[u8],
    refusal: &Refusal,
    credits: u32,
    buffer: &mut [u8],
) -> Option<usize> {
    let header = |xid, error| ErrorHeader {
        xid,
        version: version.number(),
        credits,
        error,
    };
    if version.rules().has_parts {
        let call = message::decode_call(version, bytes)?;
        let error = header(call.xid, error(refusal, &call)?);
        return error.encode(version, buffer).ok();
    }
    let error = match refusal {
        Refusal::Header(error) => error.answer(credits)?,
        Refusal::Chunks(_) | Refusal::Segments { .. } => {
            let decoded = message::decode(version, bytes, &Limits::DEFAULT);
            header(decoded.ok()?.xid, RdmaError::BadXdr)
        }
        Refusal::Drop | Refusal::Lost(_) => return None,
    };
    error.encode(version, buffer).ok()
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_responder_refusal)]
mod tests {
    use super::*;
    use crate::proto::chunk::{
        ReadSegment,
        Segment, //
    };
    use kernel::prelude::*;

    /// Section 7.3.3: the error says how many there may be, if there are more.
    #[test]
    fn too_many_segments_are_answered_with_the_number() -> Result {
        let segment = ReadSegment {
            position: 40,
            segment: Segment {
                handle: 1,
                length: 4,
                offset: 0x1000,
            },
        };
        let read = [segment; 20];
        for count in [1, 8, 9, 20_u32] {
            let header = message::Outgoing {
                read: read.get(..count as usize).ok_or(EINVAL)?,
                ..message::Outgoing::new(Version::Two, message::Direction::Call, 0, 1)
            };
            let mut bytes = KVec::from_elem(0, 1024, GFP_KERNEL)?;
            header.encode(&mut bytes).map_err(|_| EINVAL)?;
            let call = message::decode_call(Version::Two, &bytes).ok_or(EINVAL)?;
            let expected = match count {
                ..=8 => RdmaError::System,
                _ => RdmaError::Segments { max: 8 },
            };
            let refusal = Refusal::Segments { max: 8 };
            assert_eq!(error(&refusal, &call), Some(expected));
        }
        Ok(())
    }
}
