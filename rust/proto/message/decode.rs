// SPDX-License-Identifier: GPL-2.0

//! Decoding and checking of received messages, by their layouts.
//!
//! The checks here depend on one message alone. For Version Two, [`super::super::session`] checks
//! whether the message may come at this point, and whether the parts of an RPC message fit
//! together.

use super::{
    super::{
        chunk::{
            Chunk,
            ReadList,
            WriteList, //
        },
        props::Advertised,
        v1, //
    },
    layout::{
        list,
        Behind,
        Layout,
        Word, //
    },
    Body,
    DecodeError,
    Direction,
    Header,
    Lists,
    Prefix,
    RdmaError,
    Short,
    Version, //
};
use crate::proto::prelude::*;

/// Decodes a received message of a version.
///
/// # Errors
///
/// See [`Fault`]; [`Fault::Runt`] for a message that is too short for its prefix to be trusted. No
/// strict prefix of a valid message is accepted, except that an RPC message may lack its end, which
/// only the RPC layer can tell.
#[inline]
pub(crate) fn decode<'a>(
    version: Version,
    bytes: &'a [u8],
    limits: &Limits,
) -> core::result::Result<Header<'a>, DecodeError> {
    if version == Version::Two {
        if let Some(short) = Short::of_any_part(bytes, limits) {
            return Ok(short.header(bytes));
        }
    }
    decode_any(version, bytes, limits)
}

/// Decodes a Call. Of everything else, and of what is not sound, nothing is returned.
pub(crate) fn decode_call(version: Version, bytes: &[u8]) -> Option<Header<'_>> {
    let header = decode(version, bytes, &Limits::DEFAULT).ok()?;
    header.is_call().then_some(header)
}

/// Decodes a received message of any kind.
///
/// # Errors
///
/// As for [`decode`].
#[inline(never)]
pub(super) fn decode_any<'a>(
    version: Version,
    bytes: &'a [u8],
    limits: &Limits,
) -> core::result::Result<Header<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let prefix = Prefix::get(&mut reader).map_err(|_| Fault::Runt)?;
    // Below 28 octets not even the transaction ID can be trusted. The RFC overlooks here that an
    // RDMA_ERROR message with ERR_CHUNK has only 20. The draft of 2016 refers to it (4.2.3);
    // Version Two has shorter messages.
    let is_short = bytes.len() < v1::MIN_HEADER_LEN && prefix.procedure != super::ERROR;
    if is_short && version != Version::Two {
        return Err(Fault::Runt.into());
    }
    let mut decoder = Decoder {
        version,
        xid: prefix.xid,
        reader,
        direction: None,
        lists: Lists::default(),
        payload: &[],
    };
    let body = match Layout::of(version, prefix.procedure) {
        Some(layout) if prefix.version == version.number() => decoder.body(layout, limits),
        _ => decoder.other(&prefix),
    };
    match body {
        Ok(body) => Ok(Header {
            version,
            xid: prefix.xid,
            credits: prefix.credits,
            body,
            header_len: decoder.reader.position(),
            payload: decoder.payload,
            lists: decoder.lists,
            message: bytes,
        }),
        Err(fault) => Err(DecodeError {
            fault,
            prefix: Some(prefix),
            direction: decoder.direction,
        }),
    }
}

