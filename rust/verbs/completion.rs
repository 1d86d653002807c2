// SPDX-License-Identifier: GPL-2.0

//! Work completions and the queues they come from.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! # Whose a completion is
//!
//! A CQ of the kernel's pool has work requests of many connections, and of other modules. So a handler knows nothing
//! but the completion entry that the work request named, a [`CompletionEntry`], which says whose it is.
//!
//! # Who owns what, and what ends it
//!
//! An entry is part of what is posted (a Send buffer, a Receive buffer, a region, a place for Reads) or of the endpoint,
//! and an endpoint is kept by its owner until nothing of it can complete any more. That is brought about without the CQ,
//! which outlives us all, even the module:
//!
//! 1. The gates are closed: nothing is posted any more.
//! 2. The QP is put into its error state, and a marker is posted to each queue that is not shared; when it has completed,
//!    so has what was posted before it. A device may lose a completion, or let the marker overtake others.
//! 3. The QP is destroyed, which ends what the device may still have to complete: whatever there will ever be is in the CQ
//!    now, and the work item that polls it is running or due.
//! 4. That is waited for ([`CompletionQueue::flush`]), and then the places in the CQ are given back.
//!
//! Because handlers of all connections take turns on a CQ, none of them may wait for something that comes about by another
//! completion, of whatever connection; nor for a lock that is held while somebody waits for one. Such are the mutex of an
//! endpoint's verbs objects and `turnover` of a pool of Receives. For memory a handler waits in `NOFS` scopes only.

use crate::observe::trace;
use crate::sys;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::{Arc, ArcBorrow};

/// What the CQ core calls for a completion.
pub(super) type Handler = unsafe extern "C" fn(*mut sys::ib_cq, *mut sys::ib_wc);

/// What a work request names to be told of its completion, and whose it is.
///
/// # Invariants
///
/// `owner` is null, or the pointer of an [`Arc`] given to [`Self::belongs_to`].
#[repr(C)]
pub(super) struct CompletionEntry {
    /// The C object. First, so that its address is that of the entry.
    cqe: sys::ib_cqe,
    /// Whose it is. Written before the entry is posted for the first time.
    owner: Cell<*const c_void>,
}

// SAFETY: The owner is named, not kept; who follows the pointer vouches for it.
unsafe impl Send for CompletionEntry {}
// SAFETY: As above. `belongs_to` is called before anybody else knows the entry.
unsafe impl Sync for CompletionEntry {}

impl CompletionEntry {
    /// An entry of nobody's yet, for completions that `handler` is called for.
    pub(super) const fn new(handler: Handler) -> Self {
        // INVARIANT: No owner.
        Self {
            cqe: sys::ib_cqe {
                done: Some(handler),
            },
            owner: Cell::new(ptr::null()),
        }
    }

    /// From now on it is `owner`'s. Nobody else knows the entry yet.
    pub(super) fn belongs_to<O>(&self, owner: &Arc<O>) {
        // INVARIANT: The pointer of an `Arc`.
        self.owner.set(Arc::as_ptr(owner).cast());
    }

