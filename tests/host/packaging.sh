#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# What is installed is what modprobe takes; a build directory that will not do is told as such.
set -eu -o pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
release=$(cat "$KDIR/include/config/kernel.release")
installed=$work/root/lib/modules/$release

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# Which rpcrdma modprobe would load.
chosen() {
	modinfo -b "$work/root" -k "$release" -F filename rpcrdma
}

# The stock module where a kernel's own installation has it, ours beside it.
install -D -t "$installed/kernel/net/sunrpc/xprtrdma" "$KDIR/../stock/rpcrdma.ko"
touch "$installed"/modules.{order,builtin}
depmod -b "$work/root" "$release"
[[ $(chosen) == */kernel/net/sunrpc/xprtrdma/rpcrdma.ko ]] || fail "before: $(chosen)"
make -s KDIR="$KDIR" M="$MODULE_DIR" INSTALL_MOD_PATH="$work/root" modules_install
depmod -b "$work/root" "$release"
[[ $(chosen) == */updates/rpcrdma.ko ]] || fail "modprobe would take $(chosen)"
for name in xprtrdma svcrdma rpcrdma6; do
	[ "$(modinfo -b "$work/root" -k "$release" -F filename "$name")" = "$(chosen)" ] ||
		fail "$name is not this module"
done

# Also where updates/ comes last, if our example is there.
mkdir -p "$work/depmod.d"
echo 'search built-in updates' >"$work/depmod.d/search.conf"
depmod -b "$work/root" -C "$work/depmod.d" "$release"
[[ $(chosen) == */kernel/* ]] || fail "the order of search was not reversed: $(chosen)"
cp packaging/depmod.d/rpcrdma.conf "$work/depmod.d/"
depmod -b "$work/root" -C "$work/depmod.d" "$release"
[[ $(chosen) == */updates/rpcrdma.ko ]] || fail "with the example modprobe would take $(chosen)"

# modprobe understands the example, and what is only a comment there.
modprobe -C packaging/modprobe.d -c >/dev/null
sed 's/^#\(options\|install\|blacklist\)/\1/' packaging/modprobe.d/rpcrdma.conf >"$work/all.conf"
modprobe -C "$work/all.conf" -c | grep -qx 'options rpcrdma max_region_pages=30' ||
	fail "the options of the example"

# A build directory that is right, and some that are not.
scripts/check-kdir "$KDIR" || fail "$KDIR is refused"

# refused TEXT: check-kdir fails for $work/kdir and says TEXT.
refused() {
	local said

	if said=$(scripts/check-kdir "$work/kdir" 2>&1); then
		fail "accepted, but: $1"
	fi
	[[ $said == error:*"$1"* ]] || fail "told '$said', not '$1'"
}

mkdir -p "$work/kdir"
refused "no build directory"
grep -v '^CONFIG_RUST=' "$KDIR/.config" >"$work/kdir/.config"
refused "without CONFIG_RUST"
sed 's/^CONFIG_SUNRPC_XPRT_RDMA=m/CONFIG_SUNRPC_XPRT_RDMA=y/' "$KDIR/.config" >"$work/kdir/.config"
refused "built in"
cp "$KDIR/.config" "$work/kdir/.config"
refused "lacks the metadata of the kernel's Rust crates"
ln -s "$KDIR/rust" "$work/kdir/rust"
scripts/check-kdir "$work/kdir" || fail "refused with all that is needed"
sed -i 's/^\(CONFIG_RUSTC_VERSION_TEXT="rustc 1\.\)/\19/' "$work/kdir/.config"
refused "is not the compiler"

# make-kdir: nothing is made without headers, source, and a source of the kernel's version.
made() {
	HEADERS=$KDIR SOURCE=$1 scripts/make-kdir "$release" "$work/made" 2>&1
}

if said=$(HEADERS=$work scripts/make-kdir "$release" "$work/made" 2>&1) || [[ $said != *"Install the package linux-headers-$release"* ]]; then
	fail "make-kdir without headers: $said"
fi
if said=$(made "$work/none") || [[ $said != *"Install the package linux-source-"* ]]; then
	fail "make-kdir without a source: $said"
fi
mkdir -p "$work/source"
printf 'olddefconfig prepare modules_prepare:\n\tmkdir -p $(O)/include/config && echo 1.2.3 >$(O)/include/config/kernel.release\n' \
	>"$work/source/Makefile"
if said=$(made "$work/source") || [[ $said != *"is that of Linux 1.2.3, not of $release"* ]]; then
	fail "make-kdir with another source: $said"
fi

# What DKMS reads, as it does: with these variables set.
kernelver=$release kernel_source_dir=$KDIR
. ./dkms.conf
[ "${MAKE[0]}" = "make KDIR=$KDIR modules" ] || fail "dkms.conf: ${MAKE[0]}"
$PRE_BUILD || fail "dkms.conf: $PRE_BUILD"
[[ $release =~ $BUILD_EXCLUSIVE_KERNEL ]] || fail "dkms.conf passes over $release"
[[ 6.12.0 =~ $BUILD_EXCLUSIVE_KERNEL ]] && fail "dkms.conf builds for 6.12.0"
for option in $BUILD_EXCLUSIVE_CONFIG; do
	grep -q "^$option=[ym]" "$KDIR/.config" || fail "dkms.conf: $option"
done
# Two modules without a version are the same to DKMS: it would keep the stock one.
[ "$(modinfo -F version "$MODULE_DIR/rpcrdma.ko")" = "$PACKAGE_VERSION" ] ||
	fail "the module's version is not that of dkms.conf"
[ "$BUILT_MODULE_NAME" = rpcrdma ] || fail "dkms.conf: $BUILT_MODULE_NAME"
