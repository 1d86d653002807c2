// SPDX-License-Identifier: GPL-2.0

//! Send buffers.

use super::{
    chain::ToCome,
    owner::SendQueueOwner,
    types::{
        PostError,
        SendOptions,
        WritesOf, //
    }, //
};
use crate::kext::prelude::*;
use crate::{
    kext::handover::Handover,
    rdma::{
        cm::{
            Drained,
            QueuePairUser, //
        },
        completion::Completion,
        dma::{
            Direction,
            DmaBuffer, //
        },
        posting::{
            Completes,
            Posting, //
        },
        work_request::{
            set_send_cqe,
            PlainRequest, //
        }, //
    },
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ops::{
        Deref,
        DerefMut, //
    }, //
};

/// The Writes before a Send.
pub(super) struct Carried<O: SendQueueOwner> {
    /// The Writes.
    pub(super) writes: WritesOf<O>,
    /// Those that are not posted yet: none, if they are posted with the Send.
    pub(super) to_come: ToCome,
}

/// A Send buffer, and what is posted with it.
pub(super) struct SendSlot<O: SendQueueOwner> {
    /// Where in the Send Queue it was posted last.
    place: Atomic<u64>,
    /// The Writes before it, released when the Send has completed. A completion that comes behind
    /// the marker of a drain may take them at the same time as the end of the queue.
    carried: Handover<Carried<O>>,
    /// Where the message is.
    buffer: DmaBuffer,
}

impl<O: SendQueueOwner> SendSlot<O> {
    /// It is about to be posted.
    pub(super) fn posted(&self, place: u64) {
        self.place.store(place, Relaxed);
    }

    /// Keeps Writes that are about to be posted.
    ///
    /// # Errors
    ///
    /// The Writes, if it has some. It has none, since it was free.
    pub(super) fn carry(
        &self,
        writes: WritesOf<O>,
        to_come: ToCome,
    ) -> core::result::Result<(), WritesOf<O>> {
        let carried = Carried { writes, to_come };
        self.carried.put(carried).map_err(|carried| carried.writes)
    }

    /// Does something with its Writes, if it has any and nobody ends them. They stay with it.
    pub(super) fn with_carried<T>(&self, act: impl FnOnce(&mut Carried<O>) -> T) -> Option<T> {
        let mut carried = self.carried.take()?;
        let result = act(&mut carried);
        // It has none now.
        let _ = self.carried.put(carried);
        Some(result)
    }
}

impl<O: SendQueueOwner> Completes for SendSlot<O> {
    type Owner = O;

    fn completed(this: Posting<Self>, owner: ArcBorrow<'_, O>, completion: Completion<'_>) {
        let place = this.place.load(Relaxed);
        // Before the buffer comes free, and with it the place of the Writes.
        drop(this.carried.take());
        O::sent(owner, place, completion);
    }

    fn ended(&self) {
        drop(self.carried.take());
        // SAFETY: No device uses it any more, and nobody posts it.
        unsafe { self.buffer.unmap() };
    }
}

/// A Send buffer that is not posted, or posted and in its [`SendQueue`](super::SendQueue).
///
/// # Invariants
///
/// There is no other handle. A device reads the memory at most: while it does, whoever wrote to it
/// would change what is sent, and no more.
pub(crate) struct SendMemory<O: SendQueueOwner>(Posting<SendSlot<O>>);

impl<O: SendQueueOwner> SendMemory<O> {
    /// Makes a buffer of `len` octets for a QP. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the QP has as many postings as there may be, `ENODEV` if the device is going,
    /// `ENOMEM`.
    pub(crate) fn new(qp: &QueuePairUser, owner: &Arc<O>, len: usize) -> Result<Self> {
        let slot = SendSlot {
            place: Atomic::new(0),
            carried: Handover::new(),
            buffer: DmaBuffer::new(qp.device(), len, Direction::ToDevice)?,
        };
        // INVARIANT: It was just made.
        Ok(Self(qp.keep(owner, slot)?))
    }

    /// Gives the buffer up before its QP ends: unmaps and frees it. Any context in which spinlocks
    /// may be taken.
    pub(crate) fn release(self, qp: &QueuePairUser) {
        if self.0.is_for(qp.keeper()) {
            // SAFETY: By the type invariant there is no other handle by which it could be posted,
            // and this one is in no queue, so it is not posted.
            unsafe { qp.keeper().release(self.0) };
        }
    }

    /// Returns whether Writes were posted for it: then it is of use for nothing but their Send.
    #[inline]
    pub(crate) fn is_begun(&self) -> bool {
        self.0.carried.is_full()
    }

    /// Ends the Writes of which no completion has come, in a queue that was drained. What keeps
    /// their memory stays until the QP is destroyed.
    pub(crate) fn reclaim(&self, drained: &Drained<'_>) {
        if drained.is_of(&self.0) {
            self.0.with_carried(|carried| carried.writes.unmap());
        }
    }

    /// Returns what is posted.
    pub(super) fn slot(&self) -> &Posting<SendSlot<O>> {
        &self.0
    }
}

impl<O: SendQueueOwner> Deref for SendMemory<O> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let buffer = &self.0.buffer;
        // SAFETY: By the type invariant only this handle gives access, and no device writes to it.
        unsafe { buffer.bytes(buffer.len()) }
    }
}

impl<O: SendQueueOwner> DerefMut for SendMemory<O> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: As in `deref`.
        unsafe { self.0.buffer.bytes_mut() }
    }
}

/// The Send of a message, and where that is. Linked when it stays in place.
pub(super) struct SendRequest {
    /// The message.
    sge: sys::ib_sge,
    /// The work request.
    request: sys::ib_send_wr,
}

impl SendRequest {
    /// A Send of the message in `memory`, which is handed to the device.
    ///
    /// # Errors
    ///
    /// `Refused` if that is not a buffer of `qp`.
    pub(super) fn new<O: SendQueueOwner>(
        qp: &QueuePairUser,
        memory: &SendMemory<O>,
        send: SendOptions,
    ) -> Result<Self, PostError> {
        let slot = memory.slot();
        if !slot.is_for(qp.keeper()) {
            return Err(PostError::Refused);
        }
        let buffer = &slot.buffer;
        let len = send.len.min(buffer.len());
        // SAFETY: It is unmapped when the QP has ended, of which there is a user.
        unsafe { buffer.sync_for_device(len) };
        let mut request = sys::ib_send_wr {
            num_sge: 1,
            opcode: sys::ib_wr_opcode_IB_WR_SEND,
            ..sys::ib_send_wr::zeroed()
        };
        if let Some(rkey) = send.invalidate {
            request.opcode = sys::ib_wr_opcode_IB_WR_SEND_WITH_INV;
            request.ex.invalidate_rkey = ManuallyDrop::new(rkey);
        }
        set_send_cqe(&mut request, slot.cqe());
        Ok(Self {
            sge: sys::ib_sge {
                addr: buffer.address(),
                // A buffer is some pages long.
                length: len as u32,
                lkey: qp.lkey(),
            },
            request,
        })
    }

    /// Has it signaled.
    pub(super) fn signal(&mut self) {
        self.request.send_flags = sys::ib_send_flags_IB_SEND_SIGNALED as c_int;
    }

    /// The work request, as the last one of a chain. Valid until `self` is touched again.
    pub(super) fn link(&mut self) -> *mut sys::ib_send_wr {
        self.request.sg_list = &raw mut self.sge;
        &raw mut self.request
    }
}
