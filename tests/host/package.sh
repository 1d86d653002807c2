#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The packages on a fresh Debian with the kernel of its backports: what the README says is
# run there as it is written, another kernel comes, with no source, a wrong one and the right
# one, and the newest kernel cannot have the module. At the end the package goes. Guests
# with these kernels mount NFS through what is installed, and have the stock module after it.
# soak: only
# setup: packaging fresh
# alone: yes
# timeout: 3600 3600
set -eu -o pipefail

. scripts/lib/common.sh
for part in enter sysroot packaging; do
	. "$SCRIPTS/lib/$part.sh"
done

work=$(mktemp -d "$RPCRDMA_CACHE/run/package-XXXXXX")
root=$work/root
archives=$RPCRDMA_CACHE/archives
mkdir -p "$archives/partial" "$work"/{upper,overlay,root,copy-upper,copy-overlay,copy}
trap 'umount -l "$work/copy" "$root" 2>/dev/null || true; rm -rf --one-file-system "$work"' EXIT

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# Tells what comes, and when.
now() {
	printf '\n=== %s: %s\n' "$(clock $SECONDS)" "$*"
}

# A command on that machine, with what it has downloaded kept.
on() {
	enter --bind "$archives:/var/cache/apt/archives" "$root" \
		env DEBIAN_FRONTEND=noninteractive "$@"
}

# says STATUS COMMAND… <<<TEXT…: the command ends with this status, and its output has these
# lines. The output is shown, and in $said.
says() {
	local want=$1 text status=0

	shift
	# What dpkg's triggers say comes through a terminal.
	"$@" 2>&1 </dev/null | tr -d '\r' | tee "$work/said" || status=$?
	said=$(<"$work/said")
	[ "$status" = "$want" ] || fail "status $status: $*"
	while IFS= read -r text; do
		[[ $said == *"$text"* ]] || fail "did not say '$text': $*"
	done
}

# What dkms has built for a kernel is what modprobe takes there.
is_built() {
	says 0 on dkms status rpcrdma <<<", $1, x86_64: installed"
	says 0 on modinfo -k "$1" -F filename rpcrdma <<<"/lib/modules/$1/updates/dkms/rpcrdma.ko"
	says 0 on modinfo -k "$1" rpcrdma <<<"version:        $version"
	[ "$(on modinfo -k "$1" -F revision rpcrdma)" = "$revision" ] || fail "it has another revision"
	says 0 on /usr/libexec/rpcrdma/kernels <<<"$1 loads this module"
}

