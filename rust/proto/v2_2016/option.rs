// SPDX-License-Identifier: GPL-2.0

//! OPTIONAL messages (B 4.2) and the four operations in them (X 4).

use super::{
    super::{
        error::{
            Fault,
            Result, //
        },
        message::{
            Direction,
            Prefix,
            PREFIX_LEN, //
        },
        xdr::{
            Reader,
            Writer,
            UNIT, //
        }, //
    },
    error_code,
    procedure,
    props::{
        put_set,
        Change, //
        Each,
        Property,
        Set,
        Told,
        Values,
    },
    VERSION, //
};
use core::ffi::CStr;

/// The size of the smallest message: three words follow the prefix.
pub(crate) const MIN_LEN: usize = PREFIX_LEN + 3 * UNIT;

/// The most elements of a request that are answered. What is not named in an answer is rejected
/// (X 4.3), and a message holds no more than some hundred elements.
const MAX_ELEMENTS: u32 = 512;

/// The bits in a word of a subset.
const BITS: u32 = 32;

/// The numbers of the operations (X 4).
mod code {
    /// The properties of the sender.
    pub(super) const CONNPROP: u32 = 1;
    /// A request for changes.
    pub(super) const REQPROP: u32 = 2;
    /// The answer to it.
    pub(super) const RESPROP: u32 = 3;
    /// Changes.
    pub(super) const UPDPROP: u32 = 4;
}

/// A received subset of the elements of a set (X 2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subset<'a> {
    /// Its words. Those that are missing are zero.
    words: &'a [u8],
}

impl<'a> Subset<'a> {
    /// Reads a subset.
    fn get(reader: &mut Reader<'a>) -> Result<Self> {
        let count = usize::try_from(reader.u32()?).map_err(|_| Fault::Truncated)?;
        let len = count.checked_mul(UNIT).ok_or(Fault::Truncated)?;
        Ok(Self {
            words: reader.bytes(len)?,
        })
    }

    /// Returns whether an element is in it. Bit 0 of a word is the least significant one.
    pub(crate) fn contains(&self, element: u32) -> bool {
        let at = usize::try_from(element / BITS).ok();
        let at = at.and_then(|at| at.checked_mul(UNIT));
        let word = at
            .and_then(|at| self.words.get(at..))
            .and_then(|rest| rest.first_chunk())
            .map_or(0, |word| u32::from_be_bytes(*word));
        word & 1_u32.wrapping_shl(element % BITS) != 0
    }
}

/// The most words of a subset that is sent.
const MAX_WORDS: usize = 16;

const _: () = assert!(MAX_WORDS == 16 && MAX_ELEMENTS / BITS == 16);

/// A subset of the first [`MAX_ELEMENTS`] elements, to be sent.
#[derive(Clone, Copy, Debug, Default)]
struct NewSubset([u32; MAX_WORDS]);

impl NewSubset {
    /// Returns the first `count` elements, or all if there are fewer.
    fn first(count: u32) -> Self {
        let mut subset = Self::default();
        let mut left = count;
        for word in &mut subset.0 {
            let bits = left.min(BITS);
            *word = 1_u32
                .checked_shl(bits)
                .map_or(u32::MAX, |bit| bit.wrapping_sub(1));
            left = left.saturating_sub(bits);
        }
        subset
    }

    /// Puts an element in, or takes it out. One beyond the last changes nothing.
    fn set(&mut self, element: u32, is_in: bool) {
        let word = usize::try_from(element / BITS).ok();
        if let Some(word) = word.and_then(|word| self.0.get_mut(word)) {
            let bit = 1_u32.wrapping_shl(element % BITS);
            *word = if is_in { *word | bit } else { *word & !bit };
        }
    }

    /// Writes it, without zero words at the end.
    fn put(&self, writer: &mut Writer<'_>) -> Result {
        let last = self.0.iter().rposition(|word| *word != 0);
        let words = self.0.get(..last.map_or(0, |last| last.saturating_add(1)));
        let words = words.unwrap_or(&[]);
        writer.u32(u32::try_from(words.len()).map_err(|_| Fault::NoSpace)?)?;
        words.iter().try_for_each(|word| writer.u32(*word))
    }
}

