// SPDX-License-Identifier: GPL-2.0

//! Flow control: how many messages may be on their way.
//!
//! Version One counts transactions: each Reply says how many Calls may be unanswered at a time
//! (RFC 8166, 3.3.1). The two directions of a connection are counted apart (RFC 8167, 4.1), each by
//! a [`Grant`] of its Requester.

/// The credits of a Version One Requester.
///
/// # Invariants
///
/// `1 <= limit <= requested`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The credits that we ask for in each Call, because we can receive as many Replies.
    requested: u32,
    /// The number of Calls that may be unanswered at the moment.
    limit: u32,
}

impl Grant {
    /// The state of a new connection, on which `requested` credits, at least one, will be asked
    /// for.
    ///
    /// Until the first Reply one Call is allowed (RFC 8166, 3.3.3).
    pub(crate) fn new(requested: u32) -> Self {
        // INVARIANT: `requested` is at least 1.
        Self {
            requested: requested.max(1),
            limit: 1,
        }
    }

    /// Returns how many Calls may be unanswered at the moment.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Takes note of the credit value in a Reply and returns the new limit.
    ///
    /// More than was asked for is of no use. A grant of zero, which is forbidden because nothing
    /// could follow it, counts as one.
    pub(crate) fn update(&mut self, granted: u32) -> u32 {
        // INVARIANT: `requested` is at least 1, so that the range is not empty.
        self.limit = granted.max(1).min(self.requested);
        self.limit
    }
}

/// Returns how many credits a peer may have, of `most` that it has while nothing is used: as large
/// a part of them as of the memory is free. All peers use `used` KiB of that, and should use
/// `limit` at most. It is the same for all peers that may have as many credits.
///
/// So a little less memory takes a little from each peer: there is no point at which a new one gets
/// nothing, or at which the others lose much at once.
pub(crate) fn free_share(most: u32, used: u64, limit: u64) -> u32 {
    let limit = limit.max(1);
    let free = limit.saturating_sub(used);
    let share = u64::from(most).saturating_mul(free).div_ceil(limit);
    // It is never more than that.
    u32::try_from(share).unwrap_or(most)
}

/// The most Calls for each credit that are tolerated, see [`Allowance::is_overrun`].
pub(crate) const MESSAGES_PER_CREDIT: u32 = 2;

/// The promise of a Responder to one peer.
///
/// A peer of Version One keeps its last grant as long as it likes and may then use all of it at
/// once, so what was promised stays promised: the grant grows with use. It shrinks where memory is
/// short. How far it may grow is for the caller to find out, which has to receive what the peer
/// sends.
///
/// In Version Two the credits are what a window is renewed to. They may be fewer than before. What
/// was promised stays promised there too, until the peer has used it. In the earlier protocol with
/// the same number fewer credits can be told at any time, and what was promised stays promised
/// until the peer has proved that it has heard.
///
/// # Invariants
///
/// `1 <= granted <= limit <= most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The number of Calls that the peer may have unanswered.
    granted: u32,
    /// The bound of `granted`.
    limit: u32,
    /// The bound of `limit`.
    most: u32,
    /// Set if the peer has used all of it since it last grew.
    used_up: bool,
    /// Set if somebody is about to add credits.
    growing: bool,
    /// Credits that were withdrawn, and that the caller is still ready for.
    withdrawn: u32,
    /// The largest number of credits that were ever promised.
    peak: u32,
    /// The number of Replies sent since credits were withdrawn, as far as they are not
    /// [settled](Self::settle_replied): `withdrawn` at most.
    replied: u32,
}

/// A peer has more Calls unanswered than it was granted (RFC 8166, 3.3.1), or answers more than it
/// was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

impl Allowance {
    /// The state of a new connection, on which `initial` credits, at least one, will be granted,
    /// and later up to `limit`.
    pub(crate) fn new(initial: u32, limit: u32) -> Self {
        let limit = limit.max(1);
        // INVARIANT: The range is not empty.
        Self {
            granted: initial.clamp(1, limit),
            limit,
            most: limit,
            used_up: false,
            growing: false,
            withdrawn: 0,
            peak: initial.clamp(1, limit),
            replied: 0,
        }
    }

