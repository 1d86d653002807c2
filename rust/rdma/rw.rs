// SPDX-License-Identifier: GPL-2.0

//! RDMA Reads and Writes.
//!
//! C header: [`include/rdma/rw.h`](srctree/include/rdma/rw.h)
//!
//! The core maps the memory, registers it where the device wants that, and makes the work requests.

use crate::kext::prelude::*;
use crate::{
    kext::page_fragment::PageFragment,
    rdma::{
        cm::QueuePairUser,
        dma::Direction, //
    },
    sys, //
};
use core::{
    mem::MaybeUninit,
    ptr, //
};

/// Pages of a memory region at most: the core takes it that there are so many if the device can do
/// it.
const REGION_PAGES: u32 = 256;

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteAddress {
    /// The address of the first octet, as the peer gave it.
    pub(crate) offset: u64,
    /// The R_key.
    pub(crate) rkey: u32,
}

/// The state of a [`ReadWrite`]. On the heap, since work requests point into it.
struct Context {
    /// The core's state.
    ctx: sys::rdma_rw_ctx,
    /// The memory.
    memory: KVec<PageFragment>,
    /// The QP.
    qp: QueuePairUser,
    /// Which way the data goes.
    direction: Direction,
}

/// One RDMA Read or Write, whose memory is mapped. Dropped, it unmaps that, and then drops a `K`.
///
/// It is not posted, or kept by the queue that it is posted to: only that links it, see
/// [`ReadWrites`].
///
/// # Invariants
///
/// The core's state is initialised, for the other members of `context`.
pub(crate) struct ReadWrite<K> {
    /// The state.
    context: KBox<Context>,
    /// The number of its work requests.
    requests: u32,
    /// The number of octets that it moves.
    octets: u32,
    /// Dropped after it.
    with: K,
}

// SAFETY: The core's state and the QP may be used by any thread, one at a time.
unsafe impl<K: Send> Send for ReadWrite<K> {}

impl<K> ReadWrite<K> {
    /// Prepares a Read into `memory`, or a Write from it. The fragments follow one another without
    /// a gap but for page boundaries. Their maker keeps their pages until the value is dropped.
    /// Sleeps. `memory` is taken, but is as it was after `EINVAL`.
    ///
    /// If the device needs a memory region and all of the QP's are in use, `add_regions` is asked
    /// for more, and returns whether there are.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no memory, or more octets than 32 bits count, or if it has to be
    /// registered, and was mapped to addresses with gaps between them; `EAGAIN` if there are no
    /// more memory regions; `ENOMEM`; or what the device or `add_regions` reports.
    pub(crate) fn new(
        qp: QueuePairUser,
        direction: Direction,
        memory: &mut KVec<PageFragment>,
        remote: RemoteAddress,
        with: K,
        mut add_regions: impl FnMut(&QueuePairUser) -> Result<bool>,
    ) -> Result<Self> {
        let octets = octets(memory).filter(|octets| *octets != 0).ok_or(EINVAL)?;
        let count = u32::try_from(memory.len())?;
        let taken = core::mem::take(memory);
        // In its place: it is not small.
        let made = init!(Context {
            // SAFETY: Integers, pointers, and unions of those.
            ctx: unsafe { MaybeUninit::zeroed().assume_init() },
            memory: taken,
            qp,
            direction,
        });
        let mut context = KBox::init(made, GFP_KERNEL)?;
        loop {
            let iter = sys::bvec_iter {
                bi_size: octets,
                ..pin_init::zeroed()
            };
            // SAFETY: The user keeps the QP. The vectors are `octets` long together, they live as
            // long as the state, and their maker vouches for their pages. A state that could not be
            // initialised may be initialised again.
            let requests = unsafe {
                sys::rdma_rw_begin(
                    &raw mut context.ctx,
                    context.qp.as_ptr(),
                    context.qp.port(),
                    PageFragment::bio_vecs(&context.memory),
                    count,
                    iter,
                    remote.offset,
                    remote.rkey,
                    direction.as_raw(),
                )
            };
            match to_result(requests.min(0)) {
                Err(EAGAIN) if add_regions(&context.qp)? => {}
                Err(error) => {
                    *memory = KBox::into_inner(context).memory;
                    return Err(error);
                }
                // INVARIANT: It was just initialised.
                Ok(()) => {
                    return Ok(Self {
                        context,
                        requests: requests.unsigned_abs(),
                        octets,
                        with,
                    })
                }
            }
        }
    }

    /// Puts its work requests in front of `chain`. The last of all is signaled to `cqe` if there is
    /// no chain.
    fn link(&mut self, cqe: *mut sys::ib_cqe, chain: *mut sys::ib_send_wr) -> *mut sys::ib_send_wr {
        let context = &mut *self.context;
        // SAFETY: By the type invariant the state is initialised for this QP, which the user keeps.
        unsafe {
            sys::rdma_rw_ctx_wrs(
                &raw mut context.ctx,
                context.qp.as_ptr(),
                context.qp.port(),
                cqe,
                chain,
            )
        }
    }

    /// Returns what is dropped after it.
    pub(crate) fn with(&self) -> &K {
        &self.with
    }

