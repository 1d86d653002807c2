// SPDX-License-Identifier: GPL-2.0

//! One RPC-over-RDMA connection, whichever side of it we are and whichever way the Calls go.
//!
//! # Who owns what, and what ends it
//!
//! A [`Link`] is made by the connecting worker and published by the transport; it is ended by the transport's
//! disconnect, which alone holds the [`EndpointOwner`]. Others hold references to the [`Link`] or to its
//! endpoint for the time of one operation; they then find its gates closed.
//! The credit limit is written by the Receive handler only, one message at a time.
//! Where Version Two may be spoken there is a [`Channel`] too, which says for itself what protects it.

pub(crate) mod agreement;
pub(crate) mod assembly;
pub(crate) mod auth;
pub(crate) mod channel;
pub(crate) mod middles;
pub(crate) mod sizing;

use crate::kext::errno::EOPNOTSUPP;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::proto::cm_private::{Agreed, CmPrivate};
use crate::proto::credits::Grant;
use crate::proto::format::{Asked, Continuation, Cut, Usable};
use crate::proto::message::{self, Version};
use crate::proto::props::{Properties, Reverse as ReverseLevel};
use crate::proto::session::{Refusal, Role};
use crate::proto::v2::{Direction, RdmaError};
use crate::sunrpc::{Net, SockAddr};
use crate::verbs::cm::{AbortHandle, CmId};
use crate::verbs::endpoint::{
    Endpoint, EndpointEvents, EndpointOwner, PostError, RegionHandle, SendBuffer, RECEIVE_BATCH,
};
use agreement::Agreement;
use channel::{Channel, MESSAGE_SIZE};
use core::ffi::CStr;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};
use kernel::time::delay::fsleep;
use kernel::time::{Delta, Msecs};
use middles::{most_parts, Middles, DATA_PARTS};
use sizing::{
    Wanted, MAX_PAYLOAD, MAX_SEGMENTS, MAX_SEGMENT_SIZE, REVERSE_CHUNKS, REVERSE_CREDITS,
    REVERSE_READS, REVERSE_RECEIVES,
};

/// How long to wait for the resolution of an address, or of a route.
const RESOLVE_TIMEOUT: Msecs = 5_000;

/// How long to wait for the peer's answer. The CM gives up by itself, later than an administrator would.
const CONNECT_TIMEOUT: Msecs = 30_000;

/// How long to leave a new iWARP connection alone.
///
/// The active side must speak first (RFC 5044 section 7.1.2). But the passive side of the software iWARP device
/// does not listen yet when it has sent its answer: what arrives in the next microseconds stays unread until
/// something else arrives, which for the one Call that is allowed at first means until its timeout.
const IWARP_PAUSE: Delta = Delta::from_millis(50);

/// What a link needs to be made.
pub(crate) struct Parameters<'a> {
    /// The network namespace.
    pub(crate) net: Net<'a>,
    /// The peer.
    pub(crate) address: SockAddr<'a>,
    /// The sizes to aim at.
    pub(crate) wanted: Wanted,
    /// The highest version to offer.
    pub(crate) version: Version,
    /// Whether the peer is to authenticate itself.
    pub(crate) auth: auth::Wanted,
}

/// A message was not posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unposted {
    /// For want of credits; see [`Link::admits`]. If it was in parts, it may be possible with chunks at once.
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

/// What a link against the direction of the connection needs to be made.
pub(crate) struct Reverse {
    /// What was agreed on when the connection was made.
    pub(crate) agreed: Agreed,
    /// What the peer's private data said.
    pub(crate) peer: CmPrivate,
    /// What to ask for in every Call.
    pub(crate) credits: u32,
    /// The connection's channel, if it speaks Version Two.
    pub(crate) channel: Option<Arc<Channel>>,
}

/// A connection that is up, or was.
#[pin_data]
pub(crate) struct Link<H: EndpointEvents> {
    endpoint: Arc<Endpoint<H>>,
    /// Inline thresholds in force, RFC 8797.
    agreed: Agreed,
    /// What the peer's private data said.
    peer: CmPrivate,
    /// What we ask for in every Call.
    credits_wanted: u32,
    /// Whether Calls may use chunks.
    chunks: bool,
    /// Whether Calls may go in parts, in Version Two.
    parts: bool,
    /// Where Version Two may be spoken.
    channel: Option<Arc<Channel>>,
    #[pin]
    grant: SpinLock<Grant>,
    /// What the peer is not known to refuse.
    #[pin]
    usable: SpinLock<Usable>,
}

