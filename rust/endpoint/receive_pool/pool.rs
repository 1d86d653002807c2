// SPDX-License-Identifier: GPL-2.0

//! The Receives of one device.

use super::{
    patience::Patience,
    state::{
        Need,
        PoolLevel,
        State, //
    }, //
};
use crate::{
    endpoint::{
        Endpoint,
        EndpointEvents,
        ReceiveSlot,
        RECEIVE_BATCH, //
    },
    kext::{
        time::seconds,
        Completion as Wait, //
    },
    observe::trace,
    rdma::{
        cm::QueuePairUser,
        completion::{
            Completes,
            Completion,
            Posting, //
        },
        device::{
            Device,
            DeviceName, //
        },
        dma::{
            Direction,
            DmaBuffer, //
        },
        protection_domain::ProtectionDomain,
        shared_receive_queue::SharedReceiveQueue, //
    },
    sys, //
};
use core::marker::PhantomData;
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        new_mutex,
        new_spinlock,
        Arc,
        ArcBorrow,
        Mutex,
        SpinLock, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    },
    xarray::{
        AllocKind,
        XArray, //
    }, //
};

/// The time to wait until a device tells that a QP uses no more Receives.
const LAST_TIMEOUT: Msecs = 1000;

/// For how many seconds connections make do with their share after one was denied more.
const SHORT: u64 = 10;

/// The Receives of one device.
#[pin_data]
pub(crate) struct ReceivePool<H: EndpointEvents> {
    /// The posted Receives, and the others.
    #[pin]
    state: SpinLock<State<PooledReceive<H>>>,
    /// The endpoints, by the addresses of their QPs; see [`Self::key`].
    #[pin]
    ends: XArray<Arc<Endpoint<H>>>,
    /// Held while a QP is made, and from before one is destroyed until its completions are done
    /// with.
    #[pin]
    turnover: Mutex<()>,
    /// The queue, until the pool is closed.
    #[pin]
    queue: Mutex<Option<Arc<SharedReceiveQueue>>>,
    /// The address of the device, see [`Self::key`].
    device: usize,
    /// The name of the device.
    device_name: DeviceName,
    /// Octets of each buffer.
    buffer_size: usize,
    /// The largest number of buffers.
    limit: u32,
    /// The experience with the device, if it may tell when a QP has used its last Receive.
    tells: Option<Patience>,
    /// Set when the device takes no more Receives for the queue.
    broken: Atomic<bool>,
    /// Until which second connections make do with their share. Zero if nobody was denied more yet.
    short_until: Atomic<u64>,
}

