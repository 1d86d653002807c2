// SPDX-License-Identifier: GPL-2.0

//! The types of trace event arguments, and their conversion for C.

use crate::{
    kext::debugfs::Number,
    proto::{
        auth::{
            AuthFailure,
            AuthVerdict, //
        },
        error::Fault,
        format::{
            CallFormat,
            ReplyFormat, //
        },
        session::Reason,
        v2::RdmaError, //
    },
    sys, //
};
use kernel::prelude::*;

/// A type of which an event can have an argument.
///
/// # Safety
///
/// A pointer that `raw` returns must point to a string that is valid as long as `self` is borrowed.
pub(super) unsafe trait Field {
    /// The type that C sees.
    type Raw;

    /// Converts the argument. Called only if the event is on.
    fn raw(self) -> Self::Raw;
}

macro_rules! plain_fields {
    ($($type:ty),*) => {$(
        // SAFETY: `raw` returns no pointer.
        unsafe impl Field for $type {
            type Raw = Self;

            #[inline(always)]
            fn raw(self) -> Self {
                self
            }
        }
    )*};
}

plain_fields!(bool, i32, u32, u64);

// SAFETY: `raw` returns no pointer.
unsafe impl Field for usize {
    type Raw = u32;

    /// Converts a length. No length is too large for an event.
    #[inline]
    fn raw(self) -> u32 {
        u32::try_from(self).unwrap_or(u32::MAX)
    }
}

// SAFETY: The pointer is to the string that is borrowed.
unsafe impl Field for &CStr {
    type Raw = *const c_char;

    #[inline]
    fn raw(self) -> *const c_char {
        self.as_char_ptr()
    }
}

// SAFETY: `raw` returns no pointer.
unsafe impl Field for Number {
    type Raw = u32;

    #[inline]
    fn raw(self) -> u32 {
        match self {
            Self::Client(number) => number & !sys::RPCRDMA_TRACE_SERVER,
            Self::Server(number) => number | sys::RPCRDMA_TRACE_SERVER,
        }
    }
}

