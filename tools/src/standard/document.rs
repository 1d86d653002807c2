// SPDX-License-Identifier: GPL-2.0

//! The examples in the documents, which tests compare with what the code does.

use std::{
    fs,
    path::PathBuf,
    sync::Mutex, //
};

/// The environment variable that has the documents written anew instead of compared.
const WRITE: &str = "WRITE_DOCUMENTS";

/// Several tests write to one document.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The path of a document.
fn path(document: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../Documentation/protocol/standard")
        .join(document)
}

/// Checks that an example of a document is `lines`, or writes it if `WRITE_DOCUMENTS` is set.
///
/// # Panics
///
/// If the document shows something else, or has no such example.
pub(super) fn check(document: &str, example: &str, lines: &[String]) {
    let guard = ONE_AT_A_TIME.lock().unwrap();
    let path = path(document);
    let text = fs::read_to_string(&path).unwrap();
    let replaced = replaced(&text, example, lines)
        .unwrap_or_else(|| panic!("{document} has no example {example}"));
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, &replaced).unwrap();
    }
    drop(guard);
    let is_written = std::env::var_os(WRITE).is_some();
    assert!(
        is_written || text == replaced,
        "{document} shows another example {example}; {WRITE}=1 writes:\n{}",
        lines.join("\n")
    );
}

/// Returns a document with an example replaced, or [`None`] if it has no such example.
fn replaced(text: &str, example: &str, lines: &[String]) -> Option<String> {
    let begin = format!(".. example {example}\n");
    let end = format!(".. end of {example}\n");
    let from = text.find(&begin)? + begin.len();
    let to = from + text[from..].find(&end)?;
    let mut new = format!("{}\n::\n\n", &text[..from]);
    for line in lines {
        let line = format!("   {line}");
        new += line.trim_end();
        new.push('\n');
    }
    new.push('\n');
    new += &text[to..];
    Some(new)
}

/// An example that differs is noticed, and what is written is accepted.
#[test]
fn examples_that_differ_are_noticed() {
    let text = "before\n.. example one\nold\n.. end of one\nafter\n";
    let lines = ["new".to_string(), String::new(), "last ".to_string()];
    let new = replaced(text, "one", &lines).unwrap();
    assert_eq!(
        new,
        "before\n.. example one\n\n::\n\n   new\n\n   last\n\n.. end of one\nafter\n"
    );
    assert_eq!(replaced(&new, "one", &lines), Some(new.clone()));
    assert_ne!(replaced(&new, "one", &lines[..1]), Some(new));
    assert_eq!(replaced(text, "two", &lines), None);
}
