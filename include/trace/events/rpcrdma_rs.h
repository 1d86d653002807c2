/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Trace events of the RPC-over-RDMA transport written in Rust.
 *
 * The name of the system is not "rpcrdma": that one, and the names of its
 * events, belong to the transport of the kernel itself.
 *
 * Each event begins with the transport or connection that it is about, and
 * shows it as /sys/kernel/debug/rpcrdma names it: a transport of the client by
 * the number that /sys/kernel/sunrpc/xprt-switches gives it too, a connection
 * of the server as server/NUMBER. All events of the connection of one end have
 * that end's number, for both directions of Calls. A listener has no number,
 * and neither has a Shared Receive Queue.
 *
 * A Call is identified by its XID, and from the post of the Call to its end
 * also by the index of its slot.
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

/*
 * The arguments have both parts of the number in one word. Events keep them
 * apart, so that a filter can use either.
 */
#define RPCRDMA_RS_XPRT_FIELDS						\
		__field(u32, xprt)					\
		__field(bool, server)

#define RPCRDMA_RS_XPRT_ASSIGN(x)					\
		__entry->xprt = (x) & ~RPCRDMA_TRACE_SERVER;		\
		__entry->server = ((x) & RPCRDMA_TRACE_SERVER) != 0

#define RPCRDMA_RS_XPRT_FORMAT "xprt=%s%u"

#define RPCRDMA_RS_XPRT_ARGS						\
		__entry->server ? "server/" : "", __entry->xprt

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
TRACE_DEFINE_ENUM(RPCRDMA_CALL_BOTH);

#define rpcrdma_rs_show_call(x)						\
	__print_symbolic(x,						\
		{ RPCRDMA_CALL_INLINE,		"inline" },		\
		{ RPCRDMA_CALL_READ_CHUNK,	"read-chunk" },		\
		{ RPCRDMA_CALL_SPECIAL,		"special" },		\
		{ RPCRDMA_CALL_BOTH,		"call-and-read-chunk" })

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
TRACE_DEFINE_ENUM(RPCRDMA_WORK_READ);

#define rpcrdma_rs_show_work(x)						\
	__print_symbolic(x,						\
		{ RPCRDMA_WORK_RECEIVE,		"receive" },		\
		{ RPCRDMA_WORK_SEND,		"send" },		\
		{ RPCRDMA_WORK_REGISTER,	"register" },		\
		{ RPCRDMA_WORK_INVALIDATE,	"invalidate" },		\
		{ RPCRDMA_WORK_READ,		"read" })

TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_INLINE);
TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_PLACED);
TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_FAILED);
TRACE_DEFINE_ENUM(RPCRDMA_VERDICT_AGAIN);

#define rpcrdma_rs_show_verdict(x)					\
	__print_symbolic(x,						\
		{ RPCRDMA_VERDICT_INLINE,	"inline" },		\
		{ RPCRDMA_VERDICT_PLACED,	"placed" },		\
		{ RPCRDMA_VERDICT_FAILED,	"failed" },		\
		{ RPCRDMA_VERDICT_AGAIN,	"again" })

TRACE_DEFINE_ENUM(RPCRDMA_ANSWER_NONE);
TRACE_DEFINE_ENUM(RPCRDMA_ANSWER_ERR_VERS);
TRACE_DEFINE_ENUM(RPCRDMA_ANSWER_ERR_CHUNK);
TRACE_DEFINE_ENUM(RPCRDMA_ANSWER_ERROR);
TRACE_DEFINE_ENUM(RPCRDMA_ANSWER_CLOSE);

#define rpcrdma_rs_show_answer(x)					\
	__print_symbolic(x,						\
		{ RPCRDMA_ANSWER_NONE,		"none" },		\
		{ RPCRDMA_ANSWER_ERR_VERS,	"ERR_VERS" },		\
		{ RPCRDMA_ANSWER_ERR_CHUNK,	"ERR_CHUNK" },		\
		{ RPCRDMA_ANSWER_ERROR,		"ERROR" },		\
		{ RPCRDMA_ANSWER_CLOSE,		"close" })

/*
 * Connections
 */

/* An attempt to connect is over. If it failed, only the peer is known. */
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
		RPCRDMA_RS_XPRT_FIELDS
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
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__assign_str(addr);
		__assign_str(port);
		__assign_str(device);
		__entry->inline_send = inline_send;
		__entry->inline_receive = inline_receive;
		__entry->credits = credits;
		__entry->region_depth = region_depth;
		__entry->error = error;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " peer=[%s]:%s device=%s inline_send=%u inline_receive=%u credits=%u region_depth=%u error=%d",
		RPCRDMA_RS_XPRT_ARGS, __get_str(addr), __get_str(port),
		__get_str(device), __entry->inline_send,
		__entry->inline_receive, __entry->credits,
		__entry->region_depth, __entry->error
	)
);

