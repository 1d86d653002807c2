// SPDX-License-Identifier: GPL-2.0

//! One RPC-over-RDMA connection, whichever side of it we are and whichever way the Calls go.
//!
//! # Who owns what, and what ends it
//!
//! There is one [`Link`] for each connection. A client's is made by the connecting worker and
//! published by the transport; a server's is made when the connection is accepted, and serves the
//! Calls to the client as well. It ends with the connection, of which the transport alone holds the
//! [`EndpointOwner`]. Others hold references to the [`Link`] or to its endpoint for the time of one
//! operation; they then find its gates closed. What it knows and decides is in its [`Channel`],
//! under the lock of that.

pub(crate) mod agreement;
pub(crate) mod assembly;
pub(crate) mod auth;
pub(crate) mod channel;
pub(crate) mod parts;
pub(crate) mod sizing;

use crate::endpoint::{
    Endpoint,
    EndpointEvents,
    EndpointOwner,
    FirstParts,
    PostError,
    RegionHandle,
    SendBuffer,
    REPLACEMENTS, //
};
use crate::kext::net::{
    Net,
    SockAddr, //
};
use crate::kext::prelude::*;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::kext::time::{
    milliseconds,
    HZ, //
};
use crate::proto::cm_private::CmPrivate;
use crate::proto::connection::receives::Receives;
use crate::proto::connection::{
    InOne,
    Terms, //
};
use crate::proto::format::{
    Continuation,
    SegmentLimits, //
};
use crate::proto::message::{
    self,
    Version, //
};
use crate::proto::props::{
    Properties,
    ReverseLevel, //
};
use crate::proto::session::{
    Outbound,
    Refusal,
    Role, //
};
use crate::proto::v2::Direction;
use crate::proto::v2_2016::props::Wishes;
use crate::rdma::cm::{
    AbortHandle,
    CmId, //
};
use auth::{
    AuthParameters,
    AuthWanted, //
};
use channel::{
    Channel,
    ChannelParameters,
    MESSAGE_SIZE, //
};
use core::ffi::CStr;
use kernel::time::delay::fsleep;
use kernel::time::{
    Delta,
    Msecs, //
};
use parts::{
    most_parts,
    DATA_PARTS, //
};
use sizing::{
    most_segments,
    reads_posted,
    transfer_regions,
    Wanted,
    MAX_PAYLOAD,
    MAX_SEGMENTS,
    MAX_SEGMENT_SIZE,
    REVERSE_CHUNKS,
    REVERSE_CREDITS,
    REVERSE_READS, //
};

/// The time for the resolution of an address, or of a route.
const RESOLVE_TIMEOUT: Msecs = 5_000;

/// The time for an attempt to connect: for the two resolutions and the peer's answer.
///
/// The CM gives up by itself, but later than an administrator would: it sends a request 16 times,
/// every 4.3 s. There is no shorter time for the first attempt of a new mount. Threads of the
/// server accept, so one that is busy, or has just started and has many clients, answers late; and
/// nothing that reaches us tells such a server from a host that does not answer at all. A request
/// that is given up loses its place among those that wait to be accepted.
const CONNECT_TIMEOUT: Msecs = 30_000;

/// The time for which a new iWARP connection is left alone.
///
/// The active side must speak first (RFC 5044 section 7.1.2). But the passive side of the software
/// iWARP device does not listen yet when it has sent its answer: what arrives in the next
/// microseconds stays unread until something else arrives, which for the one Call that is allowed
/// at first means until its timeout.
const IWARP_PAUSE: Delta = Delta::from_millis(50);

/// The parameters of a new link.
pub(crate) struct LinkParameters<'a> {
    /// The network namespace.
    pub(crate) net: Net<'a>,
    /// The peer.
    pub(crate) address: SockAddr<'a>,
    /// The sizes to aim at.
    pub(crate) wanted: Wanted,
    /// The offer: nothing but Version One, or one of the protocols with number two.
    pub(crate) version: Version,
    /// The wishes that the peer can be told at any time.
    pub(crate) wishes: Wishes,
    /// The wishes of an administrator for host authentication.
    pub(crate) auth: AuthWanted,
}

