// SPDX-License-Identifier: GPL-2.0

//! Typical messages of Version Two.

use super::{
    READ,
    SEGMENT,
    XID, //
};
use crate::headers::{
    CallExternal,
    CallInline,
    ReplyExternal,
    ReplyInline, //
};
use crate::pair::IN_ONE;
use crate::proto::{
    chunk::Limits,
    connection::{
        incoming::Incoming,
        receives::Receives,
        Connection,
        Reception, //
    },
    message::{
        decode,
        Body,
        Version, //
    },
    props::{
        Advertised,
        Properties, //
    },
    session::{
        Action,
        Config,
        Outbound,
        Role, //
    },
    v2::{
        self,
        ConnProp,
        Direction,
        ErrorHeader,
        GrantHeader,
        Middle,
        RdmaError, //
    }, //
};

/// A kind of message: all ten header types with what they typically hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTwo {
    /// An error about a Write chunk.
    Error,
    /// Credits.
    Grant,
    /// Host authentication material of 64 octets.
    ConnPropMiddle,
    /// All properties.
    ConnPropFinal,
    /// A Call that is too large, with a WRITE of 1 MiB, and that expects a Reply that is too large.
    CallExternal,
    /// A part of a Call.
    CallMiddle,
    /// A small Call, such as GETATTR.
    CallInline,
    /// A WRITE of 1 MiB in one region.
    CallInlineRead,
    /// A READ of 1 MiB in one region.
    CallInlineWrite,
    /// A Reply that is too large.
    ReplyExternal,
    /// A part of a Reply.
    ReplyMiddle,
    /// A small Reply.
    ReplyInline,
    /// The Reply to a READ of 1 MiB.
    ReplyInlineWrite,
}

impl SampleTwo {
    /// All kinds of messages.
    pub const ALL: [Self; 13] = [
        Self::Error,
        Self::Grant,
        Self::ConnPropMiddle,
        Self::ConnPropFinal,
        Self::CallExternal,
        Self::CallMiddle,
        Self::CallInline,
        Self::CallInlineRead,
        Self::CallInlineWrite,
        Self::ReplyExternal,
        Self::ReplyMiddle,
        Self::ReplyInline,
        Self::ReplyInlineWrite,
    ];

    /// Writes the header of the message to `buf` and returns its size.
    ///
    /// # Panics
    ///
    /// If `buf` is too small: 512 octets are enough.
    #[inline]
    pub fn encode(self, buf: &mut [u8]) -> usize {
        let (xid, credits) = (XID, 0xffff_ff80);
        let call = CallInline {
            xid,
            credits,
            inv_handle: 0,
            read: &[],
            write: &[],
            reply: None,
        };
        let with_handle = CallInline {
            inv_handle: SEGMENT.handle,
            ..call
        };
        let middle = |direction| Middle {
            direction,
            xid,
            credits,
            remaining: 4076,
        };
        match self {
            Self::Error => ErrorHeader {
                xid,
                version: v2::VERSION,
                credits,
                error: RdmaError::WriteResource {
                    index: 1,
                    needed: 1 << 20,
                },
            }
            .encode(Version::Two, buf),
            Self::Grant => GrantHeader { credits }.encode(buf),
            Self::ConnPropMiddle => ConnProp {
                credits,
                told: Advertised {
                    host_auth: Some(&[0x5a; 64]),
                    ..Advertised::NOTHING
                },
                last: false,
            }
            .encode(buf),
            Self::ConnPropFinal => ConnProp {
                credits,
                told: Advertised::all(&Properties::DEFAULT),
                last: true,
            }
            .encode(buf),
            Self::CallExternal => CallExternal {
                common: CallInline {
                    read: &[READ],
                    reply: Some(&[SEGMENT]),
                    ..with_handle
                },
                call: &[SEGMENT],
            }
            .encode(buf),
            Self::CallMiddle => middle(Direction::Call).encode(buf),
            Self::CallInline => call.encode(buf),
            Self::CallInlineRead => CallInline {
                read: &[READ],
                ..with_handle
            }
            .encode(buf),
            Self::CallInlineWrite => CallInline {
                write: &[&[SEGMENT]],
                ..with_handle
            }
            .encode(buf),
            Self::ReplyExternal => ReplyExternal {
                xid,
                credits,
                write: &[],
                reply: &[SEGMENT],
            }
            .encode(buf),
            Self::ReplyMiddle => middle(Direction::Reply).encode(buf),
            Self::ReplyInline => ReplyInline {
                xid,
                credits,
                write: &[],
            }
            .encode(buf),
            Self::ReplyInlineWrite => ReplyInline {
                xid,
                credits,
                write: &[&[SEGMENT]],
            }
            .encode(buf),
        }
        .expect("samples are valid")
    }

