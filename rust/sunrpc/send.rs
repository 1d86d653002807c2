// SPDX-License-Identifier: GPL-2.0

//! The messages that SUNRPC gives to a transport to send.

use super::{
    call_memory::CallMemory,
    fragments::{
        Fragments,
        Parts, //
    },
    slot::Slot,
    svc::{
        FreshPages,
        Pages, //
    },
    transport::Transport,
    xdr_buf::XdrBuf, //
};
use crate::kext::prelude::*;
use crate::{
    kext::time,
    sys, //
};
use kernel::types::Opaque;

/// A reason why a message was not sent. It tells SUNRPC what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendError {
    /// There is no connection. SUNRPC connects, then calls again.
    NotConnected,
    /// There are no resources. The code that says so has begun to wait for them, see
    /// [`wait_unless`](crate::kext::waiting::wait_unless), so SUNRPC calls again after
    /// [`Waiting::wake`](crate::kext::waiting::Waiting::wake).
    Again,
    /// There is no credit. SUNRPC calls again when a Reply has come.
    BadSlot,
    /// There is no memory at the moment. SUNRPC calls again after a while.
    NoBufs,
    /// The message is too large to be sent. The RPC fails.
    MsgSize,
    /// The message cannot be sent. The RPC fails.
    Io,
}

impl SendError {
    /// Returns the errno that SUNRPC expects.
    pub(super) fn to_errno(self) -> c_int {
        match self {
            Self::NotConnected => ENOTCONN,
            Self::Again => EAGAIN,
            Self::BadSlot => EBADSLT,
            Self::NoBufs => ENOBUFS,
            Self::MsgSize => EMSGSIZE,
            Self::Io => EIO,
        }
        .to_errno()
    }
}

/// A Call that SUNRPC is sending.
///
/// The request and the message stay as they are until `send_request` returns, even if the message
/// was posted and its Reply has come by then. SUNRPC pins a request while it is being sent
/// (`xprt_transmit`), so its task cannot release it. The task does not encode the message anew
/// before the request is taken off the transmit queue, which happens afterwards. Only the memory
/// for the Reply may be in use by then, by the decoders.
pub(crate) struct SendRqst<'a, T: Transport> {
    /// The transport.
    owner: &'a Arc<T>,
    /// The slot.
    slot: &'a Arc<Slot<T::Call>>,
}

impl<'a, T: Transport> SendRqst<'a, T> {
    /// Wraps the request that SUNRPC is sending.
    ///
    /// # Safety
    ///
    /// The slot is lent, and `'a` ends before the `send_request` operation for it returns.
    pub(super) unsafe fn new(owner: &'a Arc<T>, slot: &'a Arc<Slot<T::Call>>) -> Self {
        Self { owner, slot }
    }

    /// Returns the request.
    fn rqst(&self) -> *mut sys::rpc_rqst {
        self.slot.rqst()
    }

    /// Returns the slot.
    pub(crate) fn slot(&self) -> &Arc<Slot<T::Call>> {
        self.slot
    }

    /// Returns the XID, in host order.
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: The request stays valid until `send_request` returns (see the type).
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// Ends the RPC of a Call that can never be sent. It ends with `error` when its task is about
    /// to wait for the Reply; for this, `send_request` must return success.
    pub(crate) fn fail(&self, error: SendError) {
        self.slot.set_unsent(error.to_errno());
    }

    /// Returns the Call.
    pub(crate) fn snd_buf(&self) -> &XdrBuf {
        // SAFETY: The slot is lent, and the Call stays as it is until `send_request` returns (see
        // the type).
        unsafe { self.slot.snd_buf() }
    }

    /// Returns the description of the memory for the Reply.
    pub(crate) fn rcv_buf(&self) -> &XdrBuf {
        // SAFETY: The slot is lent, and the description of the memory stays as it is until
        // `send_request` returns (see the type), except that `deliver` may shorten its head, which
        // `XdrBuf` allows.
        unsafe { self.slot.rcv_buf() }
    }

