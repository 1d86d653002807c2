// SPDX-License-Identifier: GPL-2.0

//! An EXAMPLE of a scheme: both ends have the same key, and prove it by HMAC-SHA256 (RFC 2104).
//!
//! No document defines it and nobody has analysed it. It shows how a scheme uses the hook, and it
//! keeps hosts away that do not have the key.
//!
//! ```text
//! client                                                        server
//!   CONNPROP_MIDDLE  hello      1, nonce C                        ->
//!   <-                challenge  2, nonce S, MAC("server", C, S)   CONNPROP_MIDDLE
//!   CONNPROP_FINAL   response   3, MAC("client", C, S)            ->
//!   <-                                                             CONNPROP_FINAL
//! ```
//!
//! Nonces have 32 octets and are made anew for each connection. Each MAC is over a label, the role
//! of who proves something, both nonces, and the addresses of both ends as each of them sees them.
//!
//! - *Replay*: a MAC is good for one pair of nonces only, one of which the verifier has just made.
//! - *Reflection*: the role is in the MAC, so neither end can be made to compute the other one's. A
//!   client answers with nothing before the server has proved itself.
//! - *A proof for another server*: the addresses are in the MAC, so the challenge of one server is
//!   of no use to who was meant to be another one.
//! - *A guess at the key*: anybody can have a server compute a MAC, and try keys on it. So the key
//!   has to be a random one, of 16 octets or more.
//! - *Not prevented*: somebody in the middle, who lets the two authenticate each other and then takes
//!   the connection over, or changes what follows. Nothing of the connection is bound to the key, and
//!   nothing of what follows is encrypted or signed. And who has the key can be any host.

use super::{
    super::{
        error::Fault,
        session::Role,
        xdr::Writer, //
    },
    Policy,
    Token,
    Verdict,
    Why, //
};

/// The octets of a nonce.
pub(crate) const NONCE_LEN: usize = 32;

/// The octets of a MAC.
pub(crate) const MAC_LEN: usize = 32;

/// What is signed begins with this, so that the key can sign other things as well.
const LABEL: &[u8] = b"rpcrdma example of host authentication with a shared key, 1";

/// More octets than what is signed can have.
const MAX_SIGNED: usize = 320;

/// The longest address, as text.
pub(crate) const MAX_ADDRESS: usize = 46;

/// A number made for one connection.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// The kinds of tokens: their first word.
const HELLO: [u8; 4] = 1_u32.to_be_bytes();
const CHALLENGE: [u8; 4] = 2_u32.to_be_bytes();
const RESPONSE: [u8; 4] = 3_u32.to_be_bytes();

/// What the scheme needs to be done for it.
pub(crate) trait Crypto {
    /// The MAC of `data` with the key; [`None`] if there is no key.
    fn mac(&self, data: &[u8]) -> Option<[u8; MAC_LEN]>;

    /// Compares in a time that does not depend on where the difference is.
    fn is_equal(&self, one: &[u8; MAC_LEN], other: &[u8; MAC_LEN]) -> bool;
}

/// An address, as both ends write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The text.
    text: [u8; MAX_ADDRESS],
    /// How much of it is used.
    len: usize,
}

impl Address {
    /// Of a presentation address. The scope of an IPv6 address is left out, since it has no meaning
    /// at the other end, and an IPv4 address is written as one.
    pub(crate) fn new(text: &str) -> Self {
        let text = text.split('%').next().unwrap_or_default();
        let text = match text.strip_prefix("::ffff:") {
            Some(v4) if v4.contains('.') => v4,
            _ => text,
        };
        let mut address = Self {
            text: [0; MAX_ADDRESS],
            len: 0,
        };
        if let Some(place) = address.text.get_mut(..text.len()) {
            place.copy_from_slice(text.as_bytes());
            address.len = text.len();
        }
        address
    }

    /// The text.
    fn get(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }
}

/// What is signed beside the nonces: the ends of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The client's address.
    pub(crate) client: Address,
    /// The server's.
    pub(crate) server: Address,
}

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was said.
    Silent,
    /// A client has told its nonce.
    Greeted,
    /// A server has told its nonce, and knows the client's.
    Challenged(Nonce),
    /// The peer has proved itself.
    Proved,
}

