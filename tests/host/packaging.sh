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
refused "is not a kernel build directory"
grep -v '^CONFIG_RUST=' "$KDIR/.config" >"$work/kdir/.config"
refused "without CONFIG_RUST"
! scripts/check-kdir --options "$work/kdir" 2>/dev/null || fail "--options accepts what is refused"
sed 's/^CONFIG_SUNRPC_XPRT_RDMA=m/CONFIG_SUNRPC_XPRT_RDMA=y/' "$KDIR/.config" >"$work/kdir/.config"
refused "built in"
cp "$KDIR/.config" "$work/kdir/.config"
refused "lacks the metadata of the kernel's Rust crates"
ln -s "$KDIR/rust" "$work/kdir/rust"
scripts/check-kdir "$work/kdir" || fail "refused with all that is needed"
mkdir -p "$work/kdir/include/config"
for version in 6.12.9 7.1.0 7.1 4.2.1; do
	echo "$version" >"$work/kdir/include/config/kernel.release"
	refused "is Linux $version"
done
# One that is newer than what was tried is taken, and that is said.
for version in 7.4.0 7.10.1 8.0.0-rc1 10.2.0; do
	echo "$version" >"$work/kdir/include/config/kernel.release"
	said=$(scripts/check-kdir "$work/kdir" 2>&1) || fail "$version is refused: $said"
	[[ $said == note:*"$version"* ]] || fail "nothing said of $version: '$said'"
done
for version in 7.2.0 7.3.4+deb13-amd64; do
	echo "$version" >"$work/kdir/include/config/kernel.release"
	said=$(scripts/check-kdir "$work/kdir" 2>&1) || fail "$version is refused: $said"
	[ -z "$said" ] || fail "said of $version: $said"
done
rm -r "$work/kdir/include"

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
if said=$(made "$work/source") || [[ $said != *"is the source of Linux 1.2.3, not of $release"* ]]; then
	fail "make-kdir with another source: $said"
fi

[ ! -e "$work/made" ] || fail "make-kdir has left what was half made"
# Nor of a configuration that differs from the kernel's, as without one of the tools.
{
	printf 'olddefconfig:\n\tsed -i /^CONFIG_SUNRPC=/d $(O)/.config\nprepare: olddefconfig\nmodules_prepare:\n'
	printf '\tmkdir -p $(O)/include/config && echo %s >$(O)/include/config/kernel.release\n' "$release"
} >"$work/source/Makefile"
if said=$(made "$work/source") || [[ $said != *"the resulting configuration differs"*CONFIG_SUNRPC=* ]]; then
	fail "make-kdir with another configuration: $said"
fi
# With the same one it goes on, to what is missing then. What was somebody's stays.
sed -i 's/^\tsed .*/\ttrue/' "$work/source/Makefile"
mkdir -p "$work/made/theirs"
if said=$(made "$work/source") || [[ $said != *"lacks the metadata"* ]]; then
	fail "make-kdir with a source that has no Rust: $said"
