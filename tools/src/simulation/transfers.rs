// SPDX-License-Identifier: GPL-2.0

//! Clients whose RDMA Reads and Writes take pages of one memory.

use crate::policy::{
    budget::{
        Pages,
        Quota, //
    },
    stall::{
        Kept,
        StallDetector, //
    }, //
};
use std::{
    cmp::Reverse,
    collections::{
        BinaryHeap,
        VecDeque, //
    }, //
};

/// Pages of a Call.
const CALL: usize = 256;

/// Milliseconds between two checks of a connection.
const CHECK: u64 = 10_000;

/// What a client does.
#[derive(Clone, Copy)]
struct Conduct {
    /// The Calls that it has at the server at a time.
    window: usize,
    /// After how many milliseconds it lets the transfers of a Call end; [`None`]: never.
    latency: Option<u64>,
    /// When it comes.
    comes: u64,
}

/// A client and its connection.
struct Client {
    conduct: Conduct,
    pages: Pages,
    /// Calls that were taken in.
    unanswered: usize,
    /// When each Call came that waits to be taken in.
    parked: VecDeque<u64>,
    /// Calls that were answered.
    served: u64,
    /// Pages that it has let go.
    returned: u32,
    /// The longest that a Call waited to be taken in.
    longest: u64,
    stall: StallDetector,
    /// Set when the connection was ended.
    ended: Option<u64>,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes,
    Answered,
    Check,
}

/// A server and its clients.
struct Server {
    quota: Quota,
    /// The sum of pages, and the most that it was.
    all: u64,
    most: u64,
    now: u64,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<(u64, Event, usize)>>,
}

impl Server {
    /// A server with clients who have come, or will.
    fn new(quota: Quota, clients: impl IntoIterator<Item = Conduct>) -> Self {
        let mut server = Self {
            quota,
            all: 0,
            most: 0,
            now: 0,
            clients: Vec::new(),
            events: BinaryHeap::new(),
        };
        for conduct in clients {
            server.plan(conduct.comes, Event::Comes, server.clients.len());
            server.clients.push(Client {
                conduct,
                pages: Pages::new(),
                unanswered: 0,
                parked: VecDeque::new(),
                served: 0,
                returned: 0,
                longest: 0,
                stall: StallDetector::default(),
                ended: None,
            });
        }
        server
    }

    fn plan(&mut self, at: u64, event: Event, client: usize) {
        self.events.push(Reverse((at, event, client)));
    }

    /// Goes on until a time.
    fn run(&mut self, until: u64) {
        while let Some(Reverse((at, event, index))) = self.events.pop() {
            if at > until {
                self.plan(at, event, index);
                break;
            }
            self.now = at;
            match event {
                Event::Comes => {
                    let window = self.clients[index].conduct.window;
                    self.clients[index].parked.extend((0..window).map(|_| at));
                    self.plan(at + CHECK, Event::Check, index);
                }
                Event::Answered => self.answered(index),
                Event::Check => self.check(index),
            }
            self.take_in(index);
        }
        self.now = until;
    }

    /// A Call is answered, and the client sends another one.
    fn answered(&mut self, index: usize) {
        let client = &mut self.clients[index];
        if client.ended.is_some() {
            return;
        }
        self.all -= client.pages.end(CALL) as u64;
        client.unanswered -= 1;
        client.served += 1;
        client.returned = client.returned.wrapping_add(CALL as u32);
        client.parked.push_back(self.now);
    }

    /// Takes Calls in as long as they may. Nobody else is woken for that, so a connection that
    /// waits must have something itself that will end.
    fn take_in(&mut self, index: usize) {
        let client = &mut self.clients[index];
        while let Some(came) = client.parked.front() {
            let busy = client.unanswered > 0;
            if client.ended.is_some()
                || !client.pages.may_take_in(&self.quota, self.all, busy, true)
            {
                break;
            }
            client.longest = client.longest.max(self.now - came);
            client.parked.pop_front();
            client.unanswered += 1;
            self.all += client.pages.begin(CALL) as u64;
            self.most = self.most.max(self.all);
            if let Some(latency) = client.conduct.latency {
                self.events
                    .push(Reverse((self.now + latency, Event::Answered, index)));
            }
        }
        let waits = !client.parked.is_empty() && client.ended.is_none();
        assert!(!waits || client.unanswered > 0 || client.pages.now() > 0);
    }

