// SPDX-License-Identifier: GPL-2.0

//! Shared Receive Queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! # Who owns what, and what ends it
//!
//! - The queue ends with the last reference to its [`SharedReceiveQueue`]; each QP that uses it has
//!   one. Its buffers end with it, see [`posting`](crate::rdma::posting).
//! - The handlers of its completions use [`Shared`], which the queue keeps until it has ended.
//! - The entry of a QP in the table of [`Members`] is made when the QP was made, and is removed
//!   when the QP was destroyed and its completions were handled. A spinlock protects the table.
//!
//! The completions of all these Receives come from a CQ of their own, which has a place for each
//! Receive that can be posted, so no peer can make it overflow. A completion names its QP by
//! address, and the QP may be gone by then: the address is looked up, not followed.
//! [`SharedReceiveQueue::enter`] makes sure that it is not taken for that of a later QP.

use crate::kext::prelude::*;
use crate::{
    rdma::{
        completion::{
            Completion,
            CompletionQueue, //
        },
        posting::{
            EndOfQueue,
            Keeper, //
        },
        protection_domain::ProtectionDomain,
        receive_buffer::{
            post_receives,
            ReceiveBuffer,
            ReceiveKind,
            RECEIVE_BATCH, //
        },
        work_request::PlainRequest, //
    },
    sys, //
};
use core::{
    mem,
    ptr, //
};

/// Is notified of the Receives of a Shared Receive Queue.
pub(crate) trait SharedReceives: Sized + Send + Sync + 'static {
    /// Uses a QP that shares the Receives.
    type Member: Send + Sync + 'static;

    /// A Receive has completed, on the QP of `member`; of none if its QP is gone. Runs in the
    /// context of completion handlers.
    fn received(
        this: &Arc<Self>,
        member: Option<Arc<Self::Member>>,
        buffer: SharedReceive<Self>,
        completion: Completion<'_>,
    );

    /// A QP is gone, and all of its completions were handled. The device may have lost a Receive
    /// with it. Sleeps.
    fn left(this: &Arc<Self>);

    /// The device has reported that the queue has failed. Runs in any context, also with interrupts
    /// off.
    fn failed(this: &Arc<Self>);
}

/// A buffer of a Shared Receive Queue that is not posted.
pub(crate) type SharedReceive<R> = ReceiveBuffer<OfShared<R>>;

/// A Receive that QPs share.
pub(crate) struct OfShared<R>(PhantomData<R>);

impl<R: SharedReceives> ReceiveKind for OfShared<R> {
    type Owner = Shared<R>;

    fn completed(
        shared: ArcBorrow<'_, Shared<R>>,
        buffer: SharedReceive<R>,
        completion: Completion<'_>,
    ) {
        let member = shared.members.lock().get(completion.qp().addr());
        R::received(&shared.owner, member, buffer, completion);
    }
}

/// The users of QPs, in the order of the addresses of the QPs.
struct Members<M>(KVVec<(usize, Arc<M>)>);

impl<M> Members<M> {
    /// Returns the place of the QP at address `qp`, or where it would be.
    fn find(&self, qp: usize) -> core::result::Result<usize, usize> {
        self.0.binary_search_by_key(&qp, |(address, _)| *address)
    }

    /// Returns the user of the QP at address `qp`.
    fn get(&self, qp: usize) -> Option<Arc<M>> {
        let (_, user) = self.0.get(self.find(qp).ok()?)?;
        Some(user.clone())
    }

    /// Returns the user of the first QP behind address `qp`, with its address.
    fn after(&self, qp: usize) -> Option<(usize, Arc<M>)> {
        let at = self.0.partition_point(|(address, _)| *address <= qp);
        self.0
            .get(at)
            .map(|(address, user)| (*address, user.clone()))
    }

