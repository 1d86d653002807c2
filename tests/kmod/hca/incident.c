// SPDX-License-Identifier: GPL-2.0
/*
 * Incidents: what happens to a device at a moment that a fault of the kind "any" names.
 *
 *   qp_fatal		a connected Queue Pair with Receives of its own, which a client's
 *			is, ends by itself
 *   shared_fatal	the same of one with shared Receives, which a server's is
 *   srq_error		a shared Receive Queue fails, and with it all that receive from it
 *   port_down		the port is down for HCA_INCIDENT_DOWN
 *   device_fatal	the device fails, and its driver removes it
 *   removal		the driver removes it, as when a card is pulled out
 *
 * An incident runs in a work item, which hca_dealloc_driver() waits for. If what
 * it is about is not there, nothing happens.
 */
#include <linux/delay.h>
#include "hca.h"

/* In milliseconds: shorter than the time for which an unanswered request is sent again. */
#define HCA_INCIDENT_DOWN	300

static void hca_incident_qp(struct hca_dev *hca, bool shared)
{
	struct hca_qp *qp = hca_qp_of(hca, shared);

	if (!qp)
		return;
	hca_qp_error(qp, IB_EVENT_QP_FATAL);
	hca_qp_put(qp);
}

static void hca_incident_srq(struct hca_dev *hca)
{
	struct ib_event event = { .device = &hca->ib, .event = IB_EVENT_SRQ_ERR };
	struct hca_qp *qp = hca_qp_of(hca, true);
	struct hca_srq *srq;
	unsigned long flags;

	if (!qp)
		return;
	/* The Queue Pair keeps it. */
	srq = to_hca_srq(qp->ib.srq);
	spin_lock_irqsave(&srq->rq.lock, flags);
	srq->rq.dead = true;
	spin_unlock_irqrestore(&srq->rq.lock, flags);
	event.element.srq = &srq->ib;
	if (srq->ib.event_handler)
		srq->ib.event_handler(&event, srq->ib.srq_context);
	hca_qps_of_dead_srq(srq);
	hca_qp_put(qp);
}

static void hca_incident_port(struct hca_dev *hca)
{
	struct ib_event event = {
		.device = &hca->ib,
		.element.port_num = 1,
		.event = IB_EVENT_PORT_ERR,
	};

	WRITE_ONCE(hca->up, false);
	ib_dispatch_event(&event);
	msleep(HCA_INCIDENT_DOWN);
	WRITE_ONCE(hca->up, true);
	event.event = IB_EVENT_PORT_ACTIVE;
	ib_dispatch_event(&event);
}

static void hca_incident_fatal(struct hca_dev *hca)
{
	struct ib_event event = { .device = &hca->ib, .event = IB_EVENT_DEVICE_FATAL };

	ib_dispatch_event(&event);
	hca_qps_of_dead_device(hca);
	ib_unregister_device_queued(&hca->ib);
}

void hca_incident(struct work_struct *work)
{
	struct hca_dev *hca = container_of(work, struct hca_dev, fault.work);

	/* It may be removed already. */
	if (!ib_device_try_get(&hca->ib))
		return;
	switch (hca->fault.incident) {
	case HCA_FAULT_QP_FATAL:
		hca_incident_qp(hca, false);
		break;
	case HCA_FAULT_SHARED_FATAL:
		hca_incident_qp(hca, true);
		break;
	case HCA_FAULT_SRQ_ERROR:
		hca_incident_srq(hca);
		break;
	case HCA_FAULT_PORT_DOWN:
		hca_incident_port(hca);
		break;
	case HCA_FAULT_DEVICE_FATAL:
		hca_incident_fatal(hca);
		break;
	case HCA_FAULT_REMOVAL:
		ib_unregister_device_queued(&hca->ib);
		break;
	default:
		break;
	}
	ib_device_put(&hca->ib);
}
