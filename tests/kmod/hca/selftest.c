// SPDX-License-Identifier: GPL-2.0
/*
 * The device's own test: a consumer that keeps the rules, and then breaks each
 * of them and wants the error that hardware gives, and the complaint about it.
 *
 *   /sys/kernel/debug/hca/NAME/selftest	a read runs it: a line for each
 *						test, "ok NAME" or "not ok NAME: why"
 *
 * It runs in the read. Each test has two Queue Pairs of its own, connected to each
 * other on this device, and all that they need; nothing else may use the device
 * meanwhile. Complaints are counted and not printed.
 */
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <net/ipv6.h>
#include <rdma/ib_cache.h>
#include "hca.h"

/* Sizes that the tests count with. */
#define ST_WRS		4
#define ST_SGES		2
#define ST_CQES		32
#define ST_BUFFER	(4 * PAGE_SIZE)
/* The last that could be given out. */
#define ST_NO_KEY	0xffffff01

struct st_end {
	struct ib_qp *qp;
	struct ib_cq *cq;
	/* Bits by event. */
	unsigned long events;
};

struct st {
	struct hca_dev *hca;
	struct ib_device *ib;
	const struct ib_gid_attr *gid;
	struct ib_pd *pd, *other_pd;
	struct ib_srq *srq;
	struct st_end end[2];
	struct ib_mr *mr;
	/* The first half is the first end's, the second the other's. */
	u8 *memory;
	dma_addr_t dma;
	/* What the tests of connections vary. */
	u8 rnr_retry, rd_atomic;
	int rights;
};

struct st_test {
	const char *name;
	/* What is complained about, HCA_RULE_N is nothing. */
	enum hca_rule rule;
	/* What is wrong, or NULL. */
	const char *(*run)(struct st *st);
	/* Only in models with mappings of their own. */
	bool maps;
	bool srq;
	/* Only over one of the two. */
	bool roce, iwarp;
};

static void st_event(struct ib_event *event, void *context)
{
	set_bit(event->event, &((struct st_end *)context)->events);
}

static bool st_told(struct st_end *end, enum ib_event_type event)
{
	int i;

	for (i = 0; i < 200 && !test_bit(event, &end->events); i++)
		msleep(20);
	return test_bit(event, &end->events);
}

/* The next completion of an end, with the status that it has; -1 if none comes. */
static int st_poll(struct st_end *end, struct ib_wc *wc)
{
	int i;

	for (i = 0; i < 300; i++) {
		if (ib_poll_cq(end->cq, 1, wc) == 1)
			return wc->status;
		msleep(20);
	}
	return -1;
}

/* Whether the next completion is the one that is expected. */
static bool st_is(struct st_end *end, u64 id, int status)
{
	struct ib_wc wc;
	int got = st_poll(end, &wc);

	if (got == status && wc.wr_id == id && wc.qp == end->qp)
		return true;
	pr_info("hca: selftest: completion %d of %llu instead of %d of %llu\n", got,
		got < 0 ? 0 : wc.wr_id, status, id);
	return false;
}

static int st_modify(struct st *st, int which, enum ib_qp_state state)
{
	struct ib_qp *qp = st->end[which].qp;
	struct ib_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qp_access_flags = st->rights,
		.path_mtu = IB_MTU_1024,
		.dest_qp_num = st->end[!which].qp->qp_num,
		.max_dest_rd_atomic = st->rd_atomic,
		.max_rd_atomic = 1,
		.min_rnr_timer = IB_RNR_TIMER_010_24,
		.timeout = 14,
		.retry_cnt = 1,
		.rnr_retry = st->rnr_retry,
	};
	int mask = IB_QP_STATE;

	if (st->hca->profile->iwarp) {
		if (state == IB_QPS_INIT || state == IB_QPS_RTR)
			mask |= IB_QP_PORT | IB_QP_ACCESS_FLAGS;
		return ib_modify_qp(qp, &attr, mask);
	}
	switch (state) {
	case IB_QPS_INIT:
		mask |= IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS;
		break;
	case IB_QPS_RTR:
		attr.ah_attr.type = RDMA_AH_ATTR_TYPE_ROCE;
		rdma_ah_set_port_num(&attr.ah_attr, 1);
		rdma_ah_set_grh(&attr.ah_attr, (union ib_gid *)&st->gid->gid, 0, st->gid->index,
				64, 0);
		mask |= IB_QP_AV | IB_QP_PATH_MTU | IB_QP_DEST_QPN | IB_QP_RQ_PSN |
			IB_QP_MAX_DEST_RD_ATOMIC | IB_QP_MIN_RNR_TIMER;
		break;
	case IB_QPS_RTS:
		mask |= IB_QP_TIMEOUT | IB_QP_RETRY_CNT | IB_QP_RNR_RETRY | IB_QP_SQ_PSN |
			IB_QP_MAX_QP_RD_ATOMIC;
		break;
	default:
		break;
	}
	return ib_modify_qp(qp, &attr, mask);
}

static int st_connect(struct st *st)
{
	static const enum ib_qp_state states[] = { IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS };
	bool iwarp = st->hca->profile->iwarp;
	int i, end, error = 0;

	for (i = 0; i < ARRAY_SIZE(states) - iwarp; i++) {
		for (end = 0; end < 2 && !error; end++)
			error = st_modify(st, end, states[i]);
	}
	if (!error && iwarp)
		error = hca_iw_join(to_hca_qp(st->end[0].qp), to_hca_qp(st->end[1].qp), 1,
				    st->rd_atomic);
	return error;
}

/* What the first end sees of a Send or Write that the other refuses: nothing over iWARP. */
static int st_refused(struct st *st, int status)
{
	return st->hca->profile->iwarp ? IB_WC_SUCCESS : status;
}

