# SPDX-License-Identifier: GPL-2.0
# The root in which Debian packages of the module are made. Only that needs it, so it
# is not part of the sysroot. Sourced, never run.

PACKAGING_PACKAGES="debhelper dh-dkms dpkg-dev fakeroot lintian"
PACKAGING_ROOT=$RPCRDMA_CACHE/packaging-$(key_of 1 "$SUITE" "$PACKAGING_PACKAGES")

make_packaging_root() {
	local result=$1

	# shellcheck disable=SC2086
	make_root "$result" $PACKAGING_PACKAGES
	result "debhelper $(chroot "$result.tmp" dpkg-query -W -f '${Version}' debhelper)"
	clear_directory "$result"
	mv "$result.tmp" "$result"
}

setup_packaging() {
	step "packaging root" "$PACKAGING_ROOT" 2 make_packaging_root
}
