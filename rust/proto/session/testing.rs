// SPDX-License-Identifier: GPL-2.0

//! What the tests of several files need.

use super::{
    super::{
        cm_private::CmPrivate,
        connection::InOne,
        props::{
            Advertised,
            Properties, //
        },
        testing::Bytes,
        v2::ConnProp,
        v2_2016::props::Values, //
    },
    Action,
    Config,
    Event,
    Outbound,
    Refusal,
    Role,
    Session, //
};
use crate::proto::prelude::*;

/// The transaction ID of the examples.
pub(in crate::proto) const XID: u32 = 0x1234_5678;

/// The credit value of the examples: the number of messages that may be sent.
pub(in crate::proto) const CREDITS: u32 = 100;

/// What both ends of the examples can do.
pub(in crate::proto) const OWN: Properties = Properties {
    send_size: 8192,
    receive_size: 8192,
    segment_size: 1 << 20,
    segment_count: 20,
    reverse: 3,
};

/// An end with room for 8 messages.
pub(in crate::proto) const fn config(role: Role) -> Config {
    Config {
        role,
        low: 1,
        high: 2,
        earlier: None,
        own: OWN,
        authenticate: false,
        receives: 8,
        credits_in_one: 32,
        limits: Limits::DEFAULT,
        read_chunks: 2,
        write_chunks: 2,
        max_assembly: 4096,
    }
}

impl Session {
    /// The state of a new connection.
    pub(in crate::proto) fn new(config: &Config) -> Self {
        Self::after(config, 0)
    }

    /// Has an RPC message counted, which is posted at once, and returns its credit value.
    ///
    /// # Errors
    ///
    /// See [`Refusal`].
    pub(in crate::proto) fn start_send(
        &mut self,
        message: &Outbound,
    ) -> core::result::Result<u32, Refusal> {
        let credits = self.prepare_send(message)?;
        self.commit_send(message.parts.max(1));
        Ok(credits)
    }
}

/// What holds in the examples in Version One.
pub(in crate::proto) const IN_ONE: InOne = InOne {
    own: CmPrivate::DEFAULT,
    peer: CmPrivate::DEFAULT,
    calls: 32,
};

/// The words of a CONNPROP_FINAL that tells all of [`OWN`], in short.
pub(in crate::proto) const FINAL: [u32; 14] = [
    0, 2, CREDITS, 7, 3, 1, 4, 8192, 2, 4, 8192, 5, 4, 3, //
];

/// What an end can do in the earlier protocol.
pub(in crate::proto) const EARLIER: Values = Values {
    receive_size: 8192,
    invalidation: 1,
    reverse: 2,
};

/// The words of the first message of a client of the earlier protocol with these.
pub(in crate::proto) const OFFER: [u32; 18] = [
    0, 2, 32, 5, 0, 1, 44, 3, 1, 4, 8192, 2, 4, 1, 3, 4, 2, 0, //
];

/// The words of a server's answer to it.
pub(in crate::proto) const PROPERTIES: [u32; 19] = [
    0, 2, 32, 5, 1, 1, 48, 3, 1, 4, 8192, 2, 4, 1, 3, 4, 2, 1, 6, //
];

/// Receives a message made of words and does not look at what it is.
pub(in crate::proto) fn receive(session: &mut Session, words: &[u32]) -> Result {
    let bytes = Bytes::from_words(words)?;
    session.handle_received(bytes.get());
    Ok(())
}

/// Receives a message made of words, and returns what `look` makes of the event.
pub(in crate::proto) fn received<T>(
    session: &mut Session,
    words: &[u32],
    look: impl FnOnce(&Event<'_>) -> T,
) -> Result<T> {
    let bytes = Bytes::from_words(words)?;
    Ok(look(&session.handle_received(bytes.get())))
}

/// Returns the next action, having posted the message that it is about.
pub(in crate::proto) fn poll(session: &mut Session) -> Option<Action> {
    let action = session.poll_action();
    if let Some(Action::Send(control)) = &action {
        session.commit(control);
    }
    action
}

/// Posts a CONNPROP message of an owner that authenticates, if it may be sent.
pub(in crate::proto) fn send_properties<'a>(
    session: &mut Session,
    told: Advertised<'a>,
    last: bool,
) -> Option<ConnProp<'a>> {
    let message = session.prepare_properties(told, last)?;
    session.commit_properties(last);
    Some(message)
}

/// Returns the next action, having sent the message that it is about.
pub(in crate::proto) fn act(session: &mut Session) -> Option<Action> {
    let action = poll(session);
    if matches!(action, Some(Action::Send(_))) {
        session.handle_sent();
    }
    action
}

/// Returns the next message that the session wants to be sent, having passed over other actions.
pub(in crate::proto) fn message(session: &mut Session) -> Result<Bytes> {
    while let Some(action) = act(session) {
        if let Action::Send(control) = action {
            return Bytes::from_encoder(|buf| control.encode(buf));
        }
    }
    Err(Fault::NoPayload)
}

/// Does everything that there is to do, and returns how many messages were sent.
pub(in crate::proto) fn settle(session: &mut Session) -> u32 {
    let mut sent = 0_u32;
    while let Some(action) = act(session) {
        sent = sent.saturating_add(u32::from(matches!(action, Action::Send(_))));
    }
    sent
}

/// A session that speaks Version Two, all properties being told.
pub(in crate::proto) fn speaking(role: Role) -> Result<Session> {
    speaking_with(&config(role))
}

/// The same of an end that is special.
pub(in crate::proto) fn speaking_with(config: &Config) -> Result<Session> {
    let mut session = Session::new(config);
    settle(&mut session);
    receive(&mut session, &FINAL)?;
    settle(&mut session);
    Ok(session)
}
