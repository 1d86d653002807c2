#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every fuzz target is built, and runs for $ROUNDS seconds without a finding.
# timeout: 900 9000
# rounds: 2 600
set -eu
if [ "$SOAK" = 1 ]; then
	FUZZ_PROFILE=release
else
	FUZZ_PROFILE=dev
	# What was found in former runs takes long to go through.
	FUZZ_DIR=$(mktemp -d)
	trap 'rm -rf "$FUZZ_DIR"' EXIT
	export FUZZ_DIR
fi
export FUZZ_PROFILE
tools/fuzz/run "$ROUNDS"
