# SPDX-License-Identifier: GPL-2.0
# A root with test suites of others: what Debian has packages of, and git's own tests beside
# the git they are for. Only soak cases with `setup: suites` need it, so it is not part of
# the sysroot. Sourced, never run.

# git's suite takes a helper that no package has, so git is built from its source package.
SUITES_PACKAGES="ca-certificates dbench dpkg-dev fio gcc iproute2 kmod libc6-dev mount netbase
	nfs-common nfstest perl procps psmisc python3 stress-ng sudo tcpdump util-linux zlib1g-dev"
# Nothing here is about remote helpers or translations, and each of them needs a library.
SUITES_GIT_OPTIONS="NO_CURL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_OPENSSL=1 NO_PYTHON=1
	NO_INSTALL_HARDLINKS=1"
SUITES_ROOT=$RPCRDMA_CACHE/suites-$(key_of 1 "$SUITE" "$SUITES_PACKAGES" "$SUITES_GIT_OPTIONS")

make_suites_root() {
	local result=$1 root=$1.tmp

	# shellcheck disable=SC2086
	make_root "$result" $SUITES_PACKAGES
	sed -n "s/^deb \(.*\) $SUITE main$/deb-src \1 $SUITE main/p" "$root"/etc/apt/sources.list \
		>"$root/etc/apt/sources.list.d/source.list"
	[ -s "$root/etc/apt/sources.list.d/source.list" ] || die "no mirror of $SUITE in $root/etc/apt"
	enter "$root" apt-get -q update
	mkdir "$root/opt/git"
	# apt gives up root for a user who cannot write there.
	enter --cwd /opt/git "$root" apt-get -q -o APT::Sandbox::User=root source git
	enter "$root" sh -c 'mv /opt/git/git-*/* /opt/git/ && rm -rf /opt/git/git-*/ /opt/git/git_*'
	# shellcheck disable=SC2086
	enter --cwd /opt/git "$root" make -s "-j$(nproc)" CFLAGS=-O2 $SUITES_GIT_OPTIONS all
	result "$(chroot "$root" dpkg-query -W -f '${Package} ${Version}, ' dbench fio nfstest stress-ng)git $(chroot "$root" /opt/git/git --version | awk '{ print $3 }')"
	clear_directory "$result"
	mv "$root" "$result"
}

setup_suites() {
	step "suites root" "$SUITES_ROOT" 4 make_suites_root
}
