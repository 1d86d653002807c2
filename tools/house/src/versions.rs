// SPDX-License-Identifier: GPL-2.0

//! Decisions by the version of the protocol.
//!
//! Counted is each expression that asks for the version to choose what is done, once, whatever it
//! is made of:
//!
//! - a `match`, `if let`, `let else` or `matches!` with a pattern of `Version` or `Dialect`;
//! - a comparison with a value of them, also with its number: `== Version::Two`;
//! - a call that answers for one version: `two()`, `v2()`, `is_two()`, `is_one()`, also as the path
//!   of a function;
//! - a test whether there is a channel, by that name: `channel` or `channel()` as what is matched,
//!   with a method of `Option`, or with `?`; and of the flag `has_channel`.
//!
//! Several of these in one condition, in one `match` without the bodies of its arms, or in one
//! chain of calls are one decision. A version that is only handed on or stored is none.

use proc_macro2::{
    TokenStream,
    TokenTree, //
};
use syn::{
    parse::Parser,
    punctuated::Punctuated,
    spanned::Spanned,
    visit::{
        self,
        Visit, //
    },
    BinOp,
    Expr,
    Member,
    Pat, //
};

use crate::source::Source;

/// Calls that answer for one version.
const ANSWERS: [&str; 4] = ["two", "v2", "is_two", "is_one"];

/// Methods that only give another form of an `Option`.
const FORMS: [&str; 7] = [
    "as_ref",
    "as_deref",
    "as_mut",
    "as_deref_mut",
    "clone",
    "cloned",
    "take",
];

/// Methods that depend on whether an `Option` has a value.
const TESTS: [&str; 17] = [
    "and_then",
    "filter",
    "is_none",
    "is_none_or",
    "is_some",
    "is_some_and",
    "map",
    "map_or",
    "map_or_else",
    "ok_or",
    "ok_or_else",
    "or_else",
    "then",
    "then_some",
    "unwrap_or",
    "unwrap_or_else",
    "zip",
];

/// Returns the places of the decisions in a file.
pub(crate) fn decisions(source: &Source) -> Vec<String> {
    let mut finder = Finder {
        source,
        places: Vec::new(),
    };
    finder.visit_file(&source.syntax);
    finder.places
}

struct Finder<'a> {
    source: &'a Source,
    places: Vec<String>,
}

impl Finder<'_> {
    fn found(&mut self, place: &dyn Spanned) {
        let at = self.source.at(place.span());
        let line = place.span().start().line;
        let row = self.source.text.lines().nth(line - 1).unwrap_or_default();
        self.places.push(format!("{at}: {}", row.trim()));
    }

    /// Counts a place if what decides there asks for the version, else looks into it.
    fn decided_by(&mut self, expr: &Expr, place: &dyn Spanned) {
        if asks(expr) || is_optional_channel(expr) {
            self.found(place);
        } else {
            self.visit_expr(expr);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::If(of) => {
                self.decided_by(&of.cond, &of.cond);
                self.visit_block(&of.then_branch);
                if let Some((_, other)) = &of.else_branch {
                    self.visit_expr(other);
                }
            }
            Expr::While(of) => {
                self.decided_by(&of.cond, &of.cond);
                self.visit_block(&of.body);
            }
            Expr::Match(of) => {
                let by_version = of.arms.iter().any(|arm| has_version(&arm.pat))
                    || asks(&of.expr)
                    || is_optional_channel(&of.expr);
                if by_version {
                    self.found(of);
                } else {
                    self.visit_expr(&of.expr);
                }
                for arm in &of.arms {
                    match &arm.guard {
                        Some((_, guard)) if !by_version => self.decided_by(guard, guard),
                        _ => {}
                    }
                    self.visit_expr(&arm.body);
                }
            }
            _ if is_ask(expr) => self.found(expr),
            _ => visit::visit_expr(self, expr),
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let Some(init) = &local.init else { return };
        let Some((_, other)) = &init.diverge else {
            return self.visit_expr(&init.expr);
        };
        if has_version(&local.pat) {
            self.found(local);
        } else {
            self.decided_by(&init.expr, local);
        }
        self.visit_expr(other);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        if mac.path.is_ident("matches") {
            if matches_asks(mac) {
                self.found(mac);
            }
            return;
        }
        for expr in expressions(mac.tokens.clone()) {
            self.visit_expr(&expr);
        }
    }
}

