// SPDX-License-Identifier: GPL-2.0

//! The lines about an endpoint in files of debugfs.

use crate::endpoint::{
    Endpoint,
    EndpointEvents, //
};
use crate::kext::debugfs::lines;
use crate::kext::prelude::*;
use kernel::seq_file::SeqFile;

impl<H: EndpointEvents> Endpoint<H> {
    /// Writes the use of the Send Queue: work requests that are posted, and those that room is kept
    /// for; Send buffers, and those of them that are neither posted nor lent out; RDMA Reads and
    /// Writes that exist, posted or not; Calls whose RDMA Reads are posted.
    pub(crate) fn show_send_queue(&self, m: &SeqFile) {
        let gate = self.send.lock();
        let (posted, reserved) = gate.queue.used();
        lines!(m,
            "posted": posted,
            "reserved": reserved,
            "buffers": gate.queue.buffers(),
            "free_buffers": gate.free.len(),
            "transfers": gate.transfers,
            "pulls": gate.queue.reads(),
        );
    }

    /// Writes whether Receives are shared, how many the peer may use, and the use of the pool.
    pub(crate) fn show_receives(&self, m: &SeqFile) {
        let Some(pool) = &self.shared else {
            lines!(m, "shared": 0, "own": self.sizes.receives);
            return;
        };
        lines!(m, "shared": 1, "asked": self.asked.load(Relaxed));
        pool.show(m);
    }
}
