// SPDX-License-Identifier: GPL-2.0

#include <rdma/rw.h>

int rpcrdma_helper_rdma_rw_begin(struct rdma_rw_ctx *ctx, struct ib_qp *qp,
				 u32 port, const struct bio_vec *bvecs,
				 u32 count, struct bvec_iter iter,
				 u64 remote, u32 rkey, unsigned int direction)
{
	return rdma_rw_ctx_init_bvec(ctx, qp, port, bvecs, count, iter, remote,
				     rkey, direction);
}

void rpcrdma_helper_rdma_rw_end(struct rdma_rw_ctx *ctx, struct ib_qp *qp,
				u32 port, const struct bio_vec *bvecs,
				u32 count, unsigned int direction)
{
	rdma_rw_ctx_destroy_bvec(ctx, qp, port, bvecs, count, direction);
}
