// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>
#include <rdma/ib_verbs.h>

struct ib_cq *rpcrdma_helper_ib_alloc_cq(struct ib_device *dev, void *private,
					 int nr_cqe, int comp_vector,
					 enum ib_poll_context poll_ctx)
{
	return ib_alloc_cq(dev, private, nr_cqe, comp_vector, poll_ctx);
}

struct ib_pd *rpcrdma_helper_ib_alloc_pd(struct ib_device *device,
					 unsigned int flags)
{
	return ib_alloc_pd(device, flags);
}

void rpcrdma_helper_ib_cq_flush_work(struct ib_cq *cq)
{
	flush_work(&cq->work);
}

struct ib_srq *rpcrdma_helper_ib_create_srq(struct ib_pd *pd,
					    struct ib_srq_init_attr *attr)
{
	return ib_create_srq(pd, attr);
}

void rpcrdma_helper_ib_destroy_srq(struct ib_srq *srq)
{
	ib_destroy_srq(srq);
}

int rpcrdma_helper_ib_post_srq_recv(struct ib_srq *srq,
				    const struct ib_recv_wr *wr,
				    const struct ib_recv_wr **bad_wr)
{
	return ib_post_srq_recv(srq, wr, bad_wr);
}

bool rpcrdma_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

void rpcrdma_helper_ib_dealloc_pd(struct ib_pd *pd)
{
	ib_dealloc_pd(pd);
}

int rpcrdma_helper_ib_dereg_mr(struct ib_mr *mr)
{
	return ib_dereg_mr(mr);
}

int rpcrdma_helper_ib_dma_map_sg(struct ib_device *dev, struct scatterlist *sg,
				 int nents, unsigned int direction)
{
	return ib_dma_map_sg(dev, sg, nents, direction);
}

u64 rpcrdma_helper_ib_dma_map_single(struct ib_device *dev, void *cpu_addr,
				     size_t size,
				     unsigned int direction)
{
	return ib_dma_map_single(dev, cpu_addr, size, direction);
}

int rpcrdma_helper_ib_dma_mapping_error(struct ib_device *dev, u64 dma_addr)
{
	return ib_dma_mapping_error(dev, dma_addr);
}

void rpcrdma_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
					       size_t size,
					       unsigned int dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void rpcrdma_helper_ib_dma_sync_single_for_device(struct ib_device *dev,
						  u64 addr, size_t size,
						  unsigned int dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

void rpcrdma_helper_ib_dma_unmap_sg(struct ib_device *dev,
				    struct scatterlist *sg, int nents,
				    unsigned int direction)
{
	ib_dma_unmap_sg(dev, sg, nents, direction);
}

bool rpcrdma_helper_ib_uses_virt_dma(struct ib_device *dev)
{
	return ib_uses_virt_dma(dev);
}

int rpcrdma_helper_ibdev_to_node(struct ib_device *ibdev)
{
	return ibdev_to_node(ibdev);
}

u32 rpcrdma_helper_ib_inc_rkey(u32 rkey)
{
	return ib_inc_rkey(rkey);
}

int rpcrdma_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
				const struct ib_recv_wr **bad_wr)
{
	return ib_post_recv(qp, wr, bad_wr);
}

int rpcrdma_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
				const struct ib_send_wr **bad_wr)
{
	return ib_post_send(qp, wr, bad_wr);
}

void rpcrdma_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 newkey)
{
	ib_update_fast_reg_key(mr, newkey);
}

bool rpcrdma_helper_rdma_protocol_iwarp(const struct ib_device *device,
					u32 port)
{
	return rdma_protocol_iwarp(device, port);
}
