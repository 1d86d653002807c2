// SPDX-License-Identifier: GPL-2.0

//! Slots: what SUNRPC keeps about an RPC, together with what a transport adds to it.
//!
//! C header: [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h)

use super::{
    buffer::Buffer,
    transport::Transport,
    xdr_buf::XdrBuf, //
};
use crate::sys;
use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ptr, //
};
use kernel::{
    alloc::Flags,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    types::Opaque, //
};

/// An `rpc_rqst`, its buffers, and what the transport keeps for it (`call`).
///
/// A slot is either free, and then the transport's, or lent to SUNRPC, which then has one reference
/// to it (a raw pointer to `rqst`, in `rpc_task::tk_rqstp`), and works on `rqst` and the buffers
/// by its own rules. References of the transport's give access to `call` only; what is needed of
/// `rqst` comes through [`SendRqst`](super::SendRqst), [`BcReply`](super::BcReply) and
/// [`Pinned`](super::Pinned), each of which stands for a time in which SUNRPC leaves it alone.
///
/// # Invariants
///
/// - `rqst` is the first field, so that a pointer to it is one to the slot.
/// - While `lent` is false, nobody but the one who is about to lend it uses `rqst` and the buffers.
#[repr(C)]
#[pin_data]
pub(crate) struct Slot<C> {
    /// What SUNRPC sees.
    #[pin]
    rqst: Opaque<sys::rpc_rqst>,
    /// Memory for the Call, or the Reply of a reverse-direction Call.
    send: UnsafeCell<Buffer>,
    /// Memory for the Reply, or a reverse-direction Call.
    receive: UnsafeCell<Buffer>,
    /// SUNRPC has the slot.
    lent: Atomic<bool>,
    /// There is a [`Pinned`](super::Pinned) of it. Changed under `queue_lock`.
    pinned: Atomic<bool>,
    /// The epoch of the congestion window in which `rq_cong` was set. Used under the send lock or
    /// `transport_lock`.
    cong_epoch: Atomic<u32>,
    /// The transport's part.
    #[pin]
    pub(crate) call: C,
}

// SAFETY: A slot belongs to no thread; `C` may be sent.
unsafe impl<C: Send> Send for Slot<C> {}

// SAFETY: A shared reference gives access to `call`, which may be shared, and to atomics; the rest is
// used by the unsafe functions of this module only, under the rules of the type.
unsafe impl<C: Send + Sync> Sync for Slot<C> {}

impl<C> Slot<C> {
    /// Makes a free slot for forward-direction Calls, with memory to begin with for Calls and Replies;
    /// it grows as needed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and what `call` returns.
    pub(crate) fn new<E>(
        call: impl PinInit<C, E>,
        send_size: usize,
        receive_size: usize,
        flags: Flags,
    ) -> Result<Arc<Self>>
    where
        Error: From<E>,
    {
        let send = Buffer::new(send_size, flags)?;
        let receive = Buffer::new(receive_size, flags)?;
        // INVARIANT: The slot is not lent, and nobody has it yet.
        Arc::pin_init::<Error>(
            try_pin_init!(Self {
                rqst: Opaque::zeroed(),
                send: UnsafeCell::new(send),
                receive: UnsafeCell::new(receive),
                lent: Atomic::new(false),
                pinned: Atomic::new(false),
                cong_epoch: Atomic::new(0),
                call <- call,
            }? Error),
            flags,
        )
    }

    /// Makes a free slot for reverse-direction Calls, with memory for one of `call_size` octets; it grows as needed.
    ///
    /// The Reply is encoded into a whole page, because that is what the XDR encoder of the service
    /// takes for granted.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and what `call` returns.
    pub(crate) fn new_bc<T, E>(
        _owner: &Arc<T>,
        call: impl PinInit<C, E>,
        call_size: usize,
        flags: Flags,
    ) -> Result<Arc<Self>>
    where
        T: Transport<Call = C>,
        Error: From<E>,
    {
        Self::new(call, PAGE_SIZE, call_size, flags)
    }

