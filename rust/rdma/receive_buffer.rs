// SPDX-License-Identifier: GPL-2.0

//! Receives and their buffers.
//!
//! # Who owns what
//!
//! A [`ReceiveBuffer`] is the one handle by which a buffer can be read and posted. Posting it gives
//! it away; it comes back with the completion of its Receive. In between, and if it is just
//! dropped, the memory is the queue's, see [`posting`](crate::rdma::posting).

use crate::kext::prelude::*;
use crate::{
    rdma::{
        completion::Completion,
        device::Device,
        dma::{
            Direction,
            DmaBuffer, //
        },
        posting::{
            Completes,
            Keeper,
            Posting, //
        },
        work_request::{
            set_receive_cqe,
            PlainRequest, //
        }, //
    },
    sys, //
};
use core::ptr;

/// The largest number of Receives that are posted together.
pub(crate) const RECEIVE_BATCH: u32 = 16;

/// Tells the queue that a Receive is of, and receives its completions.
pub(crate) trait ReceiveKind: Sized + 'static {
    /// The object to be told.
    type Owner: Send + Sync + 'static;

    /// A Receive has completed.
    fn completed(
        owner: ArcBorrow<'_, Self::Owner>,
        buffer: ReceiveBuffer<Self>,
        completion: Completion<'_>,
    );
}

/// A Receive of a QP's own.
pub(crate) struct Own<O>(PhantomData<O>);

/// To be told of the Receives of a QP.
pub(crate) trait Receives: Sized + Send + Sync + 'static {
    /// A Receive has completed. Runs in the context of completion handlers.
    fn received(
        this: ArcBorrow<'_, Self>,
        buffer: ReceiveBuffer<Own<Self>>,
        completion: Completion<'_>,
    );
}

impl<O: Receives> ReceiveKind for Own<O> {
    type Owner = O;

    fn completed(owner: ArcBorrow<'_, O>, buffer: ReceiveBuffer<Self>, completion: Completion<'_>) {
        O::received(owner, buffer, completion);
    }
}

/// The memory of a Receive.
struct ReceiveMemory<K> {
    /// Where the message goes.
    buffer: DmaBuffer,
    /// Set while its Receive is posted. The code that changes that makes, or gives away, the
    /// handle.
    posted: Atomic<bool>,
    /// The queue that it is of.
    kind: PhantomData<fn(K)>,
}

impl<K: ReceiveKind> Completes for ReceiveMemory<K> {
    type Owner = K::Owner;

    fn completed(this: Posting<Self>, owner: ArcBorrow<'_, K::Owner>, completion: Completion<'_>) {
        if !this.posted.xchg(false, Acquire) {
            // SAFETY: It is unmapped when the queue has ended, which waits for this.
            if let Some(device) = unsafe { this.buffer.device_name() } {
                kernel::pr_err_once!(
                    "device {device}: completed a Receive that was not posted; ignoring it \
                     (driver defect?)\n"
                );
            }
            return;
        }
        if completion.ok() && completion.is_message() {
            // SAFETY: It is unmapped when the queue has ended, which waits for this.
            unsafe { this.buffer.sync_for_cpu(completion.byte_len() as usize) };
        }
        // INVARIANT: It was posted, so nobody has a handle, and the device has given it back.
        K::completed(owner, ReceiveBuffer(this), completion);
    }

    fn ended(&self) {
        // SAFETY: No device uses it any more, and nobody posts it or handles its completion.
        unsafe { self.buffer.unmap() };
    }
}

/// A Receive buffer that is not posted.
///
/// # Invariants
///
/// There is no other handle, and no Receive with the buffer is posted.
pub(crate) struct ReceiveBuffer<K: ReceiveKind>(Posting<ReceiveMemory<K>>);

impl<K: ReceiveKind> ReceiveBuffer<K> {
    /// Makes a buffer of `len` octets for the queue of `keeper`. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Keeper::keep`], or `ENODEV`.
    ///
    /// # Safety
    ///
    /// As for [`Keeper::keep`].
    pub(super) unsafe fn new(
        keeper: &Arc<Keeper>,
        owner: &Arc<K::Owner>,
        device: &Device,
        len: usize,
    ) -> Result<Self> {
        let memory = ReceiveMemory {
            buffer: DmaBuffer::new(device, len, Direction::FromDevice)?,
            posted: Atomic::new(false),
            kind: PhantomData,
        };
        // INVARIANT: It was just made.
        // SAFETY: The caller guarantees it.
        Ok(Self(unsafe { keeper.keep(owner, memory) }?))
    }

    /// Returns its size in octets.
    pub(crate) fn len(&self) -> usize {
        self.0.buffer.len()
    }

    /// The first `len` octets, but not more than there are.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        // SAFETY: By the type invariant neither the device nor anybody else has the buffer.
        unsafe { self.0.buffer.bytes(len) }
    }

    /// Returns its place among all buffers of its queue. No two have the same at a time.
    pub(crate) fn place(&self) -> u32 {
        self.0.place()
    }

    /// Ends its mapping, and forgets it.
    pub(super) fn release(self, keeper: &Arc<Keeper>) {
        if self.0.is_for(keeper) {
            // SAFETY: By the type invariant it is not posted, and nobody else can post it.
            unsafe { keeper.release(self.0) };
        }
    }
}

/// A chain has no more Receives than that.
const BATCH: usize = RECEIVE_BATCH as usize;

/// Posts up to [`RECEIVE_BATCH`] Receives by `post`, a verb of the queue of `keeper`. Returns its
/// status.
///
/// Buffers of another queue are dropped. If the device refuses, what was posted is its own.
///
/// # Safety
///
/// `lkey` is the key for all local memory of the queue's PD. `post` posts the chain that it is
/// given to that queue.
pub(super) unsafe fn post_receives<K: ReceiveKind>(
    keeper: &Arc<Keeper>,
    lkey: u32,
    buffers: impl Iterator<Item = ReceiveBuffer<K>>,
    post: impl FnOnce(*const sys::ib_recv_wr) -> c_int,
) -> c_int {
    let mut sges: [sys::ib_sge; BATCH] = pin_init::zeroed();
    let mut requests: [sys::ib_recv_wr; BATCH] =
        core::array::from_fn(|_| sys::ib_recv_wr::zeroed());
    let places = sges.iter_mut().zip(requests.iter_mut());
    let mut count = 0;
    // In this order there is no buffer taken for which there is no place.
    let ours = buffers.filter(|buffer| buffer.0.is_for(keeper));
    for ((sge, request), ReceiveBuffer(memory)) in places.zip(ours) {
        let buffer = &memory.buffer;
        // A buffer is some pages long.
        sge.length = buffer.len() as u32;
        sge.addr = buffer.address();
        sge.lkey = lkey;
        request.num_sge = 1;
        request.sg_list = sge;
        set_receive_cqe(request, memory.cqe());
        count += 1;
        // SAFETY: It is unmapped when the queue has ended, and the caller's use of the queue keeps
        // it from ending.
        unsafe { buffer.sync_for_device(buffer.len()) };
        // With this there is no handle any more.
        memory.posted.store(true, Relaxed);
    }
    let mut first: *mut sys::ib_recv_wr = ptr::null_mut();
    for request in requests.iter_mut().take(count).rev() {
        request.next = first;
        first = request;
    }
    if first.is_null() {
        0
    } else {
        post(first)
    }
}
