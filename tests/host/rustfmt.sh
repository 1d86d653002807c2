#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Every Rust file is formatted as rustfmt does it.
set -eu
find rust tools -name '*.rs' ! -path '*/target/*' ! -name '*_generated.rs' -print0 |
	xargs -0 rustfmt --edition 2021 --check --color never
