// SPDX-License-Identifier: GPL-2.0

#include <linux/sunrpc/xdr.h>

void rpcrdma_helper_xdr_buf_init(struct xdr_buf *buf, void *start, size_t len)
{
	xdr_buf_init(buf, start, len);
}
