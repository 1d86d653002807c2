// SPDX-License-Identifier: GPL-2.0
/*
 * Connections of iWARP: what iw_cm wants of a device, without TCP and MPA below.
 *
 * An hca_conn is made by hca_iw_connect(), and ends when both of its ends have
 * ended: the asking one, and the other that there is from hca_iw_accept() on.
 * Its work does all that happens to it, one step after the other, and frees it:
 * so no end hears that the connection is closed before it heard that it is open.
 * Others only say what must be done, under hca_iw_lock, and queue the work. Each
 * end has a reference to its Queue Pair, and to its identifier until that was
 * told of the end.
 *
 * A request that iw_cm drops, because its listener goes, is neither accepted nor
 * refused; the asking end gives up by itself, as with MPA. What a request has for
 * its provider is a number, so nothing is kept for those that never answer.
 *
 * The connection is that of TCP: an end that leaves RTS closes it, and the other
 * end hears of that and ends, unless the link is down.
 */
#include <linux/inetdevice.h>
#include <linux/slab.h>
#include <net/addrconf.h>
#include <net/ipv6.h>
#include <rdma/iw_cm.h>
#include "hca.h"

/* How long an end waits for an answer to its request. */
#define HCA_IW_PATIENCE		(10 * HZ)
/* How often is looked whether the link is up again. */
#define HCA_IW_RETRY		msecs_to_jiffies(100)
/* MPA has no more room (RFC 5044, 7.1.2). */
#define HCA_IW_PRIVATE		512

enum hca_iw_state {
	/* The request is under way to the listener. */
	HCA_IW_ASKS,
	/* The listener has it. */
	HCA_IW_ASKED,
	/* There is an answer, on its way back. */
	HCA_IW_ANSWERED,
	/* The asking end has it. */
	HCA_IW_DONE,
};

struct hca_iw_end {
	/* NULL when the end is over, and in the device's own test, which has none. */
	struct iw_cm_id *id;
	struct hca_qp *qp;
	/* It is to end. */
	bool closes;
};

struct hca_conn {
	struct delayed_work work;
	/* Until there is an answer. */
	unsigned long give_up;
	struct sockaddr_storage from, to;
	/* Of the asking end. */
	u32 ord, ird;

	/* What follows is protected by hca_iw_lock. */
	enum hca_iw_state state;
	u32 number;
	/* The asking end and the other. */
	struct hca_iw_end end[2];
	/* The answer. */
	int status;
	/* That of the request, then that of the answer. */
	u8 private_data[HCA_IW_PRIVATE];
	u16 private_length;
};

struct hca_listener {
	/* In hca_listeners, under hca_listeners_lock. */
	struct list_head entry;
	struct iw_cm_id *id;
};

