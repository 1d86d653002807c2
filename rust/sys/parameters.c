// SPDX-License-Identifier: GPL-2.0
/*
 * Module parameters that can be changed while the module is loaded. The
 * module! macro only makes parameters that can be given to insmod.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "rpcrdma_c.h"

unsigned int rpcrdma_parameter_client_version = 2;
unsigned int rpcrdma_parameter_server_version = 2;
/* The number of times that client_version was set. */
unsigned int rpcrdma_parameter_client_version_set;

static int set_version(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 1, 2);
}

/* All that clients have learnt about servers is forgotten then. */
static int set_client_version(const char *val, const struct kernel_param *kp)
{
	int error = set_version(val, kp);

	if (!error)
		WRITE_ONCE(rpcrdma_parameter_client_version_set,
			   rpcrdma_parameter_client_version_set + 1);
	return error;
}

static const struct kernel_param_ops client_version_ops = {
	.set	= set_client_version,
	.get	= param_get_uint,
};

static const struct kernel_param_ops version_ops = {
	.set	= set_version,
	.get	= param_get_uint,
};

module_param_cb(client_version, &client_version_ops, &rpcrdma_parameter_client_version, 0644);
MODULE_PARM_DESC(client_version,
		 "Highest version that new connections of the client offer: 1 or 2");

module_param_cb(server_version, &version_ops, &rpcrdma_parameter_server_version, 0644);
MODULE_PARM_DESC(server_version,
		 "Highest version that new connections of the server accept: 1 or 2");
