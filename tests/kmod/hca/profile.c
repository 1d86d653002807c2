// SPDX-License-Identifier: GPL-2.0
/*
 * Profiles: what devices of a driver say that they can do, and how they differ
 * where consumers may notice it.
 *
 *   rdma link add hca0 type hca-mlx5 netdev d0
 *
 * The values are those of the drivers of Linux 7.3, by their source (file:line
 * below drivers/infiniband/hw); what firmware tells a driver has a usual value,
 * and is marked *.
 */
#include <rdma/rdma_netlink.h>
#include "hca.h"

/* 2^n - 1 of n + 1 places: mlx5 cq.c:1065, mlx4 cq.c:165. */
static int hca_cqe_rounded_up(int asked)
{
	return roundup_pow_of_two(asked + 1) - 1;
}

/* 2^n - 1 of n places, one less than asked for if that is 2^n: hns_roce_cq.c:361. */
static int hca_cqe_one_less(int asked)
{
	return roundup_pow_of_two(asked) - 1;
}

/* One more than asked for: bnxt_re ib_verbs.c:3661. */
static int hca_cqe_one_more(int asked)
{
	return asked + 1;
}

/* It does not say: ocrdma. */
static int hca_cqe_none(int asked)
{
	return 0;
}

/* A Send Queue has at most 2 MiB, in steps of 64 octets for each request: mlx5 qp.c:598. */
static bool hca_sq_fits_mlx5(const struct ib_qp_cap *cap)
{
	return roundup_pow_of_two(cap->max_send_wr) * ALIGN(132 + 16 * cap->max_send_sge, 64) <=
	       SZ_2M;
}

/* What was asked for and a status page, in sixteens, less two: cxgb4 cq.c:1035, 1081. */
static int hca_cqe_sixteens(int asked)
{
	return roundup(asked + 2, 16) - 2;
}

static const struct hca_profile hca_profiles[] = {
	{
		/* Values as ordinary hardware has them, and strict where any is. */
		.type = "hca",
		.max_qp_wr = 16384,
		.send_sge = 13, .recv_sge = 13, .sge_rd = 13,
		.pages = 512,
		.max_cqe = 65535,
		.max_srq_wr = 16383,
		.rd_atomic = 16,
		.vectors = 4,
		.mem_mgt = true,
		.last_wqe = HCA_LAST_PROMPT,
	}, {
		/* main.c:929, 1004, 1104; srq.c:211; qp.c:385; no IBK_LOCAL_DMA_LKEY. */
		.type = "hca-mlx5",
		.max_qp_wr = 8192,
		.send_sge = 30, .recv_sge = 32, .sge_rd = 30,
		.pages = 65536,			/* * */
		.max_cqe = 4194303,		/* * */
		.max_srq_wr = 32767,		/* * */
		.rd_atomic = 16,		/* * */
		.vectors = 8,
		.mem_mgt = true,
		.last_wqe = HCA_LAST_PROMPT,
		.cqe = hca_cqe_rounded_up,
		.sq_fits = hca_sq_fits_mlx5,
	}, {
		/* main.c:526; linux/mlx4/device.h:441, 452; qp.c:232. */
		.type = "hca-mlx4",
		.max_qp_wr = 16351,		/* * */
		.send_sge = 32, .recv_sge = 32, .sge_rd = 30,
		.pages = 511,
		.max_cqe = 4194303,		/* * */
		.max_srq_wr = 65535,		/* * */
		.rd_atomic = 16,		/* * */
		.vectors = 4,
		.mem_mgt = true,
		.local_dma_lkey = true,		/* * */
		.last_wqe = HCA_LAST_PROMPT,
		.cqe = hca_cqe_rounded_up,
	}, {
		/* qplib_sp.c:133, 146; qplib_res.h:120; ib_verbs.c:2232, 3661; main.c:1626. */
		.type = "hca-bnxt_re",
		.max_qp_wr = 4351,
		.send_sge = 6, .recv_sge = 6, .sge_rd = 6,
		.pages = 512,
		.max_cqe = 131072,		/* * */
		.max_srq_wr = 4095,		/* * */
		.rd_atomic = 126,
		.vectors = 8,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.last_wqe = HCA_LAST_LATE,
		.cqe = hca_cqe_one_more,
		.srq_is_less = true,
	}, {
		/* Second generation: user.h:181; defs.h:143; main.h:91; verbs.c:2608. */
		.type = "hca-irdma",
		.max_qp_wr = 4063,
		.send_sge = 13, .recv_sge = 13, .sge_rd = 13,
		.pages = 262144,
		.max_cqe = 1048574,
		.rd_atomic = 127,
		.vectors = 8,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* Third generation: ig3rdma_hw.h:15; defs.h:147; verbs.c:31, 5487. */
		.type = "hca-irdma3",
		.max_qp_wr = 4063,
		.send_sge = 14, .recv_sge = 14, .sge_rd = 14,
		.pages = 262144,
		.max_cqe = 1048574,
		.max_srq_wr = 32767,
		.rd_atomic = 255,
		.vectors = 8,
		.mem_mgt = true,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* hns_roce_device.h:86; hns_roce_srq.c:298; hns_roce_cq.c:361; qp.c:170. */
		.type = "hca-hns",
		.max_qp_wr = 32768,		/* * */
		.send_sge = 64, .recv_sge = 64, .sge_rd = 64,	/* * */
		.pages = 512,
		.max_cqe = 4194304,		/* * */
		.max_srq_wr = 32768,		/* * */
		.rd_atomic = 128,		/* * */
		.vectors = 4,
		.mem_mgt = true,
		.last_wqe = HCA_LAST_LATE,
		.cqe = hca_cqe_one_less,
	}, {
		/* Its queues do not say how long they are; shared Receives: yes. */
		.type = "hca-ocrdma",
		.max_qp_wr = 2048,		/* * */
		.send_sge = 3, .recv_sge = 3, .sge_rd = 3,	/* * */
		.pages = 256,			/* * */
		.max_cqe = 32767,		/* * */
		.max_srq_wr = 1024,		/* * */
		.rd_atomic = 16,		/* * */
		.vectors = 4,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.last_wqe = HCA_LAST_PROMPT,
		.cqe = hca_cqe_none,
	}, {
		/* No registration by work request: a mount has to fail, and say why. */
		.type = "hca-mana",
		.max_qp_wr = 8192,		/* * */
		.send_sge = 30, .recv_sge = 15, .sge_rd = 15,	/* * */
		.pages = 1,
		.max_cqe = 65535,		/* * */
		.rd_atomic = 16,		/* * */
		.vectors = 4,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* As the first, over iWARP. */
		.type = "hca-iwarp",
		.max_qp_wr = 16384,
		.send_sge = 13, .recv_sge = 13, .sge_rd = 1,
		.pages = 512,
		.max_cqe = 65535,
		.max_srq_wr = 16383,
		.rd_atomic = 16,
		.vectors = 4,
		.mem_mgt = true,
		.iwarp = true,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* Second generation, over iWARP: the same as over RoCE. */
		.type = "hca-irdma-iwarp",
		.max_qp_wr = 4063,
		.send_sge = 13, .recv_sge = 13, .sge_rd = 13,
		.pages = 262144,
		.max_cqe = 1048574,
		.rd_atomic = 127,
		.vectors = 8,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.iwarp = true,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* irdma's first generation: i40iw_hw.h:132-156. */
		.type = "hca-i40iw",
		.max_qp_wr = 895,
		.send_sge = 3, .recv_sge = 3, .sge_rd = 1,
		.pages = 262144,
		.max_cqe = 1048574,
		.rd_atomic = 63,
		.vectors = 8,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.iwarp = true,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* t4.h:70-93; provider.c:280-303; qp.c:1609, with shared Receives. */
		.type = "hca-cxgb4",
		.max_qp_wr = 8190,		/* * */
		.send_sge = 17, .recv_sge = 4, .sge_rd = 1,
		.pages = 128,
		.max_cqe = 65518,		/* * */
		.max_srq_wr = 8190,		/* * */
		.rd_atomic = 32,
		.vectors = 4,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.iwarp = true,
		.last_wqe = HCA_LAST_PROMPT,
		.cqe = hca_cqe_sixteens,
	}, {
		/* erdma_verbs.h:17-25; erdma_verbs.c:327-347. */
		.type = "hca-erdma",
		.max_qp_wr = 8192,
		.send_sge = 6, .recv_sge = 1, .sge_rd = 1,
		.pages = 512,
		.max_cqe = 1048576,		/* * */
		.rd_atomic = 128,
		.vectors = 8,
		.mem_mgt = true,
		.local_dma_lkey = true,
		.iwarp = true,
		.last_wqe = HCA_LAST_NEVER,
	}, {
		/* Less than any of them has. */
		.type = "hca-small",
		.max_qp_wr = 82,
		.send_sge = 3, .recv_sge = 1, .sge_rd = 1,
		.pages = 32,
		/* ib_core's own queue for datagrams needs 640. */
		.max_cqe = 1023,
		.max_srq_wr = 82,
		.rd_atomic = 1,
		.vectors = 1,
		.mem_mgt = true,
		.last_wqe = HCA_LAST_NEVER,
	},
};

