// SPDX-License-Identifier: GPL-2.0

//! Encoding of Version Two headers.

use super::{
    super::{
        chunk::{
            self,
            ReadSegment, //
        },
        props::Advertised, //
    },
    htype,
    Direction,
    Prefix,
    RdmaError,
    NO_XID,
    PREFIX_LEN,
    VERSION, //
};
use crate::proto::prelude::*;

/// The size in octets of the header of a MIDDLE message, in front of a part of the RPC message.
pub(crate) const MIDDLE_LEN: usize = PREFIX_LEN + UNIT;

/// Starts a message at the front of `buf`.
fn start(buf: &mut [u8], xid: u32, credits: u32, htype: u32) -> Result<Writer<'_>> {
    let mut writer = Writer::new(buf);
    Prefix {
        xid,
        version: VERSION,
        credits,
        procedure: htype,
    }
    .put(&mut writer)?;
    Ok(writer)
}

/// The fields that every Call's header has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallInline<'a> {
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The handle that the Responder may invalidate remotely: one of those below, or zero (6.5).
    pub(crate) inv_handle: u32,
    /// The Read list in order of its positions, without position zero.
    pub(crate) read: &'a [ReadSegment],
    /// The Write list.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Reply chunk.
    pub(crate) reply: Option<&'a [Segment]>,
}

impl CallInline<'_> {
    /// Writes an RDMA2_CALL_INLINE header (6.3.7) to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::UnexpectedPositionZero`],
    /// [`Fault::UnorderedPosition`] and [`Fault::UnknownHandle`] for contents that a Requester must
    /// not send, and the fault of an invalid segment.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let mut writer = start(buf, self.xid, self.credits, htype::CALL_INLINE)?;
        self.put_handle(&mut writer, &[])?;
        self.put_lists(&mut writer)?;
        Ok(writer.len())
    }

    /// Writes the handle to invalidate. It must be zero or belong to one of the chunks.
    fn put_handle(&self, writer: &mut Writer<'_>, call: &[Segment]) -> Result {
        let written = self.write.iter().copied().flatten();
        let mut handles = call
            .iter()
            .chain(self.read.iter().map(|entry| &entry.segment))
            .chain(written)
            .chain(self.reply.unwrap_or_default())
            .map(|segment| segment.handle);
        if self.inv_handle != 0 && !handles.any(|handle| handle == self.inv_handle) {
            return Err(Fault::UnknownHandle(self.inv_handle));
        }
        writer.u32(self.inv_handle)
    }

    /// Writes the chunk lists, which come last in the headers of both kinds of Calls.
    fn put_lists(&self, writer: &mut Writer<'_>) -> Result {
        let mut last = 0;
        for entry in self.read {
            if entry.position == 0 {
                return Err(Fault::UnexpectedPositionZero);
            }
            if entry.position < last {
                return Err(Fault::UnorderedPosition(entry.position));
            }
            last = entry.position;
        }
        chunk::put_read_list(writer, self.read)?;
        chunk::put_write_list(writer, self.write)?;
        chunk::put_reply_chunk(writer, self.reply)
    }
}

/// The header of a Call whose RPC message is in a Call chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallExternal<'a> {
    /// The fields that it shares with an inline Call.
    pub(crate) common: CallInline<'a>,
    /// The Call chunk. Its position is zero.
    pub(crate) call: &'a [Segment],
}

impl CallExternal<'_> {
    /// Writes an RDMA2_CALL_EXTERNAL header (6.3.5) to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// As for [`CallInline::encode`], and [`Fault::NoPayload`] if the Call chunk holds nothing.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        if self.call.iter().all(|segment| segment.length == 0) {
            return Err(Fault::NoPayload);
        }
        let common = &self.common;
        let mut writer = start(buf, common.xid, common.credits, htype::CALL_EXTERNAL)?;
        common.put_handle(&mut writer, self.call)?;
        chunk::put_position_zero(&mut writer, self.call)?;
        common.put_lists(&mut writer)?;
        Ok(writer.len())
    }
}

/// The header of a part of an RPC message that is not the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Middle {
    /// The direction of the RPC message: Call or Reply.
    pub(crate) direction: Direction,
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The number of octets of the RPC message that come in messages after this one.
    pub(crate) remaining: u32,
}

impl Middle {
    /// Writes an RDMA2_CALL_MIDDLE (6.3.6) or RDMA2_REPLY_MIDDLE (6.3.9) header to the front of
    /// `buf` and returns its size, which is [`MIDDLE_LEN`].
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let htype = match self.direction {
            Direction::Call => htype::CALL_MIDDLE,
            Direction::Reply => htype::REPLY_MIDDLE,
        };
        let mut writer = start(buf, self.xid, self.credits, htype)?;
        writer.u32(self.remaining)?;
        Ok(writer.len())
    }
}

