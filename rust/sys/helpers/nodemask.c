// SPDX-License-Identifier: GPL-2.0

#include <linux/nodemask.h>

int rpcrdma_helper_num_online_nodes(void)
{
	return num_online_nodes();
}
