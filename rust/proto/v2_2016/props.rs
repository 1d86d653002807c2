// SPDX-License-Identifier: GPL-2.0

//! The properties of an end (X 3), which are others than those of later protocols with the same
//! numbers, and what an end answers to a request for a change.

use super::super::{
    error::{
        Fault,
        Result, //
    },
    props::ReverseLevel,
    xdr::{
        Reader,
        Writer, //
    }, //
};
use core::ffi::CStr;

/// A property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Property {
    /// The size in octets of the shortest Receive that is posted (X 3.1).
    ReceiveSize,
    /// Replies to this end may invalidate a handle: 0 or 1 (X 3.2).
    Invalidation,
    /// The reverse-direction messages that a client takes: 0 none, 1 without chunks, 2 all (X 3.3).
    Reverse,
}

impl Property {
    /// All of them, in the order in which we tell them.
    pub(crate) const ALL: [Self; 3] = [Self::ReceiveSize, Self::Invalidation, Self::Reverse];

    /// Returns its name, for display.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::ReceiveSize => c"receive_size",
            Self::Invalidation => c"remote_invalidation",
            Self::Reverse => c"reverse_direction",
        }
    }

    /// Returns its number.
    pub(crate) const fn code(self) -> u32 {
        match self {
            Self::ReceiveSize => 1,
            Self::Invalidation => 2,
            Self::Reverse => 3,
        }
    }

    /// Returns its largest value.
    const fn most(self) -> u32 {
        match self {
            Self::ReceiveSize => u32::MAX,
            Self::Invalidation => 1,
            Self::Reverse => reverse::ALL,
        }
    }

    /// Decodes a value. An empty one is the default (X 2.1).
    fn value(self, bytes: &[u8]) -> Result<u32> {
        if bytes.is_empty() {
            return Ok(DEFAULT.get(self));
        }
        let value = bytes.try_into().ok().map(u32::from_be_bytes);
        value
            .filter(|value| *value <= self.most())
            .ok_or(Fault::BadProperty(self.code()))
    }
}

/// The values of [`Property::Reverse`], which are not those of later protocols.
mod reverse {
    /// None.
    pub(super) const NONE: u32 = 0;
    /// Messages without chunks.
    pub(super) const INLINE: u32 = 1;
    /// All messages.
    pub(super) const ALL: u32 = 2;
}

/// Returns the level that a value of [`Property::Reverse`] stands for.
pub(crate) const fn level(value: u32) -> ReverseLevel {
    match value {
        reverse::NONE => ReverseLevel::None,
        reverse::INLINE => ReverseLevel::Simple,
        _ => ReverseLevel::General,
    }
}

/// Returns the value of [`Property::Reverse`] for a level. Messages in parts are not known here.
const fn reverse_value(level: ReverseLevel) -> u32 {
    match level {
        ReverseLevel::None => reverse::NONE,
        ReverseLevel::Simple | ReverseLevel::Continued => reverse::INLINE,
        ReverseLevel::General => reverse::ALL,
    }
}

/// Something for each property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Each<T> {
    /// For [`Property::ReceiveSize`].
    pub(crate) receive_size: T,
    /// For [`Property::Invalidation`].
    pub(crate) invalidation: T,
    /// For [`Property::Reverse`].
    pub(crate) reverse: T,
}

impl<T: Copy> Each<T> {
    /// Returns what there is for a property.
    pub(crate) const fn get(&self, property: Property) -> T {
        match property {
            Property::ReceiveSize => self.receive_size,
            Property::Invalidation => self.invalidation,
            Property::Reverse => self.reverse,
        }
    }

    /// Replaces what there is for a property.
    pub(crate) fn set(&mut self, property: Property, value: T) {
        let place = match property {
            Property::ReceiveSize => &mut self.receive_size,
            Property::Invalidation => &mut self.invalidation,
            Property::Reverse => &mut self.reverse,
        };
        *place = value;
    }

    /// Makes something for each property of what there is.
    pub(crate) fn map<U: Copy>(&self, make: impl Fn(Property, T) -> U) -> Each<U> {
        let of = |property| make(property, self.get(property));
        Each {
            receive_size: of(Property::ReceiveSize),
            invalidation: of(Property::Invalidation),
            reverse: of(Property::Reverse),
        }
    }
}

/// The values of all properties of one end.
pub(crate) type Values = Each<u32>;

/// What an end wants of a connection at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Replies may invalidate.
    pub(crate) invalidation: bool,
    /// This end takes Calls.
    pub(crate) takes_calls: bool,
}

