// SPDX-License-Identifier: GPL-2.0
/*
 * The table of verbs, what the device says of itself, and the small objects:
 * protection domains, address handles, shared Receive Queues.
 *
 * These are their consumer's, and ib_core has their memory. What uses a
 * protection domain is counted by ib_core, what uses a shared Receive Queue
 * also here.
 */
#include <linux/mm.h>
#include <linux/module.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include "hca.h"

static int hca_query_device(struct ib_device *ib, struct ib_device_attr *attr,
			    struct ib_udata *udata)
{
	const struct hca_profile *profile = to_hca(ib)->profile;

	attr->max_mr_size = U64_MAX;
	attr->page_size_cap = PAGE_SIZE;
	attr->max_qp = HCA_MAX_QP;
	attr->max_qp_wr = profile->max_qp_wr;
	attr->device_cap_flags = IB_DEVICE_RC_RNR_NAK_GEN;
	if (profile->mem_mgt)
		attr->device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
	/* Without the second one each protection domain has a key of its own. */
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG;
	if (profile->local_dma_lkey)
		attr->kernel_cap_flags |= IBK_LOCAL_DMA_LKEY;
	attr->max_send_sge = profile->send_sge;
	attr->max_recv_sge = profile->recv_sge;
	attr->max_sge_rd = profile->sge_rd;
	attr->max_cq = 2 * HCA_MAX_QP;
	attr->max_cqe = profile->max_cqe;
	attr->max_mr = 1 << 20;
	attr->max_pd = HCA_MAX_QP;
	attr->max_qp_rd_atom = profile->rd_atomic;
	attr->max_qp_init_rd_atom = profile->rd_atomic;
	attr->max_res_rd_atom = profile->rd_atomic * HCA_MAX_QP;
	attr->atomic_cap = IB_ATOMIC_NONE;
	attr->max_ah = 1 << 16;
	if (profile->max_srq_wr) {
		attr->max_srq = HCA_MAX_QP;
		attr->max_srq_wr = profile->max_srq_wr;
		attr->max_srq_sge = profile->recv_sge;
	}
	attr->max_fast_reg_page_list_len = profile->mem_mgt ? profile->pages : 0;
	attr->max_pkeys = profile->iwarp ? 0 : 1;
	attr->sys_image_guid = ib->node_guid;
	return 0;
}

static int hca_query_port(struct ib_device *ib, u32 port, struct ib_port_attr *attr)
{
	struct net_device *ndev = ib_device_get_netdev(ib, port);

	if (!ndev)
		return -ENODEV;
	attr->state = ib_get_curr_port_state(ndev);
	attr->phys_state = attr->state == IB_PORT_ACTIVE ? IB_PORT_PHYS_STATE_LINK_UP :
			   IB_PORT_PHYS_STATE_DISABLED;
	attr->max_mtu = IB_MTU_4096;
	attr->active_mtu = iboe_get_mtu(ndev->mtu);
	attr->gid_tbl_len = to_hca(ib)->profile->iwarp ? 1 : HCA_GIDS;
	attr->pkey_tbl_len = to_hca(ib)->profile->iwarp ? 0 : 1;
	attr->max_msg_sz = HCA_MAX_MSG;
	attr->port_cap_flags = IB_PORT_CM_SUP;
	attr->ip_gids = true;
	attr->active_speed = IB_SPEED_EDR;
	attr->active_width = IB_WIDTH_4X;
	dev_put(ndev);
	return 0;
}

static int hca_get_port_immutable(struct ib_device *ib, u32 port,
				  struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
	immutable->pkey_tbl_len = 1;
	immutable->gid_tbl_len = HCA_GIDS;
	immutable->max_mad_size = IB_MGMT_MAD_SIZE;
	return 0;
}

/* iWARP has one, which is made of the network device's address. */
static int hca_iw_query_gid(struct ib_device *ib, u32 port, int index, union ib_gid *gid)
{
	*gid = to_hca(ib)->gid;
	return 0;
}

static int hca_iw_get_port_immutable(struct ib_device *ib, u32 port,
				     struct ib_port_immutable *immutable)
{
	immutable->core_cap_flags = RDMA_CORE_PORT_IWARP;
	immutable->gid_tbl_len = 1;
	return 0;
}

static enum rdma_link_layer hca_get_link_layer(struct ib_device *ib, u32 port)
{
	return IB_LINK_LAYER_ETHERNET;
}

