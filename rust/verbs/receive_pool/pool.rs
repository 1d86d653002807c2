// SPDX-License-Identifier: GPL-2.0

//! The Receives of one device.

use super::state::{Need, PoolLevel, State};
use crate::kext::time::seconds;
use crate::kext::Completion as Wait;
use crate::observe::trace;
use crate::sys;
use crate::verbs::completion::{Completion, CompletionEntry, CompletionQueue};
use crate::verbs::device::{self, DeviceName};
use crate::verbs::dma::{Direction, DmaBuffer};
use crate::verbs::endpoint::{Endpoint, EndpointEvents, ReceiveSlot, RECEIVE_BATCH};
use crate::verbs::work_request::PlainRequest;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};
use kernel::time::{msecs_to_jiffies, Msecs};
use kernel::xarray::{AllocKind, XArray};

/// How long to wait until a device tells that a QP uses no more Receives.
const LAST_TIMEOUT: Msecs = 1000;

/// For how many seconds connections make do with their share after one was denied more.
const SHORT: u64 = 10;

/// The verbs objects of a pool. They go in this order, but for the PD, which goes last.
struct Objects {
    /// The queue.
    srq: NonNull<sys::ib_srq>,
    /// Where its Receives complete.
    queue: CompletionQueue,
    /// The protection domain, in which the QPs are too.
    pd: NonNull<sys::ib_pd>,
}

// SAFETY: The verbs objects may be used from any context; exclusion is by the mutex around this.
unsafe impl Send for Objects {}

/// The Receives of one device.
#[pin_data]
pub(in crate::verbs) struct ReceivePool<H: EndpointEvents> {
    /// What is posted, and what could be.
    #[pin]
    state: SpinLock<State>,
    /// The endpoints, by the addresses of their QPs; see [`Self::key`].
    #[pin]
    ends: XArray<Arc<Endpoint<H>>>,
    /// Held while a QP is made, and from before one is destroyed until its completions are done with.
    #[pin]
    turnover: Mutex<()>,
    /// The verbs objects, until the pool is closed.
    #[pin]
    objects: Mutex<Option<Objects>>,
    /// The device, which the members hold.
    device: NonNull<sys::ib_device>,
    /// Its name.
    device_name: DeviceName,
    /// Octets of each buffer.
    buffer_size: usize,
    /// How many buffers there may be.
    limit: u32,
    /// Whether the device is thought to tell when a QP has used its last Receive.
    tells: Atomic<bool>,
    /// Until which second connections make do with their share. Zero if nobody was denied more yet.
    short_until: Atomic<u64>,
}

// SAFETY: The raw pointer names a device that the members hold; everything else is behind locks.
unsafe impl<H: EndpointEvents> Send for ReceivePool<H> {}
// SAFETY: As above.
unsafe impl<H: EndpointEvents> Sync for ReceivePool<H> {}

impl<H: EndpointEvents> ReceivePool<H> {
    /// Makes a pool without buffers. `tells` is whether its device may tell when a QP has used its last Receive.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    ///
    /// # Safety
    ///
    /// The device stays registered until [`Self::close`] has returned.
    pub(super) unsafe fn new(
        device: NonNull<sys::ib_device>,
        buffer_size: usize,
        limit: u32,
        tells: bool,
    ) -> Result<Arc<Self>> {
        let state = State::new(limit)?;
        // SAFETY: The caller guarantees it.
        let device_name = DeviceName::copy(unsafe { device::name(device) });
        let this = Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(state, "rpcrdma::ReceivePool::state"),
                ends <- XArray::new(AllocKind::Alloc),
                turnover <- new_mutex!((), "rpcrdma::ReceivePool::turnover"),
                objects <- new_mutex!(None, "rpcrdma::ReceivePool::objects"),
                device,
                device_name,
                buffer_size,
                limit,
                tells: Atomic::new(tells),
                short_until: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        this.set_up()?;
        Ok(this)
    }

    /// Whether it is the pool of a device with buffers of that size, in octets.
    pub(super) fn is(&self, device: NonNull<sys::ib_device>, buffer_size: usize) -> bool {
        self.device == device && self.buffer_size == buffer_size
    }

    /// How full it is.
    pub(in crate::verbs) fn level(&self) -> PoolLevel {
        self.state.lock().level()
    }