/// Tells whether an expression asks for the version, itself or anywhere inside.
fn asks(expr: &Expr) -> bool {
    struct Any(bool);

    impl<'ast> Visit<'ast> for Any {
        fn visit_expr(&mut self, expr: &'ast Expr) {
            self.0 = self.0 || is_ask(expr);
            if !self.0 {
                visit::visit_expr(self, expr);
            }
        }

        fn visit_expr_let(&mut self, of: &'ast syn::ExprLet) {
            self.0 = self.0 || has_version(&of.pat) || is_optional_channel(&of.expr);
            visit::visit_expr_let(self, of);
        }

        fn visit_macro(&mut self, mac: &'ast syn::Macro) {
            if mac.path.is_ident("matches") {
                self.0 = self.0 || matches_asks(mac);
            } else {
                self.0 = self.0 || expressions(mac.tokens.clone()).iter().any(asks);
            }
        }
    }

    let mut any = Any(false);
    any.visit_expr(expr);
    any.0
}

/// Tells whether an expression itself asks for the version.
fn is_ask(expr: &Expr) -> bool {
    match expr {
        Expr::Binary(of) => {
            let compares = matches!(
                of.op,
                BinOp::Eq(_)
                    | BinOp::Ne(_)
                    | BinOp::Lt(_)
                    | BinOp::Le(_)
                    | BinOp::Gt(_)
                    | BinOp::Ge(_)
            );
            compares && (is_version(&of.left) || is_version(&of.right))
        }
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            if ANSWERS.contains(&name.as_str()) && call.args.is_empty() {
                return true;
            }
            if name == "load" && is_field(&call.receiver, "has_channel") {
                return true;
            }
            // The chain that this is the end of.
            is_ask(&call.receiver)
                || TESTS.contains(&name.as_str()) && is_optional_channel(&call.receiver)
        }
        Expr::Path(of) => {
            let mut segments = of.path.segments.iter().rev();
            let last = segments
                .next()
                .is_some_and(|segment| ANSWERS.contains(&segment.ident.to_string().as_str()));
            // A local variable may have the name as well.
            last && segments.next().is_some()
        }
        Expr::Try(of) => is_optional_channel(&of.expr),
        Expr::Let(of) => has_version(&of.pat) || is_optional_channel(&of.expr),
        _ => false,
    }
}

/// Tells whether an expression is a version, a dialect, or the number of one.
fn is_version(expr: &Expr) -> bool {
    match expr {
        Expr::Path(of) => names_version(&of.path),
        Expr::Paren(of) => is_version(&of.expr),
        Expr::Reference(of) => is_version(&of.expr),
        Expr::Unary(of) => is_version(&of.expr),
        Expr::MethodCall(of) => of.args.is_empty() && is_version(&of.receiver),
        Expr::Call(of) => of.args.iter().any(is_version),
        Expr::Tuple(of) => of.elems.iter().any(is_version),
        _ => false,
    }
}

/// Tells whether an expression is a channel that only connections of some versions have.
fn is_optional_channel(expr: &Expr) -> bool {
    match expr {
        Expr::Field(_) => is_field(expr, "channel"),
        Expr::Path(of) => of.path.is_ident("channel"),
        Expr::Closure(of) => is_optional_channel(&of.body),
        Expr::MethodCall(call) => {
            let name = call.method.to_string();
            if call.args.is_empty() {
                name == "channel"
                    || FORMS.contains(&name.as_str()) && is_optional_channel(&call.receiver)
            } else {
                name == "and_then" && call.args.iter().any(is_optional_channel)
            }
        }
        Expr::Reference(of) => is_optional_channel(&of.expr),
        Expr::Paren(of) => is_optional_channel(&of.expr),
        Expr::Tuple(of) => of.elems.iter().any(is_optional_channel),
        _ => false,
    }
}

fn is_field(expr: &Expr, name: &str) -> bool {
    matches!(expr, Expr::Field(of) if matches!(&of.member, Member::Named(member) if member == name))
}

/// Tells whether a path is one of `Version` or `Dialect`.
fn names_version(path: &syn::Path) -> bool {
    let mut segments = path.segments.iter().rev().skip(1);
    segments
        .next()
        .is_some_and(|segment| segment.ident == "Version" || segment.ident == "Dialect")
}

/// Tells whether a pattern has a version or a dialect in it.
fn has_version(pat: &Pat) -> bool {
    struct Any(bool);

    impl<'ast> Visit<'ast> for Any {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            self.0 = self.0 || names_version(path);
        }
    }

    let mut any = Any(false);
    any.visit_pat(pat);
    any.0
}