/* Returns the device's number of places that it says a queue has which was made for @asked. */
int hca_profile_cqe(const struct hca_dev *hca, int asked)
{
	return hca->profile->cqe ? hca->profile->cqe(asked) : asked;
}

/* ib_core tells no more of a link than its type, so each has a function of its own. */
#define HCA_LINK(n)							\
static int hca_newlink_##n(const char *name, struct net_device *ndev)	\
{									\
	return hca_newlink(name, ndev, &hca_profiles[n]);		\
}

HCA_LINK(0)
HCA_LINK(1)
HCA_LINK(2)
HCA_LINK(3)
HCA_LINK(4)
HCA_LINK(5)
HCA_LINK(6)
HCA_LINK(7)
HCA_LINK(8)
HCA_LINK(9)
HCA_LINK(10)
HCA_LINK(11)
HCA_LINK(12)
HCA_LINK(13)
HCA_LINK(14)

static struct rdma_link_ops hca_link_ops[] = {
	{ .newlink = hca_newlink_0 },
	{ .newlink = hca_newlink_1 },
	{ .newlink = hca_newlink_2 },
	{ .newlink = hca_newlink_3 },
	{ .newlink = hca_newlink_4 },
	{ .newlink = hca_newlink_5 },
	{ .newlink = hca_newlink_6 },
	{ .newlink = hca_newlink_7 },
	{ .newlink = hca_newlink_8 },
	{ .newlink = hca_newlink_9 },
	{ .newlink = hca_newlink_10 },
	{ .newlink = hca_newlink_11 },
	{ .newlink = hca_newlink_12 },
	{ .newlink = hca_newlink_13 },
	{ .newlink = hca_newlink_14 },
};
static_assert(ARRAY_SIZE(hca_link_ops) == ARRAY_SIZE(hca_profiles));

void hca_profiles_register(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hca_profiles); i++) {
		hca_link_ops[i].type = hca_profiles[i].type;
		rdma_link_register(&hca_link_ops[i]);
	}
}

void hca_profiles_unregister(void)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(hca_profiles); i++)
		rdma_link_unregister(&hca_link_ops[i]);
}
