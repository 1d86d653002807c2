// SPDX-License-Identifier: GPL-2.0

//! The first messages of a connection, as two ends send them.

use super::{
    document,
    vectors::{
        named,
        null_call,
        null_reply,
        property_names,
        shown,
        with,
        written,
        NO_CHUNKS,
        NULL_CALL,
        NULL_REPLY, //
    }, //
};
use crate::headers::{
    CallInline,
    ReplyInline, //
};
use crate::proto::{
    chunk::Limits,
    message::Version,
    props::Properties,
    session::{
        Action,
        Config,
        Event,
        Outbound,
        Role,
        Session, //
    },
    v2::{
        htype,
        Direction, //
    }, //
};

/// The document that shows the messages.
const DOCUMENT: &str = "interop-notes.rst";

/// The transaction ID of the Call.
const XID: u32 = 0x1234_5678;

/// An end with `receives` Receives of 4096 octets beside the one for a GRANT.
fn end(role: Role, high: u32, receives: u32) -> Session {
    let config = Config {
        role,
        low: 1,
        high,
        earlier: None,
        own: Properties {
            reverse: if role == Role::Client { 3 } else { 0 },
            segment_count: 64,
            ..Properties::DEFAULT
        },
        authenticate: false,
        receives,
        credits_in_one: receives,
        limits: Limits::DEFAULT,
        read_chunks: 16,
        write_chunks: 16,
        max_assembly: 16384,
    };
    Session::after(&config, 0)
}

/// A message and who has sent it.
type Sent = (&'static str, Vec<u8>);

/// Has everything sent that an end wants to be sent, and returns it.
fn flush(who: &'static str, from: &mut Session) -> Vec<Sent> {
    let mut all = vec![];
    while let Some(action) = from.poll_action() {
        if let Action::Send(control) = action {
            all.push((who, written(|buf| control.encode(buf))));
            from.commit(&control);
            from.handle_sent();
        }
    }
    all
}

/// Has an end send an RPC message, and returns its credit value.
fn credits(from: &mut Session, direction: Direction) -> u32 {
    let outbound = Outbound {
        direction,
        parts: 1,
        chunks: false,
    };
    let credits = from.prepare_send(&outbound).unwrap();
    from.commit_send(1);
    credits
}

/// Returns the messages as the document shows them.
fn lines(messages: &[Sent]) -> Vec<String> {
    let mut lines = vec![];
    for (who, message) in messages {
        let word = u32::from_be_bytes(message[12..16].try_into().unwrap());
        let (title, names) = match word {
            htype::ERROR => (
                "RDMA2_ERROR",
                named(&[&["rdma_err", "rdma_vers_low", "rdma_vers_high"]]),
            ),
            htype::GRANT => ("RDMA2_GRANT", named(&[])),
            htype::CONNPROP_FINAL => ("RDMA2_CONNPROP_FINAL", named(&[&property_names()])),
            htype::CALL_INLINE => (
                "RDMA2_CALL_INLINE",
                named(&[&["rdma_inv_handle"], &NO_CHUNKS, &NULL_CALL]),
            ),
            htype::REPLY_INLINE => (
                "RDMA2_REPLY_INLINE",
                named(&[&["no Write chunk"], &NULL_REPLY]),
            ),
            other => panic!("header type {other}"),
        };
        lines.extend(shown(&format!("{who}: {title}"), message, &names));
    }
    lines.pop();
    lines
}

/// A client and a server find that they both speak Version Two, tell their properties, and make
/// their first RPC.
#[test]
fn a_negotiation_is_as_documented() {
    let (mut client, mut server) = (end(Role::Client, 2, 32), end(Role::Server, 2, 64));
    let mut all = flush("client", &mut client);
    assert_eq!(all.len(), 1);
    server.handle_received(&all[0].1);
    let answers = flush("server", &mut server);
    for (_, answer) in &answers {
        client.handle_received(answer);
    }
    all.extend(answers);
    all.extend(flush("client", &mut client));
    assert_eq!(client.dialect(), Some(Version::Two));

    let header = CallInline {
        xid: XID,
        credits: credits(&mut client, Direction::Call),
        inv_handle: 0,
        read: &[],
        write: &[],
        reply: None,
    };
    let call = with(written(|buf| header.encode(buf)), &null_call(XID));
    assert!(matches!(
        server.handle_received(&call),
        Event::Message { .. }
    ));
    all.push(("client", call));
    let header = ReplyInline {
        xid: XID,
        credits: credits(&mut server, Direction::Reply),
        write: &[],
    };
    let reply = with(written(|buf| header.encode(buf)), &null_reply(XID));
    assert!(matches!(
        client.handle_received(&reply),
        Event::Message { .. }
    ));
    all.push(("server", reply));
    document::check(DOCUMENT, "negotiation", &lines(&all));
}

/// A server of Version One answers the first message with the versions that it has, and the client
/// goes on with that version.
#[test]
fn a_fallback_is_as_documented() {
    let (mut client, mut server) = (end(Role::Client, 2, 32), end(Role::Server, 1, 64));
    let first = flush("client", &mut client);
    server.handle_received(&first[0].1);
    let answer = flush("server", &mut server);
    assert_eq!(answer.len(), 1);
    assert!(matches!(
        client.handle_received(&answer[0].1),
        Event::Fallback { .. }
    ));
    document::check(DOCUMENT, "fallback", &lines(&answer));
}
