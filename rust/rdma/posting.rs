// SPDX-License-Identifier: GPL-2.0

//! Postings: the memory that work requests of a queue refer to, and how long it stays.
//!
//! # Who owns what, and what ends it
//!
//! A [`Posting`] is made for one queue: a QP, or a Shared Receive Queue. It holds what work
//! requests refer to (a completion entry, and mostly a buffer), and is a handle, of which there may
//! be several. The [`Keeper`] of the queue has one of them, and one of the object to be told of
//! completions, from the beginning until the queue has ended. So neither can go while a work
//! request may complete, whatever its users do. That is brought about without the CQ, which
//! outlives us all, even the module:
//!
//! 1. Nobody has a [`QueuePairUser`](crate::rdma::cm::QueuePairUser) any more: nothing is posted.
//! 2. The QP was put into its error state, and a marker was posted to each queue that is not
//!    shared; when it has completed, so has what was posted before it. A device may lose a
//!    completion, or let the marker overtake others.
//! 3. The QP is destroyed, which ends what the device may still have to complete: whatever there
//!    will ever be is in the CQ now, and the work item that polls it is running or due.
//! 4. That is waited for, and then the places in the CQ are given back.
//! 5. The keeper ends: buffers are unmapped, and its handles go. What others hold on to is plain
//!    memory.

use crate::kext::prelude::*;
use crate::{
    rdma::completion::Completion,
    sys, //
};
use core::ops::Deref;

/// The subject of work requests: a Send buffer, a Receive buffer, a fence.
///
/// Handlers may run on any CPU, so both it and its owner are shared between threads.
pub(crate) trait Completes: Sized + Send + Sync + 'static {
    /// The object to be told of completions.
    type Owner: Send + Sync + 'static;

    /// A work request of it has completed.
    fn completed(
        this: Posting<Self>,
        owner: ArcBorrow<'_, Self::Owner>,
        completion: Completion<'_>,
    );

    /// The queue has ended: no device uses the subject any more, and none of its work requests
    /// completes. Called once, in a context that may sleep when the queue ends, and in any context
    /// for a Receive that is released before.
    fn ended(&self) {}
}

/// An entry of the table of a [`Keeper`].
trait Kept: Send + Sync {
    /// See [`Completes::ended`].
    fn ended(&self);
}

/// An object that is only kept.
pub(super) trait Keep: Send + Sync {}

impl<T: Send + Sync> Keep for T {}

/// The memory that completions of one queue need.
#[pin_data]
pub(super) struct Keeper {
    /// The postings, and whose they are.
    #[pin]
    table: SpinLock<Table>,
}

/// The table of a [`Keeper`].
struct Table {
    /// The owner of all of them, and its address; from the first one on.
    owner: Option<(usize, Arc<dyn Keep>)>,
    /// The postings, by place. With room for all.
    kept: KVVec<Option<Arc<dyn Kept>>>,
    /// The places that are vacant again. With room for all.
    vacant: KVVec<u32>,
}

impl Keeper {
    /// Makes a keeper of at most `capacity` postings.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(capacity: u32) -> Result<Arc<Self>> {
        let capacity = usize::try_from(capacity)?;
        let table = Table {
            owner: None,
            kept: KVVec::with_capacity(capacity, GFP_KERNEL)?,
            vacant: KVVec::with_capacity(capacity, GFP_KERNEL)?,
        };
        Arc::pin_init(
            pin_init!(Self {
                table <- new_spinlock!(table, "rpcrdma::Keeper::table"),
            }),
            GFP_KERNEL,
        )
    }

    /// Makes a posting, which is kept until [`Self::end`] or [`Self::release`].
    ///
    /// # Errors
    ///
    /// `EINVAL` if those that are kept belong to another owner, `ENOSPC` if there are as many as
    /// there may be, or `ENOMEM`. Then `what` is dropped without having [ended](Completes::ended).
    ///
    /// # Safety
    ///
    /// The keeper's queue exists, and `end` is called when it has ended.
    pub(super) unsafe fn keep<T: Completes>(
        self: &Arc<Self>,
        owner: &Arc<T::Owner>,
        what: T,
    ) -> Result<Posting<T>> {
        let place = self.vacant_place()?;
        let entry = Arc::new(
            Entry {
                cqe: sys::ib_cqe {
                    done: Some(Entry::<T>::callback),
                },
                owner: Arc::as_ptr(owner),
                keeper: self.clone(),
                place,
                what,
            },
            GFP_KERNEL,
        );
        let address = Arc::as_ptr(owner).addr();
        let mut table = self.table.lock();
        let known = table.owner.as_ref().map_or(address, |(known, _)| *known);
        let entry = match entry {
            Ok(entry) if known == address => entry,
            other => {
                // There is room for all.
                let _ = table.vacant.push_within_capacity(place);
                drop(table);
                return Err(other.err().map_or(EINVAL, Error::from));
            }
        };
        table.owner.get_or_insert_with(|| (address, owner.clone()));
        if let Some(kept) = table.kept.get_mut(place as usize) {
            *kept = Some(entry.clone());
        }
        drop(table);
        Ok(Posting(entry))
    }

    /// Takes a place that nothing is kept at.
    fn vacant_place(&self) -> Result<u32> {
        let mut table = self.table.lock();
        if let Some(place) = table.vacant.pop() {
            return Ok(place);
        }
        let place = u32::try_from(table.kept.len())?;
        table
            .kept
            .push_within_capacity(None)
            .map_err(|_| ENOSPC)
            .map(|()| place)
    }

    /// Forgets a posting, of which no work request is posted, and ends it.
    ///
    /// # Safety
    ///
    /// No work request of it is posted, and nobody will post one.
    pub(super) unsafe fn release<T: Completes>(&self, posting: Posting<T>) {
        let mut table = self.table.lock();
        let place = posting.0.place;
        let kept = table.kept.get_mut(place as usize).and_then(Option::take);
        if kept.is_some() {
            // There is room for all.
            let _ = table.vacant.push_within_capacity(place);
        }
        drop(table);
        if let Some(kept) = kept {
            kept.ended();
        }
    }

    /// The queue has ended: all postings end. Sleeps.
    ///
    /// # Safety
    ///
    /// The queue was destroyed, and its completions were handled.
    unsafe fn end(&self) {
        let mut table = self.table.lock();
        let kept = core::mem::replace(&mut table.kept, KVVec::new());
        // The thread that lets go of the keeper last may have locks.
        let vacant = core::mem::replace(&mut table.vacant, KVVec::new());
        let owner = table.owner.take();
        drop(table);
        drop(vacant);
        for entry in kept.iter().flatten() {
            entry.ended();
        }
        drop(kept);
        drop(owner);
    }
}

