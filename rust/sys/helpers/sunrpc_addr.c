// SPDX-License-Identifier: GPL-2.0

#include <linux/sunrpc/addr.h>

unsigned short rpcrdma_helper_rpc_get_port(const struct sockaddr *sap)
{
	return rpc_get_port(sap);
}

void rpcrdma_helper_rpc_set_port(struct sockaddr *sap, unsigned short port)
{
	rpc_set_port(sap, port);
}
