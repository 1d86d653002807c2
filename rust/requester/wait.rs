// SPDX-License-Identifier: GPL-2.0

//! Waiting for room: SUNRPC is told to try again, and called when there is room.

use crate::kext::prelude::*;
use crate::kext::waiting::wait_unless;
use crate::link::Link;
use crate::observe::trace;
use crate::proto::v2::Direction as RpcDirection;
use crate::requester::Host;
use crate::sunrpc::SendError;

/// The Send Queue is full, or there are too few Send buffers: SUNRPC shall call again when there is
/// room for a message in so many `parts` with `regions` registrations.
pub(crate) fn wait_for_send_room<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    xid: u32,
    regions: usize,
    parts: u32,
) -> SendError {
    trace::send_queue_full(this.traced(), xid);
    this.requester().stats.send_queue_full.count();
    // To ask for less room than is needed would have SUNRPC call again and again.
    let room = || link.endpoint().has_send_room(regions, parts);
    wait_unless(this.xprt(), room);
    SendError::Again
}

/// The peer has promised no Receives for a Call in so many `parts`: SUNRPC shall call again when it
/// has.
pub(super) fn wait_for_credits<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    parts: u32,
    chunks: bool,
) -> SendError {
    this.requester().stats.credit_waits.count();
    T::watch(this);
    let admitted = || link.admits(RpcDirection::Call, parts, chunks);
    wait_unless(this.xprt(), admitted);
    SendError::Again
}

/// The pool is empty: SUNRPC shall call again when there are more regions.
pub(super) fn wait_for_regions<T: Host>(
    this: &Arc<T>,
    link: &Link<T::Wire>,
    xid: u32,
) -> SendError {
    trace::out_of_regions(this.traced(), xid);
    let made = || {
        T::want_regions(this);
        link.endpoint().has_region()
    };
    wait_unless(this.xprt(), made);
    SendError::Again
}

/// The Call that waits for the credits of its parts, since it has no other form. A peer that does
/// not grant them while it waits has forgotten us; so it must be known when nobody waits any more.
pub(super) struct Patient(Atomic<u32>);

impl Patient {
    /// No Call has this index.
    const NONE: u32 = u32::MAX;

    /// None waits.
    pub(super) const fn new() -> Self {
        Self(Atomic::new(Self::NONE))
    }

    /// The Call with this index waits. The caller has the send lock, and the Call's task does not
    /// end meanwhile.
    pub(super) fn set(&self, index: u32) {
        self.0.store(index, Relaxed);
    }

    /// The Call with this index does not wait any more: it is sent, or its task ends.
    #[inline]
    pub(super) fn end(&self, index: u32) {
        // Others may begin to wait at any time.
        if self.0.load(Relaxed) == index {
            let _ = self.0.cmpxchg(index, Self::NONE, Relaxed);
        }
    }

    /// The connection is another one.
    pub(super) fn clear(&self) {
        self.0.store(Self::NONE, Relaxed);
    }

    /// Returns whether one waits.
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != Self::NONE
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_requester_wait)]
mod tests {
    use super::*;

    /// A task that is killed while its Call waits leaves nobody behind for whom an idle connection
    /// would be taken for one that gets no credits.
    #[test]
    fn a_call_that_ends_waits_for_nothing() {
        let patient = Patient::new();
        assert!(!patient.is_set());
        patient.set(3);
        patient.end(2);
        assert!(patient.is_set());
        patient.end(3);
        assert!(!patient.is_set());
        // Another one has begun to wait since.
        patient.set(3);
        patient.set(0);
        patient.end(3);
        assert!(patient.is_set());
        patient.clear();
        assert!(!patient.is_set());
    }
}
