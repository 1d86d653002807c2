// SPDX-License-Identifier: GPL-2.0

//! Calls from a server to its client, over the connection that the client made: NFSv4.1 callbacks
//! (RFC 8167).
//!
//! # Who owns what, and what ends it
//!
//! A [`Callback`] is owned by its `rpc_xprt`, which the connection's `svc_xprt` and the clients of
//! SUNRPC hold; so it may outlive the connection, but not begin to end before SUNRPC frees that.
//! Until then the connection knows it too, under a mutex (`Connection::callback`) which is held
//! while a Reply is taken in. `destroy` takes it away from there, and so waits for such a Reply.
//!
//! Where the connection can have none, since it is at its end, has one, or its client takes no
//! Calls, there is a [`Callback`] of which the connection knows nothing. Its Calls are sent to
//! nobody, as if to a client that never answers, and time out. Errors are no way out: one when it
//! is made is dangerous, see [`CallbackTransport::setup`], and to one at each Call nfsd has no
//! other answer than to call again at once, for ever.

use crate::endpoint::{
    EndpointEvents,
    Received, //
};
use crate::kext::memalloc::NoFs;
use crate::kext::prelude::*;
use crate::kext::waiting::Waiting;
use crate::link::assembly::Whole;
use crate::link::Link;
use crate::proto::connection::incoming::Answer;
use crate::requester::call::Call;
use crate::requester::reply::Ended;
use crate::requester::{
    self,
    Host,
    Requester, //
};
use crate::sunrpc::svc::ServerTransport;
use crate::sunrpc::{
    CallLease,
    CallbackTransport,
    RpcTask,
    SendError,
    SendRqst,
    Slot,
    Transport,
    XprtHandle, //
};
use kernel::time::delay::fsleep;
use kernel::time::Delta;

/// Calls that may wait for their Replies at a time. Each has a Receive on the connection.
pub(super) const SLOTS: u32 = 8;

/// Memory regions at most, where the client takes chunks: for head and tail of a Call, and for its
/// Reply.
pub(super) const REGIONS: u32 = 3 * SLOTS;

/// Pages of each: a page that does not begin on a page boundary.
pub(super) const REGION_DEPTH: u32 = 2;

/// The number of them that are made at a time.
const REGION_STEP: u32 = 3;

/// The wait for memory.
const MEMORY_DELAY: Delta = Delta::from_millis(125);

/// Octets of a slot's buffers to begin with.
const SLOT_BUFFER: usize = 512;

/// A connection over which a [`Callback`] calls the client.
pub(crate) trait CallbackWire: EndpointEvents<Lease = CallLease> + ServerTransport {
    /// From now on the connection tells `callback` of Replies. `attach` is given the link before.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the connection has one already, `ENOTCONN` if it is gone, `EOPNOTSUPP` if the
    /// client has not told that it takes Calls (5.2.5 of the draft), and what `attach` returns.
    fn begin_callback(
        &self,
        callback: &Arc<Callback<Self>>,
        attach: impl FnOnce(Arc<Link<Self>>),
    ) -> Result;

    /// Detaches the callback that is known if the endpoint has ended, which may have been before
    /// the callback was known, or before it was connected. Sleeps.
    fn callback_published(&self);

    /// From now on the connection does not tell `callback` of Replies. When this returns it does
    /// not refer to it.
    fn end_callback(&self, callback: &Callback<Self>);

    /// Lets go on what waits for Send buffers.
    fn flush(&self);

    /// Has the connection checked in a while, unless it is at its end. Must not sleep.
    fn watch(this: &Arc<Self>);

    /// Ends the connection.
    fn end(&self);
}

/// A transport for Calls to a client, over a connection `C`.
#[pin_data]
pub(crate) struct Callback<C: CallbackWire> {
    /// The Calls.
    #[pin]
    requester: Requester<Callback<C>>,
    /// The connection.
    connection: Arc<C>,
    /// Set if Calls are sent to the connection, which knows it then.
    begun: Atomic<bool>,
    /// The transport by which SUNRPC knows it. The last field, since fields are dropped in order:
    /// the code that frees the transport looks whether this is gone.
    xprt: XprtHandle,
}

impl<C: CallbackWire> Callback<C> {
    /// Takes an answer in, see [`requester::reply::accept`].
    pub(super) fn accept(
        this: &Arc<Self>,
        message: &Received<C>,
        answer: &Answer<'_>,
        whole: Option<&Whole>,
    ) -> Option<Ended<Self>> {
        this.requester.stats.completions.count();
        requester::reply::accept(this, message, answer, whole)
    }

    /// The fence of a Call has completed.
    pub(super) fn fenced(this: &Arc<Self>, tag: u32, done: bool) {
        requester::reply::fenced(this, tag, done);
    }

    /// Returns the Calls, for the code that looks into the connection.
    pub(super) fn requester(&self) -> &Requester<Self> {
        &self.requester
    }

    /// There may be room in the Send Queue.
    pub(super) fn send_room(&self) {
        self.xprt.wake();
    }

