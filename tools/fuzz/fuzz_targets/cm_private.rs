// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: the private data of connection messages.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::cm_private(bytes));
