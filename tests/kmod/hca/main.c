// SPDX-License-Identifier: GPL-2.0
/*
 * Devices: how they come and go.
 *
 *   rdma link add hca0 type hca netdev d0
 *   rdma link del hca0
 *
 * There are more types, see profile.c.
 *
 * A device is ib_core's from ib_register_device() on, and ends in
 * hca_dealloc_driver(), however it is removed: by its link, with its network
 * device, or with this module. DMA is mapped for a platform device of its own,
 * which is there as long as it is, or for a PCI device, see dma.c.
 */
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <net/addrconf.h>
#include <rdma/iw_cm.h>
#include <rdma/rdma_netlink.h>
#include "hca.h"

/* Engines are bottom halves, as a device's own work is no task's. */
struct workqueue_struct *hca_bh_wq;
/* Events, which consumers hear of in a task. */
struct workqueue_struct *hca_wq;

/* All devices that datagrams can be sent to; of each only its QP1 is used. */
LIST_HEAD(hca_devices);
DEFINE_SPINLOCK(hca_devices_lock);

/* The last that ib_core does with a device: it is not used any more. */
void hca_dealloc_driver(struct ib_device *ib)
{
	struct hca_dev *hca = to_hca(ib);

	spin_lock_irq(&hca_devices_lock);
	list_del_init(&hca->entry);
	spin_unlock_irq(&hca_devices_lock);
	hca_count_exit(hca);
	cancel_work_sync(&hca->fault.work);
	if (!IS_ERR_OR_NULL(hca->pdev)) {
		hca_dma_exit(hca);
		platform_device_unregister(hca->pdev);
	}
}

static bool hca_is_up(struct net_device *ndev)
{
	return netif_running(ndev) && netif_carrier_ok(ndev);
}

/* What distinguishes a device of iWARP from one of RoCE. No daemon maps its ports. */
static void hca_set_iwarp(struct hca_dev *hca, struct net_device *ndev)
{
	ib_set_device_ops(&hca->ib, &hca_iw_ops);
	hca->ib.node_type = RDMA_NODE_RNIC;
	hca->ib.iw_driver_flags = IW_F_NO_PORT_MAP;
	strscpy(hca->ib.iw_ifname, ndev->name, sizeof(hca->ib.iw_ifname));
	memcpy(hca->gid.raw, ndev->dev_addr, ETH_ALEN);
}

int hca_newlink(const char *name, struct net_device *ndev, const struct hca_profile *profile)
{
	struct platform_device_info info = {
		.name = name,
		.id = PLATFORM_DEVID_NONE,
		.dma_mask = DMA_BIT_MASK(64),
	};
	struct hca_dev *hca;
	struct ib_device *other;
	int error;

	other = ib_device_get_by_netdev(ndev, HCA_DRIVER_ID);
	if (other) {
		ib_device_put(other);
		return -EEXIST;
	}
	hca = ib_alloc_device(hca_dev, ib);
	if (!hca)
		return -ENOMEM;
	hca->profile = profile;
	INIT_LIST_HEAD(&hca->entry);
	hca_fault_init(hca);
	hca_cq_set(hca);
	hca_qp_set(hca);
	hca->up = hca_is_up(ndev);
	hca->ib.node_type = RDMA_NODE_IB_CA;
	if (profile->iwarp)
		hca_set_iwarp(hca, ndev);
	ib_set_device_ops(&hca->ib, &hca_ops);
	hca->ib.uverbs_cmd_mask |= HCA_UVERBS_CMDS;
	hca->ib.phys_port_cnt = 1;
	hca->ib.num_comp_vectors = profile->vectors;
	if (profile->local_dma_lkey)
		hca->ib.local_dma_lkey = HCA_LOCAL_DMA_LKEY;
	addrconf_addr_eui48((u8 *)&hca->ib.node_guid, ndev->dev_addr);
	strscpy(hca->ib.node_desc, "hca", sizeof(hca->ib.node_desc));

	hca->pdev = platform_device_register_full(&info);
	if (IS_ERR(hca->pdev)) {
		error = PTR_ERR(hca->pdev);
		goto fail;
	}
	error = hca_dma_init(hca);
	if (error)
		goto fail;
	error = ib_device_set_netdev(&hca->ib, ndev, 1);
	if (error)
		goto fail;
	ib_mark_name_assigned_by_user(&hca->ib);
	error = ib_register_device(&hca->ib, name, hca->dma.dev);
	if (error)
		goto fail;
	return 0;

fail:
	ib_dealloc_device(&hca->ib);
	return error;
}

static int hca_netdev_event(struct notifier_block *nb, unsigned long event, void *arg)
{
	struct net_device *ndev = netdev_notifier_info_to_dev(arg);
	struct ib_device *ib;

	ib = ib_device_get_by_netdev(ndev, HCA_DRIVER_ID);
	if (!ib)
		return NOTIFY_OK;
	if (ib->ops.owner == THIS_MODULE) {
		WRITE_ONCE(to_hca(ib)->up, hca_is_up(ndev));
		if (event == NETDEV_UNREGISTER)
			ib_unregister_device_queued(ib);
	}
	ib_device_put(ib);
	return NOTIFY_OK;
}

static struct notifier_block hca_netdev_nb = {
	.notifier_call = hca_netdev_event,
};

static int __init hca_init(void)
{
	int error = -ENOMEM;

	hca_bh_wq = alloc_workqueue("hca", WQ_BH | WQ_PERCPU, 0);
	hca_wq = alloc_workqueue("hca_events", WQ_MEM_RECLAIM | WQ_UNBOUND, 0);
	if (!hca_bh_wq || !hca_wq)
		goto fail;
	hca_debugfs = debugfs_create_dir("hca", NULL);
	error = register_netdevice_notifier(&hca_netdev_nb);
	if (error)
		goto fail;
	hca_profiles_register();
	return 0;

fail:
	debugfs_remove(hca_debugfs);
	if (hca_bh_wq)
		destroy_workqueue(hca_bh_wq);
	if (hca_wq)
		destroy_workqueue(hca_wq);
	return error;
}
module_init(hca_init);

static void __exit hca_exit(void)
{
	hca_profiles_unregister();
	unregister_netdevice_notifier(&hca_netdev_nb);
	/* No guest has a device of the driver whose id this is. */
	ib_unregister_driver(HCA_DRIVER_ID);
	debugfs_remove(hca_debugfs);
	destroy_workqueue(hca_bh_wq);
	destroy_workqueue(hca_wq);
}
module_exit(hca_exit);

MODULE_DESCRIPTION("Test aid: an RDMA device as strict as hardware");
MODULE_LICENSE("GPL");
MODULE_ALIAS_RDMA_LINK("hca");
