// SPDX-License-Identifier: GPL-2.0

//! The progress of connecting.

use crate::endpoint::EndpointEvents;
use crate::kext::prelude::*;
use crate::kext::time::{
    jiffies,
    seconds, //
};
use crate::link::Link;
use crate::rdma::cm::AbortHandle;
use crate::sunrpc::AddressText;

/// The progress of connecting.
#[pin_data]
pub(super) struct Connecting<H: EndpointEvents> {
    /// Shared by the worker, by those that end its attempt, and by the task that asks for the next
    /// one.
    #[pin]
    current: SpinLock<Current<H>>,
}

/// The attempt under way, and what outlives it.
struct Current<H: EndpointEvents> {
    /// The transport goes away: no more attempts.
    aborted: bool,
    /// The worker has the send lock.
    under_way: bool,
    /// The wait before the next attempt, if there is one.
    pause: Option<Pause>,
    /// The address of the last attempt.
    tried: Option<AddressText>,
    /// The second of the first of the last attempts in a row that found no device.
    without_device: Option<u64>,
    /// The connection that is being made was lost. It may be before anybody waits on it.
    lost: bool,
    /// Ends the wait of the attempt.
    handle: Option<AbortHandle<H>>,
    /// The connection on which the attempt waits for the server's first message.
    link: Option<Arc<Link<H>>>,
}

/// A wait before an attempt.
#[derive(Clone, Copy)]
struct Pause {
    /// When it began, in jiffies.
    began: usize,
    /// How long it takes, in jiffies.
    delay: usize,
}

impl<H: EndpointEvents> Connecting<H> {
    /// No attempt yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            current <- new_spinlock!(
                Current {
                    aborted: false,
                    under_way: false,
                    pause: None,
                    tried: None,
                    without_device: None,
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

    /// Ends the wait for the server's first message: the connection is lost, or not wanted any
    /// more.
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

    /// The worker has got the send lock, and makes an attempt to connect to this address.
    pub(super) fn take_over(&self, address: AddressText) {
        let mut current = self.current.lock();
        current.under_way = true;
        current.pause = None;
        current.tried = Some(address);
    }

    /// Returns whether this is another address than that of the last attempt. The port does not
    /// count: rpcbind may name another one each time.
    pub(super) fn is_elsewhere(&self, address: &AddressText) -> bool {
        let tried = self.current.lock().tried;
        tried.is_some_and(|tried| tried.address() != address.address())
    }

    /// Puts the next attempt off for `delay` jiffies.
    pub(super) fn pause(&self, delay: usize) {
        let began = jiffies();
        self.current.lock().pause = Some(Pause { began, delay });
    }

    /// Returns the time until the next attempt may begin, in jiffies; [`None`] if none waits.
    pub(super) fn left(&self) -> Option<usize> {
        let Pause { began, delay } = self.current.lock().pause?;
        // Nobody may have looked for weeks, after which a counter of 32 bits can't tell the past
        // from the future. So it is only asked how much has passed.
        Some(delay.saturating_sub(jiffies().wrapping_sub(began)))
    }

    /// An attempt has found a device, or none. Returns for how many seconds no attempt has found
    /// one.
    pub(super) fn note_device(&self, found: bool) -> u64 {
        let now = seconds();
        let mut current = self.current.lock();
        let since = current.without_device.take().unwrap_or(now);
        if !found {
            current.without_device = Some(since);
        }
        now.saturating_sub(since)
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
    /// next. An attempt begins when it is due, or at once if it leads elsewhere.
    #[test]
    fn attempts_are_due_or_aborted() -> Result {
        let connecting = KBox::pin_init(Connecting::<Client>::new(), GFP_KERNEL)?;
        let [one, two] = [AddressText::numbered(1, 1), AddressText::numbered(2, 1)];
        connecting.interrupt();
        assert!(connecting.current.lock().lost);
        assert!(!connecting.is_under_way());
        assert!(!connecting.is_elsewhere(&one));
        assert_eq!(connecting.left(), None);
        connecting.pause(0);
        assert_eq!(connecting.left(), Some(0));
        connecting.pause(60 * HZ);
        assert!(connecting.left().is_some_and(|left| left > 50 * HZ));
        for past in [60 * HZ, usize::MAX / 2, usize::MAX / 2 + 120 * HZ] {
            connecting.current.lock().pause = Some(Pause {
                began: jiffies().wrapping_sub(past),
                delay: 60 * HZ,
            });
            assert_eq!(connecting.left(), Some(0));
        }
        connecting.take_over(one);
        assert!(connecting.is_under_way());
        assert_eq!(connecting.left(), None);
        assert!(!connecting.is_elsewhere(&one));
        assert!(!connecting.is_elsewhere(&AddressText::numbered(1, 2)));
        assert!(connecting.is_elsewhere(&two));
        assert_eq!(connecting.note_device(false), 0);
        let booted = seconds();
        connecting.current.lock().without_device = Some(0);
        assert!(connecting.note_device(false) >= booted);
        connecting.note_device(true);
        assert_eq!(connecting.note_device(false), 0);
        connecting.abort();
        assert!(connecting.is_aborted());
        connecting.hand_back();
        assert!(!connecting.is_under_way());
        Ok(())
    }
}