    /// Returns parts of the Call, for a device.
    pub(crate) fn call_memory(&self, parts: Parts) -> CallMemory<'_> {
        // SAFETY: They are of the Call.
        unsafe { self.memory(self.snd_buf().fragments(parts)) }
    }

    /// Returns the Call without its pages, for a device.
    pub(crate) fn call_memory_without_pages(&self) -> CallMemory<'_> {
        // SAFETY: As above.
        unsafe { self.memory(self.snd_buf().fragments_without_pages()) }
    }

    /// Returns parts of the memory for the Reply, for a device.
    pub(crate) fn reply_memory(&self, parts: Parts) -> CallMemory<'_> {
        // SAFETY: They are of the memory for the Reply.
        unsafe { self.memory(self.rcv_buf().fragments(parts)) }
    }

    /// Returns the Reply buffer of the Call, of `len` octets, for a device.
    ///
    /// # Errors
    ///
    /// `NoBufs` if there is no memory at the moment.
    pub(crate) fn reply_buffer(&self, len: usize) -> Result<CallMemory<'_>, SendError> {
        // SAFETY: The slot is lent, and its Call is being sent (see the type).
        let pages = unsafe { self.slot.make_reply_buffer(len) };
        let fragments = Fragments::of_pages(pages.map_err(|_| SendError::NoBufs)?, len);
        // SAFETY: They are of the Reply buffer.
        Ok(unsafe { self.memory(fragments) })
    }

    /// Returns memory of the RPC, for a device.
    ///
    /// # Safety
    ///
    /// The fragments are of the Call, of the memory for the Reply, or of the Reply buffer.
    unsafe fn memory<'m>(&'m self, fragments: Fragments<'m>) -> CallMemory<'m> {
        // SAFETY: SUNRPC calls `buf_free` for each Call that has buffers (`xprt_release`), so for
        // this one. Before that returns, which it does after `Leases::wait`, the upper layer does
        // not free the pages, SUNRPC not the request, and nobody the slot, which is lent, with its
        // Reply buffer. Pages of a krb5p Call are freed when it is encoded anew, too: after a
        // timeout, which `timer` has wait for the leases as well; after a lost connection, whose
        // regions have given theirs up before SUNRPC is told; or after a Reply that refuses it,
        // when all are fenced.
        // FIXME: `xprt_autoclose` changes the connection's number before it calls `close`. A task
        // that comes to wait for its Reply just then encodes a krb5p Call anew, and frees pages
        // that a region has until `close` is done, or for a callback until `Callback::detach`. The
        // device may read them, not write.
        unsafe { CallMemory::new(self.slot.leases(), fragments) }
    }

    /// Adds the pages that the upper layer left out because it does not know the length of the
    /// Reply. A device needs all of them.
    ///
    /// # Errors
    ///
    /// `NoBufs` if there is no memory at the moment.
    pub(crate) fn fill_sparse_pages(&self) -> Result<(), SendError> {
        let buf = self.rcv_buf();
        if !buf.is_sparse() {
            return Ok(());
        }
        let (list, _, count) = buf.page_list();
        for index in 0..count {
            // SAFETY: `index` is below the number of entries in the list.
            let entry = unsafe { list.add(index) };
            // SAFETY: The entry is valid, and SUNRPC leaves it to the transport to fill it. The
            // upper layer frees the page, like all others.
            unsafe {
                if (*entry).is_null() {
                    *entry = sys::alloc_page(sys::GFP_NOWAIT | sys::__GFP_NOWARN);
                }
                if (*entry).is_null() {
                    return Err(SendError::NoBufs);
                }
            }
        }
        Ok(())
    }

    /// Returns whether payload may go by direct data placement. It may not if a security flavor has
    /// to touch each octet of it (RFC 8166 section 8.2.2.3).
    pub(crate) fn ddp_allowed(&self) -> bool {
        // SAFETY: The request stays valid until `send_request` returns (see the type). It was
        // encoded, so it has a credential, which has an `rpc_auth`.
        let flags = unsafe {
            let cred = (*self.rqst()).rq_cred;
            if cred.is_null() {
                return false;
            }
            (*(*cred).cr_auth).au_flags
        };
        flags & (1 << sys::RPCAUTH_AUTH_DATATOUCH) == 0
    }

    /// Returns whether this Call was sent on the present connection already.
    pub(crate) fn sent_on_this_connection(&self) -> bool {
        // SAFETY: The request stays valid until `send_request` returns (see the type).
        unsafe { (*self.rqst()).rq_connect_cookie == self.owner.xprt().connect_cookie() }
    }

    /// Returns whether the Call has a Reply.
    pub(crate) fn reply_expected(&self) -> bool {
        // SAFETY: Request and task stay valid until `send_request` returns (see the type).
        unsafe { sys::rpc_reply_expected((*self.rqst()).rq_task) }
    }

    /// Takes a credit for the Call, unless it has one. Returns whether it has one now.
    pub(crate) fn get_congestion(&self) -> bool {
        let xprt = self.owner.xprt();
        let epoch = xprt.congestion_epoch();
        // SAFETY: The request stays valid until `send_request` returns (see the type). The send
        // lock keeps other threads from sending, and so from taking a credit for it, and it keeps
        // the epoch as it is.
        unsafe {
            let cong = &raw mut (*self.rqst()).rq_cong;
            if *cong != 0 && self.slot.cong_epoch() != epoch {
                // That credit was one of a former connection.
                *cong = 0;
            }
            self.slot.set_cong_epoch(epoch);
            sys::xprt_request_get_cong(xprt.as_ptr(), self.rqst())
        }
    }

    /// Starts the measurement of the round-trip time. Call it before the message is posted.
    pub(crate) fn stamp(&self) {
        // SAFETY: The request stays valid until `send_request` returns (see the type). SUNRPC reads
        // the field when the Reply arrives, which cannot have happened yet.
        unsafe { (*self.rqst()).rq_xtime = time::ktime() }
    }

    /// Counts the octets of the Call as sent.
    pub(crate) fn count_sent(&self) {
        let len = self.snd_buf().len();
        // SAFETY: The request stays valid until `send_request` returns (see the type). Its task
        // reads the sum when it ends.
        unsafe {
            let sent = &raw mut (*self.rqst()).rq_xmit_bytes_sent;
            *sent = (*sent).wrapping_add(len);
        }
    }
}

