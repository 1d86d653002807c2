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
use core::ptr;
use kernel::types::Opaque;

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
///
/// # Invariants
///
/// If there is a QP, `ctx` is initialised, for the other members.
struct State<K> {
    /// The core's state.
    ctx: Opaque<sys::rdma_rw_ctx>,
    /// The number of its work requests.
    requests: u32,
    /// The number of octets that it moves.
    octets: u32,
    /// Which way the data goes.
    direction: Direction,
    /// The memory.
    memory: KVec<PageFragment>,
    /// The QP, while the memory is mapped.
    qp: Option<QueuePairUser>,
    /// Dropped after the others.
    with: K,
}

impl<K> State<K> {
    /// Unmaps the memory, unless that was done.
    fn unmap(&mut self) {
        // INVARIANT: There is no QP any more.
        let Some(qp) = self.qp.take() else { return };
        // SAFETY: By the type invariant the state was initialised with the same arguments, and it
        // is destroyed only here. The user keeps the QP. What is posted is unmapped when it has
        // completed, or the QP was drained, see `ReadWrites`.
        unsafe {
            sys::rdma_rw_end(
                self.ctx.get(),
                qp.as_ptr(),
                qp.port(),
                PageFragment::bio_vecs(&self.memory),
                self.memory.len() as u32,
                self.direction.as_raw(),
            )
        };
    }
}

impl<K> Drop for State<K> {
    fn drop(&mut self) {
        self.unmap();
    }
}

/// Something that is dropped after a [`ReadWrite`].
pub(crate) trait Unmapped {
    /// The memory was unmapped before, by [`ReadWrites::unmap`].
    fn unmapped(&mut self);
}

/// One RDMA Read or Write, whose memory is mapped until [`ReadWrites::unmap`]. Dropped, it unmaps
/// that at the latest, and then drops a `K`.
///
/// It is not posted, or kept by the queue that it is posted to: only that links it, see
/// [`ReadWrites`].
pub(crate) struct ReadWrite<K>(KBox<State<K>>);

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
        // INVARIANT: There is no QP.
        let made = init!(State {
            ctx: Opaque::uninit(),
            requests: 0,
            octets,
            direction,
            memory: taken,
            qp: None,
            with,
        });
        let mut state = KBox::init(made, GFP_KERNEL)?;
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
                    state.ctx.get(),
                    qp.as_ptr(),
                    qp.port(),
                    PageFragment::bio_vecs(&state.memory),
                    count,
                    iter,
                    remote.offset,
                    remote.rkey,
                    direction.as_raw(),
                )
            };
            match to_result(requests.min(0)) {
                Err(EAGAIN) if add_regions(&qp)? => {}
                Err(error) => {
                    *memory = core::mem::take(&mut state.memory);
                    return Err(error);
                }
                Ok(()) => {
                    state.requests = requests.unsigned_abs();
                    // INVARIANT: The core's state was just initialised.
                    state.qp = Some(qp);
                    return Ok(Self(state));
                }
            }
        }
    }

    /// Puts its work requests in front of `chain`. The last of all is signaled to `cqe` if there is
    /// no chain. [`None`] if it is not mapped for `qp`.
    fn link(
        &mut self,
        qp: &QueuePairUser,
        cqe: *mut sys::ib_cqe,
        chain: *mut sys::ib_send_wr,
    ) -> Option<*mut sys::ib_send_wr> {
        let state = &mut *self.0;
        let own = state.qp.as_ref()?.as_ptr();
        if !ptr::eq(own, qp.as_ptr()) {
            return None;
        }
        // SAFETY: By the type invariant the state is initialised for this QP, which the user keeps.
        Some(unsafe { sys::rdma_rw_ctx_wrs(state.ctx.get(), own, qp.port(), cqe, chain) })
    }

    /// Returns the number of octets that it moves.
    pub(crate) fn octets(&self) -> u32 {
        self.0.octets
    }

    /// Returns what is dropped after it.
    pub(crate) fn with(&self) -> &K {
        &self.0.with
    }

    /// As [`Self::with`], to change it.
    pub(crate) fn with_mut(&mut self) -> &mut K {
        &mut self.0.with
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

/// Some Reads or Writes, in the order in which they are posted. Mostly there is one, for which the
/// list takes no memory.
pub(crate) struct Operations<K> {
    /// The first one.
    first: Option<ReadWrite<K>>,
    /// All others.
    others: KVec<ReadWrite<K>>,
    /// Their size.
    load: Load,
}

impl<K> Operations<K> {
    /// None.
    pub(crate) const fn new() -> Self {
        Self {
            first: None,
            others: KVec::new(),
            load: Load {
                transfers: 0,
                octets: 0,
                requests: 0,
            },
        }
    }

    /// Appends one.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub(crate) fn push(&mut self, operation: ReadWrite<K>) -> Result {
        let (load, state) = (self.load, &*operation.0);
        let load = Load {
            transfers: load.transfers.saturating_add(1),
            octets: load.octets.saturating_add(state.octets),
            requests: load.requests.saturating_add(state.requests),
        };
        if self.first.is_none() {
            self.first = Some(operation);
        } else {
            self.others.push(operation, GFP_KERNEL)?;
        }
        self.load = load;
        Ok(())
    }

    /// Returns whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns their size.
    pub(crate) const fn load(&self) -> Load {
        self.load
    }

    /// Returns the first one.
    pub(crate) const fn first(&self) -> Option<&ReadWrite<K>> {
        self.first.as_ref()
    }

    /// Shows each of them to `change`.
    pub(crate) fn for_each(&mut self, mut change: impl FnMut(&mut ReadWrite<K>)) {
        self.first.iter_mut().for_each(&mut change);
        self.others.iter_mut().for_each(change);
    }
}