/// A received operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    /// The properties of the sender (X 4.1).
    Connect {
        /// The properties.
        set: Set,
        /// Those that are not expected to change.
        constant: Subset<'a>,
    },
    /// A request for changes (X 4.2).
    Request(Set),
    /// The answer to one (X 4.3).
    Respond(ReceivedResponse<'a>),
    /// Changes (X 4.4).
    Update(Set),
    /// Another one. Set if something follows, which may be an RPC message.
    Unknown {
        /// Set if octets follow.
        has_payload: bool,
    },
}

impl Operation<'_> {
    /// Returns the name of the operation, for display.
    pub(crate) const fn name(&self) -> &'static CStr {
        match self {
            Self::Connect { .. } => c"CONNPROP",
            Self::Request(_) => c"REQPROP",
            Self::Respond(_) => c"RESPROP",
            Self::Update(_) => c"UPDPROP",
            Self::Unknown { .. } => c"unknown",
        }
    }
}

/// A received answer to a request (X 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedResponse<'a> {
    /// The elements that have the value that was asked for.
    done: Subset<'a>,
    /// The elements that were not changed.
    rejected: Subset<'a>,
    /// Properties that have another new value.
    other: Set,
}

impl ReceivedResponse<'_> {
    /// Returns the new values of those properties that `asked` had in it, in the order of
    /// [`put_set`]. What was not asked for is ignored, and what is named twice or not at all counts
    /// as rejected.
    pub(crate) fn changes(&self, asked: &Told) -> Told {
        let mut place = 0_u32;
        let mut changes = Told::default();
        for property in Property::ALL {
            let Some(wanted) = asked.get(property) else {
                continue;
            };
            let change = (
                self.done.contains(place),
                self.rejected.contains(place),
                self.other.told.get(property),
            );
            changes.set(
                property,
                match change {
                    (true, false, None) => Some(wanted),
                    (false, false, other) => other,
                    _ => None,
                },
            );
            place = place.saturating_add(1);
        }
        changes
    }
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Optional<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits requested or granted.
    pub(crate) credits: u32,
    /// The direction.
    pub(crate) direction: Direction,
    /// The operation.
    pub(crate) operation: Operation<'a>,
}

/// What to do about a message that is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    /// Report an error (X 2.1; V1 4.5).
    Reported,
    /// Discard it: it is an answer, and its transaction ID is ours.
    Answer,
}

/// Decodes a message, which has this version and procedure.
///
/// # Errors
///
/// See [`Invalid`].
pub(crate) fn decode(bytes: &[u8]) -> core::result::Result<Optional<'_>, Invalid> {
    let mut code = 0;
    decode_with(bytes, &mut code).map_err(|_| match code {
        code::RESPROP => Invalid::Answer,
        _ => Invalid::Reported,
    })
}

/// Decodes a message. Tells its operation also if the rest is not valid.
fn decode_with<'a>(bytes: &'a [u8], code: &mut u32) -> Result<Optional<'a>> {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader)?;
    let direction = reader.u32()?;
    *code = reader.u32()?;
    let mut info = Reader::new(reader.opaque(usize::MAX)?);
    let direction = Direction::from_word(direction)?;
    let operation = match *code {
        code::CONNPROP => Operation::Connect {
            set: Set::get(&mut info)?,
            constant: Subset::get(&mut info)?,
        },
        code::REQPROP if direction == Direction::Call => Operation::Request(Set::get(&mut info)?),
        code::RESPROP if direction == Direction::Reply => Operation::Respond(ReceivedResponse {
            done: Subset::get(&mut info)?,
            rejected: Subset::get(&mut info)?,
            other: Set::get(&mut info)?,
        }),
        code::REQPROP | code::RESPROP => {
            return Err(Fault::BadDirection(direction.word()));
        }
        code::UPDPROP => Operation::Update(Set::get(&mut info)?),
        _ => {
            // Nobody knows what is in it.
            info = Reader::new(&[]);
            let has_payload = !reader.is_empty();
            reader = Reader::new(&[]);
            Operation::Unknown { has_payload }
        }
    };
    if !info.is_empty() || !reader.is_empty() {
        return Err(Fault::TrailingBytes);
    }
    Ok(Optional {
        xid: prefix.xid,
        credits: prefix.credits,
        direction,
        operation,
    })
}

