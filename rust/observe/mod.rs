// SPDX-License-Identifier: GPL-2.0

//! Trace events, counters and histograms, by which the module is observed.
//!
//! The files in debugfs are made by `kext::debugfs`. Their contents come from the rooms that have
//! the state (`client::inspect`, `server::connection::inspect`).
//!
//! This room does not depend on the objects that are observed, so every room above may use it.

pub(crate) mod counters;
pub(crate) mod latency;
pub(crate) mod trace;
