// SPDX-License-Identifier: GPL-2.0

//! Calls that the server sends to the client: NFSv4.1 callbacks (RFC 8167).
//!
//! No chunks are used in this direction, which RFC 8167 section 5.3 leaves to the implementation: a Call and
//! its Reply are one inline message each.

use crate::client::Client;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::link::sizing::{REVERSE_CREDITS, REVERSE_RECEIVES};
use crate::observe::trace;
use crate::proto::v1::{self, DecodeError, ErrorHeader, Header, RdmaError};
use crate::requester::call::Call;
use crate::requester::send::wait_for_send_room;
use crate::requester::Host;
use crate::sunrpc::{enqueue_bc_call, BcReply, SendError, Slot};
use crate::verbs::cm::ConnectionEvents;
use crate::verbs::endpoint::{PostError, Received};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::sync::{new_spinlock, Arc, SpinLock};

/// How many slots there are: one for each Call that can be received. More than credits, because a slot comes
/// back some time after the Reply was sent, and the peer may send the next Call as soon as it has that.
const SLOTS: u32 = REVERSE_RECEIVES;

/// Slots for reverse-direction Calls, made when the callback service is set up.
#[pin_data]
pub(super) struct ReverseSlots<T: Host> {
    /// All of them, and whether there is a service.
    #[pin]
    slots: SpinLock<Slots<T>>,
}

/// What the lock of [`ReverseSlots`] protects.
struct Slots<T: Host> {
    /// Those that are not with SUNRPC. Never more than its capacity, [`SLOTS`].
    free: KVec<Arc<Slot<Call<T>>>>,
    /// How many exist: in `free` or with SUNRPC.
    made: u32,
    /// The service has ended: what comes back is freed.
    closed: bool,
}

impl<T: Host> ReverseSlots<T> {
    /// No slots yet.
    pub(super) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            slots <- new_spinlock!(
                Slots {
                    free: KVec::with_capacity(SLOTS as usize, GFP_KERNEL)?,
                    made: 0,
                    closed: false,
                },
                "rpcrdma::ReverseSlots::slots"
            ),
        }? Error)
    }

    /// Makes all slots that may be needed. Calling it again does nothing.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn fill(&self, owner: &Arc<T>) -> Result {
        // The service may have ended before, and begins again.
        self.slots.lock().closed = false;
        loop {
            if self.slots.lock().made >= SLOTS {
                return Ok(());
            }
            let slot = Slot::new_bc(owner, Call::new(u32::MAX), PAGE_SIZE, GFP_KERNEL)?;
            let mut slots = self.slots.lock();
            if slots.made >= SLOTS || slots.closed {
                return Ok(());
            }
            slots.free.push_within_capacity(slot).map_err(|_| ENOMEM)?;
            slots.made += 1;
        }
    }

    /// Takes a free slot.
    fn take(&self) -> Option<Arc<Slot<Call<T>>>> {
        self.slots.lock().free.pop()
    }

    /// Takes a slot back from SUNRPC.
    pub(super) fn put(&self, slot: Arc<Slot<Call<T>>>) {
        let mut slots = self.slots.lock();
        if slots.closed {
            slots.made = slots.made.saturating_sub(1);
            drop(slots);
            drop(slot);
            return;
        }
        // Never more than the capacity: `fill` made no more.
        let _ = slots.free.push_within_capacity(slot);
    }

    /// Frees what is not with SUNRPC.
    pub(super) fn clear(&self) {
        loop {
            let mut slots = self.slots.lock();
            slots.closed = true;
            let Some(slot) = slots.free.pop() else { return };
            slots.made = slots.made.saturating_sub(1);
            drop(slots);
            drop(slot);
        }
    }
}

