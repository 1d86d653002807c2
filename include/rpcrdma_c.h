/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interface between the C objects of the module and its Rust code.
 */
#ifndef RPCRDMA_C_H
#define RPCRDMA_C_H

#include <linux/types.h>
#include <linux/sunrpc/svc_xprt.h>
#include <linux/sunrpc/xprt.h>

struct dentry;
struct seq_file;

/**
 * struct rpcrdma_xprt - the memory of a transport of this module
 * @xprt: the part that SUNRPC sees
 * @timeout: the timeouts of @xprt once they were changed
 * @state: a reference to the Rust object that is the transport
 * @release: gives up @state; true if nothing can reach @xprt any more
 * @handles: 1 while the Rust side can reach @xprt, else 0
 * @cong_epoch: counts resets of the congestion window, under transport_lock
 * @hex_addr: one of the address strings of @xprt
 * @port: likewise
 * @hex_port: likewise
 */
struct rpcrdma_xprt {
	struct rpc_xprt xprt;
	struct rpc_timeout timeout;
	const void *state;
	bool (*release)(struct rpc_xprt *xprt);
	u32 handles;
	u32 cong_epoch;
	char hex_addr[33];
	char port[6];
	char hex_port[5];
};

/* rust/sys/classes.c */
extern struct xprt_class rpcrdma_class_client;
extern struct xprt_class rpcrdma_class_backchannel;
int rpcrdma_class_register(struct rpc_xprt *(*setup)(struct xprt_create *args));
void rpcrdma_class_unregister(void);
void rpcrdma_class_xprt_destroy(struct rpc_xprt *xprt);

extern struct svc_xprt_class rpcrdma_class_server;
int rpcrdma_class_server_register(const struct svc_xprt_ops *ops,
				  struct rpc_xprt *(*setup)(struct xprt_create *args));
void rpcrdma_class_server_unregister(void);

/* rust/sys/parameters.c */
extern unsigned int rpcrdma_parameter_client_version;
extern unsigned int rpcrdma_parameter_client_version_set;
extern unsigned int rpcrdma_parameter_client_dialect;
extern unsigned int rpcrdma_parameter_server_2016;
extern unsigned int rpcrdma_parameter_client_remote_invalidation;
extern unsigned int rpcrdma_parameter_client_request_receive_size;
extern unsigned int rpcrdma_parameter_client_request_remote_invalidation;
extern unsigned int rpcrdma_parameter_server_request_callbacks;
extern unsigned int rpcrdma_parameter_keep_alive;
extern unsigned int rpcrdma_parameter_own_receive_queues;
extern unsigned int rpcrdma_parameter_server_version;

/**
 * enum rpcrdma_host_auth - the mode of host authentication of peers
 * @RPCRDMA_HOST_AUTH_OFF: no peer authenticates itself
 * @RPCRDMA_HOST_AUTH_OFFER: peers may authenticate themselves
 * @RPCRDMA_HOST_AUTH_REQUIRE: all peers must authenticate themselves
 */
enum rpcrdma_host_auth {
	RPCRDMA_HOST_AUTH_OFF,
	RPCRDMA_HOST_AUTH_OFFER,
	RPCRDMA_HOST_AUTH_REQUIRE,
};

/* rust/sys/host_auth.c */
extern unsigned int rpcrdma_parameter_client_host_auth;
extern unsigned int rpcrdma_parameter_server_host_auth;
extern unsigned int rpcrdma_parameter_host_auth_padding;
bool rpcrdma_host_auth_has_key(void);
bool rpcrdma_host_auth_mac(const u8 *data, size_t len, u8 *mac);
void rpcrdma_host_auth_exit(void);

/* rust/sys/log.c */
void rpcrdma_log_debug(const void *arguments);

/* A tunable in a table of sysctls, from @least to @most. */
#define RPCRDMA_TUNABLE(name, variable, least, most)		\
	{							\
		.procname	= name,				\
		.data		= &(variable),			\
		.maxlen		= sizeof(unsigned int),		\
		.mode		= 0644,				\
		.proc_handler	= proc_douintvec_minmax,	\
		.extra1		= &(least),			\
		.extra2		= &(most),			\
	}

/* rust/sys/sysctl.c */
extern unsigned int rpcrdma_sysctl_slot_table_entries;
extern unsigned int rpcrdma_sysctl_max_inline_read;
extern unsigned int rpcrdma_sysctl_max_inline_write;
int rpcrdma_sysctl_register(void);
void rpcrdma_sysctl_unregister(void);

/**
 * enum rpcrdma_svc_stat - counters of a server, over all its connections
 * @RPCRDMA_SVC_STAT_READ: RDMA Reads, one for each segment that was read
 * @RPCRDMA_SVC_STAT_RECV: messages that were received
 * @RPCRDMA_SVC_STAT_WRITE: RDMA Writes
 * @RPCRDMA_SVC_STAT_SQ_STARVE: times that something waited for the Send Queue
 * @RPCRDMA_SVC_STAT_PACED: pauses before another connection is accepted
 * @RPCRDMA_SVC_STATS: the number of counters
 */
enum rpcrdma_svc_stat {
	RPCRDMA_SVC_STAT_READ,
	RPCRDMA_SVC_STAT_RECV,
	RPCRDMA_SVC_STAT_WRITE,
	RPCRDMA_SVC_STAT_SQ_STARVE,
	RPCRDMA_SVC_STAT_PACED,
	RPCRDMA_SVC_STATS,
};

/* rust/sys/svc_sysctl.c */
extern unsigned int rpcrdma_sysctl_svc_max_requests;
extern unsigned int rpcrdma_sysctl_svc_max_req_size;
extern unsigned int rpcrdma_sysctl_svc_max_outbound_reads;
extern unsigned int rpcrdma_sysctl_svc_transfer_memory;
extern unsigned int rpcrdma_sysctl_svc_send_buffers;
extern unsigned int rpcrdma_sysctl_svc_receive_memory;
int rpcrdma_sysctl_svc_register(void);
void rpcrdma_sysctl_svc_unregister(void);
void rpcrdma_sysctl_svc_count(enum rpcrdma_svc_stat which, u64 count);
int rpcrdma_sysctl_svc_show(enum rpcrdma_svc_stat which, char *buffer,
			    size_t size);

/**
 * struct rpcrdma_debugfs_file - a file in debugfs
 * @show: writes the contents; may sleep. It is given this structure, which is
 *	part of a larger one.
 * @reset: called when something is written into the file, which is only for
 *	reading if this is %NULL
 */
struct rpcrdma_debugfs_file {
	void (*show)(struct seq_file *m, const struct rpcrdma_debugfs_file *file);
	void (*reset)(const struct rpcrdma_debugfs_file *file);
};

/* rust/sys/debugfs.c */
void rpcrdma_debugfs_init(void);
void rpcrdma_debugfs_exit(void);
struct dentry *rpcrdma_debugfs_add_dir(bool server, unsigned int id);
void rpcrdma_debugfs_add_file(struct dentry *dir, const char *name,
			      const struct rpcrdma_debugfs_file *file);
void rpcrdma_debugfs_remove_dir(struct dentry *dir);

#endif