    /// Adds the user of the QP at address `qp`. Returns the former one of a QP at this address.
    ///
    /// # Errors
    ///
    /// Returns the user if there is no room.
    fn insert(&mut self, qp: usize, user: Arc<M>) -> core::result::Result<Option<Arc<M>>, Arc<M>> {
        let at = match self.find(qp) {
            Ok(at) => {
                let entry = self.0.get_mut(at);
                return Ok(entry.map(|(_, former)| mem::replace(former, user)));
            }
            Err(at) => at,
        };
        if self.0.len() == self.0.capacity() {
            return Err(user);
        }
        // There is room.
        let _ = self.0.push_within_capacity((qp, user));
        if let Some(behind) = self.0.get_mut(at..) {
            behind.rotate_right(1);
        }
        Ok(None)
    }

    /// Removes the QP at address `qp`, if it is that of the user at address `user`.
    fn remove(&mut self, qp: usize, user: usize) -> Option<Arc<M>> {
        let at = self.find(qp).ok()?;
        let (_, known) = self.0.get(at)?;
        if Arc::as_ptr(known).addr() != user {
            return None;
        }
        self.0.remove(at).ok().map(|(_, user)| user)
    }

    /// Moves all into `larger`. Returns the former table, which is empty, to be freed elsewhere.
    #[must_use]
    fn grow_into(&mut self, larger: KVVec<(usize, Arc<M>)>) -> KVVec<(usize, Arc<M>)> {
        if larger.capacity() <= self.0.capacity() {
            return larger;
        }
        let mut former = mem::replace(&mut self.0, larger);
        while let Some(entry) = former.pop() {
            let _ = self.0.push_within_capacity(entry);
        }
        self.0.reverse();
        former
    }
}

/// The state of a queue that handlers of its completions and events use.
#[pin_data]
pub(crate) struct Shared<R: SharedReceives> {
    /// The QPs.
    #[pin]
    members: SpinLock<Members<R::Member>>,
    /// Is notified.
    owner: Arc<R>,
}

impl<R: SharedReceives> Shared<R> {
    /// Handles an event.
    ///
    /// # Safety
    ///
    /// Called by a device for an SRQ made by [`SharedReceiveQueue::new`], in any context, also with
    /// interrupts off.
    unsafe extern "C" fn event_callback(
        event: *mut sys::ib_event,
        context: *mut kernel::ffi::c_void,
    ) {
        // SAFETY: The event exists during the call.
        if unsafe { (*event).event } == sys::ib_event_type_IB_EVENT_SRQ_ERR {
            // SAFETY: `new` has set the context, and the SRQ is destroyed before that is dropped.
            // The device reports nothing any more when it is destroyed.
            let shared = unsafe { &*context.cast_const().cast::<Self>() };
            R::failed(&shared.owner);
        }
    }
}

/// A Shared Receive Queue, with a CQ for its Receives. A QP that uses it holds a reference to it.
///
/// # Invariants
///
/// `srq` is an SRQ in `pd`, not yet destroyed, whose event context is `shared`.
pub(crate) struct SharedReceiveQueue<R: SharedReceives> {
    /// The C object.
    srq: NonNull<sys::ib_srq>,
    /// The CQ for its Receives, which goes after it.
    queue: CompletionQueue,
    /// The buffers, which end after both.
    end: EndOfQueue,
    /// The PD, which goes after them.
    pd: Arc<ProtectionDomain>,
    /// The state that handlers use.
    shared: Arc<Shared<R>>,
}

// SAFETY: An SRQ belongs to no thread.
unsafe impl<R: SharedReceives> Send for SharedReceiveQueue<R> {}

// SAFETY: The verbs on an SRQ may be called from any context at the same time.
unsafe impl<R: SharedReceives> Sync for SharedReceiveQueue<R> {}

