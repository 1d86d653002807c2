# SPDX-License-Identifier: GPL-2.0
"""What `tools/bench` runs in both guests."""

import bench
from case import main

main(bench.client, rnr="counted for each pair of modules")
