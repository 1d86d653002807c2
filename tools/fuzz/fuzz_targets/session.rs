// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: a session, its owner and its peer doing anything at all.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::session(bytes));
