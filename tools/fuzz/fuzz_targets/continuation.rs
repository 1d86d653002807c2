// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: splitting and assembling RPC messages.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::continuation(bytes));
