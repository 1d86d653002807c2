// SPDX-License-Identifier: GPL-2.0

//! Which files name items of which others, and circles of them.
//!
//! An item is named by an import or by a path in the code, macro calls included; re-exports are
//! followed to the file that defines it. Declaring a module, importing one, and re-exporting what
//! the file itself does not use name nothing. Nor does a call of a method, whose type is not known
//! here.

use std::{
    collections::{
        BTreeMap,
        BTreeSet,
        HashMap,
        HashSet, //
    },
    io, //
};

use syn::{
    spanned::Spanned,
    visit::{
        self,
        Visit, //
    },
    Item,
    UseTree,
    Visibility, //
};

use crate::source::{
    is_test,
    room,
    Source,
    Token, //
};

/// How many re-exports lead to an item at most.
const DEPTH: usize = 16;

/// The first file of the module.
const MAIN: &str = "rpcrdma_main.rs";

/// The files of the module, and its tree of modules.
pub(crate) struct Crate {
    /// The files, those that are only tests included.
    pub(crate) sources: Vec<Source>,
    modules: Vec<Module>,
    /// Modules within files: file, first and last line, module. Inner ones come later.
    inline: Vec<(usize, usize, usize, usize)>,
    /// Imports: module, path, name that it gives, whether it is a re-export.
    imports: Vec<Import>,
}

struct Import {
    module: usize,
    path: Vec<String>,
    name: String,
    public: bool,
}

struct Module {
    parent: Option<usize>,
    file: usize,
    children: HashMap<String, usize>,
    /// The items, and whether each is a trait.
    items: HashMap<String, bool>,
    /// Paths by the names that they are imported as.
    names: HashMap<String, Vec<Vec<String>>>,
    globs: Vec<Vec<String>>,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Module(usize),
    /// An item of a file, and whether it is a trait.
    Item(usize, bool),
}

/// The items that one file names of another one, and whether each is a trait.
pub(crate) type Edges = BTreeMap<(usize, usize), BTreeMap<String, bool>>;

impl Crate {
    /// Takes all files of the module, by their paths below `root`.
    ///
    /// # Errors
    ///
    /// A file is not Rust, or belongs to no module.
    pub(crate) fn new(root: &str, mut texts: BTreeMap<String, String>) -> io::Result<Self> {
        let mut this = Self {
            sources: Vec::new(),
            modules: Vec::new(),
            inline: Vec::new(),
            imports: Vec::new(),
        };
        let mut waiting = vec![(MAIN.to_string(), None, String::new(), false)];
        while let Some((inner, parent, name, test)) = waiting.pop() {
            let Some(text) = texts.remove(&inner) else {
                return Err(io::Error::other(format!("{root}/{inner} is missing")));
            };
            let last = inner.rsplit('/').next().unwrap_or(&inner);
            let test = test || last == "testing.rs" || inner.split('/').any(|part| part == "tests");
            let path = format!("{root}/{inner}");
            let bad = |error: syn::Error| {
                let line = error.span().start().line;
                io::Error::other(format!("{root}/{inner}:{line}: {error}"))
            };
            // With the modules of tests, which the tree of the source is without.
            let all = syn::parse_file(&text).map_err(bad)?;
            let source = Source::parse(path, room(&inner), text, test).map_err(bad)?;
            let directory = match last {
                MAIN => "",
                "mod.rs" => inner.trim_end_matches("mod.rs"),
                _ => &format!("{}/", inner.trim_end_matches(".rs")),
            };
            let module = this.module(parent, name, this.sources.len());
            for item in &all.items {
                let Item::Mod(item) = item else { continue };
                if item.content.is_some() {
                    continue;
                }
                let name = item.ident.to_string();
                let mut child = format!("{directory}{name}.rs");
                if !texts.contains_key(&child) {
                    child = format!("{directory}{name}/mod.rs");
                }
                waiting.push((child, Some(module), name, test || is_test(&item.attrs)));
            }
            let mut collect = Collect {
                file: this.sources.len(),
                module,
                this: &mut this,
            };
            collect.items(&source.syntax.items);
            collect.visit_file(&source.syntax);
            this.sources.push(source);
        }
        match texts.keys().next() {
            Some(stray) => Err(io::Error::other(format!("{root}/{stray} is in no module"))),
            None => Ok(this),
        }
    }

    fn module(&mut self, parent: Option<usize>, name: String, file: usize) -> usize {
        let module = self.modules.len();
        self.modules.push(Module {
            parent,
            file,
            children: HashMap::new(),
            items: HashMap::new(),
            names: HashMap::new(),
            globs: Vec::new(),
        });
        if let Some(parent) = parent {
            self.modules[parent].children.insert(name, module);
        }
        module
    }

