// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: what a peer says to authenticate itself.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::auth(bytes));
