// SPDX-License-Identifier: GPL-2.0

//! A received header that passed all checks, of any version.

use super::{
    super::{
        chunk::{
            Chunk,
            ReadList,
            ReadSegment,
            Span,
            WriteList, //
        },
        props::Advertised,
        v1, //
    },
    Direction,
    ErrorHeader,
    Prefix,
    RdmaError,
    Version, //
};
use crate::proto::prelude::*;

/// Where the chunk lists of a message are in it. The owner of a message may keep this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    /// The `rdma_inv_handle` field of Version Two as received; see [`Header::invalidate`].
    pub(crate) inv_handle: u32,
    /// The Call chunk of Version Two.
    pub(super) call: Span,
    /// The Read list. Before Version Two the segments at position zero are in it.
    pub(super) read: Span,
    /// The Write list.
    pub(super) write: Span,
    /// The Reply chunk, if it is marked "present".
    pub(super) reply: Option<Span>,
}

/// A received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<'a> {
    /// The version by which it was decoded.
    pub(crate) version: Version,
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credits that are requested or granted. In Version Two it is the number of messages that
    /// the receiver may send, counted from the start of the connection.
    pub(crate) credits: u32,
    /// The contents.
    pub(crate) body: Body<'a>,
    /// The length of the header, which is the offset of the payload.
    pub(crate) header_len: usize,
    /// The RPC message or the part of one behind the header, without the data items that were
    /// reduced from it.
    pub(crate) payload: &'a [u8],
    /// Where its chunk lists are.
    pub(crate) lists: Lists,
    /// The message.
    pub(super) message: &'a [u8],
}

/// The contents of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// The RPC message, or its last part, follows the header.
    Inline(Direction),
    /// A chunk holds the RPC message.
    External(Direction),
    /// A part of an RPC message follows the header, and it is not the last one.
    Middle {
        /// The direction of the RPC message.
        direction: Direction,
        /// The number of octets of the RPC message still to come.
        remaining: u32,
    },
    /// An error. There is no RPC message, and the Call with this transaction ID ends.
    Error(RdmaError),
    /// Credits only.
    Grant,
    /// Transport properties.
    Properties {
        /// The properties that the message advertises.
        told: Advertised<'a>,
        /// True if this is the final message.
        last: bool,
    },
}

impl<'a> Header<'a> {
    /// A Call that was decoded before: it is in `message`, and these are its transaction ID, the
    /// size of its header, and its lists.
    #[inline]
    pub(crate) fn of_call(
        (version, xid, header_len): (Version, u32, usize),
        external: bool,
        lists: &Lists,
        message: &'a [u8],
    ) -> Self {
        let (body, payload) = if external {
            (Body::External(Direction::Call), &[][..])
        } else {
            let payload = message.get(header_len..).unwrap_or(&[]);
            (Body::Inline(Direction::Call), payload)
        };
        Self {
            version,
            xid,
            // Nobody asks again.
            credits: 0,
            body,
            header_len,
            payload,
            lists: *lists,
            message,
        }
    }

    /// Returns the direction of the RPC message. An error answers a Call: only Responders send it
    /// (RFC 8166, 4.2.4). [`None`] if the message is about the connection.
    #[inline]
    pub(crate) const fn direction(&self) -> Option<Direction> {
        match self.body {
            Body::Inline(direction)
            | Body::External(direction)
            | Body::Middle { direction, .. } => Some(direction),
            Body::Error(_) => Some(Direction::Reply),
            Body::Grant | Body::Properties { .. } => None,
        }
    }

    /// Returns whether it is a Call, or the last part of one.
    #[inline]
    pub(crate) const fn is_call(&self) -> bool {
        matches!(
            self.body,
            Body::Inline(Direction::Call) | Body::External(Direction::Call)
        )
    }

    /// Returns whether a chunk holds the RPC message.
    #[inline]
    pub(crate) const fn is_external(&self) -> bool {
        matches!(self.body, Body::External(_))
    }

