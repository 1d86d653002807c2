// SPDX-License-Identifier: GPL-2.0

//! The transport that listens.
//!
//! A CM id that listens at one address must be destroyed with the device of the address, and gets
//! no requests after the address has moved to another device: then another one is made, at once or
//! as soon as that is possible. Meanwhile the transport stays in the list of the service, as one of
//! TCP does when its address goes. Closing it is no alternative:
//!
//! - it takes a thread of the service, which may have none yet;
//! - nobody can add a listener at one address to a service with threads;
//! - nfsd expects that the list is not empty whenever one of its threads begins.

use crate::endpoint::shared_queue::SharedQueues;
use crate::kext::delayed_work::{
    impl_has_delayed_work_ext,
    new_delayed_work_ext,
    DelayedWork,
    DelayedWorkItem, //
};
use crate::kext::net::SockAddr;
use crate::kext::prelude::*;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::kext::time::HZ;
use crate::observe::trace::{
    self,
    Number, //
};
use crate::policy::accept::{
    CROWD,
    PATIENCE, //
};
use crate::rdma::cm::{
    ConnectRequest,
    ConnectionRequests,
    Listener,
    RequestId, //
};
use crate::server::connection::{
    accept::Common,
    inspect::refused,
    Connection, //
};
use crate::server::offenders::Offenders;
use crate::server::requests::{
    Requests,
    MAX_REQUESTS, //
};
use crate::sunrpc::svc::counters::{
    count,
    ServerCounter, //
};
use crate::sunrpc::svc::{
    ListenTransport,
    Server,
    SvcXprt,
    MOST_NEWCOMERS, //
};
use core::mem;

/// After how many jiffies an address is tried again that can't be listened at.
const RETRY: usize = 2 * HZ;

/// Jiffies between two looks at whether there is still a crowd.
const LOOK: usize = if HZ > 50 { HZ / 50 } else { 1 };

/// Jiffies between two clients that come into the queue from hosts that have offended, see
/// [`Offenders`].
const PROBATION: usize = if HZ > 4 { HZ / 4 } else { 1 };

/// Names the work item that rejects.
const REJECT_WORK: u64 = 0;

/// ID of the work item that creates another listening CM id.
const RENEW_WORK: u64 = 1;

/// ID of the work item that resumes accepting.
const RESUME_WORK: u64 = 2;

/// Names the work item that lets clients in from hosts that have offended.
const PROBATION_WORK: u64 = 3;

/// A transport that listens.
#[pin_data]
pub(crate) struct Listening {
    /// The transport that SUNRPC sees.
    #[pin]
    xprt: SvcXprt,
    /// Connections that ask.
    #[pin]
    requests: SpinLock<Requests<KBox<ConnectRequest<Listening>>>>,
    /// What its connections have in common.
    common: Common,
    /// The listening id. Not held while one is dropped, which waits for its handler.
    #[pin]
    place: Mutex<Place>,
    /// Rejects those whose device goes away: the CM's handler can't, and there may be no thread of
    /// the service.
    #[pin]
    reject: DelayedWork<Listening, REJECT_WORK>,
    /// Listens anew, for the same reasons.
    #[pin]
    renew: DelayedWork<Listening, RENEW_WORK>,
    /// Goes on with accepting, after a pause.
    #[pin]
    resume: DelayedWork<Listening, RESUME_WORK>,
    /// Lets one client in from a host that has offended.
    #[pin]
    probation: DelayedWork<Listening, PROBATION_WORK>,
}

/// The listening id, and what has become of it.
enum Place {
    /// It is being made.
    Making {
        /// Set if a handler has said meanwhile that it is useless.
        lost: bool,
    },
    /// It listens.
    Kept(Listener<Listening>),
    /// Its device is gone, or the address has moved to another device: another one must be made.
    Lost {
        /// The useless one, to be dropped first: two can't have one address.
        former: Option<Listener<Listening>>,
        /// Set if the log says that nothing listens.
        told: bool,
    },
    /// There will be none any more.
    Closed,
}

impl Place {
    /// Notes that it is useless. Returns whether another one must be made now.
    fn lose(&mut self) -> bool {
        if let Self::Making { lost } = self {
            // The thread that makes it will see.
            *lost = true;
        }
        match mem::replace(self, Self::Closed) {
            Self::Kept(listener) => {
                *self = Self::Lost {
                    former: Some(listener),
                    told: false,
                };
                true
            }
            other => {
                *self = other;
                false
            }
        }
    }
}

impl_has_delayed_work_ext! {
    impl HasDelayedWork<REJECT_WORK> for Listening { self.reject }
    impl HasDelayedWork<RENEW_WORK> for Listening { self.renew }
    impl HasDelayedWork<RESUME_WORK> for Listening { self.resume }
    impl HasDelayedWork<PROBATION_WORK> for Listening { self.probation }
}

