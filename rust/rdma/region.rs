// SPDX-License-Identifier: GPL-2.0

//! Fast-registered memory regions (FRWR).
//!
//! A region goes round: clean, mapped (pages chosen and DMA-mapped, rkey fresh), registered (its
//! REG_MR was posted), fenced (its invalidation completed, or the peer did it) and so clean again.
//! A region of which that last step is not known can't be used again; it is deregistered instead,
//! which fences it as well.

mod mapping;

use self::mapping::{
    Mapping,
    PAGE, //
};
use crate::kext::prelude::*;
use crate::{
    kext::device_memory::DeviceMemory,
    rdma::{
        cm::QueuePairUser,
        completion::Completion,
        dma::Direction,
        posting::{
            Completes,
            Posting, //
        },
        protection_domain::ProtectionDomain,
        work_request::{
            set_send_cqe,
            PlainRequest, //
        }, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};
use kernel::task::might_sleep;

/// The offset that the peer is told of a region whose memory begins at `address` for the device.
///
/// A device takes the place within the first page from the offset, so that has to be the one that
/// the address has. That of the memory may be another: the page of an IOMMU may be smaller than
/// that of the CPU, and a bounce buffer begins where there is room.
fn peer_offset(tag: u32, address: u64) -> u64 {
    (u64::from(tag) << 32) | (address & u64::from(PAGE - 1))
}

/// Memory that a peer may use: what it needs to know for that.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RemoteMemory {
    /// The key.
    pub(crate) rkey: u32,
    /// The size in octets.
    pub(crate) length: u32,
    /// The address of the first octet, as the peer has to give it.
    pub(crate) offset: u64,
}

/// Where a region stands in its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RegionState {
    /// Not registered, nothing mapped: can be used.
    Clean,
    /// Pages are mapped and an rkey is chosen; nothing was posted.
    Mapped,
    /// REG_MR was posted; the peer may use the rkey.
    Registered,
}

/// The owner of regions, told of their completions. Both run in the context of completion handlers.
pub(crate) trait RegionOwner: Sized + Send + Sync + 'static {
    /// Keeps the memory of a region.
    type Lease: Send + 'static;

    /// A registration has failed. One that succeeds does not complete.
    fn registration_failed(this: ArcBorrow<'_, Self>, completion: Completion<'_>);

    /// The invalidation of a region has completed: of the last one of a chain, or of one that has
    /// failed.
    fn invalidated(this: ArcBorrow<'_, Self>, fence: &Fence<Self>, completion: Completion<'_>);
}

/// The registrations of regions, of which only those complete that fail.
pub(super) struct Registration<O>(PhantomData<fn(O)>);

impl<O> Registration<O> {
    /// Makes the one for all regions of a queue.
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<O: RegionOwner> Completes for Registration<O> {
    type Owner = O;

    fn completed(_: Posting<Self>, owner: ArcBorrow<'_, O>, completion: Completion<'_>) {
        if !completion.ok() {
            O::registration_failed(owner, completion);
        }
    }
}

/// The invalidation of a region, and what its owner knows it by.
pub(crate) struct Fence<O> {
    /// The tag, if it is the last one of its chain; else [`Self::NO_TAG`].
    tag: Atomic<u64>,
    /// The place of that in the Send Queue.
    sequence: Atomic<u64>,
    /// Whose it is.
    owner: PhantomData<fn(O)>,
}

impl<O> Fence<O> {
    /// The value that is no tag.
    const NO_TAG: u64 = u64::MAX;

    /// A fence that is not posted.
    const fn new() -> Self {
        Self {
            tag: Atomic::new(Self::NO_TAG),
            sequence: Atomic::new(0),
            owner: PhantomData,
        }
    }

    /// Returns the tag of the chain, if this is the last fence in it.
    pub(crate) fn tag(&self) -> Option<u32> {
        u32::try_from(self.tag.load(Relaxed)).ok()
    }

    /// Returns the place of the chain in the Send Queue.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }
}

impl<O: RegionOwner> Completes for Fence<O> {
    type Owner = O;

