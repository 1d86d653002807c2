// SPDX-License-Identifier: GPL-2.0

#include <linux/ratelimit.h>

bool rpcrdma_helper_printk_ratelimited(void)
{
	static DEFINE_RATELIMIT_STATE(state, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	/* The name stands before "callbacks suppressed" in the log. */
	return ___ratelimit(&state, KBUILD_MODNAME);
}