/// Reads or Writes that complete together, and an `M` that keeps their memory.
///
/// Once it is given to a [`SendQueue`](crate::rdma::send_queue::SendQueue) that has it to itself,
/// until they have completed, or can't any more. The fields are dropped in this order.
pub(crate) struct ReadWrites<K, M> {
    /// The Reads, or the Writes.
    operations: Operations<K>,
    /// Keeps their memory.
    keeper: M,
}

impl<K, M> ReadWrites<K, M> {
    /// Puts `operations` together, of which `keeper` keeps the memory.
    pub(crate) fn new(operations: Operations<K>, keeper: M) -> Self {
        Self { operations, keeper }
    }

    /// Returns their size.
    pub(crate) fn load(&self) -> Load {
        self.operations.load()
    }

    /// Returns what keeps their memory.
    pub(crate) fn keeper(&self) -> &M {
        &self.keeper
    }

    /// Ends the operations, which are not posted, or have completed. Returns what keeps their
    /// memory.
    pub(crate) fn end(this: KBox<Self>) -> M {
        let Self { operations, keeper } = KBox::into_inner(this);
        drop(operations);
        keeper
    }

    /// Unmaps the memory of the operations, which are not posted, or have completed.
    pub(crate) fn unmap(&mut self)
    where
        K: Unmapped,
    {
        self.operations.for_each(|ReadWrite(state)| {
            state.unmap();
            state.with.unmapped();
        });
    }

    /// Puts the work requests of all in front of `chain`. The last of all is signaled to `cqe` if
    /// there is no chain. [`None`] if one is not for `qp`.
    pub(super) fn link(
        &mut self,
        qp: &QueuePairUser,
        cqe: *mut sys::ib_cqe,
        chain: *mut sys::ib_send_wr,
    ) -> Option<*mut sys::ib_send_wr> {
        let Operations { first, others, .. } = &mut self.operations;
        let mut operations = Iterator::chain(first.iter_mut(), others);
        operations.try_fold(chain, |chain, operation| operation.link(qp, cqe, chain))
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
