// SPDX-License-Identifier: GPL-2.0

//! Helpers that the tests of host authentication share.

use super::{
    super::session::Role,
    psk::{
        Address,
        Crypto,
        Ends,
        PreSharedKey,
        MAC_LEN,
        NONCE_LEN, //
    },
    AuthFailure,
    Authentication,
    Say,
    Step,
    Store, //
};

/// The capacity of the buffers in octets.
const CAPACITY: usize = 512;

/// A store for one token, up to [`CAPACITY`].
pub(super) struct Kept {
    /// The octets.
    bytes: [u8; CAPACITY],
    /// The number of octets in use.
    len: usize,
}

impl Kept {
    /// Returns an empty store.
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; CAPACITY],
            len: 0,
        }
    }
}

impl Store for Kept {
    fn begin(&mut self, len: u32) -> Option<()> {
        self.len = usize::try_from(len).ok().filter(|len| *len <= CAPACITY)?;
        Some(())
    }

    fn put(&mut self, offset: u32, piece: &[u8]) -> Option<()> {
        let offset = usize::try_from(offset).ok()?;
        let place = self.bytes.get_mut(..self.len)?.get_mut(offset..)?;
        place.get_mut(..piece.len())?.copy_from_slice(piece);
        Some(())
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A stand-in for a MAC: it depends on key and data like one, but protects nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Toy(pub(super) Option<u8>);

impl Crypto for Toy {
    fn mac(&self, data: &[u8]) -> Option<[u8; MAC_LEN]> {
        let key = self.0?;
        let mut out = [key; MAC_LEN];
        for (index, octet) in data.iter().enumerate() {
            let mut carry = *octet;
            for (at, place) in out.iter_mut().enumerate() {
                carry = carry.rotate_left(3) ^ *place;
                if at == index & 31 {
                    carry = carry.wrapping_mul(167).wrapping_add(13);
                }
                *place = carry;
            }
        }
        Some(out)
    }

    fn is_equal(&self, one: &[u8; MAC_LEN], other: &[u8; MAC_LEN]) -> bool {
        one == other
    }
}

/// Returns the ends of the connection of the examples.
pub(super) fn ends() -> Ends {
    Ends {
        client: Address::new("192.0.2.1"),
        server: Address::new("192.0.2.2"),
    }
}

/// Returns an end with a nonce made of `nonce`.
pub(super) fn end(
    role: Role,
    required: bool,
    key: Option<u8>,
    nonce: u8,
) -> Authentication<PreSharedKey<Toy>> {
    let nonce = [nonce; NONCE_LEN];
    Authentication::new(
        role,
        PreSharedKey::new(role, required, Toy(key), nonce, ends(), 0),
    )
}

/// The octets of a token to send.
pub(super) struct Sent {
    /// The octets.
    bytes: [u8; CAPACITY],
    /// The number of octets in use.
    len: usize,
}

impl Sent {
    /// Writes out the token of `say`.
    pub(super) fn of(say: Option<Say>) -> Option<Self> {
        let token = say?.token?;
        let mut sent = Self {
            bytes: [0; CAPACITY],
            len: token.len(),
        };
        token.write(sent.bytes.get_mut(..token.len())?)?;
        Some(sent)
    }

    /// Returns the octets.
    pub(super) fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Flips a bit of one octet.
    pub(super) fn spoilt(mut self, at: usize) -> Self {
        if let Some(octet) = self.bytes.get_mut(at) {
            *octet ^= 1;
        }
        self
    }
}

/// Passes a token to an end, in one message.
pub(super) fn hear(
    end: &mut Authentication<PreSharedKey<Toy>>,
    sent: Option<&Sent>,
    last: bool,
) -> Step {
    end.receive(sent.map(Sent::get), last, &mut Kept::new())
}

/// Returns the reason why the peer is refused, if it is.
pub(super) fn refusal(step: &Step) -> Option<AuthFailure> {
    match step.verdict {
        Some(super::AuthVerdict::Refuse(why)) => Some(why),
        _ => None,
    }
}
