// SPDX-License-Identifier: GPL-2.0
/*
 * Queue Pairs: their states, attributes and ends.
 *
 * A Queue Pair is its consumer's until hca_destroy_qp(). That takes it out of
 * hca_qps, stops its engine, and waits until there is no reference: code that
 * delivers a message to it, or ends it, has one. No completion of it is added
 * afterwards, and no event told.
 *
 * @lock protects the state and the attributes. In the state ERR the engine
 * flushes: what is in the Send Queue in order, then what is in the Receive
 * Queue; with a shared one it tells when the last Receive was completed.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include "hca.h"

/* All with the type RC, by number, which is not used again soon. */
static DEFINE_XARRAY_FLAGS(hca_qps, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
static u32 hca_next_qpn;

/* A reference to a Queue Pair, if it is there. */
struct hca_qp *hca_qp_find(u32 qpn)
{
	struct hca_qp *qp;
	unsigned long flags;

	xa_lock_irqsave(&hca_qps, flags);
	qp = xa_load(&hca_qps, qpn);
	if (qp)
		refcount_inc(&qp->refs);
	xa_unlock_irqrestore(&hca_qps, flags);
	return qp;
}

void hca_qp_put(struct hca_qp *qp)
{
	if (refcount_dec_and_test(&qp->refs))
		complete(&qp->unused);
}

static void hca_qp_tell(struct work_struct *work)
{
	struct hca_qp *qp = container_of(work, struct hca_qp, event_work);
	unsigned long events = xchg(&qp->events, 0);
	struct ib_event event = {
		.device = qp->ib.device,
		.element.qp = &qp->ib,
	};
	unsigned int bit;

	for_each_set_bit(bit, &events, BITS_PER_LONG) {
		event.event = bit;
		if (bit == IB_EVENT_QP_LAST_WQE_REACHED)
			hca_add(qp->hca, HCA_CNT_LAST_WQE_EVENTS, 1);
		if (qp->ib.event_handler)
			qp->ib.event_handler(&event, qp->ib.qp_context);
	}
}

/* Has the consumer told of an event, from a task. */
void hca_qp_event(struct hca_qp *qp, enum ib_event_type event)
{
	set_bit(event, &qp->events);
	queue_work(hca_wq, &qp->event_work);
}

/* mlx5 and mlx4 tell at once, others later; irdma, qedr and siw never do. */
static const char * const hca_last_names[] = {
	[HCA_LAST_PROFILE] = "profile",
	[HCA_LAST_PROMPT] = "prompt",
	[HCA_LAST_LATE] = "late",
	[HCA_LAST_NEVER] = "never",
};

static int hca_last_wqe = HCA_LAST_PROFILE;

static int hca_last_set(const char *value, const struct kernel_param *param)
{
	int when = sysfs_match_string(hca_last_names, value);

	if (when < 0)
		return when;
	hca_last_wqe = when;
	return 0;
}

static int hca_last_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", hca_last_names[hca_last_wqe]);
}

static const struct kernel_param_ops hca_last_ops = {
	.set = hca_last_set,
	.get = hca_last_get,
};

module_param_cb(last_wqe, &hca_last_ops, NULL, 0644);
MODULE_PARM_DESC(last_wqe, "later devices tell of the last shared Receive: profile, prompt, late or never");

/* How late. */
#define HCA_LAST_DELAY	msecs_to_jiffies(1500)

/* Takes over what the module's parameter says. */
void hca_qp_set(struct hca_dev *hca)
{
	hca->last_wqe = READ_ONCE(hca_last_wqe);
	if (hca->last_wqe == HCA_LAST_PROFILE)
		hca->last_wqe = hca->profile->last_wqe;
}

static void hca_qp_last_work(struct work_struct *work)
{
	hca_qp_event(container_of(to_delayed_work(work), struct hca_qp, last_work),
		     IB_EVENT_QP_LAST_WQE_REACHED);
}

