// SPDX-License-Identifier: GPL-2.0

//! Source files, and which of their lines are code, comments or tests.

use proc_macro2::{
    Delimiter,
    Spacing,
    Span,
    TokenStream,
    TokenTree, //
};
use syn::{
    punctuated::Punctuated,
    spanned::Spanned,
    visit::Visit,
    visit_mut::{
        self,
        VisitMut, //
    },
    Attribute,
    Expr,
    Meta, //
};

/// What a line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// White space only.
    Blank,
    /// Nothing but comments.
    Comment,
    /// At least one token.
    Code,
    /// Any of these, inside of code that is compiled for tests only.
    Test,
}

/// A token outside of comments and test code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// The text; `{`, `}` and the like for the ends of a group.
    pub(crate) text: String,
    /// Whether it is punctuation with another one right behind it.
    pub(crate) joint: bool,
    /// The line, from 1.
    pub(crate) line: usize,
}

/// One file of the module.
pub(crate) struct Source {
    /// The path below the working directory.
    pub(crate) path: String,
    /// The room that the file belongs to.
    pub(crate) room: String,
    /// The text.
    pub(crate) text: String,
    /// The syntax tree, without test code.
    pub(crate) syntax: syn::File,
    /// The tokens, without comments and test code.
    pub(crate) tokens: Vec<Token>,
    /// What each line holds.
    pub(crate) lines: Vec<Line>,
    /// The blocks of doc comments outside of tests: line and first word.
    pub(crate) docs: Vec<(usize, String)>,
}

impl Source {
    /// Takes the text of a file apart. `all_test` tells that all of it is compiled for tests only.
    ///
    /// # Errors
    ///
    /// The text is not Rust.
    pub(crate) fn parse(
        path: String,
        room: String,
        text: String,
        all_test: bool,
    ) -> syn::Result<Self> {
        let stream: TokenStream = text.parse()?;
        let mut syntax: syn::File = syn::parse2(stream.clone())?;
        let count = text.lines().count();
        let mut tests = vec![all_test; count + 1];
        if all_test {
            syntax.items.clear();
        }
        let mut without = WithoutTests { tests: &mut tests };
        without.visit_file_mut(&mut syntax);
        let rows: Vec<&str> = text.lines().collect();
        let mut scan = Scan {
            rows: &rows,
            tokens: Vec::new(),
            code: vec![false; count + 1],
            docs: vec![None; count + 1],
        };
        scan.stream(stream);
        let Scan {
            mut tokens,
            code,
            docs,
            ..
        } = scan;
        tokens.retain(|token| !tests[token.line]);
        let lines = rows
            .iter()
            .enumerate()
            .map(|(at, row)| {
                if row.trim().is_empty() {
                    Line::Blank
                } else if tests[at + 1] {
                    Line::Test
                } else if code[at + 1] {
                    Line::Code
                } else {
                    Line::Comment
                }
            })
            .collect();
        let docs = first_words(&docs, &tests, &rows);
        Ok(Self {
            path,
            room,
            text,
            syntax,
            tokens,
            lines,
            docs,
        })
    }

    /// Returns how many lines are of a kind.
    pub(crate) fn count(&self, kind: Line) -> usize {
        self.lines.iter().filter(|line| **line == kind).count()
    }

    /// Returns how many lines of code are imports, which the kernel writes one name a line.
    pub(crate) fn imports(&self) -> usize {
        let mut imports = Imports(vec![false; self.lines.len() + 1]);
        imports.visit_file(&self.syntax);
        let lines = self.lines.iter().zip(&imports.0[1..]);
        lines
            .filter(|(line, import)| **line == Line::Code && **import)
            .count()
    }

    /// Returns a place as it is printed.
    pub(crate) fn at(&self, span: Span) -> String {
        format!("{}:{}", self.path, span.start().line)
    }
}

/// Which lines belong to imports, by number.
struct Imports(Vec<bool>);

impl Visit<'_> for Imports {
    fn visit_item_use(&mut self, item: &syn::ItemUse) {
        let span = item.span();
        self.0[span.start().line..=span.end().line].fill(true);
    }
}