/// The authentication of a connection by a key that both ends have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreSharedKey<C> {
    /// Which end this is.
    role: Role,
    /// Whether a peer is refused that does not want to authenticate itself.
    required: bool,
    /// Who computes.
    crypto: C,
    /// Our nonce.
    nonce: Nonce,
    /// The ends of the connection.
    ends: Ends,
    /// Zeroes behind each token.
    fill: u32,
    /// How far it has come.
    state: State,
}

impl<C: Crypto> PreSharedKey<C> {
    /// Of a new connection. The nonce is to be a random one, and never used before. `fill` octets
    /// are put behind each token, to have long ones.
    pub(crate) fn new(
        role: Role,
        required: bool,
        crypto: C,
        nonce: Nonce,
        ends: Ends,
        fill: u32,
    ) -> Self {
        Self {
            role,
            required,
            crypto,
            nonce,
            ends,
            fill,
            state: State::Silent,
        }
    }

    /// The MAC by which `prover` proves itself.
    fn mac(&self, prover: Role, peer: &Nonce) -> Result<[u8; MAC_LEN], Why> {
        let mut buf = [0; MAX_SIGNED];
        let mut writer = Writer::new(&mut buf);
        let (client, server) = match self.role {
            Role::Client => (&self.nonce, peer),
            Role::Server => (peer, &self.nonce),
        };
        let role = match prover {
            Role::Client => b"client",
            Role::Server => b"server",
        };
        // Each with its length, so that nothing can be taken for something else.
        for item in [
            LABEL,
            role,
            client,
            server,
            self.ends.client.get(),
            self.ends.server.get(),
        ] {
            writer.opaque(item).map_err(|_: Fault| Why::Malformed)?;
        }
        let len = writer.len();
        let signed = buf.get(..len).ok_or(Why::Malformed)?;
        self.crypto.mac(signed).ok_or(Why::NoKey)
    }

    /// Checks a proof.
    fn verify(&self, prover: Role, peer: &Nonce, proof: &[u8; MAC_LEN]) -> Result<(), Why> {
        let expected = self.mac(prover, peer)?;
        match self.crypto.is_equal(&expected, proof) {
            true => Ok(()),
            false => Err(Why::WrongKey),
        }
    }

    /// A server hears the client's nonce.
    fn hello(&mut self, rest: &[u8]) -> Result<Token, Why> {
        let (peer, _) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(Why::Malformed)?;
        let mac = self.mac(Role::Server, peer)?;
        self.state = State::Challenged(*peer);
        let parts = [&CHALLENGE[..], &self.nonce, &mac];
        Ok(Token::new(&parts, self.fill, false))
    }

    /// A client hears the server's nonce and its proof.
    fn challenge(&mut self, rest: &[u8]) -> Result<Token, Why> {
        let (peer, rest) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(Why::Malformed)?;
        let (proof, _) = rest.split_first_chunk::<MAC_LEN>().ok_or(Why::Malformed)?;
        self.verify(Role::Server, peer, proof)?;
        let mac = self.mac(Role::Client, peer)?;
        self.state = State::Proved;
        Ok(Token::new(&[&RESPONSE, &mac], self.fill, true))
    }

    /// A server hears the client's proof.
    fn response(&mut self, peer: &Nonce, rest: &[u8]) -> Result<(), Why> {
        let (proof, _) = rest.split_first_chunk::<MAC_LEN>().ok_or(Why::Malformed)?;
        self.verify(Role::Client, peer, proof)?;
        self.state = State::Proved;
        Ok(())
    }
}

impl<C: Crypto> Policy for PreSharedKey<C> {
    fn open(&mut self) -> Option<Token> {
        self.state = State::Greeted;
        Some(Token::new(&[&HELLO, &self.nonce], self.fill, false))
    }

    fn heard(&mut self, token: &[u8]) -> Result<Option<Token>, Why> {
        let (kind, rest) = token.split_first_chunk::<4>().ok_or(Why::Malformed)?;
        // One of each, in their order: whatever else comes was not made by this scheme.
        match (self.role, self.state, *kind) {
            (Role::Server, State::Silent, HELLO) => self.hello(rest).map(Some),
            (Role::Client, State::Greeted, CHALLENGE) => self.challenge(rest).map(Some),
            (Role::Server, State::Challenged(peer), RESPONSE) => {
                self.response(&peer, rest).map(|()| None)
            }
            _ => Err(Why::Malformed),
        }
    }

