// SPDX-License-Identifier: GPL-2.0

//! Work completions and the queues they come from.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! A CQ of the kernel's pool has work requests of many connections, and of other modules. So a
//! handler knows nothing but the completion entry that the work request named: that of a
//! [`Posting`](crate::rdma::posting::Posting), which says whose it is, and how long it stays.
//!
//! Because handlers of all connections take turns on a CQ, none of them may wait for something that
//! comes about by another completion, of whatever connection; nor for a lock that is held while
//! somebody waits for one. Such is the mutex of an endpoint's verbs objects. For memory a handler
//! waits in `NOFS` scopes only.

use crate::kext::prelude::*;
use crate::{
    rdma::device::Device,
    sys, //
};
use core::ptr;

/// A completion as a handler sees it.
///
/// Only the status (and which work request it was) may be trusted when the status is not success.
#[derive(Clone, Copy)]
pub(crate) struct Completion<'a>(&'a sys::ib_wc);

impl<'a> Completion<'a> {
    /// As the CQ core gives it to a handler.
    pub(super) fn of(wc: &'a sys::ib_wc) -> Self {
        Self(wc)
    }

    /// Returns whether the work request succeeded.
    pub(crate) fn ok(self) -> bool {
        self.status() == sys::ib_wc_status_IB_WC_SUCCESS
    }

    /// Returns the status, as the device gave it.
    pub(crate) fn status(self) -> sys::ib_wc_status {
        self.0.status
    }

    /// Returns the vendor's error code of a completion without success.
    pub(crate) fn vendor_err(self) -> u32 {
        self.0.vendor_err
    }

    /// Returns whether the work request was flushed, since its QP was in error.
    pub(crate) fn flushed(self) -> bool {
        self.status() == sys::ib_wc_status_IB_WC_WR_FLUSH_ERR
    }

    /// Returns whether the device has refused what has come for a Receive, above all since it is
    /// longer than that. The other two are what rxe says then.
    pub(crate) fn is_refused(self) -> bool {
        matches!(
            self.status(),
            sys::ib_wc_status_IB_WC_LOC_LEN_ERR
                | sys::ib_wc_status_IB_WC_REM_INV_REQ_ERR
                | sys::ib_wc_status_IB_WC_LOC_QP_OP_ERR
        )
    }

    /// Returns the work request's completion entry.
    pub(super) fn entry(self) -> *mut sys::ib_cqe {
        // SAFETY: Kernel consumers always use this arm.
        unsafe { *self.0.__bindgen_anon_1.wr_cqe }
    }

    /// Returns the QP, which may be gone: not to be followed.
    pub(super) fn qp(self) -> *const sys::ib_qp {
        self.0.qp
    }

    /// Returns whether a message arrived, on success of a Receive. An RDMA Write with immediate
    /// data uses up a Receive too, and puts nothing into its buffer.
    pub(crate) fn is_message(self) -> bool {
        self.0.opcode == sys::ib_wc_opcode_IB_WC_RECV
    }

    /// Returns the number of octets that arrived, on success of a Receive.
    pub(crate) fn byte_len(self) -> u32 {
        self.0.byte_len
    }

    /// Returns the rkey that the peer's Send invalidated, on success of a Receive.
    pub(crate) fn invalidated_rkey(self) -> Option<u32> {
        let flag = sys::ib_wc_flags_IB_WC_WITH_INVALIDATE as c_int;
        // SAFETY: With the flag set the device filled this arm in.
        (self.0.wc_flags & flag != 0).then(|| unsafe { *self.0.ex.invalidate_rkey })
    }
}

/// The smallest size of a CQ that the RDMA core makes for a device's pool, in places, unless that
/// can't have as many.
const POOL_PLACES: u32 = 4096;

/// Returns whether a device's pool has, or would make, CQs with room for `entries` places, if one
/// of its CQs says that it has `places`.
///
/// One that needs as many as the pool's CQs have would be the only one to use it, and the pool
/// would make others like it for all completion vectors, to keep.
fn pool_serves(entries: u32, places: c_int) -> bool {
    entries < POOL_PLACES && i64::from(entries) <= i64::from(places)
}

/// Places in a completion queue that the RDMA core polls from its workqueue, so that handlers may
/// sleep.
///
/// # Invariants
///
/// The CQ is live. If `shared` is set it is of the device's pool, which gave us `entries` places;
/// else it is ours.
pub(crate) struct CompletionQueue {
    /// The C object.
    cq: NonNull<sys::ib_cq>,
    /// The number of our places.
    entries: u32,
    /// Set if others have places in it.
    shared: bool,
    /// The device, which goes after it.
    _device: Device,
}

