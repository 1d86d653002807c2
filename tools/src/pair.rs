// SPDX-License-Identifier: GPL-2.0

//! Two sessions back to back: the whole protocol without hardware.
//!
//! Each end makes Calls, answers those of the other end, and does what its session says. A byte of
//! the schedule says what happens next, so that fuzzers and property tests find the orders in which
//! something goes wrong. What must never happen is checked at each step; in the end both get enough
//! Receives, everything is delivered, and then every RPC must have ended.
//!
//! There are two kinds of ends. Those of [`run`] give up what does not fit the window: they send an
//! error instead of a Reply. Those of [`run_patiently`] wait for ever, as the module does
//! ([`patient`]).
//!
//! All of these speak Version Two and do what they should. In [`run_in_trouble`] they need not:
//! they may have different versions, or none in common, fall silent, begin with a message that
//! nobody expects, or run out of time ([`trouble`]).

use std::collections::{
    HashMap,
    VecDeque, //
};

use crate::headers::{
    CallExternal,
    CallInline,
    ReplyExternal,
    ReplyInline, //
};
use crate::host::{
    Host,
    Wish, //
};
use crate::proto::{
    auth::Mode,
    chunk::{
        Limits,
        Segment, //
    },
    cm_private::CmPrivate,
    connection::{
        receives::{
            Receives,
            FIRST_CREDITS, //
        },
        Connection,
        InOne, //
    },
    continuation::{
        Part,
        Split, //
    },
    error::Fault,
    message::Version,
    props::{
        Properties,
        ReverseLevel, //
    },
    session::{
        Action,
        Config,
        Control,
        Outbound,
        Reason,
        Refusal,
        Role,
        Session,
        Timer, //
    },
    v2::{
        htype,
        ConnProp,
        Direction,
        ErrorHeader,
        GrantHeader,
        Middle,
        RdmaError, //
    }, //
};

mod end;
mod one;
mod patient;
mod receive;
mod record;
mod schedule;
mod seen;
mod send;
mod settle;
mod strange;
mod timers;
mod trouble;

use self::{
    end::{
        payload,
        End,
        Outcome,
        Todo, //
    },
    patient::{
        Bounds,
        Patience, //
    },
    record::Record,
    schedule::Schedule,
    strange::Strange,
    trouble::Trouble, //
};

pub(crate) use self::end::IN_ONE;
pub use self::seen::{
    Mishaps,
    Seen, //
};

/// The handle and address of all chunks. Nothing is moved by RDMA here.
const SEGMENT: Segment = Segment {
    handle: 7,
    length: 1 << 16,
    offset: 0x1000,
};

/// The longest RPC message in octets.
const MAX_LEN: u32 = 2400;

/// Two ends and their connection.
struct Pair {
    /// The client and the server.
    ends: [End; 2],
    /// What the ends were made with.
    configs: [Config; 2],
    /// How many messages count as sent when a connection begins.
    start: u32,
    /// Whether messages in parts are given up if they have to wait.
    impatient: bool,
    /// Whether things may go wrong.
    troubled: bool,
    /// What has happened.
    seen: Seen,
    /// What has gone wrong.
    mishaps: Mishaps,
}

/// Returns what an encoder writes.
fn encoded(encode: impl FnOnce(&mut [u8]) -> Result<usize, Fault>) -> Vec<u8> {
    let mut buf = vec![0; 256];
    let len = encode(&mut buf).expect("it fits");
    buf.truncate(len);
    buf
}

