#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# 10,000 RPCs of each kind with a peer that reads the draft of Version Two in every way there is.
# timeout: 900 9000
# soak: only
set -eu
cd tools
LITERAL_RPCS=10000 cargo test --locked --color never --lib -- every_reading_is_served --nocapture
