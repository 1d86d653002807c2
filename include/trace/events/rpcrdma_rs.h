/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of the RPC-over-RDMA transport written in Rust.
 *
 * The name of the system is not "rpcrdma": that one, and the names of its
 * events, belong to the transport of the kernel itself.
 *
 * Each event begins with the number of the transport, the one by which
 * /sys/kernel/debug/rpcrdma and /sys/kernel/sunrpc/xprt-switches name it. A
 * Call is known by its XID, and from the post of the Call to its end also by
 * the index of its slot.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rpcrdma_rs

#if !defined(_TRACE_RPCRDMA_RS_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_RPCRDMA_RS_H

#include <linux/tracepoint.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <trace/misc/rdma.h>

#include "rpcrdma_trace.h"

TRACE_DEFINE_ENUM(RPCRDMA_END_CLOSED);
TRACE_DEFINE_ENUM(RPCRDMA_END_FAILED);
TRACE_DEFINE_ENUM(RPCRDMA_END_REPLACED);
TRACE_DEFINE_ENUM(RPCRDMA_END_DESTROYED);

#define rpcrdma_rs_show_end(x)						\
	__print_symbolic(x,						\
		{ RPCRDMA_END_CLOSED,		"closed" },		\
		{ RPCRDMA_END_FAILED,		"failed" },		\
		{ RPCRDMA_END_REPLACED,		"replaced" },		\
		{ RPCRDMA_END_DESTROYED,	"destroyed" })

TRACE_DEFINE_ENUM(RPCRDMA_PEER_READS);
TRACE_DEFINE_ENUM(RPCRDMA_PEER_WRITES);

#define rpcrdma_rs_show_direction(x)					\
	__print_symbolic(x,						\
		{ RPCRDMA_PEER_READS,		"peer-reads" },		\
		{ RPCRDMA_PEER_WRITES,		"peer-writes" })

TRACE_DEFINE_ENUM(RPCRDMA_CALL_INLINE);
TRACE_DEFINE_ENUM(RPCRDMA_CALL_READ_CHUNK);
TRACE_DEFINE_ENUM(RPCRDMA_CALL_SPECIAL);

#define rpcrdma_rs_show_call(x)						\
	__print_symbolic(x,						\
		{ RPCRDMA_CALL_INLINE,		"inline" },		\
		{ RPCRDMA_CALL_READ_CHUNK,	"read-chunk" },		\
		{ RPCRDMA_CALL_SPECIAL,		"special" })

TRACE_DEFINE_ENUM(RPCRDMA_OFFER_NONE);
TRACE_DEFINE_ENUM(RPCRDMA_OFFER_WRITE_CHUNK);
TRACE_DEFINE_ENUM(RPCRDMA_OFFER_REPLY_CHUNK);
TRACE_DEFINE_ENUM(RPCRDMA_OFFER_BOTH);

#define rpcrdma_rs_show_offer(x)					\
	__print_symbolic(x,						\
		{ RPCRDMA_OFFER_NONE,		"inline" },		\
		{ RPCRDMA_OFFER_WRITE_CHUNK,	"write-chunk" },	\
		{ RPCRDMA_OFFER_REPLY_CHUNK,	"reply-chunk" },	\
		{ RPCRDMA_OFFER_BOTH,		"write-and-reply-chunk" })

TRACE_DEFINE_ENUM(RPCRDMA_POST_CLOSED);
TRACE_DEFINE_ENUM(RPCRDMA_POST_FULL);
TRACE_DEFINE_ENUM(RPCRDMA_POST_REFUSED);

#define rpcrdma_rs_show_post(x)						\
	__print_symbolic(x,						\
		{ RPCRDMA_POST_CLOSED,		"closed" },		\
		{ RPCRDMA_POST_FULL,		"full" },		\
		{ RPCRDMA_POST_REFUSED,		"refused" })

TRACE_DEFINE_ENUM(RPCRDMA_WORK_RECEIVE);
TRACE_DEFINE_ENUM(RPCRDMA_WORK_SEND);
TRACE_DEFINE_ENUM(RPCRDMA_WORK_REGISTER);
TRACE_DEFINE_ENUM(RPCRDMA_WORK_INVALIDATE);

