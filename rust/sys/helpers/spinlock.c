// SPDX-License-Identifier: GPL-2.0

#include <linux/spinlock.h>

void rpcrdma_helper_spin_lock(spinlock_t *lock)
{
	spin_lock(lock);
}

void rpcrdma_helper_spin_unlock(spinlock_t *lock)
{
	spin_unlock(lock);
}
