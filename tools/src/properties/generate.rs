// SPDX-License-Identifier: GPL-2.0

//! Everything that a Version One header may hold, at random.

use proptest::{
    collection::vec,
    prelude::*, //
};

use crate::proto::{
    chunk::{
        ReadSegment,
        Segment, //
    },
    message::RdmaError, //
};

/// Octets of a message. Its header is at most as long as the largest number of segments makes it.
pub(super) const MAX_MESSAGE: usize = 16 * 1024;

/// A number that is often near an end of its range.
pub(super) fn edgy() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => any::<u32>(),
        2 => 0..5_u32,
        1 => (0..5_u32).prop_map(|below| u32::MAX - below),
    ]
}

/// A segment of at most `max` octets.
fn segment(max: u32) -> impl Strategy<Value = Segment> {
    let length = prop_oneof![0..=max, 0..=max.min(4)];
    (any::<u32>(), length, any::<u64>()).prop_map(|(handle, length, offset)| Segment {
        handle,
        length,
        offset: offset.min(u64::MAX - u64::from(length)),
    })
}

/// The segments of a Write or Reply chunk, the lengths of which add up to 32 bits at most.
pub(super) fn chunk(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Segment>> {
    vec(segment(u32::MAX / 32), count)
}

/// The segments of a Read list, none of them at position zero.
pub(super) fn read_list() -> impl Strategy<Value = Vec<ReadSegment>> {
    vec((1..=u32::MAX / 4, segment(u32::MAX / 32)), 0..16).prop_map(|entries| {
        entries
            .into_iter()
            .map(|(position, segment)| ReadSegment {
                position: position * 4,
                segment,
            })
            .collect()
    })
}

/// The segments of a Read list in which the RPC message is.
pub(super) fn special_read_list() -> impl Strategy<Value = Vec<ReadSegment>> {
    (read_list(), chunk(1..8)).prop_map(|(mut entries, mut call)| {
        call[0].length = call[0].length.max(1);
        call[0].offset = call[0].offset.min(u64::MAX - u64::from(call[0].length));
        let call = call.into_iter().map(|segment| ReadSegment {
            position: 0,
            segment,
        });
        entries.splice(0..0, call);
        entries
    })
}

/// A Call's header, with a Write list of one chunk at most.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// The transaction ID.
    pub(super) xid: u32,
    /// The credits asked for.
    pub(super) credits: u32,
    /// The Read list.
    pub(super) read: Vec<ReadSegment>,
    /// The Write chunk.
    pub(super) write: Vec<Segment>,
    /// The Reply chunk.
    pub(super) reply: Vec<Segment>,
    /// Whether the RPC message is in the Read list.
    pub(super) nomsg: bool,
}

/// Any Call's header.
pub(super) fn call() -> impl Strategy<Value = Call> {
    let read = any::<bool>().prop_flat_map(|nomsg| match nomsg {
        true => (Just(nomsg), special_read_list().boxed()),
        false => (Just(nomsg), read_list().boxed()),
    });
    (edgy(), edgy(), read, chunk(0..20), chunk(0..20)).prop_map(
        |(xid, credits, (nomsg, read), write, reply)| Call {
            xid,
            credits,
            read,
            write,
            reply,
            nomsg,
        },
    )
}

/// A Reply's header.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    /// The transaction ID.
    pub(super) xid: u32,
    /// The credits granted.
    pub(super) credits: u32,
    /// The Write list.
    pub(super) write: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub(super) reply: Option<Vec<Segment>>,
    /// Whether the RPC message is in the Reply chunk.
    pub(super) nomsg: bool,
}

/// Any Reply's header.
pub(super) fn reply() -> impl Strategy<Value = Reply> {
    let write = vec(chunk(0..10), 0..8);
    let reply = prop::option::of(chunk(0..20));
    (edgy(), edgy(), write, reply, any::<bool>()).prop_map(
        |(xid, credits, write, mut reply, nomsg)| {
            // A Reply chunk that holds the RPC message is not empty.
            let nomsg = match reply.as_mut().and_then(|segments| segments.last_mut()) {
                Some(last) if nomsg => {
                    last.length = last.length.max(1);
                    last.offset = last.offset.min(u64::MAX - u64::from(last.length));
                    true
                }
                _ => false,
            };
            Reply {
                xid,
                credits: credits.max(1),
                write,
                reply,
                nomsg,
            }
        },
    )
}

/// Any content of an RDMA_ERROR message.
pub(super) fn rdma_error() -> impl Strategy<Value = RdmaError> {
    prop_oneof![
        Just(RdmaError::BadXdr),
        (edgy(), edgy()).prop_map(|(a, b)| RdmaError::Version {
            low: a.min(b),
            high: a.max(b),
        }),
    ]
}
