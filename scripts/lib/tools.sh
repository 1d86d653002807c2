# SPDX-License-Identifier: GPL-2.0
# Two roots that only some kernels need, and no test of `make check`, so that they are not part
# of the sysroot: one with all that the sysroot has, a compiler for arm64, an emulator of it,
# and what gendwarfksyms is built with; and one of arm64, which is that of its guests.
# Sourced, never run.

TOOLS_PACKAGES="$SYSROOT_PACKAGES gcc-aarch64-linux-gnu libdw-dev qemu-system-arm"
TOOLS_ROOT=$RPCRDMA_CACHE/tools-$(key_of 1 "$SUITE" "$TOOLS_PACKAGES")

ARM64_PACKAGES="acl attr busybox-static e2fsprogs ethtool fio gawk ibverbs-providers
	ibverbs-utils iproute2 kmod less mount netbase nfs-common nfs-kernel-server nfs4-acl-tools
	perftest procps python3 python3-pyverbs rdma-core rdmacm-utils rpcbind strace tcpdump
	util-linux"
ARM64_ROOT=$RPCRDMA_CACHE/arm64-root-$(key_of 1 "$SUITE" "$ARM64_PACKAGES" "${SYSROOT##*-}")

# Says whether a kernel is one for arm64.
is_arm64() {
	[[ $1 == arm64* ]]
}

make_tools_root() {
	local result=$1

	# shellcheck disable=SC2086
	make_root "$result" $TOOLS_PACKAGES
	mkdir -p "$result.tmp/usr/lib/modules"
	result "gcc $(chroot "$result.tmp" aarch64-linux-gnu-gcc -dumpfullversion), $(chroot "$result.tmp" qemu-system-aarch64 --version | head -n 1)"
	clear_directory "$result"
	mv "$result.tmp" "$result"
}

# The packages are unpacked and no more: their scripts do not run on this machine. What these
# would have made comes from the sysroot, which has the same packages.
make_arm64_root() {
	local result=$1 root=$1.tmp file

	# shellcheck disable=SC2086
	ROOT_ARCHITECTURE=arm64 make_root "$result" $ARM64_PACKAGES
	for file in passwd group shadow gshadow nsswitch.conf nfs.conf idmapd.conf; do
		cp -a "$SYSROOT/etc/$file" "$root/etc/"
	done
	ln -sf gawk "$root/usr/bin/awk"
	mkdir -p "$root/usr/lib/modules"
	result "$(wc -l <"$result.packages") packages of $SUITE for arm64"
	clear_directory "$result"
	mv "$root" "$result"
}

setup_tools() {
	setup_sysroot
	step "tools root" "$TOOLS_ROOT" 5 make_tools_root
}

setup_arm64() {
	setup_tools
	step "arm64 root" "$ARM64_ROOT" 2 make_arm64_root
}