impl Wishes {
    /// Returns the values of an end that could take reverse-direction messages at a `level`.
    pub(crate) fn values(&self, receive_size: u32, level: ReverseLevel) -> Values {
        Values {
            receive_size,
            invalidation: self.invalidation.into(),
            reverse: if self.takes_calls {
                reverse_value(level)
            } else {
                reverse::NONE
            },
        }
    }
}

/// The values that one message tells.
pub(crate) type Told = Each<Option<u32>>;

/// The values of an end that has told nothing (X 3).
pub(crate) const DEFAULT: Values = Values {
    receive_size: 4096,
    invalidation: 0,
    reverse: reverse::INLINE,
};

/// A received set of properties (X 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Set {
    /// The values of those that are known.
    pub(crate) told: Told,
    /// The place of each of them in the set.
    pub(crate) places: Each<u32>,
    /// The number of all elements, known or not.
    pub(crate) count: u32,
}

impl Set {
    /// Reads a set and checks all of it. If a property is present twice, the last value counts.
    ///
    /// # Errors
    ///
    /// [`Fault::BadProperty`] if a value is not of its property's type, [`Fault::Truncated`] if the
    /// bytes end within it.
    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self> {
        let mut set = Self {
            count: reader.u32()?,
            ..Self::default()
        };
        // The count may be large, but each turn consumes octets.
        for place in 0..set.count {
            let code = reader.u32()?;
            let value = reader.opaque(usize::MAX).map_err(|_| Fault::Truncated)?;
            // X 2.1: one that is not known is skipped.
            let known = Property::ALL.into_iter().find(|known| known.code() == code);
            if let Some(property) = known {
                set.told.set(property, Some(property.value(value)?));
                set.places.set(property, place);
            }
        }
        Ok(set)
    }
}

/// Writes a set.
///
/// # Errors
///
/// [`Fault::NoSpace`].
pub(crate) fn put_set(writer: &mut Writer<'_>, told: &Told) -> Result {
    let present = || {
        let all = Property::ALL.into_iter();
        all.filter_map(|property| Some((property, told.get(property)?)))
    };
    writer.u32(u32::try_from(present().count()).map_err(|_| Fault::NoSpace)?)?;
    present().try_for_each(|(property, value)| {
        writer.u32(property.code())?;
        writer.opaque(&value.to_be_bytes())
    })
}

/// What becomes of a property that a request asks to change, unless the request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has the value that was asked for.
    Done(u32),
    /// It has another new value.
    Other(u32),
}

impl Change {
    /// Returns the new value.
    pub(crate) const fn value(self) -> u32 {
        match self {
            Self::Done(value) | Self::Other(value) => value,
        }
    }
}

/// What an end goes by when it is asked for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ability {
    /// The values that it can have without making anything for it: a peer does not make us
    /// allocate.
    pub(crate) most: Values,
    /// Set if this is a server, the level of which nobody changes.
    pub(crate) is_server: bool,
    /// Set if no Call of this end is unanswered, so that no long Reply is expected.
    pub(crate) is_idle: bool,
}

impl Ability {
    /// Returns the answer to a request; [`None`] if it is rejected, as any may be (X 3). `now` is
    /// the present value.
    pub(crate) fn answer(&self, property: Property, asked: u32, now: u32) -> Option<Change> {
        let most = self.most.get(property);
        let change = |to: u32| (to != now).then_some(Change::Other(to));
        match property {
            _ if asked == now => Some(Change::Done(asked)),
            Property::Reverse if self.is_server => None,
            _ if asked > most => change(most).filter(|_| most > now),
            Property::ReceiveSize if asked < now => {
                // A Call under way may rely on a Reply that is longer.
                let verdict = if asked < DEFAULT.receive_size {
                    // B 2.3: that much is received always.
                    change(DEFAULT.receive_size)
                } else {
                    Some(Change::Done(asked))
                };
                verdict.filter(|_| self.is_idle)
            }
            Property::ReceiveSize | Property::Invalidation | Property::Reverse => {
                Some(Change::Done(asked))
            }
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_2016_props)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::testing::{
            read_words,
            Bytes, //
        },
        *, //
    };

    /// Section X 3: numbers, types and defaults.
    #[test]
    fn the_table_is_that_of_the_draft() {
        let rows = Property::ALL.map(|p| (p.code(), DEFAULT.get(p), p.most()));
        assert_eq!(rows, [(1, 4096, u32::MAX), (2, 0, 1), (3, 1, 2)]);
        for value in 0..=2 {
            assert_eq!(reverse_value(level(value)), value);
        }
    }

