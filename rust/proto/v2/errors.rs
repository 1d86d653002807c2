// SPDX-License-Identifier: GPL-2.0

//! Errors in RDMA2_ERROR messages (draft-ietf-nfsv4-rpcrdma-version-two-07, 6.3.1 and 7).

use crate::proto::prelude::*;

/// The error codes (8.4).
mod code {
    /// See [`super::RdmaError::Version`].
    pub(super) const VERS: u32 = 1;
    /// See [`super::RdmaError::BadXdr`].
    pub(super) const BAD_XDR: u32 = 2;
    /// See [`super::RdmaError::BadProperty`].
    pub(super) const BAD_PROPVAL: u32 = 3;
    /// See [`super::RdmaError::HeaderType`].
    pub(super) const INVAL_HTYPE: u32 = 4;
    /// See [`super::RdmaError::Continuation`].
    pub(super) const INVAL_CONT: u32 = 5;
    /// See [`super::RdmaError::ReadChunks`].
    pub(super) const READ_CHUNKS: u32 = 6;
    /// See [`super::RdmaError::WriteChunks`].
    pub(super) const WRITE_CHUNKS: u32 = 7;
    /// See [`super::RdmaError::Segments`].
    pub(super) const SEGMENTS: u32 = 8;
    /// See [`super::RdmaError::WriteResource`].
    pub(super) const WRITE_RESOURCE: u32 = 9;
    /// See [`super::RdmaError::ReplyResource`].
    pub(super) const REPLY_RESOURCE: u32 = 10;
    /// See [`super::RdmaError::VersionMismatch`].
    pub(super) const VERS_MISMATCH: u32 = 11;
    /// See [`super::RdmaError::System`].
    pub(super) const SYSTEM: u32 = 100;
}

/// An error code with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RdmaError {
    /// The version is not supported (7.1.1).
    Version {
        /// The lowest supported version.
        low: u32,
        /// The highest supported version.
        high: u32,
    },
    /// The header cannot be parsed (7.2.1).
    BadXdr,
    /// The value of a property cannot be parsed (7.2.2).
    BadProperty,
    /// The header type is not known or not supported (7.1.3).
    HeaderType,
    /// The message does not fit into the sequence to which it belongs or should belong (7.1.4).
    Continuation,
    /// There are more Read chunks than the Responder can read (7.3.1).
    ReadChunks {
        /// The supported number.
        max: u32,
    },
    /// There are more Write chunks than the Responder can write (7.3.2).
    WriteChunks {
        /// The supported number.
        max: u32,
    },
    /// A chunk has more segments than the Responder can use (7.3.3).
    Segments {
        /// The supported number.
        max: u32,
    },
    /// A Write chunk is too short for its result (7.3.4).
    WriteResource {
        /// The index of the chunk, counted from one, or zero if it is unknown.
        index: u32,
        /// The required length in octets.
        needed: u32,
    },
    /// The Reply chunk is too short, and the Reply cannot be sent in another way (7.3.5).
    ReplyResource {
        /// The required length in octets.
        needed: u32,
    },
    /// The version differs from that of earlier messages (7.1.2).
    VersionMismatch,
    /// Any other error (7.4.1).
    System,
}

