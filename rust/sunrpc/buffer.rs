// SPDX-License-Identifier: GPL-2.0

//! Memory that an RPC is encoded into or decoded from.

use crate::{
    kext::memalloc,
    sys, //
};
use core::ptr;
use kernel::{
    alloc::Flags,
    prelude::*, //
};

/// Zeroed memory from `kmalloc`. It has a `struct page`, and so may be registered with a device.
///
/// # Invariants
///
/// `ptr` is an allocation of at least `size` bytes, or null, and then `size` is zero.
pub(super) struct Buffer {
    /// The memory.
    ptr: *mut u8,
    /// The number of bytes that may be used.
    size: usize,
}

// SAFETY: The memory belongs to the object, and to no thread.
unsafe impl Send for Buffer {}

// SAFETY: With a shared reference only `ptr` and `size` can be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `size` bytes.
    pub(super) fn new(size: usize, flags: Flags) -> Result<Self> {
        let memory: KVec<u8> = memalloc::zeroed(size, flags)?;
        if size == 0 {
            return Ok(Self {
                ptr: ptr::null_mut(),
                size: 0,
            });
        }
        let (ptr, _, _) = memory.into_raw_parts();
        // INVARIANT: The vector had at least `size` elements.
        Ok(Self { ptr, size })
    }

    /// Makes the memory at least `size` bytes long. Returns by how many bytes it grew.
    ///
    /// If it grows, the former memory is freed, and its contents are lost.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; then nothing has changed.
    pub(super) fn ensure(&mut self, size: usize, gfp: sys::gfp_t) -> Result<usize> {
        if self.size >= size {
            return Ok(0);
        }
        // SAFETY: No preconditions; `gfp` says what the caller may do in its context.
        let ptr = unsafe { sys::kmalloc(size, gfp | sys::__GFP_ZERO) };
        if ptr.is_null() {
            return Err(ENOMEM);
        }
        let grown = size - self.size;
        self.free();
        // INVARIANT: `ptr` is an allocation of `size` bytes.
        self.ptr = ptr.cast();
        self.size = size;
        Ok(grown)
    }

    /// Returns the memory, for C code.
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Returns the number of bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Gives the memory back.
    fn free(&mut self) {
        // SAFETY: `ptr` comes from `kmalloc` or is null, by the invariant, and is replaced or
        // dropped by all callers.
        unsafe { sys::kfree(self.ptr.cast()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_buffer)]
mod tests {
    use super::*;

    #[test]
    fn grows_and_never_shrinks() -> Result {
        let mut b = Buffer::new(100, GFP_KERNEL)?;
        assert_eq!(b.size(), 100);
        assert_eq!(b.ensure(60, sys::GFP_KERNEL)?, 0);
        assert_eq!(b.size(), 100);
        assert_eq!(b.ensure(5000, sys::GFP_KERNEL)?, 4900);
        assert_eq!(b.size(), 5000);
        Ok(())
    }

    #[test]
    fn new_memory_is_zeroed() -> Result {
        // The next allocation of that size is likely to get the memory that is freed here.
        let dirty = Buffer::new(5000, GFP_KERNEL)?;
        // SAFETY: The buffer has 5000 bytes, and only this test uses it.
        unsafe { dirty.as_ptr().write_bytes(0xff, 5000) };
        drop(dirty);
        let mut b = Buffer::new(16, GFP_KERNEL)?;
        b.ensure(5000, sys::GFP_KERNEL)?;
        // SAFETY: `ensure` has made the buffer 5000 bytes long, all of them zeroed, and only this
        // test uses it.
        let bytes = unsafe { core::slice::from_raw_parts(b.as_ptr(), 5000) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        Ok(())
    }

    #[test]
    fn empty_buffer_can_grow() -> Result {
        let mut b = Buffer::new(0, GFP_KERNEL)?;
        assert_eq!(b.size(), 0);
        assert!(b.as_ptr().is_null());
        assert_eq!(b.ensure(8, sys::GFP_KERNEL)?, 8);
        assert!(!b.as_ptr().is_null());
        Ok(())
    }
}
