// SPDX-License-Identifier: GPL-2.0

//! The transport that listens.

use crate::kext::delayed_work::{
    impl_has_delayed_work_ext, new_delayed_work_ext, DelayedWork, DelayedWorkItem,
};
use crate::observe::trace::{self, Number};
use crate::server::Connection;
use crate::sunrpc::svc::{ListenTransport, Server, SvcXprt};
use crate::sunrpc::SockAddr;
use crate::verbs::cm::{ConnectionRequests, Incoming, Listener, RequestId};
use crate::verbs::receive_pool::ReceivePools;
use kernel::prelude::*;
use kernel::sync::{new_mutex, new_spinlock, Arc, Mutex, SpinLock};

/// Connections that may wait to be accepted; further ones are rejected.
const MAX_REQUESTS: usize = 128;

/// A transport that listens.
#[pin_data]
pub(crate) struct Listening {
    /// What SUNRPC sees.
    #[pin]
    xprt: SvcXprt,
    /// Connections that ask, the oldest first. With room for all that may wait.
    #[pin]
    requests: SpinLock<KVec<Incoming<Listening>>>,
    /// The Receives that its connections share.
    pools: Arc<ReceivePools<Connection>>,
    /// The listening id. Not held while one is dropped, which waits for its handler.
    #[pin]
    place: Mutex<Place>,
    /// Does what the CM's handlers ask for, also where no thread of the service would.
    #[pin]
    chores: DelayedWork<Listening, 0>,
}

/// The listening id, and what has become of it.
#[derive(Default)]
struct Place {
    /// The id, while there is one.
    listener: Option<Listener<Listening>>,
    /// Whether its address has moved to another device.
    moved: bool,
    /// Whether there shall be none any more.
    closed: bool,
}

impl_has_delayed_work_ext! {
    impl HasDelayedWork<0> for Listening { self.chores }
}

impl DelayedWorkItem<0> for Listening {
    fn run(this: Arc<Self>) {
        if this.place.lock().closed {
            this.stop_listening();
        } else {
            Self::follow(&this);
        }
        loop {
            let mut requests = this.requests.lock();
            let at = requests.iter().position(|incoming| incoming.is_withdrawn());
            let incoming = at.and_then(|at| requests.remove(at).ok());
            drop(requests);
            if incoming.is_none() {
                return;
            }
        }
    }
}

impl Listening {
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
    /// `ENODEV` if there shall be none any more: its device may have gone away meanwhile.
    fn keep(this: &Arc<Self>, listener: Listener<Self>) -> Result {
        let mut place = this.place.lock();
        if place.closed {
            drop(place);
            drop(listener);
            return Err(ENODEV);
        }
        place.listener = Some(listener);
        let moved = place.moved;
        drop(place);
        if moved {
            // That was too early to find it.
            DelayedWork::<Self, 0>::schedule(this, 0);
        }
        Ok(())
    }

    /// Listens anew if the address has moved to another device.
    fn follow(this: &Arc<Self>) {
        let mut place = this.place.lock();
        let former = if place.moved {
            place.listener.take()
        } else {
            None
        };
        if former.is_none() {
            return;
        }
        place.moved = false;
        drop(place);
        // First, since two can't have one address.
        drop(former);
        let kept = Self::listen(this, this.xprt.server(), this.xprt.local())
            .and_then(|listener| Self::keep(this, listener));
        if let Err(error) = kept {
            if this.place.lock().closed {
                // Nobody wants to listen any more, or the device is gone: that was told, and it was not the address.
                return;
            }
            pr_warn!(
                "a listening address has moved, and can't be listened at any more: {error:?}\n"
            );
            this.xprt.close();
        }
    }

    /// Listens no more. Waits for the handler.
    fn stop_listening(&self) {
        let mut place = self.place.lock();
        place.closed = true;
        let listener = place.listener.take();
        drop(place);
        drop(listener);
    }

    /// Gives everything up. When this returns nothing refers to the transport that did not before it listened.
    fn end(this: &Arc<Self>) {
        this.stop_listening();
        // Each has an id whose handler may schedule the chores.
        this.reject_all();
        // They may have been listening anew just now. Such a listener they drop themselves, but somebody may have asked it
        // for a connection.
        DelayedWork::<Self, 0>::cancel_sync(this);
        this.reject_all();
        // There is no handler any more that could schedule them again.
        DelayedWork::<Self, 0>::cancel_sync(this);
    }

    /// Rejects all who ask for a connection.
    fn reject_all(&self) {
        loop {
            let Ok(incoming) = self.requests.lock().remove(0) else {
                return;
            };
            // Rejects the peer, which sleeps.
            drop(incoming);
        }
    }
}

impl ConnectionRequests for Listening {
    fn requested(&self, incoming: Incoming<Self>) -> Result<(), Incoming<Self>> {
        let mut requests = self.requests.lock();
        let len = requests.len();
        if len >= MAX_REQUESTS || len >= requests.capacity() {
            drop(requests);
            let peer = incoming.remote().text();
            trace::accept(
                // It gets none.
                Number::Server(0),
                peer.address_c(),
                peer.port_c(),
                c"",
                0,
                0,
                0,
                0,
                false,
                EBUSY.to_errno(),
            );
            return Err(incoming);
        }
        // There is room.
        let _ = requests.push_within_capacity(incoming);
        self.xprt.set_connection();
        drop(requests);
        self.xprt.enqueue();
        Ok(())
    }

    fn withdrawn(this: &Arc<Self>, id: RequestId) {
        let mut requests = this.requests.lock();
        if let Some(incoming) = requests.iter_mut().find(|incoming| incoming.is(id)) {
            incoming.withdraw();
        }
        drop(requests);
        DelayedWork::<Self, 0>::schedule(this, 0);
    }

    fn device_gone(this: &Arc<Self>) {
        pr_notice!("the device of a listening address is gone; nothing listens there any more\n");
        this.place.lock().closed = true;
        // So that it can be listened at again when the device is back.
        this.xprt.close();
        DelayedWork::<Self, 0>::schedule(this, 0);
    }

    fn address_moved(this: &Arc<Self>) {
        this.place.lock().moved = true;
        DelayedWork::<Self, 0>::schedule(this, 0);
    }
}

impl ListenTransport for Listening {
    type Connection = Connection;

    fn xprt(&self) -> &SvcXprt {
        &self.xprt
    }

    fn create(server: Server<'_>, address: SockAddr<'_>) -> Result<Arc<Self>> {
        let requests = KVec::with_capacity(MAX_REQUESTS, GFP_KERNEL)?;
        let this = Arc::pin_init(
            try_pin_init!(Self {
                xprt <- SvcXprt::new(server),
                requests <- new_spinlock!(requests, "rpcrdma::Listening::requests"),
                pools: ReceivePools::new()?,
                place <- new_mutex!(Place::default(), "rpcrdma::Listening::place"),
                chores <- new_delayed_work_ext!("rpcrdma_listener"),
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
        let incoming = requests.remove(0).ok();
        if requests.is_empty() {
            this.xprt.clear_connection();
        }
        drop(requests);
        Connection::accept(this.xprt.server(), incoming?, &this.pools).ok()
    }

    fn detach(this: &Arc<Self>) {
        this.stop_listening();
    }

    fn free(this: &Arc<Self>) {
        Self::end(this);
    }
}
