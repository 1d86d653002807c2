// SPDX-License-Identifier: GPL-2.0

//! Two peers, and everything that can happen between them.

use std::{
    collections::VecDeque,
    fmt::{
        self,
        Display,
        Formatter, //
    }, //
};

use super::peer::{
    Message,
    Peer,
    Rule,
    Rules, //
};
use crate::proto::window;

/// How many threads a server has.
const THREADS: u32 = 2;

/// So many GRANTs without another message in between are without need.
const TOO_MANY: u32 = 24;

/// A message of a plan that its receiver discards, instead of a number of parts.
pub(super) const BAD: u32 = 0;

/// What an end has, and has to do.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// How many Receives it has, one after the other.
    pub(super) receives: Vec<u32>,
    /// What it sends that nobody answers: messages of so many parts, or [`BAD`] ones.
    pub(super) messages: Vec<u32>,
    /// How many Calls it makes.
    pub(super) calls: u32,
    /// How many of them may be unanswered at a time.
    pub(super) slots: u32,
    /// Whether the connection begins when both ends have told their credits.
    pub(super) is_told: bool,
}

impl Plan {
    /// Describes the plan of an end with such rules. It has all its Receives posted.
    pub(super) fn shown(&self, rules: Rules) -> String {
        let list = |of: &[u32], between: &str| {
            let words: Vec<_> = of.iter().map(u32::to_string).collect();
            words.join(between)
        };
        let posted: Vec<_> = self
            .receives
            .iter()
            .map(|all| posted(*all, rules).max(1))
            .collect();
        let plural = if posted == [1] { "" } else { "s" };
        let receives = format!("{} Receive{plural}", list(&posted, ", then "));
        let todo = if self.calls > 0 {
            let plural = if self.calls == 1 { "" } else { "s" };
            let (calls, slots) = (self.calls, self.slots);
            format!("{calls} Call{plural} to make, {slots} at a time")
        } else if self.messages.is_empty() {
            "nothing to send".to_string()
        } else if self.messages.contains(&BAD) {
            "a message with an error to send".to_string()
        } else if self.messages.iter().all(|parts| *parts == 1) {
            format!("{} to send", self.messages.len())
        } else {
            let parts = list(&self.messages, ", ");
            format!("messages in {parts} parts to send")
        };
        format!("{receives}, {todo}")
    }
}

/// Returns how many Receives are posted if all but one are advertised with all rules: without the
/// rule about it, the one that is not advertised is missing. There is always one in the beginning.
fn posted(receives: u32, rules: Rules) -> u32 {
    receives - u32::from(!rules.has(Rule::OneMore))
}

/// One end.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct End {
    /// Its flow control.
    pub(super) peer: Peer,
    /// How many Receives it has.
    receives: u32,
    /// Up to which message there is a Receive whatever their number.
    kept: u32,
    /// How many it will have, one after the other.
    changes: VecDeque<u32>,
    /// The messages that it still has to send.
    messages: VecDeque<u32>,
    /// How many parts of a message have not been sent of which others have.
    parts_left: u32,
    /// How many Calls it still has to make.
    calls: u32,
    /// How many Calls may be unanswered at a time.
    slots: u32,
    /// How many are.
    unanswered: u32,
    /// How many Calls have arrived that nobody has taken in.
    arrived: u32,
    /// How many threads have one.
    taken: u32,
    /// How many Replies wait for a credit.
    ready: u32,
}

/// What can go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// An end has sent a message for which there is no Receive.
    NoReceive,
    /// Nothing can happen, and an end has something to send.
    StandsStill(String),
    /// Nothing is left to be done, but an end could not send another message, for ever.
    NoMore(&'static str),
    /// GRANTs are sent without end.
    Endless,
}

impl Failure {
    /// Returns true.
    pub(super) fn is_any(&self) -> bool {
        true
    }

    /// Returns whether an end waits for ever.
    pub(super) fn is_wait(&self) -> bool {
        matches!(self, Self::StandsStill(_) | Self::NoMore(_))
    }

    /// Returns whether there was no Receive.
    pub(super) fn is_overrun(&self) -> bool {
        *self == Self::NoReceive
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReceive => write!(f, "There is no Receive for that message."),
            Self::StandsStill(what) => write!(f, "Stands still: {what}."),
            Self::NoMore(who) => write!(f, "Stands still: the {who} may send nothing more."),
            Self::Endless => write!(f, "... and so on, for ever."),
        }
    }
}

/// Two ends and what is on its way from each of them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Pair {
    /// The client and the server.
    pub(super) ends: [End; 2],
    /// What was sent by each of them and has not been received, with credit values.
    wires: [VecDeque<(Message, u32)>; 2],
    /// How many GRANTs were sent since anything else happened.
    quiet: u32,
}

