// SPDX-License-Identifier: GPL-2.0

//! Clients of Version One whose Receives take one memory: what each is granted.

use crate::proto::connection::receives::{
    Receives,
    Withdrawal,
    FIRST_CREDITS, //
};

/// KiB of a Receive.
const SIZE: u64 = 4;

/// The most credits of a client.
const MOST: u32 = 64;

/// A server, and the memory that Receives should take at most.
struct Server {
    clients: Vec<Receives>,
    limit: u64,
}

impl Server {
    /// A server whose limit is that of so many Receives.
    fn new(receives: u64) -> Self {
        Self {
            clients: Vec::new(),
            limit: receives * SIZE,
        }
    }

    /// Clients come. Returns the number of the first.
    fn add(&mut self, count: usize) -> usize {
        let first = self.clients.len();
        for _ in 0..count {
            self.clients.push(Receives::new(FIRST_CREDITS, MOST));
        }
        first
    }

    /// The memory that all Receives take, in KiB.
    fn used(&self) -> u64 {
        self.clients
            .iter()
            .map(|client| u64::from(client.posted()) * SIZE)
            .sum()
    }

    /// A client has all the Calls at the server that it may have, and each gets a Reply. Returns
    /// what the last one grants.
    fn turn(&mut self, index: usize) -> u32 {
        let mut granted = self.clients[index].allowance().granted();
        for unanswered in (1..=granted).rev() {
            let used = self.used();
            let client = &mut self.clients[index];
            client.used(unanswered);
            client.set_memory(used, self.limit);
            let renewal = client.begin_renewal(Withdrawal::ByReply);
            granted = renewal.granted;
            if renewal.wanted > 0 {
                granted = client.end_growth(renewal.wanted, true);
            }
            client.replied();
            client.settle_replied();
        }
        granted
    }

    /// As many turns of each of these clients. Returns the least that one is granted then.
    fn turns(&mut self, clients: std::ops::Range<usize>, count: usize) -> u32 {
        let mut least = MOST;
        for round in 0..count {
            for index in clients.clone() {
                let granted = self.turn(index);
                if round + 1 == count {
                    least = least.min(granted);
                }
            }
        }
        least
    }

    /// A minute is over, in which the other clients were idle.
    fn minute(&mut self) {
        for client in &mut self.clients {
            client.minute_over();
        }
    }
}

/// Twelve busy mounts and four hundred idle ones; more come, one by one. Nobody's grant falls off a
/// cliff for that.
#[test]
fn a_client_more_takes_little_from_the_others() {
    let mut server = Server::new(4096);
    server.add(400);
    let busy = server.add(12);
    let mut before = server.turns(busy..busy + 12, 20);
    assert!(before >= 16, "{before}");
    for _ in 0..20 {
        server.add(1);
        let least = server.turns(busy..busy + 12, 1);
        assert!(2 * least >= before, "{least} of {before}");
        before = before.max(least);
    }
}

/// Half of the clients leave, and as many come: these have what the others had, and nobody who
/// stayed has less.
#[test]
fn those_who_left_keep_nothing() {
    let mut server = Server::new(8192);
    server.add(400);
    let least = server.turns(0..400, 10);
    server.clients.truncate(200);
    let next = server.add(200);
    let most = server.turns(next..next + 200, 10);
    assert!(10 * most >= 9 * least, "{most}, and {least} before");
    assert!(10 * server.turns(0..400, 1) >= 9 * least);
}

/// Two thousand clients that were each busy once, on a machine with 16 GiB: the memory has a bound,
/// and the last one has a share that is worth something.
#[test]
fn each_busy_once() {
    // A 16th of the memory.
    let mut server = Server::new(262_144);
    let first = server.add(2000);
    let mut last = 0;
    for index in first..first + 2000 {
        last = server.turns(index..index + 1, 6);
    }
    assert!((32..MOST).contains(&last), "{last}");
    // With all credits for each it would be a fifth more.
    assert!(server.used() <= 430_000, "{} KiB", server.used());
    // Those that were idle for a minute have the least when they send something.
    server.minute();
    server.minute();
    let before = server.used();
    for index in first..first + 1999 {
        let client = &mut server.clients[index];
        client.used(1);
        let renewal = client.begin_renewal(Withdrawal::ByReply);
        assert_eq!(renewal.granted, FIRST_CREDITS);
        client.replied();
        client.settle_replied();
    }
    assert!(server.used() < before);
}

/// When memory is short all have nearly the same, in whatever order they came, and nobody less than
/// the first credits.
#[test]
fn all_have_the_same() {
    for receives in [512, 1024, 4096] {
        let mut server = Server::new(receives);
        let early = server.add(20);
        server.turns(early..early + 20, 20);
        let late = server.add(20);
        server.turns(early..late + 20, 20);
        let granted = server
            .clients
            .iter()
            .map(|client| client.allowance().granted());
        let (least, most) = (granted.clone().min().unwrap(), granted.max().unwrap());
        assert!(
            least >= FIRST_CREDITS && 2 * least >= most,
            "{receives}: {least} to {most}"
        );
    }
}
