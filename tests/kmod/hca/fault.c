// SPDX-License-Identifier: GPL-2.0
/*
 * Faults: the N-th event of a kind goes wrong.
 *
 *   echo "write lost 17" >/sys/kernel/debug/hca/NAME/fault
 *	arms the 17th RDMA Write from now; events of all kinds are counted anew
 *   cat /sys/kernel/debug/hca/NAME/fault
 *	"fired 1" when it has happened, then how many events of each kind there were
 *   echo "send none 0" >/sys/kernel/debug/hca/NAME/fault
 *	nothing goes wrong from now on; whether something has is still told
 *
 * One fault is armed at a time. It belongs to the device, and hca_fault.lock
 * protects it; that is the innermost lock. Requests are counted when the engine
 * begins them, so how often they wait for the other end makes no difference.
 *
 * What the actions are like with hardware:
 *
 *   fail		a post or a call is refused; a request ends without an effect (no
 *		answer came, or the region was not good for it); a datagram is lost
 *   lost		a request has its effect, and ends as if no answer had come
 *   half		the same after half of its octets
 *   remote	the other end refuses a request, and both ends of the connection end
 *   late		a request or a datagram waits for HCA_FAULT_DELAY first
 *   twice	a datagram comes twice
 *   reject	a request for a connection is rejected by the other end's device
 *
 * And incidents, of the kind "any": the device has one while it handles the N-th
 * event of all, whatever that is; see incident.c.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include "hca.h"

static const char * const hca_fault_kinds[HCA_FAULT_KINDS] = {
	[HCA_FAULT_POST_SEND] = "post_send",
	[HCA_FAULT_POST_RECV] = "post_recv",
	[HCA_FAULT_SEND] = "send",
	[HCA_FAULT_READ] = "read",
	[HCA_FAULT_WRITE] = "write",
	[HCA_FAULT_REG_MR] = "reg_mr",
	[HCA_FAULT_LOCAL_INV] = "local_inv",
	[HCA_FAULT_MAD] = "mad",
	[HCA_FAULT_CREATE] = "create",
	[HCA_FAULT_MODIFY] = "modify",
	[HCA_FAULT_ANY] = "any",
};

static const char * const hca_fault_actions[HCA_FAULT_ACTIONS] = {
	[HCA_FAULT_NONE] = "none",
	[HCA_FAULT_FAIL] = "fail",
	[HCA_FAULT_LOST] = "lost",
	[HCA_FAULT_HALF] = "half",
	[HCA_FAULT_REMOTE] = "remote",
	[HCA_FAULT_LATE] = "late",
	[HCA_FAULT_TWICE] = "twice",
	[HCA_FAULT_REJECT] = "reject",
	[HCA_FAULT_QP_FATAL] = "qp_fatal",
	[HCA_FAULT_SHARED_FATAL] = "shared_fatal",
	[HCA_FAULT_SRQ_ERROR] = "srq_error",
	[HCA_FAULT_PORT_DOWN] = "port_down",
	[HCA_FAULT_DEVICE_FATAL] = "device_fatal",
	[HCA_FAULT_REMOVAL] = "removal",
};

/* Counts an event, and returns what goes wrong with it: HCA_FAULT_NONE for nearly all. */
enum hca_fault_action hca_fault(struct hca_dev *hca, enum hca_fault_kind kind)
{
	struct hca_fault *fault = &hca->fault;
	enum hca_fault_action action = HCA_FAULT_NONE;
	unsigned long flags;

	spin_lock_irqsave(&fault->lock, flags);
	fault->counts[kind]++;
	fault->counts[HCA_FAULT_ANY]++;
	if (fault->action && (fault->kind == kind || fault->kind == HCA_FAULT_ANY) &&
	    fault->counts[fault->kind] == fault->number) {
		action = fault->action;
		fault->action = HCA_FAULT_NONE;
		fault->fired = true;
	}
	if (action >= HCA_FAULT_QP_FATAL) {
		/* The event itself takes its course. */
		fault->incident = action;
		action = HCA_FAULT_NONE;
		queue_work(hca_wq, &fault->work);
	}
	spin_unlock_irqrestore(&fault->lock, flags);
	return action;
}

static int hca_fault_show(struct seq_file *seq, void *data)
{
	struct hca_fault *fault = &((struct hca_dev *)seq->private)->fault;
	u32 counts[HCA_FAULT_KINDS];
	bool fired;
	int i;

	spin_lock_irq(&fault->lock);
	memcpy(counts, fault->counts, sizeof(counts));
	fired = fault->fired;
	spin_unlock_irq(&fault->lock);
	seq_printf(seq, "fired %d\n", fired);
	for (i = 0; i < HCA_FAULT_KINDS; i++)
		seq_printf(seq, "%s %u\n", hca_fault_kinds[i], counts[i]);
	return 0;
}

static int hca_fault_open(struct inode *inode, struct file *file)
{
	return single_open(file, hca_fault_show, inode->i_private);
}

static ssize_t hca_fault_write(struct file *file, const char __user *buf, size_t n, loff_t *pos)
{
	struct hca_fault *fault =
		&((struct hca_dev *)((struct seq_file *)file->private_data)->private)->fault;
	char text[64] = {}, kind[16], action[16];
	int kind_number, action_number;
	u32 number;

	if (n >= sizeof(text) || copy_from_user(text, buf, n) ||
	    sscanf(text, "%15s %15s %u", kind, action, &number) != 3)
		return -EINVAL;
	kind_number = match_string(hca_fault_kinds, HCA_FAULT_KINDS, kind);
	action_number = match_string(hca_fault_actions, HCA_FAULT_ACTIONS, action);
	if (kind_number < 0 || action_number < 0 ||
	    (action_number && (kind_number == HCA_FAULT_ANY) !=
			      (action_number >= HCA_FAULT_QP_FATAL)))
		return -EINVAL;
	spin_lock_irq(&fault->lock);
	fault->kind = kind_number;
	fault->action = action_number;
	fault->number = number;
	if (action_number)
		fault->fired = false;
	memset(fault->counts, 0, sizeof(fault->counts));
	spin_unlock_irq(&fault->lock);
	return n;
}

static const struct file_operations hca_fault_fops = {
	.owner = THIS_MODULE,
	.open = hca_fault_open,
	.read = seq_read,
	.write = hca_fault_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/* Before the device has its name: QP1 is made soon afterwards. */
void hca_fault_init(struct hca_dev *hca)
{
	spin_lock_init(&hca->fault.lock);
	INIT_WORK(&hca->fault.work, hca_incident);
}

void hca_fault_show_in(struct hca_dev *hca)
{
	debugfs_create_file("fault", 0600, hca->dir, hca, &hca_fault_fops);
}
