// SPDX-License-Identifier: GPL-2.0

//! The fuzz targets by name. Each takes arbitrary bytes and panics where the core is wrong.

use crate::{
    earlier,
    oracle,
    pair, //
};

/// What runs one input.
type Target = fn(&[u8]);

/// Every target, by name.
pub const TARGETS: [(&str, Target); 15] = [
    ("auth", oracle::auth),
    ("chunk_lists", oracle::chunk_lists),
    ("cm_private", oracle::cm_private),
    ("continuation", oracle::continuation),
    ("credits", oracle::credits),
    ("earlier", of_2016),
    ("format", oracle::format),
    ("pair", pair_of_sessions),
    ("properties", oracle::properties),
    ("rpc_message", oracle::rpc_message),
    ("session", oracle::session),
    ("v1_message", oracle::v1_message),
    ("v2_2016_message", oracle::v2_2016_message),
    ("v2_message", oracle::v2_message),
    ("xdr", oracle::xdr),
];

/// Both ends of the 2016 draft.
fn of_2016(bytes: &[u8]) {
    earlier::run(bytes);
}

/// Two sessions back to back: ends that give up, ends that wait, and ends with which something is
/// wrong.
fn pair_of_sessions(bytes: &[u8]) {
    pair::run(bytes);
    pair::run_patiently(bytes, false);
    pair::run_in_trouble(bytes);
}
