// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: their states and keys, and all copying through them.
 *
 * A region is its consumer's, until hca_dereg_mr() frees it. It is looked up by
 * its number, and used, under hca_keys_lock only, so it is not freed meanwhile.
 * What may be done with it is looked up anew for each piece of at most
 * a page, as hardware does for each packet; so nothing is reached after an
 * invalidation has completed.
 *
 * A key is the region's number and, in the lowest octet, a part of the
 * consumer's choice (IBTA 10.6.3.3). It is FREE or VALID: REG_MR makes it VALID,
 * LOCAL_INV and a Send With Invalidate of the other end FREE.
 */
#include <linux/random.h>
#include <linux/slab.h>
#include "hca.h"

DEFINE_RWLOCK(hca_keys_lock);
/* By number, which is not used again soon. What is taken out is so under hca_keys_lock. */
static DEFINE_XARRAY_FLAGS(hca_keys, XA_FLAGS_ALLOC1 | XA_FLAGS_LOCK_IRQ);
static u32 hca_next_key;

/* A region's registration begins or ends to use what is mapped. hca_keys_lock is held. */
static void hca_mr_use(struct hca_mr *mr, int users)
{
	u64 at = mr->iova & (mr->page_size - 1), end = at + mr->length;
	u64 n;

	if (!hca_dma_is_own(mr->hca->dma.model))
		return;
	for (; at < end; at += n) {
		n = min(end - at, mr->page_size - at % mr->page_size);
		if (at / mr->page_size >= mr->npages)
			break;
		hca_dma_use(mr->hca, mr->pages[at / mr->page_size] + at % mr->page_size, n, users);
	}
}

/* The region is FREE from now on. hca_keys_lock is held. */
static void hca_mr_invalidate(struct hca_mr *mr)
{
	mr->state = HCA_MR_FREE;
	hca_mr_use(mr, -1);
}

struct hca_mr *hca_mr_new(struct ib_pd *ib)
{
	struct hca_mr *mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	int error;

	might_sleep();
	if (!mr)
		return ERR_PTR(-ENOMEM);
	if (hca_fault(to_hca(ib->device), HCA_FAULT_CREATE)) {
		kfree(mr);
		return ERR_PTR(-ENOMEM);
	}
	mr->hca = to_hca(ib->device);
	/* Regions are found before ib_core says whose they are. */
	mr->ib.pd = ib;
	mr->ib.device = ib->device;
	error = xa_alloc_cyclic_irq(&hca_keys, &mr->index, mr, XA_LIMIT(1, (1 << 24) - 1),
				    &hca_next_key, GFP_KERNEL);
	if (error < 0) {
		kfree(mr);
		return ERR_PTR(error);
	}
	mr->key = mr->index << 8 | get_random_u8();
	mr->ib.lkey = mr->key;
	mr->ib.rkey = mr->key;
	return mr;
}

struct ib_mr *hca_get_dma_mr(struct ib_pd *ib, int access)
{
	struct hca_mr *mr = hca_mr_new(ib);

	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->dma = true;
	mr->access = access;
	mr->length = U64_MAX;
	mr->state = HCA_MR_VALID;
	return &mr->ib;
}

/* A region of memory that is mapped, and VALID from now on. Only its consumer ends that. */
void hca_mr_own(struct hca_mr *mr, u64 iova, u64 length, int access)
{
	unsigned long flags;

	write_lock_irqsave(&hca_keys_lock, flags);
	mr->iova = iova;
	mr->length = length;
	mr->access = access;
	mr->page_size = PAGE_SIZE;
	mr->state = HCA_MR_VALID;
	write_unlock_irqrestore(&hca_keys_lock, flags);
}

struct ib_mr *hca_alloc_mr(struct ib_pd *ib, enum ib_mr_type type, u32 max_num_sg)
{
	struct hca_mr *mr;

