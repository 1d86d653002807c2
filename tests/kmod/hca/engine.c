// SPDX-License-Identifier: GPL-2.0
/*
 * The engine of a Queue Pair: executes what is posted to its Send Queue, in
 * order, and delivers to the Queue Pair at the other end.
 *
 * It is a bottom half of which there is only one at a time, so the index of the
 * next request, how far it has got in that, and the completions' order are its
 * own. While it delivers it has a reference to the other Queue Pair and has set
 * its @receiving: then that one's engine does not flush Receives, so that their
 * completions are in order too. It does not sleep; what has to wait is taken up
 * again by the timer @retry.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include "hca.h"

/* How long the other end may be silent at most, whatever was negotiated. */
#define HCA_PATIENCE	HZ

static uint hca_patience;
module_param_named(patience, hca_patience, uint, 0644);
MODULE_PARM_DESC(patience, "seconds to wait for a silent end; 0: as negotiated, 1 at most");

/* How often is looked whether it is there again. */
#define HCA_RETRY	msecs_to_jiffies(20)

/* In units of 10 us, by the code that is negotiated (IBTA 9.7.5.2.8, table 45). */
static const u32 hca_rnr_delay[32] = {
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
	49152,
};

/* How long a request waits that is late on purpose. */
#define HCA_FAULT_DELAY	msecs_to_jiffies(200)

enum hca_progress {
	/* It has a status now. */
	HCA_DONE,
	/* The timer will go on with it. */
	HCA_WAITS,
	/* It has had its turn. */
	HCA_GOES_ON,
};

static enum ib_wc_opcode hca_wc_opcode(enum ib_wr_opcode opcode)
{
	switch (opcode) {
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return IB_WC_RDMA_WRITE;
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_READ_WITH_INV:
		return IB_WC_RDMA_READ;
	case IB_WR_LOCAL_INV:
		return IB_WC_LOCAL_INV;
	case IB_WR_REG_MR:
		return IB_WC_REG_MR;
	default:
		return IB_WC_SEND;
	}
}

/* Of a completion with an error only these are valid (IBTA 11.4.2.1). */
static void hca_wc_error(struct ib_wc *wc, enum ib_wc_status status)
{
	wc->status = status;
	wc->opcode = 0x7f;
	wc->byte_len = U32_MAX;
	wc->wc_flags = IB_WC_WITH_INVALIDATE;
	wc->ex.invalidate_rkey = U32_MAX;
	wc->vendor_err = 0xca;
}

/* Ends a request of the Send Queue. Its place is not free yet. */
static void hca_sq_complete(struct hca_qp *qp, struct hca_swqe *wqe, enum ib_wc_status status)
{
	struct hca_cqe cqe = {
		.qp = qp,
		.wc = {
			.wr_id = wqe->wr_id,
			.qp = &qp->ib,
			.opcode = hca_wc_opcode(wqe->opcode),
			.byte_len = wqe->length,
		},
	};
	bool told = wqe->signaled || status != IB_WC_SUCCESS;
	unsigned long flags;

	if (wqe->opcode == IB_WR_REG_MR)
		hca_reg_executed(wqe->reg.index);
	if (status != IB_WC_SUCCESS)
		hca_wc_error(&cqe.wc, status);
	spin_lock_irqsave(&qp->lock, flags);
	cqe.index = qp->next++;
	qp->moved = 0;
	spin_unlock_irqrestore(&qp->lock, flags);
	if (told)
		hca_cq_add(to_hca_cq(qp->ib.send_cq), &cqe);
}

static void hca_rq_complete(struct hca_qp *qp, struct hca_rq *rq, struct hca_rwqe *recv,
			    struct hca_cqe *cqe, enum ib_wc_status status)
{
	cqe->qp = qp;
	cqe->rq = rq;
	cqe->index = recv - rq->wqe;
	cqe->wc.wr_id = recv->wr_id;
	cqe->wc.qp = &qp->ib;
	cqe->wc.src_qp = qp->attr.dest_qp_num;
	cqe->wc.port_num = 1;
	if (cqe->wc.opcode != IB_WC_RECV_RDMA_WITH_IMM)
		cqe->wc.opcode = IB_WC_RECV;
	if (status != IB_WC_SUCCESS)
		hca_wc_error(&cqe->wc, status);
	hca_cq_add(to_hca_cq(qp->ib.recv_cq), cqe);
}

