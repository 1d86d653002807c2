/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Test aid: an RDMA device in software that is as strict as hardware.
 *
 * Both ends of a connection are in one kernel, so nothing is sent over a
 * network: the engine of the sending Queue Pair copies from the memory of one
 * end to that of the other. All memory is reached through DMA addresses alone.
 *
 * Objects and their owners:
 *
 *   hca_dev	ib_core; lives from "rdma link add" to hca_dealloc_driver()
 *   hca_pd, hca_cq, hca_srq, hca_qp, hca_ah
 *		their consumer; ib_core allocates and frees the memory
 *   hca_mr	its consumer; freed by hca_dereg_mr()
 *
 * A Queue Pair is found by its number, and the finder holds a reference while
 * it uses it; hca_destroy_qp() waits for these. Work requests belong to
 * the device from the post until their completion has been polled.
 *
 * Locks, outermost first. All of them disable interrupts, since consumers
 * call from any context.
 *
 *   hca_iw_lock	the connections of iWARP, see iwcm.c
 *   hca_cq.lock	the ring of completions and what is armed
 *   hca_qp.lock	state, attributes and Send Queue
 *   hca_rq.lock	Receives, of a Queue Pair or shared
 *   hca_keys_lock	(rwlock) the state of all memory regions; held for
 *			reading while one piece of at most a page is copied, so
 *			nothing is reached any more after an invalidation
 *   hca_dma_lock	all DMA mappings, in the models of dma.c that have them
 *   hca_fault.lock	what goes wrong next
 *
 * Never are two locks of one kind held at once.
 */
#ifndef HCA_H
#define HCA_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/rbtree.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>

/* What all devices say that they can do; for the rest see profile.c. */
#define HCA_MAX_QP		4096
/* What a registration can grant. */
#define HCA_MR_ACCESS\
	(IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_READ | IB_ACCESS_REMOTE_WRITE)
#define HCA_MAX_MSG		BIT(30)
#define HCA_GIDS		256
#define HCA_PKEY		0xffff
#define HCA_GSI_QPN		1
/* The key for local memory that no region has, of profiles with one for all domains. */
#define HCA_LOCAL_DMA_LKEY	0xa5
/* With these, programs get a provider that does all through the kernel; see user.c. */
#define HCA_DRIVER_ID		RDMA_DRIVER_HFI1
#define HCA_UVERBS_ABI		1
#define HCA_UVERBS_CMDS\
	(BIT_ULL(IB_USER_VERBS_CMD_POLL_CQ) | BIT_ULL(IB_USER_VERBS_CMD_REQ_NOTIFY_CQ) |\
	 BIT_ULL(IB_USER_VERBS_CMD_POST_SEND) | BIT_ULL(IB_USER_VERBS_CMD_POST_RECV))
/* An RDMA Read or Write moves this many octets, then others have their turn. */
#define HCA_TURN		(64 << 10)

/*
 * What is counted: per device, in debugfs, as "name value". Only reliable
 * connections count, so the datagrams of the connection manager stay out.
 */
enum hca_counter {
	/* Calls of ib_post_send(), and of those that post Receives. */
	HCA_CNT_DOORBELLS,
	HCA_CNT_RECV_DOORBELLS,
	HCA_CNT_SENDS,
	HCA_CNT_SENDS_WITH_INV,
	HCA_CNT_RDMA_READS,
	HCA_CNT_RDMA_WRITES,
	HCA_CNT_REGISTRATIONS,
	HCA_CNT_LOCAL_INVS,
	HCA_CNT_REMOTE_INVS,
	/* Receives that were posted. */
	HCA_CNT_RECVS,
	HCA_CNT_SIGNALED,
	HCA_CNT_SGES,
	HCA_CNT_SEND_OCTETS,
	HCA_CNT_READ_OCTETS,
	HCA_CNT_WRITE_OCTETS,
	HCA_CNT_INTERRUPTS,
	/* Those that were polled, and those of them without success. */
	HCA_CNT_COMPLETIONS,
	HCA_CNT_ERRORS,
	/* How often the other end did not answer. */
	HCA_CNT_RETRIES,
	/* No Receive here for a message of the other end, and none there for one of this. */
	HCA_CNT_SENT_RNR,
	HCA_CNT_RCVD_RNR,
	/* In the DMA models with mappings of their own. */
	HCA_CNT_MAPS,
	HCA_CNT_UNMAPS,
	HCA_CNT_SYNCS_FOR_CPU,
	HCA_CNT_SYNCS_FOR_DEVICE,
	HCA_CNT_BOUNCED_OCTETS,
	/* Datagrams of QP1. */
	HCA_CNT_MADS,
	HCA_CNT_MADS_DROPPED,
	HCA_CNT_LAST_WQE_EVENTS,
	HCA_CNT_N
};

