// SPDX-License-Identifier: GPL-2.0

//! Ownership of a CM id.

use crate::kext::prelude::*;
use crate::{
    kext::net::{
        Net,
        SockAddr, //
    },
    rdma::device::{
        Device,
        DeviceLimits, //
    },
    sys, //
};

/// A CM id. Dropped, it is destroyed, which waits for its handler; the CM rejects a peer that waits
/// for an answer.
///
/// # Invariants
///
/// The id is live, and nobody else destroys it. If it has a device, that stays as long as the id,
/// and has the port of the id.
pub(super) struct Id(NonNull<sys::rdma_cm_id>);

// SAFETY: The CM takes its own locks.
unsafe impl Send for Id {}

impl Id {
    /// Creates an id in `net`, whose events go to `handler`.
    ///
    /// # Errors
    ///
    /// What the CM reports, `ENOMEM` above all.
    ///
    /// # Safety
    ///
    /// `handler` may be called with `context` until the id was dropped.
    pub(super) unsafe fn new(
        net: Net<'_>,
        handler: sys::rdma_cm_event_handler,
        context: *mut c_void,
    ) -> Result<Self> {
        // SAFETY: `net` is live. The caller guarantees the handler and its context.
        let id = from_err_ptr(unsafe {
            sys::rdma_create_id(
                net.as_ptr(),
                handler,
                context,
                sys::rdma_ucm_port_space_RDMA_PS_TCP,
                sys::ib_qp_type_IB_QPT_RC,
            )
        })?;
        // INVARIANT: It was just made.
        Ok(Self(NonNull::new(id).ok_or(ENOMEM)?))
    }

    /// Takes over an id.
    ///
    /// # Safety
    ///
    /// The id is live, and nobody else destroys it.
    pub(super) unsafe fn from_raw(id: NonNull<sys::rdma_cm_id>) -> Self {
        // INVARIANT: The caller guarantees it. The CM gives an id a port when it gives it a device.
        Self(id)
    }

    /// Leaves the id to the CM, which destroys it.
    pub(super) fn leave_to_cm(self) {
        core::mem::forget(self);
    }

    /// Returns the C object.
    pub(super) fn as_ptr(&self) -> *mut sys::rdma_cm_id {
        self.0.as_ptr()
    }

    /// Returns our address, once it is known.
    pub(super) fn local(&self) -> SockAddr<'_> {
        // SAFETY: The id is live, and its addresses are of the size of a `sockaddr_storage`.
        unsafe { SockAddr::copy(&raw const (*self.as_ptr()).route.addr.src_addr) }
    }

    /// Returns the peer's address, once it is known.
    pub(super) fn remote(&self) -> SockAddr<'_> {
        // SAFETY: As in `local`.
        unsafe { SockAddr::copy(&raw const (*self.as_ptr()).route.addr.dst_addr) }
    }

    /// Returns the device, if there is one yet, and its port.
    pub(super) fn device(&self) -> Option<(Device, u32)> {
        // SAFETY: The id is live, and holds its device.
        unsafe {
            let device = Device::get(NonNull::new((*self.as_ptr()).device)?)?;
            Some((device, (*self.as_ptr()).port_num))
        }
    }

    /// Returns the limits of the device, if there is one yet.
    pub(super) fn device_limits(&self) -> Option<DeviceLimits> {
        let (device, port) = self.device()?;
        // SAFETY: By the type invariant this is a port of the device, to which there is a
        // reference.
        Some(unsafe { DeviceLimits::read(&device, port) })
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the id is ours and not yet destroyed.
        unsafe { sys::rdma_destroy_id(self.as_ptr()) };
    }
}
