// SPDX-License-Identifier: GPL-2.0

//! The progress of connecting.

use crate::endpoint::EndpointEvents;
use crate::kext::prelude::*;
use crate::kext::time::jiffies;
use crate::link::Link;
use crate::rdma::cm::AbortHandle;

/// The progress of connecting.
#[pin_data]
pub(super) struct Connecting<H: EndpointEvents> {
    /// Shared by the worker and by who ends its attempt.
    #[pin]
    current: SpinLock<Current<H>>,
}

/// The attempt under way.
struct Current<H: EndpointEvents> {
    /// The transport goes away: no more attempts.
    aborted: bool,
    /// The worker has the send lock.
    under_way: bool,
    /// When the attempt begins, in jiffies.
    due: usize,
    /// The connection that is being made was lost. It may be before anybody waits on it.
    lost: bool,
    /// Ends the wait of the attempt.
    handle: Option<AbortHandle<H>>,
    /// The connection on which the attempt waits for the server's first message.
    link: Option<Arc<Link<H>>>,
}

impl<H: EndpointEvents> Connecting<H> {
    /// No attempt yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            current <- new_spinlock!(
                Current {
                    aborted: false,
                    under_way: false,
                    due: 0,
                    lost: false,
                    handle: None,
                    link: None,
                },
                "rpcrdma::Connecting::current"
            ),
        })
    }

    /// The transport goes away: ends an attempt that is under way, and every later one.
    pub(super) fn abort(&self) {
        let mut current = self.current.lock();
        current.aborted = true;
        let handle = current.handle.take();
        drop(current);
        if let Some(handle) = handle {
            handle.abort();
        }
        self.interrupt();
    }

    /// Returns whether the transport goes away.
    pub(super) fn is_aborted(&self) -> bool {
        self.current.lock().aborted
    }

    /// The connection is lost, or not wanted any more: nobody shall wait for the server's first
    /// message.
    pub(super) fn interrupt(&self) {
        let mut current = self.current.lock();
        current.lost = true;
        if let Some(link) = &current.link {
            link.channel().interrupt();
        }
    }

    /// The attempt waits for the server's first message on this connection, or on none any more.
    pub(super) fn wait_on(&self, link: Option<Arc<Link<H>>>) {
        let mut current = self.current.lock();
        let former = core::mem::replace(&mut current.link, link);
        // What happened before could not end the wait.
        let interrupt = current.aborted || current.lost;
        drop(current);
        drop(former);
        if interrupt {
            self.interrupt();
        }
    }

    /// An attempt begins.
    pub(super) fn begin(&self, handle: AbortHandle<H>) {
        let mut current = self.current.lock();
        if current.aborted {
            drop(current);
            handle.abort();
        } else {
            current.handle = Some(handle);
            // Of a former connection nothing is heard any more: its end waits for its handlers.
            current.lost = false;
        }
    }

    /// The worker has got the send lock, and makes its attempt in `delay` jiffies.
    pub(super) fn take_over(&self, delay: usize) {
        let mut current = self.current.lock();
        current.under_way = true;
        current.due = jiffies().wrapping_add(delay);
    }

    /// Returns the time until the attempt begins, in jiffies. Zero if there will be none.
    pub(super) fn left(&self) -> usize {
        let current = self.current.lock();
        let left = current.due.wrapping_sub(jiffies());
        // Beyond half of what the counter can say is the past.
        if current.aborted || left > usize::MAX / 2 {
            0
        } else {
            left
        }
    }

    /// The worker gives the send lock back.
    pub(super) fn hand_back(&self) {
        self.current.lock().under_way = false;
    }

    /// Returns whether the worker has the send lock.
    pub(super) fn is_under_way(&self) -> bool {
        self.current.lock().under_way
    }

    /// The attempt is over.
    pub(super) fn end(&self) {
        let handle = self.current.lock().handle.take();
        // Outside the lock: it may be the last reference to the CM's context.
        drop(handle);
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_client_connecting)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::kext::time::HZ;

    /// A connection may be lost before anybody waits on it; the loss of one is not that of the
    /// next. An attempt is made when it is due, and none of a transport that goes away.
    #[test]
    fn attempts_are_due_or_aborted() -> Result {
        let connecting = KBox::pin_init(Connecting::<Client>::new(), GFP_KERNEL)?;
        connecting.interrupt();
        assert!(connecting.current.lock().lost);
        assert!(!connecting.is_under_way());
        connecting.take_over(0);
        assert!(connecting.is_under_way());
        assert_eq!(connecting.left(), 0);
        connecting.take_over(60 * HZ);
        assert!(connecting.left() > 50 * HZ);
        connecting.abort();
        assert_eq!(connecting.left(), 0);
        assert!(connecting.is_aborted());
        connecting.hand_back();
        assert!(!connecting.is_under_way());
        Ok(())
    }
}
