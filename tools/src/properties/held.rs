// SPDX-License-Identifier: GPL-2.0

//! Every order in which two ends can call each other and answer, where a Call holds its Receive,
//! tried out: there is a Receive for each message, and nobody waits for ever.
//!
//! The ends do what the module does. A Call keeps its Receive until its Reply is ready on a server,
//! and until it is posted on a client. A thread of a server takes no further Call in while a Reply
//! waits for a credit.

use std::collections::{
    HashSet,
    VecDeque, //
};

use crate::proto::{
    session::Role,
    window::{
        offer,
        Admission,
        Kind,
        ReceiveWindow,
        SendWindow, //
    }, //
};

/// How many threads a server has.
const THREADS: u32 = 2;

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Message {
    /// Credits.
    Grant,
    /// A Call.
    Call,
    /// A Reply.
    Reply,
}

/// What an end has, and has to do.
#[derive(Clone, Copy)]
struct Plan {
    /// How many Receives it has.
    receives: u32,
    /// How many Calls it makes.
    calls: u32,
    /// How many of them may be unanswered at a time.
    slots: u32,
    /// Of a client, whether it is one of ours, which never sends a Call in the place of a GRANT
    /// that was beyond the limit.
    cautious: bool,
}

/// One end.
#[derive(Clone, PartialEq, Eq, Hash)]
struct End {
    /// Which one it is.
    is_client: bool,
    /// What it may send.
    outgoing: SendWindow,
    /// What it may receive.
    incoming: ReceiveWindow,
    /// How many Receives it has.
    receives: u32,
    /// How many Calls it still has to make.
    calls: u32,
    /// How many Calls may be unanswered at a time.
    slots: u32,
    /// How many are.
    unanswered: u32,
    /// How many Calls have arrived that nobody has taken in.
    arrived: u32,
    /// How many threads have one. On a client the Reply to it waits for a credit.
    taken: u32,
    /// How many Replies of a server wait for a credit.
    ready: u32,
    /// How many GRANTs it has sent.
    grants: u32,
    /// How many other messages it has sent.
    others: u32,
}

/// Two ends and what is on its way from each of them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Pair {
    /// The client and the server.
    ends: [End; 2],
    /// What was sent by each of them and has not been received, with credit values.
    wires: [VecDeque<(Message, u32)>; 2],
}

impl End {
    /// An end on a connection on which nothing was sent.
    fn new(role: Role, start: u32, peer_start: u32, plan: Plan) -> Self {
        let is_client = role == Role::Client;
        let outgoing = SendWindow::after(start);
        let incoming = ReceiveWindow::after(peer_start, plan.receives - 1);
        Self {
            is_client,
            outgoing: if plan.cautious {
                outgoing.cautious()
            } else {
                outgoing
            },
            incoming: if is_client {
                incoming
            } else {
                incoming.answering()
            },
            receives: plan.receives,
            calls: plan.calls,
            slots: plan.slots,
            unanswered: 0,
            arrived: 0,
            taken: 0,
            ready: 0,
            grants: 0,
            others: 0,
        }
    }

    /// How many Receives hold a Call.
    fn held(&self) -> u32 {
        self.arrived + self.taken
    }

    /// Takes note that a Receive is held, or is back.
    fn update_offer(&mut self) {
        self.incoming.set_offer(offer(self.receives, self.held()));
    }

    /// Whether a GRANT is to be sent.
    fn owes(&self) -> bool {
        self.incoming.owes_grant() || !self.is_client && self.incoming.owes_acknowledgement()
    }
}

impl Pair {
    /// Has an end send a message, if it may.
    fn send(&self, from: usize, message: Message) -> Option<Self> {
        let mut next = self.clone();
        let end = &mut next.ends[from];
        let (kind, count) = match message {
            Message::Grant => (Kind::Grant, &mut end.grants),
            Message::Call | Message::Reply => (Kind::Other, &mut end.others),
        };
        if end.outgoing.consume(1, kind) != Admission::Granted {
            return None;
        }
        *count += 1;
        let credits = end.incoming.tell();
        next.wires[from].push_back((message, credits));
        let peer = &next.ends[1 - from];
        assert!(
            next.wires[from].len() as u32 + peer.held() <= peer.receives,
            "no Receive for a message of the {}",
            ["client", "server"][from]
        );
        Some(next)
    }

    /// Has the first message on its way to an end arrive there.
    fn deliver(&self, to: usize) -> Option<Self> {
        let mut next = self.clone();
        let (message, credits) = next.wires[1 - to].pop_front()?;
        let end = &mut next.ends[to];
        let kind = match message {
            Message::Grant => Kind::Grant,
            Message::Call | Message::Reply => Kind::Other,
        };
        assert!(end.incoming.receive(kind).is_ok(), "an overrun");
        end.outgoing.update(credits);
        match message {
            Message::Grant => {}
            Message::Call => end.arrived += 1,
            Message::Reply => end.unanswered -= 1,
        }
        end.update_offer();
        Some(next)
    }

