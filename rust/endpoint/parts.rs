// SPDX-License-Identifier: GPL-2.0

//! Messages that are posted before another one, with nothing between them: all parts but the last
//! of an RPC message (section 6.6.2 of the draft).
//!
//! They are kept as octets until all of them can be posted. Then each gets a Send buffer, or none
//! does: of two messages that had some of the buffers that they need, each could wait for the
//! other.

use crate::kext::memalloc;
use crate::kext::prelude::*;

/// The messages.
pub(crate) struct FirstParts {
    /// The messages one after the other.
    octets: KVVec<u8>,
    /// The size of each but the last, which may be smaller. Not zero.
    size: usize,
}

impl FirstParts {
    /// Makes room for messages of `total` octets together, each of `size` octets but the last,
    /// which may be smaller. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `size` is zero, `ENOMEM`.
    pub(crate) fn new(total: usize, size: usize) -> Result<Self> {
        if size == 0 {
            return Err(EINVAL);
        }
        let octets = memalloc::zeroed(total, GFP_KERNEL)?;
        Ok(Self { octets, size })
    }

    /// Returns the messages, to be written.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.octets.chunks_mut(self.size)
    }

    /// Returns the messages.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.octets.chunks(self.size)
    }

    /// Returns their number.
    pub(crate) fn len(&self) -> u32 {
        // They are a few.
        u32::try_from(self.octets.len().div_ceil(self.size)).unwrap_or(u32::MAX)
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_endpoint_parts)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_may_be_smaller() -> Result {
        for (total, count, last) in [(1, 1, 1), (8, 1, 8), (9, 2, 1), (24, 3, 8)] {
            let mut parts = FirstParts::new(total, 8)?;
            assert_eq!(parts.len(), count);
            assert_eq!(parts.iter_mut().last().map(|part| part.len()), Some(last));
            assert_eq!(parts.iter().map(<[u8]>::len).sum::<usize>(), total);
        }
        assert_eq!(FirstParts::new(0, 8)?.len(), 0);
        assert!(FirstParts::new(8, 0).is_err());
        Ok(())
    }
}