static int st_make_end(struct st *st, struct st_end *end, int cqes)
{
	struct ib_cq_init_attr cq = { .cqe = cqes };
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_RC,
		.sq_sig_type = IB_SIGNAL_REQ_WR,
		.event_handler = st_event,
		.qp_context = end,
		.cap = {
			.max_send_wr = ST_WRS,
			.max_recv_wr = ST_WRS,
			.max_send_sge = ST_SGES,
			.max_recv_sge = ST_SGES,
		},
		.srq = st->srq,
	};

	end->events = 0;
	end->cq = ib_create_cq(st->ib, NULL, st_event, end, &cq);
	if (IS_ERR(end->cq))
		return PTR_ERR(end->cq);
	init.send_cq = end->cq;
	init.recv_cq = end->cq;
	end->qp = ib_create_qp(st->pd, &init);
	return PTR_ERR_OR_ZERO(end->qp);
}

static void st_break_end(struct st_end *end)
{
	if (!IS_ERR_OR_NULL(end->qp))
		ib_destroy_qp(end->qp);
	if (!IS_ERR_OR_NULL(end->cq))
		ib_destroy_cq(end->cq);
}

static void st_break(struct st *st)
{
	if (!IS_ERR_OR_NULL(st->mr))
		ib_dereg_mr(st->mr);
	st_break_end(&st->end[0]);
	st_break_end(&st->end[1]);
	if (!IS_ERR_OR_NULL(st->srq))
		ib_destroy_srq(st->srq);
	if (!ib_dma_mapping_error(st->ib, st->dma))
		ib_dma_unmap_single(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	if (!IS_ERR_OR_NULL(st->other_pd))
		ib_dealloc_pd(st->other_pd);
	if (!IS_ERR_OR_NULL(st->pd))
		ib_dealloc_pd(st->pd);
	kfree(st->memory);
}

static int st_make(struct st *st, bool srq)
{
	struct ib_srq_init_attr init = {
		.attr = { .max_wr = ST_WRS, .max_sge = ST_SGES },
		.srq_type = IB_SRQT_BASIC,
	};
	int i, error;

	st->rights = IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE;
	st->rd_atomic = 1;
	st->dma = DMA_MAPPING_ERROR;
	st->memory = kzalloc(ST_BUFFER, GFP_KERNEL);
	if (!st->memory)
		return -ENOMEM;
	for (i = 0; i < ST_BUFFER / 2; i++)
		st->memory[i] = i % 251;
	st->dma = ib_dma_map_single(st->ib, st->memory, ST_BUFFER, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(st->ib, st->dma))
		return -ENOMEM;
	st->pd = ib_alloc_pd(st->ib, 0);
	st->other_pd = ib_alloc_pd(st->ib, 0);
	if (IS_ERR(st->pd) || IS_ERR(st->other_pd))
		return -ENOMEM;
	if (srq) {
		st->srq = ib_create_srq(st->pd, &init);
		if (IS_ERR(st->srq))
			return PTR_ERR(st->srq);
	}
	error = st_make_end(st, &st->end[0], ST_CQES);
	if (!error)
		error = st_make_end(st, &st->end[1], ST_CQES);
	if (error)
		return error;
	st->mr = ib_alloc_mr(st->pd, IB_MR_TYPE_MEM_REG, 4);
	return PTR_ERR_OR_ZERO(st->mr);
}

static struct ib_sge st_sge(struct st *st, int which, u32 length)
{
	return (struct ib_sge) {
		.addr = st->dma + which * (ST_BUFFER / 2),
		.length = length,
		.lkey = st->pd->local_dma_lkey,
	};
}

static int st_recv_sge(struct st *st, int which, u64 id, struct ib_sge sge)
{
	struct ib_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 };

	return st->srq ? ib_post_srq_recv(st->srq, &wr, NULL) :
	       ib_post_recv(st->end[which].qp, &wr, NULL);
}

static int st_recv(struct st *st, int which, u64 id, u32 length)
{
	return st_recv_sge(st, which, id, st_sge(st, which, length));
}

static int st_send_sge(struct st *st, int which, u64 id, struct ib_sge sge, int flags)
{
	struct ib_send_wr wr = {
		.wr_id = id,
		.opcode = IB_WR_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = flags,
	};

	return ib_post_send(st->end[which].qp, &wr, NULL);
}

static int st_send(struct st *st, int which, u64 id, u32 length)
{
	return st_send_sge(st, which, id, st_sge(st, which, length), IB_SEND_SIGNALED);
}

static int st_rdma(struct st *st, u64 id, enum ib_wr_opcode opcode, u64 addr, u32 rkey,
		   struct ib_sge sge)
{
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_id = id,
			.opcode = opcode,
			.sg_list = &sge,
			.num_sge = 1,
			.send_flags = IB_SEND_SIGNALED,
		},
		.remote_addr = addr,
		.rkey = rkey,
	};

	return ib_post_send(st->end[0].qp, &wr.wr, NULL);
}

static int st_inv(struct st *st, int which, u64 id, u32 key)
{
	struct ib_send_wr wr = {
		.wr_id = id,
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key,
	};

	return ib_post_send(st->end[which].qp, &wr, NULL);
}

/* The two pages in the middle: those of the second end begin with the second of them. */
static int st_map(struct st *st, struct ib_mr *mr)
{
	struct scatterlist sg;

	sg_init_table(&sg, 1);
	sg_set_buf(&sg, st->memory + PAGE_SIZE, 2 * PAGE_SIZE);
	sg_dma_address(&sg) = st->dma + PAGE_SIZE;
	sg_dma_len(&sg) = 2 * PAGE_SIZE;
	return ib_map_mr_sg(mr, &sg, 1, NULL, PAGE_SIZE) == 1 ? 0 : -EINVAL;
}

static int st_reg_mr(struct st *st, int which, u64 id, struct ib_mr *mr, u32 key, int access)
{
	struct ib_reg_wr wr = {
		.wr = {
			.wr_id = id,
			.opcode = IB_WR_REG_MR,
			.send_flags = IB_SEND_SIGNALED,
		},
		.mr = mr,
		.key = key,
		.access = access,
	};

	return ib_post_send(st->end[which].qp, &wr.wr, NULL);
}

#define ST_ALL (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE)

/* Registers the region at the second end. */
static const char *st_reg(struct st *st, int access)
{
	if (st_map(st, st->mr) || st_reg_mr(st, 1, 90, st->mr, st->mr->rkey, access))
		return "no registration";
	return st_is(&st->end[1], 90, IB_WC_SUCCESS) ? NULL : "registration";
}

