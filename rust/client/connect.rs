// SPDX-License-Identifier: GPL-2.0

//! Connecting, again and again.

use crate::client::{Client, CONNECT_WORK, REGION_WORK};
use crate::kext::delayed_work::DelayedWork;
use crate::kext::errno::{
    EADDRINUSE, EADDRNOTAVAIL, ECONNABORTED, ECONNREFUSED, ECONNRESET, EHOSTUNREACH, ENETUNREACH,
    ENOKEY, ENOTCONN, EOPNOTSUPP, EPROTO,
};
use crate::kext::memalloc::{NoFs, NoReclaim};
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::kext::time::{seconds, HZ};
use crate::link::auth;
use crate::link::channel::Channel;
use crate::link::sizing::Wanted;
use crate::link::{Link, Parameters};
use crate::module_parameters;
use crate::observe::trace;
use crate::proto::auth::{Mode, Why};
use crate::proto::message::Version;
use crate::proto::session::memory::{Attempt, Outcome};
use crate::requester;
use crate::sunrpc::{tunables, RpcTask, Server};
use crate::verbs::cm::{AbortHandle, ConnectionEvents};
use crate::verbs::endpoint::Endpoint;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// How long to wait before the second attempt, in jiffies. SUNRPC doubles it with each further failure, up to
/// the transport's maximum.
const FIRST_DELAY: usize = HZ;

/// How long the region worker waits for memory, in jiffies.
const MEMORY_DELAY: usize = HZ / 8 + 1;

/// Regions of a new connection, and how many are added at a time later.
const REGION_STEP: u32 = 16;

/// How long to wait for the server's answer to the offer of Version Two, in jiffies. A server of Version One that
/// keeps silent, instead of answering with an error, costs this once, see [`Server`].
const ANSWER_TIMEOUT: usize = 5 * HZ;

/// How long to remember that a server does not speak Version Two, in seconds.
const REMEMBER: u64 = 600;

/// How many other local ports an attempt takes at once if one is in use. The CM chooses them without a look at those of TCP,
/// among which they are under iWARP.
const OTHER_PORTS: u32 = 3;

/// How connecting stands.
#[pin_data]
pub(super) struct Connecting {
    /// Shared by the worker and by who ends its attempt.
    #[pin]
    current: SpinLock<Current>,
}

/// The attempt under way.
struct Current {
    /// The transport goes away: no more attempts.
    aborted: bool,
    /// Ends the wait of the attempt.
    handle: Option<AbortHandle<Client>>,
    /// The connection on which the attempt waits for the server's first message.
    link: Option<Arc<Link<Client>>>,
}

impl Connecting {
    /// No attempt yet.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            current <- new_spinlock!(
                Current { aborted: false, handle: None, link: None },
                "rpcrdma::Connecting::current"
            ),
        })
    }

    /// The transport goes away: ends an attempt that is under way, and every later one.
    pub(super) fn abort(&self) {
        let mut current = self.current.lock();
        current.aborted = true;
        let handle = current.handle.take();
        drop(current);
        if let Some(handle) = handle {
            handle.abort();
        }
        self.interrupt();
    }

    /// Whether the transport goes away.
    fn is_aborted(&self) -> bool {
        self.current.lock().aborted
    }

    /// The connection is lost, or not wanted any more: nobody shall wait for the server's first message.
    pub(super) fn interrupt(&self) {
        let current = self.current.lock();
        if let Some(channel) = current.link.as_ref().and_then(|link| link.channel()) {
            channel.interrupt();
        }
    }

    /// The attempt waits for the server's first message on this connection, or on none any more.
    fn wait_on(&self, link: Option<Arc<Link<Client>>>) {
        let mut current = self.current.lock();
        let former = core::mem::replace(&mut current.link, link);
        let interrupt = current.aborted;
        drop(current);
        drop(former);
        if interrupt {
            self.interrupt();
        }
    }

    /// An attempt begins.
    fn begin(&self, handle: AbortHandle<Client>) {
        let mut current = self.current.lock();
        if current.aborted {
            drop(current);
            handle.abort();
        } else {
            current.handle = Some(handle);
        }
    }

    /// The attempt is over.
    fn end(&self) {
        let handle = self.current.lock().handle.take();
        // Outside the lock: it may be the last reference to the CM's context.
        drop(handle);
    }
}

/// The server as all transports know it.
fn server(this: &Client) -> Server {
    Server::new(this.xprt.net(), &this.xprt.address())
}

/// The version to offer now.
fn version(this: &Client) -> Version {
    if tunables::client_host_auth() == Mode::Require {
        // In Version One no server can authenticate itself.
        return Version::Two;
    }
    let wanted = tunables::client_version() >= Version::Two.number();
    match wanted && server(this).offers_two(seconds()) {
        true => Version::Two,
        false => Version::One,
    }
}

