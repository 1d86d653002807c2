// SPDX-License-Identifier: GPL-2.0

//! Calls that the server sends to the client: NFSv4.1 callbacks (RFC 8167).
//!
//! No chunks are used in this direction, which RFC 8167 section 5.3 leaves to the implementation: a Call and
//! its Reply are one inline message each. In Version Two the server is told so by a property (level
//! RDMA2_RVRSDIR_SIMPLE, section 5.2.5 of the draft).

use crate::client::Client;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::link::middles::Middles;
use crate::link::sizing::{REVERSE_CREDITS, REVERSE_RECEIVES};
use crate::link::{Link, Unposted};
use crate::observe::trace;
use crate::proto::message::{self, Version};
use crate::proto::v1::{self, DecodeError, ErrorHeader, RdmaError};
use crate::proto::v2::{self, Direction};
use crate::requester::call::Call;
use crate::requester::send::{wait_for_credits, wait_for_send_room};
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
pub(super) fn received(
    this: &Arc<Client>,
    message: &Received<Client>,
    version: Version,
    header: &message::Call<'_>,
) {
    let xid = header.xid;
    let call = header.payload;
    trace::reverse_call(this.number(), xid, call.len());
    // In Version Two the session has seen to that.
    if version == Version::One && (header.special || header.has_chunks()) {
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
    // Without a callback service there is nobody to answer, and no credit was ever granted in Version One.
    if !this.xprt.has_bc_server() {
        give_up(this, version, xid);
        return;
    }
    let Some(slot) = this.reverse.take() else {
        if version == Version::Two {
            // Credits are for messages of all kinds there, so this may happen.
            give_up(this, version, xid);
            return;
        }
        // More Calls than credits. RFC 8166 section 3.3.1: the connection may be ended.
        pr_warn_ratelimited!("server exceeds its reverse-direction credits; disconnecting\n");
        this.xprt.force_disconnect();
        return;
    };
    this.requester.stats.reverse_calls.count();
    if let Err((slot, _)) = enqueue_bc_call(this, slot, xid, call) {
        this.reverse.put(slot);
        give_up(this, version, xid);
    }
}

/// A reverse-direction Call is not taken in. Version Two has an error for that (7.4.1); it is sent when the message has
/// been dealt with.
fn give_up(this: &Arc<Client>, version: Version, xid: u32) {
    let link = this.requester.link();
    let channel = link.as_ref().and_then(|link| link.channel());
    if let (Version::Two, Some(channel)) = (version, channel) {
        // If many errors wait already the server is beyond help; its Call ends with its timeout.
        let _ = channel.report(xid, v2::RdmaError::System);
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
        return Err(wait_for_send_room(this, &link, rqst.xid(), 0, 1));
    };
    let header = message::ReplyHeader {
        version: link.version(),
        xid: rqst.xid(),
        // In Version One grants of the two directions are separate, RFC 8167 section 4.1.
        credits: REVERSE_CREDITS,
        write: &[],
        reply: None,
    };
    let header_len = header.encode(&mut buffer).map_err(|_| SendError::Io)?;
    let rest = buffer.get_mut(header_len..).ok_or(SendError::Io)?;
    let len = rqst.snd_buf().copy_message(rest).ok_or(SendError::Io)? + header_len;
    if len > link.inline_send() as usize {
        return Err(SendError::Io);
    }
    let mut middles = Middles::none();
    let error = match link.post(Direction::Reply, &mut middles, buffer, len, &mut []) {
        Err(Unposted::Credits) => {
            return Err(wait_for_credits(this, &link, Direction::Reply, false));
        }
        Err(Unposted::Unsupported) => return Err(SendError::Io),
        Err(Unposted::Post(error)) => error,
        Ok(_) => {
            trace::reverse_reply(this.number(), rqst.xid(), len);
            this.requester.stats.work_requests.count();
            return Ok(());
        }
    };
    trace::post_failed(this.number(), rqst.xid(), error.into());
    match error {
        PostError::Full => Err(wait_for_send_room(this, &link, rqst.xid(), 0, 1)),
        PostError::Closed | PostError::Refused => {
            Client::disconnect(this);
            Err(SendError::NotConnected)
        }
    }
}

/// The largest reverse-direction message, header not counted: RFC 8167 section 4.2.
///
/// Whoever asks keeps to it when the connection is made anew, perhaps in another version. So it is what both can do.
pub(super) fn max_payload(client: &Client) -> usize {
    let smallest = |link: &Link<Client>| {
        let (send, receive) = link.inline_in_one();
        let now = link.inline_send().min(link.inline_receive());
        now.min(send).min(receive)
    };
    let inline = client
        .requester
        .link()
        .map_or(v1::MIN_INLINE, |link| smallest(&link));
    (inline as usize)
        .min(PAGE_SIZE)
        .saturating_sub(v1::MIN_HEADER_LEN)
}
