// SPDX-License-Identifier: GPL-2.0

//! Requests to connect that wait to be accepted. Their order is in
//! [`policy::accept`](crate::policy::accept).
//!
//! Requests from hosts whose clients have offended
//! ([`Offenders`](crate::server::offenders::Offenders)) are held apart, and come in one by one.

use crate::kext::fifo::Fifo;
use crate::kext::prelude::*;
use crate::policy::accept::{
    Line,
    Turns, //
};
use crate::rdma::cm::{
    Host,
    RequestId, //
};

/// The number of requests that may wait, and of those that may be held; further ones are rejected.
/// All clients of a server may connect at once when a switch is back, and one is accepted at a
/// time.
pub(super) const MAX_REQUESTS: usize = 4096;

/// A request that waits, with the fields that searches compare, so that they need not read the
/// request itself. Small, because there are places for [`MAX_REQUESTS`] of them in each queue.
struct Waiting<R> {
    /// Where its peer is.
    host: Host,
    /// The CM's name for it.
    id: RequestId,
    /// Set when its device goes away, or its peer has given up.
    withdrawn: bool,
    /// The request.
    request: R,
}

/// The order of requests. Nothing here allocates, but for [`new`](Self::new).
struct Order<R> {
    /// The first request of each host, the oldest first.
    first: Fifo<Waiting<R>>,
    /// Further requests, the oldest first.
    further: Fifo<Waiting<R>>,
    /// Whose turn it is.
    turns: Turns,
}

impl<R> Order<R> {
    /// None, with `places`. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new(places: usize) -> Result<Self> {
        Ok(Self {
            first: Fifo::with_capacity(places)?,
            further: Fifo::with_capacity(places)?,
            turns: Turns::default(),
        })
    }

    /// Returns whether there is no place.
    fn is_full(&self) -> bool {
        self.first.len() + self.further.len() >= self.first.capacity()
    }

    /// Returns whether none waits.
    fn is_empty(&self) -> bool {
        self.first.is_empty() && self.further.is_empty()
    }

    /// Returns how many wait whose peer is at `host`.
    fn of(&self, host: Host) -> usize {
        let all = Iterator::chain(self.first.iter(), self.further.iter());
        all.filter(|other| other.host == host).count()
    }

    /// Returns where a further request of `host` waits, if it may.
    fn line_of(&self, host: Host) -> Option<Line> {
        Line::of(self.of(host), self.first.capacity())
    }

    /// Adds a request.
    ///
    /// # Errors
    ///
    /// The request itself if there is no place.
    fn add(&mut self, waiting: Waiting<R>, line: Line) -> Result<(), Waiting<R>> {
        if self.is_full() {
            return Err(waiting);
        }
        match line {
            Line::First => self.first.push(waiting),
            Line::Further => self.further.push(waiting),
        }
    }

    /// Takes the next one out.
    fn take(&mut self) -> Option<Waiting<R>> {
        match self.turns.next() {
            Line::First => self.first.pop().or_else(|| self.further.pop()),
            Line::Further => self.further.pop().or_else(|| self.first.pop()),
        }
    }

    /// Returns the one that the CM calls `id`.
    fn find(&mut self, id: RequestId) -> Option<&mut Waiting<R>> {
        let mut all = Iterator::chain(self.first.iter_mut(), self.further.iter_mut());
        all.find(|waiting| waiting.id == id)
    }

    /// Takes one out that was withdrawn.
    fn take_withdrawn(&mut self) -> Option<Waiting<R>> {
        for queue in [&mut self.first, &mut self.further] {
            let at = queue.iter().position(|waiting| waiting.withdrawn);
            if let Some(at) = at {
                return queue.remove(at);
            }
        }
        None
    }
}

/// Requests that wait. Nothing here allocates, but for [`new`](Self::new).
pub(super) struct Requests<R> {
    /// Those that wait to be accepted.
    queue: Order<R>,
    /// Those at hosts that have offended. It has as many places.
    held: Order<R>,
    /// After how many more looks at the crowd the next one is accepted in any case. Not zero while
    /// none is; then a look is scheduled.
    pub(super) looks: u32,
}