    fn completed(this: Posting<Self>, owner: ArcBorrow<'_, O>, completion: Completion<'_>) {
        O::invalidated(owner, &this, completion);
    }
}

/// One memory region with what is needed to register and fence it.
///
/// # Invariants
///
/// `mr` is an MR of the endpoint's PD, or null after `deregister`. While `mapping` has pages
/// mapped, above all while it is registered, there is a `lease` of their memory.
pub(crate) struct Region<O: RegionOwner> {
    /// The completion of its LOCAL_INV; on success called for the last of a chain only. Always
    /// there but in tests of the mapping.
    fence: Option<Posting<Fence<O>>>,
    /// The MR.
    mr: *mut sys::ib_mr,
    /// The PD of the MR, which is given up with that.
    pd: Option<Arc<ProtectionDomain>>,
    /// Its pages.
    mapping: Mapping,
    /// Keeps these.
    lease: Option<O::Lease>,
    /// Where it stands in its round.
    state: RegionState,
    /// The description for the peer, from [`Self::map`] on.
    remote: RemoteMemory,
    /// The REG_MR work request; must stay in place while it is being posted.
    register_wr: sys::ib_reg_wr,
    /// The LOCAL_INV work request; likewise.
    fence_wr: sys::ib_send_wr,
}

// SAFETY: All parts may be used from any context; exclusion is by ownership (a region has one
// holder).
unsafe impl<O: RegionOwner> Send for Region<O> {}

impl<O: RegionOwner> Region<O> {
    /// Allocates a region that can hold `depth` pages, in the PD of `qp`. Its completions are those
    /// of `owner`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if that is another PD, `ENOSPC` if the QP has as many postings as there may be,
    /// `ENOMEM`, or what the device reports.
    pub(crate) fn new(
        qp: &QueuePairUser,
        pd: Arc<ProtectionDomain>,
        depth: u32,
        owner: &Arc<O>,
    ) -> Result<KBox<Self>> {
        if !qp.is_in(&pd) {
            return Err(EINVAL);
        }
        let mapping = Mapping::new(depth)?;
        // SAFETY: The PD is live.
        let mr = from_err_ptr(unsafe {
            sys::ib_alloc_mr(pd.as_ptr(), sys::ib_mr_type_IB_MR_TYPE_MEM_REG, depth)
        })?;
        // Without memory for it, the region is dropped, and the MR with it.
        let mut region = Self::of(mr, mapping);
        region.pd = Some(pd);
        let mut region = KBox::new(region, GFP_KERNEL)?;
        region.fence = Some(qp.keep(owner, Fence::new())?);
        Ok(region)
    }

    /// The region of an MR, which it takes over.
    fn of(mr: *mut sys::ib_mr, mapping: Mapping) -> Self {
        Self {
            fence: None,
            mr,
            pd: None,
            mapping,
            lease: None,
            state: RegionState::Clean,
            remote: RemoteMemory::default(),
            register_wr: sys::ib_reg_wr::zeroed(),
            fence_wr: sys::ib_send_wr::zeroed(),
        }
    }

    /// Returns the number of mapped pages.
    pub(crate) fn pages(&self) -> u32 {
        self.mapping.pages()
    }

    /// Returns what a peer needs to know to use the memory.
    pub(crate) fn remote(&self) -> RemoteMemory {
        self.remote
    }