    /// Tells that Receives were posted. The lock is held, so that events come in order.
    fn trace(&self, state: &State) {
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

    /// Makes the verbs objects.
    fn set_up(self: &Arc<Self>) -> Result {
        // SAFETY: The device is registered.
        let pd = from_err_ptr(unsafe { sys::ib_alloc_pd(self.device.as_ptr(), 0) })?;
        let pd = NonNull::new(pd).ok_or(ENOMEM)?;
        let made = self.set_up_in(pd);
        if made.is_err() {
            // SAFETY: Nothing is left in the PD.
            unsafe { sys::ib_dealloc_pd(pd.as_ptr()) };
        }
        made
    }

    /// Makes the verbs objects in a PD.
    fn set_up_in(self: &Arc<Self>, pd: NonNull<sys::ib_pd>) -> Result {
        // SAFETY: The device is registered until `close`, which drops the CQ. It is called for the last member, when the
        // QPs are gone.
        let queue = unsafe { CompletionQueue::own(self.device, self.limit) }?;
        let mut attributes = sys::ib_srq_init_attr {
            attr: sys::ib_srq_attr {
                max_wr: self.limit,
                max_sge: 1,
                srq_limit: 0,
            },
            srq_type: sys::ib_srq_type_IB_SRQT_BASIC,
            ..sys::ib_srq_init_attr::zeroed()
        };
        // SAFETY: The PD is live.
        let srq = from_err_ptr(unsafe { sys::ib_create_srq(pd.as_ptr(), &raw mut attributes) })?;
        let srq = NonNull::new(srq).ok_or(ENOMEM)?;
        let mut state = self.state.lock();
        // SAFETY: The PD is live.
        state.lkey = unsafe { (*pd.as_ptr()).local_dma_lkey };
        state.srq = Some(srq);
        drop(state);
        *self.objects.lock() = Some(Objects { srq, queue, pd });
        Ok(())
    }

    /// Ends the pool. There are no members any more, so no QP uses its queue, and nobody has a message.
    pub(super) fn close(&self) {
        self.state.lock().srq = None;
        let objects = self.objects.lock().take();
        let pd = objects.map(|objects| {
            // SAFETY: No QP uses it; nobody posts to it any more.
            unsafe { sys::ib_destroy_srq(objects.srq.as_ptr()) };
            objects.pd
        });
        // All Receives are void now. The memory stays with the pool, should anybody still look at a message.
        let state = self.state.lock();
        for slot in state.slots.iter().filter_map(|slot| slot.as_ref()) {
            // SAFETY: The queue is gone, and with it the device's use of the buffer.
            unsafe { slot.buffer.unmap() };
        }
        drop(state);
        if let Some(pd) = pd {
            // SAFETY: Everything made in the PD is gone.
            unsafe { sys::ib_dealloc_pd(pd.as_ptr()) };
        }
    }

    /// The queue, its CQ and the PD, for a QP of a member. They stay as long as there are members.
    pub(in crate::verbs) fn parts(&self) -> Result<Parts> {
        let objects = self.objects.lock();
        let objects = (*objects).as_ref().ok_or(ENODEV)?;
        Ok(Parts {
            srq: objects.srq.as_ptr(),
            receive_cq: objects.queue.as_ptr(),
            pd: objects.pd,
        })
    }

    /// Has `create` make the QP of an endpoint, whose messages come to that endpoint from now on, until
    /// [`Self::leave`].
    ///
    /// # Errors
    ///
    /// What `create` returns; or `ENOMEM`, then there is a QP nevertheless, which has to leave.
    pub(in crate::verbs) fn enter(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        create: impl FnOnce() -> Result<NonNull<sys::ib_qp>>,
    ) -> Result<NonNull<sys::ib_qp>> {
        let turn = self.turnover.lock();
        let qp = create()?;
        let stored = self
            .ends
            .lock()
            .store(self.key(qp.as_ptr()), endpoint.clone(), GFP_KERNEL)
            .map_err(Error::from);
        drop(turn);
        self.state.lock().ends += 1;
        // There was none before: who had a QP at this address has left.
        drop(stored?);
        Ok(qp)
    }

    /// The key of a QP among the ends.
    ///
    /// No two QPs have the same, since addresses differ above the alignment of the structure. What all addresses have in
    /// common is taken out, because the depth of the array is that of its largest key, and each message looks there.
    fn key(&self, qp: *const sys::ib_qp) -> usize {
        (qp.addr() ^ self.device.as_ptr().addr()) / align_of::<sys::ib_qp>()
    }

    /// Waits until the device has told that a QP in error uses no more of the Receives, whereupon `told` is completed; for a
    /// second at most, and not again if one that was to be told by then was not.
    pub(in crate::verbs) fn await_last(&self, told: &Wait) {
        if self.tells.load(Relaxed) && !told.wait_timeout(msecs_to_jiffies(LAST_TIMEOUT)) {
            self.tells.store(false, Relaxed);
        }
    }

    /// Has `destroy` destroy a QP, which is in error. When this returns no completion of it is left, and the endpoint is
    /// forgotten.
    pub(in crate::verbs) fn leave(
        self: &Arc<Self>,
        qp: NonNull<sys::ib_qp>,
        destroy: impl FnOnce(),
    ) {
        let turn = self.turnover.lock();
        let flush = || {
            if let Some(objects) = &*self.objects.lock() {
                objects.queue.flush();
            }
        };
        // With the QP many a device takes its completions back that are in the CQ. What was not looked at before would be
        // taken for lost.
        flush();
        destroy();
        flush();
        let endpoint = self.ends.lock().remove(self.key(qp.as_ptr()));
        drop(turn);
        drop(endpoint);
        let mut state = self.state.lock();
        state.ends = state.ends.saturating_sub(1);
        drop(state);
        // For what may have been lost.
        let _ = self.fill();
    }

    /// Asks for `count` Receives more. Sleeps. When this returns they are posted.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there would be more than there may be, `ENOMEM`, or what the device reports.
    pub(in crate::verbs) fn ask(self: &Arc<Self>, count: u32, need: Need) -> Result {
        let asked = self.state.lock().ask(count, need);
        if asked.is_err() {
            self.short_until
                .store(seconds().saturating_add(SHORT), Relaxed);
        }
        asked?;
        let filled = self.fill();
        if filled.is_err() {
            self.release(count);
        }
        filled
    }

    /// How many Receives a connection is to make do with, if there were too few for all a short while ago. Any context.
    pub(in crate::verbs) fn share(&self) -> Option<u32> {
        let until = self.short_until.load(Relaxed);
        // Nearly always it is zero, and this is asked for each Reply.
        if until == 0 || seconds() > until {
            return None;
        }
        Some(self.state.lock().share())
    }

    /// Asks for `count` Receives less.
    pub(in crate::verbs) fn release(&self, count: u32) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.saturating_sub(count);
    }