/// Returns the room of a path below the module's root.
pub(crate) fn room(inner: &str) -> String {
    let first = inner.split('/').next().unwrap_or(inner);
    match first.strip_suffix(".rs") {
        Some("rpcrdma_main") => "main".into(),
        Some(name) => name.into(),
        None => first.into(),
    }
}

/// Returns the first word of each block of doc comments, in lower case.
fn first_words(docs: &[Option<char>], tests: &[bool], rows: &[&str]) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    for line in 1..docs.len() {
        if docs[line].is_none() || tests[line] || docs[line] == docs[line - 1] {
            continue;
        }
        let word: String = rows[line - 1]
            .trim_start()
            .trim_start_matches(|c: char| !c.is_alphanumeric())
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .flat_map(char::to_lowercase)
            .collect();
        words.push((line, word));
    }
    words
}

/// What the tokens of a file say about its lines.
struct Scan<'a> {
    rows: &'a [&'a str],
    tokens: Vec<Token>,
    /// Which lines have a token, by number.
    code: Vec<bool>,
    /// Which lines are doc comments, by number: `/` for outer ones, `!` for inner ones.
    docs: Vec<Option<char>>,
}

impl Scan<'_> {
    fn stream(&mut self, stream: TokenStream) {
        for tree in stream {
            // To the parser a doc comment is an attribute, each token of which has the place of
            // the whole comment.
            let start = tree.span().start();
            let row = self.rows.get(start.line - 1).copied().unwrap_or_default();
            let text: String = row.chars().skip(start.column).take(3).collect();
            if text.starts_with("//") || text.starts_with("/*") {
                let inner = text.ends_with('!');
                for line in start.line..=tree.span().end().line {
                    self.docs[line] = Some(if inner { '!' } else { '/' });
                }
                continue;
            }
            match tree {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::None => ("", ""),
                    };
                    self.push(open.into(), group.span_open(), false);
                    self.stream(group.stream());
                    self.push(close.into(), group.span_close(), false);
                }
                TokenTree::Punct(punct) => {
                    let joint = punct.spacing() == Spacing::Joint;
                    self.push(punct.to_string(), punct.span(), joint);
                }
                other => self.push(other.to_string(), other.span(), false),
            }
        }
    }

    fn push(&mut self, text: String, span: Span, joint: bool) {
        let line = span.start().line;
        for line in line..=span.end().line {
            self.code[line] = true;
        }
        self.tokens.push(Token { text, joint, line });
    }
}

/// Removes what is compiled for tests only, and notes its lines.
struct WithoutTests<'a> {
    tests: &'a mut Vec<bool>,
}

impl WithoutTests<'_> {
    /// Tells whether something with these attributes stays, and notes its lines if not.
    fn keep(&mut self, attrs: &[Attribute], whole: &dyn Spanned) -> bool {
        let test = is_test(attrs);
        if test {
            let span = whole.span();
            for line in span.start().line..=span.end().line {
                self.tests[line] = true;
            }
        }
        !test
    }
}

impl VisitMut for WithoutTests<'_> {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| self.keep(item_attrs(item), item));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, item: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut item.content {
            items.retain(|item| self.keep(item_attrs(item), item));
        }
        visit_mut::visit_item_mod_mut(self, item);
    }

    fn visit_item_impl_mut(&mut self, item: &mut syn::ItemImpl) {
        item.items.retain(|item| {
            let attrs: &[Attribute] = match item {
                syn::ImplItem::Const(item) => &item.attrs,
                syn::ImplItem::Fn(item) => &item.attrs,
                syn::ImplItem::Type(item) => &item.attrs,
                syn::ImplItem::Macro(item) => &item.attrs,
                _ => &[],
            };
            self.keep(attrs, item)
        });
        visit_mut::visit_item_impl_mut(self, item);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|stmt| {
            let attrs: &[Attribute] = match stmt {
                syn::Stmt::Local(local) => &local.attrs,
                syn::Stmt::Item(item) => item_attrs(item),
                syn::Stmt::Macro(stmt) => &stmt.attrs,
                syn::Stmt::Expr(Expr::Block(block), _) => &block.attrs,
                syn::Stmt::Expr(..) => &[],
            };
            self.keep(attrs, stmt)
        });
        visit_mut::visit_block_mut(self, block);
    }
}

