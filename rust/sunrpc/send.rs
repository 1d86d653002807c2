// SPDX-License-Identifier: GPL-2.0

//! Messages that SUNRPC wants to have sent.

use super::{
    slot::Slot,
    svc::Pages,
    transport::{
        SendError,
        Transport, //
    },
    xdr_buf::XdrBuf, //
};
use crate::{
    kext::time,
    sys, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    types::Opaque, //
};

/// A Call to send.
///
/// What it refers to stays as it is until `send_request` returns, also when the message was posted and
/// its Reply has come meanwhile: SUNRPC pins a request while it is being sent (`xprt_transmit`), so
/// its task cannot release it, and the task encodes nothing anew before it was taken off the transmit
/// queue, which follows. Only the memory for the Reply may be in use by then, by the decoders.
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

    /// The request.
    fn rqst(&self) -> *mut sys::rpc_rqst {
        self.slot.rqst()
    }

    /// The slot.
    pub(crate) fn slot(&self) -> &Arc<Slot<T::Call>> {
        self.slot
    }

    /// The XID, in host order.
    pub(crate) fn xid(&self) -> u32 {
        // SAFETY: The request stays valid, see the type.
        u32::from_be(unsafe { (*self.rqst()).rq_xid })
    }

    /// Whether the task of the RPC sends the Call itself. SUNRPC has a task send what others have queued before it.
    pub(crate) fn is_sent_by_its_task(&self) -> bool {
        // SAFETY: The request stays valid, see the type, and names its transport. Who sends holds the send lock, which
        // protects the other pointer; it is compared only.
        unsafe { (*(*self.rqst()).rq_xprt).snd_task == (*self.rqst()).rq_task }
    }

    /// The Call.
    pub(crate) fn snd_buf(&self) -> &XdrBuf {
        // SAFETY: The Call stays as it is, see the type.
        unsafe { self.slot.snd_buf() }
    }

    /// Where the Reply shall go to.
    pub(crate) fn rcv_buf(&self) -> &XdrBuf {
        // SAFETY: The description of the memory stays as it is, see the type; `deliver` may shorten its
        // head.
        unsafe { self.slot.rcv_buf() }
    }

    /// Adds the pages that the upper layer left out because it does not know how large a Reply will be.
    /// A device needs them all.
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
            // SAFETY: `index` is below the number of entries.
            let entry = unsafe { list.add(index) };
            // SAFETY: The entry is valid, and SUNRPC leaves it to the transport to fill it. The page is
            // freed by the upper layer, as all others.
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

    /// Whether payload may go by direct data placement: not when a security flavor has to touch each
    /// octet of it (RFC 8166 section 8.2.2.3).
    pub(crate) fn ddp_allowed(&self) -> bool {
        // SAFETY: The request has a credential when it is encoded, and that has an `rpc_auth`.
        let flags = unsafe {
            let cred = (*self.rqst()).rq_cred;
            if cred.is_null() {
                return false;
            }
            (*(*cred).cr_auth).au_flags
        };
        flags & (1 << sys::RPCAUTH_AUTH_DATATOUCH) == 0
    }

    /// Whether this Call was sent on the present connection already.
    pub(crate) fn sent_on_this_connection(&self) -> bool {
        // SAFETY: The request stays valid, see the type.
        unsafe { (*self.rqst()).rq_connect_cookie == self.owner.xprt().connect_cookie() }
    }

    /// Whether the Call has a Reply.
    pub(crate) fn reply_expected(&self) -> bool {
        // SAFETY: The request stays valid and so does its task, see the type.
        unsafe { sys::rpc_reply_expected((*self.rqst()).rq_task) }
    }

    /// Takes a credit for the Call, unless it has one. Returns whether it has.
    pub(crate) fn get_congestion(&self) -> bool {
        let xprt = self.owner.xprt();
        let epoch = xprt.congestion_epoch();
        // SAFETY: The request stays valid. The send lock keeps all others from sending, and so from
        // taking a credit for it, and it keeps the epoch as it is.
        unsafe {
            let cong = &raw mut (*self.rqst()).rq_cong;
            if *cong != 0 && self.slot.cong_epoch() != epoch {
                // That was a credit of another connection.
                *cong = 0;
            }
            self.slot.set_cong_epoch(epoch);
            sys::xprt_request_get_cong(xprt.as_ptr(), self.rqst())
        }
    }

    /// Begins the measurement of the round-trip time. Call it before the message is posted.
    pub(crate) fn stamp(&self) {
        // SAFETY: The request stays valid; the Reply, whose arrival reads it, cannot be here yet.
        unsafe { (*self.rqst()).rq_xtime = time::ktime() }
    }

    /// Counts the octets of the Call as sent.
    pub(crate) fn count_sent(&self) {
        let len = self.snd_buf().len();
        // SAFETY: The request stays valid, see the type. Its task reads the sum when it ends.
        unsafe {
            let sent = &raw mut (*self.rqst()).rq_xmit_bytes_sent;
            *sent = (*sent).wrapping_add(len);
        }
    }
}

/// The Reply of a reverse-direction Call, to send.
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
            // SAFETY: SUNRPC does not change the message while it is being sent.
            snd_buf: unsafe { slot.snd_buf() },
            // SAFETY: The request is valid.
            xid: u32::from_be(unsafe { (*slot.rqst()).rq_xid }),
        }
    }

    /// The transport's part of the slot that the Call was given in.
    pub(crate) fn call(&self) -> &C {
        &self.slot.call
    }

    /// The XID, in host order.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// The Reply.
    pub(crate) fn snd_buf(&self) -> &XdrBuf {
        self.snd_buf
    }
}

/// A short RPC message in a page of its own, which RDMA Writes may be made from.
pub(crate) struct KeptMessage {
    /// The page.
    pages: Pages,
    /// Where the message is in it.
    buf: Opaque<sys::xdr_buf>,
}

impl KeptMessage {
    /// Copies a message of a page at most. May sleep.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if it is longer, `ENOMEM`.
    pub(crate) fn copy(message: &XdrBuf) -> Result<Self> {
        let len = message.len();
        if len > PAGE_SIZE {
            return Err(EMSGSIZE);
        }
        let pages = Pages::allocate(1)?;
        let start = pages.start().ok_or(EMSGSIZE)?;
        // SAFETY: The page was allocated by us, zeroed, and nobody else knows it.
        let place = unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), len) };
        message.copy_range(0, place).ok_or(EMSGSIZE)?;
        let kept = Self {
            pages,
            buf: Opaque::zeroed(),
        };
        // SAFETY: The object is ours. The page has so many octets.
        unsafe {
            sys::xdr_buf_init(kept.buf.get(), start.as_ptr().cast(), len);
            (*kept.buf.get()).len = u32::try_from(len)?;
        }
        Ok(kept)
    }

    /// The message.
    pub(crate) fn message(&self) -> &XdrBuf {
        // SAFETY: The message lies in `pages`, which stay as long as there is a reference to `self` and are changed by
        // nobody; after `take_pages` it is empty.
        unsafe { XdrBuf::from_raw(self.buf.get()) }
    }

    /// Takes the page out. The message is empty afterwards.
    pub(crate) fn take_pages(&mut self) -> Pages {
        self.buf = Opaque::zeroed();
        core::mem::replace(&mut self.pages, Pages::none())
    }
}
