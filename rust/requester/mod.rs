// SPDX-License-Identifier: GPL-2.0

//! The Requester: Calls out, Replies in. It does not know which end of the connection it is on.
//!
//! # Operation
//!
//! [`send::call`] runs with the transport's send lock held. It chooses a payload format, registers
//! what has to be registered, writes header and inline part into a Send buffer and posts all of it
//! as one chain.
//!
//! [`reply::received`] runs in the completion workqueue. It finds the Call, checks that what was
//! returned fits what was offered, and has every region fenced that the peer did not invalidate.
//! Only then is the RPC completed, at once or from [`reply::fenced`].
//!
//! # Who owns what, and what ends it
//!
//! A Call's regions belong to its [`CallState`], under the Call's own spinlock, from just before
//! they are posted until they are fenced:
//!
//! ```text
//!   Idle --send--> Sent --Reply, all fenced by the peer--> Idle
//!                   | \--Reply, fence posted--> Fencing --fence done--> Idle
//!                   \--killed--> Killed --fence done--> Idle
//! ```
//!
//! - SUNRPC does not call `buf_free` while an RPC is pinned, and a Call is `Fencing` only while we
//!   pin it. So a killed task meets `Idle` or `Sent` only. One that has timed out may meet
//!   `Fencing`; it leaves the regions to whoever fences them, and waits for their leases.
//! - When a connection ends, [`Requester::reclaim`] runs after its queues were freed: it takes
//!   everything out of `Sent` and `Fencing`. What is not known to be fenced is deregistered. A Call
//!   in `Killed` is left to its waiter, which is woken, if the flushed fence has not done so.
//! - Lock order: the Call's lock, then the endpoint's. A region is dropped under neither of them:
//!   to deregister it sleeps, and to unmap what is fenced may take as long as a copy of its memory.

pub(crate) mod call;
pub(crate) mod fences;
mod marshal;
pub(crate) mod reply;
pub(crate) mod send;
pub(crate) mod stats;
mod verdict;
pub(crate) mod wait;

use crate::endpoint::ConnectionEvents;
use crate::endpoint::{
    EndpointEvents,
    EndpointOwner,
    Received, //
};
use crate::kext::debugfs::lines;
use crate::kext::prelude::*;
use crate::link::assembly::Whole;
use crate::link::Link;
use crate::observe::latency::Latencies;
use crate::observe::trace::Number;
use crate::proto::format::Asked;
use crate::proto::message::Version;
use crate::proto::v1::DecodeError;
use crate::proto::v2::RdmaError;
use crate::sunrpc::{
    CallLease,
    Slot,
    Transport, //
};
use call::Call;
use kernel::seq_file::SeqFile;
use stats::Stats;
use wait::Patient;

/// A transport that has a Requester.
pub(crate) trait Host: Transport<Call = Call<Self>> {
    /// Whom the connection's endpoint tells what happens: the transport itself, or, for Calls
    /// against the direction in which the connection was made, the other side's face of it.
    type Wire: EndpointEvents<Lease = CallLease>;

    /// Its Requester.
    fn requester(&self) -> &Requester<Self>;

    /// Whom the connection's endpoint tells.
    fn wire(&self) -> &Self::Wire;

    /// By what number trace events name the connection: the same for both directions of Calls.
    fn traced(&self) -> Number {
        self.wire().number()
    }

    /// More regions are wanted. The caller is sending, and holds no spinlock.
    fn want_regions(this: &Arc<Self>);

    /// A Call of the other direction has arrived: `message`, or `whole` if it came in parts, of
    /// which `message` is the last. Nobody looks at it where there can be none.
    fn reverse_call(
        _this: &Arc<Self>,
        _message: Received<Self::Wire>,
        _version: Version,
        _whole: Option<Whole>,
    ) {
    }

    /// A Call of the other direction has arrived, with a header that makes no sense.
    fn reverse_error(_this: &Arc<Self>, _message: &Received<Self::Wire>, _error: &DecodeError) {}

    /// The peer has begun a sequence of messages, or a Call waits for its credits or its fence:
    /// schedules a [check](crate::link::channel::Channel::check), and one of the
    /// [fences](Requester::check_fences). Must not sleep.
    fn watch(this: &Arc<Self>);

    /// Ends the connection. The caller holds the send lock.
    fn disconnect(this: &Arc<Self>);
}

/// No Reply has come yet: nothing that 32 bits of credits can say.
const NO_REPLY: u64 = u64::MAX;

/// The Requester of one transport. It survives its connections.
#[pin_data]
pub(crate) struct Requester<T: Host> {
    /// The connection, while there is one.
    #[pin]
    link: SpinLock<Option<Arc<Link<T::Wire>>>>,
    /// The credits that the connection's last Reply had, or [`NO_REPLY`]. Written by whoever takes
    /// its Replies in, one at a time, and before there can be any.
    granted: Atomic<u64>,
    /// Every slot there is, in the order of their Calls' indices.
    slots: KVVec<Arc<Slot<Call<T>>>>,
    /// Those that no RPC has. With room for all of them.
    #[pin]
    free: SpinLock<KVVec<Arc<Slot<Call<T>>>>>,
    /// The Call that waits for the credits of its parts, since it has no other form.
    patient: Patient,
    /// Set if a check of the fences is arranged, see [`fences`].
    fences_watched: Atomic<bool>,
    /// The counters, over all connections.
    pub(crate) stats: Stats,
    /// The times from the Send of a Call to its Reply, over all connections.
    pub(crate) latencies: Latencies,
}

