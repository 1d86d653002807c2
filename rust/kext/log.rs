// SPDX-License-Identifier: GPL-2.0

//! Log lines at debug level, which dynamic debug turns on and off.
//!
//! C file: `rust/sys/log.c`, which describes when they are printed.

use crate::sys;
use kernel::{
    fmt,
    prelude::*, //
};

/// Prints a line, and adds the end of the line. May be called from any context.
pub(crate) fn debug(arguments: fmt::Arguments<'_>) {
    // SAFETY: C passes the pointer to `printk` for the specifier `%pA`, which expects a pointer to
    // `fmt::Arguments`. The arguments outlive the call.
    unsafe { sys::rpcrdma_log_debug(core::ptr::from_ref(&arguments).cast::<c_void>()) };
}

/// Prints a line at debug level: a format and its arguments, without the end of the line.
macro_rules! log_debug {
    ($($arg:tt)*) => {
        $crate::kext::log::debug(::kernel::prelude::fmt!($($arg)*))
    };
}
pub(crate) use log_debug;
