// SPDX-License-Identifier: GPL-2.0

//! The reading of a received message, and the rules for when it may come.

use super::{
    super::{
        continuation::Assembly,
        message::{
            check_rpc,
            decode,
            direction_of,
            Body,
            Header,
            Short,
            Version, //
        },
        props::ReverseLevel,
        v2::{
            self,
            Direction,
            Prefix,
            RdmaError,
            VERSION, //
        },
        v2_2016::{
            option::{
                self,
                Content,
                Invalid,
                Operation, //
            },
            procedure, //
        },
        window::Kind,
        xdr::Reader, //
    },
    answer::{
        self,
        Rejection, //
    },
    exchange::TooMany,
    Event,
    Extent,
    Reason,
    Role,
    Session,
    Stage,
    Telling, //
};

impl Session {
    /// Handles a received message.
    pub(crate) fn handle_received<'a>(&mut self, bytes: &'a [u8]) -> Event<'a> {
        let prefix = Prefix::get(&mut Reader::new(bytes)).ok();
        if self.closing.is_some() {
            // They take Receives all the same, which may be others'.
            self.hurried |= !self.may_come_late(prefix.as_ref());
            return Event::Nothing;
        }
        let event = self.handle_message(prefix, bytes);
        match (self.closing, prefix) {
            (Some(Reason::BadReply), Some(Prefix { xid, .. })) => Event::Spoilt { xid },
            _ => event,
        }
    }

    /// Handles a message without chunks, if it is a whole RPC message and nothing else is going on:
    /// all has been told, and nothing is coming in parts. Returns whether it was handled; then
    /// [`Self::handle_received`] would have returned it as [`Extent::Whole`]. Else nothing has
    /// changed.
    #[inline]
    pub(crate) fn handle_plain(&mut self, plain: &Short, bytes: &[u8]) -> bool {
        let is_steady = self.stage == Stage::Speaking(Version::Two)
            && self.peer == Telling::Done
            && self.closing.is_none()
            && self.assembly.is_none()
            && self.discard.is_none();
        // What Calls a client takes depends.
        let is_taken = self.config.role == Role::Server || plain.is_reply;
        let may_come = is_steady && is_taken && plain.is_whole(bytes);
        if !may_come || self.incoming.receive(Kind::Other).is_err() {
            return false;
        }
        self.note_credits(plain.credits);
        true
    }

    /// Returns whether RPC messages of the earlier protocol, with which nothing is wrong, mean
    /// nothing to this end but that the peer is there: [`Self::handle_received`] would return each
    /// as [`Event::Foreign`]. The first one since this end has told its properties may prove that
    /// the peer has heard them.
    #[inline]
    pub(crate) fn is_steady_in_earlier(&self) -> bool {
        self.stage == Stage::Speaking(Version::Earlier)
            && self.closing.is_none()
            && self.exchange.has_heard()
    }

    /// Notes the credits of a message, which the peer has given away and will not give again.
    #[inline]
    fn note_credits(&mut self, credits: u32) {
        let before = self.outgoing.available();
        self.outgoing.update(credits);
        self.renewed = self.outgoing.available();
        self.news |= self.renewed > before;
    }

    /// Handles a received message while the connection is not about to end.
    fn handle_message<'a>(&mut self, prefix: Option<Prefix>, bytes: &'a [u8]) -> Event<'a> {
        match (self.stage, prefix) {
            (Stage::Closed, _) => Event::Nothing,
            (Stage::Speaking(Version::One), prefix) => self.handle_one(prefix.as_ref()),
            // Its transaction ID cannot be trusted.
            (Stage::Speaking(Version::Earlier), None) => Event::Nothing,
            (Stage::Speaking(Version::Earlier), Some(prefix)) => {
                self.handle_earlier(&prefix, bytes)
            }
            // Section 7: its transaction ID cannot be trusted, and it has no credits.
            (_, None) => self.discard_uncounted(),
            (Stage::Opening | Stage::Offered, Some(prefix)) => match self.config.role {
                Role::Client => self.handle_answer(&prefix, bytes),
                Role::Server => self.handle_first_call(&prefix, bytes),
            },
            (Stage::Speaking(Version::Two), Some(prefix)) if prefix.version != VERSION => {
                self.handle_version(&prefix, true)
            }
            (Stage::Speaking(Version::Two), Some(_)) => self.handle_two(bytes),
        }
    }

    /// Counts a message the credits of which are of no use.
    pub(super) fn discard_uncounted(&mut self) -> Event<'static> {
        if self.incoming.receive(Kind::Other).is_err() {
            self.close_for(Reason::Overrun);
        }
        Event::Nothing
    }

    /// Counts a message that has come while the connection is about to end. Returns whether its
    /// sender keeps to the rules: those of other versions know nothing of the window of Version
    /// Two.
    fn may_come_late(&mut self, prefix: Option<&Prefix>) -> bool {
        let is_two = match self.stage {
            Stage::Speaking(dialect) => dialect == Version::Two,
            Stage::Opening | Stage::Offered => prefix.is_none_or(|p| p.version == VERSION),
            Stage::Closed => true,
        };
        if is_two {
            self.incoming.receive(Kind::Other).is_ok()
        } else {
            !self.is_flooded()
        }
    }

    /// Handles a message on a connection that speaks the earlier protocol. RPC messages, and errors
    /// about them, are none of the session's.
    pub(super) fn handle_earlier<'a>(&mut self, prefix: &Prefix, bytes: &'a [u8]) -> Event<'a> {
        if prefix.version != VERSION {
            return self.handle_version_in_earlier(prefix);
        }
        match prefix.procedure {
            procedure::OPTIONAL if bytes.len() < option::MIN_LEN => Event::Nothing,
            procedure::OPTIONAL => self.handle_optional(prefix.xid, bytes),
            procedure::ERROR if option::is_invalid_option(bytes) => {
                self.exchange.refused(prefix.xid);
                Event::Nothing
            }
            _ => Event::Foreign(Version::Earlier),
        }
    }

    /// Handles an OPTIONAL message.
    fn handle_optional(&mut self, xid: u32, bytes: &[u8]) -> Event<'static> {
        let (handled, event) = match option::decode(bytes) {
            Ok(message) => {
                let is_reply = message.direction == Direction::Reply;
                let event = match message.operation {
                    // Perhaps a Call of ours waits for it.
                    Operation::Unknown { has_payload: true } if is_reply => {
                        Event::Unreadable { xid }
                    }
                    operation => Event::Optional {
                        xid,
                        name: operation.name(),
                        credits: is_reply.then_some(message.credits),
                    },
                };
                (self.exchange.receive(&message), event)
            }
            Err(Invalid::Answer) => {
                self.exchange.spoilt(xid);
                return Event::Nothing;
            }
            Err(Invalid::Reported) => {
                let answered = self.exchange.answer(xid, Content::BadHeader);
                (answered.map(|()| false), Event::Nothing)
            }
        };
        match handled {
            Ok(is_first) => self.tell_agreed |= is_first,
            // What is not answered might be waited for.
            Err(TooMany) => self.close_for(Reason::TooManyErrors),
        }
        event
    }

    /// Handles a message of Version Two.
    pub(super) fn handle_two<'a>(&mut self, bytes: &'a [u8]) -> Event<'a> {
        let decoded = decode(Version::Two, bytes, &self.config.limits);
        let (kind, credits) = match &decoded {
            Ok(header) => (kind(header), Some(header.credits)),
            Err(error) => (Kind::Other, error.prefix.map(|prefix| prefix.credits)),
        };
        if self.incoming.receive(kind).is_err() {
            self.close_for(Reason::Overrun);
            return Event::Nothing;
        }
        // The credits of every message count, whatever else is wrong with it (4.2.1).
        if let Some(credits) = credits {
            self.note_credits(credits);
        }
        match decoded {
            Ok(header) => self.handle_header(header),
            Err(error) => {
                let (xid, htype) = error
                    .prefix
                    .map_or((0, 0), |prefix| (prefix.xid, prefix.procedure));
                if htype == v2::htype::CONNPROP_FINAL && self.peer == Telling::Begun {
                    // Nothing in it is applied (7.2.2), but it was the last one: Calls may come
                    // now.
                    self.peer = Telling::Nothing;
                }
                self.answer(answer::to_fault(error.fault, htype, &self.config), xid);
                self.abandon_after(xid, htype)
            }
        }
    }

    /// Does what the table says about a message that is discarded.
    fn answer(&mut self, answer: Rejection, xid: u32) {
        match answer {
            Rejection::Silence => {}
            Rejection::Error(error) => self.refuse(xid, error),
            Rejection::Close(reason) => self.close_for(reason),
        }
    }

    /// Gives up what has come of a Call if the message that is wrong would have been a part of it,
    /// and discards the parts to come.
    fn abandon_after(&mut self, xid: u32, htype: u32) -> Event<'static> {
        let more = htype == v2::htype::CALL_MIDDLE;
        if direction_of(htype) != Some(Direction::Call) {
            return Event::Nothing;
        }
        if self.assembly.is_some_and(|a| a.is_of(Direction::Call, xid)) {
            return self.abandon(more);
        }
        if more {
            self.discard = Some((Direction::Call, xid));
        } else if self.discard == Some((Direction::Call, xid)) {
            // It was the last part of what was found wrong before: what comes next is something
            // new.
            self.discard = None;
        }
        Event::Nothing
    }

    /// Gives up the RPC message that is coming in parts, of which there may be more.
    fn abandon(&mut self, more: bool) -> Event<'static> {
        let Some(assembly) = self.assembly.take() else {
            return Event::Nothing;
        };
        let (direction, xid) = (assembly.direction(), assembly.xid());
        if more {
            self.discard = Some((direction, xid));
        }
        Event::Abandoned { direction, xid }
    }

    /// Handles a message of Version Two that has no error of its own.
    fn handle_header<'a>(&mut self, header: Header<'a>) -> Event<'a> {
        if let Some((direction, is_last)) = part(&header) {
            if self.discard == Some((direction, header.xid)) {
                // Section 7.1.4: the rest of what was found wrong before.
                if is_last {
                    self.discard = None;
                }
                return Event::Nothing;
            }
        }
        if !self.may_come(&header) {
            return self.out_of_sequence(&header);
        }
        if self.assembly.is_none() {
            self.discard = None;
        }
        match header.body {
            Body::Grant => Event::Nothing,
            Body::Error(error) => {
                self.obey(error);
                Event::Failed {
                    xid: header.xid,
                    error,
                }
            }
            Body::Properties { told, last } => {
                self.peer_properties.apply(&told);
                self.peer_told = self.peer_told.wrapping_add(1);
                self.peer = if last { Telling::Done } else { Telling::Begun };
                self.tell_agreed |= last;
                Event::Properties {
                    host_auth: told.host_auth,
                    last,
                }
            }
            Body::Inline(direction)
            | Body::External(direction)
            | Body::Middle { direction, .. } => self.handle_rpc(header, direction),
        }
    }

    /// Sees to it that what the peer does not understand is not sent again (7.1.1 to 7.1.3).
    fn obey(&mut self, error: RdmaError) {
        match (error, self.config.role) {
            // Only Calls in the reverse direction can be meant.
            (RdmaError::HeaderType, Role::Server) => {
                self.peer_properties.reverse = ReverseLevel::NONE;
            }
            _ if error.ends_connection() => self.close_for(Reason::Refused),
            _ => {}
        }
    }

    /// Returns whether a message may come after those before it.
    fn may_come(&self, header: &Header<'_>) -> bool {
        let is_property = matches!(header.body, Body::Properties { .. });
        match self.peer {
            // Section 6.3.3: only another CONNPROP.
            Telling::Begun if !is_property => return false,
            // Section 6.3.4: no other CONNPROP.
            Telling::Done if is_property => return false,
            Telling::Nothing | Telling::Begun | Telling::Done => {}
        }
        // Sections 6.3.6 and 6.3.9: only a further part, and of the same RPC message (4.1).
        match (&self.assembly, part(header)) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(assembly), Some((direction, _))) => assembly.is_of(direction, header.xid),
        }
    }

    /// Discards a message that must not come now.
    fn out_of_sequence(&mut self, header: &Header<'_>) -> Event<'static> {
        self.answer(answer::to_sequence(header.direction()), header.xid);
        if let Some((direction, false)) = part(header) {
            self.discard = Some((direction, header.xid));
        }
        Event::Nothing
    }

    /// Handles a Call, a Reply, or a part of one.
    fn handle_rpc<'a>(&mut self, header: Header<'a>, direction: Direction) -> Event<'a> {
        let is_middle = matches!(header.body, Body::Middle { .. });
        if direction == Direction::Call {
            if let Some(error) = self.refuse_call(&header) {
                self.refuse(header.xid, error);
                return self.abandon_or_discard(&header, is_middle);
            }
        }

        let payload = header.payload;
        let is_whole = self.assembly.is_none() && !is_middle;
        if self.assembly.is_none() && !header.is_external() {
            let matches = check_rpc(payload, header.xid, direction).is_ok();
            // Two words are the least that an RPC message can be.
            if !matches || (is_whole && payload.len() < 8) {
                self.answer(answer::to_mismatch(direction), header.xid);
                return self.abandon_or_discard(&header, is_middle);
            }
        }
        if is_whole {
            return Event::Message {
                header,
                extent: Extent::Whole,
            };
        }
        match self.place(&header, direction) {
            Some(extent) => Event::Message { header, extent },
            None => {
                self.answer(answer::to_sequence(Some(direction)), header.xid);
                self.abandon_or_discard(&header, is_middle)
            }
        }
    }

    /// Returns the error that answers a Call which is refused.
    fn refuse_call(&self, header: &Header<'_>) -> Option<RdmaError> {
        if self.config.role == Role::Client {
            if let Some(error) = answer::to_reverse(header, self.reverse()) {
                return Some(error);
            }
        }
        if !header.is_call() {
            return None;
        }
        answer::to_offer(header, &self.config)
    }

    /// Finds out where a part belongs.
    fn place(&mut self, header: &Header<'_>, direction: Direction) -> Option<Extent> {
        let len = header.payload.len();
        let remaining = match header.body {
            Body::Middle { remaining, .. } => Some(remaining),
            _ => None,
        };
        match (self.assembly.as_mut(), remaining) {
            (None, Some(remaining)) => {
                let max = self.config.max_assembly;
                let assembly = Assembly::begin(direction, header.xid, len, remaining, max)?;
                self.assembly = Some(assembly);
                Some(Extent::First(assembly.first()))
            }
            (Some(assembly), Some(remaining)) => assembly.middle(len, remaining).map(Extent::Part),
            (Some(assembly), None) => {
                let placed = assembly.last(len, moved(header))?;
                self.assembly = None;
                Some(Extent::Last(placed))
            }
            (None, None) => Some(Extent::Whole),
        }
    }

    /// Gives up an RPC message because of one of its parts, or discards the parts to come if this
    /// was the first one.
    fn abandon_or_discard(&mut self, header: &Header<'_>, more: bool) -> Event<'static> {
        if self.assembly.is_some() {
            return self.abandon(more);
        }
        if let Some((direction, false)) = part(header) {
            self.discard = Some((direction, header.xid));
        }
        Event::Nothing
    }
}