/* The connection manager reports an event. */
TRACE_EVENT(rpcrdma_rs_cm_event,
	TP_PROTO(
		u32 xprt,
		u32 event,
		int status
	),

	TP_ARGS(xprt, event, status),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, event)
		__field(int, status)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->event = event;
		__entry->status = status;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " event=%s status=%d",
		RPCRDMA_RS_XPRT_ARGS, rdma_show_cm_event(__entry->event),
		__entry->status
	)
);

/* The device reports something about a Queue Pair. */
TRACE_EVENT(rpcrdma_rs_qp_event,
	TP_PROTO(
		u32 xprt,
		u32 event
	),

	TP_ARGS(xprt, event),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, event)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->event = event;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " event=%s",
		RPCRDMA_RS_XPRT_ARGS, rdma_show_ib_event(__entry->event)
	)
);

/* An established connection is found to be lost. */
TRACE_EVENT(rpcrdma_rs_lost,
	TP_PROTO(
		u32 xprt
	),

	TP_ARGS(xprt),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT, RPCRDMA_RS_XPRT_ARGS)
);

/* A connection, lost or not, is taken down by this side. */
TRACE_EVENT(rpcrdma_rs_disconnect,
	TP_PROTO(
		u32 xprt,
		u32 reason
	),

	TP_ARGS(xprt, reason),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, reason)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->reason = reason;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " reason=%s",
		RPCRDMA_RS_XPRT_ARGS, rpcrdma_rs_show_end(__entry->reason)
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, granted)
		__field(u32, limit)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->granted = granted;
		__entry->limit = limit;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " granted=%u limit=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->granted, __entry->limit
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u64, offset)
		__field(u32, handle)
		__field(u32, length)
		__field(u32, pages)
		__field(u32, direction)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->offset = offset;
		__entry->handle = handle;
		__entry->length = length;
		__entry->pages = pages;
		__entry->direction = direction;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x segment=%u@0x%016llx:0x%08x pages=%u direction=%s",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->length, __entry->offset,
		__entry->handle, __entry->pages,
		rpcrdma_rs_show_direction(__entry->direction)
	)
);

/* The invalidation of a Call's remaining regions was posted. */
TRACE_EVENT(rpcrdma_rs_region_fence_post,
	TP_PROTO(
		u32 xprt,
		u32 index,
		u32 count
	),

	TP_ARGS(xprt, index, count),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, index)
		__field(u32, count)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->index = index;
		__entry->count = count;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " index=%u count=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->index, __entry->count
	)
);

/* That invalidation is done, or the connection was lost before. */
TRACE_EVENT(rpcrdma_rs_region_fenced,
	TP_PROTO(
		u32 xprt,
		u32 index,
		bool done
	),

	TP_ARGS(xprt, index, done),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, index)
		__field(bool, done)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->index = index;
		__entry->done = done;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " index=%u done=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->index, __entry->done
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, handle)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->handle = handle;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x handle=0x%08x",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->handle
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
		RPCRDMA_RS_XPRT_FIELDS
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
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->index = index;
		__entry->call = call;
		__entry->offer = offer;
		__entry->header_len = header_len;
		__entry->len = len;
		__entry->regions = regions;
		__entry->signaled = signaled;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x index=%u call=%s reply=%s header_len=%u len=%u regions=%u signaled=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->index,
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, reason)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->reason = reason;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x reason=%s",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid,
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x", RPCRDMA_RS_XPRT_ARGS, __entry->xid)
);

/* A Call or a Reply waits because no region is free. */
DEFINE_EVENT(rpcrdma_rs_xid_class, rpcrdma_rs_out_of_regions,
	TP_PROTO(
		u32 xprt,
		u32 xid
	),
	TP_ARGS(xprt, xid)
);

/* A Call or a Reply waits for room in the Send Queue, or for a Send buffer. */
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

/* A Receive has completed; if successful, with a message of len octets. */
TRACE_EVENT(rpcrdma_rs_receive,
	TP_PROTO(
		u32 xprt,
		u32 len,
		u32 status
	),

	TP_ARGS(xprt, len, status),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, len)
		__field(u32, status)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->len = len;
		__entry->status = status;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " len=%u status=%s",
		RPCRDMA_RS_XPRT_ARGS, __entry->len,
		rdma_show_wc_status(__entry->status)
	)
);

