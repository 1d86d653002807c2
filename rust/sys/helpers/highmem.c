// SPDX-License-Identifier: GPL-2.0

#include <linux/highmem.h>

void rpcrdma_helper_memcpy_from_page(char *to, struct page *page,
				     size_t offset, size_t len)
{
	memcpy_from_page(to, page, offset, len);
}

void rpcrdma_helper_memcpy_to_page(struct page *page, size_t offset,
				   const char *from, size_t len)
{
	memcpy_to_page(page, offset, from, len);
}
