// SPDX-License-Identifier: GPL-2.0

//! Reassembly of an RPC message from its parts.
//!
//! A part says how many octets of the message "remain to be sent" (6.3.6 and 6.3.9 of the draft).
//! That can be read in three ways: those of later parts, those of this part too, or also the data
//! that chunks move. A peer does not say which it means, and the type of the last part ends the
//! message anyway. So each is accepted, but nothing else: a number that fits none of them is wrong.

use super::super::v2::Direction;

/// The place of a part in the RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The offset of the part in octets.
    pub(crate) offset: u32,
    /// The size of the whole RPC message in octets, which is known with its last part. Before, the
    /// size that it may have at most.
    pub(crate) total: u32,
}

/// An RPC message of which some parts were received, but not the last one.
///
/// It only counts octets. The caller stores them.
///
/// # Invariants
///
/// One of `later` and `own` is known, and each that is known is above `received`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// The direction: Call or Reply.
    direction: Direction,
    /// The transaction ID.
    xid: u32,
    /// The number of octets received.
    received: u32,
    /// The size of the whole RPC message in octets, perhaps with the data that chunks move, if each
    /// part counts those after it; [`None`] if they do not.
    later: Option<u32>,
    /// The size of the whole RPC message in octets if each part counts itself; [`None`] if they do
    /// not.
    own: Option<u32>,
}

/// The least octets that follow a part: the last one has at least one word.
const LEAST: u32 = 4;

impl Assembly {
    /// Begins with the first part, which has `len` octets and announces `remaining` more.
    ///
    /// Returns `None` if the RPC message would be longer than `max`, or if too little remains.
    pub(crate) fn begin(
        direction: Direction,
        xid: u32,
        len: usize,
        remaining: u32,
        max: u32,
    ) -> Option<Self> {
        let received = u32::try_from(len).ok()?;
        let later = received
            .checked_add(remaining)
            .filter(|total| remaining >= LEAST && *total <= max);
        let own = Some(remaining).filter(|total| *total <= max && follows(*total, received));
        // INVARIANT: at least a word is still to come, whichever it is.
        (later.is_some() || own.is_some()).then_some(Self {
            direction,
            xid,
            received,
            later,
            own,
        })
    }

    /// Returns the place of the first part.
    pub(crate) fn first(&self) -> Placed {
        self.placed(0)
    }

    /// Returns the place of a part that is not the last one.
    fn placed(&self, offset: u32) -> Placed {
        let total = self.later.or(self.own).unwrap_or(self.received);
        Placed { offset, total }
    }

    /// Returns whether a part belongs to this RPC message.
    pub(crate) fn is_of(&self, direction: Direction, xid: u32) -> bool {
        self.direction == direction && self.xid == xid
    }

    /// Returns whether this is a Call or a Reply.
    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the transaction ID.
    pub(crate) const fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the number of octets received.
    pub(crate) const fn received(&self) -> u32 {
        self.received
    }

    /// Adds a part that is not the last one. Returns `None` if it does not continue what was
    /// received.
    pub(crate) fn middle(&mut self, len: usize, remaining: u32) -> Option<Placed> {
        let (offset, end) = self.place(len)?;
        let all = end.checked_add(remaining);
        let later = self
            .later
            .filter(|total| remaining >= LEAST && Some(*total) == all);
        let own = self
            .own
            .filter(|total| follows(*total, end) && total.checked_sub(offset) == Some(remaining));
        if later.is_none() && own.is_none() {
            return None;
        }
        // INVARIANT: at least a word is still to come, whichever it is.
        let placed = self.placed(offset);
        self.later = later;
        self.own = own;
        self.received = end;
        Some(placed)
    }

    /// Returns the place of the last part, or `None` if it is not exactly the missing rest. `moved`
    /// are the octets of the data items that its chunks move, without and with XDR padding.
    pub(crate) fn last(&self, len: usize, moved: [u32; 2]) -> Option<Placed> {
        let (offset, end) = self.place(len)?;
        let is_later = self.later.is_some_and(|total| {
            let mut rests = [0].iter().chain(&moved);
            rests.any(|rest| end.checked_add(*rest) == Some(total))
        });
        (is_later || self.own == Some(end)).then_some(Placed { offset, total: end })
    }

    /// Returns the offsets at which `len` more octets begin and end.
    fn place(&self, len: usize) -> Option<(u32, u32)> {
        let end = self.received.checked_add(u32::try_from(len).ok()?)?;
        Some((self.received, end))
    }
}

