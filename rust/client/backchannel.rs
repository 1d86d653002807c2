// SPDX-License-Identifier: GPL-2.0

//! Calls that the server sends to the client: NFSv4.1 callbacks (RFC 8167; section 4.6 of the
//! draft).
//!
//! The client is a Responder here, and [`crate::responder`] does its work. Only what becomes of a
//! Call that is there, and where its Reply comes from, is different from a server: SUNRPC's service
//! for such Calls wants them in one piece of memory, and hands the Reply, a page at most, to
//! `send_request`.
//!
//! In Version One there are no chunks in this direction, which RFC 8167 section 5.3 leaves to the
//! implementation. In Version Two the server is told that everything is possible (level
//! RDMA2_RVRSDIR_GENL, section 5.2.5 of the draft), unless its end of the connection answers no
//! RDMA Reads; then there are no chunks (RDMA2_RVRSDIR_CONT).
//!
//! # Who owns what, and what ends it
//!
//! A Call belongs to the handler of its last Receive; then, if it has Read chunks, with their RDMA
//! Reads to the endpoint; then to [`ReverseSlots`](super::reverse_slots), under the index of the
//! slot that SUNRPC was lent. It is taken out by [`reply`], which puts it back if SUNRPC has to try
//! again, and dropped when the Reply was posted, or when SUNRPC gives the slot back without one. A
//! Call keeps its Receive, and with it the endpoint's memory, but not the connection: when that
//! ends, Calls that SUNRPC works on stay until they are given back, and their Replies are not sent.
//! RDMA Writes of a Reply are made from a copy of it, which goes with the Send, since SUNRPC uses
//! its own memory again when the Reply was posted.
//!
//! The transport can't go away before: SUNRPC has a reference to it for each slot that it was lent.
//!
//! # How much memory
//!
//! There is a slot for each Receive that is kept for this direction, and no more Calls are taken in
//! than there are slots. A Call has [`MAX_CALL`] octets at most; one that is longer is refused
//! before anything is allocated for it.

use crate::client::reverse_slots::ReverseCall;
use crate::client::transport::Client;
use crate::endpoint::ConnectionEvents;
use crate::endpoint::{
    PostError,
    Received,
    Reply, //
};
use crate::kext::memalloc::NoFs;
use crate::kext::prelude::*;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::kext::waiting::wait_unless;
use crate::link::assembly::{
    Whole,
    MAX_WHOLE, //
};
use crate::link::channel::receives::ReplyTerms;
use crate::link::sizing::REVERSE_CREDITS;
use crate::link::Link;
use crate::observe::trace::{
    self,
    Answer,
    RefusalReason, //
};
use crate::proto::message::{
    self,
    DecodeError,
    Direction,
    ErrorHeader,
    PlainHeader,
    RdmaError,
    Version, //
};
use crate::proto::v1;
use crate::requester::call::Call;
use crate::requester::wait::wait_for_send_room;
use crate::requester::Host;
use crate::responder::call::{
    self,
    Arrived,
    CallSink,
    Pulling,
    Refusal,
    Taken, //
};
use crate::responder::post;
use crate::responder::reply::{
    self,
    ReplySource, //
};
use crate::sunrpc::svc::{
    CallContext,
    FreshPages,
    Pages, //
};
use crate::sunrpc::{
    enqueue_bc_call,
    BcReply,
    KeptMessage,
    SendError,
    XdrBuf, //
};

/// Octets of the longest Call that is taken in: as much in chunks as in parts. A slot's memory is
/// one piece, and stays as large as the longest Call that it has had.
const MAX_CALL: usize = MAX_WHOLE as usize;

/// Takes Calls in for SUNRPC's service.
struct Backchannel;

impl CallSink for Backchannel {
    // What is in pages is copied to the slot, in the order of the message.
    const SPLITS: bool = false;

    fn holds(&self, _len: usize) -> bool {
        // It is looked at when the Call is copied to a slot.
        true
    }

    fn take_pages(&mut self, len: usize, _tail: usize) -> Result<FreshPages> {
        if len > MAX_CALL {
            return Err(E2BIG);
        }
        // A page may be longer than all that is taken in.
        FreshPages::allocate(len.div_ceil(PAGE_SIZE))
    }
}