static const char *st_send_recv(struct st *st)
{
	struct ib_wc wc;

	if (st_connect(st) || st_recv(st, 1, 1, 3000) || st_send(st, 0, 2, 2500))
		return "post";
	if (!st_is(&st->end[0], 2, IB_WC_SUCCESS))
		return "Send";
	if (st_poll(&st->end[1], &wc) || wc.wr_id != 1 || wc.byte_len != 2500 ||
	    wc.opcode != IB_WC_RECV || wc.qp != st->end[1].qp)
		return "Receive";
	ib_dma_sync_single_for_cpu(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	return memcmp(st->memory, st->memory + ST_BUFFER / 2, 2500) ? "octets" : NULL;
}

static const char *st_rdma_both(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (wrong)
		return wrong;
	/* One page in is the second end's half. */
	if (st_rdma(st, 1, IB_WR_RDMA_WRITE, st->mr->iova + PAGE_SIZE, st->mr->rkey,
		    st_sge(st, 0, 1000)) || !st_is(&st->end[0], 1, IB_WC_SUCCESS))
		return "Write";
	if (st_rdma(st, 2, IB_WR_RDMA_READ, st->mr->iova + PAGE_SIZE + 10, st->mr->rkey,
		    st_sge(st, 0, 900)) || !st_is(&st->end[0], 2, IB_WC_SUCCESS))
		return "Read";
	if (st_inv(st, 1, 3, st->mr->rkey) || !st_is(&st->end[1], 3, IB_WC_SUCCESS))
		return "invalidation";
	ib_dma_sync_single_for_cpu(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	return st->memory[0] != 10 || memcmp(st->memory, st->memory + ST_BUFFER / 2 + 10, 900) ?
	       "octets" : NULL;
}

/* The low bits of the iova are the place in the first page, wherever the memory was mapped. */
static const char *st_iova_bits(struct st *st)
{
	if (st_connect(st) || st_map(st, st->mr))
		return "map";
	st->mr->iova = 5 * PAGE_SIZE + 100;
	st->mr->length = PAGE_SIZE;
	if (st_reg_mr(st, 1, 1, st->mr, st->mr->rkey, ST_ALL) ||
	    !st_is(&st->end[1], 1, IB_WC_SUCCESS))
		return "registration";
	if (st_rdma(st, 2, IB_WR_RDMA_READ, 5 * PAGE_SIZE + 100, st->mr->rkey, st_sge(st, 0, 10)) ||
	    !st_is(&st->end[0], 2, IB_WC_SUCCESS))
		return "Read";
	ib_dma_sync_single_for_cpu(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	return st->memory[0] == (PAGE_SIZE + 100) % 251 ? NULL : "octet";
}

static const char *st_post_state(struct st *st)
{
	if (st_modify(st, 0, IB_QPS_INIT))
		return "modify";
	return st_send(st, 0, 1, 10) == -EINVAL ? NULL : "a Send in INIT";
}

static const char *st_post_sges(struct st *st)
{
	struct ib_sge sge[ST_SGES + 1] = {};
	struct ib_send_wr wr = {
		.opcode = IB_WR_SEND,
		.sg_list = sge,
		.num_sge = ARRAY_SIZE(sge),
	};

	if (st_connect(st))
		return "connect";
	return ib_post_send(st->end[0].qp, &wr, NULL) == -EINVAL ? NULL : "posted";
}

static const char *st_post_inline(struct st *st)
{
	if (st_connect(st))
		return "connect";
	return st_send_sge(st, 0, 1, st_sge(st, 0, 10), IB_SEND_INLINE) == -EINVAL ?
	       NULL : "posted";
}

static const char *st_post_opcode(struct st *st)
{
	if (st_connect(st))
		return "connect";
	return st_rdma(st, 1, IB_WR_ATOMIC_FETCH_AND_ADD, 0, 0, st_sge(st, 0, 8)) == -EINVAL ?
	       NULL : "posted";
}

/* A place is free when its completion was polled, not when the request was executed. */
static const char *st_sq_overflow(struct st *st)
{
	int i;

	if (st_connect(st))
		return "connect";
	for (i = 0; i < ST_WRS; i++) {
		if (st_recv(st, 1, i, 100) || st_send(st, 0, 10 + i, 100))
			return "post";
	}
	for (i = 0; i < ST_WRS; i++) {
		if (!st_is(&st->end[1], i, IB_WC_SUCCESS))
			return "Receive";
	}
	if (st_recv(st, 1, 20, 100) || st_send(st, 0, 21, 100) != -ENOMEM)
		return "one too many";
	if (!st_is(&st->end[0], 10, IB_WC_SUCCESS))
		return "Send";
	return st_send(st, 0, 22, 100) ? "a place that is free again" : NULL;
}

static const char *st_rq_overflow(struct st *st)
{
	int i;

	if (st_connect(st))
		return "connect";
	for (i = 0; i < ST_WRS; i++) {
		if (st_recv(st, 0, i, 100))
			return "post";
	}
	return st_recv(st, 0, i, 100) == -ENOMEM ? NULL : "one too many";
}

/* More completions than were asked for: the queue and its Queue Pairs end. */
static const char *st_cq_overflow(struct st *st)
{
	int i, error;

	st_break_end(&st->end[0]);
	memset(&st->end[0], 0, sizeof(st->end[0]));
	error = st_make_end(st, &st->end[0], 2);
	if (error || st_connect(st))
		return "connect";
	for (i = 0; i < 3; i++) {
		if (st_recv(st, 1, i, 100) || st_send(st, 0, i, 100))
			return "post";
	}
	if (!st_told(&st->end[0], IB_EVENT_CQ_ERR) || !st_told(&st->end[0], IB_EVENT_QP_FATAL))
		return "no event";
	return NULL;
}

static const char *st_rnr_end(struct st *st)
{
	if (st_connect(st) || st_send(st, 0, 1, 100))
		return "post";
	return st_is(&st->end[0], 1, IB_WC_RNR_RETRY_EXC_ERR) ? NULL : "status";
}

static const char *st_rnr_wait(struct st *st)
{
	s64 before = atomic64_read(&st->hca->counters[HCA_CNT_SENT_RNR]);

	st->rnr_retry = 7;
	if (st_connect(st) || st_send(st, 0, 1, 100))
		return "post";
	msleep(100);
	if (st_recv(st, 1, 2, 100) || !st_is(&st->end[0], 1, IB_WC_SUCCESS) ||
	    !st_is(&st->end[1], 2, IB_WC_SUCCESS))
		return "status";
	return atomic64_read(&st->hca->counters[HCA_CNT_SENT_RNR]) > before ? NULL : "count";
}

static const char *st_silence(struct st *st)
{
	if (st_connect(st) || st_modify(st, 1, IB_QPS_ERR) || st_send(st, 0, 1, 100))
		return "post";
	return st_is(&st->end[0], 1, IB_WC_RETRY_EXC_ERR) ? NULL : "status";
}

/* The first failure has a status of its own, what is behind it is flushed, in order. */
static const char *st_flush(struct st *st)
{
	struct ib_sge wrong = st_sge(st, 0, 100);

	wrong.lkey = ST_NO_KEY;
	if (st_connect(st) || st_recv(st, 1, 5, 100) || st_recv(st, 0, 1, 100) ||
	    st_recv(st, 0, 2, 100) || st_send_sge(st, 0, 3, wrong, 0))
		return "post";
	if (!st_is(&st->end[0], 3, IB_WC_LOC_PROT_ERR))
		return "the first";
	if (!st_is(&st->end[0], 1, IB_WC_WR_FLUSH_ERR) ||
	    !st_is(&st->end[0], 2, IB_WC_WR_FLUSH_ERR))
		return "Receives";
	if (st_send(st, 0, 4, 100) || !st_is(&st->end[0], 4, IB_WC_WR_FLUSH_ERR))
		return "what is posted afterwards";
	return NULL;
}

static const char *st_srq_last(struct st *st)
{
	struct ib_wc wc;

	if (st_connect(st) || st_recv(st, 1, 1, 3000) || st_recv(st, 1, 2, 3000) ||
	    st_send(st, 0, 3, 100) || !st_is(&st->end[1], 1, IB_WC_SUCCESS))
		return "Receive";
	if (st_modify(st, 1, IB_QPS_ERR) || !st_told(&st->end[1], IB_EVENT_QP_LAST_WQE_REACHED))
		return "no event";
	/* The other one belongs to no Queue Pair, and stays. */
	return ib_poll_cq(st->end[1].cq, 1, &wc) ? "a completion" : NULL;
}

static const char *st_srq_overflow(struct st *st)
{
	return st_rq_overflow(st);
}

static const char *st_reg_state(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (wrong)
		return wrong;
	if (st_reg_mr(st, 1, 1, st->mr, st->mr->rkey, ST_ALL))
		return "post";
	return st_is(&st->end[1], 1, IB_WC_MW_BIND_ERR) ? NULL : "status";
}

static const char *st_reg_pd(struct st *st)
{
	struct ib_mr *mr = ib_alloc_mr(st->other_pd, IB_MR_TYPE_MEM_REG, 4);
	const char *wrong = NULL;

	if (IS_ERR(mr))
		return "no region";
	if (st_connect(st) || st_map(st, mr) || st_reg_mr(st, 1, 1, mr, mr->rkey, ST_ALL))
		wrong = "post";
	else if (!st_is(&st->end[1], 1, IB_WC_MW_BIND_ERR))
		wrong = "status";
	ib_dereg_mr(mr);
	return wrong;
}

static const char *st_reg_key(struct st *st)
{
	if (st_connect(st) || st_map(st, st->mr) ||
	    st_reg_mr(st, 1, 1, st->mr, st->mr->rkey ^ 1, ST_ALL))
		return "post";
	return st_is(&st->end[1], 1, IB_WC_MW_BIND_ERR) ? NULL : "status";
}

static const char *st_reg_key_again(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (!wrong && (st_inv(st, 1, 1, st->mr->rkey) || !st_is(&st->end[1], 1, IB_WC_SUCCESS)))
		wrong = "invalidation";
	return wrong ? wrong : st_reg(st, ST_ALL);
}

static const char *st_reg_access(struct st *st)
{
	if (st_connect(st) || st_map(st, st->mr))
		return "map";
	return st_reg_mr(st, 1, 1, st->mr, st->mr->rkey, IB_ACCESS_REMOTE_WRITE) == -EINVAL ?
	       NULL : "posted";
}

static const char *st_reg_pages(struct st *st)
{
	if (st_connect(st) || st_reg_mr(st, 1, 1, st->mr, st->mr->rkey, ST_ALL))
		return "post";
	return st_is(&st->end[1], 1, IB_WC_MW_BIND_ERR) ? NULL : "status";
}

static const char *st_map_valid(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	return wrong ? wrong : st_map(st, st->mr) ? "map" : NULL;
}

static const char *st_map_posted(struct st *st)
{
	/* The first Send waits for a Receive, and the registration behind it. */
	st->rnr_retry = 7;
	if (st_connect(st) || st_map(st, st->mr) || st_send(st, 0, 1, 100) ||
	    st_reg_mr(st, 0, 2, st->mr, st->mr->rkey, ST_ALL) || st_map(st, st->mr))
		return "post";
	if (st_modify(st, 0, IB_QPS_ERR) || !st_is(&st->end[0], 1, IB_WC_WR_FLUSH_ERR) ||
	    !st_is(&st->end[0], 2, IB_WC_WR_FLUSH_ERR))
		return "flush";
	return NULL;
}

static const char *st_inv_state(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (wrong)
		return wrong;
	if (st_inv(st, 1, 1, st->mr->rkey) || !st_is(&st->end[1], 1, IB_WC_SUCCESS))
		return "invalidation";
	if (st_inv(st, 1, 2, st->mr->rkey) || !st_is(&st->end[1], 2, IB_WC_MW_BIND_ERR))
		return "status";
	return NULL;
}

static const char *st_inv_key(struct st *st)
{
	if (st_connect(st) || st_inv(st, 1, 1, ST_NO_KEY))
		return "post";
	return st_is(&st->end[1], 1, IB_WC_MW_BIND_ERR) ? NULL : "status";
}

/* Sends with an invalidation of a key at the second end. */
static int st_send_inv(struct st *st, u64 id, u32 key)
{
	struct ib_sge sge = st_sge(st, 0, 100);
	struct ib_send_wr wr = {
		.wr_id = id,
		.opcode = IB_WR_SEND_WITH_INV,
		.sg_list = &sge,
		.num_sge = 1,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = key,
	};

	return ib_post_send(st->end[0].qp, &wr, NULL);
}

static const char *st_remote_inv_good(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);
	struct ib_wc wc;

	if (wrong)
		return wrong;
	if (st_recv(st, 1, 1, 100) || st_send_inv(st, 2, st->mr->rkey) ||
	    st_poll(&st->end[1], &wc) || !(wc.wc_flags & IB_WC_WITH_INVALIDATE) ||
	    wc.ex.invalidate_rkey != st->mr->rkey)
		return "Receive";
	ib_update_fast_reg_key(st->mr, ib_inc_rkey(st->mr->rkey) & 0xff);
	return st_reg(st, ST_ALL);
}

static const char *st_remote_inv(struct st *st)
{
	if (st_connect(st) || st_recv(st, 1, 1, 100) || st_send_inv(st, 2, st->mr->rkey))
		return "post";
	if (!st_is(&st->end[0], 2, st_refused(st, IB_WC_REM_ACCESS_ERR)) ||
	    !st_is(&st->end[1], 1, IB_WC_LOC_ACCESS_ERR))
		return "status";
	return st_told(&st->end[1], IB_EVENT_QP_ACCESS_ERR) ? NULL : "no event";
}

static const char *st_local(struct st *st, struct ib_sge sge)
{
	if (st_connect(st) || st_recv_sge(st, 1, 1, sge) || st_send(st, 0, 2, 10))
		return "post";
	return st_is(&st->end[1], 1, IB_WC_LOC_PROT_ERR) &&
	       st_is(&st->end[0], 2, st_refused(st, IB_WC_REM_OP_ERR)) ? NULL : "status";
}

static const char *st_local_key(struct st *st)
{
	struct ib_sge sge = st_sge(st, 1, 100);

	sge.lkey = ST_NO_KEY;
	return st_local(st, sge);
}

static const char *st_local_pd(struct st *st)
{
	struct ib_sge sge = st_sge(st, 1, 100);

	sge.lkey = st->other_pd->local_dma_lkey;
	return st_local(st, sge);
}

/* A Read whose sink is the region, which the same end has registered. */
static const char *st_sink(struct st *st, int access, u32 length)
{
	struct ib_mr *mr = st->mr;
	struct ib_sge sge;

	if (st_connect(st) || st_map(st, mr) || st_reg_mr(st, 0, 1, mr, mr->rkey, access) ||
	    !st_is(&st->end[0], 1, IB_WC_SUCCESS))
		return "registration";
	/* The same region is what is read; that goes as it may be read by others. */
	sge = (struct ib_sge) { .addr = mr->iova, .length = length, .lkey = mr->lkey };
	if (st_rdma(st, 2, IB_WR_RDMA_READ, mr->iova, mr->rkey, sge))
		return "post";
	return st_is(&st->end[0], 2, IB_WC_LOC_PROT_ERR) ? NULL : "status";
}

static const char *st_local_access(struct st *st)
{
	return st_sink(st, IB_ACCESS_REMOTE_READ, 100);
}

static const char *st_local_bounds(struct st *st)
{
	struct ib_sge sge;

	if (st_connect(st) || st_map(st, st->mr) ||
	    st_reg_mr(st, 0, 1, st->mr, st->mr->rkey, ST_ALL) ||
	    !st_is(&st->end[0], 1, IB_WC_SUCCESS))
		return "registration";
	sge = (struct ib_sge) {
		.addr = st->mr->iova + 1, .length = st->mr->length, .lkey = st->mr->lkey,
	};
	if (st_recv(st, 1, 2, 100) || st_recv_sge(st, 0, 3, sge) || st_send(st, 1, 4, 100))
		return "post";
	return st_is(&st->end[0], 3, IB_WC_LOC_PROT_ERR) ? NULL : "status";
}

/* A Write or Read that the second end does not allow. */
static const char *st_remote(struct st *st, int access, enum ib_wr_opcode opcode, u64 addr, u32 key,
			     u32 length)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, access);

	if (wrong)
		return wrong;
	if (st_rdma(st, 1, opcode, st->mr->iova + addr, st->mr->rkey ^ key, st_sge(st, 0, length)))
		return "post";
	if (!st_is(&st->end[0], 1, opcode == IB_WR_RDMA_READ ? IB_WC_REM_ACCESS_ERR :
		   st_refused(st, IB_WC_REM_ACCESS_ERR)))
		return "status";
	return st_told(&st->end[1], IB_EVENT_QP_ACCESS_ERR) ? NULL : "no event";
}