impl<H: EndpointEvents> Link<H> {
    /// Connects to a peer. Sleeps until it has answered. `begun` is given the means to end the wait.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device can't register memory as this transport needs it; trying again is no use.
    /// - Anything else: this attempt failed.
    pub(crate) fn connect(
        parameters: Parameters<'_>,
        handler: &Arc<H>,
        begun: impl FnOnce(AbortHandle<H>),
    ) -> Result<(EndpointOwner<H>, Arc<Self>)> {
        let mut cm = CmId::new(parameters.net, handler.clone())?;
        begun(cm.abort_handle());
        let remote = parameters.address.text();
        cm.resolve_address(parameters.address, RESOLVE_TIMEOUT)?;
        cm.resolve_route(RESOLVE_TIMEOUT)?;

        let limits = cm.device_limits().ok_or(ENODEV)?;
        let (wanted, sizes) = sizing::choose(&parameters.wanted, &limits).map_err(|unfit| {
            pr_warn_ratelimited!(
                "NFS/RDMA can't use device {}: {}\n",
                cm.device_name(),
                unfit.text()
            );
            EOPNOTSUPP
        })?;

        let own = CmPrivate {
            send_size: wanted.inline_send,
            receive_size: wanted.inline_receive,
            remote_invalidation: true,
        };
        let mut sizes = sizes;
        let channel = match parameters.version {
            Version::One => None,
            Version::Two => {
                sizes.send_size = sizes.send_size.max(MESSAGE_SIZE as usize);
                sizes.receive_size = sizes.receive_size.max(MESSAGE_SIZE as usize);
                Some(Channel::new(&channel::Parameters {
                    number: handler.number(),
                    role: Role::Client,
                    own: Properties {
                        send_size: wanted.inline_send.max(MESSAGE_SIZE),
                        receive_size: wanted.inline_receive.max(MESSAGE_SIZE),
                        segment_size: MAX_SEGMENT_SIZE,
                        segment_count: 2 * MAX_SEGMENTS,
                        reverse: ReverseLevel::CONTINUED,
                    },
                    // Up to a batch may be idle.
                    capacity: sizes.receives.saturating_sub(RECEIVE_BATCH),
                    credits_in_one: REVERSE_CREDITS,
                    read_chunks: REVERSE_CHUNKS,
                    write_chunks: REVERSE_CHUNKS,
                    auth: auth::Parameters {
                        wanted: parameters.auth,
                        client: cm.local().text(),
                        server: remote,
                    },
                })?)
            }
        };
        let read_depth = match channel {
            // Nothing is read.
            None => 0,
            Some(_) => {
                sizes.pulls = REVERSE_RECEIVES;
                sizes.transfers = REVERSE_CREDITS;
                limits.outbound_reads.min(REVERSE_READS)
            }
        };
        let owner = EndpointOwner::new(cm, sizes)?;
        let accepted = owner.connect(&own.encode(), read_depth, CONNECT_TIMEOUT)?;
        // A server that answers no RDMA Reads may send us no Read chunks.
        if let Some(channel) = channel.as_ref().filter(|_| accepted.answers_reads()) {
            channel.set_reverse(ReverseLevel::GENERAL);
        }
        if limits.iwarp {
            fsleep(IWARP_PAUSE);
        }
        let peer = CmPrivate::decode(accepted.private_data());
        let agreed = Agreed::new(&own, &peer);

        let endpoint = owner.endpoint().clone();
        let link = Arc::pin_init(
            try_pin_init!(Self {
                endpoint,
                agreed,
                peer,
                credits_wanted: wanted.credits,
                chunks: true,
                parts: true,
                channel,
                grant <- new_spinlock!(Grant::new(wanted.credits), "rpcrdma::Link::grant"),
                usable <- new_spinlock!(Usable::ALL, "rpcrdma::Link::usable"),
            }),
            GFP_KERNEL,
        )?;
        Ok((owner, link))
    }

