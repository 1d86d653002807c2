// SPDX-License-Identifier: GPL-2.0

//! Snippets as source files.

use crate::source::{
    room,
    Source, //
};

/// Parses a snippet as the file of a path below the module's root.
pub(crate) fn source(inner: &str, text: &str) -> Source {
    Source::parse(inner.into(), room(inner), text.into(), false).unwrap()
}
