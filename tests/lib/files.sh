# SPDX-License-Identifier: GPL-2.0
# The files of the tree, for cases in tests/host. Sourced, never run.

# Prints all files that git has or would add, each followed by NUL; without git, all files that
# are not build products.
files() {
	[ -e .git ] && git -c safe.directory='*' ls-files -z --cached --others --exclude-standard 2>/dev/null ||
		find . -type f ! -path './.git' ! -path './.git/*' ! -path './deb/*' ! -path './htmldocs/*' \
			! -path '*/target/*' ! -path '*/__pycache__/*' ! -name '*_generated.rs' \
			! -name '*_generated.h' ! -name '*.o' ! -name '*.ko' ! -name '*.mod*' ! -name '.*.cmd' \
			! -name '*.pyc' ! -name '*.symvers' ! -name 'modules.order' -print0
}

# Prints the names of scripts for the given interpreters: scripts_for bash sh
scripts_for() {
	local pattern

	pattern=$(IFS='|' && echo "$*")
	files | xargs -0 awk 'FNR == 1 && /^#!.*[\/ ]('"$pattern"')( |$)/ { print FILENAME } { nextfile }'
}
