// SPDX-License-Identifier: GPL-2.0

#include <rdma/ib_sa.h>
#include <rdma/rdma_cm.h>

struct rdma_cm_id *
rpcrdma_helper_rdma_create_id(struct net *net,
			      rdma_cm_event_handler event_handler,
			      void *context, enum rdma_ucm_port_space ps,
			      enum ib_qp_type qp_type)
{
	return rdma_create_id(net, event_handler, context, ps, qp_type);
}

__be32 rpcrdma_helper_sa_path_get_dlid(struct sa_path_rec *rec)
{
	return sa_path_get_dlid(rec);
}
