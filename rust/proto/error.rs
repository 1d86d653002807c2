// SPDX-License-Identifier: GPL-2.0

//! Faults of messages.

/// The result of the codecs.
pub(crate) type Result<T = (), E = Fault> = core::result::Result<T, E>;

/// The reason why bytes are not a valid message, or why a message cannot be written.
///
/// The protocol has few codes to answer with and the kernel has errnos. The caller chooses both.
/// See [`super::v1::DecodeError::answer`] for the answers of Version One, and [`super::session`]
/// for those of Version Two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The message is too short for its transaction ID to be trusted. It is discarded without an
    /// answer (RFC 8166, section 4.5).
    Runt,

    /// The header names a protocol version that this decoder does not support.
    Version(u32),

    /// The bytes end inside an item.
    Truncated,

    /// A counted item is longer than its maximum.
    ItemTooLong,

    /// The "is present" word of an optional item is neither 0 nor 1.
    BadDiscriminator(u32),

    /// The procedure number is not defined.
    BadProcedure(u32),

    /// The message uses the obsolete RDMA_MSGP procedure (RFC 8166, section 4.6.1).
    ObsoleteMsgp,

    /// The message uses the obsolete RDMA_DONE procedure (RFC 8166, section 4.6.2).
    ObsoleteDone,

    /// The code in an RDMA_ERROR message is not defined.
    BadErrorCode(u32),

    /// The version range of an ERR_VERS error is empty: its low end is above its high end.
    BadVersionRange,

    /// A chunk has more segments than the limits allow.
    TooManySegments,

    /// A list has more chunks than the limits allow.
    TooManyChunks,

    /// The lengths of a chunk's segments add up to more than an XDR stream can hold.
    ChunkTooLong,

    /// A segment runs past the end of the 64-bit offset space.
    OffsetOverflow,

    /// A Read segment's position is not a multiple of four (RFC 8166, section 3.4.5).
    UnalignedPosition(u32),

    /// A Read segment's position is lower than that of the segment before it
    /// (draft-ietf-nfsv4-rpcrdma-version-two-07, 4.5.1.1).
    UnorderedPosition(u32),

    /// A segment of a Call chunk has a position other than zero
    /// (draft-ietf-nfsv4-rpcrdma-version-two-07, 6.6.3).
    UnexpectedPosition(u32),

    /// The value of a transport property is not of the property's type
    /// (draft-ietf-nfsv4-rpcrdma-version-two-07, 5.1).
    BadProperty(u32),

    /// The handle to invalidate is not in the header (draft-ietf-nfsv4-rpcrdma-version-two-07,
    /// 6.5).
    UnknownHandle(u32),

    /// The RPC message follows the header, but the Read list has a Position Zero Read chunk as well
    /// (RFC 8166, section 3.5.3).
    UnexpectedPositionZero,

    /// No item of the header holds the RPC message (RFC 8166, section 4.2.4).
    NoPayload,

    /// Bytes follow a header that must be the end of the message.
    TrailingBytes,

    /// The transaction IDs of the transport header and of the RPC message differ
    /// (RFC 8166, section 4.5.2).
    XidMismatch,

    /// The RPC message is neither a Call nor a Reply, or the header says that it is the other one
    /// of them (draft-cel-nfsv4-rpcrdma-version-two-01, 4.2.2).
    BadDirection(u32),

    /// A Reply has a Read list (RFC 8166, section 4.3.1).
    ReadListInReply,

    /// A returned chunk does not match the chunk that was offered (RFC 8166, section 3.4.6).
    ChunkMismatch,

    /// A message grants no credits at all (RFC 8166, section 3.3.1).
    ZeroCredits,

    /// The item does not fit the buffer, or no payload format can carry the message.
    NoSpace,
}
