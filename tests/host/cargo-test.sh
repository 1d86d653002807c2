#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The protocol core in user space: unit and property tests, and its lints.
# timeout: 900 3600
set -eu
cd tools
# Of two sessions back to back, for each of four properties.
[ "$SOAK" != 1 ] || export SCHEDULES=100000
# Clippy's compiler also makes the programs, so nothing is compiled twice.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
cargo test --locked --workspace --exclude rpcrdma-proto-bench --color never
# The benchmarks have large dependencies of their own.
[ "$SOAK" != 1 ] || cargo clippy --locked -p rpcrdma-proto-bench --benches --color never -- -D warnings
