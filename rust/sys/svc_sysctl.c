// SPDX-License-Identifier: GPL-2.0
/*
 * The tunables and counters of the server under /proc/sys/sunrpc/svc_rdma.
 *
 * Each CPU counts for itself, so that connections do not share a cache line.
 * The counters have 64 bits. Setting one to zero only stores its present value,
 * which is then subtracted, so the code that counts is not involved.
 */
#include <linux/percpu.h>
#include <linux/sysctl.h>

#include "rpcrdma_c.h"

unsigned int rpcrdma_sysctl_svc_max_requests = 64;
unsigned int rpcrdma_sysctl_svc_max_req_size = 4096;
unsigned int rpcrdma_sysctl_svc_max_outbound_reads = 16;
/* In MiB. This and the next two are set by the memory of the machine. */
unsigned int rpcrdma_sysctl_svc_transfer_memory;
unsigned int rpcrdma_sysctl_svc_send_buffers;
/* In MiB. */
unsigned int rpcrdma_sysctl_svc_receive_memory;

#ifdef CONFIG_SYSCTL

static unsigned int min_requests = 4;
static unsigned int max_requests = 16384;
static unsigned int min_req_size = 1024;
static unsigned int max_req_size = 65536;
static unsigned int min_reads = 1;
static unsigned int max_reads = 255;
static unsigned int min_transfer_memory = 1;
static unsigned int max_transfer_memory = 1 << 20;
static unsigned int min_send_buffers;
static unsigned int max_send_buffers = 1 << 24;

struct svc_stats {
	u64 counts[RPCRDMA_SVC_STATS];
};

static struct svc_stats __percpu *stats;
/* The same, for the code that counts; set once nothing can fail any more. */
static struct svc_stats __percpu *counting;
/* The sums at the time when they were last set to zero. */
static u64 zeros[RPCRDMA_SVC_STATS];

static u64 sum(unsigned int which)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu_ptr(stats, cpu)->counts[which]);
	return sum;
}

/* Shows a counter; any write sets it to zero. */
static int stat_handler(const struct ctl_table *table, int write, void *buffer,
			size_t *lenp, loff_t *ppos)
{
	u64 *zero = table->data;
	unsigned long value;
	struct ctl_table shown = {
		.procname	= table->procname,
		.data		= &value,
		.maxlen		= sizeof(value),
		.mode		= table->mode,
	};

	BUILD_BUG_ON(sizeof(value) != sizeof(u64));
	if (write) {
		WRITE_ONCE(*zero, sum(zero - zeros));
		return 0;
	}
	value = sum(zero - zeros) - READ_ONCE(*zero);
	return proc_doulongvec_minmax(&shown, 0, buffer, lenp, ppos);
}

static struct ctl_table_header *header;

#define STAT(name, which)						\
	{								\
		.procname	= name,					\
		.data		= &zeros[which],			\
		.maxlen		= sizeof(u64),				\
		.mode		= 0644,					\
		.proc_handler	= stat_handler,				\
	}

static const struct ctl_table table[] = {
	/* The first ones in the order of enum rpcrdma_svc_stat. */
	STAT("rdma_stat_read", RPCRDMA_SVC_STAT_READ),
	STAT("rdma_stat_recv", RPCRDMA_SVC_STAT_RECV),
	STAT("rdma_stat_write", RPCRDMA_SVC_STAT_WRITE),
	STAT("rdma_stat_sq_starve", RPCRDMA_SVC_STAT_SQ_STARVE),
	STAT("accepts_paced", RPCRDMA_SVC_STAT_PACED),
	RPCRDMA_TUNABLE("max_requests", rpcrdma_sysctl_svc_max_requests,
			min_requests, max_requests),
	RPCRDMA_TUNABLE("max_req_size", rpcrdma_sysctl_svc_max_req_size,
			min_req_size, max_req_size),
	RPCRDMA_TUNABLE("max_outbound_read_requests", rpcrdma_sysctl_svc_max_outbound_reads,
			min_reads, max_reads),
	RPCRDMA_TUNABLE("transfer_memory", rpcrdma_sysctl_svc_transfer_memory,
			min_transfer_memory, max_transfer_memory),
	RPCRDMA_TUNABLE("send_buffers", rpcrdma_sysctl_svc_send_buffers,
			min_send_buffers, max_send_buffers),
	RPCRDMA_TUNABLE("receive_memory", rpcrdma_sysctl_svc_receive_memory,
			min_transfer_memory, max_transfer_memory),
};

/**
 * rpcrdma_sysctl_svc_register - make tunables and counters visible
 *
 * Events before that are not counted.
 *
 * Return values:
 *   %0:	they can be read and written
 *   %-ENOMEM:	they cannot, and nothing is counted
 */
int rpcrdma_sysctl_svc_register(void)
{
	stats = alloc_percpu(struct svc_stats);
	if (!stats)
		return -ENOMEM;
	header = register_sysctl("sunrpc/svc_rdma", table);
	if (!header) {
		free_percpu(stats);
		stats = NULL;
		return -ENOMEM;
	}
	/* There may be connections already. */
	smp_store_release(&counting, stats);
	return 0;
}

/**
 * rpcrdma_sysctl_svc_unregister - undo rpcrdma_sysctl_svc_register()
 *
 * Does nothing if that has failed. There must be no connection any more.
 */
void rpcrdma_sysctl_svc_unregister(void)
{
	unregister_sysctl_table(header);
	header = NULL;
	counting = NULL;
	free_percpu(stats);
	stats = NULL;
}

/**
 * rpcrdma_sysctl_svc_count - add to a counter
 * @which: counter
 * @count: what to add
 *
 * May be called from any context.
 */
void rpcrdma_sysctl_svc_count(enum rpcrdma_svc_stat which, u64 count)
{
	struct svc_stats __percpu *now = READ_ONCE(counting);

	if (now)
		this_cpu_add(now->counts[which], count);
}

/**
 * rpcrdma_sysctl_svc_show - read a counter as a program does from its file
 * @which: counter
 * @buffer: where the text goes
 * @size: size of @buffer in octets
 *
 * For the tests. Return: the length of the text, or a negative errno.
 */
int rpcrdma_sysctl_svc_show(enum rpcrdma_svc_stat which, char *buffer,
			    size_t size)
{
	loff_t pos = 0;
	int error;

	if (!header)
		return -ENODEV;
	error = stat_handler(&table[which], 0, buffer, &size, &pos);
	return error ? error : (int)size;
}

#else

int rpcrdma_sysctl_svc_register(void)
{
	return 0;
}

void rpcrdma_sysctl_svc_unregister(void)
{
}

void rpcrdma_sysctl_svc_count(enum rpcrdma_svc_stat which, u64 count)
{
}

int rpcrdma_sysctl_svc_show(enum rpcrdma_svc_stat which, char *buffer,
			    size_t size)
{
	return -ENODEV;
}

#endif /* CONFIG_SYSCTL */
