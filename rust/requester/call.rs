// SPDX-License-Identifier: GPL-2.0

//! The state that a slot carries beside its `rpc_rqst`.

use crate::endpoint::{
    EndpointEvents,
    Received,
    RegionHandle, //
};
use crate::kext::completion::Completion;
use crate::kext::prelude::*;
use crate::kext::time::jiffies;
use crate::link::assembly::Whole;
use crate::link::sizing::MAX_SEGMENTS;
use crate::proto::chunk::Segment;
use crate::proto::format::Asked;
use crate::requester::verdict::Verdict;
use crate::requester::{
    Host,
    Requester, //
};
use crate::sunrpc::Pinned;

/// The most regions that one Call registers: two chunks of the largest size. What needs more can't
/// be sent.
pub(crate) const MAX_REGIONS: usize = 2 * MAX_SEGMENTS as usize;

/// The number of Replies to a Call that may make the connection end. With the last of them
/// the RPC ends as well, or its Call, which is sent again on each new connection, might have all of
/// them end.
const MAX_SPOILT: u32 = 3;

/// The regions of one Call, in the order Call, Read, Write, Reply. Its capacity is [`MAX_REGIONS`]
/// from the start.
pub(crate) type Regions<T> = KVec<RegionHandle<<T as Host>::Wire>>;

/// The progress of a Call. See the module above for the transitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Nothing of it is registered.
    Idle,
    /// Sent. The peer may use its regions.
    Sent,
    /// Its Reply is here; what the peer did not invalidate is being fenced.
    Fencing,
    /// Its task is being killed and waits for the fence, or for the end of the connection.
    Killed,
    /// Somebody is working on it, under the lock or as its only owner.
    Busy,
}

/// The Reply of a Call whose regions are being fenced.
pub(super) struct Fencing<T: Host> {
    /// The verdict on the Reply, carried out then.
    pub(super) verdict: Verdict,
    /// The Reply, or the last part of it.
    pub(super) message: Received<T::Wire>,
    /// The RPC message, if it has come in parts.
    pub(super) whole: Option<Whole>,
    /// Keeps the RPC from going away.
    pub(super) rqst: Pinned<T>,
}

/// The state of a Call.
pub(crate) struct CallState<T: Host> {
    /// Its progress.
    pub(super) stage: Stage,
    /// Its Reply while it is `Fencing`. Not in `stage`, which changes with each Call, and would
    /// have to be looked through each time for what is to be dropped.
    fencing: Option<Fencing<T>>,
    /// The regions that are registered for it. The list of an idle Call is empty, and kept for its
    /// memory. Who makes it `Busy` may take the list away, and brings it back.
    pub(super) regions: Regions<T>,
    /// What it was sent with: which region is for what, and what else was asked for.
    pub(super) asked: Asked,
    /// Since when it has waited for its fence, in jiffies.
    fence_posted: usize,
    /// Set if a check has found it waiting for that.
    fence_seen: bool,
}

impl<T: Host> CallState<T> {
    /// The Call was sent, with these regions.
    pub(super) fn sent(&mut self, regions: Regions<T>, asked: Asked) {
        self.regions = regions;
        self.asked = asked;
        self.stage = Stage::Sent;
    }

    /// Its regions are being fenced, with which this is done.
    pub(super) fn fenced_with(&mut self, fencing: Fencing<T>) {
        self.fencing = Some(fencing);
        self.await_fence(Stage::Fencing);
    }

    /// Takes out what is done when its regions are fenced. If it was `Fencing`, it is `Busy` then.
    pub(super) fn take_fencing(&mut self) -> Option<Fencing<T>> {
        let fencing = self.fencing.take()?;
        self.stage = Stage::Busy;
        Some(fencing)
    }

    /// Its fence is posted, for which it waits from now on.
    fn await_fence(&mut self, stage: Stage) {
        self.stage = stage;
        self.fence_posted = jiffies();
        self.fence_seen = false;
    }

    /// Takes the list of regions away.
    pub(super) fn take_regions(&mut self) -> Regions<T> {
        core::mem::replace(&mut self.regions, KVec::new())
    }
}

/// The Call of one slot.
#[pin_data]
pub(crate) struct Call<T: Host> {
    /// Its place among the slots.
    index: u32,
    /// The transaction ID with which it was sent last. Written by who sends it.
    xid: Atomic<u32>,
    /// The number of answers that have ended the connection. Written by who takes Replies
    /// in, and by who sends it with another transaction ID.
    spoilt: Atomic<u32>,
    /// The progress of the Call, and the regions that are registered for it.
    #[pin]
    state: SpinLock<CallState<T>>,
    /// Completed when the fence of a killed Call is done.
    #[pin]
    fence: Completion,
    /// Set if that fence succeeded.
    fence_done: Atomic<bool>,
    /// Held by who takes its regions back at the end of a connection.
    #[pin]
    reclaiming: Mutex<()>,
}