    /// Makes buffers until there are as many as there should be, and posts them.
    fn fill(self: &Arc<Self>) -> Result {
        loop {
            let state = self.state.lock();
            let missing = state.made < state.target().min(self.limit);
            drop(state);
            if !missing {
                break;
            }
            self.add()?;
        }
        let mut state = self.state.lock();
        while state.idle.len() >= RECEIVE_BATCH as usize {
            state.post()?;
            self.trace(&state);
        }
        Ok(())
    }

    /// Makes one buffer more. It is idle.
    fn add(self: &Arc<Self>) -> Result {
        let slot = KBox::new(
            ReceiveSlot {
                entry: CompletionEntry::new(Self::receive_callback),
                index: 0,
                posted_as: Atomic::new(0),
                buffer: DmaBuffer::new(self.buffer_size, Direction::FromDevice)?,
            },
            GFP_KERNEL,
        )?;
        slot.entry.belongs_to(self);
        // SAFETY: The device is registered as long as there are members, and nobody else knows the buffer. It is
        // unmapped by `close` or `recycle`.
        unsafe { slot.buffer.map(self.device) }?;
        let mut state = self.state.lock();
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
            unsafe { slot.buffer.unmap() };
            return Err(ENOSPC);
        };
        let mut slot = slot;
        slot.index = index;
        *place = Some(slot);
        *made += 1;
        // There is room for all.
        let _ = idle.push_within_capacity(index);
        Ok(())
    }

    /// Takes a buffer back that a message was in. Any context in which spinlocks may be taken.
    pub(in crate::verbs) fn recycle(&self, index: u32) {
        let mut state = self.state.lock();
        if state.made > state.target() {
            let slot = state
                .slots
                .get_mut(index as usize)
                .and_then(|place| place.take());
            if let Some(slot) = slot {
                state.made -= 1;
                // There is room for all.
                let _ = state.vacant.push_within_capacity(index);
                drop(state);
                // SAFETY: The device gave the buffer back, and the table does not have it any more.
                unsafe { slot.buffer.unmap() };
            }
            return;
        }
        // There is room for all.
        let _ = state.idle.push_within_capacity(index);
        if state.srq.is_none() || state.idle.len() < RECEIVE_BATCH as usize {
            return;
        }
        if state.post().is_ok() {
            self.trace(&state);
            return;
        }
        drop(state);
        kernel::pr_err_once!("a device refuses Receives for its Shared Receive Queue\n");
    }

    /// # Safety
    ///
    /// Called by the CQ core for a Receive of this pool.
    unsafe extern "C" fn receive_callback(_cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
        // SAFETY: The CQ core hands us the completion for the call.
        let Some(completion) = (unsafe { Completion::from_raw(wc) }) else {
            return;
        };
        // SAFETY: This handler is that of the entries of pools only, which `add` gives to their pool; slots and pool
        // outlive the CQ, which `close` drops.
        let this = unsafe { completion.owner::<Self>() };
        let slot = completion.entry().cast::<ReceiveSlot>();
        // SAFETY: This handler belongs to the entries of the pool's slots only, whose first member they are. One that
        // was posted stays in the table until it is given to `recycle`, which happens below or when the `Received`
        // is dropped.
        let (index, posted_as) = unsafe { ((*slot).index, (*slot).posted_as.load(Relaxed)) };
        this.state.lock().completed(posted_as);
        let endpoint = this
            .ends
            .lock()
            .get(this.key(completion.qp()))
            .map(Arc::from);
        let Some(endpoint) = endpoint else {
            // Its QP is gone.
            this.recycle(index);
            return;
        };
        let Some(slot) = NonNull::new(slot) else {
            return;
        };
        // SAFETY: The slot has just completed, and is the endpoint's pool's.
        unsafe { Endpoint::arrived(endpoint, slot, completion) };
    }
}

/// What a QP needs of a pool.
pub(in crate::verbs) struct Parts {
    /// The queue.
    pub(in crate::verbs) srq: *mut sys::ib_srq,
    /// Where its Receives complete.
    pub(in crate::verbs) receive_cq: *mut sys::ib_cq,
    /// The protection domain.
    pub(in crate::verbs) pd: NonNull<sys::ib_pd>,
}
