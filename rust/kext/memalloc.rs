// SPDX-License-Identifier: GPL-2.0

//! How allocations of the current thread may come by their memory.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use crate::sys;
use core::marker::PhantomData;
use core::ptr;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::alloc::{AllocError, Allocator, Flags, Vec};
use kernel::ffi::c_uint;

/// A vector of `len` octets, all zero. The allocator clears them, which [`Vec::from_elem`] does one by one.
///
/// # Errors
///
/// If there is no memory.
pub(crate) fn zeroed<A: Allocator>(len: usize, flags: Flags) -> Result<Vec<u8, A>, AllocError> {
    let mut bytes = Vec::with_capacity(len, flags | __GFP_ZERO)?;
    // SAFETY: There is room for `len`, and what was just allocated is zero.
    unsafe { bytes.inc_len(len) };
    Ok(bytes)
}

/// Puts `more` behind the octets of a vector if there is room for it without another allocation. Returns whether there
/// was.
pub(crate) fn append<A: Allocator>(bytes: &mut Vec<u8, A>, more: &[u8]) -> bool {
    let room = bytes.spare_capacity_mut();
    if more.len() > room.len() {
        return false;
    }
    // SAFETY: The room is longer than that, and nobody else's. Copied at once, which `extend_from_slice` does one by one.
    unsafe {
        ptr::copy_nonoverlapping(more.as_ptr(), room.as_mut_ptr().cast(), more.len());
        bytes.inc_len(more.len());
    }
    true
}

/// While it lives, allocations of the current thread do not reclaim memory by means of a filesystem.
///
/// For work that a filesystem waits for: it would wait for itself.
pub(crate) struct NoFs {
    /// The flags of the thread before, as far as they matter here.
    old: c_uint,
    /// Belongs to the thread that made it.
    _not_send: PhantomData<*mut ()>,
}

impl NoFs {
    /// Enters the scope.
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: Changes a flag of the current thread only.
            old: unsafe { sys::memalloc_nofs_save() },
            _not_send: PhantomData,
        }
    }
}

impl Drop for NoFs {
    fn drop(&mut self) {
        // SAFETY: The thread is the one that called `memalloc_nofs_save`, because `Self` is not
        // `Send`.
        unsafe { sys::memalloc_nofs_restore(self.old) }
    }
}

/// While it lives, allocations of the current thread may use the reserves and do not reclaim.
///
/// For work that memory reclaim itself waits for: connecting a transport that carries swap.
pub(crate) struct NoReclaim {
    /// The flags of the thread before, as far as they matter here.
    old: c_uint,
    /// Belongs to the thread that made it.
    _not_send: PhantomData<*mut ()>,
}

impl NoReclaim {
    /// Enters the scope if `wanted`.
    pub(crate) fn enter_if(wanted: bool) -> Option<Self> {
        wanted.then(|| Self {
            // SAFETY: Changes a flag of the current thread only.
            old: unsafe { sys::memalloc_noreclaim_save() },
            _not_send: PhantomData,
        })
    }
}

impl Drop for NoReclaim {
    fn drop(&mut self) {
        // SAFETY: The thread is the one that called `memalloc_noreclaim_save`, because `Self` is
        // not `Send`.
        unsafe { sys::memalloc_noreclaim_restore(self.old) }
    }
}
