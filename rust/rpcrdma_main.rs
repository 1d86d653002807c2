// SPDX-License-Identifier: GPL-2.0

//! RPC-over-RDMA transport for SUNRPC.

use kernel::prelude::*;

#[deny(unsafe_code)]
mod client;
#[deny(unsafe_code)]
mod endpoint;
mod kext;
#[deny(unsafe_code)]
mod link;
mod observe;
#[deny(unsafe_code)]
mod proto;
mod rdma;
#[deny(unsafe_code)]
mod requester;
#[deny(unsafe_code)]
mod responder;
#[deny(unsafe_code)]
mod server;
mod sunrpc;
mod sys;

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
        shared_receives: u32 {
            default: 4294967295,
            description: "Most Receives that connections share on a device (default by memory)",
        },
        shared_receives_iwarp: u32 {
            default: 0,
            description: "The same for devices of iWARP, in place of shared_receives",
        },
    },
}

/// The loaded module. Its parts are dropped in the order of declaration.
struct RpcRdma {
    /// No new transports from the moment that this is dropped; there are none left by then.
    _client: client::Registration,
    /// Likewise, for the server end.
    _server: server::Registration,
    _debugfs: kext::debugfs::Root,
    /// Without them the transport works with its defaults.
    _tunables: Option<sunrpc::Tunables>,
}

impl Drop for RpcRdma {
    fn drop(&mut self) {
        // An administrator may still set another one; so this may be in vain.
        kext::host_key::forget();
    }
}

impl kernel::Module for RpcRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        server::prepare();
        let debugfs = kext::debugfs::Root::new();
        // Before the sysctls, since only this tells whether the kernel has such a transport
        // already.
        let client = client::Registration::new()?;
        let server = server::Registration::new()?;
        Ok(Self {
            _client: client,
            _server: server,
            _debugfs: debugfs,
            _tunables: sunrpc::Tunables::register().ok(),
        })
    }
}
