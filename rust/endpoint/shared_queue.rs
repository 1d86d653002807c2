// SPDX-License-Identifier: GPL-2.0

//! Receives that connections share: one Shared Receive Queue for each device of a listener.
//!
//! The number of posted Receives does not follow from what peers were promised. When a message
//! completes, a spare buffer is posted in place of its buffer, which comes back when the Call is
//! answered. A work item makes spare buffers while there are too few. As many again as are posted
//! may hold messages; each connection counts those that it holds. When no more can be made and only
//! an eighth of the Receives is left, the connection that holds most messages ends, so that what
//! the others need to go on can arrive.
//!
//! Nothing keeps a peer from using Receives beyond its credits. The handler that sees it marks its
//! connection, whose messages are then dropped, their buffers posted again at once. Meanwhile, and
//! when many send at once, messages of others find no Receive, and their devices send them again.
//! That is normal here, and so is `RNR` in the counters of devices.
//!
//! A Receive that a device has lost is replaced, see [`level`]. A queue on which many are lost
//! takes no further connections. If a queue fails, or the device takes no Receives for it, its
//! connections end, and the next ones have another queue.
//!
//! # Who owns what, and what ends it
//!
//! - [`SharedQueues`] belongs to the listener and to the [`Membership`] of each of its connections.
//! - A [`SharedQueue`] belongs to its entry there, under the mutex, and to its connections. Its SRQ
//!   ends with the last [`Membership`], before that connection gives up the device.
//! - A buffer is idle, posted, or lent to a [`Received`](crate::endpoint::Received). It ends with
//!   the SRQ, or when it comes back and is not needed. The spinlock `state` protects the idle ones
//!   and all numbers.

mod devices;
mod level;

pub(super) use self::devices::Membership;
pub(crate) use self::devices::{
    SharedQueues,
    Sharing, //
};

use self::level::{
    holds_most,
    Level, //
};
use crate::kext::prelude::*;
use crate::{
    endpoint::quota::RECEIVES,
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
            jiffies,
            HZ, //
        }, //
    },
    rdma::{
        completion::Completion,
        device::{
            Device,
            DeviceName, //
        },
        protection_domain::ProtectionDomain,
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
    sync::lock::{
        spinlock::SpinLockBackend,
        Guard, //
    },
    time::{
        msecs_to_jiffies,
        Msecs, //
    }, //
};

/// The time to wait until a device reports that a QP uses no more Receives.
const LAST_TIMEOUT: Msecs = 1000;

/// Jiffies after which the work item looks again, where there is no memory or too much is held.
const RETRY: usize = HZ;

/// A user of a QP that shares Receives.
pub(crate) trait Member: Sized + Send + Sync + 'static {
    /// A Receive of its QP has completed. Runs in the context of completion handlers.
    fn arrived(this: Arc<Self>, buffer: SharedBuffer<Self>, completion: Completion<'_>);

    /// Returns the number of buffers that hold its messages.
    fn held(&self) -> u32;

    /// Returns whether it is ending.
    fn is_ending(&self) -> bool;

    /// Ends the connection. Sleeps.
    fn end(this: &Arc<Self>);
}

/// A buffer of a shared queue that is not posted.
pub(super) type SharedBuffer<M> = SharedReceive<SharedQueue<M>>;

/// The SRQ of a queue.
type Srq<M> = Arc<SharedReceiveQueue<SharedQueue<M>>>;

/// The Receives of connections on one device.
#[pin_data]
pub(crate) struct SharedQueue<M: Member> {
    /// The SRQ, and the buffers that are idle.
    #[pin]
    state: SpinLock<State<M>>,
    /// The size of each buffer in octets.
    size: usize,
    /// The name of the device.
    device_name: DeviceName,
    /// Set when the queue has failed.
    failed: Atomic<bool>,
    /// Set when the device has not reported that a QP uses no more Receives.
    is_silent: Atomic<bool>,
    /// Makes spare buffers, and ends connections.
    #[pin]
    work: DelayedWork<Self>,
}

/// The state that the lock of a queue protects.
struct State<M: Member> {
    /// The SRQ, from its making until the queue is closed.
    srq: Option<Srq<M>>,
    /// The numbers of Receives.
    level: Level,
    /// The buffers that are neither posted nor lent. With room for all.
    idle: KVVec<SharedBuffer<M>>,
    /// When a connection was ended at the floor, in jiffies.
    ended: Option<usize>,
}

impl<M: Member> State<M> {
    /// Returns the number of idle buffers.
    fn idle(&self) -> u32 {
        self.idle.len() as u32
    }

