// SPDX-License-Identifier: GPL-2.0
/*
 * Test aid: counts what consumers post to RDMA devices, and can make a device
 * look poorer than it is, or refuse what it is given.
 *
 * The verbs of every RDMA device are replaced by ones that count and then call
 * the device's own. So the figures are those of the Queue Pairs themselves,
 * whichever transport module uses them. Only reliable connections count, which
 * leaves the connection manager's datagrams out.
 *
 *   /sys/kernel/debug/rdmatap	one "name value" a line; any write sets all to 0
 *
 * There is no way to unload it: a call may be on its way through at any time.
 */

#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

static bool no_mem_mgt;
module_param(no_mem_mgt, bool, 0644);
MODULE_PARM_DESC(no_mem_mgt, "Take IB_DEVICE_MEM_MGT_EXTENSIONS from devices that come later");

static atomic_t refuse_local_invs, refuse_sends, refuse_maps, starve_maps;

static int refuse_set(const char *value, const struct kernel_param *param)
{
	int n, error = kstrtoint(value, 0, &n);

	if (!error)
		atomic_set(param->arg, n);
	return error;
}

static int refuse_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(param->arg));
}

static const struct kernel_param_ops refuse_ops = {
	.set = refuse_set,
	.get = refuse_get,
};

module_param_cb(refuse_local_invs, &refuse_ops, &refuse_local_invs, 0644);
MODULE_PARM_DESC(refuse_local_invs, "So many chains with a LOCAL_INV are refused");
module_param_cb(refuse_sends, &refuse_ops, &refuse_sends, 0644);
MODULE_PARM_DESC(refuse_sends, "So many chains with a Send are refused");
module_param_cb(refuse_maps, &refuse_ops, &refuse_maps, 0644);
MODULE_PARM_DESC(refuse_maps, "So many memory regions map nothing of what they are given");
module_param_cb(starve_maps, &refuse_ops, &starve_maps, 0644);
MODULE_PARM_DESC(starve_maps, "So many memory regions can't be mapped for want of memory");

static uint slow_sends;
module_param(slow_sends, uint, 0644);
MODULE_PARM_DESC(slow_sends, "So many microseconds does it take to post a chain with a Send, 1000 at most");

enum tap_counter {
	/* Calls of ib_post_send(), whatever the length of the chain. */
	TAP_POSTS,
	/* Work requests by kind. */
	TAP_SENDS,
	TAP_SIGNALED,
	TAP_REGISTRATIONS,
	TAP_LOCAL_INVS,
	TAP_SENDS_WITH_INV,
	TAP_RDMA_READS,
	TAP_RDMA_WRITES,
	TAP_OTHERS,
	/* Receives, posted one by one or in chains. */
	TAP_RECV_POSTS,
	TAP_RECVS,
	/* What ib_poll_cq() returned. */
	TAP_COMPLETIONS,
	TAP_REMOTE_INVS,
	TAP_ERRORS,
	/* Octets of memory regions that were mapped. */
	TAP_MAPPED,
	TAP_COUNTERS,
};

static const char * const tap_names[TAP_COUNTERS] = {
	[TAP_POSTS] = "posts",
	[TAP_SENDS] = "sends",
	[TAP_SIGNALED] = "signaled",
	[TAP_REGISTRATIONS] = "registrations",
	[TAP_LOCAL_INVS] = "local_invs",
	[TAP_SENDS_WITH_INV] = "sends_with_inv",
	[TAP_RDMA_READS] = "rdma_reads",
	[TAP_RDMA_WRITES] = "rdma_writes",
	[TAP_OTHERS] = "others",
	[TAP_RECV_POSTS] = "recv_posts",
	[TAP_RECVS] = "recvs",
	[TAP_COMPLETIONS] = "completions",
	[TAP_REMOTE_INVS] = "remote_invs",
	[TAP_ERRORS] = "errors",
	[TAP_MAPPED] = "mapped",
};

static atomic64_t tap_counters[TAP_COUNTERS];

static void tap_add(enum tap_counter which, s64 n)
{
	atomic64_add(n, &tap_counters[which]);
}

/* What a device had before. Never freed, so that a late call finds it. */
struct tap_device {
	struct list_head entry;
	struct ib_device *device;
	int (*post_send)(struct ib_qp *qp, const struct ib_send_wr *wr,
			 const struct ib_send_wr **bad);
	int (*post_recv)(struct ib_qp *qp, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad);
	int (*poll_cq)(struct ib_cq *cq, int n, struct ib_wc *wc);
	int (*map_mr_sg)(struct ib_mr *mr, struct scatterlist *sg, int n,
			 unsigned int *offset);
};

static LIST_HEAD(tap_devices);
static DEFINE_SPINLOCK(tap_lock);
static struct ib_client tap_client;

static struct tap_device *tap_find(struct ib_device *device)
{
	struct tap_device *tap, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&tap_lock, flags);
	list_for_each_entry(tap, &tap_devices, entry) {
		if (tap->device == device)
			found = tap;
	}
	spin_unlock_irqrestore(&tap_lock, flags);
	return found;
}

/* Whether this chain is one of those that must be refused. Takes its time. */
static bool tap_refuses(const struct ib_send_wr *wr)
{
	bool sends = false, invalidates = false;

	for (; wr; wr = wr->next) {
		sends |= wr->opcode == IB_WR_SEND || wr->opcode == IB_WR_SEND_WITH_INV;
		invalidates |= wr->opcode == IB_WR_LOCAL_INV;
	}
	if (sends && slow_sends)
		udelay(min(slow_sends, 1000U));
	return (sends && atomic_add_unless(&refuse_sends, -1, 0)) ||
	       (invalidates && atomic_add_unless(&refuse_local_invs, -1, 0));
}

