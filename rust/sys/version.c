// SPDX-License-Identifier: GPL-2.0
/*
 * The version, which the module! macro has no field for. DKMS takes two modules
 * of one name for the same when neither has a version, and then keeps the
 * stock one. It is the same as in dkms.conf.
 */
#include <linux/module.h>

MODULE_VERSION("0.1");