/// A message was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unposted {
    /// For want of credits; see [`Link::admits`]. If it was in parts, it may be possible with
    /// chunks at once.
    Credits,
    /// The peer does not support such messages in this direction.
    Unsupported,
    /// By the endpoint.
    Post(PostError),
}

impl From<Refusal> for Unposted {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            // For one that is too long there are chunks.
            Refusal::Wait | Refusal::TooLong => Self::Credits,
            Refusal::Unsupported => Self::Unsupported,
            Refusal::NotConnected => Self::Post(PostError::Closed),
        }
    }
}

/// Jiffies between two looks whether all shorter Receives are used up.
pub(crate) const GROWTH_INTERVAL: usize = HZ / 10;

/// A connection that is up, or was.
///
/// Calls and Replies take references to it, wherever they are handled. So the count of those has a
/// line of a cache for itself: it is so small that two connections would have one together.
#[repr(align(64))]
pub(crate) struct Link<H: EndpointEvents> {
    /// The verbs side.
    endpoint: Arc<Endpoint<H>>,
    /// The channel: the connection's knowledge and decisions.
    channel: Arc<Channel>,
}

impl<H: EndpointEvents> Link<H> {
    /// Connects to a peer. Sleeps until it has answered. `begun` is given the means to end the
    /// wait.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device can't register memory as this transport needs it; trying again is
    ///   no use.
    /// - `ENETUNREACH`, `ENETDOWN`: this host has no route to the peer.
    /// - `ENODEV`: there is no RDMA device where the route leads, or it goes away.
    /// - Anything else: this attempt failed.
    pub(crate) fn connect(
        parameters: LinkParameters<'_>,
        handler: &Arc<H>,
        begun: impl FnOnce(AbortHandle<H>),
    ) -> Result<(EndpointOwner<H>, Arc<Self>)> {
        let until = milliseconds().saturating_add(CONNECT_TIMEOUT.into());
        let mut cm = CmId::new(parameters.net, handler.clone())?;
        begun(cm.abort_handle());
        cm.resolve_address(parameters.address, RESOLVE_TIMEOUT)?;
        Self::connect_resolved(cm, parameters, handler, until).map_err(|error| match error {
            // Only the routes of this host say that there is no network. What comes later, as with
            // the TCP connection of siw, may be over at the next attempt.
            ENETUNREACH | ENETDOWN => EHOSTUNREACH,
            error => error,
        })
    }

