#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every trace event shows the values it was raised with, and none is left out.
# mode: run
# kernels: uml
# timeout: 60
#
# The module's KUnit suite rpcrdma_trace raises each event once while the module
# is being inserted. Events are off until they are asked for, so this has them
# enabled for modules that are yet to come.
set -eu
. "$GUEST_LIB"

tracing=/sys/kernel/tracing
mountpoint -q $tracing || mount -t tracefs tracefs $tracing
echo ':mod:rpcrdma' >$tracing/set_event
load_module

expected() {
	cat <<-EOF
	connect: peer=[192.0.2.1]:20049 device=device0 inline_send=4096 inline_receive=8192 credits=128 region_depth=257 error=-111
	cm_event: event=REJECTED status=28
	qp_event: event=QP_ACCESS_ERR
	lost:
	disconnect: reason=replaced
	credits: granted=200 limit=128
	region_map: xid=0x11223344 segment=12345@0x0102030405060708:0x55667788 pages=4 direction=peer-writes
	region_fence_post: index=17 count=3
	region_fenced: index=18 done=1
	remote_invalidation: xid=0x11223344 handle=0x55667788
	post_call: xid=0x11223344 index=19 call=special reply=write-and-reply-chunk header_len=52 len=200 regions=5 signaled=1
	post_failed: xid=0x11223345 reason=refused
	out_of_regions: xid=0x11223346
	send_queue_full: xid=0x11223347
	receive: len=1000 status=SUCCESS
	completion_error: work=register status=WR_FLUSH_ERR (5/0xab)
	reply: xid=0x11223348 index=20 credits=64 verdict=placed len=600 written=4321
	decode_error: xid=0x11223349 fault=version len=28
	error: xid=0x1122334c error=SEGMENTS sent=1
	closing: reason=stalled
	host_auth: verdict=refused-wrong-key
	optional: xid=0x1122334d operation=UPDPROP receive_size=8192 remote_invalidation=1 reverse=2 sent=1
	answered: property=receive_size asked=65536 outcome=other value=32768
	agreed: version=2 dialect=draft-07 send_size=4096 receive_size=8192 segment_size=1048576 segment_count=64 reverse=general send_window=31 receive_window=15
	reverse_call: xid=0x1122334a len=108
	reverse_reply: xid=0x1122334b len=92
	sent: server sequence=1099511627776 status=SUCCESS
	listen: local=[192.0.2.2]:20049 error=-98
	accept: server peer=[192.0.2.1]:40000 device=device1 inline_send=4096 inline_receive=1024 credits=32 read_depth=16 invalidate=1 error=-12
	grant: server credits=32 calls=31
	call: server xid=0x11223350 len=132 credits=128 read_segments=3 write_chunks=1 reply_segments=2 nomsg=1
	read_post: server xid=0x11223350 reads=3 octets=1048576 requests=256
	read_done: server xid=0x11223350
	post_reply: server xid=0x11223350 len=200 writes=2 octets=65536 requests=16 invalidate=0x55667788 sequence=1099511627776
	reply_failed: server xid=0x11223351 error=-107
	refuse: server xid=0x11223352 answer=ERR_VERS why=version len=28
	EOF
}

# The number that the suite uses for this, at either end. A listener has none, nor
# have Receives that are shared.
seen=$(sed -n -e 's/.*: rpcrdma_rs_\([a-z_]*:\) xprt=2147483633/\1/p' \
	-e 's/.*: rpcrdma_rs_\([a-z_]*:\) xprt=server.2147483633/\1 server/p' \
	-e 's/.*: rpcrdma_rs_\(listen: local=.192\.0\.2\.2\)/\1/p' $tracing/trace)
diff <(expected) <(echo "$seen") || fail "the events differ from what was raised"

for event in "$tracing"/events/rpcrdma_rs/rpcrdma_rs_*; do
	event=${event##*/rpcrdma_rs_}
	expected | grep -q "^$event:" || fail "nobody raises $event"
done

# Off, they write nothing.
echo >$tracing/set_event
unload_module
echo >$tracing/trace
load_module
expect_eq "events while off" "$(grep -c rpcrdma_rs_ $tracing/trace || true)" 0
