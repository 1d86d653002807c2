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
/* The protocol with version number two: 7, the later draft, or 2016. */
unsigned int rpcrdma_parameter_client_dialect = 7;
unsigned int rpcrdma_parameter_server_2016;
unsigned int rpcrdma_parameter_client_remote_invalidation = 1;
unsigned int rpcrdma_parameter_client_request_receive_size;
/* What peers are asked for: 0 for nothing, or the value and one. */
unsigned int rpcrdma_parameter_client_request_remote_invalidation;
unsigned int rpcrdma_parameter_server_request_callbacks;
unsigned int rpcrdma_parameter_keep_alive;
/* The connections of a device with Receive Queues of their own. */
unsigned int rpcrdma_parameter_own_receive_queues = 4096;
/* The number of times that client_version or client_dialect was set. */
unsigned int rpcrdma_parameter_client_version_set;

static int set_version(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 1, 2);
}

/* All that clients have learnt about servers is forgotten then. */
static void forget_servers(void)
{
	WRITE_ONCE(rpcrdma_parameter_client_version_set,
		   rpcrdma_parameter_client_version_set + 1);
}

static int set_client_version(const char *val, const struct kernel_param *kp)
{
	int error = set_version(val, kp);

	if (!error)
		forget_servers();
	return error;
}

static int set_client_dialect(const char *val, const struct kernel_param *kp)
{
	unsigned int *dialect = kp->arg;

	if (sysfs_streq(val, "07"))
		WRITE_ONCE(*dialect, 7);
	else if (sysfs_streq(val, "2016"))
		WRITE_ONCE(*dialect, 2016);
	else
		return -EINVAL;
	forget_servers();
	return 0;
}

static int get_client_dialect(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%02u\n", *(unsigned int *)kp->arg);
}

static int set_switch(const char *val, const struct kernel_param *kp)
{
	bool value;
	int error = kstrtobool(val, &value);

	if (!error)
		WRITE_ONCE(*(unsigned int *)kp->arg, value);
	return error;
}

static int get_switch(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%c\n", *(unsigned int *)kp->arg ? 'Y' : 'N');
}

/* Every receiver takes messages of 4096 bytes, so nobody is asked for less. */
static int set_request_size(const char *val, const struct kernel_param *kp)
{
	unsigned int size;
	int error = kstrtouint(val, 0, &size);

	if (error)
		return error;
	if (size && (size < 4096 || size > 1048576))
		return -EINVAL;
	WRITE_ONCE(*(unsigned int *)kp->arg, size);
	return 0;
}

static const char * const request_switches[] = { "any", "N", "Y" };
static const char * const request_levels[] = { "any", "none", "simple", "general" };

static int set_request_switch(const char *val, const struct kernel_param *kp)
{
	int value = __sysfs_match_string(request_switches, ARRAY_SIZE(request_switches), val);

	if (value < 0)
		return value;
	WRITE_ONCE(*(unsigned int *)kp->arg, value);
	return 0;
}

static int get_request_switch(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", request_switches[*(unsigned int *)kp->arg]);
}

static int set_request_level(const char *val, const struct kernel_param *kp)
{
	int value = __sysfs_match_string(request_levels, ARRAY_SIZE(request_levels), val);

	if (value < 0)
		return value;
	WRITE_ONCE(*(unsigned int *)kp->arg, value);
	return 0;
}

static int get_request_level(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", request_levels[*(unsigned int *)kp->arg]);
}

static const struct kernel_param_ops request_size_ops = {
	.set	= set_request_size,
	.get	= param_get_uint,
};

static const struct kernel_param_ops request_switch_ops = {
	.set	= set_request_switch,
	.get	= get_request_switch,
};

static const struct kernel_param_ops request_level_ops = {
	.set	= set_request_level,
	.get	= get_request_level,
};

/* A day at most. */
static int set_keep_alive(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 0, 86400);
}

static const struct kernel_param_ops keep_alive_ops = {
	.set	= set_keep_alive,
	.get	= param_get_uint,
};

static const struct kernel_param_ops client_dialect_ops = {
	.set	= set_client_dialect,
	.get	= get_client_dialect,
};

static const struct kernel_param_ops switch_ops = {
	.set	= set_switch,
	.get	= get_switch,
};

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
		 "Highest RPC-over-RDMA version offered to servers: 1 or 2 (default 2)");

module_param_cb(server_version, &version_ops, &rpcrdma_parameter_server_version, 0644);
MODULE_PARM_DESC(server_version,
		 "Highest RPC-over-RDMA version accepted from clients: 1 or 2 (default 2)");

module_param_named(own_receive_queues, rpcrdma_parameter_own_receive_queues, uint, 0644);
MODULE_PARM_DESC(own_receive_queues,
		 "Connections of a device that have their own Receive Queue; further ones share one; 0 = all share (default 4096)");

module_param_cb(client_dialect, &client_dialect_ops, &rpcrdma_parameter_client_dialect, 0644);
MODULE_PARM_DESC(client_dialect,
		 "Version Two draft offered to servers: 07 or 2016 (default 07)");

module_param_cb(server_2016, &switch_ops, &rpcrdma_parameter_server_2016, 0644);
MODULE_PARM_DESC(server_2016,
		 "Accept the 2016 draft of Version Two from clients (default N)");

module_param_cb(client_remote_invalidation, &switch_ops,
		&rpcrdma_parameter_client_remote_invalidation, 0644);
MODULE_PARM_DESC(client_remote_invalidation,
		 "2016 draft: let servers invalidate memory handles (default Y)");

module_param_cb(client_request_receive_size, &request_size_ops,
		&rpcrdma_parameter_client_request_receive_size, 0644);
MODULE_PARM_DESC(client_request_receive_size,
		 "2016 draft: bytes of the Receives that the client requests from servers: 4096 to 1048576; 0 = no request (default 0)");

module_param_cb(client_request_remote_invalidation, &request_switch_ops,
		&rpcrdma_parameter_client_request_remote_invalidation, 0644);
MODULE_PARM_DESC(client_request_remote_invalidation,
		 "2016 draft: remote invalidation by Replies to callbacks that the client requests: Y, N; any = no request (default any)");

module_param_cb(server_request_callbacks, &request_level_ops,
		&rpcrdma_parameter_server_request_callbacks, 0644);
MODULE_PARM_DESC(server_request_callbacks,
		 "2016 draft: callback service that the server requests from clients: none, simple, general; any = no request (default any)");

module_param_cb(keep_alive, &keep_alive_ops, &rpcrdma_parameter_keep_alive, 0644);
MODULE_PARM_DESC(keep_alive,
		 "2016 draft: seconds of silence before the peer is probed; 0 = never, at most 86400 (default 0)");
