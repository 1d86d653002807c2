// SPDX-License-Identifier: GPL-2.0

//! The task that carries out an RPC.
//!
//! C header: [`include/linux/sunrpc/sched.h`](srctree/include/linux/sunrpc/sched.h)

use crate::sys;
use kernel::types::Opaque;

/// A `struct rpc_task`.
#[repr(transparent)]
pub(crate) struct RpcTask(Opaque<sys::rpc_task>);

impl RpcTask {
    /// Wraps a C object.
    ///
    /// # Safety
    ///
    /// `task` is valid while the result lives.
    pub(super) unsafe fn from_raw<'a>(task: *mut sys::rpc_task) -> &'a Self {
        // SAFETY: The caller guarantees that `task` is valid while the result lives; the type is
        // transparent.
        unsafe { &*task.cast() }
    }

    /// Returns the C object.
    pub(super) fn as_raw(&self) -> *mut sys::rpc_task {
        self.0.get()
    }
}