/// Returns whether enough is left of `total` octets behind the first `end` ones.
fn follows(total: u32, end: u32) -> bool {
    total.checked_sub(end).is_some_and(|rest| rest >= LEAST)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_assembly)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::error::{
            Fault,
            Result, //
        },
        *, //
    };

    /// The octets of a message without chunks.
    const NOTHING: [u32; 2] = [0; 2];

    /// Returns an assembly with the first 100 octets of a Call of 300.
    fn begun() -> Result<Assembly> {
        Assembly::begin(Direction::Call, 7, 100, 200, 1000).ok_or(Fault::NoPayload)
    }

    /// Section 6.3.6: `rdma_remaining` is what follows.
    #[test]
    fn parts_are_placed_one_after_the_other() -> Result {
        let mut assembly = begun()?;
        assert_eq!(assembly.xid(), 7);
        assert_eq!(assembly.direction(), Direction::Call);
        for (len, remaining, offset) in [(100, 100, 100), (96, 4, 200)] {
            let placed = Placed { offset, total: 300 };
            assert_eq!(assembly.middle(len, remaining), Some(placed));
        }
        let placed = Placed {
            offset: 296,
            total: 300,
        };
        assert_eq!(assembly.last(4, NOTHING), Some(placed));
        Ok(())
    }

    /// Section 6.3.6: the octets of the part itself remain to be sent, too, when it is sent.
    #[test]
    fn a_part_may_count_itself() -> Result {
        let begin = Assembly::begin(Direction::Call, 7, 100, 300, 300);
        let mut assembly = begin.ok_or(Fault::NoPayload)?;
        let placed = Placed {
            offset: 100,
            total: 300,
        };
        assert_eq!(assembly.middle(120, 200), Some(placed));
        // All that remains would be in this part.
        assert_eq!(assembly.middle(80, 80), None);
        assert_eq!(assembly.middle(77, 80), None);
        let placed = Placed {
            offset: 220,
            total: 300,
        };
        assert_eq!(assembly.last(80, NOTHING), Some(placed));
        for len in [76, 79, 81, 180] {
            assert_eq!(assembly.last(len, NOTHING), None);
        }
        Ok(())
    }

    /// Sections 4.4 and 6.3.6: the data in chunks are a part of the RPC message.
    #[test]
    fn a_part_may_count_what_chunks_move() -> Result {
        for (len, total, moved) in [
            (200, 300, [0, 0]),
            (158, 258, [42, 44]),
            (156, 256, [42, 44]),
        ] {
            let placed = Placed { offset: 100, total };
            assert_eq!(begun()?.last(len, moved), Some(placed));
        }
        assert_eq!(begun()?.last(157, [42, 44]), None);
        assert_eq!(begun()?.last(158, NOTHING), None);
        Ok(())
    }

    /// The parts of an unfinished sequence are not counted for another RPC message.
    #[test]
    fn parts_belong_to_one_message() -> Result {
        let assembly = begun()?;
        assert!(assembly.is_of(Direction::Call, 7));
        assert!(!assembly.is_of(Direction::Reply, 7));
        assert!(!assembly.is_of(Direction::Call, 8));
        Ok(())
    }

    /// Section 7.1.4: exactly the announced number of octets must follow, whatever it counts.
    #[test]
    fn lies_about_the_rest_are_noticed() -> Result {
        for (len, remaining) in [
            (100, 99),
            (100, 101),
            (100, 0),
            (200, 0),
            (198, 2),
            (201, u32::MAX),
            (4, 200),
            (usize::MAX, 4),
        ] {
            let mut assembly = begun()?;
            assert_eq!(assembly.middle(len, remaining), None);
            // The part was not counted.
            assert_eq!(assembly, begun()?);
        }
        for len in [0, 4, 199, 201, usize::MAX] {
            assert_eq!(begun()?.last(len, NOTHING), None);
        }
        Ok(())
    }

    /// The size is known from the first part, and is limited.
    #[test]
    fn size_is_bounded_before_anything_is_kept() {
        let begin = |len, remaining| Assembly::begin(Direction::Reply, 7, len, remaining, 1000);
        assert!(begin(500, 500).is_some());
        assert!(begin(500, 1000).is_some());
        assert!(begin(500, 1001).is_none());
        assert!(begin(1, 1000).is_some());
        assert!(begin(997, 1000).is_none());
        assert!(begin(4, u32::MAX).is_none());
        assert!(begin(usize::MAX, 4).is_none());
        // A sequence needs at least a word for its last part.
        for remaining in 0..4 {
            assert!(begin(500, remaining).is_none());
        }
    }
}
