// SPDX-License-Identifier: GPL-2.0

//! Fast-registered memory regions (FRWR).
//!
//! A region goes round: clean, mapped (pages chosen and DMA-mapped, rkey fresh), registered (its REG_MR was
//! posted), fenced (its invalidation completed, or the peer did it) and so clean again. A region of which that
//! last step is not known can't be used again; it is deregistered instead, which fences it as well.

use crate::kext::page_fragment::PageFragment;
use crate::proto::chunk::Segment;
use crate::sys;
use crate::verbs::completion::{CompletionEntry, Handler};
use crate::verbs::dma::Direction;
use crate::verbs::work_request::{set_send_cqe, PlainRequest};
use core::mem::ManuallyDrop;
use core::ptr::{self, NonNull};
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

/// Where a region stands in its round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RegionState {
    /// Not registered, nothing mapped: can be used.
    Clean,
    /// Pages are mapped and an rkey is chosen; nothing was posted.
    Mapped,
    /// REG_MR was posted; the peer may use the rkey.
    Registered,
}

/// One memory region with what is needed to register and fence it.
///
/// # Invariants
///
/// - `mr` is an MR of the endpoint's PD, or null after `deregister`.
/// - `sg` has `depth` initialised entries; its first `entries` are mapped for `device` if `device` is set.
pub(super) struct Region {
    /// Completion of REG_MR; called on failure only, since it is never signaled.
    register: CompletionEntry,
    /// Completion of LOCAL_INV; on success called for the last of a chain only.
    pub(super) fence: CompletionEntry,
    mr: *mut sys::ib_mr,
    /// The pages, one entry each.
    sg: KVec<sys::scatterlist>,
    /// How many entries are in use.
    entries: c_int,
    /// Which way they are mapped.
    direction: Direction,
    /// For whom they are mapped.
    device: Option<NonNull<sys::ib_device>>,
    /// Where it stands in its round.
    pub(super) state: RegionState,
    /// What to tell the peer, from [`Self::map`] on.
    segment: Segment,
    /// The REG_MR work request; must stay in place while it is being posted.
    register_wr: sys::ib_reg_wr,
    /// The LOCAL_INV work request; likewise.
    fence_wr: sys::ib_send_wr,
    /// Set for the last region of a chain of fences: whom to tell. Written before the chain is posted.
    pub(super) fence_tag: Option<u32>,
    /// Place of the chain's last work request in the Send Queue, see `SendQueue`.
    pub(super) fence_sequence: u64,
}

// SAFETY: All parts may be used from any context; exclusion is by ownership (a region has one holder).
unsafe impl Send for Region {}

impl Region {
    /// Allocates a region that can hold `depth` pages. Its completions are those of `owner`.
    ///
    /// # Safety
    ///
    /// `pd` must be live until the region has been deregistered.
    pub(super) unsafe fn new<O>(
        pd: NonNull<sys::ib_pd>,
        depth: u32,
        owner: &Arc<O>,
        register_done: Handler,
        fence_done: Handler,
    ) -> Result<KBox<Self>> {
        let mut sg = KVec::with_capacity(usize::try_from(depth)?, GFP_KERNEL)?;
        for _ in 0..depth {
            sg.push_within_capacity(pin_init::zeroed::<sys::scatterlist>())
                .map_err(|_| ENOMEM)?;
        }
        // SAFETY: `sg` has `depth` entries.
        unsafe { sys::sg_init_table(sg.as_mut_ptr(), depth) };
        // SAFETY: The PD is live.
        let mr = from_err_ptr(unsafe {
            sys::ib_alloc_mr(pd.as_ptr(), sys::ib_mr_type_IB_MR_TYPE_MEM_REG, depth)
        })?;
        // Without memory for it, the region is dropped, and the MR with it.
        let region = KBox::new(
            Self {
                register: CompletionEntry::new(register_done),
                fence: CompletionEntry::new(fence_done),
                mr,
                sg,
                entries: 0,
                direction: Direction::ToDevice,
                device: None,
                state: RegionState::Clean,
                segment: Segment::default(),
                register_wr: sys::ib_reg_wr::zeroed(),
                fence_wr: sys::ib_send_wr::zeroed(),
                fence_tag: None,
                fence_sequence: 0,
            },
            GFP_KERNEL,
        )?;
        region.register.belongs_to(owner);
        region.fence.belongs_to(owner);
        Ok(region)
    }

    /// How many pages are mapped.
    pub(super) fn pages(&self) -> u32 {
        self.entries.unsigned_abs()
    }

    /// What to tell the peer: an RDMA segment, RFC 8166 section 3.4.3.
    pub(super) fn segment(&self) -> Segment {
        self.segment
    }