    fn conclude(&self) -> Verdict {
        match self.state {
            State::Proved => Verdict::Accept,
            // It has begun, and has not gone on.
            State::Challenged(_) => Verdict::Refuse(Why::Absent),
            State::Silent | State::Greeted if self.required => Verdict::Refuse(Why::Absent),
            State::Silent | State::Greeted => Verdict::Ignore,
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_auth_psk)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            testing::{
                end,
                ends,
                hear,
                refusal,
                Sent,
                Toy, //
            },
            Exchange,
            Step, //
        },
        *, //
    };

    /// An end of the examples.
    type End = Exchange<PreSharedKey<Toy>>;

    /// What each end thinks of the other one in the end.
    fn outcome(client: &mut End, server: &mut End) -> (Step, Step) {
        let hello = Sent::of(client.open().say);
        let at_server = hear(server, hello.as_ref(), false);
        let challenge = Sent::of(at_server.say);
        let at_client = hear(
            client,
            challenge.as_ref(),
            at_server.say.is_some_and(|say| say.last),
        );
        if at_client.verdict.is_some() {
            return (at_client, at_server);
        }
        let response = Sent::of(at_client.say);
        let at_server = hear(server, response.as_ref(), true);
        let answer = Sent::of(at_server.say);
        (hear(client, answer.as_ref(), true), at_server)
    }

    #[test]
    fn another_key_is_refused() {
        for required in [false, true] {
            for key in [0, 1, 6, 7, 8, 255] {
                let mut client = end(Role::Client, required, Some(7), 1);
                let mut server = end(Role::Server, required, Some(key), 2);
                let (at_client, _) = outcome(&mut client, &mut server);
                let expected = match key {
                    7 => Verdict::Accept,
                    _ => Verdict::Refuse(Why::WrongKey),
                };
                assert_eq!(at_client.verdict, Some(expected));
            }
        }
    }

    /// A server that has lost its key, or has none, accepts nobody who wants to prove himself.
    #[test]
    fn without_a_key_nobody_is_accepted() {
        for required in [false, true] {
            let mut client = end(Role::Client, required, Some(7), 1);
            let mut server = end(Role::Server, required, None, 2);
            let (at_client, at_server) = outcome(&mut client, &mut server);
            assert_eq!(refusal(&at_server), Some(Why::NoKey));
            assert_eq!(refusal(&at_client), Some(Why::ByPeer));
            let mut client = end(Role::Client, required, None, 1);
            let mut server = end(Role::Server, required, Some(7), 2);
            let (at_client, _) = outcome(&mut client, &mut server);
            assert_eq!(refusal(&at_client), Some(Why::NoKey));
        }
    }

    /// Whatever octet of a token is changed on its way. What is behind a token does not count.
    #[test]
    fn every_octet_counts() {
        // Behind the header: the kind, the nonce and the proof.
        for at in 8..76 {
            let mut client = end(Role::Client, true, Some(7), 1);
            let mut server = end(Role::Server, true, Some(7), 2);
            let hello = Sent::of(client.open().say);
            let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
            let step = hear(
                &mut client,
                challenge.map(|sent| sent.spoilt(at)).as_ref(),
                false,
            );
            let malformed = at < 12;
            let expected = match malformed {
                true => Why::Malformed,
                false => Why::WrongKey,
            };
            assert_eq!(refusal(&step), Some(expected));
            assert_eq!(step.say, None);
        }
        for at in 8..44 {
            let mut client = end(Role::Client, true, Some(7), 1);
            let mut server = end(Role::Server, true, Some(7), 2);
            let hello = Sent::of(client.open().say);
            let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
            let response = Sent::of(hear(&mut client, challenge.as_ref(), false).say);
            let step = hear(
                &mut server,
                response.map(|sent| sent.spoilt(at)).as_ref(),
                true,
            );
            assert!(refusal(&step).is_some());
        }
        // A nonce that is another one when it arrives.
        for at in 12..44 {
            let mut client = end(Role::Client, true, Some(7), 1);
            let mut server = end(Role::Server, true, Some(7), 2);
            let hello = Sent::of(client.open().say).map(|sent| sent.spoilt(at));
            let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
            let step = hear(&mut client, challenge.as_ref(), false);
            assert_eq!(refusal(&step), Some(Why::WrongKey));
        }
    }

    /// All that was heard of one connection is of no use on the next one.
    #[test]
    fn replays_are_refused() {
        let mut client = end(Role::Client, true, Some(7), 1);
        let mut server = end(Role::Server, true, Some(7), 2);
        let hello = Sent::of(client.open().say);
        let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
        let response = Sent::of(hear(&mut client, challenge.as_ref(), false).say);

        // Somebody who repeats what the client has said, to the same server later.
        let mut later = end(Role::Server, true, Some(7), 3);
        assert!(hear(&mut later, hello.as_ref(), false).say.is_some());
        let step = hear(&mut later, response.as_ref(), true);
        assert_eq!(refusal(&step), Some(Why::WrongKey));
        // Somebody who repeats what the server has said.
        let mut later = end(Role::Client, true, Some(7), 4);
        assert!(later.open().say.is_some());
        let step = hear(&mut later, challenge.as_ref(), false);
        assert_eq!(refusal(&step), Some(Why::WrongKey));
    }

    /// An end gets back what it has said, or what another end in the same role has.
    #[test]
    fn reflections_are_refused() {
        // Even if both have the same nonce.
        for nonce in [1, 2] {
            let mut server = end(Role::Server, true, Some(7), 1);
            let mut other = end(Role::Server, true, Some(7), nonce);
            let mut client = end(Role::Client, true, Some(7), nonce);
            let hello = Sent::of(client.open().say);
            let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
            // A challenge is not a response, whatever its kind is said to be: 2 becomes 3.
            assert!(hear(&mut other, hello.as_ref(), false).say.is_some());
            let step = hear(
                &mut other,
                challenge.map(|sent| sent.spoilt(11)).as_ref(),
                true,
            );
            assert!(refusal(&step).is_some());
            // A hello is not a challenge.
            let step = hear(&mut client, hello.as_ref(), false);
            assert_eq!(refusal(&step), Some(Why::Malformed));
        }
        // The two proofs of one connection differ.
        let policy = |role| PreSharedKey::new(role, true, Toy(Some(7)), [1; 32], ends(), 0);
        let nonce = [1; 32];
        let one = policy(Role::Client).mac(Role::Client, &nonce);
        let two = policy(Role::Client).mac(Role::Server, &nonce);
        assert_ne!(one, two);
        assert_eq!(one, policy(Role::Server).mac(Role::Client, &nonce));
    }

    /// The same nonces between other ends, or the other way round.
    #[test]
    fn proofs_are_for_one_pair_of_ends() {
        let swapped = Ends {
            client: ends().server,
            server: ends().client,
        };
        let other = Ends {
            server: Address::new("192.0.2.3"),
            ..ends()
        };
        for wrong in [swapped, other] {
            let policy = PreSharedKey::new(Role::Server, true, Toy(Some(7)), [2; 32], wrong, 0);
            let mut server = Exchange::new(Role::Server, policy);
            let mut client = end(Role::Client, true, Some(7), 1);
            let (at_client, _) = outcome(&mut client, &mut server);
            assert_eq!(refusal(&at_client), Some(Why::WrongKey));
        }
    }

    #[test]
    fn addresses_are_written_in_one_way() {
        let is = |text, expected: &[u8]| Address::new(text).get() == expected;
        assert!(is("192.0.2.1", b"192.0.2.1"));
        assert!(is("::ffff:192.0.2.1", b"192.0.2.1"));
        assert!(is("fe80::1%eth0", b"fe80::1"));
        assert!(is("fd00::1", b"fd00::1"));
        assert!(is("::ffff:1", b"::ffff:1"));
        assert!(is("", b""));
    }

    /// Who has begun to prove himself and does not go on is not somebody who does not want to.
    #[test]
    fn half_an_authentication_is_refused() {
        let mut client = end(Role::Client, false, Some(7), 1);
        let mut server = end(Role::Server, false, Some(7), 2);
        let hello = Sent::of(client.open().say);
        assert!(hear(&mut server, hello.as_ref(), false).say.is_some());
        let step = hear(&mut server, None, true);
        assert_eq!(refusal(&step), Some(Why::Absent));
    }

    /// A server that does not want a proof of the client may have done with it at once.
    #[test]
    fn a_server_may_prove_itself_only() {
        let mut client = end(Role::Client, true, Some(7), 1);
        let mut server = end(Role::Server, true, Some(7), 2);
        let hello = Sent::of(client.open().say);
        let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
        let step = hear(&mut client, challenge.as_ref(), true);
        assert_eq!(step.verdict, Some(Verdict::Accept));
        assert!(step.say.is_some_and(|say| say.last));
    }
}
