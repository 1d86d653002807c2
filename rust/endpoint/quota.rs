// SPDX-License-Identifier: GPL-2.0

//! Budgets of a Responder's connections, each and together: pages of RDMA Reads and Writes, and
//! Send buffers.
//!
//! # Accounting
//!
//! Pages count while there is a [`Transfer`](super::transfer::Transfer) for them: those of a Call
//! until a thread has them, those of a Reply until its Send has completed. A Call is taken in while
//! there are fewer than a [`Quota`] says, of its connection and of all together. What it needs
//! itself is not known then, so the bound is exceeded by what is in the hands of threads.
//!
//! The rule is in [`policy::budget`](crate::policy::budget). With a limit of *L* pages, *T*
//! threads, *N* connections and *P* pages of the largest payload there are never more than *L* +
//! (*T* + *N*) *P* pages.
//!
//! A Call without chunks never needs pages. It is taken in whatever others have, before older ones
//! that wait for pages, and does not count as unanswered then: such Calls could be on their way all
//! the time.
//!
//! A connection is made with a few Send buffers. Those that are made later count until a check
//! finds them unused, or the connection ends. When there may be no more of them it goes on with
//! those that it has, which come back.
//!
//! The octets of Receives are only summed up here. Nobody waits for them: the more there are the
//! fewer credits all are granted, see [`free_share`](crate::proto::credits::free_share). What a
//! connection has at first, and for Replies to callbacks, is counted and never refused.
//!
//! The sums are the module's, over all devices: it is one memory that they take. They are not
//! locked.

use crate::kext::debugfs::lines;
use crate::kext::prelude::*;
use crate::{
    endpoint::{
        gate::{
            Purpose,
            SendGate, //
        },
        Endpoint,
        EndpointEvents, //
    },
    policy::{
        budget::Quota,
        stall::Kept, //
    },
    rdma::send_queue::SendMemory, //
};
use kernel::seq_file::SeqFile;

/// A sum over all connections.
pub(super) struct Sum {
    /// The sum.
    now: Atomic<u64>,
    /// The most that it has been.
    most: Atomic<u64>,
}

impl Sum {
    /// Zero.
    const fn new() -> Self {
        Self {
            now: Atomic::new(0),
            most: Atomic::new(0),
        }
    }

    /// Adds `count`.
    pub(super) fn add(&self, count: u64) {
        let now = self.now.fetch_add(count, Relaxed).wrapping_add(count);
        self.note(now);
    }

    /// Adds one if it stays at `limit` or below. Returns whether it does.
    pub(super) fn add_one_below(&self, limit: u64) -> bool {
        let mut now = self.now.load(Relaxed);
        while now < limit {
            match self.now.cmpxchg(now, now + 1, Relaxed) {
                Ok(_) => {
                    self.note(now + 1);
                    return true;
                }
                Err(seen) => now = seen,
            }
        }
        false
    }

    /// Takes `count` away that was added before.
    pub(super) fn sub(&self, count: u64) {
        self.now.fetch_sub(count, Relaxed);
    }

    /// It has been `now`.
    fn note(&self, now: u64) {
        let mut most = self.most.load(Relaxed);
        while most < now {
            match self.most.cmpxchg(most, now, Relaxed) {
                Ok(_) => return,
                Err(seen) => most = seen,
            }
        }
    }

    /// Returns the sum, and the most that it has been.
    fn seen(&self) -> (u64, u64) {
        (self.now.load(Relaxed), self.most.load(Relaxed))
    }
}

/// Pages that count.
static PAGES: Sum = Sum::new();

/// Send buffers that were made after their connections.
pub(super) static SENDS: Sum = Sum::new();

/// Octets of the Receives of the server's connections.
pub(super) static RECEIVES: Sum = Sum::new();

/// Returns the number of pages of all connections.
pub(crate) fn pages_in_use() -> u64 {
    PAGES.seen().0
}

/// Returns the octets that the Receives of all connections of the server take.
pub(crate) fn receive_memory() -> u64 {
    RECEIVES.seen().0
}

impl<H: EndpointEvents> SendGate<H> {
    /// `pages` count from now on.
    pub(super) fn begin_pages(&mut self, pages: usize) {
        match self.pages.begin(pages) {
            0 => {}
            more => PAGES.add(more as u64),
        }
    }

