# SPDX-License-Identifier: GPL-2.0
# Running a command inside the sysroot. Sourced, never run.
#
# Each command gets mounts and processes of its own; when the process that
# entered is gone, for whatever reason, so are they. The paths bound into the
# sysroot keep their names there, so what a compiler prints can be clicked on.

# enter [--read-only] [--net] [--cwd DIR] [--guest-root DIR]
#       [--bind PATH]… [--bind-ro PATH[:TARGET]]… ROOT COMMAND…
#
# --read-only: nothing below ROOT can be changed, other than what --bind names,
# /tmp, /run and /dev/shm, which are fresh. --net: an empty network of its own.
# --guest-root: that directory is /srv/guest, and has in it what is bound, too.
enter() {
	exec_enter "$@" &
	local pid=$! status=0

	wait "$pid" || status=$?
	return "$status"
}

# The same, replacing this process.
exec_enter() {
	local flags=(--mount --pid --fork --kill-child --propagation private)

	[[ " $* " != *" --net "* ]] || flags+=(--net)
	exec setpriv --pdeathsig KILL unshare "${flags[@]}" \
		"$BASH" "$SCRIPTS/lib/enter-inside" "$@"
}