impl<T: Host> Call<T> {
    /// A Call that is idle.
    pub(crate) fn new(index: u32) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let state = CallState {
                stage: Stage::Idle,
                fencing: None,
                regions: KVec::with_capacity(MAX_REGIONS, GFP_KERNEL)?,
                asked: Asked::default(),
                fence_posted: 0,
                fence_seen: false,
            };
            Ok(try_pin_init!(Self {
                index,
                xid: Atomic::new(0),
                spoilt: Atomic::new(0),
                state <- new_spinlock!(state, "rpcrdma::Call::state"),
                fence <- Completion::new(),
                fence_done: Atomic::new(false),
                reclaiming <- new_mutex!((), "rpcrdma::Call::reclaiming"),
            }? Error))
        })
    }

    /// Its place among the slots, and the tag of its fences.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The transaction ID with which it was sent last.
    pub(super) fn xid(&self) -> u32 {
        self.xid.load(Relaxed)
    }

    /// It is about to be sent with this transaction ID, perhaps again.
    pub(super) fn set_xid(&self, xid: u32) {
        if self.xid() != xid {
            self.xid.store(xid, Relaxed);
            self.spoilt.store(0, Relaxed);
        }
    }

    /// The Reply to it is such that the connection has to end. Returns whether the RPC has to as
    /// well.
    pub(super) fn is_hopeless(&self) -> bool {
        // One Reply is taken in at a time.
        let count = self.spoilt.load(Relaxed).saturating_add(1);
        self.spoilt.store(count, Relaxed);
        count >= MAX_SPOILT
    }

    /// Returns whether a region with this R_key is registered for it, or about to be fenced with
    /// its Reply. The regions of a Call that was killed do not count.
    pub(super) fn holds(&self, rkey: u32) -> bool {
        let state = self.state.lock();
        match state.stage {
            Stage::Sent | Stage::Fencing => {
                let mut regions = state.regions.iter();
                regions.any(|region| region.segment().handle == rkey)
            }
            Stage::Idle | Stage::Killed | Stage::Busy => false,
        }
    }

    /// Its state.
    pub(super) fn state(&self) -> &SpinLock<CallState<T>> {
        &self.state
    }

    /// Takes the list of an idle Call, to fill it. The Call is `Busy` until [`Self::send`] or
    /// [`Self::set_idle`].
    ///
    /// # Errors
    ///
    /// `EBUSY` if the Call is not idle: SUNRPC does not send a Call twice on one connection.
    pub(super) fn begin(&self) -> Result<Regions<T>> {
        let mut state = self.state.lock();
        if state.stage != Stage::Idle {
            return Err(EBUSY);
        }
        state.stage = Stage::Busy;
        Ok(state.take_regions())
    }

    /// The Call is idle again. Regions that are still listed are given up first.
    pub(super) fn set_idle(&self, mut regions: Regions<T>) {
        // Outside the lock: deregistration sleeps.
        regions.clear();
        let mut state = self.state.lock();
        state.regions = regions;
        state.stage = Stage::Idle;
    }

    /// The regions are fenced: they go back to the pool, and the Call is idle again.
    pub(super) fn set_fenced(&self, mut regions: Regions<T>) {
        while let Some(region) = regions.pop() {
            drop(region.fenced());
        }
        self.set_idle(regions);
    }

    /// Checks for how many jiffies it has waited for its fence, if it does. Returns that, and
    /// whether a former check has found it waiting for the same one.
    pub(super) fn look_at_fence(&self) -> (Option<usize>, bool) {
        let mut state = self.state.lock();
        match state.stage {
            Stage::Fencing | Stage::Killed => {
                let waited = jiffies().wrapping_sub(state.fence_posted);
                let again = core::mem::replace(&mut state.fence_seen, true);
                (Some(waited), again)
            }
            Stage::Idle | Stage::Sent | Stage::Busy => (None, false),
        }
    }

    /// Fences what a killed task of `this` leaves behind. Sleeps.
    ///
    /// On return the device does not touch the RPC's memory any more.
    pub(crate) fn abandon(&self, this: &Arc<T>) {
        this.requester().patient.end(self.index);
        let mut state = self.state.lock();
        // Every RPC ends here, and nearly all have had their Reply.
        if state.stage != Stage::Sent {
            let reclaimed = state.stage == Stage::Busy;
            drop(state);
            if reclaimed {
                // Whoever else works on it has the RPC pinned, so it is `reclaim`, and the regions
                // are still mapped.
                drop(self.reclaiming.lock());
            }
            return;
        }
        let Some(region) = state.regions.first() else {
            state.stage = Stage::Idle;
            return;
        };
        let endpoint = region.endpoint().clone();
        self.fence.reinit();
        // If it can't be posted the connection is ending, and `reclaim` will wake us. Until its QP
        // is gone no region may be deregistered: the registration may be in the Send Queue still,
        // and a device in software looks at the MR when it gets there.
        let _ = endpoint.post_fence(&mut state.regions, self.index);
        state.await_fence(Stage::Killed);
        drop(state);
        Requester::watch_fences(this);
        self.fence.wait();

        let mut state = self.state.lock();
        if state.stage == Stage::Killed {
            state.stage = Stage::Busy;
            let regions = state.take_regions();
            drop(state);
            if self.fence_done.load(Relaxed) {
                self.set_fenced(regions);
            } else {
                self.set_idle(regions);
            }
        }
    }

    /// The fence of a killed Call has completed, or never will (`done` is false). Called with the
    /// Call in `Killed`.
    pub(super) fn wake_killed(&self, done: bool) {
        self.fence_done.store(done, Relaxed);
        self.fence.complete();
    }

    /// The connection is gone: takes everything back. Returns how many regions were still held.
    pub(super) fn reclaim(&self) -> u64 {
        let _turn = self.reclaiming.lock();
        let mut state = self.state.lock();
        match state.stage {
            Stage::Sent | Stage::Fencing => {
                let fencing = state.take_fencing();
                state.stage = Stage::Busy;
                let regions = state.take_regions();
                drop(state);
                let held = regions.len() as u64;
                self.set_idle(regions);
                if let Some(Fencing {
                    message,
                    rqst,
                    verdict,
                    ..
                }) = fencing
                {
                    drop(message);
                    // Only after the Call is idle.
                    match verdict {
                        // What has ended the connection may be this very Reply, and would be again.
                        Verdict::Failed => rqst.fail(EIO),
                        // Unpins: the RPC is sent again on the next connection.
                        Verdict::Inline { .. } | Verdict::Placed { .. } | Verdict::Again => {
                            drop(rqst);
                        }
                    }
                }
                held
            }
            Stage::Killed => {
                // Left to its waiter. Perhaps there was no fence, or the device lost its
                // completion.
                self.wake_killed(false);
                0
            }
            Stage::Idle | Stage::Busy => 0,
        }
    }
}

