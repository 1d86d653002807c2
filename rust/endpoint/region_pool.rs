// SPDX-License-Identifier: GPL-2.0

//! The memory regions that are not lent out.

use crate::rdma::region::{
    Region,
    RegionOwner, //
};
use kernel::prelude::*;

/// The pool of regions.
pub(super) struct Pool<O: RegionOwner> {
    /// Clean, and not lent out.
    pub(super) free: KVVec<KBox<Region<O>>>,
    /// The number of regions.
    pub(super) total: u32,
    /// The number of regions that are lent out.
    pub(super) out: u32,
    /// Set while the end of the endpoint waits until none is.
    pub(super) awaited: bool,
    /// The number of regions that were deregistered because their state was not known. What the QP
    /// keeps for their work requests is there until its end.
    pub(super) recycled: u32,
}

impl<O: RegionOwner> Pool<O> {
    /// Makes a pool without regions, for at most `count` of them.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(count: u32) -> Result<Self> {
        let count = usize::try_from(count)?;
        Ok(Self {
            free: KVVec::with_capacity(count, GFP_KERNEL)?,
            total: 0,
            out: 0,
            awaited: false,
            recycled: 0,
        })
    }
}
