// SPDX-License-Identifier: GPL-2.0

//! Delayed work that can be cancelled.
//!
//! The in-tree wrapper cannot cancel an item that was enqueued. This one can, and drops the
//! reference that the cancelled item held.
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)

use crate::kext::prelude::*;
use crate::sys;
use kernel::{
    sync::LockClassKey,
    types::Opaque, //
};

/// A `struct delayed_work` inside a reference-counted `T`.
///
/// A pending item owns one reference to its `T`; while it runs, [`HasDelayedWork::run`] owns it.
/// Items run on the kernel's unbound queue for long work.
///
/// `ID` tells several items of one type apart.
#[pin_data]
pub(crate) struct DelayedWork<T, const ID: u64 = 0> {
    /// The C object.
    #[pin]
    work: Opaque<sys::delayed_work>,
    /// The type that the work function is made for.
    _owner: PhantomData<fn(Arc<T>)>,
}

// SAFETY: A `struct delayed_work` belongs to no thread, and `Arc<T>` may be sent, because
// `HasDelayedWork` demands `Send + Sync` of `T`.
unsafe impl<T: HasDelayedWork<ID>, const ID: u64> Send for DelayedWork<T, ID> {}

// SAFETY: All functions called on a `struct delayed_work` may be called concurrently.
unsafe impl<T: HasDelayedWork<ID>, const ID: u64> Sync for DelayedWork<T, ID> {}

/// A type with a [`DelayedWork`] in it. Use `impl_has_delayed_work_ext!` for the unsafe part.
///
/// # Safety
///
/// `work_of` returns a pointer to a field of the object, and `object_of` is its inverse.
pub(crate) unsafe trait HasDelayedWork<const ID: u64 = 0>:
    DelayedWorkItem<ID> + Send + Sync + Sized
{
    /// Returns the work item of an object.
    ///
    /// # Safety
    ///
    /// `object` points at a valid object.
    unsafe fn work_of(object: *const Self) -> *const DelayedWork<Self, ID>;

    /// Returns the object that a work item is part of.
    ///
    /// # Safety
    ///
    /// `work` was returned by [`work_of`](Self::work_of).
    unsafe fn object_of(work: *const DelayedWork<Self, ID>) -> *const Self;
}

/// The function that a [`DelayedWork`] runs when its time has come.
pub(crate) trait DelayedWorkItem<const ID: u64 = 0>: Sized {
    /// Does the work.
    fn run(this: Arc<Self>);
}

/// Implements [`HasDelayedWork`] for types and one of their fields each. Generic parameters of a
/// type stand in braces behind `impl`.
macro_rules! impl_has_delayed_work_ext {
    (
        $(impl$({$($generics:tt)*})? HasDelayedWork<$id:tt> for $ty:ty { self.$field:ident })*
    ) => {$(
        // The safety argument is made here, so that users of the macro need no `unsafe` code.
        #[allow(unsafe_code)]
        // SAFETY: `work_of` returns the address of the field, and `object_of` inverts that by
        // `container_of`.
        unsafe impl$(<$($generics)*>)? $crate::kext::delayed_work::HasDelayedWork<$id> for $ty {
            unsafe fn work_of(
                object: *const Self,
            ) -> *const $crate::kext::delayed_work::DelayedWork<Self, $id> {
                // SAFETY: The caller guarantees that `object` is valid.
                unsafe { &raw const (*object).$field }
            }

            unsafe fn object_of(
                work: *const $crate::kext::delayed_work::DelayedWork<Self, $id>,
            ) -> *const Self {
                // SAFETY: The caller guarantees that `work` points at this field.
                unsafe { ::kernel::container_of!(work, Self, $field) }
            }
        }
    )*};
}
pub(crate) use impl_has_delayed_work_ext;

/// Makes a [`DelayedWork`] with a lock class of its own. One that is `deferrable` wakes no idle CPU
/// when its time has come.
macro_rules! new_delayed_work_ext {
    ($name:literal) => {
        $crate::kext::delayed_work::new_delayed_work_ext!($name, false)
    };
    ($name:literal, deferrable) => {
        $crate::kext::delayed_work::new_delayed_work_ext!($name, true)
    };
    ($name:literal, $deferrable:literal) => {
        $crate::kext::delayed_work::DelayedWork::new(
            ::kernel::c_str!($name),
            ::kernel::sync::static_lock_class!(),
            $deferrable,
        )
    };
}
pub(crate) use new_delayed_work_ext;

