// SPDX-License-Identifier: GPL-2.0

//! Shared Receive Queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    rdma::{
        completion::CompletionQueue,
        protection_domain::ProtectionDomain,
        work_request::PlainRequest, //
    },
    sys, //
};
use core::ptr::NonNull;
use kernel::{
    error::from_err_ptr,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    }, //
};

/// A Shared Receive Queue, with a CQ for its Receives. A QP that uses it holds a reference to it.
///
/// # Invariants
///
/// `srq` is an SRQ in `pd`, not yet destroyed, whose event context is `failed`.
pub(crate) struct SharedReceiveQueue {
    /// The C object.
    srq: NonNull<sys::ib_srq>,
    /// The CQ for its Receives, which goes after it.
    queue: CompletionQueue,
    /// The PD, which goes after both.
    pd: Arc<ProtectionDomain>,
    /// Set when the device has reported that the SRQ has failed.
    failed: Arc<Atomic<bool>>,
}

// SAFETY: An SRQ belongs to no thread.
unsafe impl Send for SharedReceiveQueue {}

// SAFETY: The verbs on an SRQ may be called from any context at the same time.
unsafe impl Sync for SharedReceiveQueue {}

impl SharedReceiveQueue {
    /// Makes an SRQ for at most `depth` Receives of one element each.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device cannot have one as large, `ENOMEM`, or what the device reports.
    pub(crate) fn new(pd: Arc<ProtectionDomain>, depth: u32) -> Result<Arc<Self>> {
        let queue = CompletionQueue::own(pd.device(), depth)?;
        let failed = Arc::new(Atomic::new(false), GFP_KERNEL)?;
        let mut attributes = sys::ib_srq_init_attr {
            event_handler: Some(Self::event_callback),
            srq_context: Arc::as_ptr(&failed).cast_mut().cast(),
            attr: sys::ib_srq_attr {
                max_wr: depth,
                max_sge: 1,
                srq_limit: 0,
            },
            srq_type: sys::ib_srq_type_IB_SRQT_BASIC,
            ..sys::ib_srq_init_attr::zeroed()
        };
        // SAFETY: The PD exists as long as there is the reference to it. The context lives as long
        // as the SRQ.
        let srq = from_err_ptr(unsafe { sys::ib_create_srq(pd.as_ptr(), &raw mut attributes) })?;
        let srq = NonNull::new(srq).ok_or(ENOMEM)?;
        // INVARIANT: It was just made. Without memory for the `Arc`, `Drop` destroys it.
        Ok(Arc::new(
            Self {
                srq,
                queue,
                pd,
                failed,
            },
            GFP_KERNEL,
        )?)
    }

    /// Takes note of an event.
    ///
    /// # Safety
    ///
    /// Called by a device for an SRQ made by [`Self::new`], in any context, also with interrupts
    /// off.
    unsafe extern "C" fn event_callback(
        event: *mut sys::ib_event,
        context: *mut kernel::ffi::c_void,
    ) {
        // SAFETY: The event exists during the call.
        if unsafe { (*event).event } == sys::ib_event_type_IB_EVENT_SRQ_ERR {
            // SAFETY: `new` has set the context, and the SRQ is destroyed before that is dropped.
            // The device reports nothing any more when it is destroyed.
            unsafe { &*context.cast_const().cast::<Atomic<bool>>() }.store(true, Relaxed);
        }
    }

    /// Returns whether the device has reported that the SRQ has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Waits until the completions that are in its CQ were handled. Must not be called by a
    /// handler.
    pub(crate) fn flush(&self) {
        self.queue.flush();
    }

    /// Returns the PD.
    pub(crate) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the CQ for its Receives.
    pub(super) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Returns the C object.
    pub(crate) fn as_ptr(&self) -> *mut sys::ib_srq {
        self.srq.as_ptr()
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the SRQ exists. QPs that use it hold a reference, so there
        // are none.
        unsafe { sys::ib_destroy_srq(self.srq.as_ptr()) };
    }
}
