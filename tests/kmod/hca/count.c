// SPDX-License-Identifier: GPL-2.0
/*
 * What is counted, and complaints about consumers that break a rule.
 *
 *   /sys/kernel/debug/hca/NAME/counters	"name value"; a write sets all to 0
 *   /sys/kernel/debug/hca/NAME/complaints	the same
 *
 * Both are of the device and end with it. All counters are atomic: no lock.
 */
#include <linux/debugfs.h>
#include <linux/seq_file.h>
#include "hca.h"

struct dentry *hca_debugfs;

static const char * const hca_counter_names[HCA_CNT_N] = {
	[HCA_CNT_DOORBELLS] = "doorbells",
	[HCA_CNT_RECV_DOORBELLS] = "recv_doorbells",
	[HCA_CNT_SENDS] = "sends",
	[HCA_CNT_SENDS_WITH_INV] = "sends_with_inv",
	[HCA_CNT_RDMA_READS] = "rdma_reads",
	[HCA_CNT_RDMA_WRITES] = "rdma_writes",
	[HCA_CNT_REGISTRATIONS] = "registrations",
	[HCA_CNT_LOCAL_INVS] = "local_invs",
	[HCA_CNT_REMOTE_INVS] = "remote_invs",
	[HCA_CNT_RECVS] = "recvs",
	[HCA_CNT_SIGNALED] = "signaled",
	[HCA_CNT_SGES] = "sges",
	[HCA_CNT_SEND_OCTETS] = "send_octets",
	[HCA_CNT_READ_OCTETS] = "read_octets",
	[HCA_CNT_WRITE_OCTETS] = "write_octets",
	[HCA_CNT_INTERRUPTS] = "interrupts",
	[HCA_CNT_COMPLETIONS] = "completions",
	[HCA_CNT_ERRORS] = "errors",
	[HCA_CNT_RETRIES] = "retries",
	[HCA_CNT_SENT_RNR] = "sent_rnr",
	[HCA_CNT_RCVD_RNR] = "rcvd_rnr",
	[HCA_CNT_MAPS] = "maps",
	[HCA_CNT_UNMAPS] = "unmaps",
	[HCA_CNT_SYNCS_FOR_CPU] = "syncs_for_cpu",
	[HCA_CNT_SYNCS_FOR_DEVICE] = "syncs_for_device",
	[HCA_CNT_BOUNCED_OCTETS] = "bounced_octets",
	[HCA_CNT_MADS] = "mads",
	[HCA_CNT_MADS_DROPPED] = "mads_dropped",
	[HCA_CNT_LAST_WQE_EVENTS] = "last_wqe_events",
};

