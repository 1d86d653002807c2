// SPDX-License-Identifier: GPL-2.0

//! To see into the module: trace events and debugfs.
//!
//! Nothing here knows what is being observed; everybody may use it.

pub(crate) mod debugfs;
pub(crate) mod trace;
