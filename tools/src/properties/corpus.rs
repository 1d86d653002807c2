// SPDX-License-Identifier: GPL-2.0

//! The inputs that fuzzing has kept, once each: `tools/fuzz/corpus/NAME.hex` has those of a target,
//! an input per line. `tools/fuzz/run --keep` writes these files.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf, //
};

use crate::targets::TARGETS;

/// The directory of the kept inputs.
fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

/// Reads one input.
fn bytes(line: &str) -> Vec<u8> {
    assert!(line.len() % 2 == 0, "half a byte in {line}");
    (0..line.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&line[at..at + 2], 16).expect("hexadecimal digits"))
        .collect()
}

#[test]
fn every_kept_input_passes() {
    for (name, target) in TARGETS {
        let path = corpus().join(format!("{name}.hex"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let inputs: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert!(!inputs.is_empty(), "{path:?} has no input");
        for line in inputs {
            println!("{name}: {line}");
            target(&bytes(line));
        }
    }
}

#[test]
fn every_program_has_its_corpus() {
    let listed = |directory: PathBuf, end: &str| -> BTreeSet<String> {
        fs::read_dir(directory)
            .expect("a directory")
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .filter_map(|name| Some(name.strip_suffix(end)?.to_owned()))
            .collect()
    };
    let names: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(listed(corpus(), ".hex"), names);
    assert_eq!(
        listed(corpus().with_file_name("fuzz_targets"), ".rs"),
        names
    );
}
