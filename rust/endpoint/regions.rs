// SPDX-License-Identifier: GPL-2.0

//! The memory regions of an endpoint.

use crate::kext::prelude::*;
use crate::{
    endpoint::{
        Endpoint,
        EndpointEvents, //
    },
    kext::{
        device_memory::DeviceMemory,
        host_key::random, //
    },
    observe::trace,
    proto::chunk::Segment,
    rdma::{
        completion::Completion,
        dma::Direction,
        region::{
            Fence,
            Region,
            RegionOwner,
            RegionState,
            RemoteMemory, //
        }, //
    }, //
};

impl From<Direction> for trace::Direction {
    fn from(direction: Direction) -> Self {
        match direction {
            Direction::ToDevice => Self::PeerReads,
            Direction::FromDevice => Self::PeerWrites,
        }
    }
}

impl<H: EndpointEvents> RegionOwner for Endpoint<H> {
    type Lease = H::Lease;

    fn registration_failed(this: ArcBorrow<'_, Self>, completion: Completion<'_>) {
        this.trace_error(completion, trace::Work::Register);
        this.context.lost();
    }

    fn invalidated(this: ArcBorrow<'_, Self>, fence: &Fence<Self>, completion: Completion<'_>) {
        if completion.ok() {
            this.retire(fence.sequence());
        } else {
            this.trace_error(completion, trace::Work::Invalidate);
            this.context.lost();
        }
        if let Some(tag) = fence.tag() {
            trace::region_fenced(this.number(), tag, completion.ok());
            H::fenced(this.context.handler(), tag, completion.ok());
        }
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Lends out a clean region, if the pool has one. None any more once the endpoint waits for the
    /// last one.
    pub(crate) fn region(self: &Arc<Self>) -> Option<RegionHandle<H>> {
        let mut pool = self.pool.lock();
        if pool.awaited {
            return None;
        }
        let region = pool.free.pop()?;
        pool.out += 1;
        drop(pool);
        Some(RegionHandle {
            region: Some(region),
            endpoint: self.clone(),
        })
    }

    /// Returns whether [`Self::region`] would find one now.
    pub(crate) fn has_region(&self) -> bool {
        !self.pool.lock().free.is_empty()
    }

    /// Adds up to `count` regions to the pool. Sleeps. Returns how many were added.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` after shutdown, `ENOMEM`, or what the device reports, if not even one could be
    /// made.
    pub(crate) fn add_regions(self: &Arc<Self>, count: u32) -> Result<u32> {
        let guard = self.objects.lock();
        let objects = guard.as_ref().ok_or(ENOTCONN)?;
        let pd = objects.pd.as_ref().ok_or(ENOTCONN)?;
        let qp = objects.cm.queue_pair().ok_or(ENOTCONN)?;
        let mut added = 0;
        while added < count {
            let region = match Region::new(&qp, pd.clone(), self.sizes.region_depth, self) {
                Ok(region) => region,
                Err(_) if added > 0 => break,
                Err(error) => return Err(error),
            };
            let mut pool = self.pool.lock();
            // What the QP keeps of those that were given up is there as well.
            let made = pool.total.saturating_add(pool.recycled);
            if made >= self.sizes.regions || pool.free.push_within_capacity(region).is_err() {
                break;
            }
            pool.total += 1;
            added += 1;
        }
        Ok(added)
    }

    /// Returns the numbers of regions, of those lent out, and of those that had to be given up.
    pub(crate) fn region_counts(&self) -> (u32, u32, u32) {
        let pool = self.pool.lock();
        (pool.total, pool.out, pool.recycled)
    }
}

/// Returns memory that a peer may use as an RDMA segment, RFC 8166 section 3.4.3.
fn segment(memory: RemoteMemory) -> Segment {
    Segment {
        handle: memory.rkey,
        length: memory.length,
        offset: memory.offset,
    }
}

/// A region on loan.
pub(crate) struct RegionHandle<H: EndpointEvents> {
    /// Always present until `drop`.
    region: Option<KBox<Region<Endpoint<H>>>>,
    /// Where it goes back to.
    endpoint: Arc<Endpoint<H>>,
}

impl<H: EndpointEvents> RegionHandle<H> {
    /// Puts the next run of `memory` into the region, of `longest` octets at most, see
    /// `Region::map`. `tag` is what the segment's offset begins with; but where the connection
    /// shares its PD with others, that is a random number.
    ///
    /// # What keeps a peer off the regions of another
    ///
    /// A device lets a peer use what is registered in the PD of its QP. A connection with Receives
    /// of its own has a PD of its own. Connections that share Receives share their PD too, as rxe
    /// and siw demand in different ways. What has regions in such a PD is the server's Call to a
    /// client with chunks (Version Two, level RDMA2_RVRSDIR_GENL), as long as that Call goes on. To
    /// use one, another client would have to guess R_key and offset at the first attempt, since
    /// the wrong ones end its connection. Devices give R_keys out in order, so the offset has a
    /// random number of 32 bits.
    ///
    /// # Errors
    ///
    /// As for `Region::map`; `EINVAL` too if the region is not clean.
    pub(crate) fn map(
        &mut self,
        memory: &mut impl DeviceMemory<Lease = H::Lease>,
        direction: Direction,
        tag: u32,
        longest: u32,
    ) -> Result {
        let region = self.region.as_mut().ok_or(EINVAL)?;
        // Where regions of several connections are in one PD, what one peer is told of them must be
        // no help to another.
        let upper = if self.endpoint.shares_receives() {
            u32::from_ne_bytes(random())
        } else {
            tag
        };
        region.map(memory, direction, upper, longest)?;
        let segment = segment(region.remote());
        trace::region_map(
            self.endpoint.number(),
            tag,
            segment.handle,
            segment.length,
            segment.offset,
            region.pages(),
            direction.into(),
        );
        Ok(())
    }

