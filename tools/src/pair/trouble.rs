// SPDX-License-Identifier: GPL-2.0

//! What may go wrong with a connection, and what an owner does who has waited long enough.
//!
//! The ends of each connection get versions, and perhaps host authentication; one of them may say
//! something strange first. Later one may fall silent: it takes messages, or not even that, and
//! sends none. The connection may be lost at any time, and the first messages with it. An owner may
//! end it, and check it whenever the one in the kernel could (`link/channel.rs`,
//! `client/connect.rs`).

use super::{
    timers::Owner,
    *, //
};

/// The versions that an end may speak.
const RANGES: [(u32, u32); 5] = [(1, 2), (1, 2), (1, 2), (2, 2), (1, 1)];

/// How many Receives an end has at least that authenticates itself: with fewer it could not be
/// answered.
const LEAST_AUTHENTICATED: u32 = 3;

/// The longest CONNPROP message of an end that authenticates itself, in octets: short, so that
/// there are many.
const ROOM: usize = 96;

/// What is wrong with an end on one connection, and what its owner knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// It sends nothing any more.
    pub(super) silent: bool,
    /// It takes nothing either.
    pub(super) deaf: bool,
    /// Its end of the connection is over.
    pub(super) closed: bool,
    /// What is sent in the place of its first message.
    pub(super) strange: Option<Strange>,
    /// Whether one of the ends has been told something that the other one has not said.
    pub(super) misled: bool,
    /// What is spoken.
    pub(super) dialect: Option<Version>,
    /// What its owner has found.
    pub(super) owner: Owner,
}

impl Trouble {
    /// Returns whether the end sends nothing.
    pub(super) fn is_mute(&self) -> bool {
        self.silent || self.closed
    }

    /// Returns whether the end takes nothing.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf && !self.closed
    }
}

impl End {
    /// Returns whether it may send RPC messages, unless its session forbids it.
    pub(super) fn may_send(&self) -> bool {
        !self.trouble.is_mute() && self.host.settlement.is_done()
    }
}

impl Pair {
    /// Begins a connection, as the schedule wants it.
    pub(super) fn begin(&mut self, schedule: &mut Schedule<'_>) {
        for config in &mut self.configs {
            let what = schedule.any();
            (config.low, config.high) = RANGES[what as usize % RANGES.len()];
            config.credits_in_one = 1 + what / 5 % 4;
            config.authenticate = what >= 200 && config.high == 2;
            config.authenticate &= config.receives >= LEAST_AUTHENTICATED;
        }
        self.reconnect();
        for (end, config) in self.ends.iter_mut().zip(&self.configs) {
            if config.authenticate {
                let what = schedule.any();
                let wish = Wish {
                    // There is no host authentication in Version One.
                    mode: match config.low {
                        2 => Mode::Require,
                        _ => Mode::Offer,
                    },
                    key: u64::from(what >= 240),
                    fill: what % 3 * 40,
                };
                end.host = Host::new(config.role, &wish);
            }
        }
        let what = schedule.any();
        let at = usize::from(what >= 128);
        if what % 8 == 0 {
            self.silence(at, schedule.any() & 1 != 0);
        } else if what % 8 <= 2 {
            self.mishaps.strange += 1;
            self.ends[at].trouble.strange = Some(Strange {
                kind: schedule.any(),
                damage: schedule.any() / 16,
                place: schedule.any(),
            });
        }
        let is_mismatch = self.common().is_none();
        self.mishaps.mismatches += u32::from(is_mismatch);
    }

    /// Begins a connection with which nothing is wrong, in Version One or in Version Two.
    pub(super) fn begin_well(&mut self, fallback: bool) {
        for config in &mut self.configs {
            (config.low, config.high) = (1, 2);
            config.authenticate = false;
        }
        self.configs[1].high = 2 - u32::from(fallback);
        self.reconnect();
    }

    /// Has something go wrong.
    pub(super) fn go_wrong(&mut self, at: usize, schedule: &mut Schedule<'_>) {
        if self.is_closed() {
            self.begin(schedule);
            return;
        }
        match schedule.any() % 32 {
            0..=1 => self.silence(at, schedule.any() & 1 != 0),
            2..=3 => self.lose(),
            4 => self.end_it(at),
            5..=6 => self.give_up(at),
            7..=8 => drop(self.notice(at)),
            9..=16 => self.check(at),
            17 => self.begin(schedule),
            _ => drop(self.act(at)),
        }
    }

