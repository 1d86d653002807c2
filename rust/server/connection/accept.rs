// SPDX-License-Identifier: GPL-2.0

//! How a connection is accepted, and how large it is made.

use super::{inspect, Connection, Returns, SEND_STEP};
use crate::kext::delayed_work::{new_delayed_work_ext, DelayedWork};
use crate::link::channel::Channel;
use crate::link::middles::MAX_PARTS;
use crate::link::sizing::REVERSE_READS;
use crate::module_parameters;
use crate::observe::trace::Number;
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::credits::{Allowance, Due};
use crate::responder::stats::Stats;
use crate::server::backlog::Backlog;
use crate::server::callback;
use crate::server::inbox::Inbox;
use crate::server::two;
use crate::sunrpc::svc::{Server, SvcXprt};
use crate::sunrpc::{tunables, AddressText};
use crate::verbs::cm::{CmId, ConnectionRequests, Incoming};
use crate::verbs::endpoint::{EndpointOwner, Sizes, RECEIVE_BATCH};
use crate::verbs::receive_pool::{Need, ReceivePools, FEWEST};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_condvar, new_mutex, new_spinlock, Arc};

/// Receives that are not for Calls: one for each Reply to a Call of ours, and a batch that is not posted.
const OTHER_RECEIVES: u32 = callback::SLOTS + RECEIVE_BATCH;

/// Receives: beside those one for each credit, and one for each Call that a thread has.
const fn receives(credits: u32) -> u32 {
    2 * credits + OTHER_RECEIVES
}

/// What a peer is granted at first.
pub(super) const FIRST_CREDITS: u32 = 4;

/// Send buffers: one for each Call that is taken in, as many again whose completion has not come, and one for each
/// Call of ours. With few credits there are as many as it takes for a Reply in parts when all others are with Calls: with
/// what is there for Replies to Calls of ours the peer may send Calls too.
const fn sends(credits: u32) -> u32 {
    let usual = 2 * credits + callback::SLOTS;
    let least = credits + 2 * callback::SLOTS + MAX_PARTS as u32;
    if usual > least {
        usual
    } else {
        least
    }
}

/// Work requests of the Send Queue: a Write and a Send for each credit, or the Writes of some Replies of a MiB. It is the
/// largest part of what an idle connection takes, and there are devices that round it up to the next power of two, or
/// up to the next but one if it is one less than that.
const fn send_queue(credits: u32) -> u32 {
    if credits > 32 {
        2 * credits - 2
    } else {
        62
    }
}

/// The number of the next connection.
static NEXT_NUMBER: Atomic<u32> = Atomic::new(1);

impl Connection {
    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// As for [`Self::try_accept`].
    pub(in crate::server) fn accept<L: ConnectionRequests>(
        server: Server<'_>,
        incoming: Incoming<L>,
        pools: &Arc<ReceivePools<Self>>,
    ) -> Result<Arc<Self>> {
        // The number has 31 bits for trace events.
        let number = Number::Server(NEXT_NUMBER.fetch_add(1, Relaxed) & (u32::MAX >> 1));
        let addresses = (incoming.remote().text(), incoming.local().text());
        let accepted = Self::try_accept(server, incoming, pools, number, addresses);
        inspect::accepted(number, &addresses.0, &accepted);
        accepted
    }