/// The Reply of a reverse-direction Call that SUNRPC is sending.
pub(crate) struct BcReply<'a, C> {
    /// The slot.
    slot: &'a Slot<C>,
    /// The Reply.
    snd_buf: &'a XdrBuf,
    /// The XID, in host order.
    xid: u32,
}

impl<'a, C> BcReply<'a, C> {
    /// Wraps the request that SUNRPC is sending.
    ///
    /// # Safety
    ///
    /// `slot` is lent, and `'a` ends before the `send_request` operation for it returns.
    pub(super) unsafe fn new(slot: &'a Slot<C>) -> Self {
        Self {
            slot,
            // SAFETY: The caller guarantees that the slot is lent. SUNRPC does not change the
            // message while it is being sent.
            snd_buf: unsafe { slot.snd_buf() },
            // SAFETY: The slot is lent, so the request is valid.
            xid: u32::from_be(unsafe { (*slot.rqst()).rq_xid }),
        }
    }

    /// Returns the transport's part of the slot in which the Call was given to SUNRPC.
    pub(crate) fn call(&self) -> &C {
        &self.slot.call
    }

    /// Returns the XID, in host order.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the Reply.
    pub(crate) fn snd_buf(&self) -> &XdrBuf {
        self.snd_buf
    }
}

/// A copy of a short RPC message, in a page of its own that RDMA Writes can read from.
pub(crate) struct KeptMessage {
    /// The page.
    pages: FreshPages,
    /// The description of the message in the page.
    buf: Opaque<sys::xdr_buf>,
}

impl KeptMessage {
    /// Copies a message of at most a page. May sleep.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if it is longer, `ENOMEM`.
    pub(crate) fn copy(message: &XdrBuf) -> Result<Self> {
        let len = message.len();
        if len > PAGE_SIZE {
            return Err(EMSGSIZE);
        }
        let pages = FreshPages::allocate(1)?;
        let start = pages.start().ok_or(EMSGSIZE)?;
        // SAFETY: The page was just allocated, zeroed, and only this function knows it; `len` is at
        // most its size.
        let place = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) };
        message.copy_range(0, place).ok_or(EMSGSIZE)?;
        let kept = Self {
            pages,
            buf: Opaque::zeroed(),
        };
        // SAFETY: Only this function knows the object. The page has `len` octets or more.
        unsafe {
            sys::xdr_buf_init(kept.buf.get(), start.as_ptr().cast(), len);
            (*kept.buf.get()).len = u32::try_from(len)?;
        }
        Ok(kept)
    }

    /// Returns the message.
    pub(crate) fn message(&self) -> &XdrBuf {
        // SAFETY: The message lies in `pages`, which stay, unchanged, as long as there is a
        // reference to `self`. After `take_pages` the message is empty.
        unsafe { XdrBuf::from_raw(self.buf.get()) }
    }

    /// Takes the page. The message is empty afterwards.
    pub(crate) fn take_pages(&mut self) -> Pages {
        self.buf = Opaque::zeroed();
        core::mem::replace(&mut self.pages, FreshPages::none()).into_pages()
    }
}