macro_rules! named_values {
    ($(
        $(#[$doc:meta])*
        $name:ident: $($(#[$value_doc:meta])* $value:ident = $raw:ident),*;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum $name {
            $($(#[$value_doc])* $value = sys::$raw,)*
        }

        // SAFETY: `raw` returns no pointer.
        unsafe impl Field for $name {
            type Raw = u32;

            #[inline]
            fn raw(self) -> u32 {
                self as u32
            }
        }
    )*};
}

named_values! {
    /// The reason why a connection was ended.
    End:
        /// SUNRPC closed it, or it was lost and SUNRPC followed.
        Closed = rpcrdma_trace_end_RPCRDMA_END_CLOSED,
        /// A message could not be posted.
        Failed = rpcrdma_trace_end_RPCRDMA_END_FAILED,
        /// SUNRPC connects anew.
        Replaced = rpcrdma_trace_end_RPCRDMA_END_REPLACED,
        /// The transport goes away.
        Destroyed = rpcrdma_trace_end_RPCRDMA_END_DESTROYED;

    /// The direction of the payload of a region.
    Direction:
        /// The peer reads from it.
        PeerReads = rpcrdma_trace_direction_RPCRDMA_PEER_READS,
        /// The peer writes to it.
        PeerWrites = rpcrdma_trace_direction_RPCRDMA_PEER_WRITES;

    /// The reason why a message was not posted.
    Post:
        /// The connection is being shut down.
        Closed = rpcrdma_trace_post_RPCRDMA_POST_CLOSED,
        /// The Send Queue is full.
        Full = rpcrdma_trace_post_RPCRDMA_POST_FULL,
        /// The device refused.
        Refused = rpcrdma_trace_post_RPCRDMA_POST_REFUSED;

    /// The kind of work request that has completed.
    Work:
        /// A Receive.
        Receive = rpcrdma_trace_work_RPCRDMA_WORK_RECEIVE,
        /// A Send.
        Send = rpcrdma_trace_work_RPCRDMA_WORK_SEND,
        /// A registration.
        Register = rpcrdma_trace_work_RPCRDMA_WORK_REGISTER,
        /// A local invalidation.
        Invalidate = rpcrdma_trace_work_RPCRDMA_WORK_INVALIDATE,
        /// An RDMA Read.
        Read = rpcrdma_trace_work_RPCRDMA_WORK_READ;

    /// The verdict on a Reply.
    Verdict:
        /// The message came inline.
        Inline = rpcrdma_trace_verdict_RPCRDMA_VERDICT_INLINE,
        /// The message is in the Reply chunk.
        Placed = rpcrdma_trace_verdict_RPCRDMA_VERDICT_PLACED,
        /// An error, or a Reply that does not answer the Call.
        Failed = rpcrdma_trace_verdict_RPCRDMA_VERDICT_FAILED,
        /// An error, after which the Call is sent again in another form.
        Again = rpcrdma_trace_verdict_RPCRDMA_VERDICT_AGAIN;

    /// The answer to a message that is refused.
    Answer:
        /// No answer.
        None = rpcrdma_trace_answer_RPCRDMA_ANSWER_NONE,
        /// RDMA_ERROR with the versions that are supported.
        ErrVers = rpcrdma_trace_answer_RPCRDMA_ANSWER_ERR_VERS,
        /// RDMA_ERROR of the other kind.
        ErrChunk = rpcrdma_trace_answer_RPCRDMA_ANSWER_ERR_CHUNK,
        /// RDMA2_ERROR of Version Two.
        Error = rpcrdma_trace_answer_RPCRDMA_ANSWER_ERROR,
        /// The connection is ended.
        Close = rpcrdma_trace_answer_RPCRDMA_ANSWER_CLOSE;
}

// SAFETY: `raw` returns no pointer.
unsafe impl Field for CallFormat {
    type Raw = u32;

    fn raw(self) -> u32 {
        match self {
            Self::Inline => sys::rpcrdma_trace_call_RPCRDMA_CALL_INLINE,
            Self::ReadChunk { .. } => sys::rpcrdma_trace_call_RPCRDMA_CALL_READ_CHUNK,
            Self::Special => sys::rpcrdma_trace_call_RPCRDMA_CALL_SPECIAL,
            Self::CallAndReadChunk { .. } => sys::rpcrdma_trace_call_RPCRDMA_CALL_BOTH,
        }
    }
}

// SAFETY: `raw` returns no pointer.
unsafe impl Field for ReplyFormat {
    type Raw = u32;

    fn raw(self) -> u32 {
        match self {
            Self::Inline => sys::rpcrdma_trace_offer_RPCRDMA_OFFER_NONE,
            Self::WriteChunk => sys::rpcrdma_trace_offer_RPCRDMA_OFFER_WRITE_CHUNK,
            Self::ReplyChunk => sys::rpcrdma_trace_offer_RPCRDMA_OFFER_REPLY_CHUNK,
            Self::WriteAndReplyChunk => sys::rpcrdma_trace_offer_RPCRDMA_OFFER_BOTH,
        }
    }
}

/// The reason why a message is refused, or why a Call cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalReason {
    /// The header cannot be decoded.
    Fault(Fault),
    /// It is not a Call.
    NotACall,
    /// The Read chunks cannot be put together to one Call.
    ReadList,
    /// It is longer than a Call may be.
    CallTooLong,
    /// The chunks need more memory regions, or more of the Send Queue, than there are.
    TooManySegments,
    /// There is no room for the Reply, neither inline nor in the chunks.
    ReplyTooLong,
    /// The Call in its chunks is not the one that the header names.
    OtherCall,
    /// It was sent without a credit.
    NoCredit,
    /// There is no memory, or the connection is being ended.
    NoResources,
}

/// Implements [`Field`] for types whose values have names.
macro_rules! named_fields {
    ($($type:ty: { $($value:pat => $name:expr,)* })*) => {$(
        // SAFETY: The strings are static, so they are valid as long as needed.
        unsafe impl Field for $type {
            type Raw = *const c_char;

            fn raw(self) -> *const c_char {
                let name: &CStr = match self {
                    $($value => $name,)*
                };
                name.as_char_ptr()
            }
        }
    )*};
}

named_fields! {
    Fault: {
        Self::Runt => c"runt",
        Self::Version(_) => c"version",
        Self::Truncated => c"truncated",
        Self::ItemTooLong => c"item-too-long",
        Self::BadDiscriminator(_) => c"bad-discriminator",
        Self::BadProcedure(_) => c"bad-procedure",
        Self::ObsoleteMsgp => c"obsolete-msgp",
        Self::ObsoleteDone => c"obsolete-done",
        Self::BadErrorCode(_) => c"bad-error-code",
        Self::BadVersionRange => c"bad-version-range",
        Self::TooManySegments => c"too-many-segments",
        Self::TooManyChunks => c"too-many-chunks",
        Self::ChunkTooLong => c"chunk-too-long",
        Self::OffsetOverflow => c"offset-overflow",
        Self::UnalignedPosition(_) => c"unaligned-position",
        Self::UnexpectedPositionZero => c"unexpected-position-zero",
        Self::NoPayload => c"no-payload",
        Self::TrailingBytes => c"trailing-bytes",
        Self::XidMismatch => c"xid-mismatch",
        Self::BadDirection(_) => c"bad-direction",
        Self::ReadListInReply => c"read-list-in-reply",
        Self::ChunkMismatch => c"chunk-mismatch",
        Self::ZeroCredits => c"zero-credits",
        Self::NoSpace => c"no-space",
        Self::UnorderedPosition(_) => c"unordered-position",
        Self::UnexpectedPosition(_) => c"unexpected-position",
        Self::BadProperty(_) => c"bad-property",
        Self::UnknownHandle(_) => c"unknown-handle",
    }

    RefusalReason: {
        Self::Fault(fault) => return fault.raw(),
        Self::NotACall => c"not-a-call",
        Self::ReadList => c"read-list",
        Self::CallTooLong => c"call-too-long",
        Self::TooManySegments => c"segments-beyond-resources",
        Self::ReplyTooLong => c"reply-too-long",
        Self::OtherCall => c"other-call-in-chunk",
        Self::NoCredit => c"no-credit",
        Self::NoResources => c"no-resources",
    }

    RdmaError: {
        Self::Version { .. } => c"VERS",
        Self::BadXdr => c"BAD_XDR",
        Self::BadProperty => c"BAD_PROPVAL",
        Self::HeaderType => c"INVAL_HTYPE",
        Self::Continuation => c"INVAL_CONT",
        Self::ReadChunks { .. } => c"READ_CHUNKS",
        Self::WriteChunks { .. } => c"WRITE_CHUNKS",
        Self::Segments { .. } => c"SEGMENTS",
        Self::WriteResource { .. } => c"WRITE_RESOURCE",
        Self::ReplyResource { .. } => c"REPLY_RESOURCE",
        Self::VersionMismatch => c"VERS_MISMATCH",
        Self::System => c"SYSTEM",
    }

    Reason: {
        Self::Silent => c"silent",
        Self::NoCommonVersion => c"no-common-version",
        Self::UnknownDialect => c"unknown-dialect",
        Self::Overrun => c"overrun",
        Self::OtherVersion => c"other-version",
        Self::BadReply => c"bad-reply",
        Self::Refused => c"refused",
        Self::TooManyErrors => c"too-many-errors",
        Self::Stalled => c"stalled",
        Self::Starved => c"starved",
        Self::NotAuthenticated => c"not-authenticated",
        Self::Owner => c"owner",
    }

    AuthVerdict: {
        Self::Accept => c"accepted",
        Self::Ignore => c"none",
        Self::Refuse(AuthFailure::Absent) => c"refused-absent",
        Self::Refuse(AuthFailure::Malformed) => c"refused-malformed",
        Self::Refuse(AuthFailure::TooLong) => c"refused-too-long",
        Self::Refuse(AuthFailure::TooMany) => c"refused-too-many",
        Self::Refuse(AuthFailure::WrongKey) => c"refused-wrong-key",
        Self::Refuse(AuthFailure::ByPeer) => c"refused-by-peer",
        Self::Refuse(AuthFailure::Version) => c"refused-version",
        Self::Refuse(AuthFailure::NoKey) => c"refused-no-key",
        Self::Refuse(AuthFailure::NoMemory) => c"refused-no-memory",
    }
}