    /// Connects to a peer with an id to which its address is known, see [`Self::connect`]. The peer
    /// must have answered before the millisecond `until`.
    fn connect_resolved(
        mut cm: CmId<H>,
        parameters: LinkParameters<'_>,
        handler: &Arc<H>,
        until: u64,
    ) -> Result<(EndpointOwner<H>, Arc<Self>)> {
        cm.resolve_route(RESOLVE_TIMEOUT)?;
        let remote = parameters.address.text();
        // The CM has chosen it just now.
        let local = cm.local().text();

        let name = cm.device().ok_or(ENODEV)?.name();
        let limits = cm.device_limits().ok_or(ENODEV)?;
        let (wanted, sizes) = sizing::choose(&parameters.wanted, &limits).map_err(|unfit| {
            pr_warn_ratelimited!("device {name}: {}; not connecting over it\n", unfit.text());
            EOPNOTSUPP
        })?;

        let own = CmPrivate {
            send_size: wanted.inline_send,
            receive_size: wanted.inline_receive,
            remote_invalidation: true,
        };
        let mut sizes = sizes;
        let transfers = transfer_regions(2 * MAX_SEGMENTS, &limits);
        sizes.segments = most_segments(transfers, &limits).min(2 * MAX_SEGMENTS);
        let mut read_depth = 0;
        if parameters.version.rules().has_properties {
            sizes.send_size = sizes.send_size.max(MESSAGE_SIZE as usize);
            sizes.receive_size = sizes.receive_size.max(MESSAGE_SIZE as usize);
            sizes.transfers = transfers;
            sizes.may_enlarge = parameters.version == Version::Earlier;
            if sizes.may_enlarge {
                let most = limits.queue_depth.saturating_sub(1);
                sizes.receives = (sizes.receives + REPLACEMENTS).min(most);
            }
            read_depth = limits.outbound_reads.min(REVERSE_READS);
            sizes.send_queue.reads = reads_posted(read_depth, &limits);
        }
        let (segments, receives) = (sizes.segments, sizes.first_receives);
        let owner = EndpointOwner::new(cm, sizes, None)?;
        let left = Msecs::try_from(until.saturating_sub(milliseconds()))?;
        let accepted = owner.connect(&own.encode(), read_depth, left)?;
        // A server that answers no RDMA Reads may send us no Read chunks.
        let reverse = if accepted.answers_reads() {
            ReverseLevel::General
        } else {
            ReverseLevel::Continued
        };
        let channel = Channel::new(&ChannelParameters {
            number: handler.number(),
            role: Role::Client,
            own: Properties {
                send_size: wanted.inline_send.max(MESSAGE_SIZE),
                receive_size: wanted.inline_receive.max(MESSAGE_SIZE),
                segment_size: MAX_SEGMENT_SIZE,
                segment_count: segments,
                reverse: reverse.code(),
            },
            highest: parameters.version,
            earlier: (parameters.version == Version::Earlier).then(|| {
                let size = wanted.inline_receive.max(MESSAGE_SIZE);
                parameters.wishes.values(size, reverse)
            }),
            in_one: InOne {
                own,
                peer: CmPrivate::decode(accepted.private_data()),
                calls: wanted.credits,
            },
            receives: Receives::fixed(receives),
            credits_in_one: REVERSE_CREDITS,
            read_chunks: REVERSE_CHUNKS,
            write_chunks: REVERSE_CHUNKS,
            auth: AuthParameters {
                wanted: parameters.auth,
                client: local,
                server: remote,
            },
        })?;
        if limits.iwarp {
            fsleep(IWARP_PAUSE);
        }
        let link = Self::new(owner.endpoint().clone(), channel)?;
        Ok((owner, link))
    }