    /// The C object, for a work request.
    pub(super) fn as_ptr(&self) -> *mut sys::ib_cqe {
        ptr::from_ref(self).cast_mut().cast()
    }
}

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
    pub(super) fn entry(self) -> *mut CompletionEntry {
        // SAFETY: Valid for the call; kernel consumers always use the `wr_cqe` arm.
        let cqe: *mut sys::ib_cqe = unsafe { *(*self.wc.as_ptr()).__bindgen_anon_1.wr_cqe };
        cqe.cast()
    }

    /// Whose completion entry it is.
    ///
    /// # Safety
    ///
    /// The handler belongs to entries of this module only, whose owners are `O`s. Somebody keeps the entry and its owner
    /// until its completions have been handled.
    pub(super) unsafe fn owner<'a, O>(self) -> ArcBorrow<'a, O> {
        // SAFETY: The caller guarantees that there is an entry around the C object.
        let owner = unsafe { (*self.entry()).owner.get() };
        // SAFETY: By the type invariant it is that of an `Arc`, since what was posted has an owner; the caller
        // guarantees its type, and that it stays.
        unsafe { ArcBorrow::from_raw(owner.cast()) }
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

/// Places in a completion queue that the RDMA core polls from its workqueue, so that handlers may sleep.
///
/// # Invariants
///
/// The CQ is live. If `shared` is set it is of the device's pool, which gave us `entries` places; else it is ours.
pub(super) struct CompletionQueue {
    /// The C object.
    cq: NonNull<sys::ib_cq>,
    /// How many places we have.
    entries: u32,
    /// Whether others have places in it.
    shared: bool,
}

// SAFETY: A CQ may be used from any context.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    /// Takes `entries` places in a CQ of the device's pool: as many as there may be work requests at once whose
    /// completions go there.
    ///
    /// # Errors
    ///
    /// `EINVAL` if no CQ of the device has so many places, `ENOMEM`, or what the device reports.
    ///
    /// # Safety
    ///
    /// `device` stays registered until the value is dropped. No QP uses the CQ for us any more by then.
    pub(super) unsafe fn shared(device: NonNull<sys::ib_device>, entries: u32) -> Result<Self> {
        // SAFETY: The device is live; its attributes do not change after registration.
        let most = unsafe { (*device.as_ptr()).attrs.max_cqe };
        // The pool does not look, and would make one CQ after the other.
        if i64::from(entries) > i64::from(most) {
            return Err(EINVAL);
        }
        // SAFETY: The device is live. It chooses the completion vector, each in turn.
        let cq = from_err_ptr(unsafe {
            sys::ib_cq_pool_get(
                device.as_ptr(),
                entries,
                -1,
                sys::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        })?;
        // INVARIANT: It came from the pool.
        Ok(Self {
            cq: NonNull::new(cq).ok_or(ENOMEM)?,
            entries,
            shared: true,
        })
    }

    /// Allocates a CQ of `entries` places.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too large, `ENOMEM`, or what the device reports.
    ///
    /// # Safety
    ///
    /// As for [`Self::shared`].
    pub(super) unsafe fn own(device: NonNull<sys::ib_device>, entries: u32) -> Result<Self> {
        // SAFETY: The device is live.
        let cq = from_err_ptr(unsafe {
            sys::ib_alloc_cq_any(
                device.as_ptr(),
                ptr::null_mut(),
                c_int::try_from(entries)?,
                sys::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        })?;
        // INVARIANT: We have just allocated it.
        Ok(Self {
            cq: NonNull::new(cq).ok_or(ENOMEM)?,
            entries,
            shared: false,
        })
    }

    /// Waits until the completions were handled that are there. Not to be called from a handler.
    pub(super) fn flush(&self) {
        // Whoever puts a completion into a CQ that is not being polled makes its work item due. If it is due now, its next
        // run finds all that is there. If it is running it may have looked already, but then it makes itself due again
        // when it finds more at its end. So the second time is for what came while it ran.
        for _ in 0..2 {
            // SAFETY: By the type invariant the CQ is live; it is polled from a work item.
            unsafe { sys::ib_cq_flush_work(self.cq.as_ptr()) };
        }
    }

    /// The C object.
    pub(super) fn as_ptr(&self) -> *mut sys::ib_cq {
        self.cq.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // Either way no handler runs for us any more when this returns.
        if self.shared {
            self.flush();
            // SAFETY: By the type invariant these places are ours; our QPs are gone, as `shared` demands.
            unsafe { sys::ib_cq_pool_put(self.cq.as_ptr(), self.entries) };
        } else {
            // SAFETY: By the type invariant the CQ is ours and not yet freed; its QPs are gone, as `own` demands.
            unsafe { sys::ib_free_cq(self.cq.as_ptr()) };
        }
    }
}