/*
 * The rules. A consumer that breaks one gets an error, as from hardware. That is
 * counted here; the first time is a line on the console, which fails a test.
 * What each is about is beside its name, in count.c.
 */
enum hca_rule {
	HCA_RULE_POST_STATE,
	HCA_RULE_POST_OPCODE,
	HCA_RULE_POST_SGES,
	HCA_RULE_POST_INLINE,
	HCA_RULE_POST_LENGTH,
	HCA_RULE_READ_SGES,
	HCA_RULE_SQ_OVERFLOW,
	HCA_RULE_RQ_OVERFLOW,
	HCA_RULE_SRQ_OVERFLOW,
	HCA_RULE_CQ_OVERFLOW,
	HCA_RULE_REG_STATE,
	HCA_RULE_REG_PD,
	HCA_RULE_REG_KEY,
	HCA_RULE_REG_KEY_AGAIN,
	HCA_RULE_REG_ACCESS,
	HCA_RULE_REG_PAGES,
	HCA_RULE_REG_DIRECTION,
	HCA_RULE_MAP_POSTED,
	HCA_RULE_MAP_VALID,
	HCA_RULE_INV_STATE,
	HCA_RULE_INV_PD,
	HCA_RULE_INV_KEY,
	HCA_RULE_REMOTE_INV,
	HCA_RULE_LOCAL_KEY,
	HCA_RULE_LOCAL_PD,
	HCA_RULE_LOCAL_BOUNDS,
	HCA_RULE_LOCAL_ACCESS,
	HCA_RULE_REMOTE_KEY,
	HCA_RULE_REMOTE_PD,
	HCA_RULE_REMOTE_BOUNDS,
	HCA_RULE_REMOTE_ACCESS,
	HCA_RULE_REMOTE_RIGHTS,
	HCA_RULE_RD_ATOMIC,
	HCA_RULE_RECV_LENGTH,
	HCA_RULE_MODIFY,
	HCA_RULE_CREATE,
	HCA_RULE_DESTROY_BUSY,
	HCA_RULE_DMA_ADDRESS,
	HCA_RULE_DMA_DIRECTION,
	HCA_RULE_DMA_UNMAP,
	HCA_RULE_DMA_IN_USE,
	HCA_RULE_DMA_SYNC,
	HCA_RULE_DMA_LEAK,
	HCA_RULE_N
};

enum hca_dma_model {
	HCA_DMA_DIRECT,
	HCA_DMA_BOUNCE,
	HCA_DMA_SLOT,
	HCA_DMA_GRANULE,
	HCA_DMA_IOMMU,
};

/* Under hca_dma_lock, but for what stays as it was made. */
struct hca_dma {
	enum hca_dma_model model;
	/* What memory is mapped for; goes with the device. */
	struct device *dev;
	/* In the model iommu: a PCI device, with a reference, and its tables. */
	struct pci_dev *edu;
	struct iommu_domain *domain;
	struct rb_root maps;
	/* The next address that was never given out. */
	u64 next;
	u32 mapped;
	/* So many mappings from now one fails; 0 is none. */
	u32 fail_map;
};