/// The header of a Reply, or of the last part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyInline<'a> {
    /// The transaction ID of the Call.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The Call's Write chunks, with the length of each segment set to what was written.
    pub(crate) write: &'a [&'a [Segment]],
}

impl ReplyInline<'_> {
    /// Writes an RDMA2_REPLY_INLINE header (6.3.10) to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, and the fault of an invalid segment.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let mut writer = start(buf, self.xid, self.credits, htype::REPLY_INLINE)?;
        chunk::put_write_list(&mut writer, self.write)?;
        Ok(writer.len())
    }
}

/// The header of a Reply whose RPC message was written to the Reply chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyExternal<'a> {
    /// The transaction ID of the Call.
    pub(crate) xid: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The Call's Write chunks, with the length of each segment set to what was written.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Call's Reply chunk, with the length of each segment set to what was written.
    pub(crate) reply: &'a [Segment],
}

impl ReplyExternal<'_> {
    /// Writes an RDMA2_REPLY_EXTERNAL header (6.3.8) to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::NoPayload`] if the Reply chunk holds
    /// nothing, and the fault of an invalid segment.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        if self.reply.iter().all(|segment| segment.length == 0) {
            return Err(Fault::NoPayload);
        }
        let mut writer = start(buf, self.xid, self.credits, htype::REPLY_EXTERNAL)?;
        chunk::put_write_list(&mut writer, self.write)?;
        chunk::put_reply_chunk(&mut writer, Some(self.reply))?;
        Ok(writer.len())
    }
}

/// An RDMA2_GRANT message. It has no transaction ID (6.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GrantHeader {
    /// The credit value.
    pub(crate) credits: u32,
}

impl GrantHeader {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        Ok(start(buf, NO_XID, self.credits, htype::GRANT)?.len())
    }
}

/// An RDMA2_CONNPROP_MIDDLE (6.3.3) or RDMA2_CONNPROP_FINAL (6.3.4) message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnProp<'a> {
    /// The credit value.
    pub(crate) credits: u32,
    /// The properties that the message advertises.
    pub(crate) told: Advertised<'a>,
    /// True if this is the final message.
    pub(crate) last: bool,
}

impl ConnProp<'_> {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let htype = if self.last {
            htype::CONNPROP_FINAL
        } else {
            htype::CONNPROP_MIDDLE
        };
        let mut writer = start(buf, NO_XID, self.credits, htype)?;
        self.told.put(&mut writer)?;
        Ok(writer.len())
    }
}

/// An RDMA2_ERROR message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorHeader {
    /// The transaction ID of the faulty message.
    pub(crate) xid: u32,
    /// The version of that message, supported or not (section 7).
    pub(crate) version: u32,
    /// The credit value.
    pub(crate) credits: u32,
    /// The error to report.
    pub(crate) error: RdmaError,
}

