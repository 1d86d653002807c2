// SPDX-License-Identifier: GPL-2.0
/*
 * Completion Queues.
 *
 * A queue is its consumer's until hca_destroy_cq(), which waits for the
 * handler; no Queue Pair may use it then. @lock protects the ring and what is
 * armed. Handlers are called as hardware does: in a hard interrupt where the
 * kernel can have one at once, else in a bottom half with interrupts off; and
 * never two of one queue at a time.
 *
 * A queue has exactly the size that was asked for, whatever its profile tells. What finds no place ends it:
 * its consumer and those of its Queue Pairs are told, and no completion comes
 * any more (IBTA 11.6.3.1, CQ error).
 */
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include "hca.h"

static uint hca_moderation;
module_param_named(moderation, hca_moderation, uint, 0644);
MODULE_PARM_DESC(moderation, "how long interrupts of later devices wait at most, in microseconds");

static bool hca_spread;
module_param_named(spread, hca_spread, bool, 0644);
MODULE_PARM_DESC(spread, "whether each completion vector of later devices interrupts a CPU of its own");

/* Takes over what the module's parameters say. */
void hca_cq_set(struct hca_dev *hca)
{
	hca->moderation = READ_ONCE(hca_moderation);
	hca->spread = READ_ONCE(hca_spread);
}

static void hca_cq_handle(struct hca_cq *cq)
{
	if (atomic_fetch_inc(&cq->pending))
		/* The handler runs now, and will be called once more. */
		return;
	do {
		hca_add(cq->hca, HCA_CNT_INTERRUPTS, 1);
		if (cq->ib.comp_handler)
			cq->ib.comp_handler(&cq->ib, cq->ib.cq_context);
	} while (atomic_dec_return(&cq->pending));
}

static void hca_cq_irq(struct irq_work *irq)
{
	hca_cq_handle(container_of(irq, struct hca_cq, irq));
}

static void hca_cq_bh(struct work_struct *work)
{
	unsigned long flags;

	local_irq_save(flags);
	hca_cq_handle(container_of(work, struct hca_cq, bh));
	local_irq_restore(flags);
}

#ifdef CONFIG_IRQ_WORK
#define hca_has_interrupts() arch_irq_work_has_interrupt()
#else
#define hca_has_interrupts() false
#endif

/* The CPU that a queue interrupts if vectors are spread. */
static unsigned int hca_cq_cpu(struct hca_cq *cq)
{
	return cpumask_nth(cq->ib.comp_vector % num_online_cpus(), cpu_online_mask);
}

static void hca_cq_raise(struct hca_cq *cq)
{
	if (cq->hca->spread)
		queue_work_on(hca_cq_cpu(cq), hca_bh_wq, &cq->bh);
	else if (hca_has_interrupts())
		irq_work_queue(&cq->irq);
	else
		queue_work(hca_bh_wq, &cq->bh);
}

static enum hrtimer_restart hca_cq_late(struct hrtimer *timer)
{
	hca_cq_raise(container_of(timer, struct hca_cq, late));
	return HRTIMER_NORESTART;
}

/*
 * A device that moderates its interrupts raises them later, and so in another
 * order than that in which the completions were added to their queues. One in
 * four comes at once.
 */
static void hca_cq_interrupt(struct hca_cq *cq)
{
	u32 most = cq->hca->moderation;

	if (!most || !get_random_u32_below(4))
		hca_cq_raise(cq);
	else if (!hrtimer_is_queued(&cq->late))
		hrtimer_start(&cq->late, us_to_ktime(get_random_u32_below(most) + 1),
			      HRTIMER_MODE_REL);
}

static void hca_cq_failed(struct work_struct *work)
{
	struct hca_cq *cq = container_of(work, struct hca_cq, error_work);
	struct ib_event event = {
		.device = cq->ib.device,
		.element.cq = &cq->ib,
		.event = IB_EVENT_CQ_ERR,
	};

	if (cq->ib.event_handler)
		cq->ib.event_handler(&event, cq->ib.cq_context);
	hca_qps_of_dead_cq(cq);
}

