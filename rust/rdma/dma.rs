// SPDX-License-Identifier: GPL-2.0

//! Memory of our own that a device sends from or receives into.

use crate::kext::prelude::*;
use crate::{
    rdma::device::{
        Device,
        DeviceName, //
    },
    sys, //
};
use core::{
    cell::Cell,
    ptr,
    slice, //
};
use kernel::ffi::{
    c_int,
    c_void, //
};

/// Which way the data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    /// The device reads: Sends, and regions that the peer reads.
    ToDevice,
    /// The device writes: Receives, and regions that the peer writes.
    FromDevice,
}

impl Direction {
    /// As the DMA functions want it.
    pub(crate) fn as_raw(self) -> kernel::ffi::c_uint {
        match self {
            Direction::ToDevice => sys::RPCRDMA_DMA_TO_DEVICE,
            Direction::FromDevice => sys::RPCRDMA_DMA_FROM_DEVICE,
        }
    }
}

/// A buffer, mapped for one device. It is of whole pages that lie side by side: the slab has
/// nothing between two powers of two, and a message of Version Two is 12 KiB. A small buffer is the
/// slab's, see [`is_small`].
///
/// # Invariants
///
/// `ptr` comes from [`allocate`] for `len` bytes, which are initialised. If `mapped` is set,
/// `[ptr, len)` is mapped for that device at `address`.
pub(super) struct DmaBuffer {
    /// The memory.
    ptr: NonNull<u8>,
    /// Its size in octets.
    len: usize,
    /// Which way it is mapped.
    direction: Direction,
    /// The bus address, if it is mapped.
    address: u64,
    /// The device for which it is mapped.
    mapped: Cell<Option<Device>>,
}

// SAFETY: The memory is owned; the cell is written only by `unmap`, whose caller sees to it that
// nobody reads it meanwhile.
unsafe impl Send for DmaBuffer {}
// SAFETY: As above; shared references give out the bus address only, or are marked unsafe.
unsafe impl Sync for DmaBuffer {}

impl DmaBuffer {
    /// Allocates `len` bytes, zeroed, and maps them. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there are none, `ENODEV` if the device is going, `ENOMEM`.
    pub(super) fn new(device: &Device, len: usize, direction: Direction) -> Result<Self> {
        if len == 0 {
            return Err(EINVAL);
        }
        let device = device.try_clone().ok_or(ENODEV)?;
        let mut buffer = Self {
            ptr: allocate(len, device.node()).ok_or(ENOMEM)?,
            len,
            direction,
            address: 0,
            mapped: Cell::new(None),
        };
        // SAFETY: `[ptr, len)` is memory of the linear map that lives until the buffer is dropped,
        // which unmaps it before; the device is live.
        let address = unsafe {
            sys::ib_dma_map_single(
                device.as_ptr(),
                buffer.ptr.as_ptr().cast(),
                len,
                direction.as_raw(),
            )
        };
        // SAFETY: The device is live; the address was just returned for it.
        if unsafe { sys::ib_dma_mapping_error(device.as_ptr(), address) } != 0 {
            return Err(ENOMEM);
        }
        buffer.address = address;
        buffer.mapped.set(Some(device));
        Ok(buffer)
    }

    /// Ends the mapping, if there is one. The memory stays as it is: what a device has written is
    /// taken from it by [`Self::sync_for_cpu`], and a message that was may have been changed in
    /// place since, as krb5p does. To take it once more would undo that, where there are bounce
    /// buffers.
    ///
    /// # Safety
    ///
    /// The device must not use the buffer any more, and nobody else may ask for the address or sync
    /// the buffer at the same time. To read or write the memory is no conflict: it stays.
    pub(super) unsafe fn unmap(&self) {
        let Some(device) = self.mapped.take() else {
            return;
        };
        // SAFETY: The device is live.
        if unsafe { sys::ib_uses_virt_dma(device.as_ptr()) } {
            return;
        }
        // SAFETY: By the invariant, this is the mapping made by `new`, which the core has asked the
        // DMA device for; it is taken only once.
        unsafe {
            sys::dma_unmap_single_attrs(
                (*device.as_ptr()).dma_device,
                self.address,
                self.len,
                self.direction.as_raw(),
                sys::RPCRDMA_DMA_ATTR_SKIP_CPU_SYNC,
            )
        };
    }

    /// Returns the name of the device for which the buffer is mapped, if it is.
    ///
    /// # Safety
    ///
    /// Nobody unmaps the buffer at the same time.
    pub(super) unsafe fn device_name(&self) -> Option<DeviceName> {
        // SAFETY: The caller guarantees that it is not changed meanwhile.
        unsafe { (*self.mapped.as_ptr()).as_ref().map(Device::name) }
    }