    /// Posts idle buffers, as many as there should be.
    ///
    /// # Errors
    ///
    /// The device's error. Then the queue has failed.
    fn refill(&mut self) -> Result {
        loop {
            let count = self.level.to_post(self.idle());
            let Self {
                srq, level, idle, ..
            } = self;
            let Some(srq) = srq.as_ref().filter(|_| count > 0) else {
                return Ok(());
            };
            let buffers = iter::from_fn(|| idle.pop()).take(count as usize);
            srq.post(buffers.inspect(|buffer| level.post(buffer.place())))?;
        }
    }
}

impl<M: Member> SharedQueue<M> {
    /// Makes a queue of `depth` Receives of `size` octets. Some are posted, and the work item posts
    /// the others. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    fn new(device: &Device, depth: u32, size: usize) -> Result<Arc<Self>> {
        let (posted, buffers) = (Level::most_posted(depth), Level::most(depth));
        let state = State {
            srq: None,
            level: Level::new(depth)?,
            idle: KVVec::with_capacity(usize::try_from(buffers)?, GFP_KERNEL)?,
            ended: None,
        };
        let own = device.try_clone().ok_or(ENODEV)?;
        let pd = ProtectionDomain::new(own)?;
        let this = Arc::pin_init(
            pin_init!(Self {
                state <- new_spinlock!(state, "rpcrdma::SharedQueue::state"),
                size,
                device_name: device.name(),
                failed: Atomic::new(false),
                is_silent: Atomic::new(false),
                work <- new_delayed_work_ext!("rpcrdma::SharedQueue::work"),
            }),
            GFP_KERNEL,
        )?;
        let srq = SharedReceiveQueue::new(pd, posted, buffers, &this)?;
        this.state.lock().srq = Some(srq);
        // So that it does not begin at its floor. Else `close` frees what was made.
        for _ in 0..depth / 4 {
            if let Err(error) = this.make() {
                this.close();
                return Err(error);
            }
        }
        DelayedWork::schedule(&this, 0);
        Ok(this)
    }

    /// Ends the queue. No QP uses it any more.
    fn close(self: &Arc<Self>) {
        DelayedWork::disable_sync(self);
        let mut state = self.state.lock();
        let srq = state.srq.take();
        let made = u64::from(state.level.made());
        drop(state);
        RECEIVES.sub(made * self.size as u64);
        // The last reference to it, which destroys it: no QP uses it, and nobody posts. The memory
        // of a message stays as long as somebody reads it.
        drop(srq);
    }

    /// Returns the SRQ, for a QP of a member.
    ///
    /// # Errors
    ///
    /// `ENODEV` when there are no members any more.
    pub(super) fn srq(&self) -> Result<Srq<M>> {
        self.state.lock().srq.clone().ok_or(ENODEV)
    }

    /// Returns whether the queue has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Returns whether another connection may use the queue, with messages of `size` octets.
    fn takes_more(&self, size: usize) -> bool {
        !self.has_failed() && self.size >= size && !self.state.lock().level.is_worn()
    }

    /// The queue has failed: its connections end. Any context.
    fn fail(self: &Arc<Self>) {
        self.failed.store(true, Release);
        DelayedWork::schedule(self, 0);
    }

    /// Makes one buffer more if there are too few, and posts what is idle. Returns whether there
    /// were too few. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    fn make(self: &Arc<Self>) -> Result<bool> {
        let mut state = self.state.lock();
        let idle = state.idle();
        let srq = state.srq.clone().ok_or(ENODEV)?;
        if !state.level.claim(idle) {
            return Ok(false);
        }
        drop(state);
        RECEIVES.add(self.size as u64);
        let buffer = srq.buffer(self.size);
        let mut state = self.state.lock();
        let result = match buffer {
            Ok(buffer) => {
                // There is room for all.
                let _ = state.idle.push_within_capacity(buffer);
                state.refill()
            }
            Err(error) => {
                state.level.unclaim();
                RECEIVES.sub(self.size as u64);
                Err(error)
            }
        };
        drop(state);
        result.map(|()| true)
    }

    /// Posts idle buffers after a change of `state`, and has the work item look if they are few.
    fn refill_and_look(self: &Arc<Self>, mut state: Guard<'_, State<M>, SpinLockBackend>) {
        let refilled = state.refill();
        let is_low = state.level.is_low(state.idle());
        drop(state);
        if refilled.is_err() {
            self.fail();
        } else if is_low {
            DelayedWork::schedule(self, 0);
        }
    }

    /// Takes a buffer back that a message was in. Any context in which spinlocks may be taken.
    pub(super) fn recycle(self: &Arc<Self>, buffer: SharedBuffer<M>) {
        let mut state = self.state.lock();
        let keeps = state.level.keeps(state.idle());
        let State {
            srq, level, idle, ..
        } = &mut *state;
        // Without it the buffer is mere memory. Buffers are released under the lock: with another
        // reference the SRQ could end here.
        let Some(srq) = srq else { return };
        if keeps {
            // There is room for all.
            let _ = idle.push_within_capacity(buffer);
        } else {
            srq.release(buffer);
            level.unclaim();
            RECEIVES.sub(self.size as u64);
        }
        let refilled = state.refill();
        drop(state);
        if refilled.is_err() {
            self.fail();
        }
    }

    /// Waits until the device has reported that a QP in error uses no more of the Receives,
    /// whereupon `reported` is completed; for a second at most, and only once if in vain.
    pub(super) fn await_last(&self, reported: &Wait) {
        if !self.is_silent.load(Relaxed) {
            let is_reported = reported.wait_timeout(msecs_to_jiffies(LAST_TIMEOUT));
            self.is_silent.store(!is_reported, Relaxed);
        }
    }

    /// Ends the connection that holds most messages, if any holds some.
    fn end_one(self: &Arc<Self>, srq: &Srq<M>) {
        let most = srq.fold(None, |best, member| {
            holds_most(best, M::held(member), M::is_ending(member), member)
        });
        if let Some((held, member)) = most {
            pr_warn_ratelimited!(
                "device {}: out of shared Receives; disconnecting the client that holds most \
                 ({held})\n",
                self.device_name
            );
            M::end(&member);
        }
    }

    /// Writes the use of the queue into a file of debugfs: connections that share it; Receives that
    /// there should be for the next messages, and are; those that were overtaken by others, so that
    /// they are lost or in use; buffers that there are, and those that are spare; their size.
    pub(super) fn show(&self, m: &SeqFile) {
        let state = self.state.lock();
        let members = state.srq.as_ref().map_or(0, |srq| srq.members());
        lines!(m,
            "queue_connections": members,
            "queue_depth": state.level.depth(),
            "queue_available": state.level.available(),
            "queue_overtaken": state.level.overtaken(),
            "queue_buffers": state.level.made(),
            "queue_spare": state.idle(),
            "size": self.size,
        );
    }
}