// SAFETY: A CQ may be used from any context.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    /// Takes `entries` places in a CQ of the device's pool, or makes one where the pool can't have
    /// one with that many: one place for each work request that there may be at once and whose
    /// completion goes there. The completion vector is the one with the number `vector`, counted
    /// again from zero if the device has fewer. The interrupts of each vector go to one CPU, or to
    /// a few, and so do the handlers of its completions.
    ///
    /// # Errors
    ///
    /// `EINVAL` if no CQ of the device has that many places, `ENOMEM`, or what the device reports.
    ///
    /// # Safety
    ///
    /// The value is dropped before a client of `device` has given the device up: the CQs of the
    /// pool go then, whatever references there are. No QP uses the CQ for us any more by then.
    pub(crate) unsafe fn shared(device: &Device, entries: u32, vector: u32) -> Result<Self> {
        let device = device.try_clone().ok_or(ENODEV)?;
        // SAFETY: The device is live; its attributes do not change after registration.
        let most = unsafe { (*device.as_ptr()).attrs.max_cqe };
        if i64::from(entries) > i64::from(most) {
            return Err(EINVAL);
        }
        // The pool makes one set of CQs after the other until there is one that says it has room.
        // There are devices whose CQs say that they have less than was asked for, or nothing. So
        // one is looked at that was asked for no places, which there is always. The vector is named
        // so that those of others are still chosen in turn.
        // SAFETY: The device is live.
        let probe = from_err_ptr(unsafe { Self::pool_get(&device, 0, 0) })?;
        // SAFETY: CQs of the pool live as long as the device is registered. No places were taken.
        let places = unsafe {
            let places = (*probe).cqe;
            sys::ib_cq_pool_put(probe, 0);
            places
        };
        if !pool_serves(entries, places) {
            return Self::own(&device, entries, vector);
        }
        let vector = Self::vector(&device, vector)?;
        // SAFETY: The device is live.
        let cq = from_err_ptr(unsafe { Self::pool_get(&device, entries, vector) })?;
        // INVARIANT: It came from the pool.
        Ok(Self {
            cq: NonNull::new(cq).ok_or(ENOMEM)?,
            entries,
            shared: true,
            _device: device,
        })
    }

    /// Returns the completion vector of a device with that number.
    fn vector(device: &Device, number: u32) -> Result<c_int> {
        Ok(c_int::try_from(number % device.vectors())?)
    }

    /// Takes `entries` places in a CQ of the device's pool, for a completion vector.
    ///
    /// # Safety
    ///
    /// The device is live.
    unsafe fn pool_get(device: &Device, entries: u32, vector: c_int) -> *mut sys::ib_cq {
        // SAFETY: The caller guarantees it.
        unsafe {
            sys::ib_cq_pool_get(
                device.as_ptr(),
                entries,
                vector,
                sys::ib_poll_context_IB_POLL_WORKQUEUE,
            )
        }
    }

    /// Allocates a CQ of `entries` places on a completion vector.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is too large, `ENOMEM`, or what the device reports.
    ///
    /// QPs and Shared Receive Queues that use it must go before it; the core refuses to free it
    /// otherwise.
    pub(super) fn own(device: &Device, entries: u32, vector: u32) -> Result<Self> {
        let device = device.try_clone().ok_or(ENODEV)?;
        let (raw, private) = (device.as_ptr(), ptr::null_mut());
        let entries_c = c_int::try_from(entries)?;
        let context = sys::ib_poll_context_IB_POLL_WORKQUEUE;
        let vector = Self::vector(&device, vector)?;
        // SAFETY: The device is live, and has that vector.
        let cq = unsafe { sys::ib_alloc_cq(raw, private, entries_c, vector, context) };
        let cq = from_err_ptr(cq)?;
        // INVARIANT: We have just allocated it.
        Ok(Self {
            cq: NonNull::new(cq).ok_or(ENOMEM)?,
            entries,
            shared: false,
            _device: device,
        })
    }

    /// Waits until the completions were handled that are there. Not to be called from a handler.
    pub(super) fn flush(&self) {
        // A completion that comes into a CQ that is not being polled makes its work item due. If it
        // is due now, its next run finds all that is there. If it is running it may have looked
        // already, but then it makes itself due again when it finds more at its end. So the second
        // time is for what came while it ran.
        for _ in 0..2 {
            // SAFETY: By the type invariant the CQ is live; it is polled from a work item.
            unsafe { sys::ib_cq_flush_work(self.cq.as_ptr()) };
        }
    }

    /// The C object.
    pub(crate) fn as_ptr(&self) -> *mut sys::ib_cq {
        self.cq.as_ptr()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // No handler runs for us any more when this returns, and none is left to run: to free a CQ
        // would drop what it has.
        self.flush();
        if self.shared {
            // SAFETY: By the type invariant these places are ours; our QPs are gone, as `shared`
            // demands.
            unsafe { sys::ib_cq_pool_put(self.cq.as_ptr(), self.entries) };
        } else {
            // SAFETY: By the type invariant the CQ is ours and not yet freed; its QPs are gone, as
            // `own` demands.
            unsafe { sys::ib_free_cq(self.cq.as_ptr()) };
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_completion)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_serves_what_its_queues_have_room_for() {
        assert!(pool_serves(1, 4096));
        assert!(pool_serves(4095, 4096));
        // It would make a set of queues for this one alone.
        assert!(!pool_serves(4096, 4096));
        assert!(!pool_serves(5000, 8192));
        // A device that keeps a place for itself: 4095 is what each of its queues has.
        assert!(pool_serves(4095, 4095));
        assert!(!pool_serves(4096, 4095));
        // One that does not say, and small ones.
        assert!(!pool_serves(1, 0));
        assert!(pool_serves(127, 127));
        assert!(!pool_serves(128, 127));
    }

    #[test]
    fn a_write_with_immediate_data_is_no_message() {
        // SAFETY: Its types are all such that zero is a value.
        let mut wc: sys::ib_wc = unsafe { core::mem::zeroed() };
        for (opcode, message) in [
            (sys::ib_wc_opcode_IB_WC_RECV, true),
            (sys::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM, false),
        ] {
            wc.opcode = opcode;
            assert_eq!(Completion(&wc).is_message(), message);
        }
    }
}
