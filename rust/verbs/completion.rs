// SPDX-License-Identifier: GPL-2.0

//! Work completions and the queues they come from.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::observe::trace;
use crate::sys;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;

/// A completion as a handler sees it.
///
/// Only the status (and which work request it was) is to be trusted when the status is not success.
#[derive(Clone, Copy)]
pub(super) struct Completion {
    /// The C object; valid while the handler runs.
    wc: NonNull<sys::ib_wc>,
}

impl Completion {
    /// Wraps what a handler was called with.
    ///
    /// # Safety
    ///
    /// `wc` must be the completion with which the CQ core called a handler, and the result must not outlive
    /// that call.
    pub(super) unsafe fn from_raw(wc: *mut sys::ib_wc) -> Option<Self> {
        NonNull::new(wc).map(|wc| Self { wc })
    }

    /// Whether the work request succeeded.
    pub(super) fn ok(self) -> bool {
        self.status() == sys::ib_wc_status_IB_WC_SUCCESS
    }

    /// The status, as the device gave it.
    pub(super) fn status(self) -> sys::ib_wc_status {
        // SAFETY: Valid for the call, see `from_raw`.
        unsafe { (*self.wc.as_ptr()).status }
    }

    /// Raises the trace event of a completion without success.
    pub(super) fn trace_error(self, number: trace::Number, work: trace::Work) {
        // SAFETY: Valid for the call.
        let vendor_err = unsafe { (*self.wc.as_ptr()).vendor_err };
        trace::completion_error(number, work, self.status(), vendor_err);
    }

    /// Whether the work request was flushed, since its QP was in error.
    pub(super) fn flushed(self) -> bool {
        self.status() == sys::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// The work request's completion entry.
    pub(super) fn cqe(self) -> *mut sys::ib_cqe {
        // SAFETY: Valid for the call; kernel consumers always use the `wr_cqe` arm.
        unsafe { *(*self.wc.as_ptr()).__bindgen_anon_1.wr_cqe }
    }

    /// The QP, which may be gone: not to be followed.
    pub(super) fn qp(self) -> *const sys::ib_qp {
        // SAFETY: Valid for the call.
        unsafe { (*self.wc.as_ptr()).qp }
    }

    /// How many octets arrived, on success of a Receive.
    pub(super) fn byte_len(self) -> u32 {
        // SAFETY: Valid for the call.
        unsafe { (*self.wc.as_ptr()).byte_len }
    }

    /// The rkey that the peer's Send invalidated, on success of a Receive.
    pub(super) fn invalidated_rkey(self) -> Option<u32> {
        // SAFETY: Valid for the call; with the flag set the device filled this arm in.
        unsafe {
            let wc = self.wc.as_ptr();
            if (*wc).wc_flags & sys::ib_wc_flags_IB_WC_WITH_INVALIDATE as c_int != 0 {
                Some(*(*wc).ex.invalidate_rkey)
            } else {
                None
            }
        }
    }
}

/// A completion queue polled by the RDMA core from its workqueue, so that handlers may sleep.
///
/// # Invariants
///
/// The pointer is a CQ from `ib_alloc_cq_any`, not yet freed.
pub(super) struct CompletionQueue(NonNull<sys::ib_cq>);

// SAFETY: A CQ may be used from any context.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    /// Allocates a CQ of `entries` entries.
    ///
    /// # Safety
    ///
    /// `device` must stay registered, and `context` must stay valid for every handler of this CQ, until the
    /// value is dropped. No QP may use the CQ any more by then.
    pub(super) unsafe fn new(
        device: NonNull<sys::ib_device>,
        context: *mut c_void,
        entries: u32,
    ) -> Result<Self> {
        let entries = c_int::try_from(entries).map_err(|_| EINVAL)?;
        // SAFETY: The device is live; handlers find `context` valid.
        let cq = from_err_ptr(unsafe {
            sys::ib_alloc_cq_any(
                device.as_ptr(),
                context,
                entries,
                sys::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        })?;
        Ok(Self(NonNull::new(cq).ok_or(ENOMEM)?))
    }

    /// Waits until the completions were handled that are there, or a run of handlers was begun that will do it. Not to
    /// be called from a handler.
    pub(super) fn flush(&self) {
        // SAFETY: By the type invariant the CQ is live; it is polled from a work item.
        unsafe { sys::ib_cq_flush_work(self.0.as_ptr()) }
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut sys::ib_cq {
        self.0.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // Waits for a running handler, so a CQ is never dropped from one.
        // SAFETY: By the type invariant the CQ is ours and not yet freed; its QP is gone, as `new` demands.
        unsafe { sys::ib_free_cq(self.0.as_ptr()) };
    }
}