    /// Accepts a connection. What an administrator may set is taken now, for all its life.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`, `ENOMEM`, or what the device or the CM reports; the peer is rejected.
    fn try_accept<L: ConnectionRequests>(
        server: Server<'_>,
        incoming: Incoming<L>,
        pools: &Arc<ReceivePools<Self>>,
        number: Number,
        addresses: (AddressText, AddressText),
    ) -> Result<Arc<Self>> {
        let inline = tunables::max_request_size();
        let peer = CmPrivate::decode(incoming.private_data());
        let read_depth = incoming.read_depth();
        if read_depth == 0 {
            // It would never answer our Reads.
            return Err(EINVAL);
        }
        let limits = incoming.device_limits().ok_or(ENODEV)?;
        let own = CmPrivate {
            send_size: inline,
            receive_size: inline,
            // There are devices that can't send such.
            remote_invalidation: limits.memory_management,
        };
        let ours = u8::try_from(tunables::max_outbound_reads()).unwrap_or(u8::MAX);
        let read_depth = read_depth.min(limits.outbound_reads).min(ours);
        // As if all Receives were its own. Their queue has one more work request, the marker of a drain.
        let room = limits.queue_depth.saturating_sub(OTHER_RECEIVES + 1);
        let credits = tunables::max_requests().min(room / 2).max(1);
        let stats = Arc::new(Stats::new(number), GFP_KERNEL)?;
        let channel = two::channel(
            number,
            inline,
            FIRST_CREDITS.min(credits),
            FIRST_CREDITS + 1,
            addresses,
        )?;
        // In Version One there are no chunks in the reverse direction.
        let may_register = channel.is_some()
            && limits.memory_management
            && limits.fast_reg_pages >= callback::REGION_DEPTH;
        let (region_depth, regions) = match may_register {
            true => (callback::REGION_DEPTH, callback::REGIONS),
            false => (1, 0),
        };
        // Only Calls of ours may have Read chunks that it reads, and those of Version Two only.
        let answer_depth = match &channel {
            Some(_) => incoming
                .answer_depth()
                .min(limits.inbound_reads)
                .min(REVERSE_READS),
            None => 0,
        };
        // What a peer may send before it was told anything, whatever Version One may be limited to.
        let buffer_size = match &channel {
            Some(_) => two::message_size(inline),
            None => inline,
        };
        // For the session's own messages. Each Call takes a buffer when it is taken in, for a Reply which perhaps may not be
        // sent before one of those: our properties, if a client begins with Calls, or errors, which come first.
        let kept_sends = u32::from(channel.is_some());
        let this = Arc::pin_init(
            try_pin_init!(Self {
                xprt <- SvcXprt::new(server),
                inbox <- Inbox::new(receives(credits))?,
                owner <- new_mutex!(None, "rpcrdma::Connection::owner"),
                established: Atomic::new(false),
                backlog <- Backlog::new(sends(credits), stats.clone())?,
                starved: Atomic::new(false),
                returns <- new_spinlock!(Returns::default(), "rpcrdma::Connection::returns"),
                returned <- new_condvar!("rpcrdma::Connection::returned"),
                patience <- new_mutex!((), "rpcrdma::Connection::patience"),
                agreed: Agreed::new(&own, &peer),
                sends_invalidation: limits.memory_management,
                peer,
                channel,
                endpoint <- new_spinlock!(None, "rpcrdma::Connection::endpoint"),
                allowance <- new_spinlock!(
                    Allowance::new(FIRST_CREDITS, credits),
                    "rpcrdma::Connection::allowance"
                ),
                due <- new_spinlock!(Due::new(callback::SLOTS), "rpcrdma::Connection::due"),
                number,
                read_depth,
                addresses,
                stats,
                directory <- new_mutex!(None, "rpcrdma::Connection::directory"),
                has_callback: Atomic::new(false),
                callback_taken: Atomic::new(false),
                callback <- new_mutex!(None, "rpcrdma::Connection::callback"),
                look <- new_delayed_work_ext!("rpcrdma_look"),
            }? Error),
            GFP_KERNEL,
        )?;
        this.xprt.set_local(incoming.local())?;
        this.xprt.set_remote(incoming.remote())?;
        let cm = CmId::adopt(incoming, this.clone())?;
        let sizes = Sizes {
            receives: receives(credits),
            receive_size: buffer_size as usize,
            sends: sends(credits) + kept_sends,
            first_sends: SEND_STEP + kept_sends,
            kept_sends,
            send_size: buffer_size as usize,
            send_queue: send_queue(credits).min(limits.queue_depth / 2),
            region_depth,
            regions,
            transfer_sges: limits.send_sges.min(16),
            pulls: credits,
            transfers: credits.min(limits.queue_depth / 8),
        };
        let limit = shared_receives();
        let owner = if limit > 0 {
            EndpointOwner::sharing(cm, sizes, pools, limit)?
        } else {
            EndpointOwner::new(cm, sizes)?
        };
        let endpoint = owner.endpoint();
        if !endpoint.shares_receives() {
            // All that may ever be needed is posted already.
            *this.allowance.lock() = Allowance::new(credits, credits);
        }
        // One to spare, for a peer that does not count quite as we do.
        let wanted = this.allowance.lock().granted() + 1;
        endpoint.ask_for_receives(wanted, Need::Vital)?;
        this.inbox.add_room(wanted)?;
        this.receives_changed();
        if this.channel.is_some() {
            this.set_endpoint(Some(endpoint.clone()));
        }
        if let Err(error) = owner.accept(&own.encode(), read_depth, answer_depth) {
            // The peer may have sent something all the same. `free` will not be called, which would see to all this.
            this.set_endpoint(None);
            drop(owner);
            DelayedWork::<Self>::cancel_sync(&this);
            this.inbox.empty();
            return Err(error);
        }
        *this.owner.lock() = Some(owner);
        if this.channel().is_some_and(Channel::awaits_proof) {
            // Perhaps no message will ever come.
            Self::watch(&this);
        }
        Ok(this)
    }
}

/// The module parameter, which kernels hand out by value or by reference.
fn parameter() -> u32 {
    *core::borrow::Borrow::<u32>::borrow(&module_parameters::shared_receives.value())
}

/// How many Receives connections share on a device at most; zero if they do not.
fn shared_receives() -> u32 {
    match parameter() {
        0 => 0,
        limit => limit.max(FEWEST),
    }
}

/// Tells of a module parameter that is taken for another one. Called when the module is loaded.
pub(in crate::server) fn check_parameters() {
    let (asked, taken) = (parameter(), shared_receives());
    if asked != taken {
        pr_warn!("shared_receives={asked} is too few to be shared, {taken} is used\n");
    }
}
