// SPDX-License-Identifier: GPL-2.0

//! Protection domains.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::kext::prelude::*;
use crate::{
    rdma::device::Device,
    sys, //
};

/// A protection domain. Everything that is made in it holds a reference to it.
///
/// # Invariants
///
/// `pd` is a PD of `device`, not yet deallocated.
pub(crate) struct ProtectionDomain {
    /// The C object.
    pd: NonNull<sys::ib_pd>,
    /// The device, which goes after the PD.
    device: Device,
}

// SAFETY: A PD belongs to no thread.
unsafe impl Send for ProtectionDomain {}

// SAFETY: The verbs on a PD may be called from any context at the same time. What is read here of
// the C object does not change while it exists.
unsafe impl Sync for ProtectionDomain {}

impl ProtectionDomain {
    /// Allocates a PD.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    pub(crate) fn new(device: Device) -> Result<Arc<Self>> {
        // SAFETY: The device is registered as long as there is the reference to it.
        let pd = from_err_ptr(unsafe { sys::ib_alloc_pd(device.as_ptr(), 0) })?;
        let pd = NonNull::new(pd).ok_or(ENOMEM)?;
        // INVARIANT: It was just allocated. Without memory for the `Arc`, `Drop` deallocates it.
        Ok(Arc::new(Self { pd, device }, GFP_KERNEL)?)
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the key for all memory that is mapped for the device.
    pub(crate) fn local_dma_lkey(&self) -> u32 {
        // SAFETY: By the type invariant the PD exists. The key does not change.
        unsafe { (*self.pd.as_ptr()).local_dma_lkey }
    }

    /// Returns the C object.
    pub(super) fn as_ptr(&self) -> *mut sys::ib_pd {
        self.pd.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the PD exists. What was made in it held a reference, so all
        // of that is gone.
        unsafe { sys::ib_dealloc_pd(self.pd.as_ptr()) };
    }
}
