// SPDX-License-Identifier: GPL-2.0

//! Connecting, again and again.

use crate::client::errors::{
    for_sunrpc,
    is_local,
    rejected,
    without_network, //
};
use crate::client::transport::{
    Client,
    ABANDON_WORK,
    CONNECT_WORK,
    PAUSE_WORK,
    REGION_WORK, //
};
use crate::endpoint::ConnectionEvents;
use crate::endpoint::Endpoint;
use crate::kext::delayed_work::DelayedWork;
use crate::kext::memalloc::{
    NoFs,
    NoReclaim, //
};
use crate::kext::prelude::*;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::kext::time::{
    seconds,
    HZ, //
};
use crate::kext::waiting::Waiting;
use crate::link::auth::AuthWanted;
use crate::link::sizing::Wanted;
use crate::link::{
    Link,
    LinkParameters, //
};
use crate::module_parameters;
use crate::observe::trace;
use crate::proto::auth::{
    AuthFailure,
    Mode, //
};
use crate::proto::message::Version;
use crate::proto::session::memory::{
    Attempt,
    Outcome, //
};
use crate::requester::{
    self,
    Requester, //
};
use crate::sunrpc::{
    tunables,
    RememberedServer,
    RpcTask, //
};

/// The wait before the second attempt, in jiffies. SUNRPC doubles it with each further
/// failure, up to the transport's maximum.
const FIRST_DELAY: usize = HZ;

/// The time between two looks whether anybody still wants a connection, in jiffies.
const ABANDON_STEP: usize = HZ;

/// The longest time between two looks whether a pause is over, in jiffies. When a pause begins, the
/// look at the end of a former one, which was cut short, may still be scheduled.
const PAUSE_STEP: usize = HZ;

/// The time that the region worker waits for memory, in jiffies.
const MEMORY_DELAY: usize = HZ / 8 + 1;

/// Regions of a new connection, and how many are added at a time later.
const REGION_STEP: u32 = 16;

/// The longest wait for the server's answer to the offer of Version Two, in jiffies. A server of
/// Version One that keeps silent, instead of answering with an error, costs this once, see
/// [`RememberedServer`].
const ANSWER_TIMEOUT: usize = 5 * HZ;

/// The time for which a server is remembered as one without Version Two, in seconds.
const REMEMBER: u64 = 600;

/// The number of other local ports that an attempt takes if one is in use. The CM chooses them
/// without a look at those of TCP, among which they are under iWARP.
const OTHER_PORTS: u32 = 3;

/// The server as all transports know it.
fn server(this: &Client) -> RememberedServer {
    RememberedServer::new(this.xprt.net(), &this.xprt.address())
}

