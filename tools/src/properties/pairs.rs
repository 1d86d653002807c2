// SPDX-License-Identifier: GPL-2.0

//! Two sessions back to back, over any order of events, whatever is wrong with them.

use proptest::{
    collection::vec,
    prelude::*, //
};

use crate::pair::{
    self,
    Mishaps, //
};

/// Returns how many random schedules each property is tried with: `$SCHEDULES`, or some.
fn random_schedules() -> u32 {
    let wanted = std::env::var("SCHEDULES").ok();
    wanted.map_or(7500, |count| count.parse().expect("SCHEDULES is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(random_schedules()))]

    /// Two sessions back to back, over any order of events.
    #[test]
    fn pairs_get_along(schedule in vec(any::<u8>(), 0..600)) {
        pair::run(&schedule);
    }

    /// Two ends that wait for credits as long as it takes, as the module does.
    #[test]
    fn patient_pairs_get_along(schedule in vec(any::<u8>(), 0..600)) {
        pair::run_patiently(&schedule, false);
    }

    /// The same with small windows and without lost connections, so that there are more messages.
    #[test]
    fn pairs_with_small_windows_get_along(
        (start, level, windows) in (0..3_u8, 0..4_u8, [0..4_u8, 0..4_u8]),
        schedule in vec(0..29_u8, 0..400),
        sides in any::<u64>(),
    ) {
        let mut bytes = vec![start, level, 20, 20, windows[0], 20, 20, windows[1]];
        bytes.extend(schedule.iter().enumerate().map(|(index, what)| {
            let side = (sides >> (index % 64)) as u8;
            let detail = (sides >> (index % 61)) as u8 & 3;
            what | (side << 7) | (detail << 5)
        }));
        pair::run(&bytes);
    }
    /// Ends of different versions, that fall silent, begin with anything, or lose their connection.
    #[test]
    fn pairs_in_trouble_come_to_an_end(schedule in vec(any::<u8>(), 0..600)) {
        pair::run_in_trouble(&schedule);
    }
}

/// Returns schedules that are the same on every run.
fn schedules(count: usize) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 1_u64;
    (0..count).map(move |_| {
        (0..500)
            .map(|_| {
                // An xorshift generator.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    })
}

/// Both ends have messages in parts and no credits for them, and still everything comes to its end
/// although nobody gives up.
#[test]
fn who_waits_for_credits_goes_on() {
    let mut seen = pair::Seen::default();
    for schedule in schedules(400) {
        seen += pair::run_patiently(&schedule, false);
    }
    let pair::Seen {
        replied,
        continued,
        external,
        waits,
        grants,
        lost,
        grown,
        both_wait,
        quiet,
        ..
    } = seen;
    for count in [
        replied, continued, external, waits, grants, lost, grown, both_wait, quiet,
    ] {
        assert!(count > 50, "{seen:?}");
    }
}

/// A server adds Receives when its client has used all, and takes them back while their memory is
/// short, and still each message finds one.
#[test]
fn receives_come_and_go() {
    // Short Calls of the client's, messages sent and delivered each way, what the sessions want,
    // and Replies that the server makes ready.
    const USUAL: [&[u8]; 10] = [
        &[0, 1, 1, 14],
        &[0, 1, 1, 14],
        &[14],
        &[133],
        &[133],
        &[157, 189],
        &[142, 142],
        &[5, 5],
        &[20, 5],
        &[148, 155],
    ];
    let mut seen = pair::Seen::default();
    for random in schedules(300) {
        let mut schedule = vec![random[0], 200, random[1], 0, 3, 20, 20, 9, 20, 20, 11];
        for pair in random.chunks(2) {
            match pair[0] {
                // Something becomes short, or is not any more.
                0..16 => schedule.extend([221, pair[1]]),
                what => schedule.extend(USUAL[usize::from(what) % USUAL.len()]),
            }
        }
        seen += pair::run_patiently(&schedule, false);
    }
    let pair::Seen {
        replied,
        grown,
        withdrawn,
        settled,
        ..
    } = seen;
    for count in [replied, grown, withdrawn, settled] {
        assert!(count > 100, "{seen:?}");
    }
}

/// That would be seen if it were not so: a client with too few Receives beside those that hold
/// Calls of the server's.
#[test]
fn waiting_for_ever_is_noticed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let stuck = schedules(4000)
        .any(|schedule| std::panic::catch_unwind(|| pair::run_patiently(&schedule, true)).is_err());
    std::panic::set_hook(hook);
    assert!(stuck);
}

/// The schedules above are worth something: they reach whatever can happen.
#[test]
fn schedules_reach_everything() {
    let mut seen = pair::Seen::default();
    for schedule in schedules(200) {
        seen += pair::run(&schedule);
    }
    let pair::Seen {
        replied,
        failed,
        continued,
        external,
        waits,
        too_long,
        unsupported,
        grants,
        errors,
        lost,
        same_xid,
        grown: _,
        withdrawn: _,
        settled: _,
        both_wait: _,
        quiet,
    } = seen;
    for count in [
        replied,
        failed,
        continued,
        external,
        waits,
        too_long,
        unsupported,
        grants,
        errors,
        lost,
        same_xid,
        quiet,
    ] {
        assert!(count > 50, "{seen:?}");
    }
}

/// So do those in trouble.
#[test]
fn trouble_reaches_everything() {
    let mut seen = pair::Seen::default();
    let mut mishaps = Mishaps::default();
    for schedule in schedules(800) {
        let (more, wrong) = pair::run_in_trouble(&schedule);
        seen += more;
        mishaps += wrong;
    }
    let Mishaps {
        mismatches,
        fallbacks,
        in_one,
        silent,
        strange,
        first_lost,
        sayings,
        timeouts,
        unproved,
        ended,
        closed,
    } = mishaps;
    for count in [
        mismatches, fallbacks, in_one, silent, strange, first_lost, sayings, ended, closed,
        unproved,
    ]
    .into_iter()
    .chain(timeouts)
    {
        assert!(count > 30, "{mishaps:?}, {seen:?}");
    }
    assert!(seen.replied > 1000 && seen.lost > 50, "{seen:?}");
}

/// A client that has had a GRANT beyond its limit acknowledged sends no Call then. The server has
/// one Receive left, all others hold Calls, and it waits for credits for a Reply in three parts,
/// which the client has to renew.
#[test]
fn a_reply_in_parts_gets_its_credits() {
    let schedule = [
        6, 0, 0, 0, 0, 44, 23, 0, 46, 22, 208, 128, 0, 0, 0, 56, 167, 0, 0, 167, 32, 56, 195, 0, 0,
        55, 0, 0, 0, 52, 0, 0, 0, 0, 113, 0, 197, 160, 0, 0, 148, 32, 0, 167, 37, 84, 14, 46, 78,
        229, 197, 197, 223, 37, 14, 189, 52, 20, 20, 5, 206, 0, 113, 55, 5, 110, 0, 56, 0, 0, 56,
        0, 0, 0, 0, 0, 0, 0, 52, 52, 5, 0, 0, 0, 69, 52, 133, 5, 101, 37, 157, 197, 189, 165, 253,
        32, 0, 0, 148, 32, 0, 0, 69, 110, 133, 0, 0, 0, 5, 197, 46, 253, 110, 5, 253, 197, 0, 0, 0,
        0, 0, 0,
    ];
    let seen = pair::run_patiently(&schedule, false);
    assert!(seen.continued > 0 && seen.grants > 0, "{seen:?}");
}

/// The same, where the server has sent a message beyond its limit, too.
#[test]
fn only_one_end_is_beyond_its_limit() {
    let schedule = [
        0, 26, 149, 7, 1, 14, 75, 0, 93, 131, 5, 32, 10, 0, 84, 0, 0, 149, 221, 3, 165, 32, 0, 0,
        148, 69, 160, 0, 0, 96, 25, 74, 128, 0, 14, 29, 7, 174, 14, 96, 113, 0, 165, 5, 165, 5, 29,
        78, 148, 157, 0, 69, 78, 14, 221, 92, 32, 0, 0, 142, 160, 147, 0, 5, 174, 5, 133, 192, 0,
        0, 32, 0, 0, 46, 0, 0, 0, 14, 14, 14, 110, 78, 229, 46, 238, 160, 73, 0, 192, 0, 0, 206,
        206, 224, 147, 0, 101, 165, 238, 14, 174, 133, 37, 133, 14, 78, 32, 0, 0, 189, 113, 160, 0,
        0, 69, 69, 20, 20, 20, 116, 84, 96, 0, 0, 96, 0, 0, 133, 20, 84, 20, 133, 20, 84, 133, 37,
        69, 133, 69, 116, 93, 3, 133, 37, 133, 101, 46, 37, 5, 78, 69, 165, 165, 224, 0, 0, 84, 0,
        0, 0, 229, 133, 148, 29, 144, 206, 5, 101, 110,
    ];
    let seen = pair::run(&schedule);
    assert!(seen.continued > 0 && seen.grants > 0, "{seen:?}");
}

/// A client takes the first message of a server for a refusal, and goes on in Version One where the
/// server speaks Version Two: it goes beyond a window of which it knows nothing.
#[test]
fn who_is_misled_may_overrun() {
    let schedule = [
        86, 0, 97, 156, 0, 1, 0, 78, 0, 0, 0, 0, 0, 5, 5, 159, 98, 223, 15, 15, 129, 153, 80, 0,
        52, 0, 0, 0, 5, 133, 221, 80, 0, 0, 0, 180, 160, 0, 0, 206, 0, 0, 0, 101, 14, 0, 0, 0, 165,
        212,
    ];
    let (_, mishaps) = pair::run_in_trouble(&schedule);
    assert!(mishaps.strange > 0 && mishaps.closed > 0, "{mishaps:?}");
}

/// A client that was refused Version Two, and granted three Calls in Version One, makes them while
/// the server ends the connection: it has broken no rule, so that it is told why before.
#[test]
fn calls_in_version_one_do_not_hurry_the_end() {
    let schedule = [
        // One Receive on each side.
        &[4, 0, 0, 0, 0, 0, 0, 0, 0][..],
        // The server speaks Version One only, and grants three credits.
        &[55, 14, 3],
        // The offer of the client, and its Calls.
        &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 133],
        // It is refused, and calls once; the Reply grants three credits.
        &[148, 5, 14, 133, 142, 5],
        // The owner of the server ends the connection. The refusal is not known to have arrived.
        &[159, 4],
        // Three Calls arrive.
        &[14, 14, 14, 133, 133, 133, 148],
    ];
    let (_, mishaps) = pair::run_in_trouble(&schedule.concat());
    assert_eq!((mishaps.ended, mishaps.fallbacks), (1, 1), "{mishaps:?}");
    assert!(mishaps.in_one >= 5, "{mishaps:?}");
}

/// Ends of any versions, one of which begins with each kind of message, whole or damaged, and goes
/// on as it should or falls silent.
#[test]
fn every_first_message_is_put_up_with() {
    // What is wrong with it besides, and where.
    const DAMAGES: [[u8; 2]; 10] = [
        [0, 0],
        [16, 14],
        [16, 77],
        [32, 15],
        [32, 27],
        [48, 0],
        [48, 1],
        [48, 3],
        [64, 5],
        [80, 4],
    ];
    // Places in the list of versions: both, only Version Two, only Version One.
    let versions = [[0, 3, 4]; 2];
    let [clients, servers] = versions;
    let mut mishaps = Mishaps::default();
    let mut runs = 0;
    for (kind, [damage, place]) in (0..18).flat_map(|kind| DAMAGES.map(|damage| (kind, damage))) {
        for (client, server) in clients.into_iter().flat_map(|c| servers.map(|s| (c, s))) {
            // Neither end falls silent; or one does, which is the server for the first message of
            // the server.
            for (silence, whose) in [(8, 1), (8, 129), (0, 1), (16, 129)] {
                for receives in [0, 3] {
                    let end = [20, 20, receives];
                    let schedule = [
                        &[silence, 0, 3][..],
                        &end,
                        &end,
                        &[client, server, whose, kind, damage, place],
                        // Two Calls, and one of the server's when it has been called.
                        &[
                            0, 9, 90, 0, 200, 9, 20, 133, 148, 5, 20, 14, 5, 133, 148, 128, 9, 9,
                        ],
                    ];
                    mishaps += pair::run_in_trouble(&schedule.concat()).1;
                    runs += 1;
                }
            }
        }
    }
    assert_eq!(mishaps.strange, runs);
    assert!(mishaps.silent > runs / 4 && mishaps.closed > 0);
}