/* What is counted, and where something can go wrong; see fault.c. */
enum hca_fault_kind {
	HCA_FAULT_POST_SEND,
	HCA_FAULT_POST_RECV,
	/* The engine begins one. */
	HCA_FAULT_SEND,
	HCA_FAULT_READ,
	HCA_FAULT_WRITE,
	HCA_FAULT_REG_MR,
	HCA_FAULT_LOCAL_INV,
	HCA_FAULT_MAD,
	/* Any object of a consumer. */
	HCA_FAULT_CREATE,
	/* A Queue Pair's transition, but not to ERR. */
	HCA_FAULT_MODIFY,
	/* Each of these; the device itself has an incident then, see incident.c. */
	HCA_FAULT_ANY,
	HCA_FAULT_KINDS
};

enum hca_fault_action {
	HCA_FAULT_NONE,
	HCA_FAULT_FAIL,
	HCA_FAULT_LOST,
	HCA_FAULT_HALF,
	HCA_FAULT_REMOTE,
	HCA_FAULT_LATE,
	HCA_FAULT_TWICE,
	HCA_FAULT_REJECT,
	/* From here on: incidents. */
	HCA_FAULT_QP_FATAL,
	HCA_FAULT_SHARED_FATAL,
	HCA_FAULT_SRQ_ERROR,
	HCA_FAULT_PORT_DOWN,
	HCA_FAULT_DEVICE_FATAL,
	HCA_FAULT_REMOVAL,
	HCA_FAULT_ACTIONS
};

/* When a device tells that a Queue Pair has used its last shared Receive. */
enum hca_last_wqe { HCA_LAST_PROFILE, HCA_LAST_PROMPT, HCA_LAST_LATE, HCA_LAST_NEVER };

/* What the devices of a driver have in common, see profile.c. */
struct hca_profile {
	/* The type of link. */
	const char *type;
	u32 max_qp_wr, send_sge, recv_sge, sge_rd;
	/* Of a memory region. */
	u32 pages;
	u32 max_cqe;
	/* Zero if there are no shared Receive Queues. */
	u32 max_srq_wr;
	u32 rd_atomic;
	u32 vectors;
	/* Memory is registered by work requests. */
	bool mem_mgt;
	/* One key for local memory, for all protection domains. */
	bool local_dma_lkey;
	/* A shared Receive Queue of the size that is told is too large. */
	bool srq_is_less;
	/* Its connections are those of iWARP: of TCP, and without RNR. */
	bool iwarp;
	enum hca_last_wqe last_wqe;
	/* The size of a Completion Queue that it tells; what was asked for if NULL. */
	int (*cqe)(int asked);
	/* Whether there may be a Send Queue like that, if it is of no limit exceeded. */
	bool (*sq_fits)(const struct ib_qp_cap *cap);
};

struct hca_fault {
	/* Protects all of this. */
	spinlock_t lock;
	enum hca_fault_kind kind;
	/* HCA_FAULT_NONE if none is armed. */
	enum hca_fault_action action;
	u32 number;
	bool fired;
	u32 counts[HCA_FAULT_KINDS];
	/* What happens to the device; the work's own once it is queued. */
	enum hca_fault_action incident;
	struct work_struct work;
};

struct hca_dev {
	struct ib_device ib;
	const struct hca_profile *profile;
	/* Its own, which most models of DMA are for. */
	struct platform_device *pdev;
	/* In hca_devices, under hca_devices_lock, with the number 1. */
	struct list_head entry;
	struct hca_qp *gsi;
	/* Of iWARP: its only one. */
	union ib_gid gid;
	struct dentry *dir;
	/* The network device's link. */
	bool up;
	/* As the module's parameters were when the device was made. */
	u32 moderation;
	/* Each completion vector interrupts a CPU of its own. */
	bool spread;
	enum hca_last_wqe last_wqe;
	struct hca_dma dma;
	struct hca_fault fault;
	atomic64_t counters[HCA_CNT_N];
	atomic_t complaints[HCA_RULE_N];
	/* Complaints are not printed: they are what a test wants. */
	bool quiet;
};

struct hca_pd {
	struct ib_pd ib;
};

