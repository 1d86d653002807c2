#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The workload on a device behind an IOMMU, with the kernel's own DMA code for that.
# mode: pair
# fabrics: hca
# kernels: debian
# qemu: -device intel-iommu -device edu
# variants: iommu-3@ours-ours
# soak-variants: iommu-3@ours-ours iommu-4.0@ours-ours iommu-4.1@ours-ours iommu-4.2@ours-ours
# soak-variants: iommu-3@ours-ours-one iommu-4.0@ours-ours-one iommu-4.1@ours-ours-one
# soak-variants: iommu-4.2@ours-ours-one iommu-krb5i@ours-ours iommu-krb5i@ours-ours-one
# timeout: 200 400
# soak: only
"""See `dma_workload`. What the core's rdma_rw maps in one piece only behind an IOMMU, and addresses that
are reached after they were unmapped, are seen only here.
"""

import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from dma_workload import client, server  # noqa: E402

main(client, server)
