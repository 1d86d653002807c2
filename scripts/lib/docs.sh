# SPDX-License-Identifier: GPL-2.0
# A root with what builds and checks the documentation, the scripts and the Python files. The
# cases of tests/host with `root: docs` and `make htmldocs` run in it. It is not part of the
# sysroot, so that a new version of a checker rebuilds no kernel. Sourced, never run.

DOCS_PACKAGES="ca-certificates codespell git graphviz make mypy perl python3-pip python3-sphinx
	shellcheck"
# Debian has no ruff; it comes from the Python registry.
DOCS_RUFF=0.12.5
DOCS_ROOT=$RPCRDMA_CACHE/docs-$(key_of 1 "$SUITE" "$DOCS_PACKAGES" "$DOCS_RUFF")

make_docs_root() {
	local result=$1 root=$1.tmp

	# shellcheck disable=SC2086
	make_root "$result" $DOCS_PACKAGES
	enter "$root" pip3 --no-cache-dir install --quiet --root-user-action ignore \
		--break-system-packages "ruff==$DOCS_RUFF"
	result "$(enter "$root" sphinx-build --version), $(enter "$root" ruff --version)"
	clear_directory "$result"
	mv "$root" "$result"
}

setup_docs() {
	step "docs root" "$DOCS_ROOT" 2 make_docs_root
}