/// Tells whether a `matches!` asks for the version.
fn matches_asks(mac: &syn::Macro) -> bool {
    let parser = |input: syn::parse::ParseStream<'_>| {
        let expr: Expr = input.parse()?;
        input.parse::<syn::Token![,]>()?;
        let pat = Pat::parse_multi_with_leading_vert(input)?;
        let guard = if input.peek(syn::Token![if]) {
            input.parse::<syn::Token![if]>()?;
            Some(input.parse::<Expr>()?)
        } else {
            None
        };
        input.parse::<Option<syn::Token![,]>>()?;
        Ok((expr, pat, guard))
    };
    parser
        .parse2(mac.tokens.clone())
        .is_ok_and(|(expr, pat, guard)| {
            asks(&expr)
                || is_optional_channel(&expr)
                || has_version(&pat)
                || guard.is_some_and(|guard| asks(&guard))
        })
}

/// Returns the expressions among the tokens of a macro, such as the fields of `pin_init!`.
fn expressions(tokens: TokenStream) -> Vec<Expr> {
    let list = Punctuated::<Expr, syn::Token![,]>::parse_terminated;
    if let Ok(list) = list.parse2(tokens.clone()) {
        return list.into_iter().collect();
    }
    let trees: Vec<TokenTree> = tokens.into_iter().collect();
    let mut all = Vec::new();
    for part in
        trees.split(|tree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == ','))
    {
        // `name: value` or `name <- value`.
        let value = part
            .iter()
            .position(
                |tree| matches!(tree, TokenTree::Punct(punct) if ":<".contains(punct.as_char())),
            )
            .map_or(part, |at| &part[at + 1..]);
        let value = match value {
            [TokenTree::Punct(punct), rest @ ..] if punct.as_char() == '-' => rest,
            _ => value,
        };
        let stream: TokenStream = value.iter().cloned().collect();
        if let Ok(expr) = syn::parse2(stream) {
            all.push(expr);
            continue;
        }
        for tree in part {
            if let TokenTree::Group(group) = tree {
                all.extend(expressions(group.stream()));
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source;

    /// Returns how many decisions the body of a function has.
    fn count(body: &str) -> usize {
        let text = format!("fn f() {{\n{body}\n}}\n");
        decisions(&source("a.rs", &text)).len()
    }

    #[test]
    fn each_way_to_ask_is_a_decision() {
        for body in [
            "match version { Version::One => 1, Version::Two => 2 };",
            "match x { Some(Dialect::One) | None => 1, _ => 2 };",
            "match self.two() { Some(_) => 1, None => 2 };",
            "match &self.channel { Some(_) => 1, None => 2 };",
            "match x { Y if link.version() == Version::One => 1, _ => 2 };",
            "if version == Version::Two {}",
            "if server_version() < Version::Two.number() {}",
            "if let (Version::Two, Some(channel)) = (version, channel) {}",
            "if let Some(channel) = link.channel() {}",
            "let Some(channel) = self.channel.as_deref() else { return };",
            "let Some(Version::Two) = version else { return };",
            "let two = matches!(version, Some(Version::Two));",
            "let two = channel.is_two();",
            "let two = self.channel().is_some_and(Channel::is_two);",
            "let two = channel.filter(|channel| channel.is_two());",
            "let two = link.as_ref().and_then(|link| link.channel()?.get());",
            "let Some(channel) = link.as_ref().and_then(|link| link.channel()) else { return };",
            "let channel = link.channel(); if let Some(channel) = channel {}",
            "let busy = self.has_channel.load(Acquire);",
            "assert!(version != Version::One);",
            "try_pin_init!(Self { a: 1, b <- New::new(), c: version == Version::Two })",
        ] {
            assert_eq!(count(body), 1, "{body}");
        }
    }

    #[test]
    fn what_decides_once_is_counted_once() {
        for body in [
            "let Some(c) = self.channel().filter(|c| c.is_two()) else { return };",
            "if link.version() == Version::Two && self.two().is_some() {}",
            "match &self.channel { Some(c) if c.is_two() => Version::Two, _ => Version::One };",
            "self.two().map_or(0, |two| two.len()).min(1);",
        ] {
            assert_eq!(count(body), 1, "{body}");
        }
        let nested = "if self.two().is_some() { if version == Version::One {} }";
        assert_eq!(count(nested), 2);
        let guarded = "match x { Y if a == Version::One => 1, Z if c.is_two() => 1, _ => 2 };";
        assert_eq!(count(guarded), 2);
    }

    #[test]
    fn what_hands_a_version_on_decides_nothing() {
        for body in [
            "decode(Version::Two, bytes);",
            "let link = Link { channel: self.channel.clone(), version };",
            "let channel = link.channel();",
            "self.has_channel.store(true, Release);",
            "let two = 2; use_it(two);",
            "let number = version.number();",
        ] {
            assert_eq!(count(body), 0, "{body}");
        }
    }
}
