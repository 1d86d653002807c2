// SPDX-License-Identifier: GPL-2.0
/*
 * Log lines at debug level. Dynamic debug knows call sites in C only, so this is
 * the call site of all lines from Rust. pr_debug!() of the kernel crate is
 * compiled out of a kernel without debug assertions.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/printk.h>
#include <linux/ratelimit.h>

#include "rpcrdma_c.h"

/**
 * rpcrdma_log_debug - print a line at debug level
 * @arguments: what to print, a fmt::Arguments of Rust
 *
 * With dynamic debug an administrator decides whether the line is printed.
 * Without it there is no such switch, so the line is always printed, but no more
 * than ten lines in five seconds.
 */
void rpcrdma_log_debug(const void *arguments)
{
#ifdef CONFIG_DYNAMIC_DEBUG
	pr_debug("%pA\n", arguments);
#else
	static struct ratelimit_state state =
		RATELIMIT_STATE_INIT_FLAGS(state, DEFAULT_RATELIMIT_INTERVAL,
					   DEFAULT_RATELIMIT_BURST,
					   RATELIMIT_MSG_ON_RELEASE);

	if (__ratelimit(&state))
		printk(KERN_DEBUG pr_fmt("%pA\n"), arguments);
#endif
}
