// SPDX-License-Identifier: GPL-2.0
/*
 * What modinfo tells, for which the module! macro has no field.
 *
 * The version: if two modules have the same name and neither has a version, DKMS
 * takes them for the same, and keeps the stock one. It is the same as in dkms.conf.
 * The revision is only there if it is known, see revision.sh.
 */
#include <linux/module.h>

#include "revision_generated.h"

MODULE_VERSION("0.1");
#ifdef RPCRDMA_REVISION
MODULE_INFO(revision, RPCRDMA_REVISION);
#endif
MODULE_INFO(report, "to the issue tracker of the repository or package that this module is from, with the output of rpcrdma-report; see SUPPORT.md");
