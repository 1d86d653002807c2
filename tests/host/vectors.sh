#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The hostile peers write and read Version Two as messages have it that were written by hand.
set -eu
python3 -B tests/lib/vectors.py
