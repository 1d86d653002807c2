// SPDX-License-Identifier: GPL-2.0
/*
 * The tunables of the client under /proc/sys/sunrpc.
 */
#include <linux/sysctl.h>

#include "rpcrdma_c.h"

unsigned int rpcrdma_sysctl_slot_table_entries = 128;
unsigned int rpcrdma_sysctl_max_inline_read = 4096;
unsigned int rpcrdma_sysctl_max_inline_write = 4096;

#ifdef CONFIG_SYSCTL

static unsigned int min_slots = 4;
static unsigned int max_slots = 16384;
static unsigned int min_inline = 1024;
static unsigned int max_inline = 65536;

static struct ctl_table_header *header;

static const struct ctl_table table[] = {
	RPCRDMA_TUNABLE("rdma_slot_table_entries", rpcrdma_sysctl_slot_table_entries,
			min_slots, max_slots),
	RPCRDMA_TUNABLE("rdma_max_inline_read", rpcrdma_sysctl_max_inline_read,
			min_inline, max_inline),
	RPCRDMA_TUNABLE("rdma_max_inline_write", rpcrdma_sysctl_max_inline_write,
			min_inline, max_inline),
};

/**
 * rpcrdma_sysctl_register - make the tunables visible
 *
 * Return values:
 *   %0:	they can be read and written
 *   %-ENOMEM:	they cannot
 */
int rpcrdma_sysctl_register(void)
{
	header = register_sysctl("sunrpc", table);
	return header ? 0 : -ENOMEM;
}

/**
 * rpcrdma_sysctl_unregister - undo rpcrdma_sysctl_register()
 */
void rpcrdma_sysctl_unregister(void)
{
	unregister_sysctl_table(header);
	header = NULL;
}

#else

int rpcrdma_sysctl_register(void)
{
	return 0;
}

void rpcrdma_sysctl_unregister(void)
{
}

#endif /* CONFIG_SYSCTL */