    /// The bus address.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// The size in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The first `len` bytes, for reading.
    ///
    /// # Safety
    ///
    /// Neither the device nor anybody else may write to the buffer while there is the slice.
    pub(super) unsafe fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: The memory is initialised and at least that long; the caller excludes writers.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), len.min(self.len)) }
    }

    /// All bytes, for writing.
    ///
    /// # Safety
    ///
    /// Nobody else may look at the buffer while there is the slice, and no device write to it.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: The memory is initialised and `len` bytes long; the caller has it to itself.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }

    /// Hands the first `len` bytes to the device.
    ///
    /// # Safety
    ///
    /// Nobody unmaps the buffer at the same time. One that is not mapped is left alone.
    pub(super) unsafe fn sync_for_device(&self, len: usize) {
        // SAFETY: The caller guarantees that it is not changed meanwhile.
        if let Some(device) = unsafe { (*self.mapped.as_ptr()).as_ref() } {
            // SAFETY: The range lies within the mapping.
            unsafe {
                sys::ib_dma_sync_single_for_device(
                    device.as_ptr(),
                    self.address,
                    len.min(self.len),
                    self.direction.as_raw(),
                )
            };
        }
    }

    /// Takes the first `len` bytes back from the device.
    ///
    /// # Safety
    ///
    /// Nobody unmaps the buffer at the same time. One that is not mapped is left alone.
    pub(super) unsafe fn sync_for_cpu(&self, len: usize) {
        // SAFETY: The caller guarantees that it is not changed meanwhile.
        if let Some(device) = unsafe { (*self.mapped.as_ptr()).as_ref() } {
            // SAFETY: The range lies within the mapping.
            unsafe {
                sys::ib_dma_sync_single_for_cpu(
                    device.as_ptr(),
                    self.address,
                    len.min(self.len),
                    self.direction.as_raw(),
                )
            };
        }
    }
}

impl Drop for DmaBuffer {
    fn drop(&mut self) {
        // SAFETY: Nobody has the buffer any more.
        unsafe { self.unmap() };
        // SAFETY: By the type invariant it was allocated so, and nobody has it any more.
        unsafe { free(self.ptr, self.len) };
    }
}

/// Returns whether a buffer of `len` octets is the slab's: if it leaves half of a page unused, or
/// more. A page may be of 64 KiB, and there are some hundred buffers for each connection.
const fn is_small(len: usize) -> bool {
    len <= PAGE_SIZE / 2
}

/// Allocates `len` bytes, not none, all zero, on a node if there are any. Sleeps. A connection that
/// gets none does without, and says so: there is no need for the log to.
fn allocate(len: usize, node: c_int) -> Option<NonNull<u8>> {
    let flags = sys::GFP_KERNEL | sys::__GFP_ZERO | sys::__GFP_NOWARN;
    let ptr = if is_small(len) {
        // SAFETY: It may sleep here.
        unsafe { sys::kmalloc_node(len, flags, node) }
    } else {
        allocate_pages(len, node, flags)
    };
    NonNull::new(ptr.cast())
}

/// Allocates the pages for `len` bytes, not none, side by side on a node if there are any. They are
/// freed by `free_pages_exact`, as those of `alloc_pages_exact`, which knows no nodes. Sleeps.
fn allocate_pages(len: usize, node: c_int, flags: sys::gfp_t) -> *mut c_void {
    let count = len.div_ceil(PAGE_SIZE);
    let order = count.next_power_of_two().trailing_zeros();
    // SAFETY: It may sleep here.
    let page = unsafe { sys::alloc_pages_node(node, flags, order) };
    if page.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: They were just allocated in that order, as no compound page, and have an address
    // since `flags` ask for no high memory.
    let address = unsafe {
        sys::split_page(page, order);
        sys::page_address(page)
    };
    let surplus = ((1 << order) - count) * PAGE_SIZE;
    if surplus > 0 {
        // SAFETY: These are the last pages of them, which nobody uses.
        unsafe { sys::free_pages_exact(address.byte_add(count * PAGE_SIZE), surplus) };
    }
    address
}

/// Frees what [`allocate`] has allocated.
///
/// # Safety
///
/// `ptr` comes from there, for the same `len`, and is not used any more.
unsafe fn free(ptr: NonNull<u8>, len: usize) {
    let ptr = ptr.as_ptr().cast();
    if is_small(len) {
        // SAFETY: The caller guarantees it; for this length it came from `kmalloc`.
        unsafe { sys::kfree(ptr) }
    } else {
        // SAFETY: The caller guarantees it; for this length it came from `allocate_pages`.
        unsafe { sys::free_pages_exact(ptr, len) }
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_dma)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_as_long_as_asked_for_and_zero() -> Result {
        for len in [
            1,
            1024,
            PAGE_SIZE / 2,
            PAGE_SIZE / 2 + 1,
            PAGE_SIZE,
            12 << 10,
        ] {
            // No node in particular.
            let memory = allocate(len, -1).ok_or(ENOMEM)?;
            // SAFETY: It is as long, and nobody else knows it.
            let bytes = unsafe { slice::from_raw_parts_mut(memory.as_ptr(), len) };
            assert!(bytes.iter().all(|octet| *octet == 0));
            bytes.fill(0xa5);
            // SAFETY: It was just allocated, for the same length.
            unsafe { free(memory, len) };
        }
        Ok(())
    }

    #[test]
    fn only_what_would_waste_half_a_page_is_the_slabs() {
        assert!(is_small(PAGE_SIZE / 2));
        assert!(!is_small(PAGE_SIZE / 2 + 1));
        assert!(!is_small(3 * PAGE_SIZE));
    }
}
