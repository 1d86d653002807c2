# SPDX-License-Identifier: GPL-2.0
# The kernels "debian", "arm64" and "arm64-16k": the distribution's own, unmodified, and
# a build directory that our module can be built in. Sourced, never run.
#
# Debian's headers have Module.symvers, but not the metadata of the kernel's
# Rust crates. Preparing the same source with the same configuration and the
# same compiler makes them, down to the hash in every symbol name.

# Prints what Debian calls the flavour of a kernel.
debian_flavour() {
	case $1 in
	debian) echo amd64 ;;
	*) echo "$1" ;;
	esac
}

# Prints the release of the archive's binary kernel of one source version.
debian_release() {
	local upstream=$1 version=$2 flavour=$3 package

	while read -r package; do
		if archive_apt apt-cache madison "$package" 2>/dev/null |
			awk -F'|' -v version="$version" '{ gsub(/ /, "", $2) } $2 == version { found = 1 } END { exit !found }'; then
			echo "${package#linux-binary-unsigned-}"
			return
		fi
	done < <(archive_apt apt-cache pkgnames "linux-binary-unsigned-$upstream" |
		grep -E "^linux-binary-unsigned-${upstream//./\\.}(\+deb[0-9]+)?-$flavour$")
}

make_debian_kernel() {
	local kernel=$1 result=$2 upstream package version release build=$2/build debs=$2/debs name

	read -r upstream package version <"$SOURCE/VERSION"
	if [ ! -e "$result/unpacked" ]; then
		unpack_debian "$kernel" "$result" "$upstream" "$version" "$debs"
	fi
	[ ! -e "$result/unavailable" ] || return 0
	release=$(cat "$result/release")
	# shellcheck disable=SC2046
	CHROOT_CWD=$SOURCE/linux chroot_tools "$kernel" make $(kernel_make_flags "$kernel") O="$build" \
		-j$(($(nproc) + 1)) olddefconfig prepare modules_prepare
	name=$(cat "$build/include/config/kernel.release")
	[ "$name" = "$release" ] || die "prepared a tree of $name for the kernel $release"
	make_initrd "$kernel" "$result" "$release"
	rm -rf "$debs"
	result "Linux $release ($version), unmodified; $(du -sh "$result" | cut -f 1)"
}

make_kernel_debian() { make_debian_kernel debian "$1"; }
make_kernel_arm64() { make_debian_kernel arm64 "$1"; }
make_kernel_arm64_16k() { make_debian_kernel arm64-16k "$1"; }

# Fetches the packages and takes out what is wanted.
unpack_debian() {
	local kernel=$1 result=$2 upstream=$3 version=$4 debs=$5 release= name build=$2/build
	local ARCHIVE_ARCHITECTURE=

	! is_arm64 "$kernel" || ARCHIVE_ARCHITECTURE=arm64
	clear_directory "$result"
	mkdir -p "$build" "$debs" "$result/modules"
	if [ "$version" != - ]; then
		archive_update || die "no network: the package archive cannot be reached; check the connection, then run the same command again"
		release=$(debian_release "$upstream" "$version" "$(debian_flavour "$kernel")")
	fi
	if [ -z "$release" ]; then
		echo "the package archive has no kernel of the source that was taken ($upstream $version)" \
			>"$result/unavailable"
		result "not available: $(cat "$result/unavailable")"
		return
	fi
	CHROOT_CWD=$debs archive_apt apt-get download \
		"linux-binary-unsigned-$release=$version" "linux-modules-$release=$version" \
		"linux-headers-$release=$version"
	for name in "$debs"/*.deb; do
		dpkg -x "$name" "$debs/x"
	done
	echo "$release" >"$result/release"
	mv "$(find "$debs/x" -name 'vmlinuz*' -type f | head -n 1)" "$result/image"
	if [ -d "$debs/x/usr/lib/modules" ]; then
		mkdir -p "$result/modules/lib"
		mv "$debs/x/usr/lib/modules" "$result/modules/lib/"
	else
		mv "$debs/x/lib" "$result/modules/lib"
	fi
	rm -f "$result/modules/lib/modules/$release"/{build,source}
	take_stock_module "$result" "$release"
	cp "$debs/x/usr/src/linux-headers-$release"/{.config,Module.symvers} "$build/"
	touch "$result/unpacked"
}

# Makes the small first root file system that a kernel needs whose 9p is a
# module: it mounts the real root and goes there.
make_initrd() {
	local kernel=$1 result=$2 release=$3 root=$2/initrd.d module file

	clear_directory "$root"
	mkdir -p "$root"/{bin,dev,proc,root,modules}
	cp "$(guest_root "$kernel")/usr/bin/busybox" "$root/bin/"
	: >"$root/order"
	# Not found is what is built in.
	for module in virtio_pci 9pnet_virtio 9p; do
		chroot_sysroot modprobe -q -d "$result/modules" -S "$release" --show-depends "$module" || true
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' |
		while read -r file; do
			module=$(basename "$file")
			module=${module%%.ko*}.ko
			case $file in
			*.xz) xz -dc "$file" >"$root/modules/$module" ;;
			*.zst) chroot "$SYSROOT" zstd -dcq <"$file" >"$root/modules/$module" ;;
			*) cp "$file" "$root/modules/$module" ;;
			esac
			echo "$module" >>"$root/order"
		done
	cat >"$root/init" <<'END'
#!/bin/busybox sh
busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t proc proc /proc
while read -r module; do
	busybox insmod "/modules/$module"
done </order
for word in $(busybox cat /proc/cmdline); do
	case $word in
	init=*) init=${word#init=} ;;
	rootflags=*) flags=${word#rootflags=} ;;
	esac
done
busybox mount -t 9p -o "$flags" root /root || exec busybox reboot -f
busybox umount /proc
busybox mount -o move /dev /root/dev
exec busybox switch_root /root "$init"
END
	chmod 755 "$root/init"
	CHROOT_CWD=$root chroot_sysroot sh -c 'find . | cpio -o -H newc --quiet >../initrd'
	rm -rf "$root"
}
