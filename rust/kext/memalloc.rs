// SPDX-License-Identifier: GPL-2.0

//! Scopes that restrict how the current thread allocates memory, and vectors of octets.
//!
//! C header: [`include/linux/sched/mm.h`](srctree/include/linux/sched/mm.h)

use crate::kext::prelude::*;
use crate::sys;
use core::ptr;
use kernel::{
    alloc::{
        flags::__GFP_ZERO,
        AllocError,
        Allocator,
        Flags,
        Vec, //
    },
    ffi::c_uint, //
};

/// Makes a vector of `len` zero octets. The allocator clears them at once; [`Vec::from_elem`]
/// writes them one by one.
///
/// # Errors
///
/// `AllocError` if there is no memory.
pub(crate) fn zeroed<A: Allocator>(len: usize, flags: Flags) -> Result<Vec<u8, A>, AllocError> {
    let mut bytes = Vec::with_capacity(len, flags | __GFP_ZERO)?;
    // SAFETY: There is room for `len` octets, and they were allocated with `__GFP_ZERO`, so they
    // are initialised.
    unsafe { bytes.inc_len(len) };
    Ok(bytes)
}

/// Appends `more` to a vector if it has room without another allocation. Returns whether it had.
pub(crate) fn append<A: Allocator>(bytes: &mut Vec<u8, A>, more: &[u8]) -> bool {
    let room = bytes.spare_capacity_mut();
    if more.len() > room.len() {
        return false;
    }
    // SAFETY: `room` is at least as long as `more`, and borrowed exclusively, so they do not
    // overlap. The octets are initialised by the copy. (`extend_from_slice` would copy them one by
    // one.)
    unsafe {
        ptr::copy_nonoverlapping(more.as_ptr(), room.as_mut_ptr().cast(), more.len());
        bytes.inc_len(more.len());
    }
    true
}

/// A scope in which allocations of the current thread do not reclaim memory by means of a
/// filesystem.
///
/// It is for work that a filesystem waits for: such an allocation could wait for itself.
pub(crate) struct NoFs {
    /// The former state of the thread's flag that the scope sets.
    old: c_uint,
    /// Marker that makes the type not `Send`: the scope belongs to the thread that entered it.
    _not_send: PhantomData<*mut ()>,
}

impl NoFs {
    /// Enters the scope.
    pub(crate) fn enter() -> Self {
        Self {
            // SAFETY: No preconditions; this changes a flag of the current thread only.
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

/// A scope in which allocations of the current thread may use the reserves and do not reclaim.
///
/// It is for work that memory reclaim itself waits for: connecting a transport that carries swap.
pub(crate) struct NoReclaim {
    /// The former state of the thread's flag that the scope sets.
    old: c_uint,
    /// Marker that makes the type not `Send`: the scope belongs to the thread that entered it.
    _not_send: PhantomData<*mut ()>,
}

impl NoReclaim {
    /// Enters the scope if `wanted`.
    pub(crate) fn enter_if(wanted: bool) -> Option<Self> {
        wanted.then(|| Self {
            // SAFETY: No preconditions; this changes a flag of the current thread only.
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