impl<H: EndpointEvents> ReceivePool<H> {
    /// Makes a pool without buffers. `tells` is whether its device may tell when a QP has used its
    /// last Receive.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    pub(super) fn new(
        device: &Device,
        buffer_size: usize,
        limit: u32,
        tells: bool,
    ) -> Result<Arc<Self>> {
        // On iWARP a QP may have several messages under way, and begin them in another order than
        // the peer.
        let mut state = State::new(limit, tells)?;
        let device_name = device.name();
        let own = device.try_clone().ok_or(ENODEV)?;
        let srq = SharedReceiveQueue::new(ProtectionDomain::new(own)?, limit)?;
        state.open(srq.clone());
        Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(state, "rpcrdma::ReceivePool::state"),
                ends <- XArray::new(AllocKind::Alloc),
                turnover <- new_mutex!((), "rpcrdma::ReceivePool::turnover"),
                queue <- new_mutex!(Some(srq), "rpcrdma::ReceivePool::queue"),
                device: device.as_ptr().addr(),
                device_name,
                buffer_size,
                limit,
                tells: tells.then(Patience::new),
                broken: Atomic::new(false),
                short_until: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether it is the pool of a device with buffers of that size, in octets, and works.
    pub(super) fn is(&self, device: &Device, buffer_size: usize) -> bool {
        self.device == device.as_ptr().addr()
            && self.buffer_size == buffer_size
            && !self.broken.load(Relaxed)
            && self.queue().is_ok_and(|queue| !queue.has_failed())
    }

    /// Returns the use of the pool.
    pub(crate) fn level(&self) -> PoolLevel {
        self.state.lock().level()
    }

    /// Tells that Receives were posted. The lock is held, so that events come in order.
    fn trace(&self, state: &State<PooledReceive<H>>) {
        let level = state.level();
        trace::shared_receives(
            self.device_name.as_c_str(),
            level.asked,
            level.buffers,
            level.posted,
            level.limit,
            level.lost,
        );
    }

    /// Ends the pool. There are no members any more, so no QP uses its queue, and nobody has a
    /// message.
    pub(super) fn close(&self) {
        let posting = self.state.lock().close();
        drop(posting);
        // The last reference to the queue, which destroys it: no QP uses it, and nobody posts.
        let queue = self.queue.lock().take();
        drop(queue);
        // All Receives are void now. The memory stays with the pool, should anybody still look at a
        // message.
        let state = self.state.lock();
        for slot in state.slots.iter().filter_map(|slot| slot.as_ref()) {
            // SAFETY: The queue is gone, and with it the device's use of the buffer.
            unsafe { slot.slot.buffer.unmap() };
        }
        drop(state);
    }

    /// Returns the queue, for a QP of a member.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there are no members any more.
    pub(crate) fn queue(&self) -> Result<Arc<SharedReceiveQueue>> {
        Ok(self.queue.lock().as_ref().ok_or(ENODEV)?.clone())
    }

    /// Has `create` make the QP of an endpoint, whose messages come to that endpoint from now on,
    /// until [`Self::leave`].
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are too many, or what `create` returns; or `ENOMEM`, then there is a QP
    /// nevertheless, which has to leave.
    pub(crate) fn enter(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        create: impl FnOnce() -> Result<QueuePairUser>,
    ) -> Result {
        let turn = self.turnover.lock();
        let place = self.state.lock().enter()?;
        let qp = match create() {
            Ok(qp) => qp,
            Err(error) => {
                self.state.lock().leave(place);
                return Err(error);
            }
        };
        // Nobody looks there before the endpoint is found among the ends.
        endpoint.set_place(place);
        let stored = self
            .ends
            .lock()
            .store(self.key(qp.as_ptr().addr()), endpoint.clone(), GFP_KERNEL)
            .map_err(Error::from);
        drop(turn);
        // There was none before: who had a QP at this address has left.
        drop(stored?);
        Ok(())
    }

    /// The key of a QP among the ends.
    ///
    /// No two QPs have the same, since addresses differ above the alignment of the structure. What
    /// all addresses have in common is taken out, because the depth of the array is that of its
    /// largest key, and each message looks there.
    fn key(&self, qp: usize) -> usize {
        (qp ^ self.device) / align_of::<sys::ib_qp>()
    }

    /// Waits until the device has told that a QP in error uses no more of the Receives, whereupon
    /// `told` is completed; for a second at most. Where that was in vain several times in a row it
    /// is not waited for a while.
    pub(crate) fn await_last(&self, told: &Wait) {
        let Some(patience) = &self.tells else { return };
        if patience.waits(seconds()) {
            let told = told.wait_timeout(msecs_to_jiffies(LAST_TIMEOUT));
            patience.waited(told, seconds());
        }
    }

    /// Has `destroy` destroy a QP, which is in error. When this returns no completion of it is
    /// left, and the endpoint is forgotten.
    pub(crate) fn leave(
        self: &Arc<Self>,
        endpoint: &Endpoint<H>,
        qp: usize,
        destroy: impl FnOnce(),
    ) {
        let turn = self.turnover.lock();
        let flush = || {
            if let Ok(queue) = self.queue() {
                queue.flush();
            }
        };
        // With the QP many a device takes its completions back that are in the CQ. What was not
        // looked at before would be taken for lost.
        flush();
        destroy();
        flush();
        let end = self.ends.lock().remove(self.key(qp));
        drop(turn);
        drop(end);
        self.state.lock().leave(endpoint.place());
        // For what may have been lost.
        let _ = self.fill();
    }

    /// Asks for `count` Receives more. Sleeps. When this returns they are posted.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there would be more than there may be, `ENOMEM`, or what the device reports.
    pub(crate) fn ask(self: &Arc<Self>, count: u32, need: Need) -> Result {
        self.ask_later(count, need)?;
        let filled = self.fill();
        if filled.is_err() {
            self.release(count);
        }
        filled
    }

    /// Asks for `count` Receives more, which are posted when [`Self::fill`] is called next. Any
    /// context.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there would be more than there may be.
    pub(crate) fn ask_later(&self, count: u32, need: Need) -> Result {
        let asked = self.state.lock().ask(count, need);
        if asked.is_err() {
            self.short_until
                .store(seconds().saturating_add(SHORT), Relaxed);
        }
        asked
    }

    /// Returns the number of Receives that a connection has to make do with, if there were too few
    /// for all a short while ago. Any context.
    pub(crate) fn share(&self) -> Option<u32> {
        let until = self.short_until.load(Relaxed);
        // Nearly always it is zero, and this is asked for each Reply.
        if until == 0 || seconds() > until {
            return None;
        }
        Some(self.state.lock().share())
    }

    /// Asks for `count` Receives less.
    pub(crate) fn release(&self, count: u32) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.saturating_sub(count);
    }

    /// Recovers what was lost, makes buffers until there are as many as there should be, and posts
    /// them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports. Then there are too few buffers, but those that there
    /// are were posted.
    pub(crate) fn fill(self: &Arc<Self>) -> Result {
        self.state.lock().recover();
        let mut made = Ok(());
        while made.is_ok() && self.state.lock().too_few() {
            made = self.add();
        }
        // In any case: a batch that stayed idle would be missing among those that were promised
        // before.
        self.post_idle().and(made)
    }

    /// Posts what is idle, but for less than a batch.
    ///
    /// # Errors
    ///
    /// What the device reports.
    fn post_idle(&self) -> Result {
        let mut state = self.state.lock();
        if state.lost() > 0 {
            state.recover();
        }
        while state.srq.is_some() && state.idle.len() >= RECEIVE_BATCH as usize {
            if let Err(error) = state.post() {
                drop(state);
                self.broken.store(true, Relaxed);
                kernel::pr_err_once!("a device refuses Receives for its Shared Receive Queue\n");
                return Err(error);
            }
            self.trace(&state);
        }
        Ok(())
    }

    /// Makes one buffer more. It is idle.
    fn add(self: &Arc<Self>) -> Result {
        let slot = PooledReceive {
            slot: ReceiveSlot {
                index: 0,
                buffer: DmaBuffer::new(self.buffer_size, Direction::FromDevice)?,
            },
            pool: PhantomData,
        };
        let slot = KBox::new(Posting::new(slot), GFP_KERNEL)?;
        slot.belongs_to(self);
        // SAFETY: Nobody else knows the buffer. It is unmapped by `close` or `recycle`.
        unsafe { slot.slot.buffer.map(self.queue()?.pd().device()) }?;
        let mut state = self.state.lock();
        if !state.too_few() {
            drop(state);
            // Somebody else was faster, and it may have taken the last place.
            // SAFETY: Nobody knows the buffer.
            unsafe { slot.slot.buffer.unmap() };
            return Ok(());
        }
        let State {
            slots,
            vacant,
            idle,
            made,
            ..
        } = &mut *state;
        let place = vacant
            .pop()
            .and_then(|index| Some((index, slots.get_mut(index as usize)?)));
        let Some((index, place)) = place else {
            drop(state);
            // SAFETY: Nobody knows the buffer.
            unsafe { slot.slot.buffer.unmap() };
            return Err(ENOSPC);
        };
        let mut slot = slot;
        slot.slot.index = index;
        *place = Some(slot);
        *made += 1;
        // There is room for all.
        let _ = idle.push_within_capacity(index);
        Ok(())
    }

    /// Takes a buffer back that a message was in. Any context in which spinlocks may be taken.
    pub(crate) fn recycle(&self, index: u32) {
        let mut state = self.state.lock();
        let spare = state.made > state.target();
        // There is room for all.
        let _ = state.idle.push_within_capacity(index);
        // What is idle makes one more batch, which was promised maybe, before anything goes.
        if state.idle.len() >= RECEIVE_BATCH as usize {
            drop(state);
            // It is said when it fails, and new connections get another pool.
            let _ = self.post_idle();
            return;
        }
        if spare {
            let slot = state.remove_idle();
            if let Some(slot) = &slot {
                // SAFETY: The device has given the buffer back. The lock is held, and the buffer
                // was in the table: `close`, after which the device may go, unmaps what is there
                // under the lock too. So either it will do so later, or it has done so with this
                // buffer, and there is nothing to unmap.
                unsafe { slot.slot.buffer.unmap() };
            }
            drop(state);
            // Frees the memory.
            drop(slot);
        }
    }
}