/// A reverse-direction Call has arrived: `message`, or `whole` if it came in parts. Sleeps.
pub(super) fn received(
    this: &Arc<Client>,
    message: Received<Client>,
    version: Version,
    whole: Option<Whole>,
) {
    // It was decoded before.
    let Some(header) = message::decode_call(version, message.bytes()) else {
        return;
    };
    let xid = header.xid;
    let has_chunks = header.has_chunks();
    let inline_len = match &whole {
        Some(whole) => whole.bytes().len(),
        None => header.payload.len(),
    };
    trace::reverse_call(this.number(), xid, inline_len);
    let refuses = this
        .requester
        .ask_link(|link| link.channel().refuses_call(has_chunks));
    if refuses == Some(true) {
        let answer = ErrorHeader {
            xid,
            version: version.number(),
            credits: REVERSE_CREDITS,
            error: RdmaError::BadXdr,
        };
        send_error(this, &message, &answer);
        return;
    }
    // Without a callback service there is nobody to answer, and no credit was ever granted in
    // Version One.
    if !this.xprt.has_bc_server() {
        give_up(this, xid, RdmaError::System);
        return;
    }
    // Writeback may wait for messages behind this one.
    let _scope = NoFs::enter();
    let endpoint = message.endpoint().clone();
    let arrived = Arrived {
        message,
        whole,
        again: false,
    };
    let taken = call::take(
        version,
        arrived,
        None,
        &mut None,
        Backchannel,
        &this.responder,
    );
    let (message, refusal) = match taken {
        Taken::Ready(call, Backchannel) => {
            return deliver(this, version, call, inline_len, |call, to| {
                to.copy_from_slice(call.message().get(..to.len())?);
                Some(())
            });
        }
        Taken::Pull(pull) => {
            return match post::reads(pull, &endpoint, &this.responder) {
                Ok(()) => {}
                Err(PostError::Full) => give_up(this, xid, RdmaError::System),
                // The connection is at its end.
                Err(_) => Client::lost(this),
            };
        }
        Taken::Crowded(arrived) => {
            let max = endpoint.sizes().segments;
            (Some(arrived.message), Refusal::Segments { max })
        }
        Taken::Refused(message, refusal) => (message, refusal),
    };
    let error = message.and_then(|message| {
        let call = message::decode_call(version, message.bytes())?;
        call::error(&refusal, &call)
    });
    let (answer, why) = refusal.traced(version);
    this.responder.refused(xid, answer, why, inline_len);
    // For want of memory; another time there may be enough.
    give_up(this, xid, error.unwrap_or(RdmaError::System));
}

/// The RDMA Reads of a Call have completed. Sleeps.
pub(super) fn pulled(this: &Arc<Client>, pull: Pulling<Client>) {
    let xid = pull.xid();
    this.responder.reads_done(xid);
    let _scope = NoFs::enter();
    if !pull.is_sound() {
        this.responder
            .refused(xid, Answer::Error, RefusalReason::OtherCall, 0);
        give_up(this, xid, RdmaError::BadXdr);
        return;
    }
    // It was prepared for `Backchannel`, so it is not split.
    if let Some((call, pages, len)) = pull.into_pages() {
        let version = this.requester.ask_link(|link| link.channel().spoken());
        let Some(version) = version else { return };
        deliver(this, version, call, len, |_, to| pages.read(to));
    }
}

/// Gives a Call of `len` octets, which `copy` copies, to SUNRPC's service.
fn deliver(
    this: &Arc<Client>,
    version: Version,
    call: KBox<ReverseCall<Client>>,
    len: usize,
    copy: impl FnOnce(&ReverseCall<Client>, &mut [u8]) -> Option<()>,
) {
    let xid = call.xid();
    let Some(slot) = this.reverse.take() else {
        if version.rules().counts_messages {
            // Credits are for messages of all kinds there, so this may happen.
            give_up(this, xid, RdmaError::System);
            return;
        }
        if this.reverse.is_closed() {
            // The session is about to be destroyed. The server's Call is one of those that cross
            // with that: it goes unanswered, as if it had come when there was no service any more.
            return;
        }
        // More Calls than credits. RFC 8166 section 3.3.1: the connection may be ended.
        pr_warn_ratelimited!(
            "server {}: sent more callbacks than its credits allow; reconnecting\n",
            this.xprt.display()
        );
        this.xprt.force_disconnect();
        return;
    };
    this.requester.stats.reverse_calls.count();
    let index = slot.call.index();
    let fill = |to: &mut [u8]| {
        copy(&call, to)?;
        // Before SUNRPC knows it: the Reply may be made at once.
        this.reverse.keep(index, call);
        Some(())
    };
    if let Err((slot, _)) = enqueue_bc_call(this, slot, xid, len, fill) {
        this.reverse.put(slot);
        give_up(this, xid, RdmaError::System);
    }
}