/*
 * The Receive of a message of which no more will come. One of the Queue Pair's own completes like
 * those behind it; a shared one is lost.
 */
void hca_qp_torn(struct hca_qp *qp)
{
	struct hca_rwqe *recv = qp->torn;
	struct hca_cqe cqe = {};

	qp->torn = NULL;
	if (!recv)
		return;
	if (qp->ib.srq)
		hca_rq_polled(hca_rq_of(qp), recv - hca_rq_of(qp)->wqe);
	else
		hca_rq_complete(qp, &qp->rq, recv, &cqe, IB_WC_WR_FLUSH_ERR);
}

/* In the state ERR: all that is posted ends (IBTA 10.3.1.7, 10.8.2.4). */
static void hca_flush(struct hca_qp *qp)
{
	bool receiving, tell = false;
	struct hca_swqe *wqe;
	struct hca_rwqe *recv;
	unsigned long flags;

	for (;;) {
		spin_lock_irqsave(&qp->lock, flags);
		wqe = qp->next == qp->head ? NULL : &qp->sq[qp->next & qp->mask];
		spin_unlock_irqrestore(&qp->lock, flags);
		if (!wqe)
			break;
		hca_sq_complete(qp, wqe, IB_WC_WR_FLUSH_ERR);
	}
	spin_lock_irqsave(&qp->lock, flags);
	receiving = qp->receiving;
	if (!receiving && qp->ib.srq) {
		/* No Receive of this one is under way, and none will be. */
		tell = !qp->last_wqe_told;
		qp->last_wqe_told = true;
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (!receiving)
		hca_qp_torn(qp);
	if (tell)
		hca_qp_last(qp);
	if (receiving || qp->ib.srq)
		return;
	while ((recv = hca_rq_take(&qp->rq))) {
		struct hca_cqe cqe = {};

		hca_rq_complete(qp, &qp->rq, recv, &cqe, IB_WC_WR_FLUSH_ERR);
	}
}

static enum hca_progress hca_wait(struct hca_qp *qp, unsigned long delay)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	qp->waiting = true;
	spin_unlock_irqrestore(&qp->lock, flags);
	mod_timer(&qp->retry, jiffies + max(delay, 1UL));
	return HCA_WAITS;
}

void hca_retry(struct timer_list *timer)
{
	struct hca_qp *qp = timer_container_of(qp, timer, retry);
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	qp->waiting = false;
	spin_unlock_irqrestore(&qp->lock, flags);
	queue_work(hca_bh_wq, &qp->engine);
}

/* The Queue Pair at the other end, with a reference, if it takes what is sent to it. */
static struct hca_qp *hca_begin(struct hca_qp *qp)
{
	struct hca_qp *peer = hca_qp_find(qp->attr.dest_qp_num);
	unsigned long flags;
	bool answers, first;

	if (!peer)
		return NULL;
	spin_lock_irqsave(&peer->lock, flags);
	answers = (peer->state == IB_QPS_RTR || peer->state == IB_QPS_RTS ||
		   peer->state == IB_QPS_SQD) && !peer->receiving && !peer->torn &&
		  peer->attr.dest_qp_num == qp->qpn && READ_ONCE(qp->hca->up) &&
		  READ_ONCE(peer->hca->up) && !READ_ONCE(peer->silent);
	first = answers && peer->state == IB_QPS_RTR && !peer->comm_est_told &&
		!peer->hca->profile->iwarp;
	if (answers)
		peer->receiving = true;
	if (first)
		peer->comm_est_told = true;
	spin_unlock_irqrestore(&peer->lock, flags);
	if (first)
		hca_qp_event(peer, IB_EVENT_COMM_EST);
	if (answers)
		return peer;
	hca_qp_put(peer);
	return NULL;
}

static void hca_end(struct hca_qp *peer)
{
	unsigned long flags;
	bool ended;

	spin_lock_irqsave(&peer->lock, flags);
	peer->receiving = false;
	ended = peer->state == IB_QPS_ERR;
	spin_unlock_irqrestore(&peer->lock, flags);
	/* It has left its Receives alone meanwhile. */
	if (ended)
		queue_work(hca_bh_wq, &peer->engine);
	hca_qp_put(peer);
}

/* The other end is silent: that is an error after what was negotiated, or after HCA_PATIENCE. */
static enum hca_progress hca_unanswered(struct hca_qp *qp, enum ib_wc_status *status)
{
	u64 negotiated = (4096ULL << (qp->attr.timeout & 31)) * (qp->attr.retry_cnt + 1);
	u64 patience = READ_ONCE(hca_patience) * (u64)HZ;

