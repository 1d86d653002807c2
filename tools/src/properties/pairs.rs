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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

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
        both_wait,
        ..
    } = seen;
    for count in [replied, continued, external, waits, grants, lost, both_wait] {
        assert!(count > 50, "{seen:?}");
    }
}

/// That would be seen if it were not so: a client with too few Receives beside those that hold Calls of
/// the server's.
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
        both_wait: _,
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
        ended,
        closed,
    } = mishaps;
    for count in [
        mismatches, fallbacks, in_one, silent, strange, first_lost, sayings, ended, closed,
    ]
    .into_iter()
    .chain(timeouts)
    {
        assert!(count > 30, "{mishaps:?}, {seen:?}");
    }
    assert!(seen.replied > 1000 && seen.lost > 50, "{seen:?}");
}

/// A client that was refused Version Two, and granted three Calls in Version One, makes them while the server ends the
/// connection: it has broken no rule, so that it is told why before.
#[test]
fn calls_in_version_one_do_not_hurry_the_end() {
    let schedule = [
        // One Receive on each side.
        &[4, 0, 0, 0, 0, 0, 0, 0, 0][..],
        // The server speaks Version One only, and grants three credits.
        &[55, 14, 3],
        // The offer of the client, and its Calls.
        &[20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 133],
        // The owner of the server ends the connection, for which there is a refusal to be sent.
        &[159, 4, 148],
        // The client takes that, calls, and the Calls arrive before the refusal is known to have.
        &[5, 14, 14, 14, 133, 133, 133, 148],
    ];
    let (_, mishaps) = pair::run_in_trouble(&schedule.concat());
    assert_eq!((mishaps.ended, mishaps.fallbacks), (1, 1), "{mishaps:?}");
    assert!(mishaps.in_one >= 3, "{mishaps:?}");
}

/// Ends of any versions, one of which begins with each kind of message, whole or damaged, and goes on as it should or
/// falls silent.
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
            // Neither end falls silent; or one does, which is the server for the first message of the server.
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
