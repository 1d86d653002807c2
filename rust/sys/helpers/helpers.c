// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros cannot be called from Rust. The files below wrap
 * them in real functions, one file per C header, without any logic. Rust sees
 * rpcrdma_helper_x() as x().
 *
 * This file is also what bindings are generated from.
 */
#include "bindings_helper.h"

#include "completion.c"
#include "crypto_utils.c"
#include "dma_mapping.c"
#include "highmem.c"
#include "ib_verbs.c"
#include "jiffies.c"
#include "mm.c"
#include "module.c"
#include "net_namespace.c"
#include "ratelimit.c"
#include "rdma_cm.c"
#include "rdma_rw.c"
#include "scatterlist.c"
#include "sched.c"
#include "slab.c"
#include "spinlock.c"
#include "sunrpc_addr.c"
#include "sunrpc_clnt.c"
#include "sunrpc_svc.c"
#include "sunrpc_xdr.c"
#include "sunrpc_xprt.c"
#include "workqueue.c"
