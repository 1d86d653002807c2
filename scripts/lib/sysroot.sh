# SPDX-License-Identifier: GPL-2.0
# The sysroot: a Debian root with every tool at the version that is tested,
# whatever this machine runs. Sourced, never run.

SYSROOT_PACKAGES=$(sed 's/#.*//' "$SCRIPTS/sysroot.packages" | xargs)
SYSROOT=$RPCRDMA_CACHE/sysroot-$(key_of 1 "$SUITE" "$SYSROOT_PACKAGES")

# The keys that Debian signs its lists of packages with.
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# Prints the mirrors this machine's own apt uses, as "base URI" and "security
# URI", or nothing when they are not plain ones of Debian.
host_mirrors() {
	local codename

	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	apt-get indextargets --format '$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)' \
		'Created-By: Packages' 2>/dev/null |
		awk -F'|' -v codename="$codename" '
			$1 != "Debian" && $1 != "" { next }
			$3 != "main" { next }
			$4 ~ /^mirror\+file:/ {
				file = substr($4, 13); sub(/^\/\//, "", file); sub(/\/$/, "", file)
				while ((getline line < file) > 0)
					if (line ~ /^https?:/) { split(line, w, "[ \t]"); $4 = w[1]; break }
			}
			$4 !~ /^https?:/ { next }
			$2 == codename || $2 == "stable" || $2 == "oldstable" { if (!base++) print "base", $4 }
			$2 ~ /-security$/ { if (!security++) print "security", $4 }'
}

# Prints the source lines of the sysroot; nothing means mmdebstrap's default.
sysroot_sources() {
	local kind uri options="[signed-by=$KEYRING] "

	while read -r kind uri; do
		case $kind in
		base)
			echo "deb $options$uri $SUITE main"
			[ "$SUITE" = unstable ] || echo "deb $options$uri $SUITE-updates main"
			;;
		security) [ "$SUITE" = unstable ] || echo "deb $options$uri $SUITE-security main" ;;
		esac
	done < <(host_mirrors)
}

# make_root RESULT PACKAGE…: a root of Debian with these packages, as RESULT.tmp. With
# $ROOT_ARCHITECTURE it is one of another architecture, and they are only unpacked there.
make_root() {
	local result=$1 packages sources proxy options=(--variant=minbase)

	shift
	packages=$(IFS=, && echo "$*")

	need_packages mmdebstrap=mmdebstrap
	# A file is no command: it counts as missing, and its package is installed.
	[ -e "$KEYRING" ] || need_packages "$KEYRING=debian-archive-keyring"
	[ -e "$KEYRING" ] ||
		die "there is no $KEYRING, with which Debian's packages are checked; install debian-archive-keyring of Debian 12 or later"
	# Without the lists apt does not tell its targets.
	[ -n "$(host_mirrors)" ] || apt-get -q update || true
	sources=$(sysroot_sources)
	[[ $sources == *" $SUITE main"* ]] || sources=
	if [ -n "${ROOT_ARCHITECTURE:-}" ]; then
		options=(--variant=extract "--architecture=$ROOT_ARCHITECTURE" '--include=?essential')
	fi
	# A mirror may be of a day; the keys tell whose it is all the same.
	[ "$SUITE" != unstable ] || options+=('--aptopt=Acquire::Check-Valid-Until "false"')
	for proxy in Acquire::http::Proxy Acquire::https::Proxy; do
		eval "$(apt-config shell value "$proxy")"
		[ -z "${value:-}" ] || options+=("--aptopt=$proxy \"$value\"")
		value=
	done
	clear_directory "$result.tmp"
	# shellcheck disable=SC2086
	setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
		--propagation private \
		mmdebstrap --include="$packages" "${options[@]}" \
		"$SUITE" "$result.tmp" ${sources:+-} <<<"$sources"
	if [ -n "${ROOT_ARCHITECTURE:-}" ]; then
		ls "$result.tmp/usr/share/doc" >"$result.packages"
	else
		chroot "$result.tmp" dpkg-query -W >"$result.packages"
	fi
}

make_sysroot() {
	local result=$1

	# shellcheck disable=SC2086
	make_root "$result" $SYSROOT_PACKAGES
	result "rustc $(chroot "$result.tmp" rustc --version | awk '{ print $2 }'), $(grep -c . "$result.packages") packages of $SUITE"
	clear_directory "$result"
	mv "$result.tmp" "$result"
}

# Removes a directory that an interrupted run may have left, and makes sure that
# nothing is mounted below it: then removing would reach through the mount.
clear_directory() {
	! grep -q " $1/" /proc/self/mountinfo ||
		die "something is mounted below $1; unmount it first"
	rm -rf --one-file-system "$1"
}

setup_sysroot() {
	step sysroot "$SYSROOT" 5 make_sysroot
	# Where guests put the modules of their kernel. They can't make it: it is read-only for them.
	mkdir -p "$SYSROOT/usr/lib/modules"
}