    /// Returns the credit value for our Replies.
    pub(crate) const fn granted(&self) -> u32 {
        self.granted
    }

    /// Returns what the credit value may become.
    pub(crate) const fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns how many Calls the peer may have unanswered, as far as it was told.
    const fn promised(&self) -> u32 {
        self.granted.saturating_add(self.withdrawn)
    }

    /// Takes note of a Call with which `unanswered` ones are with us.
    pub(crate) fn arrived(&mut self, unanswered: u32) {
        if unanswered >= self.granted {
            self.use_up();
        }
    }

    /// The peer uses all that it was granted, so that more would be of use.
    pub(crate) fn use_up(&mut self) {
        self.used_up = true;
    }

    /// Returns whether a peer breaks its credits which has `unanswered` Calls with us.
    ///
    /// Clients of Linux forget the Calls of a process that is killed, and send others in their
    /// place while we still work on the former. So there may be twice as many as were granted, when
    /// all were forgotten. They do not look at the credits of a Reply to such a Call either, and may
    /// not know that credits were withdrawn: the most that were ever promised count.
    pub(crate) const fn is_overrun(&self, unanswered: u32) -> bool {
        unanswered > self.peak.saturating_mul(MESSAGES_PER_CREDIT)
    }

    /// Returns how many more credits would be of use, if there may be `most`: as many again as
    /// there are, when those were all used.
    fn wanted(&self, most: u32) -> u32 {
        if self.used_up {
            let most = self.limit.min(most);
            self.granted.min(most.saturating_sub(self.granted))
        } else {
            0
        }
    }

    /// Returns how many credits the caller must make ready, and then report by [`Self::grow`] or
    /// [`Self::give_up`]. There will be at most `most`.
    ///
    /// Until then it returns zero, since what several made ready at a time would be more than can
    /// be granted. So it does while withdrawn credits are not all [settled](Self::settle).
    pub(crate) fn begin_growth(&mut self, most: u32) -> u32 {
        let wanted = if self.growing || self.withdrawn > 0 {
            0
        } else {
            self.wanted(most)
        };
        self.growing |= wanted > 0;
        wanted
    }

    /// The credits that [`Self::begin_growth`] has asked for could not be made ready.
    pub(crate) fn give_up(&mut self) {
        self.growing = false;
    }

    /// Adds the `credits` that [`Self::begin_growth`] has asked for.
    pub(crate) fn grow(&mut self, credits: u32) {
        self.growing = false;
        let credits = credits.min(self.limit.saturating_sub(self.granted));
        // INVARIANT: The sum is not above `limit`.
        self.granted = self.granted.saturating_add(credits);
        self.peak = self.peak.max(self.granted);
        self.used_up = false;
    }

    /// Withdraws credits, so that `most` are left, but at least one. The caller is ready for them
    /// until they are [settled](Self::settle). Returns whether there are fewer now.
    pub(crate) fn withdraw(&mut self, most: u32) -> bool {
        let most = most.max(1);
        if self.growing || self.granted <= most {
            return false;
        }
        self.withdrawn = self
            .withdrawn
            .saturating_add(self.granted.saturating_sub(most));
        // INVARIANT: It is less than before, and not zero.
        self.granted = most;
        true
    }

    /// Sets what the credit value may become, as far as that was possible from the beginning. What
    /// is granted beyond it is [withdrawn](Self::withdraw) before. Not while somebody is about
    /// to add credits.
    pub(crate) fn set_limit(&mut self, limit: u32) {
        if self.growing {
            return;
        }
        // INVARIANT: It is not below `granted`, which is not above `most`.
        self.limit = limit.min(self.most).max(self.granted);
    }

    /// Grants withdrawn credits again, for which the caller is still ready, if the peer has used
    /// all that it has and there may be `most`. Returns whether there are more now.
    pub(crate) fn regain(&mut self, most: u32) -> bool {
        let left = self.withdrawn.saturating_sub(self.replied);
        let credits = if self.growing {
            0
        } else {
            self.wanted(most).min(left)
        };
        if credits == 0 {
            return false;
        }
        // INVARIANT: `wanted` does not exceed `limit`.
        self.granted = self.granted.saturating_add(credits);
        self.withdrawn = self.withdrawn.saturating_sub(credits);
        self.used_up = false;
        true
    }

