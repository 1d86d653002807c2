// SPDX-License-Identifier: GPL-2.0

#include <linux/workqueue.h>

void rpcrdma_helper_init_delayed_work(struct delayed_work *dwork,
				      work_func_t func, const char *name,
				      struct lock_class_key *key,
				      bool deferrable)
{
	if (deferrable)
		INIT_DEFERRABLE_WORK(dwork, func);
	else
		INIT_DELAYED_WORK(dwork, func);
	lockdep_init_map(&dwork->work.lockdep_map, name, key, 0);
}

bool rpcrdma_helper_queue_delayed_work(struct workqueue_struct *wq,
				       struct delayed_work *dwork,
				       unsigned long delay)
{
	return queue_delayed_work(wq, dwork, delay);
}