/* No completion of a shared Receive will be added any more. */
void hca_qp_last(struct hca_qp *qp)
{
	if (qp->hca->last_wqe == HCA_LAST_PROMPT)
		hca_qp_event(qp, IB_EVENT_QP_LAST_WQE_REACHED);
	else if (qp->hca->last_wqe == HCA_LAST_LATE)
		queue_delayed_work(hca_wq, &qp->last_work, HCA_LAST_DELAY);
}

/* Ends a connection: the engine flushes what is posted. @event is told unless it is negative. */
void hca_qp_error(struct hca_qp *qp, int event)
{
	unsigned long flags;
	bool ends;

	spin_lock_irqsave(&qp->lock, flags);
	ends = qp->state != IB_QPS_ERR && qp->state != IB_QPS_RESET;
	if (ends) {
		qp->state = IB_QPS_ERR;
		qp->failed = true;
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (!ends)
		return;
	if (event >= 0)
		hca_qp_event(qp, event);
	queue_work(hca_bh_wq, &qp->engine);
	hca_iw_drop(qp);
}

/* Ends those that are concerned when something has failed, and tells their consumers. */
static void hca_qps_fail(bool (*concerned)(const struct hca_qp *qp, const void *failed),
			 const void *failed)
{
	struct hca_qp *qp;
	unsigned long qpn;

	xa_for_each(&hca_qps, qpn, qp) {
		qp = hca_qp_find(qpn);
		if (!qp)
			continue;
		if (concerned(qp, failed))
			hca_qp_error(qp, IB_EVENT_QP_FATAL);
		hca_qp_put(qp);
	}
}

static bool hca_completes_to(const struct hca_qp *qp, const void *cq)
{
	return qp->ib.send_cq == cq || qp->ib.recv_cq == cq;
}

static bool hca_receives_from(const struct hca_qp *qp, const void *srq)
{
	return qp->ib.srq == srq;
}

static bool hca_is_of(const struct hca_qp *qp, const void *hca)
{
	return qp->hca == hca;
}

/* Ends all that complete to a queue that has failed. */
void hca_qps_of_dead_cq(struct hca_cq *cq)
{
	hca_qps_fail(hca_completes_to, &cq->ib);
}

/* The same of a shared Receive Queue. */
void hca_qps_of_dead_srq(struct hca_srq *srq)
{
	hca_qps_fail(hca_receives_from, &srq->ib);
}

/* The same of a device. */
void hca_qps_of_dead_device(struct hca_dev *hca)
{
	hca_qps_fail(hca_is_of, hca);
}

/*
 * A reference to the oldest connected Queue Pair of a device, with shared Receives or
 * with its own; NULL if there is none.
 */
struct hca_qp *hca_qp_of(struct hca_dev *hca, bool shared)
{
	struct hca_qp *qp;
	unsigned long qpn;

	xa_for_each(&hca_qps, qpn, qp) {
		qp = hca_qp_find(qpn);
		if (!qp)
			continue;
		if (qp->hca == hca && !qp->ib.srq == !shared && READ_ONCE(qp->state) == IB_QPS_RTS)
			return qp;
		hca_qp_put(qp);
	}
	return NULL;
}

/*
 * A completion was polled: its place in the Send Queue is free, and those of all
 * before it, which had none of their own. hca_cq.lock is held.
 */
void hca_sq_polled(struct hca_qp *qp, u32 index)
{
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	for (; qp->tail != index + 1; qp->tail++) {
		struct hca_swqe *wqe = &qp->sq[qp->tail & qp->mask];

		hca_sges_use(qp->hca, wqe->sge, wqe->num_sge, -1);
	}
	spin_unlock_irqrestore(&qp->lock, flags);
}

static void hca_qp_free(struct hca_qp *qp)
{
	if (!qp->ib.srq)
		hca_rq_exit(&qp->rq);
	kvfree(qp->sge);
	kvfree(qp->sq);
}

int hca_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata)
{
	struct hca_dev *hca = to_hca(ib->device);
	struct hca_qp *qp = to_hca_qp(ib);
	const struct hca_profile *profile = hca->profile;
	struct ib_qp_cap *cap = &init->cap;
	int error;
	u32 i;

	might_sleep();
	if ((init->qp_type != IB_QPT_RC && init->qp_type != IB_QPT_GSI) || init->create_flags ||
	    (init->qp_type == IB_QPT_GSI && (init->srq || init->port_num != 1)))
		return -EOPNOTSUPP;
	/* The limits are not those of the core's own Queue Pair. */
	if (!cap->max_send_wr || cap->max_inline_data ||
	    (init->qp_type != IB_QPT_GSI &&
	     (cap->max_send_wr > profile->max_qp_wr || cap->max_send_sge > profile->send_sge ||
	      (!init->srq && (cap->max_recv_wr > profile->max_qp_wr ||
			      cap->max_recv_sge > profile->recv_sge))))) {
		if (!hca_is_program(qp))
			hca_complain(hca, HCA_RULE_CREATE,
				     "a Queue Pair of %u and %u with %u and %u SGEs, %u octets inline",
				     cap->max_send_wr, cap->max_recv_wr, cap->max_send_sge,
				     cap->max_recv_sge, cap->max_inline_data);
		return -EINVAL;
	}
	if (profile->sq_fits && !profile->sq_fits(cap))
		return -ENOMEM;
	if (hca_fault(hca, HCA_FAULT_CREATE))
		return -ENOMEM;
	qp->hca = hca;
	qp->init = *init;
	qp->state = IB_QPS_RESET;
	refcount_set(&qp->refs, 1);
	init_completion(&qp->unused);
	spin_lock_init(&qp->lock);
	INIT_WORK(&qp->engine, hca_engine);
	INIT_WORK(&qp->event_work, hca_qp_tell);
	INIT_DELAYED_WORK(&qp->last_work, hca_qp_last_work);
	timer_setup(&qp->retry, hca_retry, 0);
	qp->mask = roundup_pow_of_two(cap->max_send_wr) - 1;
	qp->sq = kvcalloc(qp->mask + 1, sizeof(*qp->sq), GFP_KERNEL);
	qp->sge = kvcalloc(max(cap->max_send_sge, 1U) * (qp->mask + 1), sizeof(*qp->sge),
			   GFP_KERNEL);
	error = -ENOMEM;
	if (!qp->sq || !qp->sge)
		goto fail;
	for (i = 0; i <= qp->mask; i++)
		qp->sq[i].sge = qp->sge + i * max(cap->max_send_sge, 1U);
	if (!init->srq) {
		error = hca_rq_init(&qp->rq, hca, to_hca_pd(ib->pd), cap->max_recv_wr,
				    cap->max_recv_sge);
		if (error)
			goto fail;
		qp->rq.excused = hca_is_program(qp);
	}
	if (init->qp_type == IB_QPT_GSI) {
		qp->qpn = HCA_GSI_QPN;
		spin_lock_irq(&hca_devices_lock);
		error = hca->gsi ? -EBUSY : 0;
		if (!error)
			hca->gsi = qp;
		spin_unlock_irq(&hca_devices_lock);
	} else {
		/* In irq-safe calls, since engines look for numbers in bottom halves. */
		error = xa_alloc_cyclic_irq(&hca_qps, &qp->qpn, qp, XA_LIMIT(0x10, 0xffffff),
					    &hca_next_qpn, GFP_KERNEL);
	}
	if (error < 0)
		goto fail;
	ib->qp_num = qp->qpn;
	atomic_inc(&to_hca_cq(init->send_cq)->qps);
	atomic_inc(&to_hca_cq(init->recv_cq)->qps);
	if (init->srq)
		atomic_inc(&to_hca_srq(init->srq)->qps);
	return 0;

fail:
	hca_qp_free(qp);
	return error;
}

