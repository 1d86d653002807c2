// SPDX-License-Identifier: GPL-2.0

//! The Receives of one group of connections on a device.

use super::{
    patience::Patience,
    state::{
        Demand,
        Need, //
    }, //
};
use crate::kext::prelude::*;
use crate::{
    endpoint::growth::Growth,
    kext::{
        completion::Completion as Wait,
        debugfs::lines,
        delayed_work::{
            impl_has_delayed_work_ext,
            new_delayed_work_ext,
            DelayedWork,
            DelayedWorkItem, //
        },
        memalloc::NoFs,
        ratelimit::pr_warn_ratelimited,
        time::{
            seconds,
            HZ, //
        }, //
    },
    observe::trace,
    rdma::{
        completion::{
            Completion,
            Vector, //
        },
        device::{
            Device,
            DeviceName, //
        },
        protection_domain::ProtectionDomain,
        receive_buffer::RECEIVE_BATCH,
        shared_receive_queue::{
            SharedQueueParameters,
            SharedReceive,
            SharedReceiveQueue,
            SharedReceives, //
        }, //
    }, //
};
use core::iter;
use kernel::{
    seq_file::SeqFile,
    time::{
        msecs_to_jiffies,
        Msecs, //
    }, //
};

/// The time to wait until a device tells that a QP uses no more Receives.
const LAST_TIMEOUT: Msecs = 1000;

/// For how many seconds connections make do with their share after one was denied more.
const SHORT: u64 = 10;

/// The most larger buffers that wait for the places of shorter ones.
const STOCK: u32 = 2 * RECEIVE_BATCH;

/// Jiffies after which buffers are made for which there was no memory.
const STOCK_RETRY: usize = HZ;

/// Names the work item that ends connections.
const END_WORK: u64 = 0;

/// Names the work item that makes larger buffers.
const STOCK_WORK: u64 = 1;

/// A user of a QP that shares Receives.
pub(crate) trait PoolMember: Sized + Send + Sync + 'static {
    /// A Receive of its QP has completed. Runs in the context of completion handlers.
    fn arrived(
        this: Arc<Self>,
        buffer: SharedReceive<ReceivePool<Self>>,
        completion: Completion<'_>,
    );

    /// The connection ends, for the sake of those that share the Receives. Sleeps.
    fn give_way(this: &Arc<Self>);
}

/// The parameters of a pool.
pub(super) struct PoolParameters {
    /// The size of each buffer in octets.
    pub(super) buffer_size: usize,
    /// The most Receives.
    pub(super) limit: u32,
    /// Set if the device may tell when a QP has used its last Receive.
    pub(super) tells: bool,
    /// The group of connections that it is for.
    pub(super) group: u32,
    /// The completion vector of that group.
    pub(super) vector: Vector,
}

/// The Receives of one group of connections on a device.
#[pin_data]
pub(crate) struct ReceivePool<M: PoolMember> {
    /// The demand for Receives, and those that are not posted.
    #[pin]
    state: SpinLock<State<M>>,
    /// The address of the device.
    device: usize,
    /// The name of the device.
    device_name: DeviceName,
    /// The group of connections that it is for.
    group: u32,
    /// The experience with the device, if it may tell when a QP has used its last Receive.
    tells: Option<Patience>,
    /// Set when the device takes no more Receives for the queue.
    broken: Atomic<bool>,
    /// Ends the connections then, since the code that posts may run in any context.
    #[pin]
    ending: DelayedWork<Self, END_WORK>,
    /// Makes larger buffers.
    #[pin]
    stocking: DelayedWork<Self, STOCK_WORK>,
    /// Until which second connections make do with their share. Zero if nobody was denied more yet.
    short_until: Atomic<u64>,
}

/// The queue of a pool.
type Queue<M> = Arc<SharedReceiveQueue<ReceivePool<M>>>;

/// The state that the lock of a pool protects.
struct State<M: PoolMember> {
    /// The queue, from its making until the pool is closed.
    queue: Option<Queue<M>>,
    /// The demand for Receives.
    demand: Demand,
    /// The buffers that are neither posted nor lent. With room for all.
    idle: KVVec<SharedReceive<ReceivePool<M>>>,
    /// The size of buffers, and larger ones that wait for their places.
    growth: Growth<SharedReceive<ReceivePool<M>>>,
    /// The number of times that Receives were posted.
    refills: u64,
}

