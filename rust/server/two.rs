// SPDX-License-Identifier: GPL-2.0

//! Version Two on a connection that a client has made: what the session of the connection wants, done by the server.
//!
//! A message is shown to the session as soon as it arrives, in the handler of its Receive: there credits are counted,
//! properties are taken in and errors are answered. Calls go to a thread afterwards, as in Version One, and are
//! decoded again there. What a Requester of ours waits for goes to the [`Callback`].
//!
//! What the peer may send follows from the Receives that were asked for. They are counted by the same
//! [`Allowance`](crate::proto::credits::Allowance) as in Version One and grow in the same way: when the peer has used
//! all of them, and when a Reply is about to be sent.

use crate::kext::delayed_work::{DelayedWork, DelayedWorkItem};
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::link::assembly::Whole;
use crate::link::auth;
use crate::link::channel::{self, Channel, Collected, MESSAGE_SIZE, PATIENCE};
use crate::observe::trace::Number;
use crate::proto::message::Version;
use crate::proto::props::{Properties, Reverse};
use crate::proto::session::{Event, Extent, Role};
use crate::proto::v2::Purpose;
use crate::requester::reply::Source;
use crate::server::callback::Callback;
use crate::server::connection::Connection;
use crate::sunrpc::{tunables, AddressText};
use crate::verbs::endpoint::{Endpoint, Received};
use kernel::prelude::*;
use kernel::sync::Arc;

/// The length in octets of the longest segment that we read from or write to: more than a client has to offer for the
/// largest payload.
const SEGMENT_SIZE: u32 = 2 << 20;

/// The most segments that the header of a Call may have: more than fit a message.
const SEGMENT_COUNT: u32 = 256;

/// How many Read chunks, and how many Write chunks, a Call may have.
const CHUNKS: u32 = 16;

/// The largest message of a connection that may speak Version Two, either way, if it is `inline` octets in Version One.
pub(super) fn message_size(inline: u32) -> u32 {
    inline.max(MESSAGE_SIZE)
}

/// The channel of a new connection; [`None`] if only Version One is accepted. `inline` is the largest message in Version
/// One, in which errors grant `credits`; so many `receives` are posted at first. The addresses are the client's and
/// ours.
///
/// # Errors
///
/// `ENOMEM`.
pub(super) fn channel(
    number: Number,
    inline: u32,
    credits: u32,
    receives: u32,
    (remote, local): (AddressText, AddressText),
) -> Result<Option<Arc<Channel>>> {
    let auth = auth::Wanted {
        mode: tunables::server_host_auth(),
        padding: tunables::host_auth_padding(),
    };
    // In Version One nobody can authenticate himself.
    if tunables::server_version() < Version::Two.number() && !auth.is_required() {
        return Ok(None);
    }
    let channel = Channel::new(&channel::Parameters {
        number,
        role: Role::Server,
        own: Properties {
            send_size: message_size(inline),
            receive_size: message_size(inline),
            segment_size: SEGMENT_SIZE,
            segment_count: SEGMENT_COUNT,
            // Means nothing on this side (5.2.5).
            reverse: Reverse::NONE,
        },
        capacity: receives,
        credits_in_one: credits,
        read_chunks: CHUNKS,
        write_chunks: CHUNKS,
        auth: auth::Parameters {
            wanted: auth,
            client: remote,
            server: local,
        },
    })?;
    Ok(Some(channel))
}

