#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every fuzz target runs for $ROUNDS seconds without a finding. cargo test has what was kept of former runs.
# soak: only
# timeout: 900 9000
# rounds: 2 600
set -eu
tools/fuzz/run "$ROUNDS"
