// SPDX-License-Identifier: GPL-2.0

//! Calls and Replies that have arrived.

use super::{
    super::{
        chunk::{
            Chunk,
            Limits,
            Place,
            ReadList,
            ReadSegment,
            Segment,
            WriteList, //
        },
        v1,
        v2::{
            self,
            Body, //
        }, //
    },
    decode_counted,
    only_chunk::{
        ChunkKind,
        OnlyChunk, //
    },
    short::Short,
    Version, //
};

/// A Call, as its Responder sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credit value: a request in Version One, a promise in Version Two.
    pub(crate) credits: u32,
    /// Set if the RPC message is in a chunk, and not behind the header.
    pub(crate) special: bool,
    /// The Write list.
    pub(crate) write: WriteList<'a>,
    /// The Reply chunk.
    pub(crate) reply: Option<Chunk<'a>>,
    /// The RPC message behind the header, without what was reduced from it.
    pub(crate) payload: &'a [u8],
    /// The size of the header.
    pub(crate) header_len: usize,
    /// The Read list. In Version One the segments at position zero are in it.
    read: ReadList<'a>,
    /// The segments at position zero, in Version Two.
    body: ReadList<'a>,
    /// The consent to remote invalidation.
    consent: Consent,
}

/// The consent of a Requester to the invalidation of its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    /// Nothing: if they may be invalidated at all, then any of them (RFC 8797).
    Silent,
    /// It names one of them, or none.
    Named(Option<u32>),
}

impl<'a> Call<'a> {
    /// Decodes a Call. Of everything else, and of what is not sound, nothing is returned.
    pub(crate) fn decode(version: Version, bytes: &'a [u8]) -> Option<Self> {
        match version {
            Version::Two => Self::from_two(&v2::decode(bytes, &Limits::DEFAULT).ok()?),
            Version::One | Version::Earlier => {
                Self::from_one(&decode_counted(version, bytes).ok()?)
            }
        }
    }

    /// The view of a message of Version One, or of the earlier protocol.
    #[inline]
    pub(crate) fn from_one(header: &v1::Header<'a>) -> Option<Self> {
        (header.rpc_direction() == v1::Direction::Call).then(|| Self {
            xid: header.xid,
            credits: header.credits,
            special: header.is_nomsg(),
            write: header.write_list(),
            reply: header.reply_chunk(),
            payload: header.payload(),
            header_len: header.header_len(),
            read: header.read_list(),
            body: ReadList::default(),
            consent: Consent::Silent,
        })
    }

    /// The view of a message of Version Two.
    pub(crate) fn from_two(header: &v2::Header<'a>) -> Option<Self> {
        let (offer, special) = match header.body {
            Body::CallExternal(offer) => (offer, true),
            Body::CallInline { offer, .. } => (offer, false),
            _ => return None,
        };
        Some(Self {
            xid: header.xid,
            credits: header.credits,
            special,
            write: offer.write,
            reply: offer.reply,
            payload: header.payload(),
            header_len: header.header_len(),
            read: offer.read,
            body: offer.call,
            consent: Consent::Named(offer.invalidate()),
        })
    }

