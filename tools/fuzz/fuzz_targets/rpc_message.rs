// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: Calls and Replies of both versions, and how a Call is put together.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma_proto::oracle::rpc_message(bytes));