/// Returns the attributes of an item.
pub(crate) fn item_attrs(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::TraitAlias(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Tells whether something with these attributes is compiled for tests only.
pub(crate) fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| is_test_meta(&attr.meta))
}

fn is_test_meta(meta: &Meta) -> bool {
    let Meta::List(list) = meta else { return false };
    let parts = list.parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated);
    let Ok(parts) = parts else { return false };
    if list.path.is_ident("cfg") {
        parts.first().is_some_and(|part| holds(part) == Some(false))
    } else if list.path.is_ident("cfg_attr") {
        let mut parts = parts.iter();
        parts.next().is_some_and(|part| holds(part) != Some(false)) && parts.any(is_test_meta)
    } else {
        false
    }
}

/// Evaluates a predicate of `cfg` for a build without tests, as far as it depends on that.
fn holds(meta: &Meta) -> Option<bool> {
    match meta {
        Meta::Path(path) if path.is_ident("test") || path.is_ident("rpcrdma_kunit") => Some(false),
        Meta::List(list) => {
            let parts = list
                .parse_args_with(Punctuated::<Meta, syn::Token![,]>::parse_terminated)
                .ok()?;
            let mut values = parts.iter().map(holds);
            if list.path.is_ident("not") {
                values.next()?.map(|value| !value)
            } else if list.path.is_ident("any") {
                values.try_fold(false, |any, value| value.map(|value| any || value))
            } else if list.path.is_ident("all") {
                let values: Vec<_> = values.collect();
                if values.contains(&Some(false)) {
                    Some(false)
                } else {
                    values
                        .into_iter()
                        .try_fold(true, |all, value| Some(all && value?))
                }
            } else {
                None
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source;

    const SNIPPET: &str = r#"//! A module.

/// A constant.
// Why.
const TEXT: &str = "
// code";

#[cfg(any(test, rpcrdma_kunit))]
mod testing;

#[cfg(not(CONFIG_A))]
fn kept() {
    #[cfg(test)]
    let gone = unsafe { 1 };
    let stays = 1; // unsafe
}

#[cfg_attr(rpcrdma_kunit, kernel::macros::kunit_tests(name))]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    //! What.
}
"#;

    #[test]
    fn lines_are_code_comments_or_tests() {
        let source = source("a.rs", SNIPPET);
        assert_eq!(source.count(Line::Blank), 4);
        assert_eq!(source.count(Line::Comment), 3);
        assert_eq!(source.count(Line::Code), 6);
        assert_eq!(source.count(Line::Test), 9);
        assert_eq!(source.lines[5], Line::Code);
    }

    #[test]
    fn imports_are_lines_of_code() {
        let text = "use a::{ //\n    b,\n    c, //\n};\nfn f() {\n    use d;\n}\n";
        let all = source("a.rs", text);
        assert_eq!((all.count(Line::Code), all.imports()), (7, 5));
        let some = source("a.rs", "#[cfg(test)]\nuse a;\nuse b;\n");
        assert_eq!(some.imports(), 1);
    }

    #[test]
    fn tests_are_neither_in_the_tree_nor_in_the_tokens() {
        let source = source("a.rs", SNIPPET);
        assert_eq!(source.syntax.items.len(), 2);
        assert!(source.tokens.iter().any(|token| token.text == "stays"));
        assert!(source.tokens.iter().all(|token| token.text != "unsafe"));
    }

    #[test]
    fn a_block_of_docs_has_a_first_word() {
        let source = source(
            "a.rs",
            "/// `Foo`'s.\n/// What.\n// No.\n/// Who's.\nfn f() {}\n",
        );
        assert_eq!(source.docs, [(1, "foo".into()), (4, "who".into())]);
    }

    #[test]
    fn files_belong_to_rooms() {
        assert_eq!(room("rpcrdma_main.rs"), "main");
        assert_eq!(room("link/mod.rs"), "link");
        assert_eq!(room("link.rs"), "link");
        assert_eq!(room("endpoint/mod.rs"), "endpoint");
        assert_eq!(room("rdma/cm/listener.rs"), "rdma");
    }
}