static const char *st_remote_key(struct st *st)
{
	return st_remote(st, ST_ALL, IB_WR_RDMA_WRITE, 0, 1, 100);
}

static const char *st_remote_bounds(struct st *st)
{
	return st_remote(st, ST_ALL, IB_WR_RDMA_WRITE, 2 * PAGE_SIZE - 99, 0, 100);
}

static const char *st_remote_before(struct st *st)
{
	return st_remote(st, ST_ALL, IB_WR_RDMA_READ, -1ULL, 0, 100);
}

static const char *st_remote_write(struct st *st)
{
	return st_remote(st, IB_ACCESS_REMOTE_READ, IB_WR_RDMA_WRITE, 0, 0, 100);
}

static const char *st_remote_read(struct st *st)
{
	return st_remote(st, IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE, IB_WR_RDMA_READ, 0, 0,
			 100);
}

static const char *st_remote_rights(struct st *st)
{
	st->rights = IB_ACCESS_REMOTE_READ;
	return st_remote(st, ST_ALL, IB_WR_RDMA_WRITE, 0, 0, 100);
}

static const char *st_remote_pd(struct st *st)
{
	struct ib_sge sge = st_sge(st, 0, 100);

	if (st_connect(st))
		return "connect";
	if (st_rdma(st, 1, IB_WR_RDMA_WRITE, st->dma, st->other_pd->local_dma_lkey, sge))
		return "post";
	return st_is(&st->end[0], 1, st_refused(st, IB_WC_REM_ACCESS_ERR)) ? NULL : "status";
}

