// SPDX-License-Identifier: GPL-2.0

//! Host authentication (draft-ietf-nfsv4-rpcrdma-version-two-07, 5.2.6).
//!
//! The draft defines a property for it, with an opaque value, and CONNPROP messages that follow one
//! another. It does not define the value, nor the transport of a value that does not fit one
//! message, nor the effect of the exchange. Everything here except the property itself is therefore
//! specific to this project:
//!
//! - One statement of an end is a *token*. It begins with eight octets: [`SCHEME`], which names the
//!   scheme, and the size of the rest. The host authentication material of consecutive CONNPROP
//!   messages is joined until the token is complete. A message may have no material. If material is
//!   of another scheme, it is ignored, and so is all material after it.
//! - A token with an empty rest is a refusal: the server announces that it will close the
//!   connection.
//! - Each end sends all its tokens before its CONNPROP_FINAL, or in it.
//!
//! An [`Authentication`] reassembles tokens and passes them to a [`Policy`], which decides: it
//! accepts the peer, refuses it, or needs no authentication of it. The owner provides the memory
//! ([`Store`]), sends the data that it is given, and closes the connection of a refused peer.
//!
//! The memory and work that a peer can cause are bounded: [`MAX_TOKEN`] octets at a time, and
//! [`MAX_MESSAGES`] messages in all. The session detects a peer that stops in the middle.

pub(crate) mod psk;
pub(crate) mod saying;
pub(crate) mod settlement;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

use super::session::Role;

/// The name of the scheme: "RPRX". It is not registered.
pub(crate) const SCHEME: [u8; 4] = *b"RPRX";

/// The octets in front of each token: the scheme, and the size of the rest.
pub(crate) const HEADER_LEN: usize = 8;

/// The largest token in octets, without the [`HEADER_LEN`] octets in front of it.
pub(crate) const MAX_TOKEN: u32 = 16 << 10;

/// The largest number of CONNPROP messages before the peer is accepted. The largest token takes 64
/// of 256 octets, and as many more may carry only credits.
pub(crate) const MAX_MESSAGES: u32 = 128;

/// The administrator's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No authentication.
    Off,
    /// Authentication with peers that support it. Other peers are treated as with [`Self::Off`].
    Offer,
    /// Peers that do not authenticate themselves are refused.
    Require,
}

/// The reason for refusing a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthFailure {
    /// The peer has not sent a token that the scheme requires.
    Absent,
    /// The peer has sent a token that is malformed, or at the wrong time.
    Malformed,
    /// The peer's token is larger than allowed.
    TooLong,
    /// The peer does not finish within [`MAX_MESSAGES`].
    TooMany,
    /// The peer's proof was not made with our key.
    WrongKey,
    /// The peer refuses us.
    ByPeer,
    /// The peer does not speak Version Two, without which there is no authentication.
    Version,
    /// We have no key.
    NoKey,
    /// No memory is left for the peer's token.
    NoMemory,
}

impl AuthFailure {
    /// Returns a short text for the log.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Absent => "no authentication data received",
            Self::Malformed => "malformed data",
            Self::TooLong => "data longer than 16 KiB",
            Self::TooMany => "more than 128 messages",
            Self::WrongKey => "keys differ",
            Self::ByPeer => "rejected by the peer, see its log",
            Self::Version => "peer speaks only Version One",
            Self::NoKey => "host_auth_key not set on this host",
            Self::NoMemory => "out of memory",
        }
    }
}

/// The decision about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthVerdict {
    /// The peer has proved its identity.
    Accept,
    /// The peer was not authenticated, and does not have to be.
    Ignore,
    /// The connection must be closed.
    Refuse(AuthFailure),
}

/// Decides about a peer. This is the hook for authentication schemes.
pub(crate) trait Policy {
    /// Returns the first token of a client, or [`None`] if it has none.
    fn open(&mut self) -> Option<Token>;

    /// Handles a token of the peer. Returns the token to answer with, if any.
    ///
    /// # Errors
    ///
    /// The reason for refusing the peer.
    fn heard(&mut self, token: &[u8]) -> Result<Option<Token>, AuthFailure>;

