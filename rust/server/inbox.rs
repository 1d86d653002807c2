// SPDX-License-Identifier: GPL-2.0

//! The messages and Calls that wait for a thread of the service.
//!
//! SUNRPC's flag `XPT_DATA` is set and cleared under the lock of the queue, so it is set whenever
//! something is in it.

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    Pull,
    Received,
    SendBuffer, //
};
use crate::kext::fifo::Fifo;
use crate::kext::prelude::*;
use crate::link::assembly::Whole;
use crate::responder::call::{
    xid_of,
    Arrived, //
};
use crate::sunrpc::svc::SvcXprt;

/// Something for a thread to do.
pub(super) enum Work<H: EndpointEvents> {
    /// A Call, all of which was read.
    Pulled(KBox<Pull<H>>),
    /// A message, and what its answer goes into.
    Arrived(Arrived<H>, SendBuffer<H>),
}

/// The state behind the lock.
struct Queue<H: EndpointEvents> {
    /// Messages that arrived, the oldest first, and what was put together of those that came in
    /// parts. With place for all that the peer may send.
    arrived: Fifo<Arrived<H>>,
    /// How many of them are parked: Calls with chunks that may not be taken in yet. They are the
    /// oldest ones, and were looked at.
    parked: usize,
    /// Calls that were read. With as many places, since each is in such a message.
    pulled: Fifo<KBox<Pull<H>>>,
    /// The number of places there are, or will be when those who make them have done so.
    room: usize,
    /// Set if messages wait of which none can be taken, until another one comes.
    blocked: bool,
    /// The most messages that waited while the oldest could not be taken, itself included.
    most_parked: usize,
}

impl<H: EndpointEvents> Queue<H> {
    /// Takes the oldest message out, with a buffer that `lend` has. If it was put back, only unless
    /// `is_starved`.
    fn admit(
        &mut self,
        lend: impl FnOnce(&Arc<Endpoint<H>>) -> Option<SendBuffer<H>>,
        is_starved: bool,
    ) -> Option<Work<H>> {
        let oldest = self.arrived.oldest()?;
        if oldest.again && is_starved {
            return None;
        }
        let buffer = lend(oldest.message.endpoint())?;
        self.parked = self.parked.saturating_sub(1);
        let arrived = self.arrived.pop()?;
        Some(Work::Arrived(arrived, buffer))
    }

    /// Takes the oldest Call without chunks out, if there is a buffer for its answer. Parks those
    /// before it, which have to wait.
    fn pass(&mut self, is_plain: impl Fn(&Arrived<H>) -> bool) -> Option<Work<H>> {
        self.most_parked = self.most_parked.max(self.arrived.len());
        while !is_plain(self.arrived.get(self.parked)?) {
            self.parked += 1;
        }
        let endpoint = self.arrived.get(self.parked)?.message.endpoint();
        let buffer = endpoint.plain_send_buffer()?;
        let arrived = self.arrived.remove(self.parked)?;
        Some(Work::Arrived(arrived, buffer))
    }
}

/// The messages and Calls that wait for a thread.
#[pin_data]
pub(super) struct Inbox<H: EndpointEvents> {
    /// All of it.
    #[pin]
    queue: SpinLock<Queue<H>>,
    /// Set if something has come since nothing could be taken. Written under the lock.
    has_news: Atomic<bool>,
    /// The most places.
    limit: usize,
}

impl<H: EndpointEvents> Inbox<H> {
    /// Nothing waits, and there is no place for anything yet. There will be place for `limit`
    /// messages at most.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`.
    pub(super) fn new(limit: u32) -> Result<impl PinInit<Self>> {
        let limit = usize::try_from(limit)?;
        let queue = Queue {
            arrived: Fifo::new(),
            parked: 0,
            pulled: Fifo::new(),
            room: 0,
            blocked: false,
            most_parked: 0,
        };
        Ok(pin_init!(Self {
            queue <- new_spinlock!(queue, "rpcrdma::Inbox::queue"),
            has_news: Atomic::new(false),
            limit,
        }))
    }

