// SPDX-License-Identifier: GPL-2.0

#include <linux/slab.h>

void *rpcrdma_helper_kmalloc(size_t size, gfp_t flags)
{
	return kmalloc(size, flags);
}

void *rpcrdma_helper_kmalloc_node(size_t size, gfp_t flags, int node)
{
	return kmalloc_node(size, flags, node);
}