/// Notes what became of an offer of Version Two that `began` at this second.
fn remember(this: &Client, outcome: Outcome, began: u64) {
    let over = seconds();
    let attempt = Attempt {
        began,
        over,
        until: over.saturating_add(REMEMBER),
    };
    server(this).record(outcome, &attempt);
}

/// SUNRPC wants a connection. `task` holds the send lock, which is handed to the worker.
pub(super) fn schedule(this: &Arc<Client>, task: &RpcTask) {
    let xprt = &this.xprt;
    // SUNRPC calls this only where the lock is free to be handed over.
    if kernel::warn_on!(!xprt.lock_connect(task)) {
        xprt.clear_connecting();
        return;
    }
    // A Reply makes it zero. So not only an attempt that failed delays the next one, but also
    // a server that accepts and then says nothing, or nothing sensible.
    let delay = if xprt.reestablish_timeout() == 0 {
        xprt.set_reestablish_timeout(FIRST_DELAY);
        0
    } else {
        let delay = xprt.reconnect_delay();
        xprt.reconnect_backoff(FIRST_DELAY);
        delay
    };
    DelayedWork::<Client, CONNECT_WORK>::schedule(this, delay);
}

/// The worker. Runs with the send lock.
pub(super) fn work(this: &Arc<Client>) {
    let xprt = &this.xprt;
    // Writeback and swapping may wait for this very connection: then memory must not be reclaimed by them.
    let _nofs = NoFs::enter();
    let _noreclaim = NoReclaim::enter_if(xprt.swapping());
    // What is left of the former connection, if SUNRPC did not close it.
    this.disconnect_link(trace::End::Replaced);

    let result = attempt(this);
    trace_attempt(this, result);
    xprt.clear_connecting();
    let status = match result {
        Ok(()) => {
            xprt.bump_connect_cookie();
            xprt.count_connect();
            xprt.set_connected();
            // Everybody that waits shall try again.
            EAGAIN
        }
        Err(error) => {
            this.disconnect_link(trace::End::Failed);
            for_sunrpc(error)
        }
    };
    // Before anybody can send: who waits for a Reply on the new connection shall not be told to try again.
    xprt.wake_pending_tasks(status);
    xprt.unlock_connect();
}

/// Makes one attempt. On success the new connection is published, and it is known what it speaks; after a failure
/// there may be an owner left to be disconnected.
fn attempt(this: &Arc<Client>) -> Result {
    let version = version(this);
    let began = seconds();
    make(this, version)?;
    if version == Version::One || negotiate(this, began) {
        return Ok(());
    }
    let link = this.requester.link();
    // When this is done, everything that has arrived was dealt with.
    this.disconnect_link(trace::End::Failed);
    let channel = link.as_ref().and_then(|link| link.channel());
    let refusal = channel.and_then(Channel::refusal);
    drop(link);
    if let Some(why) = refusal {
        return Err(refused(this, why));
    }
    // Section 4.3.2 of the draft: perhaps the server does not speak Version Two, and says nothing about it. One that
    // has spoken it before is tried again, later.
    match self::version(this) {
        Version::Two => Err(ECONNRESET),
        // SUNRPC has been told that the connection is lost, and is about to end it: it would end the next one.
        Version::One if this.xprt.is_to_be_closed() => {
            this.xprt.set_reestablish_timeout(0);
            Err(ENOTCONN)
        }
        Version::One => make(this, Version::One),
    }
}

/// Finds out which version the server speaks. Returns whether that is known. The attempt `began` at this second.
fn negotiate(this: &Arc<Client>, began: u64) -> bool {
    let Some(link) = this.requester.link() else {
        return false;
    };
    let Some(channel) = link.channel() else {
        return true;
    };
    this.connecting.wait_on(Some(link.clone()));
    // Sends our properties, and nothing else before the answer: section 4.3 of the draft.
    requester::reply::act(&**this, channel, link.endpoint());
    let decided = channel.wait(ANSWER_TIMEOUT);
    this.connecting.wait_on(None);
    if channel.version().is_none() && this.connecting.is_aborted() {
        // We did not wait to the end, which says nothing about the server.
        return false;
    }
    let outcome = match channel.version() {
        Some(Version::Two) if channel.refusal().is_none() && !link.fits_payload() => {
            pr_warn_ratelimited!(
                "server {} takes too few segments in Version Two for the largest READ and WRITE\n",
                this.xprt.display()
            );
            remember(this, Outcome::Refused, began);
            return false;
        }
        Some(Version::Two) => {
            // From now on the session says what may be sent.
            this.xprt.set_credits(link.credits_wanted());
            Outcome::Spoken
        }
        Some(Version::One) => Outcome::Refused,
        None => Outcome::Lost,
    };
    remember(this, outcome, began);
    decided.is_some()
}