    /// `pages` do not count any more.
    pub(super) fn end_pages(&mut self, pages: usize) {
        Self::shrink_sum(self.pages.end(pages));
    }

    /// The connection has no more in the sum than it has, for now: it may be idle, or at its end.
    pub(super) fn settle_pages(&mut self) {
        Self::shrink_sum(self.pages.settle());
    }

    /// The sum has `count` fewer.
    fn shrink_sum(count: usize) {
        if count > 0 {
            PAGES.sub(count as u64);
        }
    }

    /// Returns whether a further Call may be taken in. If not, the next [`Self::answered`] will
    /// tell, or the end of a transfer.
    fn may_take_in(&mut self, quota: &Quota) -> bool {
        let (all, unanswered) = (PAGES.now.load(Relaxed), self.unanswered > 0);
        // After the end nobody would give a surplus back.
        let may_settle = self.queue.is_open();
        let may = self.pages.may_take_in(quota, all, unanswered, may_settle);
        self.held_up |= !may;
        may
    }

    /// Lends out a buffer for the answer to a Call, if there is one and the Call may be taken in,
    /// whatever it needs.
    pub(super) fn take_in(&mut self, quota: &Quota) -> Option<SendMemory<Endpoint<H>>> {
        if !self.queue.is_open() || !self.may_take_in(quota) {
            return None;
        }
        let memory = self.free.take(Purpose::Rpc)?;
        self.unanswered = self.unanswered.saturating_add(1);
        Some(memory)
    }

    /// Lends out a buffer for the answer to a Call without chunks, if there is one.
    pub(super) fn take_in_plain(&mut self) -> Option<SendMemory<Endpoint<H>>> {
        if !self.queue.is_open() {
            return None;
        }
        self.free.take(Purpose::Rpc)
    }

    /// The answer was posted, or there is none. Returns whether a Call was held up.
    #[must_use]
    pub(super) fn answered(&mut self) -> bool {
        self.unanswered = self.unanswered.saturating_sub(1);
        core::mem::take(&mut self.held_up)
    }
}

impl<H: EndpointEvents> Endpoint<H> {
    /// Gives back what the connection has in the sum of pages beyond its own.
    pub(crate) fn settle_pages(&self) {
        self.send.lock().settle_pages();
    }

    /// Returns whether no further Call may be taken in until some pages do not count any more.
    pub(crate) fn is_full(&self, quota: &Quota) -> bool {
        !self.send.lock().may_take_in(quota)
    }

    /// Returns what the peer keeps.
    pub(crate) fn kept(&self) -> Kept {
        let returned = self.send.lock().returned;
        let pages = usize::try_from(self.with_peer.load(Relaxed)).unwrap_or(usize::MAX);
        Kept { pages, returned }
    }

    /// Writes the budgets in use into a file of debugfs: pages of RDMA Reads and Writes of the
    /// connection and of all connections, and the Send buffers that all connections have beyond
    /// their first ones; and the most that the sums have been.
    pub(crate) fn show_quota(&self, quota: &Quota, m: &SeqFile) {
        let pages = self.send.lock().pages.now();
        let ((all_pages, most_pages), (all_sends, most_sends)) = (PAGES.seen(), SENDS.seen());
        lines!(m,
            "pages": pages,
            "limit": quota.own,
            "all_pages": all_pages,
            "most_pages": most_pages,
            "all_limit": quota.all,
            "all_sends": all_sends,
            "most_sends": most_sends,
        );
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_quota)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_stays_below_its_limit() {
        let sum = Sum::new();
        assert!(sum.add_one_below(2));
        assert!(sum.add_one_below(2));
        assert!(!sum.add_one_below(2));
        assert!(!sum.add_one_below(0));
        sum.sub(1);
        assert_eq!(sum.seen(), (1, 2));
        assert!(sum.add_one_below(2));
    }

    #[test]
    fn the_most_is_kept() {
        let sum = Sum::new();
        sum.add(5);
        sum.sub(3);
        sum.add(1);
        assert_eq!(sum.seen(), (3, 5));
        sum.add(3);
        assert_eq!(sum.seen(), (6, 6));
    }
}