/// A message that is being decoded.
struct Decoder<'a> {
    /// The version.
    version: Version,
    /// The transaction ID.
    xid: u32,
    /// What is not decoded yet.
    reader: Reader<'a>,
    /// The direction, if it is known.
    direction: Option<Direction>,
    /// Where the chunk lists are.
    lists: Lists,
    /// The RPC message, or the part of one.
    payload: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Decodes a message that has no layout: an error, or one that is not valid.
    #[inline(always)]
    fn other(&mut self, prefix: &Prefix) -> Result<Body<'a>> {
        let is_error = prefix.procedure == super::ERROR;
        if prefix.version != self.version.number() {
            // The procedure numbers of errors and of RDMA_MSG and RDMA_NOMSG are fixed for all
            // versions.
            let is_known = is_error && self.version == Version::One;
            self.direction = Some(Direction::Reply).filter(|_| is_known);
            return Err(Fault::Version(prefix.version));
        }
        if is_error {
            self.direction = Some(Direction::Reply);
            // Trailing bytes are ignored. The error is clear without them, and an RPC waits for it.
            return RdmaError::get(&mut self.reader, self.version).map(Body::Error);
        }
        Err(match (self.version, prefix.procedure) {
            (Version::One, v1::procedure::MSGP) => Fault::ObsoleteMsgp,
            (Version::One, v1::procedure::DONE) => Fault::ObsoleteDone,
            (_, other) => Fault::BadProcedure(other),
        })
    }

    /// Decodes the message behind the prefix, up to the RPC message.
    #[inline(always)]
    fn body(&mut self, layout: &Layout, limits: &Limits) -> Result<Body<'a>> {
        self.direction = layout.direction;
        let word = match layout.word {
            Word::Absent => 0,
            Word::Direction | Word::Invalidate | Word::Remaining => self.reader.u32()?,
        };
        if layout.word == Word::Direction {
            self.direction = Some(Direction::from_word(word)?);
        }
        match layout.behind {
            Behind::Rpc | Behind::InChunk => {
                if layout.word == Word::Invalidate {
                    self.lists.inv_handle = word;
                }
                self.rpc(layout, limits)
            }
            Behind::Part => {
                self.payload = self.part()?;
                Ok(Body::Middle {
                    direction: self.direction.ok_or(Fault::BadProcedure(layout.htype))?,
                    remaining: word,
                })
            }
            Behind::Nothing => self.ends(Body::Grant),
            Behind::Properties(last) => {
                let told = Advertised::get(&mut self.reader)?;
                self.ends(Body::Properties { told, last })
            }
        }
    }

    /// Decodes the chunk lists, and checks where the RPC message is.
    #[inline(always)]
    fn rpc(&mut self, layout: &Layout, limits: &Limits) -> Result<Body<'a>> {
        let is_two = self.version == Version::Two;
        let (reader, lists) = (&mut self.reader, &mut self.lists);
        let (mut call, mut read, mut reply) = (ReadList::default(), ReadList::default(), None);
        if layout.has(list::CALL) {
            (lists.call, call) = ReadList::find(reader, limits)?;
            // Section 6.6.3 of Version Two.
            if let Some(entry) = call.iter().find(|entry| entry.position != 0) {
                return Err(Fault::UnexpectedPosition(entry.position));
            }
            if call.total() == 0 {
                return Err(Fault::NoPayload);
            }
        }
        if layout.has(list::READ) {
            (lists.read, read) = ReadList::find(reader, limits)?;
            if is_two {
                check_order(read.iter())?;
            }
        }
        if layout.has(list::WRITE) {
            lists.write = WriteList::find(reader, limits)?;
        }
        if layout.has(list::REPLY) && reader.bool()? {
            let (span, chunk) = Chunk::find(reader, limits)?;
            (lists.reply, reply) = (Some(span), Some(chunk));
        }
        if layout.behind == Behind::Rpc {
            self.payload = if is_two {
                self.part()?
            } else {
                self.reader.rest()
            };
            return self.inline(&read).map(Body::Inline);
        }
        let direction = self.direction.unwrap_or(if read.is_empty() {
            Direction::Reply
        } else {
            Direction::Call
        });
        let holder = if is_two {
            call.total()
        } else {
            read.position_zero_len().unwrap_or(0)
        };
        let len = match direction {
            Direction::Call => holder,
            Direction::Reply => reply.map_or(0, |chunk| chunk.total()),
        };
        let is_end = self.reader.is_empty();
        match direction {
            _ if !is_end && (!is_two || len != 0) => Err(Fault::TrailingBytes),
            Direction::Reply if !read.is_empty() => Err(Fault::ReadListInReply),
            _ if len == 0 => Err(Fault::NoPayload),
            _ => Ok(Body::External(direction)),
        }
    }

    /// Checks the RPC message behind a header, and returns its direction. In a version that counts
    /// Calls it starts with the transaction ID and the direction, which the header may tell as well
    /// (4.2.2 of the draft of 2016).
    #[inline(always)]
    fn inline(&mut self, read: &ReadList<'_>) -> Result<Direction> {
        if let (Version::Two, Some(direction)) = (self.version, self.direction) {
            return Ok(direction);
        }
        let mut rpc = Reader::new(self.payload);
        if rpc.is_empty() {
            return Err(Fault::NoPayload);
        }
        let xid = rpc.u32()?;
        let direction = Direction::from_word(rpc.u32()?)?;
        let told = *self.direction.get_or_insert(direction);
        if xid != self.xid {
            Err(Fault::XidMismatch)
        } else if direction == Direction::Reply && !read.is_empty() {
            Err(Fault::ReadListInReply)
        } else if read.position_zero_len().is_some() {
            Err(Fault::UnexpectedPositionZero)
        } else if told != direction {
            Err(Fault::BadDirection(direction.word()))
        } else {
            Ok(direction)
        }
    }

    /// Returns the part of an RPC message behind a header of Version Two. Its first word is
    /// required, since the header's XDR definition includes it.
    fn part(&self) -> Result<&'a [u8]> {
        match self.reader.rest() {
            [] => Err(Fault::NoPayload),
            rest if rest.len() < UNIT => Err(Fault::Truncated),
            rest => Ok(rest),
        }
    }

    /// Checks that nothing follows, and returns `body`.
    fn ends(&self, body: Body<'a>) -> Result<Body<'a>> {
        if self.reader.is_empty() {
            Ok(body)
        } else {
            Err(Fault::TrailingBytes)
        }
    }
}

/// Checks a Read list of Version Two: position zero is reserved for a Call chunk (4.5.1.2, 6.3.7),
/// and positions do not decrease (4.5.1.1).
pub(super) fn check_order(entries: impl Iterator<Item = super::ReadSegment>) -> Result {
    let mut last = 0;
    for entry in entries {
        if entry.position == 0 {
            return Err(Fault::UnexpectedPositionZero);
        }
        if entry.position < last {
            return Err(Fault::UnorderedPosition(entry.position));
        }
        last = entry.position;
    }
    Ok(())
}

/// Checks that an RPC message, or the first part of one, agrees with its transport header (Version
/// Two, 7.2). Its first two words are its transaction ID and its direction.
///
/// # Errors
///
/// [`Fault::XidMismatch`] and [`Fault::BadDirection`]; [`Fault::Truncated`] if there is no
/// transaction ID.
#[inline]
pub(crate) fn check_rpc(payload: &[u8], xid: u32, direction: Direction) -> Result {
    let mut reader = Reader::new(payload);
    if reader.u32()? != xid {
        return Err(Fault::XidMismatch);
    }
    match reader.u32() {
        Ok(word) if word != direction.word() => Err(Fault::BadDirection(word)),
        // The first part may end after the transaction ID.
        _ => Ok(()),
    }
}