/// A reverse-direction Call is not taken in. Version Two has errors for that (7.4.1); this one is
/// sent when the message has been dealt with.
fn give_up(this: &Arc<Client>, xid: u32, error: RdmaError) {
    let Some(link) = this.requester.link() else {
        return;
    };
    // If many errors wait already, this one can't be sent; section 7.4 of the draft.
    if link.channel().report(xid, error).is_err() {
        this.xprt.force_disconnect();
    }
}

/// A reverse-direction Call whose header makes no sense is answered with RDMA_ERROR, RFC 8166
/// section 4.5.
pub(super) fn refuse(this: &Arc<Client>, message: &Received<Client>, error: &DecodeError) {
    if let Some(answer) = error.answer(REVERSE_CREDITS) {
        send_error(this, message, &answer);
    }
}

/// Sends an RDMA_ERROR message where the Call came from. If there is no Send buffer, the peer does
/// without.
fn send_error(this: &Arc<Client>, message: &Received<Client>, error: &ErrorHeader) {
    let endpoint = message.endpoint();
    let Some(mut buffer) = endpoint.send_buffer() else {
        return;
    };
    let Ok(len) = error.encode(Version::One, &mut buffer) else {
        return;
    };
    if endpoint.post_message(None, buffer, len, &mut []).is_ok() {
        this.requester.stats.work_requests.count();
    }
}

/// A Reply that SUNRPC sends, and its Call.
struct Answering<'a> {
    /// The Call.
    call: &'a ReverseCall<Client>,
    /// The Reply, in SUNRPC's memory.
    reply: &'a XdrBuf,
    /// A copy of it, if there may be RDMA Writes.
    kept: Option<KeptMessage>,
}

impl ReplySource<Client> for Answering<'_> {
    fn call(&self) -> &ReverseCall<Client> {
        self.call
    }

    fn reply(&self) -> &XdrBuf {
        match &self.kept {
            Some(kept) => kept.message(),
            None => self.reply,
        }
    }

    fn take_pages(&mut self) -> Result<Pages> {
        // Without a copy there is no chunk, and nobody asks.
        self.kept
            .as_mut()
            .map(KeptMessage::take_pages)
            .ok_or(EINVAL)
    }
}

/// Sends the Reply of a reverse-direction Call. The caller holds the send lock. Sleeps.
///
/// # Errors
///
/// As for [`crate::requester::send::call`]. SUNRPC may have given the error to another task, which
/// sends what was queued before its own Call. So there is an error only if this Reply may still be
/// sent later, or nothing at all can be sent now. What can't be sent any more is dropped with
/// success, and the slot comes back: a Reply of a former connection, which must not be sent on
/// another one (RFC 8167 section 4, and 4.6 of the draft), since the server sends its Call again
/// there.
pub(super) fn reply(this: &Arc<Client>, rqst: &BcReply<'_, Call<Client>>) -> Result<(), SendError> {
    if !this.xprt.is_connected() {
        return Err(SendError::NotConnected);
    }
    let Some(link) = this.requester.link() else {
        return Err(SendError::NotConnected);
    };
    let index = rqst.call().index();
    let Some(call) = this.reverse.take_call(index) else {
        return Ok(());
    };
    let sent = send(this, &link, rqst, &call);
    match sent {
        Ok(()) => {
            drop(call);
            // Its Receive is posted again.
            this.act();
        }
        // SUNRPC tries again, or gives the slot back.
        Err(_) => this.reverse.keep(index, call),
    }
    sent
}

