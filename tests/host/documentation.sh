#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The pages build without a warning, have no misspelt word and no dead link, and name what the code
# has: parameters, files in debugfs, trace events, log lines.
# setup: docs
# root: docs
# timeout: 300
set -eu -o pipefail

. tests/lib/files.sh

status=0
sphinx-build -q -E -W --keep-going -b html Documentation /tmp/html || status=1
tools/pictures --check || status=1
files | grep -zvE '(^|/)LICENSE$|\.(svg|json|lock|patch)$' | \
	xargs -0 codespell --ignore-regex 'OLD: ``[^`]*``' || status=1
python3 -B tests/lib/documentation.py || status=1
exit $status
