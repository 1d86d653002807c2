// SPDX-License-Identifier: GPL-2.0

//! The queue of what is ready to be posted but has found the Send Queue full, or in Version Two no
//! credit.
//!
//! No thread waits for a peer to make room: one that takes no Replies would soon have all threads
//! of the service waiting. What can't be posted is left here, and posted by the first thread that
//! notices that there is room again. It is not much, since no further Call is taken in from that
//! peer meanwhile (`has_room`).
//!
//! # Who owns what, and what ends it
//!
//! Everything here has a Send buffer of the endpoint's, so there is never more than there are of
//! those. One party at a time posts: it takes the oldest out under the lock and sets `posting`;
//! another that finds room meanwhile leaves it `again`. What was begun, since it is too long to be
//! posted at once, is the endpoint's. Nothing is posted or dropped under the lock.
//! [`Backlog::close`] comes before the endpoint's shutdown, which waits for the transfers that are
//! held here.

use crate::endpoint::{
    Cargo,
    Endpoint,
    EndpointEvents,
    PostError,
    Pull, //
};
use crate::kext::fifo::Fifo;
use crate::kext::prelude::*;
use crate::link::channel::Channel;
use crate::responder::call::Pulling;
use crate::responder::post;
use crate::responder::reply::Ready;
use crate::responder::stats::Stats;

/// The messages and transfers to be posted.
pub(super) enum Outgoing<H: EndpointEvents> {
    /// A Reply, or an error.
    Reply(Ready<H>),
    /// RDMA Reads of a Call, until they are posted.
    Reads(Option<KBox<Pull<H>>>),
}

impl<H: EndpointEvents<Pull = Pulling<H>>> Outgoing<H> {
    /// The transaction ID of the Call that it belongs to.
    fn xid(&self) -> u32 {
        match self {
            Self::Reply(ready) => ready.xid,
            Self::Reads(pull) => pull.as_ref().map_or(0, |pull| pull.keeper().xid()),
        }
    }

    /// Has nothing that others ahead of it may wait for.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn let_buffers_go(&mut self) -> Result {
        match self {
            Self::Reply(ready) => ready.let_buffers_go(),
            Self::Reads(_) => Ok(()),
        }
    }

    /// Posts it, and tells `stats` if it was. `channel` counts it.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, or there is no credit (`Full`), it may be posted
    /// later; else it can't be posted any more.
    fn post(
        &mut self,
        endpoint: &Arc<Endpoint<H>>,
        channel: &Channel,
        stats: &Stats,
    ) -> Result<(), PostError> {
        match self {
            Self::Reads(reads) => {
                let pull = reads.take().ok_or(PostError::Closed)?;
                let (xid, load) = (pull.keeper().xid(), pull.load());
                if let Err((error, back)) = endpoint.post_pull(pull) {
                    *reads = back;
                    return Err(error);
                }
                stats.reads_posted(xid, load);
                Ok(())
            }
            Self::Reply(ready) => post_reply(ready, endpoint, channel, stats),
        }
    }
}

/// Posts a Reply, and tells `stats` if it was. `channel` counts it.
///
/// # Errors
///
/// As for [`Outgoing::post`].
#[inline]
fn post_reply<H: EndpointEvents>(
    ready: &mut Ready<H>,
    endpoint: &Arc<Endpoint<H>>,
    channel: &Channel,
    stats: &Stats,
) -> Result<(), PostError> {
    let load = ready.cargo.as_ref().map(Cargo::load).unwrap_or_default();
    let sequence = post::reply(ready, endpoint, channel)?;
    stats.replied(ready.xid, ready.len, load, ready.invalidate, sequence);
    Ok(())
}

/// The state behind the lock.
struct Queue<H: EndpointEvents> {
    /// The items that wait, the oldest first, and where they go.
    waiting: Fifo<(Arc<Endpoint<H>>, Outgoing<H>)>,
    /// Set while somebody posts.
    posting: bool,
    /// Set if there was more room since that began.
    again: bool,
    /// Set if the connection is at its end.
    closed: bool,
}

/// The items that wait for room in the Send Queue of a connection.
#[pin_data]
pub(super) struct Backlog<H: EndpointEvents> {
    /// The items that wait.
    #[pin]
    queue: SpinLock<Queue<H>>,
    /// Set if anything waits. Written under the lock.
    busy: Atomic<bool>,
    /// The most items.
    capacity: usize,
    /// Where it is told what was posted, and what has to wait.
    stats: Arc<Stats>,
}

