#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
# The workload where a device reaches memory by mappings alone, in each version of NFS, and with Kerberos.
# mode: pair
# fabrics: hca
# kernels: debian
# kernel-options: swiotlb=force,track_hiwater
# variants: swiotlb-4.2@ours-ours-one
# soak-variants: swiotlb-3@ours-ours swiotlb-4.0@ours-ours swiotlb-4.1@ours-ours
# soak-variants: swiotlb-4.2@ours-ours swiotlb-krb5i@ours-ours swiotlb-krb5p@ours-ours
# soak-variants: swiotlb-3@ours-ours-one swiotlb-4.0@ours-ours-one swiotlb-4.1@ours-ours-one
# soak-variants: swiotlb-4.2@ours-ours-one swiotlb-krb5i@ours-ours-one swiotlb-krb5p@ours-ours-one
# soak-variants: slot-3@ours-ours slot-4.0@ours-ours slot-4.1@ours-ours slot-4.2@ours-ours
# soak-variants: slot-3@ours-ours-one slot-4.0@ours-ours-one slot-4.1@ours-ours-one
# soak-variants: slot-4.2@ours-ours-one
# soak-variants: granule-3@ours-ours granule-4.0@ours-ours granule-4.1@ours-ours
# soak-variants: granule-4.2@ours-ours granule-krb5i@ours-ours granule-krb5i@ours-ours-one
# soak-variants: granule-3@ours-ours-one granule-4.0@ours-ours-one granule-4.1@ours-ours-one
# soak-variants: granule-4.2@ours-ours-one
# timeout: 200 400
"""See `dma_workload`. `swiotlb` is the kernel's own DMA code, which has to bounce everything, as in a
confidential guest.
"""

import sys

sys.path.insert(0, "tests/lib")
from case import main  # noqa: E402
from dma_workload import client, server  # noqa: E402

main(client, server)
