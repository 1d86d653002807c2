// SPDX-License-Identifier: GPL-2.0

//! The rules that distinguish the protocols that a connection can speak, as a table.
//!
//! A protocol has a row here, and codecs for its headers ([`v1`], [`v2`]). Other rooms ask for a
//! rule, not for a version.

use super::{
    message::Version,
    v1,
    v2, //
};

/// The rules of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The version number in its headers.
    pub(crate) number: u32,
    /// The document that describes it, as trace events name it.
    pub(crate) document: &'static core::ffi::CStr,
    /// Set if the ends tell each other their properties in messages, and may send messages of
    /// their own for that, for credits and for errors (section 5 of the draft). If not, what was
    /// told when the connection was made is all (RFC 8797).
    pub(crate) has_properties: bool,
    /// Set if credits count messages of all kinds, for both directions of Calls together (section
    /// 4.2.1 of the draft). If not, they count Calls without a Reply, each direction for itself
    /// (RFC 8166, 3.3.1; RFC 8167, 4.1).
    pub(crate) counts_messages: bool,
    /// Set if Calls against the direction of the connection may have chunks, as far as the
    /// protocol is concerned (RFC 8167, 5.3; section 5.2.5 of the draft).
    pub(crate) has_reverse_chunks: bool,
}

impl Version {
    /// Returns what holds for this version.
    pub(crate) const fn rules(self) -> &'static Rules {
        match self {
            Self::One => &Rules {
                number: v1::VERSION,
                document: c"rfc8166",
                has_properties: false,
                counts_messages: false,
                has_reverse_chunks: false,
            },
            Self::Two => &Rules {
                number: v2::VERSION,
                document: c"draft-07",
                has_properties: true,
                counts_messages: true,
                has_reverse_chunks: true,
            },
        }
    }

    /// Returns the version number.
    pub(crate) const fn number(self) -> u32 {
        self.rules().number
    }
}