    /// Gives a reference to SUNRPC. [`None`], and a warning, if it has the slot already: that is a bug
    /// of the transport's.
    pub(super) fn lend(slot: Arc<Self>) -> Option<*mut sys::rpc_rqst> {
        // With `Acquire`, what was done before the slot was taken back is visible.
        if slot.lent.xchg(true, Acquire) {
            kernel::warn_on!(true);
            return None;
        }
        Some(Arc::into_raw(slot).cast_mut().cast())
    }

    /// Takes back the reference that SUNRPC had, with the slot fit for the next RPC.
    ///
    /// # Safety
    ///
    /// `rqst` comes from [`lend`](Self::lend) of a slot with the same `C`, and nobody will use it any
    /// more.
    pub(super) unsafe fn take_back(rqst: *mut sys::rpc_rqst) -> Arc<Self> {
        // SAFETY: The object is valid and nobody uses it; all zeros is how SUNRPC wants it.
        unsafe { ptr::write_bytes(rqst, 0, 1) };
        // SAFETY: `lend` made the pointer from an `Arc<Self>`; `rqst` is the first field.
        let slot = unsafe { Arc::from_raw(rqst.cast_const().cast::<Self>()) };
        slot.lent.store(false, Release);
        slot
    }

    /// The slot of an `rpc_rqst`, by the reference that SUNRPC has.
    ///
    /// # Safety
    ///
    /// `rqst` comes from [`lend`](Self::lend) of a slot with the same `C`, and SUNRPC will not give it
    /// back while the result is used.
    pub(super) unsafe fn of(rqst: *mut sys::rpc_rqst) -> ManuallyDrop<Arc<Self>> {
        // SAFETY: As in `take_back`; the count stays with SUNRPC.
        ManuallyDrop::new(unsafe { Arc::from_raw(rqst.cast_const().cast::<Self>()) })
    }

    /// What SUNRPC sees.
    pub(super) fn rqst(&self) -> *mut sys::rpc_rqst {
        self.rqst.get()
    }

    /// Whether there is a `Pinned` of the slot; the caller holds `queue_lock` to change it.
    pub(super) fn pinned(&self) -> &Atomic<bool> {
        &self.pinned
    }

    /// Sees to it that the buffers have the sizes that `rqst` asks for, and hands them to it. Returns
    /// by how much they grew.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC calls on behalf of its task to have the buffers allocated.
    pub(super) unsafe fn provide_buffers(&self, gfp: sys::gfp_t) -> Result<usize> {
        let rqst = self.rqst();
        // SAFETY: SUNRPC asks for the buffers, so it does not use them, and there is one task only that
        // has the slot.
        let (send, receive) = unsafe { (&mut *self.send.get(), &mut *self.receive.get()) };
        // SAFETY: The object is valid, its task is waiting for us.
        let grown = unsafe {
            send.ensure((*rqst).rq_callsize, gfp)? + receive.ensure((*rqst).rq_rcvsize, gfp)?
        };
        // SAFETY: As above. The buffers are as large as `rqst` says.
        unsafe {
            (*rqst).rq_buffer = send.as_ptr().cast();
            (*rqst).rq_rbuffer = receive.as_ptr().cast();
        }
        Ok(grown)
    }

    /// Sees to it that the memory for what is received has `size` octets at least. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The slot was lent, and SUNRPC was not told yet: nobody uses the buffers.
    pub(super) unsafe fn ensure_receive(&self, size: usize) -> Result {
        // SAFETY: The caller guarantees that nobody else uses it.
        let receive = unsafe { &mut *self.receive.get() };
        receive.ensure(size, sys::GFP_KERNEL).map(|_| ())
    }

    /// Start and size of the memory for what is sent, and for what is received.
    ///
    /// # Safety
    ///
    /// Nobody changes the buffers; which is so after the slot was lent and before SUNRPC was told.
    pub(super) unsafe fn buffers(&self) -> [(*mut u8, usize); 2] {
        // SAFETY: The caller guarantees that there is no exclusive reference.
        let (send, receive) = unsafe { (&*self.send.get(), &*self.receive.get()) };
        [send, receive].map(|buffer| (buffer.as_ptr(), buffer.size()))
    }

