// SPDX-License-Identifier: GPL-2.0

//! What must be true of Version Two whatever bytes come in.

use crate::headers::{
    CallExternal,
    CallInline,
    ReplyExternal,
    ReplyInline, //
};
use crate::proto::{
    chunk::{
        Limits,
        ReadSegment,
        Segment, //
    },
    continuation::{
        Assembly,
        Split, //
    },
    error::Fault,
    message::{
        decode,
        direction_of,
        Body,
        Header,
        Version, //
    },
    props::{
        Advertised,
        AgreedTerms,
        Properties,
        ReverseLevel, //
    },
    session::{
        Action,
        Config,
        Control,
        Event,
        Outbound,
        Refusal,
        Role,
        Session,
        Timer, //
    },
    v2::{
        self,
        ConnProp,
        Direction,
        ErrorHeader,
        GrantHeader,
        Middle,
        RdmaError, //
    },
    v2_2016,
    xdr::Reader, //
};

/// The Version Two header.
pub fn v2_message(bytes: &[u8]) {
    match decode(Version::Two, bytes, &Limits::DEFAULT) {
        Ok(header) => accepted(bytes, &header),
        Err(error) => {
            assert_eq!(error.prefix.is_none(), bytes.len() < v2::PREFIX_LEN);
            assert_eq!(error.prefix.is_none(), error.fault == Fault::Runt);
            if let Some(prefix) = error.prefix {
                let unknown = !(4..=13).contains(&prefix.procedure);
                let bad_type = matches!(error.fault, Fault::BadProcedure(_));
                assert_eq!(bad_type, unknown && prefix.version == v2::VERSION);
            }
        }
    }
}

