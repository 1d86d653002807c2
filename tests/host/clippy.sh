#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module compiles without a warning of clippy, with the kernel's own lints.
# timeout: 600
set -eu -o pipefail

copy=$MODULE_DIR-clippy
mkdir -p "$copy"
# What differs gets the time of now: make goes by that, and what is up to date was clean.
rsync -rlp --checksum --delete --exclude='*.o' --exclude='.*' --exclude='*_generated*' \
	--exclude=/log Kbuild rust include "$copy/"
if ! make -C "$KDIR" M="$copy" ARCH=um CLIPPY=1 modules 2>&1 | tee "$copy/log" ||
	grep -E '^(warning|error)' "$copy/log"; then
	# So that it is looked at again.
	rm -f "$copy/rust/rpcrdma_main.o"
	exit 1
fi
[ -e "$copy/rust/rpcrdma_main.o" ]