impl DelayedWorkItem<REJECT_WORK> for Listening {
    fn run(this: Arc<Self>) {
        loop {
            let incoming = this.requests.lock().take_withdrawn();
            if incoming.is_none() {
                return;
            }
        }
    }
}

impl DelayedWorkItem<RENEW_WORK> for Listening {
    fn run(this: Arc<Self>) {
        let mut place = this.place.lock();
        let Place::Lost { former, told } = &mut *place else {
            return;
        };
        let (former, told) = (former.take(), *told);
        *place = Place::Making { lost: false };
        drop(place);
        drop(former);

        let address = this.xprt.local();
        match Self::listen(&this, this.xprt.server(), address) {
            Ok(listener) => {
                // Otherwise nobody wants to listen any more.
                if Self::keep(&this, listener).is_ok() && told {
                    pr_notice!("listening on {} again\n", address.text());
                }
            }
            Err(error) => Self::retry(&this, address, error, told),
        }
    }
}

impl DelayedWorkItem<RESUME_WORK> for Listening {
    fn run(this: Arc<Self>) {
        let mut requests = this.requests.lock();
        requests.looks = if this.is_crowded() {
            requests.looks.saturating_sub(1)
        } else {
            0
        };
        if requests.looks > 0 {
            // Under the lock: a thread that needs it to be scheduled has seen that there are looks
            // left.
            DelayedWork::<Self, RESUME_WORK>::schedule(&this, LOOK);
            return;
        }
        if requests.is_empty() {
            return;
        }
        this.xprt.set_connection();
        drop(requests);
        this.xprt.enqueue();
    }
}

impl DelayedWorkItem<PROBATION_WORK> for Listening {
    fn run(this: Arc<Self>) {
        let mut requests = this.requests.lock();
        let came = requests.let_in();
        if requests.holds_any() {
            // Under the lock: a handler that puts a request there when none is held schedules this
            // itself.
            DelayedWork::<Self, PROBATION_WORK>::schedule(&this, PROBATION);
        }
        if !came || requests.looks > 0 {
            return;
        }
        this.xprt.set_connection();
        drop(requests);
        this.xprt.enqueue();
    }
}

impl Listening {
    /// Returns whether another connection might cost one of ours its place before its peer has had
    /// the time to show a file handle, see [`CROWD`].
    fn is_crowded(&self) -> bool {
        let newcomers = self.xprt.server().newcomers(CROWD);
        newcomers.is_some_and(|found| found.is_crowd(MOST_NEWCOMERS))
    }

    /// Listens at `address`.
    fn listen(
        this: &Arc<Self>,
        server: Server<'_>,
        address: SockAddr<'_>,
    ) -> Result<Listener<Self>> {
        let listener = Listener::new(server.net(), address, this.clone());
        // With the port, if that was left to the CM.
        let (local, error) = match &listener {
            Ok(listener) => (listener.local().text(), 0),
            Err(error) => (address.text(), error.to_errno()),
        };
        trace::listen(local.address_c(), local.port_c(), error);
        listener
    }

    /// Puts a new listener where the handlers look for it.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there must be none any more.
    fn keep(this: &Arc<Self>, listener: Listener<Self>) -> Result {
        let mut place = this.place.lock();
        let lost = match *place {
            Place::Making { lost } => lost,
            _ => {
                drop(place);
                drop(listener);
                return Err(ENODEV);
            }
        };
        *place = Place::Kept(listener);
        if lost && place.lose() {
            DelayedWork::<Self, RENEW_WORK>::schedule(this, 0);
        }
        Ok(())
    }

    /// Tries again later, since `address` can't be listened at now.
    fn retry(this: &Arc<Self>, address: SockAddr<'_>, error: Error, told: bool) {
        let mut place = this.place.lock();
        if matches!(*place, Place::Closed) {
            return;
        }
        *place = Place::Lost {
            former: None,
            told: true,
        };
        // Under the lock: the thread that closes the place cancels this afterwards.
        DelayedWork::<Self, RENEW_WORK>::schedule(this, RETRY);
        drop(place);
        if !told {
            pr_warn!(
                "cannot listen on {} ({error:?}); retrying every 2 s; check that an RDMA device \
                 has this address\n",
                address.text()
            );
        }
    }

    /// Gives everything up. When this returns nothing refers to the transport that did not before
    /// it listened, and nothing needs its namespace.
    fn end(this: &Arc<Self>) {
        // Waits for the handler. The lock is free by then.
        let place = mem::replace(&mut *this.place.lock(), Place::Closed);
        drop(place);
        // It may have been listening anew just now. Such a listener it drops itself, but somebody
        // may have asked it for a connection.
        DelayedWork::<Self, RENEW_WORK>::cancel_sync(this);
        DelayedWork::<Self, RESUME_WORK>::cancel_sync(this);
        DelayedWork::<Self, PROBATION_WORK>::cancel_sync(this);
        // Each has an id whose handler may schedule the other.
        this.reject_all();
        DelayedWork::<Self, REJECT_WORK>::cancel_sync(this);
    }

