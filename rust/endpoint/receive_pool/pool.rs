// SPDX-License-Identifier: GPL-2.0

//! The Receives of one device.

use super::{
    patience::Patience,
    state::{
        Demand,
        Need, //
    }, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        completion::Completion as Wait,
        debugfs::lines,
        delayed_work::{
            impl_has_delayed_work_ext,
            new_delayed_work_ext,
            DelayedWork,
            DelayedWorkItem, //
        },
        ratelimit::pr_warn_ratelimited,
        time::seconds, //
    },
    observe::trace,
    rdma::{
        completion::Completion,
        device::{
            Device,
            DeviceName, //
        },
        protection_domain::ProtectionDomain,
        receive_buffer::RECEIVE_BATCH,
        shared_receive_queue::{
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

/// The Receives of one device.
#[pin_data]
pub(crate) struct ReceivePool<M: PoolMember> {
    /// The demand for Receives, and those that are not posted.
    #[pin]
    state: SpinLock<State<M>>,
    /// The address of the device.
    device: usize,
    /// The name of the device.
    device_name: DeviceName,
    /// Octets of each buffer.
    buffer_size: usize,
    /// The experience with the device, if it may tell when a QP has used its last Receive.
    tells: Option<Patience>,
    /// Set when the device takes no more Receives for the queue.
    broken: Atomic<bool>,
    /// Ends the connections then. Whoever posts may run anywhere.
    #[pin]
    ending: DelayedWork<Self>,
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
    /// The number of times that Receives were posted.
    refills: u64,
}

impl<M: PoolMember> State<M> {
    /// Returns the number of Receives that the device has lost.
    fn lost(&self) -> u32 {
        self.queue.as_ref().map_or(0, |queue| queue.lost())
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
        let state = State {
            queue: None,
            demand: Demand::new(limit),
            idle: KVVec::with_capacity(usize::try_from(limit)?, GFP_KERNEL)?,
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
                buffer_size,
                tells: tells.then(Patience::new),
                broken: Atomic::new(false),
                ending <- new_delayed_work_ext!("rpcrdma::ReceivePool::ending"),
                short_until: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        // On iWARP a QP may have several messages under way, and begin them in another order than
        // the peer.
        let queue = SharedReceiveQueue::new(pd, limit, tells, &pool)?;
        pool.state.lock().queue = Some(queue);
        Ok(pool)
    }

    /// Returns whether it is the pool of a device with buffers of that size, in octets, and works.
    pub(super) fn is(&self, device: &Device, buffer_size: usize) -> bool {
        self.device == device.as_ptr().addr()
            && self.buffer_size == buffer_size
            && !self.broken.load(Relaxed)
            && self.queue().is_ok_and(|queue| !queue.has_failed())
    }

    /// Writes the use of the pool into a file of debugfs: connections that share it, and the
    /// Receives that they have asked for; buffers that there are, and may be; Receives that are
    /// posted and may be used, or are in use by a message that is arriving; those that the device
    /// has lost, and that were not recovered yet; and the batches that were posted.
    pub(crate) fn show(&self, m: &SeqFile) {
        let state = self.state.lock();
        let queue = state.queue.as_ref();
        lines!(m,
            "pool_connections": queue.map_or(0, |queue| queue.members()),
            "pool_asked": state.demand.wanted,
            "pool_buffers": state.demand.made,
            "pool_limit": state.demand.limit,
            "pool_posted": queue.map_or(0, |queue| queue.posted()),
            "pool_lost": queue.map_or(0, |queue| queue.lost()),
            "pool_refills": state.refills,
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
        DelayedWork::disable_sync(self);
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
                DelayedWork::schedule(self, 0);
                kernel::pr_err_once!("a device refuses Receives for its Shared Receive Queue\n");
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
        drop(state);
        if !claimed {
            return Ok(false);
        }
        let buffer = queue.buffer(self.buffer_size);
        let mut state = self.state.lock();
        match buffer {
            // There is room for all.
            Ok(buffer) => drop(state.idle.push_within_capacity(buffer)),
            Err(error) => {
                state.demand.made -= 1;
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
                "{}: {lost} shared Receives are lost; ending the connection that is silent\n",
                self.device_name
            );
            M::give_way(&member);
        }
    }

    /// Takes a buffer back that a message was in. Any context in which spinlocks may be taken.
    pub(crate) fn recycle(self: &Arc<Self>, buffer: SharedReceive<Self>) {
        let mut state = self.state.lock();
        let spare = state.demand.made > state.demand.target(state.lost());
        // What is idle makes one more batch, which was promised maybe, before anything goes.
        if spare && state.idle.len() + 1 < RECEIVE_BATCH as usize {
            let State { queue, demand, .. } = &mut *state;
            // Without a queue the buffer is mere memory. Not outside the lock: with another
            // reference the queue could end here.
            if let Some(queue) = queue {
                demand.made -= 1;
                queue.release(buffer);
            }
            return;
        }
        // There is room for all.
        let _ = state.idle.push_within_capacity(buffer);
        if state.idle.len() >= RECEIVE_BATCH as usize {
            drop(state);
            // It is said when it fails, and then connections get another pool.
            let _ = self.post_idle();
        }
    }
}

impl_has_delayed_work_ext! {
    impl{M: PoolMember} HasDelayedWork<0> for ReceivePool<M> { self.ending }
}

impl<M: PoolMember> DelayedWorkItem for ReceivePool<M> {
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
