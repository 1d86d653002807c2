// SPDX-License-Identifier: GPL-2.0

//! The acceptance of a connection, and the choice of its sizes.

use super::{
    inspect,
    Connection,
    LEAVE_WORK,
    SEND_STEP, //
};
use crate::endpoint::shared_queue::{
    SharedQueues,
    Sharing, //
};
use crate::endpoint::{
    Endpoint,
    EndpointOwner,
    QueueSizes,
    Sizes,
    RECEIVE_BATCH,
    REPLACEMENTS, //
};
use crate::kext::delayed_work::{
    new_delayed_work_ext,
    DelayedWork, //
};
use crate::kext::prelude::*;
use crate::link::auth::{
    AuthParameters,
    AuthWanted, //
};
use crate::link::channel::{
    largest_message,
    Channel,
    ChannelParameters, //
};
use crate::link::parts::MAX_PARTS;
use crate::link::sizing::{
    most_segments,
    reads_posted,
    transfer_regions,
    REVERSE_READS, //
};
use crate::link::Link;
use crate::observe::latency::Latencies;
use crate::observe::trace::Number;
use crate::policy::stall::StallDetector;
use crate::proto::cm_private::CmPrivate;
use crate::proto::connection::receives::{
    Receives,
    FIRST_CREDITS,
    FOR_OPTIONAL, //
};
use crate::proto::connection::InOne;
use crate::proto::credits::MESSAGES_PER_CREDIT;
use crate::proto::message::Version;
use crate::proto::props::{
    Properties,
    ReverseLevel, //
};
use crate::proto::session::Role;
use crate::proto::v2_2016::props::Wishes;
use crate::rdma::cm::{
    CmId,
    ConnectRequest,
    ConnectionRequests, //
};
use crate::responder::stats::Stats;
use crate::server::callback;
use crate::server::defaults;
use crate::server::inbox::Inbox;
use crate::server::offenders::Offenders;
use crate::sunrpc::svc::{
    Server,
    SvcXprt, //
};
use crate::sunrpc::{
    tunables,
    AddressText, //
};

/// Receives that are not for Calls: one for each Reply to a Call of ours, one that is promised to
/// nobody, those for OPTIONAL messages, a batch that is not posted, and those that wait for the
/// places of others.
const OTHER_RECEIVES: u32 = callback::SLOTS + 1 + FOR_OPTIONAL + RECEIVE_BATCH - 1 + REPLACEMENTS;

/// The Receives for each credit where they are not shared. Clients of Linux forget the Calls of a
/// process that is killed, and send others in their place. Over iWARP a message without a Receive
/// ends its connection; elsewhere it waits at the client.
const fn per_credit(iwarp: bool) -> u32 {
    if iwarp {
        2
    } else {
        1
    }
}

/// Receives at most: beside those [`per_credit`] for each.
const fn receives(credits: u32, per_credit: u32) -> u32 {
    per_credit * credits + OTHER_RECEIVES
}

/// Send buffers: one for each Call that is taken in, as many again whose completion has not come,
/// and one for each Call of ours. With few credits there are as many as it takes for a Reply in
/// parts when all others are with Calls: with what is there for Replies to Calls of ours the peer
/// may send Calls too.
const fn sends(credits: u32) -> u32 {
    let usual = 2 * credits + callback::SLOTS;
    let least = credits + 2 * callback::SLOTS + MAX_PARTS as u32;
    if usual > least {
        usual
    } else {
        least
    }
}

/// Work requests of the Send Queue: a Write and a Send for each credit, or the Writes of some
/// Replies of a MiB. It is the largest part of what an idle connection takes, and there are devices
/// that round it up to the next power of two, or up to the next but one if it is one less than
/// that.
const fn send_queue(credits: u32) -> u32 {
    if credits > 32 {
        2 * credits - 2
    } else {
        62
    }
}

/// Work requests of the longest chain, a Reply's Send counted. More than a peer has reason to ask
/// for: a page of the largest payload, or a segment of the longest list, takes one, or three where
/// it has to be registered.
const CHAIN_MAX: u32 = 1024;

/// The length in octets of the longest segment that we read from or write to: more than a client
/// has to offer for the largest payload.
const SEGMENT_SIZE: u32 = 2 << 20;

/// The most Read chunks, and the most Write chunks, of a Call.
const CHUNKS: u32 = 16;

/// The number of the next connection.
static NEXT_NUMBER: Atomic<u32> = Atomic::new(1);

/// What the connections of a listener have in common.
pub(in crate::server) struct Common {
    /// The Receives that they share, and how many connections do not.
    pub(in crate::server) queues: Arc<SharedQueues<Endpoint<Connection>>>,
    /// The hosts whose clients were cut off.
    pub(in crate::server) offenders: Arc<Offenders>,
}

