// SPDX-License-Identifier: GPL-2.0

//! Host authentication (draft-ietf-nfsv4-rpcrdma-version-two-07, 5.2.6).
//!
//! The draft has a property for it the value of which is opaque, and CONNPROP messages that follow
//! one another. It says neither what the value is, nor how a value is carried that does not fit one
//! message, nor what the result of it all is. So everything here but the property itself is this
//! project's own:
//!
//! - What one end has to say at a time is a *token*. It begins with eight octets: [`SCHEME`], which
//!   names the scheme, and the length of the rest. The host authentication material of consecutive
//!   CONNPROP messages is put together until the token is complete. A message may have no material;
//!   one that has some of another scheme says nothing to us, and nor does all that follows.
//! - A token of no length is a refusal: the server says that it will end the connection.
//! - Each end says everything that it has to say before its CONNPROP_FINAL, or in it.
//!
//! An [`Exchange`] puts tokens together and shows them to a [`Policy`], which decides: a peer is
//! accepted, refused, or its authentication is of no interest. The owner keeps the memory
//! ([`Store`]), sends what it is told to and ends the connection of a peer that is refused.
//!
//! What a peer can make us keep or do is bounded: [`MAX_TOKEN`] octets at a time, and
//! [`MAX_MESSAGES`] messages in all. That it does not go on in time is seen by the session.

pub(crate) mod psk;
pub(crate) mod saying;
#[cfg(any(test, rpcrdma_kunit))]
mod testing;

use super::session::Role;

/// The name of the scheme: "RPRX". It is not registered with anybody.
pub(crate) const SCHEME: [u8; 4] = *b"RPRX";

/// The octets in front of each token: the scheme, and the length of the rest.
pub(crate) const HEADER_LEN: usize = 8;

/// The longest token in octets, without those in front.
pub(crate) const MAX_TOKEN: u32 = 16 << 10;

/// How many CONNPROP messages may come before the peer is accepted. The longest token takes 64 of
/// 256 octets, and there may be as many that carry credits only.
pub(crate) const MAX_MESSAGES: u32 = 128;

/// What an administrator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No authentication.
    Off,
    /// Authentication with peers that want it too. Others are dealt with as if it were off.
    Offer,
    /// Peers that do not authenticate themselves are refused.
    Require,
}

/// Why a peer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It has not said what it has to.
    Absent,
    /// It has said something that makes no sense, or at the wrong time.
    Malformed,
    /// It wants to say more than may be said at a time.
    TooLong,
    /// It does not come to an end.
    TooMany,
    /// Its proof is not that of who has the key.
    WrongKey,
    /// It refuses us.
    ByPeer,
    /// It does not speak Version Two, without which there is no authentication.
    Version,
    /// We have no key.
    NoKey,
    /// There is no memory for what it says.
    NoMemory,
}

impl Why {
    /// A few words, for a log.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Absent => "it does not authenticate itself",
            Self::Malformed => "what it says makes no sense",
            Self::TooLong => "it has too much to say",
            Self::TooMany => "it does not come to an end",
            Self::WrongKey => "it has another key",
            Self::ByPeer => "it refuses this host",
            Self::Version => "it does not speak Version Two",
            Self::NoKey => "there is no key here",
            Self::NoMemory => "there is no memory",
        }
    }
}

/// What is thought of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is who it says it is.
    Accept,
    /// Nobody knows, and nobody wants to.
    Ignore,
    /// The connection is to be ended.
    Refuse(Why),
}

/// Decides about a peer: the hook for schemes of authentication.
pub(crate) trait Policy {
    /// What a client says first; [`None`] if there is nothing.
    fn open(&mut self) -> Option<Token>;

    /// The peer has said something. What is to be answered is returned, if anything.
    ///
    /// # Errors
    ///
    /// Why the peer is refused.
    fn heard(&mut self, token: &[u8]) -> Result<Option<Token>, Why>;

    /// The peer has nothing to say any more. What is thought of it?
    fn conclude(&self) -> Verdict;
}

/// Where what the peer says is kept until it is complete.
pub(crate) trait Store {
    /// Forgets what there was, and makes room for so many octets.
    fn begin(&mut self, len: u32) -> Option<()>;

    /// Keeps octets from an offset on.
    fn put(&mut self, offset: u32, piece: &[u8]) -> Option<()>;

    /// Everything, when it is complete.
    fn bytes(&self) -> &[u8];
}

/// Something to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// What there is beside zeroes.
    body: [u8; Self::MAX],
    /// How much of it is used.
    len: usize,
    /// How many zeroes follow.
    fill: u32,
    /// Whether there is nothing else to be said afterwards.
    last: bool,
}

impl Token {
    /// The longest body in octets.
    const MAX: usize = 128;

