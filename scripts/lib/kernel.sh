# SPDX-License-Identifier: GPL-2.0
# Test kernels that are built here: uml, uml-sanitize, uml-versions, debug, cfi,
# arm64-64k.
# Sourced, never run.
#
# $(kernel_dir NAME) holds
#   build/    the build directory, where modules are built against
#   modules/  lib/modules/RELEASE without rpcrdma
#   stock/rpcrdma.ko
#   image     what is booted: the UML program or a bzImage
#   release   what uname -r says

KERNELS="uml, uml-sanitize, uml-versions, debug, cfi, debian, arm64, arm64-16k, arm64-64k"
ARM64_FLAGS="ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-"

# Prints the fragments of a kernel.
kernel_fragments() {
	case $1 in
	uml) echo common uml fail speed ;;
	uml-sanitize) echo common uml sanitize lockdep uml-sanitize ;;
	uml-versions) echo common uml versions ;;
	debug) echo common qemu x86 sanitize lockdep ;;
	cfi) echo common qemu x86 versions cfi ;;
	arm64-64k) echo common qemu arm64 ;;
	*) die "no such kernel: $1 ($KERNELS)" ;;
	esac
}

# Prints the make variables of a kernel.
kernel_make_flags() {
	case $1 in
	uml | uml-versions) echo ARCH=um ;;
	uml-sanitize) echo ARCH=um LLVM=1 ;;
	debug | cfi) echo ARCH=x86_64 LLVM=1 ;;
	arm64-64k) echo "$ARM64_FLAGS" ;;
	debian | arm64*)
		if is_arm64 "$1"; then
			echo "$ARM64_FLAGS"
		else
			echo ARCH=x86_64
		fi
		echo LOCALVERSION="$(sed 's/^[0-9.]*//' "$(kernel_dir "$1")/release")"
		;;
	esac
}

# Prints the root that has a kernel's compiler, and its emulator.
tools_root() {
	case $1 in
	uml-versions | cfi | arm64*) echo "$TOOLS_ROOT" ;;
	*) echo "$SYSROOT" ;;
	esac
}

# Prints the root that a kernel's guests have.
guest_root() {
	if is_arm64 "$1"; then
		echo "$ARM64_ROOT"
	else
		echo "$SYSROOT"
	fi
}

# chroot_sysroot in the root that has a kernel's compiler: chroot_tools KERNEL COMMAND…
chroot_tools() {
	local root

	root=$(tools_root "$1")
	shift
	local SYSROOT=$root
	chroot_sysroot "$@"
}

kernel_dir() {
	local name=$1 fragment files=()

	case $name in
	debian)
		echo "$RPCRDMA_CACHE/kernel/debian-$(key_of 1 "${SOURCE##*-}")"
		return
		;;
	arm64 | arm64-16k)
		echo "$RPCRDMA_CACHE/kernel/$name-$(key_of 1 "${SOURCE##*-}" "${ARM64_ROOT##*-}")"
		return
		;;
	esac
	for fragment in $(kernel_fragments "$name"); do
		files+=("$SCRIPTS/kconfig/$fragment.config")
	done
	[ ! -e "$SCRIPTS/kconfig/$name.h" ] || files+=("$SCRIPTS/kconfig/$name.h")
	echo "$RPCRDMA_CACHE/kernel/$name-$(key_of 1 "${SOURCE##*-}" "$(kernel_make_flags "$name")" \
		"$(hash_files "${files[@]}")")"
}

# Dies if a kernel was set up and there is none, as when the package archive lacks it.
need_kernel() {
	local dir

	dir=$(kernel_dir "$1")
	[ ! -e "$dir/unavailable" ] ||
		die "no kernel $1: $(cat "$dir/unavailable"); to look again remove $dir.ok"
}

