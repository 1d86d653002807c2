// SPDX-License-Identifier: GPL-2.0
/*
 * How the device reaches memory: by DMA addresses only, as hardware does.
 *
 * The module's parameter dma_model says, for devices that are made from then on,
 * what such an address is:
 *
 *   direct	what the kernel's own DMA code makes of it, with a bounce buffer
 *		if it is told to use these (swiotlb=force)
 *   bounce	each mapping has a buffer of its own, at the same place in a page
 *   slot	the same, placed as swiotlb does: at the begin of a slot of 2 KiB,
 *		or of a page if it is as large as that
 *   granule	no buffers, but an IOMMU whose pages are a quarter of the CPU's,
 *		as with 4 KiB under pages of 16 KiB; the parts of a scatterlist
 *		lie one behind the other as in iommu_dma_map_sg()
 *
 *   iommu	what the kernel's own DMA code makes of it for a PCI device behind an
 *		IOMMU. That device is QEMU's edu, which nobody else has a driver for.
 *		Memory is reached as the IOMMU's tables say, which hold no rights
 *
 * Three of them are operations of our own (dma_map_ops), and need a kernel
 * that lets a device have these (ARCH_HAS_DMA_OPS).
 *
 * A mapping (struct hca_map) belongs to the consumer that maps, until it unmaps,
 * and is found in the tree of its device. hca_dma_spinlock protects the trees and all
 * mappings; it is held while a piece is copied. Addresses are never given out
 * again, and there are gaps between them: a late access hits nothing. Besides,
 * each mapping counts what of the device uses it: requests that are posted and
 * whose completions were not polled, and registered regions. No hardware can
 * tell that memory is unmapped too early; this can.
 */
#include <linux/debugfs.h>
#include <linux/dma-direct.h>
#include <linux/dma-mapping.h>
#include <linux/iommu.h>
#include <linux/log2.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/rbtree.h>
#include <linux/slab.h>
#include "hca.h"

static DEFINE_SPINLOCK(hca_dma_spinlock);

static const char * const hca_dma_models[] = {
	[HCA_DMA_DIRECT] = "direct",
	[HCA_DMA_BOUNCE] = "bounce",
	[HCA_DMA_SLOT] = "slot",
	[HCA_DMA_GRANULE] = "granule",
	[HCA_DMA_IOMMU] = "iommu",
};

/* QEMU's device for lessons in writing drivers. */
#define HCA_EDU_VENDOR	0x1234
#define HCA_EDU_DEVICE	0x11e8
/* The smallest page of its IOMMU. */
#define HCA_IOMMU_PAGE	SZ_4K

static int hca_dma_model;

static int hca_dma_model_set(const char *value, const struct kernel_param *param)
{
	int model = sysfs_match_string(hca_dma_models, value);

	if (model < 0)
		return model;
	if (hca_dma_is_own(model) && !IS_ENABLED(CONFIG_ARCH_HAS_DMA_OPS))
		return -EOPNOTSUPP;
	hca_dma_model = model;
	return 0;
}

static int hca_dma_model_get(char *buffer, const struct kernel_param *param)
{
	return sysfs_emit(buffer, "%s\n", hca_dma_models[hca_dma_model]);
}

static const struct kernel_param_ops hca_dma_model_ops = {
	.set = hca_dma_model_set,
	.get = hca_dma_model_get,
};

module_param_cb(dma_model, &hca_dma_model_ops, NULL, 0644);
MODULE_PARM_DESC(dma_model, "DMA of devices that come later: direct, bounce, slot, granule or iommu");

void hca_dma_lock(unsigned long *flags)
{
	spin_lock_irqsave(&hca_dma_spinlock, *flags);
}

void hca_dma_unlock(unsigned long flags)
{
	spin_unlock_irqrestore(&hca_dma_spinlock, flags);
}

/* Never had two mappings; from here on, so that no CPU address is one by chance. */
#define HCA_IOVA_BEGIN	BIT_ULL(52)
#define HCA_IOVA_GAP	PAGE_SIZE
#define HCA_SLOT	2048
#define HCA_GRANULE	(PAGE_SIZE / 4)
/* What a bounce buffer is filled with before the device has written to it, and at its end. */
#define HCA_POISON	0xdb

