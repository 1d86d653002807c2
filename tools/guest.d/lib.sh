# SPDX-License-Identifier: GPL-2.0
# Shell functions for commands in guests: . "$GUEST_LIB"
#
#   fail TEXT…              end the command with a message and status 1
#   expect_eq WHAT GOT WANT end it when GOT is not WANT
#   wait_for SECONDS CMD…   run CMD until it succeeds, fail after SECONDS
#
#   make_rdma_device        $RDMADEV of $FABRIC on $NETDEV (done in a pair)
#   remove_rdma_device
#   load_module [KO]        insert $MODULE_KO, or KO, and what it depends on
#   unload_module           remove rpcrdma
#   link_down, link_up      of $NETDEV
#
#   start_nfs_server [EXPORT OPTIONS]
#                           export $EXPORT, a new tmpfs, over RDMA and TCP
#   stop_nfs_server         end its threads; start_nfs_threads starts them again
#   mount_nfs VERSION [DIR [OPTIONS]]
#                           mount $PEER_ADDR's export over RDMA on DIR (/mnt);
#                           PEER=ADDRESS takes another server, MOUNT_PROTO=tcp
#                           another transport
#   drop_caches
#
#   expect_receives [DEVICE]
#                           end the command if a message found no Receive of our
#                           module; siw devices do not count that
#
#   xprt_counter NAME [DIR] a number of the transport's line in
#                           /proc/self/mountstats, summed over its transports
#   xprt_counters [DIR]     all of them, as NAME VALUE
#   show_stuck              what every sleeping task waits for

EXPORT=/srv/export
NFS_RDMA_PORT=20049

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

