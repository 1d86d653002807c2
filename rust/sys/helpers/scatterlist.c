// SPDX-License-Identifier: GPL-2.0

#include <linux/scatterlist.h>

dma_addr_t rpcrdma_helper_sg_dma_address(struct scatterlist *sg)
{
	return sg_dma_address(sg);
}

unsigned int rpcrdma_helper_sg_dma_len(struct scatterlist *sg)
{
	return sg_dma_len(sg);
}

void rpcrdma_helper_sg_mark_end(struct scatterlist *sg)
{
	sg_mark_end(sg);
}

void rpcrdma_helper_sg_set_page(struct scatterlist *sg, struct page *page,
				unsigned int len, unsigned int offset)
{
	sg_set_page(sg, page, len, offset);
}

void rpcrdma_helper_sg_unmark_end(struct scatterlist *sg)
{
	sg_unmark_end(sg);
}