/// As [`reply`], to `call`.
fn send(
    this: &Arc<Client>,
    link: &Arc<Link<Client>>,
    rqst: &BcReply<'_, Call<Client>>,
    call: &ReverseCall<Client>,
) -> Result<(), SendError> {
    let endpoint = link.endpoint();
    // What the Call has offered belongs to the connection that it came on.
    if !call
        .endpoint()
        .is_some_and(|of_call| Arc::ptr_eq(of_call, endpoint))
    {
        return Ok(());
    }
    // Writeback may wait for this connection.
    let _scope = NoFs::enter();
    let xid = rqst.xid();
    let Some(buffer) = endpoint.send_buffer() else {
        return Err(wait_for_send_room(this, link, xid, 0, 1));
    };
    let has_chunk = call
        .header()
        .is_some_and(|header| header.reply_chunk().is_some());
    let kept = if has_chunk {
        Some(KeptMessage::copy(rqst.snd_buf()).map_err(|_| SendError::NoBufs)?)
    } else {
        None
    };
    let mut answering = Answering {
        call,
        reply: rqst.snd_buf(),
        kept,
    };
    // In Version One grants of the two directions are separate, RFC 8167 section 4.1.
    let terms = ReplyTerms::new(&link.terms(), REVERSE_CREDITS);
    let mut ready = Reply::new(xid, buffer, 0);
    // A client's callback service does not wait for memory regions: without them it refuses.
    match reply::prepare(&mut answering, &mut ready, &terms, || Ok(false)) {
        Ok(()) => {}
        Err(ENOMEM) => return Err(SendError::NoBufs),
        Err(_) => {
            // There will be no Reply to this Call on this connection.
            Client::disconnect(this);
            return Err(SendError::NotConnected);
        }
    }
    let (writes, parts) = (ready.load().requests, ready.messages());
    match post::now(&mut ready, endpoint, link.channel(), &this.responder) {
        Ok(()) => {
            trace::reverse_reply(this.number(), xid, ready.len);
            let requests = writes.saturating_add(parts);
            this.requester
                .stats
                .work_requests
                .add_value(requests.into());
            Ok(())
        }
        Err(error @ PostError::Full) => {
            trace::post_failed(this.number(), xid, error.into());
            drop(ready);
            Err(wait(this, link, writes, parts))
        }
        Err(error) => {
            trace::post_failed(this.number(), xid, error.into());
            // The end of the connection waits for its RDMA Writes.
            drop(ready);
            Client::disconnect(this);
            Err(SendError::NotConnected)
        }
    }
}

/// Has SUNRPC call again when there may be both room in the Send Queue for a Reply in `parts`
/// messages with `writes` RDMA Writes, and credits: one of them is missing.
fn wait(this: &Arc<Client>, link: &Link<Client>, writes: u32, parts: u32) -> SendError {
    this.requester.stats.send_queue_full.count();
    // For the credits.
    Client::watch(this);
    let writes_too = usize::try_from(writes).unwrap_or(usize::MAX);
    wait_unless(&this.xprt, || {
        link.endpoint().has_send_room(writes_too, parts)
            && link.admits(Direction::Reply, parts, writes > 0)
    });
    SendError::Again
}

/// The largest reverse-direction message, header not counted: RFC 8167 section 4.2.
///
/// The caller keeps to it when the connection is made anew, perhaps in another version. So it is
/// what both can do.
pub(super) fn max_payload(client: &Client) -> usize {
    let smallest = |link: &Link<Client>| {
        let (one, now) = (link.channel().in_one().agreed(), link.terms());
        let in_one = one.send_inline.min(one.receive_inline);
        in_one.min(now.send_size).min(now.receive_size)
    };
    // SUNRPC asks within an RCU read-side critical section.
    let inline = client
        .requester
        .ask_link(smallest)
        .unwrap_or(v1::MIN_INLINE);
    payload_of(inline)
}

/// Returns how long an RPC message may be that fits a message of `inline` octets in any version,
/// and a page.
fn payload_of(inline: u32) -> usize {
    let most = PAGE_SIZE.min(inline as usize);
    most.saturating_sub(PlainHeader::MAX_LEN as usize)
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_client_backchannel)]
mod tests {
    use super::*;

    /// RFC 8167, section 4.2: the longest callback and its Reply fit one message, whatever is
    /// spoken.
    #[test]
    fn the_longest_callback_fits() {
        for inline in [v1::MIN_INLINE, 4095, 4096, 65536] {
            let limit = PAGE_SIZE.min(inline as usize);
            for version in [Version::One, Version::Earlier, Version::Two] {
                for direction in [Direction::Call, Direction::Reply] {
                    let header = PlainHeader::len(version, direction) as usize;
                    assert!(payload_of(inline) + header <= limit);
                }
            }
        }
        assert_eq!(payload_of(0), 0);
    }

    /// Whatever the length of a page.
    #[test]
    fn a_call_of_the_greatest_length_has_pages() -> Result {
        for len in [1, PAGE_SIZE.min(MAX_CALL), MAX_CALL] {
            let pages = Backchannel.take_pages(len, 0)?;
            assert_eq!(pages.len(), len.div_ceil(PAGE_SIZE));
        }
        assert!(matches!(
            Backchannel.take_pages(MAX_CALL + 1, 0),
            Err(E2BIG)
        ));
        Ok(())
    }
}
