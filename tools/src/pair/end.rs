// SPDX-License-Identifier: GPL-2.0

//! An end of a pair, and what it has to do.

use super::*;

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
    /// Its session on the present connection.
    pub(super) session: Session,
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
        self.session = Session::after(config, start);
        self.wire.clear();
        self.connected = false;
        self.in_transit = 0;
        self.record = Record::after(start);
        self.trouble = Trouble::default();
        self.assembly.clear();
        if let Some(bounds) = self.patience.bounds {
            self.become_patient(bounds, config.receives + 1);
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

    /// Returns how many of its RPCs have not ended.
    pub(super) fn pending(&self) -> usize {
        let rpcs = self.rpcs.values();
        rpcs.filter(|(_, outcome)| *outcome == Outcome::Pending)
            .count()
    }
}