impl Connection {
    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// As for [`Self::try_accept`].
    pub(in crate::server) fn accept<L: ConnectionRequests>(
        server: Server<'_>,
        incoming: ConnectRequest<L>,
        common: &Common,
    ) -> Result<Arc<Self>> {
        // The number has 31 bits for trace events.
        let number = Number::Server(NEXT_NUMBER.fetch_add(1, Relaxed) & (u32::MAX >> 1));
        let addresses = (incoming.remote().text(), incoming.local().text());
        let accepted = Self::try_accept(server, incoming, common, number, addresses);
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
        incoming: ConnectRequest<L>,
        common: &Common,
        number: Number,
        addresses: (AddressText, AddressText),
    ) -> Result<Arc<Self>> {
        let plan = Plan::new(&incoming)?;
        let channel = plan.channel(number, addresses)?;
        let stats = Arc::new(Stats::new(number), GFP_KERNEL)?;
        let credits = plan.credits;
        let host = incoming.host();
        let this = Arc::pin_init(
            try_pin_init!(Self {
                xprt <- SvcXprt::new(server),
                inbox <- Inbox::new(receives(credits, MESSAGES_PER_CREDIT))?,
                owner <- new_mutex!(None, "rpcrdma::Connection::owner"),
                established: Atomic::new(false),
                replies_wait: Atomic::new(false),
                starved: Atomic::new(false),
                channel,
                link <- new_spinlock!(None, "rpcrdma::Connection::link"),
                number,
                read_depth: plan.read_depth,
                addresses,
                stats,
                latencies: Latencies::new(),
                least_granted: Atomic::new(u32::MAX),
                directory <- new_mutex!(None, "rpcrdma::Connection::directory"),
                has_callback: Atomic::new(false),
                callback_taken: Atomic::new(false),
                callback <- new_mutex!(None, "rpcrdma::Connection::callback"),
                watched: Atomic::new(false),
                checked: Atomic::new(0),
                stall <- new_mutex!(StallDetector::default(), "rpcrdma::Connection::stall"),
                host,
                offenders: common.offenders.clone(),
                check <- new_delayed_work_ext!("rpcrdma_check"),
                device_gone: Atomic::new(false),
                leave <- new_delayed_work_ext!("rpcrdma_leave"),
            }? Error),
            GFP_KERNEL,
        )?;
        this.xprt.set_local(incoming.local())?;
        this.xprt.set_remote(incoming.remote())?;
        let cm = CmId::adopt(incoming, this.clone())?;
        let owner = match this.bring_up(cm, plan, &common.queues) {
            Ok(owner) => owner,
            Err(error) => {
                // The CM id is gone, so no handler runs any more. `free` will not be called, which
                // would see to what they have left.
                DelayedWork::<Self>::disable_sync(&this);
                DelayedWork::<Self, LEAVE_WORK>::disable_sync(&this);
                this.inbox.empty();
                return Err(error);
            }
        };
        *this.owner.lock() = Some(owner);
        // The handler for that may have been called before there was an owner to be found.
        Self::leave_device(&this);
        if this.channel.awaits_proof() {
            // Perhaps no message will ever come.
            Self::watch(&this);
        }
        Ok(this)
    }

    /// Makes the endpoint, and accepts the peer. If that fails nothing refers to the connection any
    /// more but work items and messages that have arrived.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, or what the device or the CM reports.
    fn bring_up(
        &self,
        cm: CmId<Self>,
        plan: Plan,
        queues: &Arc<SharedQueues<Endpoint<Self>>>,
    ) -> Result<EndpointOwner<Self>> {
        let owner = EndpointOwner::new(cm, plan.sizes, Some((queues, plan.sharing)))?;
        let told = plan.in_one.own.encode();
        self.prepare(&owner)
            .and_then(|()| owner.accept(&told, plan.read_depth, plan.answer_depth))
            // It has a reference to the endpoint, which has one to the connection.
            .inspect_err(|_| self.set_link(None))?;
        Ok(owner)
    }

    /// Makes ready for what the peer may send as soon as it was accepted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn prepare(&self, owner: &EndpointOwner<Self>) -> Result {
        let endpoint = owner.endpoint();
        // They are posted, or some more of them. No more of a peer that shares are tolerated.
        let more = RECEIVE_BATCH - 1 + REPLACEMENTS;
        self.inbox
            .add_room(endpoint.sizes().first_receives + more)?;
        let link = Link::new(endpoint.clone(), self.channel.clone())?;
        self.set_link(Some(link));
        Ok(())
    }
}

/// The sizes of a connection, and the private data for the client.
struct Plan {
    /// The highest version that may be spoken.
    highest: Version,
    /// The wishes of an administrator for host authentication.
    auth: AuthWanted,
    /// The private data of both ends.
    in_one: InOne,
    /// The credits that there may be at most.
    credits: u32,
    /// RDMA Reads that may be under way at once.
    read_depth: u8,
    /// RDMA Reads of the peer's that may.
    answer_depth: u8,
    /// The sizes of the endpoint.
    sizes: Sizes,
    /// When and how connections share Receives.
    sharing: Sharing,
}