    /// Notes a Reply of Version One that was sent with the credit value.
    pub(crate) fn replied(&mut self) {
        self.replied = self.replied.saturating_add(1).min(self.withdrawn);
    }

    /// Settles a withdrawn credit for each Reply that was sent since, and returns their number.
    ///
    /// Replies arrive in the order in which they are sent. When the first one arrives that grants
    /// fewer credits, the peer has as many Calls unanswered as it was granted, at most, and each
    /// Reply takes one of them. It sends no other Call before they are fewer than it is granted
    /// now. So for each of these Replies it needs one Receive less.
    pub(crate) fn settle_replied(&mut self) -> u32 {
        let settled = core::mem::take(&mut self.replied);
        self.withdrawn = self.withdrawn.saturating_sub(settled);
        settled
    }

    /// Grants again what was withdrawn: the peer can't be told so.
    pub(crate) fn restore(&mut self) {
        // INVARIANT: It was granted before, and nothing was added since: see `begin_growth`.
        self.granted = self.promised().min(self.most);
        self.limit = self.limit.max(self.granted);
        self.withdrawn = 0;
        self.replied = 0;
    }

    /// Returns how many credits were withdrawn that the caller is still ready for.
    pub(crate) const fn withdrawn(&self) -> u32 {
        self.withdrawn
    }

    /// The caller has to be ready for `needed` messages of the peer still, `beside` of them
    /// whatever is granted. Returns for how many it need not be ready any more.
    pub(crate) fn settle(&mut self, needed: u32, beside: u32) -> u32 {
        let ready = self
            .granted
            .saturating_add(beside)
            .saturating_add(self.withdrawn);
        let settled = ready.saturating_sub(needed).min(self.withdrawn);
        self.withdrawn = self.withdrawn.saturating_sub(settled);
        settled
    }
}

/// The number of further Replies that a peer may send, on a connection on which we call it.
///
/// A Reply takes a Receive and no credit: what bounds Replies is that there is one for each Call
/// (RFC 8167, 4.1). A Call that we have given up may be answered still, and some peers answer
/// twice, so there may be some more.
///
/// # Invariants
///
/// `left <= most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// The number of Replies that may still come.
    left: u32,
    /// The bound of `left`: Receives that a peer may use at once which never answers a Call in
    /// time.
    most: u32,
}

impl Due {
    /// The state of a new connection, on which we have up to `slots` Calls at a time. So many
    /// Replies too many are put up with.
    pub(crate) const fn new(slots: u32) -> Self {
        // INVARIANT: Saturating, twice as many are not fewer.
        Self {
            left: slots,
            most: slots.saturating_mul(2),
        }
    }

    /// Notes that a Call was posted.
    pub(crate) fn called(&mut self) {
        // INVARIANT: It is the lower one of both.
        self.left = self.left.saturating_add(1).min(self.most);
    }

    /// A Reply, or an error in place of one, has arrived.
    ///
    /// # Errors
    ///
    /// [`Overrun`] if there were too few Calls for it.
    pub(crate) fn answered(&mut self) -> core::result::Result<(), Overrun> {
        self.left = self.left.checked_sub(1).ok_or(Overrun)?;
        Ok(())
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_credits)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// All of the credits while nothing is used, and a part of them as large as of the memory.
    #[test]
    fn the_share_is_linear() {
        for (used, share) in [
            (0, 64),
            (1, 64),
            (16, 63),
            (500, 32),
            (984, 2),
            (999, 1),
            (1000, 0),
            (u64::MAX, 0),
        ] {
            assert_eq!(free_share(64, used, 1000), share);
        }
        assert_eq!(free_share(64, 0, 0), 64);
        assert_eq!(free_share(u32::MAX, 1 << 29, 1 << 30), 1 << 31);
    }