fi
[ -d "$work/made/theirs" ] || fail "make-kdir has removed a directory that it did not make"
rm -r "$work/made"
# The compiler is the kernel's, whatever its name is and whatever rustc is. Without it nothing is made.
mkdir -p "$work/compilers" "$work/wanting"
printf '#!/bin/sh\necho rustc 1.2.3\n' >"$work/compilers/rustc"
chmod +x "$work/compilers/rustc"
series=$(rustc --version | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')
ln -s "$(command -v rustc)" "$work/compilers/rustc-$series"
sed -i 's/^\ttrue/\techo $(RUSTC) $(HOSTRUSTC)/' "$work/source/Makefile"
if said=$(PATH=$work/compilers:$PATH made "$work/source") || [[ $said != *"rustc-$series rustc-$series"$'\n'*"lacks the metadata"* ]]; then
	fail "make-kdir with a compiler of another name: $said"
fi
rm -rf "$work/made"
sed 's/^CONFIG_RUSTC_VERSION_TEXT=.*/CONFIG_RUSTC_VERSION_TEXT="rustc 1.2.4"/' "$KDIR/.config" >"$work/wanting/.config"
cp "$KDIR/Module.symvers" "$work/wanting/"
if said=$(HEADERS=$work/wanting SOURCE=$work/source scripts/make-kdir "$release" "$work/made" 2>&1) ||
	[[ $said != *"is not the compiler that the kernel of $work/wanting was built with"* ]]; then
	fail "make-kdir without the kernel's compiler: $said"
fi
[ ! -e "$work/made" ] || fail "make-kdir has begun without the kernel's compiler"

# What DKMS reads, as it does: with these variables set. The compilers are those of a kernel
# that has none, and says what it was called with.
mkdir -p "$work/kernel"
cp "$KDIR/.config" "$KDIR/Module.symvers" "$work/kernel/"
ln -s "$KDIR/rust" "$work/kernel/rust"
called=$work/called
printf 'modules:\n\t@echo $(CURDIR) $(M) $(RUSTC) $(KERNELRELEASE) >%s\n' "$called" >"$work/kernel/Makefile"
# dkms.conf reads both.
# shellcheck disable=SC2034
kernelver=$release kernel_source_dir=$work/kernel
export RPCRDMA_STATE=$work/state
. ./dkms.conf
[ "${MAKE[0]}" = "make KDIR=$work/kernel modules" ] || fail "dkms.conf: ${MAKE[0]}"
$PRE_BUILD >"$work/said" 2>&1 || fail "dkms.conf: $PRE_BUILD: $(<"$work/said")"
mv "$called" "$called.before"
# It puts this there.
${MAKE[0]/#make/make -s KERNELRELEASE=$kernelver} || fail "dkms.conf: ${MAKE[0]}"
cmp "$called.before" "$called" || fail "dkms would not find what was built: $(<"$called.before"), $(<"$called")"
[[ $release =~ $BUILD_EXCLUSIVE_KERNEL ]] || fail "dkms.conf passes over $release"
for version in 7.2.0 7.3.4+deb13-amd64 7.4.1 7.9 7.10.1 7.19.0-rc1 8.0.0 9.1 10.0.1 12.3.4-5-generic; do
	[[ $version =~ $BUILD_EXCLUSIVE_KERNEL ]] || fail "dkms.conf passes over $version"
done
for version in 6.12.0 7.0.1 7.1 7.1.20 7.1.2+deb14-amd64 1.2.3 2.7.2 5.10.7; do
	[[ ! $version =~ $BUILD_EXCLUSIVE_KERNEL ]] || fail "dkms.conf builds for $version"
done
for option in $BUILD_EXCLUSIVE_CONFIG; do
	grep -q "^$option=[ym]" "$KDIR/.config" || fail "dkms.conf: $option"
done
# Two modules without a version are the same to DKMS: it would keep the stock one.
[ "$(modinfo -F version "$MODULE_DIR/rpcrdma.ko")" = "$PACKAGE_VERSION" ] ||
	fail "the module's version is not that of dkms.conf"
[ "${BUILT_MODULE_NAME[0]}" = rpcrdma ] || fail "dkms.conf: ${BUILT_MODULE_NAME[0]}"

# What dkms runs first: a kernel that cannot have the module has the reason left for it, and
# the status is the one that lets dkms go on.
build() {
	scripts/dkms-build "$release" "$1" 2>&1
}
[ ! -e "$work/state/failed-$release" ] || fail "a reason for a kernel that is right"
[ ! -e "$work/state/failed-$release.log" ] || fail "a log for a kernel that is right"
mkdir -p "$work/headers"
cp "$KDIR/.config" "$KDIR/Module.symvers" "$work/headers/"
status=0
said=$(SOURCE=$work/none build "$work/headers") || status=$?
[ "$status" = 77 ] || fail "dkms-build without a source: status $status"
status=0
RPCRDMA_STATE=/dev/null/state scripts/dkms-build "$release" "$work/headers" >/dev/null 2>&1 || status=$?
[ "$status" = 77 ] || fail "dkms-build without a place for its notes: status $status"
[[ $said == *"Install the package linux-source-"* ]] || fail "dkms-build without a source: $said"
[ "$(head -n 1 "$work/state/failed-$release")" = "error: there is no $work/none" ] ||
	fail "the reason left: $(cat "$work/state/failed-$release")"
[ ! -e "$work/state/build-$release" ] || fail "dkms-build has left a build directory"
# What its configuration rules out is not made first.
sed -i 's/^CONFIG_SUNRPC_XPRT_RDMA=m/CONFIG_SUNRPC_XPRT_RDMA=y/' "$work/headers/.config"
said=$(SOURCE=$work/none build "$work/headers") || true
[[ $said == *"built in"* && $said != *"no $work/none"* ]] || fail "dkms-build with a stock module built in: $said"
cp "$KDIR/.config" "$work/headers/"
# A directory that is there already is taken, and the reason goes.
ln -s "$work/kernel" "$work/state/build-$release"
said=$(build "$work/headers") || fail "dkms-build with a directory that is there: $said"
[ ! -e "$work/state/failed-$release" ] || fail "the reason stays: $(cat "$work/state/failed-$release")"
rm "$work/state/build-$release"
# One that was made of other headers is made again, which fails here.
cp -r "$work/kernel" "$work/state/build-$release"
cat "$work/headers"/{.config,Module.symvers} | sha256sum >"$work/state/build-$release/.headers"
said=$(SOURCE=$work/none build "$work/headers") || fail "dkms-build with its own directory: $said"
echo "0x0 nothing vmlinux EXPORT_SYMBOL" >>"$work/headers/Module.symvers"
! SOURCE=$work/none build "$work/headers" >/dev/null || fail "dkms-build has taken an old directory"

# What the package says of the kernels that are installed, oldest first.
kernels=$work/kernels
stock=kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz
for version in 6.12.9-amd64 7.2.1-amd64 7.10.3-amd64; do
	install -D /dev/null "$kernels/lib/modules/$version/$stock"
done
tree=$kernels/usr/src/rpcrdma-$PACKAGE_VERSION
install -D -t "$tree" dkms.conf
install -D -t "$tree/scripts" scripts/check-kdir
mkdir -p "$kernels/lib/modules/7.2.1-amd64/build/include" "$kernels/var/lib/rpcrdma"/build-7.{1,2.1-amd64}{,.source}
echo 'error: there is no source' >"$kernels/var/lib/rpcrdma/failed-7.2.1-amd64"
touch "$kernels/var/lib/rpcrdma"/failed-7.1{,.log}

# told STATUS TEXT…: packaging/kernels ends with this status and says all this.
told() {
	local want=$1 said status=0 text

	shift
	said=$(RPCRDMA_ROOT=$kernels packaging/kernels 2>&1) || status=$?
	[ "$status" = "$want" ] || fail "kernels: status $status, not $want: $said"
	for text; do
		[[ $said == *"$text"* ]] || fail "kernels: told '$said', not '$text'"
	done
}

told 1 "6.12.9-amd64 loads the stock module; this one is for Linux 7.2" \
	"WARNING: 7.2.1-amd64 loads the STOCK module:"$'\n'"rpcrdma:   error: there is no source" \
	"WARNING: 7.10.3-amd64 loads the STOCK module:"$'\n'"rpcrdma:   it has no headers; install linux-headers-7.10.3-amd64"
[ ! -e "$kernels/var/lib/rpcrdma/build-7.1" ] || fail "the directory of a kernel that is gone stays"
[ ! -e "$kernels/var/lib/rpcrdma/build-7.1.source" ] || fail "the source of a kernel that is gone stays"
! compgen -G "$kernels/var/lib/rpcrdma/failed-7.1*" || fail "the reason for a kernel that is gone stays"
[ -e "$kernels/var/lib/rpcrdma/build-7.2.1-amd64.source" ] || fail "the source of a kernel was removed"
# dkms itself passes over one that lacks an option.
mkdir -p "$kernels/lib/modules/7.10.3-amd64/build/include"
grep -v '^CONFIG_RUST=' "$KDIR/.config" >"$kernels/lib/modules/7.10.3-amd64/build/.config"
told 1 "rpcrdma:   error: the kernel of $kernels/lib/modules/7.10.3-amd64/build was built without CONFIG_RUST"
install -D /dev/null "$kernels/lib/modules/7.10.3-amd64/updates/dkms/rpcrdma.ko.xz"
told 0 "7.10.3-amd64 loads this module" "WARNING: 7.2.1-amd64"
# A kernel without the stock module loads nothing in its place.
rm "$kernels/lib/modules/7.10.3-amd64"/{updates/dkms,kernel/net/sunrpc/xprtrdma}/*
told 0

# A kernel to come, which has all that is looked for, but which a compiler fails for: dkms goes
# on, its log has the compiler's words, and the reason is told by the package, and by the kernel's
# log once the stock module is loaded.
future=7.99.1-amd64
export RPCRDMA_STATE=$kernels/var/lib/rpcrdma
install -D /dev/null "$kernels/lib/modules/$future/$stock"
ln -s "$work/kernel" "$kernels/lib/modules/$future/build"
mkdir -p "$work"/kernel/include/config "$work/bin" "$kernels"/{dev,sys/module/rpcrdma}
echo "$future" >"$work/kernel/include/config/kernel.release"
printf '#!/bin/sh\necho %s\n' "$future" >"$work/bin/uname"
chmod +x "$work/bin/uname"

# loaded: what the kernel's log has when the stock module is loaded.
loaded() {
	: >"$kernels/dev/kmsg"
	RPCRDMA_ROOT=$kernels PATH=$work/bin:$PATH packaging/loaded || fail "loaded ends with $?"
	cat "$kernels/dev/kmsg"
}

error='error[E0061]: this function takes 3 arguments but 2 were supplied'
printf 'modules:\n\t@echo "%s" >&2; exit 1\n' "$error" >"$work/kernel/Makefile"
status=0
said=$(scripts/dkms-build "$future" "$kernels/lib/modules/$future/build" 2>&1) || status=$?
[ "$status" = 77 ] || fail "a compiler has failed: status $status: $said"
[[ $said == *"$error"* ]] || fail "dkms's log lacks what the compiler said: $said"
log=/var/lib/rpcrdma/failed-$future.log
grep -qxF "$error" "$kernels$log" || fail "the log that is kept: $(cat "$kernels$log")"
told 1 "WARNING: $future loads the STOCK module:"$'\n'"rpcrdma:   error: the build for Linux $future has failed" \
	"rpcrdma:          $error" "rpcrdma:          The log is $kernels$log."
said=$(loaded)
[[ $said == "<4>rpcrdma: the stock module was loaded instead of "*$'\n'"<4>rpcrdma: the build for Linux $future has failed; the log is $log" ]] ||
	fail "the kernel's log: $said"
# Once it can be built there is no word of it.
printf 'modules:\n' >"$work/kernel/Makefile"
said=$(scripts/dkms-build "$future" "$kernels/lib/modules/$future/build" 2>&1) || fail "a compiler that does not fail: $said"
! compgen -G "$kernels/var/lib/rpcrdma/failed-$future*" || fail "the reason stays"
said=$(loaded)
[[ $said == "<4>rpcrdma: the stock module was loaded instead of "* && $said != *$'\n'* ]] || fail "the kernel's log: $said"
touch "$kernels/sys/module/rpcrdma/version"
said=$(loaded)
[ -z "$said" ] || fail "this module is told as the stock one: $said"

# All that the packages install is there, and each option of a tool is in its manual page.
while read -r path _; do
	compgen -G "$path" >/dev/null || fail "a package installs $path, which is not there"
done < <(grep -hv '^#' debian/*.install debian/*.examples debian/*.docs debian/*.manpages)
grep -q '^packaging/grafana/.* usr/share/rpcrdma/grafana$' debian/rpcrdma-tools.install ||
	fail "no package has the dashboard"
for tool in rpcrdma-pathd rpcrdma-top rpcrdma-report; do
	for option in $(python3 -B "tools/$tool" --help | grep -o '^  --[a-z]*'); do
		grep -qF -- "${option//-/\\-}" "debian/$tool.8" || fail "$tool.8 does not tell of $option"
	done
done

# The packages have the version of the module.
[ "$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)" = "$PACKAGE_VERSION" ] || fail "debian/changelog has another version"
grep -q "rpcrdma-dkms_${PACKAGE_VERSION}_all.deb" README.md || fail "the README names another version of the package"

# What modinfo tells beside it: the revision is that of a file, else git's, else nothing.
[ -n "$(modinfo -F report "$MODULE_DIR/rpcrdma.ko")" ] || fail "modinfo does not tell where to report"
[ -z "$(modinfo -F revision "$MODULE_DIR/rpcrdma.ko")" ] || fail "a module built without git has a revision"
mkdir -p "$work/tree"
revision() {
	sh rust/sys/revision.sh "$work/tree"
}
[ -z "$(revision)" ] || fail "a directory without git has the revision $(revision)"
git init -q "$work/tree"
[ -z "$(revision)" ] || fail "a tree without a commit has the revision $(revision)"
git -C "$work/tree" -c user.name=n -c user.email=e commit -q --allow-empty -m first
[ "$(revision)" = "$(git -C "$work/tree" rev-parse --short=12 HEAD)" ] || fail "the revision is $(revision)"
echo 0.1-7-gabc >"$work/tree/REVISION"
[ "$(revision)" = 0.1-7-gabc ] || fail "the revision of the file is $(revision)"
echo 'not known' >"$work/tree/REVISION"
[ -z "$(revision)" ] || fail "what is no revision was taken for one: $(revision)"
