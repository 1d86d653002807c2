// SPDX-License-Identifier: GPL-2.0

//! Shared Receive Queues.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! # Who owns what, and what ends it
//!
//! - The queue ends with the last reference to its [`SharedReceiveQueue`]; each QP that uses it has
//!   one. Its buffers end with it, see [`posting`](crate::rdma::posting).
//! - What handlers of its completions need is [`Shared`], which the queue keeps until it has ended.
//! - The entry of a QP among the members belongs to that, and ends after the QP, see
//!   [`MemberOf::left`].
//!
//! The completions of all these Receives come from one CQ, which has room for all that can be
//! posted: no peer can make it overflow. They are told apart by the address of the QP, which is
//! looked up among the members, not followed. A QP may be gone before its last completion was
//! looked at. So that none is taken for one of a later QP at the same address, QPs are made and
//! destroyed under the mutex `turnover`, and after a QP was destroyed the completions are waited
//! for that were there.
//!
//! Many a device takes back what is in the CQ of a QP that is destroyed, and the Receives that this
//! was about would be lost. So the completions are waited for before too, when the QP is in error.

use crate::kext::prelude::*;
use crate::{
    rdma::{
        completion::{
            Completion,
            CompletionQueue,
            Vector, //
        },
        posting::{
            EndOfQueue,
            Keeper, //
        },
        protection_domain::ProtectionDomain,
        receive_buffer::{
            post_receives,
            PostedReceive,
            ReceiveBuffer,
            ReceiveKind,
            RECEIVE_BATCH, //
        },
        receive_order::ReceiveOrder,
        work_request::PlainRequest, //
    },
    sys, //
};
use core::ptr;
use kernel::sync::lock::{
    mutex::MutexBackend,
    Guard, //
};
use kernel::xarray::{
    AllocKind,
    XArray, //
};

/// To be told of the Receives of a Shared Receive Queue.
pub(crate) trait SharedReceives: Sized + Send + Sync + 'static {
    /// Uses a QP of those that share the Receives.
    type Member: Send + Sync + 'static;

    /// A Receive has completed, by a QP of `member`; of none if its QP is gone. Runs in the context
    /// of completion handlers.
    fn received(
        this: &Arc<Self>,
        member: Option<Arc<Self::Member>>,
        buffer: SharedReceive<Self>,
        completion: Completion<'_>,
    );
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
        let (place, user) = shared.member(completion.qp().addr()).unzip();
        let mut order = shared.order.lock();
        let posted = order.completed(buffer.place(), place);
        shared.publish_lost(&order);
        drop(order);
        // It stood for the buffer.
        drop(posted);
        R::received(&shared.owner, user, buffer, completion);
    }
}

/// A QP of those that share.
struct Member<M> {
    /// Uses it.
    user: Arc<M>,
    /// Its place in the order.
    place: u32,
}

/// The state of a queue that handlers of its completions and events use.
#[pin_data]
pub(crate) struct Shared<R: SharedReceives> {
    /// The posted Receives.
    #[pin]
    order: SpinLock<ReceiveOrder<PostedReceive<OfShared<R>>>>,
    /// The QPs, by their addresses; see [`Self::key`].
    #[pin]
    members: XArray<Arc<Member<R::Member>>>,
    /// By the place of each QP: its key among the members. With room for all.
    #[pin]
    keys: SpinLock<KVVec<usize>>,
    /// Held while a QP is made, and from before one is destroyed until its completions are done
    /// with.
    #[pin]
    turnover: Mutex<()>,
    /// The number of lost Receives, and of members, as they were when that changed last.
    lost: Atomic<u32>,
    /// See `lost`.
    users: Atomic<u32>,
    /// Set when the device has reported that the SRQ has failed.
    failed: Atomic<bool>,
    /// The address of the device, see [`Self::key`].
    device: usize,
    /// To be told.
    owner: Arc<R>,
}

impl<R: SharedReceives> Shared<R> {
    /// The key of a QP among the members.
    ///
    /// No two QPs have the same, since addresses differ above the alignment of the structure. What
    /// all addresses have in common is taken out, because the depth of the array is that of its
    /// largest key, and each message looks there.
    fn key(&self, qp: usize) -> usize {
        (qp ^ self.device) / align_of::<sys::ib_qp>()
    }

    /// Returns place and user of the member whose QP has that address.
    #[inline]
    fn member(&self, qp: usize) -> Option<(u32, Arc<R::Member>)> {
        let members = self.members.lock();
        let member = members.get(self.key(qp))?;
        Some((member.place, member.user.clone()))
    }

    /// The order has changed. It is locked, so nobody else publishes.
    fn publish(&self, order: &ReceiveOrder<PostedReceive<OfShared<R>>>) {
        self.publish_lost(order);
        self.users.store(order.members(), Relaxed);
    }

