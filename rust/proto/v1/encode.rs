// SPDX-License-Identifier: GPL-2.0

//! Encoding of Version One messages.

use super::{
    super::chunk::{
        self,
        ReadSegment, //
    },
    error_code,
    procedure,
    Prefix,
    RdmaError,
    VERSION, //
};
use crate::proto::prelude::*;

/// The header of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallHeader<'a> {
    /// The transaction ID, which is that of the RPC message.
    pub(crate) xid: u32,
    /// The number of credits requested.
    pub(crate) credits: u32,
    /// The Read list. The segments of one chunk are adjacent.
    pub(crate) read: &'a [ReadSegment],
    /// The only Write chunk. It is empty if there is none.
    pub(crate) write: &'a [Segment],
    /// The Reply chunk. It is empty if there is none.
    pub(crate) reply: &'a [Segment],
    /// True if the RPC message is in the Read list. Otherwise it follows the header.
    pub(crate) nomsg: bool,
}

impl CallHeader<'_> {
    /// Writes the header to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::NoPayload`] if `nomsg` is set but no
    /// segment at position zero holds anything, [`Fault::UnexpectedPositionZero`] if there is such
    /// a segment without `nomsg`, and the fault of an invalid segment.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        self.encode_with::<false>(buf, VERSION, 0)
    }

    /// Writes the header of another version as [`Self::encode`] does, if `HAS_WORD` is set with a
    /// word in front of the chunk lists.
    pub(in crate::proto) fn encode_with<const HAS_WORD: bool>(
        &self,
        buf: &mut [u8],
        version: u32,
        word: u32,
    ) -> Result<usize> {
        match chunk::position_zero_len(self.read.iter().copied()) {
            None | Some(0) if self.nomsg => return Err(Fault::NoPayload),
            Some(_) if !self.nomsg => return Err(Fault::UnexpectedPositionZero),
            _ => {}
        }
        let write: &[&[Segment]] = match self.write {
            [] => &[],
            segments => &[segments],
        };
        let reply = match self.reply {
            [] => None,
            segments => Some(segments),
        };
        let lists = (self.read, write, reply);
        encode::<HAS_WORD>(
            buf,
            &prefix(self.xid, version, self.credits, self.nomsg),
            word,
            lists,
        )
    }
}

/// The header of a Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHeader<'a> {
    /// The transaction ID of the Call.
    pub(crate) xid: u32,
    /// The number of credits granted, at least one.
    pub(crate) credits: u32,
    /// The Call's Write chunks, with the length of each segment set to what was written.
    pub(crate) write: &'a [&'a [Segment]],
    /// The Call's Reply chunk, with the length of each segment set to what was written.
    pub(crate) reply: Option<&'a [Segment]>,
    /// True if the RPC message was written to the Reply chunk. Otherwise it follows the header.
    pub(crate) nomsg: bool,
}

impl ReplyHeader<'_> {
    /// Writes the header to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::NoPayload`] if `nomsg` is set but the
    /// Reply chunk holds nothing, [`Fault::ZeroCredits`] if there is no grant, and the fault of an
    /// invalid segment.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        self.encode_with::<false>(buf, VERSION, 0)
    }

    /// Writes the header of another version as [`Self::encode`] does, if `HAS_WORD` is set with a
    /// word in front of the chunk lists.
    pub(in crate::proto) fn encode_with<const HAS_WORD: bool>(
        &self,
        buf: &mut [u8],
        version: u32,
        word: u32,
    ) -> Result<usize> {
        let reply = self.reply.unwrap_or_default();
        if self.nomsg && reply.iter().all(|segment| segment.length == 0) {
            return Err(Fault::NoPayload);
        }
        if self.credits == 0 {
            return Err(Fault::ZeroCredits);
        }
        let lists = (&[][..], self.write, self.reply);
        encode::<HAS_WORD>(
            buf,
            &prefix(self.xid, version, self.credits, self.nomsg),
            word,
            lists,
        )
    }
}

/// Returns the prefix of an RDMA_NOMSG message if `nomsg` is set, else that of an RDMA_MSG.
const fn prefix(xid: u32, version: u32, credits: u32, nomsg: bool) -> Prefix {
    Prefix {
        xid,
        version,
        credits,
        procedure: if nomsg {
            procedure::NOMSG
        } else {
            procedure::MSG
        },
    }
}

