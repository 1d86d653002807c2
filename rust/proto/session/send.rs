// SPDX-License-Identifier: GPL-2.0

//! What may be sent, and what has to be.

use super::{
    super::{
        credits::Admission,
        props::{
            Reverse,
            Told, //
        },
        v2::{
            ConnProp,
            Direction,
            ErrorHeader,
            Grant,
            VERSION, //
        },
        window::Kind,
    },
    Action,
    Control,
    Dialect,
    Outbound,
    Refusal,
    Role,
    Session,
    Stage,
    Telling, //
};

impl Session {
    /// Asks whether an RPC message may be sent. If so it is counted, and the credit value for the
    /// headers of all of its parts is returned; they are to be posted now, one after the other.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(crate) fn start_send(&mut self, message: &Outbound) -> core::result::Result<u32, Refusal> {
        if self.stage != Stage::Speaking(Dialect::Two) || self.closing.is_some() {
            return Err(Refusal::NotConnected);
        }
        if !self.supports(message) {
            return Err(Refusal::Unsupported);
        }
        // Errors that wait come first, and nothing comes between our own CONNPROP messages (6.3.3).
        let errors = self.errors.iter().flatten().count();
        let errors = u32::try_from(errors).unwrap_or(u32::MAX);
        let parts = message.parts.max(1);
        let needed = parts.saturating_add(errors);
        if self.own == Telling::Begun || needed > self.outgoing.available() {
            self.waiting = true;
            return Err(match parts > self.widest {
                true => Refusal::TooLong,
                false => Refusal::Wait,
            });
        }
        match self.outgoing.consume(parts, Kind::Other) {
            Admission::Granted => Ok(self.incoming.tell()),
            Admission::MustWait => {
                self.waiting = true;
                Err(Refusal::Wait)
            }
        }
    }

    /// Returns whether the peer supports a message: in the reverse direction it depends (5.2.5).
    fn supports(&self, message: &Outbound) -> bool {
        let is_reverse = match self.config.role {
            Role::Client => message.direction == Direction::Reply,
            Role::Server => message.direction == Direction::Call,
        };
        match self.reverse() {
            _ if !is_reverse => true,
            Reverse::None => false,
            Reverse::Simple => message.parts <= 1 && !message.chunks,
            Reverse::Continued => !message.chunks,
            Reverse::General => true,
        }
    }

    /// Asks for a CONNPROP message to be sent, which is for owners that authenticate. It is counted,
    /// and is to be posted now. Nothing is returned if it must wait, or if the last one was sent.
    ///
    /// What `told` says about our properties must not be more than the session was made with.
    pub(crate) fn send_properties<'a>(
        &mut self,
        told: Told<'a>,
        last: bool,
    ) -> Option<ConnProp<'a>> {
        // A client sends one message, and another one only when the server has answered (4.3).
        let possible = match self.stage {
            Stage::Opening => self.config.role == Role::Client,
            Stage::Speaking(dialect) => dialect == Dialect::Two,
            Stage::Offered | Stage::Closed => false,
        };
        if !possible || self.own == Telling::Done || self.closing.is_some() {
            return None;
        }
        if self.outgoing.consume(1, Kind::Other) != Admission::Granted {
            self.waiting = true;
            return None;
        }
        self.own = match last {
            true => Telling::Done,
            false => Telling::Begun,
        };
        if self.stage == Stage::Opening {
            self.stage = Stage::Offered;
        }
        Some(ConnProp {
            credits: self.incoming.tell(),
            told,
            last,
        })
    }

    /// Returns what to do next.
    ///
    /// `busy` tells that the owner is about to send something anyway, which carries credits as well
    /// as a GRANT does.
    pub(crate) fn poll_action(&mut self, busy: bool) -> Option<Action> {
        if self.stage == Stage::Closed {
            return None;
        }
        if self.tell_connected {
            if let Some(dialect) = self.dialect() {
                self.tell_connected = false;
                return Some(Action::Connected(dialect));
            }
        }
        if core::mem::take(&mut self.tell_agreed) {
            return Some(Action::Agreed(self.terms()));
        }
        let control = self.poll_properties().or_else(|| self.poll_error());
        if let Some(control) = control.or_else(|| self.poll_grant(busy)) {
            self.in_transit = self.in_transit.saturating_add(1);
            return Some(Action::Send(control));
        }
        if let Some(reason) = self.closing {
            if self.in_transit != 0 {
                return None;
            }
            self.stage = Stage::Closed;
            return Some(Action::Close(reason));
        }
        if self.waiting && self.own != Telling::Begun && self.outgoing.available() > 0 {
            self.waiting = false;
            return Some(Action::Wake);
        }
        None
    }

    /// Returns our only CONNPROP message, if it is time for it.
    fn poll_properties(&mut self) -> Option<Control> {
        if self.own != Telling::Nothing || self.config.authenticate {
            return None;
        }
        let told = Told::all(&self.config.own);
        self.send_properties(told, true).map(Control::Properties)
    }

    /// Returns the error that has waited longest, if it may be sent.
    fn poll_error(&mut self) -> Option<Control> {
        let report = self.errors.first().copied().flatten()?;
        // Nothing comes between our own CONNPROP messages (6.3.3).
        if self.own == Telling::Begun {
            return None;
        }
        let is_two = self.stage == Stage::Speaking(Dialect::Two);
        if is_two && report.version == VERSION {
            if self.outgoing.consume(1, Kind::Other) != Admission::Granted {
                return None;
            }
        } else {
            // The message that it answers had one Receive posted for its answer.
            self.outgoing.force();
        }
        self.errors.rotate_left(1);
        if let Some(last) = self.errors.last_mut() {
            *last = None;
        }
        let credits = match self.stage {
            Stage::Speaking(Dialect::Two) => self.incoming.tell(),
            _ => self.config.credits_in_one,
        };
        Some(Control::Error(ErrorHeader {
            xid: report.xid,
            version: report.version,
            credits,
            error: report.error,
        }))
    }

    /// Returns a GRANT, if one is owed.
    fn poll_grant(&mut self, busy: bool) -> Option<Control> {
        let is_two = self.stage == Stage::Speaking(Dialect::Two);
        if !is_two || self.closing.is_some() || !self.incoming.owes_grant() {
            return None;
        }
        if busy && self.outgoing.available() > 0 {
            return None;
        }
        if self.outgoing.consume(1, Kind::Grant) != Admission::Granted {
            return None;
        }
        let credits = self.incoming.tell();
        Some(match self.own {
            // Only a CONNPROP message may follow a CONNPROP_MIDDLE (6.3.3), so one that tells
            // nothing has to carry the credits.
            Telling::Begun => Control::Properties(ConnProp {
                credits,
                told: Told::NOTHING,
                last: false,
            }),
            Telling::Nothing | Telling::Done => Control::Grant(Grant { credits }),
        })
    }
}
