// SPDX-License-Identifier: GPL-2.0

//! Where other modules come from: were they built with the kernel, or by somebody else?
//!
//! C headers: [`include/linux/module.h`](srctree/include/linux/module.h),
//! [`include/linux/kobject.h`](srctree/include/linux/kobject.h)

use crate::kext::prelude::*;
use crate::sys;

/// Returns whether a module is loaded that was not built with the kernel, under the name of one of
/// the kernel's modules.
///
/// The kernel itself keeps this with each module: `O` in `/sys/module/NAME/taint`. What is built
/// into the kernel is its own. So is every module of a kernel without sysfs, where this is not
/// known.
pub(crate) fn is_foreign(name: &CStr) -> bool {
    // The directory of all modules in sysfs, by way of the module's own entry: C modules can't name
    // it.
    // SAFETY: This module is loaded, and the pointer stays as it is as long as it is.
    let modules = unsafe { (*sys::this_module()).mkobj.kobj.kset };
    if modules.is_null() {
        return false;
    }
    // SAFETY: `modules` is a valid kset, which is never freed, and `name` a string of C.
    let entry = unsafe { sys::kset_find_obj(modules, name.as_char_ptr()) };
    if entry.is_null() {
        return false;
    }
    // SAFETY: All that is in this directory are `module_kobject`s.
    let module = unsafe { (*kernel::container_of!(entry, sys::module_kobject, kobj)).mod_ };
    // What is built in has an entry, but is no module.
    let foreign = !module.is_null() && {
        // SAFETY: A module is not freed before the last reference to its entry is gone; there is
        // one here. The flags may change meanwhile, but this one is set before the entry is made.
        let taints = unsafe { (&raw const (*module).taints).read_volatile() };
        taints & (1 << sys::TAINT_OOT_MODULE) != 0
    };
    // SAFETY: `kset_find_obj` took a reference.
    unsafe { sys::kobject_put(entry) };
    foreign
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_kext_origin)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_built_with_the_kernel_is_foreign() {
        // As this very module, wherever it was built.
        assert!(is_foreign(c"rpcrdma"));
    }

    #[test]
    fn what_is_built_in_is_not() {
        // It has an entry, for its parameters.
        assert!(!is_foreign(c"printk"));
    }

    #[test]
    fn what_is_not_there_is_not() {
        assert!(!is_foreign(c"no_such_module"));
    }
}
