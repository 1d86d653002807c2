// SPDX-License-Identifier: GPL-2.0

#include <linux/sunrpc/xprt.h>
#include <linux/wait_bit.h>

void rpcrdma_helper_xprt_clear_connected(struct rpc_xprt *xprt)
{
	xprt_clear_connected(xprt);
}

void rpcrdma_helper_xprt_clear_connecting(struct rpc_xprt *xprt)
{
	xprt_clear_connecting(xprt);
}

int rpcrdma_helper_xprt_connected(struct rpc_xprt *xprt)
{
	return xprt_connected(xprt);
}

bool rpcrdma_helper_xprt_close_wait(struct rpc_xprt *xprt)
{
	return test_bit(XPRT_CLOSE_WAIT, &xprt->state);
}

void rpcrdma_helper_xprt_set_bound(struct rpc_xprt *xprt)
{
	xprt_set_bound(xprt);
}

void rpcrdma_helper_xprt_set_connected(struct rpc_xprt *xprt)
{
	xprt_set_connected(xprt);
}

void rpcrdma_helper_xprt_swapper_inc(struct rpc_xprt *xprt)
{
	atomic_inc(&xprt->swapper);
}

void rpcrdma_helper_xprt_swapper_dec(struct rpc_xprt *xprt)
{
	atomic_dec(&xprt->swapper);
}

unsigned int rpcrdma_helper_xprt_references(struct rpc_xprt *xprt)
{
	return kref_read(&xprt->kref);
}

void rpcrdma_helper_xprt_wake_lock(struct rpc_xprt *xprt)
{
	/* Between the change of the bit and the look whether somebody sleeps. */
	smp_mb();
	wake_up_bit(&xprt->state, XPRT_LOCKED);
}

int rpcrdma_helper_xprt_swapping(struct rpc_xprt *xprt)
{
	return atomic_read(&xprt->swapper);
}

bool rpcrdma_helper_xprt_has_bc_server(struct rpc_xprt *xprt)
{
#ifdef CONFIG_SUNRPC_BACKCHANNEL
	return READ_ONCE(xprt->bc_serv);
#else
	return false;
#endif
}

void rpcrdma_helper_xprt_bc_slot_inc(struct rpc_xprt *xprt)
{
#ifdef CONFIG_SUNRPC_BACKCHANNEL
	atomic_inc(&xprt->bc_slot_count);
#endif
}
