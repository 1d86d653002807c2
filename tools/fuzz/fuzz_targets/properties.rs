// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: sets of transport properties.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::properties(bytes));
