// SPDX-License-Identifier: GPL-2.0

//! The names that most files use: those of the kernel's prelude, and more of the same kind.
//!
//! `use crate::kext::prelude::*;` takes the place of `use kernel::prelude::*;`.

// By their names: newer kernels have some of them in their prelude.
pub(crate) use crate::kext::errno::{
    EADDRINUSE,
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EBADSLT,
    ECONNABORTED,
    ECONNREFUSED,
    ECONNRESET,
    EHOSTUNREACH,
    ENETDOWN,
    ENETUNREACH,
    ENOBUFS,
    ENOKEY,
    ENOTCONN,
    EOPNOTSUPP,
    EPROTO,
    ESHUTDOWN, //
};
pub(crate) use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
pub(crate) use kernel::{
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        new_mutex,
        new_spinlock,
        Arc,
        ArcBorrow,
        Mutex,
        SpinLock, //
    }, //
};
