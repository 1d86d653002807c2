/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included in front of the network driver of User Mode Linux. It takes the locks of its queues in
 * a soft interrupt (vector_poll), and without keeping these off when an interface is brought up or
 * its counters are read (vector_reset_stats, vector_get_ethtool_stats). Lockdep says so, rightly,
 * and looks at nothing else afterwards. So the driver keeps soft interrupts off everywhere.
 */
#include <linux/spinlock.h>

#define spin_lock(lock) spin_lock_bh(lock)
#define spin_trylock(lock) spin_trylock_bh(lock)
#define spin_unlock(lock) spin_unlock_bh(lock)
