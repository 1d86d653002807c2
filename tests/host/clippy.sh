#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The module compiles without a warning of clippy, with the kernel's own lints.
# timeout: 300
set -eu -o pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# As the module for uml was compiled, but without making an object of it.
compiled=$MODULE_DIR/rust/.rpcrdma_main.o.cmd
command=$(sed -n 's/^savedcmd[^:]*:= //p' "$compiled")
[[ $command == *' rustc '*'--emit=obj='* ]] || {
	echo "$compiled does not say how the module was compiled"
	exit 1
}
command=${command/ rustc / clippy-driver -Dwarnings }
command=$(sed "s|--emit=[^ ]*||g; s|--out-dir [^ ]*|--emit=metadata=$work/module.rmeta|" <<<"$command")
cd "$MODULE_DIR"
export RUSTC_BOOTSTRAP=1 CLIPPY_CONF_DIR=$KDIR/source RPCRDMA_OBJ=$MODULE_DIR
eval "$command"
[ -s "$work/module.rmeta" ]
