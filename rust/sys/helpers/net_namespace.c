// SPDX-License-Identifier: GPL-2.0

#include <net/net_namespace.h>

u64 rpcrdma_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

bool rpcrdma_helper_net_is_first(const struct net *net)
{
	return net_eq(net, &init_net);
}