struct hca_map {
	struct rb_node node;
	u64 iova;
	size_t size;
	enum dma_data_direction dir;
	/* The memory itself, and the buffer that the device sees instead. */
	void *memory;
	void *bounce;
	/* What the device has written to the buffer, from and to. */
	size_t from, to;
	unsigned int users;
};

/* The mapping that has an address, if any. The lock is held. */
static struct hca_map *hca_map_find(struct hca_dev *hca, u64 iova)
{
	struct rb_node *node = hca->dma.maps.rb_node;

	while (node) {
		struct hca_map *map = rb_entry(node, struct hca_map, node);

		if (iova < map->iova)
			node = node->rb_left;
		else if (iova - map->iova >= map->size)
			node = node->rb_right;
		else
			return map;
	}
	return NULL;
}

static bool hca_map_before(struct rb_node *a, const struct rb_node *b)
{
	return rb_entry(a, struct hca_map, node)->iova < rb_entry(b, struct hca_map, node)->iova;
}

static bool hca_map_to_device(const struct hca_map *map)
{
	return map->dir == DMA_TO_DEVICE || map->dir == DMA_BIDIRECTIONAL;
}

static bool hca_map_from_device(const struct hca_map *map)
{
	return map->dir == DMA_FROM_DEVICE || map->dir == DMA_BIDIRECTIONAL;
}

/* What the CPU has written becomes visible to the device: a part of the mapping. */
static void hca_map_give(struct hca_dev *hca, struct hca_map *map, size_t at, size_t size)
{
	if (!map->bounce)
		return;
	if (hca_map_to_device(map))
		memcpy(map->bounce + at, map->memory + at, size);
	else
		memset(map->bounce + at, HCA_POISON, size);
	if (at <= map->from && map->to <= at + size) {
		map->from = 0;
		map->to = 0;
	}
	hca_add(hca, HCA_CNT_BOUNCED_OCTETS, size);
}

/*
 * What the device has written becomes visible to the CPU. In between it finds
 * poison where the device has written before and behind: no device does.
 */
static void hca_map_take(struct hca_dev *hca, struct hca_map *map, size_t at, size_t size)
{
	size_t from = max(at, map->from), to = min(at + size, map->to);

	if (!map->bounce || !hca_map_from_device(map) || from >= to)
		return;
	memcpy(map->memory + from, map->bounce + from, to - from);
	hca_add(hca, HCA_CNT_BOUNCED_OCTETS, to - from);
}

/* Finds room for @size octets that begin at @offset in what is aligned to @align. */
static u64 hca_iova_get(struct hca_dev *hca, u64 size, u64 align, u64 offset)
{
	u64 iova = ALIGN(hca->dma.next, align) + offset;

	hca->dma.next = iova + size + (hca->dma.model == HCA_DMA_SLOT ? HCA_SLOT : HCA_IOVA_GAP);
	return iova;
}

/* Whether this is the mapping that is to fail. */
static bool hca_map_fails(struct hca_dev *hca)
{
	return hca->dma.fail_map && !--hca->dma.fail_map;
}

/* A mapping at an address. The lock is held. */
static struct hca_map *hca_map_new(struct hca_dev *hca, phys_addr_t phys, size_t size, u64 iova,
				   enum dma_data_direction dir)
{
	struct hca_map *map = kzalloc(sizeof(*map), GFP_ATOMIC | __GFP_NOWARN);

	if (!map)
		return NULL;
	map->iova = iova;
	map->size = size;
	map->dir = dir;
	map->memory = phys_to_virt(phys);
	if (hca->dma.model != HCA_DMA_GRANULE) {
		map->bounce = kmalloc(size, GFP_ATOMIC | __GFP_NOWARN);
		if (!map->bounce) {
			kfree(map);
			return NULL;
		}
		hca_map_give(hca, map, 0, size);
	}
	rb_add(&map->node, &hca->dma.maps, hca_map_before);
	hca_add(hca, HCA_CNT_MAPS, 1);
	hca->dma.mapped++;
	return map;
}