    /// Returns the number of pages of memory.
    pub(crate) fn pages(&self) -> usize {
        self.context.memory.len()
    }
}

impl<K> Drop for ReadWrite<K> {
    fn drop(&mut self) {
        let context = &mut *self.context;
        // SAFETY: By the type invariant the state was initialised with the same arguments, and it
        // is destroyed only here. The user keeps the QP. What is posted is dropped when it has
        // completed, or the QP was drained, see `ReadWrites`.
        unsafe {
            sys::rdma_rw_end(
                &raw mut context.ctx,
                context.qp.as_ptr(),
                context.qp.port(),
                PageFragment::bio_vecs(&context.memory),
                context.memory.len() as u32,
                context.direction.as_raw(),
            )
        };
    }
}

/// The size of some Reads or Writes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Their number.
    pub(crate) transfers: u32,
    /// The number of octets that they move.
    pub(crate) octets: u32,
    /// The number of their work requests.
    pub(crate) requests: u32,
}

impl Load {
    /// Sums up.
    pub(crate) fn of<K>(operations: &[ReadWrite<K>]) -> Self {
        operations
            .iter()
            .fold(Self::default(), |sum, operation| Self {
                transfers: sum.transfers.saturating_add(1),
                octets: sum.octets.saturating_add(operation.octets),
                requests: sum.requests.saturating_add(operation.requests),
            })
    }
}

/// Reads or Writes that complete together, and an `M` that keeps their memory.
///
/// Once it is given to a [`SendQueue`](crate::rdma::send_queue::SendQueue) that has it to itself,
/// until they have completed, or can't any more. The fields are dropped in this order.
pub(crate) struct ReadWrites<K, M> {
    /// The Reads, or the Writes.
    operations: KVec<ReadWrite<K>>,
    /// Their size.
    load: Load,
    /// Keeps their memory.
    keeper: M,
}

impl<K, M> ReadWrites<K, M> {
    /// Puts `operations` together, of which `keeper` keeps the memory.
    pub(crate) fn new(operations: KVec<ReadWrite<K>>, keeper: M) -> Self {
        Self {
            load: Load::of(&operations),
            operations,
            keeper,
        }
    }

    /// Returns their size.
    pub(crate) fn load(&self) -> Load {
        self.load
    }

    /// Returns what keeps their memory.
    pub(crate) fn keeper(&self) -> &M {
        &self.keeper
    }

    /// Ends the operations, which are not posted, or have completed. Returns what keeps their
    /// memory.
    pub(crate) fn end(self) -> M {
        let Self {
            operations, keeper, ..
        } = self;
        drop(operations);
        keeper
    }

    /// Ends the operations, which are not posted, or have completed. Keeps what keeps their memory.
    pub(crate) fn unmap(&mut self) {
        self.operations = KVec::new();
        self.load = Load::default();
    }

    /// Puts the work requests of all in front of `chain`. The last of all is signaled to `cqe` if
    /// there is no chain. [`None`] if one is not for `qp`.
    pub(super) fn link(
        &mut self,
        qp: &QueuePairUser,
        cqe: *mut sys::ib_cqe,
        chain: *mut sys::ib_send_wr,
    ) -> Option<*mut sys::ib_send_wr> {
        let mut operations = self.operations.iter_mut();
        operations.try_fold(chain, |chain, operation| {
            let ours = ptr::eq(operation.context.qp.as_ptr(), qp.as_ptr());
            ours.then(|| operation.link(cqe, chain))
        })
    }
}

/// Returns the length of `memory` in octets, if 32 bits can count them.
pub(crate) fn octets(memory: &[PageFragment]) -> Option<u32> {
    memory
        .iter()
        .try_fold(0_u32, |sum, fragment| sum.checked_add(fragment.len()))
}

impl QueuePairUser {
    /// Makes `count` memory regions for Reads and Writes of the QP. They go with it. Sleeps.
    ///
    /// # Errors
    ///
    /// With the number of regions that are left, if not all could be made. The core has then given
    /// up all that nobody uses, those of earlier calls too. Some may be overlooked that others make
    /// or give back just now.
    pub(crate) fn add_read_write_regions(&self, count: u32) -> core::result::Result<(), u32> {
        let qp = self.as_ptr();
        // SAFETY: The user keeps the QP, which keeps its device.
        let pages = unsafe { (*(*qp).device).attrs.max_fast_reg_page_list_len };
        // SAFETY: As above. The core's own list of regions, which it protects, and empties when the
        // QP is destroyed.
        let made = unsafe {
            sys::ib_mr_pool_init(
                qp,
                &raw mut (*qp).rdma_mrs,
                c_int::try_from(count).unwrap_or(c_int::MAX),
                sys::ib_mr_type_IB_MR_TYPE_MEM_REG,
                pages.min(REGION_PAGES),
                0,
            )
        };
        if made == 0 {
            return Ok(());
        }
        // SAFETY: As above. The number is an aligned integer, which others change under a lock of
        // the core's; any value that it has had is good enough.
        let left = unsafe { (&raw const (*qp).mrs_used).read_volatile() };
        Err(u32::try_from(left).unwrap_or(0))
    }
}
