// SPDX-License-Identifier: GPL-2.0

//! The layouts of all header types of the three protocols, as one table.
//!
//! Every message starts with the [`Prefix`](super::Prefix), the last word of which is the header
//! type. Its row says what follows: a word or none, the chunk lists in this order, and what is
//! behind them. Headers of RPC messages are decoded, encoded and measured by it, and all others are
//! decoded by it. Code that does the same in fewer steps, for a message without chunks or with one
//! ([`super::short`], [`super::sent`]), is compared with it by tests.
//!
//! Errors have the type 4 in all versions and a [table of their own](super::RdmaError). OPTIONAL
//! messages of 2016 are not about RPC messages, see [`option`](super::super::v2_2016::option).

use super::{
    Direction,
    Version,
    PREFIX_LEN, //
};
use crate::proto::prelude::*;

/// The word between the prefix and the chunk lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// There is none.
    Absent,
    /// The direction (draft-cel-nfsv4-rpcrdma-version-two-01, 4.2).
    Direction,
    /// The handle to invalidate (Version Two, 6.5).
    Invalidate,
    /// The number of octets of the RPC message that are still to come (Version Two, 6.6.2).
    Remaining,
}

/// What is behind the chunk lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// Nothing: the message has credits only.
    Nothing,
    /// Transport properties, and more of them in another message if this is false.
    Properties(bool),
    /// An RPC message, or the last part of one.
    Rpc,
    /// A part of an RPC message, but the last one.
    Part,
    /// Nothing: the RPC message is in a chunk.
    InChunk,
}

/// The layout of one header type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// The header type.
    pub(super) htype: u32,
    /// The direction, where the header type tells it.
    pub(super) direction: Option<Direction>,
    /// The word behind the prefix.
    pub(super) word: Word,
    /// The chunk lists, one bit each.
    lists: u32,
    /// What is behind them.
    pub(super) behind: Behind,
}

/// The chunk lists, in their order.
pub(super) mod list {
    /// The Call chunk of Version Two, in the form of a Read list.
    pub(in super::super) const CALL: u32 = 1;
    /// The Read list.
    pub(in super::super) const READ: u32 = 2;
    /// The Write list.
    pub(in super::super) const WRITE: u32 = 4;
    /// The Reply chunk.
    pub(in super::super) const REPLY: u32 = 8;
}

/// The lists of Version One.
const THREE: u32 = list::READ | list::WRITE | list::REPLY;

/// Defines the rows of one version, in the order of their types and without a gap.
macro_rules! rows {
    ($table:ident: $($name:ident = $htype:literal,
        $direction:expr, $word:ident, $lists:expr, $behind:expr;)*) => {
        $(const $name: Layout = Layout {
            htype: $htype,
            direction: $direction,
            word: Word::$word,
            lists: $lists,
            behind: $behind,
        };)*
        /// The rows of a version.
        static $table: &[Layout] = &[$($name),*];
    };
}

/// The direction of the types of Calls.
const C: Option<Direction> = Some(Direction::Call);
/// The direction of the types of Replies.
const R: Option<Direction> = Some(Direction::Reply);

rows! { ONE:
    MSG = 0, None, Absent, THREE, Behind::Rpc;
    NOMSG = 1, None, Absent, THREE, Behind::InChunk;
}

rows! { EARLIER:
    DIRECTED_MSG = 0, None, Direction, THREE, Behind::Rpc;
    DIRECTED_NOMSG = 1, None, Direction, THREE, Behind::InChunk;
}

rows! { TWO:
    GRANT = 5, None, Absent, 0, Behind::Nothing;
    CONNPROP_MIDDLE = 6, None, Absent, 0, Behind::Properties(false);
    CONNPROP_FINAL = 7, None, Absent, 0, Behind::Properties(true);
    CALL_EXTERNAL = 8, C, Invalidate, list::CALL | THREE, Behind::InChunk;
    CALL_MIDDLE = 9, C, Remaining, 0, Behind::Part;
    CALL_INLINE = 10, C, Invalidate, THREE, Behind::Rpc;
    REPLY_EXTERNAL = 11, R, Absent, list::WRITE | list::REPLY, Behind::InChunk;
    REPLY_MIDDLE = 12, R, Remaining, 0, Behind::Part;
    REPLY_INLINE = 13, R, Absent, list::WRITE, Behind::Rpc;
}

