// SPDX-License-Identifier: GPL-2.0

//! Replies of a Responder: the RDMA Writes and then the Send, as one chain; and the RDMA Reads by
//! which it pulls a Call.
//!
//! # Who owns what, and what ends it
//!
//! The Writes of a Reply, and what keeps their memory, are its [`Cargo`]. The Reads of a Call, and
//! their purpose, are a [`Pull`]. From the moment that they are posted, or the chain is begun, they
//! belong to the Send Queue, until their completion, or the end of the endpoint.

use crate::{
    endpoint::{
        send::there,
        transfer::{
            leave_to_peer,
            Counted,
            Load,
            Transfers, //
        },
        Endpoint,
        EndpointEvents,
        PostError,
        SendBuffer, //
    },
    rdma::{
        rw::ReadWrites,
        send_queue::SendOptions, //
    }, //
};
use kernel::prelude::*;

/// RDMA Reads that complete together, and their purpose.
pub(crate) type Pull<H> = ReadWrites<Counted<H>, <H as EndpointEvents>::Pull>;

/// Reads that are prepared; `purpose` keeps their memory.
///
/// # Errors
///
/// `ENOMEM`.
pub(crate) fn pull<H: EndpointEvents>(
    mut transfers: Transfers<H>,
    purpose: H::Pull,
) -> Result<KBox<Pull<H>>> {
    leave_to_peer(&mut transfers);
    // Without memory they are dropped in the order that it has.
    let pull = ReadWrites::new(transfers, purpose);
    let place = KBox::new_uninit(GFP_KERNEL)?;
    Ok(place.write(pull))
}

/// The memory that a Reply holds until its Send has completed.
pub(crate) struct Cargo<H: EndpointEvents>(ReadWrites<Counted<H>, <H as EndpointEvents>::Push>);

impl<H: EndpointEvents> Cargo<H> {
    /// Writes; `keeper` keeps their memory.
    pub(crate) fn new(mut transfers: Transfers<H>, keeper: H::Push) -> Self {
        leave_to_peer(&mut transfers);
        Self(ReadWrites::new(transfers, keeper))
    }

    /// Returns the size of the Writes.
    pub(crate) fn load(&self) -> Load {
        self.0.load()
    }
}

/// Why Reads were not posted; with the Reads, if the queue was full.
pub(crate) type Unpulled<H> = (PostError, Option<KBox<Pull<H>>>);

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
    /// Takes what is posted out of `message` and `cargo` too.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. What is not posted is left where it is, so that the caller drops it where
    /// he has no lock: memory of a cargo's keeper may be such that its release sleeps. After
    /// `Refused` nothing of it can be posted any more.
    pub(crate) fn post_reply(
        &self,
        parts: &mut [Option<(SendBuffer<H>, usize)>],
        message: &mut SendBuffer<H>,
        len: usize,
        cargo: &mut Option<Cargo<H>>,
        invalidate: Option<u32>,
    ) -> Result<u64, PostError> {
        let before = there(parts);
        let writes = cargo.as_ref().map_or(0, |cargo| cargo.load().requests);
        let total = writes.saturating_add(1);
        let mut gate = self.send.lock();
        if !gate.queue.is_open() {
            return Err(PostError::Closed);
        }
        let may = match before {
            0 => gate.queue.may_begin(total),
            _ => gate.queue.has_room(total.saturating_add(before), 0),
        };
        if !may {
            return Err(PostError::Full);
        }
        self.post_parts(&mut gate, parts)?;
        let held_up = message.answers && gate.answered();
        let send = SendOptions {
            len,
            invalidate,
            // The parts must not wait for whatever is sent next, as in `post_chain`.
            signal: before > 0,
        };
        let posted = match message.take() {
            Some(memory) => {
                let writes = cargo.take().map(|cargo| cargo.0);
                gate.queue.post_writes(memory, send, writes)
            }
            None => Err(PostError::Refused),
        };
        drop(gate);
        // Outside the lock, though what was posted does nothing when it is dropped.
        parts.fill_with(|| None);
        if held_up {
            self.context.handler().resources_back();
        }
        posted
    }

    /// Posts Reads, or begins to. When they are done, [`EndpointEvents::pulled`] is called.
    ///
    /// # Errors
    ///
    /// See [`PostError`]. If the queue was full, or too many Reads are under way, these come back;
    /// else they are dropped at the latest when the endpoint ends.
    pub(crate) fn post_pull(&self, pull: KBox<Pull<H>>) -> Result<(), Unpulled<H>> {
        let mut gate = self.send.lock();
        let posted = gate.queue.post_reads(pull);
        drop(gate);
        posted.map_err(|(error, pull)| (error, pull.filter(|_| error == PostError::Full)))
    }
}