static void hca_map_free(struct hca_dev *hca, struct hca_map *map)
{
	if (map->users)
		hca_complain(hca, HCA_RULE_DMA_IN_USE, "%#llx of %zu, %u users", map->iova,
			     map->size, map->users);
	hca_map_take(hca, map, 0, map->size);
	rb_erase(&map->node, &hca->dma.maps);
	if (map->bounce)
		memset(map->bounce, HCA_POISON, map->size);
	kfree(map->bounce);
	kfree(map);
	hca_add(hca, HCA_CNT_UNMAPS, 1);
	hca->dma.mapped--;
}

static dma_addr_t hca_map_one(struct hca_dev *hca, phys_addr_t phys, size_t size,
			      enum dma_data_direction dir)
{
	u64 align = PAGE_SIZE, offset = offset_in_page(phys), iova;

	switch (hca->dma.model) {
	case HCA_DMA_SLOT:
		align = size < PAGE_SIZE ? HCA_SLOT : PAGE_SIZE;
		offset = 0;
		break;
	case HCA_DMA_GRANULE:
		offset = phys & (HCA_GRANULE - 1);
		align = roundup_pow_of_two(ALIGN(offset + size, HCA_GRANULE));
		break;
	default:
		break;
	}
	if (hca_map_fails(hca))
		return DMA_MAPPING_ERROR;
	iova = hca_iova_get(hca, size, align, offset);
	return hca_map_new(hca, phys, size, iova, dir) ? iova : DMA_MAPPING_ERROR;
}

static struct hca_dev *hca_of(struct device *dev)
{
	return platform_get_drvdata(to_platform_device(dev));
}

static dma_addr_t hca_map_phys(struct device *dev, phys_addr_t phys, size_t size,
			       enum dma_data_direction dir, unsigned long attrs)
{
	struct hca_dev *hca = hca_of(dev);
	unsigned long flags;
	dma_addr_t iova;

	hca_dma_lock(&flags);
	iova = hca_map_one(hca, phys, size, dir);
	hca_dma_unlock(flags);
	return iova;
}

/* One mapping that ends, with all that was said when it was made. */
static void hca_unmap_one(struct hca_dev *hca, dma_addr_t iova, size_t size,
			  enum dma_data_direction dir)
{
	struct hca_map *map = hca_map_find(hca, iova);

	if (!map || map->iova != iova || map->size != size || map->dir != dir)
		hca_complain(hca, HCA_RULE_DMA_UNMAP, "%pad of %zu, %d: is %#llx of %zu, %d",
			     &iova, size, dir, map ? map->iova : 0, map ? map->size : 0,
			     map ? map->dir : DMA_NONE);
	if (map)
		hca_map_free(hca, map);
}

static void hca_unmap_phys(struct device *dev, dma_addr_t iova, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	struct hca_dev *hca = hca_of(dev);
	unsigned long flags;

	hca_dma_lock(&flags);
	hca_unmap_one(hca, iova, size, dir);
	hca_dma_unlock(flags);
}

/*
 * The parts of a scatterlist as iommu_dma_map_sg() and __finalise_sg() place
 * them: each begins at its place in a granule, behind the granules of the one
 * before; the whole is aligned to its rounded size. Where one ends with a granule
 * and the next begins with one they are one entry. Each part is a mapping.
 */
static int hca_map_sg_granules(struct hca_dev *hca, struct scatterlist *sgl, int nents,
			       enum dma_data_direction dir)
{
	struct scatterlist *sg, *cur = sgl;
	u64 total = 0, at;
	bool joins = false;
	int i, n = 0;