    /// A Receive has completed. The order is locked, so nobody else publishes.
    ///
    /// Nothing is written where nothing has changed, which is for nearly every message: what is
    /// beside it is read for each of them, on many CPUs.
    #[inline]
    fn publish_lost(&self, order: &ReceiveOrder<PostedReceive<OfShared<R>>>) {
        let lost = order.lost();
        if self.lost.load(Relaxed) != lost {
            self.lost.store(lost, Relaxed);
        }
    }

    /// Takes note of an event.
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
            shared.failed.store(true, Relaxed);
        }
    }
}

/// The sizes of a Shared Receive Queue, and how it is used.
pub(crate) struct SharedQueueParameters {
    /// The most Receives that are posted.
    pub(crate) depth: u32,
    /// The number of buffers that there may be beside those.
    pub(crate) spare: u32,
    /// Set if a QP of the device uses Receives in the order in which it took them.
    pub(crate) in_order: bool,
    /// Where completions are handled, of Receives and of what its QPs send.
    pub(crate) vector: Vector,
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
    /// The completion vector of that CQ, and of the CQs in which its QPs have places.
    vector: Vector,
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
    /// Makes an SRQ for Receives of one element each, of which `owner` is told.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the device cannot have one as large, `ENOMEM`, or what the device reports.
    pub(crate) fn new(
        pd: Arc<ProtectionDomain>,
        parameters: SharedQueueParameters,
        owner: &Arc<R>,
    ) -> Result<Arc<Self>> {
        let SharedQueueParameters {
            depth,
            spare,
            in_order,
            vector,
        } = parameters;
        let queue = CompletionQueue::own(pd.device(), depth, vector)?;
        let buffers = depth.checked_add(spare).ok_or(EINVAL)?;
        let order = ReceiveOrder::new(depth, buffers, in_order)?;
        let keeper = Keeper::new(buffers)?;
        let keys = KVVec::from_elem(0, usize::try_from(depth)?, GFP_KERNEL)?;
        let device = pd.device().as_ptr().addr();
        let shared = Arc::pin_init(
            pin_init!(Shared {
                order <- new_spinlock!(order, "rpcrdma::Shared::order"),
                members <- XArray::new(AllocKind::Alloc),
                keys <- new_spinlock!(keys, "rpcrdma::Shared::keys"),
                turnover <- new_mutex!((), "rpcrdma::Shared::turnover"),
                lost: Atomic::new(0),
                users: Atomic::new(0),
                failed: Atomic::new(false),
                device,
                owner: owner.clone(),
            }),
            GFP_KERNEL,
        )?;
        let mut attributes = sys::ib_srq_init_attr {
            event_handler: Some(Shared::<R>::event_callback),
            srq_context: Arc::as_ptr(&shared).cast_mut().cast(),
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
        // SAFETY: The fields are dropped after the SRQ was destroyed, and this one after the CQ.
        let end = unsafe { EndOfQueue::new(keeper) };
        // INVARIANT: It was just made. Without memory for the `Arc`, `Drop` destroys it.
        Ok(Arc::new(
            Self {
                srq,
                queue,
                vector,
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

    /// Posts a batch of buffers: [`RECEIVE_BATCH`] at most are taken.
    ///
    /// # Errors
    ///
    /// What the device reports. Then the buffers are its own.
    pub(crate) fn post(&self, buffers: impl Iterator<Item = SharedReceive<R>>) -> Result {
        let mut order = self.shared.order.lock();
        // SAFETY: By the type invariant the SRQ exists, in that PD. The chain is valid for the
        // call. What it names is kept until the SRQ has ended.
        let status = unsafe {
            post_receives(
                self.end.keeper(),
                self.pd.local_dma_lkey(),
                buffers.take(RECEIVE_BATCH as usize),
                |posted| order.post(posted.place(), posted),
                |first| sys::ib_post_srq_recv(self.as_ptr(), first, ptr::null_mut()),
            )
        };
        to_result(status)
    }

    /// Gives to `lost` the buffers of Receives that the device has lost, as far as that is certain.
    pub(crate) fn recover(&self, mut lost: impl FnMut(SharedReceive<R>)) {
        let mut order = self.shared.order.lock();
        order.recover(|posted| {
            // SAFETY: No QP that there is holds it, and none will use it: a device uses Receives in
            // the order of posting, and later ones have completed, see `receive_order`.
            if let Some(buffer) = unsafe { posted.take_back() } {
                lost(buffer);
            }
        });
        self.shared.publish(&order);
    }

    /// Returns the number of Receives that the device has lost, and that were not recovered yet.
    pub(crate) fn lost(&self) -> u32 {
        self.shared.lost.load(Relaxed)
    }

    /// Returns the number of QPs that share it.
    pub(crate) fn members(&self) -> u32 {
        self.shared.users.load(Relaxed)
    }

    /// Returns the user of the QP that has received nothing for longest, and so may hold a Receive
    /// for which others wait that are lost, if it is still there.
    pub(crate) fn most_silent(&self) -> Option<Arc<R::Member>> {
        let place = self.shared.order.lock().oldest()?;
        self.user_at(place)
    }

    /// Returns the user of the QP that has a place, if there is one.
    fn user_at(&self, place: u32) -> Option<Arc<R::Member>> {
        let key = *self.shared.keys.lock().get(place as usize)?;
        let members = self.shared.members.lock();
        let member = members.get(key).filter(|member| member.place == place)?;
        Some(member.user.clone())
    }

    /// Returns the number of Receives that are posted and may be used, or are in use by a message
    /// that is arriving.
    pub(crate) fn posted(&self) -> u32 {
        self.shared.order.lock().posted()
    }

    /// Calls a function for the user of each QP that shares the Receives. Sleeps, since a reference
    /// to a user may be the last.
    pub(crate) fn for_each_user(&self, mut function: impl FnMut(Arc<R::Member>)) {
        let places = self.shared.keys.lock().len();
        for user in (0..places as u32).filter_map(|place| self.user_at(place)) {
            function(user);
        }
    }

    /// Returns whether the device has reported that the SRQ has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.failed.load(Relaxed)
    }

    /// Returns the PD.
    pub(crate) fn pd(&self) -> &Arc<ProtectionDomain> {
        &self.pd
    }

    /// Returns the CQ for its Receives.
    pub(super) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// Returns the completion vector for its QPs.
    pub(super) fn vector(&self) -> Vector {
        self.vector
    }

    /// Returns the C object.
    pub(super) fn as_ptr(&self) -> *mut sys::ib_srq {
        self.srq.as_ptr()
    }

    /// Has `create` make the QP of `user`, whose messages come to that from now on, until
    /// [`MemberOf::left`]. Returns its place, and what `create` returns.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many, what `create` returns, or `ENOMEM`; then `undo` has to
    /// destroy the QP.
    pub(super) fn enter(
        &self,
        user: Arc<R::Member>,
        create: impl FnOnce() -> Result<NonNull<sys::ib_qp>>,
        undo: impl FnOnce(),
    ) -> Result<(NonNull<sys::ib_qp>, u32)> {
        let shared = &self.shared;
        let turn = shared.turnover.lock();
        let place = shared.order.lock().enter()?;
        let entered = Arc::new(Member { user, place }, GFP_KERNEL)
            .map_err(Error::from)
            .and_then(|member| {
                let qp = create()?;
                let key = shared.key(qp.addr().get());
                if let Some(at) = shared.keys.lock().get_mut(place as usize) {
                    *at = key;
                }
                let stored = shared.members.lock().store(key, member, GFP_KERNEL);
                // There was none before: a member that had a QP at this address has left.
                stored.map(|_| qp).map_err(|error| {
                    undo();
                    error.error
                })
            });
        let mut order = shared.order.lock();
        if entered.is_err() {
            order.leave(place);
        }
        shared.publish(&order);
        drop(order);
        drop(turn);
        Ok((entered?, place))
    }
}

/// The turn of a QP to leave.
pub(super) type Turn<'a> = Guard<'a, (), MutexBackend>;

/// A Shared Receive Queue, for a QP of its members. The QP is destroyed between its two calls, not
/// in a closure that is passed as `dyn`: before Rust 1.86 a call of one fails a kernel's KCFI.
pub(super) trait MemberOf: Send + Sync {
    /// Waits until what has arrived was looked at: with the QP many a device takes its completions
    /// back that are in the CQ, which would be taken for lost. None enters or leaves until the
    /// turn was given back. Sleeps.
    fn begin_leaving(&self) -> Turn<'_>;

    /// The QP that was at address `qp`, which was in error and has that place, is destroyed. When
    /// this returns no completion of it is left, and its user is forgotten. Sleeps.
    fn left(&self, turn: Turn<'_>, qp: usize, place: u32);
}

impl<R: SharedReceives> MemberOf for SharedReceiveQueue<R> {
    fn begin_leaving(&self) -> Turn<'_> {
        let turn = self.shared.turnover.lock();
        self.queue.flush();
        turn
    }

    fn left(&self, turn: Turn<'_>, qp: usize, place: u32) {
        self.queue.flush();
        let member = self.shared.members.lock().remove(self.shared.key(qp));
        let mut order = self.shared.order.lock();
        order.leave(place);
        self.shared.publish(&order);
        drop(order);
        drop(turn);
        drop(member);
    }
}

impl<R: SharedReceives> Drop for SharedReceiveQueue<R> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the SRQ exists. QPs that use it hold a reference, so there
        // are none.
        unsafe { sys::ib_destroy_srq(self.srq.as_ptr()) };
    }
}