    /// Decides about the peer, which sends no more tokens.
    fn conclude(&self) -> AuthVerdict;
}

/// Stores the peer's token until it is complete.
pub(crate) trait Store {
    /// Discards the contents and makes room for `len` octets. Returns `None` if there is no memory.
    fn begin(&mut self, len: u32) -> Option<()>;

    /// Stores octets at `offset`. Returns `None` if there is no room for them.
    fn put(&mut self, offset: u32, piece: &[u8]) -> Option<()>;

    /// Returns the whole token. Call this only when it is complete.
    fn bytes(&self) -> &[u8];
}

/// A token to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The octets in front of the fill.
    body: [u8; Self::MAX],
    /// The number of octets of `body` in use.
    len: usize,
    /// The number of zeroes behind the body.
    fill: u32,
    /// True if this end sends no token after this one.
    last: bool,
}

impl Token {
    /// The size of the longest body in octets.
    const MAX: usize = 128;

    /// Makes a token of `parts`, followed by `fill` zeroes, or by fewer if the token would be too
    /// large. `last` says that this end sends no token after it.
    fn new(parts: &[&[u8]], fill: u32, last: bool) -> Self {
        let mut token = Self {
            body: [0; Self::MAX],
            len: 0,
            fill: 0,
            last,
        };
        for part in parts {
            let end = token.len.saturating_add(part.len());
            if let Some(place) = token.body.get_mut(token.len..end) {
                place.copy_from_slice(part);
                token.len = end;
            }
        }
        let len = u32::try_from(token.len).unwrap_or(MAX_TOKEN);
        token.fill = fill.min(MAX_TOKEN.saturating_sub(len));
        token
    }

    /// Returns the size in octets, including the [`HEADER_LEN`] octets in front.
    pub(crate) fn len(&self) -> usize {
        let fill = usize::try_from(self.fill).unwrap_or(0);
        HEADER_LEN.saturating_add(self.len).saturating_add(fill)
    }

    /// Writes the token to the front of `out`, which must be zeroed. Returns `None` if it does not
    /// fit.
    pub(crate) fn write(&self, out: &mut [u8]) -> Option<()> {
        let rest = u32::try_from(self.len().checked_sub(HEADER_LEN)?).ok()?;
        let mut at = 0_usize;
        for part in [&SCHEME[..], &rest.to_be_bytes(), self.body.get(..self.len)?] {
            let end = at.checked_add(part.len())?;
            out.get_mut(at..end)?.copy_from_slice(part);
            at = end;
        }
        (self.len() <= out.len()).then_some(())
    }
}

/// Returns whether `material` is a refusal. An end that does not authenticate itself can receive
/// one, too.
pub(crate) fn is_refusal(material: &[u8]) -> bool {
    material.split_first_chunk::<4>() == Some((&SCHEME, &[0; 4]))
}

/// The contents of one or more CONNPROP messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Say {
    /// The token, which is the host authentication material.
    pub(crate) token: Option<Token>,
    /// True if the last message is our CONNPROP_FINAL.
    pub(crate) last: bool,
    /// True if the last message carries our properties.
    pub(crate) properties: bool,
}

/// The actions that follow from an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Step {
    /// The data to send. It replaces all data that is still unsent.
    pub(crate) say: Option<Say>,
    /// The decision about the peer, if it was made in this step.
    pub(crate) verdict: Option<AuthVerdict>,
}

/// The progress of receiving a token.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// The size of the token in octets.
    total: u32,
    /// The number of octets received.
    received: u32,
}

/// The authentication of both ends of a connection, seen from one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Authentication<P> {
    /// The role of this end.
    role: Role,
    /// The scheme, which decides.
    policy: P,
    /// The token that is being received.
    arriving: Option<Arriving>,
    /// The number of CONNPROP messages received.
    messages: u32,
    /// True if the peer's material is of another scheme.
    foreign: bool,
    /// True if this end has sent its last token.
    said_all: bool,
    /// The decision about the peer.
    verdict: Option<AuthVerdict>,
}