    /// Ends all Calls: the endpoint is gone, and with it the connection. Not before are tasks told,
    /// which encode their Calls anew then: with krb5p that frees pages which a region may have.
    pub(super) fn detach(&self) {
        self.requester.set_link(None);
        self.requester.reclaim();
        self.xprt.disconnect_done();
    }

    /// Forgets the connection, which is about to be freed. Not before: SUNRPC follows the pointer
    /// without a lock while it sets up a callback channel.
    pub(super) fn forget_connection(&self) {
        self.xprt.forget_server();
    }

    /// Returns whether Calls are sent to somebody.
    fn is_begun(&self) -> bool {
        self.begun.load(Relaxed)
    }

    /// Starts with the connection's link.
    fn attach(&self, link: Arc<Link<C>>) {
        if link.channel().rules().counts_messages {
            // The session counts credits, for messages of all kinds.
            self.xprt.set_credits(SLOTS);
        }
        self.requester.set_link(Some(link));
        self.begun.store(true, Relaxed);
    }
}

impl<C: CallbackWire> Host for Callback<C> {
    type Wire = C;

    fn requester(&self) -> &Requester<Self> {
        &self.requester
    }

    fn wire(&self) -> &C {
        &self.connection
    }

    // Such Calls are sent with chunks when they don't fit one message and there are no credits for
    // more, so hardly ever. So the first one waits for its regions here; a worker might outlive the
    // connection.
    fn want_regions(this: &Arc<Self>) {
        let Some(link) = this.requester.link() else {
            return;
        };
        let _scope = NoFs::enter();
        match link.endpoint().add_regions(REGION_STEP) {
            Ok(added) => {
                let allocated = &this.requester.stats.regions_allocated;
                allocated.add_value(added.into());
            }
            // Nothing may be under way that would bring one back, so SUNRPC must call again.
            Err(_) => {
                fsleep(MEMORY_DELAY);
                this.xprt.wake();
            }
        }
    }

    // The connection checks sequences by itself, and fences if it is asked to. A client that lets
    // no Call out harms itself.
    fn watch(this: &Arc<Self>) {
        C::watch(&this.connection);
    }

    fn disconnect(this: &Arc<Self>) {
        Self::close(this);
    }
}

impl<C: CallbackWire> Transport for Callback<C> {
    type Call = Call<Self>;
    // A buffer of the client has a page.
    const MAX_PAYLOAD: usize = PAGE_SIZE;

    fn xprt(&self) -> &XprtHandle {
        &self.xprt
    }

    fn alloc_slot(this: &Arc<Self>) -> Option<Arc<Slot<Self::Call>>> {
        this.requester.take_slot()
    }

    fn free_slot(this: &Arc<Self>, slot: Arc<Slot<Self::Call>>) {
        this.requester.put_slot(slot);
    }

    fn grown(&self, bytes: usize) {
        self.requester.stats.hardway_bytes.add_value(bytes as u64);
    }

    fn buf_free(this: &Arc<Self>, slot: &Arc<Slot<Self::Call>>) {
        slot.call.abandon(this);
    }

    fn send_request(this: &Arc<Self>, rqst: SendRqst<'_, Self>) -> Result<(), SendError> {
        if !this.is_begun() {
            return Ok(());
        }
        let sent = requester::send::call(this, &rqst);
        if sent != Ok(true) {
            // A Reply may wait for Send buffers that it had for a moment.
            this.connection.flush();
        }
        sent.map(|_| ())
    }

    fn connect(this: &Arc<Self>, _task: &RpcTask) {
        // Only the client can make a connection. A task that does not give up by itself has to wait
        // for that. This is after `detach`, so no Call has regions.
        this.xprt.clear_connecting();
        this.xprt.wake_pending_tasks(EPIPE);
    }

    // From now on Calls are sent to nobody, until `detach` has SUNRPC know that there is no
    // connection any more.
    fn close(this: &Arc<Self>) {
        if this.begun.xchg(false, Relaxed) {
            this.connection.end();
        }
    }

    // The connection is the client's, which notices by itself that it does not work.
    fn inject_disconnect(this: &Arc<Self>) {
        if this.is_begun() {
            this.connection.end();
        }
    }

    // Only mounts have such a line.
    fn destroy(this: &Arc<Self>) {
        this.connection.end_callback(this);
        this.requester.set_link(None);
    }
}

impl<C: CallbackWire> CallbackTransport for Callback<C> {
    type Connection = C;
    const SLOTS: u32 = SLOTS;

    fn setup(xprt: XprtHandle, connection: &Arc<C>) -> Result<(Arc<Self>, bool)> {
        let this = Arc::pin_init(
            try_pin_init!(Self {
                requester <- Requester::new(SLOTS, SLOT_BUFFER),
                connection: connection.clone(),
                begun: Atomic::new(false),
                xprt,
            }? Error),
            GFP_KERNEL,
        )?;
        let begun = connection.begin_callback(&this, |link| this.attach(link));
        Ok((this, begun.is_ok()))
    }

    fn published(this: &Arc<Self>) {
        this.connection.callback_published();
    }
}