impl Pair {
    /// Two ends as the schedule wants them, which wait as `bounds` say, or give up.
    fn new(schedule: &mut Schedule<'_>, bounds: Option<Bounds>) -> Self {
        let start = [0, 0x7fff_fff0, 0xffff_fff0][schedule.any() as usize % 3];
        let level = schedule.any() % 4;
        let configs = [Role::Client, Role::Server].map(|role| {
            let size = 96 + schedule.any() * 4;
            Config {
                role,
                low: 1,
                high: 2,
                earlier: None,
                own: Properties {
                    send_size: 96 + schedule.any() * 8,
                    receive_size: size,
                    segment_size: 1 << 20,
                    segment_count: 16,
                    reverse: level,
                },
                authenticate: false,
                receives: {
                    let wanted = 1 + schedule.any() % 12;
                    bounds.map_or(wanted, |bounds| bounds.capacity(role, wanted) - 1)
                },
                credits_in_one: 1,
                limits: Limits::DEFAULT,
                read_chunks: 4,
                write_chunks: 4,
                max_assembly: MAX_LEN,
            }
        });
        let mut ends = configs.map(|config| End {
            role: config.role,
            connection: Connection::after(
                &config,
                patient::receives(&config, bounds.as_ref()),
                IN_ONE,
                start,
            ),
            wire: VecDeque::new(),
            connected: false,
            in_transit: 0,
            todo: VecDeque::new(),
            rpcs: HashMap::new(),
            // Zero is what messages have that belong to no RPC.
            next_xid: 1,
            assembly: vec![],
            record: Record::after(start),
            patience: Patience::default(),
            host: Host::new(config.role, &Wish::OFF),
            trouble: Trouble::default(),
        });
        if let Some(bounds) = bounds {
            for end in &mut ends {
                end.become_patient(bounds);
            }
        }
        Self {
            ends,
            configs,
            start,
            impatient: false,
            troubled: false,
            seen: Seen::default(),
            mishaps: Mishaps::default(),
        }
    }

    /// Puts a message on its way.
    fn post(&mut self, from: usize, message: Vec<u8>) {
        let credits_in_one = self.configs[1 - from].credits_in_one;
        let (sender, receiver) = self.two(from);
        let dialect = sender.connection.session.dialect();
        let max = match dialect {
            Some(Version::One) => one::INLINE,
            _ => sender.connection.session.terms().send_size as usize,
        };
        assert!(message.len() <= max, "longer than agreed");
        sender
            .record
            .send(&message, sender.role, &sender.connection.session);
        let message = match sender.trouble.strange.take() {
            None => message,
            Some(strange) => {
                sender.trouble.misled = true;
                receiver.trouble.misled = true;
                strange.message(sender.connection.session.windows().1)
            }
        };
        if receiver.trouble.closed {
            return;
        }
        receiver.wire.push_back(message);
        // There is a Receive for each message on its way.
        if [dialect, receiver.connection.session.dialect()].contains(&Some(Version::One)) {
            // What a stranger promises in Version One nobody keeps.
            let posted = 1 + credits_in_one as usize + receiver.unanswered();
            assert!(
                receiver.wire.len() <= posted || receiver.trouble.misled,
                "no Receive is posted"
            );
            return;
        }
        let posted = receiver.connection.session.windows().1.must_be_posted();
        assert!(
            receiver.wire.len() <= posted as usize,
            "no Receive is posted"
        );
        receiver.check_receives();
    }

    /// Returns an end and the one opposite.
    fn two(&mut self, this: usize) -> (&mut End, &mut End) {
        let [client, server] = &mut self.ends;
        match this {
            0 => (client, server),
            _ => (server, client),
        }
    }

    /// Makes a new RPC, if there can be one.
    fn call(&mut self, at: usize, schedule: &mut Schedule<'_>) {
        let len = 12 + (schedule.any() * 9) % (MAX_LEN - 12);
        let reply_len = 12 + (schedule.any() * 9) % (MAX_LEN - 12);
        let level = ReverseLevel::from_code(self.configs[0].own.reverse);
        let end = &self.ends[at];
        if end.role == Role::Server && level == ReverseLevel::None {
            return;
        }
        // A server whose client has not called it yet has nothing to call back for.
        if self.troubled && end.role == Role::Server && !end.connected {
            return;
        }
        if !self.has_slot(at) {
            return;
        }
        let end = &mut self.ends[at];
        let xid = end.next_xid;
        end.next_xid += 1;
        let todo = Todo {
            direction: Direction::Call,
            xid,
            len,
            reply_len,
            chunk: false,
        };
        end.rpcs.insert(xid, (todo, Outcome::Pending));
        end.todo.push_back(todo);
    }