/// The length of a CONNPROP message of nothing: the prefix, and a count.
const EMPTY_PROPERTIES_LEN: usize = 20;

/// Returns what a message is to flow control. A CONNPROP message of nothing takes the place of a
/// GRANT where only CONNPROP messages may be sent.
fn kind(header: &Header<'_>) -> Kind {
    match header.body {
        Body::Grant => Kind::Grant,
        // One with properties that are not known is longer.
        Body::Properties { told, last: false }
            if told.is_nothing() && header.header_len == EMPTY_PROPERTIES_LEN =>
        {
            Kind::Grant
        }
        _ => Kind::Other,
    }
}

/// Returns of a message that can be a part of an RPC message its direction, and whether it is the
/// last part.
fn part(header: &Header<'_>) -> Option<(Direction, bool)> {
    match header.body {
        Body::Middle { direction, .. } => Some((direction, false)),
        Body::Inline(direction) => Some((direction, true)),
        _ => None,
    }
}

/// Returns the octets of the data items that the chunks of a last part move, without and with XDR
/// padding.
fn moved(header: &Header<'_>) -> [u32; 2] {
    let Body::Inline(direction) = header.body else {
        return [0; 2];
    };
    let (mut data, mut padded, mut item, mut position) = (0_u32, 0_u32, 0_u32, 0);
    let mut add = |item: u32| {
        data = data.saturating_add(item);
        padded = padded.saturating_add(item.checked_next_multiple_of(4).unwrap_or(u32::MAX));
    };
    for entry in header.read_list().iter() {
        // The segments of one item are adjacent and have its position.
        if entry.position != position {
            add(core::mem::replace(&mut item, 0));
            position = entry.position;
        }
        item = item.saturating_add(entry.segment.length);
    }
    add(item);
    // In a Call they are for the Reply.
    if direction == Direction::Reply {
        header
            .write_list()
            .iter()
            .for_each(|chunk| add(chunk.total()));
    }
    [data, padded]
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_receive)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::{
        super::{
            super::{
                continuation::Placed,
                error::{
                    Fault,
                    Result, //
                },
                testing::Bytes, //
            },
            testing::{
                act,
                config,
                message,
                poll,
                receive,
                received,
                settle,
                speaking,
                speaking_with,
                FINAL,
                XID, //
            },
            Action,
            Config,
            Outbound,
            Refusal,
            Timer, //
        },
        *, //
    };

    /// The first part of a Call of 24 octets: 8 of them.
    const FIRST: [u32; 7] = [XID, 2, 100, 9, 16, XID, 0];
    /// The second: another 8.
    const SECOND: [u32; 7] = [XID, 2, 100, 9, 8, 1, 2];
    /// The last.
    const LAST: [u32; 10] = [XID, 2, 100, 10, 0, 0, 0, 0, 3, 4];
    /// A Call in one piece.
    const WHOLE: [u32; 10] = [7, 2, 100, 10, 0, 0, 0, 0, 7, 0];

    /// How much of an RPC message an event is about.
    fn extent(event: &Event<'_>) -> Option<Extent> {
        match event {
            Event::Message { extent, .. } => Some(*extent),
            _ => None,
        }
    }

    /// Returns whether a message left nothing to do.
    fn is_nothing(event: &Event<'_>) -> bool {
        *event == Event::Nothing
    }

    /// Whole RPC messages without chunks are handled in a short way, and in no other state than
    /// that in which the long way does the same.
    #[test]
    fn both_ways_to_handle_a_message_agree() -> Result {
        let messages: [&[u32]; 10] = [
            &WHOLE,
            // With a handle that is none of its.
            &[7, 2, 3, 10, 5, 0, 0, 0, 7, 0],
            // A Reply, without credits.
            &[7, 2, 0, 13, 0, 7, 1, 9],
            // Of another transaction, the wrong way, too short, with a chunk, of Version One.
            &[7, 2, 100, 10, 0, 0, 0, 0, 8, 0],
            &[7, 2, 100, 13, 0, 7, 0],
            &[7, 2, 100, 10, 0, 0, 0, 0, 7],
            &[7, 2, 100, 10, 0, 0, 0, 1, 0, 7, 0],
            &[7, 1, 100, 0, 0, 0, 0, 7, 0],
            &LAST,
            &[XID, 2, 100, 13, 0, XID, 1],
        ];
        // What comes before: nothing, parts, what is wrong, what ends the connection.
        let before: [&[&[u32]]; 5] = [
            &[],
            &[&FIRST],
            &[&FIRST, &SECOND],
            &[&[XID, 2, 100, 9, 7, 9, 9]],
            &[&[XID, 2, 100, 13, 0, XID, 5]],
        ];
        let mut short = [0_u32; 2];
        for (role, short) in [Role::Client, Role::Server].into_iter().zip(&mut short) {
            for before in before {
                let mut session = speaking(role)?;
                for words in before {
                    receive(&mut session, words)?;
                }
                // More than there are credits for.
                for words in messages.into_iter().chain(messages) {
                    let bytes = Bytes::from_words(words)?;
                    let mut quick = session.clone();
                    let plain = Short::decode(Version::Two, bytes.get());
                    let handled = plain.filter(|plain| quick.handle_plain(plain, bytes.get()));
                    if handled.is_none() {
                        assert!(quick == session);
                    }
                    let event = session.handle_received(bytes.get());
                    if let Some(plain) = handled {
                        assert!(quick == session);
                        let Event::Message { header, extent } = event else {
                            return Err(Fault::NoPayload);
                        };
                        assert_eq!(extent, Extent::Whole);
                        let found = (header.xid, header.header_len);
                        assert_eq!(found, (plain.xid, plain.header_len));
                        assert_eq!(header.payload, plain.payload(bytes.get()));
                        *short = short.saturating_add(1);
                    }
                }
            }
        }
        // A client looks at each Call.
        let [client, server] = short;
        assert!(client > 0 && server > client);
        Ok(())
    }

    /// Section 6.6.2: parts are put together in received order.
    #[test]
    fn parts_are_placed() -> Result {
        for role in [Role::Client, Role::Server] {
            let mut session = speaking(role)?;
            for _ in 0..2 {
                let placed = |offset| Placed { offset, total: 24 };
                for (words, expected) in [
                    (&FIRST[..], Extent::First(placed(0))),
                    (&SECOND, Extent::Part(placed(8))),
                    (&LAST, Extent::Last(placed(16))),
                ] {
                    let got = received(&mut session, words, extent)?;
                    assert_eq!(got, Some(expected));
                    settle(&mut session);
                }
                assert!(!session.is_peer_in_sequence());
                let got = received(&mut session, &WHOLE, extent)?;
                assert_eq!(got, Some(Extent::Whole));
                settle(&mut session);
            }
        }
        Ok(())
    }

    /// Section 3.1.5.4: the same transaction ID in both directions at once.
    #[test]
    fn directions_are_told_apart_by_header_type() -> Result {
        let mut session = speaking(Role::Server)?;
        let direction = |event: &Event<'_>| match event {
            Event::Message { header, .. } => header.direction(),
            _ => None,
        };
        let call = [XID, 2, 100, 10, 0, 0, 0, 0, XID, 0];
        let reply = [XID, 2, 100, 13, 0, XID, 1];
        let got = received(&mut session, &call, direction)?;
        assert_eq!(got, Some(Direction::Call));
        let got = received(&mut session, &reply, direction)?;
        assert_eq!(got, Some(Direction::Reply));
        Ok(())
    }

    /// Section 7.1.4: a part that does not fit, and all that come after it.
    #[test]
    fn lies_about_the_rest_are_answered() -> Result {
        for bad in [
            &[XID, 2, 100, 9, 7, 1, 2][..],
            &[XID, 2, 100, 9, 9, 1, 2],
            &[XID, 2, 100, 9, 0, 1, 2],
            &[XID, 2, 100, 9, u32::MAX, 1, 2],
        ] {
            let mut session = speaking(Role::Server)?;
            receive(&mut session, &FIRST)?;
            let gone = Event::Abandoned {
                direction: Direction::Call,
                xid: XID,
            };
            assert!(received(&mut session, bad, |event| *event == gone)?);
            assert!(message(&mut session)?.is_words(&[XID, 2, 11, 4, 5]));
            // The rest is discarded without an answer.
            assert!(received(&mut session, &SECOND, is_nothing)?);
            assert!(received(&mut session, &LAST, is_nothing)?);
            assert_eq!(act(&mut session), None);
            // After its last part the transaction ID is as good as any.
            let got = received(&mut session, &FIRST, extent)?;
            assert!(matches!(got, Some(Extent::First(_))));
        }
        Ok(())
    }

    /// Section 7.1.4: too much or too little in the last part.
    #[test]
    fn the_last_part_completes() -> Result {
        for bad in [
            &[XID, 2, 100, 10, 0, 0, 0, 0, 3][..],
            &[XID, 2, 100, 10, 0, 0, 0, 0, 3, 4, 5],
        ] {
            let mut session = speaking(Role::Server)?;
            receive(&mut session, &FIRST)?;
            receive(&mut session, &SECOND)?;
            assert!(received(&mut session, bad, |event| matches!(
                event,
                Event::Abandoned { .. }
            ))?);
            assert!(message(&mut session)?.is_words(&[XID, 2, 12, 4, 5]));
            assert!(received(&mut session, &WHOLE, extent)?.is_some());
        }
        Ok(())
    }

    /// Section 7.1.4: the sizes of an RPC message in parts are bounded.
    #[test]
    fn long_sequences_are_refused_at_their_beginning() -> Result {
        let mut session = speaking(Role::Server)?;
        let long = [XID, 2, 100, 9, 4097, XID, 0];
        assert!(received(&mut session, &long, is_nothing)?);
        assert!(!session.is_peer_in_sequence());
        assert!(message(&mut session)?.is_words(&[XID, 2, 10, 4, 5]));
        assert!(received(&mut session, &SECOND, is_nothing)?);
        assert_eq!(act(&mut session), None);
        let fits = [8, 2, 100, 9, 4088, 8, 0];
        assert!(received(&mut session, &fits, extent)?.is_some());
        Ok(())
    }

    /// A part that cannot be decoded ends its RPC message; so does one with chunks that are
    /// refused.
    #[test]
    fn a_bad_part_ends_its_message() -> Result {
        for (bad, error, more) in [
            (&[XID, 2, 100, 9, 8][..], &[XID, 2, 11, 4, 2][..], true),
            (&[XID, 2, 100, 10, 9], &[XID, 2, 11, 4, 2], false),
            (
                &[XID, 2, 100, 10, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 3, 4],
                &[XID, 2, 11, 4, 7, 2],
                false,
            ),
        ] {
            let mut session = speaking(Role::Server)?;
            receive(&mut session, &FIRST)?;
            assert!(received(&mut session, bad, |event| matches!(
                event,
                Event::Abandoned { .. }
            ))?);
            assert!(message(&mut session)?.is_words(error));
            if more {
                assert!(received(&mut session, &LAST, is_nothing)?);
            }
            assert!(received(&mut session, &WHOLE, extent)?.is_some());
            assert_eq!(act(&mut session), None);
        }
        Ok(())
    }

    /// The last part of what is discarded cannot be decoded. The Call may come again, in another
    /// form.
    #[test]
    fn a_bad_last_part_ends_what_is_discarded() -> Result {
        let mut session = speaking(Role::Server)?;
        let long = [XID, 2, 100, 9, 4097, XID, 0];
        assert!(received(&mut session, &long, is_nothing)?);
        assert!(message(&mut session)?.is_words(&[XID, 2, 10, 4, 5]));
        assert!(received(&mut session, &[XID, 2, 100, 10, 9], is_nothing)?);
        assert!(message(&mut session)?.is_words(&[XID, 2, 11, 4, 2]));
        let again = [XID, 2, 100, 10, 0, 0, 0, 0, XID, 0];
        let got = received(&mut session, &again, extent)?;
        assert_eq!(got, Some(Extent::Whole));
        Ok(())
    }

    /// A peer that begins a sequence and does not go on.
    #[test]
    fn a_stalled_sequence_ends_the_connection() -> Result {
        let mut session = speaking(Role::Server)?;
        session.handle_timeout(Timer::Sequence);
        assert_eq!(act(&mut session), None);
        receive(&mut session, &FIRST)?;
        assert!(session.is_peer_in_sequence());
        session.handle_timeout(Timer::Sequence);
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Stalled)));
        assert!(received(&mut session, &WHOLE, is_nothing)?);
        Ok(())
    }

    /// Only what belongs to a sequence is progress.
    #[test]
    fn a_sequence_does_not_go_on_by_something_else() -> Result {
        for first in [&FIRST[..], &[0, 2, 100, 6, 0]] {
            let mut session = Session::new(&config(Role::Server));
            receive(&mut session, first)?;
            settle(&mut session);
            let before = session.peer_sequence();
            assert!(before.is_some());
            for other in [&[0, 2, 100, 5][..], &WHOLE, &[0, 2]] {
                receive(&mut session, other)?;
                settle(&mut session);
                assert_eq!(session.peer_sequence(), before);
            }
        }
        // CONNPROP messages do, and so do parts.
        for (first, second) in [
            (&FIRST[..], &SECOND[..]),
            (&[0, 2, 100, 6, 0], &[0, 2, 100, 6, 0]),
        ] {
            let mut session = Session::new(&config(Role::Server));
            receive(&mut session, first)?;
            let before = session.peer_sequence();
            receive(&mut session, second)?;
            assert!(session.is_peer_in_sequence());
            assert_ne!(session.peer_sequence(), before);
        }
        Ok(())
    }

    /// Section 4.2.1: a peer that ignores its credits.
    #[test]
    fn an_overrun_ends_the_connection() -> Result {
        let mut session = speaking(Role::Server)?;
        // The owner does nothing, so nothing is granted. One is in use, one is beyond the limit.
        for _ in 0..9 {
            assert!(received(&mut session, &WHOLE, extent)?.is_some());
        }
        assert!(received(&mut session, &WHOLE, is_nothing)?);
        assert_eq!(act(&mut session), Some(Action::Close(Reason::Overrun)));
        assert_eq!(act(&mut session), None);
        Ok(())
    }

    /// Section 4.2.1: the credits of the latest message count, whatever else it is.
    #[test]
    fn credits_of_bad_messages_count() -> Result {
        for words in [
            &[XID, 2, 50, 14][..],
            &[XID, 2, 50, 10, 7],
            &[XID, 2, 50, 4, 77],
            &[0, 2, 50, 7, 0],
            &[0, 2, 50, 5],
        ] {
            let mut session = speaking(Role::Server)?;
            receive(&mut session, words)?;
            assert_eq!(session.windows().0.limit(), 50);
        }
        // But not those of another version.
        let mut session = speaking(Role::Server)?;
        receive(&mut session, &[XID, 1, 50, 0])?;
        assert_eq!(session.windows().0.limit(), 100);
        Ok(())
    }

    /// Section 6.3.2: the transaction ID of a GRANT is ignored.
    #[test]
    fn grants_need_no_transaction_id() -> Result {
        let mut session = speaking(Role::Client)?;
        for xid in [0, u32::MAX] {
            assert!(received(&mut session, &[xid, 2, 77, 5], is_nothing)?);
            assert_eq!(session.windows().0.limit(), 77);
        }
        assert_eq!(act(&mut session), None);
        Ok(())
    }

    /// Section 7: an error ends or repeats the RPC that it names; some of them end the connection.
    #[test]
    fn errors_reach_their_rpc() -> Result {
        for (words, error, close) in [
            (&[XID, 2, 100, 4, 2][..], RdmaError::BadXdr, false),
            (
                &[XID, 2, 100, 4, 9, 1, 5],
                RdmaError::WriteResource {
                    index: 1,
                    needed: 5,
                },
                false,
            ),
            (&[XID, 2, 100, 4, 100], RdmaError::System, false),
            // Sections 7.1.1 to 7.1.3: what is not understood is not sent again.
            (
                &[XID, 2, 100, 4, 1, 1, 1],
                RdmaError::Version { low: 1, high: 1 },
                true,
            ),
            (&[XID, 2, 100, 4, 4], RdmaError::HeaderType, true),
            (&[XID, 2, 100, 4, 11], RdmaError::VersionMismatch, true),
        ] {
            let mut session = speaking(Role::Client)?;
            let failed = Event::Failed { xid: XID, error };
            assert!(received(&mut session, words, |event| *event == failed)?);
            let expected = close.then_some(Action::Close(Reason::Refused));
            assert_eq!(act(&mut session), expected);
        }
        Ok(())
    }

    /// A Reply that ends the connection names its RPC, which might end every connection to come.
    #[test]
    fn bad_replies_name_their_rpc() -> Result {
        let part = [XID, 2, 100, 12, 16, XID, 1, 1, 2];
        for (before, words) in [
            (&[][..], &[XID, 2, 100, 13, 2][..]),
            (&[], &[XID, 2, 100, 13, 0, 9, 1]),
            (&[], &[XID, 2, 100, 12, 0, XID, 1]),
            (&[], &[XID, 2, 100, 4]),
            (&part, &[XID, 2, 100, 12, 99, 1, 2]),
            (&part, &[XID, 2, 100, 13, 0, 1, 2]),
        ] {
            for role in [Role::Client, Role::Server] {
                let mut session = speaking(role)?;
                if !before.is_empty() {
                    receive(&mut session, before)?;
                }
                let spoilt = Event::Spoilt { xid: XID };
                assert!(received(&mut session, words, |event| *event == spoilt)?);
                assert_eq!(act(&mut session), Some(Action::Close(Reason::BadReply)));
                // Nothing is heard of what comes behind it.
                assert!(received(&mut session, words, is_nothing)?);
            }
        }
        Ok(())
    }

    /// Section 7.1.3 at a server: what the client does not understand is a Call of the server.
    #[test]
    fn refused_reverse_calls_are_not_sent_again() -> Result {
        let mut session = speaking(Role::Server)?;
        let call = Outbound {
            direction: Direction::Call,
            parts: 1,
            chunks: false,
        };
        assert!(session.start_send(&call).is_ok());
        receive(&mut session, &[XID, 2, 100, 4, 4])?;
        assert_eq!(session.start_send(&call), Err(Refusal::Unsupported));
        assert_eq!(session.dialect(), Some(Version::Two));
        Ok(())
    }

    /// Section 5.2.6: material is handed to the owner in order.
    #[test]
    fn host_authentication_reaches_the_owner() -> Result {
        let mut session = Session::new(&Config {
            authenticate: true,
            ..config(Role::Server)
        });
        for (htype, last) in [(6, false), (6, false), (7, true)] {
            let words = [0, 2, 100, htype, 1, 6, 8, 4, 0x6162_6364];
            assert!(received(&mut session, &words, |event| *event
                == Event::Properties {
                    host_auth: Some(b"abcd"),
                    last
                })?);
            assert_eq!(session.is_peer_in_sequence(), !last);
            settle(&mut session);
        }
        Ok(())
    }

    /// Sections 6.3.3 and 7.2.2: of a final message that is malformed nothing is applied, but it
    /// was the final one.
    #[test]
    fn a_malformed_final_message_ends_the_properties() -> Result {
        for bad in [
            &[0, 2, 100, 7, 1, 2, 3, 0][..],
            // Octets behind it.
            &[0, 2, 100, 7, 0, 0],
        ] {
            let mut session = Session::new(&config(Role::Server));
            receive(&mut session, &[0, 2, 100, 6, 0])?;
            settle(&mut session);
            assert!(session.is_peer_in_sequence());
            receive(&mut session, bad)?;
            assert!(!session.is_peer_in_sequence());
            settle(&mut session);
            assert_eq!(received(&mut session, &WHOLE, extent)?, Some(Extent::Whole));
        }
        Ok(())
    }

    /// Sections 4.2.1.1 and 5.1: what is skipped is there all the same, so the message needs a
    /// credit.
    #[test]
    fn unknown_properties_take_a_credit() -> Result {
        for (words, takes_credit) in [
            (&[0, 2, 100, 6, 0][..], false),
            (&[0, 2, 100, 6, 1, 99, 0], true),
            (&[0, 2, 100, 6, 1, 2, 4, 6000], true),
        ] {
            // What one message more than the limit may be a client does not owe at once.
            let mut session = Session::new(&Config {
                receives: 1,
                ..config(Role::Client)
            });
            settle(&mut session);
            receive(&mut session, words)?;
            assert_eq!(session.windows().1.owes_grant(), takes_credit);
        }
        Ok(())
    }

    /// A peer that has broken the rules is not waited for: perhaps it takes no message.
    #[test]
    fn the_end_does_not_wait_for_who_breaks_rules() -> Result {
        let mut session = Session::new(&config(Role::Server));
        receive(&mut session, &FINAL)?;
        // It is posted, and does not complete.
        let mut sent = false;
        while let Some(action) = poll(&mut session) {
            sent |= matches!(action, Action::Send(_));
        }
        assert!(sent);
        for _ in 0..20 {
            receive(&mut session, &WHOLE)?;
        }
        while let Some(action) = poll(&mut session) {
            if let Action::Close(reason) = action {
                assert_eq!(reason, Reason::Overrun);
                return Ok(());
            }
        }
        Err(Fault::NoPayload)
    }

    /// A peer that must be told why has some time for it, and no more messages than it was
    /// promised.
    #[test]
    fn the_end_does_not_wait_for_ever() -> Result {
        for flood in [false, true] {
            let mut session = speaking(Role::Server)?;
            session.close();
            // A message that does not complete.
            session.in_transit = 1;
            assert!(session.is_closing());
            assert_eq!(poll(&mut session), None);
            if flood {
                for _ in 0..20 {
                    receive(&mut session, &WHOLE)?;
                }
            } else {
                session.handle_timeout(Timer::Close);
            }
            let close = Action::Close(Reason::Owner);
            assert_eq!(poll(&mut session), Some(close));
            assert!(!session.is_closing());
        }
        Ok(())
    }

    /// Section 4.2.1 is about Version Two only. A client that is refused it goes on in Version One,
    /// with as many Calls as it was granted, and a client of Version One is refused where only
    /// Version Two is accepted. Both are told so before the connection ends.
    #[test]
    fn the_end_waits_whatever_comes_in_another_version() -> Result {
        const CALL: [u32; 9] = [XID, 1, 9, 0, 0, 0, 0, XID, 0];
        for (low, high, refused, is_known) in [
            (1, 1, &FINAL[..], false),
            (1, 1, &FINAL, true),
            (2, 2, &CALL, false),
        ] {
            for flood in [false, true] {
                let mut session = Session::new(&Config {
                    low,
                    high,
                    ..config(Role::Server)
                });
                receive(&mut session, refused)?;
                assert!(matches!(poll(&mut session), Some(Action::Send(_))));
                if is_known {
                    receive(&mut session, &CALL)?;
                    assert_eq!(act(&mut session), Some(Action::Connected(Version::One)));
                }
                session.close();
                for _ in 0..32 {
                    receive(&mut session, &CALL)?;
                    assert_eq!(poll(&mut session), None);
                }
                match flood {
                    true => receive(&mut session, &CALL)?,
                    false => session.handle_sent(),
                }
                let close = Action::Close(Reason::Owner);
                assert_eq!(poll(&mut session), Some(close));
            }
        }
        Ok(())
    }

    /// Section 5.1: properties of all messages of a sequence, in force behind the last one.
    #[test]
    fn properties_add_up() -> Result {
        let mut session = speaking_with(&config(Role::Client))?;
        assert_eq!(session.terms().send_size, 8192);
        session = Session::new(&config(Role::Client));
        settle(&mut session);
        receive(&mut session, &[0, 2, 100, 6, 1, 2, 4, 6000])?;
        assert_eq!(session.terms().send_size, 4096);
        receive(&mut session, &[0, 2, 100, 7, 1, 1, 4, 5000])?;
        let terms = session.terms();
        assert_eq!((terms.send_size, terms.receive_size), (6000, 5000));
        Ok(())
    }
}
