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
    /// Calls that were read. With as many places, since each is in such a message.
    pulled: Fifo<KBox<Pull<H>>>,
    /// The number of places there are, or will be when those who make them have done so.
    room: usize,
    /// Set if the oldest message found no buffer for its answer, and no younger one could be taken
    /// in its place.
    held_up: bool,
    /// The most messages that waited while that was so, itself included.
    most_parked: usize,
}

/// The messages and Calls that wait for a thread.
#[pin_data]
pub(super) struct Inbox<H: EndpointEvents> {
    /// All of it.
    #[pin]
    queue: SpinLock<Queue<H>>,
    /// Set if there are Calls that were read. Written under the lock.
    has_pulled: Atomic<bool>,
    /// Set if there is perhaps a message that can be taken though the oldest can't. Written under
    /// the lock.
    may_pass: Atomic<bool>,
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
            pulled: Fifo::new(),
            room: 0,
            held_up: false,
            most_parked: 0,
        };
        Ok(pin_init!(Self {
            queue <- new_spinlock!(queue, "rpcrdma::Inbox::queue"),
            has_pulled: Atomic::new(false),
            may_pass: Atomic::new(false),
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

    /// Puts a message in, from any context. `is_plain` says whether it is a Call without chunks.
    pub(super) fn put_message(
        &self,
        xprt: &SvcXprt,
        message: Received<H>,
        whole: Option<Whole>,
        is_plain: impl FnOnce(&Arrived<H>) -> bool,
    ) {
        let arrived = Arrived {
            message,
            whole,
            again: false,
        };
        let mut queue = self.queue.lock();
        if queue.held_up && is_plain(&arrived) {
            // See `has_room` for the barrier.
            self.may_pass.xchg(true, Full);
        }
        let refused = queue.arrived.push(arrived).err();
        if queue.held_up {
            queue.most_parked = queue.most_parked.max(queue.arrived.len());
        }
        xprt.set_data();
        drop(queue);
        Self::announce(xprt, refused.is_some());
    }

    /// Puts a message back that could not be taken in. It is the next one; while it waits, those
    /// pass of which `is_plain` says that they are Calls without chunks.
    pub(super) fn put_back(
        &self,
        xprt: &SvcXprt,
        arrived: Arrived<H>,
        is_plain: impl Fn(&Arrived<H>) -> bool,
    ) {
        let mut queue = self.queue.lock();
        queue.held_up = true;
        // See `has_room` for the barrier.
        let may_pass = queue.arrived.iter().any(is_plain);
        self.may_pass.xchg(may_pass, Full);
        // Its place is still there, since it has not given its Receive back.
        let refused = queue.arrived.push_oldest(arrived).err();
        queue.most_parked = queue.most_parked.max(queue.arrived.len());
        xprt.set_data();
        drop(queue);
        Self::announce(xprt, refused.is_some());
    }

    /// Puts a Call in that was read, from any context.
    pub(super) fn put_call(&self, xprt: &SvcXprt, call: KBox<Pull<H>>) {
        let mut queue = self.queue.lock();
        let refused = queue.pulled.push(call).err();
        // See `has_room` for the barrier.
        self.has_pulled.xchg(true, Full);
        xprt.set_data();
        drop(queue);
        Self::announce(xprt, refused.is_some());
    }

    /// Tells SUNRPC.
    fn announce(xprt: &SvcXprt, refused: bool) {
        if refused {
            // Not possible: there is a place for whatever the peer may send.
            xprt.close();
        }
        xprt.enqueue();
    }

    /// Takes the next thing out that can be done. A message is taken only with a buffer for its
    /// answer: one that `lend` has at once, or that `reserve` finds, which may sleep. Called by one
    /// thread at a time: the one that SUNRPC has given the transport to.
    ///
    /// If there is none, the oldest Call takes its place of which `is_plain` says that it has no
    /// chunks: a buffer that is lent for such a Call is enough for it. So it does if the message
    /// was put back and `is_starved` says that nothing has come back since; `reserve` is told that
    /// it is put off, and sees to the buffers of the others only.
    ///
    /// `lend` is called under the lock of the queue. It takes the lock of the Send Queue, under
    /// which nobody takes this one.
    pub(super) fn next(
        &self,
        xprt: &SvcXprt,
        lend: impl FnOnce(&Arc<Endpoint<H>>) -> Option<SendBuffer<H>>,
        reserve: impl FnOnce(&Arc<Endpoint<H>>, bool) -> Option<SendBuffer<H>>,
        is_plain: impl Fn(&Arrived<H>) -> bool,
        is_starved: impl FnOnce() -> bool,
    ) -> Option<Work<H>> {
        let mut queue = self.queue.lock();
        let lent = match queue.arrived.oldest() {
            Some(oldest) if queue.pulled.is_empty() => {
                let endpoint = oldest.message.endpoint();
                let put_off = oldest.again && is_starved();
                let lent = if put_off { None } else { lend(endpoint) };
                match lent {
                    None => {
                        let endpoint = endpoint.clone();
                        drop(queue);
                        // Nobody else takes anything out meanwhile.
                        let reserved = reserve(&endpoint, put_off);
                        drop(endpoint);
                        queue = self.queue.lock();
                        reserved
                    }
                    lent => lent,
                }
            }
            _ => None,
        };
        let work = match lent {
            Some(buffer) => {
                queue.held_up = false;
                let arrived = queue.arrived.pop();
                arrived.map(|arrived| Work::Arrived(arrived, buffer))
            }
            None => match queue.pulled.pop() {
                Some(call) => Some(Work::Pulled(call)),
                None => self.pass(&mut queue, is_plain),
            },
        };
        self.has_pulled.store(!queue.pulled.is_empty(), Relaxed);
        if queue.pulled.is_empty() && queue.arrived.is_empty() {
            xprt.clear_data();
        }
        drop(queue);
        work
    }

    /// Takes the oldest Call without chunks out, if there is a buffer for its answer: those before
    /// it have to wait.
    fn pass(
        &self,
        queue: &mut Queue<H>,
        is_plain: impl Fn(&Arrived<H>) -> bool,
    ) -> Option<Work<H>> {
        let endpoint = queue.arrived.oldest()?.message.endpoint().clone();
        let first = queue.arrived.iter().position(&is_plain);
        let found = first.and_then(|index| Some((index, endpoint.plain_send_buffer()?)));
        let more = found
            .as_ref()
            .is_some_and(|(index, _)| queue.arrived.iter().skip(index + 1).any(is_plain));
        queue.held_up = true;
        self.may_pass.store(more, Relaxed);
        let (index, buffer) = found?;
        let arrived = queue.arrived.remove(index)?;
        Some(Work::Arrived(arrived, buffer))
    }

    /// Returns whether there may be a message that can be taken though the oldest can't.
    pub(super) fn may_pass(&self) -> bool {
        self.may_pass.load(Relaxed)
    }

    /// Returns whether there is a Call that was read. It has all that it needs, and others may wait
    /// for what it has.
    pub(super) fn has_pulled(&self) -> bool {
        self.has_pulled.load(Relaxed)
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
            let (pulled, arrived) = (queue.pulled.pop(), queue.arrived.pop());
            drop(queue);
            if pulled.is_none() && arrived.is_none() {
                return;
            }
        }
    }
}