    /// Takes fragments of `memory` as long as one registration can hold them, maps them, and
    /// chooses a fresh rkey. Has a lease of the memory from now on. `tag` is the upper half of the
    /// segment's offset, so that no address of ours is seen on the wire.
    ///
    /// No more than `longest` octets are taken, by whole fragments. As [`Self::clean`], this may
    /// take as long as a copy of them.
    ///
    /// Without gaps in hardware a region is one run of memory: only its first fragment may begin,
    /// and only its last may end, inside a page. It is the device's addresses that count. Where
    /// these do not keep the place within a page (bounce buffers, an IOMMU with smaller pages), a
    /// region may end earlier than its fragments would allow; then the others are left for the next
    /// region.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no fragment left; `EMSGSIZE` if the first one is longer than `longest`;
    /// `ENOMEM` if there is no room to map the memory (bounce buffers, I/O addresses), so that a
    /// later attempt may succeed; `EIO` if the device places less than one fragment; or what else
    /// the device reports. The region is clean then, and no fragment is taken.
    pub(crate) fn map(
        &mut self,
        memory: &mut impl DeviceMemory<Lease = O::Lease>,
        direction: Direction,
        tag: u32,
        longest: u32,
    ) -> Result {
        might_sleep();
        if self.state != RegionState::Clean || self.mr.is_null() {
            return Err(EINVAL);
        }
        let lease = memory.lease();
        // SAFETY: The MR is ours, and nothing is registered under it. Fragments are only taken,
        // from the beginning, and there is a lease of them until they are unmapped: below if this
        // fails, else in `clean` and `deregister`.
        let total = unsafe {
            let fragments = memory.fragments();
            self.mapping.map(self.mr, fragments, direction, longest)
        }?;
        // INVARIANT: It is of the memory that was just mapped.
        self.lease = Some(lease);
        // SAFETY: The MR is ours; nothing is registered under it, so its key and address may
        // change. A fresh key makes late use of the former one fail.
        unsafe {
            let mr = &mut *self.mr;
            mr.iova = peer_offset(tag, mr.iova);
            let key = sys::ib_inc_rkey(mr.rkey);
            sys::ib_update_fast_reg_key(mr, (key & 0xff) as u8);
            self.remote = RemoteMemory {
                rkey: mr.rkey,
                length: total,
                offset: mr.iova,
            };
        }
        self.state = RegionState::Mapped;
        Ok(())
    }

    /// The region is known to be fenced (or was never posted): makes it clean. May take as long as
    /// a copy of all the memory, so the caller has no spinlock.
    pub(crate) fn clean(&mut self) {
        might_sleep();
        self.mapping.unmap();
        self.lease = None;
        self.state = RegionState::Clean;
    }

    /// Gives the MR up, which ends all access through it. Sleeps.
    pub(crate) fn deregister(&mut self) {
        let mr = core::mem::replace(&mut self.mr, ptr::null_mut());
        if !mr.is_null() {
            // SAFETY: The MR is ours, nobody else has the pointer, and its PD is live, see `new`.
            // The device waits for accesses under way. Its failure is the driver's bug; there is
            // nothing left to try.
            unsafe { sys::ib_dereg_mr(mr) };
        }
        self.mapping.unmap();
        self.lease = None;
        self.pd = None;
        self.state = RegionState::Clean;
    }

    /// Returns where it stands in its round.
    pub(crate) fn state(&self) -> RegionState {
        self.state
    }

    /// Builds the REG_MR work request, with `next` after it, and takes it as posted. [`None`] if
    /// nothing is mapped, or the region is not one of `qp`.
    pub(super) fn register_wr(
        &mut self,
        qp: &QueuePairUser,
        registration: &Posting<Registration<O>>,
        next: *mut sys::ib_send_wr,
    ) -> Option<*mut sys::ib_send_wr> {
        if self.state != RegionState::Mapped || !self.fence.as_ref()?.is_for(qp.keeper()) {
            return None;
        }
        self.state = RegionState::Registered;
        let access = match self.mapping.direction() {
            Direction::ToDevice => sys::ib_access_flags_IB_ACCESS_REMOTE_READ,
            // The wire protocol needs REMOTE_WRITE alone; the verbs demand LOCAL_WRITE with it.
            Direction::FromDevice => {
                sys::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | sys::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
        };
        let wr = &mut self.register_wr;
        wr.mr = self.mr;
        wr.key = self.remote.rkey;
        wr.access = access as c_int;
        wr.wr.next = next;
        set_send_cqe(&mut wr.wr, registration.cqe());
        wr.wr.num_sge = 0;
        wr.wr.sg_list = ptr::null_mut();
        wr.wr.opcode = sys::ib_wr_opcode_IB_WR_REG_MR;
        wr.wr.send_flags = 0;
        Some(&raw mut wr.wr)
    }

    /// Builds the LOCAL_INV work request of a chain whose place in the Send Queue is `sequence`,
    /// with `next` after it. The last one of the chain has its `tag`, and is signaled. [`None`] if
    /// the region is not one of `qp`.
    pub(super) fn fence_wr(
        &mut self,
        qp: &QueuePairUser,
        next: *mut sys::ib_send_wr,
        sequence: u64,
        tag: Option<u32>,
    ) -> Option<*mut sys::ib_send_wr> {
        let fence = self.fence.as_ref()?;
        if !fence.is_for(qp.keeper()) {
            return None;
        }
        fence.sequence.store(sequence, Relaxed);
        fence
            .tag
            .store(tag.map_or(Fence::<O>::NO_TAG, u64::from), Relaxed);
        let wr = &mut self.fence_wr;
        wr.next = next;
        set_send_cqe(wr, fence.cqe());
        wr.num_sge = 0;
        wr.sg_list = ptr::null_mut();
        wr.opcode = sys::ib_wr_opcode_IB_WR_LOCAL_INV;
        wr.send_flags = if tag.is_some() {
            sys::ib_send_flags_IB_SEND_SIGNALED as c_int
        } else {
            0
        };
        wr.ex.invalidate_rkey = ManuallyDrop::new(self.remote.rkey);
        Some(&raw mut *wr)
    }
}

impl<O: RegionOwner> Drop for Region<O> {
    fn drop(&mut self) {
        self.deregister();
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_region)]
mod tests {
    use super::*;
    use crate::kext::page_fragment::PageFragment;
    use core::{
        iter::Peekable,
        mem::MaybeUninit, //
    };
    use kernel::page::Page;