    /// Returns what files name of each other.
    pub(crate) fn edges(&self) -> Edges {
        let mut edges = Edges::new();
        let mut add = |from: usize, target: Option<Target>, name: &str| {
            if let Some(Target::Item(to, is_trait)) = target {
                if from != to {
                    let names = edges.entry((from, to)).or_default();
                    names.insert(name.to_string(), is_trait);
                }
            }
        };
        let used: Vec<HashSet<&str>> = self
            .sources
            .iter()
            .map(|source| {
                let tokens = outside_imports(&source.tokens);
                tokens.map(|token| token.text.as_str()).collect()
            })
            .collect();
        for import in &self.imports {
            let file = self.modules[import.module].file;
            if import.public && !used[file].contains(import.name.as_str()) {
                continue;
            }
            let target = self.resolve(import.module, &import.path, DEPTH);
            add(file, target, import.path.last().map_or("", String::as_str));
        }
        for (file, source) in self.sources.iter().enumerate() {
            for (line, path) in paths(&source.tokens) {
                let module = self.module_at(file, line);
                let target = self.resolve(module, &path, DEPTH);
                // An import is counted where it stands.
                let known = path.len() > 1 || matches!(target, Some(Target::Module(_)));
                if known || !self.modules[module].globs.is_empty() {
                    add(file, target, &self.item_name(module, &path));
                }
            }
        }
        edges
    }

    /// Returns the module that a line of a file is in.
    fn module_at(&self, file: usize, line: usize) -> usize {
        let mut inline = self.inline.iter().rev();
        inline
            .find(|(of, first, last, _)| *of == file && (*first..=*last).contains(&line))
            .map(|(.., module)| *module)
            .or_else(|| self.modules.iter().position(|module| module.file == file))
            .unwrap_or(0)
    }

    /// Returns the part of a path that names the item: `Foo` of `a::Foo::new`.
    fn item_name(&self, module: usize, path: &[String]) -> String {
        (1..=path.len())
            .find(|len| {
                matches!(
                    self.resolve(module, &path[..*len], DEPTH),
                    Some(Target::Item(..))
                )
            })
            .map_or_else(String::new, |len| path[len - 1].clone())
    }

    fn resolve(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        if first == "crate" {
            return self.walk(0, rest, depth);
        }
        self.walk_if(module, first, rest, depth)
    }

    fn walk(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else {
            return Some(Target::Module(module));
        };
        let found = self.walk_if(module, first, rest, depth);
        // What a macro defines is not seen here; it is in the file all the same.
        let unseen = found.is_none() && module != 0 && depth == DEPTH;
        if unseen {
            Some(Target::Item(self.modules[module].file, false))
        } else {
            found
        }
    }

    fn walk_if(&self, module: usize, first: &str, rest: &[String], depth: usize) -> Option<Target> {
        let next = match first {
            "super" => Target::Module(self.modules[module].parent?),
            "self" => Target::Module(module),
            _ => self.look_up(module, first, rest.is_empty(), depth)?,
        };
        match next {
            Target::Module(module) => self.walk(module, rest, depth),
            item => Some(item),
        }
    }

    /// Finds a name in a module; `last` is false if more of the path follows.
    fn look_up(&self, at: usize, name: &str, last: bool, depth: usize) -> Option<Target> {
        let module = &self.modules[at];
        let depth = depth.checked_sub(1)?;
        let child = module
            .children
            .get(name)
            .map(|child| Target::Module(*child));
        let item = module.items.get(name);
        let item = item.map(|is_trait| Target::Item(module.file, *is_trait));
        let imported = || {
            let mut paths = module.names.get(name).into_iter().flatten();
            paths.find_map(|path| self.resolve(at, path, depth))
        };
        let globs = || {
            let mut globs = module.globs.iter();
            globs.find_map(|path| match self.resolve(at, path, depth)? {
                Target::Module(of) if of != at => self.look_up(of, name, last, depth),
                _ => None,
            })
        };
        let found = if last {
            item.or_else(imported).or(child)
        } else {
            child.or_else(imported).or(item)
        };
        found.or_else(globs)
    }
}

/// Collects the items and imports of a file.
struct Collect<'a> {
    this: &'a mut Crate,
    file: usize,
    module: usize,
}

