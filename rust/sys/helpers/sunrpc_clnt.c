// SPDX-License-Identifier: GPL-2.0

#include <linux/sunrpc/clnt.h>
#include <linux/sunrpc/auth.h>

bool rpcrdma_helper_rpc_reply_expected(struct rpc_task *task)
{
	return rpc_reply_expected(task);
}

bool rpcrdma_helper_rpc_is_queued(struct rpc_task *task)
{
	return RPC_IS_QUEUED(task);
}