/// What is to be done with a message.
enum Destination {
    /// It is one of Version One.
    One,
    /// It is a Call, which may have come in parts.
    Thread(Option<Whole>),
    /// It is a Reply, which may have come in parts, or an error instead of one.
    Callback(Source<'static>),
    /// Nothing.
    Done,
}

/// A message has arrived on a connection that may speak Version Two.
pub(super) fn received(
    this: &Arc<Connection>,
    channel: &Channel,
    mut message: Received<Connection>,
) {
    let endpoint = message.endpoint().clone();
    // A Reply of Version One takes no credit, and is not counted.
    let unanswered = match channel.version() {
        Some(Version::One) => 0,
        Some(Version::Two) | None => message.count(),
    };
    let destination = match channel.receive(message.bytes()) {
        Event::Foreign(_) => Destination::One,
        Event::Failed { error, .. } => Destination::Callback(Source::Failed(error)),
        Event::Message { .. } if !channel.is_settled() => Destination::Done,
        Event::Message { header, extent } => {
            if let Extent::First(placed) = extent {
                // Its parts need Receives, all at once.
                let parts = placed.total / channel.receive_size().max(1);
                this.used(unanswered.saturating_add(parts));
            }
            match (header.purpose(), channel.collect(&header, extent)) {
                (Purpose::Call, Collected::All(whole)) => Destination::Thread(whole),
                (Purpose::Reply, Collected::All(whole)) => {
                    Destination::Callback(Source::Seen(whole))
                }
                _ => Destination::Done,
            }
        }
        Event::Abandoned { .. } | Event::Spoilt { .. } => {
            channel.abandon();
            Destination::Done
        }
        Event::Properties { host_auth, last } => {
            channel.told(host_auth, last);
            Destination::Done
        }
        Event::Nothing | Event::Fallback { .. } => Destination::Done,
    };
    match destination {
        Destination::One => Connection::received_one(this, message),
        // Only Replies may take a memory region away (6.5). Which one that was does not matter.
        Destination::Thread(_) | Destination::Done if message.invalidated().is_some() => {
            this.close();
        }
        Destination::Thread(whole) => this.take_call(unanswered, message, whole),
        Destination::Callback(source) => this.with_callback(|callback| {
            Callback::received(callback, message, source);
        }),
        Destination::Done => drop(message),
    }
    act(this, channel, &endpoint);
    if channel.is_in_sequence() || channel.is_narrow() {
        Connection::watch(this);
    }
}

impl Connection {
    /// Has [`Channel::look`] called after a while. Only for handlers of the endpoint, which the end of the connection waits
    /// for before it cancels this, for threads of the service, which keep the transport from being freed or have not given
    /// it to SUNRPC yet, and for the work itself.
    pub(super) fn watch(this: &Arc<Self>) {
        DelayedWork::<Self>::schedule(this, PATIENCE);
    }

    /// A thread of the service was to send something. If that waits, the client may be one that lets nothing out: it is
    /// looked at until it does, or the connection ends.
    pub(super) fn watch_what_waits(this: &Arc<Self>) {
        if this.waits() || this.is_narrow() {
            Self::watch(this);
        }
    }

    /// Whether the client may send little, for want of memory.
    fn is_narrow(&self) -> bool {
        self.channel().is_some_and(Channel::is_narrow)
    }
}

impl DelayedWorkItem for Connection {
    /// Looks whether the client goes on with what it has begun, and whether it lets out what waits.
    fn run(this: Arc<Self>) {
        let waits = this.waits();
        let again = this.channel().is_some_and(|channel| channel.look(waits));
        this.act();
        if waits {
            // For want of Send buffers, which could not be made then?
            this.insist();
        }
        if again || this.waits() || this.is_narrow() {
            Self::watch(&this);
        }
    }
}

/// Does what the session wants. Nothing before the connection is up: then nothing can be sent.
pub(super) fn act(this: &Connection, channel: &Channel, endpoint: &Arc<Endpoint<Connection>>) {
    if !this.is_established() {
        return;
    }
    // For what it wants there is a Send buffer that nobody else gets. If that is not free it comes back with a completion,
    // which has us called again.
    let outcome = channel.act(endpoint);
    if outcome.agreed {
        this.tell_agreement();
    }
    if outcome.wake {
        this.flush();
        this.with_callback(|callback| callback.send_room());
    }
    this.stats().refused_at_once(outcome.errors);
    if outcome.close.is_some() {
        if let Some(why) = channel.refusal() {
            let client = this.addresses().0;
            pr_warn_ratelimited!("client {client} is refused: {}\n", why.text());
        }
        this.close();
    }
}
