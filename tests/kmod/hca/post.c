// SPDX-License-Identifier: GPL-2.0
/*
 * Posting: what is checked at once, and the queues that it goes to.
 *
 * A place in a queue is the consumer's to fill until it is posted, and the
 * device's until the completion that covers it was polled: not when it was
 * executed. With hardware it is the poll that tells the driver (mlx5's
 * handle_good_req() and mlx5_ib_free_srq_wqe()). Sizes are those that were asked
 * for. If a request of a chain is refused, those before it stay posted.
 */
#include <linux/slab.h>
#include <rdma/ib_mad.h>
#include "hca.h"

int hca_rq_init(struct hca_rq *rq, struct hca_dev *hca, struct hca_pd *pd, u32 max_wr, u32 max_sge)
{
	u32 places = roundup_pow_of_two(max(max_wr, 1U)), i;

	spin_lock_init(&rq->lock);
	rq->hca = hca;
	rq->pd = pd;
	rq->max_wr = max_wr;
	rq->max_sge = max_sge;
	rq->mask = places - 1;
	rq->wqe = kvcalloc(places, sizeof(*rq->wqe), GFP_KERNEL);
	rq->sge = kvcalloc(places * max(max_sge, 1U), sizeof(*rq->sge), GFP_KERNEL);
	rq->ring = kvcalloc(places, sizeof(*rq->ring), GFP_KERNEL);
	rq->spare = kvcalloc(places, sizeof(*rq->spare), GFP_KERNEL);
	if (!rq->wqe || !rq->sge || !rq->ring || !rq->spare) {
		hca_rq_exit(rq);
		return -ENOMEM;
	}
	for (i = 0; i < max_wr; i++) {
		rq->wqe[i].sge = rq->sge + i * max(max_sge, 1U);
		rq->spare[i] = i;
	}
	rq->spares = max_wr;
	return 0;
}

void hca_rq_exit(struct hca_rq *rq)
{
	kvfree(rq->wqe);
	kvfree(rq->sge);
	kvfree(rq->ring);
	kvfree(rq->spare);
	memset(rq, 0, sizeof(*rq));
}

/* The oldest Receive that is posted, for the device to use, or NULL. */
struct hca_rwqe *hca_rq_take(struct hca_rq *rq)
{
	struct hca_rwqe *wqe = NULL;
	unsigned long flags;

	spin_lock_irqsave(&rq->lock, flags);
	if (rq->head != rq->tail && !rq->dead)
		wqe = &rq->wqe[rq->ring[rq->tail++ & rq->mask]];
	if (rq->limit && rq->head - rq->tail < rq->limit) {
		/* Once, until it is set again (IBTA 10.2.9.1). */
		rq->limit = 0;
		queue_work(hca_wq, &container_of(rq, struct hca_srq, rq)->limit_work);
	}
	spin_unlock_irqrestore(&rq->lock, flags);
	return wqe;
}

/* One that was taken and not used is the oldest again. */
void hca_rq_return(struct hca_rq *rq, struct hca_rwqe *wqe)
{
	unsigned long flags;

	spin_lock_irqsave(&rq->lock, flags);
	rq->ring[--rq->tail & rq->mask] = wqe - rq->wqe;
	spin_unlock_irqrestore(&rq->lock, flags);
}

/* The completion of a Receive was polled, and hca_cq.lock is held; or there will be none. */
void hca_rq_polled(struct hca_rq *rq, u32 index)
{
	unsigned long flags;

	hca_sges_use(rq->hca, rq->wqe[index].sge, rq->wqe[index].num_sge, -1);
	spin_lock_irqsave(&rq->lock, flags);
	rq->spare[rq->spares++] = index;
	spin_unlock_irqrestore(&rq->lock, flags);
}

