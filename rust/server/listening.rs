// SPDX-License-Identifier: GPL-2.0

//! The transport that listens.

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
    /// The listening id.
    #[pin]
    listener: Mutex<Option<Listener<Listening>>>,
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

    fn withdrawn(&self, id: RequestId) -> Option<Incoming<Self>> {
        let mut requests = self.requests.lock();
        let at = requests.iter().position(|incoming| incoming.is(id))?;
        requests.remove(at).ok()
    }

    fn device_gone(&self) -> Option<Listener<Self>> {
        let listener = self.listener.lock().take()?;
        pr_notice!("the device of a listening address is gone; nothing listens there any more\n");
        // So that it can be listened at again when the device is back.
        self.xprt.close();
        Some(listener)
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
                listener <- new_mutex!(None, "rpcrdma::Listening::listener"),
            }? Error),
            GFP_KERNEL,
        )?;
        let listener = Listener::new(server.net(), address, this.clone());
        // With the port, if that was left to the CM.
        let (local, error) = match &listener {
            Ok(listener) => (listener.local().text(), 0),
            Err(error) => (address.text(), error.to_errno()),
        };
        trace::listen(local.address_c(), local.port_c(), error);
        let listener = listener?;
        this.xprt.set_local(listener.local())?;
        *this.listener.lock() = Some(listener);
        Ok(this)
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
        let listener = this.listener.lock().take();
        // Waits for its handler.
        drop(listener);
    }

    fn free(this: &Arc<Self>) {
        Self::detach(this);
        loop {
            let Ok(incoming) = this.requests.lock().remove(0) else {
                return;
            };
            // Rejects the peer, which sleeps.
            drop(incoming);
        }
    }
}
