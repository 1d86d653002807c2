#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The demonstration: one guest that mounts its own export over Version Two, our module at both ends.
# mode: run
# fabrics: rxe
# insert: yes
# kernels: uml
# smoke: uml-sanitize
# soak-smoke: uml-sanitize debug
# timeout: 120
set -eu
exec bash tools/guest.d/demo
