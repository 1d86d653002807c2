// SPDX-License-Identifier: GPL-2.0

//! Slots: the state that SUNRPC keeps of an RPC, with the data that a transport adds to it.
//!
//! C header: [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h)

use super::{
    buffer::Buffer,
    call_memory::Leases,
    svc::FreshPages,
    transport::Transport,
    xdr_buf::XdrBuf, //
};
use crate::kext::prelude::*;
use crate::sys;
use core::{
    cell::UnsafeCell,
    mem::ManuallyDrop,
    ptr, //
};
use kernel::{
    alloc::Flags,
    types::Opaque, //
};

/// An `rpc_rqst`, its buffers, and the data that the transport keeps for it (`call`).
///
/// A slot is either free or lent to SUNRPC. A free slot belongs to the transport. Of a lent slot
/// SUNRPC has one reference (a raw pointer to `rqst`, in `rpc_task::tk_rqstp`), and works on `rqst`
/// and the buffers by its own rules. References that the transport has give access to `call` only.
/// It gets at `rqst` through [`SendRqst`](super::SendRqst), [`BcReply`](super::BcReply) and
/// [`Pinned`](super::Pinned), each of which stands for a time in which SUNRPC does not change what
/// they read.
///
/// # Invariants
///
/// - `rqst` is the first field, so that a pointer to it is one to the slot.
/// - While `lent` is false, `rqst` and the buffers are not used, except by code that is about to
///   lend the slot.
#[repr(C)]
#[pin_data]
pub(crate) struct Slot<C> {
    /// The request that SUNRPC sees.
    #[pin]
    rqst: Opaque<sys::rpc_rqst>,
    /// The memory for the Call, or for the Reply of a reverse-direction Call.
    send: UnsafeCell<Buffer>,
    /// The memory for the Reply, or for a reverse-direction Call.
    receive: UnsafeCell<Buffer>,
    /// The Reply buffer of a Call that has one: pages for a Reply that may be longer than the
    /// memory for it. The thread that sends the Call allocates them, `buf_free` frees them, and
    /// they stay the same pages in between.
    reply_buffer: UnsafeCell<FreshPages>,
    /// True while SUNRPC has the slot.
    lent: Atomic<bool>,
    /// True while there is a [`Pinned`](super::Pinned) of the slot. Changed under `queue_lock`.
    pinned: Atomic<bool>,
    /// The epoch of the congestion window in which `rq_cong` was set. Used under the send lock or
    /// `transport_lock`.
    cong_epoch: Atomic<u32>,
    /// The errno of a Call that counts as sent but cannot be sent, or that has failed before its
    /// task waits for the Reply; or zero. The sending thread writes it before SUNRPC takes the
    /// request off the transmit queue, or the thread that learns that it has failed writes it under
    /// `queue_lock`. The task of the Call takes it out after that, under the same lock.
    unsent: Atomic<i32>,
    /// The leases of the memory of the RPC, by which devices use it.
    leases: Leases,
    /// The data of the transport.
    #[pin]
    pub(crate) call: C,
}

// SAFETY: A slot belongs to no thread; its buffers and `C` may be sent.
unsafe impl<C: Send> Send for Slot<C> {}

// SAFETY: A shared reference gives access to `call`, which may be shared, and to atomics.
// Everything else is used by unsafe functions only, under the rules of the type.
unsafe impl<C: Send + Sync> Sync for Slot<C> {}