/// Returns whether a message, which has this version, is an error about an operation that is not
/// known (B 3.1). All other errors are about RPCs.
pub(crate) fn is_invalid_option(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader);
    prefix.is_ok_and(|prefix| prefix.procedure == procedure::ERROR)
        && reader.u32() == Ok(error_code::INVAL_OPTION)
}

/// The answer that will be sent to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    /// The number of elements of the request.
    pub(crate) count: u32,
    /// The places of the properties that change, and what becomes of them. All other elements are
    /// rejected.
    pub(crate) verdicts: Each<Option<(u32, Change)>>,
}

impl Response {
    /// Returns what has the new value that was asked for, and what has another one.
    fn told(&self, done: bool) -> Told {
        let is_wanted = |verdict: Change| matches!(verdict, Change::Done(_)) == done;
        self.verdicts.map(|_, verdict| {
            let (_, verdict) = verdict?;
            is_wanted(verdict).then_some(verdict.value())
        })
    }

    /// Writes the operation. An element beyond [`MAX_ELEMENTS`] is not named, but for its other
    /// value; so it counts as rejected, and the code that decides takes care that none is changed.
    fn put(&self, writer: &mut Writer<'_>) -> Result {
        let (mut done, mut rejected) = (NewSubset::default(), NewSubset::first(self.count));
        for property in Property::ALL {
            if let Some((place, verdict)) = self.verdicts.get(property) {
                done.set(place, matches!(verdict, Change::Done(_)));
                rejected.set(place, false);
            }
        }
        done.put(writer)?;
        rejected.put(writer)?;
        put_set(writer, &self.told(false))
    }

    /// Returns whether a property at this place of a request can be told to have changed.
    pub(crate) const fn can_name(place: u32) -> bool {
        place < MAX_ELEMENTS
    }
}

/// The content of a message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Our properties, and which of them do not change.
    Connect {
        /// The properties.
        own: Values,
        /// Those that do not change.
        constant: Each<bool>,
    },
    /// A request.
    Request(Told),
    /// An answer.
    Respond(Response),
    /// Changes.
    Update(Told),
    /// An error: the operation is not known.
    UnknownOperation,
    /// An error: the message can't be read.
    BadHeader,
}

impl Content {
    /// Returns the operation, or the code of the error.
    const fn code(&self) -> u32 {
        match self {
            Self::Connect { .. } => code::CONNPROP,
            Self::Request(_) => code::REQPROP,
            Self::Respond(_) => code::RESPROP,
            Self::Update(_) => code::UPDPROP,
            Self::UnknownOperation => error_code::INVAL_OPTION,
            Self::BadHeader => error_code::BAD_HEADER,
        }
    }

