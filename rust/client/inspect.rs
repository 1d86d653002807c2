// SPDX-License-Identifier: GPL-2.0

//! The files of a transport in debugfs.
//!
//! Each shows one `name: value` per line. What belongs to a connection is shown only while there is
//! one. A reader takes the locks of the data path for a moment, and keeps the connection's memory
//! (not the connection) while it prints.

use crate::client::transport::Client;
use crate::kext::debugfs::{
    files,
    lines,
    File,
    Inspect, //
};
use crate::kext::time::HZ;
use kernel::seq_file::SeqFile;

impl Inspect for Client {
    const FILES: &'static [File<Self>] =
        files![state, limits, credits, regions, counters, latency,];
}

/// The peer that the transport talks to, and what was agreed.
fn state(client: &Client, m: &SeqFile) {
    let peer = client.xprt.display();
    let link = client.requester.link();
    lines!(m,
        "connected": u8::from(client.xprt.is_connected() && link.is_some()),
        "address": peer.address(),
        "port": peer.port(),
        "reconnect_delay_ms": client.xprt.reestablish_timeout().saturating_mul(1000) / HZ,
    );
    let Some(link) = link else { return };
    lines!(m, "device": link.device().to_str().unwrap_or("?"));
    link.channel().show(m);
}

/// Prints the sizes that the connection was made with.
fn limits(client: &Client, m: &SeqFile) {
    let Some(link) = client.requester.link() else {
        return;
    };
    let sizes = link.endpoint().sizes();
    lines!(m,
        "region_depth": sizes.region_depth,
        "regions": sizes.regions,
        "receives": sizes.receives,
        "receive_size": sizes.receive_size,
        "sends": sizes.sends,
        "send_size": sizes.send_size,
        "send_queue": sizes.send_queue.depth,
    );
}

/// Credits, and the slots that may want them.
fn credits(client: &Client, m: &SeqFile) {
    lines!(m,
        "slots": client.xprt.max_reqs(),
        "in_use": client.xprt.credits_in_use(),
    );
    client.requester.show_credits(m);
}

/// The connection's memory regions.
fn regions(client: &Client, m: &SeqFile) {
    let Some(link) = client.requester.link() else {
        return;
    };
    let (allocated, lent, recycled) = link.endpoint().region_counts();
    lines!(m,
        "allocated": allocated,
        "lent": lent,
        "recycled": recycled,
    );
}

/// All that is counted, over all connections; first what SUNRPC counts.
fn counters(client: &Client, m: &SeqFile) {
    let xprt = client.xprt.stats();
    lines!(m,
        "connects": xprt.connect_count,
        "sends": xprt.sends,
        "receives": xprt.recvs,
        "bad_xids": xprt.bad_xids,
    );
    client.requester.stats.show(m);
    let reverse = &client.responder.counts;
    lines!(m,
        "reverse_reads": reverse.reads.get(),
        "reverse_writes": reverse.writes.get(),
        "reverse_invalidations": reverse.invalidations.get(),
        "reverse_refused": reverse.refused.get(),
    );
}

/// Prints how many Replies took how long, from the Send of the Call, over all connections.
fn latency(client: &Client, m: &SeqFile) {
    client.requester.latencies.show(m);
}
