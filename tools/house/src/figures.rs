// SPDX-License-Identifier: GPL-2.0

//! The figures, and the places that they count.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use crate::{
    graph::{
        circles,
        Crate,
        Edges, //
    },
    shape::{
        repeated,
        Shape, //
    },
    source::{
        Line,
        Source, //
    },
    versions::decisions, //
};

/// First words of doc comments that begin with neither a verb nor a name.
const EMPTY_WORDS: [&str; 6] = ["how", "of", "so", "what", "whether", "who"];

/// Rooms that may have unsafe code.
const UNSAFE_ROOMS: [&str; 6] = ["endpoint", "kext", "observe", "rdma", "sunrpc", "sys"];

/// Columns that a line has at most.
const COLUMNS: usize = 100;

/// One line of the table.
pub(crate) struct Figure {
    /// The name, also of the list of places.
    pub(crate) name: String,
    /// The value.
    pub(crate) value: String,
    /// What is counted, one line each.
    pub(crate) places: Vec<String>,
}

impl Figure {
    /// Makes a figure that is the number of its places.
    fn count(name: &str, places: Vec<String>) -> Self {
        Self {
            name: name.into(),
            value: places.len().to_string(),
            places,
        }
    }
}

/// Returns all figures, in the order of the table.
pub(crate) fn all(of: &Crate) -> Vec<Figure> {
    let mut sources: Vec<&Source> = of.sources.iter().collect();
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    let each = |find: &dyn Fn(&Source) -> Vec<String>| -> Vec<String> {
        sources.iter().flat_map(|source| find(source)).collect()
    };
    let shapes: Vec<Shape> = sources.iter().map(|source| Shape::of(source)).collect();
    let shaped = |list: fn(&Shape) -> &Vec<String>| -> Vec<String> {
        shapes.iter().flat_map(list).cloned().collect()
    };
    let types: Vec<_> = shapes
        .iter()
        .flat_map(|shape| shape.types.iter().cloned())
        .collect();
    let edges = of.edges();
    let (inside, between): (Vec<_>, Vec<_>) = file_circles(of, &edges, true)
        .into_iter()
        .partition(|files| rooms_of(of, files).len() == 1);
    let without_traits = file_circles(of, &edges, false);

    let code = |source: &Source| source.count(Line::Code);
    let test = |source: &Source| source.count(Line::Test);
    let mut figures = sum_by_room("code-lines", &sources, &code);
    figures.extend(sum_by_room("import-lines", &sources, &Source::imports));
    figures.extend(
        sum_by_room("test-lines", &sources, &test)
            .into_iter()
            .take(1),
    );
    figures.extend([
        Figure::count("version-decisions", each(&version_decisions)),
        Figure::count("long-functions", shaped(|shape| &shape.long)),
        Figure::count("many-arguments", shaped(|shape| &shape.arguments)),
        Figure::count("long-lines", each(&|source| long_lines(source, false))),
        Figure::count(
            "long-lines-of-tests",
            each(&|source| long_lines(source, true)),
        ),
        Figure::count("match-on-bool", shaped(|shape| &shape.match_bool)),
        docs(&sources),
        Figure::count("repeated-types", repeated(&types)),
        circles_of("file-circles-inside-rooms", of, &edges, &inside),
        circles_of("file-circles-between-rooms", of, &edges, &between),
        circles_of("file-circles-without-traits", of, &edges, &without_traits),
        room_circles(of, &edges),
    ]);
    figures.extend(unsafe_by_room(&sources));
    figures.extend([
        Figure::count("unsafe-elsewhere", each(&unsafe_elsewhere)),
        Figure::count("dead-code-allowed", shaped(|shape| &shape.dead_code)),
    ]);
    figures
}

/// Returns how many lines are of a kind, in all and in each room.
fn sum_by_room(name: &str, sources: &[&Source], count: &dyn Fn(&Source) -> usize) -> Vec<Figure> {
    let files = sources.iter().map(|source| {
        let count = count(source);
        let places = match count {
            0 => Vec::new(),
            _ => vec![format!("{}: {count}", source.path)],
        };
        (source.room.as_str(), count, places)
    });
    by_room(name, files)
}

/// Returns the blocks of unsafe code, in all and in each room.
fn unsafe_by_room(sources: &[&Source]) -> Vec<Figure> {
    let files = sources.iter().map(|source| {
        let places = unsafe_blocks(source);
        (source.room.as_str(), places.len(), places)
    });
    by_room("unsafe-blocks", files)
}

/// Returns a figure and its parts by room, of the numbers of files: room, number, places.
fn by_room<'a>(
    name: &str,
    files: impl Iterator<Item = (&'a str, usize, Vec<String>)>,
) -> Vec<Figure> {
    let mut rooms: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    let mut sum = (0, Vec::new());
    for (room, number, places) in files {
        for part in [&mut sum, rooms.entry(room).or_default()] {
            part.0 += number;
            part.1.extend_from_slice(&places);
        }
    }
    let figure = |name: String, (number, places): (usize, Vec<String>)| Figure {
        name,
        value: number.to_string(),
        places,
    };
    let mut figures = vec![figure(name.into(), sum)];
    for (room, part) in rooms.into_iter().filter(|(_, part)| part.0 > 0) {
        figures.push(figure(format!("{name}/{room}"), part));
    }
    figures
}

