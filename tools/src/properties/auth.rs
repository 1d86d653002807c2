// SPDX-License-Identifier: GPL-2.0

//! Host authentication of two sessions back to back: whatever both want, however long the material
//! and however small the windows, it comes to an end, and to the right one.

use std::collections::VecDeque;

use proptest::{
    collection::vec,
    prelude::*, //
};

use crate::{
    host::{
        self,
        Host, //
    },
    oracle,
    pair::IN_ONE,
    proto::{
        auth::{
            AuthFailure,
            AuthVerdict,
            Mode, //
        },
        chunk::Limits,
        connection::{
            incoming::Incoming,
            receives::Receives,
            Connection,
            Reception, //
        },
        props::Properties,
        session::{
            Action,
            Config,
            Role, //
        }, //
    }, //
};

/// The largest message that either end sends before it knows more.
const INLINE: usize = 4096;

/// What one end wants, and how many Receives it has.
#[derive(Clone, Copy, Debug)]
struct Wish {
    host: host::Wish,
    receives: u32,
}

/// One end of a connection.
struct End {
    connection: Connection,
    host: Host,
    /// Messages on their way to this end.
    wire: VecDeque<Vec<u8>>,
    /// Whether the first message was one of properties.
    first: Option<bool>,
    /// The connection is over.
    closed: bool,
}

impl End {
    fn new(role: Role, wish: &Wish) -> Self {
        let mode = wish.host.mode;
        let config = Config {
            role,
            low: if mode == Mode::Require { 2 } else { 1 },
            high: 2,
            earlier: None,
            own: Properties::DEFAULT,
            authenticate: mode != Mode::Off,
            receives: 0,
            credits_in_one: 1,
            limits: Limits::DEFAULT,
            read_chunks: 2,
            write_chunks: 2,
            max_assembly: 4096,
        };
        Self {
            connection: Connection::new(&config, Receives::fixed(wish.receives + 1), IN_ONE),
            host: Host::new(role, &wish.host),
            wire: VecDeque::new(),
            first: None,
            closed: false,
        }
    }

    fn verdict(&self) -> Option<AuthVerdict> {
        self.host.settlement.verdict()
    }

    /// May send and be sent RPC messages.
    fn is_settled(&self) -> bool {
        self.host.settlement.is_settled() && self.connection.version().is_some()
    }

    fn receive(&mut self) -> bool {
        let Some(message) = self.wire.pop_front() else {
            return false;
        };
        if self.closed {
            return true;
        }
        let incoming = self.connection.received(&message, &Reception::default());
        let is_properties = matches!(incoming, Incoming::Properties { .. });
        self.first = self.first.or(Some(is_properties));
        self.host.receive(&incoming);
        true
    }

    /// Does what there is to do; returns what is posted.
    fn act(&mut self) -> Vec<Vec<u8>> {
        let mut posted = vec![];
        loop {
            let (changed, message) = self.host.speak(&mut self.connection.session, INLINE);
            if message.is_some() {
                self.connection.session.handle_sent();
            }
            posted.extend(message);
            while let Some(action) = self.connection.poll() {
                match action {
                    Action::Send(control) => {
                        let mut buf = [0; 128];
                        let len = control.encode(&mut buf).expect("it fits");
                        posted.push(buf[..len].to_vec());
                        self.connection.session.commit(&control);
                        self.connection.session.handle_sent();
                    }
                    Action::Connected(dialect) => drop(self.host.settlement.connected(dialect)),
                    Action::Close(reason) => {
                        let _ = self.host.settlement.closing(reason);
                        self.closed = true;
                    }
                    Action::Agreed(_) | Action::Wake => {}
                }
            }
            if !changed {
                return posted;
            }
        }
    }
}

/// Runs two ends until nothing happens any more. `order` says who is next, `damage` which octet of
/// which message of whom is changed.
fn run(wishes: [Wish; 2], order: &[bool], damage: Option<(bool, usize, usize)>) -> [End; 2] {
    let mut ends = [
        End::new(Role::Client, &wishes[0]),
        End::new(Role::Server, &wishes[1]),
    ];
    let mut turns = order.iter().copied().cycle();
    let mut count = [0; 2];
    let mut idle = 0;
    for _ in 0..20_000 {
        let this = usize::from(turns.next().unwrap_or(false));
        let mut busy = ends[this].receive();
        for mut message in ends[this].act() {
            busy = true;
            assert!(message.len() <= INLINE);
            if let Some((whose, which, at)) = damage {
                if usize::from(whose) == this && which == count[this] && at < message.len() {
                    message[at] ^= 0x10;
                }
            }
            count[this] += 1;
            let receives = ends[1 - this]
                .connection
                .session
                .windows()
                .1
                .must_be_posted();
            ends[1 - this].wire.push_back(message);
            assert!(
                ends[1 - this].wire.len() <= receives as usize,
                "no Receive is posted"
            );
        }
        idle = if busy { 0 } else { idle + 1 };
        if idle > 2 * order.len() + 4 {
            return ends;
        }
    }
    panic!("it does not come to an end");
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Off), Just(Mode::Offer), Just(Mode::Require)]
}