static int hca_query_pkey(struct ib_device *ib, u32 port, u16 index, u16 *pkey)
{
	if (index)
		return -EINVAL;
	*pkey = HCA_PKEY;
	return 0;
}

static int hca_alloc_pd(struct ib_pd *ib, struct ib_udata *udata)
{
	might_sleep();
	return hca_fault(to_hca(ib->device), HCA_FAULT_CREATE) ? -ENOMEM : 0;
}

static int hca_dealloc_pd(struct ib_pd *ib, struct ib_udata *udata)
{
	might_sleep();
	/* The region for local access goes first, as ib_dealloc_pd_user() does it. */
	if (atomic_read(&ib->usecnt)) {
		hca_complain(to_hca(ib->device), HCA_RULE_DESTROY_BUSY, "a protection domain");
		return -EBUSY;
	}
	return 0;
}

static int hca_create_ah(struct ib_ah *ib, struct rdma_ah_init_attr *init, struct ib_udata *udata)
{
	const struct ib_global_route *grh = rdma_ah_read_grh(init->ah_attr);
	struct hca_ah *ah = to_hca_ah(ib);

	if (!(rdma_ah_get_ah_flags(init->ah_attr) & IB_AH_GRH) || !grh->sgid_attr)
		return -EINVAL;
	if (hca_fault(to_hca(ib->device), HCA_FAULT_CREATE))
		return -ENOMEM;
	ah->sgid = grh->sgid_attr->gid;
	ah->gid_type = grh->sgid_attr->gid_type;
	ah->dgid = grh->dgid;
	return 0;
}

static int hca_destroy_ah(struct ib_ah *ib, u32 flags)
{
	if (flags & RDMA_DESTROY_AH_SLEEPABLE)
		might_sleep();
	return 0;
}

static void hca_srq_limit(struct work_struct *work)
{
	struct hca_srq *srq = container_of(work, struct hca_srq, limit_work);
	struct ib_event event = {
		.device = srq->ib.device,
		.element.srq = &srq->ib,
		.event = IB_EVENT_SRQ_LIMIT_REACHED,
	};

	if (srq->ib.event_handler)
		srq->ib.event_handler(&event, srq->ib.srq_context);
}

static int hca_create_srq(struct ib_srq *ib, struct ib_srq_init_attr *init, struct ib_udata *udata)
{
	struct hca_srq *srq = to_hca_srq(ib);
	struct hca_dev *hca = to_hca(ib->device);

	might_sleep();
	if (init->srq_type != IB_SRQT_BASIC || !hca->profile->max_srq_wr)
		return -EOPNOTSUPP;
	if (hca->profile->srq_is_less && init->attr.max_wr == hca->profile->max_srq_wr)
		return -EINVAL;
	if (!init->attr.max_wr || init->attr.max_wr > hca->profile->max_srq_wr ||
	    !init->attr.max_sge || init->attr.max_sge > hca->profile->recv_sge) {
		if (!ib->uobject)
			hca_complain(hca, HCA_RULE_CREATE,
				     "a shared Receive Queue of %u with %u SGEs",
				     init->attr.max_wr, init->attr.max_sge);
		return -EINVAL;
	}
	if (hca_fault(hca, HCA_FAULT_CREATE))
		return -ENOMEM;
	INIT_WORK(&srq->limit_work, hca_srq_limit);
	return hca_rq_init(&srq->rq, hca, to_hca_pd(ib->pd), init->attr.max_wr, init->attr.max_sge);
}

static int hca_modify_srq(struct ib_srq *ib, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
			  struct ib_udata *udata)
{
	struct hca_srq *srq = to_hca_srq(ib);
	unsigned long flags;

	if (mask & ~IB_SRQ_LIMIT)
		return -EINVAL;
	if (mask & IB_SRQ_LIMIT) {
		if (attr->srq_limit > srq->rq.max_wr)
			return -EINVAL;
		spin_lock_irqsave(&srq->rq.lock, flags);
		srq->rq.limit = attr->srq_limit;
		spin_unlock_irqrestore(&srq->rq.lock, flags);
	}
	return 0;
}

static int hca_query_srq(struct ib_srq *ib, struct ib_srq_attr *attr)
{
	struct hca_srq *srq = to_hca_srq(ib);

	attr->max_wr = srq->rq.max_wr;
	attr->max_sge = srq->rq.max_sge;
	attr->srq_limit = srq->rq.limit;
	return 0;
}