#define rpcrdma_rs_show_work(x)						\
	__print_symbolic(x,						\
		{ RPCRDMA_WORK_RECEIVE,		"receive" },		\
		{ RPCRDMA_WORK_SEND,		"send" },		\
		{ RPCRDMA_WORK_REGISTER,	"register" },		\
		{ RPCRDMA_WORK_INVALIDATE,	"invalidate" })

TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_INLINE);
TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_PLACED);
TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_FAILED);

#define rpcrdma_rs_show_verdict(x)					\
	__print_symbolic(x,						\
		{ RPCRDMA_VERDICT_INLINE,	"inline" },		\
		{ RPCRDMA_VERDICT_PLACED,	"placed" },		\
		{ RPCRDMA_VERDICT_FAILED,	"failed" })

/*
 * Connections
 */

/* An attempt to connect is over. Without success, only the peer is known. */
TRACE_EVENT(rpcrdma_rs_connect,
	TP_PROTO(
		u32 xprt,
		const char *addr,
		const char *port,
		const char *device,
		u32 inline_send,
		u32 inline_receive,
		u32 credits,
		u32 region_depth,
		int error
	),

	TP_ARGS(xprt, addr, port, device, inline_send, inline_receive,
		credits, region_depth, error),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__string(addr, addr)
		__string(port, port)
		__string(device, device)
		__field(u32, inline_send)
		__field(u32, inline_receive)
		__field(u32, credits)
		__field(u32, region_depth)
		__field(int, error)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__assign_str(addr);
		__assign_str(port);
		__assign_str(device);
		__entry->inline_send = inline_send;
		__entry->inline_receive = inline_receive;
		__entry->credits = credits;
		__entry->region_depth = region_depth;
		__entry->error = error;
	),

	TP_printk("xprt=%u peer=[%s]:%s device=%s inline_send=%u inline_receive=%u credits=%u region_depth=%u error=%d",
		__entry->xprt, __get_str(addr), __get_str(port),
		__get_str(device), __entry->inline_send,
		__entry->inline_receive, __entry->credits,
		__entry->region_depth, __entry->error
	)
);

/* What the connection manager reports. */
TRACE_EVENT(rpcrdma_rs_cm_event,
	TP_PROTO(
		u32 xprt,
		u32 event,
		int status
	),

	TP_ARGS(xprt, event, status),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, event)
		__field(int, status)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->event = event;
		__entry->status = status;
	),

	TP_printk("xprt=%u event=%s status=%d",
		__entry->xprt, rdma_show_cm_event(__entry->event),
		__entry->status
	)
);

/* An established connection is found to be lost. */
TRACE_EVENT(rpcrdma_rs_lost,
	TP_PROTO(
		u32 xprt
	),

	TP_ARGS(xprt),

	TP_STRUCT__entry(
		__field(u32, xprt)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
	),

	TP_printk("xprt=%u", __entry->xprt)
);

/* A connection, lost or not, is taken down by this side. */
TRACE_EVENT(rpcrdma_rs_disconnect,
	TP_PROTO(
		u32 xprt,
		u32 reason
	),

	TP_ARGS(xprt, reason),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, reason)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->reason = reason;
	),

	TP_printk("xprt=%u reason=%s",
		__entry->xprt, rpcrdma_rs_show_end(__entry->reason)
	)
);

/* The peer's grant of credits has changed. */
TRACE_EVENT(rpcrdma_rs_credits,
	TP_PROTO(
		u32 xprt,
		u32 granted,
		u32 limit
	),

	TP_ARGS(xprt, granted, limit),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, granted)
		__field(u32, limit)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->granted = granted;
		__entry->limit = limit;
	),

	TP_printk("xprt=%u granted=%u limit=%u",
		__entry->xprt, __entry->granted, __entry->limit
	)
);

/*
 * Memory regions
 */