/// Checks a message that was accepted: what was decoded, encoded again, is what was received.
fn accepted(bytes: &[u8], header: &Header<'_>) {
    let (head, rest) = bytes.split_at(header.header_len);
    let mut prefix = Reader::new(bytes);
    assert_eq!(prefix.u32(), Ok(header.xid));
    assert_eq!(prefix.u32(), Ok(v2::VERSION));
    assert_eq!(prefix.u32(), Ok(header.credits));
    let htype = prefix.u32().unwrap();
    assert_eq!(direction_of(htype), header.direction());

    for len in head.len().saturating_sub(5)..head.len() {
        assert!(decode(Version::Two, &bytes[..len], &Limits::DEFAULT).is_err());
    }
    if !matches!(header.body, Body::Error(_)) {
        assert_eq!(header.payload, rest);
        assert!(rest.is_empty() || rest.len() >= 4);
    }

    let (xid, credits) = (header.xid, header.credits);
    let mut buf = vec![0; head.len() + 64];
    let len = match header.body {
        Body::Error(error) => ErrorHeader {
            xid,
            version: v2::VERSION,
            credits,
            error,
        }
        .encode(Version::Two, &mut buf),
        // The transaction ID is ignored, and ours is zero.
        Body::Grant => {
            assert_eq!(GrantHeader { credits }.encode(&mut buf), Ok(head.len()));
            assert_eq!(buf[4..16], head[4..]);
            return;
        }
        // What is not known is skipped, and the order is ours. But it means the same.
        Body::Properties { told, last } => {
            let message = ConnProp {
                credits,
                told,
                last,
            };
            let mut buf = vec![0; bytes.len() + 64];
            let len = message.encode(&mut buf).unwrap();
            let again = decode(Version::Two, &buf[..len], &Limits::DEFAULT).unwrap();
            assert_eq!(again.body, header.body);
            return;
        }
        Body::Middle {
            direction,
            remaining,
            ..
        } => Middle {
            direction,
            xid,
            credits,
            remaining,
        }
        .encode(&mut buf),
        Body::Inline(Direction::Call) | Body::External(Direction::Call) => {
            let offer = header;
            let (call_list, read_list) = (offer.call_list(), offer.read_list());
            let (write_list, reply_chunk) = (offer.write_list(), offer.reply_chunk());
            let call: Vec<Segment> = call_list.iter().map(|entry| entry.segment).collect();
            let read: Vec<ReadSegment> = read_list.iter().collect();
            let write: Vec<Vec<Segment>> = write_list.iter().map(|c| c.iter().collect()).collect();
            let write: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
            let reply: Option<Vec<Segment>> = reply_chunk.map(|c| c.iter().collect());
            super::chunk_lists::check_totals(&read_list, &write_list, reply_chunk.as_ref());
            super::chunk_lists::check_totals(&call_list, &write_list, None);
            assert!(offer.read_chunks() <= read.len());
            assert!(read.is_sorted_by_key(|entry| entry.position));
            assert!(read.iter().all(|entry| entry.position != 0));

            // A handle of the header or none.
            let known = offer.segments().any(|s| s.handle == offer.lists.inv_handle);
            assert_eq!(
                offer.invalidate().is_some(),
                known && offer.lists.inv_handle != 0
            );
            let common = CallInline {
                xid,
                credits,
                inv_handle: offer.lists.inv_handle,
                read: &read,
                write: &write,
                reply: reply.as_deref(),
            };
            let external = CallExternal {
                common,
                call: &call,
            };
            let outcome = match header.body {
                Body::Inline(_) => common.encode(&mut buf),
                _ => external.encode(&mut buf),
            };
            if offer.lists.inv_handle != 0 && !known {
                assert_eq!(outcome, Err(Fault::UnknownHandle(offer.lists.inv_handle)));
                return;
            }
            outcome
        }
        Body::External(Direction::Reply) => {
            let reply = header.reply_chunk().unwrap();
            let write: Vec<Vec<Segment>> = header
                .write_list()
                .iter()
                .map(|c| c.iter().collect())
                .collect();
            let write: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
            let reply: Vec<Segment> = reply.iter().collect();
            ReplyExternal {
                xid,
                credits,
                write: &write,
                reply: &reply,
            }
            .encode(&mut buf)
        }
        Body::Inline(Direction::Reply) => {
            let write: Vec<Vec<Segment>> = header
                .write_list()
                .iter()
                .map(|c| c.iter().collect())
                .collect();
            let write: Vec<&[Segment]> = write.iter().map(Vec::as_slice).collect();
            ReplyInline {
                xid,
                credits,
                write: &write,
            }
            .encode(&mut buf)
        }
    };
    assert_eq!(len, Ok(head.len()));
    assert_eq!(buf[..head.len()], *head);
}

/// Sets of transport properties.
pub fn properties(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok(told) = Advertised::get(&mut reader) else {
        return;
    };
    let mut buf = vec![0; bytes.len() + 64];
    let mut writer = crate::proto::xdr::Writer::new(&mut buf);
    told.put(&mut writer)
        .expect("what was decoded can be encoded");
    let len = writer.len();
    assert_eq!(Advertised::get(&mut Reader::new(&buf[..len])), Ok(told));

    let mut peer = Properties::DEFAULT;
    peer.apply(&told);
    let again = peer;
    peer.apply(&told);
    assert_eq!(peer, again);
    if told.is_nothing() {
        assert_eq!(peer, Properties::DEFAULT);
    }
    assert!(ReverseLevel::from_code(peer.reverse) <= ReverseLevel::General);

    // Both ends come to the same conclusion.
    let own = Properties::DEFAULT;
    let (here, there) = (AgreedTerms::new(&own, &peer), AgreedTerms::new(&peer, &own));
    assert_eq!(here.send_size, there.receive_size);
    assert_eq!(here.receive_size, there.send_size);
    assert!(here.send_size <= peer.receive_size && here.receive_size <= peer.send_size);
}

