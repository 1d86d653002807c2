// SPDX-License-Identifier: GPL-2.0

//! Host authentication of two sessions back to back: whatever both want, however long the material
//! and however small the windows, it comes to an end, and to the right one.

use std::collections::VecDeque;

use proptest::{
    collection::vec,
    prelude::*, //
};

use crate::{
    oracle,
    proto::{
        auth::{
            psk::{
                Address,
                Crypto,
                Ends,
                PreSharedKey, //
            },
            saying::Saying,
            AuthFailure,
            AuthVerdict,
            Exchange,
            Mode,
            Say,
            Step,
            Store,
            MAX_TOKEN, //
        },
        chunk::Limits,
        props::{
            Advertised,
            Properties, //
        },
        session::{
            Action,
            Config,
            Event,
            Role,
            Session, //
        },
        v2::MAX_FIRST, //
    }, //
};

/// The largest message that either end sends before it knows more.
const INLINE: usize = 4096;

/// Depends on key and data as a MAC does, and is worth nothing.
#[derive(Clone, Copy)]
struct Toy(u64);

impl Crypto for Toy {
    fn mac(&self, data: &[u8]) -> Option<[u8; 32]> {
        let mut out = [0; 32];
        for (part, place) in out.chunks_mut(8).enumerate() {
            let mut hash = self.0 ^ 0xcbf2_9ce4_8422_2325 ^ part as u64;
            for octet in data {
                hash = (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3);
                hash ^= hash >> 29;
            }
            place.copy_from_slice(&hash.to_be_bytes());
        }
        Some(out)
    }

    fn is_equal(&self, one: &[u8; 32], other: &[u8; 32]) -> bool {
        one == other
    }
}

/// Keeps a token.
#[derive(Default)]
struct Kept(Vec<u8>);

impl Store for Kept {
    fn begin(&mut self, len: u32) -> Option<()> {
        assert!(len <= MAX_TOKEN, "what a peer says is bounded");
        self.0 = vec![0; len as usize];
        Some(())
    }

