// SPDX-License-Identifier: GPL-2.0

//! Decisions of a server about its clients, as pure code: which request to connect is accepted
//! next, and when; which connection may have more memory; whose transfers are stalled.
//!
//! Like [`proto`](crate::proto) it uses `core` only: it does not allocate, reads no clock and
//! touches no kernel type. So it is compiled twice: as part of the kernel module, and in the crate
//! under `tools/`, where a simulation drives it with many clients, honest and others, in virtual
//! time. What the decisions are about stays with those who ask: memory, queues, and their locks.

#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

pub(crate) mod accept;
pub(crate) mod budget;
pub(crate) mod stall;