/*
 * A signaled Send has completed. If successful, all that was posted to the Send
 * Queue before it has completed too.
 */
TRACE_EVENT(rpcrdma_rs_sent,
	TP_PROTO(
		u32 xprt,
		u64 sequence,
		u32 status
	),

	TP_ARGS(xprt, sequence, status),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u64, sequence)
		__field(u32, status)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->sequence = sequence;
		__entry->status = status;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " sequence=%llu status=%s",
		RPCRDMA_RS_XPRT_ARGS, __entry->sequence,
		rdma_show_wc_status(__entry->status)
	)
);

/* A work request has failed, which may be a Receive. */
TRACE_EVENT(rpcrdma_rs_completion_error,
	TP_PROTO(
		u32 xprt,
		u32 work,
		u32 status,
		u32 vendor_err
	),

	TP_ARGS(xprt, work, status, vendor_err),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, work)
		__field(u32, status)
		__field(u32, vendor_err)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->work = work;
		__entry->status = status;
		__entry->vendor_err = vendor_err;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " work=%s status=%s (%u/0x%x)",
		RPCRDMA_RS_XPRT_ARGS, rpcrdma_rs_show_work(__entry->work),
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, index)
		__field(u32, credits)
		__field(u32, verdict)
		__field(u32, len)
		__field(u32, written)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->index = index;
		__entry->credits = credits;
		__entry->verdict = verdict;
		__entry->len = len;
		__entry->written = written;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x index=%u credits=%u verdict=%s len=%u written=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->index, __entry->credits,
		rpcrdma_rs_show_verdict(__entry->verdict), __entry->len,
		__entry->written
	)
);

/* A message cannot be decoded. XID 0: it is too short to have one. */
TRACE_EVENT(rpcrdma_rs_decode_error,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		const char *fault,
		u32 len
	),

	TP_ARGS(xprt, xid, fault, len),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__string(fault, fault)
		__field(u32, len)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__assign_str(fault);
		__entry->len = len;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x fault=%s len=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __get_str(fault), __entry->len
	)
);

/*
 * Version Two
 */

/*
 * An RDMA2_ERROR message was sent, or has arrived, about the Call or other
 * message with this XID.
 */
TRACE_EVENT(rpcrdma_rs_error,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		const char *error,
		bool sent
	),

	TP_ARGS(xprt, xid, error, sent),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__string(error, error)
		__field(bool, sent)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__assign_str(error);
		__entry->sent = sent;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x error=%s sent=%d",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __get_str(error),
		__entry->sent
	)
);

/*
 * An OPTIONAL message of the protocol of 2016, or an error about one, was sent,
 * or has arrived. The values are those of its sender's properties as they are
 * then: octets, a boolean, and the level of reverse-direction operation (0 none,
 * 1 without chunks, 2 all).
 */
TRACE_EVENT(rpcrdma_rs_optional,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		const char *operation,
		u32 receive_size,
		u32 remote_invalidation,
		u32 reverse,
		bool sent
	),

	TP_ARGS(xprt, xid, operation, receive_size, remote_invalidation, reverse,
		sent),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__string(operation, operation)
		__field(u32, receive_size)
		__field(u32, remote_invalidation)
		__field(u32, reverse)
		__field(bool, sent)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__assign_str(operation);
		__entry->receive_size = receive_size;
		__entry->remote_invalidation = remote_invalidation;
		__entry->reverse = reverse;
		__entry->sent = sent;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x operation=%s receive_size=%u remote_invalidation=%u reverse=%u sent=%d",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __get_str(operation),
		__entry->receive_size, __entry->remote_invalidation,
		__entry->reverse, __entry->sent
	)
);

/*
 * The peer has answered a request for another value of one of its properties, in
 * the protocol of 2016: done, other (the value is another new one) or rejected
 * (nothing has changed).
 */
TRACE_EVENT(rpcrdma_rs_answered,
	TP_PROTO(
		u32 xprt,
		const char *property,
		u32 asked,
		const char *outcome,
		u32 value
	),

	TP_ARGS(xprt, property, asked, outcome, value),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__string(property, property)
		__field(u32, asked)
		__string(outcome, outcome)
		__field(u32, value)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__assign_str(property);
		__entry->asked = asked;
		__assign_str(outcome);
		__entry->value = value;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " property=%s asked=%u outcome=%s value=%u",
		RPCRDMA_RS_XPRT_ARGS, __get_str(property), __entry->asked,
		__get_str(outcome), __entry->value
	)
);