impl<P: Policy> Authentication<P> {
    /// Starts the exchange of a new connection.
    pub(crate) fn new(role: Role, policy: P) -> Self {
        Self {
            role,
            policy,
            arriving: None,
            messages: 0,
            foreign: false,
            said_all: false,
            verdict: None,
        }
    }

    /// Returns the data to send before anything is received. Only a client begins.
    pub(crate) fn open(&mut self) -> Step {
        let token = match self.role {
            Role::Client => self.policy.open(),
            Role::Server => return Step::default(),
        };
        Step {
            say: Some(self.say(token)),
            verdict: None,
        }
    }

    /// Handles one CONNPROP message of the peer. `material` is its host authentication material, if
    /// any; `last` says that the message was a CONNPROP_FINAL.
    pub(crate) fn receive(
        &mut self,
        material: Option<&[u8]>,
        last: bool,
        store: &mut impl Store,
    ) -> Step {
        if self.verdict.is_some() {
            return Step::default();
        }
        let result = self.take(material, last, store);
        let step = result.unwrap_or_else(|why| self.refuse(why));
        self.verdict = step.verdict;
        step
    }

    /// Handles a peer that sends something other than its properties first.
    pub(crate) fn skipped(&mut self, store: &mut impl Store) -> Step {
        self.receive(None, true, store)
    }

    /// Returns whether a part of a token was received, so that the store is in use.
    pub(crate) fn is_collecting(&self) -> bool {
        self.arriving.is_some()
    }

    /// Does the work of [`Self::receive`].
    fn take(
        &mut self,
        material: Option<&[u8]>,
        last: bool,
        store: &mut impl Store,
    ) -> Result<Step, AuthFailure> {
        self.messages = self.messages.saturating_add(1);
        if self.messages > MAX_MESSAGES {
            return Err(AuthFailure::TooMany);
        }
        let mut step = Step::default();
        let piece = material.filter(|piece| !piece.is_empty() && !self.foreign);
        if let Some(piece) = piece {
            if self.collect(piece, store)? {
                if store.bytes().is_empty() {
                    return Err(AuthFailure::ByPeer);
                }
                let answer = self.policy.heard(store.bytes())?;
                step.say = answer.map(|token| self.say(Some(token)));
            }
        }
        if !last {
            return Ok(step);
        }
        if self.arriving.is_some() {
            return Err(AuthFailure::Malformed);
        }
        let verdict = self.policy.conclude();
        if let AuthVerdict::Refuse(why) = verdict {
            return Err(why);
        }
        step.verdict = Some(verdict);
        if !self.said_all {
            self.said_all = true;
            step.say = Some(Say {
                token: step.say.and_then(|say| say.token),
                last: true,
                properties: true,
            });
        }
        Ok(step)
    }

    /// Adds a piece to the token that is being received. Returns whether the token is complete.
    fn collect(&mut self, piece: &[u8], store: &mut impl Store) -> Result<bool, AuthFailure> {
        let (mut arriving, piece) = match self.arriving {
            Some(arriving) => (arriving, piece),
            None => {
                let Some((&SCHEME, rest)) = piece.split_first_chunk::<4>() else {
                    self.foreign = true;
                    return Ok(false);
                };
                let (total, rest) = rest
                    .split_first_chunk::<4>()
                    .ok_or(AuthFailure::Malformed)?;
                let total = u32::from_be_bytes(*total);
                if total > MAX_TOKEN {
                    return Err(AuthFailure::TooLong);
                }
                store.begin(total).ok_or(AuthFailure::NoMemory)?;
                (Arriving { total, received: 0 }, rest)
            }
        };
        let len = u32::try_from(piece.len()).map_err(|_| AuthFailure::TooLong)?;
        let received = arriving
            .received
            .checked_add(len)
            .filter(|received| *received <= arriving.total)
            .ok_or(AuthFailure::Malformed)?;
        store
            .put(arriving.received, piece)
            .ok_or(AuthFailure::Malformed)?;
        arriving.received = received;
        let complete = received == arriving.total;
        self.arriving = (!complete).then_some(arriving);
        Ok(complete)
    }