/* Adds a completion. Nothing is locked that comes after hca_cq.lock. */
void hca_cq_add(struct hca_cq *cq, const struct hca_cqe *cqe)
{
	bool interrupt = false, overflow = false;
	unsigned long flags;

	spin_lock_irqsave(&cq->lock, flags);
	if (cq->dead) {
		spin_unlock_irqrestore(&cq->lock, flags);
		return;
	}
	if (cq->head - cq->tail == cq->size) {
		overflow = true;
		cq->dead = true;
	} else {
		cq->cqe[cq->head++ & cq->mask] = *cqe;
		if (cq->armed && (cq->armed == IB_CQ_NEXT_COMP || cqe->solicited ||
				  cqe->wc.status != IB_WC_SUCCESS)) {
			cq->armed = 0;
			interrupt = true;
		}
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	if (overflow) {
		if (!cq->ib.uobject)
			hca_complain(cq->hca, HCA_RULE_CQ_OVERFLOW, "of %u", cq->size);
		queue_work(hca_wq, &cq->error_work);
	}
	if (interrupt)
		hca_cq_interrupt(cq);
}

/*
 * A Queue Pair is destroyed. Its completions stay, and say of it what is no
 * longer true, as with most hardware: it must not be used any more. The places
 * of its Receives are free.
 */
void hca_cq_forget(struct hca_cq *cq, struct hca_qp *qp)
{
	unsigned long flags;
	u32 i;

	spin_lock_irqsave(&cq->lock, flags);
	for (i = cq->tail; i != cq->head; i++) {
		struct hca_cqe *cqe = &cq->cqe[i & cq->mask];

		if (cqe->qp != qp)
			continue;
		if (cqe->rq)
			hca_rq_polled(cqe->rq, cqe->index);
		cqe->rq = NULL;
		cqe->qp = NULL;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
}

int hca_poll_cq(struct ib_cq *ib, int n, struct ib_wc *wc)
{
	struct hca_cq *cq = to_hca_cq(ib);
	unsigned long flags;
	int got = 0;

	spin_lock_irqsave(&cq->lock, flags);
	while (got < n && cq->tail != cq->head) {
		struct hca_cqe *cqe = &cq->cqe[cq->tail & cq->mask];

		if (!cqe->qp && cq->ib.uobject) {
			/* The core would look at the Queue Pair. */
			cq->tail++;
			continue;
		}
		wc[got++] = cqe->wc;
		if (cqe->rq)
			hca_rq_polled(cqe->rq, cqe->index);
		else if (cqe->qp)
			hca_sq_polled(cqe->qp, cqe->index);
		if (cqe->qp && cqe->qp->ib.qp_type == IB_QPT_RC) {
			hca_add(cq->hca, HCA_CNT_COMPLETIONS, 1);
			if (cqe->wc.status != IB_WC_SUCCESS)
				hca_add(cq->hca, HCA_CNT_ERRORS, 1);
		}
		cq->tail++;
	}
	spin_unlock_irqrestore(&cq->lock, flags);
	return got;
}

int hca_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags notify)
{
	struct hca_cq *cq = to_hca_cq(ib);
	unsigned long flags;
	int missed;

	spin_lock_irqsave(&cq->lock, flags);
	/* Waiting for any completion is more than waiting for a solicited one. */
	if (cq->armed != IB_CQ_NEXT_COMP)
		cq->armed = notify & IB_CQ_SOLICITED_MASK;
	missed = (notify & IB_CQ_REPORT_MISSED_EVENTS) && cq->head != cq->tail;
	spin_unlock_irqrestore(&cq->lock, flags);
	return missed;
}

int hca_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
		  struct uverbs_attr_bundle *attrs)
{
	struct hca_cq *cq = to_hca_cq(ib);

	might_sleep();
	cq->hca = to_hca(ib->device);
	if (attr->flags)
		return -EOPNOTSUPP;
	if (!attr->cqe || attr->cqe > cq->hca->profile->max_cqe ||
	    attr->comp_vector >= cq->hca->profile->vectors) {
		if (!ib->uobject)
			hca_complain(cq->hca, HCA_RULE_CREATE,
				     "a Completion Queue of %u on vector %u", attr->cqe,
				     attr->comp_vector);
		return -EINVAL;
	}
	if (hca_fault(cq->hca, HCA_FAULT_CREATE))
		return -ENOMEM;
	spin_lock_init(&cq->lock);
	cq->size = attr->cqe;
	cq->mask = roundup_pow_of_two(cq->size) - 1;
	cq->cqe = kvcalloc(cq->mask + 1, sizeof(*cq->cqe), GFP_KERNEL);
	if (!cq->cqe)
		return -ENOMEM;
	cq->irq = IRQ_WORK_INIT_HARD(hca_cq_irq);
	INIT_WORK(&cq->bh, hca_cq_bh);
	hrtimer_setup(&cq->late, hca_cq_late, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
	INIT_WORK(&cq->error_work, hca_cq_failed);
	ib->cqe = hca_profile_cqe(cq->hca, attr->cqe);
	return 0;
}

int hca_destroy_cq(struct ib_cq *ib, struct ib_udata *udata)
{
	struct hca_cq *cq = to_hca_cq(ib);

	might_sleep();
	if (atomic_read(&cq->qps)) {
		hca_complain(cq->hca, HCA_RULE_DESTROY_BUSY, "a Completion Queue");
		return -EBUSY;
	}
	hrtimer_cancel(&cq->late);
	if (hca_has_interrupts())
		irq_work_sync(&cq->irq);
	cancel_work_sync(&cq->bh);
	cancel_work_sync(&cq->error_work);
	kvfree(cq->cqe);
	return 0;
}
