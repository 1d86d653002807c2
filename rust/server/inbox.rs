// SPDX-License-Identifier: GPL-2.0

//! What waits for a thread of the service.
//!
//! SUNRPC's flag `XPT_DATA` is set and cleared under the lock of the queue, so it is set whenever something is in it.

use crate::link::assembly::Whole;
use crate::responder::call::Pulling;
use crate::server::connection::Connection;
use crate::sunrpc::svc::SvcXprt;
use crate::verbs::endpoint::{Endpoint, Received, SendBuffer};
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// Something for a thread to do.
pub(super) enum Work {
    /// A Call, all of which was read.
    Pulled(Pulling<Connection>),
    /// A message, and what its answer goes into.
    Arrived(Received<Connection>, Option<Whole>, SendBuffer<Connection>),
}

/// What the lock protects.
struct Queue {
    /// Messages that arrived, the oldest first, and what was put together of those that came in parts. With room for
    /// all Receives.
    arrived: KVVec<(Received<Connection>, Option<Whole>)>,
    /// Calls that were read. With room for all Receives, since each has one.
    pulled: KVVec<Pulling<Connection>>,
}

/// What waits for a thread.
#[pin_data]
pub(super) struct Inbox {
    /// All of it.
    #[pin]
    queue: SpinLock<Queue>,
}

impl Inbox {
    /// Nothing waits. There is place for `capacity` messages, and as many Calls that were read.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(capacity: u32) -> Result<impl PinInit<Self>> {
        let capacity = usize::try_from(capacity)?;
        let queue = Queue {
            arrived: KVVec::with_capacity(capacity, GFP_KERNEL)?,
            pulled: KVVec::with_capacity(capacity, GFP_KERNEL)?,
        };
        Ok(pin_init!(Self {
            queue <- new_spinlock!(queue, "rpcrdma::Inbox::queue"),
        }))
    }

    /// Puts a message in, from any context.
    pub(super) fn put_message(
        &self,
        xprt: &SvcXprt,
        message: Received<Connection>,
        whole: Option<Whole>,
    ) {
        let mut queue = self.queue.lock();
        let refused = queue
            .arrived
            .push_within_capacity((message, whole))
            .is_err();
        xprt.set_data();
        drop(queue);
        Self::announce(xprt, refused);
    }

    /// Puts a Call in that was read, from any context.
    pub(super) fn put_call(&self, xprt: &SvcXprt, call: Pulling<Connection>) {
        let mut queue = self.queue.lock();
        let refused = queue.pulled.push_within_capacity(call).is_err();
        xprt.set_data();
        drop(queue);
        Self::announce(xprt, refused);
    }

    /// Tells SUNRPC.
    fn announce(xprt: &SvcXprt, refused: bool) {
        if refused {
            // Not possible: there is a place for each Receive.
            xprt.close();
        }
        xprt.enqueue();
    }

    /// Takes the next thing out that can be done. A message is taken only with a buffer for its answer, which `reserve`
    /// finds; it may sleep. Called by one thread at a time: the one that SUNRPC has given the transport to.
    pub(super) fn next(
        &self,
        xprt: &SvcXprt,
        reserve: impl FnOnce(&Arc<Endpoint<Connection>>) -> Option<SendBuffer<Connection>>,
    ) -> Option<Work> {
        let queue = self.queue.lock();
        let endpoint = match (queue.pulled.first(), queue.arrived.first()) {
            (None, Some((oldest, _))) => Some(oldest.endpoint().clone()),
            _ => None,
        };
        drop(queue);
        // Nobody else takes anything out meanwhile.
        let buffer = endpoint.as_ref().and_then(reserve);

        let mut queue = self.queue.lock();
        let work = match buffer {
            Some(buffer) => {
                let message = queue.arrived.remove(0).ok();
                message.map(|(message, whole)| Work::Arrived(message, whole, buffer))
            }
            None => queue.pulled.remove(0).ok().map(Work::Pulled),
        };
        if queue.pulled.is_empty() && queue.arrived.is_empty() {
            xprt.clear_data();
        }
        drop(queue);
        work
    }

    /// Drops what waits.
    pub(super) fn empty(&self) {
        loop {
            let mut queue = self.queue.lock();
            let (pulled, arrived) = (queue.pulled.pop(), queue.arrived.pop());
            drop(queue);
            if pulled.is_none() && arrived.is_none() {
                return;
            }
        }
    }
}