	if (type != IB_MR_TYPE_MEM_REG || !to_hca(ib->device)->profile->mem_mgt)
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > to_hca(ib->device)->profile->pages) {
		hca_complain(to_hca(ib->device), HCA_RULE_CREATE, "a region of %u pages",
			     max_num_sg);
		return ERR_PTR(-EINVAL);
	}
	mr = hca_mr_new(ib);
	if (IS_ERR(mr))
		return ERR_CAST(mr);
	mr->max_pages = max_num_sg;
	mr->pages = kvcalloc(max_num_sg, sizeof(*mr->pages), GFP_KERNEL);
	if (!mr->pages) {
		hca_dereg_mr(&mr->ib, NULL);
		return ERR_PTR(-ENOMEM);
	}
	return &mr->ib;
}

/* A region that is VALID may go as well: nothing is reached through it from then on. */
int hca_dereg_mr(struct ib_mr *ib, struct ib_udata *udata)
{
	struct hca_mr *mr = to_hca_mr(ib);
	unsigned long flags;

	might_sleep();
	if (atomic_read(&mr->posted))
		hca_complain(mr->hca, HCA_RULE_DESTROY_BUSY,
			     "a region whose registration is posted");
	write_lock_irqsave(&hca_keys_lock, flags);
	if (!mr->dma && !mr->user_pages && mr->state == HCA_MR_VALID)
		hca_mr_invalidate(mr);
	xa_erase(&hca_keys, mr->index);
	write_unlock_irqrestore(&hca_keys_lock, flags);
	if (mr->user_pages)
		hca_user_release(mr);
	kvfree(mr->pages);
	kfree(mr);
	return 0;
}

static int hca_set_page(struct ib_mr *ib, u64 addr)
{
	struct hca_mr *mr = to_hca_mr(ib);

	if (mr->npages == mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->npages++] = addr;
	return 0;
}

/*
 * The device reads the list of pages when it executes the registration, as mlx5
 * does (set_reg_data_seg() in its wr.c). So the list stays as it is from the
 * post on, and as long as the region is registered.
 */
int hca_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int n, unsigned int *offset)
{
	struct hca_mr *mr = to_hca_mr(ib);

	if (atomic_read(&mr->posted))
		hca_complain(mr->hca, HCA_RULE_MAP_POSTED, "key %#x", ib->rkey);
	else if (READ_ONCE(mr->state) == HCA_MR_VALID)
		hca_complain(mr->hca, HCA_RULE_MAP_VALID, "key %#x", ib->rkey);
	mr->npages = 0;
	return ib_sg_to_pages(ib, sg, n, offset, hca_set_page);
}

/* Whether all is mapped for what the other end may do to it. */
static bool hca_mr_direction(struct hca_mr *mr)
{
	u64 at = mr->iova & (mr->page_size - 1), end = at + mr->length;

	while (at < end && at / mr->page_size < mr->npages) {
		if (!hca_dma_allows(mr->hca, mr->pages[at / mr->page_size] + at % mr->page_size,
				    mr->access))
			return false;
		at += mr->page_size - at % mr->page_size;
	}
	return true;
}

/* Whether a key is that of all local memory, as some profiles have one. Nobody else may use it. */
static bool hca_is_local_key(const struct hca_dev *hca, u32 key)
{
	return hca->profile->local_dma_lkey && key == HCA_LOCAL_DMA_LKEY;
}

/*
 * Requests with these SGEs are posted, or polled. Those with keys of regions use
 * what their registration uses.
 */
void hca_sges_use(struct hca_dev *hca, const struct ib_sge *sge, u32 num_sge, int users)
{
	unsigned long flags;
	struct hca_mr *mr;
	u32 i;

	if (!hca_dma_is_own(hca->dma.model))
		return;
	read_lock_irqsave(&hca_keys_lock, flags);
	for (i = 0; i < num_sge; i++) {
		mr = xa_load(&hca_keys, sge[i].lkey >> 8);
		if (hca_is_local_key(hca, sge[i].lkey) || (mr && mr->dma))
			hca_dma_use(hca, sge[i].addr, sge[i].length, users);
	}
	read_unlock_irqrestore(&hca_keys_lock, flags);
}

