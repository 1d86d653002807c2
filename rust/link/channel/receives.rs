// SPDX-License-Identifier: GPL-2.0

//! Adding Receives for the peer's messages, and taking them back: what
//! [`crate::proto::connection::receives`] decides, done with the Receives of the device.
//!
//! A server has a place for each message that may come. What is new to the peer is told to the
//! [`ReceiveOwner`] under the channel's lock, so in its order.

use super::{
    Channel,
    State, //
};
use crate::kext::prelude::*;
use crate::{
    endpoint::{
        Endpoint,
        EndpointEvents, //
    },
    kext::time::{
        jiffies,
        HZ, //
    },
    link::parts::most_parts,
    proto::{
        connection::{
            receives::Renewal,
            Terms, //
        },
        credits::{
            Allowance,
            Overrun, //
        },
        message::Version, //
    }, //
};
use kernel::sync::lock::{
    spinlock::SpinLockBackend,
    Guard, //
};

/// Jiffies in which it is counted what a peer uses of its credits.
const MINUTE: usize = 60 * HZ;

/// The owner of the messages that arrive.
pub(crate) trait ReceiveOwner {
    /// Makes place for `count` messages more. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn add_room(&self, count: u32) -> Result;

    /// Notes another credit value. Must not sleep.
    fn granted(&self, credits: u32);

    /// Notes that there were no Receives for more credits.
    fn grant_denied(&self);

    /// Returns the KiB that the Receives of all connections use, and as many as they should use at
    /// most.
    fn receive_memory(&self) -> (u64, u64);
}

/// The terms that bind a Reply.
pub(crate) struct ReplyTerms {
    /// The version that is spoken.
    pub(crate) version: Version,
    /// The largest message that may be sent inline, header included.
    pub(crate) inline_max: usize,
    /// Set if the peer lets its keys be invalidated.
    pub(crate) may_invalidate: bool,
    /// In how many parts a message may be sent, see [`Terms::max_parts`].
    max_parts: u32,
    /// The credits to grant in Version One. In Version Two the value is set when the Reply is
    /// posted.
    pub(crate) credits: u32,
}

impl ReplyTerms {
    /// Returns what binds a Reply that grants `credits` on a connection where `terms` hold.
    #[inline]
    pub(crate) fn new(terms: &Terms, credits: u32) -> Self {
        Self {
            version: terms.version,
            inline_max: terms.reply_size as usize,
            may_invalidate: terms.may_invalidate,
            max_parts: terms.max_parts,
            credits,
        }
    }

    /// Returns in how many parts a Reply may be sent. What is too long for them needs a Reply
    /// chunk, which the peer is told.
    pub(crate) fn most_parts(&self) -> u32 {
        // It was made of 32 bits.
        self.max_parts.min(most_parts(self.inline_max as u32))
    }
}

impl Channel {
    /// Returns the terms for a Reply that is about to be sent, with the credit value of
    /// [`Self::grant`]. Sleeps.
    pub(crate) fn reply_terms<H: EndpointEvents>(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        owner: &impl ReceiveOwner,
    ) -> ReplyTerms {
        let (state, renewal) = self.begin_renewal(owner);
        let mut terms = if self.rules().has_properties {
            ReplyTerms::new(&state.connection.terms(), renewal.granted)
        } else {
            ReplyTerms::new(&self.terms_in_one, renewal.granted)
        };
        if renewal.has_work() {
            terms.credits = self.renew(state, endpoint, owner, &renewal);
        }
        terms
    }

    /// Returns the credit value for a message that is about to be sent. It grows if the peer has
    /// used all of it and there are Receives for more, and shrinks if memory is short. Sleeps.
    pub(crate) fn grant<H: EndpointEvents>(
        &self,
        endpoint: &Arc<Endpoint<H>>,
        owner: &impl ReceiveOwner,
    ) -> u32 {
        let (state, renewal) = self.begin_renewal(owner);
        self.renew(state, endpoint, owner, &renewal)
    }

    /// Begins to renew the peer's credits, under the lock that is returned.
    #[inline]
    fn begin_renewal(
        &self,
        owner: &impl ReceiveOwner,
    ) -> (Guard<'_, State, SpinLockBackend>, Renewal) {
        let mut state = self.state.lock();
        self.bound(&mut state, owner);
        let renewal = state.connection.begin_renewal();
        (state, renewal)
    }

