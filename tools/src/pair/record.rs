// SPDX-License-Identifier: GPL-2.0

//! What has gone over a connection, by which an end is judged without asking its session.

use super::*;
use crate::proto::{
    v1,
    v2, //
};

/// The length of a CONNPROP message of nothing, which takes the place of a GRANT.
const EMPTY_PROPERTIES_LEN: usize = 20;

/// What an end has sent and received on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// How many messages of Version Two it has sent.
    sent: u32,
    /// Whether it has sent or received anything.
    is_first: bool,
    /// Whether anything has arrived.
    is_answered: bool,
    /// How many messages it may send, as far as it was told.
    limit: u32,
    /// How many messages the peer may send, as it has told last.
    told: Option<u32>,
    /// Whether the latest message that it has sent was a GRANT.
    granted: bool,
    /// Whether it has told its last properties.
    told_all: bool,
}

/// Returns a word of the prefix of a message.
fn word(message: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_be_bytes(message[at..at + 4].try_into().unwrap())
}

/// Returns how far a number is ahead of another one.
fn ahead(value: u32, other: u32) -> i32 {
    value.wrapping_sub(other) as i32
}

impl Record {
    /// That of a new connection, on which so many messages count as sent.
    pub(super) fn after(start: u32) -> Self {
        Self {
            sent: start,
            is_first: true,
            is_answered: false,
            limit: start.wrapping_add(1),
            told: None,
            granted: false,
            told_all: false,
        }
    }

    /// Checks a message that the end is about to send. Of its session it matters what it knows to
    /// be spoken.
    pub(super) fn send(&mut self, message: &[u8], role: Role, session: &Session) {
        let dialect = session.dialect();
        let (version, credits, htype) = (word(message, 1), word(message, 2), word(message, 3));
        let is_first = std::mem::replace(&mut self.is_first, false);
        let is_error = htype == htype::ERROR;
        if dialect == Some(Version::One) {
            assert!(
                version == v1::VERSION || is_error,
                "Version Two where Version One is spoken"
            );
            return;
        }
        self.sent = self.sent.wrapping_add(1);
        if is_error && (dialect.is_none() || version != v2::VERSION) {
            // It answers a message in a version that is not spoken, and does not depend on credits.
            assert_eq!(role, Role::Server, "a client answers before it is answered");
            return;
        }
        assert_eq!(version, v2::VERSION);
        assert!(
            self.told.is_none_or(|told| ahead(credits, told) >= 0),
            "a limit goes back"
        );
        self.told = Some(credits);

        let is_grant = htype == htype::GRANT
            || htype == htype::CONNPROP_MIDDLE && message.len() == EMPTY_PROPERTIES_LEN;
        let beyond = ahead(self.sent, self.limit);
        assert!(
            beyond <= 0 || beyond == 1 && (is_grant || self.granted),
            "beyond the window"
        );
        self.granted = is_grant;

        let is_last = htype == htype::CONNPROP_FINAL;
        let is_property = is_last || htype == htype::CONNPROP_MIDDLE;
        // What ends the connection may be said at once.
        let is_farewell = is_error && session.is_closing();
        assert!(
            is_property != self.told_all || is_farewell,
            "properties come first, and once"
        );
        self.told_all |= is_last;
        assert!(
            role == Role::Server || is_first || self.is_answered,
            "a client goes on without an answer"
        );
    }

    /// Whether it has sent its first message and got none.
    pub(super) fn awaits_first(&self) -> bool {
        !self.is_first && !self.is_answered
    }

    /// Takes note of a message that has arrived.
    pub(super) fn receive(&mut self, message: &[u8]) {
        self.is_answered = true;
        if message.len() >= v2::PREFIX_LEN && word(message, 1) == v2::VERSION {
            let credits = word(message, 2);
            if ahead(credits, self.limit) > 0 {
                self.limit = credits;
            }
        }
    }
}