    /// Returns a whole message as it is received: an RPC message of 64 octets follows the header,
    /// if any does.
    pub fn message(self) -> Vec<u8> {
        let mut buf = vec![0; 512];
        let len = self.encode(&mut buf);
        buf.truncate(len);
        let direction = match self {
            Self::CallMiddle | Self::CallInline | Self::CallInlineRead | Self::CallInlineWrite => {
                0_u32
            }
            Self::ReplyMiddle | Self::ReplyInline | Self::ReplyInlineWrite => 1,
            _ => return buf,
        };
        buf.extend(XID.to_be_bytes());
        buf.extend(direction.to_be_bytes());
        buf.extend([0; 56]);
        buf
    }
}

/// Decodes a message and goes through all of its segments, as its receiver does.
///
/// # Panics
///
/// If the message is not valid.
#[inline]
pub fn decode_two(bytes: &[u8]) -> u64 {
    let header = decode(Version::Two, bytes, &Limits::DEFAULT).expect("samples are valid");
    let mut sum = header.payload.len() as u64;
    let mut add = |segment: crate::proto::chunk::Segment| {
        sum = sum.wrapping_add(u64::from(segment.length) ^ segment.offset);
    };
    match header.body {
        Body::Inline(direction) | Body::External(direction) => {
            header.segments().for_each(&mut add);
            if direction == Direction::Call {
                sum = sum.wrapping_add(u64::from(header.invalidate().unwrap_or(0)));
            }
        }
        Body::Properties { told, .. } => {
            sum = sum.wrapping_add(told.receive_size.unwrap_or(0).into());
        }
        Body::Error(_) | Body::Grant | Body::Middle { .. } => {}
    }
    sum
}

/// Two connections that speak Version Two with each other.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The client's.
    client: Connection,
    /// The server's.
    server: Connection,
}

impl Default for Conversation {
    fn default() -> Self {
        let config = |role| Config {
            role,
            low: 1,
            high: 2,
            earlier: None,
            own: Properties::DEFAULT,
            authenticate: false,
            receives: 128,
            credits_in_one: 1,
            limits: Limits::DEFAULT,
            read_chunks: 16,
            write_chunks: 16,
            max_assembly: 1 << 20,
        };
        let receives = Receives::fixed(129);
        Self {
            client: Connection::new(&config(Role::Client), receives, IN_ONE),
            server: Connection::new(&config(Role::Server), receives, IN_ONE),
        }
    }
}

impl Conversation {
    /// Has one RPC made: a small Call and a small Reply, as far as the connections are concerned.
    /// Returns how many messages were sent, GRANTs included.
    ///
    /// # Panics
    ///
    /// If the ends do not understand each other.
    #[inline]
    pub fn rpc(&mut self) -> u32 {
        let mut sent = 0;
        settle(&mut self.client, &mut self.server, &mut sent);
        for direction in [Direction::Call, Direction::Reply] {
            let (from, to) = match direction {
                Direction::Call => (&mut self.client, &mut self.server),
                Direction::Reply => (&mut self.server, &mut self.client),
            };
            let outbound = Outbound {
                direction,
                parts: 1,
                chunks: false,
            };
            let begun = from.begin(&outbound).expect("there are credits");
            let credits = begun.expect("messages are counted");
            from.commit(&outbound);
            let mut buf = [0; 64];
            let header = match direction {
                Direction::Call => CallInline {
                    xid: XID,
                    credits,
                    inv_handle: 0,
                    read: &[],
                    write: &[],
                    reply: None,
                }
                .encode(&mut buf),
                Direction::Reply => ReplyInline {
                    xid: XID,
                    credits,
                    write: &[],
                }
                .encode(&mut buf),
            };
            let at = header.expect("it fits");
            buf[at..at + 4].copy_from_slice(&XID.to_be_bytes());
            buf[at + 7] = u8::from(direction == Direction::Reply);
            let incoming = to.received(&buf, &Reception::default());
            assert!(matches!(
                incoming,
                Incoming::Call { .. } | Incoming::Answer(_)
            ));
            sent += 1;
            settle(to, from, &mut sent);
        }
        sent
    }
}

/// Has everything sent that two connections want to be sent.
#[inline]
fn settle(one: &mut Connection, other: &mut Connection, sent: &mut u32) {
    loop {
        let before = *sent;
        flush(one, other, sent);
        flush(other, one, sent);
        if *sent == before {
            return;
        }
    }
}

/// Has everything sent that a connection wants to be sent.
#[inline]
fn flush(from: &mut Connection, to: &mut Connection, sent: &mut u32) {
    while let Some(action) = from.poll() {
        if let Action::Send(control) = action {
            let mut buf = [0; 96];
            let len = control.encode(&mut buf).expect("it fits");
            to.received(&buf[..len], &Reception::default());
            from.session.commit(&control);
            from.session.handle_sent();
            *sent += 1;
        }
    }
}
