// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: the Read list, the Write list and chunks, and the check of returned chunks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::chunk_lists(bytes));