fn version_decisions(source: &Source) -> Vec<String> {
    match source.room.as_str() {
        "proto" => Vec::new(),
        _ => decisions(source),
    }
}

/// Returns the lines with too many columns, of tests or of all else.
fn long_lines(source: &Source, tests: bool) -> Vec<String> {
    let rows = source.text.lines().zip(&source.lines).enumerate();
    rows.filter(|(_, (row, kind))| (**kind == Line::Test) == tests && row.chars().count() > COLUMNS)
        .map(|(at, (row, _))| format!("{}:{}: {}", source.path, at + 1, row.chars().count()))
        .collect()
}

/// Returns which part of the blocks of doc comments begins with an empty word.
fn docs(sources: &[&Source]) -> Figure {
    let all: usize = sources.iter().map(|source| source.docs.len()).sum();
    let mut places = Vec::new();
    for source in sources {
        for (line, word) in &source.docs {
            if EMPTY_WORDS.contains(&word.as_str()) {
                places.push(format!("{}:{line}: {word}", source.path));
            }
        }
    }
    let tenths = (places.len() * 1000 + all / 2) / all.max(1);
    Figure {
        name: "docs-with-empty-beginning".into(),
        value: format!(
            "{}.{} % ({} of {all})",
            tenths / 10,
            tenths % 10,
            places.len()
        ),
        places,
    }
}

/// Returns the circles of files, with those edges or without that name nothing but traits.
fn file_circles(of: &Crate, edges: &Edges, traits: bool) -> Vec<Vec<usize>> {
    let edges: BTreeSet<(usize, usize)> = edges
        .iter()
        .filter(|(_, names)| traits || names.values().any(|is_trait| !is_trait))
        .map(|(edge, _)| *edge)
        .collect();
    circles(of.sources.len(), &edges)
}

/// Returns the rooms that some files are in.
fn rooms_of<'a>(of: &'a Crate, files: &[usize]) -> BTreeSet<&'a str> {
    files
        .iter()
        .map(|file| of.sources[*file].room.as_str())
        .collect()
}

/// Makes a figure of circles: how many of how many files, and what makes them.
fn circles_of(name: &str, of: &Crate, edges: &Edges, circles: &[Vec<usize>]) -> Figure {
    let files: usize = circles.iter().map(Vec::len).sum();
    let mut places = Vec::new();
    for circle in circles {
        places.push(format!("circle of {} files", circle.len()));
        let within = |from: usize, to: usize| circle.contains(&from) && circle.contains(&to);
        places.extend(arrows(of, edges, within));
    }
    Figure {
        name: name.into(),
        value: match circles.len() {
            0 => "0".into(),
            count => format!("{count} (of {files} files)"),
        },
        places,
    }
}

/// Describes some of the edges, sorted.
///
/// One that names nothing but traits is marked: types that are generic over a trait, which in turn
/// has these types in its methods, are no worse for it.
fn arrows(of: &Crate, edges: &Edges, which: impl Fn(usize, usize) -> bool) -> Vec<String> {
    let some = edges.iter().filter(|((from, to), _)| which(*from, *to));
    let mut arrows: Vec<String> = some
        .map(|((from, to), names)| {
            let traits = names.values().all(|is_trait| *is_trait);
            let mark = if traits { " (trait)" } else { "" };
            let names: Vec<&str> = names.keys().map(String::as_str).collect();
            let (from, to) = (&of.sources[*from].path, &of.sources[*to].path);
            format!("  {from} -> {to}: {}{mark}", names.join(", "))
        })
        .collect();
    arrows.sort();
    arrows
}

/// Makes the figure of circles of rooms, with the edges between files that make them.
fn room_circles(of: &Crate, edges: &Edges) -> Figure {
    let files: Vec<usize> = (0..of.sources.len()).collect();
    let rooms: Vec<&str> = rooms_of(of, &files).into_iter().collect();
    let room = |file: usize| {
        let name = of.sources[file].room.as_str();
        rooms.iter().position(|room| *room == name).unwrap_or(0)
    };
    let between: BTreeSet<(usize, usize)> = edges
        .keys()
        .map(|(from, to)| (room(*from), room(*to)))
        .filter(|(from, to)| from != to)
        .collect();
    let circles = circles(rooms.len(), &between);
    let mut places = Vec::new();
    for circle in &circles {
        let names: Vec<&str> = circle.iter().map(|at| rooms[*at]).collect();
        places.push(format!("circle of {}", names.join(", ")));
        let within = |from: usize, to: usize| {
            let (from, to) = (room(from), room(to));
            from != to && circle.contains(&from) && circle.contains(&to)
        };
        places.extend(arrows(of, edges, within));
    }
    Figure {
        name: "room-circles".into(),
        value: circles.len().to_string(),
        places,
    }
}