/// The chunk lists: Read list, Write list, Reply chunk.
type Lists<'a> = (
    &'a [ReadSegment],
    &'a [&'a [Segment]],
    Option<&'a [Segment]>,
);

/// Writes a header with chunk lists to the front of `buf` and returns its size.
fn encode<const HAS_WORD: bool>(
    buf: &mut [u8],
    prefix: &Prefix,
    word: u32,
    (read, write, reply): Lists<'_>,
) -> Result<usize> {
    let mut writer = Writer::new(buf);
    prefix.put(&mut writer)?;
    if HAS_WORD {
        writer.u32(word)?;
    }
    chunk::put_read_list(&mut writer, read)?;
    chunk::put_write_list(&mut writer, write)?;
    chunk::put_reply_chunk(&mut writer, reply)?;
    Ok(writer.len())
}

/// An RDMA_ERROR message. Only a Responder sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorHeader {
    /// The transaction ID of the Call.
    pub(crate) xid: u32,
    /// The version of the Call, supported or not.
    pub(crate) version: u32,
    /// The number of credits granted, at least one.
    pub(crate) credits: u32,
    /// The error to report.
    pub(crate) error: RdmaError,
}

impl ErrorHeader {
    /// Writes the message to the front of `buf` and returns its size.
    ///
    /// # Errors
    ///
    /// [`Fault::NoSpace`] if `buf` is too short, [`Fault::ZeroCredits`] if there is no grant.
    pub(crate) fn encode(&self, buf: &mut [u8]) -> Result<usize> {
        if self.credits == 0 {
            return Err(Fault::ZeroCredits);
        }
        let mut writer = Writer::new(buf);
        Prefix {
            xid: self.xid,
            version: self.version,
            credits: self.credits,
            procedure: procedure::ERROR,
        }
        .put(&mut writer)?;
        match self.error {
            RdmaError::Version { low, high } => {
                writer.u32(error_code::VERS)?;
                writer.u32(low)?;
                writer.u32(high)?;
            }
            RdmaError::Chunk => writer.u32(error_code::CHUNK)?,
        }
        Ok(writer.len())
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_v1_encode)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::testing::{
                read_segment,
                segment, //
            },
            testing::{
                CALL,
                REPLY,
                XID, //
            }, //
        },
        *, //
    };

    #[test]
    fn encoders_refuse_what_must_not_be_sent() {
        let mut buf = [0; 256];
        let position_zero = [read_segment(0, 1, 0), read_segment(4, 2, 8)];
        let mut call = CallHeader {
            read: &position_zero,
            nomsg: true,
            ..CALL
        };
        assert_eq!(call.encode(&mut buf), Err(Fault::NoPayload));
        call.nomsg = false;
        assert_eq!(call.encode(&mut buf), Err(Fault::UnexpectedPositionZero));
        call.read = &[];
        call.nomsg = true;
        assert_eq!(call.encode(&mut buf), Err(Fault::NoPayload));

        let empty = [segment(4, 0)];
        let mut reply = ReplyHeader {
            nomsg: true,
            ..REPLY
        };
        assert_eq!(reply.encode(&mut buf), Err(Fault::NoPayload));
        reply.reply = Some(&empty);
        assert_eq!(reply.encode(&mut buf), Err(Fault::NoPayload));

        // RFC 8166, section 3.3.1: a grant is never zero.
        reply = ReplyHeader {
            credits: 0,
            ..REPLY
        };
        assert_eq!(reply.encode(&mut buf), Err(Fault::ZeroCredits));
        let error = ErrorHeader {
            xid: XID,
            version: 1,
            credits: 0,
            error: RdmaError::Chunk,
        };
        assert_eq!(error.encode(&mut buf), Err(Fault::ZeroCredits));
    }

    #[test]
    fn encoders_need_exactly_their_room() -> Result {
        let call = CallHeader {
            read: &[read_segment(64, 3, 100)],
            write: &[segment(5, 1)],
            reply: &[segment(6, 2), segment(7, 3)],
            ..CALL
        };
        let len = 16 + (24 + 4) + (4 + 4 + 16 + 4) + (4 + 4 + 32);
        let mut buf = [0; 256];
        for room in 0..len {
            let room = buf.get_mut(..room).ok_or(Fault::NoSpace)?;
            assert_eq!(call.encode(room), Err(Fault::NoSpace));
        }
        let room = buf.get_mut(..len).ok_or(Fault::NoSpace)?;
        assert_eq!(call.encode(room), Ok(len));
        Ok(())
    }
}