    /// Takes fragments from `fragments` as long as one registration can hold them, maps them, and chooses a
    /// fresh rkey. `tag` is the upper half of the segment's offset, so that no address of ours is seen on
    /// the wire.
    ///
    /// No more than `longest` octets are taken, by whole fragments.
    ///
    /// Without gaps in hardware a region is one run of memory: only its first fragment may begin, and only its
    /// last may end, inside a page.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no fragment left, `EMSGSIZE` if the first one is longer than `longest`, `EIO` if the memory can't be mapped. The
    /// region is clean then; the fragments taken are lost.
    ///
    /// # Safety
    ///
    /// `device` must be the device of the PD and stay registered until the region is unmapped. The memory of
    /// the fragments must stay valid until then.
    pub(super) unsafe fn map(
        &mut self,
        device: NonNull<sys::ib_device>,
        fragments: &mut core::iter::Peekable<impl Iterator<Item = PageFragment>>,
        direction: Direction,
        tag: u32,
        longest: u32,
    ) -> Result {
        const PAGE: u32 = kernel::page::PAGE_SIZE as u32;

        let mut count = 0;
        let mut total: u32 = 0;
        let mut first_offset = 0;
        while count < self.sg.len() {
            let Some(next) = fragments.peek() else { break };
            if count > 0 && next.offset() != 0 {
                break;
            }
            let longer = total.checked_add(next.len());
            let Some(longer) = longer.filter(|len| *len <= longest) else {
                if count > 0 {
                    break;
                }
                return Err(EMSGSIZE);
            };
            total = longer;
            if count == 0 {
                first_offset = next.offset();
            }
            let ends_in_page = next.offset() + next.len() != PAGE;
            let entry = self.sg.get_mut(count).ok_or(EINVAL)?;
            // SAFETY: `entry` is an initialised entry of the table; the fragment names memory of one page.
            unsafe { sys::sg_set_page(entry, next.page(), next.len(), next.offset()) };
            fragments.next();
            count += 1;
            if ends_in_page {
                break;
            }
        }
        if count == 0 {
            return Err(EINVAL);
        }
        self.entries = c_int::try_from(count)?;
        self.direction = direction;

        // SAFETY: The first `entries` entries were set above; the device is live.
        let mapped = unsafe {
            sys::ib_dma_map_sg(
                device.as_ptr(),
                self.sg.as_mut_ptr(),
                self.entries,
                direction.as_raw(),
            )
        };
        if mapped <= 0 {
            return Err(EIO);
        }
        self.device = Some(device);

        // SAFETY: The MR is ours and not registered; the table holds `mapped` mapped entries.
        let placed = unsafe {
            sys::ib_map_mr_sg(self.mr, self.sg.as_mut_ptr(), mapped, ptr::null_mut(), PAGE)
        };
        if placed != mapped {
            self.unmap();
            return Err(EIO);
        }
        // SAFETY: The MR is ours; nothing is registered under it, so its key and address may change. A fresh
        // key makes late use of the former one fail.
        unsafe {
            let mr = &mut *self.mr;
            mr.iova = (u64::from(tag) << 32) | u64::from(first_offset);
            let key = sys::ib_inc_rkey(mr.rkey);
            sys::ib_update_fast_reg_key(mr, (key & 0xff) as u8);
            self.segment = Segment {
                handle: mr.rkey,
                length: total,
                offset: mr.iova,
            };
        }
        self.state = RegionState::Mapped;
        Ok(())
    }

    /// Ends the DMA mapping; the CPU may then look at the memory.
    fn unmap(&mut self) {
        if let Some(device) = self.device.take() {
            // SAFETY: By the type invariant these entries are mapped for that device.
            unsafe {
                sys::ib_dma_unmap_sg(
                    device.as_ptr(),
                    self.sg.as_mut_ptr(),
                    self.entries,
                    self.direction.as_raw(),
                )
            };
        }
    }

    /// The region is known to be fenced (or was never posted): makes it clean.
    pub(super) fn clean(&mut self) {
        self.unmap();
        self.state = RegionState::Clean;
    }

    /// Gives the MR up, which ends all access through it. Sleeps. The `Region` itself must stay in memory until
    /// its posted work requests can't complete any more.
    pub(super) fn deregister(&mut self) {
        let mr = core::mem::replace(&mut self.mr, ptr::null_mut());
        if !mr.is_null() {
            // SAFETY: The MR is ours, nobody else has the pointer, and its PD is live, see `new`. The device waits
            // for accesses under way. Its failure is the driver's bug; there is nothing left to try.
            unsafe { sys::ib_dereg_mr(mr) };
        }
        self.unmap();
        self.state = RegionState::Clean;
    }

    /// Whether the region still has its MR.
    pub(super) fn usable(&self) -> bool {
        !self.mr.is_null()
    }

    /// Builds the REG_MR work request, with `next` after it.
    pub(super) fn register_wr(&mut self, next: *mut sys::ib_send_wr) -> *mut sys::ib_send_wr {
        let access = match self.direction {
            Direction::ToDevice => sys::ib_access_flags_IB_ACCESS_REMOTE_READ,
            // The wire protocol needs REMOTE_WRITE alone; the verbs demand LOCAL_WRITE with it.
            Direction::FromDevice => {
                sys::ib_access_flags_IB_ACCESS_REMOTE_WRITE
                    | sys::ib_access_flags_IB_ACCESS_LOCAL_WRITE
            }
        };
        let wr = &mut self.register_wr;
        wr.mr = self.mr;
        wr.key = self.segment.handle;
        wr.access = access as c_int;
        wr.wr.next = next;
        set_send_cqe(&mut wr.wr, self.register.as_ptr());
        wr.wr.num_sge = 0;
        wr.wr.sg_list = ptr::null_mut();
        wr.wr.opcode = sys::ib_wr_opcode_IB_WR_REG_MR;
        wr.wr.send_flags = 0;
        &raw mut wr.wr
    }

    /// Builds the LOCAL_INV work request, with `next` after it.
    pub(super) fn fence_wr(
        &mut self,
        next: *mut sys::ib_send_wr,
        signaled: bool,
    ) -> *mut sys::ib_send_wr {
        let wr = &mut self.fence_wr;
        wr.next = next;
        set_send_cqe(wr, self.fence.as_ptr());
        wr.num_sge = 0;
        wr.sg_list = ptr::null_mut();
        wr.opcode = sys::ib_wr_opcode_IB_WR_LOCAL_INV;
        wr.send_flags = if signaled {
            sys::ib_send_flags_IB_SEND_SIGNALED as c_int
        } else {
            0
        };
        wr.ex.invalidate_rkey = ManuallyDrop::new(self.segment.handle);
        &raw mut *wr
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        self.deregister();
    }
}