    /// The Call, or the Reply of a reverse-direction Call.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC does not change its send buffer while the result lives.
    pub(super) unsafe fn snd_buf(&self) -> &XdrBuf {
        // SAFETY: SUNRPC keeps the invariants of `XdrBuf`; the caller guarantees that it stays so.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_snd_buf) }
    }

    /// Where the Reply goes to.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC does not change its receive buffer while the result lives.
    pub(super) unsafe fn rcv_buf(&self) -> &XdrBuf {
        // SAFETY: As for `snd_buf`.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// SUNRPC's copy of [`rcv_buf`](Self::rcv_buf), made when the Call was queued.
    ///
    /// # Safety
    ///
    /// As for [`rcv_buf`](Self::rcv_buf).
    pub(super) unsafe fn private_buf(&self) -> &XdrBuf {
        // SAFETY: As for `snd_buf`.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_private_buf) }
    }

    /// The epoch of the congestion window in which `rq_cong` was set.
    pub(super) fn cong_epoch(&self) -> u32 {
        self.cong_epoch.load(Relaxed)
    }

    /// Remembers the epoch in which `rq_cong` was set.
    pub(super) fn set_cong_epoch(&self, epoch: u32) {
        self.cong_epoch.store(epoch, Relaxed);
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_slot)]
mod tests {
    use super::*;

    /// A slot with a number.
    fn slot(number: u32) -> Result<Arc<Slot<u32>>> {
        Slot::new(Ok::<_, Error>(number), 64, 128, GFP_KERNEL)
    }

    #[test]
    fn lent_slot_comes_back_clean() -> Result {
        let rqst = Slot::lend(slot(7)?).ok_or(EINVAL)?;
        // SAFETY: The slot is lent to the test.
        unsafe {
            (*rqst).rq_xid = 1;
            (*rqst).rq_cong = 1;
            assert_eq!(Slot::<u32>::of(rqst).call, 7);
            let back = Slot::<u32>::take_back(rqst);
            assert_eq!(back.call, 7);
            assert_eq!((*back.rqst()).rq_xid, 0);
            assert_eq!((*back.rqst()).rq_cong, 0);
            // It can be lent again, and nobody else has it.
            let rqst = Slot::lend(back).ok_or(EINVAL)?;
            let back = Slot::<u32>::take_back(rqst);
            assert!(Arc::into_unique_or_drop(back).is_some());
        }
        Ok(())
    }

    #[test]
    fn buffers_grow_as_asked() -> Result {
        let rqst = Slot::lend(slot(0)?).ok_or(EINVAL)?;
        // SAFETY: The slot is lent to the test.
        unsafe {
            (*rqst).rq_callsize = 60;
            (*rqst).rq_rcvsize = 128;
            assert_eq!(Slot::<u32>::of(rqst).provide_buffers(sys::GFP_KERNEL)?, 0);
            let first = (*rqst).rq_buffer;
            assert!(!first.is_null() && !(*rqst).rq_rbuffer.is_null());
            (*rqst).rq_callsize = 64;
            (*rqst).rq_rcvsize = 9000;
            assert_eq!(
                Slot::<u32>::of(rqst).provide_buffers(sys::GFP_KERNEL)?,
                9000 - 128
            );
            assert!(ptr::eq(first, (*rqst).rq_buffer));
            ptr::write_bytes((*rqst).rq_rbuffer.cast::<u8>(), 1, 9000);
            let [(send, send_size), (receive, receive_size)] = Slot::<u32>::of(rqst).buffers();
            assert!(ptr::eq(send.cast(), (*rqst).rq_buffer));
            assert!(ptr::eq(receive.cast(), (*rqst).rq_rbuffer));
            assert_eq!((send_size, receive_size), (64, 9000));
            drop(Slot::<u32>::take_back(rqst));
        }
        Ok(())
    }

    #[test]
    fn slot_starts_with_its_request() -> Result {
        let s = slot(0)?;
        assert!(ptr::eq(Arc::as_ptr(&s).cast(), s.rqst()));
        Ok(())
    }
}
