// SPDX-License-Identifier: GPL-2.0

//! Receives that connections share: a Shared Receive Queue, and how many Receives are posted to it.
//! On a machine with several NUMA nodes, or with many CPUs, there are several of these, see
//! [`groups`].
//!
//! # Accounting
//!
//! Each connection asks for as many Receives as its peer may make use of, and one to spare: its
//! share. What all of them have asked for together is `wanted`. There are always [`RECEIVE_BATCH`]
//! buffers more, and fewer than that are idle. A buffer that is neither posted nor idle holds a
//! message of some peer, which has used one of the Receives that were asked for on its behalf. So
//! as long as every peer keeps to what it was promised, there is a Receive for whatever may still
//! arrive.
//!
//! A peer that does not keep to it takes what was posted for others. It is cut off as soon as that
//! is seen (`Endpoint::cut_off`), and until then others find too few: their devices try again, see
//! `CmId::accept`. iWARP knows no such thing.
//!
//! A quarter of what there may be is not for connections that want more than they began with, so
//! that new ones find some. Where one was denied more a short while ago, all make do with the same
//! share: one that has more gives back what it can, which is what its peer was not promised yet or
//! has used.
//!
//! If a device takes no Receives, those are missing that were promised, and nobody can tell whose
//! they are. So all connections of the pool end; the next ones have another pool.
//!
//! When a connection ends, what it has asked for is not wanted any more, and buffers go as they
//! come back. What is posted stays until somebody uses it up.
//!
//! A device may lose a Receive, see [`SharedReceiveQueue`](crate::rdma::shared_receive_queue). Lost
//! ones are not counted as there, so that others are posted for them; and when it is certain which
//! they are, they are posted again.
//!
//! # Who owns what, and what ends it
//!
//! - [`ReceivePools`] belongs to the listener and to the [`Membership`] of each connection, and
//!   ends with the last reference.
//! - A [`ReceivePool`] belongs to its entry in [`ReceivePools`], under the mutex. Its queue ends
//!   with the last [`Membership`], before that connection lets go of the device.
//! - A buffer is idle, posted, or lent to a [`Received`](crate::endpoint::Received). It ends with
//!   the queue, or when it comes back and is not wanted.
//!
//! When a QP ends, the Receives that it may still have are waited for as the device allows: for the
//! event that it uses no more, where there is such an event; then for the completions that are
//! there.

mod groups;
mod patience;
mod pool;
mod state;

pub(super) use self::pool::{
    PoolMember,
    ReceivePool, //
};
pub(crate) use self::state::Need;

use self::{
    groups::{
        Groups,
        Machine, //
    },
    pool::PoolParameters, //
};
use crate::kext::prelude::*;
use crate::{
    kext::{
        machine,
        ratelimit::pr_warn_ratelimited, //
    },
    rdma::{
        device::{
            Device,
            DeviceLimits, //
        },
        receive_buffer::RECEIVE_BATCH, //
    }, //
};

/// The fewest Receives that are shared: a batch may be idle, another is to spare, and something has
/// to be asked for.
pub(crate) const FEWEST: u32 = 2 * RECEIVE_BATCH + 1;

/// The pools of one listener: for each device and size of buffers, one for each of its
/// [`groups`] of connections.
#[pin_data]
pub(crate) struct ReceivePools<M: PoolMember> {
    /// The pools that have members.
    #[pin]
    pools: Mutex<KVec<Entry<M>>>,
}

/// A pool and its members.
struct Entry<M: PoolMember> {
    /// The pool.
    pool: Arc<ReceivePool<M>>,
    /// The number of its members.
    members: usize,
}

impl<M: PoolMember> ReceivePools<M> {
    /// No pools yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                pools <- new_mutex!(KVec::new(), "rpcrdma::ReceivePools::pools"),
            }),
            GFP_KERNEL,
        )
    }

    /// Joins a pool of a device with buffers of `buffer_size` octets, or makes it. There are at
    /// most `limit` Receives in all groups of the device together. [`None`] if the device has no
    /// Shared Receive Queues, or refuses to make one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device reports.
    pub(super) fn join(
        self: &Arc<Self>,
        device: &Device,
        limits: &DeviceLimits,
        buffer_size: usize,
        limit: u32,
    ) -> Result<Option<Membership<M>>> {
        let limit = limit.min(limits.srq_depth);
        if limit < FEWEST {
            return Ok(None);
        }
        let machine = Machine {
            nodes: machine::nodes(),
            cpus: machine::cpus(),
            vectors: limits.vectors,
            queues: limits.srqs,
        };
        let groups = Groups::new(machine, limit);
        let mut pools = self.pools.lock();
        let fits = |entry: &Entry<M>| entry.pool.is(device, buffer_size);
        let known = pools.iter().filter(|entry| fits(entry));
        let missing = groups.missing(known.map(|entry| entry.pool.group()));
        let made = missing.map(|group| {
            pools.reserve(1, GFP_KERNEL)?;
            let parameters = PoolParameters {
                buffer_size,
                limit: groups.limit(),
                // InfiniBand demands that a device tells; iWARP knows no such event, and siw has
                // none.
                tells: !limits.iwarp,
                group,
                vector: groups.vector(group),
            };
            ReceivePool::new(device, parameters)
        });
        let pool = if let Some(Ok(pool)) = made {
            let entry = Entry {
                pool: pool.clone(),
                members: 1,
            };
            // There is room.
            let _ = pools.push_within_capacity(entry);
            pool
        } else {
            let known = pools.iter_mut().filter(|entry| fits(entry));
            // One that has no room would take nobody in, now or at the next attempt.
            let least = known.min_by_key(|entry| (entry.pool.is_full(Need::First), entry.members));
            match (least, made) {
                // Also if there should be one more, which can't be made now.
                (Some(entry), _) => {
                    entry.members += 1;
                    entry.pool.clone()
                }
                (None, Some(Err(error))) if error != ENOMEM => {
                    pr_warn_ratelimited!(
                        "device {}: cannot create a Shared Receive Queue ({error:?}); each connection \
                         uses its own Receives\n",
                        device.name()
                    );
                    return Ok(None);
                }
                (None, _) => return Err(ENOMEM),
            }
        };
        drop(pools);
        Ok(Some(Membership {
            pools: self.clone(),
            pool,
        }))
    }
}

/// Keeps a pool, and makes it go with the last of its kind.
pub(crate) struct Membership<M: PoolMember> {
    /// Where the pool is listed.
    pools: Arc<ReceivePools<M>>,
    /// The pool.
    pool: Arc<ReceivePool<M>>,
}

impl<M: PoolMember> Membership<M> {
    /// The pool.
    pub(super) fn pool(&self) -> &Arc<ReceivePool<M>> {
        &self.pool
    }
}

impl<M: PoolMember> Drop for Membership<M> {
    fn drop(&mut self) {
        let mut pools = self.pools.pools.lock();
        let at = pools
            .iter()
            .position(|entry| Arc::ptr_eq(&entry.pool, &self.pool));
        let Some(at) = at else { return };
        let Some(entry) = pools.get_mut(at) else {
            return;
        };
        entry.members -= 1;
        if entry.members > 0 {
            return;
        }
        // Under the lock, so that nobody makes another pool on a device that goes away with this
        // one.
        if let Ok(entry) = pools.remove(at) {
            entry.pool.close();
        }
    }
}