struct hca_ucontext {
	struct ib_ucontext ib;
};

struct hca_ah {
	struct ib_ah ib;
	union ib_gid sgid, dgid;
	enum ib_gid_type gid_type;
};

/* A posted Receive. Its place is free again when its completion was polled. */
struct hca_rwqe {
	u64 wr_id;
	u32 num_sge;
	struct ib_sge *sge;
};

/*
 * Receives of a Queue Pair, or shared ones. @ring has the numbers of those
 * that are posted, in order; @spare those of free places.
 */
struct hca_rq {
	/* Protects all of this. */
	spinlock_t lock;
	struct hca_dev *hca;
	struct hca_pd *pd;
	u32 max_wr, max_sge;
	struct hca_rwqe *wqe;
	struct ib_sge *sge;
	u32 *ring, head, tail, mask;
	u32 *spare, spares;
	/* Of a shared one: tell when fewer than this are posted. */
	u32 limit;
	/* Of a shared one: it has failed, so it takes and gives no more. */
	bool dead;
	/* A program posts to it. */
	bool excused;
};

struct hca_srq {
	struct ib_srq ib;
	struct hca_rq rq;
	atomic_t qps;
	struct work_struct limit_work;
};

/* A posted Send Queue entry; its place is free again as hca_sq_polled() says. */
struct hca_swqe {
	u64 wr_id;
	enum ib_wr_opcode opcode;
	u32 flags;
	bool signaled;
	/* The engine has begun with it, and this is what goes wrong. */
	bool begun;
	enum hca_fault_action fault;
	u32 length;
	u32 num_sge;
	struct ib_sge *sge;
	u32 inv_rkey;
	__be32 imm;
	union {
		struct {
			u64 addr;
			u32 rkey;
		} rdma;
		struct {
			/* The region may go meanwhile, against the rules. */
			u32 index, key;
			int access;
		} reg;
		struct {
			union ib_gid sgid, dgid;
			enum ib_gid_type gid_type;
			u32 qpn, qkey;
		} ud;
	};
};

/*
 * Send Queue indices never wrap back: @head is the next to be posted, @next
 * the next to be executed, @tail the oldest whose place is still taken.
 */
struct hca_qp {
	struct ib_qp ib;
	struct hca_dev *hca;
	u32 qpn;
	refcount_t refs;
	struct completion unused;

	/* Protects what follows, up to the engine's own. */
	spinlock_t lock;
	enum ib_qp_state state;
	struct ib_qp_attr attr;
	struct ib_qp_init_attr init;
	u32 head, next, tail, mask;
	struct hca_swqe *sq;
	struct ib_sge *sge;
	/* The engine of another Queue Pair is delivering a message here. */
	bool receiving;
	bool last_wqe_told, comm_est_told;
	/* It has ended without its consumer. */
	bool failed;
	/* It answers nothing, or tears what it sends, see user.c; without the lock. */
	bool silent, tears;
	/* The Receive of a message that was torn: @receiving's. */
	struct hca_rwqe *torn;
	/* The engine waits for @retry. */
	bool waiting;

	/* The engine's own, of which there is only one at a time. */
	struct work_struct engine;
	struct timer_list retry;
	u32 moved;
	u32 rnr_left;
	bool unanswered;
	unsigned long give_up;

	struct hca_rq rq;
	unsigned long events;
	struct work_struct event_work;
	/* Tells IB_EVENT_QP_LAST_WQE_REACHED where that is late. */
	struct delayed_work last_work;
	/* Of iWARP: its connection, while it has one; under hca_iw_lock. */
	struct hca_conn *conn;
};

/* What a completion is, and whose places are free when it has been polled. */
struct hca_cqe {
	struct ib_wc wc;
	/* NULL when the Queue Pair was destroyed meanwhile. */
	struct hca_qp *qp;
	struct hca_rq *rq;
	u32 index;
	bool solicited;
};

struct hca_cq {
	struct ib_cq ib;
	struct hca_dev *hca;
	atomic_t qps;