    /// RFC 8166, section 3.3.1: a Receive less for each Reply that grants fewer credits.
    #[test]
    fn each_reply_settles_a_credit() {
        let mut allowance = Allowance::new(16, 64);
        allowance.replied();
        assert!(allowance.withdraw(13));
        assert_eq!(allowance.settle_replied(), 0);
        for settled in [2, 1, 0] {
            for _ in 0..2 {
                allowance.replied();
            }
            assert_eq!(allowance.settle_replied(), settled);
        }
        assert_eq!((allowance.granted(), allowance.withdrawn()), (13, 0));
    }

    /// What is still there needs no new Receives; what a Reply has settled does.
    #[test]
    fn withdrawn_credits_are_granted_again() {
        let mut allowance = Allowance::new(16, 64);
        assert!(allowance.withdraw(4));
        assert!(!allowance.regain(64));
        allowance.arrived(4);
        allowance.replied();
        assert!(allowance.regain(64));
        assert_eq!((allowance.granted(), allowance.withdrawn()), (8, 8));
        allowance.arrived(8);
        assert!(!allowance.regain(8));
        assert!(allowance.regain(64));
        assert_eq!((allowance.granted(), allowance.withdrawn()), (15, 1));
        assert_eq!(allowance.settle_replied(), 1);
        assert_eq!(allowance.withdrawn(), 0);
    }

    /// RFC 8166, section 3.3.3: one Call until its Reply tells the grant.
    #[test]
    fn one_call_until_the_first_reply() {
        let mut grant = Grant::new(128);
        assert_eq!(grant.limit(), 1);
        assert_eq!(grant.update(32), 32);
        assert_eq!(grant.limit(), 32);
    }

    /// RFC 8166, section 3.3.1: the lower of the requested and the granted value.
    #[test]
    fn grants_are_clamped() {
        let mut grant = Grant::new(16);
        for (granted, limit) in [(16, 16), (17, 16), (u32::MAX, 16), (1, 1), (0, 1), (5, 5)] {
            assert_eq!(grant.update(granted), limit);
            assert_eq!(grant.limit(), limit);
        }
        let mut grant = Grant::new(0);
        assert_eq!(grant.update(9), 1);
    }

    #[test]
    fn an_allowance_grows_when_it_is_used_up() {
        let mut allowance = Allowance::new(4, 21);
        assert_eq!(allowance.granted(), 4);
        for unanswered in [1, 3, 2, 3] {
            allowance.arrived(unanswered);
            assert_eq!(allowance.wanted(u32::MAX), 0);
        }
        for (unanswered, granted) in [(4, 8), (8, 16), (16, 21)] {
            allowance.arrived(unanswered);
            let more = allowance.begin_growth(u32::MAX);
            allowance.grow(more);
            assert_eq!(allowance.granted(), granted);
            assert_eq!(allowance.wanted(u32::MAX), 0);
        }
        allowance.arrived(21);
        assert_eq!(allowance.wanted(u32::MAX), 0);
    }

    /// RFC 8166, section 3.3.1: Calls of killed processes are tolerated, once for each credit.
    #[test]
    fn more_calls_than_granted_are_an_overrun() {
        let mut allowance = Allowance::new(4, 64);
        assert!(!allowance.is_overrun(8) && allowance.is_overrun(9));
        allowance.arrived(4);
        let more = allowance.begin_growth(u32::MAX);
        assert!(allowance.is_overrun(9));
        allowance.grow(more);
        assert!(!allowance.is_overrun(16) && allowance.is_overrun(17));
        // What was withdrawn may still be used, until a Reply has taken it back.
        assert!(allowance.withdraw(4));
        assert!(!allowance.is_overrun(16));
        for _ in 0..4 {
            allowance.replied();
        }
        allowance.settle_replied();
        // It may not know of that.
        assert!(!allowance.is_overrun(16) && allowance.is_overrun(17));
    }

    #[test]
    fn one_at_a_time_makes_credits_ready() {
        let mut allowance = Allowance::new(4, 64);
        assert_eq!(allowance.begin_growth(u32::MAX), 0);
        allowance.arrived(4);
        assert_eq!(allowance.begin_growth(u32::MAX), 4);
        allowance.arrived(4);
        assert_eq!(allowance.begin_growth(u32::MAX), 0);
        allowance.give_up();
        assert_eq!(allowance.granted(), 4);
        assert_eq!(allowance.begin_growth(u32::MAX), 4);
        allowance.grow(4);
        assert_eq!(allowance.granted(), 8);
        assert_eq!(allowance.begin_growth(u32::MAX), 0);
        allowance.arrived(8);
        assert_eq!(allowance.begin_growth(u32::MAX), 8);
    }

