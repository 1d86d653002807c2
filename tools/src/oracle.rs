// SPDX-License-Identifier: GPL-2.0

//! What must be true whatever bytes come in.
//!
//! Each function takes arbitrary bytes, lets the core work on them and panics if the outcome is not
//! consistent with itself. Fuzz targets and property tests share them.

mod auth;
mod chunk_lists;
mod cm_private;
mod credits;
mod earlier;
mod format;
mod message;
pub(crate) mod rpc;
mod two;
mod xdr;

#[cfg(test)]
pub(crate) use self::format::{
    plan_fits,
    segments_of, //
};
pub use self::{
    auth::auth,
    chunk_lists::chunk_lists,
    cm_private::cm_private,
    credits::credits,
    earlier::{
        first_message,
        v2_2016_message, //
    },
    format::format,
    message::v1_message,
    rpc::rpc_message,
    two::{
        continuation,
        properties,
        session,
        v2_message, //
    },
    xdr::xdr, //
};
