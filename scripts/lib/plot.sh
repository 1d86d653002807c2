# SPDX-License-Identifier: GPL-2.0
# A root for drawing: nothing but matplotlib, as Debian has it. Only `tools/bench
# --plot` needs it, so it is not part of the sysroot. Sourced, never run.

PLOT_PACKAGES=python3-matplotlib
PLOT_ROOT=$RPCRDMA_CACHE/plot-$(key_of 1 "$SUITE" "$PLOT_PACKAGES")

make_plot_root() {
	local result=$1

	make_root "$result" "$PLOT_PACKAGES"
	result "matplotlib $(chroot "$result.tmp" python3 -c 'import matplotlib; print(matplotlib.__version__)')"
	clear_directory "$result"
	mv "$result.tmp" "$result"
}

setup_plot() {
	step "plot" "$PLOT_ROOT" 2 make_plot_root
}
