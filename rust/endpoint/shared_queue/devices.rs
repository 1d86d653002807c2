// SPDX-License-Identifier: GPL-2.0

//! The shared queues of a listener, and which connections use them.
//!
//! A connection has a queue of its own until there are so many on the device that the administrator
//! wants the next ones to share; over iWARP always, where a message without a Receive ends its
//! connection. It stays with what it has.

use super::{
    level::{
        Level,
        LEAST_DEPTH, //
    },
    Member,
    SharedQueue, //
};
use crate::kext::prelude::*;
use crate::{
    kext::ratelimit::pr_warn_ratelimited,
    rdma::device::{
        Device,
        DeviceLimits, //
    }, //
};

/// When and how connections share Receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// The number of connections of a device that have queues of their own.
    pub(crate) own: u32,
    /// The number of Receives that are shared, as far as the device can have as many.
    pub(crate) depth: u32,
}

/// The connections and shared queues of one listener.
#[pin_data]
pub(crate) struct SharedQueues<M: Member> {
    /// The devices that have connections.
    #[pin]
    devices: Mutex<KVec<OnDevice<M>>>,
}

/// The connections of one device.
struct OnDevice<M: Member> {
    /// Its address.
    device: usize,
    /// The number of connections that have queues of their own.
    own: u32,
    /// The queues that are shared, each with the number of its connections. The last one may take
    /// further ones; the others have failed.
    queues: KVec<(Arc<SharedQueue<M>>, u32)>,
}

impl<M: Member> OnDevice<M> {
    /// Returns the queue for another connection, which is counted, if it is to share one that there
    /// is or can be made.
    fn share(
        &mut self,
        device: &Device,
        depth: u32,
        size: usize,
    ) -> Result<Option<Arc<SharedQueue<M>>>> {
        if let Some((queue, members)) = self.queues.last_mut() {
            if queue.takes_more(size) {
                *members += 1;
                return Ok(Some(queue.clone()));
            }
            if !queue.has_failed() {
                return Ok(None);
            }
        }
        self.queues.reserve(1, GFP_KERNEL)?;
        let queue = SharedQueue::new(device, depth, size)?;
        // There is room.
        let _ = self.queues.push_within_capacity((queue.clone(), 1));
        Ok(Some(queue))
    }

    /// A connection has gone, which shared `queue` or none. Returns the queue if it was the last.
    fn leave(&mut self, queue: Option<&Arc<SharedQueue<M>>>) -> Option<Arc<SharedQueue<M>>> {
        let Some(queue) = queue else {
            self.own -= 1;
            return None;
        };
        let mut queues = self.queues.iter();
        let at = queues.position(|(known, _)| Arc::ptr_eq(known, queue))?;
        let (_, members) = self.queues.get_mut(at)?;
        *members -= 1;
        if *members > 0 {
            return None;
        }
        self.queues.remove(at).ok().map(|(queue, _)| queue)
    }
}

impl<M: Member> SharedQueues<M> {
    /// No connections yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                devices <- new_mutex!(KVec::new(), "rpcrdma::SharedQueues::devices"),
            }),
            GFP_KERNEL,
        )
    }

    /// Counts another connection of a device, and decides whether it shares Receives, of `size`
    /// octets. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::endpoint) fn join(
        self: &Arc<Self>,
        device: &Device,
        limits: &DeviceLimits,
        sharing: Sharing,
        size: usize,
    ) -> Result<Membership<M>> {
        let address = device.as_ptr().addr();
        let depth = sharing.depth.min(Level::depth_in(limits.srq_depth));
        let may_share = !limits.iwarp && depth >= LEAST_DEPTH;
        let mut devices = self.devices.lock();
        let at = devices.iter().position(|entry| entry.device == address);
        let at = at.unwrap_or(devices.len());
        if at == devices.len() {
            let entry = OnDevice {
                device: address,
                own: 0,
                queues: KVec::new(),
            };
            devices.push(entry, GFP_KERNEL)?;
        }
        let entry = devices.get_mut(at).ok_or(ENOMEM)?;
        let mut queue = None;
        if may_share && entry.own >= sharing.own {
            match entry.share(device, depth, size) {
                Ok(shared) => queue = shared,
                Err(error) => pr_warn_ratelimited!(
                    "device {}: cannot create a Shared Receive Queue ({error:?}); the connection \
                     has its own\n",
                    device.name()
                ),
            }
        }
        entry.own += u32::from(queue.is_none());
        drop(devices);
        Ok(Membership {
            queues: self.clone(),
            device: address,
            queue,
        })
    }
}

/// Counts a connection, and keeps the queue that it shares, if it does.
pub(in crate::endpoint) struct Membership<M: Member> {
    /// The place where it is counted.
    queues: Arc<SharedQueues<M>>,
    /// The address of the device.
    device: usize,
    /// The queue.
    queue: Option<Arc<SharedQueue<M>>>,
}

impl<M: Member> Membership<M> {
    /// Returns the queue.
    pub(in crate::endpoint) fn queue(&self) -> Option<&Arc<SharedQueue<M>>> {
        self.queue.as_ref()
    }
}

impl<M: Member> Drop for Membership<M> {
    fn drop(&mut self) {
        let mut devices = self.queues.devices.lock();
        let at = devices.iter().position(|entry| entry.device == self.device);
        let Some((at, entry)) = at.and_then(|at| Some((at, devices.get_mut(at)?))) else {
            return;
        };
        let ended = entry.leave(self.queue.as_ref());
        if entry.own == 0 && entry.queues.is_empty() {
            drop(devices.remove(at));
        }
        // Under the lock, so that nobody makes another queue on a device that goes away with this
        // one.
        if let Some(queue) = ended {
            queue.close();
        }
        drop(devices);
    }
}
