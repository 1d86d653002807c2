#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# For a kernel that has another ib_core, rdma_cm or sunrpc than its own nothing is built, and why
# is said. guest/foreign-core.py has the same for what is loaded.
set -eu -o pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RPCRDMA_ROOT=$work/root RPCRDMA_STATE=$work/root/var/lib/rpcrdma
release=$(cat "$KDIR/include/config/kernel.release")
modules=$RPCRDMA_ROOT/lib/modules/$release

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# stand_in FILE [MARK]: a module that has only what modinfo tells of it.
echo 'int nothing;' | gcc -c -x c -o "$work/nothing.o" -
stand_in() {
	printf '%s\0' "name=$(basename "$1" .ko)" ${2:+"$2"} >"$work/information"
	mkdir -p "$(dirname "$1")"
	objcopy --add-section .modinfo="$work/information" "$work/nothing.o" "$1"
}

# A kernel's own modules.
own() {
	rm -rf "$RPCRDMA_ROOT"
	stand_in "$modules/kernel/drivers/infiniband/core/ib_core.ko" intree=Y
	stand_in "$modules/kernel/drivers/infiniband/core/rdma_cm.ko" intree=Y
	stand_in "$modules/kernel/net/sunrpc/sunrpc.ko" intree=Y
	stand_in "$modules/kernel/net/sunrpc/xprtrdma/rpcrdma.ko" intree=Y
}

accepted() {
	local said

	said=$(scripts/check-kdir --core "$release" 2>&1) || fail "refused with $1: $said"
	[ -z "$said" ] || fail "said with $1: $said"
}

# refused WHAT: it is said what there is, in one line, and what to do, by all that would build.
refused() {
	local said status=0

	if said=$(scripts/check-kdir "$KDIR" 2>&1); then
		fail "check-kdir accepts $1"
	fi
	[[ $said == "error: Linux $release: $1 replaces the kernel's own module"$'\n'* ]] ||
		fail "check-kdir with $1: $said"
	[[ $said == *"Remove the packages that it is from"* ]] || fail "not said what to do: $said"
	[ "$(scripts/check-kdir --core "$release" 2>&1)" = "$said" ] ||
		fail "--core says something else of $1"
	# No build directory is made before, which takes minutes.
	said=$(SOURCE=$work/none scripts/dkms-build "$release" "$work" 2>&1) || status=$?
	[ "$status" = 77 ] && [[ $said == *"$1"* ]] || fail "dkms-build with $1: status $status, $said"
	grep -qF "$1" "$RPCRDMA_STATE/failed-$release" || fail "no reason is left for $1"
}

accepted "no modules at all"
own
accepted "the kernel's own modules"
# Where OFED's packages put them, by DKMS, by RPM, and where a kernel is updated under them.
for name in ib_core rdma_cm sunrpc; do
	for place in updates/dkms updates/drivers/infiniband/core extra/mlnx-ofa_kernel \
		weak-updates/mlnx-ofa_kernel; do
		own
		stand_in "$modules/$place/$name.ko"
		refused "$modules/$place/$name.ko"
	done
done
# Compressed in a way that modinfo does not know.
own
install -D /dev/null "$modules/updates/dkms/ib_core.ko.other"
refused "$modules/updates/dkms/ib_core.ko.other"
# In the kernel's own place.
own
stand_in "$modules/kernel/drivers/infiniband/core/ib_core.ko"
refused "$modules/kernel/drivers/infiniband/core/ib_core.ko"
: >"$modules/kernel/drivers/infiniband/core/ib_core.ko"
accepted "a module that modinfo cannot read, where the kernel's own is"
# Another kernel's, and a file that is no such module.
own
stand_in "${modules}x/updates/ib_core.ko"
stand_in "$modules/updates/ib_core_more.ko"
stand_in "$modules/updates/dkms/rpcrdma.ko"
accepted "modules that are not in the way"

# Loaded in the running kernel, though it has no file.
own
loaded=$RPCRDMA_ROOT/sys/module/ib_core
mkdir -p "$loaded"
for taint in '' E; do
	echo "$taint" >"$loaded/taint"
	scripts/check-kdir --core "$(uname -r)" || fail "refused with the taint '$taint'"
done
echo OE >"$loaded/taint"
! said=$(scripts/check-kdir --core "$(uname -r)" 2>&1) || fail "a foreign ib_core is loaded"
[[ ${said%%$'\n'*} == *"$loaded (loaded now) replaces the kernel's own module" ]] || fail "with a foreign ib_core loaded: $said"
accepted "another kernel running"

# The package says so of each kernel, and does not take the other's rpcrdma for ours.
own
version=7.2.1-amd64
tree=$RPCRDMA_ROOT/usr/src/rpcrdma-$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' dkms.conf)
install -D -t "$tree" dkms.conf
install -D -t "$tree/scripts" scripts/check-kdir
install -D /dev/null "$RPCRDMA_ROOT/lib/modules/$version/kernel/net/sunrpc/xprtrdma/rpcrdma.ko"
install -D /dev/null "$RPCRDMA_ROOT/lib/modules/$version/updates/dkms/rpcrdma.ko"
said=$(packaging/kernels 2>&1) || true
[[ $said == *"$version loads this module"* ]] || fail "kernels: $said"
stand_in "$RPCRDMA_ROOT/lib/modules/$version/updates/dkms/ib_core.ko"
# The other kernel is newer.
stand_in "$modules/updates/dkms/rpcrdma.ko"
said=$(packaging/kernels --build 2>&1) || fail "kernels ends with $?: $said"
[[ $said == *"WARNING: $version cannot have this module:"$'\n'"rpcrdma:   error: "*ib_core.ko* ]] ||
	fail "kernels: $said"
[[ $said != *"$version loads"* ]] || fail "kernels: $said"
stand_in "$modules/updates/dkms/ib_core.ko"
! packaging/kernels --build >/dev/null 2>&1 || fail "kernels is content with the newest kernel"

# The module looks at the same ones when it is loaded.
core=$(sed -n 's/^CORE="\(.*\)"$/\1/p' scripts/check-kdir)
own=$(sed -n '/^const CORE/s/.* = \[\(.*\)\];/\1/p' rust/rpcrdma_main.rs)
[ "$(sed 's/c"\([a-z_]*\)",\{0,1\}/\1/g' <<<"$own")" = "$core" ] ||
	fail "the module looks at $own, not at $core"