impl<H: EndpointEvents<Pull = Pulling<H>>> Backlog<H> {
    /// Nothing waits. There is place for `capacity` items; it is made when it is needed, since on
    /// most connections nothing ever waits.
    ///
    /// # Errors
    ///
    /// `EOVERFLOW`.
    pub(super) fn new(capacity: u32, stats: Arc<Stats>) -> Result<impl PinInit<Self>> {
        let capacity = usize::try_from(capacity)?;
        let queue = Queue {
            waiting: Fifo::new(),
            posting: false,
            again: false,
            closed: false,
        };
        Ok(pin_init!(Self {
            queue <- new_spinlock!(queue, "rpcrdma::Backlog::queue"),
            busy: Atomic::new(false),
            capacity,
            stats,
        }))
    }

    /// Makes the place, if that was not done yet. Sleeps.
    fn make_place(&self) -> Result {
        let made = self.queue.lock().waiting.capacity() > 0;
        if made {
            return Ok(());
        }
        let mut waiting = Fifo::with_capacity(self.capacity)?;
        let mut queue = self.queue.lock();
        if queue.waiting.capacity() == 0 {
            core::mem::swap(&mut queue.waiting, &mut waiting);
        }
        drop(queue);
        Ok(())
    }

    /// Returns whether anything waits.
    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
    }

    /// Returns the number of items that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.lock().waiting.len()
    }

    /// Posts a Reply, or leaves it to be posted. Sleeps. Returns whether nothing waits any more
    /// after something did.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: the connection must be ended.
    #[inline]
    pub(super) fn post_reply(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        channel: &Channel,
        mut ready: Ready<H>,
    ) -> Result<bool> {
        // Nobody overtakes what waits.
        if !self.is_busy() {
            match post_reply(&mut ready, endpoint, channel, &self.stats) {
                Ok(()) => return Ok(false),
                Err(PostError::Full) => {}
                Err(_) => return Err(ENOTCONN),
            }
        }
        self.leave(endpoint, channel, Outgoing::Reply(ready))
    }

    /// As [`Self::post_reply`], for the Reads of a Call.
    ///
    /// # Errors
    ///
    /// As for [`Self::post_reply`].
    pub(super) fn post_reads(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        channel: &Channel,
        pull: KBox<Pull<H>>,
    ) -> Result<bool> {
        let mut item = Outgoing::Reads(Some(pull));
        if !self.is_busy() {
            match item.post(endpoint, channel, &self.stats) {
                Ok(()) => return Ok(false),
                Err(PostError::Full) => {}
                Err(_) => return Err(ENOTCONN),
            }
        }
        self.leave(endpoint, channel, item)
    }

    /// Leaves `item` to be posted, behind what waits. Sleeps. Returns as [`Self::post_reply`].
    ///
    /// # Errors
    ///
    /// As for [`Self::post_reply`].
    #[inline(never)]
    fn leave(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        channel: &Channel,
        mut item: Outgoing<H>,
    ) -> Result<bool> {
        if self
            .make_place()
            .and_then(|()| item.let_buffers_go())
            .is_err()
        {
            return Err(ENOTCONN);
        }
        let xid = item.xid();
        let mut queue = self.queue.lock();
        // There is a place for each Send buffer.
        if queue.closed || queue.waiting.len() >= queue.waiting.capacity() {
            drop(queue);
            drop(item);
            return Err(ENOTCONN);
        }
        self.busy.store(true, Relaxed);
        let _ = queue.waiting.push((endpoint.clone(), item));
        drop(queue);
        self.stats.send_queue_full(xid);
        // There may have been room before it was there to be found.
        self.flush(channel)
    }

    /// Posts what waits, as long as there is room. Returns whether nothing waits any more after
    /// something did.
    ///
    /// # Errors
    ///
    /// `ENOTCONN`: the connection must be ended.
    pub(super) fn flush(&self, channel: &Channel) -> Result<bool> {
        if !self.is_busy() {
            return Ok(false);
        }
        loop {
            let mut queue = self.queue.lock();
            if queue.posting {
                queue.again = true;
                return Ok(false);
            }
            let Some((endpoint, mut item)) = queue.waiting.pop() else {
                return Ok(self.busy.xchg(false, Full));
            };
            queue.posting = true;
            queue.again = false;
            drop(queue);

            let outcome = item.post(&endpoint, channel, &self.stats);

            let mut queue = self.queue.lock();
            queue.posting = false;
            match outcome {
                Ok(()) => {}
                Err(PostError::Full) if !queue.closed => {
                    // There is place: it was there before.
                    let _ = queue.waiting.push_oldest((endpoint, item));
                    if !queue.again {
                        return Ok(false);
                    }
                }
                Err(_) => {
                    drop(queue);
                    drop(item);
                    return Err(ENOTCONN);
                }
            }
        }
    }

    /// Drops what waits; nothing will wait any more. No thread posts any more, but completions may
    /// still come.
    pub(super) fn close(&self) {
        loop {
            let mut queue = self.queue.lock();
            queue.closed = true;
            let item = queue.waiting.pop();
            drop(queue);
            if item.is_none() {
                return;
            }
        }
    }
}
