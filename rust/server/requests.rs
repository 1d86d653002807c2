// SPDX-License-Identifier: GPL-2.0

//! Requests to connect that wait to be accepted, and their order.
//!
//! Hosts take [`Turns`]. Those whose clients have offended
//! ([`Offenders`](crate::server::offenders::Offenders)) are held apart, and come in one by one.

use crate::kext::fifo::Fifo;
use crate::kext::prelude::*;
use crate::rdma::cm::{
    Host,
    RequestId, //
};
use crate::server::turns::Turns;

/// Requests that may wait, and as many that may be held; further ones are rejected. All clients of
/// a server may come at once when a switch is back, and one is accepted at a time. No host has more
/// than half of the places.
pub(super) const MAX_REQUESTS: usize = 4096;

/// A request to connect.
pub(super) trait Request {
    /// Returns where its peer is.
    fn host(&self) -> Host;

    /// Returns whether it is the one that the CM names so.
    fn is(&self, id: RequestId) -> bool;

    /// Marks it as one whose device goes away.
    fn withdraw(&mut self);

    /// Returns whether it is marked so.
    fn is_withdrawn(&self) -> bool;
}

/// Requests that wait. Nothing here allocates, but for [`new`](Self::new).
pub(super) struct Requests<R> {
    /// Those that wait to be accepted, the oldest first.
    queue: Fifo<R>,
    /// Those at hosts that have offended. It has as many places.
    held: Fifo<R>,
    /// Whose turn it is.
    turns: Turns,
    /// After how many more looks at the crowd the next one is accepted in any case. Not zero while
    /// none is; then a look is scheduled.
    pub(super) looks: u32,
}

impl<R: Request> Requests<R> {
    /// None, with `places` for those that come and as many for those that are held. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(places: usize) -> Result<Self> {
        Ok(Self {
            queue: Fifo::with_capacity(places)?,
            held: Fifo::with_capacity(places)?,
            turns: Turns::new()?,
            looks: 0,
        })
    }

    /// Returns whether one more may wait from `host`.
    pub(super) fn has_place(&self, host: Host, is_held: bool) -> bool {
        let queue = if is_held { &self.held } else { &self.queue };
        let half = queue.capacity() / 2;
        // Nobody is counted while there are few.
        queue.len() < queue.capacity()
            && (queue.len() < half
                || queue.iter().filter(|other| other.host() == host).count() < half)
    }

    /// Adds one.
    ///
    /// # Errors
    ///
    /// The request itself if there is no place.
    pub(super) fn add(&mut self, request: R, is_held: bool) -> Result<(), R> {
        let queue = if is_held {
            &mut self.held
        } else {
            &mut self.queue
        };
        queue.push(request)
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
        let hosts = self.queue.iter().map(Request::host);
        let request = self
            .turns
            .next(hosts)
            .and_then(|at| self.queue.remove(at))?;
        self.turns.take(request.host());
        Some(request)
    }

    /// Lets one in that is held. Returns whether there was one, and a place for it.
    pub(super) fn let_in(&mut self) -> bool {
        let hosts = self.held.iter().map(Request::host);
        let Some(request) = self.turns.next(hosts).and_then(|at| self.held.remove(at)) else {
            return false;
        };
        let refused = self.queue.push(request);
        let came = refused.is_ok();
        if let Err(request) = refused {
            // The oldest again, in the place that it had.
            let _ = self.held.push_oldest(request);
        }
        came
    }

    /// The device of one goes away.
    pub(super) fn withdraw(&mut self, id: RequestId) {
        let mut all = Iterator::chain(self.queue.iter_mut(), self.held.iter_mut());
        if let Some(request) = all.find(|request| request.is(id)) {
            request.withdraw();
        }
    }

    /// Takes one out whose device goes away.
    pub(super) fn take_withdrawn(&mut self) -> Option<R> {
        for queue in [&mut self.queue, &mut self.held] {
            let at = queue.iter().position(Request::is_withdrawn);
            if let Some(at) = at {
                return queue.remove(at);
            }
        }
        None
    }

    /// Takes any out.
    pub(super) fn take_any(&mut self) -> Option<R> {
        self.queue.pop().or_else(|| self.held.pop())
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_requests)]
mod tests {
    use super::*;

    /// A request of the host with a number.
    struct Asking {
        host: u32,
        gone: bool,
    }

    impl Request for Asking {
        fn host(&self) -> Host {
            Host::Ipv4(self.host)
        }

        fn is(&self, _: RequestId) -> bool {
            true
        }

        fn withdraw(&mut self) {
            self.gone = true;
        }

        fn is_withdrawn(&self) -> bool {
            self.gone
        }
    }

    fn add(requests: &mut Requests<Asking>, host: u32, is_held: bool) -> bool {
        requests.has_place(Host::Ipv4(host), is_held)
            && requests.add(Asking { host, gone: false }, is_held).is_ok()
    }

    #[test]
    fn no_host_has_more_than_half_of_the_places() -> Result {
        for is_held in [false, true] {
            let mut requests = Requests::new(8)?;
            for _ in 0..4 {
                assert!(add(&mut requests, 1, is_held));
            }
            assert!(!add(&mut requests, 1, is_held));
            for host in [2, 2, 3] {
                assert!(add(&mut requests, host, is_held));
            }
            assert!(!add(&mut requests, 1, is_held));
            assert!(add(&mut requests, 3, is_held));
            assert!(!add(&mut requests, 4, is_held));
        }
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
            assert!(requests.take_next().is_some_and(|next| next.host == host));
        }
        assert!(requests.let_in() && requests.let_in() && !requests.let_in());
        for host in [1, 2] {
            assert!(requests.take_next().is_some_and(|next| next.host == host));
        }
        assert!(requests.is_empty() && !requests.holds_any());
        Ok(())
    }

    #[test]
    fn those_whose_device_goes_are_found_in_both() -> Result {
        let mut requests = Requests::new(4)?;
        assert!(add(&mut requests, 1, false) && add(&mut requests, 2, true));
        assert!(requests.take_withdrawn().is_none());
        for queue in [&mut requests.queue, &mut requests.held] {
            queue.iter_mut().for_each(Request::withdraw);
        }
        assert!(add(&mut requests, 3, false));
        for host in [1, 2] {
            let gone = requests.take_withdrawn();
            assert!(gone.is_some_and(|gone| gone.host == host));
        }
        assert!(requests.take_withdrawn().is_none());
        assert!(requests.take_any().is_some_and(|last| last.host == 3));
        assert!(requests.take_any().is_none());
        Ok(())
    }
}
