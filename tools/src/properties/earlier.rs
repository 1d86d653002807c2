// SPDX-License-Identifier: GPL-2.0

//! The earlier protocol with version number two: its messages, and two ends that speak it.

use proptest::{
    collection::vec,
    prelude::*, //
};

use crate::{
    earlier::{
        self,
        Pair,
        Seen,
        Speaks, //
    },
    oracle, //
};

/// Words of which messages of the protocol are made.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0..6_u32,
        2 => prop_oneof![Just(8_u32), Just(12), Just(16), Just(20), Just(28)],
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever comes in, it is refused, or it says what a message of Version One says.
    #[test]
    fn messages_of_the_earlier_protocol(procedure in 0..6_u32, words in vec(word(), 0..40)) {
        let xid = words.first().copied().unwrap_or(0);
        let all = [xid, 2, 9, procedure].into_iter().chain(words);
        let bytes: Vec<u8> = all.flat_map(u32::to_be_bytes).collect();
        oracle::v2_2016_message(&bytes);
        oracle::rpc_message(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Two ends, over any order of events.
    #[test]
    fn ends_of_the_earlier_protocol_get_along(schedule in vec(any::<u8>(), 0..900)) {
        earlier::run(&schedule);
    }
}

/// What a client and a server speak, in all nine combinations of what they may speak.
#[test]
fn each_client_gets_along_with_each_server() {
    const ALL: [Speaks; 3] = [Speaks::One, Speaks::Two, Speaks::Earlier];
    for client in ALL {
        for server in ALL {
            let mut pair = Pair::new(client, server, [8192, 8192]);
            pair.settle();
            for _ in 0..4 {
                pair.step(0, [20, 20]);
                pair.settle();
            }
            let expected = match (client, server) {
                (Speaks::Two, Speaks::Two | Speaks::Earlier) => "draft-07",
                (Speaks::Earlier, Speaks::Earlier) => "draft-2016",
                _ => "rfc8166",
            };
            assert_eq!(pair.settle(), Some(expected), "{client:?} {server:?}");
            assert_eq!(pair.seen().replied, 4, "{client:?} {server:?}");
        }
    }
}

/// Every order of up to six events at two ends: each tells a change or asks for one, sends what it
/// has to say, and gets what is on its way. In the end both know the same.
#[test]
fn changes_may_cross_in_any_order() {
    const EVENTS: [(u8, u8); 8] = [
        (9, 0),
        (0x89, 0),
        (5, 0),
        (0x85, 0),
        (14, 0x08),
        (0x8e, 0xfe),
        (14, 0x76),
        (0x8e, 0x01),
    ];
    let mut seen = Seen::default();
    for mut order in 0..8_u32.pow(6) {
        let mut pair = Pair::new(Speaks::Earlier, Speaks::Earlier, [9000, 8000]);
        pair.settle();
        for _ in 0..6 {
            let (what, detail) = EVENTS[(order % 8) as usize];
            order /= 8;
            pair.step(what, [detail, 0]);
        }
        pair.settle();
        seen.changes += pair.seen().changes;
        seen.requests += pair.seen().requests;
    }
    assert!(seen.changes > 10_000 && seen.requests > 10_000, "{seen:?}");
}

/// A server has its Receive size lowered and raised again, and calls before its answer is on its
/// way: the Reply comes as short as the client knows it has to be.
#[test]
fn a_call_does_not_count_on_what_is_not_told() {
    const STEPS: [[u8; 3]; 17] = [
        [73, 69, 138],
        [79, 6, 132],
        [184, 100, 22],
        [187, 249, 124],
        [71, 164, 220],
        [75, 218, 98],
        [79, 126, 241],
        [165, 226, 68],
        [170, 23, 135],
        [110, 61, 140],
        [104, 106, 145],
        [41, 77, 223],
        [248, 32, 105],
        [199, 20, 88],
        [96, 67, 101],
        [230, 213, 247],
        [210, 146, 184],
    ];
    let schedule = [&[20, 138, 168][..], STEPS.as_flattened()].concat();
    earlier::run(&schedule);
}

/// First messages of 0 to 64 octets, of every procedure: what a server speaks then is what they
/// say, and does not change.
#[test]
fn the_first_message_tells_a_server_what_is_spoken() {
    oracle::first_message();
}

/// Schedules that are the same on every run reach all that may happen.
#[test]
fn everything_happens_in_the_earlier_protocol() {
    let mut all = Seen::default();
    let mut state = 1_u64;
    for _ in 0..300 {
        let schedule: Vec<u8> = (0..900)
            .map(|index| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                if index == 0 {
                    0
                } else {
                    (state >> 32) as u8
                }
            })
            .collect();
        let seen = earlier::run(&schedule);
        all.replied += seen.replied;
        all.changes += seen.changes;
        all.requests += seen.requests;
        all.chunks += seen.chunks;
        all.settled += seen.settled;
        all.grown += seen.grown;
    }
    let Seen {
        replied,
        changes,
        requests,
        chunks,
        settled,
        grown,
    } = all;
    assert!(
        replied > 1000 && changes > 300 && requests > 300 && chunks > 100 && settled > 100,
        "{all:?}"
    );
    assert!(grown > 20, "{all:?}");
}