    /// Returns the name of the operation or error, for display.
    pub(crate) const fn name(&self) -> &'static CStr {
        match self {
            Self::Connect { .. } => c"CONNPROP",
            Self::Request(_) => c"REQPROP",
            Self::Respond(_) => c"RESPROP",
            Self::Update(_) => c"UPDPROP",
            Self::UnknownOperation => c"INVAL_OPTION",
            Self::BadHeader => c"BAD_HEADER",
        }
    }

    /// Returns whether it is an error.
    pub(crate) const fn is_error(&self) -> bool {
        matches!(self, Self::UnknownOperation | Self::BadHeader)
    }

    /// Writes what is in the message.
    fn put(&self, writer: &mut Writer<'_>) -> Result {
        match self {
            Self::Connect { own, constant } => {
                put_set(writer, &own.map(|_, value| Some(value)))?;
                let mut subset = NewSubset::default();
                for (place, property) in (0..).zip(Property::ALL) {
                    subset.set(place, constant.get(property));
                }
                subset.put(writer)
            }
            Self::Request(told) | Self::Update(told) => put_set(writer, told),
            Self::Respond(response) => response.put(writer),
            Self::UnknownOperation | Self::BadHeader => Ok(()),
        }
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OptionalMessage {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits requested or granted.
    pub(crate) credits: u32,
    /// The direction. That of an error is not told.
    pub(crate) direction: Direction,
    /// The content.
    pub(crate) content: Content,
}

impl OptionalMessage {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::ZeroCredits`] if there are no credits.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        if self.credits == 0 {
            return Err(Fault::ZeroCredits);
        }
        let mut writer = Writer::new(buf);
        let mut prefix = Prefix {
            xid: self.xid,
            version: VERSION,
            credits: self.credits,
            procedure: procedure::ERROR,
        };
        if self.content.is_error() {
            prefix.put(&mut writer)?;
            writer.u32(self.content.code())?;
            return Ok(writer.len());
        }
        prefix.procedure = procedure::OPTIONAL;
        prefix.put(&mut writer)?;
        writer.u32(self.direction.word())?;
        writer.u32(self.content.code())?;
        let at = writer.len();
        writer.u32(0)?;
        self.content.put(&mut writer)?;
        let end = writer.len();
        // All of it are words, so no padding follows.
        let len = end.saturating_sub(at).saturating_sub(UNIT);
        let len = u32::try_from(len).map_err(|_| Fault::NoSpace)?;
        let place = buf.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
        *place.ok_or(Fault::NoSpace)? = len.to_be_bytes();
        Ok(end)
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_2016_option)
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

    const XID: u32 = 0x2016_0001;

    /// Writes a message.
    fn encoded(direction: Direction, content: Content) -> Result<Bytes> {
        let message = OptionalMessage {
            xid: XID,
            credits: 32,
            direction,
            content,
        };
        Bytes::from_encoder(|buf| message.encode(buf))
    }

    /// What we can do in the examples.
    const OWN: Values = Values {
        receive_size: 0x3000,
        invalidation: 1,
        reverse: 2,
    };

    /// What is asked for in the examples.
    const ASKED: Told = Told {
        receive_size: Some(0x2000),
        invalidation: None,
        reverse: Some(1),
    };

    /// Sections B 4.2, X 4.1 to 4.4.
    #[test]
    fn operations_look_as_in_the_drafts() -> Result {
        let constant = Each {
            invalidation: true,
            ..Each::default()
        };
        let response = Response {
            count: 4,
            verdicts: Each {
                receive_size: Some((2, Change::Other(0x1000))),
                invalidation: None,
                reverse: Some((1, Change::Done(2))),
            },
        };
        for (direction, content, words) in [
            (
                Direction::Call,
                Content::Connect { own: OWN, constant },
                &[
                    XID, 2, 32, 5, 0, 1, 48, 3, 1, 4, 0x3000, 2, 4, 1, 3, 4, 2, 1, 2,
                ][..],
            ),
            (
                Direction::Call,
                Content::Request(ASKED),
                &[XID, 2, 32, 5, 0, 2, 28, 2, 1, 4, 0x2000, 3, 4, 1],
            ),
            (
                Direction::Reply,
                Content::Respond(response),
                &[XID, 2, 32, 5, 1, 3, 32, 1, 2, 1, 9, 1, 1, 4, 0x1000],
            ),
            (
                Direction::Reply,
                Content::Update(Told::default()),
                &[XID, 2, 32, 5, 1, 4, 4, 0],
            ),
            (
                Direction::Reply,
                Content::UnknownOperation,
                &[XID, 2, 32, 4, 3],
            ),
            (Direction::Reply, Content::BadHeader, &[XID, 2, 32, 4, 2]),
        ] {
            let bytes = encoded(direction, content)?;
            assert!(bytes.is_words(words));
            if content.is_error() {
                continue;
            }
            let Ok(read) = decode(bytes.get()) else {
                return Err(Fault::NoPayload);
            };
            assert_eq!(
                (read.xid, read.credits, read.direction),
                (XID, 32, direction)
            );
            match (read.operation, content) {
                (Operation::Connect { set, constant }, Content::Connect { .. }) => {
                    assert_eq!(set.told, OWN.map(|_, value| Some(value)));
                    assert!(
                        [0, 1, 2, 3].map(|n| constant.contains(n)) == [false, true, false, false]
                    );
                }
                (Operation::Request(set), Content::Request(told))
                | (Operation::Update(set), Content::Update(told)) => assert_eq!(set.told, told),
                (Operation::Respond(answer), Content::Respond(_)) => {
                    assert!(answer.done.contains(1) && answer.rejected.contains(3));
                    assert_eq!(answer.other.told.receive_size, Some(0x1000));
                }
                _ => return Err(Fault::NoPayload),
            }
            // Nothing shorter is a message, and nothing longer is.
            for len in 0..bytes.get().len() {
                assert!(decode(bytes.prefix(len)).is_err());
            }
            let longer = bytes.get().len().saturating_add(UNIT);
            assert!(decode(bytes.prefix(longer)).is_err());
        }
        let message = OptionalMessage {
            xid: XID,
            credits: 0,
            direction: Direction::Reply,
            content: Content::BadHeader,
        };
        assert_eq!(message.encode(&mut [0; 64]), Err(Fault::ZeroCredits));
        Ok(())
    }

    /// Sections X 2.1 and 4: what can't be read is reported, unless it is an answer.
    #[test]
    fn invalid_messages_are_reported_but_for_answers() -> Result {
        for (words, invalid) in [
            // Directions.
            (&[XID, 2, 9, 5, 2, 1, 8, 0, 0][..], Invalid::Reported),
            (&[XID, 2, 9, 5, 1, 2, 4, 0], Invalid::Reported),
            (&[XID, 2, 9, 5, 0, 3, 12, 0, 0, 0], Invalid::Answer),
            (&[XID, 2, 9, 5, 2, 63, 0], Invalid::Reported),
            // More elements than there are, no subset, a word behind, inside and outside.
            (
                &[XID, 2, 9, 5, 0, 1, 16, 5, 1, 4, 0x2000],
                Invalid::Reported,
            ),
            (
                &[XID, 2, 9, 5, 0, 1, 16, 1, 1, 4, 0x2000],
                Invalid::Reported,
            ),
            (&[XID, 2, 9, 5, 0, 1, 12, 0, 0, 0], Invalid::Reported),
            (&[XID, 2, 9, 5, 0, 1, 8, 0, 0, 0], Invalid::Reported),
            // Lengths.
            (&[XID, 2, 9, 5, 0, 1, 64, 0], Invalid::Reported),
            (&[XID, 2, 9, 5, 0, 1, 7, 0, 0], Invalid::Reported),
            (&[XID, 2, 9, 5, 0, 1, u32::MAX, 0, 0], Invalid::Reported),
            (&[XID, 2, 9, 5, 0, 63, 4], Invalid::Reported),
            // Values.
            (&[XID, 2, 9, 5, 0, 4, 16, 1, 2, 4, 2], Invalid::Reported),
            (&[XID, 2, 9, 5, 1, 3, 24, 0, 0, 1, 2, 4, 2], Invalid::Answer),
            (&[XID, 2, 9, 5, 1, 3, 12, 5, 0, 0], Invalid::Answer),
            (&[XID, 2, 9, 5, 1, 3, 12, u32::MAX, 0, 0], Invalid::Answer),
        ] {
            let bytes = Bytes::from_words(words)?;
            assert_eq!(decode(bytes.get()), Err(invalid));
        }
        Ok(())
    }

    /// Section B 3.1: whatever is in it, and behind it.
    #[test]
    fn other_operations_are_known_as_such() -> Result {
        for (words, has_payload) in [
            (&[XID, 2, 9, 5, 0, 63, 0][..], false),
            (&[XID, 2, 9, 5, 1, 0, 4, 99], false),
            (&[XID, 2, 9, 5, 1, 5, 3, 99, XID, 1], true),
        ] {
            let bytes = Bytes::from_words(words)?;
            let operation = decode(bytes.get()).map(|message| message.operation);
            assert_eq!(operation, Ok(Operation::Unknown { has_payload }));
        }
        Ok(())
    }

    /// Returns the subset of these elements.
    fn subset(elements: &[u32]) -> NewSubset {
        let mut subset = NewSubset::default();
        for element in elements {
            subset.set(*element, true);
        }
        subset
    }

    /// Section X 2.1: of no words to 17; a word that is missing is zero.
    #[test]
    fn subsets_have_as_many_words_as_they_need() -> Result {
        for words in 0..=17_u32 {
            let bytes = Bytes::from_writer(|writer| {
                writer.u32(words)?;
                (0..words).try_for_each(|word| writer.u32(1_u32.wrapping_shl(word)))
            })?;
            let subset = bytes.read(Subset::get)?;
            for element in 0..600 {
                let (word, bit) = (element / BITS, element % BITS);
                assert_eq!(subset.contains(element), word < words && bit == word);
            }
            assert!(!subset.contains(u32::MAX));
        }
        for (last, expected) in [(31, 1), (32, 2), (511, 16), (512, 0)] {
            let bytes = Bytes::from_writer(|writer| subset(&[last]).put(writer))?;
            assert_eq!(bytes.read(|reader| reader.u32())?, expected);
        }
        for count in [0, 1, 31, 32, 33, 64, 511, 512, 513, u32::MAX] {
            let mut first = NewSubset::first(count);
            first.set(40, false);
            let bytes = Bytes::from_writer(|writer| first.put(writer))?;
            let subset = bytes.read(Subset::get)?;
            for element in 0..600 {
                let is_in = element < count.min(MAX_ELEMENTS) && element != 40;
                assert_eq!(subset.contains(element), is_in);
            }
        }
        Ok(())
    }

    /// Section X 4.3, by sets: for each of the eight combinations of what an answer may say about
    /// an element, at each place.
    #[test]
    fn what_is_named_once_has_changed() -> Result {
        for all in 0..512_u32 {
            let part = |element: u32| all.wrapping_shr(element.saturating_mul(3)) & 7;
            let asked = OWN.map(|_, value| Some(value));
            let has = |element: u32, bit: u32| part(element) & bit != 0;
            let bytes = Bytes::from_writer(|writer| {
                // Bits beyond the elements mean nothing.
                let mut parts = [subset(&[40]), NewSubset::default()];
                for n in 0..3 {
                    for (part, bit) in parts.iter_mut().zip([1, 2]) {
                        part.set(n, has(n, bit));
                    }
                }
                parts.iter().try_for_each(|part| part.put(writer))?;
                let mut other = Told::default();
                for (n, property) in (0..).zip(Property::ALL) {
                    other.set(property, has(n, 4).then_some(0));
                }
                put_set(writer, &other)
            })?;
            let answer = bytes.read(|reader| {
                Ok(ReceivedResponse {
                    done: Subset::get(reader)?,
                    rejected: Subset::get(reader)?,
                    other: Set::get(reader)?,
                })
            })?;
            let changes = answer.changes(&asked);
            for (n, property) in (0..).zip(Property::ALL) {
                let expected = match part(n) {
                    1 => asked.get(property),
                    4 => Some(0),
                    _ => None,
                };
                assert_eq!(changes.get(property), expected);
            }
            // What was not asked for has not changed.
            assert_eq!(answer.changes(&Told::default()), Told::default());
        }
        // An element has the place that it has in the request.
        let answer = |words: &[u32]| {
            read_words(words, |reader| {
                let answer = ReceivedResponse {
                    done: Subset::get(reader)?,
                    rejected: Subset::get(reader)?,
                    other: Set::get(reader)?,
                };
                Ok(answer.changes(&ASKED))
            })
        };
        assert_eq!(
            answer(&[1, 2, 0, 0])?,
            Told {
                reverse: Some(1),
                ..Told::default()
            }
        );
        Ok(())
    }

    /// An answer names all elements up to a number, each of them once.
    #[test]
    fn answers_cover_what_was_asked_for() -> Result {
        let response = Response {
            count: 600,
            verdicts: Each {
                receive_size: Some((33, Change::Done(0x2000))),
                invalidation: Some((40, Change::Other(0))),
                reverse: None,
            },
        };
        let bytes = Bytes::from_writer(|writer| response.put(writer))?;
        let (done, rejected) =
            bytes.read(|reader| Ok((Subset::get(reader)?, Subset::get(reader)?)))?;
        for n in 0..1000 {
            assert_eq!(done.contains(n), n == 33);
            assert_eq!(rejected.contains(n), n < 512 && n != 33 && n != 40);
        }
        assert!(Response::can_name(511) && !Response::can_name(512));
        Ok(())
    }
}