    /// Returns the error, if it is one.
    pub(crate) const fn error(&self) -> Option<RdmaError> {
        match self.body {
            Body::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the Call chunk of Version Two.
    pub(crate) fn call_list(&self) -> ReadList<'a> {
        ReadList::at(&self.lists.call, self.message)
    }

    /// Returns the Read list, which is empty in a Reply.
    pub(crate) fn read_list(&self) -> ReadList<'a> {
        ReadList::at(&self.lists.read, self.message)
    }

    /// Returns the Write list.
    pub(crate) fn write_list(&self) -> WriteList<'a> {
        WriteList::at(&self.lists.write, self.message)
    }

    /// Returns the Reply chunk, if there is one.
    pub(crate) fn reply_chunk(&self) -> Option<Chunk<'a>> {
        let span = self.lists.reply.as_ref()?;
        Some(Chunk::at(span, self.message))
    }

    /// Returns all Read segments. Those at position zero come first in Version Two.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ReadSegment> + 'a {
        self.call_list().iter().chain(self.read_list().iter())
    }

    /// Returns whether there is nothing to read.
    pub(crate) const fn reads_nothing(&self) -> bool {
        self.lists.call.is_empty() && self.lists.read.is_empty()
    }

    /// Returns how many octets there are to read, or nothing if that is more than an XDR stream can
    /// hold.
    pub(crate) fn read_total(&self) -> Option<u32> {
        let call = self.call_list().total();
        call.checked_add(self.read_list().total())
    }

    /// Returns whether there are any chunks.
    pub(crate) const fn has_chunks(&self) -> bool {
        !self.reads_nothing() || self.offers_chunks()
    }

    /// Returns whether it offers chunks for its Reply.
    pub(crate) const fn offers_chunks(&self) -> bool {
        !self.lists.write.is_empty() || self.lists.reply.is_some()
    }

    /// Returns all segments, those of a Call chunk first.
    pub(crate) fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        let chunks = self.write_list().iter().chain(self.reply_chunk());
        self.reads()
            .map(|entry| entry.segment)
            .chain(chunks.flat_map(|chunk| chunk.iter()))
    }

    /// Returns the number of chunks in the Read list. The segments of a chunk are adjacent and have
    /// the same position (RFC 8166, 3.4.5; Version Two, 4.5.1).
    pub(crate) fn read_chunks(&self) -> usize {
        let mut last = 0;
        self.read_list()
            .iter()
            .filter(|entry| core::mem::replace(&mut last, entry.position) != entry.position)
            .count()
    }

    /// Returns the handle to be invalidated with the Reply, if handles may be invalidated at all.
    ///
    /// In Version Two it is the one that the Requester names, if it is in this header (6.5); any
    /// other may belong to another RPC. Version One has no name for it, and it is of use only if it
    /// is the same in all segments, so that nothing is left for the Requester to do (RFC 8797).
    pub(crate) fn invalidate(&self) -> Option<u32> {
        let mut segments = self.segments();
        if self.version == Version::Two {
            let named = self.lists.inv_handle;
            return Some(named).filter(|_| named != 0 && segments.any(|s| s.handle == named));
        }
        let mut first = None;
        let same = segments.all(|s| *first.get_or_insert(s.handle) == s.handle);
        first.filter(|_| same)
    }
}

/// The reason why a message was not accepted, and the part of it that can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeError {
    /// The reason.
    pub(crate) fault: Fault,
    /// The first four words, unless the message is too short for them to be trusted.
    pub(crate) prefix: Option<Prefix>,
    /// The direction (Call or Reply), if it is known.
    pub(crate) direction: Option<Direction>,
}

impl From<Fault> for DecodeError {
    fn from(fault: Fault) -> Self {
        Self {
            fault,
            prefix: None,
            direction: None,
        }
    }
}