impl<C> Slot<C> {
    /// Makes a free slot for forward-direction Calls. The memory for Calls and Replies has the
    /// given sizes at first, in octets, and grows as needed.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the errors of `call`.
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
        // INVARIANT: The slot is not lent, and only this function has it.
        Arc::pin_init::<Error>(
            try_pin_init!(Self {
                rqst: Opaque::zeroed(),
                send: UnsafeCell::new(send),
                receive: UnsafeCell::new(receive),
                reply_buffer: UnsafeCell::new(FreshPages::none()),
                lent: Atomic::new(false),
                pinned: Atomic::new(false),
                cong_epoch: Atomic::new(0),
                unsent: Atomic::new(0),
                leases: Leases::new(),
                call <- call,
            }? Error),
            flags,
        )
    }

    /// Makes a free slot for reverse-direction Calls. It has memory for a Call of `call_size`
    /// octets, which grows as needed.
    ///
    /// The Reply is encoded into a whole page, because the XDR encoder of the service relies on
    /// that.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and the errors of `call`.
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

    /// Gives a reference to SUNRPC. Returns [`None`], with a warning, if SUNRPC has the slot
    /// already; that is a bug in the transport.
    pub(super) fn lend(slot: Arc<Self>) -> Option<*mut sys::rpc_rqst> {
        // `Acquire` makes visible what was done before the slot was taken back.
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
    /// `rqst` comes from [`lend`](Self::lend) of a slot with the same `C`, and will not be used any
    /// more.
    pub(super) unsafe fn take_back(rqst: *mut sys::rpc_rqst) -> Arc<Self> {
        // SAFETY: The caller guarantees that the object is valid and not used. All zeros are a
        // valid `rpc_rqst`, and SUNRPC expects them.
        unsafe { ptr::write_bytes(rqst, 0, 1) };
        // SAFETY: `lend` made the pointer from an `Arc<Self>`; `rqst` is the first field.
        let slot = unsafe { Arc::from_raw(rqst.cast_const().cast::<Self>()) };
        slot.lent.store(false, Release);
        slot
    }

    /// Returns the slot of an `rpc_rqst`, by the reference that SUNRPC has.
    ///
    /// # Safety
    ///
    /// `rqst` comes from [`lend`](Self::lend) of a slot with the same `C`, and SUNRPC will not give
    /// it back while the result is used.
    pub(super) unsafe fn of(rqst: *mut sys::rpc_rqst) -> ManuallyDrop<Arc<Self>> {
        // SAFETY: `lend` made the pointer from an `Arc<Self>`, and `rqst` is the first field. The
        // caller guarantees that SUNRPC keeps its reference; `ManuallyDrop` leaves the count with
        // it.
        ManuallyDrop::new(unsafe { Arc::from_raw(rqst.cast_const().cast::<Self>()) })
    }

    /// Returns the request that SUNRPC sees.
    pub(super) fn rqst(&self) -> *mut sys::rpc_rqst {
        self.rqst.get()
    }

    /// Returns the flag that there is a `Pinned` of the slot. The caller holds `queue_lock` to
    /// change it.
    pub(super) fn pinned(&self) -> &Atomic<bool> {
        &self.pinned
    }

    /// Returns the leases of the memory of the RPC.
    pub(super) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Makes the buffers as large as `rqst` demands, and gives them to it. Returns by how many
    /// octets they grew.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC calls, on behalf of its task, for the buffers to be allocated.
    pub(super) unsafe fn provide_buffers(&self, gfp: sys::gfp_t) -> Result<usize> {
        let rqst = self.rqst();
        // SAFETY: SUNRPC asks for the buffers, so it does not use them yet, and only one task has
        // the slot.
        let (send, receive) = unsafe { (&mut *self.send.get(), &mut *self.receive.get()) };
        // SAFETY: The request is valid as the slot is lent, and its task is the current thread's,
        // so nothing changes it.
        let grown = unsafe {
            send.ensure((*rqst).rq_callsize, gfp)? + receive.ensure((*rqst).rq_rcvsize, gfp)?
        };
        // SAFETY: The request is valid as the slot is lent, and its task is the current thread's.
        // The buffers are as large as `rqst` says.
        unsafe {
            (*rqst).rq_buffer = send.as_ptr().cast();
            (*rqst).rq_rbuffer = receive.as_ptr().cast();
        }
        Ok(grown)
    }

    /// Makes the memory for what is received at least `size` octets long. May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Safety
    ///
    /// The slot was lent, and SUNRPC was not told of it yet, so that nothing uses the buffers.
    pub(super) unsafe fn ensure_receive(&self, size: usize) -> Result {
        // SAFETY: The caller guarantees that nothing else uses the buffer.
        let receive = unsafe { &mut *self.receive.get() };
        receive.ensure(size, sys::GFP_KERNEL).map(|_| ())
    }

    /// Returns start and size of the memory for what is sent, and of the memory for what is
    /// received.
    ///
    /// # Safety
    ///
    /// The buffers are not changed meanwhile. That is so after the slot was lent and before SUNRPC
    /// was told of it.
    pub(super) unsafe fn buffers(&self) -> [(*mut u8, usize); 2] {
        // SAFETY: The caller guarantees that the buffers are not changed, so there is no exclusive
        // reference.
        let (send, receive) = unsafe { (&*self.send.get(), &*self.receive.get()) };
        [send, receive].map(|buffer| (buffer.as_ptr(), buffer.size()))
    }

    /// Makes the Reply buffer, of `len` octets, unless there is one. Does not sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if there would be memory after a while.
    ///
    /// # Safety
    ///
    /// The slot is lent, and its Call is being sent, by the current thread.
    pub(super) unsafe fn make_reply_buffer(&self, len: usize) -> Result<&FreshPages> {
        // SAFETY: The caller guarantees that the Call is being sent, so `buf_free` was not called.
        let pages = unsafe { self.reply_buffer() };
        if pages.len() == 0 {
            let made = FreshPages::allocate_nowait(len.div_ceil(PAGE_SIZE))?;
            // SAFETY: One thread sends the Call at a time, so no other is here. There was no
            // buffer, so nobody has waited for a Reply in it.
            unsafe { *self.reply_buffer.get() = made };
        }
        // SAFETY: As above.
        Ok(unsafe { self.reply_buffer() })
    }

    /// Returns the Reply buffer, which is empty if the Call has none.
    ///
    /// # Safety
    ///
    /// The slot is lent, and neither [`Self::make_reply_buffer`] makes a buffer, nor
    /// [`Self::free_reply_buffer`] is called, while the result is used.
    pub(super) unsafe fn reply_buffer(&self) -> &FreshPages {
        // SAFETY: The caller guarantees that nothing changes it.
        unsafe { &*self.reply_buffer.get() }
    }

    /// Frees the Reply buffer, if there is one.
    ///
    /// # Safety
    ///
    /// The slot is lent, SUNRPC gives up the memory of the RPC, and there are no leases of it.
    pub(super) unsafe fn free_reply_buffer(&self) {
        // SAFETY: The task gives up the memory, so the Call is not sent, nor its Reply delivered:
        // SUNRPC waits for both before that.
        let pages = unsafe { &mut *self.reply_buffer.get() };
        if pages.len() != 0 {
            *pages = FreshPages::none();
        }
    }

    /// Returns the Call, or the Reply of a reverse-direction Call.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC does not change its send buffer while the result lives.
    pub(super) unsafe fn snd_buf(&self) -> &XdrBuf {
        // SAFETY: SUNRPC keeps the invariants of `XdrBuf` for the buffers of a request. The caller
        // guarantees that the buffer does not change while the result lives.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_snd_buf) }
    }

    /// Returns the description of the memory for the Reply.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC does not change its receive buffer while the result lives.
    pub(super) unsafe fn rcv_buf(&self) -> &XdrBuf {
        // SAFETY: SUNRPC keeps the invariants of `XdrBuf` for the buffers of a request. The caller
        // guarantees that the buffer does not change while the result lives.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_rcv_buf) }
    }

    /// Returns SUNRPC's copy of [`rcv_buf`](Self::rcv_buf), made when the Call was queued.
    ///
    /// # Safety
    ///
    /// The slot is lent, and SUNRPC does not change the copy while the result lives.
    pub(super) unsafe fn private_buf(&self) -> &XdrBuf {
        // SAFETY: SUNRPC keeps the invariants of `XdrBuf` for the buffers of a request. The caller
        // guarantees that the buffer does not change while the result lives.
        unsafe { XdrBuf::from_raw(&raw const (*self.rqst()).rq_private_buf) }
    }

    /// Returns the epoch of the congestion window in which `rq_cong` was set.
    pub(super) fn cong_epoch(&self) -> u32 {
        self.cong_epoch.load(Relaxed)
    }

    /// Stores the epoch in which `rq_cong` was set.
    pub(super) fn set_cong_epoch(&self, epoch: u32) {
        self.cong_epoch.store(epoch, Relaxed);
    }

    /// Has SUNRPC take the Call for one that was sent on another connection than the present one,
    /// whose number is `cookie`.
    ///
    /// # Safety
    ///
    /// SUNRPC has the slot.
    pub(super) unsafe fn seem_lost(&self, cookie: u32) {
        let other = cookie.wrapping_sub(1);
        // SAFETY: The caller guarantees that the request is valid. SUNRPC reads and writes the word
        // without a lock, by single loads and stores, so an atomic access does not race with it.
        unsafe { Atomic::from_ptr(&raw mut (*self.rqst()).rq_connect_cookie) }
            .store(other, Relaxed);
    }

    /// Stores the reason why the Call cannot be sent, or has failed. The caller is sending it, or
    /// has `queue_lock`.
    pub(super) fn set_unsent(&self, errno: c_int) {
        self.unsent.store(errno, Relaxed);
    }

    /// Takes the reason out why the Call was not sent. Returns zero if it was sent.
    pub(super) fn take_unsent(&self) -> c_int {
        // Nearly all Calls are sent, and then nothing is written.
        match self.unsent.load(Relaxed) {
            0 => 0,
            _ => self.unsent.xchg(0, Relaxed),
        }
    }
}