/* A region was given pages and a fresh handle; its registration follows. */
TRACE_EVENT(rpcrdma_rs_region_map,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 handle,
		u32 length,
		u64 offset,
		u32 pages,
		u32 direction
	),

	TP_ARGS(xprt, xid, handle, length, offset, pages, direction),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__field(u64, offset)
		__field(u32, handle)
		__field(u32, length)
		__field(u32, pages)
		__field(u32, direction)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__entry->offset = offset;
		__entry->handle = handle;
		__entry->length = length;
		__entry->pages = pages;
		__entry->direction = direction;
	),

	TP_printk("xprt=%u xid=0x%08x segment=%u@0x%016llx:0x%08x pages=%u direction=%s",
		__entry->xprt, __entry->xid, __entry->length, __entry->offset,
		__entry->handle, __entry->pages,
		rpcrdma_rs_show_direction(__entry->direction)
	)
);

/* The invalidation of what is left of a Call's regions was posted. */
TRACE_EVENT(rpcrdma_rs_region_fence_post,
	TP_PROTO(
		u32 xprt,
		u32 index,
		u32 count
	),

	TP_ARGS(xprt, index, count),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, index)
		__field(u32, count)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->index = index;
		__entry->count = count;
	),

	TP_printk("xprt=%u index=%u count=%u",
		__entry->xprt, __entry->index, __entry->count
	)
);

/* That invalidation is done, or the connection was lost before it was. */
TRACE_EVENT(rpcrdma_rs_region_fenced,
	TP_PROTO(
		u32 xprt,
		u32 index,
		bool done
	),

	TP_ARGS(xprt, index, done),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, index)
		__field(bool, done)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->index = index;
		__entry->done = done;
	),

	TP_printk("xprt=%u index=%u done=%u",
		__entry->xprt, __entry->index, __entry->done
	)
);

/* The peer has invalidated a handle with its Reply. */
TRACE_EVENT(rpcrdma_rs_remote_invalidation,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 handle
	),

	TP_ARGS(xprt, xid, handle),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__field(u32, handle)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__entry->handle = handle;
	),

	TP_printk("xprt=%u xid=0x%08x handle=0x%08x",
		__entry->xprt, __entry->xid, __entry->handle
	)
);

/*
 * Calls out
 */

TRACE_EVENT(rpcrdma_rs_post_call,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 index,
		u32 call,
		u32 offer,
		u32 header_len,
		u32 len,
		u32 regions,
		bool signaled
	),

	TP_ARGS(xprt, xid, index, call, offer, header_len, len, regions,
		signaled),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__field(u32, index)
		__field(u32, call)
		__field(u32, offer)
		__field(u32, header_len)
		__field(u32, len)
		__field(u32, regions)
		__field(bool, signaled)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__entry->index = index;
		__entry->call = call;
		__entry->offer = offer;
		__entry->header_len = header_len;
		__entry->len = len;
		__entry->regions = regions;
		__entry->signaled = signaled;
	),

	TP_printk("xprt=%u xid=0x%08x index=%u call=%s reply=%s header_len=%u len=%u regions=%u signaled=%u",
		__entry->xprt, __entry->xid, __entry->index,
		rpcrdma_rs_show_call(__entry->call),
		rpcrdma_rs_show_offer(__entry->offer),
		__entry->header_len, __entry->len, __entry->regions,
		__entry->signaled
	)
);

TRACE_EVENT(rpcrdma_rs_post_failed,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 reason
	),

	TP_ARGS(xprt, xid, reason),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__field(u32, reason)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__entry->reason = reason;
	),

	TP_printk("xprt=%u xid=0x%08x reason=%s",
		__entry->xprt, __entry->xid,
		rpcrdma_rs_show_post(__entry->reason)
	)
);

DECLARE_EVENT_CLASS(rpcrdma_rs_xid_class,
	TP_PROTO(
		u32 xprt,
		u32 xid
	),

	TP_ARGS(xprt, xid),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
	),

	TP_printk("xprt=%u xid=0x%08x", __entry->xprt, __entry->xid)
);

/* A Call waits because no region is free. */
DEFINE_EVENT(rpcrdma_rs_xid_class, rpcrdma_rs_out_of_regions,
	TP_PROTO(
		u32 xprt,
		u32 xid
	),
	TP_ARGS(xprt, xid)
);

