// SPDX-License-Identifier: GPL-2.0
/*
 * QP1: the datagrams of the connection manager, from device to device of this
 * kernel by the destination's GID. What finds no QP1 or no Receive is lost, as
 * on a network; so nothing here is an error for the sender.
 *
 * The sending engine delivers. Several may do so to one QP1: hca_mad_lock lets
 * one after the other.
 */
#include <linux/ip.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_mad.h>
#include <rdma/ibta_vol1_c12.h>
#include "hca.h"

static DEFINE_SPINLOCK(hca_mad_lock);

/* A reference to the QP1 of the device that has a GID. */
static struct hca_qp *hca_mad_peer(const struct hca_swqe *wqe)
{
	const struct ib_gid_attr *attr;
	struct hca_qp *qp = NULL;
	struct hca_dev *hca;
	unsigned long flags;

	spin_lock_irqsave(&hca_devices_lock, flags);
	list_for_each_entry(hca, &hca_devices, entry) {
		attr = rdma_find_gid_by_port(&hca->ib, &wqe->ud.dgid, wqe->ud.gid_type, 1, NULL);
		if (IS_ERR(attr))
			continue;
		rdma_put_gid_attr(attr);
		qp = hca->gsi;
		if (qp)
			refcount_inc(&qp->refs);
		break;
	}
	spin_unlock_irqrestore(&hca_devices_lock, flags);
	return qp;
}

/* The 40 octets in front of a datagram: a GRH, or an IPv4 header in the second half of them. */
static enum rdma_network_type hca_mad_header(union rdma_network_hdr *hdr,
					     const struct hca_swqe *wqe)
{
	const struct in6_addr *source = (const struct in6_addr *)&wqe->ud.sgid;
	const struct in6_addr *sink = (const struct in6_addr *)&wqe->ud.dgid;

	memset(hdr, 0, sizeof(*hdr));
	if (ipv6_addr_v4mapped(sink)) {
		hdr->roce4grh.version = 4;
		hdr->roce4grh.ihl = 5;
		hdr->roce4grh.ttl = 64;
		hdr->roce4grh.protocol = IPPROTO_UDP;
		hdr->roce4grh.saddr = source->s6_addr32[3];
		hdr->roce4grh.daddr = sink->s6_addr32[3];
		return RDMA_NETWORK_IPV4;
	}
	hdr->ibgrh.version_tclass_flow = cpu_to_be32(6 << 28);
	hdr->ibgrh.paylen = cpu_to_be16(wqe->length);
	hdr->ibgrh.next_hdr = IPPROTO_UDP;
	hdr->ibgrh.hop_limit = 64;
	hdr->ibgrh.sgid = wqe->ud.sgid;
	hdr->ibgrh.dgid = wqe->ud.dgid;
	return RDMA_NETWORK_IPV6;
}

/* A Receive of a QP1 for a datagram, which @fill puts behind the header. */
static bool hca_mad_receive(struct hca_qp *peer, const struct hca_swqe *wqe,
			    bool (*fill)(struct hca_cursor *to, void *from, u32 length),
			    void *from)
{
	union rdma_network_hdr hdr;
	enum rdma_network_type type = hca_mad_header(&hdr, wqe);
	struct hca_cursor to = {
		.hca = peer->hca,
		.pd = to_hca_pd(peer->ib.pd),
		.access = IB_ACCESS_LOCAL_WRITE,
	};
	struct hca_cqe cqe = { .qp = peer, .rq = &peer->rq };
	struct hca_rwqe *recv;
	u32 i, room = 0;

	recv = hca_rq_take(&peer->rq);
	if (!recv)
		return false;
	to.sge = recv->sge;
	to.num_sge = recv->num_sge;
	for (i = 0; i < recv->num_sge; i++)
		room += recv->sge[i].length;
	cqe.index = recv - peer->rq.wqe;
	cqe.wc.wr_id = recv->wr_id;
	cqe.wc.qp = &peer->ib;
	cqe.wc.opcode = IB_WC_RECV;
	cqe.wc.byte_len = wqe->length + sizeof(hdr);
	cqe.wc.src_qp = HCA_GSI_QPN;
	cqe.wc.port_num = 1;
	cqe.wc.wc_flags = IB_WC_GRH | IB_WC_WITH_NETWORK_HDR_TYPE;
	cqe.wc.network_hdr_type = type;
	cqe.wc.vlan_id = 0xffff;
	cqe.solicited = wqe->flags & IB_SEND_SOLICITED;
	if (room < sizeof(hdr) + wqe->length) {
		hca_complain(peer->hca, HCA_RULE_RECV_LENGTH, "a datagram of %u", wqe->length);
		cqe.wc.status = IB_WC_LOC_LEN_ERR;
	} else if (!hca_fill(&to, &hdr, sizeof(hdr)) || !fill(&to, from, wqe->length)) {
		cqe.wc.status = IB_WC_LOC_PROT_ERR;
	}
	hca_cq_add(to_hca_cq(peer->ib.recv_cq), &cqe);
	return true;
}

