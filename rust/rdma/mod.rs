// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of the kernel's RDMA verbs and of its connection manager.
//!
//! Nothing here depends on RPC-over-RDMA, on SUNRPC, or on other rooms than `kext` and `sys`.

pub(crate) mod cm;
pub(crate) mod completion;
pub(crate) mod device;
pub(crate) mod dma;
pub(crate) mod posting;
pub(crate) mod protection_domain;
pub(crate) mod receive_buffer;
pub(crate) mod region;
pub(crate) mod rw;
pub(crate) mod send_queue;
pub(crate) mod shared_receive_queue;
mod work_request;
