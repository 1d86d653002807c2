#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every file that can hold a comment names its licence.
set -eu

# What git has, and what it would take; without git all that no build makes.
files() {
	[ -e .git ] && git -c safe.directory='*' ls-files -z --cached --others --exclude-standard 2>/dev/null ||
		find . -type f ! -path './.git' ! -path './.git/*' ! -path './deb/*' ! -path '*/target/*' \
			! -name '*_generated.rs' ! -name '*_generated.h' ! -name '*.o' ! -name '*.ko' ! -name '*.mod*' \
			! -name '.*.cmd' ! -name '*.pyc' ! -name '*.symvers' ! -name 'modules.order' -print0
}

# A patch has the licence of what it changes.
missing=$(files | grep -zvE '(^|/)LICENSE$|^(\./)?(debian/(changelog|source/format)|REVISION)$|\.(lock|patch)$|/(corpus|artifacts)/' |
	xargs -0 grep -sL 'SPDX-License-Identifier' || true)
[ -z "$missing" ] || {
	echo "without an SPDX line:"
	echo "$missing"
	exit 1
}
