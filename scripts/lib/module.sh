# SPDX-License-Identifier: GPL-2.0
# Our module, built for each test kernel in a copy of the sources, so that the
# tree stays clean and kernels do not share objects. Sourced, never run.

# What the module is made of.
MODULE_SOURCES=(Kbuild rust include tests/kmod)

# Whether the module has its KUnit suites. What is measured is without.
MODULE_KUNIT=${MODULE_KUNIT:-y}
# Whether what is reached in it is counted, by a module of the tests that is inserted before.
MODULE_COVERAGE=${MODULE_COVERAGE:-n}
[ "$MODULE_COVERAGE" = n ] || MODULE_KUNIT=n

# The copy for a kernel: one for each tree that uses this cache.
module_dir() {
	local name

	name=$(key_of "$TREE")-$(basename "$(kernel_dir "$1")")
	if [ "$MODULE_COVERAGE" = y ]; then
		name+=-coverage
	elif [ "$MODULE_KUNIT" != y ]; then
		name+=-plain
	fi
	echo "$RPCRDMA_CACHE/module/$name"
}

# The module itself. Its path has the hash of its sources, so that a guest that
# runs keeps the one it started with. A caller that wants the same one all along
# sets MODULE_HASH.
module_ko() {
	echo "$(module_dir "$1")/ko-${MODULE_HASH:-$(module_sources_hash)}/rpcrdma.ko"
}

# Prints a hash over names and contents of the module's sources.
module_sources_hash() {
	have_module_sources || return 0
	(
		cd "$TREE"
		find "${MODULE_SOURCES[@]}" -type f \
			! -name '*.o' ! -name '*.ko' ! -name '*.mod' ! -name '*.mod.c' \
			! -name '*_generated*' ! -name '.*' -print0 |
			sort -z | xargs -0 sha256sum
	) | sha256sum | cut -c 1-10
}

have_module_sources() {
	[ -e "$TREE/Kbuild" ] && [ -d "$TREE/rust" ]
}

make_module() {
	local kernel=$1 result=$2 dir sources=() options

	dir=$(module_dir "$kernel")
	mkdir -p "$dir"
	# One at a time, also of different sources.
	exec {build_lock}>"$dir/.lock"
	flock "$build_lock"
	sources=("${MODULE_SOURCES[@]/#/$TREE/}")
	# What differs gets the time of now: make goes by that, and other sources may be older.
	chroot_sysroot rsync -rlp --checksum --delete \
		--exclude='*.o' --exclude='*.ko' --exclude='*.mod' --exclude='*.mod.c' \
		--exclude='.*' --exclude='*.symvers' --exclude='modules.order' \
		--exclude='*_generated*' --exclude='ko-*' --exclude='/siw' --exclude='/rxe' "${sources[@]}" "$dir/"
	options=(KUNIT="$MODULE_KUNIT" COVERAGE="$MODULE_COVERAGE")
	# The modules of the tests, see tests/kmod. One of them may export what ours needs.
	# shellcheck disable=SC2046
	CHROOT_CWD=$dir/kmod chroot_tools "$kernel" make $(kernel_make_flags "$kernel") \
		-C "$(kernel_dir "$kernel")/build" M="$dir/kmod" "${options[@]}" modules
	[ -e "$dir/kmod/rdmatap.ko" ] || die "the build made no rdmatap.ko"
	[ "$MODULE_COVERAGE" = n ] || options+=(KBUILD_EXTRA_SYMBOLS="$dir/kmod/Module.symvers")
	# shellcheck disable=SC2046
	CHROOT_CWD=$dir chroot_tools "$kernel" make $(kernel_make_flags "$kernel") \
		-C "$(kernel_dir "$kernel")/build" M="$dir" "${options[@]}" -j"$(nproc)" modules
	[ -e "$dir/rpcrdma.ko" ] || die "the build made no rpcrdma.ko"
	mkdir -p "$result"
	cp "$dir/rpcrdma.ko" "$dir/kmod/rdmatap.ko" "$result/"
	[ ! -e "$dir/kmod/hca/hca.ko" ] || cp "$dir/kmod/hca/hca.ko" "$result/"
	[ ! -e "$dir/kmod/cover/cover.ko" ] || cp "$dir/kmod/cover/cover.ko" "$result/"
	make_device "$kernel" siw siw "$dir/siw" "$result"
	# On the distribution's kernel its own one is used.
	[[ " debian arm64 arm64-16k " == *" $kernel "* ]] || make_device "$kernel" rxe rdma_rxe "$dir/rxe" "$result"
}

# The kernel's siw or rxe with the mistakes mended that tests would stumble over,
# see tests/kmod: make_device KERNEL NAME MODULE DIR RESULT. The module becomes
# NAME.ko in RESULT. Where the kernel has none there is nothing to make.
make_device() {
	local kernel=$1 name=$2 module=$3 dir=$4 result=$5 patch hash

	find "$(kernel_dir "$kernel")/modules" -name "$module.ko*" | grep -q . || return 0
	hash=$(hash_files "$TREE"/tests/kmod/"$name"/*.patch)
	if [ "$(cat "$dir/.patched" 2>/dev/null)" != "$hash" ]; then
		clear_directory "$dir"
		cp -r "$SOURCE/linux/drivers/infiniband/sw/$name/." "$dir/"
		# What another version of the kernel has mended is left out.
		for patch in "$TREE"/tests/kmod/"$name"/*.patch; do
			chroot_sysroot patch -N -p5 -d "$dir" -i "$patch" ||
				echo "${patch##*/} does not apply to this kernel"
		done
		echo "$hash" >"$dir/.patched"
	fi
	# shellcheck disable=SC2046
	CHROOT_CWD=$dir chroot_tools "$kernel" make $(kernel_make_flags "$kernel") \
		-C "$(kernel_dir "$kernel")/build" M="$dir" modules
	[ ! -e "$dir/$module.ko" ] || cp "$dir/$module.ko" "$result/$name.ko"
}

make_module_uml() { make_module uml "$1"; }
make_module_uml_sanitize() { make_module uml-sanitize "$1"; }
make_module_uml_versions() { make_module uml-versions "$1"; }
make_module_debug() { make_module debug "$1"; }
make_module_cfi() { make_module cfi "$1"; }
make_module_debian() { make_module debian "$1"; }
make_module_arm64() { make_module arm64 "$1"; }
make_module_arm64_16k() { make_module arm64-16k "$1"; }
make_module_arm64_64k() { make_module arm64-64k "$1"; }

# Builds the module for a kernel if its sources changed since the last time.
setup_module() {
	local kernel=$1 dir hash

	setup_kernel "$kernel"
	have_module_sources || return 0
	[ ! -e "$(kernel_dir "$kernel")/unavailable" ] || return 0
	dir=$(module_dir "$kernel")
	mkdir -p "$dir"
	find "$dir" -maxdepth 1 -name 'ko-*' -mtime +1 -exec rm -rf {} +
	step "module for $kernel" "$(dirname "$(module_ko "$kernel")")" 1 "make_module_${kernel//-/_}"
}
