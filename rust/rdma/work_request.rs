// SPDX-License-Identifier: GPL-2.0

//! Empty work requests, and other parameters of the kind.

use crate::sys;
use core::mem::{
    ManuallyDrop,
    MaybeUninit, //
};

/// A C struct of which all zeroes is a valid value.
///
/// # Safety
///
/// Every member must accept all zeroes: integers, raw pointers, enums bound as integers, and unions
/// of those.
pub(crate) unsafe trait PlainRequest: Sized {
    /// The value with every octet zero.
    fn zeroed() -> Self {
        // SAFETY: The implementer vouches that all zeroes is valid.
        unsafe { MaybeUninit::zeroed().assume_init() }
    }
}

// SAFETY: Pointers, integers, and unions of those.
unsafe impl PlainRequest for sys::ib_send_wr {}
// SAFETY: As above.
unsafe impl PlainRequest for sys::ib_recv_wr {}
// SAFETY: An `ib_send_wr`, a pointer and two integers.
unsafe impl PlainRequest for sys::ib_reg_wr {}

// SAFETY: Integers, pointers, and unions of those.
unsafe impl PlainRequest for sys::ib_qp_attr {}

// SAFETY: Integers, pointers, and a union of structures of those.
unsafe impl PlainRequest for sys::ib_srq_init_attr {}

/// Sets the handler of the completion of a Send Queue work request.
pub(crate) fn set_send_cqe(wr: &mut sys::ib_send_wr, cqe: *mut sys::ib_cqe) {
    wr.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe);
}

/// Sets the handler of the completion of a Receive.
pub(crate) fn set_receive_cqe(wr: &mut sys::ib_recv_wr, cqe: *mut sys::ib_cqe) {
    wr.__bindgen_anon_1.wr_cqe = ManuallyDrop::new(cqe);
}