/// Ends a [`Keeper`] when it is dropped. It is a field of the queue, behind what ends that.
pub(super) struct EndOfQueue(Arc<Keeper>);

impl EndOfQueue {
    /// Ends `keeper` when it is dropped.
    ///
    /// # Safety
    ///
    /// It is dropped when the queue of `keeper` was destroyed, and its completions were handled.
    pub(super) unsafe fn new(keeper: Arc<Keeper>) -> Self {
        Self(keeper)
    }

    /// Returns the keeper.
    pub(super) fn keeper(&self) -> &Arc<Keeper> {
        &self.0
    }
}

impl Drop for EndOfQueue {
    fn drop(&mut self) {
        // SAFETY: As `new` demands.
        unsafe { self.0.end() };
    }
}

/// A posting with its completion entry.
#[repr(C)]
struct Entry<T: Completes> {
    /// The C object. First, so that its address is that of the entry.
    cqe: sys::ib_cqe,
    /// Whose it is: the pointer of an [`Arc`], which the keeper has as long as it has the entry.
    owner: *const T::Owner,
    /// The keeper of the queue that it is for.
    keeper: Arc<Keeper>,
    /// Its place there.
    place: u32,
    /// The subject of the work requests.
    what: T,
}

// SAFETY: Entry and owner are only read; both may be sent and shared.
unsafe impl<T: Completes> Send for Entry<T> {}
// SAFETY: As above.
unsafe impl<T: Completes> Sync for Entry<T> {}

impl<T: Completes> Entry<T> {
    /// # Safety
    ///
    /// Called by the CQ core for a work request with the entry of a [`Posting`].
    unsafe extern "C" fn callback(_cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: The CQ core leaves the completion alone during the call.
        let completion = unsafe { Completion::of(&*wc) };
        let entry = completion.entry().cast_const().cast::<Self>();
        // SAFETY: The C object is the first member of an entry in an `Arc`, of which the keeper has
        // a reference until the queue has ended, which is after all of its completions.
        let this: Arc<Self> = unsafe { ArcBorrow::from_raw(entry) }.into();
        // SAFETY: The same holds for the owner.
        let owner = unsafe { ArcBorrow::from_raw(this.owner) };
        T::completed(Posting(this), owner, completion);
    }
}

impl<T: Completes> Kept for Entry<T> {
    fn ended(&self) {
        self.what.ended();
    }
}

/// A handle of what may be posted to one queue.
pub(crate) struct Posting<T: Completes>(Arc<Entry<T>>);

impl<T: Completes> Posting<T> {
    /// Returns whether it is for the queue of `keeper`.
    pub(super) fn is_for(&self, keeper: &Arc<Keeper>) -> bool {
        Arc::ptr_eq(&self.0.keeper, keeper)
    }

    /// Returns its place among all that the queue keeps. No two have the same at a time.
    pub(super) fn place(&self) -> u32 {
        self.0.place
    }

    /// Returns the C object, for a work request to the queue that it is for.
    pub(super) fn cqe(&self) -> *mut sys::ib_cqe {
        Arc::as_ptr(&self.0).cast_mut().cast()
    }
}

impl<T: Completes> Clone for Posting<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Completes> Deref for Posting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.what
    }
}