int hca_destroy_qp(struct ib_qp *ib, struct ib_udata *udata)
{
	struct hca_qp *qp = to_hca_qp(ib);
	struct hca_rwqe *recv;
	unsigned long flags;

	might_sleep();
	if (ib->qp_type == IB_QPT_GSI) {
		spin_lock_irq(&hca_devices_lock);
		qp->hca->gsi = NULL;
		spin_unlock_irq(&hca_devices_lock);
	} else {
		xa_erase_irq(&hca_qps, qp->qpn);
	}
	spin_lock_irqsave(&qp->lock, flags);
	qp->state = IB_QPS_RESET;
	spin_unlock_irqrestore(&qp->lock, flags);
	/* iw_cm has references until it knows of the connection's end. */
	hca_iw_drop(qp);
	hca_qp_put(qp);
	wait_for_completion(&qp->unused);
	timer_shutdown_sync(&qp->retry);
	disable_work_sync(&qp->engine);
	disable_delayed_work_sync(&qp->last_work);
	disable_work_sync(&qp->event_work);
	for (; qp->next != qp->head; qp->next++) {
		struct hca_swqe *wqe = &qp->sq[qp->next & qp->mask];

		if (wqe->opcode == IB_WR_REG_MR)
			hca_reg_executed(wqe->reg.index);
	}
	hca_qp_torn(qp);
	/* What was posted and not polled is not used any more. */
	if (qp->head != qp->tail)
		hca_sq_polled(qp, qp->head - 1);
	while (!ib->srq && (recv = hca_rq_take(&qp->rq)))
		hca_sges_use(qp->hca, recv->sge, recv->num_sge, -1);
	hca_cq_forget(to_hca_cq(ib->send_cq), qp);
	if (ib->recv_cq != ib->send_cq)
		hca_cq_forget(to_hca_cq(ib->recv_cq), qp);
	atomic_dec(&to_hca_cq(ib->send_cq)->qps);
	atomic_dec(&to_hca_cq(ib->recv_cq)->qps);
	if (ib->srq)
		atomic_dec(&to_hca_srq(ib->srq)->qps);
	hca_qp_free(qp);
	return 0;
}