    #[test]
    fn growth_may_have_a_bound() {
        let mut allowance = Allowance::new(4, 64);
        allowance.arrived(4);
        for (most, wanted) in [(0, 0), (4, 0), (6, 2), (100, 4)] {
            assert_eq!(allowance.begin_growth(most), wanted);
            allowance.give_up();
        }
    }

    /// Version Two, section 4.2.1: a window may be renewed to less, and what was promised stays
    /// promised.
    #[test]
    fn who_withdraws_credits_stays_ready_for_them() {
        let mut allowance = Allowance::new(64, 64);
        assert!(!allowance.withdraw(64));
        assert!(allowance.withdraw(20));
        assert_eq!((allowance.granted(), allowance.withdrawn()), (20, 44));
        assert!(!allowance.withdraw(30));
        allowance.arrived(20);
        // The peer has used ten of 64, and there is one beside.
        assert_eq!(allowance.settle(65, 1), 0);
        assert_eq!(allowance.settle(55, 1), 10);
        assert_eq!(allowance.settle(55, 1), 0);
        assert_eq!(allowance.begin_growth(u32::MAX), 0);
        // More than is granted is not settled, however little is needed.
        assert_eq!(allowance.settle(3, 1), 34);
        assert_eq!((allowance.granted(), allowance.withdrawn()), (20, 0));
        assert_eq!(allowance.begin_growth(u32::MAX), 20);
        // What is being made ready would be told of.
        assert!(!allowance.withdraw(1));
        allowance.grow(20);
        assert!(allowance.withdraw(0));
        assert_eq!((allowance.granted(), allowance.withdrawn()), (1, 39));
    }

    /// The limit may be lowered, and raised to what it was at first.
    #[test]
    fn a_limit_may_change_between_what_is_granted_and_the_first_one() {
        let mut allowance = Allowance::new(16, 64);
        for (limit, now) in [(8, 16), (32, 32), (100, 64), (0, 16)] {
            allowance.set_limit(limit);
            assert_eq!(allowance.limit(), now);
        }
        allowance.set_limit(64);
        allowance.arrived(16);
        assert_eq!(allowance.begin_growth(u32::MAX), 16);
        allowance.set_limit(20);
        allowance.grow(16);
        assert_eq!((allowance.granted(), allowance.limit()), (32, 64));
        assert!(allowance.withdraw(4));
        allowance.set_limit(4);
        assert_eq!(allowance.settle(5, 1), 28);
        allowance.arrived(4);
        assert_eq!(allowance.begin_growth(u32::MAX), 0);
        allowance.set_limit(64);
        assert_eq!(allowance.begin_growth(u32::MAX), 4);
    }

    #[test]
    fn an_allowance_is_never_zero_nor_above_its_limit() {
        for (initial, limit, granted) in [(0, 0, 1), (0, 8, 1), (9, 8, 8), (5, u32::MAX, 5)] {
            let mut allowance = Allowance::new(initial, limit);
            assert_eq!(allowance.granted(), granted);
            allowance.grow(u32::MAX);
            assert_eq!(allowance.granted(), limit.max(1));
        }
    }

    /// RFC 8167, section 4.1: as many Replies as Calls, and as many too many as there may be Calls
    /// at a time.
    #[test]
    fn replies_are_bounded_by_calls() {
        let mut due = Due::new(3);
        for _ in 0..100 {
            due.called();
            assert_eq!(due.answered(), Ok(()));
        }
        for _ in 0..3 {
            assert_eq!(due.answered(), Ok(()));
        }
        assert_eq!(due.answered(), Err(Overrun));
        due.called();
        assert_eq!(due.answered(), Ok(()));
        // Calls without Replies do not let a peer save up for later.
        for _ in 0..100 {
            due.called();
        }
        for _ in 0..6 {
            assert_eq!(due.answered(), Ok(()));
        }
        assert_eq!(due.answered(), Err(Overrun));
    }
}
