// SPDX-License-Identifier: GPL-2.0

//! Functions, types and attributes that a figure counts.

use std::collections::BTreeMap;

use syn::{
    spanned::Spanned,
    visit::{
        self,
        Visit, //
    },
    Arm,
    Attribute,
    FnArg,
    Lit,
    Pat,
    Visibility, //
};

use crate::source::Source;

/// Places in one file, by what they are counted as.
#[derive(Default)]
pub(crate) struct Shape {
    /// Functions of more than 100 lines, from the signature to the brace.
    pub(crate) long: Vec<String>,
    /// Functions with more than five arguments beside `self`.
    pub(crate) arguments: Vec<String>,
    /// Each `match` with an arm `true` or `false`.
    pub(crate) match_bool: Vec<String>,
    /// Modules in which dead code is allowed.
    pub(crate) dead_code: Vec<String>,
    /// Public types: name and place.
    pub(crate) types: Vec<(String, String)>,
}

impl Shape {
    /// Looks a file through.
    pub(crate) fn of(source: &Source) -> Self {
        let mut finder = Finder {
            source,
            shape: Self::default(),
        };
        if allows_dead_code(&source.syntax.attrs) {
            finder.shape.dead_code.push(format!("{}:1", source.path));
        }
        finder.visit_file(&source.syntax);
        finder.shape
    }
}

/// Returns the names of public types that are defined more than once, with their places.
pub(crate) fn repeated(types: &[(String, String)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, place) in types {
        places.entry(name).or_default().push(place);
    }
    places
        .into_iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect()
}

struct Finder<'a> {
    source: &'a Source,
    shape: Shape,
}

impl Finder<'_> {
    fn function(&mut self, sig: &syn::Signature, block: &syn::Block) {
        let at = self.source.at(sig.span());
        let lines = block.span().end().line - sig.span().start().line + 1;
        if lines > 100 {
            self.shape.long.push(format!("{at}: {} {lines}", sig.ident));
        }
        let inputs = sig.inputs.iter();
        let count = inputs
            .filter(|input| matches!(input, FnArg::Typed(_)))
            .count();
        if count > 5 {
            self.shape
                .arguments
                .push(format!("{at}: {} {count}", sig.ident));
        }
    }

    fn public(&mut self, vis: &Visibility, ident: &syn::Ident) {
        let public = match vis {
            Visibility::Public(_) => true,
            Visibility::Restricted(to) => to.path.is_ident("crate"),
            Visibility::Inherited => false,
        };
        if public {
            self.shape
                .types
                .push((ident.to_string(), self.source.at(ident.span())));
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        if expr.arms.iter().any(is_bool) {
            self.shape.match_bool.push(self.source.at(expr.span()));
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.public(&item.vis, &item.ident);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.public(&item.vis, &item.ident);
    }

    fn visit_item_union(&mut self, item: &'ast syn::ItemUnion) {
        self.public(&item.vis, &item.ident);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.public(&item.vis, &item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.public(&item.vis, &item.ident);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if allows_dead_code(&item.attrs) {
            let at = self.source.at(item.ident.span());
            self.shape.dead_code.push(format!("{at}: {}", item.ident));
        }
        visit::visit_item_mod(self, item);
    }
}

/// Tells whether an arm has the pattern `true` or `false`.
fn is_bool(arm: &Arm) -> bool {
    matches!(&arm.pat, Pat::Lit(lit) if matches!(lit.lit, Lit::Bool(_)))
}

fn allows_dead_code(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("allow")
            && attr
                .meta
                .require_list()
                .is_ok_and(|list| list.tokens.to_string().contains("dead_code"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::source;

    fn shape(text: &str) -> Shape {
        Shape::of(&source("a.rs", text))
    }

    #[test]
    fn a_function_of_101_lines_is_long() {
        let of = |lines: usize| {
            let body = "    f();\n".repeat(lines - 2);
            shape(&format!("/// Docs.\n#[inline]\nfn f() {{\n{body}}}\n")).long
        };
        assert!(of(100).is_empty());
        assert_eq!(of(101), ["a.rs:3: f 101"]);
    }

    #[test]
    fn self_is_no_argument() {
        let text = "impl A { fn f(&self, a: A, b: A, c: A, d: A, e: A) {} }";
        assert!(shape(text).arguments.is_empty());
        let text = "fn f(a: A, b: A, c: A, d: A, e: A, f: A) {}";
        assert_eq!(shape(text).arguments, ["a.rs:1: f 6"]);
    }

    #[test]
    fn a_match_on_a_bool_has_an_arm_of_one() {
        let text = "fn f() {\n match a {\n true => 1,\n false => 2 };\n match b { _ => 1 };\n}";
        assert_eq!(shape(text).match_bool, ["a.rs:2"]);
    }

    #[test]
    fn a_name_is_repeated_among_public_types_only() {
        let text = "pub(crate) struct A;\nmod b { pub enum A {} struct C; pub type D = u8; }\n\
                    struct C;\ntrait D {}\n";
        assert_eq!(repeated(&shape(text).types), ["A: a.rs:1, a.rs:2"]);
    }

    #[test]
    fn dead_code_is_allowed_in_modules() {
        let text = "#[allow(dead_code)]\nmod a;\n#[allow(unused)] mod b {}\n";
        assert_eq!(shape(text).dead_code, ["a.rs:2: a"]);
        assert_eq!(shape("#![allow(dead_code)]\n").dead_code, ["a.rs:1"]);
    }
}