    /// An end falls silent, unless the other one has. With `deaf` it takes nothing more either.
    pub(super) fn silence(&mut self, at: usize, deaf: bool) {
        if self.ends[1 - at].trouble.silent || self.ends[at].trouble.is_mute() {
            return;
        }
        self.mishaps.silent += 1;
        self.ends[at].trouble.silent = true;
        self.ends[at].trouble.deaf = deaf;
    }

    /// The connection is lost, with what is on its way.
    fn lose(&mut self) {
        let is_first = self.ends.iter().any(|end| end.record.awaits_first());
        self.mishaps.first_lost += u32::from(is_first);
        for at in 0..2 {
            self.hang_up(at);
        }
    }

    /// Returns whether the connection is over for both ends.
    pub(super) fn is_closed(&self) -> bool {
        self.ends.iter().all(|end| end.trouble.closed)
    }

    /// Whether anybody has been told something that nobody has said.
    pub(super) fn is_misled(&self) -> bool {
        self.ends.iter().any(|end| end.trouble.misled)
    }

    /// Whether the ends can do everything by themselves.
    pub(super) fn is_clean(&self) -> bool {
        let is_clean = |end: &End| end.trouble.owner.reasons.is_empty() && !end.trouble.silent;
        self.ends.iter().all(is_clean) && !self.is_misled()
    }

    /// Returns what a connection should speak, if that is possible: the client offers its highest
    /// version, and may go back to Version One.
    pub(super) fn common(&self) -> Option<Version> {
        let can = |version| {
            let mut configs = self.configs.iter();
            configs.all(|config| (config.low..=config.high).contains(&version))
        };
        match (can(1), can(2)) {
            (_, true) => Some(Version::Two),
            (true, false) => Some(Version::One),
            (false, false) => None,
        }
    }

    /// The session of an end has the connection ended.
    pub(super) fn close(&mut self, at: usize, reason: Reason) {
        let client = &self.configs[0];
        let is_explained = match reason {
            _ if self.ends[at].trouble.owner.reasons.contains(&reason) => true,
            Reason::NotAuthenticated => self.ends[at].host.settlement.is_refused(),
            // A client that has been misled counts as another version does.
            Reason::Overrun => {
                let dialects = self.ends.each_ref().map(|end| end.trouble.dialect);
                self.is_misled() && at == 1 && (dialects[1].is_none() || dialects[0] != dialects[1])
            }
            Reason::NoCommonVersion if self.common().is_none() => at == 0 && client.high == 2,
            _ => self.is_misled(),
        };
        assert!(is_explained, "{reason:?} at {at} of {:?}", self.configs);
        let end = &self.ends[at];
        let is_told = matches!(
            reason,
            Reason::NoCommonVersion
                | Reason::UnknownDialect
                | Reason::Refused
                | Reason::NotAuthenticated
                | Reason::Owner
        );
        assert!(
            !is_told || end.in_transit == 0 || end.trouble.owner.hurried || self.is_misled(),
            "the peer is not told"
        );
        self.mishaps.closed += 1;
        let _ = self.ends[at].host.settlement.closing(reason);
        self.hang_up(at);
    }

    /// An end is at the end of its connection.
    fn hang_up(&mut self, at: usize) {
        let end = &mut self.ends[at];
        end.trouble.closed = true;
        end.wire.clear();
        end.assembly.clear();
        end.connected = false;
        end.in_transit = 0;
    }

    /// An end finds out that the other one has ended the connection.
    pub(super) fn notice(&mut self, at: usize) -> bool {
        let is_over = self.ends[1 - at].trouble.closed && !self.ends[at].trouble.closed;
        if is_over {
            self.hang_up(at);
        }
        is_over
    }

    /// Has an end that authenticates itself say more.
    pub(super) fn speak(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let (changed, message) = end.host.speak(&mut end.connection.session, ROOM);
        if let Some(message) = message {
            end.in_transit += 1;
            self.mishaps.sayings += 1;
            self.post(at, message);
        }
        changed
    }
}