#[cfg(rpcrdma_kunit)]
#[kunit_tests(rpcrdma_sunrpc_slot)]
mod tests {
    use super::*;
    use crate::sunrpc::fragments::Fragments;

    /// Makes a slot with a number.
    fn slot(number: u32) -> Result<Arc<Slot<u32>>> {
        Slot::new(Ok::<_, Error>(number), 64, 128, GFP_KERNEL)
    }

    #[test]
    fn lent_slot_comes_back_clean() -> Result {
        let rqst = Slot::lend(slot(7)?).ok_or(EINVAL)?;
        // SAFETY: The slot is lent to this test, which does with it what SUNRPC does.
        unsafe {
            (*rqst).rq_xid = 1;
            (*rqst).rq_cong = 1;
            assert_eq!(Slot::<u32>::of(rqst).call, 7);
            let back = Slot::<u32>::take_back(rqst);
            assert_eq!(back.call, 7);
            assert_eq!((*back.rqst()).rq_xid, 0);
            assert_eq!((*back.rqst()).rq_cong, 0);
            // It can be lent again, and there is no other reference.
            let rqst = Slot::lend(back).ok_or(EINVAL)?;
            let back = Slot::<u32>::take_back(rqst);
            assert!(Arc::into_unique_or_drop(back).is_some());
        }
        Ok(())
    }