	for_each_sg(sgl, sg, nents, i)
		total += ALIGN((sg_phys(sg) & (HCA_GRANULE - 1)) + sg->length, HCA_GRANULE);
	at = hca_iova_get(hca, total, roundup_pow_of_two(total), 0);
	for_each_sg(sgl, sg, nents, i) {
		u64 offset = sg_phys(sg) & (HCA_GRANULE - 1);
		u32 length = sg->length;

		if (hca_map_fails(hca) ||
		    !hca_map_new(hca, sg_phys(sg), length, at + offset, dir)) {
			/* Those before it are the last there are. */
			while (i--)
				hca_map_free(hca, rb_entry(rb_last(&hca->dma.maps),
							   struct hca_map, node));
			return -ENOMEM;
		}
		if (joins && !offset) {
			sg_dma_len(cur) += length;
		} else {
			cur = n++ ? sg_next(cur) : sgl;
			sg_dma_address(cur) = at + offset;
			sg_dma_len(cur) = length;
		}
		joins = !((offset + length) & (HCA_GRANULE - 1));
		at += ALIGN(offset + length, HCA_GRANULE);
	}
	return n;
}

static int hca_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
		      enum dma_data_direction dir, unsigned long attrs)
{
	struct hca_dev *hca = hca_of(dev);
	struct scatterlist *sg;
	unsigned long flags;
	int i, j, n = nents;

	hca_dma_lock(&flags);
	if (hca->dma.model == HCA_DMA_GRANULE) {
		n = hca_map_sg_granules(hca, sgl, nents, dir);
		goto out;
	}
	for_each_sg(sgl, sg, nents, i) {
		sg_dma_address(sg) = hca_map_one(hca, sg_phys(sg), sg->length, dir);
		sg_dma_len(sg) = sg->length;
		if (sg_dma_address(sg) != DMA_MAPPING_ERROR)
			continue;
		for_each_sg(sgl, sg, i, j)
			hca_unmap_one(hca, sg_dma_address(sg), sg_dma_len(sg), dir);
		n = -ENOMEM;
		break;
	}
out:
	hca_dma_unlock(flags);
	return n;
}

static void hca_sync(struct hca_dev *hca, dma_addr_t iova, size_t size,
		     enum dma_data_direction dir, bool for_cpu)
{
	struct hca_map *map = hca_map_find(hca, iova);
	size_t at = map ? iova - map->iova : 0;

	hca_add(hca, for_cpu ? HCA_CNT_SYNCS_FOR_CPU : HCA_CNT_SYNCS_FOR_DEVICE, 1);
	if (!map || size > map->size - at || (dir != map->dir && map->dir != DMA_BIDIRECTIONAL)) {
		hca_complain(hca, HCA_RULE_DMA_SYNC, "%pad of %zu, %d: is %#llx of %zu, %d",
			     &iova, size, dir, map ? map->iova : 0, map ? map->size : 0,
			     map ? map->dir : DMA_NONE);
		return;
	}
	if (for_cpu)
		hca_map_take(hca, map, at, size);
	else
		hca_map_give(hca, map, at, size);
}

static void hca_sync_cpu(struct hca_dev *hca, dma_addr_t iova, size_t size,
			 enum dma_data_direction dir)
{
	hca_sync(hca, iova, size, dir, true);
}

static void hca_sync_device(struct hca_dev *hca, dma_addr_t iova, size_t size,
			    enum dma_data_direction dir)
{
	hca_sync(hca, iova, size, dir, false);
}

static void hca_sync_single_for_cpu(struct device *dev, dma_addr_t iova, size_t size,
				    enum dma_data_direction dir)
{
	unsigned long flags;

	hca_dma_lock(&flags);
	hca_sync_cpu(hca_of(dev), iova, size, dir);
	hca_dma_unlock(flags);
}

static void hca_sync_single_for_device(struct device *dev, dma_addr_t iova, size_t size,
				       enum dma_data_direction dir)
{
	unsigned long flags;

	hca_dma_lock(&flags);
	hca_sync_device(hca_of(dev), iova, size, dir);
	hca_dma_unlock(flags);
}

/*
 * Does something to each mapping of a scatterlist. @nents is what was given to be
 * mapped, not what came of it.
 */
static void hca_each_of_sg(struct device *dev, struct scatterlist *sgl, int nents,
			   enum dma_data_direction dir,
			   void (*each)(struct hca_dev *hca, dma_addr_t iova, size_t size,
					enum dma_data_direction dir))
{
	struct scatterlist *sg, *cur = sgl;
	u64 iova = 0, left = 0;
	unsigned long flags;
	int i;