/// What has happened, and what is then.
pub(super) type Step = (String, Pair);

/// The names of the ends.
const NAMES: [&str; 2] = ["client", "server"];

impl End {
    /// Returns an end on a new connection.
    fn new(rules: Rules, is_client: bool, plan: &Plan) -> Self {
        Self {
            peer: Peer::new(rules, is_client, plan.receives[0]),
            receives: plan.receives[0],
            // At the start one message is allowed, whatever is advertised.
            kept: 1 + u32::from(rules.has(Rule::OneMore)),
            changes: plan.receives[1..].iter().copied().collect(),
            messages: plan.messages.iter().copied().collect(),
            parts_left: 0,
            calls: plan.calls,
            slots: plan.slots,
            unanswered: 0,
            arrived: 0,
            taken: 0,
            ready: 0,
        }
    }

    /// Returns how many Receives hold a Call.
    fn held(&self) -> u32 {
        self.arrived + self.taken
    }

    /// Returns how many Receives are posted.
    fn free(&self, rules: Rules) -> u32 {
        let all = posted(self.receives, rules);
        let kept = self.kept.saturating_sub(self.peer.received);
        all.saturating_sub(self.held()).max(kept)
    }

    /// Changes the number of its Receives. What was promised is kept, if promises are.
    fn change(&mut self, rules: Rules, receives: u32) {
        if receives < self.receives && rules.has(Rule::NeverLess) {
            self.kept = self.peer.promised + 1;
        }
        self.receives = receives;
        self.update(rules);
    }

    /// Takes note that a Receive is held, or is back.
    fn update(&mut self, rules: Rules) {
        self.peer.set_receives(rules, self.receives, self.held());
    }

    /// Returns what it waits for, or [`None`] if there is nothing left to be done.
    fn waits(&self) -> Option<&'static str> {
        if self.parts_left > 0 {
            Some("may not send its next part")
        } else if !self.messages.is_empty() {
            Some("may not send its message")
        } else if self.ready + self.taken > 0 {
            Some("may not send its Reply")
        } else if self.calls > 0 && self.unanswered < self.slots {
            Some("may not send its Call")
        } else if self.arrived > 0 {
            Some("may not send its Reply")
        } else {
            None
        }
    }
}

impl Pair {
    /// Returns two ends on a new connection.
    pub(super) fn new(rules: Rules, client: &Plan, server: &Plan) -> Self {
        let mut new = Self {
            ends: [
                End::new(rules, true, client),
                End::new(rules, false, server),
            ],
            wires: Default::default(),
            quiet: 0,
        };
        if client.is_told {
            for at in 0..2 {
                let value = new.ends[at].peer.tell(rules);
                new.ends[1 - at].peer.update(value);
            }
        }
        new
    }

    /// Has an end send `count` messages of a kind, if it may.
    fn send(&self, rules: Rules, from: usize, message: Message, count: u32) -> Option<Self> {
        let mut next = self.clone();
        let value = next.ends[from].peer.send(rules, message, count)?;
        next.wires[from].extend((0..count).map(|_| (message, value)));
        next.quiet = if message == Message::Grant {
            self.quiet + 1
        } else {
            0
        };
        Some(next)
    }

    /// Returns what is wrong, if anything is. Perhaps nothing more can happen.
    pub(super) fn failure(&self, rules: Rules, is_end: bool) -> Option<Failure> {
        let is_short = |to: usize| self.wires[1 - to].len() as u32 > self.ends[to].free(rules);
        if (0..2).any(is_short) {
            Some(Failure::NoReceive)
        } else if self.quiet > TOO_MANY {
            Some(Failure::Endless)
        } else if is_end {
            self.end(rules)
        } else {
            None
        }
    }

    /// Returns what is wrong if nothing more can happen.
    fn end(&self, rules: Rules) -> Option<Failure> {
        let waiting: Vec<String> = (0..2)
            .filter_map(|at| Some(format!("the {} {}", NAMES[at], self.ends[at].waits()?)))
            .collect();
        if !waiting.is_empty() {
            return Some(Failure::StandsStill(waiting.join(", ")));
        }
        let stuck = (0..2).find(|at| self.ends[*at].peer.available(rules) == 0)?;
        Some(Failure::NoMore(NAMES[stuck]))
    }