static const char *st_after_inv(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (!wrong && (st_inv(st, 1, 1, st->mr->rkey) || !st_is(&st->end[1], 1, IB_WC_SUCCESS)))
		wrong = "invalidation";
	if (wrong)
		return wrong;
	if (st_rdma(st, 2, IB_WR_RDMA_WRITE, st->mr->iova, st->mr->rkey, st_sge(st, 0, 100)))
		return "post";
	return st_is(&st->end[0], 2, st_refused(st, IB_WC_REM_ACCESS_ERR)) ? NULL : "status";
}

static const char *st_rd_atomic(struct st *st)
{
	const char *wrong;

	st->rd_atomic = 0;
	wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);
	if (wrong)
		return wrong;
	if (st_rdma(st, 1, IB_WR_RDMA_READ, st->mr->iova, st->mr->rkey, st_sge(st, 0, 100)))
		return "post";
	return st_is(&st->end[0], 1, IB_WC_REM_INV_REQ_ERR) ? NULL : "status";
}

static const char *st_recv_length(struct st *st)
{
	if (st_connect(st) || st_recv(st, 1, 1, 99) || st_send(st, 0, 2, 100))
		return "post";
	return st_is(&st->end[0], 2, st_refused(st, IB_WC_REM_INV_REQ_ERR)) &&
	       st_is(&st->end[1], 1, IB_WC_LOC_LEN_ERR) ? NULL : "status";
}