/// Splitting and assembly: the bytes are sizes, and then what is wrong with the parts.
pub fn continuation(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok([a, b, c, d]) = reader.array::<4>() else {
        return;
    };
    let total = u32::from_be_bytes([0, 0, *a, *b]);
    let threshold = 16 + u32::from(*c) * 16;
    let header_len = usize::from(*d);
    let damage = reader.rest();

    let Ok(split) = Split::new(total, header_len, threshold) else {
        assert!(total < 4 || threshold < 28 || threshold < u32::from(*d) + 8);
        return;
    };
    let parts: Vec<_> = split.parts().collect();
    assert_eq!(parts.len(), split.len() as usize);
    let mut offset = 0;
    let mut assembly: Option<Assembly> = None;
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        assert_eq!(part.is_last(), is_last);
        assert_eq!(part.offset, offset);
        let header = if is_last { header_len } else { v2::MIDDLE_LEN };
        assert!(part.len >= 4 && part.len as usize + header <= threshold as usize);
        offset += part.len;
        assert_eq!(offset + part.remaining, total);

        // Anything else than the part that comes next is noticed, and leaves no trace.
        let wrong = u32::from(damage.get(index).copied().unwrap_or(0));
        if let (Some(assembly), 1..) = (assembly, wrong) {
            let mut other = assembly;
            let len = part.len as usize;
            assert_eq!(other.middle(len, part.remaining + wrong), None);
            // The parts may count themselves, as far as is known: then the first one is the size.
            let own = part.remaining.checked_sub(parts[0].len);
            let completes = part.remaining == wrong || own == Some(wrong);
            let last = other.last(len + wrong as usize, [0; 2]);
            assert!(completes || last.is_none());
            assert!(part.remaining != wrong || last.is_some());
            assert_eq!(other, assembly);
        }

        let len = part.len as usize;
        assembly = match (assembly, is_last) {
            (None, true) => None,
            (None, false) => {
                let xid = total;
                let begin = |max| Assembly::begin(Direction::Call, xid, len, part.remaining, max);
                assert_eq!(begin(part.remaining - 1), None);
                let assembly = begin(total).expect("it is short enough");
                Some(assembly)
            }
            (Some(mut assembly), false) => {
                let placed = assembly.middle(len, part.remaining).expect("it is next");
                assert_eq!((placed.offset, placed.total), (part.offset, total));
                Some(assembly)
            }
            (Some(assembly), true) => {
                let placed = assembly.last(len, [0; 2]).expect("it is the last");
                assert_eq!((placed.offset, placed.total), (part.offset, total));
                None
            }
        };
    }
    assert!(assembly.is_none());
    assert_eq!(offset, total);
}

/// One end, whatever its owner does and whatever its peer sends.
struct Lonely {
    /// The session.
    session: Session,
    /// Whether it has said that the connection is to be ended.
    closed: bool,
    /// The credit value that it has told last.
    told: Option<u32>,
    /// How many messages it has sent.
    sent: u32,
    /// How many messages of its own have not completed.
    in_transit: u32,
    /// Whether its peer has told its last properties.
    has_final: bool,
}

impl Lonely {
    /// Checks a credit value that is told to the peer.
    fn tell(&mut self, credits: u32) {
        let (outgoing, incoming) = self.session.windows();
        let told = self.told.replace(credits).unwrap_or(credits);
        assert!(
            credits.wrapping_sub(told) < 0x8000_0000,
            "a limit goes back"
        );
        let ahead = credits.wrapping_sub(incoming.received());
        assert!(ahead < 0x7fff_ffff || ahead == u32::MAX, "a limit too far");
        assert_eq!(outgoing.sent(), self.sent);
    }

    /// Posts a message that the session wants to be sent. Before, it has changed nothing.
    fn check_commit(&mut self, control: &Control) {
        let again = self.session.poll_action();
        assert_eq!(again, Some(Action::Send(*control)));
        assert_eq!(self.session.windows().0.sent(), self.sent);
        self.session.commit(control);
    }