    /// Returns all Read segments. Those at position zero come first in Version Two.
    pub(crate) fn reads(&self) -> impl Iterator<Item = ReadSegment> + 'a {
        self.body.iter().chain(self.read.iter())
    }

    /// Returns whether there is nothing to read.
    pub(crate) const fn reads_nothing(&self) -> bool {
        self.body.is_empty() && self.read.is_empty()
    }

    /// Returns how many octets there are to read, or nothing if that is more than an XDR stream can
    /// hold.
    pub(crate) fn read_total(&self) -> Option<u32> {
        self.body.total().checked_add(self.read.total())
    }

    /// Returns whether there are any chunks.
    pub(crate) const fn has_chunks(&self) -> bool {
        !self.reads_nothing() || self.offers_chunks()
    }

    /// Returns whether it offers chunks for its Reply.
    pub(crate) const fn offers_chunks(&self) -> bool {
        !self.write.is_empty() || self.reply.is_some()
    }

    /// Returns the handle to be invalidated with the Reply, if handles may be invalidated at all.
    ///
    /// In Version Two it is the one that the Requester names (6.5). Version One has no name for it,
    /// and it is of use only if it is the same in all segments, so that nothing is left for the
    /// Requester to do.
    pub(crate) fn invalidate(&self) -> Option<u32> {
        match self.consent {
            Consent::Named(handle) => handle,
            Consent::Silent => {
                let mut first = None;
                let mut is_same = |handle: u32| *first.get_or_insert(handle) == handle;
                let mut chunks = self.write.iter().chain(self.reply);
                let same = self.reads().all(|entry| is_same(entry.segment.handle))
                    && chunks.all(|chunk| chunk.iter().all(|segment| is_same(segment.handle)));
                first.filter(|_| same)
            }
        }
    }

    /// Returns how many segments there are in all chunks.
    pub(crate) fn segment_count(&self) -> usize {
        self.segments().count()
    }

    /// Returns all segments.
    fn segments(&self) -> impl Iterator<Item = Segment> + 'a {
        let chunks = self.write.iter().chain(self.reply);
        self.reads()
            .map(|entry| entry.segment)
            .chain(chunks.flat_map(|chunk| chunk.iter()))
    }
}

/// A Call that was decoded and has one chunk of one segment at most, and its RPC message behind the
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortCall {
    /// The version of the header.
    pub(crate) version: Version,
    /// The transaction ID.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The size of the header.
    pub(crate) header_len: usize,
    /// The chunk. A Call of a version that counts messages has none.
    pub(crate) chunk: Option<OnlyChunk>,
}

impl ShortCall {
    /// Decodes such a Call. Returns nothing for everything else, sound or not.
    #[inline]
    pub(crate) fn decode(version: Version, bytes: &[u8]) -> Option<Self> {
        match version {
            Version::One | Version::Earlier => {
                let short = Short::decode(version, bytes)?;
                (!short.is_reply).then_some(Self {
                    version,
                    xid: short.xid,
                    credits: short.credits,
                    header_len: short.header_len,
                    chunk: short.chunk,
                })
            }
            Version::Two => {
                let plain = v2::Plain::get(bytes)?;
                let is_call = plain.direction == v2::Direction::Call;
                is_call.then_some(Self {
                    version,
                    xid: plain.xid,
                    credits: plain.credits,
                    header_len: plain.header_len,
                    chunk: None,
                })
            }
        }
    }

    /// Returns the Call, whose message it is. If it has a chunk it is decoded for that.
    pub(crate) fn call<'a>(&self, message: &'a [u8]) -> Option<Call<'a>> {
        if self.chunk.is_some() {
            return Call::decode(self.version, message);
        }
        Some(Call {
            xid: self.xid,
            credits: self.credits,
            special: false,
            write: WriteList::NONE,
            reply: None,
            payload: self.payload(message),
            header_len: self.header_len,
            read: ReadList::NONE,
            body: ReadList::NONE,
            // There is no handle to be invalidated.
            consent: Consent::Silent,
        })
    }

    /// Returns the RPC message behind the header, without what was reduced from it.
    #[inline]
    pub(crate) fn payload<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        message.get(self.header_len..).unwrap_or(&[])
    }

    /// Returns whether it has any chunk.
    pub(crate) const fn has_chunks(&self) -> bool {
        self.chunk.is_some()
    }

    /// Returns whether there is nothing to read.
    #[inline]
    pub(crate) fn reads_nothing(&self) -> bool {
        !self.chunk.is_some_and(|chunk| chunk.kind.is_read())
    }
}

/// A Call that was decoded, without a reference to its message: where the lists are in that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlaces {
    /// The transaction ID.
    xid: u32,
    /// The credit value.
    credits: u32,
    /// Set if the RPC message is in a chunk.
    special: bool,
    /// The Write list.
    write: Place<usize>,
    /// The Reply chunk.
    reply: Option<Place<u32>>,
    /// The size of the header.
    header_len: usize,
    /// The Read list.
    read: Place<u32>,
    /// The segments at position zero, in Version Two.
    body: Place<u32>,
    /// The consent to remote invalidation.
    consent: Consent,
}

