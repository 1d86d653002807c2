// SPDX-License-Identifier: GPL-2.0

//! The private data exchanged at connection time (RFC 8797).
//!
//! Each side advertises the sizes of the messages that it can send and receive, and its support for
//! remote invalidation. If a side sends no such data, or something else, the defaults apply.

use super::xdr::Reader;

/// The first four octets of the format.
const FORMAT_IDENTIFIER: u32 = 0xf6ab_0e18;

/// The only version of the format.
const FORMAT_VERSION: u8 = 1;

/// The flag "R": the sender supports remote invalidation.
const FLAG_REMOTE_INVALIDATION: u8 = 0x01;

/// The unit of the sizes, in octets.
const SIZE_UNIT: u32 = 1024;

/// The size of the encoded form in octets.
pub(crate) const LEN: usize = 8;

/// The smallest size that can be advertised, which is also the default.
pub(crate) const MIN_SIZE: u32 = SIZE_UNIT;

/// The largest size that can be advertised.
pub(crate) const MAX_SIZE: u32 = 256 * SIZE_UNIT;

/// The advertisement of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CmPrivate {
    /// The largest message in octets that it sends.
    pub(crate) send_size: u32,
    /// The largest message in octets that it can receive.
    pub(crate) receive_size: u32,
    /// True if it supports remote invalidation.
    pub(crate) remote_invalidation: bool,
}

impl CmPrivate {
    /// The values assumed for a side that advertises nothing (RFC 8797, 5.1).
    pub(crate) const DEFAULT: Self = Self {
        send_size: MIN_SIZE,
        receive_size: MIN_SIZE,
        remote_invalidation: false,
    };

    /// Returns the octets to send.
    ///
    /// A size that is not a multiple of 1024 is rounded down, so that the advertised size is never
    /// larger than the real one. A size out of range becomes the nearest valid one.
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let [i0, i1, i2, i3] = FORMAT_IDENTIFIER.to_be_bytes();
        let flags = if self.remote_invalidation {
            FLAG_REMOTE_INVALIDATION
        } else {
            0
        };
        [
            i0,
            i1,
            i2,
            i3,
            FORMAT_VERSION,
            flags,
            encode_size(self.send_size),
            encode_size(self.receive_size),
        ]
    }

    /// Extracts the peer's advertisement from all the private data of its connection message.
    ///
    /// Other software may have put data of its own in front. The format identifier is therefore
    /// searched for at every offset (RFC 8797, 5.2). If no conforming data is found, the defaults
    /// apply.
    pub(crate) fn decode(private_data: &[u8]) -> Self {
        private_data
            .windows(LEN)
            .find_map(Self::decode_at)
            .unwrap_or(Self::DEFAULT)
    }

    /// Decodes `bytes`, or returns `None` if they are not of this format.
    fn decode_at(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.u32().ok()? != FORMAT_IDENTIFIER {
            return None;
        }
        let [version, flags, send_size, receive_size] = *reader.array().ok()?;
        if version != FORMAT_VERSION {
            return None;
        }
        Some(Self {
            send_size: decode_size(send_size),
            receive_size: decode_size(receive_size),
            remote_invalidation: flags & FLAG_REMOTE_INVALIDATION != 0,
        })
    }
}

/// The parameters of a connection, seen from one of its two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The inline threshold in octets for messages that we send.
    pub(crate) send_inline: u32,
    /// The inline threshold in octets for messages that we receive.
    pub(crate) receive_inline: u32,
    /// True if the peer of a Requester may invalidate remotely.
    pub(crate) remote_invalidation: bool,
}

impl Agreed {
    /// Combines our advertisement and the peer's (RFC 8797, 4.1 and 4.2).
    pub(crate) fn new(own: &CmPrivate, peer: &CmPrivate) -> Self {
        Self {
            send_inline: told(own.send_size).min(told(peer.receive_size)),
            receive_inline: told(own.receive_size).min(told(peer.send_size)),
            remote_invalidation: own.remote_invalidation && peer.remote_invalidation,
        }
    }
}

/// Returns a size of ours as the peer decodes it.
fn told(size: u32) -> u32 {
    decode_size(encode_size(size))
}

/// Encodes a size as the number of whole units beyond the first.
fn encode_size(size: u32) -> u8 {
    let units = size.clamp(MIN_SIZE, MAX_SIZE) / SIZE_UNIT;
    u8::try_from(units.saturating_sub(1)).unwrap_or(u8::MAX)
}

