// SPDX-License-Identifier: GPL-2.0

//! The errors of all versions, as one table (RFC 8166, 4.5; Version Two, 6.3.1, 7 and 8.4;
//! draft-cel-nfsv4-rpcrdma-version-two-01, 4.2).

use super::{
    Prefix,
    Version,
    ERROR, //
};
use crate::proto::prelude::*;

/// Defines the errors, each with its code and the words that follow it.
macro_rules! errors {
    ($($(#[$doc:meta])* $code:literal $name:ident
        $({ $($(#[$field_doc:meta])* $field:ident,)+ })?;)*) => {
        /// An error code with its parameters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum RdmaError {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: u32,)+ })?,)*
        }

        impl RdmaError {
            /// Reads an error of any version: its code and parameters.
            fn get_any(reader: &mut Reader<'_>) -> Result<Self> {
                Ok(match reader.u32()? {
                    $($code => Self::$name $({ $($field: reader.u32()?,)+ })?,)*
                    other => return Err(Fault::BadErrorCode(other)),
                })
            }

            /// Writes the code and the parameters.
            fn put_any(&self, writer: &mut Writer<'_>) -> Result {
                match *self {
                    $(Self::$name $({ $($field,)+ })? => writer.words([$code $($(, $field)+)?]),)*
                }
            }
        }
    };
}

errors! {
    /// The version is not supported (RFC 8166, 4.5.1; Version Two, 7.1.1).
    1 Version {
        /// The lowest supported version.
        low,
        /// The highest supported version.
        high,
    };
    /// The header cannot be parsed, or, before Version Two, no Reply is possible (RFC 8166, 4.5.2
    /// and 4.5.3; Version Two, 7.2.1).
    2 BadXdr;
    /// The value of a property cannot be parsed (7.2.2).
    3 BadProperty;
    /// The header type is not known or not supported (7.1.3).
    4 HeaderType;
    /// The message does not fit into the sequence to which it belongs or should belong (7.1.4).
    5 Continuation;
    /// There are more Read chunks than the Responder can read (7.3.1).
    6 ReadChunks {
        /// The supported number.
        max,
    };
    /// There are more Write chunks than the Responder can write (7.3.2).
    7 WriteChunks {
        /// The supported number.
        max,
    };
    /// A chunk has more segments than the Responder can use (7.3.3).
    8 Segments {
        /// The supported number.
        max,
    };
    /// A Write chunk is too short for its result (7.3.4).
    9 WriteResource {
        /// The index of the chunk, counted from one, or zero if it is unknown.
        index,
        /// The required length in octets.
        needed,
    };
    /// The Reply chunk is too short, and the Reply cannot be sent in another way (7.3.5).
    10 ReplyResource {
        /// The required length in octets.
        needed,
    };
    /// The version differs from that of earlier messages (7.1.2).
    11 VersionMismatch;
    /// Any other error (7.4.1).
    100 System;
}

impl RdmaError {
    /// Reads an error: its code and parameters. Before Version Two there are only the first two
    /// codes about RPCs.
    ///
    /// # Errors
    ///
    /// [`Fault::BadErrorCode`] if the code is unknown. The receiver ignores such an error (section
    /// 7 of Version Two).
    pub(super) fn get(reader: &mut Reader<'_>, version: Version) -> Result<Self> {
        let code = Reader::new(reader.rest()).u32()?;
        if version != Version::Two && code > 2 {
            return Err(Fault::BadErrorCode(code));
        }
        let error = Self::get_any(reader)?;
        error.check().map(|()| error)
    }

    /// Checks that a range of versions is not empty.
    fn check(&self) -> Result {
        match self {
            Self::Version { low, high } if low > high => Err(Fault::BadVersionRange),
            _ => Ok(()),
        }
    }

    /// Returns whether the peer can accept no more messages like the one that failed, so that the
    /// connection is useless (Version Two, 7.1.1 to 7.1.3).
    ///
    /// An error does not name the header type that it is about, and each header type is REQUIRED.
    pub(crate) const fn ends_connection(&self) -> bool {
        matches!(
            self,
            Self::Version { .. } | Self::VersionMismatch | Self::HeaderType
        )
    }
}

/// An error in place of a Reply, or about another message. Only a Responder sends it before Version
/// Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorHeader {
    /// The transaction ID of the faulty message.
    pub(crate) xid: u32,
    /// The version of that message, supported or not.
    pub(crate) version: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The error to report.
    pub(crate) error: RdmaError,
}

impl ErrorHeader {
    /// Writes the message to the front of `buf` and returns its size. `spoken` is the version of
    /// its sender.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::BadVersionRange`] if a range is empty,
    /// [`Fault::ZeroCredits`] if a version that counts Calls grants none.
    pub(crate) fn encode(&self, spoken: Version, buf: &mut [u8]) -> Result<usize> {
        if self.credits == 0 && spoken != Version::Two {
            return Err(Fault::ZeroCredits);
        }
        self.error.check()?;
        let mut writer = Writer::new(buf);
        Prefix {
            xid: self.xid,
            version: self.version,
            credits: self.credits,
            procedure: ERROR,
        }
        .put(&mut writer)?;
        self.error.put_any(&mut writer)?;
        Ok(writer.len())
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_errors)
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

    /// Reads an error of Version Two.
    fn get(bytes: &[u8]) -> Result<RdmaError> {
        RdmaError::get(&mut Reader::new(bytes), Version::Two)
    }

    /// Section 8.4: code points and arms.
    #[test]
    fn errors_look_as_in_the_draft() -> Result {
        for (error, words) in ALL {
            let bytes = Bytes::from_writer(|writer| error.put_any(writer))?;
            assert!(bytes.is_words(words));
            assert_eq!(get(bytes.get()), Ok(error));
            for len in 0..bytes.get().len() {
                assert_eq!(get(bytes.prefix(len)), Err(Fault::Truncated));
            }
        }
        Ok(())
    }

    /// Section 7: an unknown code is distinguished from a message that cannot be parsed.
    #[test]
    fn unknown_codes_are_told_apart() -> Result {
        for code in [0, 12, 99, 101, u32::MAX] {
            let bytes = Bytes::from_words(&[code])?;
            assert_eq!(get(bytes.get()), Err(Fault::BadErrorCode(code)));
        }
        let bytes = Bytes::from_words(&[1, 3, 2])?;
        assert_eq!(get(bytes.get()), Err(Fault::BadVersionRange));
        let empty = ErrorHeader {
            xid: 1,
            version: 2,
            credits: 1,
            error: RdmaError::Version { low: 3, high: 2 },
        };
        let encoded = empty.encode(Version::Two, &mut [0; 64]);
        assert_eq!(encoded, Err(Fault::BadVersionRange));
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
