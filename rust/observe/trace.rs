// SPDX-License-Identifier: GPL-2.0

//! Trace events of the system "rpcrdma_rs".
//!
//! Each function here raises the event of its name. While the event is off this costs one static
//! branch: no call, and no conversion of an argument. (A kernel without jump labels, such as User
//! Mode Linux, has a counter in the place of the branch.)
//!
//! C header: `include/trace/events/rpcrdma_rs.h`, which describes the arguments.

mod values;

pub(crate) use self::values::{
    Answer,
    Direction,
    End,
    Post,
    RefusalReason,
    Verdict,
    Work, //
};

pub(crate) use crate::kext::debugfs::Number;

use self::values::Field;
use crate::proto::{
    auth,
    error::Fault,
    format::{
        CallFormat,
        ReplyFormat, //
    },
    session::Reason,
    v2::RdmaError, //
};
use kernel::prelude::*;

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
                    // SAFETY: Strings are valid for the call (see `Field`), which copies them. All
                    // other arguments are plain numbers.
                    unsafe {
                        crate::sys::[< rust_do_trace_rpcrdma_rs_ $name >]($(Field::raw($arg)),*)
                    };
                }
            }
            // This uses each argument, so that there is no warning.
            #[cfg(not(CONFIG_TRACEPOINTS))]
            { $(let _ = $arg;)* }
        }
    )*};
}

events! {
    /// Reports the end of an attempt to connect. If it failed, only the address of the peer is
    /// known.
    fn connect(
        xprt: Number,
        address: &CStr,
        port: &CStr,
        device: &CStr,
        inline_send: u32,
        inline_receive: u32,
        credits: u32,
        region_depth: u32,
        error: i32,
    );

    /// Reports an event of the connection manager.
    fn cm_event(xprt: Number, event: u32, status: i32);

    /// Reports an event of the device about a Queue Pair.
    fn qp_event(xprt: Number, event: u32);

    /// Reports that an established connection was found to be lost.
    fn lost(xprt: Number);

    /// Reports that this side takes a connection down, which may be lost already.
    fn disconnect(xprt: Number, reason: End);

    /// Reports a change of the peer's grant of credits.
    fn credits(xprt: Number, granted: u32, limit: u32);

    /// Reports that a region was given pages and a fresh handle. Its registration follows.
    fn region_map(
        xprt: Number,
        xid: u32,
        handle: u32,
        length: u32,
        offset: u64,
        pages: u32,
        direction: Direction,
    );

    /// Reports that the invalidation of a Call's remaining regions was posted.
    fn region_fence_post(xprt: Number, index: u32, count: usize);

    /// Reports that this invalidation is done, or that the connection was lost before.
    fn region_fenced(xprt: Number, index: u32, done: bool);

    /// Reports that the peer has invalidated a handle with its Reply.
    fn remote_invalidation(xprt: Number, xid: u32, handle: u32);

    /// Reports that a Call was posted.
    fn post_call(
        xprt: Number,
        xid: u32,
        index: u32,
        call: CallFormat,
        offer: ReplyFormat,
        header_len: usize,
        len: usize,
        regions: usize,
        signaled: bool,
    );

    /// Reports that a message was not posted.
    fn post_failed(xprt: Number, xid: u32, reason: Post);

    /// Reports that a Call or a Reply waits because no region is free.
    fn out_of_regions(xprt: Number, xid: u32);

    /// Reports that a Call or a Reply waits for room in the Send Queue, or for a Send buffer.
    fn send_queue_full(xprt: Number, xid: u32);

    /// Reports that a Receive has completed.
    fn receive(xprt: Number, len: usize, status: u32);

    /// Reports that a signaled Send has completed.
    fn sent(xprt: Number, sequence: u64, status: u32);

    /// Reports that a work request has completed without success.
    fn completion_error(xprt: Number, work: Work, status: u32, vendor_err: u32);

    /// Reports that a Reply was matched with its Call.
    fn reply(
        xprt: Number,
        xid: u32,
        index: u32,
        credits: u32,
        verdict: Verdict,
        len: usize,
        written: u32,
    );

    /// Reports a message that cannot be decoded.
    fn decode_error(xprt: Number, xid: u32, fault: Fault, len: usize);

    /// Reports that an error of Version Two was sent, or has arrived.
    fn error(xprt: Number, xid: u32, error: RdmaError, sent: bool);

    /// Reports that an OPTIONAL message of the earlier protocol was sent, or has arrived, and what
    /// its sender has told of itself with it.
    fn optional(
        xprt: Number,
        xid: u32,
        operation: &CStr,
        receive_size: u32,
        remote_invalidation: u32,
        reverse: u32,
        sent: bool,
    );

    /// Reports what the peer has answered to a request for another value of a property, and the
    /// value that it has then; the one that was asked for if the request was rejected.
    fn answered(xprt: Number, property: &CStr, asked: u32, outcome: &CStr, value: u32);

    /// Reports that the session of Version Two ends the connection.
    fn closing(xprt: Number, reason: Reason);

    /// Reports the result of host authentication of the peer.
    fn host_auth(xprt: Number, verdict: auth::AuthVerdict);

    /// Reports the version that a connection uses, and the properties that the peer has sent.
    fn agreed(
        xprt: Number,
        version: u32,
        dialect: &CStr,
        send_size: u32,
        receive_size: u32,
        segment_size: u32,
        segment_count: u32,
        reverse: &CStr,
        send_window: u32,
        receive_window: u32,
    );

    /// Reports that a reverse-direction Call has arrived.
    fn reverse_call(xprt: Number, xid: u32, len: usize);

    /// Reports that the Reply of a reverse-direction Call was posted.
    fn reverse_reply(xprt: Number, xid: u32, len: usize);

    /// Reports that a listener was made, or that this failed.
    fn listen(address: &CStr, port: &CStr, error: i32);

    /// Reports that a connection request is accepted or rejected.
    fn accept(
        xprt: Number,
        address: &CStr,
        port: &CStr,
        device: &CStr,
        inline_send: u32,
        inline_receive: u32,
        credits: u32,
        read_depth: u32,
        invalidate: bool,
        error: i32,
    );

    /// Reports that Replies carry another grant of credits from now on.
    fn grant(xprt: Number, credits: u32, calls: u32);

    /// Reports that a thread has taken a Call in.
    fn call(
        xprt: Number,
        xid: u32,
        len: usize,
        credits: u32,
        read_segments: usize,
        write_chunks: usize,
        reply_segments: usize,
        nomsg: bool,
    );

    /// Reports that the RDMA Reads of a Call were posted.
    fn read_post(xprt: Number, xid: u32, reads: u32, octets: u32, requests: u32);

    /// Reports that the RDMA Reads of a Call are done.
    fn read_done(xprt: Number, xid: u32);

    /// Reports that a Reply was posted.
    fn post_reply(
        xprt: Number,
        xid: u32,
        len: usize,
        writes: u32,
        octets: u32,
        requests: u32,
        handle: u32,
        sequence: u64,
    );

    /// Reports that a Reply could not be sent.
    fn reply_failed(xprt: Number, xid: u32, error: i32);

    /// Reports that a message is refused, or that a Call cannot be served.
    fn refuse(xprt: Number, xid: u32, answer: Answer, why: RefusalReason, len: usize);
}

