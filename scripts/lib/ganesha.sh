# SPDX-License-Identifier: GPL-2.0
# A root with a peer that nobody here wrote: nfs-ganesha, an NFS server in user space, which
# speaks RPC-over-RDMA with the library ntirpc. Debian builds both without RDMA, so they are
# built here, from Debian's source of them. One case needs it, with the header
# `setup: ganesha`; guests see it at its own path. Sourced, never run.

GANESHA_PACKAGES="bison ca-certificates cmake dpkg-dev flex g++ ibverbs-providers libacl1-dev
	libc6-dev libibverbs-dev libkrb5-dev libnsl-dev librdmacm-dev liburcu-dev make patch pkgconf
	uuid-dev"
GANESHA_PATCHES=$TREE/tests/ganesha
GANESHA_ROOT=$RPCRDMA_CACHE/ganesha-$(key_of 1 "$SUITE" "$GANESHA_PACKAGES" \
	"$(hash_files "$GANESHA_PATCHES"/*.patch)")

# What is built in the root, in /build. Of nfs-ganesha only what NFS over RDMA with files in
# memory needs. A macro is missing in its configuration: without it 4.1 and 4.2 are for TCP.
build_ganesha() {
	cat <<-'END'
		set -eux
		jobs=-j$(nproc)
		cmake -S ntirpc-* -B ntirpc -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		    -DCMAKE_INSTALL_PREFIX=/usr -DLIB_INSTALL_DIR=/usr/lib -DUSE_RPC_RDMA=ON -DUSE_GSS=ON
		make -C ntirpc "$jobs" install
		without=
		for part in 9P ADMIN_TOOLS CAPS DBUS FSAL_CEPH FSAL_GLUSTER FSAL_GPFS FSAL_KVSFS \
		    FSAL_LIZARDFS FSAL_LUSTRE FSAL_NULL FSAL_PROXY_V3 FSAL_PROXY_V4 FSAL_RGW \
		    FSAL_SAUNAFS FSAL_VFS FSAL_XFS GUI_ADMIN_TOOLS MAN_PAGE NFSIDMAP RADOS_RECOV UNWIND; do
		    without="$without -DUSE_$part=OFF"
		done
		cmake -S nfs-ganesha-*/src -B ganesha -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		    -DCMAKE_INSTALL_PREFIX=/usr -DLIB_INSTALL_DIR=/usr/lib \
		    -DCMAKE_C_FLAGS=-D_USE_NFS_RDMA_UNUSED -DCMAKE_C_STANDARD_LIBRARIES=-lacl \
		    -DUSE_SYSTEM_NTIRPC=ON -DUSE_NFS_RDMA=ON -DUSE_FSAL_MEM=ON -DALLOCATOR=libc \
		    -DRPCBIND=OFF -D_MSPAC_SUPPORT=OFF -DRADOS_URLS=OFF $without
		make -C ganesha "$jobs" install
		ldconfig
	END
}

make_ganesha_root() {
	local result=$1 root=$1.tmp file

	# shellcheck disable=SC2086
	make_root "$result" $GANESHA_PACKAGES
	sed -n 's/^deb /deb-src /p' "$root"/etc/apt/sources.list >"$root/etc/apt/sources.list.d/src.list"
	[ -s "$root/etc/apt/sources.list.d/src.list" ] || die "no mirror of $SUITE in $root/etc/apt"
	enter "$root" apt-get -q update
	mkdir "$root/build"
	# Without Debian's own patches, which are about its packages and other parts.
	enter --cwd /build "$root" apt-get -q -o Acquire::Retries=3 -o APT::Sandbox::User=root \
		--tar-only source nfs-ganesha ntirpc
	for file in "$root"/build/*.orig.tar.?z; do
		tar -xf "$file" -C "$root/build"
	done
	cp "$GANESHA_PATCHES"/*.patch "$root/build/"
	for file in "$root"/build/*.patch; do
		echo "${file##*/}:"
		enter --cwd /build "$root" \
			sh -c "cd nfs-ganesha-* && patch -p1 --no-backup-if-mismatch <../${file##*/}" ||
			die "${file##*/} does not fit the nfs-ganesha that $SUITE has"
	done
	build_ganesha >"$root/build/build"
	enter --cwd /build "$root" sh build
	enter "$root" sh -c 'ganesha.nfsd -v && ldd /usr/bin/ganesha.nfsd | grep -q librdmacm' ||
		die "nfs-ganesha was built without RDMA"
	result "$(cd "$root/build" && echo nfs-ganesha-* ntirpc-*) of $SUITE, with RDMA"
	rm -rf "$root/build"
	# Where the guest mounts what the server writes to.
	mkdir -p "$root/var/lib/nfs" "$root/export"
	clear_directory "$result"
	mv "$root" "$result"
}

setup_ganesha() {
	step ganesha "$GANESHA_ROOT" 3 make_ganesha_root
}
