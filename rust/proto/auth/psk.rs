// SPDX-License-Identifier: GPL-2.0

//! An EXAMPLE of a scheme: both ends have the same key, and prove it by HMAC-SHA256 (RFC 2104).
//!
//! No document defines this scheme and it has not been analysed. It shows the use of the hook, and
//! it excludes hosts that do not have the key.
//!
//! ```text
//! client                                                        server
//!   CONNPROP_MIDDLE  hello      1, nonce C                        ->
//!   <-                challenge  2, nonce S, MAC("server", C, S)   CONNPROP_MIDDLE
//!   CONNPROP_FINAL   response   3, MAC("client", C, S)            ->
//!   <-                                                             CONNPROP_FINAL
//! ```
//!
//! Nonces have 32 octets and are generated anew for each connection. Each MAC covers a label, the
//! role of the end that proves something, both nonces, and the addresses of both ends as each of
//! them sees them.
//!
//! - *Replay*: a MAC is valid for one pair of nonces only, and the verifier has just generated one
//!   of these.
//! - *Reflection*: the MAC covers the role, so neither end can be made to compute the MAC of the
//!   other. A client sends no MAC before the server has proved itself.
//! - *A proof for another server*: the MAC covers the addresses, so an attacker cannot pass the
//!   challenge of one server off as that of another.
//! - *A guess at the key*: anyone can make a server compute a MAC, and test keys against it. The
//!   key must therefore be random and have at least 16 octets.
//! - *Not prevented*: an attacker in the middle can let the two authenticate each other and then
//!   take over the connection, or change its data. Nothing of the connection is bound to the key,
//!   and no later data is encrypted or signed. In addition, a host with the key can pretend to be
//!   any other host.

use super::{
    super::session::Role,
    AuthFailure,
    AuthVerdict,
    Policy,
    Token, //
};
use crate::proto::prelude::*;

/// The size of a nonce in octets.
pub(crate) const NONCE_LEN: usize = 32;

/// The size of a MAC in octets.
pub(crate) const MAC_LEN: usize = 32;

/// The first octets of all signed data, so that the key can be used for other purposes as well.
const LABEL: &[u8] = b"rpcrdma example of host authentication with a shared key, 1";

/// An upper bound on the size of the signed data in octets.
const MAX_SIGNED: usize = 320;

/// The size of the longest address as text, in octets.
pub(crate) const MAX_ADDRESS: usize = 46;

/// A number generated for one connection.
pub(crate) type Nonce = [u8; NONCE_LEN];

/// The kinds of tokens, which are their first words.
const HELLO: [u8; 4] = 1_u32.to_be_bytes();
const CHALLENGE: [u8; 4] = 2_u32.to_be_bytes();
const RESPONSE: [u8; 4] = 3_u32.to_be_bytes();

/// The cryptography that the scheme needs.
pub(crate) trait Crypto {
    /// Returns the MAC of `data` with the key, or [`None`] if there is no key.
    fn mac(&self, data: &[u8]) -> Option<[u8; MAC_LEN]>;

    /// Compares in a time that does not depend on the place of the difference.
    fn is_equal(&self, one: &[u8; MAC_LEN], other: &[u8; MAC_LEN]) -> bool;
}

/// An address in the form that both ends use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The text.
    text: [u8; MAX_ADDRESS],
    /// The number of octets in use.
    len: usize,
}

impl Address {
    /// Takes a presentation address. The scope of an IPv6 address is removed, since it has no
    /// meaning at the other end. An IPv4-mapped address is written as an IPv4 address.
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

    /// Returns the text.
    fn get(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or_default()
    }
}

/// The ends of a connection, which are signed together with the nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The client's address.
    pub(crate) client: Address,
    /// The server's address.
    pub(crate) server: Address,
}

/// The progress of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No token was sent or received.
    Silent,
    /// The client has sent its nonce.
    Greeted,
    /// The server has sent its nonce, and knows the client's.
    Challenged(Nonce),
    /// The peer has proved itself.
    Proved,
}

/// The policy for one connection: both ends prove that they have the same key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreSharedKey<C> {
    /// The role of this end.
    role: Role,
    /// True if a peer that does not authenticate itself is refused.
    required: bool,
    /// The cryptography, which holds the key.
    crypto: C,
    /// Our nonce.
    nonce: Nonce,
    /// The ends of the connection.
    ends: Ends,
    /// The number of zeroes behind each token.
    fill: u32,
    /// The progress of the exchange.
    state: State,
}

impl<C: Crypto> PreSharedKey<C> {
    /// Prepares for a new connection. `nonce` must be random and must not have been used before.
    /// `fill` zeroes are appended to each token, which makes long tokens for tests.
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