#[cfg(CONFIG_TRACEPOINTS)]
#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_trace)]
mod tests {
    use super::*;
    use crate::sys;
    use kernel::{
        error::to_result,
        sync::atomic::{
            Atomic,
            Relaxed, //
        }, //
    };

    /// The calls of `lost_probe`: their number in the upper half, the last transport in the lower
    /// one.
    static SEEN: Atomic<u64> = Atomic::new(0);

    /// Counts a call. It is called for each event `lost` while it is registered.
    ///
    /// # Safety
    ///
    /// None. It is registered for an event with these arguments only.
    unsafe extern "C" fn lost_probe(_data: *mut c_void, xprt: u32) {
        let calls = (SEEN.load(Relaxed) >> 32) + 1;
        SEEN.store(calls << 32 | u64::from(xprt), Relaxed);
    }

    #[test]
    fn an_event_is_raised_only_while_it_is_on() -> Result {
        // A number that no transport has, and the value that C sees of the next number at the
        // server.
        const XPRT: Number = Number::Client(0x7fff_ffe0);
        const NEXT: u64 = 0xffff_ffe1;
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
        lost(Number::Server(0x7fff_ffe1));
        // SAFETY: The probe was registered above, for this tracepoint.
        to_result(unsafe {
            sys::tracepoint_probe_unregister(tracepoint, probe, core::ptr::null_mut())
        })?;
        assert_eq!(SEEN.load(Relaxed), 2 << 32 | NEXT);

        lost(XPRT);
        assert_eq!(SEEN.load(Relaxed), 2 << 32 | NEXT);
        Ok(())
    }

    /// Raises every event with distinct values, so that a program that reads them can compare
    /// (`tests/guest/trace-events`).
    #[test]
    fn every_event_can_be_raised() {
        const XPRT: Number = Number::Client(0x7fff_fff1);
        const SERVER: Number = Number::Server(0x7fff_fff1);
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
        qp_event(XPRT, sys::ib_event_type_IB_EVENT_QP_ACCESS_ERR);
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
        error(XPRT, 0x1122_334c, RdmaError::Segments { max: 1 }, true);
        closing(XPRT, Reason::Stalled);
        host_auth(XPRT, auth::AuthVerdict::Refuse(auth::AuthFailure::WrongKey));
        optional(XPRT, 0x1122_334d, c"UPDPROP", 8192, 1, 2, true);
        answered(XPRT, c"receive_size", 65536, c"other", 32768);
        agreed(
            XPRT,
            2,
            c"draft-07",
            4096,
            8192,
            1_048_576,
            64,
            c"general",
            31,
            15,
        );
        reverse_call(XPRT, 0x1122_334a, 108);
        reverse_reply(XPRT, 0x1122_334b, 92);
        sent(SERVER, 1 << 40, sys::ib_wc_status_IB_WC_SUCCESS);
        listen(c"192.0.2.2", c"20049", -98);
        accept(
            SERVER,
            c"192.0.2.1",
            c"40000",
            c"device1",
            4096,
            1024,
            32,
            16,
            true,
            -12,
        );
        grant(SERVER, 32, 31);
        call(SERVER, 0x1122_3350, 132, 128, 3, 1, 2, true);
        read_post(SERVER, 0x1122_3350, 3, 1_048_576, 256);
        read_done(SERVER, 0x1122_3350);
        post_reply(
            SERVER,
            0x1122_3350,
            200,
            2,
            65_536,
            16,
            0x5566_7788,
            1 << 40,
        );
        reply_failed(SERVER, 0x1122_3351, -107);
        refuse(
            SERVER,
            0x1122_3352,
            Answer::ErrVers,
            RefusalReason::Fault(Fault::Version(2)),
            28,
        );
    }
}