	if (!patience && qp->attr.timeout)
		patience = clamp_t(u64, nsecs_to_jiffies64(negotiated), 1, HCA_PATIENCE);
	if (!qp->unanswered) {
		qp->unanswered = true;
		qp->give_up = jiffies + (patience ?: HCA_PATIENCE);
	} else if (time_after(jiffies, qp->give_up)) {
		*status = IB_WC_RETRY_EXC_ERR;
		return HCA_DONE;
	}
	hca_add(qp->hca, HCA_CNT_RETRIES, 1);
	return hca_wait(qp, HCA_RETRY);
}

/* The other end has no Receive: it has the message sent again later, as often as was negotiated. */
static enum hca_progress hca_not_ready(struct hca_qp *qp, u8 timer, enum ib_wc_status *status)
{
	hca_add(qp->hca, HCA_CNT_RCVD_RNR, 1);
	if (qp->attr.rnr_retry != 7 && !qp->rnr_left--) {
		*status = IB_WC_RNR_RETRY_EXC_ERR;
		return HCA_DONE;
	}
	return hca_wait(qp, usecs_to_jiffies(hca_rnr_delay[timer & 31] * 10));
}

static struct hca_cursor hca_local(struct hca_qp *qp, struct hca_swqe *wqe, int access)
{
	struct hca_cursor c = {
		.hca = qp->hca,
		.pd = to_hca_pd(qp->ib.pd),
		.sge = wqe->sge,
		.num_sge = wqe->num_sge,
		.access = access,
		.excused = hca_is_program(qp),
	};
	u32 behind = qp->moved;

	while (c.num_sge && behind >= c.sge->length) {
		behind -= c.sge->length;
		c.sge++;
		c.num_sge--;
	}
	c.at = behind;
	return c;
}

static enum hca_progress hca_send(struct hca_qp *qp, struct hca_swqe *wqe, u32 *turn,
				  enum ib_wc_status *status)
{
	struct hca_cursor from = hca_local(qp, wqe, 0), to = { .access = IB_ACCESS_LOCAL_WRITE };
	enum ib_wc_status received = IB_WC_SUCCESS;
	enum hca_side side = HCA_BOTH_FINE;
	int event = IB_EVENT_QP_REQ_ERR;
	struct hca_cqe cqe = {};
	struct hca_rwqe *recv;
	struct hca_qp *peer;
	struct hca_rq *rq;
	bool dead;
	u8 timer;
	u32 room = 0, i;

	peer = hca_begin(qp);
	if (!peer)
		return hca_unanswered(qp, status);
	qp->unanswered = false;
	rq = hca_rq_of(peer);
	recv = hca_rq_take(rq);
	if (!recv) {
		hca_add(peer->hca, HCA_CNT_SENT_RNR, 1);
		timer = peer->attr.min_rnr_timer;
		dead = READ_ONCE(rq->dead);
		/* Over iWARP nothing is sent again: there is no such thing as RNR. */
		if (dead || peer->hca->profile->iwarp)
			hca_qp_error(peer, IB_EVENT_QP_FATAL);
		hca_end(peer);
		if (dead) {
			*status = IB_WC_REM_OP_ERR;
			return HCA_DONE;
		}
		return qp->hca->profile->iwarp ? HCA_DONE : hca_not_ready(qp, timer, status);
	}
	qp->rnr_left = qp->attr.rnr_retry;
	if (READ_ONCE(qp->tears)) {
		peer->torn = recv;
		hca_end(peer);
		return hca_unanswered(qp, status);
	}
	for (i = 0; i < recv->num_sge; i++)
		room += recv->sge[i].length;
	to.hca = peer->hca;
	to.excused = hca_is_program(peer);
	to.pd = rq->pd;
	to.sge = recv->sge;
	to.num_sge = recv->num_sge;
	if (wqe->length <= room)
		side = hca_move(&to, &from, wqe->length);
	if (side == HCA_FROM_FAILED) {
		/* Nothing has been sent. */
		hca_rq_return(rq, recv);
		hca_end(peer);
		*status = IB_WC_LOC_PROT_ERR;
		return HCA_DONE;
	}
	if (wqe->length > room) {
		hca_complain_of(peer, qp, HCA_RULE_RECV_LENGTH, "%u octets, %u are there",
				wqe->length, room);
		received = IB_WC_LOC_LEN_ERR;
		*status = IB_WC_REM_INV_REQ_ERR;
	} else if (side == HCA_TO_FAILED) {
		received = IB_WC_LOC_PROT_ERR;
		*status = IB_WC_REM_OP_ERR;
		event = IB_EVENT_QP_FATAL;
	} else if (wqe->opcode == IB_WR_SEND_WITH_INV) {
		/* It is invalid before the Receive completes (IBTA 9.4.1.1.3). */
		if (hca_remote_inv(peer, wqe->inv_rkey, hca_is_program(qp))) {
			cqe.wc.wc_flags = IB_WC_WITH_INVALIDATE;
			cqe.wc.ex.invalidate_rkey = wqe->inv_rkey;
		} else {
			received = IB_WC_LOC_ACCESS_ERR;
			*status = IB_WC_REM_ACCESS_ERR;
			event = IB_EVENT_QP_ACCESS_ERR;
		}
	}
	if (received != IB_WC_SUCCESS)
		hca_qp_error(peer, event);
	else
		hca_add(qp->hca, HCA_CNT_SEND_OCTETS, wqe->length);
	if (wqe->opcode == IB_WR_SEND_WITH_IMM) {
		cqe.wc.wc_flags = IB_WC_WITH_IMM;
		cqe.wc.ex.imm_data = wqe->imm;
	}
	cqe.wc.byte_len = wqe->length;
	cqe.solicited = wqe->flags & IB_SEND_SOLICITED;
	hca_rq_complete(peer, rq, recv, &cqe, received);
	hca_end(peer);
	*turn -= min(*turn, wqe->length);
	return HCA_DONE;
}

