#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The protocol core in user space: unit and property tests, and its lints.
# timeout: 900 3600
set -eu
cd tools
# Of two sessions back to back, for each of four properties.
[ "$SOAK" != 1 ] || export SCHEDULES=100000
cargo test --locked --color never
cargo clippy --locked --all-targets --color never -- -D warnings
