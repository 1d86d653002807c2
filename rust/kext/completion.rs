// SPDX-License-Identifier: GPL-2.0

//! A completion that signals one waiter at a time and can be used again.
//!
//! C header: [`include/linux/completion.h`](srctree/include/linux/completion.h)

use crate::sys;
use kernel::{
    prelude::*,
    types::Opaque, //
};

/// A `struct completion`, with which one side waits until the other side has done something.
#[pin_data]
pub(crate) struct Completion {
    /// The C object.
    #[pin]
    inner: Opaque<sys::completion>,
}

// SAFETY: A `struct completion` belongs to no thread.
unsafe impl Send for Completion {}

// SAFETY: The functions called on a `struct completion` take its lock, or are documented to need
// nothing from the caller (`reinit_completion` is a plain store, see `reinit`).
unsafe impl Sync for Completion {}

impl Completion {
    /// Makes a completion that is not done.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            inner <- Opaque::ffi_init(|slot: *mut sys::completion| {
                // SAFETY: `slot` is valid for writes of a `struct completion` and does not move.
                unsafe { sys::init_completion(slot) }
            }),
        })
    }

    /// Makes the completion not done again.
    ///
    /// Call it before the code that will call [`complete`](Self::complete) is started. Earlier
    /// signals are forgotten.
    pub(crate) fn reinit(&self) {
        // SAFETY: The object is initialised. A concurrent `complete` may be lost or kept; users
        // have to expect both, and memory is not affected.
        unsafe { sys::reinit_completion(self.inner.get()) }
    }

    /// Signals one waiter; if there is none, the next one does not wait.
    ///
    /// May be called from any context.
    pub(crate) fn complete(&self) {
        // SAFETY: The object is initialised.
        unsafe { sys::complete(self.inner.get()) }
    }

    /// Waits until the completion is done. Not interruptible.
    pub(crate) fn wait(&self) {
        // SAFETY: The object is initialised; sleeping is what the caller asks for.
        unsafe { sys::wait_for_completion(self.inner.get()) }
    }

    /// Waits until the completion is done, but no longer than `timeout` jiffies. Not interruptible.
    ///
    /// Returns whether the completion was done in time.
    #[must_use]
    pub(crate) fn wait_timeout(&self, timeout: usize) -> bool {
        // SAFETY: The object is initialised; sleeping is what the caller asks for.
        unsafe { sys::wait_for_completion_timeout(self.inner.get(), timeout) != 0 }
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_kext_completion)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    /// Makes a completion on the heap.
    fn completion() -> Result<Arc<Completion>> {
        Arc::pin_init(Completion::new(), GFP_KERNEL)
    }

    #[test]
    fn times_out_when_nobody_completes() -> Result {
        let c = completion()?;
        assert!(!c.wait_timeout(1));
        Ok(())
    }

    #[test]
    fn one_complete_serves_one_wait() -> Result {
        let c = completion()?;
        c.complete();
        assert!(c.wait_timeout(1));
        assert!(!c.wait_timeout(1));
        Ok(())
    }

    #[test]
    fn reinit_forgets_what_was_completed() -> Result {
        let c = completion()?;
        c.complete();
        c.reinit();
        assert!(!c.wait_timeout(1));
        c.complete();
        c.wait();
        assert!(!c.wait_timeout(1));
        Ok(())
    }
}