/* What the other end allows on this connection at all. */
static enum ib_wc_status hca_rdma_allowed(struct hca_qp *qp, struct hca_qp *peer, bool read)
{
	int right = read ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE;

	if (read && !qp->attr.max_rd_atomic) {
		hca_complain_of(qp, qp, HCA_RULE_RD_ATOMIC, "at the requester");
		return IB_WC_LOC_QP_OP_ERR;
	}
	if (read && !peer->attr.max_dest_rd_atomic) {
		hca_complain_of(peer, qp, HCA_RULE_RD_ATOMIC, "at the responder");
		hca_qp_error(peer, IB_EVENT_QP_REQ_ERR);
		return IB_WC_REM_INV_REQ_ERR;
	}
	if (!(peer->attr.qp_access_flags & right)) {
		hca_complain_of(peer, qp, HCA_RULE_REMOTE_RIGHTS, "%#x of %#x", right,
				peer->attr.qp_access_flags);
		hca_qp_error(peer, IB_EVENT_QP_ACCESS_ERR);
		return IB_WC_REM_ACCESS_ERR;
	}
	return IB_WC_SUCCESS;
}

/*
 * What an RDMA Read needs of its sink. Over iWARP the answer is a tagged message, as that of an
 * RDMA Write is, so the sink has to be open to the other end (RFC 5040, 5.2.1).
 */
static int hca_sink_access(const struct hca_qp *qp)
{
	return qp->hca->profile->iwarp ? IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE :
	       IB_ACCESS_LOCAL_WRITE;
}

/* The Receive of an RDMA Write with immediate data, all of which has been written. */
static enum hca_progress hca_immediate(struct hca_qp *qp, struct hca_swqe *wqe,
				       enum ib_wc_status *status)
{
	struct hca_qp *peer = hca_begin(qp);
	struct hca_cqe cqe = {
		.wc = {
			.opcode = IB_WC_RECV_RDMA_WITH_IMM,
			.wc_flags = IB_WC_WITH_IMM,
			.ex.imm_data = wqe->imm,
			.byte_len = wqe->length,
		},
		.solicited = wqe->flags & IB_SEND_SOLICITED,
	};
	struct hca_rwqe *recv;
	struct hca_rq *rq;
	u8 timer;

	if (!peer)
		return hca_unanswered(qp, status);
	rq = hca_rq_of(peer);
	recv = hca_rq_take(rq);
	timer = peer->attr.min_rnr_timer;
	if (recv) {
		qp->rnr_left = qp->attr.rnr_retry;
		hca_rq_complete(peer, rq, recv, &cqe, IB_WC_SUCCESS);
	} else if (READ_ONCE(rq->dead)) {
		hca_qp_error(peer, IB_EVENT_QP_FATAL);
		*status = IB_WC_REM_OP_ERR;
	} else {
		hca_add(peer->hca, HCA_CNT_SENT_RNR, 1);
	}
	hca_end(peer);
	return recv || *status ? HCA_DONE : hca_not_ready(qp, timer, status);
}