/// A reverse-direction Call has arrived.
pub(super) fn received(this: &Arc<Client>, message: &Received<Client>, header: &Header<'_>) {
    let xid = header.xid;
    let call = header.payload();
    trace::reverse_call(this.number(), xid, call.len());
    if header.is_nomsg() || header.has_chunks() {
        // RFC 8167 section 5.3: there are no chunks in this direction.
        let answer = ErrorHeader {
            xid,
            version: v1::VERSION,
            credits: REVERSE_CREDITS,
            error: RdmaError::Chunk,
        };
        send_error(this, message, &answer);
        return;
    }
    // Without a callback service there is nobody to answer, and no credit was ever granted.
    if !this.xprt.has_bc_server() {
        return;
    }
    let Some(slot) = this.reverse.take() else {
        // More Calls than credits. RFC 8166 section 3.3.1: the connection may be ended.
        pr_warn_ratelimited!("server exceeds its reverse-direction credits; disconnecting\n");
        this.xprt.force_disconnect();
        return;
    };
    this.requester.stats.reverse_calls.count();
    if let Err((slot, _)) = enqueue_bc_call(this, slot, xid, call) {
        this.reverse.put(slot);
    }
}

/// A reverse-direction Call whose header makes no sense is answered with RDMA_ERROR, RFC 8166 section 4.5.
pub(super) fn refuse(this: &Arc<Client>, message: &Received<Client>, error: &DecodeError) {
    if let Some(answer) = error.answer(REVERSE_CREDITS) {
        send_error(this, message, &answer);
    }
}

/// Sends an RDMA_ERROR message where the Call came from. If there is no Send buffer, the peer does without.
fn send_error(this: &Arc<Client>, message: &Received<Client>, error: &ErrorHeader) {
    let endpoint = message.endpoint();
    let Some(mut buffer) = endpoint.send_buffer() else {
        return;
    };
    let Ok(len) = error.encode(&mut buffer) else {
        return;
    };
    if endpoint.post_message(buffer, len, &mut []).is_ok() {
        this.requester.stats.work_requests.count();
    }
}

/// Sends the Reply of a reverse-direction Call. The caller holds the send lock.
///
/// # Errors
///
/// As for [`crate::requester::send::call`].
pub(super) fn reply(this: &Arc<Client>, rqst: &BcReply<'_>) -> Result<(), SendError> {
    if !this.xprt.is_connected() {
        return Err(SendError::NotConnected);
    }
    let Some(link) = this.requester.link() else {
        return Err(SendError::NotConnected);
    };
    let endpoint = link.endpoint();
    let Some(mut buffer) = endpoint.send_buffer() else {
        return Err(wait_for_send_room(this, &link, rqst.xid(), 0));
    };
    let header = v1::ReplyHeader {
        xid: rqst.xid(),
        // Grants of the two directions are separate, RFC 8167 section 4.1.
        credits: REVERSE_CREDITS,
        write: &[],
        reply: None,
        nomsg: false,
    };
    let header_len = header.encode(&mut buffer).map_err(|_| SendError::Io)?;
    let rest = buffer.get_mut(header_len..).ok_or(SendError::Io)?;
    let len = rqst.snd_buf().copy_message(rest).ok_or(SendError::Io)? + header_len;
    if len > link.inline_send() as usize {
        return Err(SendError::Io);
    }
    let error = match endpoint.post_message(buffer, len, &mut []) {
        Ok(_) => {
            trace::reverse_reply(this.number(), rqst.xid(), len);
            this.requester.stats.work_requests.count();
            return Ok(());
        }
        Err(error) => error,
    };
    trace::post_failed(this.number(), rqst.xid(), error.into());
    match error {
        PostError::Full => Err(wait_for_send_room(this, &link, rqst.xid(), 0)),
        PostError::Closed | PostError::Refused => {
            Client::disconnect(this);
            Err(SendError::NotConnected)
        }
    }
}

/// The largest reverse-direction message, header not counted: RFC 8167 section 4.2.
pub(super) fn max_payload(client: &Client) -> usize {
    let inline = client.requester.link().map_or(v1::MIN_INLINE, |link| {
        link.inline_send().min(link.inline_receive())
    });
    (inline as usize)
        .min(PAGE_SIZE)
        .saturating_sub(v1::MIN_HEADER_LEN)
}
