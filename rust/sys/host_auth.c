// SPDX-License-Identifier: GPL-2.0
/*
 * The key of the example of host authentication, and the module parameters
 * around it. The key does not leave this file.
 */
#include <crypto/sha2.h>
#include <linux/hex.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "rpcrdma_c.h"

/* Octets of a key. A shorter one could be guessed, see rust/proto/auth/psk.rs. */
#define KEY_MIN 16
#define KEY_MAX 64

unsigned int rpcrdma_parameter_client_host_auth;
unsigned int rpcrdma_parameter_server_host_auth;
unsigned int rpcrdma_parameter_host_auth_padding;

/* Protects the two below; taken by handlers of Receives, in a thread. */
static DEFINE_SPINLOCK(key_lock);
static struct hmac_sha256_key key;
static bool has_key;

/*
 * An even number of hexadecimal digits is a key; an empty value removes it. The
 * module loader writes a value that is refused to the log. So a value that is
 * given with insmod is never refused, but is ignored if it is not a key.
 */
static int set_key(const char *val, const struct kernel_param *kp)
{
	struct hmac_sha256_key prepared = {};
	u8 raw[KEY_MAX] = {};
	size_t digits;
	int ret = 0;

	digits = strcspn(val, "\n");
	if (digits && (digits % 2 || digits < 2 * KEY_MIN ||
		       digits > 2 * KEY_MAX || hex2bin(raw, val, digits / 2)))
		ret = -EINVAL;
	if (digits && !ret)
		hmac_sha256_preparekey(&prepared, raw, digits / 2);
	if (!ret) {
		spin_lock(&key_lock);
		key = prepared;
		has_key = digits != 0;
		spin_unlock(&key_lock);
	}
	memzero_explicit(raw, sizeof(raw));
	memzero_explicit(&prepared, sizeof(prepared));
	if (ret && THIS_MODULE->state != MODULE_STATE_LIVE) {
		pr_warn("rpcrdma: host_auth_key: expected 32 to 128 hexadecimal digits; ignoring it\n");
		ret = 0;
	}
	return ret;
}

/* The key cannot be read. */
static const struct kernel_param_ops key_ops = {
	.set	= set_key,
};

module_param_cb(host_auth_key, &key_ops, NULL, 0200);
MODULE_PARM_DESC(host_auth_key,
		 "Key of host authentication: 32 to 128 hexadecimal digits (default: none)");

/* In the order of enum rpcrdma_host_auth. */
static const char *const modes[] = { "off", "offer", "require" };

static int set_mode(const char *val, const struct kernel_param *kp)
{
	int mode = sysfs_match_string(modes, val);

	if (mode < 0)
		return mode;
	WRITE_ONCE(*(unsigned int *)kp->arg, mode);
	return 0;
}

static int get_mode(char *buffer, const struct kernel_param *kp)
{
	unsigned int mode = READ_ONCE(*(unsigned int *)kp->arg);

	return sysfs_emit(buffer, "%s\n", modes[mode]);
}

static const struct kernel_param_ops mode_ops = {
	.set	= set_mode,
	.get	= get_mode,
};

module_param_cb(client_host_auth, &mode_ops, &rpcrdma_parameter_client_host_auth, 0644);
MODULE_PARM_DESC(client_host_auth,
		 "Host authentication of servers, Version Two only: off, offer or require (default off)");

module_param_cb(server_host_auth, &mode_ops, &rpcrdma_parameter_server_host_auth, 0644);
MODULE_PARM_DESC(server_host_auth,
		 "Host authentication of clients, Version Two only: off, offer or require (default off)");

static int set_padding(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 0, 16000);
}

static const struct kernel_param_ops padding_ops = {
	.set	= set_padding,
	.get	= param_get_uint,
};

module_param_cb(host_auth_padding, &padding_ops, &rpcrdma_parameter_host_auth_padding, 0644);
MODULE_PARM_DESC(host_auth_padding,
		 "Bytes of padding in host authentication messages, for testing only (default 0)");

/**
 * rpcrdma_host_auth_has_key - tell if there is a key
 */
bool rpcrdma_host_auth_has_key(void)
{
	return READ_ONCE(has_key);
}

/**
 * rpcrdma_host_auth_mac - HMAC-SHA256 with the key
 * @data: data to sign
 * @len: length of @data in octets
 * @mac: room for SHA256_DIGEST_SIZE octets
 *
 * Return values:
 *   %true:	@mac has the result
 *   %false:	there is no key
 */
bool rpcrdma_host_auth_mac(const u8 *data, size_t len, u8 *mac)
{
	bool done;

	spin_lock(&key_lock);
	done = has_key;
	if (done)
		hmac_sha256(&key, data, len, mac);
	spin_unlock(&key_lock);
	return done;
}

/**
 * rpcrdma_host_auth_exit - forget the key
 */
void rpcrdma_host_auth_exit(void)
{
	spin_lock(&key_lock);
	has_key = false;
	memzero_explicit(&key, sizeof(key));
	spin_unlock(&key_lock);
}