    /// Does everything that the session wants.
    fn act(&mut self) {
        for round in 0.. {
            assert!(round < 64, "a session that does not come to an end");
            let before = *self.session.windows().0;
            let Some(action) = self.session.poll_action() else {
                return;
            };
            assert!(!self.closed, "nothing comes behind the end");
            match action {
                Action::Send(control) => {
                    self.check_commit(&control);
                    // OPTIONAL messages take no credit.
                    if !matches!(control, Control::Optional(_)) {
                        self.sent = self.sent.wrapping_add(1);
                    }
                    self.in_transit += 1;
                    self.check_control(&control, &before);
                }
                Action::Connected(dialect) => assert_eq!(self.session.dialect(), Some(dialect)),
                Action::Agreed(terms) => assert_eq!(self.session.terms(), terms),
                Action::Wake => assert!(self.session.credits() > 0),
                Action::Close(_) => self.closed = true,
            }
        }
    }

    /// Checks a message that the session wants to be sent.
    fn check_control(&mut self, control: &Control, before: &crate::proto::window::SendWindow) {
        let mut buf = [0; 96];
        let len = control.encode(&mut buf).expect("it fits");
        let credits = match control {
            Control::Optional(message) => {
                assert!(message.credits > 0);
                return;
            }
            Control::Grant(message) => {
                assert!(before.admits_grant());
                message.credits
            }
            Control::Properties(message) => {
                // One that tells nothing takes the place of a GRANT.
                let is_grant = message.told.is_nothing() && !message.last;
                assert!(before.available() > 0 || is_grant && before.admits_grant());
                message.credits
            }
            // Those in or about other versions do not depend on credits.
            Control::Error(message)
                if self.session.dialect() != Some(Version::Two)
                    || message.version != v2::VERSION =>
            {
                return;
            }
            Control::Error(message) => {
                assert!(before.available() > 0);
                message.credits
            }
        };
        let header =
            decode(Version::Two, &buf[..len], &Limits::DEFAULT).expect("what we send is valid");
        assert_eq!(header.credits, credits);
        self.tell(credits);
    }
}

