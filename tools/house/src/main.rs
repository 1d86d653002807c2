// SPDX-License-Identifier: GPL-2.0

//! Figures about the structure of the module.
//!
//! `rpcrdma-house` prints a table of them, `rpcrdma-house --list FIGURE` the places that one of
//! them counts. Both read the directory `rust` of the working directory. Code that is compiled for
//! tests only, and generated files, count only in `test-lines` and `long-lines-of-tests`.

mod figures;
mod graph;
mod shape;
mod source;
#[cfg(test)]
mod testing;
mod versions;

use std::{
    collections::BTreeMap,
    env,
    fs,
    io::{
        self,
        Write, //
    },
    path::Path,
    process::ExitCode, //
};

use crate::{
    figures::{
        all,
        Figure, //
    },
    graph::Crate, //
};

/// The directory that is read.
const ROOT: &str = "rust";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let figures = match read(ROOT).and_then(|texts| Crate::new(ROOT, texts)) {
        Ok(of) => all(&of),
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let lines = match arguments[..] {
        [] => table(&figures),
        ["--list", name] => match figures.into_iter().find(|figure| figure.name == name) {
            Some(figure) => figure.places,
            None => {
                eprintln!("error: there is no figure {name}");
                return ExitCode::FAILURE;
            }
        },
        _ => {
            eprintln!("usage: rpcrdma-house [--list FIGURE]");
            return ExitCode::from(2);
        }
    };
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    // A reader may have seen enough.
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Returns the table of all figures, one line each.
fn table(figures: &[Figure]) -> Vec<String> {
    let names = figures.iter().map(|figure| figure.name.len());
    let width = names.max().unwrap_or(0);
    figures
        .iter()
        .map(|figure| format!("{:width$}  {}", figure.name, figure.value))
        .collect()
}

/// Reads all files that are neither generated nor something other than Rust, by their paths below
/// a directory.
fn read(root: &str) -> io::Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(Path::new(root).join(&directory))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{directory}{name}");
            if entry.file_type()?.is_dir() {
                waiting.push(format!("{path}/"));
            } else if name.ends_with(".rs") && !name.ends_with("_generated.rs") {
                texts.insert(path, fs::read_to_string(entry.path())?);
            }
        }
    }
    Ok(texts)
}
