// SPDX-License-Identifier: GPL-2.0

//! The size of an endpoint.

use crate::rdma::send_queue::{
    QueueSizes,
    POSTINGS, //
};

/// The size of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Receive buffers at most. Not used where Receives are shared, and neither are the next three.
    pub(crate) receives: u32,
    /// Receives that are kept posted to begin with.
    pub(crate) first_receives: u32,
    /// Set if the Receives count for all connections of the server.
    pub(crate) counts_receives: bool,
    /// Receives that are kept posted for each credit.
    pub(crate) receives_per_credit: u32,
    /// Octets of each, to begin with.
    pub(crate) receive_size: usize,
    /// Set if larger ones may take their places, see
    /// [`Endpoint::enlarge_receives`](super::Endpoint::enlarge_receives). Then
    /// [`REPLACEMENTS`](super::REPLACEMENTS) of them are among the most that there are.
    pub(crate) may_enlarge: bool,
    /// Send buffers at most.
    pub(crate) sends: u32,
    /// Send buffers to begin with.
    pub(crate) first_sends: u32,
    /// Send buffers that are for messages of the connection's own only; fewer than those to begin
    /// with.
    pub(crate) kept_sends: u32,
    /// Octets of each.
    pub(crate) send_size: usize,
    /// The Send Queue.
    pub(crate) send_queue: QueueSizes,
    /// Pages that one region holds at most.
    pub(crate) region_depth: u32,
    /// Regions at most.
    pub(crate) regions: u32,
    /// Scatter/gather elements of an RDMA Read or Write at most; 1 if there are none.
    pub(crate) transfer_sges: u32,
    /// Work requests of the longest chain, a Send counted.
    pub(crate) chain: u32,
    /// Memory regions at most for RDMA Reads and Writes that are under way, where the device needs
    /// such. They are made when they are needed.
    pub(crate) transfers: u32,
    /// Segments at most of one Call whose chunks are read and written.
    pub(crate) segments: u32,
}

impl Sizes {
    /// Returns the number of buffers, regions and others that are made for the QP at most, which
    /// perhaps shares its Receives.
    pub(super) fn postings(&self, shares: bool) -> u32 {
        let receives = if shares { 0 } else { self.receives };
        [receives, self.sends, self.regions]
            .into_iter()
            .fold(POSTINGS, u32::saturating_add)
    }
}