# Writes build/.config from tinyconfig and the fragments, and checks that every
# symbol got what was asked: olddefconfig drops silently what cannot be.
configure_kernel() {
	local name=$1 build=$2 fragment files=() line symbol value missed=()

	for fragment in $(kernel_fragments "$name"); do
		files+=("$SCRIPTS/kconfig/$fragment.config")
	done
	# shellcheck disable=SC2046
	{
		CHROOT_CWD=$SOURCE/linux chroot_tools "$name" make -s $(kernel_make_flags "$name") O="$build" tinyconfig
		CHROOT_CWD=$build chroot_sysroot "$SOURCE/linux/scripts/kconfig/merge_config.sh" \
			-m -Q -O "$build" "$build/.config" "${files[@]}" >"$build/merge.log"
		CHROOT_CWD=$build chroot_tools "$name" make -s $(kernel_make_flags "$name") olddefconfig
	}
	# The last fragment that names a symbol counts.
	while read -r line; do
		symbol=${line%%=*} value=${line#*=}
		if [ "$value" = n ]; then
			! grep -q "^$symbol=[ym]" "$build/.config" || missed+=("$line")
		else
			grep -qxF "$line" "$build/.config" || missed+=("$line")
		fi
	done < <(cat "${files[@]}" | awk -F= '/^CONFIG_/ { last[$1] = $0 } END { for (s in last) print last[s] }')
	[ ${#missed[@]} = 0 ] || die "kernel $name: not in the configuration: ${missed[*]}"
}

make_kernel() {
	local name=$1 result=$2 build=$2/build flags

	flags=$(kernel_make_flags "$name")
	mkdir -p "$build"
	# What is included in front of the network driver, see there.
	if [ -e "$SCRIPTS/kconfig/$name.h" ]; then
		cp "$SCRIPTS/kconfig/$name.h" "$build/"
		flags+=" CFLAGS_vector_kern.o=-include$build/$name.h"
	fi
	# The build directory is kept when a run is interrupted: make goes on there.
	[ -e "$result/configured" ] || configure_kernel "$name" "$build"
	touch "$result/configured"
	# shellcheck disable=SC2086
	CHROOT_CWD=$build chroot_tools "$name" make $flags -j$(($(nproc) + 1))
	install_kernel "$name" "$result"
}

# Puts beside the build directory what guests need.
install_kernel() {
	local name=$1 result=$2 build=$2/build release

	clear_directory "$result/modules"
	# shellcheck disable=SC2046
	CHROOT_CWD=$build chroot_tools "$name" make -s $(kernel_make_flags "$name") \
		INSTALL_MOD_PATH="$result/modules" modules_install
	release=$(ls "$result/modules/lib/modules")
	echo "$release" >"$result/release"
	rm -f "$result/modules/lib/modules/$release"/{build,source}
	take_stock_module "$result" "$release"
	case $name in
	uml*) ln -sfn build/linux "$result/image" ;;
	arm64*) ln -sfn build/arch/arm64/boot/Image "$result/image" ;;
	*) ln -sfn build/arch/x86/boot/bzImage "$result/image" ;;
	esac
	result "Linux $release, $(du -sh "$result" | cut -f 1)"
}

# Moves the stock rpcrdma out of the module directory. What modprobe cannot
# find, a request for a transport does not load behind our back.
take_stock_module() {
	local result=$1 release=$2 stock

	mkdir -p "$result/stock"
	stock=$(find "$result/modules/lib/modules/$release" -name 'rpcrdma.ko*')
	[ -n "$stock" ] || die "the kernel built no rpcrdma module"
	case $stock in
	*.xz) xz -dc "$stock" >"$result/stock/rpcrdma.ko" ;;
	*.zst) chroot "$SYSROOT" zstd -dcq <"$stock" >"$result/stock/rpcrdma.ko" ;;
	*) cp "$stock" "$result/stock/rpcrdma.ko" ;;
	esac
	rm "$stock"
	chroot_sysroot depmod -b "$result/modules" "$release"
}

make_kernel_uml() { make_kernel uml "$1"; }
make_kernel_uml_sanitize() { make_kernel uml-sanitize "$1"; }
make_kernel_uml_versions() { make_kernel uml-versions "$1"; }
make_kernel_debug() { make_kernel debug "$1"; }
make_kernel_cfi() { make_kernel cfi "$1"; }
make_kernel_arm64_64k() { make_kernel arm64-64k "$1"; }

setup_kernel() {
	local name=$1

	setup_source
	! is_arm64 "$name" || setup_arm64
	[[ " uml-versions cfi " != *" $name "* ]] || setup_tools
	case $name in
	uml) step "kernel uml" "$(kernel_dir uml)" 3 make_kernel_uml ;;
	uml-sanitize) step "kernel uml-sanitize" "$(kernel_dir uml-sanitize)" 6 make_kernel_uml_sanitize ;;
	uml-versions) step "kernel uml-versions" "$(kernel_dir uml-versions)" 4 make_kernel_uml_versions ;;
	debug) step "kernel debug" "$(kernel_dir debug)" 5 make_kernel_debug ;;
	debian) step "kernel debian" "$(kernel_dir debian)" 3 make_kernel_debian ;;
	cfi) step "kernel cfi" "$(kernel_dir cfi)" 8 make_kernel_cfi ;;
	arm64) step "kernel arm64" "$(kernel_dir arm64)" 3 make_kernel_arm64 ;;
	arm64-16k) step "kernel arm64-16k" "$(kernel_dir arm64-16k)" 3 make_kernel_arm64_16k ;;
	arm64-64k) step "kernel arm64-64k" "$(kernel_dir arm64-64k)" 5 make_kernel_arm64_64k ;;
	*) die "no such kernel: $name ($KERNELS)" ;;
	esac
}
