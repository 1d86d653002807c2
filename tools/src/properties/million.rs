// SPDX-License-Identifier: GPL-2.0

//! A million headers, most of them mutated: what the codec makes of each, as a digest.
//!
//! The digests were computed with the codec of each version that there was before all headers came
//! from one table of layouts. Equal digests mean equal fields, segments, faults and answers of
//! received headers, and equal bytes or faults of headers to send.

use super::million_codec::{
    decoded,
    encoded, //
};
use crate::proto::{
    chunk::{
        Limits,
        ReadSegment,
        Segment, //
    },
    message::{
        Direction,
        Version, //
    }, //
};

/// Headers in one block, which has a digest of its own.
const BLOCK: u64 = 1 << 16;

/// The digests of blocks of received headers.
const RECEIVED: [u64; 16] = [
    0xaf7d_36f2_d8bd_bee4,
    0xb3b8_31a1_c79b_f10d,
    0x920c_4d60_bce2_7cfc,
    0x60c7_6520_12f0_ec83,
    0xe02d_57a5_4325_1e4a,
    0x6a90_0a89_b3ee_d593,
    0x531f_1b17_8726_84df,
    0xe9df_566e_0119_5146,
    0x1904_b7e2_91b6_d6f3,
    0x530d_a188_dabd_c5df,
    0x7642_0dda_7ae6_a59a,
    0x45ac_c3d7_7909_8e42,
    0xcf25_6b0d_49f9_ff87,
    0xe590_138f_5db2_ee55,
    0x87e2_ed38_e49f_b4d4,
    0x496c_3b82_dd74_d70b,
];

/// The digests of blocks of headers to send.
const SENT: [u64; 4] = [
    0x64e9_c669_2c3b_99a5,
    0xfbfb_522f_cf8e_d8ac,
    0x1bdf_b1d1_0f5c_c623,
    0xa864_ac64_5335_670f,
];

/// A sequence of numbers that is the same in each run (splitmix64).
pub(super) struct Numbers(u64);

impl Numbers {
    /// Returns the next number.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `end`.
    fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }

    /// Returns true once in `times`.
    fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// Returns a word that is often near an end of its range, or in use elsewhere.
    fn word(&mut self) -> u32 {
        match self.below(8) {
            0 => u32::MAX - self.below(4),
            1 => self.next() as u32,
            2 => 4 * self.below(64),
            _ => self.below(6),
        }
    }

    /// Returns a segment, which is sound in nearly all cases.
    fn segment(&mut self) -> Segment {
        let length = match self.below(8) {
            0 => 0,
            1 => self.below(5),
            2 => 0x2000_0000,
            _ => self.below(1 << 20),
        };
        Segment {
            handle: self.below(5),
            length,
            offset: match self.below(64) {
                0 => u64::MAX,
                1 => u64::MAX - u64::from(length),
                _ => self.next() >> 2,
            },
        }
    }

    /// Returns a few segments.
    fn segments(&mut self) -> Vec<Segment> {
        let count = match self.below(4) {
            0 => self.below(5),
            _ => 1,
        };
        (0..count).map(|_| self.segment()).collect()
    }

    /// Returns a few segments of a Read list.
    fn reads(&mut self, first: u32) -> Vec<ReadSegment> {
        let mut position = first;
        let segments = if self.once_in(2) {
            vec![]
        } else {
            self.segments()
        };
        let mut entry = |segment| {
            if self.once_in(2) {
                position += 4 * self.below(8);
            }
            ReadSegment { position, segment }
        };
        segments.into_iter().map(&mut entry).collect()
    }
}

/// A header to send, of any version.
#[derive(Debug)]
pub(super) struct Sent {
    /// The version.
    pub(super) version: Version,
    /// The direction.
    pub(super) direction: Direction,
    /// Whether the RPC message is in a chunk.
    pub(super) external: bool,
    /// The transaction ID.
    pub(super) xid: u32,
    /// The credits.
    pub(super) credits: u32,
    /// The chunk that the Call is in.
    pub(super) call: Vec<Segment>,
    /// The other Read chunks.
    pub(super) read: Vec<ReadSegment>,
    /// The Write chunks.
    pub(super) write: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub(super) reply: Option<Vec<Segment>>,
    /// The handle to invalidate.
    pub(super) invalidate: u32,
}

