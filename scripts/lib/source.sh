# SPDX-License-Identifier: GPL-2.0
# The kernel source. Sourced, never run.
#
# The pinned version if the archive has it, else the newest of a supported
# series that it has, else the tarball in $KERNEL_SOURCE. What was taken is in
# the file VERSION beside the tree: "7.3.4 linux-source-7.3 7.3.4-1~bpo13+1".

SOURCE=$RPCRDMA_CACHE/source-$(key_of 1 "${SYSROOT##*-}" "$KERNEL_PINNED" "$KERNEL_SERIES")

# apt with lists of its own: the suites that may have kernels, which the
# sysroot's packages shall not come from. A list that is signed but past its date
# will do: what is wanted is a version that is known. $ARCHIVE_ARCHITECTURE is that of
# the packages, if it is another one than the sysroot's.
archive_apt() {
	local tool=$1 other=${ARCHIVE_ARCHITECTURE:-} lists=kernel-lists options=()

	shift
	if [ -n "$other" ]; then
		lists+=-$other
		options=(-o "APT::Architecture=$other" -o "APT::Architectures=$other"
			-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
	fi
	chroot_sysroot "$tool" -q -o Dir::Etc::sourcelist=/etc/apt/kernels.list \
		-o Dir::Etc::sourceparts=- -o Dir::State::lists="/var/lib/apt/$lists" \
		-o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false "${options[@]}" "$@"
}

# A command in the sysroot with the cache writable, in the cache directory.
chroot_sysroot() {
	enter --bind "$RPCRDMA_CACHE" --bind-ro "$TREE" --cwd "${CHROOT_CWD:-$RPCRDMA_CACHE}" "$SYSROOT" "$@"
}

# Fetches the lists of the suites with kernels, through the sysroot's own mirror.
archive_update() {
	local uri options suite lines= directory

	# Without the lists apt does not tell its targets.
	chroot_sysroot apt-get -q update
	uri=$(chroot_sysroot apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
		awk -v suite="$SUITE" '$1 == suite { print $2; exit }')
	[ -n "$uri" ] || die "no mirror of $SUITE in $SYSROOT/etc/apt"
	options=$(chroot_sysroot sh -c 'ls /usr/share/keyrings/debian-archive-keyring.gpg 2>/dev/null' || true)
	options=${options:+[signed-by=$options] }
	for suite in "$SUITE-backports" testing unstable; do
		lines+="deb $options$uri $suite main"$'\n'
	done
	printf '%s' "$lines" >"$SYSROOT/etc/apt/kernels.list"
	# Old lists would promise what can no longer be fetched.
	directory=$SYSROOT/var/lib/apt/kernel-lists${ARCHIVE_ARCHITECTURE:+-$ARCHIVE_ARCHITECTURE}
	rm -rf "$directory"
	mkdir -p "$directory/partial"
	# A suite that is missing is no reason to stop, having none of them is.
	archive_apt apt-get update || true
	archive_apt apt-cache pkgnames linux-source- | grep -q .
}

# Prints "upstream-version package version" of every supported kernel source,
# the one to take first.
archive_sources() {
	local series

	for series in $KERNEL_SERIES; do
		archive_apt apt-cache madison "linux-source-$series" 2>/dev/null |
			awk -F'|' -v pinned="$KERNEL_PINNED" '{
				gsub(/ /, "")
				upstream = $2; sub(/-.*/, "", upstream); sub(/[~+].*/, "", upstream)
				print (upstream == pinned ? 0 : 1), upstream, $1, $2
			}' | sort -k1,1n -k4,4Vr
	done | sort -s -k1,1n | cut -d' ' -f 2-
}

make_source() {
	local result=$1 choice upstream package version

	clear_directory "$result.tmp"
	mkdir -p "$result.tmp/debs"
	choice=
	if archive_update; then
		choice=$(archive_sources | head -n 1)
	fi
	if [ -n "$choice" ]; then
		read -r upstream package version <<<"$choice"
		CHROOT_CWD=$result.tmp/debs archive_apt apt-get download "$package=$version"
		dpkg -x "$result.tmp"/debs/linux-source-*.deb "$result.tmp/debs/x"
		tar -xf "$result.tmp/debs/x/usr/src/linux-source-"*.tar.* -C "$result.tmp"
		mv "$result.tmp"/linux-source-* "$result.tmp/linux"
		rm -r "$result.tmp/debs"
	elif [ -n "${KERNEL_SOURCE:-}" ]; then
		[ -r "$KERNEL_SOURCE" ] || die "cannot read KERNEL_SOURCE=$KERNEL_SOURCE"
		mkdir "$result.tmp/linux"
		tar -xf "$KERNEL_SOURCE" -C "$result.tmp/linux" --strip-components=1
		upstream=$(awk '$1 ~ /^(VERSION|PATCHLEVEL|SUBLEVEL)$/ && $2 == "=" { v[n++] = $3 }
			n == 3 { print v[0] "." v[1] "." v[2]; exit }' "$result.tmp/linux/Makefile")
		package=$KERNEL_SOURCE
		version=-
	else
		die "the package archive cannot be reached or has no linux-source of the series ${KERNEL_SERIES// /, }; check the network, or set KERNEL_SOURCE to a tarball of Linux $KERNEL_PINNED"
	fi
	echo "$upstream $package $version" >"$result.tmp/VERSION"
	if [ "$upstream" = "$KERNEL_PINNED" ]; then
		result "Linux $upstream ($package $version), the version this is tested with"
	else
		result "Linux $upstream ($package $version); tested with $KERNEL_PINNED, which the archive does not have"
	fi
	clear_directory "$result"
	mv "$result.tmp" "$result"
}

setup_source() {
	setup_sysroot
	step "kernel source" "$SOURCE" 3 make_source
}