impl DecodeError {
    /// Returns the error message with which a Responder of a version that counts Calls answers, or
    /// `None` if the received message must be discarded silently.
    ///
    /// Runts, RDMA_DONE and everything that comes from a Responder are not answered (RFC 8166,
    /// 4.2.4, 4.5 and 4.6). If the direction is unknown, the caller decides whether this was a
    /// Call.
    pub(crate) fn answer(&self, credits: u32) -> Option<ErrorHeader> {
        let prefix = self.prefix?;
        if self.direction == Some(Direction::Reply) {
            return None;
        }
        let error = match self.fault {
            Fault::Runt | Fault::ObsoleteDone => return None,
            Fault::Version(_) => RdmaError::Version {
                low: v1::VERSION,
                high: v1::VERSION,
            },
            _ => RdmaError::BadXdr,
        };
        Some(ErrorHeader {
            xid: prefix.xid,
            version: prefix.version,
            credits,
            error,
        })
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_message_header)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::testing::{
                decode_reply,
                Bytes, //
            },
            decode_call,
            Returned,
            Short, //
        },
        *, //
    };

    /// The same Call in both versions: a Call chunk, a Read chunk and a Reply chunk.
    const CALLS: [(Version, &[u32]); 2] = [
        (
            Version::One,
            &[
                7, 1, 1, 1, 1, 0, 5, 40, 0, 9, 1, 8, 6, 4, 0, 9, 0, 0, 1, 1, 5, 100, 0, 9,
            ],
        ),
        (
            Version::Two,
            &[
                7, 2, 1, 8, 6, 1, 0, 5, 40, 0, 9, 0, 1, 8, 6, 4, 0, 9, 0, 0, 1, 1, 5, 100, 0, 9,
            ],
        ),
    ];

    /// A Call in parts has its chunks in the last one, behind whose header no RPC message begins.
    #[test]
    fn the_last_part_tells_of_chunks() -> Result {
        let plain = Bytes::from_words(&[7, 2, 1, 10, 0, 0, 0, 0, 9, 9])?;
        let short = Short::decode_call(Version::Two, plain.get()).ok_or(Fault::NoPayload)?;
        assert!(short.chunk.is_none());
        let words = &[7, 2, 1, 10, 0, 1, 8, 6, 4, 0, 9, 0, 0, 0, 9, 9];
        let reading = Bytes::from_words(words)?;
        assert_eq!(Short::decode_call(Version::Two, reading.get()), None);
        Ok(())
    }

    #[test]
    fn a_special_call_is_the_same_in_both_versions() -> Result {
        for (version, words) in CALLS {
            let bytes = Bytes::from_words(words)?;
            let call = decode_call(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!((call.xid, call.credits, call.is_external()), (7, 1, true));
            assert!(call.reads().map(|entry| entry.position).eq([0, 8]));
            assert_eq!(call.read_total(), Some(44));
            assert!(call.write_list().is_empty());
            assert_eq!(call.reply_chunk().map(|chunk| chunk.total()), Some(100));
            assert!(call.has_chunks() && !call.reads_nothing());
            assert_eq!(call.segments().count(), 3);
            assert!(call.segments().map(|s| s.handle).eq([5, 6, 5]));
            assert_eq!(call.header_len, bytes.get().len());
            let head = (version, call.xid, call.header_len);
            let again = Header::of_call(head, call.is_external(), &call.lists, bytes.get());
            assert_eq!(again, Header { credits: 0, ..call });
            assert!(decode_reply(version, bytes.get()).is_none());
        }
        Ok(())
    }

    /// Version One: only what fences all of it. Version Two, 6.5: the handle that is named.
    #[test]
    fn what_may_be_invalidated() -> Result {
        for ((version, words), expected) in CALLS.into_iter().zip([None, Some(6)]) {
            let bytes = Bytes::from_words(words)?;
            let call = decode_call(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(call.invalidate(), expected);
        }
        let bytes = Bytes::from_words(&[7, 1, 1, 0, 0, 1, 1, 5, 8, 0, 0, 0, 0, 7, 0])?;
        let call = decode_call(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
        assert_eq!(call.invalidate(), Some(5));
        assert_eq!(call.write_list().most_segments(), 1);
        let bytes = Bytes::from_words(&[7, 2, 1, 10, 0, 0, 1, 1, 5, 8, 0, 0, 0, 0, 7, 0])?;
        let call = decode_call(Version::Two, bytes.get()).ok_or(Fault::NoPayload)?;
        assert_eq!(call.invalidate(), None);
        Ok(())
    }

    /// RFC 8167, section 5.3: a chunk is detected in any of the lists.
    #[test]
    fn any_chunk_is_a_chunk() -> Result {
        for (words, has_chunks) in [
            (&[7, 1, 1, 0, 0, 0, 0, 7, 0][..], false),
            (&[7, 1, 1, 0, 1, 8, 1, 1, 0, 0, 0, 0, 0, 7, 0], true),
            (&[7, 1, 1, 0, 0, 1, 0, 0, 0, 7, 0], true),
            (&[7, 1, 1, 0, 0, 0, 1, 0, 7, 0], true),
            (&[7, 1, 1, 1, 1, 0, 1, 1, 0, 0, 0, 0, 0], true),
        ] {
            let bytes = Bytes::from_words(words)?;
            let call = decode_call(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(call.is_external() || call.has_chunks(), has_chunks);
        }
        Ok(())
    }

    #[test]
    fn replies_are_the_same_in_both_versions() -> Result {
        for (version, words, special) in [
            (Version::One, &[7, 1, 1, 0, 0, 0, 0, 7, 1][..], false),
            (Version::Two, &[7, 2, 1, 13, 0, 7, 1], false),
            (Version::One, &[7, 1, 1, 1, 0, 0, 1, 1, 5, 8, 0, 0], true),
            (Version::Two, &[7, 2, 1, 11, 0, 1, 1, 5, 8, 0, 0], true),
        ] {
            let bytes = Bytes::from_words(words)?;
            let reply = decode_reply(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(reply.special, special);
            let segment = Segment {
                handle: 5,
                length: 8,
                offset: 0,
            };
            let returned = Returned {
                written: 0,
                placed: if special { 8 } else { 0 },
            };
            let offered = [segment].into_iter();
            assert_eq!(reply.returned([].into_iter(), offered), Some(returned));
            assert!(decode_call(version, bytes.get()).is_none());
        }
        Ok(())
    }

    /// The short way to decode a Call without chunks says what the long one does.
    #[test]
    fn a_plain_call_is_the_same_call() -> Result {
        for (version, words, plain) in [
            (Version::One, &[7, 1, 9, 0, 0, 0, 0, 7, 0, 5][..], true),
            (Version::One, &[7, 1, 9, 0, 0, 0, 0, 7, 1, 5], false),
            (Version::One, &[7, 1, 9, 0, 0, 0, 0, 8, 0, 5], false),
            (Version::One, &[7, 1, 9, 0, 0, 1, 0, 0, 0, 7, 0], false),
            (Version::Two, &[7, 2, 9, 10, 0, 0, 0, 0, 7, 0, 5], true),
            (Version::Two, &[7, 2, 9, 13, 0, 7, 1, 5], false),
            (Version::Two, &[7, 2, 9, 10, 0, 0, 0, 1, 0, 7, 0], false),
        ] {
            let bytes = Bytes::from_words(words)?;
            let found = Short::decode_call(version, bytes.get());
            assert_eq!(found.is_some(), plain);
            let Some(found) = found else { continue };
            let call = decode_call(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(found.header(bytes.get()), call);
            assert!(found.chunk.is_none() && found.reads_nothing());
            assert_eq!((call.has_chunks(), call.invalidate()), (false, None));
        }
        Ok(())
    }

    #[test]
    fn errors_are_neither() -> Result {
        for (version, words) in [
            (Version::One, [7, 1, 1, 4, 2]),
            (Version::Two, [7, 2, 1, 4, 100]),
        ] {
            let bytes = Bytes::from_words(&words)?;
            assert!(decode_call(version, bytes.get()).is_none());
            assert!(decode_reply(version, bytes.get()).is_none());
        }
        Ok(())
    }
}