impl Collect<'_> {
    fn items(&mut self, items: &[Item]) {
        for item in items {
            let (name, is_trait) = match item {
                Item::Const(item) => (&item.ident, false),
                Item::Enum(item) => (&item.ident, false),
                Item::Fn(item) => (&item.sig.ident, false),
                Item::Static(item) => (&item.ident, false),
                Item::Struct(item) => (&item.ident, false),
                Item::Trait(item) => (&item.ident, true),
                Item::Type(item) => (&item.ident, false),
                Item::Union(item) => (&item.ident, false),
                Item::Macro(item) => match &item.ident {
                    Some(name) => (name, false),
                    None => continue,
                },
                _ => continue,
            };
            let items = &mut self.this.modules[self.module].items;
            items.insert(name.to_string(), is_trait);
        }
    }

    fn import(&mut self, tree: &UseTree, path: &mut Vec<String>, public: bool) {
        match tree {
            UseTree::Path(of) => {
                path.push(of.ident.to_string());
                self.import(&of.tree, path, public);
                path.pop();
            }
            UseTree::Name(of) => self.imported(path, &of.ident, &of.ident, public),
            UseTree::Rename(of) => self.imported(path, &of.ident, &of.rename, public),
            UseTree::Glob(_) => self.this.modules[self.module].globs.push(path.clone()),
            UseTree::Group(of) => {
                for tree in &of.items {
                    self.import(tree, path, public);
                }
            }
        }
    }

    fn imported(&mut self, path: &[String], item: &syn::Ident, name: &syn::Ident, public: bool) {
        let mut path = path.to_vec();
        let mut name = name.to_string();
        if item == "self" {
            if name == "self" {
                name = path.last().cloned().unwrap_or_default();
            }
        } else {
            path.push(item.to_string());
        }
        // A macro is given a path by importing it where it stands.
        if path != [name.as_str()] {
            let names = &mut self.this.modules[self.module].names;
            names.entry(name.clone()).or_default().push(path.clone());
        }
        self.this.imports.push(Import {
            module: self.module,
            path,
            name,
            public,
        });
    }
}

impl<'ast> Visit<'ast> for Collect<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let public = !matches!(item.vis, Visibility::Inherited);
            self.import(&item.tree, &mut Vec::new(), public);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let Some((_, items)) = &item.content else {
            return;
        };
        let outer = self.module;
        self.module = self
            .this
            .module(Some(outer), item.ident.to_string(), self.file);
        let span = item.span();
        let (first, last) = (span.start().line, span.end().line);
        self.this.inline.push((self.file, first, last, self.module));
        self.items(items);
        visit::visit_item_mod(self, item);
        self.module = outer;
    }
}

/// Returns the tokens that no `use` is made of.
fn outside_imports(tokens: &[Token]) -> impl Iterator<Item = &Token> {
    let mut inside = false;
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        let next = tokens.get(at + 1).map_or("", |token| token.text.as_str());
        // `use<'a>` is part of a type.
        if token.text == "use" && next != "<" {
            inside = true;
        }
        let outside = !inside;
        inside &= token.text != ";";
        // To declare a module is not to use what has its name.
        let declares = at > 0 && tokens[at - 1].text == "mod" && next == ";";
        (outside && !declares).then_some(token)
    })
}

/// Returns the paths in the code, other than those of imports, with their lines.
fn paths(tokens: &[Token]) -> Vec<(usize, Vec<String>)> {
    let tokens: Vec<&Token> = outside_imports(tokens).collect();
    let is_name = |at: usize| {
        let first = tokens
            .get(at)
            .and_then(|token: &&Token| token.text.chars().next());
        first.is_some_and(|c| c.is_alphabetic() || c == '_')
    };
    let is_separator = |at: usize| {
        let colon = |at: usize| {
            tokens
                .get(at)
                .is_some_and(|token: &&Token| token.text == ":")
        };
        colon(at) && tokens[at].joint && colon(at + 1)
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !is_name(at) {
            // Paths of other crates, and those that go on behind `>`.
            at += if is_separator(at) && is_name(at + 2) {
                3
            } else {
                1
            };
            continue;
        }
        let first = at;
        let mut path = vec![tokens[at].text.clone()];
        while is_separator(at + 1) && is_name(at + 3) {
            at += 3;
            path.push(tokens[at].text.clone());
        }
        // Fields and methods are none.
        if first == 0 || tokens[first - 1].text != "." {
            found.push((tokens[first].line, path));
        }
        at += 1;
    }
    found
}