static int hca_rq_post(struct hca_rq *rq, const struct ib_recv_wr *wr, enum hca_rule overflow)
{
	struct hca_rwqe *wqe;
	unsigned long flags;
	u32 index;

	if (wr->num_sge < 0 || wr->num_sge > rq->max_sge) {
		if (!rq->excused)
			hca_complain(rq->hca, HCA_RULE_POST_SGES, "a Receive with %d of %u",
				     wr->num_sge, rq->max_sge);
		return -EINVAL;
	}
	spin_lock_irqsave(&rq->lock, flags);
	if (rq->dead) {
		spin_unlock_irqrestore(&rq->lock, flags);
		return -EIO;
	}
	if (!rq->spares) {
		spin_unlock_irqrestore(&rq->lock, flags);
		if (!rq->excused)
			hca_complain(rq->hca, overflow, "of %u", rq->max_wr);
		return -ENOMEM;
	}
	index = rq->spare[--rq->spares];
	wqe = &rq->wqe[index];
	wqe->wr_id = wr->wr_id;
	wqe->num_sge = wr->num_sge;
	memcpy(wqe->sge, wr->sg_list, wr->num_sge * sizeof(*wqe->sge));
	hca_sges_use(rq->hca, wqe->sge, wqe->num_sge, 1);
	rq->ring[rq->head++ & rq->mask] = index;
	spin_unlock_irqrestore(&rq->lock, flags);
	return 0;
}

/*
 * Faults leave alone what the kernel's core does not get over: QP1, and the markers of
 * ib_drain_rq() and ib_drain_sq(), with which it warns of a device that refuses them.
 */
static int hca_recv_fault(struct hca_dev *hca, enum ib_qp_type type, enum ib_qp_state state,
			  const struct ib_recv_wr *wr)
{
	bool marker = state == IB_QPS_ERR && !wr->num_sge;

	return type == IB_QPT_RC && !marker && hca_fault(hca, HCA_FAULT_POST_RECV) ? -ENOMEM : 0;
}

/* The same for the Send Queue. The Queue Pair's lock is held. */
static int hca_send_fault(struct hca_qp *qp, const struct ib_send_wr *wr)
{
	bool marker = qp->state == IB_QPS_ERR && wr->opcode == IB_WR_RDMA_WRITE && !wr->num_sge;

	return qp->ib.qp_type == IB_QPT_RC && !marker && hca_fault(qp->hca, HCA_FAULT_POST_SEND) ?
	       -ENOMEM : 0;
}

int hca_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct hca_qp *qp = to_hca_qp(ib);
	enum ib_qp_state state;
	unsigned long flags;
	int error = 0;
	u32 n = 0;

	spin_lock_irqsave(&qp->lock, flags);
	state = qp->state;
	spin_unlock_irqrestore(&qp->lock, flags);
	if (ib->srq || state == IB_QPS_RESET) {
		hca_complain_of(qp, qp, HCA_RULE_POST_STATE, "a Receive in state %d", state);
		*bad = wr;
		return -EINVAL;
	}
	for (; wr; wr = wr->next, n++) {
		error = hca_recv_fault(qp->hca, ib->qp_type, state, wr);
		if (!error)
			error = hca_rq_post(&qp->rq, wr, HCA_RULE_RQ_OVERFLOW);
		if (error) {
			*bad = wr;
			break;
		}
	}
	if (ib->qp_type == IB_QPT_RC) {
		hca_add(qp->hca, HCA_CNT_RECV_DOORBELLS, 1);
		hca_add(qp->hca, HCA_CNT_RECVS, n);
	}
	/* It may be there only since the engine has flushed all others. */
	spin_lock_irqsave(&qp->lock, flags);
	state = qp->state;
	spin_unlock_irqrestore(&qp->lock, flags);
	if (state == IB_QPS_ERR)
		queue_work(hca_bh_wq, &qp->engine);
	return error;
}

int hca_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad)
{
	struct hca_srq *srq = to_hca_srq(ib);
	int error = 0;
	u32 n = 0;

	for (; wr; wr = wr->next, n++) {
		error = hca_recv_fault(srq->rq.hca, IB_QPT_RC, IB_QPS_RTS, wr);
		if (!error)
			error = hca_rq_post(&srq->rq, wr, HCA_RULE_SRQ_OVERFLOW);
		if (error) {
			*bad = wr;
			break;
		}
	}
	hca_add(srq->rq.hca, HCA_CNT_RECV_DOORBELLS, 1);
	hca_add(srq->rq.hca, HCA_CNT_RECVS, n);
	return error;
}