	/* Protects what follows, up to the handler's. */
	spinlock_t lock;
	struct hca_cqe *cqe;
	u32 size, mask, head, tail;
	enum ib_cq_notify_flags armed;
	bool dead;

	/* One handler at a time: how many interrupts it has to answer. */
	atomic_t pending;
	struct irq_work irq;
	struct work_struct bh;
	/* Raises an interrupt that is moderated. */
	struct hrtimer late;
	struct work_struct error_work;
};

enum hca_mr_state { HCA_MR_FREE, HCA_MR_VALID };

/* All but @ib under hca_keys_lock, apart from what the comments say. */
struct hca_mr {
	struct ib_mr ib;
	struct hca_dev *hca;
	u32 index;
	/* All memory there is, for local access: ib_pd.local_dma_lkey. */
	bool dma;
	enum hca_mr_state state;
	/* Registrations that are posted and not executed. */
	atomic_t posted;
	/* As they were when the registration was executed. */
	u32 key;
	bool had_key;
	int access;
	u64 iova, length;
	u32 page_size;
	/* Written by hca_map_mr_sg(), which is the consumer's to serialize. */
	u64 *pages;
	u32 npages, max_pages;
	/* Those of a program, which are pinned and mapped here; else NULL. */
	struct page **user_pages;
};

/* Memory as work requests name it, and how far one has got in it. */
struct hca_cursor {
	struct hca_dev *hca;
	struct hca_pd *pd;
	const struct ib_sge *sge;
	u32 num_sge;
	/* Octets of the first SGE that are behind. */
	u32 at;
	/* IB_ACCESS_REMOTE_*: @sge has an R_key. Else IB_ACCESS_LOCAL_WRITE or 0. */
	int access;
	/* A program has named the memory, or is the one that uses it. */
	bool excused;
};

static inline struct hca_dev *to_hca(struct ib_device *ib)
{
	return container_of(ib, struct hca_dev, ib);
}

static inline struct hca_pd *to_hca_pd(struct ib_pd *ib)
{
	return container_of(ib, struct hca_pd, ib);
}

static inline struct hca_ah *to_hca_ah(struct ib_ah *ib)
{
	return container_of(ib, struct hca_ah, ib);
}

static inline struct hca_qp *to_hca_qp(struct ib_qp *ib)
{
	return container_of(ib, struct hca_qp, ib);
}

static inline struct hca_cq *to_hca_cq(struct ib_cq *ib)
{
	return container_of(ib, struct hca_cq, ib);
}

static inline struct hca_srq *to_hca_srq(struct ib_srq *ib)
{
	return container_of(ib, struct hca_srq, ib);
}

static inline struct hca_mr *to_hca_mr(struct ib_mr *ib)
{
	return container_of(ib, struct hca_mr, ib);
}

static inline struct hca_rq *hca_rq_of(struct hca_qp *qp)
{
	return qp->ib.srq ? &to_hca_srq(qp->ib.srq)->rq : &qp->rq;
}

/* Whether the consumer is a program in user space. */
static inline bool hca_is_program(const struct hca_qp *qp)
{
	return qp->ib.uobject;
}

static inline bool hca_is_read(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_RDMA_READ || opcode == IB_WR_RDMA_READ_WITH_INV;
}

static inline void hca_add(struct hca_dev *hca, enum hca_counter which, s64 n)
{
	atomic64_add(n, &hca->counters[which]);
}

/* main.c */
extern struct workqueue_struct *hca_bh_wq, *hca_wq;
extern struct list_head hca_devices;
extern spinlock_t hca_devices_lock;
void hca_dealloc_driver(struct ib_device *ib);

/* verbs.c */
extern const struct ib_device_ops hca_ops, hca_iw_ops;

/* count.c */
void hca_count_init(struct hca_dev *hca);
void hca_count_exit(struct hca_dev *hca);
extern struct dentry *hca_debugfs;
__printf(3, 4)
void hca_complain(struct hca_dev *hca, enum hca_rule rule, const char *format, ...);
/*
 * Programs are there to break rules. What is wrong between a program and a
 * consumer in the kernel may be the program's doing, so it does not count.
 * Otherwise it counts for the device of @qp.
 */