impl ErrorHeader {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::BadVersionRange`] if a range is empty.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        let mut writer = Writer::new(buf);
        Prefix {
            xid: self.xid,
            version: self.version,
            credits: self.credits,
            procedure: htype::ERROR,
        }
        .put(&mut writer)?;
        self.error.put(&mut writer)?;
        Ok(writer.len())
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v2_encode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                props::Properties,
                testing::Bytes, //
            },
            testing::{
                read_segment,
                segment,
                XID, //
            }, //
        },
        *, //
    };

    /// The first of the two words of the offset of all segments.
    const HIGH: u32 = 0x0001_0002;
    /// The second of them.
    const LOW: u32 = 0x0003_0004;

    /// A Call without chunks.
    const CALL: CallInline<'_> = CallInline {
        xid: XID,
        credits: 7,
        inv_handle: 0,
        read: &[],
        write: &[],
        reply: None,
    };

    /// Section 8.4: all ten header types, field by field.
    #[test]
    fn messages_look_as_in_the_draft() -> Result {
        let read = [read_segment(8, 1, 2)];
        let chunk = [segment(3, 4)];
        let reply = [segment(5, 6)];
        let full = CallInline {
            inv_handle: 3,
            read: &read,
            write: &[&chunk, &[]],
            reply: Some(&reply),
            ..CALL
        };
        let bytes = Bytes::from_encoder(|buf| full.encode(buf))?;
        assert!(bytes.is_words(&[
            XID, 2, 7, 10, 3, 1, 8, 1, 2, HIGH, LOW, 0, 1, 1, 3, 4, HIGH, LOW, 1, 0, 0, 1, 1, 5, 6,
            HIGH, LOW
        ]));

        let call = [segment(9, 10), segment(11, 12)];
        let external = CallExternal {
            common: CALL,
            call: &call,
        };
        let bytes = Bytes::from_encoder(|buf| external.encode(buf))?;
        assert!(bytes.is_words(&[
            XID, 2, 7, 8, 0, 1, 0, 9, 10, HIGH, LOW, 1, 0, 11, 12, HIGH, LOW, 0, 0, 0, 0
        ]));

        let middle = |direction| {
            Bytes::from_encoder(|buf| {
                Middle {
                    direction,
                    xid: XID,
                    credits: 7,
                    remaining: 99,
                }
                .encode(buf)
            })
        };
        assert!(middle(Direction::Call)?.is_words(&[XID, 2, 7, 9, 99]));
        assert!(middle(Direction::Reply)?.is_words(&[XID, 2, 7, 12, 99]));
        assert_eq!(middle(Direction::Call)?.get().len(), MIDDLE_LEN);

        let inline = ReplyInline {
            xid: XID,
            credits: 7,
            write: &[&chunk],
        };
        let bytes = Bytes::from_encoder(|buf| inline.encode(buf))?;
        assert!(bytes.is_words(&[XID, 2, 7, 13, 1, 1, 3, 4, HIGH, LOW, 0]));

        let external = ReplyExternal {
            xid: XID,
            credits: 7,
            write: &[],
            reply: &reply,
        };
        let bytes = Bytes::from_encoder(|buf| external.encode(buf))?;
        assert!(bytes.is_words(&[XID, 2, 7, 11, 0, 1, 1, 5, 6, HIGH, LOW]));
        Ok(())
    }

    /// Section 6.3.2: the transaction ID of a GRANT is zero. So is that of CONNPROP messages.
    #[test]
    fn control_messages_look_as_in_the_draft() -> Result {
        let grant = GrantHeader { credits: 7 };
        assert!(Bytes::from_encoder(|buf| grant.encode(buf))?.is_words(&[0, 2, 7, 5]));
        let told = Advertised::all(&Properties::DEFAULT);
        for (last, htype) in [(false, 6), (true, 7)] {
            let message = ConnProp {
                credits: 7,
                told,
                last,
            };
            let bytes = Bytes::from_encoder(|buf| message.encode(buf))?;
            assert!(bytes.is_words(&[
                0,
                2,
                7,
                htype,
                5,
                1,
                4,
                4096,
                2,
                4,
                4096,
                3,
                4,
                1 << 20,
                4,
                4,
                16,
                5,
                4,
                0
            ]));
        }
        let error = ErrorHeader {
            xid: XID,
            version: 9,
            credits: 7,
            error: RdmaError::Version { low: 1, high: 2 },
        };
        let bytes = Bytes::from_encoder(|buf| error.encode(buf))?;
        assert!(bytes.is_words(&[XID, 9, 7, 4, 1, 1, 2]));
        Ok(())
    }

    /// The encoder refuses contents that a sender MUST NOT send.
    #[test]
    fn encoders_refuse_what_must_not_be_sent() {
        let mut buf = [0; 256];
        let mut call = CALL;
        for (read, fault) in [
            (
                [read_segment(0, 1, 8), read_segment(4, 1, 8)],
                Fault::UnexpectedPositionZero,
            ),
            (
                [read_segment(8, 1, 8), read_segment(4, 1, 8)],
                Fault::UnorderedPosition(4),
            ),
            (
                [read_segment(4, 1, 8), read_segment(6, 1, 8)],
                Fault::UnalignedPosition(6),
            ),
        ] {
            let call = CallInline {
                read: &read,
                ..CALL
            };
            assert_eq!(call.encode(&mut buf), Err(fault));
            let external = CallExternal {
                common: call,
                call: &[segment(1, 1)],
            };
            assert_eq!(external.encode(&mut buf), Err(fault));
        }
        for handle in [1, u32::MAX] {
            call.inv_handle = handle;
            assert_eq!(call.encode(&mut buf), Err(Fault::UnknownHandle(handle)));
        }
        for segments in [&[][..], &[segment(1, 0)]] {
            let external = CallExternal {
                common: CALL,
                call: segments,
            };
            assert_eq!(external.encode(&mut buf), Err(Fault::NoPayload));
            let external = ReplyExternal {
                xid: XID,
                credits: 1,
                write: &[],
                reply: segments,
            };
            assert_eq!(external.encode(&mut buf), Err(Fault::NoPayload));
        }
    }
}
