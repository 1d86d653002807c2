// SPDX-License-Identifier: GPL-2.0

#include <linux/module.h>

struct module *rpcrdma_helper_this_module(void)
{
	return THIS_MODULE;
}

bool rpcrdma_helper_this_module_try_get(void)
{
	return try_module_get(THIS_MODULE);
}

void rpcrdma_helper_this_module_put(void)
{
	module_put(THIS_MODULE);
}

void rpcrdma_helper_this_module_get(void)
{
	__module_get(THIS_MODULE);
}