static int hca_destroy_srq(struct ib_srq *ib, struct ib_udata *udata)
{
	struct hca_srq *srq = to_hca_srq(ib);
	struct hca_rwqe *recv;

	might_sleep();
	if (atomic_read(&srq->qps)) {
		hca_complain(to_hca(ib->device), HCA_RULE_DESTROY_BUSY, "a shared Receive Queue");
		return -EBUSY;
	}
	/* Nobody is told of what is taken here. */
	srq->rq.limit = 0;
	srq->rq.dead = false;
	cancel_work_sync(&srq->limit_work);
	while ((recv = hca_rq_take(&srq->rq)))
		hca_sges_use(srq->rq.hca, recv->sge, recv->num_sge, -1);
	hca_rq_exit(&srq->rq);
	return 0;
}

/* The device has its name, and no client yet. */
static int hca_enable_driver(struct ib_device *ib)
{
	struct hca_dev *hca = to_hca(ib);

	hca_count_init(hca);
	spin_lock_irq(&hca_devices_lock);
	list_add_tail(&hca->entry, &hca_devices);
	spin_unlock_irq(&hca_devices_lock);
	return 0;
}

const struct ib_device_ops hca_ops = {
	.owner = THIS_MODULE,
	.driver_id = HCA_DRIVER_ID,
	.uverbs_abi_ver = HCA_UVERBS_ABI,
	.enable_driver = hca_enable_driver,
	.dealloc_driver = hca_dealloc_driver,
	.query_device = hca_query_device,
	.query_port = hca_query_port,
	.query_pkey = hca_query_pkey,
	.get_port_immutable = hca_get_port_immutable,
	.get_link_layer = hca_get_link_layer,
	.alloc_hw_port_stats = hca_alloc_hw_port_stats,
	.get_hw_stats = hca_get_hw_stats,
	.alloc_ucontext = hca_alloc_ucontext,
	.dealloc_ucontext = hca_dealloc_ucontext,
	.disassociate_ucontext = hca_disassociate_ucontext,
	.alloc_pd = hca_alloc_pd,
	.dealloc_pd = hca_dealloc_pd,
	.create_ah = hca_create_ah,
	.destroy_ah = hca_destroy_ah,
	.create_cq = hca_create_cq,
	.destroy_cq = hca_destroy_cq,
	.poll_cq = hca_poll_cq,
	.req_notify_cq = hca_req_notify_cq,
	.create_srq = hca_create_srq,
	.modify_srq = hca_modify_srq,
	.query_srq = hca_query_srq,
	.destroy_srq = hca_destroy_srq,
	.post_srq_recv = hca_post_srq_recv,
	.create_qp = hca_create_qp,
	.modify_qp = hca_modify_qp,
	.query_qp = hca_query_qp,
	.destroy_qp = hca_destroy_qp,
	.post_send = hca_post_send,
	.post_recv = hca_post_recv,
	.get_dma_mr = hca_get_dma_mr,
	.reg_user_mr = hca_reg_user_mr,
	.alloc_mr = hca_alloc_mr,
	.map_mr_sg = hca_map_mr_sg,
	.dereg_mr = hca_dereg_mr,

	INIT_RDMA_OBJ_SIZE(ib_ah, hca_ah, ib),
	INIT_RDMA_OBJ_SIZE(ib_cq, hca_cq, ib),
	INIT_RDMA_OBJ_SIZE(ib_pd, hca_pd, ib),
	INIT_RDMA_OBJ_SIZE(ib_qp, hca_qp, ib),
	INIT_RDMA_OBJ_SIZE(ib_srq, hca_srq, ib),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, hca_ucontext, ib),
};

/* Set before those above: of each operation the first that is set stays. */
const struct ib_device_ops hca_iw_ops = {
	.owner = THIS_MODULE,
	.driver_id = HCA_DRIVER_ID,
	.get_port_immutable = hca_iw_get_port_immutable,
	.query_gid = hca_iw_query_gid,
	.iw_connect = hca_iw_connect,
	.iw_accept = hca_iw_accept,
	.iw_reject = hca_iw_reject,
	.iw_create_listen = hca_iw_create_listen,
	.iw_destroy_listen = hca_iw_destroy_listen,
	.iw_get_qp = hca_iw_get_qp,
	.iw_add_ref = hca_iw_add_ref,
	.iw_rem_ref = hca_iw_rem_ref,
};
