// SPDX-License-Identifier: GPL-2.0

//! What a received message is, and whether it may come now.

use super::{
    super::{
        continuation::Assembly,
        props::Reverse,
        v2::{
            self,
            Body,
            Direction,
            Header,
            Prefix,
            Purpose,
            RdmaError,
            VERSION, //
        },
        window::Kind,
        xdr::Reader, //
    },
    answer::{
        self,
        Answer, //
    },
    Dialect,
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
        if self.closing.is_some() {
            return Event::Nothing;
        }
        let prefix = Prefix::get(&mut Reader::new(bytes)).ok();
        match (self.stage, prefix) {
            (Stage::Closed, _) => Event::Nothing,
            (Stage::Speaking(Dialect::Earlier), _) => Event::Foreign(Dialect::Earlier),
            (Stage::Speaking(Dialect::One), prefix) => self.handle_one(prefix.as_ref()),
            // Section 7: its transaction ID cannot be trusted, and it has no credits.
            (_, None) => self.discard_uncounted(),
            (Stage::Opening | Stage::Offered, Some(prefix)) => match self.config.role {
                Role::Client => self.handle_answer(&prefix, bytes),
                Role::Server => self.handle_first_call(&prefix, bytes),
            },
            (Stage::Speaking(Dialect::Two), Some(prefix)) if prefix.version != VERSION => {
                self.handle_version(&prefix, true)
            }
            (Stage::Speaking(Dialect::Two), Some(_)) => self.handle_two(bytes),
        }
    }

    /// Counts a message the credits of which are of no use.
    pub(super) fn discard_uncounted(&mut self) -> Event<'static> {
        if self.incoming.receive(Kind::Other).is_err() {
            self.close_for(Reason::Overrun);
        }
        Event::Nothing
    }

    /// Handles a message of Version Two.
    pub(super) fn handle_two<'a>(&mut self, bytes: &'a [u8]) -> Event<'a> {
        let decoded = v2::decode(bytes, &self.config.limits);
        let (kind, credits) = match &decoded {
            Ok(header) => (kind(header), Some(header.credits)),
            Err(error) => (Kind::Other, error.prefix.map(|prefix| prefix.credits)),
        };
        if self.incoming.receive(kind).is_err() {
            self.close_for(Reason::Overrun);
            return Event::Nothing;
        }
        // The credits of every message count, whatever else is wrong with it (4.2.1). The peer has
        // given them away and will not do so again.
        if let Some(credits) = credits {
            self.outgoing.update(credits);
            self.widest = self.widest.max(self.outgoing.available());
        }
        match decoded {
            Ok(header) => self.handle_header(header),
            Err(error) => {
                let (xid, htype) = error
                    .prefix
                    .map_or((0, 0), |prefix| (prefix.xid, prefix.procedure));
                self.answer(answer::to_fault(error.fault, htype, &self.config), xid);
                self.abandon_after(xid, htype)
            }
        }
    }

    /// Does what the table says about a message that is discarded.
    fn answer(&mut self, answer: Answer, xid: u32) {
        match answer {
            Answer::Silence => {}
            Answer::Error(error) => self.report(xid, error),
            Answer::Close(reason) => self.close_for(reason),
        }
    }

    /// Gives up what has come of a Call if the message that is wrong would have been a part of it,
    /// and discards the parts to come.
    fn abandon_after(&mut self, xid: u32, htype: u32) -> Event<'static> {
        let more = htype == v2::htype::CALL_MIDDLE;
        if Purpose::of(htype) != Some(Purpose::Call) {
            return Event::Nothing;
        }
        if self.assembly.is_some_and(|a| a.is_of(Direction::Call, xid)) {
            return self.abandon(more);
        }
        if more {
            self.discard = Some((Direction::Call, xid));
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
                self.peer = match last {
                    true => Telling::Done,
                    false => Telling::Begun,
                };
                self.tell_agreed |= last;
                Event::Properties {
                    host_auth: told.host_auth,
                    last,
                }
            }
            Body::CallExternal(_)
            | Body::CallInline { .. }
            | Body::Middle {
                direction: Direction::Call,
                ..
            } => self.handle_rpc(header, Direction::Call),
            Body::ReplyExternal { .. }
            | Body::ReplyInline { .. }
            | Body::Middle {
                direction: Direction::Reply,
                ..
            } => self.handle_rpc(header, Direction::Reply),
        }
    }

    /// Sees to it that what the peer does not understand is not sent again (7.1.1 to 7.1.3).
    fn obey(&mut self, error: RdmaError) {
        match (error, self.config.role) {
            // Only Calls in the reverse direction can be meant.
            (RdmaError::HeaderType, Role::Server) => {
                self.peer_properties.reverse = Reverse::NONE;
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
        self.answer(answer::to_sequence(header.purpose()), header.xid);
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
                self.report(header.xid, error);
                return self.abandon_or_discard(&header, is_middle);
            }
        }

        let payload = header.payload();
        let is_external = matches!(
            header.body,
            Body::CallExternal(_) | Body::ReplyExternal { .. }
        );
        let is_whole = self.assembly.is_none() && !is_middle;
        if self.assembly.is_none() && !is_external {
            let matches = v2::check_rpc(payload, header.xid, direction).is_ok();
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
                let purpose = header.purpose();
                self.answer(answer::to_sequence(purpose), header.xid);
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
        match header.body {
            Body::CallInline { offer, .. } | Body::CallExternal(offer) => {
                answer::to_offer(&offer, &self.config)
            }
            _ => None,
        }
    }

    /// Finds out where a part belongs.
    fn place(&mut self, header: &Header<'_>, direction: Direction) -> Option<Extent> {
        let len = header.payload().len();
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
                let placed = assembly.last(len)?;
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

/// Returns what a message is to flow control. A CONNPROP message of nothing takes the place of a
/// GRANT where only CONNPROP messages may be sent.
fn kind(header: &Header<'_>) -> Kind {
    match header.body {
        Body::Grant => Kind::Grant,
        Body::Properties { told, last: false } if told.is_nothing() => Kind::Grant,
        _ => Kind::Other,
    }
}

/// Returns of a message that can be a part of an RPC message its direction, and whether it is the
/// last part.
fn part(header: &Header<'_>) -> Option<(Direction, bool)> {
    match header.body {
        Body::Middle { direction, .. } => Some((direction, false)),
        Body::CallInline { .. } => Some((Direction::Call, true)),
        Body::ReplyInline { .. } => Some((Direction::Reply, true)),
        _ => None,
    }
}