    /// The link for Calls to the peer that made the connection. In Version One credits are counted apart in this
    /// direction, RFC 8167 section 4.1, and there are no chunks, section 5.3. In Version Two the peer has said what it
    /// can take (5.2.5 of the draft).
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn reverse(endpoint: Arc<Endpoint<H>>, reverse: Reverse) -> Result<Arc<Self>> {
        let two = reverse.channel.as_ref().filter(|channel| channel.is_two());
        let regions = endpoint.sizes().regions > 0;
        let level = two.map_or(ReverseLevel::None, |channel| channel.reverse());
        Arc::pin_init(
            try_pin_init!(Self {
                endpoint,
                agreed: reverse.agreed,
                peer: reverse.peer,
                credits_wanted: reverse.credits,
                chunks: level >= ReverseLevel::General && regions,
                parts: level >= ReverseLevel::Continued,
                channel: reverse.channel,
                grant <- new_spinlock!(Grant::new(reverse.credits), "rpcrdma::Link::grant"),
                usable <- new_spinlock!(Usable::ALL, "rpcrdma::Link::usable"),
            }),
            GFP_KERNEL,
        )
    }

    /// Whether Calls may use chunks.
    pub(crate) fn chunks_allowed(&self) -> bool {
        self.chunks
    }

    /// The verbs side.
    pub(crate) fn endpoint(&self) -> &Arc<Endpoint<H>> {
        &self.endpoint
    }

    /// Where Version Two may be spoken: the session of the connection.
    pub(crate) fn channel(&self) -> Option<&Channel> {
        self.channel.as_deref()
    }

    /// The session of the connection, if it speaks Version Two.
    fn two(&self) -> Option<&Channel> {
        self.channel().filter(|channel| channel.is_two())
    }

    /// What is spoken. Until it is known, nobody sends anything.
    pub(crate) fn version(&self) -> Version {
        match self.two() {
            Some(_) => Version::Two,
            None => Version::One,
        }
    }

    /// The largest message we may send inline, header included.
    pub(crate) fn inline_send(&self) -> u32 {
        self.two()
            .map_or(self.agreed.send_inline, Channel::send_size)
    }

    /// The largest message that the peer may send inline, header included.
    pub(crate) fn inline_receive(&self) -> u32 {
        self.two()
            .map_or(self.agreed.receive_inline, Channel::receive_size)
    }

    /// The inline thresholds of Version One, for sending and receiving, RFC 8797.
    pub(crate) fn inline_in_one(&self) -> (u32, u32) {
        (self.agreed.send_inline, self.agreed.receive_inline)
    }

    /// What was agreed on. Of Version One this end, a client, may send one Call until it gets its first grant (RFC 8166,
    /// section 3.3.3).
    pub(crate) fn agreement(&self) -> Agreement {
        self.channel()
            .and_then(Channel::agreement)
            .unwrap_or_else(|| Agreement::one(self.inline_in_one(), (1, 0)))
    }

    /// How the memory of a Call may be cut into segments, and how many of them it may have: what the device can do, and
    /// what the peer has told (5.2.3 and 5.2.4 of the draft). Where there are no chunks, there are none.
    pub(crate) fn cut(&self) -> Cut {
        let size = |octets: u32| usize::try_from(octets).unwrap_or(usize::MAX);
        let unlimited = (usize::MAX, usize::MAX);
        let (longest, most) = self.two().map_or(unlimited, |channel| {
            (size(channel.segment_size()), size(channel.segment_count()))
        });
        Cut {
            page: PAGE_SIZE,
            depth: size(self.endpoint.sizes().region_depth),
            longest,
            most: if self.chunks { most } else { 0 },
        }
    }

    /// Whether the largest payload may go in one Call, as far as the peer is concerned, in a chunk with the head and the tail
    /// of its message. SUNRPC asks for what can be sent only once, and not for each connection.
    pub(crate) fn fits_payload(&self) -> bool {
        let cut = self.cut();
        let needed = cut.segments(PAGE_SIZE - 1, MAX_PAYLOAD).saturating_add(2);
        needed <= cut.header_segments()
    }