#define hca_complain_of(qp, other, rule, format, ...) do {				\
	if (!hca_is_program(qp) && !hca_is_program(other))				\
		hca_complain((qp)->hca, rule, format, ##__VA_ARGS__);			\
} while (0)
#define hca_cursor_complain(c, rule, format, ...) do {					\
	if (!(c)->excused)								\
		hca_complain((c)->hca, rule, format, ##__VA_ARGS__);			\
} while (0)
struct rdma_hw_stats *hca_alloc_hw_port_stats(struct ib_device *ib, u32 port);
int hca_get_hw_stats(struct ib_device *ib, struct rdma_hw_stats *stats, u32 port, int index);

/* fault.c */
enum hca_fault_action hca_fault(struct hca_dev *hca, enum hca_fault_kind kind);
void hca_fault_init(struct hca_dev *hca);
void hca_fault_show_in(struct hca_dev *hca);

/* incident.c */
void hca_incident(struct work_struct *work);

/* qp.c */
struct hca_qp *hca_qp_find(u32 qpn);
void hca_qp_put(struct hca_qp *qp);
void hca_qp_event(struct hca_qp *qp, enum ib_event_type event);
void hca_qp_set(struct hca_dev *hca);
void hca_qp_last(struct hca_qp *qp);
void hca_qp_error(struct hca_qp *qp, int event);
void hca_qps_of_dead_cq(struct hca_cq *cq);
struct hca_qp *hca_qp_of(struct hca_dev *hca, bool shared);
void hca_qps_of_dead_srq(struct hca_srq *srq);
void hca_qps_of_dead_device(struct hca_dev *hca);
void hca_sq_polled(struct hca_qp *qp, u32 index);
int hca_create_qp(struct ib_qp *ib, struct ib_qp_init_attr *init, struct ib_udata *udata);
int hca_modify_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask, struct ib_udata *udata);
int hca_query_qp(struct ib_qp *ib, struct ib_qp_attr *attr, int mask,
		 struct ib_qp_init_attr *init);
int hca_destroy_qp(struct ib_qp *ib, struct ib_udata *udata);

/* cq.c */
void hca_cq_add(struct hca_cq *cq, const struct hca_cqe *cqe);
void hca_cq_set(struct hca_dev *hca);

/* profile.c, main.c */
int hca_profile_cqe(const struct hca_dev *hca, int asked);
void hca_profiles_register(void);
void hca_profiles_unregister(void);
int hca_newlink(const char *name, struct net_device *ndev, const struct hca_profile *profile);
void hca_cq_forget(struct hca_cq *cq, struct hca_qp *qp);
int hca_create_cq(struct ib_cq *ib, const struct ib_cq_init_attr *attr,
		  struct uverbs_attr_bundle *attrs);
int hca_destroy_cq(struct ib_cq *ib, struct ib_udata *udata);
int hca_poll_cq(struct ib_cq *ib, int n, struct ib_wc *wc);
int hca_req_notify_cq(struct ib_cq *ib, enum ib_cq_notify_flags flags);

/* post.c */
int hca_rq_init(struct hca_rq *rq, struct hca_dev *hca, struct hca_pd *pd, u32 max_wr,
		u32 max_sge);
void hca_rq_exit(struct hca_rq *rq);
struct hca_rwqe *hca_rq_take(struct hca_rq *rq);
void hca_rq_return(struct hca_rq *rq, struct hca_rwqe *wqe);
void hca_rq_polled(struct hca_rq *rq, u32 index);
int hca_post_send(struct ib_qp *ib, const struct ib_send_wr *wr, const struct ib_send_wr **bad);
int hca_post_recv(struct ib_qp *ib, const struct ib_recv_wr *wr, const struct ib_recv_wr **bad);
int hca_post_srq_recv(struct ib_srq *ib, const struct ib_recv_wr *wr,
		      const struct ib_recv_wr **bad);

