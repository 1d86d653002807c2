// SPDX-License-Identifier: GPL-2.0

//! Fuzz target: two ends which may speak the earlier protocol with number two.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rpcrdma_proto::earlier::run(bytes);
});
