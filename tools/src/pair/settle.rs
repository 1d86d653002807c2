// SPDX-License-Identifier: GPL-2.0

//! How a run comes to its end, and what must be true then.

use super::*;

impl Pair {
    /// Gives both ends what they need, and has everything come to its end.
    pub(super) fn settle(&mut self) {
        for end in &mut self.ends {
            let offer = end.connection.session.windows().1.offer();
            end.connection.session.set_receives(Some(offer.max(1)));
            end.end_shortage();
            end.update_offer();
        }
        for round in 0.. {
            if round == 2000 && self.is_misled() {
                // They may have found each other in the wrong for so long, until somebody looks.
                return;
            }
            assert!(round < 100_000, "two ends talk for ever");
            let mut progress = false;
            for at in 0..2 {
                while self.act(at) {
                    progress = true;
                }
                progress |= self.deliver(at);
                progress |= self.complete(at);
                progress |= self.prepare(at, false);
                let end = &self.ends[at];
                progress |= (end.wire.is_empty() || end.trouble.deaf) && self.notice(at);
                for index in 0..self.ends[at].todo.len().max(1) {
                    progress |= self.send(at, index);
                }
            }
            if !progress {
                // Whoever has nothing on its way does not wait for many credits at once.
                if std::mem::replace(&mut self.impatient, true) {
                    return;
                }
            }
        }
    }
    /// Has a client call that has nothing else to do, as it renews its lease: a server waits for
    /// that.
    pub(super) fn renew(&mut self) {
        if self.ends[0].pending() == 0 {
            self.call(0, &mut Schedule { bytes: &[] });
        }
    }

    /// Has everything come to its end: by itself, or since somebody has waited long enough.
    pub(super) fn settle_in_trouble(&mut self) {
        self.renew();
        self.settle();
        self.check_agreement();
        for round in 0.. {
            assert!(round < 10, "it does not help to wait");
            let mut changed = false;
            for at in 0..2 {
                changed |= self.wait_in_vain(at);
            }
            if !changed {
                break;
            }
            self.settle();
        }
        let [client, server] = &self.ends;
        assert_eq!(
            client.trouble.closed, server.trouble.closed,
            "only one end knows that it is over"
        );
        let pending = client.pending() + server.pending();
        assert!(self.is_closed() || pending == 0, "an RPC does not end");
    }

    /// Checks that the ends do not believe that they speak different protocols.
    pub(super) fn check_dialects(&self) {
        let [client, server] = &self.ends;
        if let (Some(client), Some(server)) = (
            client.connection.session.dialect(),
            server.connection.session.dialect(),
        ) {
            assert!(client == server || self.is_misled(), "no agreement");
        }
    }

    /// Checks that two ends with which nothing is wrong have come to speak what they should, and
    /// all RPCs to their end, without anybody having waited in vain.
    fn check_agreement(&self) {
        if self.is_closed() && self.common().is_some() || !self.is_clean() {
            return;
        }
        let dialects = self
            .ends
            .each_ref()
            .map(|end| end.connection.session.dialect());
        match self.common() {
            Some(common) => {
                assert_eq!(dialects, [Some(common); 2]);
                assert!(self.ends.iter().all(|end| end.pending() == 0));
            }
            // A client that knows of nothing else goes on to try.
            None if self.configs[0].high == 1 => assert_eq!(dialects[1], None),
            None => assert!(self.is_closed(), "no version in common"),
        }
    }

    /// Checks that everything has come to its end on a connection with which nothing was wrong.
    pub(super) fn check_end(&mut self) {
        for end in &self.ends {
            assert!(end.wire.is_empty() && end.assembly.is_empty());
            assert!(
                end.todo.is_empty() && end.is_idle(),
                "a message waits for ever: {:?}, {:?}, {:?}",
                end.role,
                end.connection.session.windows(),
                end.patience
            );
            assert!(!end.connection.session.is_peer_in_sequence());
            for (xid, (_, outcome)) in &end.rpcs {
                match outcome {
                    Outcome::Pending => panic!("RPC {xid} does not end"),
                    Outcome::Replied => self.seen.replied += 1,
                    Outcome::Failed => self.seen.failed += 1,
                }
            }
        }
        let [client, server] = &self.ends;
        if client.connection.session.dialect() == Some(Version::One) {
            return;
        }
        for (from, to) in [(client, server), (server, client)] {
            let (outgoing, incoming) = (
                from.connection.session.windows().0,
                to.connection.session.windows().1,
            );
            assert!(outgoing.available() > 0, "an end could not go on");
            assert_eq!(incoming.remaining().min(0), 0);
            assert_eq!(outgoing.sent(), incoming.received());
        }
    }
}