/// Decodes a size.
fn decode_size(encoded: u8) -> u32 {
    u32::from(encoded)
        .saturating_add(1)
        .saturating_mul(SIZE_UNIT)
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_cm_private)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// 4096 octets to send, 8192 to receive, remote invalidation.
    const EXAMPLE: [u8; LEN] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 7];

    /// The meaning of [`EXAMPLE`].
    const EXAMPLE_MEANING: CmPrivate = CmPrivate {
        send_size: 4096,
        receive_size: 8192,
        remote_invalidation: true,
    };

    #[test]
    fn example_both_ways() {
        assert_eq!(EXAMPLE_MEANING.encode(), EXAMPLE);
        assert_eq!(CmPrivate::decode(&EXAMPLE), EXAMPLE_MEANING);
    }

    #[test]
    fn every_value_comes_back() {
        for send in 0..=u8::MAX {
            for (receive, remote_invalidation) in [(0, false), (send, true), (u8::MAX, false)] {
                let meaning = CmPrivate {
                    send_size: decode_size(send),
                    receive_size: decode_size(receive),
                    remote_invalidation,
                };
                assert_eq!(CmPrivate::decode(&meaning.encode()), meaning);
            }
        }
    }

    /// RFC 8797, section 4.2: 1024 to 262144 octets, in units of 1024.
    #[test]
    fn sizes_are_told_in_whole_units() {
        for (size, encoded) in [
            (0, 0),
            (1023, 0),
            (1024, 0),
            (2047, 0),
            (2048, 1),
            (262_143, 254),
            (262_144, 255),
            (262_145, 255),
            (u32::MAX, 255),
        ] {
            assert_eq!(encode_size(size), encoded);
        }
        assert_eq!(decode_size(0), 1024);
        assert_eq!(decode_size(255), 262_144);
    }

    /// RFC 8797, section 5.1: without a conforming message the defaults apply.
    #[test]
    fn anything_else_means_the_defaults() {
        for bytes in [
            &[][..],
            &[0xf6, 0xab, 0x0e, 0x18][..],
            &[0xf6, 0xab, 0x0e, 0x18, 1, 1, 3][..],
            &[0xf6, 0xab, 0x0e, 0x18, 2, 1, 3, 7][..],
            &[0xf6, 0xab, 0x0e, 0x19, 1, 1, 3, 7][..],
            &[0x18, 0x0e, 0xab, 0xf6, 1, 1, 3, 7][..],
            &[0; 64][..],
        ] {
            assert_eq!(CmPrivate::decode(bytes), CmPrivate::DEFAULT);
        }
        assert_eq!(
            CmPrivate::DEFAULT.encode(),
            [0xf6, 0xab, 0x0e, 0x18, 1, 0, 0, 0]
        );
    }

    /// RFC 8797, section 5.2: the identifier may be at any offset.
    #[test]
    fn identifier_is_found_at_any_offset() {
        for offset in 0..=24_usize {
            let mut bytes = [0xf6; 32];
            for (place, byte) in bytes.iter_mut().skip(offset).zip(EXAMPLE) {
                *place = byte;
            }
            assert_eq!(CmPrivate::decode(&bytes), EXAMPLE_MEANING);
            // An identifier that is cut off by the end is not found.
            let cut = bytes.get(..offset.saturating_add(7)).unwrap_or(&[]);
            assert_eq!(CmPrivate::decode(cut), CmPrivate::DEFAULT);
        }
        // An identifier with an unknown version does not hide a message behind it.
        let bytes = [
            0xf6, 0xab, 0x0e, 0x18, 9, 0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 7,
        ];
        assert_eq!(CmPrivate::decode(&bytes), EXAMPLE_MEANING);
    }

    /// RFC 8797, section 4: receivers ignore the reserved bits.
    #[test]
    fn reserved_bits_are_ignored() {
        for flags in 0..=u8::MAX {
            let [i0, i1, i2, i3, version, _, send, receive] = EXAMPLE;
            let bytes = [i0, i1, i2, i3, version, flags, send, receive];
            let expected = CmPrivate {
                remote_invalidation: flags & 1 == 1,
                ..EXAMPLE_MEANING
            };
            assert_eq!(CmPrivate::decode(&bytes), expected);
        }
    }

    #[test]
    fn the_smaller_size_counts() {
        let own = CmPrivate {
            send_size: 4096,
            receive_size: 16 * 1024,
            remote_invalidation: true,
        };
        let agreed = Agreed::new(&own, &EXAMPLE_MEANING);
        let expected = Agreed {
            send_inline: 4096,
            receive_inline: 4096,
            remote_invalidation: true,
        };
        assert_eq!(agreed, expected);

        let agreed = Agreed::new(&own, &CmPrivate::DEFAULT);
        let expected = Agreed {
            send_inline: 1024,
            receive_inline: 1024,
            remote_invalidation: false,
        };
        assert_eq!(agreed, expected);

        // The peer rounds an odd size down, and so do we.
        let odd = CmPrivate {
            send_size: 5000,
            receive_size: 5000,
            remote_invalidation: false,
        };
        let agreed = Agreed::new(&odd, &odd);
        assert_eq!(agreed.send_inline, 4096);
        assert_eq!(agreed.receive_inline, 4096);
        assert!(!agreed.remote_invalidation);
    }
}