/* IBTA 10.6.3.5 and 11.4.3.2; a region is FREE, and of the Queue Pair's domain. */
static enum ib_wc_status hca_reg_locked(struct hca_qp *qp, const struct hca_swqe *wqe)
{
	struct hca_mr *mr = xa_load(&hca_keys, wqe->reg.index);

	if (!mr) {
		hca_complain(qp->hca, HCA_RULE_REG_KEY, "key %#x of no region", wqe->reg.key);
		return IB_WC_MW_BIND_ERR;
	}
	if (mr->ib.pd != qp->ib.pd) {
		hca_complain(qp->hca, HCA_RULE_REG_PD, "key %#x", wqe->reg.key);
		return IB_WC_MW_BIND_ERR;
	}
	if (mr->state != HCA_MR_FREE) {
		hca_complain(qp->hca, HCA_RULE_REG_STATE, "key %#x", wqe->reg.key);
		return IB_WC_MW_BIND_ERR;
	}
	if (wqe->reg.key >> 8 != mr->index || wqe->reg.key != mr->ib.rkey) {
		hca_complain(qp->hca, HCA_RULE_REG_KEY, "key %#x of region %#x, which has %#x",
			     wqe->reg.key, mr->index, mr->ib.rkey);
		return IB_WC_MW_BIND_ERR;
	}
	if (!mr->npages || !mr->ib.length) {
		hca_complain(qp->hca, HCA_RULE_REG_PAGES, "key %#x", wqe->reg.key);
		return IB_WC_MW_BIND_ERR;
	}
	/* Legal, but what is late for the former use would hit the next one. */
	if (mr->had_key && mr->key == wqe->reg.key)
		hca_complain(qp->hca, HCA_RULE_REG_KEY_AGAIN, "key %#x", wqe->reg.key);
	mr->key = wqe->reg.key;
	mr->had_key = true;
	mr->access = wqe->reg.access;
	mr->iova = mr->ib.iova;
	mr->length = mr->ib.length;
	mr->page_size = mr->ib.page_size;
	mr->state = HCA_MR_VALID;
	hca_mr_use(mr, 1);
	if (!hca_mr_direction(mr))
		hca_complain(qp->hca, HCA_RULE_REG_DIRECTION, "key %#x for %#x", mr->key,
			     mr->access);
	return IB_WC_SUCCESS;
}

/* Executes a REG_MR. */
enum ib_wc_status hca_reg_mr(struct hca_qp *qp, const struct hca_swqe *wqe)
{
	enum ib_wc_status status;
	unsigned long flags;

	write_lock_irqsave(&hca_keys_lock, flags);
	status = hca_reg_locked(qp, wqe);
	write_unlock_irqrestore(&hca_keys_lock, flags);
	return status;
}

/* A registration that was posted is no more so: it was executed, or flushed. */
void hca_reg_executed(u32 index)
{
	struct hca_mr *mr;
	unsigned long flags;

	read_lock_irqsave(&hca_keys_lock, flags);
	mr = xa_load(&hca_keys, index);
	if (mr)
		atomic_dec(&mr->posted);
	read_unlock_irqrestore(&hca_keys_lock, flags);
}

/* What a key is of; NULL if it is of nothing now. hca_keys_lock is held. */
static struct hca_mr *hca_key_find(u32 key)
{
	struct hca_mr *mr = xa_load(&hca_keys, key >> 8);

	return mr && mr->state == HCA_MR_VALID && mr->key == key ? mr : NULL;
}

/*
 * Executes a LOCAL_INV. The region must be VALID: iWARP and mlx5 do not mind
 * otherwise, other devices end the connection.
 */
