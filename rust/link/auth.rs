// SPDX-License-Identifier: GPL-2.0

//! Host authentication of a connection (section 5.2.6 of the draft): what [`crate::proto::auth`]
//! wants kept and sent.
//!
//! # Who owns what, and what ends it
//!
//! An [`Auth`] is part of a [`Channel`](super::channel::Channel). Its mutex is taken by the handler
//! of Receives, by the maker of the channel, and once by the thread that finds that the peer has
//! had its time; so next to nobody waits for it. What the peer says is kept here until it is
//! complete, in memory that counts like that of RPC messages in parts ([`super::assembly`]), and
//! given back then. A token is shorter than what each connection may keep, so none is refused
//! because others keep much, or have said half of theirs. What must be sent, a [`Next`], is handed
//! to the channel, which keeps it in a [`Settlement`](crate::proto::auth::settlement::Settlement)
//! under its spinlock.

use crate::kext::host_key;
use crate::kext::memalloc::NoFs;
use crate::kext::prelude::*;
use crate::link::assembly::{
    Share,
    Whole, //
};
use crate::proto::auth::psk::{
    Address,
    Crypto,
    Ends,
    PreSharedKey,
    MAC_LEN, //
};
use crate::proto::auth::{
    AuthFailure,
    AuthVerdict,
    Authentication,
    Mode,
    Step,
    Store,
    Token, //
};
use crate::proto::session::Role;
use crate::sunrpc::AddressText;

/// The wishes of an administrator for connections that are made now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AuthWanted {
    /// The mode: off, if the peer can, or required.
    pub(crate) mode: Mode,
    /// Octets that make the material longer.
    pub(crate) padding: u32,
}

impl AuthWanted {
    /// Returns whether peers that do not authenticate themselves are refused.
    pub(crate) fn is_required(&self) -> bool {
        self.mode == Mode::Require
    }
}

/// The parameters of a connection's authentication.
pub(crate) struct AuthParameters {
    /// The wishes of an administrator.
    pub(crate) wanted: AuthWanted,
    /// The client's address.
    pub(crate) client: AddressText,
    /// The server's.
    pub(crate) server: AddressText,
}

impl AuthParameters {
    /// Returns whether there is any authentication. An end that offers it without a key has nothing
    /// to offer; one that requires it without a key refuses every peer.
    pub(super) fn is_on(&self) -> bool {
        match self.wanted.mode {
            Mode::Off => false,
            Mode::Offer => host_key::exists(),
            Mode::Require => true,
        }
    }
}

/// The key that an administrator has set, whichever that is at the time.
#[derive(Clone, Copy)]
struct HostKey;

impl Crypto for HostKey {
    fn mac(&self, data: &[u8]) -> Option<[u8; MAC_LEN]> {
        host_key::mac(data)
    }

    fn is_equal(&self, one: &[u8; MAC_LEN], other: &[u8; MAC_LEN]) -> bool {
        host_key::is_equal(one, other)
    }
}

/// The part of a token that has come.
struct Kept {
    /// The token, as far as it has come.
    token: Option<Whole>,
    /// Where it counts.
    share: Arc<Share>,
}

impl Store for Kept {
    fn begin(&mut self, len: u32) -> Option<()> {
        // The former one goes first.
        self.token = None;
        self.token = Some(Whole::new(&self.share, usize::try_from(len).ok()?).ok()?);
        Some(())
    }

    fn put(&mut self, offset: u32, piece: &[u8]) -> Option<()> {
        self.token.as_mut()?.put(offset, piece).then_some(())
    }

    fn bytes(&self) -> &[u8] {
        self.token.as_ref().map_or(&[], Whole::bytes)
    }
}

/// The next steps of the owner.
#[derive(Default)]
pub(super) struct Next {
    /// The decision of the exchange.
    pub(super) step: Step,
    /// The token in it, if there is one.
    pub(super) bytes: Option<KVec<u8>>,
}

impl Next {
    /// Makes the memory for what the exchange wants said. If there is none, the peer is refused.
    /// Sleeps.
    fn new(mut step: Step) -> Self {
        let token = step.say.as_ref().and_then(|say| say.token.as_ref());
        let bytes = token.map(written).transpose();
        if bytes.is_err() {
            step.say = None;
            if !matches!(step.verdict, Some(AuthVerdict::Refuse(_))) {
                step.verdict = Some(AuthVerdict::Refuse(AuthFailure::NoMemory));
            }
        }
        Self {
            step,
            bytes: bytes.ok().flatten(),
        }
    }
}

/// Returns the octets of a token. Sleeps.
fn written(token: &Token) -> Result<KVec<u8>> {
    // Writeback may wait for this very connection.
    let _nofs = NoFs::enter();
    let mut bytes = KVec::from_elem(0, token.len(), GFP_KERNEL)?;
    token.write(&mut bytes).ok_or(EINVAL)?;
    Ok(bytes)
}

/// The state behind the mutex.
struct State {
    /// The exchange, which decides.
    exchange: Authentication<PreSharedKey<HostKey>>,
    /// The part of a token that has come.
    kept: Kept,
}

/// The authentication of a connection.
#[pin_data]
pub(super) struct Auth {
    /// [`None`] if there is none.
    #[pin]
    state: Mutex<Option<State>>,
}

impl Auth {
    /// Begins for a new connection. `on` says whether there is any. What the peer says counts in
    /// `share`.
    pub(super) fn new(
        role: Role,
        parameters: &AuthParameters,
        on: bool,
        share: Arc<Share>,
    ) -> impl PinInit<Self> {
        let state = on.then(|| {
            let policy = PreSharedKey::new(
                role,
                parameters.wanted.is_required(),
                HostKey,
                host_key::random(),
                Ends {
                    client: Address::new(parameters.client.address()),
                    server: Address::new(parameters.server.address()),
                },
                parameters.wanted.padding,
            );
            State {
                exchange: Authentication::new(role, policy),
                kept: Kept { token: None, share },
            }
        });
        pin_init!(Self {
            state <- new_mutex!(state, "rpcrdma::Auth::state"),
        })
    }

    /// Returns the first step.
    pub(super) fn open(&self) -> Next {
        self.with(|state| state.exchange.open())
    }

    /// Takes in the material of one CONNPROP message, if it has any. Sleeps.
    pub(super) fn receive(&self, material: Option<&[u8]>, last: bool) -> Next {
        self.with(|state| state.exchange.receive(material, last, &mut state.kept))
    }

    /// The peer does something else than to tell its properties. Sleeps.
    pub(super) fn skipped(&self) -> Next {
        self.with(|state| state.exchange.skipped(&mut state.kept))
    }

    /// Does something, if there is any authentication.
    fn with(&self, act: impl FnOnce(&mut State) -> Step) -> Next {
        let mut guard = self.state.lock();
        let Some(state) = &mut *guard else {
            return Next::default();
        };
        let next = Next::new(act(state));
        if !state.exchange.is_collecting() {
            state.kept.token = None;
        }
        next
    }
}
