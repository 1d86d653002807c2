// SPDX-License-Identifier: GPL-2.0

//! The pages of a memory region, and their mapping for a device.

use crate::kext::prelude::*;
use crate::{
    kext::page_fragment::PageFragment,
    rdma::dma::Direction,
    sys, //
};
use core::{
    iter::Peekable,
    ptr, //
};

/// Octets of a page, in which a region is laid out.
pub(super) const PAGE: u32 = PAGE_SIZE as u32;

/// The pages of a region.
///
/// # Invariants
///
/// `sg` has initialised entries; its first `entries` are mapped for `device` if `device` is set.
pub(super) struct Mapping {
    /// The pages, one entry each. For the largest payload they are more than two pages, which need
    /// not lie side by side.
    sg: KVVec<sys::scatterlist>,
    /// The number of entries in use.
    entries: c_int,
    /// Which way they are mapped.
    direction: Direction,
    /// The device for which they are mapped.
    device: Option<NonNull<sys::ib_device>>,
}

impl Mapping {
    /// Makes one for at most `depth` pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(depth: u32) -> Result<Self> {
        let mut sg = KVVec::with_capacity(usize::try_from(depth)?, GFP_KERNEL)?;
        for _ in 0..depth {
            sg.push_within_capacity(pin_init::zeroed::<sys::scatterlist>())
                .map_err(|_| ENOMEM)?;
        }
        // SAFETY: `sg` has `depth` entries.
        unsafe { sys::sg_init_table(sg.as_mut_ptr(), depth) };
        // INVARIANT: The entries were just initialised; none is mapped.
        Ok(Self {
            sg,
            entries: 0,
            direction: Direction::ToDevice,
            device: None,
        })
    }

    /// Returns the number of mapped pages.
    pub(super) fn pages(&self) -> u32 {
        self.entries.unsigned_abs()
    }

    /// Returns which way they are mapped.
    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// Maps fragments and enters their addresses into `mr`. Returns how many octets they are.
    ///
    /// # Errors
    ///
    /// See [`Region::map`](super::Region::map). Nothing is mapped then, and no fragment is taken.
    ///
    /// # Safety
    ///
    /// `mr` is an MR under which nothing is registered. Its device and the memory of the fragments
    /// stay while there is a mapping: until [`unmap`](Self::unmap).
    pub(super) unsafe fn map<I>(
        &mut self,
        mr: *mut sys::ib_mr,
        fragments: &mut Peekable<I>,
        direction: Direction,
        longest: u32,
    ) -> Result<u32>
    where
        I: Iterator<Item = PageFragment> + Clone,
    {
        self.direction = direction;
        let mut most = self.sg.len();
        loop {
            let mut rest = fragments.clone();
            let total = self.fill(&mut rest, most, longest)?;
            // SAFETY: The caller guarantees it.
            let Some(placed) = unsafe { self.place(mr) }? else {
                *fragments = rest;
                return Ok(total);
            };
            // What is mapped and not registered must not stay so: where a bounce buffer is copied
            // back to it, what the next region has received there would be lost.
            self.unmap();
            // The second time there may be a gap elsewhere. One fragment has none.
            let fewer = if most == self.sg.len() {
                self.whole(placed).max(1)
            } else {
                1
            };
            if fewer >= self.pages() as usize {
                return Err(EIO);
            }
            most = fewer;
        }
    }

    /// Enters fragments into the table, `most` and `longest` octets at most, as long as they are
    /// one run of memory. Returns how many octets these are.
    ///
    /// # Errors
    ///
    /// `EINVAL` and `EMSGSIZE`, see [`Self::map`].
    fn fill(
        &mut self,
        fragments: &mut Peekable<impl Iterator<Item = PageFragment>>,
        most: usize,
        longest: u32,
    ) -> Result<u32> {
        let mut count = 0;
        let mut total: u32 = 0;
        while count < most {
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
            let ends_in_page = next.offset() + next.len() != PAGE;
            let entry = self.sg.get_mut(count).ok_or(EINVAL)?;
            // SAFETY: `entry` is an initialised entry of the table; the fragment names memory of
            // one page.
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
        Ok(total)
    }

    /// Returns how many of the table's fragments lie within the first `octets` octets of it.
    fn whole(&self, octets: u32) -> usize {
        let ends = self
            .sg
            .iter()
            .take(self.pages() as usize)
            .scan(0_u32, |end, entry| {
                *end = end.saturating_add(entry.length);
                Some(*end)
            });
        ends.take_while(|end| *end <= octets).count()
    }

    /// Maps the fragments in the table for the device, and enters their addresses into the MR.
    /// [`None`] if all of them are one run of memory to the device; else how many octets from the
    /// first one on are. Then the MR is of no use, and what is mapped has to be unmapped.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if there is no room to map the memory, or what the device reports. Then nothing is
    /// mapped.
    ///
    /// # Safety
    ///
    /// As for [`Self::map`].
    unsafe fn place(&mut self, mr: *mut sys::ib_mr) -> Result<Option<u32>> {
        // SAFETY: The caller guarantees that the MR is there.
        let device = NonNull::new(unsafe { (*mr).device }).ok_or(ENODEV)?;
        // SAFETY: The first `entries` entries were set by `fill`, from fragments whose memory
        // stays, as the device does: the caller guarantees it.
        let mapped = unsafe {
            sys::ib_dma_map_sg(
                device.as_ptr(),
                self.sg.as_mut_ptr(),
                self.entries,
                self.direction.as_raw(),
            )
        };
        if mapped <= 0 {
            // The RDMA core does not say why. All that can be wrong with pages of an RPC is that
            // there are too many.
            return Err(ENOMEM);
        }
        self.device = Some(device);

        // SAFETY: The caller guarantees that the MR is not registered; the table holds `mapped`
        // mapped entries.
        let placed =
            unsafe { sys::ib_map_mr_sg(mr, self.sg.as_mut_ptr(), mapped, ptr::null_mut(), PAGE) };
        if placed == mapped {
            return Ok(None);
        }
        if placed < 0 {
            self.unmap();
            to_result(placed)?;
            return Err(EIO);
        }
        // SAFETY: The caller guarantees that the MR is there.
        let octets = unsafe { (*mr).length };
        // The last one that was placed may not be there as a whole.
        Ok(Some(u32::try_from(octets).unwrap_or(0)))
    }

    /// Ends the DMA mapping; the CPU may then look at the memory.
    pub(super) fn unmap(&mut self) {
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
}