impl<R: SharedReceives> SharedReceiveQueue<R> {
    /// Makes an SRQ of which `owner` is notified, for at most `posted` Receives of one element each
    /// at a time, and `buffers` buffers.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device cannot have one as large, `ENOMEM`, or what the device reports.
    pub(crate) fn new(
        pd: Arc<ProtectionDomain>,
        posted: u32,
        buffers: u32,
        owner: &Arc<R>,
    ) -> Result<Arc<Self>> {
        let queue = CompletionQueue::own(pd.device(), posted, 0)?;
        let keeper = Keeper::new(buffers)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                members <- new_spinlock!(Members(KVVec::new()), "rpcrdma::Shared::members"),
                owner: owner.clone(),
            }),
            GFP_KERNEL,
        )?;
        let mut attributes = sys::ib_srq_init_attr {
            event_handler: Some(Shared::<R>::event_callback),
            srq_context: Arc::as_ptr(&shared).cast_mut().cast(),
            attr: sys::ib_srq_attr {
                max_wr: posted,
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
        // SAFETY: The fields are dropped after the SRQ was destroyed, and this one after the CQ.
        let end = unsafe { EndOfQueue::new(keeper) };
        // INVARIANT: It was just made. Without memory for the `Arc`, `Drop` destroys it.
        Ok(Arc::new(
            Self {
                srq,
                queue,
                end,
                pd,
                shared,
            },
            GFP_KERNEL,
        )?)
    }

    /// Makes a buffer of `len` octets. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are as many as there may be, `ENODEV`, `ENOMEM`.
    pub(crate) fn buffer(&self, len: usize) -> Result<SharedReceive<R>> {
        let (keeper, device) = (self.end.keeper(), self.pd.device());
        // SAFETY: By the type invariant the SRQ exists.
        unsafe { ReceiveBuffer::new(keeper, &self.shared, device, len) }
    }

    /// Frees a buffer. Any context.
    pub(crate) fn release(&self, buffer: SharedReceive<R>) {
        buffer.release(self.end.keeper());
    }

    /// Posts buffers: [`RECEIVE_BATCH`] at most are taken.
    ///
    /// # Errors
    ///
    /// What the device reports. Then the buffers are its own.
    pub(crate) fn post(&self, buffers: impl Iterator<Item = SharedReceive<R>>) -> Result {
        // SAFETY: By the type invariant the SRQ exists, in that PD. The chain is valid for the
        // call. What it names is kept until the SRQ has ended.
        to_result(unsafe {
            post_receives(
                self.end.keeper(),
                self.pd.local_dma_lkey(),
                buffers.take(RECEIVE_BATCH as usize),
                |first| sys::ib_post_srq_recv(self.as_ptr(), first, ptr::null_mut()),
            )
        })
    }

    /// Returns the number of QPs that share it.
    pub(crate) fn members(&self) -> usize {
        self.shared.members.lock().0.len()
    }

    /// Folds over the users of QPs, under a spinlock.
    pub(crate) fn fold<C>(&self, init: C, mut fold: impl FnMut(C, &Arc<R::Member>) -> C) -> C {
        let members = self.shared.members.lock();
        members
            .0
            .iter()
            .fold(init, |all, (_, user)| fold(all, user))
    }

    /// Calls a function for the user of each QP. Sleeps, because a reference to a user may be the
    /// last.
    pub(crate) fn for_each(&self, mut function: impl FnMut(&Arc<R::Member>)) {
        let mut last = 0;
        loop {
            let next = self.shared.members.lock().after(last);
            let Some((address, user)) = next else { return };
            function(&user);
            last = address;
        }
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
    pub(super) fn as_ptr(&self) -> *mut sys::ib_srq {
        self.srq.as_ptr()
    }

    /// The messages of the QP at address `qp`, which was just made, come to `user` from now on,
    /// until [`MemberOf::left`]. Sleeps. Not to be called from a handler.
    ///
    /// # A later QP at the same address
    ///
    /// The entry of a QP is removed when its completions were handled after it was destroyed. If it
    /// is still there, its QP was destroyed before the new one was made, so all of its completions
    /// are in the CQ. They are waited for here. The new one can't have any yet: it can receive
    /// nothing before it is connected.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn enter(&self, qp: usize, mut user: Arc<R::Member>) -> Result {
        let known = self.shared.members.lock().get(qp);
        if known.is_some() {
            self.queue.flush();
        }
        drop(known);
        loop {
            let mut members = self.shared.members.lock();
            let capacity = members.0.capacity();
            let inserted = members.insert(qp, user);
            drop(members);
            user = match inserted {
                Ok(former) => {
                    drop(former);
                    return Ok(());
                }
                Err(user) => user,
            };
            let larger = KVVec::with_capacity(capacity.saturating_mul(2).max(64), GFP_KERNEL)?;
            let former = self.shared.members.lock().grow_into(larger);
            drop(former);
        }
    }
}