    /// Checks a connection, and ends it if it is stalled while pages are short.
    fn check(&mut self, index: usize) {
        let client = &mut self.clients[index];
        self.all -= client.pages.settle() as u64;
        let stalled = client.stall.check(Kept {
            pages: client.pages.now(),
            returned: client.returned,
        });
        if stalled && self.quota.is_short(self.all) {
            client.ended = Some(self.now);
            let pages = client.pages.now();
            self.all -= (client.pages.end(pages) + client.pages.settle()) as u64;
            return;
        }
        self.plan(self.now + CHECK, Event::Check, index);
    }
}

/// A client that does what it should.
const HONEST: Conduct = Conduct {
    window: 16,
    latency: Some(4),
    comes: 0,
};

/// One that keeps all that it gets.
const HOSTAGE: Conduct = Conduct {
    latency: None,
    ..HONEST
};

/// A limit of so many Calls for all, and of 16 MiB for each connection.
fn calls(count: usize) -> Quota {
    Quota {
        own: 4096,
        all: (count * CALL) as u64,
    }
}

/// Whatever the limit, clients that do the same get the same, and the memory has a bound.
#[test]
fn equal_clients_are_served_alike() {
    for limit in [4, 16, 64, 1024] {
        for count in [1, 2, 7, 40] {
            let mut server = Server::new(calls(limit), (0..count).map(|_| HONEST));
            server.run(2000);
            let served = server.clients.iter().map(|client| client.served);
            let (least, most) = (served.clone().min().unwrap(), served.max().unwrap());
            // A Call more or less is half of a small share.
            assert!(
                least >= 2000 / 4 - 1 && 5 * least >= 2 * most,
                "{limit} {count}: {least} {most}"
            );
            assert!(server.most <= ((limit + 2 * count) * CALL) as u64);
        }
    }
}

/// Those that keep pages cost the others some of their pace, never all of it. When pages are short
/// they are ended, and the others have what they had before.
#[test]
fn hostages_are_ended_and_stop_nobody() {
    let clients = (0..20).map(|n| if n % 4 == 0 { HOSTAGE } else { HONEST });
    let mut server = Server::new(calls(32), clients);
    server.run(CHECK - 1);
    for client in &server.clients {
        assert!(client.conduct.latency.is_none() || client.served >= CHECK / 4 - 2);
    }
    server.run(5 * CHECK);
    for client in &server.clients {
        assert_eq!(client.ended.is_some(), client.conduct.latency.is_none());
        assert!(client.ended.is_none_or(|at| at <= 4 * CHECK));
    }
    let before: u64 = server.clients.iter().map(|client| client.served).sum();
    server.run(6 * CHECK);
    let after: u64 = server.clients.iter().map(|client| client.served).sum();
    // Each has one Call at the server in any case; now the limit allows about two.
    assert!(after - before >= 25 * CHECK / 4, "{}", after - before);
}

/// A client that comes when others have taken what they can get has its first Call taken in at
/// once.
#[test]
fn a_newcomer_never_waits_for_others() {
    for others in [HONEST, HOSTAGE] {
        let late = Conduct {
            window: 1,
            comes: 1000,
            ..HONEST
        };
        let clients = (0..30).map(|_| others).chain((0..5).map(|_| late));
        let mut server = Server::new(calls(16), clients);
        server.run(2000);
        for client in &server.clients[30..] {
            assert_eq!((client.longest, client.served), (0, 1000 / 4));
        }
    }
}

/// A slow client is no hostage: it takes ten seconds for a Call, and pages are short all the time.
#[test]
fn a_slow_client_is_not_ended() {
    let slow = Conduct {
        latency: Some(10_000),
        ..HONEST
    };
    let mut server = Server::new(
        calls(16),
        (0..20).map(|n| if n == 0 { slow } else { HONEST }),
    );
    server.run(60 * CHECK);
    assert!(server.clients.iter().all(|client| client.ended.is_none()));
    assert!(server.clients[0].served >= 59);
}
