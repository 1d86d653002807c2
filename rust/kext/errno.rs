// SPDX-License-Identifier: GPL-2.0

//! Error codes that the `kernel` crate of older kernels does not name.
//!
//! C headers: [`include/uapi/asm-generic/errno.h`](srctree/include/uapi/asm-generic/errno.h)

use crate::sys;
use core::num::NonZeroI32;
use kernel::error::Error;

/// Defines constants for codes of the C headers.
macro_rules! errors {
    ($($code:ident)*) => {
        $(
            #[doc = concat!("`", stringify!($code), "`.")]
            pub(crate) const $code: Error = error(sys::$code);
        )*
    };
}

errors! {
    EADDRINUSE
    EADDRNOTAVAIL
    EAFNOSUPPORT
    EBADSLT
    ECONNABORTED
    ECONNREFUSED
    ECONNRESET
    EHOSTUNREACH
    ENETDOWN
    ENETUNREACH
    ENOBUFS
    ENOKEY
    ENOTCONN
    EOPNOTSUPP
    EPROTO
    ESHUTDOWN
}

/// Returns the error of a code. `Error::from_errno` does the same, but not in a constant.
const fn error(code: u32) -> Error {
    assert!(code != 0 && code <= sys::MAX_ERRNO);
    let Some(errno) = NonZeroI32::new(-(code as i32)) else {
        panic!();
    };
    // SAFETY: An `Error` is a single `NonZeroI32` in a range that was just checked. `transmute`
    // checks that both types have the same size, so the number is at the same place in both.
    unsafe { core::mem::transmute::<NonZeroI32, Error>(errno) }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_kext_errno)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_c() {
        for (error, code) in [
            (EADDRNOTAVAIL, -99),
            (EBADSLT, -57),
            (ECONNREFUSED, -111),
            (ENOTCONN, -107),
            (EPROTO, -71),
        ] {
            assert_eq!(error.to_errno(), code);
            assert_eq!(error, Error::from_errno(code));
        }
    }
}