impl<T: HasDelayedWork<ID>, const ID: u64> DelayedWork<T, ID> {
    /// Makes an item that is not pending; usually called by `new_delayed_work_ext!`. Lockdep knows
    /// the item by `name` and `key`.
    pub(crate) fn new(
        name: &'static CStr,
        key: Pin<&'static LockClassKey>,
        deferrable: bool,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            work <- Opaque::ffi_init(|slot: *mut sys::delayed_work| {
                // SAFETY: `slot` is valid for writes and does not move; `run_callback` matches the
                // objects that `schedule` enqueues; name and key live forever.
                unsafe {
                    sys::init_delayed_work(
                        slot,
                        Some(Self::run_callback),
                        name.as_char_ptr(),
                        key.as_ptr(),
                        deferrable,
                    )
                }
            }),
            _owner: PhantomData,
        })
    }

    /// Runs the item. This is the work function.
    ///
    /// # Safety
    ///
    /// `work` is the `work` of a `DelayedWork<T, ID>` in a `T`, and the item holds a reference to
    /// that `T` from [`Arc::into_raw`].
    unsafe extern "C" fn run_callback(work: *mut sys::work_struct) {
        // SAFETY: `work` is the first step into the `delayed_work` that `new` initialised.
        let dwork = unsafe { kernel::container_of!(work, sys::delayed_work, work) };
        let this: *const Self = Opaque::cast_from(dwork).cast();
        // SAFETY: `work` is the only sized field of `Self`, so both have one address; `schedule`
        // enqueued it inside a `T`.
        let object = unsafe { T::object_of(this) };
        // SAFETY: `schedule` left this reference to the item, and the item runs once for it.
        T::run(unsafe { Arc::from_raw(object) });
    }

    /// Makes the item run in `delay` jiffies. Returns `false`, and changes nothing, if it was
    /// pending already.
    pub(crate) fn schedule(owner: &Arc<T>, delay: usize) -> bool {
        let object = Arc::into_raw(owner.clone());
        // SAFETY: `object` comes from an `Arc`, so it is valid.
        let work = unsafe { T::work_of(object) };
        // SAFETY: `work` points into a valid object and is initialised; the queue lives as long as
        // the kernel.
        let queued =
            unsafe { sys::queue_delayed_work(sys::system_dfl_long_wq, (*work).work.get(), delay) };
        if !queued {
            // SAFETY: The item did not take the reference made above.
            drop(unsafe { Arc::from_raw(object) });
        }
        queued
    }

    /// Cancels the item, and waits until it is not running. Returns whether it was pending.
    ///
    /// Must not be called by the item itself. It does not prevent other threads from scheduling the
    /// item again.
    pub(crate) fn cancel_sync(owner: &Arc<T>) -> bool {
        let object = Arc::as_ptr(owner);
        // SAFETY: `object` comes from an `Arc`, so it is valid.
        let work = unsafe { T::work_of(object) };
        // SAFETY: The item is initialised; the caller may sleep.
        let pending = unsafe { sys::cancel_delayed_work_sync((*work).work.get()) };
        if pending {
            // SAFETY: The item was pending, so it held a reference that it will not use any more.
            drop(unsafe { Arc::from_raw(object) });
        }
        pending
    }

    /// Cancels the item like [`Self::cancel_sync`], for good: [`Self::schedule`] has no effect any
    /// more. Must not be called by the item itself.
    pub(crate) fn disable_sync(owner: &Arc<T>) {
        let object = Arc::as_ptr(owner);
        // SAFETY: `object` comes from an `Arc`, so it is valid.
        let work = unsafe { T::work_of(object) };
        // SAFETY: The item is initialised; the caller may sleep.
        let pending = unsafe { sys::disable_delayed_work_sync((*work).work.get()) };
        if pending {
            // SAFETY: The item was pending, so it held a reference that it will not use any more.
            drop(unsafe { Arc::from_raw(object) });
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_kext_delayed_work)]
mod tests {
    use super::*;
    use crate::kext::completion::Completion;
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    /// An item that counts how often it ran.
    #[pin_data]
    struct Item {
        #[pin]
        work: DelayedWork<Item, 0>,
        #[pin]
        ran: Completion,
        runs: Atomic<u32>,
    }

    impl_has_delayed_work_ext! {
        impl HasDelayedWork<0> for Item { self.work }
    }

    impl DelayedWorkItem<0> for Item {
        fn run(this: Arc<Self>) {
            this.runs.fetch_add(1, Relaxed);
            this.ran.complete();
        }
    }

    /// Makes an item.
    fn item() -> Result<Arc<Item>> {
        Arc::pin_init(
            pin_init!(Item {
                work <- new_delayed_work_ext!("rpcrdma_kext_test"),
                ran <- Completion::new(),
                runs: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether `item` is the only reference left.
    fn is_last(item: Arc<Item>) -> bool {
        Arc::into_unique_or_drop(item).is_some()
    }

    #[test]
    fn runs_once_and_returns_its_reference() -> Result {
        let i = item()?;
        assert!(DelayedWork::schedule(&i, 0));
        assert!(i.ran.wait_timeout(1000));
        assert!(!DelayedWork::cancel_sync(&i));
        assert_eq!(i.runs.load(Relaxed), 1);
        assert!(is_last(i));
        Ok(())
    }

    #[test]
    fn cancelled_item_returns_its_reference() -> Result {
        let i = item()?;
        assert!(DelayedWork::schedule(&i, 100_000));
        assert!(!DelayedWork::schedule(&i, 100_000));
        assert!(DelayedWork::cancel_sync(&i));
        assert!(!DelayedWork::cancel_sync(&i));
        assert_eq!(i.runs.load(Relaxed), 0);
        assert!(is_last(i));
        Ok(())
    }
}
