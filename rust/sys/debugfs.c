// SPDX-License-Identifier: GPL-2.0
/*
 * debugfs: one directory per transport of the client, one per connection of
 * the server; files to read, and some with counters that a write resets.
 *
 * The files refer to the module, which kernel::debugfs cannot make them do. They
 * have to: a file that is still open when its transport has gone is closed by
 * code of this module.
 */
#include <linux/debugfs.h>
#include <linux/kernel.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "rpcrdma_c.h"

static struct dentry *rpcrdma_debugfs_root;
static struct dentry *rpcrdma_debugfs_server;

static int rpcrdma_debugfs_show(struct seq_file *m, void *unused)
{
	const struct rpcrdma_debugfs_file *file = m->private;

	file->show(m, file);
	return 0;
}

static int rpcrdma_debugfs_open(struct inode *inode, struct file *f)
{
	return single_open(f, rpcrdma_debugfs_show, inode->i_private);
}

static ssize_t rpcrdma_debugfs_write(struct file *f, const char __user *text,
				     size_t len, loff_t *pos)
{
	const struct rpcrdma_debugfs_file *file = file_inode(f)->i_private;

	if (!file->reset)
		return -EPERM;
	file->reset(file);
	return len;
}

static const struct file_operations rpcrdma_debugfs_fops = {
	.owner		= THIS_MODULE,
	.open		= rpcrdma_debugfs_open,
	.read		= seq_read,
	.write		= rpcrdma_debugfs_write,
	.llseek		= seq_lseek,
	.release	= single_release,
};

/**
 * rpcrdma_debugfs_init - make the directory of all transports
 *
 * Nothing depends on debugfs: if this fails, there are no files.
 */
void rpcrdma_debugfs_init(void)
{
	rpcrdma_debugfs_root = debugfs_create_dir("rpcrdma", NULL);
	rpcrdma_debugfs_server = debugfs_create_dir("server",
						    rpcrdma_debugfs_root);
}

/**
 * rpcrdma_debugfs_exit - undo rpcrdma_debugfs_init()
 */
void rpcrdma_debugfs_exit(void)
{
	debugfs_remove(rpcrdma_debugfs_root);
	rpcrdma_debugfs_root = NULL;
	rpcrdma_debugfs_server = NULL;
}

/**
 * rpcrdma_debugfs_add_dir - make the directory of a transport
 * @server: true for a connection of the server
 * @id: number of the transport, or of the connection
 *
 * Return: the directory or an error pointer; the other functions take either.
 */
struct dentry *rpcrdma_debugfs_add_dir(bool server, unsigned int id)
{
	struct dentry *parent;
	char name[12];

	parent = server ? rpcrdma_debugfs_server : rpcrdma_debugfs_root;
	if (!parent)
		return ERR_PTR(-ENODEV);
	snprintf(name, sizeof(name), "%u", id);
	return debugfs_create_dir(name, parent);
}

/**
 * rpcrdma_debugfs_add_file - make a file
 * @dir: result of rpcrdma_debugfs_add_dir()
 * @name: name of the file
 * @file: called for each read, and for writes if it resets anything, until
 *	rpcrdma_debugfs_remove_dir() returns
 */
void rpcrdma_debugfs_add_file(struct dentry *dir, const char *name,
			      const struct rpcrdma_debugfs_file *file)
{
	debugfs_create_file(name, file->reset ? 0600 : 0400, dir, (void *)file,
			    &rpcrdma_debugfs_fops);
}

/**
 * rpcrdma_debugfs_remove_dir - remove a transport's directory with its files
 * @dir: result of rpcrdma_debugfs_add_dir()
 *
 * Waits for reads under way. Later reads of files that are open fail.
 */
void rpcrdma_debugfs_remove_dir(struct dentry *dir)
{
	debugfs_remove(dir);
}
