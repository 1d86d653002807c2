#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Unsafe code stands only where it may, and each block says why it holds.
set -eu

# Code without comments and strings' contents, as FILE:LINE:TEXT.
code() {
	find "$@" -name '*.rs' ! -name '*_generated.rs' -print0 |
		xargs -0 grep -nE '\bunsafe\b' |
		grep -vE '^[^:]+:[0-9]+:\s*//' |
		grep -vE 'deny\(unsafe|forbid\(unsafe|unsafe_op_in_unsafe_fn|unsafe_code' || true
}

status=0
for part in rust/*; do
	case $part in
	rust/sys | rust/kext | rust/rdma | rust/sunrpc | rust/observe) continue ;;
	esac
	found=$(code "$part")
	if [ -n "$found" ]; then
		echo "unsafe where it must not be:"
		echo "$found"
		status=1
	fi
done

# A block or an impl must have its SAFETY comment right above, attributes and
# the beginning of the statement apart.
find rust -name '*.rs' ! -name '*_generated.rs' -print0 | xargs -0 awk '
	FNR == 1 { seen = -100 }
	/\/\/ SAFETY:/ { seen = FNR; last = FNR }
	/^[ \t]*\/\// { if (seen == last && last == FNR - 1) { seen = FNR; last = FNR }; next }
	/(^|[^a-z_])unsafe (\{|impl)/ && !/unsafe_op/ {
		if (FNR - seen > 4) { print FILENAME ":" FNR ": unsafe without a SAFETY comment"; bad = 1 }
	}
	END { exit bad }' || status=1
exit $status
