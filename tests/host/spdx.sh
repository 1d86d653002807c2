#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every file that can hold a comment names its licence.
set -eu
missing=$(find . -type f ! -path './.git/*' ! -path '*/target/*' ! -name '*_generated.rs' \
	! -name LICENSE ! -name '*.lock' ! -name '*.o' ! -name '*.ko' ! -name '*.mod*' \
	! -name '.*.cmd' ! -name '*.pyc' ! -path '*/corpus/*' ! -path '*/artifacts/*' ! -name '*.symvers' \
	! -name 'modules.order' -print0 |
	xargs -0 grep -L 'SPDX-License-Identifier' || true)
[ -z "$missing" ] || {
	echo "without an SPDX line:"
	echo "$missing"
	exit 1
}
