// SPDX-License-Identifier: GPL-2.0
/*
 * The transport classes that SUNRPC knows the module by, and the end of a
 * transport's life.
 *
 * The class structures are C because their list of network identifiers is a
 * flexible array, which no Rust static can have.
 */
#include <linux/err.h>
#include <linux/module.h>
#include <linux/sunrpc/svc_rdma.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>

#include "rpcrdma_c.h"

/* Its setup function is given by rpcrdma_class_register(). */
struct xprt_class rpcrdma_class_client = {
	.list	= LIST_HEAD_INIT(rpcrdma_class_client.list),
	.name	= "rdma",
	.owner	= THIS_MODULE,
	.ident	= XPRT_TRANSPORT_RDMA,
	.netid	= { "rdma", "rdma6", "" },
};

/*
 * The Requester of a server: it sends Calls to a client over the connection
 * which that client made. Its setup function is given by
 * rpcrdma_class_server_register().
 */
struct xprt_class rpcrdma_class_backchannel = {
	.list	= LIST_HEAD_INIT(rpcrdma_class_backchannel.list),
	.name	= "rdma backchannel",
	.owner	= THIS_MODULE,
	.ident	= XPRT_TRANSPORT_BC_RDMA,
	.netid	= { "" },
};

/**
 * rpcrdma_class_register - make the client's transport class known to SUNRPC
 * @setup: makes a client transport
 *
 * Return values:
 *   %0:	the class is registered
 *   %-EEXIST:	the kernel has a transport of the same kind already
 */
int rpcrdma_class_register(struct rpc_xprt *(*setup)(struct xprt_create *args))
{
	rpcrdma_class_client.setup = setup;
	return xprt_register_transport(&rpcrdma_class_client);
}

/**
 * rpcrdma_class_unregister - undo rpcrdma_class_register()
 */
void rpcrdma_class_unregister(void)
{
	xprt_unregister_transport(&rpcrdma_class_client);
}

/**
 * rpcrdma_class_xprt_destroy - the destroy method of our transports
 * @xprt: transport without other references
 *
 * The Rust side drops its state first. If it cannot (something still
 * refers to that state, which is a bug), memory and module stay: a leak, not a
 * use after free.
 *
 * The reference that the transport holds to the module is given back by the
 * very last thing done here, so that no Rust destructor is still to run when
 * the module may go away.
 */
void rpcrdma_class_xprt_destroy(struct rpc_xprt *xprt)
{
	struct rpcrdma_xprt *rx = container_of(xprt, struct rpcrdma_xprt, xprt);

	if (!rx->release(xprt))
		return;
	xprt_free(xprt);
	module_put(THIS_MODULE);
}

/* Its operations are given by rpcrdma_class_server_register(). */
struct svc_xprt_class rpcrdma_class_server = {
	.xcl_name	 = "rdma",
	.xcl_owner	 = THIS_MODULE,
	.xcl_max_payload = RPCSVC_MAXPAYLOAD_RDMA,
	.xcl_ident	 = XPRT_TRANSPORT_RDMA,
};

/**
 * rpcrdma_class_server_register - make the server's classes known to SUNRPC
 * @ops: operations of a listener
 * @setup: makes a transport for Calls to a client, on a connection of a server
 *
 * Return values:
 *   %0:	both classes are registered
 *   %-EEXIST:	the kernel has a transport of the same kind already
 */
int rpcrdma_class_server_register(const struct svc_xprt_ops *ops,
				  struct rpc_xprt *(*setup)(struct xprt_create *args))
{
	int rc;

	rpcrdma_class_backchannel.setup = setup;
	rc = xprt_register_transport(&rpcrdma_class_backchannel);
	if (rc)
		return rc;

	rpcrdma_class_server.xcl_ops = ops;
	rc = svc_reg_xprt_class(&rpcrdma_class_server);
	if (rc)
		xprt_unregister_transport(&rpcrdma_class_backchannel);
	return rc;
}

/**
 * rpcrdma_class_server_unregister - undo rpcrdma_class_server_register()
 */
void rpcrdma_class_server_unregister(void)
{
	svc_unreg_xprt_class(&rpcrdma_class_server);
	xprt_unregister_transport(&rpcrdma_class_backchannel);
}