impl<R> Requests<R> {
    /// None, with `places` for those that come and as many for those that are held. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(places: usize) -> Result<Self> {
        Ok(Self {
            queue: Order::new(places)?,
            held: Order::new(places)?,
            looks: 0,
        })
    }

    /// Adds the request that the CM calls `id`, whose peer is at `host`. `is_held` says whether
    /// that host has offended.
    ///
    /// # Errors
    ///
    /// The request itself if there is no place, or none for that host.
    pub(super) fn add(
        &mut self,
        host: Host,
        id: RequestId,
        is_held: bool,
        request: R,
    ) -> Result<(), R> {
        let order = if is_held {
            &mut self.held
        } else {
            &mut self.queue
        };
        let Some(line) = order.line_of(host) else {
            return Err(request);
        };
        let waiting = Waiting {
            host,
            id,
            withdrawn: false,
            request,
        };
        order.add(waiting, line).map_err(|refused| refused.request)
    }

    /// Returns whether none waits to be accepted.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns whether any is held.
    pub(super) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes out the next one to accept.
    pub(super) fn take_next(&mut self) -> Option<R> {
        self.queue.take().map(|waiting| waiting.request)
    }

    /// Lets one in that is held. Returns whether there was one, and a place for it.
    pub(super) fn let_in(&mut self) -> bool {
        if self.queue.is_full() {
            return false;
        }
        let Some(waiting) = self.held.take() else {
            return false;
        };
        let line = self.queue.line_of(waiting.host).unwrap_or(Line::Further);
        self.queue.add(waiting, line).is_ok()
    }

    /// The device of one goes away, or its peer has given up.
    pub(super) fn withdraw(&mut self, id: RequestId) {
        if let Some(waiting) = self.queue.find(id).or_else(|| self.held.find(id)) {
            waiting.withdrawn = true;
        }
    }

    /// Takes one out that was withdrawn.
    pub(super) fn take_withdrawn(&mut self) -> Option<R> {
        let found = self.queue.take_withdrawn();
        let found = found.or_else(|| self.held.take_withdrawn());
        found.map(|waiting| waiting.request)
    }

    /// Takes any out.
    pub(super) fn take_any(&mut self) -> Option<R> {
        let found = self.queue.take().or_else(|| self.held.take());
        found.map(|waiting| waiting.request)
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_requests)]
mod tests {
    use super::*;

    /// Adds a request of the host with a number. The request is the number.
    fn add(requests: &mut Requests<u32>, host: u32, is_held: bool) -> bool {
        let id = RequestId::test(host as usize);
        requests.add(Host::Ipv4(host), id, is_held, host).is_ok()
    }

    #[test]
    fn no_host_has_more_than_half_of_the_places() -> Result {
        for is_held in [false, true] {
            let mut requests = Requests::new(8)?;
            for _ in 0..4 {
                assert!(add(&mut requests, 1, is_held));
            }
            assert!(!add(&mut requests, 1, is_held));
            for host in [2, 2, 3, 3] {
                assert!(add(&mut requests, host, is_held));
            }
            assert!(!add(&mut requests, 4, is_held));
        }
        Ok(())
    }

    /// However many requests of one host wait, another host is next, or has one before it.
    #[test]
    fn the_first_of_each_host_goes_before_further_ones() -> Result {
        let mut requests = Requests::new(16)?;
        for host in [1, 1, 1, 1, 1, 2, 2, 3] {
            assert!(add(&mut requests, host, false));
        }
        for host in [1, 2, 3, 1, 1] {
            assert_eq!(requests.take_next(), Some(host));
        }
        // This host has others waiting, and that one has none.
        assert!(add(&mut requests, 1, false) && add(&mut requests, 4, false));
        for host in [4, 1, 1, 2, 1] {
            assert_eq!(requests.take_next(), Some(host));
        }
        assert!(requests.is_empty() && requests.take_next().is_none());
        Ok(())
    }

    /// A peer with many addresses has each of its requests among the first ones.
    #[test]
    fn further_requests_are_not_starved() -> Result {
        let mut requests = Requests::new(64)?;
        assert!(add(&mut requests, 1, false) && add(&mut requests, 1, false));
        for host in 2..32 {
            assert!(add(&mut requests, host, false));
        }
        let taken = (0..4).filter(|_| requests.take_next() == Some(1));
        assert_eq!(taken.count(), 2);
        Ok(())
    }

    #[test]
    fn who_is_held_takes_no_place_of_others() -> Result {
        let mut requests = Requests::new(2)?;
        assert!(add(&mut requests, 1, true) && add(&mut requests, 2, true));
        assert!(requests.is_empty() && requests.holds_any());
        assert!(add(&mut requests, 3, false) && add(&mut requests, 4, false));
        // There is no place, and none is lost.
        assert!(!requests.let_in());
        for host in [3, 4] {
            assert_eq!(requests.take_next(), Some(host));
        }
        assert!(requests.let_in() && requests.let_in() && !requests.let_in());
        for host in [1, 2] {
            assert_eq!(requests.take_next(), Some(host));
        }
        assert!(requests.is_empty() && !requests.holds_any());
        Ok(())
    }

    #[test]
    fn those_that_are_withdrawn_are_found_everywhere() -> Result {
        let mut requests = Requests::new(8)?;
        let id = RequestId::test(7);
        assert!(add(&mut requests, 1, false) && add(&mut requests, 2, false));
        assert!(requests.add(Host::Ipv4(1), id, false, 7).is_ok());
        assert!(add(&mut requests, 3, true));
        assert!(requests.take_withdrawn().is_none());
        for id in [7, 3, 2] {
            requests.withdraw(RequestId::test(id));
        }
        for request in [2, 7, 3] {
            assert_eq!(requests.take_withdrawn(), Some(request));
        }
        assert!(requests.take_withdrawn().is_none());
        assert_eq!(requests.take_any(), Some(1));
        assert!(requests.take_any().is_none());
        Ok(())
    }
}
