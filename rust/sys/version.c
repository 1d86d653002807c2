// SPDX-License-Identifier: GPL-2.0
/*
 * The version, for which the module! macro has no field. If two modules have the
 * same name and neither has a version, DKMS takes them for the same, and keeps
 * the stock one. The version is the same as in dkms.conf.
 */
#include <linux/module.h>

MODULE_VERSION("0.1");