impl CallPlaces {
    /// Takes note of a Call in `message`.
    #[inline]
    pub(crate) fn of(call: &Call<'_>, message: &[u8]) -> Self {
        Self {
            xid: call.xid,
            credits: call.credits,
            special: call.special,
            write: call.write.place(message),
            reply: call.reply.map(|chunk| chunk.place(message)),
            header_len: call.header_len,
            read: call.read.place(message),
            body: call.body.place(message),
            consent: call.consent,
        }
    }

    /// Returns the Call again, whose message it is.
    #[inline]
    pub(crate) fn call<'a>(&self, message: &'a [u8]) -> Call<'a> {
        Call {
            xid: self.xid,
            credits: self.credits,
            special: self.special,
            write: WriteList::at(&self.write, message),
            reply: self.reply.as_ref().map(|place| Chunk::at(place, message)),
            payload: if self.special {
                &[]
            } else {
                message.get(self.header_len..).unwrap_or(&[])
            },
            header_len: self.header_len,
            read: ReadList::at(&self.read, message),
            body: ReadList::at(&self.body, message),
            consent: self.consent,
        }
    }
}

/// A Reply, as its Requester sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    /// Set if the RPC message is in the Reply chunk, and not behind the header.
    pub(crate) special: bool,
    /// The chunks that came back.
    pub(crate) chunks: ReplyChunks<'a>,
    /// The size of the header.
    pub(crate) header_len: usize,
}

/// The chunks of a Reply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyChunks<'a> {
    /// One of one segment, or none.
    Short(Option<OnlyChunk>),
    /// Any.
    Any {
        /// The Write list.
        write: WriteList<'a>,
        /// The Reply chunk.
        reply: Option<Chunk<'a>>,
    },
}

/// The numbers of octets that a Responder claims to have written to the chunks of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Returned {
    /// Those in the Write chunk.
    pub(crate) written: u32,
    /// Those in the Reply chunk.
    pub(crate) placed: u32,
}

impl<'a> Reply<'a> {
    /// A Reply without chunks: the RPC message follows a header of this size.
    pub(crate) const fn without_chunks(header_len: usize) -> Self {
        Self {
            special: false,
            chunks: ReplyChunks::Short(None),
            header_len,
        }
    }

    /// The view of a message that was decoded in a few steps.
    #[inline]
    pub(crate) fn of_short(short: &Short) -> Self {
        let is_in = |chunk: OnlyChunk| chunk.kind == ChunkKind::Reply;
        Self {
            special: short.chunk.is_some_and(is_in),
            chunks: ReplyChunks::Short(short.chunk),
            header_len: short.header_len,
        }
    }

    /// Compares the chunks with those that the Call has offered, see [`Chunk::check_returned`].
    /// [`None`] if they differ in more than they may.
    ///
    /// RFC 8166 sections 3.4.6 and 4.3.3: the Responder returns the chunks that were offered, with
    /// the lengths that it used.
    #[inline]
    pub(crate) fn returned(
        &self,
        write: impl ExactSizeIterator<Item = Segment>,
        reply: impl ExactSizeIterator<Item = Segment>,
    ) -> Option<Returned> {
        let (written, placed) = match &self.chunks {
            ReplyChunks::Short(None) => (0, 0),
            ReplyChunks::Short(Some(only)) => match only.kind {
                ChunkKind::Read { .. } => return None,
                ChunkKind::Write => (only.returned(write)?, 0),
                ChunkKind::Reply => (0, only.returned(reply)?),
            },
            ReplyChunks::Any {
                write: returned,
                reply: placed,
            } => {
                let written = match returned.single() {
                    Some(chunk) => chunk.check_returned(write).ok()?,
                    None if returned.is_empty() => 0,
                    None => return None,
                };
                let placed = match placed {
                    Some(chunk) => chunk.check_returned(reply).ok()?,
                    None => 0,
                };
                (written, placed)
            }
        };
        Some(Returned { written, placed })
    }