/// A Shared Receive Queue, for the QP of a member. The QP is destroyed between its two calls, not
/// in a closure that is passed as `dyn`: before Rust 1.86 a call of one fails a kernel's KCFI.
pub(super) trait MemberOf: Send + Sync {
    /// Waits for the completions that are there. Many a device drops the completions of a QP that
    /// is destroyed, and the Receives with them. Sleeps.
    fn flush(&self);

    /// The QP that was at address `qp`, with the user at address `user`, is destroyed. When this
    /// returns its completions were handled, and its user is forgotten. Sleeps.
    fn left(&self, qp: usize, user: usize);
}

impl<R: SharedReceives> MemberOf for SharedReceiveQueue<R> {
    fn flush(&self) {
        self.queue.flush();
    }

    fn left(&self, qp: usize, user: usize) {
        self.queue.flush();
        let user = self.shared.members.lock().remove(qp, user);
        // Outside of the lock, since it may be the last reference.
        drop(user);
        R::left(&self.shared.owner);
    }
}

impl<R: SharedReceives> Drop for SharedReceiveQueue<R> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the SRQ exists. QPs that use it hold a reference, so there
        // are none.
        unsafe { sys::ib_destroy_srq(self.srq.as_ptr()) };
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_shared_receive_queue)]
mod tests {
    use super::*;

    /// A table with room for `count` QPs.
    fn table(count: usize) -> Result<Members<u32>> {
        Ok(Members(KVVec::with_capacity(count, GFP_KERNEL)?))
    }

    #[test]
    fn members_are_found_by_their_queue_pairs() -> Result {
        let mut members = table(8)?;
        for qp in [30_usize, 10, 40, 20] {
            let user = Arc::new(qp as u32, GFP_KERNEL)?;
            assert!(members
                .insert(qp, user)
                .is_ok_and(|former| former.is_none()));
        }
        for qp in [10, 20, 30, 40] {
            assert!(members.get(qp).is_some_and(|user| *user == qp as u32));
            assert!(members.get(qp + 1).is_none());
        }
        let mut seen = 0;
        let mut last = 0;
        while let Some((qp, user)) = members.after(last) {
            assert!(qp > last && *user == qp as u32);
            (last, seen) = (qp, seen + 1);
        }
        assert_eq!(seen, 4);
        Ok(())
    }

    /// The end of a QP does not take the entry of a later one at its address.
    #[test]
    fn a_later_queue_pair_stays() -> Result {
        let mut members = table(2)?;
        let (first, second) = (Arc::new(1, GFP_KERNEL)?, Arc::new(2, GFP_KERNEL)?);
        let at = |user: &Arc<u32>| Arc::as_ptr(user).addr();
        assert!(members.insert(10, first.clone()).is_ok());
        let former = members.insert(10, second.clone());
        assert!(former.is_ok_and(|former| former.is_some_and(|user| *user == 1)));
        assert!(members.remove(10, at(&first)).is_none());
        assert!(members
            .remove(10, at(&second))
            .is_some_and(|user| *user == 2));
        assert!(members.get(10).is_none());
        Ok(())
    }

    #[test]
    fn the_table_grows() -> Result {
        let mut members = table(2)?;
        let room = members.0.capacity();
        for qp in 0..room {
            assert!(members.insert(qp + 1, Arc::new(0, GFP_KERNEL)?).is_ok());
        }
        let refused = members.insert(room + 1, Arc::new(9, GFP_KERNEL)?);
        let user = refused.err().ok_or(EINVAL)?;
        drop(members.grow_into(KVVec::with_capacity(2 * room, GFP_KERNEL)?));
        assert!(members.insert(room + 1, user).is_ok());
        assert!(members.get(1).is_some() && members.get(room).is_some());
        assert!(members.get(room + 1).is_some_and(|user| *user == 9));
        Ok(())
    }
}
