// SPDX-License-Identifier: GPL-2.0

//! The RPC-over-RDMA protocol as pure code.
//!
//! This code decodes and encodes messages, and takes the decisions that depend on sizes alone. It
//! uses `core` only: it does not allocate, reads no clock, logs nothing, touches no kernel type and
//! cannot panic. This allows compiling it twice: as part of the kernel module, and in the crate
//! under `tools/`, where property tests, fuzz targets and benchmarks run it in user space. Each
//! `mod tests` runs under KUnit as well as under `cargo test`.
//!
//! Everything received is untrusted. A decoder checks a message once, as a whole; the views it
//! returns borrow from the received bytes and iterate without errors.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]
#![warn(clippy::alloc_instead_of_core, clippy::std_instead_of_core)]

pub(crate) mod auth;
pub(crate) mod chunk;
pub(crate) mod cm_private;
pub(crate) mod connection;
pub(crate) mod continuation;
pub(crate) mod credits;
pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod message;
mod prelude;
pub(crate) mod props;
pub(crate) mod rules;
pub(crate) mod session;
pub(crate) mod v1;
pub(crate) mod v2;
pub(crate) mod v2_2016;
pub(crate) mod window;
pub(crate) mod xdr;

#[cfg(any(test, rpcrdma_kunit))]
mod testing;