static bool hca_mad_move(struct hca_cursor *to, void *from, u32 length)
{
	return hca_move(to, from, length) == HCA_BOTH_FINE;
}

static bool hca_mad_fill(struct hca_cursor *to, void *from, u32 length)
{
	return hca_fill(to, from, length);
}

static struct hca_cursor hca_mad_sent(const struct hca_qp *qp, const struct hca_swqe *wqe)
{
	return (struct hca_cursor) {
		.hca = qp->hca,
		.pd = to_hca_pd(qp->ib.pd),
		.sge = wqe->sge,
		.num_sge = wqe->num_sge,
	};
}

static bool hca_mad_deliver(struct hca_qp *qp, struct hca_qp *peer, struct hca_swqe *wqe)
{
	struct hca_cursor from = hca_mad_sent(qp, wqe);

	return hca_mad_receive(peer, wqe, hca_mad_move, &from);
}

/*
 * A request for a connection is answered by a rejection, as that of rdma_reject(), and does not
 * reach the other end. Any other datagram takes its course: returns false.
 */
static bool hca_mad_reject(struct hca_qp *qp, const struct hca_swqe *wqe)
{
	struct hca_cursor from = hca_mad_sent(qp, wqe);
	struct hca_swqe back = *wqe;
	union {
		struct ib_mad_hdr hdr;
		struct cm_req_msg req;
		struct cm_rej_msg rej;
		u8 octets[IB_MGMT_MAD_SIZE];
	} mad = {};
	u32 asking;

	if (wqe->length != sizeof(mad) || !hca_look(&from, &mad, sizeof(mad)) ||
	    mad.hdr.mgmt_class != IB_MGMT_CLASS_CM || mad.hdr.attr_id != CM_REQ_ATTR_ID)
		return false;
	asking = IBA_GET(CM_REQ_LOCAL_COMM_ID, &mad.req);
	memset(mad.octets + sizeof(mad.hdr), 0, sizeof(mad) - sizeof(mad.hdr));
	mad.hdr.attr_id = CM_REJ_ATTR_ID;
	IBA_SET(CM_REJ_REMOTE_COMM_ID, &mad.rej, asking);
	IBA_SET(CM_REJ_REASON, &mad.rej, IB_CM_REJ_CONSUMER_DEFINED);
	swap(back.ud.sgid, back.ud.dgid);
	return hca_mad_receive(qp, &back, hca_mad_fill, &mad);
}

/* Executes a Send of QP1. */
void hca_send_mad(struct hca_qp *qp, struct hca_swqe *wqe)
{
	struct hca_qp *peer = wqe->fault == HCA_FAULT_FAIL ? NULL : hca_mad_peer(wqe);
	bool delivered = false, rejected = false;
	unsigned long flags;

	hca_add(qp->hca, HCA_CNT_MADS, 1);
	if (wqe->fault == HCA_FAULT_REJECT) {
		spin_lock_irqsave(&hca_mad_lock, flags);
		rejected = hca_mad_reject(qp, wqe);
		spin_unlock_irqrestore(&hca_mad_lock, flags);
	}
	if (rejected) {
		if (peer)
			hca_qp_put(peer);
		return;
	}
	if (peer) {
		spin_lock_irqsave(&hca_mad_lock, flags);
		if ((peer->state == IB_QPS_RTR || peer->state == IB_QPS_RTS) &&
		    wqe->ud.qpn == HCA_GSI_QPN && wqe->ud.qkey == peer->attr.qkey)
			delivered = hca_mad_deliver(qp, peer, wqe);
		if (delivered && wqe->fault == HCA_FAULT_TWICE)
			hca_mad_deliver(qp, peer, wqe);
		spin_unlock_irqrestore(&hca_mad_lock, flags);
		hca_qp_put(peer);
	}
	if (!delivered)
		hca_add(qp->hca, HCA_CNT_MADS_DROPPED, 1);
}