impl Sent {
    /// Returns a header, which is sound in most cases, and has one fault in most others.
    fn new(numbers: &mut Numbers) -> Self {
        let version = [Version::One, Version::Two, Version::Earlier][numbers.below(3) as usize];
        let is_call = numbers.once_in(2);
        let external = numbers.once_in(3);
        let is_two = version == Version::Two;
        let mut chunk = |empty: bool| {
            let mut segments = numbers.segments();
            if segments.is_empty() && !empty {
                segments.push(Segment::default());
            }
            segments
        };
        // A Call has one Write chunk at most, and no empty ones, but where it may have any.
        let write: Vec<_> = (0..4).map(|_| chunk(!is_call || is_two)).collect();
        let reply = chunk(!is_call || is_two);
        let mut call = chunk(false);
        let most = if is_call && !is_two { 2 } else { 4 };
        let count = numbers.below(most) as usize;
        let has_reply = numbers.once_in(2);
        let sound = !numbers.once_in(8);
        if let Some(first) = call.first_mut().filter(|_| sound) {
            first.length = first.length.max(1);
            first.offset >>= 2;
        }
        // Position zero is that of the Call chunk, in Version One as well.
        let is_odd = numbers.once_in(32) && (is_two || !external);
        let first = if is_odd { numbers.below(3) } else { 4 };
        let read = numbers.reads(first);
        let handles = call
            .iter()
            .chain(reply.iter())
            .map(|segment| segment.handle);
        let known = handles.max().unwrap_or(0);
        Self {
            version,
            direction: if is_call {
                Direction::Call
            } else {
                Direction::Reply
            },
            external,
            xid: numbers.word(),
            credits: if numbers.once_in(16) {
                0
            } else {
                1 + numbers.below(99)
            },
            call: if is_call && external { call } else { vec![] },
            read: if is_call { read } else { vec![] },
            write: write.into_iter().take(count).collect(),
            reply: match (is_call, external) {
                (false, true) => Some(reply),
                // Version Two has no place for it.
                (false, false) if is_two => None,
                _ => Some(reply).filter(|_| has_reply),
            },
            invalidate: match numbers.below(4) {
                0 if is_call && is_two => known,
                1 if is_call && is_two => numbers.below(6),
                _ => 0,
            },
        }
    }
}

/// The words of a received header of any type, sound before it is mutated.
fn received(version: Version, numbers: &mut Numbers) -> Vec<u32> {
    let xid = numbers.word();
    let htype = match version {
        Version::One => numbers.below(6),
        Version::Two => 4 + numbers.below(11),
        Version::Earlier => [0, 0, 0, 1, 1, 4, 5][numbers.below(7) as usize],
    };
    let number = if version == Version::One { 1 } else { 2 };
    let mut words = vec![xid, number, 1 + numbers.below(64), htype];
    let rpc = [xid, numbers.below(2), numbers.word()];
    let segment = |words: &mut Vec<u32>, segment: Segment| {
        let (high, low) = ((segment.offset >> 32) as u32, segment.offset as u32);
        words.extend([segment.handle, segment.length, high, low]);
    };
    let reads = |words: &mut Vec<u32>, entries: Vec<ReadSegment>| {
        for entry in entries {
            words.extend([1, entry.position]);
            segment(words, entry.segment);
        }
        words.push(0);
    };
    let chunk = |words: &mut Vec<u32>, segments: Vec<Segment>| {
        words.extend([1, segments.len() as u32]);
        segments.into_iter().for_each(|s| segment(words, s));
    };
    let write = |words: &mut Vec<u32>, numbers: &mut Numbers| {
        for _ in 0..[0, 0, 0, 1, 1, 2][numbers.below(6) as usize] {
            chunk(words, numbers.segments());
        }
        words.push(0);
    };
    let reply = |words: &mut Vec<u32>, numbers: &mut Numbers, always: bool| {
        if always || numbers.once_in(3) {
            chunk(words, numbers.segments());
        } else {
            words.push(0);
        }
    };
    match (version, htype) {
        (_, 4) => {
            words.extend([
                1 + numbers.below(12),
                numbers.below(3),
                1 + numbers.below(3),
            ]);
        }
        (Version::One | Version::Earlier, 0 | 1) => {
            if version == Version::Earlier {
                words.push(rpc[1]);
            }
            let first = if htype == 1 || numbers.once_in(16) {
                0
            } else {
                4
            };
            let may_read = rpc[1] == 0 || numbers.once_in(8);
            let entries = if may_read {
                numbers.reads(first)
            } else {
                vec![]
            };
            reads(&mut words, entries);
            write(&mut words, numbers);
            let always = htype == 1 && numbers.once_in(2);
            reply(&mut words, numbers, always);
            if htype == 0 {
                words.extend(rpc);
            }
        }
        (Version::Two, 6 | 7) => {
            let count = numbers.below(4);
            words.push(count);
            for _ in 0..count {
                words.extend([numbers.below(9), 4, numbers.word()]);
            }
        }
        (Version::Two, 8 | 10) => {
            words.push(numbers.below(6));
            if htype == 8 {
                let call = numbers.segments().into_iter();
                let call = call.map(|segment| ReadSegment {
                    position: 0,
                    segment,
                });
                reads(&mut words, call.collect());
            }
            let entries = numbers.reads(4);
            reads(&mut words, entries);
            write(&mut words, numbers);
            reply(&mut words, numbers, false);
            if htype == 10 {
                words.extend(rpc);
            }
        }
        (Version::Two, 9 | 12) => {
            words.push(numbers.word());
            words.extend(rpc);
        }
        (Version::Two, 11 | 13) => {
            write(&mut words, numbers);
            if htype == 11 {
                reply(&mut words, numbers, true);
            } else {
                words.extend(rpc);
            }
        }
        _ => words.extend([0, 0, 0]),
    }
    words
}

