#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module compiles without a warning of clippy, with the kernel's own lints.
# timeout: 600
set -eu -o pipefail

copy=$MODULE_DIR-clippy
mkdir -p "$copy"
rsync -a --delete --exclude='*.o' --exclude='.*' --exclude='*_generated*' \
	Kbuild rust include "$copy/"
# What is up to date is not looked at again.
rm -f "$copy/rust/rpcrdma_main.o"
make -C "$KDIR" M="$copy" ARCH=um CLIPPY=1 modules 2>&1 | tee "$copy/log"
if grep -E '^(warning|error)' "$copy/log"; then
	exit 1
fi
[ -e "$copy/rust/rpcrdma_main.o" ]
