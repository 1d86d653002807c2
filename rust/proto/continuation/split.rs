// SPDX-License-Identifier: GPL-2.0

//! Splitting an RPC message into parts.

use super::super::v2::MIDDLE_LEN;
use crate::proto::prelude::*;

/// The division of an RPC message into parts.
///
/// # Invariants
///
/// - The sizes of `middles` parts, all but the last of `middle_max` octets, and of a final one of
///   `last_len` add up to `total`.
/// - All sizes are multiples of four, except that of the final part if `total` is not. None is
///   zero.
/// - `middle_max` is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// The size of the RPC message in octets.
    total: u32,
    /// The number of parts with a MIDDLE header.
    middles: u32,
    /// The size in octets of each of these parts but the last.
    middle_max: u32,
    /// The size of the final part in octets.
    last_len: u32,
}

/// One part of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The offset of the part in the RPC message, in octets.
    pub(crate) offset: u32,
    /// The size of the part in octets.
    pub(crate) len: u32,
    /// The number of octets after this part: the `rdma_remaining` field. It is zero in the final
    /// part, which has no such field.
    pub(crate) remaining: u32,
}

impl Part {
    /// Returns whether this is the final part, which has the INLINE header.
    pub(crate) const fn is_last(&self) -> bool {
        self.remaining == 0
    }
}

impl Split {
    /// Splits an RPC message of `total` octets into as few parts as possible.
    ///
    /// `last_header` is the size of the INLINE header, `threshold` that of the largest message,
    /// both in octets.
    ///
    /// # Errors
    ///
    /// [`Fault::NoPayload`] for an RPC message of less than a word, [`Fault::NoSpace`] if headers
    /// leave no room for anything.
    pub(crate) fn new(total: u32, last_header: usize, threshold: u32) -> Result<Self> {
        /// The room that the smallest final part of any RPC message needs, in octets.
        const LEAST: u32 = 8;

        if total < 4 {
            return Err(Fault::NoPayload);
        }
        let room = |header: usize| -> Result<u32> {
            let header = u32::try_from(header).map_err(|_| Fault::NoSpace)?;
            threshold.checked_sub(header).ok_or(Fault::NoSpace)
        };
        let last_max = room(last_header)?;
        if total <= last_max {
            return Ok(Self {
                total,
                middles: 0,
                middle_max: LEAST,
                last_len: total,
            });
        }
        let middle_max = room(MIDDLE_LEN)? & !3;
        if last_max < LEAST || middle_max < LEAST {
            return Err(Fault::NoSpace);
        }

        // The final part carries as much as possible. It has at least one word, plus the octets by
        // which `total` exceeds whole words. `total` is larger than `last_max`, so nothing
        // underflows.
        let beyond = total.saturating_sub(last_max);
        let middles = beyond.div_ceil(middle_max);
        let full = middles.saturating_sub(1).saturating_mul(middle_max);
        let rest = total.saturating_sub(full);
        let least = 4_u32.saturating_add(total & 3);
        let last_middle = middle_max.min(rest.saturating_sub(least));
        // INVARIANT: `rest` is more than `last_max`, which is at least 8, and `least` is at most 7.
        // So at least a whole word is left for the last MIDDLE. The final part gets `least` or, if
        // the last MIDDLE is full, at most `last_max` by the choice of `middles`.
        Ok(Self {
            total,
            middles,
            middle_max,
            last_len: rest.saturating_sub(last_middle),
        })
    }

    /// Returns the number of parts. Each of them takes a credit.
    pub(crate) const fn len(&self) -> u32 {
        self.middles.saturating_add(1)
    }

    /// Returns the parts in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part> {
        let split = *self;
        let middle_end = split.total.saturating_sub(split.last_len);
        (0..split.len()).map(move |index| {
            let offset = index.saturating_mul(split.middle_max).min(middle_end);
            let len = if index == split.middles {
                split.last_len
            } else {
                middle_end.saturating_sub(offset).min(split.middle_max)
            };
            Part {
                offset,
                len,
                remaining: split.total.saturating_sub(offset).saturating_sub(len),
            }
        })
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_split)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// Splits and checks that the parts are in order, fit, and add up. Returns their number.
    fn count(total: u32, last_header: usize, threshold: u32) -> Result<u32> {
        let split = Split::new(total, last_header, threshold)?;
        let mut end = 0_u32;
        for part in split.parts() {
            let header = if part.is_last() {
                last_header
            } else {
                MIDDLE_LEN
            };
            let header = u32::try_from(header).map_err(|_| Fault::NoSpace)?;
            let after = end.saturating_add(part.len);
            let good = part.offset == end
                && part.len >= 4
                && part.len.saturating_add(header) <= threshold
                && after.saturating_add(part.remaining) == total
                && (part.is_last() || part.len & 3 == 0);
            if !good {
                return Err(Fault::BadVersionRange);
            }
            end = after;
        }
        if end != total || split.parts().filter(Part::is_last).count() != 1 {
            return Err(Fault::ChunkMismatch);
        }
        u32::try_from(split.parts().count()).map_err(|_| Fault::NoSpace)
    }

    /// Section 6.6.1: an RPC message that fits into one message is not split.
    #[test]
    fn what_fits_stays_whole() {
        assert_eq!(count(4096 - 32, 32, 4096), Ok(1));
        assert_eq!(count(4, 32, 4096), Ok(1));
        assert_eq!(count(4096 - 32 + 1, 32, 4096), Ok(2));
        let whole = Split::new(100, 32, 4096).map(|split| split.parts().next());
        assert_eq!(
            whole,
            Ok(Some(Part {
                offset: 0,
                len: 100,
                remaining: 0
            }))
        );
    }

    /// A MIDDLE header leaves 4076 octets of 4096, an INLINE header of 32 leaves 4064.
    #[test]
    fn as_few_parts_as_possible() {
        for (total, parts) in [
            (4064 + 4076, 2),
            (4064 + 4076 + 1, 3),
            (4064 + 4 * 4076, 5),
            (4064 + 4 * 4076 + 4, 6),
            (65536, 17),
            (1 << 20, 258),
        ] {
            assert_eq!(count(total, 32, 4096), Ok(parts));
        }
    }

    /// Every length around the points where another part begins.
    #[test]
    fn all_lengths_add_up() -> Result {
        for threshold in [28, 29, 30, 31, 32, 33, 48, 64] {
            for last_header in [16, 20] {
                for total in 4..200 {
                    let parts = count(total, last_header, threshold)?;
                    assert_eq!(Split::new(total, last_header, threshold)?.len(), parts);
                }
            }
        }
        count(u32::MAX, 32, 4096)?;
        Ok(())
    }

    #[test]
    fn what_cannot_be_split_is_refused() {
        for total in 0..4 {
            assert_eq!(Split::new(total, 32, 4096), Err(Fault::NoPayload));
        }
        // The INLINE header leaves no room, nor does a MIDDLE header.
        assert_eq!(Split::new(100, 4097, 4096), Err(Fault::NoSpace));
        assert_eq!(Split::new(100, 4090, 4096), Err(Fault::NoSpace));
        assert_eq!(Split::new(100, 16, 27), Err(Fault::NoSpace));
        assert_eq!(Split::new(100, usize::MAX, u32::MAX), Err(Fault::NoSpace));
    }
}