static int tap_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			 const struct ib_send_wr **bad)
{
	struct tap_device *tap = tap_find(qp->device);
	const struct ib_send_wr *each;

	if (qp->qp_type == IB_QPT_RC && tap_refuses(wr)) {
		*bad = wr;
		return -ENOMEM;
	}
	if (qp->qp_type == IB_QPT_RC) {
		tap_add(TAP_POSTS, 1);
		for (each = wr; each; each = each->next) {
			if (each->send_flags & IB_SEND_SIGNALED)
				tap_add(TAP_SIGNALED, 1);
			switch (each->opcode) {
			case IB_WR_SEND:
				tap_add(TAP_SENDS, 1);
				break;
			case IB_WR_SEND_WITH_INV:
				tap_add(TAP_SENDS_WITH_INV, 1);
				break;
			case IB_WR_REG_MR:
				tap_add(TAP_REGISTRATIONS, 1);
				break;
			case IB_WR_LOCAL_INV:
				tap_add(TAP_LOCAL_INVS, 1);
				break;
			case IB_WR_RDMA_READ:
				tap_add(TAP_RDMA_READS, 1);
				break;
			case IB_WR_RDMA_WRITE:
				tap_add(TAP_RDMA_WRITES, 1);
				break;
			default:
				tap_add(TAP_OTHERS, 1);
			}
		}
	}
	return tap->post_send(qp, wr, bad);
}

static int tap_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			 const struct ib_recv_wr **bad)
{
	struct tap_device *tap = tap_find(qp->device);
	const struct ib_recv_wr *each;

	if (qp->qp_type == IB_QPT_RC) {
		tap_add(TAP_RECV_POSTS, 1);
		for (each = wr; each; each = each->next)
			tap_add(TAP_RECVS, 1);
	}
	return tap->post_recv(qp, wr, bad);
}

static int tap_poll_cq(struct ib_cq *cq, int n, struct ib_wc *wc)
{
	struct tap_device *tap = tap_find(cq->device);
	int i, got;

	got = tap->poll_cq(cq, n, wc);
	for (i = 0; i < got; i++) {
		if (!wc[i].qp || wc[i].qp->qp_type != IB_QPT_RC)
			continue;
		tap_add(TAP_COMPLETIONS, 1);
		if (wc[i].status != IB_WC_SUCCESS)
			tap_add(TAP_ERRORS, 1);
		else if (wc[i].wc_flags & IB_WC_WITH_INVALIDATE)
			tap_add(TAP_REMOTE_INVS, 1);
	}
	return got;
}

static int tap_map_mr_sg(struct ib_mr *mr, struct scatterlist *sg, int n,
			 unsigned int *offset)
{
	int mapped;

	if (atomic_add_unless(&refuse_maps, -1, 0))
		return 0;
	if (atomic_add_unless(&starve_maps, -1, 0))
		return -ENOMEM;
	mapped = tap_find(mr->device)->map_mr_sg(mr, sg, n, offset);
	if (mapped > 0)
		tap_add(TAP_MAPPED, mr->length);
	return mapped;
}

static int tap_client_add(struct ib_device *device)
{
	struct tap_device *tap = kzalloc(sizeof(*tap), GFP_KERNEL);

	if (!tap)
		return -ENOMEM;
	tap->device = device;
	tap->post_send = device->ops.post_send;
	tap->post_recv = device->ops.post_recv;
	tap->poll_cq = device->ops.poll_cq;
	tap->map_mr_sg = device->ops.map_mr_sg;
	spin_lock_irq(&tap_lock);
	list_add_tail(&tap->entry, &tap_devices);
	spin_unlock_irq(&tap_lock);
	device->ops.post_send = tap_post_send;
	device->ops.post_recv = tap_post_recv;
	device->ops.poll_cq = tap_poll_cq;
	device->ops.map_mr_sg = tap_map_mr_sg;
	if (no_mem_mgt)
		device->attrs.device_cap_flags &= ~IB_DEVICE_MEM_MGT_EXTENSIONS;
	ib_set_client_data(device, &tap_client, tap);
	return 0;
}

static void tap_client_remove(struct ib_device *device, void *data)
{
	struct tap_device *tap = data;

	/*
	 * The replaced verbs stay until the device is freed: other clients may
	 * still be draining their Queue Pairs.
	 */
	if (tap && no_mem_mgt)
		device->attrs.device_cap_flags |= IB_DEVICE_MEM_MGT_EXTENSIONS;
}

static struct ib_client tap_client = {
	.name = "rdmatap",
	.add = tap_client_add,
	.remove = tap_client_remove,
};

static int tap_show(struct seq_file *seq, void *data)
{
	int i;

	for (i = 0; i < TAP_COUNTERS; i++)
		seq_printf(seq, "%s %lld\n", tap_names[i],
			   atomic64_read(&tap_counters[i]));
	return 0;
}

static int tap_open(struct inode *inode, struct file *file)
{
	return single_open(file, tap_show, NULL);
}

static ssize_t tap_write(struct file *file, const char __user *buf, size_t n,
			 loff_t *pos)
{
	int i;

	for (i = 0; i < TAP_COUNTERS; i++)
		atomic64_set(&tap_counters[i], 0);
	return n;
}

static const struct file_operations tap_fops = {
	.owner = THIS_MODULE,
	.open = tap_open,
	.read = seq_read,
	.write = tap_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int __init tap_init(void)
{
	debugfs_create_file("rdmatap", 0600, NULL, NULL, &tap_fops);
	return ib_register_client(&tap_client);
}
module_init(tap_init);

MODULE_DESCRIPTION("Test aid: counts work requests");
MODULE_LICENSE("GPL");