fn wish() -> impl Strategy<Value = Wish> {
    let fill = prop_oneof![Just(0), 0_u32..200, 0_u32..20_000];
    (mode(), 0_u64..2, fill, 3_u32..12).prop_map(|(mode, key, fill, receives)| Wish {
        host: host::Wish { mode, key, fill },
        receives,
    })
}

proptest! {
    /// What comes of it depends on what both want, and on nothing else.
    #[test]
    fn hosts_authenticate_each_other(
        wishes in prop::array::uniform2(wish()),
        order in vec(any::<bool>(), 1..40),
    ) {
        let order = [&order[..], &[false, true]].concat();
        let [client, server] = run(wishes, &order, None);
        let [c, s] = wishes.map(|wish| wish.host);
        let settled = (client.is_settled(), server.is_settled());
        // Else a client that asks for nothing would go on before it knows.
        prop_assert_eq!(client.first, Some(true));
        let expected = match (c.mode, s.mode) {
            (Mode::Off, Mode::Require) | (Mode::Require, Mode::Off) => false,
            (Mode::Off, _) | (_, Mode::Off) => true,
            _ => c.key == s.key,
        };
        if expected {
            prop_assert_eq!(settled, (true, true));
            prop_assert!(!client.closed && !server.closed);
            prop_assert_eq!(client.connection.session.terms().send_size, 4096);
            if c.mode != Mode::Off && s.mode != Mode::Off {
                prop_assert_eq!(client.verdict(), Some(AuthVerdict::Accept));
                prop_assert_eq!(server.verdict(), Some(AuthVerdict::Accept));
            }
        } else {
            // Whoever does not refuse the other one is told, or loses the connection.
            prop_assert!(!settled.0 || !settled.1);
            prop_assert!(client.closed || server.closed);
            prop_assert!(!client.is_settled() || s.mode != Mode::Require);
            if s.mode == Mode::Require && c.mode == Mode::Off {
                prop_assert_eq!(client.verdict(), Some(AuthVerdict::Refuse(AuthFailure::ByPeer)));
            }
        }
    }

    /// Whatever a peer says.
    #[test]
    fn anything_may_be_said(bytes in vec(any::<u8>(), 0..300)) {
        oracle::auth(&bytes);
    }

    /// What looks like a token, in pieces.
    #[test]
    fn anything_like_a_token_may_be_said(
        kind in 0_u8..5,
        len in 0_u8..100,
        body in vec(any::<u8>(), 0..100),
        size in 1_usize..60,
        flags in vec(0_u8..4, 1..20),
    ) {
        let mut token = b"RPRX\0\0\0".to_vec();
        token.push(len);
        token.extend([0, 0, 0, kind]);
        token.extend(body);
        let mut bytes = vec![];
        for (piece, flags) in token.chunks(size + 8).zip(flags.iter().cycle()) {
            bytes.extend([piece.len() as u8, *flags]);
            bytes.extend(piece);
        }
        oracle::auth(&bytes);
    }

    /// Whatever octet of whatever message is damaged, it comes to an end, and nobody who has to
    /// prove himself goes without.
    #[test]
    fn damage_does_not_help(
        which in any::<bool>(),
        message in 0_usize..3,
        at in 0_usize..200,
        order in vec(any::<bool>(), 1..10),
    ) {
        let host = host::Wish { mode: Mode::Require, key: 1, fill: 0 };
        let wish = Wish { host, receives: 8 };
        let order = [&order[..], &[false, true]].concat();
        let [client, server] = run([wish; 2], &order, None);
        prop_assert!(client.is_settled() && server.is_settled());
        let [client, server] = run([wish; 2], &order, Some((which, message, at)));
        for end in [client, server] {
            prop_assert_ne!(end.verdict(), Some(AuthVerdict::Ignore));
            prop_assert!(!end.is_settled() || end.verdict() == Some(AuthVerdict::Accept));
        }
    }
}
