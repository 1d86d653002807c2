// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: the Version Two header.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::v2_message(bytes));