/// The version to offer now.
fn version(this: &Client) -> Version {
    if tunables::client_host_auth() == Mode::Require {
        // In Version One no server can authenticate itself.
        return Version::Two;
    }
    let wanted = tunables::client_version() >= Version::Two.number();
    if !wanted || !server(this).offers_two(seconds()) {
        Version::One
    } else if tunables::client_dialect() == 2016 {
        Version::Earlier
    } else {
        Version::Two
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
///
/// If an attempt has to wait, it does so without the lock. A thread that gives the transport
/// another address, takes it away or destroys it waits for that lock, and would have to wait until
/// the attempt is over; and then might not get it, because tasks that wait for it hand it to each
/// other.
///
/// No task gets the lock meanwhile, unless the flag that says so is cleared early: an RPC gives its
/// buffers back, the connection is made to end, or the transport has got another address. Then a
/// task gets it, finds that there is time left, and waits again, which does no harm.
pub(super) fn schedule(this: &Arc<Client>, task: &RpcTask) {
    let xprt = &this.xprt;
    // SUNRPC calls this only where the lock is free to be handed over.
    if kernel::warn_on!(!xprt.lock_connect(task)) {
        xprt.clear_connecting();
        return;
    }
    let left = pause(this);
    if left > 0 {
        xprt.set();
        xprt.clear_connecting();
        // `task`, which then waits for the lock like others.
        xprt.wake_pending_tasks(EAGAIN);
        // No task can have the lock now, so all that sleep until it is free are woken. They were
        // not if the last attempt ended after they had gone to sleep: SUNRPC gave the lock to
        // `task`.
        xprt.unlock_connect();
        DelayedWork::<Client, PAUSE_WORK>::schedule(this, left.min(PAUSE_STEP));
        return;
    }
    this.connecting.take_over(xprt.address().text());
    DelayedWork::<Client, CONNECT_WORK>::schedule(this, 0);
    DelayedWork::<Client, ABANDON_WORK>::schedule(this, ABANDON_STEP);
}

/// Returns the time until an attempt to connect may begin, in jiffies. The caller has the send
/// lock.
fn pause(this: &Client) -> usize {
    let xprt = &this.xprt;
    // A Reply makes it zero, and an attempt that was over before anything was sent. So not only an
    // attempt that failed delays the next one, but also a server that accepts and then says
    // nothing, or nothing sensible. Of another address nothing is known.
    if xprt.reestablish_timeout() == 0 || this.connecting.is_elsewhere(&xprt.address().text()) {
        xprt.set_reestablish_timeout(FIRST_DELAY);
        return 0;
    }
    if let Some(left) = this.connecting.left() {
        return left;
    }
    let delay = xprt.reconnect_delay();
    xprt.reconnect_backoff(FIRST_DELAY);
    this.connecting.pause(delay);
    delay
}

/// Looks whether the pause is over: then a task gets the send lock, and asks for a connection.
///
/// SUNRPC also has the lock for a moment when a task asks for it in vain, and when it looks for a
/// task that wants it, and says nothing to a thread that just then went to sleep until it is free.
/// Such threads look again at each of our steps.
pub(super) fn look_whether_paused(this: &Arc<Client>) {
    match this.connecting.left() {
        Some(left) if left > 0 => {
            DelayedWork::<Client, PAUSE_WORK>::schedule(this, left.min(PAUSE_STEP));
        }
        _ => this.xprt.wake(),
    }
    this.xprt.wake_lock();
}

/// Looks whether the transport is still wanted, as long as the worker has the send lock.
///
/// SUNRPC destroys a transport whose last reference is gone when it gets the send lock, which the
/// worker has as long as its attempt takes: while it waits for the CM and for the server's first
/// message. That is half a minute or more if the server is out of reach, and the module and the
/// network namespace can't go before.
pub(super) fn look_whether_abandoned(this: &Arc<Client>) {
    if this.xprt.is_abandoned() {
        this.connecting.abort();
    } else if this.connecting.is_under_way() {
        DelayedWork::<Client, ABANDON_WORK>::schedule(this, ABANDON_STEP);
    }
}

/// The worker. Runs with the send lock.
pub(super) fn work(this: &Arc<Client>) {
    let xprt = &this.xprt;
    if xprt.is_abandoned() {
        this.connecting.abort();
    }
    // Writeback and swapping may wait for this very connection: then memory must not be reclaimed
    // by them.
    let _nofs = NoFs::enter();
    let _noreclaim = NoReclaim::enter_if(xprt.swapping());
    // What is left of the former connection, if SUNRPC did not close it.
    this.disconnect_link(trace::End::Replaced);

    let result = attempt(this);
    trace_attempt(this, result);
    xprt.clear_connecting();
    let status = match result {
        Ok(()) => {
            this.connecting.note_device(true);
            xprt.bump_connect_cookie();
            xprt.count_connect();
            xprt.set_connected();
            // From now on what the server tells later is said when it comes.
            Requester::tell_agreement(&**this);
            // All that wait must try again.
            EAGAIN
        }
        Err(error) => {
            this.disconnect_link(trace::End::Failed);
            let error = without_network(this, error);
            if is_local(error) {
                xprt.set_reestablish_timeout(0);
            }
            let mounting = xprt.is_first() && xprt.stats().connect_count == 0;
            for_sunrpc(error, mounting)
        }
    };
    this.connecting.hand_back();
    // Before anything can be sent: a task that waits for a Reply on the new connection must not be
    // told to try again.
    xprt.wake_pending_tasks(status);
    xprt.unlock_connect();
}

/// Makes one attempt. On success the new connection is published, and it is known what it speaks;
/// after a failure there may be an owner left to be disconnected.
fn attempt(this: &Arc<Client>) -> Result {
    if this.connecting.is_aborted() {
        return Err(ENOTCONN);
    }
    let version = version(this);
    let began = seconds();
    let has_properties = version.rules().has_properties;
    match make(this, version) {
        Ok(()) if !has_properties || negotiate(this, began) => return Ok(()),
        Ok(()) => {}
        // The server has accepted the connection and ended it, both before this thread had its
        // turn, or before the device had looked at the answer.
        Err(ECONNABORTED | ECONNRESET) if has_properties => remember(this, Outcome::Lost, began),
        Err(error) => return Err(rejected(error)),
    }
    let link = this.requester.link();
    // When this is done, everything that has arrived was dealt with.
    this.disconnect_link(trace::End::Failed);
    let refusal = link.and_then(|link| link.channel().refusal());
    if let Some(why) = refusal {
        return Err(refused(this, why));
    }
    // Section 4.3.2 of the draft: perhaps the server does not speak Version Two, and says nothing
    // about it. One that has spoken it before is tried again, later.
    match self::version(this) {
        Version::Two | Version::Earlier => Err(ECONNRESET),
        // SUNRPC has been told that the connection is lost, and is about to end it: it would end
        // the next one.
        Version::One if this.xprt.is_to_be_closed() => {
            this.xprt.set_reestablish_timeout(0);
            Err(ENOTCONN)
        }
        Version::One => make(this, Version::One).map_err(rejected),
    }
}

/// Finds out which version the server speaks. Returns whether that is known. The attempt `began` at
/// this second.
fn negotiate(this: &Arc<Client>, began: u64) -> bool {
    let Some(link) = this.requester.link() else {
        return false;
    };
    let channel = link.channel();
    this.connecting.wait_on(Some(link.clone()));
    // Sends our properties, and nothing else before the answer: section 4.3 of the draft.
    requester::reply::act(&**this, &link);
    let decided = channel.wait(ANSWER_TIMEOUT);
    this.connecting.wait_on(None);
    if channel.version().is_none() && this.connecting.is_aborted() {
        // We did not wait to the end, which says nothing about the server.
        return false;
    }
    let outcome = match channel.version() {
        Some(Version::Two) if channel.refusal().is_none() && !link.fits_payload() => {
            pr_warn_ratelimited!(
                "server {}: segment limit in Version Two too low for 1 MiB; using Version One for \
                 10 minutes\n",
                this.xprt.display()
            );
            remember(this, Outcome::Refused, began);
            return false;
        }
        // It has told its credits.
        Some(Version::Earlier) => {
            // They may have changed since.
            this.tell_wishes();
            <Client as requester::Host>::watch(this);
            Outcome::Spoken
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
fn refused(this: &Arc<Client>, why: AuthFailure) -> Error {
    pr_warn_ratelimited!(
        "server {}: host authentication failed: {}; not connecting\n",
        this.xprt.display(),
        why.text()
    );
    match why {
        AuthFailure::NoKey => ENOKEY,
        _ => EACCES,
    }
}

/// Makes a connection on which `version` is offered, and publishes it.
fn make(this: &Arc<Client>, version: Version) -> Result {
    let xprt = &this.xprt;
    xprt.clear_connected();
    // One Call until the peer's first grant, RFC 8166 section 3.3.3.
    xprt.reset_congestion();

    let parameters = || LinkParameters {
        net: xprt.net(),
        address: xprt.address(),
        wanted: Wanted {
            credits: xprt.max_reqs(),
            inline_send: tunables::max_inline_write(),
            inline_receive: tunables::max_inline_read(),
            region_pages: max_region_pages(),
        },
        version,
        wishes: this.wishes(),
        auth: AuthWanted {
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

/// Raises the trace event of an attempt.
fn trace_attempt(this: &Arc<Client>, result: Result) {
    let peer = this.xprt.display();
    let (address, port) = (peer.address_c(), peer.port_c());
    match (result, this.requester.link()) {
        (Ok(()), Some(link)) => {
            let agreement = link.channel().agreement();
            trace::connect(
                this.number(),
                address,
                port,
                link.device(),
                agreement.terms.send_size,
                agreement.terms.receive_size,
                link.credits_wanted(),
                link.endpoint().sizes().region_depth,
                0,
            );
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

/// Makes the pool of regions larger, and lets those that wait for one try again. The work of the
/// region worker.
pub(super) fn add_regions(this: &Arc<Client>) {
    let _nofs = NoFs::enter();
    let _noreclaim = NoReclaim::enter_if(this.xprt.swapping());
    let Some(link) = this.requester.link() else {
        // The end of the connection wakes everybody.
        return;
    };
    match grow_pool(this, link.endpoint()) {
        // There are as many as there may be: the code that brings one back says so.
        Ok(0) => {}
        Ok(_) => this.xprt.wake(),
        // Nothing may be under way that would bring one back.
        Err(_) => {
            DelayedWork::<Client, REGION_WORK>::schedule(this, MEMORY_DELAY);
        }
    }
}

/// The module parameter, which kernels hand out by value or by reference.
fn max_region_pages() -> u32 {
    *core::borrow::Borrow::<u32>::borrow(&module_parameters::max_region_pages.value())
}