enum ib_wc_status hca_local_inv(struct hca_qp *qp, u32 key)
{
	enum ib_wc_status status = IB_WC_SUCCESS;
	enum hca_rule rule;
	struct hca_mr *mr;
	unsigned long flags;

	write_lock_irqsave(&hca_keys_lock, flags);
	mr = xa_load(&hca_keys, key >> 8);
	if (!mr || mr->dma || mr->user_pages || mr->key != key) {
		status = IB_WC_MW_BIND_ERR;
		rule = HCA_RULE_INV_KEY;
	} else if (mr->ib.pd != qp->ib.pd) {
		status = IB_WC_MW_BIND_ERR;
		rule = HCA_RULE_INV_PD;
	} else if (mr->state != HCA_MR_VALID) {
		status = IB_WC_MW_BIND_ERR;
		rule = HCA_RULE_INV_STATE;
	} else {
		hca_mr_invalidate(mr);
	}
	write_unlock_irqrestore(&hca_keys_lock, flags);
	if (status != IB_WC_SUCCESS)
		hca_complain(qp->hca, rule, "key %#x", key);
	return status;
}

/* What a Send With Invalidate does at the end that receives it. */
bool hca_remote_inv(struct hca_qp *qp, u32 key, bool excused)
{
	struct hca_mr *mr;
	unsigned long flags;
	bool fine;

	write_lock_irqsave(&hca_keys_lock, flags);
	mr = hca_key_find(key);
	fine = mr && !mr->dma && !mr->user_pages && mr->ib.pd == qp->ib.pd &&
	       (mr->access & (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE));
	if (fine)
		hca_mr_invalidate(mr);
	write_unlock_irqrestore(&hca_keys_lock, flags);
	if (fine)
		hca_add(qp->hca, HCA_CNT_REMOTE_INVS, 1);
	else if (!excused && !hca_is_program(qp))
		hca_complain(qp->hca, HCA_RULE_REMOTE_INV, "key %#x", key);
	return fine;
}

/*
 * The DMA address at which a cursor stands, for at most *@length octets in one
 * piece, of @left in all that are still wanted there. hca_keys_lock is held.
 */
static bool hca_translate(struct hca_cursor *c, u32 left, dma_addr_t *addr, u32 *length)
{
	bool remote = c->access & (IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE);
	const struct ib_sge *sge = c->sge;
	struct hca_mr *mr = hca_key_find(sge->lkey);
	u64 va = sge->addr + c->at, offset;

	*length = min(*length, sge->length - c->at);
	if (!remote && hca_is_local_key(c->hca, sge->lkey)) {
		*addr = va;
		return true;
	}
	if (!mr) {
		hca_cursor_complain(c, remote ? HCA_RULE_REMOTE_KEY : HCA_RULE_LOCAL_KEY,
				    "key %#x", sge->lkey);
		return false;
	}
	if (mr->ib.pd != &c->pd->ib) {
		hca_cursor_complain(c, remote ? HCA_RULE_REMOTE_PD : HCA_RULE_LOCAL_PD,
				    "key %#x", sge->lkey);
		return false;
	}
	if (c->access & ~mr->access) {
		hca_cursor_complain(c, remote ? HCA_RULE_REMOTE_ACCESS : HCA_RULE_LOCAL_ACCESS,
				    "key %#x has %#x, not %#x", sge->lkey, mr->access, c->access);
		return false;
	}
	if (mr->dma) {
		*addr = va;
		return true;
	}
	/* All that is wanted, not only the next piece; and without overflow. */
	if (va < mr->iova || sge->length - c->at > mr->length ||
	    va - mr->iova > mr->length - (sge->length - c->at)) {
		hca_cursor_complain(c, remote ? HCA_RULE_REMOTE_BOUNDS : HCA_RULE_LOCAL_BOUNDS,
				    "%#llx and %u of %#llx and %llu", va, sge->length - c->at,
				    mr->iova, mr->length);
		return false;
	}
	/*
	 * The first octet's place in its page are the low bits of the iova, and
	 * not of the address that was mapped: mlx5's set_reg_mkey_seg() tells
	 * the device start_addr and pages only, mlx4's set_reg_seg() likewise.
	 */
	offset = (mr->iova & (mr->page_size - 1)) + (va - mr->iova);
	if (offset / mr->page_size >= mr->npages) {
		hca_cursor_complain(c, remote ? HCA_RULE_REMOTE_BOUNDS : HCA_RULE_LOCAL_BOUNDS,
				    "page %llu of %u", offset / mr->page_size, mr->npages);
		return false;
	}
	*addr = mr->pages[offset / mr->page_size] + offset % mr->page_size;
	*length = min_t(u64, *length, mr->page_size - offset % mr->page_size);
	return true;
}