    /// Returns the data to send for `token`. Without a token, this is the data of an end that has
    /// nothing to send.
    fn say(&mut self, token: Option<Token>) -> Say {
        let last = token.is_none_or(|token| token.last);
        self.said_all |= last;
        Say {
            token,
            last,
            properties: last,
        }
    }

    /// Refuses the peer. A server tells the client, so that the client learns the reason; a client
    /// tells nothing.
    fn refuse(&mut self, why: AuthFailure) -> Step {
        self.arriving = None;
        let tell = self.role == Role::Server && !self.said_all;
        Step {
            say: tell.then(|| Say {
                token: Some(Token::new(&[], 0, true)),
                last: true,
                properties: false,
            }),
            verdict: Some(AuthVerdict::Refuse(why)),
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_auth)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        testing::{
            end,
            hear,
            refusal,
            Kept,
            Sent, //
        },
        *, //
    };

    /// The CONNPROP_FINAL of an end that has nothing more to send, without material.
    const FINAL: Say = Say {
        token: None,
        last: true,
        properties: true,
    };

    /// Material that follows that of another scheme is of that one too, whatever it looks like.
    #[test]
    fn another_scheme_stays_another() {
        let mut server = end(Role::Server, false, Some(1), 2);
        let mut store = Kept::new();
        // The second would be a token that is too long.
        for material in [&b"XPRX\0\0\0\x01"[..], b"RPRX\xff\xff\xff\xff"] {
            let step = server.receive(Some(material), false, &mut store);
            assert_eq!(step, Step::default());
            assert!(!server.is_collecting());
        }
    }

    /// A token may come in any pieces, with messages without material between them.
    #[test]
    fn tokens_are_put_together() -> Result<(), AuthFailure> {
        for size in 8..50 {
            let mut client = end(Role::Client, true, Some(1), 1);
            let mut server = end(Role::Server, true, Some(1), 2);
            let hello = Sent::of(client.open().say).ok_or(AuthFailure::Absent)?;
            let mut store = Kept::new();
            let mut answered = 0_u32;
            for piece in hello.get().chunks(size) {
                let step = server.receive(Some(piece), false, &mut store);
                assert_eq!(step.verdict, None);
                answered = answered.saturating_add(u32::from(step.say.is_some()));
                assert_eq!(server.receive(None, false, &mut store), Step::default());
                assert_eq!(
                    server.receive(Some(b""), false, &mut store),
                    Step::default()
                );
            }
            assert_eq!(answered, 1);
        }
        Ok(())
    }