    /// The view of a message of Version One, or of the earlier protocol.
    #[inline]
    pub(crate) fn from_one(header: &v1::Header<'a>) -> Option<Self> {
        let is_reply = header.rpc_direction() == v1::Direction::Reply && header.error().is_none();
        is_reply.then(|| Self {
            special: header.is_nomsg(),
            chunks: ReplyChunks::Any {
                write: header.write_list(),
                reply: header.reply_chunk(),
            },
            header_len: header.header_len(),
        })
    }

    /// The view of a message of Version Two.
    pub(crate) fn from_two(header: &v2::Header<'a>) -> Option<Self> {
        let (write, reply) = match header.body {
            Body::ReplyExternal { write, reply } => (write, Some(reply)),
            Body::ReplyInline { write, .. } => (write, None),
            _ => return None,
        };
        Some(Self {
            special: reply.is_some(),
            chunks: ReplyChunks::Any { write, reply },
            header_len: header.header_len(),
        })
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_message_received)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::super::{
            error::{
                Fault,
                Result, //
            },
            testing::{
                decode_reply,
                Bytes, //
            }, //
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
        let short = ShortCall::decode(Version::Two, plain.get()).ok_or(Fault::NoPayload)?;
        assert!(!short.has_chunks());
        let words = &[7, 2, 1, 10, 0, 1, 8, 6, 4, 0, 9, 0, 0, 0, 9, 9];
        let reading = Bytes::from_words(words)?;
        assert_eq!(ShortCall::decode(Version::Two, reading.get()), None);
        Ok(())
    }

    #[test]
    fn a_special_call_is_the_same_in_both_versions() -> Result {
        for (version, words) in CALLS {
            let bytes = Bytes::from_words(words)?;
            let call = Call::decode(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!((call.xid, call.credits, call.special), (7, 1, true));
            assert!(call.reads().map(|entry| entry.position).eq([0, 8]));
            assert_eq!(call.read_total(), Some(44));
            assert!(call.write.is_empty());
            assert_eq!(call.reply.map(|chunk| chunk.total()), Some(100));
            assert!(call.has_chunks() && !call.reads_nothing());
            assert_eq!(call.segment_count(), 3);
            assert!(call.segments().map(|s| s.handle).eq([5, 6, 5]));
            assert_eq!(call.header_len, bytes.get().len());
            let again = CallPlaces::of(&call, bytes.get()).call(bytes.get());
            assert_eq!(again, call);
            assert!(decode_reply(version, bytes.get()).is_none());
        }
        Ok(())
    }

    /// Version One: only what fences all of it. Version Two, 6.5: the handle that is named.
    #[test]
    fn what_may_be_invalidated() -> Result {
        for ((version, words), expected) in CALLS.into_iter().zip([None, Some(6)]) {
            let bytes = Bytes::from_words(words)?;
            let call = Call::decode(version, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(call.invalidate(), expected);
        }
        let bytes = Bytes::from_words(&[7, 1, 1, 0, 0, 1, 1, 5, 8, 0, 0, 0, 0, 7, 0])?;
        let call = Call::decode(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
        assert_eq!(call.invalidate(), Some(5));
        assert_eq!(call.write.most_segments(), 1);
        let bytes = Bytes::from_words(&[7, 2, 1, 10, 0, 0, 1, 1, 5, 8, 0, 0, 0, 0, 7, 0])?;
        let call = Call::decode(Version::Two, bytes.get()).ok_or(Fault::NoPayload)?;
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
            let call = Call::decode(Version::One, bytes.get()).ok_or(Fault::NoPayload)?;
            assert_eq!(call.special || call.has_chunks(), has_chunks);
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
            assert!(Call::decode(version, bytes.get()).is_none());
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
            let found = ShortCall::decode(version, bytes.get());
            assert_eq!(found.is_some(), plain);
            let Some(found) = found else { continue };
            let call = Call::decode(version, bytes.get()).ok_or(Fault::NoPayload)?;
            let same = Call {
                consent: call.consent,
                ..found.call(bytes.get()).ok_or(Fault::NoPayload)?
            };
            assert_eq!(same, call);
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
            assert!(Call::decode(version, bytes.get()).is_none());
            assert!(decode_reply(version, bytes.get()).is_none());
        }
        Ok(())
    }
}
