// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA protocol core in user space.
//!
//! The core is the code of the kernel module, unchanged. Its unit tests, which are KUnit suites in
//! the kernel, run here under `cargo test`, together with property tests. What fuzz targets and
//! benchmarks need of it is in [`oracle`], [`pair`] and [`workload`]; the core itself stays
//! private, as it is in the module.

// A library: not all of it is of use here.
#[allow(dead_code, unused_imports)]
#[path = "../../rust/proto/mod.rs"]
mod proto;

// The decisions of a server about its clients.
#[cfg(test)]
#[path = "../../rust/policy/mod.rs"]
mod policy;

// Of the module's extensions what needs no kernel.
#[cfg(test)]
#[path = "../../rust/kext/waiting.rs"]
mod waiting;

pub mod earlier;
mod headers;
mod host;
pub mod literal;
pub mod oracle;
pub mod pair;
pub mod targets;
pub mod workload;

#[cfg(test)]
mod properties;

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod standard;
