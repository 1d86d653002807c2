// SPDX-License-Identifier: GPL-2.0

//! A table of what the clients of this machine have learnt about servers.
//!
//! A mount makes one transport, and several with `nconnect`; each connects again and again. They
//! share what one of them has learnt: whether a server speaks Version Two. So the wait for a server
//! that does not answer an offer at all happens once only.
//!
//! # Who owns what, and what ends it
//!
//! There is one table ([`Table`]) for the module, which lives as long as the module and has a fixed
//! number of places. A spinlock protects it. Connecting workers take it for the time of a search,
//! and no other lock is taken inside it. A server is named by its address, port, and network
//! namespace. The cookie of a namespace is never used again, so entries hold no reference, and none
//! has to be removed when a namespace ends. When an administrator sets the version that clients
//! offer, the table is cleared, and all servers are asked anew.

use super::{
    address::AddressText,
    tunables, //
};
use crate::kext::prelude::*;
use crate::{
    kext::net::{
        Net,
        SockAddr, //
    },
    proto::session::memory::{
        Attempt,
        Outcome,
        Table, //
    },
    sys, //
};

/// The number of servers that are remembered. The oldest entry makes room for a new one.
const SERVERS: usize = 64;

/// A server as a client sees it, by namespace and address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RememberedServer {
    /// The cookie of the network namespace that the server is reached from.
    namespace: u64,
    /// The server's address and port.
    address: AddressText,
}

impl RememberedServer {
    /// Makes the name of the server at an address.
    pub(crate) fn new(net: Net<'_>, address: &SockAddr<'_>) -> Self {
        Self {
            // SAFETY: The transport holds a reference to the namespace.
            namespace: unsafe { sys::net_cookie(net.as_ptr()) },
            address: address.text(),
        }
    }

    /// Returns whether to offer Version Two to the server on a connection that is made now. `now`
    /// is in seconds.
    pub(crate) fn offers_two(&self, now: u64) -> bool {
        let mut known = KNOWN.lock();
        known.refresh();
        known.table.offers_two(self, now)
    }

    /// Records the outcome of an offer of Version Two. All times are in seconds.
    pub(crate) fn record(&self, outcome: Outcome, attempt: &Attempt) {
        let mut known = KNOWN.lock();
        known.refresh();
        known.table.record(self, outcome, attempt);
    }
}

/// The state that the lock protects.
struct Known {
    /// The servers.
    table: Table<RememberedServer, SERVERS>,
    /// The number of times that the version to offer had been set when the entries were made.
    settings: u32,
}

impl Known {
    /// Clears the table if the version to offer was set since the entries were made.
    fn refresh(&mut self) {
        let settings = tunables::client_version_settings();
        if core::mem::replace(&mut self.settings, settings) != settings {
            self.table.clear();
        }
    }
}

kernel::sync::global_lock! {
    // SAFETY: `init` is called before there is a transport, and initializes it once.
    unsafe(uninit) static KNOWN: SpinLock<Known> = Known {
        table: Table::new(),
        settings: 0,
    };
}

/// Initialises the table. Called before a transport can be made.
pub(super) fn init() {
    static DONE: Atomic<u32> = Atomic::new(0);
    if DONE.xchg(1, Full) == 0 {
        // SAFETY: `DONE` was zero, so this is the first and only call.
        unsafe { KNOWN.init() };
    }
}