/// Returns the blocks of unsafe code, those in macros included.
fn unsafe_blocks(source: &Source) -> Vec<String> {
    let pairs = source.tokens.windows(2);
    pairs
        .filter(|pair| pair[0].text == "unsafe" && pair[1].text == "{")
        .map(|pair| format!("{}:{}", source.path, pair[0].line))
        .collect()
}

/// Returns unsafe code of any kind in a room that must not have any.
fn unsafe_elsewhere(source: &Source) -> Vec<String> {
    if UNSAFE_ROOMS.contains(&source.room.as_str()) {
        return Vec::new();
    }
    let tokens = source.tokens.iter();
    tokens
        .filter(|token| token.text == "unsafe")
        .map(|token| format!("{}:{}", source.path, token.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(files: &[(&str, &str)]) -> BTreeMap<String, (String, Vec<String>)> {
        let files = files.iter();
        let files = files.map(|(path, text)| (path.to_string(), text.to_string()));
        let of = Crate::new("rust", files.collect()).unwrap();
        let figures = all(&of).into_iter();
        figures
            .map(|figure| (figure.name, (figure.value, figure.places)))
            .collect()
    }

    #[test]
    fn rooms_have_their_parts_of_a_figure() {
        let found = figures(&[
            ("rpcrdma_main.rs", "mod a;\nmod rdma;\n"),
            ("a.rs", "fn f() {}\n"),
            (
                "rdma/mod.rs",
                "mod cm;\nfn g() { unsafe { f() }; log!(unsafe { g() }) }\n",
            ),
            ("rdma/cm.rs", "unsafe fn f() { unsafe { g() } }\n"),
        ]);
        assert_eq!(found["code-lines"].0, "6");
        assert_eq!(found["code-lines/main"].0, "2");
        assert_eq!(found["code-lines/a"].1, ["rust/a.rs: 1"]);
        assert_eq!(found["unsafe-blocks"].0, "3");
        assert_eq!(found["unsafe-blocks/rdma"].0, "3");
        assert!(!found.contains_key("unsafe-blocks/a"));
        assert_eq!(found["unsafe-elsewhere"].0, "0");
    }

    #[test]
    fn unsafe_code_of_any_kind_is_found_elsewhere() {
        let found = figures(&[
            ("rpcrdma_main.rs", "mod link;\n"),
            (
                "link.rs",
                "#![deny(unsafe_code)]\n// unsafe\nunsafe impl Send for A {}\n",
            ),
        ]);
        assert_eq!(found["unsafe-elsewhere"].1, ["rust/link.rs:3"]);
    }

    #[test]
    fn decisions_of_the_protocol_core_are_its_own() {
        let text = "fn f() { if version == Version::Two {} }\n";
        let found = figures(&[
            ("rpcrdma_main.rs", "mod link; mod proto;\n"),
            ("link.rs", text),
            ("proto/mod.rs", text),
        ]);
        assert_eq!(found["version-decisions"].0, "1");
    }

    #[test]
    fn columns_are_characters() {
        let text = format!("// {}\n// {}\n", "\u{e9}".repeat(97), "e".repeat(98));
        let found = figures(&[("rpcrdma_main.rs", &text)]);
        assert_eq!(found["long-lines"].1, ["rust/rpcrdma_main.rs:2: 101"]);
        let test = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        let found = figures(&[("rpcrdma_main.rs", &test)]);
        assert_eq!(found["long-lines"].0, "0");
        assert_eq!(found["long-lines-of-tests"].0, "1");
    }

    #[test]
    fn docs_are_told_apart_by_their_first_word() {
        let text = "//! Returns.\n\n/// What.\nstruct A;\n/// Of B.\nstruct B;\n";
        let found = figures(&[("rpcrdma_main.rs", text)]);
        assert_eq!(found["docs-with-empty-beginning"].0, "66.7 % (2 of 3)");
    }

    #[test]
    fn circles_are_told_apart_by_rooms_and_traits() {
        let found = figures(&[
            ("rpcrdma_main.rs", "mod a; mod b;\n"),
            (
                "a/mod.rs",
                "mod one; mod two; pub(crate) struct A(crate::b::B);\n",
            ),
            (
                "a/one.rs",
                "pub(crate) trait T { fn f(two: super::two::Two<Self>); }\n",
            ),
            (
                "a/two.rs",
                "use super::one::T; pub(crate) struct Two<U: T>(U);\n",
            ),
            ("b.rs", "pub(crate) struct B; use crate::a::A;\n"),
        ]);
        assert_eq!(found["file-circles-inside-rooms"].0, "1 (of 2 files)");
        assert_eq!(found["file-circles-inside-rooms"].1.len(), 3);
        assert_eq!(
            found["file-circles-inside-rooms"].1[2],
            "  rust/a/two.rs -> rust/a/one.rs: T (trait)"
        );
        assert_eq!(found["file-circles-between-rooms"].0, "1 (of 2 files)");
        assert_eq!(found["file-circles-without-traits"].0, "1 (of 2 files)");
        assert_eq!(found["room-circles"].0, "1");
        assert_eq!(found["room-circles"].1[0], "circle of a, b");
    }
}