impl<T: Host> Requester<T> {
    /// A Requester with room for `slots` Calls, each with buffers of `size` octets to begin with.
    pub(crate) fn new(slots: u32, size: usize) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let count = usize::try_from(slots)?;
            let mut all = KVVec::with_capacity(count, GFP_KERNEL)?;
            let mut free = KVVec::with_capacity(count, GFP_KERNEL)?;
            for index in 0..slots {
                let slot = Slot::new(Call::new(index), size, size, GFP_KERNEL)?;
                all.push(slot.clone(), GFP_KERNEL)?;
                free.push(slot, GFP_KERNEL)?;
            }
            Ok(try_pin_init!(Self {
                link <- new_spinlock!(None, "rpcrdma::Requester::link"),
                granted: Atomic::new(NO_REPLY),
                patient: Patient::new(),
                fences_watched: Atomic::new(false),
                slots: all,
                free <- new_spinlock!(free, "rpcrdma::Requester::free"),
                stats: Stats::new(),
                latencies: Latencies::new(),
            }? Error))
        })
    }

    /// The connection, if there is one.
    pub(crate) fn link(&self) -> Option<Arc<Link<T::Wire>>> {
        self.link.lock().clone()
    }

    /// Returns the answer of `ask` about the connection, if there is one. The lock is held
    /// meanwhile, so that the connection can't go away: the caller may be where its end, which
    /// sleeps, must not come about. `ask` takes no lock but the channel's.
    pub(crate) fn ask_link<R>(&self, ask: impl FnOnce(&Link<T::Wire>) -> R) -> Option<R> {
        self.link.lock().as_ref().map(|link| ask(link))
    }

    /// Says what was agreed on, if there is a connection. Others may say it at the same time; what
    /// is said last is what holds, since its lock is held meanwhile.
    #[cold]
    pub(crate) fn tell_agreement(this: &T) {
        let peer = this.xprt().display();
        this.requester().ask_link(|link| {
            let agreement = link.channel().agreement();
            agreement.tell(this.traced(), &peer);
        });
    }

    /// Takes in an error about a Call. Returns whether the Call is to be sent again, in another
    /// form.
    fn learn(&self, error: &RdmaError, asked: &Asked) -> bool {
        self.link()
            .is_some_and(|link| link.channel().learn(error, asked))
    }

    /// Publishes a new connection, or takes the old one away.
    pub(crate) fn set_link(&self, link: Option<Arc<Link<T::Wire>>>) {
        self.granted.store(NO_REPLY, Relaxed);
        self.patient.clear();
        // What was arranged may have been for the former one.
        self.fences_watched.store(false, Relaxed);
        let former = core::mem::replace(&mut *self.link.lock(), link);
        // Outside the lock, since it may be the last reference.
        drop(former);
    }

    /// Returns whether a Call that has no other form waits for the credits of its parts.
    pub(crate) fn is_patient(&self) -> bool {
        self.patient.is_set()
    }

    /// Takes a free slot.
    pub(crate) fn take_slot(&self) -> Option<Arc<Slot<Call<T>>>> {
        self.free.lock().pop()
    }

    /// Gives a slot back.
    pub(crate) fn put_slot(&self, slot: Arc<Slot<Call<T>>>) {
        // Never more than the capacity: all of them are in `slots`.
        let _ = self.free.lock().push_within_capacity(slot);
    }

    /// The slot whose Call has this index.
    fn slot(&self, index: u32) -> Option<&Arc<Slot<Call<T>>>> {
        self.slots.get(index as usize)
    }

    /// Returns whether a memory region with this R_key is registered for a Call under way that has
    /// another transaction ID.
    fn is_of_another(&self, xid: u32, rkey: u32) -> bool {
        let mut others = self.slots.iter().filter(|slot| slot.call.xid() != xid);
        others.any(|slot| slot.call.holds(rkey))
    }

    /// Returns the number of slots in use.
    fn slots_in_use(&self) -> usize {
        self.slots.len() - self.free.lock().len()
    }

    /// Writes into a file of debugfs how many slots are in use, and the credits of the connection.
    pub(crate) fn show_credits(&self, m: &SeqFile) {
        lines!(m, "slots_in_use": self.slots_in_use());
        let Some(link) = self.link() else {
            return;
        };
        let channel = link.channel();
        if !channel.show_windows(m) {
            lines!(m,
                "wanted": link.credits_wanted(),
                "granted": channel.call_limit(),
            );
        }
    }

    /// Shuts a connection down and takes back all that waited for it.
    ///
    /// The caller excludes [`send::call`]: it holds the send lock, or the transport is going away.
    pub(crate) fn end_link(&self, owner: EndpointOwner<T::Wire>) {
        let (_, _, recycled) = owner.endpoint().region_counts();
        self.stats.regions_recycled.add_value(u64::from(recycled));
        owner.shutdown(|| {
            // Not before: what still arrives is a message of this connection, and of its version.
            self.set_link(None);
            self.reclaim();
        });
    }

    /// See the module's documentation. No completion may come any more.
    pub(crate) fn reclaim(&self) {
        for slot in &self.slots {
            let orphaned = slot.call.reclaim();
            self.stats.regions_orphaned.add_value(orphaned);
        }
    }
}