impl Plan {
    /// Plans for a connection that asks.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the peer answers no RDMA Reads, `ENODEV` if the device is gone.
    fn new<L: ConnectionRequests>(incoming: &ConnectRequest<L>) -> Result<Self> {
        let inline = tunables::max_request_size();
        let read_depth = incoming.read_depth();
        if read_depth == 0 {
            // It would never answer our Reads.
            return Err(EINVAL);
        }
        let limits = incoming.device_limits().ok_or(ENODEV)?;
        let auth = AuthWanted {
            mode: tunables::server_host_auth(),
            padding: tunables::host_auth_padding(),
        };
        // In Version One no peer can authenticate itself.
        let accepts_two = tunables::server_version() >= Version::Two.number();
        let highest = if accepts_two || auth.is_required() {
            Version::Two
        } else {
            Version::One
        };
        let rules = highest.rules();
        let ours = u8::try_from(tunables::max_outbound_reads()).unwrap_or(u8::MAX);
        let read_depth = read_depth.min(limits.outbound_reads).min(ours);
        // The Receive Queue has one more work request, the marker of a drain.
        let room = limits.queue_depth.saturating_sub(OTHER_RECEIVES + 1);
        let credits = tunables::max_requests().min(room / 2).max(1);
        let transfers = transfer_regions(credits, &limits);
        let may_register = rules.has_reverse_chunks
            && limits.memory_management
            && limits.fast_reg_pages >= callback::REGION_DEPTH;
        let (region_depth, regions) = if may_register {
            (callback::REGION_DEPTH, callback::REGIONS)
        } else {
            (1, 0)
        };
        // Only Calls of ours may have Read chunks that it reads.
        let most_answers = if rules.has_reverse_chunks {
            REVERSE_READS
        } else {
            0
        };
        // What a peer may send before it was told anything, whatever Version One may be limited to.
        let size = largest_message(highest, inline);
        let has_optional = rules.has_properties && tunables::server_2016() != 0;
        // For the session's own messages. Each Call takes a buffer when it is taken in, for a Reply
        // which perhaps may not be sent before one of those: our properties, if a client begins
        // with Calls, or errors, which come first.
        let kept_sends = u32::from(rules.has_properties);
        let per_credit = per_credit(limits.iwarp);
        let optional = if has_optional { FOR_OPTIONAL } else { 0 };
        let first_receives = per_credit * FIRST_CREDITS.min(credits) + 1 + optional;
        Ok(Self {
            highest,
            auth,
            in_one: InOne {
                own: CmPrivate {
                    send_size: inline,
                    receive_size: inline,
                    // There are devices that can't send such.
                    remote_invalidation: limits.memory_management,
                },
                peer: CmPrivate::decode(incoming.private_data()),
                calls: callback::SLOTS,
            },
            credits,
            read_depth,
            answer_depth: incoming
                .answer_depth()
                .min(limits.inbound_reads)
                .min(most_answers),
            sizes: Sizes {
                receives: receives(credits, per_credit),
                first_receives,
                counts_receives: true,
                receives_per_credit: per_credit,
                receive_size: size as usize,
                may_enlarge: has_optional,
                sends: sends(credits) + kept_sends,
                first_sends: SEND_STEP + kept_sends,
                kept_sends,
                send_size: size as usize,
                send_queue: QueueSizes {
                    depth: send_queue(credits).min(limits.queue_depth / 2),
                    // One for each Send buffer that is kept, and for each Call of ours.
                    kept: kept_sends + callback::SLOTS,
                    reads: reads_posted(read_depth, &limits),
                },
                region_depth,
                regions,
                transfer_sges: limits.send_sges.min(16),
                chain: CHAIN_MAX,
                transfers,
                segments: most_segments(transfers, &limits),
            },
            sharing: Sharing {
                own: tunables::own_receive_queues(),
                depth: defaults::shared_depth(size),
            },
        })
    }

    /// Returns what the new connection knows and decides. The addresses are the client's and ours.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn channel(
        &self,
        number: Number,
        (remote, local): (AddressText, AddressText),
    ) -> Result<Arc<Channel>> {
        let size = largest_message(Version::Two, self.in_one.own.send_size);
        let has_optional = self.sizes.may_enlarge;
        let receives = Receives::new(FIRST_CREDITS, self.credits);
        let receives = if has_optional {
            // A client may send such before anybody knows that it does.
            receives.with_optional()
        } else {
            receives
        };
        Channel::new(&ChannelParameters {
            number,
            role: Role::Server,
            own: Properties {
                send_size: size,
                receive_size: size,
                segment_size: SEGMENT_SIZE,
                segment_count: self.sizes.segments,
                // Means nothing on this side (5.2.5).
                reverse: ReverseLevel::NONE,
            },
            highest: self.highest,
            earlier: has_optional.then(|| {
                let level = if self.sizes.regions > 0 {
                    ReverseLevel::General
                } else {
                    ReverseLevel::Simple
                };
                // Of Calls of ours.
                let wishes = Wishes {
                    invalidation: true,
                    takes_calls: true,
                };
                wishes.values(size, level)
            }),
            in_one: self.in_one,
            receives,
            credits_in_one: receives.allowance().granted(),
            read_chunks: CHUNKS,
            write_chunks: CHUNKS,
            auth: AuthParameters {
                wanted: self.auth,
                client: remote,
                server: local,
            },
        })
    }
}
