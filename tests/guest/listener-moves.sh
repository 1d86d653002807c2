#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The address of a listener moves to another network device: the server listens there.
# mode: run
# insert: yes
# kernels: debian
# timeout: 60
set -eu
. "$GUEST_LIB"

EVENTS=/sys/kernel/tracing/instances/moves
PORT=20050

listens() {
	grep -c 'rpcrdma_rs_listen:.*:20050.*error=0' "$EVENTS/trace" || true
}

listens_anew() {
	[ "$(listens)" -gt "$before" ]
}

# A bond of two devices, each with a link address of its own, which the bond takes over.
modprobe -a bonding dummy
ip link add moving type bond mode active-backup fail_over_mac active
for slave in one two; do
	ip link add "$slave" type dummy
	ip link set "$slave" master moving
	ip link set "$slave" up
done
ip link set moving mtu 4200 up
ip addr add 10.98.0.1/24 dev moving
ip link set moving type bond active_slave one
rdma link add moving0 type "$FABRIC" netdev moving

mkdir "$EVENTS"
echo 1 >"$EVENTS/events/rpcrdma_rs/rpcrdma_rs_listen/enable"
start_nfs_server
stop_nfs_server
# Only a server without threads takes addresses.
nfsdctl listener "+rdma:10.98.0.1:$PORT"
start_nfs_threads
grep -q "$PORT" /proc/fs/nfsd/portlist || fail "the server does not listen at the address"
before=$(listens)

mounted() {
	mkdir -p /mnt
	mount -t nfs -o "vers=4.2,proto=rdma,port=$PORT,soft,retry=0" 10.98.0.1:/ /mnt || return
	echo "$1" >/mnt/moves
	expect_eq "the file" "$(cat "$EXPORT/moves")" "$1"
	umount /mnt
}

modprobe -q -a nfs nfsv4
mounted before || fail "no mount before"
for active in two one; do
	former=$(cat /sys/class/net/moving/address)
	ip link set moving type bond active_slave "$active"
	[ "$(cat /sys/class/net/moving/address)" != "$former" ] || fail "the link address is the same"
	wait_for 10 listens_anew
	before=$(listens)
	wait_for 10 mounted "$active"
done
stop_nfs_server
expect_receives moving0
rdma link del moving0
