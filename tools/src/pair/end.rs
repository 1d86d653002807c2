// SPDX-License-Identifier: GPL-2.0

//! An end of a pair, and what it has to do.

use super::*;

/// What holds in Version One.
pub(crate) const IN_ONE: InOne = InOne {
    own: CmPrivate::DEFAULT,
    peer: CmPrivate::DEFAULT,
    calls: 16,
};

/// How an RPC has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has not.
    Pending,
    /// With its Reply.
    Replied,
    /// With an error.
    Failed,
}

/// An RPC message that an end has to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Todo {
    /// Whether it is a Call or a Reply.
    pub(super) direction: Direction,
    /// Its transaction ID.
    pub(super) xid: u32,
    /// Its length in octets.
    pub(super) len: u32,
    /// Of a Call, the length of its Reply. Of a Reply, zero.
    pub(super) reply_len: u32,
    /// Of a Reply, whether the Call had a Reply chunk.
    pub(super) chunk: bool,
}

/// One end.
#[derive(Debug)]
pub(super) struct End {
    /// Its role.
    pub(super) role: Role,
    /// Its state on the present connection.
    pub(super) connection: Connection,
    /// What is on its way to it.
    pub(super) wire: VecDeque<Vec<u8>>,
    /// Whether RPC messages may be sent.
    pub(super) connected: bool,
    /// Messages of the session the Sends of which have not completed.
    pub(super) in_transit: u32,
    /// What it has to send.
    pub(super) todo: VecDeque<Todo>,
    /// Its RPCs.
    pub(super) rpcs: HashMap<u32, (Todo, Outcome)>,
    /// The transaction ID of its next RPC. Both ends use the same ones.
    pub(super) next_xid: u32,
    /// The RPC message that is coming in parts.
    pub(super) assembly: Vec<u8>,
    /// What it has sent and received.
    pub(super) record: Record,
    /// What it has if it waits.
    pub(super) patience: Patience,
    /// Its authentication, and that of the peer.
    pub(super) host: Host,
    /// What is wrong with it.
    pub(super) trouble: Trouble,
}

/// Returns the octets of an RPC message.
pub(super) fn payload(direction: Direction, xid: u32, len: u32, reply_len: u32) -> Vec<u8> {
    let direction = match direction {
        Direction::Call => 0_u32,
        Direction::Reply => 1,
    };
    let words = (0..len / 4).map(|index| match index {
        0 => xid,
        1 => direction,
        2 => reply_len,
        index => xid.wrapping_mul(0x9e37_79b9).wrapping_add(index),
    });
    let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    bytes.resize(len as usize, 0xee);
    bytes
}

impl End {
    /// Begins a new connection.
    pub(super) fn reset(&mut self, config: &Config, start: u32) {
        let receives = patient::receives(config, self.patience.bounds.as_ref());
        self.connection = Connection::after(config, receives, IN_ONE, start);
        self.wire.clear();
        self.connected = false;
        self.in_transit = 0;
        self.record = Record::after(start);
        self.host = Host::new(self.role, &Wish::OFF);
        self.trouble = Trouble::default();
        self.assembly.clear();
        if let Some(bounds) = self.patience.bounds {
            self.become_patient(bounds);
        }
        // Calls are sent again; Replies belong to the old connection.
        self.todo.clear();
        let mut again: Vec<Todo> = self
            .rpcs
            .values()
            .filter(|(_, outcome)| *outcome == Outcome::Pending)
            .map(|(todo, _)| *todo)
            .collect();
        again.sort_by_key(|todo| todo.xid);
        self.todo.extend(again);
    }

    /// Has an RPC message of Version Two counted, which can always be posted, and returns its
    /// credit value.
    pub(super) fn start_send(&mut self, message: &Outbound) -> Result<u32, Refusal> {
        // An end that speaks nothing but Version One waits until the peer has spoken.
        let credits = self.connection.begin(message)?;
        let credits = credits.ok_or(Refusal::NotConnected)?;
        self.connection.commit(message);
        Ok(credits)
    }

    /// Returns how many of its RPCs have not ended.
    pub(super) fn pending(&self) -> usize {
        let rpcs = self.rpcs.values();
        rpcs.filter(|(_, outcome)| *outcome == Outcome::Pending)
            .count()
    }
}
