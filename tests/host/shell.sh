#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every shell script passes shellcheck, and every C file the kernel's checkpatch.
# setup: docs source
# root: docs
# timeout: 300
set -eu -o pipefail

. tests/lib/files.sh

# SC1007: `a= b=1` sets both to what they say. SC1090, SC1091: parts are sourced by computed names.
scripts_for bash sh | xargs shellcheck --severity=warning --exclude=SC1007,SC1090,SC1091

# A QEMU plugin is no kernel code.
files | grep -z '\.[ch]$' | grep -zv '^\(\./\)\?tools/' >/tmp/sources
[ -s /tmp/sources ]
# AVOID_EXTERNS: the compiler calls this function of cover.c. COMPLEX_MACRO and
# MULTISTATEMENT_MACRO_USE_DO_WHILE: parts of trace events. VSPRINTF_POINTER_EXTENSION: the argument
# of %pA in log.c is from Rust. PREFER_PR_LEVEL: without dynamic debug there is no pr_debug().
# CONST_STRUCT: a ctl_table that is filled at run time.
types=AVOID_EXTERNS,COMPLEX_MACRO,MULTISTATEMENT_MACRO_USE_DO_WHILE,VSPRINTF_POINTER_EXTENSION
types+=,PREFER_PR_LEVEL,CONST_STRUCT
xargs -0 "$LINUX/scripts/checkpatch.pl" --no-tree --terse --show-types --quiet --no-summary \
	--ignore "$types" -f </tmp/sources
