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
//! A connection may have as many pages as nobody has, and no more than its own limit. So the more
//! connections keep pages the less each of them may keep: with *K* of them an equal share of *K* +
//! 1, one of which is left for the next connection. (Switches share their buffers among ports so.)
//!
//! A connection that has no pages, and whose Calls are all answered, may always take one in. So
//! none waits for what only another connection's peer can give, and none needs to be woken by
//! another connection: one that waits has pages or Calls of its own, and looks again whenever there
//! are fewer. With a limit of *L* pages, *T* threads, *N* connections and *P* pages of the largest
//! payload there are never more than *L* + (*T* + *N*) *P* pages.
//!
//! A Call without chunks never needs pages. It is taken in whatever others have, before older ones
//! that wait for pages, and does not count as unanswered then: such Calls could be on their way all
//! the time.
//!
//! A connection is made with a few Send buffers. Those that are made later count until nobody has
//! needed them for a while, or the connection ends. When there may be no more of them it goes on
//! with those that it has, which come back.
//!
//! The octets of Receives are only summed up here. Nobody waits for them: the more there are the
//! fewer credits all are granted, see [`free_share`](crate::proto::credits::free_share). What a
//! connection has at first, and for Replies to callbacks, is counted and never refused.
//!
//! The sums are the module's, over all devices: it is one memory that they take. They are not
//! locked. All connections would write that of pages for each transfer, and a line of the cache can
//! move from CPU to CPU only so often. So a connection adds and gives back in lots while there is
//! plenty: its part of the sum may be a little more than its pages, until it is looked at the next
//! time. Surpluses begin below an eighth of the limit only, so they come to that and a lot for each
//! thread at most.

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
    rdma::send_queue::{
        SendMemory,
        SendQueueOwner, //
    }, //
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

/// By how many pages a connection's part of the sum is more than what it has, when it was just
/// changed; it may be twice as much.
const LOT: usize = 64;

/// The pages of a connection's transfers, and its part of the sum.
pub(super) struct Pages {
    /// Their number.
    now: usize,
    /// The connection's part of the sum: as many at least.
    summed: usize,
    /// Set if there may be a surplus.
    in_lots: bool,
}

impl Pages {
    /// None.
    pub(super) const fn new() -> Self {
        Self {
            now: 0,
            summed: 0,
            in_lots: false,
        }
    }

    /// There are `count` more. Returns how much the sum has to grow.
    fn begin(&mut self, count: usize) -> usize {
        self.now = self.now.saturating_add(count);
        if self.now <= self.summed {
            return 0;
        }
        let lot = if self.in_lots { LOT } else { 0 };
        let summed = self.now.saturating_add(lot);
        summed - core::mem::replace(&mut self.summed, summed)
    }

    /// There are `count` fewer. Returns how much the sum has to shrink.
    fn end(&mut self, count: usize) -> usize {
        self.now = self.now.saturating_sub(count);
        let lot = if self.in_lots { LOT } else { 0 };
        if self.summed - self.now <= 2 * lot {
            return 0;
        }
        self.keep(lot)
    }

    /// There is no surplus for now. Returns how much the sum has to shrink.
    fn settle(&mut self) -> usize {
        self.in_lots = false;
        self.keep(0)
    }

    /// Leaves a surplus of `lot`, which there is. Returns how much the sum has to shrink.
    fn keep(&mut self, lot: usize) -> usize {
        let summed = self.now + lot;
        core::mem::replace(&mut self.summed, summed) - summed
    }
}

/// Pages that count.
static PAGES: Sum = Sum::new();

/// Send buffers that were made after their connections.
pub(super) static SENDS: Sum = Sum::new();

/// Octets of the Receives that connections of the server have for themselves.
pub(super) static RECEIVES: Sum = Sum::new();

/// Returns the octets that the Receives of all connections of the server take, where they are not
/// shared.
pub(crate) fn receive_memory() -> u64 {
    RECEIVES.seen().0
}

/// With how many pages of RDMA Reads and Writes no further Call with chunks is taken in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// Those of the connection.
    pub(crate) own: usize,
    /// Those of all connections together.
    pub(crate) all: u64,
}