/// A Receive buffer of a pool.
struct PooledReceive<H: EndpointEvents> {
    /// The buffer.
    slot: ReceiveSlot,
    /// Whose pool it is.
    pool: PhantomData<fn(H)>,
}

impl<H: EndpointEvents> AsRef<ReceiveSlot> for PooledReceive<H> {
    fn as_ref(&self) -> &ReceiveSlot {
        &self.slot
    }
}

impl<H: EndpointEvents> Completes for PooledReceive<H> {
    type Owner = ReceivePool<H>;

    fn completed(&self, this: ArcBorrow<'_, ReceivePool<H>>, completion: Completion<'_>) {
        let index = self.slot.index;
        let endpoint = this
            .ends
            .lock()
            .get(this.key(completion.qp().addr()))
            .map(Arc::from);
        let place = endpoint.as_ref().map(|endpoint| endpoint.place());
        if !this.state.lock().completed(index, place) {
            kernel::pr_err_once!("a device has completed a Receive that was not posted\n");
            return;
        }
        let Some(endpoint) = endpoint else {
            // Its QP is gone.
            this.recycle(index);
            return;
        };
        // SAFETY: The slot has just completed, and is the endpoint's pool's. It stays in the table
        // until it is given to `recycle`, which happens when the `Received` is dropped.
        unsafe { Endpoint::arrived(endpoint, &self.slot, completion) };
    }
}
