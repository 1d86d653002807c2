#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The tests of rust/proto find mutants of the lines that were changed last; in make soak all that there are.
# timeout: 600 21600
# rounds: 6 all
set -eu
if [ "$ROUNDS" = all ]; then
	tools/mutants
else
	tools/mutants --changed --sample "$ROUNDS"
fi