static void hca_advance(struct hca_cursor *c, u32 length)
{
	c->at += length;
	while (c->num_sge && c->at == c->sge->length) {
		c->sge++;
		c->num_sge--;
		c->at = 0;
	}
}

/*
 * Copies from one cursor to the other, and moves both on. The caller has seen
 * that both have room for @length. Each piece is reached under hca_keys_lock and
 * hca_dma_lock, so neither an invalidation nor an unmapping ends in the middle of
 * one.
 */
enum hca_side hca_move(struct hca_cursor *to, struct hca_cursor *from, u32 length)
{
	enum hca_side side = HCA_BOTH_FINE;
	dma_addr_t source, sink;
	unsigned long flags, dma_flags;
	void *s, *t;
	u32 n;

	hca_advance(to, 0);
	hca_advance(from, 0);
	while (length && side == HCA_BOTH_FINE) {
		n = min_t(u32, length, PAGE_SIZE);
		read_lock_irqsave(&hca_keys_lock, flags);
		if (!hca_translate(from, length, &source, &n)) {
			side = HCA_FROM_FAILED;
		} else if (!hca_translate(to, length, &sink, &n)) {
			side = HCA_TO_FAILED;
		} else {
			hca_dma_lock(&dma_flags);
			s = hca_dma_reach(from->hca, source, &n, false);
			t = s ? hca_dma_reach(to->hca, sink, &n, true) : NULL;
			if (!s)
				side = HCA_FROM_FAILED;
			else if (!t)
				side = HCA_TO_FAILED;
			else
				memcpy(t, s, n);
			hca_dma_unlock(dma_flags);
		}
		read_unlock_irqrestore(&hca_keys_lock, flags);
		if (side != HCA_BOTH_FINE)
			break;
		hca_advance(to, n);
		hca_advance(from, n);
		length -= n;
	}
	return side;
}

/* The same to memory of the device itself, or from there. */
static bool hca_copy(struct hca_cursor *at, void *own, u32 length, bool write)
{
	unsigned long flags, dma_flags;
	dma_addr_t addr;
	void *reached;
	u32 n;

	hca_advance(at, 0);
	while (length) {
		n = min_t(u32, length, PAGE_SIZE);
		reached = NULL;
		read_lock_irqsave(&hca_keys_lock, flags);
		if (hca_translate(at, length, &addr, &n)) {
			hca_dma_lock(&dma_flags);
			reached = hca_dma_reach(at->hca, addr, &n, write);
			if (reached && write)
				memcpy(reached, own, n);
			else if (reached)
				memcpy(own, reached, n);
			hca_dma_unlock(dma_flags);
		}
		read_unlock_irqrestore(&hca_keys_lock, flags);
		if (!reached)
			return false;
		hca_advance(at, n);
		own += n;
		length -= n;
	}
	return true;
}

bool hca_fill(struct hca_cursor *to, const void *from, u32 length)
{
	return hca_copy(to, (void *)from, length, true);
}

bool hca_look(struct hca_cursor *from, void *to, u32 length)
{
	return hca_copy(from, to, length, false);
}
