// SPDX-License-Identifier: GPL-2.0

//! What the codec makes of a header, as a line of text that does not depend on its types.

use super::million::Sent;
use crate::proto::{
    chunk::{
        Chunk,
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
        Version, //
    },
    v1::{
        self,
        Direction, //
    },
    v2,
    v2_2016::header, //
};

type Decoded = (
    Vec<u32>,
    String,
    Vec<ReadSegment>,
    Vec<ReadSegment>,
    Vec<Vec<Segment>>,
    Option<Vec<Segment>>,
);

fn one(bytes: &[u8], header: &v1::Header<'_>) -> Decoded {
    let kind = match header.body {
        v1::Body::Msg { direction, .. } => format!("inline {direction:?}"),
        v1::Body::Nomsg { direction, .. } => format!("external {direction:?}"),
        v1::Body::Error(v1::RdmaError::Chunk) => "error [2]".into(),
        v1::Body::Error(v1::RdmaError::Version { low, high }) => {
            format!("error [1, {low}, {high}]")
        }
    };
    let _ = bytes;
    (
        vec![
            header.xid,
            header.credits,
            header.header_len() as u32,
            header.payload().len() as u32,
        ],
        kind,
        vec![],
        header.read_list().iter().collect(),
        header
            .write_list()
            .iter()
            .map(|c| c.iter().collect())
            .collect(),
        header.reply_chunk().map(|c: Chunk<'_>| c.iter().collect()),
    )
}

fn two(header: &v2::Header<'_>) -> Decoded {
    use v2::Body;
    use v2::RdmaError as E;
    let mut lists = (vec![], vec![], vec![], None);
    let chunks = |list: &crate::proto::chunk::WriteList<'_>| {
        list.iter().map(|c| c.iter().collect()).collect()
    };
    let kind = match header.body {
        Body::Error(error) => {
            let words = match error {
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
            };
            format!("error {words:?}")
        }
        Body::Grant => "grant".into(),
        Body::Properties { told, last } => format!("properties {last} {told:?}"),
        Body::CallExternal(offer) | Body::CallInline { offer, .. } => {
            lists = (
                offer.call.iter().collect(),
                offer.read.iter().collect(),
                chunks(&offer.write),
                offer.reply.map(|c| c.iter().collect()),
            );
            let word = if matches!(header.body, Body::CallInline { .. }) {
                "inline"
            } else {
                "external"
            };
            format!("{word} Call {} {}", offer.inv_handle, offer.read_chunks())
        }
        Body::Middle {
            direction,
            remaining,
            ..
        } => format!("middle {direction:?} {remaining}"),
        Body::ReplyExternal { write, reply } => {
            lists.2 = chunks(&write);
            lists.3 = Some(reply.iter().collect());
            "external Reply".into()
        }
        Body::ReplyInline { write, .. } => {
            lists.2 = chunks(&write);
            "inline Reply".into()
        }
    };
    (
        vec![
            header.xid,
            header.credits,
            header.header_len() as u32,
            header.payload().len() as u32,
        ],
        kind,
        lists.0,
        lists.1,
        lists.2,
        lists.3,
    )
}

/// Returns what becomes of a received header.
pub(super) fn decoded(version: Version, bytes: &[u8], limits: &Limits) -> String {
    let header = match version {
        Version::One => v1::decode_with(bytes, limits).map(|header| one(bytes, &header)),
        Version::Earlier => header::decode(bytes).map(|header| one(bytes, &header)),
        Version::Two => v2::decode(bytes, limits)
            .map(|header| two(&header))
            .map_err(|error| v1::DecodeError {
                fault: error.fault,
                prefix: error.prefix,
                direction: None,
            }),
    };
    match header {
        Ok(parts) => {
            let call = message::Call::decode(version, bytes);
            let call = call.map(|call| {
                (
                    call.invalidate(),
                    call.segment_count(),
                    call.read_total(),
                    call.has_chunks(),
                    call.offers_chunks(),
                )
            });
            // Limits of decode() and of the view differ.
            let call = call.filter(|_| parts.1.contains("Call"));
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
                    let len = answer.encode(&mut buf).unwrap();
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
    let reply = sent.reply.as_deref();
    let (xid, credits) = (sent.xid, sent.credits);
    let zeroes = sent.call.iter().map(|segment| ReadSegment {
        position: 0,
        segment: *segment,
    });
    let read_one: Vec<ReadSegment> = zeroes.chain(sent.read.iter().copied()).collect();
    match (sent.version, sent.direction) {
        (Version::Two, Direction::Call) => {
            let common = v2::CallInline {
                xid,
                credits,
                inv_handle: sent.invalidate,
                read: &sent.read,
                write: &write,
                reply,
            };
            if sent.external {
                v2::CallExternal {
                    common,
                    call: &sent.call,
                }
                .encode(buf)
            } else {
                common.encode(buf)
            }
        }
        (Version::Two, Direction::Reply) => match reply {
            Some(reply) if sent.external => v2::ReplyExternal {
                xid,
                credits,
                write: &write,
                reply,
            }
            .encode(buf),
            _ => v2::ReplyInline {
                xid,
                credits,
                write: &write,
            }
            .encode(buf),
        },
        (version, Direction::Call) => {
            let header = v1::CallHeader {
                xid,
                credits,
                read: &read_one,
                write: write.first().copied().unwrap_or_default(),
                reply: reply.unwrap_or_default(),
                nomsg: sent.external,
            };
            if version == Version::One {
                header.encode(buf)
            } else {
                header::encode_call(&header, buf)
            }
        }
        (version, Direction::Reply) => {
            let header = v1::ReplyHeader {
                xid,
                credits,
                write: &write,
                reply,
                nomsg: sent.external,
            };
            if version == Version::One {
                header.encode(buf)
            } else {
                header::encode_reply(&header, buf)
            }
        }
    }
}