	hca_dma_lock(&flags);
	for_each_sg(sgl, sg, nents, i) {
		/* An entry that several were joined to is as long as all of them. */
		if (!left) {
			if (i)
				cur = sg_next(cur);
			iova = sg_dma_address(cur);
			left = sg_dma_len(cur);
		}
		each(hca_of(dev), iova, sg->length, dir);
		iova += sg->length;
		left -= min_t(u64, left, sg->length);
	}
	hca_dma_unlock(flags);
}

static void hca_unmap_sg(struct device *dev, struct scatterlist *sg, int nents,
			 enum dma_data_direction dir, unsigned long attrs)
{
	hca_each_of_sg(dev, sg, nents, dir, hca_unmap_one);
}

static void hca_sync_sg_for_cpu(struct device *dev, struct scatterlist *sg, int nents,
				enum dma_data_direction dir)
{
	hca_each_of_sg(dev, sg, nents, dir, hca_sync_cpu);
}

static void hca_sync_sg_for_device(struct device *dev, struct scatterlist *sg, int nents,
				   enum dma_data_direction dir)
{
	hca_each_of_sg(dev, sg, nents, dir, hca_sync_device);
}

static int hca_dma_supported(struct device *dev, u64 mask)
{
	return mask > HCA_IOVA_BEGIN;
}

static size_t hca_max_mapping_size(struct device *dev)
{
	/* As much as swiotlb has in one piece. */
	return hca_of(dev)->dma.model == HCA_DMA_GRANULE ? SIZE_MAX : SZ_256K;
}

static const struct dma_map_ops hca_dma_ops = {
	.map_phys = hca_map_phys,
	.unmap_phys = hca_unmap_phys,
	.map_sg = hca_map_sg,
	.unmap_sg = hca_unmap_sg,
	.sync_single_for_cpu = hca_sync_single_for_cpu,
	.sync_single_for_device = hca_sync_single_for_device,
	.sync_sg_for_cpu = hca_sync_sg_for_cpu,
	.sync_sg_for_device = hca_sync_sg_for_device,
	.dma_supported = hca_dma_supported,
	.max_mapping_size = hca_max_mapping_size,
};

static void *hca_dma_reach_map(struct hca_dev *hca, u64 iova, u32 *length, bool write)
{
	struct hca_map *map = hca_map_find(hca, iova);
	size_t at;

	if (!map) {
		hca_complain(hca, HCA_RULE_DMA_ADDRESS, "%s %#llx", write ? "write to" : "read of",
			     iova);
		return NULL;
	}
	if (write ? !hca_map_from_device(map) : !hca_map_to_device(map)) {
		hca_complain(hca, HCA_RULE_DMA_DIRECTION, "%s %#llx, mapped for %d",
			     write ? "write to" : "read of", iova, map->dir);
		return NULL;
	}
	at = iova - map->iova;
	*length = min_t(u64, *length, map->size - at);
	if (!map->bounce)
		return map->memory + at;
	if (write) {
		map->from = map->to ? min(map->from, at) : at;
		map->to = max(map->to, at + *length);
	}
	return map->bounce + at;
}

/* What is unmapped is not there any more, though its address is free again only later. */
static void *hca_dma_reach_iommu(struct hca_dev *hca, dma_addr_t addr, u32 *length, bool write)
{
	phys_addr_t phys = iommu_iova_to_phys(hca->dma.domain, addr);

	if (!phys) {
		hca_complain(hca, HCA_RULE_DMA_ADDRESS, "%s %pad", write ? "write to" : "read of",
			     &addr);
		return NULL;
	}
	*length = min_t(u32, *length, HCA_IOMMU_PAGE - (addr & (HCA_IOMMU_PAGE - 1)));
	return phys_to_virt(phys);
}

