// SPDX-License-Identifier: GPL-2.0

//! The rules that distinguish the protocols that a connection can speak, as a table.
//!
//! A protocol has a row here, and codecs for its headers ([`v1`], [`v2`], [`v2_2016`]). Other rooms
//! ask for a rule, not for a version.

use super::{
    message::Version,
    session::Role,
    v1,
    v2::{
        self,
        Direction, //
    },
    v2_2016, //
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
    /// Set if RPC messages may come in parts (section 4.5 of the draft), and if errors say what was
    /// wrong with one (section 7).
    pub(crate) has_parts: bool,
    /// Set if the ends may tell changes of their properties at any time, by OPTIONAL messages
    /// (draft-dnoveck-nfsv4-rpcrdma-xcharext-03).
    pub(crate) has_optional: bool,
    /// Set if a Reply chunk is used only where the Reply does not fit the message (section 6.6.4 of
    /// the draft). If not, it is used if it is there (RFC 8166, 4.4.3).
    pub(crate) spares_reply_chunk: bool,
    /// Set if Calls against the direction of the connection may have chunks, as far as the
    /// protocol is concerned (RFC 8167, 5.3; section 5.2.5 of the draft).
    pub(crate) has_reverse_chunks: bool,
}

impl Rules {
    /// Returns whether the end of a connection with this role may send RPC messages in a direction
    /// without the state of the connection: they take no credit that it counts, nothing may have
    /// changed for them, and nothing is known by them. A server's own Calls are counted, since it
    /// checks that no more Replies come than that.
    #[inline(always)]
    pub(crate) const fn is_free(&self, role: Role, direction: Direction) -> bool {
        !self.counts_messages
            && match direction {
                Direction::Call => matches!(role, Role::Client),
                Direction::Reply => !self.has_optional,
            }
    }
}

impl Version {
    /// Returns what holds for this version. By value: a rule that is asked for is then known
    /// without a look into memory, and the other ones are not even made.
    #[inline(always)]
    pub(crate) const fn rules(self) -> Rules {
        match self {
            Self::One => Rules {
                number: v1::VERSION,
                document: c"rfc8166",
                has_properties: false,
                counts_messages: false,
                has_parts: false,
                has_optional: false,
                spares_reply_chunk: false,
                has_reverse_chunks: false,
            },
            Self::Two => Rules {
                number: v2::VERSION,
                document: c"draft-07",
                has_properties: true,
                counts_messages: true,
                has_parts: true,
                has_optional: false,
                spares_reply_chunk: true,
                has_reverse_chunks: true,
            },
            Self::Earlier => Rules {
                number: v2_2016::VERSION,
                document: c"draft-2016",
                has_properties: true,
                counts_messages: false,
                has_parts: false,
                has_optional: true,
                spares_reply_chunk: true,
                has_reverse_chunks: true,
            },
        }
    }

    /// Returns a code that no other version has, which is not zero.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Earlier => 3,
        }
    }

    /// Returns the version with a code, if there is one.
    #[inline]
    pub(crate) const fn of_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Earlier),
            _ => None,
        }
    }

    /// Returns the version number. Two protocols have the same one.
    pub(crate) const fn number(self) -> u32 {
        self.rules().number
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_rules)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// RFC 8166, section 4.2.1, and section 4.1 of the draft: both protocols of Version Two have
    /// the same number, and so they need codes that tell them apart. Zero stands for none.
    #[test]
    fn a_code_means_one_version() {
        for (version, number) in [(Version::One, 1), (Version::Two, 2), (Version::Earlier, 2)] {
            assert_eq!(version.number(), number);
            assert_eq!(Version::of_code(version.code()), Some(version));
        }
        assert_eq!(Version::of_code(0), None);
        assert_eq!(Version::of_code(4), None);
    }

    /// A client's Calls of Version One are what there is most of: they take no lock.
    #[test]
    fn what_nobody_counts_needs_no_state() {
        use Direction::{Call, Reply};
        for (version, role, direction, is_free) in [
            (Version::One, Role::Client, Call, true),
            (Version::One, Role::Client, Reply, true),
            (Version::One, Role::Server, Call, false),
            (Version::One, Role::Server, Reply, true),
            (Version::Earlier, Role::Client, Call, true),
            (Version::Earlier, Role::Client, Reply, false),
            (Version::Earlier, Role::Server, Call, false),
            (Version::Earlier, Role::Server, Reply, false),
            (Version::Two, Role::Client, Call, false),
            (Version::Two, Role::Server, Reply, false),
        ] {
            assert_eq!(version.rules().is_free(role, direction), is_free);
        }
    }
}
