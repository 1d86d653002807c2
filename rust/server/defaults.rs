// SPDX-License-Identifier: GPL-2.0

//! Limits of the server that follow the memory of the machine, unless an administrator sets them.
//!
//! What all clients together should take is at most 5/32 of the memory so, on machines with 6 GiB
//! or more: a 16th for Receives, a 16th for the pages of RDMA Reads and Writes, a 32nd for Send
//! buffers. Smaller machines have the least of each, which a server needs to be of use. Beyond that
//! each client has its first credits. Receives that connections share are among the others.

use crate::kext::machine;
use crate::kext::prelude::*;
use crate::link::channel::MESSAGE_SIZE;
use crate::module_parameters;
use crate::sunrpc::tunables;

/// A limit that follows the memory.
struct ByMemory {
    /// The divisor of the memory.
    part: u64,
    /// The octets of one of what is counted.
    unit: u64,
    /// The limit on the smallest machine.
    least: u32,
    /// The limit on the largest machine.
    most: u32,
}

impl ByMemory {
    /// Returns the limit on a machine with `memory` octets.
    fn on(&self, memory: u64) -> u32 {
        u32::try_from(memory / self.part / self.unit.max(1))
            .unwrap_or(u32::MAX)
            .clamp(self.least, self.most)
    }
}

/// MiB that RDMA Reads and Writes of all connections may have. No connection has more than a few
/// MiB of them, so there is an upper limit.
const TRANSFER_MEGABYTES: ByMemory = ByMemory {
    part: 16,
    unit: 1 << 20,
    least: 256,
    most: 16_384,
};

/// MiB that Receives should take at most. The smallest machine has
/// enough for half of the credits of 300 clients of Version One.
const RECEIVE_MEGABYTES: ByMemory = ByMemory {
    part: 16,
    unit: 1 << 20,
    least: 96,
    most: 16_384,
};

/// Send buffers that all connections may have, beyond their first ones.
const SEND_BUFFERS: ByMemory = ByMemory {
    part: 32,
    unit: MESSAGE_SIZE as u64,
    least: 16_384,
    most: 1 << 20,
};

/// Returns the number of Receives of `size` octets that connections of a device share: an eighth of
/// what all Receives should take. As many again may hold messages.
pub(super) fn shared_depth(size: u32) -> u32 {
    let memory = u64::from(tunables::receive_megabytes()) << 20;
    let shared = ByMemory {
        part: 8,
        unit: size.into(),
        least: 64,
        most: 16_384,
    };
    shared.on(memory)
}

/// Logs that a module parameter of earlier versions is set. Kernels hand its value out by value or
/// by reference.
fn ignore(name: &str, value: impl core::borrow::Borrow<u32>) {
    if *value.borrow() != 0 {
        pr_warn!("{name}: ignored; see own_receive_queues\n");
    }
}

/// Logs module parameters that are ignored, and has the sysctls begin with what suits the machine.
/// Called when the module is loaded, before there is a connection.
pub(crate) fn prepare() {
    ignore(
        "shared_receives",
        module_parameters::shared_receives.value(),
    );
    ignore(
        "shared_receives_iwarp",
        module_parameters::shared_receives_iwarp.value(),
    );
    let memory = machine::memory();
    tunables::set_transfer_megabytes(TRANSFER_MEGABYTES.on(memory));
    tunables::set_send_buffers(SEND_BUFFERS.on(memory));
    tunables::set_receive_megabytes(RECEIVE_MEGABYTES.on(memory));
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_server_defaults)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_transferred_follows_the_memory() {
        for (memory, megabytes, buffers, receives) in [
            (0, 256, 16_384, 96),
            (2 * GIB, 256, 16_384, 128),
            (16 * GIB, 1024, 43_690, 1024),
            (256 * GIB, 16_384, 699_050, 16_384),
            (u64::MAX, 16_384, 1 << 20, 16_384),
        ] {
            assert_eq!(TRANSFER_MEGABYTES.on(memory), megabytes);
            assert_eq!(RECEIVE_MEGABYTES.on(memory), receives);
            assert_eq!(SEND_BUFFERS.on(memory), buffers);
        }
    }

    #[test]
    fn no_more_than_a_part_of_a_machine() {
        for memory in [6 * GIB, 16 * GIB, 64 * GIB, 1024 * GIB] {
            let sum = (u64::from(RECEIVE_MEGABYTES.on(memory)) << 20)
                + (u64::from(TRANSFER_MEGABYTES.on(memory)) << 20)
                + u64::from(SEND_BUFFERS.on(memory)) * 12_288;
            assert!(sum <= memory / 32 * 5);
        }
    }
}