/// Mutates a header in a few places.
fn mutate(mut words: Vec<u32>, numbers: &mut Numbers) -> Vec<u8> {
    for _ in 0..[0, 1, 1, 1, 2, 3][numbers.below(6) as usize] {
        let at = numbers.below(words.len() as u32 + 1) as usize;
        let word = numbers.word();
        match numbers.below(5) {
            0 => words.insert(at, word),
            1 if at < words.len() => drop(words.remove(at)),
            2 => words.truncate(at.max(3)),
            _ => {
                if let Some(place) = words.get_mut(at) {
                    *place = word;
                }
            }
        }
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_be_bytes).collect();
    if numbers.once_in(16) {
        bytes.truncate(numbers.below(bytes.len() as u32 + 1) as usize);
    }
    bytes
}

/// Returns the digest of some lines (FNV-1a).
fn digest(lines: impl Iterator<Item = String>) -> u64 {
    lines.fold(0xcbf2_9ce4_8422_2325, |hash, line| {
        line.bytes().chain([b'\n']).fold(hash, |hash, octet| {
            (hash ^ u64::from(octet)).wrapping_mul(0x100_0000_01b3)
        })
    })
}

/// The lines of a block of received headers.
fn received_lines(block: usize) -> impl Iterator<Item = String> {
    let mut numbers = Numbers(block as u64);
    (0..BLOCK).map(move |_| {
        let version = [Version::One, Version::Two, Version::Earlier][numbers.below(3) as usize];
        let words = received(version, &mut numbers);
        let bytes = mutate(words, &mut numbers);
        let limits = match numbers.below(2) {
            0 if version != Version::Earlier => Limits {
                read_segments: 3,
                write_chunks: 1,
                chunk_segments: 3,
            },
            _ => Limits::DEFAULT,
        };
        decoded(version, &bytes, &limits)
    })
}

/// The lines of a block of headers to send, in buffers of all sizes.
fn sent_lines(block: usize) -> impl Iterator<Item = String> {
    let mut numbers = Numbers(0x5e17 + block as u64);
    (0..BLOCK).map(move |_| {
        let sent = Sent::new(&mut numbers);
        let mut buf = [0; 1024];
        let whole = encoded(&sent, &mut buf);
        let room = match whole {
            Ok(len) if numbers.once_in(4) => numbers.below(len as u32) as usize,
            _ => buf.len(),
        };
        let len = encoded(&sent, &mut buf[..room]);
        let octets = len.map(|len| &buf[..len]);
        format!("{:?} {octets:x?}", sent.version)
    })
}

/// Checks the digests of blocks; prints the lines of the block in `$MILLION` instead.
fn check(name: &str, expected: &[u64], compute: impl Fn(usize) -> Vec<String>) {
    let is_wanted = |block: usize| {
        std::env::var("MILLION").is_ok_and(|wanted| wanted == format!("{name}{block}"))
    };
    let blocks = if cfg!(debug_assertions) {
        expected.len() / 4
    } else {
        expected.len()
    };
    for (block, expected) in expected.iter().enumerate().take(blocks) {
        let lines = compute(block);
        if is_wanted(block) {
            lines.iter().for_each(|line| println!("{line}"));
        }
        assert_eq!(digest(lines.into_iter()), *expected, "{name} block {block}");
    }
}

#[test]
fn a_million_received_headers_mean_what_they_meant() {
    check("received", &RECEIVED, |block| {
        received_lines(block).collect()
    });
}

#[test]
fn headers_to_send_are_what_they_were() {
    check("sent", &SENT, |block| sent_lines(block).collect());
}
