// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: the credits of Version One.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::credits(bytes));