impl<M: PoolMember> State<M> {
    /// Returns the number of Receives that the device has lost.
    fn lost(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.lost())
    }

    /// Has larger buffers take the places of those that are idle.
    fn replace_idle(&mut self) {
        let Self {
            queue,
            idle,
            growth,
            ..
        } = self;
        let Some(queue) = queue else { return };
        for idle in idle.iter_mut() {
            if let Some(former) = growth.replace(idle) {
                queue.release(former);
            }
        }
    }

    /// Makes idle what the device has lost.
    fn recover(&mut self) {
        let Self { queue, idle, .. } = self;
        if let Some(queue) = queue {
            // There is room for all.
            queue.recover(|buffer| drop(idle.push_within_capacity(buffer)));
        }
    }

    /// Posts a batch of idle buffers, or what there is of them.
    ///
    /// # Errors
    ///
    /// What the device reports. Then the buffers are not idle any more.
    fn post(&mut self) -> Result {
        let Self { queue, idle, .. } = self;
        let queue = queue.as_ref().ok_or(ENODEV)?;
        queue.post(iter::from_fn(|| idle.pop()))?;
        self.refills += 1;
        Ok(())
    }
}

impl<M: PoolMember> ReceivePool<M> {
    /// Makes a pool without buffers.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    pub(super) fn new(device: &Device, parameters: PoolParameters) -> Result<Arc<Self>> {
        let PoolParameters {
            buffer_size,
            limit,
            tells,
            group,
            vector,
        } = parameters;
        let state = State {
            queue: None,
            demand: Demand::new(limit),
            idle: KVVec::with_capacity(usize::try_from(limit)?, GFP_KERNEL)?,
            growth: Growth::new(buffer_size),
            refills: 0,
        };
        let device_name = device.name();
        let own = device.try_clone().ok_or(ENODEV)?;
        let pd = ProtectionDomain::new(own)?;
        let pool = Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(state, "rpcrdma::ReceivePool::state"),
                device: device.as_ptr().addr(),
                device_name,
                group,
                tells: tells.then(Patience::new),
                broken: Atomic::new(false),
                ending <- new_delayed_work_ext!("rpcrdma::ReceivePool::ending"),
                stocking <- new_delayed_work_ext!("rpcrdma::ReceivePool::stocking"),
                short_until: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        // On iWARP a QP may have several messages under way, and begin them in another order than
        // the peer.
        let parameters = SharedQueueParameters {
            depth: limit,
            spare: STOCK,
            in_order: tells,
            vector,
        };
        let queue = SharedReceiveQueue::new(pd, parameters, &pool)?;
        pool.state.lock().queue = Some(queue);
        Ok(pool)
    }

    /// Returns whether it is the pool of a device with buffers of that size, in octets, of which
    /// none is shorter, and works.
    pub(super) fn is(&self, device: &Device, buffer_size: usize) -> bool {
        self.device == device.as_ptr().addr()
            && self.has_size(buffer_size)
            && !self.broken.load(Relaxed)
            && self.queue().is_ok_and(|queue| !queue.has_failed())
    }

    /// Returns the group of connections that it is for.
    pub(super) fn group(&self) -> u32 {
        self.group
    }

    /// Returns whether a further connection with that need may find no Receives.
    pub(super) fn is_full(&self, need: Need) -> bool {
        let state = self.state.lock();
        state.demand.is_full(need, state.lost())
    }

    /// Returns whether all buffers have that size in octets.
    fn has_size(&self, size: usize) -> bool {
        let state = self.state.lock();
        state.growth.is_over() && state.growth.size() == size
    }

    /// Has buffers of `size` octets take the places of all that are shorter, one by one as messages
    /// use those up. Any context that may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` while others do, `ENOMEM`. Then nothing has changed.
    pub(crate) fn enlarge(self: &Arc<Self>, size: usize) -> Result {
        let stock = KVVec::with_capacity(STOCK as usize, GFP_KERNEL)?;
        let mut state = self.state.lock();
        if state.growth.size() >= size {
            // Another connection had it done.
            return Ok(());
        }
        if !state.growth.may_begin() {
            return Err(EBUSY);
        }
        let made = state.demand.made;
        let stock = state.growth.begin(size, made, stock);
        drop(state);
        drop(stock);
        DelayedWork::<Self, STOCK_WORK>::schedule(self, 0);
        Ok(())
    }

    /// Returns the number of buffers that larger ones will replace.
    pub(crate) fn shorter(&self) -> u32 {
        self.state.lock().growth.shorter()
    }

    /// Returns the size of the buffers in octets, if none is shorter.
    pub(crate) fn enlarged(&self) -> Option<u32> {
        let state = self.state.lock();
        let size = u32::try_from(state.growth.size()).ok();
        size.filter(|_| state.growth.is_over())
    }

    /// Makes larger buffers, as many as may wait, and frees those that have nothing to wait for.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    fn restock(&self) -> Result {
        let queue = self.queue()?;
        loop {
            let mut state = self.state.lock();
            state.replace_idle();
            if let Some(surplus) = state.growth.surplus() {
                drop(state);
                queue.release(surplus);
                continue;
            }
            let size = state.growth.size();
            let missing = state.growth.missing(STOCK);
            drop(state);
            if missing == 0 {
                return Ok(());
            }
            let larger = queue.buffer(size)?;
            let refused = self.state.lock().growth.add(larger);
            if let Some(buffer) = refused {
                queue.release(buffer);
            }
        }
    }

    /// Writes the use of the pool into a file of debugfs: its group, connections that share it, the
    /// Receives that they have asked for; buffers that there are, and may be; Receives that are
    /// posted and may be used, or are in use by a message that is arriving; those that the device
    /// has lost, and that were not recovered yet; the batches that were posted; the size of a
    /// buffer that is made now, and the number of those that are shorter.
    pub(crate) fn show(&self, m: &SeqFile) {
        let state = self.state.lock();
        let queue = state.queue.as_ref();
        lines!(m,
            "pool_group": self.group,
            "pool_connections": queue.map_or(0, |queue| queue.members()),
            "pool_asked": state.demand.wanted,
            "pool_buffers": state.demand.made,
            "pool_limit": state.demand.limit,
            "pool_posted": queue.map_or(0, |queue| queue.posted()),
            "pool_lost": queue.map_or(0, |queue| queue.lost()),
            "pool_refills": state.refills,
            "pool_buffer_size": state.growth.size(),
            "pool_shorter": state.growth.shorter(),
        );
    }

    /// Tells that Receives were posted. The lock is held, so that events come in order.
    fn trace(&self, state: &State<M>) {
        let queue = state.queue.as_ref();
        trace::shared_receives(
            self.device_name.as_c_str(),
            state.demand.wanted,
            state.demand.made,
            queue.map_or(0, |queue| queue.posted()),
            state.demand.limit,
            queue.map_or(0, |queue| queue.lost()),
        );
    }

    /// Ends the pool. There are no members any more, so no QP uses its queue.
    pub(super) fn close(self: &Arc<Self>) {
        DelayedWork::<Self, END_WORK>::disable_sync(self);
        DelayedWork::<Self, STOCK_WORK>::disable_sync(self);
        let queue = self.state.lock().queue.take();
        // The last reference to the queue, which destroys it: no QP uses it, and nobody posts. The
        // memory of a message stays as long as somebody looks at it.
        drop(queue);
    }

    /// Returns the queue, for a QP of a member.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there are no members any more.
    pub(crate) fn queue(&self) -> Result<Queue<M>> {
        self.state.lock().queue.clone().ok_or(ENODEV)
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

    /// Asks for `count` Receives more. Sleeps. When this returns they are posted.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there would be more than there may be, `ENOMEM`, or what the device reports.
    pub(crate) fn ask(self: &Arc<Self>, count: u32, need: Need) -> Result {
        self.ask_later(count, need)?;
        // A connection that joins after the others were told to end would miss the same Receives.
        let works = !self.broken.load(Relaxed);
        let filled = if works { self.fill() } else { Err(EIO) };
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
        let asked = {
            let mut state = self.state.lock();
            let lost = state.lost();
            state.demand.ask(count, need, lost)
        };
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
        let state = self.state.lock();
        let members = state.queue.as_ref().map_or(0, |queue| queue.members());
        Some(state.demand.share(members, state.lost()))
    }

    /// Asks for `count` Receives less.
    pub(crate) fn release(&self, count: u32) {
        let mut state = self.state.lock();
        state.demand.wanted = state.demand.wanted.saturating_sub(count);
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
        self.end_silent();
        self.make()
    }

    /// Makes buffers until there are as many as there should be, and posts them. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::fill`].
    fn make(self: &Arc<Self>) -> Result {
        let made = loop {
            match self.add() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        // In any case: a batch that stayed idle would be missing among those that were promised
        // before.
        self.post_idle().and(made)
    }

    /// As [`Self::fill`], again and again while there is no memory: without that what is missing of
    /// those that were promised would be missing until somebody asks for more. Sleeps.
    pub(crate) fn fill_at_last(self: &Arc<Self>) {
        let filled = self.fill();
        self.try_later(filled);
    }

    /// Has buffers made after a while if there was no memory, unless the device takes none.
    fn try_later(self: &Arc<Self>, made: Result) {
        if made == Err(ENOMEM) && !self.broken.load(Relaxed) {
            DelayedWork::<Self, STOCK_WORK>::schedule(self, STOCK_RETRY);
        }
    }

    /// Posts what is idle, but for less than a batch.
    ///
    /// # Errors
    ///
    /// Returns the device's error. The pool's connections end then.
    fn post_idle(self: &Arc<Self>) -> Result {
        let mut state = self.state.lock();
        if state.lost() > 0 {
            state.recover();
        }
        while state.queue.is_some() && state.idle.len() >= RECEIVE_BATCH as usize {
            if let Err(error) = state.post() {
                drop(state);
                self.broken.store(true, Relaxed);
                DelayedWork::<Self, END_WORK>::schedule(self, 0);
                kernel::pr_err_once!(
                    "device {}: posting to the Shared Receive Queue failed ({error:?}); closing \
                     its connections; load the module with shared_receives=0 to avoid such \
                     queues\n",
                    self.device_name
                );
                return Err(error);
            }
            self.trace(&state);
        }
        Ok(())
    }

    /// Makes one buffer more, if there are too few. It is idle. Returns whether there were.
    fn add(&self) -> Result<bool> {
        let queue = self.queue()?;
        let mut state = self.state.lock();
        let lost = state.lost();
        let claimed = state.demand.claim(lost);
        let size = state.growth.size();
        drop(state);
        if !claimed {
            return Ok(false);
        }
        let buffer = queue.buffer(size);
        let mut state = self.state.lock();
        match buffer {
            // There is room for all.
            Ok(buffer) => drop(state.idle.push_within_capacity(buffer)),
            Err(error) => {
                state.demand.made -= 1;
                state.growth.forget(size);
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Ends the connection that has received nothing for longest, if many Receives are lost: it may
    /// hold one of them, and before that is known none that was lost later is recovered. A peer
    /// that keeps to itself connects again; one that has others' messages cut in the middle, and
    /// keeps a silent connection meanwhile, would have all Receives lost in the end.
    fn end_silent(&self) {
        let state = self.state.lock();
        let lost = state.lost();
        let queue = state
            .queue
            .clone()
            .filter(|_| state.demand.is_bleeding(lost));
        drop(state);
        let Some(queue) = queue else { return };
        if let Some(member) = queue.most_silent() {
            pr_warn_ratelimited!(
                "device {}: {lost} shared Receives lost in truncated messages; disconnecting the \
                 client that has been idle longest\n",
                self.device_name
            );
            M::give_way(&member);
        }
    }

    /// Takes a buffer back that a message was in. Any context in which spinlocks may be taken.
    pub(crate) fn recycle(self: &Arc<Self>, mut buffer: SharedReceive<Self>) {
        let mut state = self.state.lock();
        let spare = state.demand.made > state.demand.target(state.lost());
        let State {
            queue,
            demand,
            idle,
            growth,
            ..
        } = &mut *state;
        // Without a queue the buffer is mere memory. Buffers are released under the lock: with
        // another reference the queue could end here.
        let Some(queue) = queue else { return };
        // What is idle makes one more batch, which was promised maybe, before anything goes.
        let goes = spare && idle.len() + 1 < RECEIVE_BATCH as usize;
        if goes {
            demand.made -= 1;
            growth.forget(buffer.len());
            queue.release(buffer);
        } else {
            if let Some(former) = growth.replace(&mut buffer) {
                queue.release(former);
            }
            // There is room for all.
            let _ = idle.push_within_capacity(buffer);
        }
        let is_due = idle.len() >= RECEIVE_BATCH as usize;
        let needs_stock = !growth.is_balanced(STOCK);
        drop(state);
        if needs_stock {
            DelayedWork::<Self, STOCK_WORK>::schedule(self, 0);
        }
        if is_due {
            // It is said when it fails, and then connections get another pool.
            let _ = self.post_idle();
        }
    }
}

impl_has_delayed_work_ext! {
    impl{M: PoolMember} HasDelayedWork<END_WORK> for ReceivePool<M> { self.ending }
    impl{M: PoolMember} HasDelayedWork<STOCK_WORK> for ReceivePool<M> { self.stocking }
}

impl<M: PoolMember> DelayedWorkItem<STOCK_WORK> for ReceivePool<M> {
    /// Makes the buffers that are missing, and larger ones for the places of shorter ones.
    fn run(this: Arc<Self>) {
        // The end of the pool waits for this, and writeback may wait for that.
        let _scope = NoFs::enter();
        let made = this.make();
        this.try_later(made);
        if this.restock().is_err() {
            DelayedWork::<Self, STOCK_WORK>::schedule(&this, STOCK_RETRY);
        }
    }
}

impl<M: PoolMember> DelayedWorkItem<END_WORK> for ReceivePool<M> {
    /// The device takes no more Receives. Those that are missing were promised to peers, whose
    /// messages would wait for them forever. So each connection ends; the next one has another
    /// pool.
    fn run(this: Arc<Self>) {
        let Ok(queue) = this.queue() else { return };
        queue.for_each_user(|member| M::give_way(&member));
    }
}

impl<M: PoolMember> SharedReceives for ReceivePool<M> {
    type Member = M;

    fn received(
        this: &Arc<Self>,
        member: Option<Arc<M>>,
        buffer: SharedReceive<Self>,
        completion: Completion<'_>,
    ) {
        match member {
            Some(member) => M::arrived(member, buffer, completion),
            // Its QP is gone.
            None => this.recycle(buffer),
        }
    }
}