    /// A malformed first token is refused, whatever is wrong with it.
    #[test]
    fn what_makes_no_sense_is_refused() {
        for (piece, why) in [
            (&b"RPRX"[..], AuthFailure::Malformed),
            (b"RPRX\0\0\0", AuthFailure::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\0\0", AuthFailure::Malformed),
            (b"RPRX\0\0\0\x02\0\0", AuthFailure::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\x01", AuthFailure::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\x02", AuthFailure::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\x09", AuthFailure::Malformed),
            (b"RPRX\0\0\x40\x01", AuthFailure::TooLong),
            (b"RPRX\xff\xff\xff\xff", AuthFailure::TooLong),
            (b"RPRX\0\0\x40\0", AuthFailure::NoMemory),
            (b"RPRX\0\0\0\0", AuthFailure::ByPeer),
        ] {
            for role in [Role::Client, Role::Server] {
                for required in [false, true] {
                    let mut end = end(role, required, Some(1), 1);
                    let _ = end.open();
                    let step = end.receive(Some(piece), false, &mut Kept::new());
                    assert_eq!(refusal(&step), Some(why));
                    // A server announces the refusal in its CONNPROP_FINAL.
                    let told = Sent::of(step.say).is_some_and(|sent| is_refusal(sent.get()));
                    assert_eq!(told, role == Role::Server);
                    // Nothing is sent or accepted after that.
                    let again = end.receive(Some(b"RPRX\0\0\0\0"), true, &mut Kept::new());
                    assert_eq!(again, Step::default());
                }
            }
        }
    }

    /// A token that its sender does not complete.
    #[test]
    fn an_unfinished_token_is_refused() {
        for last in [false, true] {
            let mut server = end(Role::Server, false, Some(1), 1);
            assert!(!server.is_collecting());
            let piece = b"RPRX\0\0\0\x24\0\0\0\x01";
            let step = server.receive(Some(piece), last, &mut Kept::new());
            assert_eq!(refusal(&step), last.then_some(AuthFailure::Malformed));
            // The rest may come.
            assert!(last || server.is_collecting());
        }
    }

    /// A peer that keeps sending messages without a token.
    #[test]
    fn there_is_an_end_to_it() {
        for required in [false, true] {
            let mut server = end(Role::Server, required, Some(1), 1);
            let mut store = Kept::new();
            for _ in 0..MAX_MESSAGES {
                assert_eq!(server.receive(None, false, &mut store), Step::default());
            }
            let step = server.receive(None, false, &mut store);
            assert_eq!(refusal(&step), Some(AuthFailure::TooMany));
        }
    }

    /// Section 5.2.6: a peer without this property is not authenticated, and local policy says
    /// whether the connection goes on.
    #[test]
    fn policy_decides_about_peers_without_authentication() {
        for material in [None, Some(&b""[..]), Some(b"GSSAPI"), Some(b"x")] {
            for role in [Role::Client, Role::Server] {
                let mut store = Kept::new();
                let mut indifferent = end(role, false, Some(1), 1);
                let _ = indifferent.open();
                let step = indifferent.receive(material, false, &mut store);
                assert_eq!(step, Step::default());
                let step = indifferent.receive(material, true, &mut store);
                assert_eq!(step.verdict, Some(AuthVerdict::Ignore));
                assert_eq!(step.say, Some(FINAL));

                let mut strict = end(role, true, Some(1), 1);
                let _ = strict.open();
                let step = strict.receive(material, true, &mut store);
                assert_eq!(refusal(&step), Some(AuthFailure::Absent));

                // A peer sends RPC messages without having sent any properties.
                let mut strict = end(role, true, Some(1), 1);
                let step = strict.skipped(&mut store);
                assert_eq!(refusal(&step), Some(AuthFailure::Absent));
                let mut indifferent = end(role, false, Some(1), 1);
                let step = indifferent.skipped(&mut store);
                assert_eq!(step.verdict, Some(AuthVerdict::Ignore));
            }
        }
    }

    /// The exchange when nothing goes wrong.
    #[test]
    fn both_ends_are_accepted() {
        let mut client = end(Role::Client, true, Some(1), 1);
        let mut server = end(Role::Server, true, Some(1), 2);
        assert_eq!(server.open(), Step::default());
        let hello = Sent::of(client.open().say);
        let step = hear(&mut server, hello.as_ref(), false);
        assert!(step.say.is_some_and(|say| !say.last && !say.properties));
        let challenge = Sent::of(step.say);
        let step = hear(&mut client, challenge.as_ref(), false);
        // The client has accepted the server now, but does not know whether the server accepts it.
        assert!(step.say.is_some_and(|say| say.last && say.properties));
        assert_eq!(step.verdict, None);
        let response = Sent::of(step.say);
        let step = hear(&mut server, response.as_ref(), true);
        assert_eq!(step.verdict, Some(AuthVerdict::Accept));
        assert_eq!(step.say, Some(FINAL));
        let step = hear(&mut client, None, true);
        assert_eq!(step.verdict, Some(AuthVerdict::Accept));
        assert_eq!(step.say, None);
    }

    #[test]
    fn tokens_have_a_limit() {
        let token = Token::new(&[b"abc"], u32::MAX, true);
        assert_eq!(token.len(), 8 + (16 << 10));
        let mut out = [0; 16];
        assert_eq!(token.write(&mut out), None);
        let token = Token::new(&[b"abc"], 2, true);
        assert_eq!(token.write(&mut out), Some(()));
        assert!(out.get(..14) == Some(&b"RPRX\0\0\0\x05abc\0\0\0"[..]));
        assert!(is_refusal(b"RPRX\0\0\0\0"));
        assert!(!is_refusal(b"RPRX\0\0\0\x01"));
        assert!(!is_refusal(b"RPRX"));
    }
}