/* The protocol does not permit the session to go on; the connection ends. */
TRACE_EVENT(rpcrdma_rs_closing,
	TP_PROTO(
		u32 xprt,
		const char *reason
	),

	TP_ARGS(xprt, reason),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__string(reason, reason)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__assign_str(reason);
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " reason=%s",
		RPCRDMA_RS_XPRT_ARGS, __get_str(reason)
	)
);

/* The result of host authentication of the peer is known. */
TRACE_EVENT(rpcrdma_rs_host_auth,
	TP_PROTO(
		u32 xprt,
		const char *verdict
	),

	TP_ARGS(xprt, verdict),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__string(verdict, verdict)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__assign_str(verdict);
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " verdict=%s",
		RPCRDMA_RS_XPRT_ARGS, __get_str(verdict)
	)
);

/*
 * The version in use and the properties of the peer are known. Sizes are in
 * octets, windows in messages that may be sent now. In Version One a window is
 * one of Calls, and nothing is agreed on about segments.
 */
TRACE_EVENT(rpcrdma_rs_agreed,
	TP_PROTO(
		u32 xprt,
		u32 version,
		const char *dialect,
		u32 send_size,
		u32 receive_size,
		u32 segment_size,
		u32 segment_count,
		const char *reverse,
		u32 send_window,
		u32 receive_window
	),

	TP_ARGS(xprt, version, dialect, send_size, receive_size, segment_size,
		segment_count, reverse, send_window, receive_window),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, version)
		__string(dialect, dialect)
		__field(u32, send_size)
		__field(u32, receive_size)
		__field(u32, segment_size)
		__field(u32, segment_count)
		__string(reverse, reverse)
		__field(u32, send_window)
		__field(u32, receive_window)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->version = version;
		__assign_str(dialect);
		__entry->send_size = send_size;
		__entry->receive_size = receive_size;
		__entry->segment_size = segment_size;
		__entry->segment_count = segment_count;
		__assign_str(reverse);
		__entry->send_window = send_window;
		__entry->receive_window = receive_window;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " version=%u dialect=%s send_size=%u receive_size=%u segment_size=%u segment_count=%u reverse=%s send_window=%u receive_window=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->version, __get_str(dialect),
		__entry->send_size, __entry->receive_size,
		__entry->segment_size, __entry->segment_count,
		__get_str(reverse), __entry->send_window,
		__entry->receive_window
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
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, len)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->len = len;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x len=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->len
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

/*
 * The server
 */

/* A listener was made, or the attempt has failed. */
TRACE_EVENT(rpcrdma_rs_listen,
	TP_PROTO(
		const char *addr,
		const char *port,
		int error
	),

	TP_ARGS(addr, port, error),

	TP_STRUCT__entry(
		__string(addr, addr)
		__string(port, port)
		__field(int, error)
	),

	TP_fast_assign(
		__assign_str(addr);
		__assign_str(port);
		__entry->error = error;
	),

	TP_printk("local=[%s]:%s error=%d",
		__get_str(addr), __get_str(port), __entry->error
	)
);

/*
 * A connection request is accepted, and the connection waits to be established;
 * or it is rejected. Values that were not agreed on yet are 0 then.
 */
TRACE_EVENT(rpcrdma_rs_accept,
	TP_PROTO(
		u32 xprt,
		const char *addr,
		const char *port,
		const char *device,
		u32 inline_send,
		u32 inline_receive,
		u32 credits,
		u32 read_depth,
		bool invalidate,
		int error
	),

	TP_ARGS(xprt, addr, port, device, inline_send, inline_receive,
		credits, read_depth, invalidate, error),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__string(addr, addr)
		__string(port, port)
		__string(device, device)
		__field(u32, inline_send)
		__field(u32, inline_receive)
		__field(u32, credits)
		__field(u32, read_depth)
		__field(bool, invalidate)
		__field(int, error)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__assign_str(addr);
		__assign_str(port);
		__assign_str(device);
		__entry->inline_send = inline_send;
		__entry->inline_receive = inline_receive;
		__entry->credits = credits;
		__entry->read_depth = read_depth;
		__entry->invalidate = invalidate;
		__entry->error = error;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " peer=[%s]:%s device=%s inline_send=%u inline_receive=%u credits=%u read_depth=%u invalidate=%u error=%d",
		RPCRDMA_RS_XPRT_ARGS, __get_str(addr), __get_str(port),
		__get_str(device), __entry->inline_send,
		__entry->inline_receive, __entry->credits,
		__entry->read_depth, __entry->invalidate, __entry->error
	)
);

