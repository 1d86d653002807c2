// SPDX-License-Identifier: GPL-2.0

#include <linux/sunrpc/svc_xprt.h>

void rpcrdma_helper_svc_xprt_set_flag(struct svc_xprt *xprt, unsigned int flag)
{
	set_bit(flag, &xprt->xpt_flags);
}

void rpcrdma_helper_svc_xprt_clear_flag(struct svc_xprt *xprt,
					unsigned int flag)
{
	clear_bit(flag, &xprt->xpt_flags);
}

bool rpcrdma_helper_svc_xprt_test_flag(const struct svc_xprt *xprt,
				       unsigned int flag)
{
	return test_bit(flag, &xprt->xpt_flags);
}

void rpcrdma_helper_svc_rqst_set_flag(struct svc_rqst *rqst, unsigned int flag)
{
	set_bit(flag, &rqst->rq_flags);
}
