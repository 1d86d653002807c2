// SPDX-License-Identifier: GPL-2.0

//! Replies of a Responder: the RDMA Writes and then the Send, as one chain.
//!
//! # Who owns what, and what ends it
//!
//! The Writes of a Reply, and what keeps their memory, are its [`Cargo`]. From the moment that the
//! chain is begun it belongs to the slot of the Send buffer. The handler of the Send's completion
//! drops it; or, if none has come, the end of the endpoint.

use crate::{
    endpoint::{
        gate::{
            SendChain,
            SendGate,
            SendRequest,
            SendSlot, //
        },
        parts::{
            Last,
            ReplySend,
            Rest, //
        },
        send::there,
        transfer::{
            requests,
            Load,
            Transfer, //
        },
        Charge,
        Endpoint,
        EndpointEvents,
        PostError,
        SendBuffer, //
    },
    sys, //
};
use core::ptr::{
    self,
    NonNull, //
};
use kernel::prelude::*;

/// The memory that a Reply holds until its Send has completed. The fields are dropped in this
/// order.
pub(crate) struct Cargo<H: EndpointEvents> {
    /// The Writes that are posted with it.
    transfers: KVec<Transfer<H>>,
    /// The keeper of their memory.
    _keeper: H::Push,
    /// Their pages, which count.
    _charge: Option<Charge<H>>,
}

impl<H: EndpointEvents> Cargo<H> {
    /// Writes; `keeper` keeps their memory.
    pub(crate) fn new(transfers: KVec<Transfer<H>>, keeper: H::Push) -> Self {
        let charge = Charge::of(&transfers);
        Self {
            transfers,
            _keeper: keeper,
            _charge: charge,
        }
    }

    /// Returns the size of the Writes.
    pub(crate) fn load(&self) -> Load {
        Load::of(&self.transfers)
    }
}

/// Why a Reply was not posted; with all of it, unless the device has refused it.
pub(crate) type UnpostedReply<H> = (PostError, Option<(SendBuffer<H>, Option<Cargo<H>>)>);

impl<H: EndpointEvents> Endpoint<H> {
    /// Posts a Reply, or begins to: the Writes of its cargo, if there are any, and then the first
    /// `len` octets of `message` as a Send, which invalidates the peer's `invalidate`. The cargo is
    /// dropped when the Send has completed. Returns the number that the trace event of the Send's
    /// completion has.
    ///
    /// `parts` are posted before, each with its length. If there are any, all of it is posted at
    /// once, see [`Self::fits_at_once`]. What is posted is taken out of `parts`, which may have
    /// empty places.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. What is not posted comes back, so that the caller drops it where he has
    /// no lock: memory of a cargo's keeper may be such that its release sleeps.
    pub(crate) fn post_reply(
        &self,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        mut message: SendBuffer<H>,
        len: usize,
        cargo: Option<Cargo<H>>,
        invalidate: Option<u32>,
    ) -> Result<u64, UnpostedReply<H>> {
        let before = there(parts);
        let send = ReplySend {
            index: message.index,
            len,
            invalidate,
            // The parts must not wait for whatever is sent next, as in `post_chain`.
            signal: before > 0,
            begun: None,
        };
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        let total = writes.saturating_add(1);
        let mut gate = self.send.lock();
        if gate.qp.is_none() {
            drop(gate);
            return Err((PostError::Closed, Some((message, cargo))));
        }
        let may = match before {
            0 => gate.may_begin(total),
            _ => gate.has_room(total.saturating_add(before), 0),
        };
        if !may {
            drop(gate);
            return Err((PostError::Full, Some((message, cargo))));
        }
        if let Err(error) = self.post_parts(&mut gate, parts) {
            drop(gate);
            return Err((error, Some((message, cargo))));
        }
        // Whatever happens, its slot is not used again until the completion, or the end of the
        // endpoint.
        message.posted = true;
        let held_up = message.answers && gate.answered();
        let posted = match (gate.queue.has_room(total, 0), cargo) {
            (false, Some(cargo)) => self.begin_reply(&mut gate, send, writes, cargo),
            (_, cargo) => self.post_send(&mut gate, &send, cargo),
        };
        drop(gate);
        // Outside the lock, though what was posted does nothing when it is dropped.
        parts.fill_with(|| None);
        if held_up {
            self.context.handler().resources_back();
        }
        posted.map_err(|error| (error, None))
    }

    /// Begins a Reply that has to be posted in parts. Returns what trace events call its Send.
    fn begin_reply(
        &self,
        gate: &mut SendGate,
        send: ReplySend,
        writes: u32,
        mut cargo: Cargo<H>,
    ) -> Result<u64, PostError> {
        let slot = self.send_slot(send.index).ok_or(PostError::Refused)?;
        let cqe = self.part.cqe();
        let mut first: *mut sys::ib_send_wr = ptr::null_mut();
        for transfer in cargo.transfers.iter_mut() {
            first = transfer.link(cqe, first);
        }
        let first = NonNull::new(first).ok_or(PostError::Refused)?;
        keep(slot, cargo)?;
        let name = gate.queue.begin();
        let last = Last::Send(ReplySend {
            begun: Some(name),
            ..send
        });
        // SAFETY: The transfers have just been linked, and there are so many work requests in them;
        // the slot keeps them until the Send has completed, or no completion comes any more.
        gate.rest = Some(unsafe { Rest::new(first, writes, last) });
        self.go_on(gate).map(|()| name)
    }

    /// Posts the Send of a Reply, for which there is room, and in the same chain before it the
    /// Writes of `cargo`, which is kept until the Send has completed. Returns its place.
    ///
    /// # Errors
    ///
    /// `Refused`.
    pub(super) fn post_send(
        &self,
        gate: &mut SendGate,
        reply: &ReplySend,
        cargo: Option<Cargo<H>>,
    ) -> Result<u64, PostError> {
        let slot = self.send_slot(reply.index).ok_or(PostError::Refused)?;
        let writes = cargo.as_ref().map_or(0, |cargo| requests(&cargo.transfers));
        let total = writes.saturating_add(1);
        let signaled = reply.signal
            || reply.begun.is_some()
            || writes > 0
            || gate.queue.must_signal(total, gate.made);
        // SAFETY: The gate is open, so the buffer is mapped and the device live; the message is
        // complete.
        let mut send = unsafe { SendRequest::new(slot, reply.len, gate.lkey, signaled) };
        if let Some(rkey) = reply.invalidate {
            send.invalidate(rkey);
        }
        let mut first = send.link();
        if let Some(mut cargo) = cargo {
            for transfer in cargo.transfers.iter_mut() {
                first = transfer.link(ptr::null_mut(), first);
            }
            // Whatever happens, it is released by the completion, or at the end of the endpoint.
            keep(slot, cargo)?;
        }
        let chain = SendChain {
            first,
            requests: total,
            signaled,
            begun: reply.begun,
        };
        // SAFETY: The gate's QP is live; the chain has just been linked, with the Send last, and is
        // valid for the call. What the Writes point to is kept by the slot.
        unsafe { gate.post(slot, reply.index, &chain) }
    }
}

/// Keeps the cargo of a Reply with its Send buffer.
///
/// # Errors
///
/// `Refused` if that has one. It has none, since it was free.
fn keep<H: EndpointEvents>(slot: &SendSlot<H>, cargo: Cargo<H>) -> Result<(), PostError> {
    slot.cargo.put(cargo).map_err(|_| PostError::Refused)
}