/* Replies carry this grant from now on; calls are unanswered at present. */
TRACE_EVENT(rpcrdma_rs_grant,
	TP_PROTO(
		u32 xprt,
		u32 credits,
		u32 calls
	),

	TP_ARGS(xprt, credits, calls),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, credits)
		__field(u32, calls)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->credits = credits;
		__entry->calls = calls;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " credits=%u calls=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->credits, __entry->calls
	)
);

/* A thread has taken a Call in; len octets with the header. */
TRACE_EVENT(rpcrdma_rs_call,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 len,
		u32 credits,
		u32 read_segments,
		u32 write_chunks,
		u32 reply_segments,
		bool nomsg
	),

	TP_ARGS(xprt, xid, len, credits, read_segments, write_chunks,
		reply_segments, nomsg),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, len)
		__field(u32, credits)
		__field(u32, read_segments)
		__field(u32, write_chunks)
		__field(u32, reply_segments)
		__field(bool, nomsg)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->len = len;
		__entry->credits = credits;
		__entry->read_segments = read_segments;
		__entry->write_chunks = write_chunks;
		__entry->reply_segments = reply_segments;
		__entry->nomsg = nomsg;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x len=%u credits=%u read_segments=%u write_chunks=%u reply_segments=%u nomsg=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->len,
		__entry->credits, __entry->read_segments,
		__entry->write_chunks, __entry->reply_segments, __entry->nomsg
	)
);

/* The RDMA Reads of a Call were posted. */
TRACE_EVENT(rpcrdma_rs_read_post,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 reads,
		u32 octets,
		u32 requests
	),

	TP_ARGS(xprt, xid, reads, octets, requests),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, reads)
		__field(u32, octets)
		__field(u32, requests)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->reads = reads;
		__entry->octets = octets;
		__entry->requests = requests;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x reads=%u octets=%u requests=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->reads,
		__entry->octets, __entry->requests
	)
);

/* These RDMA Reads are done. */
DEFINE_EVENT(rpcrdma_rs_xid_class, rpcrdma_rs_read_done,
	TP_PROTO(
		u32 xprt,
		u32 xid
	),
	TP_ARGS(xprt, xid)
);

/*
 * A Reply was posted: len octets with the header in the Send, and RDMA Writes
 * before it. The handle is what the Send invalidates, 0 for none.
 */
TRACE_EVENT(rpcrdma_rs_post_reply,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 len,
		u32 writes,
		u32 octets,
		u32 requests,
		u32 handle,
		u64 sequence
	),

	TP_ARGS(xprt, xid, len, writes, octets, requests, handle, sequence),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u64, sequence)
		__field(u32, len)
		__field(u32, writes)
		__field(u32, octets)
		__field(u32, requests)
		__field(u32, handle)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->sequence = sequence;
		__entry->len = len;
		__entry->writes = writes;
		__entry->octets = octets;
		__entry->requests = requests;
		__entry->handle = handle;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x len=%u writes=%u octets=%u requests=%u invalidate=0x%08x sequence=%llu",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->len,
		__entry->writes, __entry->octets, __entry->requests,
		__entry->handle, __entry->sequence
	)
);

/* A Reply could not be sent; the connection is ended. */
TRACE_EVENT(rpcrdma_rs_reply_failed,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		int error
	),

	TP_ARGS(xprt, xid, error),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(int, error)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->error = error;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x error=%d",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid, __entry->error
	)
);

/*
 * A message is refused, or a Call cannot be served; why is the reason. The XID
 * is 0 if the message is too short to have one.
 */
TRACE_EVENT(rpcrdma_rs_refuse,
	TP_PROTO(
		u32 xprt,
		u32 xid,
		u32 answer,
		const char *why,
		u32 len
	),

	TP_ARGS(xprt, xid, answer, why, len),

	TP_STRUCT__entry(
		RPCRDMA_RS_XPRT_FIELDS
		__field(u32, xid)
		__field(u32, answer)
		__string(why, why)
		__field(u32, len)
	),

	TP_fast_assign(
		RPCRDMA_RS_XPRT_ASSIGN(xprt);
		__entry->xid = xid;
		__entry->answer = answer;
		__assign_str(why);
		__entry->len = len;
	),

	TP_printk(RPCRDMA_RS_XPRT_FORMAT " xid=0x%08x answer=%s why=%s len=%u",
		RPCRDMA_RS_XPRT_ARGS, __entry->xid,
		rpcrdma_rs_show_answer(__entry->answer), __get_str(why),
		__entry->len
	)
);

#endif /* _TRACE_RPCRDMA_RS_H */

/* Found as <trace/events/rpcrdma_rs.h>, by the -I of the module's Kbuild. */
#include <trace/define_trace.h>
