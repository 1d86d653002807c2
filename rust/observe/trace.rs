// SPDX-License-Identifier: GPL-2.0

//! Trace events of the system "rpcrdma_rs".
//!
//! Each function here raises the event of its name. While the event is off this costs one static
//! branch: no call, and no conversion of an argument. (A kernel without jump labels, such as User
//! Mode Linux, has a counter in the place of the branch.)
//!
//! C header: `include/trace/events/rpcrdma_rs.h`, which says what the arguments mean.

use crate::proto::error::Fault;
use crate::proto::format::{
    CallFormat,
    ReplyFormat, //
};
use crate::sys;
use kernel::prelude::*;

/// What an event can have as an argument.
///
/// # Safety
///
/// A pointer that `raw` returns must point to a string that is valid as long as `self` is borrowed.
unsafe trait Field {
    /// What C sees.
    type Raw;

    /// Converts it; called only if the event is on.
    fn raw(self) -> Self::Raw;
}

macro_rules! plain_fields {
    ($($type:ty),*) => {$(
        // SAFETY: No pointer.
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

// SAFETY: No pointer.
unsafe impl Field for usize {
    type Raw = u32;

    /// A length; none is too large for an event.
    #[inline]
    fn raw(self) -> u32 {
        u32::try_from(self).unwrap_or(u32::MAX)
    }
}

// SAFETY: The string is what is borrowed.
unsafe impl Field for &CStr {
    type Raw = *const c_char;

    #[inline]
    fn raw(self) -> *const c_char {
        self.as_char_ptr()
    }
}

macro_rules! named_values {
    ($($(#[$doc:meta])* $name:ident: $($(#[$value_doc:meta])* $value:ident = $raw:ident),*;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum $name {
            $($(#[$value_doc])* $value = sys::$raw,)*
        }

        // SAFETY: No pointer.
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
    /// Why a connection was ended.
    End:
        /// SUNRPC closed it, or it was lost and SUNRPC followed.
        Closed = rpcrdma_trace_end_RPCRDMA_END_CLOSED,
        /// A message could not be posted.
        Failed = rpcrdma_trace_end_RPCRDMA_END_FAILED,
        /// SUNRPC connects anew.
        Replaced = rpcrdma_trace_end_RPCRDMA_END_REPLACED,
        /// The transport goes away.
        Destroyed = rpcrdma_trace_end_RPCRDMA_END_DESTROYED;

    /// Which way the payload of a region goes.
    Direction:
        /// The peer reads from it.
        PeerReads = rpcrdma_trace_direction_RPCRDMA_PEER_READS,
        /// The peer writes to it.
        PeerWrites = rpcrdma_trace_direction_RPCRDMA_PEER_WRITES;

    /// Why a message was not posted.
    Post:
        /// The connection is being shut down.
        Closed = rpcrdma_trace_post_RPCRDMA_POST_CLOSED,
        /// The Send Queue is full.
        Full = rpcrdma_trace_post_RPCRDMA_POST_FULL,
        /// The device refused.
        Refused = rpcrdma_trace_post_RPCRDMA_POST_REFUSED;

    /// Whose completion it is.
    Work:
        /// A Receive's.
        Receive = rpcrdma_trace_work_RPCRDMA_WORK_RECEIVE,
        /// A Send's.
        Send = rpcrdma_trace_work_RPCRDMA_WORK_SEND,
        /// A registration's.
        Register = rpcrdma_trace_work_RPCRDMA_WORK_REGISTER,
        /// A local invalidation's.
        Invalidate = rpcrdma_trace_work_RPCRDMA_WORK_INVALIDATE;

    /// What is thought of a Reply.
    Verdict:
        /// Its message came with it.
        Inline = rpcrdma_trace_verdict_RPCRDMA_VERDICT_INLINE,
        /// Its message is in the Reply chunk.
        Placed = rpcrdma_trace_verdict_RPCRDMA_VERDICT_PLACED,
        /// An error, or not an answer to what was asked.
        Failed = rpcrdma_trace_verdict_RPCRDMA_VERDICT_FAILED;
}

// SAFETY: No pointer.
unsafe impl Field for CallFormat {
    type Raw = u32;

    fn raw(self) -> u32 {
        match self {
            Self::Inline => sys::rpcrdma_trace_call_RPCRDMA_CALL_INLINE,
            Self::ReadChunk { .. } => sys::rpcrdma_trace_call_RPCRDMA_CALL_READ_CHUNK,
            Self::Special => sys::rpcrdma_trace_call_RPCRDMA_CALL_SPECIAL,
        }
    }
}

// SAFETY: No pointer.
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

// SAFETY: The string is static.
unsafe impl Field for Fault {
    type Raw = *const c_char;

    fn raw(self) -> *const c_char {
        let name = match self {
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
            Self::UnorderedPosition(_) => c"unordered-position",
            Self::UnexpectedPosition(_) => c"unexpected-position",
            Self::BadProperty(_) => c"bad-property",
            Self::UnknownHandle(_) => c"unknown-handle",
            Self::UnexpectedPositionZero => c"unexpected-position-zero",
            Self::NoPayload => c"no-payload",
            Self::TrailingBytes => c"trailing-bytes",
            Self::XidMismatch => c"xid-mismatch",
            Self::BadDirection(_) => c"bad-direction",
            Self::ReadListInReply => c"read-list-in-reply",
            Self::ChunkMismatch => c"chunk-mismatch",
            Self::ZeroCredits => c"zero-credits",
            Self::NoSpace => c"no-space",
        };
        name.as_char_ptr()
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?);)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name($($arg: $type),*) {
            #[cfg(CONFIG_TRACEPOINTS)]
            kernel::macros::paste! {
                // SAFETY: The key belongs to a tracepoint that C defines in this module.
                let on = unsafe {
                    kernel::jump_label::static_branch_unlikely!(
                        crate::sys::[< __tracepoint_rpcrdma_rs_ $name >],
                        kernel::bindings::tracepoint,
                        key
                    )
                };
                if on {
                    // SAFETY: Strings are valid for the call (see `Field`), which copies them; all
                    // else are plain numbers.
                    unsafe {
                        crate::sys::[< rust_do_trace_rpcrdma_rs_ $name >]($(Field::raw($arg)),*)
                    };
                }
            }
            // A trivial use of each argument.
            #[cfg(not(CONFIG_TRACEPOINTS))]
            { $(let _ = $arg;)* }
        }
    )*};
}

events! {
    /// An attempt to connect is over. Without success, only the peer is known.
    fn connect(
        xprt: u32,
        address: &CStr,
        port: &CStr,
        device: &CStr,
        inline_send: u32,
        inline_receive: u32,
        credits: u32,
        region_depth: u32,
        error: i32,
    );

    /// The connection manager reports something.
    fn cm_event(xprt: u32, event: u32, status: i32);

    /// An established connection is found to be lost.
    fn lost(xprt: u32);

    /// A connection, lost or not, is taken down by this side.
    fn disconnect(xprt: u32, reason: End);

    /// The peer's grant of credits has changed.
    fn credits(xprt: u32, granted: u32, limit: u32);

    /// A region was given pages and a fresh handle; its registration follows.
    fn region_map(
        xprt: u32,
        xid: u32,
        handle: u32,
        length: u32,
        offset: u64,
        pages: u32,
        direction: Direction,
    );

    /// The invalidation of what is left of a Call's regions was posted.
    fn region_fence_post(xprt: u32, index: u32, count: usize);

    /// That invalidation is done, or the connection was lost before it was.
    fn region_fenced(xprt: u32, index: u32, done: bool);

    /// The peer has invalidated a handle with its Reply.
    fn remote_invalidation(xprt: u32, xid: u32, handle: u32);

    /// A Call was posted.
    fn post_call(
        xprt: u32,
        xid: u32,
        index: u32,
        call: CallFormat,
        offer: ReplyFormat,
        header_len: usize,
        len: usize,
        regions: usize,
        signaled: bool,
    );

    /// A message was not posted.
    fn post_failed(xprt: u32, xid: u32, reason: Post);

    /// A Call waits because no region is free.
    fn out_of_regions(xprt: u32, xid: u32);

    /// A Call waits for room in the Send Queue, or for a Send buffer.
    fn send_queue_full(xprt: u32, xid: u32);

    /// A Receive has completed.
    fn receive(xprt: u32, len: usize, status: u32);

    /// A work request has completed without success.
    fn completion_error(xprt: u32, work: Work, status: u32, vendor_err: u32);

    /// A Reply was matched with its Call.
    fn reply(
        xprt: u32,
        xid: u32,
        index: u32,
        credits: u32,
        verdict: Verdict,
        len: usize,
        written: u32,
    );

    /// A message makes no sense.
    fn decode_error(xprt: u32, xid: u32, fault: Fault, len: usize);

    /// A reverse-direction Call has arrived.
    fn reverse_call(xprt: u32, xid: u32, len: usize);

    /// The Reply of a reverse-direction Call was posted.
    fn reverse_reply(xprt: u32, xid: u32, len: usize);
}

#[cfg(CONFIG_TRACEPOINTS)]
#[kernel::prelude::kunit_tests(rpcrdma_trace)]
mod tests {
    use super::*;
    use kernel::error::to_result;
    use kernel::sync::atomic::{
        Atomic,
        Relaxed, //
    };

    /// What `lost_probe` was called with: the number of calls above, the last transport below.
    static SEEN: Atomic<u64> = Atomic::new(0);

    /// Called for each event `lost` while it is registered for it.
    ///
    /// # Safety
    ///
    /// None; it is registered for an event with these arguments.
    unsafe extern "C" fn lost_probe(_data: *mut c_void, xprt: u32) {
        let calls = (SEEN.load(Relaxed) >> 32) + 1;
        SEEN.store(calls << 32 | u64::from(xprt), Relaxed);
    }

    #[test]
    fn an_event_is_raised_only_while_it_is_on() -> Result {
        // A number that no transport has.
        const XPRT: u32 = 0xffff_ffe0;
        let probe = lost_probe as *mut c_void;
        let tracepoint = &raw mut sys::__tracepoint_rpcrdma_rs_lost;

        SEEN.store(0, Relaxed);
        lost(XPRT);
        assert_eq!(SEEN.load(Relaxed), 0);

        // SAFETY: The probe has the event's arguments, and stays as long as the tracepoint.
        to_result(unsafe {
            sys::tracepoint_probe_register(tracepoint, probe, core::ptr::null_mut())
        })?;
        lost(XPRT);
        lost(XPRT + 1);
        // SAFETY: It was registered above.
        to_result(unsafe {
            sys::tracepoint_probe_unregister(tracepoint, probe, core::ptr::null_mut())
        })?;
        assert_eq!(SEEN.load(Relaxed), 2 << 32 | u64::from(XPRT + 1));

        lost(XPRT);
        assert_eq!(SEEN.load(Relaxed), 2 << 32 | u64::from(XPRT + 1));
        Ok(())
    }

    /// Raises every event with values of its own, so that a program that reads them can compare
    /// what it sees (`tests/guest/trace-events`).
    #[test]
    fn every_event_can_be_raised() {
        const XPRT: u32 = 0xffff_fff1;
        connect(
            XPRT,
            c"192.0.2.1",
            c"20049",
            c"device0",
            4096,
            8192,
            128,
            257,
            -111,
        );
        cm_event(XPRT, sys::rdma_cm_event_type_RDMA_CM_EVENT_REJECTED, 28);
        lost(XPRT);
        disconnect(XPRT, End::Replaced);
        credits(XPRT, 200, 128);
        region_map(
            XPRT,
            0x1122_3344,
            0x5566_7788,
            12_345,
            0x0102_0304_0506_0708,
            4,
            Direction::PeerWrites,
        );
        region_fence_post(XPRT, 17, 3);
        region_fenced(XPRT, 18, true);
        remote_invalidation(XPRT, 0x1122_3344, 0x5566_7788);
        post_call(
            XPRT,
            0x1122_3344,
            19,
            CallFormat::Special,
            ReplyFormat::WriteAndReplyChunk,
            52,
            200,
            5,
            true,
        );
        post_failed(XPRT, 0x1122_3345, Post::Refused);
        out_of_regions(XPRT, 0x1122_3346);
        send_queue_full(XPRT, 0x1122_3347);
        receive(XPRT, 1000, sys::ib_wc_status_IB_WC_SUCCESS);
        completion_error(
            XPRT,
            Work::Register,
            sys::ib_wc_status_IB_WC_WR_FLUSH_ERR,
            0xab,
        );
        reply(XPRT, 0x1122_3348, 20, 64, Verdict::Placed, 600, 4321);
        decode_error(XPRT, 0x1122_3349, Fault::Version(2), 28);
        reverse_call(XPRT, 0x1122_334a, 108);
        reverse_reply(XPRT, 0x1122_334b, 92);
    }
}