    fn put(&mut self, offset: u32, piece: &[u8]) -> Option<()> {
        let rest = self.0.get_mut(offset as usize..)?;
        rest.get_mut(..piece.len())?.copy_from_slice(piece);
        Some(())
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What one end wants.
#[derive(Clone, Copy, Debug)]
struct Wish {
    mode: Mode,
    key: u64,
    fill: u32,
    receives: u32,
}

/// One end of a connection, with everything that its owner does.
struct End {
    session: Session,
    exchange: Option<Exchange<PreSharedKey<Toy>>>,
    kept: Kept,
    speech: Option<(Vec<u8>, Saying)>,
    verdict: Option<AuthVerdict>,
    own: Properties,
    /// Messages on their way to this end.
    wire: VecDeque<Vec<u8>>,
    /// Whether the first message was one of properties.
    first: Option<bool>,
    /// The connection is over.
    closed: bool,
}

impl End {
    fn new(role: Role, wish: &Wish) -> Self {
        let own = Properties::DEFAULT;
        let config = Config {
            role,
            low: if wish.mode == Mode::Require { 2 } else { 1 },
            high: 2,
            earlier: false,
            own,
            authenticate: wish.mode != Mode::Off,
            receives: wish.receives,
            credits_in_one: 1,
            limits: Limits::DEFAULT,
            read_chunks: 2,
            write_chunks: 2,
            max_assembly: 4096,
        };
        let ends = Ends {
            client: Address::new("192.0.2.1"),
            server: Address::new("192.0.2.2"),
        };
        let nonce = [match role {
            Role::Client => 1,
            Role::Server => 2,
        }; 32];
        let required = wish.mode == Mode::Require;
        let exchange = (wish.mode != Mode::Off).then(|| {
            let policy = PreSharedKey::new(role, required, Toy(wish.key), nonce, ends, wish.fill);
            Exchange::new(role, policy)
        });
        let mut end = Self {
            session: Session::after(&config, 0),
            exchange,
            kept: Kept::default(),
            speech: None,
            verdict: None,
            own,
            wire: VecDeque::new(),
            first: None,
            closed: false,
        };
        if let Some(mut exchange) = end.exchange {
            let step = exchange.open();
            end.exchange = Some(exchange);
            end.follow(&step);
        }
        end
    }

    fn follow(&mut self, step: &Step) {
        let refused = matches!(step.verdict, Some(AuthVerdict::Refuse(_)));
        if step.say.is_some() || refused {
            self.speech = step.say.as_ref().map(|say: &Say| {
                let mut bytes = vec![0; say.token.map_or(0, |token| token.len())];
                if let Some(token) = &say.token {
                    token.write(&mut bytes).expect("it fits");
                }
                (bytes, Saying::new(say))
            });
        }
        self.verdict = step.verdict.or(self.verdict);
    }

    fn is_refused(&self) -> bool {
        matches!(self.verdict, Some(AuthVerdict::Refuse(_)))
    }

    /// May send and be sent RPC messages.
    fn is_settled(&self) -> bool {
        let trusts = match &self.exchange {
            None => !self.is_refused(),
            Some(_) => matches!(
                self.verdict,
                Some(AuthVerdict::Accept | AuthVerdict::Ignore)
            ),
        };
        trusts && self.session.dialect().is_some()
    }

    fn receive(&mut self) -> bool {
        let Some(message) = self.wire.pop_front() else {
            return false;
        };
        if self.closed {
            return true;
        }
        let event = self.session.handle_received(&message);
        let is_properties = matches!(event, Event::Properties { .. });
        self.first = self.first.or(Some(is_properties));
        let Event::Properties { host_auth, last } = event else {
            return true;
        };
        match &mut self.exchange {
            Some(exchange) => {
                let step = exchange.receive(host_auth, last, &mut self.kept);
                self.follow(&step);
            }
            None if host_auth.is_some_and(crate::proto::auth::is_refusal) => {
                self.verdict = Some(AuthVerdict::Refuse(AuthFailure::ByPeer));
            }
            None => {}
        }
        true
    }

    /// Does what there is to do; returns what is posted.
    fn act(&mut self) -> Vec<Vec<u8>> {
        let mut posted = vec![];
        loop {
            if self.speech.is_none() && self.is_refused() {
                self.session.close_unauthenticated();
            }
            let message = self.speak();
            let spoken = message.is_some();
            posted.extend(message);
            while let Some(action) = self.session.poll_action() {
                match action {
                    Action::Send(control) => {
                        let mut buf = [0; 128];
                        let len = control.encode(&mut buf).expect("it fits");
                        posted.push(buf[..len].to_vec());
                        self.session.commit(&control);
                        self.session.handle_sent();
                    }
                    Action::Close(_) => self.closed = true,
                    _ => {}
                }
            }
            let dropped = !spoken && self.is_refused() && self.speech.take().is_some();
            if !spoken && !dropped {
                return posted;
            }
        }
    }

    fn speak(&mut self) -> Option<Vec<u8>> {
        self.exchange.as_ref()?;
        let pending = self.verdict.is_none() && self.session.dialect().is_some();
        if self.speech.is_none() && pending && !self.session.has_told() {
            self.speech = Some((vec![], Saying::greeting()));
        }
        let (bytes, saying) = self.speech.as_mut()?;
        let limit = match self.session.dialect() {
            None => MAX_FIRST as usize,
            Some(_) => INLINE,
        };
        let piece = saying.next(limit)?;
        let material = &bytes[piece.start..piece.end];
        let told = Advertised {
            host_auth: (!material.is_empty()).then_some(material),
            ..match piece.properties {
                true => Advertised::all(&self.own),
                false => Advertised::NOTHING,
            }
        };
        let message = self.session.prepare_properties(told, piece.last)?;
        self.session.commit_properties(piece.last);
        self.session.handle_sent();
        let mut buf = vec![0; limit];
        let len = message.encode(&mut buf).expect("it fits");
        buf.truncate(len);
        if !saying.sent(&piece) {
            self.speech = None;
        }
        Some(buf)
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
            let receives = ends[1 - this].session.windows().1.must_be_posted();
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
        mode,
        key,
        fill,
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
        let [c, s] = wishes;
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
            prop_assert_eq!(client.session.terms().send_size, 4096);
            if c.mode != Mode::Off && s.mode != Mode::Off {
                prop_assert_eq!(client.verdict, Some(AuthVerdict::Accept));
                prop_assert_eq!(server.verdict, Some(AuthVerdict::Accept));
            }
        } else {
            // Whoever does not refuse the other one is told, or loses the connection.
            prop_assert!(!settled.0 || !settled.1);
            prop_assert!(client.closed || server.closed);
            prop_assert!(!client.is_settled() || s.mode != Mode::Require);
            if s.mode == Mode::Require && c.mode == Mode::Off {
                prop_assert_eq!(client.verdict, Some(AuthVerdict::Refuse(AuthFailure::ByPeer)));
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
        let wish = Wish { mode: Mode::Require, key: 1, fill: 0, receives: 8 };
        let order = [&order[..], &[false, true]].concat();
        let [client, server] = run([wish; 2], &order, None);
        prop_assert!(client.is_settled() && server.is_settled());
        let [client, server] = run([wish; 2], &order, Some((which, message, at)));
        for end in [client, server] {
            prop_assert_ne!(end.verdict, Some(AuthVerdict::Ignore));
            prop_assert!(!end.is_settled() || end.verdict == Some(AuthVerdict::Accept));
        }
    }
}