static const struct {
	const char *name;
	const char *text;
} hca_rules[HCA_RULE_N] = {
	[HCA_RULE_POST_STATE] = {
		"post_state",
		"posted to a Queue Pair that is not ready for it",
	},
	[HCA_RULE_POST_OPCODE] = {
		"post_opcode",
		"posted an operation that the device does not have",
	},
	[HCA_RULE_POST_SGES] = { "post_sges", "posted more SGEs than were asked for" },
	[HCA_RULE_READ_SGES] = { "read_sges", "posted an RDMA Read with too many SGEs" },
	[HCA_RULE_POST_INLINE] = { "post_inline", "posted inline data that were not asked for" },
	[HCA_RULE_POST_LENGTH] = { "post_length", "posted a message that is too long" },
	[HCA_RULE_SQ_OVERFLOW] = { "sq_overflow", "posted more than the Send Queue holds" },
	[HCA_RULE_RQ_OVERFLOW] = { "rq_overflow", "posted more than the Receive Queue holds" },
	[HCA_RULE_SRQ_OVERFLOW] = {
		"srq_overflow",
		"posted more than the shared Receive Queue holds",
	},
	[HCA_RULE_CQ_OVERFLOW] = { "cq_overflow", "a completion found no place in its queue" },
	[HCA_RULE_REG_STATE] = { "reg_state", "registered a region that is registered already" },
	[HCA_RULE_REG_PD] = { "reg_pd", "registered a region of another protection domain" },
	[HCA_RULE_REG_KEY] = { "reg_key", "registered a region with a key that is not its own" },
	[HCA_RULE_REG_KEY_AGAIN] = {
		"reg_key_again",
		"registered a region with the key that it had before",
	},
	[HCA_RULE_REG_ACCESS] = {
		"reg_access",
		"registered a region for an access that cannot be",
	},
	[HCA_RULE_REG_PAGES] = { "reg_pages", "registered a region without pages" },
	[HCA_RULE_REG_DIRECTION] = {
		"reg_direction",
		"registered memory for more than it is mapped for",
	},
	[HCA_RULE_MAP_POSTED] = {
		"map_posted",
		"changed the pages of a region whose registration is posted",
	},
	[HCA_RULE_MAP_VALID] = { "map_valid", "changed the pages of a region that is registered" },
	[HCA_RULE_INV_STATE] = { "inv_state", "invalidated a region that is not registered" },
	[HCA_RULE_INV_PD] = { "inv_pd", "invalidated a region of another protection domain" },
	[HCA_RULE_INV_KEY] = { "inv_key", "invalidated a key that is not there" },
	[HCA_RULE_REMOTE_INV] = { "remote_inv", "the other end may not invalidate this key" },
	[HCA_RULE_LOCAL_KEY] = { "local_key", "an SGE has a key that is not there" },
	[HCA_RULE_LOCAL_PD] = { "local_pd", "an SGE has a key of another protection domain" },
	[HCA_RULE_LOCAL_BOUNDS] = { "local_bounds", "an SGE is beyond its region" },
	[HCA_RULE_LOCAL_ACCESS] = { "local_access", "an SGE's region may not be written to" },
	[HCA_RULE_REMOTE_KEY] = { "remote_key", "the other end has used a key that is not there" },
	[HCA_RULE_REMOTE_PD] = {
		"remote_pd",
		"the other end has used a key of another protection domain",
	},
	[HCA_RULE_REMOTE_BOUNDS] = { "remote_bounds", "the other end was beyond a region" },
	[HCA_RULE_REMOTE_ACCESS] = {
		"remote_access",
		"the other end may not do this to a region",
	},
	[HCA_RULE_REMOTE_RIGHTS] = {
		"remote_rights",
		"the other end may not do this on this connection",
	},
	[HCA_RULE_RD_ATOMIC] = { "rd_atomic", "an RDMA Read where none were negotiated" },
	[HCA_RULE_RECV_LENGTH] = { "recv_length", "a message is longer than its Receive" },
	[HCA_RULE_MODIFY] = { "modify", "a transition of a Queue Pair that does not exist" },
	[HCA_RULE_CREATE] = { "create", "asked for more than the device has" },
	[HCA_RULE_DESTROY_BUSY] = { "destroy_busy", "destroyed what is in use" },
	[HCA_RULE_DMA_ADDRESS] = { "dma_address", "reached an address that is not mapped" },
	[HCA_RULE_DMA_DIRECTION] = {
		"dma_direction",
		"reached memory in a direction it is not mapped for",
	},
	[HCA_RULE_DMA_UNMAP] = { "dma_unmap", "unmapped what is not mapped, or not in that way" },
	[HCA_RULE_DMA_IN_USE] = { "dma_in_use", "unmapped what the device still uses" },
	[HCA_RULE_DMA_SYNC] = {
		"dma_sync",
		"synchronized what is not mapped, or not in that way",
	},
	[HCA_RULE_DMA_LEAK] = { "dma_leak", "mappings were left behind" },
};

/*
 * Counts that a rule was broken. The first time for each rule is also a line on
 * the console, which fails a test, and the stack: that of the consumer if the
 * error is returned at once, else that of the engine.
 */
void hca_complain(struct hca_dev *hca, enum hca_rule rule, const char *format, ...)
{
	struct va_format vaf;
	va_list args;

	if (atomic_inc_return(&hca->complaints[rule]) != 1 || READ_ONCE(hca->quiet))
		return;
	va_start(args, format);
	vaf.fmt = format;
	vaf.va = &args;
	pr_warn("WARNING: %s: %s: %s (%pV)\n", dev_name(&hca->ib.dev), hca_rules[rule].name,
		hca_rules[rule].text, &vaf);
	va_end(args);
	dump_stack();
}

