// SPDX-License-Identifier: GPL-2.0
/*
 * Test aid: counts how often each place of rpcrdma.ko was reached.
 *
 * A build of rpcrdma.ko for this calls __sanitizer_cov_trace_pc() in each of its
 * basic blocks. With KCOV the kernel notes these calls for the task that has asked
 * for it. But what a peer sends is handled in nfsd's threads, in workqueues and
 * in interrupts, so here they are counted in every context. The kernel must be
 * one without CONFIG_KCOV.
 *
 *   /sys/kernel/debug/cover/places	32 bits for each place that was reached since
 *					it was cleared, in the order of their addresses:
 *					the offset of the return address from the
 *					beginning of the module's text, times eight,
 *					plus the class of the number of times: 0 for 1,
 *					then 2, 3, 4 to 7, 8 to 15, 16 to 31, 32 to 127,
 *					and 7 for all above. Any write clears it
 *
 * It is inserted before rpcrdma, which needs its symbol.
 */

#include <linux/debugfs.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

/* Octets of text that can be counted in. The module has less than half of that. */
#define COVER_TEXT	(4UL << 20)
/* A call has five octets. */
#define COVER_PLACES	(COVER_TEXT / 5)

/*
 * Where the text is that stays, and a counter for each of its octets. Two CPUs that
 * count in the same one at the same time may count once.
 */
static unsigned long cover_text, cover_size;
static u8 *cover_counters;

/* What is given to a reader, made when it reads the beginning. */
static DEFINE_MUTEX(cover_lock);
static u32 *cover_places;
static size_t cover_octets;

static struct dentry *cover_dir;

void notrace __sanitizer_cov_trace_pc(void);
void notrace __sanitizer_cov_trace_pc(void)
{
	unsigned long at = (unsigned long)__builtin_return_address(0) - READ_ONCE(cover_text);
	u8 n;

	if (at >= READ_ONCE(cover_size))
		return;
	n = READ_ONCE(cover_counters[at]);
	if (n != U8_MAX)
		WRITE_ONCE(cover_counters[at], n + 1);
}
EXPORT_SYMBOL(__sanitizer_cov_trace_pc);

static u32 cover_class(u8 n)
{
	if (n < 4)
		return n - 1;
	if (n < 8)
		return 3;
	if (n < 16)
		return 4;
	if (n < 32)
		return 5;
	return n < 128 ? 6 : 7;
}

static void cover_collect(void)
{
	size_t at, i, count = 0;

	for (at = 0; at < COVER_TEXT; at += sizeof(u64)) {
		if (!*(u64 *)(cover_counters + at))
			continue;
		for (i = at; i < at + sizeof(u64); i++)
			if (cover_counters[i] && count < COVER_PLACES)
				cover_places[count++] = i << 3 | cover_class(cover_counters[i]);
	}
	cover_octets = count * sizeof(u32);
}

static ssize_t cover_read(struct file *file, char __user *to, size_t count, loff_t *at)
{
	ssize_t done;

	mutex_lock(&cover_lock);
	if (!*at)
		cover_collect();
	done = simple_read_from_buffer(to, count, at, cover_places, cover_octets);
	mutex_unlock(&cover_lock);
	return done;
}

static ssize_t cover_write(struct file *file, const char __user *from, size_t count, loff_t *at)
{
	memset(cover_counters, 0, COVER_TEXT);
	return count;
}

static const struct file_operations cover_fops = {
	.owner	= THIS_MODULE,
	.open	= simple_open,
	.read	= cover_read,
	.write	= cover_write,
	.llseek	= default_llseek,
};

/* Before the module has run anything. */
static int cover_notify(struct notifier_block *block, unsigned long action, void *data)
{
	struct module *module = data;

	if (strcmp(module->name, "rpcrdma"))
		return NOTIFY_DONE;
	if (action == MODULE_STATE_COMING) {
		WRITE_ONCE(cover_text, (unsigned long)module->mem[MOD_TEXT].base);
		WRITE_ONCE(cover_size, min_t(unsigned long, module->mem[MOD_TEXT].size, COVER_TEXT));
	} else if (action == MODULE_STATE_GOING) {
		WRITE_ONCE(cover_size, 0);
	}
	return NOTIFY_DONE;
}

static struct notifier_block cover_block = {
	.notifier_call	= cover_notify,
};

static int __init cover_init(void)
{
	int error = -ENOMEM;

	cover_counters = vzalloc(COVER_TEXT);
	cover_places = vzalloc(COVER_PLACES * sizeof(*cover_places));
	if (!cover_counters || !cover_places)
		goto free;
	error = register_module_notifier(&cover_block);
	if (error)
		goto free;
	cover_dir = debugfs_create_dir("cover", NULL);
	debugfs_create_file("places", 0600, cover_dir, NULL, &cover_fops);
	return 0;
free:
	vfree(cover_places);
	vfree(cover_counters);
	return error;
}

static void __exit cover_exit(void)
{
	debugfs_remove(cover_dir);
	unregister_module_notifier(&cover_block);
	vfree(cover_places);
	vfree(cover_counters);
}

module_init(cover_init);
module_exit(cover_exit);
MODULE_DESCRIPTION("Counts which places of rpcrdma.ko are reached");
MODULE_LICENSE("GPL");
