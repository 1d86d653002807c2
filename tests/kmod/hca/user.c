// SPDX-License-Identifier: GPL-2.0
/*
 * Programs in user space as consumers: peers that keep to nothing.
 *
 * libibverbs has no provider for this device. It takes that of hfi1 in the first
 * version of its ABI, by the driver's id: it asks the kernel to post and to poll,
 * and maps nothing. So all that a program does comes here as the verbs of a
 * consumer in the kernel.
 *
 * /sys/kernel/debug/hca/NAME/silent takes the number of a Queue Pair that answers
 * nothing from then on, and goes on sending: RDMA Reads and Writes of its memory,
 * and what is sent to it, wait as for a machine that is out of reach.
 *
 * The same with NAME/tears: of what that Queue Pair sends from then on only the
 * beginning arrives. It takes a Receive at the other end, which a shared queue
 * never has back.
 *
 * A program's memory is mapped for DMA as long as its region lives, and the
 * program writes it meanwhile. A device that sees a copy cannot do that, so there
 * are no such regions with bounce buffers.
 */
#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include "hca.h"

int hca_alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata)
{
	return 0;
}

void hca_dealloc_ucontext(struct ib_ucontext *context)
{
}

/* With it a device can go while a program has it. Nothing of it is mapped. */
void hca_disassociate_ucontext(struct ib_ucontext *context)
{
}

/* What is mapped here, from the last to the first; nothing reaches the region any more. */
void hca_user_release(struct hca_mr *mr)
{
	while (mr->npages) {
		mr->npages--;
		ib_dma_unmap_page(&mr->hca->ib, mr->pages[mr->npages], PAGE_SIZE,
				  DMA_BIDIRECTIONAL);
		unpin_user_pages_dirty_lock(&mr->user_pages[mr->npages], 1, true);
	}
	kvfree(mr->user_pages);
	mr->user_pages = NULL;
}

/* Maps a page which is pinned. */
static int hca_user_map(struct hca_mr *mr, struct page *page)
{
	struct hca_dev *hca = mr->hca;
	u32 length = PAGE_SIZE;
	unsigned long flags;
	dma_addr_t addr;
	bool itself;

	addr = ib_dma_map_page(&hca->ib, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(&hca->ib, addr))
		return -ENOMEM;
	hca_dma_lock(&flags);
	itself = hca_dma_reach(hca, addr, &length, true) == page_address(page);
	hca_dma_unlock(flags);
	if (!itself) {
		ib_dma_unmap_page(&hca->ib, addr, PAGE_SIZE, DMA_BIDIRECTIONAL);
		return -EOPNOTSUPP;
	}
	mr->pages[mr->npages] = addr;
	mr->user_pages[mr->npages++] = page;
	return 0;
}

/* Pins and maps all pages. On an error those that are there already stay, as @npages. */
static int hca_user_pin(struct hca_mr *mr, u64 start, u32 wanted)
{
	struct page *page;
	int error, n;

	while (mr->npages < wanted) {
		n = pin_user_pages_fast(start + ((u64)mr->npages << PAGE_SHIFT), 1,
					FOLL_WRITE | FOLL_LONGTERM, &page);
		if (n != 1)
			return n < 0 ? n : -EFAULT;
		error = hca_user_map(mr, page);
		if (error) {
			unpin_user_page(page);
			return error;
		}
	}
	return 0;
}

struct ib_mr *hca_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt_addr, int access,
			      struct ib_dmah *dmah, struct ib_udata *udata)
{
	u64 first = start & PAGE_MASK, wanted;
	struct hca_mr *mr;
	int error;

	if (dmah || hca_dma_is_own(to_hca(pd->device)->dma.model))
		return ERR_PTR(-EOPNOTSUPP);
	if (!length || length > HCA_MAX_MSG || offset_in_page(start) != offset_in_page(virt_addr))
		return ERR_PTR(-EINVAL);
	wanted = (PAGE_ALIGN(start + length) - first) >> PAGE_SHIFT;
	mr = hca_mr_new(pd);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->pages = kvcalloc(wanted, sizeof(*mr->pages), GFP_KERNEL);
	mr->user_pages = kvcalloc(wanted, sizeof(*mr->user_pages), GFP_KERNEL);
	error = mr->pages && mr->user_pages ? hca_user_pin(mr, first, wanted) : -ENOMEM;
	if (error) {
		hca_dereg_mr(&mr->ib, NULL);
		return ERR_PTR(error);
	}
	hca_mr_own(mr, virt_addr, length, access);
	return &mr->ib;
}

static int hca_silent_set(void *data, u64 number)
{
	struct hca_qp *qp = hca_qp_find(number);

	if (!qp)
		return -ENOENT;
	WRITE_ONCE(qp->silent, true);
	hca_qp_put(qp);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(hca_silent_fops, NULL, hca_silent_set, "%llu\n");

static int hca_tears_set(void *data, u64 number)
{
	struct hca_qp *qp = hca_qp_find(number);

	if (!qp)
		return -ENOENT;
	WRITE_ONCE(qp->tears, true);
	hca_qp_put(qp);
	return 0;
}

DEFINE_DEBUGFS_ATTRIBUTE(hca_tears_fops, NULL, hca_tears_set, "%llu\n");

void hca_user_show(struct hca_dev *hca)
{
	debugfs_create_file("silent", 0200, hca->dir, hca, &hca_silent_fops);
	debugfs_create_file("tears", 0200, hca->dir, hca, &hca_tears_fops);
}
