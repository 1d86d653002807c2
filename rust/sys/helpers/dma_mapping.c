// SPDX-License-Identifier: GPL-2.0

#include <linux/dma-mapping.h>

void rpcrdma_helper_dma_unmap_single_attrs(struct device *dev, dma_addr_t addr,
					   size_t size, unsigned int dir,
					   unsigned int attrs)
{
	dma_unmap_single_attrs(dev, addr, size, dir, attrs);
}