static int hca_counters_show(struct seq_file *seq, void *data)
{
	struct hca_dev *hca = seq->private;
	int i;

	for (i = 0; i < HCA_CNT_N; i++)
		seq_printf(seq, "%s %lld\n", hca_counter_names[i],
			   atomic64_read(&hca->counters[i]));
	return 0;
}

static int hca_counters_open(struct inode *inode, struct file *file)
{
	return single_open(file, hca_counters_show, inode->i_private);
}

static ssize_t hca_counters_write(struct file *file, const char __user *buf, size_t n, loff_t *pos)
{
	struct hca_dev *hca = ((struct seq_file *)file->private_data)->private;
	int i;

	for (i = 0; i < HCA_CNT_N; i++)
		atomic64_set(&hca->counters[i], 0);
	return n;
}

static const struct file_operations hca_counters_fops = {
	.owner = THIS_MODULE,
	.open = hca_counters_open,
	.read = seq_read,
	.write = hca_counters_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int hca_complaints_show(struct seq_file *seq, void *data)
{
	struct hca_dev *hca = seq->private;
	int i;

	for (i = 0; i < HCA_RULE_N; i++)
		seq_printf(seq, "%s %d\n", hca_rules[i].name, atomic_read(&hca->complaints[i]));
	return 0;
}

static int hca_complaints_open(struct inode *inode, struct file *file)
{
	return single_open(file, hca_complaints_show, inode->i_private);
}

static ssize_t hca_complaints_write(struct file *file, const char __user *buf, size_t n,
				    loff_t *pos)
{
	struct hca_dev *hca = ((struct seq_file *)file->private_data)->private;
	int i;

	for (i = 0; i < HCA_RULE_N; i++)
		atomic_set(&hca->complaints[i], 0);
	return n;
}

static const struct file_operations hca_complaints_fops = {
	.owner = THIS_MODULE,
	.open = hca_complaints_open,
	.read = seq_read,
	.write = hca_complaints_write,
	.llseek = seq_lseek,
	.release = single_release,
};

/* To be called when the device has its name. */
void hca_count_init(struct hca_dev *hca)
{
	hca->dir = debugfs_create_dir(dev_name(&hca->ib.dev), hca_debugfs);
	debugfs_create_file("counters", 0600, hca->dir, hca, &hca_counters_fops);
	debugfs_create_file("complaints", 0600, hca->dir, hca, &hca_complaints_fops);
	hca_dma_show(hca);
	hca_fault_show_in(hca);
	hca_user_show(hca);
	hca_selftest_init(hca);
}

/* Waits for readers; afterwards there are none. */
void hca_count_exit(struct hca_dev *hca)
{
	debugfs_remove(hca->dir);
}

/* Those that tools and tests know from rxe, by the same names. */
static const struct {
	struct rdma_stat_desc desc;
	enum hca_counter counter;
} hca_port_stats[] = {
	{ { .name = "send_rnr_err" }, HCA_CNT_SENT_RNR },
	{ { .name = "rcvd_rnr_err" }, HCA_CNT_RCVD_RNR },
	{ { .name = "completer_retry_err" }, HCA_CNT_RETRIES },
	{ { .name = "rdma_sends" }, HCA_CNT_SENDS },
};

static struct rdma_stat_desc hca_port_descs[ARRAY_SIZE(hca_port_stats)];

struct rdma_hw_stats *hca_alloc_hw_port_stats(struct ib_device *ib, u32 port)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(hca_port_stats); i++)
		hca_port_descs[i] = hca_port_stats[i].desc;
	return rdma_alloc_hw_stats_struct(hca_port_descs, ARRAY_SIZE(hca_port_descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int hca_get_hw_stats(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index)
{
	int i;

	if (!port)
		return -EINVAL;
	for (i = 0; i < ARRAY_SIZE(hca_port_stats); i++)
		stats->value[i] = atomic64_read(&to_hca(ib)->counters[hca_port_stats[i].counter]);
	return ARRAY_SIZE(hca_port_stats);
}
