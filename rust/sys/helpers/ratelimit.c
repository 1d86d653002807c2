// SPDX-License-Identifier: GPL-2.0

#include <linux/ratelimit.h>

bool rpcrdma_helper_printk_ratelimited(void)
{
	static DEFINE_RATELIMIT_STATE(state, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	return __ratelimit(&state);
}