    /// Returns the MAC by which `prover` proves that it has the key.
    fn mac(&self, prover: Role, peer: &Nonce) -> Result<[u8; MAC_LEN], AuthFailure> {
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
        // Each item is preceded by its length, so that no two different lists are signed alike.
        for item in [
            LABEL,
            role,
            client,
            server,
            self.ends.client.get(),
            self.ends.server.get(),
        ] {
            writer
                .opaque(item)
                .map_err(|_: Fault| AuthFailure::Malformed)?;
        }
        let len = writer.len();
        let signed = buf.get(..len).ok_or(AuthFailure::Malformed)?;
        self.crypto.mac(signed).ok_or(AuthFailure::NoKey)
    }

    /// Checks a proof.
    fn verify(&self, prover: Role, peer: &Nonce, proof: &[u8; MAC_LEN]) -> Result<(), AuthFailure> {
        let expected = self.mac(prover, peer)?;
        if self.crypto.is_equal(&expected, proof) {
            Ok(())
        } else {
            Err(AuthFailure::WrongKey)
        }
    }

    /// Handles the client's nonce at the server.
    fn hello(&mut self, rest: &[u8]) -> Result<Token, AuthFailure> {
        let (peer, _) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(AuthFailure::Malformed)?;
        let mac = self.mac(Role::Server, peer)?;
        self.state = State::Challenged(*peer);
        let parts = [&CHALLENGE[..], &self.nonce, &mac];
        Ok(Token::new(&parts, self.fill, false))
    }

    /// Handles the server's nonce and proof at the client.
    fn challenge(&mut self, rest: &[u8]) -> Result<Token, AuthFailure> {
        let (peer, rest) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(AuthFailure::Malformed)?;
        let (proof, _) = rest
            .split_first_chunk::<MAC_LEN>()
            .ok_or(AuthFailure::Malformed)?;
        self.verify(Role::Server, peer, proof)?;
        let mac = self.mac(Role::Client, peer)?;
        self.state = State::Proved;
        Ok(Token::new(&[&RESPONSE, &mac], self.fill, true))
    }

