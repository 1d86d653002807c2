// SPDX-License-Identifier: GPL-2.0

//! To see into the module: trace events, and counters.
//!
//! The files in debugfs are `kext::debugfs`, and what is in them is said by who knows it
//! (`client::inspect`, `server::connection::inspect`).
//!
//! Nothing here knows what is being observed; everybody may use it.

pub(crate) mod counters;
pub(crate) mod trace;