static DEFINE_MUTEX(hca_listeners_lock);
static LIST_HEAD(hca_listeners);
static DEFINE_SPINLOCK(hca_iw_lock);
/* Requests by number, which is not used again soon. Those that are taken out are so under hca_iw_lock. */
static DEFINE_XARRAY_FLAGS(hca_requests, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
static u32 hca_next_request;

/* Has the connection's next step made. hca_iw_lock is held. */
static void hca_conn_go(struct hca_conn *conn, unsigned long delay)
{
	mod_delayed_work(hca_wq, &conn->work, delay);
}

/* The answer to a request, if it is the first. hca_iw_lock is held. */
static bool hca_conn_answer(struct hca_conn *conn, int status)
{
	if (conn->state > HCA_IW_ASKED)
		return false;
	conn->state = HCA_IW_ANSWERED;
	conn->status = status;
	xa_erase(&hca_requests, conn->number);
	hca_conn_go(conn, 0);
	return true;
}

static bool hca_conn_is_up(const struct hca_conn *conn)
{
	int i;

	for (i = 0; i < 2; i++) {
		if (conn->end[i].qp && !READ_ONCE(conn->end[i].qp->hca->up))
			return false;
	}
	return true;
}

/* An end of a connection that is open closes it; the other hears of it. hca_iw_lock is held. */
static void hca_conn_close(struct hca_conn *conn, int which)
{
	conn->end[which].closes = true;
	if (hca_conn_is_up(conn))
		conn->end[!which].closes = true;
	hca_conn_go(conn, 0);
}

/* A Queue Pair has left the states in which it has a connection. */
void hca_iw_drop(struct hca_qp *qp)
{
	struct hca_conn *conn;
	unsigned long flags;

	spin_lock_irqsave(&hca_iw_lock, flags);
	conn = qp->conn;
	if (conn && !hca_conn_answer(conn, -ECONNRESET))
		hca_conn_close(conn, qp == conn->end[1].qp);
	spin_unlock_irqrestore(&hca_iw_lock, flags);
}

/* A Queue Pair becomes an end. hca_iw_lock is held. */
static void hca_conn_attach(struct hca_conn *conn, int which, struct iw_cm_id *id,
			    struct hca_qp *qp)
{
	conn->end[which].id = id;
	conn->end[which].qp = qp;
	if (id)
		id->add_ref(id);
	qp->conn = conn;
}

/* The Queue Pair can send from now on, unless it has ended. */
static bool hca_iw_open(struct hca_qp *qp, u32 other, u32 ord, u32 ird)
{
	unsigned long flags;
	bool fine;

	spin_lock_irqsave(&qp->lock, flags);
	fine = qp->state == IB_QPS_RTR;
	if (fine) {
		qp->state = IB_QPS_RTS;
		qp->attr.dest_qp_num = other;
		qp->attr.max_rd_atomic = ord;
		qp->attr.max_dest_rd_atomic = ird;
	}
	spin_unlock_irqrestore(&qp->lock, flags);
	if (fine)
		queue_work(hca_bh_wq, &qp->engine);
	return fine;
}

static void hca_iw_tell(struct iw_cm_id *id, enum iw_cm_event_type type, struct hca_qp *qp)
{
	struct iw_cm_event event = { .event = type };

	if (!id)
		return;
	if (type == IW_CM_EVENT_ESTABLISHED) {
		event.ird = qp->attr.max_dest_rd_atomic;
		event.ord = qp->attr.max_rd_atomic;
	}
	id->event_handler(id, &event);
}

static void hca_iw_tell_answer(struct hca_conn *conn, int status)
{
	struct iw_cm_event event = {
		.event = IW_CM_EVENT_CONNECT_REPLY,
		.status = status,
		.local_addr = conn->from,
		.remote_addr = conn->to,
		.private_data = conn->private_data,
		.private_data_len = min(conn->private_length, U8_MAX),
		.ird = conn->ird,
		.ord = conn->ord,
	};
	struct iw_cm_id *id = conn->end[0].id;

	/* Only an answer of the other end has some. */
	if (status && status != -ECONNREFUSED)
		event.private_data_len = 0;
	if (id)
		id->event_handler(id, &event);
}

/* An end is over: nothing of it is used any more. */
static void hca_conn_release(struct hca_conn *conn, int which)
{
	struct hca_iw_end end;

	spin_lock_irq(&hca_iw_lock);
	end = conn->end[which];
	conn->end[which].id = NULL;
	conn->end[which].qp = NULL;
	if (end.qp)
		end.qp->conn = NULL;
	spin_unlock_irq(&hca_iw_lock);
	if (end.id)
		end.id->rem_ref(end.id);
	if (end.qp)
		hca_qp_put(end.qp);
}

/* Whether an address is one of a network device. */
static bool hca_has_address(struct hca_dev *hca, const struct sockaddr_storage *address)
{
	struct net_device *ndev = ib_device_get_netdev(&hca->ib, 1);
	bool has = false;

	if (!ndev)
		return false;
	if (address->ss_family == AF_INET)
		has = inet_addr_type_dev_table(dev_net(ndev), ndev,
				((struct sockaddr_in *)address)->sin_addr.s_addr) == RTN_LOCAL;
	else if (IS_ENABLED(CONFIG_IPV6))
		has = ipv6_chk_addr(dev_net(ndev), &((struct sockaddr_in6 *)address)->sin6_addr,
				    ndev, 1);
	dev_put(ndev);
	return has;
}

static __be16 hca_port(const struct sockaddr_storage *address)
{
	/* It is at the same place in both. */
	return ((struct sockaddr_in *)address)->sin_port;
}

/* How well a listener fits an address: 0 is not at all. */
static int hca_listener_fits(const struct iw_cm_id *id, const struct sockaddr_storage *to)
{
	const struct sockaddr_in *in = (const struct sockaddr_in *)&id->m_local_addr;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&id->m_local_addr;

	if (hca_port(&id->m_local_addr) != hca_port(to))
		return 0;
	if (id->m_local_addr.ss_family != to->ss_family)
		return in6->sin6_family == AF_INET6 && !id->afonly &&
		       ipv6_addr_any(&in6->sin6_addr);
	if (to->ss_family == AF_INET) {
		if (in->sin_addr.s_addr == ((struct sockaddr_in *)to)->sin_addr.s_addr)
			return 3;
		return in->sin_addr.s_addr ? 0 : 2;
	}
	if (ipv6_addr_equal(&in6->sin6_addr, &((struct sockaddr_in6 *)to)->sin6_addr))
		return 3;
	return ipv6_addr_any(&in6->sin6_addr) ? 2 : 0;
}

/* The listener for an address, of the device that has it, with a reference. */
static struct iw_cm_id *hca_listener_find(const struct sockaddr_storage *to)
{
	struct hca_listener *listener;
	struct iw_cm_id *found = NULL;
	int fits, best = 0;

	mutex_lock(&hca_listeners_lock);
	list_for_each_entry(listener, &hca_listeners, entry) {
		fits = hca_listener_fits(listener->id, to);
		if (fits <= best || !hca_has_address(to_hca(listener->id->device), to))
			continue;
		best = fits;
		found = listener->id;
	}
	if (found)
		found->add_ref(found);
	mutex_unlock(&hca_listeners_lock);
	return found;
}

/* Gives a request to its listener; returns the answer if there is one at once, or 1. */
static int hca_conn_request(struct hca_conn *conn)
{
	/* What the other end may do is what this one can bear, and the other way round. */
	struct iw_cm_event event = {
		.event = IW_CM_EVENT_CONNECT_REQUEST,
		.local_addr = conn->to,
		.remote_addr = conn->from,
		.private_data = conn->private_data,
		.private_data_len = min(conn->private_length, U8_MAX),
		.provider_data = (void *)(unsigned long)conn->number,
		.ird = conn->ird,
		.ord = conn->ord,
	};
	struct iw_cm_id *listener = hca_listener_find(&conn->to);
	int error;

	if (!listener)
		return -ECONNREFUSED;
	error = listener->event_handler(listener, &event);
	listener->rem_ref(listener);
	return error ? -ECONNREFUSED : 1;
}

/* The request: what can go wrong with it is what can with a datagram of InfiniBand's. */
static void hca_conn_ask(struct hca_conn *conn, struct hca_dev *hca)
{
	enum hca_fault_action fault = HCA_FAULT_NONE;
	int status;

	if (!READ_ONCE(hca->up)) {
		spin_lock_irq(&hca_iw_lock);
		if (time_after(jiffies, conn->give_up))
			hca_conn_answer(conn, -ETIMEDOUT);
		else
			hca_conn_go(conn, HCA_IW_RETRY);
		spin_unlock_irq(&hca_iw_lock);
		return;
	}
	hca_add(hca, HCA_CNT_MADS, 1);
	fault = hca_fault(hca, HCA_FAULT_MAD);
	if (fault == HCA_FAULT_LATE)
		msleep(200);
	/* First, since the answer may be there before the listener's handler returns. */
	spin_lock_irq(&hca_iw_lock);
	if (conn->state != HCA_IW_ASKS) {
		spin_unlock_irq(&hca_iw_lock);
		return;
	}
	conn->state = HCA_IW_ASKED;
	hca_conn_go(conn, HCA_IW_PATIENCE);
	spin_unlock_irq(&hca_iw_lock);
	if (fault == HCA_FAULT_FAIL)
		status = -ECONNRESET;
	else if (fault == HCA_FAULT_REJECT)
		status = -ECONNREFUSED;
	else
		status = hca_conn_request(conn);
	if (status == 1)
		return;
	spin_lock_irq(&hca_iw_lock);
	hca_conn_answer(conn, status);
	spin_unlock_irq(&hca_iw_lock);
}

/* The answer reaches the asking end; the other one is told that it has been taken. */
static void hca_conn_reply(struct hca_conn *conn)
{
	struct hca_qp *asking = conn->end[0].qp, *other = conn->end[1].qp;
	struct hca_dev *hca = asking->hca;
	enum hca_fault_action fault = hca_fault(hca, HCA_FAULT_MAD);
	int status = conn->status;

	hca_add(hca, HCA_CNT_MADS, 1);
	if (fault == HCA_FAULT_LATE)
		msleep(200);
	if (other)
		hca_iw_tell(conn->end[1].id, IW_CM_EVENT_ESTABLISHED, other);
	if (!status && (fault == HCA_FAULT_FAIL ||
			!hca_iw_open(asking, other->qpn, conn->ord, conn->ird)))
		status = -ECONNRESET;
	hca_iw_tell_answer(conn, status);
	spin_lock_irq(&hca_iw_lock);
	conn->state = HCA_IW_DONE;
	if (status && other)
		conn->end[1].closes = true;
	spin_unlock_irq(&hca_iw_lock);
	if (status)
		hca_conn_release(conn, 0);
}

/* Tells an end that it has ended, which is the last that it hears. */
static void hca_conn_end(struct hca_conn *conn, int which)
{
	struct hca_iw_end *end = &conn->end[which];

	if (!end->qp)
		return;
	hca_qp_error(end->qp, -1);
	hca_iw_tell(end->id, IW_CM_EVENT_DISCONNECT, end->qp);
	hca_iw_tell(end->id, IW_CM_EVENT_CLOSE, end->qp);
	hca_conn_release(conn, which);
}

static void hca_conn_work(struct work_struct *work)
{
	struct hca_conn *conn = container_of(to_delayed_work(work), struct hca_conn, work);
	enum hca_iw_state state;
	bool closes[2], over;

	spin_lock_irq(&hca_iw_lock);
	if (conn->state == HCA_IW_ASKED && time_after_eq(jiffies, conn->give_up))
		hca_conn_answer(conn, -ETIMEDOUT);
	state = conn->state;
	spin_unlock_irq(&hca_iw_lock);
	if (state == HCA_IW_ASKS)
		hca_conn_ask(conn, conn->end[0].qp->hca);
	else if (state == HCA_IW_ANSWERED)
		hca_conn_reply(conn);
	spin_lock_irq(&hca_iw_lock);
	closes[0] = conn->state == HCA_IW_DONE && conn->end[0].closes;
	closes[1] = conn->state == HCA_IW_DONE && conn->end[1].closes;
	spin_unlock_irq(&hca_iw_lock);
	if (closes[0])
		hca_conn_end(conn, 0);
	if (closes[1])
		hca_conn_end(conn, 1);
	spin_lock_irq(&hca_iw_lock);
	over = conn->state == HCA_IW_DONE && !conn->end[0].qp && !conn->end[1].qp;
	/* Without ends nobody finds it any more. */
	if (over)
		cancel_delayed_work(&conn->work);
	spin_unlock_irq(&hca_iw_lock);
	if (over)
		kfree(conn);
}

/* What each end checks of what it is told. */
static int hca_iw_check(struct hca_dev *hca, const struct iw_cm_conn_param *param)
{
	if (param->ord > hca->profile->rd_atomic || param->ird > hca->profile->rd_atomic) {
		hca_complain(hca, HCA_RULE_MODIFY, "%u and %u RDMA Reads", param->ord, param->ird);
		return -EINVAL;
	}
	/* iw_cm tells it in one octet. */
	return param->private_data_len > U8_MAX ? -EINVAL : 0;
}

static void hca_conn_private(struct hca_conn *conn, const void *data, u16 length)
{
	conn->private_length = length;
	if (length)
		memcpy(conn->private_data, data, length);
}

static struct hca_conn *hca_conn_new(void)
{
	struct hca_conn *conn = kzalloc(sizeof(*conn), GFP_KERNEL);

	if (!conn)
		return NULL;
	INIT_DELAYED_WORK(&conn->work, hca_conn_work);
	conn->give_up = jiffies + HCA_IW_PATIENCE;
	return conn;
}

int hca_iw_connect(struct iw_cm_id *id, struct iw_cm_conn_param *param)
{
	struct hca_dev *hca = to_hca(id->device);
	int error = hca_iw_check(hca, param);
	struct hca_conn *conn;
	struct hca_qp *qp;

	if (error)
		return error;
	qp = hca_qp_find(param->qpn);
	if (!qp)
		return -EINVAL;
	conn = hca_conn_new();
	error = -ENOMEM;
	if (!conn)
		goto fail;
	conn->from = id->m_local_addr;
	conn->to = id->m_remote_addr;
	conn->ord = param->ord;
	conn->ird = param->ird;
	hca_conn_private(conn, param->private_data, param->private_data_len);
	error = xa_alloc_cyclic_irq(&hca_requests, &conn->number, conn, xa_limit_32b,
				    &hca_next_request, GFP_KERNEL);
	if (error < 0)
		goto fail;
	spin_lock_irq(&hca_iw_lock);
	hca_conn_attach(conn, 0, id, qp);
	hca_conn_go(conn, 0);
	spin_unlock_irq(&hca_iw_lock);
	return 0;

fail:
	kfree(conn);
	hca_qp_put(qp);
	return error;
}

/* The request that an identifier is for, if it can still be answered. hca_iw_lock is held. */
static struct hca_conn *hca_request_find(const struct iw_cm_id *id)
{
	struct hca_conn *conn = xa_load(&hca_requests, (unsigned long)id->provider_data);

	return conn && conn->state == HCA_IW_ASKED ? conn : NULL;
}

int hca_iw_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param)
{
	int error = hca_iw_check(to_hca(id->device), param);
	struct hca_conn *conn;
	struct hca_qp *qp;

	if (error)
		return error;
	qp = hca_qp_find(param->qpn);
	if (!qp)
		return -EINVAL;
	spin_lock_irq(&hca_iw_lock);
	conn = hca_request_find(id);
	error = -ECONNRESET;
	if (conn && hca_iw_open(qp, conn->end[0].qp->qpn, min(param->ord, conn->ird), param->ird)) {
		conn->ord = min(conn->ord, param->ird);
		hca_conn_private(conn, param->private_data, param->private_data_len);
		hca_conn_attach(conn, 1, id, qp);
		hca_conn_answer(conn, 0);
		error = 0;
	}
	spin_unlock_irq(&hca_iw_lock);
	if (error)
		hca_qp_put(qp);
	return error;
}

