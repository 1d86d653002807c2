// SPDX-License-Identifier: GPL-2.0

//! RPCs between the peer and the module, and what becomes of them.

use std::collections::{
    BTreeMap,
    HashMap,
    VecDeque, //
};

use super::{
    ours::Ours,
    peer::Peer,
    Reading, //
};
use crate::proto::{
    message::Version,
    session::Role, //
};

/// RPCs that are under way at a time.
const UNDER_WAY: usize = 3;
/// Seconds without a result after which nothing more is expected.
const PATIENCE: u32 = 400;
/// Connections after which nobody tries again.
const MOST_LOST: u32 = 20;

/// What RPCs are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Calls and Replies of all lengths.
    Mixed,
    /// Short Calls, Replies of all lengths.
    Reading,
    /// Calls of all lengths, short Replies.
    Writing,
}

impl Load {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mixed, Self::Reading, Self::Writing];
}

/// What became of the RPCs between a peer and the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// RPCs that ended with their Reply.
    pub replied: u32,
    /// RPCs that ended with an error.
    pub failed: u32,
    /// RPCs that did not end.
    pub unended: u32,
    /// Connections that were lost.
    pub lost: u32,
    /// Seconds that it took: those during which everybody waited.
    pub seconds: u32,
    /// Set if the rest was left to Version One.
    pub in_one: bool,
    /// GRANTs of the peer on the last connection.
    pub grants: u32,
    /// Why connections were lost.
    pub reasons: Vec<String>,
    /// The errors that RPCs ended with.
    pub errors: Vec<u32>,
}

impl Fate {
    /// Whether every RPC has ended well, and at most one connection was lost.
    pub fn is_good(&self) -> bool {
        self.failed == 0 && self.unended == 0 && self.lost <= 1
    }
}

/// An RPC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rpc {
    /// Octets of the Call, and of the Reply.
    pub(super) call: u32,
    pub(super) reply: u32,
    /// A peer's Call has data in a Read chunk.
    pub(super) has_data: bool,
    /// A peer's Call offers a Reply chunk.
    pub(super) offers: bool,
}

/// The client's RPCs.
#[derive(Default)]
pub(super) struct End {
    rpcs: BTreeMap<u32, (Rpc, u32)>,
    again: Vec<u32>,
    fate: Fate,
}

impl End {
    pub(super) fn rpc(&self, xid: u32) -> Option<Rpc> {
        self.rpcs.get(&xid).map(|(rpc, _)| *rpc)
    }

    pub(super) fn is_pending(&self, xid: u32) -> bool {
        self.rpcs.contains_key(&xid)
    }

    /// The RPC has its Reply.
    pub(super) fn replied(&mut self, xid: u32, len: u32) {
        let (rpc, _) = self.rpcs.remove(&xid).expect("an RPC ends once");
        assert_eq!(rpc.reply, len, "somebody else's Reply");
        self.fate.replied += 1;
    }

    /// The RPC ends with an error, unless it has ended.
    pub(super) fn failed(&mut self, xid: u32, code: u32) {
        if self.rpcs.remove(&xid).is_some() {
            self.fate.failed += 1;
            if !self.fate.errors.contains(&code) {
                self.fate.errors.push(code);
            }
        }
    }

    /// A client of the text sends its Call again, with a Reply chunk.
    pub(super) fn again(&mut self, xid: u32) {
        if let Some((rpc, _)) = self.rpcs.get_mut(&xid) {
            rpc.offers = true;
            self.again.push(xid);
        }
    }

    /// A Reply has ended the connection. Returns how many have for this RPC.
    pub(super) fn spoilt(&mut self, xid: u32) -> u32 {
        self.rpcs.get_mut(&xid).map_or(0, |(_, spoilt)| {
            *spoilt += 1;
            *spoilt
        })
    }
}

/// What RDMA moves: Calls that their client has registered, and Replies that were written.
#[derive(Default)]
pub(super) struct Tables {
    pub(super) calls: HashMap<u32, Vec<u8>>,
    pub(super) replies: HashMap<u32, Vec<u8>>,
    /// Set if the module has gone on in Version One.
    pub(super) in_one: bool,
}

/// Returns the octets of an RPC message.
pub(super) fn payload(xid: u32, is_reply: bool, len: u32, reply: u32) -> Vec<u8> {
    let words = (0..len.div_ceil(4)).map(|index| match index {
        0 => xid,
        1 => u32::from(is_reply),
        2 => reply,
        _ => xid.wrapping_mul(0x9e37_79b9).wrapping_add(index),
    });
    let mut bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    bytes.truncate(len as usize);
    bytes
}

/// An xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 32) as u32) % limit
    }

    /// Octets of an RPC message: most are short, some long, unless all `are_short`. Whole words.
    fn len(&mut self, are_short: bool) -> u32 {
        let limit = match self.below(8) {
            _ if are_short => 400,
            0..5 => 400,
            5 => 4200,
            6 => 14_000,
            _ => 30_000,
        };
        (12 + self.below(limit)) & !3
    }
}