/// A session: each byte is something that its owner or its peer does.
pub fn session(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok([flags, receives]) = reader.array::<2>() else {
        return;
    };
    let role = match flags & 1 {
        0 => Role::Client,
        _ => Role::Server,
    };
    let start = [0, 0x7fff_fffe, u32::MAX - 1, 77][usize::from((flags >> 1) & 3)];
    let config = Config {
        role,
        low: 1,
        high: 2,
        earlier: (flags & 8 != 0).then_some(v2_2016::props::DEFAULT),
        own: Properties {
            reverse: u32::from((flags >> 4) & 3),
            ..Properties::DEFAULT
        },
        authenticate: flags & 0x40 != 0,
        receives: u32::from(*receives),
        credits_in_one: 1,
        limits: Limits {
            read_segments: 4,
            write_chunks: 3,
            chunk_segments: 3,
        },
        read_chunks: 2,
        write_chunks: 2,
        max_assembly: 256,
    };
    let mut end = Lonely {
        session: Session::after(&config, start),
        closed: false,
        told: None,
        sent: start,
        in_transit: 0,
        has_final: false,
    };

    while let Ok([what, amount]) = reader.array::<2>() {
        let amount = *amount;
        match what % 16 {
            0..=8 => {
                // A message that looks more like one than random bytes: its first words are made.
                let len = usize::from(amount).min(reader.rest().len());
                let rest = reader.bytes(len).unwrap_or_default();
                let credits = end.sent.wrapping_add(u32::from(what >> 5));
                let version = if what & 0x1f == 0x1f { 1 } else { 2_u32 };
                let htype = u32::from(rest.first().copied().unwrap_or(5)) % 16;
                let mut message: Vec<u8> = vec![];
                for word in [0, version, credits, htype] {
                    message.extend(word.to_be_bytes());
                }
                // The rest is made of small words, so that many of them mean something.
                for byte in rest.iter().skip(1) {
                    message.extend(u32::from(*byte >> (byte & 7)).to_be_bytes());
                }
                message.truncate(message.len() - usize::from((what >> 4) & 1 & amount));
                received(&mut end, &message);
            }
            9 => received(&mut end, reader.rest()),
            10 => {
                let outbound = Outbound {
                    direction: match amount & 1 {
                        0 => Direction::Call,
                        _ => Direction::Reply,
                    },
                    parts: u32::from(amount >> 2),
                    chunks: amount & 2 != 0,
                };
                let before = end.session.credits();
                match end.session.prepare_send(&outbound) {
                    Ok(credits) => {
                        let parts = outbound.parts.max(1);
                        end.session.commit_send(parts);
                        assert!(parts <= before, "more than there are credits");
                        end.sent = end.sent.wrapping_add(parts);
                        end.tell(credits);
                    }
                    Err(Refusal::TooLong) => {
                        assert!(outbound.parts > end.session.max_parts());
                    }
                    Err(_) => {}
                }
            }
            11 => {
                let told = Advertised {
                    host_auth: Some(b"material"),
                    ..Advertised::NOTHING
                };
                let last = amount & 1 != 0;
                if let Some(message) = end.session.prepare_properties(told, last) {
                    end.session.commit_properties(last);
                    end.sent = end.sent.wrapping_add(1);
                    end.in_transit += 1;
                    end.tell(message.credits);
                }
            }
            12 => end.session.set_receives(Some(u32::from(amount))),
            13 if end.in_transit > 0 => {
                end.in_transit -= 1;
                end.session.handle_sent();
            }
            14 => match amount % 8 {
                0 => end.session.handle_timeout(Timer::FirstMessage),
                1 => end.session.handle_timeout(Timer::Sequence),
                3 => drop(end.session.report(1, RdmaError::System)),
                4 if amount > 128 => end.session.close(),
                5 => end.session.handle_timeout(Timer::Credits),
                _ => {}
            },
            _ => end.act(),
        }
        if end.closed {
            assert_eq!(end.session.handle_received(reader.rest()), Event::Nothing);
            assert_eq!(end.session.poll_action(), None);
        }
    }
    // Whatever has happened, the end can be brought about.
    end.session.close();
    for _ in 0..end.in_transit + 64 {
        end.act();
        if end.in_transit > 0 {
            end.in_transit -= 1;
            end.session.handle_sent();
        }
    }
    assert!(end.closed);
}

/// Hands a message to a session, and checks what it makes of it.
fn received(end: &mut Lonely, bytes: &[u8]) {
    // What is answered with an error, or ends the connection, is discarded as well: nothing but the
    // next part is handed on within a sequence, nothing that cannot be decoded, and no Call or
    // Reply with another transaction ID than the RPC message in it.
    let is_in_sequence = end.session.is_peer_in_sequence();
    let event = end.session.handle_received(bytes);
    if let Event::Properties { last, .. } = event {
        assert!(!end.has_final, "properties behind the final ones");
        end.has_final = last;
    }
    if let Event::Message { header, extent } = event {
        assert_eq!(decode(Version::Two, bytes, &Limits::DEFAULT), Ok(header));
        let is_later = matches!(
            extent,
            crate::proto::session::Extent::Part(_) | crate::proto::session::Extent::Last(_)
        );
        assert_eq!(is_in_sequence, is_later, "between two parts");
        if !is_later && !header.payload.is_empty() {
            assert!(header.payload.starts_with(&header.xid.to_be_bytes()));
        }
        assert!(header.direction().is_some() && header.error().is_none());
        match extent {
            crate::proto::session::Extent::Whole => {}
            crate::proto::session::Extent::First(placed)
            | crate::proto::session::Extent::Part(placed)
            | crate::proto::session::Extent::Last(placed) => {
                // It has its place in what there is room for.
                let len = header.payload.len() as u32;
                assert!(placed.offset + len <= placed.total && placed.total <= 256);
            }
        }
    }
    // There is a Receive for whatever may come.
    assert!(end.session.windows().1.must_be_posted() >= 1);
}