void *hca_dma_reach(struct hca_dev *hca, dma_addr_t addr, u32 *length, bool write)
{
	phys_addr_t phys;

	if (hca_dma_is_own(hca->dma.model))
		return hca_dma_reach_map(hca, addr, length, write);
	if (hca->dma.model == HCA_DMA_IOMMU)
		return hca_dma_reach_iommu(hca, addr, length, write);
	phys = dma_to_phys(&hca->pdev->dev, addr);
	if (!pfn_valid(PHYS_PFN(phys)) || !pfn_valid(PHYS_PFN(phys + *length - 1))) {
		hca_complain(hca, HCA_RULE_DMA_ADDRESS, "%s %pad", write ? "write to" : "read of",
			     &addr);
		return NULL;
	}
	return phys_to_virt(phys);
}

/*
 * Something of the device begins or ends to use all mappings of a range. What is
 * not mapped is a complaint when it is reached, and not here.
 */
void hca_dma_use(struct hca_dev *hca, dma_addr_t addr, u64 length, int users)
{
	struct hca_map *map;
	unsigned long flags;
	u64 end = addr + length;

	if (!hca_dma_is_own(hca->dma.model))
		return;
	hca_dma_lock(&flags);
	while (addr < end) {
		map = hca_map_find(hca, addr);
		if (!map)
			break;
		/* Unmapping too early is a complaint then; the next use is of another mapping. */
		map->users += users > 0 || map->users ? users : 0;
		addr = map->iova + map->size;
	}
	hca_dma_unlock(flags);
}

/* Whether a range is mapped for what a registration grants others. */
bool hca_dma_allows(struct hca_dev *hca, dma_addr_t addr, int access)
{
	struct hca_map *map;
	unsigned long flags;
	bool fine;

	if (!hca_dma_is_own(hca->dma.model))
		return true;
	hca_dma_lock(&flags);
	map = hca_map_find(hca, addr);
	fine = !map || ((!(access & IB_ACCESS_REMOTE_WRITE) || hca_map_from_device(map)) &&
			(!(access & IB_ACCESS_REMOTE_READ) || hca_map_to_device(map)));
	hca_dma_unlock(flags);
	return fine;
}

/* Takes the PCI device, if it is there and behind an IOMMU that translates for it. */
static int hca_dma_init_iommu(struct hca_dev *hca)
{
	struct pci_dev *edu = pci_get_device(HCA_EDU_VENDOR, HCA_EDU_DEVICE, NULL);

	if (!edu)
		return -ENODEV;
	hca->dma.edu = edu;
	hca->dma.dev = &edu->dev;
	hca->dma.domain = iommu_get_domain_for_dev(&edu->dev);
	return hca->dma.domain && iommu_is_dma_domain(hca->dma.domain) ? 0 : -ENODEV;
}

/* What the device's own operations need must be there before the first mapping. */
int hca_dma_init(struct hca_dev *hca)
{
	int error = 0;

	hca->dma.model = hca_dma_model;
	hca->dma.maps = RB_ROOT;
	hca->dma.next = HCA_IOVA_BEGIN;
	hca->dma.dev = &hca->pdev->dev;
	platform_set_drvdata(hca->pdev, hca);
	if (hca->dma.model == HCA_DMA_IOMMU)
		error = hca_dma_init_iommu(hca);
	if (error)
		return error;
	dma_set_max_seg_size(hca->dma.dev, SZ_2G);
	if (hca_dma_is_own(hca->dma.model))
		set_dma_ops(hca->dma.dev, &hca_dma_ops);
	return dma_set_mask_and_coherent(hca->dma.dev, DMA_BIT_MASK(64));
}

/* In the device's directory: how many mappings there are, and which of those to come fails. */
void hca_dma_show(struct hca_dev *hca)
{
	debugfs_create_u32("mapped", 0400, hca->dir, &hca->dma.mapped);
	debugfs_create_u32("fail_map", 0600, hca->dir, &hca->dma.fail_map);
}

void hca_dma_exit(struct hca_dev *hca)
{
	unsigned long flags;
	struct rb_node *node;

	if (hca->dma.mapped)
		hca_complain(hca, HCA_RULE_DMA_LEAK, "%u", hca->dma.mapped);
	hca_dma_lock(&flags);
	while ((node = rb_first(&hca->dma.maps)))
		hca_map_free(hca, rb_entry(node, struct hca_map, node));
	hca_dma_unlock(flags);
	pci_dev_put(hca->dma.edu);
}
