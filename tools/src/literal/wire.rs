// SPDX-License-Identifier: GPL-2.0

//! Messages of draft-ietf-nfsv4-rpcrdma-version-two-07, word by word, as sections 5, 6 and 8 have
//! them. Nothing of the module's own encoders and decoders is used here.

/// Header types (8.4).
pub(super) mod kind {
    /// RDMA2_ERROR.
    pub(crate) const ERROR: u32 = 4;
    /// RDMA2_GRANT.
    pub(crate) const GRANT: u32 = 5;
    /// RDMA2_CONNPROP_MIDDLE.
    pub(crate) const CONNPROP_MIDDLE: u32 = 6;
    /// RDMA2_CONNPROP_FINAL.
    pub(crate) const CONNPROP_FINAL: u32 = 7;
    /// RDMA2_CALL_EXTERNAL.
    pub(crate) const CALL_EXTERNAL: u32 = 8;
    /// RDMA2_CALL_MIDDLE.
    pub(crate) const CALL_MIDDLE: u32 = 9;
    /// RDMA2_CALL_INLINE.
    pub(crate) const CALL_INLINE: u32 = 10;
    /// RDMA2_REPLY_EXTERNAL.
    pub(crate) const REPLY_EXTERNAL: u32 = 11;
    /// RDMA2_REPLY_MIDDLE.
    pub(crate) const REPLY_MIDDLE: u32 = 12;
    /// RDMA2_REPLY_INLINE.
    pub(crate) const REPLY_INLINE: u32 = 13;
}

/// RDMA2_ERR_REPLY_RESOURCE (8.4).
pub(super) const ERR_REPLY_RESOURCE: u32 = 10;

/// Octets of a CALL_INLINE header without chunks: the prefix, the handle, and three empty lists.
pub(super) const CALL_HEADER: usize = 32;
/// Octets that one Read segment, one Write chunk of one segment, or a Reply chunk of one adds.
pub(super) const READ_ENTRY: usize = 24;
/// Octets of a REPLY_INLINE header without chunks.
pub(super) const REPLY_HEADER: usize = 20;
/// Octets of a MIDDLE header.
pub(super) const MIDDLE_HEADER: usize = 20;

/// Returns a message of a prefix and a body.
pub(super) fn message(xid: u32, credit: u32, kind: u32, body: &[u32]) -> Vec<u8> {
    let prefix = [xid, 2, credit, kind];
    let words = prefix.iter().chain(body);
    words.flat_map(|word| word.to_be_bytes()).collect()
}

/// What a message holds, as far as a peer cares.
#[derive(Clone, Debug, Default)]
pub(super) struct Parsed {
    /// The transaction ID.
    pub(super) xid: u32,
    /// The version.
    pub(super) version: u32,
    /// The credit value.
    pub(super) credit: u32,
    /// The header type.
    pub(super) kind: u32,
    /// The words behind the prefix, of an error or a MIDDLE.
    pub(super) first: [u32; 3],
    /// The properties, by their code.
    pub(super) properties: Vec<(u32, u32)>,
    /// The length of the Call chunk, and whether there is one.
    pub(super) call: Option<u32>,
    /// The length of the Reply chunk.
    pub(super) reply: Option<u32>,
    /// The most segments that one header has.
    pub(super) segments: u32,
    /// The length of the longest segment.
    pub(super) longest: u32,
    /// The RPC message, or a part of it.
    pub(super) payload: Vec<u8>,
}

/// Words of a message, one after the other.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> u32 {
        let (word, rest) = self
            .0
            .split_first_chunk::<4>()
            .expect("the header is whole");
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    /// A segment: handle, length, offset of 64 bits.
    fn segment(&mut self, parsed: &mut Parsed) -> u32 {
        let [_, len, _, _] = std::array::from_fn(|_| self.next());
        parsed.segments += 1;
        parsed.longest = parsed.longest.max(len);
        len
    }

    /// A Read list: 1, position, segment, and so on, and 0.
    fn reads(&mut self, parsed: &mut Parsed) -> Option<u32> {
        let mut sum = None;
        while self.next() == 1 {
            self.next();
            sum = Some(sum.unwrap_or(0) + self.segment(parsed));
        }
        sum
    }

    /// The counted segments of a Write chunk.
    fn chunk(&mut self, parsed: &mut Parsed) -> u32 {
        let count = self.next();
        (0..count).map(|_| self.segment(parsed)).sum()
    }

    /// A Write list: 1, chunk, and so on, and 0.
    fn writes(&mut self, parsed: &mut Parsed) {
        while self.next() == 1 {
            self.chunk(parsed);
        }
    }

    /// A Reply chunk, if there is one.
    fn reply(&mut self, parsed: &mut Parsed) {
        if self.next() == 1 {
            parsed.reply = Some(self.chunk(parsed));
        }
    }
}

/// Takes a message apart.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut words = Words(bytes);
    let [xid, version, credit, kind] = std::array::from_fn(|_| words.next());
    let mut parsed = Parsed {
        xid,
        version,
        credit,
        kind,
        ..Parsed::default()
    };
    if version != 2 {
        return parsed;
    }
    match kind {
        kind::ERROR => {
            for place in &mut parsed.first {
                if !words.0.is_empty() {
                    *place = words.next();
                }
            }
        }
        kind::CONNPROP_MIDDLE | kind::CONNPROP_FINAL => {
            for _ in 0..words.next() {
                let (code, len) = (words.next(), words.next());
                let value = if len == 4 { words.next() } else { 0 };
                parsed.properties.push((code, value));
            }
        }
        kind::CALL_EXTERNAL | kind::CALL_INLINE => {
            words.next();
            if kind == kind::CALL_EXTERNAL {
                parsed.call = words.reads(&mut parsed);
            }
            words.reads(&mut parsed);
            words.writes(&mut parsed);
            words.reply(&mut parsed);
        }
        kind::REPLY_EXTERNAL => {
            words.writes(&mut parsed);
            words.reply(&mut parsed);
        }
        kind::REPLY_INLINE => words.writes(&mut parsed),
        kind::CALL_MIDDLE | kind::REPLY_MIDDLE => parsed.first[0] = words.next(),
        _ => {}
    }
    parsed.payload = words.0.to_vec();
    parsed
}

/// A chunk of one segment.
pub(super) fn segment(len: u32) -> [u32; 4] {
    [0x1234_5678, len, 0, 0x1000]
}
