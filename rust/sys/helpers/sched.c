// SPDX-License-Identifier: GPL-2.0

#include <linux/sched.h>
#include <linux/sched/mm.h>

unsigned int rpcrdma_helper_memalloc_nofs_save(void)
{
	return memalloc_nofs_save();
}

void rpcrdma_helper_memalloc_nofs_restore(unsigned int flags)
{
	memalloc_nofs_restore(flags);
}

unsigned int rpcrdma_helper_memalloc_noreclaim_save(void)
{
	return memalloc_noreclaim_save();
}

void rpcrdma_helper_memalloc_noreclaim_restore(unsigned int flags)
{
	memalloc_noreclaim_restore(flags);
}