impl RdmaError {
    /// Reads an error: its code and parameters.
    ///
    /// # Errors
    ///
    /// [`Fault::BadErrorCode`] if the code is unknown. The receiver ignores such an error (section
    /// 7).
    pub(super) fn get(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match reader.u32()? {
            code::VERS => {
                let (low, high) = (reader.u32()?, reader.u32()?);
                if low > high {
                    return Err(Fault::BadVersionRange);
                }
                Self::Version { low, high }
            }
            code::BAD_XDR => Self::BadXdr,
            code::BAD_PROPVAL => Self::BadProperty,
            code::INVAL_HTYPE => Self::HeaderType,
            code::INVAL_CONT => Self::Continuation,
            code::READ_CHUNKS => Self::ReadChunks { max: reader.u32()? },
            code::WRITE_CHUNKS => Self::WriteChunks { max: reader.u32()? },
            code::SEGMENTS => Self::Segments { max: reader.u32()? },
            code::WRITE_RESOURCE => Self::WriteResource {
                index: reader.u32()?,
                needed: reader.u32()?,
            },
            code::REPLY_RESOURCE => Self::ReplyResource {
                needed: reader.u32()?,
            },
            code::VERS_MISMATCH => Self::VersionMismatch,
            code::SYSTEM => Self::System,
            other => return Err(Fault::BadErrorCode(other)),
        })
    }

    /// Writes the error.
    pub(super) fn put(&self, writer: &mut Writer<'_>) -> Result {
        match *self {
            Self::Version { low, high } => {
                if low > high {
                    return Err(Fault::BadVersionRange);
                }
                put(writer, &[code::VERS, low, high])
            }
            Self::BadXdr => put(writer, &[code::BAD_XDR]),
            Self::BadProperty => put(writer, &[code::BAD_PROPVAL]),
            Self::HeaderType => put(writer, &[code::INVAL_HTYPE]),
            Self::Continuation => put(writer, &[code::INVAL_CONT]),
            Self::ReadChunks { max } => put(writer, &[code::READ_CHUNKS, max]),
            Self::WriteChunks { max } => put(writer, &[code::WRITE_CHUNKS, max]),
            Self::Segments { max } => put(writer, &[code::SEGMENTS, max]),
            Self::WriteResource { index, needed } => {
                put(writer, &[code::WRITE_RESOURCE, index, needed])
            }
            Self::ReplyResource { needed } => put(writer, &[code::REPLY_RESOURCE, needed]),
            Self::VersionMismatch => put(writer, &[code::VERS_MISMATCH]),
            Self::System => put(writer, &[code::SYSTEM]),
        }
    }

    /// Returns whether the peer can accept no more messages like the one that failed, so that the
    /// connection is useless (7.1.1 to 7.1.3).
    ///
    /// An error does not name the header type that it is about, and each header type is REQUIRED.
    pub(crate) const fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Version { .. } | Self::VersionMismatch | Self::HeaderType
        )
    }
}

/// Writes words.
fn put(writer: &mut Writer<'_>, words: &[u32]) -> Result {
    words.iter().try_for_each(|word| writer.u32(*word))
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v2_errors)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::testing::Bytes,
        *, //
    };

    /// All errors, each with its encoding (8.4).
    const ALL: [(RdmaError, &[u32]); 12] = [
        (RdmaError::Version { low: 1, high: 2 }, &[1, 1, 2]),
        (RdmaError::BadXdr, &[2]),
        (RdmaError::BadProperty, &[3]),
        (RdmaError::HeaderType, &[4]),
        (RdmaError::Continuation, &[5]),
        (RdmaError::ReadChunks { max: 0 }, &[6, 0]),
        (RdmaError::WriteChunks { max: 1 }, &[7, 1]),
        (RdmaError::Segments { max: 16 }, &[8, 16]),
        (
            RdmaError::WriteResource {
                index: 1,
                needed: 9000,
            },
            &[9, 1, 9000],
        ),
        (RdmaError::ReplyResource { needed: 7 }, &[10, 7]),
        (RdmaError::VersionMismatch, &[11]),
        (RdmaError::System, &[100]),
    ];

    /// Section 8.4: code points and arms.
    #[test]
    fn errors_look_as_in_the_draft() -> Result {
        for (error, words) in ALL {
            let bytes = Bytes::from_writer(|writer| error.put(writer))?;
            assert!(bytes.is_words(words));
            assert_eq!(RdmaError::get(&mut Reader::new(bytes.get())), Ok(error));
            for len in 0..bytes.get().len() {
                let cut = RdmaError::get(&mut Reader::new(bytes.prefix(len)));
                assert_eq!(cut, Err(Fault::Truncated));
            }
        }
        Ok(())
    }

    /// Section 7: an unknown code is distinguished from a message that cannot be parsed.
    #[test]
    fn unknown_codes_are_told_apart() -> Result {
        for code in [0, 12, 99, 101, u32::MAX] {
            let bytes = Bytes::from_words(&[code])?;
            assert_eq!(
                RdmaError::get(&mut Reader::new(bytes.get())),
                Err(Fault::BadErrorCode(code))
            );
        }
        let bytes = Bytes::from_words(&[1, 3, 2])?;
        assert_eq!(
            RdmaError::get(&mut Reader::new(bytes.get())),
            Err(Fault::BadVersionRange)
        );
        let empty = RdmaError::Version { low: 3, high: 2 };
        assert_eq!(
            Bytes::from_writer(|writer| empty.put(writer)).err(),
            Some(Fault::BadVersionRange)
        );
        Ok(())
    }

    /// Sections 7.1.1 to 7.1.3: the Requester must not continue in the same way.
    #[test]
    fn errors_about_the_version_end_the_connection() {
        for (error, words) in ALL {
            let ends = matches!(words.first(), Some(1 | 4 | 11));
            assert_eq!(error.ends_connection(), ends);
        }
    }
}