/* Takes over what a transition sets. @lock is held. */
static int hca_set_attr(struct hca_qp *qp, const struct ib_qp_attr *attr, int mask)
{
	if (mask & IB_QP_PORT && attr->port_num != 1)
		return -EINVAL;
	if (mask & IB_QP_PKEY_INDEX && attr->pkey_index)
		return -EINVAL;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC && attr->max_dest_rd_atomic > qp->hca->profile->rd_atomic)
		return -EINVAL;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC && attr->max_rd_atomic > qp->hca->profile->rd_atomic)
		return -EINVAL;
	if (mask & IB_QP_AV && !(rdma_ah_get_ah_flags(&attr->ah_attr) & IB_AH_GRH))
		return -EINVAL;
	if (mask & IB_QP_PORT)
		qp->attr.port_num = attr->port_num;
	if (mask & IB_QP_PKEY_INDEX)
		qp->attr.pkey_index = attr->pkey_index;
	if (mask & IB_QP_ACCESS_FLAGS)
		qp->attr.qp_access_flags = attr->qp_access_flags;
	if (mask & IB_QP_QKEY)
		qp->attr.qkey = attr->qkey;
	if (mask & IB_QP_AV)
		qp->attr.ah_attr = attr->ah_attr;
	if (mask & IB_QP_PATH_MTU)
		qp->attr.path_mtu = attr->path_mtu;
	if (mask & IB_QP_DEST_QPN)
		qp->attr.dest_qp_num = attr->dest_qp_num;
	if (mask & IB_QP_RQ_PSN)
		qp->attr.rq_psn = attr->rq_psn;
	if (mask & IB_QP_SQ_PSN)
		qp->attr.sq_psn = attr->sq_psn;
	if (mask & IB_QP_MAX_DEST_RD_ATOMIC)
		qp->attr.max_dest_rd_atomic = attr->max_dest_rd_atomic;
	if (mask & IB_QP_MAX_QP_RD_ATOMIC)
		qp->attr.max_rd_atomic = attr->max_rd_atomic;
	if (mask & IB_QP_MIN_RNR_TIMER)
		qp->attr.min_rnr_timer = attr->min_rnr_timer;
	if (mask & IB_QP_TIMEOUT)
		qp->attr.timeout = attr->timeout;
	if (mask & IB_QP_RETRY_CNT)
		qp->attr.retry_cnt = attr->retry_cnt;
	if (mask & IB_QP_RNR_RETRY) {
		qp->attr.rnr_retry = attr->rnr_retry;
		qp->rnr_left = attr->rnr_retry;
	}
	return 0;
}

