#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module compiles without a warning of clippy, with the kernel's own lints.
# timeout: 600
set -eu -o pipefail

copy=$MODULE_DIR-clippy
clean=$copy.clean
mkdir -p "$copy"
# What differs gets the time of now: make goes by that.
rsync -rlp --checksum --delete --exclude='*.o' --exclude='.*' --exclude='*_generated*' \
	--exclude=/log Kbuild rust include "$copy/"
# What is up to date is not looked at again, so it has to be known that it was clean: the last
# run may have found something, or have been ended before it looked.
[ -e "$clean" ] || rm -f "$copy/rust/rpcrdma_main.o"
rm -f "$clean"
make -C "$KDIR" M="$copy" ARCH=um CLIPPY=1 modules 2>&1 | tee "$copy/log"
if grep -E '^(warning|error)' "$copy/log"; then
	exit 1
fi
[ -e "$copy/rust/rpcrdma_main.o" ]
touch "$clean"