/// Has so many RPCs made between a peer that reads the text in that way, and the module.
///
/// # Panics
///
/// If the module breaks a rule that does not depend on a reading, or an RPC gets a wrong Reply.
pub fn run(reading: &Reading, load: Load, rpcs: u32, seed: u64) -> Fate {
    let mut run = Run::new(reading, load, seed);
    let (mut begun, mut idle) = (0, 0);
    loop {
        while begun < rpcs && run.end.rpcs.len() < UNDER_WAY {
            begun += 1;
            run.begin(begun);
        }
        let before = run.end.rpcs.len();
        run.pump();
        run.fate().in_one |=
            run.tables.in_one || run.ours.connection.version() == Some(Version::One);
        if run.fate().in_one || begun == rpcs && run.end.rpcs.is_empty() {
            break;
        }
        if run.end.rpcs.len() < before {
            idle = 0;
            continue;
        }
        if run.ours.closed.is_some() {
            run.reconnect();
            if run.fate().in_one {
                break;
            }
        } else {
            idle += 1;
            run.fate().seconds += 1;
            run.ours.tick();
            run.peer.tick();
        }
        if idle > PATIENCE || run.fate().lost >= MOST_LOST {
            run.fate().unended = run.end.rpcs.len() as u32;
            break;
        }
    }
    run.fate().grants = run.peer.grants;
    run.end.fate
}

/// A peer, the module, and what is under way between them.
struct Run {
    reading: Reading,
    load: Load,
    ours: Ours,
    peer: Peer,
    to_ours: VecDeque<Vec<u8>>,
    to_peer: VecDeque<Vec<u8>>,
    end: End,
    tables: Tables,
    random: Random,
}

impl Run {
    fn new(reading: &Reading, load: Load, seed: u64) -> Self {
        Self {
            reading: *reading,
            load,
            ours: Self::ours(reading),
            peer: Peer::new(reading),
            to_ours: VecDeque::new(),
            to_peer: VecDeque::new(),
            end: End::default(),
            tables: Tables::default(),
            random: Random(seed | 1),
        }
    }

    fn ours(reading: &Reading) -> Ours {
        Ours::new(match reading.is_client {
            true => Role::Server,
            false => Role::Client,
        })
    }

    fn fate(&mut self) -> &mut Fate {
        &mut self.end.fate
    }

    /// Begins an RPC.
    fn begin(&mut self, xid: u32) {
        let rpc = Rpc {
            call: self.random.len(self.load == Load::Reading),
            reply: self.random.len(self.load == Load::Writing),
            has_data: self.random.below(4) == 0,
            offers: self.random.below(2) == 0,
        };
        self.end.rpcs.insert(xid, (rpc, 0));
        self.send(xid);
    }

    /// Has a Call sent.
    fn send(&mut self, xid: u32) {
        let Some(rpc) = self.end.rpc(xid) else {
            return;
        };
        match self.reading.is_client {
            true => self.peer.call(xid, &rpc),
            false => self.ours.call(xid),
        }
    }

    /// Has everything happen that can happen now.
    fn pump(&mut self) {
        for round in 0.. {
            assert!(round < 100_000, "both talk for ever: {:?}", self.reading);
            let ours = self.ours.poll(&mut self.tables, &mut self.end);
            let mut progress = !ours.is_empty();
            self.to_peer.extend(ours);
            if self.ours.closed.is_some() {
                return;
            }
            // The order of what the ends do is random.
            for _ in 0..1 + self.random.below(3) {
                let message = self.peer.poll(&mut self.tables);
                progress |= message.is_some();
                self.to_ours.extend(message);
            }
            for _ in 0..1 + self.random.below(3) {
                if let Some(message) = self.to_ours.pop_front() {
                    progress = true;
                    self.ours.receive(&message, &mut self.end, &mut self.tables);
                }
            }
            for _ in 0..1 + self.random.below(3) {
                if let Some(message) = self.to_peer.pop_front() {
                    progress = true;
                    self.peer.receive(&message, &mut self.tables, &mut self.end);
                }
            }
            for xid in std::mem::take(&mut self.end.again) {
                progress = true;
                self.send(xid);
            }
            if !progress || self.tables.in_one {
                return;
            }
        }
    }

    /// The module has ended the connection. The client makes another one and sends its Calls again.
    fn reconnect(&mut self) {
        let reason = format!("{:?}", self.ours.closed);
        let is_known = self.ours.connection.version().is_some();
        let reading = self.reading;
        let fate = self.fate();
        fate.lost += 1;
        if !fate.reasons.contains(&reason) {
            fate.reasons.push(reason);
        }
        if !reading.is_client && !is_known {
            // The next one is made in Version One (`proto::session::memory`).
            fate.in_one = true;
            return;
        }
        self.to_ours.clear();
        self.to_peer.clear();
        self.tables = Tables::default();
        self.ours = Self::ours(&reading);
        self.peer = Peer::new(&reading);
        let pending: Vec<u32> = self.end.rpcs.keys().copied().collect();
        for xid in pending {
            self.send(xid);
        }
    }
}