    /// The offset that the device of these tests adds to the addresses of the memory, by its number
    /// in the table: runs of pages that do not touch.
    const APART: u64 = 1 << 20;

    /// Stands for an owner; nothing completes here.
    struct Nobody;

    impl RegionOwner for Nobody {
        type Lease = ();

        fn registration_failed(_this: ArcBorrow<'_, Self>, _completion: Completion<'_>) {}

        fn invalidated(
            _this: ArcBorrow<'_, Self>,
            _fence: &Fence<Self>,
            _completion: Completion<'_>,
        ) {
        }
    }

    /// Pieces of a page that is there until the end of the test.
    struct Pieces<I: Iterator>(Peekable<I>);

    // SAFETY: The page is there until then.
    unsafe impl<I: Iterator<Item = PageFragment> + Clone> DeviceMemory for Pieces<I> {
        type Fragments = I;
        type Lease = ();

        unsafe fn fragments(&mut self) -> &mut Peekable<I> {
            &mut self.0
        }

        fn lease(&self) {}
    }

    /// Takes the address of a page, and does nothing with it.
    ///
    /// # Safety
    ///
    /// None.
    unsafe extern "C" fn set_page(_mr: *mut sys::ib_mr, _address: u64) -> c_int {
        0
    }

    /// Enters the addresses as if each entry had been put into a bounce buffer: one that is shorter
    /// than a page into the second half of one if it fits, else to the start of a page.
    ///
    /// # Safety
    ///
    /// As for `ib_map_mr_sg`: `sg` has `entries` entries that name mapped memory.
    unsafe extern "C" fn map_bounced(
        mr: *mut sys::ib_mr,
        sg: *mut sys::scatterlist,
        entries: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        for at in 0..entries.unsigned_abs() {
            // SAFETY: The table has `entries` entries, side by side.
            let entry = unsafe { &mut *sg.add(at as usize) };
            let half = if entry.length <= PAGE / 2 {
                PAGE / 2
            } else {
                0
            };
            entry.dma_address = (u64::from(at) + 1) * APART + u64::from(half);
        }
        // SAFETY: As the RDMA core calls it.
        unsafe { sys::ib_sg_to_pages(mr, sg, entries, offset, Some(set_page)) }
    }

    /// As [`map_bounced`], but one entry only finds room at a time.
    ///
    /// # Safety
    ///
    /// As for [`map_bounced`].
    unsafe extern "C" fn map_one(
        mr: *mut sys::ib_mr,
        sg: *mut sys::scatterlist,
        _entries: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: As for that.
        unsafe { map_bounced(mr, sg, 1, offset) }
    }

    /// A function that maps memory for a device.
    type MapSg =
        unsafe extern "C" fn(*mut sys::ib_mr, *mut sys::scatterlist, c_int, *mut c_uint) -> c_int;