impl_has_delayed_work_ext! {
    impl{M: Member} HasDelayedWork<0> for SharedQueue<M> { self.work }
}

impl<M: Member> DelayedWorkItem for SharedQueue<M> {
    /// Makes spare buffers. Ends a connection at the floor, or all when the queue has failed.
    fn run(this: Arc<Self>) {
        // The end of the queue waits for this, and writeback may wait for that.
        let _scope = NoFs::enter();
        let Ok(srq) = this.srq() else { return };
        if this.has_failed() {
            pr_warn_ratelimited!(
                "device {}: a Shared Receive Queue has failed; disconnecting its clients\n",
                this.device_name
            );
            return srq.for_each(M::end);
        }
        let made = loop {
            match this.make() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if made.is_err_and(|error| error != ENOMEM) {
            return this.fail();
        }
        let now = jiffies();
        let mut state = this.state.lock();
        let is_spent = state.level.is_spent();
        let is_low = state.level.is_low(state.idle());
        // The messages of the one that was ended before take a moment to come back.
        let ends_one = state.level.is_at_floor(state.idle())
            && state
                .ended
                .is_none_or(|ended| now.wrapping_sub(ended) >= RETRY);
        if ends_one {
            state.ended = Some(now);
        }
        drop(state);
        if is_spent {
            // Nobody holds them: they are lost.
            return this.fail();
        }
        if ends_one {
            this.end_one(&srq);
        }
        if is_low {
            DelayedWork::schedule(&this, RETRY);
        }
    }
}

impl<M: Member> SharedReceives for SharedQueue<M> {
    type Member = M;

    fn received(
        this: &Arc<Self>,
        member: Option<Arc<M>>,
        buffer: SharedBuffer<M>,
        completion: Completion<'_>,
    ) {
        let mut state = this.state.lock();
        state.level.complete(buffer.place());
        this.refill_and_look(state);
        match member {
            Some(member) => M::arrived(member, buffer, completion),
            // Its QP is gone.
            None => this.recycle(buffer),
        }
    }

    fn left(this: &Arc<Self>) {
        let mut state = this.state.lock();
        state.level.left();
        this.refill_and_look(state);
    }

    fn failed(this: &Arc<Self>) {
        this.fail();
    }
}
