/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers that Rust bindings are generated for, beyond those that the
 * kernel's own bindings cover.
 */
#ifndef RPCRDMA_BINDINGS_HELPER_H
#define RPCRDMA_BINDINGS_HELPER_H

/*
 * Avoid forward references to enum types: bindgen then picks a type for them
 * that depends on the order of the headers.
 */
#include <linux/hrtimer_types.h>

#include <crypto/utils.h>
#include <linux/completion.h>
#include <linux/cpumask.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/random.h>
#include <linux/ratelimit.h>
#include <linux/scatterlist.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include <linux/sunrpc/addr.h>
#include <linux/sunrpc/auth.h>
#include <linux/sunrpc/bc_xprt.h>
#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/msg_prot.h>
#include <linux/sunrpc/rpc_rdma.h>
#include <linux/sunrpc/sched.h>
#include <linux/sunrpc/svc.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xdr.h>
#include <linux/sunrpc/xprt.h>

#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>
#include <rdma/rw.h>

#include <trace/events/rpcrdma_rs.h>

#include "rpcrdma_c.h"
#include "rpcrdma_trace.h"

/* Values that bindgen cannot see, because the macros contain casts. */
enum {
	RPCRDMA_HZ = HZ,
	RPCRDMA_IPPROTO_TCP = IPPROTO_TCP,
	RPCRDMA_IPPROTO_MAX = IPPROTO_MAX,
	/* Enums of the kernel's bindings that differ between its versions. */
	RPCRDMA_DMA_TO_DEVICE = DMA_TO_DEVICE,
	RPCRDMA_DMA_FROM_DEVICE = DMA_FROM_DEVICE,
	RPCRDMA_DMA_ATTR_SKIP_CPU_SYNC = DMA_ATTR_SKIP_CPU_SYNC,
};

#endif