/* engine.c */
void hca_engine(struct work_struct *work);
void hca_retry(struct timer_list *timer);
void hca_qp_torn(struct hca_qp *qp);

/* mad.c */
void hca_send_mad(struct hca_qp *qp, struct hca_swqe *wqe);

/* iwcm.c */
struct iw_cm_id;
struct iw_cm_conn_param;
void hca_iw_drop(struct hca_qp *qp);
int hca_iw_join(struct hca_qp *qp, struct hca_qp *other, u32 ord, u32 ird);
int hca_iw_connect(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int hca_iw_accept(struct iw_cm_id *id, struct iw_cm_conn_param *param);
int hca_iw_reject(struct iw_cm_id *id, const void *data, u8 length);
int hca_iw_create_listen(struct iw_cm_id *id, int backlog);
int hca_iw_destroy_listen(struct iw_cm_id *id);
struct ib_qp *hca_iw_get_qp(struct ib_device *ib, int qpn);
void hca_iw_add_ref(struct ib_qp *ib);
void hca_iw_rem_ref(struct ib_qp *ib);

/* mr.c */
extern rwlock_t hca_keys_lock;
struct hca_mr *hca_mr_new(struct ib_pd *ib);
void hca_mr_own(struct hca_mr *mr, u64 iova, u64 length, int access);
struct ib_mr *hca_get_dma_mr(struct ib_pd *ib, int access);
struct ib_mr *hca_alloc_mr(struct ib_pd *ib, enum ib_mr_type type, u32 max_num_sg);
int hca_map_mr_sg(struct ib_mr *ib, struct scatterlist *sg, int n, unsigned int *offset);
int hca_dereg_mr(struct ib_mr *ib, struct ib_udata *udata);
enum ib_wc_status hca_reg_mr(struct hca_qp *qp, const struct hca_swqe *wqe);
void hca_reg_executed(u32 index);
enum ib_wc_status hca_local_inv(struct hca_qp *qp, u32 key);
bool hca_remote_inv(struct hca_qp *qp, u32 key, bool excused);
void hca_sges_use(struct hca_dev *hca, const struct ib_sge *sge, u32 num_sge, int users);
enum hca_side { HCA_BOTH_FINE, HCA_FROM_FAILED, HCA_TO_FAILED };
enum hca_side hca_move(struct hca_cursor *to, struct hca_cursor *from, u32 length);
bool hca_fill(struct hca_cursor *to, const void *from, u32 length);
bool hca_look(struct hca_cursor *from, void *to, u32 length);

/* user.c */
int hca_alloc_ucontext(struct ib_ucontext *context, struct ib_udata *udata);
void hca_dealloc_ucontext(struct ib_ucontext *context);
void hca_disassociate_ucontext(struct ib_ucontext *context);
struct ib_mr *hca_reg_user_mr(struct ib_pd *pd, u64 start, u64 length, u64 virt_addr, int access,
			      struct ib_dmah *dmah, struct ib_udata *udata);
void hca_user_release(struct hca_mr *mr);
void hca_user_show(struct hca_dev *hca);

/* selftest.c */
void hca_selftest_init(struct hca_dev *hca);

/* Whether mappings are our own, not those of the kernel's DMA code. */
static inline bool hca_dma_is_own(enum hca_dma_model model)
{
	return model != HCA_DMA_DIRECT && model != HCA_DMA_IOMMU;
}

/* dma.c */
int hca_dma_init(struct hca_dev *hca);
void hca_dma_exit(struct hca_dev *hca);
/* Memory at an address, *@length octets at most; NULL after a complaint. Under hca_dma_lock. */
void *hca_dma_reach(struct hca_dev *hca, dma_addr_t addr, u32 *length, bool write);
void hca_dma_show(struct hca_dev *hca);
void hca_dma_use(struct hca_dev *hca, dma_addr_t addr, u64 length, int users);
bool hca_dma_allows(struct hca_dev *hca, dma_addr_t addr, int access);
void hca_dma_lock(unsigned long *flags);
void hca_dma_unlock(unsigned long flags);

#endif
