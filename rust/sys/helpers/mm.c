// SPDX-License-Identifier: GPL-2.0

#include <linux/mm.h>

struct page *rpcrdma_helper_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}

unsigned long rpcrdma_helper_totalram_pages(void)
{
	return totalram_pages();
}

struct page *rpcrdma_helper_alloc_page(gfp_t gfp)
{
	return alloc_page(gfp);
}

struct page *rpcrdma_helper_alloc_pages_node(int nid, gfp_t gfp,
					     unsigned int order)
{
	return alloc_pages_node(nid, gfp, order);
}

void rpcrdma_helper_free_pages_exact(void *address, size_t size)
{
	free_pages_exact(address, size);
}

void rpcrdma_helper_release_pages(struct page **pages, int count)
{
	release_pages(pages, count);
}

void *rpcrdma_helper_page_address(const struct page *page)
{
	return page_address(page);
}
