// SPDX-License-Identifier: GPL-2.0

//! RPC-over-RDMA transport for SUNRPC.

use kernel::prelude::*;

#[deny(unsafe_code)]
mod client;
#[allow(dead_code)]
mod kext;
#[deny(unsafe_code)]
mod link;
#[allow(dead_code)]
#[deny(unsafe_code)]
mod proto;
#[deny(unsafe_code)]
mod requester;
#[allow(dead_code)]
mod sunrpc;
mod sys;
#[allow(dead_code)]
mod verbs;

module! {
    type: RpcRdma,
    name: "rpcrdma",
    authors: ["The rpcrdma authors"],
    description: "RPC-over-RDMA transport",
    license: "GPL",
    alias: ["xprtrdma", "svcrdma", "rpcrdma6"],
    params: {
        max_region_pages: u32 {
            default: 0,
            description: "Pages per memory region at most; 0 for what the device can do",
        },
    },
}

/// The loaded module. Its parts are dropped in the order of declaration.
struct RpcRdma {
    /// No new transports from the moment that this is dropped; there are none left by then.
    _client: client::Registration,
    _tunables: sunrpc::Tunables,
}

impl kernel::Module for RpcRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let tunables = sunrpc::Tunables::register()?;
        Ok(Self {
            _client: client::Registration::new()?,
            _tunables: tunables,
        })
    }
}
