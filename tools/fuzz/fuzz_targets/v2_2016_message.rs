// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: messages of the earlier protocol with number two.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::v2_2016_message(bytes));