# guest KERNEL SCRIPT…: boots a kernel that is installed there, and runs scripts in it. Its
# root file system is that of the machine. Nothing but qemu-system-x86_64 and that is needed.
guest() {
	local kernel=$1 script

	shift
	rm -rf "$root/root/scripts"
	mkdir "$root/root/scripts"
	for script; do
		cp "$script" "$root/root/scripts/"
	done
	cat >"$root/root/init" <<-'END'
		#!/bin/bash
		export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
		mountpoint -q /proc || mount -t proc proc /proc
		mountpoint -q /sys || mount -t sysfs sysfs /sys
		mountpoint -q /run || mount -t tmpfs tmpfs /run
		mount -t debugfs debugfs /sys/kernel/debug
		mount -t tmpfs tmpfs /tmp
		mount -t tmpfs tmpfs /var/lib/nfs
		mkdir -p /var/lib/nfs/v4recovery /run/rpcbind
		touch /var/lib/nfs/etab /var/lib/nfs/rmtab
		hostname guest
		/usr/lib/systemd/systemd-udevd --daemon
		status=0
		for script in /root/scripts/*; do
		    [ $status != 0 ] || sh "$script" </dev/null 2>&1 || status=$?
		done
		echo "STATUS $status"
		sync
		echo b >/proc/sysrq-trigger
		sleep 60
	END
	chmod +x "$root/root/init"
	timeout --kill-after=10 1500 qemu-system-x86_64 -M q35 \
		-accel tcg,thread=multi -cpu max,-la57 -m 2G -smp 2 -nodefaults -display none -no-reboot \
		-kernel "$root/boot/vmlinuz-$kernel" -initrd "$root/boot/initrd.img-$kernel" \
		-append "root=root rootfstype=9p rw init=/root/init console=ttyS0 panic=-1 \
			rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose fsck.mode=skip \
			no_timer_check mitigations=off apparmor=0 net.ifnames=0 \
			rcupdate.rcu_cpu_stall_timeout=180" \
		-fsdev "local,id=root,path=$root,security_model=passthrough,multidevs=remap" \
		-device virtio-9p-pci,fsdev=root,mount_tag=root -device virtio-rng-pci \
		-serial stdio </dev/null 2>&1 | tr -d '\r' | tee "$work/console" ||
		fail "the guest with $kernel has not ended"
	grep -qx 'STATUS 0' "$work/console" || fail "$* in a guest with $kernel"
	PYTHONPATH=tools/guest.d python3 -B - "$work/console" <<-'END' || fail "a report of $kernel"
		import reports, sys
		lines = open(sys.argv[1], errors="replace").read().splitlines()
		found = reports.find(lines)
		print(*(lines[i] for i in found), sep="\n")
		sys.exit(bool(found))
	END
}

now "a fresh $SUITE"
mount -t overlay -o "lowerdir=$FRESH_ROOT,upperdir=$work/upper,workdir=$work/overlay" \
	overlay "$root"
# The modules that the kernel needs for its root file system in a guest.
printf '%s\n' virtio_pci 9pnet_virtio 9p >"$root/etc/initramfs-tools/modules"
echo MODULES=list >"$root/etc/initramfs-tools/conf.d/list"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/fast"
cat >"$root/etc/apt/apt.conf.d/test" <<-'END'
	APT::Get::Assume-Yes "true";
	APT::Keep-Downloaded-Packages "true";
END
on apt-get -q update

now "the commands of the README"
revision=$(sh rust/sys/revision.sh .)
mapfile -t commands < <(sed -n '/^\*\*Debian 13 with/,/^Run these as root/p' README.md |
	sed -n '/^```$/,/^```$/{/^```$/!p}')
[ "${commands[0]} ${commands[1]}" = "make deb cd deb" ] && [ ${#commands[@]} = 3 ] ||
	fail "the README has others: ${commands[*]}"
scripts/deb "$root/root/deb"
version=$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
echo "${commands[2]}"
says 0 on sh -c "cd /root/deb && ${commands[2]}" <<<"loads this module"
kernel=$(basename "$root"/lib/modules/*)
is_built "$kernel"

now "the tools"
on sh -c "cd /root/deb && apt install ./rpcrdma-tools_${version}_all.deb"
for tool in report top conform; do
	says 0 on "rpcrdma-$tool" --help <<<"usage: rpcrdma-$tool"
done

now "a guest with $kernel: a mount, and the stock module loaded by hand"
cat >"$work/stock" <<-'END'
	set -eu
	rpc.nfsd 0
	for second in 1 2 3 4 5 6 7 8 9; do
	    rmmod rpcrdma && break
	    sleep 1
	done
	modprobe -q -a ib_core rdma_cm sunrpc
	insmod "$(find "/var/lib/dkms/rpcrdma/original_module/$(uname -r)" -name 'rpcrdma.ko*' \
	    ! -name '*.origin')"
	udevadm settle
	dmesg | grep 'rpcrdma: the stock module was loaded instead'
END
guest "$kernel" debian/tests/mount "$work/stock"

# An older one, if the archive has it: it rarely has two that are new. Else another flavour.
read -r upstream package < <(on apt-cache madison linux-source-7.2 linux-source-7.3 |
	awk -F'|' -v have="${kernel%%+*}" '/-backports/ {
		gsub(/ /, "", $2); v = $2; sub(/-.*/, "", v); if (v != have) print v, $2
	}' | sort -Vr) || fail "the archive has one kernel only"