    /// Has an end do what `what` does to it.
    fn with(&self, at: usize, what: impl FnOnce(&mut End)) -> Self {
        let mut next = self.clone();
        what(&mut next.ends[at]);
        next.ends[at].update_offer();
        next
    }

    /// Returns everything that can happen next.
    fn next(&self) -> Vec<Self> {
        let mut all = vec![];
        for (at, end) in self.ends.iter().enumerate() {
            all.extend(self.deliver(at));
            if end.owes() {
                all.extend(self.send(at, Message::Grant));
            }
            if end.calls > 0 && end.unanswered < end.slots {
                all.extend(self.send(at, Message::Call).map(|next| {
                    next.with(at, |end| {
                        end.calls -= 1;
                        end.unanswered += 1;
                    })
                }));
            }
            if end.is_client {
                if end.arrived > 0 {
                    let sent = self.send(at, Message::Reply);
                    all.extend(sent.map(|next| next.with(at, |end| end.arrived -= 1)));
                }
                continue;
            }
            if end.arrived > 0 && end.taken < THREADS && end.ready == 0 {
                all.push(self.with(at, |end| {
                    end.arrived -= 1;
                    end.taken += 1;
                }));
            }
            if end.taken > 0 {
                all.push(self.with(at, |end| {
                    end.taken -= 1;
                    end.ready += 1;
                }));
            }
            if end.ready > 0 {
                let sent = self.send(at, Message::Reply);
                all.extend(sent.map(|next| next.with(at, |end| end.ready -= 1)));
            }
        }
        all
    }

    /// Checks that there is nothing left to be done if nothing can happen.
    fn check_end(&self) {
        for end in &self.ends {
            let todo = end.calls + end.unanswered + end.held() + end.ready;
            assert_eq!(todo, 0, "the ends wait for ever");
            assert!(end.outgoing.available() > 0, "an end could not go on");
        }
    }

    /// Tries out everything, and returns in how many states all Receives of the server were held.
    fn explore(self) -> usize {
        let mut seen = HashSet::new();
        let mut full = 0;
        let mut todo = vec![self];
        while let Some(pair) = todo.pop() {
            if seen.contains(&pair) {
                continue;
            }
            let others: u32 = pair.ends.iter().map(|end| end.others).sum();
            for end in &pair.ends {
                assert!(end.grants <= 2 * (others + 2), "too many GRANTs");
            }
            full += usize::from(pair.ends[1].held() == pair.ends[1].receives);
            let next = pair.next();
            if next.is_empty() {
                pair.check_end();
            }
            seen.insert(pair);
            todo.extend(next);
        }
        full
    }
}

/// Explores a client and a server that were told what they may send, where 2^31 and 2^32 are
/// passed.
fn explore(client: Plan, server: Plan) -> usize {
    let starts = (0x7fff_fffe, 0xffff_fffd);
    let mut ends = [
        End::new(Role::Client, starts.0, starts.1, client),
        End::new(Role::Server, starts.1, starts.0, server),
    ];
    for (from, to) in [(0, 1), (1, 0)] {
        let credits = ends[from].incoming.tell();
        ends[to].outgoing.update(credits);
    }
    let pair = Pair {
        ends,
        wires: Default::default(),
    };
    pair.explore()
}

/// A client has Receives for the Calls of the server, and a window beside (`link/sizing.rs`). The
/// server may have few. Returns in how many states all of these were held.
fn explore_small(cautious: bool) -> Vec<usize> {
    let plans = [(2, 3, 3), (2, 4, 2), (3, 4, 2)];
    let explore = |(receives, calls, back)| {
        let client = Plan {
            receives: 5,
            calls,
            slots: calls,
            cautious,
        };
        let server = Plan {
            receives,
            calls: back,
            slots: 1,
            cautious: false,
        };
        explore(client, server)
    };
    plans.into_iter().map(explore).collect()
}

/// Of a server's Receives one is always left for a GRANT, so that its client can renew the credits
/// that it needs.
#[test]
fn there_is_a_receive_for_each_message() {
    assert_eq!(explore_small(true), [0; 3], "all Receives were held");
}

/// Also if the client is another one, which may send a Call with the last of them.
#[test]
fn there_is_a_receive_for_each_message_of_others() {
    let full = explore_small(false);
    assert!(
        full.iter().all(|full| *full > 0),
        "never were all Receives held"
    );
}