    /// Handles the client's proof at the server.
    fn response(&mut self, peer: &Nonce, rest: &[u8]) -> Result<(), AuthFailure> {
        let (proof, _) = rest
            .split_first_chunk::<MAC_LEN>()
            .ok_or(AuthFailure::Malformed)?;
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

    fn heard(&mut self, token: &[u8]) -> Result<Option<Token>, AuthFailure> {
        let (kind, rest) = token
            .split_first_chunk::<4>()
            .ok_or(AuthFailure::Malformed)?;
        // Each token is valid in one state only. Anything else does not come from this scheme.
        match (self.role, self.state, *kind) {
            (Role::Server, State::Silent, HELLO) => self.hello(rest).map(Some),
            (Role::Client, State::Greeted, CHALLENGE) => self.challenge(rest).map(Some),
            (Role::Server, State::Challenged(peer), RESPONSE) => {
                self.response(&peer, rest).map(|()| None)
            }
            _ => Err(AuthFailure::Malformed),
        }
    }

    fn conclude(&self) -> AuthVerdict {
        match self.state {
            State::Proved => AuthVerdict::Accept,
            // The client began the exchange and did not finish it.
            State::Challenged(_) => AuthVerdict::Refuse(AuthFailure::Absent),
            State::Silent | State::Greeted if self.required => {
                AuthVerdict::Refuse(AuthFailure::Absent)
            }
            State::Silent | State::Greeted => AuthVerdict::Ignore,
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
            Authentication,
            Step, //
        },
        *, //
    };

    /// An end of the examples.
    type End = Authentication<PreSharedKey<Toy>>;

    /// Runs an exchange and returns the last step of each end.
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
                    7 => AuthVerdict::Accept,
                    _ => AuthVerdict::Refuse(AuthFailure::WrongKey),
                };
                assert_eq!(at_client.verdict, Some(expected));
            }
        }
    }

    /// A server without a key accepts no client that begins to authenticate itself.
    #[test]
    fn without_a_key_nobody_is_accepted() {
        for required in [false, true] {
            let mut client = end(Role::Client, required, Some(7), 1);
            let mut server = end(Role::Server, required, None, 2);
            let (at_client, at_server) = outcome(&mut client, &mut server);
            assert_eq!(refusal(&at_server), Some(AuthFailure::NoKey));
            assert_eq!(refusal(&at_client), Some(AuthFailure::ByPeer));
            let mut client = end(Role::Client, required, None, 1);
            let mut server = end(Role::Server, required, Some(7), 2);
            let (at_client, _) = outcome(&mut client, &mut server);
            assert_eq!(refusal(&at_client), Some(AuthFailure::NoKey));
        }
    }

    /// Changing any octet of a token on its way is detected. The fill behind a token does not
    /// count.
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
            let expected = if malformed {
                AuthFailure::Malformed
            } else {
                AuthFailure::WrongKey
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
        // The nonce is changed on its way.
        for at in 12..44 {
            let mut client = end(Role::Client, true, Some(7), 1);
            let mut server = end(Role::Server, true, Some(7), 2);
            let hello = Sent::of(client.open().say).map(|sent| sent.spoilt(at));
            let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
            let step = hear(&mut client, challenge.as_ref(), false);
            assert_eq!(refusal(&step), Some(AuthFailure::WrongKey));
        }
    }

    /// Everything recorded on one connection is of no use on the next one.
    #[test]
    fn replays_are_refused() {
        let mut client = end(Role::Client, true, Some(7), 1);
        let mut server = end(Role::Server, true, Some(7), 2);
        let hello = Sent::of(client.open().say);
        let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
        let response = Sent::of(hear(&mut client, challenge.as_ref(), false).say);

        // The client's tokens are replayed to the same server later.
        let mut later = end(Role::Server, true, Some(7), 3);
        assert!(hear(&mut later, hello.as_ref(), false).say.is_some());
        let step = hear(&mut later, response.as_ref(), true);
        assert_eq!(refusal(&step), Some(AuthFailure::WrongKey));
        // The server's tokens are replayed to a client.
        let mut later = end(Role::Client, true, Some(7), 4);
        assert!(later.open().say.is_some());
        let step = hear(&mut later, challenge.as_ref(), false);
        assert_eq!(refusal(&step), Some(AuthFailure::WrongKey));
    }

    /// An end gets back its own token, or that of another end in the same role.
    #[test]
    fn reflections_are_refused() {
        // This holds even if both have the same nonce.
        for nonce in [1, 2] {
            let mut server = end(Role::Server, true, Some(7), 1);
            let mut other = end(Role::Server, true, Some(7), nonce);
            let mut client = end(Role::Client, true, Some(7), nonce);
            let hello = Sent::of(client.open().say);
            let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
            // A challenge is not a response, even if its kind is changed from 2 to 3.
            assert!(hear(&mut other, hello.as_ref(), false).say.is_some());
            let step = hear(
                &mut other,
                challenge.map(|sent| sent.spoilt(11)).as_ref(),
                true,
            );
            assert!(refusal(&step).is_some());
            // A hello is not a challenge.
            let step = hear(&mut client, hello.as_ref(), false);
            assert_eq!(refusal(&step), Some(AuthFailure::Malformed));
        }
        // The two proofs of one connection differ.
        let policy = |role| PreSharedKey::new(role, true, Toy(Some(7)), [1; 32], ends(), 0);
        let nonce = [1; 32];
        let one = policy(Role::Client).mac(Role::Client, &nonce);
        let two = policy(Role::Client).mac(Role::Server, &nonce);
        assert_ne!(one, two);
        assert_eq!(one, policy(Role::Server).mac(Role::Client, &nonce));
    }

    /// The same nonces do not work between other ends, nor with the ends swapped.
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
            let mut server = Authentication::new(Role::Server, policy);
            let mut client = end(Role::Client, true, Some(7), 1);
            let (at_client, _) = outcome(&mut client, &mut server);
            assert_eq!(refusal(&at_client), Some(AuthFailure::WrongKey));
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

    /// A peer that begins to authenticate itself and stops is refused, even where it is optional.
    #[test]
    fn half_an_authentication_is_refused() {
        let mut client = end(Role::Client, false, Some(7), 1);
        let mut server = end(Role::Server, false, Some(7), 2);
        let hello = Sent::of(client.open().say);
        assert!(hear(&mut server, hello.as_ref(), false).say.is_some());
        let step = hear(&mut server, None, true);
        assert_eq!(refusal(&step), Some(AuthFailure::Absent));
    }

    /// A server that does not require a proof of the client may conclude at once.
    #[test]
    fn a_server_may_prove_itself_only() {
        let mut client = end(Role::Client, true, Some(7), 1);
        let mut server = end(Role::Server, true, Some(7), 2);
        let hello = Sent::of(client.open().say);
        let challenge = Sent::of(hear(&mut server, hello.as_ref(), false).say);
        let step = hear(&mut client, challenge.as_ref(), true);
        assert_eq!(step.verdict, Some(AuthVerdict::Accept));
        assert!(step.say.is_some_and(|say| say.last));
    }
}
