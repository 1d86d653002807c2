#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The hostile peers write and read both protocols of Version Two as messages have it that were written by hand.
set -eu
python3 -B tests/lib/vectors.py
python3 -B tests/lib/vectors_2016.py