    /// Returns everything that can happen next.
    pub(super) fn next(&self, rules: Rules) -> Vec<Step> {
        let mut all = vec![];
        for at in 0..2 {
            all.extend(self.arrives(rules, at));
            all.extend(self.plain(rules, at));
            all.extend(self.calls(rules, at));
            if self.ends[at].parts_left == 0 && self.ends[at].peer.owes(rules) {
                let sent = self.send(rules, at, Message::Grant, 1);
                all.extend(sent.map(|next| self.step(at, "sends a GRANT", next)));
            }
            let mut next = self.clone();
            if let Some(receives) = next.ends[at].changes.pop_front() {
                next.ends[at].change(rules, receives);
                let shown = posted(receives, rules).max(1);
                let plural = if shown == 1 { "" } else { "s" };
                all.push(self.step(at, &format!("has {shown} Receive{plural}"), next));
            }
        }
        all
    }

    /// Describes a step of an end, with the credit value if it has sent something.
    fn step(&self, at: usize, what: &str, next: Self) -> Step {
        let new = next.wires[at].len() > self.wires[at].len();
        let value = next.wires[at].back().filter(|_| new);
        let value = value.map_or(String::new(), |(_, value)| format!(", value {value}"));
        (format!("{}  {what}{value}", NAMES[at]), next)
    }

    /// Has the first message on its way to an end arrive there.
    fn arrives(&self, rules: Rules, to: usize) -> Option<Step> {
        let mut next = self.clone();
        let (message, value) = next.wires[1 - to].pop_front()?;
        let end = &mut next.ends[to];
        end.peer.receive(rules, message, value);
        let what = match message {
            Message::Grant => "receives the GRANT",
            Message::Plain => "receives the message",
            Message::Bad => "receives and discards the message",
            Message::Call => {
                end.arrived += 1;
                "receives the Call"
            }
            Message::Reply => {
                end.unanswered -= 1;
                "receives the Reply"
            }
        };
        end.update(rules);
        Some(self.step(to, what, next))
    }

    /// Has an end send what nobody answers.
    fn plain(&self, rules: Rules, at: usize) -> Option<Step> {
        let end = &self.ends[at];
        if end.parts_left > 0 {
            let mut next = self.send(rules, at, Message::Plain, 1)?;
            next.ends[at].parts_left -= 1;
            return Some(self.step(at, "sends the next part", next));
        }
        let parts = *end.messages.front()?;
        let (message, what) = match parts {
            BAD => (Message::Bad, "sends a message with an error".to_string()),
            1 => (Message::Plain, "sends a message".to_string()),
            _ => (Message::Plain, format!("sends a message in {parts} parts")),
        };
        let most = window::most_parts(self.ends[1 - at].receives - 1);
        let is_long = parts > most && rules.has(Rule::HalfInParts);
        let (count, left) = if rules.has(Rule::AllParts) {
            (parts.max(1), 0)
        } else {
            (1, parts.saturating_sub(1))
        };
        let sent = self.send(rules, at, message, count);
        let (sent, what) = match sent {
            // Too long to be waited for: it has chunks instead.
            None if is_long => (
                self.send(rules, at, message, 1),
                "sends it with chunks".into(),
            ),
            None => return None,
            Some(next) if left > 0 => (Some(next), "sends the first part".into()),
            sent => (sent, what),
        };
        let mut next = sent?;
        next.ends[at].messages.pop_front();
        next.ends[at].parts_left = left;
        Some(self.step(at, &what, next))
    }

    /// Has an end go on with its Calls and with those of the other end.
    fn calls(&self, rules: Rules, at: usize) -> Vec<Step> {
        let end = &self.ends[at];
        let mut all = vec![];
        let mut add = |next: Option<Self>, what: &str, change: fn(&mut End)| {
            all.extend(next.map(|mut next| {
                change(&mut next.ends[at]);
                next.ends[at].update(rules);
                self.step(at, what, next)
            }));
        };
        if end.calls > 0 && end.unanswered < end.slots {
            let sent = self.send(rules, at, Message::Call, 1);
            add(sent, "sends a Call", |end| {
                end.calls -= 1;
                end.unanswered += 1;
            });
        }
        if end.peer.is_client && end.arrived > 0 {
            let sent = self.send(rules, at, Message::Reply, 1);
            add(sent, "sends the Reply", |end| end.arrived -= 1);
        }
        if !end.peer.is_client && end.arrived > 0 && end.taken < THREADS && end.ready == 0 {
            add(Some(self.clone()), "begins with the Call", |end| {
                end.arrived -= 1;
                end.taken += 1;
            });
        }
        if end.taken > 0 {
            add(Some(self.clone()), "has the Reply ready", |end| {
                end.taken -= 1;
                end.ready += 1;
            });
        }
        if end.ready > 0 {
            let sent = self.send(rules, at, Message::Reply, 1);
            add(sent, "sends the Reply", |end| end.ready -= 1);
        }
        all
    }
}