/// Returns the sets of nodes that can all be reached from each other, those of one left out.
pub(crate) fn circles(count: usize, edges: &BTreeSet<(usize, usize)>) -> Vec<Vec<usize>> {
    let reach: Vec<BTreeSet<usize>> = (0..count)
        .map(|start| {
            let mut seen = BTreeSet::new();
            let mut waiting = vec![start];
            while let Some(from) = waiting.pop() {
                for (_, to) in edges.range((from, 0)..(from + 1, 0)) {
                    if seen.insert(*to) {
                        waiting.push(*to);
                    }
                }
            }
            seen
        })
        .collect();
    let mut circles = Vec::new();
    for node in 0..count {
        let others = reach[node].iter().copied();
        let all: Vec<usize> = others
            .filter(|other| reach[*other].contains(&node))
            .collect();
        if all.len() > 1 && all[0] == node {
            circles.push(all);
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Crate {
        let files = files.iter();
        let files = files.map(|(path, text)| (path.to_string(), text.to_string()));
        Crate::new("rust", files.collect()).unwrap()
    }

    /// Returns the arrows between files, as text.
    fn arrows(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph(files);
        let name = |file: usize| &graph.sources[file].path["rust/".len()..];
        let mut arrows = Vec::new();
        for ((from, to), names) in graph.edges() {
            let names: Vec<String> = names
                .into_iter()
                .map(|(name, is_trait)| if is_trait { format!("{name}*") } else { name })
                .collect();
            arrows.push(format!(
                "{} -> {}: {}",
                name(from),
                name(to),
                names.join(" ")
            ));
        }
        arrows.sort();
        arrows
    }

    #[test]
    fn imports_are_followed_through_re_exports() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a; mod b;"),
            (
                "a/mod.rs",
                "mod inner; pub(crate) use self::inner::{Foo as Bar, Does};",
            ),
            (
                "a/inner.rs",
                "pub(crate) struct Foo; pub(crate) trait Does {}",
            ),
            ("b.rs", "use crate::a::{self, Bar, Does};"),
        ]);
        assert_eq!(found, ["b.rs -> a/inner.rs: Bar Does*"]);
    }

    #[test]
    fn paths_in_code_and_macros_name_items() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a; mod b; mod c;"),
            (
                "a.rs",
                "pub(crate) enum E { V } pub(crate) fn f() {} pub(crate) struct S;",
            ),
            (
                "b.rs",
                "use super::a; fn g() { a::f(); log!(\"{}\", crate::a::E::V); x.a::<u8>(); }",
            ),
            (
                "c.rs",
                "fn g() { kernel::a::f(); ::a::f(); let a = Self::a; }",
            ),
        ]);
        assert_eq!(found, ["b.rs -> a.rs: E f"]);
    }

    #[test]
    fn modules_within_files_have_scopes_of_their_own() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a; mod b;"),
            ("a.rs", "pub(crate) fn f() {}"),
            (
                "b.rs",
                "mod inner {\n fn g() { super::super::a::f() } }\nfn h() {}",
            ),
        ]);
        assert_eq!(found, ["b.rs -> a.rs: f"]);
    }

    #[test]
    fn a_re_export_that_its_file_uses_is_an_import() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a;"),
            (
                "a.rs",
                "mod b; pub(crate) use b::Foo; pub(crate) struct Bar(Foo);",
            ),
            ("a/b.rs", "use super::Bar; pub(crate) struct Foo;"),
        ]);
        assert_eq!(found, ["a.rs -> a/b.rs: Foo", "a/b.rs -> a.rs: Bar"]);
    }

    #[test]
    fn a_module_is_declared_without_use_of_its_namesake() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a;"),
            (
                "a.rs",
                "mod b; pub(crate) use self::b::b; pub(crate) struct Bar;",
            ),
            ("a/b.rs", "use super::Bar; pub(crate) fn b() {}"),
        ]);
        assert_eq!(found, ["a/b.rs -> a.rs: Bar"]);
    }

    #[test]
    fn tests_name_nothing() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a; mod b;"),
            (
                "a.rs",
                "#[cfg(test)] use crate::b::f; #[cfg(test)] mod testing;",
            ),
            ("a/testing.rs", "use crate::b::f;"),
            (
                "b.rs",
                "pub(crate) fn f() {}\n#[cfg(test)]\nmod tests { fn g() { crate::a::h() } }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn what_globs_and_macros_give_is_found() {
        let found = arrows(&[
            ("rpcrdma_main.rs", "mod a; mod b; mod c;"),
            ("a.rs", "pub(crate) struct Foo; define! { Bar }"),
            ("b.rs", "use crate::a::*; struct B(Foo);"),
            (
                "c.rs",
                "use crate::a::Bar; fn f() { crate::THIS_MODULE.get() }",
            ),
        ]);
        assert_eq!(found, ["b.rs -> a.rs: Foo", "c.rs -> a.rs: Bar"]);
    }

    #[test]
    fn a_file_without_a_module_is_an_error() {
        let files = [("rpcrdma_main.rs", ""), ("a.rs", "")];
        let files = files.map(|(path, text)| (path.to_string(), text.to_string()));
        assert!(Crate::new("rust", files.into()).is_err());
    }

    #[test]
    fn circles_are_what_reaches_itself() {
        let edges = [(0, 1), (1, 2), (2, 0), (2, 3), (4, 5), (5, 4), (6, 6)];
        assert_eq!(circles(7, &edges.into()), [vec![0, 1, 2], vec![4, 5]]);
    }
}
