# SPDX-License-Identifier: GPL-2.0
# Cache directory, messages and cached steps. Sourced, never run.

TREE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
SCRIPTS=$TREE/scripts
RPCRDMA_CACHE=${RPCRDMA_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/rpcrdma}
case $RPCRDMA_CACHE in
/*) ;;
*) RPCRDMA_CACHE=$PWD/$RPCRDMA_CACHE ;;
esac
export RPCRDMA_CACHE
. "$SCRIPTS/versions"

# Everything here reads tools' messages, so they must be in English.
export LC_ALL=C.UTF-8
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

# Prints a line of progress. Standard output is for results.
say() {
	echo "$*" >&2
}

# Prints one line about what is wrong and what to do, and gives up.
die() {
	echo "error: $*" >&2
	exit 1
}

# What mounts, make and the command lines of guests are given is separated by these.
case $RPCRDMA_CACHE in
*[[:space:],:]*) die "the path of the cache contains a blank, comma or colon: $RPCRDMA_CACHE; set RPCRDMA_CACHE to another directory" ;;
esac
case $TREE in
*[[:space:],:]*) die "the path of the tree contains a blank, comma or colon: $TREE; move it to another directory" ;;
esac

# Dies if one of some directories, or the working directory, is one that the sysroot and
# guests have of their own: they see it at the same path, where it would hide theirs.
need_own_directory() {
	local directory

	[ $# -gt 0 ] || set -- "$PWD" "$(pwd -P)"
	for directory; do
		case $directory in
		/dev/shm/* | /usr/src/* | /usr/local/src/*) ;;
		/ | /bin | /bin/* | /dev | /dev/* | /etc | /etc/* | /lib | /lib/* | /lib[0-9x]* | /mnt | /proc | /proc/* | \
			/run | /sbin | /sbin/* | /srv | /sys | /sys/* | /tmp | /usr | /usr/* | \
			/var | /var/lib | /var/lib/nfs | /var/lib/nfs/* | /var/tmp)
			die "cannot use $directory: the sysroot and the guests mount their own directory there; move the tree (or RPCRDMA_CACHE) to another directory, such as one below /root or /home, and run it from there"
			;;
		esac
	done
}

need_root() {
	[ "$(id -u)" = 0 ] ||
		die "root is required (mount namespaces, chroot); run it with sudo or as root"
	[ "$(uname -m)" = x86_64 ] ||
		die "an x86_64 machine is required, this one is $(uname -m)"
}

# Dies unless GIB of disk space are free where the cache is.
need_space() {
	local gib=$1 name=$2 free

	free=$(df -Pk "$RPCRDMA_CACHE" | awk 'NR == 2 { print int($4 / 1048576) }')
	[ "$free" -ge "$gib" ] ||
		die "$name needs $gib GiB of disk space in $RPCRDMA_CACHE, $free GiB are free; make room or set RPCRDMA_CACHE to another directory"
}

# Installs the Debian packages given as COMMAND=PACKAGE whose command is missing.
need_packages() {
	local pair missing=() log=$RPCRDMA_CACHE/logs/host-packages.log

	for pair; do
		command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
	done
	[ ${#missing[@]} = 0 ] && return
	mkdir -p "${log%/*}"
	command -v apt-get >/dev/null ||
		die "missing on this machine: ${missing[*]}; install them"
	say "installing on this machine: ${missing[*]}"
	{
		DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}" ||
			{
				apt-get -q update &&
					DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends "${missing[@]}"
			}
	} >"$log" 2>&1 </dev/null || {
		explain_log "$log"
		die "cannot install ${missing[*]}; install it by hand, then try again"
	}
}

# Tells why something failed whose output is in a log: one line for what is well
# known, which ends this process, else the end of the log.
explain_log() {
	local log=$1 package own

	# What die() says is the last line; compilers have lines of that kind elsewhere.
	own=$(tail -n 1 "$log" | sed -n 's/^error: //p')
	[ -z "$own" ] || die "$own; log: $log"
	package=$(sed -n 's/.*Unable to locate package \([^ ]*\).*/\1/p' "$log" | head -n 1)
	if grep -qE 'Temporary failure resolving|Could not resolve|Could not connect|Unable to connect|Network is unreachable|Connection timed out' "$log"; then
		die "no network: the package mirror or registry cannot be reached; check the connection (and http_proxy), then run the same command again; log: $log"
	elif grep -qE 'No space left on device|not enough free space' "$log"; then
		die "no space left on the disk of $RPCRDMA_CACHE; make room or set RPCRDMA_CACHE to another directory; log: $log"
	elif [ -n "$package" ]; then
		die "the package archive has no $package; check the machine's mirror (apt-get update), then run the same command again; log: $log"
	fi
	tail -n 25 "$log" | sed 's/^/  | /' >&2
	say "full log: $log"
}