/* A Call waits for room in the Send Queue, or for a Send buffer. */
DEFINE_EVENT(rpcrdma_rs_xid_class, rpcrdma_rs_send_queue_full,
	TP_PROTO(
		u32 xprt,
		u32 xid
	),
	TP_ARGS(xprt, xid)
);

/*
 * Completions and Replies
 */

/* A Receive has completed, with a message of len octets if with success. */
TRACE_EVENT(rpcrdma_rs_receive,
	TP_PROTO(
		u32 xprt,
		u32 len,
		u32 status
	),

	TP_ARGS(xprt, len, status),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, len)
		__field(u32, status)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->len = len;
		__entry->status = status;
	),

	TP_printk("xprt=%u len=%u status=%s",
		__entry->xprt, __entry->len,
		rdma_show_wc_status(__entry->status)
	)
);

/* Any completion without success, that of a Receive as well. */
TRACE_EVENT(rpcrdma_rs_completion_error,
	TP_PROTO(
		u32 xprt,
		u32 work,
		u32 status,
		u32 vendor_err
	),

	TP_ARGS(xprt, work, status, vendor_err),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, work)
		__field(u32, status)
		__field(u32, vendor_err)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->work = work;
		__entry->status = status;
		__entry->vendor_err = vendor_err;
	),

	TP_printk("xprt=%u work=%s status=%s (%u/0x%x)",
		__entry->xprt, rpcrdma_rs_show_work(__entry->work),
		rdma_show_wc_status(__entry->status), __entry->status,
		__entry->vendor_err
	)
);

/* A Reply was matched with its Call. */
TRACE_EVENT(rpcrdma_rs_reply,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 index,
		u32 credits,
		u32 verdict,
		u32 len,
		u32 written
	),

	TP_ARGS(xprt, xid, index, credits, verdict, len, written),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__field(u32, index)
		__field(u32, credits)
		__field(u32, verdict)
		__field(u32, len)
		__field(u32, written)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__entry->index = index;
		__entry->credits = credits;
		__entry->verdict = verdict;
		__entry->len = len;
		__entry->written = written;
	),

	TP_printk("xprt=%u xid=0x%08x index=%u credits=%u verdict=%s len=%u written=%u",
		__entry->xprt, __entry->xid, __entry->index, __entry->credits,
		rpcrdma_rs_show_verdict(__entry->verdict), __entry->len,
		__entry->written
	)
);

/* A message makes no sense. The XID is 0 if it is too short to have one. */
TRACE_EVENT(rpcrdma_rs_decode_error,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		const char *fault,
		u32 len
	),

	TP_ARGS(xprt, xid, fault, len),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__string(fault, fault)
		__field(u32, len)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__assign_str(fault);
		__entry->len = len;
	),

	TP_printk("xprt=%u xid=0x%08x fault=%s len=%u",
		__entry->xprt, __entry->xid, __get_str(fault), __entry->len
	)
);

/*
 * The reverse direction
 */

DECLARE_EVENT_CLASS(rpcrdma_rs_reverse_class,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 len
	),

	TP_ARGS(xprt, xid, len),

	TP_STRUCT__entry(
		__field(u32, xprt)
		__field(u32, xid)
		__field(u32, len)
	),

	TP_fast_assign(
		__entry->xprt = xprt;
		__entry->xid = xid;
		__entry->len = len;
	),

	TP_printk("xprt=%u xid=0x%08x len=%u",
		__entry->xprt, __entry->xid, __entry->len
	)
);

/* A Call has arrived; len octets of RPC message. */
DEFINE_EVENT(rpcrdma_rs_reverse_class, rpcrdma_rs_reverse_call,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 len
	),
	TP_ARGS(xprt, xid, len)
);

/* Its Reply was posted; len octets with the header. */
DEFINE_EVENT(rpcrdma_rs_reverse_class, rpcrdma_rs_reverse_reply,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 len
	),
	TP_ARGS(xprt, xid, len)
);

#endif /* _TRACE_RPCRDMA_RS_H */

/* Found as <trace/events/rpcrdma_rs.h>, by the -I of the module's Kbuild. */
#include <trace/define_trace.h>