static enum hca_progress hca_rdma(struct hca_qp *qp, struct hca_swqe *wqe, u32 *turn,
				  enum ib_wc_status *status)
{
	bool read = hca_is_read(wqe->opcode);
	struct ib_sge there = {
		.addr = wqe->rdma.addr,
		.length = wqe->length,
		.lkey = wqe->rdma.rkey,
	};
	struct hca_cursor local = hca_local(qp, wqe, read ? hca_sink_access(qp) : 0);
	struct hca_cursor remote = {
		.sge = &there,
		.num_sge = 1,
		.at = qp->moved,
		.access = read ? IB_ACCESS_REMOTE_READ : IB_ACCESS_REMOTE_WRITE,
	};
	u32 n = min(wqe->length - qp->moved, *turn);
	bool half = wqe->fault == HCA_FAULT_HALF;
	enum hca_side side = HCA_BOTH_FINE;
	struct hca_qp *peer = hca_begin(qp);

	if (!peer)
		return hca_unanswered(qp, status);
	qp->unanswered = false;
	remote.hca = peer->hca;
	remote.excused = hca_is_program(qp) || hca_is_program(peer);
	remote.pd = to_hca_pd(peer->ib.pd);
	*status = hca_rdma_allowed(qp, peer, read);
	if (half)
		n = min(n, wqe->length / 2 - qp->moved);
	/* Of no octets neither key nor address is looked at (IBTA 9.7.4.1.4). */
	if (*status == IB_WC_SUCCESS && n)
		side = read ? hca_move(&local, &remote, n) : hca_move(&remote, &local, n);
	if (side != HCA_BOTH_FINE) {
		if (side == (read ? HCA_FROM_FAILED : HCA_TO_FAILED)) {
			*status = IB_WC_REM_ACCESS_ERR;
			hca_qp_error(peer, IB_EVENT_QP_ACCESS_ERR);
		} else {
			*status = IB_WC_LOC_PROT_ERR;
		}
	}
	hca_end(peer);
	if (*status != IB_WC_SUCCESS)
		return HCA_DONE;
	hca_add(qp->hca, read ? HCA_CNT_READ_OCTETS : HCA_CNT_WRITE_OCTETS, n);
	qp->moved += n;
	*turn -= n;
	if (half && qp->moved == wqe->length / 2) {
		*status = IB_WC_RETRY_EXC_ERR;
		return HCA_DONE;
	}
	if (qp->moved != wqe->length)
		return HCA_GOES_ON;
	if (wqe->opcode == IB_WR_RDMA_WRITE_WITH_IMM)
		return hca_immediate(qp, wqe, status);
	/* Nobody writes to the sink any more. */
	if (wqe->opcode == IB_WR_RDMA_READ_WITH_INV)
		*status = hca_local_inv(qp, wqe->inv_rkey);
	return HCA_DONE;
}

/* The other end refuses what was not refusable, and says so to its consumer. */
static enum hca_progress hca_refuse(struct hca_qp *qp, enum ib_wc_status *status)
{
	struct hca_qp *peer = hca_begin(qp);

	if (!peer)
		return hca_unanswered(qp, status);
	hca_qp_error(peer, IB_EVENT_QP_ACCESS_ERR);
	hca_end(peer);
	*status = IB_WC_REM_ACCESS_ERR;
	return HCA_DONE;
}

static enum hca_fault_action hca_request_fault(struct hca_qp *qp, struct hca_swqe *wqe)
{
	switch (wqe->opcode) {
	case IB_WR_REG_MR:
		return hca_fault(qp->hca, HCA_FAULT_REG_MR);
	case IB_WR_LOCAL_INV:
		return hca_fault(qp->hca, HCA_FAULT_LOCAL_INV);
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_READ_WITH_INV:
		return hca_fault(qp->hca, HCA_FAULT_READ);
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return hca_fault(qp->hca, HCA_FAULT_WRITE);
	default:
		return hca_fault(qp->hca, qp->ib.qp_type == IB_QPT_RC ? HCA_FAULT_SEND :
								       HCA_FAULT_MAD);
	}
}

