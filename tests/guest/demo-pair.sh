#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The demonstration in two guests: our client, and a stock NFS server.
# mode: pair
# fabrics: rxe
# kernels: uml
# soak: only
# timeout: 120
set -eu
[ "$1" = client ] || { . "$GUEST_LIB" && start_nfs_server && echo READY && exec sleep infinity; }
exec bash tools/guest.d/demo