impl Layout {
    /// Returns the layout of a header type, if the version has it.
    #[inline]
    pub(super) fn of(version: Version, htype: u32) -> Option<&'static Self> {
        let rows = match version {
            Version::One => ONE,
            Version::Two => TWO,
            Version::Earlier => EARLIER,
        };
        let at = htype.checked_sub(rows.first()?.htype)?;
        rows.get(usize::try_from(at).ok()?)
    }

    /// Returns the layout of a header with an RPC message behind it, or, if it is `external`, with
    /// one in a chunk.
    #[inline]
    pub(super) const fn of_rpc(
        version: Version,
        direction: Direction,
        external: bool,
    ) -> &'static Self {
        match (version, direction, external) {
            (Version::One, _, false) => &MSG,
            (Version::One, _, true) => &NOMSG,
            (Version::Earlier, _, false) => &DIRECTED_MSG,
            (Version::Earlier, _, true) => &DIRECTED_NOMSG,
            (Version::Two, Direction::Call, false) => &CALL_INLINE,
            (Version::Two, Direction::Call, true) => &CALL_EXTERNAL,
            (Version::Two, Direction::Reply, false) => &REPLY_INLINE,
            (Version::Two, Direction::Reply, true) => &REPLY_EXTERNAL,
        }
    }

    /// Returns whether the header has a chunk list.
    #[inline]
    pub(super) const fn has(&self, list: u32) -> bool {
        self.lists & list != 0
    }

    /// Returns the size of a header without chunks, in octets. Each list has one word, which ends
    /// it or marks it "not present".
    pub(super) const fn len(&self) -> usize {
        let mut words = match self.word {
            Word::Absent => 0,
            Word::Direction | Word::Invalidate | Word::Remaining => 1_usize,
        };
        let mut lists = self.lists;
        while lists != 0 {
            words = words.saturating_add(1);
            lists &= lists.wrapping_sub(1);
        }
        PREFIX_LEN.saturating_add(words.saturating_mul(UNIT))
    }
}

/// Returns the direction of a header type of Version Two, which an error has as well; [`None`] if
/// the message is about the connection, or the type is not known.
pub(crate) fn direction_of(htype: u32) -> Option<Direction> {
    if htype == super::ERROR {
        return R;
    }
    Layout::of(Version::Two, htype)?.direction
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_layout)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// RFC 8166, section 4.2.4; section 6.1 of Version Two; section 4.2 of the draft of 2016.
    #[test]
    fn each_type_has_its_own_row() {
        for (version, types) in [
            (Version::One, 0..=1),
            (Version::Earlier, 0..=1),
            (Version::Two, 5..=13),
        ] {
            for htype in (0..32).chain([u32::MAX]) {
                let row = Layout::of(version, htype);
                assert_eq!(row.is_some(), types.contains(&htype));
                assert!(row.is_none_or(|row| row.htype == htype));
            }
        }
    }

    /// The rows by which messages are sent are those by which they are received.
    #[test]
    fn both_ways_to_a_row_agree() {
        for version in [Version::One, Version::Two, Version::Earlier] {
            for direction in [Direction::Call, Direction::Reply] {
                for external in [false, true] {
                    let row = Layout::of_rpc(version, direction, external);
                    assert_eq!(Layout::of(version, row.htype), Some(row));
                    assert!(row.direction.is_none_or(|told| told == direction));
                    let is_in_chunk = row.behind == Behind::InChunk;
                    assert_eq!(is_in_chunk, external);
                }
            }
        }
    }

    /// Sections 6.1 and 7 of Version Two.
    #[test]
    fn directions_are_those_of_the_types() {
        for (htype, direction) in [(3, None), (4, R), (5, None), (7, None), (14, None)] {
            assert_eq!(direction_of(htype), direction);
        }
        for (calls, replies) in (8..11).zip(11..14) {
            assert_eq!((direction_of(calls), direction_of(replies)), (C, R));
        }
    }
}