impl Quota {
    /// Returns whether a connection with `own` pages may have more when there are `all` together.
    fn allows(&self, own: usize, all: u64) -> bool {
        own < self.own && (own as u64) < self.all.saturating_sub(all)
    }

    /// Returns whether pages are short: all connections have more than half of what they may have.
    pub(crate) fn is_short(&self) -> bool {
        PAGES.now.load(Relaxed) > self.all / 2
    }
}

impl<O: SendQueueOwner> SendGate<O> {
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
        let own = self.pages.now;
        let all = PAGES.now.load(Relaxed);
        // After the end nobody would give a surplus back.
        self.pages.in_lots = self.queue.is_open() && all + 2 * (LOT as u64) < quota.all / 8;
        let busy = own > 0 || self.unanswered > 0;
        // Its own surplus is nobody else's.
        let used = all.saturating_sub((self.pages.summed - own) as u64);
        let may = !busy || quota.allows(own, used);
        self.held_up |= !may;
        may
    }

    /// Lends out a buffer for the answer to a Call, if there is one and the Call may be taken in,
    /// whatever it needs.
    pub(super) fn take_in(&mut self, quota: &Quota) -> Option<SendMemory<O>> {
        if !self.queue.is_open() || !self.may_take_in(quota) {
            return None;
        }
        let memory = self.free.take(Purpose::Rpc)?;
        self.unanswered = self.unanswered.saturating_add(1);
        Some(memory)
    }

    /// Lends out a buffer for the answer to a Call without chunks, if there is one.
    pub(super) fn take_in_plain(&mut self) -> Option<SendMemory<O>> {
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

/// The pages of a connection that the peer keeps at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    /// Their number.
    pub(crate) pages: usize,
    /// How many the peer had let go until then, modulo 2^32.
    pub(crate) returned: u32,
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
        let pages = self.send.lock().pages.now;
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
    fn there_is_a_bound_for_each_and_for_all() {
        let quota = Quota { own: 10, all: 100 };
        assert!(quota.allows(0, 0));
        assert!(quota.allows(9, 90));
        assert!(quota.allows(0, 99));
        assert!(!quota.allows(10, 10));
        assert!(!quota.allows(0, 100));
        assert!(!quota.allows(0, 200));
    }

    /// However many take what they can get, each has the same, and there is as much for one more.
    #[test]
    fn what_is_left_is_a_share() {
        let quota = Quota {
            own: 1000,
            all: 1200,
        };
        for count in 1..12_usize {
            let mut pages = [0_usize; 12];
            let mut all = 0;
            for _ in 0..quota.all {
                for own in pages.iter_mut().take(count) {
                    if quota.allows(*own, all) {
                        *own += 1;
                        all += 1;
                    }
                }
            }
            let share = 1200 / (count + 1);
            for own in pages.iter().take(count) {
                assert!(own.abs_diff(share) <= 1);
            }
            assert!(quota.allows(share - count, all));
        }
    }

    /// Small transfers, one after the other, leave the sum alone, and what is left is given back.
    #[test]
    fn pages_are_summed_in_lots() {
        let mut pages = Pages::new();
        assert_eq!((pages.begin(3), pages.end(3)), (3, 3));
        pages.in_lots = true;
        assert_eq!(pages.begin(1), 1 + LOT);
        for _ in 0..1000 {
            assert_eq!((pages.begin(16), pages.end(16)), (0, 0));
        }
        assert_eq!((pages.end(1), pages.settle()), (0, 1 + LOT));
        assert_eq!((pages.now, pages.summed), (0, 0));
    }

    /// The sum has what there is, and two lots more at most; without lots what there is.
    #[test]
    fn a_part_of_the_sum_is_near_the_pages() {
        let mut pages = Pages::new();
        let mut sum = 0;
        for (step, count) in (0..3000_usize).zip((0..300).cycle()) {
            pages.in_lots = step % 7 < 5;
            if step % 2 == 0 {
                sum += pages.begin(count);
            } else {
                let was = pages.now;
                sum -= pages.end(count.min(was));
                let most = if pages.in_lots { 2 * LOT } else { 0 };
                assert!(sum - pages.now <= most);
            }
            assert!(sum == pages.summed && sum >= pages.now);
        }
        let rest = pages.now;
        sum -= pages.end(rest);
        assert_eq!(sum, pages.settle());
    }

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