/* The part of a request that its kind of operation has, and what is wrong with that. */
static int hca_sq_fill(struct hca_qp *qp, struct hca_swqe *wqe, const struct ib_send_wr *wr)
{
	switch (wr->opcode) {
	case IB_WR_SEND_WITH_INV:
		wqe->inv_rkey = wr->ex.invalidate_rkey;
		fallthrough;
	case IB_WR_SEND_WITH_IMM:
	case IB_WR_SEND:
		if (wr->opcode == IB_WR_SEND_WITH_IMM && qp->hca->profile->iwarp)
			goto unknown;
		if (qp->ib.qp_type == IB_QPT_GSI) {
			struct hca_ah *ah = to_hca_ah(ud_wr(wr)->ah);

			if (wr->opcode != IB_WR_SEND || wqe->length > IB_MGMT_MAD_SIZE)
				goto unknown;
			wqe->ud.sgid = ah->sgid;
			wqe->ud.dgid = ah->dgid;
			wqe->ud.gid_type = ah->gid_type;
			wqe->ud.qpn = ud_wr(wr)->remote_qpn;
			/* IBTA 10.2.5: the highest bit asks for that of the Queue Pair. */
			wqe->ud.qkey = ud_wr(wr)->remote_qkey & BIT(31) ? qp->attr.qkey :
				       ud_wr(wr)->remote_qkey;
		}
		return 0;
	case IB_WR_RDMA_READ_WITH_INV:
		/*
		 * Of iWARP alone. It is the sink that becomes invalid: irdma, cxgb4 and siw
		 * do not look at ex.invalidate_rkey, where rdma_rw has the key that the
		 * sink had before. Only erdma does.
		 */
		if (!qp->hca->profile->iwarp || wr->num_sge != 1)
			goto unknown;
		wqe->inv_rkey = wr->sg_list[0].lkey;
		fallthrough;
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		/* RFC 5040 has none of these. */
		if (wr->opcode == IB_WR_RDMA_WRITE_WITH_IMM && qp->hca->profile->iwarp)
			goto unknown;
		wqe->rdma.addr = rdma_wr(wr)->remote_addr;
		wqe->rdma.rkey = rdma_wr(wr)->rkey;
		break;
	case IB_WR_LOCAL_INV:
		wqe->inv_rkey = wr->ex.invalidate_rkey;
		break;
	case IB_WR_REG_MR:
		wqe->reg.index = to_hca_mr(reg_wr(wr)->mr)->index;
		wqe->reg.key = reg_wr(wr)->key;
		wqe->reg.access = reg_wr(wr)->access;
		/* IBTA 10.6.3.1: remote writing needs the right to write locally. */
		if (wqe->reg.access & ~HCA_MR_ACCESS ||
		    (wqe->reg.access & IB_ACCESS_REMOTE_WRITE &&
		     !(wqe->reg.access & IB_ACCESS_LOCAL_WRITE))) {
			hca_complain_of(qp, qp, HCA_RULE_REG_ACCESS, "%#x", wqe->reg.access);
			return -EINVAL;
		}
		break;
	default:
		goto unknown;
	}
	if (qp->ib.qp_type == IB_QPT_RC)
		return 0;
unknown:
	hca_complain_of(qp, qp, HCA_RULE_POST_OPCODE, "%d of %u octets", wr->opcode, wqe->length);
	return -EINVAL;
}

