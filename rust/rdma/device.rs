// SPDX-License-Identifier: GPL-2.0

//! RDMA devices and their limits.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::kext::prelude::*;
use crate::sys;
use core::ffi::CStr;
use kernel::{
    ffi::{
        c_char,
        c_int, //
    },
    fmt, //
};

/// A registered device. It stays registered as long as there is one of these.
///
/// The end of a device waits for all of them, after it has told the users of the CM.
///
/// # Invariants
///
/// This is one of the references of the device.
pub(crate) struct Device(NonNull<sys::ib_device>);

// SAFETY: A device belongs to no thread.
unsafe impl Send for Device {}

// SAFETY: Shared references give out the pointer and what does not change.
unsafe impl Sync for Device {}

impl Device {
    /// Takes a reference to a device, unless that is not registered any more.
    ///
    /// # Safety
    ///
    /// `device` is valid during the call.
    pub(super) unsafe fn get(device: NonNull<sys::ib_device>) -> Option<Self> {
        // SAFETY: The caller guarantees that the device is valid.
        let got = unsafe { sys::ib_device_try_get(device.as_ptr()) };
        // INVARIANT: The reference was just taken.
        got.then_some(Self(device))
    }

    /// Returns another reference.
    pub(crate) fn try_clone(&self) -> Option<Self> {
        // SAFETY: By the type invariant the device is registered.
        unsafe { Self::get(self.0) }
    }

    /// Returns the name that it has now.
    pub(crate) fn name(&self) -> DeviceName {
        // SAFETY: The device stays registered as long as `self` exists.
        unsafe { DeviceName::of(self.0) }
    }

    /// Returns the NUMA node that it is near to; a negative number if there is none.
    pub(super) fn node(&self) -> c_int {
        // SAFETY: By the type invariant the device is registered.
        unsafe { sys::ibdev_to_node(self.0.as_ptr()) }
    }

    /// Returns the number of its completion vectors: at least one.
    pub(super) fn vectors(&self) -> u32 {
        // SAFETY: By the type invariant the device is registered; this does not change any more.
        let vectors = unsafe { (*self.0.as_ptr()).num_comp_vectors };
        u32::try_from(vectors).unwrap_or(1).max(1)
    }

    /// Returns the C object.
    pub(crate) fn as_ptr(&self) -> *mut sys::ib_device {
        self.0.as_ptr()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a reference, which is not used any more.
        unsafe { sys::ib_device_put(self.0.as_ptr()) };
    }
}

/// A snapshot of the attributes of a device, taken while a CM id holds the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceLimits {
    /// The device has fast registration, local invalidation and Send With Invalidate.
    pub(crate) memory_management: bool,
    /// The deepest fast registration, in pages.
    pub(crate) fast_reg_pages: u32,
    /// The most work requests that each queue of a QP takes, of which both have their completions
    /// in one Completion Queue.
    pub(crate) queue_depth: u32,
    /// The most Receives that a Shared Receive Queue takes, and one CQ the completions of; 0 if
    /// there are no such queues.
    pub(crate) srq_depth: u32,
    /// The most scatter/gather elements of a Send.
    pub(crate) send_sges: u32,
    /// The number of RDMA Reads of the peer that the device answers at a time on one QP.
    pub(crate) inbound_reads: u8,
    /// The number of RDMA Reads that the device keeps under way on one QP.
    pub(crate) outbound_reads: u8,
    /// The connection runs over iWARP, that is, over TCP.
    pub(crate) iwarp: bool,
}

impl DeviceLimits {
    /// Reads the limits of a device, for a connection on its port `port`.
    ///
    /// # Safety
    ///
    /// The device has that port.
    pub(super) unsafe fn read(device: &Device, port: u32) -> Self {
        // SAFETY: The device is registered; its attributes do not change after registration.
        let attrs = unsafe { &(*device.as_ptr()).attrs };
        Self {
            memory_management: attrs.device_cap_flags
                & (sys::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64)
                != 0,
            fast_reg_pages: attrs.max_fast_reg_page_list_len,
            queue_depth: limit(attrs.max_qp_wr).min(limit(attrs.max_cqe) / 2),
            srq_depth: if limit(attrs.max_srq) > 0 {
                limit(attrs.max_srq_wr).min(limit(attrs.max_cqe))
            } else {
                0
            },
            send_sges: limit(attrs.max_send_sge),
            inbound_reads: u8::try_from(attrs.max_qp_rd_atom).unwrap_or(u8::MAX),
            outbound_reads: u8::try_from(attrs.max_qp_init_rd_atom).unwrap_or(u8::MAX),
            // SAFETY: The device is registered. The caller guarantees the port.
            iwarp: unsafe { sys::rdma_protocol_iwarp(device.as_ptr(), port) },
        }
    }
}

/// A limit of a device. Their C types differ between kernel versions; what is negative counts as
/// nothing.
fn limit(value: impl TryInto<u32>) -> u32 {
    value.try_into().unwrap_or(0)
}

/// Octets of a device's name, the final NUL counted.
const NAME_LEN: usize = 64;

/// A copy of a device's name. The name itself goes with the device, and an administrator may
/// change it at any time.
///
/// # Invariants
///
/// The last octet is NUL.
pub(crate) struct DeviceName([u8; NAME_LEN]);

impl DeviceName {
    /// Copies the name of a device. While that is being changed, the copy may have octets of both
    /// names.
    ///
    /// # Safety
    ///
    /// `device` points to a device that stays registered during the call.
    pub(super) unsafe fn of(device: NonNull<sys::ib_device>) -> Self {
        // SAFETY: The caller guarantees the device, of which this is an array.
        let name: *const [c_char; NAME_LEN] = unsafe { &raw const (*device.as_ptr()).name };
        let mut copy = [0; NAME_LEN];
        // INVARIANT: The last octet stays NUL.
        for (at, to) in copy.iter_mut().take(NAME_LEN - 1).enumerate() {
            // SAFETY: The array has `NAME_LEN` octets. Others may write to it meanwhile; each octet
            // is read once.
            *to = unsafe { name.cast::<u8>().add(at).read_volatile() };
        }
        Self(copy)
    }

    /// Returns the name.
    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"?")
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_c_str().fmt(f)
    }
}
