#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# ruff and mypy find no mistake in the Python files.
# setup: docs
# root: docs
# timeout: 300
set -eu -o pipefail

. tests/lib/files.sh

# B023: closures over a loop's variable, all of which are called before the loop goes on.
{
	files | grep -z '\.py$'
	scripts_for python3 | tr '\n' '\0'
} | sort -zu | xargs -0 ruff check --no-cache --select F,B,E9 --ignore B023 --quiet \
	--output-format concise

check() {
	mypy --no-incremental --cache-dir=/dev/null --ignore-missing-imports --no-error-summary \
		--scripts-are-modules "$@"
}

# Cases in tests/guest are left out: some have the name of a file in tests/lib.
(cd tests/lib && check ./*.py)
check tools/rpcrdma-top tools/rpcrdma-report tools/rpcrdma-pathd tools/sabotage tools/mutants