    /// Does what the session of an end says next. Returns whether there was anything.
    fn act(&mut self, at: usize) -> bool {
        if self.ends[at].trouble.is_mute() {
            return false;
        }
        if self.speak(at) {
            return true;
        }
        let end = &mut self.ends[at];
        end.update_offer();
        let action = end.connection.poll();
        match action {
            None => return false,
            Some(Action::Send(control)) => {
                end.connection.session.commit(&control);
                end.in_transit += 1;
                self.seen.grants += u32::from(matches!(control, Control::Grant(_)));
                self.seen.errors += u32::from(matches!(control, Control::Error(_)));
                self.post(at, encoded(|buf| control.encode(buf)));
            }
            Some(Action::Connected(dialect)) => {
                end.connected = true;
                end.trouble.dialect = Some(dialect);
                let _ = end.host.settlement.connected(dialect);
            }
            Some(Action::Agreed(_) | Action::Wake) => {}
            Some(Action::Close(reason)) => self.close(at, reason),
        }
        true
    }

    /// Has the Send of a message of the session complete.
    fn complete(&mut self, at: usize) -> bool {
        let is_taken = !self.ends[1 - at].trouble.is_deaf();
        let end = &mut self.ends[at];
        if end.in_transit == 0 || !is_taken {
            return false;
        }
        end.in_transit -= 1;
        end.connection.session.handle_sent();
        true
    }

    /// Loses the connection, and makes a new one.
    fn reconnect(&mut self) {
        self.seen.lost += u32::from(self.ends.iter().any(|end| end.pending() > 0));
        for (end, config) in self.ends.iter_mut().zip(&self.configs) {
            end.reset(config, self.start);
        }
    }
}

/// Runs two sessions back to back and checks that nothing goes wrong, whatever the schedule.
/// Returns what has happened.
///
/// # Panics
///
/// If something does.
pub fn run(bytes: &[u8]) -> Seen {
    run_with(Schedule { bytes }, None)
}

/// As [`run`], with ends that do what the module does: what has to wait for credits waits for ever.
/// `short` gives the client fewer Receives than the module has.
///
/// # Panics
///
/// If something goes wrong, as it may if they are `short`.
pub fn run_patiently(bytes: &[u8], short: bool) -> Seen {
    let mut schedule = Schedule { bytes };
    let bounds = Bounds::new(&mut schedule, short);
    run_with(schedule, Some(bounds))
}

/// Runs the rest of a schedule.
fn run_with(mut schedule: Schedule<'_>, bounds: Option<Bounds>) -> Seen {
    let mut pair = Pair::new(&mut schedule, bounds);
    while let Some(what) = schedule.next() {
        pair.step(what, &mut schedule);
    }
    pair.settle();
    pair.check_end();
    pair.seen
}

/// As [`run`] or [`run_patiently`], with ends and connections that may have something wrong with
/// them. Returns what that was, too.
///
/// # Panics
///
/// If anything goes wrong that should not.
pub fn run_in_trouble(bytes: &[u8]) -> (Seen, Mishaps) {
    let mut schedule = Schedule { bytes };
    let kind = schedule.any();
    let bounds = (kind & 1 != 0).then(|| Bounds::new(&mut schedule, false));
    let mut pair = Pair::new(&mut schedule, bounds);
    pair.troubled = true;
    pair.begin(&mut schedule);
    while let Some(what) = schedule.next() {
        pair.step(what, &mut schedule);
    }
    if kind & 12 == 0 {
        pair.silence(usize::from(kind & 16 != 0), kind & 32 != 0);
    }
    pair.settle_in_trouble();
    // Whatever it was: on a good connection every RPC comes to its end.
    pair.begin_well(kind & 2 != 0);
    pair.renew();
    pair.settle();
    pair.check_end();
    (pair.seen, pair.mishaps)
}
