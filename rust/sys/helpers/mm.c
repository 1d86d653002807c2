// SPDX-License-Identifier: GPL-2.0

#include <linux/mm.h>
#include <linux/sched/mm.h>

void rpcrdma_helper_get_page(struct page *page)
{
	get_page(page);
}

void *rpcrdma_helper_page_address(struct page *page)
{
	return page_address(page);
}

void rpcrdma_helper_put_page(struct page *page)
{
	put_page(page);
}

struct page *rpcrdma_helper_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}

struct page *rpcrdma_helper_alloc_page(gfp_t gfp)
{
	return alloc_page(gfp);
}