    /// One that consists of `parts`, and of `fill` zeroes behind them, as far as there may be so
    /// many. `last` says that it is the last one of this end.
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

    /// How long it is in octets, with those in front.
    pub(crate) fn len(&self) -> usize {
        let fill = usize::try_from(self.fill).unwrap_or(0);
        HEADER_LEN.saturating_add(self.len).saturating_add(fill)
    }

    /// Writes it to the front of `out`, which is zero and has room for it.
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

/// Returns whether material is a refusal, also for an end that does not authenticate itself.
pub(crate) fn is_refusal(material: &[u8]) -> bool {
    material.split_first_chunk::<4>() == Some((&SCHEME, &[0; 4]))
}

/// What is to be sent, in one CONNPROP message or in several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Say {
    /// The material.
    pub(crate) token: Option<Token>,
    /// Whether the last message is our CONNPROP_FINAL.
    pub(crate) last: bool,
    /// Whether it tells our properties.
    pub(crate) properties: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Step {
    /// Send this, and nothing else of what was to be sent before.
    pub(crate) say: Option<Say>,
    /// This is thought of the peer from now on.
    pub(crate) verdict: Option<Verdict>,
}

/// What has come of a token.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// How long it is.
    total: u32,
    /// How much of it is there.
    received: u32,
}

/// The authentication of both ends of a connection, seen from one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange<P> {
    /// Which end this is.
    role: Role,
    /// Who decides.
    policy: P,
    /// The token that is coming.
    arriving: Option<Arriving>,
    /// How many CONNPROP messages have come.
    messages: u32,
    /// What comes is of another scheme.
    foreign: bool,
    /// We have said everything.
    said_all: bool,
    /// What is thought of the peer.
    verdict: Option<Verdict>,
}

impl<P: Policy> Exchange<P> {
    /// Of a new connection.
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

    /// What is sent before anything is received: a client begins.
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

    /// The peer's host authentication material of one CONNPROP message has come, if there was any;
    /// `last` says whether the message was a CONNPROP_FINAL.
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

    /// The peer does something else than to tell its properties.
    pub(crate) fn skipped(&mut self, store: &mut impl Store) -> Step {
        self.receive(None, true, store)
    }

    /// Returns whether a part of a token is there, and the store is needed.
    pub(crate) fn is_collecting(&self) -> bool {
        self.arriving.is_some()
    }

