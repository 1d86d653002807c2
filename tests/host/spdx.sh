#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every file that can hold a comment names its licence.
set -eu

. tests/lib/files.sh

# A patch has the licence of what it changes.
missing=$(files | grep -zvE '(^|/)LICENSE$|^(\./)?(debian/(changelog|source/format)|REVISION)$|\.(lock|patch)$|/(corpus|artifacts)/' |
	xargs -0 grep -sL 'SPDX-License-Identifier' || true)
[ -z "$missing" ] || {
	echo "without an SPDX line:"
	echo "$missing"
	exit 1
}
