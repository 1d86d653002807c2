// SPDX-License-Identifier: GPL-2.0

//! What the codec makes of a header, as a line of text that does not depend on its types.

use super::million::Sent;
use crate::proto::{
    chunk::{
        Limits,
        ReadSegment,
        Segment, //
    },
    error::{
        Fault,
        Result, //
    },
    message::{
        self,
        Body,
        Header,
        Outgoing,
        RdmaError as E,
        Version, //
    }, //
};

type Decoded = (
    Vec<u32>,
    String,
    Vec<ReadSegment>,
    Vec<ReadSegment>,
    Vec<Vec<Segment>>,
    Option<Vec<Segment>>,
);

/// Returns the code and the parameters of an error.
fn words(error: E) -> Vec<u32> {
    match error {
        E::Version { low, high } => vec![1, low, high],
        E::BadXdr => vec![2],
        E::BadProperty => vec![3],
        E::HeaderType => vec![4],
        E::Continuation => vec![5],
        E::ReadChunks { max } => vec![6, max],
        E::WriteChunks { max } => vec![7, max],
        E::Segments { max } => vec![8, max],
        E::WriteResource { index, needed } => vec![9, index, needed],
        E::ReplyResource { needed } => vec![10, needed],
        E::VersionMismatch => vec![11],
        E::System => vec![100],
    }
}

/// Returns what a header says.
fn told(header: &Header<'_>) -> Decoded {
    let mut kind = match header.body {
        Body::Error(error) => format!("error {:?}", words(error)),
        Body::Grant => "grant".into(),
        Body::Properties { told, last } => format!("properties {last} {told:?}"),
        Body::Inline(direction) => format!("inline {direction:?}"),
        Body::External(direction) => format!("external {direction:?}"),
        Body::Middle {
            direction,
            remaining,
        } => format!("middle {direction:?} {remaining}"),
    };
    if header.version == Version::Two && header.is_call() {
        kind += &format!(" {} {}", header.lists.inv_handle, header.read_chunks());
    }
    (
        vec![
            header.xid,
            header.credits,
            header.header_len as u32,
            header.payload.len() as u32,
        ],
        kind,
        header.call_list().iter().collect(),
        header.read_list().iter().collect(),
        header
            .write_list()
            .iter()
            .map(|c| c.iter().collect())
            .collect(),
        header.reply_chunk().map(|c| c.iter().collect()),
    )
}

/// Returns what becomes of a received header.
pub(super) fn decoded(version: Version, bytes: &[u8], limits: &Limits) -> String {
    let header = message::decode(version, bytes, limits).map(|header| told(&header));
    match header {
        Ok(parts) => {
            let call = message::decode_call(version, bytes);
            let call = call.map(|call| {
                (
                    call.invalidate(),
                    call.segments().count(),
                    call.read_total(),
                    call.has_chunks(),
                    call.offers_chunks(),
                )
            });
            format!("{version:?} {parts:?} {call:?}")
        }
        Err(error) => {
            let prefix = error
                .prefix
                .map(|p| [p.xid, p.version, p.credits, p.procedure]);
            let mut buf = [0; 64];
            let answer = error
                .answer(7)
                .filter(|_| version != Version::Two)
                .map(|answer| {
                    let len = answer.encode(version, &mut buf).unwrap();
                    buf[..len].to_vec()
                });
            // In Version Two the type tells it.
            let direction = error.direction.filter(|_| version != Version::Two);
            format!(
                "{version:?} {:?} {prefix:?} {direction:?} {answer:?}",
                error.fault
            )
        }
    }
}

/// Writes a header to send.
pub(super) fn encoded(sent: &Sent, buf: &mut [u8]) -> Result<usize, Fault> {
    let write: Vec<&[Segment]> = sent.write.iter().map(Vec::as_slice).collect();
    Outgoing {
        version: sent.version,
        direction: sent.direction,
        xid: sent.xid,
        credits: sent.credits,
        external: sent.external,
        invalidate: sent.invalidate,
        call: &sent.call,
        read: &sent.read,
        write: &write,
        reply: sent.reply.as_deref(),
    }
    .encode(buf)
}