/// The server is refused, or refuses us. Says so, and returns the error of the attempt.
fn refused(this: &Arc<Client>, why: Why) -> Error {
    pr_warn_ratelimited!(
        "server {} is refused: {}\n",
        this.xprt.display(),
        why.text()
    );
    match (why, this.xprt.stats().connect_count) {
        // A mount fails at once, and says why.
        (Why::NoKey, 0) => ENOKEY,
        (_, 0) => EACCES,
        // This may be a mistake that somebody is about to put right: who has waited for the server before goes on to,
        // as long as it wants to.
        _ => EPROTO,
    }
}

/// Makes a connection on which `version` is offered, and publishes it.
fn make(this: &Arc<Client>, version: Version) -> Result {
    let xprt = &this.xprt;
    xprt.clear_connected();
    // One Call until the peer's first grant, RFC 8166 section 3.3.3.
    xprt.reset_congestion();

    let parameters = || Parameters {
        net: xprt.net(),
        address: xprt.address(),
        wanted: Wanted {
            credits: xprt.max_reqs(),
            inline_send: tunables::max_inline_write(),
            inline_receive: tunables::max_inline_read(),
            region_pages: max_region_pages(),
        },
        version,
        auth: auth::Wanted {
            mode: tunables::client_host_auth(),
            padding: tunables::host_auth_padding(),
        },
    };
    let mut ports = OTHER_PORTS;
    let (owner, link) = loop {
        let connected = Link::connect(parameters(), this, |handle| this.connecting.begin(handle));
        this.connecting.end();
        match connected {
            Err(EADDRINUSE) if ports > 0 && !this.connecting.is_aborted() => ports -= 1,
            connected => break connected?,
        }
    };
    let result = grow_pool(this, owner.endpoint());
    *this.owner.lock() = Some(owner);
    result?;
    this.requester.set_link(Some(link));
    Ok(())
}

/// Raises the trace event of an attempt, and says what was agreed on.
fn trace_attempt(this: &Arc<Client>, result: Result) {
    let peer = this.xprt.display();
    let (address, port) = (peer.address_c(), peer.port_c());
    match (result, this.requester.link()) {
        (Ok(()), Some(link)) => {
            trace::connect(
                this.number(),
                address,
                port,
                link.device(),
                link.inline_send(),
                link.inline_receive(),
                link.credits_wanted(),
                link.endpoint().sizes().region_depth,
                0,
            );
            link.agreement().tell(this.number(), &peer);
        }
        (result, _) => {
            let error = result.err().unwrap_or(ENOTCONN).to_errno();
            trace::connect(this.number(), address, port, c"", 0, 0, 0, 0, error);
        }
    }
}

/// Adds regions to the pool of a connection. Returns how many.
///
/// # Errors
///
/// As for [`Endpoint::add_regions`].
fn grow_pool(this: &Client, endpoint: &Arc<Endpoint<Client>>) -> Result<u32> {
    let added = endpoint.add_regions(REGION_STEP)?;
    let allocated = &this.requester.stats.regions_allocated;
    allocated.add_value(u64::from(added));
    Ok(added)
}

/// The region worker: makes the pool larger, and lets who waits for it try again.
pub(super) fn add_regions(this: &Arc<Client>) {
    let _nofs = NoFs::enter();
    let _noreclaim = NoReclaim::enter_if(this.xprt.swapping());
    let Some(link) = this.requester.link() else {
        // The end of the connection wakes everybody.
        return;
    };
    match grow_pool(this, link.endpoint()) {
        // There are as many as there may be: whoever brings one back says so.
        Ok(0) => {}
        Ok(_) => this.xprt.write_space(),
        // Nothing may be under way that would bring one back.
        Err(_) => {
            DelayedWork::<Client, REGION_WORK>::schedule(this, MEMORY_DELAY);
        }
    }
}

/// What SUNRPC understands as "try again" instead of "fail the RPC", for all that may pass.
fn for_sunrpc(error: Error) -> Error {
    match error {
        // These mean something to it already.
        ECONNREFUSED | ECONNRESET | ECONNABORTED | ENETUNREACH | EHOSTUNREACH | ETIMEDOUT
        | ENOTCONN | EPIPE | EPROTO | EACCES | ENOKEY => error,
        // No device of ours can ever do it: the mount fails.
        EOPNOTSUPP => EIO,
        // The device that leads there is gone, or not yet there.
        ENODEV | EADDRNOTAVAIL => EHOSTUNREACH,
        _ => ENOTCONN,
    }
}

/// The module parameter, which kernels hand out by value or by reference.
fn max_region_pages() -> u32 {
    *core::borrow::Borrow::<u32>::borrow(&module_parameters::max_region_pages.value())
}
