// SPDX-License-Identifier: GPL-2.0

//! The "xprt: rdma" line of /proc/self/mountstats: 27 numbers, whose order programs rely on.

use crate::client::transport::Client;
use crate::kext::time::HZ;
use kernel::seq_file::SeqFile;
use kernel::seq_print;

/// Prints the line.
pub(super) fn print(client: &Client, m: &SeqFile) {
    let xprt = client.xprt.stats();
    let own = &client.requester.stats;
    // The local port: RDMA has none.
    let port = 0;
    seq_print!(
        m,
        "\txprt:\trdma {} {} {} {} {} {} {} {} {} {} ",
        port,
        xprt.bind_count,
        xprt.connect_count,
        xprt.connect_time / HZ,
        xprt.idle_time / HZ,
        xprt.sends,
        xprt.recvs,
        xprt.bad_xids,
        xprt.requests_in_flight,
        xprt.backlog,
    );
    seq_print!(
        m,
        "{} {} {} {} {} {} {} {} {} {} {} ",
        own.read_segments.get(),
        own.write_segments.get(),
        own.reply_segments.get(),
        own.bytes_offered.get(),
        own.bytes_written.get(),
        own.pullup_bytes.get(),
        own.copied_bytes.get(),
        own.hardway_bytes.get(),
        own.failed_marshal.get(),
        own.bad_replies.get(),
        own.nomsg_calls.get(),
    );
    // The last one counted Replies that waited for their Sends. Here no Reply ever does.
    let reply_waits = 0;
    seq_print!(
        m,
        "{} {} {} {} {} {}\n",
        own.regions_recycled.get(),
        own.regions_orphaned.get(),
        own.regions_allocated.get(),
        own.local_invalidations.get(),
        own.send_queue_full.get(),
        reply_waits,
    );
}
