#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every row of the conformance lists names a test, and each of these tests exists and can fail.
set -eu

# FILE::NAME of every test in the tree. A function that only helps others is none, nor is one in
# which nothing fails.
tests=$(python3 -B tests/lib/named_tests.py)

# check LIST ROWS: a list that has at least so many rows.
check() {
	TESTS=$tests awk -v least="$2" '
	BEGIN {
		count = split(ENVIRON["TESTS"], all, "\n")
		for (i = 1; i <= count; i++) known[all[i]] = 1
	}
	function finish() {
		if (row != "" && found == 0) {
			print FILENAME ":" line ": section " row " has no test"
			bad = 1
		}
		row = ""
	}
	/^   \* - ([0-9]|A\.|[BCDX] [0-9])/ {
		finish()
		row = $0; sub(/^   \* - /, "", row); line = FNR; found = 0; rows++
		next
	}
	/^[^ ]/ { finish() }
	row != "" {
		rest = $0
		while (match(rest, /``[^`]*::[a-z0-9_]+``/)) {
			name = substr(rest, RSTART + 2, RLENGTH - 4)
			rest = substr(rest, RSTART + RLENGTH)
			found++
			if (!(name in known)) {
				print FILENAME ":" FNR ": there is no test " name ", or it cannot fail"
				bad = 1
			}
		}
		if (/Departed from[^:]*$/) {
			getline more
			if (more !~ /:/) {
				print FILENAME ":" FNR ": a departure without a reason"
				bad = 1
			}
		}
	}
	END {
		finish()
		print FILENAME ": " rows + 0 " requirements"
		if (rows < least) bad = 1
		exit bad
	}' "$1"
}

bad=0
check Documentation/protocol/conformance.rst 130 || bad=1
check Documentation/protocol/conformance-one.rst 106 || bad=1
check Documentation/protocol/conformance-2016.rst 61 || bad=1
# With a directory of the RFCs and drafts as argument, the statements are compared with these.
python3 -B tests/lib/statements.py "$@" || bad=1
exit $bad
