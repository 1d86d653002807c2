// SPDX-License-Identifier: GPL-2.0

//! References to this module.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use crate::sys;

/// A reference to this module, which keeps it loaded.
///
/// Code of the module that drops the last reference returns into memory that may be gone. So it may
/// only do that if its caller keeps the module loaded. Objects that outlive their callers therefore
/// give their reference back from C, as the last thing they do (see `rust/sys/classes.c`).
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// Takes a reference. Returns [`None`] if the module is being unloaded.
    pub(crate) fn get() -> Option<Self> {
        // SAFETY: No preconditions.
        unsafe { sys::this_module_try_get() }.then_some(Self(()))
    }

    /// Leaves the reference to C code, which gives it back.
    pub(crate) fn leave_to_c(self) {
        core::mem::forget(self);
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: The object stands for one reference, taken by `get`.
        unsafe { sys::this_module_put() }
    }
}