    /// Does the work of [`Self::receive`].
    fn take(
        &mut self,
        material: Option<&[u8]>,
        last: bool,
        store: &mut impl Store,
    ) -> Result<Step, Why> {
        self.messages = self.messages.saturating_add(1);
        if self.messages > MAX_MESSAGES {
            return Err(Why::TooMany);
        }
        let mut step = Step::default();
        let piece = material.filter(|piece| !piece.is_empty() && !self.foreign);
        if let Some(piece) = piece {
            if self.collect(piece, store)? {
                if store.bytes().is_empty() {
                    return Err(Why::ByPeer);
                }
                let answer = self.policy.heard(store.bytes())?;
                step.say = answer.map(|token| self.say(Some(token)));
            }
        }
        if !last {
            return Ok(step);
        }
        if self.arriving.is_some() {
            return Err(Why::Malformed);
        }
        let verdict = self.policy.conclude();
        if let Verdict::Refuse(why) = verdict {
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

    /// Adds a piece to what has come. Returns whether that is a token now.
    fn collect(&mut self, piece: &[u8], store: &mut impl Store) -> Result<bool, Why> {
        let (mut arriving, piece) = match self.arriving {
            Some(arriving) => (arriving, piece),
            None => {
                let Some((&SCHEME, rest)) = piece.split_first_chunk::<4>() else {
                    self.foreign = true;
                    return Ok(false);
                };
                let (total, rest) = rest.split_first_chunk::<4>().ok_or(Why::Malformed)?;
                let total = u32::from_be_bytes(*total);
                if total > MAX_TOKEN {
                    return Err(Why::TooLong);
                }
                store.begin(total).ok_or(Why::NoMemory)?;
                (Arriving { total, received: 0 }, rest)
            }
        };
        let len = u32::try_from(piece.len()).map_err(|_| Why::TooLong)?;
        let received = arriving
            .received
            .checked_add(len)
            .filter(|received| *received <= arriving.total)
            .ok_or(Why::Malformed)?;
        store.put(arriving.received, piece).ok_or(Why::Malformed)?;
        arriving.received = received;
        let complete = received == arriving.total;
        self.arriving = (!complete).then_some(arriving);
        Ok(complete)
    }

    /// What is sent to say something; or what a client that has nothing to say sends.
    fn say(&mut self, token: Option<Token>) -> Say {
        let last = token.is_none_or(|token| token.last);
        self.said_all |= last;
        Say {
            token,
            last,
            properties: last,
        }
    }

    /// The peer is refused. A server says so, a client does not: it is the one that learns why.
    fn refuse(&mut self, why: Why) -> Step {
        self.arriving = None;
        let tell = self.role == Role::Server && !self.said_all;
        Step {
            say: tell.then(|| Say {
                token: Some(Token::new(&[], 0, true)),
                last: true,
                properties: false,
            }),
            verdict: Some(Verdict::Refuse(why)),
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

    /// What an end does that has said everything: its CONNPROP_FINAL, without material.
    const FINAL: Say = Say {
        token: None,
        last: true,
        properties: true,
    };

    /// A token may come in any pieces, and with messages in between that have no material.
    #[test]
    fn tokens_are_put_together() -> Result<(), Why> {
        for size in 8..50 {
            let mut client = end(Role::Client, true, Some(1), 1);
            let mut server = end(Role::Server, true, Some(1), 2);
            let hello = Sent::of(client.open().say).ok_or(Why::Absent)?;
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

    /// Whatever is said first, and however it is wrong.
    #[test]
    fn what_makes_no_sense_is_refused() {
        for (piece, why) in [
            (&b"RPRX"[..], Why::Malformed),
            (b"RPRX\0\0\0", Why::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\0\0", Why::Malformed),
            (b"RPRX\0\0\0\x02\0\0", Why::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\x01", Why::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\x02", Why::Malformed),
            (b"RPRX\0\0\0\x04\0\0\0\x09", Why::Malformed),
            (b"RPRX\0\0\x40\x01", Why::TooLong),
            (b"RPRX\xff\xff\xff\xff", Why::TooLong),
            (b"RPRX\0\0\x40\0", Why::NoMemory),
            (b"RPRX\0\0\0\0", Why::ByPeer),
        ] {
            for role in [Role::Client, Role::Server] {
                for required in [false, true] {
                    let mut end = end(role, required, Some(1), 1);
                    let _ = end.open();
                    let step = end.receive(Some(piece), false, &mut Kept::new());
                    assert_eq!(refusal(&step), Some(why));
                    // A server says that it refuses, in its CONNPROP_FINAL.
                    let told = Sent::of(step.say).is_some_and(|sent| is_refusal(sent.get()));
                    assert_eq!(told, role == Role::Server);
                    // There is nothing more to be said or heard.
                    let again = end.receive(Some(b"RPRX\0\0\0\0"), true, &mut Kept::new());
                    assert_eq!(again, Step::default());
                }
            }
        }
    }

    /// A token that its sender does not bring to an end.
    #[test]
    fn an_unfinished_token_is_refused() {
        let mut server = end(Role::Server, false, Some(1), 1);
        let step = server.receive(Some(b"RPRX\0\0\0\x24\0\0\0\x01"), true, &mut Kept::new());
        assert_eq!(refusal(&step), Some(Why::Malformed));
    }

    /// A peer that goes on for ever without saying anything.
    #[test]
    fn there_is_an_end_to_it() {
        for required in [false, true] {
            let mut server = end(Role::Server, required, Some(1), 1);
            let mut store = Kept::new();
            for _ in 0..MAX_MESSAGES {
                assert_eq!(server.receive(None, false, &mut store), Step::default());
            }
            let step = server.receive(None, false, &mut store);
            assert_eq!(refusal(&step), Some(Why::TooMany));
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
                assert_eq!(step.verdict, Some(Verdict::Ignore));
                assert_eq!(step.say, Some(FINAL));

                let mut strict = end(role, true, Some(1), 1);
                let _ = strict.open();
                let step = strict.receive(material, true, &mut store);
                assert_eq!(refusal(&step), Some(Why::Absent));

                // One that sends RPC messages without having told any properties.
                let mut strict = end(role, true, Some(1), 1);
                let step = strict.skipped(&mut store);
                assert_eq!(refusal(&step), Some(Why::Absent));
                let mut indifferent = end(role, false, Some(1), 1);
                let step = indifferent.skipped(&mut store);
                assert_eq!(step.verdict, Some(Verdict::Ignore));
            }
        }
    }

    /// The way it goes if everything is right.
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
        // The client knows the server now, but not whether the server accepts it.
        assert!(step.say.is_some_and(|say| say.last && say.properties));
        assert_eq!(step.verdict, None);
        let response = Sent::of(step.say);
        let step = hear(&mut server, response.as_ref(), true);
        assert_eq!(step.verdict, Some(Verdict::Accept));
        assert_eq!(step.say, Some(FINAL));
        let step = hear(&mut client, None, true);
        assert_eq!(step.verdict, Some(Verdict::Accept));
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
