/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included in front of the network driver of User Mode Linux. It takes the locks of its queues in
 * a soft interrupt (vector_poll), and without keeping these off when an interface is brought up or
 * its counters are read (vector_reset_stats, vector_get_ethtool_stats). Lockdep says so, rightly,
 * and looks at nothing else afterwards. So they are taken with soft interrupts off everywhere.
 */
#include <linux/netdevice.h>
#include <linux/etherdevice.h>

/* The driver has its own. */
#undef pr_fmt

/* The list of devices is locked early at boot, when all interrupts have to stay off. */
static spinlock_t vector_devices_lock;
#define is_of_queue(lock) ((lock) != &vector_devices_lock)
#define spin_lock(lock) (is_of_queue(lock) ? spin_lock_bh(lock) : (spin_lock)(lock))
#define spin_trylock(lock) spin_trylock_bh(lock)
#define spin_unlock(lock) (is_of_queue(lock) ? spin_unlock_bh(lock) : (spin_unlock)(lock))