int hca_iw_reject(struct iw_cm_id *id, const void *data, u8 length)
{
	struct hca_conn *conn;

	spin_lock_irq(&hca_iw_lock);
	conn = hca_request_find(id);
	if (conn) {
		hca_conn_private(conn, data, length);
		hca_conn_answer(conn, -ECONNREFUSED);
	}
	spin_unlock_irq(&hca_iw_lock);
	return conn ? 0 : -ECONNRESET;
}

int hca_iw_create_listen(struct iw_cm_id *id, int backlog)
{
	struct hca_listener *listener = kzalloc(sizeof(*listener), GFP_KERNEL);
	struct hca_listener *other;
	int error = 0;

	if (!listener)
		return -ENOMEM;
	listener->id = id;
	id->provider_data = listener;
	mutex_lock(&hca_listeners_lock);
	list_for_each_entry(other, &hca_listeners, entry) {
		if (other->id->device == id->device &&
		    !memcmp(&other->id->m_local_addr, &id->m_local_addr,
			    sizeof(id->m_local_addr)))
			error = -EADDRINUSE;
	}
	if (!error) {
		id->add_ref(id);
		list_add_tail(&listener->entry, &hca_listeners);
	}
	mutex_unlock(&hca_listeners_lock);
	if (error)
		kfree(listener);
	return error;
}