expect_eq() {
	[ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

wait_for() {
	local seconds=$1 end
	shift
	end=$((SECONDS + seconds))
	until "$@"; do
		[ "$SECONDS" -lt "$end" ] || fail "still not true after $seconds s: $*"
		sleep 0.1
	done
}

# The network device with the guest's addresses. A single guest gets one that
# leads nowhere: RDMA devices loop back to themselves.
setup_network() {
	if [ "$NETDEV" = d0 ]; then
		modprobe -q dummy numdummies=0
		ip link add d0 type dummy || return
		ip link set d0 mtu 4200 || return
	fi
	ip addr add "$OWN_ADDR/24" dev "$NETDEV" || return
	ip -6 addr add "$OWN_ADDR6/64" dev "$NETDEV" nodad || return
	ip link set "$NETDEV" up || return
	add_neighbours
}

# The peer's link address in advance. ib_core starts to listen for an answer to
# its ARP request only after it has sent it; an answer that comes at once is
# missed, and address resolution takes 5 s.
add_neighbours() {
	[ -n "$PEER_MAC" ] || return 0
	ip neigh replace "$PEER_ADDR" lladdr "$PEER_MAC" dev "$NETDEV" nud permanent
	ip neigh replace "$PEER_ADDR6" lladdr "$PEER_MAC" dev "$NETDEV" nud permanent
}

make_rdma_device() {
	if [ -e "${OURS_KO%/*}/$FABRIC.ko" ]; then
		# Mended for the tests.
		load_module "${OURS_KO%/*}/$FABRIC.ko" || return
	else
		modprobe "rdma_$FABRIC" 2>/dev/null || modprobe "$FABRIC" || return
	fi
	modprobe -q -a rdma_cm rdma_ucm ib_umad
	rdma link add "$RDMADEV" type "$FABRIC" netdev "$NETDEV"
}

remove_rdma_device() {
	rdma link del "$RDMADEV"
}

load_module() {
	local ko=${1:-$MODULE_KO} depends

	depends=$(modinfo -F depends "$ko") || return
	depends=${depends//,/ }
	# shellcheck disable=SC2086
	[ -z "$depends" ] || modprobe -a $depends || return
	insmod "$ko"
}

unload_module() {
	rmmod rpcrdma
}

link_down() {
	ip link set "$NETDEV" down
}

# Addresses of IPv6 and neighbours go when the link does.
link_up() {
	ip link set "$NETDEV" up
	ip -6 addr replace "$OWN_ADDR6/64" dev "$NETDEV" nodad
	add_neighbours
}

start_nfs_server() {
	local options=${1:-rw,async,no_root_squash,insecure,no_subtree_check} limit

	modprobe -q nfsd
	mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd || fail "cannot mount the nfsd file system on /proc/fs/nfsd"
	mkdir -p /run/rpc_pipefs
	mountpoint -q /run/rpc_pipefs || mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
	mkdir -p "$EXPORT"
	mountpoint -q "$EXPORT" || mount -t tmpfs -o size=80% tmpfs "$EXPORT"
	pidof -q rpcbind || rpcbind || fail "rpcbind does not start"
	# The shortest periods there are; with the usual ones every first open
	# waits 90 s. They can only be set before the first thread runs. As long as
	# lockd has a grace period of its own nfsd grants no delegation.
	modprobe -q lockd
	for limit in nlm_timeout nlm_grace_period; do
		[ ! -e "/proc/sys/fs/nfs/$limit" ] || echo 3 >"/proc/sys/fs/nfs/$limit"
	done
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	# However little memory the guest has.
	echo "${NFSD_MAX_BLOCK:-1048576}" >/proc/fs/nfsd/max_block_size
	# It is the root of NFSv4's name space, as the guest's own root cannot be.
	exportfs -o "$options,fsid=0" "*:$EXPORT" || fail "exportfs cannot export $EXPORT"
	pidof -q rpc.mountd || rpc.mountd || fail "rpc.mountd does not start"
	pidof -q rpc.statd || rpc.statd || fail "rpc.statd does not start"
	# Without a tracker of clients there is no early end of the grace period.
	pidof -q nfsdcld || nfsdcld || fail "nfsdcld does not start"
	start_nfs_threads
}

start_nfs_threads() {
	rpc.nfsd "${NFSD_THREADS:-8}" || fail "rpc.nfsd does not start"
	echo "rdma $NFS_RDMA_PORT" >/proc/fs/nfsd/portlist || fail "nfsd does not listen over RDMA"
	# Nobody has state from before that is worth a wait.
	echo Y >/proc/fs/nfsd/v4_end_grace 2>/dev/null || true
}

stop_nfs_server() {
	rpc.nfsd 0
}

mount_nfs() {
	local version=$1 directory=${2:-/mnt} options=${3:-}
	local peer=${PEER:-$PEER_ADDR} proto=${MOUNT_PROTO:-rdma} port= path=/

	modprobe -q -a nfs nfsv3 nfsv4
	[ "$proto" = tcp ] || port=,port=$NFS_RDMA_PORT
	if [ "$version" = 3 ]; then
		pidof -q rpcbind || rpcbind
		pidof -q rpc.statd || rpc.statd
		path=$EXPORT
		options=mountproto=tcp${options:+,$options}
	fi
	case $peer in
	*:*)
		peer="[$peer]"
		proto+=6
		;;
	esac
	mkdir -p "$directory"
	mount -t nfs -o "vers=$version,proto=$proto$port${options:+,$options}" \
		"$peer:$path" "$directory"
}

drop_caches() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
}

# The names of the 27 numbers after "xprt: rdma".
XPRT_COUNTERS=(port bind_count connect_count connect_time idle_time sends recvs
	bad_xids req_u bklog_u read_chunks write_chunks reply_chunks
	total_rdma_request total_rdma_reply pullup_copy_count fixup_copy_count
	hardway_register_count failed_marshal_count bad_reply_count nomsg_call_count
	mrs_recycled mrs_orphaned mrs_allocated local_inv_needed empty_sendctx_q
	reply_waits_for_send)

xprt_counters() {
	awk -v directory="${1:-/mnt}" -v names="${XPRT_COUNTERS[*]}" '
		$1 == "device" { here = $5 == directory }
		here && $1 == "xprt:" && $2 == "rdma" {
			found = 1
			for (i = 3; i <= NF; i++) sum[i - 2] += $i
		}
		END {
			if (!found) exit 1
			n = split(names, name, " ")
			for (i = 1; i <= n; i++) print name[i], sum[i] + 0
		}' /proc/self/mountstats
}

xprt_counter() {
	xprt_counters "${2:-/mnt}" | awk -v name="$1" '$1 == name { print $2; found = 1 } END { exit !found }'
}

# One says so, whoever uses the device: here that is nobody else.
expect_receives() {
	local counter=/sys/class/infiniband/${1:-$RDMADEV}/ports/1/hw_counters/send_rnr_err

	[ "$MODULE" = ours ] && [ -e "$counter" ] || return 0
	expect_eq "the number of messages without a Receive" "$(cat "$counter")" 0
}

show_stuck() {
	local task

	for task in /proc/[0-9]*/task/[0-9]*; do
		grep -q '^State:.*[DIR]' "$task/status" 2>/dev/null || continue
		case $(cat "$task/comm") in
		kworker/* | rcu* | swapper*) continue ;;
		esac
		echo "$(cat "$task/comm") (${task##*/}) waits in:"
		cat "$task/stack" 2>/dev/null
	done
	echo w >/proc/sysrq-trigger
	cat /sys/kernel/debug/sunrpc/rpc_xprt/*/info 2>/dev/null
	cat /sys/kernel/debug/sunrpc/rpc_clnt/*/tasks 2>/dev/null
}