    /// Rejects all requests for a connection.
    fn reject_all(&self) {
        loop {
            let mut requests = self.requests.lock();
            let incoming = requests.take_any();
            drop(requests);
            let Some(incoming) = incoming else { return };
            // Rejects the peer, which sleeps.
            drop(incoming);
        }
    }
}

impl ConnectionRequests for Listening {
    fn requested(
        this: &Arc<Self>,
        incoming: ConnectRequest<Self>,
    ) -> Result<(), ConnectRequest<Self>> {
        let Ok(place) = KBox::new_uninit(GFP_KERNEL) else {
            return Err(incoming);
        };
        let (host, name) = (incoming.host(), incoming.name());
        let is_held = this.common.offenders.has(host);
        let remote = is_held.then(|| incoming.remote().text());
        let mut requests = this.requests.lock();
        if let Err(incoming) = requests.add(host, name, is_held, place.write(incoming)) {
            drop(requests);
            // It gets no number.
            refused(Number::Server(0), &incoming.remote().text(), EBUSY);
            return Err(KBox::into_inner(incoming));
        }
        if is_held {
            // Changes nothing if it is scheduled already.
            DelayedWork::<Self, PROBATION_WORK>::schedule(this, PROBATION);
            drop(requests);
            if let Some(remote) = remote {
                pr_warn_ratelimited!(
                    "client {remote}: throttled to 4 connections/s after repeated protocol \
                     violations from this address\n"
                );
            }
            return Ok(());
        }
        if requests.looks > 0 {
            return Ok(());
        }
        this.xprt.set_connection();
        drop(requests);
        this.xprt.enqueue();
        Ok(())
    }

    fn withdrawn(this: &Arc<Self>, id: RequestId) {
        this.requests.lock().withdraw(id);
        DelayedWork::<Self, REJECT_WORK>::schedule(this, 0);
    }

    fn address_lost(this: &Arc<Self>) {
        if this.place.lock().lose() {
            DelayedWork::<Self, RENEW_WORK>::schedule(this, 0);
        }
    }
}

impl ListenTransport for Listening {
    type Connection = Connection;

    fn xprt(&self) -> &SvcXprt {
        &self.xprt
    }

    fn create(server: Server<'_>, address: SockAddr<'_>) -> Result<Arc<Self>> {
        let requests = Requests::new(MAX_REQUESTS)?;
        let this = Arc::pin_init(
            try_pin_init!(Self {
                xprt <- SvcXprt::new(server),
                requests <- new_spinlock!(requests, "rpcrdma::Listening::requests"),
                common: Common {
                    queues: SharedQueues::new()?,
                    offenders: Offenders::new()?,
                },
                place <- new_mutex!(Place::Making { lost: false }, "rpcrdma::Listening::place"),
                reject <- new_delayed_work_ext!("rpcrdma_listener_reject"),
                renew <- new_delayed_work_ext!("rpcrdma_listener_renew"),
                resume <- new_delayed_work_ext!("rpcrdma_listener_resume"),
                probation <- new_delayed_work_ext!("rpcrdma_listener_probation"),
            }? Error),
            GFP_KERNEL,
        )?;
        let opened = Self::listen(&this, server, address).and_then(|listener| {
            this.xprt.set_local(listener.local())?;
            Self::keep(&this, listener)
        });
        if opened.is_err() {
            Self::end(&this);
        }
        opened.map(|()| this)
    }

    fn accept(this: &Arc<Self>) -> Option<Arc<Connection>> {
        let mut requests = this.requests.lock();
        let incoming = requests.take_next();
        if requests.is_empty() {
            this.xprt.clear_connection();
        }
        drop(requests);
        let incoming = KBox::into_inner(incoming?);
        let accepted = Connection::accept(this.xprt.server(), incoming, &this.common).ok()?;
        // Not for peers that have given up meanwhile. No other thread accepts until this returns.
        if this.is_crowded() {
            count(ServerCounter::AcceptsPaced, 1);
            let mut requests = this.requests.lock();
            requests.looks = PATIENCE;
            this.xprt.clear_connection();
            DelayedWork::<Self, RESUME_WORK>::schedule(this, LOOK);
        }
        Some(accepted)
    }

    fn detach(this: &Arc<Self>) {
        // All of it here, since the transport still has its namespace, in which a listener may just
        // be made.
        Self::end(this);
    }

    fn free(this: &Arc<Self>) {
        // What was detached has nothing left to end.
        Self::end(this);
    }
}