/* Posts one request. The Queue Pair's lock is held. */
static int hca_sq_post(struct hca_qp *qp, const struct ib_send_wr *wr)
{
	struct hca_swqe *wqe = &qp->sq[qp->head & qp->mask];
	u64 length = 0;
	int i, error;

	if (qp->state != IB_QPS_RTS && qp->state != IB_QPS_SQD && qp->state != IB_QPS_SQE &&
	    qp->state != IB_QPS_ERR) {
		hca_complain_of(qp, qp, HCA_RULE_POST_STATE, "operation %d in state %d", wr->opcode,
				qp->state);
		return -EINVAL;
	}
	if (wr->num_sge < 0 || wr->num_sge > qp->init.cap.max_send_sge) {
		hca_complain_of(qp, qp, HCA_RULE_POST_SGES, "operation %d with %d of %u",
				wr->opcode, wr->num_sge, qp->init.cap.max_send_sge);
		return -EINVAL;
	}
	/* Of all SGEs that a request may have an RDMA Read may have fewer: IBTA 11.2.1.2. */
	if (hca_is_read(wr->opcode) && wr->num_sge > qp->hca->profile->sge_rd) {
		hca_complain_of(qp, qp, HCA_RULE_READ_SGES, "%d of %u", wr->num_sge,
				qp->hca->profile->sge_rd);
		return -EINVAL;
	}
	if (wr->send_flags & IB_SEND_INLINE) {
		hca_complain_of(qp, qp, HCA_RULE_POST_INLINE, "operation %d", wr->opcode);
		return -EINVAL;
	}
	if (qp->head - qp->tail >= qp->init.cap.max_send_wr) {
		hca_complain_of(qp, qp, HCA_RULE_SQ_OVERFLOW, "of %u, QP %#x",
				qp->init.cap.max_send_wr, qp->qpn);
		return -ENOMEM;
	}
	for (i = 0; i < wr->num_sge; i++)
		length += wr->sg_list[i].length;
	if (length > HCA_MAX_MSG) {
		hca_complain_of(qp, qp, HCA_RULE_POST_LENGTH, "%llu octets", length);
		return -EINVAL;
	}
	wqe->wr_id = wr->wr_id;
	wqe->opcode = wr->opcode;
	wqe->flags = wr->send_flags;
	wqe->signaled = wr->send_flags & IB_SEND_SIGNALED ||
			qp->init.sq_sig_type == IB_SIGNAL_ALL_WR;
	wqe->imm = wr->ex.imm_data;
	wqe->length = length;
	wqe->num_sge = wr->num_sge;
	wqe->begun = false;
	wqe->fault = HCA_FAULT_NONE;
	error = hca_sq_fill(qp, wqe, wr);
	if (error)
		return error;
	memcpy(wqe->sge, wr->sg_list, wr->num_sge * sizeof(*wqe->sge));
	hca_sges_use(qp->hca, wqe->sge, wqe->num_sge, 1);
	if (wr->opcode == IB_WR_REG_MR)
		atomic_inc(&to_hca_mr(reg_wr(wr)->mr)->posted);
	qp->head++;
	return 0;
}

static void hca_sq_count(struct hca_qp *qp, const struct ib_send_wr *wr)
{
	static const struct {
		enum ib_wr_opcode opcode;
		enum hca_counter counter;
	} kinds[] = {
		{ IB_WR_SEND, HCA_CNT_SENDS },
		{ IB_WR_SEND_WITH_IMM, HCA_CNT_SENDS },
		{ IB_WR_SEND_WITH_INV, HCA_CNT_SENDS_WITH_INV },
		{ IB_WR_RDMA_READ, HCA_CNT_RDMA_READS },
		{ IB_WR_RDMA_READ_WITH_INV, HCA_CNT_RDMA_READS },
		{ IB_WR_RDMA_WRITE, HCA_CNT_RDMA_WRITES },
		{ IB_WR_RDMA_WRITE_WITH_IMM, HCA_CNT_RDMA_WRITES },
		{ IB_WR_REG_MR, HCA_CNT_REGISTRATIONS },
		{ IB_WR_LOCAL_INV, HCA_CNT_LOCAL_INVS },
	};
	int i;

	for (i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (kinds[i].opcode == wr->opcode)
			hca_add(qp->hca, kinds[i].counter, 1);
	}
	if (wr->send_flags & IB_SEND_SIGNALED)
		hca_add(qp->hca, HCA_CNT_SIGNALED, 1);
	hca_add(qp->hca, HCA_CNT_SGES, wr->num_sge);
}

int hca_post_send(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad)
{
	struct hca_qp *qp = to_hca_qp(ib);
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&qp->lock, flags);
	for (; wr; wr = wr->next) {
		error = hca_send_fault(qp, wr);
		if (!error)
			error = hca_sq_post(qp, wr);
		if (error) {
			*bad = wr;
			break;
		}
		if (ib->qp_type == IB_QPT_RC)
			hca_sq_count(qp, wr);
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (ib->qp_type == IB_QPT_RC)
		hca_add(qp->hca, HCA_CNT_DOORBELLS, 1);
	/* Flushing is not done here either: completions come from the device. */
	queue_work(hca_bh_wq, &qp->engine);
	return error;
}
