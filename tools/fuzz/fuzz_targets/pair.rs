// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: two sessions back to back, over any order of events; ends that give up, ends that
//! wait, and ends with which something is wrong.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rpcrdma_proto::pair::run(bytes);
    rpcrdma_proto::pair::run_patiently(bytes, false);
    rpcrdma_proto::pair::run_in_trouble(bytes);
});
