// SPDX-License-Identifier: GPL-2.0

//! The module and a peer that was written from the text of the draft alone.

use std::collections::BTreeMap;

use crate::literal::{
    run,
    Fate,
    Load,
    Reading, //
};

/// Returns how many RPCs are made in each run: a sample, or what the soak wants.
fn count() -> u32 {
    std::env::var("LITERAL_RPCS").map_or(30, |count| count.parse().expect("it is a number"))
}

/// Returns what became of each reading under each load.
fn fates() -> impl Iterator<Item = (Reading, Load, Fate)> {
    let readings = Reading::all().into_iter();
    let all = readings.flat_map(|reading| Load::ALL.map(|load| (reading, load)));
    all.map(|(reading, load)| (reading, load, run(&reading, load, count(), 7)))
}

/// With every reading that the text allows each RPC ends well, and no more than one connection is
/// lost; what is not served is known ([`Reading::unserved`]). Prints what became of all of them,
/// those that the text does not allow included.
#[test]
fn every_reading_is_served() {
    let mut rows: BTreeMap<String, (u32, Fate, Reading)> = BTreeMap::new();
    let mut bad = 0;
    for (reading, load, fate) in fates() {
        let is_allowed = reading.objection().is_none();
        bad += u32::from(is_allowed && !fate.is_good() && reading.unserved().is_none());
        let key = format!(
            "{} {} {load:?} {:?} {:?}{}{}{}{}: lost {}, failed {}, unended {}, {:?} {:?}{}",
            if is_allowed { "allowed" } else { "refused" },
            if reading.is_client {
                "client"
            } else {
                "server"
            },
            reading.counted,
            reading.remaining,
            if reading.few_segments {
                " few segments"
            } else {
                ""
            },
            if reading.renews { "" } else { " not renewed" },
            if reading.counts_control {
                ""
            } else {
                " control not counted"
            },
            if reading.grants_between {
                " GRANT between"
            } else {
                ""
            },
            fate.lost.min(2),
            fate.failed.min(1),
            fate.unended.min(1),
            fate.reasons,
            fate.errors,
            if fate.in_one { " Version One" } else { "" },
        );
        let row = rows.entry(key).or_insert((0, fate, reading));
        row.0 += 1;
    }
    for (key, (count, fate, reading)) in &rows {
        println!("{count:5} {key}");
        if !fate.is_good() {
            println!("      {fate:?}\n      {reading:?}");
        }
    }
    assert_eq!(bad, 0, "readings that are not served");
}