static enum hca_progress hca_execute(struct hca_qp *qp, struct hca_swqe *wqe, u32 *turn,
				     enum ib_wc_status *status)
{
	*status = IB_WC_SUCCESS;
	switch (wqe->opcode) {
	case IB_WR_REG_MR:
		*status = hca_reg_mr(qp, wqe);
		return HCA_DONE;
	case IB_WR_LOCAL_INV:
		*status = hca_local_inv(qp, wqe->inv_rkey);
		return HCA_DONE;
	case IB_WR_RDMA_READ:
	case IB_WR_RDMA_READ_WITH_INV:
	case IB_WR_RDMA_WRITE:
	case IB_WR_RDMA_WRITE_WITH_IMM:
		return hca_rdma(qp, wqe, turn, status);
	default:
		if (qp->ib.qp_type == IB_QPT_RC)
			return hca_send(qp, wqe, turn, status);
		hca_send_mad(qp, wqe);
		return HCA_DONE;
	}
}

/* The same with what is made to go wrong. */
static enum hca_progress hca_attempt(struct hca_qp *qp, struct hca_swqe *wqe, u32 *turn,
				     enum ib_wc_status *status)
{
	bool local = wqe->opcode == IB_WR_REG_MR || wqe->opcode == IB_WR_LOCAL_INV;
	enum hca_progress progress;

	if (!wqe->begun) {
		wqe->begun = true;
		wqe->fault = hca_request_fault(qp, wqe);
		if (wqe->fault == HCA_FAULT_LATE)
			return hca_wait(qp, HCA_FAULT_DELAY);
	}
	if (qp->ib.qp_type == IB_QPT_RC && wqe->fault == HCA_FAULT_FAIL) {
		*status = local ? IB_WC_MW_BIND_ERR : IB_WC_RETRY_EXC_ERR;
		return HCA_DONE;
	}
	if (!local && wqe->fault == HCA_FAULT_REMOTE)
		return hca_refuse(qp, status);
	progress = hca_execute(qp, wqe, turn, status);
	if (wqe->fault == HCA_FAULT_LOST && progress == HCA_DONE && *status == IB_WC_SUCCESS)
		*status = local ? IB_WC_MW_BIND_ERR : IB_WC_RETRY_EXC_ERR;
	return progress;
}

/*
 * The same over iWARP. A Send or Write ends well as soon as it has been sent; when the other end
 * refuses it, what comes back is the connection's end (RFC 5040, 5.5 and 7). That is also what
 * comes when there is no answer, and then the request is flushed.
 */
static enum ib_wc_status hca_iw_status(const struct hca_swqe *wqe, enum ib_wc_status status)
{
	switch (status) {
	case IB_WC_REM_ACCESS_ERR:
	case IB_WC_REM_INV_REQ_ERR:
	case IB_WC_REM_OP_ERR:
		return hca_is_read(wqe->opcode) ? status : IB_WC_SUCCESS;
	case IB_WC_RETRY_EXC_ERR:
		return IB_WC_WR_FLUSH_ERR;
	default:
		return status;
	}
}

void hca_engine(struct work_struct *work)
{
	struct hca_qp *qp = container_of(work, struct hca_qp, engine);
	enum ib_wc_status status;
	struct hca_swqe *wqe;
	u32 turn = HCA_TURN;
	unsigned long flags;
	bool ended;

	while (turn) {
		spin_lock_irqsave(&qp->lock, flags);
		ended = qp->state == IB_QPS_ERR;
		wqe = qp->state != IB_QPS_RTS || qp->waiting || qp->next == qp->head ?
		      NULL : &qp->sq[qp->next & qp->mask];
		spin_unlock_irqrestore(&qp->lock, flags);
		if (ended) {
			hca_flush(qp);
			return;
		}
		if (!wqe)
			return;
		switch (hca_attempt(qp, wqe, &turn, &status)) {
		case HCA_DONE:
			if (qp->hca->profile->iwarp)
				status = hca_iw_status(wqe, status);
			/* Before it can be polled: what is posted then is flushed. */
			if (status != IB_WC_SUCCESS)
				hca_qp_error(qp, -1);
			hca_sq_complete(qp, wqe, status);
			break;
		case HCA_WAITS:
			return;
		case HCA_GOES_ON:
			break;
		}
	}
	queue_work(hca_bh_wq, &qp->engine);
}
