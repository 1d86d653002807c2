// SPDX-License-Identifier: GPL-2.0

//! The views of a connection of the server: that it was accepted, and its files in debugfs.
//!
//! Each file has one `name: value` per line. A reader takes locks of the connection for a moment,
//! and nothing that the end of the connection waits for: [`Connection::free`](super::Connection)
//! removes the directory before it does anything else, which waits for readers, and holds no lock
//! then.

use super::Connection;
use crate::endpoint::Endpoint;
use crate::kext::debugfs::{
    files,
    lines,
    Directory,
    File,
    Inspect, //
};
use crate::kext::prelude::*;
use crate::observe::trace::{
    self,
    Number, //
};
use crate::proto::message::Version;
use crate::sunrpc::AddressText;
use kernel::seq_file::SeqFile;

/// Says that no connection was made of a request.
pub(in crate::server) fn refused(number: Number, peer: &AddressText, error: Error) {
    let (address, port, error) = (peer.address_c(), peer.port_c(), error.to_errno());
    trace::accept(number, address, port, c"", 0, 0, 0, 0, false, error);
}

/// Says whether a connection was accepted. If so, SUNRPC is about to know it, and will free it: so
/// it can be looked into from now on.
pub(super) fn accepted(number: Number, peer: &AddressText, accepted: &Result<Arc<Connection>>) {
    let connection = match accepted {
        Ok(connection) => connection,
        Err(error) => return refused(number, peer, *error),
    };
    let endpoint = connection.endpoint();
    let device = endpoint.as_ref().map_or(c"", |e| e.device_name());
    let credits = connection.channel.allowance().granted();
    let agreed = connection.channel.in_one().agreed();
    trace::accept(
        number,
        peer.address_c(),
        peer.port_c(),
        device,
        agreed.send_inline,
        agreed.receive_inline,
        credits,
        connection.read_depth.into(),
        agreed.remote_invalidation,
        0,
    );
    trace::grant(number, credits, 0);
    // Without memory for it, the connection does without.
    let directory = Directory::new(number, connection.clone()).ok();
    *connection.directory.lock() = directory;
}

impl Connection {
    /// The endpoint, until the connection is freed.
    fn endpoint(&self) -> Option<Arc<Endpoint<Self>>> {
        let owner = self.owner.lock();
        owner.as_ref().map(|owner| owner.endpoint().clone())
    }

    /// Says what was agreed on. The first Receives may be longer than a message of Version One.
    pub(in crate::server) fn tell_agreement(&self) {
        if self.channel.version() == Some(Version::One) {
            if let Some(link) = self.link() {
                let size = self.channel.in_one().own.receive_size;
                link.endpoint().resize_receives(size);
            }
        }
        self.channel
            .agreement()
            .tell(self.number, &self.addresses.0);
    }
}

impl Inspect for Connection {
    const FILES: &'static [File<Self>] = files![
        state, limits, credits => reset_credits, receives, send_queue, transfers, callback,
        counters, latency,
    ];
}

/// The peer that the connection leads to, and what was agreed.
fn state(connection: &Connection, m: &SeqFile) {
    let up = connection.established.load(Relaxed) && !connection.xprt.is_closing();
    let (remote, local) = &connection.addresses;
    lines!(m,
        "connected": u8::from(up),
        "address": remote.address(),
        "port": remote.port(),
        "local_address": local.address(),
        "local_port": local.port(),
    );
    if let Some(endpoint) = connection.endpoint() {
        let shares = endpoint.shares_receives();
        lines!(m,
            "device": endpoint.device_name().to_str().unwrap_or("?"),
            "receive_queue": if shares { "shared" } else { "own" },
        );
    }
    let agreed = connection.channel.in_one().agreed();
    lines!(m, "remote_invalidation": u8::from(agreed.remote_invalidation));
    connection.channel.show(m);
}

/// Prints the sizes that the connection was made with.
fn limits(connection: &Connection, m: &SeqFile) {
    let Some(endpoint) = connection.endpoint() else {
        return;
    };
    let sizes = endpoint.sizes();
    lines!(m,
        "receive_size": sizes.receive_size,
        "sends": sizes.sends,
        "send_size": sizes.send_size,
        "send_queue": sizes.send_queue.depth,
        "transfers": sizes.transfers,
        "transfer_sges": sizes.transfer_sges,
        "read_depth": connection.read_depth,
    );
}

/// Prints the credits of the peer, and its use of them.
fn credits(connection: &Connection, m: &SeqFile) {
    let (arrived, pulled) = connection.inbox.len();
    let allowance = connection.channel.allowance();
    lines!(m,
        "granted": allowance.granted(),
        "least_granted": connection.least_granted.load(Relaxed).min(allowance.granted()),
        "limit": allowance.limit(),
        "withdrawn": allowance.withdrawn(),
        "in_work": connection.stats.in_work(),
        "arrived": arrived,
        "pulled": pulled,
        "most_parked": connection.inbox.most_parked(),
    );
    connection.channel.show_windows(m);
}

/// Forgets the fewest credits and the most Calls behind one that waits.
fn reset_credits(connection: &Connection) {
    connection.least_granted.store(u32::MAX, Relaxed);
    connection.inbox.forget_parked();
}

/// Prints the Receives that are posted for the peer, or for all that share them with it.
fn receives(connection: &Connection, m: &SeqFile) {
    let Some(endpoint) = connection.endpoint() else {
        return;
    };
    endpoint.show_receives(m);
}

/// Prints the use of the Send Queue, and the items that wait for it.
fn send_queue(connection: &Connection, m: &SeqFile) {
    let Some(endpoint) = connection.endpoint() else {
        return;
    };
    endpoint.show_send_queue(m);
    lines!(m,
        "starved": u8::from(connection.starved.load(Relaxed)),
    );
}

/// Prints the use of RDMA Reads and Writes, and of Send buffers; and the same of all
/// connections.
fn transfers(connection: &Connection, m: &SeqFile) {
    let Some(endpoint) = connection.endpoint() else {
        return;
    };
    endpoint.show_quota(&Connection::quota(), m);
}

/// Calls to the peer, if there may be any.
fn callback(connection: &Connection, m: &SeqFile) {
    connection.with_callback(|callback| {
        let requester = callback.requester();
        lines!(m, "slots": super::callback::SLOTS);
        requester.show_credits(m);
        requester.stats.show(m);
    });
}

/// All that is counted on the connection.
fn counters(connection: &Connection, m: &SeqFile) {
    connection.stats.counts.show(m);
    lines!(m, "examined": connection.channel.examined());
}

/// Prints how many Replies took how long, from when a thread had the Call.
fn latency(connection: &Connection, m: &SeqFile) {
    connection.latencies.show(m);
}