# Prints a short hash of its arguments.
key_of() {
	printf '%s\n' "$@" | sha256sum | cut -c 1-10
}

# Prints a hash of the contents of the files given.
hash_files() {
	cat "$@" | sha256sum | cut -c 1-10
}

# Prints seconds as m:ss.
clock() {
	printf '%d:%02d' $(($1 / 60)) $(($1 % 60))
}

# Prints about how long a step takes on two CPUs with nothing else to do.
usual_time() {
	case $1 in
	"kernel source") echo "half a minute" ;;
	"kernel uml") echo "5 minutes" ;;
	"kernel uml-kasan") echo "8 minutes" ;;
	"kernel debian" | "kernel arm64" | "kernel arm64-16k") echo "2 minutes" ;;
	"kernel debug" | "kernel cfi") echo "20 minutes" ;;
	kernel*) echo "8 minutes" ;;
	"module for uml-kasan") echo "2 minutes" ;;
	module*) echo "1 minute" ;;
	*) echo "2 minutes and the time of the downloads" ;;
	esac
}

# step NAME RESULT GIB FUNCTION
#
# Runs FUNCTION, which makes RESULT, unless it is there already. RESULT is a
# path that has the hash of all inputs in its name; RESULT.ok says that it is
# complete. FUNCTION runs in a process of its own which dies with this one, so
# an interrupted step leaves neither a half result that counts nor a process.
step() {
	local name=$1 result=$2 gib=$3 function=$4
	local log=$RPCRDMA_CACHE/logs/setup-${name// /-}.log lock pid start=$SECONDS shown status

	[ -e "$result.ok" ] && return
	need_root
	mkdir -p "$RPCRDMA_CACHE/logs" "$(dirname "$result")"
	exec {lock}>"$result.lock"
	if ! flock -n "$lock"; then
		say "$name: waiting for another run that is doing it"
		flock "$lock"
	fi
	if [ ! -e "$result.ok" ]; then
		need_space "$gib" "$name"
		say "$name: takes about $(usual_time "$name"), log in $log"
		setpriv --pdeathsig KILL "$SCRIPTS/setup" --do "$function" "$result" \
			>"$log" 2>&1 </dev/null &
		pid=$!
		trap 'kill -KILL $pid 2>/dev/null; exit 130' INT TERM HUP
		shown=$SECONDS
		while kill -0 "$pid" 2>/dev/null; do
			sleep 0.5
			if [ -t 2 ]; then
				printf '\r\033[K%s: %s %.60s' "$name" "$(clock $((SECONDS - start)))" \
					"$(tail -n 1 "$log" | tr -cd '[:print:]')" >&2
			elif [ $((SECONDS - shown)) -ge 30 ]; then
				shown=$SECONDS
				say "$name: $(clock $((SECONDS - start))), $(wc -l <"$log") lines of log"
			fi
		done
		[ -t 2 ] && printf '\r\033[K' >&2
		status=0
		wait "$pid" || status=$?
		trap - INT TERM HUP
		if [ "$status" != 0 ]; then
			explain_log "$log"
			die "$name failed after $(clock $((SECONDS - start)))"
		fi
		sed -n "s/^RESULT: /$name: /p" "$log" >&2
		touch "$result.ok"
		say "$name: done in $(clock $((SECONDS - start)))"
	fi
	exec {lock}>&-
}

# A line of a step's log that is shown to the user when the step is done.
result() {
	echo "RESULT: $*"
}
