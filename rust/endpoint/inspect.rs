// SPDX-License-Identifier: GPL-2.0

//! The lines about an endpoint in files of debugfs.

use crate::endpoint::{
    receive_memory,
    Endpoint,
    EndpointEvents, //
};
use crate::kext::debugfs::lines;
use crate::kext::prelude::*;
use kernel::seq_file::SeqFile;

impl<H: EndpointEvents> Endpoint<H> {
    /// Writes the use of the Send Queue: work requests that are posted, and those that room is kept
    /// for; Send buffers, and those of them that are neither posted nor lent out; RDMA Reads and
    /// Writes that exist, posted or not; Replies that wait, and Calls whose RDMA Reads do.
    pub(crate) fn show_send_queue(&self, m: &SeqFile) {
        let gate = self.send.lock();
        let (posted, reserved) = gate.queue.used();
        lines!(m,
            "posted": posted,
            "reserved": reserved,
            "buffers": gate.queue.buffers(),
            "free_buffers": gate.free.len(),
            "transfers": gate.transfers,
            "waiting": gate.replies.len(),
            "waiting_reads": gate.queue.waiting_reads(),
        );
    }

    /// Writes how many buffers hold messages of the peer, and the use of the queue, where that is
    /// shared; or how many Receive buffers there are, how many Receives the peer may count on and
    /// how many are posted or in use, their size in octets and the number of those that still have
    /// another one; and the octets of the Receives of all connections.
    pub(crate) fn show_receives(&self, m: &SeqFile) {
        if let Some(queue) = &self.shared {
            lines!(m, "held": self.held.load(Relaxed));
            queue.show(m);
            lines!(m, "all_octets": receive_memory());
            return;
        }
        let gate = self.receive.lock();
        lines!(m,
            "own": gate.stock.made(),
            "target": gate.stock.target(),
            "there": gate.there(),
            "size": gate.stock.size(),
            "other_size": gate.stock.unfit(),
            "all_octets": receive_memory(),
        );
    }
}
