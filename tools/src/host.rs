// SPDX-License-Identifier: GPL-2.0

//! Host authentication of an end in user space: what `link/auth.rs` is in the module, the memory of
//! an [`Authentication`] and of a [`Settlement`], which decide.

use crate::proto::{
    auth::{
        psk::{
            Address,
            Crypto,
            Ends,
            PreSharedKey, //
        },
        settlement::{
            Heard,
            Settlement, //
        },
        Authentication,
        Mode,
        Step,
        Store,
        MAX_TOKEN, //
    },
    connection::incoming::Incoming,
    session::{
        Role,
        Session, //
    },
    v2::ConnProp, //
};

/// Depends on key and data as a MAC does, and is worth nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Toy(u64);

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

/// Keeps a token; looks whether there is a place for everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Vec<u8>);

impl Store for Kept {
    fn begin(&mut self, len: u32) -> Option<()> {
        assert!(len <= MAX_TOKEN, "what a peer says is bounded");
        self.0 = vec![0; len as usize];
        Some(())
    }

    fn put(&mut self, offset: u32, piece: &[u8]) -> Option<()> {
        let place = self.0[offset as usize..].get_mut(..piece.len());
        place.expect("there is room").copy_from_slice(piece);
        Some(())
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What one end wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Whether it authenticates itself and its peer.
    pub(crate) mode: Mode,
    /// Its key.
    pub(crate) key: u64,
    /// Octets that make its first token longer.
    pub(crate) fill: u32,
}

impl Wish {
    /// That of an end that has nothing to do with it.
    pub(crate) const OFF: Self = Self {
        mode: Mode::Off,
        key: 0,
        fill: 0,
    };
}

/// Returns the addresses of the two ends.
pub(crate) fn addresses() -> Ends {
    Ends {
        client: Address::new("192.0.2.1"),
        server: Address::new("192.0.2.2"),
    }
}

/// The authentication of an end on one connection.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// The exchange, which decides.
    exchange: Option<Authentication<PreSharedKey<Toy>>>,
    /// The token that is coming.
    kept: Kept,
    /// What comes of it.
    pub(crate) settlement: Settlement<Vec<u8>>,
}

impl Host {
    /// Begins for a new connection.
    pub(crate) fn new(role: Role, wish: &Wish) -> Self {
        let is_on = wish.mode != Mode::Off;
        let is_required = wish.mode == Mode::Require;
        let nonce = [1 + u8::from(role == Role::Server); 32];
        let key = Toy(wish.key);
        let policy = PreSharedKey::new(role, is_required, key, nonce, addresses(), wish.fill);
        let mut host = Self {
            exchange: is_on.then(|| Authentication::new(role, policy)),
            kept: Kept::default(),
            settlement: Settlement::new(role, is_on, is_required),
        };
        host.ask(|exchange, _| exchange.open());
        host
    }

    /// Asks the exchange, if there is one, and has its answer followed.
    fn ask(&mut self, ask: impl FnOnce(&mut Authentication<PreSharedKey<Toy>>, &mut Kept) -> Step) {
        if let Some(exchange) = &mut self.exchange {
            let step = ask(exchange, &mut self.kept);
            self.follow(&step);
        }
    }

    /// Makes the memory for what is to be said.
    fn follow(&mut self, step: &Step) {
        let token = step.say.as_ref().and_then(|say| say.token.as_ref());
        let bytes = token.map(|token| {
            let mut bytes = vec![0; token.len()];
            token.write(&mut bytes).expect("it fits");
            bytes
        });
        self.settlement.follow(step, bytes);
    }

    /// The peer goes on without a proof, or has had its time.
    pub(crate) fn skipped(&mut self) {
        self.ask(|exchange, kept| exchange.skipped(kept));
    }

    /// Takes in a message of the peer. Returns whether it is of use to anybody else.
    pub(crate) fn receive(&mut self, incoming: &Incoming<'_>) -> bool {
        if let Incoming::Properties { host_auth, last } = incoming {
            match self.settlement.hear(*host_auth) {
                Heard::Nothing => {}
                Heard::Ask => self.ask(|exchange, kept| exchange.receive(*host_auth, *last, kept)),
                Heard::Refused => self.follow(&Settlement::<Vec<u8>>::refused()),
            }
            return false;
        }
        if incoming.needs_acceptance() && !self.settlement.is_settled() {
            self.skipped();
        }
        !incoming.needs_acceptance() || self.settlement.is_settled()
    }

    /// Sends the next CONNPROP message, if there is one, of `room` octets at most. Returns whether
    /// anything has changed, and the message.
    pub(crate) fn speak(&mut self, session: &mut Session, room: usize) -> (bool, Option<Vec<u8>>) {
        self.settlement.close(session);
        let encode = |message: &ConnProp<'_>| {
            let mut buf = vec![0; room];
            let len = message.encode(&mut buf).expect("it fits");
            buf.truncate(len);
            Some(buf)
        };
        self.settlement.speak(session, room, encode)
    }
}