static const char *st_bad_modify(struct st *st)
{
	return st_modify(st, 0, IB_QPS_RTS) ? NULL : "RESET to RTS";
}

static const char *st_bad_create(struct st *st)
{
	struct ib_cq_init_attr attr = { .cqe = to_hca(st->ib)->profile->max_cqe + 1 };
	struct ib_cq *cq = ib_create_cq(st->ib, NULL, NULL, NULL, &attr);

	if (IS_ERR(cq))
		return NULL;
	ib_destroy_cq(cq);
	return "a Completion Queue that is too large";
}

static const char *st_dma_address(struct st *st)
{
	struct ib_sge sge = st_sge(st, 1, 100);

	sge.addr = st->dma - 1;
	return st_local(st, sge);
}

/* Runs @then with another mapping of the first end's page, for one direction. */
static const char *st_dma_other(struct st *st, enum dma_data_direction dir, bool recv)
{
	struct ib_sge sge = st_sge(st, 0, 100);
	const char *wrong = NULL;

	sge.addr = ib_dma_map_single(st->ib, st->memory, PAGE_SIZE, dir);
	if (ib_dma_mapping_error(st->ib, sge.addr))
		return "map";
	if (recv)
		wrong = st_local(st, sge);
	else if (st_connect(st) || st_recv(st, 1, 1, 100) ||
		 st_send_sge(st, 0, 2, sge, IB_SEND_SIGNALED) ||
		 !st_is(&st->end[0], 2, IB_WC_LOC_PROT_ERR))
		wrong = "status";
	ib_dma_unmap_single(st->ib, sge.addr, PAGE_SIZE, dir);
	return wrong;
}

static const char *st_dma_read_only(struct st *st)
{
	return st_dma_other(st, DMA_TO_DEVICE, true);
}

static const char *st_dma_write_only(struct st *st)
{
	return st_dma_other(st, DMA_FROM_DEVICE, false);
}