    /// Whether there are credits for a message in so many parts. In Version One others count them.
    pub(crate) fn admits(&self, direction: Direction, parts: u32, chunks: bool) -> bool {
        self.two()
            .is_none_or(|channel| channel.admits(direction, parts, chunks))
    }

    /// In how many parts a Call of ours may be sent, and in how many its Reply may come.
    ///
    /// What has data that a chunk would place without a copy travels in fewer. A Call is sent in parts only while there
    /// are credits for all of them, since a chunk does not have to wait; unless there may be no chunks.
    pub(crate) fn continuation(&self) -> (Continuation, Continuation) {
        let Some(channel) = self.two().filter(|_| self.parts) else {
            return (Continuation::NONE, Continuation::NONE);
        };
        let most = most_parts(self.inline_send());
        if !self.chunks {
            let parts = channel.max_parts().min(most);
            let call = Continuation {
                data: parts,
                rest: parts,
            };
            // Nothing can be offered for a Reply, so nothing depends on this.
            return (call, Continuation::NONE);
        }
        let now = channel.parts().min(most);
        let call = Continuation {
            data: now.min(DATA_PARTS),
            rest: now,
        };
        let most = most_parts(self.inline_receive());
        let reply = Continuation {
            data: most.min(DATA_PARTS),
            rest: most,
        };
        (call, reply)
    }

    /// In how many parts a Reply of ours may be sent.
    pub(crate) fn reply_parts(&self) -> u32 {
        let most = most_parts(self.inline_send());
        self.two()
            .map_or(1, |channel| channel.max_parts().min(most))
    }

    /// What the peer is not known to refuse.
    pub(crate) fn usable(&self) -> Usable {
        match self.two() {
            Some(_) => *self.usable.lock(),
            None => Usable::ALL,
        }
    }

    /// Takes in an error about a Call, see [`Usable::learn`].
    pub(crate) fn learn(&self, error: &RdmaError, asked: &Asked) -> bool {
        self.usable.lock().learn(error, asked)
    }

    /// Forgets what the peer has refused.
    pub(crate) fn forget_refusals(&self) {
        *self.usable.lock() = Usable::ALL;
    }

    /// Posts a message, see [`Endpoint::post_message`], and its parts before. Returns whether the Send is signaled.
    ///
    /// # Errors
    ///
    /// See [`Unposted`]. Unless it is `Post(Refused)`, nothing was posted.
    pub(crate) fn post(
        &self,
        direction: Direction,
        middles: &mut Middles<H>,
        mut message: SendBuffer<H>,
        len: usize,
        regions: &mut [RegionHandle<H>],
    ) -> Result<bool, Unposted> {
        let Some(channel) = self.two() else {
            return self
                .endpoint
                .post_message(message, len, regions)
                .map_err(Unposted::Post);
        };
        let parts = middles.len().saturating_add(1);
        let sending = channel.begin(&self.endpoint, direction, parts, !regions.is_empty())?;
        message::set_credits(&mut message, sending.credits());
        let posted = match parts {
            1 => self.endpoint.post_message(message, len, regions),
            _ => {
                middles.set_credits(sending.credits());
                self.endpoint
                    .post_in_parts(middles.as_mut_slice(), message, len, regions)
            }
        };
        posted.map_err(|error| {
            sending.undo();
            Unposted::Post(error)
        })
    }

    /// What the peer told of itself when it accepted, RFC 8797.
    pub(crate) fn peer(&self) -> &CmPrivate {
        &self.peer
    }

    /// The credits to ask for, RFC 8166 section 3.3.1.
    pub(crate) fn credits_wanted(&self) -> u32 {
        self.credits_wanted
    }

    /// The credits granted by the peer last.
    pub(crate) fn credits_granted(&self) -> u32 {
        self.grant.lock().limit()
    }

    /// Notes what the peer granted. Returns the new limit if it has changed.
    pub(crate) fn update_credits(&self, granted: u32) -> Option<u32> {
        let mut grant = self.grant.lock();
        let before = grant.limit();
        let now = grant.update(granted);
        (now != before).then_some(now)
    }

    /// The device's name.
    pub(crate) fn device(&self) -> &CStr {
        self.endpoint.device_name()
    }
}