/*
 * The transitions of iWARP that a consumer makes: RTS comes with the connection. The
 * attributes are what iw_cm has for each of them.
 */
static bool hca_iw_modify_is_ok(enum ib_qp_state from, enum ib_qp_state to)
{
	switch (to) {
	case IB_QPS_INIT:
		return from == IB_QPS_RESET || from == IB_QPS_INIT;
	case IB_QPS_RTR:
		return from == IB_QPS_INIT;
	case IB_QPS_RESET:
	case IB_QPS_ERR:
		return true;
	default:
		return from == to;
	}
}

/*
 * Transitions are those of IBTA 10.3.1, with the attributes that each wants. To
 * RESET there is no way with anything posted: there would be no completion of it.
 */
int hca_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata)
{
	struct hca_qp *qp = to_hca_qp(ib);
	enum ib_qp_state from, to;
	unsigned long flags;
	bool ends = false, expected, iwarp = qp->hca->profile->iwarp;
	int error = -EINVAL;

	might_sleep();
	if (mask & IB_QP_STATE && attr->qp_state != IB_QPS_ERR &&
	    hca_fault(qp->hca, HCA_FAULT_MODIFY))
		return -EINVAL;
	spin_lock_irqsave(&qp->lock, flags);
	from = qp->state;
	to = mask & IB_QP_STATE ? attr->qp_state : from;
	/* What iw_cm calls SQD closes the connection: nothing is executed any more. */
	if (iwarp && to == IB_QPS_SQD && (from == IB_QPS_RTS || from == IB_QPS_ERR))
		to = IB_QPS_ERR;
	if (mask & IB_QP_CUR_STATE && attr->cur_qp_state != from)
		goto out;
	/* It is no mistake to end what has ended by itself. */
	if (from == IB_QPS_ERR && to == IB_QPS_ERR) {
		error = 0;
		goto out;
	}
	if (iwarp ? !hca_iw_modify_is_ok(from, to) :
	    !ib_modify_qp_is_ok(from, to, ib->qp_type, mask))
		goto out;
	error = hca_set_attr(qp, attr, mask);
	if (error)
		goto out;
	if (to == IB_QPS_RESET && (qp->next != qp->head || qp->rq.head != qp->rq.tail))
		error = -EBUSY;
	if (error)
		goto out;
	ends = to == IB_QPS_ERR;
	qp->state = to;
out:
	/* What has ended by itself cannot be connected, which the consumer could not know. */
	expected = from == IB_QPS_ERR && qp->failed;
	spin_unlock_irqrestore(&qp->lock, flags);
	if (error && !expected)
		hca_complain_of(qp, qp, HCA_RULE_MODIFY, "from %d to %d with %#x: %d", from, to,
				mask, error);
	else if (!error && (ends || to == IB_QPS_RTS))
		queue_work(hca_bh_wq, &qp->engine);
	if (!error && (ends || to == IB_QPS_RESET))
		hca_iw_drop(qp);
	return error;
}

int hca_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_qp_init_attr *init)
{
	struct hca_qp *qp = to_hca_qp(ib);
	unsigned long flags;

	spin_lock_irqsave(&qp->lock, flags);
	*attr = qp->attr;
	attr->qp_state = qp->state;
	attr->cur_qp_state = qp->state;
	attr->cap = qp->init.cap;
	*init = qp->init;
	spin_unlock_irqrestore(&qp->lock, flags);
	return 0;
}