    /// Makes place for `count` messages more, up to the limit, before the peer may send them.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn add_room(&self, count: u32) -> Result {
        let mut queue = self.queue.lock();
        let room = queue.room.saturating_add(usize::try_from(count)?);
        let room = room.min(self.limit);
        queue.room = room;
        let there = queue.arrived.capacity().min(queue.pulled.capacity());
        drop(queue);
        if there >= room {
            return Ok(());
        }
        // Some to spare, so that this is not done for each one.
        let capacity = room.checked_next_power_of_two().unwrap_or(room);
        let mut arrived = Fifo::with_capacity(capacity)?;
        let mut pulled = Fifo::with_capacity(capacity)?;
        let mut queue = self.queue.lock();
        // Somebody else may have made more meanwhile.
        if queue.arrived.capacity() < room {
            queue.arrived.grow_into(&mut arrived);
        }
        if queue.pulled.capacity() < room {
            queue.pulled.grow_into(&mut pulled);
        }
        drop(queue);
        // What is left of the smaller ones is freed outside of the lock.
        drop((arrived, pulled));
        Ok(())
    }

    /// Puts a message in, from any context.
    pub(super) fn put_message(&self, xprt: &SvcXprt, message: Received<H>, whole: Option<Whole>) {
        let arrived = Arrived {
            message,
            whole,
            again: false,
        };
        self.put(xprt, |queue| queue.arrived.push(arrived).err());
    }

    /// Puts a message back that could not be taken in. It is the next one, when something has come
    /// back.
    pub(super) fn put_back(&self, xprt: &SvcXprt, arrived: Arrived<H>) {
        self.put(xprt, |queue| {
            // Its place is still there, since it has not given its Receive back.
            queue.parked += 1;
            // Others may be taken meanwhile.
            queue.blocked = true;
            queue.arrived.push_oldest(arrived).err()
        });
    }

    /// Puts a Call in that was read, from any context.
    pub(super) fn put_call(&self, xprt: &SvcXprt, call: KBox<Pull<H>>) {
        self.put(xprt, |queue| queue.pulled.push(call).err());
    }

    /// Puts something in, and tells SUNRPC. `push` returns what there is no place for.
    fn put<T>(&self, xprt: &SvcXprt, push: impl FnOnce(&mut Queue<H>) -> Option<T>) {
        let mut queue = self.queue.lock();
        let refused = push(&mut queue);
        if core::mem::take(&mut queue.blocked) {
            // See `has_room` for the barrier.
            self.has_news.xchg(true, Full);
        }
        xprt.set_data();
        drop(queue);
        if refused.is_some() {
            // Not possible: there is a place for whatever the peer may send.
            xprt.close();
        }
        // Not under the lock: it may have memory that takes others.
        drop(refused);
        xprt.enqueue();
    }

    /// Takes the next thing out that can be done: a Call that was read, or the oldest message, with
    /// a buffer for its answer that `lend` has. If it has none, the oldest Call takes its place of
    /// which `is_plain` says that it has no chunks: any buffer is enough for it. So it does if the
    /// message was put back and nothing has come back since, which `is_starved` says. Called by one
    /// thread at a time: the one that SUNRPC has given the transport to.
    ///
    /// `lend` is called under the lock of the queue. It takes the lock of the Send Queue, under
    /// which nobody takes this one.
    pub(super) fn next(
        &self,
        xprt: &SvcXprt,
        lend: impl FnOnce(&Arc<Endpoint<H>>) -> Option<SendBuffer<H>>,
        is_plain: impl Fn(&Arrived<H>) -> bool,
        is_starved: bool,
    ) -> Option<Work<H>> {
        let mut queue = self.queue.lock();
        let work = match queue.pulled.pop() {
            Some(call) => Some(Work::Pulled(call)),
            None => match queue.admit(lend, is_starved) {
                None => queue.pass(is_plain),
                admitted => admitted,
            },
        };
        if queue.arrived.is_empty() && queue.pulled.is_empty() {
            xprt.clear_data();
        } else if work.is_none() {
            queue.blocked = true;
            self.has_news.store(false, Relaxed);
        }
        drop(queue);
        work
    }

    /// The endpoint over which the oldest message came that waits.
    pub(super) fn endpoint(&self) -> Option<Arc<Endpoint<H>>> {
        let queue = self.queue.lock();
        let oldest = queue.arrived.oldest();
        oldest.map(|oldest| oldest.message.endpoint().clone())
    }

    /// Returns whether something has come since [`Self::next`] found nothing.
    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Relaxed)
    }

    /// Returns the numbers of messages that wait, and of Calls that were read.
    pub(super) fn len(&self) -> (usize, usize) {
        let queue = self.queue.lock();
        (queue.arrived.len(), queue.pulled.len())
    }

    /// Returns the most messages that waited at a time for a buffer, or for transfers to end, since
    /// that was last forgotten.
    pub(super) fn most_parked(&self) -> usize {
        self.queue.lock().most_parked
    }

    /// Forgets it.
    pub(super) fn forget_parked(&self) {
        self.queue.lock().most_parked = 0;
    }

    /// The transaction ID of the message that waits longest; zero if there is none.
    pub(super) fn oldest_xid(&self) -> u32 {
        let queue = self.queue.lock();
        let oldest = queue.arrived.oldest();
        oldest.map_or(0, |oldest| xid_of(oldest.message.bytes()))
    }

    /// Drops what waits.
    pub(super) fn empty(&self) {
        loop {
            let mut queue = self.queue.lock();
            queue.parked = 0;
            let (pulled, arrived) = (queue.pulled.pop(), queue.arrived.pop());
            drop(queue);
            if pulled.is_none() && arrived.is_none() {
                return;
            }
        }
    }
}
