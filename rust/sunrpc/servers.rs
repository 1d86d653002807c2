// SPDX-License-Identifier: GPL-2.0

//! What clients have found out about the servers of this machine.
//!
//! A mount makes one transport, `nconnect` several, and each connects again and again. All of them share what one has
//! found out: whether a server speaks Version Two. So a server that says nothing at all is waited for once.
//!
//! # Who owns what, and what ends it
//!
//! There is one table ([`Table`]) for the module, as old as that, with a fixed number of places. A spinlock protects
//! it; it is taken by connecting workers, for the time of a search, and nothing else is taken inside it. A server is named by
//! its address, port, and network namespace: the cookie of a namespace is never used again, so nothing is referred to and
//! nothing has to be taken out when a namespace ends. An administrator who sets the version that clients offer
//! has all servers asked anew.

use super::{
    address::{
        AddressText,
        Net,
        SockAddr, //
    },
    tunables, //
};
use crate::{
    proto::session::memory::{
        Attempt,
        Outcome,
        Table, //
    },
    sys, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full, //
    },
};

/// How many servers are remembered. The one that was learnt longest ago makes room.
const SERVERS: usize = 64;

/// A server as a client sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Server {
    /// The cookie of the network namespace that it is reached from.
    namespace: u64,
    /// Its address and port.
    address: AddressText,
}

impl Server {
    /// The server at an address.
    pub(crate) fn new(net: Net<'_>, address: &SockAddr<'_>) -> Self {
        Self {
            // SAFETY: The transport holds a reference to the namespace.
            namespace: unsafe { sys::net_cookie(net.as_ptr()) },
            address: address.text(),
        }
    }

    /// Whether to offer Version Two to it on a connection that is made now, `now` being in seconds.
    pub(crate) fn offers_two(&self, now: u64) -> bool {
        let mut known = KNOWN.lock();
        known.refresh();
        known.table.offers_two(self, now)
    }

    /// Notes what became of an offer of Version Two. All times are in seconds.
    pub(crate) fn record(&self, outcome: Outcome, attempt: &Attempt) {
        let mut known = KNOWN.lock();
        known.refresh();
        known.table.record(self, outcome, attempt);
    }
}

/// What the lock protects.
struct Known {
    /// The servers.
    table: Table<Server, SERVERS>,
    /// How often the version to be offered had been set when they were met.
    settings: u32,
}

impl Known {
    /// Forgets everything if the version to be offered was set since.
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

/// Makes the table usable. Called before a transport can be made.
pub(super) fn init() {
    static DONE: Atomic<u32> = Atomic::new(0);
    if DONE.xchg(1, Full) == 0 {
        // SAFETY: This is the first and only time.
        unsafe { KNOWN.init() };
    }
}