    /// Section X 2.1: each length from none to nine, for each property; only an empty value and one
    /// of a word are valid, and of the latter those of the type.
    #[test]
    fn values_have_a_length_and_a_range() {
        for property in Property::ALL {
            for len in 0..=9 {
                let words = [1, property.code(), len, 0, 0, 0];
                let set = read_words(&words, Set::get);
                let expected = match len {
                    0 => Ok(Some(DEFAULT.get(property))),
                    4 => Ok(Some(0)),
                    _ => Err(Fault::BadProperty(property.code())),
                };
                assert_eq!(set.map(|set| set.told.get(property)), expected);
            }
            for value in [0, 1, 2, 3, u32::MAX] {
                let set = read_words(&[1, property.code(), 4, value], Set::get);
                assert_eq!(set.is_ok(), value <= property.most());
            }
        }
    }

    /// Section X 2.1: unknown ones are skipped, the order does not matter, and the last one counts.
    #[test]
    fn a_set_is_read_as_a_whole() -> Result {
        let set = read_words(
            &[
                5,
                3,
                4,
                2,
                99,
                5,
                0,
                0,
                1,
                4,
                8000,
                0xffff_ff00,
                0,
                1,
                4,
                9000,
            ],
            Set::get,
        )?;
        assert_eq!(set.told.receive_size, Some(9000));
        assert_eq!(set.told.reverse, Some(2));
        assert_eq!(set.told.invalidation, None);
        assert_eq!(
            (set.places.receive_size, set.places.reverse, set.count),
            (4, 0, 5)
        );
        for words in [
            &[1][..],
            &[1, 1],
            &[2, 1, 4, 8000],
            &[1, 99, 5, 0],
            &[u32::MAX, 1, 4, 8000],
            &[1, 1, u32::MAX, 8000],
        ] {
            assert_eq!(read_words(words, Set::get), Err(Fault::Truncated));
        }
        Ok(())
    }

    #[test]
    fn a_set_looks_as_in_the_draft() -> Result {
        let told = Told {
            receive_size: Some(0x3000),
            reverse: Some(2),
            ..Told::default()
        };
        let bytes = Bytes::from_writer(|writer| put_set(writer, &told))?;
        assert!(bytes.is_words(&[2, 1, 4, 0x3000, 3, 4, 2]));
        assert_eq!(bytes.read(Set::get)?.told, told);
        Ok(())
    }

    /// Sections X 3.2 and 3.3: what an end wants is what it tells.
    #[test]
    fn wishes_have_values() {
        for (invalidation, takes_calls) in [(false, false), (true, false), (false, true)] {
            let wishes = Wishes {
                invalidation,
                takes_calls,
            };
            let values = wishes.values(8192, ReverseLevel::General);
            assert_eq!(values.receive_size, 8192);
            assert_eq!(values.invalidation, u32::from(invalidation));
            let is_none = values.reverse == reverse::NONE;
            assert_eq!(is_none, !takes_calls);
        }
    }

    /// Sections X 3.1 to 3.3: what can be had without work is done.
    #[test]
    fn requests_are_answered() {
        use Change::{
            Done,
            Other, //
        };
        use Property::{
            Invalidation,
            ReceiveSize,
            Reverse, //
        };
        let client = Ability {
            most: Values {
                receive_size: 12288,
                invalidation: 1,
                reverse: 1,
            },
            is_server: false,
            is_idle: true,
        };
        let server = Ability {
            is_server: true,
            ..client
        };
        let busy = Ability {
            is_idle: false,
            ..client
        };
        for (end, property, asked, now, expected) in [
            (client, ReceiveSize, 8192, 8192, Some(Done(8192))),
            (client, ReceiveSize, 12288, 8192, Some(Done(12288))),
            (client, ReceiveSize, 12289, 8192, Some(Other(12288))),
            (client, ReceiveSize, 12289, 12288, None),
            (client, ReceiveSize, 4096, 8192, Some(Done(4096))),
            (client, ReceiveSize, 100, 8192, Some(Other(4096))),
            (client, ReceiveSize, 100, 4096, None),
            (busy, ReceiveSize, 4096, 8192, None),
            (busy, ReceiveSize, 100, 8192, None),
            (busy, ReceiveSize, 12288, 8192, Some(Done(12288))),
            (client, Invalidation, 1, 0, Some(Done(1))),
            (client, Invalidation, 0, 1, Some(Done(0))),
            (client, Reverse, 0, 1, Some(Done(0))),
            (client, Reverse, 2, 0, Some(Other(1))),
            (client, Reverse, 2, 1, None),
            (server, Reverse, 0, 1, None),
            (server, Reverse, 1, 1, Some(Done(1))),
            (server, ReceiveSize, 4096, 8192, Some(Done(4096))),
        ] {
            assert_eq!(end.answer(property, asked, now), expected);
        }
    }
}