/// The segments of a header, made from regions and collected on the stack. Nearly every chunk has
/// one segment, and room for all that there may be would have to be filled first.
pub(super) enum Few<S> {
    /// None.
    None,
    /// One.
    One([S; 1]),
    /// Any number of them.
    Many {
        /// They, and room behind them.
        list: [S; MAX_SEGMENTS as usize],
        /// The number of them.
        len: usize,
    },
}

/// Segments for a header.
pub(super) type Segments = Few<Segment>;

impl<S: Copy + Default> Few<S> {
    /// Applies `make` to each of `items`, as far as they fit.
    pub(super) fn map<T>(items: &[T], make: impl Fn(&T) -> S) -> Self {
        match items {
            [] => Self::None,
            [one] => Self::One([make(one)]),
            several => {
                let mut list = [S::default(); MAX_SEGMENTS as usize];
                let mut len = 0;
                for (to, item) in list.iter_mut().zip(several) {
                    *to = make(item);
                    len += 1;
                }
                Self::Many { list, len }
            }
        }
    }

    /// As a slice.
    pub(super) fn as_slice(&self) -> &[S] {
        match self {
            Self::None => &[],
            Self::One(one) => one,
            Self::Many { list, len } => list.get(..*len).unwrap_or(&[]),
        }
    }
}

impl Segments {
    /// Those of `regions`, as far as they fit.
    pub(super) fn of<W: EndpointEvents>(regions: &[RegionHandle<W>]) -> Self {
        Self::map(regions, RegionHandle::segment)
    }

    /// Octets in all.
    pub(super) fn total(&self) -> u64 {
        self.as_slice().iter().map(|s| u64::from(s.length)).sum()
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_requester_call)]
mod tests {
    use super::*;
    use crate::client::Client;
    use kernel::sync::Arc;

    /// An RPC whose Replies end every connection ends with the third; one with another transaction
    /// ID begins anew.
    #[test]
    fn a_call_is_not_sent_for_ever() -> Result {
        let call = Arc::pin_init(Call::<Client>::new(0), GFP_KERNEL)?;
        for xid in [7, 8] {
            let mut hopeless = [false; 3];
            for last in &mut hopeless {
                call.set_xid(xid);
                *last = call.is_hopeless();
            }
            assert_eq!(hopeless, [false, false, true]);
        }
        assert_eq!(call.xid(), 8);
        assert!(!call.holds(0));
        Ok(())
    }
}