    /// Returns the link of a connection with this endpoint.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(endpoint: Arc<Endpoint<H>>, channel: Arc<Channel>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { endpoint, channel }, GFP_KERNEL)?)
    }

    /// The verbs side.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }

    /// Returns the channel: the connection's knowledge and decisions.
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Returns what holds for the messages that are sent next.
    pub(crate) fn terms(&self) -> Terms {
        let mut terms = self.channel.terms();
        terms.has_chunks &= self.endpoint.sizes().regions > 0;
        terms
    }

    /// The credits to ask for in Version One, RFC 8166 section 3.3.1.
    pub(crate) fn credits_wanted(&self) -> u32 {
        self.channel.in_one().calls
    }

    /// Returns how the memory of a Call may be cut into segments, and how many of them it may have:
    /// what the device can do, and what the peer has told (5.2.3 and 5.2.4 of the draft). Where
    /// there are no chunks, there are none.
    pub(crate) fn cut(&self, terms: &Terms) -> SegmentLimits {
        let size = |octets: u32| usize::try_from(octets).unwrap_or(usize::MAX);
        SegmentLimits {
            page: PAGE_SIZE,
            depth: size(self.endpoint.sizes().region_depth),
            longest: size(terms.segment_size),
            most: if terms.has_chunks {
                size(terms.segment_count)
            } else {
                0
            },
        }
    }

    /// Returns whether the largest payload may go in one Call, as far as the peer is concerned, in
    /// a chunk with the head and the tail of its message. SUNRPC asks for what can be sent only
    /// once, and not for each connection.
    pub(crate) fn fits_payload(&self) -> bool {
        let cut = self.cut(&self.terms());
        let needed = cut.segments(PAGE_SIZE - 1, MAX_PAYLOAD).saturating_add(2);
        needed <= cut.header_segments()
    }

    /// Returns whether there are credits for a message in so many parts. In Version One others
    /// count them.
    pub(crate) fn admits(&self, direction: Direction, parts: u32, chunks: bool) -> bool {
        self.channel.admits(&Outbound {
            direction,
            parts,
            chunks,
        })
    }

    /// Posts a message, see [`Endpoint::post_message`], and its parts before. Returns whether the
    /// Send is signaled.
    ///
    /// # Errors
    ///
    /// See [`Unposted`]. Unless it is `Post(Refused)`, nothing was posted.
    #[inline]
    pub(crate) fn post(
        &self,
        direction: Direction,
        parts: Option<&FirstParts>,
        mut message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, Unposted> {
        let before = parts.map_or(0, FirstParts::len);
        let sending = self.channel.begin(
            &self.endpoint,
            Outbound {
                direction,
                parts: before.saturating_add(1),
                chunks: !regions.is_empty(),
            },
        )?;
        let credits = sending.credits();
        if let Some(credits) = credits {
            message::set_credits(&mut message, credits);
        }
        let parts = parts.map(|parts| (parts, credits));
        let posted = self.endpoint.post_message(parts, message, len, regions);
        if posted.is_ok() {
            sending.commit();
        }
        posted.map_err(Unposted::Post)
    }

    /// Has larger Receives posted if those of `size` octets are wanted by now and the peer can be
    /// told of them, and has it told when there are no other ones. Sleeps. What can't be done is
    /// tried again the next time. Returns whether that should be soon.
    pub(crate) fn grow_receives(&self, size: u32) -> bool {
        let is_growing = self.channel.is_growing();
        if is_growing {
            if let Some(size) = self.endpoint.enlarged() {
                self.channel.end_growth(size);
                return false;
            }
            if self.channel.asks_for_growth() {
                return true;
            }
        } else if !self.channel.may_grow(size) || self.endpoint.enlarge_receives(size).is_err() {
            return false;
        }
        // Each answer takes one; and others of the same endpoint come in between.
        let requests = self.endpoint.shorter_receives().saturating_mul(2);
        self.channel.begin_growth(requests);
        !is_growing
    }

    /// Returns the device's name.
    pub(crate) fn device(&self) -> &CStr {
        self.endpoint.device_name()
    }
}

/// Returns in how many parts a Call of ours may be sent that has no other form: it waits until
/// there are credits for all of them.
pub(crate) fn patient_parts(terms: &Terms) -> u32 {
    if terms.has_parts {
        terms.max_parts.min(most_parts(terms.send_size))
    } else {
        1
    }
}

/// Returns in how many parts a Call of ours may be sent, and in how many its Reply may come.
///
/// What has data that a chunk would place without a copy travels in fewer. A Call is sent in parts
/// only while there are credits for all of them, since a chunk does not have to wait; unless there
/// may be no chunks. See [`patient_parts`] for a Call that fits no chunk.
pub(crate) fn continuation(terms: &Terms) -> (Continuation, Continuation) {
    if !terms.has_parts {
        return (Continuation::NONE, Continuation::NONE);
    }
    let most = most_parts(terms.send_size);
    if !terms.has_chunks {
        let parts = patient_parts(terms);
        let call = Continuation {
            data: parts,
            rest: parts,
        };
        // Nothing can be offered for a Reply, so nothing depends on this.
        return (call, Continuation::NONE);
    }
    let now = terms.parts.min(most);
    let call = Continuation {
        data: now.min(DATA_PARTS),
        rest: now,
    };
    let most = most_parts(terms.receive_size);
    let reply = Continuation {
        data: most.min(DATA_PARTS),
        rest: most,
    };
    (call, reply)
}
