// SPDX-License-Identifier: GPL-2.0

//! Message continuation: one RPC message in several transport messages
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 6.6.2).
//!
//! All parts but the last have a MIDDLE header, which contains the number of octets still to come.
//! The last part has an INLINE header with the chunk lists of the whole RPC message.
//!
//! No other message may come between the parts in the same direction (4.1, 6.3.6, 6.3.9). A sender
//! therefore starts a sequence only if its window covers all parts, and posts them together. A
//! receiver knows the total size from the first part, before it has stored a single octet.

mod assembly;
mod split;

// This is a library. Which of these names are in use depends on the roles built on top of it.
#[allow(unused_imports)]
pub(crate) use self::{
    assembly::{
        Assembly,
        Placed, //
    },
    split::{
        Part,
        Split, //
    }, //
};