    /// Bounds the credits of the connection.
    fn bound(&self, state: &mut State, owner: &impl ReceiveOwner) {
        let receives = state.connection.receives_mut();
        let (used, limit) = owner.receive_memory();
        receives.set_memory(used, limit);
        let now = jiffies();
        if now.wrapping_sub(self.minute.load(Relaxed)) >= MINUTE {
            self.minute.store(now, Relaxed);
            receives.minute_over();
        }
    }

    /// Does the work of a renewal, which was begun under the lock that is held. Returns the credit
    /// value. Sleeps when it has given the lock up.
    #[inline(never)]
    fn renew<H: EndpointEvents>(
        &self,
        state: Guard<'_, State, SpinLockBackend>,
        endpoint: &Arc<Endpoint<H>>,
        owner: &impl ReceiveOwner,
        renewal: &Renewal,
    ) -> u32 {
        if renewal.has_work() {
            self.is_quiet.store(false, Relaxed);
        }
        if renewal.is_new {
            owner.granted(renewal.granted);
        }
        drop(state);
        if renewal.settles {
            self.settle(endpoint);
        }
        if renewal.wanted == 0 {
            return renewal.granted;
        }
        // Before anything is promised the Receives are posted, and there is place for the messages.
        let made = make_ready(endpoint, owner, renewal.wanted);
        let mut state = self.change();
        let receives = state.connection.receives_mut();
        let granted = receives.end_growth(renewal.wanted, made);
        if made {
            owner.granted(granted);
        }
        drop(state);
        granted
    }

    /// Withdraws credits from a peer that can be told so at any time, if memory is short, and what
    /// is beyond `limit`. [`Self::act`] tells it. Receives of earlier withdrawals are given back,
    /// as far as the peer has heard of these.
    pub(crate) fn review_credits<H: EndpointEvents>(
        &self,
        endpoint: &Endpoint<H>,
        owner: &impl ReceiveOwner,
        limit: u32,
    ) {
        if !self.rules().has_optional {
            return;
        }
        let held = endpoint.held();
        let mut state = self.change();
        self.bound(&mut state, owner);
        let changed = state.connection.review_credits(limit, held);
        if let Some(granted) = changed {
            owner.granted(granted);
        }
        drop(state);
        self.settle(endpoint);
    }

    /// Gives Receives back for credits that were withdrawn, as far as the peer has used what it was
    /// promised, or knows what it is promised now.
    pub(crate) fn settle<H: EndpointEvents>(&self, endpoint: &Endpoint<H>) {
        let mut state = self.change();
        self.update_offer(&mut state, endpoint);
        let settled = state.connection.settle(endpoint.held());
        drop(state);
        if settled > 0 {
            endpoint.return_receives(endpoint.receives_for(settled));
        }
    }

    /// Counts a Call of Version One with which `unanswered` Calls of the peer have no Reply. Only
    /// the next renewal depends on it, so it gives [`Self::act`] nothing to do.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if it should not have been sent, and has used a Receive that others share. A
    /// Call beyond the peer's own Receives waits at the peer; over iWARP it ends the connection.
    pub(crate) fn arrived<H: EndpointEvents>(
        &self,
        endpoint: &Endpoint<H>,
        unanswered: u32,
    ) -> Result<(), Overrun> {
        let mut state = self.state.lock();
        let receives = state.connection.receives_mut();
        receives.used(unanswered);
        if endpoint.shares_receives() && receives.allowance().is_overrun(unanswered) {
            return Err(Overrun);
        }
        Ok(())
    }

    /// Sets how many Receives there are beside those for credits. They are posted before.
    pub(crate) fn set_beside(&self, beside: u32) {
        let mut state = self.change();
        state.connection.receives_mut().set_beside(beside);
    }

    /// Returns what the peer was granted, to be shown.
    pub(crate) fn allowance(&self) -> Allowance {
        *self.state.lock().connection.receives().allowance()
    }
}

/// Makes Receives ready for `wanted` credits. Returns whether they are.
fn make_ready<H: EndpointEvents>(
    endpoint: &Arc<Endpoint<H>>,
    owner: &impl ReceiveOwner,
    wanted: u32,
) -> bool {
    let wanted = endpoint.receives_for(wanted);
    if endpoint.ask_for_receives(wanted).is_err() {
        owner.grant_denied();
        return false;
    }
    let has_room = owner.add_room(wanted).is_ok();
    if !has_room {
        endpoint.return_receives(wanted);
    }
    has_room
}