    /// The region, to be posted.
    pub(super) fn region(&mut self) -> Option<&mut Region<Endpoint<H>>> {
        self.region.as_deref_mut()
    }

    /// Where it belongs.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }

    /// Returns the description for the peer.
    pub(crate) fn segment(&self) -> Segment {
        self.region
            .as_ref()
            .map_or_else(Segment::default, |region| segment(region.remote()))
    }

    /// A fence posted for the region has completed. The CPU may look at the memory when the result
    /// is dropped.
    pub(crate) fn fenced(self) -> FencedRegion<H> {
        FencedRegion(self)
    }

    /// The peer has invalidated the region: no fence is needed, and the room kept for it is given
    /// back. The CPU may look at the memory when the result is dropped.
    pub(crate) fn fenced_by_peer(self) -> FencedRegion<H> {
        self.endpoint.send.lock().queue.unreserve(1);
        self.fenced()
    }
}

/// A region that the peer cannot use any more. Its memory is mapped for the device until this is
/// dropped: then it is unmapped, and the region goes back to the pool.
///
/// To unmap takes long: with bounce buffers up to 1 MiB is copied, and an IOMMU may have to flush
/// its buffers. So a region is taken out of its Call under the lock of that, and dropped without
/// any lock; [`Region::clean`] says so to kernels that look for sleeps in the wrong place.
#[must_use = "dropping it unmaps memory, which must not happen under a spinlock"]
pub(crate) struct FencedRegion<H: EndpointEvents>(RegionHandle<H>);

impl<H: EndpointEvents> Drop for FencedRegion<H> {
    fn drop(&mut self) {
        if let Some(region) = self.0.region.as_mut() {
            region.clean();
        }
    }
}

impl<H: EndpointEvents> Drop for RegionHandle<H> {
    fn drop(&mut self) {
        let Some(mut region) = self.region.take() else {
            return;
        };
        let recycled = region.state() == RegionState::Registered;
        match region.state() {
            RegionState::Clean => {}
            RegionState::Mapped => region.clean(),
            // Nobody knows whether the peer can still use it: deregistration is the fence that
            // always works.
            RegionState::Registered => region.deregister(),
        }
        let mut pool = self.endpoint.pool.lock();
        let region = if recycled {
            pool.total = pool.total.saturating_sub(1);
            pool.recycled = pool.recycled.saturating_add(1);
            Some(region)
        } else {
            // The list does not exceed its capacity: `add_regions` sees to it.
            let _ = pool.free.push_within_capacity(region);
            None
        };
        pool.out = pool.out.saturating_sub(1);
        let last = pool.awaited && pool.out == 0;
        drop(pool);
        drop(region);
        if last {
            self.endpoint.home.notify_all();
        }
    }
}