    #[test]
    fn error_is_taken_once() -> Result {
        let slot = slot(7)?;
        assert_eq!(slot.take_unsent(), 0);
        slot.set_unsent(EIO.to_errno());
        assert_eq!(slot.take_unsent(), EIO.to_errno());
        assert_eq!(slot.take_unsent(), 0);
        Ok(())
    }

    #[test]
    fn buffers_grow_as_asked() -> Result {
        let rqst = Slot::lend(slot(0)?).ok_or(EINVAL)?;
        // SAFETY: The slot is lent to this test, which does with it what SUNRPC does.
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
    fn reply_buffer_is_made_once() -> Result {
        let rqst = Slot::lend(slot(0)?).ok_or(EINVAL)?;
        // SAFETY: The slot is lent to this test, which does with it what SUNRPC does.
        unsafe {
            let slot = Slot::<u32>::of(rqst);
            assert_eq!(slot.reply_buffer().len(), 0);
            let len = 16 * PAGE_SIZE + 1;
            let first = slot.make_reply_buffer(len)?.start();
            assert!(first.is_some());
            assert_eq!(slot.reply_buffer().len(), 17);
            assert_eq!(slot.make_reply_buffer(len)?.start(), first);
            let fragments = Fragments::of_pages(slot.reply_buffer(), len);
            assert_eq!(fragments.map(|f| f.len() as usize).sum::<usize>(), len);
            slot.free_reply_buffer();
            assert_eq!(slot.reply_buffer().len(), 0);
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
