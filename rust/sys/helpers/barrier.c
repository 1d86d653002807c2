// SPDX-License-Identifier: GPL-2.0

#include <asm/barrier.h>

void rpcrdma_helper_smp_mb(void)
{
	smp_mb();
}
