# SPDX-License-Identifier: GPL-2.0
# Two roots for Debian packages of the module: one in which they are made and the plug-in
# of sos is tried, and a fresh one in which a test installs them. No test but that needs
# either, so they are not part of the sysroot. Sourced, never run.

PACKAGING_PACKAGES="debhelper dh-dkms dpkg-dev fakeroot lintian python3 sos"
PACKAGING_ROOT=$RPCRDMA_CACHE/packaging-$(key_of 1 "$SUITE" "$PACKAGING_PACKAGES")

# What an NFS machine has whose RDMA device is rxe. No kernel: the test installs it.
FRESH_PACKAGES="ca-certificates initramfs-tools iproute2 kmod libnss-systemd nfs-common
	nfs-kernel-server procps rdma-core udev"
FRESH_ROOT=$RPCRDMA_CACHE/fresh-$(key_of 1 "$SUITE" "$FRESH_PACKAGES")

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

# With the suite that has the kernels, as a user adds it: its mirror is the root's own.
make_fresh_root() {
	local result=$1 root=$1.tmp

	# shellcheck disable=SC2086
	make_root "$result" $FRESH_PACKAGES
	sed -n "s/^\(deb .*\) $SUITE main$/\1 $SUITE-backports main/p" "$root"/etc/apt/sources.list \
		>"$root/etc/apt/sources.list.d/backports.list"
	[ -s "$root/etc/apt/sources.list.d/backports.list" ] || die "no mirror of $SUITE in $root/etc/apt"
	enter "$root" apt-get -q update
	enter "$root" apt-cache pkgnames linux-source-7 | grep -q . ||
		die "the package archive has no kernel in $SUITE-backports"
	result "$SUITE with $(wc -l <"$result.packages") packages"
	clear_directory "$result"
	mv "$root" "$result"
}

setup_fresh() {
	step "fresh root" "$FRESH_ROOT" 4 make_fresh_root
}