static const char *st_dma_in_use(struct st *st)
{
	if (st_connect(st) || st_recv(st, 1, 1, 100))
		return "post";
	ib_dma_unmap_single(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	st->dma = DMA_MAPPING_ERROR;
	return NULL;
}

/* A Send's memory is the device's until its completion was polled. */
static const char *st_dma_not_polled(struct st *st)
{
	if (st_connect(st) || st_recv(st, 1, 1, 100) || st_send(st, 0, 2, 100) ||
	    !st_is(&st->end[1], 1, IB_WC_SUCCESS))
		return "post";
	msleep(20);
	ib_dma_unmap_single(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	st->dma = DMA_MAPPING_ERROR;
	return NULL;
}

static const char *st_dma_registered(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (wrong)
		return wrong;
	ib_dma_unmap_single(st->ib, st->dma, ST_BUFFER, DMA_BIDIRECTIONAL);
	st->dma = DMA_MAPPING_ERROR;
	return NULL;
}

static const char *st_dma_unmap(struct st *st)
{
	ib_dma_unmap_single(st->ib, st->dma, ST_BUFFER / 2, DMA_BIDIRECTIONAL);
	st->dma = DMA_MAPPING_ERROR;
	return NULL;
}

static const char *st_dma_sync(struct st *st)
{
	ib_dma_sync_single_for_cpu(st->ib, st->dma, ST_BUFFER + 1, DMA_BIDIRECTIONAL);
	return NULL;
}

static const char *st_reg_direction(struct st *st)
{
	const char *wrong = "registration";
	struct scatterlist sg;

	sg_init_one(&sg, st->memory, PAGE_SIZE);
	if (ib_dma_map_sg(st->ib, &sg, 1, DMA_TO_DEVICE) != 1)
		return "map";
	if (!st_connect(st) && ib_map_mr_sg(st->mr, &sg, 1, NULL, PAGE_SIZE) == 1 &&
	    !st_reg_mr(st, 1, 1, st->mr, st->mr->rkey, ST_ALL) &&
	    st_is(&st->end[1], 1, IB_WC_SUCCESS) && !st_inv(st, 1, 2, st->mr->rkey) &&
	    st_is(&st->end[1], 2, IB_WC_SUCCESS))
		wrong = NULL;
	ib_dma_unmap_sg(st->ib, &sg, 1, DMA_TO_DEVICE);
	return wrong;
}

/* Over iWARP both ends of a connection end, whichever ends it: what is posted is flushed. */
static const char *st_iw_close(struct st *st)
{
	if (st_connect(st) || st_recv(st, 0, 1, 100) || st_recv(st, 1, 2, 100) ||
	    st_modify(st, 1, IB_QPS_ERR))
		return "post";
	return st_is(&st->end[0], 1, IB_WC_WR_FLUSH_ERR) &&
	       st_is(&st->end[1], 2, IB_WC_WR_FLUSH_ERR) ? NULL : "status";
}

/* A message without a Receive is as good as sent, and the connection's last. */
static const char *st_iw_no_receive(struct st *st)
{
	if (st_connect(st) || st_recv(st, 0, 1, 100) || st_send(st, 0, 2, 100))
		return "post";
	if (!st_is(&st->end[0], 2, IB_WC_SUCCESS) || !st_is(&st->end[0], 1, IB_WC_WR_FLUSH_ERR))
		return "status";
	return st_told(&st->end[1], IB_EVENT_QP_FATAL) ? NULL : "no event";
}

/* The sink of an RDMA Read has to be open to the other end, as no local memory is. */
static const char *st_iw_sink(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);

	if (wrong)
		return wrong;
	if (st_rdma(st, 1, IB_WR_RDMA_READ, st->mr->iova, st->mr->rkey, st_sge(st, 0, 100)))
		return "post";
	return st_is(&st->end[0], 1, IB_WC_LOC_PROT_ERR) ? NULL : "status";
}

static const char *st_iw_sges(struct st *st)
{
	struct ib_sge sge[ST_SGES] = { st_sge(st, 0, 10), st_sge(st, 0, 10) };
	struct ib_rdma_wr wr = {
		.wr = { .opcode = IB_WR_RDMA_READ, .sg_list = sge, .num_sge = ST_SGES },
	};

	if (st->hca->profile->sge_rd >= ST_SGES)
		return "more is allowed";
	if (st_connect(st))
		return "connect";
	return ib_post_send(st->end[0].qp, &wr.wr, NULL) == -EINVAL ? NULL : "posted";
}

/* An RDMA Read that invalidates its sink: that can be registered again. */
static const char *st_iw_read_inv(struct st *st)
{
	const char *wrong = st_connect(st) ? "connect" : st_reg(st, ST_ALL);
	struct ib_mr *sink = ib_alloc_mr(st->pd, IB_MR_TYPE_MEM_REG, 4);
	int i, access = IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE;
	struct ib_sge sge;

	if (IS_ERR(sink))
		return "no region";
	for (i = 0; i < 2 && !wrong; i++) {
		if (st_map(st, sink) || st_reg_mr(st, 0, 1, sink, sink->rkey, access) ||
		    !st_is(&st->end[0], 1, IB_WC_SUCCESS)) {
			wrong = "registration";
			break;
		}
		sge = (struct ib_sge) { .addr = sink->iova, .length = 100, .lkey = sink->lkey };
		if (st_rdma(st, 2, IB_WR_RDMA_READ_WITH_INV, st->mr->iova, st->mr->rkey, sge) ||
		    !st_is(&st->end[0], 2, IB_WC_SUCCESS))
			wrong = "Read";
		ib_update_fast_reg_key(sink, ib_inc_rkey(sink->rkey) & 0xff);
	}
	ib_dereg_mr(sink);
	return wrong;
}

static const struct st_test st_tests[] = {
	{ "send_recv", HCA_RULE_N, st_send_recv },
	{ "rdma", HCA_RULE_N, st_rdma_both, .roce = true },
	{ "iova_bits", HCA_RULE_N, st_iova_bits, .roce = true },
	{ "remote_inv_good", HCA_RULE_N, st_remote_inv_good },
	{ "rnr_end", HCA_RULE_N, st_rnr_end, .roce = true },
	{ "rnr_wait", HCA_RULE_N, st_rnr_wait, .roce = true },
	{ "silence", HCA_RULE_N, st_silence, .roce = true },
	{ "srq_send_recv", HCA_RULE_N, st_send_recv, .srq = true },
	{ "srq_last", HCA_RULE_N, st_srq_last, .srq = true, .roce = true },
	{ "srq_overflow", HCA_RULE_SRQ_OVERFLOW, st_srq_overflow, .srq = true },
	{ "post_state", HCA_RULE_POST_STATE, st_post_state },
	{ "post_sges", HCA_RULE_POST_SGES, st_post_sges },
	{ "post_inline", HCA_RULE_POST_INLINE, st_post_inline },
	{ "post_opcode", HCA_RULE_POST_OPCODE, st_post_opcode },
	{ "sq_overflow", HCA_RULE_SQ_OVERFLOW, st_sq_overflow },
	{ "rq_overflow", HCA_RULE_RQ_OVERFLOW, st_rq_overflow },
	{ "cq_overflow", HCA_RULE_CQ_OVERFLOW, st_cq_overflow },
	{ "flush", HCA_RULE_LOCAL_KEY, st_flush },
	{ "reg_state", HCA_RULE_REG_STATE, st_reg_state },
	{ "reg_pd", HCA_RULE_REG_PD, st_reg_pd },
	{ "reg_key", HCA_RULE_REG_KEY, st_reg_key },
	{ "reg_key_again", HCA_RULE_REG_KEY_AGAIN, st_reg_key_again },
	{ "reg_access", HCA_RULE_REG_ACCESS, st_reg_access },
	{ "reg_pages", HCA_RULE_REG_PAGES, st_reg_pages },
	{ "map_valid", HCA_RULE_MAP_VALID, st_map_valid },
	{ "map_posted", HCA_RULE_MAP_POSTED, st_map_posted, .roce = true },
	{ "inv_state", HCA_RULE_INV_STATE, st_inv_state },
	{ "inv_key", HCA_RULE_INV_KEY, st_inv_key },
	{ "remote_inv", HCA_RULE_REMOTE_INV, st_remote_inv },
	{ "local_key", HCA_RULE_LOCAL_KEY, st_local_key },
	{ "local_pd", HCA_RULE_LOCAL_PD, st_local_pd },
	{ "local_bounds", HCA_RULE_LOCAL_BOUNDS, st_local_bounds },
	{ "remote_key", HCA_RULE_REMOTE_KEY, st_remote_key },
	{ "remote_key_after_inv", HCA_RULE_REMOTE_KEY, st_after_inv },
	{ "remote_pd", HCA_RULE_REMOTE_PD, st_remote_pd },
	{ "remote_bounds", HCA_RULE_REMOTE_BOUNDS, st_remote_bounds },
	{ "remote_bounds_before", HCA_RULE_REMOTE_BOUNDS, st_remote_before },
	{ "remote_access_write", HCA_RULE_REMOTE_ACCESS, st_remote_write },
	{ "remote_access_read", HCA_RULE_REMOTE_ACCESS, st_remote_read },
	{ "local_access", HCA_RULE_LOCAL_ACCESS, st_local_access, .roce = true },
	{ "remote_rights", HCA_RULE_REMOTE_RIGHTS, st_remote_rights },
	{ "rd_atomic", HCA_RULE_RD_ATOMIC, st_rd_atomic },
	{ "recv_length", HCA_RULE_RECV_LENGTH, st_recv_length },
	{ "iw_close", HCA_RULE_N, st_iw_close, .iwarp = true },
	{ "iw_no_receive", HCA_RULE_N, st_iw_no_receive, .iwarp = true },
	{ "iw_read_inv", HCA_RULE_N, st_iw_read_inv, .iwarp = true },
	{ "iw_sink", HCA_RULE_REMOTE_ACCESS, st_iw_sink, .iwarp = true },
	{ "iw_sges", HCA_RULE_READ_SGES, st_iw_sges, .iwarp = true },
	{ "modify", HCA_RULE_MODIFY, st_bad_modify },
	{ "create", HCA_RULE_CREATE, st_bad_create },
	{ "dma_address", HCA_RULE_DMA_ADDRESS, st_dma_address, .maps = true },
	{ "dma_read_only", HCA_RULE_DMA_DIRECTION, st_dma_read_only, .maps = true },
	{ "dma_write_only", HCA_RULE_DMA_DIRECTION, st_dma_write_only, .maps = true },
	{ "dma_in_use_recv", HCA_RULE_DMA_IN_USE, st_dma_in_use, .maps = true },
	{ "dma_in_use_send", HCA_RULE_DMA_IN_USE, st_dma_not_polled, .maps = true },
	{ "dma_in_use_region", HCA_RULE_DMA_IN_USE, st_dma_registered, .maps = true },
	{ "dma_unmap", HCA_RULE_DMA_UNMAP, st_dma_unmap, .maps = true },
	{ "dma_sync", HCA_RULE_DMA_SYNC, st_dma_sync, .maps = true },
	{ "reg_direction", HCA_RULE_REG_DIRECTION, st_reg_direction, .maps = true },
};

/* What is wrong with the complaints: the test's rule, and no other, has more than before. */
static const char *st_complaints(struct hca_dev *hca, const struct st_test *test, const int *before)
{
	bool more;
	int i;

	for (i = 0; i < HCA_RULE_N; i++) {
		more = atomic_read(&hca->complaints[i]) != before[i];
		if (i == test->rule ? !more : more)
			return i == test->rule ? "no complaint" : "a complaint of another kind";
	}
	return NULL;
}

static const char *st_run(struct st *st, const struct st_test *test)
{
	int before[HCA_RULE_N], i;
	const char *wrong;

	for (i = 0; i < HCA_RULE_N; i++)
		before[i] = atomic_read(&st->hca->complaints[i]);
	wrong = st_make(st, test->srq) ? "cannot be set up" : test->run(st);
	st_break(st);
	return wrong ? wrong : st_complaints(st->hca, test, before);
}

/* An address of IPv4: to that there is always a way. */
static const struct ib_gid_attr *st_gid(struct ib_device *ib)
{
	const struct ib_gid_attr *gid;
	int i;

	for (i = 0; i < HCA_GIDS; i++) {
		gid = rdma_get_gid_attr(ib, 1, i);
		if (IS_ERR(gid))
			continue;
		if (ipv6_addr_v4mapped((struct in6_addr *)&gid->gid))
			return gid;
		rdma_put_gid_attr(gid);
	}
	return ERR_PTR(-ENOENT);
}

static int hca_selftest_show(struct seq_file *seq, void *data)
{
	struct hca_dev *hca = seq->private;
	const struct ib_gid_attr *gid;
	int i, failed = 0, n = 0;
	const char *wrong;
	struct st *st;

	gid = hca->profile->iwarp ? rdma_get_gid_attr(&hca->ib, 1, 0) : st_gid(&hca->ib);
	if (IS_ERR(gid))
		return PTR_ERR(gid);
	st = kzalloc_obj(*st, GFP_KERNEL);
	if (!st) {
		rdma_put_gid_attr(gid);
		return -ENOMEM;
	}
	WRITE_ONCE(hca->quiet, true);
	for (i = 0; i < ARRAY_SIZE(st_tests); i++) {
		if (st_tests[i].maps && !hca_dma_is_own(hca->dma.model))
			continue;
		if (hca->profile->iwarp ? st_tests[i].roce : st_tests[i].iwarp)
			continue;
		memset(st, 0, sizeof(*st));
		st->hca = hca;
		st->ib = &hca->ib;
		st->gid = gid;
		wrong = st_run(st, &st_tests[i]);
		if (wrong)
			seq_printf(seq, "not ok %s: %s\n", st_tests[i].name, wrong);
		else
			seq_printf(seq, "ok %s\n", st_tests[i].name);
		failed += !!wrong;
		n++;
	}
	WRITE_ONCE(hca->quiet, false);
	seq_printf(seq, "%d tests, %d failed\n", n, failed);
	kfree(st);
	rdma_put_gid_attr(gid);
	return 0;
}

static int hca_selftest_open(struct inode *inode, struct file *file)
{
	/* Room for all at once: it must not be run again because the text was too long. */
	return single_open_size(file, hca_selftest_show, inode->i_private, SZ_16K);
}

static const struct file_operations hca_selftest_fops = {
	.owner = THIS_MODULE,
	.open = hca_selftest_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};

void hca_selftest_init(struct hca_dev *hca)
{
	debugfs_create_file("selftest", 0400, hca->dir, hca, &hca_selftest_fops);
}
