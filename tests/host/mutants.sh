#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The tests of rust/proto find $ROUNDS mutants of it, or all that there are.
# timeout: 600 21600
# rounds: 15 all
set -eu
[ "$ROUNDS" = all ] || set -- --sample "$ROUNDS"
tools/mutants "$@"
