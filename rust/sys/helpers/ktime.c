// SPDX-License-Identifier: GPL-2.0

#include <linux/ktime.h>

s64 rpcrdma_helper_ktime_get(void)
{
	return ktime_get();
}
