// SPDX-License-Identifier: GPL-2.0

//! Extensions of the in-tree `kernel` crate.
//!
//! These are small safe wrappers of generic kernel facilities that the crate lacks. None of them
//! depends on RDMA or RPC.

pub(crate) mod barrier;
pub(crate) mod completion;
pub(crate) mod debugfs;
pub(crate) mod delayed_work;
pub(crate) mod device_memory;
pub(crate) mod errno;
pub(crate) mod fifo;
pub(crate) mod handover;
pub(crate) mod host_key;
pub(crate) mod log;
pub(crate) mod machine;
pub(crate) mod memalloc;
pub(crate) mod module_ref;
pub(crate) mod net;
pub(crate) mod num;
pub(crate) mod origin;
pub(crate) mod page_fragment;
pub(crate) mod prelude;
pub(crate) mod ratelimit;
pub(crate) mod time;
pub(crate) mod waiting;
