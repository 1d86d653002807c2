// SPDX-License-Identifier: GPL-2.0

//! Transport properties (draft-ietf-nfsv4-rpcrdma-version-two-07, section 5).
//!
//! One table describes all properties. The types, the defaults, the encoder and the decoder are
//! generated from it.

use super::xdr::pad_len;
use crate::proto::prelude::*;
use core::ffi::CStr;

/// Generates all code that depends on the table of properties.
macro_rules! properties {
    (
        words {$(
            $(#[$word_doc:meta])*
            $word_code:literal $word:ident = $default:expr;
        )*}
        opaques {$(
            $(#[$opaque_doc:meta])*
            $opaque_code:literal $opaque:ident;
        )*}
    ) => {
        /// The capabilities of one end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct Properties {
            $($(#[$word_doc])* pub(crate) $word: u32,)*
        }

        impl Properties {
            /// The values for an end that advertises nothing (5.2).
            pub(crate) const DEFAULT: Self = Self { $($word: $default,)* };

            /// Replaces the values that `told` contains.
            pub(crate) fn apply(&mut self, told: &Advertised<'_>) {
                $(self.$word = told.$word.unwrap_or(self.$word);)*
            }
        }

        /// The properties that one message advertises: a `rpcrdma2_propset`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Advertised<'a> {
            $($(#[$word_doc])* pub(crate) $word: Option<u32>,)*
            $($(#[$opaque_doc])* pub(crate) $opaque: Option<&'a [u8]>,)*
        }

        impl<'a> Advertised<'a> {
            /// The empty set.
            pub(crate) const NOTHING: Self = Self {
                $($word: None,)*
                $($opaque: None,)*
            };

            /// Makes a set of all capabilities of one end.
            pub(crate) const fn all(properties: &Properties) -> Self {
                Self {
                    $($word: Some(properties.$word),)*
                    ..Self::NOTHING
                }
            }

            /// Stores the value of one property. Skips an unknown property.
            fn take(&mut self, which: u32, value: &'a [u8]) -> Result {
                match which {
                    $($word_code => self.$word = Some(match value {
                        // An empty value stands for the default (5.1).
                        [] => $default,
                        value => word(value).ok_or(Fault::BadProperty(which))?,
                    }),)*
                    $($opaque_code => self.$opaque = match value {
                        [] => None,
                        value => Some(opaque(value).ok_or(Fault::BadProperty(which))?),
                    },)*
                    _ => {}
                }
                Ok(())
            }

            /// Returns the number of properties in the set.
            fn count(&self) -> u32 {
                let mut count = 0_u32;
                $(count = count.saturating_add(u32::from(self.$word.is_some()));)*
                $(count = count.saturating_add(u32::from(self.$opaque.is_some()));)*
                count
            }

            /// Writes the set.
            pub(crate) fn put(&self, writer: &mut Writer<'_>) -> Result {
                writer.u32(self.count())?;
                $(if let Some(value) = self.$word {
                    writer.u32($word_code)?;
                    writer.opaque(&value.to_be_bytes())?;
                })*
                $(if let Some(value) = self.$opaque {
                    writer.u32($opaque_code)?;
                    put_opaque(writer, value)?;
                })*
                Ok(())
            }
        }
    };
}

properties! {
    words {
        /// The largest message in octets that is sent (5.2.1).
        1 send_size = 4096;
        /// The size in octets of the smallest Receive buffer (5.2.2).
        2 receive_size = 4096;
        /// The length in octets of the largest segment that is sent or received (5.2.3).
        3 segment_size = 1 << 20;
        /// The largest number of segments in the header of a Call (5.2.4).
        4 segment_count = 16;
        /// The level of support for the reverse direction in a client, see [`ReverseLevel`]
        /// (5.2.5).
        5 reverse = ReverseLevel::NONE;
    }
    opaques {
        /// Host authentication material (5.2.6).
        6 host_auth;
    }
}

impl<'a> Advertised<'a> {
    /// Reads a set and checks all of it. If a property is present twice, the last value counts.
    ///
    /// # Errors
    ///
    /// [`Fault::BadProperty`] if a value is longer than the message or not of its property's type
    /// (5.1), [`Fault::Truncated`] if the message ends anywhere else.
    pub(crate) fn get(reader: &mut Reader<'a>) -> Result<Self> {
        let mut told = Self::NOTHING;
        let count = reader.u32()?;
        // The count may be large, but each turn consumes octets of the message.
        for _ in 0..count {
            let which = reader.u32()?;
            let len = reader.u32()?;
            let value = usize::try_from(len)
                .ok()
                .and_then(|len| reader.opaque_fixed(len).ok())
                .ok_or(Fault::BadProperty(which))?;
            told.take(which, value)?;
        }
        Ok(told)
    }

    /// Returns whether the set has no known property.
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::NOTHING
    }
}

/// Decodes the value of a property that is one word.
fn word(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Decodes the value of an opaque property, which contains its length once more.
fn opaque(value: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(value);
    let item = reader.opaque(usize::MAX).ok()?;
    reader.is_empty().then_some(item)
}

/// Writes the value of an opaque property.
fn put_opaque(writer: &mut Writer<'_>, value: &[u8]) -> Result {
    let len = [UNIT, value.len(), pad_len(value.len())]
        .into_iter()
        .try_fold(0, usize::checked_add)
        .ok_or(Fault::NoSpace)?;
    writer.u32(u32::try_from(len).map_err(|_| Fault::NoSpace)?)?;
    writer.opaque(value)
}

/// The level of support for the reverse direction in a client (5.2.5). Each level includes those
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ReverseLevel {
    /// No support.
    None,
    /// Messages in one piece, without chunks.
    Simple,
    /// Messages without chunks, in one or more pieces.
    Continued,
    /// All messages.
    General,
}

impl ReverseLevel {
    /// The code of [`Self::None`].
    pub(crate) const NONE: u32 = 0;
    /// The code of [`Self::Simple`].
    pub(crate) const SIMPLE: u32 = 1;
    /// The code of [`Self::Continued`].
    pub(crate) const CONTINUED: u32 = 2;
    /// The code of [`Self::General`].
    pub(crate) const GENERAL: u32 = 3;

    /// Returns the level of a code. An undefined code is no support, since it promises nothing.
    pub(crate) const fn from_code(code: u32) -> Self {
        match code {
            Self::SIMPLE => Self::Simple,
            Self::CONTINUED => Self::Continued,
            Self::GENERAL => Self::General,
            _ => Self::None,
        }
    }

    /// Returns the code of the level.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::None => Self::NONE,
            Self::Simple => Self::SIMPLE,
            Self::Continued => Self::CONTINUED,
            Self::General => Self::GENERAL,
        }
    }

    /// Returns the name of the level, for display.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::None => c"none",
            Self::Simple => c"simple",
            Self::Continued => c"continued",
            Self::General => c"general",
        }
    }
}

/// The terms of a connection, seen from one end: the capabilities that both ends share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AgreedTerms {
    /// The largest message that we send, in octets.
    pub(crate) send_size: u32,
    /// The largest message that the peer sends, in octets.
    pub(crate) receive_size: u32,
    /// The largest segment in our Calls, in octets.
    pub(crate) segment_size: u32,
    /// The largest number of segments in the header of our Calls.
    pub(crate) segment_count: u32,
}

impl AgreedTerms {
    /// Combines our properties and the peer's.
    pub(crate) fn new(own: &Properties, peer: &Properties) -> Self {
        Self {
            send_size: own.send_size.min(peer.receive_size),
            receive_size: own.receive_size.min(peer.send_size),
            segment_size: own.segment_size.min(peer.segment_size),
            segment_count: own.segment_count.min(peer.segment_count),
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_props)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::testing::Bytes,
        *, //
    };

    /// Applies a set, made of words, to the defaults.
    fn applied(words: &[u32]) -> Result<Properties> {
        let bytes = Bytes::from_words(words)?;
        let mut properties = Properties::DEFAULT;
        properties.apply(&Advertised::get(&mut Reader::new(bytes.get()))?);
        Ok(properties)
    }

    /// Table 1 in section 5.2.
    #[test]
    fn defaults_are_those_of_the_draft() {
        let default = Properties {
            send_size: 4096,
            receive_size: 4096,
            segment_size: 1_048_576,
            segment_count: 16,
            reverse: 0,
        };
        assert_eq!(Properties::DEFAULT, default);
        assert_eq!(applied(&[0]), Ok(default));
    }

    #[test]
    fn set_looks_as_in_the_draft() -> Result {
        let told = Advertised {
            receive_size: Some(8192),
            reverse: Some(3),
            host_auth: Some(b"abcde"),
            ..Advertised::NOTHING
        };
        let bytes = Bytes::from_writer(|writer| told.put(writer))?;
        assert!(bytes.is_words(&[3, 2, 4, 8192, 5, 4, 3, 6, 12, 5, 0x6162_6364, 0x6500_0000]));
        assert_eq!(Advertised::get(&mut Reader::new(bytes.get())), Ok(told));
        let bytes = Bytes::from_writer(|writer| Advertised::NOTHING.put(writer))?;
        assert!(bytes.is_words(&[0]));
        Ok(())
    }

    /// Section 5.1: no particular order.
    #[test]
    fn order_does_not_matter() -> Result {
        let expected = Properties {
            send_size: 1,
            receive_size: 2,
            segment_size: 3,
            segment_count: 4,
            reverse: 5,
        };
        let rows = [[1, 4, 1], [2, 4, 2], [3, 4, 3], [4, 4, 4], [5, 4, 5]];
        for first in 0..rows.len() {
            let bytes = Bytes::from_writer(|writer| {
                writer.u32(5)?;
                rows.iter()
                    .cycle()
                    .skip(first)
                    .take(5)
                    .flatten()
                    .try_for_each(|word| writer.u32(*word))
            })?;
            let mut properties = Properties::DEFAULT;
            properties.apply(&Advertised::get(&mut Reader::new(bytes.get()))?);
            assert_eq!(properties, expected);
        }
        let twice = applied(&[2, 2, 4, 100, 2, 4, 200])?;
        assert_eq!(twice.receive_size, 200);
        Ok(())
    }

    /// Section 5.1: an unknown property is skipped, without an error.
    #[test]
    fn unknown_properties_are_skipped() -> Result {
        for which in [0, 7, 1000, u32::MAX] {
            let words = [3, which, 5, 0, 0, 2, 4, 8192, which, 0];
            assert_eq!(applied(&words)?.receive_size, 8192);
        }
        assert_eq!(applied(&[1, 99, 8, 1, 2]), Ok(Properties::DEFAULT));
        Ok(())
    }

    /// Section 5.1: an empty value is the default.
    #[test]
    fn empty_values_are_defaults() -> Result {
        let mut properties = Properties {
            send_size: 1,
            receive_size: 1,
            segment_size: 1,
            segment_count: 1,
            reverse: 1,
        };
        let bytes = Bytes::from_words(&[6, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0])?;
        let told = Advertised::get(&mut Reader::new(bytes.get()))?;
        properties.apply(&told);
        assert_eq!(properties, Properties::DEFAULT);
        assert_eq!(told.host_auth, None);
        Ok(())
    }

    /// Section 5.1: a value is not of the type of its known property.
    #[test]
    fn malformed_values_are_refused() {
        for which in 1..=5 {
            // The value is too short or too long.
            for len in [1, 2, 3, 5, 8] {
                assert_eq!(
                    applied(&[1, which, len, 9, 9]),
                    Err(Fault::BadProperty(which))
                );
            }
        }
        for words in [
            &[1, 6, 4, 1][..],
            &[1, 6, 8, 5, 0],
            &[1, 6, 12, 4, 0, 0],
            &[1, 6, 3, 0],
            &[1, 6, 4, u32::MAX],
        ] {
            assert_eq!(applied(words), Err(Fault::BadProperty(6)));
        }
    }

    /// Section 5.1: a value is longer than the message, with a known or an unknown property.
    #[test]
    fn values_end_within_the_message() {
        for which in [2, 6, 99] {
            for len in [5, 0x7fff_ffff, u32::MAX] {
                assert_eq!(applied(&[1, which, len, 9]), Err(Fault::BadProperty(which)));
            }
        }
        for words in [&[1][..], &[1, 2], &[2, 2, 4, 9], &[u32::MAX, 2, 4, 9]] {
            assert_eq!(applied(words), Err(Fault::Truncated));
        }
    }

    /// Section 5.2.5.
    #[test]
    fn levels_are_ordered() {
        assert!(ReverseLevel::None < ReverseLevel::Simple);
        assert!(ReverseLevel::Simple < ReverseLevel::Continued);
        assert!(ReverseLevel::Continued < ReverseLevel::General);
        for (code, level) in [
            (0, ReverseLevel::None),
            (1, ReverseLevel::Simple),
            (2, ReverseLevel::Continued),
            (3, ReverseLevel::General),
            (4, ReverseLevel::None),
            (u32::MAX, ReverseLevel::None),
        ] {
            assert_eq!(ReverseLevel::from_code(code), level);
            // What has no meaning is none.
            assert_eq!(level.code(), if code < 4 { code } else { 0 });
        }
    }

    #[test]
    fn terms_are_what_both_can_do() {
        let own = Properties {
            send_size: 4096,
            receive_size: 16384,
            segment_size: 1 << 20,
            segment_count: 64,
            reverse: 0,
        };
        let peer = Properties {
            send_size: 8192,
            receive_size: 65536,
            segment_size: 1 << 18,
            segment_count: 128,
            reverse: 3,
        };
        let terms = AgreedTerms {
            send_size: 4096,
            receive_size: 8192,
            segment_size: 1 << 18,
            segment_count: 64,
        };
        assert_eq!(AgreedTerms::new(&own, &peer), terms);
        let defaults = AgreedTerms::new(&Properties::DEFAULT, &Properties::DEFAULT);
        // Section 4.2.2: both inline thresholds are 4096 octets.
        assert_eq!((defaults.send_size, defaults.receive_size), (4096, 4096));
    }
}