    /// Maps fragments of a page, of which offset and length are given, into as many regions as it
    /// takes. Returns lengths of the regions, and where in a page their offsets are.
    fn regions(map: MapSg, depth: u32, fragments: &[(u32, u32)]) -> Result<KVec<(u32, u64)>> {
        let page = Page::alloc_page(GFP_KERNEL)?;
        let mut device = KBox::<MaybeUninit<sys::ib_device>>::new_uninit(GFP_KERNEL)?;
        // SAFETY: A device without functions; it has no DMA either, so addresses are those of the
        // CPU.
        let device = unsafe {
            device.as_mut_ptr().write_bytes(0, 1);
            (*device.as_mut_ptr().cast::<sys::ib_device>())
                .ops
                .map_mr_sg = Some(map);
            device.as_mut_ptr().cast::<sys::ib_device>()
        };
        // SAFETY: An MR of the device. Its types are all such that zero is a value.
        let mut mr: sys::ib_mr = unsafe { core::mem::zeroed() };
        mr.device = device;
        let fragments = fragments
            .iter()
            .map(|(offset, len)| {
                // SAFETY: The page is there until the end of this function.
                unsafe { PageFragment::new(NonNull::new_unchecked(page.as_ptr()), *offset, *len) }
            })
            .peekable();
        let mut memory = Pieces(fragments);
        let mut region = Region::<Nobody>::of(&raw mut mr, Mapping::new(depth)?);
        let mut made = KVec::new();
        let mut mapped = Ok(());
        while mapped.is_ok() && memory.0.peek().is_some() {
            let direction = Direction::FromDevice;
            mapped = region.map(&mut memory, direction, 7, u32::MAX);
            if mapped.is_ok() {
                let segment = region.remote();
                assert_eq!(segment.offset >> 32, 7);
                let place = segment.offset & u64::from(u32::MAX);
                made.push((segment.length, place), GFP_KERNEL)?;
                region.clean();
            }
        }
        // Nobody has allocated it.
        region.mr = ptr::null_mut();
        mapped.map(|()| made)
    }

    #[test]
    fn the_place_in_the_page_is_that_of_the_address() -> Result {
        assert_eq!(peer_offset(3, 0x1234_5678_9000_0010), (3 << 32) + 0x10);
        let half = u64::from(PAGE / 2);
        // It begins inside a page, but its bounce buffer elsewhere in one.
        let made = regions(map_bounced, 4, &[(100, 50)])?;
        assert_eq!(made.as_slice(), [(50, half)]);
        let made = regions(map_bounced, 4, &[(PAGE - 8, 8)])?;
        assert_eq!(made.as_slice(), [(8, half)]);
        Ok(())
    }

    #[test]
    fn a_region_ends_where_the_device_has_a_gap() -> Result {
        // The first one ends with its page, but not with that of its bounce buffer.
        let fragments = [(512, PAGE - 512), (0, PAGE), (0, PAGE), (0, 100)];
        let made = regions(map_bounced, 8, &fragments)?;
        let half = u64::from(PAGE / 2);
        assert_eq!(
            made.as_slice(),
            [(PAGE - 512, 0), (2 * PAGE, 0), (100, half)]
        );
        Ok(())
    }

    #[test]
    fn nothing_is_lost_where_regions_end_early() -> Result {
        let fragments = [(0, PAGE), (0, PAGE), (0, PAGE)];
        assert_eq!(regions(map_bounced, 2, &fragments)?.len(), 2);
        assert_eq!(regions(map_one, 8, &fragments)?.len(), 3);
        Ok(())
    }

    #[test]
    fn memory_that_a_device_has_no_place_for_is_an_error() {
        /// Finds no place for any entry.
        ///
        /// # Safety
        ///
        /// None.
        unsafe extern "C" fn no_place(
            _mr: *mut sys::ib_mr,
            _sg: *mut sys::scatterlist,
            _entries: c_int,
            _offset: *mut c_uint,
        ) -> c_int {
            0
        }
        let made = regions(no_place, 8, &[(0, PAGE), (0, PAGE)]);
        assert!(matches!(made, Err(EIO)));
    }
}