int hca_iw_destroy_listen(struct iw_cm_id *id)
{
	struct hca_listener *listener = id->provider_data;

	mutex_lock(&hca_listeners_lock);
	list_del(&listener->entry);
	mutex_unlock(&hca_listeners_lock);
	id->rem_ref(id);
	kfree(listener);
	return 0;
}

/* iw_cm adds its reference at once, and no caller destroys a Queue Pair that it connects. */
struct ib_qp *hca_iw_get_qp(struct ib_device *ib, int qpn)
{
	struct hca_qp *qp = hca_qp_find(qpn);

	if (!qp)
		return NULL;
	hca_qp_put(qp);
	return &qp->hca->ib == ib ? &qp->ib : NULL;
}

void hca_iw_add_ref(struct ib_qp *ib)
{
	refcount_inc(&to_hca_qp(ib)->refs);
}

void hca_iw_rem_ref(struct ib_qp *ib)
{
	hca_qp_put(to_hca_qp(ib));
}

/* Connects two Queue Pairs that have no identifiers, for the device's own test. */
int hca_iw_join(struct hca_qp *qp, struct hca_qp *other, u32 ord, u32 ird)
{
	struct hca_conn *conn = hca_conn_new();
	bool fine;

	if (!conn)
		return -ENOMEM;
	spin_lock_irq(&hca_iw_lock);
	conn->state = HCA_IW_DONE;
	refcount_inc(&qp->refs);
	refcount_inc(&other->refs);
	hca_conn_attach(conn, 0, NULL, qp);
	hca_conn_attach(conn, 1, NULL, other);
	fine = hca_iw_open(qp, other->qpn, ord, ord) && hca_iw_open(other, qp->qpn, ird, ird);
	if (!fine)
		hca_conn_close(conn, 0);
	spin_unlock_irq(&hca_iw_lock);
	return fine ? 0 : -EINVAL;
}
