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
mod policy;
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
    description: "RPC-over-RDMA transport for NFS, in Rust",
    license: "GPL",
    alias: ["xprtrdma", "svcrdma", "rpcrdma6"],
    params: {
        max_region_pages: u32 {
            default: 0,
            description: "Maximum pages per memory region; 0 = device limit (default 0)",
        },
        shared_receives: u32 {
            default: 0,
            description: "Ignored (default 0)",
        },
        shared_receives_iwarp: u32 {
            default: 0,
            description: "Ignored (default 0)",
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

/// The modules whose structures this one reads and writes.
const CORE: [&CStr; 3] = [c"ib_core", c"rdma_cm", c"sunrpc"];

/// Checks that they are the kernel's own, and writes a line to the log if not.
///
/// A vendor's stack of drivers brings others under the same names, whose structures are laid out as
/// in its own headers. Nothing else would notice: symbols have the same names, and few kernels keep
/// their types beside them (`MODVERSIONS`).
fn check_core() -> Result {
    for name in CORE {
        if kext::origin::is_foreign(name) {
            pr_err!(
                "not loading: {name} was not built with this kernel (MLNX_OFED?); remove that \
                 stack, or load the rpcrdma that it provides\n"
            );
            return Err(ENOEXEC);
        }
    }
    Ok(())
}

impl kernel::Module for RpcRdma {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        check_core()?;
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
