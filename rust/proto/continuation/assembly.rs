// SPDX-License-Identifier: GPL-2.0

//! Reassembly of an RPC message from its parts.

use super::super::v2::Direction;

/// The place of a part in the RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// The offset of the part in octets.
    pub(crate) offset: u32,
    /// The size of the whole RPC message in octets.
    pub(crate) total: u32,
}

/// An RPC message of which some parts were received, but not the last one.
///
/// It only counts octets. The caller stores them.
///
/// # Invariants
///
/// `received < total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Assembly {
    /// The direction: Call or Reply.
    direction: Direction,
    /// The transaction ID.
    xid: u32,
    /// The number of octets received.
    received: u32,
    /// The size of the whole RPC message in octets.
    total: u32,
}

impl Assembly {
    /// Begins with the first part, which has `len` octets and announces `remaining` more.
    ///
    /// Returns `None` if the RPC message would be longer than `max`, or if too little remains: the
    /// last part has at least one word.
    pub(crate) fn begin(
        direction: Direction,
        xid: u32,
        len: usize,
        remaining: u32,
        max: u32,
    ) -> Option<Self> {
        let received = u32::try_from(len).ok()?;
        let total = received
            .checked_add(remaining)
            .filter(|total| *total <= max)?;
        // INVARIANT: at least a word is still to come.
        (remaining >= 4).then_some(Self {
            direction,
            xid,
            received,
            total,
        })
    }

    /// Returns the place of the first part.
    pub(crate) const fn first(&self) -> Placed {
        Placed {
            offset: 0,
            total: self.total,
        }
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
        if remaining < 4 || end.checked_add(remaining) != Some(self.total) {
            return None;
        }
        // INVARIANT: `remaining` is at least 4, so `end` is below `total`.
        self.received = end;
        Some(Placed {
            offset,
            total: self.total,
        })
    }

    /// Returns the place of the last part, or `None` if it is not exactly the missing rest.
    pub(crate) fn last(&self, len: usize) -> Option<Placed> {
        let (offset, end) = self.place(len)?;
        (end == self.total).then_some(Placed {
            offset,
            total: self.total,
        })
    }

    /// Returns the offsets at which `len` more octets begin and end.
    fn place(&self, len: usize) -> Option<(u32, u32)> {
        let end = self.received.checked_add(u32::try_from(len).ok()?)?;
        Some((self.received, end))
    }
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
        assert_eq!(assembly.last(4), Some(placed));
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

    /// Section 7.1.4: exactly the announced number of octets must follow.
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
            assert_eq!(begun()?.last(len), None);
        }
        Ok(())
    }

    /// The size is known from the first part, and is limited.
    #[test]
    fn size_is_bounded_before_anything_is_kept() {
        let begin = |len, remaining| Assembly::begin(Direction::Reply, 7, len, remaining, 1000);
        assert!(begin(500, 500).is_some());
        assert!(begin(500, 501).is_none());
        assert!(begin(4, u32::MAX).is_none());
        assert!(begin(usize::MAX, 4).is_none());
        // A sequence needs at least a word for its last part.
        for remaining in 0..4 {
            assert!(begin(500, remaining).is_none());
        }
    }
}