source=linux-source-${upstream%.*}
second=$upstream+${kernel#*+}

now "another kernel, $second, with no source"
says 0 on apt install "linux-image-$second=$package" "linux-headers-$second=$package" <<-END
	rpcrdma: WARNING: $second loads the STOCK module:
	rpcrdma:   error: there is no /usr/src/$source.tar.xz
	rpcrdma:          Install the package $source, or
	rpcrdma: $kernel loads this module
END

now "with a source of another version"
mkdir -p "$work/source/DEBIAN" "$work/source/usr/src"
: >"$work/source/usr/src/$source.tar.xz"
cat >"$work/source/DEBIAN/control" <<-END
	Package: $source
	Version: $upstream-0
	Architecture: all
	Maintainer: nobody <nobody@localhost>
	Description: a source that no kernel here was built from
END
dpkg-deb --root-owner-group --build "$work/source" "$root/root/source.deb"
says 0 on apt install /root/source.deb <<-END
	rpcrdma: WARNING: $second loads the STOCK module:
	is of version $upstream-0, the headers of $second are of $package
	rpcrdma: $kernel loads this module
END

advice=$(sed -n 's/^rpcrdma: .*: \(apt install \)/\1/p' <<<"$said")
now "with the right source, as was said: $advice"
says 0 on sh -c "$advice" <<<"rpcrdma: $second loads this module"
is_built "$second"
is_built "$kernel"

# What the tests depend on is installed before, since a guest has no network. sos needs no kernel
# of its own, and takes minutes in a guest.
now "autopkgtest runs debian/tests: sos here"
on apt install --no-install-recommends autopkgtest dpkg-dev sos
mkdir "$root/root/source"
cp -r debian "$root/root/source/"
autopkgtest="autopkgtest --no-built-binaries --timeout-factor=5"
autopkgtest+=" --ignore-restrictions=breaks-testbed,isolation-machine"
# shellcheck disable=SC2086
says 0 on $autopkgtest --test-name=sos /root/source -- null <<<"sos                  PASS"

# On a copy of the machine, since the last of the tests removes the package.
now "the others in a guest with $second"
mount -t overlay -o "lowerdir=$root,upperdir=$work/copy-upper,workdir=$work/copy-overlay" \
	overlay "$work/copy"
# Without most of the modules: depmod reads all that there are, which takes minutes in a guest.
rm -rf "$work"/copy/lib/modules/*/kernel/sound \
	"$work"/copy/lib/modules/*/kernel/drivers/{comedi,gpu,hwmon,iio,media,net/{ethernet,usb,wireless},platform,scsi,usb}
echo "$autopkgtest --skip-test=sos /root/source -- null" >"$work/autopkgtest"
root=$work/copy guest "$second" "$work/autopkgtest"
for test in $(sed -n 's/^Tests: //p' debian/tests/control); do
	# There it has colours.
	[ "$test" = sos ] || grep -q "$test *PASS$" "$work/console" || fail "autopkgtest has not passed $test"
done
umount "$work/copy"

rt=${kernel/-amd64/-rt-amd64}
now "the newest kernel, $rt, cannot have it"
: >"$root/usr/src/linux-patch-${kernel%.*+*}-rt.patch.xz"
says 100 on apt install "linux-image-$rt" "linux-headers-$rt" <<-END
	rpcrdma: WARNING: $rt loads the STOCK module:
	rpcrdma:   error: $rt is built from a source with /usr/src/linux-patch
	rpcrdma: $kernel loads this module
	rpcrdma: $second loads this module
END
says 0 on dpkg-query -W -f '${db:Status-Abbrev} ' "linux-image-$rt" "linux-headers-$rt" <<<"ii  ii"
# Each later run of dpkg says so again, and leaves what dkms has built as it is.
modules() {
	stat -c '%n %i %y' "$root"/lib/modules/*/updates/dkms/rpcrdma.ko*
}
before=$(modules)
says 1 on dpkg --configure -a <<-END
	rpcrdma: WARNING: $rt loads the STOCK module:
	rpcrdma: $kernel loads this module
	rpcrdma: $second loads this module
END
[ "$(modules)" = "$before" ] || fail "dkms has built again: $(modules), not $before"
says 0 on apt purge "linux-*-$rt" <<<"rpcrdma: $kernel loads this module"
says 0 on dpkg-query -W -f '${db:Status-Abbrev}' rpcrdma-dkms <<<ii

now "without the package"
purge=$(sed -n '/^\*\*Go back/s/.*`\(apt purge [^`]*\)`.*/\1/p' README.md)
echo "$purge"
on sh -c "$purge"
for file in "$root"/lib/modules/*/updates/dkms/* "$root"/var/lib/{dkms/,}rpcrdma; do
	[ ! -e "$file" ] || fail "${file#"$root"} is left"
done
guest "$kernel" debian/tests/remove

now "seen: $kernel, $second, $rt"
